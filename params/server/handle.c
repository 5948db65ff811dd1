/* The messages of a client, one function each. Nothing of a message is applied before all of it is
 * checked. */
#include "params/server/rows.h"

#include <string.h>

#include <muster/collective.h>

static uint32_t table_width(const void *data, uint32_t number)
{
    const struct muster_params_store_table *table = muster_params_server_table(data, number);

    return table != NULL ? table->row_elements : 0;
}

/* --- OPEN, TABLE --- */

bool muster_params_handle_open(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    const struct muster_params_source *source;
    struct muster_params_answer *answer;
    struct muster_params_open open;
    struct muster_error error;
    enum muster_rc rc = muster_params_open_unpack(payload, header->payload_bytes, &open, &error);

    if (rc == MUSTER_OK && client->is_open)
        rc = muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                              "the link has named its source already");
    if (rc == MUSTER_OK)
        rc = muster_params_server_source_open(server, &open.source, open.generation, &client->slot,
                                              &error);
    if (rc != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    client->is_open = true;
    source = muster_params_source_at(server->region, client->slot);
    client->generation = source->generation;
    answer = muster_params_answer_new(client, MUSTER_PARAMS_OPENED, header->offset,
                                      MUSTER_PARAMS_OPENED_BYTES);
    if (answer == NULL)
        return false;
    muster_params_opened_pack(
        &(struct muster_params_opened){.slot = client->slot,
                                       .generation = client->generation,
                                       .shard_count = server->region->head->shard_count,
                                       .sequence =
                                           muster_params_source_sequence(server->region, source)},
        answer->payload);
    return muster_params_answer_send(answer, MUSTER_PARAMS_OPENED_BYTES);
}

bool muster_params_handle_table(struct muster_params_client *client,
                                const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_region *region = client->server->region;
    struct muster_params_store_table *table = NULL;
    struct muster_params_answer *answer;
    struct muster_params_schema schema;
    struct muster_error error;
    enum muster_rc rc =
        muster_params_schema_unpack(payload, header->payload_bytes, &schema, &error);

    if (rc == MUSTER_OK)
        rc = muster_params_table_open(region, &schema, &table, &error);
    if (rc != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    answer = muster_params_answer_new(client, MUSTER_PARAMS_TABLE_OPEN, header->offset, 0);
    if (answer == NULL)
        return false;
    answer->frame.header.phase = muster_params_table_number(region, table);
    answer->frame.header.descriptor = table->descriptor;
    return muster_params_answer_send(answer, 0);
}

/* --- PUSH, PULL --- */

static enum muster_rc rows_judge(const struct muster_params_client *client,
                                 const struct muster_frame_header *header, const uint8_t *payload,
                                 bool is_push, struct muster_params_rows_frame *ret_frame,
                                 struct muster_error *ret_error)
{
    const struct muster_params_server *server = client->server;
    const struct muster_params_store_table *table;
    enum muster_rc rc = muster_params_rows_unpack(payload, header->payload_bytes, is_push,
                                                  server->region->head->shard_count, table_width,
                                                  server, ret_frame, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    table = muster_params_server_table(server, ret_frame->table);
    if (header->descriptor != table->descriptor)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "table %s has schema %016llx, the message is for %016llx",
                                table->name, (unsigned long long)table->descriptor,
                                (unsigned long long)header->descriptor);
    if (ret_frame->dtype != table->wire_dtype)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "values of table %s must be %s, got %s", table->name,
                                muster_dtype_name((enum muster_dtype)table->wire_dtype),
                                muster_dtype_name((enum muster_dtype)ret_frame->dtype));
    return MUSTER_OK;
}

static enum muster_rc keys_check(const struct muster_params_server *server,
                                 const struct muster_params_rows_frame *frame,
                                 const struct muster_params_source *source,
                                 struct muster_error *ret_error)
{
    const struct muster_params_store_table *table =
        muster_params_server_table(server, frame->table);
    uint32_t shard_count = server->region->head->shard_count;
    const uint64_t *key = frame->keys;

    for (uint32_t i = 0; i < frame->run_count; i++) {
        const struct muster_params_run *run = &frame->runs[i];
        uint16_t shard = muster_params_run_shard(run);

        if (source->positions[shard] == 0 && (run->shard & MUSTER_PARAMS_RUN_FIRST) == 0)
            return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                    "the server has no position of this source for shard %u: its "
                                    "sequence was forgotten",
                                    shard);
        for (uint32_t j = 0; j < run->rows; j++, key++) {
            if (muster_params_key_shard(table, *key, shard_count) != shard)
                return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                        "key %llu of table %s is not of shard %u",
                                        (unsigned long long)*key, table->name, shard);
        }
    }
    return MUSTER_OK;
}

static enum muster_rc push_judge(const struct muster_params_client *client,
                                 const struct muster_frame_header *header, const uint8_t *payload,
                                 struct muster_params_rows_frame *ret_frame,
                                 struct muster_error *ret_error)
{
    const struct muster_params_source *source =
        muster_params_source_at(client->server->region, client->slot);
    enum muster_rc rc = rows_judge(client, header, payload, true, ret_frame, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (ret_frame->slot != client->slot)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a push of source %llu came over the link of source %llu",
                                (unsigned long long)ret_frame->slot,
                                (unsigned long long)client->slot);
    rc = muster_params_push_check(source, client->generation, header->offset, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    return keys_check(client->server, ret_frame, source, ret_error);
}

bool muster_params_handle_push(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    struct muster_params_ack ack = {.sequence = header->offset};
    struct muster_params_pushed pushed;
    struct muster_params_rows_frame frame;
    struct muster_params_push push;
    struct muster_error error;

    if (push_judge(client, header, payload, &frame, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    push =
        (struct muster_params_push){.table = muster_params_server_table(server, frame.table),
                                    .source = muster_params_source_at(server->region, client->slot),
                                    .sequence = header->offset,
                                    .clock = (uint32_t)frame.clock,
                                    .runs = frame.runs,
                                    .run_count = frame.run_count,
                                    .keys = frame.keys,
                                    .values = frame.values,
                                    .dtype = (enum muster_dtype)frame.dtype,
                                    .row_count = frame.row_count};
    if (muster_params_push_apply(server, &push, &pushed) != MUSTER_OK)
        return false;
    ack.refused = pushed.refused;
    ack.rc = ack.refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK;
    return muster_params_acknowledge(client, &ack);
}

bool muster_params_handle_pull(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    const struct muster_params_store_table *table;
    struct muster_params_answer *answer;
    struct muster_params_rows_frame frame;
    struct muster_error error;
    size_t bytes;

    if (rows_judge(client, header, payload, false, &frame, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    table = muster_params_server_table(server, frame.table);
    if (muster_params_pull_check(table, frame.row_count, (enum muster_dtype)frame.dtype, &bytes,
                                 &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    answer = muster_params_answer_new(client, MUSTER_PARAMS_ROWS, header->offset, bytes);
    if (answer == NULL)
        return false;
    if (muster_params_pull_read(server, table, &frame, answer->payload) != MUSTER_OK) {
        muster_mem_free(&server->pool.mem, answer);
        return false;
    }
    return muster_params_answer_send(answer, bytes);
}
