/* An environment in which a command asks resolvers. */
#ifndef MUSTER_TOOL_RESOLVER_ENV_H
#define MUSTER_TOOL_RESOLVER_ENV_H

#include <muster/env.h>

/** With loop, variables, files, network and HTTP client. Gives. */
enum muster_rc resolver_env_open(struct muster_env **ret_env, struct muster_error *ret_error);
/** Resolvers are closed before. */
void resolver_env_close(struct muster_env *env);

#endif
