/* TLS as a filter: OpenSSL works on memory, the loop moves the bytes. */
#include "fake_tls.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <string.h>

#define PIECE_BYTES (16u << 10)

struct fake_tls_context {
    SSL_CTX *ssl;
    bool offers_h2;
};

struct fake_tls {
    struct muster_stream stream;
    struct muster_env *env;
    struct muster_stream *inner;
    SSL *ssl;
    BIO *from_peer;
    BIO *to_peer;
    struct muster_stream_read inner_read;
    struct muster_stream_write inner_write;
    struct iovec out;
    uint8_t in_bytes[PIECE_BYTES];
    uint8_t out_bytes[PIECE_BYTES];
    uint8_t unread[MUSTER_STREAM_UNREAD_MAX];
    size_t unread_bytes;
    struct muster_task task;
    struct muster_stream_read *read;   /* of the owner; NULL: none */
    struct muster_stream_write *write; /* of the owner; NULL: none */
    size_t write_piece;                /* pieces of write that are encrypted */
    muster_stream_close_fn *closed;
    bool is_reading, is_writing, has_ended, is_eof, has_failed, is_closed;
};

static struct fake_tls *tls_of(struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct fake_tls, stream);
}

/* The context. */

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_length,
                   const unsigned char *in, unsigned in_length, void *data)
{
    static const unsigned char both[] = "\x02h2\x08http/1.1";
    const struct fake_tls_context *context = data;
    const unsigned char *offer = context->offers_h2 ? both : both + 3;
    unsigned length = context->offers_h2 ? 12 : 9;
    unsigned char *chosen = NULL;

    (void)ssl;
    if (SSL_select_next_proto(&chosen, out_length, offer, length, in, in_length) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static X509 *read_cert(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);

    BIO_free(bio);
    return cert;
}

static bool set_up(SSL_CTX *ssl, const struct fake_identity *identity, bool wants_client)
{
    X509 *cert = read_cert(identity->server_cert_pem);
    X509 *ca = read_cert(identity->ca_pem);
    BIO *bio = BIO_new_mem_buf(identity->server_key_pem, -1);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    bool is_set = SSL_CTX_use_certificate(ssl, cert) == 1 && SSL_CTX_use_PrivateKey(ssl, key) == 1;

    if (is_set && wants_client) {
        X509_STORE_add_cert(SSL_CTX_get_cert_store(ssl), ca);
        SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    X509_free(cert);
    X509_free(ca);
    EVP_PKEY_free(key);
    BIO_free(bio);
    return is_set;
}

struct fake_tls_context *fake_tls_context_new(const struct fake_identity *identity, bool offers_h2,
                                              bool wants_client)
{
    struct fake_tls_context *context = calloc(1, sizeof(*context));

    if (context == NULL)
        return NULL;
    context->offers_h2 = offers_h2;
    context->ssl = SSL_CTX_new(TLS_server_method());
    if (context->ssl == NULL || !set_up(context->ssl, identity, wants_client)) {
        fake_tls_context_free(context);
        return NULL;
    }
    SSL_CTX_set_options(context->ssl, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context->ssl,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_alpn_select_cb(context->ssl, on_alpn, context);
    return context;
}

void fake_tls_context_free(struct fake_tls_context *context)
{
    if (context == NULL)
        return;
    SSL_CTX_free(context->ssl);
    free(context);
}

/* Moving bytes. */

static void tls_pump(struct fake_tls *tls);

static void tls_wake(struct fake_tls *tls)
{
    muster_task_post(&tls->task, tls->env->loop);
}

static void on_task(struct muster_task *task)
{
    tls_pump(task->data);
}

static void on_inner_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct fake_tls *tls = read->data;

    tls->is_reading = false;
    if (tls->is_closed)
        return;
    if (read->bytes_done > 0)
        BIO_write(tls->from_peer, tls->in_bytes, (int)read->bytes_done);
    if (rc != MUSTER_OK) {
        tls->has_ended = true;
        tls->is_eof = read->is_eof;
    }
    tls_pump(tls);
}

static void on_inner_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct fake_tls *tls = write->data;

    tls->is_writing = false;
    if (tls->is_closed)
        return;
    if (rc != MUSTER_OK)
        tls->has_failed = true;
    tls_pump(tls);
}

static void tls_flush(struct fake_tls *tls)
{
    int count;

    if (tls->is_writing || tls->has_failed)
        return;
    count = BIO_read(tls->to_peer, tls->out_bytes, sizeof(tls->out_bytes));
    if (count <= 0)
        return;
    tls->out = (struct iovec){.iov_base = tls->out_bytes, .iov_len = (size_t)count};
    tls->is_writing = muster_stream_submit(&tls->inner_write, tls->inner, &tls->out, 1,
                                           on_inner_written) == MUSTER_OK;
    tls->has_failed = tls->has_failed || !tls->is_writing;
}

static void read_more(struct fake_tls *tls)
{
    if (tls->is_reading || tls->has_ended || tls->has_failed)
        return;
    tls->is_reading = muster_stream_receive_into(&tls->inner_read, tls->inner, tls->in_bytes, 1,
                                                 sizeof(tls->in_bytes), on_inner_read) == MUSTER_OK;
    tls->has_failed = tls->has_failed || !tls->is_reading;
}

static bool is_fatal(struct fake_tls *tls, int result)
{
    int error = SSL_get_error(tls->ssl, result);

    return error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE;
}

/* Encrypt the owner's bytes as far as nothing waits to leave. */
static void tls_encrypt(struct fake_tls *tls)
{
    struct muster_stream_write *write = tls->write;

    while (write != NULL && tls->write_piece < write->iov_count && BIO_pending(tls->to_peer) == 0 &&
           !tls->has_failed) {
        const struct iovec *piece = &write->iov[tls->write_piece];
        size_t before = write->bytes_done;
        size_t written = 0;
        int result;

        for (size_t i = 0; i < tls->write_piece; i++)
            before -= write->iov[i].iov_len;
        if (before == piece->iov_len) {
            tls->write_piece++;
            continue;
        }
        result = SSL_write_ex(tls->ssl, (const uint8_t *)piece->iov_base + before,
                              piece->iov_len - before, &written);
        write->bytes_done += written;
        if (result <= 0) {
            tls->has_failed = is_fatal(tls, result);
            return;
        }
    }
}

static void tls_decrypt(struct fake_tls *tls)
{
    struct muster_stream_read *read = tls->read;

    while (read != NULL && read->bytes_done < read->bytes_max) {
        size_t count = 0;
        int result;

        if (tls->unread_bytes > 0) {
            read->buffer[read->bytes_done++] = tls->unread[0];
            memmove(tls->unread, tls->unread + 1, --tls->unread_bytes);
            continue;
        }
        result = SSL_read_ex(tls->ssl, read->buffer + read->bytes_done,
                             read->bytes_max - read->bytes_done, &count);
        read->bytes_done += count;
        if (result > 0)
            continue;
        if (SSL_get_error(tls->ssl, result) == SSL_ERROR_ZERO_RETURN)
            tls->has_ended = tls->is_eof = true;
        else if (is_fatal(tls, result) && !tls->has_ended)
            tls->has_failed = true;
        return;
    }
}

static void finish_write(struct fake_tls *tls)
{
    struct muster_stream_write *write = tls->write;
    bool is_out = write != NULL && tls->write_piece == write->iov_count && !tls->is_writing &&
                  BIO_pending(tls->to_peer) == 0;

    if (write == NULL || (!is_out && !tls->has_failed))
        return;
    tls->write = NULL;
    write->done(write, is_out ? MUSTER_OK : MUSTER_UNAVAILABLE);
}

static void finish_read(struct fake_tls *tls)
{
    struct muster_stream_read *read = tls->read;

    if (read == NULL)
        return;
    if (read->bytes_done >= read->bytes_min) {
        tls->read = NULL;
        read->done(read, MUSTER_OK);
    } else if (tls->has_failed || tls->has_ended) {
        tls->read = NULL;
        read->is_eof = tls->is_eof && !tls->has_failed;
        read->done(read, MUSTER_UNAVAILABLE);
    }
}

static void tls_pump(struct fake_tls *tls)
{
    ERR_clear_error();
    if (!SSL_is_init_finished(tls->ssl) && !tls->has_failed) {
        int result = SSL_do_handshake(tls->ssl);

        if (result <= 0 && is_fatal(tls, result))
            tls->has_failed = true;
    }
    if (SSL_is_init_finished(tls->ssl)) {
        tls_encrypt(tls);
        tls_decrypt(tls);
    }
    if (!tls->has_failed || BIO_pending(tls->to_peer) > 0) { /* an alert still leaves */
        bool has_failed = tls->has_failed;

        tls->has_failed = false;
        tls_flush(tls);
        tls->has_failed = tls->has_failed || has_failed;
    }
    read_more(tls);
    finish_write(tls);
    if (!tls->is_closed)
        finish_read(tls);
    if (!tls->is_closed && tls->write != NULL && BIO_pending(tls->to_peer) == 0 && !tls->is_writing)
        tls_wake(tls);
}

/* The table. */

static enum muster_rc tls_submit(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct fake_tls *tls = tls_of(stream);

    assert(tls->write == NULL);
    if (tls->is_closed || tls->has_failed)
        return MUSTER_FAILED_PRECONDITION;
    tls->write = write;
    tls->write_piece = 0;
    tls_wake(tls);
    return MUSTER_OK;
}

static enum muster_rc tls_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct fake_tls *tls = tls_of(stream);

    if (tls->is_closed || tls->read != NULL)
        return MUSTER_FAILED_PRECONDITION;
    tls->read = read;
    tls_wake(tls);
    return MUSTER_OK;
}

