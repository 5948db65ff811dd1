/* The power is cut between any two writes of the registry: what was confirmed is there again, and
 * nothing is half done. */
#include "power_disk.h"
#include "power_world.h"

#include <muster/registry.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMITS 7
#define SEEDS   3 /* nothing kept, all kept, and one drawn */

/* Everything that writes: a new file, commits, a rollback, both kinds of checkpoint, a compaction,
 * closing and opening again. */
static void live_once(struct power_world *world)
{
    world->store = power_world_open_store(world, world->path);
    power_world_note(world, false);
    for (int i = 0; i < COMMITS; i++) {
        power_world_commit(world);
        if (i == 1) {
            muster_registry_store_checkpoint(world->store);
            power_world_note(world, true);
        } else if (i == 2) {
            power_world_write(world);
            muster_registry_store_rollback(world->store);
            world->revision--;
        } else if (i == 3) {
            muster_registry_store_give_back(world->store);
            power_world_note(world, true);
        } else if (i == 4) {
            assert_int_equal(muster_registry_store_begin(world->store), MUSTER_OK);
            assert_int_equal(muster_registry_store_compact(world->store, 0, 6, 4), MUSTER_OK);
            assert_int_equal(muster_registry_store_commit(world->store), MUSTER_OK);
            power_world_note(world, false);
        } else if (i == 5) {
            muster_registry_store_close(world->store);
            world->store = power_world_open_store(world, world->path);
            power_world_note(world, true);
        }
    }
    muster_registry_store_close(world->store);
    world->store = NULL;
}

/* After the cut. */

/* It is as it was at the last safe moment, or at a later one up to the commit under way. */
static void check_moment(const struct power_world *world, size_t steps, uint64_t seed,
                         const char *text)
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
static void check_further_life(struct power_world *world, const char *path)
{
    char *before = NULL, *after = NULL;

    world->store = power_world_open_store(world, path);
    world->revision = 90;
    power_world_commit(world);
    before = world->moments[--world->count].text;
    muster_registry_store_close(world->store);
    world->store = power_world_open_store(world, path);
    after = power_world_text_of(world->store);
    assert_string_equal(before, after);
    muster_registry_store_close(world->store);
    free(before);
    free(after);
}

static void check_cut(struct power_world *world, size_t steps, uint64_t seed)
{
    char path[128];
    char *text = NULL;

    power_disk_cut(steps, seed, world->after);
    (void)snprintf(path, sizeof(path), "%s/registry.db", world->after);
    world->store = power_world_open_store(world, path);
    text = power_world_text_of(world->store);
    check_moment(world, steps, seed, text);
    power_world_check_integrity(world->store);
    muster_registry_store_close(world->store);
    free(text);
    if (steps % 8 == seed)
        check_further_life(world, path);
}

static bool is_moment(const struct power_world *world, size_t steps)
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
    struct power_world world;

    power_world_open(&world, is_durable);
    power_disk_begin(world.folder);
    live_once(&world);
    power_disk_end();

    for (size_t steps = 0; steps <= power_disk_steps(); steps++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            if (seed != POWER_KEEPS_NOTHING || power_disk_is_sync(steps) ||
                is_moment(&world, steps))
                check_cut(&world, steps, seed);
        }
    }
    power_world_close(&world);
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
        struct power_world world;
        size_t syncs = 0;

        power_world_open(&world, i == 1);
        power_disk_begin(world.folder);
        world.store = power_world_open_store(&world, world.path);
        power_world_commit(&world);
        syncs = power_disk_syncs();
        power_world_commit(&world);
        assert_int_equal(power_disk_syncs() - syncs, i);
        muster_registry_store_close(world.store);
        power_disk_end();
        power_world_close(&world);
    }
}

/* Files that are made whole. */

static void make_backup(struct power_world *world, const char *from, const char *to)
{
    struct muster_error error = {.text = ""};

    if (muster_registry_backup_write(&world->mem.mem, from, to, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static void make_registry(struct power_world *world, const char *from, const char *to)
{
    struct muster_registry_restored restored;
    struct muster_error error = {.text = ""};

    if (muster_registry_backup_restore(&world->mem.mem, from, to, &restored, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    assert_int_equal(restored.revision, world->revision + MUSTER_REGISTRY_RESTORE_REVISIONS);
}

static void check_same(struct power_world *world, const char *path, const char *expected)
{
    char *text = power_world_text_of_file(world, path);

    assert_string_equal(text, expected);
    free(text);
}

/* The file that was made, if it is there, is as the text says; a backup once it is a registry. */
static void check_made(struct power_world *world, bool is_backup, const char *expected)
{
    char path[PATH_BYTES], restored[PATH_BYTES];

    power_world_path(path, world->after, "made");
    power_world_path(restored, world->after, "restored");
    if (!power_world_has_file(world->after, "made"))
        return;
    assert_false(power_world_has_file(world->after, "made-wal"));
    if (is_backup)
        make_registry(world, path, restored);
    check_same(world, is_backup ? restored : path, expected);
}

/* A registry that nobody serves, a backup of it, and what that one tells when it is restored. */
static void fill_world(struct power_world *world, char **ret_old, char **ret_restored)
{
    char backup[PATH_BYTES], restored[PATH_BYTES];

    world->store = power_world_open_store(world, world->path);
    for (int i = 0; i < 4; i++)
        power_world_commit(world);
    muster_registry_store_close(world->store);
    *ret_old = power_world_text_of_file(world, world->path);
    power_world_path(backup, world->folder, "backup");
    make_backup(world, world->path, backup);
    power_world_path(restored, world->folder, "restored");
    make_registry(world, backup, restored);
    *ret_restored = power_world_text_of_file(world, restored);
    assert_int_equal(unlink(restored), 0);
}

static int is_temporary(const struct dirent *entry)
{
    return strstr(entry->d_name, ".copy-") != NULL;
}

/* It is there, and nothing that was made on the way. */
static void check_confirmed(const struct power_world *world, uint64_t seed)
{
    struct dirent **entries = NULL;
    int count = scandir(world->after, &entries, is_temporary, NULL);

    free(entries);
    if (!power_world_has_file(world->after, "made") || count != 0)
        fail_msg("seed %d: what was confirmed is not there, or something else is", (int)seed);
}

/* With paths that are whole; at the end with one that begins where the program is, too. */
static void cut_while_a_file_is_made(bool is_backup, bool is_relative)
{
    struct power_world world;
    char from[PATH_BYTES], to[PATH_BYTES];
    char *old = NULL, *restored = NULL;

    power_world_open(&world, true);
    fill_world(&world, &old, &restored);
    power_world_path(from, world.folder, is_backup ? "registry.db" : "backup");
    power_world_path(to, world.folder, "made");
    assert_int_equal(chdir(is_relative ? world.folder : "/tmp"), 0);
    power_disk_begin(world.folder);
    (is_backup ? make_backup : make_registry)(&world, from, is_relative ? "made" : to);
    power_disk_end();
    assert_int_equal(chdir("/tmp"), 0);

    power_world_path(from, world.after, "registry.db");
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
    power_world_close(&world);
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
