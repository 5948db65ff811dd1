/* The command line of `muster run`, read and checked. */
#include "run/options/options.h"

#include "common/command.h"
#include "common/job_tls.h"
#include "common/output.h"
#include "run/state/number.h"
#include "run/state/worker_fds.h"

#include <muster/stream.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MASTER_PORT_OF_TORCHRUN 29500

#define ROW(field) .offset = offsetof(struct run_settings, field)

static bool check_registry(const char *text, struct muster_error *ret_error)
{
    return strcmp(text, "embedded") == 0 || command_check_registry(text, ret_error);
}

static bool check_listen(const char *text, struct muster_error *ret_error)
{
    struct muster_listen listen;

    return muster_listen_parse(text, &listen, ret_error) == MUSTER_OK;
}

static const struct muster_option rows[] = {
    {.name = "nproc-per-node",
     .letter = 'n',
     ROW(procs_text),
     .kind = MUSTER_OPTION_TEXT,
     .fallback = "1",
     .value = "N|auto|cpu|gpu",
     .unit = "workers",
     .help = "Workers on this machine: a number, or one per CPU or per GPU (auto: per GPU if the "
             "machine has any)."},
    {.name = "max-restarts",
     ROW(restarts_max),
     .kind = MUSTER_OPTION_NUMBER,
     .fallback = "3",
     .unit = "per task",
     .help = "Restarts of a worker that dies, before it counts as failed. No restart when all "
             "workers (with --restart all: any worker) exit within 5 s with 2 or 64 (wrong "
             "arguments), 126 or 127 (no such command) before they report anything."},
    {.name = "restart",
     ROW(restart),
     .kind = MUSTER_OPTION_CHOICE,
     .choices = "worker|all",
     .fallback = "worker",
     .help = "Restart the worker that died, or, for programs that do not use muster, all workers."},
    {.name = "min-members",
     ROW(members_min),
     .kind = MUSTER_OPTION_NUMBER,
     .fallback = "1",
     .unit = "workers",
     .min = 1,
     .max = RUN_WORKERS_MAX,
     .help = "With fewer workers than this the job waits, and ends when none of the missing ones "
             "can come back."},
    {.name = "min-members-timeout",
     ROW(members_min_timeout_ns),
     .kind = MUSTER_OPTION_DURATION,
     .fallback = "60",
     .unit = "s",
     .help = "How long the job waits for --min-members; counted in whole seconds, at least 1."},
    {.name = "job",
     ROW(job),
     .kind = MUSTER_OPTION_TEXT,
     .value = "NAME",
     .help = "Name of the job in the registry; a random one by default."},
    {.name = "registry",
     .variable = "MUSTER_REGISTRY",
     ROW(registry),
     .kind = MUSTER_OPTION_TEXT,
     .fallback = "embedded",
     .check = check_registry,
     .value = "HOST:PORT,…|embedded",
     .help = "Where members find each other: a registry inside this process, a 'muster registry', "
             "or an etcd cluster."},
    {.name = "listen",
     .variable = "MUSTER_LISTEN",
     ROW(listen),
     .kind = MUSTER_OPTION_TEXT,
     .check = check_listen,
     .value = "ADDRESS[:PORT[-PORT]]",
     .help =
         "Address at which workers on other machines reach the workers of this one: an IP address, "
         "a host name or a network interface of this machine (10.0.0.1, eth0, [fd00::1]); 0.0.0.0 "
         "and [::] listen at all addresses. By default the address that the resolver gives for "
         "this machine, else the one from which it reaches the registry. With a range of ports, "
         "for firewalls, each worker takes a free port of it (eth0:5000-5099)."},
    {.name = "nnodes",
     ROW(nodes_text),
     .kind = MUSTER_OPTION_TEXT,
     .value = "MIN[:MAX]",
     .unit = "machines",
     .help = "Machines of the job; 1 by default. More than one needs --node-rank, --job and "
             "--registry. The job starts when all machines are there, or with MIN of them after "
             "--min-members-timeout; machines that come later join."},
    {.name = "resolver",
     ROW(resolver),
     .kind = MUSTER_OPTION_TEXT,
     .check = command_check_resolver,
     .value = "URI",
     .help = "Resolver that supplies the number of machines, the rank of this one, and the "
             "addresses of the first one and of this one, in place of --nnodes, --node-rank, "
             "--master-addr and --master-port: slurm:, tf_config:, kubernetes: … "
             "(docs/resolvers.md). Each task of the cluster is one 'muster run'."},
    {.name = "node-rank",
     ROW(node_rank),
     .kind = MUSTER_OPTION_NUMBER,
     .max = RUN_WORKERS_MAX,
     .help = "Rank of this machine, counted from 0; 0 by default."},
    {.name = "master-addr",
     ROW(master_addr),
     .kind = MUSTER_OPTION_TEXT,
     .value = "HOST",
     .help = "MASTER_ADDR of the workers: the machine with node rank 0. By default 127.0.0.1 on "
             "one machine; on several machines the variable is left as it is. Programs that use "
             "muster do not need it; --restart all on several machines does."},
    {.name = "master-port",
     ROW(master_port),
     .kind = MUSTER_OPTION_NUMBER,
     .fallback = "0",
     .max = 65535,
     .help = "MASTER_PORT of the workers. 0 takes a free port on one machine, and 29500 on several "
             "machines with --master-addr."},
    {.name = "tune-file",
     ROW(tune_file),
     .kind = MUSTER_OPTION_TEXT,
     .value = "FILE",
     .help =
         "Choose the algorithm of each operation by this table, written by 'muster bench tune'."},
    {.name = "reproducible",
     ROW(reproducible),
     .kind = MUSTER_OPTION_CHOICE,
     .choices = "no|view",
     .fallback = "no",
     .help = "view: reductions give the same bits whatever the algorithm, chunks, transport and "
             "timing, as long as the members stay the same."},
    {.name = "stripes",
     ROW(stripes),
     .kind = MUSTER_OPTION_NUMBER,
     .fallback = "0",
     .max = 8,
     .help = "TCP connections between two members; 0: 1 on the same host, 2 between hosts."},
    {.name = "tls",
     ROW(tls),
     .kind = MUSTER_OPTION_CHOICE,
     .choices = "off|auto",
     .fallback = "off",
     .help = "auto: TLS between members and to this launcher's registry, with certificates of an "
             "authority of the job: one in this launcher's memory, or that of --tls-secret. "
             "Processes of other jobs are rejected."},
    {.name = "tls-secret",
     .variable = "MUSTER_TLS_SECRET_FILE",
     ROW(tls_secret),
     .kind = MUSTER_OPTION_TEXT,
     .value = "FILE",
     .help = "With --tls auto: derive the authority from this file (32 random bytes or more) and "
             "--job. The same file on all machines makes one secure job of several launchers; "
             "'muster registry --tls-secret' serves it."},
    {.name = "tls-data",
     ROW(tls_data),
     .kind = MUSTER_OPTION_CHOICE,
     .choices = "encrypted|authenticated",
     .fallback = "encrypted",
     .help = "With --tls auto. authenticated: members prove their identity to each other, but data "
             "of collectives and catch-up are not encrypted: faster, for trusted networks."},
    {.name = "tls-life",
     ROW(tls_life_ns),
     .kind = MUSTER_OPTION_DURATION,
     .fallback = "3600",
     .unit = "s",
     .min = 3 * MUSTER_NS_PER_S,
     .help = "Lifetime of a certificate of --tls auto; it is renewed after a third of it."},
    {.name = "log-level",
     ROW(log_level),
     .kind = MUSTER_OPTION_CHOICE,
     .choices = "error|warn|info|debug|trace",
     .help = "Log level of this command and of the muster library in its workers "
             "(MUSTER_LOG_LEVEL). By default info here, and warn in workers."},
    COMMAND_LOG_FORMAT_ROW(struct run_settings),
    {.name = "log-dir",
     ROW(log_dir),
     .kind = MUSTER_OPTION_TEXT,
     .value = "DIR",
     .help =
         "Also write the output of each worker to DIR/attempt_K/RANK/stdout.log and stderr.log."},
    {.name = "trace",
     ROW(trace_dir),
     .kind = MUSTER_OPTION_TEXT,
     .value = "DIR",
     .help = "Every member writes its flight recorder to DIR at its end, for 'muster trace'. "
             "Without this option and MUSTER_TRACE only members that end with an error write it: "
             "to DIR/attempt_K/RANK of --log-dir, or to $TMPDIR/muster-UID (docs/trace.md)."},
    {.name = "tee",
     ROW(tee),
     .kind = MUSTER_OPTION_TEXT,
     .value = "MASK",
     .help = "Streams that go both to the console and to a file: 1 standard output, 2 standard "
             "error, 3 both, or per local rank '0:3,1:1'. Without a mask: 3."},
    {.name = "redirects",
     ROW(redirects),
     .kind = MUSTER_OPTION_TEXT,
     .value = "MASK",
     .help = "Streams that go only to a file; masks as for --tee."},
    {.name = "resumable",
     ROW(resumable),
     .kind = MUSTER_OPTION_TEXT,
     .value = "DIR",
     .help = "Let the workers outlive this command when it is killed, and keep in DIR the state "
             "that a successor needs. SIGTERM and Ctrl-C still end the workers."},
    {.name = "resume",
     ROW(resume),
     .kind = MUSTER_OPTION_TEXT,
     .value = "DIR",
     .help = "Take over the workers of a killed 'muster run --resumable DIR', with its options and "
             "its program. Takes no other options."},
    {.name = "json",
     ROW(json),
     .kind = MUSTER_OPTION_TEXT,
     .value = "FILE",
     .help = "Write a summary as one JSON object; '-' is standard output."},
    {.name = "status",
     ROW(status),
     .kind = MUSTER_OPTION_TEXT,
     .check = command_check_listen,
     .value = "HOST:PORT",
     .help = "Serve pages about the job over HTTP: / for people, /metrics for Prometheus, /healthz "
             "for probes. Port 0 takes a free port, which standard error shows."},
    {.name = "kill",
     ROW(kill_texts),
     .kind = MUSTER_OPTION_TEXTS,
     .value = "TASK@step=S[,chunk=C]",
     .help = "Fault injection: this worker (worker:2, or a rank) kills itself with SIGKILL inside "
             "an operation of step S, in its first life. May be repeated for different workers."},
    {.name = "grace",
     ROW(grace_ns),
     .kind = MUSTER_OPTION_DURATION,
     .fallback = "30",
     .unit = "s",
     .help = "Time between SIGTERM and SIGKILL when workers are ended."},
    {.name = "force-new",
     ROW(is_force_new),
     .kind = MUSTER_OPTION_FLAG,
     .help = "Start the job over although members of its last view are not known to be dead: they "
             "count as lost, as with their host. Refused while one of them is registered."},
    {.name = "quiet",
     .letter = 'q',
     ROW(is_quiet),
     .kind = MUSTER_OPTION_FLAG,
     .help = "No progress, events or summary; only errors."},
};

