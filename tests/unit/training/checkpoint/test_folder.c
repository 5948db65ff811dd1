/* Checkpoints in a folder: what is saved is restored, damage is named, and a power cut leaves the earlier one. */
#include "careful_mem.h"
#include "checkpoint_stand.h"
#include "power_disk.h"
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <muster/env.h>

#include "training/checkpoint/folder.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/names.h"
#include "training/checkpoint/writer.h"

#define SEEDS 4u

static const struct muster_checkpoint_name first = {.step = 100, .id = 0xabcd};
static const struct muster_checkpoint_name second = {.step = 200, .id = 0x1234};

static void shard_path(const struct checkpoint_stand *stand,
                       const struct muster_checkpoint_name *name, uint32_t shard, uint32_t count,
                       char path[MUSTER_CHECKPOINT_PATH_BYTES])
{
    assert_true(muster_checkpoint_shard_path(stand->folder, name, shard, count, path));
}

static void byte_flip(const char *path, int64_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    uint8_t byte;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &status), 0);
    at = at < 0 ? status.st_size + at : at;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* --- Saved and restored --- */

static void any_number_of_shards_is_restored_whole(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 6; count++) {
        struct checkpoint_stand stand;
        struct muster_error error = {.text = ""};

        checkpoint_stand_open(&stand, careful_mem(), count == 6);
        checkpoint_stand_fill(&stand, 100);
        assert_int_equal(checkpoint_stand_save(&stand, &first, count, &error), MUSTER_OK);
        checkpoint_stand_fill(&stand, 7);

        if (checkpoint_stand_load(&stand, stand.folder, &first, &error) != MUSTER_OK)
            fail_msg("%s", error.text);

        checkpoint_stand_check(&stand, 100);
        checkpoint_stand_close(&stand);
    }
}

struct part {
    uint64_t begin, end, at;
};

static enum muster_rc on_part(void *data, uint64_t offset, const void *bytes, size_t count)
{
    struct part *part = data;

    (void)bytes;
    assert_int_equal(offset, part->at);
    part->at += count;
    return MUSTER_OK;
}

static void a_part_of_the_state_is_read_alone(void **state)
{
    static const uint64_t ends[] = {0, 1, 1048575, 1048576, 1048577, 2097152, 3200031};
    struct muster_checkpoint *checkpoint = NULL;
    struct checkpoint_stand stand;
    struct muster_error error;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), false);
    assert_int_equal(stand.state_bytes, 3200031);
    assert_int_equal(checkpoint_stand_save(&stand, &first, 3, &error), MUSTER_OK);
    assert_int_equal(
        muster_checkpoint_open(careful_mem(), stand.folder, &first, &checkpoint, &error),
        MUSTER_OK);

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        for (size_t k = i; k < sizeof(ends) / sizeof(ends[0]); k++) {
            struct part part = {ends[i], ends[k], ends[i]};

            assert_int_equal(muster_checkpoint_read(checkpoint, ends[i], ends[k] - ends[i], on_part,
                                                    &part, &error),
                             MUSTER_OK);
            assert_int_equal(part.at, part.end);
        }
    assert_int_equal(muster_checkpoint_read(checkpoint, 1, 3200031, on_part, NULL, &error),
                     MUSTER_OUT_OF_RANGE);

    muster_checkpoint_close(checkpoint);
    checkpoint_stand_close(&stand);
}

static void a_manifest_says_what_the_state_is(void **state)
{
    struct muster_checkpoint *checkpoint = NULL;
    struct checkpoint_stand stand;
    struct muster_error error;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), true);
    assert_int_equal(checkpoint_stand_save(&stand, &first, 2, &error), MUSTER_OK);

    assert_int_equal(
        muster_checkpoint_open(careful_mem(), stand.folder, &first, &checkpoint, &error),
        MUSTER_OK);

    assert_int_equal(checkpoint->name.step, 100);
    assert_int_equal(checkpoint->shard_count, 2);
    assert_int_equal(checkpoint->tensor_count, CHECKPOINT_TENSORS);
    assert_string_equal(checkpoint->tensors[1].name, "weights");
    assert_int_equal(checkpoint->tensors[1].dtype, MUSTER_F32);
    assert_int_equal(checkpoint->tensors[1].count, 40);
    assert_int_equal(checkpoint->tensors[3].offset, 3 + 160);
    muster_checkpoint_close(checkpoint);
    checkpoint_stand_close(&stand);
}

