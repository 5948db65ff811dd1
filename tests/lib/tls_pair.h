/* Two streams over a socket pair that shake hands with each other. */
#ifndef MUSTER_TEST_TLS_PAIR_H
#define MUSTER_TEST_TLS_PAIR_H

#include "test_env.h"
#include "net/tls/tls_internal.h"
#include "net/tls/stream.h"

struct tls_side {
    struct muster_tls_handshake handshake;
    struct muster_stream *inner;  /* before start */
    struct muster_stream *stream; /* NULL: none, or closed */
    unsigned done_count, closed_count;
    enum muster_rc rc;
    struct muster_error error;
};

struct tls_pair {
    struct test_env test;
    struct tls_side client, server;
    int fds[2]; /* -1: a stream's */
    struct muster_tls *server_tls, *client_tls; /* NULL, or closed at the end */
};

/** Environment and connected inner streams. */
void tls_pair_open(struct tls_pair *pair);
/** A server's credential for localhost of a new authority, and a client's that trusts it. */
void tls_pair_credentials(struct tls_pair *pair);
/** Start both handshakes and wait for both. protocols "h2". sessions may be NULL. */
void tls_pair_shake(struct tls_pair *pair, struct muster_tls *client, struct muster_tls *server,
                    const char *server_name, struct muster_tls_sessions *sessions);
/** One handshake, against a peer that the case plays itself on fds[1]. */
void tls_pair_start(struct tls_pair *pair, struct tls_side *side, struct muster_tls *tls,
                    const struct muster_tls_handshake_options *options, uint64_t timeout_ns);
void tls_pair_wait(struct tls_pair *pair, const struct tls_side *side);
/** Close the streams, connect new inner ones. */
void tls_pair_again(struct tls_pair *pair);
void tls_pair_close(struct tls_pair *pair);

#endif
