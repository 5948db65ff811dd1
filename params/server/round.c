/* Rounds: the sources that count, the decision to close a round, and the rows that it changes. */
#include "params/server/round.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params/server/clock.h"
#include "params/server/cluster.h"
#include "params/store/index.h"
#include "params/store/row.h"

#define DECISIONS_KEPT 8u /* a client that was away tells servers so many rounds */
/* Values that are summed at a time. */
#define CHUNK_BYTES    ((size_t)1 << 20)
#define CHUNK_ROWS_MAX 4096u
#define CHUNKS_BITS    15u
#define RETRY_NS       (10 * MUSTER_NS_PER_MS)
#define TELL_NS        MUSTER_NS_PER_S

_Static_assert(((MUSTER_PARAMS_ROUND_MAX + 1) << CHUNKS_BITS) < MUSTER_PARAMS_SEQUENCE_MAX,
               "each message of a round has a sequence number");

struct decision {
    uint64_t round;
    uint32_t count;
    struct muster_params_round_source sources[];
};

/* A row of NAME#rounds has one decision, as bytes in its values. */
#define DECISION_BYTES_MAX                                                                         \
    (sizeof(struct decision) +                                                                     \
     MUSTER_PARAMS_ROUND_SOURCES_MAX * sizeof(struct muster_params_round_source))

struct rounds {
    struct muster_list node;
    struct muster_params_server *server;
    struct muster_params_store_table *table;
    struct muster_params_source *source; /* whose pushes are decisions and sums */
    uint64_t slot;
    uint64_t open; /* those before it are decided */
    struct decision
        *decisions[DECISIONS_KEPT];        /* by round modulo DECISIONS_KEPT; NULL: not known */
    uint32_t home;                         /* the shard of the decisions */
    uint64_t keys[DECISIONS_KEPT];         /* of it, for the rows of decisions */
    struct muster_params_store_table *log; /* NAME#rounds; NULL: there is none yet */
    struct decision *pending; /* it counts once all followers of home have it; NULL: none */
    struct muster_params_held held;
    uint16_t held_shard;
    uint64_t
        applied;    /* rounds before it are applied to the shards that the map gives this server */
    bool is_home;   /* this server leads home, and has told its clients what was decided before */
    bool is_behind; /* the newest decision is not applied whole: there was no memory */
    bool has_quorum;
    uint64_t quorum_ns; /* since when */
};

static struct rounds *rounds_find(const struct muster_params_server *server,
                                  const struct muster_params_store_table *table)
{
    MUSTER_LIST_EACH (&server->rounds, rounds, struct rounds, node) {
        if (rounds->table == table)
            return rounds;
    }
    return NULL;
}

static bool shard_is_led(const struct muster_params_server *server, uint32_t shard)
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

static void name_log(const struct muster_params_store_table *table,
                     char ret_name[MUSTER_PARAMS_NAME_BYTES])
{
    snprintf(ret_name, MUSTER_PARAMS_NAME_BYTES, "%.46s" MUSTER_PARAMS_ROUND_MARK "rounds",
             table->name);
}

static struct muster_params_store_table *kept_find(const struct rounds *rounds,
                                                   const struct muster_incarnation *id)
{
    char name[MUSTER_PARAMS_NAME_BYTES];

    name_kept(rounds->table, id, name);
    return muster_params_table_find(rounds->server->region, name);
}

static enum muster_rc kept_open(struct rounds *rounds, const struct muster_incarnation *id,
                                struct muster_params_store_table **ret_table,
                                struct muster_error *ret_error)
{
    char name[MUSTER_PARAMS_NAME_BYTES];
    const struct muster_params_schema schema = {.name = name,
                                                .row_elements = rounds->table->row_elements,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_CLOCK_SUM};

    name_kept(rounds->table, id, name);
    return muster_params_table_open(rounds->server->region, &schema, ret_table, ret_error);
}

static enum muster_rc log_open(struct rounds *rounds, struct muster_error *ret_error)
{
    char name[MUSTER_PARAMS_NAME_BYTES];
    const struct muster_params_schema schema = {.name = name,
                                                .row_elements = DECISION_BYTES_MAX / sizeof(float),
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ASSIGN};

    if (rounds->log != NULL)
        return MUSTER_OK;
    name_log(rounds->table, name);
    return muster_params_table_open(rounds->server->region, &schema, &rounds->log, ret_error);
}

/* --- Pushes of the server's own --- */

