/* The operating system's network: sockets and DNS on the environment's loop. It also takes over a
 * socket that a launcher has bound before the process began, so that its port is known beforehand.
 */
#include "net/stream/dns.h"
#include "net/stream/net_internal.h"
#include "runtime/loop/deadline.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct system_net {
    struct muster_net net;
    struct muster_env *env;
    struct muster_dns *dns;
    int adopted_fd; /* -1: none */
};

static struct system_net *system_of(struct muster_net *net)
{
    return MUSTER_CONTAINER_OF(net, struct system_net, net);
}

static enum muster_rc system_connect(struct muster_net *net, struct muster_connect *connect,
                                     const struct muster_stream_options *options,
                                     uint64_t deadline_ns)
{
    struct muster_env *env = system_of(net)->env;
    enum muster_rc rc =
        muster_deadline_check(env, "muster_connect_start", deadline_ns, &connect->error);

    return rc == MUSTER_OK ? muster_connect_socket_start(env, connect, options, deadline_ns) : rc;
}

static void system_connect_cancel(struct muster_net *net, struct muster_connect *connect)
{
    (void)net;
    muster_connect_socket_cancel(connect);
}

/* A socket that is bound to every address does not serve a request for one of them: the caller
 * would be reachable where it did not ask to be. */
static bool is_asked_for(const struct muster_address *bound, const struct muster_address *asked)
{
    struct muster_address any_port = *bound;

    any_port.port = 0;
    return muster_address_is_equal(bound, asked) || muster_address_is_equal(&any_port, asked);
}

/* The adopted socket, if it is bound to the address that is asked for (port 0 asks for any port);
 * -1: it is not the one. */
static int take_adopted(struct system_net *system, const struct muster_address *asked)
{
    struct muster_address bound;
    int fd = system->adopted_fd;

    if (fd < 0 || muster_net_system_bound(fd, &bound) != MUSTER_OK || !is_asked_for(&bound, asked))
        return -1;
    system->adopted_fd = -1;
    return fd;
}

static enum muster_rc system_listen(struct muster_net *net, const struct muster_address *address,
                                    const struct muster_stream_options *options,
                                    muster_listener_accept_fn *on_accept, void *data,
                                    struct muster_listener **ret_listener,
                                    struct muster_error *ret_error)
{
    struct system_net *system = system_of(net);

    return muster_listener_socket_open(system->env, take_adopted(system, address), address, options,
                                       on_accept, data, ret_listener, ret_error);
}

static enum muster_rc system_lookup(struct muster_net *net, struct muster_lookup *lookup,
                                    const char *host, uint64_t deadline_ns)
{
    struct system_net *system = system_of(net);
    enum muster_rc rc =
        muster_deadline_check(system->env, "muster_lookup_start", deadline_ns, &lookup->error);

    return rc == MUSTER_OK ? muster_dns_lookup(system->dns, lookup, host, deadline_ns) : rc;
}

static void system_lookup_cancel(struct muster_net *net, struct muster_lookup *lookup)
{
    muster_dns_lookup_cancel(system_of(net)->dns, lookup);
}

static enum muster_rc system_find_source(struct muster_net *net, const struct muster_address *peer,
                                         struct muster_address *ret_source,
                                         struct muster_error *ret_error)
{
    (void)net;
    return muster_host_socket_find_source(peer, ret_source, ret_error);
}

static enum muster_rc system_find_interface(
    struct muster_net *net, const char *name,
    struct muster_address ret_addresses[MUSTER_INTERFACE_ADDRESSES_MAX], size_t *ret_count,
    struct muster_error *ret_error)
{
    (void)net;
    return muster_host_socket_find_interface(name, ret_addresses, ret_count, ret_error);
}

static bool system_has_address(struct muster_net *net, const struct muster_address *address)
{
    (void)net;
    return muster_host_socket_has_address(address);
}

static const struct muster_net_ops system_ops = {
    .connect = system_connect,
    .connect_cancel = system_connect_cancel,
    .listen = system_listen,
    .lookup = system_lookup,
    .lookup_cancel = system_lookup_cancel,
    .find_source = system_find_source,
    .find_interface = system_find_interface,
    .has_address = system_has_address,
};

enum muster_rc muster_net_system_open(struct muster_env *env, struct muster_net **ret_net)
{
    struct system_net *system = muster_mem_alloc_zero(env->mem, 1, sizeof(*system));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (system == NULL)
        return rc;
    system->net.ops = &system_ops;
    system->env = env;
    system->adopted_fd = -1;
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
    if (system->adopted_fd >= 0)
        close(system->adopted_fd);
    muster_dns_close(system->dns);
    muster_mem_free(system->env->mem, system);
}

enum muster_rc muster_net_system_bind(const struct muster_address *address, int *ret_fd,
                                      struct muster_error *ret_error)
{
    static const struct muster_stream_options defaults = {.send_buffer_bytes = 0};

    return muster_socket_listen(address, &defaults, ret_fd, ret_error);
}

enum muster_rc muster_net_system_bound(int fd, struct muster_address *ret_address)
{
    int is_listening = 0;
    socklen_t length = sizeof(is_listening);

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &length) != 0 || !is_listening)
        return MUSTER_INVALID_ARGUMENT;
    *ret_address = muster_socket_local(fd);
    return ret_address->family != MUSTER_ADDRESS_NONE ? MUSTER_OK : MUSTER_UNAVAILABLE;
}

/* The launcher's socket may be blocking, and must not go on to the programs that this one starts.
 */
void muster_net_system_adopt(struct muster_net *net, int fd)
{
    struct system_net *system = system_of(net);

    if (system->adopted_fd >= 0)
        close(system->adopted_fd);
    system->adopted_fd = fd;
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}
