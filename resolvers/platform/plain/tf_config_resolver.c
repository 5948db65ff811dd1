/* The cluster of the variable TF_CONFIG (TensorFlow's TFConfigClusterResolver; "Multi-worker
 * training with Keras" shows the variable). Unset, it is an empty cluster; set to "", it is
 * malformed JSON and an error, as in TensorFlow. Members that nobody reads are ignored. */
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/plain/config_resolver.h"
#include "resolvers/platform/schemes.h"

#include <string.h>

#define VARIABLE "TF_CONFIG"

static enum muster_rc read_config(struct muster_resolver *resolver, struct muster_json **ret_config,
                                  struct muster_error *ret_error)
{
    const char *text = muster_vars_get(resolver->env->vars, VARIABLE);
    struct muster_json *config = NULL;
    struct muster_error bad;

    *ret_config = NULL;
    if (text == NULL)
        return MUSTER_OK;
    if (strlen(text) > MUSTER_CLUSTER_SPEC_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                VARIABLE " is longer than %zu bytes",
                                MUSTER_CLUSTER_SPEC_BYTES_MAX);
    if (muster_json_parse(text, strlen(text), &config, &bad) != MUSTER_OK)
        return muster_error_set(ret_error, bad.rc, VARIABLE ": %s (correct it, or unset it)",
                                bad.text);
    if (muster_json_kind(config) != MUSTER_JSON_OBJECT) {
        muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                         VARIABLE " must be an object with 'cluster' and 'task', got %s",
                         muster_json_kind_name(config));
        muster_json_free(config);
        return MUSTER_INVALID_ARGUMENT;
    }
    *ret_config = config;
    return MUSTER_OK;
}

static const struct muster_config_source tf_config_source = {
    .ops = MUSTER_CONFIG_OPS("tf_config"),
    .variable = VARIABLE,
    .cluster_source = VARIABLE ".cluster",
    .task_source = VARIABLE ".task",
    .master_source = VARIABLE ".session_master, or .cluster at .task",
    .read = read_config,
};

enum muster_rc muster_tf_config_resolver_open(struct muster_env *env,
                                              const struct muster_resolver_options *options,
                                              struct muster_resolver **ret_resolver,
                                              struct muster_error *ret_error)
{
    static const struct muster_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_config_resolver *own;
    enum muster_rc rc =
        muster_config_resolver_open(env, &tf_config_source, options, &own, ret_error);

    if (rc == MUSTER_OK)
        *ret_resolver = &own->resolver;
    return rc;
}

enum muster_rc muster_tf_config_resolver_open_uri(struct muster_env *env, const char *rest,
                                                  const struct muster_resolver_options *options,
                                                  struct muster_resolver **ret_resolver,
                                                  struct muster_error *ret_error)
{
    struct tf_config_uri_values {
        struct muster_resolver_options common;
    } values = {*options};
    static const struct muster_uri_row rows[] = {
        MUSTER_URI_COMMON(struct tf_config_uri_values, common)};
    static const struct muster_uri_table table = {"tf_config", rows,
                                                  sizeof(rows) / sizeof(rows[0])};
    struct muster_uri_options texts = {.mem = env->mem};
    enum muster_rc rc = muster_uri_options_parse(&texts, rest, &table, &values, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_tf_config_resolver_open(env, &values.common, ret_resolver, ret_error);
    muster_uri_options_fini(&texts);
    return rc;
}
