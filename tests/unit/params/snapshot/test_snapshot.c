/* Snapshots: what is saved is restored on any number of servers, and damage is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "careful_mem.h"
#include "params/snapshot/snapshot.h"
#include "params/store/freeze.h"
#include "params/store/load.h"
#include "params/store/row.h"
#include "power_disk.h"
#include "region_stand.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REGION_BYTES MUSTER_PARAMS_REGION_BYTES_MIN
#define SHARDS       4u
#define ROWS         40u
#define SEEDS        4u

struct stand {
    char folder[64], after[64];
    struct muster_params_snapshot snapshot;
    struct region_stand source;
    struct muster_params_store_table *items;
    uint64_t pushes;
};

static enum muster_rc folder_sync(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd);

    if (fd >= 0)
        close(fd);
    return rc == 0 ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

static struct muster_params_snapshot snapshot_of(const char *folder)
{
    return (struct muster_params_snapshot){.files = muster_files_system(),
                                           .mem = careful_mem(),
                                           .folder = folder,
                                           .sync_folder = folder_sync};
}

static void rows_push_of(struct stand *stand, struct muster_params_source *source)
{
    uint64_t keys[ROWS];
    float values[ROWS * 3];

    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i * 7;
    for (uint32_t i = 0; i < ROWS * 3; i++)
        values[i] = (float)(i + stand->pushes) / 3;
    stand->pushes++;
    (void)region_push(&stand->source, stand->items, source, stand->pushes, keys, values, ROWS,
                      NULL);
}

static void rows_push(struct stand *stand)
{
    rows_push_of(stand, region_source(&stand->source, 1));
}

static void stand_open(struct stand *stand)
{
    struct muster_params_schema items = region_schema("items", 3, MUSTER_PARAMS_MOMENTUM);
    struct muster_params_schema empty = region_schema("empty", 5, MUSTER_PARAMS_SGD);

    memset(stand, 0, sizeof(*stand));
    strcpy(stand->folder, "/tmp/params_snapshot.XXXXXX");
    strcpy(stand->after, "/tmp/params_after.XXXXXX");
    assert_non_null(mkdtemp(stand->folder));
    assert_non_null(mkdtemp(stand->after));
    stand->snapshot = snapshot_of(stand->folder);
    region_stand_open(&stand->source, REGION_BYTES, SHARDS);
    stand->items = region_table(&stand->source, &items);
    (void)region_table(&stand->source, &empty);
    rows_push(stand);
}

static void stand_close(struct stand *stand)
{
    region_stand_close(&stand->source);
    power_disk_free();
    power_disk_remove(stand->folder);
    power_disk_remove(stand->after);
}

static enum muster_rc cut_save(const struct stand *stand, uint64_t cut,
                               struct muster_error *ret_error)
{
    const struct muster_params_region *region = &stand->source.region;
    struct muster_params_snapshot_manifest manifest;
    struct muster_params_schema schemas[2];
    enum muster_rc rc;

    for (uint32_t i = 0; i < 2; i++)
        muster_params_table_schema(&region->head->tables[i], &schemas[i]);
    rc = muster_params_snapshot_manifest_init(&manifest, careful_mem(), schemas, 2, SHARDS,
                                              ret_error);
    assert_int_equal(rc, MUSTER_OK);
    manifest.cut = cut;
    manifest.clock = 100 + cut;
    for (uint32_t i = 0; i < SHARDS && rc == MUSTER_OK; i++)
        rc = muster_params_snapshot_save_shard(&stand->snapshot, region, i, cut, NULL, NULL,
                                               &manifest.shards[i], ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_snapshot_sync(&stand->snapshot, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_snapshot_save_manifest(&stand->snapshot, &manifest, ret_error);
    muster_params_snapshot_manifest_fini(&manifest);
    return rc;
}

static struct muster_params_digest digest_of(const struct region_stand *stand)
{
    return muster_params_table_digest(&stand->region,
                                      muster_params_table_find(&stand->region, "items"));
}

struct part {
    uint32_t number, count;
};

static bool is_of_part(const void *data, uint32_t shard)
{
    const struct part *part = data;

    return shard % part->count == part->number;
}

static enum muster_rc folder_restore(const char *folder, struct region_stand *to,
                                     const struct part *part, uint64_t *ret_cut,
                                     struct muster_error *ret_error)
{
    const struct muster_params_snapshot snapshot = snapshot_of(folder);
    struct muster_params_snapshot_manifest manifest;
    enum muster_rc rc = muster_params_snapshot_open(&snapshot, &manifest, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    *ret_cut = manifest.cut;
    assert_int_equal(manifest.clock, 100 + manifest.cut);
    rc = muster_params_snapshot_restore(&snapshot, &manifest, &to->region, is_of_part, part,
                                        ret_error);
    muster_params_snapshot_manifest_fini(&manifest);
    return rc;
}

static void a_snapshot_is_restored_on_any_number_of_servers_and_shards(void **state)
{
    static const struct {
        uint32_t servers, shards;
    } rows[] = {{1, SHARDS}, {3, SHARDS}, {4, SHARDS}, {1, 1}, {2, 16}, {3, 64}};
    struct muster_params_digest whole;
    struct muster_error error;
    struct stand stand;

    (void)state;
    stand_open(&stand);
    fail_if(cut_save(&stand, 12, &error) != MUSTER_OK, "%s", error.text);
    whole = digest_of(&stand.source);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_digest sum = {{0, 0}};

        for (uint32_t server = 0; server < rows[i].servers; server++) {
            const struct part part = {server, rows[i].servers};
            struct muster_params_digest digest;
            const struct muster_params_source *source;
            struct region_stand to;
            uint64_t cut = 0;

            region_stand_open(&to, REGION_BYTES, rows[i].shards);
            fail_if(folder_restore(stand.folder, &to, &part, &cut, &error) != MUSTER_OK, "%s",
                    error.text);
            assert_int_equal(cut, 12);
            digest = digest_of(&to);
            sum.sums[0] += digest.sums[0];
            sum.sums[1] += digest.sums[1];
            source = muster_params_source_at(&to.region, 0);
            for (uint32_t shard = 0; shard < rows[i].shards; shard++)
                assert_int_equal(source->positions[shard] >> 16, is_of_part(&part, shard) ? 2 : 0);
            region_stand_close(&to);
        }
        assert_memory_equal(&sum, &whole, sizeof(whole));
    }
    stand_close(&stand);
}

static void a_snapshot_that_does_not_fit_says_what_to_do(void **state)
{
    const struct part part = {0, 1};
    struct muster_error error;
    struct stand stand;
    bool fits = false;

    (void)state;
    stand_open(&stand);
    assert_int_equal(cut_save(&stand, 12, &error), MUSTER_OK);
    for (uint64_t segments = 0; !fits; segments++) {
        struct region_stand to;
        uint64_t cut;

        region_stand_open(&to, REGION_BYTES, SHARDS);
        to.region.segments_max = to.region.segments_used + segments;
        fits = folder_restore(stand.folder, &to, &part, &cut, &error) == MUSTER_OK;
        if (!fits && (error.rc != MUSTER_RESOURCE_EXHAUSTED ||
                      strstr(error.text, "start it with a higher --memory-max") == NULL))
            fail_msg("%d segments more: %s", (int)segments, error.text);
        assert_true(fits || segments < 8);
        region_stand_close(&to);
    }
    stand_close(&stand);
}

/* Between cuts shards may differ. */
static void a_shard_keeps_its_own_positions_where_their_number_is_the_same(void **state)
{
    const struct part part = {0, 1};
    struct region_stand to;
    struct muster_error error;
    struct stand stand;
    uint64_t cut;

    (void)state;
    stand_open(&stand);
    region_stand_open(&to, REGION_BYTES, SHARDS);
    muster_params_position_load(muster_params_source_at(&stand.source.region, 0), 2,
                                UINT64_C(9) << 16);
    assert_int_equal(cut_save(&stand, 12, &error), MUSTER_OK);
    assert_int_equal(folder_restore(stand.folder, &to, &part, &cut, &error), MUSTER_OK);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        assert_int_equal(muster_params_source_at(&to.region, 0)->positions[shard] >> 16,
                         shard == 2 ? 9 : 2);
    region_stand_close(&to);
    stand_close(&stand);
}

