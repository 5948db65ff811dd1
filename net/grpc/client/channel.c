/* A channel: its connectivity state, and the calls that wait for a connection. It owns all:
 * balance.c chooses servers, call*.c are the calls; both report by the table `listener` below. The
 * state follows from those of the subchannels, except SHUTDOWN. */
#include <stdio.h>
#include <string.h>

#include "net/stream/net_internal.h"
#include "net/grpc/client/channel_internal.h"
#include "net/grpc/client/service_config.h"

/* The defaults of gRPC's other implementations, so that a service sees the same load from all of
 * its clients: connection-backoff.md (attempt, first and longest wait), gRFC A8 (keepalive), 4 MiB
 * for a message, and 256 KiB of a call kept to send it again (gRFC A6, the buffer of one call). */
#define CONNECT_TIMEOUT_NS   (20 * MUSTER_NS_PER_S)
#define BACKOFF_BASE_NS      MUSTER_NS_PER_S
#define BACKOFF_MAX_NS       (120 * MUSTER_NS_PER_S)
#define KEEPALIVE_TIMEOUT_NS (20 * MUSTER_NS_PER_S)
#define MESSAGE_MAX_BYTES    (4u << 20)
#define REPLAY_MAX_BYTES     (256u << 10)
/* Memory of finished calls that stays for the next ones. */
#define POOL_KEPT_MAX_BYTES (4u << 20)

static struct muster_grpc_call *call_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct muster_grpc_call, node);
}

/* The reason with which a transport that has refused a call is retired. */
static const char *refusal_of(const struct muster_rpc_transport *transport, enum muster_rc rc)
{
    if (rc == MUSTER_RESOURCE_EXHAUSTED)
        return "out of memory";
    return muster_h2_session_has_failed(transport->session.h2)
               ? muster_h2_session_error(transport->session.h2)->text
               : "the connection takes no more calls";
}

static void submit_call(struct muster_channel *channel, struct muster_grpc_call *call)
{
    struct muster_rpc_subchannel *subchannel = muster_rpc_balance_pick(channel);
    struct muster_rpc_transport *transport = muster_rpc_subchannel_choose(subchannel);
    enum muster_rc rc = MUSTER_UNAVAILABLE;

    if (transport != NULL)
        rc = muster_grpc_call_submit(call, transport);
    if (rc == MUSTER_OK)
        return;
    muster_list_append(&channel->waiting, &call->node);
    if (transport == NULL)
        return;
    /* It is down (on_down follows), has no memory, or its stream ids are used up: it ends when its
     * calls have. */
    muster_rpc_subchannel_retire(subchannel, transport, refusal_of(transport, rc));
}

/* A call about this very connection (the health check): no other one will do. */
static void submit_pinned(struct muster_grpc_call *call)
{
    struct muster_rpc_transport *transport = call->subchannel->current;

    if (transport == NULL || transport->state != MUSTER_RPC_TRANSPORT_READY ||
        muster_grpc_call_submit(call, transport) != MUSTER_OK)
        muster_grpc_call_decide(call, MUSTER_UNAVAILABLE, "the connection is gone");
}

/* Writes why there is no connection. Most texts name the address; a failed look-up of a name may
 * not. */
static void describe_failure(struct muster_channel *channel, char *text, size_t bytes)
{
    const char *why = muster_rpc_balance_error(channel)->text;
    bool is_named = strstr(why, channel->target.authority) != NULL;

    (void)snprintf(text, bytes, "%.200s%s%.30s", why, is_named ? "" : ": ",
                   is_named ? "" : channel->target.authority);
}

