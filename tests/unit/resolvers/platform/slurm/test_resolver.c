/* The cluster of a Slurm step: own task, GPUs from variables and from a tool that may fail. */
#include <muster/command.h>
#include <muster/platforms.h>

#include "test_env.h"
#include "test_vars.h"

#include <string.h>

#define VARIABLES_MAX 16

/* A host whose tool prints what the case says. */
struct tool {
    struct muster_host host;
    struct muster_command *running;
    enum muster_rc start_rc;
    unsigned runs;
};

struct world {
    struct test_env test;
    struct muster_env env;
    struct tool tool;
    struct test_var list[VARIABLES_MAX];
    struct test_vars vars;
    struct muster_resolver *resolver;
    struct muster_resolve resolve;
    struct muster_error error;
    enum muster_rc rc;
    unsigned answers;
    unsigned sets;
    char set[20];
    bool is_closed;
};

static struct tool *tool_of(struct muster_host *host)
{
    return MUSTER_CONTAINER_OF(host, struct tool, host);
}

static enum muster_rc tool_run(struct muster_host *host, struct muster_command *command)
{
    struct tool *tool = tool_of(host);

    tool->runs++;
    assert_string_equal(command->argv[0], "nvidia-smi");
    if (tool->start_rc == MUSTER_OK)
        tool->running = command;
    return tool->start_rc;
}

static void tool_end(struct world *world, enum muster_rc rc, int status, const char *output)
{
    struct muster_command *command = world->tool.running;

    world->tool.running = NULL;
    if (rc == MUSTER_OK)
        command->output = muster_mem_strdup(world->env.mem, output);
    command->exit_status = status;
    command->done(command, rc);
    test_env_turn(&world->env, 3);
}

static void tool_cancel(struct muster_host *host, struct muster_command *command)
{
    tool_of(host)->running = NULL;
    command->done(command, MUSTER_CANCELLED);
}

static const struct muster_host_ops tool_ops = {.run = tool_run, .cancel_run = tool_cancel};

static void set_variable(struct world *world, const char *name, const char *value)
{
    size_t i = 0;

    while (world->list[i].name != NULL && strcmp(world->list[i].name, name) != 0)
        i++;
    assert_true(i + 1 < VARIABLES_MAX);
    world->list[i] = (struct test_var){name, value};
}

/* Two nodes with two tasks each; this is the second. */
static void world_init(struct world *world)
{
    *world = (struct world){.tool = {.host = {.ops = &tool_ops}}};
    test_env_open(&world->test);
    world->env = world->test.env;
    world->env.host = &world->tool.host;
    test_vars_init(&world->vars, world->list);
    world->env.vars = &world->vars.vars;
    set_variable(world, "SLURM_PROCID", "1");
    set_variable(world, "SLURM_STEP_NUM_TASKS", "4");
    set_variable(world, "SLURM_STEP_NODELIST", "n[1-2]");
    set_variable(world, "SLURM_STEP_TASKS_PER_NODE", "2(x2)");
}

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct world *world = resolve->data;

    world->answers++;
    world->rc = rc;
    world->error = resolve->error;
    muster_cluster_spec_unref(resolve->cluster_spec);
}

static void keep_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    (void)resolve;
    assert_int_equal(rc, MUSTER_OK);
}

static void ask_world(struct world *world)
{
    world->resolve.data = world;
    world->resolve.what = MUSTER_RESOLVE_CLUSTER_SPEC;
    world->resolve.deadline_ns = muster_loop_after_ns(world->env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_resolve_start(&world->resolve, world->resolver, on_answer), MUSTER_OK);
    test_env_turn(&world->env, 3);
}

static void open_uri(struct world *world, const char *uri)
{
    assert_int_equal(muster_resolver_open(&world->env, uri, NULL, &world->resolver, &world->error),
                     MUSTER_OK);
}

static void on_closed(struct muster_resolver *resolver)
{
    ((struct world *)resolver->data)->is_closed = true;
}

static void world_fini(struct world *world)
{
    if (world->resolver != NULL) {
        world->resolver->data = world;
        muster_resolver_close(world->resolver, on_closed);
        test_env_run_until(&world->env, test_env_is_true, &world->is_closed);
    }
    test_env_close(&world->test);
}

