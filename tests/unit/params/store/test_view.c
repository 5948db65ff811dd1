/* Rows read beside their writer: never torn, never beyond the memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "region_stand.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "params/store/index.h"
#include "params/store/view.h"

#define MIB      ((size_t)1 << 20)
#define PAGE     4096u
#define ELEMENTS 64u
#define WIDE     4096u /* over several pages */

struct scene {
    struct region_stand stand;
    uint32_t elements;
    struct muster_params_store_table *shared;
    struct muster_params_source *source;
    struct muster_params_view view;
    struct muster_params_view_table table;
};

static enum muster_rc table_look(struct scene *scene)
{
    return muster_params_view_table_init(
        &scene->table, &scene->view,
        muster_params_table_number(&scene->stand.region, scene->shared), scene->shared->descriptor,
        scene->elements);
}

static enum muster_rc region_look(struct scene *scene, const struct muster_incarnation *id)
{
    return muster_params_view_init(&scene->view, scene->stand.memory, scene->stand.bytes, id);
}

static void scene_open_wide(struct scene *scene, size_t bytes, enum muster_params_init init,
                            uint32_t elements)
{
    struct muster_params_schema schema = region_schema("rows", elements, MUSTER_PARAMS_ADD);

    memset(scene, 0, sizeof(*scene));
    scene->elements = elements;
    schema.init = init;
    schema.init_scale = init == MUSTER_PARAMS_INIT_ZERO ? 0 : schema.init_scale;
    schema.init_seed = init == MUSTER_PARAMS_INIT_ZERO ? 0 : schema.init_seed;
    region_stand_open(&scene->stand, bytes, 8);
    scene->shared = region_table(&scene->stand, &schema);
    scene->source = region_source(&scene->stand, 1);
    assert_int_equal(region_look(scene, &scene->stand.region.head->id), MUSTER_OK);
    assert_int_equal(table_look(scene), MUSTER_OK);
}

static void scene_open(struct scene *scene, size_t bytes, enum muster_params_init init)
{
    scene_open_wide(scene, bytes, init, ELEMENTS);
}

static void push_ones(struct scene *scene, uint64_t sequence, uint64_t from, uint32_t count)
{
    static uint64_t keys[1000];
    static float ones[1000 * ELEMENTS];

    for (uint32_t i = 0; i < count; i++)
        keys[i] = from + i;
    for (uint32_t i = 0; i < count * scene->elements; i++)
        ones[i] = 1;
    assert_int_equal(
        region_push(&scene->stand, scene->shared, scene->source, sequence, keys, ones, count, NULL),
        0);
}

static struct muster_params_row *row_of(const struct scene *scene, uint64_t key)
{
    return muster_params_index_find(&scene->stand.region, scene->shared,
                                    muster_params_hash(scene->shared->seed, key), key);
}

static void rows_and_initial_values_are_those_of_a_pull(void **state)
{
    static float want[300 * ELEMENTS], have[300 * ELEMENTS];
    uint64_t keys[300];
    struct scene scene;

    (void)state;
    scene_open(&scene, 16 * MIB, MUSTER_PARAMS_INIT_UNIFORM);
    push_ones(&scene, 1, 100, 100);
    for (uint64_t i = 0; i < 300; i++)
        keys[i] = i; /* the first and the last hundred have no rows */
    muster_params_rows_read(&scene.stand.region, scene.shared, keys, 300, want);
    assert_int_equal(muster_params_view_read(&scene.view, &scene.table, keys, 300, have),
                     MUSTER_OK);
    assert_memory_equal(have, want, sizeof(want));
    region_stand_close(&scene.stand);
}

/* --- Beside a writer --- */

#define ROWS   150000u /* the index grows twice */
#define STEP   500u
#define PASSES 3u

/* Does not return. */
static void writer_run(struct scene *scene)
{
    uint64_t sequence = 1;

    for (unsigned pass = 0; pass < PASSES; pass++) {
        for (uint64_t from = 0; from < ROWS; from += STEP)
            push_ones(scene, sequence++, from, STEP);
    }
    _exit(0);
}

