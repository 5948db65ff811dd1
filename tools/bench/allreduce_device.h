/* Device memory of a rank of `muster bench allreduce`. */
#ifndef MUSTER_TOOLS_BENCH_ALLREDUCE_DEVICE_H
#define MUSTER_TOOLS_BENCH_ALLREDUCE_DEVICE_H

#include <stdio.h>

#include <muster/gpu.h>
#include <muster/runtime.h>

/** All zero: none. */
struct bench_device {
    struct muster_backend *backend;
    struct muster_gpu_alloc alloc; /* its memory */
    bool is_answered;
};

/** Rank `index` has the device of this number, if there are so many, else the first. Before the group is opened. False:
 * it has been said why. */
bool bench_device_open(struct bench_device *device, struct muster_env *env, uint32_t index);
/** Memory of one size, and back. */
bool bench_device_take(struct bench_device *device, struct muster_runtime *runtime, size_t bytes);
void bench_device_give(struct bench_device *device);
bool bench_device_write(const struct bench_device *device, const void *from, size_t bytes);
bool bench_device_read(const struct bench_device *device, void *to, size_t bytes);

#endif
