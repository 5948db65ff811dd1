/* Open MPI, measured as `muster bench allreduce` measures: rewrite, barrier, clock; the slowest
 * rank counts. usage: mpirun … openmpi_allreduce BYTES ITERATIONS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define WARM_UP 3

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static void rewrite(float *tensor, size_t count, int rank, int iteration)
{
    for (size_t i = 0; i < count; i++)
        tensor[i] = (float)((i + (size_t)rank + (size_t)iteration) % 3);
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 64u << 20;
    int iterations = argc > 2 ? atoi(argv[2]) : 10;
    size_t count = bytes / sizeof(float);
    double *samples = calloc((size_t)iterations, sizeof(*samples));
    float *tensor = malloc(bytes);
    int rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < WARM_UP + iterations; i++) {
        double begin, elapsed, slowest;

        rewrite(tensor, count, rank, i);
        MPI_Barrier(MPI_COMM_WORLD);
        begin = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, tensor, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        elapsed = MPI_Wtime() - begin;
        MPI_Reduce(&elapsed, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (i >= WARM_UP)
            samples[i - WARM_UP] = slowest * 1e6;
    }
    if (rank == 0) {
        qsort(samples, (size_t)iterations, sizeof(*samples), compare);
        printf(
            "{\"peer\":\"openmpi\",\"n\":%d,\"bytes\":%zu,\"wire\":\"tcp\",\"median_us\":%.1f}\n",
            size, bytes, samples[iterations / 2]);
    }
    MPI_Finalize();
    free(tensor);
    free(samples);
    return 0;
}
