/* Google's notices that a machine will be taken away: the metadata server's values for maintenance and preemption. */
#ifndef MUSTER_RESOLVERS_MAINTENANCE_H
#define MUSTER_RESOLVERS_MAINTENANCE_H

#include "resolvers/platform/tpu/metadata_watch.h"

struct muster_maintenance;
typedef void muster_maintenance_fn(struct muster_maintenance *maintenance);
/** cause: "TERMINATE_ON_HOST_MAINTENANCE", "PREEMPTED". */
typedef void muster_maintenance_notice_fn(struct muster_maintenance *maintenance,
                                          const char *cause);

/** Caller's memory: init, start, stop, and after on_off fini. */
struct muster_maintenance {
    void *data;
    muster_maintenance_notice_fn *on_notice; /* more than once, perhaps */
    muster_maintenance_fn *on_off;           /* stopped */
    /* private */
    struct muster_metadata_watch event, preempted;
};

/** Borrows env, which has an HTTP client. */
void muster_maintenance_init(struct muster_maintenance *maintenance, struct muster_env *env);
void muster_maintenance_start(struct muster_maintenance *maintenance);
/** Once; on_off follows, perhaps at once. */
void muster_maintenance_stop(struct muster_maintenance *maintenance);
void muster_maintenance_fini(struct muster_maintenance *maintenance);

#endif
