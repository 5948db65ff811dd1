/* Credentials that a file holds, of each kind that credentials_file.h can read. */
#ifndef MUSTER_NET_CREDENTIALS_EXCHANGE_H
#define MUSTER_NET_CREDENTIALS_EXCHANGE_H

#include <muster/credentials.h>

#include "net/auth/credentials_file.h"

/** Takes what file holds (also on failure). path and origin ("" or " (VARIABLE)") name it for
 * people. Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_credentials_exchange_open(
    struct muster_env *env, const char *path, const char *origin,
    struct muster_credentials_file *file, const struct muster_credentials_options *options,
    struct muster_credentials **ret_credentials);

#endif
