/* Steps of micro-batches: memory for the slots, the nodes of each member, and their sum on all.
 *
 * Each member sums one part of all elements: it receives that part of all nodes (all_to_all), adds them by the tree,
 * and gives the sum to all (all_gather). Both end alike on all members, and the step has all of it or nothing. */
#include <muster/micro_batches.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collective/group/group.h"
#include "collective/kernel/kernels.h"
#include "training/micro/values.h"
#include "training/strategy_call.h"

struct muster_micro_batches {
    struct muster_strategy *strategy;
    struct muster_micro_batches_options options;
    struct muster_micro_values values; /* size 0: of no members yet */
};

/* --- Open and close --- */

/* The program's own number, or the job's. */
static enum muster_rc slots_choose(uint32_t constant, uint32_t asked, uint32_t *ret_count,
                                   struct muster_error *ret_error)
{
    if (asked > MUSTER_MICRO_SLOTS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the micro-batches of a step must be 1 to %u, got %" PRIu32,
                                MUSTER_MICRO_SLOTS_MAX, asked);
    if (asked == 0 && constant == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the micro-batches of a step must be 1 to %u, got 0, and "
                                "MUSTER_CONSTANT_BATCH is not set; give a number, or start the job "
                                "with muster run --constant-batch SLOTS",
                                MUSTER_MICRO_SLOTS_MAX);
    if (asked != 0 && constant != 0 && asked != constant)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the micro-batches of a step must be %" PRIu32
                                ", as MUSTER_CONSTANT_BATCH (muster run --constant-batch) says, "
                                "got %" PRIu32 " from this program; give both the same number, or "
                                "the program none (0 in C, None in Python)",
                                constant, asked);
    *ret_count = asked != 0 ? asked : constant;
    return MUSTER_OK;
}

static enum muster_rc options_check(const struct muster_micro_batches_options *options,
                                    struct muster_error *ret_error)
{
    if (!muster_reduction_is_defined(options->dtype, MUSTER_SUM))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "dtype must be a type that can be summed, got %s",
                                muster_dtype_name(options->dtype));
    if (options->element_count == 0 ||
        options->element_count >
            SIZE_MAX / (2 * MUSTER_MICRO_NODES_MAX) / muster_dtype_bytes(options->dtype))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "element_count must be above 0 and fit into memory, got %" PRIu64,
                                options->element_count);
    return MUSTER_OK;
}

/* The options as state: members compare names and shapes of their tensors before the first step, and so does a
 * restore. The bytes live as long as the strategy, which lends them to joiners. */
static enum muster_rc slots_register(struct muster_strategy *strategy,
                                     const struct muster_micro_batches_options *options,
                                     struct muster_error *ret_error)
{
    struct muster_tensor slots = {.count = options->slot_count, .dtype = MUSTER_U8};
    char name[64];
    enum muster_rc rc;

    if (strategy->micro_slots != NULL)
        return muster_error_set(ret_error, MUSTER_ALREADY_EXISTS,
                                "the steps of this strategy are in micro-batches already");
    slots.data = muster_mem_alloc_zero(strategy->env->mem, options->slot_count, 1);
    if (slots.data == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    (void)snprintf(name, sizeof(name), MUSTER_STATE_SLOTS_PREFIX "%" PRIu64 "_x_%s",
                   options->element_count, muster_dtype_name(options->dtype));
    rc = muster_strategy_register(strategy, name, &slots);
    if (rc != MUSTER_OK) {
        muster_mem_free(strategy->env->mem, slots.data);
        return muster_error_set(ret_error, rc, "%s", muster_strategy_error(strategy)->text);
    }
    strategy->micro_slots = slots.data;
    return MUSTER_OK;
}

/* The launcher's word on this worker, which it does not start again while it is refused. "" takes that back. */
static void refusal_tell(struct muster_strategy *strategy, const char *why)
{
    if (muster_strategy_enter(strategy, "micro_batches_open") != MUSTER_OK)
        return;
    muster_report_refused(strategy->report, why);
    strategy->is_micro_refused = why[0] != '\0';
    muster_strategy_leave(strategy);
}

/* Another life of this worker would be of the same program. */
static enum muster_rc options_refuse(struct muster_strategy *strategy,
                                     const struct muster_error *why, struct muster_error *ret_error)
{
    refusal_tell(strategy, why->text);
    return muster_error_set(ret_error, why->rc, "%s", why->text);
}

enum muster_rc muster_micro_batches_open(struct muster_strategy *strategy,
                                         const struct muster_micro_batches_options *options,
                                         struct muster_micro_batches **ret_micro,
                                         struct muster_error *ret_error)
{
    struct muster_micro_batches_options chosen = *options;
    struct muster_micro_batches *micro;
    struct muster_error why;
    enum muster_rc rc =
        slots_choose(strategy->constant_batch, options->slot_count, &chosen.slot_count, &why);

