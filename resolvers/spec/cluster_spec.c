/* A cluster description as a value: one block of memory, built once and never changed, so that
 * everybody may keep a reference. A builder collects jobs and tasks first; its rules for names and
 * indices that come twice are those of TensorFlow's ClusterSpec, which stands on Python dicts. */
#include <muster/cluster_spec.h>

#include <stdlib.h>
#include <string.h>

#include "runtime/value/array.h"

/* Name and addresses are borrowed until the builder is finished: only the built block has
 * copies. */
struct muster_cluster_builder_job {
    const char *name;
    struct muster_cluster_task *tasks;
    size_t task_count;
    size_t task_capacity;
    size_t order; /* as added */
};

void muster_cluster_spec_builder_init(struct muster_cluster_spec_builder *builder,
                                      struct muster_mem *mem, bool is_def)
{
    *builder = (struct muster_cluster_spec_builder){.mem = mem, .is_def = is_def};
}

void muster_cluster_spec_builder_fini(struct muster_cluster_spec_builder *builder)
{
    for (size_t i = 0; i < builder->job_count; i++)
        muster_mem_free(builder->mem, builder->jobs[i].tasks);
    muster_mem_free(builder->mem, builder->jobs);
    builder->jobs = NULL;
    builder->job_count = 0;
}

/* A lack of memory is remembered and reported by muster_cluster_spec_build, so that callers need
 * not check every job and task. */
void muster_cluster_spec_builder_add_job(struct muster_cluster_spec_builder *builder,
                                         const char *name)
{
    struct muster_cluster_builder_job *jobs;

    if (builder->is_failed)
        return;
    jobs = muster_array_reserve(builder->mem, builder->jobs, builder->job_count,
                                &builder->job_capacity, sizeof(jobs[0]));
    builder->is_failed = jobs == NULL;
    if (builder->is_failed)
        return;
    builder->jobs = jobs;
    builder->jobs[builder->job_count] =
        (struct muster_cluster_builder_job){.name = name, .order = builder->job_count};
    builder->job_count++;
}

void muster_cluster_spec_builder_add_task(struct muster_cluster_spec_builder *builder,
                                          int32_t index, const char *address)
{
    struct muster_cluster_builder_job *job;
    struct muster_cluster_task *tasks;

    if (builder->is_failed)
        return;
    MUSTER_ASSERT(builder->job_count > 0);
    job = &builder->jobs[builder->job_count - 1];
    tasks = muster_array_reserve(builder->mem, job->tasks, job->task_count, &job->task_capacity,
                                 sizeof(tasks[0]));
    builder->is_failed = tasks == NULL;
    if (builder->is_failed)
        return;
    job->tasks = tasks;
    job->tasks[job->task_count] = (struct muster_cluster_task){.index = index, .address = address};
    job->task_count++;
}

/* qsort is not stable: equal indices are told apart by their place. */
struct sort_task {
    struct muster_cluster_task task;
    size_t order;
};

static int compare_tasks(const void *a, const void *b)
{
    const struct sort_task *left = a;
    const struct sort_task *right = b;
    int order = (left->task.index > right->task.index) - (left->task.index < right->task.index);

    return order != 0 ? order : left->order < right->order ? -1 : 1;
}

/* Most platforms list their tasks in order: those need no sorting and no memory for it. */
static bool is_ascending(const struct muster_cluster_builder_job *job)
{
    for (size_t i = 1; i < job->task_count; i++) {
        if (job->tasks[i - 1].index >= job->tasks[i].index)
            return false;
    }
    return true;
}

/* Sort by index; of equal indices the last added stays, as in a Python dict. */
static enum muster_rc sort_tasks(struct muster_mem *mem, struct muster_cluster_builder_job *job)
{
    struct sort_task *sorted;
    size_t count = 0;

