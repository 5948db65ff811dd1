/* Cloud resolvers under bad weather: no memory at every allocation, given up or closed at every
 * turn. */
#include <muster/resolver.h>
#include <muster/tpu.h>

#include "careful_mem.h"
#include "cloud_fixture.h"
#include "resolver_ask.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_MAX 2000 /* of a question; it takes some tens */

#define META(path, text)                                                                           \
    "{\"match\":{\"path\":\"/computeMetadata/v1/" path                                             \
    "\"},\"response\":{\"headers\":{\"Metadata-Flavor\":\"Google\"},\"body\":" text "}}"
#define PLACE                                                                                      \
    META("project/project-id", "\"p\"") "," META("instance/zone", "\"projects/9/zones/z\"")
#define TOKEN                                                                                      \
    META("instance/service-accounts/default/token",                                                \
         "{\"access_token\":\"t\",\"expires_in\":3600,\"token_type\":\"Bearer\"}")

#define GCE_PATH "/compute/v1/projects/p/zones/z/"
#define GCE                                                                                        \
    "[" PLACE "," TOKEN ",{\"match\":{\"path\":\"" GCE_PATH                                        \
    "instanceGroups/g/listInstances\",\"query\":{\"pageToken\":\"t\"}},\"response\":{\"body\":{"   \
    "\"items\":[{\"instance\":\"i/c\"}]}}},{\"match\":{\"path\":\"" GCE_PATH                       \
    "instanceGroups/g/listInstances\"},\"response\":{\"body\":{\"nextPageToken\":\"t\","           \
    "\"items\":[{\"instance\":\"i/a\"},{\"instance\":\"i/b\"}]}}},"                                \
    "{\"response\":{\"body\":{\"networkInterfaces\":[{\"networkIP\":\"10.0.0.1\"}]}}}]"

#define POD                                                                                        \
    "{\"metadata\":{\"name\":\"a\"},\"status\":{\"phase\":\"Running\",\"hostIP\":\"10.0.0.1\"}}"
#define PODS                                                                                       \
    "[{\"match\":{\"query\":{\"continue\":\"more\"}},\"response\":{\"body\":{\"metadata\":{"       \
    "\"resourceVersion\":\"7\"},\"items\":[" POD "]}}},{\"match\":{\"path\":\"/api/v1/pods\"},"    \
    "\"response\":{\"body\":{\"metadata\":{\"resourceVersion\":\"7\",\"continue\":\"more\"},"      \
    "\"items\":[" POD "," POD "]}}}]"
#define KUBECONFIG                                                                                 \
    "current-context: c\n"                                                                         \
    "contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]\n"                        \
    "clusters: [{name: k, cluster: {server: '{{base}}', tls-server-name: s}}]\n"                   \
    "users: [{name: u, user: {token: t}}]\n"

#define TPU                                                                                        \
    "[" PLACE "," TOKEN ",{\"match\":{\"path\":\"/discovery/tpu/v1\"},\"response\":{\"body\":{"    \
    "\"rootUrl\":\"{{base}}/\",\"servicePath\":\"\",\"resources\":{\"projects\":{\"resources\":{"  \
    "\"locations\":{\"resources\":{\"nodes\":{\"methods\":{\"get\":{\"path\":\"v1/{+name}\"}"      \
    "}}}}}}}}}},{\"match\":{\"path\":\"/v1/projects/p/locations/z/nodes/n\"},\"response\":{"       \
    "\"body\":{\"state\":\"READY\",\"health\":\"HEALTHY\",\"tensorflowVersion\":\"2.9\","          \
    "\"networkEndpoints\":[{\"ipAddress\":\"10.0.0.1\",\"port\":8470},{\"ipAddress\":\"fd00::1\"}" \
    "]}}}]"

struct row {
    const char *name;
    const char *uri; /* the path of the kubeconfig stands behind it */
    const char *script;
    bool has_kubeconfig;
    enum muster_resolve_what what;
    const char *task_type; /* of the master that is asked for */
};

