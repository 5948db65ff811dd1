/* The log of a disk, and the disks that a cut of its power may leave. */
#include "power_disk.h"
#include "power_disk_internal.h"

#include "test_env.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR_BYTES 512
#define NAME_BYTES   96
#define FILES_MAX    256
#define NAMES_MAX    256

struct step {
    enum power_kind kind;
    int file;
    uint64_t offset;
    uint8_t *bytes;
    size_t size;
    char name[NAME_BYTES];
    char old_name[NAME_BYTES]; /* of a link that is a renaming */
};

struct content {
    uint8_t *bytes;
    size_t size;
};

/* Names, and the files that they are of. */
struct folder {
    struct {
        char name[NAME_BYTES];
        int file;
    } entries[NAMES_MAX];
    size_t count;
};

static struct {
    char folder[PATH_MAX];
    bool is_recording;
    struct content first[FILES_MAX]; /* of each file when it was first seen */
    int file_count;
    struct folder first_names, names;
    struct step *steps;
    size_t step_count, step_room;
    size_t syncs;
} disk;

/* Names. */

static int find_name(const struct folder *folder, const char *name)
{
    for (size_t i = 0; name != NULL && i < folder->count; i++) {
        if (strcmp(folder->entries[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

static void set_name(struct folder *folder, const char *name, int file)
{
    int at = find_name(folder, name);

    if (at < 0) {
        assert_true(folder->count < NAMES_MAX);
        at = (int)folder->count++;
        (void)snprintf(folder->entries[at].name, NAME_BYTES, "%s", name);
    }
    folder->entries[at].file = file;
}

static void drop_name(struct folder *folder, const char *name)
{
    int at = find_name(folder, name);

    if (at >= 0)
        folder->entries[at] = folder->entries[--folder->count];
}

bool power_log_is_folder(const char *path)
{
    char real[PATH_MAX];

    return disk.is_recording && realpath(path, real) != NULL && strcmp(real, disk.folder) == 0;
}

const char *power_log_name(const char *path)
{
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    const char *name = slash != NULL ? slash + 1 : path;
    char folder[PATH_MAX];

    if (!disk.is_recording || path == NULL || name[0] == '\0' || strcmp(name, ".") == 0)
        return NULL;
    (void)snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - path) : 1,
                   slash != NULL ? path : ".");
    return power_log_is_folder(folder) ? name : NULL;
}

int power_log_find(const char *name)
{
    int at = find_name(&disk.names, name);

    return at >= 0 ? disk.names.entries[at].file : -1;
}

/* The log. */

static struct step *add_step(enum power_kind kind, int file, const char *name)
{
    struct step *step = NULL;

    if (disk.step_count == disk.step_room) {
        disk.step_room = disk.step_room * 2 + 64;
        disk.steps = realloc(disk.steps, disk.step_room * sizeof(*disk.steps));
        assert_non_null(disk.steps);
    }
    step = &disk.steps[disk.step_count++];
    *step = (struct step){.kind = kind, .file = file};
    if (name != NULL) {
        assert_true(strlen(name) < NAME_BYTES);
        (void)strcpy(step->name, name);
    }
    return step;
}

int power_log_create(const char *name)
{
    int file = disk.file_count++;

    assert_true(file < FILES_MAX);
    set_name(&disk.names, name, file);
    (void)add_step(POWER_CREATE, file, name);
    return file;
}

void power_log_write(int file, uint64_t offset, const void *bytes, size_t size)
{
    struct step *step = NULL;

    if (!disk.is_recording)
        return;
    step = add_step(POWER_WRITE, file, NULL);
    step->offset = offset;
    step->size = size;
    step->bytes = malloc(size);
    assert_non_null(step->bytes);
    memcpy(step->bytes, bytes, size);
}

void power_log_truncate(int file, uint64_t size)
{
    if (disk.is_recording)
        add_step(POWER_TRUNCATE, file, NULL)->offset = size;
}

void power_log_sync(int file)
{
    if (!disk.is_recording)
        return;
    (void)add_step(POWER_SYNC, file, NULL);
    disk.syncs++;
}

void power_log_sync_folder(void)
{
    if (disk.is_recording)
        (void)add_step(POWER_SYNC_FOLDER, -1, NULL);
}

void power_log_link(const char *name, int file, const char *old_name)
{
    struct step *step = NULL;

    assert_true(file >= 0);
    set_name(&disk.names, name, file);
    step = add_step(POWER_LINK, file, name);
    if (old_name != NULL) {
        drop_name(&disk.names, old_name);
        (void)snprintf(step->old_name, NAME_BYTES, "%s", old_name);
    }
}

void power_log_unlink(const char *name)
{
    drop_name(&disk.names, name);
    (void)add_step(POWER_UNLINK, -1, name);
}

size_t power_disk_steps(void)
{
    return disk.step_count;
}

bool power_disk_is_sync(size_t steps)
{
    return steps > 0 && (disk.steps[steps - 1].kind == POWER_SYNC ||
                         disk.steps[steps - 1].kind == POWER_SYNC_FOLDER);
}

size_t power_disk_syncs(void)
{
    return disk.syncs;
}

/* Files. */

static void for_each_file(const char *folder, void (*visit)(const char *path, const char *name))
{
    DIR *dir = opendir(folder);
    char path[PATH_MAX];

    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (entry->d_name[0] == '.')
            continue;
        assert_true(snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < PATH_MAX);
        visit(path, entry->d_name);
    }
    closedir(dir);
}

static struct content read_content(const char *path)
{
    FILE *file = fopen(path, "r");
    struct content content = {.bytes = NULL};
    struct stat status;

    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &status), 0);
    content.size = (size_t)status.st_size;
    content.bytes = malloc(content.size + 1);
    assert_non_null(content.bytes);
    assert_int_equal(fread(content.bytes, 1, content.size, file), content.size);
    assert_int_equal(fclose(file), 0);
    return content;
}

