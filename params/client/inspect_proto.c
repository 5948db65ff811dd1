/* Inspect of muster.params.v1, asked by a client. */
#include <muster/params_inspect.h>

#include <string.h>

#include "params/wire/frame.h"
#include "proto/params.muster.h"

struct question {
    struct muster_params_v1_params_inspect_call call;
    struct muster_env *env;
    struct muster_params_inspect *inspect;
    muster_params_inspect_fn *done;
};

static enum muster_dtype dtype_of(Muster__Params__V1__ValueType type)
{
    if (type == MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_F16)
        return MUSTER_F16;
    return type == MUSTER__PARAMS__V1__VALUE_TYPE__VALUE_TYPE_BF16 ? MUSTER_BF16 : MUSTER_F32;
}

static bool table_read(const Muster__Params__V1__Table *table,
                       struct muster_params_table_state *ret_state)
{
    if (table->schema == NULL ||
        (table->digest.len != 0 && table->digest.len != sizeof(ret_state->digest)))
        return false;
    *ret_state = (struct muster_params_table_state){
        .number = table->number,
        .name = table->schema->name,
        .descriptor = table->schema_hash,
        .rows = table->rows,
        .led_rows = table->led_rows,
        .row_elements = table->schema->row_elements,
        .row_bytes = table->row_bytes,
        .wire_dtype = dtype_of(table->schema->value_type),
        .optimizer = (enum muster_params_optimizer)table->schema->optimizer,
        .rows_max = table->schema->rows_max,
        .evict_by = (enum muster_params_evict)table->schema->evict_by,
        .has_digest = table->digest.len != 0};
    if (ret_state->has_digest)
        memcpy(ret_state->digest, table->digest.data, sizeof(ret_state->digest));
    return true;
}

static bool name_read(const char *name, char ret_name[MUSTER_PARAMS_NAME_BYTES])
{
    memset(ret_name, 0, MUSTER_PARAMS_NAME_BYTES);
    memcpy(ret_name, name, strnlen(name, MUSTER_PARAMS_NAME_BYTES));
    return muster_params_name_is_valid(ret_name);
}

static bool head_read(const Muster__Params__V1__InspectResponse *response,
                      struct muster_params_inspection *ret_inspection)
{
    struct muster_params_inspection *inspection = ret_inspection;

    if (response->incarnation.len != sizeof(inspection->incarnation.bytes))
        return false;
    memcpy(inspection->incarnation.bytes, response->incarnation.data,
           sizeof(inspection->incarnation.bytes));
    inspection->shard_count = response->shards;
    inspection->stats = (struct muster_params_stats){.pushes = response->pushes,
                                                     .pulls = response->pulls,
                                                     .pushed_rows = response->pushed_rows,
                                                     .pulled_rows = response->pulled_rows,
                                                     .duplicate_runs = response->duplicate_runs,
                                                     .refused_rows = response->refused_rows,
                                                     .rows = response->rows,
                                                     .memory_bytes = response->memory_bytes,
                                                     .memory_max_bytes = response->memory_max_bytes,
                                                     .tables = (uint32_t)response->n_tables,
                                                     .sources = response->sources,
                                                     .clients = response->clients};
    return true;
}

static bool id_read(const ProtobufCBinaryData *bytes, bool may_lack,
                    struct muster_incarnation *ret_id)
{
    memset(ret_id, 0, sizeof(*ret_id));
    if (bytes->len == 0 && may_lack)
        return true;
    if (bytes->len != sizeof(ret_id->bytes))
        return false;
    memcpy(ret_id->bytes, bytes->data, bytes->len);
    return true;
}

static bool server_read(const Muster__Params__V1__Server *server,
                        struct muster_params_server_state *ret_state)
{
    *ret_state = (struct muster_params_server_state){.address = server->address,
                                                     .primaries = server->primaries,
                                                     .replicas = server->replicas,
                                                     .learning = server->learning,
                                                     .is_leaving = server->is_leaving};
    return id_read(&server->id, false, &ret_state->id);
}

/* Older servers say less. */
static bool job_read(const Muster__Params__V1__InspectResponse *response,
                     struct muster_params_server_state *servers,
                     struct muster_params_inspection *ret_inspection)
{
    struct muster_params_inspection *inspection = ret_inspection;
    const Muster__Params__V1__Clocks *clocks = response->clocks;
    bool is_valid = id_read(&response->id, true, &inspection->id);

