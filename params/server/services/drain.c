/* Draining: a server gives all its shards away before it ends. Its program begins that, of its own
 * accord or because a client has asked. */
#include "params/server/services/drain.h"

#include "params/server/registry/registration.h"
#include "params/server/services/params_service.h"


/* A client that has asked for the drain, and waits for its end. */
struct drain_call {
    struct muster_list node;
    struct muster_params_server *server;
    struct muster_rpc *rpc;
};

static void drain_call_free(struct drain_call *call)
{
    muster_list_remove(&call->node);
    muster_rpc_set_data(call->rpc, NULL);
    muster_mem_free(call->server->env->mem, call);
}

static void shards_left(const struct muster_params_server *server, enum muster_rc rc,
                        struct muster_error *ret_error)
{
    const struct muster_params_map_server *missing = muster_params_registration_missing(server);
    const char *away = muster_params_registration_away(server);

    if (away != NULL)
        muster_error_set(ret_error, rc,
                         "not all shards could be given to other servers in time: %.150s", away);
    else if (missing != NULL)
        muster_error_set(ret_error, rc,
                         "not all shards could be given to other servers in time: the one at %s, "
                         "which has shards, too, is not there",
                         missing->address);
    else
        muster_error_set(ret_error, rc,
                         "not all shards could be given to other servers in time");
}

/* The clients are answered before the program closes the server. */
static void drain_end(struct muster_params_server *server, enum muster_rc rc)
{
    muster_params_drained_fn *drained = server->drained;

    struct muster_error error = {.rc = MUSTER_OK};

    server->drained = NULL;
    muster_timer_stop(&server->drain_deadline);
    if (rc != MUSTER_OK) {
        shards_left(server, rc, &error);
        MUSTER_LOG(server->env, ERROR, "params_not_drained", "reason", error.text);
    }
    while (!muster_list_is_empty(&server->drain_calls)) {
        struct drain_call *call =
            MUSTER_CONTAINER_OF(server->drain_calls.next, struct drain_call, node);
        struct muster_rpc *rpc = call->rpc;
        Muster__Params__V1__DrainResponse response;

        drain_call_free(call);
        muster__params__v1__drain_response__init(&response);
        if (rc == MUSTER_OK)
            (void)muster_params_v1_params_drain_reply(rpc, &response);
        else
            muster_rpc_finish(rpc, rc, error.text);
    }
    drained(server, rc);
}

static void on_deadline(struct muster_timer *timer)
{
    struct muster_params_server *server = timer->data;

    drain_end(server, server->registration == NULL ? MUSTER_OK : MUSTER_DEADLINE_EXCEEDED);
}

/* The drain may have ended before, at its deadline. */
static void on_left(struct muster_params_server *server)
{
    if (server->drained != NULL)
        drain_end(server, MUSTER_OK);
}

void muster_params_drain_init(struct muster_params_server *server)
{
    muster_list_init(&server->drain_calls);
    muster_timer_init(&server->drain_deadline, on_deadline, server);
}

void muster_params_server_drain(struct muster_params_server *server, uint64_t deadline_ns,
                                muster_params_drained_fn *drained)
{
    MUSTER_ASSERT(server->drained == NULL);
    server->drained = drained;
    if (server->registration != NULL)
        muster_params_registration_leave(server, on_left);
    muster_timer_start(&server->drain_deadline, server->env->loop,
                       server->registration != NULL ? deadline_ns : 0);
}

/* --- Clients that ask --- */

/* A server that no other could follow would end at once, and its rows with it: a client must not do
 * that by mistake. */
static enum muster_rc drain_check(const struct muster_params_server *server,
                                  struct muster_error *ret_error)
{
    if (server->on_drain == NULL)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "the server's program does not let clients drain it");
    if (server->registration == NULL || !muster_params_registration_has_heir(server))
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "no other server of the job could take the shards; SIGTERM ends "
                                "the server, and its rows with it");
    return MUSTER_OK;
}

void muster_params_on_drain(struct muster_rpc *rpc, const Muster__Params__V1__DrainRequest *request)
{
    struct muster_params_server *server = muster_rpc_service(rpc);
    struct drain_call *call;
    struct muster_error error;

    (void)request;
    if (drain_check(server, &error) != MUSTER_OK) {
        muster_rpc_finish(rpc, error.rc, error.text);
        return;
    }
    call = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*call));
    if (call == NULL) {
        muster_rpc_finish(rpc, MUSTER_RESOURCE_EXHAUSTED, "no memory for the request");
        return;
    }
    call->server = server;
    call->rpc = rpc;
    muster_list_append(&server->drain_calls, &call->node);
    muster_rpc_set_data(rpc, call);
    if (server->drained == NULL)
        server->on_drain(server);
}

/* A caller that has gone away stops nothing: the server drains all the same. */
void muster_params_on_drain_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct drain_call *call = muster_rpc_data(rpc);

    (void)rc;
    if (call != NULL)
        drain_call_free(call);
}
