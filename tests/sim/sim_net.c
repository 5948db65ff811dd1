/* The simulated network as a process sees it: connect, listen, name look-up. */
#include <assert.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define SYN_RETRY_MIN_NS         (20 * MUSTER_NS_PER_MS)
#define SYN_RETRY_MAX_NS         (500 * MUSTER_NS_PER_MS)
#define UNREACHABLE_DELAY_MAX_NS (5 * MUSTER_NS_PER_MS)

struct sim_listener {
    struct muster_listener listener;
    struct sim_node *node;
    struct muster_address address;
    struct muster_stream_options options;
    muster_listener_accept_fn *on_accept;
    muster_listener_close_fn *closed;
    bool is_closing, is_held;
    struct sim_ready ready;
    struct muster_list queue; /* sim_stream.link: connected, not accepted */
    struct muster_list node_link, host_link;
};

/* A connect under way. */
struct sim_dial {
    struct muster_connect *connect;
    int sys;
    struct sim_node *node;
    struct sim_host *target; /* NULL: nobody has that address */
    struct muster_stream_options options;
    struct sim_connection *connection;
    struct sim_event event;
    struct sim_ready ready;
    enum muster_rc rc;
    const char *text;
    struct muster_list link;
};

struct sim_lookup {
    struct muster_lookup *lookup;
    struct sim_node *node;
    struct sim_event event;
    struct sim_ready ready;
    enum muster_rc rc;
    struct muster_list link;
};

static struct sim_node *node_of(struct muster_net *net)
{
    return MUSTER_CONTAINER_OF(net, struct sim_node, net);
}

/* Listening. */

static bool is_wildcard(const struct muster_address *address)
{
    static const uint8_t zero[16];

    return address->family != MUSTER_ADDRESS_UNIX && memcmp(address->ip, zero, sizeof(zero)) == 0;
}

static bool is_answered_by(const struct sim_listener *listener,
                           const struct muster_address *address)
{
    if (listener->address.family == MUSTER_ADDRESS_UNIX || address->family == MUSTER_ADDRESS_UNIX)
        return muster_address_is_equal(&listener->address, address);
    if (listener->address.port != address->port)
        return false;
    return is_wildcard(&listener->address) || muster_address_is_equal(&listener->address, address);
}

static struct sim_listener *find_listener(const struct sim_host *host,
                                          const struct muster_address *address)
{
    const struct muster_list *link;

    for (link = host->listeners.next; link != &host->listeners; link = link->next) {
        struct sim_listener *listener = MUSTER_CONTAINER_OF(link, struct sim_listener, host_link);

        if (is_answered_by(listener, address))
            return listener;
    }
    return NULL;
}

static bool is_port_taken(const struct sim_host *host, const struct muster_address *address)
{
    const struct muster_list *link;

    for (link = host->listeners.next; link != &host->listeners; link = link->next) {
        const struct sim_listener *other =
            MUSTER_CONTAINER_OF(link, struct sim_listener, host_link);

        if (address->family == MUSTER_ADDRESS_UNIX
                ? muster_address_is_equal(&other->address, address)
                : other->address.family != MUSTER_ADDRESS_UNIX &&
                      other->address.port == address->port)
            return true;
    }
    return false;
}

static void reset_queue(struct sim_listener *listener)
{
    while (!muster_list_is_empty(&listener->queue)) {
        struct sim_stream *stream =
            MUSTER_CONTAINER_OF(listener->queue.next, struct sim_stream, link);

        sim_stream_send_reset(&stream->connection->sides[1 - stream->side]);
        sim_stream_drop(stream, false);
    }
}

static void listener_free(struct sim_listener *listener)
{
    muster_list_remove(&listener->node_link);
    muster_list_remove(&listener->host_link);
    sim_ready_cancel(&listener->ready);
    free(listener);
}

