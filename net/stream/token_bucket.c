/* What one peer may do to an HTTP/2 connection before it is closed: counters without any protocol
 * code. */
#include "net/stream/token_bucket.h"

void muster_h2_bucket_init(struct muster_h2_bucket *bucket, uint32_t burst, uint32_t per_second)
{
    bucket->tokens = burst;
    bucket->burst = burst;
    bucket->per_second = per_second;
    bucket->filled_ns = 0;
}

bool muster_h2_bucket_take(struct muster_h2_bucket *bucket, uint64_t now_ns)
{
    uint64_t step_ns = MUSTER_NS_PER_S / bucket->per_second;
    uint64_t fresh = (now_ns - bucket->filled_ns) / step_ns;

    if (fresh > 0) {
        if (fresh >= bucket->burst - bucket->tokens)
            bucket->tokens = bucket->burst;
        else
            bucket->tokens += (uint32_t)fresh;
        bucket->filled_ns += fresh * step_ns;
    }
    if (bucket->tokens == 0)
        return false;
    bucket->tokens--;
    return true;
}

bool muster_h2_ids_open(struct muster_h2_ids *ids, int32_t id)
{
    if (id > ids->highest) {
        int32_t expected = ids->highest == 0 ? 1 : ids->highest + 2;

        if (id > expected) {
            uint32_t slot = ids->gap_count++ % MUSTER_H2_GAPS_MAX;

            ids->gaps[slot].first = expected;
            ids->gaps[slot].last = id - 2;
        }
        ids->highest = id;
        return true;
    }
    for (uint32_t i = 0; i < MUSTER_H2_GAPS_MAX && i < ids->gap_count; i++) {
        if (id >= ids->gaps[i].first && id <= ids->gaps[i].last)
            return false;
    }
    return true;
}

void muster_h2_ids_end(struct muster_h2_ids *ids, int32_t id)
{
    ids->ended[ids->ended_count++ % MUSTER_H2_ENDED_MAX] = id;
}

bool muster_h2_ids_is_ended(const struct muster_h2_ids *ids, int32_t id)
{
    bool is_ended = false;

    for (uint32_t i = 0; i < MUSTER_H2_ENDED_MAX; i++) /* all of them: one or two instructions */
        is_ended |= ids->ended[i] == id;
    return is_ended && id != 0;
}