static int64_t own_id(struct world *world)
{
    bool is_set = false;
    int64_t id = -1;

    assert_int_equal(muster_resolver_task_id(world->resolver, &is_set, &id, NULL), MUSTER_OK);
    return is_set ? id : -1;
}

static int64_t count_gpus(struct world *world)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_NUM_ACCELERATORS, .data = world};

    resolve.deadline_ns = muster_loop_after_ns(world->env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_resolve_start(&resolve, world->resolver, on_answer), MUSTER_OK);
    test_env_turn(&world->env, 3);
    assert_int_equal(world->rc, MUSTER_OK);
    return resolve.accelerators.kinds[0].count;
}

static void gpus_come_from_the_first_that_tells(void **state)
{
    static const struct {
        const char *name, *value, *uri, *source;
        int64_t per_task;
    } rows[] = {
        {"SLURM_GPUS_ON_NODE", "2", "slurm:", "SLURM_GPUS_ON_NODE", 1},
        {"SLURM_JOB_GPUS", "0-3", "slurm:", "SLURM_JOB_GPUS", 2},
        {"SLURM_STEP_GPUS", "1,2,4-7", "slurm:", "SLURM_STEP_GPUS", 3},
        {"CUDA_VISIBLE_DEVICES", "", "slurm:", "CUDA_VISIBLE_DEVICES", 0},
        {"CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7", "slurm:", "CUDA_VISIBLE_DEVICES", 4},
        {"CUDA_VISIBLE_DEVICES", "0", "slurm:gpus_per_node=10", "gpus_per_node", 5},
    };
    struct world world;
    (void)state;

    world_init(&world);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        set_variable(&world, rows[i].name, rows[i].value);
        open_uri(&world, rows[i].uri);
        assert_int_equal(count_gpus(&world), rows[i].per_task);
        assert_string_equal(muster_resolver_source(world.resolver, MUSTER_FACT_NUM_ACCELERATORS),
                            rows[i].source);
        muster_resolver_close(world.resolver, NULL);
        test_env_turn(&world.env, 3);
    }
    world.resolver = NULL;
    assert_int_equal(world.tool.runs, 0);
    world_fini(&world);
}

static enum muster_rc say_gpus(void *data, uint32_t *ret_count, struct muster_error *ret_error)
{
    const uint32_t *count = data;

    if (count == NULL)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "no driver");
    *ret_count = *count;
    return MUSTER_OK;
}

/* In place of the tool. */
static void the_program_may_count_gpus_itself(void **state)
{
    static uint32_t six = 6;
    struct muster_slurm_resolver_options options = {.count_gpus = say_gpus, .gpu_data = &six};
    struct world world;
    (void)state;

    world_init(&world);
    assert_int_equal(muster_slurm_resolver_open(&world.env, &options, &world.resolver, NULL),
                     MUSTER_OK);
    assert_int_equal(count_gpus(&world), 3);
    assert_string_equal(muster_resolver_source(world.resolver, MUSTER_FACT_NUM_ACCELERATORS),
                        "counted by the caller");
    muster_resolver_close(world.resolver, NULL);
    test_env_turn(&world.env, 3);
    world.resolver = NULL;
    options.gpu_data = NULL;
    assert_int_equal(
        muster_slurm_resolver_open(&world.env, &options, &world.resolver, &world.error),
        MUSTER_UNAVAILABLE);
    assert_string_equal(world.error.text, "no driver");
    assert_null(world.resolver);
    assert_int_equal(world.tool.runs, 0);
    world_fini(&world);
}

