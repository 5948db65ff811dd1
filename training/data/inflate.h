/* Decompression of a file piece by piece. */
#ifndef MUSTER_TRAINING_DATA_INFLATE_H
#define MUSTER_TRAINING_DATA_INFLATE_H

#include <muster/mem.h>
#include <muster/status.h>

/** Bytes on their way through a decompressor: in is read, out is written, both move. */
struct muster_data_pipe {
    const uint8_t *in;
    size_t in_left;
    uint8_t *out;
    size_t out_left;
    bool is_whole; /* all that came in so far are whole members or frames */
};

struct muster_data_codec {
    const char *suffix; /* of paths */
    enum muster_rc (*open)(struct muster_mem *mem, void **ret_state);
    /* Until in or out has nothing left. Errors: DATA_LOSS, RESOURCE_EXHAUSTED. */
    enum muster_rc (*step)(void *state, struct muster_data_pipe *pipe);
    void (*close)(void *state);
};
extern const struct muster_data_codec
    muster_data_codec_gzip; /* RFC 1952, members one after another */
extern const struct muster_data_codec muster_data_codec_zstd; /* RFC 8878; memory is zstd's own */

#endif
