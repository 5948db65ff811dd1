/* Files by patterns, their sizes and records, and what is told when one is wrong. */
#include "training/data/index.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/hash.h>

#include "training/data/plain.h"
#include "training/data/scan.h"

#define WINDOW_BYTES (256u << 10)

/* --- Files --- */

static enum muster_rc file_append(struct muster_data_index *index, const char *path)
{
    struct muster_data_file *files = muster_mem_realloc(
        index->mem, index->files, (index->file_count + 1) * sizeof(*index->files));
    char *copy;

    if (files == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    index->files = files;
    copy = muster_mem_strdup(index->mem, path);
    if (copy == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    files[index->file_count++] = (struct muster_data_file){.path = copy, .plain_fd = -1};
    return MUSTER_OK;
}

/* As the shell does: a pattern that fits no name is a name, "data[1].csv". */
static enum muster_rc name_find_file(struct muster_data_index *index, const char *name,
                                     struct muster_error *ret_error)
{
    if (access(name, F_OK) != 0)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "%s: no file has this name; check the path or the pattern",
                                muster_data_path_tail(name));
    if (file_append(index, name) != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "out of memory for the names of files");
    return MUSTER_OK;
}

static enum muster_rc pattern_find_files(struct muster_data_index *index, const char *pattern,
                                         struct muster_error *ret_error)
{
    glob_t found = {0};
    enum muster_rc rc = MUSTER_OK;

    switch (glob(pattern, GLOB_ERR, NULL, &found)) {
    case 0:
        for (size_t i = 0; i < found.gl_pathc && rc == MUSTER_OK; i++)
            rc = file_append(index, found.gl_pathv[i]);
        if (rc != MUSTER_OK)
            rc = muster_error_set(ret_error, rc, "out of memory for the names of files");
        break;
    case GLOB_NOMATCH:
        rc = name_find_file(index, pattern, ret_error);
        break;
    case GLOB_NOSPACE:
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                              "out of memory for the names of files");
        break;
    default:
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno,
                                  "cannot look for %s", muster_data_path_tail(pattern));
    }
    globfree(&found);
    return rc;
}

static int files_compare(const void *a, const void *b)
{
    return strcmp(((const struct muster_data_file *)a)->path,
                  ((const struct muster_data_file *)b)->path);
}

static void files_sort(struct muster_data_index *index)
{
    uint32_t kept = 0;

    qsort(index->files, index->file_count, sizeof(*index->files), files_compare);
    for (uint32_t i = 0; i < index->file_count; i++) {
        if (kept > 0 && strcmp(index->files[kept - 1].path, index->files[i].path) == 0)
            muster_mem_free(index->mem, index->files[i].path);
        else
            index->files[kept++] = index->files[i];
    }
    index->file_count = kept;
}

enum muster_rc muster_data_index_find_files(struct muster_data_index *index,
                                            const char *const *patterns, size_t count,
                                            struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < count && rc == MUSTER_OK; i++)
        rc = pattern_find_files(index, patterns[i], ret_error);
    if (rc == MUSTER_OK && index->file_count > 0)
        files_sort(index);
    return rc;
}

void muster_data_index_keep_files(struct muster_data_index *index, const struct muster_shard *shard)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < index->file_count; i++) {
        if (muster_shard_has(shard, i))
            index->files[kept++] = index->files[i];
        else
            muster_mem_free(index->mem, index->files[i].path);
    }
    index->file_count = kept;
}

/* --- Records --- */

static muster_data_scan_fn *scan_of(enum muster_dataset_kind kind)
{
    switch (kind) {
    case MUSTER_DATASET_FIXED:
        return muster_data_scan_fixed;
    case MUSTER_DATASET_TFRECORD:
        return muster_data_scan_tfrecord;
    default:
        return muster_data_scan_lines;
    }
}