static void listener_on_poll(struct sim_ready *ready)
{
    struct sim_listener *listener = ready->data;
    struct muster_list *link;

    while (!listener->is_closing && !listener->is_held && !sim_node_is_gone(listener->node) &&
           (link = muster_list_pop(&listener->queue)) != NULL) {
        struct sim_stream *stream = MUSTER_CONTAINER_OF(link, struct sim_stream, link);

        muster_list_append(&listener->node->streams, &stream->link);
        listener->on_accept(&listener->listener, &stream->stream);
    }
    if (!listener->is_closing || sim_node_is_gone(listener->node))
        return;
    if (listener->closed != NULL)
        listener->closed(&listener->listener);
    listener_free(listener);
}

static const struct muster_address *listener_address(const struct muster_listener *listener)
{
    return &((const struct sim_listener *)listener)->address;
}

static void listener_close(struct muster_listener *base, muster_listener_close_fn *closed)
{
    struct sim_listener *listener = (struct sim_listener *)base;

    sim_node_enter(listener->node);
    assert(!listener->is_closing);
    listener->is_closing = true;
    listener->closed = closed;
    muster_list_remove(&listener->host_link);
    reset_queue(listener);
    sim_ready_signal(&listener->ready);
}

static void listener_hold(struct muster_listener *base, bool is_held)
{
    struct sim_listener *listener = (struct sim_listener *)base;

    listener->is_held = is_held;
    if (!is_held)
        sim_ready_signal(&listener->ready);
}

static enum muster_rc check_bind(struct sim_node *node, struct muster_address *address,
                                 struct muster_error *ret_error)
{
    struct sim_host *host = node->host;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    if (!is_wildcard(address) && sim_host_find(host, address) != host)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s is not of this host",
                                muster_address_format(address, text));
    if (address->family != MUSTER_ADDRESS_UNIX && address->port == 0)
        do
            address->port = host->next_port++;
        while (is_port_taken(host, address));
    if (is_port_taken(host, address))
        return muster_error_set(ret_error, MUSTER_ALREADY_EXISTS, "address %s is in use",
                                muster_address_format(address, text));
    return MUSTER_OK;
}

static enum muster_rc net_listen(struct muster_net *net, const struct muster_address *address,
                                 const struct muster_stream_options *options,
                                 muster_listener_accept_fn *on_accept, void *data,
                                 struct muster_listener **ret_listener,
                                 struct muster_error *ret_error)
{
    static const struct muster_listener_ops ops = {
        .address = listener_address,
        .close = listener_close,
        .hold = listener_hold,
    };
    struct sim_node *node = node_of(net);
    struct muster_address bound = *address;
    struct sim_listener *listener;
    enum muster_rc rc;

