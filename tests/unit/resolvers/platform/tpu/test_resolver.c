/* TPU workers as tasks, against a played TPU API. */
#include <muster/tpu.h>

#include "careful_mem.h"
#include "cloud_fixture.h"
#include "resolver_ask.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE(version, name) "/" version "/projects/p/locations/z/nodes/" name
#define READY                                                                                      \
    "{\"state\":\"READY\",\"networkEndpoints\":[{\"ipAddress\":\"10.0.0.1\",\"port\":8470}]}"
#define AT(path, body) "{\"match\":{\"path\":\"" path "\"},\"response\":{\"body\":" body "}}"

static struct muster_tpu_resolver_options tpu_n(const struct cloud_fixture *f)
{
    return (struct muster_tpu_resolver_options){
        .client = {.tpu = "n",
                   .project = "p",
                   .zone = "z",
                   .api_endpoint = fake_cloud_base(f->cloud),
                   .is_anonymous = true}};
}

static struct muster_resolver *open_resolver(struct cloud_fixture *f,
                                             const struct muster_tpu_resolver_options *options)
{
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};

    if (muster_tpu_resolver_open(f->env, options, &resolver, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return resolver;
}

static void a_node_is_asked_anew_each_time(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_resolver_options options;
    struct muster_resolver *resolver;

    cloud_fixture_script(f, "[{\"match\":{\"path\":\"" NODE(
                                "v1", "n") "\"},\"times\":1,"
                                           "\"response\":{\"body\":{\"state\":\"CREATING\"}}}," AT(
                                               NODE("v1", "n"), READY) "]");
    options = tpu_n(f);
    resolver = open_resolver(f, &options);

    assert_says(ask_cluster(resolver), "FAILED_PRECONDITION", "TPU n", "CREATING", NULL);
    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:8470\"]}");
    assert_string_equal(ask_master(resolver, NULL, -1), "grpc://10.0.0.1:8470");
    assert_says(ask_master(resolver, "ps", 0), "NOT_FOUND", NULL);
    muster_resolver_set_task_id(resolver, false, 0); /* the first worker then */
    assert_string_equal(ask_master(resolver, NULL, -1), "grpc://10.0.0.1:8470");

    close_resolver(resolver);
}

/* tf.contrib: v1alpha1, a state that is not told is none, but health counts. */
static void the_contrib_form_looks_at_health(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_resolver_options options;
    struct muster_resolver *resolver;

    cloud_fixture_script(
        f, "[" AT(NODE("v1alpha1", "n"), "{\"ipAddress\":\"10.0.0.1\",\"port\":\"8470\"}") "," AT(
               NODE("v1alpha1", "sick"),
               "{\"state\":\"READY\",\"health\":\"TIMEOUT\",\"ipAddress\":\"1.1.1.1\"}") "]");
    options = tpu_n(f);
    options.client.is_tf1 = true;
    resolver = open_resolver(f, &options);
    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:8470\"]}");
    close_resolver(resolver);

    options.client.tpu = "sick";
    resolver = open_resolver(f, &options);
    assert_says(ask_cluster(resolver), "FAILED_PRECONDITION", "unhealthy", "TIMEOUT", NULL);
    close_resolver(resolver);

    options.client.tpu = "localhost:1234,localhost:1235";
    resolver = open_resolver(f, &options);
    assert_string_equal(ask_cluster(resolver), "{}");
    assert_string_equal(ask_master(resolver, NULL, -1), "localhost:1234");
    close_resolver(resolver);
}

static void a_full_resource_name_needs_no_metadata(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_resolver_options options;
    struct muster_resolver *resolver;

    cloud_fixture_script(f, "[" AT(NODE("v1", "n"), READY) "]");
    options = tpu_n(f);
    options.client.tpu = "projects/p/locations/z/nodes/n";
    options.client.project = options.client.zone = NULL;
    resolver = open_resolver(f, &options);

    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:8470\"]}");

    close_resolver(resolver);
}

struct server {
    unsigned starts;
    uint16_t port;
};

static enum muster_rc start_server(void *data, uint16_t *ret_port, struct muster_error *ret_error)
{
    struct server *server = data;

