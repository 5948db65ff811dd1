/* Programs that the real host runs. */
#include <muster/command.h>

#include "test_env.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GUARD_MS 60000

/* The call of the product that fails; calls of the cases pass. */
static struct {
    const char *name; /* NULL: none */
    int sys;
    unsigned skipped; /* so many of that name work before it */
    unsigned made;    /* actions and attributes that were not given back */
} failing;

static bool call_fails(const char *name)
{
    if (failing.name == NULL || strcmp(failing.name, name) != 0)
        return false;
    if (failing.skipped > 0) {
        failing.skipped--;
        return false;
    }
    failing.name = NULL;
    errno = failing.sys;
    return true;
}

/* Functions that return an errno are called by their own name. */
#define FAILING(name, parameters, arguments)                                                       \
    int name parameters                                                                            \
    {                                                                                              \
        int(*real) parameters = (int(*) parameters)(uintptr_t)dlsym(RTLD_NEXT, #name);             \
        return call_fails(#name) ? failing.sys : real arguments;                                   \
    }

FAILING(posix_spawn_file_actions_addopen,
        (posix_spawn_file_actions_t * actions, int fd, const char *path, int flags, mode_t mode),
        (actions, fd, path, flags, mode))
FAILING(posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t * actions, int fd, int other),
        (actions, fd, other))
FAILING(posix_spawnattr_setflags, (posix_spawnattr_t * attributes, short flags),
        (attributes, flags))

int posix_spawn_file_actions_init(posix_spawn_file_actions_t *actions)
{
    if (call_fails("posix_spawn_file_actions_init"))
        return failing.sys;
    memset(actions, 0, sizeof(*actions)); /* as the C library does */
    failing.made++;
    return 0;
}

int posix_spawnattr_init(posix_spawnattr_t *attributes)
{
    if (call_fails("posix_spawnattr_init"))
        return failing.sys;
    memset(attributes, 0, sizeof(*attributes));
    failing.made++;
    return 0;
}

int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *actions)
{
    int (*real)(posix_spawn_file_actions_t *) = (int (*)(posix_spawn_file_actions_t *))(
        uintptr_t)dlsym(RTLD_NEXT, "posix_spawn_file_actions_destroy");

    failing.made--;
    return real(actions);
}

int posix_spawnattr_destroy(posix_spawnattr_t *attributes)
{
    (void)attributes;
    failing.made--;
    return 0;
}

int pipe2(int fds[2], int flags)
{
    return call_fails("pipe2") ? -1 : (int)syscall(SYS_pipe2, fds, flags);
}

int fcntl(int fd, int command, ...)
{
    va_list args;
    long word;

    va_start(args, command);
    word = va_arg(args, long);
    va_end(args);
    return call_fails("fcntl") ? -1 : (int)syscall(SYS_fcntl, fd, command, word);
}

ssize_t read(int fd, void *bytes, size_t count)
{
    return count > 8 && call_fails("read") ? -1 : syscall(SYS_read, fd, bytes, count);
}

struct world {
    struct test_env test;
    struct muster_command command;
    unsigned done_count;
    enum muster_rc rc;
    bool is_done;
};

static void on_done(struct muster_command *command, enum muster_rc rc)
{
    struct world *world = command->data;

    world->done_count++;
    world->rc = rc;
    world->is_done = true;
}

static void world_open(struct world *world)
{
    *world = (struct world){.rc = MUSTER_OK};
    test_env_open(&world->test);
    world->command.data = world;
    world->command.deadline_ns = muster_loop_after_ns(world->test.env.loop, 3600 * MUSTER_NS_PER_S);
}

static enum muster_rc world_start(struct world *world, const char *const *argv)
{
    world->command.argv = argv;
    return muster_command_start(&world->command, world->test.env.host, on_done);
}

static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

