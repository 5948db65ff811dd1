/* The one listening port of a process: the first bytes tell HTTP/2 from peer links. */
#ifndef MUSTER_NET_PORT_H
#define MUSTER_NET_PORT_H

#include <muster/rpc.h>
#include <muster/stream.h>

struct muster_port;

typedef void muster_port_peer_fn(struct muster_port *port, struct muster_stream *stream);
typedef void muster_port_close_fn(struct muster_port *port);

/** rpc_server NULL: HTTP/2 is refused. on_peer takes the stream, first bytes unread. A connection
 * that says nothing for 10 s, or something else, is closed. Errors as muster_listener_open;
 * INVALID_ARGUMENT also where links and the server would be under different credentials. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_port_open(struct muster_env *env,
                                                  const struct muster_address *address,
                                                  struct muster_rpc_server *rpc_server,
                                                  muster_port_peer_fn *on_peer, void *data,
                                                  struct muster_port **ret_port,
                                                  struct muster_error *ret_error);
const struct muster_address *muster_port_address(const struct muster_port *port);
void *muster_port_data(const struct muster_port *port);
void muster_port_close(struct muster_port *port, muster_port_close_fn *closed);

#endif
