/* The ids of an HTTP/2 connection's streams, from which a frame on a stream that is over is known.
 * Only the newest are remembered, in rings: memory stays bounded, and a frame on an older stream is
 * dropped by nghttp2 without harm. */
#include "net/h2/stream_ids.h"

/* Ids of a client are odd and only grow; opening one closes all idle ones below it (RFC 9113
 * 5.1.1). */
bool muster_h2_ids_open(struct muster_h2_ids *ids, int32_t id)
{
    MUSTER_ASSERT(id % 2 == 1);
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
    /* A place of the ring that is empty is the gap from 0 to 0, where no client's id lies. */
    for (uint32_t i = 0; i < MUSTER_H2_GAPS_MAX; i++) {
        if (id >= ids->gaps[i].first && id <= ids->gaps[i].last)
            return false;
    }
    return true;
}

void muster_h2_ids_end(struct muster_h2_ids *ids, int32_t id)
{
    MUSTER_ASSERT(id % 2 == 1);
    ids->ended[ids->ended_count++ % MUSTER_H2_ENDED_MAX] = id;
}

bool muster_h2_ids_is_ended(const struct muster_h2_ids *ids, int32_t id)
{
    bool is_ended = false;

    for (uint32_t i = 0; i < MUSTER_H2_ENDED_MAX; i++) /* all of them: one or two instructions */
        is_ended |= ids->ended[i] == id;
    return is_ended && id != 0;
}
