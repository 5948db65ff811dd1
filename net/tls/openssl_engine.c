/* The TLS state of one connection: handshake, records, protocols, sessions to resume. It moves no
 * bytes by itself: OpenSSL pulls and pushes them through functions of the stream above
 * (net/tls/stream.c), which decides when to call. */
#include "net/tls/openssl.h"

#include <openssl/err.h>
#include <string.h>

/* Several records by one receive; freed when empty. Before the handshake is done, a peer that
 * stalls in the middle of a record holds one record's room. */
#define READ_AHEAD_BYTES (96u << 10)
#define SESSIONS_MAX     2 /* as many tickets as most servers send */

/* The newest come first. Of one generation and one name: what was judged by other rules is not
 * resumed. */
struct muster_tls_sessions {
    struct muster_mem *mem;
    SSL_SESSION *slots[SESSIONS_MAX];
    struct muster_tls_context *context;
    char server_name[256];
};

struct muster_tls_sessions *muster_tls_sessions_new(struct muster_mem *mem)
{
    struct muster_tls_sessions *sessions = muster_mem_alloc_zero(mem, 1, sizeof(*sessions));

    if (sessions != NULL)
        sessions->mem = mem;
    return sessions;
}

static void sessions_forget(struct muster_tls_sessions *sessions)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        SSL_SESSION_free(sessions->slots[i]);
        sessions->slots[i] = NULL;
    }
    muster_tls_context_free(sessions->context);
    sessions->context = NULL;
}

void muster_tls_sessions_free(struct muster_tls_sessions *sessions)
{
    if (sessions == NULL)
        return;
    sessions_forget(sessions);
    muster_mem_free(sessions->mem, sessions);
}

/* OpenSSL has got a session from the server. 1 keeps the reference that it hands over, 0 returns
 * it. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct muster_tls_engine *engine = SSL_get_app_data(ssl);
    struct muster_tls_sessions *sessions = engine->options.sessions;

    if (sessions == NULL || engine->options.is_server || !SSL_SESSION_is_resumable(session))
        return 0;
    if (sessions->context != engine->context ||
        strcmp(sessions->server_name, engine->server_name) != 0) {
        sessions_forget(sessions);
        sessions->context = muster_tls_context_ref(engine->context);
        memcpy(sessions->server_name, engine->server_name, sizeof(sessions->server_name));
    }
    SSL_SESSION_free(sessions->slots[SESSIONS_MAX - 1]);
    memmove(sessions->slots + 1, sessions->slots, (SESSIONS_MAX - 1) * sizeof(sessions->slots[0]));
    sessions->slots[0] = session;
    return 1;
}

/* A ticket of TLS 1.3 is used once, or connections could be linked by it (RFC 8446 C.4). */
static void session_resume(struct muster_tls_engine *engine)
{
    struct muster_tls_sessions *sessions = engine->options.sessions;
    SSL_SESSION *session;

    if (sessions == NULL || sessions->context != engine->context || sessions->slots[0] == NULL ||
        strcmp(sessions->server_name, engine->server_name) != 0)
        return;
    session = sessions->slots[0];
    memmove(sessions->slots, sessions->slots + 1, (SESSIONS_MAX - 1) * sizeof(sessions->slots[0]));
    sessions->slots[SESSIONS_MAX - 1] = NULL;
    (void)SSL_set_session(engine->ssl, session);
    SSL_SESSION_free(session);
}

/* ALPN: without a protocol in common there is no connection (RFC 7301 3.2). */

static int on_hello(SSL *ssl, int *ret_alert, void *data)
{
    struct muster_tls_engine *engine = SSL_get_app_data(ssl);
    const unsigned char *bytes;
    size_t count;

    (void)data;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &bytes,
                                  &count) == 1)
        return SSL_CLIENT_HELLO_SUCCESS;
    *ret_alert = SSL_AD_NO_APPLICATION_PROTOCOL;
    (void)muster_error_set(&engine->error, MUSTER_UNAVAILABLE,
                           "the client names no protocol (ALPN); this server speaks %s",
                           engine->options.protocols);
    return SSL_CLIENT_HELLO_ERROR;
}

