/* Small texts of the TPU world: names, endpoints, times, discovery documents. Pure. */
#ifndef MUSTER_RESOLVERS_TPU_TEXT_H
#define MUSTER_RESOLVERS_TPU_TEXT_H

#include <muster/env.h>
#include <muster/tpu.h>

#define MUSTER_TPU_ADDRESS_BYTES 300 /* room for the address of any endpoint */

/** "2024-05-01T10:00:00.123Z" to whole seconds as ns since 1970; the fraction and what follows it
 * is dropped, as cloud_tpu_client does. False: malformed. */
bool muster_tpu_time_parse(const char *text, uint64_t *ret_ns);

/** "grpc://10.0.0.1:8470,10.0.0.2,[fd00::1]:9": a missing port is MUSTER_TPU_PORT. Gives an array.
 * Errors: INVALID_ARGUMENT names the part; RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_tpu_endpoints_parse(
    struct muster_mem *mem, const char *text, struct muster_tpu_endpoint **ret_endpoints,
    size_t *ret_count, struct muster_error *ret_error);

enum muster_tpu_target_kind {
    MUSTER_TPU_TARGET_LOCAL,     /* the TPU of this machine */
    MUSTER_TPU_TARGET_ENDPOINTS, /* grpc:// addresses: no API is asked */
    MUSTER_TPU_TARGET_NODE,      /* a name that the API knows */
    MUSTER_TPU_TARGET_OPAQUE,    /* TF1: used as it is */
};

/** The TPU that is meant. Texts are owned. */
struct muster_tpu_target {
    struct muster_mem *mem;
    enum muster_tpu_target_kind kind;
    char *name;         /* as given */
    char *node;         /* NODE: the last element of a full resource name, or the name itself */
    char *project;      /* NULL: not named */
    char *zone;         /* NULL: not named */
    const char *source; /* "TPU_NAME"; static */
};

/** The caller's choice; NULL and "" both mean none. Borrowed. */
struct muster_tpu_target_options {
    const char *tpu;
    const char *project;
    const char *zone;
    bool is_tf1; /* "", localhost: and /bns are names that are used as they are */
};

/**
 * The TPU that is meant: the argument, else KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, else TPU_NAME, else
 * TPU_CONFIG (which then also fills in project and zone).
 *
 * Errors:  INVALID_ARGUMENT: nothing names a TPU, or a variable is malformed; RESOURCE_EXHAUSTED.
 * Source:  cloud_tpu_client.Client.__init__
 */
MUSTER_MUST_CHECK enum muster_rc muster_tpu_target_init(
    struct muster_tpu_target *target, struct muster_env *env,
    const struct muster_tpu_target_options *options, struct muster_error *ret_error);
/** All zero is accepted. */
void muster_tpu_target_fini(struct muster_tpu_target *target);

/** A discovery URL with {api} and {apiVersion} filled in. Gives, or NULL: no memory. */
char *muster_tpu_discovery_url_format(struct muster_mem *mem, const char *url, const char *version);

/** The URL of a node out of a discovery document: rootUrl + servicePath + the path of
 * projects.locations.nodes.get, its {+name} filled in. Gives. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_tpu_discovery_parse(struct muster_mem *mem,
                                                            const char *text, size_t size,
                                                            const char *resource_name,
                                                            char **ret_url,
                                                            struct muster_error *ret_error);

#endif
