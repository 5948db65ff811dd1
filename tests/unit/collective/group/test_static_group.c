/* A static group refuses impossible arguments before it listens. */
#include "test_env.h"

#include <muster/static_group.h>
#include <muster/stream.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/stream/net_internal.h"
#include "test_vars.h"
#include "torture.h"

static struct {
    struct test_env test;
    struct test_vars vars;
    struct muster_error error;
    uint64_t held_bytes; /* before a group was opened */
} world;

static int world_set_up(void **state)
{
    static const struct test_var no_vars[] = {{NULL, NULL}};

    (void)state;
    test_env_open(&world.test);
    test_vars_init(&world.vars, no_vars);
    world.test.env.vars = &world.vars.vars;
    assert_int_equal(muster_net_system_open(&world.test.env, &world.test.env.net), MUSTER_OK);
    world.held_bytes = world.test.mem.held_bytes;
    return 0;
}

static int world_tear_down(void **state)
{
    (void)state;
    muster_net_system_close(world.test.env.net);
    test_env_close(&world.test);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

static void assert_refused(struct muster_env *env, const char *job, const char *text)
{
    struct muster_static_group *group = NULL;

    assert_int_equal(muster_static_group_open(env, job, &group, &world.error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(world.error.text, text));
    assert_null(group);
}

static void an_environment_without_a_network_is_refused(void **state)
{
    struct muster_env env;

    (void)state;
    env = world.test.env;
    env.net = NULL;

    assert_refused(&env, "job", "muster_net_system_open");
}

static void a_job_needs_a_name(void **state)
{
    char name[MUSTER_JOB_NAME_BYTES + 1];

    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';

    assert_refused(&world.test.env, NULL, "name");
    assert_refused(&world.test.env, "", "name");
    assert_refused(&world.test.env, name, "name");
}

static void a_wire_that_there_is_not_is_named_with_those_that_there_are(void **state)
{
    static const struct test_var vars[] = {{"MUSTER_WIRE", "pigeon"}, {NULL, NULL}};

    (void)state;
    test_vars_init(&world.vars, vars);

    assert_refused(&world.test.env, "job", "MUSTER_WIRE=pigeon: expected auto or tcp");
}

static bool is_all_freed(void *data)
{
    (void)data;
    return world.test.mem.held_bytes == world.held_bytes;
}

static void a_closed_group_leaves_nothing_behind(void **state)
{
    struct muster_static_group *group = NULL;
    struct muster_address address;

    (void)state;
    assert_int_equal(muster_static_group_open(&world.test.env, "job", &group, &world.error),
                     MUSTER_OK);
    address = *muster_static_group_address(group);
    assert_int_equal(muster_static_group_join(group, 0, &address, 1, NULL), MUSTER_OK);
    assert_true(muster_static_group_is_idle(group));
    assert_false(is_all_freed(NULL));

    muster_static_group_close(group);
    muster_static_group_close(NULL);

    test_env_run_until(&world.test.env, is_all_freed, NULL);
    assert_true(is_all_freed(NULL));
}

/* The group has closed the stranger's connection. */
static bool is_hung_up(void *data)
{
    char bytes[1024]; /* its hello may come before */
    ssize_t count;

    do
        count = recv(*(const int *)data, bytes, sizeof(bytes), MSG_DONTWAIT);
    while (count > 0);
    return count == 0 || (count < 0 && errno == ECONNRESET); /* with words that it has not read */
}

static void a_stranger_is_hung_up_and_forgotten(void **state)
{
    static const char words[] = "GET / HTTP/1.1\r\nhost: a.host.that.has.a.long.name\r\n\r\n";
    struct muster_static_group *group = NULL;
    struct muster_address address;
    union muster_sockaddr sockaddr;
    socklen_t length;
    int stranger;

    (void)state;
    assert_int_equal(muster_static_group_open(&world.test.env, "job", &group, &world.error),
                     MUSTER_OK);
    address = *muster_static_group_address(group);
    assert_int_equal(muster_static_group_join(group, 0, &address, 1, NULL), MUSTER_OK);
    length = muster_sockaddr_from(&address, &sockaddr);
    stranger = socket(sockaddr.any.sa_family, SOCK_STREAM, 0);
    assert_int_equal(connect(stranger, &sockaddr.any, length), 0);
    assert_int_equal(send(stranger, words, strlen(words), 0), strlen(words));
    test_env_run_until(&world.test.env, is_hung_up, &stranger);
    close(stranger);
    muster_static_group_close(group);

    test_env_run_until(&world.test.env, is_all_freed, NULL);
}

static void run_join(struct torture *torture, const void *data)
{
    struct muster_static_group *group = NULL;
    struct muster_address address;
    enum muster_rc rc;

    (void)data;
    assert_int_equal(muster_static_group_open(&world.test.env, "job", &group, &world.error),
                     MUSTER_OK);
    address = *muster_static_group_address(group);
    torture_arm_limited(torture, &world.test.mem);
    rc = muster_static_group_join(group, 0, &address, 1, NULL);
    torture_disarm(torture);
    assert_true(rc == MUSTER_OK || (torture->refused > 0 && rc == MUSTER_RESOURCE_EXHAUSTED));
    muster_static_group_close(group);
    test_env_run_until(&world.test.env, is_all_freed, NULL);
}

static void a_group_whose_join_found_no_memory_can_be_closed(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "join", .run = run_join});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_environment_without_a_network_is_refused),
        CASE(a_job_needs_a_name),
        CASE(a_closed_group_leaves_nothing_behind),
        CASE(a_stranger_is_hung_up_and_forgotten),
        CASE(a_group_whose_join_found_no_memory_can_be_closed),
        CASE(a_wire_that_there_is_not_is_named_with_those_that_there_are),
    };

    return cmocka_run_group_tests_name("static_group", tests, NULL, NULL);
}
