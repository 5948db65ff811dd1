/* The watch of one selector, step by step, against a played API server. */
#include "resolvers/platform/kubernetes/watch.h"

#include "careful_mem.h"
#include "cloud_fixture.h"
#include "torture.h"

#include <string.h>

#define HELD                                                                                       \
    "[{\"match\":{\"query\":{\"watch\":\"true\"}},\"response\":{\"hold\":true,\"chunks\":[]}}]"
#define EVENT "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"8\"}}}\n"

struct stage {
    struct cloud_fixture f;
    struct muster_kubernetes_server server;
    struct muster_kubernetes_watch watch;
    int change_count;
    int off_count;
    size_t stream_count;
    enum muster_kubernetes_watch_state awaited;
};

static void on_change(struct muster_kubernetes_watch *watch)
{
    ((struct stage *)watch->data)->change_count++;
}

static void on_off(struct muster_kubernetes_watch *watch)
{
    ((struct stage *)watch->data)->off_count++;
}

static void stage_open(struct stage *stage)
{
    struct muster_kubernetes_resolver_options options = {.job_count = 0};
    struct muster_error error;

    memset(stage, 0, sizeof(*stage));
    cloud_fixture_open(&stage->f, NULL);
    cloud_fixture_script(&stage->f, HELD);
    options.api_server = fake_cloud_base(stage->f.cloud);
    assert_int_equal(muster_kubernetes_server_init(&stage->server, stage->f.env, &options, &error),
                     MUSTER_OK);
    muster_kubernetes_watch_init(&stage->watch, &stage->server, "a=b");
    stage->watch.data = stage;
    stage->watch.on_change = on_change;
    stage->watch.on_off = on_off;
}

static bool has_come(void *data)
{
    struct stage *stage = data;

    return stage->watch.state == stage->awaited;
}

static void wait_for(struct stage *stage, enum muster_kubernetes_watch_state state)
{
    stage->awaited = state;
    test_env_run_until(stage->f.env, has_come, stage);
}

static bool is_heard(void *data)
{
    const struct stage *stage = data;

    return fake_cloud_counts(stage->f.cloud)->requests == stage->stream_count &&
           fake_cloud_push(stage->f.cloud, "\n") == 1;
}

static void stage_stream(struct stage *stage)
{
    stage->stream_count++;
    muster_kubernetes_watch_listed(&stage->watch, "7");
    assert_int_equal(stage->watch.state, MUSTER_KUBERNETES_WATCH_STREAMING);
    test_env_run_until(stage->f.env, is_heard, stage);
}

static void stage_close(struct stage *stage)
{
    int before = stage->off_count;
    bool was_off = stage->watch.state == MUSTER_KUBERNETES_WATCH_OFF;

    muster_kubernetes_watch_stop(&stage->watch);
    muster_kubernetes_watch_stop(&stage->watch);
    wait_for(stage, MUSTER_KUBERNETES_WATCH_OFF);
    assert_int_equal(stage->off_count, was_off ? before : before + 1);
    muster_kubernetes_watch_fini(&stage->watch);
    muster_kubernetes_server_fini(&stage->server);
    cloud_fixture_close(&stage->f);
}

static void a_watch_wanted_again_before_it_has_ended_asks_for_a_listing(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    muster_kubernetes_watch_start(&stage.watch);
    stage_stream(&stage);

    muster_kubernetes_watch_stop(&stage.watch);
    muster_kubernetes_watch_start(&stage.watch);
    assert_int_equal(stage.watch.state, MUSTER_KUBERNETES_WATCH_RENEWING);
    wait_for(&stage, MUSTER_KUBERNETES_WATCH_UNLISTED);

    assert_int_equal(stage.off_count, 0);
    assert_int_equal(stage.change_count, 1);
    stage_stream(&stage);
    stage_close(&stage);
}

static void a_watch_can_be_stopped_while_it_renews(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    muster_kubernetes_watch_start(&stage.watch);
    stage_stream(&stage);

    muster_kubernetes_watch_stop(&stage.watch);
    muster_kubernetes_watch_start(&stage.watch);

    stage_close(&stage);
}

static void an_event_that_memory_does_not_hold_ends_the_stream(void **state)
{
    struct muster_mem_limited none;
    struct stage stage;
    (void)state;
    stage_open(&stage);
    muster_kubernetes_watch_start(&stage.watch);
    stage_stream(&stage);

    muster_text_fini(&stage.watch.line);
    muster_mem_limited_init(&none, careful_mem(), 1);
    stage.watch.line.mem = &none.mem;
    fake_cloud_push(stage.f.cloud, EVENT);
    wait_for(&stage, MUSTER_KUBERNETES_WATCH_BACKOFF);

    assert_int_equal(stage.change_count, 0);
    stage_close(&stage);
    assert_int_equal(muster_mem_limited_fini(&none), 0);
}

