/* One request as options of curl, and curl's answer and errors as ours. Nothing here decides when a
 * request runs: net/http/client_curl.c does. */
#include "net/http/client_curl_internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define CA_CACHE_S 60 /* a replaced file of authorities is seen after this time */

/* Errors. */

static bool is_certificate_error(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_ISSUER_ERROR ||
           code == CURLE_SSL_PINNEDPUBKEYNOTMATCH || code == CURLE_SSL_INVALIDCERTSTATUS;
}

/* A server certificate of an authority that has the name of ours and another key (a cluster made
 * anew): OpenSSL reports a bad signature, and curl only a failed handshake. It is a matter of trust
 * all the same, and must be told as one. */
static CURLcode code_of(const struct muster_curl_exchange *exchange, CURLcode code)
{
    if (code == CURLE_SSL_CONNECT_ERROR &&
        (strstr(exchange->error, "asn1 encoding routines") != NULL ||
         strstr(exchange->error, "rsa routines") != NULL))
        return CURLE_PEER_FAILED_VERIFICATION;
    return code;
}

/* The server may answer next time: UNAVAILABLE, which calls repeat. A certificate that does not
 * hold and our own bad files stay as they are, so repeating would only hide them. */
static enum muster_rc rc_of(CURLcode code)
{
    if (is_certificate_error(code))
        return MUSTER_UNAUTHENTICATED;
    switch (code) {
    case CURLE_OUT_OF_MEMORY:
        return MUSTER_RESOURCE_EXHAUSTED;
    case CURLE_SSL_CERTPROBLEM: /* our own files */
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CIPHER:
        return MUSTER_FAILED_PRECONDITION;
    case CURLE_URL_MALFORMAT:
        return MUSTER_INVALID_ARGUMENT;
    default:
        return MUSTER_UNAVAILABLE;
    }
}

static const char *words_for(CURLcode code)
{
    switch (code) {
    case CURLE_OUT_OF_MEMORY:
        return "no memory";
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return "the name cannot be resolved";
    case CURLE_COULDNT_CONNECT:
        return "cannot connect";
    case CURLE_PARTIAL_FILE:
        return "the answer was cut short";
    case CURLE_GOT_NOTHING:
        return "the server hung up without an answer";
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return "the answer is not HTTP";
    case CURLE_SSL_CONNECT_ERROR:
        return "the TLS handshake failed";
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
        return "the connection broke";
    case CURLE_SSL_CERTPROBLEM:
        return "our certificate or key cannot be used";
    case CURLE_SSL_CACERT_BADFILE:
        return "the file of trusted authorities cannot be used";
    default:
        return is_certificate_error(code) ? "the server's certificate does not hold" : "failed";
    }
}

/* The detail that curl or the system adds to our own words. */
static const char *detail_of(const struct muster_curl_exchange *exchange, CURLcode code,
                             char *reason, size_t room)
{
    static const char problem[] = "SSL certificate problem: ";
    const char *detail = exchange->error[0] != '\0' ? exchange->error : curl_easy_strerror(code);
    long sys = 0;

    if (code == CURLE_COULDNT_CONNECT &&
        curl_easy_getinfo(exchange->easy, CURLINFO_OS_ERRNO, &sys) == CURLE_OK && sys != 0)
        return strerror_r((int)sys, reason, room);
    return strncmp(detail, problem, strlen(problem)) == 0 ? detail + strlen(problem) : detail;
}

enum muster_rc muster_curl_exchange_fail(struct muster_curl_exchange *exchange, CURLcode curl_code)
{
    struct muster_http_request *request = exchange->request;
    CURLcode code = code_of(exchange, curl_code);
    char url[96], reason[96];
    const char *detail = detail_of(exchange, code, reason, sizeof(reason));

    return muster_error_set(&request->error, rc_of(code), "%s %s: %s (%.*s)",
                            request->current_method,
                            muster_http_url_redact_short(request->current_url, url, sizeof(url)),
                            words_for(code), (int)strcspn(detail, "\r\n"), detail);
}

