/* A rendezvous of buffers: the sender and the receiver of bytes meet by step and key, in either
 * order. */
#ifndef MUSTER_CLUSTER_BUFFER_RENDEZVOUS_H
#define MUSTER_CLUSTER_BUFFER_RENDEZVOUS_H

#include <muster/env.h>
#include <muster/list.h>
#include <muster/server.h>

#define MUSTER_RENDEZVOUS_WAITING_MAX 65536u /* on either side */

struct muster_buffer_take;
/** rc OK: buffer is there, and its owner is told by muster_buffer_taken. */
typedef void muster_buffer_take_fn(struct muster_buffer_take *take, enum muster_rc rc,
                                   const char *text, struct muster_server_buffer *buffer);

/** A receiver that wants the bytes of a key. Caller's memory. */
struct muster_buffer_take {
    int64_t step_id;
    const char *key; /* borrowed until on_ready or drop */
    muster_buffer_take_fn *on_ready;
    struct muster_list node;
};

struct muster_buffer_rendezvous {
    struct muster_loop *loop;
    struct muster_list offers; /* each a struct muster_server_buffer */
    struct muster_list takes;
    uint32_t offer_count, take_count;
    struct muster_error ended; /* rc OK: no */
};

void muster_buffer_rendezvous_init(struct muster_buffer_rendezvous *rendezvous,
                                   struct muster_loop *loop);
/** The buffer's callback comes later, from the loop. Errors: ALREADY_EXISTS (its key is on offer in
 * its step), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_buffer_offer(struct muster_buffer_rendezvous *rendezvous,
                                                     struct muster_server_buffer *buffer);
/** Take the bytes of a key. on_ready runs at once when they are there, or never will be: INTERNAL where
 * another receiver waits for the key already, RESOURCE_EXHAUSTED where too many wait.
 *
 * Source:  TensorFlow's BufRendezvous, observed in 2.21; there one that gave up keeps its place. */
void muster_buffer_take(struct muster_buffer_rendezvous *rendezvous,
                        struct muster_buffer_take *take);
void muster_buffer_drop(struct muster_buffer_rendezvous *rendezvous,
                        struct muster_buffer_take *take);
/** The taker has read the bytes, or given up: the owner gets them back. */
void muster_buffer_taken(struct muster_buffer_rendezvous *rendezvous,
                         struct muster_server_buffer *buffer, enum muster_rc rc);
/** End every wait, and every later one, with rc. */
void muster_buffer_rendezvous_end(struct muster_buffer_rendezvous *rendezvous, enum muster_rc rc,
                                  const char *text);

#endif
