/* interop_server --port P: the server of the official gRPC interop cases. */
#include <signal.h>
#include <stdio.h>

#include <muster/address.h>
#include <muster/env.h>
#include <muster/rpc.h>
#include <muster/stream.h>
#include <muster/tls.h>

#include "interop_flags.h"
#include "interop_service.h"

#define DRAIN_NS MUSTER_NS_PER_S

struct settings {
    const char *address;
    uint64_t port;
    bool is_tls, is_alts;
    const char *certificate_file, *key_file;
};

static const struct muster_option rows[] = {
    {.name = "port",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, port),
     .max = UINT16_MAX,
     .help = "Where clients connect; 0 takes a free port and prints it."},
    {.name = "address",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, address),
     .fallback = "127.0.0.1",
     .value = "IP",
     .help = "The interface; '0.0.0.0' and '[::]' are all of them."},
    {.name = "use_tls",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_tls),
     .help = "TLS; needs --tls_cert_file and --tls_key_file."},
    {.name = "tls_cert_file",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, certificate_file),
     .value = "FILE",
     .help = "The server's certificates, PEM, its own first."},
    {.name = "tls_key_file",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, key_file),
     .value = "FILE",
     .help = "Its private key, PEM."},
    {.name = "use_alts",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_alts),
     .help = "Not served: ALTS is for Google's own hosts."},
};

static const struct muster_options options = {
    .command = "interop_server",
    .usage = "--port P [--use_tls --tls_cert_file F --tls_key_file F]",
    .about = "Serve grpc.testing.TestService and load reports until SIGTERM or SIGINT.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

struct program {
    struct muster_env *env;
    struct muster_tls *tls; /* NULL: plain text */
    struct muster_rpc_server *server;
    struct interop_service service;
    struct muster_wake *wake;
    bool is_closing, is_closed;
};

/* The signal handler's only way to the loop. */
static struct muster_wake *stop_wake;

static void on_signal(int number)
{
    (void)number;
    muster_wake_signal(stop_wake);
}

static void on_closed(struct muster_rpc_server *server)
{
    struct program *program = muster_rpc_server_data(server);

    program->is_closed = true;
}

static void on_stop(struct muster_wake *wake)
{
    struct program *program = muster_wake_data(wake);
    struct muster_loop *loop = program->env->loop;

    if (program->is_closing)
        return;
    program->is_closing = true;
    muster_rpc_server_close(program->server, muster_loop_after_ns(loop, DRAIN_NS), on_closed);
}

static enum muster_rc open_tls(struct program *program, const struct settings *settings,
                               struct muster_error *ret_error)
{
    const struct muster_tls_options tls_options = {.cert_file = settings->certificate_file,
                                                   .key_file = settings->key_file};

    if (settings->is_alts)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "--use_alts: not served here; leave it out");
    if (!settings->is_tls)
        return MUSTER_OK;
    if (settings->certificate_file == NULL || settings->key_file == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "--use_tls needs --tls_cert_file and --tls_key_file");
    return muster_tls_open(program->env, &tls_options, &program->tls, ret_error);
}

static enum muster_rc open_server(struct program *program, const struct settings *settings,
                                  struct muster_address *ret_address,
                                  struct muster_error *ret_error)
{
    const struct muster_rpc_server_options server_options = {
        .receive_message_max_bytes = INTEROP_PAYLOAD_MAX_BYTES, .tls = program->tls};
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    enum muster_rc rc;

    (void)snprintf(text, sizeof(text), "%s:%u", settings->address, (unsigned)settings->port);
    rc = muster_address_parse(text, ret_address, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_rpc_server_open(program->env, &server_options, &program->server);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for the server");
    muster_rpc_server_set_data(program->server, program);
    rc = interop_service_add(&program->service, program->server);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for the services");
    return muster_rpc_server_listen(program->server, ret_address, ret_address, ret_error);
}

static int serve_program(struct program *program, const struct settings *settings)
{
    struct muster_loop *loop = program->env->loop;
    struct muster_address address;
    struct muster_error error = {.text = "no wake descriptor: resource exhausted"};
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    bool is_open =
        muster_wake_open(program->env->mem, loop, on_stop, program, &program->wake) == MUSTER_OK &&
        open_tls(program, settings, &error) == MUSTER_OK &&
        open_server(program, settings, &address, &error) == MUSTER_OK;

    if (is_open) {
        stop_wake = program->wake;
        (void)signal(SIGINT, on_signal);
        (void)signal(SIGTERM, on_signal);
        printf("listening %s\n", muster_address_format(&address, text));
        (void)fflush(stdout);
    } else {
        fprintf(stderr, "interop_server: %s\n", error.text);
        if (program->server != NULL)
            muster_rpc_server_close(program->server, 0, on_closed);
    }
    while (program->server != NULL && !program->is_closed)
        muster_loop_turn(loop, UINT64_MAX);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    muster_tls_close(program->tls);
    muster_wake_close(program->wake);
    return is_open ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct settings settings = {.address = NULL};
    struct program program = {.env = NULL};
    int code = 1;
    enum muster_rc rc;

    if (!interop_flags_parse(&options, argc, argv, &settings, &code))
        return code;
    code = 1;
    rc = muster_env_system_open(NULL, &program.env);
    if (rc == MUSTER_OK)
        rc = muster_net_system_open(program.env, &program.env->net);
    if (rc == MUSTER_OK) {
        interop_service_init(&program.service, program.env);
        code = serve_program(&program, &settings);
        interop_service_fini(&program.service);
        muster_net_system_close(program.env->net);
    } else {
        fprintf(stderr, "interop_server: no event loop: %s\n", muster_rc_text(rc));
    }
    muster_env_system_close(program.env);
    return code;
}
