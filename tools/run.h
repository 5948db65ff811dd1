/* What the files of `muster run` share: settings, tasks, and the run itself. */
#ifndef MUSTER_RUN_H
#define MUSTER_RUN_H

#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <muster/env.h>
#include <muster/json.h>
#include <muster/options.h>
#include <muster/view.h>

#define RUN_WORKERS_MAX      4096
#define RUN_LINE_BYTES_MAX   ((size_t)1 << 20) /* a longer line is cut into lines of this size */
#define RUN_SINK_BYTES_MAX   ((size_t)4 << 20) /* queued for a slow reader; then workers wait */
#define RUN_LAST_LINES       12                /* kept per task for the report of its failure */
#define RUN_LAST_LINE_BYTES  240
#define RUN_NAME_BYTES       24
#define RUN_DIGEST_BYTES     40
#define RUN_VALUES_MAX       16
#define RUN_VALUE_NAME_BYTES 40
#define RUN_RECOVERIES_MAX   4096
#define RUN_REPORT_FD        3 /* in the child */

struct run;
struct run_task;

/* --- options: run_options.c */

struct run_kill {
    uint32_t rank;
    char point[48]; /* "step=150,chunk=3", the value of MUSTER_KILL */
};

struct run_settings {
    /* as given */
    const char *procs_text;
    const char *nodes_text;
    const char *restart;
    const char *registry;
    const char *job;
    const char *log_dir;
    const char *tee;
    const char *redirects;
    const char *json;
    const char *master_addr;
    struct muster_option_texts kill_texts;
    uint64_t node_rank;
    uint64_t master_port;
    uint64_t restarts_max;
    uint64_t members_min;
    uint64_t members_min_timeout_ns;
    uint64_t grace_ns;
    bool is_quiet;
    /* worked out */
    char **program;        /* program and arguments, NULL at the end */
    uint32_t worker_count; /* on this machine */
    uint32_t nodes_min, nodes_max;
    uint32_t rank_first;
    uint32_t world_size;
    bool is_gang;
    bool is_embedded;
    struct run_kill kills[MUSTER_OPTION_TEXTS_MAX];
    size_t kill_count;
    char job_name[MUSTER_JOB_NAME_BYTES];
};

/** Parse and check the command line. False: *ret_exit says how to end. */
bool run_settings_read(struct run_settings *settings, int argc, char **argv, int *ret_exit);

enum run_stream_mask { RUN_MASK_OUT = 1, RUN_MASK_ERR = 2 };
/** "3" or "0:1,2:3": which streams of this local rank are meant. text NULL: none. False: malformed.
 */
bool run_mask_of(const char *text, uint32_t local_rank, unsigned *ret_mask);

/* --- what goes out: run_sink.c */

/** A descriptor of ours that is written without blocking the loop. */
struct run_sink {
    struct muster_fd_watch watch;
    struct run *run;
    int fd;
    bool is_watched; /* false: regular files and such, written at once */
    bool is_broken;
    char *bytes;
    size_t start, end, capacity;
};
void run_sink_open(struct run_sink *sink, struct run *run, int fd);
/** Queue (and soon write) bytes. */
void run_sink_write(struct run_sink *sink, const char *bytes, size_t count);
/** Write what is queued, waiting for a slow reader up to 10 s. */
void run_sink_close(struct run_sink *sink);
bool run_sink_is_full(const struct run_sink *sink);

/* --- what workers print: run_output.c */

typedef void run_line_fn(void *data, const char *line, size_t length);

/** One pipe of a child, read by lines. */
struct run_stream {
    struct muster_fd_watch watch;
    struct run_task *task;
    run_line_fn *on_line;
    struct run_sink *console; /* NULL: not shown */
    int log_fd;               /* -1: none */
    bool is_open;
    char *line;
    size_t length, capacity;
};
/** Take the read end fd. */
bool run_stream_open(struct run_stream *stream, struct run_task *task, int fd,
                     run_line_fn *on_line);
/** Read what a dead worker left (a pipe holds 1 MiB at most), hand on a last line without its end,
 * close. */
void run_stream_drain(struct run_stream *stream);
/** Stop or go on reading all workers' output, as the sinks have room. */
void run_output_balance(struct run *run);
/** on_line of standard output and error: prefix, console, log file, last lines. `data` is the
 * stream. */
