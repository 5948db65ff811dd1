/* Clients that speak plain text to a server under TLS, or TLS to one in plain text: the operator is
 * told of each. */
#ifndef MUSTER_NET_RPC_MISMATCH_H
#define MUSTER_NET_RPC_MISMATCH_H

#include <muster/address.h>
#include <muster/env.h>

#define MUSTER_RPC_MISMATCHES_MAX 32 /* hosts that are told of within a minute */

/** The hosts that the log has named lately. It begins as all zero and holds no memory. */
struct muster_rpc_mismatches {
    struct muster_rpc_mismatch {
        struct muster_address host; /* its port is 0 */
        uint64_t logged_ns;         /* 0: the slot is free */
    } slots[MUSTER_RPC_MISMATCHES_MAX];
};

/** Log that the server and its client disagree about TLS: once a minute for each host, and at most
 * MUSTER_RPC_MISMATCHES_MAX hosts a minute. is_server_secured: the server speaks TLS, the client
 * plain text; else the reverse. */
void muster_rpc_mismatch_tell(struct muster_rpc_mismatches *mismatches, struct muster_env *env,
                              const struct muster_address *peer, bool is_server_secured);

#endif
