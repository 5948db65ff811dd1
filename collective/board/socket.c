/* The unix socket of boards: packets with descriptors between processes of one user. It is
 * SOCK_SEQPACKET (unix(7)): packets keep their boundaries, come in order and carry descriptors by
 * SCM_RIGHTS. handshake.c gives the packets their meaning. */
#include <muster/hash.h>

#include "collective/board/board_internal.h"
#include "runtime/value/array.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* All processes of a large host may dial at once when a job begins; the kernel clamps it to
 * net.core.somaxconn. */
#define BACKLOG 1024
/* A connection that nothing here has asked for holds up to three descriptors: its own, and those of
 * its HELLO. More connections than this are closed at once. */
#define UNMATCHED_MAX 256u
/* accept4 without a free descriptor leaves the socket readable: without a pause the loop would
 * spin. */
#define ACCEPT_PAUSE_NS (100 * MUSTER_NS_PER_MS)
/* The kernel limits descriptors in flight per user and does not say when one has arrived, so the
 * sender has to ask again. */
#define SEND_PAUSE_NS (5 * MUSTER_NS_PER_MS)
/* A burst of connections must not keep the loop from its other work. */
#define ACCEPTS_PER_TURN 64

/* An abstract name (unix(7)): no file to create or to leave behind, and the kernel frees it with
 * the socket. The port is a part of the hash because incarnations repeat in static groups, where
 * only the address tells one listener from another. */
static socklen_t address_of(const char *job, const struct muster_member *member,
                            struct sockaddr_un *ret_address)
{
    char text[MUSTER_INCARNATION_TEXT_BYTES];
    uint64_t hash = muster_hash64(job, strlen(job), member->address.port);
    int length;

    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->sun_family = AF_UNIX;
    length = snprintf(ret_address->sun_path + 1, sizeof(ret_address->sun_path) - 1,
                      "muster-board/%016llx/%s", (unsigned long long)hash,
                      muster_incarnation_format(&member->incarnation, text));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int socket_open(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* An abstract socket has no file mode, so the user is checked here. A process of the same user
 * could attach a debugger anyway; sharing memory with it gives nothing away. */
static bool is_own_user(int fd, pid_t *ret_pid)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
        return false;
    *ret_pid = peer.pid;
    return true;
}

/* --- Receiving --- */

void muster_board_packet_fini(struct muster_board_packet *packet)
{
    for (unsigned i = 0; i < packet->fd_count; i++)
        if (packet->fds[i] >= 0)
            close(packet->fds[i]);
}

static void take_fds(struct muster_board_packet *packet, struct msghdr *header)
{
    struct cmsghdr *control = CMSG_FIRSTHDR(header);

    packet->is_cut = (header->msg_flags & MSG_CTRUNC) != 0;
    if (control == NULL || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
        return;
    packet->fd_count = (unsigned)((control->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(packet->fds, CMSG_DATA(control), packet->fd_count * sizeof(int));
}

/* The result is 1 for a packet, 0 when there is nothing yet, and -1 at the end of the connection or
 * for a packet that no board sends. */
static int receive_packet(int fd, struct muster_board_packet *ret_packet)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MUSTER_BOARD_FDS_MAX * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = &ret_packet->message, .iov_len = sizeof(ret_packet->message)};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t size;

    memset(ret_packet, 0, sizeof(*ret_packet));
    size = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    take_fds(ret_packet, &header);
    if ((size_t)size == sizeof(ret_packet->message) && (header.msg_flags & MSG_TRUNC) == 0 &&
        ret_packet->message.magic == MUSTER_BOARD_MAGIC)
        return 1;
    muster_board_packet_fini(ret_packet);
    return -1;
}

/* --- Sending --- */

/* The descriptors that go with a message are looked up when it leaves, not when it is queued: a
 * share may be freed meanwhile, and its descriptor then names another file. False: the share is
 * gone, and the message with it; its SHARE_FREED stands further back in the queue. */
static bool fds_of(const struct muster_board_system *board,
                   const struct muster_board_message *message, int *ret_fds, unsigned *ret_count)
{
    *ret_count = 0;
    if (message->type == MUSTER_BOARD_HELLO) {
        ret_fds[0] = board->segment.fd;
        ret_fds[1] = board->eventfd;
        *ret_count = 2;
    }
    if (message->type != MUSTER_BOARD_SHARE)
        return true;
    MUSTER_LIST_EACH(&board->shares->list, share, struct muster_share, node) {
        if (share->number != message->share)
            continue;
        ret_fds[0] = share->shared.fd;
        *ret_count = 1;
        return true;
    }
    return false;
}

/* The result is an errno; 0 also when the message is not needed any more. */
static int send_one(const struct muster_board_link *link,
                    const struct muster_board_message *message)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MUSTER_BOARD_FDS_MAX * sizeof(int))];
    } control;
    int fds[MUSTER_BOARD_FDS_MAX];
    unsigned count;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof(*message)};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *at = NULL;

    if (!fds_of(link->board, message, fds, &count))
        return 0;
    if (count > 0) {
        memset(&control, 0, sizeof(control));
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        at = CMSG_FIRSTHDR(&header);
        at->cmsg_level = SOL_SOCKET;
        at->cmsg_type = SCM_RIGHTS;
        at->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(at), fds, count * sizeof(int));
    }
    return sendmsg(link->fd, &header, MSG_NOSIGNAL) < 0 ? errno : 0;
}

