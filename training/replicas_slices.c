/* Slices of all replicas summed: members tell each other how many rows they have, then gather the rows, or sum the
 * larger tensor as a whole. Each try is of the members of one view; what a lost member ends is tried again. */
#include <muster/slices.h>

#include <inttypes.h>
#include <string.h>

#include "collective/kernel/kernels.h"
#include "training/replicas.h"
#include "training/replicas/slices.h"
#include "training/replicas_memory.h"
#include "training/strategy_call.h"

#define DENSE_PERCENT 50u
#define NAME          "sum_slices"
#define TRIES_MAX     100u /* each is ended by a loss, or by the view of one */

/** A member says this of its rows; all but the first two must be equal. */
struct told_rows {
    uint64_t count;
    uint64_t replica_count;
    uint64_t row_elements;
    uint64_t dtype;
    uint64_t row_count;
    uint64_t dense_percent;
    uint64_t is_concatenated;
    uint64_t reduction;
};
#define TOLD_WORDS (sizeof(struct told_rows) / sizeof(uint64_t))

struct slicing {
    struct muster_strategy *strategy;
    struct muster_mem *mem;
    struct told_rows own_told;
    size_t row_bytes;
    struct muster_slices_sum own; /* this member's rows */

    /* one try */
    struct muster_view *view;
    uint32_t members;
    struct told_rows *told; /* of each of them */
    uint64_t *counts;       /* bytes of each of them */
    uint64_t rows;          /* of all together */
    uint32_t replica_count; /* of all together */
    void *sent, *received;
};

static enum muster_rc refuse_call(const struct slicing *slicing, const char *why)
{
    return muster_error_set(&slicing->strategy->error, MUSTER_INVALID_ARGUMENT, NAME ": %s", why);
}

static void *allocate_zero(const struct slicing *slicing, uint64_t count, size_t bytes,
                           enum muster_rc *rc)
{
    void *memory = NULL;

    if (*rc != MUSTER_OK)
        return NULL;
    if (count <= SIZE_MAX / 2)
        memory = muster_mem_alloc_zero(slicing->mem, count > 0 ? (size_t)count : 1, bytes);
    if (memory == NULL)
        *rc = muster_error_set(&slicing->strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                               NAME ": out of memory for %" PRIu64 " x %zu bytes", count, bytes);
    return memory;
}

/* --- This member's rows --- */

/* Indices are looked at only where the host can read them. */
static enum muster_rc bring_slices(struct slicing *slicing, const struct muster_slices *slices,
                                   struct muster_slices *ret_brought)
{
    struct muster_replicas_copy copies[2 * MUSTER_REPLICAS_MAX];
    uint32_t replicas = slicing->strategy->replica_count;
    struct muster_error why;
    enum muster_rc rc;

    for (uint32_t i = 0; i < replicas; i++) {
        if (muster_slices_check(&slices[i], 0, &slicing->row_bytes, &why) != MUSTER_OK)
            return refuse_call(slicing, why.text);
        copies[2 * i] = (struct muster_replicas_copy){.data = (void *)(uintptr_t)slices[i].indices,
                                                      .bytes = slices[i].count * sizeof(uint64_t),
                                                      .replica = i,
                                                      .is_read = true};
        copies[2 * i + 1] =
            (struct muster_replicas_copy){.data = (void *)(uintptr_t)slices[i].values,
                                          .bytes = slices[i].count * slicing->row_bytes,
                                          .replica = i,
                                          .is_read = true};
    }
    rc = muster_replicas_bring(slicing->strategy, NAME, copies, 2 * (size_t)replicas);
    for (uint32_t i = 0; i < replicas && rc == MUSTER_OK; i++) {
        ret_brought[i] = slices[i];
        ret_brought[i].indices = copies[2 * i].host;
        ret_brought[i].values = copies[2 * i + 1].host;
    }
    return rc;
}

