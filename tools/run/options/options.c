/* The table of the options of `muster run`, and the reading of a command line by it.
 *
 * A row says what one value may be; check.c judges the values against each other. The texts of
 * `help` are the reference of the options: `muster help options` prints them, and tests read that.
 */
#include "run/options/options.h"

#include "common/command.h"
#include "common/output.h"
#include "run/options/options_internal.h"
#include "run/options/variables.h"
#include "run/state/number.h"

#include <muster/micro_batches.h>
#include <muster/strategy_checkpoint.h>
#include <muster/stream.h>

#include <stdlib.h>
#include <string.h>

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

static bool check_every(const char *text, struct muster_error *ret_error)
{
    uint64_t steps, ns;

    return muster_checkpoint_every_parse(text, &steps, &ns, ret_error) == MUSTER_OK;
}

static bool check_preload(const char *text, struct muster_error *ret_error)
{
    for (const char *rest = text;; rest++) {
        size_t length = strcspn(rest, ",");

        if (!run_preload_is_module(rest, length)) {
            snprintf(ret_error->text, sizeof(ret_error->text),
                     "must be names of Python modules such as torch or numpy,torch, got '%.100s'",
                     text);
            return false;
        }
        rest += length;
        if (*rest == '\0')
            return true;
    }
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
    {.name = "preload",
     ROW(preload),
     .kind = MUSTER_OPTION_TEXT,
     .check = check_preload,
     .value = "MODULE,…",
     .help = "For Python programs: one process imports these modules, and workers fork from it, at "
             "the start and after each death. Its Python must have the package muster "
             "(docs/python.md)."},
    {.name = "min-members",
     .variable = "MUSTER_MIN_MEMBERS",
     ROW(members_min),
     .kind = MUSTER_OPTION_NUMBER,
     .fallback = "1",
     .unit = "workers",
     .min = 1,
     .max = RUN_WORKERS_MAX,
     .help = "With fewer workers than this the job waits, and ends when none of the missing ones "
             "can come back."},
    {.name = "min-members-timeout",
     .variable = "MUSTER_MIN_MEMBERS_TIMEOUT_S",
     ROW(members_min_timeout_ns),
     .kind = MUSTER_OPTION_DURATION,
     .fallback = "60",
     .unit = "s",
     .help = "How long the job waits for --min-members; counted in whole seconds, at least 1."},
    {.name = "checkpoint-dir",
     .variable = "MUSTER_CHECKPOINT_DIR",
     ROW(checkpoint_dir),
     .kind = MUSTER_OPTION_TEXT,
     .value = "DIR",
     .help =
         "Save the state of the workers here, and begin with the newest whole checkpoint of it: "
         "also when all workers have died. All machines see it by the same path."},
    {.name = "checkpoint-every",
     .variable = "MUSTER_CHECKPOINT_EVERY",
     ROW(checkpoint_every),
     .kind = MUSTER_OPTION_TEXT,
     .value = "STEPS|TIME",
     .help = "When: after so many steps (100), or a time (500ms, 30s, 10m, 1h); 10m by default.",
     .check = check_every},
    {.name = "checkpoint-keep",
     .variable = "MUSTER_CHECKPOINT_KEEP",
     ROW(checkpoint_keep),
     .kind = MUSTER_OPTION_NUMBER,
     .fallback = "3",
     .unit = "checkpoints",
     .max = 1000000,
     .help = "How many are kept; 0: all."},
    {.name = "constant-batch",
     .variable = "MUSTER_CONSTANT_BATCH",
     ROW(constant_batch),
     .kind = MUSTER_OPTION_NUMBER,
     .value = "SLOTS",
     .min = 1,
     .max = MUSTER_MICRO_SLOTS_MAX,
     .help = "Cut the batch of each step into so many micro-batches, which the workers share out: "
             "the batch is the same with any number of workers, and the result too, bit by bit, "
             "whoever dies or joins. The program must have steps in micro-batches, or its first "
             "begin fails (docs/training.md)."},
    {.name = "job",
     .variable = "MUSTER_JOB",
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
             "--min-members-timeout, never with fewer; machines that come later join. A machine "
             "that is lost then does not stop it."},
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
    {.name = "preemption-grace",
     ROW(preemption_grace_ns),
     .kind = MUSTER_OPTION_DURATION,
     .unit = "s",
     .help = "At SIGTERM the members of the job stop after the same step and save their state; "
             "this is how long that may take. The exit code is then 42, and the same command goes "
             "on from there. 0: the members are ended at once. By default 20 with "
             "--checkpoint-dir, else 0 (docs/preemption.md)."},
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

static bool is_mask_option(const char *argument)
{
    return strcmp(argument, "--tee") == 0 || strcmp(argument, "--redirects") == 0;
}

/* The option as the table knows it: torchrun also takes '_' for '-', and there a --tee or
 * --redirects that no mask follows means both streams. A value after '=' is left as it is. */
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

/* The options certainly end at "--". Without it (0) only the parser knows where the program begins,
 * and words of the program are respelled in vain: it gets its own argv. */
static int options_end(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0)
            return i;
    }
    return 0;
}

/* A command line as it was respelled: the settings borrow its words for the life of the process. */
struct spelled_line {
    struct spelled_line *next;
    char *words[];
};

static char **spelled_line_new(int argc)
{
    static struct spelled_line *kept; /* with --resume that of the first start follows our own */
    struct spelled_line *line =
        calloc(1, sizeof(*line) + ((size_t)argc + 1) * sizeof(line->words[0]));

    if (line == NULL)
        output_no_memory();
    line->next = kept;
    kept = line;
    return line->words;
}

bool run_settings_read(struct run_settings *settings, int argc, char **argv, int *ret_exit)
{
    char **spelled = spelled_line_new(argc);
    int end = options_end(argc, argv);
    int rest = argc;

    run_variables_drop_outer();
    for (int i = 0; i < argc; i++)
        spelled[i] = end == 0 || i < end ? respell_option(argv[i], argv[i + 1]) : argv[i];
    *settings = (struct run_settings){.node_rank = RUN_NODE_RANK_UNSET,
                                      .preemption_grace_ns = RUN_PREEMPTION_GRACE_UNSET};
    if (!command_parse(&run_options, argc, spelled, settings, &rest, ret_exit))
        return false;
    settings->program = argv + rest; /* as it was spelled */
    if (settings->resume == NULL)
        return run_settings_check(settings, ret_exit);
    /* The options of the first start count, so any other word here would be ignored. */
    if (rest == argc && argc <= 3 && strncmp(spelled[1], "--resume", 8) == 0)
        return true;
    *ret_exit = command_refuse(RUN_COMMAND,
                               "--resume must stand alone, got other words beside it; leave them "
                               "out, as options and program are those of the first start");
    return false;
}
