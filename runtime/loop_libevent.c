/* The real loop: muster's timers and tasks, and descriptors, on one libevent base. */
#include "runtime/loop_libevent.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "runtime/loop_poll.h"
#include "runtime/timer_queue.h"

/* A loop that lends its base to foreign events cannot see them from outside: its owner looks this
 * often. */
#define FOREIGN_POLL_NS (10 * MUSTER_NS_PER_MS)

struct libevent_loop {
    struct muster_loop loop;
    struct muster_mem *mem;
    struct event_base *base;
    bool is_joined; /* the base is the caller's: `tick` brings the loop its turns */
    bool is_in_turn;
    bool is_stopped;
    bool is_clock_stale; /* the poll may have slept: read the clock when it is asked for */
    bool has_foreign_events;
    uint64_t now_ns;
    uint64_t awake_until_ns;  /* before it a turn does not sleep … */
    uint64_t drowsy_until_ns; /* … but for this time: others want the processor */
    uint64_t drowsy_ns;
    bool is_background;
    bool has_moved; /* an event of ours has come since this was cleared */
    bool has_skipped_poll;
    bool
        is_second; /* the last turn ended because something moved in memory: this one belongs to it */
    bool was_second; /* never twice in a row: timers */
    struct event tick;
    uint64_t tick_due_ns; /* UINT64_MAX: not armed */
    int tick_fd; /* timerfd of a base of our own: libevent would set one before every poll; -1:
                    joined */
    struct muster_loop_poll poll;
    struct muster_timer_queue timers;
    struct muster_list tasks;
    struct muster_list watches;
    int mirror_fd; /* epoll over duplicates of all watched descriptors, made by muster_loop_fd; -1:
                      none */
};

/* A yield that comes back so late may have let another thread run … */
#define LATE_NS (2 * MUSTER_NS_PER_US)
/* … and if it has, the loop sleeps instead for so long, each time twice as long while it happens
 * again and again: once is a passer-by, who shares the processor comes back. */
#define DROWSY_FIRST_NS (100 * MUSTER_NS_PER_US)
#define DROWSY_MAX_NS   (10 * MUSTER_NS_PER_MS)

/* The private side of a muster_fd_watch. */
struct fd_impl {
    struct event event;
    struct muster_fd_watch *watch;
    struct libevent_loop *ours;
    struct muster_list node;
    int mirror_dup; /* own duplicate, so that two watches may share a descriptor; -1: none */
};

static struct libevent_loop *ours_of(const struct muster_loop *loop)
{
    return (struct libevent_loop *)(uintptr_t)loop;
}

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * MUSTER_NS_PER_S + (uint64_t)now.tv_nsec;
}

static struct timeval to_timeval(uint64_t ns)
{
    uint64_t us = ns / MUSTER_NS_PER_US + (ns % MUSTER_NS_PER_US != 0);

    return (struct timeval){
        .tv_sec = (time_t)(us / 1000000),
        .tv_usec = (suseconds_t)(us % 1000000),
    };
}

/* The time at which the loop next has work of its own: 0 with tasks waiting, UINT64_MAX for never.
 */
static uint64_t next_due_ns(const struct libevent_loop *ours)
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

static void arm_tick(struct libevent_loop *ours, uint64_t due_ns, uint64_t now_ns)
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
    event_add(&ours->tick, &delay);
}

/* In a joined base the tick must always be early enough. */
static void rearm_joined(struct libevent_loop *ours)
{
    uint64_t due_ns = next_due_ns(ours);

    if (ours->is_joined && !ours->is_in_turn && due_ns < ours->tick_due_ns)
        arm_tick(ours, due_ns, clock_ns());
}

static bool run_timers(struct libevent_loop *ours)
{
    uint64_t order_limit = ours->timers.next_order;
    struct muster_timer *timer;
    bool has_run = false;

    while ((timer = muster_timer_queue_pop_due(&ours->timers, ours->now_ns, order_limit)) != NULL) {
        timer->loop = NULL;
        timer->on_expire(timer);
        has_run = true;
    }
    return has_run;
}

static bool run_tasks(struct libevent_loop *ours)
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

/* What has moved has posted tasks: they are all that is new since the clock was read. */
static bool run_second(struct libevent_loop *ours)
{
    ours->is_second = false;
    ours->was_second = true;
    ours->is_clock_stale = true;
    return run_tasks(ours);
}

