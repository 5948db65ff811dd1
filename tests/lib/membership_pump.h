/* A small world for the membership machine alone: virtual time, links, a registry, processes, and a
 * model of collectives. */
#ifndef MUSTER_TEST_MEMBERSHIP_PUMP_H
#define MUSTER_TEST_MEMBERSHIP_PUMP_H

#include <muster/env.h>

#include "cluster/membership/membership.h"
#include "collective/view/progress.h"

#define PUMP_NODES_MAX 48 /* lives of processes, not tasks */
#define PUMP_OPS_MAX   4
#define PUMP_CHUNKS    3
#define PUMP_OUTCOMES  4096
#define PUMP_MS(n)     ((uint64_t)(n)*MUSTER_NS_PER_MS)
#define PUMP_S(n)      ((uint64_t)(n)*MUSTER_NS_PER_S)
#define PUMP_ABORTED   UINT64_MAX

/** One open operation of the model: its value is the set of contributors (bit = node). */
struct pump_op {
    struct muster_op_id id;
    bool is_small; /* delivered when complete here, retained until all are */
    bool is_delivered;
    bool is_abort_proposed;
    uint64_t chunks[PUMP_CHUNKS]; /* contributors of a final chunk; 0 = not final */
    uint64_t complete_from;       /* nodes that said COMPLETE in this epoch */
    bool is_announced;            /* own COMPLETE is out in this epoch */
};

struct pump_node {
    struct pump *pump;
    unsigned index;
    struct muster_member member;
    struct muster_communication_options asked;
    struct muster_membership *machine;
    struct muster_mem *mem; /* of its machine */
    bool is_alive, is_left, is_excluded_once, is_failed;
    char record[64];                        /* what its launcher writes down when it is dead */
    bool stops_before_cas, stops_after_cas; /* failpoints: dies at its next compare-and-swap */
    bool is_registered, wants_registered, sees_registry;
    uint64_t begins_after, put_begins_after, register_revision; /* of its record */
    uint64_t paused_until_ns;
    size_t watched;     /* registry log entries seen */
    bool is_watch_late; /* and no more for now */
    unsigned timer_generation;
    uint64_t registry_cut_ns; /* since when it cannot renew its lease; 0: it can */
    /* the model of its group */
    struct muster_view *view; /* NULL: no group */
    bool is_frozen, is_behind, is_fresh;
    uint64_t generation; /* epoch of the beginning that its steps count from */
    uint64_t begun_step, committed_step;
    uint32_t next_sequence;
    bool has_issued, has_stable;
    struct muster_op_id issued_through, stable_through;
    struct pump_op ops[PUMP_OPS_MAX];
    unsigned op_count;
    uint64_t deliveries;
    struct muster_error error; /* it failed, and why */
};

struct pump_link {
    bool is_up;
    unsigned generation;
    bool is_blocked;
    uint64_t sent, received; /* from the lower to the higher index: [0], back: [1] */
    uint64_t sent_back, received_back;
};

enum pump_change_kind {
    PUMP_MEMBER_PUT,
    PUMP_MEMBER_DELETED,
    PUMP_DEAD_PUT,
    PUMP_VIEW_PUT,
    PUMP_PREEMPT_PUT,
};
struct pump_change {
    enum pump_change_kind kind;
    unsigned node;
    struct muster_view *view;
    uint64_t begins_after, register_revision; /* of a record */
    uint64_t epoch;                           /* in which the job was asked to stop */
};

struct pump_event;

struct pump_outcome {
    bool is_known;
    uint64_t generation, step, value;
    uint32_t sequence;
};

