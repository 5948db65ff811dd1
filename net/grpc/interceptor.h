/* The interceptors of a channel or server, and their run over one call. */
#ifndef MUSTER_NET_RPC_INTERCEPTOR_H
#define MUSTER_NET_RPC_INTERCEPTOR_H

#include <muster/rpc.h>

struct muster_interceptor_chain {
    const struct muster_interceptor *links[MUSTER_INTERCEPTORS_MAX];
    size_t count;
};

/** The interceptors' part of a call; its owner embeds it. */
struct muster_interception {
    size_t started; /* so many links see the call; 0: none does, and the rest is not valid */
    /* private */
    const struct muster_interceptor_chain *chain;
    bool is_attempting;
    struct muster_intercepted call;
    void *data[MUSTER_INTERCEPTORS_MAX];
};

/** Errors: INVALID_ARGUMENT (more than MUSTER_INTERCEPTORS_MAX). Borrows the interceptors. */
MUSTER_MUST_CHECK enum muster_rc muster_interceptor_chain_init(
    struct muster_interceptor_chain *chain, const struct muster_interceptor *const *interceptors,
    size_t count, struct muster_error *ret_error);

/** Runs on_start of all links. call is copied for them; its `added` takes their metadata. Any rc
 * but OK: a link has refused the call. */
MUSTER_MUST_CHECK enum muster_rc muster_interception_start(
    struct muster_interception *interception, const struct muster_interceptor_chain *chain,
    const struct muster_intercepted *call, struct muster_error *ret_error);
/** These do nothing when started is 0. */
void muster_interception_send(struct muster_interception *interception, const struct iovec *pieces,
                              size_t count, size_t wire_bytes);
void muster_interception_receive(struct muster_interception *interception,
                                 struct muster_bytes message, size_t wire_bytes);
void muster_interception_attempt(struct muster_interception *interception, unsigned attempt);
/** Idempotent. */
void muster_interception_attempt_end(struct muster_interception *interception, enum muster_rc rc);
/** Idempotent; ends an open attempt too. */
void muster_interception_end(struct muster_interception *interception, enum muster_rc rc,
                             const char *text, struct muster_metadata trailing);

#endif
