/* MSG_ZEROCOPY: sends have numbers; the error queue tells with which of them the kernel is done
 * (the kernel's Documentation/networking/msg_zerocopy.rst). Until then the caller's pages may still
 * be read, and sent again. */
#include "net/stream/socket_zerocopy.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>

#define NOTICES_MAX 64 /* that one call hears: the others are reported again */
/* How long a recall may block the loop. A local network answers sooner; behind a slow one the
 * connection is given up, because the caller needs its memory now. */
#define WAIT_MS_MAX 50

/* A refusal is no error: an older kernel, or a family of sockets that cannot do it, sends with
 * copies. */
void muster_zerocopy_set(struct muster_zerocopy *zerocopy, int fd, size_t bytes_min)
{
    int one = 1;

    zerocopy->bytes_min = 0;
    if (bytes_min == 0 || zerocopy->is_copied)
        return;
    if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) == 0)
        zerocopy->bytes_min = bytes_min;
}

static ssize_t send_message(int fd, const struct msghdr *message, int flags)
{
    ssize_t sent;

    do
        sent = sendmsg(fd, message, MSG_NOSIGNAL | flags);
    while (sent < 0 && errno == EINTR);
    return sent;
}

ssize_t muster_zerocopy_send(struct muster_zerocopy *zerocopy, int fd, const struct msghdr *message,
                             size_t bytes)
{
    ssize_t sent;

    if (zerocopy->bytes_min == 0 || bytes < zerocopy->bytes_min ||
        zerocopy->next - zerocopy->done >= MUSTER_ZEROCOPY_SENDS_MAX)
        return send_message(fd, message, 0);
    sent = send_message(fd, message, MSG_ZEROCOPY);
    if (sent < 0 && errno == ENOBUFS) /* more notices than net.core.optmem_max has room for */
        return send_message(fd, message, 0);
    if (sent >= 0)
        zerocopy->next++;
    return sent;
}

bool muster_zerocopy_is_busy(const struct muster_zerocopy *zerocopy)
{
    return zerocopy->next != zerocopy->done;
}

/* Numbers wrap after 2^32 sends; 64 at most are open, so the sign of the difference tells the
 * order. */
bool muster_zerocopy_is_done(const struct muster_zerocopy *zerocopy, uint32_t end)
{
    return (int32_t)(zerocopy->done - end) >= 0;
}

/* Notices may come in another order than their sends, and one may cover a range of them. */
static void note_done(struct muster_zerocopy *zerocopy, uint32_t first, uint32_t last)
{
    MUSTER_ASSERT(zerocopy->next - zerocopy->done <= MUSTER_ZEROCOPY_SENDS_MAX);
    for (uint32_t i = 0; i < zerocopy->next - zerocopy->done; i++)
        if (zerocopy->done + i - first <= last - first)
            zerocopy->after |= UINT64_C(1) << i;
    while ((zerocopy->after & 1) != 0) {
        zerocopy->after >>= 1;
        zerocopy->done++;
    }
}

static void note_sent(struct muster_zerocopy *zerocopy, struct msghdr *message)
{
    struct cmsghdr *part;

    for (part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        struct sock_extended_err notice;

        if ((part->cmsg_level != SOL_IP || part->cmsg_type != IP_RECVERR) &&
            (part->cmsg_level != SOL_IPV6 || part->cmsg_type != IPV6_RECVERR))
            continue;
        memcpy(&notice, CMSG_DATA(part), sizeof(notice));
        if (notice.ee_origin != SO_EE_ORIGIN_ZEROCOPY || notice.ee_errno != 0)
            continue;
        note_done(zerocopy, notice.ee_info, notice.ee_data);
        /* The device cannot send from pages: pinning them was in vain, and will be. */
        if ((notice.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) {
            zerocopy->is_copied = true;
            zerocopy->bytes_min = 0;
        }
    }
}

bool muster_zerocopy_hear(struct muster_zerocopy *zerocopy, int fd)
{
    bool was_copied = zerocopy->is_copied;

    for (unsigned i = 0; i < NOTICES_MAX && muster_zerocopy_is_busy(zerocopy); i++) {
        union {
            struct cmsghdr align;
            uint8_t
                bytes[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
        } control;
        struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof(control)};

        if (recvmsg(fd, &message, MSG_ERRQUEUE) < 0)
            break;
        note_sent(zerocopy, &message);
    }
    return zerocopy->is_copied && !was_copied;
}

/* A connection that has ended has hung up, and would not let poll wait. */
static bool wait_until_done(struct muster_zerocopy *zerocopy, int fd, bool is_broken)
{
    struct pollfd notices = {.fd = fd};

    for (unsigned i = 0; i < WAIT_MS_MAX; i++) {
        (void)muster_zerocopy_hear(zerocopy, fd);
        if (!muster_zerocopy_is_busy(zerocopy))
            return true;
        (void)poll(&notices, is_broken ? 0 : 1, 1);
    }
    return false;
}

void muster_zerocopy_abandon(struct muster_zerocopy *zerocopy, int fd)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

    (void)muster_zerocopy_hear(zerocopy, fd);
    if (!muster_zerocopy_is_busy(zerocopy))
        return;
    (void)connect(fd, &nobody, sizeof(nobody)); /* drops what was queued; the peer gets a reset */
    (void)wait_until_done(zerocopy, fd, true);
    zerocopy->done = zerocopy->next;
    zerocopy->after = 0;
    zerocopy->bytes_min = 0;
}

/* The caller wants its memory now. Waiting for the kernel is tried first; then the connection is
 * given up, because the kernel may send those pages again at any time. */
bool muster_zerocopy_take_back(struct muster_zerocopy *zerocopy, int fd)
{
    if (wait_until_done(zerocopy, fd, false))
        return true;
    muster_zerocopy_abandon(zerocopy, fd);
    return false;
}
