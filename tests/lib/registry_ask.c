/* Calls of the registry's services with the messages of etcd, and their answers as they are. */
#include "registry_ask.h"

#include <string.h>

#include "proto/guard.h"

void registry_ask_open(struct registry_ask *ask, struct muster_env *env, const char *endpoint)
{
    struct muster_error error;

    memset(ask, 0, sizeof(*ask));
    ask->env = env;
    ask->call.data = ask;
    if (muster_channel_open(env, endpoint, NULL, &ask->channel, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_channel_set_data(ask->channel, ask);
}

static void ask_forget(struct registry_ask *ask)
{
    muster_proto_free(ask->answer);
    ask->answer = NULL;
    ask->has_answer = false;
}

static void on_closed(struct muster_channel *channel)
{
    ((struct registry_ask *)muster_channel_data(channel))->is_closed = true;
}

void registry_ask_close(struct registry_ask *ask)
{
    ask_forget(ask);
    muster_channel_close(ask->channel, on_closed);
    test_env_run_until(ask->env, test_env_is_true, &ask->is_closed);
}

static void on_message(struct muster_call *call, struct muster_bytes message)
{
    struct registry_ask *ask = call->data;

    ask_forget(ask);
    assert_int_equal(muster_proto_unpack(ask->env->mem, ask->descriptor, message.data, message.size,
                                         NULL, &ask->answer, NULL),
                     MUSTER_OK);
    ask->has_answer = true;
    if (ask->on_answer != NULL)
        ask->on_answer(ask);
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct registry_ask *ask = call->data;

    ask->rc = rc;
    ask->error = call->status;
    ask->is_done = true;
}

void registry_ask_begin(struct registry_ask *ask, const char *method, const void *descriptor)
{
    const struct muster_call_options options = {
        .method = method,
        .deadline_ns = muster_loop_after_ns(ask->env->loop, DEADLINE_NS),
        .on_message = on_message};

    ask_forget(ask);
    ask->is_done = false;
    ask->descriptor = descriptor;
    assert_int_equal(muster_call_start(&ask->call, ask->channel, &options, on_done), MUSTER_OK);
}

void registry_ask_send(struct registry_ask *ask, const void *request)
{
    void *bytes = NULL;
    size_t size = 0;

    if (request == NULL) {
        assert_int_equal(muster_call_send(&ask->call, "\xff", 1), MUSTER_OK);
        return;
    }
    assert_int_equal(muster_proto_pack(ask->env->mem, request, &bytes, &size), MUSTER_OK);
    assert_int_equal(muster_call_send(&ask->call, bytes, size), MUSTER_OK);
    muster_mem_free(ask->env->mem, bytes);
}

static bool is_answered(void *data)
{
    const struct registry_ask *ask = data;

    return ask->has_answer || ask->is_done;
}

void registry_ask_say(struct registry_ask *ask, const void *request)
{
    ask_forget(ask);
    registry_ask_send(ask, request);
    test_env_run_until(ask->env, is_answered, ask);
}

enum muster_rc registry_ask_end(struct registry_ask *ask)
{
    muster_call_half_close(&ask->call);
    test_env_run_until(ask->env, test_env_is_true, &ask->is_done);
    return ask->rc;
}

enum muster_rc registry_ask(struct registry_ask *ask, const char *method, const void *request,
                            const void *descriptor)
{
    registry_ask_begin(ask, method, descriptor);
    registry_ask_send(ask, request);
    return registry_ask_end(ask);
}
