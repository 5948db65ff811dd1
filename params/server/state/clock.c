/* A source counts from its first tick until it is done, or has had no link for a while: others wait for
 * it. Its clock lies in the region, so a server that was killed goes on with it. */
#include "params/server/state/clock.h"

#include <stdatomic.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "params/server/core/answer.h"
#include "params/server/core/source_text.h"
#include "params/server/core/credit.h"
#include "params/server/state/round.h"
#include "params/server/state/rows.h"
#include "params/store/source.h"

/** A pull that waits. */
struct waiting_pull {
    struct muster_list node;
    struct muster_params_client *client;
    struct muster_frame_header header;
    muster_params_handle_fn *handle;
    uint64_t clock;
    size_t answer_bytes; /* of the values that answer it */
    _Alignas(8) uint8_t payload[];
};

static struct muster_params_source *source_of(const struct muster_params_server *server,
                                              uint64_t slot)
{
    return muster_params_source_at(server->region, slot);
}

struct muster_params_presence *muster_params_server_presence(struct muster_params_server *server,
                                                             uint64_t slot)
{
    struct muster_params_clocks *clocks = &server->clocks;

    if (slot >= clocks->presence_count) {
        size_t count = (size_t)slot * 2 + 16;
        struct muster_params_presence *presences =
            muster_mem_realloc(server->env->mem, clocks->presences, count * sizeof(*presences));

        if (presences == NULL)
            return NULL;
        memset(&presences[clocks->presence_count], 0,
               (count - clocks->presence_count) * sizeof(*presences));
        for (size_t i = clocks->presence_count; i < count; i++)
            presences[i].lost_ns = muster_loop_now_ns(server->env->loop);
        clocks->presences = presences;
        clocks->presence_count = count;
    }
    return &clocks->presences[slot];
}

/* --- The slowest --- */

/* Sources that are expected and have never ticked are at 0. */
static void low_update(struct muster_params_server *server)
{
    struct muster_params_clocks *clocks = &server->clocks;
    uint64_t low = UINT64_MAX, known = 0;

    clocks->slowest = UINT64_MAX;
    for (uint64_t slot = 0; slot < server->region->head->source_count; slot++) {
        uint64_t stored = source_of(server, slot)->clock;

        known += stored != 0;
        if (!muster_params_stored_counts(stored) || stored - 1 >= low)
            continue;
        low = stored - 1;
        clocks->slowest = slot;
    }
    clocks->known = known;
    clocks->low = known < server->region->head->clock_sources ? 0 : low;
}

/* Until the first tick nobody knows how many sources are expected: a client that comes back to a server
 * without memory may ask before it has told. */
bool muster_params_server_has_ticks(const struct muster_params_server *server)
{
    return server->region->head->clock_sources != 0 || server->clocks.known != 0;
}

bool muster_params_server_clock_has_come(const struct muster_params_server *server, uint64_t clock)
{
    return clock == 0 || (muster_params_server_has_ticks(server) && server->clocks.low >= clock);
}

/* --- Pulls that wait --- */

void muster_params_server_clock_text(const struct muster_params_server *server, uint64_t clock,
                                     char ret_text[MUSTER_PARAMS_WAIT_TEXT_BYTES])
{
    const struct muster_params_clocks *clocks = &server->clocks;
    char source[MUSTER_PARAMS_SOURCE_TEXT_BYTES];
    uint64_t now_ns = muster_loop_now_ns(server->env->loop), since_ns = now_ns;

    if (!muster_params_server_has_ticks(server)) {
        snprintf(ret_text, MUSTER_PARAMS_WAIT_TEXT_BYTES,
                 "no source has ticked yet; the call waits for clock %" PRIu64, clock);
        return;
    }
    if (clocks->known < server->region->head->clock_sources) {
        snprintf(ret_text, MUSTER_PARAMS_WAIT_TEXT_BYTES,
                 "%" PRIu64 " of %u sources have begun; the call waits for clock %" PRIu64,
                 clocks->known, server->region->head->clock_sources, clock);
        return;
    }
    if (clocks->slowest < clocks->presence_count)
        since_ns = clocks->presences[clocks->slowest].tick_ns;
    snprintf(ret_text, MUSTER_PARAMS_WAIT_TEXT_BYTES,
             "source %s is at clock %" PRIu64 " since %.1f s; the call waits for clock %" PRIu64,
             muster_params_source_text(server, clocks->slowest, source), clocks->low,
             (double)(now_ns - since_ns) / (double)MUSTER_NS_PER_S, clock);
}

