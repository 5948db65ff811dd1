/* Rules of roles, beyond the recorded cases: texts that name the culprit, and jobs without tasks. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include <muster/strategy_role.h>
#include <muster/view.h>

#define FULL                                                                                       \
    "{\"chief\":[\"c:1\"],\"worker\":[\"a:1\",\"b:1\"],\"ps\":[\"p:1\",\"q:1\"],"                  \
    "\"evaluator\":[\"e:1\"]}"

struct row {
    const char *name, *cluster, *task_type;
    int64_t task_id;
    const char *error; /* a part of the text; NULL: the task trains */
    bool is_chief;
    uint32_t id, count;
    const char *leader;
};

#define CHIEF  "/job:chief/replica:0/task:0"
#define WORKER "/job:worker/replica:0/task:0"

static const struct row rows[] = {
    {"chief", FULL, "chief", 0, NULL, true, 0, 3, CHIEF},
    {"the first worker behind a chief", FULL, "worker", 0, NULL, false, 1, 3, CHIEF},
    {"the last worker", FULL, "worker", 1, NULL, false, 2, 3, CHIEF},
    {"the evaluator is alone", FULL, "evaluator", 0, NULL, true, 0, 1, ""},
    {"an evaluator that is not listed", "{\"worker\":[\"a:1\"]}", "evaluator", 0, NULL, true, 0, 1,
     ""},
    {"beyond the only evaluator", FULL, "evaluator", 1,
     "the task is evaluator:1, but the job has 1 tasks", false, 0, 0, NULL},
    {"a worker without a chief", "{\"worker\":[\"a:1\",\"b:1\"]}", "worker", 0, NULL, true, 0, 2,
     WORKER},
    {"ps", FULL, "ps", 1, "a ps task does not train", false, 0, 0, NULL},
    {"no type", FULL, NULL, 0, "the task type is not known", false, 0, 0, NULL},
    {"a job of another name", "{\"worker\":[\"a:1\"],\"trainer\":[\"b:1\"]}", "worker", 0,
     "chief, worker, ps or evaluator, got 'trainer'", false, 0, 0, NULL},
    {"two chiefs", "{\"worker\":[\"a:1\"],\"chief\":[\"b:1\",\"c:1\"]}", "worker", 0,
     "the job 'chief' must have one task, got 2", false, 0, 0, NULL},
    {"two evaluators", "{\"worker\":[\"a:1\"],\"evaluator\":[\"b:1\",\"c:1\"]}", "worker", 0,
     "the job 'evaluator' must have one task, got 2", false, 0, 0, NULL},
    {"a type that is not listed", "{\"worker\":[\"a:1\"]}", "chief", 0,
     "the task is chief:0, but the cluster has no job 'chief'", false, 0, 0, NULL},
    {"a job without tasks", "{\"worker\":[]}", "worker", 0,
     "the task is worker:0, but the job has 0 tasks", false, 0, 0, NULL},
    {"below the first", "{\"worker\":[\"a:1\"]}", "worker", -1,
     "the task is worker:-1, but the job has 1 tasks", false, 0, 0, NULL},
};

static void check_row(const struct row *row, const struct muster_strategy_role *role)
{
    struct muster_error error = {.rc = MUSTER_OK};
    const char *leader = NULL;
    bool is_chief = false;
    uint32_t id = 99, count = 99;
    enum muster_rc rc = muster_strategy_role_id_in_cluster(role, &id, &error);

    if (row->error != NULL) {
        if (rc != MUSTER_INVALID_ARGUMENT || strstr(error.text, row->error) == NULL || id != 99)
            fail_msg("%s: %d \"%s\"", row->name, (int)rc, error.text);
        return;
    }
    if (rc != MUSTER_OK || id != row->id)
        fail_msg("%s: id %u \"%s\"", row->name, id, error.text);
    rc = muster_strategy_role_is_chief(role, &is_chief, &error);
    if (rc != MUSTER_OK || is_chief != row->is_chief)
        fail_msg("%s: is_chief %d", row->name, is_chief);
    rc = muster_strategy_role_worker_count(role, &count, &error);
    if (rc != MUSTER_OK || count != row->count)
        fail_msg("%s: worker_count %u", row->name, count);
    rc = muster_strategy_role_collective_leader(role, &leader, &error);
    if (rc != MUSTER_OK || strcmp(leader, row->leader) != 0)
        fail_msg("%s: leader %s", row->name, leader);
}

