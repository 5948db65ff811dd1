/* A peer link: connect or accept, come back after a lost connection, take over the connection of
 * another. The memory of a link outlives its close by a turn, and longer while a dial is under
 * way. */
#include "net/link/peer_link_internal.h"

#include <stdio.h>
#include <string.h>

#include "net/tls/stream.h"

/* 4 MiB is what a path of 10 Gbit/s and 3 ms has on its way. The size was chosen so and not
 * measured; other paths may be served better by the kernel's own sizing, which it switches off. */
#define DATA_BUFFER_BYTES (4u << 20)
/* TCP_USER_TIMEOUT: data that is not acknowledged for so long ends the connection, instead of some
 * 15 minutes of retries (tcp(7)). */
#define USER_TIMEOUT_MS 20000u
/* The opener answers as soon as it has read ours, so a longer silence is another broken connection.
 */
#define ANSWER_NS MUSTER_NS_PER_S

static void on_hello_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct muster_peer_link *link = write->data;
    struct muster_error error;

    link->is_hello_queued = false;
    if (rc == MUSTER_OK) {
        muster_peer_link_receive(link);
        return;
    }
    muster_peer_link_lost_error(link, "the connection was lost before the hello", &error);
    muster_peer_link_lose(link, &error);
}

/* An opener of a bare link and both sides of others say hello first; their peer's is read once it
 * is out (on_hello_written). */
static void link_greet(struct muster_peer_link *link)
{
    if (muster_peer_link_greet(link))
        muster_peer_link_receive(link);
}

/* False: the link has been given up meanwhile. */
static bool link_has_waited(struct muster_peer_link *link)
{
    MUSTER_ASSERT(link->is_connecting);
    link->is_connecting = false;
    if (link->state == MUSTER_LINK_CLOSED) /* the memory has waited for this callback only */
        muster_task_post(&link->task, link->env->loop);
    return link->state ==
           MUSTER_LINK_CONNECTING; /* else DOWN, or an attempt to resume that was given up */
}

static bool place_try_next(struct muster_peer_link *link);

static void on_connected(struct muster_dial *dial, enum muster_rc rc)
{
    struct muster_peer_link *link = dial->data;

    if (!link_has_waited(link)) {
        if (rc == MUSTER_OK)
            muster_stream_close(dial->stream, NULL);
    } else if (rc == MUSTER_OK) {
        link->stream = dial->stream;
        link_greet(link);
    } else if (rc == MUSTER_UNAUTHENTICATED || !place_try_next(link)) {
        muster_peer_link_lose(link, &dial->error);
    }
}

static void on_deadline(struct muster_timer *timer)
{
    struct muster_peer_link *link = timer->data;
    struct muster_error error;

    muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED, "the peer did not say hello in time");
    muster_peer_link_lose(link, &error);
}

static void link_free(struct muster_peer_link *link)
{
    struct muster_mem *mem = link->env->mem;

    muster_mem_free(mem, link->place);
    muster_mem_free(mem, link);
}

/* Three things must not happen inside a callback of the owner's: the end of the memory, a failure
 * that was found while frames were recalled, and reading on after a pause or a full turn. */
static void on_task(struct muster_task *task)
{
    struct muster_peer_link *link = task->data;

    if (link->state == MUSTER_LINK_CLOSED) {
        if (!link->is_connecting)
            link_free(link);
        return;
    }
    if (link->error.rc != MUSTER_OK && link->state != MUSTER_LINK_DOWN)
        muster_peer_link_fail(link, &link->error);
    else if (link->state == MUSTER_LINK_READY) {
        link->turn_bytes = 0;
        muster_peer_link_receive(link);
    }
}

static enum muster_rc link_new(struct muster_env *env, const struct muster_peer_hello *hello,
                               const struct muster_peer_link_events *events, void *data,
                               struct muster_peer_link **ret_link)
{
    struct muster_peer_link *link = muster_mem_alloc_zero(env->mem, 1, sizeof(*link));

