/* Exponential backoff. */
#include "runtime/value/backoff.h"

#include "test_env.h"

static const struct {
    const char *name;
    struct muster_backoff backoff;
    uint64_t waits_ns[6];
} rows[] = {
    {"doubles up to the limit", {100, 1000, 2000, 0}, {100, 200, 400, 800, 1000, 1000}},
    {"grows by gRPC's factor", {1000, 4000, 1600, 0}, {1000, 1600, 2560, 4000, 4000, 4000}},
    {"a growth of 1 waits alike", {70, 1000, 1000, 0}, {70, 70, 70, 70, 70, 70}},
    {"the limit wins over the first", {70, 50, 2000, 0}, {50, 50, 50, 50, 50, 50}},
    {"does not shrink to none", {3, 50, 500, 0}, {3, 1, 1, 1, 1, 1}},
    {"does not wrap round",
     {UINT64_MAX / 2, UINT64_MAX, 3000, 0},
     {UINT64_MAX / 2, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}},
};

static void each_wait_grows_from_the_one_before(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t wait_ns = 0;

        for (uint32_t n = 0; n < 6; n++) {
            uint64_t want_ns = rows[i].waits_ns[n];
            uint64_t got_ns = muster_backoff_next(&rows[i].backoff, &wait_ns, NULL);

            if (got_ns != want_ns)
                print_error("%s: wait %u\n", rows[i].name, n + 1);
            assert_int_equal(got_ns, want_ns);
            assert_int_equal(wait_ns, want_ns);
            assert_int_equal(muster_backoff_nth(&rows[i].backoff, n + 1, NULL), want_ns);
        }
    }
}

static void after_a_success_it_begins_with_the_first_again(void **state)
{
    uint64_t wait_ns = 0;
    (void)state;
    (void)muster_backoff_next(&rows[0].backoff, &wait_ns, NULL);
    (void)muster_backoff_next(&rows[0].backoff, &wait_ns, NULL);

    wait_ns = 0;

    assert_int_equal(muster_backoff_next(&rows[0].backoff, &wait_ns, NULL), 100);
}

static void jitter_moves_a_wait_either_way_and_does_not_add_up(void **state)
{
    static const struct muster_backoff backoff = {1000, 8000, 2000, 250};
    struct muster_rng_seeded seeded;
    uint64_t least_ns = UINT64_MAX, most_ns = 0, wait_ns = 0;
    (void)state;
    muster_rng_seeded_init(&seeded, 7);

    for (uint64_t full_ns = 1000; full_ns <= 8000; full_ns *= 2) {
        uint64_t jittered_ns = muster_backoff_next(&backoff, &wait_ns, &seeded.rng);

        assert_int_equal(wait_ns, full_ns);
        assert_in_range(jittered_ns, full_ns * 3 / 4, full_ns * 5 / 4);
    }
    for (int i = 0; i < 1000; i++) {
        uint64_t jittered_ns = muster_backoff_next(&backoff, &wait_ns, &seeded.rng);

        least_ns = jittered_ns < least_ns ? jittered_ns : least_ns;
        most_ns = jittered_ns > most_ns ? jittered_ns : most_ns;
    }

    assert_int_equal(wait_ns, 8000);
    assert_in_range(least_ns, 6000, 6100);
    assert_in_range(most_ns, 9900, 10000);
}

static void a_retry_of_a_high_number_is_found_at_once_and_jittered(void **state)
{
    static const struct muster_backoff backoff = {1000, 8000, 2000, 250};
    struct muster_rng_seeded seeded, same;
    uint64_t wait_ns = 8000;
    (void)state;
    muster_rng_seeded_init(&seeded, 7);
    muster_rng_seeded_init(&same, 7);

    assert_int_equal(muster_backoff_nth(&backoff, UINT32_MAX, &seeded.rng),
                     muster_backoff_next(&backoff, &wait_ns, &same.rng));
    assert_int_equal(muster_rng_next(&seeded.rng), muster_rng_next(&same.rng));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_wait_grows_from_the_one_before),
        cmocka_unit_test(after_a_success_it_begins_with_the_first_again),
        cmocka_unit_test(jitter_moves_a_wait_either_way_and_does_not_add_up),
        cmocka_unit_test(a_retry_of_a_high_number_is_found_at_once_and_jittered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
