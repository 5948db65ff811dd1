/* A byte stream on a connected, non-blocking socket: gathered sends, receives straight into the
 * caller's buffer. */
#include "net/net_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define GATHER_COUNT_MAX  256
#define TURN_BYTES_MAX    (4u << 20) /* then other descriptors have their turn */
/* A turn sends whole writes until it has so much, of longer ones at most the second, and then looks
 * for what has come in: the kernel's pages go back and forth between two neighbours while they are
 * in the caches (1 MiB at once: a third slower over loopback, measured). */
#define SEND_BYTES_ENOUGH (256u << 10)
#define SEND_BYTES_MAX    (512u << 10)
#define TURN_RECEIVES_MAX 64

enum send_state {
    SEND_OPEN,
    SEND_ENDING, /* shut down; FIN goes when the queue is empty */
    SEND_ENDED,
    SEND_FAILED,
};

enum receive_state {
    RECEIVE_OPEN,
    RECEIVE_ENDED, /* the peer has ended in order */
    RECEIVE_FAILED,
};

struct socket_stream {
    struct muster_stream stream;
    struct muster_env *env;
    struct muster_fd_watch watch; /* interest is dropped when it fires in vain, not before */
    struct muster_task task;      /* flush, immediate completions, close */
    struct muster_address local, peer;
    bool is_closing;
    muster_stream_close_fn *closed;

    enum send_state send;
    int send_errno;
    struct muster_list writes;   /* only the first may be partly sent */
    struct muster_list finished; /* sent or failed, their callbacks are due */
    size_t first_iov;            /* where the first write goes on */
    size_t first_offset;
    struct muster_stream_write *rest; /* continues a recalled, partly sent write */
    bool is_rest_due;                 /* nothing may be sent before that rest */
    bool is_blocked;                  /* the kernel's buffer was full; waits for writability */

    enum receive_state receive;
    struct muster_stream_read *read;
    uint8_t unread[MUSTER_STREAM_UNREAD_MAX];
    size_t unread_bytes;
};

static struct socket_stream *socket_of(const struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct socket_stream, stream);
}

static void want(struct socket_stream *socket, unsigned wanted)
{
    if (socket->watch.wanted != wanted)
        muster_fd_watch_update(&socket->watch, wanted);
}

static void schedule(struct socket_stream *socket)
{
    muster_task_post(&socket->task, socket->env->loop);
}

/* Sending. */

static struct muster_stream_write *first_write(const struct socket_stream *socket)
{
    if (muster_list_is_empty(&socket->writes))
        return NULL;
    return MUSTER_CONTAINER_OF(socket->writes.next, struct muster_stream_write, node);
}

/* Fills iov from the queue, with what one send takes. Returns the number of entries. */
static size_t gather(const struct socket_stream *socket, struct iovec iov[GATHER_COUNT_MAX],
                     size_t *ret_bytes)
{
    const struct muster_list *node;
    size_t index = socket->first_iov;
    size_t offset = socket->first_offset;
    size_t count = 0;

    *ret_bytes = 0;
    for (node = socket->writes.next; node != &socket->writes; node = node->next) {
        const struct muster_stream_write *write =
            MUSTER_CONTAINER_OF(node, struct muster_stream_write, node);

        if (*ret_bytes >= SEND_BYTES_ENOUGH)
            return count;
        for (; index < write->iov_count; index++, offset = 0) {
            if (count == GATHER_COUNT_MAX || *ret_bytes == SEND_BYTES_MAX)
                return count;
            if (write->iov[index].iov_len == offset)
                continue;
            iov[count].iov_base = (uint8_t *)write->iov[index].iov_base + offset;
            iov[count].iov_len = write->iov[index].iov_len - offset;
            if (iov[count].iov_len > SEND_BYTES_MAX - *ret_bytes)
                iov[count].iov_len = SEND_BYTES_MAX - *ret_bytes;
            *ret_bytes += iov[count].iov_len;
            count++;
        }
        index = 0;
    }
    return count;
}

static void advance_first(struct socket_stream *socket, const struct muster_stream_write *write,
                          size_t bytes)
{
    while (bytes > 0) {
        size_t left = write->iov[socket->first_iov].iov_len - socket->first_offset;

        if (bytes < left) {
            socket->first_offset += bytes;
            return;
        }
        bytes -= left;
        socket->first_iov++;
        socket->first_offset = 0;
    }
}

/* The kernel has taken `bytes` of the queue. */
static void advance(struct socket_stream *socket, size_t bytes)
{
    struct muster_stream_write *write;

    while ((write = first_write(socket)) != NULL) {
        size_t left = write->bytes_total - write->bytes_done;
        size_t step = bytes < left ? bytes : left;

        write->bytes_done += step;
        bytes -= step;
        if (step < left) {
            advance_first(socket, write, step);
            return;
        }
        muster_list_remove(&write->node);
        muster_list_append(&socket->finished, &write->node);
        socket->first_iov = 0;
        socket->first_offset = 0;
        if (socket->rest == write)
            socket->rest = NULL;
    }
}

