/* A gRPC server with small methods and a channel to it, on one loop over loopback sockets. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/stream.h>

static struct rpc_fixture *fixture_of(const struct muster_rpc *rpc)
{
    return muster_rpc_service(rpc);
}

static void on_start(struct muster_rpc *rpc)
{
    fixture_of(rpc)->started++;
    fixture_of(rpc)->deadline_ns = muster_rpc_deadline_ns(rpc);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    fixture_of(rpc)->ended++;
    fixture_of(rpc)->end_rc = rc;
    if (fixture_of(rpc)->hanging == rpc)
        fixture_of(rpc)->hanging = NULL;
}

static void rpc_send(struct muster_rpc *rpc, const void *bytes, size_t count)
{
    assert_int_equal(muster_rpc_send(rpc, bytes, count), MUSTER_OK);
}

static void on_unary(struct muster_rpc *rpc, struct muster_bytes message)
{
    rpc_send(rpc, message.data, message.size);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static size_t number_of(struct muster_bytes message)
{
    char text[32];

    assert_true(message.size < sizeof(text));
    memcpy(text, message.data, message.size);
    text[message.size] = '\0';
    return strtoul(text, NULL, 10);
}

static void on_source(struct muster_rpc *rpc, struct muster_bytes message)
{
    size_t count = number_of(message);
    char text[32];

    for (size_t i = 0; i < count; i++)
        rpc_send(rpc, text, (size_t)snprintf(text, sizeof(text), "%zu", i));
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_sink_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    uintptr_t sum = (uintptr_t)muster_rpc_data(rpc) + message.size;

    muster_rpc_set_data(rpc, (void *)sum);
}

static void on_sink_end(struct muster_rpc *rpc)
{
    char text[32];
    int length = snprintf(text, sizeof(text), "%zu", (size_t)(uintptr_t)muster_rpc_data(rpc));

    rpc_send(rpc, text, (size_t)length);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_bidi_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    rpc_send(rpc, message.data, message.size);
}

static void on_bidi_end(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_OK, "bye");
}

static void on_hang_start(struct muster_rpc *rpc)
{
    on_start(rpc);
    fixture_of(rpc)->hanging = rpc;
}

static void on_hang_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    (void)rpc;
    (void)message;
}

static void on_fail(struct muster_rpc *rpc, struct muster_bytes message)
{
    char text[256];
    char *rest = NULL;
    unsigned long code;

    assert_true(message.size < sizeof(text));
    memcpy(text, message.data, message.size);
    text[message.size] = '\0';
    code = strtoul(text, &rest, 10);
    muster_rpc_finish(rpc, (enum muster_rc)code, *rest == ' ' ? rest + 1 : NULL);
}

static void on_metadata(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct muster_metadata all = muster_rpc_metadata(rpc);
    struct muster_metadata_entry entries[8];
    struct muster_metadata chosen = {entries, 0};

    for (size_t i = 0; i < all.count && chosen.count < 8; i++) {
        if (strncmp(all.entries[i].name, "x-", 2) == 0)
            entries[chosen.count++] = all.entries[i];
    }
    muster_rpc_send_headers(rpc, chosen);
    muster_rpc_set_trailers(rpc, chosen);
    rpc_send(rpc, message.data, message.size);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_burst(struct muster_rpc *rpc, struct muster_bytes message)
{
    size_t bytes = number_of(message);
    char *block = calloc(1, bytes + 1);
    enum muster_rc rc = MUSTER_OK;

    assert_non_null(block);
    while (rc == MUSTER_OK)
        rc = muster_rpc_send(rpc, block, bytes);
    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_rpc_send(rpc, block, bytes), MUSTER_FAILED_PRECONDITION);
    free(block);
}

static void on_large(struct muster_rpc *rpc, struct muster_bytes message)
{
    size_t bytes = number_of(message);
    char *block = calloc(1, bytes + 1);

    assert_non_null(block);
    rpc_send(rpc, block, bytes);
    free(block);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_writable(struct muster_rpc *rpc)
{
    fixture_of(rpc)->writable++;
}

#define UNARY(name, function)                                                                      \
    {                                                                                              \
        .path = "/test.Echo/" name, .on_start = on_start, .on_message = (function),                \
        .on_end = on_end, .is_unary = true                                                         \
    }
static const struct muster_rpc_method methods[] = {
    UNARY("Unary", on_unary),
    UNARY("Source", on_source),
    UNARY("Fail", on_fail),
    UNARY("Metadata", on_metadata),
    UNARY("Burst", on_burst),
    UNARY("Large", on_large),
    {.path = "/test.Echo/Sink",
     .on_start = on_start,
     .on_message = on_sink_message,
     .on_half_close = on_sink_end,
     .on_end = on_end},
    {.path = "/test.Echo/Bidi",
     .on_start = on_start,
     .on_message = on_bidi_message,
     .on_half_close = on_bidi_end,
     .on_writable = on_writable,
     .on_end = on_end},
    {.path = "/test.Echo/Hang",
     .on_start = on_hang_start,
     .on_message = on_hang_message,
     .on_end = on_end},
};

void rpc_fixture_serve(struct rpc_fixture *fixture, const struct muster_rpc_server_options *options)
{
    struct muster_error error;

    if (fixture->address.port == 0)
        held_ports_take(&fixture->ports, &fixture->address);
    assert_int_equal(muster_rpc_server_open(fixture->env, options, &fixture->server), MUSTER_OK);
    muster_rpc_server_set_data(fixture->server, fixture);
    assert_int_equal(muster_rpc_server_add(fixture->server, methods,
                                           sizeof(methods) / sizeof(methods[0]), fixture),
                     MUSTER_OK);
    if (muster_rpc_server_listen(fixture->server, &fixture->address, &fixture->address, &error) !=
        MUSTER_OK)
        fail_msg("listen: %s", error.text);
    fixture->is_server_closed = false;
}

static void on_server_closed(struct muster_rpc_server *server)
{
    struct rpc_fixture *fixture = muster_rpc_server_data(server);

    fixture->is_server_closed = true;
    fixture->server = NULL;
}

void rpc_fixture_stop_serving(struct rpc_fixture *fixture, uint64_t grace_ns)
{
    if (fixture->server == NULL)
        return;
    muster_rpc_server_close(fixture->server, muster_loop_after_ns(fixture->env->loop, grace_ns),
                            on_server_closed);
    test_env_run_until(fixture->env, test_env_is_true, &fixture->is_server_closed);
}

void rpc_fixture_serve_with(struct rpc_fixture *fixture,
                            const struct muster_rpc_server_options *options)
{
    rpc_fixture_stop_serving(fixture, 0);
    rpc_fixture_serve(fixture, options);
}

void rpc_fixture_dial(struct rpc_fixture *fixture, const char *target,
                      const struct muster_channel_options *options)
{
    struct muster_error error;

    if (muster_channel_open(fixture->env, target, options, &fixture->channel, &error) != MUSTER_OK)
        fail_msg("channel: %s", error.text);
    muster_channel_set_data(fixture->channel, fixture);
    fixture->is_channel_closed = false;
}

static void on_channel_closed(struct muster_channel *channel)
{
    struct rpc_fixture *fixture = muster_channel_data(channel);

    fixture->is_channel_closed = true;
    fixture->channel = NULL;
}

void rpc_fixture_hang_up(struct rpc_fixture *fixture)
{
    if (fixture->channel == NULL)
        return;
    muster_channel_close(fixture->channel, on_channel_closed);
    test_env_run_until(fixture->env, test_env_is_true, &fixture->is_channel_closed);
}

void rpc_fixture_redial(struct rpc_fixture *fixture, const struct muster_channel_options *options)
{
    char target[MUSTER_ADDRESS_TEXT_BYTES];

    rpc_fixture_hang_up(fixture);
    rpc_fixture_dial(fixture, muster_address_format(&fixture->address, target), options);
}

static bool is_hanging(void *data)
{
    return ((struct rpc_fixture *)data)->hanging != NULL;
}

void rpc_fixture_wait_hanging(struct rpc_fixture *fixture)
{
    test_env_run_until(fixture->env, is_hanging, fixture);
}

void rpc_fixture_open(struct rpc_fixture *fixture, const struct muster_rpc_server_options *server,
                      const struct muster_channel_options *channel)
{
    memset(fixture, 0, sizeof(*fixture));
    test_env_open(&fixture->test);
    fixture->env = &fixture->test.env;
    assert_int_equal(muster_net_system_open(fixture->env, &fixture->env->net), MUSTER_OK);
    rpc_fixture_serve(fixture, server);
    rpc_fixture_redial(fixture, channel);
}

void rpc_fixture_close(struct rpc_fixture *fixture)
{
    rpc_fixture_hang_up(fixture);
    rpc_fixture_stop_serving(fixture, 0);
    held_ports_release(&fixture->ports);
    muster_net_system_close(fixture->env->net);
    test_env_close(&fixture->test);
}

void *rpc_scene_open(void **state, size_t bytes, const struct muster_rpc_server_options *server,
                     const struct muster_channel_options *channel)
{
    void *scene = calloc(1, bytes);

    assert_non_null(scene);
    rpc_fixture_open(scene, server, channel);
    *state = scene;
    return scene;
}

int rpc_fixture_set_up(void **state)
{
    (void)rpc_scene_open(state, sizeof(struct rpc_fixture), NULL, NULL);
    return 0;
}

int rpc_scene_tear_down(void **state)
{
    rpc_fixture_close(*state);
    free(*state);
    return 0;
}

uint64_t rpc_fixture_after_ms(const struct rpc_fixture *fixture, uint64_t ms)
{
    return muster_loop_after_ns(fixture->env->loop, ms * MUSTER_NS_PER_MS);
}

/* Probes. */