static void waits_tell(struct waiting_pull *pull)
{
    struct muster_params_server *server = pull->client->server;
    char text[MUSTER_PARAMS_WAIT_TEXT_BYTES];
    struct muster_params_answer *answer;
    size_t length;

    muster_params_server_clock_text(server, pull->clock, text);
    length = strlen(text);
    answer =
        muster_params_answer_new(pull->client, MUSTER_PARAMS_WAITS, pull->header.offset, length);
    if (answer == NULL)
        return; /* only its error text will say less */
    memcpy(answer->payload, text, length);
    if (!muster_params_answer_send(answer, length))
        MUSTER_LOG(server->env, DEBUG, "params_wait_not_told");
}

static size_t pull_bytes(const struct waiting_pull *pull)
{
    return sizeof(*pull) + pull->header.payload_bytes;
}

/* Reading no more from the client would not do: it may be its own tick for which its pulls wait. */
static bool pull_refuse(struct muster_params_client *client,
                        const struct muster_frame_header *header)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED,
                     "pulls that wait for a clock have %llu bytes, the limit for a client is %llu",
                     (unsigned long long)client->parked_bytes,
                     (unsigned long long)MUSTER_PARAMS_CREDIT_MAX);
    return muster_params_refuse(client, header, &error);
}

static struct waiting_pull *pull_keep(struct muster_params_client *client,
                                      const struct muster_frame_header *header,
                                      const uint8_t *payload, uint64_t clock,
                                      muster_params_handle_fn *handle)
{
    struct muster_params_server *server = client->server;
    struct waiting_pull *pull =
        muster_mem_alloc(&server->pool.mem, sizeof(*pull) + header->payload_bytes);

    if (pull == NULL)
        return NULL;
    *pull = (struct waiting_pull){
        .client = client,
        .header = *header,
        .handle = handle,
        .clock = clock,
        .answer_bytes = muster_params_answer_bytes(server, header, payload)};
    memcpy(pull->payload, payload, header->payload_bytes);
    client->parked_bytes += pull_bytes(pull);
    muster_list_append(&server->clocks.waiting, &pull->node);
    return pull;
}

bool muster_params_server_clock_wait(struct muster_params_client *client,
                                     const struct muster_frame_header *header,
                                     const uint8_t *payload, uint64_t clock,
                                     muster_params_handle_fn *handle)
{
    struct waiting_pull *pull;

    if (client->parked_bytes + header->payload_bytes > MUSTER_PARAMS_CREDIT_MAX)
        return pull_refuse(client, header);
    pull = pull_keep(client, header, payload, clock, handle);
    if (pull != NULL)
        waits_tell(pull);
    return pull != NULL;
}

bool muster_params_server_clock_call(struct muster_params_client *client,
                                     const struct muster_frame_header *header,
                                     const uint8_t *payload, uint64_t clock,
                                     muster_params_handle_fn *handle)
{
    struct muster_params_server *server = client->server;

    if (!muster_params_server_clock_has_come(server, clock))
        return muster_params_server_clock_wait(client, header, payload, clock, handle);
    muster_task_post(&server->clocks.come, server->env->loop);
    return pull_keep(client, header, payload, clock, handle) != NULL;
}

static void pull_free(struct waiting_pull *pull)
{
    muster_list_remove(&pull->node);
    pull->client->parked_bytes -= pull_bytes(pull);
    muster_mem_free(&pull->client->server->pool.mem, pull);
}

void muster_params_server_clock_drop(struct muster_params_client *client)
{
    MUSTER_LIST_EACH_SAFE (&client->server->clocks.waiting, pull, struct waiting_pull, node) {
        if (pull->client == client)
            pull_free(pull);
    }
}

