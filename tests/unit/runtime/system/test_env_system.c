/* The real environment: its parts, variables, files. */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>

static void variables_come_from_the_process(void **state)
{
    setenv("MUSTER_TEST_VARIABLE", "value", 1);
    assert_string_equal(muster_vars_get(test_env_of(state)->vars, "MUSTER_TEST_VARIABLE"), "value");
    unsetenv("MUSTER_TEST_VARIABLE");
    assert_null(muster_vars_get(test_env_of(state)->vars, "MUSTER_TEST_VARIABLE"));
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
    struct muster_env *env = test_env_of(state);
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
    struct muster_env *env = test_env_of(state);
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
    struct muster_env *env = test_env_of(state);
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
    struct muster_env *env = test_env_of(state);
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
    struct muster_env *env = test_env_of(state);
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(
        muster_files_read(env->files, env->mem, "/nonexistent/muster", 1, &text, &bytes),
        MUSTER_NOT_FOUND);
    assert_int_equal(muster_files_write(env->files, "/nonexistent/muster", "", 0),
                     MUSTER_NOT_FOUND);
}

static void mark_done(struct muster_task *task)
{
    *(bool *)task->data = true;
}

static void the_environment_opens_all_its_parts_and_no_upper_layer(void **state)
{
    struct event_base *base = event_base_new();
    const struct muster_env_system_options with_mem = {.mem = test_env_of(state)->mem};
    const struct muster_env_system_options with_base = {.base = base};
    const struct muster_env_system_options *const rows[] = {NULL, &with_mem, &with_base};

    for (size_t i = 0; i < 3; i++) {
        bool is_joined = rows[i] == &with_base, is_run = false;
        struct muster_env *env = NULL;
        struct muster_task task;

        assert_int_equal(muster_env_system_open(rows[i], &env), MUSTER_OK);
        assert_ptr_equal(env->mem, rows[i] == &with_mem ? with_mem.mem : muster_mem_system());
        assert_ptr_equal(env->files, muster_files_system());
        assert_ptr_equal(env->vars, muster_vars_system());
        assert_ptr_equal(env->rng, muster_rng_system());
        assert_non_null(env->host);
        assert_true(env->net == NULL && env->log == NULL && env->trace == NULL);
        muster_task_init(&task, mark_done, &is_run);
        muster_task_post(&task, env->loop);
        event_base_loop(base, EVLOOP_NONBLOCK); /* turns those that have joined it */
        assert_int_equal(is_run, is_joined);
        muster_loop_turn(env->loop, 0);
        assert_true(is_run);
        muster_env_system_close(env);
    }
    muster_env_system_close(NULL);
    event_base_free(base);
}

static void run_open(struct torture *torture, const void *data)
{
    struct test_env *test = (struct test_env *)(uintptr_t)data;
    struct muster_env_system_options options = {.mem = test->env.mem};
    size_t blocks = test->mem.block_count;
    struct muster_env *env = NULL;
    enum muster_rc rc;

    torture_arm_limited(torture, &test->mem);
    rc = muster_env_system_open(&options, &env);
    torture_disarm(torture);
    assert_true(rc == MUSTER_OK || (rc == MUSTER_RESOURCE_EXHAUSTED && torture->refused > 0));
    assert_true((rc == MUSTER_OK) == (env != NULL));
    muster_env_system_close(env);
    assert_int_equal(test->mem.block_count, blocks);
}

static void a_failed_allocation_fails_the_open_without_a_leak(void **state)
{
    torture_run(&(struct torture_scenario){.name = "open", .run = run_open, .data = *state});
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(variables_come_from_the_process),
        CASE(a_file_is_replaced_and_read_back_whole),
        CASE(what_is_no_regular_file_is_written_into),
        CASE(a_file_above_the_limit_is_refused),
        CASE(what_is_no_regular_file_is_known_without_opening_it),
        CASE(a_missing_file_is_not_found),
        CASE(the_environment_opens_all_its_parts_and_no_upper_layer),
        CASE(a_failed_allocation_fails_the_open_without_a_leak),
    };

    return cmocka_run_group_tests_name("env_system", cases, NULL, NULL);
}