static void on_probe_headers(struct muster_call *call)
{
    ((struct rpc_probe *)call->data)->headers++;
}

static void on_probe_writable(struct muster_call *call)
{
    ((struct rpc_probe *)call->data)->writable++;
}

static void on_probe_message(struct muster_call *call, struct muster_bytes message)
{
    struct rpc_probe *probe = call->data;
    size_t length = strlen(probe->messages);

    if (length + message.size + 2 < sizeof(probe->messages)) {
        if (probe->message_count > 0)
            probe->messages[length++] = ',';
        memcpy(probe->messages + length, message.data, message.size);
        probe->messages[length + message.size] = '\0';
    }
    probe->message_count++;
    probe->message_bytes += message.size;
    if (probe->on_message_hook != NULL)
        probe->on_message_hook(probe);
}

static void describe_metadata(char *out, size_t out_bytes, const struct muster_metadata *metadata)
{
    size_t length = 0;

    for (size_t i = 0; i < metadata->count && length < out_bytes; i++)
        length += (size_t)snprintf(out + length, out_bytes - length, "%s=%.*s;",
                                   metadata->entries[i].name, (int)metadata->entries[i].value_bytes,
                                   (const char *)metadata->entries[i].value);
}

static void on_probe_done(struct muster_call *call, enum muster_rc rc)
{
    struct rpc_probe *probe = call->data;

    assert_int_equal(rc, call->status.rc);
    probe->done++;
    probe->rc = rc;
    memcpy(probe->text, call->status.text, sizeof(probe->text));
    describe_metadata(probe->initial, sizeof(probe->initial), &call->initial_metadata);
    describe_metadata(probe->trailing, sizeof(probe->trailing), &call->trailing_metadata);
    if (probe->on_done_hook != NULL)
        probe->on_done_hook(probe);
}

