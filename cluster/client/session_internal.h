/* What sessions and the places on them know of each other. */
#ifndef MUSTER_CLUSTER_SESSION_INTERNAL_H
#define MUSTER_CLUSTER_SESSION_INTERNAL_H

#include <muster/locks.h>

/** A place has ended: the session may be waiting for that. */
void muster_session_check_ended(struct muster_session *session);
/** The lease goes or has gone, and the key with it: end with rc. CANCELLED: the caller wished so. */
void muster_place_drop(struct muster_place *place, enum muster_rc rc);

#endif
