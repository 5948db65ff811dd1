/* Questions to any resolver: one answer each, deadlines, cancel, close, watching. */
#include <muster/resolver.h>

#include "test_env.h"

#include <string.h>

/* A resolver that answers when the case says so. */
struct slow_resolver {
    struct muster_resolver resolver;
    struct muster_resolve *open;
    unsigned asked;
    bool is_freed;
};

static void slow_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct slow_resolver *slow = MUSTER_CONTAINER_OF(resolver, struct slow_resolver, resolver);

    slow->open = resolve;
    slow->asked++;
}

static void slow_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct slow_resolver *slow = MUSTER_CONTAINER_OF(resolver, struct slow_resolver, resolver);

    slow->open = NULL;
    muster_resolve_finish(resolve, MUSTER_CANCELLED);
}

static void slow_close(struct muster_resolver *resolver)
{
    MUSTER_CONTAINER_OF(resolver, struct slow_resolver, resolver)->is_freed = true;
    muster_resolver_fini(resolver);
}

static const struct muster_resolver_ops slow_ops = {
    .name = "slow",
    .start = slow_start,
    .cancel = slow_cancel,
    .close = slow_close,
};

struct world {
    struct test_env test;
    struct muster_env *env;
    struct slow_resolver slow;
    struct muster_resolve resolve;
    unsigned answers;
    enum muster_rc rc;
    bool is_closed;
    unsigned changes;
};

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct world *world = resolve->data;

    world->answers++;
    world->rc = rc;
}

static void on_closed(struct muster_resolver *resolver)
{
    ((struct world *)resolver->data)->is_closed = true;
}

static void world_open(struct world *world)
{
    static const struct muster_resolver_options none;

    *world = (struct world){.changes = 0};
    test_env_open(&world->test);
    world->env = &world->test.env;
    assert_int_equal(muster_resolver_init(&world->slow.resolver, world->env, &slow_ops, &none),
                     MUSTER_OK);
    world->slow.resolver.data = world;
    world->resolve.data = world;
    world->resolve.deadline_ns = muster_loop_after_ns(world->env->loop, 60 * MUSTER_NS_PER_S);
}

static void world_close(struct world *world)
{
    if (!world->slow.resolver.is_closed)
        muster_resolver_close(&world->slow.resolver, on_closed);
    test_env_run_until(world->env, test_env_is_true, &world->is_closed);
    assert_true(world->slow.is_freed);
    test_env_close(&world->test);
}

static struct muster_cluster_spec *cluster(struct world *world, const char *text)
{
    struct muster_cluster_spec *spec = NULL;

    assert_int_equal(muster_cluster_spec_parse(world->env->mem, text, strlen(text), &spec, NULL),
                     MUSTER_OK);
    return spec;
}

static void an_answer_comes_once_and_never_inside_start(void **state)
{
    struct muster_resolver *resolver = NULL;
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(
        muster_resolver_open(world.env, "static:w=a:1,b:1;ps=p:1", NULL, &resolver, NULL),
        MUSTER_OK);
    assert_int_equal(muster_resolve_start(&world.resolve, resolver, on_answer), MUSTER_OK);
    assert_int_equal(world.answers, 0);
    test_env_turn(world.env, 4);

    assert_int_equal(world.answers, 1);
    assert_int_equal(world.rc, MUSTER_OK);
    assert_int_equal(world.resolve.cluster_spec->job_count, 2);
    muster_cluster_spec_unref(world.resolve.cluster_spec);
    muster_resolver_close(resolver, NULL);
    world_close(&world);
}

static void a_late_answer_is_deadline_exceeded(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    world.resolve.deadline_ns = 0;
    assert_int_equal(muster_resolve_start(&world.resolve, &world.slow.resolver, on_answer),
                     MUSTER_OK);
    test_env_turn(world.env, 4);

    assert_int_equal(world.answers, 1);
    assert_int_equal(world.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(world.resolve.error.text, "slow"));
    world_close(&world);
}

static void cancel_ends_a_question_once(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(muster_resolve_start(&world.resolve, &world.slow.resolver, on_answer),
                     MUSTER_OK);
    muster_resolve_cancel(&world.resolve);
    muster_resolve_cancel(&world.resolve);
    test_env_turn(world.env, 4);

    assert_int_equal(world.answers, 1);
    assert_int_equal(world.rc, MUSTER_CANCELLED);
    world_close(&world);
}

static void an_answer_that_was_given_wins_over_cancel(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(muster_resolve_start(&world.resolve, &world.slow.resolver, on_answer),
                     MUSTER_OK);
    muster_resolve_finish(world.slow.open, MUSTER_OK);
    muster_resolve_cancel(&world.resolve);
    test_env_turn(world.env, 4);

    assert_int_equal(world.answers, 1);
    assert_int_equal(world.rc, MUSTER_OK);
    world_close(&world);
}