static void fail_writes(struct socket_stream *socket)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&socket->writes)) != NULL)
        muster_list_append(&socket->finished, node);
    socket->first_iov = 0;
    socket->first_offset = 0;
    socket->rest = NULL;
}

/* One gathered send. Returns whether another may follow at once. */
static bool send_once(struct socket_stream *socket, size_t *ret_sent)
{
    struct iovec iov[GATHER_COUNT_MAX];
    struct msghdr message = {.msg_iov = iov};
    size_t bytes;
    ssize_t sent;

    message.msg_iovlen = gather(socket, iov, &bytes);
    if (bytes == 0) {
        advance(socket, 0);
        return false;
    }
    do
        sent = sendmsg(socket->watch.fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN) {
        socket->send = SEND_FAILED;
        socket->send_errno = errno;
        return false;
    }
    *ret_sent = sent < 0 ? 0 : (size_t)sent;
    advance(socket, *ret_sent);
    socket->is_blocked = *ret_sent < bytes;
    return !socket->is_blocked;
}

static void run_finished(struct socket_stream *socket)
{
    struct muster_list *node;

    while (!socket->is_closing && (node = muster_list_pop(&socket->finished)) != NULL) {
        struct muster_stream_write *write =
            MUSTER_CONTAINER_OF(node, struct muster_stream_write, node);

        write->done(write,
                    write->bytes_done == write->bytes_total ? MUSTER_OK : MUSTER_UNAVAILABLE);
    }
}

static void flush(struct socket_stream *socket)
{
    size_t budget = SEND_BYTES_ENOUGH;

    socket->is_blocked = false;
    while (first_write(socket) != NULL && !socket->is_rest_due && socket->send < SEND_ENDED) {
        size_t sent = 0;

        if (!send_once(socket, &sent))
            break;
        budget -= sent < budget ? sent : budget;
        if (budget == 0 && first_write(socket) != NULL) {
            schedule(socket);
            break;
        }
    }
    if (socket->send == SEND_FAILED)
        fail_writes(socket);
    if (socket->send == SEND_ENDING && first_write(socket) == NULL && !socket->is_rest_due) {
        socket->send = SEND_ENDED;
        (void)shutdown(socket->watch.fd, SHUT_WR);
    }
    if (socket->is_blocked)
        want(socket, socket->watch.wanted | MUSTER_FD_WRITE);
    run_finished(socket);
}

/* Receiving. */

static void finish_read(struct socket_stream *socket, enum muster_rc rc)
{
    struct muster_stream_read *read = socket->read;

    socket->read = NULL;
    read->done(read, rc);
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

/* One step of the open read. Returns whether more may be there. */
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
            return;
        budget -= received < budget ? received : budget;
    }
}

static bool has_immediate_read(const struct socket_stream *socket)
{
    return socket->read != NULL &&
           (socket->read->bytes_done >= socket->read->bytes_min || socket->receive != RECEIVE_OPEN);
}

/* Events. */

static void cancel_requests(struct socket_stream *socket)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&socket->writes)) != NULL)
        muster_list_append(&socket->finished, node);
    while ((node = muster_list_pop(&socket->finished)) != NULL) {
        struct muster_stream_write *write =
            MUSTER_CONTAINER_OF(node, struct muster_stream_write, node);

        write->done(write, write->bytes_done == write->bytes_total ? MUSTER_OK : MUSTER_CANCELLED);
    }
    if (socket->read != NULL)
        finish_read(socket, MUSTER_CANCELLED);
}

static void on_task(struct muster_task *task)
{
    struct socket_stream *socket = task->data;

    if (!socket->is_closing && !socket->is_blocked)
        flush(socket);
    if (!socket->is_closing && has_immediate_read(socket))
        receive_some(socket);
    if (!socket->is_closing || muster_task_is_posted(&socket->task))
        return;
    cancel_requests(socket);
    if (socket->closed != NULL)
        socket->closed(&socket->stream);
    muster_mem_free(socket->env->mem, socket);
}

static void on_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct socket_stream *socket = watch->data;

    if ((ready & MUSTER_FD_READ) != 0 && socket->read != NULL)
        receive_some(socket);
    else if ((ready & MUSTER_FD_READ) != 0)
        want(socket, watch->wanted & ~MUSTER_FD_READ);
    if (socket->is_closing || (ready & MUSTER_FD_WRITE) == 0)
        return;
    if (first_write(socket) == NULL || socket->is_rest_due)
        want(socket, watch->wanted & ~MUSTER_FD_WRITE);
    flush(socket);
}

/* The operations of a stream. */

