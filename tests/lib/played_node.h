/* A strategy on a node that the case plays: what the strategy asks of the cluster and of its group
 * is noted, and the case decides what comes of it. Only in programs that are linked for it
 * (tests/CMakeLists.txt): there these functions stand in place of muster_node_open and all others
 * of cluster/node/member.h, of the flight recorder, and of those that start operations on a group.
 * */
#ifndef MUSTER_TEST_PLAYED_NODE_H
#define MUSTER_TEST_PLAYED_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <muster/strategy.h>

#include "cluster/node/member.h"
#include "collective/group/group.h"
#include "runtime/system/recorder_system.h"
#include "test_env.h"
#include "training/strategy_internal.h"

/** An operation that the strategy has started. */
struct played_op {
    const char *kind; /* "all_reduce" */
    struct muster_op *op;
    struct muster_tensor tensor, output;
    struct muster_root root;
    uint64_t timeout_ns; /* from its start to its deadline */
    enum muster_rc rc;   /* of its end; op->result and op->error may be set, too */
    /* private */
    struct muster_task task;
    muster_op_fn *done;
    struct muster_list_op *list; /* in packs: op is one of the stage's then */
    muster_list_op_fn *list_done;
    struct muster_op own;
};

/** The node, and what it is told to do. All zero at the start of a case but for the hooks'
 * defaults. */
struct played_node {
    struct muster_node_options options; /* of the node that is open */
    struct muster_env *env;
    struct muster_strategy *strategy;
    struct muster_view *view;                          /* shares; NULL: none yet */
    const char *task_type;                             /* of all members */
    struct muster_communication_options communication; /* of all views */
    bool is_spread;                                    /* each member has a host of its own */
    bool is_without_group, is_changing, is_fetching;
    uint64_t fetched_bytes;
    const char *waits_for;                 /* what it stands still for, or NULL */
    struct muster_group_wait *group_waits; /* what the group waits for, or NULL */
    const struct muster_member *stateless; /* a joiner that reads the state, or NULL */
    enum muster_rc open_rc, set_state_rc, pack_rc, start_rc; /* not OK: refused so */
    unsigned refused_start;    /* the operation that is refused, from 1; 0: none */
    enum muster_rc refused_rc; /* … so; OK: RESOURCE_EXHAUSTED */
    bool are_ops_held;      /* until they are cancelled */
    const struct muster_node_blob *blobs;         /* of the strategy */
    const struct muster_node_blob *fetched_blobs; /* that come with the state, or NULL */
    const char *match; /* what differs from the state of another member, or NULL: nothing */

    /* On the loop, in a later turn, and NULL by default. */
    void (*on_state)(void); /* the state has been set */
    void (*on_look)(void);  /* the strategy waits for the end of a change, or for a joiner */
    void (*on_leave)(void); /* … before it has left */
    void (*on_op)(struct played_op *op); /* … before it ends; the default: OK, of all members */
    size_t refused_bytes;                /* there is no memory for a block of this size … */
    unsigned fail_at;                    /* … nor for the fail_at-th block from now; 0: for all */
    bool is_leave_held;                  /* it does not end by itself */
    muster_wire_point_fn *hit_wire_failpoint;
    void (*hit_shm_failpoint)(void *data, const char *point);
    void *wire_failpoint_data, *shm_failpoint_data;
    unsigned closing_count; /* turns that a node that did not open still needs */

    struct muster_recorder_options recorder;
    char recorded_task[256]; /* job, task and incarnation of these */
    enum muster_rc recorder_rc, dump_rc;

    uint64_t op_epoch; /* of the view by whose ranks the last operation on parts counts */

    char journal[65536]; /* what was asked, a line each */
    /* private */
    unsigned opened_count;
    struct muster_error given_up;
    struct muster_task failed_task, state_task, look_task, leave_task;
    muster_node_fn *left;
    void *left_data;
    uint64_t step;
    uint32_t sequence;
    int reports[2];
    char told[65536], trace[65536];
    size_t block_count;
};
extern struct played_node played;

#define PLAYED_SELF 1u /* the index of this member */

/** The environment of worker:1 of three, without a strategy. */
void played_open(void);
/** … and a strategy. */
struct muster_strategy *played_strategy(void);
/** Close the strategy (NULL is accepted), and check that everything that it had is free. */
void played_close_strategy(struct muster_strategy *strategy);
/** The same of *state, for cmocka_unit_test_setup_teardown. */
int played_tear_down(void **state);
/** Everything that was allocated is free. No strategy may be open. */
void played_close(void);

/** Blocks of memory that are allocated now. */
size_t played_blocks(void);
/** Write into the journal. */
void MUSTER_PRINTF(1, 2) played_note(const char *fmt, ...);
/** Run on the loop, in a later turn; once, if it is posted already. */
void played_post(struct muster_task *task, muster_task_fn *on_run);
bool played_is_posted(const struct muster_task *task);

/** The journal since the last look is so; lines end with "\n". */
void played_expect(const char *journal);
/** How often this text is in the journal. */
unsigned played_count_lines(const char *text);
/** Begin a step; it must go well. */
void played_begin(struct muster_strategy *strategy);
/** … and forget the journal. */
void played_begin_unnoted(struct muster_strategy *strategy);
/** … whatever comes of it. */
enum muster_rc played_try_begin(struct muster_strategy *strategy);
void played_commit(struct muster_strategy *strategy);
/** A call has ended with `expected` and this text. */
void played_expect_error(const struct muster_strategy *strategy, enum muster_rc rc,
                         enum muster_rc expected, const char *text);
/** Everything that the launcher was told. */
const char *played_told(void);
/** How many lines of it are of this kind ("view"). */
unsigned played_count_told(const char *kind);

/** The contents of the flight recorder: lines of kind, text if there is one, and three numbers. In
 * the seat. */
const char *played_trace(void);

/** The incarnation of worker:index. */
struct muster_incarnation played_incarnation(uint32_t index);
/** A view of members 0 … 31 by bits, which the node is in from now on; those in `joined` take part
 * from step `from_step` on. cause_ns 0: nothing was lost. fields: begun_step, reason, verdicts and
 * what else counts; or NULL. On the loop or in the seat. */
void played_view(uint64_t epoch, uint32_t members, uint32_t joined, uint64_t from_step,
                 uint64_t cause_ns, const struct muster_view *fields);
/** A view that the node sees and is not in: no event tells of it. */
void played_show_view(uint64_t epoch, uint32_t members);
/** The events of a node. On the loop, or in the seat. */
void played_ready(uint64_t next_step, bool is_restored);
void played_exclude(enum muster_rc rc, const char *text);
void played_fail(enum muster_rc rc, const char *text);
void played_skip(uint64_t step);
/** Take the seat, and leave it, between calls of the strategy. */
void played_enter(void);
void played_leave(void);

/** For on_state: the first view, of three members, in which all begin together. */
void played_start_job(void);
/** For on_state: this member has the state before step 7, of two others. */
void played_catch_up(void);
void played_end_change(void); /* for on_look */

#endif
