/* Rounds: the sum is that of the contributions that count, whatever the order of events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/clock/round.h"
#include "test_env.h"

#include <math.h>
#include <string.h>

#define WIDTH 2u
#define GRACE 100u

struct stand {
    struct test_env test;
    struct muster_params_rounds rounds;
    struct muster_error error;
};

static struct muster_incarnation id_of(uint32_t number)
{
    struct muster_incarnation id = {{0}};

    id.bytes[0] = (uint8_t)(number + 1);
    return id;
}

static void stand_open(struct stand *stand, uint32_t sources, uint32_t quorum, bool is_late_kept)
{
    const struct muster_params_round_options options = {.row_elements = WIDTH,
                                                        .quorum = quorum,
                                                        .grace_ns = GRACE,
                                                        .ahead_max = 2,
                                                        .is_late_kept = is_late_kept};

    test_env_open(&stand->test);
    muster_params_rounds_init(&stand->rounds, stand->test.env.mem, &options, 812);
    for (uint32_t i = sources; i > 0; i--) { /* their ids decide, not their order */
        struct muster_incarnation id = id_of(i - 1);

        assert_int_equal(muster_params_rounds_join(&stand->rounds, &id, 0), MUSTER_OK);
    }
}

static void stand_close(struct stand *stand)
{
    muster_params_rounds_fini(&stand->rounds);
    test_env_close(&stand->test);
}

static enum muster_rc row_push(struct stand *stand, uint32_t source, uint64_t round, uint64_t key,
                               float value)
{
    struct muster_incarnation id = id_of(source);
    const float values[WIDTH] = {value, -value};

    return muster_params_rounds_push(&stand->rounds, &id, round, &key, values, 1, &stand->error);
}

static enum muster_rc source_tick(struct stand *stand, uint32_t source, uint64_t round,
                                  double weight, uint64_t now_ns)
{
    struct muster_incarnation id = id_of(source);

    return muster_params_rounds_tick(&stand->rounds, &id, round, weight, now_ns, &stand->error);
}

static void source_die(struct stand *stand, uint32_t source)
{
    struct muster_incarnation id = id_of(source);

    muster_params_rounds_die(&stand->rounds, &id);
}

static void source_decide(struct stand *stand, uint32_t source, uint64_t counts_before,
                          uint64_t now_ns)
{
    struct muster_incarnation id = id_of(source);

    muster_params_rounds_decide(&stand->rounds, &id, counts_before, now_ns);
}

static enum muster_params_round_state state_at(const struct stand *stand, uint64_t now_ns)
{
    return muster_params_rounds_state(&stand->rounds, now_ns, NULL);
}

/* Closes; fails unless the round is this sum of these sources at key 5. */
static void round_expect(struct stand *stand, uint64_t now_ns, uint32_t sources, double weight,
                         float value)
{
    struct muster_params_round_sum sum;

    assert_int_equal(state_at(stand, now_ns), MUSTER_PARAMS_ROUND_DUE);
    assert_int_equal(muster_params_rounds_close(&stand->rounds, now_ns, &sum), MUSTER_OK);
    assert_int_equal(sum.source_count, sources);
    assert_true(sum.weight == weight);
    assert_int_equal(sum.row_count, value != 0);
    if (sum.row_count > 0) {
        assert_int_equal(sum.keys[0], 5);
        assert_true(sum.values[0] == value && sum.values[1] == -value);
    }
    muster_params_round_sum_fini(&sum, stand->test.env.mem);
}

static void a_round_closes_when_all_sources_have_ticked(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, 2, 0, false);
    assert_int_equal(row_push(&stand, 1, 812, 5, 3), MUSTER_OK);
    assert_int_equal(row_push(&stand, 0, 812, 5, 10), MUSTER_OK);
    assert_int_equal(row_push(&stand, 0, 812, 5, 1), MUSTER_OK); /* twice counts twice */
    assert_int_equal(source_tick(&stand, 0, 812, 2, 1), MUSTER_OK);
    assert_int_equal(state_at(&stand, UINT64_MAX), MUSTER_PARAMS_ROUND_OPEN);
    assert_int_equal(source_tick(&stand, 1, 812, 4, 2), MUSTER_OK);
    assert_int_equal(source_tick(&stand, 1, 812, 9, 2), MUSTER_OK); /* a repetition */

    round_expect(&stand, 3, 2, 6, 2 * 11 + 4 * 3);
    assert_int_equal(stand.rounds.open, 813);
    assert_int_equal(state_at(&stand, 3), MUSTER_PARAMS_ROUND_OPEN);
    assert_int_equal(source_tick(&stand, 1, 812, 4, 2), MUSTER_OK); /* again, after the close */
    stand_close(&stand);
}

