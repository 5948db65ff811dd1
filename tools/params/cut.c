/* muster params cut: all tables of a job, saved to files while pushes go on. */
#include "params/params.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <muster/log.h>
#include <muster/loop.h>
#include <muster/params.h>
#include <muster/stream.h>

#include "common/command.h"
#include "common/output.h"
#include "params/connection.h"
#include "params/cut_files.h"

#define EVERY_NS_MIN (10 * MUSTER_NS_PER_MS)

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
     .help =
         "Cut again and again, so much apart (at least 10ms), until SIGTERM; 0: once. A cut that "
         "fails is told of, and the next one comes. SIGTERM gives up the one under way, and the "
         "command ends with 0, or with the code of the last cut if that one has failed."},
    {.name = "clock",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, clock),
     .fallback = "0",
     .unit = "steps",
     .max = UINT64_MAX - 1,
     .help = "Cut between the steps: when all workers that tick have completed so many, which none "
             "may have passed yet; 0: now."},
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

/* SIGTERM ends --every, and leaves nothing half done. */
struct stop {
    int fd; /* for signals; -1: there is no --every, and SIGTERM ends the process itself */
    bool is_asked;
};

/* One cut. */
struct cut_run {
    struct muster_env *env;
    struct stop *stop;
    struct muster_fd_watch watch; /* of stop->fd */
    bool is_done;                 /* the operation that was started last, … */
    enum muster_rc rc;            /* … with this code */
    struct muster_error error;    /* why there is no connection */
};

static void stop_take(struct stop *stop)
{
    struct signalfd_siginfo info;

    stop->is_asked |= read(stop->fd, &info, sizeof(info)) == (ssize_t)sizeof(info);
}

static void on_stop(struct muster_fd_watch *watch, unsigned ready)
{
    const struct cut_run *run = watch->data;

    (void)ready;
    stop_take(run->stop);
}

static void run_end(struct cut_run *run, enum muster_rc rc)
{
    run->is_done = true;
    run->rc = rc;
}

/* The client's error is copied at once: a later event of the same turn may clear it. */
static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct cut_run *run = muster_params_data(params);

    run->error = *muster_params_error(params);
    run_end(run, rc);
}

static void on_closed(struct muster_params *params, enum muster_rc rc)
{
    run_end(muster_params_data(params), rc);
}

static void on_cut(struct muster_params_op *op, enum muster_rc rc)
{
    run_end(op->data, rc);
}

/* CANCELLED: the command is to stop, and what was started is not over. */
static enum muster_rc run_await(struct cut_run *run)
{
    while (!run->is_done && !run->stop->is_asked)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    return run->is_done ? run->rc : MUSTER_CANCELLED;
}

static enum muster_rc run_await_end(struct cut_run *run)
{
    while (!run->is_done)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    return run->rc;
}

static uint64_t deadline_of(const struct settings *settings, const struct cut_run *run)
{
    return muster_loop_after_ns(run->env->loop, settings->connection.timeout_ns);
}

static enum muster_rc client_close(struct muster_params *params, struct cut_run *run,
                                   struct muster_error *ret_error)
{
    struct muster_loop *loop = run->env->loop;
    enum muster_rc rc;

    run->is_done = false;
    muster_params_close(params, muster_loop_after_ns(loop, MUSTER_NS_PER_S), on_closed);
    rc = run_await_end(run);
    muster_loop_turn_closing(loop);
    return rc == MUSTER_OK
               ? rc
               : muster_error_set(ret_error, rc, "the server has not acknowledged the end");
}

static enum muster_rc cut_ask(const struct settings *settings, struct muster_params *params,
                              struct cut_run *run, const char *folder,
                              struct muster_params_cut *ret_cut, struct muster_error *ret_error)
{
    struct muster_params_op op = {.data = run};
    enum muster_rc rc;

    run->is_done = false;
    rc = muster_params_cut_at_start(&op, params, folder, settings->clock, ret_cut,
                                    deadline_of(settings, run), on_cut);
    if (rc == MUSTER_OK && run_await(run) == MUSTER_CANCELLED)
        muster_params_op_cancel(&op);
    if (rc == MUSTER_OK)
        rc = run_await_end(run);
    if (rc != MUSTER_OK)
        *ret_error = op.error;
    return rc;
}

static enum muster_rc cut_make(const struct settings *settings, struct cut_run *run,
                               const char *folder, struct muster_params_cut *ret_cut,
                               struct muster_error *ret_error)
{
    const struct muster_params_options options = {.server = settings->connection.server,
                                                  .job = settings->job,
                                                  .connect_deadline_ns = deadline_of(settings, run),
                                                  .data = run};
    struct muster_params *params;
    struct muster_error error;
    enum muster_rc rc = muster_params_open(run->env, &options, on_opened, &params, ret_error);
    enum muster_rc closed;

    if (rc != MUSTER_OK)
        return rc;
    rc = run_await(run);
    if (rc == MUSTER_OK)
        rc = cut_ask(settings, params, run, folder, ret_cut, ret_error);
    else
        *ret_error = run->error;
    closed = client_close(params, run, &error);
    if (rc != MUSTER_OK || closed == MUSTER_OK)
        return rc;
    *ret_error = error;
    return closed;
}

static enum muster_rc run_open(struct cut_run *run, struct muster_error *ret_error)
{
    enum muster_rc rc = muster_env_system_open(NULL, &run->env);

