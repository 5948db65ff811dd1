/* Each system call of the runtime's adapters fails in turn: an error or success, nothing half done, no
 * descriptor left. */
#include <muster/command.h>

#include "runtime/host_share.h"
#include "torture_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES 5000

/* The loop, a wake and a timer. */

static void on_wake(struct muster_wake *wake)
{
    *(bool *)muster_wake_data(wake) = true;
}

static void on_expire(struct muster_timer *timer)
{
    *(bool *)timer->data = true;
}

static void use_loop(struct muster_env *env)
{
    struct muster_wake *wake = NULL;
    bool is_awake = false, is_expired = false;
    struct muster_timer timer;

    muster_timer_init(&timer, on_expire, &is_expired);
    muster_timer_start(&timer, env->loop, muster_loop_after_ns(env->loop, MUSTER_NS_PER_MS));
    if (muster_wake_open(env->mem, env->loop, on_wake, &is_awake, &wake) == MUSTER_OK) {
        muster_wake_signal(wake);
        test_env_run_until(env, test_env_is_true, &is_awake);
    }
    test_env_run_until(env, test_env_is_true, &is_expired);
    muster_wake_close(wake);
}

static void run_loop(struct torture *torture, const void *data)
{
    struct muster_mem_limited mem;
    struct muster_env_system_options options = {.mem = &mem.mem};
    struct muster_env *env = NULL;

    (void)data;
    muster_mem_limited_init(&mem, muster_mem_system(), 0);
    torture_arm_calls(torture);
    if (muster_env_system_open(&options, &env) == MUSTER_OK)
        use_loop(env);
    torture_disarm(torture);
    muster_env_system_close(env);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

/* Files. */

static char folder[] = "/tmp/muster-calls-XXXXXX";

static enum muster_rc read_back(struct muster_mem *mem, const char *path, char **ret_text)
{
    size_t bytes = 0;

    *ret_text = NULL;
    return muster_files_read(muster_files_system(), mem, path, TEXT_BYTES * 2, ret_text, &bytes);
}

static void run_files(struct torture *torture, const void *data)
{
    static char old_text[TEXT_BYTES + 1], new_text[TEXT_BYTES + 1];
    struct muster_mem *mem = muster_mem_system();
    char path[64], pattern[64], *text = NULL;
    enum muster_rc rc;

    (void)data;
    memset(old_text, 'o', TEXT_BYTES);
    memset(new_text, 'n', TEXT_BYTES);
    (void)snprintf(path, sizeof(path), "%s/file", folder);
    (void)snprintf(pattern, sizeof(pattern), "%s/*", folder);
    assert_int_equal(muster_files_write(muster_files_system(), path, old_text, TEXT_BYTES),
                     MUSTER_OK);

    torture_arm_calls(torture);
    rc = muster_files_write(muster_files_system(), path, new_text, TEXT_BYTES);
    torture_disarm(torture);

    assert_int_equal(read_back(mem, path, &text), MUSTER_OK);
    assert_string_equal(text, rc == MUSTER_OK ? new_text : old_text);
    assert_int_equal(muster_files_count(muster_files_system(), pattern), 1);
    muster_mem_free(mem, text);

    torture_arm(torture);
    if (read_back(mem, path, &text) == MUSTER_OK)
        assert_int_equal(strlen(text), TEXT_BYTES);
    torture_disarm(torture);
    muster_mem_free(mem, text);
}

/* Programs. */

struct told {
    unsigned count;
    enum muster_rc rc;
    bool is_done;
};

static void on_done(struct muster_command *command, enum muster_rc rc)
{
    struct told *told = command->data;

    told->count++;
    told->rc = rc;
    told->is_done = true;
}

static void run_command(struct torture *torture, const void *data)
{
    static const char *const argv[] = {"/bin/echo", "out", NULL};
    struct told told = {0};
    struct muster_command command = {.data = &told, .argv = argv, .deadline_ns = UINT64_MAX};
    struct test_env test;

    (void)data;
    test_env_open(&test);
    torture_arm_calls(torture);
    if (muster_command_start(&command, test.env.host, on_done) == MUSTER_OK) {
        test_env_run_until(&test.env, test_env_is_true, &told.is_done);
        assert_int_equal(told.count, 1);
    }
    torture_disarm(torture);
    if (told.is_done && told.rc == MUSTER_OK) {
        assert_int_equal(command.exit_status, 0);
        assert_string_equal(command.output, "out\n");
    }
    muster_mem_free(test.env.mem, command.output);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left, alive or dead */
    test_env_close(&test);
}

/* Shared memory. */

static void run_share(struct torture *torture, const void *data)
{
    struct muster_shared_memory shared = {.fd = -1};
    uint8_t *view = NULL;
    enum muster_rc rc;

    (void)data;
    torture_arm_calls(torture);
    rc = muster_shared_memory_open("torture", 5000, &shared);
    if (rc == MUSTER_OK) {
        muster_shared_memory_commit(&shared);
        shared.memory[4999] = 7;
        view = muster_shared_memory_map(shared.fd, shared.bytes, PROT_READ);
    }
    torture_disarm(torture);
    if (view != NULL) {
        assert_int_equal(view[4999], 7);
        assert_int_equal(munmap(view, shared.bytes), 0);
    }
    if (rc == MUSTER_OK)
        muster_shared_memory_close(&shared);
}

static void run_rng(struct torture *torture, const void *data)
{
    uint8_t bytes[64] = {0}, none[64] = {0};

    (void)data;
    torture_arm_calls(torture);
    muster_rng_fill(muster_rng_system(), bytes, sizeof(bytes));
    torture_disarm(torture);
    assert_memory_not_equal(bytes, none, sizeof(none));
}

/* --- */

/* The scenario behind data, and the count of descriptors before and after it. */
static void run_counted(struct torture *torture, const void *data)
{
    const struct torture_scenario *scenario = data;
    size_t count = torture_count_descriptors();

    scenario->run(torture, scenario->data);
    assert_int_equal(torture_count_descriptors(), count);
}

static void a_failure_of_any_call_is_told_and_leaves_nothing(void **state)
{
    static const struct torture_scenario inner[] = {
        {.name = "loop", .run = run_loop},       {.name = "files", .run = run_files},
        {.name = "command", .run = run_command}, {.name = "share", .run = run_share},
        {.name = "random", .run = run_rng},
    };

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(inner) / sizeof(inner[0]); i++) {
        const struct torture_scenario outer = {.name = inner[i].name,
                                               .run = run_counted,
                                               .data = &inner[i],
                                               .variant_count = TORTURE_CALL_VARIANTS};

        torture_run(&outer);
    }
}

static int remove_folder(void **state)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/file", folder);
    (void)unlink(path);
    (void)rmdir(folder);
    return torture_tell(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_failure_of_any_call_is_told_and_leaves_nothing, remove_folder),
    };

    return cmocka_run_group_tests_name("system_calls", tests, NULL, NULL);
}
