/* How much of the server one method may take: calls at once, size of a message, time.
 * server_call_events.c admits a call before the service sees it, and counts it when it is open. */
#include "net/grpc/server/rpc_server_internal.h"

static uint64_t earlier_ns(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

enum muster_rc muster_rpc_admit(struct muster_rpc *rpc, struct muster_error *ret_error)
{
    const struct muster_rpc_server *server = rpc->connection->server;
    const struct muster_rpc_method *method = rpc->method;
    const struct muster_loop *loop = server->env->loop;

    if (method->concurrent_calls_max == 0)
        rpc->open_count = NULL;
    if (rpc->open_count != NULL && *rpc->open_count >= method->concurrent_calls_max)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "method has %u calls open, its limit",
                                method->concurrent_calls_max);
    /* While too many answers wait, a client that does not read its own gets no new calls, which
     * would add to them. */
    if (!muster_rpc_may_queue(rpc, 0))
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, MUSTER_RPC_UNSENT_TEXT);
    rpc->parser.message_max_bytes = method->receive_message_max_bytes != 0
                                        ? method->receive_message_max_bytes
                                        : server->options.receive_message_max_bytes;
    /* A call without a deadline gets the method's; one with a later deadline than the method allows
     * is cut, and hears DEADLINE_EXCEEDED as for its own. */
    if (rpc->deadline_ns == UINT64_MAX && method->timeout_ns != 0)
        rpc->deadline_ns = muster_loop_after_ns(loop, method->timeout_ns);
    if (method->timeout_max_ns != 0)
        rpc->deadline_ns =
            earlier_ns(rpc->deadline_ns, muster_loop_after_ns(loop, method->timeout_max_ns));
    return MUSTER_OK;
}

void muster_rpc_count(struct muster_rpc *rpc)
{
    if (rpc->open_count != NULL)
        (*rpc->open_count)++;
}

void muster_rpc_uncount(struct muster_rpc *rpc)
{
    if (rpc->open_count == NULL)
        return;
    MUSTER_ASSERT(*rpc->open_count > 0);
    (*rpc->open_count)--;
}