/* A window that has all bytes of the file. */
static enum muster_rc map_scan(struct muster_data_index *index, uint32_t number,
                               const struct muster_dataset_options *options,
                               const struct muster_file_reader *reader,
                               struct muster_error *ret_error)
{
    struct muster_data_window window = {.reader = reader,
                                        .bytes = index->files[number].map,
                                        .count = (size_t)reader->bytes,
                                        .capacity = (size_t)reader->bytes};

    return scan_of(options->kind)(index, number, options, &window, ret_error);
}

static enum muster_rc file_scan(struct muster_data_index *index, uint32_t number,
                                const struct muster_dataset_options *options,
                                struct muster_data_window *window, struct muster_error *ret_error)
{
    struct muster_data_file *file = &index->files[number];
    struct muster_file_reader reader;
    enum muster_rc rc = muster_data_file_measure(file, &reader, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (muster_data_is_compressed(file->path))
        rc = muster_data_plain_open(index->mem, options->scratch_folder, file, &reader, ret_error);
    if (rc == MUSTER_OK && options->is_mapped)
        file->map = muster_file_reader_map(&reader);
    window->reader = &reader;
    window->at = 0;
    window->count = 0;
    if (rc == MUSTER_OK && file->map != NULL)
        rc = map_scan(index, number, options, &reader, ret_error);
    else if (rc == MUSTER_OK)
        rc = scan_of(options->kind)(index, number, options, window, ret_error);
    muster_data_file_close(file, &reader);
    return rc;
}

enum muster_rc muster_data_index_scan(struct muster_data_index *index,
                                      const struct muster_dataset_options *options,
                                      struct muster_error *ret_error)
{
    struct muster_data_window window = {.room = muster_mem_alloc(index->mem, WINDOW_BYTES),
                                        .capacity = WINDOW_BYTES};
    enum muster_rc rc = MUSTER_OK;

    if (window.room == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "out of memory for reading files");
    for (uint32_t i = 0; i < index->file_count && rc == MUSTER_OK; i++)
        rc = file_scan(index, i, options, &window, ret_error);
    muster_mem_free(index->mem, window.room);
    return rc;
}

void muster_data_index_fini(struct muster_data_index *index)
{
    for (uint32_t i = 0; i < index->file_count; i++) {
        muster_file_map_close(index->files[i].map, index->files[i].bytes);
        if (index->files[i].plain_fd >= 0)
            muster_file_reader_close(&(struct muster_file_reader){.fd = index->files[i].plain_fd});
        muster_mem_free(index->mem, index->files[i].path);
    }
    muster_mem_free(index->mem, index->files);
    muster_mem_free(index->mem, index->entries);
}

uint64_t muster_data_index_hash(const struct muster_data_index *index)
{
    return muster_hash64(index->entries, (size_t)index->entry_count * sizeof(*index->entries), 0);
}

/* Without the end of the line. */
static size_t line_bytes(const uint8_t *line, size_t count)
{
    if (count > 0 && line[count - 1] == '\n')
        count--;
    if (count > 0 && line[count - 1] == '\r')
        count--;
    return count;
}

enum muster_rc muster_data_frame_open(enum muster_dataset_kind kind,
                                      const struct muster_data_file *file,
                                      const struct muster_data_entry *entry, const uint8_t *framed,
                                      struct muster_bytes *ret_record,
                                      struct muster_error *ret_error)
{
    size_t bytes = entry->bytes;

    if (kind == MUSTER_DATASET_TFRECORD) {
        uint64_t stored;

        bytes -= MUSTER_TFRECORD_FRAME_BYTES;
        if (!muster_tfrecord_head_parse(framed, &stored) || stored != bytes ||
            !muster_tfrecord_is_sound(framed, bytes))
            return muster_data_file_error(ret_error, MUSTER_DATA_LOSS, file, entry->at,
                                          "the record has a wrong CRC; fetch the file again, or "
                                          "leave it out");
        framed += MUSTER_TFRECORD_HEAD_BYTES;
    } else if (kind != MUSTER_DATASET_FIXED)
        bytes = line_bytes(framed, bytes);
    *ret_record = (struct muster_bytes){.data = framed, .size = bytes};
    return MUSTER_OK;
}
