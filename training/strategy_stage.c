/* Stages. Their memory is kept for the next call, so that a training step takes none from the system: it is mapped by
 * the other processes of the host, which makes operations several times as fast. */
#include "training/strategy_stage.h"

#include "collective/gpu/device_transfer.h"
#include "training/strategy_memory.h"

#define ALIGNMENT 64u

struct muster_stage {
    struct muster_strategy *strategy;
    struct muster_strategy_room *room;
    struct muster_device_memory *memory; /* of all its tensors */
    struct muster_device_transfer transfer;
    bool is_copying;
    muster_stage_fn *on_copied; /* of the owner, or NULL */
    void *owner;
    struct muster_device_copy *copies;   /* room for as many as tensors */
    struct muster_tensor *device, *host; /* of the call, side by side */
    size_t count;
    bool is_pair;      /* an input and an output; else all are both … */
    bool is_message;   /* … but for messages, */
    size_t sent_count; /* which are so many to send, and the others to receive */
};

static bool is_read(const struct muster_stage *stage, size_t i)
{
    return stage->is_message ? i < stage->sent_count : !stage->is_pair || i == 0;
}

static bool is_written(const struct muster_stage *stage, size_t i)
{
    return stage->is_message ? i >= stage->sent_count : !stage->is_pair || i == 1;
}

static size_t count_of(const struct muster_strategy_call *call)
{
    return call->view != NULL ? 2 : call->count;
}

/* --- Before --- */

static enum muster_rc refuse_devices(struct muster_strategy *strategy, const char *name,
                                     const struct muster_device_memory *a,
                                     const struct muster_device_memory *b)
{
    return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                            "%s: its tensors are on the devices %d and %d: use a call for each, or "
                            "for replicas those of muster/replicas.h",
                            name, muster_device_memory_ordinal(a), muster_device_memory_ordinal(b));
}

/* The one device of all tensors. */
static enum muster_rc memory_of(struct muster_strategy *strategy,
                                const struct muster_strategy_call *call,
                                struct muster_device_memory **ret_memory)
{
    struct muster_device_memory *found = NULL, *memory = NULL;
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < count_of(call) && rc == MUSTER_OK; i++) {
        if (call->tensors[i].data == NULL)
            continue;
        rc = muster_strategy_memory_open_of(strategy, call->name, call->tensors[i].data, &memory);
        if (rc == MUSTER_OK && found != NULL && memory != found)
            rc = refuse_devices(strategy, call->name, found, memory);
        found = memory;
    }
    if (rc == MUSTER_OK)
        *ret_memory = found;
    return rc;
}

enum muster_rc muster_stage_prepare(struct muster_strategy *strategy,
                                    const struct muster_strategy_call *call)
{
    struct muster_device_memory *memory = NULL;
    enum muster_rc rc = memory_of(strategy, call, &memory);

    if (rc == MUSTER_OK && call->request == NULL)
        muster_strategy_memory_settle(strategy, call->name);
    return rc;
}

/* --- Memory --- */

static struct muster_strategy_room *room_find(struct muster_strategy *strategy, uint64_t bytes)
{
    struct muster_strategy_room *free_room = NULL;

    for (size_t i = 0; i < MUSTER_STRATEGY_ROOMS; i++) {
        struct muster_strategy_room *room = &strategy->rooms[i];

        if (room->is_used)
            continue;
        if (room->tensor.count >= bytes)
            return room;
        if (free_room == NULL || room->tensor.count < free_room->tensor.count)
            free_room = room;
    }
    return free_room;
}

static void room_empty(struct muster_strategy *strategy, struct muster_strategy_room *room)
{
    if (room->pinned_by != NULL && muster_strategy_memory_hangs(strategy)) {
        muster_strategy_memory_abandon(strategy, &room->tensor);
        room->pinned_by = NULL;
        return;
    }
    if (room->pinned_by != NULL)
        muster_device_unpin(room->pinned_by, room->tensor.data);
    room->pinned_by = NULL;
    muster_tensor_free(strategy->env, &room->tensor);
    room->tensor = (struct muster_tensor){.data = NULL};
}

/* All kept ones may be in use, by requests: another one is made, and given back at the end of the call. */
static enum muster_rc room_take(struct muster_strategy *strategy, uint64_t bytes,
                                struct muster_strategy_room **ret_room)
{
    struct muster_strategy_room *room = room_find(strategy, bytes);
    enum muster_rc rc = MUSTER_OK;