/* --- A program that goes on --- */

static void a_cancelled_shard_leaves_no_file(void **state)
{
    struct muster_checkpoint_writer *writer = NULL;
    struct muster_checkpoint_entry *entries;
    struct checkpoint_stand stand;
    struct muster_error error;
    size_t count;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), false);
    assert_int_equal(
        muster_checkpoint_writer_new(
            &(struct muster_checkpoint_writer_options){.mem = careful_mem(),
                                                       .folder = stand.folder,
                                                       .name = first,
                                                       .tensors = stand.tensors,
                                                       .tensor_count = CHECKPOINT_TENSORS,
                                                       .shard_count = 1},
            &writer),
        MUSTER_OK);

    muster_checkpoint_writer_cancel(writer);

    assert_int_equal(muster_checkpoint_writer_run(writer), MUSTER_CANCELLED);
    muster_checkpoint_writer_free(writer);
    assert_int_equal(muster_checkpoint_list(careful_mem(), stand.folder, &entries, &count, &error),
                     MUSTER_OK);
    assert_int_equal(count, 0);
    checkpoint_stand_close(&stand);
}

/* --- Damage --- */

static void a_flipped_bit_is_named_wherever_it_is(void **state)
{
    static const struct {
        const char *name;
        int64_t at; /* from the end: negative */
        bool is_manifest;
        const char *text;
    } rows[] = {
        {"the shard's mark", 0, false, "shard-00001-of-00002 is not a shard of a checkpoint"},
        {"its step", 16, false, "belongs to another checkpoint"},
        {"its first value", 64, false, "shard-00001-of-00002 is damaged in chunk 0 of 2"},
        {"its last value", -49, false, "shard-00001-of-00002 is damaged in chunk 1 of 2"},
        {"a hash", -40, false, "shard-00001-of-00002 is damaged in its hashes"},
        {"the last hash", -1, false, "shard-00001-of-00002 is damaged in its hashes"},
        {"the manifest's mark", 0, true, "manifest is not the manifest of a checkpoint"},
        {"a name", -20, true, "manifest is damaged"},
        {"its hash", -1, true, "manifest is damaged"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[MUSTER_CHECKPOINT_PATH_BYTES];
        struct checkpoint_stand stand;
        struct muster_error error = {.text = ""};

        checkpoint_stand_open(&stand, careful_mem(), false);
        assert_int_equal(checkpoint_stand_save(&stand, &first, 2, &error), MUSTER_OK);
        shard_path(&stand, &first, 1, 2, path);
        if (rows[i].is_manifest)
            assert_true(muster_checkpoint_manifest_path(stand.folder, &first, path));
        byte_flip(path, rows[i].at);

        assert_int_equal(checkpoint_stand_load(&stand, stand.folder, &first, &error),
                         MUSTER_DATA_LOSS);

        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: %s", rows[i].name, error.text);
        checkpoint_stand_close(&stand);
    }
}

static void a_shard_that_is_cut_short_or_missing_is_named(void **state)
{
    static const struct {
        int64_t left; /* negative: the file is deleted */
        const char *text;
    } rows[] = {
        {-1, "shard-00001-of-00002 is missing"},
        {0, "shard-00001-of-00002 is cut short"},
        {63, "shard-00001-of-00002 is cut short"},
        {5000, "shard-00001-of-00002 is damaged: it must have 1102991 bytes, and has 5000"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[MUSTER_CHECKPOINT_PATH_BYTES];
        struct checkpoint_stand stand;
        struct muster_error error = {.text = ""};

        checkpoint_stand_open(&stand, careful_mem(), false);
        assert_int_equal(checkpoint_stand_save(&stand, &first, 2, &error), MUSTER_OK);
        shard_path(&stand, &first, 1, 2, path);
        assert_int_equal(rows[i].left < 0 ? unlink(path) : truncate(path, rows[i].left), 0);

        assert_int_equal(checkpoint_stand_load(&stand, stand.folder, &first, &error),
                         MUSTER_DATA_LOSS);

        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s", error.text);
        checkpoint_stand_close(&stand);
    }
}

/* Whole files of another version: their hashes fit. */
static void another_version_is_told(void **state)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES], *bytes;
    struct checkpoint_stand stand;
    struct muster_error error = {.text = ""};
    size_t size;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), true);
    assert_int_equal(checkpoint_stand_save(&stand, &first, 1, &error), MUSTER_OK);
    shard_path(&stand, &first, 0, 1, path);
    byte_flip(path, 8);
    assert_int_equal(checkpoint_stand_load(&stand, stand.folder, &first, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "has version 17, this program reads 1"));

    assert_true(muster_checkpoint_manifest_path(stand.folder, &first, path));
    assert_int_equal(
        muster_files_read(muster_files_system(), careful_mem(), path, 65536, &bytes, &size),
        MUSTER_OK);
    bytes[8] = 2;
    muster_hash128(bytes, size - 16, (uint8_t *)bytes + size - 16);
    assert_int_equal(muster_files_write(muster_files_system(), path, bytes, size), MUSTER_OK);
    muster_mem_free(careful_mem(), bytes);
    assert_int_equal(checkpoint_stand_load(&stand, stand.folder, &first, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, ".manifest has version 2, this program reads 1"));
    checkpoint_stand_close(&stand);
}