static bool run_own_work(struct libevent_loop *ours)
{
    bool has_run;

    if (ours->is_second && !muster_list_is_empty(&ours->tasks))
        return run_second(ours);
    ours->is_second = ours->was_second = false;
    ours->now_ns = clock_ns();
    ours->is_clock_stale = false;
    has_run = run_timers(ours);
    has_run = run_tasks(ours) || has_run;
    if (ours->is_joined && !muster_loop_poll_is_idle(&ours->poll)) {
        ours->poll.turn_ns = ours->now_ns;
        has_run = muster_loop_poll_once(&ours->poll) || has_run;
    }
    return has_run;
}

static void on_tick(evutil_socket_t fd, short events, void *data)
{
    struct libevent_loop *ours = data;
    uint64_t count;

    (void)events;
    ours->tick_due_ns = UINT64_MAX;
    ours->has_moved = true;
    if (!ours->is_joined && read(fd, &count, sizeof(count)) < 0)
        return;
    if (ours->is_in_turn) /* our own turn sleeps in poll: the next turn does the work */
        return;
    ours->is_in_turn = true;
    run_own_work(ours);
    ours->is_in_turn = false;
    arm_tick(ours, next_due_ns(ours), clock_ns());
}

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
    ours->is_clock_stale = ours->is_clock_stale || !was_in_turn;
    ours->is_in_turn = true;
    ours->has_moved = true;
    watch->on_ready(watch, ready);
    ours->is_in_turn = was_in_turn;
    rearm_joined(ours);
}

static uint64_t libevent_now_ns(const struct muster_loop *loop)
{
    struct libevent_loop *ours = ours_of(loop);

    if (!ours->is_in_turn)
        return clock_ns();
    if (ours->is_clock_stale) { /* read late, so that foreign events on the base see it right too */
        ours->is_clock_stale = false;
        ours->now_ns = clock_ns();
    }
    return ours->now_ns;
}

static uint64_t libevent_clock_ns(const struct muster_loop *loop)
{
    (void)loop;
    return clock_ns();
}

static void libevent_timer_start(struct muster_loop *loop, struct muster_timer *timer)
{
    muster_timer_queue_insert(&ours_of(loop)->timers, timer);
    rearm_joined(ours_of(loop));
}

static void libevent_timer_stop(struct muster_loop *loop, struct muster_timer *timer)
{
    muster_timer_queue_remove(&ours_of(loop)->timers, timer);
}

static void libevent_task_post(struct muster_loop *loop, struct muster_task *task)
{
    muster_list_append(&ours_of(loop)->tasks, &task->node);
    rearm_joined(ours_of(loop));
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
    impl->mirror_dup = dup(impl->watch->fd);
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
    return event_add(&impl->event, NULL) == 0 ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

static void fd_remove(struct fd_impl *impl)
{
    if (impl->watch->wanted != 0)
        event_del(&impl->event);
}

static void libevent_fd_close(struct muster_loop *loop, struct muster_fd_watch *watch)
{
    struct fd_impl *impl = watch->impl;

    fd_remove(impl);
    mirror_remove(ours_of(loop), impl);
    muster_list_remove(&impl->node);
    muster_mem_free(ours_of(loop)->mem, impl);
    watch->impl = NULL;
}

static enum muster_rc libevent_fd_open(struct muster_loop *loop, struct muster_fd_watch *watch)
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
    rc = fd_add(ours, impl, watch->wanted);
    if (rc != MUSTER_OK)
        goto fail_add;
    rc = mirror_add(ours, impl, watch->wanted);
    if (rc == MUSTER_OK)
        return MUSTER_OK;
    libevent_fd_close(loop, watch);
    return rc;
fail_add:
    muster_list_remove(&impl->node);
    muster_mem_free(ours->mem, impl);
    watch->impl = NULL;
    return rc;
}

static void libevent_fd_update(struct muster_loop *loop, struct muster_fd_watch *watch,
                               unsigned wanted)
{
    struct libevent_loop *ours = ours_of(loop);
    struct fd_impl *impl = watch->impl;
    bool is_accepted;

    fd_remove(impl);
    mirror_remove(ours, impl);
    watch->wanted = wanted;
    is_accepted =
        fd_add(ours, impl, wanted) == MUSTER_OK && mirror_add(ours, impl, wanted) == MUSTER_OK;
    assert(is_accepted); /* it was once: only a descriptor closed under its watch is refused */
    (void)is_accepted;
}