/* Nothing is left of it: no timer, no descriptor, no memory. */
static void world_finish(struct world *world)
{
    test_env_run_until(&world->test.env, test_env_is_true, &world->is_done);
    test_env_turn(&world->test.env, 3);
    assert_int_equal(world->done_count, 1);
    assert_null(world->command.impl);
    assert_int_equal(muster_loop_next_due_ns(world->test.env.loop), UINT64_MAX);
    muster_mem_free(world->test.env.mem, world->command.output);
    test_env_close(&world->test);
}

static void run_script(struct world *world, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};

    world_open(world);
    assert_int_equal(world_start(world, argv), MUSTER_OK);
    assert_int_equal(world->done_count, 0);
    test_env_run_until(&world->test.env, test_env_is_true, &world->is_done);
}

static void output_and_status_come_back_once(void **state)
{
    static const struct {
        const char *script;
        int exit_status;
        const char *output;
    } rows[] = {
        {"echo out; echo err >&2; exit 3", 3, "out\nerr\n"},
        {"exit 0", 0, ""},
        {"exit 255", 255, ""},
        {"echo out; kill -9 $$", 128 + SIGKILL, "out\n"},
        {"kill -15 $$", 128 + SIGTERM, ""},
        {"ulimit -c 0; kill -6 $$", 128 + SIGABRT, ""},
        {"exec >/dev/null 2>&1; exit 5", 5, ""}, /* it may go on when its output has ended */
        {"echo $MUSTER_TEST_VARIABLE", 0, "of the parent\n"},
        {"read line; echo $?; readlink /proc/$$/fd/0", 0, "1\n/dev/null\n"},
        {"set -- $(cat /proc/$$/stat); test $1 = $5 && echo own group", 0, "own group\n"},
        /* it has two ends to write into, and none else */
        {"ls -l /proc/$$/fd 2>/dev/null | grep -cF $(readlink /proc/$$/fd/1)", 0, "2\n"},
    };
    int next = next_descriptor();
    (void)state;

    setenv("MUSTER_TEST_VARIABLE", "of the parent", 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world world;

        run_script(&world, rows[i].script);
        assert_int_equal(world.rc, MUSTER_OK);
        assert_string_equal(world.command.output, rows[i].output);
        assert_int_equal(world.command.output_bytes, strlen(rows[i].output));
        assert_int_equal(world.command.exit_status, rows[i].exit_status);
        world_finish(&world);
        assert_int_equal(next_descriptor(), next);
    }
    unsetenv("MUSTER_TEST_VARIABLE");
}

static void output_of_every_length_comes_whole_up_to_the_limit(void **state)
{
    static const size_t rows[] = {1,
                                  4095,
                                  4096,
                                  4097,
                                  MUSTER_COMMAND_OUTPUT_BYTES_MAX - 1,
                                  MUSTER_COMMAND_OUTPUT_BYTES_MAX,
                                  MUSTER_COMMAND_OUTPUT_BYTES_MAX + 1};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool is_allowed = rows[i] <= MUSTER_COMMAND_OUTPUT_BYTES_MAX;
        struct world world;
        char script[64];

        snprintf(script, sizeof(script), "head -c %zu /dev/zero | tr '\\0' x", rows[i]);
        run_script(&world, script);
        assert_int_equal(world.rc, is_allowed ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED);
        assert_int_equal(world.command.output_bytes, is_allowed ? rows[i] : 0);
        if (is_allowed)
            assert_int_equal(strspn(world.command.output, "x"), rows[i]);
        else
            assert_null(world.command.output);
        world_finish(&world);
    }
}

/* 0 is a descriptor. */
static void a_process_without_standard_input_runs_programs(void **state)
{
    int kept = dup(STDIN_FILENO);
    struct world world;
    (void)state;

    world_open(&world);
    close(STDIN_FILENO);
    assert_int_equal(world_start(&world, (const char *const[]){"echo", "out", NULL}), MUSTER_OK);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);
    assert_int_equal(world.rc, MUSTER_OK);
    assert_string_equal(world.command.output, "out\n");
    assert_int_equal(next_descriptor(), STDIN_FILENO);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
    world_finish(&world);
}

