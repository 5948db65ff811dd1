/* The one listening port: reads four bytes of every connection and hands it on as if untouched. A
 * server with a credential takes TLS instead of HTTP/2 in plain text, and links come under TLS
 * where the environment has a credential (which then must be the server's, too), those of data and
 * state in plain text where they are authenticated only. */
#include "net/link/port.h"

#include <string.h>

#include "net/link/peer_link.h"
#include "net/grpc/server/rpc_server_internal.h"
#include "net/tls/tls_internal.h"
#include "net/tls/stream.h"

#define MAGIC_BYTES     4
#define HTTP2_MAGIC     "PRI "     /* RFC 9113 3.4 */
#define TLS_MAGIC       "\x16\x03" /* a handshake record: RFC 8446 5.1 */
#define TLS_MAGIC_BYTES 2
/* Long enough for a TLS handshake over a slow network; a silent stranger holds a descriptor so long. */
#define SILENCE_MAX_NS (10 * MUSTER_NS_PER_S)
/* Connections that have not spoken yet; more are closed at once. Each costs a descriptor, and
 * members of a large job may all connect in one instant. */
#define GREETING_COUNT_MAX 1024

struct muster_port {
    struct muster_env *env;
    struct muster_listener *listener;
    struct muster_rpc_server *rpc_server;
    muster_port_peer_fn *on_peer;
    void *data;
    struct muster_list greetings;
    uint32_t greeting_count;
    uint32_t open_count; /* the listener and the streams whose close is not done */
    bool is_closing;
    muster_port_close_fn *closed;
};

/* A connection whose first bytes are awaited. */
struct greeting {
    struct muster_port *port;
    struct muster_stream *stream;
    struct muster_stream_read read;
    struct muster_timer silence;
    uint8_t magic[MAGIC_BYTES];
    struct muster_tls_handshake handshake; /* once stream is NULL */
    struct muster_address peer;
    struct muster_list node;
};

/* Links come under TLS; those that may be in plain text have to prove who they are (peer_link). */
static bool links_are_secured(const struct muster_port *port)
{
    return port->on_peer != NULL && port->env->tls != NULL;
}

static bool serves_secured(const struct muster_port *port)
{
    return port->rpc_server != NULL && muster_rpc_server_tls(port->rpc_server) != NULL;
}

/* The listener, each handshake and each stream that closes point to the port: it lives until the
 * last of them is gone. */
static void release_one(struct muster_port *port)
{
    MUSTER_ASSERT(port->open_count > 0);
    if (--port->open_count > 0 || !port->is_closing)
        return;
    if (port->closed != NULL)
        port->closed(port);
    muster_mem_free(port->env->mem, port);
}

static void on_stream_closed(struct muster_stream *stream)
{
    release_one(stream->data);
}

static void drop_stream(struct muster_port *port, struct muster_stream *stream)
{
    port->open_count++;
    stream->data = port;
    muster_stream_close(stream, on_stream_closed);
}

static void greeting_free(struct greeting *greeting)
{
    MUSTER_ASSERT(greeting->port->greeting_count > 0);
    muster_timer_stop(&greeting->silence);
    muster_list_remove(&greeting->node);
    greeting->port->greeting_count--;
    muster_mem_free(greeting->port->env->mem, greeting);
}

