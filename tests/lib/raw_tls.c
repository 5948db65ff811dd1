/* OpenSSL with all its guards down, over a descriptor that never waits. */
#include "raw_tls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/conf.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test_env.h"

#define GUARD_NS (60 * MUSTER_NS_PER_S)

static atomic_long block_count;

static void *count_malloc(size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    block_count++;
    return malloc(bytes);
}

static void count_free(void *block, const char *file, int line)
{
    (void)file, (void)line;
    block_count -= block != NULL;
    free(block);
}

static void *count_realloc(void *block, size_t bytes, const char *file, int line)
{
    if (block == NULL)
        return count_malloc(bytes, file, line);
    if (bytes > 0)
        return realloc(block, bytes);
    count_free(block, file, line);
    return NULL;
}

long raw_tls_block_count(void)
{
    return block_count;
}

void raw_tls_set_policy(bool is_lax)
{
    static const char lax[] = "MinProtocol = TLSv1\nCipherString = ALL:eNULL:@SECLEVEL=0\n"
                              "Options = ClientRenegotiation\n";
    static const char strict[] = "MinProtocol = TLSv1.2\nCipherString = DEFAULT:@SECLEVEL=2\n";
    char path[] = "/tmp/muster-openssl-XXXXXX";
    OPENSSL_INIT_SETTINGS *settings;
    FILE *file = fdopen(mkstemp(path), "w");

    assert_int_equal(CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free), 1);
    assert_non_null(file);
    fprintf(file,
            "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n[tls]\n%s",
            is_lax ? lax : strict);
    assert_int_equal(fclose(file), 0);
    settings = OPENSSL_INIT_new();
    assert_int_equal(OPENSSL_INIT_set_config_filename(settings, path), 1);
    OPENSSL_INIT_set_config_file_flags(settings, 0);
    assert_int_equal(OPENSSL_init_ssl(OPENSSL_INIT_LOAD_CONFIG, settings), 1);
    OPENSSL_INIT_free(settings);
    unlink(path);
}

/* Callbacks of the stream. */

static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct raw_tls *raw = SSL_get_app_data(ssl);

    SSL_SESSION_free(raw->session);
    raw->session = session;
    raw->session_count++;
    return 1;
}

static int on_cert(int is_ok, X509_STORE_CTX *store)
{
    (void)is_ok, (void)store;
    return 1;
}

static int on_protocols(SSL *ssl, const unsigned char **ret_chosen, unsigned char *ret_bytes,
                        const unsigned char *offered, unsigned offered_bytes, void *data)
{
    const struct raw_tls *raw = data;

    (void)ssl, (void)offered, (void)offered_bytes;
    *ret_chosen = (const unsigned char *)raw->options.protocols;
    *ret_bytes = (unsigned char)strlen(raw->options.protocols);
    return SSL_TLSEXT_ERR_OK;
}

static void on_message(int is_sent, int version, int type, const void *bytes, size_t count,
                       SSL *ssl, void *data)
{
    const uint8_t *at = bytes;
    struct raw_tls *raw = data;

    (void)version, (void)ssl;
    if (is_sent)
        return;
    if (type == SSL3_RT_ALERT && count == 2)
        raw->alerts[at[1]]++;
    if (type == SSL3_RT_HANDSHAKE && at[0] == SSL3_MT_CLIENT_HELLO && raw->hello_count == 0) {
        assert_in_range(count, SSL3_HM_HEADER_LENGTH, sizeof(raw->hello));
        raw->hello_count = count - SSL3_HM_HEADER_LENGTH;
        memcpy(raw->hello, at + SSL3_HM_HEADER_LENGTH, raw->hello_count);
    }
}

/* The context. */