static void each_task_has_its_part(void **state)
{
    struct muster_env *env = test_env_of(state);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_strategy_role role = {.task_type = rows[i].task_type,
                                            .task_id = rows[i].task_id};
        struct muster_cluster_spec *cluster = NULL;

        assert_int_equal(muster_cluster_spec_parse(env->mem, rows[i].cluster,
                                                   strlen(rows[i].cluster), &cluster, NULL),
                         MUSTER_OK);
        role.cluster = cluster;
        check_row(&rows[i], &role);
        muster_cluster_spec_unref(cluster);
    }
}

static void the_coordination_service_is_with_the_first_ps(void **state)
{
    static const struct {
        const char *cluster, *leader; /* NULL: INVALID_ARGUMENT */
    } clusters[] = {
        {FULL, "/job:ps/replica:0/task:0"},  {"{\"worker\":[\"a:1\"],\"chief\":[\"b:1\"]}", CHIEF},
        {"{\"worker\":[\"a:1\"]}", WORKER},  {"{}", ""},
        {"{\"evaluator\":[\"a:1\"]}", NULL},
    };
    struct muster_env *env = test_env_of(state);

    for (size_t i = 0; i < sizeof(clusters) / sizeof(clusters[0]); i++) {
        struct muster_strategy_role role = {.task_type = NULL};
        struct muster_cluster_spec *cluster = NULL;
        const char *leader = "";
        enum muster_rc rc;

        assert_int_equal(muster_cluster_spec_parse(env->mem, clusters[i].cluster,
                                                   strlen(clusters[i].cluster), &cluster, NULL),
                         MUSTER_OK);
        role.cluster = cluster;
        rc = muster_strategy_role_coordination_leader(&role, &leader, NULL);
        assert_int_equal(rc, clusters[i].leader != NULL ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        if (clusters[i].leader != NULL)
            assert_string_equal(leader, clusters[i].leader);
        muster_cluster_spec_unref(cluster);
    }
}

/* In a program without a cluster the type says nothing, so none is refused. */
static void an_empty_cluster_has_no_leader_for_any_task(void **state)
{
    static const char *const types[] = {NULL, "worker", "ps", "evaluator", "trainer"};
    struct muster_env *env = test_env_of(state);
    struct muster_cluster_spec *cluster = NULL;

    assert_int_equal(muster_cluster_spec_parse(env->mem, "{}", 2, &cluster, NULL), MUSTER_OK);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct muster_strategy_role role = {
            .cluster = cluster, .task_type = types[i], .task_id = 1};
        const char *leader = "?";

        assert_int_equal(muster_strategy_role_collective_leader(&role, &leader, NULL), MUSTER_OK);
        assert_string_equal(leader, "");
    }
    muster_cluster_spec_unref(cluster);
}

static void the_jobs_that_train_are_named_by_rank(void **state)
{
    static const char *const jobs[] = {"chief", "master", "worker"};
    struct muster_member before = {.task_type = "chief"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct muster_member member = {.task_type = ""};

        assert_string_equal(muster_strategy_role_training_job(i), jobs[i]);
        (void)snprintf(member.task_type, sizeof(member.task_type), "%s", jobs[i]);
        assert_true(i == 0 || muster_member_compare(&before, &member) < 0);
        before = member;
    }
    assert_null(muster_strategy_role_training_job(3));
    assert_null(muster_strategy_role_training_job(SIZE_MAX));
}

static void a_global_batch_is_divided_by_the_replicas(void **state)
{
    struct muster_input_context context = {.num_replicas_in_sync = 3};
    struct muster_error error;
    uint64_t batch = 0;

    (void)state;
    assert_int_equal(muster_input_context_batch(&context, 12, &batch, &error), MUSTER_OK);
    assert_int_equal(batch, 4);
    assert_int_equal(muster_input_context_batch(&context, 13, &batch, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text,
                        "the global batch must be a multiple of the 3 replicas, got 13");
    context.num_replicas_in_sync = 0;
    assert_int_equal(muster_input_context_batch(&context, 12, &batch, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(batch, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_task_has_its_part, test_env_set_up,
                                        test_env_tear_down),
        cmocka_unit_test_setup_teardown(the_coordination_service_is_with_the_first_ps,
                                        test_env_set_up, test_env_tear_down),
        cmocka_unit_test_setup_teardown(an_empty_cluster_has_no_leader_for_any_task,
                                        test_env_set_up, test_env_tear_down),
        cmocka_unit_test(the_jobs_that_train_are_named_by_rank),
        cmocka_unit_test(a_global_batch_is_divided_by_the_replicas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
