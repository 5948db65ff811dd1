/* Exponential backoff: how long to wait before the next attempt. */
#ifndef MUSTER_RUNTIME_BACKOFF_H
#define MUSTER_RUNTIME_BACKOFF_H

#include <muster/env.h>

/**
 * The first wait is first_ns; each further one is growth_permille of the one before, at most max_ns.
 * Jitter comes on top: it moves a wait by up to jitter_permille either way (also past max_ns), and
 * does not add up, because the next wait grows from the one without it.
 *
 * Usually a `static const` table row; where options give the numbers, a local is as good, because
 * nothing keeps it. In place of a hand-made `backoff *= 2; if (backoff < MIN) …; if (backoff > MAX) …`:
 *
 *     static const struct muster_backoff reconnect = {
 *         .first_ns = 100 * MUSTER_NS_PER_MS, .max_ns = 10 * MUSTER_NS_PER_S,
 *         .growth_permille = 2000, .jitter_permille = 250};
 *     ...
 *     peer->due_ns = now_ns + muster_backoff_next(&reconnect, &peer->backoff_ns, env->rng);
 *     ...
 *     peer->backoff_ns = 0;  // connected: the next failure waits first_ns again
 */
struct muster_backoff {
    uint64_t first_ns;        /* above 0 */
    uint64_t max_ns;          /* wins if it is below first_ns */
    uint32_t growth_permille; /* 2000 doubles, 1600 is gRPC's factor of 1.6; 1000: always first_ns */
    uint32_t jitter_permille; /* at most 1000; 0: none, and rng may be NULL */
};

/**
 * The wait before the next attempt.
 *
 * Units:   *wait_ns is all that an object has to keep between attempts: the last wait, without its
 *          jitter; 0 before the first, and again after a success. Reading it is fine: 0 means that
 *          nothing failed since.
 */
uint64_t muster_backoff_next(const struct muster_backoff *backoff, uint64_t *wait_ns,
                             struct muster_rng *rng);

/** For one that counts its attempts instead: the wait before the retry of this number, 1 being the
 * first. The same as that many calls of muster_backoff_next; draws one random number. */
uint64_t muster_backoff_nth(const struct muster_backoff *backoff, uint32_t retry,
                            struct muster_rng *rng);

#endif
