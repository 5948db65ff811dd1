/* Deltas: the difference between two versions of a range, bit by bit and without loss. The same bytes on every path
 * (docs/protocol.md, "Publications"). */
#ifndef MUSTER_PARAMS_PUBLICATION_DELTA_H
#define MUSTER_PARAMS_PUBLICATION_DELTA_H

#include <muster/status.h>

#define MUSTER_DELTA_BLOCK_ELEMENTS  2048u
#define MUSTER_DELTA_HEAD_BYTES      8u
#define MUSTER_DELTA_RANGE_BYTES_MAX (16u << 20)

/** A range in an older version and in a newer one: both have `bytes`, a multiple of element_bytes. */
struct muster_delta_source {
    const void *base;
    const void *range;
    uint32_t bytes;         /* at most MUSTER_DELTA_RANGE_BYTES_MAX */
    uint32_t element_bytes; /* 1, 2 or 4: what is compared, and travels as a whole */
};

/** How long a delta of so many bytes can be. */
size_t muster_delta_bytes_max(uint32_t range_bytes);

/** Write the delta that makes source->range of source->base. ret_delta has muster_delta_bytes_max(bytes).
 * Returns the delta's size. */
size_t muster_delta_encode(const struct muster_delta_source *source, void *ret_delta);

/**
 * Make the newer version in place: `range` has the older one. A delta of strangers leaves it unchanged when it is
 * refused. A delta against another version is not found out here, but by the hash of the chunk.
 *
 * Errors:  INVALID_ARGUMENT.
 */
MUSTER_MUST_CHECK enum muster_rc muster_delta_apply(const void *delta, size_t delta_bytes,
                                                    void *range, uint32_t range_bytes,
                                                    struct muster_error *ret_error);

/** The functions of one path. Blocks stand behind the head. */
struct muster_delta_path {
    const char *name;
    /** Returns the bytes of the blocks. */
    size_t (*encode)(const struct muster_delta_source *source, uint8_t *ret_blocks);
    /** Whether `blocks` are those of so many elements and nothing else. */
    bool (*check)(const uint8_t *blocks, size_t bytes, uint32_t element_count,
                  uint32_t element_bytes);
    /** Blocks have been checked. */
    void (*apply)(const uint8_t *blocks, uint8_t *range, uint32_t element_count,
                  uint32_t element_bytes);
};

/** The compiler's vectors of the architecture's baseline. */
const struct muster_delta_path *muster_delta_path_baseline(void);
/** NULL: not this architecture, or the processor lacks the instructions. */
const struct muster_delta_path *muster_delta_path_avx2(void);
const struct muster_delta_path *muster_delta_path_avx512(void);
/** The fastest of this machine. */
const struct muster_delta_path *muster_delta_path_best(void);

#endif
