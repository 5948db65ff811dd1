/* Operations on tensors: elements become messages while few others are under way, so that what is started
 * meanwhile does not wait for all of them, and so that they need no memory of their own. */
#include "params/client/stage.h"

/* Messages end at extents. Their size is a compromise: the server handles each while it is in its cache. It makes
 * one answer to a pull at a time, and copies it twice: smaller ones are faster. */
#define PIECE_BYTES  ((size_t)1 << 20)
#define ANSWER_BYTES ((size_t)256 << 10)
#define WINDOW_BYTES ((uint64_t)4 << 20)
#define COPY_BYTES   ((uint64_t)1 << 20) /* of a turn: a server of this host adds them meanwhile */

static struct muster_params_op *range_first(const struct muster_params_table *table)
{
    return muster_list_is_empty(&table->ranges)
               ? NULL
               : MUSTER_CONTAINER_OF(table->ranges.next, struct muster_params_op, queued);
}

/* --- Messages --- */

/* Elements from op->offset on that one message takes: whole blocks, but for the ends of the range. */
static uint64_t piece_count(const struct muster_params_tensor *tensor,
                            const struct muster_params_op *op)
{
    uint64_t block = tensor->block_elements, extent = block * MUSTER_PARAMS_EXTENT_BLOCKS;
    uint64_t most = (op->is_push ? PIECE_BYTES : ANSWER_BYTES) / muster_dtype_bytes(tensor->dtype) / block * block;
    uint64_t end = op->offset / block * block + most;
    uint64_t extent_end = (op->offset / extent + 1) * extent;

    end = end < extent_end ? end : extent_end;
    end = end < op->end ? end : op->end;
    return end - op->offset;
}

_Static_assert(ANSWER_BYTES >= MUSTER_PARAMS_ROW_BYTES_MAX, "a message has room for a block");

/* False: no memory. Adds what the client has copied. */
static bool piece_send(struct muster_params_table *table, struct muster_params_op *op,
                       uint64_t *copied_bytes)
{
    struct muster_params *params = table->params;
    struct muster_params_range_frame range = {
        .clock = op->clock, .offset = op->offset, .count = piece_count(&table->tensor, op)};
    uint32_t shard = muster_params_range_shard(table, range.offset);
    struct muster_params_request *request;

    if (op->is_push)
        muster_params_stage_offer(muster_params_route(params, shard));
    if (op->is_push)
        range.is_first = muster_params_shard_is_new(params, shard);
    request = muster_params_range_request_new(table,
                                              op->is_push ? MUSTER_PARAMS_REQUEST_PUSH_RANGE
                                                          : MUSTER_PARAMS_REQUEST_PULL_RANGE,
                                              &range, op->values);
    if (request == NULL) {
        if (range.is_first)
            params->has_pushed[shard / 8] &= (uint8_t)~(1u << shard % 8);
        return false;
    }
    if (op->is_push)
        muster_params_pushed_note(params, op->clock);
    request->parts[0].op = op;
    op->waits++;
    op->offset += range.count;
    op->values = (uint8_t *)op->values + range.count * muster_dtype_bytes(table->wire_dtype);
    muster_params_request_send(request, muster_params_route(params, shard),
                               op->is_push ? params->sequence++ : params->number++);
    if (request->slot > 0)
        *copied_bytes += range.count * muster_dtype_bytes(table->wire_dtype);
    return true;
}

/* Pushes of this client that are not acknowledged are not in the server's memory yet. */
static bool piece_peek(const struct muster_params_table *table, struct muster_params_op *op)
{
    uint64_t count = piece_count(&table->tensor, op);

    if (op->is_push || op->clock != 0 || table->range_pushes > 0 ||
        !muster_params_range_peek(table, op->offset, count, op->values))
        return false;
    op->offset += count;
    op->values = (uint8_t *)op->values + count * sizeof(float);
    return true;
}

/* The operation may end here, and its callback may do anything. */
static void op_leave(struct muster_params_op *op, bool is_whole)
{
    struct muster_error error;

    if (is_whole && op->offset < op->end)
        return;
    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a message");
    muster_list_remove(&op->queued);
    muster_params_op_release(op, is_whole ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED, &error);
}

/* One message of each tensor by turns, or as many elements read. Returns whether there was any. */
static bool round_send(struct muster_params *params, uint64_t *copied_bytes)
{
    bool has_sent = false;

    MUSTER_LIST_EACH (&params->tables, table, struct muster_params_table, node) {
        struct muster_params_op *op = range_first(table);
        uint64_t from = op != NULL ? op->offset : 0;

        if (op == NULL || params->range_bytes >= WINDOW_BYTES || *copied_bytes >= COPY_BYTES ||
            (op->is_push && !muster_params_holds_allow(params, op->clock)))
            continue;
        has_sent = true;
        if (!piece_peek(table, op)) {
            op_leave(op, piece_send(table, op, copied_bytes));
            continue;
        }
        *copied_bytes += (op->offset - from) * sizeof(float);
        op_leave(op, true);
    }
    return has_sent;
}

void muster_params_ranges_send(struct muster_params *params)
{
    uint64_t copied_bytes = 0;

    while (round_send(params, &copied_bytes)) {
    }
    if (copied_bytes >= COPY_BYTES) /* what was copied leaves, and others have their turn */
        muster_task_post(&params->flush, params->env->loop);
}

/* --- Starting --- */

static enum muster_rc range_check(const struct muster_params_table *table,
                                  const struct muster_params_range *range, uint64_t count,
                                  bool is_push, struct muster_error *ret_error)
{
    const struct muster_params_tensor *tensor = &table->tensor;

    if (tensor->elements == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "table %s is not a tensor",
                                table->name);
    if (range->values == NULL || range->offset >= tensor->elements ||
        count > tensor->elements - range->offset)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a range of %llu elements from %llu is not within tensor %s of %llu",
                                (unsigned long long)count, (unsigned long long)range->offset,
                                table->name, (unsigned long long)tensor->elements);
    if (is_push && !muster_params_range_is_blocks(tensor, range->offset, count))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a range that is pushed to tensor %s must be whole blocks of %u "
                                "elements, got %llu elements from %llu",
                                table->name, tensor->block_elements, (unsigned long long)count,
                                (unsigned long long)range->offset);
    return MUSTER_OK;
}

enum muster_rc muster_params_tensor_start(struct muster_params_op *op,
                                          struct muster_params_table *table,
                                          const struct muster_params_range *range,
                                          enum muster_params_direction direction,
                                          uint64_t deadline_ns, muster_params_op_fn *done)
{
    struct muster_params *params = table->params;
    bool is_push = direction == MUSTER_PARAMS_DIRECTION_PUSH;
    uint64_t count = range->count;
    enum muster_rc rc;

    if (count == 0 && range->offset < table->tensor.elements)
        count = table->tensor.elements - range->offset;
    rc = range_check(table, range, count, is_push, &op->error);
    if (rc == MUSTER_OK)
        rc = muster_params_op_begin(op, params, deadline_ns, done);
    if (rc != MUSTER_OK)
        return rc;
    op->table = table;
    op->keys = NULL;
    op->values = range->values;
    op->offset = range->offset;
    op->end = range->offset + count;
    op->is_push = is_push;
    op->clock = is_push ? params->ticked : range->min_clock;
    op->order = is_push ? ++params->range_pushes : 0;
    muster_list_append(table->is_by_round ? &table->held : &table->ranges, &op->queued);
    muster_task_post(&params->flush, params->env->loop);
    return MUSTER_OK;
}
