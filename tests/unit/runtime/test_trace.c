/* The flight recorder: a ring that keeps the newest events. */
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set_up(void **state)
{
    static struct test_env test;

    test_env_open(&test);
    *state = &test;
    return 0;
}

static int tear_down(void **state)
{
    test_env_close(*state);
    return 0;
}

static struct muster_env *env_of(void **state)
{
    return &((struct test_env *)*state)->env;
}

static void a_full_ring_keeps_the_newest_oldest_first(void **state)
{
    struct muster_env *env = env_of(state);

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
    struct muster_env *env = env_of(state);

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

static void both_rings_are_read_in_the_order_of_events(void **state)
{
    struct muster_env *env = env_of(state);

    assert_int_equal(muster_trace_open(env->mem, 64, &env->trace), MUSTER_OK);
    for (uint64_t i = 0; i < 40; i++)
        if (i * i % 7 == 2)
            muster_trace_emit(env, "rare", i, 0, 0);
        else
            muster_trace_emit_at(env, 0, "often", NULL, i, 0, 0);

    for (size_t i = 0; i < 40; i++)
        assert_int_equal(muster_trace_at(env->trace, i)->a, i);
    muster_trace_close(env->trace);
}

static void warnings_of_the_log_are_events(void **state)
{
    struct muster_env *env = env_of(state);

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
    struct muster_env *env = env_of(state);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    assert_int_equal(muster_trace_open(env->mem, 8, &env->trace), MUSTER_OK);
    muster_trace_emit(env, "view_committed", 2, 3, 4);
    muster_trace_dump(env->trace, file);
    fclose(file);

    assert_non_null(strstr(text, ",\"a\":2,\"b\":3,\"c\":4,\"kind\":\"view_committed\"}\n"));
    free(text);
    muster_trace_close(env->trace);
}

static void without_a_ring_events_vanish_and_no_ring_is_empty(void **state)
{
    struct muster_trace *trace = NULL;

    muster_trace_emit(env_of(state), "step", 0, 0, 0);
    assert_int_equal(muster_trace_open(env_of(state)->mem, 0, &trace), MUSTER_INVALID_ARGUMENT);
    muster_trace_close(NULL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_full_ring_keeps_the_newest_oldest_first),
        CASE(steps_do_not_push_out_what_is_rare),
        CASE(both_rings_are_read_in_the_order_of_events),
        CASE(warnings_of_the_log_are_events),
        CASE(the_dump_has_one_object_per_line),
        CASE(without_a_ring_events_vanish_and_no_ring_is_empty),
    };

    return cmocka_run_group_tests_name("trace", cases, NULL, NULL);
}
