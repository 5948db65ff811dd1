/* TPU nodes, and TPU cores counted by host. */
#include <muster/tpu_node.h>
#include <muster/tpu_system.h>

#include "assertion_count.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#define AT_S(seconds) (UINT64_C(1714557600) + (seconds)) * MUSTER_NS_PER_S /* 2024-05-01T10:00:00 */

static struct muster_tpu_node *parsed(struct test_env *test, const char *text)
{
    struct muster_tpu_node *node = NULL;
    struct muster_error error = {0};

    fail_if(muster_tpu_node_parse(test->env.mem, text, strlen(text), &node, &error) != MUSTER_OK,
            "%s", error.text);
    return node;
}

static void a_node_tells_its_state_and_endpoints(void **state)
{
    struct muster_tpu_node *node;
    struct test_env test;
    (void)state;
    test_env_open(&test);

    node = parsed(&test, "{\"state\":\"READY\",\"health\":\"HEALTHY\",\"acceleratorType\":\"v3-8\","
                         "\"runtimeVersion\":\"v2-alpha\",\"networkEndpoints\":[{\"ipAddress\":"
                         "\"10.0.0.1\"},{\"ipAddress\":\"fd00::1\",\"port\":\"9\"}]}");
    assert_string_equal(node->state, "READY");
    assert_string_equal(node->health, "HEALTHY");
    assert_string_equal(node->accelerator_type, "v3-8");
    assert_string_equal(node->runtime_version, "v2-alpha");
    assert_int_equal(node->endpoint_count, 2);
    assert_int_equal(node->endpoints[0].port, 8470);
    assert_int_equal(node->endpoints[1].port, 9);
    assert_false(node->has_symptoms);
    muster_tpu_node_unref(node);

    node = parsed(&test, "{\"ipAddress\":\"10.0.0.2\",\"port\":7,\"symptoms\":[]}");
    assert_null(node->state);
    assert_int_equal(node->endpoint_count, 1);
    assert_int_equal(node->endpoints[0].port, 7);
    assert_true(node->has_symptoms);
    muster_tpu_node_unref(node);
    test_env_close(&test);
}

static void what_is_no_node_is_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "[]",
        "{\"networkEndpoints\":[{}]}",
        "{\"networkEndpoints\":[{\"ipAddress\":\"a\",\"port\":0}]}",
        "{\"networkEndpoints\":[{\"ipAddress\":\"a\",\"port\":\"x\"}]}",
        "{\"networkEndpoints\":[{\"ipAddress\":\"a\",\"port\":65536}]}",
    };
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_node *node = NULL;
        struct muster_error error = {0};

        fail_if(muster_tpu_node_parse(test.env.mem, rows[i], strlen(rows[i]), &node, &error) !=
                    MUSTER_INVALID_ARGUMENT,
                "'%s' was taken", rows[i]);
    }
    test_env_close(&test);
}

#define SYMPTOM(type)                                                                              \
    "{\"symptoms\":[{\"symptomType\":\"" type "\",\"createTime\":\"2024-05-01T10:00:00.5Z\"}]}"

static void more_workers_than_any_tpu_has_are_refused(void **state)
{
    static const char head[] = "{\"networkEndpoints\":[", worker[] = "{\"ipAddress\":\"a\"},";
    size_t worker_bytes = sizeof(worker) - 1, bytes = sizeof(head) - 1;
    char *text = malloc(sizeof(head) + (MUSTER_TPU_WORKERS_MAX + 1) * worker_bytes + 2);
    struct muster_tpu_node *node = NULL;
    struct muster_error error = {0};
    struct test_env test;
    (void)state;
    assert_non_null(text);
    test_env_open(&test);
    memcpy(text, head, bytes);
    for (size_t i = 0; i <= MUSTER_TPU_WORKERS_MAX; i++, bytes += worker_bytes)
        memcpy(text + bytes, worker, worker_bytes);
    memcpy(text + bytes - 1, "]}", 2);

    assert_int_equal(muster_tpu_node_parse(test.env.mem, text, bytes + 1, &node, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "65537"));

    free(text);
    test_env_close(&test);
}

