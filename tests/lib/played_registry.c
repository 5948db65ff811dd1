/* A registry client and a gRPC server whose methods a test plays itself, over loopback. */
#include "played_registry.h"

#include <string.h>

#include <muster/stream.h>

#define DEADLINE_NS (30 * MUSTER_NS_PER_S)

void played_registry_open(struct played_registry *played, const struct muster_rpc_method *methods,
                          size_t count, void *service, const char *password_file)
{
    struct muster_registry_options options = {.backoff_base_ns = MUSTER_NS_PER_MS,
                                              .backoff_max_ns = 2 * MUSTER_NS_PER_MS,
                                              .user = password_file != NULL ? "u" : NULL,
                                              .password_file = password_file};
    struct muster_address any, address;
    struct muster_error error;

    memset(played, 0, sizeof(*played));
    test_env_open(&played->test);
    played->env = &played->test.env;
    assert_int_equal(muster_net_system_open(played->env, &played->env->net), MUSTER_OK);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(muster_rpc_server_open(played->env, NULL, &played->server), MUSTER_OK);
    muster_rpc_server_set_data(played->server, played);
    assert_int_equal(muster_rpc_server_add(played->server, methods, count, service), MUSTER_OK);
    assert_int_equal(muster_rpc_server_listen(played->server, &any, &address, &error), MUSTER_OK);
    options.endpoints = muster_address_format(&address, played->endpoint);
    assert_int_equal(muster_registry_open(played->env, &options, &played->registry, &error),
                     MUSTER_OK);
    muster_registry_set_data(played->registry, played);
}

static void on_server_closed(struct muster_rpc_server *server)
{
    ((struct played_registry *)muster_rpc_server_data(server))->is_server_closed = true;
}

static void on_registry_closed(struct muster_registry *registry)
{
    ((struct played_registry *)muster_registry_data(registry))->is_registry_closed = true;
}

void played_registry_hang_up(struct played_registry *played)
{
    played->is_hanging_up = true;
    muster_registry_close(played->registry, on_registry_closed);
}

void played_registry_dial(struct played_registry *played, struct muster_registry_options options)
{
    struct muster_error error;

    played_registry_hang_up(played);
    test_env_run_until(played->env, test_env_is_true, &played->is_registry_closed);
    played->is_hanging_up = played->is_registry_closed = false;
    if (options.endpoints == NULL)
        options.endpoints = played->endpoint;
    assert_int_equal(muster_registry_open(played->env, &options, &played->registry, &error),
                     MUSTER_OK);
    muster_registry_set_data(played->registry, played);
}

void played_registry_close(struct played_registry *played)
{
    if (!played->is_hanging_up)
        played_registry_hang_up(played);
    test_env_run_until(played->env, test_env_is_true, &played->is_registry_closed);
    muster_rpc_server_close(played->server, 0, on_server_closed);
    test_env_run_until(played->env, test_env_is_true, &played->is_server_closed);
    muster_net_system_close(played->env->net);
    test_env_close(&played->test);
}

uint64_t played_registry_soon(const struct played_registry *played)
{
    return muster_loop_after_ns(played->env->loop, DEADLINE_NS);
}

void played_registry_send(struct muster_rpc *rpc, const void *message)
{
    struct muster_mem *mem = muster_rpc_env(rpc)->mem;
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(muster_proto_pack(mem, message, &bytes, &size), MUSTER_OK);
    assert_int_equal(muster_rpc_send(rpc, bytes, size), MUSTER_OK);
    muster_mem_free(mem, bytes);
}
