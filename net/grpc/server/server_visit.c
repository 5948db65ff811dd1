/* Connections of a server with pages, until their first bytes tell HTTP/2 from HTTP/1.1: the latter
 * serves one request for a page (RFC 9112), for probes that speak nothing else. A stream of HTTP/2
 * goes on to server_connection.c with its bytes put back; a visit reads at most REQUEST_BYTES_MAX
 * and lasts at most VISIT_NS. */
#include <stdio.h>
#include <string.h>

#include "net/grpc/server/rpc_server_internal.h"
#include "net/tls/stream.h"

#define HTTP2_MAGIC       "PRI " /* RFC 9113 3.4 */
#define MAGIC_BYTES       4
#define REQUEST_BYTES_MAX 8192
#define HEAD_BYTES        256
#define VISIT_NS          (10 * MUSTER_NS_PER_S)
#define VISITS_MAX        1024 /* one more ends the oldest */
#define NOT_FOUND_TEXT    "404 page not found\n"
#define NOT_ALLOWED_TEXT  "405 method not allowed\n"
#define MALFORMED_TEXT    "400 bad request\n"

/* A connection whose protocol is not known yet, or that speaks HTTP/1.1. */
struct rpc_visit {
    struct muster_list node;
    struct muster_rpc_server *server;
    struct muster_stream *stream;
    struct muster_stream_read read;
    struct muster_stream_write write;
    struct muster_timer timer;
    struct iovec iov[2];
    struct muster_rpc_page_answer answer;
    size_t bytes;
    char request[REQUEST_BYTES_MAX + 1];
    char head[HEAD_BYTES];
    bool is_closing;
};

static void visit_free(struct rpc_visit *visit)
{
    struct muster_rpc_server *server = visit->server;

    MUSTER_ASSERT(visit->is_closing || server->visit_count > 0);
    muster_timer_stop(&visit->timer);
    muster_list_remove(&visit->node);
    if (!visit->is_closing)
        server->visit_count--;
    muster_mem_free(server->env->mem, visit->answer.body);
    muster_mem_free(server->env->mem, visit);
}

static void on_visit_closed(struct muster_stream *stream)
{
    struct rpc_visit *visit = stream->data;
    struct muster_rpc_server *server = visit->server;

    MUSTER_ASSERT(visit->is_closing);
    visit_free(visit);
    muster_rpc_server_check_closed(server);
}

/* A closing visit is in a list of its own, so that the first one of the other list is the oldest
 * that can be ended. */
static void visit_close(struct rpc_visit *visit)
{
    muster_timer_stop(&visit->timer);
    if (visit->is_closing)
        return;
    visit->is_closing = true;
    visit->server->visit_count--; /* the oldest of the others is the next that may have to go */
    muster_list_remove(&visit->node);
    muster_list_append(&visit->server->closing_visits, &visit->node);
    muster_stream_close(visit->stream, on_visit_closed);
}

static void on_visit_due(struct muster_timer *timer)
{
    visit_close(timer->data);
}

static void on_rest(struct muster_stream_read *read, enum muster_rc rc);

/* Closing on bytes that were not read makes TCP send a reset, which would take the answer back from
 * a client that still sends (RFC 9112 9.6). */
static void discard_rest(struct rpc_visit *visit)
{
    if (muster_stream_receive_into(&visit->read, visit->stream, visit->request, 1,
                                   REQUEST_BYTES_MAX, on_rest) != MUSTER_OK)
        visit_close(visit);
}

static void on_rest(struct muster_stream_read *read, enum muster_rc rc)
{
    if (rc == MUSTER_OK)
        discard_rest(read->data);
    else
        visit_close(read->data);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct rpc_visit *visit = write->data;

    if (rc != MUSTER_OK) {
        visit_close(visit);
        return;
    }
    muster_stream_shutdown(visit->stream);
    discard_rest(visit);
}

static const char *status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {{200, "OK"},
                 {400, "Bad Request"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {500, "Internal Server Error"},
                 {503, "Service Unavailable"}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].status == status)
            return texts[i].text;
    return "";
}

static void visit_answer(struct rpc_visit *visit, const char *body, size_t bytes, bool is_head)
{
    const struct muster_rpc_page_answer *answer = &visit->answer;
    int head_bytes = snprintf(visit->head, sizeof(visit->head),
                              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
                              "Connection: close\r\n\r\n",
                              answer->status, status_text(answer->status), answer->type, bytes,
                              answer->status == 405 ? "Allow: GET, HEAD\r\n" : "");

    MUSTER_ASSERT(head_bytes > 0 && head_bytes < HEAD_BYTES); /* see muster_rpc_page_answer.type */
    visit->iov[0] = (struct iovec){visit->head, (size_t)head_bytes};
    visit->iov[1] = (struct iovec){(void *)(uintptr_t)body, bytes};
    visit->write.data = visit;
    if (muster_stream_submit(&visit->write, visit->stream, visit->iov,
                             is_head || bytes == 0 ? 1 : 2, on_written) != MUSTER_OK)
        visit_close(visit);
}