static void tls_shutdown(struct muster_stream *stream)
{
    struct fake_tls *tls = tls_of(stream);

    SSL_shutdown(tls->ssl);
    tls_wake(tls);
}

static void on_inner_closed(struct muster_stream *inner)
{
    struct fake_tls *tls = inner->data;
    struct muster_stream_read *read = tls->read;
    struct muster_stream_write *write = tls->write;

    tls->read = NULL;
    tls->write = NULL;
    if (write != NULL)
        write->done(write, MUSTER_CANCELLED);
    if (read != NULL)
        read->done(read, MUSTER_CANCELLED);
    if (tls->closed != NULL)
        tls->closed(&tls->stream);
    SSL_free(tls->ssl);
    muster_mem_free(tls->env->mem, tls);
}

static void tls_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct fake_tls *tls = tls_of(stream);

    tls->is_closed = true;
    tls->closed = closed;
    muster_task_cancel(&tls->task);
    muster_stream_close(tls->inner, on_inner_closed);
}

static const struct muster_address *tls_peer(const struct muster_stream *stream)
{
    return muster_stream_peer(MUSTER_CONTAINER_OF(stream, struct fake_tls, stream)->inner);
}

static const struct muster_address *tls_local(const struct muster_stream *stream)
{
    return muster_stream_local(MUSTER_CONTAINER_OF(stream, struct fake_tls, stream)->inner);
}

