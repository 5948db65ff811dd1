/* The sums of what the sources of a closed round have pushed, as pushes of the server's own. */
#include "params/server/round_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params/store/index.h"
#include "params/store/row.h"

/* Values that are summed at a time. */
#define CHUNK_BYTES    ((size_t)1 << 20)
#define CHUNK_ROWS_MAX 4096u
#define CHUNKS_BITS    15u

_Static_assert(((MUSTER_PARAMS_ROUND_MAX + 1) << CHUNKS_BITS) < MUSTER_PARAMS_SEQUENCE_MAX,
               "each message of a round has a sequence number");

bool muster_params_round_shard_is_led(const struct muster_params_server *server, uint32_t shard)
{
    return server->map != NULL && server->place != MUSTER_PARAMS_NOWHERE &&
           muster_params_server_leads(server, shard, server->map->epoch);
}

/* --- Tables of a table --- */

static void name_kept(const struct muster_params_store_table *table,
                      const struct muster_incarnation *id, char ret_name[MUSTER_PARAMS_NAME_BYTES])
{
    snprintf(ret_name, MUSTER_PARAMS_NAME_BYTES, "%.46s" MUSTER_PARAMS_ROUND_MARK "%016" PRIx64,
             table->name, muster_hash64(id->bytes, sizeof(id->bytes), 0));
}

void muster_params_round_log_name(const struct muster_params_store_table *table,
                                  char ret_name[MUSTER_PARAMS_NAME_BYTES])
{
    snprintf(ret_name, MUSTER_PARAMS_NAME_BYTES, "%.46s" MUSTER_PARAMS_ROUND_MARK "rounds",
             table->name);
}

static struct muster_params_store_table *kept_find(const struct muster_params_rounds *rounds,
                                                   const struct muster_incarnation *id)
{
    char name[MUSTER_PARAMS_NAME_BYTES];

    name_kept(rounds->table, id, name);
    return muster_params_table_find(rounds->server->region, name);
}

enum muster_rc muster_params_round_kept_open(struct muster_params_rounds *rounds,
                                             const struct muster_incarnation *id,
                                             struct muster_params_store_table **ret_table,
                                             struct muster_error *ret_error)
{
    char name[MUSTER_PARAMS_NAME_BYTES];
    const struct muster_params_schema schema = {.name = name,
                                                .row_elements = rounds->table->row_elements,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_CLOCK_SUM};

    *ret_table = kept_find(rounds, id);
    if (*ret_table != NULL)
        return MUSTER_OK;
    name_kept(rounds->table, id, name);
    return muster_params_table_open(rounds->server->region, &schema, ret_table, ret_error);
}

enum muster_rc muster_params_round_log_open(struct muster_params_rounds *rounds,
                                            struct muster_error *ret_error)
{
    char name[MUSTER_PARAMS_NAME_BYTES];
    const struct muster_params_schema schema = {.name = name,
                                                .row_elements = MUSTER_PARAMS_DECISION_BYTES_MAX /
                                                                sizeof(float),
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ASSIGN};

    if (rounds->log != NULL)
        return MUSTER_OK;
    muster_params_round_log_name(rounds->table, name);
    return muster_params_table_open(rounds->server->region, &schema, &rounds->log, ret_error);
}

/* --- Pushes of the server's own --- */

/* The sequence number follows from round and message, so that a repetition changes nothing. */
enum muster_rc muster_params_own_rows_push(struct muster_params_rounds *rounds,
                                           const struct muster_params_own_rows *rows)
{
    const struct muster_params_run run = {.shard = (uint16_t)rows->shard,
                                          .rows = (uint16_t)rows->count};
    const struct muster_params_push push = {.table = rows->table,
                                            .source = rounds->source,
                                            .slot = rounds->slot,
                                            .sequence =
                                                ((rows->round + 1) << CHUNKS_BITS) + rows->message,
                                            .clock = (uint32_t)(rows->round + 1),
                                            .runs = &run,
                                            .run_count = 1,
                                            .keys = rows->keys,
                                            .values = rows->values,
                                            .dtype = MUSTER_F32,
                                            .row_count = rows->count};
    struct muster_params_pushed pushed;
    enum muster_rc rc;

    MUSTER_ASSERT(rows->message < 1u << CHUNKS_BITS);
    if (rounds->source->positions[rows->shard] >> 16 > push.sequence)
        return MUSTER_OK;
    rc = muster_params_push_apply(rounds->server, &push, &pushed);
    if (rc == MUSTER_OK && pushed.refused > 0)
        MUSTER_LOG(rounds->server->env, ERROR, "params_round_rows_refused", "table",
                   rows->table->name, "round", rows->round, "rows", pushed.refused, "remedy",
                   "start servers with a higher --memory-max");
    return rc;
}

