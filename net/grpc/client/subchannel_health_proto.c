/* Whether a server that is connected also serves: Watch of grpc.health.v1 on that very connection
 * (gRPC A17). subchannel.c starts it when a connection is ready and stops it when that is lost; the
 * verdict goes back by on_judged. The call is pinned to the subchannel, so it neither waits for
 * READY (which it decides) nor is repeated by a policy. */
#include <stdio.h>

#include "net/grpc/client/channel_internal.h"

#include "proto/health.muster.h"

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

    MUSTER_ASSERT(health->is_open);
    health->is_open = false;
    if (!health->is_wanted) {
        subchannel->events->on_part_ended(subchannel);
    } else if (health->is_stale) { /* it was of the connection before */
        health->is_stale = false;
        muster_rpc_subchannel_health_start(subchannel);
    } else if (rc == MUSTER_UNIMPLEMENTED) {
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

    MUSTER_ASSERT(!health->is_open);
    grpc__health__v1__health_check_request__init(&request);
    request.service = subchannel->channel->health_service;
    health->call->data = subchannel;
    health->is_open = grpc_health_v1_health_watch_start(health->call, subchannel->channel, &options,
                                                        &request, on_status, on_done) == MUSTER_OK;
    if (!health->is_open)
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

    health->is_wanted = true;
    health->is_stale = health->is_open;
    health->backoff_ns = 0;
    if (!health->is_open)
        watch_start(subchannel);
}

void muster_rpc_subchannel_health_stop(struct muster_rpc_subchannel *subchannel)
{
    struct muster_rpc_subchannel_health *health = &subchannel->health;

    health->is_wanted = false;
    muster_timer_stop(&health->timer);
    if (health->is_open)
        muster_call_cancel(&health->call->stub.call);
}
