/* A checkpoint that is being written: this member's shard by a thread, then the wait for those of the others. */
#ifndef MUSTER_TRAINING_STRATEGY_SAVING_H
#define MUSTER_TRAINING_STRATEGY_SAVING_H

#include <muster/checkpoint.h>
#include <muster/env.h>
#include <muster/strategy_checkpoint.h>
#include <muster/view.h>

#include "training/strategy_copies.h"

struct muster_aside;
struct muster_checkpoint_writer;
struct muster_strategy;

enum muster_strategy_saving_state {
    MUSTER_SAVING_NONE,
    MUSTER_SAVING_WRITES,  /* the thread writes the shard */
    MUSTER_SAVING_AWAITED, /* the shard is written; the timer looks for the others' */
    MUSTER_SAVING_LOOKS,   /* the thread looks, and writes the manifest */
};

/** A look for the others' shards: the thread is told the first two, and tells the rest. */
struct muster_strategy_look {
    bool is_sealer;   /* the first member that is still there writes the manifest */
    uint8_t *is_gone; /* by rank */
    bool is_whole;    /* out: it is there */
    uint32_t missing; /* out: the first shard that is not */
    bool is_begun;    /* out: a member writes that one */
    uint32_t
        lost; /* out: rank of the first member that has gone without a shard; the number of members: none has */
    struct muster_error error;
};

struct muster_strategy_saving {
    enum muster_strategy_saving_state state;
    struct muster_aside
        *aside; /* NULL without one that is being written, as all down to keep_count */
    struct muster_aside *copier; /* copies ahead of the disk */
    struct muster_checkpoint_writer *writer;
    struct muster_checkpoint *checkpoint; /* takes its memory from the C library, in the thread */
    struct muster_member *members;        /* by rank */
    uint8_t *gone_marks;                  /* by rank, of both looks */
    uint32_t rank, keep_count;
    uint64_t begun_ns, deadline_ns, look_interval_ns;
    uint64_t patience_ns; /* 0: up to the deadline */
    struct muster_timer look_timer, detach_timer;
    struct muster_strategy_copies copies;
    struct muster_strategy_look look;
    struct muster_strategy_look gone;  /* beside the writing; its thread is the copier's */
    bool is_copier_busy, must_look;    /* a member has gone since */
    char why[MUSTER_ERROR_TEXT_BYTES]; /* the writing was cancelled; "": it was not */
    bool is_detached;                  /* the tensors may change */
    bool is_alone;      /* the last one ended because others go on: they save what they end with */
    uint64_t failed_id; /* of the last one that this member could not write; 0: none */
    struct muster_strategy_checkpoint_result running, last;
};

/** All members begin with the same. */
struct muster_strategy_saving_start {
    struct muster_checkpoint_name name;
    uint64_t wall_ns; /* of rank 0 */
    const char *folder;
    uint32_t keep_count;
    uint64_t timeout_ns;
    uint64_t copy_bytes_max; /* 0: the shard's */
    uint64_t patience_ns;    /* for a shard that nobody has begun to write; 0: timeout_ns */
    bool is_awaited;         /* no steps go on beside it: it is written at the program's priority */
};
/** In the seat, in a step. Errors: of this member; the caller tells the others. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_saving_start(
    struct muster_strategy *strategy, const struct muster_strategy_saving_start *start,
    struct muster_error *ret_error);
/** In the seat. The tensors may change from its return on. It turns the loop where there is no room for copies of all
 * that is not written yet. */
void muster_strategy_saving_detach(struct muster_strategy *strategy);
/** Members have gone: without its shard one of them ends the checkpoint. On the loop. */
void muster_strategy_saving_note_loss(struct muster_strategy *strategy);
/** Give it up; waits for a piece of a file that is being written. Without one it does nothing. */
void muster_strategy_saving_abandon(struct muster_strategy *strategy, enum muster_rc rc,
                                    const char *text);
/** For waits: none is being written. */
bool muster_strategy_saving_is_over(void *data);

#endif
