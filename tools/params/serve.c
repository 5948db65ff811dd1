/* muster params serve: its options. */
#include "params/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <muster/address.h>
#include <muster/incarnation.h>
#include <muster/registry.h>

#include "common/command.h"
#include "params/cut_files.h"
#include "params/cutter.h"
#include "params/servers.h"

/* Without --cut-dir they must stay as they are. */
#define CUT_EVERY_S_TEXT "300"
#define CUT_EVERY_NS     (300 * MUSTER_NS_PER_S)
#define CUT_KEEP_TEXT    "3"
#define CUT_KEEP         3u
/* Without --registry. */
#define REPLICA_LAG_S_TEXT "2"
#define REPLICA_LAG_NS     (2 * MUSTER_NS_PER_S)
#define DRAIN_S_TEXT       "60"
#define DRAIN_NS           (60 * MUSTER_NS_PER_S)

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
     .variable = "MUSTER_JOB",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct params_seat_settings, job),
     .value = "NAME",
     .help = "Clients of other jobs are refused."},
    {.name = "registry",
     .variable = "MUSTER_REGISTRY",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct params_seat_settings, registry),
     .value = "HOST:PORT,…",
     .check = command_check_registry,
     .help = "Share the tables of --job with other servers, which find each other there: a 'muster "
             "registry', or an etcd cluster."},
    {.name = "reach",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct params_seat_settings, reach),
     .value = "HOST:PORT",
     .check = command_check_servers,
     .help =
         "With --registry: the address by which clients and other servers reach this one, where "
         "it is not that of --listen."},
    {.name = "replicas",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct params_seat_settings, replicas),
     .fallback = "1",
     .unit = "replicas",
     .min = 1,
     .max = MUSTER_PARAMS_REPLICAS_MAX,
     .help =
         "With --registry: servers that hold each row. What is acknowledged survives the loss of "
         "all of them but one. The first server's counts."},
    {.name = "servers",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct params_seat_settings, server_count),
     .fallback = "1",
     .unit = "servers",
     .min = 1,
     .max = SERVERS_MAX,
     .help =
         "With --registry: so many servers on this machine, each with a seat of its own. The ports "
         "of --listen, --reach and --status count up from that of the first."},
    {.name = "expect",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct params_seat_settings, expected),
     .fallback = "1",
     .unit = "servers",
     .min = 1,
     .max = 64,
     .help = "With --registry: the job begins when so many servers are there, at least those of "
             "--servers."},
    {.name = "source-lease",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct params_seat_settings, source_lease_ns),
     .fallback = "600",
     .unit = "s",
     .min = 2 * MUSTER_NS_PER_S,
     .help =
         "Clients without a name that have had no connection for this time are forgotten: one that "
         "comes back then is refused. The same for all servers of a job."},
    {.name = "replica-lag-max",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct params_seat_settings, replica_lag_ns),
     .fallback = REPLICA_LAG_S_TEXT,
     .unit = "s",
     .help =
         "With --replicas: a server that copies nothing of what it must copy for this time is not "
         "waited for any more; its copies leave the map until it has learned them again. 0: it is "
         "waited for."},
    {.name = "drain-timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct params_seat_settings, drain_ns),
     .fallback = DRAIN_S_TEXT,
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "With --registry, at SIGTERM: how long the server may take to give its shards to the "
             "others."},
    {.name = "restore",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct params_seat_settings, restore),
     .value = "DIR",
     .help = "Begin with the tables that 'muster params cut DIR' has saved, from any number of "
             "servers. With --registry: all servers of a new job have this option."},
    {.name = "memory-max",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct params_seat_settings, memory_max),
     .fallback = "1G",
     .unit = "bytes",
     .min = (uint64_t)16 << 20,
     .max = (uint64_t)64 << 30,
     .help = "Memory of the tables. New rows beyond it are refused; pushes to rows that exist go "
             "on."},
    {.name = "receive-max",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct params_seat_settings, receive_max),
     .fallback = "256M",
     .unit = "bytes",
     .min = (uint64_t)1 << 20,
     .help =
         "Memory for messages of clients, and for answers that they have not read. Each client has "
         "an equal share, 16 KiB to 64 MiB, and waits beyond it."},
    {.name = "shards",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct params_seat_settings, shard_count),
     .fallback = "256",
     .unit = "shards",
     .min = 1,
     .max = 4096,
     .help = "Shards of every table: a power of two."},
    {.name = "force-new",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct params_seat_settings, is_new_by_force),
     .help = "With --registry: the job's former servers have all gone, and their rows are given "
             "up, for "
             "those of the cut with --restore."},
    {.name = "cut-dir",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct params_seat_settings, cut_folder),
     .value = "DIR",
     .help =
         "Cut all tables of the job to this folder again and again ('muster params cut', also for "
         "its MUSTER_TLS_… variables). One server of a job has it, or one --servers."},
    {.name = "cut-every",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct params_seat_settings, cut_every_ns),
     .fallback = CUT_EVERY_S_TEXT,
     .unit = "s",
     .min = 10 * MUSTER_NS_PER_MS,
     .help = "Time from one cut to the next. One that fails is told of, and the next one comes."},
    {.name = "cut-keep",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct params_seat_settings, cut_keep),
     .fallback = CUT_KEEP_TEXT,
     .min = 1,
     .max = 64,
     .help = "The newest cuts that are not deleted."},
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
     .help = "Serve /healthz and /metrics (Prometheus) there, over HTTP/1.1; the address is "
             "printed after the ready line."},
    COMMAND_LOG_ROW(struct params_seat_settings, "info"),
    COMMAND_LOG_FORMAT_ROW(struct params_seat_settings),
};

