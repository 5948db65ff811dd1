/* muster bench allreduce: n processes, a static group, each size again and again. This file:
 * options, and the parent, which starts the ranks and reads their samples.
 *
 * The ranks are forked, exchange their addresses through the parent, and then measure without it:
 * it sleeps in poll until a whole size is done, so that it takes no processor from them. A sample
 * of the result is the time of the slowest rank in that operation. */
#include "bench/allreduce.h"

#include "bench/bench.h"
#include "bench/samples.h"
#include "bench/list.h"
#include "common/command.h"
#include "common/output.h"

#include <muster/address.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Open files of a process: connections, boards and pipes of the others, while they are made. */
#define FILES_BASE     16u
#define FILES_PER_RANK 8u

static const struct muster_option rows[] = {
    {.name = "ranks",
     .letter = 'n',
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_settings, rank_count),
     .fallback = "2",
     .min = 1,
     .max = BENCH_RANKS_MAX,
     .help = "Number of processes."},
    {.name = "bytes",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct bench_settings, bytes),
     .fallback = "1K,64K,1M,16M,64M",
     .value = "A,B,…",
     .help = "Sizes of the tensor."},
    {.name = "wire",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct bench_settings, wire),
     .fallback = "auto",
     .choices = "auto|shm|tcp",
     .help = "Transport of the chunks."},
    {.name = "memory",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct bench_settings, memory),
     .fallback = "mapped",
     .choices = "mapped|private|device",
     .help = "Tensors that the other ranks map (muster_tensor_new), private memory, or memory of a "
             "GPU, which NCCL reduces."},
    {.name = "dtype",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct bench_settings, dtype),
     .fallback = "f32",
     .choices = "f32|f64|i32|i64|u8|f16|bf16|i8|u32|u64|bool|i16|u16",
     .help = "Type of the elements; bool is reduced by or, all others by sum."},
    {.name = "algorithm",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct bench_settings, algorithm),
     .fallback = "auto",
     .choices = "auto|direct|ring|halving|double_tree|blocks|two_level",
     .help = "Use only this algorithm, for sizes that it supports (direct: up to 4 MiB)."},
    {.name = "iters",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_settings, iterations),
     .max = 1000000,
     .help = "Measured operations per size; 0 chooses by size."},
    {.name = "compute-us",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct bench_settings, compute_us),
     .max = 10000000,
     .help = "Compute for this many microseconds before each operation, as training does."},
    {.name = "chunk-bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct bench_settings, chunk_bytes),
     .max = UINT32_MAX,
     .help = "Largest chunk; 0 is the default (261824, about 256 KiB)."},
    {.name = "direct-max-bytes",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct bench_settings, direct_max_bytes),
     .max = UINT32_MAX,
     .help = "Largest tensor that is exchanged directly; 0 is the default (32 KiB)."},
    {.name = "bind",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct bench_settings, is_bound),
     .help = "Bind rank r to CPU r modulo the number of CPUs."},
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct bench_settings, is_json),
     .help = "Print one JSON object per size, with wire_reason (why shm or tcp) and input (how a "
             "rank provided its tensor: mapped, slot, staged, sent)."},
};