static void use_cert(SSL_CTX *context, const struct fake_cert *cert)
{
    BIO *certs = BIO_new_mem_buf(cert->cert_pem, -1);
    BIO *keys = BIO_new_mem_buf(cert->key_pem, -1);
    X509 *leaf = PEM_read_bio_X509(certs, NULL, NULL, NULL), *issuer;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(keys, NULL, NULL, NULL);

    assert_int_equal(SSL_CTX_use_certificate(context, leaf), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
    while ((issuer = PEM_read_bio_X509(certs, NULL, NULL, NULL)) != NULL)
        assert_int_equal(SSL_CTX_add0_chain_cert(context, issuer), 1);
    ERR_clear_error();
    X509_free(leaf);
    EVP_PKEY_free(key);
    BIO_free(certs);
    BIO_free(keys);
}

static void set_protocols(struct raw_tls *raw)
{
    const char *at = raw->options.protocols;
    unsigned char wire[64];
    unsigned count = 0;

    if (raw->options.is_server) {
        SSL_CTX_set_alpn_select_cb(raw->context, on_protocols, raw);
        return;
    }
    while (*at != '\0') {
        size_t length = strcspn(at, ",");

        assert_true(count + 1 + length <= sizeof(wire));
        wire[count++] = (unsigned char)length;
        memcpy(wire + count, at, length);
        count += (unsigned)length;
        at += length + (at[length] == ',');
    }
    assert_int_equal(SSL_CTX_set_alpn_protos(raw->context, wire, count), 0);
}

static void set_up(struct raw_tls *raw)
{
    const struct raw_tls_options *options = &raw->options;
    const char *ciphers = options->ciphers != NULL ? options->ciphers : "ALL:eNULL";
    int version_min = options->version_min != 0 ? options->version_min : TLS1_VERSION;
    SSL_CTX *context = raw->context;

    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_verify(context, options->asks_for_cert ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                       on_cert);
    SSL_CTX_set_min_proto_version(context, version_min);
    SSL_CTX_set_max_proto_version(context, options->version_max);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, on_session);
    SSL_CTX_set_num_tickets(context, options->ticket_count);
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_dh_auto(context, options->has_own_field);
    if (options->has_no_tickets)
        SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    assert_int_equal(SSL_CTX_set_cipher_list(context, ciphers), 1);
    if (options->ciphersuites != NULL)
        assert_int_equal(SSL_CTX_set_ciphersuites(context, options->ciphersuites), 1);
    if (options->groups != NULL)
        assert_int_equal(SSL_CTX_set1_groups_list(context, options->groups), 1);
    if (options->protocols != NULL)
        set_protocols(raw);
    if (options->cert != NULL && options->cert->cert_pem != NULL)
        use_cert(context, options->cert);
}

void raw_tls_init(struct raw_tls *raw, const struct raw_tls_options *options)
{
    (void)signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to whoever has gone */
    *raw = (struct raw_tls){.listen_fd = -1, .fd = -1, .options = *options};
    raw->context = SSL_CTX_new(TLS_method());
    assert_non_null(raw->context);
    set_up(raw);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void raw_tls_hang_up(struct raw_tls *raw)
{
    if (raw->ssl != NULL && raw->is_shaken)
        (void)SSL_shutdown(raw->ssl); /* a session whose connection broke off is not resumed */
    SSL_free(raw->ssl);
    raw->ssl = NULL;
    close_fd(&raw->fd);
    raw->is_shaken = raw->is_over = false;
    raw->hello_count = raw->heard_count = 0;
}

void raw_tls_fini(struct raw_tls *raw)
{
    raw_tls_hang_up(raw);
    close_fd(&raw->listen_fd);
    SSL_SESSION_free(raw->session);
    SSL_CTX_free(raw->context);
    raw->session = NULL;
    raw->context = NULL;
}

/* The connection. */

/* Takes fd. */
static void raw_begin(struct raw_tls *raw, int fd)
{
    const struct raw_tls_options *options = &raw->options;

    assert_true(fd >= 0);
    raw->fd = fd;
    raw->ssl = SSL_new(raw->context);
    assert_non_null(raw->ssl);
    SSL_set_app_data(raw->ssl, raw);
    SSL_set_msg_callback(raw->ssl, on_message);
    SSL_set_msg_callback_arg(raw->ssl, raw);
    assert_int_equal(SSL_set_fd(raw->ssl, fd), 1);
    if (options->is_server) {
        SSL_set_accept_state(raw->ssl);
        return;
    }
    SSL_set_connect_state(raw->ssl);
    if (options->server_name != NULL)
        SSL_set_tlsext_host_name(raw->ssl, options->server_name);
    if (options->session != NULL)
        assert_int_equal(SSL_set_session(raw->ssl, options->session), 1);
}

void raw_tls_take(struct raw_tls *raw, int fd)
{
    raw_begin(raw, dup(fd));
}

void raw_tls_listen(struct raw_tls *raw, struct muster_address *ret_address)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(place);
    char text[32];

    raw->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(raw->listen_fd >= 0);
    assert_int_equal(bind(raw->listen_fd, (struct sockaddr *)&place, size), 0);
    assert_int_equal(listen(raw->listen_fd, 16), 0);
    assert_int_equal(getsockname(raw->listen_fd, (struct sockaddr *)&place, &size), 0);
    snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(place.sin_port));
    assert_int_equal(muster_address_parse(text, ret_address, NULL), MUSTER_OK);
}

