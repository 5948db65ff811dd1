/* Tables by round: their rounds come and go with them, and with maps; what clients say of rounds. */
#include "params/server/state/round.h"

#include <inttypes.h>

#include "params/server/core/answer.h"
#include "params/server/state/round_internal.h"
#include "params/server/state/rows.h"
#include "params/wire/range.h"

static struct muster_params_rounds *rounds_find(const struct muster_params_server *server,
                                                const struct muster_params_store_table *table)
{
    MUSTER_LIST_EACH (&server->rounds, rounds, struct muster_params_rounds, node) {
        if (rounds->table == table)
            return rounds;
    }
    return NULL;
}

static bool is_whole(const struct muster_params_rounds *rounds)
{
    return rounds == NULL || (rounds->closing == NULL && !rounds->is_behind);
}

static bool rounds_are_closing(const struct muster_params_server *server)
{
    MUSTER_LIST_EACH (&server->rounds, rounds, struct muster_params_rounds, node) {
        if (!is_whole(rounds))
            return true;
    }
    return false;
}

/* --- Tables --- */

static void keys_find(struct muster_params_rounds *rounds)
{
    uint32_t shard_count = rounds->server->region->head->shard_count, found = 0;

    rounds->home = muster_params_key_shard(rounds->table, 0, shard_count);
    for (uint64_t key = 0; found < MUSTER_PARAMS_DECISIONS_KEPT; key++) {
        if (muster_params_key_shard(rounds->table, key, shard_count) == rounds->home)
            rounds->keys[found++] = key;
    }
}

static void source_name(const struct muster_params_store_table *table,
                        struct muster_incarnation *ret_id)
{
    char name[MUSTER_PARAMS_NAME_BYTES];

    muster_params_round_log_name(table, name);
    *ret_id = muster_params_source_id(name);
}

static enum muster_rc rounds_add(struct muster_params_server *server,
                                 struct muster_params_store_table *table)
{
    struct muster_params_rounds *rounds =
        muster_mem_alloc_zero(server->env->mem, 1, sizeof(*rounds));
    struct muster_incarnation id;
    enum muster_rc rc;