static const struct row rows[] = {
    {"gce", "gce:instance_group=g&port=80&api_endpoint={{base}}", GCE, false,
     MUSTER_RESOLVE_CLUSTER_SPEC, NULL},
    {"gce, its master", "gce:instance_group=g&port=80&api_endpoint={{base}}", GCE, false,
     MUSTER_RESOLVE_MASTER, "worker"},
    {"kubernetes", "kubernetes:selector=worker:a=b;worker:c=d;ps:e=f&api_server={{base}}", PODS,
     false, MUSTER_RESOLVE_CLUSTER_SPEC, NULL},
    {"kubernetes, its master", "kubernetes:api_server={{base}}", PODS, false, MUSTER_RESOLVE_MASTER,
     "worker"},
    {"kubernetes by kubeconfig", "kubernetes:location=off&kubeconfig=", PODS, true,
     MUSTER_RESOLVE_CLUSTER_SPEC, NULL},
    {"tpu", "tpu:tpu=n&coordinator_name=c&coordinator_address=a:1&api_endpoint={{base}}", TPU,
     false, MUSTER_RESOLVE_CLUSTER_SPEC, NULL},
    {"tpu by discovery", "tpu:tpu=n&discovery_url={{base}}/discovery/{api}/{apiVersion}", TPU,
     false, MUSTER_RESOLVE_MASTER, NULL},
    {"tpu by addresses", "tpu:tpu=grpc://10.0.0.1:1,[fd00::1]&api_endpoint={{base}}", TPU, false,
     MUSTER_RESOLVE_CLUSTER_SPEC, NULL},
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

/* An environment whose memory can fail, apart from that of the cloud. */
struct stage {
    struct cloud_fixture f;
    struct muster_mem_limited mem;
    struct muster_env env;
    char uri[512];
};

static void stage_open(struct stage *stage, const struct row *row)
{
    struct muster_error error = {.text = ""};

    cloud_fixture_open(&stage->f, NULL);
    cloud_fixture_set_var(&stage->f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(&stage->f, row->script);
    cloud_fixture_set_var(&stage->f, "URI", row->uri);
    snprintf(stage->uri, sizeof(stage->uri), "%s%s", muster_vars_get(stage->f.env->vars, "URI"),
             row->has_kubeconfig ? cloud_fixture_write(&stage->f, "config", KUBECONFIG) : "");
    muster_mem_limited_init(&stage->mem, careful_mem(), 0);
    stage->env = *stage->f.env;
    stage->env.mem = &stage->mem.mem;
    if (muster_http_curl_open(&stage->env, NULL, &stage->env.http, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static void on_http_closed(struct muster_http *http)
{
    (void)http;
}

static bool is_all_freed(void *data)
{
    return ((struct stage *)data)->mem.block_count == 0;
}

static void stage_close(struct stage *stage)
{
    muster_http_close(stage->env.http, on_http_closed);
    test_env_run_until(&stage->env, is_all_freed, stage);
    assert_int_equal(muster_mem_limited_fini(&stage->mem), 0);
    cloud_fixture_close(&stage->f);
}

/* A question and what came of it. */
struct asked {
    struct muster_resolve resolve;
    int count; /* of answers */
    bool is_done;
};

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct asked *asked = resolve->data;

    if (rc == MUSTER_OK) {
        muster_cluster_spec_unref(resolve->cluster_spec);
        muster_mem_free(resolve->resolver->env->mem, resolve->master);
    }
    asked->count++;
    asked->is_done = true;
}

static void start_question(struct asked *asked, const struct row *row,
                           struct muster_resolver *resolver)
{
    *asked = (struct asked){.resolve = {.what = row->what}};
    asked->resolve.data = asked;
    asked->resolve.query.task_type = row->task_type;
    asked->resolve.query.has_task_id = row->task_type != NULL;
    asked->resolve.deadline_ns = muster_loop_after_ns(resolver->env->loop, 30 * MUSTER_NS_PER_S);
    assert_int_equal(muster_resolve_start(&asked->resolve, resolver, on_answer), MUSTER_OK);
    assert_int_equal(asked->count, 0);
}

static enum muster_rc open_ask_close(struct stage *stage, const struct row *row)
{
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {.text = ""};
    struct asked asked;
    enum muster_rc rc = muster_resolver_open(&stage->env, stage->uri, NULL, &resolver, &error);

    if (rc != MUSTER_OK)
        return rc;
    start_question(&asked, row, resolver);
    test_env_run_until(&stage->env, test_env_is_true, &asked.is_done);
    if (asked.resolve.rc != MUSTER_OK)
        assert_int_not_equal(asked.resolve.error.text[0], '\0');
    close_resolver(resolver);
    assert_int_equal(asked.count, 1);
    return asked.resolve.rc;
}

/* The first one leaves what the environment keeps. */
static void run_question(struct torture *torture, const void *data)
{
    const struct row *row = data;
    struct stage stage;
    size_t blocks;
    enum muster_rc rc;

    stage_open(&stage, row);
    assert_int_equal(open_ask_close(&stage, row), MUSTER_OK);
    blocks = stage.mem.block_count;
    torture_arm_limited(torture, &stage.mem);
    rc = open_ask_close(&stage, row);
    torture_disarm(torture);
    if (rc != MUSTER_OK && (rc != MUSTER_RESOURCE_EXHAUSTED || torture->refused == 0))
        fail_msg("%s", muster_rc_name(rc));
    if (stage.mem.block_count > blocks)
        fail_msg("%zu blocks are left, not %zu", stage.mem.block_count, blocks);
    stage_close(&stage);
}

static void want_of_memory_at_any_place_is_told_and_leaves_nothing_behind(void **state)
{
    (void)state;
    TORTURE_RUN_ROWS(run_question, rows);
}

/* True: the answer came before it was given up. */
static bool give_up_after(struct stage *stage, const struct row *row, unsigned turns,
                          bool is_closing)
{
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {.text = ""};
    struct asked asked;
    bool was_done;

    if (muster_resolver_open(&stage->env, stage->uri, NULL, &resolver, &error) != MUSTER_OK)
        fail_msg("%s: %s", row->name, error.text);
    start_question(&asked, row, resolver);
    for (unsigned i = 0; i < turns && !asked.is_done; i++)
        muster_loop_turn(stage->env.loop, UINT64_MAX);
    was_done = asked.is_done;
    if (!is_closing) {
        muster_resolve_cancel(&asked.resolve);
        muster_resolve_cancel(&asked.resolve);
        test_env_run_until(&stage->env, test_env_is_true, &asked.is_done);
    }
    close_resolver(resolver);
    assert_int_equal(asked.count, 1);
    if (asked.resolve.rc != MUSTER_OK && (was_done || asked.resolve.rc != MUSTER_CANCELLED))
        fail_msg("%s, turn %u: %s", row->name, turns, muster_rc_name(asked.resolve.rc));
    return was_done;
}

static void give_up_at_every_turn(bool is_closing)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        struct stage stage;
        unsigned turns = 0;

        stage_open(&stage, &rows[i]);
        while (!give_up_after(&stage, &rows[i], turns, is_closing) && turns < TURNS_MAX)
            turns++;
        assert_true(turns > 0 && turns < TURNS_MAX);
        stage_close(&stage);
    }
}

static void a_question_can_be_given_up_at_any_turn(void **state)
{
    (void)state;
    give_up_at_every_turn(false);
}

static void a_resolver_can_be_closed_at_any_turn_of_a_question(void **state)
{
    (void)state;
    give_up_at_every_turn(true);
}

static enum muster_rc start_server(void *data, uint16_t *ret_port, struct muster_error *ret_error)
{
    (void)ret_error;
    (*(int *)data)++;
    *ret_port = 9;
    return MUSTER_OK;
}

static void run_address(struct torture *torture, const void *data)
{
    static const struct row row = {
        .uri = "",
        .script = "[" META("instance/network-interfaces/0/ip", "\"10.0.0.9\"") "]",
        .what = MUSTER_RESOLVE_CLUSTER_SPEC};
    int server_count = 0;
    struct muster_tpu_resolver_options options = {.client.tpu = "grpc://a:1",
                                                  .coordinator_name = "c",
                                                  .start_server = start_server,
                                                  .start_server_data = &server_count};
    struct muster_resolver *resolver = NULL;
    struct muster_error error;
    struct asked asked;
    struct stage stage;

    (void)data;
    stage_open(&stage, &row);
    assert_int_equal(muster_tpu_resolver_open(&stage.env, &options, &resolver, &error), MUSTER_OK);
    torture_arm_limited(torture, &stage.mem);
    start_question(&asked, &row, resolver);
    test_env_run_until(&stage.env, test_env_is_true, &asked.is_done);
    torture_disarm(torture);
    assert_true(asked.resolve.rc == MUSTER_OK || torture->refused > 0);
    start_question(&asked, &row, resolver);
    test_env_run_until(&stage.env, test_env_is_true, &asked.is_done);
    assert_int_equal(asked.resolve.rc, MUSTER_OK);
    assert_int_equal(server_count, 1);
    close_resolver(resolver);
    stage_close(&stage);
}

static void a_started_coordinator_is_never_lost_for_want_of_memory(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "address", .run = run_address});
}

