/* Servers of parameters and a client at moments that are hard to meet: links that are half open, because a
 * reset was lost, servers and clients that stand still, sources that have gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include <muster/params.h>
#include <muster/params_server.h>

#include "params/server/record.h"
#include "params/server/seat.h"
#include "params/store/row.h"
#include "params/store/source.h"
#include "tests/lib/assertion_count.h"
#include "tests/sim/params_aside.h"
#include "tests/sim/params_memory.h"
#include "tests/sim/registry_stage.h"
#include "tests/sim/world.h"

#define SERVERS      2u
#define SHARDS       8u
#define PORT         7300
#define MEMORY_BYTES MUSTER_PARAMS_REGION_BYTES_MIN
#define WIDE         16384u /* elements of a row that takes 64 KiB */
#define WIDE_ROWS    400u
#define SECOND       MUSTER_NS_PER_S
#define KEYS         64u /* some of each shard */

struct scene;

struct server {
    struct scene *scene;
    struct sim_host *host;
    struct sim_node *node;
    struct params_memory *memory;
    size_t memory_bytes;
    struct muster_params_seat *seat;
};

struct scene {
    struct sim_world *world;
    struct sim_host *registry_host, *client_host;
    struct registry_stage *registry; /* NULL: one server, alone */
    struct server servers[SERVERS];
    uint32_t server_count;
    uint64_t source_lease_ns;
    uint32_t clock_sources; /* of the client; not 0: its table is by round */
    char addresses[128];
    struct sim_node *client;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_op op;
    uint64_t keys[KEYS];
    float values[KEYS];
    bool is_done;
    enum muster_rc rc;
    char text[256]; /* of the operation's error */
};

static void start_server(struct sim_node *node, struct muster_env *env, void *data)
{
    struct server *server = data;
    struct scene *scene = server->scene;
    const struct muster_params_seat_options seat = {.shard_count = SHARDS};
    struct muster_address address =
        sim_host_address(server->host, (uint16_t)(PORT + (server - scene->servers)));
    struct muster_params_server_options options = {.listen = &address,
                                                   .source_lease_ns = scene->source_lease_ns};
    struct muster_params_server *program = NULL;
    struct muster_error error;

    if (scene->registry != NULL) {
        options.job = REGISTRY_STAGE_JOB;
        options.registry = REGISTRY_STAGE_ENDPOINT;
        options.replicas = options.server_count = SERVERS;
    }
    muster_params_seat_free(server->seat); /* its holder is dead */
    server->seat = NULL;
    assert_int_equal(muster_params_seat_wrap(params_memory_take(server->memory, node),
                                             server->memory_bytes, &seat, &server->seat, &error),
                     MUSTER_OK);
    options.seat = server->seat;
    assert_int_equal(muster_params_server_open(env, &options, &program, &error), MUSTER_OK);
    sim_node_set_program(node, program);
}

static void on_server_death(struct sim_node *node, void *data)
{
    struct server *server = data;

    (void)node;
    params_memory_leave(server->memory);
}

static void on_done(struct muster_params_op *op, enum muster_rc rc)
{
    struct scene *scene = op->data;

    scene->is_done = true;
    scene->rc = rc;
    snprintf(scene->text, sizeof(scene->text), "%s", op->error.text);
}

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct scene *scene = muster_params_data(params);

    scene->is_done = true;
    scene->rc = rc;
}

static void start_client(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    const struct muster_params_options options = {
        .server = scene->addresses,
        .job = scene->registry != NULL ? REGISTRY_STAGE_JOB : NULL,
        .clock_sources = scene->clock_sources,
        .connect_deadline_ns = muster_loop_after_ns(env->loop, 60 * SECOND),
        .data = scene};

    assert_int_equal(muster_params_open(env, &options, on_opened, &scene->params, NULL), MUSTER_OK);
    sim_node_set_program(node, scene);
}

static bool is_done(void *data)
{
    return ((struct scene *)data)->is_done;
}

static void done_await(struct scene *scene, uint64_t limit_ns)
{
    assert_true(sim_run_until(scene->world, is_done, scene, limit_ns));
    if (scene->rc != MUSTER_OK)
        fail_msg("%s: %s", muster_rc_name(scene->rc), scene->text);
    scene->is_done = false;
}

