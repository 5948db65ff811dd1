/* TPU VMs as tasks: variables, and a played metadata server. */
#include <muster/tpu.h>

#include <muster/resolver.h>

#include "cloud_fixture.h"
#include "resolver_ask.h"

#include <stdio.h>
#include <string.h>

#define ATTRIBUTE(name, body) ATTRIBUTE_TIMES(name, body, "")
#define ATTRIBUTE_TIMES(name, body, times)                                                         \
    "{\"match\":{\"path\":\"/computeMetadata/v1/instance/attributes/" name                         \
    "\"},\"response\":{\"headers\":{\"Metadata-Flavor\":\"Google\"},\"body\":\"" body "\"}" times  \
    "}"
#define NO_ATTRIBUTE                                                                               \
    "{\"match\":{\"method\":\"GET\"},\"response\":{\"status\":404,\"headers\":{\"Metadata-"        \
    "Flavor\":\"Google\"},\"body\":\"\"}}"
#define ENDPOINTS "worker-network-endpoints"

static void open_with_server(struct cloud_fixture *f, const char *script)
{
    cloud_fixture_open(f, NULL);
    cloud_fixture_set_var(f, "GCE_METADATA_HOST", "{{hostport}}");
    if (script != NULL)
        cloud_fixture_script(f, script);
}