const struct muster_options run_options = {
    .command = RUN_COMMAND,
    .usage = "[options] -- PROGRAM [ARGS]",
    .about = "Start workers on this machine and keep the job going when some die; exit with 0 when "
             "all workers did. Workers get torchrun's environment variables and TF_CONFIG. No "
             "process of the job outlives this command (except with --resumable).",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
    .stops_at_word = true,
};

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

static uint32_t count_cpus(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);

    return count > 0 ? (uint32_t)count : 1;
}

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
                             "--nproc-per-node %s: not a number from 1 to %d, auto, cpu or gpu",
                             text, RUN_WORKERS_MAX);
    if (count == 0 && strcmp(text, "gpu") == 0)
        return refuse_option(ret_exit, "--nproc-per-node gpu: this machine has no NVIDIA GPU "
                                       "(/dev/nvidia[0-9]*): give a number of workers, or auto");
    if (count == 0)
        return refuse_option(ret_exit, "--nproc-per-node %s: it must be at least 1 worker", text);
    settings->worker_count = (uint32_t)count;
    return true;
}

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
        return refuse_option(ret_exit, "--nnodes %s: not of the form MIN or MIN:MAX",
                             settings->nodes_text);
    if (min == 0 || min > max)
        return refuse_option(ret_exit, "--nnodes %s: at least 1, and MIN not above MAX",
                             settings->nodes_text);
    if (settings->node_rank == RUN_NODE_RANK_UNSET)
        settings->node_rank = 0;
    if (settings->node_rank >= max)
        return refuse_option(ret_exit, "--node-rank %llu: there are %llu machines (--nnodes)",
                             (unsigned long long)settings->node_rank, (unsigned long long)max);
    if (max * settings->worker_count > RUN_WORKERS_MAX)
        return refuse_option(ret_exit,
                             "%llu machines with %u workers each are more than %d workers",
                             (unsigned long long)max, settings->worker_count, RUN_WORKERS_MAX);
    settings->nodes_min = (uint32_t)min;
    settings->nodes_max = (uint32_t)max;
    settings->rank_first = (uint32_t)settings->node_rank * settings->worker_count;
    settings->world_size = (uint32_t)max * settings->worker_count;
    return true;
}

