/* Sources that may have pushes under way, and no link here: their clients have lost it, or the process that had it
 * has died. Other servers may have pushes of theirs that lie after one which has not come here. */
#ifndef MUSTER_PARAMS_SERVER_ABSENT_H
#define MUSTER_PARAMS_SERVER_ABSENT_H

#include "params/server/core/server_internal.h"

/** Sources had links when the process before this one died, as the memory says. */
void muster_params_absent_open(struct muster_params_server *server);
void muster_params_absent_close(struct muster_params_server *server);
/** The client has opened its source. */
void muster_params_absent_join(struct muster_params_client *client);
/** Its link is gone, or has another source. */
void muster_params_absent_lose(struct muster_params_client *client);
/** It says that it has no push under way, and ends. */
void muster_params_absent_leave(struct muster_params_client *client);
/** Another server says that the source's client is, or may be, connected there. */
void muster_params_absent_learn(struct muster_params_server *server, uint64_t slot);
/** The slot is for another source. */
void muster_params_absent_drop(struct muster_params_server *server, uint64_t slot);
/** A source that has pushed and may come back. False: there is none. */
bool muster_params_absent_find(const struct muster_params_server *server, uint64_t *ret_slot);
/** The name that the absent source gave over its last link; "": it gave none, or gave it to an earlier process of this
 * server. Borrowed until the source is back or is not expected any more. */
const char *muster_params_absent_name(const struct muster_params_server *server, uint64_t slot);

#endif
