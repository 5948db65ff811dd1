/* gpu_check: copies between the host and the device, as those of the training state and of requests are made: through
 * pinned pieces, and from memory that other processes map. The bytes are compared, and the rates shown. */
#include "gpu_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <muster/collective.h>
#include <muster/stream.h>

#include "collective/gpu/cuda_driver.h"
#include "collective/gpu/device_batch.h"
#include "collective/gpu/device_transfer.h"

#define BYTES (((size_t)64 << 20) + 4099)

struct copies {
    struct muster_env *env;
    struct muster_device_memory *memory;
    struct muster_cuda *cuda; /* the program's */
    void *device;
    struct muster_tensor mapped;
    uint8_t *bytes;
    bool is_done;
    enum muster_rc rc;
};

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static bool is_told(bool is_fine, const char *what, const char *text)
{
    if (!is_fine)
        printf("failed: %s: %s\n", what, text);
    return is_fine;
}

static void tell_rate(const char *what, double begun_ms)
{
    printf("%s: %.2f GB/s\n", what, (double)BYTES / (now_ms() - begun_ms) / 1e6);
}

static bool copies_open(struct copies *copies)
{
    const char *library = getenv("MUSTER_CUDA_LIBRARY");
    struct muster_error error = {.text = ""};
    enum muster_rc rc = muster_net_system_open(copies->env, &copies->env->net);

    if (rc == MUSTER_OK)
        rc = muster_device_memory_open(copies->env, 0, &copies->memory, &error);
    if (rc == MUSTER_OK)
        rc = muster_cuda_open(copies->env->mem, library, 0, &copies->cuda, &error);
    if (rc == MUSTER_OK) {
        void *before = muster_cuda_enter(copies->cuda);

        rc = muster_cuda_alloc(copies->cuda, BYTES, &copies->device, &error);
        muster_cuda_leave(copies->cuda, before);
    }
    if (rc == MUSTER_OK)
        rc = muster_tensor_new(copies->env, MUSTER_U8, BYTES, &copies->mapped);
    copies->bytes = malloc(BYTES);
    for (size_t i = 0; copies->bytes != NULL && i < BYTES; i++)
        copies->bytes[i] = (uint8_t)(i * 31 + i / 4096);
    return is_told(rc == MUSTER_OK && copies->bytes != NULL, "memory", error.text);
}

static void copies_close(struct copies *copies)
{
    if (copies->cuda != NULL) {
        void *before = muster_cuda_enter(copies->cuda);

        muster_cuda_free(copies->cuda, copies->device);
        muster_cuda_leave(copies->cuda, before);
    }
    muster_cuda_close(copies->cuda);
    muster_tensor_free(copies->env, &copies->mapped);
    muster_device_memory_close(copies->memory);
    muster_net_system_close(copies->env->net);
    free(copies->bytes);
}

/* Through pieces: in, and out into other memory. */
static bool pieces_check(struct copies *copies)
{
    struct muster_far_memory *far = muster_device_memory_far(copies->memory);
    struct muster_error error = {.text = "other bytes"};
    double begun_ms = now_ms();
    enum muster_rc rc = muster_far_memory_write(far, copies->device, copies->bytes, BYTES);

    tell_rate("pieces into the device", begun_ms);
    begun_ms = now_ms();
    if (rc == MUSTER_OK)
        rc = muster_far_memory_read(far, copies->mapped.data, copies->device, BYTES);
    tell_rate("pieces out of the device", begun_ms);
    (void)muster_device_memory_has_failed(copies->memory, &error);
    return is_told(rc == MUSTER_OK && memcmp(copies->mapped.data, copies->bytes, BYTES) == 0,
                   "pieces", error.text);
}

static void on_done(struct muster_device_transfer *transfer, enum muster_rc rc)
{
    struct copies *copies = transfer->data;

    copies->is_done = true;
    copies->rc = rc;
}

static bool transfer_check(struct copies *copies, bool is_out, const char *what)
{
    const struct muster_device_copy copy = {copies->mapped.data, copies->device, BYTES};
    struct muster_device_transfer transfer = {.data = copies};
    struct muster_error error = {.text = "cannot start"};
    double begun_ms = now_ms();

    copies->is_done = false;
    copies->rc =
        muster_device_transfer_start(&transfer, copies->memory, &copy, 1, is_out, NULL, on_done);
    while (copies->rc == MUSTER_OK && !copies->is_done)
        muster_loop_turn(copies->env->loop, UINT64_MAX);
    tell_rate(what, begun_ms);
    (void)muster_device_memory_has_failed(copies->memory, &error);
    return is_told(copies->rc == MUSTER_OK, what, error.text);
}

