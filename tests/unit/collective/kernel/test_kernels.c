/* Element-wise arithmetic: every type, reduction and path against one element at a time, and what
 * the values become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collective/kernel/kernels.h"
#include "assertion_count.h"
#include "kernel_reference.h"

#include <muster/collective.h>

#include <math.h>
#include <string.h>

#define COUNT_MAX 67 /* a few of the widest vectors, and no multiple */
#define SHIFT_MAX 4  /* elements off the alignment of a vector */
#define MANY      4096
#define CANARY    0x5a

/* Room for elements of any type, aligned as a vector. */
struct room {
    _Alignas(64) uint8_t bytes[MANY * 8];
};

/* One kernel pair with its operands and what must come of them. */
struct trial {
    const struct muster_kernels *kernels;
    enum muster_dtype dtype;
    enum muster_reduction reduction;
    size_t element, count, shift_a, shift_b; /* bytes of an element; in elements */
    struct room a, b, expected;
};

static void check_trial(bool is_right, const struct trial *trial, const char *what, size_t count)
{
    fail_if(!is_right, "%s: %s of %s x %zu, shifted by %zu and %zu elements, path %s", what,
            muster_reduction_name(trial->reduction), muster_dtype_name(trial->dtype), count,
            trial->shift_a, trial->shift_b, trial->kernels->name);
}

static void prepare_values(struct trial *trial, uint64_t seed)
{
    size_t bytes = trial->count * trial->element;

    reference_fill(trial->dtype, trial->a.bytes, trial->count, seed);
    reference_fill(trial->dtype, trial->b.bytes, trial->count, seed + 1);
    memcpy(trial->expected.bytes, trial->a.bytes, bytes);
    reference_reduce(trial->dtype, trial->reduction, trial->expected.bytes, trial->b.bytes,
                     trial->count);
}

/* The first `count` elements by both kernels; not a byte around them changes. */
static void check_prefix(const struct trial *trial, size_t count)
{
    static struct {
        _Alignas(64) uint8_t bytes[1024];
    } into, from, before;
    size_t bytes = count * trial->element;
    uint8_t *a = into.bytes + trial->shift_a * trial->element;
    uint8_t *b = from.bytes + trial->shift_b * trial->element;

    memset(into.bytes, CANARY, sizeof(into.bytes));
    memset(from.bytes, CANARY, sizeof(from.bytes));
    memcpy(a, trial->a.bytes, bytes);
    memcpy(b, trial->b.bytes, bytes);
    before = from;
    trial->kernels->reduce[trial->dtype][trial->reduction](a, b, count);
    check_trial(memcmp(a, trial->expected.bytes, bytes) == 0, trial, "reduce", count);
    check_trial(memcmp(from.bytes, before.bytes, sizeof(before.bytes)) == 0 && a[bytes] == CANARY &&
                    (trial->shift_a == 0 || a[-1] == CANARY),
                trial, "reduce writes elsewhere", count);

    memcpy(a, trial->a.bytes, bytes);
    trial->kernels->swap[trial->dtype][trial->reduction](a, b, count);
    check_trial(memcmp(a, trial->expected.bytes, bytes) == 0 &&
                    memcmp(b, trial->a.bytes, bytes) == 0,
                trial, "swap", count);
    check_trial(a[bytes] == CANARY && b[bytes] == CANARY &&
                    (trial->shift_a == 0 || a[-1] == CANARY) &&
                    (trial->shift_b == 0 || b[-1] == CANARY),
                trial, "swap writes elsewhere", count);
}

static void for_each_pair(void (*check)(struct trial *trial))
{
    static struct trial trial;

    for (size_t path = 0; (trial.kernels = muster_kernels_at(path)) != NULL; path++)
        for (int dtype = 0; dtype < MUSTER_DTYPE_COUNT; dtype++)
            for (int reduction = 0; reduction < MUSTER_REDUCTION_COUNT; reduction++) {
                trial.dtype = (enum muster_dtype)dtype;
                trial.reduction = (enum muster_reduction)reduction;
                trial.element = muster_dtype_bytes(trial.dtype);
                if (trial.kernels->reduce[dtype][reduction] != NULL)
                    check(&trial);
            }
}

