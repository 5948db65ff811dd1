/* TPU nodes: what the API says of them, whether they can be used. */
#include <muster/tpu.h>

#include "assertion_count.h"
#include "test_env.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_S(seconds) (UINT64_C(1714557600) + (seconds)) * MUSTER_NS_PER_S /* 2024-05-01T10:00:00 */

static struct muster_tpu_node *parse_named(struct test_env *test, const char *text)
{
    struct muster_tpu_node *node = NULL;
    struct muster_error error = {0};

    fail_if(muster_tpu_node_parse(test->env.mem, text, strlen(text), &node, &error) != MUSTER_OK,
            "%s", error.text);
    return node;
}

static const char *text_or_dash(const char *text)
{
    return text != NULL ? text : "-";
}

/* "STATE HEALTH TYPE VERSION; HOST PORT, HOST PORT; TYPE CREATED WORKER DETAILS" */
static const char *describe_node(const struct muster_tpu_node *node)
{
    static char text[500];
    size_t length;

    length = (size_t)snprintf(text, sizeof(text), "%s %s %s %s;", text_or_dash(node->state),
                              text_or_dash(node->health), text_or_dash(node->accelerator_type),
                              text_or_dash(node->runtime_version));
    if (!node->has_address)
        length += (size_t)snprintf(text + length, sizeof(text) - length, " no address");
    for (size_t i = 0; i < node->endpoint_count; i++)
        length +=
            (size_t)snprintf(text + length, sizeof(text) - length, "%s %s %u", i > 0 ? "," : "",
                             node->endpoints[i].host, node->endpoints[i].port);
    length += (size_t)snprintf(text + length, sizeof(text) - length, "%s",
                               node->has_symptoms ? ";" : "; no symptoms");
    for (size_t i = 0; i < node->symptom_count; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s %s %s %s '%s'",
                                   i > 0 ? "," : "", node->symptoms[i].type,
                                   node->symptoms[i].create_time, node->symptoms[i].worker_id,
                                   node->symptoms[i].details);
    return text;
}

static const char *const nodes[][2] = {
    {"{}", "- - - -; no address; no symptoms"},
    {"{\"state\":\"READY\",\"health\":\"HEALTHY\",\"acceleratorType\":\"v3-8\",\"runtimeVersion\":"
     "\"v2-alpha\",\"networkEndpoints\":[{\"ipAddress\":\"10.0.0.1\"},{\"ipAddress\":\"fd00::1\","
     "\"port\":\"9\"}]}",
     "READY HEALTHY v3-8 v2-alpha; 10.0.0.1 8470, fd00::1 9; no symptoms"},
    {"{\"tensorflowVersion\":\"2.9\",\"runtimeVersion\":\"v2\",\"state\":7}",
     "- - - 2.9; no address; no symptoms"},
    {"{\"ipAddress\":\"10.0.0.2\",\"port\":7,\"symptoms\":[]}", "- - - -; 10.0.0.2 7;"},
    {"{\"ipAddress\":\"10.0.0.2\",\"port\":null}", "- - - -; 10.0.0.2 8470; no symptoms"},
    {"{\"networkEndpoints\":[],\"ipAddress\":\"10.0.0.2\"}", "- - - -;; no symptoms"},
    {"{\"networkEndpoints\":{\"a\":1},\"ipAddress\":\"10.0.0.2\"}",
     "- - - -; 10.0.0.2 8470; no symptoms"},
    {"{\"networkEndpoints\":[{\"ipAddress\":\"a\",\"port\":1},{\"ipAddress\":\"b\",\"port\":65535},"
     "{\"ipAddress\":\"c\",\"port\":\"1\"},{\"ipAddress\":\"d\",\"port\":\"65535\"},{\"ipAddress\":"
     "\"e\","
     "\"port\":\"010\"}]}",
     "- - - -; a 1, b 65535, c 1, d 65535, e 10; no symptoms"},
    {"{\"symptoms\":[{\"symptomType\":\"LOW_MEMORY\",\"createTime\":\"now\",\"workerId\":\"w\","
     "\"details\":\"d\"},{\"details\":7},3]}",
     "- - - -; no address; LOW_MEMORY now w 'd',    '',    ''"},
    {"{\"symptoms\":{\"symptomType\":\"LOW_MEMORY\"}}", "- - - -; no address; no symptoms"},
};

static void a_node_is_what_the_api_says(void **state)
{
    struct test_env *test = *state;

    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        struct muster_tpu_node *node = parse_named(test, nodes[i][0]);

        assert_string_equal(describe_node(node), nodes[i][1]);
        assert_ptr_equal(muster_tpu_node_ref(node), node);
        muster_tpu_node_unref(node);
        assert_string_equal(describe_node(node), nodes[i][1]);
        muster_tpu_node_unref(node);
    }
    muster_tpu_node_unref(NULL);
}