static bool none_is_kept(const void *data, const struct muster_params_source *source)
{
    (void)data, (void)source;
    return false;
}

static void sources_are_kept_where_the_caller_says_so(void **state)
{
    struct muster_params_snapshot_shard all, rows_only;
    struct muster_error error;
    struct stand stand;

    (void)state;
    stand_open(&stand);
    assert_int_equal(muster_params_snapshot_save_shard(&stand.snapshot, &stand.source.region, 0, 1,
                                                       NULL, NULL, &all, &error),
                     MUSTER_OK);
    assert_int_equal(muster_params_snapshot_save_shard(&stand.snapshot, &stand.source.region, 0, 1,
                                                       none_is_kept, NULL, &rows_only, &error),
                     MUSTER_OK);
    assert_int_equal(all.rows, rows_only.rows);
    assert_int_equal(all.bytes - rows_only.bytes, 32);
    stand_close(&stand);
}

/* --- Damage --- */

static void file_change(const struct stand *stand, const char *name, size_t at, uint8_t byte,
                        size_t cut)
{
    char path[128], *bytes;
    size_t size;

    snprintf(path, sizeof(path), "%s/%s", stand->folder, name);
    assert_int_equal(
        muster_files_read(muster_files_system(), careful_mem(), path, 1 << 20, &bytes, &size),
        MUSTER_OK);
    bytes[at % size] = (char)((uint8_t)bytes[at % size] ^ byte);
    assert_int_equal(muster_files_write(muster_files_system(), path, bytes, size - cut), MUSTER_OK);
    muster_mem_free(careful_mem(), bytes);
}

