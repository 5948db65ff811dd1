/* The costs of a call and of an idle connection, in numbers that no clock disturbs: allocations, bytes
 * held, copies of a large message. */
#include "careful_mem.h"
#include "rpc_fixture.h"

#include <stdlib.h>
#include <string.h>

#define LARGE_BYTES       (1u << 20)
#define IDLE_COUNT        64
#define IDLE_BYTES_MAX    (33u << 10) /* of which nghttp2 asks for 28, and touches half */
#define CALLS             300
#define LIBRARY_BYTES_MAX (512u << 10) /* held for a large message that is not the library's */

/* A service whose large messages have a place; the client has memory of its own. */
struct stage {
    struct rpc_fixture fixture;
    struct muster_env client_env;
    struct muster_mem_limited client_mem;
    struct muster_channel *channels[IDLE_COUNT];
    unsigned channel_count, closed_count;
    uint8_t *place;
    size_t place_bytes;
    struct muster_loan loan;
    bool is_placed, is_released;
    unsigned done;
    enum muster_rc rc;
    size_t response_bytes;
    uint8_t response_last;
};

static void *on_place(struct muster_rpc *rpc, size_t bytes)
{
    struct stage *stage = muster_rpc_service(rpc);

    if (bytes != LARGE_BYTES)
        return NULL;
    stage->place_bytes = bytes;
    return stage->place;
}