    if (is_ascending(job))
        return MUSTER_OK;
    sorted = muster_mem_alloc_zero(mem, job->task_count, sizeof(sorted[0]));
    if (sorted == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < job->task_count; i++)
        sorted[i] = (struct sort_task){.task = job->tasks[i], .order = i};
    qsort(sorted, job->task_count, sizeof(sorted[0]), compare_tasks);
    for (size_t i = 0; i < job->task_count; i++) {
        if (count > 0 && job->tasks[count - 1].index == sorted[i].task.index)
            count--;
        job->tasks[count] = sorted[i].task;
        count++;
    }
    job->task_count = count;
    muster_mem_free(mem, sorted);
    return MUSTER_OK;
}

/* Jobs of one name stand together, in the order in which they were added (fill_spec). */
static int compare_builder_jobs(const void *a, const void *b)
{
    const struct muster_cluster_builder_job *left = a;
    const struct muster_cluster_builder_job *right = b;
    int order = strcmp(left->name, right->name);

    if (order != 0)
        return order;
    return left->order < right->order ? -1 : 1;
}

/* Sizes of the block, which holds spec, by_name, jobs, defs, tasks and texts in this order: every
 * part starts aligned because alignments only fall along it. One block is freed at once and stays
 * together in the cache. */
struct block_layout {
    size_t job_count;
    size_t task_count;
    size_t text_bytes;
};

static struct block_layout measure_block(const struct muster_cluster_spec_builder *builder)
{
    struct block_layout layout = {.job_count = builder->job_count};

    for (size_t i = 0; i < builder->job_count; i++) {
        const struct muster_cluster_builder_job *job = &builder->jobs[i];

        layout.task_count += job->task_count;
        layout.text_bytes += strlen(job->name) + 1;
        for (size_t k = 0; k < job->task_count; k++)
            layout.text_bytes += strlen(job->tasks[k].address) + 1;
    }
    return layout;
}

static const char *copy_text(char **place, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = *place;

    memcpy(copy, text, bytes);
    *place += bytes;
    return copy;
}

/* by_name and jobs have room for every job, though names that came twice leave places unused. */
static struct muster_cluster_spec *place_block(struct muster_mem *mem,
                                               const struct block_layout *layout,
                                               struct muster_cluster_job **ret_defs,
                                               struct muster_cluster_task **ret_tasks,
                                               char **ret_texts)
{
    size_t pointer_bytes = layout->job_count * sizeof(struct muster_cluster_job *);
    size_t def_bytes = layout->job_count * sizeof(struct muster_cluster_job);
    size_t task_bytes = layout->task_count * sizeof(struct muster_cluster_task);
    struct muster_cluster_spec *spec = muster_mem_alloc(
        mem, sizeof(*spec) + 2 * pointer_bytes + def_bytes + task_bytes + layout->text_bytes);
    char *at;

    if (spec == NULL)
        return NULL;
    at = (char *)(spec + 1);
    *spec = (struct muster_cluster_spec){.references = 1, .mem = mem};
    spec->by_name = (void *)at;
    spec->jobs = (void *)(at + pointer_bytes);
    *ret_defs = (void *)(at + 2 * pointer_bytes);
    spec->defs = *ret_defs;
    *ret_tasks = (void *)(at + 2 * pointer_bytes + def_bytes);
    *ret_texts = at + 2 * pointer_bytes + def_bytes + task_bytes;
    return spec;
}

static void fill_def(struct muster_cluster_job *def, const struct muster_cluster_builder_job *job,
                     struct muster_cluster_task **tasks, char **texts)
{
    struct muster_cluster_task *own = *tasks;

    *tasks += job->task_count;
    for (size_t i = 0; i < job->task_count; i++) {
        own[i].index = job->tasks[i].index;
        own[i].address = copy_text(texts, job->tasks[i].address);
    }
    def->name = copy_text(texts, job->name);
    def->task_count = job->task_count;
    def->tasks = own;
}

/* Builder jobs are sorted by (name, order). A name that was added several times stands in `jobs`
 * where it came first, with its last value, as a Python dict keeps it. */
