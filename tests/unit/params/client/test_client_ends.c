/* How operations and clients end otherwise than by an answer: deadlines, cancellation, closing; and what
 * is sent again when a link was lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_client_scene.h"
#include "params_stand.h"

#include <stdio.h>
#include <string.h>

#include "params/client/client_internal.h"
#include "params/server/core/server_internal.h"

#define SHARDS PARAMS_CLIENT_SCENE_SHARDS
/* Not over before the operation begins, on a busy machine either. */
#define SOON_NS (50 * MUSTER_NS_PER_MS)

/* --- Deadlines --- */

static void a_deadline_without_a_connection_says_why_there_is_none(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct params_call push, pull;
    char begin[256];

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &params_counters);
    params_stand_kill(&stand);
    test_env_run_until(&stand.test.env, params_has_error, params);
    params_call_push(&push, table, 1, muster_loop_after_ns(stand.test.env.loop, SOON_NS));
    params_call_pull(&pull, table, 1, muster_loop_after_ns(stand.test.env.loop, SOON_NS));

    snprintf(begin, sizeof(begin), "no connection to the server at %s for ", stand.address);
    assert_int_equal(params_call_await(&stand.test.env, &push), MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(params_call_await(&stand.test.env, &pull), MUSTER_DEADLINE_EXCEEDED);
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
    struct params_client_scene scene;
    struct params_call early, late;
    char text[256];

    (void)state;
    params_client_scene_open(&scene);
    muster_error_set(&scene.params->error, MUSTER_UNAVAILABLE, "another server is away");
    params_call_push(&late, scene.table, 1, params_client_scene_deadline(&scene));
    params_call_pull(&early, scene.table, 1, muster_loop_after_ns(scene.env->loop, SOON_NS));
    assert_int_equal(params_call_await(scene.env, &early), MUSTER_DEADLINE_EXCEEDED);

    snprintf(text, sizeof(text), "the server at %s has not answered in time", scene.host.address);
    assert_string_equal(early.op.error.text, text);
    assert_false(late.is_done);
    params_host_await(&scene.host, 0, 4);
    params_client_scene_acknowledge(&scene, 1);
    assert_int_equal(params_call_await(scene.env, &late), MUSTER_OK);
    params_client_scene_send(&scene, MUSTER_PARAMS_ROWS, scene.host.peer.headers[3].offset, "abcd",
                             4);
    params_client_scene_close(&scene);
}

static void operations_end_in_the_order_of_their_deadlines(void **state)
{
    struct params_client_scene scene;
    struct params_call calls[3];
    static const unsigned after[] = {3, 1, 2};

    (void)state;
    params_client_scene_open(&scene);
    for (unsigned i = 0; i < 3; i++)
        params_call_pull(&calls[i], scene.table, i,
                         muster_loop_after_ns(scene.env->loop, after[i] * SOON_NS));
    assert_int_equal(params_call_await(scene.env, &calls[0]), MUSTER_DEADLINE_EXCEEDED);

    assert_true(calls[1].is_done && calls[2].is_done);
    assert_int_equal(calls[1].done_count + calls[2].done_count, 2);
    params_client_scene_close(&scene);
}

static void an_opening_without_a_server_ends_at_its_deadline(void **state)
{
    struct test_env test;
    struct params_outcome opened = {.is_done = false};
    struct muster_params_options options = {.server = "127.0.0.1:1", .data = &opened};
    struct muster_params *params;
    struct muster_error error;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_net_system_open(&test.env, &test.env.net), MUSTER_OK);
    options.connect_deadline_ns = muster_loop_after_ns(test.env.loop, SOON_NS);
    assert_int_equal(muster_params_open(&test.env, &options, params_on_client, &params, &error),
                     MUSTER_OK);
    assert_false(opened.is_done);
    (void)params_outcome_await(&test.env, &opened);
    assert_true(opened.rc == MUSTER_UNAVAILABLE || opened.rc == MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(muster_params_error(params)->rc, opened.rc);
    opened.is_done = false;
    muster_params_close(params, muster_loop_after_ns(test.env.loop, 3600 * MUSTER_NS_PER_S),
                        params_on_client);
    (void)params_outcome_await(&test.env, &opened);
    assert_int_equal(opened.rc, MUSTER_OK);
    test_env_turn(&test.env, 4); /* a closed link's memory goes in a later turn */
    muster_net_system_close(test.env.net);
    test_env_close(&test);
}

