/* Rank, size and at most one address from variables of JAX, torchrun, PMI and Open MPI. */
#include "resolvers/platform/launcher/world_resolver.h"

#include "test_env.h"
#include "test_vars.h"

#include <string.h>

#define VARIABLES_MAX 6

struct row {
    const char *uri;
    struct test_var list[VARIABLES_MAX];
    /* expected; rc other than OK: text is in the error */
    enum muster_rc rc;
    const char *cluster, *master, *text;
    int64_t id;   /* -1: not known */
    int64_t size; /* -1: not known */
};

#define URI_HNP "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"

static const struct row rows[] = {
    {.uri = "torchrun:",
     .list = {{"RANK", "1"}, {"WORLD_SIZE", "3"}},
     .cluster = "{}",
     .master = "",
     .id = 1,
     .size = 3},
    {.uri = "torchrun:rpc_layer=grpc",
     .list =
         {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "29500"}},
     .cluster = "{\"worker\":[\"[fe80::1]:29500\"]}",
     .master = "grpc://[fe80::1]:29500",
     .id = 0,
     .size = 2},
    {.uri = "torchrun:",
     .list = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
     .cluster = "{}",
     .master = "",
     .id = 0,
     .size = 2},
    {.uri = "torchrun:",
     .list = {{"RANK", "3"}, {"WORLD_SIZE", "3"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "RANK=3 is outside WORLD_SIZE=3"},
    {.uri = "torchrun:",
     .list = {{"RANK", "x"}, {"WORLD_SIZE", "3"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "RANK must be a whole number from 0 on, got x"},
    {.uri = "torchrun:",
     .list = {{"RANK", "0"}},
     .rc = MUSTER_FAILED_PRECONDITION,
     .text = "WORLD_SIZE is not set"},
    {.uri = "torchrun:",
     .list = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "70000"},
    {.uri = "torchrun:",
     .list = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "'a' with port 0"},
    {.uri = "torchrun:",
     .list = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", ""}, {"MASTER_PORT", "1"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "'' with port 1"},
    {.uri = "jax:",
     .list = {{"JAX_COORDINATOR_ADDRESS", "h:1234"},
              {"JAX_NUM_PROCESSES", "4"},
              {"JAX_PROCESS_ID", "2"}},
     .cluster = "{\"worker\":[\"h:1234\"]}",
     .master = "h:1234",
     .id = 2,
     .size = 4},
    {.uri = "jax:",
     .list = {{"JAX_COORDINATOR_ADDRESS", "h:1234"}},
     .cluster = "{\"worker\":[\"h:1234\"]}",
     .master = "h:1234",
     .id = -1,
     .size = -1},
    {.uri = "jax:",
     .list = {{"JAX_PROCESS_COUNT", "2"}, {"JAX_PROCESS_ID", "1"}},
     .cluster = "{}",
     .master = "",
     .id = 1,
     .size = 2},
    {.uri = "jax:",
     .list = {{"JAX_COORDINATOR_ADDRESS", ":1234"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "JAX_COORDINATOR_ADDRESS must be host:port, got :1234"},
    {.uri = "jax:",
     .list = {{"JAX_COORDINATOR_ADDRESS", "h"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "JAX_COORDINATOR_ADDRESS must be host:port, got h"},
    {.uri = "jax:",
     .list = {{"JAX_COORDINATOR_ADDRESS", "h:+80"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "JAX_COORDINATOR_ADDRESS must be host:port, got h:+80"},
    {.uri = "jax:",
     .list = {{"JAX_COORDINATOR_ADDRESS", "h: 80"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "JAX_COORDINATOR_ADDRESS must be host:port, got h: 80"},
    {.uri = "jax:",
     .list = {{"JAX_PROCESS_COUNT", "2"}, {"JAX_PROCESS_ID", "2"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "JAX_PROCESS_ID=2 is outside"},
    {.uri = "jax:", .rc = MUSTER_FAILED_PRECONDITION, .text = "JAX_COORDINATOR_ADDRESS"},
    {.uri = "pmi:",
     .list = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
     .cluster = "{}",
     .master = "",
     .id = 1,
     .size = 2},
    {.uri = "pmi:",
     .list = {{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "8"}},
     .cluster = "{}",
     .master = "",
     .id = 1,
     .size = 8},
    {.uri = "pmi:",
     .list = {{"PMIX_RANK", "1"}},
     .cluster = "{}",
     .master = "",
     .id = 1,
     .size = -1},
    {.uri = "pmi:", .rc = MUSTER_FAILED_PRECONDITION, .text = "mpiexec"},
    {.uri = "pmi:",
     .list = {{"PMIX_RANK", "x"}, {"PMI_RANK", "1"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "PMIX_RANK must be a whole number from 0 on, got x"},
    {.uri = "pmi:",
     .list = {{"PMI_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "x"}, {"PMI_SIZE", "2"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "SLURM_STEP_NUM_TASKS must be a whole number from 0 on, got x"},
    {.uri = "openmpi:",
     .list = {{"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_SIZE", "2"},
              {"OMPI_MCA_orte_hnp_uri", URI_HNP}},
     .cluster = "{}",
     .master = "10.96.0.1:62624",
     .id = 1,
     .size = 2},
    {.uri = "openmpi:",
     .list = {{"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_SIZE", "2"},
              {"OMPI_MCA_orte_hnp_uri", "nonsense"}},
     .rc = MUSTER_INVALID_ARGUMENT,
     .text = "OMPI_MCA_orte_hnp_uri must be an address such as"},
    {.uri = "openmpi:", .rc = MUSTER_FAILED_PRECONDITION, .text = "mpirun"},
};

struct world {
    struct test_env test;
    struct muster_env *env;
    struct test_vars vars;
    struct muster_resolver *resolver;
    enum muster_rc rc;
    struct muster_error error;
};

static void world_open(struct world *world, const char *uri, const struct test_var *list)
{
    *world = (struct world){.rc = MUSTER_OK};
    test_env_open(&world->test);
    world->env = &world->test.env;
    test_vars_init(&world->vars, list);
    world->env->vars = &world->vars.vars;
    assert_int_equal(muster_resolver_open(world->env, uri, NULL, &world->resolver, NULL),
                     MUSTER_OK);
}

static void world_close(struct world *world)
{
    muster_resolver_close(world->resolver, NULL);
    test_env_turn(world->env, 3);
    test_env_close(&world->test);
}

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct world *world = resolve->data;

    world->rc = rc;
    world->error = resolve->error;
}

static void ask_world(struct world *world, struct muster_resolve *resolve)
{
    resolve->data = world;
    resolve->deadline_ns = UINT64_MAX;
    assert_int_equal(muster_resolve_start(resolve, world->resolver, on_answer), MUSTER_OK);
    test_env_turn(world->env, 3);
}

static void check_facts(struct world *world, const struct row *row)
{
    bool is_set = false;
    uint32_t size = 0;
    int64_t id = 0;

    assert_int_equal(muster_resolver_task_id(world->resolver, &is_set, &id, NULL), MUSTER_OK);
    assert_int_equal(is_set ? id : -1, row->id);
    assert_int_equal(muster_resolver_world_size(world->resolver, &is_set, &size, NULL), MUSTER_OK);
    assert_int_equal(is_set ? (int64_t)size : -1, row->size);
}

static void check_answers(struct world *world, const struct row *row)
{
    struct muster_resolve cluster = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    struct muster_resolve master = {.what = MUSTER_RESOLVE_MASTER};
    char *text = NULL;

    ask_world(world, &cluster);
    assert_int_equal(world->rc, MUSTER_OK);
    assert_int_equal(muster_cluster_spec_format(cluster.cluster_spec, world->env->mem, &text),
                     MUSTER_OK);
    assert_string_equal(text, row->cluster);
    muster_mem_free(world->env->mem, text);
    muster_cluster_spec_unref(cluster.cluster_spec);
    ask_world(world, &master);
    assert_int_equal(world->rc, MUSTER_OK);
    assert_string_equal(master.master, row->master);
    muster_mem_free(world->env->mem, master.master);
    check_facts(world, row);
}

static void every_launcher_tells_what_it_knows(void **state)
{
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
        struct world world;

        world_open(&world, row->uri, row->list);
        if (row->rc == MUSTER_OK) {
            check_answers(&world, row);
        } else {
            ask_world(&world, &resolve);
            assert_int_equal(world.rc, row->rc);
            if (strstr(world.error.text, row->text) == NULL)
                fail_msg("row %zu: '%s' does not hold '%s'", i, world.error.text, row->text);
        }
        world_close(&world);
    }
}

static void a_task_whose_address_is_not_told_is_not_found(void **state)
{
    static const struct test_var list[] = {{"RANK", "1"}, {"WORLD_SIZE", "3"}, {NULL, NULL}};
    struct muster_resolve resolve = {
        .what = MUSTER_RESOLVE_MASTER,
        .query = {.task_type = "worker", .has_task_id = true, .task_id = 2}};
    struct world world;
    (void)state;

    world_open(&world, "torchrun:", list);
    ask_world(&world, &resolve);

    assert_int_equal(world.rc, MUSTER_NOT_FOUND);
    assert_non_null(strstr(world.error.text, "worker:2"));
    world_close(&world);
}

static void auto_prefers_the_launcher_closest_to_the_process(void **state)
{
    static const struct {
        struct test_var list[VARIABLES_MAX];
        const char *name;
    } cases[] = {
        {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NODELIST", "a"}},
         "torchrun"},
        {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"TF_CONFIG", "{}"}}, "tf_config"},
        {{{"OMPI_COMM_WORLD_RANK", "0"},
          {"OMPI_COMM_WORLD_SIZE", "1"},
          {"PMIX_RANK", "0"},
          {"SLURM_PROCID", "0"},
          {"SLURM_STEP_NODELIST", "a"}},
         "openmpi"},
        {{{"PMI_RANK", "3"},
          {"PMI_SIZE", "4"},
          {"SLURM_PROCID", "1"},
          {"SLURM_STEP_NODELIST", "a"}},
         "pmi"},
        {{{"PMIX_RANK", "3"}}, "pmi"},
        {{{"JAX_COORDINATOR_ADDRESS", "a:1"}, {"OMPI_COMM_WORLD_RANK", "0"}}, "jax"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world world;

        world_open(&world, "auto:", cases[i].list);
        assert_string_equal(muster_resolver_name(world.resolver), cases[i].name);
        world_close(&world);
    }
}

static void a_coordinator_is_bounded_to_the_byte(void **state)
{
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        struct muster_world world = {.size = 1};
        char host[sizeof(world.coordinator)] = "";
        struct muster_error error;

        memset(host, 'h', sizeof(world.coordinator) - strlen(":80") - 1 + over);
        assert_int_equal(muster_world_set_coordinator(&world, host, 80, &error),
                         over == 0 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        if (over == 0)
            assert_int_equal(strlen(world.coordinator), sizeof(world.coordinator) - 1);
    }
}

static void a_launcher_uri_gives_its_first_address_and_a_port_of_the_job(void **state)
{
    static const struct {
        const char *uri, *host;
        uint32_t port;
    } cases[] = {
        {URI_HNP, "10.96.0.1", 62624},
        {"1314521088.0;tcp6://[fe80::b9b,2620:10d::2]:43370", "fe80::b9b", 61440 + 1440},
        {"4096.0;usock;tcp://h:1", "h", 61441},
        {"0.0;tcp://h:1", "h", 61440},
        {"9.0;tcp://h:1", "h", 61440},
        {"x.0;tcp://h:1", NULL, 0},
        {"-4096.0;tcp://h:1", NULL, 0},
        {"4096;tcp://h:1", NULL, 0},
        {"4096.0;tcp://", NULL, 0},
        {"4096.0;tcp://h", NULL, 0},
        {"4096.0;udp://h:1", NULL, 0},
        {"", NULL, 0},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char host[20] = "";
        uint32_t port = 0;
        bool is_read = muster_hnp_uri_parse(cases[i].uri, host, sizeof(host), &port);

        assert_int_equal(is_read, cases[i].host != NULL);
        if (is_read) {
            assert_string_equal(host, cases[i].host);
            assert_int_equal(port, cases[i].port);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_tells_what_it_knows),
        cmocka_unit_test(a_coordinator_is_bounded_to_the_byte),
        cmocka_unit_test(a_task_whose_address_is_not_told_is_not_found),
        cmocka_unit_test(auto_prefers_the_launcher_closest_to_the_process),
        cmocka_unit_test(a_launcher_uri_gives_its_first_address_and_a_port_of_the_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
