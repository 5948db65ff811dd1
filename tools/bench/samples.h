/* Measured values, and their quantiles. */
#ifndef MUSTER_TOOLS_BENCH_SAMPLES_H
#define MUSTER_TOOLS_BENCH_SAMPLES_H

#include <stddef.h>

/** The q-quantile (0 … 1) of count > 0 samples; sorts them. */
double bench_quantile(double *samples, size_t count, double q);

struct bench_samples {
    double *at;
    size_t count, capacity;
};
/** Ends the process when memory is lacking. */
void bench_samples_add(struct bench_samples *samples, double value);
/** 0 of no samples. */
double bench_samples_quantile(struct bench_samples *samples, double q);

#endif