static bool all_have_copies(void *data)
{
    const struct scene *scene = data;

    for (uint32_t i = 0; i < scene->server_count; i++) {
        const struct muster_params_server *server = sim_node_program(scene->servers[i].node);

        if (server == NULL || server->map == NULL)
            return false;
        for (uint32_t shard = 0; shard < SHARDS; shard++) {
            if (server->map->shards[shard].copy_count < scene->server_count)
                return false;
        }
    }
    return true;
}

static void table_open(struct scene *scene)
{
    const struct muster_params_schema schema = {.name = "counts",
                                                .row_elements = 1,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD,
                                                .is_by_round = scene->clock_sources > 0};

    scene->op.data = scene;
    sim_enter(scene->client);
    assert_int_equal(
        muster_params_table_start(
            &scene->op, scene->params, &schema, &scene->table,
            muster_loop_after_ns(sim_node_env(scene->client)->loop, 60 * SECOND), on_done),
        MUSTER_OK);
    sim_leave(scene->client);
    done_await(scene, 60 * SECOND);
}

/* 1 is added to all rows. */
static void push_start(struct scene *scene, uint64_t patience_ns)
{
    const struct muster_params_rows rows = {
        .keys = scene->keys, .count = KEYS, .values = scene->values};

    for (uint32_t i = 0; i < KEYS; i++) {
        scene->keys[i] = i;
        scene->values[i] = 1;
    }
    sim_enter(scene->client);
    assert_int_equal(
        muster_params_push_start(
            &scene->op, scene->table, &rows,
            muster_loop_after_ns(sim_node_env(scene->client)->loop, patience_ns), on_done),
        MUSTER_OK);
    sim_leave(scene->client);
}

static void rows_compare(struct scene *scene, float expected)
{
    const struct muster_params_rows rows = {
        .keys = scene->keys, .count = KEYS, .values = scene->values};

    sim_enter(scene->client);
    assert_int_equal(
        muster_params_pull_start(
            &scene->op, scene->table, &rows,
            muster_loop_after_ns(sim_node_env(scene->client)->loop, 60 * SECOND), on_done),
        MUSTER_OK);
    sim_leave(scene->client);
    done_await(scene, 60 * SECOND);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_true(scene->values[i] == expected);
}

static void client_start(struct scene *scene)
{
    scene->client =
        sim_node_start(scene->world, &(struct sim_node_options){.name = "client",
                                                                .host = scene->client_host,
                                                                .start = start_client,
                                                                .data = scene});
    done_await(scene, 60 * SECOND);
}

static void scene_open(struct scene *scene, uint32_t server_count)
{
    size_t at = 0;

    params_aside_link();
    scene->world = sim_world_open(7, NULL);
    scene->server_count = server_count;
    if (server_count > 1) {
        scene->registry_host = sim_host_add(scene->world, "registry");
        scene->registry = registry_stage_open(scene->world, scene->registry_host, NULL);
    }
    for (uint32_t i = 0; i < server_count; i++) {
        struct server *server = &scene->servers[i];
        char name[32], text[MUSTER_ADDRESS_TEXT_BYTES];
        struct muster_address address;

        snprintf(name, sizeof(name), "server%u", i);
        server->scene = scene;
        server->host = sim_host_add(scene->world, name);
        if (server->memory_bytes == 0)
            server->memory_bytes = MEMORY_BYTES;
        server->memory = params_memory_open(server->memory_bytes);
        address = sim_host_address(server->host, (uint16_t)(PORT + i));
        at += (size_t)snprintf(scene->addresses + at, sizeof(scene->addresses) - at, "%s%s",
                               i > 0 ? "," : "", muster_address_format(&address, text));
        server->node =
            sim_node_start(scene->world, &(struct sim_node_options){.name = name,
                                                                    .host = server->host,
                                                                    .start = start_server,
                                                                    .on_death = on_server_death,
                                                                    .data = server});
    }
    scene->client_host = sim_host_add(scene->world, "client");
    client_start(scene);
    assert_true(sim_run_until(scene->world, all_have_copies, scene, 60 * SECOND));
    table_open(scene);
    push_start(scene, 60 * SECOND);
    done_await(scene, 60 * SECOND);
}

static void scene_close(struct scene *scene)
{
    assert_null(sim_failure(scene->world));
    for (uint32_t i = 0; i < scene->server_count; i++)
        sim_kill(scene->servers[i].node);
    sim_kill(scene->client);
    if (scene->registry != NULL)
        registry_stage_close(scene->registry);
    (void)sim_world_close(scene->world);
    for (uint32_t i = 0; i < scene->server_count; i++) {
        muster_params_seat_free(scene->servers[i].seat);
        params_memory_close(scene->servers[i].memory);
    }
}

