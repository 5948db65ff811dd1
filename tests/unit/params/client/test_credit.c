/* Credit: a client keeps what goes beyond it, and says for what it waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_client_scene.h"

#include <stdio.h>
#include <string.h>

#include "params/client/client_internal.h"

#define SHARDS PARAMS_CLIENT_SCENE_SHARDS
/* Not over before the operation begins, on a busy machine either. */
#define SOON_NS (50 * MUSTER_NS_PER_MS)
/* Room for one push of a row, or one pull, and not for two. */
#define CREDIT 400u

static void message_send(struct params_client_scene *scene, struct muster_frame_header header,
                         const void *payload)
{
    header.channel = MUSTER_FRAME_PARAMS;
    params_peer_send(&scene->host.peer, &header, payload);
}

/* The server's credit comes with any answer: here with one of which nobody waits for. */
static void credit_tell(struct params_client_scene *scene, uint64_t credit)
{
    uint8_t bytes[MUSTER_PARAMS_ACK_BYTES];

    muster_params_ack_pack(&(struct muster_params_ack){.sequence = 1000}, bytes);
    message_send(scene,
                 (struct muster_frame_header){.type = MUSTER_PARAMS_ACK,
                                              .payload_bytes = sizeof(bytes),
                                              .op = {.step = credit}},
                 bytes);
}

static bool has_credit(void *data)
{
    const struct muster_params *params = data;

    return params->routes[0]->credit != 0;
}

static void scene_open(struct params_client_scene *scene, uint64_t credit)
{
    params_client_scene_open(scene);
    credit_tell(scene, credit);
    test_env_run_until(scene->env, has_credit, scene->params);
}

/* The operations of a turn would share a message. */
static void push_alone(struct params_client_scene *scene, struct params_call *call, uint64_t key)
{
    params_call_push(call, scene->table, key, params_client_scene_deadline(scene));
    test_env_turn(scene->env, 4);
}

static void pushes_wait_for_credit_and_leave_in_their_order(void **state)
{
    struct params_client_scene scene;
    struct params_call calls[4];

    (void)state;
    scene_open(&scene, CREDIT);
    for (uint64_t i = 0; i < 4; i++)
        push_alone(&scene, &calls[i], i);
    test_env_turn(scene.env, 20);
    assert_int_equal(scene.host.peer.count, 3); /* OPEN, TABLE, and the first push */
    for (uint64_t i = 0; i < 4; i++) {
        params_host_await(&scene.host, 0, (uint32_t)(3 + i));
        assert_int_equal(scene.host.peer.headers[2 + i].type, MUSTER_PARAMS_PUSH);
        assert_int_equal(scene.host.peer.headers[2 + i].offset, i + 1);
        params_client_scene_acknowledge(&scene, i + 1);
        assert_int_equal(params_call_await(scene.env, &calls[i]), MUSTER_OK);
    }
    params_client_scene_close(&scene);
}

/* It may be larger than the credit: it could never leave else. */
static void a_message_leaves_where_nothing_else_is_outstanding(void **state)
{
    struct params_client_scene scene;
    struct params_call push;

    (void)state;
    scene_open(&scene, 1);
    push_alone(&scene, &push, 1);
    params_host_await(&scene.host, 0, 3);
    params_client_scene_acknowledge(&scene, 1);
    assert_int_equal(params_call_await(scene.env, &push), MUSTER_OK);
    params_client_scene_close(&scene);
}

static void more_credit_lets_more_leave(void **state)
{
    struct params_client_scene scene;
    struct params_call calls[3];

    (void)state;
    scene_open(&scene, CREDIT);
    for (uint64_t i = 0; i < 3; i++)
        push_alone(&scene, &calls[i], i);
    message_send(
        &scene,
        (struct muster_frame_header){.type = MUSTER_PARAMS_TICKED, .op = {.step = 100 * CREDIT}},
        NULL);
    params_host_await(&scene.host, 0, 5);
    assert_int_equal(scene.host.peer.headers[4].offset, 3);
    params_client_scene_close(&scene);
}

static void the_deadline_names_the_server_and_the_credit(void **state)
{
    struct params_client_scene scene;
    struct params_call first, second;
    char text[300];

    (void)state;
    scene_open(&scene, CREDIT);
    push_alone(&scene, &first, 1);
    params_call_push(&second, scene.table, 2, muster_loop_after_ns(scene.env->loop, SOON_NS));
    assert_int_equal(params_call_await(scene.env, &second), MUSTER_DEADLINE_EXCEEDED);

    snprintf(text, sizeof(text), "the server at %s has not answered ", scene.host.address);
    assert_memory_equal(second.op.error.text, text, strlen(text));
    snprintf(text, sizeof(text), "its credit is %u bytes", CREDIT);
    assert_non_null(strstr(second.op.error.text, text));
    params_client_scene_close(&scene);
}

static void table_open(struct params_client_scene *scene, const char *name,
                       struct muster_params_table **ret_table)
{
    struct muster_params_schema schema = params_counters;
    struct muster_frame_header header = {
        .type = MUSTER_PARAMS_TABLE_OPEN, .phase = 1, .descriptor = 78};
    uint32_t frames = scene->host.peer.count;
    struct params_call call = {.op = {.data = &call}};

