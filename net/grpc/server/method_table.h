/* A hash table from the paths of requests to the methods that serve them. */
#ifndef MUSTER_NET_RPC_METHOD_TABLE_H
#define MUSTER_NET_RPC_METHOD_TABLE_H

#include <muster/mem.h>
#include <muster/rpc.h>

struct muster_rpc_series;

struct muster_rpc_method_slot {
    const struct muster_rpc_method *method; /* NULL: free */
    void *service;
    struct muster_rpc_series *series; /* net/grpc/tally.h; NULL: not counted */
    uint32_t *open_count;             /* calls open now; NULL: the method does not limit them */
    uint64_t hash;
    size_t path_bytes;
};

/** Open addressing, never more than half full. All zero but mem is an empty table. */
struct muster_rpc_method_table {
    struct muster_mem *mem;
    struct muster_rpc_method_slot *slots;
    size_t capacity;
    size_t count;
};

/** Room for `more` methods: adding those that are new and have no limit of calls then succeeds.
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_method_table_reserve(
    struct muster_rpc_method_table *table, size_t more);
/** Errors: ALREADY_EXISTS (nothing is added), RESOURCE_EXHAUSTED. Borrows methods. */
MUSTER_MUST_CHECK enum muster_rc muster_rpc_method_table_add(
    struct muster_rpc_method_table *table, const struct muster_rpc_method *methods, size_t count,
    void *service);
/** The method at a path, or NULL. Borrowed until a method is added. */
const struct muster_rpc_method_slot *muster_rpc_method_table_find(
    const struct muster_rpc_method_table *table, const char *path, size_t path_bytes);
/** Count calls of the method at path, which is there. */
void muster_rpc_method_table_count(struct muster_rpc_method_table *table, const char *path,
                                   struct muster_rpc_series *series);
void muster_rpc_method_table_fini(struct muster_rpc_method_table *table);

#endif
