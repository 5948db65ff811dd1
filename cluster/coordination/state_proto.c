/* The state of a coordination service in a file: records of the registry's store. "s" is the service, "k/",
 * "t/" and "b/" are keys, tasks and barriers by name. Changes are applied as they happen and committed once
 * per loop turn (server.c), before any answer that shows them. */
#include "cluster/coordination/keeper.h"

#include <string.h>

#include "proto/coordination_state.pb-c.h"
#include "proto/guard.h"

/* Bounds the memory of a page while the file is loaded; one value may have the 64 MiB of a message. */
#define ARENA_BYTES_MAX ((size_t)256 << 20)
#define PAGE_RECORDS    1000
#define HISTORY_MAX     10000 /* revisions between two compactions */
/* One commit drops at most so many old rows, so that no answer waits long for it. */
#define ROWS_PER_COMMIT 20000

/* --- Writing --- */

static void record_no_memory(struct muster_coordination_keeper *keeper)
{
    muster_error_set(&keeper->error, MUSTER_RESOURCE_EXHAUSTED, "no memory for what is kept");
    keeper->is_dirty = true;
}

/* A failure is remembered and told by the next commit: the state machine that reports a change cannot fail
 * any more. */
static void keeper_apply(struct muster_coordination_keeper *keeper,
                         struct muster_mvcc_request *request)
{
    struct muster_mvcc_result result;
    struct muster_error error = {.text = ""};
    bool is_broken = false;
    enum muster_rc rc =
        muster_mvcc_apply(&keeper->mvcc, request, &keeper->arena, &result, &error, &is_broken);

    if (rc != MUSTER_OK)
        muster_error_set(&keeper->error, rc, "%s", error.text);
    keeper->is_dirty = true;
    muster_registry_arena_reset(&keeper->arena);
}

/* "k/name"; false: no memory. */
static bool format_name(struct muster_coordination_keeper *keeper, const char *prefix,
                        struct muster_bytes name, struct muster_bytes *ret_name)
{
    size_t prefix_bytes = strlen(prefix);
    char *text = muster_mem_alloc(keeper->mem, prefix_bytes + name.size);

    if (text == NULL) {
        record_no_memory(keeper);
        return false;
    }
    memcpy(text, prefix, prefix_bytes);
    if (name.size > 0)
        memcpy(text + prefix_bytes, name.data, name.size);
    *ret_name = (struct muster_bytes){text, prefix_bytes + name.size};
    return true;
}

static void keeper_put(struct muster_coordination_keeper *keeper, const char *prefix,
                       struct muster_bytes name, const struct muster_bytes *value)
{
    struct muster_mvcc_request request = {.kind = MUSTER_MVCC_PUT};
    struct muster_bytes whole;

    if (!format_name(keeper, prefix, name, &whole))
        return;
    if (value != NULL) {
        request.put.key = whole;
        request.put.value = *value;
    } else {
        request.kind = MUSTER_MVCC_DELETE;
        request.delete.span.key = whole;
    }
    keeper_apply(keeper, &request);
    muster_mem_free(keeper->mem, (void *)(uintptr_t)whole.data);
}

static void put_message(struct muster_coordination_keeper *keeper, const char *prefix,
                        struct muster_bytes name, const void *message)
{
    void *bytes = NULL;
    size_t size = 0;

    if (muster_proto_pack(keeper->mem, message, &bytes, &size) == MUSTER_OK)
        keeper_put(keeper, prefix, name, &(struct muster_bytes){bytes, size});
    else
        record_no_memory(keeper);
    muster_mem_free(keeper->mem, bytes);
}

void muster_coordination_keeper_put_service(struct muster_coordination_keeper *keeper,
                                            uint64_t incarnation, uint32_t task_count)
{
    CoordinationState__Service service = COORDINATION_STATE__SERVICE__INIT;

    service.incarnation = incarnation;
    service.tasks = task_count;
    put_message(keeper, "s", (struct muster_bytes){NULL, 0}, &service);
}

void muster_coordination_keeper_put_key(struct muster_coordination_keeper *keeper,
                                        struct muster_bytes key, const struct muster_bytes *value)
{
    keeper_put(keeper, "k/", key, value);
}

