/* A stream on a socket: what its sending and its receiving half share. */
#ifndef MUSTER_NET_STREAM_SOCKET_INTERNAL_H
#define MUSTER_NET_STREAM_SOCKET_INTERNAL_H

#include "net/stream/net_internal.h"
#include "net/stream/socket_zerocopy.h"
#include "net/stream/unread.h"

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

/* The fields that each receive and send touch come first, in few cache lines: of thousands of streams
 * none is in the caches when its event comes. */
struct socket_stream {
    struct muster_stream stream;
    struct muster_env *env;
    struct muster_fd_watch watch; /* interest is dropped when it fires in vain, not before */
    struct muster_task task;      /* flush, immediate completions, close */
    bool is_closing;
    bool is_prompt;   /* answers leave in the event of their request */
    bool is_rest_due; /* nothing may be sent before `rest` */
    bool is_blocked;  /* the kernel's buffer was full; waits for writability */
    enum receive_state receive;
    struct muster_stream_read *read;
    struct muster_list writes;   /* only the first may be partly sent */
    struct muster_list finished; /* sent or failed, their callbacks are due */
    size_t first_iov;            /* where the first write goes on */
    size_t first_offset;
    struct muster_zerocopy zerocopy;
    enum send_state send;
    int send_errno;
    struct muster_stream_write *rest; /* continues a recalled, partly sent write */
    size_t low_water; /* SO_RCVLOWAT of the descriptor; 0: the kernel's 1 */
    struct muster_stream_unread unread;

    struct muster_timer notice_timer; /* looks for notices that nothing reports */
    struct muster_address peer;
    struct muster_address *local; /* NULL: nobody has asked */
    muster_stream_close_fn *closed;
};

static inline struct socket_stream *muster_stream_socket_of(const struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct socket_stream, stream);
}

static inline void muster_stream_socket_want(struct socket_stream *socket, unsigned wanted)
{
    if (socket->watch.wanted != wanted)
        muster_fd_watch_update(&socket->watch, wanted);
}

static inline void muster_stream_socket_schedule(struct socket_stream *socket)
{
    muster_task_post(&socket->task, socket->env->loop);
}

/* net/stream/socket_send.c */

struct muster_stream_write *muster_stream_socket_first_write(const struct socket_stream *socket);
/** Send what can be sent, and tell of what is done. */
void muster_stream_socket_flush(struct socket_stream *socket);
/** Tell of the writes with whose memory the kernel is done. */
void muster_stream_socket_run_finished(struct socket_stream *socket);
void muster_stream_socket_on_notice_due(struct muster_timer *timer);
MUSTER_MUST_CHECK enum muster_rc muster_stream_socket_submit(struct muster_stream *stream,
                                                             struct muster_stream_write *write);
void muster_stream_socket_cancel_write(struct muster_stream *stream,
                                       struct muster_stream_write *write);
void muster_stream_socket_set_zerocopy(struct muster_stream *stream, size_t bytes_min);

#endif
