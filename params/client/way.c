/* The way to a server: connect, hear its map, name the source, and again whenever the link is lost. */
#include "params/client/client_internal.h"

#include <stdio.h>
#include <string.h>

#include "net/stream/ring.h"
#include "params/wire/host.h"
#include "runtime/system/host_share.h"
#include "runtime/value/backoff.h"

#define CONNECT_TIMEOUT_NS (5 * MUSTER_NS_PER_S)
#define TELL_AFTER_NS      (2 * MUSTER_NS_PER_S)  /* a server that is not reached for so long … */
#define TELL_AGAIN_NS      (10 * MUSTER_NS_PER_S) /* … is logged, and each time after that */

/* A server that dies is back within milliseconds, so the first attempts follow closely. */
static const struct muster_backoff reconnect = {.first_ns = MUSTER_NS_PER_MS / 5,
                                                .max_ns = 500 * MUSTER_NS_PER_MS,
                                                .growth_permille = 1500,
                                                .jitter_permille = 250};

#define MEMORY_RETURN_NS    (150 * MUSTER_NS_PER_MS)
#define MEMORY_RETURNS_BUSY 3u
#define MEMORY_RETURNS_MAX  10u

#define FROM(state) (1u << MUSTER_PARAMS_WAY_##state)

/* The states from which each state is reached. */
static const uint8_t moves[] = {
    [MUSTER_PARAMS_WAY_CONNECTING] = FROM(PAUSED),
    [MUSTER_PARAMS_WAY_MEETING] = FROM(CONNECTING) | FROM(OPENING),
    [MUSTER_PARAMS_WAY_OPENING] = FROM(MEETING),
    [MUSTER_PARAMS_WAY_OPEN] = FROM(OPENING),
    [MUSTER_PARAMS_WAY_PAUSED] = FROM(CONNECTING) | FROM(MEETING) | FROM(OPENING) | FROM(OPEN),
    [MUSTER_PARAMS_WAY_FAILED] = FROM(CONNECTING) | FROM(MEETING) | FROM(OPENING) | FROM(OPEN) |
                                 FROM(PAUSED),
};

static void way_move(struct muster_params_way *way, enum muster_params_way_state state)
{
    MUSTER_ASSERT((moves[state] & 1u << way->state) != 0);
    way->state = state;
}

static void link_drop(struct muster_params_way *way)
{
    struct muster_peer_link *link = way->link;

    way->link = NULL;
    muster_timer_stop(&way->check);
    if (link == NULL)
        return;
    way->params->way_events->on_lost(way);
    muster_peer_link_close(link);
}

void muster_params_way_hang_up(struct muster_params_way *way)
{
    link_drop(way);
}

/* The server is registered under this address: perhaps it is one that others cannot use. */
const char *muster_params_way_remedy(const struct muster_params_way *way)
{
    bool is_of_map = !way->is_seed && !muster_incarnation_is_zero(&way->id);

    return is_of_map && !way->was_met
               ? "; its --reach (or --listen) must be an address that works here"
               : "";
}

/* Operations wait without a word, so the log says for whom. */
static void way_tell_unreached(struct muster_params_way *way)
{
    struct muster_env *env = way->params->env;
    uint64_t now_ns = muster_loop_now_ns(env->loop);
    char reason[sizeof(way->error.text) + 80];

    if (now_ns - way->since_ns < TELL_AFTER_NS ||
        (way->told_ns > way->since_ns && now_ns - way->told_ns < TELL_AGAIN_NS))
        return;
    way->told_ns = now_ns;
    snprintf(reason, sizeof(reason), "%s%s", way->error.text, muster_params_way_remedy(way));
    MUSTER_LOG(env, WARN, "waits_for_params_server", "server", way->server, "reason", reason,
               "seconds", (now_ns - way->since_ns) / MUSTER_NS_PER_S);
}

