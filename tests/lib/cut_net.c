/* A network in memory whose connections break after a given number of bytes. */
#include "cut_net.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cut_side {
    struct muster_stream stream;
    struct cut_connection *connection;
    unsigned index; /* 0 connected, 1 accepted */
    struct muster_list writes, finished;
    struct muster_stream_read *read;
    uint8_t *bytes; /* arrived here, not read */
    size_t count;
    uint64_t left; /* what it may still send */
    bool is_ended; /* the peer has closed in order */
    bool is_closing, is_closed;
    bool is_rest_due;
    muster_stream_close_fn *closed;
    struct muster_task task;
};

struct cut_connection {
    struct cut_net *net;
    struct muster_list node;
    struct cut_side sides[2];
    bool is_reset;
};

static struct cut_side *side_of(const struct muster_stream *stream)
{
    return MUSTER_CONTAINER_OF(stream, struct cut_side, stream);
}

static struct cut_side *other_side(struct cut_side *side)
{
    return &side->connection->sides[1 - side->index];
}

static void side_wake(struct cut_side *side)
{
    if (!side->is_closed)
        muster_task_post(&side->task, side->connection->net->env->loop);
}

static void connection_reset(struct cut_connection *connection)
{
    connection->is_reset = true;
    side_wake(&connection->sides[0]);
    side_wake(&connection->sides[1]);
}

static void deliver_bytes(struct cut_side *to, const uint8_t *bytes, size_t count)
{
    to->bytes = realloc(to->bytes, to->count + count + 1);
    assert(to->bytes != NULL);
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
    side_wake(to);
}

/* Bytes of the write from where it stands; the limit cuts what arrives, not what is taken. */
static void side_take(struct cut_side *side, struct muster_stream_write *write, size_t *room)
{
    size_t at = 0;

    for (size_t i = 0; i < write->iov_count; i++) {
        size_t length = write->iov[i].iov_len;
        size_t skip = write->bytes_done > at ? write->bytes_done - at : 0;
        size_t step = skip < length ? length - skip : 0;
        size_t arrives;

        at += length;
        if (step > *room)
            step = *room;
        arrives = step < side->left ? step : (size_t)side->left;
        if (step == 0)
            continue;
        deliver_bytes(other_side(side), (const uint8_t *)write->iov[i].iov_base + skip, arrives);
        write->bytes_done += step;
        *room -= step;
        if (side->left != UINT64_MAX)
            side->left -= arrives;
        if (side->left == 0)
            connection_reset(side->connection);
    }
}

static struct muster_stream_write *first_write(struct muster_list *list)
{
    return muster_list_is_empty(list)
               ? NULL
               : MUSTER_CONTAINER_OF(list->next, struct muster_stream_write, node);
}

static void send_some(struct cut_side *side)
{
    size_t take_max = side->connection->net->take_max;
    size_t room = take_max == 0 ? SIZE_MAX : take_max;
    struct muster_stream_write *write;

    while (!side->is_rest_due && !side->connection->is_reset &&
           (write = first_write(&side->writes)) != NULL) {
        side_take(side, write, &room);
        if (write->bytes_done < write->bytes_total) {
            side_wake(side);
            break;
        }
        muster_list_remove(&write->node);
        muster_list_append(&side->finished, &write->node);
    }
    while (side->connection->is_reset && (write = first_write(&side->writes)) != NULL) {
        muster_list_remove(&write->node);
        muster_list_append(&side->finished, &write->node);
    }
    while (!side->is_closing && (write = first_write(&side->finished)) != NULL) {
        muster_list_remove(&write->node);
        write->done(write,
                    write->bytes_done == write->bytes_total ? MUSTER_OK : MUSTER_UNAVAILABLE);
    }
}

/* As with a real socket: the end shows after the bytes before it. */
static void receive_some(struct cut_side *side)
{
    struct muster_stream_read *read = side->read;
    bool is_over = side->connection->is_reset || side->is_ended;
    size_t step;

    if (read == NULL)
        return;
    step = read->bytes_max - read->bytes_done;
    step = step < side->count ? step : side->count;
    if (step > 0) {
        memcpy(read->buffer + read->bytes_done, side->bytes, step);
        memmove(side->bytes, side->bytes + step, side->count - step);
        side->count -= step;
        read->bytes_done += step;
    }
    if (read->bytes_done < read->bytes_min && !is_over)
        return;
    side->read = NULL;
    read->is_eof = !side->connection->is_reset && side->is_ended;
    side_wake(side);
    read->done(read, read->bytes_done >= read->bytes_min ? MUSTER_OK : MUSTER_UNAVAILABLE);
}

static void finish_close(struct cut_side *side)
{
    struct muster_stream_write *write;

    if (!other_side(side)->is_closed) {
        other_side(side)->is_ended = true;
        side_wake(other_side(side));
    }
    while ((write = first_write(&side->writes)) != NULL) {
        muster_list_remove(&write->node);
        write->done(write, MUSTER_CANCELLED);
    }
    side->is_closed = true;
    free(side->bytes);
    side->bytes = NULL;
    if (side->closed != NULL)
        side->closed(&side->stream);
}

static void on_task(struct muster_task *task)
{
    struct cut_side *side = task->data;

    if (!side->is_closing)
        send_some(side);
    if (!side->is_closing)
        receive_some(side);
    if (side->is_closing && !side->is_closed && !muster_task_is_posted(&side->task))
        finish_close(side);
}

/* --- Operations --- */

static enum muster_rc cut_submit(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct cut_side *side = side_of(stream);

    if (side->is_closing)
        return MUSTER_FAILED_PRECONDITION;
    if (side->is_rest_due)
        muster_list_prepend(&side->writes, &write->node);
    else
        muster_list_append(&side->writes, &write->node);
    side->is_rest_due = false;
    side_wake(side);
    return MUSTER_OK;
}

