/* One file cut into records. */
#ifndef MUSTER_TRAINING_DATA_SCAN_H
#define MUSTER_TRAINING_DATA_SCAN_H

#include "training/data/index.h"

/** Bytes of a file that are at hand, as much as a read brings. */
struct muster_data_window {
    const struct muster_file_reader *reader;
    uint8_t *room;        /* where they are read; a file that is mapped needs none */
    const uint8_t *bytes; /* in room, or in the map */
    uint64_t at;          /* of the first of them in the file */
    size_t count, capacity;
    bool is_sparse; /* what is read next is far from this: no more than that is read */
};
/** At least `count` bytes from `at` on, which are in the file, at most capacity; *ret_count: those at hand. Errors:
 * OUT_OF_RANGE (the file has become shorter), others of the system. */
MUSTER_MUST_CHECK enum muster_rc muster_data_window_read(struct muster_data_window *window,
                                                         uint64_t at, size_t count,
                                                         const uint8_t **ret_bytes,
                                                         size_t *ret_count);

/** Appends to the index. */
typedef enum muster_rc muster_data_scan_fn(struct muster_data_index *index, uint32_t file,
                                           const struct muster_dataset_options *options,
                                           struct muster_data_window *window,
                                           struct muster_error *ret_error);
muster_data_scan_fn muster_data_scan_lines; /* CSV, too */
muster_data_scan_fn muster_data_scan_fixed;
muster_data_scan_fn muster_data_scan_tfrecord;

/** Errors: RESOURCE_EXHAUSTED (no memory, or a record of more than 4 GiB). */
MUSTER_MUST_CHECK enum muster_rc muster_data_index_add(struct muster_data_index *index,
                                                       uint32_t file, uint64_t at, uint64_t bytes,
                                                       struct muster_error *ret_error);

/** A TFRecord's head: length (little endian, 8 bytes), its masked CRC (4); then the payload, and its masked CRC (4). */
#define MUSTER_TFRECORD_HEAD_BYTES  12u
#define MUSTER_TFRECORD_FRAME_BYTES 16u
/** False: the CRC of the length is wrong. */
MUSTER_MUST_CHECK bool muster_tfrecord_head_parse(const uint8_t head[MUSTER_TFRECORD_HEAD_BYTES],
                                                  uint64_t *ret_bytes);
/** Whether the CRC after a payload of `bytes` bytes is right. */
bool muster_tfrecord_is_sound(const uint8_t *framed, uint64_t bytes);

#endif
