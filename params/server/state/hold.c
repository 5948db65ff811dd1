/* Holds of a server: who asks for one, and who is told. */
#include "params/server/state/hold.h"

#include <inttypes.h>

#include "params/server/core/answer.h"
#include "params/server/core/source_text.h"
#include "params/server/state/clock.h"
#include "params/server/state/cut_internal.h"
#include "params/store/source.h"

static bool hold_tell(struct muster_params_client *client, const struct muster_params_hold *hold)
{
    struct muster_params_answer *answer =
        muster_params_answer_new(client, MUSTER_PARAMS_HOLD, 0, MUSTER_PARAMS_HOLD_BYTES);

    if (answer != NULL)
        muster_params_hold_pack(hold, answer->payload);
    return muster_params_answer_send(answer, MUSTER_PARAMS_HOLD_BYTES);
}

/* A client that cannot be told is closed by the door in its next turn. */
static void clients_tell(struct muster_params_server *server)
{
    const struct muster_params_hold hold = {.number = server->hold.number,
                                            .clock = server->hold.clock};

    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node) {
        if (!client->is_open || !client->is_told || hold_tell(client, &hold))
            continue;
        muster_params_answer_lose(client);
    }
}

/* An asker that still waits for its answer gets the error. */
static void asker_refuse(struct muster_params_server *server, const struct muster_error *error)
{
    struct muster_params_client *asker = server->hold.asker;

    if (asker != NULL && server->hold.request.type != 0 &&
        !muster_params_refuse(asker, &server->hold.request, error))
        muster_params_answer_lose(asker);
    server->hold.asker = NULL;
    server->hold.request.type = 0;
}

static void hold_drop(struct muster_params_server *server, const struct muster_error *error)
{
    asker_refuse(server, error);
    server->hold.clock = 0;
    muster_timer_stop(&server->hold.deadline);
    clients_tell(server);
}

void muster_params_server_hold_end(struct muster_params_server *server, uint64_t number)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_CANCELLED, "the cut was given up");
    if (server->hold.clock != 0 && server->hold.number == number)
        hold_drop(server, &error);
}

static void on_deadline(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;
    struct muster_error error;

    muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED, "the cut was not made in time");
    MUSTER_LOG(server->env, WARN, "params_hold_ended", "cut", server->hold.number, "clock",
               server->hold.clock, "reason", error.text);
    hold_drop(server, &error);
}

/* The step after the newest one in which it has pushed, also by a process that is dead, and that no mark tells of.
 * 0: it has not, or nobody waits for its clock. */
static uint64_t pushed_clock_of(const struct muster_params_source *source)
{
    return muster_params_stored_counts(source->clock) ? source->pushed_clock : 0;
}

/* A source that has gone on after the clock; UINT64_MAX: none has. */
static uint64_t source_beyond(const struct muster_params_server *server, uint64_t clock)
{
    for (uint64_t slot = 0; slot < server->region->head->source_count; slot++) {
        uint64_t stored = muster_params_source_at(server->region, slot)->clock;

        if (muster_params_stored_counts(stored) && stored - 1 > clock)
            return slot;
    }
    return UINT64_MAX;
}

uint64_t muster_params_server_hold_pushed(const struct muster_params_server *server)
{
    uint64_t pushed = server->hold.called;

    for (uint64_t slot = 0; slot < server->region->head->source_count; slot++) {
        uint64_t own = pushed_clock_of(muster_params_source_at(server->region, slot));

        pushed = own > pushed ? own : pushed;
    }
    return pushed;
}

/* The client of the hold before may still read that link: it must not wait for an answer until its own deadline. */
static void own_hold_leave(struct muster_params_server *server)
{
    struct muster_error error;

    muster_params_cut_set_anew(&error);
    asker_refuse(server, &error);
}

/* Marks tell of sources that have pushed after the clock without having ticked. */
static enum muster_rc hold_check(const struct muster_params_server *server,
                                 const struct muster_params_client *client,
                                 const struct muster_params_hold *hold,
                                 struct muster_error *ret_error)
{
    char source[MUSTER_PARAMS_SOURCE_TEXT_BYTES];
    uint64_t beyond = source_beyond(server, hold->clock);

