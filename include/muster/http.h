/* The HTTP client: one request at a time or a thousand at once, over shared connections. */
#ifndef MUSTER_HTTP_H
#define MUSTER_HTTP_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/list.h>
#include <muster/loop.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_http;
struct muster_http_request;
struct muster_http_exchange;
struct muster_http_tracer;

typedef void muster_http_request_fn(struct muster_http_request *request, enum muster_rc rc);
typedef void muster_http_close_fn(struct muster_http *http);
/** A piece of a 2xx body as it arrives; bytes are borrowed during the call. Anything but MUSTER_OK
 * ends the request with that code. May cancel, and start other requests. */
typedef enum muster_rc muster_http_body_fn(struct muster_http_request *request, const void *bytes,
                                           size_t count);

#define MUSTER_HTTP_RESPONSE_BYTES_DEFAULT (16u << 20)
#define MUSTER_HTTP_HEADER_BYTES_MAX       (64u << 10) /* names and values of one response */
#define MUSTER_HTTP_URL_BYTES_MAX          8192u
#define MUSTER_HTTP_REDIRECTS_DEFAULT      5u
#define MUSTER_HTTP_REDIRECTS_NONE         UINT32_MAX /* a 3xx is an answer like others */

struct muster_http_header {
    const char *name;
    const char *value;
};

/** How https proves who is there; NULL texts: the default. Of a _file and a _pem the _pem counts.
 * Verification is always on; the one way around it is a kubeconfig that says so. */
struct muster_http_tls {
    const char *ca_file; /* whom to trust; default: the system's authorities */
    const char *ca_pem;
    const char *cert_file; /* the client's own certificate and key; default: none */
    const char *cert_pem;
    const char *key_file;
    const char *key_pem;
    const char *server_name;      /* verified instead of the URL's host */
    bool is_insecure_skip_verify; /* kubeconfig's insecure-skip-tls-verify, nothing else */
};

/** Caller's memory: init once, start any number of times one after the other, fini at the end. */
struct muster_http_request {
    void *data;
    /* set before start; all pointers are borrowed until done */
    const char *method; /* NULL: "GET" */
    const char *url;    /* http or https; required */
    const struct muster_http_header *headers;
    size_t header_count;
    const void *body;
    size_t body_bytes;
    const struct muster_http_tls *tls; /* NULL: all defaults */
    const char *source;           /* who asks ("tpu"), for errors and the tracer; static text */
    uint64_t deadline_ns;         /* absolute loop time; required */
    size_t response_bytes_max;    /* 0: the default; with on_body: no limit */
    uint32_t redirects_max;       /* 0: the default */
    uint32_t attempt;             /* for the tracer; 0 is the first */
    bool has_credentials;         /* url or body are secret; headers that carry tokens and client
                                     certificates are noticed without it */
    bool is_direct;               /* never through a proxy */
    muster_http_body_fn *on_body; /* NULL: collect the body; other than 2xx is always collected */
    /* valid in done, until the next start or fini; status and headers from the first on_body on */
    int status;          /* 0: no answer came */
    const char *answer;  /* the body; the request's; NUL-terminated, never NULL in done with OK */
    size_t answer_bytes; /* without the NUL; with on_body: bytes seen by it */
    struct muster_error error; /* names host and cause, never a secret */
    /* private */
    struct muster_http *http; /* NULL: not started */
    muster_http_request_fn *done;
    struct muster_list node;
    struct muster_timer timer;
    struct muster_mem *mem; /* of the answer; NULL: none is held */
    char *current_url;      /* after redirects */
    const char *current_method;
    char *header_text; /* name NUL value NUL ... */
    size_t header_text_bytes;
    char *answer_text;
    size_t answer_capacity;
    uint64_t started_ns;
    uint32_t redirect_count;
    bool is_body_dropped;  /* a redirect made it a GET */
    enum muster_rc reason; /* why the provider was told to stop */
    void *impl;            /* the provider's */
};

/** All zero but method "GET". */
MUSTER_API void muster_http_request_init(struct muster_http_request *request, void *data);
/** Frees the answer. Not while the request runs. */
MUSTER_API void muster_http_request_fini(struct muster_http_request *request);

