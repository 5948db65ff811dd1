/* Watches that let the platform say "as before", and questions outside of them, which read anew. */
#include <muster/platforms.h>
#include <muster/resolver.h>
#include <muster/tpu.h>

#include "cloud_fixture.h"
#include "resolver_ask.h"

#include <stdio.h>
#include <string.h>

#define AS_BEFORE(path, tag)                                                                       \
    "{\"match\":{\"path\":\"" path "\",\"headers\":{\"if-none-match\":\"" tag                      \
    "\"}},\"response\":{\"status\":304}}"
#define TAGGED(path, tag, body)                                                                    \
    "{\"match\":{\"path\":\"" path "\"},\"response\":{\"headers\":{\"ETag\":\"" tag                \
    "\"},\"body\":" body "}}"
#define NODE "/v1/projects/p/locations/z/nodes/n"
#define READY(ip)                                                                                  \
    "{\"state\":\"READY\",\"networkEndpoints\":[{\"ipAddress\":\"" ip "\",\"port\":8470}]}"
#define ZONE "/compute/v1/projects/p/zones/z"

struct watched {
    struct muster_resolver_watch watch;
    unsigned told;
    char first[64]; /* the address of worker 0 */
    bool is_closed;
};

static void on_change(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec,
                      const struct muster_cluster_diff *diff)
{
    struct watched *watched = watch->data;
    const char *address = NULL;

    (void)diff;
    assert_int_equal(muster_cluster_spec_task_address(spec, "worker", 0, &address, NULL),
                     MUSTER_OK);
    snprintf(watched->first, sizeof(watched->first), "%s", address);
    watched->told++;
}

static void on_watch_closed(struct muster_resolver_watch *watch)
{
    ((struct watched *)watch->data)->is_closed = true;
}

static void watch_open(struct watched *watched, struct muster_resolver *resolver)
{
    *watched = (struct watched){.watch = {.data = watched,
                                          .on_change = on_change,
                                          .interval_ns = MUSTER_NS_PER_MS,
                                          .settle_ns = MUSTER_NS_PER_MS}};
    assert_int_equal(muster_resolver_watch_open(&watched->watch, resolver), MUSTER_OK);
}

static void watch_close(struct watched *watched, struct muster_env *env)
{
    muster_resolver_watch_close(&watched->watch, on_watch_closed);
    test_env_run_until(env, test_env_is_true, &watched->is_closed);
}

static struct cloud_fixture *fixture_of_run; /* for the conditions below */
static size_t wanted;

static bool has_requests(void *data)
{
    (void)data;
    return fake_cloud_counts(fixture_of_run->cloud)->requests >= wanted;
}

static void wait_for_requests(struct cloud_fixture *f, size_t count)
{
    fixture_of_run = f;
    wanted = count;
    test_env_run_until(f->env, has_requests, NULL);
}

static bool is_told_twice(void *data)
{
    return ((struct watched *)data)->told == 2;
}

static const char *asked_about(struct cloud_fixture *f, size_t index)
{
    return fake_cloud_request_header(fake_cloud_request(f->cloud, index), "if-none-match");
}

static struct muster_resolver *tpu_opened(struct cloud_fixture *f)
{
    const struct muster_tpu_resolver_options options = {
        .client = {.tpu = "n",
                   .project = "p",
                   .zone = "z",
                   .api_endpoint = fake_cloud_base(f->cloud),
                   .is_anonymous = true}};
    struct muster_resolver *resolver = NULL;

    assert_int_equal(muster_tpu_resolver_open(f->env, &options, &resolver, NULL), MUSTER_OK);
    return resolver;
}

static void a_tpu_that_is_as_before_tells_nothing_until_it_changes(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver;
    struct watched watched;

    cloud_fixture_script(f, "[" AS_BEFORE(NODE, "1") "," TAGGED(NODE, "1", READY("10.0.0.1")) "]");
    resolver = tpu_opened(f);

    watch_open(&watched, resolver);
    wait_for_requests(f, 4);
    assert_int_equal(watched.told, 1);
    assert_int_equal(watched.watch.error.rc, MUSTER_OK);
    assert_null(asked_about(f, 0));
    for (size_t i = 1; i < 4; i++)
        assert_string_equal(asked_about(f, i), "1");

    fake_cloud_forget_script(f->cloud);
    cloud_fixture_script(f, "[" AS_BEFORE(NODE, "2") "," TAGGED(NODE, "2", READY("10.0.0.2")) "]");
    test_env_run_until(f->env, is_told_twice, &watched);
    assert_string_equal(watched.first, "10.0.0.2:8470");

    watch_close(&watched, f->env);
    close_resolver(resolver);
}

static void a_question_beside_a_watch_reads_anew(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver;
    struct watched watched;
    size_t before;

    cloud_fixture_script(f, "[" TAGGED(NODE, "1", READY("10.0.0.1")) "]");
    resolver = tpu_opened(f);
    watch_open(&watched, resolver);
    wait_for_requests(f, 3);
    watch_close(&watched, f->env);
    before = fake_cloud_counts(f->cloud)->requests;

    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:8470\"]}");
    assert_string_equal(ask_master(resolver, NULL, -1), "grpc://10.0.0.1:8470");
    assert_null(asked_about(f, before));
    assert_null(asked_about(f, before + 1));

    close_resolver(resolver);
}

static void instances_of_a_group_that_are_as_before_are_not_sent_again(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_gce_resolver_options options = {
        .project = "p", .zone = "z", .instance_group = "g", .port = 80, .is_anonymous = true};
    struct muster_resolver *resolver = NULL;
    struct watched watched;

    cloud_fixture_script(
        f, "[{\"match\":{\"method\":\"POST\"},\"response\":{\"body\":{\"items\":[{\"instance\":"
           "\"https://x/a\"}]}}}," AS_BEFORE(ZONE "/instances/a", "7") "," TAGGED(
               ZONE "/instances/a", "7",
               "{\"name\":\"a\",\"networkInterfaces\":[{\"networkIP\":\"10.0.0.1\"}]}") "]");
    options.api_endpoint = fake_cloud_base(f->cloud);
    assert_int_equal(muster_gce_resolver_open(f->env, &options, &resolver, NULL), MUSTER_OK);

    watch_open(&watched, resolver);
    wait_for_requests(f, 6); /* a list and an instance each time */
    assert_int_equal(watched.told, 1);
    assert_string_equal(watched.first, "10.0.0.1:80");
    assert_null(asked_about(f, 1));
    assert_string_equal(asked_about(f, 3), "7");
    assert_string_equal(asked_about(f, 5), "7");

    watch_close(&watched, f->env);
    close_resolver(resolver);
}

#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, cloud_fixture_set_up, cloud_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_tpu_that_is_as_before_tells_nothing_until_it_changes),
        CASE(a_question_beside_a_watch_reads_anew),
        CASE(instances_of_a_group_that_are_as_before_are_not_sent_again),
    };

    return cmocka_run_group_tests_name("conditional watch", tests, NULL, NULL);
}
