/* Checks that make a request invalid whatever the store holds. They have the order and the texts of
 * checkRangeRequest … checkIntervals in etcd's server/etcdserver/api/v3rpc/key.go, because clients
 * compare the texts. */
#include "cluster/store/mvcc_internal.h"

/* Keys put and spans deleted by one list of operations and all lists below it. */
struct writes {
    struct muster_bytes *puts;
    size_t put_count;
    struct muster_registry_span *deletes;
    size_t delete_count;
};

static enum muster_rc refuse_invalid(struct muster_mvcc_run *run, const char *text)
{
    return muster_mvcc_fail(run, MUSTER_INVALID_ARGUMENT, text);
}

/* The order and target are numbers of the wire, and proto3 enums are open, so any integer may
 * arrive. */
static enum muster_rc check_range(struct muster_mvcc_run *run,
                                  const struct muster_mvcc_range *range)
{
    if (range->span.key.size == 0)
        return refuse_invalid(run, "etcdserver: key is not provided");
    if (range->order < 0 || range->order > MUSTER_MVCC_DESCEND || range->target < 0 ||
        range->target > MUSTER_MVCC_BY_VALUE)
        return refuse_invalid(run, "etcdserver: invalid sort option");
    return MUSTER_OK;
}

static enum muster_rc check_put(struct muster_mvcc_run *run, const struct muster_mvcc_put *put)
{
    if (put->key.size == 0)
        return refuse_invalid(run, "etcdserver: key is not provided");
    if (put->ignores_value && put->value.size > 0)
        return refuse_invalid(run, "etcdserver: value is provided");
    if (put->ignores_lease && put->lease != 0)
        return refuse_invalid(run, "etcdserver: lease is provided");
    return MUSTER_OK;
}

static size_t largest_of(size_t a, size_t b, size_t c)
{
    size_t ab = a > b ? a : b;

    return ab > c ? ab : c;
}

static enum muster_rc check_one(struct muster_mvcc_run *run,
                                const struct muster_mvcc_request *request, size_t left,
                                size_t *tree_left);

