/* What the files of resolvers/ share. */
#ifndef MUSTER_RESOLVERS_INTERNAL_H
#define MUSTER_RESOLVERS_INTERNAL_H

#include <muster/cluster_spec.h>
#include <muster/resolver.h>

#include <muster/json.h>

/** A cluster description of a JSON value; `what` names the value in errors ("TF_CONFIG.cluster").
 * Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_from_json(
    struct muster_mem *mem, const struct muster_json *value, const char *what,
    struct muster_cluster_spec **ret_spec, struct muster_error *ret_error);

/** "rpc_layer://address"; the address alone when rpc_layer is NULL or "" (TensorFlow's
 * format_master_url). Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_master_url_format(struct muster_mem *mem,
                                                          const char *rpc_layer,
                                                          const char *address, char **ret_url,
                                                          struct muster_error *ret_error);

/**
 * Count the resolver's devices by kind, CPUs aside: those of the task when both its type and id are
 * given, else all (TensorFlow's ClusterResolver.num_accelerators, which also counts /task:11 for
 * task 1). Where nobody lists devices, the GPUs of this machine are those of the resolver's own
 * task. Errors: RESOURCE_EXHAUSTED: more kinds than there is room for.
 */
MUSTER_MUST_CHECK enum muster_rc muster_resolver_count_devices(
    struct muster_resolver *resolver, const char *task_type, const int64_t *task_id,
    struct muster_accelerators *ret_accelerators, struct muster_error *ret_error);

/** A copy of text as a property of the resolver. Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_resolver_give_text(struct muster_resolver *resolver,
                                                           const char *text, char **ret_text,
                                                           struct muster_error *ret_error);

/** A whole decimal number as Python's int() reads it: blanks around, a sign, single '_' between
 * digits. */
bool muster_integer_parse(const char *text, int64_t *ret_value);

/**
 * The jobs of all clusters. Tasks of a job that several have stand one behind the other; where one
 * of them gives it by index, all keep their indices. Pure.
 *
 * Owns:    gives a reference.
 * Errors:  ALREADY_EXISTS names job and index that two of them have; RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_join(struct muster_mem *mem,
                                                          struct muster_cluster_spec *const *specs,
                                                          size_t spec_count,
                                                          struct muster_cluster_spec **ret_spec,
                                                          struct muster_error *ret_error);

/** The rpc_layer of a master: the question's, unless it is missing or empty, else the resolver's own
 * (TensorFlow: `rpc_layer or self.rpc_layer`). Borrowed; NULL: none. */
const char *muster_resolve_rpc_layer(const struct muster_resolve *resolve);

/** Is this the question of a watch? Only such may be answered "as before" by the platform. */
bool muster_resolve_is_watch(const struct muster_resolve *resolve);

/** Close members that no union has taken, NULL among them; those that were never asked go at once,
 * unless closing takes them time. Takes the members. */
void muster_union_members_discard(struct muster_resolver *const *members, size_t count);

/** Opens a resolver of what stands behind the colon of its URI. Gives. */
typedef enum muster_rc muster_scheme_open_fn(struct muster_env *env, const char *rest,
                                             const struct muster_resolver_options *options,
                                             struct muster_resolver **ret_resolver,
                                             struct muster_error *ret_error);

muster_scheme_open_fn muster_dns_resolver_open_uri;
muster_scheme_open_fn muster_file_resolver_open_uri;
muster_scheme_open_fn muster_jax_resolver_open_uri;
muster_scheme_open_fn muster_gce_resolver_open_uri;
muster_scheme_open_fn muster_kubernetes_resolver_open_uri;
muster_scheme_open_fn muster_openmpi_resolver_open_uri;
muster_scheme_open_fn muster_pmi_resolver_open_uri;
muster_scheme_open_fn muster_sagemaker_resolver_open_uri;
muster_scheme_open_fn muster_slurm_resolver_open_uri;
muster_scheme_open_fn muster_static_resolver_open_uri;
muster_scheme_open_fn muster_tf_config_resolver_open_uri;
muster_scheme_open_fn muster_torchrun_resolver_open_uri;
muster_scheme_open_fn muster_tpu_resolver_open_uri;
muster_scheme_open_fn muster_tpu_vm_resolver_open_uri;
muster_scheme_open_fn muster_union_resolver_open_uri;

#endif
