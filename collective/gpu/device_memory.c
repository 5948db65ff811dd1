/* Copies between a device's memory and the host's. Each goes through one of a few lanes, which have pinned memory and a
 * stream of their own, so that threads do not wait for each other: the loop's, and those of a checkpoint. */
#include "collective/gpu/device_memory_internal.h"

#include <sched.h>

#include "collective/gpu/device_fence.h"

#define PIECE_BYTES  ((size_t)1 << 20)
#define ZEROES_BYTES ((size_t)64 << 10)

/* --- Copies --- */

static struct muster_device_lane *lane_take(struct muster_device_memory *memory)
{
    for (unsigned i = 0;; i = (i + 1) % MUSTER_DEVICE_LANES) {
        struct muster_device_lane *lane = &memory->lanes[i];

        if (!atomic_flag_test_and_set_explicit(&lane->is_taken, memory_order_acquire))
            return lane;
        if (i + 1 == MUSTER_DEVICE_LANES)
            (void)sched_yield();
    }
}

static void lane_give_back(struct muster_device_lane *lane)
{
    atomic_flag_clear_explicit(&lane->is_taken, memory_order_release);
}

/* The memory keeps the error. */
static enum muster_rc piece_copy(struct muster_device_memory *memory,
                                 const struct muster_device_lane *lane, void *device, size_t bytes,
                                 bool is_out)
{
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc =
        is_out
            ? muster_cuda_copy_out(memory->cuda, lane->pinned, device, bytes, lane->stream, &error)
            : muster_cuda_copy_in(memory->cuda, device, lane->pinned, bytes, lane->stream, &error);

    return rc == MUSTER_OK ? muster_device_memory_wait(memory, lane->stream, "a copy")
                           : muster_device_memory_fail(memory, &error);
}

static enum muster_rc memory_copy(struct muster_device_memory *memory, uint8_t *host,
                                  uint8_t *device, size_t bytes, bool is_out)
{
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = MUSTER_OK;
    struct muster_device_lane *lane;
    void *before;

    if (muster_device_memory_has_failed(memory, &error))
        return MUSTER_UNAVAILABLE;
    lane = lane_take(memory);
    before = muster_cuda_enter(memory->cuda);
    for (size_t at = 0; at < bytes && rc == MUSTER_OK; at += PIECE_BYTES) {
        size_t count = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

        if (!is_out)
            memcpy(lane->pinned, host + at, count);
        rc = piece_copy(memory, lane, device + at, count, is_out);
        if (is_out && rc == MUSTER_OK)
            memcpy(host + at, lane->pinned, count);
    }
    muster_cuda_leave(memory->cuda, before);
    lane_give_back(lane);
    return rc;
}

static enum muster_rc memory_read(struct muster_far_memory *far, void *to, const void *from,
                                  size_t bytes)
{
    return memory_copy(MUSTER_CONTAINER_OF(far, struct muster_device_memory, far), to,
                       (uint8_t *)(uintptr_t)from, bytes, true);
}

static enum muster_rc memory_write(struct muster_far_memory *far, void *to, const void *from,
                                   size_t bytes)
{
    return memory_copy(MUSTER_CONTAINER_OF(far, struct muster_device_memory, far),
                       (uint8_t *)(uintptr_t)from, to, bytes, false);
}

struct muster_far_memory *muster_device_memory_far(struct muster_device_memory *memory)
{
    return memory != NULL ? &memory->far : NULL;
}