static void fill_spec(struct muster_cluster_spec *spec,
                      const struct muster_cluster_spec_builder *builder,
                      struct muster_cluster_job *defs, struct muster_cluster_task *tasks,
                      char *texts)
{
    const struct muster_cluster_builder_job *jobs = builder->jobs;
    size_t name_count = 0;
    size_t first = 0;

    spec->def_count = builder->job_count;
    memset(spec->jobs, 0, builder->job_count * sizeof(spec->jobs[0]));
    for (size_t i = 0; i < builder->job_count; i++) {
        struct muster_cluster_job *def = &defs[builder->is_def ? jobs[i].order : i];

        fill_def(def, &jobs[i], &tasks, &texts);
        if (i + 1 < builder->job_count && strcmp(jobs[i].name, jobs[i + 1].name) == 0)
            continue;
        spec->jobs[jobs[first].order] = def;
        spec->by_name[name_count++] = def;
        first = i + 1;
    }
    for (size_t i = 0; i < builder->job_count; i++) {
        if (spec->jobs[i] != NULL)
            spec->jobs[spec->job_count++] = spec->jobs[i];
    }
    MUSTER_ASSERT(spec->job_count == name_count);
}

enum muster_rc muster_cluster_spec_build(struct muster_cluster_spec_builder *builder,
                                         struct muster_cluster_spec **ret_spec)
{
    struct muster_cluster_spec *spec;
    struct muster_cluster_task *tasks;
    struct muster_cluster_job *defs;
    struct block_layout layout;
    char *texts;

    for (size_t i = 0; i < builder->job_count && !builder->is_failed; i++)
        builder->is_failed = sort_tasks(builder->mem, &builder->jobs[i]) != MUSTER_OK;
    if (builder->is_failed)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (builder->job_count > 0)
        qsort(builder->jobs, builder->job_count, sizeof(builder->jobs[0]), compare_builder_jobs);
    layout = measure_block(builder);
    spec = place_block(builder->mem, &layout, &defs, &tasks, &texts);
    if (spec == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    fill_spec(spec, builder, defs, tasks, texts);
    *ret_spec = spec;
    return MUSTER_OK;
}

struct muster_cluster_spec *muster_cluster_spec_ref(struct muster_cluster_spec *spec)
{
    MUSTER_ASSERT(spec->references > 0);
    spec->references++;
    return spec;
}

void muster_cluster_spec_unref(struct muster_cluster_spec *spec)
{
    if (spec == NULL)
        return;
    MUSTER_ASSERT(spec->references > 0);
    spec->references--;
    if (spec->references == 0)
        muster_mem_free(spec->mem, spec);
}

static void add_defs(struct muster_cluster_spec_builder *builder,
                     const struct muster_cluster_spec *spec)
{
    for (size_t i = 0; i < spec->def_count; i++) {
        const struct muster_cluster_job *job = &spec->defs[i];

        muster_cluster_spec_builder_add_job(builder, job->name);
        for (size_t k = 0; k < job->task_count; k++)
            muster_cluster_spec_builder_add_task(builder, job->tasks[k].index,
                                                 job->tasks[k].address);
    }
}

/* As ClusterDef.MergeFrom: the job lists are joined (is_def), and a job that both have counts with
 * its last value. */
enum muster_rc muster_cluster_spec_merge(struct muster_mem *mem,
                                         const struct muster_cluster_spec *first,
                                         const struct muster_cluster_spec *second,
                                         struct muster_cluster_spec **ret_spec)
{
    struct muster_cluster_spec_builder builder;
    enum muster_rc rc;

    muster_cluster_spec_builder_init(&builder, mem, true);
    add_defs(&builder, first);
    add_defs(&builder, second);
    rc = muster_cluster_spec_build(&builder, ret_spec);
    muster_cluster_spec_builder_fini(&builder);
    return rc;
}
