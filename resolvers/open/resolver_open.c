/* Resolvers by scheme, one row per platform; auto finds the platform by variables of the
 * environment. */
#include "resolvers/core/name_list.h"
#include "resolvers/core/uri_options.h"
#include "resolvers/platform/schemes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct scheme {
    const char *name;
    muster_scheme_open_fn *open;
    bool has_question_mark; /* SCHEME:WHAT?OPTIONS, not SCHEME:OPTIONS */
};

static enum muster_rc open_union(struct muster_env *env, const char *rest,
                                 const struct muster_resolver_options *options,
                                 struct muster_resolver **ret_resolver,
                                 struct muster_error *ret_error)
{
    return muster_union_resolver_open_uri(env, rest, options, muster_resolver_open, ret_resolver,
                                          ret_error);
}

/* docs/resolvers.md describes each. */
static const struct scheme schemes[] = {
    {"tf_config", muster_tf_config_resolver_open_uri, false},
    {"static", muster_static_resolver_open_uri, true},
    {"union", open_union, true},
    {"sagemaker", muster_sagemaker_resolver_open_uri, false},
    {"slurm", muster_slurm_resolver_open_uri, false},
    {"kubernetes", muster_kubernetes_resolver_open_uri, false},
    {"torchrun", muster_torchrun_resolver_open_uri, false},
    {"jax", muster_jax_resolver_open_uri, false},
    {"openmpi", muster_openmpi_resolver_open_uri, false},
    {"pmi", muster_pmi_resolver_open_uri, false},
    {"file", muster_file_resolver_open_uri, true},
    {"dns", muster_dns_resolver_open_uri, true},
    {"gce", muster_gce_resolver_open_uri, false},
    {"tpu", muster_tpu_resolver_open_uri, false},
    {"tpu_vm", muster_tpu_vm_resolver_open_uri, false},
};

#define CLUE_VARIABLES_MAX 2
#define REMEDY_URI_MAX     100 /* an error text has 240 bytes */

/* A platform is found when all variables of a clue are set and is_meant agrees. */
struct clue {
    const char *scheme;
    const char *variables[CLUE_VARIABLES_MAX];
    bool (*is_meant)(struct muster_env *env); /* NULL: always */
};

/* mpiexec inside a Slurm step leaves the step's own variables in place, which then speak of the
 * daemon that started this process. */
static bool is_own_step(struct muster_env *env)
{
    const char *rank = muster_vars_get(env->vars, "PMI_RANK");

    return rank == NULL || strcmp(rank, muster_vars_get(env->vars, "SLURM_PROCID")) == 0;
}

static bool has_tpu_hosts(struct muster_env *env)
{
    return muster_vars_get(env->vars, "TPU_WORKER_HOSTNAMES")[0] != '\0';
}

/* The first clue that fits wins: a launcher nearer to this process stands before the one around it,
 * so that torchrun or mpirun inside a Slurm step counts, not the step. */
