/* Inspect: what the server holds. A digest reads every row of a table, so it takes some shards in each
 * turn of the loop; the rest is answered at once. */
#include "params/server/services/params_service.h"

#include <string.h>

#include "params/server/services/state_proto.h"
#include "params/server/services/table_proto.h"
#include "params/server/state/rows.h"
#include "params/store/row.h"

#define KEYS_MAX      1000u
#define ROWS_PER_TURN 4096u /* some hundred microseconds */
#define DIGESTS_MAX   4u    /* at a time: each has its rows in every turn */

/* An Inspect that is being answered; the data of its call. */
struct inspection {
    struct muster_params_server *server;
    struct muster_rpc *rpc;
    struct muster_task turn;
    uint32_t first, end;   /* tables that are shown */
    uint32_t table, shard; /* whose rows come next into a digest */
    uint64_t map;          /* of which the digest is */
    bool wants_digest;
    struct muster_params_digest *digests; /* end - first */
    struct muster_params_servers_proto servers;
    Muster__Params__V1__Clocks clocks;
    Muster__Params__V1__Cut cut;
    struct muster_error waits;
    uint32_t key_count;
    uint64_t keys[]; /* of the table `first` */
};

static void inspection_free(struct inspection *inspection)
{
    struct muster_mem *mem = inspection->server->env->mem;

    muster_task_cancel(&inspection->turn);
    inspection->server->digest_count -= inspection->digests != NULL;
    muster_mem_free(mem, inspection->digests);
    muster_mem_free(mem, inspection);
}

/* --- The answer --- */

/* The messages of an answer. */
struct pieces {
    Muster__Params__V1__Table *tables, **table_list;
    Muster__Params__V1__Schema *schemas;
    Muster__Params__V1__Row *rows, **row_list;
    float *values;
};

static void pieces_free(struct muster_mem *mem, struct pieces *pieces)
{
    muster_mem_free(mem, pieces->tables);
    muster_mem_free(mem, pieces->table_list);
    muster_mem_free(mem, pieces->schemas);
    muster_mem_free(mem, pieces->rows);
    muster_mem_free(mem, pieces->row_list);
    muster_mem_free(mem, pieces->values);
}

static bool pieces_new(const struct inspection *inspection, struct pieces *ret_pieces)
{
    struct muster_mem *mem = inspection->server->env->mem;
    size_t tables = inspection->end - inspection->first + 1; /* none may be asked for */
    size_t keys = inspection->key_count + 1, elements = 0;
    struct pieces *pieces = ret_pieces;

    if (inspection->key_count > 0)
        elements = muster_params_server_table(inspection->server, inspection->first)->row_elements;
    *pieces =
        (struct pieces){.tables = muster_mem_alloc(mem, tables * sizeof(*pieces->tables)),
                        .table_list = muster_mem_alloc(mem, tables * sizeof(*pieces->table_list)),
                        .schemas = muster_mem_alloc(mem, tables * sizeof(*pieces->schemas)),
                        .rows = muster_mem_alloc(mem, keys * sizeof(*pieces->rows)),
                        .row_list = muster_mem_alloc(mem, keys * sizeof(*pieces->row_list)),
                        .values = muster_mem_alloc(mem, keys * (elements + 1) * sizeof(float))};
    return pieces->tables != NULL && pieces->table_list != NULL && pieces->schemas != NULL &&
           pieces->rows != NULL && pieces->row_list != NULL && pieces->values != NULL;
}

/* Other servers tell of the shards that they lead: the sums of all are those of the job. */
static bool shard_is_led(const struct muster_params_server *server, uint32_t shard)
{
    MUSTER_ASSERT(shard < server->region->head->shard_count);
    return muster_params_server_leads_now(server, shard);
}

static uint64_t led_rows(const struct muster_params_server *server, uint32_t number)
{
    const struct muster_params_store_table *table = muster_params_server_table(server, number);
    uint64_t rows = 0;

    for (uint32_t i = 0; i < server->region->head->shard_count; i++) {
        if (shard_is_led(server, i))
            rows += muster_params_shard_at(server->region, table, i)->row_count;
    }
    return rows;
}

static void tables_fill(const struct inspection *inspection, struct pieces *pieces,
                        Muster__Params__V1__InspectResponse *response)
{
    for (uint32_t i = inspection->first; i < inspection->end; i++) {
        uint32_t at = i - inspection->first;
        Muster__Params__V1__Table *table = &pieces->tables[at];

        muster_params_table_describe(inspection->server,
                                     muster_params_server_table(inspection->server, i), table,
                                     &pieces->schemas[at]);
        table->led_rows = led_rows(inspection->server, i);
        if (inspection->wants_digest) {
            table->digest.data = (uint8_t *)inspection->digests[at].sums;
            table->digest.len = sizeof(inspection->digests[at].sums);
        }
        pieces->table_list[at] = table;
    }
    response->n_tables = inspection->end - inspection->first;
    response->tables = pieces->table_list;
}