/* Queries of the TPU client. */

static const struct query_row {
    const char *name;
    enum muster_tpu_what what;
    bool has_api;
} query_rows[] = {
    {"name", MUSTER_TPU_RESOURCE_NAME, true},
    {"version of the node", MUSTER_TPU_RUNTIME_VERSION, true},
    {"version of a worker", MUSTER_TPU_RUNTIME_VERSION, false},
    {"version for all workers", MUSTER_TPU_CONFIGURE_VERSION, false},
    {"own address", MUSTER_TPU_LOCAL_IP, true},
};

#define QUERY_ROW_COUNT (sizeof(query_rows) / sizeof(query_rows[0]))

static const struct row versions = {
    "versions",
    "",
    "[" PLACE "," TOKEN
    "," META("instance/network-interfaces/0/ip",
             "\"10.0.0.9\"") ","
                             "{\"match\":{\"path\":\"/v1/projects/p/locations/z/nodes/"
                             "n\"},\"response\":{"
                             "\"body\":{\"state\":\"READY\",\"tensorflowVersion\":\"2.9\"}}},"
                             "{\"response\":{\"body\":{\"currentVersion\":\"2.9\"}}}]",
    false,
    MUSTER_RESOLVE_CLUSTER_SPEC,
    NULL};

struct queried {
    struct muster_tpu_query query;
    struct muster_mem *mem;
    int count;
    bool is_done;
};

