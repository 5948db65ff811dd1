/* Steps by gRPC: pulls after a clock and tables by round, at a server that is alone and at servers of a job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_job.h"

#include <stdlib.h>
#include <string.h>

#include "params/server/services/agents_internal.h"
#include "params/server/services/call_wait.c"
#include "params/server/state/hold.h"

#define SOURCES 2u
#define KEYS    3u
#define BYTES   ((size_t)48 << 20) /* each table takes 4 MiB and more */

struct scene {
    struct params_job job; /* alone: its caller has the server */
    struct params_caller *caller;
    bool is_shared;
    Muster__Params__V1__Source sources[SOURCES];
    uint8_t ids[SOURCES][16];
    uint64_t sequences[SOURCES];
};

static const uint64_t keys[KEYS] = {3, 700, 90210};

/* --- Sources --- */

static void source_pick(struct scene *scene, uint32_t source)
{
    scene->caller->source = scene->sources[source];
}

static void sources_open(struct scene *scene)
{
    static const char *const names[SOURCES] = {"left", "right"};

    for (uint32_t i = 0; i < SOURCES; i++) {
        params_caller_become(scene->caller, names[i]);
        memcpy(scene->ids[i], scene->caller->id, sizeof(scene->ids[i]));
        scene->sources[i] = scene->caller->source;
        scene->sources[i].id.data = scene->ids[i];
    }
}

static int scene_open(void **state, bool is_shared)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    Muster__Params__V1__Schema schema = params_caller_schema("counters");

    scene->caller = &scene->job.caller;
    scene->is_shared = is_shared;
    if (is_shared) {
        params_job_open_in(&scene->job, 2, 1, BYTES);
        params_job_dial(&scene->job, 0);
        assert_int_equal(params_caller_ask_table(scene->caller, &schema).rc, MUSTER_OK);
    } else {
        params_caller_enter_in(scene->caller, BYTES);
    }
    sources_open(scene);
    *state = scene;
    return 0;
}

static int alone_set_up(void **state)
{
    return scene_open(state, false);
}

static int job_set_up(void **state)
{
    return scene_open(state, true);
}

static int scene_tear_down(void **state)
{
    struct scene *scene = *state;

    if (scene->is_shared)
        params_job_close(&scene->job);
    else
        params_caller_leave(scene->caller);
    free(scene);
    return 0;
}

static void round_table_make_as(struct scene *scene, uint32_t quorum, bool is_carried)
{
    Muster__Params__V1__Schema schema = params_caller_schema("sums");

    schema.is_by_round = true;
    schema.is_round_carried = is_carried;
    schema.round_quorum = quorum;
    assert_int_equal(params_caller_ask_table(scene->caller, &schema).rc, MUSTER_OK);
}

static void round_table_make(struct scene *scene, uint32_t quorum)
{
    round_table_make_as(scene, quorum, false);
}

/* --- Calls --- */

static Muster__Params__V1__PushRequest push_of(struct scene *scene, uint32_t source,
                                               const char *table, uint64_t clock,
                                               const float values[KEYS * PARAMS_CALLER_ELEMENTS])
{
    Muster__Params__V1__PushRequest push;

    source_pick(scene, source);
    push = params_caller_push_of(scene->caller, ++scene->sequences[source], keys, KEYS, values,
                                 KEYS * PARAMS_CALLER_ELEMENTS);
    push.source = &scene->sources[source];
    push.table_name = (char *)(uintptr_t)table;
    push.clock = clock;
    return push;
}

static const float ones[] = {1, 1, 1, 1, 1, 1}, tens[] = {10, 10, 10, 10, 10, 10};

static void rows_push(struct scene *scene, uint32_t source, const char *table, uint64_t clock,
                      const float *values)
{
    const Muster__Params__V1__PushRequest push = push_of(scene, source, table, clock, values);
    struct params_answer answer = params_caller_push(scene->caller, &push);

    assert_string_equal(answer.text, "");
    assert_int_equal(answer.rc, MUSTER_OK);
    assert_int_equal(answer.applied, KEYS);
}

