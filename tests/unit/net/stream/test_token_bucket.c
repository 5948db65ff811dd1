/* Buckets and skipped stream ids. */
#include "test_env.h"

#include "assertion_count.h"
#include "net/stream/token_bucket.h"

static void a_bucket_empties_and_fills(void **state)
{
    struct muster_h2_bucket bucket;

    (void)state;
    muster_h2_bucket_init(&bucket, 3, 10);
    for (unsigned i = 0; i < 3; i++)
        assert_true(muster_h2_bucket_take(&bucket, 0));
    assert_false(muster_h2_bucket_take(&bucket, 99 * MUSTER_NS_PER_MS));
    assert_true(muster_h2_bucket_take(&bucket, 100 * MUSTER_NS_PER_MS));
    assert_false(muster_h2_bucket_take(&bucket, 100 * MUSTER_NS_PER_MS));
    for (unsigned i = 0; i < 3; i++)
        assert_true(muster_h2_bucket_take(&bucket, 100 * MUSTER_NS_PER_S));
    assert_false(muster_h2_bucket_take(&bucket, 100 * MUSTER_NS_PER_S));
}

static void an_id_below_the_highest_is_new_only_if_it_was_opened(void **state)
{
    struct muster_h2_ids ids = {.highest = 0};

    (void)state;
    assert_true(muster_h2_ids_open(&ids, 1));
    assert_true(muster_h2_ids_open(&ids, 3));
    assert_true(muster_h2_ids_open(&ids, 9));
    assert_true(muster_h2_ids_open(&ids, 3)); /* trailers, or frames of a closed stream */
    assert_false(muster_h2_ids_open(&ids, 5));
    assert_false(muster_h2_ids_open(&ids, 7));
    assert_true(muster_h2_ids_open(&ids, 9));
    assert_true(muster_h2_ids_open(&ids, 11));
}

static void a_first_id_above_one_skips_those_below(void **state)
{
    struct muster_h2_ids ids = {.highest = 0};

    (void)state;
    assert_true(muster_h2_ids_open(&ids, 5));
    assert_false(muster_h2_ids_open(&ids, 1));
    assert_false(muster_h2_ids_open(&ids, 3));
    assert_true(muster_h2_ids_open(&ids, 5));
}

static void ids_that_were_ended_last_are_known(void **state)
{
    struct muster_h2_ids ids = {.highest = 0};

    (void)state;
    assert_false(muster_h2_ids_is_ended(&ids, 0)); /* the connection itself */
    muster_h2_ids_end(&ids, 1);
    assert_true(muster_h2_ids_is_ended(&ids, 1));
    assert_false(muster_h2_ids_is_ended(&ids, 3));
    for (unsigned i = 1; i <= MUSTER_H2_ENDED_MAX; i++)
        muster_h2_ids_end(&ids, (int32_t)(2 * i + 1));
    assert_false(muster_h2_ids_is_ended(&ids, 1)); /* forgotten */
    assert_true(muster_h2_ids_is_ended(&ids, 2 * MUSTER_H2_ENDED_MAX + 1));
}

/* Ten a second: what is left of a tenth counts for the next. */
static void parts_of_a_token_are_kept(void **state)
{
    static const struct {
        uint64_t at_ms;
        bool is_taken;
    } rows[] = {
        {99, false},  {150, true}, {150, false}, {199, false}, {200, true},
        {299, false}, {420, true}, {420, true},  {499, false}, {500, true},
    };
    struct muster_h2_bucket bucket;

    (void)state;
    muster_h2_bucket_init(&bucket, 2, 10);
    assert_true(muster_h2_bucket_take(&bucket, 0) && muster_h2_bucket_take(&bucket, 0));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(muster_h2_bucket_take(&bucket, rows[i].at_ms * MUSTER_NS_PER_MS) !=
                    rows[i].is_taken,
                "row %zu", i);
}

static void a_bucket_is_never_fuller_than_its_burst(void **state)
{
    static const uint64_t later_ms[] = {100, 200, 300, 5000};

    (void)state;
    for (size_t i = 0; i < sizeof(later_ms) / sizeof(later_ms[0]); i++) {
        struct muster_h2_bucket bucket;
        uint64_t now_ns = later_ms[i] * MUSTER_NS_PER_MS;

        muster_h2_bucket_init(&bucket, 3, 10);
        assert_true(muster_h2_bucket_take(&bucket, 0)); /* one is gone, and more than one comes */
        for (unsigned k = 0; k < 3; k++)
            assert_true(muster_h2_bucket_take(&bucket, now_ns));
        assert_false(muster_h2_bucket_take(&bucket, now_ns));
    }
}

/* Each id skips one: 1 | 3 | 5 7 | 9 ... */
static void so_many_gaps_are_known(void **state)
{
    struct muster_h2_ids ids = {.highest = 0};

    (void)state;
    for (int32_t i = 0; i < MUSTER_H2_GAPS_MAX; i++)
        assert_true(muster_h2_ids_open(&ids, 3 + 4 * i));
    for (int32_t i = 0; i < MUSTER_H2_GAPS_MAX; i++) {
        assert_false(muster_h2_ids_open(&ids, 1 + 4 * i));
        assert_true(muster_h2_ids_open(&ids, 3 + 4 * i));
    }
    assert_true(muster_h2_ids_open(&ids, 3 + 4 * MUSTER_H2_GAPS_MAX));
    assert_true(muster_h2_ids_open(&ids, 1)); /* forgotten */
    for (int32_t i = 1; i <= MUSTER_H2_GAPS_MAX; i++)
        assert_false(muster_h2_ids_open(&ids, 1 + 4 * i));
}

static void a_gap_has_a_first_and_a_last(void **state)
{
    struct muster_h2_ids ids = {.highest = 0};

    (void)state;
    assert_true(muster_h2_ids_open(&ids, 3));
    assert_true(muster_h2_ids_open(&ids, 11));
    assert_false(muster_h2_ids_open(&ids, 1));
    assert_true(muster_h2_ids_open(&ids, 3));
    for (int32_t id = 5; id <= 9; id += 2)
        assert_false(muster_h2_ids_open(&ids, id));
    assert_true(muster_h2_ids_open(&ids, 11));
}

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest h2_guard[] = {
        CASE(a_bucket_empties_and_fills),
        CASE(parts_of_a_token_are_kept),
        CASE(a_bucket_is_never_fuller_than_its_burst),
        CASE(so_many_gaps_are_known),
        CASE(a_gap_has_a_first_and_a_last),
        CASE(an_id_below_the_highest_is_new_only_if_it_was_opened),
        CASE(a_first_id_above_one_skips_those_below),
        CASE(ids_that_were_ended_last_are_known),
    };

    return cmocka_run_group_tests(h2_guard, NULL, NULL);
}