static enum muster_rc cut_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct cut_side *side = side_of(stream);

    if (side->is_closing || side->read != NULL)
        return MUSTER_FAILED_PRECONDITION;
    side->read = read;
    side_wake(side);
    return MUSTER_OK;
}

static void cut_cancel_write(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct cut_side *side = side_of(stream);

    if (muster_list_is_empty(&write->node))
        return;
    muster_list_remove(&write->node);
    if (write->bytes_done > 0 && write->bytes_done < write->bytes_total)
        side->is_rest_due = true;
}

static void cut_cancel_read(struct muster_stream *stream, struct muster_stream_read *read)
{
    if (side_of(stream)->read == read)
        side_of(stream)->read = NULL;
}

static void cut_shutdown(struct muster_stream *stream)
{
    (void)stream;
    abort(); /* links do not */
}

static void cut_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct cut_side *side = side_of(stream);

    assert(side->read == NULL);
    side->is_closing = true;
    side->closed = closed;
    side_wake(side);
}

static const struct muster_address *cut_address(const struct muster_stream *stream)
{
    static const struct muster_address nowhere = {.family = MUSTER_ADDRESS_NONE};

    (void)stream;
    return &nowhere;
}

static size_t cut_take_now(struct muster_stream *stream, void *buffer, size_t bytes_max)
{
    (void)stream;
    (void)buffer;
    (void)bytes_max;
    return 0;
}

static void cut_unread(struct muster_stream *stream, const void *bytes, size_t count)
{
    (void)stream;
    (void)bytes;
    (void)count;
    abort();
}

static const struct muster_stream_ops stream_ops = {
    .submit = cut_submit,
    .receive = cut_receive,
    .cancel_write = cut_cancel_write,
    .cancel_read = cut_cancel_read,
    .shutdown = cut_shutdown,
    .close = cut_close,
    .peer = cut_address,
    .local = cut_address,
    .take_now = cut_take_now,
    .unread = cut_unread,
};

static struct cut_connection *connection_new(struct cut_net *net)
{
    struct cut_connection *connection = calloc(1, sizeof(*connection));

    assert(connection != NULL);
    connection->net = net;
    for (unsigned i = 0; i < 2; i++) {
        struct cut_side *side = &connection->sides[i];

        side->stream.ops = &stream_ops;
        side->connection = connection;
        side->index = i;
        side->left = net->limits[i];
        muster_list_init(&side->writes);
        muster_list_init(&side->finished);
        muster_task_init(&side->task, on_task, side);
    }
    muster_list_append(&net->connections, &connection->node);
    return connection;
}

/* --- The network --- */

static void on_dialled(struct muster_timer *timer)
{
    struct muster_connect *connect = timer->data;
    struct cut_net *net = MUSTER_CONTAINER_OF(connect->net, struct cut_net, net);
    struct cut_connection *connection;

    if (net->is_refusing) {
        connect->error.sys = ECONNREFUSED;
        connect->error.rc = MUSTER_UNAVAILABLE;
        connect->done(connect, MUSTER_UNAVAILABLE);
        return;
    }
    connection = connection_new(net);
    net->dial_count++;
    net->limits[0] = net->limits[1] = UINT64_MAX;
    connect->stream = &connection->sides[0].stream;
    net->on_accept(&net->listener, &connection->sides[1].stream);
    connect->done(connect, MUSTER_OK);
}

static void on_cancelled(struct muster_timer *timer)
{
    struct muster_connect *connect = timer->data;

    connect->done(connect, MUSTER_CANCELLED);
}

static enum muster_rc net_connect(struct muster_net *net, struct muster_connect *connect,
                                  const struct muster_stream_options *options, uint64_t deadline_ns)
{
    struct muster_loop *loop = MUSTER_CONTAINER_OF(net, struct cut_net, net)->env->loop;

    (void)options;
    (void)deadline_ns;
    muster_timer_init(&connect->timer, on_dialled, connect);
    muster_timer_start(&connect->timer, loop, muster_loop_now_ns(loop));
    return MUSTER_OK;
}

static void net_connect_cancel(struct muster_net *net, struct muster_connect *connect)
{
    struct muster_loop *loop = MUSTER_CONTAINER_OF(net, struct cut_net, net)->env->loop;

    muster_timer_stop(&connect->timer);
    muster_timer_init(&connect->timer, on_cancelled, connect);
    muster_timer_start(&connect->timer, loop, muster_loop_now_ns(loop));
}

void cut_net_init(struct cut_net *net, struct muster_env *env, muster_listener_accept_fn *on_accept,
                  void *data)
{
    static const struct muster_net_ops ops = {.connect = net_connect,
                                              .connect_cancel = net_connect_cancel};

    memset(net, 0, sizeof(*net));
    net->net.ops = &ops;
    net->env = env;
    net->on_accept = on_accept;
    net->listener.data = data;
    net->limits[0] = net->limits[1] = UINT64_MAX;
    muster_list_init(&net->connections);
}

void cut_net_reset(struct cut_net *net)
{
    struct cut_connection *connection =
        MUSTER_CONTAINER_OF(net->connections.prev, struct cut_connection, node);

    for (unsigned i = 0; i < 2; i++)
        connection->sides[i].count = 0;
    connection_reset(connection);
}

void cut_net_fini(struct cut_net *net)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&net->connections)) != NULL) {
        struct cut_connection *connection = MUSTER_CONTAINER_OF(node, struct cut_connection, node);

        if (connection->sides[0].is_closed && connection->sides[1].is_closed)
            free(connection);
    }
}
