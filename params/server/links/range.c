/* Ranges of a tensor: the keys of their blocks are computed, and the rest is as for rows. The last block of a
 * tensor may have elements that the tensor does not have; pushes give them zeroes. */
#include "params/server/links/range.h"

#include "params/server/core/answer.h"
#include "params/server/links/handle.h"
#include "params/server/state/clock.h"
#include "params/server/state/rows.h"

#define ANSWER_BYTES (128u << 10) /* smaller ones are not waited for */

/* A frame of the blocks of a range, with its keys and its run. */
struct range_rows {
    struct muster_params_rows_frame frame;
    struct muster_params_run run;
    uint64_t keys[MUSTER_PARAMS_EXTENT_BLOCKS];
};

struct muster_params_tensor muster_params_tensor_of(const struct muster_params_store_table *table)
{
    return (struct muster_params_tensor){.elements = table->tensor_elements,
                                         .block_elements = table->row_elements,
                                         .dtype = (enum muster_dtype)table->wire_dtype};
}

size_t muster_params_message_padding(const struct muster_params_server *server,
                                     const struct muster_frame_header *header)
{
    const struct muster_params_store_table *table =
        muster_params_server_table(server, muster_params_range_table(header));
    size_t block_bytes, beyond;

    if (table == NULL)
        return 0;
    block_bytes = table->row_elements * muster_dtype_bytes((enum muster_dtype)table->wire_dtype);
    beyond = header->payload_bytes % block_bytes;
    return beyond == 0 ? 0 : block_bytes - beyond;
}

static void rows_fill(const struct muster_params_server *server,
                      const struct muster_params_store_table *table,
                      const struct muster_params_range_frame *range, struct range_rows *ret_rows)
{
    const struct muster_params_tensor tensor = muster_params_tensor_of(table);
    uint64_t block = muster_params_range_block(&tensor, range->offset);
    struct muster_params_rows_frame *frame = &ret_rows->frame;
    uint32_t shard;

    *frame = (struct muster_params_rows_frame){
        .clock = range->clock,
        .table = range->table,
        .row_count = muster_params_range_blocks(&tensor, range),
        .dtype = (uint8_t)table->wire_dtype,
        .runs = &ret_rows->run,
        .run_count = 1,
        .keys = ret_rows->keys,
        .skip = (uint32_t)(range->offset % table->row_elements),
        .element_count = (uint32_t)range->count};
    MUSTER_ASSERT(frame->row_count <= MUSTER_PARAMS_EXTENT_BLOCKS);
    for (uint32_t i = 0; i < frame->row_count; i++)
        ret_rows->keys[i] = muster_params_block_key(table->seed, block + i);
    shard =
        muster_params_key_shard(table, ret_rows->keys[0], server->region->head->shard_count);
    ret_rows->run.shard = (uint16_t)(shard | (range->is_first ? MUSTER_PARAMS_RUN_FIRST : 0));
    ret_rows->run.rows = (uint16_t)frame->row_count;
}

enum muster_rc muster_params_range_table_find(const struct muster_params_client *client,
                                              const struct muster_frame_header *header,
                                              struct muster_params_tensor *ret_tensor,
                                              struct muster_error *ret_error)
{
    const struct muster_params_store_table *table =
        muster_params_server_table(client->server, muster_params_range_table(header));

    if (table == NULL || table->tensor_elements == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the server has no tensor of number %u",
                                muster_params_range_table(header));
    if (header->descriptor != table->descriptor)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s has schema %016llx, the message is for %016llx",
                                table->name, (unsigned long long)table->descriptor,
                                (unsigned long long)header->descriptor);
    *ret_tensor = muster_params_tensor_of(table);
    return MUSTER_OK;
}

static enum muster_rc range_judge(const struct muster_params_client *client,
                                  const struct muster_frame_header *header, const uint8_t *payload,
                                  struct muster_params_range_frame *ret_range,
                                  struct muster_error *ret_error)
{
    struct muster_params_tensor tensor;
    enum muster_rc rc = muster_params_range_table_find(client, header, &tensor, ret_error);

    return rc != MUSTER_OK ? rc
                           : muster_params_range_unpack(header, payload, &tensor, ret_range,
                                                        ret_error);
}

bool muster_params_range_push(struct muster_params_client *client,
                              const struct muster_frame_header *header,
                              const struct muster_params_range_frame *range, const void *values)
{
    const struct muster_params_server *server = client->server;
    const struct muster_params_source *source =
        muster_params_source_at(server->region, client->slot);
    struct range_rows rows;
    struct muster_error error;

    if (muster_params_push_check(source, client->generation, header->offset, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    rows_fill(server, muster_params_server_table(server, range->table), range, &rows);
    rows.frame.slot = client->slot;
    rows.frame.values = values;
    return muster_params_push_take(client, header, &rows.frame);
}

/* The range may not be one, and its values may lie nowhere: one block of zeroes, of which nothing is applied, tells
 * the shard. */
bool muster_params_range_refuse(struct muster_params_client *client,
                                const struct muster_frame_header *header,
                                const struct muster_error *error)
{
    struct muster_params_server *server = client->server;
    const struct muster_params_store_table *table =
        muster_params_server_table(server, muster_params_range_table(header));
    struct muster_params_range_frame range = {
        .offset = header->op.step,
        .count = 1,
        .table = muster_params_range_table(header),
        .is_first = (header->flags & MUSTER_PARAMS_RANGE_FIRST) != 0};
    struct muster_error unfit;
    struct range_rows rows;
    void *values;
    bool is_answered;

    if (table == NULL || range.offset >= table->tensor_elements ||
        muster_params_push_check(muster_params_source_at(server->region, client->slot),
                                 client->generation, header->offset, &unfit) != MUSTER_OK)
        return muster_params_refuse(client, header, error);
    values = muster_mem_alloc_zero(&server->pool.mem, table->row_elements,
                                   muster_dtype_bytes((enum muster_dtype)table->wire_dtype));
    if (values == NULL)
        return false;
    rows_fill(server, table, &range, &rows);
    rows.frame.slot = client->slot;
    rows.frame.values = values;
    is_answered = muster_params_push_refused_take(client, header, &rows.frame, error);
    muster_mem_free(&server->pool.mem, values);
    return is_answered;
}

bool muster_params_handle_push_range(struct muster_params_client *client,
                                     const struct muster_frame_header *header,
                                     const uint8_t *payload)
{
    struct muster_params_range_frame range;
    struct muster_error error;

    if (range_judge(client, header, payload, &range, &error) != MUSTER_OK)
        return muster_params_range_refuse(client, header, &error);
    return muster_params_range_push(client, header, &range, payload);
}

bool muster_params_handle_pull_range(struct muster_params_client *client,
                                     const struct muster_frame_header *header,
                                     const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    struct muster_params_range_frame range;
    struct range_rows rows;
    struct muster_error error;

    if (range_judge(client, header, payload, &range, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    if (!muster_params_server_clock_has_come(server, range.clock))
        return muster_params_server_clock_wait(client, header, payload, range.clock,
                                               muster_params_handle_pull_range);
    rows_fill(server, muster_params_server_table(server, range.table), &range, &rows);
    if (!muster_params_pull_take(client, header, &rows.frame,
                                 rows.frame.element_count *
                                     muster_dtype_bytes((enum muster_dtype)rows.frame.dtype)))
        return false;
    /* The next one is read when this answer has left: it gets the same memory, which is in the cache. */
    if (muster_peer_link_queued_bytes(client->link) > ANSWER_BYTES)
        muster_peer_link_pause(client->link);
    return true;
}
