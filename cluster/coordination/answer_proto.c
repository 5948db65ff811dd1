/* Answers of the coordination service, and the details of those that refuse. Where two dialects write an
 * answer with the same bytes one of them is used for both; only the lists of tasks and the errors differ. */
#include "cluster/coordination/coordination_proto.h"

#include <string.h>

#include "proto/coordination.pb-c.h"
#include "proto/coordination_tensorflow.pb-c.h"
#include "proto/guard.h"

/* XLA's clients look for the details under the names that they had in TensorFlow. */
#define DETAIL_PREFIX "type.googleapis.com/tensorflow."
#define DETAILS_MAX   3

/* protobuf-c has no const in its types, but packing does not write. */
static ProtobufCBinaryData binary_of(struct muster_bytes bytes)
{
    return (ProtobufCBinaryData){bytes.size, (uint8_t *)(uintptr_t)bytes.data};
}

/* A NUL-terminated copy. Gives; NULL: no memory. */
static char *text_copy(struct muster_mem *mem, struct muster_bytes bytes)
{
    char *copy = muster_mem_alloc(mem, bytes.size + 1);

    if (copy == NULL)
        return NULL;
    if (bytes.size > 0)
        memcpy(copy, bytes.data, bytes.size);
    copy[bytes.size] = '\0';
    return copy;
}

/* Entries and the pointers to them; the texts are copies. */
struct entries {
    Xla__Coordination__KeyValueEntry *items;
    Xla__Coordination__KeyValueEntry **pointers;
    size_t count;
};

static void entries_free(struct muster_mem *mem, struct entries *entries)
{
    for (size_t i = 0; i < entries->count; i++)
        muster_mem_free(mem, entries->items[i].key);
    muster_mem_free(mem, entries->items);
    muster_mem_free(mem, entries->pointers);
}

/* Keys are copied for their NUL, which protobuf-c needs; values are borrowed. */
static bool entries_make(struct muster_mem *mem, const struct muster_coordination_answer *answer,
                         struct entries *ret_entries)
{
    struct entries entries = {NULL, NULL, 0};
    size_t count = answer->entry_count;

    entries.items = muster_mem_alloc_zero(mem, count, sizeof(*entries.items));
    entries.pointers = muster_mem_alloc_zero(mem, count, sizeof(*entries.pointers));
    while (entries.items != NULL && entries.pointers != NULL && entries.count < count) {
        Xla__Coordination__KeyValueEntry *item = &entries.items[entries.count];

        xla__coordination__key_value_entry__init(item);
        item->key = text_copy(mem, answer->entries[entries.count].key);
        if (item->key == NULL)
            break;
        item->value = binary_of(answer->entries[entries.count].value);
        entries.pointers[entries.count++] = item;
    }
    *ret_entries = entries;
    return entries.count == count && entries.items != NULL && entries.pointers != NULL;
}

static enum muster_rc pack_entry(struct muster_mem *mem,
                                 const struct muster_coordination_answer *answer, void **ret_bytes,
                                 size_t *ret_size)
{
    Xla__Coordination__KeyValueResponse response = XLA__COORDINATION__KEY_VALUE_RESPONSE__INIT;
    struct entries entries;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (entries_make(mem, answer, &entries)) {
        response.kv = entries.items;
        rc = muster_proto_pack(mem, &response, ret_bytes, ret_size);
    }
    entries_free(mem, &entries);
    return rc;
}

static enum muster_rc pack_directory(struct muster_mem *mem,
                                     const struct muster_coordination_answer *answer,
                                     void **ret_bytes, size_t *ret_size)
{
    Xla__Coordination__GetKeyValueDirResponse response =
        XLA__COORDINATION__GET_KEY_VALUE_DIR_RESPONSE__INIT;
    struct entries entries;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (entries_make(mem, answer, &entries)) {
        response.n_kv = entries.count;
        response.kv = entries.pointers;
        rc = muster_proto_pack(mem, &response, ret_bytes, ret_size);
    }
    entries_free(mem, &entries);
    return rc;
}

