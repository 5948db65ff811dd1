/* The bytes that one stream still has to send, and those kept in case the call must be sent again.
 */
#ifndef MUSTER_NET_H2_BODY_H
#define MUSTER_NET_H2_BODY_H

#include "net/h2/output.h"

struct muster_h2_body {
    struct muster_list buffers; /* of muster_h2_buffer */
    size_t bytes;               /* not framed yet */
    size_t promised_bytes;      /* announced to the frame that is being written */
    struct muster_list kept;    /* framed already, for a replay */
    size_t kept_bytes;
    size_t keep_max_bytes; /* 0: nothing is kept */
    bool is_ended;         /* no more appends */
};

void muster_h2_body_init(struct muster_h2_body *body, size_t keep_max_bytes);
void muster_h2_body_fini(struct muster_h2_body *body);
/** Takes buffer. */
void muster_h2_body_append(struct muster_h2_body *body, struct muster_h2_buffer *buffer);
/** Announce the payload of the next frame: at most max bytes, in few enough pieces for an output.
 */
size_t muster_h2_body_promise(struct muster_h2_body *body, size_t max);
/** Move the promised bytes to output. False: they are gone. */
bool muster_h2_body_write(struct muster_h2_body *body, struct muster_h2_output *output);
/** Drop all that is not promised. */
void muster_h2_body_discard(struct muster_h2_body *body);
/** No replay any more. */
void muster_h2_body_commit(struct muster_h2_body *body);
/** Make the body as it was before anything was framed. False: it was too large to keep. */
bool muster_h2_body_rewind(struct muster_h2_body *body);

#endif
