/* Whether a server that is connected also serves: Watch of grpc.health.v1 on that very connection
 * (gRPC A17). subchannel.c starts it when a connection is ready and stops it when that is lost; the
 * verdict goes back by on_judged. The call is pinned to the subchannel, so it neither waits for
 * READY (which it decides) nor is repeated by a policy. */
#include <stdio.h>

#include "net/grpc/client/channel_internal.h"

#include "proto/health.muster.h"

/* A call that is open keeps the memory of the next one, so a new connection waits for its end in
 * STALE; RESTING is left by the timer, by another connection or by the loss of this one. */
static const bool moves[5][5] = {
    [MUSTER_RPC_HEALTH_STOPPED] = {[MUSTER_RPC_HEALTH_WATCHING] = true,
                                   [MUSTER_RPC_HEALTH_RESTING] = true},
    [MUSTER_RPC_HEALTH_WATCHING] = {[MUSTER_RPC_HEALTH_STALE] = true,
                                    [MUSTER_RPC_HEALTH_RESTING] = true,
                                    [MUSTER_RPC_HEALTH_STOPPING] = true},
    [MUSTER_RPC_HEALTH_STALE] = {[MUSTER_RPC_HEALTH_RESTING] = true,
                                 [MUSTER_RPC_HEALTH_STOPPING] = true},
    [MUSTER_RPC_HEALTH_RESTING] = {[MUSTER_RPC_HEALTH_WATCHING] = true,
                                   [MUSTER_RPC_HEALTH_RESTING] = true,
                                   [MUSTER_RPC_HEALTH_STOPPED] = true},
    [MUSTER_RPC_HEALTH_STOPPING] = {[MUSTER_RPC_HEALTH_STOPPED] = true,
                                    [MUSTER_RPC_HEALTH_STALE] = true},
};

static void health_move(struct muster_rpc_subchannel_health *health,
                        enum muster_rpc_health_state state)
{
    MUSTER_ASSERT(moves[health->state][state]);
    health->state = state;
}

bool muster_rpc_subchannel_health_is_open(const struct muster_rpc_subchannel *subchannel)
{
    const enum muster_rpc_health_state state = subchannel->health.state;

    return state == MUSTER_RPC_HEALTH_WATCHING || state == MUSTER_RPC_HEALTH_STALE ||
           state == MUSTER_RPC_HEALTH_STOPPING;
}

static void report_health(struct muster_rpc_subchannel *subchannel, enum muster_channel_state state,
                          const char *text)
{
    struct muster_error error = {.rc = MUSTER_OK};

    if (state != MUSTER_CHANNEL_READY)
        (void)muster_error_set(&error, MUSTER_UNAVAILABLE, "health check: %.200s", text);
    subchannel->events->on_judged(subchannel, state, &error);
}

static void on_status(struct grpc_health_v1_health_watch_call *call,
                      const Grpc__Health__V1__HealthCheckResponse *response)
{
    struct muster_rpc_subchannel *subchannel = call->data;
    char text[MUSTER_ERROR_TEXT_BYTES];

    /* An answer of any kind shows that the service is there: the next failure waits the first delay
     * again. */
    subchannel->health.backoff_ns = 0;
    if (response->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING) {
        report_health(subchannel, MUSTER_CHANNEL_READY, NULL);
        return;
    }
    (void)snprintf(text, sizeof(text), "\"%.100s\" is not serving (status %d)",
                   subchannel->channel->health_service, (int)response->status);
    report_health(subchannel, MUSTER_CHANNEL_TRANSIENT_FAILURE, text);
}

/* A watch that ends is opened again by the channel's backoff (A17), on the same connection. */
static void retry_later(struct muster_rpc_subchannel *subchannel)
{
    struct muster_rpc_subchannel_health *health = &subchannel->health;
    struct muster_env *env = subchannel->channel->env;
    uint64_t delay_ns =
        muster_backoff_next(&subchannel->channel->backoff, &health->backoff_ns, env->rng);

    muster_timer_start(&health->timer, env->loop, muster_loop_after_ns(env->loop, delay_ns));
}

