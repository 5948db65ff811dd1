/* Rows that come and go: a primary decides, and its copies do the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_copies.h"
#include "test_env.h"

#include "params/server/core/server_internal.h"
#include "params/server/leaders/leader.h"

static struct muster_params_table *table_open(struct params_copies *scene,
                                              const struct muster_params_schema *schema)
{
    struct muster_params_op op = {.data = scene};
    struct muster_params_table *table = NULL;

    assert_int_equal(muster_params_table_start(&op, scene->params, schema, &table,
                                               params_copies_deadline(scene), params_copies_on_op),
                     MUSTER_OK);
    params_copies_await(scene);
    return table;
}

static struct muster_params_table *few_open(struct params_copies *scene,
                                            enum muster_params_evict evict_by)
{
    const struct muster_params_schema few = {.name = "few",
                                             .row_elements = 2,
                                             .wire_dtype = MUSTER_F32,
                                             .optimizer = MUSTER_PARAMS_ADAGRAD,
                                             .learning_rate = 0.5f,
                                             .rows_max = PARAMS_CALLER_SHARDS,
                                             .evict_by = evict_by};

    return table_open(scene, &few);
}

#define PUSHES 60u

struct pushes {
    struct muster_params_op ops[PUSHES + 20];
    uint64_t keys[PUSHES + 20];
    uint32_t begun, left;
};

static void on_push(struct muster_params_op *op, enum muster_rc rc)
{
    struct pushes *pushes = op->data;

    assert_int_equal(rc, MUSTER_OK);
    pushes->left--;
}

static bool are_done(void *data)
{
    const struct pushes *pushes = data;

    return pushes->left == 0;
}

/* A row in a message of its own: in each shard the rows take each other's place. */
static void row_push(struct params_copies *scene, struct muster_params_table *table,
                     struct pushes *pushes)
{
    static float values[2] = {1, 2};
    uint32_t i = pushes->begun++;
    const struct muster_params_rows rows = {&pushes->keys[i], values, 1};

    pushes->keys[i] = (uint64_t)i * i % 29;
    pushes->ops[i].data = pushes;
    pushes->left++;
    assert_int_equal(muster_params_push_start(&pushes->ops[i], table, &rows,
                                              params_copies_deadline(scene), on_push),
                     MUSTER_OK);
    test_env_turn(scene->job.env, 3);
}

static void check_few(const struct params_copies *scene)
{
    struct muster_params_digest digests[2];

    for (uint32_t i = 0; i < 2; i++) {
        const struct muster_params_region *region = scene->job.members[i].server->region;
        const struct muster_params_store_table *table = muster_params_table_find(region, "few");

        assert_non_null(table);
        assert_true(table->row_count > 0 && table->row_count <= PARAMS_CALLER_SHARDS);
        digests[i] = muster_params_table_digest(region, table);
    }
    assert_memory_equal(&digests[0], &digests[1], sizeof(digests[0]));
    assert_memory_equal(scene->job.members[0].server->region->head->removals,
                        scene->job.members[1].server->region->head->removals,
                        PARAMS_CALLER_SHARDS * sizeof(uint32_t));
}

static void check_rows_go(enum muster_params_evict evict_by)
{
    struct muster_params_stats stats[2];
    struct pushes pushes = {.left = 0};
    struct muster_params_table *table;
    struct params_copies scene;

    params_copies_open(&scene, 2, 2);
    table = few_open(&scene, evict_by);

    for (uint32_t i = 0; i < PUSHES; i++)
        row_push(&scene, table, &pushes);
    test_env_run_until(scene.job.env, are_done, &pushes);

    check_few(&scene);
    for (uint32_t i = 0; i < 2; i++)
        muster_params_server_stats(scene.job.members[i].server, &stats[i]);
    assert_true(stats[0].evicted_rows + stats[1].evicted_rows > 20);
    params_copies_close(&scene);
}

static void rows_go_at_both_servers_alike(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MUSTER_PARAMS_EVICT_COUNT; i++)
        check_rows_go((enum muster_params_evict)i);
}

/* Nothing of the pushes is acknowledged: the links end before their acknowledgements are read, which is seen
 * when more is sent over them. All comes again over new links. */
static void check_removals_come_again(enum muster_params_evict evict_by)
{
    struct pushes pushes = {.left = 0};
    struct muster_params_table *table;
    struct params_copies scene;

    params_copies_open(&scene, 2, 2);
    table = few_open(&scene, evict_by);
    params_copies_pause(&scene, true);
    for (uint32_t i = 0; i < PUSHES; i++)
        row_push(&scene, table, &pushes);
    test_env_turn(scene.job.env, 200);
    assert_int_equal(pushes.left, PUSHES);
    check_few(&scene);

    for (uint32_t i = 0; i < 2; i++)
        muster_params_leaders_close(scene.job.members[i].server);
    for (uint32_t i = 0; i < 20; i++)
        row_push(&scene, scene.table, &pushes);
    test_env_run_until(scene.job.env, are_done, &pushes);

    check_few(&scene);
    params_copies_close(&scene);
}

static void removals_that_come_again_do_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MUSTER_PARAMS_EVICT_COUNT; i++)
        check_removals_come_again((enum muster_params_evict)i);
}

