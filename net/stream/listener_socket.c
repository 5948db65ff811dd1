/* A listening socket: binds, accepts within a budget, backs off when descriptors run out. */
#include "net/stream/net_internal.h"

#include "runtime/value/backoff.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

/* A burst of connections must not keep the loop from its other work. */
#define TURN_ACCEPTS_MAX 64
/* Without a free descriptor accept fails at once, and the socket stays readable: the listener looks
 * away until one may have been closed. Connections wait in the backlog meanwhile. */
static const struct muster_backoff accept_pause = {
    .first_ns = 10 * MUSTER_NS_PER_MS, .max_ns = MUSTER_NS_PER_S, .growth_permille = 2000};

struct socket_listener {
    struct muster_listener listener;
    struct muster_env *env;
    struct muster_fd_watch watch;
    struct muster_timer backoff;
    uint64_t backoff_ns; /* 0: the last accept went well */
    struct muster_task task;
    bool is_closing, is_held, is_unpaced;
    muster_listener_close_fn *closed;
    muster_listener_accept_fn *on_accept;
    struct muster_address address;
    struct muster_stream_options options;
    dev_t device; /* which file the unix path was when we made it */
    ino_t inode;
};

static struct socket_listener *socket_of(const struct muster_listener *listener)
{
    return MUSTER_CONTAINER_OF(listener, struct socket_listener, listener);
}

/* Binding. */

static bool has_path(const struct muster_address *address)
{
    return address->family == MUSTER_ADDRESS_UNIX && address->path[0] != '@';
}

/* A process that died without closing leaves its file behind, and bind fails for ever. Nobody
 * listens if a connect is refused; a listener with a full backlog gives EAGAIN instead. */
static bool is_dead_socket(const struct muster_address *address)
{
    static const struct muster_stream_options defaults = {.send_buffer_bytes = 0};
    union muster_sockaddr sockaddr;
    socklen_t length = muster_sockaddr_from(address, &sockaddr);
    struct stat status;
    bool is_refused;
    int fd;

    /* A connect to a regular file is refused too, but that file must not be removed. */
    if (lstat(address->path, &status) != 0 || !S_ISSOCK(status.st_mode))
        return false;
    fd = muster_socket_new(MUSTER_ADDRESS_UNIX, &defaults);
    if (fd < 0)
        return false;
    is_refused = connect(fd, &sockaddr.any, length) != 0 && errno == ECONNREFUSED;
    close(fd);
    return is_refused;
}

static int bind_address(int fd, const struct muster_address *address)
{
    union muster_sockaddr sockaddr;
    socklen_t length = muster_sockaddr_from(address, &sockaddr);
    int one = 1;
    int zero = 0;

    /* A restarted process must get its port back although connections of the old one are in
     * TIME-WAIT. */
    if (address->family != MUSTER_ADDRESS_UNIX)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    /* [::] takes IPv4 as well, whatever net.ipv6.bindv6only says. */
    if (address->family == MUSTER_ADDRESS_IPV6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, &sockaddr.any, length) == 0)
        return 0;
    if (errno != EADDRINUSE || !has_path(address))
        return -1;
    if (!is_dead_socket(address)) {
        errno = EADDRINUSE; /* the probe has left its own, such as EAGAIN of a full backlog */
        return -1;
    }
    (void)unlink(address->path);
    return bind(fd, &sockaddr.any, length);
}

static enum muster_rc refuse_address(const struct muster_address *address, int sys,
                                     struct muster_error *ret_error)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    return muster_error_set_sys(ret_error, muster_rc_from_errno(sys), sys, "listen on %s",
                                muster_address_format(address, text));
}

enum muster_rc muster_socket_listen(const struct muster_address *address,
                                    const struct muster_stream_options *options, int *ret_fd,
                                    struct muster_error *ret_error)
{
    int fd = muster_socket_new(address->family, options);
    int sys;

    if (fd >= 0 && bind_address(fd, address) == 0 && listen(fd, SOMAXCONN) == 0) {
        *ret_fd = fd;
        return MUSTER_OK;
    }
    sys = errno;
    if (fd >= 0)
        close(fd);
    return refuse_address(address, sys, ret_error);
}

/* Accepting. */

/* accept(2) also reports what is wrong with the connection it would have given. */
static bool is_error_of_connection(int sys)
{
    switch (sys) {
    case EINTR:
    case ECONNABORTED:
    case EPERM:
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case ENONET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
        return true;
    default:
        return false;
    }
}

static void back_off(struct socket_listener *socket, int sys)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_loop *loop = socket->env->loop;

    if (socket->backoff_ns == 0)
        MUSTER_LOG(socket->env, WARN, "accept_failed", "address",
                   muster_address_format(&socket->address, text), "errno", sys);
    muster_fd_watch_update(&socket->watch, 0);
    muster_timer_start(
        &socket->backoff, loop,
        muster_loop_after_ns(loop, muster_backoff_next(&accept_pause, &socket->backoff_ns, NULL)));
}

/* Returns whether another connection may wait. on_accept may close the listener, which stays until
 * its task has run. */
