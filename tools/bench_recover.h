/* `muster bench recover`: what supervisor and workers share through a mapped file. */
#ifndef MUSTER_TOOLS_BENCH_RECOVER_H
#define MUSTER_TOOLS_BENCH_RECOVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    RECOVER_TASKS_MAX = 64,
    RECOVER_STEPS_MAX = 1 << 16,
};

/** One operation as one worker saw it. Written by that worker, done_ns last. */
struct recover_record {
    _Atomic uint64_t start_ns; /* CLOCK_MONOTONIC; 0: not started */
    _Atomic uint64_t done_ns;  /* 0: not done */
    uint64_t digest;           /* of the result's bytes */
    uint64_t epoch;
    uint32_t contributors;
    bool is_interrupted;
    bool is_adopted;
    bool is_wrong; /* elements do not agree on who contributed */
};

struct recover_shared {
    uint64_t bytes;            /* of the tensor */
    uint64_t victim_rss_bytes; /* memory that every worker touches */
    _Atomic uint32_t stop;
    struct recover_task {
        _Atomic int64_t pid;
        _Atomic uint64_t step; /* the last one started */
        struct recover_record records[RECOVER_STEPS_MAX];
    } tasks[RECOVER_TASKS_MAX];
};

/** Environment variable that names the mapped file. */
#define RECOVER_FILE_VAR "MUSTER_BENCH_RECOVER_FILE"

/** Map the file at path (created and sized when create), or NULL with errno set. */
struct recover_shared *recover_map(const char *path, bool create);

uint64_t recover_now_ns(void);

#endif
