/* `muster bench recover`: what supervisor and workers share through a mapped file, and what the
 * files of the supervisor share. */
#ifndef MUSTER_TOOLS_BENCH_RECOVER_H
#define MUSTER_TOOLS_BENCH_RECOVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench/samples.h"

enum {
    RECOVER_TASKS_MAX = 64,
    RECOVER_RING = 1 << 12, /* records kept per task */
};

/** One operation as one worker saw it. That worker writes it, the supervisor reads it; all atomics
 * are sequentially consistent. The worker sets step to 0, empties the record, then sets step, so
 * that a reader never takes an old record for a new one. done_ns publishes epoch, contributors,
 * is_interrupted and is_shm; is_checked publishes digest and is_wrong: a reader loads these two
 * before the plain fields. */
struct recover_record {
    _Atomic uint64_t step;     /* of which this is the record; 0: empty */
    _Atomic uint64_t start_ns; /* CLOCK_MONOTONIC; 0: not started */
    _Atomic uint64_t done_ns;  /* 0: not done */
    uint64_t start_cpu_ns;     /* recover_cpu_ns at the start, written before start_ns */
    uint64_t digest;           /* of the result's bytes */
    uint64_t epoch;
    uint32_t contributors;
    bool is_interrupted;
    bool is_shm;             /* it ran over shared memory */
    bool is_wrong;           /* elements do not agree on who contributed */
    _Atomic bool is_checked; /* digest and is_wrong stand */
};

struct recover_task {
    _Atomic int64_t pid;
    _Atomic uint64_t lives;
    _Atomic uint64_t step;        /* the last one started in this life; 0: none */
    _Atomic uint64_t step_before; /* the last one started in the life before */
    struct recover_record records[RECOVER_RING];
};

struct recover_shared {
    uint64_t bytes;            /* of the tensor */
    bool is_mapped;            /* peers map it */
    uint64_t victim_rss_bytes; /* memory that every worker touches */
    _Atomic uint32_t stop;     /* the supervisor sets it; workers agree on the last step by it */
    _Atomic uint32_t
        is_held; /* a new life waits: its start would take time from what is measured */
    _Atomic uint64_t read_through; /* the supervisor has read all steps up to this one */
    struct recover_task tasks[RECOVER_TASKS_MAX];
};

/** Environment variable that names the mapped file. */
#define RECOVER_FILE_VAR "MUSTER_BENCH_RECOVER_FILE"

struct recover_shared *recover_map(int fd);
uint64_t recover_now_ns(void);
/** Processor time of a process, 0: of this one. 0 when the process is gone. */
uint64_t recover_cpu_ns(pid_t pid);
/** The record of `step`, or NULL when the task has none (any more). */
struct recover_record *recover_find(struct recover_shared *shared, uint32_t task, uint64_t step);

/* --- the supervisor --- */

/** One kill that fell inside an operation. */
struct recover_kill {
    uint64_t duration_ns; /* from the last start to the last result */
    uint64_t stall_ns;    /* from the kill to the last result */
    bool is_adopted;      /* the parts of all are in the result */
    bool is_issued;       /* all had started it, and worked for a while, before the kill */
    bool is_shm;          /* it ran over shared memory */
};

struct recover {
    uint32_t tasks;
    uint64_t bytes, kills, victim_rss_bytes;
    const char *wire, *memory;
    bool is_bystander; /* kill an idle process beside the workers instead */
    uint64_t started_ns, give_up_ns, progress_due_ns;
    uint64_t timeout_s;
    uint64_t random;
    /* the present crew */
    char summary_path[64];
    int fd;
    pid_t launcher;
    struct recover_shared *shared;
    uint64_t calm_after, calm_count;    /* calm steps in a row beyond calm_after */
    uint64_t hit_step;                  /* the last one beside which a bystander was killed */
    uint64_t cpu_ns[RECOVER_TASKS_MAX]; /* of each worker, before the last kill */
    struct bench_samples calm_ns;       /* durations of undisturbed operations */
    /* the result */
    struct recover_kill *log; /* of `in_op` */
    uint64_t attempts, in_op, steps, steps_unfinished;
    double one_less_ns;
    bool is_different;
};

/** Start a crew of `tasks` workers. False: told why. */
bool recover_crew_open(struct recover *run, uint32_t tasks);
/** End it: politely, unless it has failed. Gives what the launcher says of it, -1 where nothing. */
void recover_crew_close(struct recover *run, bool is_good, long *ret_restarts,
                        long *ret_steps_lost);
/** Read what the workers have done since; false after a nap: give up, told why. `what` is being
 * waited for since since_ns. */
bool recover_go_on(struct recover *run, const char *what, uint64_t since_ns);
void recover_read_steps(struct recover *run);
uint64_t recover_newest_step(const struct recover *run);
/** Wait for count undisturbed operations in a row. */
bool recover_wait_calm(struct recover *run, uint64_t count);
/** Kill one worker, wait until the others have the result of what it was doing. */
bool recover_kill_once(struct recover *run);
/** The same with a process that takes no part. */
bool recover_kill_bystander(struct recover *run);
/** A new process's memory: so many bytes, all of them touched. May be NULL. */
void *recover_touch_memory(uint64_t bytes);
/** Print the JSON line. Returns the exit code. */
int recover_print(struct recover *run, long restarts, long steps_lost);

#endif
