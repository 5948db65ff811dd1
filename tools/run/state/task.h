/* One worker of this launcher: the facts that the parts of the launcher share about it. */
#ifndef MUSTER_RUN_STATE_TASK_H
#define MUSTER_RUN_STATE_TASK_H

#include <sys/types.h>

#include <muster/env.h>

#include "run/state/activity.h"

#define RUN_NAME_BYTES       24
#define RUN_DIGEST_BYTES     40
#define RUN_VALUES_MAX       16
#define RUN_VALUE_NAME_BYTES 40

/** A worker that was called wrongly waits so long for its restart: the others may say the same of their start. */
#define RUN_MISUSE_WAIT_NS (250 * MUSTER_NS_PER_MS)

struct run;
struct run_task_output;

enum run_task_state {
    RUN_TASK_NEW,     /* never started */
    RUN_TASK_WAITING, /* for its next start */
    RUN_TASK_RUNNING, /* a process is there, or its end has not been collected */
    RUN_TASK_LEFT,    /* ended with 0, or preempted */
    RUN_TASK_FAILED,  /* no restart left, or ended while all end */
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
    struct run_task_output *output; /* its pipes and last lines (run/output/output.h) */
    uint64_t started_ns, ended_ns, ended_wall_ns;
    int wait_status;
    /* its death, until it has been reported (run/report/events.c) */
    bool is_death_untold; /* its event waits for what the others say about it */
    int death_status;     /* wait status of the last death */
    uint64_t death_step;  /* run_task_last_step then */
    uint64_t death_begun_step; /* it died in this one; 0: between steps, or not known */
    uint64_t undone_step; /* a life ended so behind this one, without close, and none has closed
                             since; 0: none has */
    bool is_loss_owed;    /* it has died, and the members have not spoken of it yet */
    struct muster_timer death_timer;
    /* its return, until it has been reported */
    bool is_join_untold; /* waits for its death to be told */
    bool is_again;       /* it was a member before */
    int64_t join_epoch;
    uint64_t joined_ns; /* when join_epoch was reported; 0: it has not */
    double catch_up_ms;
    /* its reports */
    bool has_reported;
    bool has_committed;   /* a step */
    bool is_loss_told;    /* by the others: they go on without it */
    uint64_t member_from; /* number of the first view that it reported; 0: none yet */
    bool has_left_others; /* it ended with 0 without a report, and what it had started still ran */
    bool is_unclosed;     /* it has said that it ends without close, … */
    bool is_in_step;      /* … and with a step begun, … */
    uint64_t left_step;   /* … this one, else after this one */
    uint64_t
        last_step; /* with is_unclosed: of the job, as the program has named it; 0: it has not */
    bool
        is_silent; /* it ended with 0 and without a word, by _exit: its place is as last reported, … */
    bool is_place_known;  /* … or known from this launcher's memory */
    uint64_t
        begun_step; /* the step in which it has ended, by its place; 0: in none, or not known */
    uint64_t born_epoch;  /* the last one known when it was started */
    uint64_t dying_ns;    /* it has said that it kills itself now; 0: it has not */
    uint64_t died_ns;     /* its last life, as far as is known; 0: none has ended */
    bool is_abandoned;    /* it has said that it gives up: no success whatever its exit code */
    char *trace_file;     /* its flight recorder, of the present or last life; NULL: not written */
    bool is_preempted;    /* it has said that it stops, after `step` … */
    bool is_saved;        /* … which is in the checkpoint directory */
    char unsaved[MUSTER_ERROR_TEXT_BYTES]; /* why its last checkpoint is not whole, … */
    uint64_t unsaved_step;                 /* … which is of this step; "": it has not said so */
    bool is_too_late;                      /* it came back when the others had finished */
    uint64_t
        skipped_step; /* in any life: it committed this step without an operation that others waited for */
    uint64_t
        left_out_step; /* in any life: one that has left committed it without an operation that was called here */
    bool is_refused;             /* the others cannot work with it, as this life has said */
    bool uses_muster, took_part; /* in any life: it has reported; it has committed a step */
    char refusal[MUSTER_ERROR_TEXT_BYTES];
    int misuse_code; /* by which each of its lives so far said that it was called wrongly; or 0 */
    uint64_t step;
    bool has_result;
    bool is_close_told; /* the others have gone on beyond its result */
    uint64_t steps, steps_lost;
    char digest[RUN_DIGEST_BYTES];
    struct run_values results;
    struct run_activity activity;
};

/** The one way to change a task's state; asserts that the move is allowed. */
void run_task_move(struct run_task *task, enum run_task_state to);
/** A successor gives a task the state that its predecessor's table and the processes show. */
void run_task_restore(struct run_task *task, enum run_task_state state);
/** NULL: this launcher has no task of that name. */
struct run_task *run_task_find(const struct run *run, const char *name);
uint32_t run_task_count(const struct run *run, enum run_task_state state);
/** The exit code that a wait status stands for: its own, or 128 + signal. */
int run_task_exit_code(int wait_status);
/** "killed by SIGKILL", "exited with code 3". Returns text. */
const char *run_task_death(int wait_status, char *text, size_t bytes);

/** The step in which its last life ended, or the last one that it had committed then; 0: none is known. */
static inline uint64_t run_task_last_step(const struct run_task *task)
{
    return task->begun_step != 0 ? task->begun_step : task->step;
}

#endif
