/* Copies of replicas' values. Each device makes its own, all at once; the host waits for them at the end. */
#include "training/replicas_memory.h"

#include <string.h>

#include "training/replicas.h"
#include "training/replicas/shape.h"

#define ALIGNMENT 64u

static uint64_t align_bytes(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* --- Rooms --- */

static void room_unpin(struct muster_replicas_room *room)
{
    if (room->pinned_by != NULL)
        muster_device_unpin(room->pinned_by, room->tensor.data);
    room->pinned_by = NULL;
    room->is_pin_tried = false;
}

enum muster_rc muster_replicas_reserve(struct muster_strategy *strategy,
                                       enum muster_replicas_room_of which, uint64_t bytes,
                                       void **ret_memory)
{
    struct muster_replicas_room *room = &strategy->replica_rooms[which];
    enum muster_rc rc = MUSTER_OK;

    if (room->tensor.data == NULL || room->tensor.count < bytes) {
        room_unpin(room);
        muster_strategy_tensor_free(strategy, &room->tensor);
        room->tensor = (struct muster_tensor){.data = NULL};
        rc = muster_strategy_tensor_new(strategy, MUSTER_U8, bytes > 0 ? bytes : 1, &room->tensor);
    }
    if (rc == MUSTER_OK)
        *ret_memory = room->tensor.data;
    return rc;
}

/* Memory that cannot be pinned is copied all the same, only slower. */
void muster_replicas_pin(struct muster_strategy *strategy, enum muster_replicas_room_of which)
{
    struct muster_replicas_room *room = &strategy->replica_rooms[which];

    if (room->is_pin_tried || strategy->memory_count == 0)
        return;
    room->is_pin_tried = true;
    if (muster_device_pin(strategy->memories[0].memory, room->tensor.data,
                          (size_t)room->tensor.count))
        room->pinned_by = strategy->memories[0].memory;
}

void muster_replicas_memory_free(struct muster_strategy *strategy)
{
    for (int i = 0; i < MUSTER_REPLICAS_ROOM_COUNT; i++) {
        struct muster_replicas_room *room = &strategy->replica_rooms[i];

        if (room->pinned_by != NULL && muster_strategy_memory_hangs(strategy)) {
            muster_strategy_memory_abandon(strategy, &room->tensor);
            room->pinned_by = NULL;
            continue;
        }
        room_unpin(room);
        muster_tensor_free(strategy->env, &strategy->replica_rooms[i].tensor);
    }
}

/* --- Copies --- */

bool muster_replicas_are_far(const struct muster_replicas_copy *copies, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (copies[i].memory != NULL)
            return true;
    return false;
}

enum muster_rc muster_replicas_find(struct muster_strategy *strategy, const char *name,
                                    struct muster_replicas_copy *copies, size_t count)
{
    struct muster_device_look look = muster_device_look_of(strategy->env);
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < count && rc == MUSTER_OK; i++) {
        int gpu = copies[i].bytes > 0 ? muster_device_look_at(&look, copies[i].data) : -1;

        copies[i].memory = NULL;
        if (gpu >= 0)
            rc = muster_strategy_memory_open(strategy, name, gpu, &copies[i].memory);
    }
    if (rc == MUSTER_OK && strategy->replica_count > 1 &&
        strategy->communication.implementation == MUSTER_COMMUNICATION_NCCL &&
        muster_replicas_are_far(copies, count))
        rc = muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                              "%s: the members have agreed on communication NCCL, which has one "
                              "device in each process: use AUTO or RING, or one replica",
                              name);
    return rc;
}

/** Devices of this member, from first to last - 1. */
struct device_range {
    uint32_t first, last;
};

