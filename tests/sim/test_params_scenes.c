/* Servers of parameters and a client at moments that are hard to meet: links that are half open, because a
 * reset was lost, servers and clients that stand still, sources that have gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "params/client/client_internal.h"
#include "params/server/followers/follower.h"
#include "params/server/followers/record.h"
#include "params/store/row.h"
#include "params/store/source.h"
#include "params/wire/hash.h"
#include "tests/lib/assertion_count.h"
#include "tests/sim/params_scene.h"

#define MEMORY_BYTES MUSTER_PARAMS_REGION_BYTES_MIN
#define WIDE         16384u /* elements of a row that takes 64 KiB */
#define WIDE_ROWS    400u
#define SECOND       MUSTER_NS_PER_S

/* All streams are reset, but what `from` tells `to` of it is lost: `to` goes on waiting. */
static void resets_lose(struct params_scene *scene, struct sim_host *from, struct sim_host *to)
{
    sim_cut(scene->world, from, to, SIM_ONE_WAY);
    for (size_t i = sim_stream_count(scene->world); i-- > 0;)
        assert_true(sim_reset_stream(scene->world, i));
    assert_true(sim_run_for(scene->world, MUSTER_NS_PER_MS));
    sim_heal_all(scene->world);
}

static void a_push_waits_seconds_for_a_server_that_has_forgotten_the_link(void **state)
{
    struct params_scene scene = {.server_count = 0};

    (void)state;
    params_scene_open(&scene, 1);
    resets_lose(&scene, scene.servers[0].host, scene.client_host);
    params_scene_push(&scene, 60 * SECOND);
    params_scene_await(&scene, 10 * SECOND);

    params_scene_compare(&scene, 2);
    params_scene_close(&scene);
}

static void a_push_waits_seconds_for_a_replica_that_has_forgotten_the_link(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PARAMS_SCENE_SERVERS; i++) {
        struct params_scene scene = {.server_count = 0};

        params_scene_open(&scene, PARAMS_SCENE_SERVERS);
        resets_lose(&scene, scene.servers[i].host, scene.servers[1 - i].host);
        params_scene_push(&scene, 60 * SECOND);
        params_scene_await(&scene, 10 * SECOND);

        params_scene_compare(&scene, 2);
        params_scene_close(&scene);
    }
}

static void tick_start(struct params_scene *scene, uint64_t clock)
{
    sim_enter(scene->client);
    assert_int_equal(muster_params_tick_start(
                         &scene->op, scene->params, clock,
                         muster_loop_after_ns(sim_node_env(scene->client)->loop, 600 * SECOND),
                         params_scene_done),
                     MUSTER_OK);
    sim_leave(scene->client);
}

/* It has sent all that it may, and no message of it is left to be answered. */
static void a_client_that_waits_for_a_round_comes_back_to_a_server_that_has_forgotten_the_link(
    void **state)
{
    struct params_scene scene = {.clock_sources = 2};
    const struct muster_params_server *server;

    (void)state;
    params_scene_open(&scene, 1);
    tick_start(&scene, 1);
    params_scene_await(&scene, SECOND);
    tick_start(&scene, 2); /* round 0 waits for the other source */
    assert_true(sim_run_for(scene.world, SECOND));
    assert_false(scene.is_done);
    resets_lose(&scene, scene.servers[0].host, scene.client_host);
    server = sim_node_program(scene.servers[0].node);
    assert_true(muster_list_is_empty(&server->clients));

    assert_true(sim_run_for(scene.world, 10 * SECOND));
    assert_false(muster_list_is_empty(&server->clients));
    assert_false(scene.is_done);
    params_scene_close(&scene);
}