static bool check_many_nodes(const struct run_settings *settings, int *ret_exit)
{
    if (settings->nodes_max == 1)
        return true;
    if (settings->is_embedded)
        return refuse_option(ret_exit,
                             "--nnodes %s needs a registry that all machines reach: start one with "
                             "'muster registry --listen HOST:PORT' and name it with --registry",
                             settings->nodes_text);
    if (settings->job == NULL)
        return refuse_option(ret_exit, "--nnodes %s needs a --job, the same name on all machines",
                             settings->nodes_text);
    return true;
}

/* The variables of PyTorch's static rendezvous: workers that use muster do without them. */
static bool check_master(struct run_settings *settings, int *ret_exit)
{
    bool is_inherited = getenv("MASTER_ADDR") != NULL && getenv("MASTER_PORT") != NULL;

    if (settings->nodes_max == 1)
        return true;
    if (settings->master_addr == NULL && settings->master_port != 0)
        return refuse_option(
            ret_exit,
            "--master-port %llu needs --master-addr, the machine of node rank 0, with "
            "--nnodes %s",
            (unsigned long long)settings->master_port, settings->nodes_text);
    if (settings->master_addr != NULL && settings->master_port == 0)
        settings->master_port = MASTER_PORT_OF_TORCHRUN;
    if (settings->is_gang && settings->master_addr == NULL && !is_inherited)
        return refuse_option(
            ret_exit,
            "--restart all is for programs that do not use muster, which meet at "
            "MASTER_ADDR: with --nnodes %s give --master-addr and --master-port, the "
            "same on all machines",
            settings->nodes_text);
    return true;
}