/* The replica's own; all where the replica is not known, or has none on this GPU. */
static struct device_range find_devices(const struct muster_strategy *strategy,
                                        const struct muster_replicas_copy *copy)
{
    uint32_t logical = strategy->logical_device_count;
    struct device_range all = {0, strategy->devices.count};
    struct device_range own = {copy->replica * logical, (copy->replica + 1) * logical};

    if (copy->replica >= strategy->replica_count || own.last > all.last)
        return all;
    for (uint32_t i = own.first; i < own.last; i++)
        if (strategy->devices.list[i].gpu == muster_device_memory_ordinal(copy->memory))
            return own;
    return all;
}

/* The work on the streams of the value's devices comes first. */
static enum muster_rc follow_streams(const struct muster_strategy *strategy,
                                     const struct muster_replicas_copy *copy,
                                     struct muster_device_batch *batch)
{
    struct device_range devices = find_devices(strategy, copy);
    void *stream = muster_strategy_stream_of(strategy, copy->memory);
    bool has_followed = false;
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = devices.first; i < devices.last && rc == MUSTER_OK; i++) {
        if (strategy->devices.list[i].gpu != muster_device_memory_ordinal(copy->memory) ||
            (has_followed && strategy->devices.list[i].stream == stream))
            continue;
        stream = strategy->devices.list[i].stream;
        rc = muster_device_batch_follow(batch, stream);
        has_followed = true;
    }
    return has_followed ? rc : muster_device_batch_follow(batch, stream);
}

static enum muster_rc copy_start(struct muster_strategy *strategy, const char *name,
                                 const struct muster_replicas_copy *copy, bool is_out)
{
    const struct muster_device_copy bytes = {copy->host, copy->data, (size_t)copy->bytes};
    struct muster_device_batch *batch = NULL;
    enum muster_rc rc = muster_strategy_memory_batch(strategy, name, copy->memory, &batch);

    if (rc == MUSTER_OK)
        rc = follow_streams(strategy, copy, batch);
    return rc == MUSTER_OK ? muster_device_batch_start(batch, &bytes, 1, is_out) : rc;
}

enum muster_rc muster_replicas_start_copies(struct muster_strategy *strategy, const char *name,
                                            const struct muster_replicas_copy *copies, size_t count,
                                            bool is_out)
{
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < count && rc == MUSTER_OK; i++)
        if (copies[i].memory != NULL && copies[i].bytes > 0 &&
            (is_out ? copies[i].is_read : copies[i].is_written))
            rc = copy_start(strategy, name, &copies[i], is_out);
    return rc;
}

/* The others go on without this member. */
static enum muster_rc fail_devices(struct muster_strategy *strategy, const char *name)
{
    enum muster_rc rc = muster_strategy_enter(strategy, name);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_strategy_memory_check(strategy);
    muster_strategy_leave(strategy);
    return rc;
}

enum muster_rc muster_replicas_wait_copies(struct muster_strategy *strategy, const char *name,
                                           enum muster_rc rc)
{
    for (size_t i = 0; i < strategy->memory_count; i++) {
        struct muster_device_batch *batch = &strategy->memories[i].batch;

        if (batch->memory != NULL && muster_device_batch_wait(batch) != MUSTER_OK)
            rc = MUSTER_UNAVAILABLE;
    }
    return muster_strategy_memory_has_failed(strategy) ? fail_devices(strategy, name) : rc;
}

/* --- Whole values --- */

static enum muster_rc place_copies(struct muster_strategy *strategy,
                                   struct muster_replicas_copy *copies, size_t count)
{
    uint64_t bytes = 0;
    void *memory = NULL;
    uint8_t *at;
    enum muster_rc rc;

    for (size_t i = 0; i < count; i++)
        bytes += copies[i].memory != NULL ? align_bytes(copies[i].bytes) : 0;
    rc = muster_replicas_reserve(strategy, MUSTER_REPLICAS_ROOM_VALUES, bytes, &memory);
    if (rc != MUSTER_OK)
        return rc;
    muster_replicas_pin(strategy, MUSTER_REPLICAS_ROOM_VALUES);
    at = memory;
    for (size_t i = 0; i < count; i++) {
        if (copies[i].memory == NULL || copies[i].host != NULL)
            continue;
        copies[i].host = at;
        at += align_bytes(copies[i].bytes);
    }
    return MUSTER_OK;
}

