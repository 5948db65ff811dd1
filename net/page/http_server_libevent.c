/* The small HTTP/1.1 server on libevent's evhttp, joined to the loop: pages of the program, and
 * /healthz and /metrics for probes. This is the one file that uses evhttp. evhttp parses and owns
 * the connections; each request is answered before its callback returns, so nothing outlives it. */
#include <muster/http.h>

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/stream/net_internal.h"
#include "runtime/loop/loop_libevent.h"

/* Everybody who can reach the port is held to these bounds. Pages take GET and HEAD only, so bodies
 * are of no use. */
#define HEADERS_BYTES_MAX (16 * 1024)
#define BODY_BYTES_MAX    (64 * 1024)
#define IDLE_S_MAX        30
/* The pause is long enough for a descriptor to come free, and short enough for a probe that waits.
 */
#define BACKOFF_NS   (100 * MUSTER_NS_PER_MS)
#define TYPE_PLAIN   "text/plain; charset=utf-8"
#define TYPE_METRICS "text/plain; version=0.0.4; charset=utf-8"

struct muster_http_server {
    struct muster_env *env;
    struct evhttp *http;
    struct evconnlistener *listener; /* http's */
    struct muster_address address;
    struct muster_timer backoff; /* accept has failed */
    struct muster_task task;     /* the end of close */
    struct muster_list pages;
    struct muster_list checks;
    muster_http_server_close_fn *closed;
    void *data;
};

struct muster_http_reply {
    int status;
    const char *type;
    struct evbuffer *body;
    struct evkeyvalq query;
    struct evhttp_request *request;
};

/* Replies. */

void muster_http_reply_set_status(struct muster_http_reply *reply, int status)
{
    reply->status = status;
}

void muster_http_reply_set_type(struct muster_http_reply *reply, const char *type)
{
    reply->type = type;
}

void muster_http_reply_add(struct muster_http_reply *reply, const void *bytes, size_t count)
{
    if (evbuffer_add(reply->body, bytes, count) != 0)
        reply->status = HTTP_INTERNAL;
}

void muster_http_reply_printf(struct muster_http_reply *reply, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    if (evbuffer_add_vprintf(reply->body, fmt, args) < 0)
        reply->status = HTTP_INTERNAL;
    va_end(args);
}

void muster_http_reply_add_header(struct muster_http_reply *reply, const char *name,
                                  const char *value)
{
    if (evhttp_add_header(evhttp_request_get_output_headers(reply->request), name, value) != 0)
        reply->status = HTTP_INTERNAL;
}

const char *muster_http_reply_request_header(const struct muster_http_reply *reply,
                                             const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(reply->request), name);
}

const char *muster_http_reply_query(const struct muster_http_reply *reply, const char *name)
{
    return evhttp_find_header(&reply->query, name);
}

/* The built-in pages. */

static void checks_show(struct muster_http_server *server, struct muster_http_reply *reply,
                        bool are_failed)
{
    MUSTER_LIST_EACH(&server->checks, check, struct muster_health_check, node) {
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc = check->check(check, &error);

        if ((rc != MUSTER_OK) != are_failed || (rc == MUSTER_OK && error.text[0] == '\0'))
            continue;
        if (rc != MUSTER_OK)
            muster_http_reply_set_status(reply, HTTP_SERVUNAVAIL);
        muster_http_reply_printf(reply, "%s: %s\n", check->name,
                                 error.text[0] != '\0' ? error.text : muster_rc_text(rc));
    }
}

/* All checks run: the page names everything that is wrong, and the warnings behind it. */
static void show_health(struct muster_http_server *server, struct muster_http_reply *reply)
{
    checks_show(server, reply, true);
    if (reply->status == HTTP_OK)
        muster_http_reply_printf(reply, "ok\n");
    checks_show(server, reply, false);
}

static void show_metrics(struct muster_http_server *server, struct muster_http_reply *reply)
{
    char *text = NULL;
    size_t bytes = 0;

    muster_http_reply_set_type(reply, TYPE_METRICS);
    if (server->env->metrics == NULL)
        return;
    if (muster_metrics_format(server->env->metrics, server->env->mem, &text, &bytes) == MUSTER_OK)
        muster_http_reply_add(reply, text, bytes);
    else
        muster_http_reply_set_status(reply, HTTP_INTERNAL);
    muster_mem_free(server->env->mem, text);
}