static bool has_met(void *data)
{
    const struct muster_params *params = data;

    MUSTER_LIST_EACH (&params->ways, way, struct muster_params_way, node)
        if (way->state == MUSTER_PARAMS_WAY_MEETING)
            return true;
    return false;
}

/* Until its job begins a server has no map to tell. */
static void an_opening_at_a_server_whose_job_has_not_begun_says_so(void **state)
{
    struct params_outcome opened = {.is_done = false};
    struct muster_params_options options = {.job = "test", .data = &opened};
    struct muster_params *params;
    struct muster_params_map *map;
    struct params_stand stand;
    struct muster_error error;

    (void)state;
    params_stand_open(&stand, SHARDS);
    map = stand.server->map;
    stand.server->map = NULL;
    options.server = stand.address;
    options.connect_deadline_ns = params_stand_deadline(&stand);
    assert_int_equal(
        muster_params_open(&stand.test.env, &options, params_on_client, &params, &error),
        MUSTER_OK);
    test_env_run_until(&stand.test.env, has_met, params);
    muster_timer_stop(&params->opening_deadline);
    muster_timer_start(&params->opening_deadline, stand.test.env.loop, 0);
    (void)params_outcome_await(&stand.test.env, &opened);
    stand.server->map = map;

    assert_int_equal(opened.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(muster_params_error(params)->text, "its job has not begun: it waits "));
    opened.is_done = false;
    muster_params_close(params, params_stand_deadline(&stand), params_on_client);
    (void)params_outcome_await(&stand.test.env, &opened);
    test_env_turn(&stand.test.env, 4); /* a closed link's memory goes in a later turn */
    params_stand_close(&stand);
}

/* --- Cancellation --- */

static void a_queued_operation_is_cancelled_before_it_leaves(void **state)
{
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct params_call push, pull, kept;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &params_counters);
    params_call_push(&push, table, 1, params_stand_deadline(&stand));
    params_call_pull(&pull, table, 2, params_stand_deadline(&stand));
    muster_params_op_cancel(&push.op);
    muster_params_op_cancel(&push.op);
    muster_params_op_cancel(&pull.op);
    assert_false(push.is_done); /* never within the call */
    assert_int_equal(params_call_await(&stand.test.env, &push), MUSTER_CANCELLED);
    assert_int_equal(params_call_await(&stand.test.env, &pull), MUSTER_CANCELLED);
    params_call_push(&kept, table, 3, params_stand_deadline(&stand));
    assert_int_equal(params_call_await(&stand.test.env, &kept), MUSTER_OK);

    assert_int_equal(push.done_count, 1);
    assert_int_equal(push.op.error.rc, MUSTER_CANCELLED);
    muster_params_op_cancel(&push.op); /* it has ended: nothing happens */
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    assert_int_equal(push.done_count, 1);
    params_stand_close(&stand);
}

