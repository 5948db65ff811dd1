/* The flight recorder: a ring that keeps the newest events. */
#include "test_env.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void a_full_ring_keeps_the_newest_oldest_first(void **state)
{
    struct muster_env *env = test_env_of(state);

    assert_int_equal(muster_trace_open(env->mem, 3, &env->trace), MUSTER_OK);
    for (uint64_t i = 0; i < 5; i++)
        muster_trace_emit_at(env, i, "step", NULL, i, 0, 0);

    assert_int_equal(muster_trace_count(env->trace), 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(muster_trace_at(env->trace, i)->a, i + 2);
    assert_true(muster_trace_at(env->trace, 0)->time_ns <= muster_trace_at(env->trace, 2)->time_ns);
    muster_trace_close(env->trace);
}

static void steps_do_not_push_out_what_is_rare(void **state)
{
    static const uint64_t kept[] = {0, 50, 97, 98, 99};
    struct muster_env *env = test_env_of(state);

    assert_int_equal(muster_trace_open(env->mem, 3, &env->trace), MUSTER_OK);
    for (uint64_t i = 0; i < 100; i++)
        if (i % 50 == 0)
            muster_trace_emit(env, "view_entered", i, 0, 0);
        else
            muster_trace_emit_at(env, i, "step", NULL, i, 0, 0);

    assert_int_equal(muster_trace_emitted(env->trace), 100);
    assert_int_equal(muster_trace_count(env->trace), 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(muster_trace_at(env->trace, i)->a, kept[i]);
    muster_trace_close(env->trace);
}

#define EVENTS 400

/* The events that both rings must hold, oldest first, by their number. */
static size_t model_of(const bool *is_rare, uint64_t emitted, size_t often, size_t rare,
                       uint64_t *ret_numbers)
{
    size_t count = 0;

    for (uint64_t i = emitted; i-- > 0;) {
        size_t *left = is_rare[i] ? &rare : &often;

        if (*left == 0)
            continue;
        (*left)--;
        ret_numbers[count++] = i;
    }
    for (size_t i = 0; i < count / 2; i++) {
        uint64_t number = ret_numbers[i];

        ret_numbers[i] = ret_numbers[count - 1 - i];
        ret_numbers[count - 1 - i] = number;
    }
    return count;
}

/* Whatever the mix, while the rings fill and after each has gone round. */
static void both_rings_are_read_in_the_order_of_events(void **state)
{
    static const struct {
        uint32_t capacity, rare; /* an eighth, and at least 16 */
        unsigned rare_of_10;
    } rows[] = {{1, 16, 5},   {3, 16, 9},   {40, 16, 3},  {127, 16, 5},
                {128, 16, 1}, {136, 17, 9}, {160, 20, 0}, {24, 16, 10}};
    struct muster_env *env = test_env_of(state);
    struct muster_rng_seeded rng;

    muster_rng_seeded_init(&rng, 3);
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        static bool is_rare[EVENTS];
        static uint64_t numbers[EVENTS];

        assert_int_equal(muster_trace_open(env->mem, rows[r].capacity, &env->trace), MUSTER_OK);
        for (uint64_t i = 0; i <= EVENTS; i++) {
            size_t count = model_of(is_rare, i, rows[r].capacity, rows[r].rare, numbers);

            assert_int_equal(muster_trace_emitted(env->trace), i);
            assert_int_equal(muster_trace_count(env->trace), count);
            for (size_t at = 0; at < count; at++)
                assert_int_equal(muster_trace_at(env->trace, at)->a, numbers[at]);
            if (i == EVENTS)
                break;
            is_rare[i] = muster_rng_below(&rng.rng, 10) < rows[r].rare_of_10;
            if (is_rare[i])
                muster_trace_emit(env, "rare", i, 0, 0);
            else
                muster_trace_emit_at(env, 0, "often", NULL, i, 0, 0);
        }
        muster_trace_close(env->trace);
    }
    env->trace = NULL;
}

static void warnings_of_the_log_are_events(void **state)
{
    struct muster_env *env = test_env_of(state);

    assert_int_equal(muster_trace_open(env->mem, 4, &env->trace), MUSTER_OK);
    MUSTER_LOG(env, INFO, "view");
    MUSTER_LOG(env, WARN, "begin_waits", "seconds", 3);

    assert_int_equal(muster_trace_count(env->trace), 1);
    assert_string_equal(muster_trace_at(env->trace, 0)->kind, "logged");
    assert_string_equal(muster_trace_at(env->trace, 0)->text, "begin_waits");
    muster_trace_close(env->trace);
}

static void the_dump_has_one_object_per_line(void **state)
{
    struct muster_env *env = test_env_of(state);
    uint64_t before_ns = muster_loop_clock_ns(env->loop);
    char *text = NULL, expected[512];
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    assert_int_equal(muster_trace_open(env->mem, 8, &env->trace), MUSTER_OK);
    muster_trace_emit_at(env, 5, "step", "a \"name\"", 6, UINT64_MAX, 8);
    muster_trace_emit_text(env, "state", "closed", 1, 2, 3);
    muster_trace_emit(env, "view_committed", 2, 3, 4);
    assert_in_range(muster_trace_at(env->trace, 1)->time_ns, before_ns,
                    muster_loop_clock_ns(env->loop));
    muster_trace_dump(env->trace, file);
    fclose(file);

    snprintf(expected, sizeof(expected),
             "{\"time_ns\":5,\"a\":6,\"b\":\"18446744073709551615\",\"c\":8,\"kind\":\"step\","
             "\"text\":\"a \\\"name\\\"\"}\n"
             "{\"time_ns\":%" PRIu64 ",\"a\":1,\"b\":2,\"c\":3,\"kind\":\"state\","
             "\"text\":\"closed\"}\n"
             "{\"time_ns\":%" PRIu64 ",\"a\":2,\"b\":3,\"c\":4,\"kind\":\"view_committed\"}\n",
             muster_trace_at(env->trace, 1)->time_ns, muster_trace_at(env->trace, 2)->time_ns);
    assert_string_equal(text, expected);
    free(text);
    muster_trace_close(env->trace);
}

/* A line has room for the longest kind and text that are our own. */
static void a_line_is_never_longer_than_its_room(void **state)
{
    struct muster_trace_event event = {.time_ns = UINT64_MAX, .kind = "k", .text = "t"};
    char text[400], line[MUSTER_TRACE_LINE_BYTES + 1];
    size_t length;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    event.text = text;
    line[MUSTER_TRACE_LINE_BYTES] = 'y';
    length = muster_trace_format(&event, line);
    assert_int_equal(length, MUSTER_TRACE_LINE_BYTES);
    assert_memory_equal(line + length - 3, "x}\n", 3);
    assert_int_equal(line[MUSTER_TRACE_LINE_BYTES], 'y');
}

static void without_a_ring_events_vanish_and_no_ring_is_empty(void **state)
{
    struct test_env *test = *state;
    struct muster_trace *trace = NULL;

    muster_trace_emit(&test->env, "step", 0, 0, 0);
    muster_trace_emit_at(&test->env, 0, "step", NULL, 0, 0, 0);
    assert_int_equal(muster_trace_open(test->env.mem, 0, &trace), MUSTER_INVALID_ARGUMENT);
    test->mem.fail_at = 1;
    assert_int_equal(muster_trace_open(test->env.mem, 1, &trace), MUSTER_RESOURCE_EXHAUSTED);
    assert_null(trace);
    muster_trace_close(NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_full_ring_keeps_the_newest_oldest_first),
        CASE(steps_do_not_push_out_what_is_rare),
        CASE(both_rings_are_read_in_the_order_of_events),
        CASE(warnings_of_the_log_are_events),
        CASE(the_dump_has_one_object_per_line),
        CASE(a_line_is_never_longer_than_its_room),
        CASE(without_a_ring_events_vanish_and_no_ring_is_empty),
    };

    return cmocka_run_group_tests_name("trace", cases, NULL, NULL);
}
