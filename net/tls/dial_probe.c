/* A second dial in the other mode: a constant hello goes out, and the first bytes that come back
 * tell which protocol the peer speaks. It runs only after a failure, for the sake of its text. */
#include "net/tls/dial_probe.h"

#define PROBE_NS MUSTER_NS_PER_S /* the caller's failure waits meanwhile */

/* RFC 8446 5.1 */
#define TLS_ALERT     0x15
#define TLS_HANDSHAKE 0x16
#define TLS_MAJOR     0x03
#define TLS_BYTES     2 /* that tell a record of TLS */

/* RFC 9113 6.5 */
#define SETTINGS 0x04

/* RFC 8446 4.1.2. It shows no key share, so that a server of TLS 1.3 asks for one
 * (HelloRetryRequest) before it does any work; any answer, an alert too, is a record of TLS. */
static const uint8_t tls_hello[] = {
    /* record: 117 bytes; ClientHello: 113 bytes; TLS 1.2 or later */
    TLS_HANDSHAKE, TLS_MAJOR, 0x01, 0x00, 0x75, 0x01, 0x00, 0x00, 0x71, 0x03, 0x03,
    /* random, which protects nothing here; no session */
    'm', 'u', 's', 't', 'e', 'r', ' ', 'a', 's', 'k', 's', ' ', 'w', 'h', 'a', 't', ' ', 'i', 's',
    ' ', 's', 'p', 'o', 'k', 'e', 'n', ' ', 'h', 'e', 'r', 'e', '?', 0x00,
    /* ciphers: of TLS 1.3, and ECDHE with AES-GCM; no compression */
    0x00, 0x0e, 0x13, 0x01, 0x13, 0x02, 0x13, 0x03, 0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x2c, 0xc0, 0x30,
    0x01, 0x00,
    /* extensions: 58 bytes; supported_groups: x25519, P-256, P-384 */
    0x00, 0x3a, 0x00, 0x0a, 0x00, 0x08, 0x00, 0x06, 0x00, 0x1d, 0x00, 0x17, 0x00, 0x18,
    /* signature_algorithms: ECDSA, RSA-PSS, RSA, Ed25519 */
    0x00, 0x0d, 0x00, 0x12, 0x00, 0x10, 0x04, 0x03, 0x05, 0x03, 0x08, 0x04, 0x08, 0x05, 0x08, 0x06,
    0x04, 0x01, 0x05, 0x01, 0x08, 0x07,
    /* ALPN: h2; supported_versions: 1.3, 1.2; key_share: none yet */
    0x00, 0x10, 0x00, 0x05, 0x00, 0x03, 0x02, 'h', '2', 0x00, 0x2b, 0x00, 0x05, 0x04, 0x03, 0x04,
    0x03, 0x03, 0x00, 0x33, 0x00, 0x02, 0x00, 0x00};

/* RFC 9113 3.4: the preface and empty SETTINGS. */
static const uint8_t h2_hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";

static bool is_tls_answer(const uint8_t *bytes)
{
    return (bytes[0] == TLS_HANDSHAKE || bytes[0] == TLS_ALERT) && bytes[1] == TLS_MAJOR;
}

/* A server's first frame is SETTINGS, on stream 0. */
static bool is_h2_answer(const uint8_t *bytes)
{
    return bytes[0] == 0 && bytes[3] == SETTINGS &&
           (bytes[5] | bytes[6] | bytes[7] | bytes[8]) == 0;
}

static void on_closed(struct muster_stream *stream)
{
    struct muster_dial_probe *probe = stream->data;

    probe->stream = NULL;
    probe->done(probe);
}

/* The closing stream still ends the read and the write; on_closed comes after both. */
static void probe_finish(struct muster_dial_probe *probe)
{
    MUSTER_ASSERT(probe->stream != NULL);
    if (probe->is_closing)
        return;
    probe->is_closing = true;
    muster_timer_stop(&probe->timer);
    muster_stream_close(probe->stream, on_closed);
}

/* The connect has the same deadline: until there is a stream it ends the probe. */
static void on_deadline(struct muster_timer *timer)
{
    struct muster_dial_probe *probe = timer->data;

    if (probe->stream != NULL)
        probe_finish(probe);
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct muster_dial_probe *probe = read->data;

    if (probe->is_closing)
        return;
    if (rc == MUSTER_OK && probe->is_tls && is_tls_answer(probe->answer))
        (void)muster_error_set(&probe->error, MUSTER_FAILED_PRECONDITION,
                               "the peer speaks TLS, and this side speaks plain text");
    else if (rc == MUSTER_OK && !probe->is_tls && is_h2_answer(probe->answer))
        (void)muster_error_set(&probe->error, MUSTER_FAILED_PRECONDITION,
                               "the peer speaks plain text, and this side speaks TLS");
    probe_finish(probe);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    (void)write, (void)rc; /* the read tells how it went */
}

static void on_connect(struct muster_connect *connect, enum muster_rc rc)
{
    struct muster_dial_probe *probe = connect->data;
    size_t bytes_min = probe->is_tls ? TLS_BYTES : sizeof(probe->answer);

    if (rc != MUSTER_OK) {
        muster_timer_stop(&probe->timer);
        probe->done(probe);
        return;
    }
    probe->stream = connect->stream;
    probe->stream->data = probe;
    probe->write.data = probe->read.data = probe;
    rc = muster_stream_submit(&probe->write, probe->stream, &probe->hello, 1, on_written);
    if (rc == MUSTER_OK)
        rc = muster_stream_receive_into(&probe->read, probe->stream, probe->answer, bytes_min,
                                        sizeof(probe->answer), on_read);
    if (rc != MUSTER_OK)
        probe_finish(probe);
}

enum muster_rc muster_dial_probe_start(struct muster_dial_probe *probe, struct muster_env *env,
                                       const struct muster_address *address, bool was_tls,
                                       const struct muster_error *error, muster_dial_probe_fn *done)
{
    uint64_t deadline_ns = muster_loop_after_ns(env->loop, PROBE_NS);
    const uint8_t *bytes = was_tls ? h2_hello : tls_hello;
    enum muster_rc rc;

    probe->error = *error;
    probe->done = done;
    probe->env = env;
    probe->is_tls = !was_tls;
    probe->is_closing = false;
    probe->stream = NULL;
    probe->hello = (struct iovec){.iov_base = (void *)(uintptr_t)bytes,
                                  .iov_len = was_tls ? sizeof(h2_hello) : sizeof(tls_hello)};
    probe->connect.data = probe;
    rc = muster_connect_start(&probe->connect, env->net, address, NULL, deadline_ns, on_connect);
    if (rc != MUSTER_OK)
        return rc;
    muster_timer_init(&probe->timer, on_deadline, probe);
    muster_timer_start(&probe->timer, env->loop, deadline_ns);
    return MUSTER_OK;
}

void muster_dial_probe_cancel(struct muster_dial_probe *probe)
{
    if (probe->stream != NULL)
        probe_finish(probe);
    else
        muster_connect_cancel(&probe->connect);
}