/* Each push adds 1 to each element: all elements of a row are equal, and never fall. */
static void check_row(uint64_t key, const float *row, uint32_t elements, uint32_t *seen)
{
    for (uint32_t j = 1; j < elements; j++) {
        if (!(row[j] == row[0]))
            fail_msg("key %llu is torn", (unsigned long long)key);
    }
    if (!(row[0] >= (float)*seen))
        fail_msg("key %llu went back", (unsigned long long)key);
    *seen = (uint32_t)row[0];
}

static void no_row_is_lost_while_the_index_grows(void **state)
{
    static float values[64 * ELEMENTS];
    static uint32_t seen[ROWS];
    uint64_t keys[64], random = 1, read_count = 0;
    struct scene scene;
    int status = 0;
    pid_t child;

    (void)state;
    scene_open(&scene, 128 * MIB, MUSTER_PARAMS_INIT_ZERO);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        writer_run(&scene);
    while (waitpid(child, &status, WNOHANG) == 0) {
        for (uint32_t i = 0; i < 64; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            keys[i] = (random >> 33) % ROWS;
        }
        /* UNAVAILABLE: the writer was taken off its processor amid a row. */
        if (muster_params_view_read(&scene.view, &scene.table, keys, 64, values) != MUSTER_OK)
            continue;
        for (uint32_t i = 0; i < 64; i++)
            check_row(keys[i], values + (size_t)i * ELEMENTS, ELEMENTS, &seen[keys[i]]);
        read_count++;
    }
    assert_int_equal(status, 0);
    assert_true(read_count > 0);
    for (uint64_t key = 0; key < ROWS; key++) {
        assert_int_equal(muster_params_view_read(&scene.view, &scene.table, &key, 1, values),
                         MUSTER_OK);
        assert_true(values[0] == (float)PASSES);
    }
    region_stand_close(&scene.stand);
}

/* --- Changes amid a read --- */

/* A page that cannot be read stops the reader in the middle; the handler lets it go on after `change`. */
static struct {
    struct scene *scene;
    void *page;
    size_t bytes;
    void (*change)(struct scene *scene);
    unsigned faults;
} stop;

static void on_fault(int number)
{
    (void)number;
    if (stop.faults++ > 0 || mprotect(stop.page, stop.bytes, PROT_READ | PROT_WRITE) != 0)
        _exit(1);
    stop.change(stop.scene);
}

static void stop_at(struct scene *scene, const void *at, size_t bytes,
                    void (*change)(struct scene *scene))
{
    stop.scene = scene;
    stop.page = (void *)((uintptr_t)at / PAGE * PAGE);
    stop.bytes = bytes;
    stop.change = change;
    stop.faults = 0;
    assert_true(signal(SIGSEGV, on_fault) != SIG_ERR);
    assert_int_equal(mprotect(stop.page, stop.bytes, PROT_NONE), 0);
}

static void push_again(struct scene *scene)
{
    push_ones(scene, 2, 7, 1);
}

static void a_row_that_changes_amid_its_copy_is_copied_again(void **state)
{
    static float values[WIDE];
    const uint64_t key = 7;
    struct scene scene;

    (void)state;
    scene_open_wide(&scene, 16 * MIB, MUSTER_PARAMS_INIT_ZERO, WIDE);
    push_ones(&scene, 1, key, 1);
    stop_at(&scene, row_of(&scene, key)->values + WIDE / 2, PAGE, push_again);

    assert_int_equal(muster_params_view_read(&scene.view, &scene.table, &key, 1, values),
                     MUSTER_OK);

    signal(SIGSEGV, SIG_DFL);
    assert_int_equal(stop.faults, 1);
    for (uint32_t i = 0; i < WIDE; i++) {
        if (!(values[i] == 2))
            fail_msg("element %u is torn: %f", i, (double)values[i]);
    }
    region_stand_close(&scene.stand);
}

#define HALF_FIRST (1u << (MUSTER_PARAMS_INDEX_BITS_FIRST - 1))

static void push_new_rows(struct scene *scene, uint64_t from, uint64_t to)
{
    for (; from < to; from += STEP)
        push_ones(scene, from + 1, from, STEP);
}

