/* The wire form of a server's definition: tensorflow.ServerDef (server.proto). */
#include <muster/server_def.h>

#include "proto/guard.h"
#include "proto/server.pb-c.h"

#include <string.h>

/* --- Packing --- */

/* protobuf-c takes arrays of pointers to messages; each array here is after its pointers. */
struct filters_message {
    Tensorflow__JobDeviceFilters *jobs;
    Tensorflow__JobDeviceFilters **job_pointers;
    Tensorflow__JobDeviceFilters__TasksEntry *entries;
    Tensorflow__JobDeviceFilters__TasksEntry **entry_pointers;
    Tensorflow__TaskDeviceFilters *tasks;
    size_t job_count;
};

static void message_fini(struct filters_message *message, struct muster_mem *mem)
{
    muster_mem_free(mem, message->jobs);
    muster_mem_free(mem, message->job_pointers);
    muster_mem_free(mem, message->entries);
    muster_mem_free(mem, message->entry_pointers);
    muster_mem_free(mem, message->tasks);
}

static enum muster_rc message_init(struct filters_message *message, struct muster_mem *mem,
                                   size_t count)
{
    message->job_count = 0;
    message->jobs = muster_mem_alloc_zero(mem, count, sizeof(message->jobs[0]));
    message->job_pointers = muster_mem_alloc_zero(mem, count, sizeof(message->job_pointers[0]));
    message->entries = muster_mem_alloc_zero(mem, count, sizeof(message->entries[0]));
    message->entry_pointers = muster_mem_alloc_zero(mem, count, sizeof(message->entry_pointers[0]));
    message->tasks = muster_mem_alloc_zero(mem, count, sizeof(message->tasks[0]));
    if (message->jobs != NULL && message->job_pointers != NULL && message->entries != NULL &&
        message->entry_pointers != NULL && message->tasks != NULL)
        return MUSTER_OK;
    message_fini(message, mem);
    return MUSTER_RESOURCE_EXHAUSTED;
}

static void task_fill(struct filters_message *message, size_t i,
                      const struct muster_device_filter *filter)
{
    Tensorflow__TaskDeviceFilters *task = &message->tasks[i];
    Tensorflow__JobDeviceFilters__TasksEntry *entry = &message->entries[i];

    tensorflow__task_device_filters__init(task);
    task->n_device_filters = filter->filter_count;
    task->device_filters = (char **)(uintptr_t)filter->filters;
    tensorflow__job_device_filters__tasks_entry__init(entry);
    entry->has_key = true;
    entry->key = filter->task;
    entry->value = task;
    message->entry_pointers[i] = entry;
}

/* Filters of one job that follow each other are one message. */
static void job_add(struct filters_message *message, size_t i,
                    const struct muster_device_filter *filter)
{
    Tensorflow__JobDeviceFilters *last =
        message->job_count > 0 ? &message->jobs[message->job_count - 1] : NULL;
    const char *job = filter->job != NULL ? filter->job : "";

    if (last == NULL || strcmp(last->name, job) != 0) {
        last = &message->jobs[message->job_count];
        tensorflow__job_device_filters__init(last);
        last->name = (char *)(uintptr_t)job;
        last->tasks = &message->entry_pointers[i];
        message->job_pointers[message->job_count++] = last;
    }
    last->n_tasks++;
}

static enum muster_rc filters_pack(const struct muster_server_def *def, struct muster_mem *mem,
                                   ProtobufCBinaryData *ret_data)
{
    Tensorflow__ClusterDeviceFilters filters = TENSORFLOW__CLUSTER_DEVICE_FILTERS__INIT;
    struct filters_message message;
    void *bytes = NULL;
    enum muster_rc rc = message_init(&message, mem, def->device_filter_count);

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < def->device_filter_count; i++) {
        task_fill(&message, i, &def->device_filters[i]);
        job_add(&message, i, &def->device_filters[i]);
    }
    filters.n_jobs = message.job_count;
    filters.jobs = message.job_pointers;
    rc = muster_proto_pack(mem, &filters, &bytes, &ret_data->len);
    ret_data->data = bytes;
    message_fini(&message, mem);
    return rc;
}

