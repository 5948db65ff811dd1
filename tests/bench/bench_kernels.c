/* How fast elements are reduced: one JSON line per type, reduction and path of this machine, the
 * best of several rounds in a working set that fits a cache and in one that does not. Each kernel
 * must first agree with the reference, bit by bit. */
#include "collective/kernel/kernels.h"
#include "kernel_reference.h"
#include "bench_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS      5
#define CACHE_BYTES ((size_t)16 << 10)
#define LARGE_BYTES ((size_t)32 << 20)
#define CHUNK_BYTES ((size_t)64 << 10)
#define CHECK_COUNT ((size_t)4099)

/* Memory of one tensor each, aligned as a page. */
struct buffers {
    void *into, *from, *expected;
};

static void check_kernels(const struct muster_kernels *kernels, enum muster_dtype dtype,
                          enum muster_reduction reduction, const struct buffers *buffers)
{
    size_t bytes = CHECK_COUNT * muster_dtype_bytes(dtype);

    reference_fill(dtype, buffers->into, CHECK_COUNT, 1);
    reference_fill(dtype, buffers->from, CHECK_COUNT, 2);
    memcpy(buffers->expected, buffers->into, bytes);
    reference_reduce(dtype, reduction, buffers->expected, buffers->from, CHECK_COUNT);
    kernels->reduce[dtype][reduction](buffers->into, buffers->from, CHECK_COUNT);
    if (memcmp(buffers->into, buffers->expected, bytes) == 0)
        return;
    fprintf(stderr, "bench_kernels: %s of %s, path %s: not the bits of the reference\n",
            muster_reduction_name(reduction), muster_dtype_name(dtype), kernels->name);
    exit(1);
}

/* GB of one operand per second. The values are zeros: no kernel's time depends on them. */
static double measure_kernel(muster_kernel_reduce_fn *reduce, muster_kernel_swap_fn *swap,
                             size_t bytes, size_t element, const struct buffers *buffers)
{
    size_t repeat = bytes < LARGE_BYTES ? ((size_t)2 << 20) / bytes : 1;
    double best_s = 1e9;

    for (size_t round = 0; round < ROUNDS; round++) {
        double begin_s = bench_clock_s(), took_s;

        for (size_t i = 0; i < repeat; i++) {
            if (reduce != NULL)
                reduce(buffers->into, buffers->from, bytes / element);
            else
                swap(buffers->into, buffers->from, bytes / element);
        }
        took_s = (bench_clock_s() - begin_s) / (double)repeat;
        best_s = took_s < best_s ? took_s : best_s;
    }
    return (double)bytes / best_s * 1e-9;
}

/* GB of all sources together per second, a chunk of 64 KiB of each at a time. */
static double measure_all(const struct muster_kernels *kernels, enum muster_dtype dtype,
                          enum muster_reduction reduction, const struct buffers *buffers,
                          uint32_t n)
{
    const size_t element = muster_dtype_bytes(dtype), chunks = LARGE_BYTES / n / CHUNK_BYTES;
    double best_s = 1e9;

    for (size_t round = 0; round < ROUNDS; round++) {
        double begin_s = bench_clock_s(), took_s;

        for (size_t i = 0; i < chunks; i++) {
            const uint8_t *first = (const uint8_t *)buffers->from + i * n * CHUNK_BYTES;
            const void *const from[4] = {first, first + CHUNK_BYTES, first + 2 * CHUNK_BYTES,
                                         first + 3 * CHUNK_BYTES};

            kernels->all[dtype][reduction]((uint8_t *)buffers->into + i * CHUNK_BYTES, from, n,
                                           CHUNK_BYTES / element);
        }
        took_s = (bench_clock_s() - begin_s) / (double)chunks;
        best_s = took_s < best_s ? took_s : best_s;
    }
    return (double)(n * CHUNK_BYTES) / best_s * 1e-9;
}

static void bench_kernels(const struct muster_kernels *kernels, enum muster_dtype dtype,
                          enum muster_reduction reduction, const struct buffers *buffers)
{
    muster_kernel_reduce_fn *reduce = kernels->reduce[dtype][reduction];
    muster_kernel_swap_fn *swap = kernels->swap[dtype][reduction];
    size_t element = muster_dtype_bytes(dtype);

    check_kernels(kernels, dtype, reduction, buffers);
    memset(buffers->into, 0, LARGE_BYTES);
    memset(buffers->from, 0, LARGE_BYTES);
    printf("{\"bench\":\"kernels\",\"dtype\":\"%s\",\"op\":\"%s\",\"path\":\"%s\","
           "\"cache_gbps\":%.2f,\"memory_gbps\":%.2f,\"swap_memory_gbps\":%.2f,"
           "\"all2_gbps\":%.2f,\"all4_gbps\":%.2f}\n",
           muster_dtype_name(dtype), muster_reduction_name(reduction), kernels->name,
           measure_kernel(reduce, NULL, CACHE_BYTES, element, buffers),
           measure_kernel(reduce, NULL, LARGE_BYTES, element, buffers),
           measure_kernel(NULL, swap, LARGE_BYTES, element, buffers),
           measure_all(kernels, dtype, reduction, buffers, 2),
           measure_all(kernels, dtype, reduction, buffers, 4));
}

/* bench_kernels [DTYPE]: all types, or one. MEAN is SUM and a division at the end. */
int main(int argc, char **argv)
{
    const struct muster_kernels *kernels;
    struct buffers buffers = {.into = aligned_alloc(4096, LARGE_BYTES),
                              .from = aligned_alloc(4096, LARGE_BYTES),
                              .expected = aligned_alloc(4096, LARGE_BYTES)};

    if (buffers.into == NULL || buffers.from == NULL || buffers.expected == NULL)
        return 1;
    for (int dtype = 0; dtype < MUSTER_DTYPE_COUNT; dtype++)
        for (int reduction = 0; reduction < MUSTER_REDUCTION_COUNT; reduction++)
            for (size_t path = 0; (kernels = muster_kernels_at(path)) != NULL; path++)
                if (kernels->reduce[dtype][reduction] != NULL && reduction != MUSTER_MEAN &&
                    (argc < 2 || strcmp(argv[1], muster_dtype_name((enum muster_dtype)dtype)) == 0))
                    bench_kernels(kernels, (enum muster_dtype)dtype,
                                  (enum muster_reduction)reduction, &buffers);
    free(buffers.into);
    free(buffers.from);
    free(buffers.expected);
    return 0;
}
