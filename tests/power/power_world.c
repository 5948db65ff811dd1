/* A registry's store in a folder that is recorded, written to in a fixed way. */
#include "careful_mem.h"
#include "power_world.h"
#include "power_disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

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

char *power_world_text_of(struct muster_registry_store *store)
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

struct muster_registry_store *power_world_open_store(struct power_world *world, const char *path)
{
    struct muster_registry_store_options options = {.path = path, .is_durable = world->is_durable};
    struct muster_registry_store *store = NULL;
    struct muster_error error = {.text = ""};

    if (muster_registry_store_open(&world->mem.mem, &options, &store, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return store;
}

void power_world_note(struct power_world *world, bool is_safe)
{
    assert_true(world->count < MOMENTS_MAX);
    world->moments[world->count++] =
        (struct power_moment){.steps = power_disk_steps(),
                              .is_safe = world->is_durable || is_safe,
                              .text = power_world_text_of(world->store)};
}

static void world_append(struct power_world *world, const char *key, size_t value_bytes,
                         bool is_deletion)
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

void power_world_write(struct power_world *world)
{
    struct muster_registry_meta meta;
    char key[16];

    world->revision++;
    (void)snprintf(key, sizeof(key), "k%02d", (int)world->revision);
    world_append(world, key, world->revision % 3 == 0 ? 5000 : 30, false);
    world_append(world, "same", 100, false);
    world_append(world, "often", 1, true);
    assert_int_equal(muster_registry_store_put_lease(world->store, world->revision, 9), MUSTER_OK);
    assert_int_equal(muster_registry_store_delete_lease(world->store, world->revision - 2),
                     MUSTER_OK);
    assert_int_equal(muster_registry_store_load_meta(world->store, &meta), MUSTER_OK);
    meta.revision = world->revision;
    meta.term++;
    assert_int_equal(muster_registry_store_save_meta(world->store, &meta), MUSTER_OK);
}

void power_world_commit(struct power_world *world)
{
    power_world_write(world);
    assert_int_equal(muster_registry_store_commit(world->store), MUSTER_OK);
    power_world_note(world, false);
}

static int on_check(void *data, int count, char **values, char **names)
{
    (void)names;
    *(bool *)data = count == 1 && strcmp(values[0], "ok") == 0;
    return 0;
}

void power_world_check_integrity(struct muster_registry_store *store)
{
    bool is_sound = false;

    assert_int_equal(sqlite3_exec(muster_registry_store_database(store), "PRAGMA integrity_check",
                                  on_check, &is_sound, NULL),
                     SQLITE_OK);
    assert_true(is_sound);
}

void power_world_open(struct power_world *world, bool is_durable)
{
    memset(world, 0, sizeof(*world));
    muster_mem_limited_init(&world->mem, careful_mem(), 0);
    world->is_durable = is_durable;
    world->revision = 1;
    (void)strcpy(world->folder, "/tmp/registry_power.XXXXXX");
    assert_non_null(mkdtemp(world->folder));
    (void)strcpy(world->after, "/tmp/registry_after.XXXXXX");
    assert_non_null(mkdtemp(world->after));
    (void)snprintf(world->path, sizeof(world->path), "%s/registry.db", world->folder);
}

void power_world_close(struct power_world *world)
{
    for (size_t i = 0; i < world->count; i++)
        free(world->moments[i].text);
    power_disk_free();
    power_disk_remove(world->folder);
    power_disk_remove(world->after);
    assert_int_equal(muster_mem_limited_fini(&world->mem), 0);
}

char *power_world_text_of_file(struct power_world *world, const char *path)
{
    struct muster_registry_store *store = power_world_open_store(world, path);
    char *text = power_world_text_of(store);

    power_world_check_integrity(store);
    muster_registry_store_close(store);
    return text;
}

void power_world_path(char path[PATH_BYTES], const char *folder, const char *name)
{
    assert_true(snprintf(path, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES);
}

bool power_world_has_file(const char *folder, const char *name)
{
    char path[PATH_BYTES];

    power_world_path(path, folder, name);
    return access(path, F_OK) == 0;
}