static void memory_that_ran_out_cools_down_for_90_seconds(void **state)
{
    static const struct {
        const char *node;
        struct muster_tpu_recovery recovery;
        uint64_t wall_ns;
        bool is_recoverable;
    } rows[] = {
        {"{}", {0}, AT_S(0), true},
        {"{\"state\":\"PREEMPTED\"}", {0}, AT_S(0), false},
        {"{\"state\":\"TERMINATED\"}", {0}, AT_S(0), false},
        {"{\"state\":\"REPAIRING\"}", {0}, AT_S(0), true},
        {SYMPTOM("OUT_OF_MEMORY"), {0}, AT_S(89), false},
        {SYMPTOM("OUT_OF_MEMORY"), {0}, AT_S(90), true},
        {SYMPTOM("OUT_OF_MEMORY"), {0}, AT_S(0) - 5 * MUSTER_NS_PER_S, false}, /* clocks differ */
        {SYMPTOM("HBM_OUT_OF_MEMORY"), {0}, AT_S(1), false},
        {SYMPTOM("HBM_OUT_OF_MEMORY"), {.is_hbm_oom_ignored = true}, AT_S(1), true},
        {SYMPTOM("OUT_OF_MEMORY"), {.is_runtime_oom_ignored = true}, AT_S(1), true},
        {SYMPTOM("LOW_MEMORY"), {0}, AT_S(1), true},
        {"{\"symptoms\":[{\"symptomType\":\"OUT_OF_MEMORY\",\"createTime\":\"soon\"}]}",
         {0},
         AT_S(1),
         true},
    };
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_node *node = parsed(&test, rows[i].node);

        fail_if(muster_tpu_node_is_recoverable(node, &rows[i].recovery, rows[i].wall_ns) !=
                    rows[i].is_recoverable,
                "row %zu", i);
        muster_tpu_node_unref(node);
    }
    test_env_close(&test);
}

static void cores_are_counted_by_host_and_devices_sorted(void **state)
{
    static const char *const names[] = {
        "/job:w/replica:0/task:10/device:TPU:1", "/job:w/replica:0/task:2/device:TPU:10",
        "/job:w/replica:0/task:2/device:CPU:0",  "/job:w/replica:0/task:10/device:TPU:0",
        "/job:w/replica:0/task:2/device:TPU:9",
    };
    struct muster_tpu_system system;
    struct muster_error error = {0};
    struct test_env test;
    (void)state;
    test_env_open(&test);

    assert_int_equal(muster_tpu_system_init(&system, test.env.mem, names, 5, &error), MUSTER_OK);
    assert_int_equal(system.num_cores, 4);
    assert_int_equal(system.num_hosts, 2);
    assert_int_equal(system.num_of_cores_per_host, 2);
    assert_string_equal(system.devices[0], names[2]);
    assert_string_equal(system.devices[1], names[4]);
    assert_string_equal(system.devices[2], names[1]);
    assert_string_equal(system.devices[4], names[0]);
    muster_tpu_system_fini(&system);

    assert_int_equal(muster_tpu_system_init(&system, test.env.mem, names, 4, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "task 2 has 1, task 10 has 2"));
    assert_int_equal(muster_tpu_system_init(&system, test.env.mem, names + 2, 1, &error),
                     MUSTER_OK);
    assert_int_equal(system.num_of_cores_per_host, 0);
    muster_tpu_system_fini(&system);
    test_env_close(&test);
}

/* tpu_system_metadata.master_job */
static void the_job_of_the_workers_follows_from_the_cluster(void **state)
{
    static const struct {
        const char *master;
        const char *cluster; /* NULL: none */
        const char *job;     /* NULL: none */
        enum muster_rc rc;
    } rows[] = {
        {"", "{\"worker\":[\"a:1\"]}", NULL, MUSTER_OK},
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
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *spec = NULL;
        struct muster_error error = {0};
        const char *job = "none";

        if (rows[i].cluster != NULL)
            assert_int_equal(muster_cluster_spec_parse(test.env.mem, rows[i].cluster,
                                                       strlen(rows[i].cluster), &spec, &error),
                             MUSTER_OK);
        assert_int_equal(muster_tpu_system_master_job(rows[i].master, spec, &job, &error),
                         rows[i].rc);
        if (rows[i].rc != MUSTER_OK)
            assert_string_equal(job, "none");
        else if (rows[i].job == NULL)
            assert_null(job);
        else
            assert_string_equal(job, rows[i].job);
        muster_cluster_spec_unref(spec);
    }
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_tells_its_state_and_endpoints),
        cmocka_unit_test(what_is_no_node_is_refused),
        cmocka_unit_test(more_workers_than_any_tpu_has_are_refused),
        cmocka_unit_test(memory_that_ran_out_cools_down_for_90_seconds),
        cmocka_unit_test(cores_are_counted_by_host_and_devices_sorted),
        cmocka_unit_test(the_job_of_the_workers_follows_from_the_cluster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