static void a_sent_operation_is_cancelled_and_its_answer_is_of_no_use(void **state)
{
    struct params_client_scene scene;
    struct params_call push, pull;

    (void)state;
    params_client_scene_open(&scene);
    params_call_push(&push, scene.table, 1, params_client_scene_deadline(&scene));
    params_call_pull(&pull, scene.table, 1, params_client_scene_deadline(&scene));
    params_host_await(&scene.host, 0, 4);
    muster_params_op_cancel(&push.op);
    muster_params_op_cancel(&pull.op);
    assert_int_equal(params_call_await(scene.env, &push), MUSTER_CANCELLED);
    assert_int_equal(params_call_await(scene.env, &pull), MUSTER_CANCELLED);

    params_client_scene_send(&scene, MUSTER_PARAMS_ROWS, scene.host.peer.headers[3].offset, "abcd",
                             4);
    params_client_scene_acknowledge(&scene, 1);
    assert_int_equal(params_client_scene_leave(&scene, params_client_scene_deadline(&scene)),
                     MUSTER_OK);
    assert_true(pull.value == 1); /* nothing was written to it */
    assert_int_equal(scene.host.link_count, 1);
    params_client_scene_fini(&scene);
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
    struct params_call pull = {.op = {.data = &pull}};
    float found;

    (void)state;
    params_stand_open(&stand, SHARDS);
    params = params_stand_client(&stand, NULL);
    table = params_stand_table(&stand, params, &schema);
    assert_int_equal(muster_params_pull_start(&pull.op, table, &rows, params_stand_deadline(&stand),
                                              params_on_call),
                     MUSTER_OK);
    test_env_run_until(&stand.test.env, is_receiving, params);
    muster_params_op_cancel(&pull.op);
    assert_int_equal(params_call_await(&stand.test.env, &pull), MUSTER_CANCELLED);
    memset(values, 0x5a, sizeof(values));
    table = params_stand_table(&stand, params, &params_counters);
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
    struct params_client_scene scene;
    struct params_call push, pull;
    struct muster_params_rows rows;
    struct params_call late;

    (void)state;
    params_client_scene_open(&scene);
    params_call_push(&push, scene.table, 1, params_client_scene_deadline(&scene));
    params_call_pull(&pull, scene.table, 1, params_client_scene_deadline(&scene));
    scene.outcome.is_done = false;
    muster_params_close(scene.params, params_client_scene_deadline(&scene), params_on_client);
    rows = params_call_init(&late, 1);
    assert_int_equal(muster_params_push_start(&late.op, scene.table, &rows,
                                              params_client_scene_deadline(&scene), params_on_call),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_params_pull_start(&late.op, scene.table, &rows,
                                              params_client_scene_deadline(&scene), params_on_call),
                     MUSTER_FAILED_PRECONDITION);
    assert_int_equal(params_call_await(scene.env, &pull), MUSTER_CANCELLED);
    params_host_await(&scene.host, 0, 3);
    assert_false(push.is_done || scene.outcome.is_done);
    params_client_scene_acknowledge(&scene, 1);
    (void)params_outcome_await(scene.env, &scene.outcome);

    assert_int_equal(scene.outcome.rc, MUSTER_OK);
    assert_int_equal(push.rc, MUSTER_OK);
    assert_false(late.is_done);
    params_client_scene_fini(&scene);
}

static void pushes_without_an_answer_end_at_the_deadline_of_closing(void **state)
{
    struct params_client_scene scene;
    struct params_call push;

    (void)state;
    params_client_scene_open(&scene);
    params_call_push(&push, scene.table, 1, params_client_scene_deadline(&scene));
    params_host_await(&scene.host, 0, 3);

    assert_int_equal(
        params_client_scene_leave(&scene, muster_loop_after_ns(scene.env->loop, SOON_NS)),
        MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(push.rc, MUSTER_CANCELLED);
    assert_int_equal(push.done_count, 1);
    assert_string_equal(push.op.error.text, "the client was closed");
    params_client_scene_fini(&scene);
}

/* More than the sockets hold: the link has most of the messages still. */
static void messages_that_have_not_left_end_with_the_client(void **state)
{
    enum { PUSHES = 200, ROWS = 4096 };
    static uint64_t keys[ROWS];
    static float values[ROWS];
    const struct muster_params_rows rows = {keys, values, ROWS};
    static struct params_call pushes[PUSHES];
    struct params_client_scene scene;

    (void)state;
    params_client_scene_open(&scene);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < PUSHES; i++) {
        pushes[i] = (struct params_call){.op = {.data = &pushes[i]}};
        assert_int_equal(muster_params_push_start(&pushes[i].op, scene.table, &rows,
                                                  params_client_scene_deadline(&scene),
                                                  params_on_call),
                         MUSTER_OK);
    }

    test_env_turn(scene.env, 1); /* now they are messages */
    assert_int_equal(params_client_scene_leave(&scene, muster_loop_now_ns(scene.env->loop)),
                     MUSTER_DEADLINE_EXCEEDED);
    for (uint32_t i = 0; i < PUSHES; i++)
        assert_int_equal(pushes[i].rc, MUSTER_CANCELLED);
    params_client_scene_fini(&scene);
}

