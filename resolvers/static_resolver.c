/* A fixed cluster (TensorFlow's SimpleClusterResolver). */
#include "resolvers/resolvers_internal.h"

#include <string.h>

struct static_resolver {
    struct muster_resolver resolver;
    struct muster_cluster_spec *cluster_spec;
    char *master;
    struct muster_accelerators accelerators;
};

static struct static_resolver *of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct static_resolver, resolver);
}

/* The address of a task that is named in full, else the stored master. */
static enum muster_rc find_master(struct static_resolver *own, struct muster_resolve *resolve)
{
    const struct muster_task_query *query = &resolve->query;
    const char *address = own->master;
    const char *rpc_layer = own->resolver.rpc_layer;
    enum muster_rc rc = MUSTER_OK;

    if (query->rpc_layer != NULL && query->rpc_layer[0] != '\0')
        rpc_layer = query->rpc_layer;
    if (query->task_type != NULL && query->has_task_id)
        rc = muster_cluster_spec_task_address(own->cluster_spec, query->task_type, query->task_id,
                                              &address, &resolve->error);
    if (rc != MUSTER_OK)
        return rc;
    return muster_master_url_format(own->resolver.env->mem, rpc_layer, address, &resolve->master,
                                    &resolve->error);
}

static void static_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct static_resolver *own = of(resolver);
    enum muster_rc rc = MUSTER_OK;

    switch (resolve->what) {
    case MUSTER_RESOLVE_CLUSTER_SPEC:
        resolve->cluster_spec = muster_cluster_spec_ref(own->cluster_spec);
        break;
    case MUSTER_RESOLVE_MASTER:
        rc = find_master(own, resolve);
        break;
    case MUSTER_RESOLVE_NUM_ACCELERATORS:
        resolve->accelerators = own->accelerators;
        break;
    }
    muster_resolve_finish(resolve, rc);
}

static void static_close(struct muster_resolver *resolver)
{
    struct static_resolver *own = of(resolver);
    struct muster_mem *mem = resolver->env->mem;

    muster_resolver_fini(resolver);
    muster_cluster_spec_unref(own->cluster_spec);
    muster_mem_free(mem, own->master);
    muster_mem_free(mem, own);
}

static const struct muster_resolver_ops static_ops = {
    .name = "static",
    .start = static_start,
    .close = static_close,
};

enum muster_rc muster_static_resolver_open(struct muster_env *env,
                                           const struct muster_static_resolver_options *options,
                                           struct muster_resolver **ret_resolver,
                                           struct muster_error *ret_error)
{
    struct static_resolver *own;

    if (options->cluster_spec == NULL || options->master == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a static resolver needs a cluster and a master ('' for none)");
    own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));
    if (own == NULL)
        goto fail;
    own->master = muster_mem_strdup(env->mem, options->master);
    if (own->master == NULL ||
        muster_resolver_init(&own->resolver, env, &static_ops, &options->common) != MUSTER_OK)
        goto fail_own;
    own->cluster_spec = muster_cluster_spec_ref(options->cluster_spec);
    own->accelerators = options->accelerators;
    *ret_resolver = &own->resolver;
    return MUSTER_OK;
fail_own:
    muster_mem_free(env->mem, own->master);
    muster_mem_free(env->mem, own);
fail:
    return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a resolver");
}

/* The URI. */

/* One "job=address,address" of a static URI. Cuts the text at its separators. */
static enum muster_rc add_job(struct muster_cluster_spec_builder *builder, char *text,
                              struct muster_error *ret_error)
{
    char *addresses = strchr(text, '=');
    int32_t index = 0;
    char *rest = NULL;

    if (addresses == NULL || addresses == text)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "'%s' is not of the form job=address,address", text);
    *addresses = '\0';
    addresses++;
    muster_cluster_spec_builder_add_job(builder, text);
    for (char *address = strtok_r(addresses, ",", &rest); address != NULL;
         address = strtok_r(NULL, ",", &rest))
        muster_cluster_spec_builder_add_task(builder, index++, address);
    return MUSTER_OK;
}

/* "worker=a:1,b:1;ps=c:1" */
static enum muster_rc parse_short(struct muster_mem *mem, const char *text,
                                  struct muster_cluster_spec **ret_spec,
                                  struct muster_error *ret_error)
{
    struct muster_cluster_spec_builder builder;
    char *copy = muster_mem_strdup(mem, text);
    enum muster_rc rc = MUSTER_OK;
    char *rest = NULL;

    if (copy == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a cluster");
    muster_cluster_spec_builder_init(&builder, mem, false);
    for (char *job = strtok_r(copy, ";", &rest); job != NULL && rc == MUSTER_OK;
         job = strtok_r(NULL, ";", &rest))
        rc = add_job(&builder, job, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_cluster_spec_build(&builder, ret_spec);
    muster_cluster_spec_builder_fini(&builder);
    muster_mem_free(mem, copy);
    return rc;
}

enum muster_rc muster_static_resolver_open_uri(struct muster_env *env, const char *rest,
                                               const struct muster_resolver_options *options,
                                               struct muster_resolver **ret_resolver,
                                               struct muster_error *ret_error)
{
    struct muster_static_resolver_options own = {.common = *options, .master = ""};
    enum muster_rc rc;

    if (rest[0] == '{')
        rc = muster_cluster_spec_parse(env->mem, rest, strlen(rest), &own.cluster_spec, ret_error);
    else
        rc = parse_short(env->mem, rest, &own.cluster_spec, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (own.common.environment == NULL)
        own.common.environment = "";
    rc = muster_static_resolver_open(env, &own, ret_resolver, ret_error);
    muster_cluster_spec_unref(own.cluster_spec);
    return rc;
}