/* The number is the key's bytes as they lie in memory: the file stays on its machine. */
void muster_coordination_keeper_put_task(struct muster_coordination_keeper *keeper,
                                         const struct muster_coordination_task_info *info)
{
    CoordinationState__Task task = COORDINATION_STATE__TASK__INIT;

    task.state = (uint32_t)info->state;
    task.incarnation = info->incarnation;
    task.error_code = (uint32_t)info->rc;
    if (info->text != NULL)
        task.error_text = (char *)(uintptr_t)info->text;
    task.has_shut_down = info->has_shut_down;
    put_message(keeper, "t/", (struct muster_bytes){&info->id, sizeof(info->id)}, &task);
}

void muster_coordination_keeper_put_barrier(struct muster_coordination_keeper *keeper,
                                            struct muster_bytes id, int64_t counter,
                                            enum muster_rc rc, const char *text)
{
    CoordinationState__Barrier barrier = COORDINATION_STATE__BARRIER__INIT;

    barrier.counter = counter;
    barrier.code = (uint32_t)rc;
    if (text != NULL)
        barrier.text = (char *)(uintptr_t)text;
    put_message(keeper, "b/", id, &barrier);
}

void muster_coordination_keeper_clear(struct muster_coordination_keeper *keeper)
{
    struct muster_mvcc_request request = {.kind = MUSTER_MVCC_DELETE,
                                          .delete.span = {.key = {"\0", 1}, .end = {"\0", 1}}};

    keeper_apply(keeper, &request);
}

/* Only the newest version of a record is ever read, so history is dropped now and then. */
static enum muster_rc keeper_compact(struct muster_coordination_keeper *keeper)
{
    bool is_done = false;
    enum muster_rc rc;

    if (keeper->mvcc.meta.revision - keeper->mvcc.meta.compact_revision < HISTORY_MAX)
        return MUSTER_OK;
    rc = muster_mvcc_compact(&keeper->mvcc, keeper->mvcc.meta.revision, NULL);
    return rc == MUSTER_OK ? muster_mvcc_compact_step(&keeper->mvcc, ROWS_PER_COMMIT, &is_done)
                           : rc;
}

enum muster_rc muster_coordination_keeper_commit(struct muster_coordination_keeper *keeper)
{
    enum muster_rc rc = keeper->error.rc;

    MUSTER_ASSERT(keeper->store != NULL);
    keeper->is_dirty = false;
    if (rc != MUSTER_OK)
        return rc;
    rc = keeper_compact(keeper);
    if (rc == MUSTER_OK)
        rc = muster_mvcc_commit(&keeper->mvcc);
    if (rc != MUSTER_OK)
        muster_error_set(&keeper->error, rc, "%s", muster_registry_store_error(keeper->store));
    return rc;
}

/* --- Reading --- */

enum muster_rc muster_coordination_keeper_open(struct muster_coordination_keeper *keeper,
                                               struct muster_mem *mem, const char *path,
                                               struct muster_error *ret_error)
{
    const struct muster_registry_store_options options = {.path = path};
    enum muster_rc rc;

