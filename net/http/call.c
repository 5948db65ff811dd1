/* Calls: a request, its token, its repetitions. A call asks its credentials for a token, sends the
 * request with it, and starts over while the failure may pass and the deadline lets it. All
 * attempts share one request and one deadline; net/http/http.c does the single exchange. */
#include <muster/http.h>

#include <stdio.h>
#include <string.h>

#include "net/http/memory.h"
#include "net/http/retry.h"
#include "runtime/loop/deadline.h"

static void on_timer(struct muster_timer *timer);
static void on_task(struct muster_task *task);

/* IDLE -> TOKEN | SENDING; TOKEN -> SENDING; SENDING -> TOKEN | SENDING | WAITING; WAITING -> TOKEN
 * | SENDING; all -> IDLE. */
static void call_move(struct muster_http_call *call, enum muster_http_call_state next)
{
    static const unsigned allowed[] = {
        [MUSTER_HTTP_CALL_IDLE] = 1u << MUSTER_HTTP_CALL_TOKEN | 1u << MUSTER_HTTP_CALL_SENDING,
        [MUSTER_HTTP_CALL_TOKEN] = 1u << MUSTER_HTTP_CALL_SENDING | 1u << MUSTER_HTTP_CALL_IDLE,
        [MUSTER_HTTP_CALL_SENDING] = 1u << MUSTER_HTTP_CALL_TOKEN | 1u << MUSTER_HTTP_CALL_SENDING |
                                     1u << MUSTER_HTTP_CALL_WAITING | 1u << MUSTER_HTTP_CALL_IDLE,
        [MUSTER_HTTP_CALL_WAITING] = 1u << MUSTER_HTTP_CALL_TOKEN | 1u << MUSTER_HTTP_CALL_SENDING |
                                     1u << MUSTER_HTTP_CALL_IDLE,
    };

    MUSTER_ASSERT((allowed[call->state] & 1u << next) != 0);
    (void)allowed;
    call->state = next;
}

void muster_http_call_init(struct muster_http_call *call, void *data)
{
    *call = (struct muster_http_call){.data = data, .state = MUSTER_HTTP_CALL_IDLE};
    muster_http_request_init(&call->request, call);
    muster_timer_init(&call->timer, on_timer, call);
    muster_task_init(&call->task, on_task, call);
}

/* The caller's own headers come back into the request, so that a call can be started again with
 * what its owner has set. */
static void forget_headers(struct muster_http_call *call)
{
    if (call->all_headers != NULL && call->request.headers == call->all_headers) {
        call->request.headers = call->headers;
        call->request.header_count = call->header_count;
    }
    if (call->env == NULL)
        return;
    if (call->authorization != NULL) /* a token must not stay in freed memory */
        explicit_bzero(call->authorization, strlen(call->authorization));
    muster_mem_free(call->env->mem, call->all_headers);
    muster_mem_free(call->env->mem, call->authorization);
    muster_mem_free(call->env->mem, call->etag);
    call->all_headers = NULL;
    call->authorization = NULL;
    call->etag = NULL;
}

void muster_http_call_fini(struct muster_http_call *call)
{
    MUSTER_ASSERT(call->state == MUSTER_HTTP_CALL_IDLE);
    forget_headers(call);
    muster_http_request_fini(&call->request);
}

/* The last step: done may start the call again or free it, so nothing is touched after it. An
 * attempt has narrowed the request's deadline; the owner finds its own there. */
static void call_finish(struct muster_http_call *call, enum muster_rc rc)
{
    muster_timer_stop(&call->timer);
    muster_task_cancel(&call->task);
    call_move(call, MUSTER_HTTP_CALL_IDLE);
    call->request.deadline_ns = call->deadline_ns;
    call->done(call, rc);
}

static void finish_cancelled(struct muster_http_call *call)
{
    call_finish(call, muster_error_set(&call->request.error, MUSTER_CANCELLED, "http: cancelled"));
}

/* Trying again. */

static uint64_t now_ns(const struct muster_http_call *call)
{
    return muster_loop_now_ns(call->env->loop);
}

/* A request whose answer was lost may have been carried out, so only methods that do no harm twice
 * (RFC 9110 9.2.2) are repeated, or those that the caller knows to be so. A receiver that has seen
 * part of a body would see that part again. */
