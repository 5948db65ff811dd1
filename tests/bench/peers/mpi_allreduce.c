/* MPI (Open MPI, MPICH), measured as `muster bench allreduce` measures: rewrite, meet, clock; the
 * slowest rank counts. usage: MEET_FILE=… mpirun … mpi_allreduce BYTES:ITERATIONS… */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "meet.h"

#define WARM_UP 3
#define TILE    3072 /* a multiple of the period */

static void rewrite(float *tensor, size_t count, int rank, int iteration)
{
    size_t first = count < TILE ? count : TILE;

    for (size_t i = 0; i < first; i++)
        tensor[i] = (float)((i + (size_t)rank + (size_t)iteration) % 3);
    for (size_t i = first; i < count; i += TILE)
        memcpy(tensor + i, tensor, (count - i < TILE ? count - i : TILE) * sizeof(float));
}

static int is_right(const float *tensor, size_t count, int size, int iteration)
{
    for (size_t i = 0; i < count; i += 1 + count / 1000) {
        size_t sum = 0;

        for (int rank = 0; rank < size; rank++)
            sum += (i + (size_t)rank + (size_t)iteration) % 3;
        if (tensor[i] != (float)sum)
            return 0;
    }
    return 1;
}

static double slowest_of(const struct meet *meet, int size)
{
    double slowest = 0;

    for (int i = 0; i < size; i++)
        slowest = meet->took[i].us > slowest ? meet->took[i].us : slowest;
    return slowest;
}

static int measure(struct meet *meet, int rank, int size, size_t bytes, int iterations)
{
    size_t count = bytes / sizeof(float);
    double *samples = calloc((size_t)iterations, sizeof(*samples));
    float *tensor = malloc(bytes);
    int is_good = 1;

    for (int i = 0; i < WARM_UP + iterations; i++) {
        double begin_us;

        rewrite(tensor, count, rank, i);
        meet_all(meet, (unsigned)size);
        begin_us = meet_now_us();
        MPI_Allreduce(MPI_IN_PLACE, tensor, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        meet->took[rank].us = meet_now_us() - begin_us;
        is_good = is_good && is_right(tensor, count, size, i);
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
    for (int i = 1; i < argc && meet != NULL; i++) {
        size_t bytes = 0;
        int iterations = 0;

        if (sscanf(argv[i], "%zu:%d", &bytes, &iterations) == 2)
            is_good = measure(meet, rank, size, bytes, iterations) && is_good;
    }
    MPI_Finalize();
    return meet != NULL && is_good ? 0 : 1;
}