/* --- The sums --- */

/* A round that is closed for one shard. */
struct closing {
    struct muster_params_rounds *rounds;
    const struct muster_params_decision *decision;
    uint32_t shard;
    uint64_t *keys;
    size_t key_count, key_room;
    bool is_short; /* of memory */
};

static void on_kept_row(void *data, const struct muster_params_store_table *table,
                        const struct muster_params_row *row)
{
    struct closing *closing = data;
    struct muster_mem *mem = closing->rounds->server->env->mem;

    (void)table;
    if (row->clock != (uint32_t)(closing->decision->round + 1) || closing->is_short)
        return;
    if (closing->key_count == closing->key_room) {
        size_t room = closing->key_room == 0 ? 1024 : 2 * closing->key_room;
        uint64_t *keys = muster_mem_realloc(mem, closing->keys, room * sizeof(*keys));

        if (keys == NULL) {
            closing->is_short = true;
            return;
        }
        closing->keys = keys;
        closing->key_room = room;
    }
    closing->keys[closing->key_count++] = row->key;
}

static int key_compare(const void *one, const void *other)
{
    const uint64_t *a = one, *b = other;

    return (*a > *b) - (*a < *b);
}

/* Collect the keys to which some source of the decision has pushed, each once and rising: every server gets the
 * same list. */
static enum muster_rc keys_collect(struct closing *closing)
{
    const struct muster_params_region *region = closing->rounds->server->region;
    size_t unique = 0;

    closing->key_count = 0;
    for (uint32_t i = 0; i < closing->decision->count; i++) {
        const struct muster_params_store_table *kept =
            kept_find(closing->rounds, &closing->decision->sources[i].id);

        if (kept != NULL)
            muster_params_rows_visit(region, kept, closing->shard, on_kept_row, closing);
    }
    if (closing->is_short)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (closing->key_count > 1)
        qsort(closing->keys, closing->key_count, sizeof(closing->keys[0]), key_compare);
    for (size_t i = 0; i < closing->key_count; i++) {
        if (i == 0 || closing->keys[i] != closing->keys[unique - 1])
            closing->keys[unique++] = closing->keys[i];
    }
    closing->key_count = unique;
    return MUSTER_OK;
}

/* The rows are summed in the order of the sources' ids and in double precision, so that every server gets the
 * same bits at any time. */
static void rows_sum(const struct closing *closing, const uint64_t *keys, size_t count,
                     double *sums)
{
    const struct muster_params_region *region = closing->rounds->server->region;
    const struct muster_params_store_table *table = closing->rounds->table;
    uint32_t clock = (uint32_t)(closing->decision->round + 1);
    size_t width = table->row_elements;

    memset(sums, 0, count * width * sizeof(*sums));
    for (uint32_t i = 0; i < closing->decision->count; i++) {
        const struct muster_params_round_source *source = &closing->decision->sources[i];
        const struct muster_params_store_table *kept = kept_find(closing->rounds, &source->id);

        for (size_t k = 0; kept != NULL && k < count; k++) {
            const struct muster_params_row *row = muster_params_index_find(
                region, kept, muster_params_hash(kept->seed, keys[k]), keys[k]);

            if (row == NULL || row->clock != clock)
                continue;
            for (size_t j = 0; j < width; j++)
                sums[k * width + j] += source->weight * (double)row->values[j];
        }
    }
}

static double weights_sum(const struct muster_params_decision *decision)
{
    double sum = 0;

    for (uint32_t i = 0; i < decision->count; i++)
        sum += decision->sources[i].weight;
    return sum;
}