static enum muster_rc socket_submit(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct socket_stream *socket = socket_of(stream);

    if (socket->is_closing)
        return MUSTER_FAILED_PRECONDITION;
    if ((socket->send == SEND_ENDING || socket->send == SEND_ENDED) && !socket->is_rest_due)
        return MUSTER_FAILED_PRECONDITION;
    if (socket->is_rest_due) {
        muster_list_prepend(&socket->writes, &write->node);
        socket->rest = write;
        socket->is_rest_due = false;
    } else {
        muster_list_append(&socket->writes, &write->node);
    }
    if (!socket->is_blocked)
        schedule(socket);
    return MUSTER_OK;
}

static void socket_cancel_write(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct socket_stream *socket = socket_of(stream);
    bool is_begun = write->bytes_done > 0 || socket->rest == write;

    if (muster_list_is_empty(&write->node))
        return;
    muster_list_remove(&write->node);
    if (is_begun && write->bytes_done < write->bytes_total && socket->send != SEND_FAILED) {
        socket->is_rest_due = true;
        socket->first_iov = 0;
        socket->first_offset = 0;
        socket->rest = NULL;
    }
    if (!socket->is_blocked)
        schedule(socket);
}

static enum muster_rc socket_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct socket_stream *socket = socket_of(stream);
    size_t bytes = socket->unread_bytes < read->bytes_max ? socket->unread_bytes : read->bytes_max;

    if (socket->is_closing || socket->read != NULL)
        return MUSTER_FAILED_PRECONDITION;
    if (bytes > 0) {
        memcpy(read->buffer, socket->unread, bytes);
        memmove(socket->unread, socket->unread + bytes, socket->unread_bytes - bytes);
        socket->unread_bytes -= bytes;
        read->bytes_done = bytes;
    }
    socket->read = read;
    if (has_immediate_read(socket))
        schedule(socket);
    else
        want(socket, socket->watch.wanted | MUSTER_FD_READ);
    return MUSTER_OK;
}

static void socket_cancel_read(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct socket_stream *socket = socket_of(stream);

    if (socket->read == read)
        socket->read = NULL;
}

static void socket_shutdown(struct muster_stream *stream)
{
    struct socket_stream *socket = socket_of(stream);

    if (socket->is_closing || socket->send != SEND_OPEN)
        return;
    socket->send = SEND_ENDING;
    if (!socket->is_blocked)
        schedule(socket);
}

static void socket_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct socket_stream *socket = socket_of(stream);

    assert(!socket->is_closing);
    socket->is_closing = true;
    socket->closed = closed;
    muster_fd_watch_close(&socket->watch);
    close(socket->watch.fd);
    socket->watch.fd = -1;
    schedule(socket);
}

static const struct muster_address *socket_peer(const struct muster_stream *stream)
{
    return &socket_of(stream)->peer;
}

static const struct muster_address *socket_local(const struct muster_stream *stream)
{
    return &socket_of(stream)->local;
}

static size_t socket_take_now(struct muster_stream *stream, void *buffer, size_t bytes_max)
{
    struct socket_stream *socket = socket_of(stream);
    size_t bytes = socket->unread_bytes < bytes_max ? socket->unread_bytes : bytes_max;

    if (socket->is_closing || socket->read != NULL)
        return 0;
    memcpy(buffer, socket->unread, bytes);
    memmove(socket->unread, socket->unread + bytes, socket->unread_bytes - bytes);
    socket->unread_bytes -= bytes;
    if (bytes < bytes_max && socket->receive == RECEIVE_OPEN)
        bytes += receive_bytes(socket, (uint8_t *)buffer + bytes, bytes_max - bytes);
    return bytes;
}

static void socket_unread(struct muster_stream *stream, const void *bytes, size_t count)
{
    struct socket_stream *socket = socket_of(stream);

    assert(socket->read == NULL && count <= sizeof(socket->unread) - socket->unread_bytes);
    memmove(socket->unread + count, socket->unread, socket->unread_bytes);
    memcpy(socket->unread, bytes, count);
    socket->unread_bytes += count;
}

static const struct muster_stream_ops socket_ops = {
    .submit = socket_submit,
    .receive = socket_receive,
    .cancel_write = socket_cancel_write,
    .cancel_read = socket_cancel_read,
    .shutdown = socket_shutdown,
    .close = socket_close,
    .peer = socket_peer,
    .local = socket_local,
    .take_now = socket_take_now,
    .unread = socket_unread,
};

enum muster_rc muster_stream_socket_open(struct muster_env *env, int fd,
                                         struct muster_stream **ret_stream)
{
    struct socket_stream *socket = muster_mem_alloc_zero(env->mem, 1, sizeof(*socket));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (socket == NULL)
        goto fail;
    socket->stream.ops = &socket_ops;
    socket->env = env;
    socket->local = muster_socket_local(fd);
    socket->peer = muster_socket_peer(fd);
    muster_list_init(&socket->writes);
    muster_list_init(&socket->finished);
    muster_task_init(&socket->task, on_task, socket);
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
