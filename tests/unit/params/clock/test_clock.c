/* Clocks: a pull is answered exactly when all live sources are far enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/clock/clock.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

static struct muster_incarnation id_of(uint32_t number)
{
    struct muster_incarnation id = {{0}};

    id.bytes[0] = (uint8_t)(number * 37 + 1);
    id.bytes[15] = (uint8_t)(number + 1);
    return id;
}

struct group {
    struct test_env test;
    struct muster_params_clock clock;
};

static void group_open(struct group *group, uint32_t sources)
{
    test_env_open(&group->test);
    muster_params_clock_init(&group->clock, group->test.env.mem);
    for (uint32_t i = 0; i < sources; i++) {
        struct muster_incarnation id = id_of(i);

        assert_int_equal(muster_params_clock_join(&group->clock, &id, 0, 100 + i), MUSTER_OK);
    }
}

static void group_close(struct group *group)
{
    muster_params_clock_fini(&group->clock);
    test_env_close(&group->test);
}

static enum muster_rc source_tick(struct group *group, uint32_t number, uint64_t steps,
                                  uint64_t now_ns)
{
    struct muster_incarnation id = id_of(number);

    return muster_params_clock_tick(&group->clock, &id, steps, now_ns, NULL);
}

static bool source_leave(struct group *group, uint32_t number)
{
    struct muster_incarnation id = id_of(number);

    return muster_params_clock_leave(&group->clock, &id);
}

static void the_low_clock_is_the_smallest_of_the_sources_that_are_there(void **state)
{
    struct group group;

    (void)state;
    group_open(&group, 0);
    assert_int_equal(muster_params_clock_low(&group.clock), UINT64_MAX);
    assert_null(muster_params_clock_slowest(&group.clock));
    group_close(&group);

    group_open(&group, 3);
    assert_int_equal(source_tick(&group, 0, 5, 1), MUSTER_OK);
    assert_int_equal(source_tick(&group, 1, 3, 2), MUSTER_OK);
    assert_int_equal(muster_params_clock_low(&group.clock), 0);
    assert_int_equal(source_tick(&group, 2, 4, 3), MUSTER_OK);
    assert_int_equal(muster_params_clock_low(&group.clock), 3);
    assert_true(source_leave(&group, 1));
    assert_int_equal(muster_params_clock_low(&group.clock), 4);
    assert_false(source_leave(&group, 1));
    group_close(&group);
}

static void a_pull_is_due_by_its_clock_and_staleness(void **state)
{
    static const struct {
        uint64_t at, staleness;
        bool is_due; /* with a low clock of 10 */
    } rows[] = {
        {10, 0, true},
        {11, 0, false},
        {11, 1, true},
        {13, 2, false},
        {12, 2, true},
        {2, 5, true}, /* does not wrap */
        {UINT64_MAX, MUSTER_PARAMS_STALENESS_ANY, true},
        {UINT64_MAX, 0, false},
        {0, 0, true},
    };
    struct group group;

    (void)state;
    group_open(&group, 2);
    assert_int_equal(source_tick(&group, 0, 10, 1), MUSTER_OK);
    assert_int_equal(source_tick(&group, 1, 12, 1), MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(muster_params_clock_is_due(&group.clock, rows[i].at, rows[i].staleness) !=
                    rows[i].is_due,
                "row %zu", i);
    group_close(&group);
}

static void a_tick_may_be_repeated_and_skip_steps_but_not_go_back(void **state)
{
    struct muster_incarnation id = id_of(0), stranger = id_of(9);
    struct muster_error error;
    struct group group;

    (void)state;
    group_open(&group, 1);
    assert_int_equal(source_tick(&group, 0, 7, 200), MUSTER_OK);
    assert_int_equal(source_tick(&group, 0, 7, 300), MUSTER_OK);
    assert_int_equal(group.clock.sources[0].since_ns, 200);
    assert_int_equal(muster_params_clock_tick(&group.clock, &id, 6, 400, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "must not go back, got 6 after 7"));
    assert_int_equal(muster_params_clock_tick(&group.clock, &stranger, 1, 400, &error),
                     MUSTER_NOT_FOUND);
    assert_int_equal(muster_params_clock_join(&group.clock, &id, 0, 400), MUSTER_ALREADY_EXISTS);
    assert_int_equal(muster_params_clock_low(&group.clock), 7);
    group_close(&group);
}

static void a_deadline_names_the_slowest_source(void **state)
{
    char id_text[MUSTER_INCARNATION_TEXT_BYTES];
    struct muster_params_clock_wait wait = {.need = 0};
    struct muster_incarnation id = id_of(1);
    struct muster_error error;
    struct group group;

    (void)state;
    group_open(&group, 3);
    assert_int_equal(source_tick(&group, 2, 4, 2 * MUSTER_NS_PER_S), MUSTER_OK);
    assert_int_equal(source_tick(&group, 1, 4, MUSTER_NS_PER_S), MUSTER_OK);
    assert_int_equal(source_tick(&group, 0, 6, 0), MUSTER_OK);
    muster_params_clock_wait_start(&group.clock, &wait, 7, 2);

    assert_int_equal(
        muster_params_clock_wait_blame(&group.clock, &wait, 4250 * MUSTER_NS_PER_MS, &error),
        MUSTER_DEADLINE_EXCEEDED);
    muster_incarnation_format(&id, id_text);
    assert_non_null(strstr(error.text, "waits for clock 5: the slowest source "));
    assert_non_null(strstr(error.text, id_text));
    assert_non_null(strstr(error.text, "has been at 4 for 3.250 s"));
    muster_params_clock_wait_stop(&wait);
    muster_params_clock_wait_stop(&wait);
    group_close(&group);
}