static enum muster_rc pack_states(struct muster_mem *mem,
                                  const struct muster_coordination_answer *answer, void **ret_bytes,
                                  size_t *ret_size)
{
    Xla__Coordination__WatchTasksResponse response = XLA__COORDINATION__WATCH_TASKS_RESPONSE__INIT;
    Xla__Coordination__CoordinationServiceError payload =
        XLA__COORDINATION__COORDINATION_SERVICE_ERROR__INIT;
    size_t count = answer->task_count;
    Xla__Coordination__TaskInfo *infos = muster_mem_alloc_zero(mem, count, sizeof(*infos));
    Xla__Coordination__TaskInfo **pointers = muster_mem_alloc_zero(mem, count, sizeof(*pointers));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    for (size_t i = 0; infos != NULL && pointers != NULL && i < count; i++) {
        xla__coordination__task_info__init(&infos[i]);
        infos[i].task_id = (int32_t)answer->tasks[i].id;
        infos[i].state = (int32_t)answer->tasks[i].state;
        infos[i].incarnation = answer->tasks[i].incarnation;
        infos[i].error_code = (int32_t)answer->tasks[i].rc;
        if (answer->tasks[i].rc != MUSTER_OK) {
            infos[i].error_message = (char *)(uintptr_t)answer->tasks[i].text;
            infos[i].error_payload = &payload;
        }
        pointers[i] = &infos[i];
    }
    response.version_number = answer->version;
    response.n_task_state = count;
    response.task_state = pointers;
    if (infos != NULL && pointers != NULL)
        rc = muster_proto_pack(mem, &response, ret_bytes, ret_size);
    muster_mem_free(mem, infos);
    muster_mem_free(mem, pointers);
    return rc;
}

/* TensorFlow's: tasks with their states, or only the tasks, which live. */
static enum muster_rc pack_tensorflow_tasks(struct muster_mem *mem,
                                            const struct muster_coordination_answer *answer,
                                            bool has_states, void **ret_bytes, size_t *ret_size)
{
    Tensorflow__GetTaskStateResponse states = TENSORFLOW__GET_TASK_STATE_RESPONSE__INIT;
    Tensorflow__GetAliveTasksResponse alive = TENSORFLOW__GET_ALIVE_TASKS_RESPONSE__INIT;
    size_t count = answer->task_count;
    struct {
        Tensorflow__CoordinatedTask task;
        Tensorflow__CoordinatedTaskStateInfo info;
    } *items = muster_mem_alloc_zero(mem, count, sizeof(*items));
    void **pointers = muster_mem_alloc_zero(mem, count, sizeof(*pointers));
    uint64_t *incarnations = muster_mem_alloc_zero(mem, count, sizeof(*incarnations));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    bool has_memory = items != NULL && pointers != NULL && incarnations != NULL;

    for (size_t i = 0; has_memory && i < count; i++) {
        tensorflow__coordinated_task__init(&items[i].task);
        tensorflow__coordinated_task_state_info__init(&items[i].info);
        items[i].task.task_id = (int32_t)answer->tasks[i].id;
        items[i].info.task = &items[i].task;
        items[i].info.state = (int32_t)answer->tasks[i].state;
        items[i].info.error_code = (int32_t)answer->tasks[i].rc;
        if (answer->tasks[i].text != NULL)
            items[i].info.error_message = (char *)(uintptr_t)answer->tasks[i].text;
        pointers[i] = has_states ? (void *)&items[i].info : (void *)&items[i].task;
        incarnations[i] = answer->tasks[i].incarnation;
    }
    states.n_task_state = alive.n_alive_tasks = alive.n_incarnations = count;
    states.task_state = (Tensorflow__CoordinatedTaskStateInfo **)pointers;
    alive.alive_tasks = (Tensorflow__CoordinatedTask **)pointers;
    alive.incarnations = incarnations;
    if (has_memory)
        rc = muster_proto_pack(mem, has_states ? (void *)&states : (void *)&alive, ret_bytes,
                               ret_size);
    muster_mem_free(mem, items);
    muster_mem_free(mem, pointers);
    muster_mem_free(mem, incarnations);
    return rc;
}