static void take_first(const char *path, const char *name)
{
    assert_true(disk.file_count < FILES_MAX);
    set_name(&disk.first_names, name, disk.file_count);
    disk.first[disk.file_count++] = read_content(path);
}

void power_disk_begin(const char *folder)
{
    power_disk_free();
    assert_non_null(realpath(folder, disk.folder));
    for_each_file(folder, take_first);
    disk.names = disk.first_names;
    disk.is_recording = true;
}

/* Cutting. */

static void write_at(struct content *content, uint64_t offset, const uint8_t *bytes, size_t size)
{
    if (offset + size > content->size) {
        content->bytes = realloc(content->bytes, offset + size + 1);
        assert_non_null(content->bytes);
        memset(content->bytes + content->size, 0, offset + size - content->size);
        content->size = offset + size;
    }
    memcpy(content->bytes + offset, bytes, size);
}

static void truncate_at(struct content *content, uint64_t size)
{
    if (size > content->size)
        write_at(content, size - 1, (const uint8_t *)"", 1);
    content->size = size;
}

/* How a disk goes about what was not synced. */
struct cut {
    uint64_t seed;
    struct muster_rng_seeded rng;
    uint64_t kept_percent;
};

static bool is_kept(struct cut *cut)
{
    if (cut->seed <= POWER_KEEPS_ALL)
        return cut->seed == POWER_KEEPS_ALL;
    return muster_rng_below(&cut->rng.rng, 100) < cut->kept_percent;
}

static void tear_content(struct cut *cut, struct content *content, const struct step *step)
{
    for (size_t at = 0; at < step->size;) {
        size_t rest = SECTOR_BYTES - (size_t)((step->offset + at) % SECTOR_BYTES);
        size_t size = step->size - at < rest ? step->size - at : rest;

        if (muster_rng_below(&cut->rng.rng, 2) == 0)
            write_at(content, step->offset + at, step->bytes + at, size);
        at += size;
    }
}

static void step_apply(const struct step *step, struct content *contents, struct folder *names)
{
    switch (step->kind) {
    case POWER_WRITE:
        write_at(&contents[step->file], step->offset, step->bytes, step->size);
        break;
    case POWER_TRUNCATE:
        truncate_at(&contents[step->file], step->offset);
        break;
    case POWER_CREATE:
    case POWER_LINK:
        set_name(names, step->name, step->file);
        drop_name(names, step->old_name);
        break;
    case POWER_UNLINK:
        drop_name(names, step->name);
        break;
    case POWER_SYNC:
    case POWER_SYNC_FOLDER:
        break;
    }
}

/* For each file, and last for the folder, the number of steps that a sync has made safe. */
static void find_synced(size_t steps, size_t synced[FILES_MAX + 1])
{
    memset(synced, 0, (FILES_MAX + 1) * sizeof(*synced));
    for (size_t i = 0; i < steps; i++) {
        if (disk.steps[i].kind == POWER_SYNC)
            synced[disk.steps[i].file] = i;
        if (disk.steps[i].kind == POWER_SYNC_FOLDER)
            synced[FILES_MAX] = i;
    }
}