/* 20 seconds, in which the link is given up; the host is up, and its registration stands. */
static void a_server_that_stands_still_is_waited_for(void **state)
{
    struct params_scene scene = {.server_count = 0};

    (void)state;
    params_scene_open(&scene, 1);
    sim_pause(scene.servers[0].node);
    params_scene_push(&scene, 7 * SECOND);
    assert_true(sim_run_until(scene.world, params_scene_is_done, &scene, 10 * SECOND));
    assert_int_equal(scene.rc, MUSTER_DEADLINE_EXCEEDED);
    if (strstr(scene.text, "has sent nothing for ") == NULL ||
        strstr(scene.text, scene.addresses) == NULL)
        fail_msg("%s", scene.text);

    scene.is_done = false;
    params_scene_push(&scene, 60 * SECOND);
    assert_true(sim_run_for(scene.world, 13 * SECOND));
    assert_false(scene.is_done);
    sim_resume(scene.servers[0].node);
    params_scene_await(&scene, 10 * SECOND);
    params_scene_compare(&scene, 3); /* the push that was not waited for was not taken back */
    params_scene_close(&scene);
}

/* --- Sources that have gone --- */

static void slots_of_clients_that_have_gone_are_used_again(void **state)
{
    struct params_scene scene = {.source_lease_ns = 4 * SECOND};

    (void)state;
    params_scene_open(&scene, PARAMS_SCENE_SERVERS);
    for (uint32_t i = 0; i < 3; i++) {
        params_scene_client_kill(&scene);
        assert_true(sim_run_for(scene.world, 20 * SECOND));
        for (uint32_t server = 0; server < PARAMS_SCENE_SERVERS; server++)
            assert_int_equal(muster_params_source_live(params_scene_region(&scene, server)), 0);

        params_scene_client(&scene);
        params_scene_table(&scene);
        params_scene_push(&scene, 60 * SECOND);
        params_scene_await(&scene, 60 * SECOND);
        for (uint32_t server = 0; server < PARAMS_SCENE_SERVERS; server++)
            assert_int_equal(params_scene_region(&scene, server)->head->source_count, 1);
        for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS; shard++)
            assert_true(muster_params_positions_digest(params_scene_region(&scene, 0), shard) ==
                        muster_params_positions_digest(params_scene_region(&scene, 1), shard));
    }
    params_scene_compare(&scene, 4);
    params_scene_close(&scene);
}

static void one_row_push(struct params_scene *scene, uint32_t shard)
{
    const struct muster_params_store_table *table =
        muster_params_table_find(params_scene_region(scene, 0), "counts");
    float value = 1;
    uint64_t key = 0;
    const struct muster_params_rows row = {.keys = &key, .count = 1, .values = &value};

    while (muster_params_shard_of(muster_params_hash(table->seed, key), PARAMS_SCENE_SHARDS) !=
           shard)
        key++;
    sim_enter(scene->client);
    assert_int_equal(muster_params_push_start(
                         &scene->op, scene->table, &row,
                         muster_loop_after_ns(sim_node_env(scene->client)->loop, 60 * SECOND),
                         params_scene_done),
                     MUSTER_OK);
    sim_leave(scene->client);
    params_scene_await(scene, 60 * SECOND);
}

static void a_client_that_pushed_to_one_shard_alone_is_forgotten(void **state)
{
    struct params_scene scene = {.source_lease_ns = 4 * SECOND};

    (void)state;
    params_scene_open(&scene, PARAMS_SCENE_SERVERS);
    for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS; shard++) {
        params_scene_client_kill(&scene);
        params_scene_client(&scene);
        params_scene_table(&scene);
        one_row_push(&scene, shard);

        params_scene_client_kill(&scene);
        assert_true(sim_run_for(scene.world, 20 * SECOND));
        for (uint32_t server = 0; server < PARAMS_SCENE_SERVERS; server++)
            assert_int_equal(muster_params_source_live(params_scene_region(&scene, server)), 0);
        params_scene_client(&scene);
    }
    params_scene_close(&scene);
}

