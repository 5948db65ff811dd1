/* The registry's store while system calls and memory of SQLite, or memory of its own, fail in turn: a
 * transaction is there whole or not at all, as the answer says, and the store serves again. */
#include "store_stage.h"
#include "torture_calls.h"

#include "cluster/store/mvcc.h"

#include <muster/registry.h>

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#define ANSWER_BYTES_MAX (1u << 20)

struct stage {
    struct store_stage file;
    struct muster_registry_arena arena;
    struct muster_mvcc mvcc;
};

typedef void arm_fn(struct torture *torture, struct stage *stage);

/* --- System calls of SQLite --- */

static ssize_t (*real_pread)(int fd, void *buffer, size_t count, off_t at);
static ssize_t (*real_pwrite)(int fd, const void *bytes, size_t count, off_t at);
static int (*real_ftruncate)(int fd, off_t bytes);

static int failure_drawn(int first, int second, int third, int fourth)
{
    const int failures[] = {first, second, third, fourth};

    return torture_call_failure(failures, 4);
}

static ssize_t failing_pread(int fd, void *buffer, size_t count, off_t at)
{
    int failure = failure_drawn(EIO, EINTR, TORTURE_CALL_SHORT, ENOMEM);

    if (failure > 0)
        errno = failure;
    return failure > 0 ? -1 : real_pread(fd, buffer, failure < 0 && count > 1 ? 1 : count, at);
}

static ssize_t failing_pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    int failure = failure_drawn(ENOSPC, EINTR, TORTURE_CALL_SHORT, EIO);

    if (failure > 0)
        errno = failure;
    return failure > 0 ? -1 : real_pwrite(fd, bytes, failure < 0 && count > 1 ? 1 : count, at);
}

static int failing_ftruncate(int fd, off_t bytes)
{
    int failure = failure_drawn(EIO, EINTR, ENOSPC, EIO);

    if (failure > 0)
        errno = failure;
    return failure > 0 ? -1 : real_ftruncate(fd, bytes);
}

static void replace_call(const char *name, sqlite3_syscall_ptr failing, void *ret_real)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    sqlite3_syscall_ptr real = vfs->xGetSystemCall(vfs, name);

    if (real == NULL || vfs->xSetSystemCall(vfs, name, failing) != SQLITE_OK)
        return; /* it has none of that name */
    memcpy(ret_real, &real, sizeof(real));
}

static void replace_calls(void)
{
    replace_call("pread", (sqlite3_syscall_ptr)failing_pread, &real_pread);
    replace_call("pread64", (sqlite3_syscall_ptr)failing_pread, &real_pread);
    replace_call("pwrite", (sqlite3_syscall_ptr)failing_pwrite, &real_pwrite);
    replace_call("pwrite64", (sqlite3_syscall_ptr)failing_pwrite, &real_pwrite);
    replace_call("ftruncate", (sqlite3_syscall_ptr)failing_ftruncate, &real_ftruncate);
}

/* In the place of the C library's, for SQLite too: no power fails here, and disks are slow. */

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int fsync(int fd)
{
    (void)fd;
    return 0;
}

EXPORTED int fdatasync(int fd)
{
    (void)fd;
    return 0;
}

/* --- Memory of SQLite --- */

static void *sqlite_malloc(int bytes)
{
    return torture_malloc((size_t)bytes);
}

static void *sqlite_realloc(void *ptr, int bytes)
{
    return torture_library_realloc(ptr, (size_t)bytes);
}

static int sqlite_size(void *ptr)
{
    return (int)malloc_usable_size(ptr);
}

static int sqlite_round(int bytes)
{
    return (bytes + 7) / 8 * 8;
}

static int sqlite_init(void *data)
{
    (void)data;
    return SQLITE_OK;
}

static void sqlite_shutdown(void *data)
{
    (void)data;
}

static void replace_memory(void)
{
    static const sqlite3_mem_methods methods = {.xMalloc = sqlite_malloc,
                                                .xFree = torture_free,
                                                .xRealloc = sqlite_realloc,
                                                .xSize = sqlite_size,
                                                .xRoundup = sqlite_round,
                                                .xInit = sqlite_init,
                                                .xShutdown = sqlite_shutdown};

    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods), SQLITE_OK);
}

/* --- The store --- */

static bool has_lease(void *data, int64_t lease)
{
    (void)data;
    (void)lease;
    return false;
}

