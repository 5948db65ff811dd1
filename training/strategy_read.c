/* The program's own copy of rank, size and view, its readers, and numbers for the launcher. */
#include <string.h>

#include <muster/hash.h>

#include "training/strategy_memory.h"

#define DIGEST_ROOM_BYTES ((size_t)64 << 10)

void muster_strategy_snapshot(struct muster_strategy *strategy)
{
    const struct muster_view *view = muster_node_view(strategy->node);
    const struct muster_incarnation *self = muster_node_incarnation(strategy->node);

    MUSTER_ASSERT(view != NULL && strategy->ops_open == 0);
    muster_view_unref(strategy->view_before);
    strategy->view_before = strategy->view;
    strategy->view = muster_view_ref((struct muster_view *)(uintptr_t)view); /* counted only */
    strategy->communication = view->communication;
    strategy->epoch = view->epoch;
    strategy->size = strategy->replicas_in_sync = strategy->joined = 0;
    for (uint32_t i = 0; i < view->member_count; i++) {
        if (!muster_strategy_takes_part(strategy, NULL, &view->members[i]))
            continue;
        if (muster_incarnation_is_equal(&view->members[i].incarnation, self)) {
            strategy->rank = strategy->size;
            strategy->first_replica = strategy->replicas_in_sync;
        }
        strategy->size++;
        strategy->joined += view->members[i].from_step == strategy->step; /* 0: from the start */
        strategy->replicas_in_sync += muster_member_replicas(&view->members[i]);
    }
}

uint32_t muster_strategy_rank(const struct muster_strategy *strategy)
{
    return strategy->rank;
}

uint32_t muster_strategy_size(const struct muster_strategy *strategy)
{
    return strategy->size;
}

uint32_t muster_strategy_joined(const struct muster_strategy *strategy)
{
    return strategy->joined;
}

uint32_t muster_strategy_num_replicas_in_sync(const struct muster_strategy *strategy)
{
    return strategy->replicas_in_sync;
}

uint64_t muster_strategy_epoch(const struct muster_strategy *strategy)
{
    return strategy->epoch;
}

uint64_t muster_strategy_committed_step(const struct muster_strategy *strategy)
{
    return strategy->committed_step;
}

struct muster_communication_options muster_strategy_communication(
    const struct muster_strategy *strategy)
{
    return strategy->communication;
}

bool muster_strategy_is_reproducible(const struct muster_strategy *strategy)
{
    return strategy->view != NULL ? strategy->view->plan.is_reproducible
                                  : strategy->is_reproducible;
}

uint32_t muster_strategy_contributors(const struct muster_strategy *strategy)
{
    return strategy->result.contributor_count;
}

const struct muster_op_result *muster_strategy_result(const struct muster_strategy *strategy)
{
    return &strategy->result;
}

void muster_strategy_report(struct muster_strategy *strategy, const char *name, double value)
{
    if (muster_strategy_enter(strategy, "report") != MUSTER_OK)
        return;
    muster_report_values_set(&strategy->progress, name, value);
    muster_strategy_leave(strategy);
}

void muster_strategy_report_result(struct muster_strategy *strategy, const char *name, double value)
{
    if (muster_strategy_enter(strategy, "report_result") != MUSTER_OK)
        return;
    muster_report_values_set(&strategy->results, name, value);
    muster_strategy_leave(strategy);
}

/* Device memory is hashed a few bytes at a time, so that no memory is needed. Bytes that cannot be read count as zeros:
 * the digest is then another one. */
static void hash_tensor(struct muster_hash_stream *hash, const struct muster_node_tensor *place)
{
    size_t bytes = (size_t)place->tensor.count * muster_dtype_bytes(place->tensor.dtype);
    const uint8_t *data = place->tensor.data;
    uint8_t room[DIGEST_ROOM_BYTES];

    if (place->memory == NULL) {
        muster_hash_stream_add(hash, data, bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += sizeof(room)) {
        size_t count = bytes - at < sizeof(room) ? bytes - at : sizeof(room);

        memset(room, 0, count);
        (void)!muster_far_memory_read(place->memory, room, data + at, count);
        muster_hash_stream_add(hash, room, count);
    }
}

void muster_strategy_state_digest(const struct muster_strategy *strategy,
                                  char ret_text[MUSTER_DIGEST_TEXT_BYTES])
{
    struct muster_hash_stream hash;
    uint64_t digest;

    muster_strategy_streams_wait(strategy, "the digest");
    muster_hash_stream_init(&hash);
    for (size_t i = 0; i < strategy->tensor_count; i++)
        hash_tensor(&hash, &strategy->tensors[i]);
    digest = muster_hash_stream_hash64(&hash);
    for (int i = 15; i >= 0; i--, digest >>= 4)
        ret_text[i] = "0123456789abcdef"[digest & 15];
    ret_text[16] = '\0';
}
