/* Members that share the steps of a dataset: the node, groups and catch-up of worker.h, and a training loop that counts
 * which records' contributions are in its sums. */
#ifndef MUSTER_SIM_DATA_WORKER_H
#define MUSTER_SIM_DATA_WORKER_H

#include "cluster/node/member.h"
#include "tests/sim/cast.h"
#include "tests/sim/data_book.h"
#include "training/micro/values.h"

#define DATA_LIFE_BITS  16u
#define DATA_LIFE_WORDS (LEDGER_LIVES_MAX / DATA_LIFE_BITS)
#define DATA_TENSORS    3u

enum data_phase {
    DATA_STILL,   /* no member, or leaving */
    DATA_BEGIN,   /* waits until it may begin the step */
    DATA_COMPUTE, /* has its records */
    DATA_SUM,     /* an operation is open */
    DATA_GATHER,  /* micro-batches: waits to start the second operation */
    DATA_UPDATE,  /* has the sum */
};

/* The sum with claims: a use of each record, who contributes, the claims. */
struct data_sum {
    float uses[DATA_RECORDS_MAX];
    float lives[DATA_LIFE_WORDS];
    float claims[MUSTER_DATASET_CLAIMS(DATA_BATCH_MAX)];
};

struct data_worker {
    struct cast_task *task;
    struct data_book *book;
    struct sim_node *process;
    struct muster_env *env;
    struct muster_node *node;
    struct muster_dataset *dataset;
    struct muster_node_tensor tensors[DATA_TENSORS];
    uint64_t uses[DATA_RECORDS_MAX];
    float weights[DATA_WEIGHTS];
    uint32_t life;
    enum data_phase phase;
    uint64_t step, committed, pace_ns;
    uint32_t sequence; /* of the step's next operation */
    struct muster_op op;
    bool is_gathering; /* micro-batches: it is the second one */
    bool has_sum;
    struct data_sum sum; /* with claims */
    struct muster_micro_values values;
    struct muster_view *view; /* micro-batches: of the step; shares */
    struct muster_timer timer, save_timer;
    struct data_state first; /* of a process that has just started */
    struct data_save save;   /* under way */
    uint32_t chunks_to_live;
    bool has_state, wants_leave, is_leaving, is_ending;
};

/** The cast's book is a struct data_book. */
struct cast_ops data_worker_ops(void);
/** Within sim_enter: the process asks the whole job to stop. */
void data_worker_preempt(struct cast_task *task);

/* data_sums.c: the two ways to share a step. */

/** The records of this member, and what it gives to the sum. */
void data_sums_begin(struct data_worker *worker, uint32_t rank, uint32_t size);
/** Start the step's next operation. */
void data_sums_start(struct data_worker *worker, struct muster_group *group, muster_op_fn *done);
/** One has ended well. Says what it has shown, and whether there is another one to start. */
bool data_sums_take(struct data_worker *worker, struct ledger_outcome *outcome);
/** Change the state by the sum, and move the position. */
void data_sums_update(struct data_worker *worker);
void data_sums_fini(struct data_worker *worker);

#endif
