/* Which server gets which rows, and what becomes of messages when the map changes. The case plays the
 * servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_calls.h"
#include "params_puppet_calls.h"

#include <stdio.h>
#include <string.h>

#include "params/client/client_internal.h"
#include "params/wire/hash.h"

#define SHARDS PARAMS_PUPPETS_SHARDS

/* --- Rows --- */

static const uint32_t all_shards[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void each_server_gets_the_rows_of_its_shards(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push, pull;
    struct puppet_rows seen[2];
    const float values[2][4] = {{10, 11, 12, 13}, {14, 15, 16, 17}};

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppet_push_start(&puppets, table, &push, all_shards, 8);
    for (uint32_t i = 0; i < 2; i++) {
        const struct puppet_rows one =
            puppet_push_expect(&puppets.list[i], 1, 1, &all_shards[i * 4], 4);

        for (uint32_t j = 0; j < 4; j++) {
            assert_true(puppet_run_is_first(&one, j));
            assert_true(((const float *)one.rows.values)[j] == (float)(i * 4 + j + 1));
        }
    }
    params_puppet_acknowledge(&puppets.list[1], 1);
    test_env_turn(puppets.env, 20);
    assert_false(push.is_done);
    params_puppet_acknowledge(&puppets.list[0], 1);
    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);

    puppet_pull_start(&puppets, table, &pull, (const uint32_t[]){7, 0, 6, 1, 5, 2, 4, 3}, 8);
    for (uint32_t i = 0; i < 2; i++) {
        seen[i] = puppet_rows_expect(&puppets.list[i], MUSTER_PARAMS_PULL);
        assert_int_equal(seen[i].rows.row_count, 4);
        puppet_rows_answer(&puppets.list[i], &seen[i], values[i]);
    }
    assert_int_equal(puppet_call_await(&puppets, &pull), MUSTER_OK);
    assert_memory_equal(pull.values, ((const float[]){14, 10, 15, 11, 16, 12, 17, 13}),
                        sizeof(pull.values));
    puppet_scene_close(&puppets);
}

static void the_answer_of_a_server_that_shares_an_operation_is_checked(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call pull;
    struct puppet_rows seen;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppet_pull_start(&puppets, table, &pull, (const uint32_t[]){0, 7}, 2);
    seen = puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PULL);
    seen.rows.row_count = 2; /* one too many */
    puppet_rows_answer(&puppets.list[0], &seen, (const float[]){1, 2});
    params_puppet_expect(&puppets.list[0], MUSTER_PARAMS_OPEN); /* over the next link */
    assert_false(pull.is_done);
    puppet_scene_close(&puppets);
}

/* --- Maps that change --- */

/* The shards 0 and 4 are with puppets 0 and 1; 1 moves. */
static void a_push_is_cut_along_its_runs(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push;
    struct puppet_rows kept, moved;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0, 1}, 2);
    (void)puppet_push_expect(&puppets.list[0], 1, 1, (const uint32_t[]){0, 1}, 2);
    params_puppets_move(&puppets, 1, 1, 0);
    kept = puppet_push_expect(&puppets.list[0], 1, 2, (const uint32_t[]){0}, 1);
    moved = puppet_push_expect(&puppets.list[1], 1, 2, (const uint32_t[]){1}, 1);
    assert_true(puppet_run_is_first(&kept, 0) && puppet_run_is_first(&moved, 0));
    assert_true(*(const float *)kept.rows.values == 1 && *(const float *)moved.rows.values == 2);
    params_puppet_acknowledge(&puppets.list[0], 1);
    test_env_turn(puppets.env, 20);
    assert_false(push.is_done);
    params_puppet_acknowledge(&puppets.list[1], 1);

    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    puppet_scene_close(&puppets);
}

static void messages_whose_shards_have_stayed_are_not_sent_again(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push, pull;
    struct puppet_rows seen;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0}, 1);
    puppet_pull_start(&puppets, table, &pull, (const uint32_t[]){2}, 1);
    (void)puppet_push_expect(&puppets.list[0], 1, 1, (const uint32_t[]){0}, 1);
    seen = puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PULL);
    params_puppets_move(&puppets, 1, 1, 0);
    puppet_quiet_expect(&puppets, 0);
    puppet_quiet_expect(&puppets, 1);
    params_puppet_acknowledge(&puppets.list[0], 1);
    puppet_rows_answer(&puppets.list[0], &seen, (const float[]){4});

    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    assert_int_equal(puppet_call_await(&puppets, &pull), MUSTER_OK);
    assert_true(pull.values[0] == 4);
    puppet_scene_close(&puppets);
}