static bool may_repeat(const struct muster_http_call *call, enum muster_rc rc)
{
    const struct muster_http_request *request = &call->request;
    const char *method = request->method != NULL ? request->method : "GET";
    uint32_t attempts_max =
        call->retry.attempts_max != 0 ? call->retry.attempts_max : MUSTER_HTTP_ATTEMPTS_DEFAULT;
    bool is_passing = rc == MUSTER_OK ? muster_http_is_passing(request->status)
                                      : rc == MUSTER_UNAVAILABLE || rc == MUSTER_DEADLINE_EXCEEDED;

    if (!is_passing || call->attempt + 1 >= attempts_max)
        return false;
    if (rc != MUSTER_OK && request->on_body != NULL && request->answer_bytes > 0)
        return false;
    return call->is_idempotent || muster_http_is_idempotent(method);
}

/* How long to wait; UINT64_MAX: the deadline comes first. */
static uint64_t choose_delay_ns(const struct muster_http_call *call, enum muster_rc rc)
{
    const char *text =
        rc == MUSTER_OK ? muster_http_response_header(&call->request, "retry-after") : NULL;
    uint64_t delay_ns, left_ns;

    if (call->deadline_ns <= now_ns(call))
        return UINT64_MAX;
    left_ns = call->deadline_ns - now_ns(call);
    if (text == NULL || muster_http_retry_after_parse(text, muster_host_wall_ns(call->env->host),
                                                      &delay_ns) != MUSTER_OK)
        delay_ns = muster_http_backoff_ns(&call->retry, call->attempt + 1, call->env->rng);
    return delay_ns < left_ns ? delay_ns : UINT64_MAX;
}

/* Sending. */

static void on_request(struct muster_http_request *request, enum muster_rc rc);
static void on_token(struct muster_token_get *get, enum muster_rc rc);

static enum muster_rc call_send(struct muster_http_call *call)
{
    uint64_t until_ns = call->deadline_ns;
    enum muster_rc rc;

    if (call->retry.attempt_timeout_ns != 0) {
        until_ns = muster_loop_after_ns(call->env->loop, call->retry.attempt_timeout_ns);
        if (until_ns > call->deadline_ns)
            until_ns = call->deadline_ns;
    }
    call->request.deadline_ns = muster_deadline_inherit(call->env->loop, until_ns);
    call->request.attempt = call->attempt;
    rc = muster_http_start(&call->request, call->env->http, on_request);
    if (rc == MUSTER_OK)
        call_move(call, MUSTER_HTTP_CALL_SENDING);
    return rc;
}

/* A remembered answer stands for a whole body, so a GET whose body is collected can use it (RFC
 * 9110 13.1.2). */
static bool may_be_as_before(const struct muster_http_call *call)
{
    const char *method = call->request.method;

    return call->memory != NULL && call->request.on_body == NULL &&
           (method == NULL || strcmp(method, "GET") == 0);
}

static bool copy_authorization(struct muster_http_call *call, const char *token)
{
    size_t room = strlen(token) + sizeof("Bearer ");

    call->authorization = muster_mem_alloc(call->env->mem, room);
    if (call->authorization != NULL)
        snprintf(call->authorization, room, "Bearer %s", token);
    return call->authorization != NULL;
}

/* The caller's headers, the token (NULL: none), and the question whether the answer is as
 * before. */
static enum muster_rc set_headers(struct muster_http_call *call, const char *token)
{
    const struct muster_http_header *given;
    struct muster_mem *mem = call->env->mem;
    const char *etag;
    size_t count;

    /* This puts the caller's headers back where those of the last attempt stand. */
    forget_headers(call);
    etag = may_be_as_before(call) ? muster_http_memory_etag(call->memory, call->request.url) : NULL;
    given = call->request.headers;
    count = call->request.header_count;
    if (token == NULL && etag == NULL)
        return MUSTER_OK;
    call->etag = etag != NULL ? muster_mem_strdup(mem, etag) : NULL;
    call->all_headers = muster_mem_alloc_zero(mem, count + 2, sizeof(*call->all_headers));
    if (call->all_headers == NULL || (etag != NULL && call->etag == NULL) ||
        (token != NULL && !copy_authorization(call, token)))
        return muster_error_set(&call->request.error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    if (count > 0)
        memcpy(call->all_headers, given, count * sizeof(*call->all_headers));
    call->headers = given;
    call->header_count = count;
    if (token != NULL)
        call->all_headers[count++] =
            (struct muster_http_header){.name = "Authorization", .value = call->authorization};
    if (etag != NULL)
        call->all_headers[count++] =
            (struct muster_http_header){.name = "If-None-Match", .value = call->etag};
    call->request.headers = call->all_headers;
    call->request.header_count = count;
    return MUSTER_OK;
}

/* Anything but OK: nothing was started. */
static enum muster_rc begin_attempt(struct muster_http_call *call, const char *stale_token)
{
    enum muster_rc rc;