    if (link == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    link->env = env;
    link->events = events;
    link->data = data;
    link->self = *hello;
    link->self.version = MUSTER_PEER_VERSION;
    muster_list_init(&link->frames);
    muster_list_init(&link->unacked);
    link->hello_written = on_hello_written;
    muster_timer_init(&link->timer, on_deadline, link);
    muster_timer_init(&link->ack_timer, muster_peer_link_on_ack_due, link);
    muster_task_init(&link->task, on_task, link);
    *ret_link = link;
    return MUSTER_OK;
}

/* Members are known by the name of the protocol, servers of parameters also by where they are reached. */
static void link_name_peer(const struct muster_peer_link *link, struct muster_dial_options *options)
{
    const struct muster_link_place *place = link->place;

    options->server_name = options->protocols = MUSTER_PEER_PROTOCOL;
    if (place == NULL || place->endpoint.host[0] == '\0')
        return;
    options->server_name = place->endpoint.host;
    options->other_name = MUSTER_PEER_PROTOCOL;
}

static enum muster_rc link_connect(struct muster_peer_link *link,
                                   const struct muster_address *address, uint64_t deadline_ns)
{
    struct muster_stream_options stream = {.user_timeout_ms = USER_TIMEOUT_MS};
    bool is_bare = link->self.keys != NULL && link->self.purpose != MUSTER_LINK_CONTROL;
    struct muster_address scoped = *address;
    struct muster_dial_options options = {.tls = is_bare ? NULL : link->env->tls,
                                          .stream = &stream};
    enum muster_rc rc;

    MUSTER_ASSERT(!link->is_connecting && link->stream == NULL);
    link_name_peer(link, &options);
    /* Without a key nothing could be proven; the control link, which gives it, comes first. */
    if (is_bare && !muster_link_keys_has(link->self.keys, &link->self.target))
        return MUSTER_FAILED_PRECONDITION;
    link->is_bare = is_bare;
    if (link->self.purpose == MUSTER_LINK_DATA) {
        stream.send_buffer_bytes = DATA_BUFFER_BYTES;
        stream.receive_buffer_bytes = DATA_BUFFER_BYTES;
    }
    link->dial.data = link;
    if (link->self.scope_id != 0 && muster_address_is_link_local(address))
        scoped.scope_id =
            link->self.scope_id; /* the peer's number of the link means nothing here */
    rc = muster_dial_start(&link->dial, link->env->net, &scoped, &options, deadline_ns,
                           on_connected);
    if (rc != MUSTER_OK)
        return rc;
    muster_peer_link_move(link, MUSTER_LINK_CONNECTING);
    link->is_connecting = true;
    if (link->place == NULL)
        muster_timer_start(&link->timer, link->env->loop, deadline_ns);
    return MUSTER_OK;
}

/* Each address has its share of the time that is left: one that answers nothing leaves some for the others. */
static bool place_try_next(struct muster_peer_link *link)
{
    struct muster_link_place *place = link->place;
    uint64_t now_ns = muster_loop_now_ns(link->env->loop);
    size_t left;

    if (place == NULL || place->tried >= place->lookup.address_count ||
        place->deadline_ns <= now_ns)
        return false;
    left = place->lookup.address_count - place->tried;
    return link_connect(link, &place->lookup.addresses[place->tried++],
                        now_ns + (place->deadline_ns - now_ns) / left) == MUSTER_OK;
}

/* A name that is not known now may be known later. */
static void on_looked_up(struct muster_lookup *lookup, enum muster_rc rc)
{
    struct muster_peer_link *link = lookup->data;
    struct muster_error error;

    link->place->is_looking = false;
    if (!link_has_waited(link) || (rc == MUSTER_OK && place_try_next(link)))
        return;
    muster_error_set(&error, MUSTER_UNAVAILABLE, "%s",
                     lookup->error.text[0] != '\0' ? lookup->error.text : "it cannot be dialled");
    muster_peer_link_lose(link, &error);
}

static enum muster_rc place_connect(struct muster_peer_link *link, uint64_t deadline_ns)
{
    struct muster_link_place *place = link->place;
    enum muster_rc rc;