static struct muster_resolver *open_resolver(struct cloud_fixture *f, const char *uri)
{
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};

    if (muster_resolver_open(f->env, uri, NULL, &resolver, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return resolver;
}

/* "worker 3/4", "-" for what is not known, or the error. */
static const char *resolver_place(struct muster_resolver *resolver)
{
    static char text[512];
    struct muster_error error = {0};
    bool has_id = false, has_size = false;
    uint32_t size = 0;
    int64_t id = 0;
    char *type = NULL, id_text[24] = "-", size_text[24] = "-";

    if (muster_resolver_task_id(resolver, &has_id, &id, &error) != MUSTER_OK ||
        muster_resolver_world_size(resolver, &has_size, &size, &error) != MUSTER_OK) {
        snprintf(text, sizeof(text), "%s: %s", muster_rc_name(error.rc), error.text);
        return text;
    }
    assert_int_equal(muster_resolver_task_type(resolver, &type, &error), MUSTER_OK);
    if (has_id)
        snprintf(id_text, sizeof(id_text), "%lld", (long long)id);
    if (has_size)
        snprintf(size_text, sizeof(size_text), "%u", size);
    snprintf(text, sizeof(text), "%s %s/%s", type, id_text, size_text);
    muster_mem_free(resolver->env->mem, type);
    return text;
}

static void variables_tell_the_slice_and_nobody_is_asked(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, NULL);
    cloud_fixture_set_var(&f, "TPU_WORKER_HOSTNAMES", "t-0.svc,t-1.svc");
    cloud_fixture_set_var(&f, "TPU_WORKER_ID", "1");
    resolver = open_resolver(&f, "tpu_vm:port=2222");

    assert_string_equal(resolver_place(resolver), "worker 1/2");
    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"t-0.svc:2222\",\"t-1.svc:2222\"]}");
    assert_string_equal(ask_master(resolver, NULL, -1), "grpc://t-0.svc:2222");
    assert_string_equal(ask_master(resolver, "worker", 1), "grpc://t-1.svc:2222");
    assert_says(ask_master(resolver, "worker", 2), "NOT_FOUND", "task 2", NULL);
    assert_string_equal(muster_resolver_environment(resolver), "");
    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_CLUSTER_SPEC),
                        "TPU_WORKER_HOSTNAMES");
    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_TASK_ID), "TPU_WORKER_ID");
    assert_int_equal(fake_cloud_counts(f.cloud)->requests, 0);

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void processes_come_before_hosts(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, NULL);
    cloud_fixture_set_var(&f, "TPU_WORKER_HOSTNAMES", "a");
    cloud_fixture_set_var(&f, "TPU_PROCESS_ADDRESSES", "a:8476,a:8477");
    cloud_fixture_set_var(&f, "TPU_WORKER_ID", "1");
    resolver = open_resolver(&f, "tpu_vm:");

    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"a:8470\",\"a:8471\"]}");
    assert_string_equal(resolver_place(resolver), "worker 1/2");

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void of_several_slices_the_coordinator_is_the_master(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, NULL);
    cloud_fixture_set_var(&f, "TPU_WORKER_HOSTNAMES", "b-0,b-1");
    cloud_fixture_set_var(&f, "TPU_WORKER_ID", "1");
    cloud_fixture_set_var(&f, "MEGASCALE_NUM_SLICES", "2");
    cloud_fixture_set_var(&f, "MEGASCALE_SLICE_ID", "1");
    cloud_fixture_set_var(&f, "MEGASCALE_COORDINATOR_ADDRESS", "a-0.svc:8080");
    resolver = open_resolver(&f, "tpu_vm:rpc_layer=");

    assert_string_equal(resolver_place(resolver), "worker 3/4");
    assert_string_equal(ask_cluster(resolver),
                        "{\"worker\":{\"2\":\"b-0:8470\",\"3\":\"b-1:8470\"}}");
    assert_string_equal(ask_master(resolver, NULL, -1), "a-0.svc:8482");
    assert_string_equal(ask_master(resolver, "worker", 3), "b-1:8470");
    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_MASTER),
                        "MEGASCALE_COORDINATOR_ADDRESS");

    cloud_fixture_set_var(&f, "MEGASCALE_COORDINATOR_ADDRESS", NULL);
    assert_says(ask_master(resolver, NULL, -1), "FAILED_PRECONDITION",
                "MEGASCALE_COORDINATOR_ADDRESS", NULL);
    cloud_fixture_set_var(&f, "MEGASCALE_SLICE_ID", "0");
    assert_string_equal(ask_master(resolver, NULL, -1), "b-0:8482");

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void the_metadata_server_tells_what_variables_do_not(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(
        &f, "[" ATTRIBUTE(ENDPOINTS, "unknown:unknown:10.0.0.7,u:u:10.0.0.8") "," ATTRIBUTE(
                "agent-worker-number", "1\\n") "," NO_ATTRIBUTE "]");
    resolver = open_resolver(&f, "tpu_vm:");
    assert_string_equal(resolver_place(resolver), "worker -/-");

    assert_string_equal(ask_cluster(resolver),
                        "{\"worker\":[\"10.0.0.7:8470\",\"10.0.0.8:8470\"]}");

    assert_string_equal(resolver_place(resolver), "worker 1/2");
    assert_string_equal(ask_master(resolver, NULL, -1), "grpc://10.0.0.7:8470");
    assert_says(muster_resolver_source(resolver, MUSTER_FACT_CLUSTER_SPEC), ENDPOINTS, NULL);
    assert_string_equal(
        fake_cloud_request_header(fake_cloud_request(f.cloud, 0), "metadata-flavor"), "Google");
    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void tpu_env_tells_slices_and_worker(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f,
                     "[" ATTRIBUTE(ENDPOINTS, "h-0,h-1") "," ATTRIBUTE(
                         "tpu-env",
                         "ACCELERATOR_TYPE: 'v4-16'\\nWORKER_ID: '0'\\nMEGASCALE_NUM_SLICES: '3'\\n"
                         "MEGASCALE_SLICE_ID: '2'\\nMEGASCALE_COORDINATOR_ADDRESS: "
                         "'10.1.1.1:8080'\\n") "," NO_ATTRIBUTE "]");
    resolver = open_resolver(&f, "tpu_vm:coordinator_port=99");

    assert_string_equal(ask_cluster(resolver),
                        "{\"worker\":{\"4\":\"h-0:8470\",\"5\":\"h-1:8470\"}}");
    assert_string_equal(resolver_place(resolver), "worker 4/6");
    assert_string_equal(ask_master(resolver, NULL, -1), "grpc://10.1.1.1:99");

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void a_variable_wins_over_the_metadata_server(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, "[" ATTRIBUTE(ENDPOINTS, "h-0,h-1,h-2") "," ATTRIBUTE(
                             "agent-worker-number", "0") "," NO_ATTRIBUTE "]");
    cloud_fixture_set_var(&f, "TPU_WORKER_ID", "2");
    resolver = open_resolver(&f, "tpu_vm:");

    assert_says(ask_cluster(resolver), "{\"worker\":[\"h-0", NULL);
    assert_string_equal(resolver_place(resolver), "worker 2/3");
    assert_string_equal(muster_resolver_source(resolver, MUSTER_FACT_TASK_ID), "TPU_WORKER_ID");

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void the_server_is_asked_anew_each_time(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, "[" ATTRIBUTE_TIMES(ENDPOINTS, "h-0,h-1", ",\"times\":1") "," ATTRIBUTE(
                             ENDPOINTS, "h-0,h-2") "," NO_ATTRIBUTE "]");
    resolver = open_resolver(&f, "tpu_vm:");

    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"h-0:8470\",\"h-1:8470\"]}");
    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"h-0:8470\",\"h-2:8470\"]}");

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void skip_forbids_the_metadata_server(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, "[" ATTRIBUTE(ENDPOINTS, "h-0") "," NO_ATTRIBUTE "]");
    cloud_fixture_set_var(&f, "TPU_SKIP_MDS_QUERY", "true");
    cloud_fixture_set_var(&f, "TPU_WORKER_ID", "3");
    resolver = open_resolver(&f, "tpu_vm:");

    assert_says(ask_cluster(resolver), "FAILED_PRECONDITION", "TPU_WORKER_HOSTNAMES",
                "TPU_SKIP_MDS_QUERY", NULL);
    assert_string_equal(resolver_place(resolver), "worker 3/-");
    assert_int_equal(fake_cloud_counts(f.cloud)->requests, 0);

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void a_machine_without_a_tpu_is_told_apart(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, "[" NO_ATTRIBUTE "]");
    resolver = open_resolver(&f, "tpu_vm:");

    assert_says(ask_cluster(resolver), "NOT_FOUND", "TPU VM", "TPU_WORKER_HOSTNAMES", NULL);
    assert_says(ask_accelerators(resolver), "NOT_FOUND", NULL);

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void malformed_answers_name_their_source(void **state)
{
    static const struct {
        const char *endpoints, *number, *word;
    } rows[] = {
        {"a:b", "0", "worker-network-endpoints"},
        {"a,b", "7", "agent-worker-number"},
        {"a,b", "x", "agent-worker-number"},
        {" ", "0", "worker-network-endpoints"},
    };
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    char script[2048];
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(script, sizeof(script),
                 "[" ATTRIBUTE(ENDPOINTS, "%s") "," ATTRIBUTE("agent-worker-number",
                                                              "%s") "," NO_ATTRIBUTE "]",
                 rows[i].endpoints, rows[i].number);
        open_with_server(&f, script);
        resolver = open_resolver(&f, "tpu_vm:");

        assert_says(ask_cluster(resolver), "INVALID_ARGUMENT", rows[i].word, NULL);
        assert_string_equal(resolver_place(resolver), "worker -/-");

        close_resolver(resolver);
        cloud_fixture_close(&f);
    }
}

