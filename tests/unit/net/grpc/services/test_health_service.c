/* The health service: Check, List, Watch and the end of the server. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>

#include "proto/health.muster.h"

typedef Grpc__Health__V1__HealthCheckRequest Request;
typedef Grpc__Health__V1__HealthCheckResponse Response;
typedef Grpc__Health__V1__HealthListResponse List;

struct scene {
    struct rpc_fixture fixture;
    struct muster_rpc_health *health;
};

struct seen {
    char statuses[64]; /* a digit each */
    size_t listed;
    bool is_done;
    enum muster_rc rc;
};

static int set_up(void **state)
{
    struct scene *scene = rpc_scene_open(state, sizeof(*scene), NULL, NULL);

    assert_int_equal(muster_rpc_health_open(scene->fixture.server, &scene->health), MUSTER_OK);
    return 0;
}

static void add_status(struct seen *seen, const Response *response)
{
    size_t length = strlen(seen->statuses);

    assert_true(length + 1 < sizeof(seen->statuses));
    seen->statuses[length] = (char)('0' + response->status);
}

static void on_checked(struct grpc_health_v1_health_check_call *call, enum muster_rc rc,
                       const Response *response)
{
    struct seen *seen = call->data;

    if (response != NULL)
        add_status(seen, response);
    seen->rc = rc;
    seen->is_done = true;
}

static struct seen health_check(struct scene *scene, char *service)
{
    struct seen seen = {.rc = MUSTER_UNKNOWN};
    struct grpc_health_v1_health_check_call call = {.data = &seen};
    const struct muster_call_options options = {.deadline_ns = UINT64_MAX};
    Request request;

    grpc__health__v1__health_check_request__init(&request);
    request.service = service;
    assert_int_equal(grpc_health_v1_health_check_start(&call, scene->fixture.channel, &options,
                                                       &request, on_checked),
                     MUSTER_OK);
    test_env_run_until(scene->fixture.env, test_env_is_true, &seen.is_done);
    return seen;
}

static void on_listed(struct grpc_health_v1_health_list_call *call, enum muster_rc rc,
                      const List *response)
{
    struct seen *seen = call->data;

    for (size_t i = 0; response != NULL && i < response->n_statuses && i < 8; i++)
        add_status(seen, response->statuses[i]->value);
    seen->listed = response == NULL ? 0 : response->n_statuses;
    seen->rc = rc;
    seen->is_done = true;
}

static struct seen health_list(struct scene *scene)
{
    struct seen seen = {.rc = MUSTER_UNKNOWN};
    struct grpc_health_v1_health_list_call call = {.data = &seen};
    const struct muster_call_options options = {.deadline_ns = UINT64_MAX};
    Grpc__Health__V1__HealthListRequest request;

    grpc__health__v1__health_list_request__init(&request);
    assert_int_equal(grpc_health_v1_health_list_start(&call, scene->fixture.channel, &options,
                                                      &request, on_listed),
                     MUSTER_OK);
    test_env_run_until(scene->fixture.env, test_env_is_true, &seen.is_done);
    return seen;
}

static void on_status(struct grpc_health_v1_health_watch_call *call, const Response *message)
{
    add_status(call->data, message);
}

static void on_watched(struct grpc_health_v1_health_watch_call *call, enum muster_rc rc)
{
    struct seen *seen = call->data;

    seen->rc = rc;
    seen->is_done = true;
}

static void health_watch(struct scene *scene, struct grpc_health_v1_health_watch_call *call,
                         char *service)
{
    const struct muster_call_options options = {.deadline_ns = UINT64_MAX};
    Request request;

    grpc__health__v1__health_check_request__init(&request);
    request.service = service;
    assert_int_equal(grpc_health_v1_health_watch_start(call, scene->fixture.channel, &options,
                                                       &request, on_status, on_watched),
                     MUSTER_OK);
}

struct wait {
    const struct seen *seen;
    size_t count;
};

static bool has_statuses(void *data)
{
    const struct wait *wait = data;

    return wait->seen->is_done || strlen(wait->seen->statuses) >= wait->count;
}

static void wait_statuses(struct scene *scene, const struct seen *seen, size_t count)
{
    struct wait wait = {.seen = seen, .count = count};

    test_env_run_until(scene->fixture.env, has_statuses, &wait);
}

static char whole[] = "", store[] = "shop.Store";

static void set_status(struct scene *scene, const char *service, enum muster_health_status status)
{
    assert_int_equal(muster_rpc_health_set(scene->health, service, status), MUSTER_OK);
}

static void check_tells_what_was_set_last(void **state)
{
    struct scene *scene = *state;

    assert_int_equal(health_check(scene, whole).rc, MUSTER_OK); /* it serves at first */
    assert_string_equal(health_check(scene, whole).statuses, "1");
    assert_int_equal(health_check(scene, store).rc, MUSTER_NOT_FOUND); /* its name is unknown */
    set_status(scene, store, MUSTER_HEALTH_NOT_SERVING);
    assert_string_equal(health_check(scene, store).statuses, "2");
    set_status(scene, store, MUSTER_HEALTH_SERVING);
    assert_string_equal(health_check(scene, store).statuses, "1");
    set_status(scene, store, MUSTER_HEALTH_SERVICE_UNKNOWN);
    assert_int_equal(health_check(scene, store).rc, MUSTER_NOT_FOUND);
}