static void damage_is_named_and_nothing_is_restored(void **state)
{
    static const struct {
        const char *file;
        size_t at;
        uint8_t byte;
        size_t cut;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"manifest", 0, 1, 0, MUSTER_DATA_LOSS, "/manifest: this is not the manifest"},
        {"manifest", 4, 1, 0, MUSTER_FAILED_PRECONDITION, "version 5, this program reads 4"},
        {"manifest", 8, 1, 0, MUSTER_DATA_LOSS, "is damaged"},
        {"manifest", 24, 1, 0, MUSTER_DATA_LOSS, "another size than it says"},
        {"manifest", 100, 0, 1, MUSTER_DATA_LOSS, "another size than it says"},
        {"manifest", 100, 4, 0, MUSTER_DATA_LOSS, "is damaged"},
        {"cut-12-shard-0002", 0, 1, 0, MUSTER_DATA_LOSS, "shard-0002 is not the file of a shard"},
        {"cut-12-shard-0002", 4, 1, 0, MUSTER_FAILED_PRECONDITION, "shard-0002 has version 5"},
        {"cut-12-shard-0002", 8, 1, 0, MUSTER_DATA_LOSS, "belongs to another cut or shard"},
        {"cut-12-shard-0002", 16, 1, 0, MUSTER_DATA_LOSS, "belongs to another cut or shard"},
        {"cut-12-shard-0002", 24, 1, 0, MUSTER_DATA_LOSS, "is damaged in its head"},
        {"cut-12-shard-0002", 32, 1, 0, MUSTER_DATA_LOSS, "another size than it says"},
        {"cut-12-shard-0002", 40, 0xff, 0, MUSTER_DATA_LOSS, "another size than it says"},
        {"cut-12-shard-0002", 70, 1, 0, MUSTER_DATA_LOSS, "is damaged in its head"},
        {"cut-12-shard-0002", 200, 1, 0, MUSTER_DATA_LOSS, "is damaged in block 0 of 1"},
        {"cut-12-shard-0003", 200, 0, 1, MUSTER_DATA_LOSS, "shard-0003 must have "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct part part = {0, 1};
        struct muster_error error = {.rc = MUSTER_OK};
        struct region_stand to;
        struct stand stand;
        uint64_t cut;

        stand_open(&stand);
        region_stand_open(&to, REGION_BYTES, SHARDS);
        assert_int_equal(cut_save(&stand, 12, &error), MUSTER_OK);
        file_change(&stand, rows[i].file, rows[i].at, rows[i].byte, rows[i].cut);
        fail_if(folder_restore(stand.folder, &to, &part, &cut, &error) != rows[i].rc, "row %zu: %s",
                i, error.text);
        fail_if(strstr(error.text, rows[i].text) == NULL, "row %zu: %s", i, error.text);
        assert_int_equal(to.region.head->table_count, 0);
        region_stand_close(&to);
        stand_close(&stand);
    }
}