    /* The log says what the command waits for; without memory for it nothing does. */
    if (rc == MUSTER_OK)
        (void)!muster_log_file_open(run->env->mem, stderr, false, MUSTER_LOG_WARN, &run->env->log);
    if (rc == MUSTER_OK)
        rc = muster_net_system_open(run->env, &run->env->net);
    run->watch = (struct muster_fd_watch){
        .data = run, .on_ready = on_stop, .fd = run->stop->fd, .wanted = MUSTER_FD_READ};
    if (rc == MUSTER_OK && run->stop->fd >= 0)
        rc = muster_fd_watch_open(&run->watch, run->env->loop);
    return rc == MUSTER_OK
               ? rc
               : muster_error_set(ret_error, rc, "no event loop: %s", muster_rc_text(rc));
}

static void run_close(struct cut_run *run)
{
    struct muster_env *env = run->env;
    struct muster_tls *tls;
    struct muster_log *log;

    if (env == NULL)
        return;
    muster_fd_watch_close(&run->watch);
    tls = env->tls;
    env->tls = NULL;
    muster_tls_close(tls);
    if (env->net != NULL)
        muster_net_system_close(env->net);
    log = env->log;
    env->log = NULL;
    muster_log_file_close(log);
    muster_env_system_close(env);
}

static enum muster_rc cut_try(const struct settings *settings, struct stop *stop,
                              const char *folder, struct muster_params_cut *ret_cut,
                              struct muster_error *ret_error)
{
    struct cut_run run = {.stop = stop};
    enum muster_rc rc = run_open(&run, ret_error);

    if (rc == MUSTER_OK)
        rc = params_connection_tls_open(run.env, &settings->connection, &run.env->tls, ret_error);
    if (rc == MUSTER_OK)
        rc = cut_make(settings, &run, folder, ret_cut, ret_error);
    run_close(&run);
    if (rc != MUSTER_OK && ret_error->rc != rc)
        muster_error_set(ret_error, rc, "%s", muster_rc_text(rc));
    return rc;
}

static bool settings_check(const struct settings *settings, int words, int *ret_exit)
{
    const char *command = params_cut_options.command;

    if (settings->connection.server == NULL)
        *ret_exit = command_refuse(command, "--server must be the address of a server, got none");
    else if (words != 1)
        *ret_exit = command_refuse(command, "one folder must be given, got %d words", words);
    else if (settings->every_ns > 0 && settings->every_ns < EVERY_NS_MIN)
        *ret_exit = command_refuse(command, "--every must be 0 or at least 10ms, got %g s",
                                   (double)settings->every_ns / MUSTER_NS_PER_S);
    else if (settings->clock > 0 && settings->every_ns > 0)
        *ret_exit =
            command_refuse(command, "--clock names one cut, and --every many: give one of them");
    else
        return params_connection_check(command, &settings->connection, ret_exit);
    return false;
}

/* given_up: what is returned when SIGTERM ends the cut. */
static int cut_once(const struct settings *settings, struct stop *stop, const char *folder,
                    int given_up)
{
    struct muster_params_cut cut;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = cut_try(settings, stop, folder, &cut, &error);

    if (rc == MUSTER_CANCELLED && stop->is_asked)
        return given_up;
    if (rc != MUSTER_OK ||
        cut_files_keep(folder, cut.number, (uint32_t)settings->keep, &error) != MUSTER_OK)
        return command_fail("params cut", &error);
    return cut_print(settings, folder, &cut) ? EXIT_OK : EXIT_OTHER;
}

static uint64_t monotonic_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * MUSTER_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The signal is looked for even if until_ns has passed: the cut before may have failed without a turn of its loop. */
static void stop_await(struct stop *stop, uint64_t until_ns)
{
    struct pollfd watch = {.fd = stop->fd, .events = POLLIN};
    uint64_t now_ns;

    stop_take(stop);
    while (!stop->is_asked && (now_ns = monotonic_ns()) < until_ns) {
        const struct timespec left = {.tv_sec = (time_t)((until_ns - now_ns) / MUSTER_NS_PER_S),
                                      .tv_nsec = (long)((until_ns - now_ns) % MUSTER_NS_PER_S)};

        if (ppoll(&watch, 1, &left, NULL) > 0)
            stop_take(stop);
    }
}

static int signals_fail(void)
{
    struct muster_error error;

    muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "SIGTERM cannot be waited for: %s",
                     strerror(errno));
    return command_fail("params cut", &error);
}

/* Until SIGTERM; the code is that of the last cut that came to an end. The time between two cuts runs
 * from the begin of one to that of the next. */
static int cuts_repeat(const struct settings *settings, const char *folder)
{
    uint64_t next_ns = monotonic_ns();
    int code = EXIT_OK;
    struct stop stop = {.fd = -1};
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    stop.fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (stop.fd < 0)
        return signals_fail();
    do {
        next_ns += settings->every_ns;
        stop_await(&stop, next_ns);
        if (!stop.is_asked)
            code = cut_once(settings, &stop, folder, code);
    } while (!stop.is_asked);
    close(stop.fd);
    return code;
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
    code = settings.every_ns > 0
               ? cuts_repeat(&settings, folder)
               : cut_once(&settings, &(struct stop){.fd = -1}, folder, EXIT_OTHER);
    free(folder);
    return code;
}