    place->deadline_ns = deadline_ns;
    if (place->endpoint.address.family != MUSTER_ADDRESS_NONE) {
        rc = link_connect(link, &place->endpoint.address, deadline_ns);
    } else {
        place->lookup.data = link;
        rc = muster_lookup_start(&place->lookup, link->env->net, place->endpoint.host,
                                 place->endpoint.port, deadline_ns, on_looked_up);
        link->is_connecting = place->is_looking = rc == MUSTER_OK;
    }
    if (rc == MUSTER_OK)
        muster_timer_start(&link->timer, link->env->loop, deadline_ns);
    return rc;
}

enum muster_rc muster_peer_link_open_endpoint(struct muster_env *env,
                                              const struct muster_endpoint *endpoint,
                                              const struct muster_peer_hello *hello,
                                              uint64_t deadline_ns,
                                              const struct muster_peer_link_events *events,
                                              void *data, struct muster_peer_link **ret_link)
{
    struct muster_peer_link *link = NULL;
    enum muster_rc rc = link_new(env, hello, events, data, &link);

    MUSTER_ASSERT(hello->intent == MUSTER_LINK_NEW && hello->keys == NULL);
    if (rc != MUSTER_OK)
        return rc;
    link->is_opener = true;
    link->session = link->self.session;
    link->place = muster_mem_alloc_zero(env->mem, 1, sizeof(*link->place));
    if (link->place != NULL)
        link->place->endpoint = *endpoint;
    rc = link->place != NULL ? place_connect(link, deadline_ns) : MUSTER_RESOURCE_EXHAUSTED;
    if (rc != MUSTER_OK) {
        link_free(link);
        return rc;
    }
    *ret_link = link;
    return MUSTER_OK;
}

/* Members of a job are known by name alone, wherever they are. */
static bool is_known_by_place(const struct muster_env *env, const struct muster_peer_hello *hello)
{
    return env->tls != NULL &&
           (hello->purpose == MUSTER_LINK_PARAMS || hello->purpose == MUSTER_LINK_PARAMS_COPY ||
            hello->purpose == MUSTER_LINK_PARAMS_LEAVE ||
            hello->purpose == MUSTER_LINK_PUBLICATION);
}

enum muster_rc muster_peer_link_open(struct muster_env *env, const struct muster_address *address,
                                     const struct muster_peer_hello *hello, uint64_t deadline_ns,
                                     const struct muster_peer_link_events *events, void *data,
                                     struct muster_peer_link **ret_link)
{
    struct muster_peer_link *link = NULL;
    struct muster_endpoint endpoint;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    enum muster_rc rc;

    if (is_known_by_place(env, hello) && muster_endpoint_parse(muster_address_format(address, text),
                                                               0, &endpoint, NULL) == MUSTER_OK)
        return muster_peer_link_open_endpoint(env, &endpoint, hello, deadline_ns, events, data,
                                              ret_link);
    rc = link_new(env, hello, events, data, &link);
    if (rc != MUSTER_OK)
        return rc;
    link->is_opener = true;
    if (hello->intent == MUSTER_LINK_NEW && hello->session == 0 &&
        hello->purpose != MUSTER_LINK_STATE && hello->purpose != MUSTER_LINK_PARAMS &&
        hello->purpose != MUSTER_LINK_PARAMS_COPY && hello->purpose != MUSTER_LINK_PARAMS_LEAVE &&
        hello->purpose != MUSTER_LINK_PUBLICATION)
        link->self.session = muster_rng_next(env->rng) | 1; /* 0 would mean: cannot be resumed */
    link->session = link->self.session;
    /* Links of the training state have no session: a broken one is opened anew. */
    rc = link_connect(link, address, deadline_ns);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, link);
        return rc;
    }
    *ret_link = link;
    return MUSTER_OK;
}

enum muster_rc muster_peer_link_open_over(struct muster_env *env, struct muster_stream *stream,
                                          const struct muster_peer_hello *hello,
                                          uint64_t deadline_ns,
                                          const struct muster_peer_link_events *events, void *data,
                                          struct muster_peer_link **ret_link)
{
    struct muster_peer_link *link = NULL;
    enum muster_rc rc = link_new(env, hello, events, data, &link);

