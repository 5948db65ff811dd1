/* Cuts at a clock: sources that have come to it push nothing more until the cut has all of them.
 *
 * The client that wants the cut asks each server to hold. The server tells its clients, and answers when all
 * sources that tick have completed so many steps. Then the client begins a cut as any other (cut.h). Once that
 * is complete here, once it is given up, or the asker is gone, clients hear that they may go on. */
#ifndef MUSTER_PARAMS_SERVER_HOLD_H
#define MUSTER_PARAMS_SERVER_HOLD_H

#include "params/server/core/server_internal.h"

muster_params_handle_fn muster_params_handle_hold;

void muster_params_server_hold_init(struct muster_params_server *server);
void muster_params_server_hold_close(struct muster_params_server *server);
/** A client has opened its source. False: no memory. */
MUSTER_MUST_CHECK bool muster_params_server_hold_join(struct muster_params_client *client);
/** The client's link is gone: the hold that it has asked for ends. */
void muster_params_server_hold_leave(struct muster_params_client *client);
/** The clock of the newest push that a source which ticks has made here, and 1. 0: none. For cuts at a clock. */
uint64_t muster_params_server_hold_pushed(const struct muster_params_server *server);
/** The cut of this number is complete, or has ended here for good. */
void muster_params_server_hold_end(struct muster_params_server *server, uint64_t number);
/** Whether the source, which calls by gRPC, may push now. Errors: UNAVAILABLE. */
MUSTER_MUST_CHECK enum muster_rc
muster_params_server_hold_check(struct muster_params_server *server,
                                const struct muster_params_source *source,
                                struct muster_error *ret_error);

#endif