static void libevent_stay_awake(struct muster_loop *loop, uint64_t for_ns)
{
    struct libevent_loop *ours = ours_of(loop);
    uint64_t until_ns = muster_loop_after_ns(loop, for_ns);

    if (until_ns > ours->awake_until_ns)
        ours->awake_until_ns = until_ns;
}

static void libevent_poller_start(struct muster_loop *loop, struct muster_poller *poller)
{
    struct libevent_loop *ours = ours_of(loop);

    if (muster_loop_poll_is_idle(&ours->poll))
        muster_loop_poll_moved(&ours->poll, libevent_now_ns(loop));
    muster_list_append(&ours->poll.pollers, &poller->node);
    rearm_joined(ours);
}

static void libevent_set_crowd(struct muster_loop *loop, uint32_t count)
{
    muster_loop_poll_set_crowd(&ours_of(loop)->poll, count);
}

static bool libevent_is_crowded(const struct muster_loop *loop)
{
    return muster_loop_poll_is_crowd(&((const struct libevent_loop *)(const void *)loop)->poll);
}

static const struct muster_loop_ops libevent_ops = {
    .now_ns = libevent_now_ns,
    .timer_start = libevent_timer_start,
    .timer_stop = libevent_timer_stop,
    .task_post = libevent_task_post,
    .fd_open = libevent_fd_open,
    .fd_update = libevent_fd_update,
    .fd_close = libevent_fd_close,
    .stay_awake = libevent_stay_awake,
    .poller_start = libevent_poller_start,
    .set_crowd = libevent_set_crowd,
    .is_crowded = libevent_is_crowded,
    .clock_ns = libevent_clock_ns,
};

/* No locks in the base: one thread at a time turns it, and others only write to a wake's
 * descriptor. */
static struct event_base *base_new(void)
{
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;

    if (config == NULL)
        return NULL;
    if (event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) == 0)
        base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static bool open_tick(struct libevent_loop *ours)
{
    if (ours->base == NULL)
        return false;
    if (ours->is_joined)
        return evtimer_assign(&ours->tick, ours->base, on_tick, ours) == 0;
    ours->tick_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return ours->tick_fd >= 0 &&
           event_assign(&ours->tick, ours->base, ours->tick_fd, EV_READ | EV_PERSIST, on_tick,
                        ours) == 0 &&
           event_add(&ours->tick, NULL) == 0;
}

enum muster_rc muster_loop_open(struct muster_mem *mem, struct event_base *base,
                                struct muster_loop **ret_loop)
{
    struct libevent_loop *ours = muster_mem_alloc_zero(mem, 1, sizeof(*ours));