static void the_tool_is_run_once_and_every_question_waits_for_it(void **state)
{
    struct muster_resolve second = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    struct world world;
    (void)state;

    world_init(&world);
    open_uri(&world, "slurm:");
    ask_world(&world);
    second.data = &world;
    second.deadline_ns = world.resolve.deadline_ns;
    assert_int_equal(muster_resolve_start(&second, world.resolver, on_answer), MUSTER_OK);
    test_env_turn(&world.env, 3);
    assert_int_equal(world.answers, 0);
    tool_end(&world, MUSTER_OK, 0, "GPU 0: x\nGPU 1: x\nGPU 2: x\nGPU 3: x\n");

    assert_int_equal(world.answers, 2);
    assert_int_equal(world.rc, MUSTER_OK);
    assert_int_equal(world.tool.runs, 1);
    assert_string_equal(muster_slurm_resolver_visible_devices(world.resolver), "2,3");
    ask_world(&world);
    assert_int_equal(world.tool.runs, 1);
    world_fini(&world);
}

static void without_the_tool_there_are_no_gpus(void **state)
{
    struct world world;
    (void)state;

    world_init(&world);
    world.tool.start_rc = MUSTER_NOT_FOUND;
    open_uri(&world, "slurm:");
    ask_world(&world);

    assert_int_equal(world.rc, MUSTER_OK);
    assert_int_equal(own_id(&world), 1);
    assert_null(muster_slurm_resolver_visible_devices(world.resolver));
    assert_int_equal(count_gpus(&world), 0);
    world_fini(&world);
}

static void a_tool_that_fails_is_an_error_that_names_the_remedy(void **state)
{
    struct world world;
    (void)state;

    world_init(&world);
    open_uri(&world, "slurm:");
    ask_world(&world);
    tool_end(&world, MUSTER_OK, 9, "could not talk to the driver\nsecond line\n");
    assert_int_equal(world.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(world.error.text, "status 9 ('could not talk to the driver')"));
    assert_non_null(strstr(world.error.text, "gpus_per_node"));
    ask_world(&world);
    tool_end(&world, MUSTER_DEADLINE_EXCEEDED, 0, NULL);
    assert_int_equal(world.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(world.error.text, "nvidia-smi"));

    assert_int_equal(world.tool.runs, 2);
    world_fini(&world);
}

static void close_ends_a_tool_that_runs(void **state)
{
    struct world world;
    (void)state;

    world_init(&world);
    open_uri(&world, "slurm:");
    ask_world(&world);
    world.resolver->data = &world;
    muster_resolver_close(world.resolver, on_closed);
    test_env_run_until(&world.env, test_env_is_true, &world.is_closed);

    assert_int_equal(world.answers, 1);
    assert_int_equal(world.rc, MUSTER_CANCELLED);
    assert_null(world.tool.running);
    world.resolver = NULL;
    world_fini(&world);
}

static void remember_set(void *data, const char *devices)
{
    struct world *world = data;

    world->sets++;
    snprintf(world->set, sizeof(world->set), "%s", devices);
}

static void the_environment_is_changed_only_by_who_asks_for_it(void **state)
{
    struct muster_slurm_resolver_options options = {
        .has_gpus_per_node = true, .gpus_per_node = 4, .set_gpus = remember_set};
    struct world world;
    (void)state;

    world_init(&world);
    options.gpu_data = &world;
    assert_int_equal(muster_slurm_resolver_open(&world.env, &options, &world.resolver, NULL),
                     MUSTER_OK);
    assert_null(muster_slurm_resolver_visible_devices(world.resolver));
    ask_world(&world);

    assert_int_equal(world.sets, 1);
    assert_string_equal(world.set, "2,3");
    assert_null(muster_vars_get(world.env.vars, "CUDA_VISIBLE_DEVICES"));
    world_fini(&world);
}

static void the_own_task_follows_node_and_local_id_where_they_are_known(void **state)
{
    struct world world;
    (void)state;

    world_init(&world);
    set_variable(&world, "SLURM_PROCID", "1"); /* dealt cyclically: the first task of n2 */
    set_variable(&world, "SLURMD_NODENAME", "n2");
    set_variable(&world, "SLURM_LOCALID", "0");
    open_uri(&world, "slurm:gpus_per_node=0");
    ask_world(&world);
    assert_int_equal(own_id(&world), 2);
    set_variable(&world, "SLURMD_NODENAME", "elsewhere");
    ask_world(&world);
    assert_int_equal(own_id(&world), 1);
    set_variable(&world, "SLURMD_NODENAME", NULL);
    ask_world(&world);

    assert_int_equal(own_id(&world), 1);
    world_fini(&world);
}

