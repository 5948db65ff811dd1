/* Every call that writes fails in turn, once or from then on: an error, and nothing half done; or
 * success, and all of it. */
#include "power_disk.h"
#include "power_world.h"

#include <muster/registry.h>

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_MAX 300

/* A full disk, which goes on failing, and one that has failed once or twice. */
static const struct {
    size_t count;
    int sys;
} failures[] = {{SIZE_MAX, ENOSPC}, {1, EIO}, {2, ENOSPC}};

/* Files that are made whole. */

static int is_unknown(const struct dirent *entry)
{
    static const char *const known[] = {".", "..", "registry.db", "backup", "restored", "made"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(entry->d_name, known[i]) == 0)
            return 0;
    }
    return 1;
}

static void check_no_litter(const struct power_world *world, size_t after)
{
    struct dirent **entries = NULL;
    int count = scandir(world->folder, &entries, is_unknown, NULL);

    if (count != 0)
        fail_msg("call %zu: %s is left over", after, entries[0]->d_name);
    free(entries);
}

static enum muster_rc make_file(struct power_world *world, bool is_backup, const char *name,
                                struct muster_error *ret_error)
{
    struct muster_registry_restored restored;
    char from[PATH_BYTES], to[PATH_BYTES];

    power_world_path(from, world->folder, is_backup ? "registry.db" : "backup");
    power_world_path(to, world->folder, name);
    memset(ret_error, 0, sizeof(*ret_error));
    return is_backup
               ? muster_registry_backup_write(&world->mem.mem, from, to, ret_error)
               : muster_registry_backup_restore(&world->mem.mem, from, to, &restored, ret_error);
}

/* The answers of a registry made of the file called "made". */
static char *text_of_made(struct power_world *world, const char *folder, bool is_backup)
{
    struct muster_registry_restored restored;
    char made[PATH_BYTES], copy[PATH_BYTES];
    char *text = NULL;

    power_world_path(made, folder, "made");
    power_world_path(copy, folder, "restored");
    if (is_backup)
        assert_int_equal(
            muster_registry_backup_restore(&world->mem.mem, made, copy, &restored, NULL),
            MUSTER_OK);
    text = power_world_text_of_file(world, is_backup ? copy : made);
    assert_int_equal(unlink(made), 0);
    if (is_backup)
        assert_int_equal(unlink(copy), 0);
    return text;
}

/* It is there, and it is there when the power fails now. */
static void check_made(struct power_world *world, bool is_backup, const char *expected)
{
    const char *const folders[] = {world->folder, world->after};

    power_disk_cut(power_disk_steps(), POWER_KEEPS_NOTHING, world->after);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char *text = text_of_made(world, folders[i], is_backup);

        assert_string_equal(text, expected);
        free(text);
    }
}

/* True: no call failed any more. */
static bool fail_at(struct power_world *world, bool is_backup, size_t after, size_t which,
                    const char *expected)
{
    struct muster_error error;
    bool has_failed = false;
    enum muster_rc rc = MUSTER_OK;

    power_disk_begin(world->folder);
    power_disk_fail(after, failures[which].count, failures[which].sys);
    rc = make_file(world, is_backup, "made", &error);
    has_failed = power_disk_has_failed();
    power_disk_fail(0, 0, 0);
    power_disk_end();
    if (rc == MUSTER_OK)
        check_made(world, is_backup, expected);
    else if (error.rc == MUSTER_OK || error.text[0] == '\0')
        fail_msg("call %zu: no error is told", after);
    else if (power_world_has_file(world->folder, "made"))
        fail_msg("call %zu: it is there in spite of an error", after);
    check_no_litter(world, after);
    return !has_failed;
}

static void fail_everywhere(bool is_backup)
{
    struct power_world world;
    struct muster_error error;
    char *old = NULL, *made = NULL, *now = NULL;
    size_t failed = 0;

    power_world_open(&world, true);
    world.store = power_world_open_store(&world, world.path);
    for (int i = 0; i < 4; i++)
        power_world_commit(&world);
    muster_registry_store_close(world.store);
    old = power_world_text_of_file(&world, world.path);
    assert_int_equal(make_file(&world, true, "backup", &error), MUSTER_OK);
    assert_int_equal(make_file(&world, false, "made", &error), MUSTER_OK);
    made = text_of_made(&world, world.folder, false);

    for (size_t which = 0; which < sizeof(failures) / sizeof(failures[0]); which++) {
        for (size_t after = 0; !fail_at(&world, is_backup, after, which, made); after++)
            assert_true(failed++ < CALLS_MAX);
    }

    assert_true(failed > 20);
    now = power_world_text_of_file(&world, world.path);
    assert_string_equal(now, old);
    free(now);
    free(old);
    free(made);
    power_world_close(&world);
}

