/* A fixed cluster (TensorFlow's SimpleClusterResolver): the caller's description, or a URI's. The
 * platform is never asked, so answers are ready at once, and a watch reports the cluster once. */
#include "resolvers/core/resolver_internal.h"
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/schemes.h"
#include "resolvers/spec/task_address.h"

#include <string.h>

struct static_resolver {
    struct muster_resolver resolver;
    struct muster_cluster_spec *cluster_spec;
    char *master;
    struct muster_accelerators accelerators;
    bool counts_devices; /* opened by a URI */
};

static struct static_resolver *static_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct static_resolver, resolver);
}

/* The address of a task that is named in full, else the stored master. */
static enum muster_rc find_master(struct static_resolver *own, struct muster_resolve *resolve)
{
    const struct muster_task_query *query = &resolve->query;
    const char *address = own->master;
    enum muster_rc rc = MUSTER_OK;

    if (query->task_type != NULL && query->has_task_id)
        rc = muster_cluster_spec_task_address(own->cluster_spec, query->task_type, query->task_id,
                                              &address, &resolve->error);
    if (rc != MUSTER_OK)
        return rc;
    return muster_master_url_format(own->resolver.env->mem, muster_resolve_rpc_layer(resolve),
                                    address, &resolve->master, &resolve->error);
}

/* The count given at open; a URI cannot give one, so a resolver opened by a URI counts the devices
 * of this process. */
static enum muster_rc find_accelerators(struct static_resolver *own, struct muster_resolve *resolve)
{
    const struct muster_task_query *query = &resolve->query;

    resolve->accelerators = own->accelerators;
    if (!own->counts_devices)
        return MUSTER_OK;
    return muster_resolver_count_devices(&own->resolver, query->task_type,
                                         query->has_task_id ? &query->task_id : NULL,
                                         &resolve->accelerators, &resolve->error);
}

static void static_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct static_resolver *own = static_of(resolver);
    enum muster_rc rc = MUSTER_OK;

    switch (resolve->what) {
    case MUSTER_RESOLVE_CLUSTER_SPEC:
        resolve->cluster_spec = muster_cluster_spec_ref(own->cluster_spec);
        break;
    case MUSTER_RESOLVE_MASTER:
        rc = find_master(own, resolve);
        break;
    case MUSTER_RESOLVE_NUM_ACCELERATORS:
        rc = find_accelerators(own, resolve);
        break;
    }
    muster_resolve_finish(resolve, rc);
}

static void static_close(struct muster_resolver *resolver)
{
    struct static_resolver *own = static_of(resolver);
    struct muster_mem *mem = resolver->env->mem;

    muster_resolver_fini(resolver);
    muster_cluster_spec_unref(own->cluster_spec);
    muster_mem_free(mem, own->master);
    muster_mem_free(mem, own);
}

static const char *static_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    bool is_counted = fact == MUSTER_FACT_NUM_ACCELERATORS && static_of(resolver)->counts_devices;

    return is_counted ? "devices of this process" : NULL;
}

static const struct muster_resolver_ops static_ops = {
    .name = "static",
    .start = static_start,
    .source = static_source,
    .close = static_close,
};

enum muster_rc muster_static_resolver_open(struct muster_env *env,
                                           const struct muster_static_resolver_options *options,
                                           struct muster_resolver **ret_resolver,
                                           struct muster_error *ret_error)
{
    static const struct muster_static_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    struct static_resolver *own;