static void malformed_variables_are_told_at_once(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, NULL);
    cloud_fixture_set_var(&f, "TPU_WORKER_HOSTNAMES", "a,b");
    cloud_fixture_set_var(&f, "TPU_WORKER_ID", "two");
    resolver = open_resolver(&f, "tpu_vm:");

    assert_says(resolver_place(resolver), "INVALID_ARGUMENT",
                "TPU_WORKER_ID must be a whole number", NULL);
    assert_says(ask_cluster(resolver), "INVALID_ARGUMENT", "TPU_WORKER_ID must be a whole number",
                NULL);

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void list_devices(void *data, const char *const **ret_names, size_t *ret_count)
{
    static const char *const names[] = {
        "/job:worker/replica:0/task:0/device:TPU:0", "/job:worker/replica:0/task:1/device:TPU:0",
        "/job:worker/replica:0/task:1/device:TPU:1", "/job:worker/replica:0/task:1/device:CPU:0"};

    (void)data;
    *ret_names = names;
    *ret_count = sizeof(names) / sizeof(names[0]);
}

static void accelerators_are_those_of_the_own_task(void **state)
{
    struct muster_tpu_vm_resolver_options options = {.common = {.list_devices = list_devices}};
    struct muster_resolver *resolver = NULL;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, "[" ATTRIBUTE(ENDPOINTS, "h-0,h-1") "," ATTRIBUTE(
                             "agent-worker-number", "1") "," NO_ATTRIBUTE "]");
    assert_int_equal(muster_tpu_vm_resolver_open(f.env, &options, &resolver, NULL), MUSTER_OK);

    assert_string_equal(ask_accelerators(resolver), "{\"TPU\":2}");

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void ignore_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    (void)resolve;
    (void)rc;
}

