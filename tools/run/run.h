/* What the files of `muster run` share: settings, tasks, and the run itself. */
#ifndef MUSTER_RUN_H
#define MUSTER_RUN_H

#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <muster/env.h>
#include <muster/json.h>
#include <muster/view.h>

#include "common/job_tls.h"
#include "run/options.h"
#include "run/output/output.h"
#include "run/report/publish.h"
#include "run/report/activity.h"
#include "run/report/history.h"
#include "run/output/log.h"
#include "run/task/restart.h"
#include "run/claim/resume.h"
#include "run/report/roll.h"
#include "run/report/status.h"
#include "run/report/terminal.h"

#define RUN_LAST_LINES       12 /* kept per task for the report of its failure */
#define RUN_LAST_LINE_BYTES  240
#define RUN_NAME_BYTES       24
#define RUN_NAMES_BYTES      512
#define RUN_DIGEST_BYTES     40
#define RUN_VALUES_MAX       16
#define RUN_VALUE_NAME_BYTES 40
#define RUN_RECOVERIES_MAX   4096
#define RUN_ANEW_MAX         64
#define RUN_REPORT_FD        3 /* in the child */
#define RUN_TLS_FD           4 /* there: its certificate and key, … */
#define RUN_TLS_CA_FD        5 /* … and the authority's certificate */

struct run;
struct run_task;

/* --- children: tools/run/task/child.c, tools/run/task/environment.c, tools/run/ports.c, tools/run/task/guard.c */

/** Start the program for task. 0, or errno of what failed (ENOENT: no such program). */
int run_child_start(struct run_task *task);
/** Take over the present life of task from a launcher that has died; keeper 0: it has ended. */
void run_child_adopt(struct run_task *task, pid_t keeper);
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
int run_guard_start(struct run *run, pid_t *ret_pid);
void run_guard_add(const struct run *run, const struct run_task *task, pid_t group);
void run_guard_remove(const struct run *run, pid_t group);
/** The place of that launcher in the registry is given back when the launcher is killed. */
void run_guard_claim(const struct run *run, uint64_t launcher);
void run_guard_stop(int fd, pid_t pid);
/** The guard's last work, in its own process: write down the deaths of members, and give the place back.
 * Until the registry has taken it, for 5 s at most. */
void run_guard_confirm(struct run *run, uint64_t launcher, const struct muster_incarnation *dead,
                       size_t count);

/* --- tasks: tools/run/task/task.c */

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
    uint64_t restarts;        /* of this task */
    uint64_t fruitless_lives; /* in a row, up to the one that ended last */
    unsigned lives;           /* starts so far */
    struct muster_timer start_timer;
    /* the present or last life */
    struct muster_incarnation incarnation;
    pid_t pid;          /* the worker's, or its keeper's: leads its process group. 0: not known */
    int worker_pid;     /* for people */
    unsigned collected; /* lives that have ended and are counted */
    struct muster_process_watch watch;
    bool is_watched;
    struct run_stream out, err, report;
    uint64_t started_ns, ended_ns, ended_wall_ns;
    int wait_status;
    char last_lines[RUN_LAST_LINES][RUN_LAST_LINE_BYTES];
    unsigned last_line_count; /* ever, of this life */
    bool is_death_untold;     /* its event waits for what the others say about it */
    int death_status;         /* wait status of the last death */
    uint64_t death_step;      /* the last that it reported before */
    bool is_loss_owed;        /* it has died, and the members have not spoken of it yet */
    bool is_join_untold;      /* waits for its death to be told */
    bool is_again;            /* it was a member before */
    int64_t join_epoch;
    uint64_t joined_ns; /* when join_epoch was reported; 0: it has not */
    double catch_up_ms;
    struct muster_timer death_timer;
    /* what it reported */
    bool has_reported;
    bool has_committed;   /* a step */
    bool is_loss_told;    /* by the others: they go on without it */
    uint64_t member_from; /* number of the first view that it reported; 0: none yet */
    bool is_unclosed;     /* it has said that it ends without close, … */
    bool is_in_step;      /* … and with a step begun, … */
    uint64_t left_step;   /* … this one, else behind this one */
    uint64_t born_epoch;  /* the last one known when it was started */
    uint64_t dying_ns;    /* it has said that it kills itself now; 0: it has not */
    uint64_t died_ns;     /* its last life, as far as is known; 0: none has ended */
    bool is_abandoned;    /* it has said that it gives up: no success whatever its exit code */
    char *trace_file;     /* its flight recorder, of the present or last life; NULL: not written */
    bool is_too_late;     /* it came back when the others had finished */
    bool is_refused;      /* the others cannot work with it, as this life has said */
    bool uses_muster, took_part; /* in any life: it has reported; it has committed a step */
    char refusal[MUSTER_ERROR_TEXT_BYTES];
    int misuse_code; /* by which each of its lives so far said that it was called wrongly; or 0 */
    uint64_t step;
    bool has_result;
    uint64_t steps, steps_lost;
    char digest[RUN_DIGEST_BYTES];
    struct run_values results;
    struct run_activity activity;
};