enum muster_rc rpc_probe_start_with(struct rpc_probe *probe, struct rpc_fixture *fixture,
                                    struct muster_call_options *options)
{
    options->on_headers = on_probe_headers;
    options->on_message = on_probe_message;
    options->on_writable = on_probe_writable;
    probe->call.data = probe;
    return muster_call_start(&probe->call, fixture->channel, options, on_probe_done);
}

enum muster_rc rpc_probe_start(struct rpc_probe *probe, struct rpc_fixture *fixture,
                               const char *method, uint64_t deadline_ns)
{
    char path[64];
    struct muster_call_options options = {.method = path, .deadline_ns = deadline_ns};

    (void)snprintf(path, sizeof(path), "/test.Echo/%s", method);
    return rpc_probe_start_with(probe, fixture, &options);
}

void rpc_probe_begin(struct rpc_probe *probe, struct rpc_fixture *fixture, const char *method)
{
    assert_int_equal(rpc_probe_start(probe, fixture, method, UINT64_MAX), MUSTER_OK);
}

void rpc_probe_send(struct rpc_probe *probe, const char *text)
{
    assert_int_equal(muster_call_send(&probe->call, text, strlen(text)), MUSTER_OK);
}

void rpc_probe_send_last(struct rpc_probe *probe, const char *text)
{
    rpc_probe_send(probe, text);
    muster_call_half_close(&probe->call);
}

static bool is_probe_done(void *data)
{
    return ((struct rpc_probe *)data)->done > 0;
}

void rpc_probe_wait(struct rpc_probe *probe, struct rpc_fixture *fixture)
{
    test_env_run_until(fixture->env, is_probe_done, probe);
}

void rpc_probe_end(struct rpc_probe *probe, struct rpc_fixture *fixture)
{
    muster_call_half_close(&probe->call);
    rpc_probe_wait(probe, fixture);
}

void rpc_probe_cancel(struct rpc_probe *probe, struct rpc_fixture *fixture)
{
    muster_call_cancel(&probe->call);
    rpc_probe_wait(probe, fixture);
}

struct message_goal {
    struct rpc_probe *probe;
    unsigned count;
};

static bool has_messages(void *data)
{
    const struct message_goal *goal = data;

    return goal->probe->message_count >= goal->count || goal->probe->done > 0;
}

void rpc_probe_wait_messages(struct rpc_probe *probe, struct rpc_fixture *fixture, unsigned count)
{
    struct message_goal goal = {probe, count};

    test_env_run_until(fixture->env, has_messages, &goal);
}

void rpc_probe_ask(struct rpc_probe *probe, struct rpc_fixture *fixture, const char *method,
                   const char *text)
{
    rpc_probe_begin(probe, fixture, method);
    rpc_probe_send(probe, text);
    rpc_probe_end(probe, fixture);
}

void rpc_probe_ask_with(struct rpc_probe *probe, struct rpc_fixture *fixture,
                        struct muster_call_options *options, const char *text)
{
    assert_int_equal(rpc_probe_start_with(probe, fixture, options), MUSTER_OK);
    rpc_probe_send(probe, text);
    rpc_probe_end(probe, fixture);
}

struct rpc_probe rpc_fixture_ask(struct rpc_fixture *fixture, const char *method, const char *text)
{
    struct rpc_probe probe = {.done = 0};

    rpc_probe_ask(&probe, fixture, method, text);
    return probe;
}
