/* The header of a safetensors file. Pure. */
#ifndef MUSTER_TRAINING_CHECKPOINT_SAFETENSORS_H
#define MUSTER_TRAINING_CHECKPOINT_SAFETENSORS_H

#include <muster/checkpoint.h>

/** In front of the header: its bytes, little endian. */
#define MUSTER_SAFETENSORS_LENGTH_BYTES 8u

struct muster_safetensors_header {
    const void *bytes;
    size_t size;
    uint64_t data_bytes; /* of the file after it */
};

/**
 * Parse a header.
 *
 * Gives a description as if one member had saved it: tensors with one dimension, in the order of their bytes, which
 * cover the data without gaps; name.step is the "step" of the metadata, 0 where it has none.
 *
 * Errors:  INVALID_ARGUMENT (not such a header, or tensors that overlap, leave bytes out or lie outside of the data),
 *          DATA_LOSS (the data end too early), UNIMPLEMENTED (a type that muster does not have), RESOURCE_EXHAUSTED;
 *          the text follows the name of the file and a colon.
 */
MUSTER_MUST_CHECK enum muster_rc muster_safetensors_parse(
    struct muster_mem *mem, const char *folder, const struct muster_safetensors_header *header,
    struct muster_checkpoint **ret_checkpoint, struct muster_error *ret_error);

/** A header for the tensors of a checkpoint, each with one dimension, and its step; blanks fill it up to a multiple of
 * 8 bytes. Gives *ret_text (checkpoint->mem). Errors: INVALID_ARGUMENT (a name that such a file cannot have),
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_safetensors_format(
    const struct muster_checkpoint *checkpoint, char **ret_text, struct muster_error *ret_error);

#endif
