/* One question to the Compute Engine API: a group's instances page by page, then their addresses.
 * */
#ifndef MUSTER_RESOLVERS_GCE_GROUP_H
#define MUSTER_RESOLVERS_GCE_GROUP_H

#include <muster/cluster_spec.h>
#include <muster/http.h>

#include "resolvers/platform/gce/text.h"
#include "resolvers/platform/gce/google_place.h"

#define MUSTER_GCE_LOOKUPS_MAX 32 /* instances that are asked for in parallel */

struct muster_gce_group;
typedef void muster_gce_group_fn(struct muster_gce_group *group, enum muster_rc rc);

/** Which group, and how to reach its API. All is borrowed until done. */
struct muster_gce_group_options {
    struct muster_env *env;
    struct muster_credentials *credentials; /* NULL: none */
    struct muster_http_memory *memory;      /* of instances; NULL: asked in full */
    const char *api_endpoint;               /* without a slash at the end */
    const char *project;                    /* NULL: the metadata server's */
    const char *zone;
    const char *instance_group;
    const char *job;
    uint16_t port;
    uint64_t deadline_ns;
};

/** One of the parallel look-ups: asks for one instance after the other. */
struct muster_gce_lookup {
    struct muster_gce_group *group;
    struct muster_http_call call;
    char *url;
    size_t index; /* of the instance */
};

struct muster_gce_address {
    char text[64]; /* "ip:port" */
};

/** Caller's memory. */
struct muster_gce_group {
    void *data;
    struct muster_cluster_spec *cluster_spec; /* in done with OK: gives a reference */
    struct muster_error error;
    /* private */
    struct muster_gce_group_options options;
    muster_gce_group_fn *done;
    struct muster_google_place place;
    struct muster_http_call list; /* of pages */
    char *url;
    struct muster_gce_instances instances;
    struct muster_gce_address *addresses; /* one for each instance */
    struct muster_gce_lookup lookups[MUSTER_GCE_LOOKUPS_MAX];
    size_t next;       /* instance to ask for */
    size_t open_count; /* lookups under way */
    uint32_t page_count;
    bool is_cancelled;
    enum muster_rc rc; /* the first failure */
};

/** Errors: by done those of muster_gce_resolver_open's questions; returned RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_gce_group_start(
    struct muster_gce_group *group, const struct muster_gce_group_options *options,
    muster_gce_group_fn *done);
void muster_gce_group_cancel(struct muster_gce_group *group);

#endif
