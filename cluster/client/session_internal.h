/* The parts of a session that the places on it use, and the reverse. */
#ifndef MUSTER_CLUSTER_SESSION_INTERNAL_H
#define MUSTER_CLUSTER_SESSION_INTERNAL_H

#include <muster/locks.h>

#include "cluster/client/registry_client_internal.h"

/** A place has ended: the session may be waiting for that. */
static inline void muster_session_check_ended(struct muster_session *session)
{
    muster_task_post(&session->task, session->registry->env->loop);
}

/** The lease goes or has gone, and the key with it: end with rc. CANCELLED: the caller wished so.
 * done comes later, from the loop. */
void muster_lease_place_drop(struct muster_lease_place *place, enum muster_rc rc);

#endif