    if (ours == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    ours->loop.ops = &libevent_ops;
    ours->mem = mem;
    ours->is_joined = base != NULL;
    ours->base = base != NULL ? base : base_new();
    ours->tick_due_ns = UINT64_MAX;
    ours->tick_fd = -1;
    ours->mirror_fd = -1;
    muster_loop_poll_init(&ours->poll);
    muster_timer_queue_init(&ours->timers);
    muster_list_init(&ours->tasks);
    muster_list_init(&ours->watches);
    if (!open_tick(ours)) {
        muster_loop_close(&ours->loop);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    signal(SIGPIPE, SIG_IGN); /* a peer that closed must not kill the process */
    *ret_loop = &ours->loop;
    return MUSTER_OK;
}

void muster_loop_close(struct muster_loop *loop)
{
    struct libevent_loop *ours = ours_of(loop);

    if (loop == NULL)
        return;
    assert(muster_list_is_empty(&ours->watches));
    if (event_initialized(&ours->tick))
        event_del(&ours->tick);
    if (ours->base != NULL && !ours->is_joined)
        event_base_free(ours->base);
    if (ours->tick_fd >= 0)
        close(ours->tick_fd);
    if (ours->mirror_fd >= 0)
        close(ours->mirror_fd);
    muster_mem_free(ours->mem, ours);
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* After own work the caller may only want to look at what changed, so a turn that could have waited
 * saves the poll; never twice in a row, so that descriptors are not forgotten. */
static bool may_skip_poll(struct libevent_loop *ours, bool has_run, uint64_t wait_ns)
{
    ours->has_skipped_poll = has_run && wait_ns > 0 && !ours->is_joined &&
                             !ours->has_skipped_poll && next_due_ns(ours) > ours->now_ns;
    return ours->has_skipped_poll;
}

static bool is_awake(const struct libevent_loop *ours, uint64_t now_ns)
{
    return now_ns < ours->awake_until_ns && now_ns >= ours->drowsy_until_ns &&
           !ours->is_background && !ours->is_joined;
}

/* How often another thread has taken the processor from this one. */
static long switch_count(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

static void become_drowsy(struct libevent_loop *ours, uint64_t now_ns)
{
    bool is_again = now_ns < ours->drowsy_until_ns + 2 * ours->drowsy_ns;

    ours->drowsy_ns = is_again ? 2 * ours->drowsy_ns : DROWSY_FIRST_NS;
    if (ours->drowsy_ns < DROWSY_FIRST_NS)
        ours->drowsy_ns = DROWSY_FIRST_NS;
    if (ours->drowsy_ns > DROWSY_MAX_NS)
        ours->drowsy_ns = DROWSY_MAX_NS;
    ours->drowsy_until_ns = now_ns + ours->drowsy_ns;
}

/* Instead of sleeping: let others run, and look again. If there are others that need this
 * processor, it is better to sleep, also because the system looks for a free processor
 * for those that it wakes, but leaves those that run where they are. What foreign events do is not
 * seen here, so with them the turn ends after one look. Returns whether the turn is over. */
static bool look_around(struct libevent_loop *ours, uint64_t until_ns)
{
    uint64_t now_ns = ours->now_ns;
    bool is_crowd;
    long switches;

    if (!is_awake(ours, now_ns))
        return false;
    is_crowd = muster_loop_poll_is_crowd(&ours->poll);
    switches = is_crowd ? 0 : switch_count();
    ours->has_moved = false;
    while (is_awake(ours, now_ns)) {
        uint64_t before_ns = now_ns;

        sched_yield();
        now_ns = clock_ns();
        if (!is_crowd && now_ns - before_ns > LATE_NS && switch_count() != switches)
            become_drowsy(ours, now_ns);
        ours->is_clock_stale = true;
        event_base_loop(ours->base, EVLOOP_NONBLOCK);
        if (ours->has_moved || ours->has_foreign_events || now_ns >= until_ns)
            return true;
    }
    return false;
}

/* --- Turns that look at memory --- */

static bool look_at_descriptors(struct libevent_loop *ours, int flags)
{
    ours->has_moved = false;
    ours->is_clock_stale = true;
    event_base_loop(ours->base, flags);
    ours->now_ns = clock_ns();
    ours->is_clock_stale = false;
    ours->poll.descriptors_due_ns = ours->now_ns + MUSTER_LOOP_DESCRIPTORS_NS;
    return ours->has_moved;
}

/* A writer that looks before the flag stands is seen by the last look, one that looks later by the
 * flag. */
static void sleep_polling(struct libevent_loop *ours, uint64_t until_ns)
{
    uint64_t wake_ns = add_saturating(ours->now_ns, MUSTER_LOOP_SLEEP_NS);

    muster_loop_poll_tell(&ours->poll, true);
    if (!muster_loop_poll_once(&ours->poll)) {
        arm_tick(ours, wake_ns < until_ns ? wake_ns : until_ns, ours->now_ns);
        look_at_descriptors(ours, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
        muster_loop_poll_slept(&ours->poll);
        if (!muster_loop_poll_once(&ours->poll))
            goto awake;
    }
    muster_loop_poll_moved(&ours->poll, ours->now_ns);
awake:
    muster_loop_poll_tell(&ours->poll, false);
}

/* Nothing is to be done: look at memory, and every 10 us at descriptors, until something moves. */
static void wait_polling(struct libevent_loop *ours, uint64_t until_ns)
{
    struct muster_loop_poll *poll = &ours->poll;
    uint64_t now_ns = ours->now_ns;

    while (!ours->is_background && !muster_loop_poll_is_tired(poll, now_ns)) {
        bool has_moved = muster_loop_poll_spin(poll, until_ns, clock_ns, &now_ns);

        ours->now_ns = now_ns;
        ours->is_second = has_moved && !ours->was_second;
        if (!has_moved && now_ns >= poll->descriptors_due_ns) {
            has_moved = look_at_descriptors(ours, EVLOOP_NONBLOCK);
            now_ns = ours->now_ns;
        }
        if (has_moved)
            muster_loop_poll_moved(poll, now_ns);
        if (has_moved || now_ns >= until_ns || ours->has_foreign_events)
            return;
    }
    sleep_polling(ours, until_ns);
}

static void turn_polling(struct libevent_loop *ours, uint64_t wait_ns, bool has_run)
{
    struct muster_loop_poll *poll = &ours->poll;
    uint64_t until_ns = add_saturating(ours->now_ns, wait_ns);
    uint64_t due_ns = next_due_ns(ours);

    muster_loop_poll_begin(poll, ours->now_ns);
    if (muster_loop_poll_once(poll)) {
        ours->is_second = !ours->was_second;
        has_run = true;
    }
    if (has_run)
        muster_loop_poll_moved(poll, ours->now_ns);
    until_ns = due_ns < until_ns ? due_ns : until_ns;
    if (!has_run && until_ns > ours->now_ns && !ours->is_stopped)
        wait_polling(ours, until_ns);
    else if (wait_ns == 0 || ours->now_ns >= poll->descriptors_due_ns)
        look_at_descriptors(ours, EVLOOP_NONBLOCK);
    poll->turn_ns = ours->now_ns;
}

void muster_loop_turn(struct muster_loop *loop, uint64_t wait_ns)
{
    struct libevent_loop *ours = ours_of(loop);
    int flags = EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY;
    uint64_t until_ns;
    bool has_run;

    assert(!ours->is_in_turn);
    ours->is_in_turn = true;
    has_run = run_own_work(ours);
    if (!muster_loop_poll_is_idle(&ours->poll) && !ours->is_joined) {
        turn_polling(ours, wait_ns, has_run);
        ours->is_in_turn = false;
        return;
    }
    if (may_skip_poll(ours, has_run, wait_ns)) {
        ours->is_in_turn = false;
        return;
    }
    until_ns = next_due_ns(ours);
    if (until_ns > add_saturating(ours->now_ns, wait_ns))
        until_ns = add_saturating(ours->now_ns, wait_ns);
    if (has_run || until_ns <= ours->now_ns || ours->is_stopped) {
        flags = EVLOOP_NONBLOCK;
    } else if (look_around(ours, until_ns)) {
        ours->is_in_turn = false;
        return;
    } else {
        arm_tick(ours, until_ns, clock_ns());
    }
    ours->is_clock_stale = true;
    event_base_loop(ours->base, flags);
    ours->is_in_turn = false;
    if (ours->is_joined)
        arm_tick(ours, next_due_ns(ours), clock_ns());
}

void muster_loop_run(struct muster_loop *loop)
{
    struct libevent_loop *ours = ours_of(loop);

    while (!ours->is_stopped)
        muster_loop_turn(loop, UINT64_MAX);
    ours->is_stopped = false;
}

void muster_loop_stop(struct muster_loop *loop)
{
    ours_of(loop)->is_stopped = true;
}

void muster_loop_set_background(struct muster_loop *loop, bool is_background)
{
    ours_of(loop)->is_background = is_background;
}

int muster_loop_fd(struct muster_loop *loop)
{
    struct libevent_loop *ours = ours_of(loop);

    if (ours->mirror_fd >= 0)
        return ours->mirror_fd;
    ours->mirror_fd = epoll_create1(EPOLL_CLOEXEC);
    if (ours->mirror_fd < 0)
        return -1;
    for (struct muster_list *node = ours->watches.next; node != &ours->watches; node = node->next) {
        struct fd_impl *impl = MUSTER_CONTAINER_OF(node, struct fd_impl, node);

        if (mirror_add(ours, impl, impl->watch->wanted) != MUSTER_OK)
            return -1;
    }
    return ours->mirror_fd;
}

uint64_t muster_loop_next_due_ns(const struct muster_loop *loop)
{
    const struct libevent_loop *ours = ours_of(loop);
    uint64_t due_ns = next_due_ns(ours);
    bool is_polling = !muster_loop_poll_is_idle(&ours->poll);
    uint64_t look_ns;

    if (!ours->has_foreign_events && !is_polling)
        return due_ns;
    look_ns = clock_ns() + (is_polling ? MUSTER_LOOP_SLEEP_NS : FOREIGN_POLL_NS);
    return due_ns < look_ns ? due_ns : look_ns;
}

struct event_base *muster_loop_event_base(struct muster_loop *loop)
{
    ours_of(loop)->has_foreign_events = true;
    return ours_of(loop)->base;
}