static void closing_ends_a_question(void **state)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, "[{\"match\":{\"method\":\"GET\"},\"response\":{\"hang\":true}}]");
    resolver = open_resolver(&f, "tpu_vm:");
    resolve.deadline_ns = cloud_fixture_in_s(&f, 30);
    assert_int_equal(muster_resolve_start(&resolve, resolver, ignore_answer), MUSTER_OK);

    close_resolver(resolver);

    assert_int_equal(resolve.rc, MUSTER_CANCELLED);
    cloud_fixture_close(&f);
}

/* Watching. */

#define TAGGED(seen, etag)                                                                         \
    "{\"match\":{\"query\":{\"last_etag\":\"" seen "\"}},\"response\":{\"headers\":{\"Metadata-"   \
    "Flavor\":\"Google\",\"ETag\":\"" etag "\"},\"body\":\"\"}}"
#define HANGING(seen)                                                                              \
    "{\"match\":{\"query\":{\"last_etag\":\"" seen "\"}},\"response\":{\"hang\":true}}"
#define ANSWER(hosts) ATTRIBUTE(ENDPOINTS, hosts) "," NO_ATTRIBUTE

struct watcher {
    struct muster_resolver_watch watch;
    struct cloud_fixture *f;
    unsigned told;
    size_t task_count;
    size_t awaited; /* tasks */
    bool is_closed;
};

static void on_cluster(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec,
                       const struct muster_cluster_diff *diff)
{
    struct watcher *watcher = watch->data;

    (void)diff;
    watcher->told++;
    watcher->task_count = spec->jobs[0]->task_count;
}

static bool has_told(void *data)
{
    const struct watcher *watcher = data;

    return watcher->task_count == watcher->awaited;
}

static bool has_asked_twice(void *data)
{
    const struct watcher *watcher = data;
    size_t questions = 0;

    for (size_t i = 0; i < fake_cloud_counts(watcher->f->cloud)->requests; i++)
        questions += strstr(fake_cloud_request(watcher->f->cloud, i)->target, "tpu-env") != NULL;
    return questions >= 2 && !watcher->watch.is_asking;
}

static bool is_hanging(void *data)
{
    const struct cloud_fixture *f = data;

    for (size_t i = 0; i < fake_cloud_counts(f->cloud)->requests; i++)
        if (strstr(fake_cloud_request(f->cloud, i)->target, "last_etag=a") != NULL)
            return true;
    return false;
}

static void on_watch_closed(struct muster_resolver_watch *watch)
{
    ((struct watcher *)watch->data)->is_closed = true;
}

static void a_watch_hears_of_new_workers(void **state)
{
    struct muster_resolver *resolver;
    struct watcher watcher = {.awaited = 1};
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, "[" TAGGED("0", "a") "," TAGGED("a", "a") "," ANSWER("h-0") "]");
    resolver = open_resolver(&f, "tpu_vm:");
    watcher.f = &f;
    watcher.watch = (struct muster_resolver_watch){
        .data = &watcher, .on_change = on_cluster, .settle_ns = MUSTER_NS_PER_MS};
    assert_int_equal(muster_resolver_watch_open(&watcher.watch, resolver), MUSTER_OK);
    test_env_run_until(f.env, has_told, &watcher);
    test_env_run_until(f.env, has_asked_twice, &watcher);

    fake_cloud_forget_script(f.cloud);
    cloud_fixture_script(&f, "[" TAGGED("a", "b") "," TAGGED("b", "b") "," ANSWER("h-0,h-1") "]");
    watcher.awaited = 2;
    test_env_run_until(f.env, has_told, &watcher);

    assert_int_equal(watcher.told, 2);
    muster_resolver_watch_close(&watcher.watch, on_watch_closed);
    test_env_run_until(f.env, test_env_is_true, &watcher.is_closed);
    close_resolver(resolver);
    cloud_fixture_close(&f);
}