static enum muster_rc check_slices(struct slicing *slicing, const struct muster_slices *slices)
{
    struct muster_error why;

    if (slicing->own_told.reduction != MUSTER_SUM && slicing->own_told.reduction != MUSTER_MEAN)
        return refuse_call(slicing, "the reduction must be sum or mean");
    if (slicing->own_told.reduction == MUSTER_MEAN && slices[0].dtype != MUSTER_F32 &&
        slices[0].dtype != MUSTER_F64 && slices[0].dtype != MUSTER_F16 &&
        slices[0].dtype != MUSTER_BF16)
        return refuse_call(slicing, "a mean over replicas is of floats");
    for (uint32_t i = 0; i < slicing->strategy->replica_count; i++) {
        enum muster_rc rc =
            muster_slices_check(&slices[i], slicing->own_told.row_count, &slicing->row_bytes, &why);

        if (rc != MUSTER_OK)
            return refuse_call(slicing, why.text);
        if (slices[i].dtype != slices[0].dtype || slices[i].row_elements != slices[0].row_elements)
            return refuse_call(slicing,
                               "the slices of local replicas differ in type or row length");
    }
    return MUSTER_OK;
}

static enum muster_rc combine_own(struct slicing *slicing, const struct muster_slices *slices)
{
    struct muster_slices_sum joined;
    enum muster_rc rc =
        muster_slices_join(slicing->mem, slices, slicing->strategy->replica_count, &joined);

    if (rc == MUSTER_OK && slicing->own_told.is_concatenated) {
        slicing->own = joined;
    } else if (rc == MUSTER_OK) {
        rc = muster_slices_combine(slicing->mem, &joined.slices, 0, &slicing->own,
                                   &slicing->strategy->error);
        muster_slices_sum_free(&joined);
    }
    if (rc != MUSTER_OK)
        return muster_error_set(&slicing->strategy->error, rc, NAME ": %s", muster_rc_text(rc));
    slicing->own_told.count = slicing->own.slices.count;
    return MUSTER_OK;
}

/* --- The members of one try --- */

static void count_members(struct slicing *slicing)
{
    slicing->members = 0;
    for (uint32_t rank = 0; rank < slicing->view->member_count; rank++)
        slicing->members +=
            muster_strategy_takes_part(slicing->strategy, NULL, &slicing->view->members[rank]);
}

/* Those of the view that is there now: of a member that was lost since begin nothing is asked. */
static enum muster_rc take_view(struct slicing *slicing)
{
    struct muster_strategy *strategy = slicing->strategy;
    enum muster_rc rc = muster_strategy_enter(strategy, NAME);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_strategy_wait_view(strategy);
    if (rc == MUSTER_OK && !muster_strategy_is_member(strategy))
        rc = muster_error_set(&strategy->error, MUSTER_ABORTED,
                              NAME ": this member is not in the current view");
    if (rc == MUSTER_OK) {
        slicing->view =
            muster_view_ref((struct muster_view *)(uintptr_t)muster_node_view(strategy->node));
        count_members(slicing);
    }
    muster_strategy_leave(strategy);
    return rc;
}

static bool has_lost(const struct muster_strategy *strategy, const struct muster_view *before,
                     const struct muster_view *now)
{
    for (uint32_t rank = 0; before != NULL && rank < before->member_count; rank++)
        if (muster_strategy_takes_part(strategy, NULL, &before->members[rank]) &&
            !muster_view_find(now, &before->members[rank].incarnation, NULL))
            return true;
    return false;
}

/* Whether a member is gone, so that another try is of fewer: all members that are left must say the same. The try of
 * one may have been of the view after the loss already, and so may its step: then the try of another, who knew the view
 * before, has ended both. So the members at the begin before count, too. */