static void check_every_count(struct trial *trial)
{
    trial->count = COUNT_MAX;
    for (size_t shift = 0; shift < SHIFT_MAX; shift++) {
        trial->shift_a = shift;
        trial->shift_b = (3 * shift + 1) % SHIFT_MAX;
        prepare_values(trial, shift);
        for (size_t count = 0; count <= COUNT_MAX; count++)
            check_prefix(trial, count);
    }
}

static void every_path_equals_the_reference_at_every_count_and_alignment(void **state)
{
    (void)state;
    for_each_pair(check_every_count);
}

static void check_many(struct trial *trial)
{
    static struct room into;

    trial->shift_a = trial->shift_b = 0;
    trial->count = MANY;
    for (uint64_t seed = 10; seed < 14; seed++) {
        prepare_values(trial, seed);
        into = trial->a;
        trial->kernels->reduce[trial->dtype][trial->reduction](into.bytes, trial->b.bytes, MANY);
        check_trial(memcmp(into.bytes, trial->expected.bytes, MANY * trial->element) == 0, trial,
                    "reduce", MANY);
    }
}

static void every_path_equals_the_reference_on_many_values(void **state)
{
    (void)state;
    for_each_pair(check_many);
}

static void check_divide(const struct muster_kernels *kernels, enum muster_dtype dtype,
                         uint32_t divisor, size_t count)
{
    static struct room into, expected;
    size_t bytes = count * muster_dtype_bytes(dtype);

    memset(into.bytes, CANARY, sizeof(into.bytes));
    reference_fill(dtype, into.bytes, count, divisor + count);
    expected = into;
    reference_divide(dtype, expected.bytes, divisor, count);
    kernels->divide[dtype](into.bytes, divisor, count);
    fail_if(memcmp(into.bytes, expected.bytes, sizeof(into.bytes)) != 0,
            "%s x %zu (%zu bytes) divided by %u, path %s", muster_dtype_name(dtype), count, bytes,
            divisor, kernels->name);
}

static void every_path_divides_as_the_reference(void **state)
{
    static const uint32_t divisors[] = {1,         2,     3,        7,         10,
                                        127,       128,   129,      255,       256,
                                        1000,      65521, 16777217, INT32_MAX, UINT32_MAX - 1,
                                        UINT32_MAX};
    const struct muster_kernels *kernels;

    (void)state;
    for (size_t path = 0; (kernels = muster_kernels_at(path)) != NULL; path++)
        for (int dtype = 0; dtype < MUSTER_DTYPE_COUNT; dtype++)
            for (size_t i = 0; i < sizeof(divisors) / sizeof(divisors[0]) &&
                               muster_reduction_is_defined((enum muster_dtype)dtype, MUSTER_MEAN);
                 i++) {
                check_divide(kernels, (enum muster_dtype)dtype, divisors[i], MANY - 8);
                for (size_t count = 0; count <= COUNT_MAX; count++)
                    check_divide(kernels, (enum muster_dtype)dtype, divisors[i], count);
            }
}

static void the_paths_have_kernels_for_the_same_pairs(void **state)
{
    const struct muster_kernels *baseline = muster_kernels_baseline(), *kernels, *last = NULL;

    (void)state;
    for (size_t path = 0; (kernels = muster_kernels_at(path)) != NULL; path++, last = kernels)
        for (int dtype = 0; dtype < MUSTER_DTYPE_COUNT; dtype++) {
            assert_int_equal(kernels->divide[dtype] != NULL,
                             kernels->reduce[dtype][MUSTER_MEAN] != NULL);
            for (int reduction = 0; reduction < MUSTER_REDUCTION_COUNT; reduction++) {
                bool is_there = kernels->reduce[dtype][reduction] != NULL;

                assert_int_equal(is_there, baseline->reduce[dtype][reduction] != NULL);
                assert_int_equal(is_there, kernels->swap[dtype][reduction] != NULL);
            }
        }
    for (size_t path = 0; (kernels = muster_kernels_at(path)) != NULL; path++)
        last = kernels;
    assert_ptr_equal(muster_kernels_best(), last);
}

