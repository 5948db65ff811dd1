/* Compressed files: their bytes, decompressed, in a file without a name. */
#ifndef MUSTER_TRAINING_DATA_PLAIN_H
#define MUSTER_TRAINING_DATA_PLAIN_H

#include <muster/mem.h>

#include "training/data/file.h"

/** Whether the path says that the file is compressed: it ends with .gz or .zst. */
bool muster_data_is_compressed(const char *path);
/** Decompress the file that reader has into one that has no name, in folder (NULL: TMPDIR, else /tmp). Then file has
 * its descriptor and its size, and *reader, which is closed, is of it. Errors: DATA_LOSS, RESOURCE_EXHAUSTED, others of
 * the system; *reader is as before. */
MUSTER_MUST_CHECK enum muster_rc muster_data_plain_open(struct muster_mem *mem, const char *folder,
                                                        struct muster_data_file *file,
                                                        struct muster_file_reader *reader,
                                                        struct muster_error *ret_error);

#endif
