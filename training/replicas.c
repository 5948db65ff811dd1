/* The replicas of a member: how many, their numbers and devices, and memory for their values. */
#include <muster/replicas.h>

#include <stdio.h>
#include "training/devices.h"
#include "training/replicas.h"
#include "training/strategy_call.h"

enum muster_rc muster_replicas_configure(struct muster_strategy *strategy,
                                         const struct muster_strategy_options *options,
                                         uint32_t *replica_count, struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (options->replica_count > 0)
        *replica_count = options->replica_count;
    if (*replica_count > MUSTER_REPLICAS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "replica_count must be at most %u, got %u", MUSTER_REPLICAS_MAX,
                                *replica_count);
    if (options->logical_device_count > MUSTER_LOGICAL_DEVICES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "logical_device_count must be at most %u, got %u",
                                MUSTER_LOGICAL_DEVICES_MAX, options->logical_device_count);
    strategy->logical_device_count =
        options->logical_device_count > 0 ? options->logical_device_count : 1;
    rc = muster_devices_choose(strategy, options, replica_count, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (*replica_count == 0)
        *replica_count = 1;
    strategy->replica_count = *replica_count;
    return MUSTER_OK;
}

uint32_t muster_replicas_local(const struct muster_strategy *strategy)
{
    return strategy->replica_count;
}

uint32_t muster_replicas_first(const struct muster_strategy *strategy)
{
    return strategy->view != NULL ? strategy->first_replica
                                  : strategy->place.id_in_cluster * strategy->replica_count;
}

/* TensorFlow's local mode has a job of its own; a cluster of one task keeps its job. */
void muster_replicas_device_name(const struct muster_strategy *strategy, uint32_t device,
                                 char ret_text[MUSTER_DEVICE_TEXT_BYTES])
{
    const struct muster_replica_place *place = &strategy->place;
    int gpu = muster_replicas_device_gpu(strategy, device);

    snprintf(ret_text, MUSTER_DEVICE_TEXT_BYTES, "/job:%s/replica:0/task:%u/device:%s:%u",
             place->is_local ? "localhost" : place->task_type, place->task_index,
             gpu != MUSTER_NO_GPU ? "GPU" : "CPU", gpu != MUSTER_NO_GPU ? (unsigned)gpu : device);
}

static enum muster_rc start_parts(const struct muster_strategy_call *call, size_t i,
                                  struct muster_op *op, struct muster_group *group)
{
    const struct muster_parts output = {.data = call->tensors[1].data,
                                        .counts = call->part_counts,
                                        .part_count = call->part_count,
                                        .dtype = call->tensors[1].dtype};

    (void)i;
    return muster_all_gather_uneven_start_in(op, group, call->view, &call->tensors[0], &output,
                                             muster_strategy_on_op_done);
}

enum muster_rc muster_replicas_gather_parts(struct muster_strategy *strategy, const char *name,
                                            const struct muster_replicas_parts *parts)
{
    const struct muster_tensor tensors[] = {*parts->input, parts->output};
    struct muster_strategy_call call = {.name = name,
                                        .tensors = tensors,
                                        .count = 1,
                                        .view = parts->view,
                                        .part_counts = parts->counts,
                                        .start = start_parts};

    for (uint32_t rank = 0; rank < parts->view->member_count; rank++)
        call.part_count += muster_strategy_takes_part(strategy, NULL, &parts->view->members[rank]);
    return muster_strategy_run(strategy, &call);
}

static enum muster_rc start_equal(const struct muster_strategy_call *call, size_t i,
                                  struct muster_op *op, struct muster_group *group)
{
    (void)i;
    return muster_all_gather_start_in(op, group, call->view, &call->tensors[0], &call->tensors[1],
                                      muster_strategy_on_op_done);
}

enum muster_rc muster_replicas_gather_equal(struct muster_strategy *strategy, const char *name,
                                            const struct muster_view *view,
                                            const struct muster_tensor *input,
                                            const struct muster_tensor *output)
{
    const struct muster_tensor tensors[] = {*input, *output};

    return muster_strategy_run(
        strategy,
        &(struct muster_strategy_call){
            .name = name, .tensors = tensors, .count = 1, .view = view, .start = start_equal});
}
