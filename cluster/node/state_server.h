/* Serves the committed training state to joiners, while it is clean, and to observers what the step under way does not
 * change (docs/protocol.md, "Steps and state"). */
#ifndef MUSTER_CLUSTER_STATE_SERVER_H
#define MUSTER_CLUSTER_STATE_SERVER_H

#include "cluster/node/state_manifest.h"
#include "net/link/peer_link.h"

struct muster_state_server;

/** Borrows env. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_state_server_open(struct muster_env *env,
                                                          struct muster_state_server **ret_server);

/** Set the state to serve. Borrows chunks until close. */
void muster_state_server_set_chunks(struct muster_state_server *server,
                                    struct muster_state_chunks *chunks);

/** Joiners that are peers of board are told where they can read the tensors. Borrows board until close; NULL: none. */
void muster_state_server_set_board(struct muster_state_server *server, struct muster_board *board);

/** This process is in the view of `epoch`: manifests say so. */
void muster_state_server_set_epoch(struct muster_state_server *server, uint64_t epoch);

/** The tensors are state `step` now: requests that waited for it are answered. */
void muster_state_server_commit(struct muster_state_server *server, uint64_t step);

/** The program may write the tensors from now on: requests wait for the next commit, or are refused
 * (OUT_OF_RANGE, for good) when the step they name is past. */
void muster_state_server_touch(struct muster_state_server *server);

/** This process is no member any more: joiners that wait for its next commit are refused
 * (UNAVAILABLE: for now), for they may be what it waits for. Until the next commit. */
void muster_state_server_withdraw(struct muster_state_server *server);

/** A joiner's STATE link after on_ready. Takes link. */
void muster_state_server_accept(struct muster_state_server *server, struct muster_peer_link *link);

/** Closes the links. NULL is accepted. */
void muster_state_server_close(struct muster_state_server *server);

#endif
