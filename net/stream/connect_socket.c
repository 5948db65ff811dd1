/* Connecting a socket: non-blocking, with a deadline, cancellable at any moment. Every outcome is
 * told from the loop: what connect(2) says at once is told by a task. */
#include "net/stream/net_internal.h"
#include "net/stream/request.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* A local server accepts within a few turns of its loop. */
#define BACKLOG_RETRY_NS (5 * MUSTER_NS_PER_MS)

/* One attempt. Lives until done is called. */
struct attempt {
    struct muster_env *env;
    struct muster_connect *connect;
    struct muster_fd_watch watch;
    struct muster_task task; /* tells what start or cancel found */
    struct muster_timer retry;
    struct muster_error error;
    int fd;
    bool is_unpaced;
};

/* The descriptor is closed unless attempt_succeed has given it to a stream. */
static void attempt_release(struct attempt *attempt)
{
    muster_task_cancel(&attempt->task);
    muster_timer_stop(&attempt->retry);
    muster_timer_stop(&attempt->connect->timer);
    muster_fd_watch_close(&attempt->watch);
    if (attempt->fd >= 0)
        close(attempt->fd);
    attempt->connect->impl = NULL;
    muster_mem_free(attempt->env->mem, attempt);
}

/* The attempt is freed before the callback, which may start the same request again. */
static void attempt_finish(struct attempt *attempt, struct muster_stream *stream)
{
    struct muster_connect *connect = attempt->connect;
    enum muster_rc rc = attempt->error.rc;

    MUSTER_ASSERT(connect->impl == attempt && (stream != NULL) == (rc == MUSTER_OK));
    connect->stream = stream;
    connect->error = attempt->error;
    attempt_release(attempt);
    muster_connect_finish(connect, rc);
}

/* Every way in which a peer cannot be reached is UNAVAILABLE; a lack of our own keeps its code. */
static void set_failure(struct attempt *attempt, int sys)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    enum muster_rc rc = muster_rc_from_errno(sys);

    if (rc != MUSTER_RESOURCE_EXHAUSTED && rc != MUSTER_PERMISSION_DENIED)
        rc = MUSTER_UNAVAILABLE;
    muster_address_format(&attempt->connect->address, text);
    (void)muster_error_set_sys(&attempt->error, rc, sys, "connect to %s", text);
}

/* A connect to a free port in the ephemeral range can meet itself (simultaneous open): nobody
 * listens there. */
static bool is_self_connected(const struct attempt *attempt)
{
    struct muster_address local = muster_socket_local(attempt->fd);
    struct muster_address peer = muster_socket_peer(attempt->fd);

    return (local.family == MUSTER_ADDRESS_IPV4 || local.family == MUSTER_ADDRESS_IPV6) &&
           muster_address_is_equal(&local, &peer);
}

static void attempt_succeed(struct attempt *attempt)
{
    struct muster_stream *stream = NULL;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    int fd = attempt->fd;
    enum muster_rc rc;

    /* From here on the stream watches the descriptor itself. */
    muster_fd_watch_close(&attempt->watch);
    if (is_self_connected(attempt)) {
        set_failure(attempt, ECONNREFUSED);
        attempt_finish(attempt, NULL);
        return;
    }
    attempt->fd = -1;
    if (attempt->is_unpaced)
        muster_socket_pacing_decide(fd);
    rc = muster_stream_socket_open(attempt->env, fd, &stream);
    if (rc != MUSTER_OK)
        (void)muster_error_set(&attempt->error, rc, "connect to %s: the stream cannot be made: %s",
                               muster_address_format(&attempt->connect->address, text),
                               muster_rc_text(rc));
    attempt_finish(attempt, stream);
}

/* connect(2): a socket that has become writable tells its outcome by SO_ERROR. */
static void on_writable(struct muster_fd_watch *watch, unsigned ready)
{
    struct attempt *attempt = watch->data;
    socklen_t length = sizeof(int);
    int sys = 0;

    (void)ready;
    if (getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &sys, &length) != 0)
        sys = errno;
    if (sys == 0) {
        attempt_succeed(attempt);
        return;
    }
    set_failure(attempt, sys);
    attempt_finish(attempt, NULL);
}