static Muster__Params__V1__TickRequest tick_of(struct scene *scene, uint32_t source, uint64_t clock)
{
    Muster__Params__V1__TickRequest tick;

    muster__params__v1__tick_request__init(&tick);
    tick.source = &scene->sources[source];
    tick.clock = clock;
    tick.sources = SOURCES;
    return tick;
}

static void clock_tick(struct scene *scene, uint32_t source, uint64_t clock)
{
    const Muster__Params__V1__TickRequest tick = tick_of(scene, source, clock);

    assert_int_equal(params_caller_tick(scene->caller, &tick).rc, MUSTER_OK);
}

static Muster__Params__V1__PullRequest pull_of(const char *table, uint64_t min_clock)
{
    Muster__Params__V1__PullRequest pull;

    muster__params__v1__pull_request__init(&pull);
    pull.table_case = MUSTER__PARAMS__V1__PULL_REQUEST__TABLE_TABLE_NAME;
    pull.table_name = (char *)(uintptr_t)table;
    pull.keys = (uint64_t *)(uintptr_t)keys;
    pull.n_keys = KEYS;
    pull.min_clock = min_clock;
    return pull;
}

static float value_pulled(struct scene *scene, const char *table, uint64_t min_clock)
{
    const Muster__Params__V1__PullRequest pull = pull_of(table, min_clock);
    struct params_answer answer = params_caller_pull(scene->caller, &pull);

    assert_string_equal(answer.text, "");
    assert_int_equal(answer.value_count, KEYS * PARAMS_CALLER_ELEMENTS);
    for (size_t i = 1; i < answer.value_count; i++)
        assert_true(answer.values[i] == answer.values[0]);
    return answer.values[0];
}

/* Whatever has been sent before is handled by then. */
static void server_turn(struct scene *scene)
{
    for (int i = 0; i < 3; i++)
        (void)value_pulled(scene, "counters", 0);
}

/* --- Clocks --- */

static void a_pull_waits_until_all_sources_have_come_to_its_clock(void **state)
{
    struct scene *scene = *state;
    const Muster__Params__V1__PullRequest pull = pull_of("counters", 1);
    struct params_answer answer = {.is_done = false};
    struct muster_params_v1_params_pull_call call = {.data = &answer};

    clock_tick(scene, 1, 0);
    rows_push(scene, 0, "counters", 0, ones);
    clock_tick(scene, 0, 1);
    params_caller_begin_pull(scene->caller, &call, &pull);
    server_turn(scene);
    rows_push(scene, 1, "counters", 0, tens);
    server_turn(scene);
    assert_false(answer.is_done);
    clock_tick(scene, 1, 1);
    params_caller_await(scene->caller, &answer);

    assert_int_equal(answer.rc, MUSTER_OK);
    assert_true(answer.values[0] == 11);
    assert_true(value_pulled(scene, "counters", 1) == 11);
}

static const struct muster_params_server *server_of(const struct scene *scene)
{
    return scene->caller->stand.server;
}

static void a_pull_that_waits_in_vain_names_the_slowest_source(void **state)
{
    struct scene *scene = *state;
    const struct muster_params_server *server = server_of(scene);
    const Muster__Params__V1__PullRequest pull = pull_of("counters", 2);
    struct params_answer answer = {.is_done = false};
    struct muster_params_v1_params_pull_call call = {.data = &answer};
    struct call_wait *wait;

    clock_tick(scene, 0, 2);
    clock_tick(scene, 1, 1);
    params_caller_begin_pull(scene->caller, &call, &pull);
    server_turn(scene);
    assert_false(muster_list_is_empty(&server->clocks.calls));
    wait = MUSTER_CONTAINER_OF(server->clocks.calls.next, struct call_wait, call.node);
    on_deadline(&wait->deadline);
    params_caller_await(scene->caller, &answer);

    assert_int_equal(answer.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(answer.text, " is at clock 1 since "));
    assert_non_null(strstr(answer.text, "; the call waits for clock 2"));
}

