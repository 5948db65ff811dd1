#include "bench/meet.h"

#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

#define LOOKS_PER_YIELD 20000u /* with a processor each; else 2 */
#define LOOKS_PER_WAIT  4096u  /* with a processor each; else 64 */

/* To ask costs a file. */
static uint32_t count_processors(void)
{
    static uint32_t count;

    if (count == 0)
        count = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    return count;
}

void bench_meet(struct bench_meet *meet, uint32_t count, void (*on_wait)(void *data), void *data)
{
    uint32_t generation = atomic_load(&meet->generation);
    bool is_crowded = count > count_processors();

    if (atomic_fetch_add(&meet->arrived, 1) + 1 == count) {
        atomic_store(&meet->arrived, 0);
        atomic_store(&meet->generation, generation + 1);
        return;
    }
    for (uint32_t looks = 1; atomic_load(&meet->generation) == generation; looks++) {
        if (looks % (is_crowded ? 64 : LOOKS_PER_WAIT) == 0)
            on_wait(data);
        if (is_crowded ? looks % 2 == 0 : looks % LOOKS_PER_YIELD == 0)
            sched_yield();
    }
}

void bench_bind(uint32_t rank)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(rank % count_processors(), &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}
