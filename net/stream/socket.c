/* A byte stream on a connected, non-blocking socket: receives straight into the caller's buffer,
 * events, close. Callbacks come from the loop's events or from the task, never from inside a start.
 */
#include "net/stream/socket_internal.h"
#include "net/stream/request.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* One descriptor receives so much in a turn; then the others have theirs. Many small receives are
 * as long a turn as a few large ones. */
#define TURN_BYTES_MAX    (4u << 20)
#define TURN_RECEIVES_MAX 64
/* A read of many bytes is woken when so many have come, not with each segment: on one host it is the sender who
 * pays for the wake-up. */
#define LOW_WATER_BYTES ((size_t)256 << 10)
#define CACHE_LINE_BYTES 64
/* The reader of a prompt stream has what each receive touches in its first bytes. */
#define READER_BYTES 448

/* Receiving. */

/* The stream's read is free before the callback, which usually starts the next one. */
static void finish_read(struct socket_stream *socket, enum muster_rc rc)
{
    struct muster_stream_read *read = socket->read;

    MUSTER_ASSERT(read != NULL);
    socket->read = NULL;
    muster_stream_read_finish(read, rc);
}

/* recv with the end of the stream kept in socket->receive. Returns the bytes received. */
static size_t receive_bytes(struct socket_stream *socket, void *buffer, size_t bytes_max)
{
    ssize_t received;

    do
        received = recv(socket->watch.fd, buffer, bytes_max, 0);
    while (received < 0 && errno == EINTR);
    if (received > 0)
        return (size_t)received;
    if (received < 0 && errno == EAGAIN)
        return 0;
    /* A failed send may have taken the reset's error away from us: recv then shows an end that was
     * none. */
    if (received == 0 && (socket->send_errno == 0 || socket->send_errno == EPIPE))
        socket->receive = RECEIVE_ENDED;
    else
        socket->receive = RECEIVE_FAILED;
    return 0;
}

/* The open read waits. It never waits for more bytes than it lacks. */
static void low_water_set(struct socket_stream *socket)
{
    const struct muster_stream_read *read = socket->read;
    size_t missing = read != NULL && read->bytes_min > read->bytes_done
                         ? read->bytes_min - read->bytes_done
                         : 0;
    size_t low_water = missing >= LOW_WATER_BYTES ? LOW_WATER_BYTES : 0;
    int value = low_water > 0 ? (int)low_water : 1;

    if (socket->low_water == low_water || socket->is_closing)
        return;
    if (setsockopt(socket->watch.fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value)) == 0)
        socket->low_water = low_water;
}

/* One step of the open read. Returns whether more may be there: a receive that filled its room. A
 * shorter one has emptied the socket, and another call would only find EAGAIN. */
static bool receive_once(struct socket_stream *socket, size_t *ret_received)
{
    struct muster_stream_read *read = socket->read;
    size_t room = read->bytes_max - read->bytes_done;

    if (read->bytes_done < read->bytes_min && socket->receive == RECEIVE_OPEN) {
        *ret_received = receive_bytes(socket, read->buffer + read->bytes_done, room);
        read->bytes_done += *ret_received;
    } else {
        *ret_received = room;
    }
    if (read->bytes_done >= read->bytes_min) {
        bool is_full = *ret_received == room;

        finish_read(socket, MUSTER_OK);
        return is_full;
    }
    if (socket->receive != RECEIVE_OPEN) {
        read->is_eof = socket->receive == RECEIVE_ENDED;
        finish_read(socket, MUSTER_UNAVAILABLE);
    }
    return false;
}

static void receive_some(struct socket_stream *socket)
{
    size_t budget = TURN_BYTES_MAX;
    unsigned count;

    for (count = 0; count < TURN_RECEIVES_MAX && budget > 0; count++) {
        size_t received = 0;

        if (socket->is_closing || socket->read == NULL || !receive_once(socket, &received))
            break;
        budget -= received < budget ? received : budget;
    }
    low_water_set(socket);
}

/* Bytes that were unread, or an end that is known: no event of the descriptor will tell of them. */
static bool has_immediate_read(const struct socket_stream *socket)
{
    return socket->read != NULL &&
           (socket->read->bytes_done >= socket->read->bytes_min || socket->receive != RECEIVE_OPEN);
}

/* Events. */

