/* The messages of a client, one function each. Nothing of a message is applied before all of it is
 * checked. */
#include "params/server/server_internal.h"

#include <string.h>

#include <muster/collective.h>

static struct muster_params_store_table *table_at(const struct muster_params_server *server,
                                            uint32_t number)
{
    const struct muster_params_region_head *head = server->region->head;

    return number < head->table_count ? &server->region->head->tables[number] : NULL;
}

static uint32_t table_width(const void *data, uint32_t number)
{
    const struct muster_params_store_table *table = table_at(data, number);

    return table != NULL ? table->row_elements : 0;
}

/* --- OPEN, TABLE --- */

bool muster_params_handle_open(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    struct muster_params_answer *answer;
    struct muster_params_open open;
    struct muster_error error;
    enum muster_rc rc =
        muster_params_open_unpack(payload, header->payload_bytes, &open, &error);

    if (rc == MUSTER_OK && client->is_open)
        rc = muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                              "the link has named its source already");
    if (rc == MUSTER_OK) {
        rc = muster_params_source_open(server->region, &open.source, &client->slot);
        muster_error_set(&error, rc, "no memory for one more source: the server has %u",
                         server->region->head->source_count);
    }
    if (rc != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    client->is_open = true;
    client->generation = muster_params_source_at(server->region, client->slot)->generation;
    answer = muster_params_answer_new(client, MUSTER_PARAMS_OPENED, header->offset,
                                      MUSTER_PARAMS_OPENED_BYTES);
    if (answer == NULL)
        return false;
    muster_params_opened_pack(
        &(struct muster_params_opened){.slot = client->slot,
                                       .generation = client->generation,
                                       .shard_count = server->region->head->shard_count},
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
    enum muster_rc rc = muster_params_rows_unpack(
        payload, header->payload_bytes, is_push, server->region->head->shard_count, table_width,
        server, ret_frame, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    table = table_at(server, ret_frame->table);
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
    const struct muster_params_store_table *table = table_at(server, frame->table);
    uint32_t shard_count = server->region->head->shard_count;
    const uint64_t *key = frame->keys;

    for (uint32_t i = 0; i < frame->run_count; i++) {
        const struct muster_params_frame_run *run = &frame->runs[i];
        uint16_t shard = muster_params_run_shard(run);

        if (source->positions[shard] == 0 && (run->shard & MUSTER_PARAMS_RUN_FIRST) == 0)
            return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                    "the server has no position of this source for shard %u: its "
                                    "sequence was forgotten",
                                    shard);
        for (uint32_t j = 0; j < run->rows; j++, key++) {
            if (muster_params_shard_of(muster_params_hash(table->seed, *key), shard_count) != shard)
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
    if (source->generation != client->generation)
        return muster_error_set(ret_error, MUSTER_ABORTED,
                                "a younger process has opened this source");
    if (header->offset == 0 || header->offset > MUSTER_PARAMS_SEQUENCE_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the sequence number of a push must be from 1 to 2^47, got %llu",
                                (unsigned long long)header->offset);
    return keys_check(client->server, ret_frame, source, ret_error);
}

/* NULL: no memory. */
static float *scratch_of(struct muster_params_server *server, size_t count)
{
    if (count > server->scratch_count) {
        float *scratch = muster_mem_realloc(server->env->mem, server->scratch,
                                            count * sizeof(*scratch));

        if (scratch == NULL)
            return NULL;
        server->scratch = scratch;
        server->scratch_count = count;
    }
    return server->scratch;
}

static void values_widen(enum muster_dtype dtype, const void *from, size_t count, float *ret_to)
{
    const uint16_t *halves = from;

    for (size_t i = 0; i < count; i++)
        ret_to[i] = dtype == MUSTER_F16 ? muster_f16_to_f32(halves[i])
                                        : muster_bf16_to_f32(halves[i]);
}

static void values_narrow(enum muster_dtype dtype, const float *from, size_t count, void *ret_to)
{
    uint16_t *halves = ret_to;

    for (size_t i = 0; i < count; i++)
        halves[i] = dtype == MUSTER_F16 ? muster_f16_from_f32(from[i])
                                        : muster_bf16_from_f32(from[i]);
}

/* Returns the rows that were refused. */
static uint32_t push_apply(struct muster_params_client *client,
                           const struct muster_params_rows_frame *frame, uint64_t sequence,
                           const float *values)
{
    struct muster_params_server *server = client->server;
    struct muster_params_run run = {
        .table = table_at(server, frame->table),
        .source = muster_params_source_at(server->region, client->slot),
        .sequence = sequence,
        .clock = (uint32_t)frame->clock,
        .keys = frame->keys,
        .values = values};
    uint32_t refused = 0;

    for (uint32_t i = 0; i < frame->run_count; i++) {
        struct muster_params_applied applied;

        run.shard = muster_params_run_shard(&frame->runs[i]);
        run.count = frame->runs[i].rows;
        applied = muster_params_run_apply(server->region, &run);
        refused += applied.refused;
        server->stats.duplicate_runs += applied.is_duplicate;
        run.keys += run.count;
        run.values += (size_t)run.count * run.table->row_elements;
    }
    server->stats.pushes++;
    server->stats.pushed_rows += frame->row_count;
    server->stats.refused_rows += refused;
    return refused;
}

bool muster_params_handle_push(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    struct muster_params_ack ack = {.sequence = header->offset};
    struct muster_params_rows_frame frame;
    struct muster_error error;
    const float *values;

    if (push_judge(client, header, payload, &frame, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    values = frame.values;
    if (frame.dtype != MUSTER_F32) {
        size_t count = (size_t)frame.row_count * table_width(server, frame.table);
        float *wide = scratch_of(server, count);

        if (wide == NULL)
            return false;
        values_widen((enum muster_dtype)frame.dtype, frame.values, count, wide);
        values = wide;
    }
    ack.refused = push_apply(client, &frame, header->offset, values);
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
    size_t count, bytes;
    float *values;

    if (rows_judge(client, header, payload, false, &frame, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    table = table_at(server, frame.table);
    count = (size_t)frame.row_count * table->row_elements;
    bytes = count * muster_dtype_bytes((enum muster_dtype)frame.dtype);
    if (bytes > MUSTER_FRAME_PAYLOAD_MAX) {
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "a pull of %u rows of table %s needs %zu bytes, the limit is %u",
                         frame.row_count, table->name, bytes, MUSTER_FRAME_PAYLOAD_MAX);
        return muster_params_refuse(client, header, &error);
    }
    answer = muster_params_answer_new(client, MUSTER_PARAMS_ROWS, header->offset, bytes);
    if (answer == NULL)
        return false;
    values = frame.dtype == MUSTER_F32 ? (float *)(void *)answer->payload
                                       : scratch_of(server, count);
    if (values == NULL) {
        muster_mem_free(&server->pool.mem, answer);
        return false;
    }
    muster_params_rows_read(server->region, table, frame.keys, frame.row_count, values);
    if (frame.dtype != MUSTER_F32)
        values_narrow((enum muster_dtype)frame.dtype, values, count, answer->payload);
    server->stats.pulls++;
    server->stats.pulled_rows += frame.row_count;
    return muster_params_answer_send(answer, bytes);
}