static int on_protocols(SSL *ssl, const unsigned char **ret_chosen, unsigned char *ret_bytes,
                        const unsigned char *offered, unsigned offered_bytes, void *data)
{
    struct muster_tls_engine *engine = SSL_get_app_data(ssl);
    unsigned char *chosen = NULL;

    (void)data;
    if (SSL_select_next_proto(&chosen, ret_bytes, engine->protocols, engine->protocols_bytes,
                              offered, offered_bytes) == OPENSSL_NPN_NEGOTIATED) {
        *ret_chosen = chosen;
        return SSL_TLSEXT_ERR_OK;
    }
    (void)muster_error_set(&engine->error, MUSTER_UNAVAILABLE,
                           "the client speaks none of this server's protocols (%s)",
                           engine->options.protocols);
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

void muster_tls_openssl_keep_sessions(SSL_CTX *ssl)
{
    SSL_CTX_sess_set_new_cb(ssl, on_session);
    SSL_CTX_set_client_hello_cb(ssl, on_hello, NULL);
    SSL_CTX_set_alpn_select_cb(ssl, on_protocols, NULL);
}

/* "h2,other" becomes "\2h2\5other" (RFC 7301 3.1). */
static bool set_protocols(struct muster_tls_engine *engine)
{
    const char *at = engine->options.protocols;

    while (*at != '\0') {
        size_t length = strcspn(at, ",");

        if (length == 0 || length + 1 > sizeof(engine->protocols) - engine->protocols_bytes)
            return false;
        engine->protocols[engine->protocols_bytes++] = (unsigned char)length;
        memcpy(engine->protocols + engine->protocols_bytes, at, length);
        engine->protocols_bytes += (unsigned)length;
        at += length + (at[length] == ',');
    }
    return engine->options.is_server ||
           SSL_set_alpn_protos(engine->ssl, engine->protocols, engine->protocols_bytes) == 0;
}

/* An address is not a server name for SNI (RFC 6066 3), and is looked for among other names of the
 * certificate than a DNS name is. */
static bool is_address(const char *name)
{
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(name);

    ASN1_OCTET_STRING_free(address);
    ERR_clear_error();
    return address != NULL;
}

/* The certificate must name what was dialled, among its alternative names (RFC 6125 6.4.4). If the
 * caller accepts certain names, those decide instead: peers of a job are known by identity, and
 * their addresses change. */
static bool set_server_name(struct muster_tls_engine *engine)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(engine->ssl);
    const char *name = engine->server_name;
    bool is_ip = is_address(name);

    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT |
                                               X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (!is_ip && SSL_set_tlsext_host_name(engine->ssl, name) != 1)
        return false;
    if (engine->options.peer_name_count > 0 || engine->options.other_name != NULL)
        return true; /* openssl_peer.c compares them */
    return (is_ip ? X509_VERIFY_PARAM_set1_ip_asc(param, name)
                  : X509_VERIFY_PARAM_set1_host(param, name, 0)) == 1;
}

/* OpenSSL reads on while records without data come, and a KeyUpdate of a few bytes makes it derive
 * two keys (RFC 8446 4.6.3): a peer could keep it busy within one read. Told that the peer has
 * ended, it reads no more. */
static void on_record(int is_sent, int version, int type, const void *bytes, size_t count, SSL *ssl,
                      void *data)
{
    struct muster_tls_engine *engine = data;

    (void)version;
    (void)bytes;
    (void)count;
    if (is_sent || type != SSL3_RT_HANDSHAKE || !engine->is_shaken ||
        engine->options.take_control(engine->options.data))
        return;
    if (engine->error.rc == MUSTER_OK)
        (void)muster_error_set(&engine->error, MUSTER_RESOURCE_EXHAUSTED,
                               "TLS: the peer changes its keys too often");
    SSL_set_shutdown(ssl, SSL_RECEIVED_SHUTDOWN);
}

