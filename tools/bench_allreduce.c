/* muster bench allreduce: n processes, a static group, each size again and again. */
#include "bench.h"
#include "bench_elements.h"

#include <muster/collective.h>
#include <muster/hash.h>
#include <muster/loop.h>
#include <muster/static_group.h>
#include <muster/stream.h>

#include "commands.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX     64
#define SIZES_MAX     32
#define WARM_UP       3u
#define TILE_ELEMENTS 3072u /* a multiple of the period of value_at */
#define TIMEOUT_NS    (120 * MUSTER_NS_PER_S)
/* A size is repeated until about so many bytes were reduced, within limits. */
#define REPEAT_BYTES (UINT64_C(2) << 30)
#define REPEAT_MIN   10u
#define REPEAT_MAX   1000u

struct settings {
    uint64_t rank_count;
    const char *bytes;
    const char *wire;
    const char *memory;
    const char *dtype;
    uint64_t iterations;
    uint64_t chunk_bytes;
    uint64_t direct_max_bytes;
    bool is_json;
};

static const struct muster_option rows[] = {
    {.name = "ranks",
     .letter = 'n',
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, rank_count),
     .fallback = "2",
     .min = 1,
     .max = RANKS_MAX,
     .help = "How many processes take part."},
    {.name = "bytes",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, bytes),
     .fallback = "1K,64K,1M,16M,64M",
     .value = "A,B,…",
     .help = "Sizes of the tensor."},
    {.name = "wire",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct settings, wire),
     .fallback = "auto",
     .choices = "auto|tcp",
     .help = "How chunks travel."},
    {.name = "memory",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct settings, memory),
     .fallback = "private",
     .choices = "private",
     .help = "Where the tensors are."},
    {.name = "dtype",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct settings, dtype),
     .fallback = "f32",
     .choices = "f32|f64|i32|i64|u8|f16|bf16|i8|u32|u64|bool",
     .help = "Type of the elements; bool is reduced by or, all others by sum."},
    {.name = "iters",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, iterations),
     .max = 1000000,
     .help = "Measured operations per size; 0 chooses by size."},
    {.name = "chunk-bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct settings, chunk_bytes),
     .max = UINT32_MAX,
     .help = "Largest chunk; 0 is the default (261824, about 256 KiB)."},
    {.name = "direct-max-bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct settings, direct_max_bytes),
     .max = UINT32_MAX,
     .help = "Largest tensor that is exchanged directly; 0 is the default (32 KiB)."},
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_json),
     .help = "Print one JSON object per size."},
};

const struct muster_options bench_allreduce_options = {
    .command = "muster bench allreduce",
    .usage = "[-n N] [--bytes A,B,…] [--json]",
    .about =
        "Time all-reduces (sum) between N processes. Each rank rewrites its tensor before each "
        "operation, a barrier stands in front of the clock; a sample is the time of the slowest "
        "rank.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

/* What parent and children share from before the fork. */
struct bench_run {
    const struct settings *settings;
    uint64_t sizes[SIZES_MAX];
    size_t size_count;
    enum muster_dtype dtype;
    uint32_t rank_count;
    struct child {
        pid_t pid;
        int to_child, from_child; /* the parent's ends */
    } children[RANKS_MAX];
};

/* One measured operation as a rank saw it. */
struct sample {
    double us;
    uint64_t digest;
};

static bool read_all(int fd, void *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = read(fd, bytes, count);

        if (done <= 0 && errno != EINTR)
            return false;
        if (done > 0) {
            bytes = (uint8_t *)bytes + done;
            count -= (size_t)done;
        }
    }
    return true;
}

static bool write_all(int fd, const void *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(fd, bytes, count);

        if (done <= 0 && errno != EINTR)
            return false;
        if (done > 0) {
            bytes = (const uint8_t *)bytes + done;
            count -= (size_t)done;
        }
    }
    return true;
}

static size_t iterations_of(const struct settings *settings, uint64_t bytes)
{
    uint64_t count = REPEAT_BYTES / (bytes + 1);

    if (settings->iterations > 0)
        return settings->iterations;
    if (count < REPEAT_MIN)
        return REPEAT_MIN;
    return count > REPEAT_MAX ? REPEAT_MAX : count;
}

/* --- A rank --- */

