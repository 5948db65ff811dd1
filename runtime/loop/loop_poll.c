/* Looking at memory that others write. Measured (n = 4 on 2 processors, 1 KiB): a yield after 1 to
 * 4 looks 2.4 us, after 200 looks 11.7 us; with a processor each a yield only costs. */
#include "runtime/loop/loop_poll.h"

#include <sched.h>
#include <unistd.h>

#define LOOKS_PER_YIELD 2u   /* in a crowd */
#define LOOKS_PER_CLOCK 128u /* else: reading the clock costs as much as several looks */
/* After this long without a move, outside a crowd, yield once to see whether another thread wants
 * the processor. */
#define CALM_YIELD_NS (50 * MUSTER_NS_PER_US)
/* A yield that takes longer than this has let another thread run. */
#define LATE_NS (3 * MUSTER_NS_PER_US)
/* How long a loop yields often, as in a crowd, after a yield that was late. */
#define CROWDED_NS (10 * MUSTER_NS_PER_MS)
/* A caller that was away for longer has computed meanwhile. */
#define AWAY_NS (50 * MUSTER_NS_PER_US)

/* A process that is bound to one processor counts all of the machine: the other processes are
 * likely bound to other processors. If they are not, yields come back late, which is_crowded
 * sees. */
static uint32_t count_processors(void)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 1)
        return (uint32_t)CPU_COUNT(&set);
    return online > 0 ? (uint32_t)online : UINT32_MAX;
}

void muster_loop_poll_init(struct muster_loop_poll *poll)
{
    *poll = (struct muster_loop_poll){.eager_ns = MUSTER_LOOP_EAGER_NS};
    muster_list_init(&poll->pollers);
}

/* Counting processors costs a system call, and the count changes with the members only. */
void muster_loop_poll_set_crowd(struct muster_loop_poll *poll, uint32_t count)
{
    if (count == poll->crowd)
        return;
    poll->crowd = count;
    poll->processors = count_processors();
}

bool muster_loop_poll_once(struct muster_loop_poll *poll)
{
    MUSTER_LIST_EACH_SAFE(&poll->pollers, poller, struct muster_poller, node) {
        if (!poller->on_poll(poller))
            continue;
        /* on_poll may have stopped any poller, also the next one, so the loop ends here. A poller
         * that moved goes last, so that none starves. */
        if (poller->loop != NULL) {
            muster_list_remove(&poller->node);
            muster_list_append(&poll->pollers, &poller->node);
        }
        return true;
    }
    return false;
}

void muster_loop_poll_begin(struct muster_loop_poll *poll, uint64_t now_ns)
{
    if (now_ns > poll->turn_ns + AWAY_NS)
        poll->moved_ns = now_ns;
}

void muster_loop_poll_moved(struct muster_loop_poll *poll, uint64_t now_ns)
{
    poll->moved_ns = now_ns;
    poll->eager_ns = MUSTER_LOOP_EAGER_NS;
}

bool muster_loop_poll_is_tired(const struct muster_loop_poll *poll, uint64_t now_ns)
{
    return now_ns >= poll->moved_ns + poll->eager_ns;
}

/* Halved after each sleep without a move: looking has not paid. A move sets it back to the full
 * time. */
void muster_loop_poll_slept(struct muster_loop_poll *poll)
{
    poll->eager_ns /= 2;
    if (poll->eager_ns < MUSTER_LOOP_EAGER_MIN_NS)
        poll->eager_ns = MUSTER_LOOP_EAGER_MIN_NS;
}

static bool is_crowded(const struct muster_loop_poll *poll, uint64_t now_ns)
{
    return muster_loop_poll_is_crowd(poll) || now_ns < poll->crowded_until_ns;
}

static bool look_often(struct muster_loop_poll *poll, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (muster_loop_poll_once(poll))
            return true;
    return false;
}

/* Yield, and note whether another thread wants the processor. Returns the time afterwards. */
static uint64_t let_others_run(struct muster_loop_poll *poll, uint64_t now_ns,
                               uint64_t (*clock_ns)(void))
{
    uint64_t after_ns;

    sched_yield();
    after_ns = clock_ns();
    if (!muster_loop_poll_is_crowd(poll) && after_ns > now_ns + LATE_NS)
        poll->crowded_until_ns = after_ns + CROWDED_NS;
    return after_ns;
}

bool muster_loop_poll_spin(struct muster_loop_poll *poll, uint64_t until_ns,
                           uint64_t (*clock_ns)(void), uint64_t *ret_now_ns)
{
    uint64_t now_ns = *ret_now_ns;
    bool has_moved = false;

    for (;;) {
        bool is_in_crowd = is_crowded(poll, now_ns);

        has_moved = look_often(poll, is_in_crowd ? LOOKS_PER_YIELD : LOOKS_PER_CLOCK);
        if (has_moved)
            break;
        if (is_in_crowd || now_ns > poll->moved_ns + CALM_YIELD_NS)
            now_ns = let_others_run(poll, now_ns, clock_ns);
        else
            now_ns = clock_ns();
        if (now_ns >= until_ns || now_ns >= poll->descriptors_due_ns ||
            muster_loop_poll_is_tired(poll, now_ns))
            break;
    }
    *ret_now_ns = now_ns;
    return has_moved;
}

void muster_loop_poll_tell(struct muster_loop_poll *poll, bool is_asleep)
{
    MUSTER_LIST_EACH(&poll->pollers, poller, struct muster_poller, node)
        if (poller->on_sleep != NULL)
            poller->on_sleep(poller, is_asleep);
}
