/* Which records a batch has, and the position after it. Pure. */
#ifndef MUSTER_TRAINING_DATA_PLAN_H
#define MUSTER_TRAINING_DATA_PLAN_H

#include <muster/dataset.h>

#include "training/data/order.h"

/** The words of a position, before its places that are not used. */
enum muster_data_word {
    MUSTER_DATA_VERSION,
    MUSTER_DATA_HASH, /* of the index: whose position it is */
    MUSTER_DATA_RECORDS,
    MUSTER_DATA_EPOCH,
    MUSTER_DATA_CURSOR, /* the first place that no batch has had */
    MUSTER_DATA_TURN,   /* batches of the epoch, where they are cut for replicas */
    MUSTER_DATA_POOL,   /* number of places below the cursor that are not used; they follow */
    MUSTER_DATA_SPARE,
    MUSTER_DATA_WORDS
};
#define MUSTER_DATA_POSITION_VERSION 1u

/** How an epoch is divided; fixed from open on. */
struct muster_data_division {
    uint64_t record_count;
    bool is_shuffled, is_remainder_dropped;
    uint64_t seed, epoch_count;
    uint32_t batch, replicas_per_worker;
    enum muster_shard_unit unit;
    struct muster_shard shard;
};

/** The place of one batch: equal places have equal records, but for a pool. */
struct muster_data_place {
    uint64_t epoch, cursor, turn, pool_count;
    bool is_share;                       /* a part of the step of all members, then: */
    struct muster_dataset_shares shares; /* … these */
};

/** The records of a batch. Caller's memory, of `batch` numbers. */
struct muster_data_part {
    uint64_t *numbers;
    uint32_t count;
    uint32_t first; /* is_share: of the window */
    uint32_t window;
};

bool muster_data_place_is_equal(const struct muster_data_place *a,
                                const struct muster_data_place *b);
/** Go on to the next epoch where this one has nothing more. False: there is none. */
MUSTER_MUST_CHECK bool muster_data_place_settle(const struct muster_data_division *division,
                                                struct muster_data_place *place);
/** The records at a settled place; pool: its places, first to come. */
void muster_data_place_fill(const struct muster_data_division *division,
                            const struct muster_data_place *place, const uint64_t *pool,
                            struct muster_data_part *part);
/** The records of one of the part's shares: from *ret_first of its numbers on. */
void muster_data_part_share(const struct muster_data_part *part,
                            const struct muster_dataset_shares *shares, uint32_t share,
                            uint32_t *ret_first, uint32_t *ret_count);
/** The place after it, if all of its records are used. */
void muster_data_place_advance(const struct muster_data_division *division,
                               struct muster_data_place *place);
/** Records that this worker's part of an epoch has. */
uint64_t muster_data_division_count(const struct muster_data_division *division);

/* Claims: the first value counts the records, then each has 16 bits, one of each record of the window. Sums of them
 * are exact in F32, or beyond 16 bits. */
void muster_data_claims_record(const struct muster_data_division *division,
                               const struct muster_data_part *part, float *ret_claims);
/** Move position, whose words are settled, by summed claims. Errors: ABORTED, INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_data_claims_apply(
    const struct muster_data_division *division, const float *claims, uint64_t *position,
    uint64_t *ret_used, struct muster_error *ret_error);

#endif
