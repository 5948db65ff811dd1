/* Descriptors of the real loop: events of its base, and an epoll over duplicates of them all for an
 * owner that embeds the loop by descriptor. */
#include "runtime/loop/loop_libevent_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <event2/event.h>

/* A watch that the system refused for want of memory is tried again this often. */
#define REFUSED_AGAIN_NS (50 * MUSTER_NS_PER_MS)

/* One poll may tell of thousands of descriptors. After so many events the tasks that they have posted run, so that
 * an answer leaves while what it needs is in the caches, and does not wait for all of them. */
#define EVENTS_AT_ONCE 32u

/* The private side of a muster_fd_watch. */
struct fd_impl {
    struct muster_fd_watch *watch;
    struct libevent_loop *ours;
    struct event event;
    struct muster_list node;
    int mirror_dup;  /* own duplicate, so that two watches may share a descriptor; -1: none */
    bool is_added;   /* the event is in the base */
    bool is_refused; /* no memory: the events wanted are not watched, or not in the mirror */
};

/* As a turn of its own between two events. The owner of a joined base turns it for other things, too. */
static void note_event(struct libevent_loop *ours)
{
    if (++ours->event_count < EVENTS_AT_ONCE || ours->is_joined)
        return;
    ours->event_count = 0;
    ours->is_clock_stale = true;
    (void)muster_loop_libevent_tasks(ours);
}

/* The callback may close its watch, so nothing of it is read afterwards. A foreign turn of a joined
 * base counts as a turn of ours while the callback runs. */
static void on_fd_event(evutil_socket_t fd, short events, void *data)
{
    struct fd_impl *impl = data;
    struct muster_fd_watch *watch = impl->watch;
    struct libevent_loop *ours = impl->ours;
    bool was_in_turn = ours->is_in_turn;
    unsigned ready = 0;

    (void)fd;
    if ((events & EV_READ) != 0)
        ready |= MUSTER_FD_READ;
    if ((events & EV_WRITE) != 0)
        ready |= MUSTER_FD_WRITE;
    MUSTER_ASSERT(watch->impl == impl);
    ours->is_clock_stale = ours->is_clock_stale || !was_in_turn;
    ours->is_in_turn = true;
    ours->has_moved = true;
    watch->on_ready(watch, ready);
    note_event(ours);
    ours->is_in_turn = was_in_turn;
    muster_loop_libevent_rearm(ours);
}

static void mirror_remove(struct libevent_loop *ours, struct fd_impl *impl)
{
    if (impl->mirror_dup < 0)
        return;
    epoll_ctl(ours->mirror_fd, EPOLL_CTL_DEL, impl->mirror_dup, NULL);
    close(impl->mirror_dup);
    impl->mirror_dup = -1;
}

static enum muster_rc mirror_add(struct libevent_loop *ours, struct fd_impl *impl, unsigned wanted)
{
    struct epoll_event event = {.events = 0};

    if (ours->mirror_fd < 0 || wanted == 0)
        return MUSTER_OK;
    if ((wanted & MUSTER_FD_READ) != 0)
        event.events |= EPOLLIN;
    if ((wanted & MUSTER_FD_WRITE) != 0)
        event.events |= EPOLLOUT;
    impl->mirror_dup = fcntl(impl->watch->fd, F_DUPFD_CLOEXEC, 0);
    if (impl->mirror_dup < 0)
        return muster_rc_from_errno(errno);
    if (epoll_ctl(ours->mirror_fd, EPOLL_CTL_ADD, impl->mirror_dup, &event) != 0)
        return muster_rc_from_errno(errno);
    return MUSTER_OK;
}

static enum muster_rc fd_add(struct libevent_loop *ours, struct fd_impl *impl, unsigned wanted)
{
    short events = EV_PERSIST;

    if (wanted == 0)
        return MUSTER_OK;
    if ((wanted & MUSTER_FD_READ) != 0)
        events |= EV_READ;
    if ((wanted & MUSTER_FD_WRITE) != 0)
        events |= EV_WRITE;
    if (event_assign(&impl->event, ours->base, impl->watch->fd, events, on_fd_event, impl) != 0)
        return MUSTER_INVALID_ARGUMENT;
    impl->is_added = event_add(&impl->event, NULL) == 0;
    return impl->is_added ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

static enum muster_rc watch_add(struct libevent_loop *ours, struct fd_impl *impl, unsigned wanted)
{
    enum muster_rc rc = fd_add(ours, impl, wanted);

