/* The power is cut between any two writes of the registry: what was confirmed is there again, and
 * nothing is half done. */
#include "power_disk.h"
#include "test_env.h"

#include "cluster/registry_store.h"

#include <muster/registry_backup.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#define MOMENTS_MAX 64
#define COMMITS     7
#define PATH_BYTES  128
#define SEEDS       3 /* nothing kept, all kept, and one drawn */

/* The store as it was once: each commit makes one. */
struct moment {
    size_t steps; /* of the disk, when it was confirmed */
    bool is_safe; /* whatever happens from then on */
    char *text;
};

struct world {
    struct muster_mem_limited mem;
    char folder[64], after[64];
    char path[96];
    bool is_durable;
    struct muster_registry_store *store;
    struct moment moments[MOMENTS_MAX];
    size_t count;
    int64_t revision;
};

/* Texts of stores. */

static enum muster_rc on_record(void *data, const struct muster_registry_record *record)
{
    fprintf(data, "%.*s=%.8s(%zu):%d,%d,%d,%d,%d,%d\n", (int)record->key.size,
            (const char *)record->key.data, (const char *)record->value.data, record->value.size,
            (int)record->seq, (int)record->prev_seq, (int)record->create_revision,
            (int)record->mod_revision, (int)record->version, (int)record->lease);
    return MUSTER_OK;
}

static enum muster_rc on_lease(void *data, int64_t id, int64_t ttl_s)
{
    fprintf(data, "lease %d %d\n", (int)id, (int)ttl_s);
    return MUSTER_OK;
}