/* Other bytes in between show that the copies are made. */
static bool transfers_check(struct copies *copies)
{
    bool is_fine = muster_device_pin(copies->memory, copies->mapped.data, BYTES);

    if (!is_told(is_fine, "mapped memory", "it cannot be pinned"))
        return false;
    for (size_t i = 0; i < BYTES; i++)
        copies->bytes[i] ^= 0x5a;
    memcpy(copies->mapped.data, copies->bytes, BYTES);
    is_fine = transfer_check(copies, false, "mapped memory into the device");
    memset(copies->mapped.data, 0, BYTES);
    is_fine = is_fine && transfer_check(copies, true, "the device into mapped memory");
    muster_device_unpin(copies->memory, copies->mapped.data);
    return is_fine && is_told(memcmp(copies->mapped.data, copies->bytes, BYTES) == 0, "transfers",
                              "other bytes");
}

/* --- Several devices at once, as the calls of replicas copy --- */

#define DEVICES_MAX 16

struct devices {
    struct muster_env *env;
    int count;
    struct device {
        struct muster_device_memory *memory;
        struct muster_device_batch batch;
        void *address;
    } list[DEVICES_MAX];
    struct muster_tensor mapped; /* a part for each device */
};

static bool devices_open(struct devices *devices)
{
    struct muster_error error = {.text = ""};
    enum muster_rc rc = muster_device_count(devices->env, &devices->count, &error);

    devices->count = devices->count < DEVICES_MAX ? devices->count : DEVICES_MAX;
    for (int i = 0; i < devices->count && rc == MUSTER_OK; i++) {
        struct device *device = &devices->list[i];

        rc = muster_device_memory_open(devices->env, i, &device->memory, &error);
        if (rc == MUSTER_OK)
            rc = muster_device_batch_open(&device->batch, device->memory, &error);
        if (rc == MUSTER_OK)
            rc = muster_device_memory_new(device->memory, BYTES, &device->address, &error);
    }
    if (rc == MUSTER_OK)
        rc = muster_tensor_new(devices->env, MUSTER_U8, BYTES * (size_t)devices->count,
                               &devices->mapped);
    return is_told(rc == MUSTER_OK, "all devices", error.text);
}

static void devices_close(struct devices *devices)
{
    for (int i = 0; i < devices->count; i++) {
        struct device *device = &devices->list[i];

        muster_device_batch_close(&device->batch);
        if (device->memory != NULL)
            muster_device_memory_free(device->memory, device->address);
        muster_device_memory_close(device->memory);
    }
    muster_tensor_free(devices->env, &devices->mapped);
}

/* Each device has its own part of the host's memory. */
static bool batches_copy(struct devices *devices, bool is_out, const char *what)
{
    struct muster_error error = {.text = "it has not failed"};
    double begun_ms = now_ms();
    bool is_fine = true;

    for (int i = 0; i < devices->count; i++) {
        const struct muster_device_copy copy = {(uint8_t *)devices->mapped.data + BYTES * (size_t)i,
                                                devices->list[i].address, BYTES};

        is_fine =
            muster_device_batch_follow(&devices->list[i].batch, NULL) == MUSTER_OK &&
            muster_device_batch_start(&devices->list[i].batch, &copy, 1, is_out) == MUSTER_OK &&
            is_fine;
    }
    for (int i = 0; i < devices->count; i++) {
        is_fine = muster_device_batch_wait(&devices->list[i].batch) == MUSTER_OK && is_fine;
        (void)muster_device_memory_has_failed(devices->list[i].memory, &error);
    }
    printf("%s, %d devices: %.2f GB/s\n", what, devices->count,
           (double)BYTES * devices->count / (now_ms() - begun_ms) / 1e6);
    return is_told(is_fine, what, error.text);
}

/* A device's bytes differ from the others'. */
static bool batches_check(struct devices *devices)
{
    uint8_t *bytes = devices->mapped.data;
    size_t count = BYTES * (size_t)devices->count;
    bool is_pinned = muster_device_pin(devices->list[0].memory, bytes, count);
    bool is_fine = is_told(is_pinned, "memory for all devices", "it cannot be pinned");

    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(i * 7 + i / BYTES * 31);
    is_fine = is_fine && batches_copy(devices, false, "into all devices");
    memset(bytes, 0, count);
    is_fine = is_fine && batches_copy(devices, true, "out of all devices");
    for (size_t i = 0; i < count && is_fine; i++)
        is_fine =
            is_told(bytes[i] == (uint8_t)(i * 7 + i / BYTES * 31), "all devices", "other bytes");
    if (is_pinned)
        muster_device_unpin(devices->list[0].memory, bytes);
    return is_fine;
}

bool check_copies(struct muster_env *env)
{
    struct copies copies = {.env = env};
    struct devices devices = {.env = env};
    bool is_fine = copies_open(&copies) && pieces_check(&copies) && transfers_check(&copies);

    copies_close(&copies);
    if (!is_fine)
        return false;
    (void)!muster_net_system_open(env, &env->net); /* closed with the copies */
    is_fine = devices_open(&devices) && batches_check(&devices);
    devices_close(&devices);
    muster_net_system_close(env->net);
    return is_fine;
}
