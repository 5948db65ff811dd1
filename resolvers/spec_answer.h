/* Answers out of a cluster description, for resolvers that find nothing but that. */
#ifndef MUSTER_RESOLVERS_SPEC_ANSWER_H
#define MUSTER_RESOLVERS_SPEC_ANSWER_H

#include <muster/resolver.h>

/**
 * What the question asks for, out of spec. MASTER: the address of the task that is asked for, else of
 * the resolver's own, else `master` ("" is local); its rpc_layer, else the resolver's. NUM_ACCELERATORS:
 * devices of that task, or of all.
 *
 * Owns:    borrows spec; fills resolve's results.
 * Errors:  NOT_FOUND (unknown job or task), RESOURCE_EXHAUSTED, and those of the resolver's properties.
 */
MUSTER_MUST_CHECK enum muster_rc muster_spec_answer(struct muster_resolve *resolve,
                                                    struct muster_cluster_spec *spec,
                                                    const char *master);

#endif
