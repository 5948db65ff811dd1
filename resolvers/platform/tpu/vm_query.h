/* The attributes of a TPU VM, asked of the metadata server one after the other. */
#ifndef MUSTER_RESOLVERS_TPU_VM_QUERY_H
#define MUSTER_RESOLVERS_TPU_VM_QUERY_H

#include <muster/env.h>

#include "net/auth/http_metadata.h"
#include "resolvers/platform/tpu/vm_text.h"

#define MUSTER_TPU_VM_ENDPOINTS_PATH "instance/attributes/worker-network-endpoints"
#define MUSTER_TPU_VM_VALUE_BYTES    320

enum muster_tpu_vm_step {
    MUSTER_TPU_VM_ENDPOINTS,
    MUSTER_TPU_VM_WORKER_NUMBER,
    MUSTER_TPU_VM_ENV, /* tpu-env */
    MUSTER_TPU_VM_STEPS,
};

struct muster_tpu_vm_query;
typedef void muster_tpu_vm_query_fn(struct muster_tpu_vm_query *query, enum muster_rc rc);

/** Caller's memory. */
struct muster_tpu_vm_query {
    void *data;
    struct muster_error error; /* valid in done */
    /* private */
    struct muster_env *env;
    muster_tpu_vm_query_fn *done;
    struct muster_metadata_get get;
    uint64_t deadline_ns;
    enum muster_tpu_vm_step step;
    char *attributes[MUSTER_TPU_VM_STEPS];
    char worker_id[MUSTER_TPU_VM_VALUE_BYTES]; /* of tpu-env, as those that follow */
    char num_slices[MUSTER_TPU_VM_VALUE_BYTES];
    char slice_id[MUSTER_TPU_VM_VALUE_BYTES];
    char coordinator[MUSTER_TPU_VM_VALUE_BYTES];
};

/** Ask for all of them. Only worker-network-endpoints has to exist. Errors: by done as
 * muster_metadata_get_start; returned RESOURCE_EXHAUSTED and others, with query->error. */
MUSTER_MUST_CHECK enum muster_rc muster_tpu_vm_query_start(struct muster_tpu_vm_query *query,
                                                           struct muster_env *env,
                                                           uint64_t deadline_ns,
                                                           muster_tpu_vm_query_fn *done);
void muster_tpu_vm_query_cancel(struct muster_tpu_vm_query *query);
void muster_tpu_vm_query_fini(struct muster_tpu_vm_query *query);

/** Fill in what texts do not tell yet; borrowed from query until fini. */
void muster_tpu_vm_query_tell(const struct muster_tpu_vm_query *query,
                              struct muster_tpu_vm_texts *texts);

#endif
