/* The registry client from above: opening, closing, and one channel per endpoint. It speaks etcd's
 * v3 API, to 'muster registry' or to an etcd cluster. One endpoint is in use at a time (base.c);
 * the operations are in op.c, watch.c, lease.c and registry_snapshot.c. */
#include "cluster/client/registry_client_internal.h"

#include <stdio.h>
#include <string.h>

/* A registry that restarts is back within a second, and all clients of it wait: the attempts come
 * soon. */
#define BACKOFF_BASE_NS    (50 * MUSTER_NS_PER_MS)
#define BACKOFF_MAX_NS     MUSTER_NS_PER_S
#define CONNECT_TIMEOUT_NS (5 * MUSTER_NS_PER_S)
/* etcd closes a connection that pings more often than every 5 s (--grpc-keepalive-min-time). */
#define PING_INTERVAL_NS (10 * MUSTER_NS_PER_S)
#define PING_TIMEOUT_NS  (5 * MUSTER_NS_PER_S)
/* As large as the largest answer that a registry gives (MUSTER_MVCC_ANSWER_BYTES_MAX). */
#define RECEIVE_BYTES_MAX ((size_t)64 << 20)
#define ENDPOINT_BYTES    300

static void on_state(struct muster_channel *channel)
{
    struct muster_registry *registry = muster_channel_data(channel);

    if (muster_channel_state(channel) == MUSTER_CHANNEL_READY)
        registry->has_connected = true;
}

static enum muster_rc open_channel(struct muster_registry *registry, const char *endpoint,
                                   struct muster_error *ret_error)
{
    struct muster_channel_options options = {
        .connect_timeout_ns = CONNECT_TIMEOUT_NS,
        .backoff_base_ns = registry->options.backoff_base_ns,
        .backoff_max_ns = registry->options.backoff_max_ns,
        .keepalive_interval_ns = PING_INTERVAL_NS,
        .keepalive_timeout_ns = PING_TIMEOUT_NS,
        .receive_message_max_bytes = RECEIVE_BYTES_MAX,
        .tls = muster_registry_wants_tls(endpoint) ? registry->tls : NULL,
    };
    enum muster_rc rc =
        muster_channel_open(registry->env, muster_registry_without_scheme(endpoint), &options,
                            &registry->channels[registry->channel_count], ret_error);

    if (rc != MUSTER_OK)
        return rc;
    muster_channel_set_data(registry->channels[registry->channel_count], registry);
    muster_channel_set_on_state(registry->channels[registry->channel_count], on_state);
    snprintf(registry->endpoints[registry->channel_count], ENDPOINT_SHOWN_BYTES, "%.63s", endpoint);
    registry->channel_count++;
    return MUSTER_OK;
}

static enum muster_rc check_endpoint(const char *endpoint, struct muster_error *ret_error)
{
    struct muster_endpoint parsed;

    if (strchr(endpoint, '@') != NULL) /* without repeating what may be a password */
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a registry endpoint names no user: set MUSTER_REGISTRY_USER and "
                                "MUSTER_REGISTRY_PASSWORD_FILE");
    return muster_endpoint_parse(muster_registry_without_scheme(endpoint), 0, &parsed, ret_error);
}

/* The endpoint at *at, which moves after it. */
static enum muster_rc next_endpoint(const char **at, char ret_endpoint[ENDPOINT_BYTES],
                                    struct muster_error *ret_error)
{
    size_t length = strcspn(*at, ",");

    if (length == 0 || length >= ENDPOINT_BYTES)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "bad registry endpoint at '%.150s': write HOST:PORT, with a comma "
                                "between two",
                                *at);
    memcpy(ret_endpoint, *at, length);
    ret_endpoint[length] = '\0';
    *at += length;
    if (**at == ',')
        ++*at;
    return MUSTER_OK;
}

enum muster_rc muster_registry_endpoints_check(const char *endpoints,
                                               struct muster_error *ret_error)
{
    size_t length = endpoints != NULL ? strlen(endpoints) : 0;
    const char *at = endpoints;
    size_t count = 0;

    if (length == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "endpoints of the options must name the registry's addresses "
                                "(\"HOST:PORT,...\"), got none");
    if (endpoints[length - 1] == ',')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "bad registry endpoints '%.150s': nothing after the last comma; "
                                "remove it",
                                endpoints);
    while (*at != '\0') {
        char endpoint[ENDPOINT_BYTES];
        enum muster_rc rc = next_endpoint(&at, endpoint, ret_error);

        if (rc == MUSTER_OK)
            rc = check_endpoint(endpoint, ret_error);
        if (rc == MUSTER_OK && ++count > MUSTER_REGISTRY_ENDPOINTS_MAX)
            rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                  "endpoints of the options must name at most %d addresses, got "
                                  "more; leave some out",
                                  MUSTER_REGISTRY_ENDPOINTS_MAX);
        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

