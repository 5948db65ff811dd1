/* The address at which a member listens: the one that it was told, else its resolver's, else the one that
 * the kernel would use towards the registry. */
#include "training/address.h"

#include <stdio.h>
#include <string.h>

#include <muster/stream.h>

#include "runtime/value/backoff.h"

/* One look-up: enough for a second try of a second name server. */
#define LOOK_UP_WITHIN_NS (10 * MUSTER_NS_PER_S)
/* Processes of a job start together with their registry, so the first waits are short. */
static const struct muster_backoff search_again = {
    .first_ns = 20 * MUSTER_NS_PER_MS, .max_ns = MUSTER_NS_PER_S, .growth_permille = 2000};
#define PATIENCE_NS    (3 * MUSTER_NS_PER_S) /* a longer search is logged, once */
#define ENDPOINT_BYTES (MUSTER_HOST_TEXT_BYTES + 16)

/* --- waiting, where nothing else runs on the loop yet --- */

static enum muster_rc look_up_host(struct muster_env *env, const char *host,
                                   struct muster_lookup *ret_lookup)
{
    return muster_lookup_wait(env, host, 0, muster_loop_after_ns(env->loop, LOOK_UP_WITHIN_NS),
                              ret_lookup);
}

static void turn_for(struct muster_env *env, uint64_t span_ns)
{
    uint64_t until_ns = muster_loop_after_ns(env->loop, span_ns);

    while (muster_loop_now_ns(env->loop) < until_ns)
        muster_loop_turn(env->loop, until_ns - muster_loop_now_ns(env->loop));
}

/* --- towards the registry --- */

/* The source towards an endpoint on this host is loopback: any other source is better. */
static void keep_better(const struct muster_address *source, struct muster_address *best)
{
    if (best->family == MUSTER_ADDRESS_NONE ||
        (muster_address_is_loopback(best) && !muster_address_is_loopback(source)))
        *best = *source;
}

static enum muster_rc find_source_of(struct muster_env *env, const struct muster_endpoint *endpoint,
                                     struct muster_address *best, struct muster_error *ret_error)
{
    struct muster_lookup found;
    struct muster_address source;
    enum muster_rc rc;

    if (endpoint->address.family == MUSTER_ADDRESS_UNIX) { /* the registry is on this host */
        keep_better(&(struct muster_address){.family = MUSTER_ADDRESS_IPV4, .ip = {127, 0, 0, 1}},
                    best);
        return MUSTER_OK;
    }
    if (endpoint->address.family != MUSTER_ADDRESS_NONE) {
        rc = muster_net_find_source(env->net, &endpoint->address, &source, ret_error);
        if (rc == MUSTER_OK)
            keep_better(&source, best);
        return rc;
    }
    rc = look_up_host(env, endpoint->host, &found);
    if (rc != MUSTER_OK)
        *ret_error = found.error;
    for (size_t i = 0; i < found.address_count; i++) {
        rc = muster_net_find_source(env->net, &found.addresses[i], &source, ret_error);
        if (rc != MUSTER_OK)
            continue;
        keep_better(&source, best);
        return MUSTER_OK;
    }
    return rc;
}

/* Each of "https://a:2379,b:2379" once; the error is the last one's. */
static enum muster_rc try_endpoints(struct muster_env *env, const char *endpoints,
                                    struct muster_address *ret_source,
                                    struct muster_error *ret_error)
{
    static const char scheme_end[] = "://";
    struct muster_address best = {.family = MUSTER_ADDRESS_NONE};
    enum muster_rc rc = MUSTER_OK;

    while (*endpoints != '\0') {
        size_t length = strcspn(endpoints, ",");
        char text[ENDPOINT_BYTES];
        const char *scheme;
        struct muster_endpoint endpoint;

        snprintf(text, sizeof(text), "%.*s", (int)length, endpoints);
        scheme = strstr(text, scheme_end);
        rc = muster_endpoint_parse(scheme != NULL ? scheme + sizeof(scheme_end) - 1 : text, 0,
                                   &endpoint, ret_error);
        if (rc == MUSTER_OK)
            rc = find_source_of(env, &endpoint, &best, ret_error);
        endpoints += length + (endpoints[length] == ',');
    }
    if (best.family == MUSTER_ADDRESS_NONE)
        return rc;
    *ret_source = best;
    return MUSTER_OK;
}