    return rc == MUSTER_OK ? mirror_add(ours, impl, wanted) : rc;
}

static void watch_remove(struct libevent_loop *ours, struct fd_impl *impl)
{
    if (impl->is_added)
        event_del(&impl->event);
    impl->is_added = false;
    mirror_remove(ours, impl);
}

void muster_loop_libevent_fd_close(struct muster_loop *loop, struct muster_fd_watch *watch)
{
    struct fd_impl *impl = watch->impl;

    MUSTER_ASSERT(impl != NULL && impl->watch == watch);
    watch_remove(ours_of(loop), impl);
    muster_list_remove(&impl->node);
    muster_mem_free(ours_of(loop)->mem, impl);
    watch->impl = NULL;
}

enum muster_rc muster_loop_libevent_fd_open(struct muster_loop *loop, struct muster_fd_watch *watch)
{
    struct libevent_loop *ours = ours_of(loop);
    struct fd_impl *impl = muster_mem_alloc_zero(ours->mem, 1, sizeof(*impl));
    enum muster_rc rc;

    if (impl == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    impl->watch = watch;
    impl->ours = ours;
    impl->mirror_dup = -1;
    muster_list_append(&ours->watches, &impl->node);
    watch->impl = impl;
    rc = watch_add(ours, impl, watch->wanted);
    if (rc != MUSTER_OK)
        muster_loop_libevent_fd_close(loop, watch);
    return rc;
}

/* Removed and added again, because libevent cannot change the events of a pending one. A refusal is
 * no error of the caller, who has no way to hear of it: the watch is tried again. */
static void watch_set(struct libevent_loop *ours, struct fd_impl *impl, unsigned wanted)
{
    watch_remove(ours, impl);
    impl->is_refused = watch_add(ours, impl, wanted) != MUSTER_OK;
    if (impl->is_refused)
        muster_timer_start(&ours->refused_again, &ours->loop,
                           muster_loop_after_ns(&ours->loop, REFUSED_AGAIN_NS));
}

void muster_loop_libevent_on_refused_again(struct muster_timer *timer)
{
    struct libevent_loop *ours = timer->data;

    MUSTER_LIST_EACH(&ours->watches, impl, struct fd_impl, node)
        if (impl->is_refused)
            watch_set(ours, impl, impl->watch->wanted);
}

void muster_loop_libevent_fd_update(struct muster_loop *loop, struct muster_fd_watch *watch,
                                    unsigned wanted)
{
    MUSTER_ASSERT(watch->impl != NULL);
    watch_set(ours_of(loop), watch->impl, wanted);
}

/* A mirror that lacks one descriptor would let its owner sleep through that descriptor's events, so
 * it holds all that is watched, or does not exist. */
static void mirror_close(struct libevent_loop *ours)
{
    MUSTER_LIST_EACH(&ours->watches, impl, struct fd_impl, node)
        mirror_remove(ours, impl);
    close(ours->mirror_fd);
    ours->mirror_fd = -1;
}

int muster_loop_fd(struct muster_loop *loop)
{
    struct libevent_loop *ours = ours_of(loop);

    if (ours->mirror_fd >= 0)
        return ours->mirror_fd;
    ours->mirror_fd = epoll_create1(EPOLL_CLOEXEC);
    if (ours->mirror_fd < 0)
        return -1;
    MUSTER_LIST_EACH(&ours->watches, impl, struct fd_impl, node) {
        if (mirror_add(ours, impl, impl->watch->wanted) != MUSTER_OK) {
            mirror_close(ours);
            return -1;
        }
    }
    return ours->mirror_fd;
}

bool muster_loop_libevent_has_descriptors(void)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC), ends[2];
    bool has_pair = epoll >= 0 && pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0;

    if (has_pair) {
        close(ends[0]);
        close(ends[1]);
    }
    if (epoll >= 0)
        close(epoll);
    return has_pair;
}
