/* Tick and Watch by gRPC: a stranger counts among the sources that tick, and hears of maps, tables and clocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_caller.h"

#include <math.h>
#include <string.h>

/* --- Tick --- */

static struct params_answer job_inspect(struct params_caller *scene)
{
    Muster__Params__V1__InspectRequest request;

    muster__params__v1__inspect_request__init(&request);
    return params_caller_inspect(scene, &request);
}

static void a_stranger_and_a_client_wait_for_each_other(void **state)
{
    struct muster_params *params;
    struct params_answer before, between, after;
    struct params_caller scene;
    struct muster_error error;

    (void)state;
    params_caller_enter(&scene);
    before = job_inspect(&scene);
    params = params_stand_source(&scene.stand, NULL, 2);
    assert_int_equal(params_stand_tick(&scene.stand, params, 5, 1, &error), MUSTER_OK);
    between = job_inspect(&scene);
    after = params_caller_ask_tick(&scene, 3, 2);

    assert_false(before.has_low);
    assert_true(between.has_low && between.low == 0 && between.known == 1 && between.expected == 2);
    assert_int_equal(after.rc, MUSTER_OK);
    assert_int_equal(after.low, 3);
    assert_int_equal(after.high, 5);
    assert_int_equal(params_stand_leave(&scene.stand, params), MUSTER_OK);
    params_caller_leave(&scene);
}

static void a_stranger_that_is_done_is_not_waited_for(void **state)
{
    Muster__Params__V1__TickRequest request;
    struct params_answer outcome;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    assert_int_equal(params_caller_ask_tick(&scene, 3, 1).low, 3);
    muster__params__v1__tick_request__init(&request);
    request.source = &scene.source;
    request.sources = 1;
    request.is_done = true;
    outcome = params_caller_tick(&scene, &request);

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_false(outcome.has_low);
    params_caller_leave(&scene);
}

static void a_tick_that_is_sent_again_changes_nothing(void **state)
{
    struct params_answer outcome;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    assert_int_equal(params_caller_ask_tick(&scene, 3, 1).rc, MUSTER_OK);
    outcome = params_caller_ask_tick(&scene, 3, 1);

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(outcome.low, 3);
    params_caller_leave(&scene);
}

static const struct wrong_tick {
    const char *label;
    uint64_t clock;
    bool is_done, is_nameless;
    uint32_t sources;
    double weight;
    uint64_t generations_behind;
    enum muster_rc rc;
    const char *text;
} wrong_ticks[] = {
    {"of nobody", 4, false, true, 1, 0, 0, MUSTER_INVALID_ARGUMENT, "the source that Open has given"},
    {"of no sources", 4, false, false, 0, 0, 0, MUSTER_INVALID_ARGUMENT, "got 0"},
    {"of less than no weight", 4, false, false, 1, -1, 0, MUSTER_INVALID_ARGUMENT, "weight"},
    {"of no weight that is a number", 4, false, false, 1, (double)NAN, 0, MUSTER_INVALID_ARGUMENT, "weight"},
    {"of a clock and an end", 4, true, false, 1, 0, 0, MUSTER_INVALID_ARGUMENT, "got both"},
    {"of the last number", UINT64_MAX - 1, false, false, 1, 0, 0, MUSTER_INVALID_ARGUMENT, "below 2^64 - 2"},
    {"of a step before the last one", 2, false, false, 1, 0, 0, MUSTER_INVALID_ARGUMENT, "not fall below 3, got 2"},
    {"of an older process", 4, false, false, 1, 0, 1, MUSTER_ABORTED, "a younger process"},
};

static void wrong_ticks_are_refused_and_change_nothing(void **state)
{
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    params_caller_become(&scene, "trainer");
    assert_int_equal(params_caller_ask_tick(&scene, 3, 1).rc, MUSTER_OK);
    for (size_t i = 0; i < sizeof(wrong_ticks) / sizeof(wrong_ticks[0]); i++) {
        const struct wrong_tick *row = &wrong_ticks[i];
        Muster__Params__V1__Source source = scene.source;
        Muster__Params__V1__TickRequest request;
        struct params_answer outcome;

        source.generation -= row->generations_behind;
        muster__params__v1__tick_request__init(&request);
        request.source = row->is_nameless ? NULL : &source;
        request.clock = row->clock;
        request.is_done = row->is_done;
        request.sources = row->sources;
        request.weight = row->weight;
        outcome = params_caller_tick(&scene, &request);
        if (outcome.rc != row->rc || strstr(outcome.text, row->text) == NULL)
            fail_msg("a tick %s: %s, %s", row->label, muster_rc_name(outcome.rc), outcome.text);
    }

    assert_int_equal(job_inspect(&scene).low, 3);
    params_caller_leave(&scene);
}

/* --- Watch --- */

struct watcher {
    struct muster_params_v1_params_watch_call call;
    unsigned messages;
    bool is_done;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
    uint64_t map, low;
    uint32_t servers, tables, primaries, shards, short_shards, replicas;
};

static void on_message(struct muster_params_v1_params_watch_call *call,
                       const Muster__Params__V1__WatchResponse *message)
{
    struct watcher *watcher = call->data;

    watcher->messages++;
    watcher->map = message->map;
    watcher->shards = message->shards;
    watcher->replicas = message->replicas;
    watcher->short_shards = message->short_shards;
    watcher->servers = (uint32_t)message->n_servers;
    watcher->primaries = message->n_servers > 0 ? message->servers[0]->primaries : 0;
    watcher->tables = (uint32_t)message->n_tables;
    watcher->low = message->clocks->low;
}

