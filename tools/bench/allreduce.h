/* `muster bench allreduce`: what the parent and the ranks share. */
#ifndef MUSTER_TOOLS_BENCH_ALLREDUCE_H
#define MUSTER_TOOLS_BENCH_ALLREDUCE_H

#include "bench/meet.h"

#include <muster/collective.h>

#include <sys/types.h>

#define BENCH_RANKS_MAX 64
#define BENCH_SIZES_MAX 32
#define BENCH_WARM_UP   3u
#define BENCH_BYTES_MAX (UINT64_C(1) << 40)

struct bench_settings {
    uint64_t rank_count;
    const char *bytes;
    const char *wire;
    const char *memory;
    const char *dtype;
    const char *algorithm;
    uint64_t iterations;
    uint64_t compute_us;
    uint64_t chunk_bytes;
    uint64_t direct_max_bytes;
    bool is_bound;
    bool is_json;
};

/** State that parent and children share from before the fork. */
struct bench_run {
    const struct bench_settings *settings;
    uint64_t sizes[BENCH_SIZES_MAX];
    size_t size_count;
    enum muster_dtype dtype;
    uint32_t rank_count;
    struct bench_meet *meet; /* shared */
    struct bench_child {
        pid_t pid;
        int to_child, from_child; /* the parent's ends */
        bool has_ended;           /* well */
    } children[BENCH_RANKS_MAX];
};

/** Report of a rank after a size; its samples follow. */
struct bench_size {
    char algorithm[16];
    char input[16];        /* muster_op_result */
    char wire_reason[256]; /* muster_group_wire_reason */
    char memory_reading[256];
    bool is_shm;
    bool is_device;
    struct muster_op_cost plan;  /* what its plan says */
    uint64_t steady_allocations; /* in the later half of its operations */
    struct muster_op_cost used;  /* the most that an operation took */
};

/** One measured operation as a rank saw it. */
struct bench_sample {
    double us;
    uint64_t digest;
};

/** Operations of this size that are measured. */
size_t bench_iterations(const struct bench_settings *settings, uint64_t bytes);
bool bench_read_all(int fd, void *bytes, size_t count);
bool bench_write_all(int fd, const void *bytes, size_t count);
/** The child: join the others, measure all sizes. Returns the exit code. */
int bench_allreduce_rank(const struct bench_run *run, uint32_t index, int from_parent,
                         int to_parent);

#endif
