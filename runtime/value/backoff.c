/* Exponential backoff: the next wait from the last one. */
#include "runtime/value/backoff.h"

__extension__ typedef unsigned __int128 u128;

static uint64_t limit_wait(const struct muster_backoff *backoff, u128 wait_ns)
{
    if (wait_ns > backoff->max_ns)
        return backoff->max_ns;
    return wait_ns == 0 ? 1 : (uint64_t)wait_ns; /* 0 would read as "no failure yet" */
}

/* The product is 128 bits wide: a wait near UINT64_MAX stays at the limit instead of wrapping round
 * to a short one. */
static uint64_t grow_wait(const struct muster_backoff *backoff, uint64_t wait_ns)
{
    if (wait_ns == 0)
        return limit_wait(backoff, backoff->first_ns);
    return limit_wait(backoff, (u128)wait_ns * backoff->growth_permille / 1000);
}

uint64_t muster_backoff_next(const struct muster_backoff *backoff, uint64_t *wait_ns,
                             struct muster_rng *rng)
{
    MUSTER_ASSERT(backoff->first_ns > 0 && backoff->jitter_permille <= 1000);
    *wait_ns = grow_wait(backoff, *wait_ns);
    return muster_rng_jitter(rng, *wait_ns, backoff->jitter_permille);
}

/* A wait that no longer changes (it is at max_ns, or does not grow) is final: a count of millions
 * costs no millions of rounds. */
uint64_t muster_backoff_nth(const struct muster_backoff *backoff, uint32_t retry,
                            struct muster_rng *rng)
{
    uint64_t wait_ns = grow_wait(backoff, 0);

    MUSTER_ASSERT(retry > 0 && backoff->first_ns > 0 && backoff->jitter_permille <= 1000);
    for (uint32_t i = 1; i < retry; i++) {
        uint64_t grown_ns = grow_wait(backoff, wait_ns);

        if (grown_ns == wait_ns)
            break;
        wait_ns = grown_ns;
    }
    return muster_rng_jitter(rng, wait_ns, backoff->jitter_permille);
}