/* All streams are reset, but what `from` tells `to` of it is lost: `to` goes on waiting. */
static void resets_lose(struct scene *scene, struct sim_host *from, struct sim_host *to)
{
    sim_cut(scene->world, from, to, SIM_ONE_WAY);
    for (size_t i = sim_stream_count(scene->world); i-- > 0;)
        assert_true(sim_reset_stream(scene->world, i));
    assert_true(sim_run_for(scene->world, MUSTER_NS_PER_MS));
    sim_heal_all(scene->world);
}

static void a_push_waits_seconds_for_a_server_that_has_forgotten_the_link(void **state)
{
    struct scene scene = {.server_count = 0};

    (void)state;
    scene_open(&scene, 1);
    resets_lose(&scene, scene.servers[0].host, scene.client_host);
    push_start(&scene, 60 * SECOND);
    done_await(&scene, 10 * SECOND);

    rows_compare(&scene, 2);
    scene_close(&scene);
}

static void a_push_waits_seconds_for_a_replica_that_has_forgotten_the_link(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SERVERS; i++) {
        struct scene scene = {.server_count = 0};

        scene_open(&scene, SERVERS);
        resets_lose(&scene, scene.servers[i].host, scene.servers[1 - i].host);
        push_start(&scene, 60 * SECOND);
        done_await(&scene, 10 * SECOND);

        rows_compare(&scene, 2);
        scene_close(&scene);
    }
}

static void tick_start(struct scene *scene, uint64_t clock)
{
    sim_enter(scene->client);
    assert_int_equal(
        muster_params_tick_start(
            &scene->op, scene->params, clock,
            muster_loop_after_ns(sim_node_env(scene->client)->loop, 600 * SECOND), on_done),
        MUSTER_OK);
    sim_leave(scene->client);
}

/* It has sent all that it may, and no message of it is left to be answered. */
static void a_client_that_waits_for_a_round_comes_back_to_a_server_that_has_forgotten_the_link(
    void **state)
{
    struct scene scene = {.clock_sources = 2};
    const struct muster_params_server *server;

    (void)state;
    scene_open(&scene, 1);
    tick_start(&scene, 1);
    done_await(&scene, SECOND);
    tick_start(&scene, 2); /* round 0 waits for the other source */
    assert_true(sim_run_for(scene.world, SECOND));
    assert_false(scene.is_done);
    resets_lose(&scene, scene.servers[0].host, scene.client_host);
    server = sim_node_program(scene.servers[0].node);
    assert_true(muster_list_is_empty(&server->clients));

    assert_true(sim_run_for(scene.world, 10 * SECOND));
    assert_false(muster_list_is_empty(&server->clients));
    assert_false(scene.is_done);
    scene_close(&scene);
}

/* 20 seconds, in which the link is given up; the host is up, and its registration stands. */
static void a_server_that_stands_still_is_waited_for(void **state)
{
    struct scene scene = {.server_count = 0};

    (void)state;
    scene_open(&scene, 1);
    sim_pause(scene.servers[0].node);
    push_start(&scene, 7 * SECOND);
    assert_true(sim_run_until(scene.world, is_done, &scene, 10 * SECOND));
    assert_int_equal(scene.rc, MUSTER_DEADLINE_EXCEEDED);
    if (strstr(scene.text, "has sent nothing for ") == NULL ||
        strstr(scene.text, scene.addresses) == NULL)
        fail_msg("%s", scene.text);

    scene.is_done = false;
    push_start(&scene, 60 * SECOND);
    assert_true(sim_run_for(scene.world, 13 * SECOND));
    assert_false(scene.is_done);
    sim_resume(scene.servers[0].node);
    done_await(&scene, 10 * SECOND);
    rows_compare(&scene, 3); /* the push that was not waited for was not taken back */
    scene_close(&scene);
}

/* --- Sources that have gone --- */

static const struct muster_params_region *region_of(const struct scene *scene, uint32_t server)
{
    return ((const struct muster_params_server *)sim_node_program(scene->servers[server].node))
        ->region;
}

static void client_kill(struct scene *scene)
{
    sim_kill(scene->client);
    memset(&scene->op, 0, sizeof(scene->op));
    scene->is_done = false;
}

