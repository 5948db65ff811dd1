/* A subchannel: its state, its backoff and the connections that it has had. balance.c creates one
 * for each server (or one for a whole target) and hears of changes by the listener; the parts
 * (subchannel_connect.c, transport.c, subchannel_scale.c, subchannel_health_proto.c) report here by
 * the table of events, and only this file moves the state. */
#include "net/grpc/client/subchannel.h"

#include "net/grpc/client/channel_internal.h"

/* Only an attempt leads out of IDLE. A server's health moves the state between READY and
 * TRANSIENT_FAILURE, and is told again when it stays as it was. SHUTDOWN is final. */
static const bool moves[5][5] = {
    [MUSTER_CHANNEL_IDLE] = {[MUSTER_CHANNEL_CONNECTING] = true, [MUSTER_CHANNEL_SHUTDOWN] = true},
    [MUSTER_CHANNEL_CONNECTING] = {[MUSTER_CHANNEL_IDLE] = true,
                                   [MUSTER_CHANNEL_CONNECTING] = true,
                                   [MUSTER_CHANNEL_READY] = true,
                                   [MUSTER_CHANNEL_TRANSIENT_FAILURE] = true,
                                   [MUSTER_CHANNEL_SHUTDOWN] = true},
    [MUSTER_CHANNEL_READY] = {[MUSTER_CHANNEL_IDLE] = true,
                              [MUSTER_CHANNEL_CONNECTING] = true,
                              [MUSTER_CHANNEL_READY] = true,
                              [MUSTER_CHANNEL_TRANSIENT_FAILURE] = true,
                              [MUSTER_CHANNEL_SHUTDOWN] = true},
    [MUSTER_CHANNEL_TRANSIENT_FAILURE] = {[MUSTER_CHANNEL_IDLE] = true,
                                          [MUSTER_CHANNEL_CONNECTING] = true,
                                          [MUSTER_CHANNEL_READY] = true,
                                          [MUSTER_CHANNEL_TRANSIENT_FAILURE] = true,
                                          [MUSTER_CHANNEL_SHUTDOWN] = true},
};

static void state_set(struct muster_rpc_subchannel *subchannel, enum muster_channel_state state)
{
    MUSTER_ASSERT(moves[subchannel->state][state]);
    subchannel->state = state;
}

static void subchannel_move(struct muster_rpc_subchannel *subchannel,
                            enum muster_channel_state state)
{
    state_set(subchannel, state);
    subchannel->listener->on_change(subchannel);
}

/* Round robin keeps a connection to each server, so that all of them share the load from the first
 * call on; pick first connects only for a call that waits. */
static bool is_wanted(const struct muster_channel *channel)
{
    return channel->options.load_balancing == MUSTER_ROUND_ROBIN ||
           !muster_list_is_empty(&channel->waiting);
}

/* There is no connection and nothing is in progress: the subchannel connects again when somebody
 * waits for it. */
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
    state_set(subchannel, MUSTER_CHANNEL_CONNECTING);
    muster_rpc_subchannel_connect_begin(subchannel);
}

/* All addresses have failed. The error stays for calls that fail meanwhile, and the next attempt
 * waits for the backoff: a server that is down must not be hammered by all its clients. */
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
    /* The owner resolves the names again before it hears of the new state: the server may have
     * moved. */
    subchannel->listener->on_loss(subchannel);
    subchannel_move(subchannel, MUSTER_CHANNEL_TRANSIENT_FAILURE);
}