    memset(keeper, 0, sizeof(*keeper));
    keeper->mem = mem;
    muster_registry_arena_init(&keeper->arena, mem, ARENA_BYTES_MAX);
    rc = muster_registry_store_open(mem, &options, &keeper->store, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_mvcc_init(&keeper->mvcc, keeper->store, NULL, NULL); /* no leases */
    if (rc != MUSTER_OK) {
        (void)muster_error_set(ret_error, rc, "%s: %s", path,
                               muster_registry_store_error(keeper->store));
        muster_coordination_keeper_close(keeper);
    }
    return rc;
}

void muster_coordination_keeper_close(struct muster_coordination_keeper *keeper)
{
    if (keeper->mem == NULL)
        return;
    if (keeper->store != NULL)
        muster_registry_store_rollback(keeper->store);
    muster_registry_store_close(keeper->store);
    muster_registry_arena_fini(&keeper->arena);
    keeper->store = NULL;
}

typedef enum muster_rc restore_fn(struct muster_coordination_keeper *keeper,
                                  struct muster_coordination *coordination, uint64_t now_ns,
                                  struct muster_bytes name, struct muster_bytes value);

static enum muster_rc restore_key(struct muster_coordination_keeper *keeper,
                                  struct muster_coordination *coordination, uint64_t now_ns,
                                  struct muster_bytes name, struct muster_bytes value)
{
    (void)keeper;
    (void)now_ns;
    return muster_coordination_restore_key(coordination, name, value);
}

/* A number that no enum of ours has would index tables and trip assertions later. */
static bool is_status(uint32_t code)
{
    return code <= MUSTER_UNAUTHENTICATED;
}

/* A task is in error exactly when it has one, and only a task that is gone has shut down. */
static bool is_sound_task(const CoordinationState__Task *task)
{
    return task->state >= MUSTER_TASK_UNINITIALIZED && task->state <= MUSTER_TASK_ERROR &&
           is_status(task->error_code) &&
           (task->state == MUSTER_TASK_ERROR) == (task->error_code != MUSTER_OK) &&
           !(task->has_shut_down && task->state == MUSTER_TASK_CONNECTED);
}

/* Instances are counted from 0, and one more may follow. */
static bool is_sound_barrier(const CoordinationState__Barrier *barrier)
{
    return barrier->counter >= 0 && barrier->counter < INT64_MAX && is_status(barrier->code);
}

/* A record that cannot be parsed is damage of the file; only the lack of memory may pass by itself. */
static enum muster_rc unpack_failure(enum muster_rc rc)
{
    return rc == MUSTER_RESOURCE_EXHAUSTED ? rc : MUSTER_DATA_LOSS;
}

static enum muster_rc restore_task(struct muster_coordination_keeper *keeper,
                                   struct muster_coordination *coordination, uint64_t now_ns,
                                   struct muster_bytes name, struct muster_bytes value)
{
    struct muster_coordination_task_info info = {.id = 0};
    CoordinationState__Task *task = NULL;
    enum muster_rc rc = muster_proto_unpack(keeper->mem, &coordination_state__task__descriptor,
                                            value.data, value.size, NULL, &task, NULL);

    if (rc != MUSTER_OK || name.size != sizeof(info.id) || !is_sound_task(task)) {
        muster_proto_free(task);
        return unpack_failure(rc);
    }
    memcpy(&info.id, name.data, sizeof(info.id));
    info.state = (enum muster_coordination_state)task->state;
    info.incarnation = task->incarnation;
    info.rc = (enum muster_rc)task->error_code;
    info.text = task->error_text[0] != '\0' ? task->error_text : NULL;
    info.has_shut_down = task->has_shut_down;
    rc = muster_coordination_restore_task(coordination, now_ns, &info);
    muster_proto_free(task);
    return rc;
}

static enum muster_rc restore_barrier(struct muster_coordination_keeper *keeper,
                                      struct muster_coordination *coordination, uint64_t now_ns,
                                      struct muster_bytes name, struct muster_bytes value)
{
    CoordinationState__Barrier *barrier = NULL;
    enum muster_rc rc = muster_proto_unpack(keeper->mem, &coordination_state__barrier__descriptor,
                                            value.data, value.size, NULL, &barrier, NULL);

    (void)now_ns;
    if (rc != MUSTER_OK)
        return unpack_failure(rc);
    rc = is_sound_barrier(barrier)
             ? muster_coordination_restore_barrier(coordination, name, barrier->counter,
                                                   (enum muster_rc)barrier->code, barrier->text)
             : MUSTER_DATA_LOSS;
    muster_proto_free(barrier);
    return rc;
}

/* Read one page of the records from `from` on, below `end`. */
static enum muster_rc read_page(struct muster_coordination_keeper *keeper, struct muster_bytes from,
                                struct muster_bytes end, struct muster_mvcc_result *ret_result)
{
    struct muster_mvcc_request request = {
        .kind = MUSTER_MVCC_RANGE,
        .range = {.span = {.key = from, .end = end}, .limit = PAGE_RECORDS}};
    struct muster_error error;
    bool is_broken = false;

    return muster_mvcc_apply(&keeper->mvcc, &request, &keeper->arena, ret_result, &error,
                             &is_broken);
}

/* The first key after `key`: it with a NUL. In *from, whose memory is replaced. */
static bool move_behind(struct muster_coordination_keeper *keeper, struct muster_bytes key,
                        struct muster_bytes *from)
{
    char *text = muster_mem_alloc_zero(keeper->mem, 1, key.size + 1);