static void greeting_drop(struct greeting *greeting, const char *reason)
{
    char peer[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_stream *stream = greeting->stream;
    struct muster_port *port = greeting->port;

    (void)muster_stream_receive_recall(&greeting->read, stream);
    muster_address_format(muster_stream_peer(stream), peer);
    MUSTER_LOG(port->env, DEBUG, "connection_refused", "peer", peer, "reason", reason);
    greeting_free(greeting);
    drop_stream(port, stream);
}

static void on_silence(struct muster_timer *timer)
{
    greeting_drop(timer->data, "silent");
}

/* Under TLS, both kinds of connections: ALPN says which it is. */

static void on_shaken(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    struct greeting *greeting = handshake->data;
    struct muster_port *port = greeting->port;
    struct muster_stream *stream = handshake->stream;

    if (rc != MUSTER_OK)
        muster_tls_log_refusal(port->env->tls, &greeting->peer, &handshake->error);
    greeting_free(greeting);
    if (rc == MUSTER_OK && port->is_closing) {
        drop_stream(port, stream);
    } else if (rc == MUSTER_OK) {
        stream->data = NULL;
        if (strcmp(muster_tls_stream_protocol(stream), MUSTER_PEER_PROTOCOL) == 0)
            port->on_peer(port, stream);
        else if (muster_rpc_server_attach_secured(port->rpc_server, stream) != MUSTER_OK)
            MUSTER_LOG(port->env, WARN, "connection_refused", "reason", "rpc server takes no more");
    }
    release_one(port);
}

static void greeting_shake(struct greeting *greeting)
{
    struct muster_port *port = greeting->port;
    struct muster_stream *stream = greeting->stream;
    const struct muster_tls_handshake_options options = {
        .is_server = true,
        .protocols = serves_secured(port) ? "h2," MUSTER_PEER_PROTOCOL : MUSTER_PEER_PROTOCOL};

    MUSTER_ASSERT(stream != NULL);
    greeting->stream = NULL;
    greeting->peer = *muster_stream_peer(stream);
    greeting->handshake.data = greeting;
    port->open_count++; /* done comes later, perhaps after muster_port_close */
    if (muster_tls_handshake_start(&greeting->handshake, port->env->tls, stream, &options,
                                   greeting->silence.due_ns, on_shaken) == MUSTER_OK) {
        muster_timer_stop(&greeting->silence);
        return;
    }
    MUSTER_LOG(port->env, WARN, "connection_refused", "reason", "no memory, or no certificate");
    greeting_free(greeting);
    release_one(port);
}

static void hand_on(struct greeting *greeting)
{
    struct muster_port *port = greeting->port;
    struct muster_stream *stream = greeting->stream;
    bool is_peer = memcmp(greeting->magic, MUSTER_PEER_MAGIC, MAGIC_BYTES) == 0;

    stream->data = NULL;
    muster_stream_unread(stream, greeting->magic, MAGIC_BYTES); /* a new owner reads them again */
    if (memcmp(greeting->magic, TLS_MAGIC, TLS_MAGIC_BYTES) == 0 && links_are_secured(port)) {
        greeting_shake(greeting);
        return;
    }
    greeting_free(greeting);
    if (is_peer)
        port->on_peer(port, stream);
    else if (muster_rpc_server_attach(port->rpc_server, stream) != MUSTER_OK)
        MUSTER_LOG(port->env, WARN, "connection_refused", "reason", "rpc server takes no more");
}

/* NULL: it can be handed on. The server of calls takes HTTP/2 in plain text where it demands TLS,
 * and TLS where it has none, too: it tells the client and the operator that they disagree. */
static const char *describe_refusal(const struct greeting *greeting)
{
    const struct muster_port *port = greeting->port;
    bool is_tls = memcmp(greeting->magic, TLS_MAGIC, TLS_MAGIC_BYTES) == 0;
    bool is_http2 = memcmp(greeting->magic, HTTP2_MAGIC, MAGIC_BYTES) == 0;
    bool is_peer = memcmp(greeting->magic, MUSTER_PEER_MAGIC, MAGIC_BYTES) == 0;

    if (is_tls)
        return links_are_secured(port) || port->rpc_server != NULL ? NULL : "TLS not served";
    if (is_peer && links_are_secured(port) && !port->env->is_data_authenticated_only)
        return "plain text where TLS is demanded";
    if ((is_peer && port->on_peer != NULL) || (is_http2 && port->rpc_server != NULL))
        return NULL;
    return is_http2 || is_peer ? "protocol not served" : "unknown protocol";
}

static void on_magic(struct muster_stream_read *read, enum muster_rc rc)
{
    struct greeting *greeting = read->data;

    const char *reason = rc == MUSTER_OK ? describe_refusal(greeting) : "ended early";

    if (reason == NULL)
        hand_on(greeting);
    else
        greeting_drop(greeting, reason);
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct muster_port *port = listener->data;
    struct greeting *greeting;

    if (port->greeting_count >= GREETING_COUNT_MAX) {
        MUSTER_LOG(port->env, DEBUG, "connection_refused", "reason", "too many are silent");
        drop_stream(port, stream);
        return;
    }
    greeting = muster_mem_alloc_zero(port->env->mem, 1, sizeof(*greeting));
    if (greeting == NULL) {
        MUSTER_LOG(port->env, WARN, "connection_refused", "reason", "no memory");
        drop_stream(port, stream);
        return;
    }
    greeting->port = port;
    greeting->stream = stream;
    greeting->read.data = greeting;
    muster_timer_init(&greeting->silence, on_silence, greeting);
    muster_timer_start(&greeting->silence, port->env->loop,
                       muster_loop_after_ns(port->env->loop, SILENCE_MAX_NS));
    muster_list_append(&port->greetings, &greeting->node);
    port->greeting_count++;
    if (muster_stream_receive_into(&greeting->read, stream, greeting->magic, MAGIC_BYTES,
                                   MAGIC_BYTES, on_magic) != MUSTER_OK)
        greeting_drop(greeting, "closed");
}

static void on_listener_closed(struct muster_listener *listener)
{
    release_one(listener->data);
}

enum muster_rc muster_port_open(struct muster_env *env, const struct muster_address *address,
                                struct muster_rpc_server *rpc_server, muster_port_peer_fn *on_peer,
                                void *data, struct muster_port **ret_port,
                                struct muster_error *ret_error)
{
    struct muster_port *port;
    enum muster_rc rc;

    if (on_peer != NULL && env->tls != NULL && rpc_server != NULL &&
        muster_rpc_server_tls(rpc_server) != NULL && muster_rpc_server_tls(rpc_server) != env->tls)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "the rpc server's credential must be that of the environment, which "
            "links on the same port have");
    port = muster_mem_alloc_zero(env->mem, 1, sizeof(*port));
    if (port == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "listen: no memory");
    port->env = env;
    port->rpc_server = rpc_server;
    port->on_peer = on_peer;
    port->data = data;
    port->open_count = 1;
    muster_list_init(&port->greetings);
    rc = muster_listener_open(env->net, address, NULL, on_accept, port, &port->listener, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, port);
        return rc;
    }
    *ret_port = port;
    return MUSTER_OK;
}

const struct muster_address *muster_port_address(const struct muster_port *port)
{
    return muster_listener_address(port->listener);
}

void *muster_port_data(const struct muster_port *port)
{
    return port->data;
}

void muster_port_close(struct muster_port *port, muster_port_close_fn *closed)
{
    MUSTER_ASSERT(!port->is_closing);
    port->is_closing = true;
    port->closed = closed;
    MUSTER_LIST_EACH_SAFE(&port->greetings, greeting, struct greeting, node) {
        if (greeting->stream == NULL)
            muster_tls_handshake_cancel(&greeting->handshake);
        else
            greeting_drop(greeting, "port closed");
    }
    muster_listener_close(port->listener, on_listener_closed);
}
