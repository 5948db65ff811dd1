/* Reductions of many sources at once: every type, reduction, path and number of sources against one
 * element at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collective/kernel/kernels.h"
#include "assertion_count.h"
#include "kernel_reference.h"

#include <muster/collective.h>

#include <string.h>

#define SOURCES_MAX 9
#define COUNT_MAX   1043 /* two blocks and a few, and no multiple of a vector */
#define ROOM        ((COUNT_MAX + 16) * 8)
#define CANARY      0x5a

struct room {
    _Alignas(64) uint8_t bytes[ROOM];
};

struct trial {
    const struct muster_kernels *kernels;
    enum muster_dtype dtype;
    enum muster_reduction reduction;
    uint32_t n;
    size_t count, shift; /* elements off the alignment of a vector */
};

static struct room rooms[SOURCES_MAX], into, expected;

static void fill_sources(const struct trial *trial, const void **ret_from)
{
    size_t element = muster_dtype_bytes(trial->dtype);

    for (uint32_t k = 0; k < trial->n; k++) {
        uint8_t *at = rooms[k].bytes + (trial->shift + k) % 5 * element;

        reference_fill(trial->dtype, at, trial->count, 7 * k + trial->n);
        ret_from[k] = at;
    }
}

static void check_fold(const struct trial *trial, void *result, const void *want, const char *what)
{
    fail_if(memcmp(result, want, trial->count * muster_dtype_bytes(trial->dtype)) != 0,
            "%s: %s of %s x %zu, %u sources, shifted by %zu, path %s", what,
            muster_reduction_name(trial->reduction), muster_dtype_name(trial->dtype), trial->count,
            trial->n, trial->shift, trial->kernels->name);
}

static void try_count(const struct trial *trial)
{
    size_t element = muster_dtype_bytes(trial->dtype), bytes = trial->count * element;
    muster_kernel_fold_fn *fold = trial->kernels->all[trial->dtype][trial->reduction];
    uint8_t *at = into.bytes + trial->shift * element;
    const void *from[SOURCES_MAX];

    fill_sources(trial, from);
    memset(into.bytes, CANARY, sizeof(into.bytes));
    reference_reduce_all(trial->dtype, trial->reduction, expected.bytes, from, trial->n,
                         trial->count);
    fold(at, from, trial->n, trial->count);
    check_fold(trial, at, expected.bytes, "apart");
    fail_if(at[bytes] != CANARY || (trial->shift > 0 && at[-1] != CANARY),
            "%s of %s x %zu writes elsewhere", muster_reduction_name(trial->reduction),
            muster_dtype_name(trial->dtype), trial->count);

    for (uint32_t k = 0; k < trial->n; k++) {
        memcpy(at, from[k], bytes);
        fold((void *)(uintptr_t)from[k], from, trial->n, trial->count);
        check_fold(trial, (void *)(uintptr_t)from[k], expected.bytes, "into one of the sources");
        memcpy((void *)(uintptr_t)from[k], at, bytes);
    }
}

static void try_pair(struct trial *trial)
{
    static const size_t counts[] = {1, 2, 3, 7, 16, 17, 33, 67, 511, 513, COUNT_MAX};

    for (trial->n = 2; trial->n <= SOURCES_MAX; trial->n++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            trial->count = counts[i];
            trial->shift = i % 4;
            try_count(trial);
        }
}

static void every_path_equals_the_reference_for_every_number_of_sources(void **state)
{
    struct trial trial;

    (void)state;
    for (size_t path = 0; (trial.kernels = muster_kernels_at(path)) != NULL; path++)
        for (int dtype = 0; dtype < MUSTER_DTYPE_COUNT; dtype++)
            for (int reduction = 0; reduction < MUSTER_REDUCTION_COUNT; reduction++) {
                bool is_there = trial.kernels->reduce[dtype][reduction] != NULL;

                trial.dtype = (enum muster_dtype)dtype;
                trial.reduction = (enum muster_reduction)reduction;
                assert_int_equal(trial.kernels->all[dtype][reduction] != NULL, is_there);
                if (is_there)
                    try_pair(&trial);
            }
}

static void all_types_but_the_small_floats_have_the_bits_of_pairwise_reduction(void **state)
{
    struct trial trial = {.n = 6, .count = 67, .kernels = muster_kernels_best()};
    const void *from[SOURCES_MAX];

    (void)state;
    for (int dtype = 0; dtype < MUSTER_DTYPE_COUNT; dtype++)
        for (int reduction = 0; reduction < MUSTER_REDUCTION_COUNT; reduction++) {
            trial.dtype = (enum muster_dtype)dtype;
            trial.reduction = (enum muster_reduction)reduction;
            if (!muster_reduction_is_defined(trial.dtype, trial.reduction) ||
                trial.dtype == MUSTER_F16 || trial.dtype == MUSTER_BF16)
                continue;
            fill_sources(&trial, from);
            memcpy(expected.bytes, from[0], trial.count * muster_dtype_bytes(trial.dtype));
            for (uint32_t k = 1; k < trial.n; k++)
                muster_kernel_reduce(trial.dtype, trial.reduction, expected.bytes, from[k],
                                     trial.count);
            if (trial.reduction == MUSTER_MEAN)
                muster_kernel_divide(trial.dtype, expected.bytes, trial.n, trial.count);
            muster_kernel_reduce_all(trial.dtype, trial.reduction, into.bytes, from, trial.n,
                                     trial.count);
            check_fold(&trial, into.bytes, expected.bytes, "not the bits of pairwise reduction");
        }
}

