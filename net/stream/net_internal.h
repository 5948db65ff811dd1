/* Shared by the files of the system network: descriptors, socket addresses, streams on sockets. */
#ifndef MUSTER_NET_INTERNAL_H
#define MUSTER_NET_INTERNAL_H

#include <sys/socket.h>
#include <sys/un.h>

#include <muster/env.h>
#include <muster/stream.h>

/* stream.c */

/** env->net is NULL: INVALID_ARGUMENT, with the remedy. */
enum muster_rc muster_net_missing(struct muster_error *ret_error);

/* socket_address.c */

union muster_sockaddr {
    struct sockaddr any;
    struct sockaddr_storage storage;
    struct sockaddr_un unix_;
};

/** The kernel's form of address. Returns its length. */
socklen_t muster_sockaddr_from(const struct muster_address *address,
                               union muster_sockaddr *ret_sockaddr);
/** The value form; IPv4 in IPv6 (::ffff:1.2.3.4) becomes IPv4, an unnamed unix socket has an empty
 * path. */
struct muster_address muster_sockaddr_to_address(const union muster_sockaddr *sockaddr,
                                                 socklen_t length);
/** The ends of a socket. Family NONE: the kernel does not tell. */
struct muster_address muster_socket_local(int fd);
struct muster_address muster_socket_peer(int fd);

/** A new non-blocking stream socket for addresses of that family, options applied. The caller
 * closes it. Errors: -1, and errno is set. */
int muster_socket_new(enum muster_address_family family,
                      const struct muster_stream_options *options);
/** TCP_USER_TIMEOUT, in ms; 0: the kernel's own. A no-op for unix sockets. */
void muster_socket_set_user_timeout(int fd, enum muster_address_family family, uint32_t timeout_ms);
/** The options that an accepted socket does not inherit. */
void muster_socket_set_options(int fd, enum muster_address_family family,
                               const struct muster_stream_options *options);

/* socket_pacing.c */

/** Let a new socket not pace, nor those that it accepts. Returns whether the host's congestion control would pace: then
 * each connection decides. */
bool muster_socket_pacing_stop(int fd);
/** The connection is there, and nothing has been sent: pace as the host does, unless the peer is on this host. */
void muster_socket_pacing_decide(int fd);

/* listener_socket.c */

/** A bound, listening, non-blocking socket; the file of a unix socket on which nobody listens is
 * removed if it is in the way. Gives *ret_fd. Errors as muster_listener_open. */
MUSTER_MUST_CHECK enum muster_rc muster_socket_listen(const struct muster_address *address,
                                                      const struct muster_stream_options *options,
                                                      int *ret_fd, struct muster_error *ret_error);
/** fd: bound and listening; -1: one is bound to address. Takes fd, also on failure. Borrows env, copies
 * address and options. Gives *ret_listener. */
MUSTER_MUST_CHECK enum muster_rc muster_listener_socket_open(
    struct muster_env *env, int fd, const struct muster_address *address,
    const struct muster_stream_options *options, muster_listener_accept_fn *on_accept, void *data,
    struct muster_listener **ret_listener, struct muster_error *ret_error);

/* net/stream/socket.c */

/** A stream on a connected, non-blocking socket. Takes fd (closes it on failure too). Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_stream_socket_open(struct muster_env *env, int fd,
                                                           struct muster_stream **ret_stream);
/** From now on what a callback of a read submits leaves when the event of that read ends, not with
 * what else the turn has queued. For an owner of thousands of streams that answers what it reads: a
 * stream's memory, the kernel's too, is in the caches then, and the first answers do not wait for
 * the others. The read's `data` is the reader, whose first bytes are fetched while the kernel
 * copies. A no-op for streams that are not sockets. */
void muster_stream_socket_set_prompt(struct muster_stream *stream);

/* host_socket.c: as the functions of stream.h */

MUSTER_MUST_CHECK enum muster_rc muster_host_socket_find_source(const struct muster_address *peer,
                                                                struct muster_address *ret_source,
                                                                struct muster_error *ret_error);
MUSTER_MUST_CHECK enum muster_rc muster_host_socket_find_interface(
    const char *name, struct muster_address ret_addresses[MUSTER_INTERFACE_ADDRESSES_MAX],
    size_t *ret_count, struct muster_error *ret_error);
bool muster_host_socket_has_address(const struct muster_address *address);

/* connect_socket.c */

MUSTER_MUST_CHECK enum muster_rc muster_connect_socket_start(
    struct muster_env *env, struct muster_connect *connect,
    const struct muster_stream_options *options, uint64_t deadline_ns);
void muster_connect_socket_cancel(struct muster_connect *connect);

#endif
