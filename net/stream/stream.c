/* Byte streams: checks arguments, fills requests and hands them to the implementation. A request
 * whose start is refused is put back as it was: its owner may start it elsewhere. `done` is set
 * when the start has returned, so an implementation that calls back from inside it is found out. */
#include <muster/stream.h>

#include <string.h>

#include "net/stream/net_internal.h"

/* False: the sum overflows, so the pieces cannot be what the caller means. */
static bool iov_total(const struct iovec *iov, size_t iov_count, size_t *ret_total)
{
    size_t total = 0;
    size_t i;

    for (i = 0; i < iov_count; i++)
        if (__builtin_add_overflow(total, iov[i].iov_len, &total))
            return false;
    *ret_total = total;
    return true;
}

enum muster_rc muster_stream_submit(struct muster_stream_write *write, struct muster_stream *stream,
                                    const struct iovec *iov, size_t iov_count,
                                    muster_stream_write_fn *done)
{
    struct muster_stream_write before = *write;
    enum muster_rc rc;

    /* Whether write is in use already cannot be asserted: before its first start it need not be
     * initialised. */
    MUSTER_ASSERT(done != NULL);
    if (!iov_total(iov, iov_count, &write->bytes_total))
        return MUSTER_INVALID_ARGUMENT;
    write->bytes_done = 0;
    write->done = NULL;
    write->iov = iov;
    write->iov_count = iov_count;
    rc = stream->ops->submit(stream, write);
    if (rc == MUSTER_OK)
        write->done = done;
    else
        *write = before;
    return rc;
}

enum muster_rc muster_stream_receive_into(struct muster_stream_read *read,
                                          struct muster_stream *stream, void *buffer,
                                          size_t bytes_min, size_t bytes_max,
                                          muster_stream_read_fn *done)
{
    struct muster_stream_read before = *read;
    enum muster_rc rc;

    MUSTER_ASSERT(done != NULL);
    if (bytes_min == 0 || bytes_min > bytes_max) /* a read of nothing would never have to end */
        return MUSTER_INVALID_ARGUMENT;
    read->bytes_done = 0;
    read->is_eof = false;
    read->done = NULL;
    read->buffer = buffer;
    read->bytes_min = bytes_min;
    read->bytes_max = bytes_max;
    rc = stream->ops->receive(stream, read);
    if (rc == MUSTER_OK)
        read->done = done;
    else
        *read = before;
    return rc;
}

/* A recall leaves the implementation's list, and bytes_done is final when it returns: the owner may
 * free the request at once. */
size_t muster_stream_receive_recall(struct muster_stream_read *read, struct muster_stream *stream)
{
    stream->ops->cancel_read(stream, read);
    return read->bytes_done;
}

size_t muster_stream_submit_recall(struct muster_stream_write *write, struct muster_stream *stream)
{
    stream->ops->cancel_write(stream, write);
    return write->bytes_done;
}

size_t muster_stream_take_now(struct muster_stream *stream, void *buffer, size_t bytes_max)
{
    if (bytes_max == 0)
        return 0;
    return stream->ops->take_now(stream, buffer, bytes_max);
}

void muster_stream_unread(struct muster_stream *stream, const void *bytes, size_t count)
{
    stream->ops->unread(stream, bytes, count);
}

/* A hint: TLS encrypts into memory of its own, and simulated links copy, so they have no such
 * function. */
void muster_stream_set_zerocopy(struct muster_stream *stream, size_t bytes_min)
{
    if (stream->ops->set_zerocopy != NULL)
        stream->ops->set_zerocopy(stream, bytes_min);
}

void muster_stream_set_user_timeout(struct muster_stream *stream, uint32_t timeout_ms)
{
    if (stream->ops->set_user_timeout != NULL)
        stream->ops->set_user_timeout(stream, timeout_ms);
}

const struct muster_error *muster_stream_error(const struct muster_stream *stream)
{
    const struct muster_error *error =
        stream->ops->error != NULL ? stream->ops->error(stream) : NULL;

    return error != NULL && error->rc != MUSTER_OK ? error : NULL;
}

void muster_stream_shutdown(struct muster_stream *stream)
{
    stream->ops->shutdown(stream);
}

void muster_stream_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    stream->ops->close(stream, closed);
}

const struct muster_address *muster_stream_peer(const struct muster_stream *stream)
{
    return stream->ops->peer(stream);
}

const struct muster_address *muster_stream_local(const struct muster_stream *stream)
{
    return stream->ops->local(stream);
}

enum muster_rc muster_net_missing(struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "the environment has no network: open one with "
                            "muster_net_system_open(env, &env->net)");
}

enum muster_rc muster_connect_start(struct muster_connect *connect, struct muster_net *net,
                                    const struct muster_address *address,
                                    const struct muster_stream_options *options,
                                    uint64_t deadline_ns, muster_connect_fn *done)
{
    static const struct muster_stream_options defaults = {.send_buffer_bytes = 0};
    struct muster_connect before = *connect;
    enum muster_rc rc;

    MUSTER_ASSERT(done != NULL);
    if (net == NULL || address->family == MUSTER_ADDRESS_NONE)
        return MUSTER_INVALID_ARGUMENT;
    connect->stream = NULL;
    connect->error = (struct muster_error){.rc = MUSTER_OK};
    connect->done = NULL;
    connect->address = *address;
    connect->net = net;
    connect->impl = NULL;
    rc = net->ops->connect(net, connect, options != NULL ? options : &defaults, deadline_ns);
    if (rc == MUSTER_OK)
        connect->done = done;
    else
        *connect = before;
    return rc;
}

