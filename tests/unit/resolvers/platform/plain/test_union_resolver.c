/* Several resolvers as one: parallel questions, failures, cancel, close. */
#include <muster/platforms.h>

#include "test_env.h"

#include <string.h>

/* A member that answers when the case says so. */
struct member {
    struct muster_resolver resolver;
    struct muster_resolve *open;
    bool *is_freed;
};

static struct member *member_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct member, resolver);
}

static void member_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    member_of(resolver)->open = resolve;
}

static void member_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    member_of(resolver)->open = NULL;
    muster_resolve_finish(resolve, MUSTER_CANCELLED);
}

static void member_close(struct muster_resolver *resolver)
{
    *member_of(resolver)->is_freed = true;
    muster_resolver_fini(resolver);
}

static const struct muster_resolver_ops member_ops = {
    .name = "member",
    .start = member_start,
    .cancel = member_cancel,
    .close = member_close,
};

static void wait_for_the_case(struct muster_resolver *resolver)
{
    (void)resolver;
}

static const struct muster_resolver_ops slow_member_ops = {
    .name = "slow",
    .start = member_start,
    .cancel = member_cancel,
    .stop = wait_for_the_case,
    .close = member_close,
};

struct world {
    struct test_env test;
    struct muster_env *env;
    struct member members[2];
    bool is_freed[2];
    struct muster_resolver *both;
    struct muster_resolve resolve;
    unsigned answers;
    enum muster_rc rc;
    bool is_closed;
};

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct world *world = resolve->data;

    world->answers++;
    world->rc = rc;
}

static void world_open(struct world *world)
{
    struct muster_resolver *members[2];
    struct muster_union_resolver_options options = {.members = members, .member_count = 2};

    *world = (struct world){.answers = 0};
    test_env_open(&world->test);
    world->env = &world->test.env;
    for (size_t i = 0; i < 2; i++) {
        static const struct muster_resolver_options none;

        assert_int_equal(
            muster_resolver_init(&world->members[i].resolver, world->env, &member_ops, &none),
            MUSTER_OK);
        world->members[i].is_freed = &world->is_freed[i];
        members[i] = &world->members[i].resolver;
    }
    assert_int_equal(muster_union_resolver_open(world->env, &options, &world->both, NULL),
                     MUSTER_OK);
    world->resolve.data = world;
    world->resolve.deadline_ns = muster_loop_after_ns(world->env->loop, 60 * MUSTER_NS_PER_S);
}

static void on_closed(struct muster_resolver *resolver)
{
    struct world *world = resolver->data;

    world->is_closed = true;
    assert_true(world->is_freed[0] && world->is_freed[1]);
}

static void world_close(struct world *world)
{
    world->both->data = world;
    muster_resolver_close(world->both, on_closed);
    test_env_run_until(world->env, test_env_is_true, &world->is_closed);
    test_env_turn(world->env, 1);
    test_env_close(&world->test);
}

static void member_answer(struct world *world, size_t member, const char *text)
{
    struct muster_resolve *resolve = world->members[member].open;

    assert_non_null(resolve);
    world->members[member].open = NULL;
    if (text != NULL)
        assert_int_equal(muster_cluster_spec_parse(world->env->mem, text, strlen(text),
                                                   &resolve->cluster_spec, NULL),
                         MUSTER_OK);
    else
        muster_error_set(&resolve->error, MUSTER_UNAVAILABLE, "the machine is away");
    muster_resolve_finish(resolve, text != NULL ? MUSTER_OK : MUSTER_UNAVAILABLE);
    test_env_turn(world->env, 3);
}

static void all_members_are_asked_at_once_and_the_last_answer_ends_it(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(muster_resolve_start(&world.resolve, world.both, on_answer), MUSTER_OK);
    member_answer(&world, 1, "{\"w\":[\"b:1\"]}");
    assert_int_equal(world.answers, 0);
    member_answer(&world, 0, "{\"w\":[\"a:1\"]}");

    assert_int_equal(world.answers, 1);
    assert_int_equal(world.rc, MUSTER_OK);
    assert_string_equal(
        muster_cluster_job_address(muster_cluster_spec_job(world.resolve.cluster_spec, "w"), 0),
        "a:1");
    muster_cluster_spec_unref(world.resolve.cluster_spec);
    world_close(&world);
}

