/* From times to a table of plan parameters: pure, so that a test needs no measurement. */
#include "bench/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORTH 0.97 /* of the time of a simpler algorithm; less of a gain is within the noise */

bool bench_tune_add(struct bench_tune_set *set, uint64_t bytes, enum muster_algorithm algorithm,
                    double median_us)
{
    uint32_t at = 0;

    while (at < set->count && set->best[at].bytes < bytes)
        at++;
    if (at < set->count && set->best[at].bytes == bytes) {
        if (median_us < set->best[at].median_us * WORTH)
            set->best[at] = (struct bench_tune_best){bytes, algorithm, median_us};
        return true;
    }
    if (set->count == BENCH_TUNE_SIZES_MAX)
        return false;
    memmove(&set->best[at + 1], &set->best[at], (set->count - at) * sizeof(set->best[0]));
    set->best[at] = (struct bench_tune_best){bytes, algorithm, median_us};
    set->count++;
    return true;
}

static int compare_sets(const void *a, const void *b)
{
    const struct bench_tune_set *left = a, *right = b;

    return (left->n < right->n) - (left->n > right->n);
}

/* A table without room keeps the rows of larger n, which came first. */
static void put_row(struct muster_plan_parameters *parameters, uint32_t n, uint64_t bytes_max,
                    enum muster_algorithm algorithm)
{
    if (parameters->row_count == MUSTER_PLAN_ROWS_MAX)
        return;
    parameters->rows[parameters->row_count++] =
        (struct muster_plan_row){.kind = 0, /* all_reduce */
                                 .wire = MUSTER_WIRE_TCP,
                                 .span = MUSTER_SPAN_ONE_HOST,
                                 .algorithm = (uint8_t)algorithm,
                                 .n_min = n,
                                 .bytes_max = bytes_max};
}

/* The last row of a set has no upper bound (0), so that larger sizes are covered. */
static void put_set(struct muster_plan_parameters *parameters, const struct bench_tune_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct bench_tune_best *best = &set->best[i], *next = best + 1;

        if (i + 1 == set->count)
            put_row(parameters, set->n, 0, best->algorithm);
        else if (next->algorithm != best->algorithm)
            put_row(parameters, set->n, (uint64_t)sqrt((double)best->bytes * (double)next->bytes),
                    best->algorithm);
    }
}

void bench_tune_make(struct bench_tune_set *sets, size_t count,
                     struct muster_plan_parameters *parameters)
{
    qsort(sets, count, sizeof(*sets), compare_sets);
    for (size_t i = 0; i < count; i++)
        put_set(parameters, &sets[i]);
}
