/* Pollers: a loop that looks at memory which others write. */
#ifndef MUSTER_POLLER_H
#define MUSTER_POLLER_H

#include <muster/base.h>
#include <muster/list.h>
#include <muster/loop.h>

MUSTER_BEGIN

/** True when something moved. Runs thousands of times between two polls of the descriptors: no
 * system calls. */
typedef bool muster_poll_fn(struct muster_poller *poller);

/** Memory that others write and no descriptor tells of (slots shared with other processes). Caller's
 * memory, zero before the first start. */
struct muster_poller {
    void *data;
    muster_poll_fn *on_poll;
    /* May be NULL. The loop is about to sleep (true: say so where the writers look; on_poll is asked
     * once more before it sleeps), or has woken (false). */
    void (*on_sleep)(struct muster_poller *poller, bool is_asleep);
    /* private */
    struct muster_loop *loop; /* NULL while stopped */
    struct muster_list node;
};

/** Look at poller in every turn from now on; a turn that would sleep looks again and again for a
 * while, then sleeps for 0.2 ms at most. Only while something is expected: such a loop never rests.
 * A no-op when it is started. Simulated loops do not poll: their worlds tell of every change. */
MUSTER_API void muster_poller_start(struct muster_poller *poller, struct muster_loop *loop);
/** Idempotent. Inside an on_poll only if that returns true then; a poller's memory outlives its
 * on_poll. */
MUSTER_API void muster_poller_stop(struct muster_poller *poller);
MUSTER_API bool muster_poller_is_started(const struct muster_poller *poller);

/** So many processes of this host wait for each other. With fewer processors than these a loop that
 * polls lets others run after a few looks. 0 or 1: none do. A hint. */
MUSTER_API void muster_loop_set_crowd(struct muster_loop *loop, uint32_t count);
/** More of them than processors, as set: whatever one does now it takes from the others. */
MUSTER_API bool muster_loop_is_crowded(const struct muster_loop *loop);

MUSTER_END

#endif