void muster_params_way_break(struct muster_params_way *way, const struct muster_error *error)
{
    struct muster_params *params = way->params;
    uint64_t wait_ns = muster_backoff_next(&reconnect, &way->backoff_ns, params->env->rng);

    MUSTER_LOG(params->env, DEBUG, "params_link_lost", "server", way->server, "reason",
               error->text);
    way->error = *error;
    way->avoids_memory = way->is_by_memory && way->state == MUSTER_PARAMS_WAY_CONNECTING;
    if (params->map == NULL || way->leads)
        params->error = *error;
    if (way->state == MUSTER_PARAMS_WAY_OPEN)
        way->since_ns = muster_loop_now_ns(params->env->loop);
    way_tell_unreached(way);
    link_drop(way);
    way_move(way, MUSTER_PARAMS_WAY_PAUSED);
    muster_timer_start(&way->retry, params->env->loop,
                       muster_loop_now_ns(params->env->loop) + wait_ns);
    params->way_events->on_unreached(way);
}

void muster_params_way_fail(struct muster_params_way *way, const struct muster_error *error)
{
    way->error = *error;
    muster_timer_stop(&way->retry);
    link_drop(way);
    muster_params_sight_close(way);
    way_move(way, MUSTER_PARAMS_WAY_FAILED);
    way->params->way_events->on_failed(way);
}

/* Servers give a source up, and stop waiting for its clock, once none of its links is left. */
void muster_params_ways_end(struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way == params->nowhere || way->state == MUSTER_PARAMS_WAY_FAILED)
            continue;
        muster_timer_stop(&way->retry);
        link_drop(way);
        muster_params_sight_close(way);
        way_move(way, MUSTER_PARAMS_WAY_FAILED);
    }
}

static void way_end(struct muster_params_way *way, const struct muster_error *error)
{
    if (muster_params_rc_is_final(error->rc))
        muster_params_way_fail(way, error);
    else
        muster_params_way_break(way, error);
}

/* --- The link --- */

/* Another server answers than the one that the client knows. Without a registry the known server was the
 * only one, and its rows are gone with it. With one, the link stays until the stranger has sent its map:
 * that map may be the only way to find the present servers. */
static void stranger_meet(struct muster_params_way *way)
{
    struct muster_error error;

    if (!way->params->is_alone) {
        way->is_strange = true;
        muster_params_way_watch(way);
        muster_error_set(&way->error, MUSTER_UNAVAILABLE,
                         "another server than the one of the map answers at %s", way->server);
        way->params->way_events->on_unreached(way);
        return;
    }
    muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                     "the server at %s has lost its memory: it does not know this source any more",
                     way->server);
    muster_params_way_fail(way, &error);
}

static bool memory_try(struct muster_params_way *way);
static void way_connect(struct muster_params_way *way);

static void on_ready(struct muster_peer_link *link)
{
    struct muster_params_way *way = muster_peer_link_data(link);
    const struct muster_incarnation *id = &muster_peer_link_hello(link)->incarnation;

    if (muster_incarnation_is_zero(&way->id)) {
        way->id = *id;
        way->was_met = true;
        if (memory_try(way))
            return;
    } else if (!muster_incarnation_is_equal(&way->id, id)) {
        stranger_meet(way);
        return;
    }
    way->was_met = true;
    way_move(way, MUSTER_PARAMS_WAY_MEETING);
    muster_params_way_watch(way);
}

void muster_params_way_name(struct muster_params_way *way, bool is_home)
{
    struct muster_params *params = way->params;
    struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                         .type = MUSTER_PARAMS_OPEN,
                                         .payload_bytes = MUSTER_PARAMS_OPEN_BYTES};
    uint8_t bytes[MUSTER_PARAMS_OPEN_BYTES];
    struct muster_error error;

    if (way->state != MUSTER_PARAMS_WAY_MEETING || (params->source.generation == 0 && !is_home))
        return;
    if (!way->was_open)
        header.flags = MUSTER_PARAMS_OPEN_JOIN;
    /* The answer tells what the server's shards have by this map, or a later one. */
    header.epoch = way->map_number = params->map->epoch;
    way_move(way, MUSTER_PARAMS_WAY_OPENING);
    params->source.link++;
    muster_params_open_pack(&params->source, bytes);
    if (muster_peer_link_send_copy(way->link, &header, bytes) != MUSTER_OK) {
        muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory to open the link");
        muster_params_way_break(way, &error);
    }
}

