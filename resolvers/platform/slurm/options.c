/* Jobs and nodes that the caller names, copied: the caller's arrays and texts may go after open.
 * One block holds all texts. */
#include "resolvers/platform/slurm/options.h"

#include <string.h>

/* The bytes of all names, and whether every job and node has one. */
static size_t measure_texts(const struct muster_slurm_resolver_options *given, bool *ret_has_names)
{
    size_t bytes = 1;

    *ret_has_names = true;
    for (size_t i = 0; i < given->job_count + given->node_count; i++) {
        const char *name =
            i < given->job_count ? given->jobs[i].name : given->nodes[i - given->job_count].host;

        *ret_has_names = *ret_has_names && name != NULL && name[0] != '\0';
        bytes += name != NULL ? strlen(name) + 1 : 0;
    }
    return bytes;
}

static const char *copy_name(char **at, const char *name)
{
    char *copy = *at;

    memcpy(copy, name, strlen(name) + 1);
    *at += strlen(name) + 1;
    return copy;
}

static void copy_all(struct muster_slurm_options *options,
                     const struct muster_slurm_resolver_options *given)
{
    char *at = options->texts;

    for (size_t i = 0; i < given->job_count; i++)
        options->jobs[i] = (struct muster_slurm_job){copy_name(&at, given->jobs[i].name),
                                                     given->jobs[i].task_count};
    for (size_t i = 0; i < given->node_count; i++)
        options->nodes[i] = (struct muster_slurm_node){copy_name(&at, given->nodes[i].host),
                                                       given->nodes[i].task_count};
    options->values = *given;
    options->values.jobs = options->jobs;
    options->values.nodes = options->nodes;
    if (options->values.port_base == 0)
        options->values.port_base = MUSTER_SLURM_PORT_BASE;
}

enum muster_rc muster_slurm_options_init(struct muster_slurm_options *options,
                                         struct muster_mem *mem,
                                         const struct muster_slurm_resolver_options *given,
                                         struct muster_error *ret_error)
{
    struct muster_slurm_options copy = {.mem = mem};
    bool has_names;
    size_t bytes = measure_texts(given, &has_names);

    if (!has_names)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "slurm: a job or a node has no name");
    if (given->gpus_per_node > MUSTER_SLURM_NODE_GPUS_MAX ||
        given->gpus_per_task > MUSTER_SLURM_NODE_GPUS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "slurm: more than %d GPUs on a node", MUSTER_SLURM_NODE_GPUS_MAX);
    copy.texts = muster_mem_alloc(mem, bytes);
    copy.jobs = muster_mem_alloc_zero(mem, given->job_count, sizeof(copy.jobs[0]));
    copy.nodes = muster_mem_alloc_zero(mem, given->node_count, sizeof(copy.nodes[0]));
    if (copy.texts == NULL || copy.jobs == NULL || copy.nodes == NULL) {
        muster_slurm_options_fini(&copy);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for options");
    }
    copy_all(&copy, given);
    *options = copy;
    return MUSTER_OK;
}

void muster_slurm_options_fini(struct muster_slurm_options *options)
{
    if (options->mem == NULL)
        return;
    muster_mem_free(options->mem, options->texts);
    muster_mem_free(options->mem, options->jobs);
    muster_mem_free(options->mem, options->nodes);
}