static void tls_unread(struct muster_stream *stream, const void *bytes, size_t count)
{
    struct fake_tls *tls = tls_of(stream);

    assert(tls->read == NULL && tls->unread_bytes + count <= sizeof(tls->unread));
    memmove(tls->unread + count, tls->unread, tls->unread_bytes);
    memcpy(tls->unread, bytes, count);
    tls->unread_bytes += count;
}

enum muster_rc fake_tls_open(struct muster_env *env, struct fake_tls_context *context,
                             struct muster_stream *inner, struct muster_stream **ret_stream)
{
    static const struct muster_stream_ops ops = {.submit = tls_submit,
                                                 .receive = tls_receive,
                                                 .shutdown = tls_shutdown,
                                                 .close = tls_close,
                                                 .peer = tls_peer,
                                                 .local = tls_local,
                                                 .unread = tls_unread};
    struct fake_tls *tls = muster_mem_alloc_zero(env->mem, 1, sizeof(*tls));

    if (tls == NULL) {
        muster_stream_close(inner, NULL);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    tls->stream.ops = &ops;
    tls->env = env;
    tls->inner = inner;
    inner->data = tls;
    tls->inner_read.data = tls;
    tls->inner_write.data = tls;
    tls->ssl = SSL_new(context->ssl);
    tls->from_peer = BIO_new(BIO_s_mem());
    tls->to_peer = BIO_new(BIO_s_mem());
    SSL_set_bio(tls->ssl, tls->from_peer, tls->to_peer);
    SSL_set_accept_state(tls->ssl);
    muster_task_init(&tls->task, on_task, tls);
    tls_wake(tls);
    *ret_stream = &tls->stream;
    return MUSTER_OK;
}
