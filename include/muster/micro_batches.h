/* The same curve, whatever the number of members: steps of a fixed number of micro-batches.
 *
 * A step's batch is cut into `slot_count` micro-batches, the slots. Each member computes several consecutive slots, one
 * tensor for each slot, and more slots when there are fewer members. The tensors are summed by a tree over the slots:
 * which values are added, and in which order, follows from slot_count alone. So the sum has the same bits with 1 member
 * and with 7, and a job with deaths and joins ends bit by bit as one without. The program decides what is summed:
 * gradients, for example, and after them the loss and the number of examples.
 *
 *     muster_micro_batches_open(strategy, &options, &micro, &error);      before the first begin
 *     for (;;) {
 *         muster_strategy_begin(strategy, &step, NULL);
 *         muster_micro_batches_begin(micro, &shares);
 *         muster_dataset_next_shares(dataset, &shares, &error);
 *         while (muster_micro_batches_next(micro, &slot, &tensor)) {
 *             muster_dataset_share(dataset, slot, &batch, &error);
 *             … add the gradient of the batch to the tensor, whose elements are 0 …
 *         }
 *         if (muster_micro_batches_sum(micro, &tensor) == MUSTER_ABORTED)
 *             continue;                                                   the same records again
 *         muster_dataset_complete_step(dataset, &error);
 *         … update with the sum, by the number of examples in it …
 *         muster_strategy_commit(strategy);
 *     }
 *
 * Everything else that the tensors depend on, such as random numbers, must follow from the step and the slot, too. A
 * member that dies in a step costs the others that step's work: the sum ends with ABORTED, and the step runs again
 * among the members that are left. docs/training.md, "The same curve". */
#ifndef MUSTER_MICRO_BATCHES_H
#define MUSTER_MICRO_BATCHES_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/dataset.h>
#include <muster/status.h>
#include <muster/strategy.h>

MUSTER_BEGIN

#define MUSTER_MICRO_SLOTS_MAX 65536u

struct muster_micro_batches;

struct muster_micro_batches_options {
    /* Micro-batches of a step, at most MUSTER_MICRO_SLOTS_MAX; for the job's life. 0: as many as the launcher says
     * (muster run --constant-batch, or MUSTER_CONSTANT_BATCH); where it says a number, no other one is taken. */
    uint32_t slot_count;
    enum muster_dtype dtype;
    uint64_t element_count; /* elements of one slot's tensor */
};

/**
 * Divide the steps of a strategy into micro-batches. Before the first begin, once, with the same options on all
 * members. The options are part of the state: a tensor is registered whose name and size tell them (8 slots of 5
 * floats: "micro_batches_5_x_f32" of 8 bytes). So begin, and a restore, refuse a member that has other options. Where
 * MUSTER_CONSTANT_BATCH is set the first begin of a strategy without micro-batches ends with FAILED_PRECONDITION.
 * Options that cannot be are told to the launcher, which does not start this worker again, unless a later open with
 * others goes well.
 *
 * Owns:    gives; muster_micro_batches_close before muster_strategy_close. Options are borrowed during the call.
 * Errors:  INVALID_ARGUMENT (the text says which option must be what), RESOURCE_EXHAUSTED, as muster_strategy_register.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_micro_batches_open(
    struct muster_strategy *strategy, const struct muster_micro_batches_options *options,
    struct muster_micro_batches **ret_micro, struct muster_error *ret_error);
/** Into how many slots the program cuts its batch; also where the launcher has said it. */
MUSTER_API uint32_t muster_micro_batches_slot_count(const struct muster_micro_batches *micro);
/** NULL is accepted. */
MUSTER_API void muster_micro_batches_close(struct muster_micro_batches *micro);

/**
 * Begin the step's slots, after each muster_strategy_begin. It allocates memory when there are more members, or fewer,
 * than ever before: for this member's partial sums, at most 2 log2(slot_count) tensors, and as much again.
 *
 * Errors:  FAILED_PRECONDITION (muster_strategy_begin first), RESOURCE_EXHAUSTED: muster_strategy_error.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_micro_batches_begin(
    struct muster_micro_batches *micro, struct muster_dataset_shares *ret_shares);
/**
 * The next slot of this member, and its tensor: all 0, for the program to fill until the next call. False: this member
 * has no further slot in this step. Where there are more members than slots, some members have no slot at all.
 */
MUSTER_API MUSTER_MUST_CHECK bool muster_micro_batches_next(struct muster_micro_batches *micro,
                                                            uint32_t *ret_slot,
                                                            struct muster_tensor *ret_tensor);
/**
 * Sum the tensors of all slots over all members; blocks. The tensor is the micro-batches' until the next begin, and
 * may be written. Each member adds one part of the elements: with p partial sums a member sends p + 1 tensors or less.
 *
 * Errors:  FAILED_PRECONDITION (slots of this member are left: call next until it returns false), otherwise as
 *          muster_strategy_all_to_all. ABORTED: call muster_strategy_begin.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_micro_batches_sum(
    struct muster_micro_batches *micro, struct muster_tensor *ret_tensor);

MUSTER_END

#endif
