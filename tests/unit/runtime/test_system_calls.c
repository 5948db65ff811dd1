/* Each system call of the runtime's adapters fails in turn: an error or success, nothing half done, no
 * descriptor left. */
#include <muster/command.h>
#include <muster/runtime.h>

#include "runtime/system/host_share.h"
#include "runtime/system/recorder_system.h"
#include "careful_mem.h"
#include "torture_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
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
    muster_mem_limited_init(&mem, careful_mem(), 0);
    torture_arm_calls(torture);
    if (muster_env_system_open(&options, &env) == MUSTER_OK)
        use_loop(env);
    torture_disarm(torture);
    muster_env_system_close(env);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

/* A loop that another one embeds by its descriptor. */

static void on_byte(struct muster_fd_watch *watch, unsigned ready)
{
    char byte;

    assert_int_equal(ready, MUSTER_FD_READ);
    assert_int_equal(read(watch->fd, &byte, 1), 1);
    *(bool *)watch->data = true;
}

/* The other loop turns this one when it says so, and no sooner. */
static void expect_byte(struct muster_loop *loop, int loop_fd, int from, const bool *is_there)
{
    assert_int_equal(write(from, "x", 1), 1);
    while (!*is_there) {
        struct pollfd poll_fd = {.fd = loop_fd, .events = POLLIN};

        assert_in_range(poll(&poll_fd, 1, muster_loop_wait_ms(loop)), 0, 1);
        muster_loop_turn(loop, 0);
    }
}

/* One watch is there before the descriptor of the loop; the other is updated later. */
static void run_embedded(struct torture *torture, const void *data)
{
    struct {
        struct muster_fd_watch watch;
        bool is_ready;
        int fds[2];
    } ends[2] = {{.watch.wanted = MUSTER_FD_READ}, {.watch.wanted = 0}};
    struct muster_loop *loop = NULL;
    int loop_fd;

    (void)data;
    assert_int_equal(muster_loop_open(muster_mem_system(), NULL, &loop), MUSTER_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pipe(ends[i].fds), 0);
        ends[i].watch.fd = ends[i].fds[0];
        ends[i].watch.on_ready = on_byte;
        ends[i].watch.data = &ends[i].is_ready;
        assert_int_equal(muster_fd_watch_open(&ends[i].watch, loop), MUSTER_OK);
    }
    torture_arm_calls(torture);
    loop_fd = muster_loop_fd(loop);
    if (loop_fd < 0)
        loop_fd = muster_loop_fd(loop);
    muster_fd_watch_update(&ends[1].watch, MUSTER_FD_READ);
    torture_disarm(torture);

    assert_true(loop_fd >= 0);
    for (size_t i = 0; i < 2; i++) {
        expect_byte(loop, loop_fd, ends[i].fds[1], &ends[i].is_ready);
        muster_fd_watch_close(&ends[i].watch);
        close(ends[i].fds[0]);
        close(ends[i].fds[1]);
    }
    muster_loop_close(loop);
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
    for (size_t i = 0; i < TEXT_BYTES; i++) {
        old_text[i] = (char)('a' + i % 23);
        new_text[i] = (char)('A' + i % 19);
    }
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
        assert_string_equal(text, rc == MUSTER_OK ? new_text : old_text);
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

/* The flight recorder: a dump is there whole, or not at all, and the launcher is told of none that is not
 * there. */

#define EVENTS 4

static size_t count_files(const char *in, const char *names)
{
    char pattern[96];

    (void)snprintf(pattern, sizeof(pattern), "%s/%s", in, names);
    return muster_files_count(muster_files_system(), pattern);
}

static size_t count_lines(struct muster_mem *mem, const char *path)
{
    char *text = NULL;
    size_t bytes = 0, lines = 0;

    assert_int_equal(
        muster_files_read(muster_files_system(), mem, path, TEXT_BYTES * 2, &text, &bytes),
        MUSTER_OK);
    assert_int_equal(text[bytes - 1], '\n');
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    muster_mem_free(mem, text);
    return lines;
}

static void check_dump(struct muster_recorder *recorder, const char *in, bool is_dumped, int told)
{
    char text[TEXT_BYTES];
    ssize_t bytes = read(told, text, sizeof(text));

    assert_int_equal(count_files(in, ".*part"), 0);
    assert_int_equal(count_files(in, "*.trace.jsonl"), is_dumped);
    if (is_dumped)
        assert_int_equal(count_lines(muster_mem_system(), muster_recorder_path(recorder)),
                         1 + EVENTS);
    if (bytes > 0)
        assert_true(is_dumped && text[bytes - 1] == '\n' &&
                    memchr(text, '\n', (size_t)bytes) == text + bytes - 1);
}