void run_task_init(struct run_task *task, struct run *run, uint32_t local_rank);
/** First start of all. */
void run_task_start_all(struct run *run);
/** The process has ended and is a zombie: confirm its death, collect, decide. */
void run_task_on_exit(struct run_task *task);
/** The members' view `epoch` is without it: now its next life is welcome. */
void run_task_on_loss_told(struct run_task *task, uint64_t epoch);
/** Tell all to end: signal now, SIGKILL after the grace time. */
void run_task_end_all(struct run *run, int signal);
void run_task_signal_all(struct run *run, int signal);
/** What a successor does: start now; go on with the end of all, or of the gang; see what follows.
 */
void run_task_start_again(struct run_task *task);
void run_task_go_on_ending(struct run *run, bool is_gang_restart);
void run_task_check(struct run *run);
/** The exit code that a wait status stands for: its own, or 128 + signal. */
int run_task_exit_code(int wait_status);
/** "killed by SIGKILL", "exited with code 3". Returns text. */
const char *run_task_death(int wait_status, char *text, size_t bytes);

/* --- registry: tools/run/registry.c */

struct run_registry;
struct run_tls;

/* --- tools/run/tls.c: what --tls auto makes */

bool run_tls_open(struct run *run, struct muster_error *ret_error);
void run_tls_close(struct run *run);
/** Of our own registry; NULL: plain text. Borrowed. */
struct muster_tls *run_tls_served(const struct run *run);
/** The client's; NULL: what MUSTER_REGISTRY_* say. Borrowed. */
struct muster_tls *run_tls_registry(const struct run *run);
/** What a task is told. */
struct run_tls_shown {
    char cert[JOB_TLS_PATH_BYTES], ca[JOB_TLS_PATH_BYTES];
    char peers[JOB_TLS_ID_BYTES], registry[JOB_TLS_ID_BYTES]; /* patterns of names */
    bool is_registry_of_job; /* under the same authority; else MUSTER_REGISTRY_* stay as they are */
    uint64_t reload_ns;
};
void run_tls_show(const struct run_task *task, struct run_tls_shown *ret_shown);
/** We are a worker of a launcher with --tls auto, and our descriptors are its. */
bool run_tls_is_member(void);
/** In the child of task: RUN_TLS_FD and RUN_TLS_CA_FD, ours or of a launcher above us, whose member
 * we are and so our members, too. False: there are none. */
bool run_tls_inherit(const struct run_task *task);

/* --- the place of this launcher in its job: tools/run/claim/claim.c, tools/run/claim/former.c */

struct run_claim;
struct run_former;
struct run_sweep;
/** Nothing with an embedded registry. Turns the loop until the place is taken; tells what it waits for. False:
 * another launcher has it, or another idea of the job (--nnodes, -n, --tls), and lives: told, *ret_exit. */