static struct muster_http_page *find_page(const struct muster_http_server *server, const char *path)
{
    MUSTER_LIST_EACH(&server->pages, page, struct muster_http_page, node) {
        if (strcmp(page->path, path) == 0)
            return page;
    }
    return NULL;
}

/* Pages of the program come first: they may take the place of the built-in ones. */
static void fill_reply(struct muster_http_server *server, const char *path,
                       struct muster_http_reply *reply)
{
    struct muster_http_page *page = find_page(server, path);

    if (page != NULL) {
        page->on_request(page, reply);
    } else if (strcmp(path, "/healthz") == 0) {
        show_health(server, reply);
    } else if (strcmp(path, "/metrics") == 0) {
        show_metrics(server, reply);
    } else {
        muster_http_reply_set_status(reply, HTTP_NOTFOUND);
        muster_http_reply_printf(reply, "not found\n");
    }
}

/* Requests. */

static void send_reply(struct evhttp_request *request, struct muster_http_reply *reply)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    char length[24];

    snprintf(length, sizeof(length), "%zu", evbuffer_get_length(reply->body));
    /* A page shows the state of this moment; a proxy that kept it would show an old one. nosniff:
     * texts of the program must not be run as scripts by a browser. */
    if (evhttp_add_header(headers, "Content-Type", reply->type) != 0 ||
        evhttp_add_header(headers, "Content-Length", length) != 0 ||
        evhttp_add_header(headers, "Cache-Control", "no-store") != 0 ||
        evhttp_add_header(headers, "X-Content-Type-Options", "nosniff") != 0)
        reply->status = HTTP_INTERNAL;
    /* RFC 9110 9.3.2: the length is that of the page, the body is not sent. */
    if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD)
        (void)evbuffer_drain(reply->body, evbuffer_get_length(reply->body));
    evhttp_send_reply(request, reply->status, NULL, reply->body);
}

/* A query that cannot be parsed counts as none. False: there was no memory for it. */
static bool parse_query(const char *query, struct evkeyvalq *ret_query)
{
    errno = 0;
    if (query != NULL && evhttp_parse_query_str(query, ret_query) == 0)
        return true;
    if (query != NULL && errno == ENOMEM)
        return false; /* it has been initialised */
    (void)evhttp_parse_query_str("", ret_query);
    return true;
}

static void on_request(struct evhttp_request *request, void *data)
{
    struct muster_http_server *server = data;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *path = uri != NULL ? evhttp_uri_get_path(uri) : NULL;
    const char *query = uri != NULL ? evhttp_uri_get_query(uri) : NULL;
    struct muster_http_reply reply = {.status = HTTP_OK, .type = TYPE_PLAIN, .request = request};

    reply.body = evbuffer_new();
    if (reply.body == NULL) {
        evhttp_send_error(request, HTTP_INTERNAL, NULL);
        return;
    }
    if (parse_query(query, &reply.query))
        fill_reply(server, path == NULL || path[0] == '\0' ? "/" : path, &reply);
    else
        muster_http_reply_set_status(&reply, HTTP_INTERNAL);
    send_reply(request, &reply);
    evhttp_clear_headers(&reply.query);
    evbuffer_free(reply.body);
}

/* Without this, libevent would try again at once and for ever while descriptors are short, and the
 * loop would do nothing else. */
static void on_accept_failed(struct evconnlistener *listener, void *data)
{
    struct muster_http_server *server = data;
    struct muster_loop *loop = server->env->loop;

    (void)evconnlistener_disable(listener);
    muster_timer_start(&server->backoff, loop, muster_loop_after_ns(loop, BACKOFF_NS));
}

static void on_backoff(struct muster_timer *timer)
{
    struct muster_http_server *server = timer->data;

    if (evconnlistener_enable(server->listener) != 0)
        on_accept_failed(server->listener, server);
}

/* Open and close. */

/* The server is freed by a task, because close may be called inside a request's callback, which
 * evhttp does not survive. */
static void on_task(struct muster_task *task)
{
    struct muster_http_server *server = task->data;

    evhttp_free(server->http);
    if (server->closed != NULL)
        server->closed(server);
    muster_mem_free(server->env->mem, server);
}

static enum muster_rc server_new(struct muster_env *env, struct event_base *base,
                                 struct muster_http_server **ret_server)
{
    struct muster_http_server *server = muster_mem_alloc_zero(env->mem, 1, sizeof(*server));

