/* What the files of the registry client share. */
#ifndef MUSTER_CLUSTER_REGISTRY_CLIENT_INTERNAL_H
#define MUSTER_CLUSTER_REGISTRY_CLIENT_INTERNAL_H

#include "cluster/registry_client_proto.h"

/** One stream that keeps all leases alive. */
struct muster_registry_keeper {
    struct muster_call call;
    struct muster_timer timer; /* to the next attempt */
    size_t endpoint;
    uint64_t backoff_ns;
    bool is_open; /* the call is under way */
};

struct muster_registry {
    void *data;
    struct muster_env *env;
    struct muster_registry_options options;
    struct muster_channel *channels[MUSTER_REGISTRY_ENDPOINTS_MAX];
    size_t channel_count;
    size_t current;      /* endpoint in use */
    uint64_t cluster_id; /* of the last answer; 0: none yet */
    struct muster_list requests;
    struct muster_list leases;
    struct muster_list watches;
    struct muster_registry_keeper keeper;
    bool is_closing;
    size_t channels_open;
    struct muster_task close_task;
    muster_registry_close_fn *closed;
};

/** The endpoint did not answer: the next one is used from now on. */
void muster_registry_leave_endpoint(struct muster_registry *registry, size_t endpoint);
/** The wait before the next attempt, jittered; *backoff_ns grows. */
uint64_t muster_registry_backoff(struct muster_registry *registry, uint64_t *backoff_ns);
/** Metadata of streams: end them when their member has no leader. */
struct muster_metadata muster_registry_stream_metadata(void);
/** Closed once nothing is under way. */
void muster_registry_check_closed(struct muster_registry *registry);
/** The registry is closing: end everything without callbacks but those of ops. */
void muster_registry_stop_leases(struct muster_registry *registry);
void muster_registry_stop_watches(struct muster_registry *registry);
void muster_registry_stop_requests(struct muster_registry *registry);

#endif
