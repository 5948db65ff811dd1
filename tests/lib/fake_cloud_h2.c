/* The fake cloud over HTTP/2: every stream of a session is an exchange. */
#include "fake_cloud_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "net/h2/session.h"
#include "runtime/value/text.h"
#include "test_env.h"

#define STREAMS_DEFAULT 250
#define WINDOW_BYTES    (1u << 20)
#define ANSWER_HEADERS  32
#define H2_NO_ERROR     0
#define H2_INTERNAL     2

struct h2 {
    struct fake_connection connection;
    struct muster_h2_session *session;
};

struct h2_exchange {
    struct fake_exchange exchange;
    struct muster_h2_stream stream;
    char method[16];
    char *target;
    struct muster_text body;
    bool has_begun;
};

static struct h2_exchange *ours_of(struct fake_exchange *exchange)
{
    return MUSTER_CONTAINER_OF(exchange, struct h2_exchange, exchange);
}

/* The wire. */

static void wire_head(struct fake_exchange *exchange, int status, const struct muster_json *headers,
                      const char *content_type, int64_t length)
{
    struct h2_exchange *ours = ours_of(exchange);
    struct muster_h2_header list[ANSWER_HEADERS + 3];
    char names[ANSWER_HEADERS][64];
    struct muster_json_walk walk;
    char code[16], size[24];
    size_t count = 0;
    bool has_type = false;

    snprintf(code, sizeof(code), "%d", status);
    list[count++] = (struct muster_h2_header){
        .name = ":status", .name_bytes = 7, .value = code, .value_bytes = (uint32_t)strlen(code)};
    for (bool more = muster_json_walk_first(&walk, headers); more && count < ANSWER_HEADERS;
         more = muster_json_walk_next(&walk)) {
        const char *value = muster_json_text(walk.value);
        char *name = names[count];

        snprintf(name, sizeof(names[0]), "%s", walk.name);
        for (char *at = name; *at != '\0'; at++)
            *at = (char)(*at >= 'A' && *at <= 'Z' ? *at | 0x20 : *at);
        has_type = has_type || strcmp(name, "content-type") == 0;
        list[count++] =
            (struct muster_h2_header){.name = name,
                                      .name_bytes = (uint16_t)strlen(name),
                                      .value = value != NULL ? value : "",
                                      .value_bytes = value != NULL ? (uint32_t)strlen(value) : 0};
    }
    if (!has_type)
        list[count++] = (struct muster_h2_header){.name = "content-type",
                                                  .name_bytes = 12,
                                                  .value = content_type,
                                                  .value_bytes = (uint32_t)strlen(content_type)};
    snprintf(size, sizeof(size), "%lld", (long long)length);
    if (length >= 0 && status != 204 && status != 304)
        list[count++] = (struct muster_h2_header){.name = "content-length",
                                                  .name_bytes = 14,
                                                  .value = size,
                                                  .value_bytes = (uint32_t)strlen(size)};
    muster_h2_stream_respond(&ours->stream, list, count, false, false);
}

static void wire_body(struct fake_exchange *exchange, const void *bytes, size_t count)
{
    struct h2_exchange *ours = ours_of(exchange);
    struct muster_h2_buffer *buffer = muster_h2_buffer_new(exchange->cloud->env->mem, count);

    assert_non_null(buffer);
    memcpy(buffer->bytes, bytes, count);
    muster_h2_stream_send(&ours->stream, buffer);
}

static void wire_end(struct fake_exchange *exchange)
{
    muster_h2_stream_end(&ours_of(exchange)->stream);
}

static void wire_breaks(struct fake_exchange *exchange)
{
    muster_h2_stream_reset(&ours_of(exchange)->stream, H2_INTERNAL);
}

static void wire_raw(struct fake_exchange *exchange, const char *text)
{
    (void)text;
    wire_breaks(exchange);
}

static const struct fake_wire wire = {
    .head = wire_head, .body = wire_body, .end = wire_end, .raw = wire_raw, .breaks = wire_breaks};

/* The session's events. */

static struct muster_h2_stream *on_begin(struct muster_h2_session *session)
{
    struct h2 *h2 = muster_h2_session_data(session);
    struct muster_mem *mem = h2->connection.cloud->env->mem;
    struct h2_exchange *ours = muster_mem_alloc_zero(mem, 1, sizeof(*ours));

    if (ours == NULL)
        return NULL;
    muster_h2_stream_init(&ours->stream, ours, 0);
    fake_exchange_init(&ours->exchange, h2->connection.cloud, &wire);
    muster_text_init(&ours->body, mem);
    return &ours->stream;
}

