/* Which subchannels a channel has, what their states come to, and which one takes the next call:
 * pick first (one subchannel that tries all endpoints) and round robin (one for each address that
 * the names have). channel.c asks here; subchannels report by the listener below, whose events
 * become the channel's. */
#include "net/grpc/client/balance.h"

#include <string.h>

#include "net/grpc/client/channel_internal.h"

static struct muster_rpc_subchannel *subchannel_of(struct muster_list *node)
{
    return MUSTER_CONTAINER_OF(node, struct muster_rpc_subchannel, node);
}

static void on_change(struct muster_rpc_subchannel *subchannel)
{
    subchannel->channel->listener->on_change(subchannel->channel);
}

static void on_loss(struct muster_rpc_subchannel *subchannel)
{
    if (subchannel->channel->resolution != NULL)
        muster_rpc_resolution_start(subchannel->channel->resolution);
}

static void on_gone(struct muster_channel *channel)
{
    channel->listener->on_part_gone(channel);
}

static const struct muster_rpc_subchannel_listener listener = {
    .on_change = on_change, .on_loss = on_loss, .on_gone = on_gone};

/* The live subchannel that leads to the address, or NULL. One that shuts down keeps its calls but
 * takes no new ones, so an address that comes back gets a new subchannel. */
static struct muster_rpc_subchannel *find_subchannel(const struct muster_channel *channel,
                                                     const struct muster_address *address)
{
    MUSTER_LIST_EACH(&channel->subchannels, subchannel, struct muster_rpc_subchannel, node) {
        if (subchannel->state != MUSTER_CHANNEL_SHUTDOWN &&
            muster_address_is_equal(&subchannel->endpoint.address, address))
            return subchannel;
    }
    return NULL;
}

/* A known address keeps its subchannel, with its connection and its backoff. False: no memory. */
static bool keep_or_add(struct muster_channel *channel, size_t i)
{
    const struct muster_address *address = &channel->resolution->addresses[i];
    struct muster_rpc_subchannel *subchannel = find_subchannel(channel, address);

    if (subchannel == NULL) {
        subchannel = muster_rpc_subchannel_new(channel, &listener, NULL, 0);
        if (subchannel == NULL)
            return false;
        subchannel->endpoint = channel->target.endpoints[channel->resolution->sources[i]];
        subchannel->endpoint.address = *address; /* host stays the name that the server must have */
    }
    subchannel->is_kept = true;
    return true;
}

/* A subchannel that has to be connected to, or NULL. The search begins anew each time, because
 * connecting may change the list. */
static struct muster_rpc_subchannel *first_idle(const struct muster_channel *channel)
{
    MUSTER_LIST_EACH(&channel->subchannels, subchannel, struct muster_rpc_subchannel, node) {
        if (subchannel->state == MUSTER_CHANNEL_IDLE)
            return subchannel;
    }
    return NULL;
}

/* The names lead to these addresses now: new servers are connected to, vanished ones end with their
 * calls. */
