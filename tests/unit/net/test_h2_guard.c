/* Buckets and skipped stream ids. */
#include "test_env.h"

#include "net/h2_guard.h"

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

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest h2_guard[] = {
        CASE(a_bucket_empties_and_fills),
        CASE(an_id_below_the_highest_is_new_only_if_it_was_opened),
        CASE(a_first_id_above_one_skips_those_below),
        CASE(ids_that_were_ended_last_are_known),
    };

    return cmocka_run_group_tests(h2_guard, NULL, NULL);
}
