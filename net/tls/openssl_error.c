/* Texts for OpenSSL's error codes that tell an operator what to do. OpenSSL names the rule that was
 * broken ("wrong version number"); the usual mistake after it is known, and named here. */
#include "net/tls/openssl.h"

#include <openssl/err.h>
#include <string.h>

/* OpenSSL sends the same alert for a certificate that is not valid yet as for any that it does not like: the clock is
 * named where the certificate is as young as this. */
#define YOUNG_S 86400

static const struct {
    int reason;
    const char *text;
} texts[] = {
    {SSL_R_WRONG_VERSION_NUMBER, "the peer does not speak TLS"},
    {SSL_R_UNSUPPORTED_PROTOCOL, "the peer speaks no version of TLS that is allowed here"},
    {SSL_R_NO_SHARED_CIPHER, "no cipher in common: ECDHE with AES-GCM or ChaCha20 is needed"},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE,
     "the client showed no certificate: it must set a certificate and its key"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED,
     "the server demands a certificate of ours: set a certificate and its key"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, "the peer does not trust the issuer of our certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, "the peer says that our certificate has expired"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, "the peer refuses our certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, "the peer refuses our certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, "the peer says that our certificate is revoked"},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, "the peer cannot use our kind of certificate"},
    {SSL_R_TLSV1_ALERT_ACCESS_DENIED, "the peer accepts our certificate but not who we are"},
    {SSL_AD_REASON_OFFSET + SSL_AD_NO_APPLICATION_PROTOCOL,
     "the peer does not speak our protocol (ALPN)"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, "the peer allows none of our versions of TLS"},
    {SSL_R_TLSV1_UNRECOGNIZED_NAME, "the server does not know the name that we ask for"},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE,
     "the peer ended the handshake: no cipher in common, or it demands a certificate"},
    {SSL_R_TLSV1_ALERT_INTERNAL_ERROR, "the peer failed inside"},
};

/* These do not pass by trying again, so they are UNAUTHENTICATED; any other failure may. */
static bool is_about_certificates(int reason)
{
    switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
        return true;
    default:
        return false;
    }
}

/* A TLS connection begins with the type of a record, 20 to 23 (RFC 8446 5.1). A client of HTTP in
 * plain text begins with a method or "PRI" (RFC 9113 3.4), a server with "HTTP" or with the length
 * of its SETTINGS, of which the first byte is 0 (RFC 9113 4.1). */
static bool is_plain_text(const struct muster_tls_engine *engine)
{
    uint8_t first = engine->hello[0];

    if (engine->is_shaken || engine->hello_count == 0)
        return false;
    return engine->options.is_server ? first >= 'A' && first <= 'Z' : first == 0 || first == 'H';
}

/* OpenSSL closes without a word on a client that does not speak TLS. The alert tells that client
 * what this port speaks. */
static void plain_text_refuse(struct muster_tls_engine *engine)
{
    static const uint8_t alert[] = {SSL3_RT_ALERT, TLS1_2_VERSION_MAJOR,     1, 0, 2,
                                    SSL3_AL_FATAL, SSL_AD_UNEXPECTED_MESSAGE};

    if (engine->options.is_server)
        (void)engine->options.push(engine->options.data, alert, sizeof(alert));
    (void)muster_error_set(&engine->error, MUSTER_FAILED_PRECONDITION,
                           "the peer speaks plain text, and this side speaks TLS");
}

static const char *text_of(unsigned long code)
{
    const char *text;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == texts[i].reason)
            return texts[i].text;
    text = ERR_reason_error_string(code);
    return text != NULL ? text : "the handshake broke off";
}

/* A peer names neither the dates nor its clock; ours are known. */
static bool explain_own_dates(struct muster_tls_engine *engine, int reason)
{
    X509 *cert = SSL_get_certificate(engine->ssl);
    char span[MUSTER_TLS_SPAN_BYTES];
    int64_t begin_s, end_s;

    if (cert == NULL)
        return false;
    begin_s = muster_tls_openssl_until_s(engine, X509_get0_notBefore(cert));
    end_s = muster_tls_openssl_until_s(engine, X509_get0_notAfter(cert));
    if (reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED && end_s > 0)
        (void)muster_error_set(
            &engine->error, MUSTER_UNAUTHENTICATED,
            "TLS: the peer says that our certificate has expired, but by this host's clock it is "
            "valid for another %s: set the clock of the peer or of this host, as they differ by "
            "so much or more",
            muster_tls_openssl_span(end_s, span));
    else if (reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED)
        (void)muster_error_set(&engine->error, MUSTER_UNAUTHENTICATED,
                               "TLS: the peer says that our certificate has expired, %s ago by "
                               "this host's clock: renew it",
                               muster_tls_openssl_span(end_s, span));
    else if (reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE && begin_s > 0)
        (void)muster_error_set(&engine->error, MUSTER_UNAUTHENTICATED,
                               "TLS: the peer refuses our certificate, which is not valid for "
                               "another %s by this host's clock: set that clock, or wait so long",
                               muster_tls_openssl_span(begin_s, span));
    else if (reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE && begin_s > -YOUNG_S)
        (void)muster_error_set(&engine->error, MUSTER_UNAUTHENTICATED,
                               "TLS: the peer refuses our certificate, and its log says why: it "
                               "became valid %s ago by this host's clock; if the peer's clock is "
                               "further behind, set that one",
                               muster_tls_openssl_span(begin_s, span));
    return engine->error.rc != MUSTER_OK;
}

/* The first error of the queue is the cause; the later ones only say how it spread. */
void muster_tls_openssl_explain(struct muster_tls_engine *engine, int ssl_error)
{
    unsigned long code = ERR_peek_error();

    if (engine->error.rc == MUSTER_OK && engine->has_failed_push)
        (void)muster_error_set(&engine->error, MUSTER_RESOURCE_EXHAUSTED, "TLS: no memory");
    else if (engine->error.rc == MUSTER_OK && is_plain_text(engine))
        plain_text_refuse(engine);
    else if (engine->error.rc == MUSTER_OK && code != 0 && ERR_GET_LIB(code) == ERR_LIB_SSL &&
             explain_own_dates(engine, ERR_GET_REASON(code)))
        ; /* told */
    else if (engine->error.rc == MUSTER_OK && code != 0)
        (void)muster_error_set(&engine->error,
                               is_about_certificates(ERR_GET_REASON(code)) ? MUSTER_UNAUTHENTICATED
                                                                           : MUSTER_UNAVAILABLE,
                               "TLS: %s", text_of(code));
    else if (engine->error.rc == MUSTER_OK)
        (void)muster_error_set(&engine->error, MUSTER_UNAVAILABLE, "TLS failed (%d)", ssl_error);
    ERR_clear_error();
}
