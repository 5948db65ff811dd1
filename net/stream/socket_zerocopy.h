/* Sends that the kernel makes from the caller's pages (MSG_ZEROCOPY), and when it is done with
 * them. */
#ifndef MUSTER_NET_SOCKET_ZEROCOPY_H
#define MUSTER_NET_SOCKET_ZEROCOPY_H

#include <sys/socket.h>
#include <sys/types.h>

#include <muster/base.h>

#define MUSTER_ZEROCOPY_SENDS_MAX 64u /* not done at one time: the next ones are copied */

/** Sends that the kernel has taken without a copy have numbers, from 0, which wrap. */
struct muster_zerocopy {
    size_t bytes_min; /* a send of so much goes without a copy; 0: none does */
    uint32_t next;    /* number of the next send */
    uint32_t done;    /* the kernel is done with all sends before it … */
    uint64_t after;   /* … and with `done + i` where bit i is set */
    bool is_copied;   /* the kernel copies all the same: it is off for good */
};

/** Sends of at least bytes_min go without a copy from now on (0: no further ones). It stays off
 * where the kernel cannot, or is known to copy. */
void muster_zerocopy_set(struct muster_zerocopy *zerocopy, int fd, size_t bytes_min);

/** sendmsg without a signal and without EINTR; `bytes` is what the message holds. */
ssize_t muster_zerocopy_send(struct muster_zerocopy *zerocopy, int fd, const struct msghdr *message,
                             size_t bytes);

/** Whether the kernel still holds pages of any send. */
bool muster_zerocopy_is_busy(const struct muster_zerocopy *zerocopy);

/** Whether the kernel is done with all sends before number `end`. */
bool muster_zerocopy_is_done(const struct muster_zerocopy *zerocopy, uint32_t end);

/** Hear what the kernel is done with, without waiting. It is what makes the descriptor report an
 * error: one that is left there would be reported again and again. Returns whether the first notice
 * of a copy has just turned it off. */
bool muster_zerocopy_hear(struct muster_zerocopy *zerocopy, int fd);

/** Wait for the kernel, at most 50 ms, then break the connection: what has not left is dropped. The
 * memory of all sends is the caller's afterwards. Returns whether the connection is still there.
 *
 * A device may still hold packets of a broken connection, which the peer would take before it hears
 * of the end; they are waited for, too, at most 50 ms. */
bool muster_zerocopy_take_back(struct muster_zerocopy *zerocopy, int fd);

/** The same without the first wait, for a connection that is no longer wanted. */
void muster_zerocopy_abandon(struct muster_zerocopy *zerocopy, int fd);

#endif