/* An authority of this launcher alone serves neither other launchers nor a successor. */
static bool check_tls_alone(const struct run_settings *settings, int *ret_exit)
{
    if (!settings->is_embedded)
        return refuse_option(
            ret_exit, "--tls auto with --registry: several launchers need one authority: give all "
                      "of them, and 'muster registry', the same --tls-secret FILE (or leave out "
                      "--tls auto and hand out certificates of your own)");
    if (settings->resumable != NULL || settings->resume != NULL)
        return refuse_option(ret_exit,
                             "--tls auto: the authority ends with this launcher, so there is "
                             "nothing to resume; give --tls-secret FILE, too, from which a "
                             "successor has it again, or leave out --resumable");
    return true;
}

static bool check_tls_secret(const struct run_settings *settings, int *ret_exit)
{
    if (settings->job == NULL && !settings->is_embedded)
        return refuse_option(ret_exit,
                             "--tls-secret: name the --job: its authority follows from the name");
    if (!settings->is_embedded && run_worker_fds_have_tls())
        return refuse_option(ret_exit,
                             "--tls auto in a worker of a job with --tls auto: give --registry "
                             "embedded, or leave out --tls: these workers are members of the "
                             "same trust");
    return true;
}

static bool check_tls(struct run_settings *settings, int *ret_exit)
{
    settings->is_tls_auto = strcmp(settings->tls, "auto") == 0;
    if (!settings->is_tls_auto && strcmp(settings->tls_data, "encrypted") != 0)
        return refuse_option(
            ret_exit,
            "--tls-data %s needs --tls auto; members with certificates of their own are "
            "given MUSTER_TLS_DATA",
            settings->tls_data);
    if (!settings->is_tls_auto)
        return settings->tls_secret == NULL ||
               refuse_option(ret_exit,
                             "--tls-secret (or MUSTER_TLS_SECRET_FILE) is for --tls auto: give "
                             "that, too");
    if (!job_tls_is_name(settings->job_name))
        return refuse_option(
            ret_exit,
            "--job '%s': with --tls auto a name has 1 to 63 letters, digits, '.', '_' and '-'",
            settings->job_name);
    return settings->tls_secret != NULL ? check_tls_secret(settings, ret_exit)
                                        : check_tls_alone(settings, ret_exit);
}

