/* How operations and clients end otherwise than by success: deadlines, cancellation, closing,
 * servers that refuse, that answer nonsense, and that have lost their memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_peer.h"
#include "params_stand.h"

#include <stdio.h>
#include <string.h>

#include "params/client/client_internal.h"

#define SHARDS 8u

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = 1,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

/* --- Operations that are awaited --- */

struct call {
    struct muster_params_op op;
    bool is_done;
    unsigned done_count;
    enum muster_rc rc;
    uint64_t key;
    float value;
    float fence; /* behind the values: no answer may write there */
};

#define FENCE 77.0f

static void on_call(struct muster_params_op *op, enum muster_rc rc)
{
    struct call *call = op->data;

    call->is_done = true;
    call->done_count++;
    call->rc = rc;
}

static struct muster_params_rows call_init(struct call *call, uint64_t key)
{
    *call = (struct call){.op = {.data = call}, .key = key, .value = 1, .fence = FENCE};
    return (struct muster_params_rows){.keys = &call->key, .values = &call->value, .count = 1};
}

static uint64_t deadline_of(const struct muster_env *env)
{
    return muster_loop_after_ns(env->loop, 60 * MUSTER_NS_PER_S);
}

static void push_start(struct call *call, struct muster_params_table *table, uint64_t key,
                       uint64_t deadline_ns)
{
    struct muster_params_rows rows = call_init(call, key);

    assert_int_equal(muster_params_push_start(&call->op, table, &rows, deadline_ns, on_call),
                     MUSTER_OK);
}

static void pull_start(struct call *call, struct muster_params_table *table, uint64_t key,
                       uint64_t deadline_ns)
{
    struct muster_params_rows rows = call_init(call, key);

    assert_int_equal(muster_params_pull_start(&call->op, table, &rows, deadline_ns, on_call),
                     MUSTER_OK);
}

static enum muster_rc call_await(struct muster_env *env, struct call *call)
{
    test_env_run_until(env, test_env_is_true, &call->is_done);
    return call->rc;
}

struct client_call {
    bool is_done;
    enum muster_rc rc;
};

static void on_client(struct muster_params *params, enum muster_rc rc)
{
    *(struct client_call *)muster_params_data(params) = (struct client_call){true, rc};
}

/* --- A server that the case plays --- */

struct scene {
    struct test_env test;
    struct muster_env *env;
    struct params_host host;
    struct muster_params *params;
    struct client_call client;
    struct muster_params_table *table;
};

