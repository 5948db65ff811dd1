/* Finding a server for a channel: endpoints in turn, their addresses in turn, then a stream. */
#include <stdio.h>

#include "net/rpc_channel_internal.h"

static uint64_t attempt_deadline_ns(const struct muster_channel *channel)
{
    return muster_loop_after_ns(channel->env->loop, channel->options.connect_timeout_ns);
}

static void try_address(struct muster_channel *channel);
static void try_endpoint(struct muster_channel *channel);

static void next_endpoint(struct muster_channel *channel)
{
    channel->endpoint_at = (channel->endpoint_at + 1) % channel->target.count;
    channel->endpoints_tried++;
    if (channel->endpoints_tried < channel->target.count)
        try_endpoint(channel);
    else
        muster_channel_attempt_failed(channel);
}

void muster_channel_connect_next(struct muster_channel *channel, const struct muster_error *error)
{
    channel->error = *error;
    channel->address_at++;
    if (channel->address_at < channel->address_count)
        try_address(channel);
    else
        next_endpoint(channel);
}

static void on_connect(struct muster_connect *connect, enum muster_rc rc)
{
    struct muster_channel *channel = connect->data;

    channel->is_connecting = false;
    if (channel->state == MUSTER_CHANNEL_SHUTDOWN) {
        if (rc == MUSTER_OK)
            muster_stream_close(connect->stream, NULL);
        muster_channel_check_closed(channel);
        return;
    }
    if (rc == MUSTER_OK) {
        rc = muster_rpc_transport_open(channel, connect->stream);
        if (rc == MUSTER_OK)
            return;
        (void)muster_error_set(&connect->error, rc, "out of memory");
    }
    muster_channel_connect_next(channel, &connect->error);
}

static void try_address(struct muster_channel *channel)
{
    struct muster_error error;
    enum muster_rc rc;

    channel->connect.data = channel;
    rc = muster_connect_start(&channel->connect, channel->env->net,
                              &channel->addresses[channel->address_at], NULL,
                              attempt_deadline_ns(channel), on_connect);
    if (rc == MUSTER_OK) {
        channel->is_connecting = true;
        return;
    }
    (void)muster_error_set(&error, MUSTER_UNAVAILABLE, "connecting failed: %s", muster_rc_text(rc));
    muster_channel_connect_next(channel, &error);
}

static void on_lookup(struct muster_lookup *lookup, enum muster_rc rc)
{
    struct muster_channel *channel = lookup->data;

    channel->is_looking_up = false;
    if (channel->state == MUSTER_CHANNEL_SHUTDOWN) {
        muster_channel_check_closed(channel);
        return;
    }
    if (rc != MUSTER_OK || lookup->address_count == 0) {
        channel->error = lookup->error;
        next_endpoint(channel);
        return;
    }
    channel->address_count = lookup->address_count;
    for (size_t i = 0; i < lookup->address_count; i++)
        channel->addresses[i] = lookup->addresses[i];
    try_address(channel);
}

static void try_endpoint(struct muster_channel *channel)
{
    const struct muster_endpoint *endpoint = &channel->target.endpoints[channel->endpoint_at];
    enum muster_rc rc;

    channel->address_at = 0;
    channel->address_count = 0;
    if (endpoint->address.family != MUSTER_ADDRESS_NONE) {
        channel->addresses[0] = endpoint->address;
        channel->address_count = 1;
        try_address(channel);
        return;
    }
    channel->lookup.data = channel;
    rc = muster_lookup_start(&channel->lookup, channel->env->net, endpoint->host, endpoint->port,
                             attempt_deadline_ns(channel), on_lookup);
    if (rc == MUSTER_OK) {
        channel->is_looking_up = true;
        return;
    }
    (void)muster_error_set(&channel->error, MUSTER_UNAVAILABLE, "looking up %s failed: %s",
                           endpoint->host, muster_rc_text(rc));
    next_endpoint(channel);
}

void muster_channel_connect_begin(struct muster_channel *channel)
{
    channel->endpoints_tried = 0;
    try_endpoint(channel);
}

void muster_channel_connect_cancel(struct muster_channel *channel)
{
    if (channel->is_looking_up)
        muster_lookup_cancel(&channel->lookup);
    if (channel->is_connecting)
        muster_connect_cancel(&channel->connect);
}
