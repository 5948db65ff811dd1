/* An answer made of a cluster that a platform has listed. */
#ifndef MUSTER_RESOLVERS_CLUSTER_ANSWER_H
#define MUSTER_RESOLVERS_CLUSTER_ANSWER_H

#include <muster/resolver.h>

/**
 * Fill in the result that resolve asks for, from the cluster: the cluster itself; the master of the task
 * asked for, or else of the resolver's own, "" when type or id is not known; the accelerators, where
 * there is a master, of the task asked for, or else of all. muster_resolve_finish is the
 * caller's next step.
 *
 * Owns:    takes a reference of spec.
 * Errors:  NOT_FOUND: job or task unknown; RESOURCE_EXHAUSTED.
 * Source:  TensorFlow's KubernetesClusterResolver.master, GCEClusterResolver.master
 */
MUSTER_MUST_CHECK enum muster_rc muster_resolve_answer_cluster(struct muster_resolve *resolve,
                                                               struct muster_cluster_spec *spec);

/** The devices of the task asked for, or else of the resolver's own, where type and id are known;
 * else all. Errors: those of muster_resolver_count_devices, and of the resolver's task. */
MUSTER_MUST_CHECK enum muster_rc muster_resolve_answer_own_devices(struct muster_resolve *resolve);

/**
 * Begin a question that lists the platform's cluster: memory for its state, all zero, kept in
 * resolve->impl until muster_resolve_end. NULL: the question is finished already, because the master
 * of a task without type or id, which is the local one, "", needs no listing, nor do its
 * accelerators, or for lack of memory.
 *
 * Units:   bytes of the state.
 * Owns:    borrowed by the caller until muster_resolve_end.
 */
void *muster_resolve_begin(struct muster_resolve *resolve, size_t bytes);

/** Free the state and finish the question with rc; results and error are set before. */
void muster_resolve_end(struct muster_resolve *resolve, enum muster_rc rc);

#endif
