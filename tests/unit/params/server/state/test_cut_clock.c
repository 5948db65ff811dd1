/* Cuts at a clock: they have all pushes of the steps before it, and none of later ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "careful_mem.h"
#include "params_stand.h"
#include "scene_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params/client/client_internal.h"
#include "params/server/core/server_internal.h"
#include "params/server/state/cut_internal.h"
#include "params/snapshot/snapshot.h"
#include "runtime/system/folder_system.h"

/* Time between two attempts passes by call. */
#include "params/client/cut.c"

#define SHARDS  8u
#define ROWS    20u
#define WORKERS 2u
#define BYTES   ((size_t)48 << 20) /* tables by round have some of their own */

/* Element i of each row counts the pushes of worker i. */
static const struct muster_params_schema counts = {.name = "counts",
                                                   .row_elements = WORKERS,
                                                   .wire_dtype = MUSTER_F32,
                                                   .optimizer = MUSTER_PARAMS_ADD};

#define BLOCK  1024u
#define BLOCKS 3u

/* Tensors and tables by round, of which the same elements count. */
static const struct muster_params_schema weights = {.name = "weights",
                                                    .row_elements = BLOCK,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD,
                                                    .tensor_elements = BLOCKS * BLOCK};
static const struct muster_params_schema sums = {.name = "sums",
                                                 .row_elements = WORKERS,
                                                 .wire_dtype = MUSTER_F32,
                                                 .optimizer = MUSTER_PARAMS_ADD,
                                                 .is_by_round = true};

struct call {
    struct muster_params_op op;
    struct muster_params_cut cut;
    bool is_done;
    enum muster_rc rc;
    uint64_t keys[ROWS]; /* of a push */
    float values[ROWS][WORKERS];
};

struct scene {
    struct params_stand stand;
    struct muster_params *workers[WORKERS], *asker;
    struct muster_params_table *tables[WORKERS];
    char folder[64];
};

