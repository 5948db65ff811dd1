/* Progress vectors: copies and their wire form. Kinds, phases and bitmaps of a peer's vector are checked
 * here, because view_decide.c reads the bitmaps by their chunk counts. */
#include "cluster/membership/progress_proto.h"

#include <string.h>

#include "collective/view/op_id_proto.h"
#include "proto/guard.h"
#include "proto/membership.pb-c.h"

/* Bounds for what a peer may claim. A bitmap must be as long as its chunk count says, so a small message
 * cannot make the receiver allocate much. */
#define PROGRESS_LANES_MAX  4096u
#define PROGRESS_CHUNKS_MAX (1u << 24)

/* --- progress vectors: values --- */

void muster_progress_free(struct muster_progress *progress)
{
    struct muster_mem *mem;

    if (progress == NULL)
        return;
    mem = progress->mem;
    muster_progress_fini(progress);
    muster_mem_free(mem, progress);
}

static enum muster_rc progress_new(struct muster_mem *mem, size_t lanes, size_t ops,
                                   struct muster_progress **ret_progress)
{
    struct muster_progress *progress = muster_mem_alloc_zero(mem, 1, sizeof(*progress));

    if (progress == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    progress->mem = mem;
    progress->lanes = muster_mem_alloc_zero(mem, lanes, sizeof(*progress->lanes));
    progress->ops = muster_mem_alloc_zero(mem, ops, sizeof(*progress->ops));
    if (progress->lanes == NULL || progress->ops == NULL) {
        muster_progress_free(progress);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_progress = progress;
    return MUSTER_OK;
}

static size_t bitmap_bytes(uint32_t chunk_count)
{
    return ((size_t)chunk_count + 7) / 8;
}

static enum muster_rc copy_bitmap(struct muster_mem *mem, const uint8_t *from, size_t bytes,
                                  uint8_t **ret_bitmap)
{
    uint8_t *bitmap = muster_mem_alloc_zero(mem, bytes, 1);

    if (bitmap == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (bytes > 0)
        memcpy(bitmap, from, bytes);
    *ret_bitmap = bitmap;
    return MUSTER_OK;
}

enum muster_rc muster_progress_copy(struct muster_mem *mem, const struct muster_progress *progress,
                                    struct muster_progress **ret_copy)
{
    struct muster_progress *copy = NULL;
    enum muster_rc rc = progress_new(mem, progress->lane_count, progress->op_count, &copy);

    if (rc != MUSTER_OK)
        return rc;
    copy->epoch = progress->epoch;
    copy->begun_step = progress->begun_step;
    copy->committed_step = progress->committed_step;
    copy->lacks_state = progress->lacks_state;
    copy->lane_count = progress->lane_count;
    if (progress->lane_count > 0)
        memcpy(copy->lanes, progress->lanes, progress->lane_count * sizeof(*copy->lanes));
    for (uint32_t i = 0; i < progress->op_count; i++) {
        copy->ops[i] = progress->ops[i];
        copy->ops[i].chunks_final = NULL;
        copy->op_count = i + 1;
        rc = copy_bitmap(mem, progress->ops[i].chunks_final,
                         bitmap_bytes(progress->ops[i].chunk_count), &copy->ops[i].chunks_final);
        if (rc != MUSTER_OK) {
            muster_progress_free(copy);
            return rc;
        }
    }
    *ret_copy = copy;
    return MUSTER_OK;
}

/* --- progress vectors: bytes --- */

/* The arrays of a packed vector. */
struct packing {
    Muster__ProgressVector vector;
    Muster__ProgressLane *lanes;
    Muster__ProgressLane **lane_pointers;
    Muster__ProgressOp *ops;
    Muster__ProgressOp **op_pointers;
    Muster__OpId *ids; /* two per lane, one per op */
};

static void packing_fini(struct packing *packing, struct muster_mem *mem)
{
    muster_mem_free(mem, packing->lanes);
    muster_mem_free(mem, (void *)packing->lane_pointers);
    muster_mem_free(mem, packing->ops);
    muster_mem_free(mem, (void *)packing->op_pointers);
    muster_mem_free(mem, packing->ids);
}

static enum muster_rc packing_init(struct packing *packing, struct muster_mem *mem,
                                   const struct muster_progress *progress)
{
    size_t lanes = progress->lane_count, ops = progress->op_count;

    packing->lanes = muster_mem_alloc_zero(mem, lanes, sizeof(*packing->lanes));
    packing->lane_pointers = muster_mem_alloc_zero(mem, lanes, sizeof(*packing->lane_pointers));
    packing->ops = muster_mem_alloc_zero(mem, ops, sizeof(*packing->ops));
    packing->op_pointers = muster_mem_alloc_zero(mem, ops, sizeof(*packing->op_pointers));
    packing->ids = muster_mem_alloc_zero(mem, 2 * lanes + ops, sizeof(*packing->ids));
    if (packing->lanes == NULL || packing->lane_pointers == NULL || packing->ops == NULL ||
        packing->op_pointers == NULL || packing->ids == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    return MUSTER_OK;
}

static void fill_lane(const struct muster_progress_lane *lane, Muster__ProgressLane *message,
                      Muster__OpId ids[2])
{
    muster__progress_lane__init(message);
    message->lane = lane->lane;
    if (lane->has_issued) {
        muster_op_id_to_message(&lane->issued_through, &ids[0]);
        message->issued_through = &ids[0];
    }
    if (lane->has_stable) {
        muster_op_id_to_message(&lane->stable_through, &ids[1]);
        message->stable_through = &ids[1];
    }
}

static void fill_op(const struct muster_progress_op *op, Muster__ProgressOp *message,
                    Muster__OpId *id)
{
    muster__progress_op__init(message);
    muster_op_id_to_message(&op->id, id);
    message->id = id;
    message->descriptor = op->descriptor;
    message->kind = (uint32_t)op->kind;
    message->phase = (uint32_t)op->phase;
    message->has_inputs = op->has_inputs;
    message->is_abort_proposed = op->is_abort_proposed;
    message->participants = op->participant_count;
    message->chunk_count = op->chunk_count;
    message->chunks_final.data = op->chunks_final;
    message->chunks_final.len = bitmap_bytes(op->chunk_count);
    if (!muster_incarnation_is_zero(&op->root)) {
        message->root.data = (uint8_t *)(uintptr_t)op->root.bytes;
        message->root.len = sizeof(op->root.bytes);
    }
}

static void fill_vector(struct packing *packing, const struct muster_progress *progress)
{
    Muster__ProgressVector *vector = &packing->vector;

    muster__progress_vector__init(vector);
    vector->epoch = progress->epoch;
    vector->begun_step = progress->begun_step;
    vector->committed_step = progress->committed_step;
    vector->lacks_state = progress->lacks_state;
    vector->n_lanes = progress->lane_count;
    vector->lanes = packing->lane_pointers;
    vector->n_ops = progress->op_count;
    vector->ops = packing->op_pointers;
    for (uint32_t i = 0; i < progress->lane_count; i++) {
        fill_lane(&progress->lanes[i], &packing->lanes[i], packing->ids + 2 * (size_t)i);
        packing->lane_pointers[i] = &packing->lanes[i];
    }
    for (uint32_t i = 0; i < progress->op_count; i++) {
        fill_op(&progress->ops[i], &packing->ops[i],
                packing->ids + 2 * (size_t)progress->lane_count + i);
        packing->op_pointers[i] = &packing->ops[i];
    }
}

static enum muster_rc read_op(struct muster_mem *mem, const Muster__ProgressOp *message,
                              struct muster_progress_op *op)
{
    if (message->id == NULL || message->kind > (uint32_t)MUSTER_OP_PERMUTE ||
        message->phase > (uint32_t)MUSTER_PHASE_DELIVERED ||
        message->chunk_count > PROGRESS_CHUNKS_MAX ||
        message->chunks_final.len != bitmap_bytes(message->chunk_count) ||
        (message->root.len != 0 && message->root.len != sizeof(op->root.bytes)))
        return MUSTER_INVALID_ARGUMENT;
    muster_op_id_from_message(message->id, &op->id);
    op->descriptor = message->descriptor;
    op->kind = (enum muster_op_kind)message->kind;
    op->phase = (enum muster_op_phase)message->phase;
    op->has_inputs = message->has_inputs != 0;
    op->is_abort_proposed = message->is_abort_proposed != 0;
    op->participant_count = message->participants;
    op->chunk_count = message->chunk_count;
    if (message->root.len != 0)
        memcpy(op->root.bytes, message->root.data, sizeof(op->root.bytes));
    return copy_bitmap(mem, message->chunks_final.data, message->chunks_final.len,
                       &op->chunks_final);
}

static void read_lane(const Muster__ProgressLane *message, struct muster_progress_lane *lane)
{
    lane->lane = message->lane;
    lane->has_issued = message->issued_through != NULL;
    lane->has_stable = message->stable_through != NULL;
    if (lane->has_issued)
        muster_op_id_from_message(message->issued_through, &lane->issued_through);
    if (lane->has_stable)
        muster_op_id_from_message(message->stable_through, &lane->stable_through);
}

static enum muster_rc read_vector(struct muster_mem *mem, const Muster__ProgressVector *message,
                                  struct muster_progress **ret_progress)
{
    struct muster_progress *progress = NULL;
    enum muster_rc rc;

    if (message->n_lanes > PROGRESS_LANES_MAX)
        return MUSTER_INVALID_ARGUMENT;
    rc = progress_new(mem, message->n_lanes, message->n_ops, &progress);
    if (rc != MUSTER_OK)
        return rc;
    progress->epoch = message->epoch;
    progress->begun_step = message->begun_step;
    progress->committed_step = message->committed_step;
    progress->lacks_state = message->lacks_state != 0;
    progress->lane_count = (uint32_t)message->n_lanes;
    for (uint32_t i = 0; i < progress->lane_count; i++)
        read_lane(message->lanes[i], &progress->lanes[i]);
    for (size_t i = 0; i < message->n_ops && rc == MUSTER_OK; i++) {
        rc = read_op(mem, message->ops[i], &progress->ops[i]);
        if (rc == MUSTER_OK)
            progress->op_count++;
    }
    if (rc == MUSTER_OK)
        *ret_progress = progress;
    else
        muster_progress_free(progress);
    return rc;
}

enum muster_rc muster_progress_pack(const struct muster_progress *progress, struct muster_mem *mem,
                                    void **ret_bytes, size_t *ret_size)
{
    struct packing packing;
    enum muster_rc rc;

    memset(&packing, 0, sizeof(packing));
    rc = packing_init(&packing, mem, progress);
    if (rc == MUSTER_OK) {
        fill_vector(&packing, progress);
        rc = muster_proto_pack(mem, &packing.vector, ret_bytes, ret_size);
    }
    packing_fini(&packing, mem);
    return rc;
}

enum muster_rc muster_progress_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                      struct muster_progress **ret_progress)
{
    Muster__ProgressVector *message = NULL;
    enum muster_rc rc = muster_proto_unpack(mem, &muster__progress_vector__descriptor, bytes, size,
                                            NULL, &message, NULL);

    if (rc == MUSTER_OK)
        rc = read_vector(mem, message, ret_progress);
    muster_proto_free(message);
    return rc;
}