/* Rows of one shard that a closed round gives to a table. */
struct own_rows {
    struct muster_params_store_table *table;
    uint32_t shard;
    uint64_t round;
    uint32_t message; /* of the round, for this shard */
    const uint64_t *keys;
    const float *values;
    uint32_t count;
};

/* The sequence number follows from round and message, so that a repetition changes nothing. */
static enum muster_rc own_rows_push(struct rounds *rounds, const struct own_rows *rows)
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
    struct rounds *rounds;
    const struct decision *decision;
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

static double weights_sum(const struct decision *decision)
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
    struct rounds *rounds = closing->rounds;
    uint32_t message = 1;
    enum muster_rc rc = MUSTER_OK;

    for (size_t from = 0; from < closing->key_count && rc == MUSTER_OK; from += rows_max) {
        size_t count = closing->key_count - from < rows_max ? closing->key_count - from : rows_max;

        rows_sum(closing, closing->keys + from, count, sums);
        sums_narrow(closing, count, sums, values);
        rc = own_rows_push(rounds, &(struct own_rows){.table = rounds->table,
                                                      .shard = closing->shard,
                                                      .round = closing->decision->round,
                                                      .message = message++,
                                                      .keys = closing->keys + from,
                                                      .values = values,
                                                      .count = (uint32_t)count});
    }
    return rc;
}

static enum muster_rc shards_close(struct rounds *rounds, const struct decision *decision)
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
        if (!shard_is_led(server, i))
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

static const struct decision *decision_at(const struct rounds *rounds, uint64_t round)
{
    const struct decision *decision = rounds->decisions[round % DECISIONS_KEPT];

    return decision != NULL && decision->round == round ? decision : NULL;
}

static void decisions_apply(struct rounds *rounds)
{
    struct muster_params_server *server = rounds->server;
    enum muster_rc rc = MUSTER_OK;

    if (rounds->applied + DECISIONS_KEPT < rounds->open)
        rounds->applied = rounds->open - DECISIONS_KEPT;
    while (rounds->applied < rounds->open && rc == MUSTER_OK) {
        const struct decision *decision = decision_at(rounds, rounds->applied);

        if (decision != NULL)
            rc = shards_close(rounds, decision);
        rounds->applied += rc == MUSTER_OK;
    }
    rounds->is_behind = rc != MUSTER_OK;
    if (rounds->is_behind)
        muster_timer_start(&server->round_timer, server->env->loop,
                           muster_loop_after_ns(server->env->loop, RETRY_NS));
}

/* --- Decisions --- */

static struct decision *decision_new(struct muster_params_server *server, uint64_t round,
                                     const struct muster_params_round_source *sources,
                                     uint32_t count)
{
    struct decision *decision =
        muster_mem_alloc(server->env->mem, sizeof(*decision) + count * sizeof(*sources));

    if (decision == NULL)
        return NULL;
    *decision = (struct decision){.round = round, .count = count};
    if (count > 0)
        memcpy(decision->sources, sources, count * sizeof(*sources));
    return decision;
}

/* Takes decision. False: this server knows it already, or a newer one. */
static bool decision_learn(struct rounds *rounds, struct decision *decision)
{
    struct muster_params_server *server = rounds->server;
    struct decision **at = &rounds->decisions[decision->round % DECISIONS_KEPT];

    if (decision->round < rounds->open) {
        muster_mem_free(server->env->mem, decision);
        return false;
    }
    if (decision->round > rounds->open && rounds->open > 0)
        MUSTER_LOG(server->env, ERROR, "params_rounds_missed", "table", rounds->table->name, "from",
                   rounds->open, "to", decision->round - 1);
    muster_mem_free(server->env->mem, *at);
    *at = decision;
    rounds->open = decision->round + 1;
    rounds->has_quorum = false;
    return true;
}

static bool decision_tell(struct muster_params_client *client, const struct rounds *rounds,
                          const struct decision *decision)
{
    const struct muster_params_round round = {
        .round = decision->round,
        .table = muster_params_table_number(client->server->region, rounds->table),
        .source_count = decision->count,
        .sources = decision->sources};
    size_t bytes = muster_params_round_bytes(decision->count);
    struct muster_params_answer *answer =
        muster_params_answer_new(client, MUSTER_PARAMS_ROUND, 0, bytes);

    if (answer == NULL)
        return false;
    muster_params_round_pack(&round, answer->payload);
    return muster_params_answer_send(answer, bytes);
}