static enum muster_rc check_list(struct muster_mvcc_run *run,
                                 const struct muster_mvcc_request *requests, size_t count,
                                 size_t left, size_t *tree_left)
{
    for (size_t i = 0; i < count; i++) {
        enum muster_rc rc = check_one(run, &requests[i], left, tree_left);

        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

/* left: what the parent left over for this transaction; tree_left: for the whole tree. */
static enum muster_rc check_txn(struct muster_mvcc_run *run, const struct muster_mvcc_txn *txn,
                                size_t left, size_t *tree_left)
{
    size_t most = largest_of(txn->compare_count, txn->success_count, txn->failure_count);
    size_t own = txn->compare_count + txn->success_count + txn->failure_count;
    enum muster_rc rc = MUSTER_OK;

    /* etcd bounds the longest list of each level by what its parent left (--max-txn-ops). That
     * alone allows a tree with many branches, so the number of operations in the whole tree is
     * bounded as well. */
    if (most > left || own > *tree_left)
        return refuse_invalid(run, "etcdserver: too many operations in txn request");
    *tree_left -= own;
    for (size_t i = 0; i < txn->compare_count; i++) {
        if (txn->compares[i].span.key.size == 0)
            return refuse_invalid(run, "etcdserver: key is not provided");
    }
    rc = check_list(run, txn->success, txn->success_count, left - most, tree_left);
    if (rc == MUSTER_OK)
        rc = check_list(run, txn->failure, txn->failure_count, left - most, tree_left);
    return rc;
}

static enum muster_rc check_one(struct muster_mvcc_run *run,
                                const struct muster_mvcc_request *request, size_t left,
                                size_t *tree_left)
{
    switch (request->kind) {
    case MUSTER_MVCC_RANGE:
        return check_range(run, &request->range);
    case MUSTER_MVCC_PUT:
        return check_put(run, &request->put);
    case MUSTER_MVCC_DELETE:
        if (request->delete.span.key.size == 0)
            return refuse_invalid(run, "etcdserver: key is not provided");
        return MUSTER_OK;
    case MUSTER_MVCC_TXN:
        return check_txn(run, &request->txn, left, tree_left);
    case MUSTER_MVCC_NOTHING:
        break;
    }
    /* An operation without a kind gets the error that etcd gives it (ErrGRPCKeyNotFound). */
    return refuse_invalid(run, "etcdserver: key not found");
}

/* Duplicates. */

static bool has_put(const struct muster_bytes *puts, size_t count, struct muster_bytes key)
{
    for (size_t i = 0; i < count; i++) {
        if (muster_registry_bytes_compare(puts[i], key) == 0)
            return true;
    }
    return false;
}

static bool is_deleted(const struct writes *writes, struct muster_bytes key)
{
    for (size_t i = 0; i < writes->delete_count; i++) {
        if (muster_registry_span_has(&writes->deletes[i], key))
            return true;
    }
    return false;
}

static enum muster_rc refuse_duplicate(struct muster_mvcc_run *run)
{
    return refuse_invalid(run, "etcdserver: duplicate key given in txn request");
}

/* Add the puts of one branch of an inner transaction. The puts before `shared` run together with
 * this branch, so they must not repeat here. Those from `shared` on belong to the other branch,
 * which runs only when this one does not, so they may. */
static enum muster_rc add_inner_puts(struct muster_mvcc_run *run, struct writes *writes,
                                     const struct writes *inner, size_t shared)
{
    for (size_t i = 0; i < inner->put_count; i++) {
        struct muster_bytes key = inner->puts[i];

        if (has_put(writes->puts, shared, key) || is_deleted(writes, key))
            return refuse_duplicate(run);
        if (!has_put(writes->puts + shared, writes->put_count - shared, key))
            writes->puts[writes->put_count++] = key;
    }
    return MUSTER_OK;
}

static void add_inner_deletes(struct writes *writes, const struct writes *inner)
{
    for (size_t i = 0; i < inner->delete_count; i++)
        writes->deletes[writes->delete_count++] = inner->deletes[i];
}

static enum muster_rc check_writes(struct muster_mvcc_run *run,
                                   const struct muster_mvcc_request *requests, size_t count,
                                   struct writes *ret_writes);

static enum muster_rc add_inner_txn(struct muster_mvcc_run *run, const struct muster_mvcc_txn *txn,
                                    struct writes *writes)
{
    struct writes success = {.put_count = 0};
    struct writes failure = {.put_count = 0};
    size_t shared = writes->put_count;
    enum muster_rc rc = check_writes(run, txn->success, txn->success_count, &success);

    if (rc == MUSTER_OK)
        rc = check_writes(run, txn->failure, txn->failure_count, &failure);
    if (rc == MUSTER_OK)
        rc = add_inner_puts(run, writes, &success, shared);
    if (rc == MUSTER_OK)
        rc = add_inner_puts(run, writes, &failure, shared);
    if (rc != MUSTER_OK)
        return rc;
    add_inner_deletes(writes, &success);
    add_inner_deletes(writes, &failure);
    return MUSTER_OK;
}

/* The number of operations below a list is the room that the arrays of its puts and deletes
 * need. */
static size_t count_tree(const struct muster_mvcc_request *requests, size_t count)
{
    size_t total = count;

    for (size_t i = 0; i < count; i++) {
        if (requests[i].kind == MUSTER_MVCC_TXN)
            total += count_tree(requests[i].txn.success, requests[i].txn.success_count) +
                     count_tree(requests[i].txn.failure, requests[i].txn.failure_count);
    }
    return total;
}

static enum muster_rc check_own_puts(struct muster_mvcc_run *run,
                                     const struct muster_mvcc_request *requests, size_t count,
                                     struct writes *writes)
{
    for (size_t i = 0; i < count; i++) {
        if (requests[i].kind != MUSTER_MVCC_PUT)
            continue;
        if (has_put(writes->puts, writes->put_count, requests[i].put.key) ||
            is_deleted(writes, requests[i].put.key))
            return refuse_duplicate(run);
        writes->puts[writes->put_count++] = requests[i].put.key;
    }
    return MUSTER_OK;
}

/* One key may be written once, and not both put and deleted, among all that can run together. */
static enum muster_rc check_writes(struct muster_mvcc_run *run,
                                   const struct muster_mvcc_request *requests, size_t count,
                                   struct writes *ret_writes)
{
    size_t total = count_tree(requests, count);
    struct writes writes = {
        .puts = muster_registry_arena_array(run->arena, total, sizeof(*writes.puts)),
        .deletes = muster_registry_arena_array(run->arena, total, sizeof(*writes.deletes))};

    if (writes.puts == NULL || writes.deletes == NULL)
        return muster_mvcc_no_memory(run);
    for (size_t i = 0; i < count; i++) {
        if (requests[i].kind == MUSTER_MVCC_DELETE)
            writes.deletes[writes.delete_count++] = requests[i].delete.span;
    }
    for (size_t i = 0; i < count; i++) {
        enum muster_rc rc = MUSTER_OK;

        if (requests[i].kind == MUSTER_MVCC_TXN)
            rc = add_inner_txn(run, &requests[i].txn, &writes);
        if (rc != MUSTER_OK)
            return rc;
    }
    *ret_writes = writes;
    return check_own_puts(run, requests, count, ret_writes);
}

enum muster_rc muster_mvcc_check(struct muster_mvcc_run *run,
                                 const struct muster_mvcc_request *request)
{
    size_t tree_left = MUSTER_MVCC_TXN_TREE_MAX;
    struct writes writes = {.put_count = 0};
    enum muster_rc rc = check_one(run, request, MUSTER_MVCC_TXN_OPS_MAX, &tree_left);

    if (rc != MUSTER_OK || request->kind != MUSTER_MVCC_TXN)
        return rc;
    rc = check_writes(run, request->txn.success, request->txn.success_count, &writes);
    if (rc != MUSTER_OK)
        return rc;
    return check_writes(run, request->txn.failure, request->txn.failure_count, &writes);
}