/* A manifest of a later version, with a type that this one has not. */
static void a_tensor_of_an_unknown_type_is_named(void **state)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES], *bytes;
    struct checkpoint_stand stand;
    struct muster_error error = {.text = ""};
    size_t size;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), true);
    assert_int_equal(checkpoint_stand_save(&stand, &first, 1, &error), MUSTER_OK);
    assert_true(muster_checkpoint_manifest_path(stand.folder, &first, path));
    assert_int_equal(
        muster_files_read(muster_files_system(), careful_mem(), path, 65536, &bytes, &size),
        MUSTER_OK);
    memcpy(bytes + 64 + 24, "f4\0\0\0\0\0", 8); /* the type of the first tensor */
    muster_hash128(bytes, size - 16, (uint8_t *)bytes + size - 16);
    assert_int_equal(muster_files_write(muster_files_system(), path, bytes, size), MUSTER_OK);
    muster_mem_free(careful_mem(), bytes);

    assert_int_equal(checkpoint_stand_load(&stand, stand.folder, &first, &error),
                     MUSTER_FAILED_PRECONDITION);

    assert_non_null(strstr(error.text, "of type f4, which this program does not know"));
    checkpoint_stand_close(&stand);
}

static void a_shard_of_another_life_of_the_job_is_not_taken(void **state)
{
    char from[MUSTER_CHECKPOINT_PATH_BYTES], to[MUSTER_CHECKPOINT_PATH_BYTES];
    const struct muster_checkpoint_name again = {.step = first.step, .id = 77};
    struct checkpoint_stand stand;
    struct muster_error error = {.text = ""};

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), true);
    assert_int_equal(checkpoint_stand_save(&stand, &first, 2, &error), MUSTER_OK);
    assert_int_equal(checkpoint_stand_write(&stand, &again, 0, 2, &error), MUSTER_OK);
    shard_path(&stand, &again, 0, 2, from);
    shard_path(&stand, &first, 0, 2, to);
    assert_int_equal(rename(from, to), 0);

    assert_int_equal(checkpoint_stand_load(&stand, stand.folder, &first, &error), MUSTER_DATA_LOSS);

    assert_non_null(strstr(error.text, "belongs to another checkpoint"));
    checkpoint_stand_close(&stand);
}

/* --- The folder --- */

