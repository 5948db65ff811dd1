/* muster params drain: a server gives its shards to the others of its job, and ends. */
#include "params/params.h"

#include <stdio.h>

#include <muster/address.h>
#include <muster/json.h>
#include <muster/params_drain.h>

#include "common/command.h"
#include "common/output.h"
#include "params/connection.h"

struct settings {
    struct params_connection_settings connection;
};

static const struct muster_option rows[] = {
    {.name = "timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, connection.timeout_ns),
     .fallback = "120",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "How long to wait for the end of it. The server itself gives up after its "
             "--drain-timeout."},
    PARAMS_TLS_ROWS(struct settings),
};

const struct muster_options params_drain_options = {
    .command = "muster params drain",
    .usage = "HOST:PORT [options]",
    .about =
        "Let a server give its shards to the other servers of its job, and end. Prints one line "
        "of JSON then.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

struct asker {
    struct params_connection connection;
    struct muster_params_drain drain;
    bool is_done;
    enum muster_rc rc;
};

static void on_drained(struct muster_params_drain *drain, enum muster_rc rc)
{
    struct asker *asker = drain->data;

    asker->is_done = true;
    asker->rc = rc;
}

static enum muster_rc drain_ask(struct asker *asker,
                                const struct params_connection_settings *settings, uint64_t *ret_ns,
                                struct muster_error *ret_error)
{
    struct muster_loop *loop = asker->connection.env->loop;
    uint64_t begin_ns = muster_loop_now_ns(loop);
    enum muster_rc rc;

    asker->drain.data = asker;
    rc = muster_params_drain_start(&asker->drain, asker->connection.env, asker->connection.channel,
                                   muster_loop_after_ns(loop, settings->timeout_ns), on_drained);
    while (rc == MUSTER_OK && !asker->is_done)
        muster_loop_turn(loop, UINT64_MAX);
    if (rc == MUSTER_OK)
        rc = asker->rc;
    if (rc != MUSTER_OK) {
        asker->drain.error.rc = rc;
        params_connection_explain(settings->server, asker->connection.channel, settings->timeout_ns,
                                  &asker->drain.error, ret_error);
    }
    *ret_ns = muster_loop_now_ns(loop) - begin_ns;
    return rc;
}

static bool result_print(struct muster_mem *mem, const char *server, uint64_t ns)
{
    struct muster_json *root = muster_json_object_new();
    char *text = NULL;
    bool is_made =
        muster_json_set(root, "drained", muster_json_text_new(server)) &&
        muster_json_set(root, "seconds", muster_json_real_new((double)ns / MUSTER_NS_PER_S)) &&
        muster_json_format(root, false, mem, &text) == MUSTER_OK;

    if (is_made)
        puts(text);
    muster_mem_free(mem, text);
    muster_json_free(root);
    return is_made && output_flush();
}

int params_drain(int argc, char **argv)
{
    const char *command = params_drain_options.command;
    struct settings settings = {.connection = {.server = NULL}};
    struct asker asker = {.is_done = false};
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_endpoint server;
    int rest = argc, code = EXIT_OK;
    uint64_t ns = 0;
    enum muster_rc rc;

    if (!command_parse(&params_drain_options, argc, argv, &settings, &rest, &code))
        return code;
    if (argc - rest != 1)
        return command_refuse(command, "the address of one server must be given, got %d words",
                              argc - rest);
    settings.connection.server = argv[rest];
    if (muster_endpoint_parse(argv[rest], 0, &server, &error) != MUSTER_OK)
        return command_refuse(command, "the server must be HOST:PORT: %s", error.text);
    if (!params_connection_check(command, &settings.connection, &code))
        return code;
    rc = params_connection_open(&asker.connection, &settings.connection, &error);
    if (rc == MUSTER_OK)
        rc = drain_ask(&asker, &settings.connection, &ns, &error);
    if (rc != MUSTER_OK)
        code = command_fail("params drain", &error);
    else if (!result_print(asker.connection.env->mem, settings.connection.server, ns))
        code = EXIT_OTHER;
    params_connection_close(&asker.connection);
    return code;
}
