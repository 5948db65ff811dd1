/* conformance_server: a server under connectconformance (connectrpc.com/conformance), which says on
 * standard input how to serve, and ends it with SIGTERM. */
#include <signal.h>
#include <stdio.h>

#include <muster/address.h>
#include <muster/env.h>
#include <muster/stream.h>
#include <muster/tls.h>

#include "conformance_service.h"
#include "conformance_wire.h"

static struct muster_wake *stop_wake;

static void on_signal(int number)
{
    (void)number;
    muster_wake_signal(stop_wake);
}

static void on_closed(struct muster_rpc_server *server)
{
    muster_loop_stop(muster_rpc_server_data(server));
}

static void on_stop(struct muster_wake *wake)
{
    muster_rpc_server_close(muster_wake_data(wake), 0, on_closed);
}

static char *text_of(struct conformance_arena *arena, const ProtobufCBinaryData *bytes)
{
    return bytes->len == 0 ? NULL : conformance_copy(arena, bytes->data, bytes->len);
}

static enum muster_rc open_tls(struct muster_env *env, struct conformance_arena *arena,
                               const Conformance__ServerCompatRequest *request,
                               struct muster_tls **ret_tls, struct muster_error *ret_error)
{
    const struct muster_tls_options options = {
        .cert_pem = text_of(arena, &request->server_creds->cert),
        .key_pem = text_of(arena, &request->server_creds->key),
        .ca_pem = text_of(arena, &request->client_tls_cert),
        .is_peer_required = request->client_tls_cert.len > 0};

    return muster_tls_open(env, &options, ret_tls, ret_error);
}

static enum muster_rc serve_calls(struct muster_env *env, struct conformance_arena *arena,
                                  const Conformance__ServerCompatRequest *request,
                                  struct muster_error *ret_error)
{
    struct muster_rpc_server_options options = {.receive_message_max_bytes =
                                                    request->message_receive_limit};
    Conformance__ServerCompatResponse response = CONFORMANCE__SERVER_COMPAT_RESPONSE__INIT;
    static char host[] = "127.0.0.1";
    struct muster_rpc_server *server = NULL;
    struct muster_address address;
    enum muster_rc rc = muster_address_parse("127.0.0.1:0", &address, ret_error);

    if (rc == MUSTER_OK && request->use_tls)
        rc = open_tls(env, arena, request, &options.tls, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_rpc_server_open(env, &options, &server);
    if (rc == MUSTER_OK)
        rc = conformance_service_add(server);
    if (rc == MUSTER_OK)
        rc = muster_rpc_server_listen(server, &address, &address, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_wake_open(env->mem, env->loop, on_stop, server, &stop_wake);
    muster_tls_close(options.tls);
    if (rc != MUSTER_OK)
        return rc;
    (void)signal(SIGTERM, on_signal);
    response.host = host;
    response.port = address.port;
    if (request->use_tls)
        response.pem_cert = request->server_creds->cert;
    conformance_write(env->mem, &response);
    muster_rpc_server_set_data(server, env->loop);
    muster_loop_run(env->loop);
    (void)signal(SIGTERM, SIG_DFL);
    muster_wake_close(stop_wake);
    return MUSTER_OK;
}

int main(void)
{
    Conformance__ServerCompatRequest *request = NULL;
    struct conformance_arena arena;
    struct muster_error error = {.text = "out of memory"};
    struct muster_env *env = NULL;
    enum muster_rc rc = MUSTER_INVALID_ARGUMENT;

    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK)
        return 1;
    conformance_arena_init(&arena, env->mem);
    if (conformance_read(&arena, &conformance__server_compat_request__descriptor, &request))
        rc = serve_calls(env, &arena, request, &error);
    if (rc != MUSTER_OK)
        fprintf(stderr, "conformance_server: %s\n", error.text);
    conformance_arena_fini(&arena);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    return rc != MUSTER_OK;
}
