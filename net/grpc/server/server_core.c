/* The base of all parts of the server: the states of a call, and how calls, connections and at last
 * the server itself end. It calls none of the other files of the server but lifetime.c, so each of
 * them may call it. */

#include "net/grpc/server/rpc_server_internal.h"
#include "net/h2/h2_code.h"

#define FAREWELL_NS  MUSTER_NS_PER_S /* to tell a client why it has to go */
#define LEAVING_PART 4               /* of the places: so many more may be leaving at a time */

/* STARTING goes to ENDED for requests that the service never sees; ENDED is final until the record
 * is reset. */
static const bool moves[4][4] = {
    [MUSTER_RPC_STARTING] = {[MUSTER_RPC_OPEN] = true, [MUSTER_RPC_ENDED] = true},
    [MUSTER_RPC_OPEN] = {[MUSTER_RPC_FINISHED] = true, [MUSTER_RPC_ENDED] = true},
    [MUSTER_RPC_FINISHED] = {[MUSTER_RPC_ENDED] = true},
};

void muster_rpc_move(struct muster_rpc *rpc, enum muster_rpc_state state)
{
    MUSTER_ASSERT(moves[rpc->state][state]);
    rpc->state = state;
}

/* The deadline's timer is used, due at once: a call has one end, whichever reason comes first. */
void muster_rpc_abort_later(struct muster_rpc *rpc, enum muster_rpc_abort_reason reason)
{
    MUSTER_ASSERT(rpc->connection != NULL);
    rpc->abort_reason = reason;
    muster_timer_start(&rpc->timer, rpc->connection->server->env->loop, 0);
}

void muster_rpc_server_check_closed(struct muster_rpc_server *server)
{
    if (server->is_closing && muster_list_is_empty(&server->listeners) &&
        muster_list_is_empty(&server->connections) &&
        muster_list_is_empty(&server->guests.shaking) && muster_list_is_empty(&server->visits) &&
        muster_list_is_empty(&server->closing_visits))
        muster_task_post(&server->closed_task, server->env->loop);
}

static void on_closed(struct muster_h2_session *session)
{
    struct muster_rpc_connection *connection = muster_h2_session_data(session);
    struct muster_rpc_server *server = connection->server;

    MUSTER_ASSERT(server->connection_count > 0);
    muster_list_remove(&connection->node);
    server->leaving_count -= connection->is_making_room;
    server->counters->connections--;
    /* An idle server gives the memory of its calls back to the system. */
    if (--server->connection_count == 0)
        muster_mem_pool_trim(&server->pool);
    muster_rpc_server_check_closed(server);
    muster_mem_free(&server->pool.mem, connection);
}

void muster_rpc_connection_close(struct muster_rpc_connection *connection)
{
    muster_rpc_lifetime_stop(&connection->lifetime);
    muster_rpc_session_close(&connection->session, on_closed);
}

void muster_rpc_connection_expel(struct muster_rpc_connection *connection, const char *text)
{
    struct muster_h2_session *session = connection->session.h2;

    if (connection->is_expelled)
        return;
    connection->is_expelled = true; /* its calls are not the server's any more */
    connection->server->memory_bytes -= connection->memory_bytes;
    /* Its answers are dropped as the session ends, but the room must count as free now, or more
     * connections than needed would be ended. */
    muster_h2_holding_subtract(connection->unsent.whole, connection->unsent.bytes);
    connection->unsent.whole = NULL;
    /* A write is under way: after it a GOAWAY might never reach a client that does not read. */
    if (muster_h2_session_write_mark(session) != 0) {
        muster_rpc_connection_close(connection);
        return;
    }
    muster_h2_session_terminate(session, MUSTER_H2_ENHANCE_YOUR_CALM, text);
    muster_rpc_lifetime_end(&connection->lifetime, FAREWELL_NS);
}

void muster_rpc_connection_make_room(struct muster_rpc_connection *connection)
{
    struct muster_rpc_server *server = connection->server;

    MUSTER_ASSERT(!connection->is_making_room);
    connection->is_making_room = true;
    server->leaving_count++;
    if (server->leaving_count > 1 + server->options.connections_max / LEAVING_PART) {
        muster_rpc_connection_close(connection); /* so many do not go when asked: no farewell */
        return;
    }
    muster_h2_session_drain_now(connection->session.h2, "max_connections");
    muster_rpc_lifetime_end(&connection->lifetime, FAREWELL_NS);
}

void muster_rpc_connection_drain(struct muster_rpc_connection *connection)
{
    muster_rpc_lifetime_leave(&connection->lifetime, "");
}