    if (server->hold.clock != 0 && !muster_params_cut_is_begun_anew(server->hold.asker, client))
        return muster_error_set(
            ret_error, MUSTER_FAILED_PRECONDITION,
            "another cut at a clock is under way, of source %s; ask again when it has ended",
            muster_params_source_text(server, server->hold.asker->slot, source));
    if (!muster_params_server_has_ticks(server))
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "no source ticks: a cut at a clock needs sources that do");
    if (beyond == UINT64_MAX)
        return MUSTER_OK;
    return muster_error_set(
        ret_error, MUSTER_OUT_OF_RANGE,
        "source %s is at clock %" PRIu64 " already: name a later clock than %" PRIu64,
        muster_params_source_text(server, beyond, source),
        muster_params_source_at(server->region, beyond)->clock - 1, hold->clock);
}

/* All sources have come to the clock. The request of a hold that has ended was refused. */
static bool hold_answer(struct muster_params_client *client,
                        const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server_hold *hold = &client->server->hold;

    (void)payload;
    if (hold->asker != client || hold->request.type == 0 ||
        hold->request.offset != header->offset)
        return true;
    hold->request.type = 0;
    return muster_params_answer_send(
        muster_params_answer_new(client, MUSTER_PARAMS_HELD, header->offset, 0), 0);
}

bool muster_params_handle_hold(struct muster_params_client *client,
                               const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = client->server;
    struct muster_params_hold hold;
    struct muster_error error;

    if (muster_params_hold_unpack(payload, header->payload_bytes, &hold, &error) != MUSTER_OK)
        return false;
    if (hold.clock == 0) {
        muster_params_cut_give_up(&server->cut, hold.number);
        if (server->hold.asker == client)
            muster_params_server_hold_end(server, hold.number);
        return true;
    }
    if (hold_check(server, client, &hold, &error) != MUSTER_OK)
        return muster_params_refuse(client, header, &error);
    own_hold_leave(server);
    server->hold.number = hold.number;
    server->hold.clock = hold.clock;
    server->hold.asker = client;
    server->hold.request = *header;
    muster_timer_start(&server->hold.deadline, server->env->loop,
                       muster_loop_after_ns(server->env->loop, hold.timeout_ns));
    MUSTER_LOG(server->env, INFO, "params_cut_waits", "cut", hold.number, "clock", hold.clock);
    clients_tell(server);
    return muster_params_server_clock_call(client, header, payload, hold.clock, hold_answer);
}

bool muster_params_server_hold_join(struct muster_params_client *client)
{
    const struct muster_params_server_hold *hold = &client->server->hold;

    return hold->clock == 0 ||
           hold_tell(client, &(struct muster_params_hold){.number = hold->number,
                                                          .clock = hold->clock});
}

void muster_params_server_hold_leave(struct muster_params_client *client)
{
    struct muster_params_server *server = client->server;

    if (server->hold.asker != client)
        return;
    server->hold.asker = NULL;
    hold_drop(server, NULL);
}

enum muster_rc muster_params_server_hold_check(struct muster_params_server *server,
                                               const struct muster_params_source *source,
                                               struct muster_error *ret_error)
{
    struct muster_params_server_hold *hold = &server->hold;

    if (!muster_params_stored_counts(source->clock))
        return MUSTER_OK;
    if (hold->clock != 0 && source->clock - 1 >= hold->clock)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                                "a cut at clock %" PRIu64 " waits for slower sources: push again",
                                hold->clock);
    if (source->clock > hold->called)
        hold->called = source->clock;
    return MUSTER_OK;
}

void muster_params_server_hold_init(struct muster_params_server *server)
{
    muster_timer_init(&server->hold.deadline, on_deadline, server);
}

void muster_params_server_hold_close(struct muster_params_server *server)
{
    muster_timer_stop(&server->hold.deadline);
    server->hold.asker = NULL;
    server->hold.clock = 0;
}