    if (call->credentials == NULL) {
        rc = set_headers(call, NULL);
        return rc == MUSTER_OK ? call_send(call) : rc;
    }
    rc = muster_token_get_start(&call->token_get, call->credentials, stale_token,
                                muster_deadline_inherit(call->env->loop, call->deadline_ns),
                                on_token);
    if (rc == MUSTER_OK)
        call_move(call, MUSTER_HTTP_CALL_TOKEN);
    else
        call->request.error = call->token_get.error;
    return rc;
}

static void on_token(struct muster_token_get *get, enum muster_rc rc)
{
    struct muster_http_call *call = get->data;

    MUSTER_ASSERT(call->state == MUSTER_HTTP_CALL_TOKEN);
    if (call->is_cancelled && (rc == MUSTER_OK || rc == MUSTER_CANCELLED)) {
        finish_cancelled(call);
        return;
    }
    call->is_token_missing = rc != MUSTER_OK;
    if (rc != MUSTER_OK)
        call->request.error = get->error;
    if (rc == MUSTER_OK)
        rc = set_headers(call, get->token);
    if (rc == MUSTER_OK)
        rc = call_send(call);
    if (rc != MUSTER_OK)
        call_finish(call, rc);
}

/* The token was refused: it may have been revoked before its time, so a new one is tried, once. A
 * second refusal is about rights, not age. False: no new token can be had, or this was one. */
static bool refresh_token(struct muster_http_call *call)
{
    if (call->credentials == NULL || call->has_refreshed || call->request.status != 401)
        return false;
    call->has_refreshed = true;
    return begin_attempt(call, call->authorization + strlen("Bearer ")) == MUSTER_OK;
}

static void on_request(struct muster_http_request *request, enum muster_rc rc)
{
    struct muster_http_call *call = request->data;
    uint64_t delay_ns;

    MUSTER_ASSERT(call->state == MUSTER_HTTP_CALL_SENDING);
    /* After a cancel nothing is tried again; an answer that was there before it has won. */
    if (call->is_cancelled || rc == MUSTER_CANCELLED) {
        call_finish(call, rc);
        return;
    }
    if (rc == MUSTER_OK && refresh_token(call))
        return;
    if (rc == MUSTER_OK && may_be_as_before(call))
        rc = muster_http_memory_take(call->memory, request);
    delay_ns = may_repeat(call, rc) ? choose_delay_ns(call, rc) : UINT64_MAX;
    if (delay_ns == UINT64_MAX) {
        call_finish(call, rc);
        return;
    }
    call_move(call, MUSTER_HTTP_CALL_WAITING);
    muster_timer_start(&call->timer, call->env->loop,
                       muster_loop_after_ns(call->env->loop, delay_ns));
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_http_call *call = timer->data;
    enum muster_rc rc;

    MUSTER_ASSERT(call->state == MUSTER_HTTP_CALL_WAITING);
    call->attempt++;
    rc = begin_attempt(call, NULL);
    if (rc != MUSTER_OK)
        call_finish(call, rc);
}

static void on_task(struct muster_task *task)
{
    finish_cancelled(task->data);
}

/* Start and cancel. */

enum muster_rc muster_http_call_start(struct muster_http_call *call, struct muster_env *env,
                                      muster_http_call_fn *done)
{
    enum muster_rc rc;

    MUSTER_ASSERT(call->state == MUSTER_HTTP_CALL_IDLE);
    if (env->http == NULL)
        return muster_error_set(&call->request.error, MUSTER_FAILED_PRECONDITION,
                                "http: the environment has no http client (muster_http_curl_open)");
    rc = muster_deadline_check(env, "muster_http_call_start", call->request.deadline_ns,
                               &call->request.error);
    if (rc != MUSTER_OK)
        return rc;
    forget_headers(call);
    call->env = env;
    call->done = done;
    call->deadline_ns = call->request.deadline_ns;
    call->attempt = 0;
    call->is_token_missing = false;
    call->has_refreshed = false;
    call->is_cancelled = false;
    call->request.data = call;
    call->token_get.data = call;
    return begin_attempt(call, NULL);
}

void muster_http_call_cancel(struct muster_http_call *call)
{
    if (call->state == MUSTER_HTTP_CALL_IDLE || call->is_cancelled)
        return;
    call->is_cancelled = true;
    switch (call->state) {
    case MUSTER_HTTP_CALL_TOKEN:
        muster_token_get_cancel(&call->token_get);
        break;
    case MUSTER_HTTP_CALL_SENDING:
        muster_http_cancel(&call->request);
        break;
    default:
        muster_timer_stop(&call->timer);
        muster_task_post(&call->task, call->env->loop);
        break;
    }
}
