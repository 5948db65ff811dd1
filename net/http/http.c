/* Requests: what every provider has in common: checks, deadline, the collected answer, redirects. A
 * provider (net/http/client_curl.c) runs single exchanges; this file begins each, is told its parts
 * by muster_http_provide_*, and ends the request when no redirect is left to follow. */
#include "net/http/provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "net/http/redirect.h"
#include "net/http/url.h"
#include "runtime/loop/deadline.h"

#define ANSWER_CAPACITY_FIRST 4096 /* most answers of metadata and token servers fit */

/* Checks. */

/* RFC 9110 5.6.2 */
static bool is_token(const char *text)
{
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++)
        if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 0x7f ||
            strchr("()<>@,;:\\\"/[]?={}", *text) != NULL)
            return false;
    return true;
}

/* RFC 9110 5.5: a line break in a value would let its author add headers of his own. */
static bool is_field_value(const char *text)
{
    for (; *text != '\0'; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            return false;
    return true;
}

static enum muster_rc check_request(struct muster_http_request *request,
                                    struct muster_error *ret_error)
{
    struct muster_http_url url;

    if (request->url == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "http: a request must have a url");
    if (request->method != NULL && !is_token(request->method))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "http: the method must be a token such as GET, got \"%.40s\"",
                                request->method);
    for (size_t i = 0; i < request->header_count; i++) {
        if (!is_token(request->headers[i].name))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "http: the name of a header must be a token, got \"%.40s\"",
                                    request->headers[i].name);
        /* The text does not quote the value, which may be a secret. */
        if (!is_field_value(request->headers[i].value))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "http: the value of header %s must be without line breaks and "
                                    "control characters",
                                    request->headers[i].name);
    }
    return muster_http_url_parse(request->url, &url, ret_error);
}

/* Life of a request. */

void muster_http_request_init(struct muster_http_request *request, void *data)
{
    *request = (struct muster_http_request){.data = data, .method = "GET"};
}

/* mem NULL: the memory stays for the next answer, the one after a redirect. */
static void forget_answer(struct muster_http_request *request, struct muster_mem *mem)
{
    if (request->answer_text != NULL) /* it may be a token */
        explicit_bzero(request->answer_text, request->answer_capacity);
    request->status = 0;
    request->header_text_bytes = 0;
    request->answer_bytes = 0;
    request->answer = NULL;
    request->error = (struct muster_error){.rc = MUSTER_OK};
    if (mem == NULL)
        return;
    muster_mem_free(mem, request->header_text);
    muster_mem_free(mem, request->answer_text);
    muster_mem_free(mem, request->current_url);
    request->header_text = NULL;
    request->answer_text = NULL;
    request->answer_capacity = 0;
    request->current_url = NULL;
}

void muster_http_request_fini(struct muster_http_request *request)
{
    MUSTER_ASSERT(request->http == NULL);
    forget_answer(request, request->mem);
    request->mem = NULL;
}

static void on_deadline(struct muster_timer *timer)
{
    struct muster_http_request *request = timer->data;

    if (request->reason != MUSTER_OK)
        return;
    request->reason = MUSTER_DEADLINE_EXCEEDED;
    request->http->ops->cancel(request->http, request);
}

enum muster_rc muster_http_start(struct muster_http_request *request, struct muster_http *http,
                                 muster_http_request_fn *done)
{
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = check_request(request, &error);
    char *url;

    MUSTER_ASSERT(request->http == NULL);
    if (rc == MUSTER_OK)
        rc = muster_deadline_check(http->env, "muster_http_start", request->deadline_ns, &error);
    if (rc == MUSTER_OK && http->is_closed)
        rc = muster_error_set(&error, MUSTER_FAILED_PRECONDITION, "http: the client is closed");
    url = rc == MUSTER_OK ? muster_mem_strdup(http->env->mem, request->url) : NULL;
    if (rc == MUSTER_OK && url == NULL)
        rc = muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    if (rc != MUSTER_OK) {
        request->error = error;
        return rc;
    }
    forget_answer(request, request->mem);
    request->mem = http->env->mem;
    request->current_url = url;
    request->current_method = request->method != NULL ? request->method : "GET";
    request->redirect_count = 0;
    request->is_body_dropped = false;
    request->reason = MUSTER_OK;
    request->started_ns = muster_loop_now_ns(http->env->loop);
    rc = http->ops->start(http, request);
    if (rc != MUSTER_OK)
        return rc;
    request->http = http;
    request->done = done;
    muster_list_append(&http->active, &request->node);
    muster_timer_init(&request->timer, on_deadline, request);
    muster_timer_start(&request->timer, http->env->loop, request->deadline_ns);
    return MUSTER_OK;
}