static char master[64];

static void keep_master(struct muster_resolve *resolve, enum muster_rc rc)
{
    on_answer(resolve, rc);
    snprintf(master, sizeof(master), "%s", resolve->master != NULL ? resolve->master : "-");
    muster_mem_free(resolve->resolver->env->mem, resolve->master);
}

static enum muster_rc ask_master(struct world *world, struct muster_task_query query)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_MASTER, .data = world, .query = query};

    resolve.deadline_ns = muster_loop_after_ns(world->env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_resolve_start(&resolve, world->resolver, keep_master), MUSTER_OK);
    test_env_turn(&world->env, 3);
    return world->rc;
}

static void the_master_is_that_of_a_whole_task(void **state)
{
    static const struct {
        struct muster_task_query query;
        bool has_own; /* a question for the cluster has found the own task, worker 1 */
        enum muster_rc rc;
        const char *master;
    } rows[] = {
        {{.task_type = NULL}, false, MUSTER_OK, ""},
        {{.task_type = "worker"}, false, MUSTER_OK, ""},
        {{.task_id = 3, .has_task_id = true}, false, MUSTER_OK, ""},
        {{.task_type = "worker", .task_id = 3, .has_task_id = true}, false, MUSTER_OK, "n2:8889"},
        {{.task_type = "worker", .task_id = 4, .has_task_id = true}, false, MUSTER_NOT_FOUND, "-"},
        {{.task_type = "ps", .task_id = 0, .has_task_id = true}, false, MUSTER_NOT_FOUND, "-"},
        {{.rpc_layer = "grpc"}, true, MUSTER_OK, "grpc://n1:8889"},
        {{.task_type = "worker"}, true, MUSTER_OK, "n1:8889"},
        {{.task_id = 2, .has_task_id = true}, true, MUSTER_OK, "n2:8888"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world world;

        world_init(&world);
        open_uri(&world, "slurm:gpus_per_node=0&rpc_layer=");
        if (rows[i].has_own)
            ask_world(&world);
        print_message("row %zu\n", i);
        assert_int_equal(ask_master(&world, rows[i].query), rows[i].rc);
        assert_string_equal(master, rows[i].master);
        world_fini(&world);
    }
}

/* The ports of the tasks of a node stand for its GPUs. */
static void a_task_that_is_named_waits_for_the_number_of_gpus(void **state)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_MASTER};
    struct world world;
    (void)state;

    world_init(&world);
    open_uri(&world, "slurm:");
    resolve.data = &world;
    resolve.query =
        (struct muster_task_query){.task_type = "worker", .task_id = 3, .has_task_id = true};
    resolve.deadline_ns = muster_loop_after_ns(world.env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_resolve_start(&resolve, world.resolver, keep_master), MUSTER_OK);
    test_env_turn(&world.env, 3);
    assert_int_equal(world.answers, 0);
    tool_end(&world, MUSTER_OK, 0, "GPU 0: x\nGPU 1: x\n");

    assert_int_equal(world.rc, MUSTER_OK);
    assert_string_equal(master, "grpc://n2:8889");
    world_fini(&world);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *name, *value, *uri;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"SLURM_PROCID", "x", "slurm:", MUSTER_INVALID_ARGUMENT,
         "SLURM_PROCID must be a whole number from 0 on, got x"},
        {"SLURM_PROCID", "4", "slurm:", MUSTER_INVALID_ARGUMENT, "outside the step's 4 tasks"},
        {"SLURM_PROCID", NULL, "slurm:", MUSTER_FAILED_PRECONDITION, "srun"},
        {"SLURM_STEP_NUM_TASKS", "5", "slurm:", MUSTER_INVALID_ARGUMENT, "5 tasks"},
        {"SLURM_STEP_NODELIST", "n[1", "slurm:", MUSTER_INVALID_ARGUMENT, "SLURM_STEP_NODELIST: "},
        {"SLURM_STEP_NODELIST", "", "slurm:", MUSTER_INVALID_ARGUMENT, "0 hosts"},
        {"SLURM_STEP_NODELIST", "n1,n1", "slurm:gpus_per_node=0", MUSTER_OK, "twice"},
        {"SLURM_STEP_TASKS_PER_NODE", "2", "slurm:", MUSTER_INVALID_ARGUMENT, "2 hosts"},
        {"SLURM_STEP_TASKS_PER_NODE", "2x2", "slurm:", MUSTER_INVALID_ARGUMENT,
         "SLURM_STEP_TASKS_PER_NODE: "},
        {"SLURM_STEP_GPUS", "many", "slurm:", MUSTER_INVALID_ARGUMENT,
         "SLURM_STEP_GPUS must be devices such as 0,2-3, got many"},
        {"X", "", "slurm:port_base=65535", MUSTER_INVALID_ARGUMENT, "65535"},
        {"X", "", "slurm:gpus_per_node=1&gpus_per_task=1", MUSTER_INVALID_ARGUMENT,
         "lower gpus_per_task"},
        {"X", "", "slurm:jobs=worker", MUSTER_INVALID_ARGUMENT, "name:count"},
        {"X", "", "slurm:jobs=worker:2", MUSTER_INVALID_ARGUMENT, "Slurm assigned 4"},
        {"X", "", "slurm:tasks_per_node=0", MUSTER_INVALID_ARGUMENT,
         "tasks_per_node must be 1 to 65535, or host:count,…, got 0"},
        {"X", "", "slurm:auto=1", MUSTER_INVALID_ARGUMENT, "'auto'"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world world;

        world_init(&world);
        set_variable(&world, rows[i].name, rows[i].value);
        assert_int_equal(
            muster_resolver_open(&world.env, rows[i].uri, NULL, &world.resolver, &world.error),
            rows[i].rc);
        if (rows[i].rc == MUSTER_OK) {
            ask_world(&world);
            assert_int_equal(world.rc, MUSTER_INVALID_ARGUMENT);
        }
        if (strstr(world.error.text, rows[i].text) == NULL)
            fail_msg("%s: '%s' does not hold '%s'", rows[i].uri, world.error.text, rows[i].text);
        world_fini(&world);
    }
}