static void play_steps(size_t steps, struct cut *cut, struct content *contents,
                       struct folder *names)
{
    size_t synced[FILES_MAX + 1];

    find_synced(steps, synced);
    for (size_t i = 0; i < steps; i++) {
        const struct step *step = &disk.steps[i];
        bool is_content = step->kind == POWER_WRITE || step->kind == POWER_TRUNCATE;

        if (i < synced[is_content ? step->file : FILES_MAX] || is_kept(cut))
            step_apply(step, contents, names);
        else if (step->kind == POWER_WRITE && cut->seed > POWER_KEEPS_ALL &&
                 muster_rng_below(&cut->rng.rng, 3) == 0)
            tear_content(cut, &contents[step->file], step);
    }
}

static void take_contents(size_t steps, uint64_t seed, struct content *contents,
                          struct folder *names)
{
    struct cut cut = {.seed = seed};

    muster_rng_seeded_init(&cut.rng, seed * 1000003 + steps);
    cut.kept_percent = 20 + 10 * muster_rng_below(&cut.rng.rng, 8);
    for (int i = 0; i < disk.file_count; i++) {
        contents[i].size = 0;
        contents[i].bytes = malloc(disk.first[i].size + 1);
        assert_non_null(contents[i].bytes);
        if (disk.first[i].size > 0)
            write_at(&contents[i], 0, disk.first[i].bytes, disk.first[i].size);
    }
    *names = disk.first_names;
    play_steps(steps, &cut, contents, names);
}

static void free_contents(struct content *contents)
{
    for (int i = 0; i < disk.file_count; i++)
        free(contents[i].bytes);
}

static void write_content(const char *path, const struct content *content)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(content->bytes, 1, content->size, file), content->size);
    assert_int_equal(fclose(file), 0);
}

void power_disk_cut(size_t steps, uint64_t seed, const char *to)
{
    struct content contents[FILES_MAX];
    struct folder names;
    char path[PATH_MAX];

    assert_false(disk.is_recording);
    assert_true(steps <= disk.step_count);
    take_contents(steps, seed, contents, &names);
    power_disk_empty(to);
    for (size_t i = 0; i < names.count; i++) {
        assert_true(snprintf(path, sizeof(path), "%s/%s", to, names.entries[i].name) < PATH_MAX);
        write_content(path, &contents[names.entries[i].file]);
    }
    free_contents(contents);
}

/* The end. */

static struct {
    struct content contents[FILES_MAX];
    struct folder names;
    size_t found;
} expected;

static void check_file(const char *path, const char *name)
{
    struct content is = read_content(path);
    int at = find_name(&expected.names, name);

    if (at < 0)
        fail_msg("%s was made unseen", path);
    else if (is.size != expected.contents[expected.names.entries[at].file].size ||
             memcmp(is.bytes, expected.contents[expected.names.entries[at].file].bytes, is.size) !=
                 0)
        fail_msg("%s was changed unseen", path);
    expected.found++;
    free(is.bytes);
}

void power_disk_end(void)
{
    disk.is_recording = false;
    take_contents(disk.step_count, POWER_KEEPS_ALL, expected.contents, &expected.names);
    expected.found = 0;
    for_each_file(disk.folder, check_file);
    assert_int_equal(expected.found, expected.names.count);
    free_contents(expected.contents);
}

void power_disk_print(size_t from, size_t to)
{
    static const char *const kinds[] = {"create", "write",  "truncate",   "sync",
                                        "link",   "unlink", "sync folder"};

    for (size_t i = from; i < to && i < disk.step_count; i++)
        fprintf(stderr, "%zu: %s %s file %d at %llu, %zu bytes\n", i, kinds[disk.steps[i].kind],
                disk.steps[i].name, disk.steps[i].file, (unsigned long long)disk.steps[i].offset,
                disk.steps[i].size);
}

void power_disk_free(void)
{
    for (size_t i = 0; i < disk.step_count; i++)
        free(disk.steps[i].bytes);
    for (int i = 0; i < disk.file_count; i++)
        free(disk.first[i].bytes);
    free(disk.steps);
    memset(&disk, 0, sizeof(disk));
}

static void delete_file(const char *path, const char *name)
{
    (void)name;
    assert_int_equal(unlink(path), 0);
}

void power_disk_empty(const char *folder)
{
    for_each_file(folder, delete_file);
}

void power_disk_remove(const char *folder)
{
    power_disk_empty(folder);
    assert_int_equal(rmdir(folder), 0);
}
