/* The server's side of TLS over any stream: just what the fake cloud needs. */
#ifndef MUSTER_FAKE_TLS_H
#define MUSTER_FAKE_TLS_H

#include <muster/stream.h>

#include "fake_identity.h"

struct fake_tls_context; /* one per server */

/** Gives; NULL when OpenSSL fails. offers_h2: ALPN h2 before http/1.1. wants_client: refuse clients without a
 * certificate of the authority. Borrows nothing. */
struct fake_tls_context *fake_tls_context_new(const struct fake_identity *identity, bool offers_h2,
                                              bool wants_client);
void fake_tls_context_free(struct fake_tls_context *context);

/**
 * A stream of plain bytes over inner, an accepted one; the handshake runs as needed. One write and one read
 * may be open at a time; recalls and take_now are not there. Takes inner (also on failure). Gives.
 */
enum muster_rc fake_tls_open(struct muster_env *env, struct fake_tls_context *context,
                             struct muster_stream *inner, struct muster_stream **ret_stream);

#endif