static void *map_room(struct muster_params_way *way, uint32_t bytes)
{
    struct muster_error error;

    if (bytes > 0 && bytes <= MUSTER_PARAMS_MAP_BYTES_MAX)
        way->received = muster_mem_alloc(&way->params->pool.mem, bytes);
    if (way->received != NULL)
        return way->received;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory for the map of %s, of %u bytes",
                     way->server, bytes);
    muster_params_way_break(way, &error);
    return NULL;
}

static void link_hear(struct muster_params_way *way)
{
    muster_params_pulse_hear(&way->pulse, muster_loop_now_ns(way->params->env->loop));
}

static void on_progress(struct muster_peer_link *link, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done)
{
    (void)header;
    (void)buffer;
    (void)bytes_done;
    link_hear(muster_peer_link_data(link));
}

static void alive_receive(struct muster_params_way *way, const struct muster_frame_header *header)
{
    struct muster_error error;

    if (muster_params_way_alive(way, header))
        return;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "no memory for an answer to %s", way->server);
    muster_params_way_break(way, &error);
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_params_way *way = muster_peer_link_data(link);
    struct muster_error error;

    link_hear(way);
    if (header->channel != MUSTER_FRAME_PARAMS) {
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "%s is not a server of parameters: it sent a frame of channel %u",
                         way->server, header->channel);
        muster_params_way_fail(way, &error);
        return NULL;
    }
    if (header->type == MUSTER_PARAMS_ALIVE && header->payload_bytes == 0)
        return NULL;
    if (header->type == MUSTER_PARAMS_MAP)
        return map_room(way, header->payload_bytes);
    if (way->state == MUSTER_PARAMS_WAY_OPEN)
        return way->params->way_events->on_frame(way, header);
    if (header->type == MUSTER_PARAMS_REFUSED && header->payload_bytes < sizeof(way->error.text))
        return way->error.text;
    if (header->type == MUSTER_PARAMS_OPENED && header->payload_bytes == MUSTER_PARAMS_OPENED_BYTES)
        return way->opened_bytes;
    if (header->type == MUSTER_PARAMS_MOVED && header->payload_bytes == 0)
        return NULL;
    muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                     "%s answered the opening with a message of type %u and %u bytes", way->server,
                     header->type, header->payload_bytes);
    muster_params_way_fail(way, &error);
    return NULL;
}

/* A source that has another slot, or other shards, is not the one whose pushes are kept here. */
static void opened_receive(struct muster_params_way *way)
{
    struct muster_params *params = way->params;
    struct muster_params_opened opened;
    struct muster_error error;
    enum muster_rc rc = muster_params_opened_unpack(way->opened_bytes, MUSTER_PARAMS_OPENED_BYTES,
                                                    &opened, &error);

    if (rc == MUSTER_OK && ((way->was_open && opened.slot != way->slot) ||
                            opened.shard_count != params->shard_count))
        rc = muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                              "the server at %s has lost its memory: it does not know this source "
                              "any more",
                              way->server);
    if (rc != MUSTER_OK) {
        muster_params_way_fail(way, &error);
        return;
    }
    way->slot = opened.slot;
    way->was_open = true;
    way->backoff_ns = 0;
    way->error.rc = MUSTER_OK;
    way_move(way, MUSTER_PARAMS_WAY_OPEN);
    way->returns_tried = 0;
    way->avoids_memory = false;
    if (way->is_by_memory)
        way->was_by_memory = true;
    else if (way->was_by_memory)
        muster_timer_start(&way->retry, params->env->loop,
                           muster_loop_after_ns(params->env->loop, MEMORY_RETURN_NS));
    params->way_events->on_open(way, &opened);
}

static void refusal_receive(struct muster_params_way *way, const struct muster_frame_header *header)
{
    struct muster_error error = way->error;

    error.rc = header->phase != MUSTER_OK ? (enum muster_rc)header->phase : MUSTER_UNKNOWN;
    error.text[header->payload_bytes] = '\0';
    if (error.rc == MUSTER_ABORTED) /* a younger process has its name */
        muster_params_way_fail(way, &error);
    else
        way_end(way, &error);
}

/* Ways that met a stranger have waited for a map; they try again. */
static void strangers_break(struct muster_params *params)
{
    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        struct muster_error error = way->error;

        if (way->is_strange && way->state == MUSTER_PARAMS_WAY_CONNECTING)
            muster_params_way_break(way, &error);
    }
}