    sim_node_enter(node);
    rc = check_bind(node, &bound, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    listener = sim_alloc(sizeof(*listener));
    listener->listener = (struct muster_listener){.ops = &ops, .data = data};
    listener->node = node;
    listener->address = bound;
    listener->options = *options;
    listener->on_accept = on_accept;
    sim_ready_init(&listener->ready, node, listener_on_poll, listener);
    muster_list_init(&listener->queue);
    muster_list_append(&node->listeners, &listener->node_link);
    muster_list_append(&node->host->listeners, &listener->host_link);
    *ret_listener = &listener->listener;
    return MUSTER_OK;
}

/* Connecting. */

static void abandon_connection(struct sim_dial *dial)
{
    struct sim_connection *connection = dial->connection;

    if (connection == NULL)
        return;
    dial->connection = NULL;
    sim_stream_send_reset(&connection->sides[1]);
    sim_stream_drop(&connection->sides[0], false);
}

static void dial_free(struct sim_dial *dial)
{
    muster_list_remove(&dial->link);
    sim_ready_cancel(&dial->ready);
    sim_event_cancel(dial->node->world, &dial->event);
    free(dial);
}

static void finish_dial(struct sim_dial *dial)
{
    struct muster_connect *connect = dial->connect;
    enum muster_rc rc = dial->rc;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    muster_timer_stop(&connect->timer);
    if (rc == MUSTER_OK) {
        connect->stream = &dial->connection->sides[0].stream;
    } else {
        abandon_connection(dial);
        muster_error_set(&connect->error, rc, "%s: %s",
                         muster_address_format(&connect->address, text), dial->text);
        connect->error.sys = dial->sys;
    }
    connect->impl = NULL;
    dial_free(dial);
    connect->done(connect, rc);
}

static void dial_on_poll(struct sim_ready *ready)
{
    finish_dial(ready->data);
}

static void end_dial(struct sim_dial *dial, enum muster_rc rc, const char *text)
{
    dial->rc = rc;
    dial->text = text;
    sim_event_cancel(dial->node->world, &dial->event);
    sim_ready_signal(&dial->ready);
}

static void dial_on_timer(struct muster_timer *timer)
{
    struct sim_dial *dial = timer->data;

    dial->rc = MUSTER_DEADLINE_EXCEEDED;
    dial->text = "connect timed out";
    finish_dial(dial);
}

static void on_refused(struct sim_event *event)
{
    struct sim_dial *dial = event->data;

    dial->sys = ECONNREFUSED;
    end_dial(dial, MUSTER_UNAVAILABLE, "connection refused");
}

static void dial_retry(struct sim_dial *dial)
{
    struct sim_world *world = dial->node->world;

    sim_event_schedule(world, &dial->event,
                       world->now_ns + SYN_RETRY_MIN_NS +
                           sim_draw(world, SYN_RETRY_MAX_NS - SYN_RETRY_MIN_NS));
}

/* The answer has come back: the client's side is open from here on. */
static void on_answer(struct sim_event *event)
{
    struct sim_dial *dial = event->data;
    struct sim_stream *stream;

    if (sim_link_is_dead(dial->node->world, dial->target, dial->node->host)) {
        dial_retry(dial);
        return;
    }
    stream = &dial->connection->sides[0];
    sim_connection_open_side(dial->connection, 0, dial->node, &dial->options);
    muster_list_append(&dial->node->streams, &stream->link);
    if (dial->connection->sides[1].phase == SIM_SIDE_GONE) /* accepted by a process that has died */
        sim_stream_send_reset(stream);
    end_dial(dial, MUSTER_OK, "");
}

static void name_sides(struct sim_dial *dial)
{
    struct sim_connection *connection = dial->connection;
    struct sim_host *host = dial->node->host;
    const struct muster_address *target = &dial->connect->address;
    struct muster_address client = sim_host_address(host, host->next_port++);

    if (target->family == MUSTER_ADDRESS_UNIX)
        client = (struct muster_address){.family = MUSTER_ADDRESS_UNIX};
    else if (muster_address_is_loopback(target))
        memcpy(client.ip, target->ip, sizeof(client.ip));
    connection->sides[0].local = connection->sides[1].peer = client;
    connection->sides[0].peer = connection->sides[1].local = *target;
}

static void on_syn(struct sim_event *event)
{
    struct sim_dial *dial = event->data;
    struct sim_world *world = dial->node->world;
    struct sim_listener *listener;
    struct sim_stream *stream;
    uint64_t back_ns;

    if (dial->target == NULL) {
        end_dial(dial, MUSTER_UNAVAILABLE, "no route to host");
        return;
    }
    if (sim_link_is_dead(world, dial->node->host, dial->target)) {
        dial_retry(dial);
        return;
    }
    back_ns = world->now_ns + sim_link_latency_ns(world, dial->target, dial->node->host);
    listener = find_listener(dial->target, &dial->connect->address);
    dial->event.on_time = listener == NULL ? on_refused : on_answer;
    sim_event_schedule(world, &dial->event, back_ns);
    if (listener == NULL)
        return;
    dial->connection = sim_connection_new(world, dial->node->host, dial->target);
    name_sides(dial);
    stream = &dial->connection->sides[1];
    sim_connection_open_side(dial->connection, 1, listener->node, &listener->options);
    dial->connection->pipes[1].last_arrival_ns = back_ns;
    muster_list_append(&listener->queue, &stream->link);
    sim_ready_signal(&listener->ready);
}

static enum muster_rc net_connect(struct muster_net *net, struct muster_connect *connect,
                                  const struct muster_stream_options *options, uint64_t deadline_ns)
{
    struct sim_node *node = node_of(net);
    struct sim_world *world = node->world;
    struct sim_dial *dial;
    uint64_t delay_ns;

    sim_node_enter(node);
    dial = sim_alloc(sizeof(*dial));
    dial->connect = connect;
    dial->node = node;
    dial->options = *options;
    dial->target = sim_host_find(node->host, &connect->address);
    sim_event_init(&dial->event, on_syn, dial);
    sim_ready_init(&dial->ready, node, dial_on_poll, dial);
    muster_list_append(&node->dials, &dial->link);
    connect->impl = dial;
    muster_timer_init(&connect->timer, dial_on_timer, dial);
    if (deadline_ns != UINT64_MAX)
        muster_timer_start(&connect->timer, &node->loop, deadline_ns);
    delay_ns = dial->target == NULL ? sim_draw(world, UNREACHABLE_DELAY_MAX_NS)
                                    : sim_link_latency_ns(world, node->host, dial->target);
    if (!sim_node_is_gone(node))
        sim_event_schedule(world, &dial->event, world->now_ns + delay_ns);
    return MUSTER_OK;
}

static void net_connect_cancel(struct muster_net *net, struct muster_connect *connect)
{
    struct sim_dial *dial = connect->impl;

    sim_node_enter(node_of(net));
    if (dial != NULL)
        end_dial(dial, MUSTER_CANCELLED, "cancelled");
}

/* Names. */

static void lookup_free(struct sim_lookup *ours)
{
    muster_list_remove(&ours->link);
    sim_ready_cancel(&ours->ready);
    sim_event_cancel(ours->node->world, &ours->event);
    free(ours);
}

static void finish_lookup(struct sim_lookup *ours)
{
    struct muster_lookup *lookup = ours->lookup;
    enum muster_rc rc = ours->rc;

    muster_timer_stop(&lookup->timer);
    if (rc != MUSTER_OK) {
        lookup->address_count = 0;
        muster_error_set(&lookup->error, rc, "name look-up: %s", muster_rc_text(rc));
    }
    lookup->impl = NULL;
    lookup_free(ours);
    lookup->done(lookup, rc);
}

static void lookup_on_poll(struct sim_ready *ready)
{
    finish_lookup(ready->data);
}

static void lookup_on_time(struct sim_event *event)
{
    struct sim_lookup *ours = event->data;

    sim_ready_signal(&ours->ready);
}

static void lookup_on_timer(struct muster_timer *timer)
{
    struct sim_lookup *ours = timer->data;

    ours->rc = MUSTER_DEADLINE_EXCEEDED;
    finish_lookup(ours);
}

static bool answer_lookup(const struct sim_node *node, const char *name, uint16_t port,
                          struct muster_address *ret_address)
{
    struct muster_address address = {.family = MUSTER_ADDRESS_IPV4, .port = port};
    const struct sim_host *host;