static void a_quorum_closes_a_round_when_the_grace_has_passed(void **state)
{
    uint64_t end_ns = 0;
    struct stand stand;

    (void)state;
    stand_open(&stand, 3, 2, false);
    assert_int_equal(source_tick(&stand, 0, 812, 1, 10), MUSTER_OK);
    assert_int_equal(state_at(&stand, 10000), MUSTER_PARAMS_ROUND_OPEN);
    assert_int_equal(row_push(&stand, 2, 812, 5, 7), MUSTER_OK); /* never ticked: not counted */
    assert_int_equal(source_tick(&stand, 1, 812, 1, 50), MUSTER_OK);
    assert_int_equal(muster_params_rounds_state(&stand.rounds, 50 + GRACE - 1, &end_ns),
                     MUSTER_PARAMS_ROUND_GRACE);
    assert_int_equal(end_ns, 50 + GRACE);

    round_expect(&stand, 50 + GRACE, 2, 2, 0);
    assert_int_equal(row_push(&stand, 2, 812, 5, 7), MUSTER_OUT_OF_RANGE);
    assert_string_equal(stand.error.text, "round 812 is closed");
    assert_int_equal(source_tick(&stand, 2, 812, 1, 200), MUSTER_OUT_OF_RANGE);
    assert_string_equal(stand.error.text, "round 812 is closed");
    assert_int_equal(row_push(&stand, 2, 813, 5, 1), MUSTER_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(source_tick(&stand, i, 813, 1, 200), MUSTER_OK);
    round_expect(&stand, 200, 3, 3, 1);
    stand_close(&stand);
}

static void all_sources_end_the_grace_early(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, 2, 1, false);
    assert_int_equal(source_tick(&stand, 0, 812, 1, 10), MUSTER_OK);
    assert_int_equal(state_at(&stand, 20), MUSTER_PARAMS_ROUND_GRACE);
    assert_int_equal(source_tick(&stand, 1, 812, 1, 20), MUSTER_OK);
    round_expect(&stand, 20, 2, 2, 0);
    stand_close(&stand);
}

static void late_pushes_go_to_the_next_round_where_the_table_says_so(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, 2, 1, true);
    assert_int_equal(row_push(&stand, 1, 812, 5, 1), MUSTER_OK); /* before the close */
    assert_int_equal(row_push(&stand, 1, 813, 5, 4), MUSTER_OK); /* ahead */
    assert_int_equal(source_tick(&stand, 0, 812, 1, 10), MUSTER_OK);
    round_expect(&stand, 10 + GRACE, 1, 1, 0);

    assert_int_equal(row_push(&stand, 1, 812, 5, 2), MUSTER_OK); /* after it */
    assert_int_equal(source_tick(&stand, 1, 812, 1, 200), MUSTER_OK);
    assert_int_equal(state_at(&stand, 10000), MUSTER_PARAMS_ROUND_OPEN);
    assert_int_equal(source_tick(&stand, 1, 813, 3, 200), MUSTER_OK);
    assert_int_equal(source_tick(&stand, 0, 813, 1, 200), MUSTER_OK);
    round_expect(&stand, 200, 2, 4, 3 * 7);
    stand_close(&stand);
}