bool run_claim_take(struct run *run, int *ret_exit);
/** The place is this launcher's now; not while the registry is away. */
bool run_claim_is_held(const struct run *run);
/** Give it back; turns the loop for a moment. */
void run_claim_close(struct run *run);
/** The launcher that has the place now says that the members which a former one had started there are dead,
 * where they are: they end with their launcher. With --force-new: all members of the last view that are
 * not registered; false where some are, told, *ret_exit. Looks again until none is left. */
bool run_former_confirm(struct run *run, int *ret_exit);
void run_former_close(struct run *run);
/** In the background: keys of jobs that ended more than a day ago are removed from the registry. */
void run_sweep_open(struct run *run);
void run_sweep_close(struct run *run);
/** Nobody knows how far such a member had come. */
#define RUN_DEATH_WITH_LAUNCHER "SIGKILL with its launcher, step not known"

/** Embedded: serve one on 127.0.0.1; else connect to settings->registry. */
bool run_registry_open(struct run *run, struct muster_error *ret_error);
/** host:port for the workers. */
const char *run_registry_endpoint(const struct run *run);
/** Write the confirmed death of task's present life. */
void run_registry_confirm_death(struct run *run, const struct run_task *task, const char *how);
/** To it. Borrowed. */
struct muster_registry *run_registry_client(const struct run *run);
/** Let open writes end, close; turns the loop. */
void run_registry_close(struct run *run);

/* --- signals: tools/run/signals.c */

bool run_signals_open(struct run *run);
void run_signals_close(struct run *run);

/* --- reports and events: tools/run/report/ */

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
    uint32_t waits; /* for the launcher to reap who was lost */
    double recovery_ms;
    double detection_ms;            /* of recovery_ms; < 0: not known */
    uint64_t detected_ns, ended_ns; /* when the first learned of it; when the last went on */
    uint32_t awaited, delivered;    /* members that will say when they went on, and have said so */
    char lost[RUN_NAMES_BYTES], joined[RUN_NAMES_BYTES]; /* with blanks between */
    char op[64], phase[32], verdict[32];
    char reason[128]; /* "worker:2 left, worker:3 lost (SIGKILL)" */
    struct muster_timer timer;
};

/** How long they stood still: tools/run/report/recovery.c. */
void run_recovery_note(struct run_epoch *epoch, const struct muster_json *report);
void run_recovery_on_delivered(struct run_task *task, const struct muster_json *report);
/** All who were interrupted have gone on. */
bool run_recovery_is_known(const struct run_epoch *epoch);
/** Before the change is told: sets recovery_ms and detection_ms. */
void run_recovery_settle(struct run_epoch *epoch);
/** Tell the change if all is known. */
void run_events_look(struct run_epoch *epoch);
bool run_events_has_lost(const struct run_epoch *epoch, const char *name);

void run_events_init(struct run *run);
void run_events_on_death(struct run_task *task);
/** Whether members are there that will tell of task's death. */
bool run_events_are_expected(const struct run_task *task);
void run_events_on_view(struct run_task *task, const struct muster_json *report);
/** The task has caught up with the members' state. */
void run_events_on_joined(struct run_task *task, const struct muster_json *report);
/** Tell what still waits to be told. */
void run_events_flush(struct run *run);

/** No member of the job was left, and new ones have formed this view: the steps so far are lost. Nothing
 * when it is known. tools/run/claim/anew.c */
void run_anew_on_view(struct run *run, uint64_t epoch, uint64_t members);
/** anew_at as a list. Gives. */
struct muster_json *run_anew_steps(const struct run *run);

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

/** What the results say together: tools/run/task/outcome.c. Who has left early has done fewer steps, and other
 * weights; only those who did the most steps are compared. */