    if (rc == MUSTER_OK)
        rc = options_check(&chosen, &why);
    if (rc != MUSTER_OK)
        return options_refuse(strategy, &why, ret_error);
    micro = muster_mem_alloc_zero(strategy->env->mem, 1, sizeof(*micro));
    if (micro == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    rc = slots_register(strategy, &chosen, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(strategy->env->mem, micro);
        return rc;
    }
    if (strategy->is_micro_refused) /* the program has asked again, with other options */
        refusal_tell(strategy, "");
    micro->strategy = strategy;
    micro->options = chosen;
    micro->values = (struct muster_micro_values){.slot_count = chosen.slot_count,
                                                 .element_count = chosen.element_count};
    *ret_micro = micro;
    return MUSTER_OK;
}

uint32_t muster_micro_batches_slot_count(const struct muster_micro_batches *micro)
{
    return micro->options.slot_count;
}

void muster_micro_batches_close(struct muster_micro_batches *micro)
{
    if (micro == NULL)
        return;
    muster_strategy_tensor_free(micro->strategy, &micro->values.own);
    muster_strategy_tensor_free(micro->strategy, &micro->values.received);
    muster_mem_free(micro->strategy->env->mem, micro);
}

/* --- Begin --- */

/* Room for so many elements. What was in it is lost. */
static enum muster_rc values_reserve(struct muster_micro_batches *micro,
                                     struct muster_tensor *tensor, uint64_t elements)
{
    if (elements <= tensor->count)
        return MUSTER_OK;
    muster_strategy_tensor_free(micro->strategy, tensor);
    tensor->count = 0;
    return muster_strategy_tensor_new(micro->strategy, micro->options.dtype, elements, tensor);
}

/* The slots and the memory of a step with other members than the one before. */
static enum muster_rc members_plan(struct muster_micro_batches *micro, uint32_t rank, uint32_t size)
{
    struct muster_micro_values *values = &micro->values;
    uint64_t own, received;
    enum muster_rc rc;

    muster_micro_values_plan(values, rank, size, &own, &received);
    rc = values_reserve(micro, &values->own, own);
    if (rc == MUSTER_OK)
        rc = values_reserve(micro, &values->received, received);
    if (rc != MUSTER_OK)
        values->size = 0; /* the next call tries again */
    return rc;
}

enum muster_rc muster_micro_batches_begin(struct muster_micro_batches *micro,
                                          struct muster_dataset_shares *ret_shares)
{
    struct muster_strategy *strategy = micro->strategy;
    uint32_t rank, size;
    enum muster_rc rc = muster_strategy_check_step(strategy, "micro_batches_begin");

    if (rc != MUSTER_OK)
        return rc;
    rank = muster_strategy_rank(strategy);
    size = muster_strategy_size(strategy);
    if (rank != micro->values.rank || size != micro->values.size)
        rc = members_plan(micro, rank, size);
    if (rc != MUSTER_OK)
        return rc;
    muster_micro_values_begin(&micro->values);
    *ret_shares = (struct muster_dataset_shares){
        micro->values.range.first, micro->values.range.count, micro->options.slot_count};
    return MUSTER_OK;
}

bool muster_micro_batches_next(struct muster_micro_batches *micro, uint32_t *ret_slot,
                               struct muster_tensor *ret_tensor)
{
    return muster_micro_values_next(&micro->values, ret_slot, ret_tensor);
}

/* --- The sum --- */

static enum muster_rc start_exchange(const struct muster_strategy_call *call, size_t i,
                                     struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_to_all_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      muster_strategy_on_op_done);
}

static enum muster_rc start_gather(const struct muster_strategy_call *call, size_t i,
                                   struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_gather_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      muster_strategy_on_op_done);
}

/* One operation, in host memory also where the strategy's other operations are on a device. */
static struct muster_strategy_call call_of(const struct muster_micro_batches *micro,
                                           const struct muster_tensor *pair)
{
    return (struct muster_strategy_call){.name = "micro_batches_sum",
                                         .tensors = pair,
                                         .count = 1,
                                         .view = micro->strategy->view,
                                         .by = MUSTER_COMMUNICATION_RING};
}

/* This member's part of the nodes of all. One operation, however many nodes there are: members that begin a step in
 * different views have other nodes, and must have started as many operations when it ends ABORTED. */
static enum muster_rc nodes_exchange(struct muster_micro_batches *micro)
{
    struct muster_tensor pair[2];
    struct muster_strategy_call call;

    muster_micro_values_exchange(&micro->values, &pair[0], &pair[1]);
    call = call_of(micro, pair);
    call.start = start_exchange;
    return muster_strategy_run(micro->strategy, &call);
}

static enum muster_rc parts_gather(struct muster_micro_batches *micro)
{
    struct muster_tensor pair[2];
    struct muster_strategy_call call;

    muster_micro_values_gather(&micro->values, &pair[0], &pair[1]);
    call = call_of(micro, pair);
    call.start = start_gather;
    return muster_strategy_run(micro->strategy, &call);
}

enum muster_rc muster_micro_batches_sum(struct muster_micro_batches *micro,
                                        struct muster_tensor *ret_tensor)
{
    struct muster_strategy *strategy = micro->strategy;
    enum muster_rc rc = muster_strategy_check_step(strategy, "micro_batches_sum");

    if (rc != MUSTER_OK)
        return rc;
    if (micro->values.size == 0 || micro->values.given < micro->values.range.count)
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                "micro_batches_sum: %" PRIu32 " of %" PRIu32
                                " slots are filled; call muster_micro_batches_next until it "
                                "returns false",
                                micro->values.given, micro->values.range.count);
    rc = nodes_exchange(micro);
    if (rc == MUSTER_OK)
        rc = parts_gather(micro);
    if (rc != MUSTER_OK)
        return rc;
    *ret_tensor = muster_micro_values_sum(&micro->values);
    return MUSTER_OK;
}