static void a_file_that_is_missing_is_named(void **state)
{
    const struct part part = {0, 1};
    struct region_stand to;
    struct muster_error error;
    struct stand stand;
    char path[128];
    uint64_t cut;

    (void)state;
    stand_open(&stand);
    region_stand_open(&to, REGION_BYTES, SHARDS);
    assert_int_equal(folder_restore(stand.folder, &to, &part, &cut, &error), MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "/manifest"));
    assert_int_equal(cut_save(&stand, 12, &error), MUSTER_OK);
    snprintf(path, sizeof(path), "%s/cut-12-shard-0001", stand.folder);
    assert_int_equal(remove(path), 0);
    assert_int_equal(folder_restore(stand.folder, &to, &part, &cut, &error), MUSTER_DATA_LOSS);
    assert_non_null(strstr(error.text, "cut-12-shard-0001 is missing"));
    region_stand_close(&to);
    stand_close(&stand);
}

/* --- Disks --- */

static void the_power_fails_and_the_folder_has_one_cut_whole(void **state)
{
    struct muster_params_digest digests[2];
    struct muster_error error;
    struct stand stand;
    uint32_t seen[2] = {0, 0};

    (void)state;
    stand_open(&stand);
    assert_int_equal(cut_save(&stand, 1, &error), MUSTER_OK);
    digests[0] = digest_of(&stand.source);
    rows_push(&stand);
    digests[1] = digest_of(&stand.source);
    power_disk_begin(stand.folder);
    assert_int_equal(cut_save(&stand, 2, &error), MUSTER_OK);
    power_disk_end();

    for (size_t steps = 0; steps <= power_disk_steps(); steps++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            const struct part part = {0, 1};
            struct muster_params_digest digest;
            struct region_stand to;
            uint64_t cut = 0;

            power_disk_cut(steps, seed, stand.after);
            region_stand_open(&to, REGION_BYTES, SHARDS);
            fail_if(folder_restore(stand.after, &to, &part, &cut, &error) != MUSTER_OK, "%s",
                    error.text);
            assert_in_range(cut, 1, 2);
            seen[cut - 1]++;
            digest = digest_of(&to);
            assert_memory_equal(&digest, &digests[cut - 1], sizeof(digest));
            region_stand_close(&to);
        }
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
    stand_close(&stand);
}

/* Servers forget those that do not come back, and keep those that have a name. */
static void restored_sources_have_a_name_where_they_had_one(void **state)
{
    const struct muster_incarnation ids[] = {{{1, 1}}, {{1, 2}}, {{1, 3}}};
    const struct part part = {0, 1};
    const struct muster_params_source *source;
    struct region_stand to;
    struct muster_error error;
    struct stand stand;
    uint64_t slot, cut;

    (void)state;
    stand_open(&stand);
    assert_int_equal(muster_params_source_open(
                         &stand.source.region,
                         &(struct muster_params_opener){.id = ids[1], .is_named = true}, &slot),
                     MUSTER_OK);
    rows_push_of(&stand, muster_params_source_at(&stand.source.region, slot));
    rows_push_of(&stand, region_source(&stand.source, 3));
    assert_int_equal(cut_save(&stand, 1, &error), MUSTER_OK);
    region_stand_open(&to, REGION_BYTES, SHARDS);
    assert_int_equal(folder_restore(stand.folder, &to, &part, &cut, &error), MUSTER_OK);

    for (uint32_t i = 0; i < 3; i++) {
        source = muster_params_source_find(&to.region, &ids[i], &slot);
        assert_non_null(source);
        assert_int_equal((source->flags & MUSTER_PARAMS_SOURCE_NAMED) != 0, i == 1);
    }
    region_stand_close(&to);
    stand_close(&stand);
}