static enum muster_rc open_channels(struct muster_registry *registry, const char *endpoints,
                                    struct muster_error *ret_error)
{
    enum muster_rc rc = muster_registry_endpoints_check(endpoints, ret_error);

    while (rc == MUSTER_OK && *endpoints != '\0') {
        char endpoint[ENDPOINT_BYTES];

        rc = next_endpoint(&endpoints, endpoint, ret_error);
        if (rc == MUSTER_OK)
            rc = open_channel(registry, endpoint, ret_error);
    }
    return rc;
}

static void on_close_task(struct muster_task *task)
{
    struct muster_registry *registry = task->data;
    struct muster_mem *mem = registry->env->mem;

    MUSTER_ASSERT(registry->is_closing && muster_list_is_empty(&registry->requests));
    /* The callback may still read the data of the client; memory goes after it. */
    if (registry->closed != NULL)
        registry->closed(registry);
    muster_registry_auth_fini(registry);
    muster_registry_tls_fini(registry);
    muster_mem_free(mem, registry);
}

static void on_channel_closed(struct muster_channel *channel)
{
    struct muster_registry *registry = muster_channel_data(channel);

    MUSTER_ASSERT(registry->channels_open > 0);
    registry->channels_open--;
    muster_registry_check_closed(registry);
}

enum muster_rc muster_registry_open(struct muster_env *env,
                                    const struct muster_registry_options *options,
                                    struct muster_registry **ret_registry,
                                    struct muster_error *ret_error)
{
    static const struct muster_registry_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_registry *registry = muster_mem_alloc_zero(env->mem, 1, sizeof(*registry));
    enum muster_rc rc = MUSTER_OK;

    if (registry == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for a registry client");
    registry->env = env;
    registry->auth.on_settled = muster_registry_resume_requests;
    registry->options = *options;
    if (registry->options.backoff_base_ns == 0)
        registry->options.backoff_base_ns = BACKOFF_BASE_NS;
    if (registry->options.backoff_max_ns == 0)
        registry->options.backoff_max_ns = BACKOFF_MAX_NS;
    /* The texts of the options are borrowed for this call only. */
    registry->options.endpoints = registry->options.user = registry->options.password_file = NULL;
    registry->options.ca_file = registry->options.cert_file = registry->options.key_file = NULL;
    muster_timer_init(&registry->auth.again, NULL, registry);
    muster_list_init(&registry->requests);
    muster_list_init(&registry->leases);
    muster_list_init(&registry->watches);
    muster_list_init(&registry->snapshots);
    muster_task_init(&registry->close_task, on_close_task, registry);
    rc = muster_registry_auth_init(registry, options, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_registry_tls_init(registry, options, ret_error);
    if (rc == MUSTER_OK)
        rc = open_channels(registry, options->endpoints, ret_error);
    if (rc != MUSTER_OK) {
        /* A channel that was opened is closed asynchronously, so the client lives until then. */
        if (registry->channel_count == 0) {
            muster_registry_auth_fini(registry);
            muster_registry_tls_fini(registry);
            muster_mem_free(env->mem, registry);
        } else {
            muster_registry_close(registry, NULL);
        }
        return rc;
    }
    *ret_registry = registry;
    return MUSTER_OK;
}

void muster_registry_close(struct muster_registry *registry, muster_registry_close_fn *closed)
{
    MUSTER_ASSERT(!registry->is_closing);
    registry->is_closing = true;
    registry->closed = closed;
    registry->channels_open = registry->channel_count; /* before what may find itself the last */
    muster_registry_stop_leases(registry);
    muster_registry_stop_watches(registry);
    muster_registry_stop_snapshots(registry);
    muster_registry_stop_requests(registry);
    muster_registry_stop_auth(registry);
    for (size_t i = 0; i < registry->channel_count; i++)
        muster_channel_close(registry->channels[i], on_channel_closed);
    muster_registry_check_closed(registry);
}

void muster_registry_set_data(struct muster_registry *registry, void *data)
{
    registry->data = data;
}

void *muster_registry_data(const struct muster_registry *registry)
{
    return registry->data;
}

bool muster_registry_is_connected(const struct muster_registry *registry)
{
    for (size_t i = 0; i < registry->channel_count; i++) {
        if (muster_channel_state(registry->channels[i]) == MUSTER_CHANNEL_READY)
            return true;
    }
    return false;
}