static void decision_announce(struct rounds *rounds, const struct decision *decision)
{
    struct muster_params_server *server = rounds->server;

    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node) {
        if (!client->is_open || decision_tell(client, rounds, decision))
            continue;
        client->is_short = true; /* the door closes it in its next turn */
        muster_task_post(&server->flush, server->env->loop);
    }
}

/* The server that led home before may have told some clients alone, and they all servers, this one among
 * them. */
static void decisions_announce(struct rounds *rounds)
{
    uint64_t from = rounds->open > DECISIONS_KEPT ? rounds->open - DECISIONS_KEPT : 0;

    for (uint64_t round = from; round < rounds->open; round++) {
        const struct decision *decision = decision_at(rounds, round);

        if (decision != NULL)
            decision_announce(rounds, decision);
    }
}

/* Learn the decisions in NAME#rounds that are newer than the ones this server knows. */
static enum muster_rc log_read(struct rounds *rounds)
{
    const struct muster_params_region *region = rounds->server->region;
    char name[MUSTER_PARAMS_NAME_BYTES];

    name_log(rounds->table, name);
    rounds->log = muster_params_table_find(region, name);
    if (rounds->log == NULL)
        return MUSTER_OK;
    for (;;) {
        const struct decision *found = NULL;
        struct decision *decision;

        for (uint32_t i = 0; i < DECISIONS_KEPT; i++) { /* the oldest of those that are newer */
            const struct muster_params_row *row = muster_params_index_find(
                region, rounds->log, muster_params_hash(rounds->log->seed, rounds->keys[i]),
                rounds->keys[i]);
            const struct decision *stored = row == NULL ? NULL : (const void *)row->values;

            if (stored != NULL && row->clock != 0 && stored->round >= rounds->open &&
                (found == NULL || stored->round < found->round))
                found = stored;
        }
        if (found == NULL)
            return MUSTER_OK;
        decision = decision_new(rounds->server, found->round, found->sources, found->count);
        if (decision == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        (void)decision_learn(rounds, decision);
    }
}

/* Clients hear of what the log has more, but for a decision that waits for followers. */
static enum muster_rc log_follow(struct rounds *rounds)
{
    uint64_t round = rounds->open;
    enum muster_rc rc = rounds->pending != NULL ? MUSTER_OK : log_read(rounds);

    for (; round < rounds->open; round++) {
        if (decision_at(rounds, round) != NULL)
            decision_announce(rounds, decision_at(rounds, round));
    }
    return rc;
}

static void on_held(struct muster_params_held *held, enum muster_rc rc)
{
    struct rounds *rounds = MUSTER_CONTAINER_OF(held, struct rounds, held);
    struct muster_params_server *server = rounds->server;
    struct decision *decision = rounds->pending;

    rounds->pending = NULL;
    if (rc != MUSTER_OK) { /* the present primary of the shard decides, or knows this decision */
        muster_mem_free(server->env->mem, decision);
        return;
    }
    if (!decision_learn(rounds, decision))
        return;
    decision_announce(rounds, decision);
    decisions_apply(rounds);
    muster_params_rounds_review(server);
}

static enum muster_rc decision_store(struct rounds *rounds, const struct decision *decision)
{
    struct muster_params_server *server = rounds->server;
    size_t bytes = sizeof(*decision) + decision->count * sizeof(decision->sources[0]);
    struct muster_error error;
    enum muster_rc rc = log_open(rounds, &error);
    float *values;

    if (rc != MUSTER_OK)
        return rc;
    values = muster_mem_alloc_zero(server->env->mem, rounds->log->row_elements, sizeof(*values));
    if (values == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(values, decision, bytes);
    rc = own_rows_push(rounds,
                       &(struct own_rows){.table = rounds->log,
                                          .shard = rounds->home,
                                          .round = decision->round,
                                          .message = 0,
                                          .keys = &rounds->keys[decision->round % DECISIONS_KEPT],
                                          .values = values,
                                          .count = 1});
    muster_mem_free(server->env->mem, values);
    return rc;
}

/* --- Who counts --- */

struct tally {
    uint32_t counted; /* have completed the open round */
    uint64_t waited_for;
    uint64_t slowest; /* a slot of these; UINT64_MAX: it has never ticked */
};

static struct tally sources_tally(const struct rounds *rounds)
{
    const struct muster_params_server *server = rounds->server;
    struct tally tally = {.slowest = UINT64_MAX};

