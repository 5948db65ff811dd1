/* The wire form of a cluster description: tensorflow.ClusterDef (cluster.proto), the bytes of
 * ClusterSpec.as_cluster_def().SerializeToString(). A ClusterDef may hold a job twice; all are
 * written again (spec->defs), so that bytes survive a round trip. */
#include <muster/cluster_spec.h>

#include "proto/cluster.pb-c.h"
#include "proto/guard.h"

#include <string.h>

/* protobuf-c takes arrays of pointers to messages; the other two arrays hold the messages. */
struct cluster_def_message {
    Tensorflow__JobDef *jobs;
    Tensorflow__JobDef **job_pointers;
    Tensorflow__JobDef__TasksEntry *entries;
    Tensorflow__JobDef__TasksEntry **entry_pointers;
};

static void message_fini(struct cluster_def_message *message, struct muster_mem *mem)
{
    muster_mem_free(mem, message->jobs);
    muster_mem_free(mem, message->job_pointers);
    muster_mem_free(mem, message->entries);
    muster_mem_free(mem, message->entry_pointers);
}

/* Four arrays for the whole cluster instead of one allocation per task. */
static enum muster_rc message_init(struct cluster_def_message *message, struct muster_mem *mem,
                                   const struct muster_cluster_spec *spec)
{
    size_t task_count = 0;

    for (size_t i = 0; i < spec->def_count; i++)
        task_count += spec->defs[i].task_count;
    message->jobs = muster_mem_alloc_zero(mem, spec->def_count, sizeof(message->jobs[0]));
    message->job_pointers =
        muster_mem_alloc_zero(mem, spec->def_count, sizeof(message->job_pointers[0]));
    message->entries = muster_mem_alloc_zero(mem, task_count, sizeof(message->entries[0]));
    message->entry_pointers =
        muster_mem_alloc_zero(mem, task_count, sizeof(message->entry_pointers[0]));
    if (message->jobs == NULL || message->job_pointers == NULL || message->entries == NULL ||
        message->entry_pointers == NULL) {
        message_fini(message, mem);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    return MUSTER_OK;
}

/* Tasks are written last index first; readers take any order, because the field is a map. An empty
 * name is left out, as proto3 leaves out defaults. */
static void fill_job(Tensorflow__JobDef *job, const struct muster_cluster_job *from,
                     Tensorflow__JobDef__TasksEntry *entries,
                     Tensorflow__JobDef__TasksEntry **pointers)
{
    tensorflow__job_def__init(job);
    job->name = from->name[0] != '\0' ? (char *)(uintptr_t)from->name : NULL;
    job->n_tasks = from->task_count;
    job->tasks = pointers;
    for (size_t i = 0; i < from->task_count; i++) {
        const struct muster_cluster_task *task = &from->tasks[from->task_count - 1 - i];

        tensorflow__job_def__tasks_entry__init(&entries[i]);
        entries[i].has_key = true;
        entries[i].key = task->index;
        entries[i].value = (char *)(uintptr_t)task->address;
        pointers[i] = &entries[i];
    }
}

enum muster_rc muster_cluster_spec_pack(const struct muster_cluster_spec *spec,
                                        struct muster_mem *mem, void **ret_bytes, size_t *ret_size)
{
    Tensorflow__ClusterDef def = TENSORFLOW__CLUSTER_DEF__INIT;
    struct cluster_def_message message;
    enum muster_rc rc = message_init(&message, mem, spec);
    size_t used = 0;

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < spec->def_count; i++) {
        fill_job(&message.jobs[i], &spec->defs[i], &message.entries[used],
                 &message.entry_pointers[used]);
        message.job_pointers[i] = &message.jobs[i];
        used += spec->defs[i].task_count;
    }
    def.n_job = spec->def_count;
    def.job = message.job_pointers;
    rc = muster_proto_pack(mem, &def, ret_bytes, ret_size);
    message_fini(&message, mem);
    return rc;
}

static const char *text_or_empty(const char *text)
{
    return text != NULL ? text : "";
}

enum muster_rc muster_cluster_spec_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                          struct muster_cluster_spec **ret_spec,
                                          struct muster_error *ret_error)
{
    /* ClusterDef, JobDef, map entry: 3 levels. An entry of few bytes becomes a message, a pointer
     * and a text, which is more memory per byte than the guard grants by itself. */
    static const struct muster_proto_limits limits = {.depth_max = 3, .memory_per_byte = 40};
    struct muster_cluster_spec_builder builder;
    Tensorflow__ClusterDef *def = NULL;
    enum muster_rc rc;

    if (size > MUSTER_CLUSTER_SPEC_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "a ClusterDef of %zu bytes is above the limit of %zu", size,
                                MUSTER_CLUSTER_SPEC_BYTES_MAX);
    rc = muster_proto_unpack(mem, &tensorflow__cluster_def__descriptor, bytes, size, &limits, &def,
                             ret_error);
    if (rc != MUSTER_OK)
        return rc;
    muster_cluster_spec_builder_init(&builder, mem, true);
    for (size_t i = 0; i < def->n_job; i++) {
        const Tensorflow__JobDef *job = def->job[i];

        muster_cluster_spec_builder_add_job(&builder, text_or_empty(job->name));
        for (size_t k = 0; k < job->n_tasks; k++)
            muster_cluster_spec_builder_add_task(&builder, job->tasks[k]->key,
                                                 text_or_empty(job->tasks[k]->value));
    }
    rc = muster_cluster_spec_build(&builder, ret_spec);
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "no memory for a ClusterDef of %zu bytes", size);
    muster_cluster_spec_builder_fini(&builder);
    muster_proto_free(def);
    return rc;
}