/* A registry may get its name, and this host its network, after this process has started. */
static enum muster_rc find_source(struct muster_env *env, const char *registry, uint64_t timeout_ns,
                                  struct muster_address *ret_source, struct muster_error *ret_error)
{
    uint64_t now_ns = muster_loop_now_ns(env->loop);
    uint64_t deadline_ns = muster_loop_after_ns(env->loop, timeout_ns);
    uint64_t told_ns = now_ns + PATIENCE_NS, again_ns = 0;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = try_endpoints(env, registry, ret_source, &error);

    while (rc != MUSTER_OK && rc != MUSTER_INVALID_ARGUMENT && rc != MUSTER_UNIMPLEMENTED &&
           muster_loop_now_ns(env->loop) < deadline_ns) {
        if (muster_loop_now_ns(env->loop) >= told_ns) {
            MUSTER_LOG(env, WARN, "waits_for_registry", "registry", registry, "reason", error.text);
            told_ns = UINT64_MAX;
        }
        turn_for(env, muster_backoff_next(&search_again, &again_ns, NULL));
        rc = try_endpoints(env, registry, ret_source, &error);
    }
    if (rc == MUSTER_OK)
        return rc;
    if (rc != MUSTER_INVALID_ARGUMENT && rc != MUSTER_UNIMPLEMENTED)
        rc = MUSTER_UNAVAILABLE;
    return muster_error_set(ret_error, rc,
                            "the registry at %.60s cannot be reached, and the route to it tells "
                            "which address of this host the others reach: %.100s",
                            registry, error.text);
}

/* --- the resolver's address --- */

/* "10.0.0.1:2222", "node1:2222", "node1" (port 0), also with a scheme. */
static bool task_address_parse(const char *text, struct muster_endpoint *ret_endpoint)
{
    const char *scheme = strstr(text, "://");

    if (scheme != NULL)
        text = scheme + 3;
    if (muster_endpoint_parse(text, 0, ret_endpoint, NULL) == MUSTER_OK)
        return ret_endpoint->address.family != MUSTER_ADDRESS_UNIX;
    if (muster_endpoint_parse(text, UINT16_MAX, ret_endpoint, NULL) != MUSTER_OK)
        return false;
    ret_endpoint->port = 0;
    return true;
}

/* An address that this host has not cannot be listened at; one of loopback serves members of this
 * host only (Debian gives hosts the name 127.0.1.1 among themselves). */
static bool is_useful(struct muster_env *env, const struct muster_address *address,
                      bool may_be_loopback)
{
    return muster_net_has_address(env->net, address) &&
           (may_be_loopback || !muster_address_is_loopback(address));
}

/* False: this host has no address that others can reach. */
static bool find_task_address(struct muster_env *env, const char *text, bool may_be_loopback,
                              struct muster_address *ret_address)
{
    struct muster_endpoint endpoint;
    struct muster_lookup found = {.address_count = 0};
    bool is_found = false;

    if (!task_address_parse(text, &endpoint))
        return false;
    if (endpoint.address.family != MUSTER_ADDRESS_NONE) {
        *ret_address = endpoint.address;
        is_found = is_useful(env, ret_address, may_be_loopback);
    } else if (look_up_host(env, endpoint.host, &found) == MUSTER_OK) {
        for (size_t i = 0; !is_found && i < found.address_count; i++) {
            *ret_address = found.addresses[i];
            is_found = is_useful(env, ret_address, may_be_loopback);
        }
    }
    ret_address->port = endpoint.port;
    if (!is_found)
        MUSTER_LOG(env, WARN, "task_address_unusable", "address", text, "reason",
                   found.error.text[0] != '\0'
                       ? found.error.text
                       : "it is not an address of this host that others reach");
    return is_found;
}

/* --- all of it --- */

/* The state of a search for this member's address. */
struct address_search {
    struct muster_env *env;
    struct muster_listen listen;
    bool has_listen;
    const char *task_address; /* "": not told */
    bool is_sole;
    struct muster_address source; /* towards the registry */
};

