/* A registry's store on a file of its own, for one test case. */
#include "careful_mem.h"
#include "store_stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

struct muster_bytes store_stage_bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

enum muster_rc store_stage_open_file(struct store_stage *f,
                                     struct muster_registry_store **ret_store,
                                     struct muster_error *ret_error)
{
    struct muster_registry_store_options options = {.path = f->path};

    return muster_registry_store_open(&f->mem.mem, &options, ret_store, ret_error);
}

void store_stage_open(struct store_stage *f)
{
    struct muster_error error;

    memset(f, 0, sizeof(*f));
    muster_mem_limited_init(&f->mem, careful_mem(), 0);
    (void)snprintf(f->folder, sizeof(f->folder), "/tmp/registry_store.XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->path, sizeof(f->path), "%s/registry.db", f->folder);
    assert_int_equal(store_stage_open_file(f, &f->store, &error), MUSTER_OK);
}

void store_stage_close(struct store_stage *f)
{
    char wal[128];

    muster_registry_store_close(f->store);
    (void)snprintf(wal, sizeof(wal), "%s-wal", f->path);
    (void)unlink(wal);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0);
    assert_int_equal(muster_mem_limited_fini(&f->mem), 0);
}

int64_t store_stage_append(struct store_stage *f, const char *key, const char *value,
                           int64_t revision, int64_t prev_seq)
{
    struct muster_registry_record record = {.key = store_stage_bytes_of(key),
                                            .value = store_stage_bytes_of(value),
                                            .create_revision = revision,
                                            .mod_revision = revision,
                                            .version = 1,
                                            .prev_seq = prev_seq};

    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_append(f->store, &record), MUSTER_OK);
    return record.seq;
}

void store_stage_run_sql(sqlite3 *db, const char *sql)
{
    char *text = NULL;

    if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK)
        fail_msg("%s: %s", sql, text);
}