/* The kernel has reaped it: how it ended is not known. */
static void who_ignores_the_end_of_children_hears_of_it_all_the_same(void **state)
{
    struct world world;
    (void)state;

    signal(SIGCHLD, SIG_IGN);
    run_script(&world, "echo out; exit 3");
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(world.rc, MUSTER_OK);
    assert_int_equal(world.command.exit_status, 0);
    assert_string_equal(world.command.output, "out\n");
    world_finish(&world);
}

static bool is_closed(void *data)
{
    return fcntl(*(int *)data, F_GETFD) < 0;
}

/* A task sees the time at which timers have run in its turn. */
struct look {
    struct muster_loop *loop;
    uint64_t due_ns, wait_ns;
};

static void on_look(struct muster_task *task)
{
    struct look *look = task->data;

    look->due_ns = muster_loop_next_due_ns(look->loop);
    look->wait_ns = look->due_ns - muster_loop_now_ns(look->loop);
}

/* It is asked for again and again, less and less often. */
static void check_waits(struct muster_loop *loop)
{
    static const uint64_t waits_ms[] = {1, 2, 4, 8, 16, 32, 64, 64};
    struct look look = {.loop = loop};
    struct muster_task task;

    muster_task_init(&task, on_look, &look);
    for (size_t i = 0; i < sizeof(waits_ms) / sizeof(waits_ms[0]);) {
        uint64_t due_ns = look.due_ns;

        muster_task_post(&task, loop);
        muster_loop_turn(loop, 0);
        if (look.due_ns != due_ns) /* each turn is looked at: another one has another time */
            assert_int_equal(look.wait_ns, waits_ms[i++] * MUSTER_NS_PER_MS);
    }
}

/* A program that has closed its output and waits for a byte: `fds` of a pipe. */
static void start_waiting(struct world *world, int fds[2])
{
    const char *argv[] = {"sh", "-c", NULL, NULL};
    char script[80];
    int output;

    assert_int_equal(pipe(fds), 0);
    snprintf(script, sizeof(script), "exec >/dev/null 2>&1; read line </dev/fd/%d; exit 5", fds[0]);
    argv[2] = script;
    world_open(world);
    output = next_descriptor();
    assert_int_equal(world_start(world, argv), MUSTER_OK);
    assert_false(is_closed(&output));
    test_env_run_until(&world->test.env, is_closed, &output);
    check_waits(world->test.env.loop);
    assert_int_equal(world->done_count, 0);
}

static void a_program_that_has_closed_its_output_is_waited_for(void **state)
{
    struct world world;
    int fds[2];
    (void)state;

    start_waiting(&world, fds);
    assert_int_equal(write(fds[1], "\n", 1), 1);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);
    assert_int_equal(world.rc, MUSTER_OK);
    assert_int_equal(world.command.exit_status, 5);
    close(fds[0]);
    close(fds[1]);
    world_finish(&world);
}

/* And the descriptor that has the number of its output by now stays. */
static void a_program_that_has_closed_its_output_can_be_cancelled(void **state)
{
    struct world world;
    int fds[2], other;
    (void)state;

    start_waiting(&world, fds);
    other = dup(fds[0]);
    muster_command_cancel(&world.command);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);
    assert_int_equal(world.rc, MUSTER_CANCELLED);
    assert_int_equal(world.command.exit_status, 128 + SIGKILL);
    assert_false(is_closed(&other));
    close(other);
    close(fds[0]);
    close(fds[1]);
    world_finish(&world);
}