/* A call that goes on may end others, or begin new ones. */
static void calls_review(struct muster_params_server *server)
{
    struct muster_list calls;

    muster_list_take_all(&calls, &server->clocks.calls);
    while (!muster_list_is_empty(&calls)) {
        struct muster_params_clock_call *call =
            MUSTER_CONTAINER_OF(calls.next, struct muster_params_clock_call, node);

        muster_list_remove(&call->node);
        muster_list_append(&server->clocks.calls, &call->node);
        call->review(call);
    }
}

/* Answers of pulls whose clock has come are made as their clients read them. */
static void on_come(struct muster_task *task)
{
    struct muster_params_server *server = task->data;

    server->credits.has_clock_waits = false;
    calls_review(server);
    if (muster_params_rounds_delay_pulls(server))
        return;
    MUSTER_LIST_EACH_SAFE (&server->clocks.waiting, pull, struct waiting_pull, node) {
        struct muster_params_client *client = pull->client;

        if (!muster_params_server_clock_has_come(server, pull->clock))
            continue;
        if (!muster_params_credit_allows(client, 0, pull->answer_bytes)) {
            server->credits.has_clock_waits = true;
            continue;
        }
        if (!pull->handle(client, &pull->header, pull->payload))
            muster_params_answer_lose(client);
        pull_free(pull);
    }
}

static void low_look(struct muster_params_server *server)
{
    uint64_t before = server->clocks.low;

    low_update(server);
    if (server->clocks.low != before)
        muster_task_post(&server->clocks.come, server->env->loop);
}

/* Once no link of a source is left, it is given up after a while. */
static void expiry_start(struct muster_params_server *server)
{
    if (!muster_timer_is_started(&server->clocks.expiry))
        muster_timer_start(&server->clocks.expiry, server->env->loop,
                           muster_loop_after_ns(server->env->loop, MUSTER_PARAMS_ABSENCE_MAX_NS));
}

/* --- Ticks --- */

static void stored_set(struct muster_params_server *server, uint64_t slot, uint64_t stored)
{
    struct muster_params_source *source = source_of(server, slot);
    bool was_slowest = slot == server->clocks.slowest ||
                       !muster_params_stored_counts(source->clock) ||
                       server->clocks.known < server->region->head->clock_sources;

    MUSTER_PARAMS_STORE(&source->clock, stored);
    if (was_slowest) /* the ticks of others do not change the lowest clock */
        low_look(server);
    muster_params_rounds_review(server);
    muster_params_watches_note(server);
}

static bool rounds_set(struct muster_params_source *source, uint64_t rounds, double weight)
{
    if (rounds <= source->rounds)
        return false;
    MUSTER_PARAMS_STORE(&source->round_weight, weight);
    MUSTER_PARAMS_STORE(&source->rounds, rounds);
    return true;
}

bool muster_params_server_clock_tick(struct muster_params_server *server, uint64_t slot,
                                     const struct muster_params_tick *tick)
{
    struct muster_params_presence *presence = muster_params_server_presence(server, slot);
    bool is_done = tick->clock == MUSTER_PARAMS_CLOCK_DONE;
    bool has_completed = !is_done && rounds_set(source_of(server, slot), tick->clock, tick->weight);

    if (presence != NULL)
        presence->tick_ns = muster_loop_now_ns(server->env->loop);
    if (tick->source_count > server->region->head->clock_sources)
        MUSTER_PARAMS_STORE(&server->region->head->clock_sources, tick->source_count);
    stored_set(server, slot, is_done ? MUSTER_PARAMS_STORED_DONE : tick->clock + 1);
    return has_completed;
}

void muster_params_server_clock_learn(struct muster_params_server *server, uint64_t slot,
                                      uint64_t stored,
                                      const struct muster_params_copied_source *source)
{
    if (rounds_set(source_of(server, slot), source->rounds, source->weight))
        muster_params_rounds_review(server);
    if (source->pushed_clock > source_of(server, slot)->pushed_clock)
        MUSTER_PARAMS_STORE(&source_of(server, slot)->pushed_clock, source->pushed_clock);
    if (source->clock_sources > server->region->head->clock_sources) {
        MUSTER_PARAMS_STORE(&server->region->head->clock_sources, source->clock_sources);
        low_look(server);
    }
    if (source_of(server, slot)->clock == 0 && stored != 0) {
        stored_set(server, slot, stored);
        expiry_start(server); /* it may be dead, and never have had a link to this server */
    }
}

