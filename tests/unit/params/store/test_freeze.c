/* A freeze shows rows and positions as they were, whatever happens to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "careful_mem.h"
#include "region_stand.h"
#include "torture.h"

#include "params/store/freeze.h"
#include "params/store/load.h"
#include "params/store/row.h"

#define SHARDS 4u
#define ROWS   3000u /* the table of copies doubles */

struct stand {
    struct region_stand region;
    struct muster_params_store_table *items;
    struct muster_mem_limited mem;
    uint64_t sequence;
};

static struct muster_params_region *region_of(struct stand *stand)
{
    return &stand->region.region;
}

static void stand_open(struct stand *stand)
{
    const struct muster_params_schema schema = region_schema("items", 3, MUSTER_PARAMS_ADAGRAD);

    region_stand_open(&stand->region, MUSTER_PARAMS_REGION_BYTES_MIN * 2, SHARDS);
    stand->items = region_table(&stand->region, &schema);
    stand->sequence = 0;
    (void)region_source(&stand->region, 1);
    muster_mem_limited_init(&stand->mem, careful_mem(), 0);
}

static void stand_close(struct stand *stand)
{
    muster_params_freeze_end(region_of(stand));
    assert_int_equal(muster_mem_limited_fini(&stand->mem), 0);
    region_stand_close(&stand->region);
}

static void rows_push(struct stand *stand, uint64_t from, uint64_t to)
{
    for (uint64_t key = from; key < to; key++) {
        const float values[3] = {1, (float)key, 2};

        assert_int_equal(region_push(&stand->region, stand->items,
                                     muster_params_source_at(region_of(stand), 0),
                                     ++stand->sequence, &key, values, 1, NULL),
                         0);
    }
}

static void digest_row(void *data, const struct muster_params_store_table *table,
                       const struct muster_params_row *row)
{
    muster_params_digest_add(data, table, row);
}

static struct muster_params_digest frozen_digest(struct stand *stand)
{
    struct muster_params_digest digest = {{0, 0}};

    for (uint32_t shard = 0; shard < SHARDS; shard++)
        muster_params_frozen_rows_visit(region_of(stand), stand->items, shard, digest_row, &digest);
    return digest;
}

static void what_changes_later_does_not_show(void **state)
{
    struct stand stand;
    struct muster_params_digest before, frozen, after;

    (void)state;
    stand_open(&stand);
    rows_push(&stand, 0, ROWS);
    before = muster_params_table_digest(region_of(&stand), stand.items);
    assert_int_equal(muster_params_freeze_begin(region_of(&stand), &stand.mem.mem), MUSTER_OK);
    frozen = frozen_digest(&stand);
    assert_memory_equal(&frozen, &before, sizeof(before));

    rows_push(&stand, ROWS / 2, ROWS + ROWS / 2); /* changed, and new */
    for (uint64_t key = 0; key < ROWS / 4; key++)
        assert_true(muster_params_row_remove(region_of(&stand), stand.items, key));
    rows_push(&stand, 2 * ROWS, 2 * ROWS + ROWS / 8); /* in places of removed ones */
    for (uint64_t key = ROWS / 4; key < ROWS / 2; key++) {
        const float values[6] = {7, 7, 7, 7, 7, 7};

        assert_int_equal(muster_params_row_load(region_of(&stand), stand.items, key, 9, values),
                         MUSTER_OK);
    }

    frozen = frozen_digest(&stand);
    after = muster_params_table_digest(region_of(&stand), stand.items);
    assert_memory_equal(&frozen, &before, sizeof(before));
    assert_memory_not_equal(&after, &before, sizeof(before));
    assert_false(muster_params_freeze_is_short(region_of(&stand)->freeze));
    stand_close(&stand);
}

static void positions_are_those_of_the_begin(void **state)
{
    struct stand stand;
    uint64_t before[SHARDS];

    (void)state;
    stand_open(&stand);
    rows_push(&stand, 0, 40);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        before[shard] = muster_params_source_at(region_of(&stand), 0)->positions[shard];
    assert_int_equal(muster_params_freeze_begin(region_of(&stand), &stand.mem.mem), MUSTER_OK);
    rows_push(&stand, 0, 40);

    assert_int_equal(muster_params_frozen_sources(region_of(&stand)->freeze), 1);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        assert_true(muster_params_frozen_position(region_of(&stand), 0, shard) == before[shard]);
        assert_true(muster_params_source_at(region_of(&stand), 0)->positions[shard] >
                    before[shard]);
    }
    stand_close(&stand);
}

static void run_freeze(struct torture *torture, const void *data)
{
    struct stand stand;
    enum muster_rc rc;

    (void)data;
    stand_open(&stand);
    rows_push(&stand, 0, ROWS);
    torture_arm_limited(torture, &stand.mem);
    rc = muster_params_freeze_begin(region_of(&stand), &stand.mem.mem);
    if (rc == MUSTER_OK)
        rows_push(&stand, 0, ROWS);
    torture_disarm(torture);
    if (rc == MUSTER_OK)
        assert_true(muster_params_freeze_is_short(region_of(&stand)->freeze) ==
                    (torture->refused > 0));
    else
        assert_null(region_of(&stand)->freeze);
    stand_close(&stand);
}

static void a_freeze_without_memory_says_so(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "freeze", .run = run_freeze});
}

/* Copies go a few at a time; false: there are none left. */
static void copies_are_freed_by_and_by(void **state)
{
    struct muster_params_freeze *freeze;
    struct stand stand;

    (void)state;
    stand_open(&stand);
    rows_push(&stand, 0, ROWS);
    assert_int_equal(muster_params_freeze_begin(region_of(&stand), &stand.mem.mem), MUSTER_OK);
    rows_push(&stand, 0, ROWS);
    freeze = muster_params_freeze_take(region_of(&stand));
    assert_null(region_of(&stand)->freeze);
    while (muster_params_freeze_shrink(freeze, 1))
        continue;
    assert_false(muster_params_freeze_shrink(NULL, 1));
    stand_close(&stand);
}

static void rows_of_a_released_shard_are_not_copied(void **state)
{
    struct stand stand;

    (void)state;
    stand_open(&stand);
    rows_push(&stand, 0, ROWS);
    assert_int_equal(muster_params_freeze_begin(region_of(&stand), &stand.mem.mem), MUSTER_OK);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        muster_params_freeze_release(region_of(&stand)->freeze, shard);
    stand.mem.fail_at = 1;
    rows_push(&stand, 0, ROWS);
    assert_int_equal(stand.mem.fail_at, 1);

    assert_false(muster_params_freeze_is_short(region_of(&stand)->freeze));
    stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_changes_later_does_not_show),
        cmocka_unit_test(positions_are_those_of_the_begin),
        cmocka_unit_test(a_freeze_without_memory_says_so),
        cmocka_unit_test(copies_are_freed_by_and_by),
        cmocka_unit_test(rows_of_a_released_shard_are_not_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