    if (options->cluster_spec == NULL || options->master == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a static resolver needs cluster_spec and master (\"\" for none): "
                                "set both in its options");
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

struct static_uri_values {
    struct muster_resolver_options common;
};

static const struct muster_uri_row option_rows[] = {
    MUSTER_URI_COMMON(struct static_uri_values, common)};
static const struct muster_uri_table option_table = {"static", option_rows,
                                                     sizeof(option_rows) / sizeof(option_rows[0])};

/* Catch options that stand among the jobs: "task_type=worker" would be read as a job. */
static enum muster_rc check_job(const char *text, struct muster_error *ret_error)
{
    size_t length = strcspn(text, "=");

    if (strchr(text, '&') != NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "'%.100s' is not of the form job=address,address: options stand "
                                "after a '?', as in static:worker=a:1?task_type=worker&task_id=0",
                                text);
    for (size_t i = 0; i < option_table.row_count; i++) {
        const char *name = option_rows[i].name;

        if (strlen(name) == length && memcmp(name, text, length) == 0)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "%s is an option, not a job: options come after a '?', as in "
                                    "static:worker=a:1?task_type=worker&task_id=0",
                                    name);
    }
    return MUSTER_OK;
}

/* One "job=address,address" of a static URI. Cuts the text at its separators. */
static enum muster_rc add_job(struct muster_cluster_spec_builder *builder, char *text,
                              struct muster_error *ret_error)
{
    char *addresses = strchr(text, '=');
    int32_t index = 0;
    char *rest = NULL;
    enum muster_rc rc = check_job(text, ret_error);

    if (rc != MUSTER_OK)
        return rc;
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

/* "worker=a:1,b:1;ps=c:1": the short form for a command line; tasks are numbered as they stand. */
static enum muster_rc parse_short(struct muster_mem *mem, const char *text, size_t length,
                                  struct muster_cluster_spec **ret_spec,
                                  struct muster_error *ret_error)
{
    struct muster_cluster_spec_builder builder;
    char *copy = muster_mem_strndup(mem, text, length);
    enum muster_rc rc = MUSTER_OK;
    char *rest = NULL;

    if (copy == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a cluster");
    muster_cluster_spec_builder_init(&builder, mem, false);
    for (char *job = strtok_r(copy, ";", &rest); job != NULL && rc == MUSTER_OK;
         job = strtok_r(NULL, ";", &rest))
        rc = add_job(&builder, job, ret_error);
    if (rc == MUSTER_OK && muster_cluster_spec_build(&builder, ret_spec) != MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a cluster");
    muster_cluster_spec_builder_fini(&builder);
    muster_mem_free(mem, copy);
    return rc;
}

/* The JSON form is that of TF_CONFIG's "cluster", which can also give tasks by index. */
static enum muster_rc parse_cluster(struct muster_mem *mem, const char *text, size_t length,
                                    struct muster_cluster_spec **ret_spec,
                                    struct muster_error *ret_error)
{
    if (text[0] == '{')
        return muster_cluster_spec_parse(mem, text, length, ret_spec, ret_error);
    return parse_short(mem, text, length, ret_spec, ret_error);
}

enum muster_rc muster_static_resolver_open_uri(struct muster_env *env, const char *rest,
                                               const struct muster_resolver_options *options,
                                               struct muster_resolver **ret_resolver,
                                               struct muster_error *ret_error)
{
    struct muster_static_resolver_options own = {.master = ""};
    struct static_uri_values values = {*options};
    struct muster_uri_options texts = {.mem = env->mem};
    /* A '?' inside of the JSON begins no options. */
    const char *question_mark = rest[0] == '{' ? muster_uri_find(rest, "?") : strchr(rest, '?');
    size_t length = question_mark != NULL ? (size_t)(question_mark - rest) : strlen(rest);
    enum muster_rc rc = parse_cluster(env->mem, rest, length, &own.cluster_spec, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_uri_options_parse(&texts, rest + length, &option_table, &values, ret_error);
    own.common = values.common;
    if (own.common.environment == NULL)
        own.common.environment = "";
    if (rc == MUSTER_OK)
        rc = muster_static_resolver_open(env, &own, ret_resolver, ret_error);
    if (rc == MUSTER_OK)
        static_of(*ret_resolver)->counts_devices = true;
    muster_uri_options_fini(&texts);
    muster_cluster_spec_unref(own.cluster_spec);
    return rc;
}