static void a_half_written_one_is_listed_as_such(void **state)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct checkpoint_stand stand;
    struct muster_error error;
    size_t count = 0;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), true);
    assert_int_equal(checkpoint_stand_save(&stand, &first, 2, &error), MUSTER_OK);
    assert_int_equal(checkpoint_stand_write(&stand, &second, 1, 2, &error), MUSTER_OK);

    assert_int_equal(muster_checkpoint_list(careful_mem(), stand.folder, &entries, &count, &error),
                     MUSTER_OK);

    assert_int_equal(count, 2);
    assert_int_equal(entries[0].name.step, 200);
    assert_false(entries[0].has_manifest);
    assert_int_equal(entries[0].file_count, 1);
    assert_int_equal(entries[1].name.step, 100);
    assert_true(entries[1].has_manifest);
    assert_int_equal(entries[1].file_count, 3);
    assert_true(entries[1].shard_count == 2 && entries[1].shard_total == 2);
    assert_false(muster_checkpoint_entry_is_complete(&entries[0]));
    assert_true(muster_checkpoint_entry_is_complete(&entries[1]));
    entries[1].shard_count = 1;
    assert_false(muster_checkpoint_entry_is_complete(&entries[1]));
    entries[1].shard_count = entries[1].shard_total = 0;
    assert_false(muster_checkpoint_entry_is_complete(&entries[1]));
    muster_mem_free(careful_mem(), entries);
    assert_int_equal(checkpoint_stand_load(&stand, stand.folder, &second, &error),
                     MUSTER_NOT_FOUND);
    checkpoint_stand_close(&stand);
}

/* Opening it must not wait for a process that writes into it. */
static void a_named_pipe_in_the_place_of_a_shard_is_refused(void **state)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    struct checkpoint_stand stand;
    struct muster_error error = {.text = ""};

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), false);
    assert_int_equal(checkpoint_stand_save(&stand, &first, 2, &error), MUSTER_OK);
    shard_path(&stand, &first, 1, 2, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);

    assert_int_not_equal(checkpoint_stand_load(&stand, stand.folder, &first, &error), MUSTER_OK);

    assert_non_null(strstr(error.text, "shard-00001-of-00002"));
    checkpoint_stand_close(&stand);
}

static void a_file_in_the_place_of_the_folder_is_named(void **state)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    struct checkpoint_stand stand;
    struct muster_error error = {.text = ""};

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), false);
    assert_int_equal(checkpoint_stand_save(&stand, &first, 2, &error), MUSTER_OK);
    shard_path(&stand, &first, 1, 2, path);

    assert_int_equal(muster_checkpoint_make_folder(path, &error), MUSTER_ALREADY_EXISTS);

    assert_non_null(strstr(error.text, "not a folder, name another one or move that file away: /"));
    assert_int_equal(muster_checkpoint_make_folder(stand.folder, &error), MUSTER_OK);
    assert_int_equal(muster_checkpoint_make_folder("/nonexistent/x", &error), MUSTER_NOT_FOUND);
    assert_string_equal(error.text, "cannot make the folder (not found, its parent must be there): "
                                    "/nonexistent/x");
    checkpoint_stand_close(&stand);
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    size_t count = 0;

    (void)state;
    assert_int_equal(
        muster_checkpoint_list(careful_mem(), "/tmp/there is nothing", &entries, &count, &error),
        MUSTER_NOT_FOUND);
    assert_string_equal(error.text, "cannot list /tmp/there is nothing: not found");
}

/* ELOOP, as EIO and ESTALE of a file server, is INTERNAL among our codes, whose text says nothing of the cause. */
static void the_system_s_reason_is_told(void **state)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct checkpoint_stand stand;
    char loop[MUSTER_CHECKPOINT_PATH_BYTES], text[MUSTER_ERROR_TEXT_BYTES];
    struct muster_error error;
    size_t count = 0;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), false);
    (void)snprintf(loop, sizeof(loop), "%s/loop", stand.folder);
    assert_int_equal(symlink(loop, loop), 0);

    assert_int_equal(muster_checkpoint_list(careful_mem(), loop, &entries, &count, &error),
                     MUSTER_INTERNAL);
    (void)snprintf(text, sizeof(text), "cannot list %.150s: Too many levels of symbolic links",
                   loop);
    assert_string_equal(error.text, text);
    assert_int_equal(muster_checkpoint_make_folder(loop, &error), MUSTER_INTERNAL);
    (void)snprintf(text, sizeof(text),
                   "cannot make the folder (Too many levels of symbolic links): %.150s", loop);
    assert_string_equal(error.text, text);

    assert_int_equal(unlink(loop), 0);
    checkpoint_stand_close(&stand);
}

