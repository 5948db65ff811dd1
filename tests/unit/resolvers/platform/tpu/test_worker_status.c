/* Asking workers for their devices, against gRPC servers that play them. */
#include "resolvers/platform/tpu/worker_status.h"

#include <string.h>

#include "torture.h"
#include "worker_stage.h"

#define TURNS 100 /* of a millisecond, at most */

struct stage {
    struct worker_stage played;
    struct muster_worker_status status;
    bool is_done;
    unsigned done_count;
    enum muster_rc rc;
};

static void stage_open(struct stage *stage, size_t count)
{
    memset(stage, 0, sizeof(*stage));
    worker_stage_open(&stage->played, count);
    stage->status.pause_first_ns = 20 * MUSTER_NS_PER_MS;
}

static void stage_close(struct stage *stage)
{
    muster_worker_status_fini(&stage->status);
    worker_stage_close(&stage->played);
}

static void on_done(struct muster_worker_status *status, enum muster_rc rc)
{
    struct stage *stage = status->data;

    stage->is_done = true;
    stage->done_count++;
    stage->rc = rc;
}

static void ask_start(struct stage *stage, uint64_t within_ms)
{
    stage->status.data = stage;
    stage->is_done = false;
    assert_int_equal(
        muster_worker_status_start(
            &stage->status, stage->played.env, stage->played.addresses, stage->played.count,
            muster_loop_after_ns(stage->played.env->loop, within_ms * MUSTER_NS_PER_MS), on_done),
        MUSTER_OK);
    assert_false(stage->is_done);
}

static void stage_ask(struct stage *stage, uint64_t within_ms)
{
    ask_start(stage, within_ms);
    test_env_run_until(stage->played.env, test_env_is_true, &stage->is_done);
}

static void assert_failed(const struct stage *stage, enum muster_rc rc, const char *word,
                          const char *address)
{
    assert_int_equal(stage->rc, rc);
    assert_int_equal(stage->status.error.rc, rc);
    if (strstr(stage->status.error.text, word) == NULL ||
        strstr(stage->status.error.text, address) == NULL)
        fail_msg("'%s' does not hold '%s' and '%s'", stage->status.error.text, word, address);
    assert_int_equal(stage->status.device_count, 0);
}

static void devices_come_in_the_order_of_the_addresses(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 3);
    stage.played.workers[1].device_count = 0;
    stage.played.workers[0].refusals = 1; /* so it answers last */
    stage.played.workers[0].refusal = MUSTER_UNAVAILABLE;

    stage_ask(&stage, 30000);

    assert_int_equal(stage.rc, MUSTER_OK);
    assert_int_equal(stage.status.device_count, 4);
    assert_string_equal(stage.status.devices[0], "/job:worker/replica:0/task:0/device:TPU:0");
    assert_string_equal(stage.status.devices[1], "/job:worker/replica:0/task:0/device:TPU:1");
    assert_string_equal(stage.status.devices[2], "/job:worker/replica:0/task:2/device:TPU:0");
    assert_string_equal(stage.status.devices[3], "/job:worker/replica:0/task:2/device:TPU:1");
    assert_int_equal(stage.played.workers[0].asked, 2);
    assert_int_equal(stage.done_count, 1);
    stage_close(&stage);
}

static void nobody_to_ask_has_no_devices(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 0);

    stage_ask(&stage, 1000);

    assert_int_equal(stage.rc, MUSTER_OK);
    assert_int_equal(stage.status.device_count, 0);
    stage_close(&stage);
}

static void a_worker_that_hangs_is_asked_again(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 1);
    stage.played.workers[0].hangs = 2;
    stage.status.try_timeout_ns = 50 * MUSTER_NS_PER_MS;

    stage_ask(&stage, 30000);

    assert_int_equal(stage.rc, MUSTER_OK);
    assert_int_equal(stage.status.device_count, 2);
    assert_true(stage.played.workers[0].asked >= 3); /* slow hosts need more */
    stage_close(&stage);
}

static void a_worker_that_hangs_to_the_end_is_named(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 2);
    stage.played.workers[1].hangs = 1000;
    stage.status.try_timeout_ns = 250 * MUSTER_NS_PER_MS;

    stage_ask(&stage, 1500);

    assert_failed(&stage, MUSTER_UNAVAILABLE, "cannot connect to TPU worker",
                  stage.played.addresses[1]);
    assert_int_equal(stage.played.workers[0].asked, 1);
    assert_true(stage.played.workers[1].asked > 1);
    stage_close(&stage);
}