static void a_backup_that_cannot_be_written_is_not_there(void **state)
{
    (void)state;
    fail_everywhere(true);
}

static void a_backup_that_cannot_be_restored_leaves_nothing(void **state)
{
    (void)state;
    fail_everywhere(false);
}

/* The store. */

/* Until something fails: how many commits were made. */
static int commit_until_failure(struct power_world *world)
{
    for (int i = 0; i < 5; i++) {
        struct muster_registry_meta meta = {.revision = 0};

        if (i == 3)
            muster_registry_store_checkpoint(world->store);
        if (muster_registry_store_begin(world->store) != MUSTER_OK ||
            muster_registry_store_load_meta(world->store, &meta) != MUSTER_OK)
            return i;
        meta.revision++;
        if (muster_registry_store_save_meta(world->store, &meta) != MUSTER_OK ||
            muster_registry_store_put_lease(world->store, meta.revision, 9) != MUSTER_OK ||
            muster_registry_store_commit(world->store) != MUSTER_OK)
            return i;
    }
    return 5;
}

/* The store is as it was at its last commit, and goes on as if nothing had been; its file, too. */
static void check_store(struct power_world *world, size_t after, int commits)
{
    for (int round = 0; round < 2; round++) {
        struct muster_registry_meta meta = {.revision = 0};

        assert_int_equal(muster_registry_store_load_meta(world->store, &meta), MUSTER_OK);
        if (meta.revision != 1 + commits + round)
            fail_msg("call %zu: revision %d after %d commits", after, (int)meta.revision, commits);
        power_world_check_integrity(world->store);
        world->revision = meta.revision;
        if (round == 0)
            power_world_commit(world);
        muster_registry_store_close(world->store);
        world->store = power_world_open_store(world, world->path);
    }
}

static bool fail_store_at(size_t after, size_t which)
{
    struct muster_registry_store_options options = {.is_durable = true};
    struct power_world world;
    struct muster_error error = {.text = ""};
    bool has_failed = false;
    int commits = 0;

    power_world_open(&world, true);
    options.path = world.path;
    power_disk_begin(world.folder);
    power_disk_fail(after, failures[which].count, failures[which].sys);
    if (muster_registry_store_open(&world.mem.mem, &options, &world.store, &error) == MUSTER_OK) {
        commits = commit_until_failure(&world);
        has_failed = power_disk_has_failed();
        if (commits < 5) {
            const char *text = muster_registry_store_error(world.store);

            assert_memory_equal(text, "cannot write ", strlen("cannot write "));
            assert_non_null(strstr(text, world.path));
            assert_non_null(strstr(text, strerror(failures[which].sys)));
        }
        muster_registry_store_rollback(world.store);
        power_disk_fail(0, 0, 0);
    } else {
        assert_non_null(strstr(error.text, world.path));
        has_failed = true;
        power_disk_fail(0, 0, 0);
        world.store = power_world_open_store(&world, world.path);
    }
    check_store(&world, after, commits);
    muster_registry_store_close(world.store);
    power_disk_end();
    power_world_close(&world);
    return !has_failed;
}

static void a_store_that_cannot_write_stays_at_its_last_commit(void **state)
{
    size_t failed = 0;

    (void)state;
    for (size_t which = 0; which < sizeof(failures) / sizeof(failures[0]); which++) {
        for (size_t after = 0; !fail_store_at(after, which); after++)
            assert_true(failed++ < CALLS_MAX);
    }
    assert_true(failed > 20);
}

static void room_is_what_the_file_system_says(void **state)
{
    struct muster_registry_store_options memory = {.path = NULL};
    struct muster_registry_store *store = NULL;
    struct power_world world;
    struct muster_error error;

    (void)state;
    power_world_open(&world, true);
    world.store = power_world_open_store(&world, world.path);
    assert_int_equal(muster_registry_store_open(&world.mem.mem, &memory, &store, &error),
                     MUSTER_OK);
    power_disk_set_room(512 << 10);
    assert_true(muster_registry_store_has_room(world.store));
    power_disk_set_room((512 << 10) - 512);
    assert_false(muster_registry_store_has_room(world.store));
    assert_true(muster_registry_store_has_room(store));
    assert_int_equal(unlink(world.path), 0); /* then nothing can be said */
    assert_true(muster_registry_store_has_room(world.store));
    power_disk_set_room(UINT64_MAX);
    muster_registry_store_close(store);
    muster_registry_store_close(world.store);
    power_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_that_cannot_write_stays_at_its_last_commit),
        cmocka_unit_test(room_is_what_the_file_system_says),
        cmocka_unit_test(a_backup_that_cannot_be_written_is_not_there),
        cmocka_unit_test(a_backup_that_cannot_be_restored_leaves_nothing),
    };

    return cmocka_run_group_tests_name("registry_disk_fails", tests, NULL, NULL);
}
