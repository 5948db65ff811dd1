/* A checkpoint as a safetensors file: bytes of a header (8, little endian), the header, the values. */
#include <string.h>

#include "runtime/system/file_system.h"
#include "training/checkpoint/safetensors.h"

static enum muster_rc on_bytes(void *data, uint64_t offset, const void *bytes, size_t count)
{
    (void)offset;
    return muster_file_writer_add(data, bytes, count);
}

static enum muster_rc file_fill(const struct muster_checkpoint *checkpoint, const char *header,
                                struct muster_file_writer *file, struct muster_error *ret_error)
{
    uint64_t length = strlen(header);
    enum muster_rc rc = muster_file_writer_add(file, &length, sizeof(length));

    if (rc == MUSTER_OK)
        rc = muster_file_writer_add(file, header, (size_t)length);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_read(checkpoint, 0, checkpoint->state_bytes, on_bytes, file,
                                    ret_error);
    return rc;
}

enum muster_rc muster_checkpoint_export(const struct muster_checkpoint *checkpoint,
                                        const char *path, struct muster_error *ret_error)
{
    struct muster_file_writer file = {.sys = 0};
    char *header;
    enum muster_rc rc;

    if (!muster_file_is_replaceable(path))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s is a link, a device or the like, which the exported file would "
                                "replace; give the name of a new file, or of a regular one",
                                path);
    rc = muster_safetensors_format(checkpoint, &header, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_file_writer_open(&file, path);
    if (rc == MUSTER_OK) {
        rc = file_fill(checkpoint, header, &file, ret_error);
        if (rc == MUSTER_OK)
            rc = muster_file_writer_finish(&file);
        else
            muster_file_writer_abandon(&file);
    }
    muster_mem_free(checkpoint->mem, header);
    return file.sys != 0 ? muster_error_set_sys(ret_error, rc, file.sys, "cannot write %s", path)
                         : rc;
}