/* The answer. */

/* Any result but the full count makes curl give the transfer up; rc keeps the reason. */
static size_t on_curl_body(char *bytes, size_t size, size_t count, void *data)
{
    struct muster_curl_exchange *exchange = data;

    exchange->rc = muster_http_provide_body(exchange->request, bytes, size * count);
    return exchange->rc == MUSTER_OK ? size * count : 0;
}

/* One line of the head: "HTTP/1.1 200 OK", "name: value" or the blank one, each with its line end.
 * The status line comes again after each 1xx answer; it is also where the server's version is
 * learnt. */
static size_t on_curl_header(char *line, size_t size, size_t count, void *data)
{
    struct muster_curl_exchange *exchange = data;
    size_t bytes = size * count;
    size_t length = bytes;
    const char *colon;
    size_t skip;

    while (length > 0 && (line[length - 1] == '\r' || line[length - 1] == '\n' ||
                          line[length - 1] == ' ' || line[length - 1] == '\t'))
        length--;
    if (length > 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        long code = 0;

        (void)curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &code);
        muster_http_provide_status(exchange->request, (int)code);
        muster_curl_exchange_learn(exchange,
                                   line[5] == '2' ? MUSTER_HTTP_WIRE_2 : MUSTER_HTTP_WIRE_1);
        return bytes;
    }
    colon = memchr(line, ':', length);
    if (colon == NULL)
        return bytes;
    skip = (size_t)(colon - line) + 1;
    while (skip < length && (line[skip] == ' ' || line[skip] == '\t'))
        skip++;
    exchange->rc = muster_http_provide_header(exchange->request, line, (size_t)(colon - line),
                                              line + skip, length - skip);
    return exchange->rc == MUSTER_OK ? bytes : 0;
}

/* The request. A failing option is remembered in code. */

#define SET(exchange, option, value)                                                               \
    do {                                                                                           \
        if ((exchange)->code == CURLE_OK)                                                          \
            (exchange)->code = curl_easy_setopt((exchange)->easy, (option), (value));              \
    } while (0)

/* Curl makes no copy: the request's texts are borrowed until done, longer than the handle lives. */
static void set_blob(struct muster_curl_exchange *exchange, CURLoption option, const char *pem)
{
    struct curl_blob blob = {
        .data = (void *)(uintptr_t)pem, .len = strlen(pem), .flags = CURL_BLOB_NOCOPY};

    SET(exchange, option, &blob);
}

/* Curl opens files inside its calls. A pipe or a device would block the loop there, so only regular
 * files are given to it. */
static void set_file_or_pem(struct muster_curl_exchange *exchange, CURLoption file_option,
                            const char *file, CURLoption pem_option, const char *pem)
{
    if (pem != NULL)
        set_blob(exchange, pem_option, pem);
    else if (file != NULL && muster_files_is_special(muster_files_system(), file)) {
        exchange->code =
            file_option == CURLOPT_CAINFO ? CURLE_SSL_CACERT_BADFILE : CURLE_SSL_CERTPROBLEM;
        (void)snprintf(exchange->error, sizeof(exchange->error), "%s must be a regular file", file);
    } else if (file != NULL) {
        SET(exchange, file_option, file);
    }
}