/* A write that has left whole is told OK although the stream closes: its bytes are with the kernel.
 */
static void cancel_requests(struct socket_stream *socket)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&socket->writes)) != NULL)
        muster_list_append(&socket->finished, node);
    while ((node = muster_list_pop(&socket->finished)) != NULL) {
        struct muster_stream_write *write =
            MUSTER_CONTAINER_OF(node, struct muster_stream_write, node);

        muster_stream_write_finish(
            write, write->bytes_done == write->bytes_total ? MUSTER_OK : MUSTER_CANCELLED);
    }
    if (socket->read != NULL)
        finish_read(socket, MUSTER_CANCELLED);
}

static void on_task(struct muster_task *task)
{
    struct socket_stream *socket = task->data;

    if (!socket->is_closing && !socket->is_blocked)
        muster_stream_socket_flush(socket);
    if (!socket->is_closing && has_immediate_read(socket))
        receive_some(socket);
    /* A callback above may have closed the stream and posted the task again: the next turn frees
     * it. */
    if (!socket->is_closing || muster_task_is_posted(&socket->task))
        return;
    cancel_requests(socket);
    if (socket->closed != NULL)
        socket->closed(&socket->stream);
    muster_mem_free(socket->env->mem, socket->local);
    muster_mem_free(socket->env->mem, socket);
}

/* The reader's state comes into the caches while the kernel copies. */
static void prefetch_reader(const struct muster_stream_read *read)
{
    const char *reader = read->data;

    for (size_t at = 0; reader != NULL && at < READER_BYTES; at += CACHE_LINE_BYTES)
        __builtin_prefetch(reader + at);
}

/* Answers of the reader leave before the next descriptor is looked at. */
static void receive_and_answer(struct socket_stream *socket)
{
    prefetch_reader(socket->read);
    receive_some(socket);
    if (socket->is_closing || socket->is_blocked ||
        muster_stream_socket_first_write(socket) == NULL)
        return;
    muster_task_cancel(&socket->task);
    muster_stream_socket_flush(socket);
    if (!socket->is_closing && has_immediate_read(socket))
        muster_stream_socket_schedule(socket);
}

/* Interest is dropped only when an event comes that nobody wants: a stream that is read in a steady
 * rhythm then costs no system call to change it. */
static void on_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct socket_stream *socket = watch->data;

    if (muster_zerocopy_is_busy(&socket->zerocopy))
        muster_stream_socket_run_finished(socket);
    if (socket->is_closing)
        return;
    if ((ready & MUSTER_FD_READ) != 0 && socket->read != NULL && socket->is_prompt)
        receive_and_answer(socket);
    else if ((ready & MUSTER_FD_READ) != 0 && socket->read != NULL)
        receive_some(socket);
    else if ((ready & MUSTER_FD_READ) != 0)
        muster_stream_socket_want(socket, watch->wanted & ~MUSTER_FD_READ);
    if (socket->is_closing || (ready & MUSTER_FD_WRITE) == 0)
        return;
    if (muster_stream_socket_first_write(socket) == NULL || socket->is_rest_due)
        muster_stream_socket_want(socket, watch->wanted & ~MUSTER_FD_WRITE);
    muster_stream_socket_flush(socket);
}

/* The operations of a stream. */

static enum muster_rc socket_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct socket_stream *socket = muster_stream_socket_of(stream);

    if (socket->is_closing || socket->read != NULL)
        return MUSTER_FAILED_PRECONDITION;
    read->bytes_done = muster_stream_unread_take(&socket->unread, read->buffer, read->bytes_max);
    socket->read = read;
    if (has_immediate_read(socket))
        muster_stream_socket_schedule(socket);
    else
        muster_stream_socket_want(socket, socket->watch.wanted | MUSTER_FD_READ);
    low_water_set(socket);
    return MUSTER_OK;
}

static void socket_cancel_read(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct socket_stream *socket = muster_stream_socket_of(stream);

    if (socket->read == read)
        socket->read = NULL;
}

/* FIN goes after all that is queued, so the peer reads every byte before the end. */
static void socket_shutdown(struct muster_stream *stream)
{
    struct socket_stream *socket = muster_stream_socket_of(stream);

    if (socket->is_closing || socket->send != SEND_OPEN)
        return;
    socket->send = SEND_ENDING;
    if (!socket->is_blocked)
        muster_stream_socket_schedule(socket);
}