struct rank {
    const struct bench_run *run;
    uint32_t index;
    struct muster_env *env;
    struct muster_static_group *static_group;
    struct muster_group *group;
    uint8_t *tensor;
    uint64_t count;
    bool is_done;
    enum muster_rc rc;
    struct muster_op op;
};

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct rank *rank = op->data;

    rank->is_done = true;
    rank->rc = rc;
}

static bool wait_done(struct rank *rank, enum muster_rc started)
{
    if (started != MUSTER_OK) {
        fprintf(stderr, "muster bench: %s\n", muster_rc_text(started));
        return false;
    }
    while (!rank->is_done)
        muster_loop_turn(rank->env->loop, UINT64_MAX);
    if (rank->rc != MUSTER_OK)
        fprintf(stderr, "muster bench: rank %u: %s\n", rank->index, rank->op.error.text);
    return rank->rc == MUSTER_OK;
}

static void prepare_op(struct rank *rank)
{
    rank->is_done = false;
    rank->op.data = rank;
    rank->op.deadline_ns = muster_loop_after_ns(rank->env->loop, TIMEOUT_NS);
}

static bool pass_barrier(struct rank *rank)
{
    prepare_op(rank);
    return wait_done(rank, muster_barrier_start(&rank->op, rank->group, on_done));
}

/* Small whole numbers: their sums are exact in every type. */
static uint32_t value_at(uint32_t rank, uint64_t i, size_t iteration)
{
    return (uint32_t)((i + rank + iteration) % 3);
}

/* The values repeat: a rank that took long here would take time from one that still measures on the
 * same processor. */
static void rewrite(struct rank *rank, size_t iteration)
{
    size_t element_bytes = muster_dtype_bytes(rank->run->dtype);
    uint64_t first = rank->count < TILE_ELEMENTS ? rank->count : TILE_ELEMENTS;

    for (uint64_t i = 0; i < first; i++)
        bench_element_put(rank->run->dtype, rank->tensor, i, value_at(rank->index, i, iteration));
    for (uint64_t i = first; i < rank->count; i += TILE_ELEMENTS) {
        uint64_t count = rank->count - i < TILE_ELEMENTS ? rank->count - i : TILE_ELEMENTS;

        memcpy(rank->tensor + i * element_bytes, rank->tensor, count * element_bytes);
    }
}

static bool is_element_right(const struct rank *rank, uint64_t i, size_t iteration)
{
    uint32_t sum = 0;

    for (uint32_t k = 0; k < rank->run->rank_count; k++)
        sum += value_at(k, i, iteration);
    return bench_element_is(rank->run->dtype, rank->tensor, i, sum);
}