struct run_outcome {
    uint32_t results; /* of those */
    uint64_t steps, steps_lost;
    bool is_identical;
    bool is_different;
    const struct run_values *values; /* of the first of those */
    double recovery_median_ms, recovery_max_ms;
    double detection_median_ms, detection_max_ms;
};
void run_outcome_gather(struct run *run, struct run_outcome *ret_outcome);
/** Tasks of this launcher that have committed a step, in any of their lives. */
uint32_t run_outcome_took_part(const struct run *run);
bool run_outcome_has_begun(const struct run *run);
/** Some worker has reported, so the program uses muster, and none of them has ever committed a step. */
bool run_outcome_is_idle(const struct run *run);
/** Several workers have died, no worker has ever reported, and each of them is started again by itself: what
 * the others of a program without muster do not see. */
bool run_outcome_is_foreign(const struct run *run);
/** The last step that one of them has reported as committed, since the job last began. */
uint64_t run_outcome_committed(const struct run *run);
/** The task ended with 0 and without close, in the middle of a step or before the others had done theirs. */
bool run_outcome_has_left_early(const struct run_outcome *outcome, const struct run_task *task);
/** The task has a result, and nobody did more steps. */
bool run_outcome_is_final(const struct run_outcome *outcome, const struct run_task *task);

/* --- weights of other machines: tools/run/weights.c */

struct run_weights;
/** Once there is a registry client. */
void run_weights_open(struct run *run);
/** All workers have ended: leave their weights for the launchers of the other machines, and compare with
 * those that are there; the exit code tells. Turns the loop for some seconds at most. */
void run_weights_compare(struct run *run);
/** The registry client must have been closed. */
void run_weights_close(struct run *run);

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
    struct run_weights *weights;
    struct run_claim *claim;
    struct run_former *former;
    struct run_sweep *sweep;
    uint32_t machines_same;      /* whose weights are known to be the same, this one included */
    bool is_different_elsewhere; /* another machine has other weights after the same step */
    struct run_tls *tls;         /* NULL: plain text */
    struct muster_fd_watch signal_watch;
    int guard_fd;
    pid_t guard_pid;
    pid_t pid;
    struct rlimit descriptors; /* as we got it; the workers get it so */
    uint16_t master_port;
    char *tf_cluster;         /* JSON of the cluster, or NULL */
    char trace_dir[PATH_MAX]; /* of --trace; "": not given */
    char log_dir[512];
    struct muster_timer grace_timer;
    int stop_signal;     /* that told us to stop; 0: none */
    uint64_t stopped_ns; /* when it came */
    enum muster_log_level log_level;
    bool is_log_json;
    bool is_terminal_lent; /* to the only worker */
    struct run_progress progress;
    struct run_epoch epochs[4]; /* being collected; the oldest is told first when full */
    uint64_t started_ns, began_wall_ns;
    struct run_history *history; /* NULL: nobody looks */
    struct run_status *status;   /* NULL: no --status */
    struct run_roll *roll;       /* tasks that were members */
    struct run_publish *publish;
    struct run_resume *resume; /* NULL: everything ends with this launcher */
    /* counts for the summary */
    uint64_t gang_restarts;
    uint64_t restarts, kills, joins, rejoins, survivors_restarted;
    uint64_t epoch_first, epoch_last, epoch_told;
    uint64_t epoch_anew;            /* the view with which the job last began anew; 0: it has not */
    uint64_t steps_undone;          /* those before it did */
    uint64_t members_max;           /* with whom a worker of this launcher has committed a step */
    uint64_t anew_at[RUN_ANEW_MAX]; /* the steps at which the job stood then; the first ones */
    size_t anew_count;
    double recoveries_ms[RUN_RECOVERIES_MAX], detections_ms[RUN_RECOVERIES_MAX];
    size_t recovery_count, detection_count;
    /* the first failure that had no restart left */
    const struct run_task *failed;
    int failed_code;
    bool is_misuse; /* and no worker was called rightly */
    bool is_foreign_told;
    int fatal_code; /* the run had to end, whatever its workers say; 0: it had not */
    int exit_code;
};

void run_finish(struct run *run);

/** `muster run`. */
int command_run(int argc, char **argv);

#endif
