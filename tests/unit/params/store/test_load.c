/* Shards that come from another server, in the place of what was there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <string.h>

#include "params/store/count.h"
#include "params/store/load.h"

#define MIB      ((size_t)1 << 20)
#define ELEMENTS 3u

struct scene {
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
};

static void scene_open(struct scene *scene, uint32_t shard_count)
{
    struct muster_params_schema schema = region_schema("rows", ELEMENTS, MUSTER_PARAMS_MOMENTUM);

    region_stand_open(&scene->stand, 16 * MIB, shard_count);
    scene->table = region_table(&scene->stand, &schema);
    scene->source = region_source(&scene->stand, 1);
}

static void push_one(struct scene *scene, uint64_t sequence, uint64_t key)
{
    static const float ones[ELEMENTS] = {1, 1, 1};

    assert_int_equal(
        region_push(&scene->stand, scene->table, scene->source, sequence, &key, ones, 1, NULL), 0);
}

static const struct muster_params_row *row_of(const struct scene *scene, uint64_t key)
{
    return muster_params_index_find(&scene->stand.region, scene->table,
                                    muster_params_hash(scene->table->seed, key), key);
}

static void a_forgotten_shard_has_no_rows_and_no_positions(void **state)
{
    struct scene scene;
    uint32_t shard;

    (void)state;
    scene_open(&scene, 2);
    for (uint64_t key = 0; key < 20; key++)
        push_one(&scene, key + 1, key);
    shard = muster_params_shard_of(muster_params_hash(scene.table->seed, 5), 2);

    muster_params_shard_forget(&scene.stand.region, shard);

    assert_null(row_of(&scene, 5));
    assert_int_equal(scene.source->positions[shard], 0);
    assert_int_equal(muster_params_shard_at(&scene.stand.region, scene.table, shard)->row_count, 0);
    assert_int_not_equal(scene.source->positions[1 - shard], 0);
    assert_int_equal(
        muster_params_shard_at(&scene.stand.region, scene.table, 1 - shard)->row_count,
        scene.table->row_count);
    region_stand_close(&scene.stand);
}

static void a_row_is_loaded_with_its_state_and_clock(void **state)
{
    static const float values[2 * ELEMENTS] = {1, 2, 3, 4, 5, 6};
    struct scene scene;

    (void)state;
    scene_open(&scene, 1);
    push_one(&scene, 1, 5);
    muster_params_shard_forget(&scene.stand.region, 0);

    assert_int_equal(muster_params_row_load(&scene.stand.region, scene.table, 5, 77, values),
                     MUSTER_OK);

    assert_memory_equal(row_of(&scene, 5)->values, values, sizeof(values));
    assert_int_equal(row_of(&scene, 5)->clock, 77);
    assert_int_equal(row_of(&scene, 5)->version % 2, 0);
    region_stand_close(&scene.stand);
}

/* Else the counts of a copy would be those of a shard that was never halved. */
static void a_shard_is_as_old_as_the_counts_of_its_rows(void **state)
{
    struct muster_params_schema schema = region_schema("counted", ELEMENTS, MUSTER_PARAMS_ADD);
    float values[ELEMENTS + 1] = {1, 2, 3};
    static const struct {
        uint32_t count, age; /* of the shard, behind the row */
    } rows[] = {{5u << 16 | 9, 5}, {4u << 16 | 9, 5}, {6u << 16 | 1, 6}};
    struct scene scene;

    (void)state;
    scene_open(&scene, 1);
    schema.rows_max = 10;
    schema.evict_by = MUSTER_PARAMS_EVICT_LFU;
    scene.table = region_table(&scene.stand, &schema);
    for (uint64_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memcpy(&values[ELEMENTS], &rows[i].count, sizeof(rows[i].count));
        assert_int_equal(muster_params_row_load(&scene.stand.region, scene.table, i, 77, values),
                         MUSTER_OK);
        assert_int_equal(muster_params_shard_at(&scene.stand.region, scene.table, 0)->age,
                         rows[i].age);
        assert_int_equal(muster_params_row_count(scene.table, row_of(&scene, i)), rows[i].count);
    }
    region_stand_close(&scene.stand);
}

static void a_row_whose_copy_was_interrupted_is_forgotten_or_loaded_anew(void **state)
{
    static const float values[2 * ELEMENTS] = {1, 2, 3, 4, 5, 6};
    struct scene scene;

    (void)state;
    for (int is_forgotten = 0; is_forgotten < 2; is_forgotten++) {
        scene_open(&scene, 1);
        push_one(&scene, 1, 5);
        ((struct muster_params_row *)(uintptr_t)row_of(&scene, 5))->version |= 1;
        if (is_forgotten) {
            muster_params_shard_forget(&scene.stand.region, 0);
            assert_null(row_of(&scene, 5));
            assert_int_equal(scene.table->row_count, 0);
        }
        assert_int_equal(muster_params_row_load(&scene.stand.region, scene.table, 5, 77, values),
                         MUSTER_OK);
        assert_int_equal(row_of(&scene, 5)->version % 2, 0);
        region_stand_close(&scene.stand);
    }
}

/* The first push of a source is the last that was applied: its position is again what it was before. */
static void recovery_does_not_restore_what_a_copy_has_replaced(void **state)
{
    static const float values[2 * ELEMENTS] = {1, 2, 3, 4, 5, 6};
    struct scene scene;

    (void)state;
    scene_open(&scene, 1);
    push_one(&scene, 1, 5);
    muster_params_shard_forget(&scene.stand.region, 0);
    assert_int_equal(muster_params_row_load(&scene.stand.region, scene.table, 5, 77, values),
                     MUSTER_OK);

    region_stand_recover(&scene.stand);

    assert_memory_equal(row_of(&scene, 5)->values, values, sizeof(values));
    region_stand_close(&scene.stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forgotten_shard_has_no_rows_and_no_positions),
        cmocka_unit_test(a_row_is_loaded_with_its_state_and_clock),
        cmocka_unit_test(a_shard_is_as_old_as_the_counts_of_its_rows),
        cmocka_unit_test(a_row_whose_copy_was_interrupted_is_forgotten_or_loaded_anew),
        cmocka_unit_test(recovery_does_not_restore_what_a_copy_has_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