static void scene_open(struct scene *scene)
{
    static const char *const names[] = {"one", "other"};

    memset(scene, 0, sizeof(*scene));
    strcpy(scene->folder, "/tmp/params_cut_clock.XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    params_stand_open_in(&scene->stand, SHARDS, BYTES);
    for (uint32_t i = 0; i < WORKERS; i++) {
        scene->workers[i] = params_stand_source(&scene->stand, names[i], WORKERS);
        scene->tables[i] = params_stand_table(&scene->stand, scene->workers[i], &counts);
    }
    scene->asker = params_stand_client(&scene->stand, NULL);
}

static void scene_close(struct scene *scene)
{
    char command[128];

    for (uint32_t i = 0; i < WORKERS; i++)
        assert_int_equal(params_stand_leave(&scene->stand, scene->workers[i]), MUSTER_OK);
    if (scene->asker != NULL)
        assert_int_equal(params_stand_leave(&scene->stand, scene->asker), MUSTER_OK);
    params_stand_close(&scene->stand);
    snprintf(command, sizeof(command), "rm -r %s", scene->folder);
    assert_int_equal(system(command), 0);
}

SCENE_CASES(struct scene, scene_open, scene_close)

static void on_call(struct muster_params_op *op, enum muster_rc rc)
{
    struct call *call = op->data;

    call->is_done = true;
    call->rc = rc;
}

static enum muster_rc call_await(struct scene *scene, struct call *call)
{
    test_env_run_until(&scene->stand.test.env, test_env_is_true, &call->is_done);
    return call->rc;
}

static void cut_start(struct scene *scene, struct call *call, uint64_t clock)
{
    *call = (struct call){.op = {.data = call}};
    assert_int_equal(muster_params_cut_at_start(&call->op, scene->asker, scene->folder, clock,
                                                &call->cut, params_stand_deadline(&scene->stand),
                                                on_call),
                     MUSTER_OK);
}

static void table_push_start(struct scene *scene, struct call *call,
                             struct muster_params_table *table, uint32_t worker)
{
    *call = (struct call){.op = {.data = call}};
    for (uint32_t i = 0; i < ROWS; i++) {
        call->keys[i] = i;
        call->values[i][worker] = 1;
    }
    assert_int_equal(
        muster_params_push_start(&call->op, table,
                                 &(struct muster_params_rows){call->keys, call->values, ROWS},
                                 params_stand_deadline(&scene->stand), on_call),
        MUSTER_OK);
}

static void push_start(struct scene *scene, struct call *call, uint32_t worker)
{
    table_push_start(scene, call, scene->tables[worker], worker);
}

static void worker_push(struct scene *scene, uint32_t worker)
{
    struct call call;

    push_start(scene, &call, worker);
    assert_int_equal(call_await(scene, &call), MUSTER_OK);
}

static void worker_tick(struct scene *scene, uint32_t worker, uint64_t clock)
{
    struct muster_error error;

    assert_int_equal(params_stand_tick(&scene->stand, scene->workers[worker], clock, 1, &error),
                     MUSTER_OK);
}

/* --- The cut in the folder --- */

struct expected {
    uint32_t table, rows;
    float values[WORKERS];
};

static enum muster_rc on_row(void *data, uint32_t table, uint64_t key, uint32_t clock,
                             const float *values)
{
    struct expected *expected = data;

    (void)key;
    (void)clock;
    if (table != expected->table)
        return MUSTER_OK;
    expected->rows++;
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_true(values[i] == expected->values[i]);
    return MUSTER_OK;
}

static uint32_t table_number(const struct muster_params_snapshot_manifest *manifest,
                             const char *name)
{
    uint32_t number = 0;

    while (number < manifest->table_count && strcmp(manifest->schemas[number].name, name) != 0)
        number++;
    assert_int_not_equal(number, manifest->table_count);
    return number;
}

static void cut_check_table(const struct scene *scene, const char *name, uint32_t rows, float one,
                            float other)
{
    const struct muster_params_snapshot snapshot = {.files = muster_files_system(),
                                                    .mem = careful_mem(),
                                                    .folder = scene->folder,
                                                    .sync_folder = muster_folder_sync};
    struct expected expected = {.values = {one, other}};
    const struct muster_params_snapshot_visitor visitor = {.data = &expected, .on_row = on_row};
    struct muster_params_snapshot_manifest manifest;
    struct muster_error error;

    assert_int_equal(muster_params_snapshot_open(&snapshot, &manifest, &error), MUSTER_OK);
    expected.table = table_number(&manifest, name);
    for (uint32_t i = 0; i < SHARDS; i++)
        assert_int_equal(muster_params_snapshot_visit(&snapshot, &manifest, i, &visitor, &error),
                         MUSTER_OK);
    muster_params_snapshot_manifest_fini(&manifest);
    assert_int_equal(expected.rows, rows);
}

static void cut_check(const struct scene *scene, float one, float other)
{
    cut_check_table(scene, "counts", ROWS, one, other);
}

static bool is_held(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->hold.clock != 0;
}

static void cut_begin(struct scene *scene, struct call *cut, uint64_t clock)
{
    cut_start(scene, cut, clock);
    test_env_run_until(&scene->stand.test.env, is_held, scene);
    test_env_turn(&scene->stand.test.env, 20); /* clients hear of it */
}

/* --- Cases --- */

static void a_cut_at_a_clock_has_the_steps_before_it_and_no_others(void **state)
{
    struct scene *scene = *state;
    struct call cut, ahead;

    worker_push(scene, 0);
    worker_tick(scene, 0, 1);
    cut_begin(scene, &cut, 1);
    push_start(scene, &ahead, 0); /* of the next step: it waits, and the other one goes on */
    worker_push(scene, 1);
    worker_push(scene, 1);
    assert_false(ahead.is_done);
    assert_false(cut.is_done);
    worker_tick(scene, 1, 1);

    assert_int_equal(call_await(scene, &cut), MUSTER_OK);
    assert_int_equal(call_await(scene, &ahead), MUSTER_OK);
    assert_int_equal(cut.cut.clock, 1);
    cut_check(scene, 1, 2);
}

/* Pushes that a program starts in one turn are parted by its ticks. */
static void pushes_of_several_steps_of_a_turn_are_parted(void **state)
{
    struct scene *scene = *state;
    struct call cut, pushes[3];
    struct call ticks[3];

    cut_begin(scene, &cut, 2);
    for (uint64_t i = 0; i < 3; i++) {
        push_start(scene, &pushes[i], 0);
        ticks[i] = (struct call){.op = {.data = &ticks[i]}};
        assert_int_equal(muster_params_tick_start(&ticks[i].op, scene->workers[0], i + 1,
                                                  params_stand_deadline(&scene->stand), on_call),
                         MUSTER_OK);
    }
    assert_int_equal(call_await(scene, &ticks[1]), MUSTER_OK);
    assert_false(pushes[2].is_done || ticks[2].is_done);
    worker_push(scene, 1);
    worker_tick(scene, 1, 5);

    assert_int_equal(call_await(scene, &cut), MUSTER_OK);
    assert_int_equal(call_await(scene, &ticks[2]), MUSTER_OK);
    assert_true(pushes[2].is_done);
    cut_check(scene, 2, 1);
}

/* A pull sees what its source has pushed before, so it waits behind that. */
static void pulls_stay_behind_pushes_that_wait(void **state)
{
    struct scene *scene = *state;
    struct call cut, ahead, pull = {.op = {.data = &pull}};

    worker_tick(scene, 0, 1);
    cut_begin(scene, &cut, 1);
    push_start(scene, &ahead, 0);
    assert_int_equal(
        muster_params_pull_start(&pull.op, scene->tables[0],
                                 &(struct muster_params_rows){ahead.keys, pull.values, ROWS},
                                 params_stand_deadline(&scene->stand), on_call),
        MUSTER_OK);
    worker_push(scene, 1);
    assert_false(pull.is_done);
    worker_tick(scene, 1, 1);

    assert_int_equal(call_await(scene, &cut), MUSTER_OK);
    assert_int_equal(call_await(scene, &pull), MUSTER_OK);
    assert_true(pull.values[0][0] == 1 && pull.values[0][1] == 1);
    cut_check(scene, 0, 1);
}

/* Its process ends before it has ticked the step in which it has pushed, and another one begins that step again. */
static void worker_renew(struct scene *scene, uint32_t worker, const char *name, uint64_t clock)
{
    assert_int_equal(params_stand_leave(&scene->stand, scene->workers[worker]), MUSTER_OK);
    scene->workers[worker] = params_stand_source(&scene->stand, name, WORKERS);
    scene->tables[worker] = params_stand_table(&scene->stand, scene->workers[worker], &counts);
    worker_tick(scene, worker, clock);
}

static void a_clock_at_which_an_older_process_has_pushed_is_refused(void **state)
{
    struct scene *scene = *state;
    struct call cut;

    worker_tick(scene, 0, 1);
    worker_push(scene, 0);
    worker_renew(scene, 0, "one", 1);
    worker_tick(scene, 1, 1);

    cut_start(scene, &cut, 1);
    assert_int_equal(call_await(scene, &cut), MUSTER_OUT_OF_RANGE);
    assert_non_null(strstr(cut.op.error.text, "has pushed at clock 1 already"));
    cut_start(scene, &cut, 2);
    worker_tick(scene, 0, 2);
    worker_tick(scene, 1, 2);
    assert_int_equal(call_await(scene, &cut), MUSTER_OK);
    cut_check(scene, 1, 0);
}

/* The push was sent before its process had heard of the cut. */
static void a_push_of_a_process_that_is_dead_voids_the_cut(void **state)
{
    struct scene *scene = *state;
    struct call cut;

    cut_begin(scene, &cut, 1);
    MUSTER_LIST_EACH (&scene->workers[0]->ways, way, struct muster_params_way, node)
        way->hold_clock = 0;
    worker_tick(scene, 0, 1);
    worker_push(scene, 0);
    worker_renew(scene, 0, "one", 1);
    worker_tick(scene, 1, 1);

    assert_int_equal(call_await(scene, &cut), MUSTER_OUT_OF_RANGE);
}

static void a_clock_that_is_over_is_refused(void **state)
{
    struct scene *scene = *state;
    struct call cut;

    cut_start(scene, &cut, 1);
    assert_int_equal(muster_params_cut_at_start(&cut.op, scene->asker, scene->folder, UINT64_MAX,
                                                &cut.cut, params_stand_deadline(&scene->stand),
                                                on_call),
                     MUSTER_INVALID_ARGUMENT);
    worker_tick(scene, 0, 1);
    worker_tick(scene, 1, 1);
    assert_int_equal(call_await(scene, &cut), MUSTER_OK);

    worker_push(scene, 0); /* in step 1, whose tick has not come */
    cut_start(scene, &cut, 1);
    assert_int_equal(call_await(scene, &cut), MUSTER_OUT_OF_RANGE);
    assert_non_null(strstr(cut.op.error.text, "has pushed at clock 1 already"));

    worker_tick(scene, 0, 2);
    cut_start(scene, &cut, 1);
    assert_int_equal(call_await(scene, &cut), MUSTER_OUT_OF_RANGE);
    assert_non_null(strstr(cut.op.error.text, "is at clock 2 already"));
    worker_push(scene, 1); /* nothing is held back */
}

static void without_sources_that_tick_there_is_no_clock(void **state)
{
    const struct scene *scene = *state;
    struct scene other;
    struct call cut;

    memcpy(other.folder, scene->folder, sizeof(other.folder));
    params_stand_open(&other.stand, SHARDS);
    other.asker = params_stand_client(&other.stand, NULL);
    cut_start(&other, &cut, 1);
    assert_int_equal(call_await(&other, &cut), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(cut.op.error.text, "no source ticks"));
    assert_int_equal(params_stand_leave(&other.stand, other.asker), MUSTER_OK);
    params_stand_close(&other.stand);
}

static bool is_held_again(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->hold.asker == MUSTER_CONTAINER_OF(scene->stand.server->clients.prev,
                                                                  struct muster_params_client,
                                                                  node);
}

static bool waits_to_begin_again(void *data)
{
    const struct muster_params *asker = data;

    return muster_timer_is_started(&asker->cutting->again);
}

/* A server may hear of a client's new link before it hears that the one before is gone. */
static void a_source_that_asks_over_another_link_holds_anew(void **state)
{
    struct scene *scene = *state;
    struct muster_params *asker = scene->asker;
    struct muster_params_client *old, *young;
    uint64_t slot, generation;
    struct call first, second;

    cut_begin(scene, &first, 1);
    scene->asker = params_stand_client(&scene->stand, NULL);
    old = scene->stand.server->hold.asker;
    young =
        MUSTER_CONTAINER_OF(scene->stand.server->clients.prev, struct muster_params_client, node);
    cut_start(scene, &second, 1);
    assert_int_equal(call_await(scene, &second), MUSTER_FAILED_PRECONDITION);
    assert_non_null(
        strstr(second.op.error.text, "another cut at a clock is under way, of source "));
    slot = young->slot;
    generation = young->generation;
    young->slot = old->slot;
    young->generation = old->generation;
    cut_start(scene, &second, 1);
    test_env_run_until(&scene->stand.test.env, is_held_again, scene);
    test_env_run_until(&scene->stand.test.env, waits_to_begin_again, asker);
    assert_int_equal(asker->cutting->error.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(asker->cutting->error.text, "has begun the cut anew"));
    muster_params_op_cancel(&first.op);
    assert_int_equal(call_await(scene, &first), MUSTER_CANCELLED);
    for (uint32_t i = 0; i < WORKERS; i++)
        worker_tick(scene, i, 1);

    assert_int_equal(call_await(scene, &second), MUSTER_OK);
    young->slot = slot;
    young->generation = generation;
    assert_int_equal(params_stand_leave(&scene->stand, asker), MUSTER_OK);
}

static bool cuts_nothing(void *data)
{
    const struct scene *scene = data;

    return scene->asker->cutting == NULL;
}

/* The program of the cut ends, or its patience does. */
static void sources_go_on_when_the_cut_is_given_up(void **state)
{
    for (uint32_t way = 0; way < 3; way++) {
        struct scene *scene = *state;
        struct call cut, ahead;

        worker_tick(scene, 0, way + 1);
        cut_begin(scene, &cut, way + 1);
        push_start(scene, &ahead, 0);
        worker_push(scene, 1);
        assert_false(ahead.is_done);
        if (way == 0) {
            muster_params_op_cancel(&cut.op);
        } else if (way == 1) {
            muster_timer_start(&scene->stand.server->hold.deadline, scene->stand.test.env.loop,
                               muster_loop_now_ns(scene->stand.test.env.loop));
        } else {
            (void)params_stand_leave(&scene->stand, scene->asker);
            scene->asker = NULL;
        }
        assert_int_equal(call_await(scene, &ahead), MUSTER_OK);
        assert_int_equal(call_await(scene, &cut),
                         way == 1 ? MUSTER_DEADLINE_EXCEEDED : MUSTER_CANCELLED);
        worker_tick(scene, 1, way + 1);
        if (scene->asker != NULL) /* the server's answer ends the cut of the client, too */
            test_env_run_until(&scene->stand.test.env, cuts_nothing, scene);
    }
}

/* --- Tensors, rounds --- */

struct tensor_call {
    struct call call;
    float values[BLOCKS * BLOCK];
};

static void tensor_push_start(struct scene *scene, struct tensor_call *push,
                              struct muster_params_table *table, uint32_t worker)
{
    memset(push, 0, sizeof(*push));
    push->call.op.data = &push->call;
    for (uint32_t i = 0; i < BLOCKS; i++)
        push->values[i * BLOCK + worker] = 1;
    assert_int_equal(
        muster_params_tensor_start(
            &push->call.op, table, &(struct muster_params_range){.values = push->values},
            MUSTER_PARAMS_DIRECTION_PUSH, params_stand_deadline(&scene->stand), on_call),
        MUSTER_OK);
}

static void pushes_to_tensors_wait_for_the_cut_before_them(void **state)
{
    struct scene *scene = *state;
    struct muster_params_table *tables[WORKERS];
    struct tensor_call pushes[WORKERS], ahead;
    struct call cut;

    for (uint32_t i = 0; i < WORKERS; i++)
        tables[i] = params_stand_table(&scene->stand, scene->workers[i], &weights);
    tensor_push_start(scene, &pushes[0], tables[0], 0);
    assert_int_equal(call_await(scene, &pushes[0].call), MUSTER_OK);
    worker_tick(scene, 0, 1);
    cut_begin(scene, &cut, 1);
    tensor_push_start(scene, &ahead, tables[0], 0);
    tensor_push_start(scene, &pushes[1], tables[1], 1);
    assert_int_equal(call_await(scene, &pushes[1].call), MUSTER_OK);
    worker_push(scene, 1);
    assert_false(ahead.call.is_done);
    worker_tick(scene, 1, 1);

    assert_int_equal(call_await(scene, &cut), MUSTER_OK);
    assert_int_equal(call_await(scene, &ahead.call), MUSTER_OK);
    cut_check_table(scene, "weights", BLOCKS, 1, 1);
}

/* The round is closed by the ticks for which the cut waits. */
static void a_cut_at_a_clock_has_the_rounds_before_it(void **state)
{
    struct scene *scene = *state;
    struct muster_params_table *tables[WORKERS];
    struct call cut, pushes[WORKERS], ahead[WORKERS];

    for (uint32_t i = 0; i < WORKERS; i++)
        tables[i] = params_stand_table(&scene->stand, scene->workers[i], &sums);
    table_push_start(scene, &pushes[0], tables[0], 0);
    assert_int_equal(call_await(scene, &pushes[0]), MUSTER_OK);
    worker_tick(scene, 0, 1);
    cut_begin(scene, &cut, 1);
    table_push_start(scene, &ahead[0], tables[0], 0);
    table_push_start(scene, &pushes[1], tables[1], 1);
    assert_int_equal(call_await(scene, &pushes[1]), MUSTER_OK);
    worker_tick(scene, 1, 1);
    table_push_start(scene, &ahead[1], tables[1], 1);

    assert_int_equal(call_await(scene, &cut), MUSTER_OK);
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_int_equal(call_await(scene, &ahead[i]), MUSTER_OK);
    cut_check_table(scene, "sums", ROWS, 1, 1);
    assert_int_equal(cut.cut.clock, 1);
}

static bool is_marking(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->cut.state == MUSTER_PARAMS_CUT_MARKING;
}

/* A source that went on would be beyond the clock when the cut is begun again. */
static void sources_wait_until_a_cut_that_failed_is_made(void **state)
{
    struct scene *scene = *state;
    struct muster_error error;
    struct call cut, ahead, tick = {.is_done = false};

    muster_error_set(&error, MUSTER_UNAVAILABLE, "shards have moved amid the cut");
    worker_push(scene, 0);
    worker_tick(scene, 0, 1);
    cut_begin(scene, &cut, 1);
    push_start(scene, &ahead, 0);
    worker_push(scene, 1);
    tick.op.data = &tick;
    assert_int_equal(muster_params_tick_start(&tick.op, scene->workers[1], 1,
                                              params_stand_deadline(&scene->stand), on_call),
                     MUSTER_OK);
    for (int i = 0; i < 2; i++) {
        test_env_run_until(&scene->stand.test.env, is_marking, scene);
        muster_params_cut_end(&scene->stand.server->cut, &error);
        assert_false(ahead.is_done);
    }

    assert_int_equal(call_await(scene, &cut), MUSTER_OK);
    assert_int_equal(call_await(scene, &ahead), MUSTER_OK);
    assert_int_equal(call_await(scene, &tick), MUSTER_OK);
    assert_int_equal(cut.cut.clock, 1);
    cut_check(scene, 1, 1);
}

static bool is_held_by_another_attempt(void *data)
{
    const struct scene *scene = data;

    return scene->stand.server->hold.number > scene->stand.server->cut.number;
}

/* Pushes of the asker wait for credit: its new hold comes before the end of the old one all the same. */
static void sources_wait_while_the_asker_is_behind(void **state)
{
    struct scene *scene = *state;
    struct muster_error error;
    struct call cut, ahead;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "shards have moved amid the cut");
    worker_tick(scene, 0, 1);
    cut_begin(scene, &cut, 1);
    push_start(scene, &ahead, 0);
    worker_push(scene, 1);
    worker_tick(scene, 1, 1);
    test_env_run_until(&scene->stand.test.env, is_marking, scene);
    muster_params_cut_end(&scene->stand.server->cut, &error);
    test_env_run_until(&scene->stand.test.env, waits_to_begin_again, scene->asker);
    scene->asker->only->is_behind = true;
    test_env_run_until(&scene->stand.test.env, is_held_by_another_attempt, scene);
    assert_false(ahead.is_done);
    muster_params_requests_go_on(scene->asker);

    assert_int_equal(call_await(scene, &cut), MUSTER_OK);
    assert_int_equal(call_await(scene, &ahead), MUSTER_OK);
    cut_check(scene, 0, 1);
}

