/* Answers out of a cluster description, for resolvers that find nothing but that. */
#include "resolvers/spec_answer.h"

#include "resolvers/resolvers_internal.h"

#include <string.h>

/* The task of the question: as asked for, else the resolver's own. */
struct subject {
    char *type; /* or NULL */
    bool has_id;
    int64_t id;
};

static enum muster_rc find_subject(struct muster_resolve *resolve, struct subject *ret_subject)
{
    struct muster_resolver *resolver = resolve->resolver;
    const struct muster_task_query *query = &resolve->query;
    struct subject subject = {.has_id = query->has_task_id, .id = query->task_id};
    enum muster_rc rc = MUSTER_OK;

    if (query->task_type == NULL) {
        rc = muster_resolver_task_type(resolver, &subject.type, &resolve->error);
    } else {
        subject.type = muster_mem_strdup(resolver->env->mem, query->task_type);
        if (subject.type == NULL)
            rc = muster_error_set(&resolve->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    }
    if (rc == MUSTER_OK && !query->has_task_id)
        rc = muster_resolver_task_id(resolver, &subject.has_id, &subject.id, &resolve->error);
    if (rc == MUSTER_OK)
        *ret_subject = subject;
    else
        muster_mem_free(resolver->env->mem, subject.type);
    return rc;
}

static enum muster_rc format_master(struct muster_resolve *resolve, const char *address)
{
    struct muster_mem *mem = resolve->resolver->env->mem;
    char *layer = NULL;
    enum muster_rc rc = MUSTER_OK;

    if (resolve->query.rpc_layer == NULL)
        rc = muster_resolver_rpc_layer(resolve->resolver, &layer, &resolve->error);
    if (rc == MUSTER_OK && address[0] == '\0') {
        resolve->master = muster_mem_strdup(mem, "");
        if (resolve->master == NULL)
            rc = muster_error_set(&resolve->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    } else if (rc == MUSTER_OK) {
        rc = muster_master_url_format(
            mem, resolve->query.rpc_layer != NULL ? resolve->query.rpc_layer : layer, address,
            &resolve->master, &resolve->error);
    }
    muster_mem_free(mem, layer);
    return rc;
}

static enum muster_rc find_master(struct muster_resolve *resolve,
                                  const struct muster_cluster_spec *spec, const char *master)
{
    const char *address = master;
    struct subject subject = {.type = NULL};
    enum muster_rc rc = find_subject(resolve, &subject);

    if (rc == MUSTER_OK && subject.type != NULL && subject.has_id)
        rc = muster_cluster_spec_task_address(spec, subject.type, subject.id, &address,
                                              &resolve->error);
    if (rc == MUSTER_OK)
        rc = format_master(resolve, address);
    muster_mem_free(resolve->resolver->env->mem, subject.type);
    return rc;
}

static enum muster_rc count_accelerators(struct muster_resolve *resolve)
{
    struct subject subject = {.type = NULL};
    enum muster_rc rc = find_subject(resolve, &subject);

    if (rc == MUSTER_OK)
        rc = muster_resolver_count_devices(resolve->resolver, subject.type,
                                           subject.has_id ? &subject.id : NULL,
                                           &resolve->accelerators, &resolve->error);
    muster_mem_free(resolve->resolver->env->mem, subject.type);
    return rc;
}

enum muster_rc muster_spec_answer(struct muster_resolve *resolve, struct muster_cluster_spec *spec,
                                  const char *master)
{
    switch (resolve->what) {
    case MUSTER_RESOLVE_CLUSTER_SPEC:
        resolve->cluster_spec = muster_cluster_spec_ref(spec);
        return MUSTER_OK;
    case MUSTER_RESOLVE_MASTER:
        return find_master(resolve, spec, master);
    case MUSTER_RESOLVE_NUM_ACCELERATORS:
        return count_accelerators(resolve);
    }
    return MUSTER_INTERNAL;
}
