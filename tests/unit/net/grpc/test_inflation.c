/* Messages that take several turns to inflate, both ways, and what happens amid that. */
#include "rpc_fixture.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES (2u << 20)
#define MESSAGE_TURNS 8 /* that one takes */
#define MESSAGES      3

struct scene {
    struct rpc_fixture fixture;
    struct muster_rpc *rpc; /* NULL: over */
    unsigned messages, half_closes, ends;
    enum muster_rc end_rc;
};

static void on_start(struct muster_rpc *rpc)
{
    ((struct scene *)muster_rpc_service(rpc))->rpc = rpc;
    muster_rpc_set_compression(rpc, MUSTER_COMPRESSION_GZIP);
}

/* 'a', 'b', ... : the first letter tells which it is. */
static void check_message(struct muster_bytes message, unsigned number)
{
    const char *text = message.data;

    assert_true(number < MESSAGES);
    assert_int_equal(message.size, MESSAGE_BYTES);
    assert_int_equal(text[0], 'a' + (int)number);
    assert_memory_equal(text, text + 1, MESSAGE_BYTES - 1);
}

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct scene *scene = muster_rpc_service(rpc);

    check_message(message, scene->messages++);
    assert_int_equal(scene->half_closes, 0);
    assert_int_equal(muster_rpc_send(rpc, message.data, message.size), MUSTER_OK);
}

static void on_half_close(struct muster_rpc *rpc)
{
    struct scene *scene = muster_rpc_service(rpc);

    scene->half_closes++;
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    struct scene *scene = muster_rpc_service(rpc);

    scene->rpc = NULL;
    scene->ends++;
    scene->end_rc = rc;
}

static const struct muster_rpc_method methods[] = {
    {.path = "/test.Inflation/Echo",
     .on_start = on_start,
     .on_message = on_message,
     .on_half_close = on_half_close,
     .on_end = on_end},
};

static int set_up(void **state)
{
    struct scene *scene = rpc_scene_open(state, sizeof(*scene), NULL, NULL);

    assert_int_equal(muster_rpc_server_add(scene->fixture.server, methods, 1, scene), MUSTER_OK);
    return 0;
}

struct caller {
    struct muster_call call;
    unsigned messages, done;
    enum muster_rc rc;
};

static void on_answer(struct muster_call *call, struct muster_bytes message)
{
    struct caller *caller = MUSTER_CONTAINER_OF(call, struct caller, call);

    check_message(message, caller->messages++);
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct caller *caller = MUSTER_CONTAINER_OF(call, struct caller, call);

    caller->done++;
    caller->rc = rc;
}

static bool is_done(void *data)
{
    return ((const struct caller *)data)->done > 0;
}

static void caller_start(struct caller *caller, struct scene *scene, uint64_t deadline_ns)
{
    const struct muster_call_options options = {.method = methods[0].path,
                                                .deadline_ns = deadline_ns,
                                                .compression = MUSTER_COMPRESSION_GZIP,
                                                .on_message = on_answer};
    char *text = malloc(MESSAGE_BYTES);

    assert_int_equal(muster_call_start(&caller->call, scene->fixture.channel, &options, on_done),
                     MUSTER_OK);
    for (int i = 0; i < MESSAGES; i++) {
        memset(text, 'a' + i, MESSAGE_BYTES);
        assert_int_equal(muster_call_send(&caller->call, text, MESSAGE_BYTES), MUSTER_OK);
    }
    muster_call_half_close(&caller->call);
    free(text);
}

static void messages_come_in_order_before_the_end(void **state)
{
    struct scene *scene = *state;
    struct caller caller = {.done = 0};

    caller_start(&caller, scene, UINT64_MAX);
    test_env_run_until(scene->fixture.env, is_done, &caller);

    assert_int_equal(caller.rc, MUSTER_OK);
    assert_int_equal(caller.messages, MESSAGES);
    assert_int_equal(scene->half_closes, 1);
    assert_int_equal(scene->ends, 1);
    assert_int_equal(scene->end_rc, MUSTER_OK);
}

