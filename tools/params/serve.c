/* muster params serve: its options. */
#include "params/params.h"

#include "common/command.h"
#include "params/seat.h"

static const struct muster_option rows[] = {
    {.name = "listen",
     .letter = 'l',
     .variable = "MUSTER_PARAMS_LISTEN",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct params_seat_settings, listen),
     .fallback = "127.0.0.1:0",
     .check = command_check_listen,
     .value = "HOST:PORT",
     .help = "Address for clients; port 0 takes a free port, ':PORT' listens on every interface."},
    {.name = "job",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct params_seat_settings, job),
     .value = "NAME",
     .help = "Clients of other jobs are refused."},
    {.name = "memory-max",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct params_seat_settings, memory_max),
     .fallback = "1G",
     .unit = "bytes",
     .min = (uint64_t)16 << 20,
     .max = (uint64_t)64 << 30,
     .help = "Memory of the tables. New rows beyond it are refused; pushes to rows that exist go "
             "on."},
    {.name = "shards",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct params_seat_settings, shard_count),
     .fallback = "256",
     .unit = "shards",
     .min = 1,
     .max = 4096,
     .help = "Shards of every table: a power of two."},
    {.name = "spare",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct params_seat_settings, has_spare),
     .fallback = "true",
     .help = "Keep a second process that goes on at once when the server is killed; --no-spare "
             "starts one then."},
    SERVICE_TLS_ROWS(struct params_seat_settings),
    {.name = "status",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct params_seat_settings, status),
     .check = command_check_listen,
     .value = "HOST:PORT",
     .help = "Serve /healthz and /metrics (Prometheus) there, over HTTP/1.1; told behind the ready "
             "line."},
    COMMAND_LOG_ROW(struct params_seat_settings, "info"),
    COMMAND_LOG_FORMAT_ROW(struct params_seat_settings),
};

static const struct muster_options options = {
    .command = "muster params serve",
    .usage = "[--listen HOST:PORT]",
    .about =
        "Serve tables of parameters to clients (include/muster/params.h). A server that is killed "
        "loses nothing: the next process goes on in its memory.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

int params_serve(int argc, char **argv)
{
    struct params_seat_settings settings = {.listen = NULL};
    struct muster_error error = {.rc = MUSTER_OK};
    struct params_seat seat;
    int code = EXIT_OK;

    if (!command_parse_all(&options, argc, argv, &settings, &code) ||
        !service_tls_check(options.command, &settings.tls, &code))
        return code;
    if (params_seat_open(&seat, &settings, &error) == MUSTER_OK) {
        code = keeper_run(&seat.keeper);
    } else {
        code = command_fail("params serve", &error);
        service_tell_listen("params serve", "--listen", "--listen", &error);
    }
    params_seat_close(&seat);
    return code;
}
