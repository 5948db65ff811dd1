/* The registry of a process that trains alone: in its own memory, on its own loop. */
#ifndef MUSTER_TRAINING_LOCAL_REGISTRY_H
#define MUSTER_TRAINING_LOCAL_REGISTRY_H

#include <muster/address.h>
#include <muster/env.h>
#include <muster/registry_server.h>

/** All zero: not open. */
struct muster_local_registry {
    struct muster_env *env;
    struct muster_registry_store *store;
    struct muster_registry_server *server;
    struct muster_vars vars; /* those of env, less those that name another registry */
    struct muster_vars *outer_vars;
    bool is_closed;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
};

/** Serve at endpoint, a free port of 127.0.0.1. From here to close env's variables have none that tell a
 * member of a cluster which registry to use, where to listen, and how many others to wait for. Borrows
 * env until close. Errors as muster_registry_server_open. */
MUSTER_MUST_CHECK enum muster_rc muster_local_registry_open(struct muster_local_registry *local,
                                                            struct muster_env *env,
                                                            struct muster_error *ret_error);
/** Stop serving; is_closed becomes true in a later turn. Clients are closed before. */
void muster_local_registry_stop(struct muster_local_registry *local);
/** Once is_closed is true, or where nothing was opened. */
void muster_local_registry_free(struct muster_local_registry *local);

#endif