void muster_connect_cancel(struct muster_connect *connect)
{
    connect->net->ops->connect_cancel(connect->net, connect);
}

enum muster_rc muster_listener_open(struct muster_net *net, const struct muster_address *address,
                                    const struct muster_stream_options *options,
                                    muster_listener_accept_fn *on_accept, void *data,
                                    struct muster_listener **ret_listener,
                                    struct muster_error *ret_error)
{
    static const struct muster_stream_options defaults = {.send_buffer_bytes = 0};

    MUSTER_ASSERT(on_accept != NULL);
    if (net == NULL)
        return muster_net_missing(ret_error);
    if (address->family == MUSTER_ADDRESS_NONE)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the address to listen on must be set: see muster_address_parse");
    return net->ops->listen(net, address, options != NULL ? options : &defaults, on_accept, data,
                            ret_listener, ret_error);
}

const struct muster_address *muster_listener_address(const struct muster_listener *listener)
{
    return listener->ops->address(listener);
}

void muster_listener_hold(struct muster_listener *listener, bool is_held)
{
    if (listener->ops->hold != NULL)
        listener->ops->hold(listener, is_held);
}

void muster_listener_close(struct muster_listener *listener, muster_listener_close_fn *closed)
{
    listener->ops->close(listener, closed);
}

enum muster_rc muster_lookup_start(struct muster_lookup *lookup, struct muster_net *net,
                                   const char *host, uint16_t port, uint64_t deadline_ns,
                                   muster_lookup_fn *done)
{
    struct muster_lookup before = *lookup;
    enum muster_rc rc;

    MUSTER_ASSERT(done != NULL);
    if (net == NULL || host[0] == '\0' || strlen(host) >= MUSTER_HOST_TEXT_BYTES)
        return MUSTER_INVALID_ARGUMENT;
    lookup->address_count = 0;
    lookup->error = (struct muster_error){.rc = MUSTER_OK};
    lookup->done = NULL;
    lookup->net = net;
    lookup->port = port;
    lookup->is_cancelled = false;
    lookup->impl = NULL;
    rc = net->ops->lookup(net, lookup, host, deadline_ns);
    if (rc == MUSTER_OK)
        lookup->done = done;
    else
        *lookup = before;
    return rc;
}

void muster_lookup_cancel(struct muster_lookup *lookup)
{
    lookup->net->ops->lookup_cancel(lookup->net, lookup);
}

/* The answer that muster_lookup_wait turns the loop for. */
struct waited_lookup {
    enum muster_rc rc;
    bool is_done;
};

static void on_waited_lookup(struct muster_lookup *lookup, enum muster_rc rc)
{
    struct waited_lookup *waited = lookup->data;

    waited->rc = rc;
    waited->is_done = true;
}

/* For programs at their start, which have nothing else on the loop: it turns here until the answer.
 */
enum muster_rc muster_lookup_wait(struct muster_env *env, const char *host, uint16_t port,
                                  uint64_t deadline_ns, struct muster_lookup *ret_lookup)
{
    struct waited_lookup waited = {.is_done = false};
    enum muster_rc rc;

    memset(ret_lookup, 0, sizeof(*ret_lookup));
    ret_lookup->data = &waited;
    rc = muster_lookup_start(ret_lookup, env->net, host, port, deadline_ns, on_waited_lookup);
    if (rc != MUSTER_OK)
        return muster_error_set(&ret_lookup->error, rc, "cannot look up %.200s: %s", host,
                                muster_rc_text(rc));
    while (!waited.is_done)
        muster_loop_turn(env->loop, UINT64_MAX);
    ret_lookup->data = NULL;
    return waited.rc;
}

static enum muster_rc refuse_unknown(struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED,
                            "this network does not know the addresses of its host");
}

enum muster_rc muster_net_find_source(struct muster_net *net, const struct muster_address *peer,
                                      struct muster_address *ret_source,
                                      struct muster_error *ret_error)
{
    if (net == NULL)
        return muster_net_missing(ret_error);
    if (net->ops->find_source == NULL)
        return refuse_unknown(ret_error);
    return net->ops->find_source(net, peer, ret_source, ret_error);
}

enum muster_rc muster_net_find_interface(
    struct muster_net *net, const char *name,
    struct muster_address ret_addresses[MUSTER_INTERFACE_ADDRESSES_MAX], size_t *ret_count,
    struct muster_error *ret_error)
{
    if (net == NULL)
        return muster_net_missing(ret_error);
    if (net->ops->find_interface == NULL)
        return refuse_unknown(ret_error);
    return net->ops->find_interface(net, name, ret_addresses, ret_count, ret_error);
}

bool muster_net_has_address(struct muster_net *net, const struct muster_address *address)
{
    return net != NULL && net->ops->has_address != NULL && net->ops->has_address(net, address);
}
