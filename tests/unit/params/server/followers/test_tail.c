/* Tails: changes are kept while a copy may lack them, and each copy is told those of its shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"
#include "scene_case.h"

#include <string.h>

#include "params/server/core/bits.h"
#include "params/server/core/server_internal.h"
#include "params/server/followers/record.h"
#include "params/server/followers/tail.h"

#define SHARDS 4u

static const struct muster_params_schema few = {.name = "few",
                                                .row_elements = 1,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD,
                                                .rows_max = SHARDS};

struct scene {
    struct params_stand stand;
    struct muster_params_server *server;
    struct muster_params_push push; /* of a source that the server knows */
};

static void scene_open(struct scene *scene)
{
    const struct muster_params_opener opener = {.id = {{7}}};
    struct muster_params_region *region;
    struct muster_error error;

    memset(scene, 0, sizeof(*scene));
    params_stand_open(&scene->stand, SHARDS);
    scene->server = scene->stand.server;
    region = scene->server->region;
    assert_int_equal(muster_params_table_open(region, &few, &scene->push.table, &error), MUSTER_OK);
    assert_int_equal(muster_params_source_open(region, &opener, &scene->push.slot), MUSTER_OK);
    scene->push.source = muster_params_source_at(region, scene->push.slot);
    scene->push.sequence = 1;
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        muster_params_tail_begin(scene->server, shard);
}

static void scene_close(struct scene *scene)
{
    params_stand_close(&scene->stand);
}

SCENE_CASES(struct scene, scene_open, scene_close)

/* Two rows have come; another copy has told of them. */
static void rows_keep(struct scene *scene, uint32_t shard, uint32_t other_shard)
{
    static const struct muster_params_tail_origin origin = {.number = 0};
    struct muster_params_turned turned[] = {
        {.key = 1, .shard = shard, .kind = MUSTER_PARAMS_TURNED_MADE},
        {.key = 2, .shard = other_shard, .kind = MUSTER_PARAMS_TURNED_MADE}};

    assert_true(muster_params_tail_turned(scene->server, &origin, &scene->push, turned, 2));
}

static uint32_t swept_count(struct scene *scene)
{
    muster_params_tail_sweep(scene->server);
    return (uint32_t)scene->server->tail.count;
}

static void rows_that_came_are_kept_until_their_shards_are_settled(void **state)
{
    struct scene *scene = *state;

    rows_keep(scene, 0, 1);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        muster_params_tail_ask(scene->server, shard);
    muster_params_tail_settle(scene->server, 0);
    assert_int_equal(swept_count(scene), 1);

    muster_params_tail_settle(scene->server, 1);

    assert_int_equal(swept_count(scene), 0);
}

static void rows_that_do_not_count_are_not_kept(void **state)
{
    struct scene *scene = *state;

    rows_keep(scene, UINT32_MAX, UINT32_MAX);

    assert_int_equal(swept_count(scene), 0);
}

/* Rows of the records, which are freed. */
static uint32_t records_count(struct scene *scene, struct muster_list *records)
{
    uint32_t count = 0;

    MUSTER_LIST_EACH_SAFE (records, record, struct muster_params_record, node) {
        count += record->frame.header.payload_bytes / sizeof(struct muster_params_turned);
        muster_list_remove(&record->node);
        muster_mem_free(&scene->server->pool.mem, record);
    }
    return count;
}

static void a_tail_of_some_shards_is_whole_without_the_rows_of_others(void **state)
{
    uint8_t shards[MUSTER_PARAMS_SHARD_COUNT_MAX / 8] = {0};
    struct scene *scene = *state;
    struct muster_list records;

    rows_keep(scene, 0, UINT32_MAX);
    rows_keep(scene, 1, 2);
    rows_keep(scene, 3, 3);
    muster_params_bit_set(shards, 1);
    muster_params_bit_set(shards, 3);
    muster_list_init(&records);

    assert_true(muster_params_tail_records(scene->server, shards, &records));

    assert_int_equal(records_count(scene, &records), 3);
    assert_int_equal(scene->server->tail.count, 3);
}

static void a_tail_is_not_whole_without_memory(void **state)
{
    uint8_t shards[MUSTER_PARAMS_SHARD_COUNT_MAX / 8] = {1}; /* the first */
    struct scene *scene = *state;
    struct muster_list records;

    rows_keep(scene, 0, 0);
    rows_keep(scene, 0, 1);
    muster_list_init(&records);
    scene->stand.test.mem.fail_at = 1;

    assert_false(muster_params_tail_records(scene->server, shards, &records));

    assert_int_equal(scene->stand.test.mem.fail_at, 0);
    assert_int_equal(records_count(scene, &records), 1);
}