    server->starts++;
    *ret_port = server->port;
    if (server->port == 0)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "no port is free");
    return MUSTER_OK;
}

static void the_coordinator_is_started_once_and_copies_share_it(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_resolver_options options;
    struct muster_resolver *resolver, *copy = NULL;
    struct server server = {.port = 0};
    struct muster_error error = {0};
    bool has_id = false;
    int64_t id = 0;

    cloud_fixture_set_var(f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(
        f,
        "[{\"match\":{\"path\":\"/computeMetadata/v1/instance/network-interfaces/0/ip\"},"
        "\"response\":{\"headers\":{\"Metadata-Flavor\":\"Google\"},\"body\":\"10.9.9.9\\n\"}}," AT(
            NODE("v1", "n"), READY) "]");
    options = tpu_n(f);
    options.coordinator_name = "coordinator";
    options.start_server = start_server;
    options.start_server_data = &server;
    resolver = open_resolver(f, &options);

    assert_says(ask_cluster(resolver), "UNAVAILABLE", "no port is free", NULL);
    server.port = 4321;
    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:8470\"],"
                                               "\"coordinator\":[\"10.9.9.9:4321\"]}");
    assert_string_equal(ask_master(resolver, "coordinator", 0), "grpc://10.9.9.9:4321");
    muster_resolver_set_task_id(resolver, true, 7);
    assert_int_equal(muster_tpu_resolver_copy(resolver, &copy, &error), MUSTER_OK);
    close_resolver(resolver);
    assert_int_equal(muster_resolver_task_id(copy, &has_id, &id, &error), MUSTER_OK);
    assert_true(has_id && id == 7);
    assert_string_equal(ask_master(copy, "coordinator", 0), "grpc://10.9.9.9:4321");
    assert_int_equal(server.starts, 2);

    close_resolver(copy);
}

static void on_master(struct muster_resolve *resolve, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    assert_string_equal(resolve->master, "grpc://10.9.9.9:4321");
    muster_mem_free(resolve->resolver->env->mem, resolve->master);
    *(bool *)resolve->data = true;
}