static void map_receive(struct muster_params_way *way, const struct muster_frame_header *header)
{
    struct muster_params *params = way->params;
    uint8_t *received = way->received;

    way->received = NULL;
    params->way_events->on_map(way, received, header->payload_bytes); /* the way may be gone */
    muster_mem_free(&params->pool.mem, received);
    strangers_break(params);
}

/* Answers tell it, and signs of life do not. */
static void credit_hear(struct muster_params_way *way, uint64_t credit)
{
    bool is_more = credit > way->credit;

    if (credit == 0)
        return;
    way->credit = credit;
    if (is_more && (way->is_behind || way->is_pull_behind))
        muster_task_post(&way->params->flush, way->params->env->loop);
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_params_way *way = muster_peer_link_data(link);

    link_hear(way);
    credit_hear(way, header->op.step);
    if (header->type == MUSTER_PARAMS_MAP)
        map_receive(way, header);
    else if (header->type == MUSTER_PARAMS_ALIVE)
        alive_receive(way, header);
    else if (way->state == MUSTER_PARAMS_WAY_OPEN)
        way->params->way_events->on_payload(way, header, buffer);
    else if (header->type == MUSTER_PARAMS_OPENED && way->state == MUSTER_PARAMS_WAY_OPENING)
        opened_receive(way);
    else if (header->type == MUSTER_PARAMS_REFUSED)
        refusal_receive(way, header);
    else if (way->state == MUSTER_PARAMS_WAY_OPENING) /* MOVED: the source's home is elsewhere */
        way_move(way, MUSTER_PARAMS_WAY_MEETING);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct muster_params_way *way = muster_peer_link_data(link);
    struct muster_error named = *error;

    if (strstr(error->text, way->server) == NULL) /* a program may know several servers */
        snprintf(named.text, sizeof(named.text), "server %.80s: %.150s", way->server, error->text);
    way_end(way, &named);
}

static const struct muster_peer_link_events link_events = {.on_ready = on_ready,
                                                           .on_frame = on_frame,
                                                           .on_progress = on_progress,
                                                           .on_payload = on_payload,
                                                           .on_down = on_down};

static bool way_is_home(const struct muster_params_way *way)
{
    const struct muster_params_home *home = way->params->home;

    if (home == NULL)
        return false;
    return muster_incarnation_is_zero(&way->id)
               ? strcmp(way->server, home->address) == 0
               : muster_incarnation_is_equal(&way->id, &home->id);
}

/* The server whose id this is may be on this host: its name is of the id. Under TLS the peers of connections are
 * proven, and here nobody is. */
static bool memory_open(struct muster_params_way *way, struct muster_stream **ret_stream)
{
    struct muster_env *env = way->params->env;
    int socket = -1;

    return !way->avoids_memory && !way->params->options.no_host_memory && env->tls == NULL &&
           !muster_incarnation_is_zero(&way->id) && muster_host_shares(env->host) != NULL &&
           muster_params_host_ring_connect(&way->id, &socket) == MUSTER_OK &&
           muster_ring_stream_open(env, socket, ret_stream) == MUSTER_OK;
}

static enum muster_rc link_open(struct muster_params_way *way)
{
    struct muster_params *params = way->params;
    uint64_t deadline_ns = muster_loop_now_ns(params->env->loop) + CONNECT_TIMEOUT_NS;
    struct muster_stream *stream;
    enum muster_rc rc;

    way->is_by_memory = !way_is_home(way) && memory_open(way, &stream);
    if (!way->is_by_memory && !way_is_home(way))
        return muster_peer_link_open_endpoint(params->env, &way->endpoint, &params->hello,
                                              deadline_ns, &link_events, way, &way->link);
    rc = way->is_by_memory ? MUSTER_OK : params->home->connect(params->home->data, &stream);
    return rc != MUSTER_OK ? rc
                           : muster_peer_link_open_over(params->env, stream, &params->hello,
                                                        deadline_ns, &link_events, way, &way->link);
}

