/* One client's connection to the server: its HTTP/2 events become those of calls, pings are judged,
 * its lifetime is watched. It also decides whether there is room for another one. server_core.c
 * ends it. */
#include "net/grpc/server/rpc_server_internal.h"
#include "net/tls/stream.h"

static struct muster_rpc_connection *connection_of(const struct muster_h2_session *session)
{
    return muster_h2_session_data(session);
}

/* NULL: the session refuses the stream, and the client may try again. */
static struct muster_h2_stream *on_begin(struct muster_h2_session *session)
{
    struct muster_rpc *rpc = muster_rpc_new(connection_of(session));

    return rpc != NULL ? &rpc->stream : NULL;
}

static void on_header(struct muster_h2_stream *stream, const char *name, size_t name_bytes,
                      const char *value, size_t value_bytes)
{
    muster_rpc_header_parse(stream->data, name, name_bytes, value, value_bytes);
}

static void on_headers(struct muster_h2_stream *stream, bool is_end)
{
    (void)is_end;
    muster_rpc_on_headers(stream->data);
}

static void on_data(struct muster_h2_stream *stream, const void *bytes, size_t count, bool is_end)
{
    muster_rpc_on_data(stream->data, (struct muster_bytes){bytes, count}, is_end);
}

static void on_end(struct muster_h2_stream *stream)
{
    muster_rpc_on_end(stream->data);
}

static void on_over_limit(struct muster_h2_stream *stream)
{
    muster_rpc_on_over_limit(stream->data);
}

static void on_trailers(struct muster_h2_stream *stream)
{
    muster_rpc_on_trailers(stream->data);
}

static void on_drained(struct muster_h2_stream *stream)
{
    muster_rpc_on_drained(stream->data);
}

static void on_close(struct muster_h2_stream *stream, uint32_t code)
{
    struct muster_rpc *rpc = stream->data;
    struct muster_rpc_connection *connection = rpc->connection;

    muster_rpc_on_close(rpc, code);
    muster_rpc_lifetime_on_call_end(&connection->lifetime);
}

static void on_settings(struct muster_h2_session *session)
{
    muster_rpc_session_on_settings(&connection_of(session)->session);
}

static void on_ping(struct muster_h2_session *session)
{
    struct muster_rpc_connection *connection = connection_of(session);

    /* A client of gRPC reads these words and pings less (gRPC A8). */
    if (!muster_rpc_ping_strikes_take(
            &connection->pings, muster_loop_now_ns(connection->server->env->loop),
            muster_h2_session_sent_frames(session), muster_h2_session_has_streams(session)))
        muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, "too_many_pings");
}

static void on_pong(struct muster_h2_session *session)
{
    muster_rpc_session_on_pong(&connection_of(session)->session);
}

static void on_goaway(struct muster_h2_session *session, uint32_t code, const char *text,
                      size_t length)
{
    (void)session; /* the client leaves; its calls end by themselves */
    (void)code;
    (void)text;
    (void)length;
}

/* The first bytes were those of a TLS handshake: the client is set up for another kind of server.
 */
static void on_tls(struct muster_h2_session *session)
{
    muster_rpc_mismatch_tell(&connection_of(session)->server->mismatches,
                             connection_of(session)->server->env,
                             muster_stream_peer(muster_h2_session_stream(session)), false);
}

static void on_life_over(struct muster_rpc_lifetime *lifetime)
{
    muster_rpc_connection_close(lifetime->data);
}

static void on_down(struct muster_h2_session *session, const struct muster_error *error)
{
    struct muster_rpc_connection *connection = connection_of(session);

    MUSTER_LOG(connection->server->env, DEBUG, "rpc_connection_ended", "reason", error->text);
    muster_rpc_connection_close(connection);
}

static const struct muster_h2_events events = {
    .on_begin = on_begin,
    .on_header = on_header,
    .on_headers = on_headers,
    .on_data = on_data,
    .on_end = on_end,
    .on_over_limit = on_over_limit,
    .on_trailers = on_trailers,
    .on_drained = on_drained,
    .on_close = on_close,
    .on_settings = on_settings,
    .on_ping = on_ping,
    .on_pong = on_pong,
    .on_goaway = on_goaway,
    .on_down = on_down,
    .on_tls = on_tls,
};

