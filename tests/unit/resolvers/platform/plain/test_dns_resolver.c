/* A cluster in DNS, against a name server of the test's own. */
#include <muster/resolver.h>

#include "name_server.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>

struct world {
    struct test_env test;
    struct muster_env *env;
    struct name_server server;
    struct muster_resolver *resolver;
    struct muster_resolve resolve;
    enum muster_rc rc;
    bool is_answered;
    bool is_closed;
};

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct world *world = resolve->data;

    world->rc = rc;
    world->is_answered = true;
}

/* target goes into "dns:target?server=…&options" */
static void world_open(struct world *world, const char *target, const char *options)
{
    char uri[200];

    *world = (struct world){.rc = MUSTER_OK};
    test_env_open(&world->test);
    world->env = &world->test.env;
    name_server_open(&world->server, world->env);
    snprintf(uri, sizeof(uri), "dns:%s?server=%s%s", target, world->server.address, options);
    assert_int_equal(muster_resolver_open(world->env, uri, NULL, &world->resolver, NULL),
                     MUSTER_OK);
    world->resolve.data = world;
    world->resolve.what = MUSTER_RESOLVE_CLUSTER_SPEC;
    world->resolve.deadline_ns = UINT64_MAX;
}

static void start_world(struct world *world)
{
    assert_int_equal(muster_resolve_start(&world->resolve, world->resolver, on_answer), MUSTER_OK);
}

static void ask_world(struct world *world)
{
    start_world(world);
    test_env_run_until(world->env, test_env_is_true, &world->is_answered);
}

static void on_closed(struct muster_resolver *resolver)
{
    ((struct world *)resolver->data)->is_closed = true;
}

static void world_close(struct world *world)
{
    world->resolver->data = world;
    muster_resolver_close(world->resolver, on_closed);
    test_env_run_until(world->env, test_env_is_true, &world->is_closed);
    name_server_close(&world->server);
    test_env_close(&world->test);
}

static void assert_cluster(struct world *world, const char *expected)
{
    char *text = NULL;

    assert_int_equal(world->rc, MUSTER_OK);
    assert_int_equal(
        muster_cluster_spec_format(world->resolve.cluster_spec, world->env->mem, &text), MUSTER_OK);
    assert_string_equal(text, expected);
    muster_mem_free(world->env->mem, text);
    muster_cluster_spec_unref(world->resolve.cluster_spec);
}

static void services_are_tasks_sorted_by_name(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "_muster._tcp.example.org", "&job=ps");
    ask_world(&world);

    assert_cluster(&world, "{\"ps\":[\"heavy:2379\",\"late:2382\",\"light:2380\"]}");
    assert_string_equal(muster_resolver_source(world.resolver, MUSTER_FACT_CLUSTER_SPEC),
                        "DNS SRV _muster._tcp.example.org");
    world_close(&world);
}

static void addresses_are_tasks_with_the_port(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "workers.example.org:2222", "");
    ask_world(&world);

    assert_cluster(&world,
                   "{\"worker\":[\"10.1.2.3:2222\",\"10.1.2.4:2222\",\"[2001:db8::7]:2222\"]}");
    world_close(&world);
}

static void self_says_which_task_this_is(void **state)
{
    bool is_set = true;
    struct world world;
    char *type = NULL;
    int64_t id = 0;
    (void)state;

    world_open(&world, "workers.example.org:2222", "&self=10.1.2.4:2222");
    assert_int_equal(muster_resolver_task_id(world.resolver, &is_set, &id, NULL), MUSTER_OK);
    assert_false(is_set);
    ask_world(&world);
    muster_cluster_spec_unref(world.resolve.cluster_spec);

    assert_int_equal(muster_resolver_task_id(world.resolver, &is_set, &id, NULL), MUSTER_OK);
    assert_true(is_set);
    assert_int_equal(id, 1);
    assert_int_equal(muster_resolver_task_type(world.resolver, &type, NULL), MUSTER_OK);
    assert_string_equal(type, "worker");
    muster_mem_free(world.env->mem, type);
    world_close(&world);
}

static void failures_of_the_server_are_told_with_the_name(void **state)
{
    static const struct {
        enum name_server_mood mood;
        enum muster_rc rc;
    } rows[] = {{SAYS_NO_SUCH_NAME, MUSTER_NOT_FOUND}, {FAILS, MUSTER_UNAVAILABLE}};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world world;

        world_open(&world, "_x._tcp.example.org", "");
        world.server.mood = rows[i].mood;
        ask_world(&world);
        assert_int_equal(world.rc, rows[i].rc);
        assert_non_null(strstr(world.resolve.error.text, "_x._tcp.example.org"));
        world_close(&world);
    }
}

static void a_silent_server_ends_the_question_at_its_deadline(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "_x._tcp.example.org", "");
    world.server.mood = IS_SILENT;
    world.resolve.deadline_ns = muster_loop_after_ns(world.env->loop, MUSTER_NS_PER_MS);
    ask_world(&world);

    assert_int_equal(world.rc, MUSTER_DEADLINE_EXCEEDED);
    world_close(&world);
}

static void close_ends_a_question_under_way(void **state)
{
    struct world world;
    (void)state;

    world_open(&world, "workers.example.org:1", "");
    world.server.mood = IS_SILENT;
    start_world(&world);
    world_close(&world);

    assert_true(world.is_answered);
    assert_int_equal(world.rc, MUSTER_CANCELLED);
}

static void a_target_that_is_neither_service_nor_host_and_port_is_refused(void **state)
{
    static const char *const uris[] = {"dns:",       "dns:host",
                                       "dns:host:0", "dns::80",
                                       "dns:host:x", "dns:_x._tcp.y?server=nonsense&color=1"};
    struct muster_resolver *resolver = NULL;
    struct test_env test;
    (void)state;

    test_env_open(&test);
    for (size_t i = 0; i < sizeof(uris) / sizeof(uris[0]); i++)
        assert_int_equal(muster_resolver_open(&test.env, uris[i], NULL, &resolver, NULL),
                         MUSTER_INVALID_ARGUMENT);
    test_env_close(&test);
}

static void run_open(struct torture *torture, const void *data)
{
    struct muster_resolver *resolver = NULL;
    struct test_env test;
    enum muster_rc rc;
    (void)data;

    test_env_open(&test);
    torture_arm_limited(torture, &test.mem);
    rc = muster_resolver_open(&test.env, "dns:host:80?job=w&self=h", NULL, &resolver, NULL);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc == MUSTER_OK)
        muster_resolver_close(resolver, NULL);
    test_env_turn(&test.env, 3);
    test_env_close(&test);
}

static void without_memory_it_does_not_open(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "open", .run = run_open});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(services_are_tasks_sorted_by_name),
        cmocka_unit_test(addresses_are_tasks_with_the_port),
        cmocka_unit_test(self_says_which_task_this_is),
        cmocka_unit_test(failures_of_the_server_are_told_with_the_name),
        cmocka_unit_test(a_silent_server_ends_the_question_at_its_deadline),
        cmocka_unit_test(close_ends_a_question_under_way),
        cmocka_unit_test_teardown(without_memory_it_does_not_open, torture_tell),
        cmocka_unit_test(a_target_that_is_neither_service_nor_host_and_port_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