static void on_released(struct muster_loan *loan)
{
    ((struct stage *)loan->data)->is_released = true;
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct stage *stage = muster_rpc_service(rpc);
    const struct iovec piece = {(void *)(uintptr_t)message.data, message.size};

    stage->is_placed = message.data == stage->place;
    stage->loan.data = stage;
    if (stage->is_placed)
        assert_int_equal(muster_rpc_send_loan(rpc, &stage->loan, &piece, 1, on_released),
                         MUSTER_OK);
    else
        assert_int_equal(muster_rpc_send(rpc, message.data, message.size), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/cost.Echo/Unary", .on_place = on_place, .on_message = on_message, .is_unary = true},
    {.path = "/cost.Echo/Stream", .on_place = on_place, .on_message = on_message},
};

static int set_up(void **state)
{
    struct stage *stage = rpc_scene_open(state, sizeof(*stage), NULL, NULL);

    assert_int_equal(muster_rpc_server_add(stage->fixture.server, methods, 2, stage), MUSTER_OK);
    muster_mem_limited_init(&stage->client_mem, careful_mem(), 0);
    stage->client_env = *stage->fixture.env;
    stage->client_env.mem = &stage->client_mem.mem;
    assert_int_equal(muster_net_system_open(&stage->client_env, &stage->client_env.net), MUSTER_OK);
    stage->place = malloc(LARGE_BYTES);
    return 0;
}

static void on_channel_closed(struct muster_channel *channel)
{
    ((struct stage *)muster_channel_data(channel))->closed_count++;
}

static bool are_channels_closed(void *data)
{
    const struct stage *stage = data;

    return stage->closed_count == stage->channel_count;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;

    for (unsigned i = 0; i < stage->channel_count; i++)
        muster_channel_close(stage->channels[i], on_channel_closed);
    test_env_run_until(stage->fixture.env, are_channels_closed, stage);
    muster_net_system_close(stage->client_env.net);
    assert_int_equal(muster_mem_limited_fini(&stage->client_mem), 0);
    rpc_fixture_close(&stage->fixture);
    free(stage->place);
    free(stage);
    return 0;
}

static struct muster_channel *stage_dial(struct stage *stage)
{
    const struct muster_channel_options options = {.receive_message_max_bytes = 2 * LARGE_BYTES};
    char target[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_channel *channel = NULL;

    assert_int_equal(muster_channel_open(&stage->client_env,
                                         muster_address_format(&stage->fixture.address, target),
                                         &options, &channel, NULL),
                     MUSTER_OK);
    muster_channel_set_data(channel, stage);
    stage->channels[stage->channel_count++] = channel;
    return channel;
}

static void on_done(struct muster_unary *unary, enum muster_rc rc)
{
    struct stage *stage = unary->data;

    stage->done++;
    stage->rc = rc;
    stage->response_bytes = unary->response.size;
    if (unary->response.size > 0)
        stage->response_last = ((const uint8_t *)unary->response.data)[unary->response.size - 1];
}

struct goal {
    struct stage *stage;
    unsigned done;
};

static bool is_reached(void *data)
{
    const struct goal *goal = data;

    return goal->stage->done >= goal->done;
}

static void stage_call(struct stage *stage, struct muster_channel *channel, const char *method,
                       const void *request, size_t bytes)
{
    struct muster_unary unary = {.data = stage};
    struct goal goal = {stage, stage->done + 1};

    assert_int_equal(muster_unary_start(&unary, channel, method, request, bytes,
                                        rpc_fixture_after_ms(&stage->fixture, 60000), on_done),
                     MUSTER_OK);
    test_env_run_until(stage->fixture.env, is_reached, &goal);
    assert_int_equal(stage->rc, MUSTER_OK);
    assert_int_equal(stage->response_bytes, bytes);
}

static void a_small_call_allocates_nothing(void **state)
{
    struct stage *stage = *state;
    struct muster_channel *channel = stage_dial(stage);
    uint64_t server, client;
    uint8_t request[64] = {0};

    for (unsigned i = 0; i < CALLS; i++)
        stage_call(stage, channel, "/cost.Echo/Unary", request, sizeof(request));
    server = stage->fixture.test.mem.alloc_count;
    client = stage->client_mem.alloc_count;
    for (unsigned i = 0; i < CALLS; i++)
        stage_call(stage, channel, "/cost.Echo/Unary", request, sizeof(request));

    assert_int_equal(stage->fixture.test.mem.alloc_count - server, 0);
    assert_int_equal(stage->client_mem.alloc_count - client, 0);
}

static void an_idle_connection_holds_little(void **state)
{
    struct stage *stage = *state;
    uint8_t request[64] = {0};
    size_t before;

    stage_call(stage, stage_dial(stage), "/cost.Echo/Unary", request, sizeof(request));
    before = stage->fixture.test.mem.held_bytes;
    while (stage->channel_count < IDLE_COUNT)
        stage_call(stage, stage_dial(stage), "/cost.Echo/Unary", request, sizeof(request));

    assert_in_range((stage->fixture.test.mem.held_bytes - before) / (IDLE_COUNT - 1), 0,
                    IDLE_BYTES_MAX);
}

/* The message is held once, by the service: neither its arrival nor the answer makes another copy. */
static void echo_large(struct stage *stage, const char *method)
{
    struct muster_channel *channel = stage_dial(stage);
    uint8_t *request = malloc(LARGE_BYTES);
    size_t held;

    memset(request, 'm', LARGE_BYTES);
    stage_call(stage, channel, method, "warm", 4);
    held = stage->fixture.test.mem.held_bytes;
    stage->fixture.test.mem.held_peak_bytes = held;
    stage_call(stage, channel, method, request, LARGE_BYTES);
    free(request);

    assert_true(stage->is_placed);
    assert_int_equal(stage->place_bytes, LARGE_BYTES);
    assert_int_equal(stage->place[LARGE_BYTES - 1], 'm');
    assert_int_equal(stage->response_last, 'm');
    test_env_run_until(stage->fixture.env, test_env_is_true, &stage->is_released);
    assert_true(stage->fixture.test.mem.held_peak_bytes - held < LIBRARY_BYTES_MAX);
}

static void a_large_unary_message_is_copied_once_in_and_never_out(void **state)
{
    echo_large(*state, "/cost.Echo/Unary");
}

static void a_large_message_of_a_stream_too(void **state)
{
    echo_large(*state, "/cost.Echo/Stream");
}

static void *on_response_place(struct muster_call *call, size_t bytes)
{
    struct stage *stage = call->data;

    return bytes == LARGE_BYTES ? stage->place : NULL;
}

static void on_response(struct muster_call *call, struct muster_bytes message)
{
    struct stage *stage = call->data;

    stage->is_placed = message.data == stage->place;
    stage->response_bytes = message.size;
}

static void on_call_done(struct muster_call *call, enum muster_rc rc)
{
    struct stage *stage = call->data;

    stage->done++;
    stage->rc = rc;
}

static void a_large_response_arrives_where_the_caller_wants_it(void **state)
{
    struct stage *stage = *state;
    const struct muster_call_options options = {.method = "/test.Echo/Large",
                                                .deadline_ns = UINT64_MAX,
                                                .on_place = on_response_place,
                                                .on_message = on_response};
    struct muster_call large = {.data = stage};
    struct goal goal = {stage, 1};

    assert_int_equal(muster_call_start(&large, stage_dial(stage), &options, on_call_done),
                     MUSTER_OK);
    assert_int_equal(muster_call_send(&large, "1048576", 7), MUSTER_OK);
    muster_call_half_close(&large);
    test_env_run_until(stage->fixture.env, is_reached, &goal);

    assert_int_equal(stage->rc, MUSTER_OK);
    assert_true(stage->is_placed);
    assert_int_equal(stage->response_bytes, LARGE_BYTES);
    assert_true(stage->client_mem.held_peak_bytes < LIBRARY_BYTES_MAX);
}

static void a_message_without_a_place_is_the_librarys(void **state)
{
    struct stage *stage = *state;
    uint8_t *request = calloc(1, 100000);

    stage_call(stage, stage_dial(stage), "/cost.Echo/Unary", request, 100000);
    free(request);

    assert_false(stage->is_placed);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest cases[] = {
        CASE(a_small_call_allocates_nothing),
        CASE(an_idle_connection_holds_little),
        CASE(a_large_unary_message_is_copied_once_in_and_never_out),
        CASE(a_large_message_of_a_stream_too),
        CASE(a_large_response_arrives_where_the_caller_wants_it),
        CASE(a_message_without_a_place_is_the_librarys),
    };

    return cmocka_run_group_tests_name("rpc_cost", cases, NULL, NULL);
}
