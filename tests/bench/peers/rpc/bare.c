/* bench.Echo on nothing but nghttp2, libevent and protobuf-c: what a C server costs that has no
 * limits, deadlines or streams. One write per read; response headers and trailers are static.
 * usage: bare PORT */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/echo.pb-c.h"

#define READ_BYTES   (256u << 10)
#define GATHER_BYTES (64u << 10)
#define STATIC(n, v)                                                                               \
    {                                                                                              \
        (uint8_t *)(n), (uint8_t *)(v), sizeof(n) - 1, sizeof(v) - 1,                              \
            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE                           \
    }

struct connection {
    int fd;
    nghttp2_session *session;
    struct event *readable, *writable;
    uint8_t *rest; /* what the socket did not take */
    size_t rest_bytes, rest_sent;
};

struct call {
    struct call *next;
    char path[32];
    uint8_t *in, *out;
    size_t in_bytes, in_room, out_bytes, out_sent;
};

static struct call *free_calls;
static uint8_t read_buffer[READ_BYTES], gathered[GATHER_BYTES + (32u << 10)];
static struct event_base *base;

static void connection_close(struct connection *connection)
{
    event_free(connection->readable);
    event_free(connection->writable);
    nghttp2_session_del(connection->session);
    close(connection->fd);
    free(connection->rest);
    free(connection);
}

/* False: the connection is gone. */
static int put_bytes(struct connection *connection, const uint8_t *bytes, size_t count)
{
    ssize_t sent = write(connection->fd, bytes, count);

    if (sent < 0 && errno != EAGAIN)
        return 0;
    if (sent < 0)
        sent = 0;
    if ((size_t)sent < count) {
        connection->rest_bytes = count - (size_t)sent;
        connection->rest_sent = 0;
        connection->rest = malloc(connection->rest_bytes);
        memcpy(connection->rest, bytes + sent, connection->rest_bytes);
        event_add(connection->writable, NULL);
    }
    return 1;
}

static int flush_output(struct connection *connection)
{
    while (connection->rest == NULL) {
        size_t count = 0;

        while (count < GATHER_BYTES) {
            const uint8_t *bytes;
            ssize_t more = nghttp2_session_mem_send(connection->session, &bytes);

            if (more < 0)
                return 0;
            if (more == 0)
                break;
            memcpy(gathered + count, bytes, (size_t)more);
            count += (size_t)more;
        }
        if (count == 0)
            return 1;
        if (!put_bytes(connection, gathered, count))
            return 0;
    }
    return 1;
}

static void on_writable(int fd, short what, void *data)
{
    struct connection *connection = data;
    ssize_t sent = write(fd, connection->rest + connection->rest_sent,
                         connection->rest_bytes - connection->rest_sent);

    (void)what;
    if (sent < 0 && errno == EAGAIN)
        sent = 0;
    if (sent >= 0)
        connection->rest_sent += (size_t)sent;
    if (sent >= 0 && connection->rest_sent < connection->rest_bytes) {
        event_add(connection->writable, NULL);
        return;
    }
    free(connection->rest);
    connection->rest = NULL;
    if (sent < 0 || !flush_output(connection))
        connection_close(connection);
}

static void on_readable(int fd, short what, void *data)
{
    struct connection *connection = data;
    ssize_t count = read(fd, read_buffer, sizeof(read_buffer));

    (void)what;
    if (count < 0 && errno == EAGAIN)
        return;
    if (count <= 0 ||
        nghttp2_session_mem_recv(connection->session, read_buffer, (size_t)count) < 0 ||
        !flush_output(connection))
        connection_close(connection);
}

static ssize_t on_body(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t room,
                       uint32_t *flags, nghttp2_data_source *source, void *data)
{
    static const nghttp2_nv trailer = STATIC("grpc-status", "0");
    struct call *call = source->ptr;
    size_t count = call->out_bytes - call->out_sent;

    (void)data;
    if (count > room)
        count = room;
    memcpy(buffer, call->out + call->out_sent, count);
    call->out_sent += count;
    if (call->out_sent == call->out_bytes) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, id, &trailer, 1);
    }
    return (ssize_t)count;
}