/* --- Sources that go --- */

uint64_t muster_params_server_clock_absence(struct muster_params_server *server, uint64_t slot)
{
    const struct muster_params_presence *presence = muster_params_server_presence(server, slot);

    return presence != NULL && presence->links == 0
               ? muster_loop_now_ns(server->env->loop) - presence->lost_ns
               : 0;
}

bool muster_params_server_clock_refer(struct muster_params_server *server, uint64_t slot, bool refers)
{
    struct muster_params_presence *presence = muster_params_server_presence(server, slot);

    if (presence == NULL)
        return false;
    presence->leaders += refers ? 1u : UINT32_MAX;
    presence->lost_ns = muster_loop_now_ns(server->env->loop);
    return true;
}

void muster_params_server_clock_renew(struct muster_params_server *server, uint64_t slot)
{
    struct muster_params_presence *presence = muster_params_server_presence(server, slot);

    if (presence != NULL)
        presence->lost_ns = muster_loop_now_ns(server->env->loop);
}

bool muster_params_server_clock_counts(const struct muster_params_source *source)
{
    return source->clock != 0 || source->rounds != 0;
}

bool muster_params_server_clock_is_free(struct muster_params_server *server, uint64_t slot)
{
    const struct muster_params_presence *presence = muster_params_server_presence(server, slot);

    return presence != NULL && presence->links == 0 && presence->leaders == 0 &&
           !muster_params_server_clock_counts(source_of(server, slot));
}

static bool is_absent(const struct muster_params_presence *presence, uint64_t now_ns)
{
    return presence->links == 0 && now_ns - presence->lost_ns >= MUSTER_PARAMS_ABSENCE_MAX_NS;
}

static void on_expiry(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);
    bool is_due_again = false;

    for (uint64_t slot = 0; slot < server->region->head->source_count; slot++) {
        struct muster_params_presence *presence = muster_params_server_presence(server, slot);

        if (presence == NULL || !muster_params_stored_counts(source_of(server, slot)->clock))
            continue;
        if (is_absent(presence, now_ns)) {
            MUSTER_LOG(server->env, WARN, "params_source_given_up", "slot", slot, "clock",
                       source_of(server, slot)->clock - 1);
            stored_set(server, slot, MUSTER_PARAMS_STORED_DONE);
        } else {
            is_due_again = is_due_again || presence->links == 0;
        }
    }
    if (is_due_again)
        muster_timer_start(timer, server->env->loop,
                           muster_loop_after_ns(server->env->loop, MUSTER_PARAMS_ABSENCE_MAX_NS / 10));
}

void muster_params_server_clock_link(struct muster_params_server *server, uint64_t slot,
                                     bool is_open)
{
    struct muster_params_presence *presence = muster_params_server_presence(server, slot);

    if (presence == NULL)
        return;
    presence->links += is_open ? 1u : UINT32_MAX;
    presence->lost_ns = muster_loop_now_ns(server->env->loop);
    if (presence->links == 0)
        expiry_start(server);
}

void muster_params_server_clocks_open(struct muster_params_server *server)
{
    struct muster_params_clocks *clocks = &server->clocks;

    muster_list_init(&clocks->waiting);
    muster_list_init(&clocks->calls);
    muster_task_init(&clocks->come, on_come, server);
    muster_timer_init(&clocks->expiry, on_expiry, server);
    low_update(server);
    if (clocks->known > 0)
        expiry_start(server);
}

void muster_params_server_clocks_close(struct muster_params_server *server)
{
    muster_timer_stop(&server->clocks.expiry);
    muster_task_cancel(&server->clocks.come);
    muster_mem_free(server->env->mem, server->clocks.presences);
    server->clocks.presences = NULL;
    server->clocks.presence_count = 0;
}
