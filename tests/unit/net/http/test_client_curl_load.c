/* Many requests at once: few connections over HTTP/2, a bound over HTTP/1.1, and no request held up by another. */
#include "cloud_fixture.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MANY 300
#define HANG "[{\"match\": {\"path\": \"/hang\"}, \"response\": {\"hang\": true}}]"

struct asker {
    struct muster_http_request request;
    enum muster_rc rc;
    bool is_done;
};

static struct asker askers[MANY];
static size_t left;

static void on_done(struct muster_http_request *request, enum muster_rc rc)
{
    struct asker *asker = request->data;

    asker->rc = rc;
    asker->is_done = true;
    left--;
}

static bool is_over(void *data)
{
    (void)data;
    return left == 0;
}

static void asker_start(struct cloud_fixture *fixture, struct asker *asker, const char *path)
{
    static char urls[MANY][64];
    char *url = urls[asker - askers];

    snprintf(url, sizeof(urls[0]), "%s", cloud_fixture_url(fixture, path));
    asker->is_done = false;
    muster_http_request_init(&asker->request, asker);
    asker->request.url = url;
    asker->request.tls = &fixture->tls;
    asker->request.deadline_ns = cloud_fixture_in_s(fixture, 50);
    assert_int_equal(muster_http_start(&asker->request, fixture->env->http, on_done), MUSTER_OK);
    left++;
}

static void run_many(struct cloud_fixture *fixture, const struct fake_cloud_options *options)
{
    cloud_fixture_open(fixture, options);
    fake_cloud_say(fixture->cloud, "GET", "/", 200, "yes");
    left = 0;
    for (size_t i = 0; i < MANY; i++)
        asker_start(fixture, &askers[i], "/");
    test_env_run_until(fixture->env, is_over, NULL);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(askers[i].rc, MUSTER_OK);
        assert_string_equal(askers[i].request.answer, "yes");
        muster_http_request_fini(&askers[i].request);
    }
}

static void http2_carries_many_requests_on_few_connections(void **state)
{
    const struct fake_cloud_options options = {.is_tls = true, .crowd = 50, .streams_max = 50};
    struct cloud_fixture fixture;

    (void)state;
    run_many(&fixture, &options);
    assert_in_range(fake_cloud_counts(fixture.cloud)->connections, 1, 10);
    assert_in_range(fake_cloud_counts(fixture.cloud)->answers_open_peak, 50, 500);
    cloud_fixture_close(&fixture);
}

static void http1_stays_below_its_bound_of_connections(void **state)
{
    const struct fake_cloud_options options = {.crowd = 192};
    struct cloud_fixture fixture;

    (void)state;
    run_many(&fixture, &options);
    assert_in_range(fake_cloud_counts(fixture.cloud)->connections_peak, 192, 192);
    cloud_fixture_close(&fixture);
}

static bool has_more_connections_than_over_http2(void *data)
{
    return fake_cloud_counts(data)->connections_peak > 10;
}

static void a_server_of_http1_over_tls_gets_many_connections_once_it_is_known(void **state)
{
    const struct fake_cloud_options options = {.is_tls = true, .is_http1_only = true};
    struct cloud_fixture fixture;

    (void)state;
    cloud_fixture_open(&fixture, &options);
    cloud_fixture_script(&fixture, HANG);
    fake_cloud_say(fixture.cloud, "GET", "/", 200, "yes");
    left = 0;
    for (size_t i = 0; i < 30; i++)
        asker_start(&fixture, &askers[i], i == 0 ? "/" : "/hang");
    test_env_run_until(fixture.env, has_more_connections_than_over_http2, fixture.cloud);

    for (size_t i = 0; i < 30; i++)
        muster_http_cancel(&askers[i].request);
    test_env_run_until(fixture.env, is_over, NULL);
    for (size_t i = 0; i < 30; i++)
        muster_http_request_fini(&askers[i].request);
    cloud_fixture_close(&fixture);
}