static void play_recorder(struct torture *torture, struct muster_env *env, const char *in,
                          bool is_own_folder)
{
    int ends[2];
    struct muster_recorder_options options = {.mem = env->mem,
                                              .trace = env->trace,
                                              .folder = is_own_folder ? NULL : in,
                                              .temporary = folder,
                                              .job = "torture",
                                              .task = "worker:0",
                                              .incarnation = "01234567",
                                              .report_fd = &ends[1]};
    struct muster_recorder *recorder = NULL;
    enum muster_rc rc = MUSTER_OK;

    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    torture_arm_calls(torture);
    assert_int_equal(muster_recorder_open(&options, &recorder), MUSTER_OK);
    rc = muster_recorder_dump(recorder, "torture");
    torture_disarm(torture);
    check_dump(recorder, in, rc == MUSTER_OK, ends[0]);

    assert_int_equal(muster_recorder_dump(recorder, "again"), MUSTER_OK);
    check_dump(recorder, in, true, ends[0]);
    assert_int_equal(unlink(muster_recorder_path(recorder)), 0);
    muster_recorder_close(recorder);
    assert_int_equal(close(ends[0]) + close(ends[1]), 0);
}

static void run_recorder(struct torture *torture, const void *data)
{
    bool is_own_folder = data != NULL;
    struct test_env test;
    char in[64];

    (void)snprintf(in, sizeof(in), "%s/%s", folder, "trace");
    if (is_own_folder)
        (void)snprintf(in, sizeof(in), "%s/muster-%u", folder, (unsigned)geteuid());
    test_env_open(&test);
    assert_int_equal(muster_trace_open(test.env.mem, EVENTS, &test.env.trace), MUSTER_OK);
    for (uint64_t i = 0; i < EVENTS; i++)
        muster_trace_emit_at(&test.env, i, "step_begun", NULL, i, 0, 0);
    play_recorder(torture, &test.env, in, is_own_folder);
    muster_trace_close(test.env.trace);
    test_env_close(&test);
    assert_int_equal(rmdir(in), 0);
}

/* A thread that keeps the loop, and a process that is watched. */

static void on_exit_of_process(struct muster_process_watch *watch)
{
    *(bool *)watch->data = true;
}

static void run_watch(struct torture *torture, const void *data)
{
    struct muster_process_watch watch;
    bool is_over = false;
    struct test_env test;
    enum muster_rc rc;
    pid_t pid;

    (void)data;
    test_env_open(&test);
    pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    watch =
        (struct muster_process_watch){.data = &is_over, .on_exit = on_exit_of_process, .pid = pid};
    torture_arm_calls(torture);
    watch.started = muster_host_started(test.env.host, pid);
    rc = muster_process_watch_open(&watch, test.env.host);
    (void)kill(pid, SIGKILL);
    if (rc == MUSTER_OK)
        test_env_run_until(&test.env, test_env_is_true, &is_over);
    torture_disarm(torture);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    test_env_close(&test);
}

static void run_keeper(struct torture *torture, const void *data)
{
    struct muster_runtime *runtime = NULL;
    struct muster_timer timer;
    bool is_expired = false;
    struct test_env test;

    (void)data;
    test_env_open(&test);
    torture_arm_calls(torture);
    if (muster_runtime_open(&(struct muster_runtime_options){.env = &test.env}, &runtime) ==
        MUSTER_OK) {
        assert_int_equal(muster_runtime_enter(runtime), MUSTER_OK);
        muster_timer_init(&timer, on_expire, &is_expired);
        muster_timer_start(&timer, test.env.loop, muster_loop_after_ns(test.env.loop, 1));
        assert_int_equal(muster_runtime_wait(runtime, test_env_is_true, &is_expired, UINT64_MAX),
                         MUSTER_OK);
        muster_runtime_leave(runtime);
        muster_runtime_close(runtime);
    }
    torture_disarm(torture);
    test_env_close(&test);
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
        {.name = "loop", .run = run_loop},
        {.name = "files", .run = run_files},
        {.name = "command", .run = run_command},
        {.name = "share", .run = run_share},
        {.name = "random", .run = run_rng},
        {.name = "recorder", .run = run_recorder},
        {.name = "recorder in a folder of its own", .run = run_recorder, .data = folder},
        {.name = "watch", .run = run_watch},
        {.name = "keeper", .run = run_keeper},
        {.name = "embedded", .run = run_embedded},
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
