/* A connection to a peer: a stream, and TLS over it where there is a credential. */
#ifndef MUSTER_NET_DIAL_H
#define MUSTER_NET_DIAL_H

#include <muster/stream.h>

#include "net/tls/tls_internal.h"
#include "net/tls/stream.h"

struct muster_dial;
typedef void muster_dial_fn(struct muster_dial *dial, enum muster_rc rc);

struct muster_dial_options {
    struct muster_tls *tls;                     /* NULL: plain text */
    const char *server_name;                    /* that the certificate must be for … */
    const char *other_name;                     /* … or this DNS name; NULL: none */
    const char *protocols;                      /* ALPN; NULL: h2 */
    const struct muster_stream_options *stream; /* borrowed during start; NULL: defaults */
    struct muster_tls_sessions *sessions;
};

/** One attempt. Caller's memory. */
struct muster_dial {
    void *data;
    struct muster_stream *stream; /* at done with OK: the caller's (gives) */
    struct muster_error error;    /* detail of a failure */
    bool is_unheard;              /* at a failure: the peer ended the handshake without a byte */
    /* private */
    muster_dial_fn *done;
    struct muster_dial_options options;
    struct muster_connect connect;
    struct muster_tls_handshake handshake;
    uint64_t deadline_ns; /* of both steps */
    bool is_shaking;
};

/** Owns: borrows dial and what options point to until done. Errors as muster_connect_start and
 * muster_tls_handshake_start. */
MUSTER_MUST_CHECK enum muster_rc muster_dial_start(struct muster_dial *dial, struct muster_net *net,
                                                   const struct muster_address *address,
                                                   const struct muster_dial_options *options,
                                                   uint64_t deadline_ns, muster_dial_fn *done);
void muster_dial_cancel(struct muster_dial *dial);

#endif