static void who_hangs_is_waited_for_until_shortly_before_the_deadline(void **state)
{
    struct stage stage;
    uint64_t deadline_ns;
    (void)state;
    stage_open(&stage, 1);
    stage.played.workers[0].hangs = 1000;
    ask_start(&stage, 200);
    deadline_ns = stage.status.deadline_ns;

    test_env_run_until(stage.played.env, test_env_is_true, &stage.is_done);

    assert_failed(&stage, MUSTER_UNAVAILABLE, "cannot connect", stage.played.addresses[0]);
    assert_true(muster_loop_now_ns(stage.played.env->loop) >= deadline_ns - 5 * MUSTER_NS_PER_MS);
    stage_close(&stage);
}

static void a_worker_that_is_away_is_named_in_time(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 2);
    worker_stage_leave(&stage.played, &stage.played.workers[0]);

    stage_ask(&stage, 1500);

    assert_failed(&stage, MUSTER_UNAVAILABLE, "cannot connect to TPU worker",
                  stage.played.addresses[0]);
    stage_close(&stage);
}

struct return_of_worker {
    struct stage *stage;
    struct muster_timer timer;
};

static void on_return(struct muster_timer *timer)
{
    struct return_of_worker *event = timer->data;

    worker_stage_serve(&event->stage->played, &event->stage->played.workers[0]);
}

static void a_worker_that_comes_back_answers(void **state)
{
    struct return_of_worker event;
    struct stage stage;
    (void)state;
    stage_open(&stage, 1);
    worker_stage_leave(&stage.played, &stage.played.workers[0]);
    event.stage = &stage;
    muster_timer_init(&event.timer, on_return, &event);
    muster_timer_start(&event.timer, stage.played.env->loop,
                       muster_loop_after_ns(stage.played.env->loop, 50 * MUSTER_NS_PER_MS));

    stage_ask(&stage, 30000);

    assert_int_equal(stage.rc, MUSTER_OK);
    assert_int_equal(stage.status.device_count, 2);
    stage_close(&stage);
}

static void a_server_of_something_else_is_named_at_once(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 1);
    worker_stage_leave(&stage.played, &stage.played.workers[0]);
    stage.played.workers[0].is_deaf = true;
    worker_stage_serve(&stage.played, &stage.played.workers[0]);

    stage_ask(&stage, 30000);

    assert_failed(&stage, MUSTER_UNIMPLEMENTED, "UNIMPLEMENTED", stage.played.addresses[0]);
    stage_close(&stage);
}

static void a_refusal_that_is_final_is_not_repeated(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 1);
    stage.played.workers[0].refusals = 1;
    stage.played.workers[0].refusal = MUSTER_PERMISSION_DENIED;

    stage_ask(&stage, 30000);

    assert_failed(&stage, MUSTER_PERMISSION_DENIED, "not now", stage.played.addresses[0]);
    assert_int_equal(stage.played.workers[0].asked, 1);
    stage_close(&stage);
}

static void garbage_is_no_list_of_devices(void **state)
{
    static const char *const texts[] = {"\x0a\xff\xff\x03", "\x0a\x03\x0a\x01\xff", "no protobuf"};
    struct stage stage;
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        stage_open(&stage, 1);
        stage.played.workers[0].raw = texts[i];

        stage_ask(&stage, 30000);

        assert_failed(&stage, MUSTER_INVALID_ARGUMENT, "lists no devices",
                      stage.played.addresses[0]);
        stage_close(&stage);
    }
}

static void an_answer_beyond_all_measure_is_refused(void **state)
{
    static char huge[MUSTER_WORKER_STATUS_RESPONSE_MAX + 2];
    struct stage stage;
    (void)state;
    memset(huge, 'x', sizeof(huge) - 1);
    stage_open(&stage, 1);
    stage.played.workers[0].raw = huge;

    stage_ask(&stage, 30000);

    assert_failed(&stage, MUSTER_RESOURCE_EXHAUSTED, "TPU worker", stage.played.addresses[0]);
    stage_close(&stage);
}

static void what_is_no_address_is_named(void **state)
{
    static const char *const texts[] = {"nobody", "a:1,b:2", "unix:/tmp/x", "unix:@x", "h:0x1", ""};
    struct stage stage;
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        stage_open(&stage, 2);
        stage.played.addresses[1] = texts[i];

        stage_ask(&stage, 30000);

        assert_failed(&stage, MUSTER_INVALID_ARGUMENT, "cannot be asked", texts[i]);
        stage_close(&stage);
    }
}

static void cancel_ends_the_question_once(void **state)
{
    struct stage stage;
    (void)state;
    for (unsigned turns = 0; turns < 12; turns++) {
        stage_open(&stage, 2);
        stage.played.workers[0].hangs = 1000;
        ask_start(&stage, 30000);
        for (unsigned i = 0; i < turns; i++)
            muster_loop_turn(stage.played.env->loop, MUSTER_NS_PER_MS);

        muster_worker_status_cancel(&stage.status);
        muster_worker_status_cancel(&stage.status);
        assert_false(stage.is_done);
        test_env_run_until(stage.played.env, test_env_is_true, &stage.is_done);
        test_env_turn(stage.played.env, 4);

        assert_int_equal(stage.rc, MUSTER_CANCELLED);
        assert_int_equal(stage.done_count, 1);
        stage_close(&stage);
    }
}