static bool read_job(struct run_settings *settings, int *ret_exit)
{
    const char *job = settings->job;
    uint64_t number = muster_rng_next(muster_rng_system());

    if (job == NULL) {
        snprintf(settings->job_name, sizeof(settings->job_name), "run-%08x",
                 (unsigned)(number & 0xffffffffu));
        return true;
    }
    if (job[0] == '\0' || strlen(job) >= sizeof(settings->job_name) || strchr(job, '/') != NULL)
        return refuse_option(ret_exit, "--job '%s': a name has 1 to %zu characters and no '/'", job,
                             sizeof(settings->job_name) - 1);
    snprintf(settings->job_name, sizeof(settings->job_name), "%s", job);
    return true;
}

static bool refuse_task(const struct run_settings *settings, const char *text, int *ret_exit)
{
    int length = (int)strcspn(text, "@");

    if (settings->world_size == 1)
        return refuse_option(ret_exit, "--kill %s: there is no task '%.*s', only worker:0", text,
                             length, text);
    return refuse_option(ret_exit, "--kill %s: there is no task '%.*s', only worker:0 to worker:%u",
                         text, length, text, settings->world_size - 1);
}

/* "worker:2@step=150,chunk=3" */
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
            ret_exit, "--kill %s: not of the form TASK@step=S[,chunk=C], TASK being worker:2 or 2",
            text);
    if (!run_number_parse(task, '@', UINT32_MAX, &rank, &point) || rank >= settings->world_size)
        return refuse_task(settings, text, ret_exit);
    for (size_t i = 0; i < settings->kill_count; i++) {
        if (settings->kills[i].rank == rank)
            return refuse_option(
                ret_exit,
                "--kill %s: worker:%llu has one already, and kills itself in its first "
                "life only",
                text, (unsigned long long)rank);
    }
    if (strncmp(point, "step=", 5) != 0 || strlen(point) >= sizeof(kill->point) ||
        !(run_number_parse(point + 5, '\0', UINT64_MAX / 16, &number, &rest) ||
          (run_number_parse(point + 5, ',', UINT64_MAX / 16, &number, &rest) &&
           strncmp(rest, "chunk=", 6) == 0 &&
           run_number_parse(rest + 6, '\0', UINT32_MAX, &number, NULL))))
        return refuse_option(
            ret_exit, "--kill %s: '%s' is not of the form step=S or step=S,chunk=C", text, point);
    kill->rank = (uint32_t)rank;
    snprintf(kill->point, sizeof(kill->point), "%s", point);
    settings->kill_count++;
    return true;
}

/* A table that nobody could read is told before anybody is started. */
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

