/* Questions to any resolver: one answer each, deadlines, cancel, close, watching. */
#include <muster/resolver.h>

#include "test_env.h"
#include "test_vars.h"
#include "test_vars.h"

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

    *world = (struct world){.answers = 0};
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

static struct muster_cluster_spec *world_cluster(struct world *world, const char *text)
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
    world.resolve.deadline_ns = muster_loop_after_ns(world.env->loop, MUSTER_NS_PER_MS);
    assert_int_equal(muster_resolve_start(&world.resolve, &world.slow.resolver, on_answer),
                     MUSTER_OK);
    while (world.answers == 0)
        (void)muster_loop_turn(world.env->loop, MUSTER_NS_PER_MS);

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
    world.resolve.cluster_spec = world_cluster(&world, "{\"w\":[\"a\"]}");
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
        {"static:w=a:1?zoo=1", MUSTER_INVALID_ARGUMENT, "there is no option 'zoo'"},
        {"static:{\"w\":[\"a\"]}?zoo=1", MUSTER_INVALID_ARGUMENT, "there is no option 'zoo'"},
        {"static:w=a:1?task_id=x", MUSTER_INVALID_ARGUMENT, "task_id must be a whole number"},
        {"static:w=a:1&task_id=0", MUSTER_INVALID_ARGUMENT, "after a '?'"},
        {"static:w=a:1;task_type=w", MUSTER_INVALID_ARGUMENT, "task_type is an option"},
        {"tf_config:task_type=w?task_id=0", MUSTER_INVALID_ARGUMENT, "joined by '&'"},
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

static void a_remedy_names_the_task_behind_its_uri(void **state)
{
    static const struct {
        const char *uri, *cluster, *remedy;
    } rows[] = {
        {"static:w=a:1", "{\"w\":[\"a:1\"]}", "as in static:w=a:1?task_type=w&task_id=0"},
        {"static:{\"w\":[\"a?\"]}", "{\"w\":{\"3\":\"a\"}}",
         "as in static:{\"w\":[\"a?\"]}?task_type=w&task_id=3"},
        {"file:/c?rpc_layer=grpc", "{\"ps\":[\"p\"],\"worker\":[\"a\"]}",
         "as in file:/c?rpc_layer=grpc&task_type=worker&task_id=0"},
        {"tf_config", "{\"worker\":[\"a\"]}", "as in tf_config:task_type=worker&task_id=0"},
        {"auto:", "{\"worker\":[\"a\"]}", "as in auto:task_type=worker&task_id=0"},
        {"kubernetes:port=1", "{\"chief\":[\"c\"],\"worker\":[\"a\"]}",
         "as in kubernetes:port=1&task_type=chief&task_id=0"},
        {"union:static:w=a?rpc_layer=x|static:w=b", "{\"w\":[\"a\",\"b\"]}",
         "as in union:static:w=a?rpc_layer=x|static:w=b?task_type=w&task_id=0"},
        {"union:(static:w=a|static:w=b?task_id=1)?rpc_layer=g", "{\"w\":[\"a\"]}",
         "as in union:(static:w=a|static:w=b?task_id=1)?rpc_layer=g&task_type=w&task_id=0"},
        {"static:w="
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaa",
         "{\"w\":[\"a\"]}", "put ?task_type=w&task_id=0 after its URI"},
    };
    struct world world;
    (void)state;

    world_open(&world);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *spec = world_cluster(&world, rows[i].cluster);
        char text[220];

        assert_string_equal(muster_resolver_task_remedy(rows[i].uri, spec, sizeof(text), text),
                            rows[i].remedy);
        muster_cluster_spec_unref(spec);
    }
    world_close(&world);
}

static size_t count_two(struct muster_files *files, const char *pattern)
{
    (void)files;
    assert_string_equal(pattern, "/dev/nvidia[0-9]*");
    return 2;
}

/* The GPUs of this machine, as `muster run -n gpu` counts them, are those of the own task. */
static void without_a_list_the_machines_gpus_are_counted(void **state)
{
    static const struct muster_files_ops files_ops = {.count = count_two};
    static const struct {
        const char *uri, *task_type;
        int64_t count;
    } rows[] = {
        {"static:w=a:1,b:1?task_type=w&task_id=1", NULL, 2},
        {"static:w=a:1,b:1?task_type=w&task_id=1", "w", 2},
        {"static:w=a:1,b:1?task_type=w&task_id=0", "w", 0},
        {"static:w=a:1,b:1", "w", 0},
        {"union:static:w=a:1|static:w=b:1", NULL, 2},
        {"torchrun:", NULL, 2},
    };
    static const struct test_var vars_of_torchrun[] = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {NULL, NULL}};
    struct muster_files files = {.ops = &files_ops};
    struct test_vars vars;
    struct world world;
    (void)state;

    world_open(&world);
    world.env->files = &files;
    test_vars_init(&vars, vars_of_torchrun);
    world.env->vars = &vars.vars;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_accelerators *found = &world.resolve.accelerators;
        struct muster_resolver *resolver = NULL;

        assert_int_equal(muster_resolver_open(world.env, rows[i].uri, NULL, &resolver, NULL),
                         MUSTER_OK);
        world.resolve.what = MUSTER_RESOLVE_NUM_ACCELERATORS;
        world.resolve.query = (struct muster_task_query){
            .task_type = rows[i].task_type, .has_task_id = rows[i].task_type != NULL, .task_id = 1};
        assert_int_equal(muster_resolve_start(&world.resolve, resolver, on_answer), MUSTER_OK);
        test_env_turn(world.env, 8);
        assert_int_equal(world.rc, MUSTER_OK);
        assert_int_equal(found->kind_count, rows[i].count > 0);
        if (rows[i].count > 0)
            assert_int_equal(found->kinds[0].count, rows[i].count);
        muster_resolver_close(resolver, NULL);
        test_env_turn(world.env, 8);
    }
    world_close(&world);
}