/* Its memory is cleared when another table gets it. */
static void replace_index(struct scene *scene)
{
    push_new_rows(scene, HALF_FIRST + 2 * STEP, 3 * HALF_FIRST);
    assert_int_equal(scene->shared->index_state, 0);
    memset(stop.page, 0, stop.bytes);
}

static void an_index_that_is_replaced_amid_a_search_is_searched_anew(void **state)
{
    float values[ELEMENTS];
    const uint64_t key = 7;
    struct scene scene;

    (void)state;
    scene_open(&scene, 128 * MIB, MUSTER_PARAMS_INIT_ZERO);
    push_new_rows(&scene, 0, HALF_FIRST + 2 * STEP);
    while (scene.shared->index_state != 1)
        muster_params_index_step(&scene.stand.region, scene.shared, 1024);
    stop_at(&scene, muster_params_at(&scene.stand.region, scene.shared->index[1].offset),
            sizeof(uint64_t) << scene.shared->index[1].bits, replace_index);

    assert_int_equal(muster_params_view_read(&scene.view, &scene.table, &key, 1, values),
                     MUSTER_OK);

    signal(SIGSEGV, SIG_DFL);
    assert_int_equal(stop.faults, 1);
    assert_true(values[0] == 1);
    region_stand_close(&scene.stand);
}

/* --- Rows that are removed amid a read --- */

#define SLOTS_PER_PAGE (PAGE / sizeof(uint64_t))

/* The n-th key whose slot is the last one of the 13th page of the index, from 0. */
static uint64_t edge_key(const struct scene *scene, uint32_t n)
{
    uint64_t mask = (UINT64_C(1) << MUSTER_PARAMS_INDEX_BITS_FIRST) - 1, key = 0;

    for (;; key++) {
        if ((muster_params_hash(scene->shared->seed, key) & mask) == 13 * SLOTS_PER_PAGE - 1 &&
            n-- == 0)
            return key;
    }
}

static void remove_first_of_edge(struct scene *scene)
{
    assert_true(
        muster_params_row_remove(&scene->stand.region, scene->shared, edge_key(scene, 0)));
}

/* The reader has passed the last slot of a page when the next row moves there. */
static void a_row_whose_slot_moves_amid_a_search_is_found(void **state)
{
    float values[ELEMENTS];
    const uint64_t *slots;
    struct scene scene;
    uint64_t key;

    (void)state;
    scene_open(&scene, 16 * MIB, MUSTER_PARAMS_INIT_ZERO);
    key = edge_key(&scene, 1);
    push_ones(&scene, 1, edge_key(&scene, 0), 1);
    push_ones(&scene, 2, key, 1);
    slots = muster_params_at(&scene.stand.region, scene.shared->index[0].offset);
    stop_at(&scene, slots + 13 * SLOTS_PER_PAGE, PAGE, remove_first_of_edge);

    assert_int_equal(muster_params_view_read(&scene.view, &scene.table, &key, 1, values),
                     MUSTER_OK);

    signal(SIGSEGV, SIG_DFL);
    assert_int_equal(stop.faults, 1);
    assert_true(values[0] == 1);
    region_stand_close(&scene.stand);
}

/* The first key behind `key` that is in its shard. */
static uint64_t next_of_shard(const struct scene *scene, uint64_t key)
{
    uint32_t shard = muster_params_shard_of(muster_params_hash(scene->shared->seed, key++), 8);

    while (muster_params_shard_of(muster_params_hash(scene->shared->seed, key), 8) != shard)
        key++;
    return key;
}

static void give_row_to_another_key(struct scene *scene)
{
    const struct muster_params_row *row = row_of(scene, 7);
    uint64_t other = next_of_shard(scene, 7);

    assert_true(muster_params_row_remove(&scene->stand.region, scene->shared, 7));
    push_ones(scene, 2, other, 1);
    assert_ptr_equal(row_of(scene, other), row);
}

static void remove_row(struct scene *scene)
{
    assert_true(muster_params_row_remove(&scene->stand.region, scene->shared, 7));
}