struct pump {
    struct muster_mem *mem;
    struct muster_rng_seeded rng;
    uint64_t now_ns;
    uint64_t sequence;
    struct pump_event *heap;
    size_t heap_count, heap_room;
    struct pump_node nodes[PUMP_NODES_MAX];
    unsigned node_count;
    struct pump_link links[PUMP_NODES_MAX][PUMP_NODES_MAX];
    /* registry */
    bool is_registry_up;
    uint32_t lose_answer_percent;
    struct pump_change *log;
    size_t log_count, log_room;
    struct muster_view *key_view;
    uint64_t key_revision;
    /* what has been seen */
    struct muster_view *epochs[1024]; /* the one view of each epoch */
    uint64_t issuers[1024];           /* of the operation under way in an epoch … */
    struct muster_op_id issuing[1024];
    struct pump_outcome outcomes[PUMP_OUTCOMES];
    size_t outcome_count;
    uint64_t silences_told; /* words that somebody is not heard */
    uint64_t views_seen, verdicts_adopt, verdicts_retry, verdicts_abort;
    bool has_ops;
    bool is_catch_up_held;                     /* joiners get no state */
    bool is_launcherless;                      /* nobody writes down who is dead */
    struct muster_communication_options asked; /* by who starts next */
    bool is_unready;                           /* no program asks to join what is there */
    char failure[256];                         /* the first rule that was broken; empty: none */
    /* options of new nodes */
    uint32_t expected_count, min_members, min_members_start;
    bool is_force_new, is_return;
    struct muster_mem
        *hungry_mem; /* of the machines of that task, which die when it lacks; NULL: none */
    uint32_t hungry_task;
};

void pump_open(struct pump *pump, struct muster_mem *mem, uint64_t seed);
void pump_close(struct pump *pump);

/** A process of task `task` on host `host` starts now. Returns its index. */
unsigned pump_start(struct pump *pump, uint32_t task, unsigned host);
/** SIGKILL: links break, the host's watchers and the launcher learn of it. */
void pump_kill(struct pump *pump, unsigned node);
/** The whole machine stops: nobody is told. */
void pump_crash_silently(struct pump *pump, unsigned node);
/** The launcher says that it is dead. */
void pump_confirm(struct pump *pump, unsigned node);
/** With its work done, or in the middle of a failure. */
void pump_leave(struct pump *pump, unsigned node);
void pump_leave_undone(struct pump *pump, unsigned node);
/** Its program has committed this step. */
void pump_commit(struct pump *pump, unsigned node, uint64_t step);
void pump_ready(struct pump *pump, unsigned node);
/** The job is asked to stop, by somebody who knows the view `epoch`. */
void pump_preempt(struct pump *pump, uint64_t epoch);
void pump_pause(struct pump *pump, unsigned node, uint64_t span_ns);
void pump_block(struct pump *pump, unsigned a, unsigned b, bool is_blocked);
void pump_reset_link(struct pump *pump, unsigned a, unsigned b);
void pump_registry(struct pump *pump, bool is_up);
/** It loses and regains sight of the registry. */
void pump_see_registry(struct pump *pump, unsigned node, bool sees);
void pump_suspect(struct pump *pump, unsigned by, unsigned accused);
void pump_propose_abort(struct pump *pump, unsigned node);
/** Its operations end without a verdict. */
void pump_expire(struct pump *pump, unsigned node);

void pump_run(struct pump *pump, uint64_t span_ns);
/** Until is_done or span_ns has passed; returns is_done. */
bool pump_run_until(struct pump *pump, bool (*is_done)(struct pump *pump), uint64_t span_ns);

/** All living processes are steady members of one view that holds exactly them. */
bool pump_is_settled(struct pump *pump);
unsigned pump_alive_count(const struct pump *pump);
uint64_t pump_epoch(const struct pump *pump);
/** The newest committed view holds this node. */
bool pump_is_member(const struct pump *pump, unsigned node);
enum muster_membership_state pump_state(const struct pump *pump, unsigned node);

/** Where everybody stands, to standard error. */
void pump_print(const struct pump *pump);

/* membership_pump_ops.c: the model of collectives. */
void pump_ops_tick(struct pump_node *node);
void pump_ops_complete(struct pump_node *node, unsigned from, uint64_t epoch,
                       const struct muster_op_id *id);
struct muster_progress *pump_ops_freeze(struct pump_node *node);
void pump_ops_open(struct pump_node *node, struct muster_view *view, bool is_hand_over);
void pump_ops_abort(struct pump_node *node);
void pump_ops_expire(struct pump_node *node);
/* of membership_pump.c, for the model */
uint64_t pump_random(struct pump *pump, uint64_t bound);
void pump_send_complete(struct pump_node *node, unsigned to, uint64_t epoch,
                        const struct muster_op_id *id);
unsigned pump_node_of(const struct pump *pump, const struct muster_incarnation *incarnation);
void pump_fail(struct pump *pump, const char *format, ...) MUSTER_PRINTF(2, 3);

#endif