static void a_member_that_fails_is_named(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(muster_resolve_start(&world.resolve, world.both, on_answer), MUSTER_OK);
    member_answer(&world, 0, "{\"w\":[\"a:1\"]}");
    member_answer(&world, 1, NULL);

    assert_int_equal(world.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(world.resolve.error.text, "member 2"));
    assert_non_null(strstr(world.resolve.error.text, "the machine is away"));
    world_close(&world);
}

/* They were closed behind the union's back. */
static void a_question_that_members_refuse_ends(void **state)
{
    (void)state;
    for (size_t refusing = 1; refusing <= 2; refusing++) {
        struct world world;

        world_open(&world);
        for (size_t i = 2 - refusing; i < 2; i++)
            world.members[i].resolver.is_closed = true;
        assert_int_equal(muster_resolve_start(&world.resolve, world.both, on_answer), MUSTER_OK);
        assert_int_equal(world.answers, 0);
        if (refusing == 1)
            member_answer(&world, 0, "{\"worker\": [\"a:1\"]}");
        test_env_turn(world.env, 3);

        assert_int_equal(world.answers, 1);
        assert_int_equal(world.rc, MUSTER_FAILED_PRECONDITION);
        assert_non_null(strstr(world.resolve.error.text, "has been closed before the union"));
        for (size_t i = 0; i < 2; i++)
            world.members[i].resolver.is_closed = false;
        world_close(&world);
    }
}

static void a_question_that_a_member_refuses_can_be_cancelled(void **state)
{
    struct world world;

    (void)state;
    world_open(&world);
    world.members[1].resolver.is_closed = true;
    assert_int_equal(muster_resolve_start(&world.resolve, world.both, on_answer), MUSTER_OK);
    muster_resolve_cancel(&world.resolve);
    test_env_turn(world.env, 4);

    assert_int_equal(world.answers, 1);
    assert_int_equal(world.rc, MUSTER_CANCELLED);
    world.members[1].resolver.is_closed = false;
    world_close(&world);
}

static void cancel_cancels_every_member(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(muster_resolve_start(&world.resolve, world.both, on_answer), MUSTER_OK);
    muster_resolve_cancel(&world.resolve);
    test_env_turn(world.env, 4);

    assert_int_equal(world.answers, 1);
    assert_int_equal(world.rc, MUSTER_CANCELLED);
    world_close(&world);
}

static void a_late_member_ends_the_question_at_its_deadline(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    world.resolve.deadline_ns = muster_loop_after_ns(world.env->loop, MUSTER_NS_PER_MS);
    assert_int_equal(muster_resolve_start(&world.resolve, world.both, on_answer), MUSTER_OK);
    while (world.answers == 0)
        (void)muster_loop_turn(world.env->loop, MUSTER_NS_PER_MS);

    assert_int_equal(world.rc, MUSTER_DEADLINE_EXCEEDED);
    world_close(&world);
}

static void a_question_about_the_master_goes_to_the_first_member_alone(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    world.resolve.what = MUSTER_RESOLVE_MASTER;
    assert_int_equal(muster_resolve_start(&world.resolve, world.both, on_answer), MUSTER_OK);
    assert_null(world.members[1].open);
    world.members[0].open->master = muster_mem_strdup(world.env->mem, "m:1");
    member_answer(&world, 0, "{}");

    assert_string_equal(world.resolve.master, "m:1");
    muster_mem_free(world.env->mem, world.resolve.master);
    world_close(&world);
}

