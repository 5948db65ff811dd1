/* Initial values: the same for ever and on every machine, and of the right distribution. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <math.h>
#include <string.h>

#include "params/store/init.h"

#define ELEMENTS 64u
#define KEYS     2000u

static struct muster_params_store_table table_of(enum muster_params_init init, float scale)
{
    return (struct muster_params_store_table){.row_elements = ELEMENTS,
                                              .init = (uint32_t)init,
                                              .init_scale = scale,
                                              .init_seed = 42,
                                              .seed = 7};
}

/* Written down once: a change would give restored tables other rows than running ones. */
static void values_never_change(void **state)
{
    static const struct {
        enum muster_params_init init;
        uint64_t key;
        uint32_t bits[3];
    } rows[] = {
        {MUSTER_PARAMS_INIT_UNIFORM, 0, {0x3e234dd0, 0xbd48de40, 0xbed3273c}},
        {MUSTER_PARAMS_INIT_UNIFORM, 123456789, {0xbf632168, 0x3f7088ca, 0x3dc03890}},
        {MUSTER_PARAMS_INIT_NORMAL, 0, {0xbf841320, 0xbf2d5c39, 0x3f3140ca}},
        {MUSTER_PARAMS_INIT_NORMAL, UINT64_MAX, {0xbf098634, 0xbf50edf4, 0x3f8af219}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_store_table table = table_of(rows[i].init, 1);
        float values[ELEMENTS];

        muster_params_init_values(&table, rows[i].key, values);
        if (memcmp(values, rows[i].bits, sizeof(rows[i].bits)) != 0) {
            uint32_t bits[3];

            memcpy(bits, values, sizeof(bits));
            fail_msg("row %zu: 0x%08x, 0x%08x, 0x%08x", i, bits[0], bits[1], bits[2]);
        }
    }
    assert_true(sizeof(rows) > 0);
}

struct moments {
    double mean, deviation, min, max;
};

static struct moments moments_of(const struct muster_params_store_table *table)
{
    struct moments moments = {.min = HUGE_VAL, .max = -HUGE_VAL};
    double sum = 0, squares = 0, count = (double)KEYS * ELEMENTS;
    float values[ELEMENTS];

    for (uint64_t key = 0; key < KEYS; key++) {
        muster_params_init_values(table, key, values);
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            double value = (double)values[i];

            sum += value;
            squares += value * value;
            moments.min = fmin(moments.min, value);
            moments.max = fmax(moments.max, value);
        }
    }
    moments.mean = sum / count;
    moments.deviation = sqrt(squares / count - moments.mean * moments.mean);
    return moments;
}

static void values_have_their_distribution(void **state)
{
    struct muster_params_store_table table = table_of(MUSTER_PARAMS_INIT_UNIFORM, 0.5f);
    struct moments moments = moments_of(&table);

    (void)state;
    assert_true(fabs(moments.mean) < 0.005);
    assert_true(fabs(moments.deviation - 0.5 / sqrt(3)) < 0.005);
    assert_true(moments.min >= -0.5 && moments.min < -0.499);
    assert_true(moments.max < 0.5 && moments.max > 0.499);

    table = table_of(MUSTER_PARAMS_INIT_NORMAL, 2);
    moments = moments_of(&table);
    assert_true(fabs(moments.mean) < 0.03);
    assert_true(fabs(moments.deviation - 2) < 0.03);
    assert_true(moments.max > 7 && moments.max < 12); /* 3.5 to 6 deviations of 128,000 values */
    assert_true(moments.min < -7 && moments.min > -12);
}

static void keys_seeds_and_positions_differ(void **state)
{
    struct muster_params_store_table table = table_of(MUSTER_PARAMS_INIT_UNIFORM, 1), other = table;
    float a[ELEMENTS], b[ELEMENTS];

    (void)state;
    other.init_seed++;
    muster_params_init_values(&table, 1, a);
    muster_params_init_values(&table, 2, b);
    assert_memory_not_equal(a, b, sizeof(a));
    muster_params_init_values(&other, 1, b);
    assert_memory_not_equal(a, b, sizeof(a));
    for (uint32_t i = 1; i < ELEMENTS; i++)
        assert_true(a[i] != a[i - 1]);
}

static void constant_and_zero_are_what_they_say(void **state)
{
    struct muster_params_store_table table = table_of(MUSTER_PARAMS_INIT_CONSTANT, -3);
    float values[ELEMENTS];

    (void)state;
    muster_params_init_values(&table, 9, values);
    assert_true(values[0] == -3 && values[ELEMENTS - 1] == -3);
    table = table_of(MUSTER_PARAMS_INIT_ZERO, 0);
    muster_params_init_values(&table, 9, values);
    assert_true(values[0] == 0 && values[ELEMENTS - 1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_never_change),
        cmocka_unit_test(values_have_their_distribution),
        cmocka_unit_test(keys_seeds_and_positions_differ),
        cmocka_unit_test(constant_and_zero_are_what_they_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
