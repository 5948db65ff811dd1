/* Rows of calls: blocks of a tensor as rows, and the runs of a push, which has none here. The server makes them: the
 * same for the same rows, since a source's position counts the rows of a run. */
#include <inttypes.h>
#include <string.h>

#include <muster/collective.h>

#include "params/server/core/push.h"
#include "params/server/services/params_service.h"
#include "params/wire/range.h"

static size_t round_up(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* --- Blocks of a tensor --- */

static struct muster_params_tensor tensor_of(const struct muster_params_store_table *table)
{
    return (struct muster_params_tensor){.elements = table->tensor_elements,
                                         .block_elements = table->row_elements,
                                         .dtype = (enum muster_dtype)table->wire_dtype};
}

static enum muster_rc range_check(const struct muster_params_store_table *table, uint64_t offset,
                                  uint64_t count, struct muster_error *ret_error)
{
    if (count == 0 || offset >= table->tensor_elements || count > table->tensor_elements - offset)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a range of %" PRIu64 " elements from %" PRIu64
                                " is not within a tensor of %" PRIu64,
                                count, offset, table->tensor_elements);
    if (count > MUSTER_FRAME_PAYLOAD_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a call must have at most %u bytes of values, got %" PRIu64
                                " elements",
                                MUSTER_FRAME_PAYLOAD_MAX, count);
    return MUSTER_OK;
}

/* A call to a tensor may have keys instead: those of its blocks, as links compute them. */
static bool is_range(const struct muster_params_store_table *table, size_t key_count)
{
    return table->tensor_elements > 0 && key_count == 0;
}

static enum muster_rc rows_range_check(const struct muster_params_store_table *table,
                                       uint64_t offset, struct muster_error *ret_error)
{
    if (offset == 0)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "rows of table %s go by keys: a call for them must have no offset, "
                            "got %" PRIu64,
                            table->name, offset);
}

static void keys_fill(const struct muster_params_store_table *table, uint64_t block,
                      uint32_t count, uint64_t *ret_keys)
{
    for (uint32_t i = 0; i < count; i++)
        ret_keys[i] = muster_params_block_key(table->seed, block + i);
}

/* The last block of a tensor may have elements that the tensor does not have: these are zeroes. */
static enum muster_rc push_blocks(struct muster_params_server *server,
                                  const Muster__Params__V1__PushRequest *request,
                                  struct muster_params_push *push, uint64_t count,
                                  void **ret_memory, struct muster_error *ret_error)
{
    const struct muster_params_store_table *table = push->table;
    const struct muster_params_tensor tensor = tensor_of(table);
    const struct muster_params_range_frame range = {.offset = request->offset, .count = count};
    size_t element_bytes = muster_dtype_bytes(push->dtype), value_bytes, key_bytes;
    enum muster_rc rc = range_check(table, range.offset, count, ret_error);
    uint8_t *memory;

    if (rc != MUSTER_OK)
        return rc;
    if (!muster_params_range_is_blocks(&tensor, range.offset, count))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a range that is pushed must be whole blocks of %u elements, got "
                                "%" PRIu64 " elements from %" PRIu64,
                                tensor.block_elements, count, range.offset);
    push->row_count = muster_params_range_blocks(&tensor, &range);
    key_bytes = push->row_count * sizeof(uint64_t);
    value_bytes = (size_t)push->row_count * table->row_elements * element_bytes;
    memory = muster_mem_alloc(&server->pool.mem, key_bytes + value_bytes);
    if (memory == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the call");
    keys_fill(table, muster_params_range_block(&tensor, range.offset), push->row_count,
              (uint64_t *)(void *)memory);
    memcpy(memory + key_bytes, push->values, (size_t)count * element_bytes);
    memset(memory + key_bytes + (size_t)count * element_bytes, 0,
           value_bytes - (size_t)count * element_bytes);
    push->keys = (const uint64_t *)(void *)memory;
    push->values = memory + key_bytes;
    *ret_memory = memory;
    return MUSTER_OK;
}