static void client_open(struct scene *scene)
{
    struct muster_params_options options = {.server = scene->host.address,
                                            .job = "test",
                                            .connect_deadline_ns = deadline_of(scene->env),
                                            .data = &scene->client};
    struct muster_error error;

    scene->client.is_done = false;
    if (muster_params_open(scene->env, &options, on_client, &scene->params, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static void scene_init(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    test_env_open(&scene->test);
    scene->env = &scene->test.env;
    assert_int_equal(muster_net_system_open(scene->env, &scene->env->net), MUSTER_OK);
    params_host_open(&scene->host, scene->env);
    client_open(scene);
}

/* A client with a table, whose link has sent OPEN and TABLE. */
static void scene_open(struct scene *scene)
{
    struct call call = {.op = {.data = &call}};

    scene_init(scene);
    params_host_answer_open(&scene->host, 0, 0, 1, SHARDS);
    test_env_run_until(scene->env, test_env_is_true, &scene->client.is_done);
    assert_int_equal(scene->client.rc, MUSTER_OK);
    assert_int_equal(muster_params_table_start(&call.op, scene->params, &counters, &scene->table,
                                               deadline_of(scene->env), on_call),
                     MUSTER_OK);
    params_host_await(&scene->host, 0, 2);
    params_host_answer_table(&scene->host, 1);
    assert_int_equal(call_await(scene->env, &call), MUSTER_OK);
}

static enum muster_rc client_close(struct scene *scene, uint64_t deadline_ns)
{
    scene->client.is_done = false;
    muster_params_close(scene->params, deadline_ns, on_client);
    test_env_run_until(scene->env, test_env_is_true, &scene->client.is_done);
    return scene->client.rc;
}

static void scene_fini(struct scene *scene)
{
    params_host_close(&scene->host);
    muster_net_system_close(scene->env->net);
    test_env_close(&scene->test);
}

static void scene_close(struct scene *scene)
{
    (void)client_close(scene, muster_loop_now_ns(scene->env->loop));
    scene_fini(scene);
}

static void host_send(struct scene *scene, uint8_t type, uint64_t number, const void *payload,
                      uint32_t bytes)
{
    const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS, .type = type, .offset = number, .payload_bytes = bytes};

    params_peer_send(&scene->host.peer, &header, payload);
}

static void host_acknowledge(struct scene *scene, uint64_t sequence)
{
    uint8_t bytes[MUSTER_PARAMS_ACK_BYTES];

    muster_params_ack_pack(&(struct muster_params_ack){.sequence = sequence}, bytes);
    host_send(scene, MUSTER_PARAMS_ACK, 0, bytes, sizeof(bytes));
}

/* --- Deadlines --- */

static bool is_disconnected(void *data)
{
    return muster_params_error(data)->rc != MUSTER_OK;
}

static void a_deadline_without_a_connection_says_why_there_is_none(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct call push, pull;
    char begin[256];

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &counters);
    params_stand_kill(&stand);
    test_env_run_until(&stand.test.env, is_disconnected, params);
    push_start(&push, table, 1, muster_loop_after_ns(stand.test.env.loop, MUSTER_NS_PER_MS));
    pull_start(&pull, table, 1, muster_loop_after_ns(stand.test.env.loop, MUSTER_NS_PER_MS));

    snprintf(begin, sizeof(begin), "no connection to the server at %s for ", stand.address);
    assert_int_equal(call_await(&stand.test.env, &push), MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(call_await(&stand.test.env, &pull), MUSTER_DEADLINE_EXCEEDED);
    assert_memory_equal(push.op.error.text, begin, strlen(begin));
    assert_true(strlen(push.op.error.text) > strlen(begin));
    assert_int_equal(pull.op.error.rc, MUSTER_DEADLINE_EXCEEDED);
    params_stand_serve(&stand);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    assert_int_equal(params_stand_stats(&stand).pushed_rows, 1); /* it has left, and counts */
    params_stand_close(&stand);
}

static void a_deadline_with_a_connection_says_that_no_answer_came(void **state)
{
    struct scene scene;
    struct call early, late;
    char text[256];

    (void)state;
    scene_open(&scene);
    push_start(&late, scene.table, 1, deadline_of(scene.env));
    pull_start(&early, scene.table, 1, muster_loop_after_ns(scene.env->loop, MUSTER_NS_PER_MS));
    assert_int_equal(call_await(scene.env, &early), MUSTER_DEADLINE_EXCEEDED);

    snprintf(text, sizeof(text), "the server at %s has not answered in time", scene.host.address);
    assert_string_equal(early.op.error.text, text);
    assert_false(late.is_done);
    params_host_await(&scene.host, 0, 4);
    host_acknowledge(&scene, 1);
    assert_int_equal(call_await(scene.env, &late), MUSTER_OK);
    host_send(&scene, MUSTER_PARAMS_ROWS, scene.host.peer.headers[3].offset, "abcd", 4);
    scene_close(&scene);
}

static void operations_end_in_the_order_of_their_deadlines(void **state)
{
    struct scene scene;
    struct call calls[3];
    static const unsigned after_ms[] = {3, 1, 2};

    (void)state;
    scene_open(&scene);
    for (unsigned i = 0; i < 3; i++)
        pull_start(&calls[i], scene.table, i,
                   muster_loop_after_ns(scene.env->loop, after_ms[i] * MUSTER_NS_PER_MS));
    assert_int_equal(call_await(scene.env, &calls[0]), MUSTER_DEADLINE_EXCEEDED);

    assert_true(calls[1].is_done && calls[2].is_done);
    assert_int_equal(calls[1].done_count + calls[2].done_count, 2);
    scene_close(&scene);
}

/* --- Cancellation --- */

static void a_queued_operation_is_cancelled_before_it_leaves(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct call push, pull, kept;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &counters);
    push_start(&push, table, 1, params_stand_deadline(&stand));
    pull_start(&pull, table, 2, params_stand_deadline(&stand));
    muster_params_op_cancel(&push.op);
    muster_params_op_cancel(&push.op);
    muster_params_op_cancel(&pull.op);
    assert_false(push.is_done); /* never within the call */
    assert_int_equal(call_await(&stand.test.env, &push), MUSTER_CANCELLED);
    assert_int_equal(call_await(&stand.test.env, &pull), MUSTER_CANCELLED);
    push_start(&kept, table, 3, params_stand_deadline(&stand));
    assert_int_equal(call_await(&stand.test.env, &kept), MUSTER_OK);

    assert_int_equal(push.done_count, 1);
    assert_int_equal(push.op.error.rc, MUSTER_CANCELLED);
    muster_params_op_cancel(&push.op); /* it has ended: nothing happens */
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    assert_int_equal(push.done_count, 1);
    params_stand_close(&stand);
}

static void a_sent_operation_is_cancelled_and_its_answer_is_of_no_use(void **state)
{
    struct scene scene;
    struct call push, pull;

    (void)state;
    scene_open(&scene);
    push_start(&push, scene.table, 1, deadline_of(scene.env));
    pull_start(&pull, scene.table, 1, deadline_of(scene.env));
    params_host_await(&scene.host, 0, 4);
    muster_params_op_cancel(&push.op);
    muster_params_op_cancel(&pull.op);
    assert_int_equal(call_await(scene.env, &push), MUSTER_CANCELLED);
    assert_int_equal(call_await(scene.env, &pull), MUSTER_CANCELLED);

    host_send(&scene, MUSTER_PARAMS_ROWS, scene.host.peer.headers[3].offset, "abcd", 4);
    host_acknowledge(&scene, 1);
    assert_int_equal(client_close(&scene, deadline_of(scene.env)), MUSTER_OK);
    assert_true(pull.value == 1); /* nothing was written to it */
    assert_int_equal(scene.host.link_count, 1);
    scene_fini(&scene);
}

#define WIDE_ROWS     3u
#define WIDE_ELEMENTS 16384u

static bool is_receiving(void *data)
{
    const struct muster_params *params = data;

    return params->routes[0]->receiving != NULL;
}

/* A link that fills the memory of an operation is broken when that ends, and nothing is lost. */
static void an_operation_is_cancelled_while_its_answer_arrives(void **state)
{
    const struct muster_params_schema schema = {.name = "wide", .row_elements = WIDE_ELEMENTS};
    static float values[WIDE_ROWS * WIDE_ELEMENTS];
    static const uint64_t keys[WIDE_ROWS] = {1, 2, 3};
    const struct muster_params_rows rows = {keys, values, WIDE_ROWS};
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct call pull = {.op = {.data = &pull}};
    float found;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &schema);
    assert_int_equal(
        muster_params_pull_start(&pull.op, table, &rows, params_stand_deadline(&stand), on_call),
        MUSTER_OK);
    test_env_run_until(&stand.test.env, is_receiving, params);
    muster_params_op_cancel(&pull.op);
    assert_int_equal(call_await(&stand.test.env, &pull), MUSTER_CANCELLED);
    memset(values, 0x5a, sizeof(values));
    table = params_stand_table(&stand, params, &counters);
    assert_int_equal(params_stand_pull(&stand, table, keys, &found, 1, NULL), MUSTER_OK);

    for (size_t i = 0; i < sizeof(values); i++)
        if (((uint8_t *)values)[i] != 0x5a)
            fail_msg("byte %zu was written after the end", i);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- Closing --- */

static void a_client_closes_when_its_pushes_are_acknowledged(void **state)
{
    struct scene scene;
    struct call push, pull;
    struct muster_params_rows rows;
    struct call late;

    (void)state;
    scene_open(&scene);
    push_start(&push, scene.table, 1, deadline_of(scene.env));
    pull_start(&pull, scene.table, 1, deadline_of(scene.env));
    scene.client.is_done = false;
    muster_params_close(scene.params, deadline_of(scene.env), on_client);
    rows = call_init(&late, 1);
    assert_int_equal(
        muster_params_push_start(&late.op, scene.table, &rows, deadline_of(scene.env), on_call),
        MUSTER_FAILED_PRECONDITION);
    assert_int_equal(
        muster_params_pull_start(&late.op, scene.table, &rows, deadline_of(scene.env), on_call),
        MUSTER_FAILED_PRECONDITION);
    assert_int_equal(call_await(scene.env, &pull), MUSTER_CANCELLED);
    params_host_await(&scene.host, 0, 3);
    assert_false(push.is_done || scene.client.is_done);
    host_acknowledge(&scene, 1);
    test_env_run_until(scene.env, test_env_is_true, &scene.client.is_done);

    assert_int_equal(scene.client.rc, MUSTER_OK);
    assert_int_equal(push.rc, MUSTER_OK);
    assert_false(late.is_done);
    scene_fini(&scene);
}

static void pushes_without_an_answer_end_at_the_deadline_of_closing(void **state)
{
    struct scene scene;
    struct call push;

    (void)state;
    scene_open(&scene);
    push_start(&push, scene.table, 1, deadline_of(scene.env));
    params_host_await(&scene.host, 0, 3);

    assert_int_equal(client_close(&scene, muster_loop_after_ns(scene.env->loop, MUSTER_NS_PER_MS)),
                     MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(push.rc, MUSTER_CANCELLED);
    assert_int_equal(push.done_count, 1);
    assert_string_equal(push.op.error.text, "the client was closed");
    scene_fini(&scene);
}

/* The deadline is far: whoever waits for it fails by the guard. */
static void a_client_whose_pushes_are_cancelled_closes_at_once(void **state)
{
    struct scene scene;
    struct call push;

    (void)state;
    scene_open(&scene);
    push_start(&push, scene.table, 1, deadline_of(scene.env));
    muster_params_op_cancel(&push.op);

    assert_int_equal(
        client_close(&scene, muster_loop_after_ns(scene.env->loop, 3600 * MUSTER_NS_PER_S)),
        MUSTER_OK);
    assert_int_equal(push.rc, MUSTER_CANCELLED);
    scene_fini(&scene);
}

static void a_client_that_the_server_refuses_closes_at_once(void **state)
{
    struct scene scene;
    struct call push;

    (void)state;
    scene_open(&scene);
    push_start(&push, scene.table, 1, deadline_of(scene.env));
    params_host_await(&scene.host, 0, 3);
    params_peer_close(&scene.host.peer);
    params_host_answer_open(&scene.host, 1, 3, 2, SHARDS); /* another slot */
    assert_int_equal(call_await(scene.env, &push), MUSTER_FAILED_PRECONDITION);

    assert_int_equal(
        client_close(&scene, muster_loop_after_ns(scene.env->loop, 3600 * MUSTER_NS_PER_S)),
        MUSTER_DEADLINE_EXCEEDED);
    scene_fini(&scene);
}

/* --- Servers that refuse --- */

static void refusal_send(struct scene *scene, enum muster_rc rc, const char *text)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_REFUSED,
                                               .phase = (uint32_t)rc,
                                               .payload_bytes = (uint32_t)strlen(text)};

    params_peer_send(&scene->host.peer, &header, text);
}