void raw_tls_connect(struct raw_tls *raw, const struct muster_address *address)
{
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    place.sin_port = htons(address->port);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&place, sizeof(place)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    raw_begin(raw, fd);
}

static void raw_judge(struct raw_tls *raw, int result)
{
    int error = SSL_get_error(raw->ssl, result);
    const char *reason = ERR_reason_error_string(ERR_peek_error());

    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return;
    raw->is_over = true;
    snprintf(raw->reason, sizeof(raw->reason), "%s", reason != NULL ? reason : "end");
}

static void read_some(struct raw_tls *raw)
{
    uint8_t bytes[1024];
    size_t count = 0, room;
    int result;

    while ((result = SSL_read_ex(raw->ssl, bytes, sizeof(bytes), &count)) == 1) {
        room = sizeof(raw->heard) - raw->heard_count;
        memcpy(raw->heard + raw->heard_count, bytes, count < room ? count : room);
        raw->heard_count += count < room ? count : room;
    }
    raw_judge(raw, result);
}

void raw_tls_step(struct raw_tls *raw)
{
    int fd = -1;

    if (raw->ssl == NULL && raw->listen_fd >= 0)
        fd = accept4(raw->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        raw_begin(raw, fd);
    if (raw->ssl == NULL || raw->is_over)
        return;
    ERR_clear_error();
    if (!raw->is_shaken) {
        int result = SSL_do_handshake(raw->ssl);

        raw->is_shaken = result == 1;
        if (result != 1)
            raw_judge(raw, result);
    }
    if (raw->is_shaken)
        read_some(raw);
    ERR_clear_error();
}

void raw_tls_renegotiate(struct raw_tls *raw)
{
    assert_true(raw->is_shaken);
    assert_int_equal(SSL_renegotiate(raw->ssl), 1);
    raw->is_shaken = false; /* the next steps shake hands */
}

void raw_tls_say(struct raw_tls *raw, const void *bytes, size_t count)
{
    size_t done = 0;

    assert_int_equal(SSL_write_ex(raw->ssl, bytes, count, &done), 1);
    assert_int_equal(done, count);
}

/* Its own descriptors are not in the loop: the turns are short. */
void raw_tls_run_until(struct raw_tls *raw, struct muster_env *env, bool (*is_done)(void *data),
                       void *data)
{
    uint64_t until_ns = muster_loop_after_ns(env->loop, GUARD_NS);

    for (;;) {
        raw_tls_step(raw);
        if (is_done(data))
            return;
        if (muster_loop_now_ns(env->loop) > until_ns)
            fail_msg("the condition did not come true within 60 s");
        muster_loop_turn(env->loop, MUSTER_NS_PER_MS);
    }
}

/* The client's hello (RFC 8446 4.1.2): version, random, then lists that begin with their length. */

struct reader {
    const uint8_t *at;
    size_t left;
};

static const uint8_t *take_bytes(struct reader *reader, size_t count)
{
    const uint8_t *at = reader->at;

    assert_true(count <= reader->left);
    reader->at += count;
    reader->left -= count;
    return at;
}

static size_t take_number(struct reader *reader, unsigned bytes)
{
    const uint8_t *at = take_bytes(reader, bytes);

    return bytes == 1 ? at[0] : (size_t)at[0] << 8 | at[1];
}

static struct reader open_hello(const struct raw_tls *raw)
{
    struct reader reader = {raw->hello, raw->hello_count};

    (void)take_bytes(&reader, 2 + SSL3_RANDOM_SIZE);
    (void)take_bytes(&reader, take_number(&reader, 1)); /* the session's id */
    return reader;
}

const uint8_t *raw_tls_hello_ciphers(const struct raw_tls *raw, size_t *ret_count)
{
    struct reader reader = open_hello(raw);

    *ret_count = take_number(&reader, 2);
    return take_bytes(&reader, *ret_count);
}

const uint8_t *raw_tls_hello_extension(const struct raw_tls *raw, unsigned type, size_t *ret_count)
{
    struct reader reader = open_hello(raw);

    (void)take_bytes(&reader, take_number(&reader, 2));
    (void)take_bytes(&reader, take_number(&reader, 1)); /* compression */
    (void)take_number(&reader, 2);
    while (reader.left > 0) {
        size_t found = take_number(&reader, 2);
        size_t count = take_number(&reader, 2);
        const uint8_t *at = take_bytes(&reader, count);

        if (found == type) {
            *ret_count = count;
            return at;
        }
    }
    return NULL;
}