enum muster_rc muster_replicas_bring(struct muster_strategy *strategy, const char *name,
                                     struct muster_replicas_copy *copies, size_t count)
{
    enum muster_rc rc = muster_replicas_find(strategy, name, copies, count);

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < count; i++)
        if (copies[i].memory == NULL && copies[i].host == NULL)
            copies[i].host = copies[i].data;
    if (!muster_replicas_are_far(copies, count))
        return MUSTER_OK;
    rc = place_copies(strategy, copies, count);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_replicas_start_copies(strategy, name, copies, count, true);
    return muster_replicas_wait_copies(strategy, name, rc);
}

enum muster_rc muster_replicas_give(struct muster_strategy *strategy, const char *name,
                                    const struct muster_replicas_copy *copies, size_t count)
{
    enum muster_rc rc = muster_replicas_start_copies(strategy, name, copies, count, false);

    for (size_t i = 0; i < count; i++)
        if (copies[i].memory == NULL && copies[i].is_written && copies[i].bytes > 0 &&
            copies[i].data != copies[i].host)
            memcpy(copies[i].data, copies[i].host, (size_t)copies[i].bytes);
    return muster_replicas_are_far(copies, count) ? muster_replicas_wait_copies(strategy, name, rc)
                                                  : rc;
}

enum muster_rc muster_replicas_spread(struct muster_strategy *strategy, const char *name,
                                      const struct muster_tensor *tensor,
                                      const struct muster_tensor *others, uint32_t count)
{
    struct muster_mem *mem = strategy->env->mem;
    struct muster_replicas_copy *copies = muster_mem_alloc_zero(mem, count + 1, sizeof(*copies));
    uint64_t bytes = tensor->count * muster_dtype_bytes(tensor->dtype);
    enum muster_rc rc;

    if (copies == NULL)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, "%s: out of memory",
                                name);
    copies[0] = (struct muster_replicas_copy){
        .data = tensor->data, .bytes = bytes, .replica = MUSTER_REPLICA_UNKNOWN, .is_read = true};
    rc = muster_replicas_bring(strategy, name, copies, 1);
    for (uint32_t i = 1; i <= count; i++)
        copies[i] = (struct muster_replicas_copy){.data = others[i - 1].data,
                                                  .host = copies[0].host,
                                                  .bytes = bytes,
                                                  .replica = MUSTER_REPLICA_UNKNOWN,
                                                  .is_written = others[i - 1].data != tensor->data};
    if (rc == MUSTER_OK)
        rc = muster_replicas_find(strategy, name, copies + 1, count);
    if (rc == MUSTER_OK)
        rc = muster_replicas_give(strategy, name, copies + 1, count);
    muster_mem_free(mem, copies);
    return rc;
}

enum muster_rc muster_replicas_bring_values(struct muster_strategy *strategy, const char *name,
                                            const struct muster_shaped_tensor *values,
                                            struct muster_shaped_tensor *ret_values)
{
    struct muster_replicas_copy copies[MUSTER_REPLICAS_MAX];
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < strategy->replica_count && rc == MUSTER_OK; i++) {
        uint64_t count = 0;

        rc = muster_shape_count(&values[i], &count, &strategy->error);
        copies[i] = (struct muster_replicas_copy){
            .data = values[i].data,
            .bytes = count * muster_dtype_bytes(values[i].dtype),
            .replica = i,
            .is_read = true,
        };
    }
    if (rc == MUSTER_OK)
        rc = muster_replicas_bring(strategy, name, copies, strategy->replica_count);
    for (uint32_t i = 0; i < strategy->replica_count && rc == MUSTER_OK; i++) {
        ret_values[i] = values[i];
        ret_values[i].data = copies[i].host;
    }
    return rc;
}
