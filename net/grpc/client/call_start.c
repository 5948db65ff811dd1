/* A call as its user starts it: its options, the policy of its method, its deadline, the
 * interceptors. A refusal by the return value leaves no call behind; whatever fails later comes by
 * done. */
#include <stdio.h>
#include <string.h>

#include "net/grpc/client/channel_internal.h"
#include "runtime/loop/deadline.h"

/* The text also names the last failure when the call was waiting for a connection or for its next
 * attempt. */
static void on_expire(struct muster_timer *timer)
{
    struct muster_grpc_call *call = timer->data;
    const struct muster_error *error = muster_rpc_balance_error(call->channel);
    char text[MUSTER_ERROR_TEXT_BYTES];

    if (call->state == MUSTER_GRPC_CALL_WAITING && error->rc != MUSTER_OK)
        (void)snprintf(text, sizeof(text), "deadline exceeded while connecting: %.200s",
                       error->text);
    else if (call->state == MUSTER_GRPC_CALL_PAUSED)
        (void)snprintf(text, sizeof(text), "deadline exceeded, the last attempt said: %.180s",
                       call->outcome.text);
    else
        (void)snprintf(text, sizeof(text), "deadline exceeded");
    muster_grpc_call_finish(call, MUSTER_DEADLINE_EXCEEDED, text);
}

static struct muster_grpc_call *call_new(struct muster_channel *channel)
{
    struct muster_mem *mem = &channel->pool.mem;
    struct muster_list *node = muster_list_pop(&channel->free_calls);
    struct muster_grpc_call *call;

    /* A kept record has its buffers still, so a call in the steady state allocates nothing. */
    if (node != NULL) {
        call = MUSTER_CONTAINER_OF(node, struct muster_grpc_call, node);
        channel->free_call_count--;
    } else {
        call = muster_mem_alloc_zero(mem, 1, sizeof(*call));
        if (call == NULL)
            return NULL;
        call->channel = channel;
        muster_list_init(&call->node);
        muster_timer_init(&call->timer, on_expire, call);
        muster_timer_init(&call->retry_timer, muster_grpc_call_on_retry, call);
        muster_task_init(&call->done_task, muster_grpc_call_on_done, call);
        muster_grpc_parser_init(&call->parser, mem, channel->options.receive_message_max_bytes);
        muster_grpc_call_receive_init(call);
        muster_grpc_metadata_init(&call->request, mem);
        muster_grpc_metadata_init(&call->initial, mem);
        muster_grpc_metadata_init(&call->trailing, mem);
    }
    muster_grpc_call_reset(call);
    muster_list_append(&channel->calls, &call->channel_node);
    return call;
}

static enum muster_rc request_store(struct muster_grpc_call *call,
                                    const struct muster_call_options *options,
                                    struct muster_error *ret_error)
{
    enum muster_rc rc = muster_grpc_metadata_add_wire(&call->request, ":path", 5, options->method,
                                                      strlen(options->method));

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "out of memory");
    return muster_grpc_metadata_add_user(&call->request, &options->metadata, ret_error);
}

/* The interceptors decide whether it is sent; a refusal comes by done. The library's own calls
 * (health checks, which are pinned to a subchannel) are neither counted nor intercepted. */
static void call_begin(struct muster_grpc_call *call, const struct muster_call_options *options)
{
    struct muster_channel *channel = call->channel;
    const struct muster_intercepted seen = {
        .env = channel->env,
        .method = call->request.entries[0].value,
        .metadata = options->metadata,
        .deadline_ns = call->deadline_ns,
        .call = call->call,
        .added = &call->request,
    };
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;

    if (call->subchannel == NULL)
        muster_rpc_tally_start(&call->tally,
                               muster_rpc_metrics_series(channel->metrics, MUSTER_RPC_CLIENT,
                                                         options->method, channel->target_text),
                               channel->env->loop);
    if (channel->interceptors.count > 0 && call->subchannel == NULL)
        rc = muster_interception_start(&call->interception, &channel->interceptors, &seen, &error);
    /* The options are the caller's, and gone when the call is over. */
    call->interception.call.metadata = (struct muster_metadata){NULL, 0};
    if (rc == MUSTER_OK)
        muster_channel_place(channel, call);
    else
        muster_grpc_call_decide(call, rc, error.text);
}

