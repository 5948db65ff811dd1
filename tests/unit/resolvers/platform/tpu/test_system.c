/* TPU cores counted by host. */
#include <muster/tpu.h>

#include "test_env.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>

#define NAMES_MAX 6

struct row {
    const char *names[NAMES_MAX];
    const char *order;  /* where each one goes, as digits into names */
    uint32_t counts[3]; /* cores, hosts, cores of each */
    const char *error;  /* NULL: none */
};

#define DIFFER(text)                                                                               \
    "TPU hosts have different numbers of cores: " text "; wait until all of them are up"

static const struct row rows[] = {
    {{NULL}, "", {0, 0, 0}, NULL},
    {{"/job:w/replica:0/task:2/device:CPU:0"}, "0", {0, 0, 0}, NULL},
    {{"/job:w/replica:0/task:10/device:TPU:1", "/job:w/replica:0/task:2/device:TPU:10",
      "/job:w/replica:0/task:2/device:CPU:0", "/job:w/replica:0/task:10/device:TPU:0",
      "/job:w/replica:0/task:2/device:TPU:9"},
     "24130",
     {4, 2, 2},
     NULL},
    {{"/job:w/replica:1/task:0/device:TPU:0", "/job:w/replica:0/task:1/device:TPU:0",
      "/job:v/replica:2/task:2/device:TPU:0", "/job:vv/replica:0/task:0/device:TPU:0"},
     "2310",
     {4, 4, 1},
     NULL},
    {{"/job:w/task:0/device:TPUS:0", "/job:w/task:0/device:TPU:0", "/job:w/task:0/device:TP:0",
      "/job:w/task:0/device:TPX:7"},
     "2103",
     {1, 1, 1},
     NULL},
    {{"/task:0/device:TPU", "/device:TPU:3", "nonsense"}, "201", {2, 1, 2}, NULL},
    {{"/task:1/device:TPU:1", "/task:1/device:TPU:0", "/task:0/device:CPU:0"},
     "210",
     {2, 1, 2},
     NULL},
    {{"/job:w/task:2/device:TPU:0", "/job:w/task:10/device:TPU:0", "/job:w/task:10/device:TPU:1"},
     "",
     {0, 0, 0},
     DIFFER("task 2 has 1, task 10 has 2")},
    {{"/job:w/replica:0/task:7/device:TPU:0", "/job:w/replica:1/task:5/device:TPU:0",
      "/job:w/replica:1/task:5/device:TPU:1"},
     "",
     {0, 0, 0},
     DIFFER("task 7 has 1, task 5 has 2")},
    {{"/job:w/task:0/device:TPU:0", "/job:w/task:0/device:TPU:1", "/job:x/task:0/device:TPU:0"},
     "",
     {0, 0, 0},
     DIFFER("task 0 has 2, task 0 has 1")},
};

static enum muster_rc count_row(struct muster_mem *mem, const struct row *row,
                                struct muster_error *ret_error)
{
    struct muster_tpu_system system = {.num_cores = 77};
    size_t count = 0;
    enum muster_rc rc;

    while (count < NAMES_MAX && row->names[count] != NULL)
        count++;
    rc = muster_tpu_system_init(&system, mem, row->names, count, ret_error);
    if (rc != MUSTER_OK) {
        assert_int_equal(system.num_cores, 77);
        return rc;
    }
    assert_int_equal(system.num_cores, row->counts[0]);
    assert_int_equal(system.num_hosts, row->counts[1]);
    assert_int_equal(system.num_of_cores_per_host, row->counts[2]);
    assert_int_equal(system.device_count, count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(system.devices[i], row->names[row->order[i] - '0']);
    muster_tpu_system_fini(&system);
    assert_null(system.devices);
    muster_tpu_system_fini(&system);
    return rc;
}

static void cores_are_counted_by_host_and_devices_sorted(void **state)
{
    struct test_env *test = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.text = ""};

        print_message("row %zu\n", i);
        assert_int_equal(count_row(test->env.mem, &rows[i], &error),
                         rows[i].error != NULL ? MUSTER_FAILED_PRECONDITION : MUSTER_OK);
        assert_string_equal(error.text, rows[i].error != NULL ? rows[i].error : "");
    }
}

static void count_in_want(struct torture *torture, const void *data)
{
    struct muster_error error = {.text = ""};
    struct test_env test;
    enum muster_rc rc;

    test_env_open(&test);
    torture_arm_limited(torture, &test.mem);
    rc = count_row(test.env.mem, data, &error);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_string_equal(error.text, rc == MUSTER_OK ? "" : "no memory for 5 devices");
    test_env_close(&test);
}

static void without_memory_nothing_is_counted(void **state)
{
    static const struct torture_scenario scenario = {
        .name = "count", .run = count_in_want, .data = &rows[2]};
    (void)state;

    torture_run(&scenario);
}

/* tpu_system_metadata.master_job */
static void the_job_of_the_workers_follows_from_the_cluster(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *master;
        const char *cluster; /* NULL: none */
        const char *job;     /* NULL: none */
        enum muster_rc rc;
    } jobs[] = {
        {"", "{\"worker\":[\"a:1\"]}", NULL, MUSTER_OK},
        {"local", "{\"worker\":[\"a:1\"]}", NULL, MUSTER_OK},
        {"grpc://a:1", "{\"coordinator\":[\"c:1\"]}", "coordinator", MUSTER_OK},
        {"local", NULL, NULL, MUSTER_OK},
        {"grpc://a:1", NULL, "tpu_worker", MUSTER_OK},
        {"grpc://a:1", "{}", "tpu_worker", MUSTER_OK},
        {"grpc://a:1", "{\"w\":[\"a:1\"]}", "w", MUSTER_OK},
        {"grpc://a:1", "{\"coordinator\":[\"c:1\"],\"w\":[\"a:1\"]}", "w", MUSTER_OK},
        {"grpc://a:1", "{\"w\":[\"a:1\"],\"coordinator\":[\"c:1\"]}", "w", MUSTER_OK},
        {"grpc://a:1", "{\"tpu_worker\":[\"a:1\"]}", NULL, MUSTER_INVALID_ARGUMENT},
        {"grpc://a:1", "{\"w\":[\"a:1\"],\"ps\":[\"b:1\"]}", NULL, MUSTER_INVALID_ARGUMENT},
        {"grpc://a:1", "{\"w\":[\"a:1\"],\"ps\":[\"b:1\"],\"coordinator\":[\"c:1\"]}", NULL,
         MUSTER_INVALID_ARGUMENT},
    };

    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        struct muster_cluster_spec *spec = NULL;
        struct muster_error error = {0};
        const char *job = "none";

        if (jobs[i].cluster != NULL)
            assert_int_equal(muster_cluster_spec_parse(test->env.mem, jobs[i].cluster,
                                                       strlen(jobs[i].cluster), &spec, &error),
                             MUSTER_OK);
        assert_int_equal(muster_tpu_system_master_job(jobs[i].master, spec, &job, &error),
                         jobs[i].rc);
        if (jobs[i].rc != MUSTER_OK)
            assert_string_equal(job, "none");
        else if (jobs[i].job == NULL)
            assert_null(job);
        else
            assert_string_equal(job, jobs[i].job);
        muster_cluster_spec_unref(spec);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(cores_are_counted_by_host_and_devices_sorted),
        cmocka_unit_test(without_memory_nothing_is_counted),
        CASE(the_job_of_the_workers_follows_from_the_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, torture_tell);
}
