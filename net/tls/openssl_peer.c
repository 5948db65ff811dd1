/* Judging the certificate of a peer: what the chain is worth, what it names, why it is refused.
 * OpenSSL checks signatures, dates and roots; this file checks the names against the caller's
 * rules, and makes a text of any refusal while the certificate is at hand. */
#include "net/tls/openssl.h"

#include <stdio.h>
#include <string.h>

#include <openssl/err.h>

#define SPIFFE_SCHEME "spiffe://"
#define WHO_BYTES     96

void muster_tls_openssl_time(const ASN1_TIME *time, char *out, size_t room)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int length = 0;

    if (bio != NULL && ASN1_TIME_print(bio, time) == 1)
        length = BIO_read(bio, out, (int)room - 1);
    out[length > 0 ? length : 0] = '\0';
    BIO_free(bio);
}

int64_t muster_tls_openssl_until_s(const struct muster_tls_engine *engine, const ASN1_TIME *time)
{
    time_t now = (time_t)engine->options.now_s;
    ASN1_TIME *from = now != 0 ? ASN1_TIME_set(NULL, now) : NULL;
    int days = 0, seconds = 0;
    bool is_read = (now == 0 || from != NULL) && ASN1_TIME_diff(&days, &seconds, from, time) == 1;

    ASN1_TIME_free(from);
    return is_read ? (int64_t)days * 86400 + seconds : 0;
}

const char *muster_tls_openssl_span(int64_t seconds, char out[MUSTER_TLS_SPAN_BYTES])
{
    static const struct {
        const char *name;
        uint64_t seconds;
    } units[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}};
    uint64_t left = seconds < 0 ? (uint64_t)-seconds : (uint64_t)seconds;
    size_t i = 0;

    while (i + 1 < sizeof(units) / sizeof(units[0]) && left < units[i].seconds)
        i++;
    if (i + 1 == sizeof(units) / sizeof(units[0]) || left % units[i].seconds < units[i + 1].seconds)
        (void)snprintf(out, MUSTER_TLS_SPAN_BYTES, "%llu %s",
                       (unsigned long long)(left / units[i].seconds), units[i].name);
    else
        (void)snprintf(out, MUSTER_TLS_SPAN_BYTES, "%llu %s %llu %s",
                       (unsigned long long)(left / units[i].seconds), units[i].name,
                       (unsigned long long)(left % units[i].seconds / units[i + 1].seconds),
                       units[i + 1].name);
    return out;
}

/* For texts of errors, cut to fit. */
static void describe_name(const X509_NAME *name, char *out, size_t room)
{
    BIO *bio = BIO_new(BIO_s_mem());
    int length = 0;

    if (bio != NULL && X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253) >= 0)
        length = BIO_read(bio, out, (int)room - 1);
    out[length > 0 ? length : 0] = '\0';
    BIO_free(bio);
}

/* A name as it stands in the certificate. One with a NUL inside is dropped: as a C text it would
 * end early, and "good.example\0.bad.example" would pass for the former (CVE-2009-2408). */
static bool alt_name_text(const GENERAL_NAME *name, char *out, size_t room)
{
    const ASN1_STRING *value = name->type == GEN_DNS   ? name->d.dNSName
                               : name->type == GEN_URI ? name->d.uniformResourceIdentifier
                                                       : NULL;
    size_t length = value != NULL ? (size_t)ASN1_STRING_length(value) : 0;

    if (value == NULL || length == 0 || length >= room ||
        memchr(ASN1_STRING_get0_data(value), '\0', length) != NULL)
        return false;
    memcpy(out, ASN1_STRING_get0_data(value), length);
    out[length] = '\0';
    return true;
}

/* "DNS:a, IP:127.0.0.1" for texts, cut to fit. */
static void describe_names(X509 *cert, char *out, size_t room)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    BIO *bio = BIO_new(BIO_s_mem());
    int length = 0;

    for (int i = 0; bio != NULL && i < sk_GENERAL_NAME_num(names); i++) {
        if (i > 0)
            BIO_puts(bio, ", ");
        GENERAL_NAME_print(bio, sk_GENERAL_NAME_value(names, i));
    }
    if (bio != NULL)
        length = BIO_read(bio, out, (int)room - 1);
    out[length > 0 ? length : 0] = '\0';
    if (length <= 0)
        (void)snprintf(out, room, "no name at all");
    BIO_free(bio);
    GENERAL_NAMES_free(names);
}

/* The names of a verified certificate. */

static enum muster_rc refuse_starved(struct muster_tls_engine *engine)
{
    return muster_error_set(&engine->error, MUSTER_RESOURCE_EXHAUSTED, "TLS: no memory");
}

static enum muster_rc add_name(struct muster_tls_engine *engine, const GENERAL_NAME *name)
{
    struct muster_tls_peer *peer = &engine->peer;
    struct muster_mem *mem = engine->options.mem;
    char text[2049]; /* the longest SPIFFE id, and its NUL */