/* The run, its watch, its text, and more text. */
static void without_memory_a_program_is_not_run_or_is_killed(void **state)
{
    static const char *const scripts[] = {"true", "sleep 1000", "echo out; sleep 1000", "echo out"};
    int next = next_descriptor();
    (void)state;

    for (uint64_t at = 1; at <= 4; at++) {
        const char *const argv[] = {"sh", "-c", scripts[at - 1], NULL};
        struct world world;

        world_open(&world);
        world.test.mem.fail_at = at;
        assert_int_equal(world_start(&world,
                                     argv), at == 1 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
        assert_int_equal(world.done_count, 0);
        if (at == 1) {
            test_env_close(&world.test);
            continue;
        }
        test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);
        assert_int_equal(world.rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_null(world.command.output);
        if (at < 4) /* it may have ended by itself */
            assert_int_equal(world.command.exit_status, 128 + SIGKILL);
        world_finish(&world);
        assert_int_equal(next_descriptor(), next);
    }
}

static void a_call_that_fails_when_a_program_is_started_is_told(void **state)
{
    static const struct {
        const char *name;
        int sys;
        unsigned skipped;
        enum muster_rc rc;
    } rows[] = {
        {"pipe2", EMFILE, 0, MUSTER_RESOURCE_EXHAUSTED},
        {"fcntl", EPERM, 0, MUSTER_PERMISSION_DENIED},
        {"posix_spawn_file_actions_init", ENOMEM, 0, MUSTER_RESOURCE_EXHAUSTED},
        {"posix_spawnattr_init", ENOMEM, 0, MUSTER_RESOURCE_EXHAUSTED},
        {"posix_spawn_file_actions_addopen", ENOMEM, 0, MUSTER_RESOURCE_EXHAUSTED},
        {"posix_spawn_file_actions_adddup2", ENOMEM, 0, MUSTER_RESOURCE_EXHAUSTED},
        {"posix_spawn_file_actions_adddup2", ENOMEM, 1, MUSTER_RESOURCE_EXHAUSTED},
        {"posix_spawnattr_setflags", EINVAL, 0, MUSTER_INVALID_ARGUMENT},
    };
    static const char *const argv[] = {"true", NULL};
    int next = next_descriptor();
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world world;

        world_open(&world);
        failing.name = rows[i].name;
        failing.sys = rows[i].sys;
        failing.skipped = rows[i].skipped;
        assert_int_equal(world_start(&world, argv), rows[i].rc);
        assert_null(failing.name);
        assert_null(world.command.impl);
        assert_int_equal(failing.made, 0);
        test_env_close(&world.test);
        assert_int_equal(next_descriptor(), next);
    }
}

static void reading_goes_on_after_an_interruption_and_ends_at_an_error(void **state)
{
    static const struct {
        int sys;
        enum muster_rc rc;
    } rows[] = {{EINTR, MUSTER_OK}, {EAGAIN, MUSTER_OK}, {EIO, MUSTER_INTERNAL}};
    static const char *const argv[] = {"echo", "out", NULL};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world world;
        int output;

        world_open(&world);
        output = next_descriptor();
        failing.name = "read";
        failing.sys = rows[i].sys;
        assert_int_equal(world_start(&world, argv), MUSTER_OK);
        assert_true((fcntl(output, F_GETFL) & O_NONBLOCK) != 0);
        assert_int_equal(failing.made, 0);
        test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);
        assert_int_equal(world.rc, rows[i].rc);
        if (rows[i].rc == MUSTER_OK)
            assert_string_equal(world.command.output, "out\n");
        world_finish(&world);
    }
}

static void a_program_that_cannot_be_run_is_refused_at_once(void **state)
{
    static const struct {
        const char *const argv[2];
        uint64_t deadline_ns;
        enum muster_rc rc;
    } rows[] = {
        {{"muster-no-such-program"}, UINT64_MAX, MUSTER_NOT_FOUND},
        {{"/dev/null"}, UINT64_MAX, MUSTER_PERMISSION_DENIED},
        {{"true"}, 0, MUSTER_INVALID_ARGUMENT},
        {{"true"}, 1, MUSTER_INVALID_ARGUMENT}, /* long past */
    };
    int next = next_descriptor();
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world world;

        world_open(&world);
        world.command.deadline_ns = rows[i].deadline_ns;
        assert_int_equal(world_start(&world, rows[i].argv), rows[i].rc);
        test_env_turn(&world.test.env, 3);
        assert_int_equal(world.done_count, 0);
        assert_null(world.command.impl);
        test_env_close(&world.test);
        assert_int_equal(next_descriptor(), next);
    }
}

