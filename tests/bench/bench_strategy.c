/* All-reduces of a training program, as a member of a job sees them: under whatever `muster run`
 * gives it, TLS too. Each step reduces ELEMENTS floats; all meet in front of the clock. Rank 0
 * prints the medians of the time and of its own processor time, which says more on a busy machine.
 * muster run -n 2 --tls auto -- bench_strategy ELEMENTS STEPS With `slots=N` behind it the sum is one of
 * N micro-batches, with `mapped` the all-reduce one of mapped memory. With a third number, the state's
 * bytes, the first begin alone: how long the state takes to all. With `same` behind it all members
 * start with the same state, with `mapped` it is in memory that they map. muster run -n 4 --
 * bench_strategy 1 0 1073741824 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <muster/muster.h>

#include "bench_clock.h"

#define WARM_UP 3

static double cpu_us(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static int compare_times(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void fill_values(const struct muster_tensor *tensor)
{
    for (uint64_t i = 0; i < tensor->count; i++)
        ((float *)tensor->data)[i] = (float)(i % 97);
}

static enum muster_rc fill_slots(struct muster_micro_batches *micro)
{
    struct muster_dataset_shares shares;
    struct muster_tensor tensor;
    uint32_t slot;
    enum muster_rc rc = muster_micro_batches_begin(micro, &shares);

    while (rc == MUSTER_OK && muster_micro_batches_next(micro, &slot, &tensor))
        fill_values(&tensor);
    return rc;
}

/* micro NULL: an all-reduce. */
static enum muster_rc one_step(struct muster_strategy *strategy, struct muster_tensor *meet,
                               struct muster_tensor *share, struct muster_micro_batches *micro,
                               double *ret_us, double *ret_cpu_us)
{
    struct muster_tensor sum;
    uint64_t step = 0;
    double begun_us, begun_cpu_us;
    enum muster_rc rc = muster_strategy_begin(strategy, &step, NULL);

    if (rc == MUSTER_OK && micro != NULL)
        rc = fill_slots(micro);
    if (rc != MUSTER_OK)
        return rc;
    if (micro == NULL)
        fill_values(share);
    rc = muster_strategy_all_reduce(strategy, meet, 1, MUSTER_SUM);
    if (rc != MUSTER_OK)
        return rc;
    begun_us = bench_clock_us();
    begun_cpu_us = cpu_us();
    rc = micro != NULL ? muster_micro_batches_sum(micro, &sum)
                       : muster_strategy_all_reduce(strategy, share, 1, MUSTER_SUM);
    *ret_us = bench_clock_us() - begun_us;
    *ret_cpu_us = cpu_us() - begun_cpu_us;
    return rc == MUSTER_OK ? muster_strategy_commit(strategy) : rc;
}

static void print_times(size_t bytes, double *times, double *cpu_times, size_t steps)
{
    qsort(times, steps, sizeof(*times), compare_times);
    qsort(cpu_times, steps, sizeof(*cpu_times), compare_times);
    printf("{\"bench\":\"strategy\",\"bytes\":%zu,\"median_us\":%.0f,\"min_us\":%.0f,"
           "\"cpu_median_us\":%.0f,\"cpu_min_us\":%.0f}\n",
           bytes, times[steps / 2], times[0], cpu_times[steps / 2], cpu_times[0]);
}