    if (!alt_name_text(name, text, sizeof(text)))
        return MUSTER_OK;
    if (name->type == GEN_DNS) {
        if (peer->identity.dns_name_count == MUSTER_TLS_NAMES_MAX)
            return MUSTER_OK; /* a rule that needs a name beyond will refuse: the safe side */
        peer->dns_names[peer->identity.dns_name_count] = muster_mem_strdup(mem, text);
        if (peer->dns_names[peer->identity.dns_name_count] == NULL)
            return refuse_starved(engine);
        peer->identity.dns_name_count++;
        return MUSTER_OK;
    }
    if (strncmp(text, SPIFFE_SCHEME, strlen(SPIFFE_SCHEME)) != 0)
        return MUSTER_OK;
    peer->spiffe_id = muster_mem_strdup(mem, text);
    return peer->spiffe_id != NULL ? MUSTER_OK : refuse_starved(engine);
}

/* X.509-SVID 2 and 5.2: a leaf has one URI, and is not an authority. With two it would depend on
 * the reader which peer this is. */
static enum muster_rc check_spiffe(struct muster_tls_engine *engine, X509 *cert,
                                   const GENERAL_NAMES *names)
{
    int uri_count = 0;

    if (engine->peer.spiffe_id == NULL)
        return MUSTER_OK;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++)
        uri_count += sk_GENERAL_NAME_value(names, i)->type == GEN_URI;
    if (uri_count == 1 && X509_check_ca(cert) == 0)
        return MUSTER_OK;
    return muster_error_set(
        &engine->error, MUSTER_UNAUTHENTICATED, "the peer's certificate %s: it is not a SPIFFE ID",
        uri_count > 1 ? "has more than one URI among its names" : "is an authority's");
}

void muster_tls_openssl_peer_fini(struct muster_tls_peer *peer, struct muster_mem *mem)
{
    for (size_t i = 0; i < peer->identity.dns_name_count; i++)
        muster_mem_free(mem, peer->dns_names[i]);
    muster_mem_free(mem, peer->spiffe_id);
    muster_mem_free(mem, peer->subject);
    memset(peer, 0, sizeof(*peer));
}

/* The whole subject, however long: rules compare it, and a cut one could pass for another. */
static enum muster_rc read_subject(struct muster_tls_engine *engine, const X509_NAME *name)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text = NULL;

    if (bio != NULL && X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253) >= 0) {
        long length = BIO_get_mem_data(bio, &text);

        engine->peer.subject =
            muster_mem_strndup(engine->options.mem, length > 0 ? text : "", (size_t)length);
    }
    BIO_free(bio);
    return engine->peer.subject != NULL ? MUSTER_OK : refuse_starved(engine);
}

static enum muster_rc read_names(struct muster_tls_engine *engine, X509 *cert)
{
    struct muster_tls_peer *peer = &engine->peer;
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    enum muster_rc rc = MUSTER_OK;

    muster_tls_openssl_peer_fini(peer, engine->options.mem);
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && rc == MUSTER_OK; i++)
        rc = peer->spiffe_id != NULL && sk_GENERAL_NAME_value(names, i)->type == GEN_URI
                 ? MUSTER_OK
                 : add_name(engine, sk_GENERAL_NAME_value(names, i));
    if (rc == MUSTER_OK)
        rc = check_spiffe(engine, cert, names);
    GENERAL_NAMES_free(names);
    if (rc == MUSTER_OK)
        rc = read_subject(engine, X509_get_subject_name(cert));
    if (rc != MUSTER_OK)
        return rc;
    peer->identity.spiffe_id = peer->spiffe_id;
    peer->identity.dns_names = (const char *const *)peer->dns_names;
    peer->identity.subject = peer->subject;
    peer->is_known = true;
    return MUSTER_OK;
}

/* An address is looked for among the addresses alone. */
static bool cert_is_for(X509 *cert, const char *name)
{
    int is_for = name[0] != '\0' ? X509_check_ip_asc(cert, name, 0) : 0;

    ERR_clear_error();
    if (is_for == -2) /* it is not the text of an address */
        is_for = X509_check_host(
            cert, name, 0,
            X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL);
    return is_for == 1;
}

/* OpenSSL has compared the only name; of two, one must be there. */
static enum muster_rc check_either_name(struct muster_tls_engine *engine, X509 *cert)
{
    char names[WHO_BYTES];

    if (engine->options.other_name == NULL || cert_is_for(cert, engine->server_name) ||
        cert_is_for(cert, engine->options.other_name))
        return MUSTER_OK;
    describe_names(cert, names, sizeof(names));
    return muster_error_set(&engine->error, MUSTER_UNAUTHENTICATED,
                            "the server's certificate is for %s, not for \"%.64s\" or \"%.32s\": "
                            "dial a name that it has",
                            names, engine->server_name, engine->options.other_name);
}

/* An empty list of accepted names accepts all that the roots vouch for. */
static enum muster_rc check_rules(struct muster_tls_engine *engine, X509 *cert)
{
    const struct muster_tls_engine_options *options = &engine->options;

