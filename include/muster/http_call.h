/* A request with manners: tokens, retries with backoff, Retry-After, all within one deadline. */
#ifndef MUSTER_HTTP_CALL_H
#define MUSTER_HTTP_CALL_H

#include <muster/base.h>
#include <muster/credentials.h>
#include <muster/env.h>
#include <muster/http.h>
#include <muster/loop.h>
#include <muster/status.h>

MUSTER_BEGIN

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

MUSTER_END

#endif