    for (uint64_t slot = 0; slot < server->region->head->source_count; slot++) {
        const struct muster_params_source *source = muster_params_source_at(server->region, slot);

        if (source->rounds > rounds->open) {
            tally.counted++;
        } else if (muster_params_stored_counts(source->clock)) {
            tally.waited_for++;
            tally.slowest = slot;
        }
    }
    if (server->clocks.known < server->region->head->clock_sources) {
        tally.waited_for += server->region->head->clock_sources - server->clocks.known;
        tally.slowest = UINT64_MAX;
    }
    return tally;
}

static int source_compare(const void *one, const void *other)
{
    const struct muster_params_round_source *a = one, *b = other;

    return memcmp(a->id.bytes, b->id.bytes, sizeof(a->id.bytes));
}

static struct decision *decision_make(struct rounds *rounds, uint32_t count)
{
    struct muster_params_server *server = rounds->server;
    struct decision *decision = muster_mem_alloc(
        server->env->mem, sizeof(*decision) + count * sizeof(decision->sources[0]));

    if (decision == NULL)
        return NULL;
    *decision = (struct decision){.round = rounds->open};
    for (uint64_t slot = 0; slot < server->region->head->source_count; slot++) {
        const struct muster_params_source *source = muster_params_source_at(server->region, slot);

        if (source->rounds > rounds->open)
            decision->sources[decision->count++] = (struct muster_params_round_source){
                .id = source->id, .weight = source->round_weight};
    }
    MUSTER_ASSERT(decision->count == count);
    qsort(decision->sources, count, sizeof(decision->sources[0]), source_compare);
    return decision;
}

static void round_decide(struct rounds *rounds, const struct tally *tally)
{
    struct muster_params_server *server = rounds->server;
    struct decision *decision = decision_make(rounds, tally->counted);

    if (decision == NULL || decision_store(rounds, decision) != MUSTER_OK) {
        muster_mem_free(server->env->mem, decision);
        muster_timer_start(&server->round_timer, server->env->loop,
                           muster_loop_after_ns(server->env->loop, RETRY_NS));
        return;
    }
    rounds->pending = decision;
    rounds->held_shard = (uint16_t)rounds->home;
    rounds->held = (struct muster_params_held){
        .done = on_held, .shards = &rounds->held_shard, .shard_count = 1};
    muster_params_held_add(&rounds->held, server, rounds->home);
    rounds->held.number = server->record_count;
    muster_params_held_start(&rounds->held, server);
    muster_task_post(&server->flush, server->env->loop);
}

/* Clients get a text for the errors of operations that wait for the round in vain. */
static void waits_tell(const struct rounds *rounds, const struct tally *tally)
{
    struct muster_params_server *server = rounds->server;
    char id[MUSTER_INCARNATION_TEXT_BYTES], text[200];
    size_t length;

    if (tally->slowest == UINT64_MAX)
        snprintf(text, sizeof(text),
                 "%u of %" PRIu64 " sources have completed it; some have not begun", tally->counted,
                 tally->counted + tally->waited_for);
    else
        snprintf(text, sizeof(text),
                 "%u of %" PRIu64 " sources have completed it; source %s has not", tally->counted,
                 tally->counted + tally->waited_for,
                 muster_incarnation_format(
                     &muster_params_source_at(server->region, tally->slowest)->id, id));
    length = strlen(text);
    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node) {
        struct muster_params_answer *answer =
            client->is_open ? muster_params_answer_new(client, MUSTER_PARAMS_WAITS, 0, length)
                            : NULL;

        if (answer == NULL)
            continue; /* without the text, its errors only say less */
        memcpy(answer->payload, text, length);
        if (!muster_params_answer_send(answer, length))
            MUSTER_LOG(server->env, DEBUG, "params_wait_not_told");
    }
}

static bool is_complete(struct rounds *rounds, const struct tally *tally, uint64_t *ret_due_ns)
{
    uint64_t now_ns = muster_loop_now_ns(rounds->server->env->loop);
    uint32_t quorum = rounds->table->round_quorum;
    bool has_quorum = quorum > 0 && tally->counted >= quorum;

    if (has_quorum && !rounds->has_quorum)
        rounds->quorum_ns = now_ns;
    rounds->has_quorum = has_quorum;
    if (tally->counted == 0)
        return false;
    if (tally->waited_for == 0)
        return true;
    if (!has_quorum)
        return false;
    *ret_due_ns = rounds->quorum_ns > UINT64_MAX - rounds->table->round_grace_ns
                      ? UINT64_MAX
                      : rounds->quorum_ns + rounds->table->round_grace_ns;
    return now_ns >= *ret_due_ns;
}

static void rounds_look(struct rounds *rounds, bool is_told)
{
    struct muster_params_server *server = rounds->server;
    uint64_t due_ns = muster_loop_after_ns(server->env->loop, TELL_NS);
    struct tally tally;

    if (rounds->is_behind)
        decisions_apply(rounds);
    if (rounds->is_behind || rounds->pending != NULL || !shard_is_led(server, rounds->home))
        return;
    if (log_follow(rounds) != MUSTER_OK)
        return; /* with the next tick or map again */
    decisions_apply(rounds);
    tally = sources_tally(rounds);
    if (is_complete(rounds, &tally, &due_ns)) {
        round_decide(rounds, &tally);
        return;
    }
    if (tally.counted == 0)
        return;
    if (is_told)
        waits_tell(rounds, &tally);
    if (!muster_timer_is_started(&server->round_timer) || due_ns < server->round_timer.due_ns)
        muster_timer_start(&server->round_timer, server->env->loop, due_ns);
}

static void on_review(struct muster_task *task)
{
    struct muster_params_server *server = task->data;

    MUSTER_LIST_EACH (&server->rounds, rounds, struct rounds, node)
        rounds_look(rounds, false);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;

    MUSTER_LIST_EACH (&server->rounds, rounds, struct rounds, node)
        rounds_look(rounds, true);
}

void muster_params_rounds_review(struct muster_params_server *server)
{
    if (!muster_list_is_empty(&server->rounds))
        muster_task_post(&server->round_review, server->env->loop);
}

/* --- Tables --- */

static void keys_find(struct rounds *rounds)
{
    uint32_t shard_count = rounds->server->region->head->shard_count, found = 0;

    rounds->home = muster_params_key_shard(rounds->table, 0, shard_count);
    for (uint64_t key = 0; found < DECISIONS_KEPT; key++) {
        if (muster_params_key_shard(rounds->table, key, shard_count) == rounds->home)
            rounds->keys[found++] = key;
    }
}

static void source_name(const struct muster_params_store_table *table,
                        struct muster_incarnation *ret_id)
{
    char name[MUSTER_PARAMS_NAME_BYTES];