static void on_header(struct muster_h2_stream *stream, const char *name, size_t name_bytes,
                      const char *value, size_t value_bytes)
{
    struct h2_exchange *ours = stream->data;
    struct muster_mem *mem = ours->exchange.cloud->env->mem;
    char *name_text = muster_mem_strndup(mem, name, name_bytes);
    char *value_text = muster_mem_strndup(mem, value, value_bytes);

    if (name_text != NULL && value_text != NULL && !ours->has_begun) {
        if (strcmp(name_text, ":method") == 0)
            snprintf(ours->method, sizeof(ours->method), "%s", value_text);
        else if (strcmp(name_text, ":path") == 0 && ours->target == NULL)
            ours->target = muster_mem_strdup(mem, value_text);
        else
            fake_exchange_add_header(&ours->exchange,
                                     strcmp(name_text, ":authority") == 0 ? "host" : name_text,
                                     value_text);
    }
    muster_mem_free(mem, name_text);
    muster_mem_free(mem, value_text);
}

static void begin_stream(struct h2_exchange *ours)
{
    if (ours->has_begun)
        return;
    ours->has_begun = true;
    fake_exchange_begin(&ours->exchange, ours->method, ours->target != NULL ? ours->target : "/",
                        ours->body.bytes, ours->body.count, true);
}

static void on_headers(struct muster_h2_stream *stream, bool is_end)
{
    if (is_end)
        begin_stream(stream->data);
}

static void on_data(struct muster_h2_stream *stream, const void *bytes, size_t count, bool is_end)
{
    struct h2_exchange *ours = stream->data;

    if (ours->body.count + count <= FAKE_BODY_BYTES)
        muster_text_add(&ours->body, bytes, count);
    muster_h2_stream_consume(stream, count);
    if (is_end)
        begin_stream(ours);
}

static void on_end(struct muster_h2_stream *stream)
{
    begin_stream(stream->data);
}

static void on_drained(struct muster_h2_stream *stream)
{
    struct h2_exchange *ours = stream->data;

    fake_exchange_drained(&ours->exchange);
}

static void on_close(struct muster_h2_stream *stream, uint32_t code)
{
    struct h2_exchange *ours = stream->data;
    struct muster_mem *mem = ours->exchange.cloud->env->mem;

    (void)code;
    fake_exchange_fini(&ours->exchange);
    muster_h2_stream_fini(stream);
    muster_text_fini(&ours->body);
    muster_mem_free(mem, ours->target);
    muster_mem_free(mem, ours);
}

static void on_closed(struct muster_h2_session *session)
{
    struct h2 *h2 = muster_h2_session_data(session);
    struct muster_mem *mem = h2->connection.cloud->env->mem;

    fake_connection_fini(&h2->connection);
    muster_mem_free(mem, h2);
}

static void on_down(struct muster_h2_session *session, const struct muster_error *error)
{
    (void)error;
    muster_h2_session_close(session, on_closed);
}

static void h2_close(struct fake_connection *connection)
{
    struct h2 *h2 = MUSTER_CONTAINER_OF(connection, struct h2, connection);

    muster_h2_session_close(h2->session, on_closed);
}

static void on_stream_event(struct muster_h2_stream *stream)
{
    (void)stream;
}

static void on_session_event(struct muster_h2_session *session)
{
    (void)session;
}

static void on_goaway(struct muster_h2_session *session, uint32_t code, const char *text,
                      size_t length)
{
    (void)session;
    (void)code;
    (void)text;
    (void)length;
}

static const struct muster_h2_events events = {
    .on_begin = on_begin,
    .on_header = on_header,
    .on_headers = on_headers,
    .on_data = on_data,
    .on_end = on_end,
    .on_over_limit = on_stream_event,
    .on_trailers = on_stream_event,
    .on_drained = on_drained,
    .on_close = on_close,
    .on_settings = on_session_event,
    .on_ping = on_session_event,
    .on_pong = on_session_event,
    .on_goaway = on_goaway,
    .on_down = on_down,
};

void fake_h2_open(struct fake_cloud *cloud, struct muster_stream *stream)
{
    const struct muster_h2_options options = {
        .is_server = true,
        .stream_window_bytes = WINDOW_BYTES,
        .connection_window_bytes = WINDOW_BYTES,
        .concurrent_streams_max =
            cloud->options.streams_max != 0 ? cloud->options.streams_max : STREAMS_DEFAULT,
        .header_list_max_bytes = FAKE_HEADER_BYTES,
        .frame_max_bytes = 16384,
    };
    struct h2 *h2 = muster_mem_alloc_zero(cloud->env->mem, 1, sizeof(*h2));

    if (h2 == NULL) {
        muster_stream_close(stream, NULL);
        return;
    }
    if (muster_h2_session_open(cloud->env, stream, &options, &events, h2, &h2->session) !=
        MUSTER_OK) {
        muster_mem_free(cloud->env->mem, h2);
        return;
    }
    fake_connection_init(&h2->connection, cloud, h2_close);
    cloud->counts.connections_h2++;
}
