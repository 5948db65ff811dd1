/* A Slurm resolver by URI: "slurm:jobs=worker:4,ps:1&port_base=8888". */
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/schemes.h"
#include "resolvers/platform/slurm/options.h"
#include "resolvers/spec/spec_internal.h"

#include <string.h>

#define PAIRS_MAX 4096 /* bounds the block of memory that is taken for them */

struct slurm_uri_values {
    struct muster_resolver_options common;
    const char *jobs;
    const char *tasks_per_node;
    int64_t port_base;
    int64_t gpus_per_node; /* -1: not given */
    int64_t gpus_per_task;
};

static const struct muster_uri_row rows[] = {
    {"jobs", MUSTER_URI_TEXT, offsetof(struct slurm_uri_values, jobs), 0, 0},
    {"port_base", MUSTER_URI_NUMBER, offsetof(struct slurm_uri_values, port_base), 1, UINT16_MAX},
    {"gpus_per_node", MUSTER_URI_NUMBER, offsetof(struct slurm_uri_values, gpus_per_node), 0,
     MUSTER_SLURM_NODE_GPUS_MAX},
    {"gpus_per_task", MUSTER_URI_NUMBER, offsetof(struct slurm_uri_values, gpus_per_task), 0,
     MUSTER_SLURM_NODE_GPUS_MAX},
    {"tasks_per_node", MUSTER_URI_TEXT, offsetof(struct slurm_uri_values, tasks_per_node), 0, 0},
    {"rpc_layer", MUSTER_URI_TEXT, offsetof(struct slurm_uri_values, common.rpc_layer), 0, 0},
    {"environment", MUSTER_URI_TEXT, offsetof(struct slurm_uri_values, common.environment), 0, 0},
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

/* Jobs and nodes parsed from their texts. */
struct slurm_pairs {
    struct muster_slurm_job jobs[PAIRS_MAX];
    struct muster_slurm_job nodes[PAIRS_MAX];
    struct muster_slurm_node named_nodes[PAIRS_MAX];
};

static enum muster_rc read_lists(const struct slurm_uri_values *values, struct slurm_pairs *pairs,
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
                "slurm: tasks_per_node must be 1 to 65535, or host:count,…, got %s", nodes);
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
    struct slurm_uri_values values = {
        .common = *options, .port_base = 0, .gpus_per_node = -1, .gpus_per_task = -1};
    struct muster_uri_options texts = {.mem = env->mem};
    struct muster_slurm_resolver_options own = {.port_base = 0};
    struct slurm_pairs *pairs = muster_mem_alloc_zero(env->mem, 1, sizeof(*pairs));
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