    if (server == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    server->env = env;
    muster_list_init(&server->pages);
    muster_list_init(&server->checks);
    muster_timer_init(&server->backoff, on_backoff, server);
    muster_task_init(&server->task, on_task, server);
    server->http = evhttp_new(base);
    if (server->http == NULL) {
        muster_mem_free(env->mem, server);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    evhttp_set_allowed_methods(server->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
    evhttp_set_max_headers_size(server->http, HEADERS_BYTES_MAX);
    evhttp_set_max_body_size(server->http, BODY_BYTES_MAX);
    evhttp_set_timeout(server->http, IDLE_S_MAX);
    evhttp_set_gencb(server->http, on_request, server);
    *ret_server = server;
    return MUSTER_OK;
}

static enum muster_rc server_listen(struct muster_http_server *server,
                                    const struct muster_address *address,
                                    struct muster_error *ret_error)
{
    /* The socket is made by net/stream like all others, so that it has the same options; evhttp
     * takes it over. */
    static const struct muster_stream_options defaults = {.send_buffer_bytes = 0};
    struct evhttp_bound_socket *bound;
    enum muster_rc rc;
    int fd = -1;

    if (address->family == MUSTER_ADDRESS_NONE || address->family == MUSTER_ADDRESS_UNIX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the http server must listen on an IP address, such as "
                                "127.0.0.1:8080");
    rc = muster_socket_listen(address, &defaults, &fd, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    server->address = muster_socket_local(fd);
    if (server->address.family == MUSTER_ADDRESS_NONE) {
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno,
                                  "http server: its own address is not known");
        close(fd);
        return rc;
    }
    bound = evhttp_accept_socket_with_handle(server->http, fd);
    if (bound == NULL) {
        close(fd);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "http server: no memory");
    }
    server->listener = evhttp_bound_socket_get_listener(bound);
    evconnlistener_set_error_cb(server->listener, on_accept_failed);
    if (evconnlistener_enable(server->listener) != 0) /* it may have failed before, in silence */
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "http server: no memory");
    return MUSTER_OK;
}

enum muster_rc muster_http_server_open(struct muster_env *env, const struct muster_address *address,
                                       struct muster_http_server **ret_server,
                                       struct muster_error *ret_error)
{
    struct event_base *base = muster_loop_event_base(env->loop);
    struct muster_http_server *server = NULL;
    enum muster_rc rc;

    /* evhttp lives on an event_base, which the loop on poll and the simulated loop do not have. */
    if (base == NULL)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                                "the http server must have a loop on libevent: open one with "
                                "muster_loop_open");
    rc = server_new(env, base, &server);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "http server: no memory");
    rc = server_listen(server, address, ret_error);
    if (rc != MUSTER_OK) {
        evhttp_free(server->http);
        muster_mem_free(env->mem, server);
        return rc;
    }
    *ret_server = server;
    return MUSTER_OK;
}

const struct muster_address *muster_http_server_address(const struct muster_http_server *server)
{
    return &server->address;
}

void muster_http_server_close(struct muster_http_server *server,
                              muster_http_server_close_fn *closed)
{
    MUSTER_ASSERT(!muster_task_is_posted(&server->task));
    /* The pages are their owners' memory, who may free them as soon as close has returned. */
    while (muster_list_pop(&server->pages) != NULL)
        continue;
    while (muster_list_pop(&server->checks) != NULL)
        continue;
    muster_timer_stop(&server->backoff);
    (void)evconnlistener_disable(server->listener);
    server->closed = closed;
    muster_task_post(&server->task, server->env->loop);
}

void muster_http_server_set_data(struct muster_http_server *server, void *data)
{
    server->data = data;
}

void *muster_http_server_data(const struct muster_http_server *server)
{
    return server->data;
}

enum muster_rc muster_http_page_add(struct muster_http_server *server,
                                    struct muster_http_page *page)
{
    if (find_page(server, page->path) != NULL)
        return MUSTER_ALREADY_EXISTS;
    muster_list_append(&server->pages, &page->node);
    return MUSTER_OK;
}

void muster_http_page_remove(struct muster_http_page *page)
{
    muster_list_remove(&page->node);
}

void muster_health_check_add(struct muster_http_server *server, struct muster_health_check *check)
{
    muster_list_append(&server->checks, &check->node);
}

void muster_health_check_remove(struct muster_health_check *check)
{
    muster_list_remove(&check->node);
}