/* Every rank has the same bytes by the digests; here a few elements are compared with the truth. */
static bool is_result_right(const struct rank *rank, size_t iteration)
{
    for (uint64_t i = 0; i < rank->count; i += 1 + rank->count / 1000)
        if (!is_element_right(rank, i, iteration))
            return false;
    return true;
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static bool measure(struct rank *rank, uint64_t bytes, size_t iteration, struct sample *ret_sample)
{
    const struct muster_tensor tensor = {
        .data = rank->tensor, .count = rank->count, .dtype = rank->run->dtype};
    double begin_us;

    rewrite(rank, iteration);
    if (!pass_barrier(rank))
        return false;
    prepare_op(rank);
    begin_us = now_us();
    if (!wait_done(rank, muster_all_reduce_start(&rank->op, rank->group, &tensor,
                                                 bench_reduction(tensor.dtype), on_done)))
        return false;
    ret_sample->us = now_us() - begin_us;
    ret_sample->digest = muster_hash64(rank->tensor, bytes, 0);
    if (is_result_right(rank, iteration))
        return true;
    fprintf(stderr, "muster bench: rank %u has a wrong sum\n", rank->index);
    return false;
}

static bool measure_size(struct rank *rank, uint64_t bytes, int to_parent)
{
    size_t iterations = iterations_of(rank->run->settings, bytes);
    struct sample sample;
    bool is_ok = true;

    rank->count = bytes / muster_dtype_bytes(rank->run->dtype);
    rank->tensor = muster_mem_alloc(rank->env->mem, bytes);
    if (rank->tensor == NULL)
        return false;
    for (size_t i = 0; i < WARM_UP + iterations && is_ok; i++) {
        is_ok = measure(rank, bytes, i, &sample);
        if (is_ok && i >= WARM_UP)
            is_ok = write_all(to_parent, &sample, sizeof(sample));
    }
    if (is_ok)
        is_ok = pass_barrier(rank);
    muster_mem_free(rank->env->mem, rank->tensor);
    return is_ok;
}

static bool join(struct rank *rank, int from_parent, int to_parent)
{
    struct muster_address addresses[RANKS_MAX];
    const struct settings *settings = rank->run->settings;
    const struct muster_plan_parameters parameters = {
        .chunk_bytes = (uint32_t)settings->chunk_bytes,
        .direct_max_bytes = (uint32_t)settings->direct_max_bytes};
    struct muster_error error;

    if (muster_env_system_open(NULL, &rank->env) != MUSTER_OK ||
        (rank->env->net == NULL && muster_net_system_open(rank->env, &rank->env->net) != MUSTER_OK))
        return false;
    if (muster_static_group_open(rank->env, "bench", &rank->static_group, &error) != MUSTER_OK) {
        fprintf(stderr, "muster bench: %s\n", error.text);
        return false;
    }
    if (!write_all(to_parent, muster_static_group_address(rank->static_group),
                   sizeof(addresses[0])) ||
        !read_all(from_parent, addresses, rank->run->rank_count * sizeof(addresses[0])))
        return false;
    if (muster_static_group_join(rank->static_group, rank->index, addresses, rank->run->rank_count,
                                 &parameters) != MUSTER_OK)
        return false;
    rank->group = muster_static_group_group(rank->static_group);
    return true;
}

static int run_rank(const struct bench_run *run, uint32_t index, int from_parent, int to_parent)
{
    struct rank rank = {.run = run, .index = index};
    const char *algorithm;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!join(&rank, from_parent, to_parent))
        return EXIT_OTHER;
    for (size_t i = 0; i < run->size_count; i++) {
        char text[16] = "";

        algorithm =
            muster_group_algorithm(rank.group, MUSTER_OP_ALL_REDUCE,
                                   run->sizes[i] / muster_dtype_bytes(run->dtype), run->dtype);
        snprintf(text, sizeof(text), "%s", algorithm);
        if (!write_all(to_parent, text, sizeof(text)) ||
            !measure_size(&rank, run->sizes[i], to_parent))
            return EXIT_OTHER;
    }
    /* The others may still need the last frames. */
    while (!muster_static_group_is_idle(rank.static_group))
        muster_loop_turn(rank.env->loop, MUSTER_NS_PER_S);
    return EXIT_OK;
}

/* --- The parent --- */

static bool spawn(struct bench_run *run, uint32_t index)
{
    int down[2], up[2];
    struct child *child = &run->children[index];

    if (pipe(down) != 0 || pipe(up) != 0)
        return false;
    child->pid = fork();
    if (child->pid < 0)
        return false;
    if (child->pid == 0) {
        close(down[1]);
        close(up[0]);
        _exit(run_rank(run, index, down[0], up[1]));
    }
    close(down[0]);
    close(up[1]);
    child->to_child = down[1];
    child->from_child = up[0];
    return true;
}

static bool introduce(struct bench_run *run)
{
    struct muster_address addresses[RANKS_MAX];

    for (uint32_t i = 0; i < run->rank_count; i++)
        if (!read_all(run->children[i].from_child, &addresses[i], sizeof(addresses[i])))
            return false;
    for (uint32_t i = 0; i < run->rank_count; i++)
        if (!write_all(run->children[i].to_child, addresses,
                       run->rank_count * sizeof(addresses[0])))
            return false;
    return true;
}

