/* What the Cloud TPU API says about a TPU node: an immutable, counted value. */
#ifndef MUSTER_TPU_NODE_H
#define MUSTER_TPU_NODE_H

#include <muster/base.h>
#include <muster/json.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_TPU_PORT        8470 /* of a worker that does not say */
#define MUSTER_TPU_WORKERS_MAX 65536
#define MUSTER_TPU_OOM_COOL_NS (90 * MUSTER_NS_PER_S)

/** Where a TPU worker listens. */
struct muster_tpu_endpoint {
    char host[256]; /* address or name; of an IPv6 address without its brackets */
    uint16_t port;
};

/** Something that is wrong with a node. Texts are borrowed from it; "" where the API does not say. */
struct muster_tpu_symptom {
    const char *type;        /* "OUT_OF_MEMORY" */
    const char *create_time; /* RFC 3339, UTC */
    const char *worker_id;
    const char *details;
};

/** Read-only once made. A text that the API does not give is NULL. */
struct muster_tpu_node {
    const char *state;            /* "READY", "CREATING", "PREEMPTED" … */
    const char *health;           /* "HEALTHY", "UNHEALTHY_MAINTENANCE" … */
    const char *accelerator_type; /* "v3-32" */
    const char *runtime_version;  /* runtimeVersion, or tensorflowVersion */
    const struct muster_tpu_endpoint *endpoints;
    size_t endpoint_count;
    bool has_address;  /* networkEndpoints (maybe an empty list) or ipAddress is there */
    bool has_symptoms; /* the API gives a list, maybe an empty one */
    const struct muster_tpu_symptom *symptoms;
    size_t symptom_count;
    /* private */
    struct muster_mem *mem;
    struct muster_json *root;
    uint32_t ref_count;
};

/** A node as projects.locations.nodes.get answers (v1, v1alpha1 and v2alpha1). Gives a reference.
 * Errors: INVALID_ARGUMENT (no JSON object, or a member of the wrong type); RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_node_parse(struct muster_mem *mem,
                                                                  const char *text, size_t size,
                                                                  struct muster_tpu_node **ret_node,
                                                                  struct muster_error *ret_error);
/** Can tasks be told where its workers are? With is_tf1 a state that is not told counts as READY, and
 * the health must be HEALTHY where it is told (tf.contrib). Errors name the node: FAILED_PRECONDITION
 * (not READY, unhealthy), NOT_FOUND (READY, without any address). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_node_check(
    const struct muster_tpu_node *node, const char *name, bool is_tf1,
    struct muster_error *ret_error);
/** Shares. */
MUSTER_API struct muster_tpu_node *muster_tpu_node_ref(struct muster_tpu_node *node);
/** NULL is accepted. */
MUSTER_API void muster_tpu_node_unref(struct muster_tpu_node *node);

/** Which symptoms make a node unrecoverable while they are fresh. */
struct muster_tpu_recovery {
    bool is_runtime_oom_ignored; /* OUT_OF_MEMORY */
    bool is_hbm_oom_ignored;     /* HBM_OUT_OF_MEMORY */
};
/**
 * Is it worth trying again on this node? Not when it is TERMINATED or PREEMPTED, nor within
 * MUSTER_TPU_OOM_COOL_NS of running out of memory. A node without state is recoverable.
 *
 * Units:   wall_ns since 1970, UTC.
 * Source:  cloud_tpu_client.Client.recoverable
 */
MUSTER_API bool muster_tpu_node_is_recoverable(const struct muster_tpu_node *node,
                                               const struct muster_tpu_recovery *recovery,
                                               uint64_t wall_ns);

MUSTER_END

#endif