static bool may_try_again(struct slicing *slicing)
{
    struct muster_strategy *strategy = slicing->strategy;
    bool is_smaller;

    if (slicing->view == NULL || muster_strategy_enter(strategy, NAME) != MUSTER_OK)
        return false;
    is_smaller = muster_strategy_wait_view(strategy) == MUSTER_OK &&
                 muster_strategy_is_member(strategy) &&
                 (has_lost(strategy, slicing->view, muster_node_view(strategy->node)) ||
                  has_lost(strategy, strategy->view, muster_node_view(strategy->node)) ||
                  has_lost(strategy, strategy->view_before, muster_node_view(strategy->node)));
    muster_strategy_leave(strategy);
    return is_smaller;
}

static void forget_try(struct slicing *slicing)
{
    muster_mem_free(slicing->mem, slicing->told);
    muster_mem_free(slicing->mem, slicing->counts);
    muster_mem_free(slicing->mem, slicing->sent);
    muster_mem_free(slicing->mem, slicing->received);
    slicing->told = NULL;
    slicing->counts = NULL;
    slicing->sent = slicing->received = NULL;
    if (slicing->view != NULL && muster_strategy_enter(slicing->strategy, NAME) == MUSTER_OK) {
        muster_view_unref(slicing->view);
        muster_strategy_leave(slicing->strategy);
    }
    slicing->view = NULL;
}

static enum muster_rc exchange_counts(struct slicing *slicing)
{
    const struct muster_tensor input = {
        .data = &slicing->own_told, .count = TOLD_WORDS, .dtype = MUSTER_U64};
    struct muster_tensor output = {.count = slicing->members * TOLD_WORDS, .dtype = MUSTER_U64};
    enum muster_rc rc = MUSTER_OK;

    slicing->told = allocate_zero(slicing, slicing->members, sizeof(*slicing->told), &rc);
    slicing->counts = allocate_zero(slicing, slicing->members, sizeof(*slicing->counts), &rc);
    if (rc != MUSTER_OK)
        return rc;
    output.data = slicing->told;
    return muster_replicas_gather_equal(slicing->strategy, NAME, slicing->view, &input, &output);
}

static bool is_asked_alike(const struct told_rows *a, const struct told_rows *b)
{
    return a->row_elements == b->row_elements && a->dtype == b->dtype &&
           a->row_count == b->row_count && a->dense_percent == b->dense_percent &&
           a->is_concatenated == b->is_concatenated && a->reduction == b->reduction;
}

static enum muster_rc refuse_member(const struct slicing *slicing, uint32_t place)
{
    const struct told_rows *told = &slicing->told[place], *first = &slicing->told[0];

    return muster_error_set(
        &slicing->strategy->error, MUSTER_INVALID_ARGUMENT,
        NAME ": members differ: the one in place %" PRIu32 " has rows of %s x %" PRIu64
             " of %" PRIu64 ", %s, the first one %s x %" PRIu64 " of %" PRIu64
             ", %s, or their options differ",
        place, muster_dtype_name((enum muster_dtype)told->dtype), told->row_elements,
        told->row_count, muster_reduction_name((enum muster_reduction)told->reduction),
        muster_dtype_name((enum muster_dtype)first->dtype), first->row_elements, first->row_count,
        muster_reduction_name((enum muster_reduction)first->reduction));
}

/* The same on every member. Numbers of others are not trusted: no sum of them may wrap around, or be 0. */
static enum muster_rc add_counts(struct slicing *slicing)
{
    uint64_t rows_max = SIZE_MAX / 4 / (slicing->row_bytes + 4 * sizeof(uint64_t));