/* Under a launcher TF_CONFIG and the like are the launcher's own texts for other programs. */
static void read_task_address(const struct muster_replica_place *place,
                              struct address_search *search)
{
    struct muster_vars *vars = search->env->vars;
    const char *told = muster_vars_get(vars, "MUSTER_TASK_ADDRESS");

    search->task_address = place->address;
    search->is_sole = place->is_sole;
    if (told == NULL && muster_vars_get(vars, "MUSTER_INCARNATION") == NULL)
        return;
    search->task_address = told != NULL ? told : "";
    search->is_sole = true; /* the launcher leaves out a port that several workers would share */
}

static enum muster_rc read_listen(struct address_search *search, struct muster_error *ret_error)
{
    const char *text = muster_vars_get(search->env->vars, "MUSTER_LISTEN");
    struct muster_error why;
    enum muster_rc rc;

    if (text == NULL || text[0] == '\0')
        return MUSTER_OK;
    rc = muster_listen_parse(text, &search->listen, &why);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "MUSTER_LISTEN=%s", why.text);
    search->has_listen = true;
    return MUSTER_OK;
}

/* Listen at all addresses, of the family at which the others come. */
static enum muster_rc listen_widen(struct address_search *search, struct muster_node_options *node,
                                   struct muster_error *ret_error)
{
    enum muster_address_family family = search->listen.address.family;

    if (family == MUSTER_ADDRESS_IPV4 && node->listen.family == MUSTER_ADDRESS_IPV6)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "MUSTER_LISTEN=%s must be [::] here: the other members and the "
                                "registry are reached by IPv6",
                                search->listen.host);
    node->reach = node->listen;
    node->reach.port = 0;
    memset(&node->listen, 0, sizeof(node->listen));
    node->listen.family = family != MUSTER_ADDRESS_NONE ? family : node->reach.family;
    return MUSTER_OK;
}

/* The address that others are told: the resolver's, else towards the registry. */
static enum muster_rc find_by_itself(struct address_search *search,
                                     struct muster_node_options *node,
                                     struct muster_error *ret_error)
{
    bool may_be_loopback = muster_address_is_loopback(&search->source);
    enum muster_rc rc = MUSTER_OK;

    if (find_task_address(search->env, search->task_address, may_be_loopback, &node->listen)) {
        if (!search->is_sole)
            node->listen.port = 0;
        node->is_listen_port_wish = node->listen.port != 0;
    } else {
        node->listen = search->source;
        node->listen.port = 0;
    }
    if (!search->has_listen)
        return MUSTER_OK;
    rc = listen_widen(search, node, ret_error);
    node->listen.port = search->listen.port_first;
    node->is_listen_port_wish = false;
    return rc;
}

static enum muster_rc find_as_told(struct address_search *search, struct muster_node_options *node,
                                   struct muster_error *ret_error)
{
    uint64_t deadline_ns = muster_loop_after_ns(search->env->loop, LOOK_UP_WITHIN_NS);
    struct muster_error why = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_listen_find(search->env, &search->listen, search->source.family,
                                           deadline_ns, &node->listen, &why);

    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "MUSTER_LISTEN=%s", why.text);
}

enum muster_rc muster_training_find_address(struct muster_env *env,
                                            const struct muster_replica_place *place,
                                            uint64_t timeout_ns, struct muster_node_options *node,
                                            struct muster_error *ret_error)
{
    struct address_search search = {.env = env};
    bool is_exact;
    enum muster_rc rc;

    read_task_address(place, &search);
    rc = read_listen(&search, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    is_exact = search.has_listen && search.listen.address.family != MUSTER_ADDRESS_NONE &&
               !muster_listen_is_wildcard(&search.listen);
    if (!is_exact || muster_address_is_loopback(&search.listen.address))
        rc = find_source(env, node->registry, timeout_ns, &search.source, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    node->listen_port_last = search.listen.port_last;
    node->is_loopback_shared = node->host_key != NULL && muster_address_is_loopback(&search.source);
    if (search.has_listen && !muster_listen_is_wildcard(&search.listen))
        return find_as_told(&search, node, ret_error);
    return find_by_itself(&search, node, ret_error);
}
