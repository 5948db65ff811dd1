/* Compares of transactions: which list of operations is taken. Every decision of the tree falls
 * before the first write, as in etcd (compareToPath of etcdserver/apply.go), so the writes of an
 * outer transaction do not change how an inner one decides. */
#include "cluster/store/mvcc_internal.h"

static bool compare_holds(int relation, int order)
{
    switch (relation) {
    case MUSTER_MVCC_EQUAL:
        return order == 0;
    case MUSTER_MVCC_GREATER:
        return order > 0;
    case MUSTER_MVCC_LESS:
        return order < 0;
    case MUSTER_MVCC_NOT_EQUAL:
        return order != 0;
    default:
        return true; /* as etcd answers a relation that it does not know */
    }
}

static int64_t number_of(int target, const struct muster_registry_record *record)
{
    switch (target) {
    case MUSTER_MVCC_COMPARE_VERSION:
        return record->version;
    case MUSTER_MVCC_COMPARE_CREATE:
        return record->create_revision;
    case MUSTER_MVCC_COMPARE_MOD:
        return record->mod_revision;
    case MUSTER_MVCC_COMPARE_LEASE:
        return record->lease;
    default:
        return 0;
    }
}

static enum muster_rc holds_for(struct muster_mvcc_run *run,
                                const struct muster_mvcc_compare *compare,
                                const struct muster_registry_record *record, bool *ret_holds)
{
    struct muster_registry_record full = *record;
    int64_t number = number_of(compare->target, record);
    enum muster_rc rc = MUSTER_OK;

    if (compare->target != MUSTER_MVCC_COMPARE_VALUE) {
        *ret_holds = compare_holds(compare->relation,
                                   number < compare->number ? -1 : number > compare->number);
        return MUSTER_OK;
    }
    rc = muster_mvcc_fetch(run, &full);
    if (rc == MUSTER_OK)
        *ret_holds = compare_holds(compare->relation,
                                   muster_registry_bytes_compare(full.value, compare->value));
    return rc;
}

static enum muster_rc evaluate_compare(struct muster_mvcc_run *run,
                                       const struct muster_mvcc_compare *compare, bool *ret_holds)
{
    /* A key that does not exist compares as one with all numbers 0, and a compare of values with it
     * always fails. A compare of a span must hold for every key in it. These are the rules of etcd
     * (applyCompare). */
    static const struct muster_registry_record missing;
    struct muster_registry_record *records = NULL;
    size_t count = 0;
    enum muster_rc rc = muster_mvcc_collect(run, &compare->span, &records, &count);

    if (rc != MUSTER_OK)
        return rc;
    *ret_holds = compare->target != MUSTER_MVCC_COMPARE_VALUE;
    if (count == 0 && *ret_holds)
        return holds_for(run, compare, &missing, ret_holds);
    *ret_holds = count > 0;
    for (size_t i = 0; i < count && *ret_holds; i++) {
        rc = holds_for(run, compare, &records[i], ret_holds);
        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

enum muster_rc muster_mvcc_txn_decide(struct muster_mvcc_run *run, struct muster_mvcc_txn *txn)
{
    bool is_held = true;
    struct muster_mvcc_request *taken = NULL;
    size_t count = 0;

    for (size_t i = 0; i < txn->compare_count && is_held; i++) {
        enum muster_rc rc = evaluate_compare(run, &txn->compares[i], &is_held);

        if (rc != MUSTER_OK)
            return rc;
    }
    txn->is_succeeded = is_held;
    taken = is_held ? txn->success : txn->failure;
    count = is_held ? txn->success_count : txn->failure_count;
    for (size_t i = 0; i < count; i++) {
        enum muster_rc rc = MUSTER_OK;

        if (taken[i].kind == MUSTER_MVCC_TXN)
            rc = muster_mvcc_txn_decide(run, &taken[i].txn);
        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}
