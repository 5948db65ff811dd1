/* us of one all_reduce of 1 KiB by the C API, one member, in blocks of 1,000: strategy_call CALLS */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <muster/strategy.h>

#include "meet.h"

#define COUNT 256
#define BLOCK 1000

static double block_us(struct muster_strategy *strategy, struct muster_tensor *tensor)
{
    double begin = meet_now_us();

    for (int i = 0; i < BLOCK; i++)
        if (muster_strategy_all_reduce(strategy, tensor, 1, MUSTER_SUM) != MUSTER_OK)
            abort();
    return (meet_now_us() - begin) / BLOCK;
}

int main(int argc, char **argv)
{
    static float values[COUNT];
    struct muster_tensor tensor = {.data = values, .count = COUNT, .dtype = MUSTER_F32};
    int blocks = argc == 2 ? atoi(argv[1]) / BLOCK : 0;
    double *samples = blocks > 0 ? calloc((size_t)blocks, sizeof(*samples)) : NULL;
    struct muster_strategy *strategy;
    struct muster_error error;
    uint64_t step;
    bool is_restored;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(0, &set);
    if (samples == NULL || sched_setaffinity(0, sizeof(set), &set) != 0 ||
        muster_strategy_open(&(struct muster_strategy_options){0}, &strategy, &error) !=
            MUSTER_OK ||
        muster_strategy_begin(strategy, &step, &is_restored) != MUSTER_OK)
        return 1;
    for (int i = 0; i < blocks; i++)
        samples[i] = block_us(strategy, &tensor);
    qsort(samples, (size_t)blocks, sizeof(*samples), meet_compare);
    printf("{\"call_us\": %.4f}\n", samples[blocks / 2]);
    if (muster_strategy_commit(strategy) != MUSTER_OK)
        return 1;
    muster_strategy_close(strategy);
    free(samples);
    return 0;
}