static void print_line(const struct bench_run *run, uint64_t bytes, const char *algorithm,
                       double *slowest, size_t count, bool is_identical)
{
    double median_us = bench_quantile(slowest, count, 0.5);
    double p99_us = bench_quantile(slowest, count, 0.99);

    if (run->settings->is_json)
        printf("{\"bench\":\"allreduce\",\"n\":%u,\"bytes\":%llu,\"wire\":\"tcp\","
               "\"memory\":\"private\",\"dtype\":\"%s\",\"algorithm\":\"%s\",\"iters\":%zu,"
               "\"median_us\":%.1f,\"p99_us\":%.1f,\"gbytes_per_s\":%.3f,\"identical\":%s}\n",
               run->rank_count, (unsigned long long)bytes, run->settings->dtype, algorithm, count,
               median_us, p99_us, (double)bytes / median_us / 1e3, is_identical ? "true" : "false");
    else
        printf("n %u  %10llu bytes  tcp  %-6s  median %10.1f us  p99 %10.1f us  %7.3f GB/s  %s\n",
               run->rank_count, (unsigned long long)bytes, algorithm, median_us, p99_us,
               (double)bytes / median_us / 1e3, is_identical ? "identical" : "DIFFERENT");
    fflush(stdout);
}

/* Read one size's samples of all ranks. Returns whether all could be read and were identical. */
static bool collect(const struct bench_run *run, uint64_t bytes)
{
    size_t count = iterations_of(run->settings, bytes);
    double *slowest = calloc(count, sizeof(*slowest));
    uint64_t *digests = calloc(count, sizeof(*digests));
    char algorithm[16] = "";
    bool is_read = slowest != NULL && digests != NULL;
    bool is_identical = true;

    for (uint32_t rank = 0; rank < run->rank_count && is_read; rank++) {
        is_read = read_all(run->children[rank].from_child, algorithm, sizeof(algorithm));
        for (size_t i = 0; i < count && is_read; i++) {
            struct sample sample;

            is_read = read_all(run->children[rank].from_child, &sample, sizeof(sample));
            if (!is_read)
                break;
            slowest[i] = sample.us > slowest[i] ? sample.us : slowest[i];
            is_identical = is_identical && (rank == 0 || digests[i] == sample.digest);
            digests[i] = sample.digest;
        }
    }
    if (is_read)
        print_line(run, bytes, algorithm, slowest, count, is_identical);
    free(slowest);
    free(digests);
    return is_read && is_identical;
}

static bool reap(const struct bench_run *run, bool is_failed)
{
    for (uint32_t i = 0; i < run->rank_count; i++) {
        int status = 0;

        if (run->children[i].pid <= 0)
            continue;
        if (is_failed)
            kill(run->children[i].pid, SIGKILL);
        if (waitpid(run->children[i].pid, &status, 0) < 0 || status != 0)
            is_failed = true;
    }
    return !is_failed;
}

static bool parse_sizes(struct bench_run *run, const char *text)
{
    char copy[512];
    char *rest = NULL;

    if (strlen(text) >= sizeof(copy))
        return false;
    strcpy(copy, text);
    for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (run->size_count == SIZES_MAX ||
            muster_bytes_parse(word, &run->sizes[run->size_count]) != MUSTER_OK ||
            run->sizes[run->size_count] % muster_dtype_bytes(run->dtype) != 0)
            return false;
        run->size_count++;
    }
    return run->size_count > 0;
}

static enum muster_dtype parse_dtype(const char *text)
{
    int dtype = 0;

    while (strcmp(muster_dtype_name((enum muster_dtype)dtype), text) != 0)
        dtype++; /* the text is one of the choices */
    return (enum muster_dtype)dtype;
}

int bench_allreduce(int argc, char **argv)
{
    struct settings settings = {.rank_count = 0};
    struct bench_run run = {.settings = &settings};
    bool is_ok = true;
    int exit_code = EXIT_OK;

    if (!command_parse_all(&bench_allreduce_options, argc, argv, &settings, &exit_code))
        return exit_code;
    run.rank_count = (uint32_t)settings.rank_count;
    run.dtype = parse_dtype(settings.dtype);
    if (!parse_sizes(&run, settings.bytes)) {
        fprintf(stderr, "muster bench allreduce: --bytes %s: not a list of sizes in whole %s\n",
                settings.bytes, settings.dtype);
        return EXIT_USAGE;
    }
    fflush(stdout);
    for (uint32_t i = 0; i < run.rank_count && is_ok; i++)
        is_ok = spawn(&run, i);
    is_ok = is_ok && introduce(&run);
    for (size_t i = 0; i < run.size_count && is_ok; i++)
        is_ok = collect(&run, run.sizes[i]);
    return reap(&run, !is_ok) ? EXIT_OK : EXIT_OTHER;
}
