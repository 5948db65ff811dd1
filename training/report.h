/* Reports of a worker to its launcher: JSON lines on MUSTER_REPORT_FD (docs/protocol.md). */
#ifndef MUSTER_TRAINING_REPORT_H
#define MUSTER_TRAINING_REPORT_H

#include <muster/env.h>

#include "training/activity.h"

#define MUSTER_REPORT_VALUES_MAX 16
#define MUSTER_REPORT_NAME_BYTES 32

/** Named numbers of the user's program, in order of first mention; a new value replaces the old
 * one. */
struct muster_report_values {
    size_t count;
    struct {
        char name[MUSTER_REPORT_NAME_BYTES];
        double value;
    } at[MUSTER_REPORT_VALUES_MAX];
};

/** Names beyond MUSTER_REPORT_VALUES_MAX are dropped, longer names cut. */
void muster_report_values_set(struct muster_report_values *values, const char *name, double value);

struct muster_report;

struct muster_report_view {
    uint64_t epoch;
    uint32_t member_count;
    const char *lost;                /* "worker:2 worker:3", may be empty */
    const char *joined;              /* likewise */
    const char *reason;              /* of the view: tells who left from who died */
    double recovery_ms;              /* < 0: nothing was interrupted or lost */
    uint64_t detected_ns, opened_ns; /* with recovery_ms: of this host's monotonic clock */
    const char *op;                  /* the interrupted operation, or NULL */
    const char *phase;
    const char *verdict;
    uint64_t step;
};

struct muster_report_result {
    uint64_t steps;
    uint64_t steps_lost;
    const char *digest;
};

/** Borrows the descriptor named by MUSTER_REPORT_FD until the process ends: a later strategy of the process reports to
 * it, too, and its number must not become that of a file of the program. Without one every report is dropped.
 * INVALID_ARGUMENT. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_report_open(struct muster_env *env,
                                                    struct muster_report **ret_report,
                                                    struct muster_error *ret_error);
/** Close the report, after muster_report_drain. NULL is accepted. */
void muster_report_close(struct muster_report *report);
/** Wait until the launcher has room for all lines that are kept for it, or is gone: at the end of the
 * process. No other call waits. For a launcher that does not read, progress and activity are dropped,
 * and 64 KiB of the other lines are kept. */
void muster_report_drain(struct muster_report *report);
/** The descriptor, as long as there is a report; -1 when nobody listens (any more). */
const int *muster_report_descriptor(const struct muster_report *report);

/** Where this process is, for a launcher that looks when the process has ended. Two stores. */
void muster_report_place(struct muster_report *report, uint64_t begun_step,
                         uint64_t committed_step);
void muster_report_progress(struct muster_report *report, uint64_t step, uint64_t epoch,
                            uint32_t member_count, const struct muster_report_values *values);
void muster_report_view(struct muster_report *report, const struct muster_report_view *view);
/** The present activity of a member, and its counters. */
struct muster_report_activity {
    const struct muster_activity *activity;
    uint64_t now_ns; /* the clock */
    uint64_t step;   /* committed */
    uint64_t epoch;
    uint32_t member_count, rank;
    bool is_member;         /* of epoch, with that rank */
    const char *waits_for;  /* "worker:2", or "" */
    const char *op;         /* that it has not started, or "" */
    const char *stands_for; /* a change of view, or the beginning, waits for this; or "" */
};
void muster_report_activity(struct muster_report *report,
                            const struct muster_report_activity *activity);
void muster_report_rejoined(struct muster_report *report, uint64_t epoch, double catch_up_ms,
                            uint64_t from_step);
/** The members of view `epoch` begin after this step of a checkpoint. */
void muster_report_restored(struct muster_report *report, uint64_t epoch, uint64_t step);
/** The first operation since the loss that view `epoch` told, delivered then. */
void muster_report_delivered(struct muster_report *report, uint64_t epoch, uint64_t delivered_ns);
/** This process is about to kill itself, as it was told to. */
void muster_report_dying(struct muster_report *report, uint64_t at_ns);
/** This process ends without close: in `step`, which it has begun, or after it. last_step: of the job, as the program
 * has named it; 0: it has not. */
void muster_report_unclosed(struct muster_report *report, uint64_t step, bool is_in_step,
                            uint64_t last_step);
/** This process ends without having done its work, in `step`: it is to be started again whatever
 * its exit code. */
void muster_report_abandoned(struct muster_report *report, uint64_t step, const char *why);
/** The others cannot work with this process, and starting it again would not help: say why. */
void muster_report_refused(struct muster_report *report, const char *why);
/** This process stops because the job is preempted: all members have committed `step`. is_saved: it is
 * in the checkpoint directory. */
void muster_report_preempted(struct muster_report *report, uint64_t step, bool is_saved);
/** This process ends, and the last checkpoint, of `step`, is not whole: no success whatever its exit code. */
void muster_report_unsaved(struct muster_report *report, uint64_t step, const char *why);
/** The program saves in this folder, an absolute path, every now and then and its last step at close. */
void muster_report_checkpoint_dir(struct muster_report *report, const char *folder);
/** A checkpoint of `step` is whole (why NULL), or was given up. */
void muster_report_checkpoint(struct muster_report *report, uint64_t step, uint64_t duration_ns,
                              const char *why);
/** This process has committed `step` without an operation that others wait for. */
void muster_report_skipped(struct muster_report *report, uint64_t step);
/** This process has called an operation of `step` without which a member that has left had committed it. */
void muster_report_left_out(struct muster_report *report, uint64_t step, const char *why);
/** This process came back to a job that has ended. */
void muster_report_over(struct muster_report *report);
void muster_report_result(struct muster_report *report, const struct muster_report_result *result,
                          const struct muster_report_values *values);

#endif