/* A server that has got the shard back answers MOVED to messages of before, so they go there again. */
static void a_shard_that_has_come_back_is_sent_again(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push;
    struct puppet_rows first;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0}, 1);
    first = puppet_push_expect(&puppets.list[0], 1, 1, (const uint32_t[]){0}, 1);
    params_puppets_map_next(&puppets); /* it was away by map 2, of which the client does not hear */
    params_puppets_move(&puppets, 0, 0, 0);
    params_puppet_moved(&puppets.list[0], &first.frame, 3);
    (void)puppet_push_expect(&puppets.list[0], 1, 3, (const uint32_t[]){0}, 1);
    puppet_quiet_expect(&puppets, 0);
    assert_false(push.is_done);
    params_puppet_acknowledge(&puppets.list[0], 1);

    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    puppet_scene_close(&puppets);
}

/* A pull shows what the same program has pushed before it, also after a loss. */
static void pushes_go_before_pulls_over_the_next_link(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call pull, push;

    (void)state;
    puppet_scene_open(&puppets, 1, &table);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0}, 1);
    puppet_pull_start(&puppets, table, &pull, (const uint32_t[]){0}, 1);
    (void)puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PUSH);
    params_puppet_hang_up(&puppets.list[0]);
    params_puppet_reopen(&puppets.list[0], 1);

    (void)puppet_push_expect(&puppets.list[0], 1, 1, (const uint32_t[]){0}, 1);
    (void)puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PULL);
    puppet_scene_close(&puppets);
}

static void a_deadline_names_the_server_that_was_asked(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    char text[256];
    bool is_over = false;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    snprintf(text, sizeof(text), "the server at %s has not answered in time",
             puppets.list[0].host.address);
    while (!is_over) { /* until the client has an error all the while, of another server */
        struct params_call call;
        struct muster_params_rows rows =
            puppet_call_init(&call, table->name, (const uint32_t[]){0}, 1);
        enum muster_rc rc;

        params_puppet_hang_up(&puppets.list[1]);
        test_env_run_until(puppets.env, params_has_error, puppets.params);
        do /* on a busy machine that may be over when it begins */
            rc = muster_params_push_start(&call.op, table, &rows,
                                          muster_loop_after_ns(puppets.env->loop, MUSTER_NS_PER_MS),
                                          params_on_call);
        while (rc == MUSTER_INVALID_ARGUMENT);
        assert_int_equal(rc, MUSTER_OK);
        assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_DEADLINE_EXCEEDED);
        is_over = params_has_error(puppets.params);
        assert_string_equal(call.op.error.text, text);
    }
    puppet_scene_close(&puppets);
}

/* Memory ends amid the messages of a push: the one that was made is freed, and none leaves. They are larger than any
 * message before, so that the client has no memory left over for them. */
static void a_push_without_memory_for_all_its_messages_is_not_sent(void **state)
{
    enum { ELEMENTS = 5000 };
    static const struct muster_params_schema wide = {
        .name = "wide", .row_elements = ELEMENTS, .wire_dtype = MUSTER_F32};
    static const float values[2 * ELEMENTS];
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct muster_mem_limited *mem = &puppets.test.mem;
    struct params_call call;
    struct muster_params_rows rows;

    (void)state;
    puppet_scene_init(&puppets, 2);
    table = params_puppets_table(&puppets, &wide);
    rows = puppet_call_init(&call, wide.name, (const uint32_t[]){0, SHARDS - 1}, 2);
    rows.values = (void *)(uintptr_t)values;
    assert_int_equal(
        muster_params_push_start(&call.op, table, &rows, puppet_deadline(&puppets), params_on_call),
        MUSTER_OK);
    mem->limit_bytes = mem->held_bytes + ELEMENTS * sizeof(float) * 3 / 2;
    assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_RESOURCE_EXHAUSTED);
    mem->limit_bytes = 0;

    for (uint32_t i = 0; i < 2; i++)
        puppet_quiet_expect(&puppets, i);
    puppet_scene_close(&puppets);
}

/* Shard 0 moves while two pushes to it wait for their answers, and an allocation fails. True: it was that for the
 * message of the first push, which is the source's first. */