static void rows_fill(const struct inspection *inspection, struct pieces *pieces,
                      Muster__Params__V1__InspectResponse *response)
{
    struct muster_params_region *region = inspection->server->region;
    const struct muster_params_store_table *table =
        muster_params_server_table(inspection->server, inspection->first);

    response->n_found = inspection->key_count;
    response->found = pieces->row_list;
    if (inspection->key_count > 0)
        muster_params_rows_read(region, table, inspection->keys, inspection->key_count,
                                pieces->values);
    for (uint32_t i = 0; i < inspection->key_count; i++) {
        uint64_t hash = muster_params_hash(table->seed, inspection->keys[i]);
        const struct muster_params_row *found =
            muster_params_index_find(region, table, hash, inspection->keys[i]);
        Muster__Params__V1__Row *row = &pieces->rows[i];

        muster__params__v1__row__init(row);
        row->key = inspection->keys[i];
        row->exists = found != NULL;
        row->version = found != NULL ? found->version : 0;
        row->clock = found != NULL ? found->clock : 0;
        row->values = pieces->values + (size_t)i * table->row_elements;
        row->n_values = table->row_elements;
        pieces->row_list[i] = row;
    }
}

static void server_fill(struct muster_params_server *server,
                        Muster__Params__V1__InspectResponse *response)
{
    struct muster_params_stats stats;

    muster_params_server_stats(server, &stats);
    response->incarnation.data = server->incarnation.bytes;
    response->incarnation.len = sizeof(server->incarnation.bytes);
    response->shards = server->region->head->shard_count;
    response->rows = stats.rows;
    response->memory_bytes = stats.memory_bytes;
    response->memory_max_bytes = stats.memory_max_bytes;
    response->sources = stats.sources;
    response->clients = stats.clients;
    response->pushes = stats.pushes;
    response->pulls = stats.pulls;
    response->pushed_rows = stats.pushed_rows;
    response->pulled_rows = stats.pulled_rows;
    response->duplicate_runs = stats.duplicate_runs;
    response->refused_rows = stats.refused_rows;
}

static void job_fill(struct inspection *inspection, Muster__Params__V1__InspectResponse *response)
{
    const struct muster_params_server *server = inspection->server;
    struct muster_params_servers_proto *servers = &inspection->servers;

    muster_params_servers_describe(server, servers);
    muster_params_clocks_describe(server, &inspection->clocks);
    response->map = server->map != NULL ? server->map->epoch : 0;
    response->replicas = server->map != NULL ? server->map->copies_wanted : 0;
    response->short_shards = servers->short_shards;
    response->servers = servers->list;
    response->n_servers = servers->count;
    response->id.data = server->region->head->id.bytes;
    response->id.len = sizeof(server->region->head->id.bytes);
    response->clocks = &inspection->clocks;
    response->lag_frames = muster_params_followers_lag(server);
    if (muster_params_server_check(server, &inspection->waits) != MUSTER_OK)
        response->waits = inspection->waits.text;
    if (server->cut.saved.folder[0] == '\0')
        return;
    muster__params__v1__cut__init(&inspection->cut);
    inspection->cut.folder = (char *)(uintptr_t)server->cut.saved.folder;
    inspection->cut.clock = server->cut.saved.clock;
    inspection->cut.bytes = server->cut.saved.bytes;
    response->cut = &inspection->cut;
}