void muster_channel_place(struct muster_channel *channel, struct muster_grpc_call *call)
{
    char text[MUSTER_ERROR_TEXT_BYTES];

    MUSTER_ASSERT(call->state == MUSTER_GRPC_CALL_WAITING);
    if (call->subchannel != NULL) {
        submit_pinned(call);
        return;
    }
    switch (channel->state) {
    case MUSTER_CHANNEL_READY:
        submit_call(channel, call);
        break;
    case MUSTER_CHANNEL_IDLE:
        muster_list_append(&channel->waiting, &call->node);
        muster_rpc_balance_begin(channel);
        break;
    case MUSTER_CHANNEL_TRANSIENT_FAILURE:
        if (!call->wait_for_ready) {
            describe_failure(channel, text, sizeof(text));
            muster_grpc_call_reject(call, MUSTER_UNAVAILABLE, text);
            break;
        }
        muster_list_append(&channel->waiting, &call->node);
        break;
    case MUSTER_CHANNEL_CONNECTING:
        muster_list_append(&channel->waiting, &call->node);
        break;
    case MUSTER_CHANNEL_SHUTDOWN:
        muster_grpc_call_decide(call, MUSTER_CANCELLED, "channel is closed");
        break;
    }
}

/* All that wait are placed again: in READY they are sent, in TRANSIENT_FAILURE those fail that do
 * not wait for ready. The list is taken first, since placing may put a call back, or change the
 * state. */
static void place_waiting(struct muster_channel *channel)
{
    struct muster_list waiting;
    struct muster_list *node;

    muster_list_take_all(&waiting, &channel->waiting);
    while ((node = muster_list_pop(&waiting)) != NULL)
        muster_channel_place(channel, call_of(node));
}

/* The user hears of a change from the loop, never inside a call of the API; several changes in one
 * turn are told once. */
static void on_state_task(struct muster_task *task)
{
    struct muster_channel *channel = task->data;

    if (channel->on_state != NULL && channel->state != MUSTER_CHANNEL_SHUTDOWN)
        channel->on_state(channel);
}

static void channel_update(struct muster_channel *channel)
{
    enum muster_channel_state state = muster_rpc_balance_state(channel);

    if (channel->state == MUSTER_CHANNEL_SHUTDOWN)
        return;
    if (channel->state != state && channel->on_state != NULL)
        muster_task_post(&channel->state_task, channel->env->loop);
    channel->state = state;
    if (state == MUSTER_CHANNEL_READY || state == MUSTER_CHANNEL_TRANSIENT_FAILURE)
        place_waiting(channel);
}

static void options_default(struct muster_channel_options *options)
{
    if (options->connect_timeout_ns == 0)
        options->connect_timeout_ns = CONNECT_TIMEOUT_NS;
    if (options->backoff_base_ns == 0)
        options->backoff_base_ns = BACKOFF_BASE_NS;
    if (options->backoff_max_ns == 0)
        options->backoff_max_ns = BACKOFF_MAX_NS;
    if (options->keepalive_timeout_ns == 0)
        options->keepalive_timeout_ns = KEEPALIVE_TIMEOUT_NS;
    if (options->receive_message_max_bytes == 0)
        options->receive_message_max_bytes = MESSAGE_MAX_BYTES;
    if (options->replay_max_bytes == 0)
        options->replay_max_bytes = REPLAY_MAX_BYTES;
}

/* gRPC's connection-backoff.md: each wait is 1.6 times the one before, jittered by 20 % so that the
 * clients of a server that has come back do not all knock in the same moment. */
static struct muster_backoff backoff_of(const struct muster_channel_options *options)
{
    return (struct muster_backoff){.first_ns = options->backoff_base_ns,
                                   .max_ns = options->backoff_max_ns,
                                   .growth_permille = 1600,
                                   .jitter_permille = 200};
}

static void tls_fini(struct muster_channel *channel)
{
    muster_tls_sessions_free(channel->tls_sessions);
    muster_mem_free(channel->env->mem, channel->tls_server_name);
    muster_tls_close(channel->options.tls);
}

static void channel_free(struct muster_channel *channel)
{
    struct muster_list *node;

    MUSTER_ASSERT(muster_list_is_empty(&channel->calls));
    MUSTER_ASSERT(muster_list_is_empty(&channel->waiting));
    while ((node = muster_list_pop(&channel->free_calls)) != NULL)
        muster_grpc_call_free(call_of(node));
    muster_task_cancel(&channel->closed_task);
    muster_task_cancel(&channel->state_task);
    muster_rpc_inflation_fini(&channel->inflation);
    muster_rpc_balance_free(channel);
    muster_method_policy_table_fini(&channel->policies, channel->env->mem);
    muster_mem_pool_fini(&channel->pool);
    tls_fini(channel);
    muster_mem_free(channel->env->mem, channel->target_text);
    muster_mem_free(channel->env->mem, channel);
}