/* The peer must have heard of a GOAWAY within the time in which it must answer a ping. */
static void connection_live(struct muster_rpc_connection *connection)
{
    const struct muster_rpc_server_options *options = &connection->server->options;

    MUSTER_ASSERT(connection->session.h2 != NULL);
    connection->pings.interval_min_ns = options->ping_interval_min_ns;
    connection->pings.idle_interval_min_ns = options->idle_ping_interval_min_ns;
    connection->lifetime = (struct muster_rpc_lifetime){
        .data = connection,
        .on_over = on_life_over,
        .idle_max_ns = options->connection_idle_max_ns,
        .age_max_ns = options->connection_age_max_ns,
        .grace_ns = options->connection_age_grace_ns,
        .leave_timeout_ns = options->keepalive_timeout_ns,
    };
    muster_rpc_lifetime_start(&connection->lifetime, connection->server->env,
                              connection->session.h2);
}

static enum muster_rc connection_open(struct muster_rpc_server *server,
                                      struct muster_stream *stream)
{
    const struct muster_rpc_session_options options = {
        .mem = &server->pool.mem,
        .is_server = true,
        .concurrent_streams_max = server->options.concurrent_streams_max,
        .keepalive_interval_ns = server->options.keepalive_interval_ns,
        .keepalive_timeout_ns = server->options.keepalive_timeout_ns,
        .handshake_timeout_ns = server->options.handshake_timeout_ns,
        .keepalives_sent = &server->counters->keepalives_sent,
    };
    struct muster_rpc_connection *connection =
        muster_mem_alloc_zero(&server->pool.mem, 1, sizeof(*connection));
    enum muster_rc rc;

    if (connection == NULL) {
        muster_stream_close(stream, NULL);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    connection->server = server;
    connection->unsent.whole = &server->unsent;
    /* The identity is the stream's, which lives as long as the session. */
    if (server->options.tls != NULL)
        connection->identity = muster_tls_stream_identity(stream);
    rc = muster_rpc_session_open(&connection->session, server->env, stream, &options, &events,
                                 connection);
    if (rc != MUSTER_OK) {
        muster_mem_free(&server->pool.mem, connection);
        return rc;
    }
    connection_live(connection);
    /* The sweep for slow clients runs only while there are connections. */
    muster_rpc_server_watch(server);
    muster_list_append(&server->connections, &connection->node);
    server->connection_count++;
    server->counters->connections++;
    server->counters->connections_opened++;
    return MUSTER_OK;
}

/* The first name stays: a server with several listeners is shown under the first. */
void muster_rpc_server_name_counters(struct muster_rpc_server *server, const char *name)
{
    if (server->counters == &server->own_counters)
        server->counters = muster_rpc_metrics_counters(server->metrics, MUSTER_RPC_SERVER, name,
                                                       &server->own_counters);
    server->unsent.gauge = &server->counters->unsent_bytes;
}

/* Idle ones that never made a call go first (port scans, half-open clients), then those that are
 * idle longest. */
static bool is_less_wanted(const struct muster_rpc_connection *connection,
                           const struct muster_rpc_connection *than)
{
    if (than == NULL || connection->has_called != than->has_called)
        return than == NULL || !connection->has_called;
    return connection->lifetime.idle_since_ns < than->lifetime.idle_since_ns;
}

/* When all places are taken, an idle connection makes room: nobody can keep others out by opening
 * connections and doing nothing with them. */
static bool has_room(struct muster_rpc_server *server)
{
    struct muster_rpc_connection *found = NULL;

    if (server->connection_count - server->leaving_count < server->options.connections_max)
        return true;
    MUSTER_LIST_EACH(&server->connections, connection, struct muster_rpc_connection, node) {
        if (!connection->is_making_room && is_less_wanted(connection, found) &&
            !muster_h2_session_has_streams(connection->session.h2))
            found = connection;
    }
    if (found != NULL)
        muster_rpc_connection_make_room(found);
    return found != NULL;
}

/* Checks that there is room for one more connection, and closes the stream when there is none. */
static enum muster_rc check_room(struct muster_rpc_server *server, struct muster_stream *stream)
{
    enum muster_rc rc = MUSTER_OK;

    if (server->is_closing)
        rc = MUSTER_FAILED_PRECONDITION;
    else if (!has_room(server))
        rc = MUSTER_RESOURCE_EXHAUSTED;
    if (rc != MUSTER_OK)
        muster_stream_close(stream, NULL);
    return rc;
}

enum muster_rc muster_rpc_server_attach_secured(struct muster_rpc_server *server,
                                                struct muster_stream *stream)
{
    enum muster_rc rc = check_room(server, stream);

    if (muster_list_is_empty(&server->listeners))
        muster_rpc_server_name_counters(server, "attached");
    return rc == MUSTER_OK ? connection_open(server, stream) : rc;
}