static void pulls_go_on_in_the_order_of_what_they_need(void **state)
{
    static const uint64_t needs[] = {3, 1, 2, 1, 3};
    static const uint32_t order[] = {1, 3, 2, 0, 4};
    struct muster_params_clock_wait waits[5];
    struct group group;

    (void)state;
    memset(waits, 0, sizeof(waits));
    group_open(&group, 1);
    for (uint32_t i = 0; i < 5; i++)
        muster_params_clock_wait_start(&group.clock, &waits[i], needs[i], 0);
    assert_null(muster_params_clock_next(&group.clock));
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(source_tick(&group, 0, needs[order[i]], 1), MUSTER_OK);
        assert_ptr_equal(muster_params_clock_next(&group.clock), &waits[order[i]]);
    }
    assert_null(muster_params_clock_next(&group.clock));
    group_close(&group);
}

static void the_last_source_that_goes_lets_all_pulls_go_on(void **state)
{
    struct muster_params_clock_wait wait = {.need = 0};
    struct group group;

    (void)state;
    group_open(&group, 1);
    muster_params_clock_wait_start(&group.clock, &wait, 900, 0);
    assert_true(source_leave(&group, 0));
    assert_ptr_equal(muster_params_clock_next(&group.clock), &wait);
    group_close(&group);
}

static void no_memory_leaves_the_group_as_it_is(void **state)
{
    struct muster_mem_limited limited;
    struct muster_params_clock clock;
    struct muster_incarnation id = id_of(0);

    (void)state;
    muster_mem_limited_init(&limited, muster_mem_system(), SIZE_MAX);
    muster_params_clock_init(&clock, &limited.mem);
    limited.fail_at = 1;
    assert_int_equal(muster_params_clock_join(&clock, &id, 0, 0), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(clock.count, 0);
    assert_int_equal(muster_params_clock_join(&clock, &id, 0, 0), MUSTER_OK);
    muster_params_clock_fini(&clock);
    assert_int_equal(muster_mem_limited_fini(&limited), 0);
}

/* Sources come, tick and go at random; a pull goes on exactly when the rule says so. */
static void no_order_of_events_answers_a_pull_too_early_or_too_late(void **state)
{
    enum { SOURCES = 40, PULLS = 60, STEPS = 6000 };
    struct muster_params_clock_wait waits[PULLS];
    uint64_t at[PULLS], staleness[PULLS], clocks[SOURCES] = {0}, random = 7;
    bool is_in[SOURCES] = {false};
    struct group group;

    (void)state;
    memset(waits, 0, sizeof(waits));
    group_open(&group, 0);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t source, pull;
        uint64_t low = UINT64_MAX;
        struct muster_params_clock_wait *wait;

        random = random * 6364136223846793005u + 1442695040888963407u;
        source = (uint32_t)(random >> 33) % SOURCES;
        pull = (uint32_t)(random >> 40) % PULLS;
        if (!is_in[source]) {
            struct muster_incarnation id = id_of(source);

            assert_int_equal(muster_params_clock_join(&group.clock, &id, clocks[source], step),
                             MUSTER_OK);
            is_in[source] = true;
        } else if ((random >> 50) % 40 == 0) {
            assert_true(source_leave(&group, source));
            is_in[source] = false;
        } else {
            clocks[source] += 1 + (random >> 55) % 2;
            assert_int_equal(source_tick(&group, source, clocks[source], step), MUSTER_OK);
        }
        for (uint32_t i = 0; i < SOURCES; i++)
            low = is_in[i] && clocks[i] < low ? clocks[i] : low;
        assert_int_equal(muster_params_clock_low(&group.clock), low);
        while ((wait = muster_params_clock_next(&group.clock)) != NULL) {
            uint32_t i = (uint32_t)(wait - waits);

            assert_true(at[i] <= staleness[i] || low >= at[i] - staleness[i]);
        }
        for (uint32_t i = 0; i < PULLS; i++)
            assert_int_equal(waits[i].state == MUSTER_PARAMS_CLOCK_WAIT_WAITING,
                             waits[i].state != 0 && at[i] > staleness[i] &&
                                 low < at[i] - staleness[i]);
        if (waits[pull].state != MUSTER_PARAMS_CLOCK_WAIT_IDLE)
            continue;
        at[pull] = clocks[source];
        staleness[pull] = (random >> 20) % 4;
        if (!muster_params_clock_is_due(&group.clock, at[pull], staleness[pull]))
            muster_params_clock_wait_start(&group.clock, &waits[pull], at[pull], staleness[pull]);
    }
    for (uint32_t i = 0; i < PULLS; i++)
        muster_params_clock_wait_stop(&waits[i]);
    group_close(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_low_clock_is_the_smallest_of_the_sources_that_are_there),
        cmocka_unit_test(a_pull_is_due_by_its_clock_and_staleness),
        cmocka_unit_test(a_tick_may_be_repeated_and_skip_steps_but_not_go_back),
        cmocka_unit_test(a_deadline_names_the_slowest_source),
        cmocka_unit_test(pulls_go_on_in_the_order_of_what_they_need),
        cmocka_unit_test(the_last_source_that_goes_lets_all_pulls_go_on),
        cmocka_unit_test(no_memory_leaves_the_group_as_it_is),
        cmocka_unit_test(no_order_of_events_answers_a_pull_too_early_or_too_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
