/* The meaning of etcd's KV requests: revisions, writes, transactions, leases' keys, compaction. The
 * services of cluster/registry call it, and it writes through cluster/store/store.h. A request
 * passes its checks in this order: shape, compares, state. Writes come last, so an invalid request
 * changes nothing. */
#include "cluster/store/mvcc_internal.h"

#include <string.h>

/* Life. */

enum muster_rc muster_mvcc_init(struct muster_mvcc *mvcc, struct muster_registry_store *store,
                                muster_mvcc_has_lease_fn *has_lease, void *lease_data)
{
    memset(mvcc, 0, sizeof(*mvcc));
    mvcc->store = store;
    mvcc->has_lease = has_lease;
    mvcc->lease_data = lease_data;
    return muster_mvcc_rollback(mvcc);
}

enum muster_rc muster_mvcc_rollback(struct muster_mvcc *mvcc)
{
    /* The counters are loaded after the rollback, because until then the store shows the
     * uncommitted ones. clean_seq starts from 0 again: the rows that it counted may be back. */
    muster_registry_store_rollback(mvcc->store);
    mvcc->is_meta_stale = false;
    mvcc->clean_seq = 0;
    return muster_registry_store_load_meta(mvcc->store, &mvcc->meta);
}

/* Counters are written with the data that they count, in one transaction. */
enum muster_rc muster_mvcc_commit(struct muster_mvcc *mvcc)
{
    enum muster_rc rc = MUSTER_OK;

    /* A compaction and a new identity change counters alone, and then no transaction is open
     * yet. */
    if (mvcc->is_meta_stale) {
        rc = muster_registry_store_begin(mvcc->store);
        if (rc == MUSTER_OK)
            rc = muster_registry_store_save_meta(mvcc->store, &mvcc->meta);
    }
    if (rc == MUSTER_OK && muster_registry_store_is_writing(mvcc->store))
        rc = muster_registry_store_commit(mvcc->store);
    if (rc == MUSTER_OK)
        mvcc->is_meta_stale = false;
    return rc;
}

/* Writes. */

static enum muster_rc append_change(struct muster_mvcc_run *run,
                                    struct muster_registry_record *record)
{
    enum muster_rc rc = muster_registry_store_begin(run->mvcc->store);

    MUSTER_ASSERT(record->mod_revision == run->mvcc->writing_revision);
    if (rc == MUSTER_OK)
        rc = muster_registry_store_append(run->mvcc->store, record);
    if (rc != MUSTER_OK)
        return muster_mvcc_break(run, rc);
    run->mvcc->has_written = true;
    return MUSTER_OK;
}

/* Find the newest change of a key. A key that does not exist has version 0; its seq is that of the
 * deletion if one is still in the log, because the next put continues that chain. */
static enum muster_rc find_record(struct muster_mvcc_run *run, struct muster_bytes key,
                                  struct muster_registry_record *ret_record)
{
    enum muster_rc rc = muster_registry_store_find(run->mvcc->store, key, ret_record);

    if (rc == MUSTER_OK)
        return MUSTER_OK;
    if (rc != MUSTER_NOT_FOUND)
        return muster_mvcc_break(run, rc);
    memset(ret_record, 0, sizeof(*ret_record));
    return MUSTER_OK;
}

/* The old value is copied, because the store's bytes last only until its next read. */
static enum muster_rc give_previous(struct muster_mvcc_run *run,
                                    const struct muster_registry_record *old,
                                    struct muster_mvcc_result *ret_result)
{
    struct muster_registry_record *copy = muster_registry_arena_array(run->arena, 1, sizeof(*copy));

    if (copy == NULL || !muster_registry_arena_copy(run->arena, old->key, &copy->key))
        return muster_mvcc_no_memory(run);
    ret_result->records = copy;
    ret_result->record_count = 1;
    copy->seq = old->seq;
    return muster_mvcc_fetch(run, copy);
}

static enum muster_rc run_put(struct muster_mvcc_run *run, const struct muster_mvcc_put *put,
                              struct muster_mvcc_result *ret_result)
{
    int64_t revision = run->mvcc->writing_revision;
    struct muster_registry_record old;
    struct muster_registry_record next = {
        .key = put->key, .value = put->value, .lease = put->lease, .mod_revision = revision};
    struct muster_mvcc_result previous = {.record_count = 0};
    enum muster_rc rc = find_record(run, put->key, &old);

