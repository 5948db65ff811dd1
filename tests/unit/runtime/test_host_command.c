/* Programs that the real host runs. */
#include <muster/command.h>

#include "test_env.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GUARD_MS 60000

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
    world->command.deadline_ns = UINT64_MAX;
}

static enum muster_rc start(struct world *world, const char *const *argv)
{
    world->command.argv = argv;
    return muster_command_start(&world->command, world->test.env.host, on_done);
}

static void finish(struct world *world)
{
    test_env_run_until(&world->test.env, test_env_is_true, &world->is_done);
    test_env_turn(&world->test.env, 3);
    assert_int_equal(world->done_count, 1);
    muster_mem_free(world->test.env.mem, world->command.output);
    test_env_close(&world->test);
}

static void output_and_status_come_back_once(void **state)
{
    static const char *const argv[] = {"sh", "-c", "echo out; echo err >&2; exit 3", NULL};
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(start(&world, argv), MUSTER_OK);
    assert_int_equal(world.done_count, 0);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);

    assert_int_equal(world.rc, MUSTER_OK);
    assert_int_equal(world.command.exit_status, 3);
    assert_string_equal(world.command.output, "out\nerr\n");
    assert_int_equal(world.command.output_bytes, 8);
    finish(&world);
}

static void a_signal_is_told_in_the_status(void **state)
{
    static const char *const argv[] = {"sh", "-c", "kill -9 $$", NULL};
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(start(&world, argv), MUSTER_OK);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);

    assert_int_equal(world.command.exit_status, 128 + 9);
    finish(&world);
}

static void a_program_that_is_not_there_is_not_found(void **state)
{
    static const char *const argv[] = {"muster-no-such-program", NULL};
    struct world world;
    (void)state;

    world_open(&world);

    assert_int_equal(start(&world, argv), MUSTER_NOT_FOUND);
    test_env_turn(&world.test.env, 3);
    assert_int_equal(world.done_count, 0);
    test_env_close(&world.test);
}

static void a_program_ends_at_the_deadline(void **state)
{
    static const char *const argv[] = {"sh", "-c", "sleep 1000", NULL};
    struct world world;
    (void)state;

    world_open(&world);
    world.command.deadline_ns = muster_loop_after_ns(world.test.env.loop, 1000);
    assert_int_equal(start(&world, argv), MUSTER_OK);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);

    assert_int_equal(world.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_null(world.command.output);
    finish(&world);
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
    assert_int_equal(start(&world, argv), MUSTER_OK);
    close(fds[1]);
    watched.fd = fds[0];
    assert_int_equal(poll(&watched, 1, GUARD_MS), 1);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    muster_command_cancel(&world.command);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);

    assert_int_equal(poll(&watched, 1, GUARD_MS), 1);
    assert_int_equal(read(fds[0], &byte, 1), 0);
    close(fds[0]);
    finish(&world);
}

static void cancel_kills_and_may_be_repeated(void **state)
{
    static const char *const argv[] = {"sleep", "1000", NULL};
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(start(&world, argv), MUSTER_OK);
    muster_command_cancel(&world.command);
    muster_command_cancel(&world.command);
    assert_int_equal(world.done_count, 0);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);
    muster_command_cancel(&world.command);

    assert_int_equal(world.rc, MUSTER_CANCELLED);
    finish(&world);
}

static void endless_output_is_cut_off(void **state)
{
    static const char *const argv[] = {"yes", NULL};
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(start(&world, argv), MUSTER_OK);
    test_env_run_until(&world.test.env, test_env_is_true, &world.is_done);

    assert_int_equal(world.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_true(world.test.mem.held_peak_bytes < 2 * MUSTER_COMMAND_OUTPUT_BYTES_MAX + 65536);
    finish(&world);
}

static void a_host_that_runs_nothing_says_so(void **state)
{
    static const struct muster_host_ops ops = {.run = NULL};
    static const char *const argv[] = {"true", NULL};
    struct muster_host host = {.ops = &ops};
    struct muster_command command = {.argv = argv};
    (void)state;

    assert_int_equal(muster_command_start(&command, &host, on_done), MUSTER_UNIMPLEMENTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_and_status_come_back_once),
        cmocka_unit_test(a_signal_is_told_in_the_status),
        cmocka_unit_test(a_program_that_is_not_there_is_not_found),
        cmocka_unit_test(a_program_ends_at_the_deadline),
        cmocka_unit_test(children_of_the_program_end_with_it),
        cmocka_unit_test(cancel_kills_and_may_be_repeated),
        cmocka_unit_test(endless_output_is_cut_off),
        cmocka_unit_test(a_host_that_runs_nothing_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
