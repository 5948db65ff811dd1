/* Replicas that run side by side, and their calls: each local replica comes with its own part, and the last one makes
 * the call for all. */
#include <muster/replica.h>

#include <inttypes.h>
#include <string.h>

#include "training/replicas.h"
#include "training/replicas/crew_system.h"
#include "training/replicas/slices.h"
#include "training/strategy_memory.h"
#include "training/strategy_call.h"

/* --- The run --- */

struct run {
    struct muster_strategy *strategy;
    muster_replica_fn *work;
    void *data;
    struct muster_replica replicas[MUSTER_REPLICAS_MAX];
    struct muster_device_memory *devices[MUSTER_REPLICAS_MAX]; /* NULL: the CPU */
};

static enum muster_rc open_devices(struct run *run)
{
    struct muster_strategy *strategy = run->strategy;
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < strategy->replica_count && rc == MUSTER_OK; i++) {
        int gpu = muster_replicas_device_gpu(strategy, i * strategy->logical_device_count);

        if (gpu != MUSTER_NO_GPU)
            rc = muster_strategy_memory_open(strategy, "run", gpu, &run->devices[i]);
    }
    return rc;
}

static enum muster_rc work_replica(struct muster_crew *crew, uint32_t hand, void *data)
{
    struct run *run = data;
    struct muster_replica *replica = &run->replicas[hand];
    struct muster_strategy *strategy = run->strategy;
    void *before = NULL;
    enum muster_rc rc;

    *replica = (struct muster_replica){
        .data = run->data,
        .id = muster_replicas_first(run->strategy) + hand,
        .local = hand,
        .gpu = muster_replicas_device_gpu(strategy, hand * strategy->logical_device_count),
        .strategy = strategy,
        .crew = crew};
    if (run->devices[hand] != NULL)
        before = muster_device_memory_enter(run->devices[hand]);
    rc = run->work(replica);
    if (run->devices[hand] != NULL)
        muster_device_memory_leave(run->devices[hand], before);
    return rc;
}

static enum muster_rc crew_run(struct run *run, uint32_t *ret_hand)
{
    struct muster_strategy *strategy = run->strategy;
    enum muster_rc rc = MUSTER_OK;

    if (strategy->crew == NULL)
        rc = muster_crew_open(strategy->env->mem, strategy->replica_count, &strategy->crew);
    return rc == MUSTER_OK ? muster_crew_run(strategy->crew, work_replica, run, ret_hand) : rc;
}

static void explain_run(const struct run *run, uint32_t hand, enum muster_rc rc)
{
    struct muster_strategy *strategy = run->strategy;
    const struct muster_error *why = &run->replicas[hand].error;

    if (run->replicas[0].strategy == NULL) { /* nothing has run */
        (void)muster_error_set(
            &strategy->error, rc,
            rc == MUSTER_FAILED_PRECONDITION
                ? "run: a run is under way: call it outside of the replicas' work"
                : "run: no memory, or no thread for each replica: raise the limit "
                  "(ulimit -u, or pids.max of the cgroup)");
        return;
    }
    (void)muster_error_set(&strategy->error, rc, "run: replica %" PRIu32 ": %s",
                           muster_replicas_first(strategy) + hand,
                           why->rc != MUSTER_OK ? why->text : muster_rc_text(rc));
}

enum muster_rc muster_replicas_run(struct muster_strategy *strategy, muster_replica_fn *work,
                                   void *data)
{
    struct muster_mem *mem = strategy->env->mem;
    uint32_t hand = 0;
    struct run *run;
    enum muster_rc rc = muster_strategy_check(strategy, "run");

    if (rc != MUSTER_OK)
        return rc;
    run = muster_mem_alloc_zero(mem, 1, sizeof(*run));
    if (run == NULL)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, "run: out of memory");
    run->strategy = strategy;
    run->work = work;
    run->data = data;
    rc = open_devices(run);
    if (rc == MUSTER_OK) {
        rc = crew_run(run, &hand);
        if (rc != MUSTER_OK)
            explain_run(run, hand, rc);
    }
    muster_mem_free(mem, run);
    return rc;
}

/* --- Calls of replicas --- */

