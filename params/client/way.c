/* The way to the server: connect, name the source, and again whenever the link is lost. */
#include "params/client/client_internal.h"

#include <string.h>

#include "runtime/value/backoff.h"

#define CONNECT_TIMEOUT_NS (5 * MUSTER_NS_PER_S)

/* A server that dies is back within milliseconds, so the first attempts follow closely. */
static const struct muster_backoff reconnect = {.first_ns = MUSTER_NS_PER_MS,
                                                .max_ns = 500 * MUSTER_NS_PER_MS,
                                                .growth_permille = 1500,
                                                .jitter_permille = 250};

#define FROM(way) (1u << MUSTER_PARAMS_WAY_##way)

/* From which states a state is reached. */
static const uint8_t moves[] = {
    [MUSTER_PARAMS_WAY_CONNECTING] = FROM(PAUSED),
    [MUSTER_PARAMS_WAY_OPENING] = FROM(CONNECTING),
    [MUSTER_PARAMS_WAY_OPEN] = FROM(OPENING),
    [MUSTER_PARAMS_WAY_PAUSED] = FROM(CONNECTING) | FROM(OPENING) | FROM(OPEN),
    [MUSTER_PARAMS_WAY_FAILED] = FROM(CONNECTING) | FROM(OPENING) | FROM(OPEN),
};

static void way_move(struct muster_params *params, enum muster_params_way way)
{
    MUSTER_ASSERT((moves[way] & 1u << params->way) != 0);
    params->way = way;
}

static void link_drop(struct muster_params *params)
{
    struct muster_peer_link *link = params->link;

    params->link = NULL;
    if (link == NULL)
        return;
    params->way_events->on_lost(params);
    muster_peer_link_close(link);
}

void muster_params_way_break(struct muster_params *params, const struct muster_error *error)
{
    uint64_t wait_ns = muster_backoff_next(&reconnect, &params->backoff_ns, params->env->rng);

    MUSTER_LOG(params->env, DEBUG, "params_link_lost", "reason", error->text);
    params->error = *error;
    link_drop(params);
    way_move(params, MUSTER_PARAMS_WAY_PAUSED);
    muster_timer_start(&params->retry, params->env->loop,
                       muster_loop_now_ns(params->env->loop) + wait_ns);
}

/* Nothing that the client does can change the answer. */
static void way_fail(struct muster_params *params, const struct muster_error *error)
{
    params->error = *error;
    link_drop(params);
    way_move(params, MUSTER_PARAMS_WAY_FAILED);
    params->way_events->on_failed(params);
}

static bool is_final(enum muster_rc rc)
{
    return rc == MUSTER_FAILED_PRECONDITION || rc == MUSTER_INVALID_ARGUMENT ||
           rc == MUSTER_PERMISSION_DENIED || rc == MUSTER_UNAUTHENTICATED;
}

static void way_end(struct muster_params *params, const struct muster_error *error)
{
    if (is_final(error->rc))
        way_fail(params, error);
    else
        muster_params_way_break(params, error);
}

/* --- The link --- */

static void on_ready(struct muster_peer_link *link)
{
    struct muster_params *params = muster_peer_link_data(link);
    struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                         .type = MUSTER_PARAMS_OPEN,
                                         .payload_bytes = MUSTER_PARAMS_OPEN_BYTES};
    uint8_t bytes[MUSTER_PARAMS_OPEN_BYTES];
    struct muster_error error;

    way_move(params, MUSTER_PARAMS_WAY_OPENING);
    muster_params_open_pack(&params->source, bytes);
    if (muster_peer_link_send_copy(link, &header, bytes) != MUSTER_OK) {
        muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory to open the link");
        muster_params_way_break(params, &error);
    }
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_params *params = muster_peer_link_data(link);
    struct muster_error error;

    if (header->channel != MUSTER_FRAME_PARAMS) {
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "%s is not a server of parameters: it sent a frame of channel %u",
                         params->options.server, header->channel);
        way_fail(params, &error);
        return NULL;
    }
    if (params->way == MUSTER_PARAMS_WAY_OPEN)
        return params->way_events->on_frame(params, header);
    if (header->type == MUSTER_PARAMS_REFUSED && header->payload_bytes < sizeof(params->error.text))
        return params->error.text;
    if (header->type == MUSTER_PARAMS_OPENED &&
        header->payload_bytes == MUSTER_PARAMS_OPENED_BYTES)
        return params->opened_bytes;
    muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                     "%s answered the opening with a message of type %u and %u bytes",
                     params->options.server, header->type, header->payload_bytes);
    way_fail(params, &error);
    return NULL;
}