    name_log(table, name);
    *ret_id = muster_params_source_id(name);
}

static enum muster_rc rounds_add(struct muster_params_server *server,
                                 struct muster_params_store_table *table)
{
    struct rounds *rounds = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*rounds));
    struct muster_incarnation id;
    enum muster_rc rc;

    if (rounds == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    rounds->server = server;
    rounds->table = table;
    keys_find(rounds);
    source_name(table, &id);
    rc = muster_params_source_learn(server->region, &id, 1, &rounds->slot);
    if (rc == MUSTER_OK) {
        rounds->source = muster_params_source_at(server->region, rounds->slot);
        rc = log_read(rounds);
    }
    if (rc != MUSTER_OK) {
        muster_mem_free(server->env->mem, rounds);
        return rc;
    }
    muster_list_append(&server->rounds, &rounds->node);
    return MUSTER_OK;
}

static enum muster_rc rounds_add_all(struct muster_params_server *server)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < server->region->head->table_count && rc == MUSTER_OK; i++) {
        struct muster_params_store_table *table = &server->region->head->tables[i];

        if (table->is_by_round && rounds_find(server, table) == NULL)
            rc = rounds_add(server, table);
    }
    return rc;
}

static void rounds_free(struct rounds *rounds)
{
    struct muster_mem *mem = rounds->server->env->mem;

    MUSTER_ASSERT(rounds->pending == NULL);
    for (uint32_t i = 0; i < DECISIONS_KEPT; i++)
        muster_mem_free(mem, rounds->decisions[i]);
    muster_list_remove(&rounds->node);
    muster_mem_free(mem, rounds);
}

void muster_params_rounds_init(struct muster_params_server *server)
{
    muster_list_init(&server->rounds);
    muster_task_init(&server->round_review, on_review, server);
    muster_timer_init(&server->round_timer, on_timer, server);
}

enum muster_rc muster_params_rounds_open(struct muster_params_server *server)
{
    enum muster_rc rc = rounds_add_all(server);

    if (rc == MUSTER_OK)
        muster_params_rounds_map(server);
    return rc;
}

