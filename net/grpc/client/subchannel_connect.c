/* How a subchannel finds a server: its endpoints in turn, the addresses of each in turn, then a
 * stream (RFC 8305 would try them in parallel; gRPC's pick first does not, and neither does this).
 * subchannel.c begins and cancels; the outcome is a transport in `current`, or on_attempt_failed.
 */
#include <stdio.h>

#include "net/grpc/client/channel_internal.h"

/* Each operation ends, by its callback, before the next one begins. */
static const bool steps[4][4] = {
    [MUSTER_RPC_CONNECT_NONE] = {[MUSTER_RPC_CONNECT_LOOKUP] = true,
                                 [MUSTER_RPC_CONNECT_DIAL] = true,
                                 [MUSTER_RPC_CONNECT_PROBE] = true},
    [MUSTER_RPC_CONNECT_LOOKUP] = {[MUSTER_RPC_CONNECT_NONE] = true},
    [MUSTER_RPC_CONNECT_DIAL] = {[MUSTER_RPC_CONNECT_NONE] = true},
    [MUSTER_RPC_CONNECT_PROBE] = {[MUSTER_RPC_CONNECT_NONE] = true},
};

static void step_move(struct muster_rpc_subchannel *subchannel, enum muster_rpc_connect_step step)
{
    MUSTER_ASSERT(steps[subchannel->step][step]);
    subchannel->step = step;
}

/* Each address and each look-up has the whole time: one that does not answer must not use up that
 * of the next. */
static uint64_t attempt_deadline_ns(const struct muster_rpc_subchannel *subchannel)
{
    return muster_loop_after_ns(subchannel->channel->env->loop,
                                subchannel->channel->options.connect_timeout_ns);
}

static void try_address(struct muster_rpc_subchannel *subchannel);
static void try_endpoint(struct muster_rpc_subchannel *subchannel);

/* The place in the list stays between attempts, so the next one begins after the endpoint that
 * failed last; endpoints_tried says when all of them have had their turn. */
static void next_endpoint(struct muster_rpc_subchannel *subchannel)
{
    subchannel->endpoint_at = (subchannel->endpoint_at + 1) % subchannel->endpoint_count;
    subchannel->endpoints_tried++;
    if (subchannel->endpoints_tried < subchannel->endpoint_count)
        try_endpoint(subchannel);
    else
        subchannel->events->on_attempt_failed(subchannel);
}

void muster_rpc_subchannel_connect_next(struct muster_rpc_subchannel *subchannel,
                                        const struct muster_error *error)
{
    subchannel->error = *error;
    subchannel->address_at++;
    if (subchannel->address_at < subchannel->address_count)
        try_address(subchannel);
    else
        next_endpoint(subchannel);
}

/* The probe has made the error say more when it learnt more; either way the address counts as
 * tried. */
static void on_probe(struct muster_dial_probe *probe)
{
    struct muster_rpc_subchannel *subchannel = probe->data;

    MUSTER_ASSERT(subchannel->step == MUSTER_RPC_CONNECT_PROBE);
    step_move(subchannel, MUSTER_RPC_CONNECT_NONE);
    if (subchannel->state == MUSTER_CHANNEL_SHUTDOWN)
        subchannel->events->on_part_ended(subchannel);
    else
        muster_rpc_subchannel_connect_next(subchannel, &probe->error);
}

void muster_rpc_subchannel_connect_doubt(struct muster_rpc_subchannel *subchannel,
                                         const struct muster_error *error)
{
    const struct muster_channel *channel = subchannel->channel;

    subchannel->probe.data = subchannel;
    /* No memory or no socket for a probe costs only the better text. */
    if (muster_dial_probe_start(&subchannel->probe, channel->env,
                                &subchannel->addresses[subchannel->address_at],
                                channel->options.tls != NULL, error, on_probe) == MUSTER_OK)
        step_move(subchannel, MUSTER_RPC_CONNECT_PROBE);
    else
        muster_rpc_subchannel_connect_next(subchannel, error);
}

static void on_dial(struct muster_dial *dial, enum muster_rc rc)
{
    struct muster_rpc_subchannel *subchannel = dial->data;

    MUSTER_ASSERT(subchannel->step == MUSTER_RPC_CONNECT_DIAL);
    step_move(subchannel, MUSTER_RPC_CONNECT_NONE);
    /* It was closed meanwhile, and the dial had already won against its cancellation: nobody wants
     * the stream. */
    if (subchannel->state == MUSTER_CHANNEL_SHUTDOWN) {
        if (rc == MUSTER_OK)
            muster_stream_close(dial->stream, NULL);
        subchannel->events->on_part_ended(subchannel);
        return;
    }
    if (rc == MUSTER_OK) {
        rc = muster_rpc_transport_open(subchannel, dial->stream, &subchannel->current);
        if (rc == MUSTER_OK)
            return;
        (void)muster_error_set(&dial->error, rc, "out of memory");
    }
    if (dial->is_unheard)
        muster_rpc_subchannel_connect_doubt(subchannel, &dial->error);
    else
        muster_rpc_subchannel_connect_next(subchannel, &dial->error);
}

/* The name that the server's certificate must be for (RFC 6125): the user's, else the host as the
 * target names it, never an address that the name led to. A unix socket has no host; gRPC takes
 * "localhost". */
