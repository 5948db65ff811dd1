/* Which task of how many: from TF_CONFIG, from torchrun's variables, and clear errors for
 * everything else. */
#include "assertion_count.h"
#include "test_env.h"
#include "test_vars.h"

#include <stdio.h>
#include <string.h>

#include <muster/http.h>
#include <muster/resolver.h>

#include "resolver_ask.h"
#include "training/place.h"

/* The answer of a resolver; NULL: none. */
static void on_resolved(struct muster_resolve *resolve, enum muster_rc rc)
{
    (void)rc;
    *(bool *)resolve->data = true;
}

static struct muster_cluster_spec *spec_of(struct muster_resolver *resolver)
{
    bool is_done = false;
    struct muster_resolve resolve = {.data = &is_done, .what = MUSTER_RESOLVE_CLUSTER_SPEC};

    resolve.deadline_ns = muster_loop_after_ns(resolver->env->loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_resolve_start(&resolve, resolver, on_resolved), MUSTER_OK);
    test_env_run_until(resolver->env, test_env_is_true, &is_done);
    return resolve.cluster_spec;
}

struct row {
    const char *name;
    struct test_var vars[5];
    const char *resolver; /* NULL: what the environment shows */
    const char
        *place; /* "TYPE:INDEX of COUNT at ADDRESS", and " alone" where no other has the address */
    enum muster_rc rc;
    const char *error;
    bool may_be_alone; /* without a registry */
};

#define CLUSTER(tasks) "{\"cluster\":{" tasks "},\"task\":{\"type\":\"worker\",\"index\":1}}"
#define TWO            CLUSTER("\"worker\":[\"b:1\",\"c:1\"]")
#define LAUNCHER                                                                                   \
    {                                                                                              \
        "MUSTER_INCARNATION", "1"                                                                  \
    }

/* The variables come last. */
#define FOUND(name_, resolver_, place_, ...)                                                       \
    {                                                                                              \
        name_, {__VA_ARGS__}, resolver_, place_, MUSTER_OK, "", false                              \
    }
/* Without a registry. */
#define ALONE(name_, resolver_, place_, ...)                                                       \
    {                                                                                              \
        name_, {__VA_ARGS__}, resolver_, place_, MUSTER_OK, "", true                               \
    }
#define REFUSED(name_, resolver_, rc_, error_, ...)                                                \
    {                                                                                              \
        name_, {__VA_ARGS__}, resolver_, NULL, rc_, error_, false                                  \
    }

