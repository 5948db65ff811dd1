/* The parts of requests to the store, shared by mvcc*.c. */
#ifndef MUSTER_CLUSTER_REGISTRY_MVCC_INTERNAL_H
#define MUSTER_CLUSTER_REGISTRY_MVCC_INTERNAL_H

#include "cluster/store/mvcc.h"

/* One request on its way: the arguments that every step needs. */
struct muster_mvcc_run {
    struct muster_mvcc *mvcc;
    struct muster_registry_arena *arena;
    struct muster_error *error;
    bool is_broken; /* the store failed */
};

enum muster_rc muster_mvcc_fail(struct muster_mvcc_run *run, enum muster_rc rc, const char *text);
/* The store's error; the open transaction is lost. */
enum muster_rc muster_mvcc_break(struct muster_mvcc_run *run, enum muster_rc rc);
enum muster_rc muster_mvcc_no_memory(struct muster_mvcc_run *run);

/* Shape of a request, before the store is looked at: keys, options, counts, duplicates. */
enum muster_rc muster_mvcc_check(struct muster_mvcc_run *run,
                                 const struct muster_mvcc_request *request);

enum muster_rc muster_mvcc_range_check(struct muster_mvcc_run *run,
                                       const struct muster_mvcc_range *range);
enum muster_rc muster_mvcc_range_run(struct muster_mvcc_run *run,
                                     const struct muster_mvcc_range *range,
                                     struct muster_mvcc_result *ret_result);
/* All live keys of a span as they are now, without values. */
enum muster_rc muster_mvcc_collect(struct muster_mvcc_run *run,
                                   const struct muster_registry_span *span,
                                   struct muster_registry_record **ret_records, size_t *ret_count);
/* Replace record by its row of the log, copied to the arena. */
enum muster_rc muster_mvcc_fetch(struct muster_mvcc_run *run,
                                 struct muster_registry_record *record);

/* Take every compare's decision, children too, against the state before the first write. */
enum muster_rc muster_mvcc_txn_decide(struct muster_mvcc_run *run, struct muster_mvcc_txn *txn);

#endif
