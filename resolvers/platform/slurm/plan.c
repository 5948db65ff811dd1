/* Nodes sorted by name give their tasks one by one; the tasks are cut into jobs sorted by name
 * (SlurmClusterResolver.cluster_spec). Every task computes the same plan from its own variables, so
 * nothing here may depend on the order in which Slurm lists nodes. */
#include "resolvers/platform/slurm/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_TEXT_BYTES 12 /* "4294967295," */
#define TASKS_MAX         (1 << 20) /* a malformed count must not take all memory */

uint64_t muster_slurm_step_task_count(const struct muster_slurm_step *step)
{
    uint64_t count = 0;

    for (size_t i = 0; i < step->node_count; i++)
        count += step->nodes[i].task_count;
    return count;
}

static uint32_t fullest_node(const struct muster_slurm_step *step)
{
    uint32_t most = 0;

    for (size_t i = 0; i < step->node_count; i++) {
        if (step->nodes[i].task_count > most)
            most = step->nodes[i].task_count;
    }
    return most;
}

/* By default the fullest node's tasks share its GPUs evenly; 0 where there are more tasks than
 * GPUs, or none at all. */
static uint32_t gpus_per_task(const struct muster_slurm_step *step)
{
    uint32_t most = fullest_node(step);

    if (step->has_gpus_per_task)
        return step->gpus_per_task;
    return most > 0 ? step->gpus_per_node / most : 0;
}

enum muster_rc muster_slurm_step_check(const struct muster_slurm_step *step,
                                       struct muster_error *ret_error)
{
    uint64_t assigned = muster_slurm_step_task_count(step);
    uint64_t most = fullest_node(step);
    uint64_t asked = 0;

    for (size_t i = 0; i < step->job_count; i++)
        asked += step->jobs[i].task_count;
    if (assigned > TASKS_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "a step of %" PRIu64 " tasks is above the limit of %d", assigned,
                                TASKS_MAX);
    if (asked != assigned)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the jobs ask for %" PRIu64 " tasks, Slurm assigned %" PRIu64
                                " to %zu nodes: correct jobs=, or the step's number of tasks",
                                asked, assigned, step->node_count);
    if (most * gpus_per_task(step) > step->gpus_per_node)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%" PRIu64 " tasks on a node with %u GPUs each are more than its "
                                "%u GPUs: lower gpus_per_task",
                                most, gpus_per_task(step), step->gpus_per_node);
    if (step->port_base + most > UINT64_C(65536))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%" PRIu64 " tasks on a node from port %u on end above port 65535: "
                                "lower port_base",
                                most, step->port_base);
    if (step->rank < 0 || (uint64_t)step->rank >= assigned)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "SLURM_PROCID=%" PRId64 " is outside the step's %" PRIu64 " tasks",
                                step->rank, assigned);
    return MUSTER_OK;
}

static int compare_nodes(const void *a, const void *b)
{
    const struct muster_slurm_node *left = a;
    const struct muster_slurm_node *right = b;

    return strcmp(left->host, right->host);
}

static int compare_jobs(const void *a, const void *b)
{
    const struct muster_slurm_job *left = a;
    const struct muster_slurm_job *right = b;

    return strcmp(left->name, right->name);
}

/* A sorted copy. Gives. */
static void *sort_copy(struct muster_mem *mem, const void *array, size_t count, size_t bytes,
                       int (*compare)(const void *, const void *))
{
    char *copy = muster_mem_alloc(mem, count * bytes);

    if (copy != NULL && count > 0) {
        memcpy(copy, array, count * bytes);
        qsort(copy, count, bytes, compare);
    }
    return copy;
}

/* The walk over all tasks in order. */
struct slurm_walk {
    const struct muster_slurm_step *step;
    const struct muster_slurm_node *nodes; /* sorted */
    const struct muster_slurm_job *jobs;   /* sorted */
    struct muster_cluster_spec_builder builder;
    char *texts; /* of addresses */
    uint32_t own_offset;
    size_t own_job;
    int64_t own_id;
};

/* The own place, by node name and local id if they are known, else by rank: Slurm may deal ranks in
 * another order than that of nodes sorted by name. */
static uint64_t find_own(const struct slurm_walk *walk)
{
    const struct muster_slurm_step *step = walk->step;
    uint64_t flat = 0;

    if (step->node_name == NULL || step->local_id < 0)
        return (uint64_t)step->rank;
    for (size_t i = 0; i < step->node_count; i++) {
        if (strcmp(walk->nodes[i].host, step->node_name) == 0 &&
            step->local_id < (int64_t)walk->nodes[i].task_count)
            return flat + (uint64_t)step->local_id;
        flat += walk->nodes[i].task_count;
    }
    return (uint64_t)step->rank;
}

static size_t measure_texts(const struct slurm_walk *walk)
{
    size_t bytes = 1;

    for (size_t i = 0; i < walk->step->node_count; i++)
        bytes += walk->nodes[i].task_count * (strlen(walk->nodes[i].host) + sizeof(":65535"));
    return bytes;
}