static void list_has_all_up_to_a_hundred(void **state)
{
    struct scene *scene = *state;
    char name[32];
    struct seen seen;

    for (int i = 1; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "s%d", i);
        set_status(scene, name, MUSTER_HEALTH_NOT_SERVING);
    }
    seen = health_list(scene);
    assert_int_equal(seen.rc, MUSTER_OK);
    assert_int_equal(seen.listed, 100);
    assert_string_equal(seen.statuses, "12222222");

    set_status(scene, "more", MUSTER_HEALTH_SERVING);
    assert_int_equal(health_list(scene).rc, MUSTER_RESOURCE_EXHAUSTED);
}

static void watch_tells_each_change_once(void **state)
{
    struct scene *scene = *state;
    struct seen seen = {.rc = MUSTER_OK};
    struct grpc_health_v1_health_watch_call call = {.data = &seen};

    health_watch(scene, &call, store);
    wait_statuses(scene, &seen, 1);
    set_status(scene, "shop.Other", MUSTER_HEALTH_SERVING);
    for (int i = 0; i < 2; i++)
        set_status(scene, store, MUSTER_HEALTH_SERVING);
    wait_statuses(scene, &seen, 2);
    set_status(scene, store, MUSTER_HEALTH_NOT_SERVING);
    wait_statuses(scene, &seen, 3);

    assert_string_equal(seen.statuses, "312"); /* unknown at first, and it stays open */
    muster_call_cancel(&call.stub.call);
    test_env_run_until(scene->fixture.env, test_env_is_true, &seen.is_done);
}

static void a_shut_down_is_told_and_final(void **state)
{
    struct scene *scene = *state;
    struct seen seen = {.rc = MUSTER_OK};
    struct grpc_health_v1_health_watch_call call = {.data = &seen};

    health_watch(scene, &call, whole);
    wait_statuses(scene, &seen, 1);
    muster_rpc_health_shut_down(scene->health);
    set_status(scene, "", MUSTER_HEALTH_SERVING);
    wait_statuses(scene, &seen, 2);

    assert_string_equal(seen.statuses, "12");
    assert_string_equal(health_check(scene, whole).statuses, "2");
    muster_call_cancel(&call.stub.call);
    test_env_run_until(scene->fixture.env, test_env_is_true, &seen.is_done);
}

static void a_closing_server_tells_its_watchers_and_lets_them_go(void **state)
{
    struct scene *scene = *state;
    struct seen seen = {.rc = MUSTER_OK};
    struct grpc_health_v1_health_watch_call call = {.data = &seen};

    health_watch(scene, &call, whole);
    wait_statuses(scene, &seen, 1);
    rpc_fixture_stop_serving(&scene->fixture, 3600 * MUSTER_NS_PER_S);
    test_env_run_until(scene->fixture.env, test_env_is_true, &seen.is_done);

    assert_string_equal(seen.statuses, "12");
    assert_int_equal(seen.rc, MUSTER_UNAVAILABLE);
    rpc_fixture_serve(&scene->fixture, NULL);
}

static void watches_are_bounded(void **state)
{
    static struct grpc_health_v1_health_watch_call calls[1001];
    const struct muster_rpc_server_options options = {.concurrent_streams_max = 2000};
    struct scene scene = {.health = NULL};
    struct seen *seen = calloc(1001, sizeof(*seen));

    (void)state;
    rpc_fixture_open(&scene.fixture, &options, NULL);
    assert_int_equal(muster_rpc_health_open(scene.fixture.server, &scene.health), MUSTER_OK);
    for (int i = 0; i < 1001; i++) {
        calls[i].data = &seen[i];
        health_watch(&scene, &calls[i], whole);
    }
    for (int i = 0; i < 1001; i++)
        wait_statuses(&scene, &seen[i], 1);

    assert_string_equal(seen[999].statuses, "1");
    assert_true(seen[1000].is_done);
    assert_int_equal(seen[1000].rc, MUSTER_RESOURCE_EXHAUSTED);
    rpc_fixture_close(&scene.fixture);
    free(seen);
}

static void a_server_has_one_health(void **state)
{
    struct scene *scene = *state;

    assert_int_equal(muster_rpc_health_open(scene->fixture.server, NULL), MUSTER_ALREADY_EXISTS);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest rpc_health[] = {
        CASE(check_tells_what_was_set_last),
        CASE(list_has_all_up_to_a_hundred),
        CASE(watch_tells_each_change_once),
        CASE(a_shut_down_is_told_and_final),
        CASE(a_closing_server_tells_its_watchers_and_lets_them_go),
        cmocka_unit_test(watches_are_bounded),
        CASE(a_server_has_one_health),
    };

    return cmocka_run_group_tests(rpc_health, NULL, NULL);
}
