/* A resolver that is watched until the first view, on a node that the case plays: what the node is told, and until
 * when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assertion_count.h"
#include "cloud_fixture.h"
#include "played_node.h"

static char path[64];

/* Replaced whole, so that no half of it is read. */
static void write_cluster(const char *text)
{
    assert_int_equal(muster_files_write(muster_files_system(), path, text, strlen(text)),
                     MUSTER_OK);
}

static struct muster_strategy *open_watching(const char *cluster)
{
    struct muster_strategy *strategy;
    char uri[128];
    int fd;

    snprintf(path, sizeof(path), "/tmp/muster-expectation-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_cluster(cluster);
    snprintf(uri, sizeof(uri), "file:%s?task_type=worker&task_id=0", path);
    played_open();
    setenv("MUSTER_RESOLVER", uri, 1);
    strategy = played_strategy();
    unsetenv("MUSTER_RESOLVER");
    return strategy;
}

static void close_all(struct muster_strategy *strategy)
{
    muster_strategy_close(strategy);
    unlink(path);
    played_close();
}

/* Now, as if its interval were over: the platform has told of a change. */
static void look_again(struct muster_strategy *strategy)
{
    played_enter();
    muster_resolver_changed(strategy->expectation.resolver);
    played_leave();
}

static const char *awaited;

static bool has_told_node(void *data)
{
    (void)data;
    return strstr(played.journal, awaited) != NULL;
}

static void wait_for(struct muster_strategy *strategy, const char *text)
{
    awaited = text;
    assert_int_equal(muster_runtime_wait(strategy->runtime, has_told_node, NULL, UINT64_MAX),
                     MUSTER_OK);
}

#define ONE "{\"worker\": [\"127.0.0.1:0\"]}"
#define TWO "{\"worker\": [\"127.0.0.1:0\", \"127.0.0.2:0\"]}"
#define THREE                                                                                      \
    "{\"chief\": [\"127.0.0.3:0\"], \"ps\": [\"h:1\"], \"worker\": [\"127.0.0.1:0\", "             \
    "\"127.0.0.2:0\"]}"

static void the_node_is_told_of_changes_until_the_first_view(void **state)
{
    struct muster_strategy *strategy = open_watching(TWO);

    (void)state;
    assert_non_null(strstr(played.journal, "open worker:0 of 2 in default at "));
    wait_for(strategy, "expect 2\n");
    played.journal[0] = '\0';
    write_cluster(THREE);
    look_again(strategy);
    wait_for(strategy, "expect 3\n");
    played_enter();
    played_view(1, 7, 0, 0, 0, NULL);
    played_leave();
    assert_false(strategy->expectation.is_watching); /* the registry alone says who is there now */
    played.journal[0] = '\0';
    write_cluster(ONE);
    look_again(strategy);
    assert_null(strstr(played.journal, "expect"));
    close_all(strategy);
}

/* Nobody who trains is no number of tasks. */
static void a_cluster_without_workers_is_not_told(void **state)
{
    struct muster_strategy *strategy = open_watching(TWO);

    (void)state;
    wait_for(strategy, "expect 2\n");
    played.journal[0] = '\0';
    strategy->expectation.watch.settle_ns = 1;
    write_cluster("{\"ps\": [\"h:1\"]}");
    played_enter();
    muster_resolver_changed(strategy->expectation.resolver);
    while (strategy->expectation.watch.spec == NULL ||
           muster_cluster_spec_job(strategy->expectation.watch.spec, "ps") == NULL)
        muster_loop_turn(strategy->env->loop, MUSTER_NS_PER_MS);
    played_leave();
    assert_string_equal(played.journal, "");
    close_all(strategy);
}

static void what_is_watched_is_closed_with_the_strategy(void **state)
{
    struct muster_strategy *strategy = open_watching(TWO);

    (void)state;
    assert_true(strategy->expectation.is_watching);
    assert_non_null(strategy->env->http);
    muster_strategy_abandon(strategy, "no disk");
    assert_false(strategy->expectation.is_watching);
    assert_null(strategy->expectation.resolver);
    assert_null(strategy->env->http);
    close_all(strategy);
    strategy = open_watching(TWO);
    assert_true(strategy->expectation.is_watching);
    close_all(strategy); /* and nothing is left of it */
}

/* It has said where this process is, and cannot be opened again. */
static void what_cannot_be_watched_is_not(void **state)
{
    struct muster_expectation expectation = {.env = NULL};
    struct test_env test;

    (void)state;
    test_env_open(&test);
    muster_expectation_close(&expectation); /* all zero */
    muster_expectation_open(&expectation, &test.env, "nonsense:", NULL);
    assert_null(expectation.resolver);
    assert_false(expectation.is_watching);
    muster_expectation_stop(&expectation);
    muster_expectation_close(&expectation);
    assert_null(test.env.http);
    test_env_close(&test);
}

static void a_client_that_is_there_is_used_and_stays(void **state)
{
    struct muster_expectation expectation = {.env = NULL};
    struct muster_http client = {.ops = NULL};
    struct test_env test;

    (void)state;
    test_env_open(&test);
    test.env.http = &client;
    muster_expectation_open(&expectation, &test.env, "nonsense:", NULL);
    assert_false(expectation.has_http);
    muster_expectation_close(&expectation);
    assert_ptr_equal(test.env.http, &client);
    test.env.http = NULL;
    test_env_close(&test);
}

/* The platform has not answered yet. */
static void a_question_under_way_is_given_up_at_the_close(void **state)
{
    struct muster_expectation expectation = {.env = NULL};
    struct cloud_fixture fixture;
    struct muster_http *client;
    char uri[256];

    (void)state;
    cloud_fixture_open(&fixture, NULL);
    cloud_fixture_script(&fixture, "[{\"response\": {\"hang\": true}}]");
    client = fixture.env->http;
    fixture.env->http = NULL; /* the expectation opens one of its own */
    snprintf(uri, sizeof(uri),
             "gce:instance_group=g&port=8470&project=p&zone=z&anonymous=true&api_endpoint=%s",
             fake_cloud_base(fixture.cloud));
    muster_expectation_open(&expectation, fixture.env, uri, NULL);
    assert_true(expectation.is_watching && expectation.has_http);
    while (fake_cloud_counts(fixture.cloud)->requests == 0)
        muster_loop_turn(fixture.env->loop, MUSTER_NS_PER_MS);
    muster_expectation_close(&expectation);

    assert_false(expectation.is_watching);
    assert_null(expectation.resolver);
    assert_null(fixture.env->http);
    fixture.env->http = client;
    cloud_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_node_is_told_of_changes_until_the_first_view),
        cmocka_unit_test(a_cluster_without_workers_is_not_told),
        cmocka_unit_test(what_is_watched_is_closed_with_the_strategy),
        cmocka_unit_test(what_cannot_be_watched_is_not),
        cmocka_unit_test(a_client_that_is_there_is_used_and_stays),
        cmocka_unit_test(a_question_under_way_is_given_up_at_the_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
