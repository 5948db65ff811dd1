/* Decisions of rounds: a server keeps them, applies those of others, and finds them again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_job.h"
#include "params_sources.h"
#include "scene_case.h"
#include "torture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "params/server/state/round.h"
#include "params/server/state/round_internal.h"
#include "params/store/row.h"

#define SHARDS  4u
#define SOURCES 2u
#define KEYS    64u

static const struct muster_params_schema sums = {.name = "sums",
                                                 .row_elements = 1,
                                                 .wire_dtype = MUSTER_F32,
                                                 .optimizer = MUSTER_PARAMS_ADD,
                                                 .is_by_round = true,
                                                 .is_round_mean = true};

static void scene_open(struct params_sources *scene)
{
    params_sources_open(scene, SHARDS, SOURCES, &sums);
}

SCENE_CASES(struct params_sources, scene_open, params_sources_close)

static struct muster_params_rounds *rounds_of(const struct params_sources *scene)
{
    struct muster_params_server *server = scene->stand.server;

    assert_false(muster_list_is_empty(&server->rounds));
    return MUSTER_CONTAINER_OF(server->rounds.next, struct muster_params_rounds, node);
}

/* Each source pushes its own number and the key to every key that its stride meets. */
static void keys_push(struct params_sources *scene, uint32_t source, uint32_t stride)
{
    uint64_t keys[KEYS];
    float values[KEYS];
    uint32_t count = 0;
    struct muster_error error;

    for (uint64_t key = 0; key < KEYS; key += stride) {
        keys[count] = key;
        values[count++] = (float)(key + 1000 * (source + 1));
    }
    if (params_stand_push(&scene->stand, scene->tables[source], keys, values, count, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}

static void values_pull(struct params_sources *scene, uint64_t clock, float ret_values[KEYS])
{
    uint64_t keys[KEYS];
    struct muster_error error;

    for (uint64_t key = 0; key < KEYS; key++)
        keys[key] = key;
    if (params_stand_pull_after(&scene->stand, scene->tables[0], keys, ret_values, KEYS, clock,
                                params_stand_deadline(&scene->stand), &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

/* The first source has pushed to every key, the second to each second one; weights 1 and 3. */
static float mean_of(uint64_t key)
{
    return key % 2 == 0 ? (float)((double)(1000 + key) + 3 * (double)(2000 + key)) / 4
                        : (float)(1000 + key) / 4;
}

static void means_check(struct params_sources *scene, uint64_t clock)
{
    float values[KEYS];

    values_pull(scene, clock, values);
    for (uint64_t key = 0; key < KEYS; key++) {
        if (values[key] != mean_of(key))
            fail_msg("key %u: %f", (unsigned)key, (double)values[key]);
    }
}

static void sources_push(struct params_sources *scene)
{
    keys_push(scene, 0, 1);
    keys_push(scene, 1, 2);
}

static void round_close(struct params_sources *scene)
{
    sources_push(scene);
    params_sources_tick(scene, 0, 1, 1);
    params_sources_tick(scene, 1, 1, 3);
}

static void every_row_gets_what_its_sources_have_pushed(void **state)
{
    struct params_sources *scene = *state;

    round_close(scene);
    means_check(scene, 1);
    assert_int_equal(muster_params_table_round(scene->tables[0]), 1);
}

static void a_round_without_weight_has_no_mean(void **state)
{
    struct params_sources *scene = *state;
    float values[KEYS];

    sources_push(scene);
    for (uint32_t i = 0; i < SOURCES; i++)
        params_sources_tick(scene, i, 1, 0);
    values_pull(scene, 1, values);
    for (uint64_t key = 0; key < KEYS; key++)
        assert_true(values[key] == 0);
}

/* It has nothing in the table, and its weight counts all the same. */
static void a_source_that_has_pushed_nothing_counts(void **state)
{
    struct params_sources *scene = *state;
    float values[KEYS];

    keys_push(scene, 1, 1);
    params_sources_tick(scene, 0, 1, 1);
    params_sources_tick(scene, 1, 1, 3);
    values_pull(scene, 1, values);
    for (uint64_t key = 0; key < KEYS; key++)
        assert_true(values[key] == (float)(3 * (double)(2000 + key) / 4));
}

/* No client is there that could tell it. */
static void a_server_finds_its_decisions_in_the_memory(void **state)
{
    struct params_sources *scene = *state;
    const struct muster_params_decision *decision;

    round_close(scene);
    means_check(scene, 1);
    for (uint32_t i = 0; i < SOURCES; i++)
        params_sources_leave(scene, i);
    params_stand_kill(&scene->stand);
    params_stand_serve(&scene->stand);

    assert_int_equal(rounds_of(scene)->open, 1);
    assert_int_equal(rounds_of(scene)->applied, 1);
    decision = muster_params_decision_at(rounds_of(scene), 0);
    assert_non_null(decision);
    assert_int_equal(decision->count, SOURCES);
    assert_null(muster_params_decision_at(rounds_of(scene), 1));
    params_sources_join(scene, 0);
    assert_int_equal(muster_params_table_round(scene->tables[0]), 1);
    means_check(scene, 1);
}

/* As another server has decided: the sources are in the order of their ids. */
static struct muster_params_decision *decision_of(struct params_sources *scene, uint64_t round)
{
    const struct muster_params_region *region = scene->stand.server->region;
    struct muster_params_round_source sources[SOURCES];
    uint32_t count = 0;
    struct muster_params_decision *decision;

    for (uint32_t i = 0; i < SOURCES; i++) {
        const char *name = i == 0 ? "worker:0" : "worker:1";

        sources[count].id = muster_params_source_id(name);
        sources[count++].weight = i == 0 ? 1 : 3;
    }
    if (memcmp(&sources[0].id, &sources[1].id, sizeof(sources[0].id)) > 0) {
        struct muster_params_round_source first = sources[0];

        sources[0] = sources[1];
        sources[1] = first;
    }
    assert_int_equal(region->head->clock_sources, SOURCES);
    decision = muster_params_decision_new(
        scene->stand.server,
        &(struct muster_params_round){.round = round, .source_count = count, .sources = sources});
    assert_non_null(decision);
    return decision;
}

/* A map makes it the primary of shards whose former one may not have applied the decision. */
static void a_new_map_applies_what_was_decided_before(void **state)
{
    struct params_sources *scene = *state;
    struct muster_params_rounds *rounds = rounds_of(scene);

    sources_push(scene);
    for (uint32_t i = 0; i < SOURCES; i++) /* it hears how many there are, and decides nothing */
        params_sources_tick(scene, i, 0, 1);
    assert_true(muster_params_decision_learn(rounds, decision_of(scene, 0)));
    assert_int_equal(rounds->open, 1);
    muster_params_rounds_map(scene->stand.server);

    assert_int_equal(rounds->applied, 1);
    assert_false(rounds->is_behind);
    means_check(scene, 0);
    muster_params_rounds_map(scene->stand.server); /* a repetition changes nothing */
    means_check(scene, 0);
}

static bool is_decided(void *data)
{
    return ((const struct muster_params_rounds *)data)->open == 1;
}

/* All have completed the round while another server led its decisions; now this one does. */
static void a_new_map_decides_the_round_that_is_complete(void **state)
{
    struct params_sources *scene = *state;
    struct muster_params_server *server = scene->stand.server;
    struct muster_params_rounds *rounds = rounds_of(scene);
    uint32_t place = server->place;

    sources_push(scene);
    server->place = MUSTER_PARAMS_NOWHERE;
    for (uint32_t i = 0; i < SOURCES; i++)
        params_sources_tick(scene, i, 1, i == 0 ? 1 : 3);
    test_env_turn(&scene->stand.test.env, 20);
    assert_int_equal(rounds->open, 0);
    server->place = place;
    muster_task_cancel(&server->round_review);
    muster_timer_stop(&server->round_timer);
    muster_params_rounds_map(server);

    test_env_run_until(&scene->stand.test.env, is_decided, rounds);
    assert_true(rounds->is_home);
    means_check(scene, 1);
}

/* A server that has missed rounds tells of those that it knows. */
static void rounds_that_are_not_known_are_not_told(void **state)
{
    struct params_sources *scene = *state;
    struct muster_params_rounds *rounds = rounds_of(scene);

    params_sources_leave(scene, 1);
    rounds->has_quorum = true; /* of the round before */
    assert_true(muster_params_decision_learn(rounds, decision_of(scene, 5)));
    assert_int_equal(rounds->open, 6);
    assert_false(rounds->has_quorum);
    for (uint64_t round = 0; round < 5; round++)
        assert_null(muster_params_decision_at(rounds, round));
    params_sources_join(scene, 1);

    assert_int_equal(muster_params_table_round(scene->tables[1]), 6);
    muster_params_decisions_announce(rounds);
    assert_false(muster_params_decision_learn(rounds, decision_of(scene, 5)));
    assert_false(muster_params_decision_learn(rounds, decision_of(scene, 2)));
    assert_int_equal(rounds->open, 6);
}

/* It is closed whole a little later. */
static void run_close(struct torture *torture, const void *data)
{
    static struct params_sources scene;
    struct muster_params_rounds *rounds;

    (void)data;
    scene_open(&scene);
    rounds = rounds_of(&scene);
    sources_push(&scene);
    scene.stand.server->place = MUSTER_PARAMS_NOWHERE;
    for (uint32_t source = 0; source < SOURCES; source++)
        params_sources_tick(&scene, source, 1, source == 0 ? 1 : 3);
    test_env_turn(&scene.stand.test.env, 20);
    scene.stand.server->place = 0;
    torture_arm_limited(torture, &scene.stand.test.mem);
    muster_params_rounds_look(rounds, false);
    test_env_turn(&scene.stand.test.env, 2);
    torture_disarm(torture);
    means_check(&scene, 1);
    assert_int_equal(rounds->open, 1);
    assert_false(rounds->is_behind);
    params_sources_close(&scene);
}

static void a_round_without_memory_is_closed_later(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "close", .run = run_close});
}

/* The decision has its place in a table of its own, and other tables take all that there is. */
static void a_round_whose_decision_cannot_be_kept_stays_open(void **state)
{
    struct params_sources *scene = *state;
    struct muster_params_server *server = scene->stand.server;
    char name[32];
    struct muster_params_schema schema = sums;
    struct muster_params_store_table *table;
    struct muster_error error;

    sources_push(scene);
    schema.name = name;
    schema.is_by_round = schema.is_round_mean = false;
    for (unsigned i = 0; i <= MUSTER_PARAMS_TABLES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "table%u", i);
        if (muster_params_table_open(server->region, &schema, &table, &error) != MUSTER_OK)
            break;
    }
    for (uint32_t source = 0; source < SOURCES; source++)
        params_sources_tick(scene, source, 1, 1);
    test_env_turn(&scene->stand.test.env, 20);

    assert_null(rounds_of(scene)->pending);
    assert_int_equal(rounds_of(scene)->open, 0);
    assert_true(muster_timer_is_started(&server->round_timer)); /* there may be room later */
}

/* It does not count as one that has opened the table, so that its link is given up and it comes again. */
static void a_client_that_cannot_be_told_of_a_round_does_not_join(void **state)
{
    struct params_sources *scene = *state;
    struct muster_params_server *server = scene->stand.server;
    struct muster_mem_limited *mem = &scene->stand.test.mem;
    struct muster_params_client *client =
        MUSTER_CONTAINER_OF(server->clients.next, struct muster_params_client, node);

    round_close(scene);
    means_check(scene, 1);
    muster_mem_pool_trim(&server->pool);
    mem->limit_bytes = mem->held_bytes;
    assert_false(muster_params_rounds_join(client, rounds_of(scene)->table));
    mem->limit_bytes = 0;
    assert_true(muster_params_rounds_join(client, rounds_of(scene)->table));
}

/* Its memory may go with the error, though its doors close in later turns. */
static void a_server_that_is_not_opened_leaves_its_memory_alone(void **state)
{
    const struct muster_params_seat_options seat = {.shard_count = SHARDS};
    struct params_sources *scene = *state;
    struct params_stand *stand = &scene->stand, other;
    struct muster_address address;
    struct muster_params_server_options options = {.job = "test", .listen = &address};
    struct muster_params_server *server = NULL;
    struct muster_error error;

    round_close(scene);
    for (uint32_t i = 0; i < SOURCES; i++)
        params_sources_leave(scene, i);
    params_stand_kill(stand);
    params_stand_open(&other, SHARDS);
    address = *muster_params_server_address(other.server);
    assert_int_equal(
        muster_params_seat_wrap(stand->memory, stand->bytes, &seat, &stand->seat, &error),
        MUSTER_OK);
    options.seat = stand->seat;
    assert_int_equal(muster_params_server_open(&stand->test.env, &options, &server, &error),
                     MUSTER_ALREADY_EXISTS);
    assert_null(server);
    muster_params_seat_free(stand->seat);
    stand->seat = NULL;
    test_env_turn(&stand->test.env, 8);

    params_stand_close(&other);
}

/* It has tables by round before it has a map, and decides nothing until then. */
static void a_server_of_a_job_comes_back_without_a_map(void **state)
{
    static struct params_job job;
    struct params_stand *stand = &job.caller.stand;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_error error;
    uint64_t key = 7;
    float value = 5;

    (void)state;
    params_job_open(&job, 1, 1);
    params_job_dial(&job, 0);
    params = params_stand_source(stand, "worker:0", 1);
    table = params_stand_table(stand, params, &sums);
    assert_int_equal(params_stand_push(stand, table, &key, &value, 1, &error), MUSTER_OK);
    assert_int_equal(params_stand_tick(stand, params, 1, 1, &error), MUSTER_OK);
    assert_int_equal(params_stand_leave(stand, params), MUSTER_OK);
    params_job_member_restart(&job, 0);
    assert_null(job.members[0].server->map);
    assert_false(muster_list_is_empty(&job.members[0].server->rounds));
    params_job_dial(&job, 0);
    params = params_stand_source(stand, "worker:0", 1);
    table = params_stand_table(stand, params, &sums);

    value = 0;
    assert_int_equal(params_stand_pull_after(stand, table, &key, &value, 1, 1,
                                             params_stand_deadline(stand), &error),
                     MUSTER_OK);
    assert_true(value == 5);
    assert_int_equal(params_stand_leave(stand, params), MUSTER_OK);
    params_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_row_gets_what_its_sources_have_pushed),
        CASE(a_round_without_weight_has_no_mean),
        CASE(a_source_that_has_pushed_nothing_counts),
        CASE(a_server_finds_its_decisions_in_the_memory),
        CASE(a_new_map_applies_what_was_decided_before),
        CASE(a_new_map_decides_the_round_that_is_complete),
        CASE(rounds_that_are_not_known_are_not_told),
        cmocka_unit_test_teardown(a_round_without_memory_is_closed_later, torture_tell),
        CASE(a_server_that_is_not_opened_leaves_its_memory_alone),
        CASE(a_round_whose_decision_cannot_be_kept_stays_open),
        CASE(a_client_that_cannot_be_told_of_a_round_does_not_join),
        cmocka_unit_test(a_server_of_a_job_comes_back_without_a_map),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
