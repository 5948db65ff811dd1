/* The decision that closes a round: it names the sources that count, lies in NAME#rounds, and is told to clients. */
#include "params/server/state/round_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params/server/core/answer.h"
#include "params/server/core/push.h"
#include "params/server/core/source_text.h"
#include "params/server/followers/held.h"
#include "params/server/state/clock.h"
#include "params/server/state/round.h"
#include "params/store/index.h"

#define TELL_NS MUSTER_NS_PER_S

/* --- Decisions --- */

bool muster_params_decision_learn(struct muster_params_rounds *rounds,
                                  struct muster_params_decision *decision)
{
    struct muster_params_server *server = rounds->server;
    struct muster_params_decision **at =
        &rounds->decisions[decision->round % MUSTER_PARAMS_DECISIONS_KEPT];

    if (decision->round < rounds->open) {
        muster_mem_free(server->env->mem, decision);
        return false;
    }
    if (decision->round > rounds->open && rounds->open > 0)
        MUSTER_LOG(server->env, ERROR, "params_rounds_missed", "table", rounds->table->name, "from",
                   rounds->open, "to", decision->round - 1);
    if (*at != NULL && rounds->applied <= (*at)->round)
        muster_params_decisions_finish(rounds); /* it would lack this one */
    muster_mem_free(server->env->mem, *at);
    *at = decision;
    rounds->open = decision->round + 1;
    rounds->is_short = false;
    rounds->has_quorum = false;
    muster_task_post(&server->clocks.come, server->env->loop); /* calls may wait for the round */
    return true;
}

bool muster_params_decision_tell(struct muster_params_client *client,
                                 const struct muster_params_rounds *rounds,
                                 const struct muster_params_decision *decision)
{
    const struct muster_params_round round = {
        .round = decision->round,
        .table = muster_params_table_number(client->server->region, rounds->table),
        .source_count = decision->count,
        .sources = decision->sources,
        .origins = muster_params_decision_origins(decision)};
    size_t bytes = muster_params_round_bytes(&round);
    struct muster_params_answer *answer =
        muster_params_answer_new(client, MUSTER_PARAMS_ROUND, 0, bytes);

    if (answer == NULL)
        return false;
    muster_params_round_pack(&round, answer->payload);
    return muster_params_answer_send(answer, bytes);
}

void muster_params_decision_announce(struct muster_params_rounds *rounds,
                                     const struct muster_params_decision *decision)
{
    struct muster_params_server *server = rounds->server;

    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node) {
        if (!client->is_told || muster_params_decision_tell(client, rounds, decision))
            continue;
        muster_params_answer_lose(client);
    }
}

/* The server that led home before may have told some clients alone, and they all servers, this one among
 * them. */
void muster_params_decisions_announce(struct muster_params_rounds *rounds)
{
    uint64_t from = rounds->open > MUSTER_PARAMS_DECISIONS_KEPT
                        ? rounds->open - MUSTER_PARAMS_DECISIONS_KEPT
                        : 0;

    for (uint64_t round = from; round < rounds->open; round++) {
        const struct muster_params_decision *decision = muster_params_decision_at(rounds, round);

        if (decision != NULL)
            muster_params_decision_announce(rounds, decision);
    }
}

/* The oldest decision in the log that is not known here. NULL: there is none. */
static const struct muster_params_decision *log_next(const struct muster_params_rounds *rounds,
                                                     bool *ret_is_newest)
{
    const struct muster_params_region *region = rounds->server->region;
    const struct muster_params_decision *found = NULL;
    uint64_t newest = 0;

    for (uint32_t i = 0; i < MUSTER_PARAMS_DECISIONS_KEPT; i++) {
        const struct muster_params_row *row = muster_params_index_find(
            region, rounds->log, muster_params_hash(rounds->log->seed, rounds->keys[i]),
            rounds->keys[i]);
        const struct muster_params_decision *stored =
            row == NULL ? NULL : (const void *)row->values;

        if (stored == NULL || row->clock == 0 || stored->round < rounds->open)
            continue;
        if (found == NULL || stored->round < found->round)
            found = stored;
        newest = stored->round > newest ? stored->round : newest;
    }
    *ret_is_newest = found != NULL && found->round == newest;
    return found;
}

/* NULL: no memory. */
static struct muster_params_decision *decision_copy(const struct muster_params_rounds *rounds,
                                                    const struct muster_params_decision *stored)
{
    bool is_carried = muster_params_rounds_are_carried(rounds);

    return muster_params_decision_new(
        rounds->server,
        &(struct muster_params_round){
            .round = stored->round,
            .source_count = stored->count,
            .sources = stored->sources,
            .origins = is_carried ? (const void *)&stored->sources[stored->count] : NULL});
}

