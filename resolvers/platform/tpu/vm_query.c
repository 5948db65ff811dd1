/* Attributes of this TPU VM, asked of the metadata server (instance/attributes/…), one after the
 * other. They are those from which JAX's clusters/cloud_tpu_cluster.py finds its processes. */
#include "resolvers/platform/tpu/vm_query.h"

#include <string.h>

static const char *const paths[MUSTER_TPU_VM_STEPS] = {
    [MUSTER_TPU_VM_ENDPOINTS] = MUSTER_TPU_VM_ENDPOINTS_PATH,
    [MUSTER_TPU_VM_WORKER_NUMBER] = "instance/attributes/agent-worker-number",
    [MUSTER_TPU_VM_ENV] = "instance/attributes/tpu-env",
};

static const char *const sources[MUSTER_TPU_VM_STEPS] = {
    [MUSTER_TPU_VM_ENDPOINTS] = "worker-network-endpoints of the metadata server",
    [MUSTER_TPU_VM_WORKER_NUMBER] = "agent-worker-number of the metadata server",
    [MUSTER_TPU_VM_ENV] = "tpu-env of the metadata server",
};

static void read_env(struct muster_tpu_vm_query *query)
{
    static const struct {
        const char *key;
        size_t offset;
    } rows[] = {
        {"WORKER_ID", offsetof(struct muster_tpu_vm_query, worker_id)},
        {"MEGASCALE_NUM_SLICES", offsetof(struct muster_tpu_vm_query, num_slices)},
        {"MEGASCALE_SLICE_ID", offsetof(struct muster_tpu_vm_query, slice_id)},
        {"MEGASCALE_COORDINATOR_ADDRESS", offsetof(struct muster_tpu_vm_query, coordinator)},
    };
    const char *text = query->attributes[MUSTER_TPU_VM_ENV];

    for (size_t i = 0; text != NULL && i < sizeof(rows) / sizeof(rows[0]); i++)
        (void)muster_tpu_env_find(text, rows[i].key, MUSTER_TPU_VM_VALUE_BYTES,
                                  (char *)query + rows[i].offset);
}

/* Keep the value. A missing attribute is fine, but for the endpoints. */
static enum muster_rc take_attribute(struct muster_tpu_vm_query *query, enum muster_rc rc)
{
    struct muster_metadata_get *get = &query->get;

    if (rc == MUSTER_NOT_FOUND && query->step != MUSTER_TPU_VM_ENDPOINTS)
        return MUSTER_OK;
    if (rc == MUSTER_NOT_FOUND)
        return muster_error_set(&query->error, rc,
                                "the metadata server %.60s knows no worker-network-endpoints of "
                                "this machine: is it a TPU VM? TPU_WORKER_HOSTNAMES names its "
                                "workers, too",
                                muster_metadata_host(query->env));
    if (rc != MUSTER_OK) {
        query->error = get->error;
        return rc;
    }
    query->attributes[query->step] = muster_mem_strndup(query->env->mem, get->text, get->bytes);
    if (query->attributes[query->step] == NULL)
        return muster_error_set(&query->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    return MUSTER_OK;
}

static void on_attribute(struct muster_metadata_get *get, enum muster_rc rc);

static enum muster_rc request_attribute(struct muster_tpu_vm_query *query)
{
    enum muster_rc rc = muster_metadata_get_start(&query->get, query->env, paths[query->step],
                                                  query->deadline_ns, on_attribute);

    if (rc != MUSTER_OK)
        query->error = query->get.error;
    return rc;
}

static void on_attribute(struct muster_metadata_get *get, enum muster_rc rc)
{
    struct muster_tpu_vm_query *query = get->data;

    rc = take_attribute(query, rc);
    query->step++;
    if (rc == MUSTER_OK && query->step < MUSTER_TPU_VM_STEPS) {
        rc = request_attribute(query);
        if (rc == MUSTER_OK)
            return;
    }
    if (rc == MUSTER_OK)
        read_env(query);
    query->done(query, rc);
}

enum muster_rc muster_tpu_vm_query_start(struct muster_tpu_vm_query *query, struct muster_env *env,
                                         uint64_t deadline_ns, muster_tpu_vm_query_fn *done)
{
    *query = (struct muster_tpu_vm_query){
        .data = query->data, .env = env, .done = done, .deadline_ns = deadline_ns};
    muster_metadata_get_init(&query->get, query);
    return request_attribute(query);
}

void muster_tpu_vm_query_cancel(struct muster_tpu_vm_query *query)
{
    muster_metadata_get_cancel(&query->get);
}

void muster_tpu_vm_query_fini(struct muster_tpu_vm_query *query)
{
    if (query->env == NULL)
        return;
    for (size_t i = 0; i < MUSTER_TPU_VM_STEPS; i++)
        muster_mem_free(query->env->mem, query->attributes[i]);
    muster_metadata_get_fini(&query->get);
    query->env = NULL;
}

static void fill_text(struct muster_tpu_vm_text *text, const char *value,
                      enum muster_tpu_vm_step step)
{
    if (text->value == NULL && value != NULL && value[strspn(value, " \t\r\n")] != '\0')
        *text = (struct muster_tpu_vm_text){value, sources[step]};
}

/* A variable of the process wins over the server, and agent-worker-number over tpu-env: what was
 * told first stays. */
void muster_tpu_vm_query_tell(const struct muster_tpu_vm_query *query,
                              struct muster_tpu_vm_texts *texts)
{
    if (texts->hosts.value == NULL) {
        fill_text(&texts->hosts, query->attributes[MUSTER_TPU_VM_ENDPOINTS],
                  MUSTER_TPU_VM_ENDPOINTS);
        texts->are_endpoints = texts->hosts.value != NULL;
    }
    fill_text(&texts->worker_id, query->attributes[MUSTER_TPU_VM_WORKER_NUMBER],
              MUSTER_TPU_VM_WORKER_NUMBER);
    fill_text(&texts->worker_id, query->worker_id, MUSTER_TPU_VM_ENV);
    fill_text(&texts->num_slices, query->num_slices, MUSTER_TPU_VM_ENV);
    fill_text(&texts->slice_id, query->slice_id, MUSTER_TPU_VM_ENV);
    fill_text(&texts->coordinator, query->coordinator, MUSTER_TPU_VM_ENV);
}