    if (rc == MUSTER_OK && old.version > 0 && (put->wants_prev || put->ignores_value))
        rc = give_previous(run, &old, &previous);
    if (rc != MUSTER_OK)
        return rc;
    /* A key that was deleted begins a new life: version 1, created now. Its prev_seq still points
     * at the deletion, so that a range of an older revision finds its way back. */
    next.create_revision = old.version > 0 ? old.create_revision : revision;
    next.version = old.version + 1;
    next.prev_seq = old.seq;
    if (put->ignores_lease)
        next.lease = old.lease;
    if (put->ignores_value && previous.record_count == 1)
        next.value = previous.records[0].value;
    if (put->wants_prev) {
        ret_result->records = previous.records;
        ret_result->record_count = previous.record_count;
    }
    return append_change(run, &next);
}

/* A deletion is a row with version 0 and create_revision 0, which is how etcd tells a tombstone
 * from a put. It carries no lease, so the index of leases lets go of the key. */
static enum muster_rc append_deletions(struct muster_mvcc_run *run,
                                       const struct muster_registry_record *records, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct muster_registry_record deletion = {.key = records[i].key,
                                                  .value = {.data = "", .size = 0},
                                                  .mod_revision = run->mvcc->writing_revision,
                                                  .prev_seq = records[i].seq};
        enum muster_rc rc = append_change(run, &deletion);

        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

/* The keys are collected before the first one is deleted: a visitor of a scan must not write. */
static enum muster_rc run_delete(struct muster_mvcc_run *run,
                                 const struct muster_mvcc_delete *delete,
                                 struct muster_mvcc_result *ret_result)
{
    struct muster_registry_record *records = NULL;
    size_t count = 0;
    enum muster_rc rc = muster_mvcc_collect(run, &delete->span, &records, &count);

    for (size_t i = 0; rc == MUSTER_OK && delete->wants_prev && i < count; i++)
        rc = muster_mvcc_fetch(run, &records[i]);
    if (rc != MUSTER_OK)
        return rc;
    ret_result->count = (int64_t)count;
    if (delete->wants_prev) {
        ret_result->records = records;
        ret_result->record_count = count;
    }
    return append_deletions(run, records, count);
}

/* State: what the store must hold for the operations that will run. */

static enum muster_rc check_put_state(struct muster_mvcc_run *run,
                                      const struct muster_mvcc_put *put)
{
    struct muster_mvcc *mvcc = run->mvcc;
    struct muster_registry_record old;
    enum muster_rc rc = MUSTER_OK;

    /* A delete stays allowed over the quota, because it is the way below it again. */
    if (mvcc->is_full)
        return muster_mvcc_fail(run, MUSTER_RESOURCE_EXHAUSTED,
                                "etcdserver: mvcc: database space exceeded");
    if (put->lease != 0 && !mvcc->has_lease(mvcc->lease_data, put->lease))
        return muster_mvcc_fail(run, MUSTER_NOT_FOUND, "etcdserver: requested lease not found");
    if (!put->ignores_value && !put->ignores_lease)
        return MUSTER_OK;
    rc = find_record(run, put->key, &old);
    if (rc == MUSTER_OK && old.version == 0)
        return muster_mvcc_fail(run, MUSTER_INVALID_ARGUMENT, "etcdserver: key not found");
    return rc;
}

static enum muster_rc check_state(struct muster_mvcc_run *run,
                                  const struct muster_mvcc_request *request)
{
    const struct muster_mvcc_txn *txn = &request->txn;
    const struct muster_mvcc_request *taken = NULL;
    size_t count = 0;

    if (request->kind == MUSTER_MVCC_RANGE)
        return muster_mvcc_range_check(run, &request->range);
    if (request->kind == MUSTER_MVCC_PUT)
        return check_put_state(run, &request->put);
    if (request->kind != MUSTER_MVCC_TXN)
        return MUSTER_OK;
    /* Only the branch that runs is checked against the state; the other one may name leases and
     * keys that do not exist, as in etcd. */
    taken = txn->is_succeeded ? txn->success : txn->failure;
    count = txn->is_succeeded ? txn->success_count : txn->failure_count;
    for (size_t i = 0; i < count; i++) {
        enum muster_rc rc = check_state(run, &taken[i]);

        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

/* Dispatch. */

static enum muster_rc run_request(struct muster_mvcc_run *run,
                                  const struct muster_mvcc_request *request,
                                  struct muster_mvcc_result *ret_result);

static enum muster_rc run_txn(struct muster_mvcc_run *run, const struct muster_mvcc_txn *txn,
                              struct muster_mvcc_result *ret_result)
{
    const struct muster_mvcc_request *taken = txn->is_succeeded ? txn->success : txn->failure;
    size_t count = txn->is_succeeded ? txn->success_count : txn->failure_count;

    ret_result->is_succeeded = txn->is_succeeded;
    ret_result->results =
        muster_registry_arena_array(run->arena, count, sizeof(*ret_result->results));
    if (ret_result->results == NULL)
        return muster_mvcc_no_memory(run);
    for (size_t i = 0; i < count; i++) {
        enum muster_rc rc = run_request(run, &taken[i], &ret_result->results[i]);

        if (rc != MUSTER_OK)
            return rc;
    }
    ret_result->result_count = count;
    return MUSTER_OK;
}

static enum muster_rc run_request(struct muster_mvcc_run *run,
                                  const struct muster_mvcc_request *request,
                                  struct muster_mvcc_result *ret_result)
{
    memset(ret_result, 0, sizeof(*ret_result));
    ret_result->kind = request->kind;
    switch (request->kind) {
    case MUSTER_MVCC_RANGE:
        return muster_mvcc_range_run(run, &request->range, ret_result);
    case MUSTER_MVCC_PUT:
        return run_put(run, &request->put, ret_result);
    case MUSTER_MVCC_DELETE:
        return run_delete(run, &request->delete, ret_result);
    case MUSTER_MVCC_TXN:
        return run_txn(run, &request->txn, ret_result);
    case MUSTER_MVCC_NOTHING:
        break;
    }
    return muster_mvcc_fail(run, MUSTER_INTERNAL, "registry: an operation without a kind");
}

/* All writes of a request share one revision, and a request that writes nothing uses none. So the
 * revision is fixed here and becomes current only in end_writing. */
static void start_writing(struct muster_mvcc *mvcc)
{
    mvcc->has_written = false;
    mvcc->writing_revision = mvcc->meta.revision + 1;
}

static void end_writing(struct muster_mvcc *mvcc)
{
    if (!mvcc->has_written)
        return;
    MUSTER_ASSERT(mvcc->writing_revision == mvcc->meta.revision + 1);
    mvcc->meta.revision = mvcc->writing_revision;
    mvcc->is_meta_stale = true;
}

enum muster_rc muster_mvcc_apply(struct muster_mvcc *mvcc, struct muster_mvcc_request *request,
                                 struct muster_registry_arena *arena,
                                 struct muster_mvcc_result *ret_result,
                                 struct muster_error *ret_error, bool *ret_is_broken)
{
    struct muster_mvcc_run run = {.mvcc = mvcc, .arena = arena, .error = ret_error};
    enum muster_rc rc = MUSTER_OK;

    memset(ret_error, 0, sizeof(*ret_error));
    start_writing(mvcc);
    rc = muster_mvcc_check(&run, request);
    if (rc == MUSTER_OK && request->kind == MUSTER_MVCC_TXN)
        rc = muster_mvcc_txn_decide(&run, &request->txn);
    if (rc == MUSTER_OK)
        rc = check_state(&run, request);
    if (rc == MUSTER_OK)
        rc = run_request(&run, request, ret_result);
    if (rc == MUSTER_OK)
        end_writing(mvcc);
    /* Half of a request must not be committed, so one that failed after its first write breaks the
     * transaction even when the store is well. */
    *ret_is_broken = run.is_broken || (rc != MUSTER_OK && mvcc->has_written);
    return rc;
}

/* Leases. */

struct leased {
    struct muster_registry_arena *arena;
    struct leased_key *first, **last;
};
struct leased_key {
    struct leased_key *next;
    struct muster_registry_record record;
};

/* The keys go into a list first, because a visitor of a scan must not write. */
static enum muster_rc collect_leased(void *data, const struct muster_registry_record *record)
{
    struct leased *leased = data;
    struct leased_key *key = muster_registry_arena_array(leased->arena, 1, sizeof(*key));

    if (key == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    key->record = *record;
    if (!muster_registry_arena_copy(leased->arena, record->key, &key->record.key))
        return MUSTER_RESOURCE_EXHAUSTED;
    *leased->last = key;
    leased->last = &key->next;
    return MUSTER_OK;
}

enum muster_rc muster_mvcc_delete_leased(struct muster_mvcc *mvcc, int64_t lease,
                                         struct muster_registry_arena *arena, int64_t *ret_deleted)
{
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_mvcc_run run = {.mvcc = mvcc, .arena = arena, .error = &error};
    struct leased leased = {.arena = arena, .last = &leased.first};
    int64_t deleted = 0;
    enum muster_rc rc =
        muster_registry_store_scan_lease(mvcc->store, lease, collect_leased, &leased);

    start_writing(mvcc);
    for (struct leased_key *key = leased.first; rc == MUSTER_OK && key != NULL; key = key->next) {
        rc = append_deletions(&run, &key->record, 1);
        deleted++;
    }
    if (rc != MUSTER_OK)
        return rc;
    end_writing(mvcc);
    *ret_deleted = deleted;
    return MUSTER_OK;
}

/* History. */

enum muster_rc muster_mvcc_previous(struct muster_mvcc *mvcc,
                                    const struct muster_registry_record *record,
                                    struct muster_registry_arena *arena,
                                    struct muster_registry_record *ret_previous)
{
    struct muster_registry_record previous;
    enum muster_rc rc = MUSTER_OK;

    /* Version 1 means that the key did not exist before. A deletion has version 0 and does have a
     * previous value. */
    if (record->version == 1)
        return MUSTER_NOT_FOUND;
    rc = muster_registry_store_read(mvcc->store, record->prev_seq, &previous);
    if (rc != MUSTER_OK)
        return rc;
    if (!muster_registry_arena_copy(arena, previous.key, &previous.key) ||
        !muster_registry_arena_copy(arena, previous.value, &previous.value))
        return MUSTER_RESOURCE_EXHAUSTED;
    *ret_previous = previous;
    return MUSTER_OK;
}

enum muster_rc muster_mvcc_compact(struct muster_mvcc *mvcc, int64_t revision,
                                   struct muster_error *ret_error)
{
    if (revision <= mvcc->meta.compact_revision)
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                                "etcdserver: mvcc: required revision has been compacted");
    if (revision > mvcc->meta.revision)
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                                "etcdserver: mvcc: required revision is a future revision");
    mvcc->meta.compact_revision = revision;
    /* Rows that were visited for a lower compact revision are visited again: the deletions among
     * them may go now. */
    mvcc->clean_seq = 0;
    mvcc->is_meta_stale = true;
    return MUSTER_OK;
}

/* Delete versions superseded at or below the compact revision, and tombstones strictly below it.
 * Deletions at the compact revision itself stay until the next compaction: a watch may begin
 * there. */
enum muster_rc muster_mvcc_compact_step(struct muster_mvcc *mvcc, int64_t rows, bool *ret_is_done)
{
    struct muster_registry_meta *meta = &mvcc->meta;
    int64_t from = mvcc->clean_seq > meta->compacted_seq ? mvcc->clean_seq : meta->compacted_seq;
    int64_t kept_from = 0; /* rows of the compact revision begin here */
    int64_t end = 0;
    int64_t upto = 0;
    enum muster_rc rc = muster_registry_store_seek(mvcc->store, meta->compact_revision, &kept_from);

    if (rc == MUSTER_OK)
        rc = muster_registry_store_seek(mvcc->store, meta->compact_revision + 1, &end);
    if (rc != MUSTER_OK)
        return rc;
    /* Each turn of the loop cleans a bounded number of rows, so that requests are answered in
     * between. */
    upto = end - 1 - from > rows ? from + rows : end - 1;
    *ret_is_done = upto >= end - 1;
    if (upto <= from)
        return MUSTER_OK;
    rc = muster_registry_store_begin(mvcc->store);
    if (rc == MUSTER_OK)
        rc = muster_registry_store_compact(mvcc->store, from, upto, kept_from - 1);
    if (rc != MUSTER_OK)
        return rc;
    mvcc->clean_seq = upto;
    /* The saved mark stays below the rows of the compact revision, because their deletions are
     * still to be removed by the next compaction. */
    meta->compacted_seq = upto < kept_from ? upto : kept_from - 1;
    mvcc->is_meta_stale = true;
    return MUSTER_OK;
}

/* The 32-bit FNV-1a hash (offset basis 2166136261, prime 16777619) over all that clients can see of
 * the log. It compares two states of this registry, and it is not etcd's CRC. */
static void hash_bytes(struct muster_mvcc_hash *hash, const void *bytes, size_t count)
{
    const uint8_t *byte = bytes;

    for (size_t i = 0; i < count; i++)
        hash->value = (hash->value ^ byte[i]) * UINT32_C(16777619);
}

/* ABORTED ends a step. OUT_OF_RANGE ends the hash: the rows from here on are newer. */
static enum muster_rc hash_record(void *data, const struct muster_registry_record *record)
{
    struct muster_mvcc_hash *hash = data;
    int64_t numbers[] = {record->create_revision, record->mod_revision, record->version,
                         record->lease};
    size_t bytes = record->key.size + record->value.size + sizeof(numbers);

    if (record->mod_revision > hash->revision)
        return MUSTER_OUT_OF_RANGE;
    if (hash->bytes_left == 0)
        return MUSTER_ABORTED;
    hash_bytes(hash, record->key.data, record->key.size);
    hash_bytes(hash, record->value.data, record->value.size);
    hash_bytes(hash, numbers, sizeof(numbers));
    hash->next_seq = record->seq + 1;
    hash->bytes_left -= bytes < hash->bytes_left ? bytes : hash->bytes_left;
    return MUSTER_OK;
}

/* Committed rows never change, but a compaction deletes some of them, and a rollback brings those
 * back. clean_seq and compacted_seq show both. */
static bool hash_is_overtaken(const struct muster_mvcc *mvcc, const struct muster_mvcc_hash *hash)
{
    return hash->compact_revision != mvcc->meta.compact_revision ||
           hash->compacted_seq != mvcc->meta.compacted_seq || hash->clean_seq != mvcc->clean_seq;
}

enum muster_rc muster_mvcc_hash_init(struct muster_mvcc *mvcc, int64_t revision,
                                     struct muster_mvcc_hash *ret_hash,
                                     struct muster_error *ret_error)
{
    struct muster_mvcc_run run = {.mvcc = mvcc, .error = ret_error};
    struct muster_mvcc_range range = {.revision = revision};
    enum muster_rc rc = muster_mvcc_range_check(&run, &range);

    if (rc != MUSTER_OK)
        return rc;
    *ret_hash = (struct muster_mvcc_hash){.revision = revision > 0 ? revision : mvcc->meta.revision,
                                          .compact_revision = mvcc->meta.compact_revision,
                                          .value = UINT32_C(2166136261),
                                          .compacted_seq = mvcc->meta.compacted_seq,
                                          .clean_seq = mvcc->clean_seq};
    return MUSTER_OK;
}

enum muster_rc muster_mvcc_hash_step(struct muster_mvcc *mvcc, struct muster_mvcc_hash *hash,
                                     size_t bytes, bool *ret_is_done,
                                     struct muster_error *ret_error)
{
    struct muster_mvcc_run run = {.mvcc = mvcc, .error = ret_error};
    enum muster_rc rc = MUSTER_OK;

    MUSTER_ASSERT(!hash->is_done && bytes > 0);
    if (hash_is_overtaken(mvcc, hash))
        rc = muster_mvcc_hash_init(mvcc, hash->revision, hash, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    hash->bytes_left = bytes;
    rc = muster_registry_store_scan_log(mvcc->store, hash->next_seq, hash_record, hash);
    if (rc != MUSTER_OK && rc != MUSTER_ABORTED && rc != MUSTER_OUT_OF_RANGE)
        return muster_mvcc_break(&run, rc);
    hash->is_done = rc != MUSTER_ABORTED;
    *ret_is_done = hash->is_done;
    return MUSTER_OK;
}
