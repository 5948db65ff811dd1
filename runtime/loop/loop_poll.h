/* How a loop looks at memory that others write: again and again, between that it lets others run,
 * and when nothing comes it sleeps. It learns for how long looking pays. */
#ifndef MUSTER_RUNTIME_LOOP_POLL_H
#define MUSTER_RUNTIME_LOOP_POLL_H

#include <muster/loop.h>

/* Between two looks at descriptors while memory is polled. */
#define MUSTER_LOOP_DESCRIPTORS_NS (10 * MUSTER_NS_PER_US)
/* Between two looks of a loop that sleeps. */
#define MUSTER_LOOP_SLEEP_NS (200 * MUSTER_NS_PER_US)
/* A loop in which nothing has moved for EAGER_NS sleeps; after vain looks it does so sooner, down
 * to EAGER_MIN_NS. */
#define MUSTER_LOOP_EAGER_NS     (200 * MUSTER_NS_PER_US)
#define MUSTER_LOOP_EAGER_MIN_NS (25 * MUSTER_NS_PER_US)

struct muster_loop_poll {
    struct muster_list pollers;
    uint32_t crowd, processors;
    uint64_t crowded_until_ns;   /* learned: another thread wants this processor */
    uint64_t eager_ns;           /* how long looking pays */
    uint64_t moved_ns;           /* the last move, or when the caller came back */
    uint64_t turn_ns;            /* end of the last turn */
    uint64_t descriptors_due_ns; /* look at them then at the latest */
};

void muster_loop_poll_init(struct muster_loop_poll *poll);
/** As muster_loop_set_crowd. */
void muster_loop_poll_set_crowd(struct muster_loop_poll *poll, uint32_t count);
static inline bool muster_loop_poll_is_idle(const struct muster_loop_poll *poll)
{
    return muster_list_is_empty(&poll->pollers);
}
/** More members are known than processors: a member that waits lets the others run. */
static inline bool muster_loop_poll_is_crowd(const struct muster_loop_poll *poll)
{
    return poll->crowd > poll->processors;
}
/** Look once. */
bool muster_loop_poll_once(struct muster_loop_poll *poll);
/** A turn begins: a caller that comes back after a while expects something soon. */
void muster_loop_poll_begin(struct muster_loop_poll *poll, uint64_t now_ns);
/** Something has moved. */
void muster_loop_poll_moved(struct muster_loop_poll *poll, uint64_t now_ns);
/** Looking has not paid for a while: sleep. */
bool muster_loop_poll_is_tired(const struct muster_loop_poll *poll, uint64_t now_ns);
/** The loop has slept. */
void muster_loop_poll_slept(struct muster_loop_poll *poll);
/** Look until something moves (true), or until it is time for descriptors, for until_ns or for
 * sleep. clock_ns: reads the clock. */
bool muster_loop_poll_spin(struct muster_loop_poll *poll, uint64_t until_ns,
                           uint64_t (*clock_ns)(void), uint64_t *ret_now_ns);
/** Tell the pollers. */
void muster_loop_poll_tell(struct muster_loop_poll *poll, bool is_asleep);

#endif
