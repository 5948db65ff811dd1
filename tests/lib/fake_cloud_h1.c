/* The fake cloud over HTTP/1.1: one request after the other on a kept connection. */
#include "fake_cloud_internal.h"

#include <muster/stream.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/value/text.h"

#define READ_BYTES (16u << 10)

struct h1 {
    struct fake_connection connection;
    struct muster_stream *stream;
    struct muster_stream_read read;
    struct muster_stream_write write;
    struct muster_task task; /* drained without a write; next request */
    struct iovec piece;
    struct muster_text in;      /* received, not used yet */
    struct muster_text out;     /* to be sent */
    struct muster_text sending; /* lent to the stream */
    struct fake_exchange exchange;
    char bytes[READ_BYTES];
    bool is_busy; /* a request is being answered */
    bool is_writing;
    bool is_chunked;
    bool is_head;   /* the request: no body goes out */
    bool is_broken; /* close once out is empty */
    bool is_closed;
};

static struct h1 *h1_of(struct fake_exchange *exchange)
{
    return MUSTER_CONTAINER_OF(exchange, struct h1, exchange);
}

static void use_input(struct h1 *h1);

/* Closing. */

static void on_stream_closed(struct muster_stream *stream)
{
    struct h1 *h1 = stream->data;
    struct muster_mem *mem = h1->connection.cloud->env->mem;

    fake_exchange_fini(&h1->exchange);
    muster_text_fini(&h1->in);
    muster_text_fini(&h1->out);
    muster_text_fini(&h1->sending);
    fake_connection_fini(&h1->connection);
    muster_mem_free(mem, h1);
}

static void h1_close(struct fake_connection *connection)
{
    struct h1 *h1 = MUSTER_CONTAINER_OF(connection, struct h1, connection);

    if (h1->is_closed)
        return;
    h1->is_closed = true;
    muster_task_cancel(&h1->task);
    fake_exchange_leave(&h1->exchange);
    muster_stream_close(h1->stream, on_stream_closed);
}

/* Sending. */

static void on_written(struct muster_stream_write *write, enum muster_rc rc);

static void h1_flush(struct h1 *h1)
{
    struct muster_text empty = h1->sending;

    if (h1->is_writing || h1->is_closed || h1->out.count == 0)
        return;
    h1->sending = h1->out;
    h1->out = empty;
    muster_text_clear(&h1->out);
    h1->piece = (struct iovec){.iov_base = h1->sending.bytes, .iov_len = h1->sending.count};
    if (muster_stream_submit(&h1->write, h1->stream, &h1->piece, 1, on_written) == MUSTER_OK)
        h1->is_writing = true;
    else
        h1_close(&h1->connection);
}

static void after_output(struct h1 *h1)
{
    if (h1->is_broken)
        h1_close(&h1->connection);
    else if (h1->is_busy)
        fake_exchange_drained(&h1->exchange);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct h1 *h1 = write->data;

    h1->is_writing = false;
    if (h1->is_closed)
        return;
    if (rc != MUSTER_OK) {
        h1_close(&h1->connection);
        return;
    }
    if (h1->out.count > 0)
        h1_flush(h1);
    else
        after_output(h1);
}

static void on_task(struct muster_task *task)
{
    struct h1 *h1 = task->data;

    if (!h1->is_writing && h1->out.count == 0)
        after_output(h1);
    if (!h1->is_closed && !h1->is_busy)
        use_input(h1);
}

static void h1_wake(struct h1 *h1)
{
    muster_task_post(&h1->task, h1->connection.cloud->env->loop);
}

/* The wire. */

static void wire_head(struct fake_exchange *exchange, int status, const struct muster_json *headers,
                      const char *content_type, int64_t length)
{
    struct h1 *h1 = h1_of(exchange);
    struct muster_json_walk walk;
    bool has_length = false, has_type = false;

    muster_text_add_format(&h1->out, "HTTP/1.1 %d Whatever\r\n", status);
    for (bool more = muster_json_walk_first(&walk, headers); more;
         more = muster_json_walk_next(&walk)) {
        const char *value = muster_json_text(walk.value);

        has_type = has_type || strcasecmp(walk.name, "content-type") == 0;
        has_length = has_length || strcasecmp(walk.name, "content-length") == 0;
        muster_text_add_format(&h1->out, "%s: %s\r\n", walk.name, value != NULL ? value : "");
    }
    h1->is_chunked = length < 0;
    if (!has_type)
        muster_text_add_format(&h1->out, "Content-Type: %s\r\n", content_type);
    if (h1->is_chunked)
        muster_text_add_string(&h1->out, "Transfer-Encoding: chunked\r\n");
    else if (!has_length && status != 204 && status != 304)
        muster_text_add_format(&h1->out, "Content-Length: %lld\r\n", (long long)length);
    muster_text_add_string(&h1->out, "\r\n");
    h1_flush(h1);
}

static void wire_body(struct fake_exchange *exchange, const void *bytes, size_t count)
{
    struct h1 *h1 = h1_of(exchange);

    if (h1->is_head) {
        h1_wake(h1);
        return;
    }
    if (h1->is_chunked)
        muster_text_add_format(&h1->out, "%zx\r\n", count);
    muster_text_add(&h1->out, bytes, count);
    if (h1->is_chunked)
        muster_text_add_string(&h1->out, "\r\n");
    h1_flush(h1);
}

