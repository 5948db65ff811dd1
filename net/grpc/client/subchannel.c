/* A subchannel: its state, backoff, and the connections that it has had. */
#include "net/grpc/client/subchannel.h"

#include "net/grpc/client/channel_internal.h"

static void subchannel_move(struct muster_rpc_subchannel *subchannel,
                            enum muster_channel_state state)
{
    subchannel->state = state;
    subchannel->listener->on_change(subchannel);
}

/* A call waits for a connection, or connections are kept anyway. */
static bool is_wanted(const struct muster_channel *channel)
{
    return channel->options.load_balancing == MUSTER_ROUND_ROBIN ||
           !muster_list_is_empty(&channel->waiting);
}

/* No connection, nothing in progress: connect when somebody waits for it. */
static void become_idle(struct muster_rpc_subchannel *subchannel)
{
    MUSTER_ASSERT(subchannel->current == NULL && subchannel->state != MUSTER_CHANNEL_SHUTDOWN);
    subchannel_move(subchannel, is_wanted(subchannel->channel) ? MUSTER_CHANNEL_CONNECTING
                                                               : MUSTER_CHANNEL_IDLE);
    if (subchannel->state == MUSTER_CHANNEL_CONNECTING)
        muster_rpc_subchannel_connect_begin(subchannel);
}

static void on_backoff(struct muster_timer *timer)
{
    become_idle(timer->data);
}

void muster_rpc_subchannel_connect(struct muster_rpc_subchannel *subchannel)
{
    MUSTER_ASSERT(subchannel->state == MUSTER_CHANNEL_IDLE);
    subchannel->state = MUSTER_CHANNEL_CONNECTING;
    muster_rpc_subchannel_connect_begin(subchannel);
}

static void attempt_failed(struct muster_rpc_subchannel *subchannel)
{
    const struct muster_channel *channel = subchannel->channel;
    struct muster_env *env = channel->env;
    uint64_t delay_ns = muster_backoff_next(&channel->backoff, &subchannel->backoff_ns, env->rng);

    MUSTER_ASSERT(subchannel->current == NULL);
    MUSTER_LOG(env, DEBUG, "rpc_connect_failed", "target", channel->target.authority, "reason",
               muster_endpoint_cause(subchannel->error.text, channel->target.authority));
    muster_timer_start(&subchannel->backoff_timer, env->loop,
                       muster_loop_after_ns(env->loop, delay_ns));
    subchannel->has_failed = true;
    subchannel->listener->on_loss(subchannel);
    subchannel_move(subchannel, MUSTER_CHANNEL_TRANSIENT_FAILURE);
}

static void subchannel_judge(struct muster_rpc_subchannel *subchannel,
                             enum muster_channel_state state, const struct muster_error *error)
{
    subchannel->error = *error;
    subchannel->has_failed = state == MUSTER_CHANNEL_TRANSIENT_FAILURE;
    subchannel_move(subchannel, state);
}

static void transport_ready(struct muster_rpc_subchannel *subchannel,
                            struct muster_rpc_transport *transport)
{
    static const struct muster_error none = {.rc = MUSTER_OK};

    if (subchannel->scale.transport == transport) {
        muster_rpc_subchannel_scaled(subchannel);
        return;
    }
    if (subchannel->current != transport)
        return;
    if (subchannel->health.call != NULL) /* it says more */
        muster_rpc_subchannel_health_start(subchannel);
    else
        subchannel_judge(subchannel, MUSTER_CHANNEL_READY, &none);
}

/* A server that accepts and dies again and again is not hurried. */
static bool was_healthy(const struct muster_channel *channel,
                        const struct muster_rpc_transport *transport)
{
    return transport->has_served || muster_loop_now_ns(channel->env->loop) - transport->ready_ns >=
                                        channel->options.backoff_base_ns;
}

/* Another connection of a subchannel that is READY becomes the current one. */
static bool takes_over(struct muster_rpc_subchannel *subchannel)
{
    muster_rpc_subchannel_scale_cancel(subchannel);
    if (subchannel->state != MUSTER_CHANNEL_READY)
        return false;
    subchannel->current = muster_rpc_subchannel_other(subchannel);
    if (subchannel->current != NULL && subchannel->health.call != NULL)
        muster_rpc_subchannel_health_start(subchannel);
    return subchannel->current != NULL;
}

static void transport_lost(struct muster_rpc_subchannel *subchannel,
                           struct muster_rpc_transport *transport, const struct muster_error *error)
{
    const struct muster_channel *channel = subchannel->channel;
    struct muster_error copy = *error;