static bool moved_push_fails(uint64_t allocation)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call calls[3];
    struct puppet_rows seen;
    bool has_failed;

    puppet_scene_open(&puppets, 2, &table);
    for (uint32_t i = 0; i < 2; i++) {
        puppet_push_start(&puppets, table, &calls[i], (const uint32_t[]){0}, 1);
        seen = puppet_push_expect(&puppets.list[0], 1 + i, 1, (const uint32_t[]){0}, 1);
        assert_int_equal(puppet_run_is_first(&seen, 0), i == 0);
    }
    params_puppets_move(&puppets, 0, 1, 0);
    muster_mem_pool_trim(&puppets.params->pool); /* or the pool's memory would be used instead */
    puppets.test.mem.fail_at = allocation;
    test_env_turn(puppets.env, 50);
    puppets.test.mem.fail_at = 0;
    has_failed = calls[0].is_done && calls[0].rc == MUSTER_RESOURCE_EXHAUSTED;
    if (has_failed) {
        seen = puppet_push_expect(&puppets.list[1], 2, 2, (const uint32_t[]){0}, 1);
        assert_true(puppet_run_is_first(&seen, 0));
        puppet_push_start(&puppets, table, &calls[2], (const uint32_t[]){0}, 1);
        seen = puppet_push_expect(&puppets.list[1], 3, 2, (const uint32_t[]){0}, 1);
        assert_false(puppet_run_is_first(&seen, 0));
    }
    puppet_scene_close(&puppets);
    return has_failed;
}

static void the_push_behind_a_first_one_without_memory_is_the_first(void **state)
{
    uint64_t allocation = 1;

    (void)state;
    while (allocation < 20 && !moved_push_fails(allocation))
        allocation++;
    assert_true(allocation < 20);
}

/* Both parts are with one server again, and the second is acknowledged first. The one that is not goes
 * on over the next link. */
static void parts_that_meet_again_are_told_apart(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0, 4}, 2);
    (void)puppet_push_expect(&puppets.list[0], 1, 1, (const uint32_t[]){0}, 1);
    (void)puppet_push_expect(&puppets.list[1], 1, 1, (const uint32_t[]){4}, 1);
    params_puppets_map_next(&puppets);
    for (uint32_t shard = 4; shard < SHARDS; shard++)
        params_puppets_lead(&puppets, shard, 0);
    params_puppets_tell(&puppets, 0);
    puppet_push_take(&puppets.list[0], 1, 2, 4);
    test_env_turn(puppets.env, 20);
    assert_false(push.is_done);
    params_puppet_hang_up(&puppets.list[0]);
    params_puppet_reopen(&puppets.list[0], 1);
    puppet_push_take(&puppets.list[0], 1, 1, 0);

    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    puppet_scene_close(&puppets);
}

/* A server counts positions by source and shard, whatever the table. */
static void a_new_server_gets_pushes_in_order_once_it_knows_all_their_tables(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *tables[2];
    struct params_puppet_frame asked[2];
    struct params_call pushes[3], pull;

    (void)state;
    params_puppets_open(&puppets, 3);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        params_puppets_lead(&puppets, shard, shard % 2);
    params_puppets_client(&puppets, NULL);
    puppets.map->server_count = 2; /* the third is not there yet */
    params_puppets_client_await(&puppets);
    tables[0] = params_puppets_table(&puppets, &puppet_counters);
    tables[1] = params_puppets_table(&puppets, &puppet_others);
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 3;
    params_puppets_lead(&puppets, 0, 2);
    params_puppets_tell(&puppets, 0);
    params_puppet_expect(&puppets.list[2], MUSTER_PARAMS_OPEN);
    puppet_push_start(&puppets, tables[1], &pushes[0], (const uint32_t[]){0}, 1);
    test_env_turn(puppets.env, 4);
    puppet_push_start(&puppets, tables[0], &pushes[1], (const uint32_t[]){0}, 1);
    puppet_pull_start(&puppets, tables[0], &pull, (const uint32_t[]){0}, 1);
    test_env_turn(puppets.env, 4);
    params_puppet_opened(&puppets.list[2], 12, 1, 1);
    asked[0] = params_puppet_expect(&puppets.list[2], MUSTER_PARAMS_TABLE);
    asked[1] = params_puppet_expect(&puppets.list[2], MUSTER_PARAMS_TABLE);
    params_puppet_table_opened(&puppets.list[2], &asked[0], 7);
    puppet_push_start(&puppets, tables[0], &pushes[2], (const uint32_t[]){0}, 1);
    puppet_quiet_expect(&puppets, 2);
    params_puppet_table_opened(&puppets.list[2], &asked[1], 7);

    for (uint64_t sequence = 1; sequence <= 3; sequence++) {
        puppet_push_take(&puppets.list[2], sequence, 2, 0);
    }
    (void)puppet_rows_expect(&puppets.list[2], MUSTER_PARAMS_PULL);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(puppet_call_await(&puppets, &pushes[i]), MUSTER_OK);
    puppet_scene_close(&puppets);
}

