/* Pods as the Kubernetes API lists and watches them, read from its JSON. */
#ifndef MUSTER_RESOLVERS_KUBERNETES_PODS_H
#define MUSTER_RESOLVERS_KUBERNETES_PODS_H

#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_KUBERNETES_TOKEN_BYTES_MAX 4096 /* of a continue mark, which holds a key */

/** The fields of a pod that a resolver needs. Texts are borrowed from the list. */
struct muster_kubernetes_pod {
    const char *name_space;
    const char *name;
    const char *phase;   /* "" when the server does not say */
    const char *host_ip; /* "" before the pod was placed */
    const char *pod_ip;
};

/** The pods of all pages read so far. */
struct muster_kubernetes_pods {
    struct muster_mem *mem;
    struct muster_kubernetes_pod *pods;
    size_t count;
    size_t capacity;
    char *resource_version; /* of the last page; "" when it has none */
    char *continue_mark;    /* of the last page; "" at the end */
};

void muster_kubernetes_pods_init(struct muster_kubernetes_pods *pods, struct muster_mem *mem);
void muster_kubernetes_pods_fini(struct muster_kubernetes_pods *pods);

/**
 * Add a page (a PodList).
 *
 * Errors:  INVALID_ARGUMENT: no JSON, no list, or a pod without a name;
 *          RESOURCE_EXHAUSTED. The pods read before stay.
 * Source:  Kubernetes API reference, core/v1 PodList
 */
MUSTER_MUST_CHECK enum muster_rc muster_kubernetes_pods_add_page(
    struct muster_kubernetes_pods *pods, const char *text, size_t size,
    struct muster_error *ret_error);

/** By name, as text, then by namespace: pod-10 comes before pod-2. */
void muster_kubernetes_pods_sort(struct muster_kubernetes_pods *pods);

enum muster_kubernetes_event_kind {
    MUSTER_KUBERNETES_EVENT_CHANGE,   /* ADDED, MODIFIED, DELETED */
    MUSTER_KUBERNETES_EVENT_BOOKMARK, /* only tells the version */
    MUSTER_KUBERNETES_EVENT_EXPIRED,  /* ERROR 410: list anew */
    MUSTER_KUBERNETES_EVENT_FAILURE,  /* another ERROR */
};

/** One line of a watch. */
struct muster_kubernetes_event {
    enum muster_kubernetes_event_kind kind;
    char resource_version[64]; /* "" when it has none */
};

/** Errors: INVALID_ARGUMENT: no JSON, no event, or one of an unknown type. */
MUSTER_MUST_CHECK enum muster_rc muster_kubernetes_event_parse(
    const char *text, size_t size, struct muster_kubernetes_event *ret_event,
    struct muster_error *ret_error);

#endif