const struct muster_options bench_allreduce_options = {
    .command = "muster bench allreduce",
    .usage = "[-n N] [--bytes A,B,…] [--json]",
    .about =
        "Time all-reduces (sum) between N processes. Each rank rewrites its tensor before each "
        "operation, and all ranks start together; a sample is the time of the slowest rank.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

/* --- The parent --- */

static bool spawn_rank(struct bench_run *run, uint32_t index)
{
    int down[2], up[2];
    struct bench_child *child = &run->children[index];

    if (pipe(down) != 0 || pipe(up) != 0)
        return false;
    child->pid = fork();
    if (child->pid < 0)
        return false;
    if (child->pid == 0) {
        close(down[1]);
        close(up[0]);
        _exit(bench_allreduce_rank(run, index, down[0], up[1]));
    }
    close(down[0]);
    close(up[1]);
    child->to_child = down[1];
    child->from_child = up[0];
    return true;
}

static bool has_ended_well(struct bench_child *child)
{
    int status = 0;

    child->has_ended = waitpid(child->pid, &status, 0) == child->pid && status == 0;
    if (child->has_ended)
        child->pid = 0;
    return child->has_ended;
}

/* Wait until rank `index` has something to read. False: another rank has failed, for which this one
 * may wait for ever. A rank that has ended well is left out from then on. */
static bool await_rank(struct bench_run *run, uint32_t index)
{
    struct pollfd polls[BENCH_RANKS_MAX];

    do {
        for (uint32_t i = 0; i < run->rank_count; i++)
            polls[i] = (struct pollfd){
                .fd = run->children[i].has_ended && i != index ? -1 : run->children[i].from_child,
                .events = i == index ? POLLIN : 0};
        if (poll(polls, run->rank_count, -1) < 0 && errno != EINTR)
            return false;
        for (uint32_t i = 0; i < run->rank_count; i++)
            if (i != index && polls[i].revents != 0 && !has_ended_well(&run->children[i]))
                return false;
    } while (polls[index].revents == 0);
    return true;
}

static bool read_rank(struct bench_run *run, uint32_t index, void *bytes, size_t count)
{
    return await_rank(run, index) && bench_read_all(run->children[index].from_child, bytes, count);
}

/* Each rank listens at a port of its own; all of them get the addresses of all, in the order of
 * ranks. */
static bool introduce_ranks(struct bench_run *run)
{
    struct muster_address addresses[BENCH_RANKS_MAX];

    for (uint32_t i = 0; i < run->rank_count; i++)
        if (!read_rank(run, i, &addresses[i], sizeof(addresses[i])))
            return false;
    for (uint32_t i = 0; i < run->rank_count; i++)
        if (!bench_write_all(run->children[i].to_child, addresses,
                             run->rank_count * sizeof(addresses[0])))
            return false;
    return true;
}

/* One size, as all ranks saw it. */
struct outcome {
    struct bench_size size;
    double *slowest;
    size_t count;
    bool is_identical;
};

/* As a JSON string; control characters are left out. */
static void print_text(const char *key, const char *text)
{
    printf("\"%s\":\"", key);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        if ((unsigned char)*text >= ' ')
            putchar(*text);
    }
    printf("\",");
}

static void print_choice(const struct outcome *outcome)
{
    print_text("wire_reason", outcome->size.wire_reason);
    print_text("input", outcome->size.input);
    print_text("process_vm_readv", outcome->size.memory_reading);
}

static const char *wire_of(const struct outcome *outcome)
{
    return outcome->size.is_device ? "nccl" : outcome->size.is_shm ? "shm" : "tcp";
}

/* A table names the transport and its reason once, above the first row. */
static void print_reason(const struct bench_run *run, uint64_t bytes, const struct outcome *outcome)
{
    if (bytes != run->sizes[0])
        return;
    printf("wire %s: %s", wire_of(outcome), outcome->size.wire_reason);
    if (outcome->size.memory_reading[0] != '\0' && strcmp(run->settings->memory, "private") == 0)
        printf("; process_vm_readv: %s", outcome->size.memory_reading);
    putchar('\n');
}

static void print_line(const struct bench_run *run, uint64_t bytes, const struct outcome *outcome)
{
    double median_us = bench_quantile(outcome->slowest, outcome->count, 0.5);
    double p99_us = bench_quantile(outcome->slowest, outcome->count, 0.99);
    double rate = (double)bytes / median_us / 1e3;
    const char *wire = wire_of(outcome);

    if (run->settings->is_json) {
        printf(
            "{\"bench\":\"allreduce\",\"n\":%u,\"bytes\":%llu,\"wire\":\"%s\",\"compute_us\":%llu,",
            run->rank_count, (unsigned long long)bytes, wire,
            (unsigned long long)run->settings->compute_us);
        print_choice(outcome);
        printf("\"memory\":\"%s\",\"dtype\":\"%s\",\"algorithm\":\"%s\",\"iters\":%zu,"
               "\"median_us\":%.3f,\"p99_us\":%.3f,\"gbytes_per_s\":%.3f,\"sent_bytes\":%llu,"
               "\"plan_sent_bytes\":%llu,\"memory_bytes\":%llu,\"plan_memory_bytes\":%llu,"
               "\"steady_allocations\":%llu,\"identical\":%s}\n",
               run->settings->memory, run->settings->dtype, outcome->size.algorithm, outcome->count,
               median_us, p99_us, rate, (unsigned long long)outcome->size.used.sent_bytes,
               (unsigned long long)outcome->size.plan.sent_bytes,
               (unsigned long long)outcome->size.used.memory_bytes,
               (unsigned long long)outcome->size.plan.memory_bytes,
               (unsigned long long)outcome->size.steady_allocations,
               outcome->is_identical ? "true" : "false");
    } else {
        print_reason(run, bytes, outcome);
        printf("n %u  %10llu bytes  %s  %-7s  %-6s  %-6s  median %10.2f us  p99 %10.2f us  %7.3f "
               "GB/s  %s\n",
               run->rank_count, (unsigned long long)bytes, wire, run->settings->memory,
               outcome->size.input, outcome->size.algorithm, median_us, p99_us, rate,
               outcome->is_identical ? "identical" : "DIFFERENT");
    }
}