/* Copies have all but the newest, since no decision is taken before all of them have the one before. */
enum muster_rc muster_params_round_log_read(struct muster_params_rounds *rounds)
{
    const struct muster_params_decision *found;
    char name[MUSTER_PARAMS_NAME_BYTES];
    bool is_newest;

    muster_params_round_log_name(rounds->table, name);
    rounds->log = muster_params_table_find(rounds->server->region, name);
    if (rounds->log == NULL)
        return MUSTER_OK;
    while ((found = log_next(rounds, &is_newest)) != NULL && !is_newest) {
        struct muster_params_decision *decision = decision_copy(rounds, found);

        if (decision == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        (void)muster_params_decision_learn(rounds, decision);
    }
    return MUSTER_OK;
}

static void on_held(struct muster_params_held *held, enum muster_rc rc)
{
    struct muster_params_rounds *rounds =
        MUSTER_CONTAINER_OF(held, struct muster_params_rounds, held);
    struct muster_params_server *server = rounds->server;
    struct muster_params_decision *decision = rounds->pending;

    rounds->pending = NULL;
    if (rc != MUSTER_OK) { /* the present primary of the shard decides, or knows this decision */
        muster_mem_free(server->env->mem, decision);
        return;
    }
    if (muster_params_decision_learn(rounds, decision)) /* a client may have told it meanwhile */
        muster_params_decision_announce(rounds, decision);
    muster_params_decisions_apply(rounds);
    muster_params_rounds_review(server); /* the next round may be complete by now */
}

/* Nobody hears of it before all copies of its shard have it: one that lacks it could lead next, and decide anew. */
static void held_init(struct muster_params_rounds *rounds)
{
    rounds->held_shard = (uint16_t)rounds->home;
    rounds->held = (struct muster_params_held){
        .done = on_held, .shards = &rounds->held_shard, .shard_count = 1};
    muster_params_held_add(&rounds->held, rounds->server, rounds->home);
    rounds->held.number = rounds->server->record_count;
}

/* After held_init. */
static void decision_hold(struct muster_params_rounds *rounds,
                          struct muster_params_decision *decision)
{
    struct muster_params_server *server = rounds->server;

    rounds->pending = decision;
    muster_params_held_start(&rounds->held, server);
    muster_task_post(&server->flush, server->env->loop);
}

/* A process that was killed, or the former primary, may have stored a decision that no copy has. */
static enum muster_rc log_newest_hold(struct muster_params_rounds *rounds)
{
    const struct muster_params_decision *found;
    struct muster_params_decision *decision;
    bool is_newest;

    if (rounds->log == NULL || (found = log_next(rounds, &is_newest)) == NULL)
        return MUSTER_OK;
    MUSTER_ASSERT(is_newest);
    decision = decision_copy(rounds, found);
    if (decision == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    held_init(rounds);
    if (!muster_params_held_is_done(rounds->server, &rounds->held))
        decision_hold(rounds, decision);
    else if (muster_params_decision_learn(rounds, decision))
        muster_params_decision_announce(rounds, decision);
    return MUSTER_OK;
}

/* Clients hear of what the log has more, but for a decision that waits for followers. */
enum muster_rc muster_params_round_log_follow(struct muster_params_rounds *rounds)
{
    uint64_t round = rounds->open;
    enum muster_rc rc;