static void results_of_a_failed_question_are_dropped(void **state)
{
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(muster_resolve_start(&world.resolve, &world.slow.resolver, on_answer),
                     MUSTER_OK);
    world.resolve.cluster_spec = cluster(&world, "{\"w\":[\"a\"]}");
    muster_resolve_finish(world.slow.open, MUSTER_UNAVAILABLE);
    test_env_turn(world.env, 4);

    assert_int_equal(world.rc, MUSTER_UNAVAILABLE);
    assert_null(world.resolve.cluster_spec);
    world_close(&world);
}

static void close_completes_open_questions_first(void **state)
{
    struct muster_resolve late = {.data = NULL};
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(muster_resolve_start(&world.resolve, &world.slow.resolver, on_answer),
                     MUSTER_OK);
    muster_resolver_close(&world.slow.resolver, on_closed);
    assert_int_equal(muster_resolve_start(&late, &world.slow.resolver, on_answer),
                     MUSTER_FAILED_PRECONDITION);
    assert_false(world.is_closed);
    test_env_run_until(world.env, test_env_is_true, &world.is_closed);

    assert_int_equal(world.answers, 1);
    assert_int_equal(world.rc, MUSTER_CANCELLED);
    world_close(&world);
}

static void on_change(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec)
{
    (void)spec;
    ((struct world *)watch->data)->changes++;
}

static void on_watch_closed(struct muster_resolver_watch *watch)
{
    ((struct world *)watch->data)->answers++;
}

/* Wait for the next question of the watch and answer it. */
static bool is_asked(void *data)
{
    return ((struct world *)data)->slow.open != NULL;
}

static void answer(struct world *world, const char *text)
{
    struct muster_resolve *resolve;

    test_env_run_until(world->env, is_asked, world);
    resolve = world->slow.open;
    world->slow.open = NULL;
    if (text != NULL)
        resolve->cluster_spec = cluster(world, text);
    muster_resolve_finish(
        resolve,
        text != NULL ? MUSTER_OK : muster_error_set(&resolve->error, MUSTER_UNAVAILABLE, "away"));
    test_env_turn(world->env, 2);
}

static void a_watch_tells_only_what_changed(void **state)
{
    struct muster_resolver_watch watch = {.on_change = on_change, .interval_ns = 1000};
    struct world world;
    (void)state;

    world_open(&world);
    watch.data = &world;
    watch.interval_ns = 1000;
    assert_int_equal(muster_resolver_watch_open(&watch, &world.slow.resolver), MUSTER_OK);
    answer(&world, "{\"w\":[\"a\"]}");
    assert_int_equal(world.changes, 1);
    answer(&world, "{\"w\":[\"a\"]}");
    assert_int_equal(world.changes, 1);
    answer(&world, NULL);
    assert_int_equal(world.changes, 1);
    answer(&world, "{\"w\":[\"b\"]}");
    assert_int_equal(world.changes, 2);
    muster_resolver_watch_close(&watch, on_watch_closed);
    test_env_turn(world.env, 4);

    assert_int_equal(world.answers, 1);
    world_close(&world);
}

static void unknown_schemes_are_named_with_those_that_exist(void **state)
{
    static const struct {
        const char *uri;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"zookeeper:x", MUSTER_INVALID_ARGUMENT, "tf_config, static"},
        {"", MUSTER_INVALID_ARGUMENT, "static"},
        {"static:w", MUSTER_INVALID_ARGUMENT, "job=address"},
        {"static:=a:1", MUSTER_INVALID_ARGUMENT, "job=address"},
        {"static:{\"w\":1}", MUSTER_INVALID_ARGUMENT, "'w'"},
        {"tf_config:x", MUSTER_INVALID_ARGUMENT, "'x'"},
    };
    struct world world;
    (void)state;

    world_open(&world);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_resolver *resolver = NULL;
        struct muster_error error = {0};

        assert_int_equal(muster_resolver_open(world.env, rows[i].uri, NULL, &resolver, &error),
                         rows[i].rc);
        assert_non_null(strstr(error.text, rows[i].text));
        assert_null(resolver);
    }
    world_close(&world);
}

static const char *no_variable(struct muster_vars *vars, const char *name)
{
    (void)vars;
    (void)name;
    return NULL;
}

static void auto_without_a_mark_says_what_it_looked_for(void **state)
{
    static const struct muster_vars_ops ops = {.get = no_variable};
    struct muster_vars vars = {.ops = &ops};
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};
    struct world world;
    (void)state;

    world_open(&world);
    world.env->vars = &vars;

    assert_int_equal(muster_resolver_open(world.env, "auto:", NULL, &resolver, &error),
                     MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "TF_CONFIG"));
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_once_and_never_inside_start),
        cmocka_unit_test(a_late_answer_is_deadline_exceeded),
        cmocka_unit_test(cancel_ends_a_question_once),
        cmocka_unit_test(an_answer_that_was_given_wins_over_cancel),
        cmocka_unit_test(results_of_a_failed_question_are_dropped),
        cmocka_unit_test(close_completes_open_questions_first),
        cmocka_unit_test(a_watch_tells_only_what_changed),
        cmocka_unit_test(unknown_schemes_are_named_with_those_that_exist),
        cmocka_unit_test(auto_without_a_mark_says_what_it_looked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
