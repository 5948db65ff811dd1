/* Instances of a group as tasks, against a played Compute Engine API. */
#include <muster/platforms.h>

#include "cloud_fixture.h"
#include "resolver_ask.h"

#include <stdio.h>
#include <string.h>

#define ZONE    "/compute/v1/projects/p/zones/z"
#define LIST    ZONE "/instanceGroups/g/listInstances"
#define ITEM(n) "{\"instance\":\"https://x/" n "\"}"
#define PAGE(items, more)                                                                          \
    "{\"match\":{\"method\":\"POST\",\"path\":\"" LIST                                             \
    "\"},\"response\":{\"body\":{\"items\":[" items "]" more "}}}"
#define INSTANCE(n, ip)                                                                            \
    "{\"match\":{\"path\":\"" ZONE "/instances/" n "\"},\"response\":{\"body\":{\"name\":\"" n     \
    "\",\"networkInterfaces\":[{\"networkIP\":\"" ip "\"},{\"networkIP\":\"1.1.1.1\"}]}}}"

static struct muster_gce_resolver_options group_g(const struct cloud_fixture *f)
{
    return (struct muster_gce_resolver_options){.project = "p",
                                                .zone = "z",
                                                .instance_group = "g",
                                                .port = 80,
                                                .api_endpoint = fake_cloud_base(f->cloud),
                                                .is_anonymous = true};
}

