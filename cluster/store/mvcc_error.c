/* The three ways in which a request fails: refused (the client is told, nothing is lost), broken
 * (the store failed, and the open transaction is lost with it), and out of memory. The other mvcc
 * files report through these, so that is_broken is set in one place. */
#include "cluster/store/mvcc_internal.h"

enum muster_rc muster_mvcc_fail(struct muster_mvcc_run *run, enum muster_rc rc, const char *text)
{
    MUSTER_ASSERT(rc != MUSTER_OK);
    return muster_error_set(run->error, rc, "%s", text);
}

enum muster_rc muster_mvcc_break(struct muster_mvcc_run *run, enum muster_rc rc)
{
    MUSTER_ASSERT(rc != MUSTER_OK);
    run->is_broken = true;
    return muster_error_set(run->error, rc, "registry store: %s",
                            muster_registry_store_error(run->mvcc->store));
}

enum muster_rc muster_mvcc_no_memory(struct muster_mvcc_run *run)
{
    return muster_mvcc_fail(run, MUSTER_RESOURCE_EXHAUSTED,
                            "etcdserver: the answer or its working memory is too large");
}
