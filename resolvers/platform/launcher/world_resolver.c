/* A resolver for launchers of other frameworks, which give a process its rank, the size and at most
 * one address. The job is "worker"; addresses of other tasks are not known, so the cluster lacks
 * them. */
#include "resolvers/platform/launcher/world_resolver.h"

#include "resolvers/core/cluster_answer.h"
#include "resolvers/core/resolver_internal.h"
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/schemes.h"
#include "resolvers/spec/task_address.h"

#define JOB "worker"

struct world_resolver {
    struct muster_resolver resolver;
    const struct muster_world_source *source;
};

/* The variables, read anew each time; *ret_world is written only if all of them are valid. */
static enum muster_rc read_world(struct muster_resolver *resolver, struct muster_world *ret_world,
                                 struct muster_error *ret_error)
{
    struct muster_world world = {.rank_source = NULL};
    enum muster_rc rc = MUSTER_CONTAINER_OF(resolver, struct world_resolver, resolver)
                            ->source->read(resolver->env->vars, &world, ret_error);

    if (rc == MUSTER_OK)
        *ret_world = world;
    return rc;
}

/* The cluster has one task at most: task 0, if the coordinator's address is the one of rank 0. */
static enum muster_rc make_spec(struct muster_resolver *resolver, const struct muster_world *world,
                                struct muster_cluster_spec **ret_spec,
                                struct muster_error *ret_error)
{
    struct muster_cluster_spec_builder builder;
    enum muster_rc rc;

    muster_cluster_spec_builder_init(&builder, resolver->env->mem, false);
    if (world->coordinator_source != NULL && world->is_coordinator_first) {
        muster_cluster_spec_builder_add_job(&builder, JOB);
        muster_cluster_spec_builder_add_task(&builder, 0, world->coordinator);
    }
    rc = muster_cluster_spec_build(&builder, ret_spec);
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "no memory for a cluster");
    muster_cluster_spec_builder_fini(&builder);
    return rc;
}

/* A task named in full is looked up; for any other question the coordinator is the master. */
static enum muster_rc world_answer(struct muster_resolve *resolve, const struct muster_world *world,
                                   struct muster_cluster_spec *spec)
{
    const struct muster_task_query *query = &resolve->query;
    const char *layer = muster_resolve_rpc_layer(resolve);
    const char *address = "";

    if (resolve->what == MUSTER_RESOLVE_NUM_ACCELERATORS)
        return muster_resolve_answer_own_devices(resolve);
    if (resolve->what == MUSTER_RESOLVE_CLUSTER_SPEC)
        return muster_resolve_answer_cluster(resolve, muster_cluster_spec_ref(spec));
    if (query->task_type != NULL && query->has_task_id) {
        if (muster_cluster_spec_task_address(spec, query->task_type, query->task_id, &address,
                                             NULL) != MUSTER_OK)
            return muster_error_set(&resolve->error, MUSTER_NOT_FOUND,
                                    "'%s' does not tell the address of task %s:%lld",
                                    muster_resolver_name(resolve->resolver), query->task_type,
                                    (long long)query->task_id);
    } else if (world->coordinator_source != NULL) {
        address = world->coordinator;
    } else {
        layer = NULL;
    }
    return muster_master_url_format(resolve->resolver->env->mem, layer, address, &resolve->master,
                                    &resolve->error);
}

static void world_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct muster_cluster_spec *spec = NULL;
    struct muster_world world;
    enum muster_rc rc = read_world(resolver, &world, &resolve->error);

    if (rc == MUSTER_OK)
        rc = make_spec(resolver, &world, &spec, &resolve->error);
    if (rc == MUSTER_OK)
        rc = world_answer(resolve, &world, spec);
    muster_cluster_spec_unref(spec);
    muster_resolve_finish(resolve, rc);
}

/* Launchers know ranks but no jobs: a process with a rank is a worker. */
static enum muster_rc world_task_type(struct muster_resolver *resolver, char **ret_text,
                                      struct muster_error *ret_error)
{
    struct muster_world world;
    enum muster_rc rc = read_world(resolver, &world, ret_error);
    char *text = NULL;

    if (rc != MUSTER_OK)
        return rc;
    if (world.rank_source != NULL) {
        text = muster_mem_strdup(resolver->env->mem, JOB);
        if (text == NULL)
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    }
    *ret_text = text;
    return MUSTER_OK;
}