void muster_http_cancel(struct muster_http_request *request)
{
    if (request->http == NULL || request->reason != MUSTER_OK)
        return;
    /* The caller may give up at the deadline before our timer does: the request is late all the
     * same. */
    request->reason = request->deadline_ns <= muster_loop_now_ns(request->http->env->loop)
                          ? MUSTER_DEADLINE_EXCEEDED
                          : MUSTER_CANCELLED;
    request->http->ops->cancel(request->http, request);
}

/* The answer. */

/* Headers of an interim answer (1xx, RFC 9110 15.2) are not those of the final one. */
void muster_http_provide_status(struct muster_http_request *request, int status)
{
    request->status = status;
    request->header_text_bytes = 0;
}

static enum muster_rc set_too_large(struct muster_http_request *request, const char *what,
                                    size_t limit)
{
    char url[160];

    return muster_error_set(
        &request->error, MUSTER_RESOURCE_EXHAUSTED,
        "%s %s: the answer's %s must be at most %zu bytes", request->current_method,
        muster_http_url_redact_short(request->current_url, url, sizeof(url)), what, limit);
}

static bool is_success(const struct muster_http_request *request)
{
    return request->status >= 200 && request->status <= 299;
}

/* A receiver takes a success piece by piece and bounds it by itself. An error's body is collected
 * even then, because its text tells what is wrong. */
static size_t body_limit(const struct muster_http_request *request)
{
    bool is_stream = request->on_body != NULL && is_success(request);

    if (request->response_bytes_max != 0)
        return request->response_bytes_max;
    return is_stream ? SIZE_MAX : MUSTER_HTTP_RESPONSE_BYTES_DEFAULT;
}

/* A length announced beyond the limit ends the exchange before the first byte of the body. An
 * answer to HEAD announces the length that GET would have, and has no body (RFC 9110 9.3.2). */
static enum muster_rc check_announced_length(struct muster_http_request *request, const char *value)
{
    char *end;
    unsigned long long bytes = strtoull(value, &end, 10);

    if (end == value || bytes <= body_limit(request) ||
        strcmp(request->current_method, "HEAD") == 0)
        return MUSTER_OK;
    return set_too_large(request, "body", body_limit(request));
}