static void set_tls(struct muster_curl_exchange *exchange)
{
    static const struct muster_http_tls defaults = {.ca_file = NULL};
    const struct muster_http_tls *tls =
        exchange->request->tls != NULL ? exchange->request->tls : &defaults;
    const char *ca_file = tls->ca_file != NULL ? tls->ca_file : exchange->client->ca_file;

    SET(exchange, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2); /* or later */
    SET(exchange, CURLOPT_SSL_VERIFYPEER, tls->is_insecure_skip_verify ? 0L : 1L);
    /* 2 is curl's number for "the certificate must name the host". */
    SET(exchange, CURLOPT_SSL_VERIFYHOST, tls->is_insecure_skip_verify ? 0L : 2L);
    SET(exchange, CURLOPT_SHARE, exchange->client->share);
    SET(exchange, CURLOPT_CA_CACHE_TIMEOUT, (long)CA_CACHE_S);
    set_file_or_pem(exchange, CURLOPT_CAINFO, ca_file, CURLOPT_CAINFO_BLOB, tls->ca_pem);
    /* These authorities and no others. With a folder beside the file curl would parse the file for
     * each connection again: 140 authorities are 16 ms and a megabyte. */
    if (ca_file != NULL || tls->ca_pem != NULL)
        SET(exchange, CURLOPT_CAPATH, NULL);
    set_file_or_pem(exchange, CURLOPT_SSLCERT, tls->cert_file, CURLOPT_SSLCERT_BLOB, tls->cert_pem);
    set_file_or_pem(exchange, CURLOPT_SSLKEY, tls->key_file, CURLOPT_SSLKEY_BLOB, tls->key_pem);
}

static void add_header(struct muster_curl_exchange *exchange, const char *name, const char *value)
{
    struct muster_mem *mem = exchange->client->http.env->mem;
    size_t room = strlen(name) + strlen(value) + 3;
    char *line = muster_mem_alloc(mem, room);
    struct curl_slist *list = NULL;

    if (line != NULL) {
        /* "name;" is curl's way to say an empty value. */
        if (value[0] == '\0')
            snprintf(line, room, "%s;", name);
        else
            snprintf(line, room, "%s: %s", name, value);
        list = curl_slist_append(exchange->headers, line);
        explicit_bzero(line, room); /* it may be a token */
    }
    muster_mem_free(mem, line);
    if (list != NULL)
        exchange->headers = list;
    else
        exchange->code = CURLE_OUT_OF_MEMORY;
}

/* "Name:" without a value keeps curl from sending a header of its own. */
static void remove_header(struct muster_curl_exchange *exchange, const char *line)
{
    struct curl_slist *list = curl_slist_append(exchange->headers, line);

    if (list != NULL)
        exchange->headers = list;
    else
        exchange->code = CURLE_OUT_OF_MEMORY;
}

static bool has_header(const struct muster_http_request *request, const char *name)
{
    for (size_t i = 0; i < request->header_count; i++)
        if (strcasecmp(request->headers[i].name, name) == 0)
            return true;
    return false;
}

static void set_headers(struct muster_curl_exchange *exchange)
{
    const struct muster_http_request *request = exchange->request;

    for (size_t i = 0; i < request->header_count; i++)
        add_header(exchange, request->headers[i].name, request->headers[i].value);
    /* Curl would call any body a form (application/x-www-form-urlencoded). */
    if (!has_header(request, "content-type"))
        remove_header(exchange, "Content-Type:");
    /* Curl would wait up to a second for "100 Continue" before it sends a larger body. */
    remove_header(exchange, "Expect:");
    SET(exchange, CURLOPT_HTTPHEADER, exchange->headers);
}

/* POST is how curl sends any body; the custom method then gives the request its real name. An empty
 * body is sent with its length 0, which some servers demand (RFC 9110 8.6). */
static void set_method(struct muster_curl_exchange *exchange)
{
    const struct muster_http_request *request = exchange->request;
    const char *method = request->current_method;
    bool has_body = request->body != NULL && request->body_bytes > 0 && !request->is_body_dropped;

    if (strcmp(method, "HEAD") == 0) {
        SET(exchange, CURLOPT_NOBODY, 1L);
        return;
    }
    if (has_body || strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ||
        strcmp(method, "PATCH") == 0) {
        SET(exchange, CURLOPT_POST, 1L);
        SET(exchange, CURLOPT_POSTFIELDSIZE_LARGE,
            has_body ? (curl_off_t)request->body_bytes : (curl_off_t)0);
        SET(exchange, CURLOPT_POSTFIELDS, has_body ? (const char *)request->body : "");
    }
    SET(exchange, CURLOPT_CUSTOMREQUEST, method);
}