static void on_closed_task(struct muster_task *task)
{
    struct muster_channel *channel = task->data;

    MUSTER_ASSERT(channel->state == MUSTER_CHANNEL_SHUTDOWN);
    if (channel->closed != NULL)
        channel->closed(channel);
    channel_free(channel);
}

/* It runs after each part that goes: the task is posted by the last one. Posting twice is harmless.
 */
static void channel_check_closed(struct muster_channel *channel)
{
    if (channel->state == MUSTER_CHANNEL_SHUTDOWN && muster_list_is_empty(&channel->calls) &&
        muster_rpc_balance_is_closed(channel))
        muster_task_post(&channel->closed_task, channel->env->loop);
}

static const struct muster_channel_listener listener = {
    .on_call_waiting = muster_channel_place,
    .on_change = channel_update,
    .on_part_gone = channel_check_closed,
};

static void channel_init(struct muster_channel *channel, struct muster_env *env,
                         const struct muster_channel_options *options)
{
    channel->listener = &listener;
    channel->env = env;
    muster_mem_pool_init(&channel->pool, env->mem, POOL_KEPT_MAX_BYTES);
    if (options != NULL)
        channel->options = *options;
    if (channel->options.tls != NULL)
        (void)muster_tls_share(channel->options.tls);
    options_default(&channel->options);
    channel->backoff = backoff_of(&channel->options);
    channel->counters = &channel->own_counters;
    channel->state = MUSTER_CHANNEL_IDLE;
    muster_list_init(&channel->subchannels);
    muster_list_init(&channel->waiting);
    muster_list_init(&channel->calls);
    muster_list_init(&channel->free_calls);
    muster_rpc_inflation_init(&channel->inflation, env->loop);
    muster_task_init(&channel->state_task, on_state_task, channel);
    muster_task_init(&channel->closed_task, on_closed_task, channel);
}

/* The name that certificates must be for: as given, or the host of the authority. Without both it
 * is each endpoint's own host. */
static enum muster_rc tls_name_init(struct muster_channel *channel, struct muster_error *ret_error)
{
    const struct muster_channel_options *options = &channel->options;
    const char *name = options->tls_server_name;
    struct muster_endpoint endpoint;
    enum muster_rc rc;