run_line_fn run_output_line;
/** Log files of this life of task, by --log-dir, --tee and --redirects. False: told why. */
bool run_output_open_logs(struct run_task *task);

/* --- children: run_child.c, run_environment.c, run_ports.c, run_guard.c */

/** Start the program for task. 0, or errno of what failed (ENOENT: no such program). */
int run_child_start(struct run_task *task);
/** Signal the task's whole process group. */
void run_child_signal(const struct run_task *task, int signal);
/** Reap children that are nobody's task; tasks that ended are handed to run_task_on_exit. */
void run_child_reap(struct run *run);
/** At the very end: kill and reap whatever is still below us. */
void run_child_sweep(void);

/** The environment of one life of task: NULL-terminated, one allocation per text. Gives. */
char **run_environment_new(const struct run_task *task);
void run_environment_free(char **environment);

/** count free TCP ports of 127.0.0.1, all different, that nobody gets who asks the kernel for any
 * port. */
bool run_ports_find(struct muster_rng *rng, uint16_t *ret_ports, size_t count);

/** A process that ends all groups when we are killed. Returns the descriptor that feeds it, or -1.
 */
int run_guard_start(pid_t *ret_pid);
void run_guard_add(const struct run *run, pid_t group);
void run_guard_remove(const struct run *run, pid_t group);
void run_guard_stop(int fd, pid_t pid);

/* --- policy: run_restart.c (pure) */

enum run_action {
    RUN_ACTION_NONE,        /* everything is ending anyway */
    RUN_ACTION_LEAVE,       /* it is done */
    RUN_ACTION_RESTART,     /* this one */
    RUN_ACTION_RESTART_ALL, /* all of them */
    RUN_ACTION_GO_ON,       /* without it: it has no restart left */
    RUN_ACTION_END_ALL,     /* too few are left */
};
struct run_restart_question {
    bool is_stopping;
    bool is_gang;
    bool is_success;   /* exit code 0 */
    bool is_runnable;  /* false: the program cannot be executed */
    uint64_t restarts; /* used: by the task, in a gang by the gang */
    uint64_t restarts_max;
    uint64_t others_left; /* running, to be started, or done with 0 */
    uint64_t members_min;
};
enum run_action run_restart_decide(const struct run_restart_question *question);
/** Wait before the next start: 0 at first and after a long life, then doubling. */
uint64_t run_restart_delay_ns(uint64_t restarts, uint64_t life_ns);

/* --- tasks: run_task.c */

enum run_task_state {
    RUN_TASK_NEW,
    RUN_TASK_WAITING, /* for its next start */
    RUN_TASK_RUNNING,
    RUN_TASK_LEFT,   /* ended with 0 */
    RUN_TASK_FAILED, /* no restart left, or ended while all end */
};

struct run_values {
    struct {
        char name[RUN_VALUE_NAME_BYTES];
        double value;
    } at[RUN_VALUES_MAX];
    size_t count;
};

struct run_task {
    struct run *run;
    char name[RUN_NAME_BYTES]; /* "worker:2" */
    uint32_t rank, local_rank;
    enum run_task_state state;
    uint64_t restarts; /* of this task */
    unsigned lives;    /* starts so far */
    struct muster_timer start_timer;
    /* the present or last life */
    struct muster_incarnation incarnation;
    pid_t pid;
    struct muster_process_watch watch;
    bool is_watched;
    struct run_stream out, err, report;
    uint64_t started_ns, ended_ns, ended_wall_ns;
    int wait_status;
    char last_lines[RUN_LAST_LINES][RUN_LAST_LINE_BYTES];
    unsigned last_line_count; /* ever, of this life */
    bool is_death_untold;     /* its event waits for what the others say about it */
    int death_status;         /* wait status of the last death */
    struct muster_timer death_timer;
    /* what it reported */
    bool has_reported;
    uint64_t step;
    bool has_result;
    uint64_t steps, steps_lost;
    char digest[RUN_DIGEST_BYTES];
    struct run_values results;
};

