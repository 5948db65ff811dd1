/* The HTTP client: one request at a time or a thousand at once, over shared connections. */
#ifndef MUSTER_HTTP_H
#define MUSTER_HTTP_H

#include <muster/address.h>
#include <muster/base.h>
#include <muster/credentials.h>
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
 * muster_http_check tells what a status means. Most callers want muster/http.h: retries,
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

/** Map an HTTP status to a code: 2xx OK, 400 INVALID_ARGUMENT, 401 UNAUTHENTICATED, 403
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

/* A request with manners: tokens, retries with backoff, Retry-After, all within one deadline. */

struct muster_http_call;
struct muster_http_memory; /* within the library */
typedef void muster_http_call_fn(struct muster_http_call *call, enum muster_rc rc);

#define MUSTER_HTTP_ATTEMPTS_DEFAULT 5u

/** When and how often to try again; zero fields: the default. */
struct muster_http_retry {
    uint32_t attempts_max;       /* 5, the first included; 1: never again */
    uint64_t backoff_first_ns;   /* 200 ms; doubles, each moved by up to half at random */
    uint64_t backoff_max_ns;     /* 10 s */
    uint64_t attempt_timeout_ns; /* of one attempt; default: the call's deadline alone */
};

enum muster_http_call_state {
    MUSTER_HTTP_CALL_IDLE,
    MUSTER_HTTP_CALL_TOKEN,   /* waits for the credentials */
    MUSTER_HTTP_CALL_SENDING, /* waits for the answer */
    MUSTER_HTTP_CALL_WAITING, /* waits before the next attempt */
};

/** Caller's memory: init once, start any number of times one after the other, fini at the end. */
struct muster_http_call {
    void *data;
    /* Set before start, as for muster_http_start: url, headers, body, deadline_ns, source, ...; the
     * answer is in it too. request.data is the call's own: on_body finds the call by
     * MUSTER_CONTAINER_OF. */
    struct muster_http_request request;
    struct muster_credentials *credentials; /* borrowed until done; NULL: none */
    struct muster_http_retry retry;
    bool is_token_missing; /* in done: the credentials failed, the server was not asked */
    struct muster_http_memory *memory; /* a GET may be answered "as before", which gives the answer
                                          from there; borrowed until done; NULL: asked in full */
    bool is_idempotent; /* a POST that may be sent twice; GET, HEAD, PUT, DELETE, OPTIONS always may
                         */
    /* private */
    struct muster_env *env;
    muster_http_call_fn *done;
    enum muster_http_call_state state;
    struct muster_token_get token_get;
    struct muster_timer timer;
    struct muster_task task;                  /* the end of a cancelled wait */
    const struct muster_http_header *headers; /* the caller's */
    size_t header_count;
    struct muster_http_header *all_headers; /* the caller's and Authorization */
    char *authorization;                    /* "Bearer ..." of the last attempt */
    char *etag;                             /* that is asked about */
    uint64_t deadline_ns;
    uint32_t attempt;
    bool has_refreshed; /* the token, after a 401 */
    bool is_cancelled;
};

MUSTER_API void muster_http_call_init(struct muster_http_call *call, void *data);
MUSTER_API void muster_http_call_fini(struct muster_http_call *call);

/**
 * Send call->request by env->http, with a token of call->credentials; again after a connection
 * failure, 408, 429 or 5xx (but 501) while attempts and the deadline last and the method may be
 * repeated. A Retry-After is obeyed when it ends before the deadline; otherwise the answer is given
 * as it is. After a 401 the token is fetched anew, once. A body that began to stream is not asked
 * for again.
 *
 * The answer of the last attempt is in call->request with MUSTER_OK, whatever its status: see
 * muster_http_check(&call->request, ...).
 *
 * Errors:  as muster_http_start, in call->request.error; those of the credentials.
 * Thread:  loop only; done never runs inside this call.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_http_call_start(struct muster_http_call *call,
                                                                   struct muster_env *env,
                                                                   muster_http_call_fn *done);
/** Idempotent; done still comes, with CANCELLED unless it had already won. */
MUSTER_API void muster_http_call_cancel(struct muster_http_call *call);

