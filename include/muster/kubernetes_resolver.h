/* The pods of a Kubernetes cluster as tasks (TensorFlow's KubernetesClusterResolver). */
#ifndef MUSTER_KUBERNETES_RESOLVER_H
#define MUSTER_KUBERNETES_RESOLVER_H

#include <muster/resolver.h>

MUSTER_BEGIN

#define MUSTER_KUBERNETES_PORT     8470
#define MUSTER_KUBERNETES_SELECTOR "job-name=tensorflow"
#define MUSTER_KUBERNETES_PODS_MAX 100000 /* of one selector; more are RESOURCE_EXHAUSTED */

/** Where the API server is found. */
enum muster_kubernetes_location {
    MUSTER_KUBERNETES_AUTO, /* within the cluster where its variables are set, else off it */
    MUSTER_KUBERNETES_WITHIN_CLUSTER, /* KUBERNETES_SERVICE_HOST and the service account */
    MUSTER_KUBERNETES_OFF_CLUSTER,    /* a kubeconfig */
};

/** Which address of a pod is its task's. */
enum muster_kubernetes_address {
    MUSTER_KUBERNETES_HOST_IP, /* of its node, as TensorFlow does */
    MUSTER_KUBERNETES_POD_IP,
};

/** One job and the label selectors of its pods; pods of several stand one behind the other. */
struct muster_kubernetes_job {
    const char *name;
    const char *const *selectors; /* "job-name=a", "app=t,role in (a,b)" */
    size_t selector_count;
};

/** Everything is borrowed during the call. All zero: TensorFlow's defaults. */
struct muster_kubernetes_resolver_options {
    struct muster_resolver_options common;    /* common.rpc_layer NULL: "grpc"; "": none */
    const struct muster_kubernetes_job *jobs; /* none: "worker" of MUSTER_KUBERNETES_SELECTOR */
    size_t job_count;
    uint16_t port; /* of every task; 0: MUSTER_KUBERNETES_PORT */
    enum muster_kubernetes_location location;
    enum muster_kubernetes_address address;
    const char *name_space; /* NULL: all namespaces, which needs the right to list them */
    const char *kubeconfig; /* path; NULL: KUBECONFIG, else ~/.kube/config */
    const char *context;    /* NULL: the current one */
    const char *api_server; /* base URL to use instead of any location */
    const char *token;      /* with api_server */
    const char *token_file; /* NULL: the service account's */
    const char *ca_file;    /* NULL: the service account's, or with api_server the system's */
};

/**
 * Pods by label selectors, sorted by name as text (pod-10 comes before pod-2), listed anew at each
 * question; each must be in phase Running. A watch follows the API server's own.
 *
 * Owns:    gives; borrows env (http, files, vars, rng) until closed.
 * Errors:  returned FAILED_PRECONDITION: not within a cluster; NOT_FOUND: no kubeconfig, or no such
 *          context; INVALID_ARGUMENT: malformed configuration; UNIMPLEMENTED: exec plug-ins, basic
 *          authentication. Questions: FAILED_PRECONDITION names the pod that is not Running;
 *          UNAUTHENTICATED, PERMISSION_DENIED and others as the API server answers; UNAVAILABLE.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_kubernetes_resolver_open(
    struct muster_env *env, const struct muster_kubernetes_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

MUSTER_END

#endif
