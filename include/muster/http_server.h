/* A small HTTP/1.1 server for people and probes: /healthz, /metrics and pages that others add. */
#ifndef MUSTER_HTTP_SERVER_H
#define MUSTER_HTTP_SERVER_H

#include <muster/address.h>
#include <muster/base.h>
#include <muster/env.h>
#include <muster/list.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_http_server;
struct muster_http_page;
struct muster_http_reply;
struct muster_health_check;

typedef void muster_http_server_close_fn(struct muster_http_server *server);
/** Fill reply; it is sent when this returns. */
typedef void muster_http_page_fn(struct muster_http_page *page, struct muster_http_reply *reply);
/** OK, or why not: ret_error's text is shown to whoever asks. Must answer at once. */
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
 * Serve `/healthz` (200 "ok", or 503 and one line per failed check) and `/metrics` (env->metrics in
 * Prometheus text) on address, by GET and HEAD.
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