    inspection->map = response->map;
    inspection->replicas = response->replicas;
    inspection->short_shards = response->short_shards;
    inspection->lag_frames = response->lag_frames;
    inspection->servers = servers;
    inspection->server_count = response->n_servers;
    for (size_t i = 0; i < response->n_servers && is_valid; i++)
        is_valid = server_read(response->servers[i], &servers[i]);
    inspection->clocks = (struct muster_params_clocks_state){.has_low = false};
    if (clocks != NULL) {
        inspection->clocks = (struct muster_params_clocks_state){.has_low = clocks->has_low,
                                                                 .low = clocks->low,
                                                                 .high = clocks->high,
                                                                 .known = clocks->known,
                                                                 .expected = clocks->expected};
        is_valid = is_valid && id_read(&clocks->slowest, true, &inspection->clocks.slowest) &&
                   name_read(clocks->slowest_name, inspection->clocks.slowest_name);
    }
    inspection->waits = response->waits;
    inspection->cut = (struct muster_params_cut_told){.folder = NULL};
    if (response->cut != NULL)
        inspection->cut = (struct muster_params_cut_told){
            response->cut->folder, response->cut->clock, response->cut->bytes};
    return is_valid;
}

static enum muster_rc inspection_read(const Muster__Params__V1__InspectResponse *response,
                                      struct muster_params_table_state *tables,
                                      struct muster_params_row_state *rows,
                                      struct muster_params_server_state *servers,
                                      struct muster_params_inspection *ret_inspection,
                                      struct muster_error *ret_error)
{
    bool is_valid = head_read(response, ret_inspection) && job_read(response, servers, ret_inspection);

    for (size_t i = 0; i < response->n_tables && is_valid; i++)
        is_valid = table_read(response->tables[i], &tables[i]);
    if (!is_valid)
        return muster_error_set(ret_error, MUSTER_INTERNAL,
                                "the server's answer to Inspect is malformed");
    for (size_t i = 0; i < response->n_found; i++) {
        const Muster__Params__V1__Row *row = response->found[i];

        rows[i] = (struct muster_params_row_state){.key = row->key,
                                                   .exists = row->exists,
                                                   .version = row->version,
                                                   .clock = row->clock,
                                                   .values = row->values,
                                                   .value_count = row->n_values};
    }
    ret_inspection->tables = tables;
    ret_inspection->table_count = response->n_tables;
    ret_inspection->rows = rows;
    ret_inspection->row_count = response->n_found;
    return MUSTER_OK;
}

static void on_answer(struct muster_params_v1_params_inspect_call *call, enum muster_rc rc,
                      const Muster__Params__V1__InspectResponse *response)
{
    struct question *question = call->data;
    struct muster_params_inspect *inspect = question->inspect;
    muster_params_inspect_fn *done = question->done;
    struct muster_mem *mem = question->env->mem;
    struct muster_params_inspection inspection;
    struct muster_params_table_state *tables = NULL;
    struct muster_params_row_state *rows = NULL;
    struct muster_params_server_state *servers = NULL;

    inspect->error = call->stub.call.status;
    if (rc == MUSTER_OK) {
        tables = muster_mem_alloc_zero(mem, response->n_tables + 1, sizeof(*tables));
        rows = muster_mem_alloc_zero(mem, response->n_found + 1, sizeof(*rows));
        servers = muster_mem_alloc_zero(mem, response->n_servers + 1, sizeof(*servers));
        rc = tables == NULL || rows == NULL || servers == NULL
                 ? muster_error_set(&inspect->error, MUSTER_RESOURCE_EXHAUSTED,
                                    "no memory for the answer")
                 : inspection_read(response, tables, rows, servers, &inspection, &inspect->error);
    }
    muster_mem_free(mem, question);
    inspect->inspection = rc == MUSTER_OK ? &inspection : NULL;
    done(inspect, rc);
    muster_mem_free(mem, tables);
    muster_mem_free(mem, rows);
    muster_mem_free(mem, servers);
}

void muster_params_digest_join(uint8_t digest[MUSTER_PARAMS_DIGEST_BYTES],
                               const uint8_t other[MUSTER_PARAMS_DIGEST_BYTES])
{
    uint64_t sums[2], added[2];

    memcpy(sums, digest, sizeof(sums));
    memcpy(added, other, sizeof(added));
    sums[0] += added[0];
    sums[1] += added[1];
    memcpy(digest, sums, sizeof(sums));
}

enum muster_rc muster_params_inspect_start(struct muster_params_inspect *inspect,
                                           struct muster_env *env, struct muster_channel *channel,
                                           const struct muster_params_inspect_options *options,
                                           muster_params_inspect_fn *done)
{
    const struct muster_call_options call = {.deadline_ns = options->deadline_ns};
    Muster__Params__V1__InspectRequest request;
    struct question *question = muster_mem_alloc_zero(env->mem, 1, sizeof(*question));
    enum muster_rc rc;

    if (question == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    question->env = env;
    question->inspect = inspect;
    question->done = done;
    question->call.data = question;
    muster__params__v1__inspect_request__init(&request);
    if (options->table != NULL)
        request.table = (char *)(uintptr_t)options->table;
    request.keys = (uint64_t *)(uintptr_t)options->keys;
    request.n_keys = options->key_count;
    request.wants_digest = options->wants_digest;
    rc =
        muster_params_v1_params_inspect_start(&question->call, channel, &call, &request, on_answer);
    if (rc != MUSTER_OK) {
        inspect->error = question->call.stub.call.status;
        muster_mem_free(env->mem, question);
    }
    return rc;
}
