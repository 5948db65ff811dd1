/* Project and zone of this machine, from the metadata server where the caller names none. */
#ifndef MUSTER_RESOLVERS_GOOGLE_PLACE_H
#define MUSTER_RESOLVERS_GOOGLE_PLACE_H

#include <muster/env.h>

#include "net/auth/http_metadata.h"

struct muster_google_place;
typedef void muster_google_place_fn(struct muster_google_place *place, enum muster_rc rc);

/** Caller's memory: init, any number of starts one after the other, fini. */
struct muster_google_place {
    void *data;
    /* as given; valid and not NULL in done with OK; owned */
    char *project;
    char *zone; /* "us-central1-b" */
    struct muster_error error;
    /* private */
    struct muster_env *env;
    muster_google_place_fn *done;
    struct muster_metadata_get get;
    struct muster_task task;
    uint64_t deadline_ns;
    bool is_active;
};

/** Copies project and zone, which may be NULL. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_google_place_init(struct muster_google_place *place,
                                                          struct muster_env *env,
                                                          const char *project, const char *zone);
void muster_google_place_fini(struct muster_google_place *place);

/** Find what is missing; what was found stays found. Errors: by done as muster_metadata_get_start,
 * and INVALID_ARGUMENT (a value that is not a name). */
void muster_google_place_start(struct muster_google_place *place, uint64_t deadline_ns,
                               muster_google_place_fn *done);
void muster_google_place_cancel(struct muster_google_place *place);

#endif
