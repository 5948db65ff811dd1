/* Cuts: all shards of all servers as they are between the same pushes of every source.
 *
 * A client asks each server for a cut. A server that hears of it tells its clients, and each client sends a
 * mark to all servers at once. A server reads no more from a client that has marked until all clients
 * have: then what it has applied is the cut, and it goes on. It saves the shards that it leads from copies
 * of the rows that change meanwhile. A client that does not mark in time ends the cut, and nothing else. */
#ifndef MUSTER_PARAMS_SERVER_CUT_H
#define MUSTER_PARAMS_SERVER_CUT_H

#include "params/server/core/server_internal.h"

void muster_params_server_cut_init(struct muster_params_server *server);
/** Give up the cut that is under way; nobody is told. Waits for a file that is being written. */
void muster_params_server_cut_close(struct muster_params_server *server);
/** A client has opened its source: a cut that waits for marks ends. */
void muster_params_server_cut_join(struct muster_params_client *client);
/** The client's link is gone: a cut that waits for marks, or that this client has asked for, ends. */
void muster_params_server_cut_leave(struct muster_params_client *client);
/** Another map is in force: a cut that waits for marks ends. */
void muster_params_server_cut_map(struct muster_params_server *server);

muster_params_handle_fn muster_params_handle_cut, muster_params_handle_mark;

#endif