/**
 * Send one request and receive its answer, through redirects. An answer of any status is MUSTER_OK;
 * muster_http_check tells what a status means. Most callers want muster/http_call.h: retries,
 * tokens.
 *
 * A redirect is followed at most redirects_max times, never from https to http, and, when the
 * request carries credentials, only to the same scheme, host and port.
 *
 * Owns:    borrows request and what it points to until done.
 * Errors:  returned INVALID_ARGUMENT (url, method or header malformed), FAILED_PRECONDITION
 * (closed), RESOURCE_EXHAUSTED; by done UNAVAILABLE (name, connection, TLS handshake, cut or
 * garbled answer), UNAUTHENTICATED (the server's certificate does not hold), DEADLINE_EXCEEDED,
 *          CANCELLED, RESOURCE_EXHAUSTED (answer too large), FAILED_PRECONDITION (forbidden or
 * endless redirect), or what on_body returned. Thread:  loop only; done never runs inside this
 * call.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_http_start(struct muster_http_request *request,
                                                              struct muster_http *http,
                                                              muster_http_request_fn *done);
/** Idempotent; done still comes, with CANCELLED unless it had already won; at the deadline or later
 * with DEADLINE_EXCEEDED. */
MUSTER_API void muster_http_cancel(struct muster_http_request *request);

/** The value of a header of the answer (name in any case; the last one of that name), or NULL.
 * Borrowed as the answer is. */
MUSTER_API const char *muster_http_response_header(const struct muster_http_request *request,
                                                   const char *name);

/** What a status means as a code: 2xx OK, 400 INVALID_ARGUMENT, 401 UNAUTHENTICATED, 403
 * PERMISSION_DENIED, 404 NOT_FOUND, 408 and 504 DEADLINE_EXCEEDED, 409 ABORTED, 410 OUT_OF_RANGE,
 * 412 FAILED_PRECONDITION, 429 RESOURCE_EXHAUSTED, 501 UNIMPLEMENTED, 500 INTERNAL, other 5xx
 * UNAVAILABLE, the rest UNKNOWN. */
MUSTER_API enum muster_rc muster_http_status_rc(int status);

/** In done with OK: MUSTER_OK for 2xx, else the status's code, and ret_error (may be NULL) names
 * method, host and path, status, and the message of a Google or Kubernetes error body. */
MUSTER_API enum muster_rc muster_http_check(const struct muster_http_request *request,
                                            struct muster_error *ret_error);

/** One exchange with a server, as the tracer sees it. Everything is borrowed during the call. */
struct muster_http_exchange {
    const char *source; /* or "" */
    const char *method;
    const char *url; /* redacted */
    uint32_t attempt;
    int status; /* 0: no answer */
    enum muster_rc rc;
    const char *error; /* "" without one */
    uint64_t duration_ns;
    size_t answer_bytes;
};
typedef void muster_http_trace_fn(struct muster_http_tracer *tracer,
                                  const struct muster_http_exchange *exchange);
/** Sees every exchange of a client after its end (redirects and retries one by one), for --explain.
 * Caller's memory. Must not start or cancel anything. */
struct muster_http_tracer {
    void *data;
    muster_http_trace_fn *on_exchange;
};

/** A client: what env->http points to. Embed as the first field of a provider. */
struct muster_http {
    const struct muster_http_ops *ops;
    struct muster_http_tracer *tracer; /* NULL; anyone may set it; borrowed */
    struct muster_env *env;
    /* private */
    struct muster_list active; /* of muster_http_request */
    struct muster_task close_task;
    muster_http_close_fn *closed;
    bool is_closed;
};

struct muster_http_curl_options {
    uint32_t connections_max;          /* 0: 256; all hosts together, idle ones included */
    uint32_t connections_per_host_max; /* 0: 192; HTTP/2 takes at most 10 */
    const char *ca_file; /* NULL: the file that SSL_CERT_FILE of env->vars names, else the system's
                            authorities; borrowed during the call */
    bool is_proxy_ignored; /* https never through a proxy either */
};

/**
 * The real client, on libcurl: HTTP/1.1, HTTP/2 with multiplexing where a TLS server offers it,
 * kept connections. Its requests wait in line when connections_max are in use.
 *
 * Proxies: https goes through HTTPS_PROXY (or https_proxy) of env->vars as read at open unless
 * NO_PROXY (no_proxy) names the host; http never goes through one (metadata servers, loopback).
 *
 * Owns:    gives; borrows env. The owner sets env->http.
 * Errors:  RESOURCE_EXHAUSTED; UNIMPLEMENTED (a curl without TLS or background name look-ups).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_http_curl_open(
    struct muster_env *env, const struct muster_http_curl_options *options,
    struct muster_http **ret_http, struct muster_error *ret_error);

/** Open requests end with CANCELLED, then closed (may be NULL) runs last and the client is freed.
 */
MUSTER_API void muster_http_close(struct muster_http *http, muster_http_close_fn *closed);

MUSTER_END

#endif
