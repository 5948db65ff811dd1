/* The devices of this member: those that the program or MUSTER_DEVICES name, or in local mode all. */
#include "training/devices.h"

#include <inttypes.h>
#include <string.h>

#include "training/device_list.h"
#include "training/strategy_memory.h"
#include "training/variables.h"

/* --- Choice --- */

static void take_gpus(struct muster_strategy *strategy, const struct muster_device_list *list)
{
    struct muster_strategy_devices *devices = &strategy->devices;

    for (uint32_t i = 0; i < list->count; i++)
        devices->list[i] = (struct muster_strategy_device){.gpu = list->gpus[i]};
    devices->count = list->count;
}

static enum muster_rc list_fill(const struct muster_strategy *strategy,
                                struct muster_device_list *list, struct muster_error *ret_error)
{
    int count = 0;
    enum muster_rc rc = muster_device_count(strategy->env, &count, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    list->count = count < (int)MUSTER_REPLICAS_MAX ? (uint32_t)count : MUSTER_REPLICAS_MAX;
    for (uint32_t i = 0; i < list->count; i++)
        list->gpus[i] = (int)i;
    return MUSTER_OK;
}

/* As TensorFlow's local mode: all devices, or one CPU. */
static void choose_default(struct muster_strategy *strategy, uint32_t *replica_count)
{
    uint32_t logical = strategy->logical_device_count;
    struct muster_device_list list = {.is_all = true};
    struct muster_error why = {.rc = MUSTER_OK};

    if (list_fill(strategy, &list, &why) != MUSTER_OK) {
        MUSTER_LOG(strategy->env, DEBUG, "replicas_on_cpu", "reason", why.text);
        return;
    }
    if (list.count % logical != 0)
        return;
    take_gpus(strategy, &list);
    *replica_count = list.count / logical;
}

static enum muster_rc check_count(const struct muster_strategy *strategy, const char *name,
                                  const struct muster_device_list *list, uint32_t replica_count,
                                  struct muster_error *ret_error)
{
    uint32_t logical = strategy->logical_device_count;

    if (list->count % logical != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: %" PRIu32 " devices cannot be divided among replicas of "
                                "%" PRIu32 " logical devices",
                                name, list->count, logical);
    if (replica_count != 0 && replica_count != list->count / logical)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: %" PRIu32 " devices are for %" PRIu32 " replicas of %" PRIu32
                                " logical devices, and replica_count "
                                "(MUSTER_REPLICAS) is %" PRIu32 ": leave one of both out",
                                name, list->count, list->count / logical, logical, replica_count);
    if (list->count > 1 && strategy->communication.implementation == MUSTER_COMMUNICATION_NCCL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: communication NCCL has one device in each process, got "
                                "%" PRIu32 ": use AUTO or RING, or a process for each device",
                                name, list->count);
    return MUSTER_OK;
}

/* An empty text may be a mistake, such as a variable that a script has not set. */
static const char *empty_list(const char *name)
{
    return strcmp(name, MUSTER_DEVICES_VARIABLE) == 0
               ? "MUSTER_DEVICES is empty, so that no GPU is used; write cpu, or leave it out"
               : "devices is empty, so that no GPU is used; write cpu, or leave it out";
}

enum muster_rc muster_devices_choose(struct muster_strategy *strategy,
                                     const struct muster_strategy_options *options,
                                     uint32_t *replica_count, struct muster_error *ret_error)
{
    const char *name = options->devices != NULL ? "devices" : MUSTER_DEVICES_VARIABLE;
    const char *text =
        options->devices != NULL ? options->devices : muster_device_list_variable(strategy->env);
    struct muster_device_list list = {.count = 0};
    struct muster_error why = {.rc = MUSTER_OK};
    enum muster_rc rc;

    if (text == NULL) {
        if (*replica_count == 0 && strategy->place.is_local &&
            strategy->communication.implementation != MUSTER_COMMUNICATION_NCCL)
            choose_default(strategy, replica_count);
        return MUSTER_OK;
    }
    rc = muster_device_list_parse(text, name, &list, ret_error);
    if (rc == MUSTER_OK && list.is_all && list_fill(strategy, &list, &why) != MUSTER_OK)
        rc = muster_error_set(ret_error, why.rc, "%s all: %s", name, why.text);
    if (rc == MUSTER_OK && text[0] == '\0')
        MUSTER_LOG(strategy->env, WARN, "replicas_on_cpu", "reason", empty_list(name));
    if (rc != MUSTER_OK || list.count == 0)
        return rc;
    rc = check_count(strategy, name, &list, *replica_count, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    take_gpus(strategy, &list);
    strategy->devices.is_asked_for = true;
    *replica_count = list.count / strategy->logical_device_count;
    return MUSTER_OK;
}

enum muster_rc muster_devices_open(struct muster_strategy *strategy, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    if (strategy->device_timeout_ns == 0)
        rc = muster_training_read_device_timeout(strategy->env, &strategy->device_timeout_ns,
                                                 ret_error);
    if (rc != MUSTER_OK)
        return rc;
    for (uint32_t i = 0; i < strategy->devices.count && rc == MUSTER_OK; i++)
        if (strategy->devices.is_asked_for)
            rc = muster_strategy_memory_open(strategy, "devices", strategy->devices.list[i].gpu,
                                             NULL);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "%s", strategy->error.text);
}

/* --- For the program --- */

int muster_replicas_device_gpu(const struct muster_strategy *strategy, uint32_t device)
{
    return device < strategy->devices.count ? strategy->devices.list[device].gpu : MUSTER_NO_GPU;
}

enum muster_rc muster_replicas_set_stream(struct muster_strategy *strategy, uint32_t device,
                                          void *stream)
{
    enum muster_rc rc = muster_strategy_check(strategy, "set_stream");

    if (rc != MUSTER_OK)
        return rc;
    if (device >= strategy->devices.count)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "set_stream: this member has %" PRIu32 " GPUs, got device %" PRIu32,
                                strategy->devices.count, device);
    strategy->devices.list[device].stream = stream;
    if (device == 0)
        strategy->stream = stream;
    return MUSTER_OK;
}
