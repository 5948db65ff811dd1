/* The sums of what the sources of a closed round have pushed, as pushes of the server's own. */
#include "params/server/state/round_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "params/server/state/round.h"
#include "params/server/state/rows.h"
#include "params/store/index.h"
#include "params/store/row.h"

/* Values that are summed at a time. */
#define CHUNK_BYTES    ((size_t)1 << 20)
#define CHUNK_ROWS_MAX 4096u
#define CHUNKS_BITS    15u

_Static_assert(((MUSTER_PARAMS_ROUND_MAX + 1) << CHUNKS_BITS) < MUSTER_PARAMS_SEQUENCE_MAX,
               "each message of a round has a sequence number");

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

bool muster_params_round_is_kept(const struct muster_params_rounds *rounds,
                                 const struct muster_incarnation *id)
{
    return kept_find(rounds, id) != NULL;
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
    const struct muster_params_schema schema = {
        .name = name,
        .row_elements =
            (uint32_t)(muster_params_decision_bytes(MUSTER_PARAMS_ROUND_SOURCES_MAX,
                                                    muster_params_rounds_are_carried(rounds)) /
                       sizeof(float)),
        .wire_dtype = MUSTER_F32,
        .optimizer = MUSTER_PARAMS_ASSIGN};

    if (rounds->log != NULL)
        return MUSTER_OK;
    muster_params_round_log_name(rounds->table, name);
    return muster_params_table_open(rounds->server->region, &schema, &rounds->log, ret_error);
}

/* --- Pushes of the server's own --- */

/* The sequence number follows from round and message, so that a repetition changes nothing. The first push to a shard
 * is marked as a client's is: a primary that lacks it adopts it, and what comes behind it, from another copy
 * (unite.c). */