/* Takes stream. */
static void memory_use(struct muster_params_way *way, struct muster_stream *stream)
{
    struct muster_params *params = way->params;

    link_drop(way);
    if (way->state == MUSTER_PARAMS_WAY_OPEN) {
        way_move(way, MUSTER_PARAMS_WAY_PAUSED);
        way_move(way, MUSTER_PARAMS_WAY_CONNECTING);
    }
    way->is_by_memory = muster_peer_link_open_over(
                            params->env, stream, &params->hello,
                            muster_loop_now_ns(params->env->loop) + CONNECT_TIMEOUT_NS, &link_events,
                            way, &way->link) == MUSTER_OK;
    if (!way->is_by_memory)
        way_connect(way);
}

/* The server has just been met over a connection: nothing has been said that would be lost with it. */
static bool memory_try(struct muster_params_way *way)
{
    struct muster_stream *stream;

    if (way_is_home(way) || !memory_open(way, &stream))
        return false;
    memory_use(way, stream);
    return true;
}

/* A new process of a seat takes calls for memory a little later than connections: its predecessor's name must be free.
 * The client waits for a moment without calls under way, so that none has to be sent again; after some attempts it
 * changes all the same. */
static void memory_return(struct muster_params_way *way)
{
    bool is_idle = muster_list_is_empty(&way->pushes) && muster_list_is_empty(&way->requests);
    struct muster_loop *loop = way->params->env->loop;
    struct muster_stream *stream;

    if ((is_idle || way->returns_tried >= MEMORY_RETURNS_BUSY) && memory_open(way, &stream))
        memory_use(way, stream);
    else if (way->returns_tried++ < MEMORY_RETURNS_MAX)
        muster_timer_start(&way->retry, loop, muster_loop_after_ns(loop, MEMORY_RETURN_NS));
}

static void way_connect(struct muster_params_way *way)
{
    struct muster_error error;
    enum muster_rc rc = link_open(way);

    if (rc == MUSTER_OK)
        return;
    way->link = NULL;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "a link to %s cannot be opened: %s", way->server,
                     muster_rc_text(rc));
    muster_params_way_break(way, &error);
}

static void on_check(struct muster_timer *timer)
{
    struct muster_params_way *way = timer->data;
    struct muster_error error;

    if (muster_params_way_check(way, &error) != MUSTER_OK)
        muster_params_way_break(way, &error);
}

static void on_retry(struct muster_timer *timer)
{
    struct muster_params_way *way = timer->data;

    if (way->state == MUSTER_PARAMS_WAY_OPEN) {
        memory_return(way);
        return;
    }
    way_move(way, MUSTER_PARAMS_WAY_CONNECTING);
    way->is_strange = false;
    way_connect(way);
}

struct muster_params_way *muster_params_way_new(struct muster_params *params,
                                                const struct muster_incarnation *id,
                                                const struct muster_endpoint *endpoint,
                                                const char *server)
{
    struct muster_params_way *way = muster_mem_alloc_zero(params->env->mem, 1, sizeof(*way));

    if (way == NULL)
        return NULL;
    way->params = params;
    if (id != NULL)
        way->id = *id;
    snprintf(way->server, sizeof(way->server), "%s", server);
    way->state = MUSTER_PARAMS_WAY_CONNECTING;
    way->since_ns = muster_loop_now_ns(params->env->loop);
    muster_list_init(&way->pushes);
    muster_list_init(&way->requests);
    muster_timer_init(&way->retry, on_retry, way);
    muster_timer_init(&way->check, on_check, way);
    muster_list_append(&params->ways, &way->node);
    if (endpoint == NULL) { /* nowhere */
        way->state = MUSTER_PARAMS_WAY_PAUSED;
        return way;
    }
    way->endpoint = *endpoint;
    way_connect(way);
    return way;
}

void muster_params_way_free(struct muster_params_way *way)
{
    struct muster_env *env = way->params->env;

    MUSTER_ASSERT(muster_list_is_empty(&way->pushes) && muster_list_is_empty(&way->requests));
    muster_timer_stop(&way->retry);
    link_drop(way);
    muster_params_sight_close(way);
    muster_list_remove(&way->node);
    muster_mem_free(env->mem, way->tables);
    muster_mem_free(env->mem, way);
}

bool muster_params_is_by_memory(const struct muster_params *params)
{
    bool is_open = false;

    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node) {
        if (way->state == MUSTER_PARAMS_WAY_OPEN && !way->is_by_memory)
            return false;
        is_open |= way->state == MUSTER_PARAMS_WAY_OPEN;
    }
    return is_open;
}