    if (inet_pton(AF_INET6, name, address.ip) == 1)
        address.family = MUSTER_ADDRESS_IPV6;
    else if (strcmp(name, "localhost") == 0)
        (void)inet_pton(AF_INET, "127.0.0.1", address.ip);
    else if (inet_pton(AF_INET, name, address.ip) != 1) {
        host = sim_host_by_name(node->world, name);
        if (host == NULL)
            return false;
        address = sim_host_address(host, port);
    }
    *ret_address = address;
    return true;
}

static enum muster_rc net_lookup(struct muster_net *net, struct muster_lookup *lookup,
                                 const char *name, uint64_t deadline_ns)
{
    struct sim_node *node = node_of(net);
    struct sim_world *world = node->world;
    struct sim_lookup *ours;

    sim_node_enter(node);
    ours = sim_alloc(sizeof(*ours));
    ours->lookup = lookup;
    ours->node = node;
    ours->rc = MUSTER_NOT_FOUND;
    if (answer_lookup(node, name, lookup->port, &lookup->addresses[0])) {
        ours->rc = MUSTER_OK;
        lookup->address_count = 1;
    }
    sim_event_init(&ours->event, lookup_on_time, ours);
    sim_ready_init(&ours->ready, node, lookup_on_poll, ours);
    muster_list_append(&node->lookups, &ours->link);
    lookup->impl = ours;
    muster_timer_init(&lookup->timer, lookup_on_timer, ours);
    if (deadline_ns != UINT64_MAX)
        muster_timer_start(&lookup->timer, &node->loop, deadline_ns);
    sim_event_schedule(world, &ours->event,
                       world->now_ns + sim_draw(world, world->conditions.lookup_delay_max_ns));
    return MUSTER_OK;
}

static void net_lookup_cancel(struct muster_net *net, struct muster_lookup *lookup)
{
    struct sim_lookup *ours = lookup->impl;

    sim_node_enter(node_of(net));
    if (ours == NULL)
        return;
    ours->rc = MUSTER_CANCELLED;
    sim_event_cancel(ours->node->world, &ours->event);
    sim_ready_signal(&ours->ready);
}

/* Addresses of the host: one, and loopback. */

static enum muster_rc net_find_source(struct muster_net *net, const struct muster_address *peer,
                                      struct muster_address *ret_source,
                                      struct muster_error *ret_error)
{
    struct sim_node *node = node_of(net);