/* A server that accepts certain names only cannot accept a client that shows none. */
static bool is_certificate_demanded(const struct muster_tls_engine_options *options)
{
    return !options->is_server || options->is_peer_required || options->peer_name_count != 0;
}

static bool engine_set_up(struct muster_tls_engine *engine)
{
    const struct muster_tls_engine_options *options = &engine->options;
    BIO *bio = BIO_new(engine->context->bio);

    if (bio == NULL)
        return false;
    BIO_set_data(bio, engine);
    SSL_set_bio(engine->ssl, bio, bio);
    SSL_set_app_data(engine->ssl, engine);
    SSL_set_msg_callback(engine->ssl, on_record);
    SSL_set_msg_callback_arg(engine->ssl, engine);
    SSL_set_verify(engine->ssl,
                   is_certificate_demanded(options)
                       ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
                       : SSL_VERIFY_NONE,
                   muster_tls_openssl_verify);
    if (options->now_s != 0)
        X509_VERIFY_PARAM_set_time(SSL_get0_param(engine->ssl), (time_t)options->now_s);
    if (!set_protocols(engine))
        return false;
    if (options->is_server) {
        SSL_set_accept_state(engine->ssl);
        return true;
    }
    SSL_set_connect_state(engine->ssl);
    if (!set_server_name(engine))
        return false;
    session_resume(engine);
    return true;
}

enum muster_rc muster_tls_engine_open(struct muster_tls_context *context,
                                      const struct muster_tls_engine_options *options,
                                      struct muster_tls_engine **ret_engine,
                                      struct muster_error *ret_error)
{
    struct muster_tls_engine *engine = muster_mem_alloc_zero(options->mem, 1, sizeof(*engine));
    const char *name = options->server_name != NULL ? options->server_name : "";

    if (engine == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "TLS: no memory");
    engine->options = *options;
    engine->context = muster_tls_context_ref(context);
    engine->ssl = SSL_new(context->ssl);
    if (strlen(name) < sizeof(engine->server_name))
        memcpy(engine->server_name, name, strlen(name) + 1);
    if (engine->ssl == NULL || !engine_set_up(engine)) {
        ERR_clear_error();
        muster_tls_engine_close(engine);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "TLS: no memory, or \"%.100s\" cannot be the name of a server",
                                name);
    }
    *ret_engine = engine;
    return MUSTER_OK;
}

void muster_tls_engine_close(struct muster_tls_engine *engine)
{
    if (engine == NULL)
        return;
    SSL_free(engine->ssl);
    muster_tls_openssl_peer_fini(&engine->peer, engine->options.mem);
    muster_tls_context_free(engine->context);
    muster_mem_free(engine->options.mem, engine);
}

/* An error of ours, set in a callback, comes before OpenSSL's: that one only says that a callback
 * failed. After a push that failed no step can go on, whatever OpenSSL says. */
static enum muster_tls_step step_of_result(struct muster_tls_engine *engine, int result)
{
    int ssl_error = SSL_get_error(engine->ssl, result);

    if (engine->error.rc != MUSTER_OK)
        return MUSTER_TLS_FAILED;
    if (ssl_error == SSL_ERROR_WANT_READ && !engine->has_failed_push)
        return MUSTER_TLS_HUNGRY;
    if (ssl_error == SSL_ERROR_ZERO_RETURN)
        return MUSTER_TLS_ENDED;
    muster_tls_openssl_explain(engine, ssl_error);
    return MUSTER_TLS_FAILED;
}