static void names_that_are_not_a_checkpoints_are_left_alone(void **state)
{
    static const char *const names[] = {
        "checkpoint-",
        "checkpoint-1-2.manifest",
        "checkpoint-000000000001-0000000000000002",
        "checkpoint-000000000001-0000000000000002.old",
        "checkpoint-000000000001-000000000000000G.manifest",
        "checkpoint--00000000001-0000000000000002.manifest",
        "weights.npz",
    };
    struct muster_checkpoint_name name;
    enum muster_checkpoint_file file;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (muster_checkpoint_file_parse(names[i], &name, &file))
            fail_msg("%s", names[i]);
    assert_true(muster_checkpoint_file_parse("checkpoint-000000000001-00000000000000ff.manifest",
                                             &name, &file));
    assert_int_equal(name.id, 255);
}

static void a_shard_that_is_being_written_is_told(void **state)
{
    struct muster_checkpoint *checkpoint = NULL;
    char path[MUSTER_CHECKPOINT_PATH_BYTES], part[MUSTER_CHECKPOINT_PATH_BYTES + 16];
    struct checkpoint_stand stand;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), true);
    assert_int_equal(muster_checkpoint_new(careful_mem(), stand.folder, stand.described,
                                           CHECKPOINT_TENSORS, 2, &checkpoint),
                     MUSTER_OK);
    checkpoint->name = first;
    shard_path(&stand, &first, 1, 2, path);
    (void)snprintf(part, sizeof(part), "%s.1-2.new", path);
    assert_int_equal(close(open(part, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    shard_path(&stand, &second, 0, 2, path);
    (void)snprintf(part, sizeof(part), "%s.1-2.new", path);
    assert_int_equal(close(open(part, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);

    assert_true(muster_checkpoint_shard_is_begun(checkpoint, 1));
    assert_false(muster_checkpoint_shard_is_begun(checkpoint, 0));

    muster_checkpoint_close(checkpoint);
    checkpoint_stand_close(&stand);
}

static void the_first_missing_shard_and_the_reason_of_a_member_are_told(void **state)
{
    char path[MUSTER_CHECKPOINT_PATH_BYTES];
    struct muster_checkpoint *checkpoint = NULL;
    struct checkpoint_stand stand;
    struct muster_error error;
    uint32_t missing = 9;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), true);
    assert_int_equal(muster_checkpoint_new(careful_mem(), stand.folder, stand.described,
                                           CHECKPOINT_TENSORS, 3, &checkpoint),
                     MUSTER_OK);
    checkpoint->name = first;
    assert_int_equal(checkpoint_stand_write(&stand, &first, 0, 3, &error), MUSTER_OK);
    assert_int_equal(muster_checkpoint_find_missing(checkpoint, &missing, &error), MUSTER_OK);
    assert_int_equal(missing, 1);

    assert_true(muster_checkpoint_failed_path(stand.folder, &first, 2, path));
    assert_int_equal(muster_files_write(muster_files_system(), path, "the disk is full", 16),
                     MUSTER_OK);
    assert_int_equal(muster_checkpoint_find_missing(checkpoint, &missing, &error), MUSTER_ABORTED);
    assert_string_equal(error.text, "rank 2: the disk is full");

    muster_checkpoint_close(checkpoint);
    checkpoint_stand_close(&stand);
}

static void the_last_ones_are_kept(void **state)
{
    static const struct muster_checkpoint_name names[] = {{10, 1}, {20, 1}, {30, 1},
                                                          {30, 2}, {40, 1}, {90, 1}};
    static const struct {
        uint32_t keep_count;
        const char *left; /* steps of what is left, half-written ones with a mark */
    } rows[] = {
        {0, "90? 40 30 20 10 "}, {1, "90? 40 "}, {2, "90? 40 30 "}, {9, "90? 40 30 20 10 "}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_checkpoint_entry *entries = NULL;
        struct checkpoint_stand stand;
        struct muster_error error;
        char left[128] = "";
        size_t count = 0;

        checkpoint_stand_open(&stand, careful_mem(), true);
        for (size_t k = 0; k < 6; k++) {
            assert_int_equal(checkpoint_stand_write(&stand, &names[k], 0, 1, &error), MUSTER_OK);
            if (k != 3 && k != 5)
                assert_int_equal(checkpoint_stand_seal(&stand, &names[k], 1, &error), MUSTER_OK);
        }

        assert_int_equal(muster_checkpoint_sweep(careful_mem(), stand.folder, &names[4],
                                                 rows[i].keep_count, &error),
                         MUSTER_OK);

        assert_int_equal(
            muster_checkpoint_list(careful_mem(), stand.folder, &entries, &count, &error),
            MUSTER_OK);
        for (size_t k = 0; k < count; k++)
            (void)snprintf(left + strlen(left), sizeof(left) - strlen(left), "%d%s ",
                           (int)entries[k].name.step, entries[k].has_manifest ? "" : "?");
        assert_string_equal(left, rows[i].left);
        muster_mem_free(careful_mem(), entries);
        checkpoint_stand_close(&stand);
    }
}

static void what_half_written_ones_left_goes_before_the_next_one_is_written(void **state)
{
    static const struct muster_checkpoint_name names[] = {{10, 1}, {20, 1}, {30, 1},
                                                          {40, 1}, {40, 2}, {90, 1}};
    struct muster_checkpoint_entry *entries = NULL;
    struct checkpoint_stand stand;
    struct muster_error error;
    char left[128] = "";
    size_t count = 0;

    (void)state;
    checkpoint_stand_open(&stand, careful_mem(), true);
    for (size_t k = 0; k < 6; k++) {
        assert_int_equal(checkpoint_stand_write(&stand, &names[k], 0, 1, &error), MUSTER_OK);
        if (k == 0 || k == 2)
            assert_int_equal(checkpoint_stand_seal(&stand, &names[k], 1, &error), MUSTER_OK);
    }

    assert_int_equal(muster_checkpoint_clear(careful_mem(), stand.folder, &names[4], &error),
                     MUSTER_OK);

    assert_int_equal(muster_checkpoint_list(careful_mem(), stand.folder, &entries, &count, &error),
                     MUSTER_OK);
    for (size_t k = 0; k < count; k++)
        (void)snprintf(left + strlen(left), sizeof(left) - strlen(left), "%d/%d%s ",
                       (int)entries[k].name.step, (int)entries[k].name.id,
                       entries[k].has_manifest ? "" : "?");
    assert_string_equal(left, "90/1? 40/2? 30/1 10/1 ");
    muster_mem_free(careful_mem(), entries);
    checkpoint_stand_close(&stand);
}

/* --- Disks and memory --- */

/* The newest whole one, as a job that begins takes it. */
static uint64_t newest_load(struct checkpoint_stand *stand, const char *folder)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    uint64_t step = 0;
    size_t count = 0;

    assert_int_equal(muster_checkpoint_list(stand->mem, folder, &entries, &count, &error),
                     MUSTER_OK);
    for (size_t i = 0; i < count && step == 0; i++) {
        if (!entries[i].has_manifest)
            continue;
        if (checkpoint_stand_load(stand, folder, &entries[i].name, &error) != MUSTER_OK)
            fail_msg("it has a manifest and is not whole: %s", error.text);
        step = entries[i].name.step;
    }
    muster_mem_free(stand->mem, entries);
    return step;
}

static void the_power_fails_and_the_newest_with_a_manifest_is_whole(void **state)
{
    char after[] = "/tmp/checkpoint_after.XXXXXX";
    struct checkpoint_stand stand;
    struct muster_error error;
    uint32_t seen[2] = {0, 0};
    size_t sealed;

    (void)state;
    assert_non_null(mkdtemp(after));
    checkpoint_stand_open(&stand, careful_mem(), true);
    checkpoint_stand_fill(&stand, 100);
    assert_int_equal(checkpoint_stand_save(&stand, &first, 2, &error), MUSTER_OK);
    checkpoint_stand_fill(&stand, 200);
    power_disk_begin(stand.folder);
    assert_int_equal(checkpoint_stand_save(&stand, &second, 3, &error), MUSTER_OK);
    sealed = power_disk_steps();
    assert_int_equal(muster_checkpoint_sweep(careful_mem(), stand.folder, &second, 1, &error),
                     MUSTER_OK);
    power_disk_end();

    assert_true(power_disk_steps() > sealed + 3);
    for (size_t steps = 0; steps <= power_disk_steps(); steps++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            uint64_t step;

            power_disk_cut(steps, seed, after);
            step = newest_load(&stand, after);
            assert_true(step == 200 || (step == 100 && steps < sealed));
            checkpoint_stand_check(&stand, step);
            seen[step == 200]++;
        }
    assert_true(seen[0] > 0 && seen[1] > 0);
    power_disk_free();
    power_disk_remove(after);
    checkpoint_stand_close(&stand);
}

static void a_full_disk_is_named_and_leaves_the_earlier_one(void **state)
{
    bool has_failed = true;
    uint32_t failures = 0;

    (void)state;
    for (size_t after = 0; has_failed; after++) {
        struct muster_error error = {.text = ""};
        struct checkpoint_stand stand;
        uint64_t step;

        checkpoint_stand_open(&stand, careful_mem(), true);
        checkpoint_stand_fill(&stand, 100);
        assert_int_equal(checkpoint_stand_save(&stand, &first, 2, &error), MUSTER_OK);
        checkpoint_stand_fill(&stand, 200);
        power_disk_begin(stand.folder);
        power_disk_fail(after, 1, ENOSPC);
        has_failed = checkpoint_stand_save(&stand, &second, 2, &error) != MUSTER_OK;
        power_disk_fail(0, 0, 0);
        power_disk_end();
        if (has_failed)
            assert_non_null(strstr(error.text, "cannot write /tmp/checkpoint."));
        failures += has_failed;

        step = newest_load(&stand, stand.folder);

        assert_true(step == 200 || has_failed); /* the last sync may fail */
        checkpoint_stand_check(&stand, step);
        power_disk_free();
        checkpoint_stand_close(&stand);
    }
    assert_true(failures > 10);
}

static void run_without_memory(struct torture *torture, const void *data)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct checkpoint_stand stand;
    struct muster_error error = {.text = ""};
    size_t count = 0;
    enum muster_rc rc;

    (void)data;
    checkpoint_stand_open(&stand, &torture->mem, true);
    checkpoint_stand_fill(&stand, 100);
    torture_arm(torture);
    rc = checkpoint_stand_save(&stand, &first, 2, &error);
    if (rc == MUSTER_OK)
        rc = checkpoint_stand_load(&stand, stand.folder, &first, &error);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_list(&torture->mem, stand.folder, &entries, &count, &error);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_sweep(&torture->mem, stand.folder, &first, 1, &error);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    muster_mem_free(&torture->mem, entries);
    checkpoint_stand_close(&stand);
}