static void a_server_that_closes_ends_calls_that_wait(void **state)
{
    struct scene *scene = *state;
    const Muster__Params__V1__PullRequest pull = pull_of("counters", 2);
    struct params_answer answer = {.is_done = false};
    struct muster_params_v1_params_pull_call call = {.data = &answer};

    clock_tick(scene, 0, 1);
    clock_tick(scene, 1, 1);
    params_caller_begin_pull(scene->caller, &call, &pull);
    server_turn(scene);
    params_stand_kill(&scene->caller->stand);
    params_caller_await(scene->caller, &answer);
    params_stand_serve(&scene->caller->stand);

    assert_int_equal(answer.rc, MUSTER_UNAVAILABLE);
}

static void a_caller_that_has_gone_is_not_kept(void **state)
{
    struct scene *scene = *state;
    const struct muster_params_server *server = server_of(scene);
    const Muster__Params__V1__PullRequest pull = pull_of("counters", 2);
    struct params_answer answer = {.is_done = false};
    struct muster_params_v1_params_pull_call call = {.data = &answer};

    clock_tick(scene, 0, 1);
    clock_tick(scene, 1, 1);
    params_caller_begin_pull(scene->caller, &call, &pull);
    server_turn(scene);
    muster_call_cancel(&call.stub.call);
    params_caller_await(scene->caller, &answer);
    server_turn(scene);

    assert_int_equal(answer.rc, MUSTER_CANCELLED);
    assert_true(muster_list_is_empty(&server->clocks.calls));
}

/* --- Cuts at a clock --- */

#define CUT 7u

static void hold_begin(struct muster_params_server *server, uint64_t clock)
{
    server->hold.number = CUT;
    server->hold.clock = clock;
    MUSTER_LIST_EACH (&server->clients, client, struct muster_params_client, node)
        assert_true(!client->is_open || muster_params_server_hold_join(client));
}

/* A push that would be behind the cut is not applied, and takes no number. */
static void a_push_behind_a_cut_that_waits_is_refused(void **state)
{
    struct scene *scene = *state;
    struct muster_params_server *server = scene->caller->stand.server;
    Muster__Params__V1__PushRequest push;
    struct params_answer answer;

    clock_tick(scene, 0, 1);
    clock_tick(scene, 1, 0);
    hold_begin(server, 1);
    push = push_of(scene, 0, "counters", 1, ones);
    answer = params_caller_push(scene->caller, &push);
    assert_int_equal(answer.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(answer.text, "a cut at clock 1 waits for slower sources: push again"));
    rows_push(scene, 1, "counters", 0, tens);
    assert_true(value_pulled(scene, "counters", 0) == 10);

    muster_params_server_hold_end(server, CUT);
    assert_int_equal(params_caller_push(scene->caller, &push).applied, KEYS);
    assert_true(value_pulled(scene, "counters", 0) == 11);
}

/* The client of its agent holds it back. */
static void a_push_to_servers_of_a_job_waits_for_the_cut(void **state)
{
    struct scene *scene = *state;
    Muster__Params__V1__PushRequest push;
    struct params_answer answer = {.is_done = false};
    struct muster_params_v1_params_push_call call = {.data = &answer};

    clock_tick(scene, 0, 1);
    clock_tick(scene, 1, 0);
    for (uint32_t i = 0; i < scene->job.count; i++)
        hold_begin(scene->job.members[i].server, 1);
    server_turn(scene);
    push = push_of(scene, 0, "counters", 1, ones);
    params_caller_begin_push(scene->caller, &call, &push);
    rows_push(scene, 1, "counters", 0, tens);
    server_turn(scene);
    assert_false(answer.is_done);
    assert_true(value_pulled(scene, "counters", 0) == 10);

    for (uint32_t i = 0; i < scene->job.count; i++)
        muster_params_server_hold_end(scene->job.members[i].server, CUT);
    params_caller_await(scene->caller, &answer);
    assert_int_equal(answer.rc, MUSTER_OK);
    assert_true(value_pulled(scene, "counters", 0) == 11);
}

/* --- Rounds --- */