static void parse_node(struct torture *torture, const void *data)
{
    struct muster_tpu_node *node = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    const char *const *row = data;
    struct test_env test;
    enum muster_rc rc;

    test_env_open(&test);
    torture_arm_limited(torture, &test.mem);
    rc = muster_tpu_node_parse(test.env.mem, row[0], strlen(row[0]), &node, &error);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_string_equal(error.text, rc == MUSTER_OK ? "" : "no memory for a TPU node");
    if (rc == MUSTER_OK)
        assert_string_equal(describe_node(node), row[1]);
    muster_tpu_node_unref(node);
    test_env_close(&test);
}

static void without_memory_there_is_no_node(void **state)
{
    static const struct torture_scenario scenario = {
        .name = "node", .run = parse_node, .data = nodes[1]};
    (void)state;

    torture_run(&scenario);
}

#define ENDPOINT(rest) "{\"networkEndpoints\":[{" rest "}]}"
#define NO_IP          "a network endpoint of the TPU node has no ipAddress"
#define NO_PORT        "network endpoint a of the TPU node has no valid port"

static void what_is_no_node_is_refused(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"", "the TPU node: "},
        {"[]", "the answer of the TPU API must be an object that tells of a node, got list"},
        {ENDPOINT(""), NO_IP},
        {ENDPOINT("\"ipAddress\":7"), NO_IP},
        {ENDPOINT("\"ipAddress\":\"\""), NO_IP},
        {ENDPOINT("\"ipAddress\":\"a b\""), NO_IP},
        {ENDPOINT("\"ipAddress\":\"a\",\"port\":0"), NO_PORT},
        {ENDPOINT("\"ipAddress\":\"a\",\"port\":-1"), NO_PORT},
        {ENDPOINT("\"ipAddress\":\"a\",\"port\":65536"), NO_PORT},
        {ENDPOINT("\"ipAddress\":\"a\",\"port\":\"0\""), NO_PORT},
        {ENDPOINT("\"ipAddress\":\"a\",\"port\":\"65536\""), NO_PORT},
        {ENDPOINT("\"ipAddress\":\"a\",\"port\":\"x\""), NO_PORT},
        {ENDPOINT("\"ipAddress\":\"a\",\"port\":\"\""), NO_PORT},
        {ENDPOINT("\"ipAddress\":\"a\",\"port\":\"7x\""), NO_PORT},
        {ENDPOINT("\"ipAddress\":\"a\",\"port\":[7]"), NO_PORT},
        {"{\"networkEndpoints\":[{\"ipAddress\":\"a\"},{}]}", NO_IP},
        {"{\"ipAddress\":\"a\",\"port\":0}", NO_PORT},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_node *node = NULL;
        struct muster_error error = {0};

        fail_if(muster_tpu_node_parse(test->env.mem, rows[i].text, strlen(rows[i].text), &node,
                                      &error) != MUSTER_INVALID_ARGUMENT ||
                    strncmp(error.text, rows[i].error, strlen(rows[i].error)) != 0,
                "'%s': %s", rows[i].text, error.text);
        assert_null(node);
    }
}

