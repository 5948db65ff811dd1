/* Files by path or, decompressed, by descriptor. */
#include "training/data/file.h"

#include <inttypes.h>
#include <string.h>

#define PATH_TAIL_BYTES 80u

const char *muster_data_path_tail(const char *path)
{
    size_t length = strlen(path);

    return length > PATH_TAIL_BYTES ? path + length - PATH_TAIL_BYTES : path;
}

enum muster_rc muster_data_file_error(struct muster_error *ret_error, enum muster_rc rc,
                                      const struct muster_data_file *file, uint64_t at,
                                      const char *text)
{
    return muster_error_set(ret_error, rc, "%s, byte %" PRIu64 "%s: %s",
                            muster_data_path_tail(file->path), at,
                            file->plain_fd >= 0 ? " (decompressed)" : "", text);
}

static enum muster_rc reader_open(const struct muster_data_file *file,
                                  struct muster_file_reader *ret_reader,
                                  struct muster_error *ret_error)
{
    enum muster_rc rc = muster_file_reader_open(ret_reader, file->path);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc,
                                "cannot read %s: %s; check that it is a file, and its permissions",
                                muster_data_path_tail(file->path), muster_rc_text(rc));
    return MUSTER_OK;
}

enum muster_rc muster_data_file_measure(struct muster_data_file *file,
                                        struct muster_file_reader *ret_reader,
                                        struct muster_error *ret_error)
{
    enum muster_rc rc = reader_open(file, ret_reader, ret_error);

    if (rc == MUSTER_OK)
        file->bytes = ret_reader->bytes;
    return rc;
}

enum muster_rc muster_data_file_open(const struct muster_data_file *file,
                                     struct muster_file_reader *ret_reader,
                                     struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (file->plain_fd >= 0) {
        *ret_reader = (struct muster_file_reader){.fd = file->plain_fd, .bytes = file->bytes};
        return MUSTER_OK;
    }
    rc = reader_open(file, ret_reader, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (ret_reader->bytes == file->bytes)
        return MUSTER_OK;
    rc = muster_error_set(ret_error, MUSTER_DATA_LOSS,
                          "%s has changed from %" PRIu64 " to %" PRIu64
                          " bytes since it was opened; put the old one back, or start anew",
                          muster_data_path_tail(file->path), file->bytes, ret_reader->bytes);
    muster_file_reader_close(ret_reader);
    return rc;
}

void muster_data_file_close(const struct muster_data_file *file, struct muster_file_reader *reader)
{
    if (file->plain_fd < 0)
        muster_file_reader_close(reader);
}