    for (size_t i = 0; i < options->peer_name_count; i++)
        if (muster_identity_matches(&engine->peer.identity, options->peer_names[i]))
            return MUSTER_OK;
    if (options->peer_name_count == 0)
        return check_either_name(engine, cert);
    return muster_error_set(&engine->error, MUSTER_UNAUTHENTICATED,
                            "the peer is %.100s, which is none of the accepted names (\"%.80s\"%s)",
                            muster_identity_name(&engine->peer.identity), options->peer_names[0],
                            options->peer_name_count > 1 ? " and others" : "");
}

/* Why a certificate is refused. */

static const char *owner_text(const struct muster_tls_engine *engine)
{
    return engine->options.is_server ? "the client's" : "the server's";
}

static void explain_dates(struct muster_tls_engine *engine, X509 *cert, const char *who,
                          bool is_late)
{
    const ASN1_TIME *time = is_late ? X509_get0_notAfter(cert) : X509_get0_notBefore(cert);
    char when[64], span[MUSTER_TLS_SPAN_BYTES];

    muster_tls_openssl_time(time, when, sizeof(when));
    (void)muster_tls_openssl_span(muster_tls_openssl_until_s(engine, time), span);
    (void)muster_error_set(
        &engine->error, MUSTER_UNAUTHENTICATED,
        is_late ? "%s certificate %.60s expired %s, %s before this host's clock: renew it, or set "
                  "the clock of the peer or of this host, if they differ"
                : "%s certificate %.60s is not valid before %s, %s ahead of this host's clock: set "
                  "the clock of the peer or of this host, as they differ by so much or more",
        owner_text(engine), who, when, span);
}

static void explain_names(struct muster_tls_engine *engine, X509 *cert)
{
    char names[WHO_BYTES];

    describe_names(cert, names, sizeof(names));
    (void)muster_error_set(&engine->error, MUSTER_UNAUTHENTICATED,
                           "the server's certificate is for %s, not for \"%.64s\": dial such a "
                           "name, or set tls_server_name",
                           names, engine->server_name);
}

/* The text names the roots that were asked: a wrong ca_file is the usual mistake. */
static void explain_trust(struct muster_tls_engine *engine, X509 *cert, const char *who, int code)
{
    char issuer[WHO_BYTES];

    describe_name(X509_get_issuer_name(cert), issuer, sizeof(issuer));
    if (code == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT)
        (void)muster_error_set(&engine->error, MUSTER_UNAUTHENTICATED,
                               "%s certificate %.80s is signed by itself and not among the roots "
                               "in %.80s",
                               owner_text(engine), who, engine->context->ca_name);
    else
        (void)muster_error_set(&engine->error, MUSTER_UNAUTHENTICATED,
                               "%s certificate %.70s: its issuer %.60s is not trusted by %.70s",
                               owner_text(engine), who, issuer, engine->context->ca_name);
}

static void explain_refusal(struct muster_tls_engine *engine, X509_STORE_CTX *store)
{
    X509 *cert = X509_STORE_CTX_get_current_cert(store);
    int code = X509_STORE_CTX_get_error(store);
    char who[WHO_BYTES] = "";

    if (cert != NULL)
        describe_name(X509_get_subject_name(cert), who, sizeof(who));
    switch (cert != NULL ? code : X509_V_ERR_UNSPECIFIED) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        explain_dates(engine, cert, who, code == X509_V_ERR_CERT_HAS_EXPIRED);
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        explain_names(engine, cert);
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        explain_trust(engine, cert, who, code);
        break;
    default:
        (void)muster_error_set(&engine->error, MUSTER_UNAUTHENTICATED,
                               "%s certificate %.90s is refused: %s", owner_text(engine), who,
                               X509_verify_cert_error_string(code));
    }
}

/* OpenSSL calls this for each certificate of the chain, from the root down: names are those of the
 * leaf, at depth 0, when all above it has been found good. */
int muster_tls_openssl_verify(int is_ok, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct muster_tls_engine *engine = SSL_get_app_data(ssl);

    if (is_ok != 1) {
        explain_refusal(engine, store);
        return 0;
    }
    if (X509_STORE_CTX_get_error_depth(store) > 0)
        return 1;
    if (read_names(engine, X509_STORE_CTX_get_current_cert(store)) == MUSTER_OK &&
        check_rules(engine, X509_STORE_CTX_get_current_cert(store)) == MUSTER_OK)
        return 1;
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
    return 0;
}

/* A resumed session brings the certificate of its first handshake along (RFC 8446 4.6.1): it may
 * have expired since. */
enum muster_rc muster_tls_openssl_accept(struct muster_tls_engine *engine)
{
    X509 *cert = SSL_get0_peer_certificate(engine->ssl);
    time_t now = (time_t)engine->options.now_s;
    enum muster_rc rc;

    if (cert == NULL || SSL_session_reused(engine->ssl) == 0)
        return MUSTER_OK;
    if (X509_cmp_time(X509_get0_notAfter(cert), now != 0 ? &now : NULL) <= 0) {
        explain_dates(engine, cert, "of a resumed session", true);
        return MUSTER_UNAUTHENTICATED;
    }
    rc = read_names(engine, cert);
    return rc == MUSTER_OK ? check_rules(engine, cert) : rc;
}