    (void)ret_error;
    *ret_source = sim_host_address(node->host, 0);
    if (muster_address_is_loopback(peer)) {
        *ret_source = *peer;
        ret_source->port = 0;
    }
    return MUSTER_OK;
}

static bool net_has_address(struct muster_net *net, const struct muster_address *address)
{
    struct sim_host *host = node_of(net)->host;

    return sim_host_find(host, address) == host;
}

/* Birth and death of a process. */

void sim_node_net_init(struct sim_node *node)
{
    static const struct muster_net_ops ops = {
        .connect = net_connect,
        .connect_cancel = net_connect_cancel,
        .listen = net_listen,
        .lookup = net_lookup,
        .lookup_cancel = net_lookup_cancel,
        .find_source = net_find_source,
        .has_address = net_has_address,
    };

    node->net.ops = &ops;
    muster_list_init(&node->streams);
    muster_list_init(&node->listeners);
    muster_list_init(&node->dials);
    muster_list_init(&node->lookups);
}

void sim_node_drop_net(struct sim_node *node, bool is_silent)
{
    while (!muster_list_is_empty(&node->listeners)) {
        struct sim_listener *listener =
            MUSTER_CONTAINER_OF(node->listeners.next, struct sim_listener, node_link);

        while (is_silent && !muster_list_is_empty(&listener->queue))
            sim_stream_drop(MUSTER_CONTAINER_OF(listener->queue.next, struct sim_stream, link),
                            true);
        reset_queue(listener);
        listener_free(listener);
    }
    while (!muster_list_is_empty(&node->dials)) {
        struct sim_dial *dial = MUSTER_CONTAINER_OF(node->dials.next, struct sim_dial, link);

        abandon_connection(dial);
        dial_free(dial);
    }
    while (!muster_list_is_empty(&node->lookups))
        lookup_free(MUSTER_CONTAINER_OF(node->lookups.next, struct sim_lookup, link));
    while (!muster_list_is_empty(&node->streams))
        sim_stream_drop(MUSTER_CONTAINER_OF(node->streams.next, struct sim_stream, link),
                        is_silent);
}