static void a_push_waits_until_its_round_is_open(void **state)
{
    struct scene *scene = *state;
    Muster__Params__V1__PushRequest push;
    struct params_answer answer = {.is_done = false};
    struct muster_params_v1_params_push_call call = {.data = &answer};

    round_table_make(scene, 0);
    rows_push(scene, 0, "sums", 0, ones);
    rows_push(scene, 1, "sums", 0, tens);
    assert_true(value_pulled(scene, "sums", 0) == 0);
    clock_tick(scene, 0, 1);
    push = push_of(scene, 0, "sums", 1, ones);
    params_caller_begin_push(scene->caller, &call, &push);
    server_turn(scene);
    assert_false(answer.is_done);
    clock_tick(scene, 1, 1);
    params_caller_await(scene->caller, &answer);

    assert_string_equal(answer.text, "");
    assert_int_equal(answer.applied, KEYS);
    assert_true(value_pulled(scene, "sums", 1) == 11);
    clock_tick(scene, 0, 2);
    clock_tick(scene, 1, 2);
    assert_true(value_pulled(scene, "sums", 2) == 12);
}

static void a_push_that_is_sent_again_after_its_round_counts_once(void **state)
{
    struct scene *scene = *state;
    Muster__Params__V1__PushRequest push;

    round_table_make(scene, 0);
    push = push_of(scene, 0, "sums", 0, ones);
    assert_int_equal(params_caller_push(scene->caller, &push).rc, MUSTER_OK);
    clock_tick(scene, 0, 1);
    clock_tick(scene, 1, 1);
    assert_true(value_pulled(scene, "sums", 1) == 1);

    assert_int_equal(params_caller_push(scene->caller, &push).rc, MUSTER_OK);
    clock_tick(scene, 0, 2);
    clock_tick(scene, 1, 2);
    assert_true(value_pulled(scene, "sums", 2) == 1);
}

static void a_late_push_is_refused_and_the_source_goes_on(void **state)
{
    struct scene *scene = *state;
    Muster__Params__V1__PushRequest push;
    struct params_answer answer;

    round_table_make(scene, 1);
    clock_tick(scene, 1, 0);
    rows_push(scene, 0, "sums", 0, ones);
    clock_tick(scene, 0, 1);
    assert_true(value_pulled(scene, "sums", 1) == 1);
    push = push_of(scene, 1, "sums", 0, tens);
    answer = params_caller_push(scene->caller, &push);

    assert_int_equal(answer.rc, MUSTER_OUT_OF_RANGE);
    assert_non_null(strstr(answer.text, "round 0 of table sums is closed; 1 is open"));
    clock_tick(scene, 1, 1);
    rows_push(scene, 1, "sums", 1, tens);
    clock_tick(scene, 1, 2);
    assert_true(value_pulled(scene, "sums", 2) == 11);
}

static void a_late_push_counts_in_a_later_round_where_the_table_carries_it(void **state)
{
    struct scene *scene = *state;

    round_table_make_as(scene, 1, true);
    clock_tick(scene, 1, 0);
    rows_push(scene, 0, "sums", 0, ones);
    clock_tick(scene, 0, 1);
    assert_true(value_pulled(scene, "sums", 1) == 1);

    rows_push(scene, 1, "sums", 0, tens); /* late */
    rows_push(scene, 0, "sums", 1, ones);
    clock_tick(scene, 0, 2);
    assert_true(value_pulled(scene, "sums", 2) == 2);
    clock_tick(scene, 1, 3);
    assert_true(value_pulled(scene, "sums", 3) == 12);
}

/* As those are that have been idle for 10 s. */
static void agents_free(struct scene *scene)
{
    if (!scene->is_shared)
        return;
    MUSTER_LIST_EACH_SAFE (&scene->job.members[0].server->agents->list, agent,
                           struct muster_params_agent, node)
        muster_params_agent_free(agent);
}

static void tick_check(struct scene *scene, bool are_agents_freed)
{
    Muster__Params__V1__TickRequest tick;
    struct params_answer answer = {.is_done = false};
    struct muster_params_v1_params_tick_call call = {.data = &answer};

    round_table_make(scene, 0);
    clock_tick(scene, 1, 0);
    rows_push(scene, 0, "sums", 0, ones);
    clock_tick(scene, 0, 1);
    if (are_agents_freed)
        agents_free(scene);
    tick = tick_of(scene, 0, 2);
    tick.weight = 100;
    params_caller_begin_tick(scene->caller, &call, &tick);
    server_turn(scene);
    assert_false(answer.is_done);
    rows_push(scene, 1, "sums", 0, tens);
    clock_tick(scene, 1, 1);
    params_caller_await(scene->caller, &answer);

    assert_int_equal(answer.rc, MUSTER_OK);
    assert_true(value_pulled(scene, "sums", 1) == 11);
}

