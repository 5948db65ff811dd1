/* The books of plays with a dataset: what the members count, a run without faults to compare with, and the checkpoints
 * that outlive processes. */
#ifndef MUSTER_SIM_DATA_BOOK_H
#define MUSTER_SIM_DATA_BOOK_H

#include <muster/dataset.h>

#include "tests/sim/cast.h"
#include "training/data/plan.h"

#define DATA_RECORDS_MAX    48u
#define DATA_BATCH_MAX      20u
#define DATA_SLOTS_MAX      13u
#define DATA_WEIGHTS        6u
#define DATA_GRADIENT       (DATA_RECORDS_MAX + DATA_WEIGHTS)
#define DATA_POSITION_WORDS (MUSTER_DATA_WORDS + DATA_BATCH_MAX)

/** The training state. */
struct data_state {
    uint64_t uses[DATA_RECORDS_MAX]; /* of each record, in all gradients that have counted */
    uint64_t position[DATA_POSITION_WORDS];
    float weights[DATA_WEIGHTS]; /* of micro-batches: their bits depend on the order of sums */
};

struct data_save {
    uint64_t step; /* 0: there is none */
    struct data_state state;
};

struct data_book {
    struct sim_world *world;
    struct muster_dataset_options dataset; /* of all processes */
    uint32_t slot_count;                   /* micro-batches; 0: claims */
    uint64_t save_interval;                /* steps */
    struct data_save newest;
    /* The checkpoint from which the members of a new beginning go on. */
    struct data_save restored;
    uint64_t restored_begin_epoch; /* 0: none yet */
    uint64_t committed_max;        /* since then */
    /* Preemption: the job has been asked to stop, and what was saved when it did. */
    bool may_preempt, is_preempted;
    bool is_started[CAST_TASKS_MAX]; /* a process of the task returns, if … */
    bool has_view;                   /* … this run of the job had one */
    uint64_t stopped_step;           /* 0: nobody has saved */
    /* The same steps without faults. */
    struct muster_dataset *plain;
    float plain_weights[DATA_WEIGHTS];
    uint64_t *plain_digests; /* of the weights behind each step */
    uint64_t plain_count;
    /* How often it came to what a play is for. */
    uint64_t restores, pools, overlaps;
    uint64_t passes; /* the most whole passes over the data that a state had */
};

/** A dataset of this run. is_micro: steps of micro-batches. */
void data_book_open(struct data_book *book, struct sim_world *world, bool is_micro);
void data_book_close(struct data_book *book);

/** A record is its number. */
uint64_t data_book_number(const struct muster_bytes *record);
/** Add the gradient of a micro-batch: a use of each record, and values whose sum depends on its order. */
void data_book_gradient(const struct muster_dataset_batch *batch, float *gradient);
/** Change the weights by the sum of gradients. */
void data_book_update(float *weights, const float *sum);

/** A checkpoint is written. The one with the highest step counts. */
void data_book_save(struct data_book *book, uint64_t step, const struct data_state *state);
/** A member has stopped as it was asked to, and saves. */
void data_book_stop(struct data_book *book, uint64_t step, const struct data_state *state);
/** The members of the beginning at this epoch go on from this: the newest checkpoint when the first of them asked.
 * Borrowed. */
const struct data_save *data_book_restore(struct data_book *book, uint64_t begin_epoch);
/** The state counts each record of a pass once: before the position it is used, behind it and in the pool it is not.
 * With micro-batches its weights are those of a run without faults. */
void data_book_check(struct data_book *book, uint32_t life, uint64_t step,
                     const struct data_state *state);

#endif
