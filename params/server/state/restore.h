/* A cut from which a server's fresh memory begins. */
#ifndef MUSTER_PARAMS_SERVER_RESTORE_H
#define MUSTER_PARAMS_SERVER_RESTORE_H

#include "params/server/core/server_internal.h"

struct muster_params_restore;
/** The map can come into force. Takes map. */
typedef void muster_params_map_ready_fn(struct muster_params_server *server,
                                        struct muster_params_map *map);

struct muster_params_restore_options {
    const char *folder; /* of the cut; NULL: nothing is to be restored. Copied */
    muster_params_failed_fn *failed;
    muster_params_map_ready_fn *ready;
    muster_params_server_fn *restored; /* may be NULL */
};

/**
 * Check all files of the cut. A server that is alone has their rows when this returns. One of several
 * reads those of its shards once the job's first map has come; then restored is called and ready gets the
 * map, or failed is called and no map comes into force. Memory that has a part of the cut gets all of it;
 * where all of it has been restored before, nothing happens.
 *
 * Owns:    muster_params_restore_close frees what this has opened.
 * Errors:  those of muster_params_snapshot_restore; FAILED_PRECONDITION (the memory has tables that are
 *          not of a cut, or without a folder a part of a cut).
 */
MUSTER_MUST_CHECK enum muster_rc
muster_params_restore_open(struct muster_params_server *server,
                           const struct muster_params_restore_options *options,
                           struct muster_error *ret_error);
/** The cut that is to be restored, and a hash of what it has; 0 and 0: there is none. */
void muster_params_restore_cut(const struct muster_params_server *server, uint64_t *ret_cut,
                               uint32_t *ret_hash);
/** Nothing can be restored: failed is called, and no map comes into force. */
void muster_params_restore_refuse(struct muster_params_server *server,
                                  const struct muster_error *error);
/** Idempotent. Neither ready nor failed is called any more. */
void muster_params_restore_close(struct muster_params_server *server);
/** True: the map comes into force when the rows are there, and map is taken. False: it is the
 * caller's. */
bool muster_params_restore_delays(struct muster_params_server *server,
                                  struct muster_params_map *map);

#endif
