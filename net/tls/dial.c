/* A connection to a peer: connect, then shake hands if there is a credential. Both steps share one
 * deadline, and the caller hears of one end. */
#include "net/tls/dial.h"

/* done may start the same dial again, so nothing is touched after it. */
static void dial_finish(struct muster_dial *dial, struct muster_stream *stream,
                        const struct muster_error *error, enum muster_rc rc)
{
    muster_dial_fn *done = dial->done;

    MUSTER_ASSERT(done != NULL); /* not inside start, and once */
    dial->done = NULL;
    dial->stream = stream;
    dial->error = *error;
    done(dial, rc);
}

static void on_shaken(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    struct muster_dial *dial = handshake->data;

    MUSTER_ASSERT(dial->is_shaking);
    dial->is_unheard = handshake->is_unheard;
    dial_finish(dial, handshake->stream, &handshake->error, rc);
}

static void on_connect(struct muster_connect *connect, enum muster_rc rc)
{
    struct muster_dial *dial = connect->data;
    const char *protocols = dial->options.protocols;
    const struct muster_tls_handshake_options options = {.server_name = dial->options.server_name,
                                                         .other_name = dial->options.other_name,
                                                         .protocols =
                                                             protocols != NULL ? protocols : "h2",
                                                         .sessions = dial->options.sessions};

    MUSTER_ASSERT(!dial->is_shaking);
    if (rc != MUSTER_OK || dial->options.tls == NULL) {
        dial_finish(dial, connect->stream, &connect->error, rc);
        return;
    }
    dial->is_shaking = true;
    dial->handshake.data = dial;
    rc = muster_tls_handshake_start(&dial->handshake, dial->options.tls, connect->stream, &options,
                                    dial->deadline_ns, on_shaken);
    if (rc == MUSTER_OK)
        return;
    /* The handshake has closed the stream, which it takes also on failure. */
    (void)muster_error_set(&connect->error, rc, "TLS to \"%.100s\": %s", dial->options.server_name,
                           muster_rc_text(rc));
    dial_finish(dial, NULL, &connect->error, rc);
}

enum muster_rc muster_dial_start(struct muster_dial *dial, struct muster_net *net,
                                 const struct muster_address *address,
                                 const struct muster_dial_options *options, uint64_t deadline_ns,
                                 muster_dial_fn *done)
{
    enum muster_rc rc;

    dial->done = NULL;
    dial->options = *options;
    dial->deadline_ns = deadline_ns;
    dial->is_shaking = dial->is_unheard = false;
    dial->connect.data = dial;
    rc = muster_connect_start(&dial->connect, net, address, options->stream, deadline_ns,
                              on_connect);
    if (rc == MUSTER_OK)
        dial->done = done;
    return rc;
}

void muster_dial_cancel(struct muster_dial *dial)
{
    if (dial->is_shaking)
        muster_tls_handshake_cancel(&dial->handshake);
    else
        muster_connect_cancel(&dial->connect);
}