/* It waits for its round with others, who count it. */
static void a_client_that_ticks_is_not_forgotten(void **state)
{
    struct params_scene scene = {.source_lease_ns = 4 * SECOND};

    (void)state;
    params_scene_open(&scene, PARAMS_SCENE_SERVERS);
    params_scene_client_kill(&scene);
    assert_true(sim_run_for(scene.world, 20 * SECOND));
    scene.clock_sources = 1;
    params_scene_client(&scene);
    scene.op.data = &scene;
    sim_enter(scene.client);
    assert_int_equal(
        muster_params_tick_start(&scene.op, scene.params, 1,
                                 muster_loop_after_ns(sim_node_env(scene.client)->loop, 60 * SECOND),
                                 params_scene_done),
        MUSTER_OK);
    sim_leave(scene.client);
    params_scene_await(&scene, 60 * SECOND);

    params_scene_client_kill(&scene);
    assert_true(sim_run_for(scene.world, 20 * SECOND));
    for (uint32_t server = 0; server < PARAMS_SCENE_SERVERS; server++) {
        const struct muster_params_region *region = params_scene_region(&scene, server);

        assert_int_equal(muster_params_source_live(region), 1);
        for (uint64_t slot = 0; slot < region->head->source_count; slot++)
            assert_int_equal(muster_params_source_at(region, slot)->flags &
                                 MUSTER_PARAMS_SOURCE_FORGOTTEN,
                             0);
    }
    params_scene_client(&scene);
    params_scene_close(&scene);
}

/* The server may have forgotten by then that it has applied it. */
static void a_push_without_an_answer_for_half_the_lease_ends(void **state)
{
    struct params_scene scene = {.source_lease_ns = 20 * SECOND};

    (void)state;
    params_scene_open(&scene, 1);
    sim_pause(scene.servers[0].node);
    params_scene_push(&scene, 600 * SECOND);
    assert_true(sim_run_for(scene.world, 12 * SECOND));
    sim_kill(scene.servers[0].node);
    params_scene_serve(&scene, 0);
    assert_true(sim_run_until(scene.world, params_scene_is_done, &scene, 30 * SECOND));

    assert_int_equal(scene.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(scene.text, "for 10 s"));
    scene.is_done = false;
    params_scene_compare(&scene, 1);
    params_scene_close(&scene);
}

/* Its push was applied, and the answer was lost. */
static void a_client_that_comes_back_after_its_lease_does_not_push_twice(void **state)
{
    struct params_scene scene = {.source_lease_ns = 4 * SECOND};

    (void)state;
    params_scene_open(&scene, 1);
    params_scene_client_kill(&scene);
    params_scene_client(&scene);
    params_scene_table(&scene);
    sim_cut(scene.world, scene.servers[0].host, scene.client_host, SIM_ONE_WAY);
    params_scene_push(&scene, 600 * SECOND); /* the first one of its source */
    assert_true(sim_run_for(scene.world, SECOND / 2));
    sim_pause(scene.client);
    assert_true(sim_run_for(scene.world, 130 * SECOND)); /* 90 until its link is given up */
    sim_heal_all(scene.world);
    sim_resume(scene.client);
    assert_true(sim_run_until(scene.world, params_scene_is_done, &scene, 10 * SECOND));
    assert_true(scene.rc == MUSTER_FAILED_PRECONDITION || scene.rc == MUSTER_DEADLINE_EXCEEDED);

    params_scene_client_kill(&scene);
    params_scene_client(&scene);
    params_scene_table(&scene);
    params_scene_compare(&scene, 2);
    params_scene_close(&scene);
}

/* --- A replica without memory --- */

/* Rows that a primary refuses are not told of here: one of the servers leads some shards, and is small. */
static void wide_rows_push(struct params_scene *scene)
{
    const struct muster_params_schema schema = {.name = "wide",
                                                .row_elements = WIDE,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD};
    static float values[WIDE];
    const uint64_t patience_ns = 30 * SECOND;

    values[0] = 1;
    sim_enter(scene->client);
    assert_int_equal(muster_params_table_start(
                         &scene->op, scene->params, &schema, &scene->table,
                         muster_loop_after_ns(sim_node_env(scene->client)->loop, patience_ns),
                         params_scene_done),
                     MUSTER_OK);
    sim_leave(scene->client);
    params_scene_await(scene, patience_ns);
    for (uint64_t key = 0; key < WIDE_ROWS; key++) {
        const struct muster_params_rows rows = {.keys = &key, .count = 1, .values = values};

        sim_enter(scene->client);
        assert_int_equal(muster_params_push_start(
                             &scene->op, scene->table, &rows,
                             muster_loop_after_ns(sim_node_env(scene->client)->loop, patience_ns),
                             params_scene_done),
                         MUSTER_OK);
        sim_leave(scene->client);
        assert_true(sim_run_until(scene->world, params_scene_is_done, scene, patience_ns));
        if (scene->rc != MUSTER_OK && scene->rc != MUSTER_RESOURCE_EXHAUSTED)
            fail_msg("%s: %s", muster_rc_name(scene->rc), scene->text);
        scene->is_done = false;
    }
}