static void on_query(struct muster_tpu_query *query, enum muster_rc rc)
{
    struct queried *queried = query->data;

    (void)rc;
    muster_mem_free(queried->mem, query->text);
    queried->count++;
    queried->is_done = true;
}

static bool is_closed;

static void on_client_closed(struct muster_tpu_client *client)
{
    (void)client;
    is_closed = true;
}

static enum muster_rc open_client(struct stage *stage, const struct query_row *row,
                                  struct muster_tpu_client **ret_client)
{
    struct muster_tpu_client_options options = {
        .tpu = row->has_api ? "n" : "grpc://127.0.0.1:1,127.0.0.1,127.0.0.1:3",
        .api_endpoint = fake_cloud_base(stage->f.cloud),
        .version_port =
            (uint16_t)strtoul(strrchr(fake_cloud_base(stage->f.cloud), ':') + 1, NULL, 10)};
    struct muster_error error;

    return muster_tpu_client_open(&stage->env, &options, ret_client, &error);
}

static enum muster_rc start_query(struct stage *stage, const struct query_row *row,
                                  struct muster_tpu_client *client, struct queried *queried)
{
    enum muster_rc rc;

    *queried = (struct queried){.query = {.what = row->what, .version = "2.9"}};
    queried->mem = stage->env.mem;
    queried->query.data = queried;
    queried->query.deadline_ns = cloud_fixture_in_s(&stage->f, 30);
    rc = muster_tpu_query_start(&queried->query, client, on_query);
    assert_int_equal(queried->count, 0);
    return rc;
}

