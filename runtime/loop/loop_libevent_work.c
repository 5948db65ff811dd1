/* The work of the real loop: when it is due, the tick that ends a poll in time, and the timers and
 * tasks of one turn. */
#include "runtime/loop/loop_libevent_internal.h"

#include <sys/timerfd.h>
#include <time.h>

#include <event2/event.h>

/* The monotonic clock of the host: deadlines must not move when the wall clock is set. */
uint64_t muster_loop_libevent_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * MUSTER_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Rounded up, because a poll that ends early would find nothing due and spin until it is. */
static struct timeval to_timeval(uint64_t ns)
{
    uint64_t us = ns / MUSTER_NS_PER_US + (ns % MUSTER_NS_PER_US != 0);

    return (struct timeval){
        .tv_sec = (time_t)(us / 1000000),
        .tv_usec = (suseconds_t)(us % 1000000),
    };
}

/* Waiting tasks make the loop due at once. In a joined base nothing spins, so pollers are looked at
 * by the tick. */
uint64_t muster_loop_libevent_due_ns(const struct libevent_loop *ours)
{
    const struct muster_timer *first = muster_timer_queue_first(&ours->timers);
    uint64_t due_ns = first == NULL ? UINT64_MAX : first->due_ns;
    uint64_t look_ns = ours->poll.turn_ns + MUSTER_LOOP_SLEEP_NS;

    if (!muster_list_is_empty(&ours->tasks))
        return 0;
    if (ours->is_joined && !muster_loop_poll_is_idle(&ours->poll) && look_ns < due_ns)
        return look_ns;
    return due_ns;
}

static void set_tick_fd(const struct libevent_loop *ours, uint64_t due_ns)
{
    struct itimerspec spec = {.it_value = {.tv_sec = 0}}; /* zero disarms */

    if (due_ns != UINT64_MAX) {
        spec.it_value.tv_sec = (time_t)(due_ns / MUSTER_NS_PER_S);
        spec.it_value.tv_nsec = (long)(due_ns % MUSTER_NS_PER_S) + (due_ns == 0);
    }
    (void)timerfd_settime(ours->tick_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* libevent sorts its own timers for each poll; one timerfd that is set only when the due time
 * changes is cheaper. A joined base has its own timer, and gets ours as an event. */
void muster_loop_libevent_arm(struct libevent_loop *ours, uint64_t due_ns, uint64_t now_ns)
{
    struct timeval delay;

    if (due_ns == ours->tick_due_ns)
        return;
    ours->tick_due_ns = due_ns;
    if (!ours->is_joined) {
        set_tick_fd(ours, due_ns);
        return;
    }
    if (due_ns == UINT64_MAX) {
        event_del(&ours->tick);
        return;
    }
    delay = to_timeval(due_ns > now_ns ? due_ns - now_ns : 0);
    if (event_add(&ours->tick, &delay) != 0)
        event_active(&ours->tick, EV_TIMEOUT, 1); /* no memory: rather too early than never */
}

void muster_loop_libevent_rearm(struct libevent_loop *ours)
{
    uint64_t due_ns = muster_loop_libevent_due_ns(ours);

    if (ours->is_joined && !ours->is_in_turn && due_ns < ours->tick_due_ns)
        muster_loop_libevent_arm(ours, due_ns, muster_loop_libevent_clock_ns());
}

/* order_limit keeps timers that are started by these callbacks for the next turn, so that a timer
 * that starts itself again at once cannot hold up the turn. */
static bool run_timers(struct libevent_loop *ours)
{
    uint64_t order_limit = ours->timers.next_order;
    struct muster_timer *timer;
    bool has_run = false;

    while ((timer = muster_timer_queue_pop_due(&ours->timers, ours->now_ns, order_limit)) != NULL) {
        MUSTER_ASSERT(timer->loop == &ours->loop);
        timer->loop = NULL;
        timer->on_expire(timer);
        has_run = true;
    }
    return has_run;
}

/* The list is taken whole before the first task runs: tasks posted meanwhile wait for the next
 * turn, and one that is cancelled by an earlier one is not run. */
bool muster_loop_libevent_tasks(struct libevent_loop *ours)
{
    struct muster_list batch;
    struct muster_list *node;
    bool has_run = false;

    muster_list_take_all(&batch, &ours->tasks);
    while ((node = muster_list_pop(&batch)) != NULL) {
        struct muster_task *task = MUSTER_CONTAINER_OF(node, struct muster_task, node);

        task->on_run(task);
        has_run = true;
    }
    return has_run;
}

/* The second half of a turn that a poller ended: the poller has posted tasks, and nothing else is
 * new since the clock was read, so timers are left alone. */
static bool run_second(struct libevent_loop *ours)
{
    ours->is_second = false;
    ours->was_second = true;
    ours->is_clock_stale = true;
    return muster_loop_libevent_tasks(ours);
}

bool muster_loop_libevent_work(struct libevent_loop *ours)
{
    bool has_run;

    if (ours->is_second && !muster_list_is_empty(&ours->tasks))
        return run_second(ours);
    ours->is_second = ours->was_second = false;
    ours->event_count = 0;
    ours->now_ns = muster_loop_libevent_clock_ns();
    ours->is_clock_stale = false;
    has_run = run_timers(ours);
    has_run = muster_loop_libevent_tasks(ours) || has_run;
    if (ours->is_joined && !muster_loop_poll_is_idle(&ours->poll)) {
        ours->poll.turn_ns = ours->now_ns;
        has_run = muster_loop_poll_once(&ours->poll) || has_run;
    }
    return has_run;
}