static void cancel_ends_a_pause(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 1);
    worker_stage_leave(&stage.played, &stage.played.workers[0]);
    ask_start(&stage, 30000);
    for (unsigned i = 0; i < 50; i++) /* the connection is refused by now */
        muster_loop_turn(stage.played.env->loop, MUSTER_NS_PER_MS);

    muster_worker_status_cancel(&stage.status);
    test_env_run_until(stage.played.env, test_env_is_true, &stage.is_done);

    assert_int_equal(stage.rc, MUSTER_CANCELLED);
    stage_close(&stage);
}

static void no_more_than_64_are_asked_at_once(void **state)
{
    static struct stage stage;
    (void)state;
    stage_open(&stage, WORKER_STAGE_MAX);
    stage.played.crowd = MUSTER_WORKER_STATUS_AT_ONCE;
    stage.status.try_timeout_ns = 50 * MUSTER_NS_PER_S;

    stage_ask(&stage, 50000);

    assert_int_equal(stage.rc, MUSTER_OK);
    assert_int_equal(stage.status.device_count, 2 * WORKER_STAGE_MAX);
    assert_string_equal(stage.status.devices[199], "/job:worker/replica:0/task:99/device:TPU:1");
    assert_int_equal(stage.played.open_peak, MUSTER_WORKER_STATUS_AT_ONCE);
    stage_close(&stage);
}

static void the_same_memory_asks_again(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 1);
    stage_ask(&stage, 30000);
    muster_worker_status_fini(&stage.status);

    stage_ask(&stage, 30000);

    assert_int_equal(stage.rc, MUSTER_OK);
    assert_int_equal(stage.status.device_count, 2);
    stage_close(&stage);
}

static void more_workers_than_there_may_be_are_refused(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage, 1);

    assert_int_equal(
        muster_worker_status_start(&stage.status, stage.played.env, stage.played.addresses,
                                   MUSTER_WORKER_STATUS_WORKERS_MAX + 1, UINT64_MAX, on_done),
        MUSTER_RESOURCE_EXHAUSTED);

    stage_close(&stage);
}

static void run_status(struct torture *torture, const void *data)
{
    struct stage stage;
    enum muster_rc rc;

    (void)data;
    stage_open(&stage, 1);
    stage.status.data = &stage;
    stage.status.pause_first_ns = 5 * MUSTER_NS_PER_MS;
    torture_arm_limited(torture, &stage.played.test.mem);
    rc = muster_worker_status_start(
        &stage.status, stage.played.env, stage.played.addresses, 1,
        muster_loop_after_ns(stage.played.env->loop, 30000 * MUSTER_NS_PER_MS), on_done);
    assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
    if (rc == MUSTER_OK) {
        for (unsigned i = 0; i < TURNS && !stage.is_done; i++) /* with memory it asks again */
            muster_loop_turn(stage.played.env->loop, MUSTER_NS_PER_MS);
        torture_disarm(torture);
        test_env_run_until(stage.played.env, test_env_is_true, &stage.is_done);
        assert_int_equal(stage.done_count, 1);
        assert_true(stage.rc == MUSTER_OK || torture->refused > 0);
    }
    torture_disarm(torture);
    stage_close(&stage);
}

static void lack_of_memory_ends_the_question(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "status", .run = run_status});
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_come_in_the_order_of_the_addresses),
        cmocka_unit_test(nobody_to_ask_has_no_devices),
        cmocka_unit_test(a_worker_that_hangs_is_asked_again),
        cmocka_unit_test(a_worker_that_hangs_to_the_end_is_named),
        cmocka_unit_test(who_hangs_is_waited_for_until_shortly_before_the_deadline),
        cmocka_unit_test(a_worker_that_is_away_is_named_in_time),
        cmocka_unit_test(a_worker_that_comes_back_answers),
        cmocka_unit_test(a_server_of_something_else_is_named_at_once),
        cmocka_unit_test(a_refusal_that_is_final_is_not_repeated),
        cmocka_unit_test(garbage_is_no_list_of_devices),
        cmocka_unit_test(an_answer_beyond_all_measure_is_refused),
        cmocka_unit_test(what_is_no_address_is_named),
        cmocka_unit_test(cancel_ends_the_question_once),
        cmocka_unit_test(cancel_ends_a_pause),
        cmocka_unit_test(no_more_than_64_are_asked_at_once),
        cmocka_unit_test(the_same_memory_asks_again),
        cmocka_unit_test(more_workers_than_there_may_be_are_refused),
        cmocka_unit_test(lack_of_memory_ends_the_question),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
