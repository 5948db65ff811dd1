/* The bytes of one gathered write of an HTTP/2 session: small frames copied, large payloads by
 * reference. */
#ifndef MUSTER_NET_H2_OUTPUT_H
#define MUSTER_NET_H2_OUTPUT_H

#include <sys/uio.h>

#include <muster/list.h>
#include <muster/mem.h>
#include <muster/status.h>

/** How many bytes live buffers have, for an owner that bounds them. It outlives the buffers. */
struct muster_h2_holding {
    size_t bytes;
    struct muster_h2_holding *whole; /* that this is a part of; NULL: of none */
    int64_t *gauge;                  /* moves along; NULL: none */
};
void muster_h2_holding_add(struct muster_h2_holding *holding, size_t bytes);
void muster_h2_holding_subtract(struct muster_h2_holding *holding, size_t bytes);

/** Bytes on their way out, counted, so that a write in flight outlives the stream that queued them.
 */
struct muster_h2_buffer {
    struct muster_list node; /* a stream's body */
    struct muster_mem *mem;
    size_t size;
    size_t offset; /* framed so far */
    uint32_t refs;
    const uint8_t *data;           /* `bytes`, or memory that is lent */
    void (*release)(void *lender); /* NULL: the memory is not lent */
    void *lender;
    struct muster_h2_holding *holding; /* NULL: not counted */
    uint8_t bytes[];
};

/** One reference, room for size bytes, or NULL. Gives. */
struct muster_h2_buffer *muster_h2_buffer_new(struct muster_mem *mem, size_t size);
/** As muster_h2_buffer_new, of bytes that are lent until release(lender) runs (inside the last
 * unref). */
struct muster_h2_buffer *muster_h2_buffer_lend(struct muster_mem *mem, const void *data,
                                               size_t size, void (*release)(void *lender),
                                               void *lender);
/** Give back what is behind the first size bytes. Takes buffer, which is in no body; gives it at
 * its new place. */
struct muster_h2_buffer *muster_h2_buffer_shrink(struct muster_h2_buffer *buffer, size_t size);
/** From now on until its last reference is gone the buffer's bytes count in holding (NULL:
 * nothing). */
void muster_h2_buffer_count(struct muster_h2_buffer *buffer, struct muster_h2_holding *holding);
void muster_h2_buffer_ref(struct muster_h2_buffer *buffer);
/** NULL is accepted. */
void muster_h2_buffer_unref(struct muster_h2_buffer *buffer);

#define MUSTER_H2_GATHER_BYTES     (64u << 10)
#define MUSTER_H2_GATHER_RESERVE   (20u << 10) /* more than one DATA frame has copied */
#define MUSTER_H2_OUTPUT_PIECES    64
#define MUSTER_H2_FRAME_PIECES_MAX 5 /* of one DATA frame: two by reference, copies around them */
#define MUSTER_H2_COPY_BYTES_MAX   4096 /* copying less is cheaper than another piece */
#define MUSTER_H2_OUTPUT_BYTES     (1u << 20)

struct muster_h2_output {
    struct muster_mem *mem;
    size_t gather_used;
    struct iovec pieces[MUSTER_H2_OUTPUT_PIECES];
    struct muster_h2_buffer *held[MUSTER_H2_OUTPUT_PIECES]; /* NULL: in gather */
    size_t piece_count;
    size_t bytes;
    uint8_t gather[MUSTER_H2_GATHER_BYTES];
};

/** Only for the time of a write: a connection that sends nothing has none. NULL: no memory. Gives.
 */
struct muster_h2_output *muster_h2_output_new(struct muster_mem *mem);
/** Lets the buffers go. NULL is accepted. */
void muster_h2_output_free(struct muster_h2_output *output);

/** True when another DATA frame, with a frame of another kind after it, may not fit: write first.
 */
bool muster_h2_output_is_full(const struct muster_h2_output *output);
/** Copy; count <= MUSTER_H2_GATHER_RESERVE and not full. */
void muster_h2_output_copy(struct muster_h2_output *output, const void *bytes, size_t count);
/** Append a frame of any size that is not DATA, when a DATA frame at most has come since the output
 * was not full. False: no memory for it. */
MUSTER_MUST_CHECK bool muster_h2_output_append(struct muster_h2_output *output, const void *bytes,
                                               size_t count);
/** Append part of a buffer, by reference when it is large. */
void muster_h2_output_refer(struct muster_h2_output *output, struct muster_h2_buffer *buffer,
                            size_t offset, size_t count);

#endif
