/* A listening socket that outlives its process: a child keeps it, and hands it to the successor.
 *
 * Both generations find each other by an abstract Unix socket named after the data file that they
 * share; the descriptor goes over it by SCM_RIGHTS (unix(7)). Owner and child also have a socket
 * pair. As long as the owner's end of it is open, the child refuses to hand the socket out; after
 * the owner's death it waits for a successor, for a limited time. */
#include "serve/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME_TRIES 50 /* the former holder may still have the name */
#define TAKE_TRIES 30 /* its owner may be dying still */
#define WAIT_MS    100
#define MS_PER_S   1000

enum muster_rc holder_name_of(const char *path, struct holder_name *ret_name,
                              struct muster_error *ret_error)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    bool is_known = fd >= 0 && fstat(fd, &status) == 0;

    if (fd >= 0)
        close(fd);
    if (!is_known)
        return muster_error_set_sys(ret_error, muster_rc_from_errno(errno), errno, "%s", path);
    ret_name->device = status.st_dev;
    ret_name->inode = status.st_ino;
    return MUSTER_OK;
}

/* An abstract address leaves no file behind: it goes with its owner. The user's number is part of
 * the name, so that the holders of two users do not meet; ask_holder checks it, since a name proves
 * nothing. */
static socklen_t address_of(const struct holder_name *name, struct sockaddr_un *ret_address)
{
    int length;

    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->sun_family = AF_UNIX;
    length = snprintf(ret_address->sun_path + 1, sizeof(ret_address->sun_path) - 1,
                      "muster-holder-%u-%llx-%llx", (unsigned)getuid(), name->device, name->inode);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* --- The successor --- */

static int receive_fd(int from)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    const struct cmsghdr *head;
    int fd = -1;

    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    head = CMSG_FIRSTHDR(&message);
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(head), sizeof(fd));
    return fd;
}

/* False: there is no holder. *ret_fd -1: there is one, but its owner lives. */
static bool ask_holder(const struct sockaddr_un *address, socklen_t length, int *ret_fd)
{
    int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct ucred peer;
    socklen_t peer_length = sizeof(peer);
    /* Anybody can take an abstract name: only our own user's socket is accepted. */
    bool is_there =
        to >= 0 && connect(to, (const struct sockaddr *)(const void *)address, length) == 0 &&
        getsockopt(to, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length) == 0 && peer.uid == getuid();

    *ret_fd = is_there ? receive_fd(to) : -1;
    if (to >= 0)
        close(to);
    return is_there;
}

int holder_take(const struct holder_name *name)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int fd = -1;

    for (int i = 0; i < TAKE_TRIES && ask_holder(&address, length, &fd) && fd < 0; i++)
        (void)poll(NULL, 0, WAIT_MS);
    return fd;
}

/* --- The child --- */

static bool send_fd(int to, int fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte = 0;
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *head;

    memset(&control, 0, sizeof(control));
    head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    return sendmsg(to, &message, MSG_NOSIGNAL) == 1;
}

static int offer_socket(const struct holder_name *name)
{
    struct sockaddr_un address;
    socklen_t length = address_of(name, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    for (int i = 0; fd >= 0 && i < NAME_TRIES; i++) {
        if (bind(fd, (const struct sockaddr *)(const void *)&address, length) == 0 &&
            listen(fd, 1) == 0)
            return fd;
        (void)poll(NULL, 0, WAIT_MS);
    }
    return -1;
}

/* Answer one process that asks: the first of our user after the owner's death gets the socket, and
 * any other finds its connection closed. True: the socket is handed over. */
static bool hand_over(int offered, int fd, bool is_owner_dead)
{
    int to = accept4(offered, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t length = sizeof(peer);
    bool is_done = is_owner_dead && to >= 0 &&
                   getsockopt(to, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
                   peer.uid == getuid() && send_fd(to, fd);

    if (to >= 0)
        close(to);
    return is_done;
}

/* `life` is our end of the socket pair. It closes when the owner ends; a byte before that says that
 * the owner ended in order, so that nobody will come for the socket. */
static _Noreturn void keep_socket(const struct holder_name *name, int fd, int life, int keep_ms)
{
    struct pollfd waits[] = {{.fd = life, .events = POLLIN},
                             {.fd = offer_socket(name), .events = POLLIN}};
    int timeout_ms = -1;
    char byte = 0;

    if (waits[1].fd < 0 || write(life, &byte, 1) != 1) /* it can be found from here on */
        _exit(1);

    for (;;) {
        int ready = poll(waits, 2, timeout_ms);

        if (ready == 0)
            break; /* nobody came */
        if (ready < 0)
            continue;
        if ((waits[0].revents & (POLLIN | POLLHUP)) != 0) {
            if (read(life, &byte, 1) == 1)
                break;
            waits[0].fd = -1;
            timeout_ms = keep_ms;
        }
        if ((waits[1].revents & POLLIN) != 0 && hand_over(waits[1].fd, fd, waits[0].fd < 0))
            break;
    }
    _exit(0);
}

/* Close every descriptor except two. The owner's standard output is among them: a program that
 * reads it must see its end when the owner ends. */
static void close_others(int first, int second)
{
    int highest = first > second ? first : second, lowest = first > second ? second : first;

    (void)close_range(0, (unsigned)lowest - 1, 0);
    if (highest - lowest > 1)
        (void)close_range((unsigned)lowest + 1, (unsigned)highest - 1, 0);
    (void)close_range((unsigned)highest + 1, ~0u, 0);
}

/* A descriptor below 3 would be closed with the standard ones. The child is a session of its own,
 * so that Ctrl-C and a shell's end of the job do not reach it. */
int holder_start(const struct holder_name *name, int fd, unsigned keep_s)
{
    int life[2];
    pid_t pid;
    char byte;

    if (fd < 3 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, life) != 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        (void)setsid();
        (void)signal(SIGPIPE, SIG_IGN);
        close_others(fd, life[0]);
        keep_socket(name, fd, life[0], (int)keep_s * MS_PER_S);
    }
    close(life[0]);
    /* A successor may look for it as soon as anybody knows that this process serves. */
    if (pid > 0 && read(life[1], &byte, 1) == 1)
        return life[1];
    close(life[1]);
    return -1;
}

void holder_dismiss(int holder)
{
    const char byte = 0;

    if (holder < 0)
        return;
    if (write(holder, &byte, 1) != 1)
        (void)0; /* it has gone */
    close(holder);
}