    if (rounds->pending != NULL)
        return MUSTER_OK;
    rc = muster_params_round_log_read(rounds);
    for (; round < rounds->open; round++) {
        if (muster_params_decision_at(rounds, round) != NULL)
            muster_params_decision_announce(rounds, muster_params_decision_at(rounds, round));
    }
    return rc == MUSTER_OK ? log_newest_hold(rounds) : rc;
}

static enum muster_rc decision_store(struct muster_params_rounds *rounds,
                                     const struct muster_params_decision *decision)
{
    struct muster_params_server *server = rounds->server;
    size_t bytes = muster_params_decision_bytes(decision->count, decision->has_origins != 0);
    struct muster_error error;
    enum muster_rc rc = muster_params_round_log_open(rounds, &error);
    float *values;

    if (rc != MUSTER_OK)
        return rc;
    values = muster_mem_alloc_zero(server->env->mem, rounds->log->row_elements, sizeof(*values));
    if (values == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(values, decision, bytes);
    rc = muster_params_own_rows_push(
        rounds, &(struct muster_params_own_rows){
                    .table = rounds->log,
                    .shard = rounds->home,
                    .round = decision->round,
                    .message = 0,
                    .keys = &rounds->keys[decision->round % MUSTER_PARAMS_DECISIONS_KEPT],
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

static struct tally sources_tally(const struct muster_params_rounds *rounds)
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

void muster_params_round_text(const struct muster_params_rounds *rounds,
                              char ret_text[MUSTER_PARAMS_WAIT_TEXT_BYTES])
{
    const struct tally tally = sources_tally(rounds);
    uint64_t count = tally.counted + tally.waited_for;
    char source[MUSTER_PARAMS_SOURCE_TEXT_BYTES];

    if (rounds->is_short)
        snprintf(ret_text, MUSTER_PARAMS_WAIT_TEXT_BYTES,
                 "all sources have completed it, and the server has no memory to close it: start "
                 "servers with a higher --memory-max");
    else if (tally.slowest == UINT64_MAX)
        snprintf(ret_text, MUSTER_PARAMS_WAIT_TEXT_BYTES,
                 "%u of %" PRIu64 " sources have completed it; some have not begun", tally.counted,
                 count);
    else
        snprintf(ret_text, MUSTER_PARAMS_WAIT_TEXT_BYTES,
                 "%u of %" PRIu64 " sources have completed it; source %s has not", tally.counted,
                 count, muster_params_source_text(rounds->server, tally.slowest, source));
}

/* Clients get a text for the errors of operations that wait for the round in vain. */
static void waits_tell(const struct muster_params_rounds *rounds)
{
    struct muster_params_server *server = rounds->server;
    char text[MUSTER_PARAMS_WAIT_TEXT_BYTES];
    size_t length;

    muster_params_round_text(rounds, text);
    length = strlen(text);
    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node) {
        struct muster_params_answer *answer =
            client->is_told ? muster_params_answer_new(client, MUSTER_PARAMS_WAITS, 0, length)
                            : NULL;

        if (answer == NULL)
            continue; /* without the text, its errors only say less */
        memcpy(answer->payload, text, length);
        if (!muster_params_answer_send(answer, length))
            MUSTER_LOG(server->env, DEBUG, "params_wait_not_told");
    }
}

/* It is tried again soon; the operator, and clients whose operations wait, are told once. */
static void memory_lack(struct muster_params_rounds *rounds)
{
    struct muster_params_server *server = rounds->server;

    muster_timer_start(&server->round_timer, server->env->loop,
                       muster_loop_after_ns(server->env->loop, MUSTER_PARAMS_ROUND_RETRY_NS));
    if (rounds->is_short)
        return;
    rounds->is_short = true;
    MUSTER_LOG(server->env, ERROR, "params_round_no_memory", "table", rounds->table->name, "round",
               rounds->open, "remedy", "start servers with a higher --memory-max");
    waits_tell(rounds);
}

static void round_decide(struct muster_params_rounds *rounds, const struct tally *tally)
{
    struct muster_params_server *server = rounds->server;
    struct muster_params_decision *decision = muster_params_decision_make(rounds, tally->counted);

    if (decision == NULL || decision_store(rounds, decision) != MUSTER_OK) {
        muster_mem_free(server->env->mem, decision);
        memory_lack(rounds);
        return;
    }
    held_init(rounds);
    decision_hold(rounds, decision);
}

static bool is_complete(struct muster_params_rounds *rounds, const struct tally *tally,
                        uint64_t *ret_due_ns)
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

void muster_params_rounds_look(struct muster_params_rounds *rounds, bool is_told)
{
    struct muster_params_server *server = rounds->server;
    uint64_t due_ns = muster_loop_after_ns(server->env->loop, TELL_NS);
    struct tally tally;

    if (rounds->is_behind)
        muster_params_decisions_apply(rounds);
    if (rounds->closing != NULL || rounds->is_behind || rounds->pending != NULL ||
        !muster_params_server_leads_now(server, rounds->home))
        return;
    if (muster_params_round_log_follow(rounds) != MUSTER_OK)
        return; /* with the next tick or map again */
    muster_params_decisions_apply(rounds);
    if (rounds->closing != NULL || rounds->pending != NULL)
        return;
    tally = sources_tally(rounds);
    if (is_complete(rounds, &tally, &due_ns)) {
        round_decide(rounds, &tally);
        return;
    }
    if (tally.counted == 0)
        return;
    if (is_told)
        waits_tell(rounds);
    if (!muster_timer_is_started(&server->round_timer) || due_ns < server->round_timer.due_ns)
        muster_timer_start(&server->round_timer, server->env->loop, due_ns);
}
