/* Reduce, exchanges and messages between n processes of this machine, through boards and over frames
 * (MUSTER_WIRE=tcp) in turns: medians of the slowest rank, and their ratio.
 *
 *   bench_exchange [N [BYTES,BYTES… [mapped|private]]]    bytes: of the whole vector */
#include <muster/collective.h>
#include <muster/runtime.h>
#include <muster/static_group.h>
#include <muster/stream.h>

#include "tools/bench/meet.h"
#include "bench_clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX  8u
#define SAMPLES    60u
#define BLOCK      10u /* samples of one wire, then of the other … */
#define WARM_UP    3u  /* … after what the other has left to do */
#define TIMEOUT_NS (60 * MUSTER_NS_PER_S)

enum wire { WIRE_BOARDS, WIRE_FRAMES, WIRE_COUNT };

static const char *const kinds[] = {"reduce",  "gather",     "scatter",     "all_gather",
                                    "permute", "all_to_all", "send_receive"};
enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

/* Memory that the processes share. */
struct shared {
    struct bench_meet meet;
    struct muster_address addresses[WIRE_COUNT][RANKS_MAX];
    double us[WIRE_COUNT][SAMPLES][RANKS_MAX];
};

struct rank {
    struct shared *shared;
    uint32_t index, n;
    struct muster_env *env;
    struct muster_runtime *runtime;
    struct muster_static_group *static_groups[WIRE_COUNT];
    struct muster_group *group;
    struct muster_tensor input, output;
    struct muster_op op;
    bool is_done;
};

static void require_that(bool is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "bench_exchange: %s\n", what);
    exit(1);
}

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    require_that(rc == MUSTER_OK, op->error.text);
    *(bool *)op->data = true;
}

static bool is_done(void *data)
{
    return *(const bool *)data;
}

static void drive_loop(void *data)
{
    const struct rank *rank = data;

    muster_runtime_enter(rank->runtime);
    muster_loop_turn(rank->env->loop, 0);
    muster_runtime_leave(rank->runtime);
}

static void meet_ranks(struct rank *rank)
{
    bench_meet(&rank->shared->meet, rank->n, drive_loop, rank);
}

/* --- One operation --- */

static struct muster_tensor first_of(const struct muster_tensor *whole, uint64_t count)
{
    return (struct muster_tensor){whole->data, count, whole->dtype};
}

static enum muster_rc start_message(struct rank *rank)
{
    if (rank->index == 0)
        return muster_send_start(&rank->op, rank->group, &rank->input, 1, on_done);
    if (rank->index == 1)
        return muster_receive_start(&rank->op, rank->group, &rank->output, 0, on_done);
    rank->is_done = true;
    return MUSTER_OK;
}

static enum muster_rc start_operation(struct rank *rank, const char *kind)
{
    struct muster_op *op = &rank->op;
    struct muster_group *group = rank->group;
    struct muster_tensor in = first_of(&rank->input, rank->input.count / rank->n);
    struct muster_tensor out = first_of(&rank->output, rank->output.count / rank->n);
    struct muster_route route = {(rank->index + 1) % rank->n,
                                 (rank->index + rank->n - 1) % rank->n};

    if (strcmp(kind, "reduce") == 0)
        return muster_reduce_start(op, group, &rank->output, MUSTER_MAX, 0, on_done);
    if (strcmp(kind, "gather") == 0)
        return muster_gather_start(op, group, &in, &rank->output, 0, on_done);
    if (strcmp(kind, "scatter") == 0)
        return muster_scatter_start(op, group, &rank->input, &out, 0, on_done);
    if (strcmp(kind, "all_gather") == 0)
        return muster_all_gather_start(op, group, &in, &rank->output, on_done);
    if (strcmp(kind, "permute") == 0)
        return muster_permute_start(op, group, &rank->input, &rank->output, &route, on_done);
    if (strcmp(kind, "all_to_all") == 0)
        return muster_all_to_all_start(op, group, &rank->input, &rank->output, on_done);
    return start_message(rank);
}

static double run_operation(struct rank *rank, const char *kind, unsigned i)
{
    double begin_us;

    memset(rank->input.data, (int)i, rank->input.count * sizeof(float));
    meet_ranks(rank);
    begin_us = bench_clock_us();
    muster_runtime_enter(rank->runtime);
    rank->is_done = false;
    rank->op = (struct muster_op){.data = &rank->is_done,
                                  .deadline_ns = muster_loop_after_ns(rank->env->loop, TIMEOUT_NS)};
    require_that(start_operation(rank, kind) == MUSTER_OK, "an operation does not start");
    require_that(muster_runtime_wait(rank->runtime, is_done, &rank->is_done, UINT64_MAX) ==
                     MUSTER_OK,
                 "waiting");
    muster_runtime_leave(rank->runtime);
    return bench_clock_us() - begin_us;
}

/* --- All of them --- */