static void questions_side_by_side_start_one_coordinator(void **state)
{
    struct cloud_fixture *f = *state;
    struct server server = {.port = 4321};
    struct muster_tpu_resolver_options options = {.client.tpu = "grpc://a:1",
                                                  .coordinator_name = "c",
                                                  .start_server = start_server,
                                                  .start_server_data = &server};
    struct muster_resolve resolves[2];
    bool is_done[2] = {false, false};
    struct muster_resolver *resolver;

    cloud_fixture_set_var(f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(f, "[{\"response\":{\"headers\":{\"Metadata-Flavor\":\"Google\"},"
                            "\"body\":\"10.9.9.9\"}}]");
    resolver = open_resolver(f, &options);

    for (size_t i = 0; i < 2; i++) {
        resolves[i] = (struct muster_resolve){.what = MUSTER_RESOLVE_MASTER, .data = &is_done[i]};
        resolves[i].query.task_type = "c";
        resolves[i].query.has_task_id = true;
        resolves[i].deadline_ns = cloud_fixture_in_s(f, 30);
        assert_int_equal(muster_resolve_start(&resolves[i], resolver, on_master), MUSTER_OK);
    }
    for (size_t i = 0; i < 2; i++)
        test_env_run_until(f->env, test_env_is_true, &is_done[i]);

    assert_int_equal(server.starts, 1);
    close_resolver(resolver);
}

static void keep_code(struct muster_resolve *resolve, enum muster_rc rc)
{
    muster_mem_free(resolve->resolver->env->mem, resolve->master);
    *(enum muster_rc *)resolve->data = rc;
}

static bool is_answered(void *data)
{
    return *(const enum muster_rc *)data != MUSTER_INTERNAL;
}

/* A question that is cancelled between the answer about this machine and the turn that takes it. */
struct late_cancel {
    struct muster_http_tracer tracer;
    struct muster_task task;
    struct muster_env *env;
    struct muster_resolve *resolve;
};

static void on_exchange(struct muster_http_tracer *tracer,
                        const struct muster_http_exchange *exchange)
{
    struct late_cancel *late = tracer->data;

    if (strstr(exchange->url, "network-interfaces/0/ip") != NULL)
        muster_task_post(&late->task, late->env->loop);
}

static void on_late(struct muster_task *task)
{
    muster_resolve_cancel(((struct late_cancel *)task->data)->resolve);
}

static void a_question_that_is_cancelled_late_starts_no_coordinator(void **state)
{
    struct cloud_fixture *f = *state;
    struct server server = {.port = 4321};
    struct muster_tpu_resolver_options options = {.client.tpu = "grpc://a:1",
                                                  .coordinator_name = "c",
                                                  .start_server = start_server,
                                                  .start_server_data = &server};
    enum muster_rc rc = MUSTER_INTERNAL;
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_MASTER, .data = &rc};
    struct late_cancel late = {.env = f->env, .resolve = &resolve};
    struct muster_resolver *resolver;

    cloud_fixture_set_var(f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(f, "[{\"response\":{\"headers\":{\"Metadata-Flavor\":\"Google\"},"
                            "\"body\":\"10.9.9.9\"}}]");
    resolver = open_resolver(f, &options);
    late.tracer = (struct muster_http_tracer){.data = &late, .on_exchange = on_exchange};
    muster_task_init(&late.task, on_late, &late);
    f->env->http->tracer = &late.tracer;
    resolve.deadline_ns = cloud_fixture_in_s(f, 30);
    assert_int_equal(muster_resolve_start(&resolve, resolver, keep_code), MUSTER_OK);
    test_env_run_until(f->env, is_answered, &rc);
    f->env->http->tracer = NULL;

    assert_int_equal(rc, MUSTER_CANCELLED);
    assert_int_equal(server.starts, 0);
    close_resolver(resolver);
}

/* The resolver has memory of its own: the played cloud needs some, too. */
static void run_coordinator(struct torture *torture, const void *data)
{
    struct server server = {.port = 4321};
    struct muster_tpu_resolver_options options = {.client.tpu = "grpc://a:1",
                                                  .coordinator_name = "c",
                                                  .start_server = start_server,
                                                  .start_server_data = &server};
    struct muster_resolve resolve = {
        .what = MUSTER_RESOLVE_MASTER,
        .query = {.task_type = "c", .has_task_id = true},
    };
    enum muster_rc rc = MUSTER_INTERNAL; /* not answered yet */
    struct muster_resolver *resolver = NULL;
    struct muster_mem_limited mem;
    struct cloud_fixture f;
    struct muster_env env;

    (void)data;
    cloud_fixture_open(&f, NULL);
    muster_mem_limited_init(&mem, careful_mem(), 0);
    env = *f.env;
    env.mem = &mem.mem;
    cloud_fixture_set_var(&f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(&f, "[{\"response\":{\"headers\":{\"Metadata-Flavor\":\"Google\"},"
                             "\"body\":\"10.9.9.9\"}}]");
    assert_int_equal(muster_tpu_resolver_open(&env, &options, &resolver, NULL), MUSTER_OK);
    resolve.data = &rc;
    resolve.deadline_ns = cloud_fixture_in_s(&f, 30);
    torture_arm_limited(torture, &mem);
    assert_int_equal(muster_resolve_start(&resolve, resolver, keep_code), MUSTER_OK);
    test_env_run_until(f.env, is_answered, &rc);
    torture_disarm(torture);

    assert_true(rc == MUSTER_OK || (torture->refused > 0 && rc == MUSTER_RESOURCE_EXHAUSTED));
    close_resolver(resolver);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
    cloud_fixture_close(&f);
}

static void lack_of_memory_for_a_coordinator_is_told_as_such(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "coordinator", .run = run_coordinator});
}

static void keep_cluster(struct muster_resolve *resolve, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    *(bool *)resolve->data = true;
}