static void a_server_that_leaves_the_map_is_waited_for_no_more(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push, pull;
    struct puppet_rows seen;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){4}, 1);
    puppet_pull_start(&puppets, table, &pull, (const uint32_t[]){5}, 1);
    (void)puppet_push_expect(&puppets.list[1], 1, 1, (const uint32_t[]){4}, 1);
    (void)puppet_rows_expect(&puppets.list[1], MUSTER_PARAMS_PULL);
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 1;
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        if (puppets.map->shards[shard].copies[0] == 1)
            params_puppets_lead(&puppets, shard, 0);
    params_puppets_tell(&puppets, 0);
    (void)puppet_push_expect(&puppets.list[0], 1, 2, (const uint32_t[]){4}, 1);
    seen = puppet_rows_expect(&puppets.list[0], MUSTER_PARAMS_PULL);
    params_peer_await_down(&puppets.list[1].host.peer);
    params_puppet_acknowledge(&puppets.list[0], 1);
    puppet_rows_answer(&puppets.list[0], &seen, (const float[]){5});

    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    assert_int_equal(puppet_call_await(&puppets, &pull), MUSTER_OK);
    assert_true(pull.values[0] == 5);
    assert_int_equal(puppets.list[1].host.link_count, 1);
    puppet_scene_close(&puppets);
}

static bool is_ticked(void *data)
{
    struct params_puppet_frame frame;

    return params_puppet_next(data, &frame) && frame.header.type == MUSTER_PARAMS_TICK;
}

static void a_clock_is_not_told_to_a_server_that_leaves_the_map(void **state)
{
    struct params_call tick = {.op = {.data = &tick}};
    struct params_puppets puppets;

    (void)state;
    params_puppets_open(&puppets, 2);
    puppets.clock_sources = 1;
    params_puppets_client(&puppets, NULL);
    params_puppets_client_await(&puppets);
    assert_int_equal(muster_params_tick_start(&tick.op, puppets.params, 1,
                                              puppet_deadline(&puppets), params_on_call),
                     MUSTER_OK);
    test_env_run_until(puppets.env, is_ticked, &puppets.list[1]);
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 1;
    params_puppets_lead_all(&puppets, 0);
    params_puppets_tell(&puppets, 0);
    params_peer_await_down(&puppets.list[1].host.peer);
    for (uint64_t number = 1; number <= 4; number++) /* whichever has them: its clocks 0 and 1 */
        params_puppet_send(&puppets.list[0],
                           &(struct muster_frame_header){.channel = MUSTER_FRAME_PARAMS,
                                                         .type = MUSTER_PARAMS_TICKED,
                                                         .offset = number},
                           NULL);

    assert_int_equal(puppet_call_await(&puppets, &tick), MUSTER_OK);
    puppet_scene_close(&puppets);
}

static struct muster_params_tick tick_answer(struct params_puppet *puppet)
{
    const struct params_puppet_frame frame = params_puppet_expect(puppet, MUSTER_PARAMS_TICK);
    struct muster_params_tick tick;
    struct muster_error error;

    assert_int_equal(
        muster_params_tick_unpack(frame.payload, frame.header.payload_bytes, &tick, &error),
        MUSTER_OK);
    params_puppet_send(puppet,
                       &(struct muster_frame_header){.channel = MUSTER_FRAME_PARAMS,
                                                     .type = MUSTER_PARAMS_TICKED,
                                                     .offset = frame.header.offset},
                       NULL);
    return tick;
}