    MUSTER_ASSERT(key.size > 0);
    muster_mem_free(keeper->mem, (void *)(uintptr_t)from->data);
    *from = (struct muster_bytes){NULL, 0};
    if (text == NULL)
        return false;
    memcpy(text, key.data, key.size);
    *from = (struct muster_bytes){text, key.size + 1};
    return true;
}

/* Read page by page, each from after the last key of the one before. '/' + 1 is the first byte after all
 * names of a kind. */
static enum muster_rc load_kind(struct muster_coordination_keeper *keeper,
                                struct muster_coordination *coordination, uint64_t now_ns,
                                char kind, restore_fn *restore)
{
    const char first[] = {kind, '/'}, behind[] = {kind, '/' + 1};
    struct muster_bytes from = {NULL, 0};
    struct muster_mvcc_result result = {.is_more = true};
    enum muster_rc rc = MUSTER_OK;

    if (!move_behind(keeper, (struct muster_bytes){first, sizeof(first)}, &from))
        return MUSTER_RESOURCE_EXHAUSTED;
    from.size--; /* the name of nothing is a name, too */
    while (rc == MUSTER_OK && result.is_more) {
        rc = read_page(keeper, from, (struct muster_bytes){behind, sizeof(behind)}, &result);
        for (size_t i = 0; rc == MUSTER_OK && i < result.record_count; i++) {
            struct muster_bytes key = result.records[i].key;

            rc = restore(keeper, coordination, now_ns,
                         (struct muster_bytes){(const char *)key.data + 2, key.size - 2},
                         result.records[i].value);
        }
        if (rc == MUSTER_OK && result.is_more &&
            !move_behind(keeper, result.records[result.record_count - 1].key, &from))
            rc = MUSTER_RESOURCE_EXHAUSTED;
        muster_registry_arena_reset(&keeper->arena);
    }
    muster_mem_free(keeper->mem, (void *)(uintptr_t)from.data);
    return rc;
}

/* Tasks come before barriers: the registration barrier, once restored as passed, lets the silence of
 * connected tasks count. */
enum muster_rc muster_coordination_keeper_load(struct muster_coordination_keeper *keeper,
                                               struct muster_coordination *coordination,
                                               uint64_t now_ns)
{
    enum muster_rc rc = load_kind(keeper, coordination, now_ns, 'k', restore_key);

    if (rc == MUSTER_OK)
        rc = load_kind(keeper, coordination, now_ns, 't', restore_task);
    if (rc == MUSTER_OK)
        rc = load_kind(keeper, coordination, now_ns, 'b', restore_barrier);
    return rc;
}

/* OK: it is one of this job, or new. */
static enum muster_rc check_service(const struct muster_coordination_keeper *keeper,
                                    const CoordinationState__Service *service, uint32_t task_count,
                                    struct muster_error *ret_error)
{
    if (service == NULL && keeper->mvcc.meta.revision > 1)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the file is not a coordinator's (a registry's?): name another");
    if (service != NULL && service->tasks != task_count)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the file is of a job of %u tasks, not %u: name another, or delete "
                                "it when that job is over",
                                service->tasks, task_count);
    return MUSTER_OK;
}

enum muster_rc muster_coordination_keeper_load_service(struct muster_coordination_keeper *keeper,
                                                       uint32_t task_count,
                                                       uint64_t *ret_incarnation,
                                                       struct muster_error *ret_error)
{
    CoordinationState__Service *service = NULL;
    struct muster_mvcc_result result = {.is_more = false};
    enum muster_rc rc =
        read_page(keeper, (struct muster_bytes){"s", 1}, (struct muster_bytes){NULL, 0}, &result);

    *ret_incarnation = 0;
    if (rc == MUSTER_OK && result.record_count > 0)
        rc = muster_proto_unpack(keeper->mem, &coordination_state__service__descriptor,
                                 result.records[0].value.data, result.records[0].value.size, NULL,
                                 &service, NULL);
    if (rc != MUSTER_OK)
        (void)muster_error_set(ret_error, rc,
                               rc == MUSTER_RESOURCE_EXHAUSTED ? "no memory to read it"
                                                               : "the file cannot be read");
    else
        rc = check_service(keeper, service, task_count, ret_error);
    if (service != NULL)
        *ret_incarnation = service->incarnation;
    muster_proto_free(service);
    muster_registry_arena_reset(&keeper->arena);
    return rc;
}