static void adopt_addresses(struct muster_channel *channel)
{
    struct muster_rpc_resolution *resolution = channel->resolution;
    struct muster_rpc_subchannel *idle;
    bool is_complete = true;

    MUSTER_LIST_EACH(&channel->subchannels, subchannel, struct muster_rpc_subchannel, node)
        subchannel->is_kept = false;
    for (size_t i = 0; i < resolution->address_count; i++)
        is_complete = keep_or_add(channel, i) && is_complete;
    if (!is_complete) {
        (void)muster_error_set(&resolution->error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        muster_rpc_resolution_repeat(resolution);
    }
    /* Closing frees it at once when it has no connection. */
    MUSTER_LIST_EACH_SAFE(&channel->subchannels, subchannel, struct muster_rpc_subchannel, node) {
        if (!subchannel->is_kept)
            muster_rpc_subchannel_close(subchannel, true);
    }
    while ((idle = first_idle(channel)) != NULL)
        muster_rpc_subchannel_connect(idle); /* may fail at once, and others take calls */
}

static void on_result(struct muster_rpc_resolution *resolution, enum muster_rc rc)
{
    struct muster_channel *channel = resolution->data;

    MUSTER_ASSERT(resolution == channel->resolution);
    if (channel->state == MUSTER_CHANNEL_SHUTDOWN) {
        channel->listener->on_part_gone(channel);
        return;
    }
    if (rc == MUSTER_OK)
        adopt_addresses(channel);
    channel->listener->on_change(channel);
}

static enum muster_rc round_robin_open(struct muster_channel *channel)
{
    const struct muster_channel_options *options = &channel->options;
    struct muster_mem *mem = channel->env->mem;
    struct muster_rpc_resolution *resolution = muster_mem_alloc_zero(mem, 1, sizeof(*resolution));

    if (resolution == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    channel->resolution = resolution;
    resolution->data = channel;
    resolution->env = channel->env;
    resolution->target = &channel->target;
    resolution->timeout_ns = options->connect_timeout_ns;
    resolution->backoff = channel->backoff;
    resolution->on_result = on_result;
    muster_rpc_resolution_init(resolution);
    if (options->health_service == NULL)
        return MUSTER_OK;
    /* The options are the caller's and may be gone when the first connection is ready. */
    channel->health_service =
        muster_mem_strndup(mem, options->health_service, strlen(options->health_service));
    return channel->health_service != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

/* Pick first with shuffleAddressList (gRPC A62): clients with the same list spread over its
 * servers. Fisher and Yates: all orders are equally likely. */
static void shuffle_endpoints(struct muster_channel *channel)
{
    struct muster_endpoint *endpoints = channel->target.endpoints;

    for (size_t left = channel->target.count; left > 1; left--) {
        size_t i = muster_rng_below(channel->env->rng, left);
        struct muster_endpoint swap = endpoints[i];

        endpoints[i] = endpoints[left - 1];
        endpoints[left - 1] = swap;
    }
}

enum muster_rc muster_rpc_balance_open(struct muster_channel *channel,
                                       struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    if (channel->options.is_shuffled)
        shuffle_endpoints(channel);
    if (channel->options.load_balancing == MUSTER_ROUND_ROBIN)
        rc = round_robin_open(channel);
    else if (channel->options.health_service != NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "health_service must be NULL unless load_balancing is "
                                "MUSTER_ROUND_ROBIN, got \"%.64s\"",
                                channel->options.health_service);
    else if (muster_rpc_subchannel_new(channel, &listener, channel->target.endpoints,
                                       channel->target.count) == NULL)
        rc = MUSTER_RESOURCE_EXHAUSTED;
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "out of memory");
}

void muster_rpc_balance_begin(struct muster_channel *channel)
{
    MUSTER_ASSERT(channel->state == MUSTER_CHANNEL_IDLE);
    channel->is_begun = true;
    if (channel->resolution == NULL)
        muster_rpc_subchannel_connect(subchannel_of(channel->subchannels.next));
    else
        muster_rpc_resolution_start(channel->resolution);
    channel->listener->on_change(channel);
}

enum muster_channel_state muster_rpc_balance_state(const struct muster_channel *channel)
{
    bool is_any = false, is_coming = false;

    if (channel->resolution == NULL)
        return subchannel_of(channel->subchannels.next)->state;
    MUSTER_LIST_EACH(&channel->subchannels, subchannel, struct muster_rpc_subchannel, node) {
        /* The rules of gRPC's round robin: READY wins over CONNECTING, that over TRANSIENT_FAILURE.
         * One that failed counts as failed until it is READY, or the state would flip with each
         * attempt. */
        if (subchannel->state == MUSTER_CHANNEL_READY)
            return MUSTER_CHANNEL_READY;
        is_any = is_any || subchannel->state != MUSTER_CHANNEL_SHUTDOWN;
        is_coming = is_coming || ((subchannel->state == MUSTER_CHANNEL_CONNECTING ||
                                   subchannel->state == MUSTER_CHANNEL_IDLE) &&
                                  !subchannel->has_failed);
    }
    /* Before the first call round robin has no subchannels, and has not even resolved the name. */
    if (!is_any && !channel->is_begun)
        return MUSTER_CHANNEL_IDLE;
    if (!is_any)
        is_coming = !channel->resolution->has_failed;
    return is_coming ? MUSTER_CHANNEL_CONNECTING : MUSTER_CHANNEL_TRANSIENT_FAILURE;
}

const struct muster_error *muster_rpc_balance_error(const struct muster_channel *channel)
{
    static const struct muster_error none = {.rc = MUSTER_OK};

    MUSTER_LIST_EACH(&channel->subchannels, subchannel, struct muster_rpc_subchannel, node) {
        if (subchannel->error.rc != MUSTER_OK)
            return &subchannel->error;
    }
    return channel->resolution != NULL ? &channel->resolution->error : &none;
}

struct muster_rpc_subchannel *muster_rpc_balance_pick(struct muster_channel *channel)
{
    MUSTER_LIST_EACH(&channel->subchannels, subchannel, struct muster_rpc_subchannel, node) {
        if (subchannel->state != MUSTER_CHANNEL_READY)
            continue;
        /* The order of the list is the turn: the one that is picked goes to its end. */
        muster_list_remove(&subchannel->node);
        muster_list_append(&channel->subchannels, &subchannel->node);
        return subchannel;
    }
    return NULL;
}

void muster_rpc_balance_close(struct muster_channel *channel)
{
    if (channel->resolution != NULL)
        muster_rpc_resolution_stop(channel->resolution);
    MUSTER_LIST_EACH_SAFE(&channel->subchannels, subchannel, struct muster_rpc_subchannel, node)
        muster_rpc_subchannel_close(subchannel, false);
}

bool muster_rpc_balance_is_closed(const struct muster_channel *channel)
{
    return muster_list_is_empty(&channel->subchannels) &&
           (channel->resolution == NULL || !channel->resolution->is_looking_up);
}

void muster_rpc_balance_free(struct muster_channel *channel)
{
    MUSTER_ASSERT(muster_list_is_empty(&channel->subchannels));
    muster_mem_free(channel->env->mem, channel->resolution);
    muster_mem_free(channel->env->mem, channel->health_service);
}
