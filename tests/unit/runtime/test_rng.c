/* Random numbers: known sequence, bounds, jitter, bytes. */
#include "test_env.h"

#include <string.h>

static void the_seeded_sequence_is_the_same_everywhere(void **state)
{
    struct muster_rng_seeded rng;

    (void)state;
    muster_rng_seeded_init(&rng, 0);
    for (size_t i = 0; i < 4; i++) /* xoshiro256** of the state {1, 2, 3, 4}: the authors' code */
        rng.state[i] = i + 1;
    assert_int_equal(muster_rng_next(&rng.rng), 11520);
    assert_int_equal(muster_rng_next(&rng.rng), 0);
    assert_int_equal(muster_rng_next(&rng.rng), 1509978240);
    assert_int_equal(muster_rng_next(&rng.rng), UINT64_C(1215971899390074240));
}

static void the_seed_is_spread_by_splitmix(void **state)
{
    struct muster_rng_seeded rng;

    (void)state;
    muster_rng_seeded_init(&rng, 0);
    assert_int_equal(rng.state[0], UINT64_C(0xe220a8397b1dcdaf));
    assert_int_equal(rng.state[1], UINT64_C(0x6e789e6aa1b965f4));
}

static void below_stays_below_and_reaches_every_value(void **state)
{
    struct muster_rng_seeded rng;
    unsigned seen[7] = {0};

    (void)state;
    muster_rng_seeded_init(&rng, 3);
    for (size_t i = 0; i < 7000; i++) {
        uint64_t value = muster_rng_below(&rng.rng, 7);

        assert_true(value < 7);
        seen[value]++;
    }
    for (size_t i = 0; i < 7; i++)
        assert_in_range(seen[i], 850, 1150);
    assert_int_equal(muster_rng_below(&rng.rng, 1), 0);
}

static void jitter_stays_within_its_permille(void **state)
{
    struct muster_rng_seeded rng;
    uint64_t low = UINT64_MAX, high = 0;

    (void)state;
    muster_rng_seeded_init(&rng, 4);
    for (size_t i = 0; i < 1000; i++) {
        uint64_t value = muster_rng_jitter(&rng.rng, 1000, 100);

        assert_in_range(value, 900, 1100);
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    assert_true(low < 920 && high > 1080);
    assert_int_equal(muster_rng_jitter(&rng.rng, 1000, 0), 1000);
    assert_true(muster_rng_jitter(&rng.rng, UINT64_MAX, 10) > UINT64_MAX / 2);
}

static void fill_writes_every_byte_and_no_more(void **state)
{
    struct muster_rng_seeded rng;
    uint8_t a[13] = {0}, b[13] = {0};

    (void)state;
    muster_rng_seeded_init(&rng, 5);
    muster_rng_fill(&rng.rng, a, 12);
    muster_rng_seeded_init(&rng, 5);
    muster_rng_fill(&rng.rng, b, 12);

    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(a[12], 0);
    assert_true(a[8] != 0 || a[9] != 0 || a[10] != 0 || a[11] != 0);
}

static void the_kernels_words_differ(void **state)
{
    (void)state;
    assert_true(muster_rng_next(muster_rng_system()) != muster_rng_next(muster_rng_system()));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_seeded_sequence_is_the_same_everywhere),
        cmocka_unit_test(the_seed_is_spread_by_splitmix),
        cmocka_unit_test(below_stays_below_and_reaches_every_value),
        cmocka_unit_test(jitter_stays_within_its_permille),
        cmocka_unit_test(fill_writes_every_byte_and_no_more),
        cmocka_unit_test(the_kernels_words_differ),
    };

    return cmocka_run_group_tests_name("rng", cases, NULL, NULL);
}