enum muster_rc muster_params_own_rows_push(struct muster_params_rounds *rounds,
                                           const struct muster_params_own_rows *rows)
{
    const struct muster_params_run run = {
        .shard =
            (uint16_t)(rows->shard |
                       (rounds->source->positions[rows->shard] == 0 ? MUSTER_PARAMS_RUN_FIRST : 0)),
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
    if (muster_params_unite_waits(rounds->server)) /* again when copies are united */
        return MUSTER_RESOURCE_EXHAUSTED;
    rc = muster_params_push_apply(rounds->server, &push, &pushed);
    if (rc == MUSTER_OK && pushed.refused > 0)
        MUSTER_LOG(rounds->server->env, ERROR, "params_round_rows_refused", "table",
                   rows->table->name, "round", rows->round, "rows", pushed.refused, "remedy",
                   "start servers with a higher --memory-max");
    return rc;
}

/* --- The sums --- */

/* A turn of the loop does so much to close rounds: visits of rows, keys that are sorted, rows that are added. */
#define TURN_ROWS  4096u
#define TURN_BYTES ((size_t)1 << 20) /* of values: fewer rows where they are wide */
#define DIGIT_BITS 11u
#define DIGITS     (1u << DIGIT_BITS)
#define FEW_KEYS   64u /* a sort by digits would first count the digits that they do not have */

struct muster_params_closing;

/* Do a part of the work; it costs what it takes from closing->left, and says what the next part is. */
typedef enum muster_rc closing_fn(struct muster_params_closing *closing);

/* A round that is being closed, one shard after another. Nothing that is kept changes meanwhile. */
struct muster_params_closing {
    struct muster_params_rounds *rounds;
    const struct muster_params_decision *decision;
    closing_fn *part;
    uint32_t left;
    uint32_t shard;
    uint32_t source; /* of the decision */
    uint32_t label;  /* of its rows that count */
    struct muster_params_row_cursor cursor;
    uint64_t *keys, *sorted; /* of the shard, which some source has pushed to */
    size_t key_count, key_room;
    uint64_t key_bits; /* that some key has */
    uint32_t digit;
    bool is_short; /* of memory */
    /* A chunk of keys, whose rows are summed and pushed. */
    size_t from, count, row, rows_max;
    uint32_t message;
    double *sums;
    float *values;
};

static closing_fn shard_begin, keys_collect, keys_sort, chunk_begin, chunk_add, chunk_push;

static void cost_take(struct muster_params_closing *closing, size_t rows)
{
    closing->left -= rows < closing->left ? (uint32_t)rows : closing->left;
}

/* All that the shard gets from the round is there: it has something of a later one. */
static bool shard_is_past(const struct muster_params_closing *closing)
{
    return closing->rounds->source->positions[closing->shard] >> 16 > (closing->decision->round + 2)
                                                                          << CHUNKS_BITS;
}

static enum muster_rc shard_begin(struct muster_params_closing *closing)
{
    const struct muster_params_server *server = closing->rounds->server;
    uint32_t shard_count = server->region->head->shard_count;

    while (closing->shard < shard_count &&
           (!muster_params_server_leads_now(server, closing->shard) || shard_is_past(closing)))
        closing->shard++;
    closing->key_count = 0;
    closing->key_bits = 0;
    closing->source = 0;
    closing->cursor = (struct muster_params_row_cursor){.page = 0};
    closing->part = closing->shard < shard_count ? keys_collect : NULL;
    return MUSTER_OK;
}

static void on_kept_row(void *data, const struct muster_params_store_table *table,
                        const struct muster_params_row *row)
{
    struct muster_params_closing *closing = data;
    struct muster_mem *mem = closing->rounds->server->env->mem;

    (void)table;
    if (row->clock != closing->label || closing->is_short)
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
    closing->key_bits |= row->key;
}

/* NULL: nothing of the source counts. */
static struct muster_params_store_table *source_kept(struct muster_params_closing *closing)
{
    closing->label = muster_params_decision_label(closing->decision, closing->source);
    return closing->label == 0
               ? NULL
               : kept_find(closing->rounds, &closing->decision->sources[closing->source].id);
}

/* Collect the keys to which some source of the decision has pushed. */
static enum muster_rc keys_collect(struct muster_params_closing *closing)
{
    const struct muster_params_server *server = closing->rounds->server;

    for (; closing->source < closing->decision->count; closing->source++) {
        const struct muster_params_store_table *kept = source_kept(closing);

        cost_take(closing, 1);
        if (kept != NULL &&
            muster_params_rows_step(server->region, kept, closing->shard, &closing->cursor,
                                    &closing->left, on_kept_row, closing))
            return MUSTER_OK;
        closing->cursor = (struct muster_params_row_cursor){.page = 0};
    }
    closing->digit = 0;
    muster_mem_free(server->env->mem, closing->sorted);
    closing->sorted = muster_mem_alloc(server->env->mem, closing->key_count * sizeof(uint64_t) + 1);
    closing->part = keys_sort;
    return closing->is_short || closing->sorted == NULL ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK;
}

/* One pass of a sort by digits, the lowest first. */
static void keys_pass(struct muster_params_closing *closing)
{
    uint32_t shift = closing->digit * DIGIT_BITS;
    size_t ends[DIGITS + 1] = {0};
    uint64_t *sorted = closing->sorted;

    for (size_t i = 0; i < closing->key_count; i++)
        ends[(closing->keys[i] >> shift) % DIGITS + 1]++;
    for (size_t digit = 1; digit < DIGITS; digit++)
        ends[digit] += ends[digit - 1];
    for (size_t i = 0; i < closing->key_count; i++)
        sorted[ends[(closing->keys[i] >> shift) % DIGITS]++] = closing->keys[i];
    closing->sorted = closing->keys;
    closing->keys = sorted;
    closing->key_room = closing->key_count;
}

static void keys_sort_few(uint64_t *keys, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        uint64_t key = keys[i];
        size_t place = i;

        for (; place > 0 && keys[place - 1] > key; place--)
            keys[place] = keys[place - 1];
        keys[place] = key;
    }
}

static bool keys_have_digit(const struct muster_params_closing *closing)
{
    uint32_t shift = closing->digit * DIGIT_BITS;

    return shift < 64 && closing->key_bits >> shift != 0;
}

/* Each key once and rising: every server gets the same list. */
static enum muster_rc keys_sort(struct muster_params_closing *closing)
{
    size_t unique = 0;

