/* Turns of the real loop: its work, then a wait for events, asleep in the poll or awake. */
#include "runtime/loop/loop_libevent_internal.h"

#include <sched.h>
#include <sys/resource.h>

#include <event2/event.h>

#include "runtime/value/assert.h"
#include "runtime/value/backoff.h"

/* A yield that takes longer than this may have let another thread run. */
#define LATE_NS (2 * MUSTER_NS_PER_US)
/* A close is told a turn later, and one leads to the next: that of a client ends links, that of a link its stream. */
#define CLOSING_TURNS 8

/* If another thread did run, the loop sleeps instead of polling for a while: short at first,
 * because one late yield may be chance, then longer and longer, because a thread that shares the
 * processor for good makes every yield late. */
static const struct muster_backoff park = {.first_ns = 100 * MUSTER_NS_PER_US,
                                           .max_ns = 10 * MUSTER_NS_PER_MS,
                                           .growth_permille = 2000};

/* One pass each: EVLOOP_NONBLOCK alone goes on for as long as any descriptor is ready. */
#define LOOK  (EVLOOP_ONCE | EVLOOP_NONBLOCK)
#define SLEEP (EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY)

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* The poll fails when its own descriptor is not ours any more, and would fail again and again. In a joined base that is
 * for its owner to see. */
static void poll_base(const struct libevent_loop *ours, int flags)
{
    if (event_base_loop(ours->base, flags) < 0 && !ours->is_joined)
        muster_assert_end("this process has closed descriptors of muster's: close only your own, "
                          "or close the others before muster is opened");
}

/* After own work the caller may only want to look at what changed, so a turn that could have waited
 * saves the poll; never twice in a row, so that descriptors are not forgotten. */
static bool may_skip_poll(struct libevent_loop *ours, bool has_run, uint64_t wait_ns)
{
    ours->has_skipped_poll = has_run && wait_ns > 0 && !ours->is_joined &&
                             !ours->has_skipped_poll &&
                             muster_loop_libevent_due_ns(ours) > ours->now_ns;
    return ours->has_skipped_poll;
}

static bool is_parked(const struct libevent_loop *ours, uint64_t now_ns)
{
    return now_ns < ours->parked_until_ns;
}

static bool is_awake(const struct libevent_loop *ours, uint64_t now_ns)
{
    return now_ns < ours->awake_until_ns && !is_parked(ours, now_ns) && !ours->is_background &&
           !ours->is_joined;
}

/* How often another thread has taken the processor from this one. */
static long switch_count(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

static void park_loop(struct libevent_loop *ours, uint64_t now_ns)
{
    if (now_ns >= ours->parked_until_ns + 2 * ours->parked_ns)
        ours->parked_ns = 0; /* the last time is long past */
    ours->parked_until_ns = now_ns + muster_backoff_next(&park, &ours->parked_ns, NULL);
}

/* Poll the descriptors again and again instead of sleeping, and yield between the polls. If other
 * threads need this processor, sleeping is better, also because the kernel looks for an idle
 * processor for a thread that it wakes, but leaves running threads where they are. Foreign events
 * are not seen here, so with them the turn ends after one poll. Returns whether the turn is
 * over. */
static bool poll_fds(struct libevent_loop *ours, uint64_t until_ns)
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
        now_ns = muster_loop_libevent_clock_ns();
        if (!is_crowd && now_ns - before_ns > LATE_NS && switch_count() != switches)
            park_loop(ours, now_ns);
        ours->is_clock_stale = true;
        poll_base(ours, LOOK);
        if (ours->has_moved || ours->has_foreign_events || now_ns >= until_ns)
            return true;
    }
    return false;
}

/* --- Turns that look at memory --- */

static bool check_fds(struct libevent_loop *ours, int flags)
{
    ours->has_moved = false;
    ours->is_clock_stale = true;
    poll_base(ours, flags);
    ours->now_ns = muster_loop_libevent_clock_ns();
    ours->is_clock_stale = false;
    ours->poll.descriptors_due_ns = ours->now_ns + MUSTER_LOOP_DESCRIPTORS_NS;
    return ours->has_moved;
}