/** One replica brings this. */
struct part {
    struct muster_replica *replica;
    /* all_reduce, assign */
    const struct muster_tensor *tensors;
    size_t count;
    enum muster_reduction reduction;
    const struct muster_tensor *variable;
    enum muster_aggregation aggregation;
    bool is_added;
    /* gather */
    const struct muster_shaped_tensor *value;
    int32_t axis;
    struct muster_shaped_tensor *ret_whole;
    /* sum_slices */
    const struct muster_slices *slices;
    const struct muster_slices_options *options;
    struct muster_slices_sum *ret_sum;
};

static enum muster_rc meet_others(struct muster_replica *replica, const char *what,
                                  struct part *part, muster_crew_act_fn *act)
{
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;

    part->replica = replica;
    rc =
        muster_crew_meet(replica->crew, replica->local, what, part, act, replica->strategy, &error);
    if (rc != MUSTER_OK)
        replica->error = error.rc != MUSTER_OK ? error : *muster_strategy_error(replica->strategy);
    return rc;
}

/* Local replica `i` and the first one differ in something that must be equal. */
static enum muster_rc refuse_part(struct muster_strategy *strategy, const char *what, uint32_t i)
{
    return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                            "%s: replicas 0 and %" PRIu32
                            " of this member differ in the number of tensors, the reduction, the "
                            "axis or the options",
                            what, i);
}

static enum muster_rc act_all_reduce(void *data, void *const *brought)
{
    struct muster_strategy *strategy = data;
    const struct part *first = brought[0];
    struct muster_mem *mem = strategy->env->mem;
    struct muster_tensor *tensors;
    enum muster_rc rc;

    tensors =
        muster_mem_alloc_zero(mem, strategy->replica_count * (first->count + 1), sizeof(*tensors));
    if (tensors == NULL)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                "all_reduce: out of memory");
    rc = MUSTER_OK;
    for (uint32_t i = 0; rc == MUSTER_OK && i < strategy->replica_count; i++) {
        const struct part *part = brought[i];

        if (part->count != first->count || part->reduction != first->reduction)
            rc = refuse_part(strategy, "all_reduce", i);
        else if (part->count > 0)
            memcpy(tensors + i * part->count, part->tensors, part->count * sizeof(*tensors));
    }
    if (rc == MUSTER_OK)
        rc = muster_replicas_all_reduce(strategy, tensors, first->count, first->reduction);
    muster_mem_free(mem, tensors);
    return rc;
}

enum muster_rc muster_replica_all_reduce(struct muster_replica *replica,
                                         const struct muster_tensor *tensors, size_t count,
                                         enum muster_reduction reduction)
{
    struct part part = {.tensors = tensors, .count = count, .reduction = reduction};

    return meet_others(replica, "all_reduce", &part, act_all_reduce);
}

static uint64_t bytes_of_shaped(const struct muster_shaped_tensor *shaped)
{
    uint64_t count = muster_dtype_bytes(shaped->dtype);

    for (uint32_t i = 0; i < shaped->dimension_count; i++)
        count *= shaped->dimensions[i];
    return count;
}

/* A copy for each replica but the first, who is given the original. */
static enum muster_rc share_whole(struct muster_strategy *strategy, void *const *brought,
                                  const struct muster_shaped_tensor *whole)
{
    struct muster_mem *mem = strategy->env->mem;
    size_t bytes = (size_t)bytes_of_shaped(whole);
    uint32_t i;

    for (i = 0; i < strategy->replica_count; i++) {
        const struct part *part = brought[i];
        void *copy = i == 0 ? whole->data : muster_mem_alloc(mem, bytes);

        if (copy == NULL)
            break;
        if (i > 0 && bytes > 0)
            memcpy(copy, whole->data, bytes);
        *part->ret_whole = *whole;
        part->ret_whole->data = copy;
    }
    if (i == strategy->replica_count)
        return MUSTER_OK;
    while (i-- > 0) {
        const struct part *part = brought[i];

        muster_replicas_free(strategy, part->ret_whole);
    }
    return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, "gather: out of memory");
}

static enum muster_rc act_gather(void *data, void *const *brought)
{
    struct muster_strategy *strategy = data;
    const struct part *first = brought[0];
    struct muster_shaped_tensor values[MUSTER_REPLICAS_MAX], whole;
    enum muster_rc rc;