static const struct row rows[] = {
    FOUND("rank and world size", NULL, "worker:2 of 4 at ", {"RANK", "2"}, {"WORLD_SIZE", "4"}),
    FOUND(
        "TF_CONFIG wins over RANK", NULL, "worker:1 of 3 at c:1 alone",
        {"TF_CONFIG", CLUSTER("\"chief\":[\"a:1\"],\"worker\":[\"b:1\",\"c:1\"],\"ps\":[\"d:1\"]")},
        {"RANK", "0"}, {"WORLD_SIZE", "9"}),
    FOUND("two with one address", NULL, "worker:1 of 2 at b:1",
          {"TF_CONFIG", CLUSTER("\"worker\":[\"b:1\",\"b:1\"]")}),
    FOUND("a chief with the same address", NULL, "worker:1 of 3 at c:1",
          {"TF_CONFIG", CLUSTER("\"chief\":[\"c:1\"],\"worker\":[\"b:1\",\"c:1\"]")}),
    FOUND("one that does not train has the same address", NULL, "worker:1 of 2 at c:1 alone",
          {"TF_CONFIG", CLUSTER("\"ps\":[\"c:1\"],\"worker\":[\"b:1\",\"c:1\"]")}),
    FOUND("a master trains", NULL, "worker:1 of 3 at c:1 alone",
          {"TF_CONFIG", CLUSTER("\"master\":[\"a:1\"],\"worker\":[\"b:1\",\"c:1\"]")}),
    FOUND("numbers with gaps", NULL, "worker:1 of 2 at b:1 alone",
          {"TF_CONFIG", CLUSTER("\"worker\":{\"1\":\"b:1\",\"7\":\"c:1\"}")}),
    FOUND("RANK of a launcher wins over TF_CONFIG", NULL, "worker:3 of 4 at ", {"TF_CONFIG", TWO},
          {"RANK", "3"}, {"WORLD_SIZE", "4"}, LAUNCHER),
    FOUND("a launcher without RANK", NULL, "worker:1 of 2 at c:1 alone", {"TF_CONFIG", TWO},
          {"WORLD_SIZE", "4"}, LAUNCHER),
    FOUND("a launcher without WORLD_SIZE", NULL, "worker:1 of 2 at c:1 alone", {"TF_CONFIG", TWO},
          {"RANK", "3"}, LAUNCHER),
    FOUND("the address of a rendezvous is not the member's", "torchrun:", "worker:0 of 2 at ",
          {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "7"}),
    FOUND("the address of JAX's coordinator is not the member's", "jax:", "worker:0 of 2 at ",
          {"JAX_COORDINATOR_ADDRESS", "m:7"}, {"JAX_NUM_PROCESSES", "2"}, {"JAX_PROCESS_ID", "0"}),
    FOUND("a resolver knows the size without addresses", "openmpi:", "worker:2 of 5 at ",
          {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "5"}),
    FOUND("what the environment shows is found", NULL, "worker:2 of 5 at ",
          {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "5"}),
    FOUND("an option wins over MUSTER_RESOLVER", "torchrun:", "worker:0 of 1 at ",
          {"MUSTER_RESOLVER", "nonsense:"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}),
    FOUND("a Slurm step", "slurm:jobs=worker:3&tasks_per_node=1&gpus_per_node=0",
          "worker:1 of 3 at n2:8888 alone", {"SLURM_PROCID", "1"},
          {"SLURM_STEP_NODELIST", "n[1-3]"}),
    ALONE("nothing at all, without a registry", NULL, "worker:0 of 1 at ", {NULL, NULL}),
    ALONE("an empty TF_CONFIG, without a registry", NULL, "worker:0 of 1 at ", {"TF_CONFIG", "{}"}),
    ALONE("a cluster is a cluster without a registry, too", NULL, "worker:1 of 2 at c:1 alone",
          {"TF_CONFIG", TWO}),
    REFUSED("who does not train", "static:worker=b:1;ps=a:1?task_type=ps&task_id=0",
            MUSTER_INVALID_ARGUMENT,
            "this process is task ps:0 (set by the caller), but a ps task does not train: open "
            "strategies in chief, worker and evaluator tasks; correct what the resolver 'static' "
            "reads",
            {NULL, NULL}),
    REFUSED("nothing at all", NULL, MUSTER_FAILED_PRECONDITION,
            "RANK is not set, nor anything else that describes a cluster: start this program with "
            "`muster "
            "run -n N -- PROGRAM`, or set TF_CONFIG, MUSTER_RESOLVER, or RANK and WORLD_SIZE",
            {NULL, NULL}),
    REFUSED("rank without world size", NULL, MUSTER_FAILED_PRECONDITION,
            "WORLD_SIZE is not set: start this program with `muster run -n N -- PROGRAM` or "
            "torchrun, or "
            "name another resolver",
            {"RANK", "0"}),
    REFUSED("world size without rank", NULL, MUSTER_FAILED_PRECONDITION,
            "RANK is not set: start this program with `muster run -n N -- PROGRAM` or torchrun, or "
            "name "
            "another resolver",
            {"WORLD_SIZE", "4"}),
    REFUSED("rank outside", NULL, MUSTER_INVALID_ARGUMENT,
            "RANK=4 is outside WORLD_SIZE=4: ranks go from 0 to one below the size", {"RANK", "4"},
            {"WORLD_SIZE", "4"}),
    REFUSED("rank is not a number", NULL, MUSTER_INVALID_ARGUMENT,
            "RANK must be a whole number from 0 on, got x1", {"RANK", "x1"}, {"WORLD_SIZE", "4"}),
    REFUSED("negative rank", NULL, MUSTER_INVALID_ARGUMENT,
            "RANK must be a whole number from 0 on, got -1", {"RANK", "-1"}, {"WORLD_SIZE", "4"}),
    REFUSED("rank too large", NULL, MUSTER_INVALID_ARGUMENT,
            "RANK must be a whole number from 0 on, got 99999999999999999999",
            {"RANK", "99999999999999999999"}, {"WORLD_SIZE", "4"}),
    REFUSED("malformed TF_CONFIG", NULL, MUSTER_INVALID_ARGUMENT,
            "TF_CONFIG: bad JSON at line 1, column 11: unexpected token near end of file (correct "
            "it, or "
            "unset it)",
            {"TF_CONFIG", "{\"cluster\":"}),
    REFUSED("task index outside the cluster", NULL, MUSTER_NOT_FOUND,
            "this process is task worker:1 (TF_CONFIG.task), but job 'worker' has no task 1 "
            "(it has 1 in all); name one that is there, or start it; correct what the resolver "
            "'tf_config' reads",
            {"TF_CONFIG", CLUSTER("\"worker\":[\"b:1\"]")}),
    REFUSED(
        "unknown job", NULL, MUSTER_NOT_FOUND,
        "this process is task worker:1 (TF_CONFIG.task), but the cluster has no job "
        "'worker'; name one of its jobs, or start it; correct what the resolver 'tf_config' reads",
        {"TF_CONFIG", CLUSTER("\"chief\":[\"b:1\"]")}),
    REFUSED(
        "TF_CONFIG without a task", NULL, MUSTER_INVALID_ARGUMENT,
        "the resolver 'tf_config' does not say which task this process is; set TF_CONFIG.task, or "
        "name it, as in tf_config:task_type=worker&task_id=0",
        {"TF_CONFIG", "{\"cluster\":{\"worker\":[\"b:1\"]}}"}),
    REFUSED("MUSTER_RESOLVER wins over RANK", NULL, MUSTER_INVALID_ARGUMENT,
            "the resolver 'static' does not say which task this process is; name it, as in "
            "static:worker=a:1,b:1,c:1?task_type=worker&task_id=0",
            {"MUSTER_RESOLVER", "static:worker=a:1,b:1,c:1"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}),
    REFUSED("a type without a number", "static:worker=a:1?task_type=worker",
            MUSTER_INVALID_ARGUMENT,
            "the resolver 'static' does not say which task this process is; name it, as in "
            "static:worker=a:1?task_type=worker&task_type=worker&task_id=0",
            {NULL, NULL}),
    REFUSED(
        "unknown resolver", "nonsense:x", MUSTER_INVALID_ARGUMENT,
        "there is no resolver 'nonsense': use auto, tf_config, static, union, sagemaker, slurm, "
        "kubernetes, torchrun, jax, openmpi, pmi, file, dns, gce, tpu, tpu_vm",
        {"RANK", "0"}, {"WORLD_SIZE", "1"}),
};

