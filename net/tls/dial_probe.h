/* A peer that ended a connection before its first byte: one more dial tells whether it speaks TLS
 * where plain text was dialled, or the reverse. */
#ifndef MUSTER_NET_DIAL_PROBE_H
#define MUSTER_NET_DIAL_PROBE_H

#include <muster/stream.h>
#include <muster/loop.h>

#define MUSTER_DIAL_PROBE_BYTES 9 /* of a frame's header (RFC 9113 4.1) */

struct muster_dial_probe;
typedef void muster_dial_probe_fn(struct muster_dial_probe *probe);

/** One attempt. Caller's memory. */
struct muster_dial_probe {
    void *data;
    struct muster_error error; /* why the first dial failed; at done: what is known now */
    /* private */
    muster_dial_probe_fn *done;
    struct muster_env *env;
    bool is_tls; /* what is tried */
    bool is_closing;
    struct muster_connect connect;
    struct muster_timer timer;
    struct muster_stream *stream; /* NULL: it connects */
    struct muster_stream_write write;
    struct muster_stream_read read;
    struct iovec hello;
    uint8_t answer[MUSTER_DIAL_PROBE_BYTES];
};

/**
 * Dial address in the other mode and look at the first bytes that come; then the connection is closed.
 * It carries one constant: the first message of a TLS client without names or keys, or the preface of
 * HTTP/2. It authenticates nobody, so its only use is the text of the error: FAILED_PRECONDITION if
 * the peer answers in the other mode, else error stays. Bound: 1 s.
 *
 * Owns:    borrows probe and env until done; copies address and error.
 * Errors:  as muster_connect_start.
 */
MUSTER_MUST_CHECK enum muster_rc muster_dial_probe_start(
    struct muster_dial_probe *probe, struct muster_env *env, const struct muster_address *address,
    bool was_tls, const struct muster_error *error, muster_dial_probe_fn *done);
void muster_dial_probe_cancel(struct muster_dial_probe *probe);

#endif