static void socket_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct socket_stream *socket = muster_stream_socket_of(stream);

    MUSTER_ASSERT(!socket->is_closing);
    socket->is_closing = true;
    socket->closed = closed;
    muster_fd_watch_close(&socket->watch);
    muster_timer_stop(&socket->notice_timer);
    /* First the kernel must let go of the callers' memory: their callbacks say that it is theirs
     * again. */
    muster_zerocopy_abandon(&socket->zerocopy, socket->watch.fd);
    close(socket->watch.fd);
    socket->watch.fd = -1;
    muster_stream_socket_schedule(socket);
}

static const struct muster_address *socket_peer(const struct muster_stream *stream)
{
    return &muster_stream_socket_of(stream)->peer;
}

/* Few ask for the local address, so it is looked up and kept only then. */
static const struct muster_address *socket_local(const struct muster_stream *stream)
{
    static const struct muster_address unknown;
    struct socket_stream *socket = muster_stream_socket_of(stream);

    if (socket->local == NULL && !socket->is_closing) {
        socket->local = muster_mem_alloc(socket->env->mem, sizeof(*socket->local));
        if (socket->local != NULL)
            *socket->local = muster_socket_local(socket->watch.fd);
    }
    return socket->local != NULL ? socket->local : &unknown;
}

static size_t socket_take_now(struct muster_stream *stream, void *buffer, size_t bytes_max)
{
    struct socket_stream *socket = muster_stream_socket_of(stream);
    size_t bytes;

    if (socket->is_closing || socket->read != NULL)
        return 0;
    bytes = muster_stream_unread_take(&socket->unread, buffer, bytes_max);
    if (bytes < bytes_max && socket->receive == RECEIVE_OPEN)
        bytes += receive_bytes(socket, (uint8_t *)buffer + bytes, bytes_max - bytes);
    return bytes;
}

static void socket_unread(struct muster_stream *stream, const void *bytes, size_t count)
{
    struct socket_stream *socket = muster_stream_socket_of(stream);

    MUSTER_ASSERT(socket->read == NULL);
    muster_stream_unread_put(&socket->unread, bytes, count);
}

static void socket_set_user_timeout(struct muster_stream *stream, uint32_t timeout_ms)
{
    const struct socket_stream *socket = muster_stream_socket_of(stream);

    muster_socket_set_user_timeout(socket->watch.fd, socket->peer.family, timeout_ms);
}

static const struct muster_stream_ops socket_ops = {
    .submit = muster_stream_socket_submit,
    .receive = socket_receive,
    .cancel_write = muster_stream_socket_cancel_write,
    .cancel_read = socket_cancel_read,
    .shutdown = socket_shutdown,
    .close = socket_close,
    .peer = socket_peer,
    .local = socket_local,
    .take_now = socket_take_now,
    .unread = socket_unread,
    .set_zerocopy = muster_stream_socket_set_zerocopy,
    .set_user_timeout = socket_set_user_timeout,
};

void muster_stream_socket_set_prompt(struct muster_stream *stream)
{
    if (stream->ops == &socket_ops)
        muster_stream_socket_of(stream)->is_prompt = true;
}

enum muster_rc muster_stream_socket_open(struct muster_env *env, int fd,
                                         struct muster_stream **ret_stream)
{
    struct socket_stream *socket = muster_mem_alloc_zero(env->mem, 1, sizeof(*socket));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (socket == NULL)
        goto fail;
    socket->stream.ops = &socket_ops;
    socket->env = env;
    socket->peer = muster_socket_peer(fd);
    muster_list_init(&socket->writes);
    muster_list_init(&socket->finished);
    muster_task_init(&socket->task, on_task, socket);
    muster_timer_init(&socket->notice_timer, muster_stream_socket_on_notice_due, socket);
    socket->watch.data = socket;
    socket->watch.on_ready = on_ready;
    socket->watch.fd = fd;
    rc = muster_fd_watch_open(&socket->watch, env->loop);
    if (rc != MUSTER_OK)
        goto fail;
    *ret_stream = &socket->stream;
    return MUSTER_OK;
fail:
    muster_mem_free(env->mem, socket);
    close(fd);
    return rc;
}