    if (rounds == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    rounds->server = server;
    rounds->table = table;
    muster_task_init(&rounds->step, muster_params_rounds_step, rounds);
    keys_find(rounds);
    source_name(table, &id);
    rc = muster_params_source_learn(
        server->region, &(struct muster_params_opener){.id = id, .generation = 1, .is_named = true},
        &rounds->slot);
    if (rc == MUSTER_OK) {
        rounds->source = muster_params_source_at(server->region, rounds->slot);
        rc = muster_params_round_log_read(rounds);
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

static void rounds_free(struct muster_params_rounds *rounds)
{
    struct muster_mem *mem = rounds->server->env->mem;

    MUSTER_ASSERT(rounds->pending == NULL);
    muster_params_closing_stop(rounds);
    for (uint32_t i = 0; i < MUSTER_PARAMS_DECISIONS_KEPT; i++)
        muster_mem_free(mem, rounds->decisions[i]);
    muster_list_remove(&rounds->node);
    muster_mem_free(mem, rounds);
}

static void on_review(struct muster_task *task)
{
    struct muster_params_server *server = task->data;

    if (muster_params_unite_waits(server))
        return;
    MUSTER_LIST_EACH (&server->rounds, rounds, struct muster_params_rounds, node)
        muster_params_rounds_look(rounds, false);
    if (!server->has_round_waits || rounds_are_closing(server))
        return;
    server->has_round_waits = false;
    muster_task_post(&server->clocks.come, server->env->loop);
    muster_task_post(&server->early_review, server->env->loop);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;

    if (muster_params_unite_waits(server))
        return;
    MUSTER_LIST_EACH (&server->rounds, rounds, struct muster_params_rounds, node)
        muster_params_rounds_look(rounds, true);
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
    MUSTER_LIST_EACH_SAFE (&server->rounds, rounds, struct muster_params_rounds, node)
        rounds_free(rounds);
}

bool muster_params_rounds_know(struct muster_params_server *server,
                               struct muster_params_store_table *table)
{
    return !table->is_by_round || rounds_find(server, table) != NULL ||
           rounds_add(server, table) == MUSTER_OK;
}

bool muster_params_rounds_join(struct muster_params_client *client,
                               struct muster_params_store_table *table)
{
    struct muster_params_server *server = client->server;
    struct muster_params_rounds *rounds;
    uint64_t from;

    if (!table->is_by_round)
        return true;
    if (!muster_params_rounds_know(server, table))
        return false;
    rounds = rounds_find(server, table);
    from = rounds->open > MUSTER_PARAMS_DECISIONS_KEPT ? rounds->open - MUSTER_PARAMS_DECISIONS_KEPT
                                                       : 0;
    for (uint64_t round = from; round < rounds->open; round++) {
        const struct muster_params_decision *decision = muster_params_decision_at(rounds, round);

        if (decision != NULL && !muster_params_decision_tell(client, rounds, decision))
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
    MUSTER_LIST_EACH (&server->rounds, rounds, struct muster_params_rounds, node) {
        bool was_home = rounds->is_home;

        rounds->is_home = muster_params_server_leads_now(server, rounds->home);
        if (rounds->is_home && !was_home)
            muster_params_decisions_announce(rounds);
        if (rounds->is_home && muster_params_round_log_follow(rounds) != MUSTER_OK)
            rounds->is_home = false; /* with the next map again */
        muster_params_closing_stop(rounds);
        rounds->applied = 0;
        muster_params_decisions_apply(rounds);
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

/* A server that knows of a round in which the source has counted would keep the push for a later one than a server that
 * does not: it would count in parts. Sources that tick before they push have no such push. */
static enum muster_rc steps_check(const struct muster_params_push *push, uint64_t clock,
                                  struct muster_error *ret_error)
{
    if (clock >= push->source->rounds || push_is_applied(push))
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                            "the source has completed %" PRIu64
                            " steps, and pushes to table %s at clock "
                            "%" PRIu64 ": it must tick %" PRIu64 " or a later clock before",
                            push->source->rounds, push->table->name, clock, push->source->rounds);
}

enum muster_rc muster_params_rounds_keep(struct muster_params_server *server,
                                         struct muster_params_push *push, uint64_t clock,
                                         struct muster_error *ret_error)
{
    struct muster_params_rounds *rounds = rounds_find(server, push->table);
    enum muster_rc rc;

    if (rounds == NULL || rounds->is_behind)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a round");
    if (clock < rounds->open && !muster_params_rounds_are_carried(rounds) && !push_is_applied(push))
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                                "round %" PRIu64 " of table %s is closed; %" PRIu64 " is open",
                                clock, push->table->name, rounds->open);
    if (clock > rounds->open)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "round %" PRIu64 " of table %s is not open yet: %" PRIu64 " is",
                                clock, push->table->name, rounds->open);
    push->clock = (uint32_t)(clock + 1); /* a row that nobody has pushed to has clock 0 */
    if (muster_params_rounds_are_carried(rounds)) {
        rc = steps_check(push, clock, ret_error);
        if (rc == MUSTER_OK)
            rc = muster_params_round_label(rounds, &push->source->id, &push->clock, ret_error);
        if (rc != MUSTER_OK)
            return rc;
    }
    return muster_params_round_kept_open(rounds, &push->source->id, &push->table, ret_error);
}

uint64_t muster_params_rounds_open_of(const struct muster_params_server *server,
                                      const struct muster_params_store_table *table)
{
    const struct muster_params_rounds *rounds = rounds_find(server, table);

    return rounds != NULL ? rounds->open : 0;
}

bool muster_params_rounds_allow_tick_of(const struct muster_params_server *server,
                                        const struct muster_params_source *source, uint64_t clock)
{
    MUSTER_LIST_EACH (&server->rounds, rounds, struct muster_params_rounds, node) {
        if (clock > rounds->open + 1 && muster_params_round_is_kept(rounds, &source->id))
            return false;
    }
    return true;
}

void muster_params_rounds_note(struct muster_params_server *server,
                               struct muster_params_store_table *table,
                               const struct muster_incarnation *source)
{
    struct muster_params_store_table *kept;
    struct muster_error error;

    if (table->is_by_round && (!muster_params_rounds_know(server, table) ||
                               muster_params_round_kept_open(rounds_find(server, table), source,
                                                             &kept, &error) != MUSTER_OK))
        MUSTER_LOG(server->env, WARN, "params_source_not_noted", "table", table->name);
}

bool muster_params_rounds_has_pushed(const struct muster_params_server *server,
                                     const struct muster_params_store_table *table,
                                     const struct muster_incarnation *source)
{
    const struct muster_params_rounds *rounds = rounds_find(server, table);

    return rounds != NULL && muster_params_round_is_kept(rounds, source);
}

void muster_params_rounds_text(const struct muster_params_server *server,
                               const struct muster_params_store_table *table,
                               char ret_text[MUSTER_PARAMS_WAIT_TEXT_BYTES])
{
    const struct muster_params_rounds *rounds = rounds_find(server, table);

    if (rounds != NULL)
        muster_params_round_text(rounds, ret_text);
}

/* NULL: the message is no push and no pull, or names no table. */
static const struct muster_params_store_table *table_of(const struct muster_params_server *server,
                                                        const struct muster_frame_header *header,
                                                        const uint8_t *payload)
{
    switch (header->type) {
    case MUSTER_PARAMS_PUSH:
    case MUSTER_PARAMS_PULL:
    case MUSTER_PARAMS_PUSH_PULL:
        return header->payload_bytes < MUSTER_PARAMS_ROWS_HEAD_BYTES
                   ? NULL
                   : muster_params_server_table(server, muster_params_rows_table(payload));
    case MUSTER_PARAMS_PUSH_RANGE:
    case MUSTER_PARAMS_PULL_RANGE:
    case MUSTER_PARAMS_PUSH_STAGED:
        return muster_params_server_table(server, muster_params_range_table(header));
    default:
        return NULL;
    }
}

/* A push of the next round would change what is kept, and a pull would read a part of the round. */
bool muster_params_rounds_delay(struct muster_params_server *server,
                                const struct muster_frame_header *header, const uint8_t *payload)
{
    const struct muster_params_store_table *table;

    if (muster_list_is_empty(&server->rounds))
        return false;
    table = table_of(server, header, payload);
    if (table == NULL || is_whole(rounds_find(server, table)))
        return false;
    server->has_round_waits = true;
    return true;
}

bool muster_params_rounds_delay_pulls(struct muster_params_server *server)
{
    bool is_closing = rounds_are_closing(server);

    server->has_round_waits = server->has_round_waits || is_closing;
    return is_closing;
}

bool muster_params_rounds_finish(struct muster_params_server *server,
                                 const struct muster_params_store_table *table)
{
    struct muster_params_rounds *rounds = rounds_find(server, table);

    if (rounds != NULL)
        muster_params_decisions_finish(rounds);
    return is_whole(rounds);
}

bool muster_params_handle_round(struct muster_params_client *client,
                                const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    const struct muster_params_store_table *table;
    struct muster_params_round round;
    struct muster_error error;
    struct muster_params_decision *decision;
    struct muster_params_rounds *rounds;

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
    if ((round.origins != NULL) != muster_params_rounds_are_carried(rounds)) {
        muster_error_set(
            &error, MUSTER_INVALID_ARGUMENT,
            "message ROUND of parameters for table %s must %stell since when sources have "
            "not counted",
            table->name, round.origins == NULL ? "" : "not ");
        return muster_params_refuse(client, header, &error);
    }
    decision = muster_params_decision_new(server, &round);
    if (decision == NULL)
        return false;
    (void)muster_params_decision_learn(rounds, decision);
    /* The leader before this one may have died before it told all clients. */
    if (muster_params_server_leads_now(server, rounds->home))
        muster_params_decision_announce(rounds, decision);
    muster_params_decisions_apply(rounds);
    muster_params_rounds_review(server);
    return true;
}
