/* Splits of a strategy: operations among some of the members, by a color of each. Data, tensor and
 * pipeline groups are splits of the same members. */
#ifndef MUSTER_STRATEGY_SPLIT_H
#define MUSTER_STRATEGY_SPLIT_H

#include <muster/base.h>
#include <muster/reduction.h>
#include <muster/split.h>
#include <muster/status.h>
#include <muster/tensor.h>

MUSTER_BEGIN

struct muster_strategy;
struct muster_strategy_split;

#define MUSTER_SPLIT_NOBODY UINT32_MAX

/**
 * Groups of those members that have one color, for all of the strategy's life. A member that comes
 * back, or joins, has the color of its task; a group without its dead goes on. One change of view
 * decides the operations of all groups of all splits: what can be finished is, the rest runs again or
 * ends ABORTED, in each group alike on all its members. Groups do not wait for each other.
 *
 * All members make the same splits in the same order, before the first begin.
 *
 *     static uint32_t column(void *data, const struct muster_member *member)
 *     {
 *         return member->task_index % *(uint32_t *)data;
 *     }
 *     muster_strategy_split(strategy, column, &width, &data_group);
 *
 * Owns:    *ret_split is the strategy's, until close. color is pure and may be called on another
 *          thread; data is borrowed until close.
 * Errors:  FAILED_PRECONDITION (after the first begin), INVALID_ARGUMENT (no color),
 *          RESOURCE_EXHAUSTED (MUSTER_SPLITS_MAX).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split(
    struct muster_strategy *strategy, muster_color_fn *color, void *data,
    struct muster_strategy_split **ret_split);

/** Members with this one's color, and its place among them, as of begin: they change only there. A
 * member without a group (a color above MUSTER_COLOR_MAX) has size 0. */
MUSTER_API uint32_t muster_strategy_split_size(const struct muster_strategy_split *split);
MUSTER_API uint32_t muster_strategy_split_rank(const struct muster_strategy_split *split);

/* Each as its namesake of the strategy, among the members of this one's group; root, parts and size
 * are counted there. Errors also: FAILED_PRECONDITION (this member has no group), UNIMPLEMENTED
 * (device memory). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_all_reduce(
    struct muster_strategy_split *split, const struct muster_tensor *tensors, size_t count,
    enum muster_reduction reduction);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_broadcast(
    struct muster_strategy_split *split, const struct muster_tensor *tensor, uint32_t root);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_reduce(
    struct muster_strategy_split *split, const struct muster_tensor *tensor,
    enum muster_reduction reduction, uint32_t root);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_all_gather(
    struct muster_strategy_split *split, const struct muster_tensor *input,
    const struct muster_tensor *output);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_all_to_all(
    struct muster_strategy_split *split, const struct muster_tensor *input,
    const struct muster_tensor *output);
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_barrier(
    struct muster_strategy_split *split);

/**
 * The messages of a pipeline: send `output` to member `to` of the group and receive `input` from member
 * `from`, both at once (MUSTER_SPLIT_NOBODY: no such part; its tensor is not read and may be NULL).
 * The k-th message to a member is the k-th that it receives from this one. See muster_send_start.
 *
 * Errors:  ABORTED (one of the two has gone), INVALID_ARGUMENT (shapes differ, or no such rank), …
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_split_exchange(
    struct muster_strategy_split *split, const struct muster_tensor *output, uint32_t to,
    const struct muster_tensor *input, uint32_t from);

MUSTER_END

#endif