static enum muster_rc pack_alive(struct muster_mem *mem,
                                 const struct muster_coordination_answer *answer, void **ret_bytes,
                                 size_t *ret_size)
{
    Xla__Coordination__GetAliveTasksResponse response =
        XLA__COORDINATION__GET_ALIVE_TASKS_RESPONSE__INIT;
    size_t count = answer->task_count;
    int32_t *ids = muster_mem_alloc_zero(mem, count, sizeof(*ids));
    uint64_t *incarnations = muster_mem_alloc_zero(mem, count, sizeof(*incarnations));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    for (size_t i = 0; ids != NULL && incarnations != NULL && i < count; i++) {
        ids[i] = (int32_t)answer->tasks[i].id;
        incarnations[i] = answer->tasks[i].incarnation;
    }
    response.n_alive_tasks = response.n_incarnations = count;
    response.alive_tasks = ids;
    response.incarnations = incarnations;
    if (ids != NULL && incarnations != NULL)
        rc = muster_proto_pack(mem, &response, ret_bytes, ret_size);
    muster_mem_free(mem, ids);
    muster_mem_free(mem, incarnations);
    return rc;
}

static enum muster_rc pack_small(struct muster_mem *mem, enum muster_coordination_method method,
                                 const struct muster_coordination_answer *answer, void **ret_bytes,
                                 size_t *ret_size)
{
    Xla__Coordination__RegisterTaskResponse known = XLA__COORDINATION__REGISTER_TASK_RESPONSE__INIT;
    Xla__Coordination__BarrierResponse passed = XLA__COORDINATION__BARRIER_RESPONSE__INIT;
    Tensorflow__WaitForAllTasksResponse all = TENSORFLOW__WAIT_FOR_ALL_TASKS_RESPONSE__INIT;

    known.service_incarnation = all.leader_incarnation = answer->service_incarnation;
    passed.counter = answer->counter;
    all.device_info = binary_of(answer->devices);
    switch (method) {
    case MUSTER_COORDINATION_REGISTER:
    case MUSTER_COORDINATION_HEARTBEAT:
        return muster_proto_pack(mem, &known, ret_bytes, ret_size);
    case MUSTER_COORDINATION_WAIT_FOR_ALL:
        return muster_proto_pack(mem, &all, ret_bytes, ret_size);
    case MUSTER_COORDINATION_BARRIER:
        return muster_proto_pack(mem, &passed, ret_bytes, ret_size);
    default: /* no field is set: the empty message, of whatever type */
        passed.counter = 0;
        return muster_proto_pack(mem, &passed, ret_bytes, ret_size);
    }
}

enum muster_rc muster_coordination_pack(struct muster_mem *mem,
                                        enum muster_coordination_dialect dialect,
                                        enum muster_coordination_method method,
                                        const struct muster_coordination_answer *answer,
                                        void **ret_bytes, size_t *ret_size)
{
    switch (method) {
    case MUSTER_COORDINATION_GET:
    case MUSTER_COORDINATION_TRY_GET:
    case MUSTER_COORDINATION_INCREMENT:
        return pack_entry(mem, answer, ret_bytes, ret_size);
    case MUSTER_COORDINATION_DIRECTORY:
        return pack_directory(mem, answer, ret_bytes, ret_size);
    case MUSTER_COORDINATION_WATCH:
        return pack_states(mem, answer, ret_bytes, ret_size);
    case MUSTER_COORDINATION_TASK_STATE:
        return pack_tensorflow_tasks(mem, answer, true, ret_bytes, ret_size);
    case MUSTER_COORDINATION_ALIVE:
        return dialect == MUSTER_COORDINATION_TENSORFLOW
                   ? pack_tensorflow_tasks(mem, answer, false, ret_bytes, ret_size)
                   : pack_alive(mem, answer, ret_bytes, ret_size);
    default:
        return pack_small(mem, method, answer, ret_bytes, ret_size);
    }
}

/* --- Details --- */

typedef Xla__Coordination__GrpcPayloadContainer__PayloadsEntry details_entry;