static const struct clue clues[] = {
    {"tf_config", {"TF_CONFIG"}, NULL},
    {"torchrun", {"RANK", "WORLD_SIZE"}, NULL},
    {"jax", {"JAX_COORDINATOR_ADDRESS"}, NULL},
    {"jax", {"JAX_PROCESS_ID"}, NULL},
    {"sagemaker", {"SM_HOSTS", "SM_CURRENT_HOST"}, NULL},
    {"openmpi", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, NULL},
    {"slurm", {"SLURM_PROCID", "SLURM_STEP_NODELIST"}, is_own_step},
    {"pmi", {"PMI_RANK"}, NULL},
    {"pmi", {"PMIX_RANK"}, NULL},
    {"tpu", {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"}, NULL},
    {"tpu", {"TPU_NAME"}, NULL},
    {"tpu", {"TPU_CONFIG"}, NULL},
    {"tpu_vm", {"TPU_WORKER_HOSTNAMES"}, has_tpu_hosts},
    {"kubernetes", {"KUBERNETES_SERVICE_HOST"}, NULL},
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct scheme *find_scheme(const char *name, size_t length)
{
    for (size_t i = 0; i < COUNT_OF(schemes); i++) {
        if (strlen(schemes[i].name) == length && memcmp(schemes[i].name, name, length) == 0)
            return &schemes[i];
    }
    return NULL;
}

static bool clue_is_found(struct muster_env *env, const struct clue *clue)
{
    for (size_t i = 0; i < CLUE_VARIABLES_MAX && clue->variables[i] != NULL; i++) {
        if (muster_vars_get(env->vars, clue->variables[i]) == NULL)
            return false;
    }
    return clue->is_meant == NULL || clue->is_meant(env);
}

/* Keep the reason for users: "auto: SM_HOSTS and SM_CURRENT_HOST are set (also found: slurm)". */
static void explain_choice(struct muster_env *env, struct muster_resolver *resolver, size_t chosen)
{
    const struct clue *clue = &clues[chosen];
    const char *second = clue->variables[1];
    char text[100];
    struct muster_name_list others = {.text = text, .bytes = sizeof(text), .separator = ", "};
    const char *last = clue->scheme;

    text[0] = '\0';
    for (size_t i = chosen + 1; i < COUNT_OF(clues); i++) {
        if (strcmp(clues[i].scheme, last) != 0 && clue_is_found(env, &clues[i])) {
            last = clues[i].scheme;
            muster_name_list_add(&others, last);
        }
    }
    snprintf(resolver->reason, sizeof(resolver->reason), "auto: %s%s%s %s set%s%s%s",
             clue->variables[0], second != NULL ? " and " : "", second != NULL ? second : "",
             second != NULL ? "are" : "is", others.length > 0 ? " (also found: " : "", text,
             others.length > 0 ? ")" : "");
}

static enum muster_rc open_auto(struct muster_env *env, const char *rest,
                                const struct muster_resolver_options *options,
                                struct muster_resolver **ret_resolver,
                                struct muster_error *ret_error)
{
    char text[110];
    struct muster_name_list marks = {.text = text, .bytes = sizeof(text), .separator = ", "};

    for (size_t i = 0; i < COUNT_OF(clues); i++) {
        const char *name = clues[i].scheme;
        enum muster_rc rc;

        if (!clue_is_found(env, &clues[i])) {
            muster_name_list_add(&marks, clues[i].variables[0]);
            continue;
        }
        rc = find_scheme(name, strlen(name))->open(env, rest, options, ret_resolver, ret_error);
        if (rc == MUSTER_OK)
            explain_choice(env, *ret_resolver, i);
        return rc;
    }
    return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                            "the environment describes no cluster: name a resolver such as "
                            "static:worker=host:port, or set %s (docs/resolvers.md has all)",
                            text);
}

static bool is_auto(const char *uri, size_t length)
{
    return length == strlen("auto") && memcmp(uri, "auto", length) == 0;
}

enum muster_rc muster_resolver_uri_check(const char *uri, struct muster_error *ret_error)
{
    size_t length = strcspn(uri, ":");
    char text[160];
    struct muster_name_list names = {.text = text, .bytes = sizeof(text), .separator = ", "};

    if (is_auto(uri, length) || find_scheme(uri, length) != NULL)
        return MUSTER_OK;
    for (size_t i = 0; i < COUNT_OF(schemes); i++)
        muster_name_list_add(&names, schemes[i].name);
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "there is no resolver '%.*s': use auto, %s",
                            (int)(length < 40 ? length : 40), uri, text);
}

/* The separator between a URI and one more option: ":", "?", "&" or none. */
static const char *option_separator(const char *uri)
{
    const char *rest = uri + strcspn(uri, ":");
    const struct scheme *scheme = find_scheme(uri, (size_t)(rest - uri));
    const char *options = rest;

    if (*rest == '\0')
        return ":";
    rest++;
    if (scheme == NULL || !scheme->has_question_mark)
        return *rest == '\0' ? "" : "&";
    for (const char *part = rest; part != NULL && *part != '\0';) { /* the last member of a union */
        options = part;
        part = muster_uri_find(part, "|");
        part += part != NULL && *part == '|';
    }
    options = muster_uri_find(options, "?");
    return options != NULL && *options == '?' ? "&" : "?";
}

/* The job of the first task that trains, else the first job with a task; NULL: there is no task. */
static const struct muster_cluster_job *find_first_job(const struct muster_cluster_spec *spec)
{
    static const char *const training_jobs[] = {"chief", "master", "worker"};
    const struct muster_cluster_job *job = NULL;

    for (size_t i = 0; i < COUNT_OF(training_jobs) && (job == NULL || job->task_count == 0); i++)
        job = muster_cluster_spec_job(spec, training_jobs[i]);
    for (size_t i = 0; i < spec->job_count && (job == NULL || job->task_count == 0); i++)
        job = spec->jobs[i];
    return job != NULL && job->task_count > 0 ? job : NULL;
}

char *muster_resolver_task_remedy(const char *uri, const struct muster_cluster_spec *spec,
                                  size_t bytes, char *ret_text)
{
    const struct muster_cluster_job *job = find_first_job(spec);
    const char *separator = option_separator(uri);
    const char *type = job != NULL ? job->name : "worker";
    int32_t index = job != NULL ? job->tasks[0].index : 0;
    bool is_short = strlen(uri) < REMEDY_URI_MAX;

    snprintf(ret_text, bytes, "%s%s%stask_type=%s&task_id=%" PRId32 "%s",
             is_short ? "as in " : "put ", is_short ? uri : "", separator, type, index,
             is_short ? "" : " after its URI");
    return ret_text;
}

enum muster_rc muster_resolver_open(struct muster_env *env, const char *uri,
                                    const struct muster_resolver_options *options,
                                    struct muster_resolver **ret_resolver,
                                    struct muster_error *ret_error)
{
    static const struct muster_resolver_options no_options;
    size_t length = strcspn(uri, ":");
    const char *rest = uri[length] == ':' ? uri + length + 1 : uri + length;
    enum muster_rc rc = muster_resolver_uri_check(uri, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (options == NULL)
        options = &no_options;
    if (is_auto(uri, length))
        return open_auto(env, rest, options, ret_resolver, ret_error);
    return find_scheme(uri, length)->open(env, rest, options, ret_resolver, ret_error);
}