static void a_row_that_is_removed_amid_its_copy_has_its_initial_values(void **state)
{
    static void (*const changes[])(struct scene *scene) = {remove_row, give_row_to_another_key};
    static float values[WIDE];
    const uint64_t key = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct scene scene;

        scene_open_wide(&scene, 16 * MIB, MUSTER_PARAMS_INIT_ZERO, WIDE);
        push_ones(&scene, 1, key, 1);
        stop_at(&scene, row_of(&scene, key)->values + WIDE / 2, PAGE, changes[i]);

        assert_int_equal(muster_params_view_read(&scene.view, &scene.table, &key, 1, values),
                         MUSTER_OK);

        signal(SIGSEGV, SIG_DFL);
        assert_int_equal(stop.faults, 1);
        for (uint32_t j = 0; j < WIDE; j++) {
            if (!(values[j] == 0))
                fail_msg("change %zu: element %u is %f", i, j, (double)values[j]);
        }
        region_stand_close(&scene.stand);
    }
}

/* --- A writer that has died --- */

static void a_row_whose_writer_has_died_is_not_read_until_recovery(void **state)
{
    struct scene scene;
    float values[ELEMENTS];
    const uint64_t key = 7;

    (void)state;
    scene_open(&scene, 16 * MIB, MUSTER_PARAMS_INIT_ZERO);
    push_ones(&scene, 1, key, 1);
    row_of(&scene, key)->version |= 1;
    assert_int_equal(muster_params_view_read(&scene.view, &scene.table, &key, 1, values),
                     MUSTER_UNAVAILABLE);

    scene.source
        ->positions[muster_params_shard_of(muster_params_hash(scene.shared->seed, key), 8)] =
        scene.stand.region.head->undo.position_before;
    region_stand_recover(&scene.stand);
    assert_int_equal(muster_params_view_read(&scene.view, &scene.table, &key, 1, values),
                     MUSTER_OK);
    assert_true(values[0] == 0); /* as before the push, which comes again */
    region_stand_close(&scene.stand);
}

/* A reader that has copied half of a row would take the other half, of other values, for the same. */
static void a_restored_row_has_a_version_that_it_never_had(void **state)
{
    struct scene scene;
    const uint64_t key = 7;
    uint32_t applied;

    (void)state;
    scene_open(&scene, 16 * MIB, MUSTER_PARAMS_INIT_ZERO);
    push_ones(&scene, 1, key, 1);
    applied = row_of(&scene, key)->version;
    scene.source
        ->positions[muster_params_shard_of(muster_params_hash(scene.shared->seed, key), 8)] =
        scene.stand.region.head->undo.position_before;

    region_stand_recover(&scene.stand);

    assert_true(row_of(&scene, key)->version > applied);
    assert_int_equal(row_of(&scene, key)->version % 2, 0);
    region_stand_close(&scene.stand);
}

/* --- Memory of strangers --- */

static void other_memory_is_not_looked_at(void **state)
{
    const struct muster_incarnation other = {.bytes = {1}};
    struct muster_params_region_head *head;
    struct scene scene;

    (void)state;
    scene_open(&scene, 16 * MIB, MUSTER_PARAMS_INIT_ZERO);
    head = scene.stand.region.head;
    assert_int_equal(region_look(&scene, &other), MUSTER_UNAVAILABLE);
    head->version++;
    assert_int_equal(region_look(&scene, &head->id), MUSTER_UNAVAILABLE);
    head->version--;
    head->magic++;
    assert_int_equal(region_look(&scene, &head->id), MUSTER_UNAVAILABLE);
    head->magic--;
    head->bytes *= 2;
    assert_int_equal(region_look(&scene, &head->id), MUSTER_UNAVAILABLE);
    head->bytes /= 2;
    assert_int_equal(muster_params_view_init(&scene.view, scene.stand.memory, MIB, &head->id),
                     MUSTER_UNAVAILABLE);
    assert_int_equal(region_look(&scene, &head->id), MUSTER_OK);
    region_stand_close(&scene.stand);
}