    cost_take(closing, closing->key_count / 4 + 1);
    if (closing->key_count <= FEW_KEYS) {
        keys_sort_few(closing->keys, closing->key_count);
    } else if (keys_have_digit(closing)) {
        keys_pass(closing);
        closing->digit++;
        return MUSTER_OK;
    }
    for (size_t i = 0; i < closing->key_count; i++) {
        if (i == 0 || closing->keys[i] != closing->keys[unique - 1])
            closing->keys[unique++] = closing->keys[i];
    }
    closing->key_count = unique;
    closing->from = 0;
    closing->message = 1;
    closing->part = chunk_begin;
    return MUSTER_OK;
}

static enum muster_rc chunk_begin(struct muster_params_closing *closing)
{
    size_t rest = closing->key_count - closing->from;

    if (rest == 0) {
        closing->shard++;
        closing->part = shard_begin;
        return MUSTER_OK;
    }
    closing->count = rest < closing->rows_max ? rest : closing->rows_max;
    memset(closing->sums, 0,
           closing->count * closing->rounds->table->row_elements * sizeof(*closing->sums));
    closing->source = 0;
    closing->row = 0;
    closing->part = chunk_add;
    return MUSTER_OK;
}

static void row_add(const struct muster_params_closing *closing,
                    const struct muster_params_store_table *kept)
{
    size_t width = closing->rounds->table->row_elements;
    uint64_t key = closing->keys[closing->from + closing->row];
    double weight = closing->decision->sources[closing->source].weight;
    double *sums = closing->sums + closing->row * width;
    const struct muster_params_row *row = muster_params_index_find(
        closing->rounds->server->region, kept, muster_params_hash(kept->seed, key), key);

    if (row == NULL || row->clock != closing->label)
        return;
    for (size_t j = 0; j < width; j++)
        sums[j] += weight * (double)row->values[j];
}

/* The rows are summed in the order of the sources' ids and in double precision, so that every server gets the
 * same bits at any time. */
static enum muster_rc chunk_add(struct muster_params_closing *closing)
{
    size_t cost = 1 + closing->rounds->table->row_elements / 64; /* wide rows count more */

    for (; closing->source < closing->decision->count; closing->source++) {
        const struct muster_params_store_table *kept = source_kept(closing);

        for (; kept != NULL && closing->row < closing->count; closing->row++) {
            if (closing->left == 0)
                return MUSTER_OK;
            row_add(closing, kept);
            cost_take(closing, cost);
        }
        closing->row = 0;
    }
    closing->part = chunk_push;
    return MUSTER_OK;
}

static double weights_sum(const struct muster_params_decision *decision)
{
    double sum = 0;

    for (uint32_t i = 0; i < decision->count; i++)
        sum += muster_params_decision_label(decision, i) != 0 ? decision->sources[i].weight : 0;
    return sum;
}

/* The values to push: the sums, or their means, as floats. A round whose weights are all 0 has no mean. */
static void sums_narrow(const struct muster_params_closing *closing)
{
    const struct muster_params_store_table *table = closing->rounds->table;
    double weight = table->is_round_mean ? weights_sum(closing->decision) : 1;

    for (size_t i = 0; i < closing->count * table->row_elements; i++)
        closing->values[i] = (float)(weight > 0 ? closing->sums[i] / weight : closing->sums[i]);
}

static enum muster_rc chunk_push(struct muster_params_closing *closing)
{
    const struct muster_params_own_rows rows = {.table = closing->rounds->table,
                                                .shard = closing->shard,
                                                .round = closing->decision->round,
                                                .message = closing->message++,
                                                .keys = closing->keys + closing->from,
                                                .values = closing->values,
                                                .count = (uint32_t)closing->count};

    sums_narrow(closing);
    cost_take(closing, closing->count);
    closing->from += closing->count;
    closing->part = chunk_begin;
    return muster_params_own_rows_push(closing->rounds, &rows);
}

/* --- Rounds --- */

void muster_params_closing_stop(struct muster_params_rounds *rounds)
{
    struct muster_params_closing *closing = rounds->closing;
    struct muster_mem *mem = rounds->server->env->mem;

    muster_task_cancel(&rounds->step);
    rounds->closing = NULL;
    if (closing == NULL)
        return;
    muster_mem_free(mem, closing->keys);
    muster_mem_free(mem, closing->sorted);
    muster_mem_free(mem, closing->sums);
    muster_mem_free(mem, closing->values);
    muster_mem_free(mem, closing);
}

