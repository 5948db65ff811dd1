/* Leases of the registry: rows that outlive the process, remaining time that does not. */
#ifndef MUSTER_CLUSTER_REGISTRY_LEASE_H
#define MUSTER_CLUSTER_REGISTRY_LEASE_H

#include <muster/env.h>
#include <muster/list.h>

#include "cluster/store/store.h"

/* The shortest time is that of etcd with its default election timeout (1.5 times 1 s, rounded up);
 * the longest is etcd's MaxLeaseTTL. The number of leases is bounded because each has a timer and a
 * row. */
#define MUSTER_LEASE_TTL_MIN_S 2
#define MUSTER_LEASE_TTL_MAX_S INT64_C(9000000000)
#define MUSTER_LEASES_MAX      (1u << 20)

struct muster_lease;
struct muster_leases;

/** The time of lease `id` is up: the owner revokes it (or it asks again after a second). */
typedef void muster_leases_expire_fn(struct muster_leases *leases, int64_t id);

struct muster_leases {
    void *data;
    muster_leases_expire_fn *on_expire;
    /* private */
    struct muster_env *env;
    struct muster_registry_store *store;
    struct muster_lease **buckets; /* by id */
    size_t bucket_count;           /* a power of two */
    size_t count;
    struct muster_list granted; /* by the open transaction; in the table, too */
    struct muster_list removed; /* by the open transaction; not in the table */
};

/** Load every lease of the store, each with its full time. Borrows env and store until fini. */
MUSTER_MUST_CHECK enum muster_rc muster_leases_init(struct muster_leases *leases,
                                                    struct muster_env *env,
                                                    struct muster_registry_store *store,
                                                    muster_leases_expire_fn *on_expire, void *data);
void muster_leases_fini(struct muster_leases *leases);

/** The store has committed: grants and removals up to here are for good. */
void muster_leases_committed(struct muster_leases *leases);
/** The store has rolled back: grants and removals since the last commit are undone. A lease that
 * comes back has its full time, others keep what they had left. Needs no memory. */
void muster_leases_rollback(struct muster_leases *leases);

bool muster_leases_has(const struct muster_leases *leases, int64_t id);

/**
 * id 0 picks a random one; a short ttl is raised to the minimum. Writes a row in the open
 * transaction.
 *
 * Errors: FAILED_PRECONDITION (id taken), OUT_OF_RANGE (ttl), RESOURCE_EXHAUSTED with etcd's words;
 * *ret_is_broken: the store failed.
 */
MUSTER_MUST_CHECK enum muster_rc muster_leases_grant(struct muster_leases *leases, int64_t ttl_s,
                                                     int64_t id, int64_t *ret_id,
                                                     int64_t *ret_ttl_s,
                                                     struct muster_error *ret_error,
                                                     bool *ret_is_broken);
/** Forget it here and delete its row in the open transaction; its keys are the caller's to delete
 * first. Errors: the store's. */
MUSTER_MUST_CHECK enum muster_rc muster_leases_remove(struct muster_leases *leases, int64_t id);

/** Full time again. Returns the granted seconds; 0: no such lease. */
int64_t muster_leases_renew(struct muster_leases *leases, int64_t id);
/** Whole seconds left and granted; false: no such lease. */
bool muster_leases_time_to_live(const struct muster_leases *leases, int64_t id, int64_t *ret_left_s,
                                int64_t *ret_granted_s);
/** All ids, in no order, to room for leases->count. */
void muster_leases_list(const struct muster_leases *leases, int64_t *ret_ids);

#endif
