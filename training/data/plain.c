/* A compressed file is decompressed once, at open, so that each of its records can be read at any time. */
#include "training/data/plain.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/env.h>

#include "training/data/inflate.h"

#define PIECE_BYTES (256u << 10)

static const struct muster_data_codec *codec_of(const char *path)
{
    static const struct muster_data_codec *const codecs[] = {&muster_data_codec_gzip,
                                                             &muster_data_codec_zstd};
    size_t length = strlen(path);

    for (size_t i = 0; i < sizeof(codecs) / sizeof(codecs[0]); i++) {
        size_t suffix = strlen(codecs[i]->suffix);

        if (length > suffix && strcmp(path + length - suffix, codecs[i]->suffix) == 0)
            return codecs[i];
    }
    return NULL;
}

bool muster_data_is_compressed(const char *path)
{
    return codec_of(path) != NULL;
}

/* --- The file without a name --- */

static enum muster_rc folder_error(const char *folder, int sys, struct muster_error *ret_error)
{
    return muster_error_set_sys(ret_error, muster_rc_from_errno(sys), sys,
                                "cannot write decompressed records to %s; name another folder by "
                                "scratch_folder or TMPDIR",
                                muster_data_path_tail(folder));
}

static enum muster_rc scratch_open(const char *folder, int *ret_fd, struct muster_error *ret_error)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/muster-data-XXXXXX", folder), fd;

    if (length < 0 || (size_t)length >= sizeof(path))
        return folder_error(folder, ENAMETOOLONG, ret_error);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return folder_error(folder, errno, ret_error);
    (void)unlink(path); /* it ends with its descriptor */
    *ret_fd = fd;
    return MUSTER_OK;
}

static const char *folder_choose(const char *folder)
{
    const char *variable = muster_vars_get(muster_vars_system(), "TMPDIR");

    if (folder != NULL)
        return folder;
    return variable != NULL && variable[0] != '\0' ? variable : "/tmp";
}

/* --- Decompression --- */

struct pump {
    const struct muster_data_codec *codec;
    const struct muster_data_file *file;
    const struct muster_file_reader *reader;
    const char *folder;
    void *state;
    uint8_t *in, *out;
    int fd;
    uint64_t at, bytes; /* read, written */
};

static enum muster_rc codec_error(const struct pump *pump, enum muster_rc rc,
                                  struct muster_error *ret_error)
{
    return muster_data_file_error(ret_error, rc, pump->file, pump->at,
                                  rc == MUSTER_DATA_LOSS
                                      ? "the compressed file is damaged or cut off; fetch it again"
                                      : muster_rc_text(rc));
}

/* Decompress what came in. */
static enum muster_rc piece_step(struct pump *pump, struct muster_data_pipe *pipe,
                                 struct muster_error *ret_error)
{
    bool is_full;

    do {
        enum muster_rc rc;
        size_t count;

        pipe->out = pump->out;
        pipe->out_left = PIECE_BYTES;
        rc = pump->codec->step(pump->state, pipe);
        if (rc != MUSTER_OK) {
            pump->at += (uint64_t)(pipe->in - pump->in); /* where the damage showed */
            return codec_error(pump, rc, ret_error);
        }
        is_full = pipe->out_left == 0;
        count = PIECE_BYTES - pipe->out_left;
        if (muster_file_write_all(pump->fd, pump->out, count) != 0)
            return folder_error(pump->folder, errno, ret_error);
        pump->bytes += count;
    } while (pipe->in_left > 0 || is_full);
    return MUSTER_OK;
}

static enum muster_rc pump_run(struct pump *pump, struct muster_error *ret_error)
{
    struct muster_data_pipe pipe = {.is_whole = true};
    enum muster_rc rc = MUSTER_OK;

    while (rc == MUSTER_OK && pump->at < pump->reader->bytes) {
        uint64_t left = pump->reader->bytes - pump->at;
        size_t count = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;

        rc = muster_file_reader_read(pump->reader, pump->at, pump->in, count);
        if (rc != MUSTER_OK)
            return codec_error(pump, rc == MUSTER_OUT_OF_RANGE ? MUSTER_DATA_LOSS : rc, ret_error);
        pipe.in = pump->in;
        pipe.in_left = count;
        rc = piece_step(pump, &pipe, ret_error);
        pump->at += count;
    }
    if (rc == MUSTER_OK && !pipe.is_whole)
        rc = codec_error(pump, MUSTER_DATA_LOSS, ret_error);
    return rc;
}

enum muster_rc muster_data_plain_open(struct muster_mem *mem, const char *folder,
                                      struct muster_data_file *file,
                                      struct muster_file_reader *reader,
                                      struct muster_error *ret_error)
{
    struct pump pump = {
        .codec = codec_of(file->path),
        .file = file,
        .reader = reader,
        .folder = folder_choose(folder),
        .in = muster_mem_alloc(mem, PIECE_BYTES),
        .out = muster_mem_alloc(mem, PIECE_BYTES),
        .fd = -1,
    };
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (pump.in != NULL && pump.out != NULL)
        rc = pump.codec->open(mem, &pump.state);
    if (rc != MUSTER_OK)
        rc = codec_error(&pump, rc, ret_error);
    if (rc == MUSTER_OK)
        rc = scratch_open(pump.folder, &pump.fd, ret_error);
    if (rc == MUSTER_OK)
        rc = pump_run(&pump, ret_error);
    if (rc == MUSTER_OK) {
        muster_file_reader_close(reader);
        file->plain_fd = pump.fd;
        file->bytes = pump.bytes;
        *reader = (struct muster_file_reader){.fd = pump.fd, .bytes = pump.bytes};
    } else if (pump.fd >= 0)
        close(pump.fd);
    if (pump.state != NULL)
        pump.codec->close(pump.state);
    muster_mem_free(mem, pump.in);
    muster_mem_free(mem, pump.out);
    return rc;
}