/* The digest of the result is compared between ranks for every operation, not only the last. */
static bool read_outcome(struct bench_run *run, uint32_t rank, struct outcome *outcome,
                         uint64_t *digests)
{
    if (!read_rank(run, rank, &outcome->size, sizeof(outcome->size)))
        return false;
    for (size_t i = 0; i < outcome->count; i++) {
        struct bench_sample sample;

        if (!bench_read_all(run->children[rank].from_child, &sample, sizeof(sample)))
            return false;
        outcome->slowest[i] = sample.us > outcome->slowest[i] ? sample.us : outcome->slowest[i];
        outcome->is_identical = outcome->is_identical && (rank == 0 || digests[i] == sample.digest);
        digests[i] = sample.digest;
    }
    return true;
}

/* Read one size's samples of all ranks. Returns whether all could be read and were identical. */
static bool collect_samples(struct bench_run *run, uint64_t bytes)
{
    size_t count = bench_iterations(run->settings, bytes);
    struct outcome outcome = {
        .slowest = calloc(count, sizeof(double)), .count = count, .is_identical = true};
    uint64_t *digests = calloc(count, sizeof(*digests));
    bool is_read = outcome.slowest != NULL && digests != NULL;

    for (uint32_t rank = 0; rank < run->rank_count && is_read; rank++)
        is_read = read_outcome(run, rank, &outcome, digests);
    if (is_read)
        print_line(run, bytes, &outcome);
    free(outcome.slowest);
    free(digests);
    return is_read && output_flush() && outcome.is_identical;
}

/* After a failure the others may wait for the failed one: they are killed. */
static bool reap_ranks(const struct bench_run *run, bool is_failed)
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
    const struct bench_list_rule rule = {.command = "muster bench allreduce",
                                         .option = "--bytes",
                                         .is_sizes = true,
                                         .min = 1,
                                         .max = BENCH_BYTES_MAX,
                                         .multiple = muster_dtype_bytes(run->dtype),
                                         .count_max = BENCH_SIZES_MAX};
    struct bench_list list;

    if (!bench_list_parse(&rule, text, &list))
        return false;
    memcpy(run->sizes, list.values, list.count * sizeof(list.values[0]));
    run->size_count = list.count;
    return true;
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
    struct bench_settings settings = {.rank_count = 0};
    struct bench_run run = {.settings = &settings};
    bool is_ok = true;
    int exit_code = EXIT_OK;

    if (!command_parse_all(&bench_allreduce_options, argc, argv, &settings, &exit_code))
        return exit_code;
    run.rank_count = (uint32_t)settings.rank_count;
    run.dtype = parse_dtype(settings.dtype);
    if (!parse_sizes(&run, settings.bytes))
        return EXIT_USAGE;
    if (!command_has_files("muster bench allreduce", FILES_BASE + FILES_PER_RANK * run.rank_count))
        return EXIT_OTHER;
    fflush(stdout);
    run.meet =
        mmap(NULL, sizeof(*run.meet), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    is_ok = run.meet != MAP_FAILED;
    for (uint32_t i = 0; i < run.rank_count && is_ok; i++)
        is_ok = spawn_rank(&run, i);
    is_ok = is_ok && introduce_ranks(&run);
    for (size_t i = 0; i < run.size_count && is_ok; i++)
        is_ok = collect_samples(&run, run.sizes[i]);
    return reap_ranks(&run, !is_ok) ? EXIT_OK : EXIT_OTHER;
}
