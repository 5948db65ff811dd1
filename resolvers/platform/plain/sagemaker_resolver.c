/* The cluster of a SageMaker training job, from SM_HOSTS and SM_CURRENT_HOST (TensorFlow's
 * SageMakerClusterResolver). */
#include <muster/platforms.h>

#include "resolvers/core/uri_options.h"
#include "resolvers/platform/plain/config_resolver.h"
#include "resolvers/platform/plain/sagemaker_hosts.h"
#include "resolvers/platform/schemes.h"

#include <string.h>

#define HOSTS   "SM_HOSTS"
#define CURRENT "SM_CURRENT_HOST"

static enum muster_rc read_variable(struct muster_resolver *resolver, const char *name,
                                    const char **ret_text, struct muster_error *ret_error)
{
    *ret_text = muster_vars_get(resolver->env->vars, name);
    if (*ret_text != NULL)
        return MUSTER_OK;
    return muster_error_set(
        ret_error, MUSTER_FAILED_PRECONDITION,
        "%s is not set: this is not a SageMaker training container; set %s and %s, "
        "or name another resolver",
        name, HOSTS, CURRENT);
}

/* Both variables are set in every training container (SageMaker Training Toolkit); one that is
 * missing means another place. */
static enum muster_rc read_config(struct muster_resolver *resolver, struct muster_json **ret_config,
                                  struct muster_error *ret_error)
{
    struct muster_config_resolver *own =
        MUSTER_CONTAINER_OF(resolver, struct muster_config_resolver, resolver);
    struct muster_sagemaker_hosts hosts = {.port = own->port};
    enum muster_rc rc = read_variable(resolver, HOSTS, &hosts.hosts, ret_error);

    if (rc == MUSTER_OK)
        rc = read_variable(resolver, CURRENT, &hosts.current, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    return muster_sagemaker_hosts_parse(resolver->env->mem, &hosts, ret_config, ret_error);
}

static const struct muster_config_source sagemaker_source = {
    .ops = MUSTER_CONFIG_OPS("sagemaker"),
    .variable = HOSTS,
    .cluster_source = HOSTS,
    .task_source = CURRENT " in " HOSTS,
    .master_source = HOSTS " at " CURRENT,
    .read = read_config,
};

enum muster_rc muster_sagemaker_resolver_open(
    struct muster_env *env, const struct muster_sagemaker_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error)
{
    static const struct muster_sagemaker_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_config_resolver *own;
    enum muster_rc rc =
        muster_config_resolver_open(env, &sagemaker_source, &options->common, &own, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    own->port = options->port != 0 ? options->port : MUSTER_SAGEMAKER_PORT;
    *ret_resolver = &own->resolver;
    return MUSTER_OK;
}

enum muster_rc muster_sagemaker_resolver_open_uri(struct muster_env *env, const char *rest,
                                                  const struct muster_resolver_options *options,
                                                  struct muster_resolver **ret_resolver,
                                                  struct muster_error *ret_error)
{
    struct sagemaker_uri_values {
        struct muster_resolver_options common;
        int64_t port;
    } values = {*options, MUSTER_SAGEMAKER_PORT};
    static const struct muster_uri_row rows[] = {
        {"port", MUSTER_URI_NUMBER, offsetof(struct sagemaker_uri_values, port), 1, UINT16_MAX},
        MUSTER_URI_COMMON(struct sagemaker_uri_values, common),
    };
    static const struct muster_uri_table table = {"sagemaker", rows,
                                                  sizeof(rows) / sizeof(rows[0])};
    struct muster_uri_options texts = {.mem = env->mem};
    enum muster_rc rc = muster_uri_options_parse(&texts, rest, &table, &values, ret_error);
    struct muster_sagemaker_resolver_options own = {values.common, (uint16_t)values.port};

    if (rc == MUSTER_OK)
        rc = muster_sagemaker_resolver_open(env, &own, ret_resolver, ret_error);
    muster_uri_options_fini(&texts);
    return rc;
}