/* slot_count 0: all-reduces. */
static enum muster_rc measure_strategy(struct muster_strategy *strategy, uint64_t count,
                                       size_t steps, uint32_t slot_count, bool is_mapped)
{
    const struct muster_micro_batches_options options = {slot_count, MUSTER_F32, count};
    struct muster_micro_batches *micro = NULL;
    size_t rounds = WARM_UP + steps;
    float one = 1, *values = calloc(count, sizeof(*values));
    double *times = calloc(2 * rounds, sizeof(*times)), *cpu_times = times + rounds;
    struct muster_tensor meet = {.data = &one, .count = 1, .dtype = MUSTER_F32};
    struct muster_tensor share = {.data = values, .count = count, .dtype = MUSTER_F32};
    enum muster_rc rc = MUSTER_OK;

    if (values == NULL || times == NULL)
        abort();
    rc = muster_strategy_register(strategy, "one", &meet);
    if (rc == MUSTER_OK && slot_count > 0)
        rc = muster_micro_batches_open(strategy, &options, &micro, NULL);
    if (rc == MUSTER_OK && is_mapped)
        rc = muster_strategy_tensor_new(strategy, MUSTER_F32, count, &share);
    for (size_t i = 0; i < rounds && rc == MUSTER_OK; i++)
        rc = one_step(strategy, &meet, &share, micro, &times[i], &cpu_times[i]);
    if (rc == MUSTER_OK && atoi(getenv("RANK")) == 0)
        print_times(count * sizeof(*values), times + WARM_UP, cpu_times + WARM_UP, steps);
    if (is_mapped)
        muster_strategy_tensor_free(strategy, &share);
    muster_micro_batches_close(micro);
    muster_strategy_close(strategy); /* the tensors are its own until here */
    free(values);
    free(times);
    return rc;
}

/* Whether the word stands behind the numbers. */
static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 4; i < argc; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

static enum muster_rc first_begin(struct muster_strategy *strategy,
                                  const struct muster_tensor *state)
{
    double begun_us = bench_clock_us(), begun_cpu_us = cpu_us();
    uint64_t step;
    enum muster_rc rc = muster_strategy_begin(strategy, &step, NULL);

    if (rc == MUSTER_OK)
        printf("{\"bench\":\"first_begin\",\"bytes\":%llu,\"ms\":%.1f,\"cpu_ms\":%.1f}\n",
               (unsigned long long)state->count, (bench_clock_us() - begun_us) / 1e3,
               (cpu_us() - begun_cpu_us) / 1e3);
    return rc;
}

static enum muster_rc measure_first_begin(struct muster_strategy *strategy, int argc, char **argv)
{
    uint64_t bytes = strtoull(argv[3], NULL, 10);
    struct muster_tensor state = {.data = NULL, .count = bytes, .dtype = MUSTER_U8};
    bool is_mapped = has_word(argc, argv, "mapped");
    enum muster_rc rc = MUSTER_OK;

    if (is_mapped)
        rc = muster_strategy_tensor_new(strategy, MUSTER_U8, bytes, &state);
    else
        state.data = malloc(bytes);
    if (state.data == NULL)
        abort();
    /* as an initial model is: in memory */
    memset(state.data, has_word(argc, argv, "same") ? 1 : atoi(getenv("RANK")), bytes);
    rc = muster_strategy_register(strategy, "state", &state);
    if (rc == MUSTER_OK)
        rc = first_begin(strategy, &state);
    muster_strategy_close(strategy); /* frees what it has mapped */
    if (!is_mapped)
        free(state.data);
    return rc;
}

int main(int argc, char **argv)
{
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {0};
    enum muster_rc rc;

    if (argc < 3 || argc > 6 || getenv("RANK") == NULL) {
        fprintf(stderr, "usage: muster run -n N -- bench_strategy ELEMENTS STEPS [STATE_BYTES "
                        "[same] [mapped] | slots=N | mapped]\n");
        return 2;
    }
    rc = muster_strategy_open(NULL, &strategy, &error);
    if (rc == MUSTER_OK && argc >= 4 && argv[3][0] >= '0' && argv[3][0] <= '9')
        rc = measure_first_begin(strategy, argc, argv);
    else if (rc == MUSTER_OK)
        rc = measure_strategy(strategy, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10),
                              argc > 3 && strncmp(argv[3], "slots=", 6) == 0
                                  ? (uint32_t)strtoul(argv[3] + 6, NULL, 10)
                                  : 0,
                              argc > 3 && strcmp(argv[3], "mapped") == 0);
    if (rc != MUSTER_OK)
        fprintf(stderr, "bench_strategy: %s: %s\n", muster_rc_name(rc), error.text);
    return rc == MUSTER_OK ? 0 : 1;
}
