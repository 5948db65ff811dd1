/* Stubs of tests/proto/stub_sample.proto: each kind of method there and back, and what cannot be
 * read. */
#include "rpc_fixture.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/stub.h>

#include "net/grpc/server/rpc_server_internal.h"
#include "tests/proto/stub_sample.muster.h"

typedef Sample__Guide__V1__Point Point;
typedef Sample__Guide__V1__Feature Feature;
typedef Sample__Guide__V1__Feature__Detail Detail;
typedef Sample__Guide__V1__Rectangle Rectangle;
typedef Sample__Guide__V1__Summary Summary;

struct guide {
    struct rpc_fixture fixture;
    int32_t points; /* of the RecordRoute under way */
    unsigned ended; /* on_end of any method */
    enum muster_rc end_rc;
    enum muster_rc reply_rc;
};

/* Server. */

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct guide *guide = muster_rpc_service(rpc);

    guide->ended++;
    guide->end_rc = rc;
}

static void on_get_feature(struct muster_rpc *rpc, const Point *request)
{
    struct guide *guide = muster_rpc_service(rpc);
    Feature feature;
    char name[32];

    if (request->latitude == 404) {
        muster_rpc_finish(rpc, MUSTER_NOT_FOUND, "nothing is there");
        return;
    }
    sample__guide__v1__feature__init(&feature);
    (void)snprintf(name, sizeof(name), "at %d", (int)request->latitude);
    feature.name = name;
    guide->reply_rc = sample_guide_v1_route_guide_get_feature_reply(rpc, &feature);
}

