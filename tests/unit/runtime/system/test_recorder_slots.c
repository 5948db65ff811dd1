/* Several flight recorders in one process: which of them signals dump, and what threads share. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

static int sigaction_under_lock(int number, const struct sigaction *now, struct sigaction *before);
static int note_raised(int number);
#define sigaction(number, now, before) sigaction_under_lock(number, now, before)
#define raise(number)                  note_raised(number)
#include "runtime/system/recorder_system.c"
#undef sigaction
#undef raise

#include "tests/lib/test_env.h"

static unsigned handler_changes;

/* Another thread that opens or closes a recorder meanwhile would see the table half made. */
static int sigaction_under_lock(int number, const struct sigaction *now, struct sigaction *before)
{
    assert_int_equal(pthread_mutex_trylock(&lock), EBUSY);
    handler_changes += now != NULL;
    return sigaction(number, now, before);
}

static int raised;

static int note_raised(int number)
{
    raised = number;
    return 0;
}

static struct muster_recorder *recorder_in(struct test_env *test, const char *folder)
{
    struct muster_recorder_options options = {
        .mem = test->env.mem,
        .trace = test->env.trace,
        .folder = folder,
        .temporary = "/nonexistent",
        .job = "job",
        .task = "worker:0",
        .incarnation = "0123456789abcdef0123456789abcdef",
    };
    struct muster_recorder *recorder = NULL;

    assert_int_equal(muster_recorder_open(&options, &recorder), MUSTER_OK);
    return recorder;
}

static struct muster_recorder *recorder_of(struct test_env *test)
{
    return recorder_in(test, "/nonexistent");
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

/* Those of the parent of a fork are not this process's to dump. The handler runs once in a process. */
static void a_fatal_signal_dumps_the_recorders_of_this_process(void **state)
{
    char folder[] = "/tmp/muster-recorder-XXXXXX";
    siginfo_t info = {.si_code = SI_USER};
    struct muster_recorder *opened[4];
    struct test_env test;
    (void)state;

    assert_non_null(mkdtemp(folder));
    test_env_open(&test);
    assert_int_equal(muster_trace_open(test.env.mem, 4, &test.env.trace), MUSTER_OK);
    for (size_t i = 0; i < 4; i++)
        opened[i] = recorder_in(&test, folder);
    opened[1]->generation++;
    muster_recorder_close(opened[2]);
    set_error(opened[3], "an error before");
    errno = EXDEV;
    on_fatal_signal(SIGTERM, &info, NULL);

    assert_int_equal(errno, EXDEV);
    assert_int_equal(raised, SIGTERM);
    assert_string_equal(opened[0]->error, signal_text(SIGTERM));
    assert_string_equal(opened[3]->error, "an error before");
    assert_int_equal(unlink(opened[0]->path), 0);
    assert_int_not_equal(unlink(opened[1]->path), 0);
    assert_int_equal(unlink(opened[3]->path), 0);
    assert_int_equal(rmdir(folder), 0);
    for (size_t i = 0; i < 4; i++)
        if (i != 2)
            muster_recorder_close(opened[i]);
    muster_trace_close(test.env.trace);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_more_than_signals_dump_opens_and_closes),
        cmocka_unit_test(the_last_that_is_closed_gives_the_signals_back),
        cmocka_unit_test(a_fatal_signal_dumps_the_recorders_of_this_process),
    };

    return cmocka_run_group_tests_name("recorder_slots", tests, NULL, NULL);
}
