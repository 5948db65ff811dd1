/* MPI (Open MPI, MPICH), measured as `muster bench allreduce` measures: rewrite, meet, clock; the
 * slowest rank counts. usage: MEET_FILE=… mpirun … mpi_allreduce BYTES:ITERATIONS… */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "meet.h"

#define WARM_UP 3
#define PHASES  3
#define TILE    3072 /* a multiple of PHASES */

/* By iteration: the own tile, and that of the sum. Made beforehand, as muster's benchmark does. */
static float inputs[PHASES][TILE], sums[PHASES][TILE];

static void make_tiles(int rank, int size)
{
    for (int phase = 0; phase < PHASES; phase++)
        for (size_t i = 0; i < TILE; i++) {
            size_t sum = 0;

            for (int k = 0; k < size; k++)
                sum += (i + (size_t)k + (size_t)phase) % PHASES;
            inputs[phase][i] = (float)((i + (size_t)rank + (size_t)phase) % PHASES);
            sums[phase][i] = (float)sum;
        }
}

static size_t tile_bytes(size_t count, size_t first)
{
    return (count - first < TILE ? count - first : TILE) * sizeof(float);
}

static void rewrite_tensor(float *tensor, size_t count, int iteration)
{
    for (size_t i = 0; i < count; i += TILE)
        memcpy(tensor + i, inputs[iteration % PHASES], tile_bytes(count, i));
}

static int is_right(const float *tensor, size_t count, int iteration)
{
    for (size_t i = 0; i < count; i += TILE)
        if (memcmp(tensor + i, sums[iteration % PHASES], tile_bytes(count, i)) != 0)
            return 0;
    return 1;
}

static double slowest_of(const struct meet *meet, int size)
{
    double slowest = 0;

    for (int i = 0; i < size; i++)
        slowest = meet->took[i].us > slowest ? meet->took[i].us : slowest;
    return slowest;
}

static int measure_meet(struct meet *meet, int rank, int size, size_t bytes, int iterations)
{
    size_t count = bytes / sizeof(float);
    double *samples = calloc((size_t)iterations, sizeof(*samples));
    float *tensor = malloc(bytes);
    int is_good = 1;

    for (int i = 0; i < WARM_UP + iterations; i++) {
        double begin_us;

        rewrite_tensor(tensor, count, i);
        meet_all(meet, (unsigned)size);
        begin_us = meet_now_us();
        MPI_Allreduce(MPI_IN_PLACE, tensor, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        meet->took[rank].us = meet_now_us() - begin_us;
        is_good = is_good && is_right(tensor, count, i);
        meet_all(meet, (unsigned)size);
        if (rank == 0 && i >= WARM_UP)
            samples[i - WARM_UP] = slowest_of(meet, size);
    }
    if (rank == 0) {
        qsort(samples, (size_t)iterations, sizeof(*samples), meet_compare);
        printf("{\"n\":%d,\"bytes\":%zu,\"median_us\":%.3f,\"right\":%s}\n", size, bytes,
               samples[iterations / 2], is_good ? "true" : "false");
        fflush(stdout);
    }
    free(tensor);
    free(samples);
    return is_good;
}

int main(int argc, char **argv)
{
    struct meet *meet;
    int rank, size, is_good = 1;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    meet = meet_open(rank);
    make_tiles(rank, size);
    for (int i = 1; i < argc && meet != NULL; i++) {
        size_t bytes = 0;
        int iterations = 0;

        if (sscanf(argv[i], "%zu:%d", &bytes, &iterations) == 2)
            is_good = measure_meet(meet, rank, size, bytes, iterations) && is_good;
    }
    MPI_Finalize();
    return meet != NULL && is_good ? 0 : 1;
}
