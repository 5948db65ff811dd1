/* Listing pods at the API server: all selectors of all jobs, page by page. */
#ifndef MUSTER_RESOLVERS_KUBERNETES_LIST_H
#define MUSTER_RESOLVERS_KUBERNETES_LIST_H

#include <muster/http.h>

#include "resolvers/platform/kubernetes/pods.h"
#include "resolvers/platform/kubernetes/server.h"

/** A selector of a job, in order. */
struct muster_kubernetes_part {
    const char *job;
    const char *selector;
};

struct muster_kubernetes_list;
typedef void muster_kubernetes_list_fn(struct muster_kubernetes_list *list, enum muster_rc rc);
/** The pods of a part are all there, with the version of their list. */
typedef void muster_kubernetes_part_fn(struct muster_kubernetes_list *list, size_t part,
                                       const char *resource_version);

/** The selectors to list and the server to ask. All is borrowed until done. */
struct muster_kubernetes_list_options {
    const struct muster_kubernetes_server *server;
    const struct muster_kubernetes_part *parts; /* those of one job stand together */
    size_t part_count;
    uint16_t port;
    enum muster_kubernetes_address address;
    uint64_t deadline_ns;
};

/** The address of one task. */
struct muster_kubernetes_place {
    size_t part;
    char address[64];
};

/** Caller's memory. */
struct muster_kubernetes_list {
    void *data;
    muster_kubernetes_part_fn *on_part;       /* may be NULL */
    struct muster_cluster_spec *cluster_spec; /* in done with OK: gives a reference */
    struct muster_error error;
    /* private */
    struct muster_kubernetes_list_options options;
    muster_kubernetes_list_fn *done;
    struct muster_http_call call;
    struct muster_kubernetes_pods pods; /* of the part under way */
    struct muster_kubernetes_place *places;
    size_t place_count;
    size_t place_capacity;
    size_t part;
    uint32_t restart_count; /* of the part: its continue mark expired */
    uint32_t page_count;    /* of the part */
    char *url;
};

/**
 * Start with the first part. When a continue mark expires (410) the part is listed anew, up to 3 times.
 *
 * Errors:  returned as muster_http_call_start; by done FAILED_PRECONDITION (a pod is not Running, or
 *          has no address yet), RESOURCE_EXHAUSTED (more than MUSTER_KUBERNETES_PODS_MAX pods), and
 *          those of the server.
 */
MUSTER_MUST_CHECK enum muster_rc muster_kubernetes_list_start(
    struct muster_kubernetes_list *list, const struct muster_kubernetes_list_options *options,
    muster_kubernetes_list_fn *done);
void muster_kubernetes_list_cancel(struct muster_kubernetes_list *list);

#endif