static void row_add(void *data, const struct muster_params_store_table *table,
                    const struct muster_params_row *row)
{
    muster_params_digest_add(data, table, row);
}

static struct muster_params_digest shard_digest(const struct params_scene *scene, uint32_t server,
                                                uint32_t shard)
{
    const struct muster_params_region *region = params_scene_region(scene, server);
    struct muster_params_digest digest = {{0, 0}};

    for (uint32_t i = 0; i < region->head->table_count; i++)
        muster_params_rows_visit(region, &region->head->tables[i], shard, row_add, &digest);
    return digest;
}

static void a_replica_without_memory_leaves_the_shards_that_it_lacks_rows_of(void **state)
{
    struct params_scene scene = {.servers[0].memory_bytes = 4 * MEMORY_BYTES};
    const struct muster_params_map *map;
    uint64_t wait_ns, lacking = 0;

    (void)state;
    params_scene_open(&scene, PARAMS_SCENE_SERVERS);
    wide_rows_push(&scene);
    assert_true(sim_run_for(scene.world, 2 * SECOND));

    map = params_scene_program(&scene, 0)->map;
    for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS; shard++) {
        struct muster_params_digest digests[PARAMS_SCENE_SERVERS] = {{{0, 0}}};

        if (map->shards[shard].copies[0] != params_scene_program(&scene, 0)->place)
            continue;
        for (uint32_t i = 0; i < PARAMS_SCENE_SERVERS; i++)
            digests[i] = shard_digest(&scene, i, shard);
        lacking += map->shards[shard].copy_count == 1;
        assert_true(map->shards[shard].copy_count == 1 ||
                    memcmp(&digests[0], &digests[1], sizeof(digests[0])) == 0);
        assert_int_equal(map->shards[shard].learner_count, 0);
    }
    assert_true(lacking > 0);
    wait_ns = params_scene_program(&scene, 1)->full_wait_ns;
    assert_true(params_scene_program(&scene, 1)->is_full);

    /* It tries again, later each time. */
    assert_true(sim_run_for(scene.world, 120 * SECOND));
    assert_true(params_scene_program(&scene, 1)->full_wait_ns > wait_ns);
    assert_true(params_scene_program(&scene, 1)->full_wait_ns <= 16 * wait_ns);
    params_scene_close(&scene);
}

/* --- A server that comes back --- */

static uint32_t primaries_of(const struct params_scene *scene, uint32_t server)
{
    const struct muster_params_server *program = params_scene_program(scene, server);
    uint32_t count = 0;

    for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS; shard++)
        count += program->map->shards[shard].copies[0] == program->place;
    return count;
}

static bool is_back(void *data)
{
    const struct params_scene *scene = data;
    const struct muster_params_server *server = params_scene_program(scene, 1);

    return server != NULL && server->map != NULL && server->place != MUSTER_PARAMS_NOWHERE &&
           params_scene_is_whole(data);
}

/* Pushes go on. A shard that was pushed to while it was handed over would be learned again. */
static void a_server_that_comes_back_leads_its_shards_again(void **state)
{
    struct params_scene scene = {.server_count = 0};
    uint32_t primaries, pushes = 1;
    uint64_t end_ns;

    (void)state;
    params_scene_open(&scene, PARAMS_SCENE_SERVERS);
    primaries = primaries_of(&scene, 1);
    assert_true(primaries > 0 && primaries < PARAMS_SCENE_SHARDS);
    sim_kill(scene.servers[1].node);
    assert_true(sim_run_for(scene.world, 10 * SECOND));
    assert_int_equal(primaries_of(&scene, 0), PARAMS_SCENE_SHARDS);
    params_scene_serve(&scene, 1);
    assert_true(sim_run_until(scene.world, is_back, &scene, 60 * SECOND));

    for (end_ns = sim_world_now_ns(scene.world) + 20 * SECOND;
         sim_world_now_ns(scene.world) < end_ns; pushes++) {
        params_scene_push(&scene, 10 * SECOND);
        params_scene_await(&scene, 10 * SECOND);
        for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS; shard++)
            assert_int_equal(params_scene_program(&scene, 0)->map->shards[shard].learner_count, 0);
    }
    assert_int_equal(primaries_of(&scene, 1), primaries);
    params_scene_compare(&scene, (float)pushes);
    params_scene_close(&scene);
}