    MUSTER_ASSERT(hello->intent == MUSTER_LINK_NEW && hello->keys == NULL);
    if (rc != MUSTER_OK) {
        muster_stream_close(stream, NULL);
        return rc;
    }
    link->is_opener = true;
    link->session = link->self.session;
    link->stream = stream;
    muster_timer_start(&link->timer, env->loop, deadline_ns);
    link_greet(link);
    *ret_link = link;
    return MUSTER_OK;
}

enum muster_rc muster_peer_link_accept(struct muster_env *env, struct muster_stream *stream,
                                       const struct muster_peer_hello *hello, uint64_t deadline_ns,
                                       const struct muster_peer_link_events *events, void *data,
                                       struct muster_peer_link **ret_link)
{
    struct muster_peer_link *link = NULL;
    enum muster_rc rc = link_new(env, hello, events, data, &link);

    if (rc != MUSTER_OK) {
        muster_stream_close(stream, NULL);
        return rc;
    }
    link->self.purpose = MUSTER_LINK_AS_OPENED;
    link->stream = stream;
    link->is_bare = link->self.keys != NULL && !muster_tls_stream_is_one(stream);
    muster_timer_start(&link->timer, env->loop, deadline_ns);
    link_greet(link);
    *ret_link = link;
    return MUSTER_OK;
}

enum muster_rc muster_peer_link_reopen(struct muster_peer_link *link,
                                       const struct muster_address *address, uint64_t deadline_ns)
{
    if (link->state != MUSTER_LINK_BROKEN || !link->is_opener || link->is_connecting)
        return MUSTER_FAILED_PRECONDITION;
    /* The number tells the acceptor which of two attempts is the later one. */
    link->self.intent = MUSTER_LINK_RESUME;
    link->self.received = link->received;
    link->self.connection = ++link->connection;
    return link_connect(link, address, deadline_ns);
}

/* `with` has no frames and no open request: its hello is out, the peer's has just been read, and
 * nothing follows that before the answer. */
enum muster_rc muster_peer_link_take_over(struct muster_peer_link *link,
                                          struct muster_peer_link *with)
{
    uint64_t received = with->peer.received;

    MUSTER_ASSERT(with->state == MUSTER_LINK_READY && muster_list_is_empty(&with->frames));
    MUSTER_ASSERT(!with->is_hello_queued);
    if (!muster_peer_link_is_met(link) || link->is_opener || link->session != with->peer.session ||
        !muster_peer_link_can_resume(link, received))
        return MUSTER_FAILED_PRECONDITION;
    if (link->state != MUSTER_LINK_BROKEN)
        muster_peer_link_forget_connection(link);
    if (with->reading != MUSTER_LINK_READ_NONE)
        muster_stream_receive_recall(&with->read, with->stream);
    with->reading = MUSTER_LINK_READ_NONE;
    link->connection = with->peer.connection;
    link->stream = with->stream;
    with->stream = NULL;
    muster_peer_link_close(with);
    muster_peer_link_move(link, MUSTER_LINK_ANSWER); /* of the opener, who says where it goes on */
    muster_peer_link_answer_resume(link, received);
    muster_timer_start(&link->timer, link->env->loop,
                       muster_loop_after_ns(link->env->loop, ANSWER_NS));
    muster_peer_link_receive(link);
    return MUSTER_OK;
}

void *muster_peer_link_data(const struct muster_peer_link *link)
{
    return link->data;
}

const struct muster_peer_hello *muster_peer_link_hello(const struct muster_peer_link *link)
{
    return &link->peer;
}

bool muster_peer_link_is_ready(const struct muster_peer_link *link)
{
    return link->state == MUSTER_LINK_READY;
}

bool muster_peer_link_is_opener(const struct muster_peer_link *link)
{
    return link->is_opener;
}

size_t muster_peer_link_queued_bytes(const struct muster_peer_link *link)
{
    return link->queued_bytes;
}
