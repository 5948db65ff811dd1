/* The address at which a member listens, and the one at which the others reach it. */
#ifndef MUSTER_TRAINING_ADDRESS_H
#define MUSTER_TRAINING_ADDRESS_H

#include "cluster/node/member.h"
#include "training/place.h"

/**
 * Fill in node's listen, listen_port_last, is_listen_port_wish, reach and is_loopback_shared, for a
 * node whose registry is set. The address is that of MUSTER_LISTEN; else the resolver's own for this
 * task (under a launcher: MUSTER_TASK_ADDRESS); else the source address of a connection to the
 * registry, which is loopback only where the registry is on this host. Turns env's loop while names
 * are looked up, and until the registry's name is known, at most timeout_ns.
 *
 * Errors: INVALID_ARGUMENT, NOT_FOUND (MUSTER_LISTEN), UNAVAILABLE (no route to the registry, or its
 * name is not known); the text names culprit and remedy.
 */
MUSTER_MUST_CHECK enum muster_rc muster_training_find_address(
    struct muster_env *env, const struct muster_replica_place *place, uint64_t timeout_ns,
    struct muster_node_options *node, struct muster_error *ret_error);

#endif