static void a_final_refusal_ends_the_opening(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    params_host_await(&scene.host, 0, 1);
    refusal_send(&scene, MUSTER_PERMISSION_DENIED, "not you");
    test_env_run_until(scene.env, test_env_is_true, &scene.client.is_done);

    assert_int_equal(scene.client.rc, MUSTER_PERMISSION_DENIED);
    assert_string_equal(muster_params_error(scene.params)->text, "not you");
    scene_close(&scene);
}

static void a_refusal_that_may_pass_is_followed_by_another_attempt(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    params_host_await(&scene.host, 0, 1);
    refusal_send(&scene, MUSTER_RESOURCE_EXHAUSTED, "no memory for one more source");
    params_host_answer_open(&scene.host, 1, 0, 1, SHARDS);
    test_env_run_until(scene.env, test_env_is_true, &scene.client.is_done);

    assert_int_equal(scene.client.rc, MUSTER_OK);
    assert_int_equal(muster_params_error(scene.params)->rc, MUSTER_OK);
    scene_close(&scene);
}

static void a_client_of_another_job_is_refused(void **state)
{
    struct params_stand stand;
    struct client_call call = {.is_done = false};
    struct muster_params_options options = {.job = "other", .data = &call};
    struct muster_params *params;
    struct muster_error error;

    (void)state;
    params_stand_open(&stand, SHARDS);
    options.server = stand.address;
    options.connect_deadline_ns = params_stand_deadline(&stand);
    assert_int_equal(muster_params_open(&stand.test.env, &options, on_client, &params, &error),
                     MUSTER_OK);
    test_env_run_until(&stand.test.env, test_env_is_true, &call.is_done);

    assert_int_equal(call.rc, MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(muster_params_error(params)->text, "other"));
    assert_int_equal(params_stand_stats(&stand).sources, 0);
    call.is_done = false;
    muster_params_close(params, params_stand_deadline(&stand), on_client);
    test_env_run_until(&stand.test.env, test_env_is_true, &call.is_done);
    assert_int_equal(call.rc, MUSTER_OK);
    params_stand_close(&stand);
}