static char *text_of(struct muster_registry_store *store)
{
    static const struct muster_registry_span all = {.key = {.data = "", .size = 0},
                                                    .end = {.data = "\0", .size = 1}};
    struct muster_registry_store_size size;
    struct muster_registry_meta meta;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    assert_non_null(file);
    assert_int_equal(muster_registry_store_load_meta(store, &meta), MUSTER_OK);
    muster_registry_store_measure(store, &size);
    fprintf(file, "revision %d term %d seq %d keys %d\n", (int)meta.revision, (int)meta.term,
            (int)muster_registry_store_committed_seq(store), (int)size.key_count);
    assert_int_equal(muster_registry_store_scan_log(store, 0, on_record, file), MUSTER_OK);
    assert_int_equal(muster_registry_store_scan_keys(store, &all, on_record, file), MUSTER_OK);
    assert_int_equal(muster_registry_store_scan_leases(store, on_lease, file), MUSTER_OK);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* A life of a store. */

static struct muster_registry_store *open_store(struct world *world, const char *path)
{
    struct muster_registry_store_options options = {.path = path, .is_durable = world->is_durable};
    struct muster_registry_store *store = NULL;
    struct muster_error error = {.text = ""};

    if (muster_registry_store_open(&world->mem.mem, &options, &store, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return store;
}

static void note(struct world *world, bool is_safe)
{
    assert_true(world->count < MOMENTS_MAX);
    world->moments[world->count++] = (struct moment){.steps = power_disk_steps(),
                                                     .is_safe = world->is_durable || is_safe,
                                                     .text = text_of(world->store)};
}

static void append(struct world *world, const char *key, size_t value_bytes, bool is_deletion)
{
    static char value[6000];
    struct muster_registry_record old;
    struct muster_registry_record record = {.key = {.data = key, .size = strlen(key)},
                                            .value = {.data = value, .size = value_bytes},
                                            .mod_revision = world->revision,
                                            .version = 1};

    memset(value, 'a' + (int)(world->revision % 26), sizeof(value));
    if (muster_registry_store_find(world->store, record.key, &old) == MUSTER_OK) {
        record.prev_seq = old.seq;
        record.version = is_deletion && old.version > 0 ? 0 : old.version + 1;
    }
    assert_int_equal(muster_registry_store_begin(world->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_append(world->store, &record), MUSTER_OK);
}

/* A key of its own, one that each commit writes anew, one that is deleted every other
 * time. */
static void write_some(struct world *world)
{
    struct muster_registry_meta meta;
    char key[16];

    world->revision++;
    (void)snprintf(key, sizeof(key), "k%02d", (int)world->revision);
    append(world, key, world->revision % 3 == 0 ? 5000 : 30, false);
    append(world, "same", 100, false);
    append(world, "often", 1, true);
    assert_int_equal(muster_registry_store_put_lease(world->store, world->revision, 9), MUSTER_OK);
    assert_int_equal(muster_registry_store_delete_lease(world->store, world->revision - 2),
                     MUSTER_OK);
    assert_int_equal(muster_registry_store_load_meta(world->store, &meta), MUSTER_OK);
    meta.revision = world->revision;
    meta.term++;
    assert_int_equal(muster_registry_store_save_meta(world->store, &meta), MUSTER_OK);
}

static void commit_some(struct world *world)
{
    write_some(world);
    assert_int_equal(muster_registry_store_commit(world->store), MUSTER_OK);
    note(world, false);
}

/* Everything that writes: a new file, commits, a rollback, both kinds of checkpoint, a compaction,
 * closing and opening again. */
static void live(struct world *world)
{
    world->store = open_store(world, world->path);
    note(world, false);
    for (int i = 0; i < COMMITS; i++) {
        commit_some(world);
        if (i == 1) {
            muster_registry_store_checkpoint(world->store);
            note(world, true);
        } else if (i == 2) {
            write_some(world);
            muster_registry_store_rollback(world->store);
            world->revision--;
        } else if (i == 3) {
            muster_registry_store_give_back(world->store);
            note(world, true);
        } else if (i == 4) {
            assert_int_equal(muster_registry_store_begin(world->store), MUSTER_OK);
            assert_int_equal(muster_registry_store_compact(world->store, 0, 6, 4), MUSTER_OK);
            assert_int_equal(muster_registry_store_commit(world->store), MUSTER_OK);
            note(world, false);
        } else if (i == 5) {
            muster_registry_store_close(world->store);
            world->store = open_store(world, world->path);
            note(world, true);
        }
    }
    muster_registry_store_close(world->store);
    world->store = NULL;
}

/* After the cut. */

static int on_check(void *data, int count, char **values, char **names)
{
    (void)names;
    *(bool *)data = count == 1 && strcmp(values[0], "ok") == 0;
    return 0;
}

static void check_integrity(struct muster_registry_store *store)
{
    bool is_sound = false;

    assert_int_equal(sqlite3_exec(muster_registry_store_database(store), "PRAGMA integrity_check",
                                  on_check, &is_sound, NULL),
                     SQLITE_OK);
    assert_true(is_sound);
}

/* It is as it was at the last safe moment, or at a later one up to the commit under way. */
static void check_moment(const struct world *world, size_t steps, uint64_t seed, const char *text)
{
    size_t first = 0, last = 0;

    for (size_t i = 0; i < world->count && world->moments[i].steps <= steps; i++) {
        last = i;
        if (world->moments[i].is_safe)
            first = i;
    }
    if (last + 1 < world->count)
        last++;
    for (size_t i = first; i <= last; i++) {
        if (strcmp(world->moments[i].text, text) == 0)
            return;
    }
    power_disk_print(steps > 30 ? steps - 30 : 0, steps);
    fail_msg("cut after step %zu, seed %d: not as at moments %zu to %zu, but\n%s", steps, (int)seed,
             first, last, text);
}

/* It goes on from where it is. */
static void check_further_life(struct world *world, const char *path)
{
    char *before = NULL, *after = NULL;

    world->store = open_store(world, path);
    world->revision = 90;
    commit_some(world);
    before = world->moments[--world->count].text;
    muster_registry_store_close(world->store);
    world->store = open_store(world, path);
    after = text_of(world->store);
    assert_string_equal(before, after);
    muster_registry_store_close(world->store);
    free(before);
    free(after);
}

static void check_cut(struct world *world, size_t steps, uint64_t seed)
{
    char path[128];
    char *text = NULL;

    power_disk_cut(steps, seed, world->after);
    (void)snprintf(path, sizeof(path), "%s/registry.db", world->after);
    world->store = open_store(world, path);
    text = text_of(world->store);
    check_moment(world, steps, seed, text);
    check_integrity(world->store);
    muster_registry_store_close(world->store);
    free(text);
    if (steps % 8 == seed)
        check_further_life(world, path);
}

static void open_world(struct world *world, bool is_durable)
{
    memset(world, 0, sizeof(*world));
    muster_mem_limited_init(&world->mem, muster_mem_system(), 0);
    world->is_durable = is_durable;
    world->revision = 1;
    (void)strcpy(world->folder, "/tmp/registry_power.XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    (void)strcpy(world->after, "/tmp/registry_after.XXXXXX");
    assert_non_null(mkdtemp(world->after));
    (void)snprintf(world->path, sizeof(world->path), "%s/registry.db", world->folder);
}

static void close_world(struct world *world)
{
    for (size_t i = 0; i < world->count; i++)
        free(world->moments[i].text);
    power_disk_free();
    power_disk_remove(world->folder);
    power_disk_remove(world->after);
    assert_int_equal(muster_mem_limited_fini(&world->mem), 0);
}

static bool is_moment(const struct world *world, size_t steps)
{
    for (size_t i = 0; i < world->count; i++) {
        if (world->moments[i].steps == steps)
            return true;
    }
    return false;
}

/* With nothing kept the disk changes at syncs alone, and what is asked of it at moments. */
static void cut_everywhere(bool is_durable)
{
    struct world world;

    open_world(&world, is_durable);
    power_disk_begin(world.folder);
    live(&world);
    power_disk_end();

    for (size_t steps = 0; steps <= power_disk_steps(); steps++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            if (seed != POWER_KEEPS_NOTHING || power_disk_is_sync(steps) ||
                is_moment(&world, steps))
                check_cut(&world, steps, seed);
        }
    }
    close_world(&world);
}

static void a_durable_store_keeps_every_commit(void **state)
{
    (void)state;
    cut_everywhere(true);
}

static void another_keeps_what_a_checkpoint_has_moved_and_is_never_half(void **state)
{
    (void)state;
    cut_everywhere(false);
}

static void only_a_durable_commit_waits_for_the_disk(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world world;
        size_t syncs = 0;

        open_world(&world, i == 1);
        power_disk_begin(world.folder);
        world.store = open_store(&world, world.path);
        commit_some(&world);
        syncs = power_disk_syncs();
        commit_some(&world);
        assert_int_equal(power_disk_syncs() - syncs, i);
        muster_registry_store_close(world.store);
        power_disk_end();
        close_world(&world);
    }
}

/* Files that are made whole. */

static void make_backup(struct world *world, const char *from, const char *to)
{
    struct muster_error error = {.text = ""};

    if (muster_registry_backup_write(&world->mem.mem, from, to, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static void make_registry(struct world *world, const char *from, const char *to)
{
    struct muster_registry_restored restored;
    struct muster_error error = {.text = ""};

    if (muster_registry_backup_restore(&world->mem.mem, from, to, &restored, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    assert_int_equal(restored.revision, world->revision + MUSTER_REGISTRY_RESTORE_REVISIONS);
}

static char *text_of_file(struct world *world, const char *path)
{
    struct muster_registry_store *store = open_store(world, path);
    char *text = text_of(store);

    check_integrity(store);
    muster_registry_store_close(store);
    return text;
}

static void check_same(struct world *world, const char *path, const char *expected)
{
    char *text = text_of_file(world, path);

    assert_string_equal(text, expected);
    free(text);
}

static void set_path(char path[PATH_BYTES], const char *folder, const char *name)
{
    assert_true(snprintf(path, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES);
}

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_BYTES];

    set_path(path, folder, name);
    return access(path, F_OK) == 0;
}

/* The file that was made, if it is there, is as the text says; a backup once it is a registry. */
static void check_made(struct world *world, bool is_backup, const char *expected)
{
    char path[PATH_BYTES], restored[PATH_BYTES];

    set_path(path, world->after, "made");
    set_path(restored, world->after, "restored");
    if (!has_file(world->after, "made"))
        return;
    assert_false(has_file(world->after, "made-wal"));
    if (is_backup)
        make_registry(world, path, restored);
    check_same(world, is_backup ? restored : path, expected);
}

/* A registry that nobody serves, a backup of it, and what that one tells when it is restored. */
static void fill_world(struct world *world, char **ret_old, char **ret_restored)
{
    char backup[PATH_BYTES], restored[PATH_BYTES];

    world->store = open_store(world, world->path);
    for (int i = 0; i < 4; i++)
        commit_some(world);
    muster_registry_store_close(world->store);
    *ret_old = text_of_file(world, world->path);
    set_path(backup, world->folder, "backup");
    make_backup(world, world->path, backup);
    set_path(restored, world->folder, "restored");
    make_registry(world, backup, restored);
    *ret_restored = text_of_file(world, restored);
    assert_int_equal(unlink(restored), 0);
}

static int is_temporary(const struct dirent *entry)
{
    return strstr(entry->d_name, ".copy-") != NULL;
}

/* It is there, and nothing that was made on the way. */
static void check_confirmed(const struct world *world, uint64_t seed)
{
    struct dirent **entries = NULL;
    int count = scandir(world->after, &entries, is_temporary, NULL);

    free(entries);
    if (!has_file(world->after, "made") || count != 0)
        fail_msg("seed %d: what was confirmed is not there, or something else is", (int)seed);
}

/* With paths that are whole; at the end with one that begins where the program is, too. */
static void cut_while_a_file_is_made(bool is_backup, bool is_relative)
{
    struct world world;
    char from[PATH_BYTES], to[PATH_BYTES];
    char *old = NULL, *restored = NULL;

    open_world(&world, true);
    fill_world(&world, &old, &restored);
    set_path(from, world.folder, is_backup ? "registry.db" : "backup");
    set_path(to, world.folder, "made");
    assert_int_equal(chdir(is_relative ? world.folder : "/tmp"), 0);
    power_disk_begin(world.folder);
    (is_backup ? make_backup : make_registry)(&world, from, is_relative ? "made" : to);
    power_disk_end();
    assert_int_equal(chdir("/tmp"), 0);

    set_path(from, world.after, "registry.db");
    for (size_t steps = is_relative ? power_disk_steps() : 0; steps <= power_disk_steps();
         steps++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            power_disk_cut(steps, seed, world.after);
            if (steps == power_disk_steps())
                check_confirmed(&world, seed);
            check_made(&world, is_backup, restored);
            check_same(&world, from, old);
        }
    }
    free(old);
    free(restored);
    close_world(&world);
}

static void a_backup_is_whole_or_absent_and_there_when_it_is_confirmed(void **state)
{
    (void)state;
    cut_while_a_file_is_made(true, false);
    cut_while_a_file_is_made(true, true);
}

static void a_registry_made_from_a_backup_is_so_too(void **state)
{
    (void)state;
    cut_while_a_file_is_made(false, false);
    cut_while_a_file_is_made(false, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_durable_store_keeps_every_commit),
        cmocka_unit_test(another_keeps_what_a_checkpoint_has_moved_and_is_never_half),
        cmocka_unit_test(only_a_durable_commit_waits_for_the_disk),
        cmocka_unit_test(a_backup_is_whole_or_absent_and_there_when_it_is_confirmed),
        cmocka_unit_test(a_registry_made_from_a_backup_is_so_too),
    };

    return cmocka_run_group_tests_name("registry_power", tests, NULL, NULL);
}
