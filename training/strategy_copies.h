/* The memory into which a checkpoint copies what is not written yet. Its pages are taken from the system ahead of the
 * first checkpoint: a step that copies into new memory takes 2 to 5 s longer for each GiB on some virtual machines. */
#ifndef MUSTER_TRAINING_STRATEGY_COPIES_H
#define MUSTER_TRAINING_STRATEGY_COPIES_H

#include <stdbool.h>

#include "runtime/system/huge_memory.h"

struct muster_strategy;

/** All zero: none. It stays for the next checkpoint. */
struct muster_strategy_copies {
    struct muster_huge_memory memory;
    bool is_expected;   /* a checkpoint will come: the program has said so */
    uint64_t bytes_max; /* which it then names; 0: the member's part */
};

/** The part of this member of the registered tensors; at most bytes_max, unless that is 0. In a step. */
size_t muster_strategy_copies_bytes(const struct muster_strategy *strategy, uint64_t bytes_max);
/** Have room for so many bytes. Nothing is being written. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_strategy_copies_reserve(struct muster_strategy *strategy,
                                                                size_t bytes);
/** How many of the first `bytes` the system has not given yet, as far as the thread knows that takes them. */
size_t muster_strategy_copies_new_bytes(const struct muster_strategy *strategy, size_t bytes);
/** At the begin of a step: where a checkpoint will come, reserve what this member needs in the present view, and give
 * back what it does not. A lack of memory is told by the checkpoint. In the seat. */
void muster_strategy_copies_prepare(struct muster_strategy *strategy);
void muster_strategy_copies_fini(struct muster_strategy *strategy);

#endif
