/* Element-wise arithmetic: every dtype and reduction, with and without the undo copy, odd counts,
 * wrap-around, NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collective/kernels.h"

#include <math.h>
#include <string.h>

#define COUNT 67 /* no multiple of a vector */

#define CHECK(type, dtype)                                                                         \
    do {                                                                                           \
        type a[COUNT + 1], b[COUNT], into[COUNT + 1], swapped[COUNT + 1], before[COUNT];           \
        for (int i = 0; i <= COUNT; i++)                                                           \
            a[i] = (type)(i % 13 + 1);                                                             \
        for (int i = 0; i < COUNT; i++)                                                            \
            b[i] = (type)(i % 7 + 1);                                                              \
        for (int reduction = MUSTER_SUM; reduction <= MUSTER_PROD; reduction++) {                  \
            memcpy(into, a, sizeof(a));                                                            \
            muster_kernel_reduce(dtype, (enum muster_reduction)reduction, into, b, COUNT);         \
            for (int i = 0; i < COUNT; i++) {                                                      \
                type expected = reduction == MUSTER_MIN    ? (b[i] < a[i] ? b[i] : a[i])           \
                                : reduction == MUSTER_MAX  ? (b[i] > a[i] ? b[i] : a[i])           \
                                : reduction == MUSTER_PROD ? (type)(a[i] * b[i])                   \
                                                           : (type)(a[i] + b[i]);                  \
                assert_true(into[i] == expected);                                                  \
            }                                                                                      \
            assert_true(into[COUNT] == a[COUNT]);                                                  \
            memcpy(swapped, a, sizeof(a));                                                         \
            memcpy(before, b, sizeof(b));                                                          \
            muster_kernel_reduce_swap(dtype, (enum muster_reduction)reduction, swapped, before,    \
                                      COUNT);                                                      \
            assert_memory_equal(swapped, into, sizeof(into));                                      \
            assert_memory_equal(before, a, sizeof(before));                                        \
        }                                                                                          \
        memcpy(into, a, sizeof(a));                                                                \
        muster_kernel_divide(dtype, into, 3, COUNT);                                               \
        for (int i = 0; i < COUNT; i++)                                                            \
            assert_true(into[i] == (type)(a[i] / 3));                                              \
        assert_true(into[COUNT] == a[COUNT]);                                                      \
    } while (0)

static void every_dtype_and_reduction_is_exact(void **state)
{
    (void)state;
    CHECK(float, MUSTER_F32);
    CHECK(double, MUSTER_F64);
    CHECK(int32_t, MUSTER_I32);
    CHECK(int64_t, MUSTER_I64);
    CHECK(uint8_t, MUSTER_U8);
}

static void integers_wrap_around(void **state)
{
    int32_t a = INT32_MAX, one = 1;
    int64_t b = INT64_MIN, minus = -1;

    (void)state;
    muster_kernel_reduce(MUSTER_I32, MUSTER_SUM, &a, &one, 1);
    muster_kernel_reduce(MUSTER_I64, MUSTER_PROD, &b, &minus, 1);

    assert_int_equal(a, INT32_MIN);
    assert_true(b == INT64_MIN);
}

static void negative_integers_are_divided_towards_zero(void **state)
{
    int32_t a = -7;
    int64_t b = -7;

    (void)state;
    muster_kernel_divide(MUSTER_I32, &a, 2, 1);
    muster_kernel_divide(MUSTER_I64, &b, 2, 1);

    assert_int_equal(a, -3);
    assert_true(b == -3);
}

static void a_comparison_with_nan_keeps_the_first_operand(void **state)
{
    float first = NAN, second = 1.0f, third = 2.0f, nan = NAN;

    (void)state;
    muster_kernel_reduce(MUSTER_F32, MUSTER_MIN, &first, &second, 1);
    muster_kernel_reduce(MUSTER_F32, MUSTER_MAX, &third, &nan, 1);

    assert_true(isnan(first));
    assert_true(third == 2.0f);
}

static void dtypes_have_their_sizes(void **state)
{
    (void)state;
    assert_int_equal(muster_dtype_bytes(MUSTER_F32), 4);
    assert_int_equal(muster_dtype_bytes(MUSTER_F64), 8);
    assert_int_equal(muster_dtype_bytes(MUSTER_I32), 4);
    assert_int_equal(muster_dtype_bytes(MUSTER_I64), 8);
    assert_int_equal(muster_dtype_bytes(MUSTER_U8), 1);
    assert_int_equal(muster_dtype_bytes((enum muster_dtype)99), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_and_reduction_is_exact),
        cmocka_unit_test(integers_wrap_around),
        cmocka_unit_test(negative_integers_are_divided_towards_zero),
        cmocka_unit_test(a_comparison_with_nan_keeps_the_first_operand),
        cmocka_unit_test(dtypes_have_their_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
