/* Each allocation of a scenario fails in turn: the scenario is run again and again, with the first, the
 * second, the third … allocation refused, then with that one and all after it. */
#ifndef MUSTER_TORTURE_H
#define MUSTER_TORTURE_H

#include <muster/mem.h>

#include "test_env.h"

/** One run of a scenario. Allocations are counted, and refused, while it is armed. */
struct torture {
    struct muster_mem mem; /* over careful_mem */
    uint64_t fail_at;      /* the allocation that is refused, from 1; 0: none */
    bool is_lasting;       /* all after it, too */
    unsigned variant;      /* which failure, of system calls (torture_calls.h) */
    _Atomic bool is_armed; /* these three: any thread of the scenario may allocate */
    _Atomic bool is_of_calls, is_of_libraries, is_of_system; /* what else is refused than `mem` */
    _Atomic uint64_t count;                          /* seen while armed */
    _Atomic uint64_t refused;                        /* of these */
};

typedef void torture_fn(struct torture *torture, const void *data);

/** A row: run opens what it needs, arms, does its work, disarms, says by assertions what must hold
 * (an error or success, nothing half done, no leak), tries again with memory, and closes. */
struct torture_scenario {
    const char *name;
    torture_fn *run;
    const void *data;
    unsigned variant_count; /* system calls: a mode for each variant, none that lasts */
    /* Per mode; where there are more allocations, a seeded step leaves some out. 0: all. */
    uint64_t runs_max;
};

/** Runs until a run refuses nothing. What fails names the run: with MUSTER_TORTURE="NAME:37" (or
 * "NAME:37:lasting", "NAME:37:2" of a variant) in the environment only that one is run, and the stack
 * of each refused allocation is printed. */
void torture_run(const struct torture_scenario *scenario);
void torture_run_all(const struct torture_scenario *scenarios, size_t count);
/** A scenario for each row of a table, whose rows begin with a const char *name; some may have nothing
 * to refuse. */
void torture_run_rows(torture_fn *run, const void *rows, size_t count, size_t row_bytes);
#define TORTURE_RUN_ROWS(run, rows)                                                                \
    torture_run_rows((run), (rows), sizeof(rows) / sizeof((rows)[0]), sizeof((rows)[0]))

void torture_arm(struct torture *torture);
/** The same, for an allocator that has been set up: it takes its memory from here from now on, and
 * what it had stays valid. */
void torture_arm_limited(struct torture *torture, struct muster_mem_limited *mem);
void torture_disarm(struct torture *torture);

/** Memory of muster_mem_system(), for what opens an environment of its own. Armed by one thread at a time;
 * any thread may allocate once torture_count_system_blocks was called. */
void torture_arm_system(struct torture *torture);
/** Live blocks of it, counted from the first call on: as many before a run as after it. */
size_t torture_count_system_blocks(void);

/** Only one run was asked for: what it does may be told at length. */
bool torture_is_traced(void);

/** One more allocation: true: it must fail. For allocators of another shape. */
bool torture_refuses(struct torture *torture);

/* Memory of libraries that take their allocator from the program (sqlite3_config, json_set_alloc_funcs,
 * event_set_mem_functions …): refused while torture_arm_library is on. */
void torture_arm_library(struct torture *torture);
void *torture_malloc(size_t bytes);
void *torture_calloc(size_t count, size_t bytes);
void *torture_library_realloc(void *ptr, size_t bytes);
void torture_free(void *ptr);

/** For a group's teardown: says which run was under way when a case failed. */
int torture_tell(void **state);

#endif
