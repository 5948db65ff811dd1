/* Changes of view, gathered from the reports of the members until each is told once. */
#ifndef MUSTER_RUN_EPOCH_H
#define MUSTER_RUN_EPOCH_H

#include "run/report/names.h"
#include "run/state/run.h"

#define RUN_EPOCHS_MAX 4 /* gathered at the same time; the oldest is told first when full */

/** A change of view, as the members tell it. */
struct run_epoch {
    bool is_open;
    struct run *run;
    uint64_t epoch;
    uint64_t members;
    uint64_t step;
    uint32_t reports;
    uint32_t waits; /* rounds in which the launcher has not yet reaped those that were lost */
    double recovery_ms;
    double detection_ms;            /* of recovery_ms; < 0: not known */
    uint64_t detected_ns, ended_ns; /* when the first learned of it; when the last went on */
    uint32_t awaited, delivered;    /* members that will say when they went on, and have said so */
    char lost[RUN_NAMES_BYTES], joined[RUN_NAMES_BYTES];
    char op[64], phase[32], verdict[32];
    char reason[128]; /* "worker:2 left, worker:3 lost (SIGKILL)" */
    struct muster_timer timer;
};

struct run_events {
    struct run_epoch epochs[RUN_EPOCHS_MAX];
};

/** The loss is of a life before the present one, and its death has been told. */
bool run_epoch_is_of_former_life(const struct run_epoch *epoch, const struct run_task *task);
/** The members say that the task of this name has left. */
bool run_epoch_has_left(const struct run_epoch *epoch, const char *name);
/** The task's work was done, or it wished to go: nothing to recover from. */
bool run_epoch_is_leave(const struct run_epoch *epoch, const char *name);
/** The tasks that the view has lost are all done with their work. */
bool run_epoch_are_lost_done(const struct run_epoch *epoch);
/** The launcher has reaped each of its tasks that the members have lost. */
bool run_epoch_are_deaths_known(const struct run_epoch *epoch);

/* * "worker:1 killed by SIGKILL, worker:2 left"; their deaths count as told. Returns how many are
 * lost, those included that the text does not name, and how many of them have only left. */
unsigned run_epoch_describe_lost(struct run_epoch *epoch, char *text, size_t bytes,
                                 unsigned *ret_left);
/** ", operation 812 (all_reduce, reduce phase) retried without it". */
void run_epoch_describe_operation(const struct run_epoch *epoch, unsigned lost, char *text,
                                  size_t bytes);

#endif
