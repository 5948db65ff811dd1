/* The sending half of a stream on a socket: gathered sends, callbacks, recall. Writes wait in
 * `writes` until the kernel has taken them, then in `finished` until it is done with their memory.
 */
#include "net/stream/socket_internal.h"
#include "net/stream/request.h"

#include <errno.h>

/* Pieces of one sendmsg; IOV_MAX is 1024, and the array is on the stack. */
#define GATHER_COUNT_MAX 256
/* A turn sends whole writes until it has so much, of longer ones at most the second, and then looks
 * for what has come in: the kernel's pages go back and forth between two neighbours while they are
 * in the caches (1 MiB at once: a third slower over loopback, measured). */
#define SEND_BYTES_ENOUGH (256u << 10)
#define SEND_BYTES_MAX    (512u << 10)
/* A notice that nothing reports makes its write's callback late by so much at most. */
#define NOTICE_LOOK_NS MUSTER_NS_PER_MS

struct muster_stream_write *muster_stream_socket_first_write(const struct socket_stream *socket)
{
    if (muster_list_is_empty(&socket->writes))
        return NULL;
    return MUSTER_CONTAINER_OF(socket->writes.next, struct muster_stream_write, node);
}

/* Fills iov from the queue, with what one send takes, from where the last one stopped. Returns the
 * number of entries. */
static size_t gather_writes(const struct socket_stream *socket, struct iovec iov[GATHER_COUNT_MAX],
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

/* Its callback waits until the kernel is done with all that has been sent before. */
static void finish_write(struct socket_stream *socket, struct muster_stream_write *write)
{
    muster_list_remove(&write->node);
    write->sends_end = socket->zerocopy.next;
    muster_list_append(&socket->finished, &write->node);
}

/* The kernel has taken `bytes` of the queue. Writes without bytes at its front end here as well. */
static void advance_writes(struct socket_stream *socket, size_t bytes)
{
    struct muster_stream_write *write;

    while ((write = muster_stream_socket_first_write(socket)) != NULL) {
        size_t left = write->bytes_total - write->bytes_done;
        size_t step = bytes < left ? bytes : left;

        write->bytes_done += step;
        bytes -= step;
        if (step < left) {
            advance_first(socket, write, step);
            return;
        }
        finish_write(socket, write);
        socket->first_iov = 0;
        socket->first_offset = 0;
        if (socket->rest == write)
            socket->rest = NULL;
    }
}

/* Writes that were not sent keep their bytes_done, by which run_finished tells them UNAVAILABLE. */
static void fail_writes(struct socket_stream *socket)
{
    struct muster_stream_write *write;

    muster_zerocopy_abandon(&socket->zerocopy, socket->watch.fd);
    while ((write = muster_stream_socket_first_write(socket)) != NULL)
        finish_write(socket, write);
    socket->first_iov = 0;
    socket->first_offset = 0;
    socket->rest = NULL;
}

/* One gathered send. Returns whether another may follow at once. A write of no bytes never reaches
 * the kernel; it only moves on to `finished`. */
static bool send_once(struct socket_stream *socket, size_t *ret_sent)
{
    struct iovec iov[GATHER_COUNT_MAX];
    struct msghdr message = {.msg_iov = iov};
    size_t bytes;
    ssize_t sent;

    message.msg_iovlen = gather_writes(socket, iov, &bytes);
    if (bytes == 0) {
        advance_writes(socket, 0);
        return false;
    }
    sent = muster_zerocopy_send(&socket->zerocopy, socket->watch.fd, &message, bytes);
    if (sent < 0 && errno != EAGAIN) {
        socket->send = SEND_FAILED;
        socket->send_errno = errno;
        return false;
    }
    *ret_sent = sent < 0 ? 0 : (size_t)sent;
    advance_writes(socket, *ret_sent);
    socket->is_blocked = *ret_sent < bytes;
    return !socket->is_blocked;
}

static void hear_notices(struct socket_stream *socket)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    if (!muster_zerocopy_is_busy(&socket->zerocopy))
        return;
    if (muster_zerocopy_hear(&socket->zerocopy, socket->watch.fd))
        MUSTER_LOG(socket->env, DEBUG, "zerocopy_copied", "peer",
                   muster_address_format(&socket->peer, text));
}

