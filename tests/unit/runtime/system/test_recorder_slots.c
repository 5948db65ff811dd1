/* Several flight recorders in one process: which of them signals dump, and what threads share. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

static int sigaction_under_lock(int number, const struct sigaction *now, struct sigaction *before);
#define sigaction(number, now, before) sigaction_under_lock(number, now, before)
#include "runtime/system/recorder_system.c"
#undef sigaction

#include "tests/lib/test_env.h"

static unsigned handler_changes;

/* Another thread that opens or closes a recorder meanwhile would see the table half made. */
static int sigaction_under_lock(int number, const struct sigaction *now, struct sigaction *before)
{
    assert_int_equal(pthread_mutex_trylock(&lock), EBUSY);
    handler_changes += now != NULL;
    return sigaction(number, now, before);
}

static struct muster_recorder *recorder_of(struct test_env *test)
{
    struct muster_recorder_options options = {
        .mem = test->env.mem,
        .trace = test->env.trace,
        .folder = "/nonexistent",
        .temporary = "/nonexistent",
        .job = "job",
        .task = "worker:0",
        .incarnation = "0123456789abcdef0123456789abcdef",
    };
    struct muster_recorder *recorder = NULL;

    assert_int_equal(muster_recorder_open(&options, &recorder), MUSTER_OK);
    return recorder;
}

static size_t slots_taken(void)
{
    size_t count = 0;

    for (size_t i = 0; i < RECORDERS_MAX; i++)
        count += recorders[i] != NULL;
    return count;
}

/* Closed in each order: the one without a slot first, last, and amid the others. */
static void one_more_than_signals_dump_opens_and_closes(void **state)
{
    struct test_env test;
    (void)state;

    test_env_open(&test);
    assert_int_equal(muster_trace_open(test.env.mem, 4, &test.env.trace), MUSTER_OK);
    for (size_t first = 0; first <= RECORDERS_MAX; first++) {
        struct muster_recorder *opened[RECORDERS_MAX + 1];

        for (size_t i = 0; i <= RECORDERS_MAX; i++)
            opened[i] = recorder_of(&test);
        for (size_t i = 0; i < RECORDERS_MAX; i++)
            assert_ptr_equal(recorders[i], opened[i]);
        for (size_t i = 0; i <= RECORDERS_MAX; i++) {
            size_t at = (first + i) % (RECORDERS_MAX + 1);

            muster_recorder_close(opened[at]);
            if (at < RECORDERS_MAX)
                assert_null(recorders[at]);
        }
        assert_int_equal(slots_taken(), 0);
    }
    muster_trace_close(test.env.trace);
    test_env_close(&test);
}

static void the_last_that_is_closed_gives_the_signals_back(void **state)
{
    struct sigaction handler;
    struct test_env test;
    struct muster_recorder *first, *second;
    (void)state;

    test_env_open(&test);
    assert_int_equal(muster_trace_open(test.env.mem, 4, &test.env.trace), MUSTER_OK);
    first = recorder_of(&test);
    second = recorder_of(&test);
    assert_int_equal(sigaction(SIGFPE, NULL, &handler), 0);
    handler_changes = 0;
    muster_recorder_close(first);
    assert_int_equal(handler_changes, 0);
    muster_recorder_close(second);
    if (is_ours(&handler)) /* a sanitizer keeps its own */
        assert_true(handler_changes > 0);

    assert_int_equal(sigaction(SIGFPE, NULL, &handler), 0);
    assert_false(is_ours(&handler));
    muster_trace_close(test.env.trace);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_more_than_signals_dump_opens_and_closes),
        cmocka_unit_test(the_last_that_is_closed_gives_the_signals_back),
    };

    return cmocka_run_group_tests_name("recorder_slots", tests, NULL, NULL);
}