    slicing->rows = 0;
    slicing->replica_count = 0;
    for (uint32_t i = 0; i < slicing->members; i++) {
        const struct told_rows *told = &slicing->told[i];

        if (!is_asked_alike(told, &slicing->told[0]))
            return refuse_member(slicing, i);
        if (told->count > rows_max - slicing->rows || told->replica_count == 0 ||
            told->replica_count > MUSTER_REPLICAS_MAX)
            return muster_error_set(&slicing->strategy->error, MUSTER_INVALID_ARGUMENT,
                                    NAME ": the member in place %" PRIu32 " tells %" PRIu64
                                         " rows of %" PRIu64 " replicas, which cannot be",
                                    i, told->count, told->replica_count);
        slicing->counts[i] = muster_slices_wire_bytes(told->count, slicing->row_bytes);
        slicing->rows += told->count;
        slicing->replica_count += (uint32_t)told->replica_count;
    }
    if (!is_asked_alike(&slicing->own_told, &slicing->told[0]))
        return refuse_member(slicing, 0);
    return MUSTER_OK;
}

static bool is_dense(const struct slicing *slicing)
{
    const struct told_rows *told = &slicing->own_told;

    return !told->is_concatenated && told->row_count > 0 && told->dense_percent <= 100 &&
           (double)slicing->rows * 100 > (double)told->row_count * (double)told->dense_percent;
}

/* --- The rows of all --- */

static enum muster_rc exchange_rows(struct slicing *slicing)
{
    uint64_t own = muster_slices_wire_bytes(slicing->own_told.count, slicing->row_bytes);
    struct muster_tensor input = {.count = own, .dtype = MUSTER_U8};
    struct muster_replicas_parts parts = {.view = slicing->view,
                                          .input = &input,
                                          .output = {.dtype = MUSTER_U8},
                                          .counts = slicing->counts};
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < slicing->members; i++)
        parts.output.count += slicing->counts[i];
    slicing->sent = allocate_zero(slicing, own, 1, &rc);
    slicing->received = allocate_zero(slicing, parts.output.count, 1, &rc);
    if (rc != MUSTER_OK || parts.output.count == 0)
        return rc;
    muster_slices_write(&slicing->own.slices, slicing->sent);
    input.data = slicing->sent;
    parts.output.data = slicing->received;
    return muster_replicas_gather_parts(slicing->strategy, NAME, &parts);
}

/* In the order of the members, and so of the replicas. */
static enum muster_rc join_rows(struct slicing *slicing, struct muster_slices_sum *ret_sum)
{
    const uint8_t *at = slicing->received;
    struct muster_slices_sum joined;
    struct muster_slices *parts;
    size_t row_bytes;
    enum muster_rc rc = MUSTER_OK;

    parts = allocate_zero(slicing, slicing->members, sizeof(*parts), &rc);
    for (uint32_t i = 0; rc == MUSTER_OK && i < slicing->members; at += slicing->counts[i++])
        parts[i] = muster_slices_read(at, slicing->told[i].count, &slicing->own.slices);
    if (rc == MUSTER_OK)
        rc = muster_slices_join(slicing->mem, parts, slicing->members, &joined);
    muster_mem_free(slicing->mem, parts);
    if (rc != MUSTER_OK)
        return muster_error_set(&slicing->strategy->error, rc, NAME ": out of memory for rows");
    rc = muster_slices_check(&joined.slices, slicing->own_told.row_count, &row_bytes,
                             &slicing->strategy->error);
    if (rc != MUSTER_OK) {
        muster_slices_sum_free(&joined);
        return rc;
    }
    if (slicing->own_told.is_concatenated) {
        *ret_sum = joined;
        return MUSTER_OK;
    }
    rc = muster_slices_combine(slicing->mem, &joined.slices, slicing->own_told.row_count, ret_sum,
                               &slicing->strategy->error);
    muster_slices_sum_free(&joined);
    return rc;
}

/* The sum of the larger tensor is of the members of the view, or tried again. */
static enum muster_rc sum_whole(struct slicing *slicing, struct muster_slices_sum *ret_sum)
{
    struct muster_strategy *strategy = slicing->strategy;
    struct muster_slices_sum sum;
    struct muster_tensor tensor = {.dtype = slicing->own.slices.dtype};
    enum muster_rc rc = muster_slices_sum_new(slicing->mem, slicing->own_told.row_count,
                                              &slicing->own.slices, &sum);