/* Now, not at the end of a long training. */
static bool check_json(const struct run_settings *settings, int *ret_exit)
{
    bool is_there;
    int fd;

    if (settings->json == NULL || strcmp(settings->json, "-") == 0)
        return true;
    is_there = access(settings->json, F_OK) == 0;
    fd = open(settings->json, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return refuse_option(ret_exit, "--json '%s': a file cannot be written there: %s",
                             settings->json, strerror(errno));
    close(fd);
    if (!is_there)
        unlink(settings->json);
    return true;
}

static bool check_settings(struct run_settings *settings, int *ret_exit)
{
    unsigned mask;

    settings->is_gang = strcmp(settings->restart, "all") == 0;
    settings->is_embedded = strcmp(settings->registry, "embedded") == 0;
    if (!read_workers(settings, ret_exit) || !run_place_read(settings, ret_exit) ||
        !read_nodes(settings, ret_exit) || !check_many_nodes(settings, ret_exit) ||
        !check_master(settings, ret_exit) || !run_listen_read(settings, ret_exit) ||
        !read_job(settings, ret_exit) || !check_tls(settings, ret_exit) ||
        !check_json(settings, ret_exit) || !check_tune_file(settings, ret_exit))
        return false;
    if (settings->nodes_min < settings->nodes_max &&
        settings->members_min < settings->nodes_min * settings->worker_count)
        settings->members_min = settings->nodes_min * settings->worker_count;
    if (settings->members_min > settings->world_size)
        return refuse_option(ret_exit, "--min-members %llu: there are only %u workers",
                             (unsigned long long)settings->members_min, settings->world_size);
    if (!run_mask_of(settings->tee, 0, &mask))
        return refuse_option(ret_exit, "--tee %s: not a mask such as 3 or 0:1,1:2", settings->tee);
    if (!run_mask_of(settings->redirects, 0, &mask))
        return refuse_option(ret_exit, "--redirects %s: not a mask such as 3 or 0:1,1:2",
                             settings->redirects);
    for (size_t i = 0; i < settings->kill_texts.count; i++) {
        if (!read_kill(settings, settings->kill_texts.values[i], ret_exit))
            return false;
    }
    if (settings->program[0] == NULL)
        return refuse_option(ret_exit, "no program: write it behind '--'");
    return true;
}

static bool is_mask_option(const char *argument)
{
    return strcmp(argument, "--tee") == 0 || strcmp(argument, "--redirects") == 0;
}

/* torchrun's spelling with '_', and --tee and --redirects without a mask, as the option table knows
 * them. */
static char *respell_option(const char *argument, const char *next)
{
    static const char both[] = "=3";
    size_t length = strlen(argument);
    char *copy = malloc(length + sizeof(both));
    unsigned mask;

    if (copy == NULL)
        output_no_memory();
    memcpy(copy, argument, length + 1);
    for (size_t i = 2; length > 2 && copy[0] == '-' && copy[1] == '-' && i < length; i++) {
        if (copy[i] == '=')
            break;
        copy[i] = copy[i] == '_' ? '-' : copy[i];
    }
    if (is_mask_option(copy) && (next == NULL || !run_mask_of(next, 0, &mask)))
        memcpy(copy + length, both, sizeof(both));
    return copy;
}

/* Where the options certainly end: at "--", else unknown (0). */
static int options_end(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0)
            return i;
    }
    return 0;
}

bool run_settings_read(struct run_settings *settings, int argc, char **argv, int *ret_exit)
{
    static char **kept[2]; /* for the life of the process: settings borrow the texts; --resume reads
                            * a second time */
    char **spelled;
    int end = options_end(argc, argv);
    int rest = argc;

    spelled = calloc((size_t)argc + 1, sizeof(spelled[0]));
    if (spelled == NULL)
        output_no_memory();
    kept[kept[0] != NULL] = spelled;
    for (int i = 0; i < argc; i++)
        spelled[i] = end == 0 || i < end ? respell_option(argv[i], argv[i + 1]) : argv[i];
    *settings = (struct run_settings){.node_rank = RUN_NODE_RANK_UNSET};
    if (!command_parse(&run_options, argc, spelled, settings, &rest, ret_exit))
        return false;
    settings->program = argv + rest; /* as it was spelled */
    if (settings->resume != NULL)    /* what counts is what the first start was told */
        return rest == argc && argc <= 3 && strncmp(spelled[1], "--resume", 8) == 0
                   ? true
                   : refuse_option(ret_exit,
                                   "--resume %s stands alone: options and program are those of the "
                                   "first start",
                                   settings->resume);
    return check_settings(settings, ret_exit);
}