/* --- Malformed answers --- */

static void a_malformed_opening_is_refused_for_good(void **state)
{
    static const uint8_t bytes[300];
    static const struct {
        const char *name;
        struct muster_frame_header header;
    } rows[] = {
        {"shards",
         {.channel = MUSTER_FRAME_PARAMS,
          .type = MUSTER_PARAMS_OPENED,
          .payload_bytes = MUSTER_PARAMS_OPENED_BYTES}},
        {"size",
         {.channel = MUSTER_FRAME_PARAMS,
          .type = MUSTER_PARAMS_OPENED,
          .payload_bytes = MUSTER_PARAMS_OPENED_BYTES + 1}},
        {"type", {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_ACK}},
        {"long refusal",
         {.channel = MUSTER_FRAME_PARAMS, .type = MUSTER_PARAMS_REFUSED, .payload_bytes = 240}},
        {"channel", {.channel = MUSTER_FRAME_MEMBERSHIP, .type = MUSTER_PARAMS_OPENED}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;

        scene_init(&scene);
        params_host_await(&scene.host, 0, 1);
        params_peer_send(&scene.host.peer, &rows[i].header, bytes);
        test_env_run_until(scene.env, test_env_is_true, &scene.client.is_done);
        fail_if(scene.client.rc != MUSTER_INVALID_ARGUMENT, "%s: %s", rows[i].name,
                muster_params_error(scene.params)->text);
        scene_close(&scene);
    }
}

/* The link is given up, and the request sent again over the next one. */
static void a_malformed_answer_costs_the_link_and_no_operation(void **state)
{
    static const uint8_t bytes[64];
    static const struct {
        const char *name;
        uint8_t type;
        bool is_pull; /* the number is that of the pull */
        uint32_t bytes;
    } rows[] = {
        {"half an acknowledgement", MUSTER_PARAMS_ACK, false, 15},
        {"values too short", MUSTER_PARAMS_ROWS, true, 3},
        {"values too long", MUSTER_PARAMS_ROWS, true, 8},
        {"a table for a pull", MUSTER_PARAMS_TABLE_OPEN, true, 0},
        {"a request", MUSTER_PARAMS_PUSH, false, 0},
        {"an unknown type", 99, false, 8},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        struct call pull;
        uint64_t number;

        scene_open(&scene);
        pull_start(&pull, scene.table, 1, deadline_of(scene.env));
        params_host_await(&scene.host, 0, 3);
        number = scene.host.peer.headers[2].offset;
        host_send(&scene, rows[i].type, rows[i].is_pull ? number : 0, bytes, rows[i].bytes);
        params_host_answer_open(&scene.host, 1, 0, 2, SHARDS);
        params_host_await(&scene.host, 1, 2);
        assert_int_equal(scene.host.peer.headers[1].type, MUSTER_PARAMS_PULL);
        assert_int_equal(scene.host.peer.headers[1].offset, number);
        fail_if(pull.is_done || pull.fence != FENCE, "%s", rows[i].name);
        host_send(&scene, MUSTER_PARAMS_ROWS, number, &(float){2.5f}, 4);
        fail_if(call_await(scene.env, &pull) != MUSTER_OK || !(pull.value == 2.5f), "%s",
                rows[i].name);
        scene_close(&scene);
    }
}

static void answers_to_unknown_numbers_are_passed_over(void **state)
{
    struct scene scene;
    struct call push;

    (void)state;
    scene_open(&scene);
    push_start(&push, scene.table, 1, deadline_of(scene.env));
    params_host_await(&scene.host, 0, 3);
    host_send(&scene, MUSTER_PARAMS_ROWS, 999, "abcd", 4);
    host_send(&scene, MUSTER_PARAMS_TABLE_OPEN, 999, NULL, 0);
    host_send(&scene, MUSTER_PARAMS_REFUSED, 1, "ab", 2); /* of no push: the flag is not set */
    host_acknowledge(&scene, 2);
    host_acknowledge(&scene, 1);
    host_acknowledge(&scene, 1);

    assert_int_equal(call_await(scene.env, &push), MUSTER_OK);
    assert_int_equal(scene.host.link_count, 1);
    scene_close(&scene);
}

/* --- Repetition --- */

static void a_push_is_sent_again_as_it_was(void **state)
{
    struct scene scene;
    struct call push;
    struct muster_frame_header header;
    uint8_t payload[256];

    (void)state;
    scene_open(&scene);
    push_start(&push, scene.table, 1, deadline_of(scene.env));
    params_host_await(&scene.host, 0, 3);
    header = scene.host.peer.headers[2];
    assert_true(header.payload_bytes <= sizeof(payload));
    memcpy(payload, scene.host.peer.payloads[2], header.payload_bytes);
    params_peer_close(&scene.host.peer);
    params_host_answer_open(&scene.host, 1, 0, 2, SHARDS);
    params_host_await(&scene.host, 1, 2);

    assert_int_equal(scene.host.peer.headers[1].type, MUSTER_PARAMS_PUSH);
    assert_int_equal(scene.host.peer.headers[1].offset, header.offset);
    assert_int_equal(scene.host.peer.headers[1].payload_bytes, header.payload_bytes);
    assert_int_equal(scene.host.peer.headers[1].descriptor, 77);
    assert_memory_equal(scene.host.peer.payloads[1], payload, header.payload_bytes);
    host_acknowledge(&scene, 1);
    assert_int_equal(call_await(scene.env, &push), MUSTER_OK);
    scene_close(&scene);
}

/* --- Lost memory, younger processes --- */

static void a_server_that_has_lost_its_memory_is_not_pushed_to(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_rows rows;
    struct call push, late;
    float one = 1;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &counters);
    assert_int_equal(params_stand_push(&stand, table, &(uint64_t){1}, &one, 1, NULL), MUSTER_OK);
    params_stand_kill(&stand);
    test_env_run_until(&stand.test.env, is_disconnected, params);
    push_start(&push, table, 1, params_stand_deadline(&stand));
    memset(stand.memory, 0, stand.bytes);
    params_stand_serve(&stand);

    assert_int_equal(call_await(&stand.test.env, &push), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(push.op.error.text, "has lost its memory"));
    rows = call_init(&late, 1);
    assert_int_equal(
        muster_params_push_start(&late.op, table, &rows, params_stand_deadline(&stand), on_call),
        MUSTER_FAILED_PRECONDITION);
    assert_int_equal(params_stand_stats(&stand).rows, 0);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_DEADLINE_EXCEEDED);
    params_stand_close(&stand);
}

