/* What is different between two descriptions of one cluster, task by task. */
#ifndef MUSTER_CLUSTER_DIFF_H
#define MUSTER_CLUSTER_DIFF_H

#include <muster/base.h>
#include <muster/cluster_spec.h>

MUSTER_BEGIN

enum muster_cluster_change_kind {
    MUSTER_CLUSTER_ADDED,
    MUSTER_CLUSTER_REMOVED,
    MUSTER_CLUSTER_MOVED, /* another address */
};

/** One task that is not as before. Texts belong to the two descriptions. */
struct muster_cluster_change {
    enum muster_cluster_change_kind kind;
    int32_t index;
    const char *job;
    const char *before; /* address; NULL: added */
    const char *after;  /* address; NULL: removed */
};

/** Changes by job name, then index. Jobs without tasks make no change. */
struct muster_cluster_diff {
    size_t added_count;
    size_t removed_count;
    size_t moved_count;
    size_t change_count;
    struct muster_cluster_change *changes;
    struct muster_mem *mem; /* private */
};

/** `before` NULL: nothing was known, every task is added. Borrows both descriptions until fini.
 * Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_cluster_diff_init(
    struct muster_cluster_diff *diff, struct muster_mem *mem,
    const struct muster_cluster_spec *before, const struct muster_cluster_spec *after);
MUSTER_API void muster_cluster_diff_fini(struct muster_cluster_diff *diff);

MUSTER_END

#endif
