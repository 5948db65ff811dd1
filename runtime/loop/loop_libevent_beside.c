/* Sleep beside the loop: a thread that does not turn it waits until somebody should. */
#include "runtime/loop/loop_libevent_internal.h"

#include <sys/epoll.h>

/* The base's descriptor is among the first that its thread has opened. */
#define DESCRIPTORS_MAX 4096

/* libevent does not show its epoll. Of all descriptors it is the one in which the entry of our tick can be set, here to
 * what it is already: others have no such entry, or are no epoll. */
int muster_loop_descriptor(struct muster_loop *loop)
{
    const struct libevent_loop *ours = ours_of(loop);
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = ours->tick_fd}};

    for (int fd = 0; !ours->is_joined && fd < DESCRIPTORS_MAX; fd++)
        if (epoll_ctl(fd, EPOLL_CTL_MOD, ours->tick_fd, &event) == 0)
            return fd;
    return -1;
}

bool muster_loop_arm(struct muster_loop *loop)
{
    struct libevent_loop *ours = ours_of(loop);

    if (ours->is_joined || ours->has_foreign_events || !muster_loop_poll_is_idle(&ours->poll))
        return false;
    muster_loop_libevent_arm(ours, muster_loop_libevent_due_ns(ours), 0);
    return true;
}

bool muster_loop_has_work(const struct muster_loop *loop)
{
    return muster_loop_libevent_due_ns(ours_of(loop)) <= muster_loop_libevent_clock_ns();
}
