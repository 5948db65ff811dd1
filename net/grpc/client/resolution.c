/* The addresses of a target of several names, looked up one name after the other and again later.
 * balance.c owns it for round robin, starts it when a connection is lost, and gets the whole list
 * by on_result. A name that fails now keeps the addresses of the time before: a broken name server
 * must not end calls that work. */
#include "net/grpc/client/resolution.h"

#include <string.h>

/* gRPC naming.md: connections that are lost one after the other must not become a storm of look-
 * ups. */
#define INTERVAL_MIN_NS (30 * MUSTER_NS_PER_S)

static void next_endpoint(struct muster_rpc_resolution *resolution);

/* Two names may lead to the same address; one subchannel for it is enough. */
static void resolution_add(struct muster_rpc_resolution *resolution,
                           const struct muster_address *address)
{
    for (size_t i = 0; i < resolution->address_count; i++) {
        if (muster_address_is_equal(&resolution->addresses[i], address))
            return;
    }
    if (resolution->address_count == MUSTER_RPC_ADDRESSES_MAX) {
        MUSTER_LOG(resolution->env, WARN, "rpc_address_left_out", "target",
                   resolution->target->authority, "addresses_max", MUSTER_RPC_ADDRESSES_MAX);
        return;
    }
    resolution->sources[resolution->address_count] = resolution->endpoint_at;
    resolution->addresses[resolution->address_count++] = *address;
}

/* A name that cannot be looked up now leads where it led before. */
static void keep_former(struct muster_rpc_resolution *resolution)
{
    resolution->is_partial = true;
    for (size_t i = 0; i < resolution->former_count; i++) {
        if (resolution->former_sources[i] == resolution->endpoint_at)
            resolution_add(resolution, &resolution->former[i]);
    }
}

void muster_rpc_resolution_repeat(struct muster_rpc_resolution *resolution)
{
    struct muster_env *env = resolution->env;
    uint64_t delay_ns =
        muster_backoff_next(&resolution->backoff, &resolution->backoff_ns, env->rng);

    resolution->has_failed = true;
    muster_timer_start(&resolution->timer, env->loop, muster_loop_after_ns(env->loop, delay_ns));
}

/* All endpoints were asked. Some addresses are better than none: on_result gets them, and the names
 * that failed are asked again by the backoff. */
static void resolution_conclude(struct muster_rpc_resolution *resolution)
{
    MUSTER_ASSERT(!resolution->is_looking_up);
    resolution->earliest_ns = muster_loop_after_ns(resolution->env->loop, INTERVAL_MIN_NS);
    if (resolution->address_count > 0) {
        if (resolution->is_partial) {
            muster_rpc_resolution_repeat(resolution);
        } else {
            resolution->has_failed = false;
            resolution->backoff_ns = 0;
        }
        memset(&resolution->error, 0, sizeof(resolution->error));
        resolution->on_result(resolution, MUSTER_OK);
        return;
    }
    if (resolution->error.rc == MUSTER_OK)
        (void)muster_error_set(&resolution->error, MUSTER_UNAVAILABLE, "%s has no addresses",
                               resolution->target->authority);
    muster_rpc_resolution_repeat(resolution);
    resolution->on_result(resolution, resolution->error.rc);
}

static void on_lookup(struct muster_lookup *lookup, enum muster_rc rc)
{
    struct muster_rpc_resolution *resolution = lookup->data;

    MUSTER_ASSERT(resolution->is_looking_up);
    resolution->is_looking_up = false;
    /* The owner has waited for this callback before it frees the memory. */
    if (resolution->is_stopped) {
        resolution->on_result(resolution, MUSTER_CANCELLED);
        return;
    }
    if (rc != MUSTER_OK) {
        resolution->error = lookup->error;
        keep_former(resolution);
    }
    for (size_t i = 0; i < lookup->address_count && rc == MUSTER_OK; i++)
        resolution_add(resolution, &lookup->addresses[i]);
    resolution->endpoint_at++;
    next_endpoint(resolution);
}

/* When it is true, the answer comes by on_lookup, which goes on with the next endpoint. A look-up
 * that cannot even start counts as a failed name. */
static bool look_up(struct muster_rpc_resolution *resolution, const char *host, uint16_t port)
{
    struct muster_env *env = resolution->env;
    enum muster_rc rc;

    resolution->lookup.data = resolution;
    rc = muster_lookup_start(&resolution->lookup, env->net, host, port,
                             muster_loop_after_ns(env->loop, resolution->timeout_ns), on_lookup);
    resolution->is_looking_up = rc == MUSTER_OK;
    if (rc != MUSTER_OK)
        (void)muster_error_set(&resolution->error, MUSTER_UNAVAILABLE, "looking up %s failed: %s",
                               host, muster_rc_text(rc));
    return resolution->is_looking_up;
}

static void next_endpoint(struct muster_rpc_resolution *resolution)
{
    for (; resolution->endpoint_at < resolution->target->count; resolution->endpoint_at++) {
        const struct muster_endpoint *endpoint =
            &resolution->target->endpoints[resolution->endpoint_at];

        if (endpoint->address.family != MUSTER_ADDRESS_NONE)
            resolution_add(resolution, &endpoint->address);
        else if (look_up(resolution, endpoint->host, endpoint->port))
            return;
        else
            keep_former(resolution);
    }
    resolution_conclude(resolution);
}

static void on_due(struct muster_timer *timer)
{
    struct muster_rpc_resolution *resolution = timer->data;

    MUSTER_ASSERT(!resolution->is_looking_up && !resolution->is_stopped);
    /* The list is kept aside while the new one is built from it and from the answers. */
    memcpy(resolution->former, resolution->addresses, sizeof(resolution->former));
    memcpy(resolution->former_sources, resolution->sources, sizeof(resolution->former_sources));
    resolution->former_count = resolution->address_count;
    resolution->address_count = 0;
    resolution->endpoint_at = 0;
    resolution->is_partial = false;
    memset(&resolution->error, 0, sizeof(resolution->error));
    next_endpoint(resolution);
}

static bool has_names(const struct muster_rpc_target *target)
{
    for (size_t i = 0; i < target->count; i++) {
        if (target->endpoints[i].address.family == MUSTER_ADDRESS_NONE)
            return true;
    }
    return false;
}

void muster_rpc_resolution_init(struct muster_rpc_resolution *resolution)
{
    MUSTER_ASSERT(resolution->on_result != NULL && resolution->backoff.first_ns > 0);
    resolution->backoff_ns = 0;
    muster_timer_init(&resolution->timer, on_due, resolution);
}

void muster_rpc_resolution_start(struct muster_rpc_resolution *resolution)
{
    /* Conclude sets it, so 0 means that nothing was ever resolved: then the timer is due at once.
     */
    bool is_first = resolution->earliest_ns == 0;

    if (resolution->is_looking_up || resolution->is_stopped ||
        muster_timer_is_started(&resolution->timer) ||
        (!is_first && !has_names(resolution->target)))
        return;
    muster_timer_start(&resolution->timer, resolution->env->loop, resolution->earliest_ns);
}

void muster_rpc_resolution_stop(struct muster_rpc_resolution *resolution)
{
    resolution->is_stopped = true;
    muster_timer_stop(&resolution->timer);
    if (resolution->is_looking_up)
        muster_lookup_cancel(&resolution->lookup);
}
