/* How a server gives its memory to clients of its host: over a unix socket whose name is made of the
 * memory's id, so that only a process of this host and user that has met the server finds it. */
#ifndef MUSTER_PARAMS_HOST_H
#define MUSTER_PARAMS_HOST_H

#include <muster/incarnation.h>
#include <muster/status.h>

/* Memory of clients comes the other way: a packet with a descriptor and a token, which the client then names over
 * its link. */
struct muster_params_stage_token;

/** A socket for such packets, non-blocking. Gives. Errors: as of muster_params_host_listen. */
MUSTER_MUST_CHECK enum muster_rc muster_params_host_stage_open(const struct muster_incarnation *id,
                                                               int *ret_socket);
/** Errors: UNAVAILABLE (no server on this host takes such memory). Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_params_host_stage_connect(
    const struct muster_incarnation *id, int *ret_socket);
/** False: the server has too many, or is gone. */
bool muster_params_host_stage_send(int socket, const struct muster_params_stage_token *token,
                                   int fd);
/** The next packet of this user. -1: there is none. Gives. */
int muster_params_host_stage_receive(int socket, struct muster_params_stage_token *ret_token);

/** The same as below for connections whose two ends talk through memory (net/stream/ring.h). */
MUSTER_MUST_CHECK enum muster_rc muster_params_host_ring_listen(const struct muster_incarnation *id,
                                                                int *ret_socket);
MUSTER_MUST_CHECK enum muster_rc muster_params_host_ring_connect(
    const struct muster_incarnation *id, int *ret_socket);

/** A listening socket, non-blocking. Gives. Errors: ALREADY_EXISTS (another process serves this memory),
 * RESOURCE_EXHAUSTED, UNAVAILABLE. */
MUSTER_MUST_CHECK enum muster_rc muster_params_host_listen(const struct muster_incarnation *id,
                                                           int *ret_socket);
/** -1: errno says why. Gives. */
int muster_params_host_accept(int listening);
/** A connection, from which the memory comes. Gives. Errors: UNAVAILABLE (no such server of this user is
 * on this host). */
MUSTER_MUST_CHECK enum muster_rc muster_params_host_connect(const struct muster_incarnation *id,
                                                            int *ret_socket);
/** The peer's user is this process's. */
bool muster_params_host_is_own_user(int socket);
/** False: the peer is gone. */
bool muster_params_host_send(int socket, int fd);
/** -1: nothing has come. Gives. */
int muster_params_host_receive(int socket);

#endif