static void pairs_without_a_meaning_are_refused_by_name_with_a_remedy(void **state)
{
    struct muster_error error;

    (void)state;
    for (int dtype = 0; dtype < MUSTER_DTYPE_COUNT; dtype++)
        for (int reduction = 0; reduction < MUSTER_REDUCTION_COUNT; reduction++) {
            bool is_float = dtype == MUSTER_F16 || dtype == MUSTER_BF16 || dtype == MUSTER_F32 ||
                            dtype == MUSTER_F64;
            bool is_logic = reduction >= MUSTER_AND;
            bool is_order = reduction == MUSTER_MIN || reduction == MUSTER_MAX;
            bool is_moved_only = dtype == MUSTER_F8_E4M3 || dtype == MUSTER_F8_E5M2;
            bool is_defined = dtype == MUSTER_BOOL ? is_logic || is_order
                              : is_moved_only      ? false
                                                   : !is_float || !is_logic;

            assert_int_equal(muster_reduction_check((enum muster_dtype)dtype,
                                                    (enum muster_reduction)reduction, &error),
                             is_defined ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        }

    assert_int_equal(muster_reduction_check(MUSTER_F32, MUSTER_XOR, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "xor of f32 has no meaning: use one of sum, mean, min, max, "
                                    "prod, or another type");
    assert_int_equal(muster_reduction_check(MUSTER_BOOL, MUSTER_MEAN, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "mean of bool has no meaning: use one of min, max, and, or, "
                                    "xor, or another type (u32 to count)");
    assert_int_equal(muster_reduction_check(MUSTER_F8_E4M3, MUSTER_SUM, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "sum of f8e4m3 has no meaning: 8-bit floats are only moved; "
                                    "convert them to f16, bf16 or f32 and reduce those");
    assert_int_equal(muster_reduction_check((enum muster_dtype)99, MUSTER_SUM, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_reduction_check(MUSTER_I32, (enum muster_reduction) - 1, &error),
                     MUSTER_INVALID_ARGUMENT);
}

static void all_f16_and_bf16_values_convert_and_come_back(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
        uint16_t half = (uint16_t)bits;
        float f16 = muster_f16_to_f32(half), bf16 = muster_bf16_to_f32(half);
        float f16_expected = (float)reference_decode(MUSTER_F16, &half);
        float bf16_expected = (float)reference_decode(MUSTER_BF16, &half);

        assert_memory_equal(&f16, &f16_expected, sizeof(f16));
        assert_memory_equal(&bf16, &bf16_expected, sizeof(bf16));
        assert_int_equal(muster_f16_from_f32(f16), isnan(f16) ? MUSTER_F16_NAN : half);
        assert_int_equal(muster_bf16_from_f32(bf16), isnan(bf16) ? MUSTER_BF16_NAN : half);
    }
}

/* Every f16 and bf16, the middle to the next one, and what lies right beside both. */
static void f32_is_rounded_to_the_nearest_half_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits <= UINT16_MAX; bits++)
        for (uint32_t low = 0; low < 5; low++) {
            static const uint32_t of_bf16[] = {0, 1, 0x7FFF, 0x8000, 0x8001};
            uint16_t half = (uint16_t)bits, next = (uint16_t)(bits + 1), expected;
            uint32_t pattern = bits << 16 | of_bf16[low];
            double here = reference_decode(MUSTER_F16, &half);
            double middle = (here + reference_decode(MUSTER_F16, &next)) / 2;
            float value = (float)(low < 2 ? here : middle);

            if (low != 0 && low != 3)
                value = nextafterf(value, low == 2 ? 0 : INFINITY);
            reference_encode(MUSTER_F16, (double)value, &expected);
            assert_int_equal(muster_f16_from_f32(value), expected);
            memcpy(&value, &pattern, sizeof(value));
            reference_encode(MUSTER_BF16, (double)value, &expected);
            assert_int_equal(muster_bf16_from_f32(value), expected);
        }
    assert_int_equal(muster_f16_from_f32(65519.996f), 0x7BFF);
    assert_int_equal(muster_f16_from_f32(65520.0f), 0x7C00);
    assert_int_equal(muster_f16_from_f32(-0.0f), 0x8000);
}

static void small_types_are_added_in_f32_and_rounded_once(void **state)
{
    /* 2048 + 1 is a tie in f16 and goes to even; 2048 + 3 is not. */
    uint16_t a[2] = {muster_f16_from_f32(2048), muster_f16_from_f32(2048)};
    const uint16_t b[2] = {muster_f16_from_f32(1), muster_f16_from_f32(3)};
    uint16_t c = muster_bf16_from_f32(256);
    const uint16_t one = muster_bf16_from_f32(1);

    (void)state;
    muster_kernel_reduce(MUSTER_F16, MUSTER_SUM, a, b, 2);
    muster_kernel_reduce(MUSTER_BF16, MUSTER_SUM, &c, &one, 1);

    assert_int_equal(a[0], muster_f16_from_f32(2048));
    assert_int_equal(a[1], muster_f16_from_f32(2052));
    assert_int_equal(c, muster_bf16_from_f32(256));
}

static void integers_wrap_around(void **state)
{
    int32_t a = INT32_MAX, one = 1;
    int64_t b = INT64_MIN, minus = -1;
    uint8_t c = 200, hundred = 100;

    (void)state;
    muster_kernel_reduce(MUSTER_I32, MUSTER_SUM, &a, &one, 1);
    muster_kernel_reduce(MUSTER_I64, MUSTER_PROD, &b, &minus, 1);
    muster_kernel_reduce(MUSTER_U8, MUSTER_SUM, &c, &hundred, 1);

    assert_int_equal(a, INT32_MIN);
    assert_true(b == INT64_MIN);
    assert_int_equal(c, 44);
}

static void negative_integers_are_divided_towards_zero(void **state)
{
    int32_t a = -7;
    int64_t b = -7;
    int8_t c = -7;

    (void)state;
    muster_kernel_divide(MUSTER_I32, &a, 2, 1);
    muster_kernel_divide(MUSTER_I64, &b, 2, 1);
    muster_kernel_divide(MUSTER_I8, &c, 2, 1);

    assert_int_equal(a, -3);
    assert_true(b == -3);
    assert_int_equal(c, -3);
}

static void nan_wins_on_either_side_and_minus_zero_is_below_zero(void **state)
{
    float a[4] = {NAN, 1.0f, 0.0f, -0.0f}, b[4] = {2.0f, -NAN, -0.0f, 0.0f}, least[4], most[4];
    uint32_t bits[2];

    (void)state;
    memcpy(least, a, sizeof(a));
    memcpy(most, a, sizeof(a));
    muster_kernel_reduce(MUSTER_F32, MUSTER_MIN, least, b, 4);
    muster_kernel_reduce(MUSTER_F32, MUSTER_MAX, most, b, 4);

    memcpy(bits, least, sizeof(bits));
    assert_int_equal(bits[0], MUSTER_F32_NAN);
    assert_int_equal(bits[1], MUSTER_F32_NAN);
    assert_true(isnan(most[0]) && isnan(most[1]));
    assert_true(signbit(least[2]) && signbit(least[3]));
    assert_false(signbit(most[2]) || signbit(most[3]));
}

static void truth_is_any_byte_but_zero_and_comes_out_as_one(void **state)
{
    uint8_t all[4] = {0, 2, 4, 255}, some[4] = {0, 2, 4, 255}, odd[4] = {0, 2, 4, 255};
    const uint8_t other[4] = {0, 1, 0, 128};

    (void)state;
    muster_kernel_reduce(MUSTER_BOOL, MUSTER_AND, all, other, 4);
    muster_kernel_reduce(MUSTER_BOOL, MUSTER_OR, some, other, 4);
    muster_kernel_reduce(MUSTER_BOOL, MUSTER_XOR, odd, other, 4);

    assert_memory_equal(all, ((const uint8_t[]){0, 1, 0, 1}), 4);
    assert_memory_equal(some, ((const uint8_t[]){0, 1, 1, 1}), 4);
    assert_memory_equal(odd, ((const uint8_t[]){0, 0, 1, 0}), 4);
}

static void dtypes_have_their_sizes_and_names(void **state)
{
    static const struct {
        enum muster_dtype dtype;
        size_t bytes;
        const char *name;
    } rows[] = {
        {MUSTER_F16, 2, "f16"},
        {MUSTER_BF16, 2, "bf16"},
        {MUSTER_F32, 4, "f32"},
        {MUSTER_F64, 8, "f64"},
        {MUSTER_I8, 1, "i8"},
        {MUSTER_U8, 1, "u8"},
        {MUSTER_I32, 4, "i32"},
        {MUSTER_U32, 4, "u32"},
        {MUSTER_I64, 8, "i64"},
        {MUSTER_U64, 8, "u64"},
        {MUSTER_BOOL, 1, "bool"},
        {MUSTER_I16, 2, "i16"},
        {MUSTER_U16, 2, "u16"},
        {MUSTER_F8_E4M3, 1, "f8e4m3"},
        {MUSTER_F8_E5M2, 1, "f8e5m2"},
        {(enum muster_dtype)99, 0, "an unknown type"},
        {(enum muster_dtype) - 1, 0, "an unknown type"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_dtype_bytes(rows[i].dtype), rows[i].bytes);
        assert_string_equal(muster_dtype_name(rows[i].dtype), rows[i].name);
    }
    assert_string_equal(muster_reduction_name(MUSTER_XOR), "xor");
    assert_string_equal(muster_reduction_name((enum muster_reduction)99), "an unknown reduction");
}

/* Other versions of the library on the wire and in checkpoints know these. */
static void numbers_of_dtypes_stay(void **state)
{
    (void)state;
    assert_int_equal(MUSTER_F32, 0);
    assert_int_equal(MUSTER_U8, 4);
    assert_int_equal(MUSTER_BOOL, 10);
    assert_int_equal(MUSTER_I16, 11);
    assert_int_equal(MUSTER_F8_E5M2, 14);
    assert_int_equal(MUSTER_PROD, 4);
    assert_int_equal(MUSTER_XOR, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_equals_the_reference_at_every_count_and_alignment),
        cmocka_unit_test(every_path_equals_the_reference_on_many_values),
        cmocka_unit_test(every_path_divides_as_the_reference),
        cmocka_unit_test(the_paths_have_kernels_for_the_same_pairs),
        cmocka_unit_test(pairs_without_a_meaning_are_refused_by_name_with_a_remedy),
        cmocka_unit_test(all_f16_and_bf16_values_convert_and_come_back),
        cmocka_unit_test(f32_is_rounded_to_the_nearest_half_ties_to_even),
        cmocka_unit_test(small_types_are_added_in_f32_and_rounded_once),
        cmocka_unit_test(integers_wrap_around),
        cmocka_unit_test(negative_integers_are_divided_towards_zero),
        cmocka_unit_test(nan_wins_on_either_side_and_minus_zero_is_below_zero),
        cmocka_unit_test(truth_is_any_byte_but_zero_and_comes_out_as_one),
        cmocka_unit_test(dtypes_have_their_sizes_and_names),
        cmocka_unit_test(numbers_of_dtypes_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