static void on_done(struct muster_params_v1_params_watch_call *call, enum muster_rc rc)
{
    struct watcher *watcher = call->data;

    watcher->is_done = true;
    watcher->rc = rc;
    memcpy(watcher->text, call->stub.call.status.text, sizeof(watcher->text));
}

static void watch_begin(struct params_caller *scene, const Muster__Params__V1__Source *source,
                        struct watcher *ret_watcher)
{
    const struct muster_call_options options = {.deadline_ns = params_stand_deadline(&scene->stand)};
    Muster__Params__V1__WatchRequest request;

    memset(ret_watcher, 0, sizeof(*ret_watcher));
    ret_watcher->call.data = ret_watcher;
    muster__params__v1__watch_request__init(&request);
    request.source = (Muster__Params__V1__Source *)(uintptr_t)source;
    assert_int_equal(muster_params_v1_params_watch_start(&ret_watcher->call, scene->channel, &options,
                                                         &request, on_message, on_done),
                     MUSTER_OK);
}

static bool watch_has_ended(void *data)
{
    return ((struct watcher *)data)->is_done;
}

static bool watch_has_begun(void *data)
{
    return ((struct watcher *)data)->messages > 0;
}

static bool watch_shows_two_tables(void *data)
{
    return ((struct watcher *)data)->tables == 2;
}

static bool watch_shows_clock_three(void *data)
{
    return ((struct watcher *)data)->low == 3;
}

static void a_watch_tells_what_there_is_and_what_changes(void **state)
{
    Muster__Params__V1__Schema other = params_caller_schema("other");
    struct watcher watcher;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    watch_begin(&scene, &scene.source, &watcher);
    test_env_run_until(&scene.stand.test.env, watch_has_begun, &watcher);
    assert_int_equal(watcher.map, 1);
    assert_int_equal(watcher.servers, 1);
    assert_int_equal(watcher.primaries, PARAMS_CALLER_SHARDS);
    assert_int_equal(watcher.shards, PARAMS_CALLER_SHARDS);
    assert_int_equal(watcher.replicas, 1);
    assert_int_equal(watcher.short_shards, 0);
    assert_int_equal(watcher.tables, 1);
    assert_int_equal(params_caller_ask_table(&scene, &other).rc, MUSTER_OK);
    test_env_run_until(&scene.stand.test.env, watch_shows_two_tables, &watcher);
    assert_int_equal(params_caller_ask_tick(&scene, 3, 1).rc, MUSTER_OK);
    test_env_run_until(&scene.stand.test.env, watch_shows_clock_three, &watcher);

    muster_call_cancel(&watcher.call.stub.call);
    test_env_run_until(&scene.stand.test.env, watch_has_ended, &watcher);
    params_caller_leave(&scene);
}

/* A table that is opened again, and a push, are no changes. */
static void a_watch_is_silent_while_nothing_changes(void **state)
{
    Muster__Params__V1__Schema known = params_caller_schema("counters");
    struct watcher watcher;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    watch_begin(&scene, NULL, &watcher);
    test_env_run_until(&scene.stand.test.env, watch_has_begun, &watcher);
    assert_int_equal(params_caller_ask_table(&scene, &known).rc, MUSTER_OK);
    assert_int_equal(params_caller_ask_push(&scene, 1, params_caller_many_keys(), PARAMS_CALLER_KEYS,
                                            params_caller_many_ones(),
                                            PARAMS_CALLER_KEYS * PARAMS_CALLER_ELEMENTS)
                         .rc,
                     MUSTER_OK);
    assert_int_equal(job_inspect(&scene).rc, MUSTER_OK);

    assert_int_equal(watcher.messages, 1);
    muster_call_cancel(&watcher.call.stub.call);
    test_env_run_until(&scene.stand.test.env, watch_has_ended, &watcher);
    params_caller_leave(&scene);
}

static void a_watch_ends_with_its_server(void **state)
{
    struct watcher watcher;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    watch_begin(&scene, &scene.source, &watcher);
    test_env_run_until(&scene.stand.test.env, watch_has_begun, &watcher);
    params_stand_kill(&scene.stand);
    test_env_run_until(&scene.stand.test.env, watch_has_ended, &watcher);

    assert_int_equal(watcher.rc, MUSTER_UNAVAILABLE);
    params_stand_serve(&scene.stand);
    params_caller_leave(&scene);
}

static void a_watch_of_a_source_that_is_not_known_is_refused(void **state)
{
    Muster__Params__V1__Source stranger;
    uint8_t id[16] = {1};
    struct watcher watcher;
    struct params_caller scene;

    (void)state;
    params_caller_enter(&scene);
    muster__params__v1__source__init(&stranger);
    stranger.slot = 77;
    stranger.generation = 1;
    stranger.id.data = id;
    stranger.id.len = sizeof(id);
    watch_begin(&scene, &stranger, &watcher);
    test_env_run_until(&scene.stand.test.env, watch_has_ended, &watcher);

    assert_int_equal(watcher.rc, MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(watcher.text, "open it again"));
    params_caller_leave(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stranger_and_a_client_wait_for_each_other),
        cmocka_unit_test(a_stranger_that_is_done_is_not_waited_for),
        cmocka_unit_test(a_tick_that_is_sent_again_changes_nothing),
        cmocka_unit_test(wrong_ticks_are_refused_and_change_nothing),
        cmocka_unit_test(a_watch_tells_what_there_is_and_what_changes),
        cmocka_unit_test(a_watch_is_silent_while_nothing_changes),
        cmocka_unit_test(a_watch_ends_with_its_server),
        cmocka_unit_test(a_watch_of_a_source_that_is_not_known_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