static void each_environment_gives_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct muster_replica_place place = {.expected_count = 0};
        struct muster_error error = {.rc = MUSTER_OK};
        struct test_vars vars;
        struct test_env test;
        enum muster_rc rc;
        char text[512];

        test_env_open(&test);
        test_vars_init(&vars, row->vars);
        test.env.vars = &vars.vars;

        rc = muster_replica_place_find(&test.env, row->resolver, row->may_be_alone, &place, &error);

        fail_if(rc != row->rc, "%s: %s (%s)", row->name, muster_rc_name(rc), error.text);
        snprintf(text, sizeof(text), "%s:%u of %u at %s%s", place.task_type, place.task_index,
                 place.expected_count, place.address, place.is_sole ? " alone" : "");
        fail_if(rc == MUSTER_OK && strcmp(text, row->place) != 0, "%s: %s", row->name, text);
        fail_if(rc != MUSTER_OK && strcmp(error.text, row->error) != 0, "%s: %s", row->name,
                error.text);
        assert_int_equal(error.rc, rc);
        assert_int_equal(place.expected_count == 0 && place.task_type[0] == '\0', rc != MUSTER_OK);
        assert_null(test.env.http); /* it was there for the question only */
        test_env_close(&test);
    }
}

/* --- roles --- */