enum muster_rc muster_device_memory_order(struct muster_device_memory *memory, void *first,
                                          void *stream, struct muster_error *ret_error)
{
    struct muster_cuda_event *event = NULL;
    void *before = muster_cuda_enter(memory->cuda);
    enum muster_rc rc = muster_cuda_event_new(memory->cuda, &event, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_cuda_event_record(memory->cuda, event, first, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_cuda_stream_wait(memory->cuda, stream, event, ret_error);
    muster_cuda_event_free(memory->cuda, event);
    muster_cuda_leave(memory->cuda, before);
    return rc;
}

/* --- Memory of the program --- */

void *muster_device_memory_enter(const struct muster_device_memory *memory)
{
    return muster_cuda_enter(memory->cuda);
}

void muster_device_memory_leave(const struct muster_device_memory *memory, void *before)
{
    muster_cuda_leave(memory->cuda, before);
}

void muster_device_memory_free(struct muster_device_memory *memory, void *address)
{
    void *before;

    if (muster_device_memory_hangs(memory)) /* the call would wait for it */
        return;
    before = muster_cuda_enter(memory->cuda);
    muster_cuda_free(memory->cuda, address);
    muster_cuda_leave(memory->cuda, before);
}

static enum muster_rc memory_clear(struct muster_device_memory *memory, uint8_t *address,
                                   size_t bytes)
{
    static const uint8_t zeroes[ZEROES_BYTES];
    enum muster_rc rc = MUSTER_OK;

    for (size_t at = 0; at < bytes && rc == MUSTER_OK; at += ZEROES_BYTES)
        rc = memory_write(&memory->far, address + at, zeroes,
                          bytes - at < ZEROES_BYTES ? bytes - at : ZEROES_BYTES);
    return rc;
}

enum muster_rc muster_device_memory_new(struct muster_device_memory *memory, size_t bytes,
                                        void **ret_address, struct muster_error *ret_error)
{
    void *before = muster_cuda_enter(memory->cuda), *address = NULL;
    enum muster_rc rc = muster_cuda_alloc(memory->cuda, bytes > 0 ? bytes : 1, &address, ret_error);

    muster_cuda_leave(memory->cuda, before);
    if (rc == MUSTER_OK)
        rc = memory_clear(memory, address, bytes);
    if (rc == MUSTER_OK) {
        *ret_address = address;
        return MUSTER_OK;
    }
    (void)muster_device_memory_has_failed(memory, ret_error);
    muster_device_memory_free(memory, address);
    return rc;
}

/* --- Opening --- */

static const char *library_of(const struct muster_env *env)
{
    const char *value =
        env->vars != NULL ? muster_vars_get(env->vars, "MUSTER_CUDA_LIBRARY") : NULL;

    return value != NULL && value[0] != '\0' ? value : NULL;
}

static enum muster_rc lanes_open(struct muster_device_memory *memory, struct muster_error *error)
{
    enum muster_rc rc = MUSTER_OK;
    void *before = muster_cuda_enter(memory->cuda);

    for (unsigned i = 0; i < MUSTER_DEVICE_LANES && rc == MUSTER_OK; i++) {
        rc = muster_cuda_host_alloc(memory->cuda, PIECE_BYTES, &memory->lanes[i].pinned, error);
        if (rc == MUSTER_OK)
            rc = muster_cuda_stream_new(memory->cuda, &memory->lanes[i].stream, error);
    }
    muster_cuda_leave(memory->cuda, before);
    return rc;
}

int muster_device_ordinal_of(const struct muster_env *env, const void *address)
{
    struct muster_cuda_look look;

    return muster_cuda_look_init(&look, library_of(env)) ? muster_cuda_look_ordinal(&look, address)
                                                         : 0;
}

struct muster_device_look muster_device_look_of(const struct muster_env *env)
{
    struct muster_device_look look = {.has_driver = false};

    look.has_driver = muster_cuda_look_init(&look.cuda, library_of(env));
    return look;
}

int muster_device_look_at(const struct muster_device_look *look, const void *address)
{
    return look->has_driver && address != NULL && muster_cuda_look_is_device(&look->cuda, address)
               ? muster_cuda_look_ordinal(&look->cuda, address)
               : -1;
}

enum muster_rc muster_device_count(const struct muster_env *env, int *ret_count,
                                   struct muster_error *ret_error)
{
    return muster_cuda_count(library_of(env), ret_count, ret_error);
}

enum muster_rc muster_device_memory_open(struct muster_env *env, int ordinal,
                                         struct muster_device_memory **ret_memory,
                                         struct muster_error *ret_error)
{
    struct muster_device_memory *memory = muster_mem_alloc_zero(env->mem, 1, sizeof(*memory));
    enum muster_rc rc;

    if (memory == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    memory->env = env;
    memory->timeout_ns = MUSTER_DEVICE_TIMEOUT_NS;
    muster_list_init(&memory->transfers);
    memory->far.read = memory_read;
    memory->far.write = memory_write;
    for (unsigned i = 0; i < MUSTER_DEVICE_LANES; i++)
        atomic_flag_clear(&memory->lanes[i].is_taken);
    rc = muster_cuda_open(env->mem, library_of(env), ordinal, &memory->cuda, ret_error);
    if (rc == MUSTER_OK)
        rc = lanes_open(memory, ret_error);
    if (rc != MUSTER_OK)
        muster_device_memory_close(memory);
    else
        *ret_memory = memory;
    return rc;
}

void muster_device_memory_set_timeout(struct muster_device_memory *memory, uint64_t timeout_ns)
{
    memory->timeout_ns = timeout_ns;
}

int muster_device_memory_ordinal(const struct muster_device_memory *memory)
{
    return muster_cuda_device(memory->cuda)->ordinal;
}

/* Each of these calls may wait for what the device does, and what it may yet write to is its own. */
static void lanes_close(struct muster_device_memory *memory)
{
    for (unsigned i = 0; i < MUSTER_DEVICE_LANES; i++) {
        muster_cuda_stream_free(memory->cuda, memory->lanes[i].stream);
        muster_cuda_host_free(memory->cuda, memory->lanes[i].pinned);
    }
}

void muster_device_memory_close(struct muster_device_memory *memory)
{
    void *before;

    if (memory == NULL)
        return;
    if (memory->cuda != NULL) {
        before = muster_cuda_enter(memory->cuda);
        muster_device_transfers_close(memory);
        if (!muster_device_memory_hangs(memory))
            lanes_close(memory);
        muster_cuda_leave(memory->cuda, before);
    }
    if (muster_device_memory_hangs(memory))
        muster_cuda_abandon(memory->cuda);
    else
        muster_cuda_close(memory->cuda);
    muster_mem_free(memory->env->mem, memory);
}