static void slots_of_clients_that_have_gone_are_used_again(void **state)
{
    struct scene scene = {.source_lease_ns = 4 * SECOND};

    (void)state;
    scene_open(&scene, SERVERS);
    for (uint32_t i = 0; i < 3; i++) {
        client_kill(&scene);
        assert_true(sim_run_for(scene.world, 20 * SECOND));
        for (uint32_t server = 0; server < SERVERS; server++)
            assert_int_equal(muster_params_source_live(region_of(&scene, server)), 0);

        client_start(&scene);
        table_open(&scene);
        push_start(&scene, 60 * SECOND);
        done_await(&scene, 60 * SECOND);
        for (uint32_t server = 0; server < SERVERS; server++)
            assert_int_equal(region_of(&scene, server)->head->source_count, 1);
        for (uint32_t shard = 0; shard < SHARDS; shard++)
            assert_true(muster_params_positions_digest(region_of(&scene, 0), shard) ==
                        muster_params_positions_digest(region_of(&scene, 1), shard));
    }
    rows_compare(&scene, 4);
    scene_close(&scene);
}

/* Its push was applied, and the answer was lost. */
static void a_client_that_comes_back_after_its_lease_does_not_push_twice(void **state)
{
    struct scene scene = {.source_lease_ns = 4 * SECOND};

    (void)state;
    scene_open(&scene, 1);
    client_kill(&scene);
    client_start(&scene);
    table_open(&scene);
    sim_cut(scene.world, scene.servers[0].host, scene.client_host, SIM_ONE_WAY);
    push_start(&scene, 600 * SECOND); /* the first one of its source */
    assert_true(sim_run_for(scene.world, SECOND / 2));
    sim_pause(scene.client);
    assert_true(sim_run_for(scene.world, 130 * SECOND)); /* 90 until its link is given up */
    sim_heal_all(scene.world);
    sim_resume(scene.client);
    assert_true(sim_run_until(scene.world, is_done, &scene, 10 * SECOND));
    assert_true(scene.rc == MUSTER_FAILED_PRECONDITION || scene.rc == MUSTER_DEADLINE_EXCEEDED);

    client_kill(&scene);
    client_start(&scene);
    table_open(&scene);
    rows_compare(&scene, 2);
    scene_close(&scene);
}

/* --- A replica without memory --- */

/* Rows that a primary refuses are not told of here: one of the servers leads some shards, and is small. */
static void wide_rows_push(struct scene *scene)
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
                         on_done),
                     MUSTER_OK);
    sim_leave(scene->client);
    done_await(scene, patience_ns);
    for (uint64_t key = 0; key < WIDE_ROWS; key++) {
        const struct muster_params_rows rows = {.keys = &key, .count = 1, .values = values};

        sim_enter(scene->client);
        assert_int_equal(muster_params_push_start(
                             &scene->op, scene->table, &rows,
                             muster_loop_after_ns(sim_node_env(scene->client)->loop, patience_ns),
                             on_done),
                         MUSTER_OK);
        sim_leave(scene->client);
        assert_true(sim_run_until(scene->world, is_done, scene, patience_ns));
        if (scene->rc != MUSTER_OK && scene->rc != MUSTER_RESOURCE_EXHAUSTED)
            fail_msg("%s: %s", muster_rc_name(scene->rc), scene->text);
        scene->is_done = false;
    }
}

static const struct muster_params_server *program_of(const struct scene *scene, uint32_t server)
{
    return sim_node_program(scene->servers[server].node);
}

static void row_add(void *data, const struct muster_params_store_table *table,
                    const struct muster_params_row *row)
{
    muster_params_digest_add(data, table, row);
}

static struct muster_params_digest shard_digest(const struct scene *scene, uint32_t server,
                                                uint32_t shard)
{
    const struct muster_params_region *region = region_of(scene, server);
    struct muster_params_digest digest = {{0, 0}};

    for (uint32_t i = 0; i < region->head->table_count; i++)
        muster_params_rows_visit(region, &region->head->tables[i], shard, row_add, &digest);
    return digest;
}

