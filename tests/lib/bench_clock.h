/* Real time, as the benchmarks tell it. */
#ifndef MUSTER_TEST_BENCH_CLOCK_H
#define MUSTER_TEST_BENCH_CLOCK_H

#include <stdint.h>

/** Monotonic. */
uint64_t bench_clock_ns(void);
double bench_clock_us(void);
double bench_clock_ms(void);
double bench_clock_s(void);

#endif