/* --- Rows --- */

/* Table and row_count of push are known; its values and their type are set. */
static enum muster_rc values_read(const Muster__Params__V1__PushRequest *request,
                                  struct muster_params_push *push, uint64_t *ret_count,
                                  struct muster_error *ret_error)
{
    bool has_bytes = request->value_bytes.len > 0;
    size_t element_bytes;

    push->dtype = has_bytes ? (enum muster_dtype)push->table->wire_dtype : MUSTER_F32;
    push->values = has_bytes ? (const void *)request->value_bytes.data : request->values;
    element_bytes = muster_dtype_bytes(push->dtype);
    if (has_bytes && request->n_values > 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a push must have values or value_bytes, got both");
    if (has_bytes && request->value_bytes.len % element_bytes != 0 &&
        is_range(push->table, request->n_keys))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "elements of table %s must have %zu bytes, got %zu bytes of values",
                                push->table->name, element_bytes, request->value_bytes.len);
    *ret_count = has_bytes ? request->value_bytes.len / element_bytes : request->n_values;
    return MUSTER_OK;
}

static enum muster_rc values_check(const Muster__Params__V1__PushRequest *request,
                                   const struct muster_params_push *push,
                                   struct muster_error *ret_error)
{
    size_t expected = (size_t)push->row_count * push->table->row_elements;
    size_t got = request->n_values;
    bool has_bytes = request->value_bytes.len > 0;

    if (has_bytes) {
        expected *= muster_dtype_bytes(push->dtype);
        got = request->value_bytes.len;
    }
    if (got == expected)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%" PRIu32 " rows of table %s must have %zu %s, got %zu",
                            push->row_count, push->table->name, expected,
                            has_bytes ? "bytes of values" : "values", got);
}

enum muster_rc muster_params_call_push_rows(struct muster_params_server *server,
                                            const Muster__Params__V1__PushRequest *request,
                                            struct muster_params_push *push, void **ret_memory,
                                            struct muster_error *ret_error)
{
    uint64_t count = 0; /* for a compiler that does not see that values_read sets it */
    enum muster_rc rc = values_read(request, push, &count, ret_error);