/* The loop reports a notice with what else is wanted of the descriptor, never by itself. */
static void await_notices(struct socket_stream *socket)
{
    struct muster_loop *loop = socket->env->loop;

    if (muster_zerocopy_is_busy(&socket->zerocopy) && !socket->is_closing &&
        !muster_timer_is_started(&socket->notice_timer))
        muster_timer_start(&socket->notice_timer, loop, muster_loop_after_ns(loop, NOTICE_LOOK_NS));
}

void muster_stream_socket_run_finished(struct socket_stream *socket)
{
    hear_notices(socket);
    while (!socket->is_closing && !muster_list_is_empty(&socket->finished)) {
        struct muster_stream_write *write =
            MUSTER_CONTAINER_OF(socket->finished.next, struct muster_stream_write, node);

        if (!muster_zerocopy_is_done(&socket->zerocopy, write->sends_end))
            break;
        muster_list_remove(&write->node);
        muster_stream_write_finish(
            write, write->bytes_done == write->bytes_total ? MUSTER_OK : MUSTER_UNAVAILABLE);
    }
    await_notices(socket);
}

void muster_stream_socket_flush(struct socket_stream *socket)
{
    size_t budget = SEND_BYTES_ENOUGH;

    MUSTER_ASSERT(!socket->is_closing);
    socket->is_blocked = false;
    while (muster_stream_socket_first_write(socket) != NULL && !socket->is_rest_due &&
           socket->send < SEND_ENDED) {
        size_t sent = 0;

        if (!send_once(socket, &sent))
            break;
        budget -= sent < budget ? sent : budget;
        if (budget == 0 && muster_stream_socket_first_write(socket) != NULL) {
            muster_stream_socket_schedule(socket);
            break;
        }
    }
    if (socket->send == SEND_FAILED)
        fail_writes(socket);
    if (socket->send == SEND_ENDING && muster_stream_socket_first_write(socket) == NULL &&
        !socket->is_rest_due) {
        socket->send = SEND_ENDED;
        (void)shutdown(socket->watch.fd, SHUT_WR);
    }
    if (socket->is_blocked)
        muster_stream_socket_want(socket, socket->watch.wanted | MUSTER_FD_WRITE);
    /* Callbacks come last, when the state is whole: they may submit, recall or close. */
    muster_stream_socket_run_finished(socket);
}

void muster_stream_socket_on_notice_due(struct muster_timer *timer)
{
    muster_stream_socket_run_finished(timer->data);
}

enum muster_rc muster_stream_socket_submit(struct muster_stream *stream,
                                           struct muster_stream_write *write)
{
    struct socket_stream *socket = muster_stream_socket_of(stream);

    if (socket->is_closing)
        return MUSTER_FAILED_PRECONDITION;
    /* The rest of a recalled write may still come after a shutdown: the peer waits for its bytes.
     */
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
        muster_stream_socket_schedule(socket);
    return MUSTER_OK;
}

/* The kernel has not given back memory that its owner wants now. */
static void break_connection(struct socket_stream *socket)
{
    socket->send = SEND_FAILED;
    socket->send_errno = ECONNRESET;
    socket->receive = RECEIVE_FAILED;
    socket->is_blocked = false;
    muster_stream_socket_schedule(socket);
}

void muster_stream_socket_cancel_write(struct muster_stream *stream,
                                       struct muster_stream_write *write)
{
    struct socket_stream *socket = muster_stream_socket_of(stream);
    bool is_begun = write->bytes_done > 0 || socket->rest == write;

    if (muster_list_is_empty(&write->node)) /* it has ended already */
        return;
    if (write->bytes_done > 0 && !muster_zerocopy_take_back(&socket->zerocopy, socket->watch.fd))
        break_connection(socket);
    muster_list_remove(&write->node);
    /* The peer has a part of it: the next write must be its rest, or the byte stream would be torn.
     */
    if (is_begun && write->bytes_done < write->bytes_total && socket->send != SEND_FAILED) {
        socket->is_rest_due = true;
        socket->first_iov = 0;
        socket->first_offset = 0;
        socket->rest = NULL;
    }
    if (!socket->is_blocked)
        muster_stream_socket_schedule(socket);
}

void muster_stream_socket_set_zerocopy(struct muster_stream *stream, size_t bytes_min)
{
    struct socket_stream *socket = muster_stream_socket_of(stream);

    if (!socket->is_closing && socket->peer.family != MUSTER_ADDRESS_UNIX)
        muster_zerocopy_set(&socket->zerocopy, socket->watch.fd, bytes_min);
}
