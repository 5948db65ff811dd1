/* Two descriptions of one cluster side by side: jobs by name, tasks by index. A task whose address
 * has changed is one MOVED, not a REMOVED and an ADDED: it is the same task elsewhere. Texts in the
 * changes belong to the two descriptions. */
#include <muster/cluster_spec.h>

#include <string.h>

/* Count a change, and keep it if there is an array: the first walk over the clusters only counts.
 * */
static void add_change(struct muster_cluster_diff *diff, const char *job,
                       const struct muster_cluster_task *before,
                       const struct muster_cluster_task *after)
{
    struct muster_cluster_change change = {
        .kind = before == NULL  ? MUSTER_CLUSTER_ADDED
                : after == NULL ? MUSTER_CLUSTER_REMOVED
                                : MUSTER_CLUSTER_MOVED,
        .index = before != NULL ? before->index : after->index,
        .job = job,
        .before = before != NULL ? before->address : NULL,
        .after = after != NULL ? after->address : NULL,
    };

    if (diff->changes != NULL)
        diff->changes[diff->change_count] = change;
    diff->change_count++;
    diff->added_count += change.kind == MUSTER_CLUSTER_ADDED;
    diff->removed_count += change.kind == MUSTER_CLUSTER_REMOVED;
    diff->moved_count += change.kind == MUSTER_CLUSTER_MOVED;
}

/* Both lists are sorted by index: one pass merges them. */
static void compare_tasks(struct muster_cluster_diff *diff, const char *name,
                          const struct muster_cluster_job *before,
                          const struct muster_cluster_job *after)
{
    size_t before_count = before != NULL ? before->task_count : 0;
    size_t after_count = after != NULL ? after->task_count : 0;
    size_t i = 0;
    size_t k = 0;

    while (i < before_count || k < after_count) {
        const struct muster_cluster_task *old = i < before_count ? &before->tasks[i] : NULL;
        const struct muster_cluster_task *new = k < after_count ? &after->tasks[k] : NULL;

        if (new == NULL || (old != NULL && old->index < new->index))
            new = NULL;
        else if (old != NULL && new->index < old->index)
            old = NULL;
        i += old != NULL;
        k += new != NULL;
        if (old == NULL || new == NULL || strcmp(old->address, new->address) != 0)
            add_change(diff, name, old, new);
    }
}

/* Both lists are sorted by name: one pass merges them. */
static void compare_jobs(struct muster_cluster_diff *diff, const struct muster_cluster_spec *before,
                         const struct muster_cluster_spec *after)
{
    size_t before_count = before != NULL ? before->job_count : 0;
    size_t i = 0;
    size_t k = 0;

    while (i < before_count || k < after->job_count) {
        const struct muster_cluster_job *old = i < before_count ? before->by_name[i] : NULL;
        const struct muster_cluster_job *new = k < after->job_count ? after->by_name[k] : NULL;
        int order = old == NULL ? 1 : new == NULL ? -1 : strcmp(old->name, new->name);

        if (order < 0)
            new = NULL;
        else if (order > 0)
            old = NULL;
        i += old != NULL;
        k += new != NULL;
        compare_tasks(diff, old != NULL ? old->name : new->name, old, new);
    }
}

/* The first walk counts and the second one fills, so the array has its exact size. */
enum muster_rc muster_cluster_diff_init(struct muster_cluster_diff *diff, struct muster_mem *mem,
                                        const struct muster_cluster_spec *before,
                                        const struct muster_cluster_spec *after)
{
    struct muster_cluster_diff counted = {.changes = NULL};
    struct muster_cluster_diff filled = {.mem = mem};

    compare_jobs(&counted, before, after);
    if (counted.change_count > 0) {
        filled.changes =
            muster_mem_alloc_zero(mem, counted.change_count, sizeof(filled.changes[0]));
        if (filled.changes == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        compare_jobs(&filled, before, after);
    }
    *diff = filled;
    return MUSTER_OK;
}

void muster_cluster_diff_fini(struct muster_cluster_diff *diff)
{
    muster_mem_free(diff->mem, diff->changes);
    diff->changes = NULL;
    diff->change_count = 0;
}