/* Fields with their default are left out, as proto3 leaves them out. */
static char *text_unless_empty(const char *text)
{
    return text != NULL && text[0] != '\0' ? (char *)(uintptr_t)text : NULL;
}

static enum muster_rc def_pack(const struct muster_server_def *def, struct muster_mem *mem,
                               ProtobufCBinaryData *cluster, ProtobufCBinaryData *filters,
                               void **ret_bytes, size_t *ret_size)
{
    Tensorflow__ServerDef message = TENSORFLOW__SERVER_DEF__INIT;
    ProtobufCBinaryData config = {.len = def->config.size,
                                  .data = (uint8_t *)(uintptr_t)def->config.data};

    message.n_cluster = def->cluster != NULL;
    message.cluster = cluster;
    message.job_name = text_unless_empty(def->job);
    message.has_task_index = def->task != 0;
    message.task_index = def->task;
    message.n_default_session_config = config.len > 0;
    message.default_session_config = &config;
    message.protocol = text_unless_empty(def->protocol);
    message.has_port = def->port != 0;
    message.port = def->port;
    message.n_cluster_device_filters = def->device_filter_count > 0;
    message.cluster_device_filters = filters;
    return muster_proto_pack(mem, &message, ret_bytes, ret_size);
}

enum muster_rc muster_server_def_pack(const struct muster_server_def *def, struct muster_mem *mem,
                                      void **ret_bytes, size_t *ret_size)
{
    ProtobufCBinaryData cluster = {.len = 0}, filters = {.len = 0};
    void *bytes = NULL;
    enum muster_rc rc = MUSTER_OK;

    if (def->cluster != NULL)
        rc = muster_cluster_spec_pack(def->cluster, mem, &bytes, &cluster.len);
    cluster.data = bytes;
    if (rc == MUSTER_OK && def->device_filter_count > 0)
        rc = filters_pack(def, mem, &filters);
    if (rc == MUSTER_OK)
        rc = def_pack(def, mem, &cluster, &filters, ret_bytes, ret_size);
    muster_mem_free(mem, cluster.data);
    muster_mem_free(mem, filters.data);
    return rc;
}

/* --- Unpacking --- */

/* Pieces of one message, one after the other, are that message. Gives. */
static enum muster_rc pieces_join(struct muster_mem *mem, const ProtobufCBinaryData *pieces,
                                  size_t count, struct muster_bytes *ret_joined)
{
    size_t size = 0;
    uint8_t *bytes;

    for (size_t i = 0; i < count; i++)
        size += pieces[i].len;
    bytes = muster_mem_alloc(mem, size > 0 ? size : 1);
    if (bytes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    ret_joined->data = bytes;
    ret_joined->size = 0;
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].len > 0)
            memcpy(bytes + ret_joined->size, pieces[i].data, pieces[i].len);
        ret_joined->size += pieces[i].len;
    }
    return MUSTER_OK;
}

/* Everything that an unpack makes on its way. */
struct unpacked {
    struct muster_mem *mem;
    Tensorflow__ServerDef *message;
    Tensorflow__ClusterDeviceFilters *filters;
    struct muster_bytes cluster_bytes, config, filter_bytes;
    struct muster_cluster_spec *cluster;
    struct muster_device_filter *device_filters;
    size_t device_filter_count;
};

static void unpacked_fini(struct unpacked *unpacked)
{
    muster_mem_free(unpacked->mem, (void *)(uintptr_t)unpacked->cluster_bytes.data);
    muster_mem_free(unpacked->mem, (void *)(uintptr_t)unpacked->config.data);
    muster_mem_free(unpacked->mem, (void *)(uintptr_t)unpacked->filter_bytes.data);
    muster_mem_free(unpacked->mem, unpacked->device_filters);
    muster_cluster_spec_unref(unpacked->cluster);
    muster_proto_free(unpacked->filters);
    muster_proto_free(unpacked->message);
}

