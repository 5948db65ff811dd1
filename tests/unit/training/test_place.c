/* Which task of how many: from TF_CONFIG, from torchrun's variables, and clear errors for
 * everything else. */
#include "assertion_count.h"
#include "test_env.h"
#include "test_vars.h"

#include <string.h>

#include "training/place.h"

struct row {
    const char *name;
    struct test_var vars[5];
    const char *resolver;
    enum muster_rc rc;
    const char *task_type; /* or, for an error, what its text must name */
    uint32_t index, count;
};

static const struct row rows[] = {
    {"rank and world size", {{"RANK", "2"}, {"WORLD_SIZE", "4"}}, NULL, MUSTER_OK, "worker", 2, 4},
    {"nothing at all", {{NULL, NULL}}, NULL, MUSTER_FAILED_PRECONDITION, "muster run", 0, 0},
    {"rank without world size",
     {{"RANK", "0"}},
     NULL,
     MUSTER_FAILED_PRECONDITION,
     "WORLD_SIZE",
     0,
     0},
    {"rank outside",
     {{"RANK", "4"}, {"WORLD_SIZE", "4"}},
     NULL,
     MUSTER_INVALID_ARGUMENT,
     "RANK=4",
     0,
     0},
    {"rank is no number",
     {{"RANK", "x1"}, {"WORLD_SIZE", "4"}},
     NULL,
     MUSTER_INVALID_ARGUMENT,
     "RANK=x1",
     0,
     0},
    {"negative rank",
     {{"RANK", "-1"}, {"WORLD_SIZE", "4"}},
     NULL,
     MUSTER_INVALID_ARGUMENT,
     "RANK=-1",
     0,
     0},
    {"rank too large",
     {{"RANK", "99999999999999999999"}, {"WORLD_SIZE", "4"}},
     NULL,
     MUSTER_INVALID_ARGUMENT,
     "RANK=",
     0,
     0},
    {"TF_CONFIG wins over RANK",
     {{"TF_CONFIG",
       "{\"cluster\":{\"chief\":[\"a:1\"],\"worker\":[\"b:1\",\"c:1\"],\"ps\":[\"d:1\"]},"
       "\"task\":{\"type\":\"worker\",\"index\":1}}"},
      {"RANK", "0"},
      {"WORLD_SIZE", "9"}},
     NULL,
     MUSTER_OK,
     "worker",
     1,
     3},
    {"RANK of a launcher wins over TF_CONFIG",
     {{"TF_CONFIG",
       "{\"cluster\":{\"worker\":[\"b:1\",\"c:1\"]},\"task\":{\"type\":\"worker\",\"index\":1}}"},
      {"RANK", "3"},
      {"WORLD_SIZE", "4"},
      {"MUSTER_INCARNATION", "1"}},
     NULL,
     MUSTER_OK,
     "worker",
     3,
     4},
    {"malformed TF_CONFIG",
     {{"TF_CONFIG", "{\"cluster\":"}},
     NULL,
     MUSTER_INVALID_ARGUMENT,
     "TF_CONFIG",
     0,
     0},
    {"task index outside the cluster",
     {{"TF_CONFIG",
       "{\"cluster\":{\"worker\":[\"b:1\",\"c:1\"]},\"task\":{\"type\":\"worker\",\"index\":2}}"}},
     NULL,
     MUSTER_NOT_FOUND,
     "2",
     0,
     0},
    {"unknown job",
     {{"TF_CONFIG",
       "{\"cluster\":{\"worker\":[\"b:1\"]},\"task\":{\"type\":\"chief\",\"index\":0}}"}},
     NULL,
     MUSTER_NOT_FOUND,
     "chief",
     0,
     0},
    {"TF_CONFIG without a task",
     {{"TF_CONFIG", "{\"cluster\":{\"worker\":[\"b:1\"]}}"}},
     NULL,
     MUSTER_INVALID_ARGUMENT,
     "task",
     0,
     0},
    {"a resolver knows the size without addresses",
     {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "5"}},
     "openmpi:",
     MUSTER_OK,
     "worker",
     2,
     5},
    {"what the environment shows is found",
     {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "5"}},
     NULL,
     MUSTER_OK,
     "worker",
     2,
     5},
    {"MUSTER_RESOLVER wins over RANK",
     {{"MUSTER_RESOLVER", "static:worker=a:1,b:1,c:1"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}},
     NULL,
     MUSTER_INVALID_ARGUMENT,
     "task_type=",
     0,
     0},
    {"an option wins over MUSTER_RESOLVER",
     {{"MUSTER_RESOLVER", "nonsense:"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}},
     "torchrun:",
     MUSTER_OK,
     "worker",
     0,
     1},
    {"a Slurm step",
     {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NODELIST", "n[1-3]"}},
     "slurm:jobs=worker:3&tasks_per_node=1&gpus_per_node=0",
     MUSTER_OK,
     "worker",
     1,
     3},
    {"unknown resolver",
     {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
     "nonsense:x",
     MUSTER_INVALID_ARGUMENT,
     "nonsense",
     0,
     0},
};

static void each_environment_gives_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct muster_place place = {.expected_count = 0};
        struct muster_error error = {.rc = MUSTER_OK};
        struct test_vars vars;
        struct test_env test;
        enum muster_rc rc;

        test_env_open(&test);
        test_vars_init(&vars, row->vars);
        test.env.vars = &vars.vars;

        rc = muster_place_find(&test.env, row->resolver, &place, &error);

        fail_if(rc != row->rc, "%s: %s (%s), expected %s", row->name, muster_rc_name(rc),
                error.text, muster_rc_name(row->rc));
        fail_if(rc != MUSTER_OK && strstr(error.text, row->task_type) == NULL,
                "%s: the text does not name %s: %s", row->name, row->task_type, error.text);
        fail_if(rc == MUSTER_OK &&
                    (strcmp(place.task_type, row->task_type) != 0 ||
                     place.task_index != row->index || place.expected_count != row->count),
                "%s: %s:%u of %u", row->name, place.task_type, place.task_index,
                place.expected_count);
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
        "union:static:worker=a:1|static:ps=p:1",
        "union:(union:static:worker=a:1|static:worker=b:1)?rpc_layer=grpc",
        "tf_config:",
        "auto:",
    };
    static const struct test_var vars_of_tf[] = {
        {"TF_CONFIG", "{\"cluster\":{\"worker\":[\"a:1\",\"b:1\"]}}"}, {NULL, NULL}};
    (void)state;

    for (size_t i = 0; i < sizeof(uris) / sizeof(uris[0]); i++) {
        struct muster_place place = {.expected_count = 0};
        struct muster_error error = {.rc = MUSTER_OK};
        struct test_vars vars;
        struct test_env test;
        const char *remedy;

        test_env_open(&test);
        test_vars_init(&vars, vars_of_tf);
        test.env.vars = &vars.vars;
        assert_int_equal(muster_place_find(&test.env, uris[i], &place, &error),
                         MUSTER_INVALID_ARGUMENT);
        remedy = strstr(error.text, "as in ");
        assert_non_null(remedy);

        fail_if(muster_place_find(&test.env, remedy + strlen("as in "), &place, NULL) != MUSTER_OK,
                "the remedy does not work: %s", error.text);

        assert_int_not_equal(place.expected_count, 0);
        test_env_close(&test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_environment_gives_its_place),
                                       cmocka_unit_test(the_uri_of_the_remedy_gives_a_place)};

    return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