/* The tail is swept as it grows. */
static void rows_that_came_last_live_through_a_sweep(void **state)
{
    struct scene *scene = *state;

    for (uint32_t i = 0; i < 100; i++)
        rows_keep(scene, 0, UINT32_MAX);

    assert_int_equal(swept_count(scene), 100);
}

/* Pushes may be large: few of them are much. */
static void a_tail_is_swept_as_its_bytes_grow(void **state)
{
    enum { PUSH_BYTES = 1 << 20, PUSHES = 60, BYTES_MAX = 17 << 20 };
    static const struct muster_params_tail_origin origin = {.number = 0};
    const struct muster_params_run run = {.shard = 1, .rows = 1};
    struct scene *scene = *state;
    uint64_t bytes_most = 0;

    scene->push.runs = &run;
    scene->push.run_count = 1;
    for (uint32_t i = 0; i < PUSHES; i++) {
        void *payload = muster_mem_alloc(&scene->server->pool.mem, PUSH_BYTES);

        muster_params_tail_forget(scene->server, 1);
        assert_true(
            muster_params_tail_push(scene->server, &origin, &scene->push, payload, PUSH_BYTES));
        bytes_most =
            scene->server->tail.bytes > bytes_most ? scene->server->tail.bytes : bytes_most;
    }

    assert_in_range(bytes_most, PUSH_BYTES, BYTES_MAX + 2 * PUSH_BYTES);
    assert_int_equal(swept_count(scene), 1);
    assert_in_range(scene->server->tail.bytes, PUSH_BYTES, PUSH_BYTES + 4096);
}

static void a_turnover_without_rows_is_not_kept(void **state)
{
    static const struct muster_params_tail_origin origin = {.number = 0};
    struct scene *scene = *state;

    assert_true(muster_params_tail_turned(scene->server, &origin, &scene->push, NULL, 0));

    assert_int_equal(scene->server->tail.count, 0);
}

#define FLOOR 5u
#define EPOCH 4u

static const struct {
    const char *name;
    uint64_t number;  /* of the record, which came by map EPOCH */
    uint64_t since;   /* by the map of now the shard has this primary since then */
    uint8_t copies;   /* 0: the shard has no copy */
    uint16_t primary; /* 0 is the server that has told the floor */
    uint32_t kept;
} floors[] = {
    {"all copies have it", FLOOR, EPOCH, 1, 0, 0},
    {"a copy may lack it", FLOOR + 1, EPOCH, 1, 0, 1},
    {"another server leads", FLOOR, EPOCH + 1, 1, 1, 1},
    {"it leads again", FLOOR, EPOCH + 2, 1, 0, 1},
    {"nobody leads", FLOOR, EPOCH, 0, 0, 1},
};

/* Copies acknowledge what they do not take from a server that leads their shard no more. */
static void a_floor_counts_for_the_primary_of_the_record_alone(void **state)
{
    struct scene *scene = *state;
    struct muster_params_map *map = muster_params_map_new(scene->stand.test.env.mem), *before;
    const struct muster_incarnation ids[] = {{{1}}, {{2}}};

    assert_non_null(map);
    map->server_count = 2;
    map->shard_count = SHARDS;
    map->servers[0].id = ids[0];
    map->servers[1].id = ids[1];
    before = scene->server->map;
    scene->server->map = map;
    for (size_t i = 0; i < sizeof(floors) / sizeof(floors[0]); i++) {
        const struct muster_params_tail_origin origin = {
            .leader = ids[0], .number = floors[i].number, .epoch = EPOCH};
        struct muster_params_turned turned = {
            .key = 1, .shard = 2, .kind = MUSTER_PARAMS_TURNED_MADE};

        muster_params_tail_forget(scene->server, 2);
        map->shards[2] = (struct muster_params_map_shard){.since = floors[i].since,
                                                          .copy_count = floors[i].copies,
                                                          .copies = {floors[i].primary}};
        assert_true(muster_params_tail_turned(scene->server, &origin, &scene->push, &turned, 1));

        muster_params_tail_floor(scene->server, &ids[0], FLOOR);

        if (swept_count(scene) != floors[i].kept)
            fail_msg("%s: %llu are kept", floors[i].name,
                     (unsigned long long)scene->server->tail.count);
    }
    scene->server->map = before;
    muster_mem_free(scene->stand.test.env.mem, map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(rows_that_came_are_kept_until_their_shards_are_settled),
        CASE(rows_that_do_not_count_are_not_kept),
        CASE(a_tail_of_some_shards_is_whole_without_the_rows_of_others),
        CASE(a_tail_is_not_whole_without_memory),
        CASE(rows_that_came_last_live_through_a_sweep),
        CASE(a_tail_is_swept_as_its_bytes_grow),
        CASE(a_turnover_without_rows_is_not_kept),
        CASE(a_floor_counts_for_the_primary_of_the_record_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
