/* Openers of resolvers by URI, one per scheme; the table is in resolvers/open. */
#ifndef MUSTER_RESOLVERS_SCHEMES_H
#define MUSTER_RESOLVERS_SCHEMES_H

#include <muster/resolver.h>

/** Open a resolver from the text after the colon of its URI. Gives. */
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

/** A union opens its members by their own URIs: with open_member, which is muster_resolver_open. */
MUSTER_MUST_CHECK enum muster_rc muster_union_resolver_open_uri(
    struct muster_env *env, const char *rest, const struct muster_resolver_options *options,
    muster_scheme_open_fn *open_member, struct muster_resolver **ret_resolver,
    struct muster_error *ret_error);

#endif