/* The values to push: the sums, or their means, as floats. A round whose weights are all 0 has no mean. */
static void sums_narrow(const struct closing *closing, size_t count, const double *sums,
                        float *ret_values)
{
    const struct muster_params_store_table *table = closing->rounds->table;
    double weight = table->is_round_mean ? weights_sum(closing->decision) : 1;

    for (size_t i = 0; i < count * table->row_elements; i++)
        ret_values[i] = (float)(weight > 0 ? sums[i] / weight : sums[i]);
}

static enum muster_rc chunks_push(const struct closing *closing, double *sums, float *values,
                                  size_t rows_max)
{
    struct muster_params_rounds *rounds = closing->rounds;
    uint32_t message = 1;
    enum muster_rc rc = MUSTER_OK;

    for (size_t from = 0; from < closing->key_count && rc == MUSTER_OK; from += rows_max) {
        size_t count = closing->key_count - from < rows_max ? closing->key_count - from : rows_max;

        rows_sum(closing, closing->keys + from, count, sums);
        sums_narrow(closing, count, sums, values);
        rc = muster_params_own_rows_push(
            rounds, &(struct muster_params_own_rows){.table = rounds->table,
                                                     .shard = closing->shard,
                                                     .round = closing->decision->round,
                                                     .message = message++,
                                                     .keys = closing->keys + from,
                                                     .values = values,
                                                     .count = (uint32_t)count});
    }
    return rc;
}

static enum muster_rc shards_close(struct muster_params_rounds *rounds,
                                   const struct muster_params_decision *decision)
{
    struct muster_params_server *server = rounds->server;
    struct closing closing = {.rounds = rounds, .decision = decision};
    size_t width = rounds->table->row_elements;
    size_t rows_max = CHUNK_BYTES / (width * sizeof(double));
    enum muster_rc rc = MUSTER_OK;
    double *sums;
    float *values;

    rows_max = rows_max == 0 ? 1 : rows_max > CHUNK_ROWS_MAX ? CHUNK_ROWS_MAX : rows_max;
    sums = muster_mem_alloc(server->env->mem, rows_max * width * sizeof(*sums));
    values = muster_mem_alloc(server->env->mem, rows_max * width * sizeof(*values));
    if (sums == NULL || values == NULL)
        rc = MUSTER_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < server->region->head->shard_count && rc == MUSTER_OK; i++) {
        if (!muster_params_round_shard_is_led(server, i))
            continue;
        closing.shard = i;
        rc = keys_collect(&closing);
        if (rc == MUSTER_OK)
            rc = chunks_push(&closing, sums, values, rows_max);
    }
    muster_mem_free(server->env->mem, closing.keys);
    muster_mem_free(server->env->mem, sums);
    muster_mem_free(server->env->mem, values);
    return rc;
}

const struct muster_params_decision *muster_params_decision_at(
    const struct muster_params_rounds *rounds, uint64_t round)
{
    const struct muster_params_decision *decision =
        rounds->decisions[round % MUSTER_PARAMS_DECISIONS_KEPT];

    return decision != NULL && decision->round == round ? decision : NULL;
}

void muster_params_decisions_apply(struct muster_params_rounds *rounds)
{
    struct muster_params_server *server = rounds->server;
    enum muster_rc rc = MUSTER_OK;

    if (rounds->applied + MUSTER_PARAMS_DECISIONS_KEPT < rounds->open)
        rounds->applied = rounds->open - MUSTER_PARAMS_DECISIONS_KEPT;
    while (rounds->applied < rounds->open && rc == MUSTER_OK) {
        const struct muster_params_decision *decision =
            muster_params_decision_at(rounds, rounds->applied);

        if (decision != NULL)
            rc = shards_close(rounds, decision);
        rounds->applied += rc == MUSTER_OK;
    }
    rounds->is_behind = rc != MUSTER_OK;
    if (rounds->is_behind)
        muster_timer_start(&server->round_timer, server->env->loop,
                           muster_loop_after_ns(server->env->loop, MUSTER_PARAMS_ROUND_RETRY_NS));
}
