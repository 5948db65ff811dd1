/* Answers to all questions from a cluster that the platform has listed. Resolvers that list their
 * cluster (Kubernetes, GCE, DNS, files) share the rules of TensorFlow's base class here: which task
 * is meant, which master it has, and which devices count. */
#include "resolvers/core/cluster_answer.h"

#include "resolvers/core/resolver_internal.h"
#include "resolvers/spec/task_address.h"

/* The task that a question is about. */
struct resolve_subject {
    char *own_type; /* given by the resolver */
    const char *type;
    bool has_id;
    int64_t id;
};

static void subject_fini(struct resolve_subject *subject, struct muster_mem *mem)
{
    muster_mem_free(mem, subject->own_type);
}

static enum muster_rc find_subject(struct muster_resolve *resolve, struct resolve_subject *subject)
{
    const struct muster_task_query *query = &resolve->query;
    struct muster_resolver *resolver = resolve->resolver;
    enum muster_rc rc = MUSTER_OK;

    if (query->task_type == NULL)
        rc = muster_resolver_task_type(resolver, &subject->own_type, &resolve->error);
    subject->type = query->task_type != NULL ? query->task_type : subject->own_type;
    subject->has_id = query->has_task_id;
    subject->id = query->task_id;
    if (rc == MUSTER_OK && !subject->has_id)
        rc = muster_resolver_task_id(resolver, &subject->has_id, &subject->id, &resolve->error);
    return rc;
}

/* As TensorFlow: a task without type or id is a process that runs alone, and its master is "". */
static bool is_local(const struct resolve_subject *subject)
{
    return subject->type == NULL || !subject->has_id;
}

static enum muster_rc answer_master(struct muster_resolve *resolve,
                                    const struct resolve_subject *subject,
                                    const struct muster_cluster_spec *spec)
{
    struct muster_mem *mem = resolve->resolver->env->mem;
    const char *address = NULL;
    enum muster_rc rc;

    if (is_local(subject))
        return muster_master_url_format(mem, NULL, "", &resolve->master, &resolve->error);
    rc = muster_cluster_spec_task_address(spec, subject->type, subject->id, &address,
                                          &resolve->error);
    if (rc == MUSTER_OK)
        rc = muster_master_url_format(mem, muster_resolve_rpc_layer(resolve), address,
                                      &resolve->master, &resolve->error);
    return rc;
}

/* As TensorFlow's ClusterResolver.num_accelerators: the caller has found a master before, because
 * without one there is no task to list devices; devices of a single task are counted only where the
 * question names it. */
static enum muster_rc answer_accelerators(struct muster_resolve *resolve)
{
    const struct muster_task_query *query = &resolve->query;

    muster_mem_free(resolve->resolver->env->mem, resolve->master);
    resolve->master = NULL;
    return muster_resolver_count_devices(resolve->resolver, query->task_type,
                                         query->has_task_id ? &query->task_id : NULL,
                                         &resolve->accelerators, &resolve->error);
}

enum muster_rc muster_resolve_answer_own_devices(struct muster_resolve *resolve)
{
    struct resolve_subject subject = {.own_type = NULL};
    enum muster_rc rc = find_subject(resolve, &subject);

    if (rc == MUSTER_OK)
        rc = muster_resolver_count_devices(resolve->resolver, subject.type,
                                           subject.has_id ? &subject.id : NULL,
                                           &resolve->accelerators, &resolve->error);
    subject_fini(&subject, resolve->resolver->env->mem);
    return rc;
}

static enum muster_rc answer_about_task(struct muster_resolve *resolve,
                                        const struct muster_cluster_spec *spec)
{
    struct resolve_subject subject = {.own_type = NULL};
    enum muster_rc rc = find_subject(resolve, &subject);

    if (rc == MUSTER_OK)
        rc = answer_master(resolve, &subject, spec);
    if (rc == MUSTER_OK && resolve->what == MUSTER_RESOLVE_NUM_ACCELERATORS)
        rc = answer_accelerators(resolve);
    subject_fini(&subject, resolve->resolver->env->mem);
    return rc;
}

enum muster_rc muster_resolve_answer_cluster(struct muster_resolve *resolve,
                                             struct muster_cluster_spec *spec)
{
    enum muster_rc rc = MUSTER_OK;

    if (resolve->what == MUSTER_RESOLVE_CLUSTER_SPEC) {
        resolve->cluster_spec = spec;
        return MUSTER_OK;
    }
    rc = answer_about_task(resolve, spec);
    muster_cluster_spec_unref(spec);
    return rc;
}

/* True: the question is answered without the cluster, because its master is local, or it failed; it
 * ends with *ret_rc. This saves a call to the cloud's API. */
static bool answer_local(struct muster_resolve *resolve, enum muster_rc *ret_rc)
{
    struct resolve_subject subject = {.own_type = NULL};
    enum muster_rc rc = MUSTER_OK;
    bool is_answered = false;

    if (resolve->what == MUSTER_RESOLVE_CLUSTER_SPEC)
        return false;
    rc = find_subject(resolve, &subject);
    if (rc == MUSTER_OK && is_local(&subject)) {
        rc = answer_master(resolve, &subject, NULL);
        if (rc == MUSTER_OK && resolve->what == MUSTER_RESOLVE_NUM_ACCELERATORS)
            rc = answer_accelerators(resolve);
        is_answered = true;
    }
    subject_fini(&subject, resolve->resolver->env->mem);
    *ret_rc = rc;
    return is_answered || rc != MUSTER_OK;
}

void *muster_resolve_begin(struct muster_resolve *resolve, size_t bytes)
{
    enum muster_rc rc;

    if (answer_local(resolve, &rc)) {
        muster_resolve_finish(resolve, rc);
        return NULL;
    }
    MUSTER_ASSERT(resolve->impl == NULL);
    resolve->impl = muster_mem_alloc_zero(resolve->resolver->env->mem, 1, bytes);
    if (resolve->impl == NULL) {
        rc = muster_error_set(&resolve->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
        muster_resolve_finish(resolve, rc);
    }
    return resolve->impl;
}

void muster_resolve_end(struct muster_resolve *resolve, enum muster_rc rc)
{
    muster_mem_free(resolve->resolver->env->mem, resolve->impl);
    resolve->impl = NULL;
    muster_resolve_finish(resolve, rc);
}