static void every_lack_of_memory_is_told(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "checkpoint", .run = run_without_memory});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_shards_is_restored_whole),
        cmocka_unit_test(a_part_of_the_state_is_read_alone),
        cmocka_unit_test(a_manifest_says_what_the_state_is),
        cmocka_unit_test(a_cancelled_shard_leaves_no_file),
        cmocka_unit_test(a_flipped_bit_is_named_wherever_it_is),
        cmocka_unit_test(a_shard_that_is_cut_short_or_missing_is_named),
        cmocka_unit_test(a_named_pipe_in_the_place_of_a_shard_is_refused),
        cmocka_unit_test(a_file_in_the_place_of_the_folder_is_named),
        cmocka_unit_test(another_version_is_told),
        cmocka_unit_test(a_tensor_of_an_unknown_type_is_named),
        cmocka_unit_test(a_shard_of_another_life_of_the_job_is_not_taken),
        cmocka_unit_test(a_half_written_one_is_listed_as_such),
        cmocka_unit_test(a_folder_that_is_not_there_is_named),
        cmocka_unit_test(the_system_s_reason_is_told),
        cmocka_unit_test(names_that_are_not_a_checkpoints_are_left_alone),
        cmocka_unit_test(a_shard_that_is_being_written_is_told),
        cmocka_unit_test(the_first_missing_shard_and_the_reason_of_a_member_are_told),
        cmocka_unit_test(the_last_ones_are_kept),
        cmocka_unit_test(what_half_written_ones_left_goes_before_the_next_one_is_written),
        cmocka_unit_test(the_power_fails_and_the_newest_with_a_manifest_is_whole),
        cmocka_unit_test(a_full_disk_is_named_and_leaves_the_earlier_one),
        cmocka_unit_test(every_lack_of_memory_is_told),
    };

    return cmocka_run_group_tests_name("training.checkpoint.folder", tests, NULL, torture_tell);
}
