/* muster params cut: all tables of a job, saved to files while pushes go on. */
#include "params/params.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <muster/params.h>
#include <muster/runtime.h>
#include <muster/stream.h>

#include "common/command.h"
#include "common/output.h"
#include "params/connection.h"
#include "params/cut_files.h"

struct settings {
    struct params_connection_settings connection;
    const char *job;
    uint64_t every_ns; /* 0: once */
    uint64_t clock;    /* 0: now */
    uint64_t keep;
    bool is_json;
};

static const struct muster_option rows[] = {
    {.name = "server",
     .letter = 's',
     .variable = "MUSTER_PARAMS_SERVER",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, connection.server),
     .value = "HOST:PORT,…",
     .check = command_check_servers,
     .help = "Address of the server, of several of a job any; required."},
    {.name = "job",
     .variable = "MUSTER_JOB",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, job),
     .value = "NAME",
     .help = "The servers' --job."},
    {.name = "timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, connection.timeout_ns),
     .fallback = "600",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "How long it may take. A cut that moving shards or a lost connection have ended is "
             "begun again until then."},
    {.name = "keep",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, keep),
     .fallback = "1",
     .min = 1,
     .max = CUTS_KEPT_MAX,
     .help = "The newest cuts of DIR that are not deleted; an older one is manifest-NUMBER."},
    {.name = "every",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, every_ns),
     .fallback = "0",
     .unit = "s",
     .help = "Cut again and again, so much apart, until SIGTERM; 0: once. A cut that fails is told of, "
             "and the next one comes."},
    {.name = "clock",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, clock),
     .fallback = "0",
     .unit = "steps",
     .max = UINT64_MAX - 1,
     .help = "Cut between the steps: when all workers that tick have completed so many, which none may have passed "
             "yet; 0: now."},
    PARAMS_TLS_ROWS(struct settings),
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_json),
     .help = "Print one line of JSON."},
};

const struct muster_options params_cut_options = {
    .command = "muster params cut",
    .usage = "--server HOST:PORT [options] DIR",
    .about = "Save all tables to files of DIR, which every server sees, while pushes go on. "
             "'muster params serve --restore DIR' begins with them.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

static bool cut_print(const struct settings *settings, const char *folder,
                      const struct muster_params_cut *cut)
{
    if (!settings->is_json)
        printf("saved cut %" PRIu64 " in %s: %" PRIu64 " rows of %u tables in %u shards, %" PRIu64
               " bytes, of %u servers\n",
               cut->number, folder, cut->rows, cut->tables, cut->shards, cut->bytes, cut->servers);
    else
        printf("{\"cut\":%" PRIu64 ",\"clock\":%" PRIu64 ",\"rows\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"tables\":%u,\"shards\":%u,\"shards_saved\":%u,\"servers\":%u}\n",
               cut->number, cut->clock, cut->rows, cut->bytes, cut->tables, cut->shards,
               cut->shards_saved, cut->servers);
    return output_flush();
}

static enum muster_rc cut_make(const struct settings *settings, struct muster_runtime *runtime,
                               const char *folder, struct muster_params_cut *ret_cut,
                               struct muster_error *ret_error)
{
    const struct muster_params_options options = {.server = settings->connection.server,
                                                  .job = settings->job};
    struct muster_params *params;
    enum muster_rc closed;
    enum muster_rc rc = muster_params_connect(runtime, &options, settings->connection.timeout_ns,
                                              &params, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_cut_at(params, folder, settings->clock, ret_cut,
                              settings->connection.timeout_ns, ret_error);
    closed = muster_params_disconnect(params, MUSTER_NS_PER_S, rc == MUSTER_OK ? ret_error : NULL);
    return rc != MUSTER_OK ? rc : closed;
}

static enum muster_rc cut_run(const struct settings *settings, const char *folder,
                              struct muster_params_cut *ret_cut, struct muster_error *ret_error)
{
    struct muster_runtime *runtime = NULL;
    struct muster_env *env = NULL;
    struct muster_tls *tls;
    enum muster_rc rc = muster_env_system_open(NULL, &env);

    if (rc == MUSTER_OK)
        rc = muster_net_system_open(env, &env->net);
    if (rc == MUSTER_OK)
        rc = muster_runtime_open(&(struct muster_runtime_options){.env = env}, &runtime);
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "no event loop: %s", muster_rc_text(rc));
    else
        rc = params_connection_tls_open(env, &settings->connection, &env->tls, ret_error);
    if (rc == MUSTER_OK)
        rc = cut_make(settings, runtime, folder, ret_cut, ret_error);
    if (runtime != NULL)
        muster_runtime_close(runtime);
    if (env == NULL)
        return rc;
    tls = env->tls;
    env->tls = NULL;
    muster_tls_close(tls);
    if (env->net != NULL)
        muster_net_system_close(env->net);
    muster_env_system_close(env);
    return rc;
}

static bool settings_check(const struct settings *settings, int words, int *ret_exit)
{
    const char *command = params_cut_options.command;

    if (settings->connection.server == NULL)
        *ret_exit = command_refuse(command, "--server must be the address of a server, got none");
    else if (words != 1)
        *ret_exit = command_refuse(command, "one folder must be given, got %d words", words);
    else if (settings->clock > 0 && settings->every_ns > 0)
        *ret_exit = command_refuse(command, "--clock names one cut, and --every many: give one of them");
    else
        return params_connection_check(command, &settings->connection, ret_exit);
    return false;
}

static int cut_once(const struct settings *settings, const char *folder)
{
    struct muster_params_cut cut;
    struct muster_error error = {.rc = MUSTER_OK};

    if (cut_run(settings, folder, &cut, &error) != MUSTER_OK ||
        cut_files_keep(folder, cut.number, (uint32_t)settings->keep, &error) != MUSTER_OK)
        return command_fail("params cut", &error);
    return cut_print(settings, folder, &cut) ? EXIT_OK : EXIT_OTHER;
}

/* Until SIGTERM. The time between two cuts runs from the begin of one to that of the next. */
static void cuts_repeat(const struct settings *settings, const char *folder)
{
    struct timespec next;

    clock_gettime(CLOCK_MONOTONIC, &next);
    for (;;) {
        next.tv_sec += (time_t)(settings->every_ns / MUSTER_NS_PER_S);
        next.tv_nsec += (long)(settings->every_ns % MUSTER_NS_PER_S);
        if (next.tv_nsec >= (long)MUSTER_NS_PER_S) {
            next.tv_sec++;
            next.tv_nsec -= (long)MUSTER_NS_PER_S;
        }
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) == EINTR)
            ;
        (void)cut_once(settings, folder);
    }
}

/* Servers have working directories of their own. */
int params_cut(int argc, char **argv)
{
    struct settings settings = {.job = NULL};
    int rest = argc, code = EXIT_OK;
    char *folder;

    if (!command_parse(&params_cut_options, argc, argv, &settings, &rest, &code) ||
        !settings_check(&settings, argc - rest, &code))
        return code;
    if (!cut_folder_open(params_cut_options.command, "DIR", argv[rest], &code))
        return code;
    folder = realpath(argv[rest], NULL);
    if (folder == NULL)
        return command_refuse(params_cut_options.command, "DIR: the folder %s: %s", argv[rest],
                              strerror(errno));
    if (settings.every_ns > 0)
        cuts_repeat(&settings, folder);
    code = cut_once(&settings, folder);
    free(folder);
    return code;
}
