/* The real loop: muster's timers and tasks on one libevent base, whose poll a tick ends in time. */
#include "runtime/loop/loop_libevent_internal.h"

#include <limits.h>
#include <signal.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <event2/event.h>

/* A loop that lends its base to foreign events cannot see them from outside: its owner looks this
 * often. */
#define FOREIGN_POLL_NS (10 * MUSTER_NS_PER_MS)

/* In a loop of its own the tick only ends the poll. In a joined base it is the turn: nobody else
 * would run timers and tasks. */
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
    ours->is_in_turn = true; /* a turn of the owner's, asked for by one of these callbacks, is a bug */
    muster_loop_libevent_work(ours);
    ours->is_in_turn = false;
    muster_loop_libevent_arm(ours, muster_loop_libevent_due_ns(ours),
                             muster_loop_libevent_clock_ns());
}

/* Inside a turn the time stands still, so that callbacks of one turn agree on it and the clock is
 * read once. */
static uint64_t libevent_now_ns(const struct muster_loop *loop)
{
    struct libevent_loop *ours = ours_of(loop);

    if (!ours->is_in_turn)
        return muster_loop_libevent_clock_ns();
    if (ours->is_clock_stale) { /* read late, so that foreign events on the base see it right too */
        ours->is_clock_stale = false;
        ours->now_ns = muster_loop_libevent_clock_ns();
    }
    return ours->now_ns;
}

static uint64_t libevent_clock_ns(const struct muster_loop *loop)
{
    (void)loop;
    return muster_loop_libevent_clock_ns();
}

static void libevent_timer_start(struct muster_loop *loop, struct muster_timer *timer)
{
    muster_timer_queue_insert(&ours_of(loop)->timers, timer);
    muster_loop_libevent_rearm(ours_of(loop));
}

static void libevent_timer_stop(struct muster_loop *loop, struct muster_timer *timer)
{
    muster_timer_queue_remove(&ours_of(loop)->timers, timer);
}

static void libevent_task_post(struct muster_loop *loop, struct muster_task *task)
{
    muster_list_append(&ours_of(loop)->tasks, &task->node);
    muster_loop_libevent_rearm(ours_of(loop));
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
    muster_loop_libevent_rearm(ours);
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
    .fd_open = muster_loop_libevent_fd_open,
    .fd_update = muster_loop_libevent_fd_update,
    .fd_close = muster_loop_libevent_fd_close,
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
    struct event_config *config =
        muster_loop_libevent_has_descriptors() ? event_config_new() : NULL;
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
    muster_timer_init(&ours->refused_again, muster_loop_libevent_on_refused_again, ours);
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
    MUSTER_ASSERT(!ours->is_in_turn && muster_list_is_empty(&ours->watches));
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

uint64_t muster_loop_next_due_ns(const struct muster_loop *loop)
{
    const struct libevent_loop *ours = ours_of(loop);
    uint64_t due_ns = muster_loop_libevent_due_ns(ours);
    bool is_polling = !muster_loop_poll_is_idle(&ours->poll);
    uint64_t look_ns;

    if (!ours->has_foreign_events && !is_polling)
        return due_ns;
    look_ns =
        muster_loop_libevent_clock_ns() + (is_polling ? MUSTER_LOOP_SLEEP_NS : FOREIGN_POLL_NS);
    return due_ns < look_ns ? due_ns : look_ns;
}

/* Rounded up to whole milliseconds: an owner that polls for less would turn the loop before its
 * timer is due. */
int muster_loop_wait_ms(const struct muster_loop *loop)
{
    uint64_t due_ns = muster_loop_next_due_ns(loop), now_ns = muster_loop_now_ns(loop), wait_ms;

    if (due_ns == UINT64_MAX)
        return -1;
    if (due_ns <= now_ns)
        return 0;
    wait_ms = (due_ns - now_ns - 1) / MUSTER_NS_PER_MS + 1;
    return wait_ms < INT_MAX ? (int)wait_ms : INT_MAX;
}

struct event_base *muster_loop_event_base(struct muster_loop *loop)
{
    ours_of(loop)->has_foreign_events = true;
    return ours_of(loop)->base;
}