static void a_full_disk_leaves_the_earlier_cut(void **state)
{
    struct muster_error error;
    struct stand stand;
    bool has_failed = true;
    uint32_t counts[2] = {0, 0};
    uint64_t cut = 0;

    (void)state;
    stand_open(&stand);
    assert_int_equal(cut_save(&stand, 1, &error), MUSTER_OK);
    for (size_t after = 0; has_failed; after++) {
        const struct part part = {0, 1};
        struct region_stand to;

        power_disk_begin(stand.folder);
        power_disk_fail(after, 1, ENOSPC);
        has_failed = cut_save(&stand, 2, &error) != MUSTER_OK;
        power_disk_fail(0, 0, 0);
        power_disk_end();
        if (has_failed)
            assert_non_null(strstr(error.text, "cannot write /tmp/params_snapshot."));
        region_stand_open(&to, REGION_BYTES, SHARDS);
        assert_int_equal(folder_restore(stand.folder, &to, &part, &cut, &error), MUSTER_OK);
        assert_true(cut == 2 || has_failed); /* the last sync may fail */
        counts[cut - 1]++;
        region_stand_close(&to);
    }
    assert_int_equal(counts[1], 2);
    assert_true(counts[0] > SHARDS);
    stand_close(&stand);
}

static bool has_file(const struct stand *stand, uint64_t cut)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/cut-%" PRIu64 "-shard-0001", stand->folder, cut);
    return access(path, F_OK) == 0;
}

static void shard_save(const struct stand *stand, uint64_t cut)
{
    struct muster_params_snapshot_shard shard;
    struct muster_error error;

    assert_int_equal(muster_params_snapshot_save_shard(&stand->snapshot, &stand->source.region, 1,
                                                       cut, NULL, NULL, &shard, &error),
                     MUSTER_OK);
}

/* Cut 3 is whole. Cuts 2, 4 and 5 are not, and cut 4 is of somebody else. */
static void files_that_no_manifest_names_are_swept(void **state)
{
    static const uint64_t cuts[] = {2, 3, 5};
    struct muster_error error;
    struct stand stand;

    (void)state;
    stand_open(&stand);
    assert_int_equal(cut_save(&stand, 3, &error), MUSTER_OK);
    for (uint64_t cut = 2; cut <= 5; cut++)
        shard_save(&stand, cut);
    muster_params_snapshot_sweep(&stand.snapshot, cuts, 3);

    assert_false(has_file(&stand, 2));
    assert_true(has_file(&stand, 3));
    assert_true(has_file(&stand, 4));
    assert_false(has_file(&stand, 5));
    stand_close(&stand);
}