static int compare_times(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static double median_us(const struct rank *rank, enum wire wire)
{
    double slowest[SAMPLES];

    for (unsigned i = 0; i < SAMPLES; i++) {
        slowest[i] = 0;
        for (uint32_t k = 0; k < rank->n; k++)
            if (rank->shared->us[wire][i][k] > slowest[i])
                slowest[i] = rank->shared->us[wire][i][k];
    }
    qsort(slowest, SAMPLES, sizeof(slowest[0]), compare_times);
    return slowest[SAMPLES / 2];
}

static void measure_rank(struct rank *rank, const char *kind, uint64_t bytes)
{
    struct muster_group *boards = muster_static_group_group(rank->static_groups[WIRE_BOARDS]);

    for (unsigned first = 0; first < SAMPLES; first += BLOCK)
        for (enum wire wire = 0; wire < WIRE_COUNT; wire++) {
            rank->group = muster_static_group_group(rank->static_groups[wire]);
            for (unsigned i = 0; i < WARM_UP; i++)
                (void)run_operation(rank, kind, i);
            for (unsigned i = first; i < first + BLOCK; i++)
                rank->shared->us[wire][i][rank->index] = run_operation(rank, kind, i);
        }
    require_that(strcmp(muster_group_wire(boards), "shm") == 0, muster_group_wire_reason(boards));
    meet_ranks(rank);
    if (rank->index == 0) {
        double shown = median_us(rank, WIRE_BOARDS), frames = median_us(rank, WIRE_FRAMES);

        printf("n %u  %-12s %9llu bytes  boards %10.1f us  frames %10.1f us  ratio %5.2f\n",
               rank->n, kind, (unsigned long long)bytes, shown, frames, frames / shown);
        fflush(stdout);
    }
    meet_ranks(rank);
}

static void take_buffers(struct rank *rank, struct muster_tensor *tensor, uint64_t bytes,
                         bool is_mapped)
{
    *tensor = (struct muster_tensor){.count = bytes / sizeof(float), .dtype = MUSTER_F32};
    if (is_mapped)
        require_that(muster_tensor_new(rank->env, MUSTER_F32, tensor->count, tensor) == MUSTER_OK,
                     "tensor");
    else
        tensor->data = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    require_that(tensor->data != NULL, "no memory");
    memset(tensor->data, 0, bytes);
}

static void give_buffers(struct rank *rank, struct muster_tensor *tensor, bool is_mapped)
{
    if (is_mapped)
        muster_tensor_free(rank->env, tensor);
    else
        free(tensor->data);
}

static void join_rank(struct rank *rank, enum wire wire)
{
    struct muster_error error = {.text = "a group does not open"};
    char job[32];

    snprintf(job, sizeof(job), "exchange-%d-%d", (int)getppid(), (int)wire);
    setenv("MUSTER_WIRE", wire == WIRE_FRAMES ? "tcp" : "auto", 1);
    require_that(muster_static_group_open(rank->env, job, &rank->static_groups[wire], &error) ==
                     MUSTER_OK,
                 error.text);
    rank->shared->addresses[wire][rank->index] =
        *muster_static_group_address(rank->static_groups[wire]);
    bench_meet(&rank->shared->meet, rank->n, (void (*)(void *))free, NULL);
    require_that(muster_static_group_join(rank->static_groups[wire], rank->index,
                                          rank->shared->addresses[wire], rank->n,
                                          NULL) == MUSTER_OK,
                 "a group cannot be joined");
}

static int run_rank(struct shared *shared, uint32_t index, uint32_t n, const char *sizes,
                    bool is_mapped)
{
    static struct rank rank; /* its keeper goes on until the process ends */
    char *copy = strdup(sizes), *rest = NULL;

    rank = (struct rank){.shared = shared, .index = index, .n = n};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_bind(index);
    require_that(muster_env_system_open(&(struct muster_env_system_options){.mem = NULL},
                                        &rank.env) == MUSTER_OK,
                 "no environment");
    require_that(rank.env->net != NULL ||
                     muster_net_system_open(rank.env, &rank.env->net) == MUSTER_OK,
                 "no net");
    for (enum wire wire = 0; wire < WIRE_COUNT; wire++)
        join_rank(&rank, wire);
    require_that(muster_runtime_open(&(struct muster_runtime_options){.env = rank.env},
                                     &rank.runtime) == MUSTER_OK,
                 "no runtime");
    for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        uint64_t bytes = strtoull(word, NULL, 10);

        muster_runtime_enter(rank.runtime);
        take_buffers(&rank, &rank.input, bytes, is_mapped);
        take_buffers(&rank, &rank.output, bytes, is_mapped);
        muster_runtime_leave(rank.runtime);
        for (int kind = 0; kind < KIND_COUNT; kind++)
            measure_rank(&rank, kinds[kind], bytes);
        muster_runtime_enter(rank.runtime);
        give_buffers(&rank, &rank.input, is_mapped);
        give_buffers(&rank, &rank.output, is_mapped);
        muster_runtime_leave(rank.runtime);
    }
    meet_ranks(&rank);
    free(copy);
    return 0;
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
    const char *sizes = argc > 2 ? argv[2] : "65536,1048576,16777216";
    bool is_mapped = argc <= 3 || strcmp(argv[3], "mapped") == 0;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool is_failed = false;

    require_that(n >= 2 && n <= RANKS_MAX && shared != MAP_FAILED, "2 to 8 processes");
    for (uint32_t i = 0; i < n; i++)
        if (fork() == 0)
            _exit(run_rank(shared, i, n, sizes, is_mapped));
    for (uint32_t i = 0; i < n; i++) {
        int status = 0;

        is_failed = wait(&status) < 0 || status != 0 || is_failed;
    }
    return is_failed;
}