static void the_jobs_of_a_cluster_def_are_sorted(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_resolver_options options = {
        .client.tpu = "grpc://a:1", .coordinator_name = "c", .coordinator_address = "b:1"};
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    struct muster_resolver *resolver = open_resolver(f, &options);
    bool is_done = false;

    resolve.data = &is_done;
    resolve.deadline_ns = cloud_fixture_in_s(f, 30);
    assert_int_equal(muster_resolve_start(&resolve, resolver, keep_cluster), MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &is_done);

    assert_int_equal(resolve.cluster_spec->def_count, 2);
    assert_string_equal(resolve.cluster_spec->jobs[0]->name, "worker");
    assert_string_equal(resolve.cluster_spec->defs[0].name, "c");
    muster_cluster_spec_unref(resolve.cluster_spec);
    close_resolver(resolver);
}

static void what_fails_names_the_tpu_and_the_cause(void **state)
{
    static const struct {
        const char *response;
        const char *prefix;
        const char *word;
    } rows[] = {
        {"{\"status\":404,\"body\":{}}", "NOT_FOUND", "404"},
        {"{\"status\":403,\"body\":{\"error\":{\"message\":\"not allowed\"}}}", "PERMISSION_DENIED",
         "not allowed"},
        {"{\"body\":\"garbage\"}", "INVALID_ARGUMENT", "TPU node"},
        {"{\"body\":[]}", "INVALID_ARGUMENT", "must be an object that tells of a node"},
        {"{\"body\":{\"state\":\"READY\",\"networkEndpoints\":[{\"port\":1}]}}", "INVALID_ARGUMENT",
         "ipAddress"},
        {"{\"body\":{\"state\":\"READY\",\"ipAddress\":\"10.0.0.1/x\"}}", "INVALID_ARGUMENT",
         "ipAddress"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_resolver_options options;
        struct muster_resolver *resolver;
        struct cloud_fixture f;
        char script[512];

        cloud_fixture_open(&f, NULL);
        snprintf(script, sizeof(script), "[{\"response\":%s}]", rows[i].response);
        cloud_fixture_script(&f, script);
        options = tpu_n(&f);
        resolver = open_resolver(&f, &options);
        assert_says(ask_cluster(resolver), rows[i].prefix, rows[i].word, NULL);
        close_resolver(resolver);
        cloud_fixture_close(&f);
    }
}

/* Versions. */

static void on_query(struct muster_tpu_query *query, enum muster_rc rc)
{
    (void)rc;
    *(bool *)query->data = true;
}

static enum muster_rc ask_client(struct cloud_fixture *f, struct muster_tpu_client *client,
                                 struct muster_tpu_query *query)
{
    bool is_done = false;

    query->data = &is_done;
    query->deadline_ns = cloud_fixture_in_s(f, 30);
    assert_int_equal(muster_tpu_query_start(query, client, on_query), MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &is_done);
    return query->rc;
}

static void a_version_is_set_on_every_worker(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_query query = {.what = MUSTER_TPU_CONFIGURE_VERSION, .version = "2.9/1"};
    struct muster_tpu_resolver_options options = {0};
    struct muster_resolver *resolver;

    cloud_fixture_script(f,
                         "[{\"match\":{\"method\":\"POST\",\"path\":\"/requestversion/2.9/1\","
                         "\"query\":{\"restartType\":\"ifNeeded\"}},\"response\":{\"body\":\"\"}},"
                         "{\"response\":{\"status\":503}}]");
    options.client.tpu = "grpc://127.0.0.1:1,grpc://127.0.0.1:2,grpc://127.0.0.1:3";
    options.client.version_port =
        (uint16_t)strtoul(strrchr(fake_cloud_base(f->cloud), ':') + 1, NULL, 10);
    resolver = open_resolver(f, &options);

    query.is_restart_if_needed = true;
    assert_int_equal(ask_client(f, muster_tpu_resolver_client(resolver), &query), MUSTER_OK);
    assert_int_equal(fake_cloud_counts(f->cloud)->requests, 3);

    query.is_restart_if_needed = false;
    query.deadline_ns = 0;
    assert_int_not_equal(ask_client(f, muster_tpu_resolver_client(resolver), &query), MUSTER_OK);
    assert_non_null(strstr(query.error.text, "127.0.0.1"));

    close_resolver(resolver);
}

/* cloud_tpu_client: network_endpoints() of a node that is not READY is an error. */
static void no_version_is_set_on_a_node_that_is_not_ready(void **state)
{
    static const struct {
        const char *node;
        const char *word;
        enum muster_rc rc;
    } rows[] = {
        {"{\"state\":\"CREATING\",\"ipAddress\":\"127.0.0.1\"}", "CREATING",
         MUSTER_FAILED_PRECONDITION},
        {"{\"state\":\"READY\"}", "neither its networkEndpoints nor its ipAddress",
         MUSTER_NOT_FOUND},
        {"{\"state\":\"READY\",\"networkEndpoints\":[]}", "no worker", MUSTER_FAILED_PRECONDITION},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_query query = {.what = MUSTER_TPU_CONFIGURE_VERSION, .version = "2.9"};
        struct muster_tpu_resolver_options options;
        struct muster_resolver *resolver;
        struct cloud_fixture f;
        char script[512];

        cloud_fixture_open(&f, NULL);
        snprintf(script, sizeof(script),
                 "[{\"match\":{\"path\":\"" NODE("v1", "n") "\"},"
                                                            "\"response\":{\"body\":%s}}]",
                 rows[i].node);
        cloud_fixture_script(&f, script);
        options = tpu_n(&f);
        resolver = open_resolver(&f, &options);

        assert_int_equal(ask_client(&f, muster_tpu_resolver_client(resolver), &query), rows[i].rc);
        assert_non_null(strstr(query.error.text, rows[i].word));
        assert_non_null(strstr(query.error.text, "TPU n"));
        assert_int_equal(fake_cloud_counts(f.cloud)->requests, 1);

        close_resolver(resolver);
        cloud_fixture_close(&f);
    }
}

/* A coordinator that nobody starts and that has no address would be missing silently; one with the
 * name of the workers' job would be one of them. */
static void a_coordinator_that_cannot_be_is_refused(void **state)
{
    static const struct {
        const char *name, *address, *job, *says;
    } rows[] = {
        {"c", NULL, NULL, "coordinator 'c' has no address"},
        {"worker", "10.0.0.1:8470", NULL, "coordinator_name must differ from the job"},
        {"c", "10.0.0.1:8470", "c", "coordinator_name must differ from the job"},
        {"c", "10.0.0.1:8470", "worker", NULL},
        {"worker", "10.0.0.1:8470", "tpu", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_resolver_options options;
        struct muster_resolver *resolver = NULL;
        struct muster_error error = {0};
        struct cloud_fixture f;

        cloud_fixture_open(&f, NULL);
        options = tpu_n(&f);
        options.coordinator_name = rows[i].name;
        options.coordinator_address = rows[i].address;
        options.job_name = rows[i].job;
        assert_int_equal(muster_tpu_resolver_open(f.env, &options, &resolver, &error),
                         rows[i].says != NULL ? MUSTER_INVALID_ARGUMENT : MUSTER_OK);
        if (rows[i].says != NULL)
            assert_says(error.text, rows[i].says, rows[i].name, NULL);
        else
            close_resolver(resolver);
        cloud_fixture_close(&f);
    }
}

static void a_query_given_up_at_once_asks_nothing(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_query query = {.what = MUSTER_TPU_NODE};
    struct muster_tpu_resolver_options options;
    struct muster_resolver *resolver;
    bool is_done = false;

    cloud_fixture_script(f, "[" AT(NODE("v1", "n"), READY) "]");
    options = tpu_n(f);
    resolver = open_resolver(f, &options);
    query.data = &is_done;
    query.deadline_ns = cloud_fixture_in_s(f, 30);

    assert_int_equal(muster_tpu_query_start(&query, muster_tpu_resolver_client(resolver), on_query),
                     MUSTER_OK);
    muster_tpu_query_cancel(&query);
    test_env_run_until(f->env, test_env_is_true, &is_done);

    assert_int_equal(query.rc, MUSTER_CANCELLED);
    assert_int_equal(fake_cloud_counts(f->cloud)->requests, 0);
    close_resolver(resolver);
}

/* Waiting. */

static bool *client_data; /* the client has no data of its caller */

static void on_client_closed(struct muster_tpu_client *client)
{
    (void)client;
    *client_data = true;
}

static void on_waited(struct muster_tpu_wait *wait, enum muster_rc rc)
{
    (void)rc;
    *(bool *)wait->data = true;
}

static void hurry_wait(struct muster_tpu_wait *wait, enum muster_rc rc)
{
    (void)rc;
    muster_tpu_wait_look_now(wait);
}

/* Each round looks three times; a hurried interval counts as waited. */
static void waiting_ends_when_another_interval_would_be_too_long(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_wait wait = {.timeout_ns = 90 * MUSTER_NS_PER_S,
                                   .interval_ns = 30 * MUSTER_NS_PER_S,
                                   .on_wait = hurry_wait};
    struct muster_tpu_resolver_options options;
    struct muster_resolver *resolver;
    bool is_done = false;

    cloud_fixture_script(f, "[" AT(NODE("v1", "n"), "{\"state\":\"READY\",\"health\":\"X\"}") "]");
    options = tpu_n(f);
    resolver = open_resolver(f, &options);
    wait.data = &is_done;

    assert_int_equal(muster_tpu_wait_start(&wait, muster_tpu_resolver_client(resolver), on_waited),
                     MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &is_done);

    assert_int_equal(wait.error.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_says(wait.error.text, "TPU n", "READY", "X", NULL);
    assert_int_equal(fake_cloud_counts(f->cloud)->requests, 4 * 3);
    close_resolver(resolver);
}

static void a_wait_looks_again_after_its_interval_until_a_look_fails(void **state)
{
    static const struct {
        const char *last; /* what the API says after three looks */
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {AT(NODE("v1", "n"), "{\"state\":\"READY\",\"health\":\"HEALTHY\"}"), MUSTER_OK, ""},
        {"{\"response\":{\"status\":403,\"body\":{\"error\":{\"message\":\"not yours\"}}}}",
         MUSTER_PERMISSION_DENIED, "not yours"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_wait wait = {.interval_ns = MUSTER_NS_PER_MS};
        struct muster_tpu_resolver_options options;
        struct muster_resolver *resolver;
        struct cloud_fixture f;
        bool is_done = false;
        char script[512];

        cloud_fixture_open(&f, NULL);
        snprintf(script, sizeof(script),
                 "[{\"match\":{\"path\":\"%s\"},\"times\":3,\"response\":{\"body\":{\"state\":"
                 "\"READY\",\"health\":\"X\"}}},%s]",
                 NODE("v1", "n"), rows[i].last);
        cloud_fixture_script(&f, script);
        options = tpu_n(&f);
        resolver = open_resolver(&f, &options);
        wait.data = &is_done;
        assert_int_equal(
            muster_tpu_wait_start(&wait, muster_tpu_resolver_client(resolver), on_waited),
            MUSTER_OK);
        test_env_run_until(f.env, test_env_is_true, &is_done);

        assert_int_equal(wait.error.rc, rows[i].rc);
        assert_non_null(strstr(wait.error.text, rows[i].text));
        assert_int_equal(fake_cloud_counts(f.cloud)->requests, 4);
        close_resolver(resolver);
        cloud_fixture_close(&f);
    }
}

static void a_closing_client_ends_those_who_wait(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_resolver_options options;
    struct muster_resolver *resolver;
    struct muster_tpu_wait wait = {.interval_ns = 600 * MUSTER_NS_PER_S};
    bool is_done = false;

    cloud_fixture_script(f, "[" AT(NODE("v1", "n"), "{\"state\":\"READY\",\"health\":\"TIMEOUT\","
                                                    "\"networkEndpoints\":[]}") "]");
    options = tpu_n(f);
    resolver = open_resolver(f, &options);
    wait.data = &is_done;

    assert_int_equal(muster_tpu_wait_start(&wait, muster_tpu_resolver_client(resolver), on_waited),
                     MUSTER_OK);
    assert_says(ask_cluster(resolver), "{", NULL);
    close_resolver(resolver);

    assert_true(is_done);
    assert_int_equal(wait.error.rc, MUSTER_CANCELLED);
}

/* It closes in a later turn: its memory is there until then. */
static void a_client_that_closes_takes_no_more_questions(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_resolver_options options = tpu_n(f);
    struct muster_tpu_query query = {.what = MUSTER_TPU_NODE};
    struct muster_tpu_wait wait = {.data = NULL};
    struct muster_tpu_client *client = NULL;
    bool is_closed = false;

    assert_int_equal(muster_tpu_client_open(f->env, &options.client, &client, NULL), MUSTER_OK);
    client_data = &is_closed;
    muster_tpu_client_close(client, on_client_closed);
    query.deadline_ns = cloud_fixture_in_s(f, 30);

    assert_int_equal(muster_tpu_query_start(&query, client, on_query), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_tpu_wait_start(&wait, client, on_waited), MUSTER_FAILED_PRECONDITION);
    test_env_run_until(f->env, test_env_is_true, &is_closed);
}

static void nobody_waits_where_no_api_tells_health(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_tpu_resolver_options options = {.client = {.tpu = "grpc://10.0.0.1"}};
    struct muster_resolver *resolver;
    struct muster_tpu_wait wait = {0};

    resolver = open_resolver(f, &options);

    assert_int_equal(muster_tpu_wait_start(&wait, muster_tpu_resolver_client(resolver), on_waited),
                     MUSTER_FAILED_PRECONDITION);
    assert_says(wait.error.text, "TPU grpc://10.0.0.1", NULL);

    close_resolver(resolver);
}

static void a_uri_and_the_environment_name_the_tpu(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};
    char uri[512];

    cloud_fixture_script(f, "[" AT(NODE("v2", "n"), READY) "]");
    snprintf(uri, sizeof(uri),
             "tpu:tpu=n&project=p&zone=z&api_version=v2&anonymous=1&job_name=tw&api_endpoint=%s",
             fake_cloud_base(f->cloud));

    assert_int_equal(muster_resolver_open(f->env, uri, NULL, &resolver, &error), MUSTER_OK);
    assert_string_equal(ask_cluster(resolver), "{\"tw\":[\"10.0.0.1:8470\"]}");
    close_resolver(resolver);

    cloud_fixture_set_var(f, "TPU_NAME", "grpc://10.0.0.7");
    cloud_fixture_set_var(f, "KUBERNETES_SERVICE_HOST", "10.0.0.1");
    assert_int_equal(muster_resolver_open(f->env, "auto:", NULL, &resolver, &error), MUSTER_OK);
    assert_string_equal(ask_master(resolver, NULL, -1), "grpc://10.0.0.7:8470");
    assert_says(muster_resolver_reason(resolver), "auto: TPU_NAME is set", NULL);
    close_resolver(resolver);
}

#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, cloud_fixture_set_up, cloud_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_node_is_asked_anew_each_time),
        CASE(the_contrib_form_looks_at_health),
        CASE(a_full_resource_name_needs_no_metadata),
        CASE(the_coordinator_is_started_once_and_copies_share_it),
        CASE(a_question_that_is_cancelled_late_starts_no_coordinator),
        CASE(questions_side_by_side_start_one_coordinator),
        cmocka_unit_test(lack_of_memory_for_a_coordinator_is_told_as_such),
        CASE(the_jobs_of_a_cluster_def_are_sorted),
        cmocka_unit_test(what_fails_names_the_tpu_and_the_cause),
        CASE(a_version_is_set_on_every_worker),
        CASE(a_query_given_up_at_once_asks_nothing),
        CASE(waiting_ends_when_another_interval_would_be_too_long),
        cmocka_unit_test(no_version_is_set_on_a_node_that_is_not_ready),
        cmocka_unit_test(a_coordinator_that_cannot_be_is_refused),
        cmocka_unit_test(a_wait_looks_again_after_its_interval_until_a_look_fails),
        CASE(a_closing_client_ends_those_who_wait),
        CASE(a_client_that_closes_takes_no_more_questions),
        CASE(nobody_waits_where_no_api_tells_health),
        CASE(a_uri_and_the_environment_name_the_tpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
