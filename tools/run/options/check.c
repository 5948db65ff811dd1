/* The settings of `muster run`, checked against each other.
 *
 * options.c calls run_settings_check once every value is good by itself. Everything that follows
 * from several options is worked out here: ranks, world size, the job's name, faults to inject. The
 * first contradiction ends the command, before any worker starts; place.c asks the resolver,
 * listen.c looks up --listen. */
#include "run/options/options_internal.h"

#include "common/command.h"
#include "common/job_tls.h"
#include "run/options/options.h"
#include "run/state/number.h"
#include "run/state/worker_fds.h"

#include <muster/env.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* torchrun's default of --master-port; all machines must know it without being told. */
#define MASTER_PORT_OF_TORCHRUN 29500
#define PREEMPTION_GRACE_NS     (20 * MUSTER_NS_PER_S) /* with --checkpoint-dir */

/* Returns false, so that a check can end with it. */
static bool refuse_option(int *ret_exit, const char *fmt, ...) MUSTER_PRINTF(2, 3);
static bool refuse_option(int *ret_exit, const char *fmt, ...)
{
    char what[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    *ret_exit = command_refuse(RUN_COMMAND, "%s", what);
    return false;
}

/* For errors: where the variable is set, the value may have come from it instead of the option. */
#define OR_VARIABLE(name) (getenv(name) != NULL ? " (or " name ")" : "")

static uint32_t count_cpus(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);

    return count > 0 ? (uint32_t)count : 1;
}

/* --nproc-per-node: the workers of this machine. */
static bool read_workers(struct run_settings *settings, int *ret_exit)
{
    const char *text = settings->procs_text;
    uint32_t gpus = muster_host_count_gpus(muster_files_system());
    uint64_t count = 0;

    if (strcmp(text, "cpu") == 0)
        count = count_cpus();
    else if (strcmp(text, "gpu") == 0)
        count = gpus;
    else if (strcmp(text, "auto") == 0)
        count = gpus > 0 ? gpus : count_cpus();
    else if (!run_number_parse(text, '\0', RUN_WORKERS_MAX, &count, NULL))
        return refuse_option(ret_exit,
                             "--nproc-per-node must be a number from 1 to %d, auto, cpu or gpu, "
                             "got %s",
                             RUN_WORKERS_MAX, text);
    if (count == 0 && strcmp(text, "gpu") == 0)
        return refuse_option(ret_exit,
                             "--nproc-per-node must be a number, auto or cpu, got gpu: this "
                             "machine has no NVIDIA GPU (/dev/nvidia[0-9]*)");
    if (count == 0)
        return refuse_option(ret_exit, "--nproc-per-node must be at least 1 worker, got %s", text);
    settings->worker_count = (uint32_t)count;
    return true;
}

/* --nnodes and --node-rank: the machines, and from them the ranks of this machine's workers. An
 * elastic job (MIN:MAX) has ranks for MAX machines. */
static bool read_nodes(struct run_settings *settings, int *ret_exit)
{
    const char *text;
    uint64_t min = 0;
    uint64_t max = 0;

    if (settings->nodes_text == NULL)
        settings->nodes_text = "1";
    text = settings->nodes_text;
    if (run_number_parse(text, '\0', RUN_WORKERS_MAX, &min, NULL))
        max = min;
    else if (!run_number_parse(text, ':', RUN_WORKERS_MAX, &min, &text) ||
             !run_number_parse(text, '\0', RUN_WORKERS_MAX, &max, NULL))
        return refuse_option(
            ret_exit, "--nnodes must be MIN or MIN:MAX, numbers of machines up to %d, got %s",
            RUN_WORKERS_MAX, settings->nodes_text);
    if (min == 0 || min > max)
        return refuse_option(ret_exit, "--nnodes must be at least 1, and MIN at most MAX, got %s",
                             settings->nodes_text);
    if (settings->node_rank == RUN_NODE_RANK_UNSET)
        settings->node_rank = 0;
    if (settings->node_rank >= max)
        return refuse_option(ret_exit,
                             "--node-rank must be from 0 to %llu, one less than --nnodes, got %llu",
                             (unsigned long long)max - 1, (unsigned long long)settings->node_rank);
    if (max * settings->worker_count > RUN_WORKERS_MAX)
        return refuse_option(ret_exit,
                             "--nnodes times --nproc-per-node must be at most %d workers, got %llu "
                             "times %u",
                             RUN_WORKERS_MAX, (unsigned long long)max, settings->worker_count);
    settings->nodes_min = (uint32_t)min;
    settings->nodes_max = (uint32_t)max;
    /* A resolver's cluster has a machine for each of its tasks, and no word on how many may be missing. */
    if (min > 1 && settings->resolver == NULL)
        settings->members_min_start = (uint32_t)(min - 1) * settings->worker_count + 1;
    settings->rank_first = (uint32_t)settings->node_rank * settings->worker_count;
    settings->world_size = (uint32_t)max * settings->worker_count;
    return true;
}