/* In a turn the clock stands still, so that a short deadline is not over before the start. */
static void on_start(struct muster_task *task)
{
    static const char *const argv[] = {"sh", "-c", "sleep 1000", NULL};
    struct world *world = task->data;

    world->command.deadline_ns = muster_loop_after_ns(world->test.env.loop, 1000);
    assert_int_equal(world_start(world, argv), MUSTER_OK);
}

static void a_program_ends_at_the_deadline(void **state)
{
    struct muster_task start;
    struct world world;
    (void)state;

    world_open(&world);
    muster_task_init(&start, on_start, &world);
    muster_task_post(&start, world.test.env.loop);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);

    assert_int_equal(world.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(world.command.exit_status, 128 + SIGKILL);
    assert_null(world.command.output);
    world_finish(&world);
}

/* Every process of the program holds the pipe: its end is theirs. */
static void children_of_the_program_end_with_it(void **state)
{
    const char *argv[] = {"sh", "-c", NULL, NULL};
    struct pollfd watched = {.events = POLLIN};
    struct world world;
    char script[80];
    char byte = 0;
    int fds[2];
    (void)state;

    world_open(&world);
    assert_int_equal(pipe(fds), 0);
    snprintf(script, sizeof(script), "sleep 1000 & echo >/dev/fd/%d; wait", fds[1]);
    argv[2] = script;
    assert_int_equal(world_start(&world, argv), MUSTER_OK);
    close(fds[1]);
    watched.fd = fds[0];
    assert_int_equal(poll(&watched, 1, GUARD_MS), 1);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    muster_command_cancel(&world.command);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);

    assert_int_equal(poll(&watched, 1, GUARD_MS), 1);
    assert_int_equal(read(fds[0], &byte, 1), 0);
    close(fds[0]);
    world_finish(&world);
}

static void cancel_kills_and_may_be_repeated(void **state)
{
    static const char *const argv[] = {"sleep", "1000", NULL};
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(world_start(&world, argv), MUSTER_OK);
    muster_command_cancel(&world.command);
    muster_command_cancel(&world.command);
    assert_int_equal(world.done_count, 0);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);
    muster_command_cancel(&world.command); /* too late */

    assert_int_equal(world.rc, MUSTER_CANCELLED);
    world_finish(&world);
}

static void endless_output_is_cut_off(void **state)
{
    static const char *const argv[] = {"yes", NULL};
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(world_start(&world, argv), MUSTER_OK);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);

    assert_int_equal(world.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_true(world.test.mem.held_peak_bytes < 2 * MUSTER_COMMAND_OUTPUT_BYTES_MAX + 65536);
    world_finish(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_and_status_come_back_once),
        cmocka_unit_test(output_of_every_length_comes_whole_up_to_the_limit),
        cmocka_unit_test(a_process_without_standard_input_runs_programs),
        cmocka_unit_test(who_ignores_the_end_of_children_hears_of_it_all_the_same),
        cmocka_unit_test(a_program_that_has_closed_its_output_is_waited_for),
        cmocka_unit_test(a_program_that_has_closed_its_output_can_be_cancelled),
        cmocka_unit_test(without_memory_a_program_is_not_run_or_is_killed),
        cmocka_unit_test(a_call_that_fails_when_a_program_is_started_is_told),
        cmocka_unit_test(reading_goes_on_after_an_interruption_and_ends_at_an_error),
        cmocka_unit_test(a_program_that_cannot_be_run_is_refused_at_once),
        cmocka_unit_test(a_program_ends_at_the_deadline),
        cmocka_unit_test(children_of_the_program_end_with_it),
        cmocka_unit_test(cancel_kills_and_may_be_repeated),
        cmocka_unit_test(endless_output_is_cut_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