    if (room == NULL) {
        room = muster_mem_alloc_zero(strategy->env->mem, 1, sizeof(*room));
        if (room == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        room->is_extra = true;
    }
    if (room->tensor.count < bytes) {
        room_empty(strategy, room);
        rc = muster_tensor_new(strategy->env, MUSTER_U8, bytes, &room->tensor);
    }
    if (rc != MUSTER_OK && room->is_extra)
        muster_mem_free(strategy->env->mem, room);
    if (rc != MUSTER_OK)
        return rc;
    room->is_used = true;
    *ret_room = room;
    return MUSTER_OK;
}

static void room_give_back(struct muster_strategy *strategy, struct muster_strategy_room *room)
{
    room->is_used = false;
    if (!room->is_extra)
        return;
    room_empty(strategy, room);
    muster_mem_free(strategy->env->mem, room);
}

void muster_stage_memory_free(struct muster_strategy *strategy)
{
    for (size_t i = 0; i < MUSTER_STRATEGY_ROOMS; i++) {
        MUSTER_ASSERT(!strategy->rooms[i].is_used);
        room_empty(strategy, &strategy->rooms[i]);
    }
}

/* --- A stage --- */

static uint64_t align_bytes(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static enum muster_rc stage_new(struct muster_strategy *strategy,
                                const struct muster_strategy_call *call,
                                struct muster_stage **ret_stage)
{
    size_t count = count_of(call);
    struct muster_stage *stage = muster_mem_alloc_zero(
        strategy->env->mem, 1,
        sizeof(*stage) + count * (2 * sizeof(stage->host[0]) + sizeof(stage->copies[0])));

    if (stage == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    stage->strategy = strategy;
    stage->count = count;
    stage->is_pair = call->view != NULL;
    stage->is_message = call->is_message;
    stage->sent_count = call->to != MUSTER_SPLIT_NOBODY;
    stage->device = (struct muster_tensor *)(stage + 1);
    stage->host = stage->device + count;
    stage->copies = (struct muster_device_copy *)(stage->host + count);
    for (size_t i = 0; i < count; i++)
        stage->device[i] = stage->host[i] = call->tensors[i];
    *ret_stage = stage;
    return MUSTER_OK;
}

static enum muster_rc stage_place(struct muster_stage *stage)
{
    uint64_t bytes = 0;
    uint8_t *at;
    enum muster_rc rc;

    for (size_t i = 0; i < stage->count; i++)
        bytes += align_bytes(muster_strategy_bytes_of(&stage->device[i]));
    rc = room_take(stage->strategy, bytes > 0 ? bytes : ALIGNMENT, &stage->room);
    if (rc != MUSTER_OK)
        return rc;
    at = stage->room->tensor.data;
    for (size_t i = 0; i < stage->count; i++) {
        if (stage->device[i].data != NULL)
            stage->host[i].data = at;
        at += align_bytes(muster_strategy_bytes_of(&stage->device[i]));
    }
    return MUSTER_OK;
}

/* The copies of what is read, or of what is written. */
static size_t copies_list(const struct muster_stage *stage, bool is_out)
{
    size_t count = 0;

    for (size_t i = 0; i < stage->count; i++)
        if ((is_out ? is_read(stage, i) : is_written(stage, i)) && stage->device[i].data != NULL &&
            stage->device[i].count > 0)
            stage->copies[count++] = (struct muster_device_copy){
                .host = stage->host[i].data,
                .device = stage->device[i].data,
                .bytes = (size_t)muster_strategy_bytes_of(&stage->device[i])};
    return count;
}

static void on_transferred(struct muster_device_transfer *transfer, enum muster_rc rc)
{
    struct muster_stage *stage = transfer->data;

    stage->is_copying = false;
    if (rc != MUSTER_OK)
        rc = muster_strategy_memory_check(stage->strategy);
    if (stage->on_copied != NULL)
        stage->on_copied(stage->owner, rc);
}

static enum muster_rc transfer_start(struct muster_stage *stage, bool is_out)
{
    enum muster_rc rc;

    stage->transfer.data = stage;
    rc = muster_device_transfer_start(
        &stage->transfer, stage->memory, stage->copies, copies_list(stage, is_out), is_out,
        muster_strategy_stream_of(stage->strategy, stage->memory), on_transferred);
    stage->is_copying = rc == MUSTER_OK;
    return rc;
}

/* Pinned memory is copied while the program computes. It is pinned once; what is as large as memory that could not be
 * pinned is not tried again, as each refusal is logged. */
static bool room_pin(struct muster_strategy *strategy, struct muster_device_memory *memory,
                     struct muster_strategy_room *room)
{
    uint64_t bytes = room->tensor.count;

    if (room->pinned_by != NULL) /* for all devices */
        return true;
    if (strategy->unpinned_bytes != 0 && bytes >= strategy->unpinned_bytes)
        return false;
    if (muster_device_pin(memory, room->tensor.data, (size_t)bytes))
        room->pinned_by = memory;
    else
        strategy->unpinned_bytes = bytes;
    return room->pinned_by != NULL;
}

/* A request goes on beside the stream. Where that cannot be, the stream is waited for, as by a blocking call. */
static bool has_begun_to_fill(struct muster_stage *stage, const char *name)
{
    struct muster_strategy *strategy = stage->strategy;

    if (room_pin(strategy, stage->memory, stage->room) && transfer_start(stage, true) == MUSTER_OK)
        return true;
    muster_strategy_await_stream(strategy, name, stage->memory);
    return false;
}

static enum muster_rc stage_fill(const struct muster_stage *stage)
{
    struct muster_strategy *strategy = stage->strategy;
    enum muster_rc rc = muster_strategy_memory_check(strategy);

    for (size_t i = 0; i < stage->count && rc == MUSTER_OK; i++)
        if (is_read(stage, i) && stage->device[i].data != NULL &&
            muster_far_memory_read(
                muster_device_memory_far(stage->memory), stage->host[i].data, stage->device[i].data,
                (size_t)muster_strategy_bytes_of(&stage->device[i])) != MUSTER_OK)
            rc = muster_strategy_memory_check(strategy);
    return rc;
}

enum muster_rc muster_stage_open(struct muster_strategy *strategy,
                                 const struct muster_strategy_call *call,
                                 struct muster_stage **ret_stage)
{
    struct muster_stage *stage = NULL;
    struct muster_device_memory *memory = NULL;
    enum muster_rc rc = memory_of(strategy, call, &memory);

    if (rc != MUSTER_OK)
        return rc;
    rc = stage_new(strategy, call, &stage);
    if (rc == MUSTER_OK) {
        stage->memory = memory;
        rc = stage_place(stage);
    }
    if (rc != MUSTER_OK)
        rc = muster_error_set(&strategy->error, rc,
                              "%s: no memory for copies of the tensors on the device", call->name);
    if (rc == MUSTER_OK && (call->request == NULL || !has_begun_to_fill(stage, call->name)))
        rc = stage_fill(stage);
    if (rc != MUSTER_OK) {
        muster_stage_close(stage);
        return rc;
    }
    *ret_stage = stage;
    return MUSTER_OK;
}

const struct muster_tensor *muster_stage_tensors(const struct muster_stage *stage)
{
    return stage->host;
}

bool muster_stage_is_copying(const struct muster_stage *stage)
{
    return stage->is_copying;
}

void muster_stage_set_owner(struct muster_stage *stage, muster_stage_fn *on_copied, void *data)
{
    stage->on_copied = on_copied;
    stage->owner = data;
}

bool muster_stage_start_write_back(struct muster_stage *stage)
{
    return stage->room->pinned_by != NULL && stage->on_copied != NULL &&
           transfer_start(stage, false) == MUSTER_OK;
}

enum muster_rc muster_stage_write_back(const struct muster_stage *stage)
{
    struct muster_strategy *strategy = stage->strategy;

    for (size_t i = 0; i < stage->count; i++)
        if (is_written(stage, i) && stage->device[i].data != NULL &&
            muster_far_memory_write(
                muster_device_memory_far(stage->memory), stage->device[i].data, stage->host[i].data,
                (size_t)muster_strategy_bytes_of(&stage->device[i])) != MUSTER_OK)
            return muster_strategy_memory_check(strategy);
    return MUSTER_OK;
}

static bool has_copied(void *data)
{
    const struct muster_stage *stage = data;

    return !stage->is_copying;
}

void muster_stage_close(struct muster_stage *stage)
{
    if (stage == NULL)
        return;
    stage->on_copied = NULL;
    if (stage->is_copying)
        muster_strategy_wait_until(stage->strategy, has_copied, stage);
    if (stage->room != NULL)
        room_give_back(stage->strategy, stage->room);
    muster_mem_free(stage->strategy->env->mem, stage);
}