    schema.name = name;
    assert_int_equal(muster_params_table_start(&call.op, scene->params, &schema, ret_table,
                                               params_client_scene_deadline(scene), params_on_call),
                     MUSTER_OK);
    params_host_await(&scene->host, 0, frames + 1);
    header.offset = scene->host.peer.headers[frames].offset;
    message_send(scene, header, NULL);
    assert_int_equal(params_call_await(scene->env, &call), MUSTER_OK);
}

/* A pull shows what the same program has pushed to its table before, and need not wait for other pushes. */
static void a_pull_passes_pushes_to_other_tables_that_wait(void **state)
{
    struct params_client_scene scene;
    struct muster_params_table *other;
    struct params_call pushes[2], same, passing;

    (void)state;
    scene_open(&scene, CREDIT);
    table_open(&scene, "other", &other);
    push_alone(&scene, &pushes[0], 1);
    push_alone(&scene, &pushes[1], 2);
    params_call_pull(&same, scene.table, 2, params_client_scene_deadline(&scene));
    params_call_pull(&passing, other, 2, params_client_scene_deadline(&scene));
    params_host_await(&scene.host, 0, 5); /* OPEN, TABLE twice, PUSH, PULL */
    assert_int_equal(scene.host.peer.headers[4].type, MUSTER_PARAMS_PULL);
    assert_int_equal(scene.host.peer.headers[4].descriptor, 78);
    params_client_scene_send(&scene, MUSTER_PARAMS_ROWS, scene.host.peer.headers[4].offset, "abcd",
                             4);
    assert_int_equal(params_call_await(scene.env, &passing), MUSTER_OK);
    assert_int_equal(scene.host.peer.count, 5);

    params_client_scene_acknowledge(&scene, 1);
    params_host_await(&scene.host, 0, 7);
    assert_int_equal(scene.host.peer.headers[5].type, MUSTER_PARAMS_PUSH);
    assert_int_equal(scene.host.peer.headers[6].type, MUSTER_PARAMS_PULL);
    assert_false(same.is_done);
    params_client_scene_close(&scene);
}

/* A pull may wait for a clock that comes with the pushes. */
static void pulls_take_no_credit_of_pushes(void **state)
{
    struct params_client_scene scene;
    struct params_call pulls[2], push;

    (void)state;
    scene_open(&scene, CREDIT);
    for (uint64_t i = 0; i < 2; i++) {
        params_call_pull(&pulls[i], scene.table, i, params_client_scene_deadline(&scene));
        test_env_turn(scene.env, 4);
    }
    push_alone(&scene, &push, 1);
    params_host_await(&scene.host, 0, 4);
    test_env_turn(scene.env, 20);
    assert_int_equal(scene.host.peer.count, 4);
    assert_int_equal(scene.host.peer.headers[2].type, MUSTER_PARAMS_PULL);
    assert_int_equal(scene.host.peer.headers[3].type, MUSTER_PARAMS_PUSH);
    params_client_scene_send(&scene, MUSTER_PARAMS_ROWS, scene.host.peer.headers[2].offset, "abcd",
                             4);
    params_host_await(&scene.host, 0, 5);
    assert_int_equal(scene.host.peer.headers[4].type, MUSTER_PARAMS_PULL);
    params_client_scene_close(&scene);
}

/* A cut has all pushes that have numbers, or none of them: they do not wait for credit then. */
static void what_waits_for_credit_leaves_before_a_mark(void **state)
{
    struct params_client_scene scene;
    struct params_call pushes[3];
    const uint64_t number = 7;

    (void)state;
    scene_open(&scene, CREDIT);
    for (uint64_t i = 0; i < 3; i++)
        push_alone(&scene, &pushes[i], i);
    assert_int_equal(scene.host.peer.count, 3);
    params_client_scene_send(&scene, MUSTER_PARAMS_CUT, 0, &number, sizeof(number));
    params_host_await(&scene.host, 0, 6);
    assert_int_equal(scene.host.peer.headers[3].offset, 2);
    assert_int_equal(scene.host.peer.headers[4].offset, 3);
    assert_int_equal(scene.host.peer.headers[5].type, MUSTER_PARAMS_MARK);
    params_client_scene_close(&scene);
}

/* Nothing is outstanding at a link that is new. */
static void a_new_link_begins_with_its_whole_credit(void **state)
{
    struct params_client_scene scene;
    struct params_call pushes[2];

    (void)state;
    scene_open(&scene, CREDIT);
    push_alone(&scene, &pushes[0], 1);
    push_alone(&scene, &pushes[1], 2);
    params_peer_close(&scene.host.peer);
    params_host_answer_open(&scene.host, 1, 0, 1, SHARDS);
    params_host_await(&scene.host, 1, 2);
    assert_int_equal(scene.host.peer.headers[1].offset, 1);
    params_client_scene_acknowledge(&scene, 1);
    params_host_await(&scene.host, 1, 3);
    assert_int_equal(scene.host.peer.headers[2].offset, 2);
    params_client_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_wait_for_credit_and_leave_in_their_order),
        cmocka_unit_test(a_message_leaves_where_nothing_else_is_outstanding),
        cmocka_unit_test(more_credit_lets_more_leave),
        cmocka_unit_test(the_deadline_names_the_server_and_the_credit),
        cmocka_unit_test(a_pull_passes_pushes_to_other_tables_that_wait),
        cmocka_unit_test(pulls_take_no_credit_of_pushes),
        cmocka_unit_test(what_waits_for_credit_leaves_before_a_mark),
        cmocka_unit_test(a_new_link_begins_with_its_whole_credit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
