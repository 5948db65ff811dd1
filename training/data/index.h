/* The index of a dataset's files: where each record is. */
#ifndef MUSTER_TRAINING_DATA_INDEX_H
#define MUSTER_TRAINING_DATA_INDEX_H

#include <muster/dataset.h>

#include "training/data/file.h"

/** Where the bytes of a record are in its file, with what frames it: the end of its line; head and CRCs. */
struct muster_data_entry {
    uint64_t at;
    uint32_t bytes;
    uint32_t file;
};

struct muster_data_index {
    struct muster_mem *mem;
    struct muster_data_file *files;
    uint32_t file_count;
    struct muster_data_entry *entries;
    uint64_t entry_count, entry_capacity;
};

/** For init: the files that the patterns name, sorted, each once. Errors: NOT_FOUND (a pattern without a file),
 * RESOURCE_EXHAUSTED, others of the system. */
MUSTER_MUST_CHECK enum muster_rc muster_data_index_find_files(struct muster_data_index *index,
                                                              const char *const *patterns,
                                                              size_t count,
                                                              struct muster_error *ret_error);
/** Leave out the files that are not this worker's. */
void muster_data_index_keep_files(struct muster_data_index *index,
                                  const struct muster_shard *shard);
/** Scan the files. Errors: DATA_LOSS, RESOURCE_EXHAUSTED, others of the system; the text names file and byte. */
MUSTER_MUST_CHECK enum muster_rc muster_data_index_scan(
    struct muster_data_index *index, const struct muster_dataset_options *options,
    struct muster_error *ret_error);
void muster_data_index_fini(struct muster_data_index *index);

/** A hash of all entries: equal on members that see the same data. */
uint64_t muster_data_index_hash(const struct muster_data_index *index);

/** The payload of a record whose framed bytes are at hand. Errors: DATA_LOSS. */
MUSTER_MUST_CHECK enum muster_rc muster_data_frame_open(enum muster_dataset_kind kind,
                                                        const struct muster_data_file *file,
                                                        const struct muster_data_entry *entry,
                                                        const uint8_t *framed,
                                                        struct muster_bytes *ret_record,
                                                        struct muster_error *ret_error);

#endif