/* A server that ignores ALPN would get HTTP/2 without having agreed to it (RFC 9113 3.2). */
static enum muster_rc note_protocol(struct muster_tls_engine *engine)
{
    const unsigned char *chosen = NULL;
    unsigned length = 0;

    SSL_get0_alpn_selected(engine->ssl, &chosen, &length);
    if (length == 0 || length >= sizeof(engine->protocol))
        return muster_error_set(&engine->error, MUSTER_UNAVAILABLE,
                                "the server chose no protocol (ALPN); it must speak %s over TLS",
                                engine->options.protocols);
    memcpy(engine->protocol, chosen, length);
    return MUSTER_OK;
}

enum muster_tls_step muster_tls_engine_handshake(struct muster_tls_engine *engine)
{
    int result;

    MUSTER_ASSERT(!engine->is_shaken);
    ERR_clear_error(); /* SSL_get_error looks at the thread's whole queue */
    result = SSL_do_handshake(engine->ssl);
    if (result != 1)
        return step_of_result(engine, result);
    if (note_protocol(engine) != MUSTER_OK || muster_tls_openssl_accept(engine) != MUSTER_OK)
        return MUSTER_TLS_FAILED;
    engine->is_shaken = true;
    SSL_set_default_read_buffer_len(engine->ssl, READ_AHEAD_BYTES);
    return MUSTER_TLS_DONE;
}

enum muster_tls_step muster_tls_engine_read(struct muster_tls_engine *engine, void *bytes,
                                            size_t count, size_t *ret_count)
{
    int result;

    *ret_count = 0;
    ERR_clear_error();
    result = SSL_read_ex(engine->ssl, bytes, count, ret_count);
    return result == 1 ? MUSTER_TLS_DONE : step_of_result(engine, result);
}

enum muster_tls_step muster_tls_engine_write(struct muster_tls_engine *engine, const void *bytes,
                                             size_t count)
{
    size_t at = 0;

    MUSTER_ASSERT(engine->is_shaken);
    ERR_clear_error();
    while (at < count) {
        size_t step = 0;
        int result = SSL_write_ex(engine->ssl, (const uint8_t *)bytes + at, count - at, &step);

        if (result != 1) {
            muster_tls_openssl_explain(engine, SSL_get_error(engine->ssl, result));
            return MUSTER_TLS_FAILED;
        }
        at += step;
    }
    return MUSTER_TLS_DONE;
}

void muster_tls_engine_end(struct muster_tls_engine *engine)
{
    ERR_clear_error();
    (void)SSL_shutdown(engine->ssl);
    ERR_clear_error();
}

const struct muster_error *muster_tls_engine_error(const struct muster_tls_engine *engine)
{
    return &engine->error;
}

bool muster_tls_engine_has_heard(const struct muster_tls_engine *engine)
{
    return engine->hello_count > 0;
}

const struct muster_identity *muster_tls_engine_identity(const struct muster_tls_engine *engine)
{
    return engine->peer.is_known ? &engine->peer.identity : NULL;
}

const char *muster_tls_engine_protocol(const struct muster_tls_engine *engine)
{
    return engine->protocol;
}

bool muster_tls_engine_is_resumed(const struct muster_tls_engine *engine)
{
    return SSL_session_reused(engine->ssl) == 1;
}

enum muster_rc muster_tls_engine_export(struct muster_tls_engine *engine, const char *label,
                                        uint8_t *ret_key, size_t key_bytes)
{
    int result;

    /* RFC 7627 5.4: without it two sessions of TLS 1.2 can be made to have the same keys. */
    if (SSL_version(engine->ssl) < TLS1_3_VERSION && SSL_get_extms_support(engine->ssl) != 1)
        return MUSTER_FAILED_PRECONDITION;
    result = SSL_export_keying_material(engine->ssl, ret_key, key_bytes, label, strlen(label), NULL,
                                        0, 0);
    ERR_clear_error();
    return result == 1 ? MUSTER_OK : MUSTER_INTERNAL;
}