    if (name == NULL && options->authority != NULL) {
        rc = muster_endpoint_parse(options->authority, 443, &endpoint, ret_error);
        if (rc != MUSTER_OK)
            return rc;
        name = endpoint.host;
    }
    if (name == NULL)
        return MUSTER_OK;
    channel->tls_server_name = muster_mem_strdup(channel->env->mem, name);
    if (channel->tls_server_name == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    return MUSTER_OK;
}

static enum muster_rc tls_init(struct muster_channel *channel, struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (channel->options.tls == NULL)
        return MUSTER_OK;
    rc = tls_name_init(channel, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    channel->tls_sessions = muster_tls_sessions_new(channel->env->mem);
    if (channel->tls_sessions == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    return MUSTER_OK;
}

/* The names under which its calls and connections are counted. gRPC A66 wants the target in
 * canonical form, so one without a scheme gets the default. */
static enum muster_rc metrics_init(struct muster_channel *channel, const char *target,
                                   struct muster_error *ret_error)
{
    static const char *const schemes[] = {"dns:", "ipv4:", "ipv6:", "unix:"};
    const char *scheme = "dns:///";

    channel->metrics = channel->env->rpc_metrics;
    if (channel->metrics == NULL)
        return MUSTER_OK;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (strncmp(target, schemes[i], strlen(schemes[i])) == 0)
            scheme = "";
    }
    channel->target_text = muster_mem_alloc(channel->env->mem, strlen(scheme) + strlen(target) + 1);
    if (channel->target_text == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    (void)sprintf(channel->target_text, "%s%s", scheme, target);
    channel->counters = muster_rpc_metrics_counters(channel->metrics, MUSTER_RPC_CLIENT,
                                                    channel->target_text, &channel->own_counters);
    return MUSTER_OK;
}

/* The authority that the options name takes the place of the target's. */
static enum muster_rc authority_set(struct muster_channel *channel, struct muster_error *ret_error)
{
    const char *authority = channel->options.authority;
    size_t room = sizeof(channel->target.authority);

    if (authority == NULL)
        return MUSTER_OK;
    if (strlen(authority) >= room)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "authority must be shorter than %zu bytes, got %zu: \"%.64s…\"",
                                room, strlen(authority), authority);
    (void)snprintf(channel->target.authority, room, "%s", authority);
    return MUSTER_OK;
}

/* Sets up all that the options give beyond numbers. The service config is applied first because the
 * checks after it must see what holds in the end; its texts are copied by those who keep them, so
 * it goes at the end. */
static enum muster_rc channel_configure(struct muster_channel *channel, const char *target,
                                        struct muster_error *ret_error)
{
    const struct muster_channel_options *options = &channel->options;
    struct muster_service_config config = {.root = NULL};
    enum muster_rc rc = muster_rpc_target_parse(target, &channel->target, ret_error);

    if (rc == MUSTER_OK && options->service_config != NULL)
        rc = muster_service_config_init(&config, channel->env->mem, options->service_config,
                                        ret_error);
    if (rc == MUSTER_OK)
        muster_service_config_apply(&config, &channel->options);
    if (rc == MUSTER_OK)
        rc = authority_set(channel, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_interceptor_chain_init(&channel->interceptors, options->interceptors,
                                           options->interceptor_count, ret_error);
    if (rc == MUSTER_OK)
        rc = metrics_init(channel, target, ret_error);
    if (rc == MUSTER_OK)
        rc = tls_init(channel, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_rpc_throttle_init(&channel->throttle, &options->retry_throttle, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_method_policy_table_init(&channel->policies, channel->env->mem,
                                             options->method_policies, options->method_policy_count,
                                             ret_error);
    if (rc == MUSTER_OK)
        rc = muster_rpc_balance_open(channel, ret_error);
    muster_service_config_fini(&config);
    return rc;
}

enum muster_rc muster_channel_open(struct muster_env *env, const char *target,
                                   const struct muster_channel_options *options,
                                   struct muster_channel **ret_channel,
                                   struct muster_error *ret_error)
{
    struct muster_channel *channel;
    enum muster_rc rc;

    if (env->net == NULL)
        return muster_net_missing(ret_error);
    channel = muster_mem_alloc_zero(env->mem, 1, sizeof(*channel));
    if (channel == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    channel_init(channel, env, options);
    rc = channel_configure(channel, target, ret_error);
    if (rc != MUSTER_OK) {
        channel_free(channel);
        return rc;
    }
    *ret_channel = channel;
    return MUSTER_OK;
}

void muster_channel_close(struct muster_channel *channel, muster_channel_close_fn *closed)
{
    if (channel->state == MUSTER_CHANNEL_SHUTDOWN)
        return;
    channel->state = MUSTER_CHANNEL_SHUTDOWN;
    channel->closed = closed;
    MUSTER_LIST_EACH(&channel->calls, call, struct muster_grpc_call, channel_node)
        muster_grpc_call_decide(call, MUSTER_CANCELLED, "channel is closed");
    muster_rpc_balance_close(channel);
    channel_check_closed(channel);
}

void muster_channel_set_on_state(struct muster_channel *channel, muster_channel_event_fn *on_state)
{
    channel->on_state = on_state;
}

void muster_channel_connect(struct muster_channel *channel)
{
    if (channel->state == MUSTER_CHANNEL_IDLE)
        muster_rpc_balance_begin(channel);
}

enum muster_channel_state muster_channel_state(const struct muster_channel *channel)
{
    return channel->state;
}

const struct muster_error *muster_channel_error(const struct muster_channel *channel)
{
    return muster_rpc_balance_error(channel);
}

void muster_channel_set_data(struct muster_channel *channel, void *data)
{
    channel->data = data;
}

void *muster_channel_data(const struct muster_channel *channel)
{
    return channel->data;
}