/* The health service has spoken, or there is none and the connection itself is the verdict. */
static void subchannel_judge(struct muster_rpc_subchannel *subchannel,
                             enum muster_channel_state state, const struct muster_error *error)
{
    MUSTER_ASSERT(state == MUSTER_CHANNEL_READY || state == MUSTER_CHANNEL_TRANSIENT_FAILURE);
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

/* A connection was of use when a call got an answer or it lasted for the first backoff. A server
 * that accepts and dies again and again was not, and is dialled by the backoff like one that
 * refuses. */
static bool was_healthy(const struct muster_channel *channel,
                        const struct muster_rpc_transport *transport)
{
    return transport->has_served || muster_loop_now_ns(channel->env->loop) - transport->ready_ns >=
                                        channel->options.backoff_base_ns;
}

/* Another connection of a subchannel that is READY becomes the current one, so the channel never
 * leaves READY while a server still answers. The health watch starts anew because its call was on
 * the lost connection. */
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
    /* The error may lie in the session or in this subchannel, both of which change below. */
    struct muster_error copy = *error;
    bool was_opening = transport->state == MUSTER_RPC_TRANSPORT_OPENING;

    MUSTER_ASSERT(transport->subchannel == subchannel);
    /* It is marked before anything is called: choosing a transport skips it from now on. */
    if (transport->state < MUSTER_RPC_TRANSPORT_LOST)
        muster_rpc_transport_move(transport, MUSTER_RPC_TRANSPORT_LOST);
    if (subchannel->scale.transport == transport)
        muster_rpc_subchannel_scale_failed(subchannel);
    if (subchannel->current != transport)
        return;
    subchannel->current = NULL;
    muster_rpc_subchannel_health_stop(subchannel);
    if (subchannel->state == MUSTER_CHANNEL_SHUTDOWN || takes_over(subchannel))
        return;
    /* There are four cases: it never spoke in plain text (perhaps it wants TLS: a probe finds out,
     * for the text of the error); it failed before its SETTINGS (the next address); it was of use
     * (connect at once); it was not (backoff). */
    if (channel->options.tls == NULL && muster_h2_session_is_unheard(transport->session.h2)) {
        muster_rpc_subchannel_connect_doubt(subchannel, &copy);
    } else if (was_opening) {
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

/* Each part that calls back holds the memory: only when the last of them has ended may it be freed.
 */
static void subchannel_check_gone(struct muster_rpc_subchannel *subchannel)
{
    const struct muster_rpc_subchannel_listener *listener = subchannel->listener;
    struct muster_channel *channel = subchannel->channel;

    if (subchannel->state != MUSTER_CHANNEL_SHUTDOWN ||
        !muster_list_is_empty(&subchannel->transports) ||
        subchannel->step != MUSTER_RPC_CONNECT_NONE || subchannel->scale.is_dialling ||
        muster_rpc_subchannel_health_is_open(subchannel))
        return;
    muster_list_remove(&subchannel->node);
    muster_rpc_subchannel_health_fini(subchannel);
    muster_mem_free(channel->env->mem, subchannel);
    /* The listener was read before the memory went; the owner must not hear of it earlier, since it
     * may close. */
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
    /* Pick first borrows the endpoints of the whole target; a subchannel of round robin has its own
     * one, which its owner fills in afterwards. */
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

/* It may be asked to go in an orderly way first and at once later (the channel closes meanwhile);
 * the reverse changes nothing. */
void muster_rpc_subchannel_close(struct muster_rpc_subchannel *subchannel, bool is_orderly)
{
    if (subchannel->state == MUSTER_CHANNEL_SHUTDOWN && is_orderly)
        return;
    if (subchannel->state != MUSTER_CHANNEL_SHUTDOWN)
        state_set(subchannel, MUSTER_CHANNEL_SHUTDOWN);
    subchannel->current = NULL;
    muster_timer_stop(&subchannel->backoff_timer);
    muster_rpc_subchannel_health_stop(subchannel);
    muster_rpc_subchannel_connect_cancel(subchannel);
    muster_rpc_subchannel_scale_cancel(subchannel);
    MUSTER_LIST_EACH_SAFE(&subchannel->transports, transport, struct muster_rpc_transport, node) {
        if (is_orderly)
            muster_h2_session_drain(transport->session.h2, "");
        else
            muster_rpc_transport_close(transport);
    }
    subchannel_check_gone(subchannel);
}