static void on_done(struct grpc_health_v1_health_watch_call *call, enum muster_rc rc)
{
    struct muster_rpc_subchannel *subchannel = call->data;
    struct muster_rpc_subchannel_health *health = &subchannel->health;

    MUSTER_ASSERT(muster_rpc_subchannel_health_is_open(subchannel));
    if (health->state == MUSTER_RPC_HEALTH_STOPPING) {
        health_move(health, MUSTER_RPC_HEALTH_STOPPED);
        subchannel->events->on_part_ended(subchannel);
        return;
    }
    if (health->state == MUSTER_RPC_HEALTH_STALE) {
        health_move(health, MUSTER_RPC_HEALTH_RESTING);
        muster_rpc_subchannel_health_start(subchannel);
        return;
    }
    health_move(health, MUSTER_RPC_HEALTH_RESTING);
    if (rc == MUSTER_UNIMPLEMENTED) {
        /* A17: a server without the health service is taken for healthy, and is not asked again on
         * this connection. */
        MUSTER_LOG(subchannel->channel->env, WARN, "rpc_health_unimplemented", "target",
                   subchannel->channel->target.authority);
        report_health(subchannel, MUSTER_CHANNEL_READY, NULL);
    } else {
        retry_later(subchannel);
        report_health(subchannel, MUSTER_CHANNEL_TRANSIENT_FAILURE, call->stub.call.status.text);
    }
}

static void watch_start(struct muster_rpc_subchannel *subchannel)
{
    /* The watch lasts as long as the connection, so it has no deadline. */
    const struct muster_call_options options = {.deadline_ns = UINT64_MAX,
                                                .subchannel = subchannel};
    struct muster_rpc_subchannel_health *health = &subchannel->health;
    Grpc__Health__V1__HealthCheckRequest request;
    bool is_started;

    MUSTER_ASSERT(!muster_rpc_subchannel_health_is_open(subchannel));
    grpc__health__v1__health_check_request__init(&request);
    request.service = subchannel->channel->health_service;
    health->call->data = subchannel;
    is_started = grpc_health_v1_health_watch_start(health->call, subchannel->channel, &options,
                                                   &request, on_status, on_done) == MUSTER_OK;
    health_move(health, is_started ? MUSTER_RPC_HEALTH_WATCHING : MUSTER_RPC_HEALTH_RESTING);
    if (!is_started)
        retry_later(subchannel);
}

static void on_retry(struct muster_timer *timer)
{
    watch_start(timer->data);
}

enum muster_rc muster_rpc_subchannel_health_init(struct muster_rpc_subchannel *subchannel)
{
    struct muster_rpc_subchannel_health *health = &subchannel->health;
    struct muster_channel *channel = subchannel->channel;

    muster_timer_init(&health->timer, on_retry, subchannel);
    if (channel->health_service == NULL)
        return MUSTER_OK;
    health->call = muster_mem_alloc_zero(channel->env->mem, 1, sizeof(*health->call));
    return health->call != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

void muster_rpc_subchannel_health_fini(struct muster_rpc_subchannel *subchannel)
{
    muster_timer_stop(&subchannel->health.timer);
    muster_mem_free(subchannel->channel->env->mem, subchannel->health.call);
}

/* A call that is still open belongs to an earlier connection and was cancelled with it: its done
 * opens the new one, because the call's memory is in use until then. */
void muster_rpc_subchannel_health_start(struct muster_rpc_subchannel *subchannel)
{
    struct muster_rpc_subchannel_health *health = &subchannel->health;

    health->backoff_ns = 0;
    if (!muster_rpc_subchannel_health_is_open(subchannel))
        watch_start(subchannel);
    else if (health->state != MUSTER_RPC_HEALTH_STALE)
        health_move(health, MUSTER_RPC_HEALTH_STALE);
}

void muster_rpc_subchannel_health_stop(struct muster_rpc_subchannel *subchannel)
{
    struct muster_rpc_subchannel_health *health = &subchannel->health;

    muster_timer_stop(&health->timer);
    if (health->state == MUSTER_RPC_HEALTH_RESTING)
        health_move(health, MUSTER_RPC_HEALTH_STOPPED);
    if (!muster_rpc_subchannel_health_is_open(subchannel))
        return;
    if (health->state != MUSTER_RPC_HEALTH_STOPPING)
        health_move(health, MUSTER_RPC_HEALTH_STOPPING);
    muster_call_cancel(&health->call->stub.call);
}