/* The bytes of an entry are on the heap until pack_details has packed the container. */
static enum muster_rc detail_add(struct muster_mem *mem, details_entry *entries, size_t *count,
                                 const char *name, const void *message)
{
    details_entry *entry = &entries[*count];
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = muster_proto_pack(mem, message, &bytes, &size);

    if (rc != MUSTER_OK)
        return rc;
    xla__coordination__grpc_payload_container__payloads_entry__init(entry);
    entry->key = (char *)(uintptr_t)name;
    entry->value = (ProtobufCBinaryData){size, bytes};
    ++*count;
    return MUSTER_OK;
}

/* Only an error that a task has reported names its source; the others are the service's own findings. */
static enum muster_rc add_error(struct muster_mem *mem, enum muster_coordination_dialect dialect,
                                const struct muster_coordination_answer *answer,
                                details_entry *entries, size_t *count)
{
    static const char name[] = DETAIL_PREFIX "CoordinationServiceError";
    Xla__Coordination__CoordinationServiceError error =
        XLA__COORDINATION__COORDINATION_SERVICE_ERROR__INIT;
    Tensorflow__CoordinationServiceError other = TENSORFLOW__COORDINATION_SERVICE_ERROR__INIT;
    Tensorflow__CoordinatedTask task = TENSORFLOW__COORDINATED_TASK__INIT;

    if ((answer->details & MUSTER_COORDINATION_DETAIL_SOURCE) != 0) {
        error.is_reported_error = other.is_reported_error = 1;
        error.source_task_id = task.task_id = (int32_t)answer->source_task;
        other.source_task = &task;
    }
    return detail_add(mem, entries, count, name,
                      dialect == MUSTER_COORDINATION_TENSORFLOW ? (void *)&other : (void *)&error);
}

static enum muster_rc add_barrier(struct muster_mem *mem,
                                  const struct muster_coordination_answer *answer,
                                  details_entry *entries, size_t *count)
{
    Xla__Coordination__BarrierError error = XLA__COORDINATION__BARRIER_ERROR__INIT;
    char *id = text_copy(mem, answer->key);
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (id == NULL)
        return rc;
    error.barrier_id = id;
    error.counter = answer->counter;
    rc = detail_add(mem, entries, count, DETAIL_PREFIX "BarrierError", &error);
    muster_mem_free(mem, id);
    return rc;
}

static enum muster_rc add_mismatch(struct muster_mem *mem,
                                   const struct muster_coordination_answer *answer,
                                   details_entry *entries, size_t *count)
{
    Xla__Coordination__ServiceMismatchError error = XLA__COORDINATION__SERVICE_MISMATCH_ERROR__INIT;

    error.service_incarnation = answer->service_incarnation;
    return detail_add(mem, entries, count, DETAIL_PREFIX "ServiceMismatchError", &error);
}

enum muster_rc muster_coordination_pack_details(struct muster_mem *mem,
                                                enum muster_coordination_dialect dialect,
                                                const struct muster_coordination_answer *answer,
                                                void **ret_bytes, size_t *ret_size)
{
    Xla__Coordination__GrpcPayloadContainer container =
        XLA__COORDINATION__GRPC_PAYLOAD_CONTAINER__INIT;
    details_entry entries[DETAILS_MAX];
    details_entry *pointers[DETAILS_MAX] = {&entries[0], &entries[1], &entries[2]};
    enum muster_rc rc = MUSTER_OK;

    *ret_bytes = NULL;
    *ret_size = 0;
    if (answer->details == 0)
        return MUSTER_OK;
    container.payloads = pointers;
    if ((answer->details & MUSTER_COORDINATION_DETAIL_ERROR) != 0)
        rc = add_error(mem, dialect, answer, entries, &container.n_payloads);
    if (rc == MUSTER_OK && (answer->details & MUSTER_COORDINATION_DETAIL_BARRIER) != 0)
        rc = add_barrier(mem, answer, entries, &container.n_payloads);
    if (rc == MUSTER_OK && (answer->details & MUSTER_COORDINATION_DETAIL_MISMATCH) != 0)
        rc = add_mismatch(mem, answer, entries, &container.n_payloads);
    if (rc == MUSTER_OK)
        rc = muster_proto_pack(mem, &container, ret_bytes, ret_size);
    for (size_t i = 0; i < container.n_payloads; i++)
        muster_mem_free(mem, entries[i].value.data);
    return rc;
}