/* It is told how many rows were removed: else it would differ when it is asked next. */
static void a_server_that_comes_knows_of_removals(void **state)
{
    struct pushes pushes = {.left = 0};
    struct muster_params_table *table;
    struct params_copies scene;
    uint32_t removals = 0;

    (void)state;
    params_copies_open(&scene, 1, 2);
    table = few_open(&scene, MUSTER_PARAMS_EVICT_LRU);
    for (uint32_t i = 0; i < PUSHES; i++)
        row_push(&scene, table, &pushes);
    test_env_run_until(scene.job.env, are_done, &pushes);
    for (uint32_t i = 0; i < PARAMS_CALLER_SHARDS; i++)
        removals += scene.job.members[0].server->region->head->removals[i];
    assert_true(removals > 20);

    params_copies_join(&scene, 1);
    test_env_run_until(scene.job.env, params_copies_are_two, &scene);
    check_few(&scene);
    params_copies_close(&scene);
}

/* --- One row at a time --- */

static bool is_led_by_first(const struct params_copies *scene, const char *name, uint64_t key)
{
    const struct muster_params_server *server = scene->job.members[0].server;
    const struct muster_params_store_table *table =
        muster_params_table_find(server->region, name);
    uint32_t shard = muster_params_shard_of(muster_params_hash(table->seed, key),
                                            PARAMS_CALLER_SHARDS);

    return muster_params_server_leads(server, shard, server->map->epoch);
}

/* The outcome of a push of one row. */
static enum muster_rc one_push(struct params_copies *scene, struct muster_params_table *table,
                               uint64_t key)
{
    static float values[16384] = {1};
    const struct muster_params_rows rows = {&key, values, 1};
    struct muster_params_op op = {.data = scene};

    assert_int_equal(muster_params_push_start(&op, table, &rows, params_copies_deadline(scene),
                                              params_copies_on_op),
                     MUSTER_OK);
    test_env_run_until(scene->job.env, test_env_is_true, &scene->is_done);
    scene->is_done = false;
    return scene->rc;
}

static bool row_is_at(const struct params_copies *scene, uint32_t member, const char *name,
                      uint64_t key)
{
    const struct muster_params_region *region = scene->job.members[member].server->region;
    const struct muster_params_store_table *table = muster_params_table_find(region, name);

    return muster_params_index_find(region, table, muster_params_hash(table->seed, key), key) !=
           NULL;
}

/* Two pushes to one key: with the third it has its row, whoever leads then. */
static void pushes_to_keys_without_rows_count_at_the_next_primary(void **state)
{
    const struct muster_params_schema late = {.name = "late",
                                              .row_elements = 2,
                                              .wire_dtype = MUSTER_F32,
                                              .optimizer = MUSTER_PARAMS_ADD,
                                              .admit_after = 3};
    struct muster_params_table *table;
    struct params_copies scene;
    uint64_t key = 1;

    (void)state;
    params_copies_open(&scene, 2, 2);
    table = table_open(&scene, &late);
    while (!is_led_by_first(&scene, "late", key))
        key++;
    assert_int_equal(one_push(&scene, table, key), MUSTER_OK);
    assert_int_equal(one_push(&scene, table, key), MUSTER_OK);
    assert_false(row_is_at(&scene, 0, "late", key));

    params_job_member_close(&scene.job, 0);
    assert_int_equal(one_push(&scene, table, key), MUSTER_OK);
    assert_true(row_is_at(&scene, 1, "late", key));
    params_copies_close(&scene);
}

/* The first server may use hardly more memory than it has in use, the other one all of its own. */
static void a_copy_with_more_memory_makes_no_row_that_its_primary_refused(void **state)
{
    const struct muster_params_schema wide = {.name = "wide",
                                              .row_elements = 16384,
                                              .wire_dtype = MUSTER_F32,
                                              .optimizer = MUSTER_PARAMS_ADD};
    struct muster_params_table *table;
    uint32_t made = 0, refused = 0;
    struct params_copies scene;

    (void)state;
    params_copies_open(&scene, 2, 2);
    table = table_open(&scene, &wide);
    scene.job.members[0].server->region->segments_max =
        scene.job.members[0].server->region->segments_used + 1;
    for (uint64_t key = 1; key < 1000 && refused < 4; key++) {
        enum muster_rc rc;

        if (!is_led_by_first(&scene, "wide", key))
            continue;
        rc = one_push(&scene, table, key);
        assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
        made += rc == MUSTER_OK;
        refused += rc != MUSTER_OK;
        for (uint32_t i = 0; i < 2; i++)
            assert_true(row_is_at(&scene, i, "wide", key) == (rc == MUSTER_OK));
    }
    assert_true(made > 0);
    assert_int_equal(refused, 4);
    params_copies_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_at_both_servers_alike),
        cmocka_unit_test(removals_that_come_again_do_nothing),
        cmocka_unit_test(a_server_that_comes_knows_of_removals),
        cmocka_unit_test(pushes_to_keys_without_rows_count_at_the_next_primary),
        cmocka_unit_test(a_copy_with_more_memory_makes_no_row_that_its_primary_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