/* Several launchers find each other by a registry that outlives each of them, under one name. */
static bool check_many_nodes(const struct run_settings *settings, int *ret_exit)
{
    if (settings->nodes_max == 1)
        return true;
    if (settings->is_embedded)
        return refuse_option(ret_exit,
                             "--registry must be one that all machines of --nnodes %s reach, got "
                             "embedded; start one with 'muster registry --listen HOST:PORT'",
                             settings->nodes_text);
    if (settings->job == NULL)
        return refuse_option(ret_exit,
                             "--job must be given with --nnodes %s, the same name on all machines",
                             settings->nodes_text);
    return true;
}

/* MASTER_ADDR and MASTER_PORT are the variables of PyTorch's static rendezvous. Workers that use
 * muster do without them. A gang on several machines needs them, given or inherited. */
static bool check_master(struct run_settings *settings, int *ret_exit)
{
    bool is_inherited = getenv("MASTER_ADDR") != NULL && getenv("MASTER_PORT") != NULL;

    if (settings->nodes_max == 1)
        return true;
    if (settings->master_addr == NULL && settings->master_port != 0)
        return refuse_option(
            ret_exit,
            "--master-addr must be given with --master-port %llu and --nnodes %s; it is the "
            "machine of node rank 0",
            (unsigned long long)settings->master_port, settings->nodes_text);
    if (settings->master_addr != NULL && settings->master_port == 0)
        settings->master_port = MASTER_PORT_OF_TORCHRUN;
    if (settings->is_gang && settings->master_addr == NULL && !is_inherited)
        return refuse_option(
            ret_exit,
            "--master-addr and --master-port must be given with --restart all and --nnodes %s, "
            "the same on all machines: programs that do not use muster meet there",
            settings->nodes_text);
    return true;
}

/* An authority of this launcher alone serves neither other launchers nor a successor. */
static bool check_tls_alone(const struct run_settings *settings, int *ret_exit)
{
    if (!settings->is_embedded)
        return refuse_option(
            ret_exit, "--tls-secret FILE must be given with --tls auto and --registry, as several "
                      "launchers need one authority; give all of them, and 'muster registry', the "
                      "same file, or leave out --tls auto and hand out certificates of your own");
    if (settings->resumable != NULL || settings->resume != NULL)
        return refuse_option(
            ret_exit, "--tls-secret FILE must be given with --tls auto and --resumable, as a "
                      "successor derives the authority from it; or leave out --resumable");
    return true;
}

/* An authority that every holder of the secret derives, from it and the job's name. */
static bool check_tls_secret(const struct run_settings *settings, int *ret_exit)
{
    if (settings->job == NULL && !settings->is_embedded)
        return refuse_option(ret_exit,
                             "--job must be given with --tls-secret and --registry: the authority "
                             "follows from its name");
    if (!settings->is_embedded && run_worker_fds_have_tls())
        return refuse_option(
            ret_exit,
            "--registry must be embedded with --tls auto in a worker of a job with "
            "--tls auto, got %s; or leave out --tls, as these workers have the "
            "certificates of that job",
            settings->registry);
    return true;
}