static enum muster_rc world_task_id(struct muster_resolver *resolver, bool *ret_is_set,
                                    int64_t *ret_id, struct muster_error *ret_error)
{
    struct muster_world world;
    enum muster_rc rc = read_world(resolver, &world, ret_error);

    if (rc == MUSTER_OK) {
        *ret_is_set = world.rank_source != NULL;
        *ret_id = world.rank;
    }
    return rc;
}

static enum muster_rc world_size(struct muster_resolver *resolver, bool *ret_is_set,
                                 uint32_t *ret_size, struct muster_error *ret_error)
{
    struct muster_world world;
    enum muster_rc rc = read_world(resolver, &world, ret_error);

    if (rc == MUSTER_OK) {
        *ret_is_set = world.size_source != NULL;
        *ret_size = world.size;
    }
    return rc;
}

static const char *world_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    struct muster_world world;

    if (read_world(resolver, &world, NULL) != MUSTER_OK)
        return NULL;
    switch (fact) {
    case MUSTER_FACT_CLUSTER_SPEC:
    case MUSTER_FACT_MASTER:
        return world.coordinator_source != NULL ? world.coordinator_source
                                                : "no variable tells an address";
    case MUSTER_FACT_TASK_TYPE:
        return resolver->task_type == NULL ? world.rank_source : NULL;
    case MUSTER_FACT_TASK_ID:
        return resolver->has_task_id ? NULL : world.rank_source;
    case MUSTER_FACT_WORLD_SIZE:
        return world.size_source;
    case MUSTER_FACT_NUM_ACCELERATORS:
        return "devices of this process";
    case MUSTER_FACT_RPC_LAYER:
        break;
    }
    return NULL;
}

static void world_close(struct muster_resolver *resolver)
{
    struct muster_mem *mem = resolver->env->mem;

    muster_resolver_fini(resolver);
    muster_mem_free(mem, MUSTER_CONTAINER_OF(resolver, struct world_resolver, resolver));
}

#define WORLD_OPS(text)                                                                            \
    {                                                                                              \
        .name = (text), .start = world_start, .task_type = world_task_type,                        \
        .task_id = world_task_id, .world_size = world_size, .source = world_source,                \
        .close = world_close,                                                                      \
    }

static const struct muster_world_source jax = {WORLD_OPS("jax"), muster_jax_world_read};
static const struct muster_world_source openmpi = {WORLD_OPS("openmpi"), muster_openmpi_world_read};
static const struct muster_world_source pmi = {WORLD_OPS("pmi"), muster_pmi_world_read};
static const struct muster_world_source torchrun = {WORLD_OPS("torchrun"),
                                                    muster_torchrun_world_read};

static enum muster_rc world_open(struct muster_env *env, const struct muster_world_source *source,
                                 const struct muster_resolver_options *options,
                                 struct muster_resolver **ret_resolver,
                                 struct muster_error *ret_error)
{
    struct world_resolver *own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));

    if (own == NULL ||
        muster_resolver_init(&own->resolver, env, &source->ops, options) != MUSTER_OK) {
        muster_mem_free(env->mem, own);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a resolver");
    }
    own->source = source;
    *ret_resolver = &own->resolver;
    return MUSTER_OK;
}

static enum muster_rc world_open_uri(struct muster_env *env, const char *rest,
                                     const struct muster_world_source *source,
                                     struct muster_resolver_options common,
                                     struct muster_resolver **ret_resolver,
                                     struct muster_error *ret_error)
{
    struct world_uri_values {
        struct muster_resolver_options common;
    } values = {common};
    static const struct muster_uri_row rows[] = {
        MUSTER_URI_COMMON(struct world_uri_values, common)};
    struct muster_uri_table table = {source->ops.name, rows, sizeof(rows) / sizeof(rows[0])};
    struct muster_uri_options texts = {.mem = env->mem};
    enum muster_rc rc = muster_uri_options_parse(&texts, rest, &table, &values, ret_error);

    if (rc == MUSTER_OK)
        rc = world_open(env, source, &values.common, ret_resolver, ret_error);
    muster_uri_options_fini(&texts);
    return rc;
}

#define OPEN_URI(launcher)                                                                         \
    enum muster_rc muster_##launcher##_resolver_open_uri(                                          \
        struct muster_env *env, const char *rest, const struct muster_resolver_options *options,   \
        struct muster_resolver **ret_resolver, struct muster_error *ret_error)                     \
    {                                                                                              \
        return world_open_uri(env, rest, &(launcher), *options, ret_resolver, ret_error);          \
    }

OPEN_URI(jax)
OPEN_URI(openmpi)
OPEN_URI(pmi)
OPEN_URI(torchrun)
