/* One question of a command to a resolver, in an environment of its own. */
#ifndef MUSTER_TOOL_RESOLVE_ASK_H
#define MUSTER_TOOL_RESOLVE_ASK_H

#include <muster/resolver.h>

/** The answer, while the resolver is open: reads from both what the command needs. Both are borrowed. */
typedef enum muster_rc resolve_read_fn(void *data, struct muster_resolver *resolver,
                                       const struct muster_cluster_spec *cluster,
                                       struct muster_error *ret_error);

/** Ask the resolver of `uri` for its cluster, within a minute, and let `read` read the answer. Returns
 * its code, or that of what failed before. */
enum muster_rc resolve_ask(const char *uri, resolve_read_fn *read, void *data,
                           struct muster_error *ret_error);
/** For `read`: the accelerators of this task. */
enum muster_rc resolve_ask_accelerators(struct muster_resolver *resolver,
                                        struct muster_accelerators *ret_accelerators,
                                        struct muster_error *ret_error);

#endif
