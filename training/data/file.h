/* One file of a dataset: opened, compared with what it was, and named in errors. */
#ifndef MUSTER_TRAINING_DATA_FILE_H
#define MUSTER_TRAINING_DATA_FILE_H

#include <muster/status.h>

#include "runtime/system/file_system.h"

struct muster_data_file {
    char *path;
    uint64_t bytes;     /* its size when it was indexed, as it lies on the disk */
    int plain_fd;       /* -1; else a file without a name that has its bytes, decompressed */
    const uint8_t *map; /* its bytes in memory; NULL: they are read */
};

/** The end of a path that fits into an error beside the rest. */
const char *muster_data_path_tail(const char *path);
/** Fill *ret_error with rc, the file, a byte of it, and a text with the remedy. Returns rc. */
enum muster_rc muster_data_file_error(struct muster_error *ret_error, enum muster_rc rc,
                                      const struct muster_data_file *file, uint64_t at,
                                      const char *text);
/** Open a file for the first time, and keep its size. Errors: those of the system. */
MUSTER_MUST_CHECK enum muster_rc muster_data_file_measure(struct muster_data_file *file,
                                                          struct muster_file_reader *ret_reader,
                                                          struct muster_error *ret_error);
/** Open a file, or share its decompressed bytes, and compare its size. Errors: DATA_LOSS (it has changed), others of
 * the system. */
MUSTER_MUST_CHECK enum muster_rc muster_data_file_open(const struct muster_data_file *file,
                                                       struct muster_file_reader *ret_reader,
                                                       struct muster_error *ret_error);
/** The end of what open gave. */
void muster_data_file_close(const struct muster_data_file *file, struct muster_file_reader *reader);

#endif