/* Applies the channel's policy for calls of this method; policy may be NULL. The earlier deadline
 * holds; a size of the policy takes the place of the channel's, but a message's prefix has 32 bits for
 * its size; a policy can make a call wait for a connection, but not forbid it. */
static void apply_policy(struct muster_grpc_call *call, const struct muster_method_policy *policy)
{
    const struct muster_channel *channel = call->channel;
    uint64_t limit_ns;

    call->request_max_bytes = UINT32_MAX;
    call->parser.message_max_bytes = channel->options.receive_message_max_bytes;
    if (policy == NULL)
        return;
    call->retry.policy = &policy->retry;
    call->wait_for_ready = call->wait_for_ready || policy->wait_for_ready;
    if (policy->request_max_bytes != 0 && policy->request_max_bytes < UINT32_MAX)
        call->request_max_bytes = policy->request_max_bytes;
    if (policy->response_max_bytes != 0)
        call->parser.message_max_bytes = policy->response_max_bytes;
    limit_ns = muster_loop_after_ns(channel->env->loop, policy->timeout_ns);
    if (policy->timeout_ns != 0 && limit_ns < call->deadline_ns)
        call->deadline_ns = limit_ns;
}

static enum muster_rc options_check(const struct muster_call_options *options,
                                    const struct muster_env *env, struct muster_error *ret_error)
{
    if (options == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "muster_call_start: options must not be NULL: a call needs a "
                                "method and a deadline_ns; set both");
    if (options->method == NULL || options->method[0] != '/')
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "muster_call_start: method must be \"/package.Service/Method\", got "
            "%s%.60s%s",
            options->method == NULL ? "" : "\"", options->method == NULL ? "NULL" : options->method,
            options->method == NULL ? "" : "\"");
    return muster_deadline_check(env, "muster_call_start", options->deadline_ns, ret_error);
}

enum muster_rc muster_call_start(struct muster_call *user, struct muster_channel *channel,
                                 const struct muster_call_options *options,
                                 muster_call_done_fn *done)
{
    struct muster_grpc_call *call;
    enum muster_rc rc;

    if (channel->state == MUSTER_CHANNEL_SHUTDOWN)
        return muster_error_set(&user->status, MUSTER_FAILED_PRECONDITION,
                                "muster_call_start: the channel is closed");
    rc = options_check(options, channel->env, &user->status);
    if (rc != MUSTER_OK)
        return rc;
    call = call_new(channel);
    if (call == NULL)
        return muster_error_set(&user->status, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    rc = request_store(call, options, &user->status);
    if (rc != MUSTER_OK) {
        muster_grpc_call_release(call);
        return rc;
    }
    call->call = user;
    call->deadline_ns = options->deadline_ns;
    call->wait_for_ready = options->wait_for_ready;
    call->subchannel = options->subchannel;
    apply_policy(call, call->subchannel == NULL
                           ? muster_method_policy_table_find(&channel->policies, options->method)
                           : NULL);
    call->compression = options->compression;
    call->is_compressing = options->compression != MUSTER_COMPRESSION_NONE;
    call->on_headers = options->on_headers;
    call->on_place = options->on_place;
    call->on_message = options->on_message;
    call->on_writable = options->on_writable;
    user->done = NULL; /* the callback rule: it is set when start returns */
    user->impl = call;
    memset(&user->status, 0, sizeof(user->status));
    if (call->deadline_ns != UINT64_MAX)
        muster_timer_start(&call->timer, channel->env->loop, call->deadline_ns);
    call_begin(call, options);
    user->done = done;
    return MUSTER_OK;
}