static bool check_tls(struct run_settings *settings, int *ret_exit)
{
    settings->is_tls_auto = strcmp(settings->tls, "auto") == 0;
    if (!settings->is_tls_auto && strcmp(settings->tls_data, "encrypted") != 0)
        return refuse_option(
            ret_exit,
            "--tls must be auto with --tls-data %s, got off; members with certificates of their "
            "own take MUSTER_TLS_DATA",
            settings->tls_data);
    if (!settings->is_tls_auto)
        return settings->tls_secret == NULL ||
               refuse_option(
                   ret_exit,
                   "--tls must be auto with --tls-secret (or MUSTER_TLS_SECRET_FILE), got "
                   "off; give --tls auto, or leave out the secret");
    if (!job_tls_is_name(settings->job_name))
        return refuse_option(
            ret_exit,
            "--job must be 1 to 63 letters, digits, '.', '_' and '-' with --tls auto, got '%s'",
            settings->job_name);
    return settings->tls_secret != NULL ? check_tls_secret(settings, ret_exit)
                                        : check_tls_alone(settings, ret_exit);
}

static bool read_job(struct run_settings *settings, int *ret_exit)
{
    const char *job = settings->job;
    struct muster_error error;
    uint64_t number = muster_rng_next(muster_rng_system());

    if (job == NULL) {
        snprintf(settings->job_name, sizeof(settings->job_name), "run-%08x",
                 (unsigned)(number & 0xffffffffu));
        return true;
    }
    if (muster_job_name_check(job, &error) != MUSTER_OK)
        return refuse_option(ret_exit, "--job%s: %s", OR_VARIABLE("MUSTER_JOB"), error.text);
    snprintf(settings->job_name, sizeof(settings->job_name), "%s", job);
    return true;
}

static bool refuse_task(const struct run_settings *settings, const char *text, int *ret_exit)
{
    int length = (int)strcspn(text, "@");

    if (settings->world_size == 1)
        return refuse_option(
            ret_exit, "--kill must name worker:0, the only worker, got %s: there is no task '%.*s'",
            text, length, text);
    return refuse_option(
        ret_exit, "--kill must name one of worker:0 to worker:%u, got %s: there is no task '%.*s'",
        settings->world_size - 1, text, length, text);
}

/* One --kill, "worker:2@step=150,chunk=3". The numbers are only checked: the worker gets the text
 * after '@' as MUSTER_KILL. */
static bool read_kill(struct run_settings *settings, const char *text, int *ret_exit)
{
    const char *task = strncmp(text, "worker:", 7) == 0 ? text + 7 : text;
    struct run_kill *kill = &settings->kills[settings->kill_count];
    const char *point = NULL;
    uint64_t rank = 0;
    uint64_t number = 0;
    const char *rest = NULL;

    if (strchr(text, '@') == NULL)
        return refuse_option(
            ret_exit,
            "--kill must be TASK@step=S[,chunk=C] with a TASK such as worker:2 or 2, got %s", text);
    if (!run_number_parse(task, '@', UINT32_MAX, &rank, &point) || rank >= settings->world_size)
        return refuse_task(settings, text, ret_exit);
    for (size_t i = 0; i < settings->kill_count; i++) {
        if (settings->kills[i].rank == rank)
            return refuse_option(
                ret_exit,
                "--kill must name each worker once, got %s: worker:%llu has one already, and kills "
                "itself in its first life only",
                text, (unsigned long long)rank);
    }
    if (strncmp(point, "step=", 5) != 0 || strlen(point) >= sizeof(kill->point) ||
        !(run_number_parse(point + 5, '\0', UINT64_MAX / 16, &number, &rest) ||
          (run_number_parse(point + 5, ',', UINT64_MAX / 16, &number, &rest) &&
           strncmp(rest, "chunk=", 6) == 0 &&
           run_number_parse(rest + 6, '\0', UINT32_MAX, &number, NULL))))
        return refuse_option(ret_exit, "--kill must be TASK@step=S or TASK@step=S,chunk=C, got %s",
                             text);
    kill->rank = (uint32_t)rank;
    snprintf(kill->point, sizeof(kill->point), "%s", point);
    settings->kill_count++;
    return true;
}

