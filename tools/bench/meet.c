/* A barrier in shared memory: a counter and a generation. All ranks leave it within a cache miss of
 * each other, which no message could do. */
#include "bench/meet.h"

#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

/* With a processor each, a rank spins and hardly ever yields. With fewer processors than ranks
 * (crowded) it yields at every second look, since the one that it waits for may need its processor.
 */
#define LOOKS_PER_YIELD         20000u
#define LOOKS_PER_WAIT          4096u
#define LOOKS_PER_YIELD_CROWDED 2u
#define LOOKS_PER_WAIT_CROWDED  64u

/* sysconf reads a file each time, so the answer is kept. */
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
        /* The counter goes back before the generation moves: a rank that sees the new generation
         * may arrive at the next meeting at once. */
        atomic_store(&meet->arrived, 0);
        atomic_store(&meet->generation, generation + 1);
        return;
    }
    for (uint32_t looks = 1; atomic_load(&meet->generation) == generation; looks++) {
        if (looks % (is_crowded ? LOOKS_PER_WAIT_CROWDED : LOOKS_PER_WAIT) == 0)
            on_wait(data);
        if (looks % (is_crowded ? LOOKS_PER_YIELD_CROWDED : LOOKS_PER_YIELD) == 0)
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