/* --- Copies in pieces --- */

static void a_shard_is_copied_in_pieces(void **state)
{
    struct params_scene scene = {.servers[0].memory_bytes = 4 * MEMORY_BYTES};
    struct muster_params_copy_cursor cursor = {.shard = 3};
    struct muster_params_server *server;
    uint64_t rows = 0, pieces = 0;

    (void)state;
    params_scene_open(&scene, 1);
    wide_rows_push(&scene);
    server = sim_node_program(scene.servers[0].node);
    sim_enter(scene.servers[0].node);
    while (!cursor.is_over) {
        struct muster_list records;
        uint32_t count;
        size_t bytes = 0;

        muster_list_init(&records);
        assert_true(muster_params_copy_piece(server, &cursor, &records, &count));
        MUSTER_LIST_EACH (&records, record, struct muster_params_record, node) {
            bytes += record->frame.header.payload_bytes;
            if (record->frame.header.type == MUSTER_PARAMS_COPY_ROWS &&
                record->frame.header.chunk == 1)
                rows += record->frame.header.payload_bytes / (WIDE * sizeof(float));
        }
        assert_true(bytes <= ((size_t)128 << 10) + WIDE * sizeof(float));
        muster_params_records_free(server, &records);
        pieces++;
    }
    sim_leave(scene.servers[0].node);
    assert_int_equal(
        rows,
        muster_params_shard_at(server->region, &server->region->head->tables[1], 3)->row_count);
    assert_true(pieces >= 5); /* positions, the other table, two of the rows, the end */
    params_scene_close(&scene);
}

/* --- Pushes that are refused --- */

/* The first push of the source to any shard has another schema. The server that takes over knows of it, too. */
static void the_push_behind_a_refused_one_is_taken_by_the_next_primary(void **state)
{
    struct params_scene scene = {.server_count = 0};

    (void)state;
    params_scene_open(&scene, PARAMS_SCENE_SERVERS);
    params_scene_client_kill(&scene);
    params_scene_client(&scene);
    params_scene_table(&scene);
    scene.table->descriptor++;
    params_scene_push(&scene, 60 * SECOND);
    assert_true(sim_run_until(scene.world, params_scene_is_done, &scene, 60 * SECOND));
    assert_int_equal(scene.rc, MUSTER_INVALID_ARGUMENT);

    sim_kill(scene.servers[0].node);
    scene.is_done = false;
    scene.table->descriptor--;
    params_scene_push(&scene, 60 * SECOND);
    params_scene_await(&scene, 60 * SECOND);
    params_scene_compare(&scene, 2);
    params_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_waits_seconds_for_a_server_that_has_forgotten_the_link),
        cmocka_unit_test(a_push_waits_seconds_for_a_replica_that_has_forgotten_the_link),
        cmocka_unit_test(
            a_client_that_waits_for_a_round_comes_back_to_a_server_that_has_forgotten_the_link),
        cmocka_unit_test(a_server_that_stands_still_is_waited_for),
        cmocka_unit_test(slots_of_clients_that_have_gone_are_used_again),
        cmocka_unit_test(a_client_that_pushed_to_one_shard_alone_is_forgotten),
        cmocka_unit_test(a_client_that_ticks_is_not_forgotten),
        cmocka_unit_test(a_push_without_an_answer_for_half_the_lease_ends),
        cmocka_unit_test(a_client_that_comes_back_after_its_lease_does_not_push_twice),
        cmocka_unit_test(a_replica_without_memory_leaves_the_shards_that_it_lacks_rows_of),
        cmocka_unit_test(a_shard_is_copied_in_pieces),
        cmocka_unit_test(a_server_that_comes_back_leads_its_shards_again),
        cmocka_unit_test(the_push_behind_a_refused_one_is_taken_by_the_next_primary),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
