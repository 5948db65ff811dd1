/* How the ranks of a measured peer meet before each operation, and tell how long theirs took: the
 * same for every peer, so that no peer's own barrier stands in front of its clock. muster does the
 * same in tools/bench/meet.h. Compiled with -D_GNU_SOURCE. */
#ifndef MUSTER_PEERS_MEET_H
#define MUSTER_PEERS_MEET_H

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MEET_RANKS_MAX 64

struct meet {
    _Alignas(64) _Atomic unsigned arrived;
    _Alignas(64) _Atomic unsigned generation;
    struct {
        _Alignas(64) double us;
    } took[MEET_RANKS_MAX];
};

/* To ask costs a file. */
static unsigned meet_processors(void)
{
    static unsigned count;

    if (count == 0)
        count = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    return count;
}

/* The zeroed file named by MEET_FILE; binds this process to processor rank % processors. */
static struct meet *meet_open(int rank)
{
    int fd = open(getenv("MEET_FILE"), O_RDWR);
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(rank % (int)meet_processors(), &set);
    sched_setaffinity(0, sizeof(set), &set);
    return fd < 0 || ftruncate(fd, sizeof(struct meet)) != 0
               ? NULL
               : mmap(NULL, sizeof(struct meet), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static void meet_all(struct meet *meet, unsigned count)
{
    unsigned generation = atomic_load(&meet->generation);
    int is_crowded = count > meet_processors();

    if (atomic_fetch_add(&meet->arrived, 1) + 1 == count) {
        atomic_store(&meet->arrived, 0);
        atomic_store(&meet->generation, generation + 1);
        return;
    }
    for (unsigned looks = 1; atomic_load(&meet->generation) == generation; looks++)
        if (is_crowded ? looks % 2 == 0 : looks % 20000 == 0)
            sched_yield();
}

static double meet_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int meet_compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

#endif
