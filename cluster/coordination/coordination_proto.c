/* Requests of the coordination service, in the three forms in which clients write them: XLA's present
 * numbering, XLA's earlier one, and TensorFlow's. Fields of one meaning have one name in all; they are found
 * by it, so that one reader serves all forms. A field that a form does not have reads as zero. */
#include "cluster/coordination/coordination_proto.h"

#include <string.h>

#include "proto/coordination.pb-c.h"
#include "proto/coordination_earlier.pb-c.h"
#include "proto/coordination_tensorflow.pb-c.h"
#include "proto/guard.h"

#define FIXED64_BYTES   8
/* Field 1 with a length, as the incarnations of the present numbering begin. */
#define TAG_INCARNATION 0x0a /* field 1, with a length */

/* NULL: the dialect has no such method, or only one numbering. */
static const struct {
    const ProtobufCMessageDescriptor *current, *earlier, *tensorflow;
} descriptors[] = {
#define CURRENT(name) &xla__coordination__##name##__descriptor
#define EARLIER(name) &xla__coordination__earlier__##name##__descriptor
#define TENSOR(name)  &tensorflow__##name##__descriptor
    [MUSTER_COORDINATION_REGISTER] = {CURRENT(register_task_request), NULL,
                                      TENSOR(register_task_request)},
    [MUSTER_COORDINATION_WAIT_FOR_ALL] = {NULL, NULL, TENSOR(wait_for_all_tasks_request)},
    [MUSTER_COORDINATION_HEARTBEAT] = {CURRENT(heartbeat_request), EARLIER(heartbeat_request),
                                       TENSOR(heartbeat_request)},
    [MUSTER_COORDINATION_POLL_FOR_ERROR] = {CURRENT(task_request), EARLIER(task_request),
                                            TENSOR(task_request)},
    [MUSTER_COORDINATION_SHUTDOWN] = {CURRENT(task_request), EARLIER(task_request),
                                      TENSOR(task_request)},
    [MUSTER_COORDINATION_RESET] = {CURRENT(task_request), EARLIER(task_request),
                                   TENSOR(task_request)},
    [MUSTER_COORDINATION_REPORT_ERROR] = {NULL, NULL, TENSOR(report_error_to_service_request)},
    [MUSTER_COORDINATION_WATCH] = {CURRENT(watch_tasks_request), EARLIER(watch_job_state_request),
                                   EARLIER(watch_job_state_request)},
    [MUSTER_COORDINATION_TASK_STATE] = {NULL, NULL, TENSOR(get_task_state_request)},
    [MUSTER_COORDINATION_INSERT] = {CURRENT(insert_key_value_request),
                                    EARLIER(insert_key_value_request),
                                    EARLIER(insert_key_value_request)},
    [MUSTER_COORDINATION_GET] = {CURRENT(key_request), EARLIER(key_request), EARLIER(key_request)},
    [MUSTER_COORDINATION_TRY_GET] = {CURRENT(key_request), EARLIER(key_request),
                                     EARLIER(key_request)},
    [MUSTER_COORDINATION_INCREMENT] = {CURRENT(key_request), EARLIER(key_request),
                                       EARLIER(key_request)},
    [MUSTER_COORDINATION_DIRECTORY] = {CURRENT(key_request), EARLIER(key_request),
                                       EARLIER(key_request)},
    [MUSTER_COORDINATION_DELETE] = {CURRENT(key_request), EARLIER(key_request),
                                    EARLIER(key_request)},
    [MUSTER_COORDINATION_BARRIER] = {CURRENT(barrier_request), EARLIER(barrier_request),
                                     TENSOR(barrier_request)},
    [MUSTER_COORDINATION_CANCEL_BARRIER] = {CURRENT(cancel_barrier_request),
                                            EARLIER(cancel_barrier_request),
                                            TENSOR(cancel_barrier_request)},
    [MUSTER_COORDINATION_ALIVE] = {CURRENT(get_alive_tasks_request),
                                   EARLIER(get_alive_tasks_request),
                                   TENSOR(get_alive_tasks_request)},
};

/* --- Requests --- */