static void pack_call(struct call *call, const ProtobufCMessage *message)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);

    call->out = malloc(5 + bytes);
    call->out_bytes = 5 + bytes;
    call->out[0] = 0;
    *(uint32_t *)(void *)(call->out + 1) = htonl((uint32_t)bytes);
    protobuf_c_message_pack(message, call->out + 5);
}

static void answer_down(struct call *call)
{
    Bench__Req *request = bench__req__unpack(NULL, call->in_bytes - 5, call->in + 5);
    Bench__Msg reply = BENCH__MSG__INIT;

    if (request == NULL)
        return;
    reply.payload.len = (size_t)request->size;
    reply.payload.data = calloc(1, reply.payload.len + 1);
    pack_call(call, &reply.base);
    free(reply.payload.data);
    bench__req__free_unpacked(request, NULL);
}

static void answer_call(nghttp2_session *session, int32_t id, struct call *call)
{
    static const nghttp2_nv head[] = {STATIC(":status", "200"),
                                      STATIC("content-type", "application/grpc")};
    nghttp2_data_provider body = {{.ptr = call}, on_body};

    if (strcmp(call->path, "/bench.Echo/Down") == 0) {
        answer_down(call);
    } else {
        Bench__Msg *message = bench__msg__unpack(NULL, call->in_bytes - 5, call->in + 5);
        Bench__Req size = BENCH__REQ__INIT;

        if (message == NULL)
            return;
        size.size = (int32_t)message->payload.len;
        pack_call(call, strcmp(call->path, "/bench.Echo/Up") == 0 ? &size.base : &message->base);
        bench__msg__free_unpacked(message, NULL);
    }
    nghttp2_submit_response(session, id, head, 2, &body);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct call *call = free_calls;

    (void)data;
    if (call != NULL)
        free_calls = call->next;
    else
        call = calloc(1, sizeof(*call));
    call->in_bytes = call->out_sent = 0;
    return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                     void *data)
{
    struct call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    (void)flags;
    (void)data;
    if (call != NULL && name_bytes == 5 && memcmp(name, ":path", 5) == 0 &&
        value_bytes < sizeof(call->path)) {
        memcpy(call->path, value, value_bytes);
        call->path[value_bytes] = '\0';
    }
    return 0;
}

static int on_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                    size_t count, void *data)
{
    struct call *call = nghttp2_session_get_stream_user_data(session, id);

    (void)flags;
    (void)data;
    if (call->in_bytes + count > call->in_room) {
        call->in_room = 2 * (call->in_bytes + count);
        call->in = realloc(call->in, call->in_room);
    }
    memcpy(call->in + call->in_bytes, bytes, count);
    call->in_bytes += count;
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct call *call;

    (void)data;
    if ((frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS) ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call != NULL && call->in_bytes >= 5)
        answer_call(session, frame->hd.stream_id, call);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *data)
{
    struct call *call = nghttp2_session_get_stream_user_data(session, id);

    (void)code;
    (void)data;
    if (call == NULL)
        return 0;
    free(call->out);
    call->out = NULL;
    if (call->in_room > READ_BYTES) {
        free(call->in);
        call->in = NULL;
        call->in_room = 0;
    }
    call->next = free_calls;
    free_calls = call;
    return 0;
}

static nghttp2_session_callbacks *callbacks;

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int length, void *data)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1000},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 16u << 20}};
    struct connection *connection = calloc(1, sizeof(*connection));
    int one = 1;

    (void)listener;
    (void)peer;
    (void)length;
    (void)data;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    connection->fd = fd;
    nghttp2_session_server_new(&connection->session, callbacks, connection);
    nghttp2_submit_settings(connection->session, 0, settings, 2);
    nghttp2_session_set_local_window_size(connection->session, 0, 0, 64 << 20);
    connection->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, connection);
    connection->writable = event_new(base, fd, EV_WRITE, on_writable, connection);
    event_add(connection->readable, NULL);
    if (!flush_output(connection))
        connection_close(connection);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    struct evconnlistener *listener;

    signal(SIGPIPE, SIG_IGN);
    address.sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 0));
    base = event_base_new();
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    listener =
        evconnlistener_new_bind(base, on_accept, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE,
                                4096, (struct sockaddr *)&address, sizeof(address));
    if (listener == NULL ||
        getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&address, &length) != 0)
        return 1;
    printf("listening 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return event_base_dispatch(base);
}