static void a_dead_source_counts_as_it_is_decided(void **state)
{
    static const struct {
        bool has_ticked, is_adopted;
        uint32_t sources;
        float value;
    } rows[] = {
        {false, false, 1, 1},
        {true, false, 1, 1},
        {true, true, 2, 5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_incarnation id = id_of(1);
        struct stand stand;

        stand_open(&stand, 2, 0, false);
        assert_int_equal(row_push(&stand, 0, 812, 5, 1), MUSTER_OK);
        assert_int_equal(row_push(&stand, 1, 812, 5, 4), MUSTER_OK);
        if (rows[i].has_ticked)
            assert_int_equal(source_tick(&stand, 1, 812, 1, 1), MUSTER_OK);
        source_die(&stand, 1);
        source_die(&stand, 1);
        assert_int_equal(source_tick(&stand, 0, 812, 1, 2), MUSTER_OK);
        assert_int_equal(state_at(&stand, 2), MUSTER_PARAMS_ROUND_UNDECIDED);
        assert_int_equal(row_push(&stand, 1, 812, 5, 4), MUSTER_FAILED_PRECONDITION);
        assert_int_equal(muster_params_rounds_ticked(&stand.rounds, &id), 812 + rows[i].has_ticked);
        source_decide(&stand, 1, 812 + rows[i].is_adopted, 3);

        assert_int_equal(muster_params_rounds_ticked(&stand.rounds, &id), UINT64_MAX);
        round_expect(&stand, 3, rows[i].sources, rows[i].sources, rows[i].value);
        assert_int_equal(row_push(&stand, 1, 813, 5, 4), MUSTER_NOT_FOUND);
        stand_close(&stand);
    }
}

static void a_death_takes_a_quorum_away_and_its_adoption_gives_it_back(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, 3, 2, false);
    assert_int_equal(source_tick(&stand, 0, 812, 1, 10), MUSTER_OK);
    assert_int_equal(source_tick(&stand, 1, 812, 1, 20), MUSTER_OK);
    source_die(&stand, 1);
    assert_int_equal(state_at(&stand, 10000), MUSTER_PARAMS_ROUND_OPEN);
    source_decide(&stand, 1, 813, 500);
    assert_int_equal(state_at(&stand, 500 + GRACE - 1), MUSTER_PARAMS_ROUND_GRACE);
    round_expect(&stand, 500 + GRACE, 2, 2, 0);
    stand_close(&stand);
}

static void a_grace_begins_with_its_own_round(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, 3, 2, false);
    for (uint64_t round = 812; round < 814; round++) {
        assert_int_equal(source_tick(&stand, 0, round, 1, 10), MUSTER_OK);
        assert_int_equal(source_tick(&stand, 1, round, 1, 10), MUSTER_OK);
    }
    round_expect(&stand, 500, 2, 2, 0);
    assert_int_equal(state_at(&stand, 500 + GRACE - 1), MUSTER_PARAMS_ROUND_GRACE);
    round_expect(&stand, 500 + GRACE, 2, 2, 0);
    stand_close(&stand);
}

static void a_round_that_counted_is_told_from_one_that_was_missed(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, 2, 1, false);
    assert_int_equal(source_tick(&stand, 1, 812, 1, 0), MUSTER_OK);
    assert_int_equal(source_tick(&stand, 0, 812, 1, 0), MUSTER_OK);
    round_expect(&stand, 0, 2, 2, 0);
    for (uint64_t round = 813; round < 815; round++) {
        assert_int_equal(source_tick(&stand, 0, round, 1, 0), MUSTER_OK);
        round_expect(&stand, GRACE, 1, 1, 0);
    }
    assert_int_equal(source_tick(&stand, 1, 812, 1, 0), MUSTER_OK);
    assert_int_equal(source_tick(&stand, 1, 813, 1, 0), MUSTER_OUT_OF_RANGE);
    assert_int_equal(source_tick(&stand, 1, 814, 1, 0), MUSTER_OUT_OF_RANGE);
    assert_int_equal(source_tick(&stand, 1, 815, 1, 0), MUSTER_OK);
    stand_close(&stand);
}

static void a_source_that_leaves_counts_in_the_rounds_that_it_has_ticked(void **state)
{
    struct muster_incarnation id = id_of(1);
    struct stand stand;

    (void)state;
    stand_open(&stand, 2, 0, false);
    assert_int_equal(row_push(&stand, 1, 812, 5, 2), MUSTER_OK);
    assert_int_equal(source_tick(&stand, 1, 812, 1, 1), MUSTER_OK);
    assert_int_equal(row_push(&stand, 1, 813, 5, 64), MUSTER_OK);
    muster_params_rounds_leave(&stand.rounds, &id);
    assert_int_equal(source_tick(&stand, 0, 812, 1, 2), MUSTER_OK);
    round_expect(&stand, 2, 2, 2, 2);
    assert_int_equal(source_tick(&stand, 0, 813, 1, 3), MUSTER_OK);
    round_expect(&stand, 3, 1, 1, 0);
    stand_close(&stand);
}