static enum muster_rc pieces_read(struct unpacked *unpacked)
{
    const Tensorflow__ServerDef *message = unpacked->message;
    enum muster_rc rc = pieces_join(unpacked->mem, message->cluster, message->n_cluster,
                                    &unpacked->cluster_bytes);

    if (rc == MUSTER_OK)
        rc = pieces_join(unpacked->mem, message->default_session_config,
                         message->n_default_session_config, &unpacked->config);
    if (rc == MUSTER_OK)
        rc = pieces_join(unpacked->mem, message->cluster_device_filters,
                         message->n_cluster_device_filters, &unpacked->filter_bytes);
    return rc;
}

static void filters_read(struct unpacked *unpacked)
{
    for (size_t i = 0; i < unpacked->filters->n_jobs; i++) {
        const Tensorflow__JobDeviceFilters *job = unpacked->filters->jobs[i];

        for (size_t k = 0; k < job->n_tasks; k++) {
            const Tensorflow__TaskDeviceFilters *task = job->tasks[k]->value;

            unpacked->device_filters[unpacked->device_filter_count++] =
                (struct muster_device_filter){
                    .job = job->name,
                    .task = job->tasks[k]->key,
                    .filters = task != NULL ? (const char *const *)task->device_filters : NULL,
                    .filter_count = task != NULL ? task->n_device_filters : 0};
        }
    }
}

static enum muster_rc filters_unpack(struct unpacked *unpacked, struct muster_error *ret_error)
{
    static const struct muster_proto_limits limits = {.depth_max = 4, .memory_per_byte = 40};
    size_t count = 0;
    enum muster_rc rc = muster_proto_unpack(
        unpacked->mem, &tensorflow__cluster_device_filters__descriptor, unpacked->filter_bytes.data,
        unpacked->filter_bytes.size, &limits, &unpacked->filters, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < unpacked->filters->n_jobs; i++)
        count += unpacked->filters->jobs[i]->n_tasks;
    unpacked->device_filters =
        muster_mem_alloc_zero(unpacked->mem, count, sizeof(unpacked->device_filters[0]));
    if (unpacked->device_filters == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the filters");
    filters_read(unpacked);
    return MUSTER_OK;
}

static enum muster_rc def_unpack(struct unpacked *unpacked, struct muster_server_def **ret_def,
                                 struct muster_error *ret_error)
{
    const Tensorflow__ServerDef *message = unpacked->message;
    enum muster_rc rc;

    if (message->port < 0 || message->port > UINT16_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the port of a ServerDef must be 0 to 65535, got %d",
                                message->port);
    rc = pieces_read(unpacked);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for a ServerDef");
    if (message->n_cluster > 0)
        rc = muster_cluster_spec_unpack(unpacked->mem, unpacked->cluster_bytes.data,
                                        unpacked->cluster_bytes.size, &unpacked->cluster, ret_error);
    if (rc == MUSTER_OK)
        rc = filters_unpack(unpacked, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_server_def_new(
        unpacked->mem,
        &(struct muster_server_def){.cluster = unpacked->cluster,
                                    .job = message->job_name,
                                    .task = message->task_index,
                                    .protocol = message->protocol,
                                    .config = unpacked->config,
                                    .port = (uint16_t)message->port,
                                    .device_filters = unpacked->device_filters,
                                    .device_filter_count = unpacked->device_filter_count},
        ret_def);
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "no memory for a ServerDef");
}

enum muster_rc muster_server_def_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                        struct muster_server_def **ret_def,
                                        struct muster_error *ret_error)
{
    static const struct muster_proto_limits limits = {.depth_max = 1};
    struct unpacked unpacked = {.mem = mem};
    enum muster_rc rc;

    if (size > MUSTER_CLUSTER_SPEC_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "a ServerDef must have at most %zu bytes, got %zu",
                                MUSTER_CLUSTER_SPEC_BYTES_MAX, size);
    rc = muster_proto_unpack(mem, &tensorflow__server_def__descriptor, bytes, size, &limits,
                             &unpacked.message, ret_error);
    if (rc == MUSTER_OK)
        rc = def_unpack(&unpacked, ret_def, ret_error);
    unpacked_fini(&unpacked);
    return rc;
}