    if (rc != MUSTER_OK)
        return muster_error_set(&strategy->error, rc, NAME ": out of memory for the whole tensor");
    sum.is_dense = true;
    tensor.data = (void *)(uintptr_t)sum.slices.values;
    tensor.count = slicing->own_told.row_count * sum.slices.row_elements;
    muster_slices_spread(&slicing->own.slices, tensor.data);
    rc = muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM);
    if (rc == MUSTER_OK && strategy->result.contributor_count != slicing->members)
        rc = muster_error_set(&strategy->error, MUSTER_ABORTED,
                              NAME ": a member was lost, and the sum is not of all");
    if (rc != MUSTER_OK) {
        muster_slices_sum_free(&sum);
        return rc;
    }
    sum.slices.indices = NULL;
    *ret_sum = sum;
    return MUSTER_OK;
}

static enum muster_rc sum_in_view(struct slicing *slicing, struct muster_slices_sum *ret_sum)
{
    enum muster_rc rc = exchange_counts(slicing);

    if (rc == MUSTER_OK)
        rc = add_counts(slicing);
    if (rc != MUSTER_OK)
        return rc;
    if (is_dense(slicing))
        return sum_whole(slicing, ret_sum);
    rc = exchange_rows(slicing);
    return rc == MUSTER_OK ? join_rows(slicing, ret_sum) : rc;
}

static void finish_sum(const struct slicing *slicing, struct muster_slices_sum *sum)
{
    const struct muster_slices *slices = &sum->slices;

    sum->replica_count = slicing->replica_count;
    if (slicing->own_told.reduction == MUSTER_MEAN && slices->count > 0)
        muster_kernel_divide(slices->dtype, (void *)(uintptr_t)slices->values, sum->replica_count,
                             (size_t)(slices->count * slices->row_elements));
}

enum muster_rc muster_replicas_sum_slices(struct muster_strategy *strategy,
                                          const struct muster_slices *slices,
                                          enum muster_reduction reduction,
                                          const struct muster_slices_options *options,
                                          struct muster_slices_sum *ret_sum)
{
    static const struct muster_slices_options defaults;
    struct slicing slicing = {.strategy = strategy, .mem = strategy->env->mem};
    struct muster_slices brought[MUSTER_REPLICAS_MAX];
    struct muster_slices_sum sum;
    uint32_t tries = 0;
    bool is_tried_again = false;
    enum muster_rc rc = muster_strategy_check_step(strategy, NAME);

    if (rc != MUSTER_OK)
        return rc;
    options = options != NULL ? options : &defaults;
    slicing.own_told = (struct told_rows){
        .replica_count = strategy->replica_count,
        .row_elements = slices[0].row_elements,
        .dtype = slices[0].dtype,
        .row_count = options->row_count,
        .dense_percent = options->dense_percent > 0 ? options->dense_percent : DENSE_PERCENT,
        .is_concatenated = options->is_concatenated,
        .reduction = reduction};
    rc = bring_slices(&slicing, slices, brought);
    if (rc == MUSTER_OK)
        rc = check_slices(&slicing, brought);
    if (rc == MUSTER_OK)
        rc = combine_own(&slicing, brought);
    while (rc == MUSTER_OK || is_tried_again) {
        rc = take_view(&slicing);
        if (rc == MUSTER_OK)
            rc = sum_in_view(&slicing, &sum);
        is_tried_again = rc == MUSTER_ABORTED && ++tries <= TRIES_MAX && may_try_again(&slicing);
        forget_try(&slicing);
        if (rc == MUSTER_OK)
            break;
    }
    if (rc == MUSTER_OK) {
        finish_sum(&slicing, &sum);
        *ret_sum = sum;
    }
    muster_slices_sum_free(&slicing.own);
    return rc;
}