static void jobs_and_nodes_by_uri(void **state)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC,
                                     .deadline_ns = UINT64_MAX};
    struct world world;
    char *text = NULL;
    (void)state;

    world_init(&world);
    open_uri(&world, "slurm:jobs=worker:2,ps:1,eval:0&tasks_per_node=hb:1,ha:2&port_base=100&"
                     "gpus_per_node=0&rpc_layer=");
    resolve.data = &world;
    assert_int_equal(muster_resolve_start(&resolve, world.resolver, keep_answer), MUSTER_OK);
    test_env_turn(&world.env, 3);

    assert_int_equal(muster_cluster_spec_format(resolve.cluster_spec, world.env.mem, &text),
                     MUSTER_OK);
    assert_string_equal(text,
                        "{\"eval\":{},\"ps\":[\"ha:100\"],\"worker\":[\"ha:101\",\"hb:100\"]}");
    muster_mem_free(world.env.mem, text);
    assert_int_equal(muster_resolver_rpc_layer(world.resolver, &text, NULL), MUSTER_OK);
    assert_null(text);
    muster_cluster_spec_unref(resolve.cluster_spec);
    world_fini(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_come_from_the_first_that_tells),
        cmocka_unit_test(the_program_may_count_gpus_itself),
        cmocka_unit_test(the_tool_is_run_once_and_every_question_waits_for_it),
        cmocka_unit_test(without_the_tool_there_are_no_gpus),
        cmocka_unit_test(a_tool_that_fails_is_an_error_that_names_the_remedy),
        cmocka_unit_test(close_ends_a_tool_that_runs),
        cmocka_unit_test(the_environment_is_changed_only_by_who_asks_for_it),
        cmocka_unit_test(the_own_task_follows_node_and_local_id_where_they_are_known),
        cmocka_unit_test(the_master_is_that_of_a_whole_task),
        cmocka_unit_test(a_task_that_is_named_waits_for_the_number_of_gpus),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(jobs_and_nodes_by_uri),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