static void a_union_is_closed_when_its_slowest_member_is(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    world.members[1].resolver.ops = &slow_member_ops;
    world.both->data = &world;
    muster_resolver_close(world.both, on_closed);
    test_env_turn(world.env, 5);
    assert_true(world.is_freed[0]);
    assert_false(world.is_closed);
    muster_resolver_stopped(&world.members[1].resolver);
    test_env_run_until(world.env, test_env_is_true, &world.is_closed);

    test_env_turn(world.env, 1);
    test_env_close(&world.test);
}

static void members_of_a_union_that_is_refused_stop_in_their_time(void **state)
{
    static const struct muster_resolver_options none;
    struct muster_union_resolver_options options = {.common = {.environment = "x"},
                                                    .member_count = 1};
    struct muster_resolver *members[1], *resolver = NULL;
    struct member slow = {.open = NULL};
    bool is_freed = false;
    struct world world;

    (void)state;
    world_open(&world);
    slow.is_freed = &is_freed;
    assert_int_equal(muster_resolver_init(&slow.resolver, world.env, &slow_member_ops, &none),
                     MUSTER_OK);
    members[0] = &slow.resolver;
    options.members = members;

    assert_int_equal(muster_union_resolver_open(world.env, &options, &resolver, NULL),
                     MUSTER_INVALID_ARGUMENT);
    test_env_turn(world.env, 2);
    assert_false(is_freed);
    muster_resolver_stopped(&slow.resolver);
    test_env_turn(world.env, 2);
    assert_true(is_freed);
    world_close(&world);
}

static void a_union_by_uri(void **state)
{
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(muster_resolver_open(world.env, "union:static:w=a:1|static:w=b:1;ps=p:1", NULL,
                                          &resolver, NULL),
                     MUSTER_OK);
    assert_int_equal(muster_resolve_start(&world.resolve, resolver, on_answer), MUSTER_OK);
    test_env_turn(world.env, 4);

    assert_int_equal(world.rc, MUSTER_OK);
    assert_int_equal(muster_cluster_spec_job(world.resolve.cluster_spec, "w")->task_count, 2);
    muster_cluster_spec_unref(world.resolve.cluster_spec);
    muster_resolver_close(resolver, NULL);
    test_env_turn(world.env, 4);
    assert_int_equal(
        muster_resolver_open(world.env, "union:static:w=a:1|zoo:", NULL, &resolver, &error),
        MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "'zoo'"));
    assert_int_equal(muster_resolver_open(world.env, "union:", NULL, &resolver, &error),
                     MUSTER_INVALID_ARGUMENT);
    world_close(&world);
}

/* The task of a resolver as "type:id". */
static char *task_of(struct muster_resolver *resolver, size_t bytes, char *text)
{
    char *type = NULL;
    bool is_set = false;
    int64_t id = 0;

    assert_int_equal(muster_resolver_task_type(resolver, &type, NULL), MUSTER_OK);
    assert_int_equal(muster_resolver_task_id(resolver, &is_set, &id, NULL), MUSTER_OK);
    snprintf(text, bytes, is_set ? "%s:%d" : "%s", type != NULL ? type : "none", (int)id);
    muster_mem_free(resolver->env->mem, type);
    return text;
}

