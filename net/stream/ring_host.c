/* Two processes and their socket: the first packet has the memory of its sender, each further one a byte that wakes.
 * A socket, and not an eventfd, because its end is the death of the other process, and because no flag that the other
 * process sets makes a send or a receive with MSG_DONTWAIT wait. */
#include "net/stream/ring_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x31676e697274736d) /* "mstring1" as bytes in memory */

/* Reading beyond the end of a file that has shrunk raises SIGBUS. */
#define SEALS_NEEDED (F_SEAL_SHRINK | F_SEAL_GROW)

struct introduction {
    uint64_t magic;
    uint64_t bytes;
};

#define FDS_MAX 4u

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

bool muster_ring_introduce(struct muster_ring *ring)
{
    struct introduction introduction = {.magic = MAGIC, .bytes = sizeof(struct muster_ring_memory)};
    struct iovec iov = {.iov_base = &introduction, .iov_len = sizeof(introduction)};
    union control control;
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_SPACE(sizeof(int))};
    struct cmsghdr *at;

    memset(&control, 0, sizeof(control));
    at = CMSG_FIRSTHDR(&header);
    at->cmsg_level = SOL_SOCKET;
    at->cmsg_type = SCM_RIGHTS;
    at->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(at), &ring->shared.fd, sizeof(int));
    return sendmsg(ring->watch.fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           (ssize_t)sizeof(introduction);
}

/* One descriptor is kept; a packet with more is not the one that is awaited. -1: none. */
static int descriptor_take(struct msghdr *header)
{
    int fds[FDS_MAX], fd = -1;
    size_t count = 0;

    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at != NULL; at = CMSG_NXTHDR(header, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        count = count < FDS_MAX ? count : FDS_MAX;
        memcpy(fds, CMSG_DATA(at), count * sizeof(int));
    }
    if (count == 1)
        fd = fds[0];
    for (size_t i = 0; fd < 0 && i < count; i++)
        close(fds[i]);
    return fd;
}

/* NULL: it is not memory that can be read safely. Takes fd. */
static const struct muster_ring_memory *memory_map(int fd)
{
    size_t bytes = sizeof(struct muster_ring_memory);
    int seals = fcntl(fd, F_GET_SEALS);
    const void *memory = NULL;
    struct stat status;

    if (seals >= 0 && (seals & SEALS_NEEDED) == SEALS_NEEDED && fstat(fd, &status) == 0 &&
        status.st_size == (off_t)bytes)
        memory = muster_shared_memory_map(fd, bytes, PROT_READ);
    close(fd);
    return memory;
}

static void introduction_receive(struct muster_ring *ring, struct msghdr *header,
                                 const struct introduction *introduction, ssize_t bytes)
{
    int fd = descriptor_take(header);

    if (fd < 0) {
        ring->is_broken = true;
        return;
    }
    if (bytes == (ssize_t)sizeof(*introduction) && introduction->magic == MAGIC &&
        introduction->bytes == sizeof(struct muster_ring_memory))
        ring->other = memory_map(fd);
    else
        close(fd);
    ring->is_broken = ring->other == NULL;
}

/* Packets after the first one have nothing but their coming. */
bool muster_ring_hear(struct muster_ring *ring)
{
    int socket = ring->watch.fd;
    struct introduction introduction;
    struct iovec iov = {.iov_base = &introduction, .iov_len = sizeof(introduction)};
    union control control;
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t bytes;

    if (ring->other == NULL)
        bytes = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    else
        bytes = recv(socket, &introduction, sizeof(introduction), MSG_DONTWAIT);
    /* ECONNRESET: the other side has closed its socket without receiving all; what it has sent comes next. */
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET))
        return false;
    if (bytes <= 0) {
        ring->is_gone = true;
        ring->is_broken |= bytes < 0 || ring->other == NULL;
        muster_fd_watch_close(&ring->watch);
    } else if (ring->other == NULL) {
        introduction_receive(ring, &header, &introduction, bytes);
    }
    return true;
}