/* The flag is set before the last look at memory. A writer that reads the flag before it was set
 * has written before, so the last look sees it; a writer that comes later sees the flag and wakes
 * us. */
static void sleep_polling(struct libevent_loop *ours, uint64_t until_ns)
{
    uint64_t wake_ns = add_saturating(ours->now_ns, MUSTER_LOOP_SLEEP_NS);

    muster_loop_poll_tell(&ours->poll, true);
    if (!muster_loop_poll_once(&ours->poll)) {
        muster_loop_libevent_arm(ours, wake_ns < until_ns ? wake_ns : until_ns, ours->now_ns);
        check_fds(ours, SLEEP);
        muster_loop_poll_slept(&ours->poll);
        if (!muster_loop_poll_once(&ours->poll))
            goto awake;
    }
    muster_loop_poll_moved(&ours->poll, ours->now_ns);
awake:
    muster_loop_poll_tell(&ours->poll, false);
}

/* Wait awake: look at memory, and every 10 us at descriptors, until something moves or looking has
 * not paid for long enough. */
static void wait_polling(struct libevent_loop *ours, uint64_t until_ns)
{
    struct muster_loop_poll *poll = &ours->poll;
    uint64_t now_ns = ours->now_ns;

    while (!ours->is_background && !muster_loop_poll_is_tired(poll, now_ns)) {
        bool has_moved =
            muster_loop_poll_spin(poll, until_ns, muster_loop_libevent_clock_ns, &now_ns);

        ours->now_ns = now_ns;
        ours->is_second = has_moved && !ours->was_second;
        if (!has_moved && now_ns >= poll->descriptors_due_ns) {
            has_moved = check_fds(ours, LOOK);
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
    uint64_t due_ns = muster_loop_libevent_due_ns(ours);

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
        check_fds(ours, LOOK);
    poll->turn_ns = ours->now_ns;
}

static void turn_sleeping(struct libevent_loop *ours, uint64_t wait_ns, bool has_run)
{
    uint64_t until_ns = muster_loop_libevent_due_ns(ours);
    int flags = SLEEP;

    if (until_ns > add_saturating(ours->now_ns, wait_ns))
        until_ns = add_saturating(ours->now_ns, wait_ns);
    if (has_run || until_ns <= ours->now_ns || ours->is_stopped)
        flags = LOOK;
    else if (poll_fds(ours, until_ns))
        return;
    else
        muster_loop_libevent_arm(ours, until_ns, muster_loop_libevent_clock_ns());
    ours->is_clock_stale = true;
    poll_base(ours, flags);
}

static void run_turn(struct libevent_loop *ours, uint64_t wait_ns)
{
    bool has_run = muster_loop_libevent_work(ours);

    if (!muster_loop_poll_is_idle(&ours->poll) && !ours->is_joined)
        turn_polling(ours, wait_ns, has_run);
    else if (!may_skip_poll(ours, has_run, wait_ns))
        turn_sleeping(ours, wait_ns, has_run);
}

void muster_loop_turn(struct muster_loop *loop, uint64_t wait_ns)
{
    struct libevent_loop *ours = ours_of(loop);

    MUSTER_ASSERT(!ours->is_in_turn); /* a callback must not turn its own loop */
    ours->is_in_turn = true;
    run_turn(ours, wait_ns);
    ours->is_in_turn = false;
    if (ours->is_joined) /* the base's owner polls next: the tick must end that poll in time */
        muster_loop_libevent_arm(ours, muster_loop_libevent_due_ns(ours),
                                 muster_loop_libevent_clock_ns());
}

void muster_loop_turn_closing(struct muster_loop *loop)
{
    for (int i = 0; i < CLOSING_TURNS; i++)
        muster_loop_turn(loop, 0);
}