static void an_older_process_of_a_source_is_refused(void **state)
{
    struct params_stand stand;
    struct muster_params *older, *younger;
    struct muster_params_table *tables[2];
    struct muster_error error;
    float one = 1, found = 0;

    (void)state;
    params_stand_open(&stand, SHARDS);
    older = params_stand_client(&stand, "worker:0");
    tables[0] = params_stand_table(&stand, older, &counters);
    younger = params_stand_client(&stand, "worker:0");
    tables[1] = params_stand_table(&stand, younger, &counters);

    assert_int_equal(params_stand_push(&stand, tables[0], &(uint64_t){1}, &one, 1, &error),
                     MUSTER_ABORTED);
    assert_string_equal(error.text, "a younger process has opened this source");
    assert_int_equal(params_stand_push(&stand, tables[1], &(uint64_t){1}, &one, 1, NULL),
                     MUSTER_OK);
    assert_int_equal(params_stand_pull(&stand, tables[0], &(uint64_t){1}, &found, 1, NULL),
                     MUSTER_OK); /* it may read */
    assert_true(found == 1);
    assert_int_equal(params_stand_stats(&stand).sources, 1);
    assert_int_equal(params_stand_leave(&stand, older), MUSTER_OK);
    assert_int_equal(params_stand_leave(&stand, younger), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- Memory --- */

static void pushes_beyond_the_queue_are_refused_until_there_is_room(void **state)
{
    struct scene scene;
    struct call push, more;
    struct muster_params_rows rows;

    (void)state;
    scene_open(&scene);
    scene.params->options.queue_max_bytes = 1000;
    push_start(&push, scene.table, 1, deadline_of(scene.env));
    rows = call_init(&more, 2);
    rows.count = 84; /* of 12 bytes: 1,008 */
    assert_int_equal(
        muster_params_push_start(&more.op, scene.table, &rows, deadline_of(scene.env), on_call),
        MUSTER_RESOURCE_EXHAUSTED);
    params_host_await(&scene.host, 0, 3);
    assert_int_equal(scene.params->queued_bytes, 12);
    scene.params->options.queue_max_bytes = 12 + 11;
    rows.count = 1;
    assert_int_equal(
        muster_params_push_start(&more.op, scene.table, &rows, deadline_of(scene.env), on_call),
        MUSTER_RESOURCE_EXHAUSTED);
    host_acknowledge(&scene, 1);
    assert_int_equal(call_await(scene.env, &push), MUSTER_OK);

    assert_int_equal(
        muster_params_push_start(&more.op, scene.table, &rows, deadline_of(scene.env), on_call),
        MUSTER_OK);
    params_host_await(&scene.host, 0, 4);
    host_acknowledge(&scene, 2);
    assert_int_equal(call_await(scene.env, &more), MUSTER_OK);
    assert_int_equal(scene.params->queued_bytes, 0);
    scene_close(&scene);
}

static void new_rows_beyond_the_servers_memory_are_refused(void **state)
{
    const struct muster_params_schema schema = {.name = "wide", .row_elements = WIDE_ELEMENTS};
    static float values[WIDE_ROWS * WIDE_ELEMENTS];
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;
    uint64_t key = 0, keys[WIDE_ROWS];
    char text[320];

    (void)state;
    params_stand_open(&stand, 1);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &schema);
    while (rc == MUSTER_OK) {
        for (uint32_t i = 0; i < WIDE_ROWS; i++)
            keys[i] = key++;
        rc = params_stand_push(&stand, table, keys, values, WIDE_ROWS, &error);
    }
    keys[0] = 0; /* is known */
    keys[1] = 1000001;
    keys[2] = 1000002;
    rc = params_stand_push(&stand, table, keys, values, WIDE_ROWS, &error);

    snprintf(text, sizeof(text),
             "the server at %s has no memory for 2 new rows of table wide; the other rows are "
             "applied",
             stand.address);
    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, text);
    assert_int_equal(params_stand_push(&stand, table, keys, values, 1, NULL), MUSTER_OK);
    assert_true(params_stand_stats(&stand).refused_rows >= 3);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
}