/* The first request to a server finds out how it speaks; the others wait for that, but not for ever. */
static void an_answer_that_never_comes_does_not_hold_up_other_requests(void **state)
{
    const struct fake_cloud_options options = {.is_tls = true};
    struct cloud_fixture fixture;

    (void)state;
    cloud_fixture_open(&fixture, &options);
    cloud_fixture_script(&fixture, HANG);
    fake_cloud_say(fixture.cloud, "GET", "/", 200, "yes");
    left = 0;
    asker_start(&fixture, &askers[0], "/hang");
    asker_start(&fixture, &askers[1], "/");
    asker_start(&fixture, &askers[2], "/");
    test_env_run_until(fixture.env, test_env_is_true, &askers[1].is_done);
    test_env_run_until(fixture.env, test_env_is_true, &askers[2].is_done);

    assert_false(askers[0].is_done);
    assert_string_equal(askers[1].request.answer, "yes");
    muster_http_cancel(&askers[0].request);
    test_env_run_until(fixture.env, is_over, NULL);
    for (size_t i = 0; i < 3; i++)
        muster_http_request_fini(&askers[i].request);
    cloud_fixture_close(&fixture);
}

static void requests_that_wait_for_the_first_end_with_it_when_it_is_cancelled_or_they_are(
    void **state)
{
    const struct fake_cloud_options options = {.is_tls = true};
    struct cloud_fixture fixture;

    (void)state;
    cloud_fixture_open(&fixture, &options);
    fake_cloud_say(fixture.cloud, "GET", "/", 200, "yes");
    left = 0;
    for (size_t i = 0; i < 4; i++)
        asker_start(&fixture, &askers[i], "/");
    test_env_turn(fixture.env, 1);
    muster_http_cancel(&askers[0].request); /* the one that finds out */
    muster_http_cancel(&askers[2].request); /* one that waits */
    test_env_run_until(fixture.env, is_over, NULL);

    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(askers[i].rc, i % 2 == 0 ? MUSTER_CANCELLED : MUSTER_OK);
        muster_http_request_fini(&askers[i].request);
    }
    cloud_fixture_close(&fixture);
}

/* Ends that are not the cloud's: it may accept those of several turns at once. */
static bool is_client_end(int fd, unsigned long cloud_port)
{
    struct sockaddr_in name;
    socklen_t length = sizeof(name);

    return getsockname(fd, (struct sockaddr *)&name, &length) == 0 && name.sin_family == AF_INET &&
           ntohs(name.sin_port) != cloud_port;
}

static size_t count_client_ends(const struct cloud_fixture *fixture)
{
    const char *port = strchr(fake_cloud_hostport(fixture->cloud), ':');
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    size_t count = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.' &&
                 is_client_end(atoi(entry->d_name), strtoul(port + 1, NULL, 10));
    closedir(folder);
    return count;
}

/* 192 handshakes in one turn would hold up everything else on the loop, the first answers included. */
static void connections_are_begun_a_few_at_a_time(void **state)
{
    const struct fake_cloud_options options = {.latency_ns = 5 * MUSTER_NS_PER_MS};
    struct cloud_fixture fixture;
    size_t before, most = 0;

    (void)state;
    cloud_fixture_open(&fixture, &options);
    fake_cloud_say(fixture.cloud, "GET", "/", 200, "yes");
    left = 0;
    for (size_t i = 0; i < MANY; i++)
        asker_start(&fixture, &askers[i], "/");

    before = count_client_ends(&fixture);
    while (left > 0) {
        size_t now;

        test_env_turn(fixture.env, 1);
        now = count_client_ends(&fixture);
        most = now > before && now - before > most ? now - before : most;
        before = now;
    }
    assert_in_range(most, 1, 24); /* new ones in a turn of the loop, which may run the client's task twice */

    for (size_t i = 0; i < MANY; i++)
        muster_http_request_fini(&askers[i].request);
    cloud_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(http2_carries_many_requests_on_few_connections),
        cmocka_unit_test(http1_stays_below_its_bound_of_connections),
        cmocka_unit_test(connections_are_begun_a_few_at_a_time),
        cmocka_unit_test(a_server_of_http1_over_tls_gets_many_connections_once_it_is_known),
        cmocka_unit_test(an_answer_that_never_comes_does_not_hold_up_other_requests),
        cmocka_unit_test(
            requests_that_wait_for_the_first_end_with_it_when_it_is_cancelled_or_they_are),
    };

    return cmocka_run_group_tests_name("http client load", tests, NULL, NULL);
}