void run_task_init(struct run_task *task, struct run *run, uint32_t local_rank);
/** First start of all. */
void run_task_start_all(struct run *run);
/** The process has ended and is a zombie: confirm its death, collect, decide. */
void run_task_on_exit(struct run_task *task);
/** Tell all to end: signal now, SIGKILL after the grace time. */
void run_task_end_all(struct run *run, int signal);
void run_task_signal_all(struct run *run, int signal);
/** The exit code that a wait status stands for: its own, or 128 + signal. */
int run_task_exit_code(int wait_status);
/** "killed by SIGKILL", "exited with code 3". Returns text. */
const char *run_task_death(int wait_status, char *text, size_t bytes);

/* --- registry: run_registry.c */

struct run_registry;
/** Embedded: serve one on 127.0.0.1; else connect to settings->registry. */
bool run_registry_open(struct run *run, struct muster_error *ret_error);
/** host:port for the workers. */
const char *run_registry_endpoint(const struct run *run);
/** Write the confirmed death of task's present life. */
void run_registry_confirm_death(struct run *run, const struct run_task *task, const char *how);
/** Let open writes end, close; turns the loop. */
void run_registry_close(struct run *run);

/* --- signals: run_signals.c */

bool run_signals_open(struct run *run);
void run_signals_close(struct run *run);

/* --- reports and events: run_report.c, run_events.c, run_progress.c, run_summary.c */

/** on_line of the report pipe. */
run_line_fn run_report_line;

/** A change of view, as the members tell it. */
struct run_epoch {
    bool is_open;
    struct run *run;
    uint64_t epoch;
    uint64_t members;
    uint64_t step;
    uint32_t reports;
    double recovery_ms;
    char lost[512];
    char op[64], phase[32], verdict[32];
    struct muster_timer timer;
};

void run_events_init(struct run *run);
void run_events_on_death(struct run_task *task);
void run_events_on_view(struct run_task *task, const struct muster_json *report);
void run_events_on_rejoined(struct run_task *task, const struct muster_json *report);
/** Tell what still waits to be told. */
void run_events_flush(struct run *run);
/** A line for people: "[muster] text". Nothing with --quiet. */
void run_tell(struct run *run, const char *fmt, ...) MUSTER_PRINTF(2, 3);

struct run_progress {
    struct muster_timer timer;
    bool is_terminal;
    bool is_shown; /* a progress line stands on the terminal */
    bool is_changed;
    uint64_t step, epoch, members;
    struct run_values values;
};
void run_progress_init(struct run *run);
void run_progress_on_report(struct run *run);
/** Take the progress line off the terminal before something else is printed. */
void run_progress_clear(struct run *run);
void run_progress_stop(struct run *run);

/** Text at the end and --json. */
void run_summary_print(struct run *run);
/** False: told why. */
bool run_summary_write(struct run *run);

/* --- the run: run.c */

enum run_state {
    RUN_STATE_RUNNING,
    RUN_STATE_REGROUPING, /* a gang restart: all end, then all start */
    RUN_STATE_STOPPING,   /* all end for good */
    RUN_STATE_DONE,
};

struct run {
    struct run_settings settings;
    struct muster_env *env;
    enum run_state state;
    struct run_task *tasks;
    uint32_t task_count;
    struct run_sink sinks[2];
    struct run_sink *out, *err; /* the same one when both are one terminal */
    bool is_output_held;
    struct run_registry *registry;
    struct muster_fd_watch signal_watch;
    int guard_fd;
    pid_t guard_pid;
    pid_t pid;
    struct rlimit descriptors; /* as we got it; the workers get it so */
    uint16_t master_port;
    char *tf_cluster; /* JSON of the cluster, or NULL */
    char log_dir[512];
    struct muster_timer grace_timer;
    int stop_signal; /* that told us to stop; 0: none */
    struct run_progress progress;
    struct run_epoch epochs[4]; /* being collected; the oldest is told first when full */
    uint64_t started_ns;
    /* counts for the summary */
    uint64_t gang_restarts;
    uint64_t restarts, kills, rejoins, survivors_restarted;
    uint64_t epoch_last, epoch_told;
    double recoveries_ms[RUN_RECOVERIES_MAX];
    size_t recovery_count;
    /* the first failure that had no restart left */
    const struct run_task *failed;
    int failed_code;
    int exit_code;
};

void run_finish(struct run *run);

#endif
