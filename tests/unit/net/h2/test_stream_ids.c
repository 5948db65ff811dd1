/* Stream ids of a client that were skipped or have ended. */
#include "test_env.h"

#include "assertion_count.h"
#include "net/h2/stream_ids.h"

static void an_id_below_the_highest_is_new_only_if_it_was_opened(void **state)
{
    static const struct {
        const char *name;
        int32_t ids[10]; /* < 0: -id is refused; 0: the end */
    } rows[] = {
        {"3 again is trailers, or frames of a closed stream", {1, 3, 9, 3, -5, -7, 9, 11}},
        {"a first id above one skips those below", {5, -1, -3, 5}},
        {"a gap has a first and a last", {3, 11, -1, 3, -5, -7, -9, 11}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_h2_ids ids = {.highest = 0};

        for (const int32_t *id = rows[i].ids; *id != 0; id++)
            fail_if(muster_h2_ids_open(&ids, *id > 0 ? *id : -*id) != (*id > 0), "%s: %d",
                    rows[i].name, *id);
    }
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

static void ids_in_order_leave_no_gap(void **state)
{
    struct muster_h2_ids ids = {.highest = 0};

    (void)state;
    for (int32_t i = 0; i < 2 * MUSTER_H2_GAPS_MAX; i++)
        assert_true(muster_h2_ids_open(&ids, 3 + 2 * i));
    assert_false(muster_h2_ids_open(&ids, 1)); /* the only one, and not forgotten */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_below_the_highest_is_new_only_if_it_was_opened),
        cmocka_unit_test(ids_that_were_ended_last_are_known),
        cmocka_unit_test(so_many_gaps_are_known),
        cmocka_unit_test(ids_in_order_leave_no_gap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