/* Its files may be what it names. */
static void nothing_is_swept_beside_a_manifest_that_cannot_be_read(void **state)
{
    static const uint64_t cuts[] = {5};
    char path[256];
    struct stand stand;
    FILE *file;

    (void)state;
    stand_open(&stand);
    shard_save(&stand, 5);
    snprintf(path, sizeof(path), "%s/manifest-7", stand.folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    muster_params_snapshot_sweep(&stand.snapshot, cuts, 1);

    assert_true(has_file(&stand, 5));
    stand_close(&stand);
}

/* A manifest that names them is about to be written. */
static void nothing_is_swept_while_somebody_holds_the_folder(void **state)
{
    static const uint64_t cuts[] = {5};
    struct muster_error error;
    struct stand stand;
    int hold;

    (void)state;
    stand_open(&stand);
    shard_save(&stand, 5);
    assert_int_equal(muster_params_snapshot_hold(&stand.snapshot, &hold, &error), MUSTER_OK);
    muster_params_snapshot_sweep(&stand.snapshot, cuts, 1);
    assert_true(has_file(&stand, 5));

    muster_params_snapshot_release(&stand.snapshot, hold);
    muster_params_snapshot_sweep(&stand.snapshot, cuts, 1);

    assert_false(has_file(&stand, 5));
    stand_close(&stand);
}

static void a_folder_that_is_gone_cannot_be_held(void **state)
{
    struct muster_params_snapshot gone = {.folder = "/nonexistent/cuts"};
    struct muster_error error;
    int hold = -1;

    (void)state;
    assert_int_equal(muster_params_snapshot_hold(&gone, &hold, &error), MUSTER_NOT_FOUND);

    assert_non_null(strstr(error.text, "/nonexistent/cuts/lock cannot be opened"));
    assert_int_equal(hold, -1);
}

static void a_shard_packed_by_and_by_is_as_it_was_at_the_freeze(void **state)
{
    struct muster_params_snapshot_packing whole = {.mem = careful_mem()};
    struct muster_params_snapshot_packing slices = {.mem = careful_mem()};
    struct muster_params_region *region;
    struct muster_params_source *source;
    struct stand stand;

    (void)state;
    stand_open(&stand);
    region = &stand.source.region;
    source = region_source(&stand.source, 1);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        uint64_t removed = shard == 0 ? 7 : 14 * shard; /* there are fewer rows than places */

        (void)muster_params_row_remove(region, stand.items, removed);
        assert_int_equal(muster_params_snapshot_packing_begin(&whole, region, shard, 1), MUSTER_OK);
        while (muster_params_snapshot_packing_step(&whole, 1u << 30))
            ;
        muster_params_snapshot_packing_seal(&whole);

        assert_int_equal(muster_params_freeze_begin(region, careful_mem()), MUSTER_OK);
        assert_int_equal(muster_params_snapshot_packing_begin(&slices, region, shard, 1),
                         MUSTER_OK);
        while (muster_params_snapshot_packing_step(&slices, 1))
            rows_push_of(&stand, source);
        muster_params_freeze_end(region);
        muster_params_snapshot_packing_seal(&slices);

        assert_int_equal(slices.entry.bytes, whole.entry.bytes);
        assert_int_equal(slices.entry.rows, whole.entry.rows);
        assert_memory_equal(slices.bytes, whole.bytes, whole.entry.bytes);
    }
    muster_params_snapshot_packing_fini(&whole);
    muster_params_snapshot_packing_fini(&slices);
    stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_is_restored_on_any_number_of_servers_and_shards),
        cmocka_unit_test(a_snapshot_that_does_not_fit_says_what_to_do),
        cmocka_unit_test(a_shard_keeps_its_own_positions_where_their_number_is_the_same),
        cmocka_unit_test(sources_are_kept_where_the_caller_says_so),
        cmocka_unit_test(damage_is_named_and_nothing_is_restored),
        cmocka_unit_test(a_file_that_is_missing_is_named),
        cmocka_unit_test(a_shard_packed_by_and_by_is_as_it_was_at_the_freeze),
        cmocka_unit_test(the_power_fails_and_the_folder_has_one_cut_whole),
        cmocka_unit_test(restored_sources_have_a_name_where_they_had_one),
        cmocka_unit_test(a_full_disk_leaves_the_earlier_cut),
        cmocka_unit_test(files_that_no_manifest_names_are_swept),
        cmocka_unit_test(nothing_is_swept_beside_a_manifest_that_cannot_be_read),
        cmocka_unit_test(nothing_is_swept_while_somebody_holds_the_folder),
        cmocka_unit_test(a_folder_that_is_gone_cannot_be_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
