/* A resolver over JSON as TF_CONFIG holds it: {"cluster": …, "task": {"type", "index"}, …}. */
#ifndef MUSTER_RESOLVERS_CONFIG_RESOLVER_H
#define MUSTER_RESOLVERS_CONFIG_RESOLVER_H

#include <muster/json.h>
#include <muster/resolver.h>

/** Where the JSON comes from. Static. */
struct muster_config_source {
    struct muster_resolver_ops ops; /* MUSTER_CONFIG_OPS(name) */
    const char *variable;           /* for error texts */
    const char *cluster_source;     /* of the facts, for people */
    const char *task_source;
    const char *master_source;
    /** *ret_config: an object, or NULL where there is none. Gives. */
    enum muster_rc (*read)(struct muster_resolver *resolver, struct muster_json **ret_config,
                           struct muster_error *ret_error);
};

struct muster_config_resolver {
    struct muster_resolver resolver;
    const struct muster_config_source *source;
    uint16_t port; /* of the source */
};

void muster_config_resolver_start(struct muster_resolver *resolver, struct muster_resolve *resolve);
enum muster_rc muster_config_resolver_task_type(struct muster_resolver *resolver, char **ret_text,
                                                struct muster_error *ret_error);
enum muster_rc muster_config_resolver_task_id(struct muster_resolver *resolver, bool *ret_is_set,
                                              int64_t *ret_id, struct muster_error *ret_error);
enum muster_rc muster_config_resolver_rpc_layer(struct muster_resolver *resolver, char **ret_text,
                                                struct muster_error *ret_error);
const char *muster_config_resolver_source(struct muster_resolver *resolver, enum muster_fact fact);
void muster_config_resolver_close(struct muster_resolver *resolver);

#define MUSTER_CONFIG_OPS(text)                                                                    \
    {                                                                                              \
        .name = (text), .start = muster_config_resolver_start,                                     \
        .task_type = muster_config_resolver_task_type, .task_id = muster_config_resolver_task_id,  \
        .rpc_layer = muster_config_resolver_rpc_layer, .source = muster_config_resolver_source,    \
        .close = muster_config_resolver_close,                                                     \
    }

/** Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_config_resolver_open(
    struct muster_env *env, const struct muster_config_source *source,
    const struct muster_resolver_options *options, struct muster_config_resolver **ret_resolver,
    struct muster_error *ret_error);

#endif
