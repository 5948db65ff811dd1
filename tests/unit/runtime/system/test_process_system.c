/* This process as libc knows it: forks, threads, hooks of its end, and a language that takes itself down. */
#include "runtime/system/process_system.h"

#include "test_env.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* CPython's before 3.13, which the product looks for by its name. */
static int python_ending;
int _Py_IsFinalizing(void);
__attribute__((visibility("default"))) int _Py_IsFinalizing(void)
{
    return python_ending;
}

/* No time goes by: naps are counted, and one of them sets a flag. */
static unsigned nap_count, sets_at;
static atomic_bool flag;

int nanosleep(const struct timespec *nap, struct timespec *ret_left)
{
    assert_int_equal(nap->tv_sec, 0);
    assert_int_equal(nap->tv_nsec, MUSTER_NS_PER_MS);
    assert_null(ret_left);
    if (++nap_count == sets_at)
        atomic_store(&flag, true);
    return 0;
}

static void the_end_of_a_language_is_asked_of_it(void **state)
{
    (void)state;
    assert_true(muster_process_shows_end());
    assert_false(muster_process_is_ending());
    python_ending = 1;
    assert_true(muster_process_is_ending());
    python_ending = 0;
}

static void a_flag_is_awaited_by_the_millisecond(void **state)
{
    static const struct {
        bool is_set;
        uint64_t for_ns;
        unsigned sets_at, naps;
    } rows[] = {
        {true, UINT64_MAX, 0, 0},
        {false, 0, 0, 0},
        {false, 1, 0, 1},
        {false, MUSTER_NS_PER_MS, 0, 1},
        {false, 3 * MUSTER_NS_PER_MS, 0, 3},
        {false, 3 * MUSTER_NS_PER_MS + 1, 0, 4},
        {false, UINT64_MAX, 5, 5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        atomic_store(&flag, rows[i].is_set);
        nap_count = 0;
        sets_at = rows[i].sets_at;
        muster_process_await(&flag, rows[i].for_ns);
        assert_int_equal(nap_count, rows[i].naps);
    }
}

/* --- Threads --- */

static void *tell_number(void *data)
{
    char text[MUSTER_THREAD_TEXT_BYTES], expected[64];

    assert_int_equal(muster_thread_number(), gettid());
    assert_int_equal(muster_thread_number(), gettid());
    prctl(PR_SET_NAME, "fifteen letters");
    muster_thread_format(muster_thread_number(), text);
    snprintf(expected, sizeof(expected), "%d (fifteen letters)", gettid());
    assert_string_equal(text, expected);
    *(uint32_t *)data = muster_thread_number();
    return NULL;
}

static void a_thread_is_named_while_it_lives(void **state)
{
    char text[MUSTER_THREAD_TEXT_BYTES], expected[64];
    int kept = dup(STDIN_FILENO);
    uint32_t number = 0;
    pthread_t thread;

    (void)state;
    assert_int_equal(muster_thread_number(), gettid());
    assert_int_equal(pthread_create(&thread, NULL, tell_number, &number), 0);
    pthread_join(thread, NULL);
    assert_int_not_equal(number, muster_thread_number());
    muster_thread_format(number, text);
    snprintf(expected, sizeof(expected), "%u", number);
    assert_string_equal(text, expected);

    close(STDIN_FILENO); /* 0 is a descriptor */
    prctl(PR_SET_NAME, "a b");
    muster_thread_format((uint32_t)gettid(), text);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
    snprintf(expected, sizeof(expected), "%d (a b)", gettid());
    assert_string_equal(text, expected);
}

/* --- Hooks --- */

/* Where a child says which of its hooks ran. */
static int told_fd;

static void tell_letter(void *data)
{
    assert_int_equal(write(told_fd, data, 1), 1);
}

static char letters[] = "abc";
static struct muster_exit_hook hooks[] = {{.data = &letters[0], .on_exit = tell_letter},
                                          {.data = &letters[1], .on_exit = tell_letter},
                                          {.data = &letters[2], .on_exit = tell_letter}};

/* The hooks of a child that does this and ends in order tell so much. */
static void check_told(void (*work)(void), const char *expected)
{
    char told[16] = "";
    int fds[2], status = 0;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    told_fd = fds[1];
    pid = fork();
    if (pid == 0) {
        work();
        exit(7);
    }
    close(fds[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    assert_int_equal(read(fds[0], told, sizeof(told) - 1), strlen(expected));
    assert_string_equal(told, expected);
    close(fds[0]);
}

static void add_nothing(void)
{
}

static void add_all(void)
{
    for (size_t i = 0; i < 3; i++)
        muster_exit_hook_add(&hooks[i]);
}

static void remove_one(void)
{
    add_all();
    muster_exit_hook_remove(&hooks[1]);
    muster_exit_hook_remove(&hooks[1]);
}

static void remove_what_was_never_added(void)
{
    muster_exit_hook_add(&hooks[2]);
    muster_exit_hook_remove(&hooks[0]);
}

static void add_again(void)
{
    remove_one();
    muster_exit_hook_add(&hooks[1]);
}

/* A child of this child has none of them, and its own. */
static void fork_once_more(void)
{
    pid_t pid;
    int status = 0;

    muster_exit_hook_add(&hooks[0]);
    muster_exit_hook_add(&hooks[1]);
    pid = fork();
    if (pid == 0) {
        muster_exit_hook_remove(&hooks[0]); /* the parent's */
        muster_exit_hook_add(&hooks[2]);
        exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0)
        _exit(1);
}

static void hooks_run_at_exit_in_their_order(void **state)
{
    static const struct {
        void (*work)(void);
        const char *told;
    } rows[] = {
        {add_nothing, ""},  {add_all, "abc"},
        {remove_one, "ac"}, {remove_what_was_never_added, "c"},
        {add_again, "acb"}, {fork_once_more, "cab"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_told(rows[i].work, rows[i].told);
}

static void a_child_of_fork_is_another_generation(void **state)
{
    unsigned generation = muster_process_generation();
    int status = 0;
    pid_t pid;

    (void)state;
    assert_int_not_equal(generation, 0);
    assert_int_equal(muster_process_generation(), generation);
    pid = fork();
    if (pid == 0)
        _exit(muster_process_generation() == generation + 1 ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(muster_process_generation(), generation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_language_is_asked_of_it),
        cmocka_unit_test(a_flag_is_awaited_by_the_millisecond),
        cmocka_unit_test(a_thread_is_named_while_it_lives),
        cmocka_unit_test(hooks_run_at_exit_in_their_order),
        cmocka_unit_test(a_child_of_fork_is_another_generation),
    };

    return cmocka_run_group_tests_name("process_system", tests, NULL, NULL);
}
