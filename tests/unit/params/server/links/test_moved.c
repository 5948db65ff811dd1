/* Messages of a client whose map is old: rows of shards that another server leads by now. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_peer.h"
#include "params_stand.h"

#include <string.h>

#include "params/server/core/push.h"
#include "params/server/registry/map.h"
#include "params/wire/hash.h"

#define SHARDS 8u

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = 1,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

struct scene {
    struct params_stand stand;
    struct params_peer peer;
    uint64_t descriptor; /* of the table */
    uint64_t kept, moved; /* keys of shards that the server leads by map 2, and does not */
};

static uint16_t shard_of(uint64_t key)
{
    return (uint16_t)muster_params_shard_of(
        muster_params_hash(muster_params_hash_seed("counters"), key), SHARDS);
}

static void message_send(struct scene *scene, uint8_t type, uint64_t number, uint64_t epoch,
                         const void *payload, size_t bytes)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = type,
                                               .offset = number,
                                               .epoch = epoch,
                                               .descriptor = scene->descriptor,
                                               .payload_bytes = (uint32_t)bytes};

    params_peer_send(&scene->peer, &header, payload);
}

/* Adds 1 to each row. Keys are in the order of their shards. */
static void push_send(struct scene *scene, uint64_t sequence, uint64_t epoch,
                      const uint64_t *keys, uint16_t count)
{
    const struct muster_params_rows_frame frame = {
        .row_count = count, .run_count = count, .dtype = (uint8_t)MUSTER_F32};
    static _Alignas(8) uint8_t payload[256];
    struct muster_params_run *runs;
    uint64_t *at;
    void *values;

    muster_params_rows_pack(&frame, payload, &runs, &at, &values);
    for (uint16_t i = 0; i < count; i++) {
        runs[i] = (struct muster_params_run){(uint16_t)(shard_of(keys[i]) | MUSTER_PARAMS_RUN_FIRST), 1};
        at[i] = keys[i];
        memcpy((uint8_t *)values + i * sizeof(float), &(float){1}, sizeof(float));
    }
    message_send(scene, MUSTER_PARAMS_PUSH, sequence, epoch, payload,
                 muster_params_rows_bytes(count, count, 1, MUSTER_F32));
}

static void pull_send(struct scene *scene, uint64_t number, uint64_t epoch, uint64_t key)
{
    const struct muster_params_rows_frame frame = {.row_count = 1, .dtype = (uint8_t)MUSTER_F32};
    static _Alignas(8) uint8_t payload[64];
    struct muster_params_run *runs;
    uint64_t *keys;
    void *values;

    muster_params_rows_pack(&frame, payload, &runs, &keys, &values);
    keys[0] = key;
    message_send(scene, MUSTER_PARAMS_PULL, number, epoch, payload,
                 muster_params_rows_bytes(0, 1, 0, MUSTER_F32));
}

/* Map 2: another server leads the upper half of the shards. */
static void map_change(struct scene *scene)
{
    struct muster_params_server *server = scene->stand.server;
    struct muster_params_map *map = muster_params_map_new(scene->stand.test.env.mem);
    struct muster_incarnation other;
    uint16_t mine;

    assert_non_null(map);
    memset(other.bytes, 0xff, sizeof(other.bytes)); /* ids rise */
    *map = *server->map;
    map->epoch = 2;
    map->server_count = 2;
    map->servers[1] = (struct muster_params_map_server){.id = other, .address = "127.0.0.1:1"};
    mine = map->shards[0].copies[0];
    for (uint32_t i = SHARDS / 2; i < SHARDS; i++) {
        map->shards[i].copies[0] = (uint16_t)(1 - mine);
        map->shards[i].since = 2;
    }
    muster_params_server_set_map(server, map);
}