    *ret_memory = NULL;
    if (rc == MUSTER_OK && is_range(push->table, request->n_keys))
        return push_blocks(server, request, push, count, ret_memory, ret_error);
    if (rc == MUSTER_OK)
        rc = rows_range_check(push->table, request->offset, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_call_keys(request->n_keys, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    push->row_count = (uint32_t)request->n_keys;
    push->keys = request->keys;
    return values_check(request, push, ret_error);
}

/* Whole blocks are read, and counted. */
static enum muster_rc pull_blocks(struct muster_params_server *server,
                                  const struct muster_params_store_table *table,
                                  const Muster__Params__V1__PullRequest *request,
                                  struct muster_params_rows_frame *ret_frame, void **ret_memory,
                                  struct muster_error *ret_error)
{
    const struct muster_params_tensor tensor = tensor_of(table);
    struct muster_params_range_frame range = {.offset = request->offset,
                                              .count = request->elements};
    enum muster_rc rc;
    uint64_t *keys;

    if (range.count == 0 && range.offset < table->tensor_elements)
        range.count = table->tensor_elements - range.offset;
    rc = range_check(table, range.offset, range.count, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    ret_frame->row_count = muster_params_range_blocks(&tensor, &range);
    ret_frame->skip = (uint32_t)(range.offset % table->row_elements);
    ret_frame->element_count = (uint32_t)range.count;
    rc = muster_params_pull_check(table, ret_frame->row_count, (enum muster_dtype)ret_frame->dtype,
                                  &(size_t){0}, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    keys = muster_mem_alloc(&server->pool.mem, ret_frame->row_count * sizeof(*keys));
    if (keys == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the call");
    keys_fill(table, muster_params_range_block(&tensor, range.offset), ret_frame->row_count, keys);
    ret_frame->keys = keys;
    *ret_memory = keys;
    return MUSTER_OK;
}

enum muster_rc muster_params_call_pull_rows(struct muster_params_server *server,
                                            const struct muster_params_store_table *table,
                                            const Muster__Params__V1__PullRequest *request,
                                            struct muster_params_rows_frame *ret_frame,
                                            void **ret_memory, struct muster_error *ret_error)
{
    enum muster_rc rc;

    *ret_memory = NULL;
    *ret_frame = (struct muster_params_rows_frame){
        .dtype = (uint8_t)(request->as_bytes ? table->wire_dtype : MUSTER_F32)};
    if (is_range(table, request->n_keys))
        return pull_blocks(server, table, request, ret_frame, ret_memory, ret_error);
    rc = rows_range_check(table, request->offset | request->elements, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_call_keys(request->n_keys, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    ret_frame->keys = request->keys;
    ret_frame->row_count = (uint32_t)request->n_keys;
    return muster_params_pull_check(table, ret_frame->row_count,
                                    (enum muster_dtype)ret_frame->dtype, &(size_t){0}, ret_error);
}

/* --- Runs --- */

/* Rows of one shard stand together in their order, shards rise: the runs follow from the keys
 * alone. No run gets the mark "first of its source": only servers of a job read the mark, and the
 * clients of a job set it themselves. starts[shard] is where the next row of that shard
 * goes. */
static void rows_sort(const struct muster_params_server *server,
                      const struct muster_params_push *push, uint32_t *starts,
                      struct muster_params_run *ret_runs, uint64_t *ret_keys, uint8_t *ret_values,
                      uint32_t *ret_run_count)
{
    uint32_t shard_count = server->region->head->shard_count, at = 0, runs = 0;
    size_t bytes = push->table->row_elements * muster_dtype_bytes(push->dtype);
    const uint8_t *values = push->values;

    memset(starts, 0, shard_count * sizeof(*starts));
    for (uint32_t i = 0; i < push->row_count; i++)
        starts[muster_params_key_shard(push->table, push->keys[i], shard_count)]++;
    for (uint32_t shard = 0; shard < shard_count; shard++) {
        uint32_t rows = starts[shard];

        starts[shard] = at;
        at += rows;
        if (rows > 0)
            ret_runs[runs++] = (struct muster_params_run){(uint16_t)shard, (uint16_t)rows};
    }
    for (uint32_t i = 0; i < push->row_count; i++) {
        uint32_t to = starts[muster_params_key_shard(push->table, push->keys[i], shard_count)]++;

        ret_keys[to] = push->keys[i];
        memcpy(ret_values + to * bytes, values + i * bytes, bytes);
    }
    *ret_run_count = runs;
}

enum muster_rc muster_params_call_sort(struct muster_params_server *server,
                                       struct muster_params_push *push, void **ret_memory)
{
    uint32_t shard_count = server->region->head->shard_count;
    size_t starts_bytes = round_up(shard_count * sizeof(uint32_t));
    size_t runs_bytes = round_up(shard_count * sizeof(struct muster_params_run));
    size_t keys_bytes = push->row_count * sizeof(uint64_t);
    size_t values_bytes =
        (size_t)push->row_count * push->table->row_elements * muster_dtype_bytes(push->dtype);
    uint8_t *memory =
        muster_mem_alloc(&server->pool.mem, starts_bytes + runs_bytes + keys_bytes + values_bytes);
    struct muster_params_run *runs;
    uint64_t *keys;
    uint8_t *values;

    if (memory == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    runs = (struct muster_params_run *)(void *)(memory + starts_bytes);
    keys = (uint64_t *)(void *)(memory + starts_bytes + runs_bytes);
    values = memory + starts_bytes + runs_bytes + keys_bytes;
    rows_sort(server, push, (uint32_t *)(void *)memory, runs, keys, values, &push->run_count);
    push->runs = runs;
    push->keys = keys;
    push->values = values;
    *ret_memory = memory;
    return MUSTER_OK;
}