static void run_start(struct torture *torture, const void *data)
{
    struct stage stage;
    (void)data;
    stage_open(&stage);
    muster_kubernetes_watch_start(&stage.watch);
    torture_arm_limited(torture, &stage.f.test.mem);
    muster_kubernetes_watch_listed(&stage.watch, "7");
    torture_disarm(torture);
    if (torture->refused == 0)
        assert_int_equal(stage.watch.state, MUSTER_KUBERNETES_WATCH_STREAMING);
    if (stage.watch.state != MUSTER_KUBERNETES_WATCH_STREAMING) {
        assert_int_equal(stage.watch.state, MUSTER_KUBERNETES_WATCH_BACKOFF);
        assert_null(stage.watch.url);
    }

    stage_close(&stage); /* and nothing is left */
}

static void a_stream_that_memory_does_not_hold_is_tried_later(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "start", .run = run_start});
}

static void a_change_is_told_and_its_version_kept(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    muster_kubernetes_watch_start(&stage.watch);
    stage_stream(&stage);

    fake_cloud_push(stage.f.cloud, EVENT);
    while (stage.change_count == 0)
        muster_loop_turn(stage.f.env->loop, UINT64_MAX);

    assert_string_equal(stage.watch.version, "8");
    stage_close(&stage);
}

#define EXPIRED "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n"

static void a_version_that_expires_again_and_again_is_asked_for_with_a_pause(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    muster_kubernetes_watch_start(&stage.watch);
    stage_stream(&stage);

    fake_cloud_push(stage.f.cloud, EXPIRED);
    wait_for(&stage, MUSTER_KUBERNETES_WATCH_UNLISTED);
    stage_stream(&stage);
    fake_cloud_push(stage.f.cloud, EXPIRED);
    while (stage.watch.state == MUSTER_KUBERNETES_WATCH_STREAMING)
        muster_loop_turn(stage.f.env->loop, UINT64_MAX);

    assert_int_equal(stage.watch.state, MUSTER_KUBERNETES_WATCH_BACKOFF);
    assert_int_equal(stage.change_count, 1);
    muster_timer_start(&stage.watch.timer, stage.f.env->loop, 0); /* the pause is over */
    test_env_turn(stage.f.env, 2);
    assert_int_equal(stage.watch.state, MUSTER_KUBERNETES_WATCH_UNLISTED);
    assert_int_equal(stage.change_count, 2);
    stage_close(&stage);
}

static void a_server_that_ends_streams_at_once_is_not_asked_in_a_circle(void **state)
{
    struct stage stage;
    (void)state;
    stage_open(&stage);
    fake_cloud_forget_script(stage.f.cloud);
    cloud_fixture_script(&stage.f, "[{\"response\":{\"body\":\"\"}}]");
    muster_kubernetes_watch_start(&stage.watch);

    muster_kubernetes_watch_listed(&stage.watch, "7");
    wait_for(&stage, MUSTER_KUBERNETES_WATCH_BACKOFF);

    assert_int_equal(fake_cloud_counts(stage.f.cloud)->requests, 1);
    stage_close(&stage);
}

static void an_event_without_end_ends_the_stream(void **state)
{
    static char piece[1u << 20];
    struct stage stage;
    (void)state;
    stage_open(&stage);
    muster_kubernetes_watch_start(&stage.watch);
    stage_stream(&stage);
    memset(piece, 'x', sizeof(piece) - 1);

    for (int i = 0; i < 5; i++)
        fake_cloud_push(stage.f.cloud, piece);
    wait_for(&stage, MUSTER_KUBERNETES_WATCH_BACKOFF);

    assert_int_equal(stage.change_count, 0);
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_is_told_and_its_version_kept),
        cmocka_unit_test(a_watch_wanted_again_before_it_has_ended_asks_for_a_listing),
        cmocka_unit_test(a_watch_can_be_stopped_while_it_renews),
        cmocka_unit_test(an_event_that_memory_does_not_hold_ends_the_stream),
        cmocka_unit_test_teardown(a_stream_that_memory_does_not_hold_is_tried_later, torture_tell),
        cmocka_unit_test(a_version_that_expires_again_and_again_is_asked_for_with_a_pause),
        cmocka_unit_test(a_server_that_ends_streams_at_once_is_not_asked_in_a_circle),
        cmocka_unit_test(an_event_without_end_ends_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