static bool accept_once(struct socket_listener *socket)
{
    struct muster_stream *stream = NULL;
    int fd = accept4(socket->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0 && errno == EAGAIN)
        return false;
    if (fd < 0 && is_error_of_connection(errno))
        return true;
    if (fd < 0) {
        back_off(socket, errno);
        return false;
    }
    muster_socket_set_options(fd, socket->address.family, &socket->options);
    if (socket->is_unpaced)
        muster_socket_pacing_decide(fd);
    if (muster_stream_socket_open(socket->env, fd, &stream) != MUSTER_OK) {
        back_off(socket, ENOMEM);
        return false;
    }
    socket->backoff_ns = 0;
    socket->on_accept(&socket->listener, stream);
    return !socket->is_closing && !socket->is_held;
}

static void on_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct socket_listener *socket = watch->data;
    unsigned count;

    (void)ready;
    for (count = 0; count < TURN_ACCEPTS_MAX && accept_once(socket); count++)
        continue;
}

static void on_backoff(struct muster_timer *timer)
{
    struct socket_listener *socket = timer->data;

    muster_fd_watch_update(&socket->watch, socket->is_held ? 0 : MUSTER_FD_READ);
}

/* Open and close. */

/* Another process may have made a new socket at this path since; only the own file is removed. */
static void unlink_own_path(const struct socket_listener *socket)
{
    struct stat status;

    if (!has_path(&socket->address) || lstat(socket->address.path, &status) != 0)
        return;
    if (status.st_dev == socket->device && status.st_ino == socket->inode)
        (void)unlink(socket->address.path);
}

static void on_task(struct muster_task *task)
{
    struct socket_listener *socket = task->data;

    if (socket->closed != NULL)
        socket->closed(&socket->listener);
    muster_mem_free(socket->env->mem, socket);
}

static void socket_close(struct muster_listener *listener, muster_listener_close_fn *closed)
{
    struct socket_listener *socket = socket_of(listener);

    MUSTER_ASSERT(!socket->is_closing);
    socket->is_closing = true;
    socket->closed = closed;
    muster_timer_stop(&socket->backoff);
    muster_fd_watch_close(&socket->watch);
    unlink_own_path(socket);
    close(socket->watch.fd);
    muster_task_post(&socket->task, socket->env->loop);
}

static void socket_hold(struct muster_listener *listener, bool is_held)
{
    struct socket_listener *socket = socket_of(listener);
    bool is_pausing = muster_timer_is_started(&socket->backoff);

    MUSTER_ASSERT(!socket->is_closing);
    socket->is_held = is_held;
    muster_fd_watch_update(&socket->watch, is_held || is_pausing ? 0 : MUSTER_FD_READ);
}

static const struct muster_address *socket_address(const struct muster_listener *listener)
{
    return &socket_of(listener)->address;
}

static const struct muster_listener_ops socket_ops = {
    .address = socket_address,
    .close = socket_close,
    .hold = socket_hold,
};

static void remember_path(struct socket_listener *socket)
{
    struct stat status;

    if (!has_path(&socket->address) || lstat(socket->address.path, &status) != 0)
        return;
    socket->device = status.st_dev;
    socket->inode = status.st_ino;
}

enum muster_rc muster_listener_socket_open(struct muster_env *env, int fd,
                                           const struct muster_address *address,
                                           const struct muster_stream_options *options,
                                           muster_listener_accept_fn *on_accept, void *data,
                                           struct muster_listener **ret_listener,
                                           struct muster_error *ret_error)
{
    struct socket_listener *socket = muster_mem_alloc_zero(env->mem, 1, sizeof(*socket));
    enum muster_rc rc = MUSTER_OK;

    if (socket == NULL) {
        if (fd >= 0)
            close(fd);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "listen: no memory");
    }
    socket->listener.ops = &socket_ops;
    socket->listener.data = data;
    socket->env = env;
    socket->on_accept = on_accept;
    socket->options = *options;
    muster_timer_init(&socket->backoff, on_backoff, socket);
    muster_task_init(&socket->task, on_task, socket);
    socket->watch.data = socket;
    socket->watch.on_ready = on_ready;
    socket->watch.wanted = MUSTER_FD_READ;
    socket->watch.fd = fd;
    if (fd < 0)
        rc = muster_socket_listen(address, options, &socket->watch.fd, ret_error);
    if (rc != MUSTER_OK)
        goto fail;
    socket->address = has_path(address) ? *address : muster_socket_local(socket->watch.fd);
    if (socket->address.family == MUSTER_ADDRESS_NONE) {
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno,
                                  "listen: its own address is not known");
        goto fail_listening;
    }
    remember_path(socket);
    socket->is_unpaced = muster_socket_pacing_stop(socket->watch.fd);
    rc = muster_fd_watch_open(&socket->watch, env->loop);
    if (rc != MUSTER_OK) {
        (void)muster_error_set(ret_error, rc, "listen: the loop cannot watch the socket: %s",
                               muster_rc_text(rc));
        goto fail_listening;
    }
    *ret_listener = &socket->listener;
    return MUSTER_OK;
fail_listening:
    unlink_own_path(socket);
    close(socket->watch.fd);
fail:
    muster_mem_free(env->mem, socket);
    return rc;
}