/* It is between two attempts when its program, or its time, ends it. */
static void a_cut_that_would_be_begun_again_can_end(void **state)
{
    for (uint32_t way = 0; way < 3; way++) {
        struct scene *scene = *state;
        struct muster_error error;
        struct call cut, ahead;

        muster_error_set(&error, MUSTER_UNAVAILABLE, "shards have moved amid the cut");
        worker_tick(scene, 0, way + 1);
        cut_begin(scene, &cut, way + 1);
        push_start(scene, &ahead, 0);
        worker_tick(scene, 1, way + 1);
        test_env_run_until(&scene->stand.test.env, is_marking, scene);
        muster_params_cut_end(&scene->stand.server->cut, &error);
        test_env_run_until(&scene->stand.test.env, waits_to_begin_again, scene->asker);
        if (way == 0) {
            muster_params_op_cancel(&cut.op);
        } else if (way == 1) {
            cut.op.deadline_ns = muster_loop_now_ns(scene->stand.test.env.loop);
            muster_params_on_op_deadline(&scene->asker->deadline);
        } else {
            (void)params_stand_leave(&scene->stand, scene->asker);
            scene->asker = NULL;
        }

        assert_int_equal(call_await(scene, &cut),
                         way == 1 ? MUSTER_DEADLINE_EXCEEDED : MUSTER_CANCELLED);
        if (way == 1)
            assert_non_null(strstr(cut.op.error.text, "shards have moved amid the cut"));
        assert_int_equal(call_await(scene, &ahead), MUSTER_OK);
    }
}