static enum muster_rc closing_open(struct muster_params_rounds *rounds)
{
    struct muster_mem *mem = rounds->server->env->mem;
    size_t width = rounds->table->row_elements;
    size_t rows_max = CHUNK_BYTES / (width * sizeof(double));
    struct muster_params_closing *closing = muster_mem_alloc_zero(mem, 1, sizeof(*closing));

    if (closing == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    rounds->closing = closing;
    closing->rounds = rounds;
    closing->rows_max = rows_max == 0 ? 1 : rows_max > CHUNK_ROWS_MAX ? CHUNK_ROWS_MAX : rows_max;
    closing->sums = muster_mem_alloc(mem, closing->rows_max * width * sizeof(*closing->sums));
    closing->values = muster_mem_alloc(mem, closing->rows_max * width * sizeof(*closing->values));
    return closing->sums == NULL || closing->values == NULL ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK;
}

/* The next round that is decided and not applied. False: there is none. */
static bool closing_next(struct muster_params_rounds *rounds)
{
    struct muster_params_closing *closing = rounds->closing;

    if (rounds->applied + MUSTER_PARAMS_DECISIONS_KEPT < rounds->open)
        rounds->applied = rounds->open - MUSTER_PARAMS_DECISIONS_KEPT;
    while (rounds->applied < rounds->open &&
           muster_params_decision_at(rounds, rounds->applied) == NULL)
        rounds->applied++;
    if (rounds->applied == rounds->open)
        return false;
    closing->decision = muster_params_decision_at(rounds, rounds->applied);
    closing->shard = 0;
    closing->part = shard_begin;
    return true;
}

static void closing_run(struct muster_params_rounds *rounds, uint32_t left)
{
    struct muster_params_server *server = rounds->server;
    struct muster_params_closing *closing = rounds->closing;
    enum muster_rc rc = MUSTER_OK;

    closing->left = left;
    while (closing->left > 0 && rc == MUSTER_OK) {
        if (closing->part == NULL) {
            rounds->applied++;
            if (!closing_next(rounds))
                break;
        }
        rc = closing->part(closing);
    }
    rounds->is_behind = rc != MUSTER_OK;
    if (rc == MUSTER_OK && rounds->applied < rounds->open) {
        muster_task_post(&rounds->step, server->env->loop);
        return;
    }
    muster_params_closing_stop(rounds);
    if (rounds->is_behind)
        muster_timer_start(&server->round_timer, server->env->loop,
                           muster_loop_after_ns(server->env->loop, MUSTER_PARAMS_ROUND_RETRY_NS));
    else
        muster_params_rounds_review(server);
}

void muster_params_rounds_review(struct muster_params_server *server)
{
    if (!muster_list_is_empty(&server->rounds))
        muster_task_post(&server->round_review, server->env->loop);
}

static uint32_t turn_rows(const struct muster_params_rounds *rounds)
{
    size_t rows = TURN_BYTES / (rounds->table->row_elements * sizeof(float));

    return rows < TURN_ROWS ? (uint32_t)rows : TURN_ROWS;
}

void muster_params_rounds_step(struct muster_task *task)
{
    struct muster_params_rounds *rounds = task->data;

    closing_run(rounds, turn_rows(rounds));
}

void muster_params_decisions_finish(struct muster_params_rounds *rounds)
{
    while (rounds->closing != NULL)
        closing_run(rounds, UINT32_MAX);
}

void muster_params_decisions_apply(struct muster_params_rounds *rounds)
{
    if (rounds->closing != NULL || rounds->applied == rounds->open)
        return;
    rounds->is_behind = true;
    if (closing_open(rounds) == MUSTER_OK) {
        if (closing_next(rounds)) {
            closing_run(rounds, turn_rows(rounds));
            return;
        }
        rounds->is_behind = false;
    }
    muster_params_closing_stop(rounds);
    if (rounds->is_behind)
        muster_timer_start(
            &rounds->server->round_timer, rounds->server->env->loop,
            muster_loop_after_ns(rounds->server->env->loop, MUSTER_PARAMS_ROUND_RETRY_NS));
}