static void visit_refuse(struct rpc_visit *visit, int status, const char *text, bool is_head)
{
    visit->answer = (struct muster_rpc_page_answer){.status = status, .type = MUSTER_RPC_PAGE_TYPE};
    visit_answer(visit, text, strlen(text), is_head);
}

/* The request is whole. */
static void visit_serve(struct rpc_visit *visit)
{
    char *path = strchr(visit->request, ' ');
    char *end = path != NULL ? strchr(path + 1, ' ') : NULL;
    bool is_head = strncmp(visit->request, "HEAD ", 5) == 0;
    bool is_get = is_head || strncmp(visit->request, "GET ", 4) == 0;
    struct muster_rpc_page *page;

    if (end == NULL || strncmp(end, " HTTP/1.", 8) != 0 || strchr(visit->request, '\n') < end) {
        visit_refuse(visit, 400, MALFORMED_TEXT, false);
        return;
    }
    page = muster_rpc_server_find_page(visit->server, path + 1, (size_t)(end - path - 1));
    if (page == NULL) {
        visit_refuse(visit, 404, NOT_FOUND_TEXT, is_head);
    } else if (!is_get) {
        visit_refuse(visit, 405, NOT_ALLOWED_TEXT, false);
    } else {
        muster_rpc_page_ask(page, &visit->answer);
        visit_answer(visit, visit->answer.body, visit->answer.body_bytes, is_head);
    }
}

/* A method of HTTP/1.1. All else is HTTP/2's, which refuses what it does not know, TLS too, in a
 * way that its clients understand. */
static bool is_method(const char *magic)
{
    for (size_t i = 0; i < MAGIC_BYTES; i++)
        if ((magic[i] < 'A' || magic[i] > 'Z') && (magic[i] != ' ' || i == 0))
            return false;
    return memcmp(magic, HTTP2_MAGIC, MAGIC_BYTES) != 0;
}

static void visit_hand_on(struct rpc_visit *visit)
{
    struct muster_rpc_server *server = visit->server;
    struct muster_stream *stream = visit->stream;

    muster_stream_unread(stream, visit->request, visit->bytes);
    stream->data = NULL;
    visit_free(visit);
    if (muster_rpc_server_attach_secured(server, stream) != MUSTER_OK)
        MUSTER_LOG(server->env, WARN, "rpc_connection_refused");
}

static void visit_read(struct rpc_visit *visit, size_t bytes_min, size_t bytes_max);

static void on_bytes(struct muster_stream_read *read, enum muster_rc rc)
{
    struct rpc_visit *visit = read->data;

    if (rc != MUSTER_OK) {
        visit_close(visit);
        return;
    }
    visit->bytes += read->bytes_done;
    /* The buffer has a byte more than may be read. A request with a NUL in it never seems whole,
     * and ends by its size or its time. */
    visit->request[visit->bytes] = '\0';
    if (visit->bytes == MAGIC_BYTES && !is_method(visit->request))
        visit_hand_on(visit);
    else if (strstr(visit->request, "\r\n\r\n") != NULL)
        visit_serve(visit);
    else if (visit->bytes == REQUEST_BYTES_MAX)
        visit_refuse(visit, 400, MALFORMED_TEXT, false);
    else
        visit_read(visit, 1, REQUEST_BYTES_MAX - visit->bytes);
}

static void visit_read(struct rpc_visit *visit, size_t bytes_min, size_t bytes_max)
{
    MUSTER_ASSERT(visit->bytes + bytes_max <= REQUEST_BYTES_MAX);
    visit->read.data = visit;
    if (muster_stream_receive_into(&visit->read, visit->stream, visit->request + visit->bytes,
                                   bytes_min, bytes_max, on_bytes) != MUSTER_OK)
        visit_close(visit);
}

enum muster_rc muster_rpc_server_visit(struct muster_rpc_server *server,
                                       struct muster_stream *stream)
{
    struct rpc_visit *visit = NULL;

    if (server->visit_count >= VISITS_MAX)
        visit_close(MUSTER_CONTAINER_OF(server->visits.next, struct rpc_visit, node));
    if (!server->is_closing)
        visit = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*visit));
    if (visit == NULL) {
        muster_stream_close(stream, NULL);
        return server->is_closing ? MUSTER_FAILED_PRECONDITION : MUSTER_RESOURCE_EXHAUSTED;
    }
    visit->server = server;
    visit->stream = stream;
    stream->data = visit;
    muster_list_append(&server->visits, &visit->node);
    server->visit_count++;
    muster_timer_init(&visit->timer, on_visit_due, visit);
    muster_timer_start(&visit->timer, server->env->loop,
                       muster_loop_after_ns(server->env->loop, VISIT_NS));
    /* Exactly four bytes come first: they tell the protocols apart, and are put back for HTTP/2. */
    visit_read(visit, MAGIC_BYTES, MAGIC_BYTES);
    return MUSTER_OK;
}

void muster_rpc_server_end_visits(struct muster_rpc_server *server)
{
    MUSTER_LIST_EACH_SAFE(&server->visits, visit, struct rpc_visit, node)
        visit_close(visit);
}