enum muster_rc muster_http_provide_header(struct muster_http_request *request, const char *name,
                                          size_t name_length, const char *value,
                                          size_t value_length)
{
    size_t bytes = name_length + value_length + 2;
    char *at;

    if (bytes > MUSTER_HTTP_HEADER_BYTES_MAX - request->header_text_bytes)
        return set_too_large(request, "headers", MUSTER_HTTP_HEADER_BYTES_MAX);
    at = muster_mem_realloc(request->mem, request->header_text, request->header_text_bytes + bytes);
    if (at == NULL)
        return muster_error_set(&request->error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    request->header_text = at;
    at += request->header_text_bytes;
    memcpy(at, name, name_length);
    at[name_length] = '\0';
    at += name_length + 1;
    memcpy(at, value, value_length);
    at[value_length] = '\0';
    request->header_text_bytes += bytes;
    if (strncasecmp(name, "content-length", name_length) == 0 && name_length == 14)
        return check_announced_length(request, at);
    return MUSTER_OK;
}

/* The answer gets room for so many bytes and a NUL. */
static enum muster_rc reserve_answer(struct muster_http_request *request, size_t bytes)
{
    size_t capacity =
        request->answer_capacity == 0 ? ANSWER_CAPACITY_FIRST : request->answer_capacity;
    char *text;

    while (capacity < bytes + 1)
        capacity *= 2;
    if (capacity == request->answer_capacity)
        return MUSTER_OK;
    text = muster_mem_realloc(request->mem, request->answer_text, capacity);
    if (text == NULL)
        return muster_error_set(&request->error, MUSTER_RESOURCE_EXHAUSTED, "http: no memory");
    request->answer_text = text;
    request->answer_capacity = capacity;
    return MUSTER_OK;
}

enum muster_rc muster_http_provide_body(struct muster_http_request *request, const void *bytes,
                                        size_t count)
{
    size_t limit = body_limit(request);
    enum muster_rc rc;

    if (request->reason != MUSTER_OK)
        return request->reason;
    if (count > limit || request->answer_bytes > limit - count)
        return set_too_large(request, "body", limit);
    if (request->on_body != NULL && is_success(request)) {
        request->answer_bytes += count;
        rc = request->on_body(request, bytes, count);
        if (rc != MUSTER_OK && request->error.rc == MUSTER_OK)
            (void)muster_error_set(&request->error, rc, "http: given up by the receiver");
        return rc;
    }
    rc = reserve_answer(request, request->answer_bytes + count);
    if (rc != MUSTER_OK)
        return rc;
    memcpy(request->answer_text + request->answer_bytes, bytes, count);
    request->answer_bytes += count;
    return MUSTER_OK;
}

enum muster_rc muster_http_replace_answer(struct muster_http_request *request, int status,
                                          const void *bytes, size_t count)
{
    enum muster_rc rc;

    request->answer_bytes = 0;
    rc = reserve_answer(request, count);
    if (rc != MUSTER_OK)
        return rc;
    memcpy(request->answer_text, bytes, count);
    request->answer_text[count] = '\0';
    request->answer_bytes = count;
    request->answer = request->answer_text;
    request->status = status;
    return MUSTER_OK;
}

/* header_text is one name and one value after the other, each with its NUL, as provide_header adds
 * them. */
const char *muster_http_response_header(const struct muster_http_request *request, const char *name)
{
    const char *at = request->header_text;
    const char *end;
    const char *found = NULL;

    if (at == NULL)
        return NULL;
    end = at + request->header_text_bytes;
    while (at < end) {
        const char *value = at + strlen(at) + 1;

        if (strcasecmp(at, name) == 0)
            found = value;
        at = value + strlen(value) + 1;
    }
    return found;
}

/* Redirects. */

/* Every exchange ends here: the log and the tracer see it, without secrets. */
static void trace_request(const struct muster_http_request *request, enum muster_rc rc)
{
    const struct muster_http *http = request->http;
    struct muster_http_tracer *tracer = http->tracer;
    char url[1024];
    struct muster_http_exchange exchange = {
        .source = request->source != NULL ? request->source : "",
        .method = request->current_method,
        .attempt = request->attempt,
        .status = request->status,
        .rc = rc,
        .error = rc != MUSTER_OK ? request->error.text : "",
        .answer_bytes = request->answer_bytes,
    };

    if (tracer == NULL && !muster_log_wants(http->env, MUSTER_LOG_DEBUG))
        return;
    exchange.url = muster_http_url_redact(request->current_url, url, sizeof(url));
    exchange.duration_ns = muster_loop_now_ns(http->env->loop) - request->started_ns;
    MUSTER_LOG(http->env, DEBUG, "http_exchange", "source", exchange.source, "method",
               exchange.method, "url", exchange.url, "status", exchange.status, "attempt",
               exchange.attempt, "us", exchange.duration_ns / MUSTER_NS_PER_US, "error",
               exchange.error);
    if (tracer != NULL)
        tracer->on_exchange(tracer, &exchange);
}

/* A redirect takes the place of the end: the request stays active, with a new exchange under the
 * old deadline. */
static enum muster_rc follow_redirect(struct muster_http_request *request, const char *location)
{
    char *next = NULL;
    enum muster_rc rc;

    MUSTER_ASSERT(request->http != NULL);

    rc = muster_http_url_resolve(request->current_url, location, request->mem, &next,
                                 &request->error);
    if (rc == MUSTER_OK)
        rc = muster_http_redirect_check(request, next, &request->error);
    else if (rc == MUSTER_INVALID_ARGUMENT)
        rc = MUSTER_FAILED_PRECONDITION;
    if (rc != MUSTER_OK) {
        request->error.rc = rc;
        muster_mem_free(request->mem, next);
        return rc;
    }
    trace_request(request, MUSTER_OK);
    muster_http_redirect_apply(request);
    muster_mem_free(request->mem, request->current_url);
    request->current_url = NULL;
    forget_answer(request, NULL);
    request->current_url = next;
    request->redirect_count++;
    request->started_ns = muster_loop_now_ns(request->http->env->loop);
    return request->http->ops->start(request->http, request);
}

/* The end. */

/* The provider only knows that it was told to give up; the text says why. */
static void set_reason(struct muster_http_request *request)
{
    char url[160];

    MUSTER_ASSERT(request->reason != MUSTER_OK);

    (void)muster_http_url_redact_short(request->current_url, url, sizeof(url));
    if (request->reason == MUSTER_DEADLINE_EXCEEDED)
        (void)muster_error_set(&request->error, request->reason, "%s %s: %s before the deadline",
                               request->current_method, url,
                               request->status == 0 ? "no answer" : "the answer did not end");
    else
        (void)muster_error_set(&request->error, request->reason, "%s %s: cancelled",
                               request->current_method, url);
}

/* The request is unlinked before done, which may start the request again or free it. The client
 * closes when its last request has ended, from a task, because this runs inside the provider. */
static void request_finish(struct muster_http_request *request, enum muster_rc rc)
{
    struct muster_http *http = request->http;

    MUSTER_ASSERT(http != NULL);
    trace_request(request, rc);
    muster_timer_stop(&request->timer);
    muster_list_remove(&request->node);
    request->http = NULL;
    request->done(request, rc);
    if (http->is_closed && muster_list_is_empty(&http->active))
        muster_task_post(&http->close_task, http->env->loop);
}

void muster_http_provide_end(struct muster_http_request *request, enum muster_rc rc)
{
    const char *location;
    bool is_streamed;

    MUSTER_ASSERT(request->http != NULL);
    /* A cancel or the deadline has decided the end, whatever the provider met afterwards. */
    if (request->reason != MUSTER_OK) {
        rc = request->reason;
        set_reason(request);
    }
    location = muster_http_response_header(request, "location");
    if (rc == MUSTER_OK && location != NULL && muster_http_redirect_is_due(request)) {
        rc = follow_redirect(request, location);
        if (rc == MUSTER_OK)
            return;
    }
    /* A body that went to its receiver was counted, but is not here: the answer is then "". */
    is_streamed = request->on_body != NULL && is_success(request);
    if (rc == MUSTER_OK)
        rc = reserve_answer(request, is_streamed ? 0 : request->answer_bytes);
    if (rc == MUSTER_OK) {
        request->answer_text[is_streamed ? 0 : request->answer_bytes] = '\0';
        request->answer = request->answer_text;
    }
    request_finish(request, rc);
}

/* The client. */

static void on_close_task(struct muster_task *task)
{
    struct muster_http *http = task->data;

    MUSTER_ASSERT(http->is_closed && muster_list_is_empty(&http->active));
    if (http->closed != NULL)
        http->closed(http);
    http->ops->close(http);
}

void muster_http_init(struct muster_http *http, struct muster_env *env,
                      const struct muster_http_ops *ops)
{
    *http = (struct muster_http){.ops = ops, .env = env};
    muster_list_init(&http->active);
    muster_task_init(&http->close_task, on_close_task, http);
}

void muster_http_close(struct muster_http *http, muster_http_close_fn *closed)
{
    MUSTER_ASSERT(!http->is_closed);
    http->is_closed = true;
    http->closed = closed;
    MUSTER_LIST_EACH(&http->active, request, struct muster_http_request, node)
        muster_http_cancel(request);
    if (muster_list_is_empty(&http->active))
        muster_task_post(&http->close_task, http->env->loop);
}
