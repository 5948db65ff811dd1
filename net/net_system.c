/* The operating system's network: sockets and DNS on the environment's loop. */
#include "net/dns.h"
#include "net/net_internal.h"

struct system_net {
    struct muster_net net;
    struct muster_env *env;
    struct muster_dns *dns;
};

static struct system_net *system_of(struct muster_net *net)
{
    return MUSTER_CONTAINER_OF(net, struct system_net, net);
}

static enum muster_rc system_connect(struct muster_net *net, struct muster_connect *connect,
                                     const struct muster_stream_options *options,
                                     uint64_t deadline_ns)
{
    return muster_connect_socket_start(system_of(net)->env, connect, options, deadline_ns);
}

static void system_connect_cancel(struct muster_net *net, struct muster_connect *connect)
{
    (void)net;
    muster_connect_socket_cancel(connect);
}

static enum muster_rc system_listen(struct muster_net *net, const struct muster_address *address,
                                    const struct muster_stream_options *options,
                                    muster_listener_accept_fn *on_accept, void *data,
                                    struct muster_listener **ret_listener,
                                    struct muster_error *ret_error)
{
    return muster_listener_socket_open(system_of(net)->env, address, options, on_accept, data,
                                       ret_listener, ret_error);
}

static enum muster_rc system_lookup(struct muster_net *net, struct muster_lookup *lookup,
                                    const char *host, uint64_t deadline_ns)
{
    return muster_dns_lookup(system_of(net)->dns, lookup, host, deadline_ns);
}

static void system_lookup_cancel(struct muster_net *net, struct muster_lookup *lookup)
{
    muster_dns_lookup_cancel(system_of(net)->dns, lookup);
}

static const struct muster_net_ops system_ops = {
    .connect = system_connect,
    .connect_cancel = system_connect_cancel,
    .listen = system_listen,
    .lookup = system_lookup,
    .lookup_cancel = system_lookup_cancel,
};

enum muster_rc muster_net_system_open(struct muster_env *env, struct muster_net **ret_net)
{
    struct system_net *system = muster_mem_alloc_zero(env->mem, 1, sizeof(*system));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (system == NULL)
        return rc;
    system->net.ops = &system_ops;
    system->env = env;
    rc = muster_dns_open(env, NULL, &system->dns);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, system);
        return rc;
    }
    *ret_net = &system->net;
    return MUSTER_OK;
}

void muster_net_system_close(struct muster_net *net)
{
    struct system_net *system;

    if (net == NULL)
        return;
    system = system_of(net);
    muster_dns_close(system->dns);
    muster_mem_free(system->env->mem, system);
}