static void each_task_knows_its_part(void **state)
{
    static const struct {
        const char *uri;
        struct test_var vars[3];
        uint32_t count, id;
        bool is_chief, is_alone;
    } roles[] = {
        {"static:chief=c:1;worker=a:1,b:1?task_type=worker&task_id=1", {{NULL, NULL}}, 3, 2, 0, 0},
        {"static:chief=c:1;worker=a:1,b:1?task_type=chief&task_id=0", {{NULL, NULL}}, 3, 0, 1, 0},
        {"static:worker=a:1,b:1;ps=p:1?task_type=worker&task_id=0", {{NULL, NULL}}, 2, 0, 1, 0},
        {"static:master=c:1;worker=a:1?task_type=master&task_id=0", {{NULL, NULL}}, 2, 0, 1, 0},
        {"static:worker=a:1;coordinator=c:1?task_type=worker&task_id=0",
         {{NULL, NULL}},
         1,
         0,
         1,
         0},
        {"static:{\"worker\":{\"1\":\"a:1\",\"7\":\"b:1\"}}?task_type=worker&task_id=7",
         {{NULL, NULL}},
         2,
         1,
         0,
         0},
        {"static:worker=a:1,b:1?task_type=evaluator&task_id=0", {{NULL, NULL}}, 1, 0, 1, 1},
        {"torchrun:", {{"RANK", "3"}, {"WORLD_SIZE", "5"}}, 5, 3, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        struct muster_replica_place place = {.expected_count = 0};
        struct muster_error error = {.rc = MUSTER_OK};
        struct test_vars vars;
        struct test_env test;

        test_env_open(&test);
        test_vars_init(&vars, roles[i].vars);
        test.env.vars = &vars.vars;
        fail_if(muster_replica_place_find(&test.env, roles[i].uri, false, &place, &error) !=
                    MUSTER_OK,
                "%s: %s", roles[i].uri, error.text);
        fail_if(place.expected_count != roles[i].count || place.id_in_cluster != roles[i].id ||
                    place.is_chief != roles[i].is_chief || place.is_alone != roles[i].is_alone,
                "%s: %u of %u%s%s", roles[i].uri, place.id_in_cluster, place.expected_count,
                place.is_chief ? ", chief" : "", place.is_alone ? ", alone" : "");
        test_env_close(&test);
    }
}

/* By a resolver alone: no variable is set. */
static enum muster_rc place_find_by(const char *uri, struct muster_replica_place *ret_place,
                                    struct muster_error *ret_error)
{
    static const struct test_var none[] = {{NULL, NULL}};
    struct test_vars vars;
    struct test_env test;
    enum muster_rc rc;

    test_env_open(&test);
    test_vars_init(&vars, none);
    test.env.vars = &vars.vars;
    rc = muster_replica_place_find(&test.env, uri, false, ret_place, ret_error);
    test_env_close(&test);
    return rc;
}

static void a_cluster_against_the_rules_is_refused(void **state)
{
    static const struct {
        const char *uri, *error;
    } refused[] = {
        {"static:chief=a:1,b:1;worker=c:1?task_type=worker&task_id=0",
         "'chief' must have one task"},
        {"static:chief=a:1;master=b:1?task_type=chief&task_id=0", "'chief' must have one task"},
        {"static:evaluator=a:1,b:1;worker=c:1?task_type=evaluator&task_id=0",
         "'evaluator' must have one task"},
        {"static:worker=a:1;trainer=b:1?task_type=worker&task_id=0", "got 'trainer'"},
        {"static:trainer=b:1?task_type=trainer&task_id=0", "got 'trainer'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct muster_replica_place place = {.expected_count = 0};
        struct muster_error error = {.rc = MUSTER_OK};

        fail_if(place_find_by(refused[i].uri, &place, &error) != MUSTER_INVALID_ARGUMENT ||
                    strstr(error.text, refused[i].error) == NULL,
                "%s: %s", refused[i].uri, error.text);
    }
}

/* An address that has no room is not told. */
static void an_address_has_room_or_is_left_out(void **state)
{
    static const size_t most = sizeof(((struct muster_replica_place *)NULL)->address) - 1;
    static char address[512], config[1024];
    const struct test_var list[] = {{"TF_CONFIG", config}, {NULL, NULL}};

    (void)state;
    for (size_t longer = 0; longer < 2; longer++) {
        struct muster_replica_place place = {.expected_count = 0};
        struct test_vars vars;
        struct test_env test;

        memset(address, 'h', sizeof(address));
        snprintf(address + most + longer - 2, 3, ":1");
        snprintf(config, sizeof(config), CLUSTER("\"worker\":[\"b:1\",\"%s\"]"), address);
        test_env_open(&test);
        test_vars_init(&vars, list);
        test.env.vars = &vars.vars;
        assert_int_equal(muster_replica_place_find(&test.env, NULL, false, &place, NULL),
                         MUSTER_OK);
        assert_string_equal(place.address, longer == 0 ? address : "");
        assert_int_equal(place.is_sole, longer == 0);
        test_env_close(&test);
    }
}

/* A client that is there already is used, and stays; without memory for one there is no answer. */
static void a_client_is_opened_where_there_is_none(void **state)
{
    static const struct test_var none[] = {{NULL, NULL}};
    struct muster_http client = {.ops = NULL};
    struct muster_replica_place place;
    struct muster_error error;
    struct test_vars vars;
    struct test_env test;

    (void)state;
    test_env_open(&test);
    test_vars_init(&vars, none);
    test.env.vars = &vars.vars;
    test.env.http = &client;
    assert_int_equal(muster_replica_place_find(&test.env,
                                               "static:worker=a:1?task_type=worker&task_id=0",
                                               false, &place, &error),
                     MUSTER_OK);
    assert_ptr_equal(test.env.http, &client);
    test.env.http = NULL;
    test.mem.fail_at = 1;
    assert_int_equal(muster_replica_place_find(&test.env,
                                               "static:worker=a:1?task_type=worker&task_id=0",
                                               false, &place, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_null(test.env.http);
    test_env_close(&test);
}

/* By these a start that waits names who is missing. */
static void the_place_says_which_tasks_train(void **state)
{
    static const struct {
        const char *uri, *chief_job;
        bool is_sparse;
    } told[] = {
        {"static:worker=a:1,b:1;ps=p:1?task_type=worker&task_id=1", NULL, false},
        {"static:chief=c:1;worker=a:1,b:1?task_type=worker&task_id=1", "chief", false},
        {"static:master=c:1;worker=a:1?task_type=master&task_id=0", "master", false},
        {"static:{\"worker\":{\"1\":\"a:1\",\"7\":\"b:1\"}}?task_type=worker&task_id=7", NULL,
         true},
        {"static:{\"worker\":[\"a:1\"],\"ps\":{\"3\":\"b:1\"}}?task_type=worker&task_id=0", NULL,
         false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        struct muster_replica_place place = {.expected_count = 0};
        struct muster_error error = {.rc = MUSTER_OK};

        fail_if(place_find_by(told[i].uri, &place, &error) != MUSTER_OK, "%s: %s", told[i].uri,
                error.text);
        fail_if((place.chief_job == NULL) != (told[i].chief_job == NULL) ||
                    (place.chief_job != NULL && strcmp(place.chief_job, told[i].chief_job) != 0) ||
                    place.is_sparse != told[i].is_sparse,
                "%s: %s%s", told[i].uri, place.chief_job == NULL ? "none" : place.chief_job,
                place.is_sparse ? ", sparse" : "");
    }
}

static void tasks_that_train_are_counted(void **state)
{
    static const struct {
        const char *uri;
        struct test_var vars[3];
        uint32_t count;
    } counted[] = {
        {"static:worker=a:1,b:1", {{NULL, NULL}}, 2},
        {"static:{\"chief\":[\"c:1\"],\"worker\":[\"a:1\",\"b:1\"],\"ps\":[\"d:1\"]}",
         {{NULL, NULL}},
         3},
        {"static:ps=d:1", {{NULL, NULL}}, 0},
        {"torchrun:", {{"RANK", "0"}, {"WORLD_SIZE", "5"}}, 5},
        {"torchrun:", {{"RANK", "0"}, {"WORLD_SIZE", "x"}}, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++) {
        struct muster_resolver *resolver = NULL;
        struct muster_cluster_spec *spec = NULL;
        struct test_vars vars;
        struct test_env test;

        test_env_open(&test);
        test_vars_init(&vars, counted[i].vars);
        test.env.vars = &vars.vars;
        assert_int_equal(muster_resolver_open(&test.env, counted[i].uri, NULL, &resolver, NULL),
                         MUSTER_OK);
        spec = spec_of(resolver);
        assert_int_equal(muster_replica_place_count(resolver, spec), counted[i].count);
        muster_cluster_spec_unref(spec);
        close_resolver(resolver);
        test_env_close(&test);
    }
}

/* The URI in the text of the error is asked in place of the one that says too little. */
static void the_uri_of_the_remedy_gives_a_place(void **state)
{
    static const char *const uris[] = {
        "static:worker=a:1,b:2",
        "static:{\"chief\":[\"c:1\"],\"worker\":{\"4\":\"a:1\"}}",
        "static:worker=a:1?rpc_layer=grpc",
        "static:worker=a:1?task_type=worker",
        "static:worker=a:1,b:1?task_id=1",
        "union:static:worker=a:1|static:ps=p:1",
        "union:(union:static:worker=a:1|static:worker=b:1)?rpc_layer=grpc",
        "tf_config:",
        "auto:",
    };
    static const struct test_var vars_of_tf[] = {
        {"TF_CONFIG", "{\"cluster\":{\"worker\":[\"a:1\",\"b:1\"]}}"}, {NULL, NULL}};
    (void)state;

    for (size_t i = 0; i < sizeof(uris) / sizeof(uris[0]); i++) {
        struct muster_replica_place place = {.expected_count = 0};
        struct muster_error error = {.rc = MUSTER_OK};
        struct test_vars vars;
        struct test_env test;
        const char *remedy;

        test_env_open(&test);
        test_vars_init(&vars, vars_of_tf);
        test.env.vars = &vars.vars;
        assert_int_equal(muster_replica_place_find(&test.env, uris[i], false, &place, &error),
                         MUSTER_INVALID_ARGUMENT);
        remedy = strstr(error.text, "as in ");
        assert_non_null(remedy);

        fail_if(muster_replica_place_find(&test.env, remedy + strlen("as in "), false, &place,
                                          NULL) != MUSTER_OK,
                "the remedy does not work: %s", error.text);

        assert_int_not_equal(place.expected_count, 0);
        test_env_close(&test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_environment_gives_its_place),
                                       cmocka_unit_test(each_task_knows_its_part),
                                       cmocka_unit_test(a_cluster_against_the_rules_is_refused),
                                       cmocka_unit_test(an_address_has_room_or_is_left_out),
                                       cmocka_unit_test(a_client_is_opened_where_there_is_none),
                                       cmocka_unit_test(the_place_says_which_tasks_train),
                                       cmocka_unit_test(tasks_that_train_are_counted),
                                       cmocka_unit_test(the_uri_of_the_remedy_gives_a_place)};

    return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