/* --- Arguments --- */

static void wrong_options_are_refused(void **state)
{
    static const char name64[] = "0123456789012345678901234567890123456789012345678901234567890123";
    static const struct {
        const char *name;
        struct muster_params_options options;
        const char *text;
    } rows[] = {
        {"no server", {.server = NULL}, "options->server must be HOST:PORT"},
        {"no port", {.server = "127.0.0.1"}, "127.0.0.1"},
        {"empty source", {.server = "127.0.0.1:1", .source = ""}, "1 to 63 bytes, got 0"},
        {"long source", {.server = "127.0.0.1:1", .source = name64}, "1 to 63 bytes, got 64"},
    };
    struct test_env test;
    char job[MUSTER_JOB_NAME_BYTES + 1];
    struct muster_params_options options = {.server = "127.0.0.1:1", .job = job};
    struct muster_params *params = NULL;
    struct muster_error error;

    (void)state;
    test_env_open(&test);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fail_if(muster_params_open(&test.env, &rows[i].options, on_client, &params, &error) !=
                        MUSTER_INVALID_ARGUMENT ||
                    strstr(error.text, rows[i].text) == NULL,
                "%s: %s", rows[i].name, error.text);
        assert_null(params);
    }
    memset(job, 'j', sizeof(job));
    job[MUSTER_JOB_NAME_BYTES] = '\0';
    assert_int_equal(muster_params_open(&test.env, &options, on_client, &params, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "options->job must have at most"));
    test_env_close(&test);
}

