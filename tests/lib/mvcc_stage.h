/* The registry's meaning over a store in memory, with short words for requests. */
#ifndef MUSTER_TEST_MVCC_STAGE_H
#define MUSTER_TEST_MVCC_STAGE_H

#include "test_env.h"
#include "cluster/store/mvcc.h"

#define WORDS_MAX 16
#define OPS_MAX   400

struct mvcc_stage {
    struct muster_mem_limited mem;
    struct muster_registry_store *store;
    struct muster_registry_arena arena;
    struct muster_mvcc mvcc;
    char text[4096];
};

/* A script and its answer. Text of answers: "a=1:2,3,4" is key, value, create revision, mod
 * revision, version. Words of scripts: "put k v lease=7 prev", "del k end", "range k end limit=2
 * desc by=mod", "*" is the open end. */
struct mvcc_row {
    const char *name, *before, *script, *answer;
};

#define ABC       "put a 1;put b 2;put c 3;"
#define FUTURE    "OUT_OF_RANGE etcdserver: mvcc: required revision is a future revision"
#define COMPACTED "OUT_OF_RANGE etcdserver: mvcc: required revision has been compacted"

bool mvcc_stage_has_lease(void *data, int64_t lease);
void mvcc_stage_open(struct mvcc_stage *f);
void mvcc_stage_close(struct mvcc_stage *f);
struct muster_bytes mvcc_stage_bytes_of(const char *word);
void mvcc_stage_apply(struct mvcc_stage *f, struct muster_mvcc_request *request);
void mvcc_stage_compact(struct mvcc_stage *f, int64_t revision);
/** Run one line; its answer is f->text. */
const char *mvcc_stage_line(struct mvcc_stage *f, const char *script);
/** Lines separated by ';'. */
void mvcc_stage_run_script(struct mvcc_stage *f, const char *script);
void mvcc_stage_check_rows(const struct mvcc_row *rows, size_t count);
struct muster_mvcc_request mvcc_stage_op(char *copy, const char *script);
struct muster_mvcc_request mvcc_stage_txn_of(const struct muster_mvcc_compare *compares,
                                             size_t count, struct muster_mvcc_request *success,
                                             size_t success_count,
                                             struct muster_mvcc_request *failure,
                                             size_t failure_count);

#endif