static void wire_end(struct fake_exchange *exchange)
{
    struct h1 *h1 = h1_of(exchange);

    if (h1->is_chunked && !h1->is_head)
        muster_text_add_string(&h1->out, "0\r\n\r\n");
    h1_flush(h1);
    h1->is_busy = false;
    h1_wake(h1);
}

static void wire_breaks(struct fake_exchange *exchange)
{
    struct h1 *h1 = h1_of(exchange);

    h1->is_broken = true;
    h1_wake(h1);
}

static void wire_raw(struct fake_exchange *exchange, const char *text)
{
    struct h1 *h1 = h1_of(exchange);

    muster_text_add_string(&h1->out, text);
    h1_flush(h1);
    wire_breaks(exchange);
}

/* Receiving. */

static void on_read(struct muster_stream_read *read, enum muster_rc rc);

static void read_more(struct h1 *h1)
{
    if (!h1->is_closed && muster_stream_receive_into(&h1->read, h1->stream, h1->bytes, 1,
                                                     READ_BYTES, on_read) != MUSTER_OK)
        h1_close(&h1->connection);
}

/* Reads on while an answer is played, so that a client that hangs up is noticed. */
static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct h1 *h1 = read->data;

    if (h1->is_closed)
        return;
    if (rc != MUSTER_OK || h1->in.count > FAKE_HEADER_BYTES + FAKE_BODY_BYTES) {
        h1_close(&h1->connection);
        return;
    }
    muster_text_add(&h1->in, h1->bytes, read->bytes_done);
    if (!h1->is_busy)
        use_input(h1);
    read_more(h1);
}

/* Lines of "name: value" into the exchange. Returns the length of the body. */
static size_t take_headers(struct h1 *h1, char *at)
{
    size_t length = 0;

    while (*at != '\0') {
        char *line_end = strstr(at, "\r\n");
        char *colon = strchr(at, ':');

        if (line_end != NULL)
            *line_end = '\0';
        if (colon != NULL && (line_end == NULL || colon < line_end)) {
            *colon = '\0';
            for (char *c = at; *c != '\0'; c++)
                *c = (char)(*c >= 'A' && *c <= 'Z' ? *c | 0x20 : *c);
            colon += 1 + strspn(colon + 1, " \t");
            fake_exchange_add_header(&h1->exchange, at, colon);
            if (strcmp(at, "content-length") == 0)
                length = strtoul(colon, NULL, 10);
        }
        at = line_end != NULL ? line_end + 2 : at + strlen(at);
    }
    return length;
}

/* "METHOD target HTTP/1.1" CRLF headers. */
static void h1_answer(struct h1 *h1, char *head, const char *body, size_t body_bytes)
{
    char *line_end = strstr(head, "\r\n");
    char *target = strchr(head, ' ');
    char *target_end;

    if (line_end != NULL)
        *line_end = '\0';
    target_end = target != NULL ? strchr(target + 1, ' ') : NULL;
    if (target_end == NULL) {
        h1_close(&h1->connection);
        return;
    }
    *target = '\0';
    *target_end = '\0';
    h1->is_busy = true;
    h1->is_chunked = false;
    h1->is_head = strcmp(head, "HEAD") == 0;
    fake_exchange_begin(&h1->exchange, head, target + 1, body, body_bytes, false);
}

static void use_input(struct h1 *h1)
{
    char *end = h1->in.count > 0 ? memmem(h1->in.bytes, h1->in.count, "\r\n\r\n", 4) : NULL;
    size_t head_bytes, body_bytes, left;
    char *head, *headers;

    if (end == NULL || h1->is_broken)
        return;
    head_bytes = (size_t)(end - h1->in.bytes) + 4;
    head = strndup(h1->in.bytes, head_bytes - 4);
    fake_exchange_fini(&h1->exchange);
    fake_exchange_init(&h1->exchange, h1->connection.cloud, h1->exchange.wire);
    headers = strstr(head, "\r\n");
    body_bytes = headers != NULL ? take_headers(h1, headers + 2) : 0;
    if (body_bytes <= FAKE_BODY_BYTES && h1->in.count >= head_bytes + body_bytes) {
        if (headers != NULL)
            memcpy(headers, "\r\n", 2);
        h1_answer(h1, head, h1->in.bytes + head_bytes, body_bytes);
        left = h1->in.count - head_bytes - body_bytes;
        memmove(h1->in.bytes, h1->in.bytes + head_bytes + body_bytes, left);
        h1->in.count = left;
        h1->in.bytes[left] = '\0';
    }
    free(head);
}

void fake_h1_open(struct fake_cloud *cloud, struct muster_stream *stream)
{
    static const struct fake_wire wire = {.head = wire_head,
                                          .body = wire_body,
                                          .end = wire_end,
                                          .raw = wire_raw,
                                          .breaks = wire_breaks};
    struct muster_mem *mem = cloud->env->mem;
    struct h1 *h1 = muster_mem_alloc_zero(mem, 1, sizeof(*h1));

    if (h1 == NULL) {
        muster_stream_close(stream, NULL);
        return;
    }
    fake_connection_init(&h1->connection, cloud, h1_close);
    h1->stream = stream;
    stream->data = h1;
    h1->read.data = h1;
    h1->write.data = h1;
    muster_task_init(&h1->task, on_task, h1);
    muster_text_init(&h1->in, mem);
    muster_text_init(&h1->out, mem);
    muster_text_init(&h1->sending, mem);
    fake_exchange_init(&h1->exchange, cloud, &wire);
    read_more(h1);
}
