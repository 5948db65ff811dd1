/* Helpers of all platforms beyond the public interface. */
#ifndef MUSTER_RESOLVERS_RESOLVER_INTERNAL_H
#define MUSTER_RESOLVERS_RESOLVER_INTERNAL_H

#include <muster/resolver.h>

/**
 * Count the resolver's devices by kind, CPUs aside: those of the task when both its type and id are
 * given, else all (TensorFlow's ClusterResolver.num_accelerators, which also counts /task:11 for
 * task 1). Without a list of devices, the GPUs of this machine are those of the resolver's own
 * task. Errors: RESOURCE_EXHAUSTED: more kinds than there is room for.
 */
MUSTER_MUST_CHECK enum muster_rc muster_resolver_count_devices(
    struct muster_resolver *resolver, const char *task_type, const int64_t *task_id,
    struct muster_accelerators *ret_accelerators, struct muster_error *ret_error);

/** A copy of text as a property of the resolver. Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_resolver_give_text(struct muster_resolver *resolver,
                                                           const char *text, char **ret_text,
                                                           struct muster_error *ret_error);

/** The rpc_layer of a master: the question's, unless it is missing or empty, else the resolver's
 * own (TensorFlow: `rpc_layer or self.rpc_layer`). Borrowed; NULL: none. */
const char *muster_resolve_rpc_layer(const struct muster_resolve *resolve);

/** Whether a watch asks this question: only then may the platform answer from what it remembers. */
bool muster_resolve_is_watch(const struct muster_resolve *resolve);

#endif
