/* Drain of muster.params.v1, asked by a client. */
#include <muster/params_drain.h>

#include "proto/params.muster.h"

struct request {
    struct muster_params_v1_params_drain_call call;
    struct muster_env *env;
    struct muster_params_drain *drain;
    muster_params_drain_fn *done;
};

static void on_answer(struct muster_params_v1_params_drain_call *call, enum muster_rc rc,
                      const Muster__Params__V1__DrainResponse *response)
{
    struct request *request = call->data;
    struct muster_params_drain *drain = request->drain;
    muster_params_drain_fn *done = request->done;

    (void)response;
    drain->error = call->stub.call.status;
    muster_mem_free(request->env->mem, request);
    done(drain, rc);
}

enum muster_rc muster_params_drain_start(struct muster_params_drain *drain, struct muster_env *env,
                                         struct muster_channel *channel, uint64_t deadline_ns,
                                         muster_params_drain_fn *done)
{
    const struct muster_call_options options = {.deadline_ns = deadline_ns};
    struct request *request = muster_mem_alloc_zero(env->mem, 1, sizeof(*request));
    Muster__Params__V1__DrainRequest message;
    enum muster_rc rc;

    if (request == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    request->env = env;
    request->drain = drain;
    request->done = done;
    request->call.data = request;
    muster__params__v1__drain_request__init(&message);
    rc =
        muster_params_v1_params_drain_start(&request->call, channel, &options, &message, on_answer);
    if (rc != MUSTER_OK) {
        drain->error = request->call.stub.call.status;
        muster_mem_free(env->mem, request);
    }
    return rc;
}