static void a_source_that_joins_is_waited_for_from_its_first_round(void **state)
{
    struct muster_incarnation id = id_of(1);
    struct stand stand;

    (void)state;
    stand_open(&stand, 1, 0, false);
    assert_int_equal(muster_params_rounds_join(&stand.rounds, &id, 813), MUSTER_OK);
    assert_int_equal(muster_params_rounds_join(&stand.rounds, &id, 813), MUSTER_ALREADY_EXISTS);
    assert_int_equal(row_push(&stand, 1, 812, 5, 2), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(source_tick(&stand, 0, 812, 1, 1), MUSTER_OK);
    round_expect(&stand, 1, 1, 1, 0);
    assert_int_equal(source_tick(&stand, 0, 813, 1, 1), MUSTER_OK);
    assert_int_equal(state_at(&stand, 1), MUSTER_PARAMS_ROUND_OPEN);
    stand_close(&stand);
}

static void events_that_do_not_fit_are_refused(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand, 1, 0, false);
    assert_int_equal(row_push(&stand, 0, 814, 5, 1), MUSTER_OK);
    assert_int_equal(row_push(&stand, 0, 815, 5, 1), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(source_tick(&stand, 0, 813, 1, 1), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(stand.error.text, "must complete round 812 first, got 813"));
    assert_int_equal(source_tick(&stand, 0, 812, -1, 1), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(source_tick(&stand, 0, 812, (double)INFINITY, 1), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(source_tick(&stand, 0, 812, (double)NAN, 1), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(source_tick(&stand, 7, 812, 1, 1), MUSTER_NOT_FOUND);
    assert_int_equal(source_tick(&stand, 0, 812, 1, 1), MUSTER_OK);
    assert_int_equal(row_push(&stand, 0, 812, 5, 1), MUSTER_INVALID_ARGUMENT);
    stand_close(&stand);
}

/* Also of the close, which leaves the round as it was. */
static void no_memory_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t fail_at = 1; fail_at < 40; fail_at++) {
        const struct muster_params_round_options options = {
            .row_elements = WIDTH, .quorum = 1, .ahead_max = 2, .is_late_kept = true};
        const struct muster_incarnation ids[] = {id_of(0), id_of(1)};
        uint64_t keys[20] = {5};
        float values[20 * WIDTH] = {1};
        struct muster_mem_limited limited;
        struct muster_params_rounds rounds;
        struct muster_params_round_sum sum;
        uint32_t refused = 0;

        muster_mem_limited_init(&limited, muster_mem_system(), SIZE_MAX);
        muster_params_rounds_init(&rounds, &limited.mem, &options, 0);
        limited.fail_at = fail_at;
        for (uint32_t i = 0; i < 2; i++) {
            while (muster_params_rounds_join(&rounds, &ids[i], 0) == MUSTER_RESOURCE_EXHAUSTED)
                refused++;
            for (uint64_t round = 0; round < 2; round++) {
                while (muster_params_rounds_push(&rounds, &ids[i], round, keys, values, 20, NULL) !=
                       MUSTER_OK)
                    refused++;
            }
        }
        while (muster_params_rounds_tick(&rounds, &ids[0], 0, 1, 0, NULL) != MUSTER_OK)
            refused++;
        while (muster_params_rounds_close(&rounds, 0, &sum) != MUSTER_OK)
            refused++;
        assert_int_equal(sum.row_count, 2);
        muster_params_round_sum_fini(&sum, &limited.mem);
        for (uint32_t i = 0; i < 2; i++) {
            while (muster_params_rounds_tick(&rounds, &ids[i], 1, 1, 0, NULL) != MUSTER_OK)
                refused++;
        }
        while (muster_params_rounds_close(&rounds, 0, &sum) != MUSTER_OK)
            refused++;
        assert_true(sum.values[1 * WIDTH] == 3); /* one, and one that was late, twice */
        assert_in_range(refused, 0, 1);
        muster_params_round_sum_fini(&sum, &limited.mem);
        muster_params_rounds_fini(&rounds);
        assert_int_equal(muster_mem_limited_fini(&limited), 0);
    }
}

/* --- A model --- */

enum { SOURCES = 3, EVENTS_EACH = 3 };

/* Another order of the sources gives another sum. */
static float value_of(uint32_t source, uint32_t event)
{
    static const float values[] = {3 * 0x1p60f, -0x1p60f, 1}; /* weights 0.5, 1.5, 2.5 */

    return values[source] + (float)event;
}

/* A single process folds the contributions in the order of the sources. */
static float fold_of(uint32_t counted)
{
    double total = 0;

    for (uint32_t source = 0; source < SOURCES; source++) {
        for (uint32_t event = 0; event + 1 < EVENTS_EACH && (counted >> source & 1) != 0; event++)
            total += (0.5 + source) * (double)value_of(source, event);
    }
    return (float)total;
}

/* Every order in which the events of three sources can come: two pushes and a tick each, where a source
 * dies behind so many of its events and is decided. */
static uint32_t orders_play(const uint32_t *lengths, uint32_t dead, bool is_adopted)
{
    uint32_t played = 0;

    for (uint32_t order = 0; order < 19683; order++) { /* 3 to the 9th */
        uint32_t done[SOURCES] = {0}, counted = 0, rest = order;
        struct muster_params_round_sum sum;
        struct stand stand;
        bool is_order = true;

        for (uint32_t i = 0; i < lengths[0] + lengths[1] + lengths[2]; i++, rest /= 3)
            done[rest % 3]++;
        for (uint32_t i = 0; i < SOURCES; i++)
            is_order = is_order && done[i] == lengths[i];
        if (!is_order || rest != 0)
            continue;
        stand_open(&stand, SOURCES, 0, false);
        memset(done, 0, sizeof(done));
        rest = order;
        for (uint32_t i = 0; i < lengths[0] + lengths[1] + lengths[2]; i++, rest /= 3) {
            uint32_t source = rest % 3, event = done[source]++;

            if (event + 1 < EVENTS_EACH)
                assert_int_equal(row_push(&stand, source, 812, 5, value_of(source, event)),
                                 MUSTER_OK);
            else
                assert_int_equal(source_tick(&stand, source, 812, 0.5 + source, i), MUSTER_OK);
            if (source == dead && done[source] == lengths[source])
                source_die(&stand, source);
        }
        if (dead < SOURCES && lengths[dead] == 0)
            source_die(&stand, dead);
        if (dead < SOURCES) {
            assert_int_equal(state_at(&stand, 9), MUSTER_PARAMS_ROUND_UNDECIDED);
            source_decide(&stand, dead, 812 + is_adopted, 9);
        }
        for (uint32_t i = 0; i < SOURCES; i++)
            counted |= (i != dead || is_adopted ? 1u : 0u) << i;
        assert_int_equal(state_at(&stand, 9), MUSTER_PARAMS_ROUND_DUE);
        assert_int_equal(muster_params_rounds_close(&stand.rounds, 9, &sum), MUSTER_OK);
        assert_int_equal(sum.row_count, 1);
        assert_true(sum.values[0] == fold_of(counted) && sum.values[1] == -fold_of(counted));
        muster_params_round_sum_fini(&sum, stand.test.env.mem);
        stand_close(&stand);
        played++;
    }
    return played;
}

static void every_order_of_events_gives_the_bytes_of_one_process(void **state)
{
    static const uint32_t all[] = {3, 3, 3};

    (void)state;
    assert_int_equal(orders_play(all, SOURCES, false), 1680);
}

static void every_death_counts_everywhere_or_nowhere(void **state)
{
    (void)state;
    for (uint32_t events = 0; events <= EVENTS_EACH; events++) {
        const uint32_t lengths[] = {3, events, 3};

        assert_true(orders_play(lengths, 1, false) > 0);
        if (events == EVENTS_EACH)
            assert_true(orders_play(lengths, 1, true) > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_closes_when_all_sources_have_ticked),
        cmocka_unit_test(a_quorum_closes_a_round_when_the_grace_has_passed),
        cmocka_unit_test(all_sources_end_the_grace_early),
        cmocka_unit_test(late_pushes_go_to_the_next_round_where_the_table_says_so),
        cmocka_unit_test(a_dead_source_counts_as_it_is_decided),
        cmocka_unit_test(a_death_takes_a_quorum_away_and_its_adoption_gives_it_back),
        cmocka_unit_test(a_grace_begins_with_its_own_round),
        cmocka_unit_test(a_round_that_counted_is_told_from_one_that_was_missed),
        cmocka_unit_test(a_source_that_leaves_counts_in_the_rounds_that_it_has_ticked),
        cmocka_unit_test(a_source_that_joins_is_waited_for_from_its_first_round),
        cmocka_unit_test(events_that_do_not_fit_are_refused),
        cmocka_unit_test(no_memory_is_refused_and_changes_nothing),
        cmocka_unit_test(every_order_of_events_gives_the_bytes_of_one_process),
        cmocka_unit_test(every_death_counts_everywhere_or_nowhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