const struct muster_options params_serve_options = {
    .command = "muster params serve",
    .usage = "[--listen HOST:PORT]",
    .about =
        "Serve tables of parameters to clients (include/muster/params.h). A server that is killed "
        "loses nothing: the next process goes on in its memory.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static bool cluster_check(const struct params_seat_settings *settings, int *ret_exit)
{
    struct muster_address listen;
    struct muster_error error;

    if (settings->registry == NULL) {
        if (settings->replicas == 1 && settings->expected == 1 && settings->server_count == 1 &&
            settings->reach == NULL && settings->replica_lag_ns == REPLICA_LAG_NS &&
            settings->drain_ns == DRAIN_NS)
            return true;
        *ret_exit = command_refuse(params_serve_options.command,
                                   "--servers, --replicas, --expect, --reach, --replica-lag-max "
                                   "and --drain-timeout need --registry HOST:PORT: servers find "
                                   "each other there (start one with 'muster registry')");
        return false;
    }
    if (settings->job == NULL || settings->job[0] == '\0') {
        *ret_exit = command_refuse(params_serve_options.command,
                                   "--registry needs --job NAME: servers of one job share its "
                                   "tables");
        return false;
    }
    if (settings->reach == NULL &&
        muster_address_parse_listen(settings->listen, &listen, &error) == MUSTER_OK &&
        muster_address_is_wildcard(&listen)) {
        *ret_exit = command_refuse(params_serve_options.command,
                                   "--listen %s is every interface: --reach must say by which "
                                   "HOST:PORT others reach this server",
                                   settings->listen);
        return false;
    }
    return true;
}

/* These hold with and without a registry. */
static bool server_check(const struct params_seat_settings *settings, int *ret_exit)
{
    struct muster_error error;
    struct muster_endpoint reach;

    if (settings->job != NULL && settings->job[0] != '\0' &&
        muster_job_name_check(settings->job, &error) != MUSTER_OK) {
        *ret_exit = command_refuse(params_serve_options.command, "--job: %s", error.text);
        return false;
    }
    if ((settings->shard_count & (settings->shard_count - 1)) != 0) {
        *ret_exit =
            command_refuse(params_serve_options.command,
                           "--shards must be a power of two, got %" PRIu64, settings->shard_count);
        return false;
    }
    if (settings->reach != NULL &&
        muster_endpoint_parse(settings->reach, 0, &reach, &error) == MUSTER_OK &&
        muster_address_is_wildcard(&reach.address)) {
        *ret_exit = command_refuse(params_serve_options.command,
                                   "--reach must be an address by which others reach this server, "
                                   "got %s, which is every interface of its own",
                                   settings->reach);
        return false;
    }
    return true;
}

/* The last seat has the highest ports. */
static bool servers_check(const struct params_seat_settings *settings, int *ret_exit)
{
    const struct {
        const char *option, *text;
    } addresses[] = {{"--listen", settings->listen},
                     {"--reach", settings->reach},
                     {"--status", settings->status}};
    char address[SERVERS_ADDRESS_BYTES];

    for (size_t i = 0; settings->server_count > 1 && i < 3; i++) {
        if (addresses[i].text == NULL ||
            servers_address(addresses[i].text, (uint32_t)settings->server_count - 1, address))
            continue;
        *ret_exit = command_refuse(params_serve_options.command,
                                   "%s must be an address with %" PRIu64
                                   " ports from its own on for --servers, got '%s'",
                                   addresses[i].option, settings->server_count, addresses[i].text);
        return false;
    }
    return true;
}

static bool cut_check(const struct params_seat_settings *settings, int *ret_exit)
{
    if (settings->is_new_by_force && settings->registry == NULL) {
        *ret_exit =
            command_refuse(params_serve_options.command, "--force-new needs --registry HOST:PORT");
        return false;
    }
    if (settings->cut_folder == NULL) {
        if (settings->cut_every_ns == CUT_EVERY_NS && settings->cut_keep == CUT_KEEP)
            return true;
        *ret_exit = command_refuse(params_serve_options.command,
                                   "--cut-every and --cut-keep need --cut-dir DIR");
        return false;
    }
    return cut_folder_open(params_serve_options.command, "--cut-dir", settings->cut_folder,
                           ret_exit);
}

static void cutter_start(struct params_seat *seat, bool is_again)
{
    const struct params_seat_settings settings = seat->settings;
    char address[MUSTER_ADDRESS_TEXT_BYTES];

    seat->cutter = cutter_fork(is_again);
    if (seat->cutter != 0)
        return;
    muster_address_format(&seat->address, address);
    params_seat_close(seat);
    cutter_run(&settings, settings.reach != NULL ? settings.reach : address);
}

static void on_other_ended(struct keeper *keeper, pid_t pid, int status)
{
    struct params_seat *seat = keeper->data;

    if (cutter_must_restart(seat->cutter, pid, status))
        cutter_start(seat, true);
}

static int seat_run(const struct params_seat_settings *settings)
{
    struct muster_error error = {.rc = MUSTER_OK};
    struct params_seat seat;
    int code;

    if (params_seat_open(&seat, settings, &error) == MUSTER_OK) {
        seat.keeper.on_other_ended = on_other_ended;
        if (settings->cut_folder != NULL)
            cutter_start(&seat, false);
        code = keeper_run(&seat.keeper);
    } else {
        code = command_fail("params serve", &error);
        service_tell_listen("params serve", "--listen", "--listen", &error);
    }
    params_seat_close(&seat);
    return code;
}

int params_serve(int argc, char **argv)
{
    struct params_seat_settings settings = {.listen = NULL};
    int code = EXIT_OK;

    if (!command_parse_all(&params_serve_options, argc, argv, &settings, &code) ||
        !service_tls_check(params_serve_options.command, &settings.tls, &code) ||
        !server_check(&settings, &code) || !cluster_check(&settings, &code) ||
        !servers_check(&settings, &code) || !cut_check(&settings, &code))
        return code;
    if (settings.expected < settings.server_count)
        settings.expected = settings.server_count;
    return settings.server_count > 1 ? servers_run(&settings) : seat_run(&settings);
}