/* False: the link is broken. */
static bool link_flush(struct muster_board_link *link)
{
    struct muster_loop *loop = link->board->env->loop;
    bool is_waiting;

    while (link->queue_count > 0) {
        int sys = send_one(link, &link->queue[link->queue_first]);

        if (sys == ENOBUFS || sys == ETOOMANYREFS) /* too many descriptors are on their way */
            muster_timer_start(&link->timer, loop, muster_loop_after_ns(loop, SEND_PAUSE_NS));
        if (sys == EAGAIN || sys == EINTR || sys == ENOBUFS || sys == ETOOMANYREFS)
            break;
        if (sys != 0)
            return false;
        link->queue_first++;
        link->queue_count--;
    }
    is_waiting = link->queue_count > 0 && !muster_timer_is_started(&link->timer);
    muster_fd_watch_update(&link->watch, (link->watch.wanted & MUSTER_FD_READ) |
                                             (is_waiting ? MUSTER_FD_WRITE : 0));
    return true;
}

/* The queue grows with the shares that come and go while the peer does not read; it has no bound
 * but memory, and without memory the peer fails. */
static bool has_room(struct muster_board_link *link)
{
    struct muster_board_message *queue = NULL;

    if (link->queue_first > 0) {
        memmove(link->queue, link->queue + link->queue_first,
                link->queue_count * sizeof(*link->queue));
        link->queue_first = 0;
    }
    queue = muster_array_reserve(link->board->env->mem, link->queue, link->queue_count,
                                 &link->queue_capacity, sizeof(*queue));
    if (queue == NULL)
        return false;
    link->queue = queue;
    return true;
}

/* A link that breaks here is not failed here: the caller may be in the middle of the peer's state.
 * It is shut down, and the next read finds the end, on both sides. */
enum muster_rc muster_board_send(struct muster_board_link *link,
                                 const struct muster_board_message *message)
{
    if (!has_room(link))
        return MUSTER_RESOURCE_EXHAUSTED;
    link->queue[link->queue_first + link->queue_count++] = *message;
    if (link->queue_count == 1 && !link_flush(link)) {
        link->queue_count = 0;
        (void)shutdown(link->fd, SHUT_RDWR);
    }
    return MUSTER_OK;
}

/* --- Links --- */

static void on_link_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct muster_board_link *link = watch->data;
    struct muster_board_packet packet;
    int got = 0;

    if ((ready & MUSTER_FD_WRITE) != 0 && !link_flush(link)) {
        muster_board_link_fail(link, "its connection broke");
        return;
    }
    if ((ready & MUSTER_FD_READ) == 0)
        return;
    got = receive_packet(link->fd, &packet);
    if (got > 0)
        muster_board_receive(link, &packet);
    else if (got < 0)
        muster_board_link_fail(link, "it has closed the connection");
}

/* The timer has two uses that never overlap: the life of an unmatched connection, and the pause in
 * sending of one that has a peer. */
static void on_link_timer(struct muster_timer *timer)
{
    struct muster_board_link *link = timer->data;

    if (link->peer == NULL)
        muster_board_link_close(link);
    else if (!link_flush(link))
        muster_board_link_fail(link, "its connection broke");
}

static struct muster_board_link *link_new(struct muster_board_system *board, int fd, pid_t pid)
{
    struct muster_board_link *link = muster_mem_alloc_zero(board->env->mem, 1, sizeof(*link));

    if (link == NULL)
        return NULL;
    link->board = board;
    link->fd = fd;
    link->pid = pid;
    link->watch = (struct muster_fd_watch){
        .data = link, .on_ready = on_link_ready, .fd = fd, .wanted = MUSTER_FD_READ};
    muster_list_init(&link->node);
    muster_timer_init(&link->timer, on_link_timer, link);
    if (muster_fd_watch_open(&link->watch, board->env->loop) == MUSTER_OK)
        return link;
    muster_mem_free(board->env->mem, link);
    return NULL;
}

void muster_board_link_close(struct muster_board_link *link)
{
    struct muster_board_system *board = link->board;

    MUSTER_ASSERT(link->peer != NULL || board->unmatched_count > 0);
    if (link->peer != NULL)
        link->peer->link = NULL;
    else
        board->unmatched_count--;
    muster_timer_stop(&link->timer);
    muster_list_remove(&link->node);
    muster_fd_watch_close(&link->watch);
    close(link->fd);
    if (link->has_hello)
        muster_board_packet_fini(&link->hello);
    muster_mem_free(board->env->mem, link->queue);
    muster_mem_free(board->env->mem, link);
}