static void others_have_turns_amid_a_message(void **state)
{
    struct scene *scene = *state;
    struct caller caller = {.done = 0};
    unsigned turns = 0;

    caller_start(&caller, scene, UINT64_MAX);
    while (scene->messages == 0) {
        muster_loop_turn(scene->fixture.env->loop, UINT64_MAX);
        turns += scene->rpc != NULL;
    }
    test_env_run_until(scene->fixture.env, is_done, &caller);

    assert_true(turns >= MESSAGE_TURNS);
}

/* Pauses that last for a turn, or for none, before, amid and behind each message. */
static void pauses_amid_a_message_change_nothing(void **state)
{
    struct scene *scene = *state;
    struct caller caller = {.done = 0};

    caller_start(&caller, scene, UINT64_MAX);
    for (unsigned turns = 0; turns < 100000 && caller.done == 0; turns++) {
        if (turns % 3 != 1) {
            muster_call_pause(&caller.call);
            if (scene->rpc != NULL)
                muster_rpc_pause(scene->rpc);
        }
        if (turns % 3 != 0) {
            muster_call_resume(&caller.call);
            if (scene->rpc != NULL)
                muster_rpc_resume(scene->rpc);
        }
        muster_loop_turn(scene->fixture.env->loop, 0);
    }

    assert_int_equal(caller.done, 1);
    assert_int_equal(caller.rc, MUSTER_OK);
    assert_int_equal(caller.messages, MESSAGES);
    assert_int_equal(scene->ends, 1);
}

static bool has_ended(void *data)
{
    return ((const struct scene *)data)->ends > 0;
}

/* At each turn once: on both sides it ends once, and nothing is left (set_up, rpc_scene_tear_down). */
static void a_call_may_be_cancelled_at_any_turn(void **state)
{
    struct scene *scene = *state;
    bool was_ok = false;

    for (unsigned at = 0; !was_ok; at++) {
        struct caller caller = {.done = 0};

        scene->messages = scene->half_closes = scene->ends = 0;
        caller_start(&caller, scene, UINT64_MAX);
        for (unsigned turns = 0; turns < at && caller.done == 0; turns++)
            muster_loop_turn(scene->fixture.env->loop, 0);
        if (caller.done == 0)
            muster_call_cancel(&caller.call);
        test_env_run_until(scene->fixture.env, is_done, &caller);
        was_ok = caller.rc == MUSTER_OK;
        assert_int_equal(caller.done, 1);
        if (scene->rpc != NULL)
            test_env_run_until(scene->fixture.env, has_ended, scene);
        assert_true(scene->ends <= 1);
    }
}

/* The server goes at each turn once. */
static void a_server_may_go_at_any_turn(void **state)
{
    struct scene *scene = *state;
    char target[MUSTER_ADDRESS_TEXT_BYTES];
    bool was_ok = false;

    for (unsigned at = 0; !was_ok; at++) {
        struct caller caller = {.done = 0};

        scene->messages = scene->half_closes = 0;
        caller_start(&caller, scene, UINT64_MAX);
        for (unsigned turns = 0; turns < at && caller.done == 0; turns++)
            muster_loop_turn(scene->fixture.env->loop, 0);
        was_ok = caller.done > 0 && caller.rc == MUSTER_OK;
        rpc_fixture_stop_serving(&scene->fixture, 0);
        rpc_fixture_hang_up(&scene->fixture);
        test_env_run_until(scene->fixture.env, is_done, &caller);
        assert_null(scene->rpc);
        rpc_fixture_serve(&scene->fixture, NULL);
        rpc_fixture_dial(&scene->fixture, muster_address_format(&scene->fixture.address, target),
                         NULL);
        assert_int_equal(muster_rpc_server_add(scene->fixture.server, methods, 1, scene),
                         MUSTER_OK);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(messages_come_in_order_before_the_end), CASE(others_have_turns_amid_a_message),
        CASE(pauses_amid_a_message_change_nothing),  CASE(a_call_may_be_cancelled_at_any_turn),
        CASE(a_server_may_go_at_any_turn),
    };

    return cmocka_run_group_tests_name("rpc_inflation", tests, NULL, NULL);
}