static struct muster_resolver *open_resolver(struct cloud_fixture *f,
                                             struct muster_gce_resolver_options options)
{
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};

    if (muster_gce_resolver_open(f->env, &options, &resolver, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return resolver;
}

static void instances_of_all_pages_are_sorted_by_address(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver;

    cloud_fixture_script(
        f,
        "[{\"match\":{\"path\":\"" LIST "\",\"query\":{\"pageToken\":\"t/1\"}},\"response\":"
        "{\"body\":{\"items\":[" ITEM("c") "]}}}," PAGE(
            ITEM("a") "," ITEM("b"),
            ",\"nextPageTo"
            "ken\":\"t/"
            "1\"") "," INSTANCE("a",
                                "10.0.0.10") "," INSTANCE("b",
                                                          "fd00::1") "," INSTANCE("c",
                                                                                  "10.0.0.2") "]");
    resolver = open_resolver(f, group_g(f));

    assert_string_equal(ask_cluster(resolver),
                        "{\"worker\":[\"10.0.0.10:80\",\"10.0.0.2:80\",\"[fd00::1]:80\"]}");
    assert_string_equal(ask_master(resolver, NULL, -1), "grpc://10.0.0.10:80");
    assert_string_equal(fake_cloud_request(f->cloud, 0)->body, "{\"instanceState\":\"RUNNING\"}");

    close_resolver(resolver);
}

/* More instances than are asked for at a time. */
static void a_large_group_is_looked_up_side_by_side(void **state)
{
    static char script[64 * 1024];
    struct fake_cloud_options slow = {.latency_ns = 2 * MUSTER_NS_PER_MS};
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    size_t length;
    (void)state;
    cloud_fixture_open(&f, &slow);
    length = (size_t)snprintf(script, sizeof(script),
                              "[{\"match\":{\"path\":\"" LIST "\"},\"response\":{\"body\":{"
                              "\"items\":[");
    for (int i = 0; i < 200; i++)
        length += (size_t)snprintf(script + length, sizeof(script) - length,
                                   "%s{\"instance\":\"i/%03d\"}", i > 0 ? "," : "", i);
    length += (size_t)snprintf(script + length, sizeof(script) - length,
                               "]}}},{\"response\":{\"body\":{\"networkInterfaces\":["
                               "{\"networkIP\":\"10.0.0.1\"}]}}}]");
    cloud_fixture_script(&f, script);
    resolver = open_resolver(&f, group_g(&f));

    assert_says(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:80\"", NULL);
    assert_int_equal(fake_cloud_counts(f.cloud)->requests, 201);
    assert_true(fake_cloud_counts(f.cloud)->answers_open_peak > 8);
    assert_true(fake_cloud_counts(f.cloud)->answers_open_peak <= 32);

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void project_and_zone_come_from_the_metadata_server(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_gce_resolver_options options;
    struct muster_resolver *resolver;

    cloud_fixture_set_var(f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(
        f, "[{\"match\":{\"path\":\"/computeMetadata/v1/project/project-id\"},\"response\":"
           "{\"headers\":{\"Metadata-Flavor\":\"Google\"},\"body\":\"p\"}},"
           "{\"match\":{\"path\":\"/computeMetadata/v1/instance/zone\"},\"response\":"
           "{\"headers\":{\"Metadata-Flavor\":\"Google\"},\"body\":\"projects/9/zones/z\\r\\n\"}}," PAGE(
               ITEM("a"), "") "," INSTANCE("a", "10.0.0.1") "]");
    options = group_g(f);
    options.project = options.zone = NULL;
    resolver = open_resolver(f, options);

    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:80\"]}");
    close_resolver(resolver);

    options.project = options.zone = ""; /* as if not given */
    resolver = open_resolver(f, options);
    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:80\"]}");
    close_resolver(resolver);

    cloud_fixture_set_var(f, "GCE_METADATA_HOST", "127.0.0.1:1");
    resolver = open_resolver(f, options);
    assert_says(ask_cluster(resolver), "UNAVAILABLE", "127.0.0.1:1", NULL);
    close_resolver(resolver);
}

static void the_token_of_the_metadata_server_is_sent_and_renewed_after_a_401(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_gce_resolver_options options;
    struct muster_resolver *resolver;

    cloud_fixture_set_var(f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(
        f, "[{\"match\":{\"path\":\"/computeMetadata/v1/instance/service-accounts/default/token\"},"
           "\"times\":1,\"response\":{\"headers\":{\"Metadata-Flavor\":\"Google\"},\"body\":"
           "{\"access_token\":\"old\",\"expires_in\":3600,\"token_type\":\"Bearer\"}}},"
           "{\"match\":{\"path\":\"/computeMetadata/v1/instance/service-accounts/default/token\"},"
           "\"response\":{\"headers\":{\"Metadata-Flavor\":\"Google\"},\"body\":"
           "{\"access_token\":\"new\",\"expires_in\":3600,\"token_type\":\"Bearer\"}}},"
           "{\"match\":{\"headers\":{\"Authorization\":\"Bearer new\"},\"path\":\"" LIST
           "\"},\"response\":{\"body\":{}}},{\"response\":{\"status\":401,\"body\":{}}}]");
    options = group_g(f);
    options.is_anonymous = false;
    resolver = open_resolver(f, options);

    assert_string_equal(ask_cluster(resolver), "{\"worker\":{}}");

    close_resolver(resolver);
}

static void one_instance_that_fails_ends_the_question(void **state)
{
    static const struct {
        const char *script;
        const char *prefix;
        const char *word;
    } rows[] = {
        {"[" PAGE(ITEM("a") "," ITEM("b"), "") "," INSTANCE("a", "10.0.0.1") "]", "NOT_FOUND",
         "instances/b"},
        {"[" PAGE(ITEM("a"), "") ",{\"response\":{\"body\":{\"name\":\"a\"}}}]", "INVALID_ARGUMENT",
         "networkIP"},
        {"[" PAGE(ITEM("a"), "") "," INSTANCE("a", "10.0.0.1/x") "]", "INVALID_ARGUMENT",
         "networkIP"},
        {"[{\"response\":{\"status\":403,\"body\":{\"error\":{\"message\":\"no right\"}}}}]",
         "PERMISSION_DENIED", "no right"},
        {"[{\"response\":{\"body\":\"{\\\"items\\\"\"}}]", "INVALID_ARGUMENT", "instances"},
        {"[" PAGE("", ",\"nextPageToken\":\"again\"") "]", "RESOURCE_EXHAUSTED", "without end"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_resolver *resolver;
        struct cloud_fixture f;

        cloud_fixture_open(&f, NULL);
        cloud_fixture_script(&f, rows[i].script);
        resolver = open_resolver(&f, group_g(&f));
        assert_says(ask_cluster(resolver), rows[i].prefix, rows[i].word, NULL);
        close_resolver(resolver);
        cloud_fixture_close(&f);
    }
}

static void what_is_missing_at_open_is_named(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};
    char uri[256];

    assert_int_equal(muster_resolver_open(f->env, "gce:port=1", NULL, &resolver, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_says(error.text, "", "instance group", NULL);
    assert_int_equal(muster_resolver_open(f->env, "gce:instance_group=g", NULL, &resolver, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_says(error.text, "", "port", NULL);
    cloud_fixture_set_var(f, "GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json");
    assert_int_equal(
        muster_resolver_open(f->env, "gce:instance_group=g&port=1", NULL, &resolver, &error),
        MUSTER_NOT_FOUND);
    assert_says(error.text, "", "/nonexistent/key.json", NULL);

    cloud_fixture_script(f, "[{\"response\":{\"body\":{}}}]");
    snprintf(uri, sizeof(uri),
             "gce:instance_group=g&port=1&project=p&zone=z&anonymous=true&task_type=ps"
             "&api_endpoint=%s/",
             fake_cloud_base(f->cloud));
    assert_int_equal(muster_resolver_open(f->env, uri, NULL, &resolver, &error), MUSTER_OK);
    assert_string_equal(ask_cluster(resolver), "{\"ps\":{}}");
    assert_int_equal(muster_resolver_set_task_type(resolver, "worker"), MUSTER_FAILED_PRECONDITION);
    close_resolver(resolver);
}

static void a_process_of_no_task_has_no_number(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_gce_resolver_options options = group_g(f);
    struct muster_resolver *resolver;
    bool is_set = true;
    int64_t id = -1;

    options.has_no_task_id = true;
    resolver = open_resolver(f, options);
    assert_int_equal(muster_resolver_task_id(resolver, &is_set, &id, NULL), MUSTER_OK);
    assert_false(is_set);
    assert_int_equal(id, 0);
    close_resolver(resolver);
}

/* 32 of them come at a time. */
static void an_instance_of_more_than_a_mebibyte_is_refused(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver;

    cloud_fixture_script(f, "[" PAGE(ITEM("a"), "") ",{\"response\":{\"body\":\" \","
                                                    "\"repeat_bytes\":1048577}}]");
    resolver = open_resolver(f, group_g(f));

    assert_says(ask_cluster(resolver), "RESOURCE_EXHAUSTED", "instances/a", "1048576", NULL);

    close_resolver(resolver);
}

/* The list is a POST, but one that may be asked for again. */
static void a_list_that_is_not_there_for_a_moment_is_asked_for_again(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver;

    cloud_fixture_script(f,
                         "[{\"match\":{\"path\":\"" LIST "\"},\"times\":1,\"response\":{\"status\":"
                         "503}}," PAGE(ITEM("a"), "") "," INSTANCE("a", "10.0.0.1") "]");
    resolver = open_resolver(f, group_g(f));

    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:80\"]}");

    close_resolver(resolver);
}

static void take_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    (void)rc;
    *(bool *)resolve->data = true;
}

static void a_late_answer_names_the_request(void **state)
{
    static const char *const scripts[] = {
        "[{\"response\":{\"hang\":true}}]",
        "[" PAGE(ITEM("a"), "") ",{\"response\":{\"chunks\":[{\"body\":\"{\"}],\"hold\":true}}]",
    };
    static const char *const words[][2] = {{"listInstances", "no answer before the deadline"},
                                           {"instances/a", "did not end before the deadline"}};
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        bool is_done = false;
        struct muster_resolve resolve = {.data = &is_done, .what = MUSTER_RESOLVE_CLUSTER_SPEC};
        struct muster_resolver *resolver;
        struct cloud_fixture f;

        cloud_fixture_open(&f, NULL);
        cloud_fixture_script(&f, scripts[i]);
        resolver = open_resolver(&f, group_g(&f));
        resolve.deadline_ns = muster_loop_after_ns(f.env->loop, 100 * MUSTER_NS_PER_MS);
        assert_int_equal(muster_resolve_start(&resolve, resolver, take_answer), MUSTER_OK);
        test_env_run_until(f.env, test_env_is_true, &is_done);

        assert_int_equal(resolve.rc, MUSTER_DEADLINE_EXCEEDED);
        assert_says(resolve.error.text, "", words[i][0], words[i][1], NULL);
        close_resolver(resolver);
        cloud_fixture_close(&f);
    }
}

static void ignore_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    (void)resolve;
    (void)rc;
}

static void a_question_can_be_given_up_before_its_first_request(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    struct muster_resolver *resolver;

    cloud_fixture_script(f, "[{\"response\":{\"hang\":true}}]");
    resolver = open_resolver(f, group_g(f));
    resolve.deadline_ns = muster_loop_after_ns(f->env->loop, 30 * MUSTER_NS_PER_S);

    assert_int_equal(muster_resolve_start(&resolve, resolver, ignore_answer), MUSTER_OK);
    close_resolver(resolver);

    assert_int_equal(resolve.rc, MUSTER_CANCELLED);
    assert_int_equal(fake_cloud_counts(f->cloud)->requests, 0);
}

/* Nobody waits for what can change nothing any more: the deadline is far off. */
static void a_failure_gives_up_the_other_look_ups(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    struct muster_resolver *resolver;
    bool is_done = false;

    cloud_fixture_script(
        f, "[" PAGE(ITEM("a") "," ITEM("b"), "") ",{\"match\":{\"path\":\"" ZONE
                                                 "/instances/a\"},\"response\":{\"hang\":true}},"
                                                 "{\"response\":{\"status\":403,\"body\":{}}}]");
    resolver = open_resolver(f, group_g(f));
    resolve.data = &is_done;
    resolve.deadline_ns = cloud_fixture_in_s(f, 3600);

    assert_int_equal(muster_resolve_start(&resolve, resolver, take_answer), MUSTER_OK);
    test_env_run_until(f->env, test_env_is_true, &is_done);

    assert_int_equal(resolve.rc, MUSTER_PERMISSION_DENIED);
    close_resolver(resolver);
}

static bool has_asked(void *data)
{
    return fake_cloud_counts(((struct cloud_fixture *)data)->cloud)->requests > 0;
}

static void a_silent_metadata_server_is_given_up_with_the_question(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    struct muster_gce_resolver_options options;
    struct muster_resolver *resolver;
    bool is_done = false;

    cloud_fixture_set_var(f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(f, "[{\"response\":{\"hang\":true}}]");
    options = group_g(f);
    options.zone = NULL;
    resolver = open_resolver(f, options);
    resolve.data = &is_done;
    resolve.deadline_ns = cloud_fixture_in_s(f, 3600);

    assert_int_equal(muster_resolve_start(&resolve, resolver, take_answer), MUSTER_OK);
    test_env_run_until(f->env, has_asked, f);
    close_resolver(resolver);

    assert_int_equal(resolve.rc, MUSTER_CANCELLED);
    assert_int_equal(fake_cloud_counts(f->cloud)->requests, 1);
}

#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, cloud_fixture_set_up, cloud_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(instances_of_all_pages_are_sorted_by_address),
        cmocka_unit_test(a_large_group_is_looked_up_side_by_side),
        CASE(project_and_zone_come_from_the_metadata_server),
        CASE(the_token_of_the_metadata_server_is_sent_and_renewed_after_a_401),
        cmocka_unit_test(one_instance_that_fails_ends_the_question),
        CASE(an_instance_of_more_than_a_mebibyte_is_refused),
        cmocka_unit_test(a_late_answer_names_the_request),
        CASE(what_is_missing_at_open_is_named),
        CASE(a_process_of_no_task_has_no_number),
        CASE(a_question_can_be_given_up_before_its_first_request),
        CASE(a_list_that_is_not_there_for_a_moment_is_asked_for_again),
        CASE(a_failure_gives_up_the_other_look_ups),
        CASE(a_silent_metadata_server_is_given_up_with_the_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
