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
    struct muster_params_turned turned[] = {{.key = 1, .shard = shard, .is_made = 1},
                                            {.key = 2, .shard = other_shard, .is_made = 1}};

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(rows_that_came_are_kept_until_their_shards_are_settled),
        CASE(rows_that_do_not_count_are_not_kept),
        CASE(a_tail_of_some_shards_is_whole_without_the_rows_of_others),
        CASE(a_tail_is_not_whole_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