static const char *server_name(const struct muster_rpc_subchannel *subchannel)
{
    const struct muster_channel *channel = subchannel->channel;
    const char *host;

    if (channel->tls_server_name != NULL)
        return channel->tls_server_name;
    host = subchannel->endpoints[subchannel->endpoint_at].host;
    return host[0] != '\0' ? host : "localhost";
}

void muster_rpc_subchannel_dial_options(const struct muster_rpc_subchannel *subchannel,
                                        struct muster_dial_options *ret_options)
{
    const struct muster_channel *channel = subchannel->channel;

    *ret_options = (struct muster_dial_options){.tls = channel->options.tls,
                                                .server_name = server_name(subchannel),
                                                .sessions = channel->tls_sessions};
}

static void try_address(struct muster_rpc_subchannel *subchannel)
{
    const struct muster_channel *channel = subchannel->channel;
    struct muster_dial_options options;
    struct muster_error error;
    enum muster_rc rc;

    muster_rpc_subchannel_dial_options(subchannel, &options);
    subchannel->dial.data = subchannel;
    rc = muster_dial_start(&subchannel->dial, channel->env->net,
                           &subchannel->addresses[subchannel->address_at], &options,
                           attempt_deadline_ns(subchannel), on_dial);
    if (rc == MUSTER_OK) {
        step_move(subchannel, MUSTER_RPC_CONNECT_DIAL);
        return;
    }
    (void)muster_error_set(&error, MUSTER_UNAVAILABLE, "connecting failed: %s", muster_rc_text(rc));
    muster_rpc_subchannel_connect_next(subchannel, &error);
}

/* Clients that all read the same list in the same order would all go to its first server (gRPC
 * A62). Fisher and Yates: all orders are equally likely. */
static void shuffle_addresses(struct muster_lookup *lookup, struct muster_rng *rng)
{
    for (size_t left = lookup->address_count; left > 1; left--) {
        size_t i = muster_rng_below(rng, left);
        struct muster_address swap = lookup->addresses[i];

        lookup->addresses[i] = lookup->addresses[left - 1];
        lookup->addresses[left - 1] = swap;
    }
}

static void on_lookup(struct muster_lookup *lookup, enum muster_rc rc)
{
    struct muster_rpc_subchannel *subchannel = lookup->data;

    MUSTER_ASSERT(subchannel->step == MUSTER_RPC_CONNECT_LOOKUP);
    step_move(subchannel, MUSTER_RPC_CONNECT_NONE);
    if (subchannel->state == MUSTER_CHANNEL_SHUTDOWN) {
        subchannel->events->on_part_ended(subchannel);
        return;
    }
    if (rc != MUSTER_OK || lookup->address_count == 0) {
        subchannel->error = lookup->error;
        next_endpoint(subchannel);
        return;
    }
    if (subchannel->channel->options.is_shuffled)
        shuffle_addresses(lookup, subchannel->channel->env->rng);
    subchannel->address_count = lookup->address_count;
    /* They are borrowed from the look-up, which stands still until the next attempt. */
    subchannel->addresses = lookup->addresses;
    try_address(subchannel);
}

static void try_endpoint(struct muster_rpc_subchannel *subchannel)
{
    const struct muster_endpoint *endpoint = &subchannel->endpoints[subchannel->endpoint_at];
    enum muster_rc rc;

    subchannel->address_at = 0;
    subchannel->address_count = 0;
    /* A literal address needs no look-up. */
    if (endpoint->address.family != MUSTER_ADDRESS_NONE) {
        subchannel->addresses = &endpoint->address;
        subchannel->address_count = 1;
        try_address(subchannel);
        return;
    }
    subchannel->lookup.data = subchannel;
    rc = muster_lookup_start(&subchannel->lookup, subchannel->channel->env->net, endpoint->host,
                             endpoint->port, attempt_deadline_ns(subchannel), on_lookup);
    if (rc == MUSTER_OK) {
        step_move(subchannel, MUSTER_RPC_CONNECT_LOOKUP);
        return;
    }
    (void)muster_error_set(&subchannel->error, MUSTER_UNAVAILABLE, "looking up %s failed: %s",
                           endpoint->host, muster_rc_text(rc));
    next_endpoint(subchannel);
}

void muster_rpc_subchannel_connect_begin(struct muster_rpc_subchannel *subchannel)
{
    MUSTER_ASSERT(subchannel->step == MUSTER_RPC_CONNECT_NONE && subchannel->current == NULL);
    subchannel->endpoints_tried = 0;
    try_endpoint(subchannel);
}

/* Cancel is idempotent, and the callbacks still come: they see SHUTDOWN and report the part's end.
 */
void muster_rpc_subchannel_connect_cancel(struct muster_rpc_subchannel *subchannel)
{
    switch (subchannel->step) {
    case MUSTER_RPC_CONNECT_NONE:
        break;
    case MUSTER_RPC_CONNECT_LOOKUP:
        muster_lookup_cancel(&subchannel->lookup);
        break;
    case MUSTER_RPC_CONNECT_DIAL:
        muster_dial_cancel(&subchannel->dial);
        break;
    case MUSTER_RPC_CONNECT_PROBE:
        muster_dial_probe_cancel(&subchannel->probe);
        break;
    }
}