/* The deadline is far: whoever waits for it fails by the guard. */
static void a_client_whose_pushes_are_cancelled_closes_at_once(void **state)
{
    struct params_client_scene scene;
    struct params_call push;

    (void)state;
    params_client_scene_open(&scene);
    params_call_push(&push, scene.table, 1, params_client_scene_deadline(&scene));
    muster_params_op_cancel(&push.op);

    assert_int_equal(params_client_scene_leave(&scene, params_client_scene_deadline(&scene)),
                     MUSTER_OK);
    assert_int_equal(push.rc, MUSTER_CANCELLED);
    params_client_scene_fini(&scene);
}

static void a_client_that_the_server_refuses_closes_at_once(void **state)
{
    struct params_client_scene scene;
    struct params_call push;

    (void)state;
    params_client_scene_open(&scene);
    params_call_push(&push, scene.table, 1, params_client_scene_deadline(&scene));
    params_host_await(&scene.host, 0, 3);
    params_peer_close(&scene.host.peer);
    params_host_answer_open(&scene.host, 1, 3, 2, SHARDS); /* another slot */
    assert_int_equal(params_call_await(scene.env, &push), MUSTER_FAILED_PRECONDITION);

    assert_int_equal(params_client_scene_leave(&scene, params_client_scene_deadline(&scene)),
                     MUSTER_DEADLINE_EXCEEDED);
    params_client_scene_fini(&scene);
}

/* --- Repetition --- */

static void a_push_is_sent_again_as_it_was(void **state)
{
    struct params_client_scene scene;
    struct params_call push;
    struct muster_frame_header header;
    uint8_t payload[256];

    (void)state;
    params_client_scene_open(&scene);
    params_call_push(&push, scene.table, 1, params_client_scene_deadline(&scene));
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
    params_client_scene_acknowledge(&scene, 1);
    assert_int_equal(params_call_await(scene.env, &push), MUSTER_OK);
    params_client_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_without_a_connection_says_why_there_is_none),
        cmocka_unit_test(a_deadline_with_a_connection_says_that_no_answer_came),
        cmocka_unit_test(operations_end_in_the_order_of_their_deadlines),
        cmocka_unit_test(an_opening_without_a_server_ends_at_its_deadline),
        cmocka_unit_test(an_opening_at_a_server_whose_job_has_not_begun_says_so),
        cmocka_unit_test(a_queued_operation_is_cancelled_before_it_leaves),
        cmocka_unit_test(a_sent_operation_is_cancelled_and_its_answer_is_of_no_use),
        cmocka_unit_test(an_operation_is_cancelled_while_its_answer_arrives),
        cmocka_unit_test(a_client_closes_when_its_pushes_are_acknowledged),
        cmocka_unit_test(pushes_without_an_answer_end_at_the_deadline_of_closing),
        cmocka_unit_test(messages_that_have_not_left_end_with_the_client),
        cmocka_unit_test(a_client_whose_pushes_are_cancelled_closes_at_once),
        cmocka_unit_test(a_client_that_the_server_refuses_closes_at_once),
        cmocka_unit_test(a_push_is_sent_again_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
