/* Token buckets. */
#include "test_env.h"

#include "assertion_count.h"
#include "net/stream/token_bucket.h"

static void a_bucket_empties_and_fills(void **state)
{
    struct muster_token_bucket bucket;

    (void)state;
    muster_token_bucket_init(&bucket, 3, 10);
    for (unsigned i = 0; i < 3; i++)
        assert_true(muster_token_bucket_take(&bucket, 0));
    assert_false(muster_token_bucket_take(&bucket, 99 * MUSTER_NS_PER_MS));
    assert_true(muster_token_bucket_take(&bucket, 100 * MUSTER_NS_PER_MS));
    assert_false(muster_token_bucket_take(&bucket, 100 * MUSTER_NS_PER_MS));
    for (unsigned i = 0; i < 3; i++)
        assert_true(muster_token_bucket_take(&bucket, 100 * MUSTER_NS_PER_S));
    assert_false(muster_token_bucket_take(&bucket, 100 * MUSTER_NS_PER_S));
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
    struct muster_token_bucket bucket;

    (void)state;
    muster_token_bucket_init(&bucket, 2, 10);
    assert_true(muster_token_bucket_take(&bucket, 0) && muster_token_bucket_take(&bucket, 0));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(muster_token_bucket_take(&bucket, rows[i].at_ms * MUSTER_NS_PER_MS) !=
                    rows[i].is_taken,
                "row %zu", i);
}

static void a_bucket_is_never_fuller_than_its_burst(void **state)
{
    static const uint64_t later_ms[] = {100, 200, 300, 5000};

    (void)state;
    for (size_t i = 0; i < sizeof(later_ms) / sizeof(later_ms[0]); i++) {
        struct muster_token_bucket bucket;
        uint64_t now_ns = later_ms[i] * MUSTER_NS_PER_MS;

        muster_token_bucket_init(&bucket, 3, 10);
        assert_true(
            muster_token_bucket_take(&bucket, 0)); /* one is gone, and more than one comes */
        for (unsigned k = 0; k < 3; k++)
            assert_true(muster_token_bucket_take(&bucket, now_ns));
        assert_false(muster_token_bucket_take(&bucket, now_ns));
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest token_bucket[] = {
        CASE(a_bucket_empties_and_fills),
        CASE(parts_of_a_token_are_kept),
        CASE(a_bucket_is_never_fuller_than_its_burst),
    };

    return cmocka_run_group_tests(token_bucket, NULL, NULL);
}
