/* Clusters from JSON and from other clusters, and numbers as Python reads them: for the resolvers.
 * */
#ifndef MUSTER_RESOLVERS_SPEC_INTERNAL_H
#define MUSTER_RESOLVERS_SPEC_INTERNAL_H

#include <muster/cluster_spec.h>
#include <muster/json.h>

/** A cluster description of a JSON value; `what` names the value in errors ("TF_CONFIG.cluster").
 * Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_cluster_spec_from_json(
    struct muster_mem *mem, const struct muster_json *value, const char *what,
    struct muster_cluster_spec **ret_spec, struct muster_error *ret_error);

/**
 * The jobs of all clusters. Tasks of a job that several have stand one after the other; where one
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

/** A whole decimal number as Python's int() reads it: blanks around, a sign, single '_' between
 * digits. */
bool muster_integer_parse(const char *text, int64_t *ret_value);

#endif