static size_t skip_varint(const uint8_t *bytes, size_t size)
{
    size_t at = 0;

    while (at < size && (bytes[at] & 0x80) != 0)
        at++;
    return at < size ? at + 1 : size;
}

/* True for "08 varint" perhaps, "11" and 8 bytes, "19" and 8 bytes. In the earlier numbering field 1 is a
 * key or an entry, and neither can look like this. */
static bool is_incarnations(const uint8_t *bytes, size_t size)
{
    size_t at = 0;

    if (size > 0 && bytes[0] == 0x08)
        at = 1 + skip_varint(bytes + 1, size - 1);
    return size - at == 2 * (1 + FIXED64_BYTES) && bytes[at] == 0x11 &&
           bytes[at + 1 + FIXED64_BYTES] == 0x19;
}

/* Both numberings use the same paths, so the bytes have to tell them apart. Field 1 stands first, as all
 * writers have it. */
static bool is_current(struct muster_bytes bytes)
{
    const uint8_t *at = bytes.data;
    size_t length;

    if (bytes.size < 2 || at[0] != TAG_INCARNATION)
        return false;
    length = at[1]; /* 18 to 29: a varint of one byte */
    return length <= bytes.size - 2 && is_incarnations(at + 2, length);
}

/* A method of one numbering only has no earlier form, and its bytes are not looked at. */
static const ProtobufCMessageDescriptor *descriptor_of(enum muster_coordination_dialect dialect,
                                                       enum muster_coordination_method method,
                                                       struct muster_bytes bytes)
{
    if (dialect == MUSTER_COORDINATION_TENSORFLOW)
        return descriptors[method].tensorflow;
    return descriptors[method].earlier == NULL || is_current(bytes) ? descriptors[method].current
                                                                    : descriptors[method].earlier;
}

/* NULL: this form of the message has no such field. */
static const void *field_of(const ProtobufCMessage *message, const char *name,
                            const ProtobufCFieldDescriptor **ret_field)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);

    if (field == NULL)
        return NULL;
    *ret_field = field;
    return (const char *)message + field->offset;
}

/* Negative numbers are sign-extended, so that a cast back to any signed width gives them again. */
static uint64_t number_at(const void *at, const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
        return (uint64_t)(int64_t)*(const int32_t *)at;
    case PROTOBUF_C_TYPE_BOOL:
        return *(const protobuf_c_boolean *)at != 0;
    default:
        return *(const uint64_t *)at;
    }
}

static uint64_t number_of(const ProtobufCMessage *message, const char *name)
{
    const ProtobufCFieldDescriptor *field = NULL;
    const void *at = field_of(message, name, &field);

    return at != NULL ? number_at(at, field) : 0;
}

/* Keys are strings in one form and bytes in another. */
static struct muster_bytes bytes_of(const ProtobufCMessage *message, const char *name)
{
    const ProtobufCFieldDescriptor *field = NULL;
    const void *at = field_of(message, name, &field);

    if (at == NULL)
        return (struct muster_bytes){NULL, 0};
    if (field->type == PROTOBUF_C_TYPE_BYTES) {
        const ProtobufCBinaryData *data = at;

        return (struct muster_bytes){data->data, data->len};
    } else {
        const char *text = *(char *const *)at;

        return (struct muster_bytes){text, text != NULL ? strlen(text) : 0};
    }
}

static const ProtobufCMessage *message_of(const ProtobufCMessage *message, const char *name)
{
    const ProtobufCFieldDescriptor *field = NULL;
    const void *at = field_of(message, name, &field);

    return at != NULL && field->type == PROTOBUF_C_TYPE_MESSAGE
               ? *(const ProtobufCMessage *const *)at
               : NULL;
}

/* XLA names the asking task by a number, TensorFlow by a message that holds it. */
static uint32_t task_of(const ProtobufCMessage *message)
{
    const ProtobufCMessage *task = message_of(message, "source_task");

    return task != NULL ? (uint32_t)number_of(task, "task_id")
                        : (uint32_t)number_of(message, "source_task");
}