static void a_replica_without_memory_leaves_the_shards_that_it_lacks_rows_of(void **state)
{
    struct scene scene = {.servers[0].memory_bytes = 4 * MEMORY_BYTES};
    const struct muster_params_map *map;
    uint64_t wait_ns, copies = 0, lacking = 0;

    (void)state;
    scene_open(&scene, SERVERS);
    wide_rows_push(&scene);
    assert_true(sim_run_for(scene.world, 2 * SECOND));

    map = program_of(&scene, 0)->map;
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct muster_params_digest digests[SERVERS] = {{{0, 0}}};

        if (map->shards[shard].copies[0] != program_of(&scene, 0)->place)
            continue;
        for (uint32_t i = 0; i < SERVERS; i++)
            digests[i] = shard_digest(&scene, i, shard);
        copies += map->shards[shard].copy_count == SERVERS;
        lacking += map->shards[shard].copy_count == 1;
        assert_true(map->shards[shard].copy_count == 1 ||
                    memcmp(&digests[0], &digests[1], sizeof(digests[0])) == 0);
        assert_int_equal(map->shards[shard].learner_count, 0);
    }
    assert_true(lacking > 0);
    wait_ns = program_of(&scene, 1)->full_wait_ns;
    assert_true(program_of(&scene, 1)->is_full);

    /* It tries again, later each time. */
    assert_true(sim_run_for(scene.world, 120 * SECOND));
    assert_true(program_of(&scene, 1)->full_wait_ns > wait_ns);
    assert_true(program_of(&scene, 1)->full_wait_ns <= 16 * wait_ns);
    scene_close(&scene);
}

/* --- A server that comes back --- */

static uint32_t primaries_of(const struct scene *scene, uint32_t server)
{
    const struct muster_params_server *program = program_of(scene, server);
    uint32_t count = 0;

    for (uint32_t shard = 0; shard < SHARDS; shard++)
        count += program->map->shards[shard].copies[0] == program->place;
    return count;
}

static bool is_back(void *data)
{
    const struct scene *scene = data;
    const struct muster_params_server *server = program_of(scene, 1);

    return server != NULL && server->map != NULL && server->place != MUSTER_PARAMS_NOWHERE &&
           all_have_copies(data);
}

/* Pushes go on. A shard that was pushed to while it was handed over would be learned again. */
static void a_server_that_comes_back_leads_its_shards_again(void **state)
{
    struct scene scene = {.server_count = 0};
    uint32_t primaries, pushes = 1;
    struct server *server = &scene.servers[1];
    uint64_t end_ns;

    (void)state;
    scene_open(&scene, SERVERS);
    primaries = primaries_of(&scene, 1);
    assert_true(primaries > 0 && primaries < SHARDS);
    sim_kill(server->node);
    assert_true(sim_run_for(scene.world, 10 * SECOND));
    assert_int_equal(primaries_of(&scene, 0), SHARDS);
    server->node =
        sim_node_start(scene.world, &(struct sim_node_options){.name = "server1",
                                                               .host = server->host,
                                                               .start = start_server,
                                                               .on_death = on_server_death,
                                                               .data = server});
    assert_true(sim_run_until(scene.world, is_back, &scene, 60 * SECOND));

    for (end_ns = sim_world_now_ns(scene.world) + 20 * SECOND;
         sim_world_now_ns(scene.world) < end_ns; pushes++) {
        push_start(&scene, 10 * SECOND);
        done_await(&scene, 10 * SECOND);
        for (uint32_t shard = 0; shard < SHARDS; shard++)
            assert_int_equal(program_of(&scene, 0)->map->shards[shard].learner_count, 0);
    }
    assert_int_equal(primaries_of(&scene, 1), primaries);
    rows_compare(&scene, (float)pushes);
    scene_close(&scene);
}

/* --- Copies in pieces --- */

static void a_shard_is_copied_in_pieces_of_a_mebibyte(void **state)
{
    struct scene scene = {.servers[0].memory_bytes = 4 * MEMORY_BYTES};
    struct muster_params_copy_cursor cursor = {.shard = 3};
    struct muster_params_server *server;
    uint64_t rows = 0, pieces = 0;

    (void)state;
    scene_open(&scene, 1);
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
        assert_true(bytes <= ((size_t)1 << 20) + 2 * WIDE * sizeof(float));
        muster_params_records_free(server, &records);
        pieces++;
    }
    sim_leave(scene.servers[0].node);
    assert_int_equal(
        rows,
        muster_params_shard_at(server->region, &server->region->head->tables[1], 3)->row_count);
    assert_true(pieces >= 5); /* positions, the other table, two of the rows, the end */
    scene_close(&scene);
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
        cmocka_unit_test(a_client_that_comes_back_after_its_lease_does_not_push_twice),
        cmocka_unit_test(a_replica_without_memory_leaves_the_shards_that_it_lacks_rows_of),
        cmocka_unit_test(a_shard_is_copied_in_pieces_of_a_mebibyte),
        cmocka_unit_test(a_server_that_comes_back_leads_its_shards_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