static void a_host_has_at_most_255_characters(void **state)
{
    struct test_env *test = *state;

    for (int length = 255; length <= 256; length++) {
        struct muster_tpu_node *node = NULL;
        char host[260], text[300];
        enum muster_rc rc;

        memset(host, 'a', sizeof(host));
        snprintf(text, sizeof(text), "{\"ipAddress\":\"%.*s\"}", length, host);
        rc = muster_tpu_node_parse(test->env.mem, text, strlen(text), &node, NULL);
        assert_int_equal(rc, length == 255 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        if (rc == MUSTER_OK) {
            assert_int_equal(strlen(node->endpoints[0].host), 255);
            assert_int_equal(node->endpoints[0].port, 8470);
        }
        muster_tpu_node_unref(node);
    }
}

static void a_node_that_is_not_ready_is_told(void **state)
{
#define ADDRESS ",\"ipAddress\":\"a\"}"
#define UNREADY(state)                                                                             \
    "FAILED_PRECONDITION: TPU n is not READY: its state is " state "; wait until it is, or "       \
    "create it anew"
#define NOWHERE                                                                                    \
    "NOT_FOUND: TPU n is READY, but the API tells neither its networkEndpoints nor its "           \
    "ipAddress; create it anew, or name its workers as tpu=grpc://host:8470,host:8470"
    static const struct {
        const char *node, *found, *found_of_tf1;
    } rows[] = {
        {"{\"state\":\"READY\"" ADDRESS, "OK", "OK"},
        {"{\"state\":\"READY\",\"networkEndpoints\":[]}", "OK", "OK"},
        {"{\"state\":\"READY\",\"health\":\"HEALTHY\"" ADDRESS, "OK", "OK"},
        {"{\"state\":\"READY\",\"health\":\"TIMEOUT\"" ADDRESS, "OK",
         "FAILED_PRECONDITION: TPU n is unhealthy: TIMEOUT"},
        {"{\"state\":\"CREATING\"" ADDRESS, UNREADY("CREATING"), UNREADY("CREATING")},
        {"{\"x\":1" ADDRESS, UNREADY("not told"), "OK"},
        {"{\"state\":\"READY\"}", NOWHERE, NOWHERE},
    };
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_node *node = parse_named(&test, rows[i / 2].node);
        bool is_tf1 = i % 2 == 1;
        struct muster_error error = {.text = ""};
        enum muster_rc rc = muster_tpu_node_check(node, "n", is_tf1, &error);
        char text[300];

        assert_int_equal(rc, error.rc);
        snprintf(text, sizeof(text), "%s%s%s", muster_rc_name(rc), rc != MUSTER_OK ? ": " : "",
                 error.text);
        assert_string_equal(text, is_tf1 ? rows[i / 2].found_of_tf1 : rows[i / 2].found);
        muster_tpu_node_unref(node);
    }
    test_env_close(&test);
}

#define SYMPTOM(type)                                                                              \
    "{\"symptoms\":[{\"symptomType\":\"" type "\",\"createTime\":\"2024-05-01T10:00:00.5Z\"}]}"

static void more_workers_than_any_tpu_has_are_refused(void **state)
{
    struct test_env *test = *state;
    static const char head[] = "{\"networkEndpoints\":[", worker[] = "{\"ipAddress\":\"a\"},";
    size_t worker_bytes = sizeof(worker) - 1, bytes = sizeof(head) - 1;
    char *text = malloc(sizeof(head) + (MUSTER_TPU_WORKERS_MAX + 1) * worker_bytes + 2);
    struct muster_tpu_node *node = NULL;
    struct muster_error error = {0};

    assert_non_null(text);
    memcpy(text, head, bytes);
    for (size_t i = 0; i <= MUSTER_TPU_WORKERS_MAX; i++, bytes += worker_bytes)
        memcpy(text + bytes, worker, worker_bytes);
    memcpy(text + bytes - 1, "]}", 2);

    assert_int_equal(muster_tpu_node_parse(test->env.mem, text, bytes + 1, &node, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "a TPU node of 65537 workers is refused");
    memcpy(text + bytes - worker_bytes - 1, "]}", 2);
    assert_int_equal(
        muster_tpu_node_parse(test->env.mem, text, bytes - worker_bytes + 1, &node, &error),
        MUSTER_OK);
    assert_int_equal(node->endpoint_count, MUSTER_TPU_WORKERS_MAX);
    muster_tpu_node_unref(node);

    free(text);
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
        {SYMPTOM("HBM_OUT_OF_MEMORY"), {.is_runtime_oom_ignored = true}, AT_S(1), false},
        {SYMPTOM("OUT_OF_MEMORY"), {.is_hbm_oom_ignored = true}, AT_S(1), false},
        {"{\"symptoms\":[{\"symptomType\":\"LOW_MEMORY\"},{\"symptomType\":\"OUT_OF_MEMORY\","
         "\"createTime\":\"2024-05-01T10:00:00\"}]}",
         {0},
         AT_S(1),
         false},
        {"{\"symptoms\":[{\"symptomType\":\"OUT_OF_MEMORY\",\"createTime\":\"soon\"}]}",
         {0},
         AT_S(1),
         true},
    };
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_node *node = parse_named(&test, rows[i].node);

        fail_if(muster_tpu_node_is_recoverable(node, &rows[i].recovery, rows[i].wall_ns) !=
                    rows[i].is_recoverable,
                "row %zu", i);
        muster_tpu_node_unref(node);
    }
    test_env_close(&test);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_node_is_what_the_api_says),
        cmocka_unit_test(without_memory_there_is_no_node),
        CASE(what_is_no_node_is_refused),
        CASE(a_host_has_at_most_255_characters),
        cmocka_unit_test(a_node_that_is_not_ready_is_told),
        CASE(more_workers_than_any_tpu_has_are_refused),
        cmocka_unit_test(memory_that_ran_out_cools_down_for_90_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, torture_tell);
}