    MUSTER_ASSERT(transport->subchannel == subchannel);
    transport->is_lost = true;
    if (subchannel->scale.transport == transport)
        muster_rpc_subchannel_scale_failed(subchannel);
    if (subchannel->current != transport)
        return;
    subchannel->current = NULL;
    muster_rpc_subchannel_health_stop(subchannel);
    if (subchannel->state == MUSTER_CHANNEL_SHUTDOWN || takes_over(subchannel))
        return;
    if (channel->options.tls == NULL && muster_h2_session_is_unheard(transport->session.h2)) {
        muster_rpc_subchannel_connect_doubt(subchannel, &copy);
    } else if (!transport->is_ready) {
        muster_rpc_subchannel_connect_next(subchannel, &copy);
    } else if (was_healthy(channel, transport)) { /* the first attempt is immediate */
        subchannel->backoff_ns = 0;
        subchannel->error = copy;
        subchannel->listener->on_loss(subchannel);
        become_idle(subchannel);
    } else {
        subchannel->error = copy;
        attempt_failed(subchannel);
    }
}

static void subchannel_check_gone(struct muster_rpc_subchannel *subchannel)
{
    const struct muster_rpc_subchannel_listener *listener = subchannel->listener;
    struct muster_channel *channel = subchannel->channel;

    if (subchannel->state != MUSTER_CHANNEL_SHUTDOWN ||
        !muster_list_is_empty(&subchannel->transports) || subchannel->is_looking_up ||
        subchannel->is_connecting || subchannel->is_probing || subchannel->scale.is_dialling ||
        subchannel->health.is_open)
        return;
    muster_list_remove(&subchannel->node);
    muster_rpc_subchannel_health_fini(subchannel);
    muster_mem_free(channel->env->mem, subchannel);
    listener->on_gone(channel);
}

static const struct muster_rpc_subchannel_events part_events = {
    .on_attempt_failed = attempt_failed,
    .on_transport_ready = transport_ready,
    .on_transport_lost = transport_lost,
    .on_judged = subchannel_judge,
    .on_part_ended = subchannel_check_gone,
};

struct muster_rpc_subchannel *muster_rpc_subchannel_new(
    struct muster_channel *channel, const struct muster_rpc_subchannel_listener *listener,
    const struct muster_endpoint *endpoints, size_t count)
{
    struct muster_rpc_subchannel *subchannel =
        muster_mem_alloc_zero(channel->env->mem, 1, sizeof(*subchannel));

    if (subchannel == NULL)
        return NULL;
    subchannel->channel = channel;
    subchannel->listener = listener;
    subchannel->events = &part_events;
    subchannel->endpoints = endpoints != NULL ? endpoints : &subchannel->endpoint;
    subchannel->endpoint_count = endpoints != NULL ? count : 1;
    subchannel->state = MUSTER_CHANNEL_IDLE;
    muster_list_init(&subchannel->transports);
    muster_timer_init(&subchannel->backoff_timer, on_backoff, subchannel);
    if (muster_rpc_subchannel_health_init(subchannel) != MUSTER_OK) {
        muster_mem_free(channel->env->mem, subchannel);
        return NULL;
    }
    muster_list_append(&channel->subchannels, &subchannel->node);
    return subchannel;
}

void muster_rpc_subchannel_retire(struct muster_rpc_subchannel *subchannel,
                                  struct muster_rpc_transport *transport, const char *why)
{
    struct muster_error error;

    (void)muster_error_set(&error, MUSTER_UNAVAILABLE, "%s", why);
    muster_h2_session_drain(transport->session.h2, "");
    transport_lost(subchannel, transport, &error);
    subchannel->listener->on_change(subchannel);
}

void muster_rpc_subchannel_close(struct muster_rpc_subchannel *subchannel, bool is_orderly)
{
    if (subchannel->state == MUSTER_CHANNEL_SHUTDOWN && is_orderly)
        return;
    subchannel->state = MUSTER_CHANNEL_SHUTDOWN;
    subchannel->current = NULL;
    muster_timer_stop(&subchannel->backoff_timer);
    muster_rpc_subchannel_health_stop(subchannel);
    muster_rpc_subchannel_connect_cancel(subchannel);
    muster_rpc_subchannel_scale_cancel(subchannel);
    MUSTER_LIST_EACH_SAFE (&subchannel->transports, transport, struct muster_rpc_transport, node) {
        if (is_orderly)
            muster_h2_session_drain(transport->session.h2, "");
        else
            muster_rpc_transport_close(transport);
    }
    subchannel_check_gone(subchannel);
}