/* The server may lead the decisions about rounds from now on, and the round of that clock may be open. */
static void a_late_server_hears_the_last_clock_of_a_source_that_is_done(void **state)
{
    static const uint64_t clocks[] = {3, MUSTER_PARAMS_CLOCK_DONE};
    struct params_puppets puppets;
    struct muster_params_tick tick;

    (void)state;
    params_puppets_open(&puppets, 2);
    puppets.clock_sources = 1;
    puppets.map->server_count = 1;
    params_puppets_lead_all(&puppets, 0);
    params_puppets_client(&puppets, NULL);
    params_puppets_client_await(&puppets);
    (void)tick_answer(&puppets.list[0]);
    for (uint32_t i = 0; i < 2; i++) {
        struct params_call call = {.op = {.data = &call}};

        assert_int_equal(muster_params_tick_weighted_start(&call.op, puppets.params, clocks[i], 2,
                                                           puppet_deadline(&puppets),
                                                           params_on_call),
                         MUSTER_OK);
        assert_true(tick_answer(&puppets.list[0]).clock == clocks[i]);
        assert_int_equal(puppet_call_await(&puppets, &call), MUSTER_OK);
    }
    params_puppets_map_next(&puppets);
    puppets.map->server_count = 2;
    params_puppets_lead(&puppets, 0, 1);
    params_puppets_tell(&puppets, 0);
    (void)params_puppet_reopen(&puppets.list[1], 1);

    tick = tick_answer(&puppets.list[1]);
    assert_true(tick.clock == 3);
    assert_true(tick.weight == 2);
    assert_true(tick_answer(&puppets.list[1]).clock == MUSTER_PARAMS_CLOCK_DONE);
    puppet_scene_close(&puppets);
}

static bool has_newest_map(void *data)
{
    const struct params_puppets *puppets = data;

    return puppets->params->map->epoch == puppets->map->epoch;
}

static void rows_of_a_lost_shard_wait_for_a_server(void **state)
{
    struct params_puppets puppets;
    struct muster_params_table *table;
    struct params_call push, hasty;
    struct muster_params_rows rows;

    (void)state;
    puppet_scene_open(&puppets, 2, &table);
    params_puppets_move(&puppets, 2, UINT32_MAX, 0);
    test_env_run_until(puppets.env, has_newest_map, &puppets);
    puppet_push_start(&puppets, table, &push, (const uint32_t[]){0, 2}, 2);
    rows = puppet_call_init(&hasty, "counters", (const uint32_t[]){2}, 1);
    assert_int_equal(
        muster_params_pull_start(&hasty.op, table, &rows,
                                 muster_loop_after_ns(puppets.env->loop, 100 * MUSTER_NS_PER_MS),
                                 params_on_call),
        MUSTER_OK);
    puppet_push_take(&puppets.list[0], 1, 2, 0);
    assert_int_equal(puppet_call_await(&puppets, &hasty), MUSTER_DEADLINE_EXCEEDED);
    assert_string_equal(hasty.op.error.text,
                        "some of the rows have no server that can be reached (map 2)");
    assert_false(push.is_done);
    params_puppets_move(&puppets, 2, 1, 0);
    puppet_push_take(&puppets.list[1], 1, 3, 2);

    assert_int_equal(puppet_call_await(&puppets, &push), MUSTER_OK);
    puppet_scene_close(&puppets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_server_gets_the_rows_of_its_shards),
        cmocka_unit_test(the_answer_of_a_server_that_shares_an_operation_is_checked),
        cmocka_unit_test(a_push_is_cut_along_its_runs),
        cmocka_unit_test(messages_whose_shards_have_stayed_are_not_sent_again),
        cmocka_unit_test(a_shard_that_has_come_back_is_sent_again),
        cmocka_unit_test(pushes_go_before_pulls_over_the_next_link),
        cmocka_unit_test(a_deadline_names_the_server_that_was_asked),
        cmocka_unit_test(a_push_without_memory_for_all_its_messages_is_not_sent),
        cmocka_unit_test(the_push_behind_a_first_one_without_memory_is_the_first),
        cmocka_unit_test(parts_that_meet_again_are_told_apart),
        cmocka_unit_test(a_new_server_gets_pushes_in_order_once_it_knows_all_their_tables),
        cmocka_unit_test(a_server_that_leaves_the_map_is_waited_for_no_more),
        cmocka_unit_test(a_clock_is_not_told_to_a_server_that_leaves_the_map),
        cmocka_unit_test(a_late_server_hears_the_last_clock_of_a_source_that_is_done),
        cmocka_unit_test(rows_of_a_lost_shard_wait_for_a_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