/* A number, or TensorFlow's message that holds it. */
static uint32_t task_at(const void *array, size_t i, const ProtobufCFieldDescriptor *field)
{
    if (field->type == PROTOBUF_C_TYPE_INT32)
        return (uint32_t)((const int32_t *)array)[i];
    return (uint32_t)number_of(((const ProtobufCMessage *const *)array)[i], "task_id");
}

/* The count of a repeated field stands where its descriptor says (quantifier_offset), the array where the
 * field is. */
static enum muster_rc read_tasks(struct muster_coordination_message *message)
{
    const ProtobufCMessage *from = message->unpacked;
    const ProtobufCFieldDescriptor *field = NULL;
    const void *const *array = field_of(from, "tasks", &field);
    size_t count;

    if (array == NULL)
        return MUSTER_OK;
    count = *(const size_t *)(const void *)((const char *)from + field->quantifier_offset);
    if (count == 0)
        return MUSTER_OK;
    message->tasks = muster_mem_alloc(message->mem, count * sizeof(*message->tasks));
    if (message->tasks == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < count; i++)
        message->tasks[i] = task_at(*array, i, field);
    message->request.tasks = message->tasks;
    message->request.task_count = count;
    return MUSTER_OK;
}

/* Everything that is read here points into the unpacked message, which lives until
 * muster_coordination_release. */
static void read_fields(struct muster_coordination_message *message)
{
    struct muster_coordination_request *request = &message->request;
    const ProtobufCMessage *from = message->unpacked;
    const ProtobufCMessage *incarnations = message_of(from, "incarnations");
    const ProtobufCMessage *entry = message_of(from, "kv");

    request->task = task_of(from);
    request->incarnation = number_of(from, "incarnation");
    if (incarnations != NULL) {
        request->has_service_incarnation = true;
        request->service_incarnation = number_of(incarnations, "service_incarnation");
        request->asker_incarnation = number_of(incarnations, "task_incarnation");
    }
    request->key = bytes_of(from, "key");
    if (entry != NULL) {
        request->key = bytes_of(entry, "key");
        request->value = bytes_of(entry, "value");
    }
    request->is_overwriting = number_of(from, "allow_overwrite") != 0;
    request->counter = (int64_t)number_of(from, "counter");
    request->timeout_ms = (int64_t)number_of(from, "barrier_timeout_in_ms");
    switch (request->method) {
    case MUSTER_COORDINATION_BARRIER:
    case MUSTER_COORDINATION_CANCEL_BARRIER:
        request->key = bytes_of(from, "barrier_id");
        break;
    case MUSTER_COORDINATION_WAIT_FOR_ALL:
        request->value = bytes_of(from, "device_info");
        break;
    case MUSTER_COORDINATION_REPORT_ERROR:
        request->key = bytes_of(from, "error_message");
        request->number = (int64_t)number_of(from, "error_code");
        break;
    case MUSTER_COORDINATION_INCREMENT:
        request->number = (int64_t)number_of(from, "increment");
        break;
    case MUSTER_COORDINATION_WATCH:
        request->number = (int64_t)number_of(from, "version_number");
        break;
    default:
        break;
    }
}

enum muster_rc muster_coordination_unpack(struct muster_mem *mem,
                                          enum muster_coordination_dialect dialect,
                                          enum muster_coordination_method method,
                                          struct muster_bytes bytes,
                                          struct muster_coordination_message *ret_message,
                                          struct muster_error *ret_error)
{
    const ProtobufCMessageDescriptor *descriptor = descriptor_of(dialect, method, bytes);
    enum muster_rc rc;

    memset(ret_message, 0, sizeof(*ret_message));
    ret_message->mem = mem;
    ret_message->request.method = method;
    rc = muster_proto_unpack(mem, descriptor, bytes.data, bytes.size, NULL, &ret_message->unpacked,
                             ret_error);
    if (rc != MUSTER_OK)
        return rc;
    read_fields(ret_message);
    rc = read_tasks(ret_message);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "out of memory");
}

void muster_coordination_release(struct muster_coordination_message *message)
{
    muster_mem_free(message->mem, message->tasks);
    muster_proto_free(message->unpacked);
}
