/* Jobs and nodes that the caller names, copied; "worker:4,ps:1" in a URI. */
#include "resolvers/platform/slurm/options.h"

#include "resolvers/core/resolvers_internal.h"
#include "resolvers/core/uri_options.h"

#include <string.h>

#define PAIRS_MAX 4096 /* of a URI */

static size_t measure(const struct muster_slurm_resolver_options *given, bool *ret_has_names)
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
    size_t bytes = measure(given, &has_names);

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

/* The URI. */

struct uri_values {
    struct muster_resolver_options common;
    const char *jobs;
    const char *tasks_per_node;
    int64_t port_base;
    int64_t gpus_per_node; /* -1: not given */
    int64_t gpus_per_task;
};

static const struct muster_uri_row rows[] = {
    {"jobs", MUSTER_URI_TEXT, offsetof(struct uri_values, jobs), 0, 0},
    {"port_base", MUSTER_URI_NUMBER, offsetof(struct uri_values, port_base), 1, UINT16_MAX},
    {"gpus_per_node", MUSTER_URI_NUMBER, offsetof(struct uri_values, gpus_per_node), 0,
     MUSTER_SLURM_NODE_GPUS_MAX},
    {"gpus_per_task", MUSTER_URI_NUMBER, offsetof(struct uri_values, gpus_per_task), 0,
     MUSTER_SLURM_NODE_GPUS_MAX},
    {"tasks_per_node", MUSTER_URI_TEXT, offsetof(struct uri_values, tasks_per_node), 0, 0},
    {"rpc_layer", MUSTER_URI_TEXT, offsetof(struct uri_values, common.rpc_layer), 0, 0},
    {"environment", MUSTER_URI_TEXT, offsetof(struct uri_values, common.environment), 0, 0},
};
static const struct muster_uri_table table = {"slurm", rows, sizeof(rows) / sizeof(rows[0])};

/* "worker:4,ps:1". Cuts the text. */
static enum muster_rc read_pairs(struct muster_slurm_job *pairs, size_t *ret_count, char *text,
                                 struct muster_error *ret_error)
{
    char *rest = NULL;

    *ret_count = 0;
    for (char *pair = strtok_r(text, ",", &rest); pair != NULL; pair = strtok_r(NULL, ",", &rest)) {
        char *count_text = strrchr(pair, ':');
        int64_t count;

        if (count_text == NULL || count_text == pair || *ret_count == PAIRS_MAX ||
            !muster_integer_parse(count_text + 1, &count) || count < 0 || count > INT32_MAX)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "slurm: '%.60s' is not of the form name:count,name:count",
                                    pair);
        *count_text = '\0';
        pairs[*ret_count] = (struct muster_slurm_job){.name = pair, .task_count = (uint32_t)count};
        *ret_count += 1;
    }
    return MUSTER_OK;
}

/* What the texts of jobs and nodes become. */
struct pairs {
    struct muster_slurm_job jobs[PAIRS_MAX];
    struct muster_slurm_job nodes[PAIRS_MAX];
    struct muster_slurm_node named_nodes[PAIRS_MAX];
};

static enum muster_rc read_lists(const struct uri_values *values, struct pairs *pairs,
                                 struct muster_slurm_resolver_options *options,
                                 struct muster_error *ret_error)
{
    char *jobs = (char *)(uintptr_t)values->jobs; /* cut up: they belong to the parsed options */
    char *nodes = (char *)(uintptr_t)values->tasks_per_node;
    enum muster_rc rc = MUSTER_OK;
    int64_t number = 0;

    if (jobs != NULL)
        rc = read_pairs(pairs->jobs, &options->job_count, jobs, ret_error);
    if (rc == MUSTER_OK && nodes != NULL && muster_integer_parse(nodes, &number)) {
        if (number < 1 || number > UINT16_MAX)
            return muster_error_set(
                ret_error, MUSTER_INVALID_ARGUMENT,
                "slurm: tasks_per_node=%s: expected 1 to 65535, or host:count,…", nodes);
        options->tasks_per_node = (uint32_t)number;
    } else if (rc == MUSTER_OK && nodes != NULL) {
        rc = read_pairs(pairs->nodes, &options->node_count, nodes, ret_error);
    }
    for (size_t i = 0; i < options->node_count; i++)
        pairs->named_nodes[i] =
            (struct muster_slurm_node){pairs->nodes[i].name, pairs->nodes[i].task_count};
    options->jobs = pairs->jobs;
    options->nodes = pairs->named_nodes;
    return rc;
}

enum muster_rc muster_slurm_resolver_open_uri(struct muster_env *env, const char *rest,
                                              const struct muster_resolver_options *options,
                                              struct muster_resolver **ret_resolver,
                                              struct muster_error *ret_error)
{
    struct uri_values values = {
        .common = *options, .port_base = 0, .gpus_per_node = -1, .gpus_per_task = -1};
    struct muster_uri_options texts = {.mem = env->mem};
    struct muster_slurm_resolver_options own = {.port_base = 0};
    struct pairs *pairs = muster_mem_alloc_zero(env->mem, 1, sizeof(*pairs));
    enum muster_rc rc = muster_uri_options_parse(&texts, rest, &table, &values, ret_error);

    if (pairs == NULL && rc == MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for options");
    if (rc == MUSTER_OK)
        rc = read_lists(&values, pairs, &own, ret_error);
    own.common = values.common;
    own.port_base = (uint16_t)values.port_base;
    own.has_gpus_per_node = values.gpus_per_node >= 0;
    own.has_gpus_per_task = values.gpus_per_task >= 0;
    own.gpus_per_node = own.has_gpus_per_node ? (uint32_t)values.gpus_per_node : 0;
    own.gpus_per_task = own.has_gpus_per_task ? (uint32_t)values.gpus_per_task : 0;
    if (rc == MUSTER_OK)
        rc = muster_slurm_resolver_open(env, &own, ret_resolver, ret_error);
    muster_mem_free(env->mem, pairs);
    muster_uri_options_fini(&texts);
    return rc;
}