static void options_at_the_end_are_those_of_the_union(void **state)
{
    static const struct {
        const char *uri, *task;
    } rows[] = {
        {"union:static:w=a:1|static:w=b:1?task_type=w&task_id=1", "w:1"},
        {"union:static:w=a:1?task_type=w&task_id=0|static:w=b:1", "w:0"},
        {"union:static:w=a:1?task_id=0|static:w=b:1?task_type=w&task_id=1", "w:1"},
        {"union:(static:w=a:1?task_type=w&task_id=0)|(static:w=b:1?task_id=5)", "w:0"},
        {"union:(static:w=a:1)|(static:w=b:1)?task_type=w&task_id=1", "w:1"},
        {"union:(union:static:w=a:1|static:w=b:1?task_type=w&task_id=1)", "w:1"},
        {"union:(union:static:w=a:1|static:w=b:1?task_id=1)?task_type=w&task_id=0", "w:0"},
        {"union:union:static:w=a:1|static:w=b:1?task_type=w&task_id=0", "w:0"},
        {"union:(union:(union:static:w=a:1))|static:{\"w\":[\"b|(?:1\"]}?task_id=1", "none:1"},
    };
    struct world world;
    (void)state;

    world_open(&world);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_resolver *resolver = NULL;
        struct muster_error error = {0};
        char task[40];

        if (muster_resolver_open(world.env, rows[i].uri, NULL, &resolver, &error) != MUSTER_OK)
            fail_msg("%s: %s", rows[i].uri, error.text);
        assert_string_equal(task_of(resolver, sizeof(task), task), rows[i].task);
        assert_int_equal(muster_resolve_start(&world.resolve, resolver, on_answer), MUSTER_OK);
        test_env_turn(world.env, 8);
        assert_int_equal(world.rc, MUSTER_OK);
        assert_int_equal(muster_cluster_spec_job(world.resolve.cluster_spec, "w")->task_count, 2);
        muster_cluster_spec_unref(world.resolve.cluster_spec);
        muster_resolver_close(resolver, NULL);
        test_env_turn(world.env, 8);
    }
    world_close(&world);
}

/* A case of more parentheses is among the refusals. */
static void sixteen_unions_may_stand_within_another(void **state)
{
    char uri[300] = "union:", *end = uri + strlen(uri);
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};
    struct world world;

    (void)state;
    for (size_t i = 0; i < 16; i++)
        end = stpcpy(end, "(union:");
    end = stpcpy(end, "static:w=a:1");
    for (size_t i = 0; i < 16; i++)
        end = stpcpy(end, ")");
    world_open(&world);

    if (muster_resolver_open(world.env, uri, NULL, &resolver, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_resolver_close(resolver, NULL);
    test_env_turn(world.env, 40);
    world_close(&world);
}

static void a_bad_uri_of_a_union_is_refused_by_name(void **state)
{
    static const struct {
        const char *uri, *text;
    } rows[] = {
        {"union:static:w=a:1|static:w=b:1?zoo=1", "there is no option 'zoo'"},
        {"union:(static:w=a:1)?zoo=1", "there is no option 'zoo'"},
        {"union:static:w=a:1?zoo=1|static:w=b:1", "there is no option 'zoo'"},
        {"union:(union:static:w=a:1?zoo=1)", "there is no option 'zoo'"},
        {"union:static:w=a:1|static:w=b:1?environment=x", "no environment of its own"},
        {"union:static:w=a:1||static:w=b:1", "member 2 of the union is empty"},
        {"union:(static:w=a:1", "not closed"},
        {"union:(static:w=a:1)x", "expected '|'"},
        {"union:(static:w=a:1)?task_id=0|static:w=b:1", "options of the union stand at its end"},
        {"union:(((((((((((((((((static:w=a:1", "at most 16 parentheses"},
    };
    struct world world;
    (void)state;

    world_open(&world);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_resolver *resolver = NULL;
        struct muster_error error = {0};

        assert_int_equal(muster_resolver_open(world.env, rows[i].uri, NULL, &resolver, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: %s", rows[i].uri, error.text);
    }
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_are_asked_at_once_and_the_last_answer_ends_it),
        cmocka_unit_test(a_member_that_fails_is_named),
        cmocka_unit_test(a_question_that_members_refuse_ends),
        cmocka_unit_test(a_question_that_a_member_refuses_can_be_cancelled),
        cmocka_unit_test(cancel_cancels_every_member),
        cmocka_unit_test(a_late_member_ends_the_question_at_its_deadline),
        cmocka_unit_test(a_question_about_the_master_goes_to_the_first_member_alone),
        cmocka_unit_test(a_union_is_closed_when_its_slowest_member_is),
        cmocka_unit_test(members_of_a_union_that_is_refused_stop_in_their_time),
        cmocka_unit_test(a_union_by_uri),
        cmocka_unit_test(options_at_the_end_are_those_of_the_union),
        cmocka_unit_test(sixteen_unions_may_stand_within_another),
        cmocka_unit_test(a_bad_uri_of_a_union_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