static void wrong_rows_and_past_deadlines_are_refused(void **state)
{
    struct scene scene;
    struct call call;
    const struct muster_params_rows whole = call_init(&call, 1);
    struct muster_params_rows rows[3] = {whole, whole, whole};

    (void)state;
    scene_open(&scene);
    rows[0].count = 0;
    rows[1].keys = NULL;
    rows[2].values = NULL;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(muster_params_push_start(&call.op, scene.table, &rows[i],
                                                  deadline_of(scene.env), on_call),
                         MUSTER_INVALID_ARGUMENT);
        assert_int_equal(muster_params_pull_start(&call.op, scene.table, &rows[i],
                                                  deadline_of(scene.env), on_call),
                         MUSTER_INVALID_ARGUMENT);
    }
    assert_int_equal(muster_params_pull_start(&call.op, scene.table, &whole, 0, on_call),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(
        muster_params_table_start(&call.op, scene.params, &counters, &scene.table, 0, on_call),
        MUSTER_INVALID_ARGUMENT);
    scene_close(&scene);
    assert_false(call.is_done);
}

static void an_opening_without_a_server_ends_at_its_deadline(void **state)
{
    struct test_env test;
    struct client_call opened = {.is_done = false};
    struct muster_params_options options = {.server = "127.0.0.1:1", .data = &opened};
    struct muster_params *params;
    struct muster_error error;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_net_system_open(&test.env, &test.env.net), MUSTER_OK);
    options.connect_deadline_ns = muster_loop_after_ns(test.env.loop, MUSTER_NS_PER_MS);
    assert_int_equal(muster_params_open(&test.env, &options, on_client, &params, &error),
                     MUSTER_OK);
    assert_false(opened.is_done);
    test_env_run_until(&test.env, test_env_is_true, &opened.is_done);
    assert_true(opened.rc == MUSTER_UNAVAILABLE || opened.rc == MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(muster_params_error(params)->rc, opened.rc);
    opened.is_done = false;
    muster_params_close(params, muster_loop_after_ns(test.env.loop, 3600 * MUSTER_NS_PER_S),
                        on_client);
    test_env_run_until(&test.env, test_env_is_true, &opened.is_done);
    assert_int_equal(opened.rc, MUSTER_OK);
    test_env_turn(&test.env, 4); /* a closed link's memory goes in a later turn */
    muster_net_system_close(test.env.net);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_without_a_connection_says_why_there_is_none),
        cmocka_unit_test(a_deadline_with_a_connection_says_that_no_answer_came),
        cmocka_unit_test(operations_end_in_the_order_of_their_deadlines),
        cmocka_unit_test(a_queued_operation_is_cancelled_before_it_leaves),
        cmocka_unit_test(a_sent_operation_is_cancelled_and_its_answer_is_of_no_use),
        cmocka_unit_test(an_operation_is_cancelled_while_its_answer_arrives),
        cmocka_unit_test(a_client_closes_when_its_pushes_are_acknowledged),
        cmocka_unit_test(pushes_without_an_answer_end_at_the_deadline_of_closing),
        cmocka_unit_test(a_client_whose_pushes_are_cancelled_closes_at_once),
        cmocka_unit_test(a_client_that_the_server_refuses_closes_at_once),
        cmocka_unit_test(a_final_refusal_ends_the_opening),
        cmocka_unit_test(a_refusal_that_may_pass_is_followed_by_another_attempt),
        cmocka_unit_test(a_client_of_another_job_is_refused),
        cmocka_unit_test(a_malformed_opening_is_refused_for_good),
        cmocka_unit_test(a_malformed_answer_costs_the_link_and_no_operation),
        cmocka_unit_test(answers_to_unknown_numbers_are_passed_over),
        cmocka_unit_test(a_push_is_sent_again_as_it_was),
        cmocka_unit_test(a_server_that_has_lost_its_memory_is_not_pushed_to),
        cmocka_unit_test(an_older_process_of_a_source_is_refused),
        cmocka_unit_test(pushes_beyond_the_queue_are_refused_until_there_is_room),
        cmocka_unit_test(new_rows_beyond_the_servers_memory_are_refused),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(wrong_rows_and_past_deadlines_are_refused),
        cmocka_unit_test(an_opening_without_a_server_ends_at_its_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
