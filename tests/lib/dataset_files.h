/* Files of records in a folder of its own, for tests of datasets. */
#ifndef MUSTER_TEST_DATASET_FILES_H
#define MUSTER_TEST_DATASET_FILES_H

#include <stddef.h>
#include <stdint.h>

struct dataset_files {
    char folder[64];
    char path[128]; /* of the last file that was named */
};

void dataset_files_open(struct dataset_files *files);
/** Removes the folder. */
void dataset_files_close(struct dataset_files *files);
/** FOLDER/name, until the next call. */
const char *dataset_files_path(struct dataset_files *files, const char *name);
void dataset_files_write(struct dataset_files *files, const char *name, const void *bytes,
                         size_t count);
void dataset_files_remove(struct dataset_files *files, const char *name);
/** Leave out its last `cut` bytes. */
void dataset_files_shorten(struct dataset_files *files, const char *name, size_t cut);
/** A TFRecord's bytes behind to; returns how many. */
size_t dataset_files_pack_tfrecord(uint8_t *to, const void *payload, size_t count);
/** Records "NUMBER" from first on, as TFRecords. */
void dataset_files_write_tfrecords(struct dataset_files *files, const char *name, unsigned first,
                                   unsigned count);

#endif
