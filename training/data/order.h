/* The order of an epoch: a permutation of 0 … count - 1 that is computed for each place, so that it takes no memory and
 * any place can be asked for. */
#ifndef MUSTER_TRAINING_DATA_ORDER_H
#define MUSTER_TRAINING_DATA_ORDER_H

#include <muster/base.h>

struct muster_data_order {
    uint64_t count;
    uint64_t key;       /* of seed and epoch */
    unsigned half_bits; /* 0: in order */
};

void muster_data_order_init(struct muster_data_order *order, uint64_t count, bool is_shuffled,
                            uint64_t seed, uint64_t epoch);
/** The number at `place`, which is below count. */
uint64_t muster_data_order_at(const struct muster_data_order *order, uint64_t place);

#endif