static void scene_open(struct scene *scene)
{
    const struct muster_peer_hello hello = params_peer_hello();
    const struct muster_params_open open = {.source = {{1}}};
    uint8_t opening[MUSTER_PARAMS_OPEN_BYTES], schema[MUSTER_PARAMS_SCHEMA_BYTES];

    memset(scene, 0, sizeof(*scene));
    while (shard_of(scene->kept) >= SHARDS / 2)
        scene->kept++;
    while (shard_of(scene->moved) < SHARDS / 2)
        scene->moved++;
    params_stand_open(&scene->stand, SHARDS);
    params_peer_open(&scene->peer, &scene->stand.test.env, scene->stand.address, &hello);
    muster_params_open_pack(&open, opening);
    message_send(scene, MUSTER_PARAMS_OPEN, 0, 0, opening, sizeof(opening));
    muster_params_schema_pack(&counters, schema);
    message_send(scene, MUSTER_PARAMS_TABLE, 1, 0, schema, sizeof(schema));
    params_peer_await(&scene->peer, 2);
    scene->descriptor = scene->peer.headers[1].descriptor;
    map_change(scene);
}

static void scene_close(struct scene *scene)
{
    params_peer_close(&scene->peer);
    test_env_turn(&scene->stand.test.env, 4);
    params_stand_close(&scene->stand);
}

static void check_moved(struct scene *scene, uint32_t frame, uint64_t number, uint16_t flags)
{
    const struct muster_frame_header *header = &scene->peer.headers[frame];

    params_peer_await(&scene->peer, frame + 1);
    assert_false(scene->peer.is_down);
    assert_int_equal(header->type, MUSTER_PARAMS_MOVED);
    assert_int_equal(header->offset, number);
    assert_int_equal(header->flags, flags);
    assert_int_equal(header->epoch, 2);
}

static uint64_t ack_sequence(struct scene *scene, uint32_t frame)
{
    struct muster_params_ack ack;

    params_peer_await(&scene->peer, frame + 1);
    assert_int_equal(scene->peer.headers[frame].type, MUSTER_PARAMS_ACK);
    assert_int_equal(scene->peer.headers[frame].payload_bytes, MUSTER_PARAMS_ACK_BYTES);
    muster_params_ack_unpack(scene->peer.payloads[frame], &ack);
    assert_int_equal(ack.rc, MUSTER_OK);
    return ack.sequence;
}

static float value_pull(struct scene *scene, uint32_t frame, uint64_t key)
{
    float value;

    pull_send(scene, 100 + frame, 2, key);
    params_peer_await(&scene->peer, frame + 1);
    assert_int_equal(scene->peer.headers[frame].type, MUSTER_PARAMS_ROWS);
    memcpy(&value, scene->peer.payloads[frame], sizeof(value));
    return value;
}

/* The second push is on its way when the first is found to have moved. Only the first is sent again. */
static void a_push_that_has_moved_in_part_is_not_overtaken(void **state)
{
    struct scene scene;
    uint64_t both[2];

    (void)state;
    scene_open(&scene);
    both[0] = scene.kept;
    both[1] = scene.moved;
    push_send(&scene, 1, 1, both, 2);
    push_send(&scene, 2, 1, &scene.kept, 1);
    check_moved(&scene, 2, 1, MUSTER_PARAMS_REFUSED_PUSH);
    assert_int_equal(ack_sequence(&scene, 3), 2);
    push_send(&scene, 1, 2, &scene.kept, 1);
    assert_int_equal(ack_sequence(&scene, 4), 1);

    assert_true(value_pull(&scene, 5, scene.kept) == 2);
    assert_int_equal(params_stand_stats(&scene.stand).rows, 1); /* none of the moved shard */
    scene_close(&scene);
}

static void a_push_to_shards_that_another_server_leads_changes_nothing(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene);
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        push_send(&scene, epoch, epoch, &scene.moved, 1);
        check_moved(&scene, 1 + (uint32_t)epoch, epoch, MUSTER_PARAMS_REFUSED_PUSH);
    }

    assert_int_equal(params_stand_stats(&scene.stand).rows, 0);
    assert_int_equal(params_stand_stats(&scene.stand).pushed_rows, 0);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_that_has_moved_in_part_is_not_overtaken),
        cmocka_unit_test(a_push_to_shards_that_another_server_leads_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