/* Each worker reads the table for itself; a bad one is refused here once, before any of them
 * starts. */
static bool check_tune_file(const struct run_settings *settings, int *ret_exit)
{
    struct muster_plan_parameters parameters;
    struct muster_error error;

    if (settings->tune_file == NULL ||
        muster_plan_parameters_read(muster_files_system(), muster_mem_system(), settings->tune_file,
                                    &parameters, &error) == MUSTER_OK)
        return true;
    return refuse_option(ret_exit, "--tune-file %s", error.text);
}

/* The summary is written at the end of a training that may take days, so a path that cannot be
 * written is refused now. A file that was not there is removed again: a run that fails later leaves
 * none. */
static bool check_json(const struct run_settings *settings, int *ret_exit)
{
    bool is_there;
    int fd;

    if (settings->json == NULL || strcmp(settings->json, "-") == 0)
        return true;
    is_there = access(settings->json, F_OK) == 0;
    fd = open(settings->json, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return refuse_option(ret_exit,
                             "--json must be a file that can be written, or '-', got '%s': %s",
                             settings->json, strerror(errno));
    close(fd);
    if (!is_there)
        unlink(settings->json);
    return true;
}

bool run_settings_check(struct run_settings *settings, int *ret_exit)
{
    unsigned mask;

    settings->is_gang = strcmp(settings->restart, "all") == 0;
    settings->is_embedded = strcmp(settings->registry, "embedded") == 0;
    /* The order matters: the resolver fills in --nnodes and --node-rank before they are read, ranks
     * and world size follow from those, and the later checks compare with them. */
    if (!read_workers(settings, ret_exit) || !run_place_read(settings, ret_exit) ||
        !read_nodes(settings, ret_exit) || !check_many_nodes(settings, ret_exit) ||
        !check_master(settings, ret_exit) || !run_listen_read(settings, ret_exit) ||
        !read_job(settings, ret_exit) || !check_tls(settings, ret_exit) ||
        !check_json(settings, ret_exit) || !check_tune_file(settings, ret_exit))
        return false;
    /* A job that may start with MIN machines is not to start with fewer workers than those have. */
    if (settings->nodes_min < settings->nodes_max &&
        settings->members_min < settings->nodes_min * settings->worker_count)
        settings->members_min = settings->nodes_min * settings->worker_count;
    if (settings->members_min > settings->world_size)
        return refuse_option(ret_exit,
                             "--min-members%s must be at most %u, the number of workers, got %llu",
                             OR_VARIABLE("MUSTER_MIN_MEMBERS"), settings->world_size,
                             (unsigned long long)settings->members_min);
    if (settings->checkpoint_dir == NULL && settings->checkpoint_every != NULL)
        return refuse_option(ret_exit, "--checkpoint-every needs --checkpoint-dir");
    if (settings->preemption_grace_ns == RUN_PREEMPTION_GRACE_UNSET)
        settings->preemption_grace_ns = settings->checkpoint_dir != NULL ? PREEMPTION_GRACE_NS : 0;
    if (!run_mask_of(settings->tee, 0, &mask))
        return refuse_option(ret_exit, "--tee must be a mask such as 3 or 0:1,1:2, got %s",
                             settings->tee);
    if (!run_mask_of(settings->redirects, 0, &mask))
        return refuse_option(ret_exit, "--redirects must be a mask such as 3 or 0:1,1:2, got %s",
                             settings->redirects);
    for (size_t i = 0; i < settings->kill_texts.count; i++) {
        if (!read_kill(settings, settings->kill_texts.values[i], ret_exit))
            return false;
    }
    if (settings->program[0] == NULL)
        return refuse_option(
            ret_exit, "a program must follow the options, got no program; write it after '--'");
    return run_preload_read(settings, ret_exit);
}