/* Another name to verify: the URL names it, and the connection goes where the URL of the request
 * says. */
static void set_server_name(struct muster_curl_exchange *exchange,
                            const struct muster_http_url *url)
{
    const struct muster_http_request *request = exchange->request;
    struct muster_mem *mem = exchange->client->http.env->mem;
    const char *name = request->tls->server_name;
    bool is_v6 = memchr(url->host, ':', url->host_length) != NULL;
    size_t room = strlen(request->current_url) + strlen(name) + url->host_length + 64;
    char *text = muster_mem_alloc(mem, room);

    if (text == NULL) {
        exchange->code = CURLE_OUT_OF_MEMORY;
        return;
    }
    snprintf(text, room, "::%s%.*s%s:%u", is_v6 ? "[" : "", (int)url->host_length, url->host,
             is_v6 ? "]" : "", url->port);
    exchange->connect_to = curl_slist_append(NULL, text);
    if (exchange->connect_to == NULL)
        exchange->code = CURLE_OUT_OF_MEMORY;
    SET(exchange, CURLOPT_CONNECT_TO, exchange->connect_to);
    if (!has_header(request, "host"))
        add_header(exchange, "Host", text + 2);
    snprintf(text, room, "https://%s:%u%s", name, url->port, url->path);
    SET(exchange, CURLOPT_URL, text);
    muster_mem_free(mem, text);
}

/* The proxy is named for every request, "" and "*" included, or else curl would take one from the
 * process's variables. Plain http goes without: it is for metadata servers, which no proxy
 * reaches. */
static void set_proxy(struct muster_curl_exchange *exchange, bool is_https)
{
    const struct muster_curl_client *client = exchange->client;
    bool is_used = is_https && !exchange->request->is_direct && client->proxy[0] != '\0';

    SET(exchange, CURLOPT_PROXY, is_used ? client->proxy : "");
    SET(exchange, CURLOPT_NOPROXY, is_used ? client->no_proxy : "*");
    SET(exchange, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
}

enum muster_rc muster_curl_exchange_set_up(struct muster_curl_exchange *exchange,
                                           const struct muster_http_url *url,
                                           struct muster_error *ret_error)
{
    struct muster_http_request *request = exchange->request;

    MUSTER_ASSERT(exchange->easy != NULL && exchange->engine == NULL);
    SET(exchange, CURLOPT_PRIVATE, exchange);
    SET(exchange, CURLOPT_ERRORBUFFER, exchange->error);
    SET(exchange, CURLOPT_NOSIGNAL, 1L); /* signals belong to the application */
    SET(exchange, CURLOPT_QUICK_EXIT, 1L); /* a cancel does not wait for a name look-up */
    SET(exchange, CURLOPT_PROTOCOLS_STR, "http,https");
    SET(exchange, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    SET(exchange, CURLOPT_PIPEWAIT, 1L); /* rather share a connection that is being opened */
    SET(exchange, CURLOPT_TCP_KEEPALIVE, 1L); /* a watch may be silent for an hour */
    SET(exchange, CURLOPT_USERAGENT, "muster/" MUSTER_VERSION);
    SET(exchange, CURLOPT_WRITEFUNCTION, on_curl_body);
    SET(exchange, CURLOPT_WRITEDATA, exchange);
    SET(exchange, CURLOPT_HEADERFUNCTION, on_curl_header);
    SET(exchange, CURLOPT_HEADERDATA, exchange);
    set_method(exchange);
    if (url->is_https && request->tls != NULL && request->tls->server_name != NULL)
        set_server_name(exchange, url);
    else
        SET(exchange, CURLOPT_URL, request->current_url);
    set_headers(exchange);
    set_proxy(exchange, url->is_https);
    if (url->is_https)
        set_tls(exchange);
    if (exchange->code != CURLE_OK)
        return muster_error_set(ret_error, rc_of(exchange->code), "http: %.200s",
                                exchange->error[0] != '\0' ? exchange->error
                                                           : curl_easy_strerror(exchange->code));
    return MUSTER_OK;
}
