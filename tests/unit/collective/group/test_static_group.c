/* A static group refuses impossible arguments before it listens. */
#include "test_env.h"

#include <muster/static_group.h>
#include <muster/stream.h>

#include <string.h>

#include "test_vars.h"

static const struct test_var no_vars[] = {{NULL, NULL}};

struct world {
    struct test_env test;
    struct test_vars vars;
    struct muster_error error;
    uint64_t held_bytes; /* before a group was opened */
};

static void world_open(struct world *world, const struct test_var *vars)
{
    test_env_open(&world->test);
    test_vars_init(&world->vars, vars);
    world->test.env.vars = &world->vars.vars;
    assert_int_equal(muster_net_system_open(&world->test.env, &world->test.env.net), MUSTER_OK);
}

static void world_close(struct world *world)
{
    muster_net_system_close(world->test.env.net);
    test_env_close(&world->test);
}

static void assert_refused(struct world *world, struct muster_env *env, const char *job,
                           const char *text)
{
    struct muster_static_group *group = NULL;

    assert_int_equal(muster_static_group_open(env, job, &group, &world->error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(world->error.text, text));
    assert_null(group);
}

static void an_environment_without_a_network_is_refused(void **state)
{
    struct world world;
    struct muster_env env;

    (void)state;
    world_open(&world, no_vars);
    env = world.test.env;
    env.net = NULL;

    assert_refused(&world, &env, "job", "muster_net_system_open");
    world_close(&world);
}

static void a_job_needs_a_name(void **state)
{
    struct world world;
    char name[MUSTER_JOB_NAME_BYTES + 1];

    (void)state;
    world_open(&world, no_vars);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';

    assert_refused(&world, &world.test.env, NULL, "name");
    assert_refused(&world, &world.test.env, "", "name");
    assert_refused(&world, &world.test.env, name, "name");
    world_close(&world);
}

static void a_wire_that_there_is_not_is_named_with_those_that_there_are(void **state)
{
    static const struct test_var vars[] = {{"MUSTER_WIRE", "pigeon"}, {NULL, NULL}};
    struct world world;

    (void)state;
    world_open(&world, vars);

    assert_refused(&world, &world.test.env, "job", "MUSTER_WIRE=pigeon: expected auto or tcp");
    world_close(&world);
}

static bool is_all_freed(void *data)
{
    const struct world *world = data;

    return world->test.mem.held_bytes == world->held_bytes;
}

static void a_closed_group_leaves_nothing_behind(void **state)
{
    struct world world;
    struct muster_static_group *group = NULL;
    struct muster_address address;

    (void)state;
    world_open(&world, no_vars);
    world.held_bytes = world.test.mem.held_bytes;
    assert_int_equal(muster_static_group_open(&world.test.env, "job", &group, &world.error),
                     MUSTER_OK);
    address = *muster_static_group_address(group);
    assert_int_equal(muster_static_group_join(group, 0, &address, 1, NULL), MUSTER_OK);
    assert_true(muster_static_group_is_idle(group));
    assert_false(is_all_freed(&world));

    muster_static_group_close(group);
    muster_static_group_close(NULL);

    test_env_run_until(&world.test.env, is_all_freed, &world);
    assert_true(is_all_freed(&world));
    world_close(&world);
}

static void a_group_whose_join_found_no_memory_can_be_closed(void **state)
{
    struct world world;
    struct muster_static_group *group = NULL;
    struct muster_address address;
    bool is_refused = true;
    enum muster_rc rc;

    (void)state;
    world_open(&world, no_vars);
    world.held_bytes = world.test.mem.held_bytes;

    for (uint64_t fail_at = 1; is_refused; fail_at++) {
        assert_int_equal(muster_static_group_open(&world.test.env, "job", &group, &world.error),
                         MUSTER_OK);
        address = *muster_static_group_address(group);
        world.test.mem.fail_at = fail_at;
        rc = muster_static_group_join(group, 0, &address, 1, NULL);
        is_refused = world.test.mem.fail_at == 0;
        world.test.mem.fail_at = 0;
        assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
        muster_static_group_close(group);
        test_env_run_until(&world.test.env, is_all_freed, &world);
    }
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_environment_without_a_network_is_refused),
        cmocka_unit_test(a_job_needs_a_name),
        cmocka_unit_test(a_closed_group_leaves_nothing_behind),
        cmocka_unit_test(a_group_whose_join_found_no_memory_can_be_closed),
        cmocka_unit_test(a_wire_that_there_is_not_is_named_with_those_that_there_are),
    };

    return cmocka_run_group_tests_name("static_group", tests, NULL, NULL);
}