    for (uint32_t i = 0; i < strategy->replica_count; i++) {
        const struct part *part = brought[i];

        if (part->axis != first->axis)
            return refuse_part(strategy, "gather", i);
        values[i] = *part->value;
    }
    rc = muster_replicas_gather(strategy, values, first->axis, &whole);
    return rc == MUSTER_OK ? share_whole(strategy, brought, &whole) : rc;
}

enum muster_rc muster_replica_gather(struct muster_replica *replica,
                                     const struct muster_shaped_tensor *value, int32_t axis,
                                     struct muster_shaped_tensor *ret_whole)
{
    struct part part = {.value = value, .axis = axis, .ret_whole = ret_whole};

    return meet_others(replica, "gather", &part, act_gather);
}

static bool is_asked_alike(const struct part *a, const struct part *b)
{
    static const struct muster_slices_options defaults;
    const struct muster_slices_options *one = a->options != NULL ? a->options : &defaults;
    const struct muster_slices_options *other = b->options != NULL ? b->options : &defaults;

    return a->reduction == b->reduction && one->row_count == other->row_count &&
           one->dense_percent == other->dense_percent &&
           one->is_concatenated == other->is_concatenated;
}

static enum muster_rc share_sum(struct muster_strategy *strategy, void *const *brought,
                                const struct muster_slices_sum *sum)
{
    uint32_t i;

    for (i = 0; i < strategy->replica_count; i++) {
        const struct part *part = brought[i];

        if (i == 0)
            *part->ret_sum = *sum;
        else if (muster_slices_sum_copy(sum, part->ret_sum) != MUSTER_OK)
            break;
    }
    if (i == strategy->replica_count)
        return MUSTER_OK;
    while (i-- > 0) {
        const struct part *part = brought[i];

        muster_slices_sum_free(part->ret_sum);
    }
    return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                            "sum_slices: out of memory");
}

static enum muster_rc act_sum_slices(void *data, void *const *brought)
{
    struct muster_strategy *strategy = data;
    const struct part *first = brought[0];
    struct muster_slices slices[MUSTER_REPLICAS_MAX];
    struct muster_slices_sum sum;
    enum muster_rc rc;

    for (uint32_t i = 0; i < strategy->replica_count; i++) {
        const struct part *part = brought[i];

        if (!is_asked_alike(part, first))
            return refuse_part(strategy, "sum_slices", i);
        slices[i] = *part->slices;
    }
    rc = muster_replicas_sum_slices(strategy, slices, first->reduction, first->options, &sum);
    return rc == MUSTER_OK ? share_sum(strategy, brought, &sum) : rc;
}

enum muster_rc muster_replica_sum_slices(struct muster_replica *replica,
                                         const struct muster_slices *slices,
                                         enum muster_reduction reduction,
                                         const struct muster_slices_options *options,
                                         struct muster_slices_sum *ret_sum)
{
    struct part part = {
        .slices = slices, .reduction = reduction, .options = options, .ret_sum = ret_sum};

    return meet_others(replica, "sum_slices", &part, act_sum_slices);
}

static enum muster_rc act_assign(void *data, void *const *brought)
{
    struct muster_strategy *strategy = data;
    const struct part *first = brought[0];
    struct muster_tensor values[MUSTER_REPLICAS_MAX];

    for (uint32_t i = 0; i < strategy->replica_count; i++) {
        const struct part *part = brought[i];

        if (part->aggregation != first->aggregation || part->is_added != first->is_added ||
            part->variable->data != first->variable->data)
            return refuse_part(strategy, "assign", i);
        values[i] = *part->tensors;
    }
    return muster_replicas_assign(strategy, first->variable, values, first->aggregation,
                                  first->is_added);
}

enum muster_rc muster_replica_assign(struct muster_replica *replica,
                                     const struct muster_tensor *variable,
                                     const struct muster_tensor *value,
                                     enum muster_aggregation aggregation, bool is_added)
{
    struct part part = {
        .tensors = value, .variable = variable, .aggregation = aggregation, .is_added = is_added};

    return meet_others(replica, "assign", &part, act_assign);
}