static void inspection_answer(struct inspection *inspection)
{
    Muster__Params__V1__InspectResponse response;
    struct pieces pieces;

    muster__params__v1__inspect_response__init(&response);
    if (pieces_new(inspection, &pieces)) {
        server_fill(inspection->server, &response);
        job_fill(inspection, &response);
        tables_fill(inspection, &pieces, &response);
        rows_fill(inspection, &pieces, &response);
        (void)muster_params_v1_params_inspect_reply(inspection->rpc, &response);
    } else {
        muster_rpc_finish(inspection->rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the answer");
    }
    pieces_free(inspection->server->env->mem, &pieces);
}

/* --- The digest --- */

static void row_digest(void *data, const struct muster_params_store_table *table,
                       const struct muster_params_row *row)
{
    muster_params_digest_add(data, table, row);
}

/* A map that comes meanwhile says of other shards that this server leads them: those that were read are of no use. */
static void digest_follow_map(struct inspection *inspection)
{
    const struct muster_params_server *server = inspection->server;
    uint64_t map = server->map != NULL ? server->map->epoch : 0;

    if (inspection->map == map)
        return;
    inspection->map = map;
    inspection->table = inspection->first;
    inspection->shard = 0;
    memset(inspection->digests, 0,
           (inspection->end - inspection->first) * sizeof(*inspection->digests));
}

/* A shard is read in one turn: pushes that come between turns fall into the digest or do not. */
static void on_turn(struct muster_task *task)
{
    struct inspection *inspection = task->data;
    struct muster_params_region *region = inspection->server->region;
    uint64_t rows = 0;

    digest_follow_map(inspection);
    while (inspection->table < inspection->end && rows < ROWS_PER_TURN) {
        const struct muster_params_store_table *table =
            muster_params_server_table(inspection->server, inspection->table);

        rows += muster_params_shard_at(region, table, inspection->shard)->row_count + 1;
        if (shard_is_led(inspection->server, inspection->shard))
            muster_params_rows_visit(region, table, inspection->shard, row_digest,
                                     &inspection->digests[inspection->table - inspection->first]);
        if (++inspection->shard < region->head->shard_count)
            continue;
        inspection->shard = 0;
        inspection->table++;
    }
    if (inspection->table < inspection->end)
        muster_task_post(&inspection->turn, inspection->server->env->loop);
    else
        inspection_answer(inspection);
}

/* --- The call --- */

static enum muster_rc tables_pick(struct inspection *inspection,
                                  const Muster__Params__V1__InspectRequest *request,
                                  struct muster_error *ret_error)
{
    struct muster_params_server *server = inspection->server;
    struct muster_params_store_table *table = NULL;
    enum muster_rc rc;

    inspection->end = server->region->head->table_count;
    if (request->table[0] == '\0')
        return request->n_keys == 0 ? MUSTER_OK
                                    : muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                                       "keys are of one table: name it");
    rc = muster_params_server_table_find(server, request->table, &table, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    inspection->first = muster_params_table_number(server->region, table);
    inspection->end = inspection->first + 1;
    return muster_params_pull_check(table, (uint32_t)request->n_keys, MUSTER_F32, &(size_t){0},
                                    ret_error);
}

static enum muster_rc inspection_begin(struct inspection *inspection,
                                       const Muster__Params__V1__InspectRequest *request,
                                       struct muster_error *ret_error)
{
    enum muster_rc rc = tables_pick(inspection, request, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    inspection->table = inspection->first;
    inspection->key_count = (uint32_t)request->n_keys;
    for (uint32_t i = 0; i < inspection->key_count; i++)
        inspection->keys[i] = request->keys[i];
    inspection->wants_digest = request->wants_digest;
    if (!request->wants_digest)
        return MUSTER_OK;
    if (inspection->server->digest_count == DIGESTS_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "the server computes %u digests already; ask again later",
                                DIGESTS_MAX);
    inspection->digests =
        muster_mem_alloc_zero(inspection->server->env->mem, inspection->end - inspection->first + 1,
                              sizeof(*inspection->digests));
    inspection->server->digest_count += inspection->digests != NULL;
    return inspection->digests != NULL
               ? MUSTER_OK
               : muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a digest");
}

void muster_params_on_inspect(struct muster_rpc *rpc,
                              const Muster__Params__V1__InspectRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct inspection *inspection;
    struct muster_error error;

    if (request->n_keys > KEYS_MAX) {
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "an inspection shows at most %u rows, got %zu keys", KEYS_MAX,
                         request->n_keys);
        muster_rpc_finish(rpc, error.rc, error.text);
        return;
    }
    inspection = muster_mem_alloc_zero(
        server->env->mem, 1, sizeof(*inspection) + request->n_keys * sizeof(inspection->keys[0]));
    if (inspection == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the inspection");
        return;
    }
    inspection->server = server;
    inspection->rpc = rpc;
    muster_task_init(&inspection->turn, on_turn, inspection);
    muster_rpc_set_data(rpc, inspection);
    if (inspection_begin(inspection, request, &error) != MUSTER_OK)
        muster_rpc_finish(rpc, error.rc, error.text);
    else if (inspection->wants_digest)
        muster_task_post(&inspection->turn, server->env->loop);
    else
        inspection_answer(inspection);
}

/* The caller may hang up while a digest is being computed. */
void muster_params_on_inspect_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct inspection *inspection = muster_rpc_data(rpc);

    (void)rc;
    if (inspection != NULL)
        inspection_free(inspection);
}
