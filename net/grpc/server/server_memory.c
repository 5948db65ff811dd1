/* Memory of the calls of a connection, and of all: records, headers, requests in pieces or waiting,
 * answers that are queued. A connection beyond its share loses the call that grows; when all are
 * beyond the server's, the heaviest connection goes. Each file that changes what a call holds calls
 * muster_rpc_account afterwards; server_unsent.c has the narrower budget for answers. */
#include "net/grpc/server/rpc_server_internal.h"

/* The buffer that the service allocated from the length the client announced; all of it is charged
 * to the call. */
static size_t reserved_bytes(const struct muster_rpc *rpc)
{
    bool is_placing = rpc->parser.place != NULL && !muster_grpc_parser_is_empty(&rpc->parser);

    return is_placing ? rpc->parser.message_bytes : 0;
}

static size_t call_bytes(const struct muster_rpc *rpc)
{
    return sizeof(*rpc) + rpc->stream.header_bytes + muster_grpc_parser_held_bytes(&rpc->parser) +
           reserved_bytes(rpc) + muster_rpc_inbox_held_bytes(&rpc->inbox) + rpc->stream.body.bytes;
}

/* An expelled connection has left the server's sum already, with all of its calls. */
static void account_as(struct muster_rpc *rpc, size_t bytes)
{
    struct muster_rpc_connection *connection = rpc->connection;

    MUSTER_ASSERT(connection->memory_bytes >= rpc->accounted_bytes);
    connection->memory_bytes += bytes - rpc->accounted_bytes;
    if (!connection->is_expelled)
        connection->server->memory_bytes += bytes - rpc->accounted_bytes;
    rpc->accounted_bytes = bytes;
}

/* Answers shrink as they are sent, which nobody accounts for because it would cost a visit for each
 * write. So the sums are upper bounds, and are made exact before anybody is refused for them. */
static void connection_recount(struct muster_rpc_connection *connection)
{
    struct muster_h2_session *session = connection->session.h2;
    struct muster_h2_stream *stream = NULL;

    while ((stream = muster_h2_session_next_stream(session, stream)) != NULL)
        account_as(stream->data, call_bytes(stream->data));
}

static bool is_beyond(struct muster_rpc_connection *connection, size_t more)
{
    size_t max = connection->server->options.connection_memory_max_bytes;

    if (connection->memory_bytes + more <= max)
        return false;
    connection_recount(connection);
    return connection->memory_bytes + more > max;
}

void muster_rpc_account(struct muster_rpc *rpc)
{
    struct muster_rpc_server *server = rpc->connection->server;
    size_t bytes = call_bytes(rpc);
    bool has_grown = bytes > rpc->accounted_bytes;

    if (bytes == rpc->accounted_bytes)
        return;
    account_as(rpc, bytes);
    if (!has_grown)
        return;
    if (is_beyond(rpc->connection, 0))
        muster_rpc_abort_later(rpc, MUSTER_RPC_HEAVY); /* in the next turn, before the relief */
    if (server->memory_bytes > server->options.memory_max_bytes)
        muster_task_post(&server->relief_task, server->env->loop);
}

void muster_rpc_unaccount(struct muster_rpc *rpc)
{
    account_as(rpc, 0);
}

bool muster_rpc_is_affordable(struct muster_rpc *rpc, size_t more)
{
    return !is_beyond(rpc->connection, more);
}

/* The recount alone may bring the server below its limit: on_relief looks again. */
static struct muster_rpc_connection *heaviest_connection(struct muster_rpc_server *server)
{
    struct muster_rpc_connection *found = NULL;

    MUSTER_LIST_EACH(&server->connections, connection, struct muster_rpc_connection, node) {
        if (connection->is_expelled)
            continue;
        connection_recount(connection);
        if (found == NULL || connection->memory_bytes > found->memory_bytes)
            found = connection;
    }
    return found;
}

/* The heaviest connection may not read at all: its memory counts as free at once, and the GOAWAY
 * that tells it why is only a try. */
static void on_relief(struct muster_task *task)
{
    struct muster_rpc_server *server = task->data;

    while (server->memory_bytes > server->options.memory_max_bytes) {
        struct muster_rpc_connection *connection = heaviest_connection(server);

        if (connection == NULL || server->memory_bytes <= server->options.memory_max_bytes)
            return;
        MUSTER_LOG(server->env, WARN, "rpc_memory_exceeded", "connection_bytes",
                   (uint64_t)connection->memory_bytes, "max_bytes",
                   (uint64_t)server->options.memory_max_bytes);
        muster_rpc_connection_expel(connection, "memory");
    }
}

void muster_rpc_server_memory_init(struct muster_rpc_server *server)
{
    muster_task_init(&server->relief_task, on_relief, server);
}
