/* The real environment: variables, files, host, process death. */
#include "assertion_count.h"
#include "test_env.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void variables_come_from_the_process(void **state)
{
    setenv("MUSTER_TEST_VARIABLE", "value", 1);
    assert_string_equal(muster_vars_get(env_of(state)->vars, "MUSTER_TEST_VARIABLE"), "value");
    unsetenv("MUSTER_TEST_VARIABLE");
    assert_null(muster_vars_get(env_of(state)->vars, "MUSTER_TEST_VARIABLE"));
}

static void make_path(char path[64])
{
    int fd;

    strcpy(path, "/tmp/muster-test-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static void a_file_is_replaced_and_read_back_whole(void **state)
{
    struct muster_env *env = env_of(state);
    static char big[10000];
    char path[64];
    char *text = NULL;
    size_t bytes = 0;

    make_path(path);
    memset(big, 'x', sizeof(big));
    assert_int_equal(muster_files_write(env->files, path, "old", 3), MUSTER_OK);
    assert_int_equal(muster_files_write(env->files, path, big, sizeof(big)), MUSTER_OK);
    assert_int_equal(muster_files_read(env->files, env->mem, path, sizeof(big), &text, &bytes),
                     MUSTER_OK);

    assert_int_equal(bytes, sizeof(big));
    assert_memory_equal(text, big, sizeof(big));
    assert_int_equal(text[bytes], '\0');
    muster_mem_free(env->mem, text);
    unlink(path);
}

static void what_is_no_regular_file_is_written_into(void **state)
{
    struct muster_env *env = env_of(state);
    char path[64], got[8];
    struct stat status;
    int fd;

    make_path(path);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR);

    assert_int_equal(muster_files_write(env->files, path, "12345", 5), MUSTER_OK);

    assert_int_equal(read(fd, got, sizeof(got)), 5);
    assert_int_equal(stat(path, &status), 0);
    assert_true(S_ISFIFO(status.st_mode));
    close(fd);
    unlink(path);
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_int_equal(muster_files_write(env->files, path, "12345", 5), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(errno, ENOSPC);
    unlink(path);
}

static void a_file_above_the_limit_is_refused(void **state)
{
    struct muster_env *env = env_of(state);
    char path[64];
    char *text = NULL;
    size_t bytes = 0;

    make_path(path);
    assert_int_equal(muster_files_write(env->files, path, "12345", 5), MUSTER_OK);
    assert_int_equal(muster_files_read(env->files, env->mem, path, 4, &text, &bytes),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_files_read(env->files, env->mem, path, 5, &text, &bytes), MUSTER_OK);
    muster_mem_free(env->mem, text);
    unlink(path);
}

static void what_is_no_regular_file_is_known_without_opening_it(void **state)
{
    struct muster_env *env = env_of(state);
    char path[64];

    make_path(path);
    unlink(path);
    assert_false(muster_files_is_special(env->files, path)); /* nothing is there */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_true(muster_files_is_special(env->files, path));
    unlink(path);
    assert_int_equal(muster_files_write(env->files, path, "1", 1), MUSTER_OK);
    assert_false(muster_files_is_special(env->files, path));
    unlink(path);
    assert_true(muster_files_is_special(env->files, "/"));
}

static void a_missing_file_is_not_found(void **state)
{
    struct muster_env *env = env_of(state);
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(
        muster_files_read(env->files, env->mem, "/nonexistent/muster", 1, &text, &bytes),
        MUSTER_NOT_FOUND);
    assert_int_equal(muster_files_write(env->files, "/nonexistent/muster", "", 0),
                     MUSTER_NOT_FOUND);
}

static void the_host_has_one_key_and_this_pid(void **state)
{
    struct muster_host *host = env_of(state)->host;
    struct muster_host *again = NULL;

    assert_int_equal(muster_host_system_open(env_of(state)->mem, env_of(state)->loop, &again),
                     MUSTER_OK);
    assert_string_equal(muster_host_key(host), muster_host_key(again));
    assert_true(strlen(muster_host_key(host)) > 8);
    assert_int_equal(muster_host_pid(host), getpid());
    assert_true(muster_host_wall_ns(host) > UINT64_C(1600000000) * MUSTER_NS_PER_S);
    muster_host_system_close(again);
}

static void loopback_is_shared_by_processes_of_one_network(void **state)
{
    static const struct {
        const char *a, *b;
        bool is_shared;
    } rows[] = {
        {"boot/1/5", "boot/1/5", true},  /* one host */
        {"boot/1/5", "boot/2/5", true},  /* a container on the host's network */
        {"boot/1/5", "boot/1/6", false}, /* a network of its own */
        {"boot/1/5", "root/1/5", false}, /* another machine whose numbers are the same */
        {"host0", "host1", false},       {"host0", "host0", true},    {"alone/7", "alone/8", false},
        {"boot/5", "boot/1/5", false},   {"boot/1/5", "boot", false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s %s\n", rows[i].a, rows[i].b);
        assert_int_equal(muster_host_key_shares_loopback(rows[i].a, rows[i].b), rows[i].is_shared);
        assert_int_equal(muster_host_key_shares_loopback(rows[i].b, rows[i].a), rows[i].is_shared);
    }
    assert_true(muster_host_key_shares_loopback(muster_host_key(env_of(state)->host),
                                                muster_host_key(env_of(state)->host)));
}

static void on_exit_once(struct muster_process_watch *watch)
{
    *(bool *)watch->data = true;
}

static void open_watch(struct muster_env *env, struct muster_process_watch *watch)
{
    enum muster_rc rc = muster_process_watch_open(watch, env->host);

    if (rc == MUSTER_UNIMPLEMENTED) {
        kill((pid_t)watch->pid, SIGKILL);
        skip_with_reason("this kernel has no pidfd_open");
    }
    assert_int_equal(rc, MUSTER_OK);
}

static void a_killed_process_is_told_once(void **state)
{
    struct muster_env *env = env_of(state);
    bool is_dead = false;
    pid_t pid = fork();
    struct muster_process_watch watch = {.data = &is_dead, .on_exit = on_exit_once, .pid = pid};

    if (pid == 0) {
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    open_watch(env, &watch);
    test_env_turn(env, 2);
    assert_false(is_dead);
    kill(pid, SIGKILL);
    test_env_run_until(env, test_env_is_true, &is_dead);

    muster_process_watch_close(&watch);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(muster_process_watch_open(&watch, env->host), MUSTER_NOT_FOUND);
}

static void a_closed_watch_tells_nothing(void **state)
{
    struct muster_env *env = env_of(state);
    bool is_dead = false;
    pid_t pid = fork();
    struct muster_process_watch watch = {.data = &is_dead, .on_exit = on_exit_once, .pid = pid};

    if (pid == 0)
        _exit(0);
    assert_true(pid > 0);
    open_watch(env, &watch);
    muster_process_watch_close(&watch);
    muster_process_watch_close(&watch);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    test_env_turn(env, 2);

    assert_false(is_dead);
}

static void the_environment_opens_all_its_parts_and_no_upper_layer(void **state)
{
    struct muster_env_system_options options = {.mem = env_of(state)->mem};
    struct muster_env *env = NULL;

    assert_int_equal(muster_env_system_open(&options, &env), MUSTER_OK);
    assert_true(env->loop && env->host && env->files && env->vars && env->rng);
    assert_null(env->net);
    muster_env_system_close(env);
}

static void a_failed_allocation_fails_the_open_without_a_leak(void **state)
{
    struct test_env *test = *state;
    struct muster_env_system_options options = {.mem = test->env.mem};
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    struct muster_env *env = NULL;

    for (uint64_t fail_at = 1; rc == MUSTER_RESOURCE_EXHAUSTED && fail_at < 20; fail_at++) {
        test->mem.fail_at = fail_at;
        rc = muster_env_system_open(&options, &env);
    }
    test->mem.fail_at = 0;
    assert_int_equal(rc, MUSTER_OK);
    muster_env_system_close(env);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(variables_come_from_the_process),
        CASE(a_file_is_replaced_and_read_back_whole),
        CASE(what_is_no_regular_file_is_written_into),
        CASE(what_is_no_regular_file_is_written_into),
        CASE(a_file_above_the_limit_is_refused),
        CASE(what_is_no_regular_file_is_known_without_opening_it),
        CASE(a_missing_file_is_not_found),
        CASE(the_host_has_one_key_and_this_pid),
        CASE(loopback_is_shared_by_processes_of_one_network),
        CASE(a_killed_process_is_told_once),
        CASE(a_closed_watch_tells_nothing),
        CASE(the_environment_opens_all_its_parts_and_no_upper_layer),
        CASE(a_failed_allocation_fails_the_open_without_a_leak),
    };

    return cmocka_run_group_tests_name("env_system", cases, NULL, NULL);
}