/* The end of a request may come later than the resolver's. */
static void a_resolver_that_closes_waits_for_its_last_request(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, "[" TAGGED("0", "a") "," HANGING("a") "]");
    resolver = open_resolver(&f, "tpu_vm:");
    resolver->ops->watched(resolver, true);
    test_env_run_until(f.env, is_hanging, &f);

    close_resolver(resolver);

    cloud_fixture_close(&f);
}

static void variables_are_not_watched(void **state)
{
    struct muster_resolver *resolver;
    struct watcher watcher = {.awaited = 1};
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, NULL);
    cloud_fixture_set_var(&f, "TPU_WORKER_HOSTNAMES", "a");
    resolver = open_resolver(&f, "tpu_vm:");
    watcher.watch = (struct muster_resolver_watch){.data = &watcher, .on_change = on_cluster};
    assert_int_equal(muster_resolver_watch_open(&watcher.watch, resolver), MUSTER_OK);

    test_env_run_until(f.env, has_told, &watcher);
    test_env_turn(f.env, 20);

    assert_int_equal(fake_cloud_counts(f.cloud)->requests, 0);
    muster_resolver_watch_close(&watcher.watch, on_watch_closed);
    test_env_run_until(f.env, test_env_is_true, &watcher.is_closed);
    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void auto_finds_the_mark(void **state)
{
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    open_with_server(&f, NULL);
    cloud_fixture_set_var(&f, "KUBERNETES_SERVICE_HOST", "10.0.0.1");
    cloud_fixture_set_var(&f, "TPU_WORKER_HOSTNAMES", "a,b");
    resolver = open_resolver(&f, "auto:");

    assert_string_equal(muster_resolver_name(resolver), "tpu_vm");
    assert_string_equal(muster_resolver_reason(resolver),
                        "auto: TPU_WORKER_HOSTNAMES is set (also found: kubernetes)");
    close_resolver(resolver);

    cloud_fixture_set_var(&f, "TPU_WORKER_HOSTNAMES", "");
    cloud_fixture_set_var(&f, "KUBERNETES_SERVICE_HOST", NULL);
    assert_int_equal(muster_resolver_open(f.env, "auto:", NULL, &resolver, NULL), MUSTER_NOT_FOUND);

    cloud_fixture_set_var(&f, "TPU_WORKER_HOSTNAMES", "a,b");
    cloud_fixture_set_var(&f, "TPU_NAME", "grpc://10.0.0.1");
    resolver = open_resolver(&f, "auto:");
    assert_string_equal(muster_resolver_name(resolver), "tpu");
    close_resolver(resolver);
    cloud_fixture_close(&f);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_tell_the_slice_and_nobody_is_asked),
        cmocka_unit_test(processes_come_before_hosts),
        cmocka_unit_test(of_several_slices_the_coordinator_is_the_master),
        cmocka_unit_test(the_metadata_server_tells_what_variables_do_not),
        cmocka_unit_test(tpu_env_tells_slices_and_worker),
        cmocka_unit_test(a_variable_wins_over_the_metadata_server),
        cmocka_unit_test(the_server_is_asked_anew_each_time),
        cmocka_unit_test(skip_forbids_the_metadata_server),
        cmocka_unit_test(a_machine_without_a_tpu_is_told_apart),
        cmocka_unit_test(malformed_answers_name_their_source),
        cmocka_unit_test(malformed_variables_are_told_at_once),
        cmocka_unit_test(accelerators_are_those_of_the_own_task),
        cmocka_unit_test(closing_ends_a_question),
        cmocka_unit_test(a_watch_hears_of_new_workers),
        cmocka_unit_test(a_resolver_that_closes_waits_for_its_last_request),
        cmocka_unit_test(variables_are_not_watched),
        cmocka_unit_test(auto_finds_the_mark),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
