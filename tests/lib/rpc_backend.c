/* Servers of /test.Echo/Unary that a channel chooses between. */
#include "rpc_backend.h"

#include <stdio.h>

#include "assertion_count.h"

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    ((struct rpc_backend *)muster_rpc_service(rpc))->served++;
    assert_int_equal(muster_rpc_send(rpc, message.data, message.size), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

void rpc_backend_serve(struct rpc_backend *backend, struct rpc_fixture *fixture, bool has_health)
{
    static const struct muster_rpc_method method = {
        .path = "/test.Echo/Unary", .on_message = on_message, .is_unary = true};
    struct muster_error error;

    if (backend->address.port == 0)
        held_ports_take(&fixture->ports, &backend->address);
    assert_int_equal(muster_rpc_server_open(fixture->env, NULL, &backend->server), MUSTER_OK);
    muster_rpc_server_set_data(backend->server, backend);
    assert_int_equal(muster_rpc_server_add(backend->server, &method, 1, backend), MUSTER_OK);
    if (has_health)
        assert_int_equal(muster_rpc_health_open(backend->server, &backend->health), MUSTER_OK);
    fail_if(muster_rpc_server_listen(backend->server, &backend->address, &backend->address,
                                     &error) != MUSTER_OK,
            "listen: %s", error.text);
    backend->is_closed = false;
}

static void on_closed(struct muster_rpc_server *server)
{
    struct rpc_backend *backend = muster_rpc_server_data(server);

    backend->is_closed = true;
    backend->server = NULL;
    backend->health = NULL;
}

void rpc_backend_stop(struct rpc_backend *backend, struct rpc_fixture *fixture)
{
    if (backend->server == NULL)
        return;
    muster_rpc_server_close(backend->server, 0, on_closed);
    test_env_run_until(fixture->env, test_env_is_true, &backend->is_closed);
}

void rpc_backends_dial(const struct rpc_backend *backends, size_t count,
                       struct rpc_fixture *fixture, const char *prefix,
                       const struct muster_channel_options *options)
{
    char target[1024], address[MUSTER_ADDRESS_TEXT_BYTES];
    int length = snprintf(target, sizeof(target), "%s", prefix != NULL ? prefix : "");

    for (size_t i = 0; i < count; i++)
        length +=
            snprintf(target + length, sizeof(target) - (size_t)length, "%s%s",
                     length > 0 ? "," : "", muster_address_format(&backends[i].address, address));
    rpc_fixture_hang_up(fixture);
    rpc_fixture_dial(fixture, target, options);
}

void rpc_backend_ask_until_served(struct rpc_backend *backend, struct rpc_fixture *fixture)
{
    unsigned before = backend->served;

    for (unsigned tries = 0; backend->served == before; tries++) {
        assert_true(tries < 100000);
        (void)rpc_fixture_ask(fixture, "Unary", "x");
    }
}

bool rpc_channel_is_failing(void *data)
{
    return muster_channel_state(data) == MUSTER_CHANNEL_TRANSIENT_FAILURE;
}
