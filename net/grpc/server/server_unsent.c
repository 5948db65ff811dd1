/* Answers that wait to be sent, of all connections: clients that do not read must not take the
 * memory of the server, nor the service from those that read.
 *
 * While they are below the budget (unsent_max_bytes) everybody may have them queued. At the budget
 * the server is full until a quarter of it is free again: then a connection that has more than its
 * share, the budget divided by the connections, gets RESOURCE_EXHAUSTED for new calls and for
 * further answers; one that has less, because it reads, is served all the same. And of the
 * connections with more than half a share the one that has waited longest for its client is ended,
 * then the next, unless it has waited for less than STALL_MIN_NS. */
#include "net/grpc/server/rpc_server_internal.h"

/* A client that read a second ago is slow, not gone. */
#define STALL_MIN_NS MUSTER_NS_PER_S
/* Four looks a second end a stalled client soon after STALL_MIN_NS. */
#define LOOK_NS (MUSTER_NS_PER_S / 4)

/* The shares add up to the budget, so connections that keep to theirs cannot fill it. */
static size_t share_bytes(const struct muster_rpc_server *server)
{
    uint32_t count = server->connection_count > 0 ? server->connection_count : 1;

    return server->options.unsent_max_bytes / count;
}

/* A quarter of the budget must be free again, or the server would flip between full and not with
 * each answer. */
static bool has_room(const struct muster_rpc_server *server)
{
    size_t max = server->options.unsent_max_bytes;

    return server->unsent.bytes <= max - max / 4;
}

static void look_later(struct muster_rpc_server *server)
{
    struct muster_loop *loop = server->env->loop;

    muster_timer_start(&server->unsent_timer, loop, muster_loop_after_ns(loop, LOOK_NS));
}

/* The timer runs only while it is full: in the normal case a check is one comparison. */
static void become_full(struct muster_rpc_server *server)
{
    if (server->is_unsent_full)
        return;
    MUSTER_LOG(server->env, WARN, "rpc_unsent_full", "unsent_bytes", (uint64_t)server->unsent.bytes,
               "max_bytes", (uint64_t)server->options.unsent_max_bytes, "connections",
               (uint64_t)server->connection_count);
    server->is_unsent_full = true;
    look_later(server);
}

static bool is_full(struct muster_rpc_server *server, size_t more)
{
    if (server->unsent.bytes + more > server->options.unsent_max_bytes) {
        become_full(server);
        return true;
    }
    return server->is_unsent_full && !has_room(server);
}

bool muster_rpc_may_queue(struct muster_rpc *rpc, size_t more)
{
    struct muster_rpc_connection *connection = rpc->connection;
    struct muster_rpc_server *server = connection->server;

    if (!is_full(server, more) || connection->unsent.bytes + more <= share_bytes(server))
        return true;
    server->counters->unsent_refusals++;
    return false;
}

/* Among those that have more than half a share: the one whose client has not read for the longest
 * time; of two such the one that has more. NULL: all of them read. */
static struct muster_rpc_connection *longest_stalled(struct muster_rpc_server *server,
                                                     uint64_t *ret_since_ns)
{
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);
    struct muster_rpc_connection *found = NULL;

    MUSTER_LIST_EACH(&server->connections, connection, struct muster_rpc_connection, node) {
        uint64_t since_ns;

        if (connection->is_expelled || connection->unsent.bytes <= share_bytes(server) / 2)
            continue;
        since_ns = muster_h2_session_waits_since_ns(connection->session.h2);
        /* UINT64_MAX, when nothing waits, is later than any time. */
        if (since_ns > now_ns || now_ns - since_ns < STALL_MIN_NS ||
            (found != NULL && since_ns > *ret_since_ns) ||
            (found != NULL && since_ns == *ret_since_ns &&
             connection->unsent.bytes <= found->unsent.bytes))
            continue;
        found = connection;
        *ret_since_ns = since_ns;
    }
    return found;
}

static void end_stalled(struct muster_rpc_connection *connection, uint64_t since_ns)
{
    struct muster_rpc_server *server = connection->server;
    char peer[MUSTER_ADDRESS_TEXT_BYTES];

    MUSTER_ASSERT(!connection->is_expelled);
    MUSTER_LOG(server->env, WARN, "rpc_unsent_expelled", "client",
               muster_address_format(
                   muster_stream_peer(muster_h2_session_stream(connection->session.h2)), peer),
               "connection_bytes", (uint64_t)connection->unsent.bytes, "stalled_ms",
               (muster_loop_now_ns(server->env->loop) - since_ns) / MUSTER_NS_PER_MS,
               "unsent_bytes", (uint64_t)server->unsent.bytes);
    server->counters->unsent_expulsions++;
    muster_rpc_connection_expel(connection, "unsent_answers");
}

static void on_look(struct muster_timer *timer)
{
    struct muster_rpc_server *server = timer->data;
    struct muster_rpc_connection *connection;
    uint64_t since_ns = 0;

    while (!has_room(server) && (connection = longest_stalled(server, &since_ns)) != NULL)
        end_stalled(connection, since_ns);
    if (has_room(server))
        server->is_unsent_full = false;
    else
        look_later(server);
}

void muster_rpc_server_unsent_init(struct muster_rpc_server *server)
{
    muster_timer_init(&server->unsent_timer, on_look, server);
}
