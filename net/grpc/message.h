/* A message on its way into a body: gRPC's prefix, then a copy of the bytes, or the lent pieces
 * themselves, or either compressed when that is smaller. */
#ifndef MUSTER_NET_RPC_MESSAGE_H
#define MUSTER_NET_RPC_MESSAGE_H

#include <muster/rpc.h>

#include "net/h2/session.h"

/** Queue a copy. RESOURCE_EXHAUSTED: no memory; nothing is queued. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_message_send(struct muster_h2_stream *stream,
                                                         struct muster_mem *mem,
                                                         const void *message, size_t bytes,
                                                         bool is_compressing);

/** All bytes of pieces; SIZE_MAX when they are more than a message may have. */
size_t muster_rpc_message_bytes(const struct iovec *pieces, size_t count);

/** Queue the pieces. RESOURCE_EXHAUSTED: no memory; nothing is queued, released will not run. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_message_lend(
    struct muster_h2_stream *stream, struct muster_env *env, struct muster_loan *loan,
    const struct iovec *pieces, size_t count, bool is_compressing, muster_loan_fn *released);

/** Gives a loan back that was not needed: released runs from the loop. */
void muster_rpc_message_return(struct muster_loan *loan, struct muster_env *env,
                               muster_loan_fn *released);

#endif