static void close_client(struct stage *stage, struct muster_tpu_client *client)
{
    is_closed = false;
    muster_tpu_client_close(client, on_client_closed);
    test_env_run_until(&stage->env, test_env_is_true, &is_closed);
}

static enum muster_rc open_query_close(struct stage *stage, const struct query_row *row)
{
    struct muster_tpu_client *client = NULL;
    struct queried queried;
    enum muster_rc rc = open_client(stage, row, &client);

    if (rc != MUSTER_OK)
        return rc;
    rc = start_query(stage, row, client, &queried);
    if (rc == MUSTER_OK) {
        test_env_run_until(&stage->env, test_env_is_true, &queried.is_done);
        rc = queried.query.rc;
        assert_int_equal(queried.count, 1);
        assert_true(rc == MUSTER_OK || queried.query.error.text[0] != '\0');
    }
    close_client(stage, client);
    return rc;
}

static void run_query(struct torture *torture, const void *data)
{
    const struct query_row *row = data;
    struct stage stage;
    size_t blocks;
    enum muster_rc rc;

    stage_open(&stage, &versions);
    assert_int_equal(open_query_close(&stage, row), MUSTER_OK);
    blocks = stage.mem.block_count;
    torture_arm_limited(torture, &stage.mem);
    rc = open_query_close(&stage, row);
    torture_disarm(torture);
    if ((rc != MUSTER_OK && (rc != MUSTER_RESOURCE_EXHAUSTED || torture->refused == 0)) ||
        stage.mem.block_count > blocks)
        fail_msg("%s, %zu blocks are left, not %zu", muster_rc_name(rc), stage.mem.block_count,
                 blocks);
    stage_close(&stage);
}

static void want_of_memory_ends_a_query_of_a_tpu_and_leaves_nothing_behind(void **state)
{
    (void)state;
    TORTURE_RUN_ROWS(run_query, query_rows);
}

static bool query_given_up_after(struct stage *stage, const struct query_row *row, unsigned turns)
{
    struct muster_tpu_client *client = NULL;
    struct queried queried;
    bool was_done;

    assert_int_equal(open_client(stage, row, &client), MUSTER_OK);
    assert_int_equal(start_query(stage, row, client, &queried), MUSTER_OK);
    for (unsigned i = 0; i < turns && !queried.is_done; i++)
        muster_loop_turn(stage->env.loop, UINT64_MAX);
    was_done = queried.is_done;
    if (turns % 2 == 0)
        muster_tpu_query_cancel(&queried.query);
    close_client(stage, client);
    assert_int_equal(queried.count, 1);
    if (queried.query.rc != MUSTER_OK && (was_done || queried.query.rc != MUSTER_CANCELLED))
        fail_msg("%s, turn %u: %s", row->name, turns, muster_rc_name(queried.query.rc));
    return was_done;
}

static void a_query_of_a_tpu_can_be_given_up_at_any_turn(void **state)
{
    (void)state;

    for (size_t i = 0; i < QUERY_ROW_COUNT; i++) {
        struct stage stage;
        unsigned turns = 0;

        stage_open(&stage, &versions);
        while (!query_given_up_after(&stage, &query_rows[i], turns) && turns < TURNS_MAX)
            turns++;
        assert_true(turns > 0 && turns < TURNS_MAX);
        stage_close(&stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(want_of_memory_at_any_place_is_told_and_leaves_nothing_behind),
        cmocka_unit_test(a_question_can_be_given_up_at_any_turn),
        cmocka_unit_test(a_resolver_can_be_closed_at_any_turn_of_a_question),
        cmocka_unit_test(a_started_coordinator_is_never_lost_for_want_of_memory),
        cmocka_unit_test(want_of_memory_ends_a_query_of_a_tpu_and_leaves_nothing_behind),
        cmocka_unit_test(a_query_of_a_tpu_can_be_given_up_at_any_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