void muster_board_link_watch(struct muster_board_link *link, bool is_reading)
{
    muster_fd_watch_update(&link->watch, (link->watch.wanted & MUSTER_FD_WRITE) |
                                             (is_reading ? MUSTER_FD_READ : 0));
}

enum muster_rc muster_board_dial(struct muster_board_system *board,
                                 const struct muster_member *member,
                                 struct muster_board_link **ret_link)
{
    struct sockaddr_un address;
    socklen_t size = address_of(board->job, member, &address);
    int fd = socket_open();
    struct muster_board_link *link = NULL;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    pid_t pid = 0;

    if (fd < 0)
        return muster_rc_from_errno(errno);
    if (connect(fd, (struct sockaddr *)&address, size) != 0) {
        rc = MUSTER_UNAVAILABLE;
        goto fail;
    }
    if (!is_own_user(fd, &pid)) {
        rc = MUSTER_PERMISSION_DENIED;
        goto fail;
    }
    link = link_new(board, fd, pid);
    if (link == NULL)
        goto fail;
    board->unmatched_count++; /* until it is attached */
    *ret_link = link;
    return MUSTER_OK;
fail:
    close(fd);
    return rc;
}

/* --- Listening --- */

static void accept_connection(struct muster_board_system *board, int fd)
{
    struct muster_board_link *link = NULL;
    pid_t pid = 0;

    if (board->unmatched_count < UNMATCHED_MAX && is_own_user(fd, &pid))
        link = link_new(board, fd, pid);
    if (link == NULL) {
        close(fd);
        return;
    }
    board->unmatched_count++;
    muster_list_append(&board->unmatched, &link->node);
    muster_timer_start(&link->timer, board->env->loop,
                       muster_loop_after_ns(board->env->loop, MUSTER_BOARD_TIMEOUT_NS));
}

static void on_accept_timer(struct muster_timer *timer)
{
    struct muster_board_system *board = timer->data;

    muster_fd_watch_update(&board->socket_watch, MUSTER_FD_READ);
}

static void on_connection(struct muster_fd_watch *watch, unsigned ready)
{
    struct muster_board_system *board = watch->data;

    (void)ready;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(board->socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            accept_connection(board, fd);
            continue;
        }
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return;
        muster_fd_watch_update(watch, 0); /* no descriptor is free; others wait in the backlog */
        muster_timer_start(&board->accept_timer, board->env->loop,
                           muster_loop_after_ns(board->env->loop, ACCEPT_PAUSE_NS));
        return;
    }
}

/* Reading resets the counter: all signals since the last turn are one. */
static void on_eventfd(struct muster_fd_watch *watch, unsigned ready)
{
    struct muster_board_system *board = watch->data;
    const struct muster_board_events *events = board->board.events;
    uint64_t count;

    (void)ready;
    if (read(board->eventfd, &count, sizeof(count)) == (ssize_t)sizeof(count) && events != NULL &&
        events->on_signal != NULL)
        events->on_signal(board->board.events_data);
}

static enum muster_rc watch_both(struct muster_board_system *board)
{
    enum muster_rc rc;

    board->socket_watch = (struct muster_fd_watch){
        .data = board, .on_ready = on_connection, .fd = board->socket, .wanted = MUSTER_FD_READ};
    board->eventfd_watch = (struct muster_fd_watch){
        .data = board, .on_ready = on_eventfd, .fd = board->eventfd, .wanted = MUSTER_FD_READ};
    rc = muster_fd_watch_open(&board->socket_watch, board->env->loop);
    return rc == MUSTER_OK ? muster_fd_watch_open(&board->eventfd_watch, board->env->loop) : rc;
}

enum muster_rc muster_board_listen(struct muster_board_system *board,
                                   struct muster_error *ret_error)
{
    struct sockaddr_un address;
    socklen_t size = address_of(board->job, &board->self, &address);
    enum muster_rc rc;

    muster_timer_init(&board->accept_timer, on_accept_timer, board);
    board->eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    board->socket = board->eventfd < 0 ? -1 : socket_open();
    if (board->socket < 0 || bind(board->socket, (struct sockaddr *)&address, size) != 0 ||
        listen(board->socket, BACKLOG) != 0)
        return muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno,
                                    "no socket for processes of this host");
    rc = watch_both(board);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "the loop watches no sockets");
}

void muster_board_stop_listening(struct muster_board_system *board)
{
    muster_timer_stop(&board->accept_timer);
    muster_fd_watch_close(&board->socket_watch);
    muster_fd_watch_close(&board->eventfd_watch);
    if (board->socket >= 0)
        close(board->socket);
    if (board->eventfd >= 0)
        close(board->eventfd);
}
