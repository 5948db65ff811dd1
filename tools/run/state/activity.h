/* The activity of a worker as it last reported it, and its counters added up over its lives. */
#ifndef MUSTER_RUN_STATE_ACTIVITY_H
#define MUSTER_RUN_STATE_ACTIVITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_WAITS_MAX     32
#define RUN_AWAITED_BYTES 96
#define RUN_STANDS_BYTES  240

/* Counters of a worker; those with a name in reports are in the tables of tools/run/report/activity.c. */
enum run_count {
    RUN_COUNT_START_NS,
    RUN_COUNT_BEGIN_NS,
    RUN_COUNT_COMPUTE_NS,
    RUN_COUNT_COLLECTIVE_NS,
    RUN_COUNT_OUTSIDE_NS,
    RUN_COUNT_CLOSE_NS,
    RUN_COUNT_SHM_BYTES,
    RUN_COUNT_TCP_BYTES,
    RUN_COUNT_NCCL_BYTES,
    RUN_COUNT_WAITING_NS,
    RUN_COUNT_STEPS,
    RUN_COUNTS,
};

/** The process counts from 0 in each life; the sum over all lives only grows. */
struct run_counter {
    uint64_t before, now;
};

struct run_wait {
    char task[RUN_AWAITED_BYTES];
    struct run_counter ns;
};

struct run_activity {
    unsigned life;      /* of the task, to which `now` of the counters belongs; 0: none yet */
    uint64_t heard_ns;  /* when it reported last */
    uint64_t begun_ns;  /* when the present state began */
    uint64_t stood_ns;  /* since when a view or a change of view is awaited */
    uint64_t waited_ns; /* since when the same task is awaited */
    char state[16];     /* as reported; "": it has not */
    uint64_t step, epoch, members, rank;
    bool is_member;
    char waits_for[RUN_AWAITED_BYTES], op[80];
    char stands_for[RUN_STANDS_BYTES];
    struct run_counter counts[RUN_COUNTS];
    struct run_wait waits[RUN_WAITS_MAX];
    size_t wait_count;
};

#endif