/* It comes to a server that holds back pushes. */
static void a_source_that_connects_meanwhile_waits_too(void **state)
{
    struct scene *scene = *state;
    struct call cut, ahead;

    worker_tick(scene, 0, 1);
    cut_begin(scene, &cut, 1);
    params_stand_kill(&scene->stand);
    params_stand_serve(&scene->stand);
    test_env_run_until(&scene->stand.test.env, is_held, scene); /* the asker asks again */
    worker_push(scene, 1);
    push_start(scene, &ahead, 0);
    worker_push(scene, 1);
    assert_false(ahead.is_done);
    worker_tick(scene, 1, 1);

    assert_int_equal(call_await(scene, &cut), MUSTER_OK);
    assert_int_equal(call_await(scene, &ahead), MUSTER_OK);
    cut_check(scene, 0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_cut_at_a_clock_has_the_steps_before_it_and_no_others),
        CASE(pushes_of_several_steps_of_a_turn_are_parted),
        CASE(pulls_stay_behind_pushes_that_wait),
        CASE(a_clock_at_which_an_older_process_has_pushed_is_refused),
        CASE(a_push_of_a_process_that_is_dead_voids_the_cut),
        CASE(a_clock_that_is_over_is_refused),
        CASE(without_sources_that_tick_there_is_no_clock),
        CASE(a_source_that_asks_over_another_link_holds_anew),
        CASE(sources_go_on_when_the_cut_is_given_up),
        CASE(pushes_to_tensors_wait_for_the_cut_before_them),
        CASE(a_cut_at_a_clock_has_the_rounds_before_it),
        CASE(sources_wait_until_a_cut_that_failed_is_made),
        CASE(sources_wait_while_the_asker_is_behind),
        CASE(a_cut_that_would_be_begun_again_can_end),
        CASE(a_source_that_connects_meanwhile_waits_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