void muster_params_rounds_close(struct muster_params_server *server)
{
    muster_task_cancel(&server->round_review);
    muster_timer_stop(&server->round_timer);
    MUSTER_LIST_EACH_SAFE (&server->rounds, rounds, struct rounds, node)
        rounds_free(rounds);
}

bool muster_params_rounds_join(struct muster_params_client *client,
                               struct muster_params_store_table *table)
{
    struct muster_params_server *server = client->server;
    struct rounds *rounds;
    uint64_t from;

    if (!table->is_by_round)
        return true;
    if (rounds_find(server, table) == NULL && rounds_add(server, table) != MUSTER_OK)
        return false;
    rounds = rounds_find(server, table);
    from = rounds->open > DECISIONS_KEPT ? rounds->open - DECISIONS_KEPT : 0;
    for (uint64_t round = from; round < rounds->open; round++) {
        const struct decision *decision = decision_at(rounds, round);

        if (decision != NULL && !decision_tell(client, rounds, decision))
            return false;
    }
    muster_params_rounds_review(server);
    return true;
}

/* Tables that this server has copied from a primary get their rounds. For shards that it leads now all sums are
 * pushed again; those that the former primary has pushed change nothing. */
void muster_params_rounds_map(struct muster_params_server *server)
{
    if (rounds_add_all(server) != MUSTER_OK)
        MUSTER_LOG(server->env, ERROR, "params_rounds_no_memory");
    MUSTER_LIST_EACH (&server->rounds, rounds, struct rounds, node) {
        bool was_home = rounds->is_home;

        rounds->is_home = shard_is_led(server, rounds->home);
        if (rounds->is_home && !was_home)
            decisions_announce(rounds);
        if (rounds->is_home && log_follow(rounds) != MUSTER_OK)
            rounds->is_home = false; /* with the next map again */
        rounds->applied = 0;
        decisions_apply(rounds);
    }
    muster_params_rounds_review(server);
}

/* --- Messages --- */

static bool push_is_applied(const struct muster_params_push *push)
{
    for (uint32_t i = 0; i < push->run_count; i++) {
        uint16_t shard = muster_params_run_shard(&push->runs[i]);

        if (push->source->positions[shard] >> 16 <= push->sequence)
            return false;
    }
    return true;
}

enum muster_rc muster_params_rounds_keep(struct muster_params_server *server,
                                         struct muster_params_push *push, uint64_t clock,
                                         struct muster_error *ret_error)
{
    struct rounds *rounds = rounds_find(server, push->table);
    enum muster_rc rc;

    if (rounds == NULL || rounds->is_behind)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a round");
    if (clock < rounds->open && !push_is_applied(push))
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                                "round %" PRIu64 " of table %s is closed; %" PRIu64 " is open",
                                clock, push->table->name, rounds->open);
    if (clock > rounds->open)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "round %" PRIu64 " of table %s is not open yet: %" PRIu64 " is",
                                clock, push->table->name, rounds->open);
    rc = kept_open(rounds, &push->source->id, &push->table, ret_error);
    push->clock = (uint32_t)(clock + 1); /* a row that nobody has pushed to has clock 0 */
    return rc;
}

bool muster_params_rounds_are_whole(const struct muster_params_server *server,
                                    const struct muster_params_store_table *table)
{
    const struct rounds *rounds = rounds_find(server, table);

    return rounds == NULL || !rounds->is_behind;
}

bool muster_params_handle_round(struct muster_params_client *client,
                                const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    const struct muster_params_store_table *table;
    struct muster_params_round round;
    struct muster_error error;
    struct decision *decision;
    struct rounds *rounds;

    if (muster_params_round_unpack(payload, header->payload_bytes, &round, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    table = muster_params_server_table(server, round.table);
    rounds = table != NULL ? rounds_find(server, table) : NULL;
    if (rounds == NULL) {
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "message ROUND of parameters names table %u, which is not by round",
                         round.table);
        return muster_params_refuse(client, header, &error);
    }
    if (round.round < rounds->open)
        return true;
    decision = decision_new(server, round.round, round.sources, round.source_count);
    if (decision == NULL)
        return false;
    (void)decision_learn(rounds, decision);
    if (shard_is_led(server,
                     rounds->home)) /* the one before it may have died before it told all clients */
        decision_announce(rounds, decision);
    decisions_apply(rounds);
    muster_params_rounds_review(server);
    return true;
}
