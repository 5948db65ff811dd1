/* One run: the facts that the parts of the launcher share. Each part keeps its own state behind a
 * pointer that only its files follow. */
#ifndef MUSTER_RUN_STATE_RUN_H
#define MUSTER_RUN_STATE_RUN_H

#include <limits.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <muster/env.h>

#include "run/state/control.h"
#include "run/state/settings.h"
#include "run/state/task.h"

#define RUN_RECOVERIES_MAX 4096
#define RUN_ANEW_MAX       64
/* The cause that a death is confirmed with when a whole launcher has died with its workers. */
#define RUN_DEATH_WITH_LAUNCHER "SIGKILL with its launcher, step not known"

enum run_state {
    RUN_STATE_RUNNING,    /* workers run, or are to be started */
    RUN_STATE_REGROUPING, /* a gang restart: all end, then all start */
    RUN_STATE_LEAVING,    /* preempted: the workers end by themselves, and none is started */
    RUN_STATE_STOPPING,   /* all end for good */
    RUN_STATE_DONE,       /* none runs any more; the exit code is decided */
};

/** The newest step of the job, as its members report it. */
struct run_progress {
    bool is_changed; /* since it was shown last */
    uint64_t step, epoch, members;
    struct run_values values;
    struct muster_timer timer; /* of the progress line */
};

/** The newest checkpoint that the directory has at the end of the run. */
struct run_saved {
    bool is_known;
    enum muster_rc rc; /* of the look; its text is that of error */
    struct muster_error error;
    uint64_t step; /* 0: none */
};

struct run {
    struct run_settings settings;
    const struct run_control *control;
    struct muster_env *env;
    enum run_state state;
    struct run_task *tasks;
    uint32_t task_count;
    /* state of the parts */
    struct run_output *output;
    struct run_spool *spool; /* NULL: workers write to pipes */
    struct run_registry *registry;
    struct run_preempt_key *preempt_key; /* NULL: the job has not been asked to stop */
    struct run_tls *tls;                 /* NULL: plain text */
    struct run_weights *weights;
    struct run_roll *roll;
    struct run_sweep *sweep;
    struct run_claim *claim;
    struct run_former *former;
    struct run_events *events;
    struct run_history *history; /* NULL: no status page */
    struct run_status *status;   /* NULL: no --status */
    struct run_publish *publish;
    struct run_places *places;   /* NULL: no memory for them */
    struct run_dying *dying;     /* NULL: deaths are told when workers are reaped */
    struct run_preload *preload; /* NULL: workers are started directly */
    struct run_resume *resume;   /* NULL: everything ends with this launcher */
    struct run_table *table;     /* NULL: without resume */
    /* this process, and what its workers inherit */
    struct muster_fd_watch signal_watch;
    int guard_fd;
    pid_t guard_pid;
    pid_t pid;
    struct rlimit descriptors; /* as we got it; the workers get it so */
    uint16_t master_port;
    char *tf_cluster;         /* JSON of the cluster, or NULL */
    char trace_dir[PATH_MAX]; /* of --trace; "": not given */
    char checkpoint_dir[PATH_MAX]; /* what the setting names, absolute */
    /* what the workers' program names, for a run without the setting; "": nothing */
    char program_checkpoint_dir[PATH_MAX];
    struct run_saved saved;        /* at the end: report/saved.c */
    char log_dir[512];
    bool is_terminal_lent; /* to the only worker */
    /* the end */
    struct muster_timer grace_timer, preemption_timer, preemption_tell_timer;
    char preempt_cause[64];        /* why the job is to stop by itself; "": it is not */
    int stop_signal;               /* that told us to stop; 0: none */
    uint64_t stopped_ns;           /* when it came */
    const struct run_task *failed; /* the first that failed without a restart left */
    int failed_code;
    bool is_misuse; /* and no worker was called rightly */
    bool is_foreign_told;
    int fatal_code; /* the run had to end, whatever its workers say; 0: it had not */
    int exit_code;
    /* the job, as its members report it */
    uint64_t started_ns, began_wall_ns;
    struct run_progress progress;
    bool has_results; /* a worker has reported one, in any life */
    uint64_t epoch_first, epoch_last, epoch_told;
    uint64_t members_max;           /* with whom a worker of this launcher has committed a step */
    uint64_t epoch_anew;            /* the view with which the job last began anew; 0: it has not */
    uint64_t steps_undone;          /* those before it did */
    uint64_t anew_step;             /* where it stood before that view */
    uint64_t epoch_restored;        /* the last view that began with a checkpoint; 0: none */
    uint64_t anew_at[RUN_ANEW_MAX]; /* the steps at which the job stood then; the first ones */
    size_t anew_count;
    uint32_t machines_same;      /* whose weights are known to be the same, this one included */
    bool is_different_elsewhere; /* another machine has other weights after the same step */
    /* counts for the summary */
    uint64_t gang_restarts;
    uint64_t restarts, kills, joins, rejoins, survivors_restarted;
    /* checkpoints, as workers tell: all of them tell of each */
    uint64_t checkpoints_saved, checkpoints_failed;
    uint64_t checkpoint_step, checkpoint_failed_step;    /* the last ones */
    uint64_t checkpoints_failed_since;                   /* the last one that was saved */
    char checkpoint_failure[MUSTER_ERROR_TEXT_BYTES];    /* why the last one did */
    uint64_t checkpoint_wall_ns, checkpoint_duration_ns; /* of the last one that was saved */
    double recoveries_ms[RUN_RECOVERIES_MAX], detections_ms[RUN_RECOVERIES_MAX];
    size_t recovery_count, detection_count;
};

/** The one way to change the state of a run; asserts that the move is allowed. */
void run_move(struct run *run, enum run_state to);
/** A successor gives the run the state that its predecessor's table shows. */
void run_restore(struct run *run, enum run_state state);
/** All workers are being ended for good, or have ended. */
bool run_is_ending(const struct run *run);

#endif