/* Begin jobs until one has room for the next task; `job_left` tasks are missing in the last. */
static void begin_jobs(struct slurm_walk *walk, size_t *next_job, uint32_t *job_left)
{
    while (*job_left == 0 && *next_job < walk->step->job_count) {
        muster_cluster_spec_builder_add_job(&walk->builder, walk->jobs[*next_job].name);
        *job_left = walk->jobs[*next_job].task_count;
        *next_job += 1;
    }
}

static void add_tasks(struct slurm_walk *walk)
{
    uint64_t own = find_own(walk);
    uint64_t flat = 0;
    size_t next_job = 0;
    uint32_t job_left = 0;
    char *text = walk->texts;

    for (size_t i = 0; i < walk->step->node_count; i++) {
        for (uint32_t offset = 0; offset < walk->nodes[i].task_count; offset++, flat++) {
            int32_t index;

            begin_jobs(walk, &next_job, &job_left);
            MUSTER_ASSERT(job_left > 0); /* muster_slurm_step_check: jobs ask for as many tasks */
            index = (int32_t)(walk->jobs[next_job - 1].task_count - job_left);
            muster_cluster_spec_builder_add_task(&walk->builder, index, text);
            text += sprintf(text, "%s:%u", walk->nodes[i].host, walk->step->port_base + offset) + 1;
            job_left--;
            if (flat == own) {
                walk->own_offset = offset;
                walk->own_job = next_job - 1;
                walk->own_id = index;
            }
        }
    }
    begin_jobs(walk, &next_job, &job_left); /* those without tasks */
}

/* "4,5": the GPUs of the task at its offset on the node. *ret_gpus NULL: it has none. Gives. */
static enum muster_rc format_gpus(struct muster_mem *mem, uint32_t offset, uint32_t count,
                                  char **ret_gpus)
{
    size_t length = 0;
    char *text = NULL;

    if (count > 0) {
        text = muster_mem_alloc(mem, (size_t)count * DEVICE_TEXT_BYTES);
        if (text == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
    }
    for (uint32_t i = 0; i < count; i++)
        length += (size_t)sprintf(text + length, "%s%u", i > 0 ? "," : "", offset * count + i);
    *ret_gpus = text;
    return MUSTER_OK;
}

static enum muster_rc make_plan(struct slurm_walk *walk, struct muster_mem *mem,
                                struct muster_slurm_plan *ret_plan)
{
    struct muster_slurm_plan plan = {.gpus_per_task = gpus_per_task(walk->step)};
    enum muster_rc rc;

    add_tasks(walk);
    rc = muster_cluster_spec_build(&walk->builder, &plan.cluster_spec);
    if (rc == MUSTER_OK)
        rc = format_gpus(mem, walk->own_offset, plan.gpus_per_task, &plan.gpus);
    if (rc != MUSTER_OK) {
        muster_slurm_plan_fini(&plan, mem);
        return rc;
    }
    plan.task_type =
        muster_cluster_spec_job(plan.cluster_spec, walk->jobs[walk->own_job].name)->name;
    plan.task_id = walk->own_id;
    *ret_plan = plan;
    return MUSTER_OK;
}

static enum muster_rc check_names(const struct slurm_walk *walk, struct muster_error *ret_error)
{
    for (size_t i = 1; i < walk->step->node_count; i++) {
        if (strcmp(walk->nodes[i - 1].host, walk->nodes[i].host) == 0)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "host '%.80s' stands twice in the list of nodes",
                                    walk->nodes[i].host);
    }
    for (size_t i = 1; i < walk->step->job_count; i++) {
        if (strcmp(walk->jobs[i - 1].name, walk->jobs[i].name) == 0)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "job '%.80s' stands twice in jobs=", walk->jobs[i].name);
    }
    return MUSTER_OK;
}

enum muster_rc muster_slurm_plan_init(struct muster_slurm_plan *plan, struct muster_mem *mem,
                                      const struct muster_slurm_step *step,
                                      struct muster_error *ret_error)
{
    void *nodes =
        sort_copy(mem, step->nodes, step->node_count, sizeof(step->nodes[0]), compare_nodes);
    void *jobs = sort_copy(mem, step->jobs, step->job_count, sizeof(step->jobs[0]), compare_jobs);
    struct slurm_walk walk = {.step = step, .nodes = nodes, .jobs = jobs};
    enum muster_rc rc = muster_slurm_step_check(step, ret_error);

    muster_cluster_spec_builder_init(&walk.builder, mem, false);
    if (rc == MUSTER_OK && nodes != NULL && jobs != NULL) {
        rc = check_names(&walk, ret_error);
        walk.texts = rc == MUSTER_OK ? muster_mem_alloc(mem, measure_texts(&walk)) : NULL;
    }
    if (rc == MUSTER_OK && (walk.texts == NULL || make_plan(&walk, mem, plan) != MUSTER_OK))
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                              "no memory for a Slurm step of %zu nodes", step->node_count);
    muster_cluster_spec_builder_fini(&walk.builder);
    muster_mem_free(mem, walk.texts);
    muster_mem_free(mem, nodes);
    muster_mem_free(mem, jobs);
    return rc;
}

void muster_slurm_plan_fini(struct muster_slurm_plan *plan, struct muster_mem *mem)
{
    muster_cluster_spec_unref(plan->cluster_spec);
    muster_mem_free(mem, plan->gpus);
    *plan = (struct muster_slurm_plan){.cluster_spec = NULL};
}