static void a_static_resolver_answers_the_accelerators_that_it_was_opened_with(void **state)
{
    struct muster_accelerators *found;
    struct muster_static_resolver_options options = {
        .master = "", .accelerators = {.kind_count = 1, .kinds = {{"TPU", 4}}}};
    struct muster_resolver *resolver = NULL;
    struct world world;
    (void)state;

    world_open(&world);
    options.cluster_spec = world_cluster(&world, "{}");
    assert_int_equal(muster_static_resolver_open(world.env, &options, &resolver, NULL), MUSTER_OK);
    muster_cluster_spec_unref(options.cluster_spec);
    world.resolve.what = MUSTER_RESOLVE_NUM_ACCELERATORS;
    assert_int_equal(muster_resolve_start(&world.resolve, resolver, on_answer), MUSTER_OK);
    test_env_turn(world.env, 8);

    found = &world.resolve.accelerators;
    assert_int_equal(world.rc, MUSTER_OK);
    assert_int_equal(found->kind_count, 1);
    assert_string_equal(found->kinds[0].kind, "TPU");
    assert_int_equal(found->kinds[0].count, 4);
    muster_resolver_close(resolver, NULL);
    test_env_turn(world.env, 8);
    world_close(&world);
}

static void a_layer_that_is_set_is_not_the_default_any_more(void **state)
{
    static const struct muster_resolver_ops ops = {.name = "layered",
                                                   .default_rpc_layer = "grpc",
                                                   .start = slow_start,
                                                   .cancel = slow_cancel,
                                                   .close = slow_close};
    static const struct muster_resolver_options none;
    struct slow_resolver layered = {.asked = 0};
    struct muster_resolver *resolver = &layered.resolver;
    struct world world;
    uint32_t size = 7;
    bool is_set = true;
    (void)state;

    world_open(&world);
    assert_int_equal(muster_resolver_init(resolver, world.env, &ops, &none), MUSTER_OK);
    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_MASTER), "layered");
    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_RPC_LAYER), "default");
    assert_int_equal(muster_resolver_set_rpc_layer(resolver, "grpc"), MUSTER_OK);
    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_RPC_LAYER),
                        "set by the caller");
    assert_int_equal(muster_resolver_world_size(resolver, &is_set, &size, NULL), MUSTER_OK);
    assert_false(is_set);
    assert_int_equal(size, 0);
    muster_resolver_close(resolver, NULL);
    test_env_turn(world.env, 8);
    assert_true(layered.is_freed);
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

static void auto_takes_the_first_mark_and_says_why(void **state)
{
    static const struct test_var list[] = {
        {"TF_CONFIG", "{\"cluster\":{\"w\":[\"a\"]}}"},
        {"SM_HOSTS", "[\"a\"]"},
        {"SM_CURRENT_HOST", "a"},
        {NULL, NULL},
    };
    static const struct {
        size_t first; /* of list */
        const char *name, *reason;
    } rows[] = {
        {0, "tf_config", "auto: TF_CONFIG is set (also found: sagemaker)"},
        {1, "sagemaker", "auto: SM_HOSTS and SM_CURRENT_HOST are set"},
    };
    struct world world;
    (void)state;

    world_open(&world);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_resolver *resolver = NULL;
        struct test_vars vars;

        test_vars_init(&vars, list + rows[i].first);
        world.env->vars = &vars.vars;
        assert_int_equal(muster_resolver_open(world.env, "auto:", NULL, &resolver, NULL),
                         MUSTER_OK);
        assert_string_equal(muster_resolver_name(resolver), rows[i].name);
        assert_string_equal(muster_resolver_reason(resolver), rows[i].reason);
        muster_resolver_close(resolver, NULL);
        test_env_turn(world.env, 2);
    }
    world_close(&world);
}

static void what_the_caller_sets_is_said_to_come_from_it(void **state)
{
    struct muster_resolver *resolver = NULL;
    struct world world;
    (void)state;

    world_open(&world);
    assert_int_equal(
        muster_resolver_open(world.env, "tf_config:task_type=w", NULL, &resolver, NULL), MUSTER_OK);

    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_TASK_TYPE),
                        "set by the caller");
    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_TASK_ID), "TF_CONFIG.task");
    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_CLUSTER_SPEC),
                        "TF_CONFIG.cluster");
    assert_string_equal(muster_resolver_reason(resolver), "named by the caller");
    muster_resolver_close(resolver, NULL);
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
        cmocka_unit_test(unknown_schemes_are_named_with_those_that_exist),
        cmocka_unit_test(a_remedy_names_the_task_behind_its_uri),
        cmocka_unit_test(without_a_list_the_machines_gpus_are_counted),
        cmocka_unit_test(a_layer_that_is_set_is_not_the_default_any_more),
        cmocka_unit_test(a_static_resolver_answers_the_accelerators_that_it_was_opened_with),
        cmocka_unit_test(auto_without_a_mark_says_what_it_looked_for),
        cmocka_unit_test(auto_takes_the_first_mark_and_says_why),
        cmocka_unit_test(what_the_caller_sets_is_said_to_come_from_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