static void on_list_features(struct muster_rpc *rpc, const Rectangle *request)
{
    Feature feature;
    char name[32];

    sample__guide__v1__feature__init(&feature);
    feature.name = name;
    for (int32_t at = request->low->latitude; at <= request->high->latitude; at++) {
        (void)snprintf(name, sizeof(name), "%d", (int)at);
        assert_int_equal(sample_guide_v1_route_guide_list_features_reply(rpc, &feature), MUSTER_OK);
    }
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_route_start(struct muster_rpc *rpc)
{
    struct guide *guide = muster_rpc_service(rpc);

    guide->points = 0;
}

static void on_route_point(struct muster_rpc *rpc, const Point *message)
{
    struct guide *guide = muster_rpc_service(rpc);

    (void)message;
    guide->points++;
}

static void on_route_end(struct muster_rpc *rpc)
{
    struct guide *guide = muster_rpc_service(rpc);
    Summary summary;

    sample__guide__v1__summary__init(&summary);
    summary.points = guide->points;
    (void)sample_guide_v1_route_guide_record_route_reply(rpc, &summary);
}

static void on_chat(struct muster_rpc *rpc, const Feature *message)
{
    (void)sample_guide_v1_route_guide_route_chat_reply(rpc, message);
}

static void on_chat_end(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* Delete has no handler. */
static const struct sample_guide_v1_route_guide_handlers handlers = {
    .get_feature = {.on_request = on_get_feature, .on_end = on_end},
    .list_features = {.on_request = on_list_features, .on_end = on_end},
    .record_route = {.on_start = on_route_start,
                     .on_message = on_route_point,
                     .on_half_close = on_route_end,
                     .on_end = on_end},
    .route_chat = {.on_message = on_chat, .on_half_close = on_chat_end, .on_end = on_end},
};

static int set_up(void **state)
{
    struct sample_guide_v1_route_guide_handlers copied = handlers;
    struct guide *guide = rpc_scene_open(state, sizeof(*guide), NULL, NULL);

    assert_int_equal(sample_guide_v1_route_guide_service_add(guide->fixture.server, &copied, guide),
                     MUSTER_OK);
    memset(&copied, 0xff, sizeof(copied));
    return 0;
}

/* Client. */

struct seen {
    char names[256];
    int32_t points;
    bool is_done, has_response;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
    unsigned writable;
};

static void seen_end(struct seen *seen, const struct muster_stub_call *stub, enum muster_rc rc)
{
    assert_false(seen->is_done);
    seen->is_done = true;
    seen->rc = rc;
    (void)snprintf(seen->text, sizeof(seen->text), "%s", stub->call.status.text);
}

static void add_name(struct seen *seen, const char *name)
{
    size_t length = strlen(seen->names);

    (void)snprintf(seen->names + length, sizeof(seen->names) - length, "%s,", name);
}

static void on_get_feature_done(struct sample_guide_v1_route_guide_get_feature_call *call,
                                enum muster_rc rc, const Feature *response)
{
    struct seen *seen = call->data;

    seen->has_response = response != NULL;
    if (response != NULL)
        add_name(seen, response->name);
    seen_end(seen, &call->stub, rc);
}

static void on_feature(struct sample_guide_v1_route_guide_list_features_call *call,
                       const Feature *message)
{
    add_name(call->data, message->name);
}

static void on_list_done(struct sample_guide_v1_route_guide_list_features_call *call,
                         enum muster_rc rc)
{
    seen_end(call->data, &call->stub, rc);
}

static void on_record_done(struct sample_guide_v1_route_guide_record_route_call *call,
                           enum muster_rc rc, const Summary *response)
{
    struct seen *seen = call->data;

    seen->has_response = response != NULL;
    if (response != NULL)
        seen->points = response->points;
    seen_end(seen, &call->stub, rc);
}

static void on_chat_message(struct sample_guide_v1_route_guide_route_chat_call *call,
                            const Feature *message)
{
    struct seen *seen = call->data;

    add_name(seen, message->name);
    if (strcmp(message->name, "last") == 0)
        sample_guide_v1_route_guide_route_chat_half_close(call);
}

static void on_chat_done(struct sample_guide_v1_route_guide_route_chat_call *call,
                         enum muster_rc rc)
{
    seen_end(call->data, &call->stub, rc);
}

static void on_delete_done(struct sample_guide_v1_route_guide_delete_call *call, enum muster_rc rc,
                           const Detail *response)
{
    struct seen *seen = call->data;

    seen->has_response = response != NULL;
    seen_end(seen, &call->stub, rc);
}

static struct muster_call_options within_10_s(struct guide *guide)
{
    return (struct muster_call_options){.deadline_ns =
                                            rpc_fixture_after_ms(&guide->fixture, 10000)};
}

static bool has_ended(void *data)
{
    const struct guide *guide = data;

    return guide->ended > 0;
}

static bool has_names(void *data)
{
    const struct seen *seen = data;

    return seen->names[0] != '\0';
}

static void get_feature(struct guide *guide, int32_t latitude, struct seen *seen)
{
    struct sample_guide_v1_route_guide_get_feature_call call = {.data = seen};
    const struct muster_call_options options = within_10_s(guide);
    Point point;

    sample__guide__v1__point__init(&point);
    point.latitude = latitude;
    assert_int_equal(sample_guide_v1_route_guide_get_feature_start(
                         &call, guide->fixture.channel, &options, &point, on_get_feature_done),
                     MUSTER_OK);
    assert_false(seen->is_done);
    test_env_run_until(guide->fixture.env, test_env_is_true, &seen->is_done);
}

static void one_request_one_response(void **state)
{
    struct guide *guide = *state;
    struct seen seen = {.rc = MUSTER_UNKNOWN};

    get_feature(guide, 7, &seen);

    assert_int_equal(seen.rc, MUSTER_OK);
    assert_string_equal(seen.names, "at 7,");
    assert_int_equal(guide->reply_rc, MUSTER_OK);
}

static void a_status_comes_without_a_response(void **state)
{
    struct seen seen = {.rc = MUSTER_OK, .has_response = true};

    get_feature(*state, 404, &seen);

    assert_int_equal(seen.rc, MUSTER_NOT_FOUND);
    assert_string_equal(seen.text, "nothing is there");
    assert_false(seen.has_response);
}

static void one_request_many_responses(void **state)
{
    struct guide *guide = *state;
    struct seen seen = {.rc = MUSTER_UNKNOWN};
    struct sample_guide_v1_route_guide_list_features_call call = {.data = &seen};
    const struct muster_call_options options = within_10_s(guide);
    Rectangle rectangle;
    Point low, high;

    sample__guide__v1__rectangle__init(&rectangle);
    sample__guide__v1__point__init(&low);
    sample__guide__v1__point__init(&high);
    low.latitude = 3;
    high.latitude = 5;
    rectangle.low = &low;
    rectangle.high = &high;
    assert_int_equal(sample_guide_v1_route_guide_list_features_start(&call, guide->fixture.channel,
                                                                     &options, &rectangle,
                                                                     on_feature, on_list_done),
                     MUSTER_OK);
    test_env_run_until(guide->fixture.env, test_env_is_true, &seen.is_done);

    assert_int_equal(seen.rc, MUSTER_OK);
    assert_string_equal(seen.names, "3,4,5,");
}

static void many_requests_one_response(void **state)
{
    struct guide *guide = *state;
    struct seen seen = {.rc = MUSTER_UNKNOWN};
    struct sample_guide_v1_route_guide_record_route_call call = {.data = &seen};
    const struct muster_call_options options = within_10_s(guide);
    Point point;

    sample__guide__v1__point__init(&point);
    assert_int_equal(sample_guide_v1_route_guide_record_route_start(&call, guide->fixture.channel,
                                                                    &options, on_record_done),
                     MUSTER_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sample_guide_v1_route_guide_record_route_send(&call, &point), MUSTER_OK);
    sample_guide_v1_route_guide_record_route_half_close(&call);
    test_env_run_until(guide->fixture.env, test_env_is_true, &seen.is_done);

    assert_int_equal(seen.rc, MUSTER_OK);
    assert_int_equal(seen.points, 4);
}

static void on_writable(struct muster_call *call)
{
    struct sample_guide_v1_route_guide_route_chat_call *chat = call->data;
    struct seen *seen = chat->data;

    seen->writable++;
}

static void many_requests_many_responses(void **state)
{
    struct guide *guide = *state;
    struct seen seen = {.rc = MUSTER_UNKNOWN};
    struct sample_guide_v1_route_guide_route_chat_call call = {.data = &seen};
    struct muster_call_options options = within_10_s(guide);
    char first[] = "first", last[] = "last";
    char *const names[] = {first, last};
    Feature feature;

    options.on_writable = on_writable;
    sample__guide__v1__feature__init(&feature);
    assert_int_equal(sample_guide_v1_route_guide_route_chat_start(
                         &call, guide->fixture.channel, &options, on_chat_message, on_chat_done),
                     MUSTER_OK);
    for (int i = 0; i < 2; i++) {
        feature.name = names[i];
        assert_int_equal(sample_guide_v1_route_guide_route_chat_send(&call, &feature), MUSTER_OK);
    }
    test_env_run_until(guide->fixture.env, test_env_is_true, &seen.is_done);

    assert_int_equal(seen.rc, MUSTER_OK);
    assert_string_equal(seen.names, "first,last,");
    assert_true(seen.writable > 0);
    test_env_run_until(guide->fixture.env, has_ended, guide);
    assert_int_equal(guide->end_rc, MUSTER_OK);
}

static void a_cancelled_call_ends_once_on_both_sides(void **state)
{
    struct guide *guide = *state;
    struct seen seen = {.rc = MUSTER_OK};
    struct sample_guide_v1_route_guide_route_chat_call call = {.data = &seen};
    const struct muster_call_options options = within_10_s(guide);
    Feature feature;

    sample__guide__v1__feature__init(&feature);
    assert_int_equal(sample_guide_v1_route_guide_route_chat_start(
                         &call, guide->fixture.channel, &options, on_chat_message, on_chat_done),
                     MUSTER_OK);
    assert_int_equal(sample_guide_v1_route_guide_route_chat_send(&call, &feature), MUSTER_OK);
    test_env_run_until(guide->fixture.env, has_names, &seen);
    muster_call_cancel(&call.stub.call);
    test_env_run_until(guide->fixture.env, test_env_is_true, &seen.is_done);

    assert_int_equal(seen.rc, MUSTER_CANCELLED);
    test_env_run_until(guide->fixture.env, has_ended, guide);
    assert_int_equal(guide->end_rc, MUSTER_CANCELLED);
    assert_int_equal(guide->ended, 1);
}

static void a_method_without_a_handler_is_unimplemented(void **state)
{
    struct guide *guide = *state;
    struct seen seen = {.rc = MUSTER_OK};
    struct sample_guide_v1_route_guide_delete_call call = {.data = &seen};
    const struct muster_call_options options = within_10_s(guide);
    Detail detail;

    sample__guide__v1__feature__detail__init(&detail);
    assert_int_equal(sample_guide_v1_route_guide_delete_start(&call, guide->fixture.channel,
                                                              &options, &detail, on_delete_done),
                     MUSTER_OK);
    test_env_run_until(guide->fixture.env, test_env_is_true, &seen.is_done);

    assert_int_equal(seen.rc, MUSTER_UNIMPLEMENTED);
    assert_false(seen.has_response);
}

static void a_path_is_served_once(void **state)
{
    struct guide *guide = *state;
    struct muster_rpc_server *server = guide->fixture.server;

    assert_int_equal(sample_guide_v1_route_guide_service_add(server, &handlers, NULL),
                     MUSTER_ALREADY_EXISTS);
}

static void on_any_message(struct muster_rpc *rpc, const void *all, const void *message)
{
    (void)all;
    (void)message;
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void a_path_that_a_service_has_twice_is_refused(void **state)
{
    static const struct muster_stub_method methods[] = {{.path = "/a/A"}, {.path = "/a/A"}};
    static const struct muster_stub_handler rows[] = {
        {.method = &methods[0], .on_message = on_any_message},
        {.method = &methods[1], .on_message = on_any_message}};
    const struct muster_stub_service service = {.rows = rows, .count = 2, .handlers = ""};
    struct guide *guide = *state;
    size_t before = guide->fixture.server->methods.count;

    assert_int_equal(muster_stub_service_add(guide->fixture.server, &service),
                     MUSTER_ALREADY_EXISTS);

    assert_int_equal(guide->fixture.server->methods.count, before);
}

static void run_add(struct torture *torture, const void *data)
{
    static const struct muster_rpc_method others[] = {
        {.path = "/a/A"}, {.path = "/a/B"}, {.path = "/a/C"},
        {.path = "/a/D"}, {.path = "/a/E"}, {.path = "/a/F"}}; /* then the table is nearly full */
    struct guide *guide = (struct guide *)(uintptr_t)data;
    struct muster_rpc_server *server = NULL;
    enum muster_rc rc;

    assert_int_equal(muster_rpc_server_open(guide->fixture.env, NULL, &server), MUSTER_OK);
    assert_int_equal(muster_rpc_server_add(server, others, 6, NULL), MUSTER_OK);
    torture_arm_limited(torture, &guide->fixture.test.mem);
    rc = sample_guide_v1_route_guide_service_add(server, &handlers, NULL);
    torture_disarm(torture);

    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_int_equal(server->methods.count, rc == MUSTER_OK ? 10 : 6);
    muster_rpc_server_close(server, 0, NULL);
    test_env_turn(guide->fixture.env, 5);
}

static void want_of_memory_adds_nothing(void **state)
{
    torture_run(&(struct torture_scenario){.name = "service", .run = run_add, .data = *state});
}

static void a_request_that_cannot_be_read_is_internal(void **state)
{
    struct guide *guide = *state;
    struct rpc_probe probe = {.rc = MUSTER_OK};
    struct muster_call_options options = within_10_s(guide);

    options.method = "/sample.guide.v1.RouteGuide/GetFeature";
    rpc_probe_ask_with(&probe, &guide->fixture, &options, "\x0a\x7f");

    assert_int_equal(probe.rc, MUSTER_INTERNAL);
    assert_non_null(strstr(probe.text, "request of /sample.guide.v1.RouteGuide/GetFeature: "));
}

/* A server of bytes, which sends what is no Feature. */
static void on_rubbish(struct muster_rpc *rpc, struct muster_bytes message)
{
    const unsigned *count = muster_rpc_service(rpc);

    (void)message;
    for (unsigned i = 0; i < *count; i++)
        assert_int_equal(muster_rpc_send(rpc, "\x0a\x7f", 2), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_two(struct muster_rpc *rpc, struct muster_bytes message)
{
    (void)message;
    assert_int_equal(muster_rpc_send(rpc, "", 0), MUSTER_OK);
    assert_int_equal(muster_rpc_send(rpc, "", 0), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static enum muster_rc ask_odd_server(void (*on_message)(struct muster_rpc *, struct muster_bytes),
                                     unsigned count, struct seen *seen)
{
    const struct muster_rpc_method method = {.path = "/sample.guide.v1.RouteGuide/GetFeature",
                                             .on_message = on_message,
                                             .is_unary = true};
    struct guide guide = {.points = 0};

    rpc_fixture_open(&guide.fixture, NULL, NULL);
    assert_int_equal(muster_rpc_server_add(guide.fixture.server, &method, 1, &count), MUSTER_OK);
    get_feature(&guide, 1, seen);
    rpc_fixture_close(&guide.fixture);
    assert_false(seen->has_response);
    return seen->rc;
}

static void a_response_that_cannot_be_read_is_internal(void **state)
{
    struct seen seen = {.rc = MUSTER_OK};

    (void)state;
    assert_int_equal(ask_odd_server(on_rubbish, 1, &seen), MUSTER_INTERNAL);
    assert_non_null(strstr(seen.text, "response of /sample.guide.v1.RouteGuide/GetFeature: "));
}

static void a_response_has_to_be_there_once(void **state)
{
    struct seen none = {.rc = MUSTER_OK}, two = {.rc = MUSTER_OK};

    (void)state;
    assert_int_equal(ask_odd_server(on_rubbish, 0, &none), MUSTER_UNIMPLEMENTED);
    assert_int_equal(ask_odd_server(on_two, 0, &two), MUSTER_UNIMPLEMENTED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest stub[] = {
        CASE(one_request_one_response),
        CASE(a_status_comes_without_a_response),
        CASE(one_request_many_responses),
        CASE(many_requests_one_response),
        CASE(many_requests_many_responses),
        CASE(a_cancelled_call_ends_once_on_both_sides),
        CASE(a_method_without_a_handler_is_unimplemented),
        CASE(a_path_is_served_once),
        CASE(a_path_that_a_service_has_twice_is_refused),
        CASE(want_of_memory_adds_nothing),
        CASE(a_request_that_cannot_be_read_is_internal),
        cmocka_unit_test(a_response_that_cannot_be_read_is_internal),
        cmocka_unit_test(a_response_has_to_be_there_once),
    };

    return cmocka_run_group_tests(stub, NULL, NULL);
}
