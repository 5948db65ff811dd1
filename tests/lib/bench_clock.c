#include "bench_clock.h"

#include <time.h>

uint64_t bench_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

double bench_clock_us(void)
{
    return (double)bench_clock_ns() / 1e3;
}

double bench_clock_ms(void)
{
    return (double)bench_clock_ns() / 1e6;
}

double bench_clock_s(void)
{
    return (double)bench_clock_ns() / 1e9;
}