static void attempt_begin(struct attempt *attempt)
{
    union muster_sockaddr sockaddr;
    socklen_t length = muster_sockaddr_from(&attempt->connect->address, &sockaddr);
    struct muster_loop *loop = attempt->env->loop;

    if (connect(attempt->fd, &sockaddr.any, length) == 0) { /* at once, on a unix socket */
        muster_task_post(&attempt->task, loop);
        return;
    }
    if (errno == EAGAIN) { /* unix(7): the backlog is full, and nothing will tell when it is not */
        muster_timer_start(&attempt->retry, loop, muster_loop_after_ns(loop, BACKLOG_RETRY_NS));
        return;
    }
    if (errno != EINPROGRESS && errno != EINTR) {
        set_failure(attempt, errno);
        muster_task_post(&attempt->task, loop);
        return;
    }
    muster_fd_watch_update(&attempt->watch, MUSTER_FD_WRITE);
}

static void on_task(struct muster_task *task)
{
    struct attempt *attempt = task->data;

    if (attempt->error.rc == MUSTER_OK)
        attempt_succeed(attempt);
    else
        attempt_finish(attempt, NULL);
}

static void on_retry(struct muster_timer *timer)
{
    attempt_begin(timer->data);
}

static void on_deadline(struct muster_timer *timer)
{
    struct attempt *attempt = timer->data;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    (void)muster_error_set(&attempt->error, MUSTER_DEADLINE_EXCEEDED,
                           "connect to %s: no answer before the deadline",
                           muster_address_format(&attempt->connect->address, text));
    attempt_finish(attempt, NULL);
}

static enum muster_rc attempt_new(struct muster_env *env, struct muster_connect *connect,
                                  const struct muster_stream_options *options,
                                  struct attempt **ret_attempt)
{
    struct attempt *attempt = muster_mem_alloc_zero(env->mem, 1, sizeof(*attempt));
    enum muster_rc rc;

    if (attempt == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    attempt->env = env;
    attempt->connect = connect;
    muster_task_init(&attempt->task, on_task, attempt);
    muster_timer_init(&attempt->retry, on_retry, attempt);
    attempt->fd = muster_socket_new(connect->address.family, options);
    if (attempt->fd < 0) {
        rc = muster_rc_from_errno(errno);
        goto fail;
    }
    attempt->is_unpaced = muster_socket_pacing_stop(attempt->fd);
    attempt->watch.data = attempt;
    attempt->watch.on_ready = on_writable;
    attempt->watch.fd = attempt->fd;
    rc = muster_fd_watch_open(&attempt->watch, env->loop);
    if (rc != MUSTER_OK)
        goto fail;
    *ret_attempt = attempt;
    return MUSTER_OK;
fail:
    if (attempt->fd >= 0)
        close(attempt->fd);
    muster_mem_free(env->mem, attempt);
    return rc;
}

enum muster_rc muster_connect_socket_start(struct muster_env *env, struct muster_connect *connect,
                                           const struct muster_stream_options *options,
                                           uint64_t deadline_ns)
{
    struct attempt *attempt = NULL;
    enum muster_rc rc = attempt_new(env, connect, options, &attempt);

    if (rc != MUSTER_OK)
        return rc;
    connect->impl = attempt;
    muster_timer_init(&connect->timer, on_deadline, attempt);
    if (deadline_ns != UINT64_MAX)
        muster_timer_start(&connect->timer, env->loop, deadline_ns);
    attempt_begin(attempt);
    return MUSTER_OK;
}

void muster_connect_socket_cancel(struct muster_connect *connect)
{
    struct attempt *attempt = connect->impl;

    /* An attempt that has failed already tells its own error: cancel has lost. */
    if (attempt == NULL || attempt->error.rc != MUSTER_OK)
        return;
    (void)muster_error_set(&attempt->error, MUSTER_CANCELLED, "connect cancelled");
    muster_timer_stop(&attempt->retry);
    muster_timer_stop(&connect->timer);
    muster_fd_watch_close(&attempt->watch);
    muster_task_post(&attempt->task, attempt->env->loop);
}