static void another_table_is_not_looked_at(void **state)
{
    struct muster_params_view_table table;
    struct scene scene;
    uint64_t descriptor;

    (void)state;
    scene_open(&scene, 16 * MIB, MUSTER_PARAMS_INIT_ZERO);
    descriptor = scene.shared->descriptor;
    assert_int_equal(muster_params_view_table_init(&table, &scene.view, 1, descriptor, ELEMENTS),
                     MUSTER_UNAVAILABLE);
    assert_int_equal(
        muster_params_view_table_init(&table, &scene.view, UINT32_MAX, descriptor, ELEMENTS),
        MUSTER_UNAVAILABLE);
    assert_int_equal(
        muster_params_view_table_init(&table, &scene.view, 0, descriptor + 1, ELEMENTS),
        MUSTER_UNAVAILABLE);
    assert_int_equal(
        muster_params_view_table_init(&table, &scene.view, 0, descriptor, ELEMENTS + 1),
        MUSTER_UNAVAILABLE);
    scene.shared->row_stride = 16;
    assert_int_equal(table_look(&scene), MUSTER_UNAVAILABLE);
    scene.shared->row_stride = UINT32_MAX;
    assert_int_equal(table_look(&scene), MUSTER_UNAVAILABLE);
    region_stand_close(&scene.stand);
}

static uint64_t *slot_of(const struct scene *scene, uint64_t key)
{
    return (uint64_t *)(uintptr_t)muster_params_index_slot(
        &scene->stand.region, &scene->shared->index[0],
        muster_params_hash(scene->shared->seed, key));
}

static void damage_slot(struct scene *scene)
{
    *slot_of(scene, 7) |= UINT32_MAX;
}

static void damage_bits(struct scene *scene)
{
    scene->shared->index[0].bits = 33;
}

static void damage_many_bits(struct scene *scene)
{
    scene->shared->index[0].bits = 200;
}

static void damage_size(struct scene *scene)
{
    scene->shared->index[0].bits = 25;
}

static void damage_offset(struct scene *scene)
{
    scene->shared->index[0].offset = UINT64_MAX - 7;
}

static void damage_alignment(struct scene *scene)
{
    scene->shared->index[0].offset += 4;
}

static void damage_state(struct scene *scene)
{
    scene->shared->index_state = UINT32_MAX;
}

static void damage_which(struct scene *scene)
{
    scene->shared->index_state = 1;
}

static void damage_fullness(struct scene *scene)
{
    memset(muster_params_at(&scene->stand.region, scene->shared->index[0].offset), 0xff,
           sizeof(uint64_t) << scene->shared->index[0].bits);
}

static void damaged_memory_gives_no_rows(void **state)
{
    static const struct {
        const char *name;
        void (*damage)(struct scene *scene);
    } rows[] = {{"a row beyond the end", damage_slot},
                {"an index of 2^33 slots", damage_bits},
                {"an index of 2^200 slots", damage_many_bits},
                {"an index beyond the end", damage_size},
                {"an offset beyond the end", damage_offset},
                {"an index between slots", damage_alignment},
                {"an unknown state", damage_state},
                {"a state without an index", damage_which},
                {"an index without a free slot", damage_fullness}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint64_t key = 7;
        float values[ELEMENTS];
        struct scene scene;

        scene_open(&scene, 16 * MIB, MUSTER_PARAMS_INIT_ZERO);
        push_ones(&scene, 1, key, 1);
        rows[i].damage(&scene);
        if (muster_params_view_read(&scene.view, &scene.table, &key, 1, values) !=
            MUSTER_UNAVAILABLE)
            fail_msg("%s", rows[i].name);
        region_stand_close(&scene.stand);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_initial_values_are_those_of_a_pull),
        cmocka_unit_test(no_row_is_lost_while_the_index_grows),
        cmocka_unit_test(a_row_that_changes_amid_its_copy_is_copied_again),
        cmocka_unit_test(an_index_that_is_replaced_amid_a_search_is_searched_anew),
        cmocka_unit_test(a_row_whose_slot_moves_amid_a_search_is_found),
        cmocka_unit_test(a_row_that_is_removed_amid_its_copy_has_its_initial_values),
        cmocka_unit_test(a_row_whose_writer_has_died_is_not_read_until_recovery),
        cmocka_unit_test(a_restored_row_has_a_version_that_it_never_had),
        cmocka_unit_test(other_memory_is_not_looked_at),
        cmocka_unit_test(another_table_is_not_looked_at),
        cmocka_unit_test(damaged_memory_gives_no_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