/* A source that has another slot, or other shards, is not the one whose pushes are kept here. */
static void opened_receive(struct muster_params *params)
{
    struct muster_params_opened opened;
    struct muster_error error;
    enum muster_rc rc = muster_params_opened_unpack(params->opened_bytes,
                                                    MUSTER_PARAMS_OPENED_BYTES, &opened, &error);

    if (rc == MUSTER_OK && params->shard_count != 0 &&
        (opened.slot != params->slot || opened.shard_count != params->shard_count))
        rc = muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                              "the server at %s has lost its memory: it does not know this source "
                              "any more",
                              params->options.server);
    if (rc != MUSTER_OK) {
        way_fail(params, &error);
        return;
    }
    if (params->shard_count == 0) {
        params->sequence = opened.sequence;
        params->position = opened.sequence - 1;
    }
    params->source.generation = opened.generation;
    params->slot = opened.slot;
    params->shard_count = opened.shard_count;
    params->backoff_ns = 0;
    params->error.rc = MUSTER_OK;
    way_move(params, MUSTER_PARAMS_WAY_OPEN);
    params->way_events->on_open(params);
}

static void refusal_receive(struct muster_params *params, const struct muster_frame_header *header)
{
    struct muster_error error = params->error;

    error.rc = header->phase != MUSTER_OK ? (enum muster_rc)header->phase : MUSTER_UNKNOWN;
    error.text[header->payload_bytes] = '\0';
    if (error.rc == MUSTER_ABORTED) /* a younger process has its name */
        way_fail(params, &error);
    else
        way_end(params, &error);
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_params *params = muster_peer_link_data(link);

    if (params->way == MUSTER_PARAMS_WAY_OPEN)
        params->way_events->on_payload(params, header, buffer);
    else if (header->type == MUSTER_PARAMS_OPENED)
        opened_receive(params);
    else
        refusal_receive(params, header);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    way_end(muster_peer_link_data(link), error);
}

static const struct muster_peer_link_events link_events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

static void way_connect(struct muster_params *params)
{
    uint64_t deadline_ns = muster_loop_now_ns(params->env->loop) + CONNECT_TIMEOUT_NS;
    struct muster_error error;
    enum muster_rc rc = muster_peer_link_open(params->env, &params->address, &params->hello,
                                              deadline_ns, &link_events, params, &params->link);

    if (rc == MUSTER_OK)
        return;
    params->link = NULL;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "a link to %s cannot be opened: %s",
                     params->options.server, muster_rc_text(rc));
    muster_params_way_break(params, &error);
}

static void on_retry(struct muster_timer *timer)
{
    struct muster_params *params = timer->data;

    way_move(params, MUSTER_PARAMS_WAY_CONNECTING);
    way_connect(params);
}

void muster_params_way_start(struct muster_params *params,
                             const struct muster_params_way_events *events)
{
    MUSTER_ASSERT(params->link == NULL);
    params->way_events = events;
    params->way = MUSTER_PARAMS_WAY_CONNECTING;
    muster_timer_init(&params->retry, on_retry, params);
    way_connect(params);
}

void muster_params_way_stop(struct muster_params *params)
{
    muster_timer_stop(&params->retry);
    link_drop(params);
}
