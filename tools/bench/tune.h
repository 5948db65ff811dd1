/* Measurements of `muster bench tune`, and the table that follows from them. Pure. */
#ifndef MUSTER_TOOLS_BENCH_TUNE_H
#define MUSTER_TOOLS_BENCH_TUNE_H

#include <muster/view.h>

#define BENCH_TUNE_MEMBERS_MAX 8u
#define BENCH_TUNE_SIZES_MAX   32u

/** The fastest of one size. */
struct bench_tune_best {
    uint64_t bytes;
    enum muster_algorithm algorithm;
    double median_us;
};

/** Measurements with n processes, by rising size. Zero at first but for n. */
struct bench_tune_set {
    uint32_t n;
    uint32_t count;
    struct bench_tune_best best[BENCH_TUNE_SIZES_MAX];
};

/** An algorithm took median_us at that size. Ones that come later replace the best of a size only
 * when they are 3 % faster: the simplest first. False: too many sizes. */
bool bench_tune_add(struct bench_tune_set *set, uint64_t bytes, enum muster_algorithm algorithm,
                    double median_us);

/** Rows for all_reduce over TCP on one host: the largest n first; neighbours that agree are one
 * row, and where two sizes differ the border lies in the middle of their logarithms. What has no
 * room is left out. Sorts the sets. */
void bench_tune_make(struct bench_tune_set *sets, size_t count,
                     struct muster_plan_parameters *parameters);

#endif
