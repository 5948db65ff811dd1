/* Files of records for tests of datasets. */
#include "dataset_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_env.h"
#include "training/data/crc32c.h"

void dataset_files_open(struct dataset_files *files)
{
    snprintf(files->folder, sizeof(files->folder), "/tmp/muster_dataset_XXXXXX");
    assert_non_null(mkdtemp(files->folder));
}

void dataset_files_close(struct dataset_files *files)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", files->folder);
    assert_int_equal(system(command), 0);
}

const char *dataset_files_path(struct dataset_files *files, const char *name)
{
    snprintf(files->path, sizeof(files->path), "%s/%s", files->folder, name);
    return files->path;
}

void dataset_files_write(struct dataset_files *files, const char *name, const void *bytes,
                         size_t count)
{
    FILE *file = fopen(dataset_files_path(files, name), "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

void dataset_files_remove(struct dataset_files *files, const char *name)
{
    assert_int_equal(unlink(dataset_files_path(files, name)), 0);
}

void dataset_files_shorten(struct dataset_files *files, const char *name, size_t cut)
{
    const char *path = dataset_files_path(files, name);
    struct stat found;

    assert_int_equal(stat(path, &found), 0);
    assert_true((size_t)found.st_size > cut);
    assert_int_equal(truncate(path, found.st_size - (off_t)cut), 0);
}

static void integer_store(uint8_t *to, uint64_t value, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

size_t dataset_files_pack_tfrecord(uint8_t *to, const void *payload, size_t count)
{
    integer_store(to, count, 8);
    integer_store(to + 8, muster_crc32c_mask(muster_crc32c_table(to, 8)), 4);
    memcpy(to + 12, payload, count);
    integer_store(to + 12 + count, muster_crc32c_mask(muster_crc32c_table(payload, count)), 4);
    return count + 16;
}

void dataset_files_write_tfrecords(struct dataset_files *files, const char *name, unsigned first,
                                   unsigned count)
{
    uint8_t *bytes = malloc(count * 32 + 1);
    size_t size = 0;

    assert_non_null(bytes);
    for (unsigned i = first; i < first + count; i++) {
        char text[12];

        snprintf(text, sizeof(text), "%u", i);
        size += dataset_files_pack_tfrecord(bytes + size, text, strlen(text));
    }
    dataset_files_write(files, name, bytes, size);
    free(bytes);
}
