/* muster bench allreduce --memory device: a rank's device, its memory there, and what goes in and out of it. */
#include "bench/allreduce_device.h"

#include <muster/stream.h>

bool bench_device_open(struct bench_device *device, struct muster_env *env, uint32_t index)
{
    struct muster_gpu_options options = {.ordinal = (int)index};
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_gpu_open(env, &options, &device->backend, &error);

    options.ordinal = 0; /* fewer devices than ranks: NCCL says whether it bears that */
    if (rc == MUSTER_NOT_FOUND)
        rc = muster_gpu_open(env, &options, &device->backend, &error);
    if (rc != MUSTER_OK)
        fprintf(stderr,
                "muster bench: rank %u: --memory device needs a device, its driver and NCCL: %s; "
                "without them use mapped or private\n",
                index, error.text);
    env->backend = device->backend;
    return rc == MUSTER_OK;
}

static void on_alloc(struct muster_gpu_alloc *alloc)
{
    struct bench_device *device = alloc->data;

    device->is_answered = true;
}

static bool is_answered(void *data)
{
    return *(const bool *)data;
}

bool bench_device_take(struct bench_device *device, struct muster_runtime *runtime, size_t bytes)
{
    enum muster_rc rc;

    device->alloc.data = device;
    device->alloc.bytes = bytes;
    device->alloc.error.text[0] = '\0';
    device->is_answered = false;
    muster_runtime_enter(runtime);
    rc = muster_gpu_alloc_start(&device->alloc, device->backend, on_alloc);
    if (rc == MUSTER_OK)
        rc = muster_runtime_wait(runtime, is_answered, &device->is_answered, UINT64_MAX);
    muster_runtime_leave(runtime);
    if (rc == MUSTER_OK)
        rc = device->alloc.error.rc;
    if (rc != MUSTER_OK)
        fprintf(stderr, "muster bench: no device memory of %zu bytes: %s\n", bytes,
                device->alloc.error.text[0] != '\0' ? device->alloc.error.text
                                                    : muster_rc_text(rc));
    return rc == MUSTER_OK;
}

void bench_device_give(struct bench_device *device)
{
    muster_gpu_free(device->backend, device->alloc.memory);
    device->alloc.memory = NULL;
}

static bool is_copied(enum muster_rc rc, const struct muster_error *error)
{
    if (rc != MUSTER_OK)
        fprintf(stderr, "muster bench: %s\n", error->text);
    return rc == MUSTER_OK;
}

bool bench_device_write(const struct bench_device *device, const void *from, size_t bytes)
{
    struct muster_error error;

    return is_copied(muster_gpu_write(device->backend, device->alloc.memory, from, bytes, &error),
                     &error);
}

bool bench_device_read(const struct bench_device *device, void *to, size_t bytes)
{
    struct muster_error error;

    return is_copied(muster_gpu_read(device->backend, to, device->alloc.memory, bytes, &error),
                     &error);
}