/* A small HTTP/1.1 server for people and probes: /healthz, /metrics and pages that others add. */

struct muster_http_server;
struct muster_http_page;
struct muster_http_reply;
struct muster_health_check;

typedef void muster_http_server_close_fn(struct muster_http_server *server);
/** Fill reply; it is sent when this returns. */
typedef void muster_http_page_fn(struct muster_http_page *page, struct muster_http_reply *reply);
/** OK, or the error of a thing that is wrong, whose text is shown to whoever asks. The text is "" at first; one that is
 * set together with OK is shown as a warning. A check must answer at once, and may be asked twice. */
typedef enum muster_rc muster_health_check_fn(struct muster_health_check *check,
                                              struct muster_error *ret_error);

/** Caller's memory, borrowed from add to remove (or to the server's close). */
struct muster_http_page {
    void *data;
    const char *path; /* "/status"; borrowed */
    muster_http_page_fn *on_request;
    /* private */
    struct muster_list node;
};

/** Caller's memory, borrowed from add to remove (or to the server's close). */
struct muster_health_check {
    void *data;
    const char *name; /* "registry"; borrowed */
    muster_health_check_fn *check;
    /* private */
    struct muster_list node;
};

/**
 * Serve `/healthz` (200 "ok", or 503 and one line per failed check; warnings behind that) and `/metrics` (env->metrics
 * in Prometheus text) on address, by GET and HEAD.
 *
 * Owns:    gives; borrows env until closed.
 * Errors:  as muster_listener_open; UNIMPLEMENTED on a simulated loop.
 * Limits:  16 KiB of headers, 64 KiB of body, 30 s per idle connection.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_http_server_open(
    struct muster_env *env, const struct muster_address *address,
    struct muster_http_server **ret_server, struct muster_error *ret_error);
MUSTER_API const struct muster_address *muster_http_server_address(
    const struct muster_http_server *server);
/** Connections are cut, then closed (may be NULL) runs. */
MUSTER_API void muster_http_server_close(struct muster_http_server *server,
                                         muster_http_server_close_fn *closed);
MUSTER_API void muster_http_server_set_data(struct muster_http_server *server, void *data);
MUSTER_API void *muster_http_server_data(const struct muster_http_server *server);

/** ALREADY_EXISTS: the path is taken. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_http_page_add(struct muster_http_server *server,
                                                                 struct muster_http_page *page);
/** Idempotent. */
MUSTER_API void muster_http_page_remove(struct muster_http_page *page);
MUSTER_API void muster_health_check_add(struct muster_http_server *server,
                                        struct muster_health_check *check);
/** Idempotent. */
MUSTER_API void muster_health_check_remove(struct muster_health_check *check);

/* A reply starts as 200, "text/plain; charset=utf-8", empty. */
MUSTER_API void muster_http_reply_set_status(struct muster_http_reply *reply, int status);
/** type is static text. */
MUSTER_API void muster_http_reply_set_type(struct muster_http_reply *reply, const char *type);
/** Append a copy to the body. Without memory the reply becomes 500. */
MUSTER_API void muster_http_reply_add(struct muster_http_reply *reply, const void *bytes,
                                      size_t count);
MUSTER_API void muster_http_reply_printf(struct muster_http_reply *reply, const char *fmt, ...)
    MUSTER_PRINTF(2, 3);
/** Add a header of the reply; name and value are copied. Without memory the reply becomes 500. */
MUSTER_API void muster_http_reply_add_header(struct muster_http_reply *reply, const char *name,
                                             const char *value);
/** A header of the request (names are compared without case), or NULL. Borrowed during on_request.
 */
MUSTER_API const char *muster_http_reply_request_header(const struct muster_http_reply *reply,
                                                        const char *name);
/** The value of a query parameter of the request ("?name=value", decoded), or NULL. Borrowed during
 * on_request. */
MUSTER_API const char *muster_http_reply_query(const struct muster_http_reply *reply,
                                               const char *name);

MUSTER_END

#endif