/* The weight of a round is the one that its source has told with it. */
static void a_tick_waits_for_the_rounds_of_its_source(void **state)
{
    tick_check(*state, false);
}

static void a_tick_waits_for_them_when_its_agent_was_freed(void **state)
{
    tick_check(*state, true);
}

/* The rows are another server's. */
static void a_server_knows_the_tables_of_pushes_that_it_forwards(void **state)
{
    struct scene *scene = *state;
    const struct muster_params_server *server = scene->job.members[0].server;
    uint64_t key = 0;
    Muster__Params__V1__PushRequest push;
    Muster__Params__V1__TickRequest tick;
    struct params_answer answer = {.is_done = false};
    struct muster_params_v1_params_tick_call call = {.data = &answer};
    const struct muster_params_store_table *table;

    round_table_make(scene, 0);
    table = muster_params_table_find(server->region, "sums");
    while (muster_params_server_leads(
        server, muster_params_key_shard(table, key, server->map->shard_count), server->map->epoch))
        key++;
    clock_tick(scene, 1, 0);
    push = push_of(scene, 0, "sums", 0, ones);
    push.keys = &key;
    push.n_keys = 1;
    push.n_values = PARAMS_CALLER_ELEMENTS;
    assert_int_equal(params_caller_push(scene->caller, &push).rc, MUSTER_OK);
    clock_tick(scene, 0, 1);
    agents_free(scene);
    tick = tick_of(scene, 0, 2);
    params_caller_begin_tick(scene->caller, &call, &tick);
    server_turn(scene);
    assert_false(answer.is_done);
    clock_tick(scene, 1, 1);
    params_caller_await(scene->caller, &answer);

    assert_int_equal(answer.rc, MUSTER_OK);
}

static void a_push_to_a_table_by_round_is_not_answered_with_rows(void **state)
{
    struct scene *scene = *state;
    Muster__Params__V1__PushRequest push;
    Muster__Params__V1__PushPullRequest both;
    struct params_answer answer;

    round_table_make(scene, 0);
    push = push_of(scene, 0, "sums", 0, ones);
    muster__params__v1__push_pull_request__init(&both);
    both.push = &push;
    answer = params_caller_push_pull(scene->caller, &both);

    assert_int_equal(answer.rc, MUSTER_INVALID_ARGUMENT);
    assert_string_equal(answer.text,
                        "table sums is by round: a push is not answered with its rows");
}

#define ALONE(name) cmocka_unit_test_setup_teardown(name, alone_set_up, scene_tear_down)
#define OF_A_JOB(name)                                                                             \
    {                                                                                              \
#name " (job)", name, job_set_up, scene_tear_down, NULL                                    \
    }
#define BOTH(name) ALONE(name), OF_A_JOB(name)

int main(void)
{
    const struct CMUnitTest cases[] = {
        BOTH(a_pull_waits_until_all_sources_have_come_to_its_clock),
        ALONE(a_pull_that_waits_in_vain_names_the_slowest_source),
        ALONE(a_server_that_closes_ends_calls_that_wait),
        ALONE(a_caller_that_has_gone_is_not_kept),
        ALONE(a_push_behind_a_cut_that_waits_is_refused),
        OF_A_JOB(a_push_to_servers_of_a_job_waits_for_the_cut),
        BOTH(a_push_waits_until_its_round_is_open),
        BOTH(a_push_that_is_sent_again_after_its_round_counts_once),
        BOTH(a_late_push_is_refused_and_the_source_goes_on),
        BOTH(a_late_push_counts_in_a_later_round_where_the_table_carries_it),
        BOTH(a_tick_waits_for_the_rounds_of_its_source),
        OF_A_JOB(a_tick_waits_for_them_when_its_agent_was_freed),
        OF_A_JOB(a_server_knows_the_tables_of_pushes_that_it_forwards),
        BOTH(a_push_to_a_table_by_round_is_not_answered_with_rows),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
