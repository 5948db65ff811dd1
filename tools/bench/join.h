/* `muster bench join`: what supervisor and workers share through a mapped file. */
#ifndef MUSTER_TOOLS_BENCH_JOIN_H
#define MUSTER_TOOLS_BENCH_JOIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    JOIN_TASKS_MAX = 64,
    JOIN_RING = 1 << 12, /* steps kept per task */
};

/** One step of one worker, which writes it; the supervisor reads it. end_ns publishes the others. */
struct join_step {
    _Atomic uint64_t end_ns; /* CLOCK_MONOTONIC; 0: not ended */
    uint64_t begin_ns, step;
};

struct join_task {
    _Atomic int64_t pid;     /* of the present life, once its memory is ready */
    _Atomic uint64_t joined; /* the life has begun its first step, at … */
    uint64_t asked_ns;       /* … having asked at */
    uint64_t joined_ns;
    uint64_t first_begin_ns; /* of the first life: from opening to the return of begin */
    uint64_t digest;         /* of the state, at the end */
    _Atomic uint64_t step_count;
    struct join_step steps[JOIN_RING];
};

struct join_shared {
    uint64_t bytes, changing_bytes; /* of the state */
    uint64_t compute_ns, idle_ns;   /* of each step */
    bool is_named;                  /* the program names what it changes */
    uint32_t joiner;                /* this task is killed */
    _Atomic uint32_t ready_count;   /* first lives with memory: they open together */
    _Atomic uint32_t is_held;       /* its new life waits before it asks to join */
    _Atomic uint32_t stop;
    struct join_task tasks[JOIN_TASKS_MAX];
};

/** Environment variable that names the mapped file. */
#define JOIN_FILE_VAR "MUSTER_BENCH_JOIN_FILE"

/** NULL: errno tells. */
struct join_shared *join_map(int fd);
uint64_t join_now_ns(void);

#endif
