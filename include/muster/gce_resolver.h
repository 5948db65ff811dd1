/* The instances of a Compute Engine instance group as tasks (TensorFlow's GCEClusterResolver). */
#ifndef MUSTER_GCE_RESOLVER_H
#define MUSTER_GCE_RESOLVER_H

#include <muster/resolver.h>

MUSTER_BEGIN

/** Everything is borrowed during the call. */
struct muster_gce_resolver_options {
    struct muster_resolver_options common; /* task_type NULL: "worker", and it cannot be set later;
                                              has_task_id false: task 0; rpc_layer NULL: "grpc", "":
                                              none */
    bool has_no_task_id;                   /* of no task: master is "" unless one is asked for */
    const char *project;                   /* NULL: that of the metadata server */
    const char *zone;                      /* NULL: that of the metadata server */
    const char *instance_group;            /* required */
    uint16_t port;                         /* of every task; required */
    const char *api_endpoint;              /* base URL; NULL: https://compute.googleapis.com */
    const char *access_token;              /* NULL: Application Default Credentials */
    bool is_anonymous;                     /* no credentials at all */
};

/**
 * The running instances, by their internal addresses sorted as text (10.0.0.10 comes before
 * 10.0.0.2): one job. Listed anew at each question, instances side by side.
 *
 * Owns:    gives; borrows env (http, files, vars, host, rng) until closed.
 * Errors:  returned INVALID_ARGUMENT: no group or port, malformed credentials; NOT_FOUND and
 *          PERMISSION_DENIED: the file of the credentials. Questions: as the API answers
 *          (UNAUTHENTICATED, PERMISSION_DENIED, NOT_FOUND …), UNAVAILABLE, INVALID_ARGUMENT.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gce_resolver_open(
    struct muster_env *env, const struct muster_gce_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

MUSTER_END

#endif
