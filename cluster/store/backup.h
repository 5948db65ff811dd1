/* A consistent copy of a store that goes on serving, made a few pages at a time. */
#ifndef MUSTER_CLUSTER_REGISTRY_BACKUP_H
#define MUSTER_CLUSTER_REGISTRY_BACKUP_H

#include "cluster/store/store.h"

struct muster_registry_backup;

/** Into a file of its own beside the store's, which goes with it. Borrows store until close. Gives.
 * Errors: RESOURCE_EXHAUSTED, PERMISSION_DENIED, UNAVAILABLE. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_backup_open(
    struct muster_mem *mem, struct muster_registry_store *store,
    struct muster_registry_backup **ret_backup, struct muster_error *ret_error);
/** NULL is accepted. */
void muster_registry_backup_close(struct muster_registry_backup *backup);
/** Copy some pages more; what is written meanwhile is copied, too. No transaction may be open. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_backup_step(struct muster_registry_backup *backup,
                                                             bool *ret_is_done);
/** The size of a copy that is done. */
uint64_t muster_registry_backup_bytes(const struct muster_registry_backup *backup);
MUSTER_MUST_CHECK enum muster_rc muster_registry_backup_read(
    const struct muster_registry_backup *backup, uint64_t offset, void *bytes, size_t size);

#endif
