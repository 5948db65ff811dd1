/* A registry's store on a file of its own, for one test case. */
#ifndef MUSTER_TEST_STORE_STAGE_H
#define MUSTER_TEST_STORE_STAGE_H

#include "test_env.h"

#include "cluster/store/store.h"

struct sqlite3;

struct store_stage {
    struct muster_mem_limited mem;
    char folder[64];
    char path[96];
    struct muster_registry_store *store;
};

void store_stage_open(struct store_stage *f);
/** Deletes the file. */
void store_stage_close(struct store_stage *f);
/** The file at f->path, once more. */
enum muster_rc store_stage_open_file(struct store_stage *f,
                                     struct muster_registry_store **ret_store,
                                     struct muster_error *ret_error);
struct muster_bytes store_stage_bytes_of(const char *text);
/** A change of a key, not committed; its place in the log. */
int64_t store_stage_append(struct store_stage *f, const char *key, const char *value,
                           int64_t revision, int64_t prev_seq);
/** Behind the store's back. */
void store_stage_run_sql(struct sqlite3 *db, const char *sql);

#endif