static void small_floats_are_rounded_once_for_all_sources(void **state)
{
    /* 2048 + 1 is a tie in f16 and goes back to 2048, 2048 + 1 + 1 is not. */
    const uint16_t large = muster_f16_from_f32(2048), one = muster_f16_from_f32(1);
    const uint16_t large_b = muster_bf16_from_f32(256), one_b = muster_bf16_from_f32(1);
    uint16_t sum, mean, sum_b;

    (void)state;
    muster_kernel_reduce_all(MUSTER_F16, MUSTER_SUM, &sum, (const void *[]){&large, &one, &one}, 3,
                             1);
    muster_kernel_reduce_all(MUSTER_F16, MUSTER_MEAN, &mean,
                             (const void *[]){&large, &one, &one, &large}, 4, 1);
    muster_kernel_reduce_all(MUSTER_BF16, MUSTER_SUM, &sum_b,
                             (const void *[]){&large_b, &one_b, &one_b}, 3, 1);

    assert_int_equal(sum, muster_f16_from_f32(2050));
    assert_int_equal(mean, muster_f16_from_f32(1024.5f));
    assert_int_equal(sum_b, muster_bf16_from_f32(258));
}

static void one_source_is_copied_bit_by_bit(void **state)
{
    const uint32_t nan = 0xFFC12345u;
    const uint8_t truth = 7;
    uint32_t copy = 0;
    uint8_t same = 7;

    (void)state;
    muster_kernel_reduce_all(MUSTER_F32, MUSTER_MEAN, &copy, (const void *[]){&nan}, 1, 1);
    muster_kernel_reduce_all(MUSTER_BOOL, MUSTER_OR, &same, (const void *[]){&truth}, 1, 1);
    muster_kernel_reduce_all(MUSTER_BOOL, MUSTER_OR, &same, (const void *[]){&same}, 1, 1);

    assert_int_equal(copy, nan);
    assert_int_equal(same, 7);
}

/* sum(weight * x) / sum(weight), one element at a time. */
static void mean_weighted(enum muster_dtype dtype, const void *const *from, const uint64_t *weights,
                          const struct trial *trial)
{
    size_t element = muster_dtype_bytes(dtype);

    for (size_t i = 0; i < trial->count; i++) {
        double sum = 0, total = 0;

        for (uint32_t k = 0; k < trial->n; k++) {
            if (weights[k] == 0)
                continue;
            sum += reference_decode(dtype, (const uint8_t *)from[k] + i * element) *
                   (double)weights[k];
            total += (double)weights[k];
        }
        reference_encode(dtype, total > 0 ? sum / total : 0, expected.bytes + i * element);
    }
}

static void every_path_weighs_as_the_reference(void **state)
{
    static const uint64_t weights[SOURCES_MAX] = {3, 0, 1, 1000003, 0, 64, 7, UINT64_MAX, 2};
    static const enum muster_dtype dtypes[] = {MUSTER_F16, MUSTER_BF16, MUSTER_F32, MUSTER_F64};
    struct trial trial = {.reduction = MUSTER_MEAN};
    const void *from[SOURCES_MAX];

    (void)state;
    for (size_t path = 0; (trial.kernels = muster_kernels_at(path)) != NULL; path++)
        for (size_t d = 0; d < 4; d++)
            for (trial.n = 1; trial.n <= SOURCES_MAX; trial.n++) {
                trial.dtype = dtypes[d];
                trial.shift = trial.n % 4;
                trial.count = trial.n % 2 == 0 ? COUNT_MAX : trial.n * 7;
                fill_sources(&trial, from);
                mean_weighted(trial.dtype, from, weights, &trial);
                trial.kernels->weigh[trial.dtype](into.bytes, from, weights, trial.n, trial.count);
                check_fold(&trial, into.bytes, expected.bytes, "by weight");
                trial.kernels->weigh[trial.dtype]((void *)(uintptr_t)from[trial.n - 1], from,
                                                  weights, trial.n, trial.count);
                check_fold(&trial, (void *)(uintptr_t)from[trial.n - 1], expected.bytes,
                           "by weight, in place");
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_equals_the_reference_for_every_number_of_sources),
        cmocka_unit_test(all_types_but_the_small_floats_have_the_bits_of_pairwise_reduction),
        cmocka_unit_test(small_floats_are_rounded_once_for_all_sources),
        cmocka_unit_test(every_path_weighs_as_the_reference),
        cmocka_unit_test(one_source_is_copied_bit_by_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
