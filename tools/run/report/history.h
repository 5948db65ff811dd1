/* The history of a running job, in bounded memory, for its status page. */
#ifndef MUSTER_RUN_HISTORY_H
#define MUSTER_RUN_HISTORY_H

#include <muster/json.h>

#include "run/report/epoch.h"

#define RUN_SAMPLES_MAX     512 /* of a curve: when it is full every other one goes */
#define RUN_EVENTS_MAX      128 /* the last ones */
#define RUN_LIVES_MAX       16  /* of each task, the last ones */
#define RUN_VERDICTS        4
#define RUN_RECOVERY_BOUNDS 14

struct run_sample {
    uint64_t at_ms; /* since the start */
    uint64_t step, members, view;
    double values[RUN_VALUES_MAX]; /* NAN: not reported */
};

struct run_event {
    uint64_t at_ms;
    const char *kind;    /* "death", "view", "rejoin". Static */
    uint64_t view;       /* 0: not known */
    double recovery_ms;  /* < 0: none */
    const char *verdict; /* static */
    char text[320];
};

/** A bar of the time line. */
struct run_life {
    uint64_t from_ms, to_ms; /* to 0: it goes on */
    char end[48];            /* "killed by SIGKILL" */
};

struct run_lifeline {
    struct run_life at[RUN_LIVES_MAX];
    uint64_t count; /* ever */
};

struct run_recoveries {
    const char *verdict; /* "adopt", "retry", "aborted", "none" (no operation was under way) */
    uint64_t count;
    double sum_s;
    uint64_t buckets[RUN_RECOVERY_BOUNDS + 1]; /* not cumulative; the last is +Inf */
};
extern const double run_recovery_bounds_s[RUN_RECOVERY_BOUNDS];

struct run_history {
    struct run *run;
    struct muster_timer timer;
    uint64_t interval_ns;
    struct run_sample samples[RUN_SAMPLES_MAX];
    size_t sample_count;
    struct run_event events[RUN_EVENTS_MAX];
    uint64_t event_count;           /* ever */
    struct run_lifeline *lifelines; /* by task */
    struct run_recoveries recoveries[RUN_VERDICTS];
};

/** With --status; run->history is NULL without, and everything below does nothing. */
void run_history_open(struct run *run);
void run_history_close(struct run *run);
void run_history_on_start(struct run_task *task);
void run_history_on_death(struct run_task *task);
void run_history_on_rejoin(struct run_task *task);
/** is_recovery: a member was lost that had not left; who: "worker:2 killed by SIGKILL". */
void run_history_on_view(struct run *run, const struct run_epoch *epoch, bool is_recovery,
                         const char *who);
/** "curves", "events" and "lifelines" into object. False: no memory. */
bool run_history_add(const struct run *run, struct muster_json *object);

#endif