static void stage_begin(struct stage *stage)
{
    muster_registry_arena_init(&stage->arena, &stage->file.mem.mem, ANSWER_BYTES_MAX);
    assert_int_equal(muster_mvcc_init(&stage->mvcc, stage->file.store, has_lease, NULL), MUSTER_OK);
}

static void stage_reopen(struct stage *stage)
{
    struct muster_error error;

    muster_registry_arena_fini(&stage->arena);
    muster_registry_store_close(stage->file.store);
    if (store_stage_open_file(&stage->file, &stage->file.store, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    stage_begin(stage);
}

static struct muster_mvcc_request put_of(const char *key, const char *value)
{
    return (struct muster_mvcc_request){
        .kind = MUSTER_MVCC_PUT,
        .put = {.key = store_stage_bytes_of(key), .value = store_stage_bytes_of(value)}};
}

/* The server's handling of a request; true when it is written, as the client is told. */
static bool apply_filter(struct stage *stage, struct muster_mvcc_request *request)
{
    struct muster_mvcc_result result;
    struct muster_error error;
    bool is_broken = false;
    enum muster_rc rc =
        muster_mvcc_apply(&stage->mvcc, request, &stage->arena, &result, &error, &is_broken);
    bool is_applied = rc == MUSTER_OK;

    if (!is_broken)
        rc = muster_mvcc_commit(&stage->mvcc);
    if (rc != MUSTER_OK)
        (void)!muster_mvcc_rollback(&stage->mvcc);
    muster_registry_arena_reset(&stage->arena);
    return is_applied && rc == MUSTER_OK;
}

static bool apply_both(struct stage *stage)
{
    struct muster_mvcc_request puts[] = {put_of("a", "2"), put_of("b", "2")};
    struct muster_mvcc_request txn = {.kind = MUSTER_MVCC_TXN,
                                      .txn = {.success = puts, .success_count = 2}};

    return apply_filter(stage, &txn);
}

static bool has_call(struct stage *stage, const char *key, const char *value)
{
    struct muster_mvcc_request range = {.kind = MUSTER_MVCC_RANGE};
    struct muster_mvcc_result result;
    struct muster_error error;
    bool is_broken, is_equal;

    range.range.span.key = store_stage_bytes_of(key);
    range.range.span.end = store_stage_bytes_of("");
    assert_int_equal(
        muster_mvcc_apply(&stage->mvcc, &range, &stage->arena, &result, &error, &is_broken),
        MUSTER_OK);
    is_equal = result.record_count == (value != NULL) &&
               (value == NULL || (result.records[0].value.size == strlen(value) &&
                                  memcmp(result.records[0].value.data, value, strlen(value)) == 0));
    muster_registry_arena_reset(&stage->arena);
    return is_equal;
}

static void run_scenario(struct torture *torture, const void *data)
{
    arm_fn *arm = *(arm_fn *const *)data;
    struct muster_mvcc_request first = put_of("a", "1"), last = put_of("c", "3");
    struct stage stage;
    bool is_written;

    store_stage_open(&stage.file);
    stage_begin(&stage);
    assert_true(apply_filter(&stage, &first));

    arm(torture, &stage);
    is_written = apply_both(&stage);
    torture_disarm(torture);
    stage_reopen(&stage);

    assert_true(has_call(&stage, "a", is_written ? "2" : "1"));
    assert_true(has_call(&stage, "b", is_written ? "2" : NULL));
    assert_true(apply_filter(&stage, &last));
    assert_true(has_call(&stage, "c", "3"));
    muster_registry_arena_fini(&stage.arena);
    store_stage_close(&stage.file);
}

/* A registry that cannot begin says why, and the file is as it was. */
static void run_open(struct torture *torture, const void *data)
{
    arm_fn *arm = *(arm_fn *const *)data;
    struct muster_mvcc_request first = put_of("a", "1");
    struct muster_error error = {.text = ""};
    struct stage stage;

    store_stage_open(&stage.file);
    stage_begin(&stage);
    assert_true(apply_filter(&stage, &first));
    muster_registry_store_close(stage.file.store);
    stage.file.store = NULL;

    arm(torture, &stage);
    if (store_stage_open_file(&stage.file, &stage.file.store, &error) != MUSTER_OK) {
        assert_int_not_equal(error.text[0], '\0');
        stage.file.store = NULL;
    }
    torture_disarm(torture);
    stage_reopen(&stage);

    assert_true(has_call(&stage, "a", "1"));
    muster_registry_arena_fini(&stage.arena);
    store_stage_close(&stage.file);
}

/* Files of the stage's folder. */
static size_t count_files(const struct stage *stage)
{
    char pattern[96];

    (void)snprintf(pattern, sizeof(pattern), "%s/*", stage->file.folder);
    return muster_files_count(muster_files_system(), pattern);
}

/* A backup that is there is whole; one that is not there leaves nothing. The same of what is made of
 * it. */
static void run_backup(struct torture *torture, const void *data)
{
    arm_fn *arm = *(arm_fn *const *)data;
    struct muster_mvcc_request first = put_of("a", "1");
    struct muster_registry_restored restored;
    struct muster_error error = {.text = ""};
    struct stage stage;
    struct muster_mem *mem = &stage.file.mem.mem;
    char backup[128], data_file[128];
    enum muster_rc rc;

    store_stage_open(&stage.file);
    (void)snprintf(backup, sizeof(backup), "%s/backup", stage.file.folder);
    (void)snprintf(data_file, sizeof(data_file), "%s/data", stage.file.folder);
    stage_begin(&stage);
    assert_true(apply_filter(&stage, &first));
    muster_registry_arena_fini(&stage.arena);
    muster_registry_store_close(stage.file.store);
    stage.file.store = NULL;

    arm(torture, &stage);
    rc = muster_registry_backup_write(mem, stage.file.path, backup, &error);
    if (rc == MUSTER_OK) /* the same calls fail further on */
        rc = muster_registry_backup_restore(mem, backup, data_file, &restored, &error);
    torture_disarm(torture);

    assert_true(rc == MUSTER_OK || error.text[0] != '\0');
    if (rc != MUSTER_OK && torture_call_was_harmless())
        fail_msg("it ends by an interruption: %s", error.text);
    if (count_files(&stage) != 1u + (access(backup, F_OK) == 0) + (access(data_file, F_OK) == 0))
        fail_msg("%s: there are %zu files", error.text, count_files(&stage));
    if (access(data_file, F_OK) == 0)
        assert_int_equal(unlink(data_file), 0);
    else
        assert_int_not_equal(rc, MUSTER_OK);
    if (access(backup, F_OK) == 0) {
        assert_int_equal(muster_registry_backup_restore(mem, backup, data_file, &restored, &error),
                         MUSTER_OK);
        assert_int_equal(restored.keys, 1);
        assert_int_equal(unlink(data_file), 0);
        assert_int_equal(unlink(backup), 0);
    }
    store_stage_close(&stage.file);
}

static void arm_calls(struct torture *torture, struct stage *stage)
{
    (void)stage;
    torture_arm_calls(torture);
}

static void arm_library(struct torture *torture, struct stage *stage)
{
    (void)stage;
    torture_arm_library(torture);
}

static void arm_memory(struct torture *torture, struct stage *stage)
{
    torture_arm_limited(torture, &stage->file.mem);
}

static void a_transaction_is_written_whole_or_not_at_all(void **state)
{
    static arm_fn *const arms[] = {arm_calls, arm_library, arm_memory};
    static const struct torture_scenario scenarios[] = {
        {"opening, system calls", run_open, &arms[0], TORTURE_CALL_VARIANTS, 0},
        {"opening, memory of SQLite", run_open, &arms[1], 0, 40},
        {"opening, its own memory", run_open, &arms[2], 0, 0},
        {"backup, system calls", run_backup, &arms[0], TORTURE_CALL_VARIANTS, 0},
        {"backup, system calls for good", run_backup, &arms[0], 0, 20},
        {"backup, memory of SQLite", run_backup, &arms[1], 0, 10},
        {"backup, its own memory", run_backup, &arms[2], 0, 0},
        {"store, system calls of SQLite", run_scenario, &arms[0], TORTURE_CALL_VARIANTS, 0},
        {"store, memory of SQLite", run_scenario, &arms[1], 0, 0},
        {"store, its own memory", run_scenario, &arms[2], 0, 0},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_transaction_is_written_whole_or_not_at_all, torture_tell),
    };

    replace_memory();
    replace_calls();
    return cmocka_run_group_tests_name("system_calls", tests, NULL, NULL);
}
