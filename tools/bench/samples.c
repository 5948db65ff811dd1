/* Measured values, and their quantiles. */
#include "bench/samples.h"

#include <muster/base.h>

#include "common/output.h"

#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* The nearest rank, without interpolation: a value that was measured. */
double bench_quantile(double *samples, size_t count, double q)
{
    size_t index = (size_t)(q * (double)count);

    MUSTER_ASSERT(count > 0);
    qsort(samples, count, sizeof(*samples), compare_doubles);
    return samples[index < count ? index : count - 1];
}

void bench_samples_add(struct bench_samples *samples, double value)
{
    if (samples->count == samples->capacity) {
        samples->capacity = 2 * samples->capacity + 64;
        samples->at = realloc(samples->at, samples->capacity * sizeof(double));
        if (samples->at == NULL)
            output_no_memory();
    }
    samples->at[samples->count++] = value;
}

double bench_samples_quantile(struct bench_samples *samples, double q)
{
    return samples->count == 0 ? 0 : bench_quantile(samples->at, samples->count, q);
}
