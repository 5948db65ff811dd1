/* A resolver by scheme: one row per platform; and what auto takes for the mark of a platform. */
#include "resolvers/resolvers_internal.h"

#include <stdio.h>
#include <string.h>

struct scheme {
    const char *name;
    muster_scheme_open_fn *open;
};

/* docs/resolvers.md describes each. */
static const struct scheme schemes[] = {
    {"tf_config", muster_tf_config_resolver_open_uri},
    {"static", muster_static_resolver_open_uri},
    {"union", muster_union_resolver_open_uri},
    {"sagemaker", muster_sagemaker_resolver_open_uri},
    {"slurm", muster_slurm_resolver_open_uri},
    {"kubernetes", muster_kubernetes_resolver_open_uri},
    {"torchrun", muster_torchrun_resolver_open_uri},
    {"jax", muster_jax_resolver_open_uri},
    {"openmpi", muster_openmpi_resolver_open_uri},
    {"pmi", muster_pmi_resolver_open_uri},
    {"file", muster_file_resolver_open_uri},
    {"dns", muster_dns_resolver_open_uri},
    {"gce", muster_gce_resolver_open_uri},
    {"tpu", muster_tpu_resolver_open_uri},
    {"tpu_vm", muster_tpu_vm_resolver_open_uri},
};

#define CLUE_VARIABLES_MAX 2

/* All its variables are set, and nothing speaks against it. */
struct clue {
    const char *scheme;
    const char *variables[CLUE_VARIABLES_MAX];
    bool (*is_meant)(struct muster_env *env); /* NULL: always */
};

/* mpiexec inside a Slurm step leaves the step's own variables in place, which then speak of the
 * daemon that started this process. */
static bool is_step_own(struct muster_env *env)
{
    const char *rank = muster_vars_get(env->vars, "PMI_RANK");

    return rank == NULL || strcmp(rank, muster_vars_get(env->vars, "SLURM_PROCID")) == 0;
}

static bool has_tpu_hosts(struct muster_env *env)
{
    return muster_vars_get(env->vars, "TPU_WORKER_HOSTNAMES")[0] != '\0';
}

/* In the order in which auto looks: who was set closest to this process comes first. */
static const struct clue clues[] = {
    {"tf_config", {"TF_CONFIG"}, NULL},
    {"torchrun", {"RANK", "WORLD_SIZE"}, NULL},
    {"jax", {"JAX_COORDINATOR_ADDRESS"}, NULL},
    {"jax", {"JAX_PROCESS_ID"}, NULL},
    {"sagemaker", {"SM_HOSTS", "SM_CURRENT_HOST"}, NULL},
    {"openmpi", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, NULL},
    {"slurm", {"SLURM_PROCID", "SLURM_STEP_NODELIST"}, is_step_own},
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

static bool is_found(struct muster_env *env, const struct clue *clue)
{
    for (size_t i = 0; i < CLUE_VARIABLES_MAX && clue->variables[i] != NULL; i++) {
        if (muster_vars_get(env->vars, clue->variables[i]) == NULL)
            return false;
    }
    return clue->is_meant == NULL || clue->is_meant(env);
}

/* Names one behind the other; what does not fit is left out. */
struct name_list {
    char text[180];
    size_t length;
};

static void add_name(struct name_list *list, const char *name)
{
    int added = snprintf(list->text + list->length, sizeof(list->text) - list->length, "%s%s",
                         list->length > 0 ? ", " : "", name);

    if (added > 0 && list->length + (size_t)added < sizeof(list->text))
        list->length += (size_t)added;
    list->text[list->length] = '\0';
}

/* "auto: SM_HOSTS and SM_CURRENT_HOST are set (also found: slurm)" */
static void explain(struct muster_env *env, struct muster_resolver *resolver, size_t chosen)
{
    const struct clue *clue = &clues[chosen];
    const char *second = clue->variables[1];
    struct name_list others = {.length = 0};

    for (size_t i = chosen + 1; i < COUNT_OF(clues); i++) {
        if (strcmp(clues[i].scheme, clue->scheme) != 0 && is_found(env, &clues[i]))
            add_name(&others, clues[i].scheme);
    }
    snprintf(resolver->reason, sizeof(resolver->reason), "auto: %s%s%s %s set%s%.80s%s",
             clue->variables[0], second != NULL ? " and " : "", second != NULL ? second : "",
             second != NULL ? "are" : "is", others.length > 0 ? " (also found: " : "", others.text,
             others.length > 0 ? ")" : "");
}

static enum muster_rc open_auto(struct muster_env *env, const char *rest,
                                const struct muster_resolver_options *options,
                                struct muster_resolver **ret_resolver,
                                struct muster_error *ret_error)
{
    struct name_list marks = {.length = 0};

    for (size_t i = 0; i < COUNT_OF(clues); i++) {
        const char *name = clues[i].scheme;
        enum muster_rc rc;

        if (!is_found(env, &clues[i])) {
            add_name(&marks, clues[i].variables[0]);
            continue;
        }
        rc = find_scheme(name, strlen(name))->open(env, rest, options, ret_resolver, ret_error);
        if (rc == MUSTER_OK)
            explain(env, *ret_resolver, i);
        return rc;
    }
    return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                            "the environment describes no cluster: name a resolver such as "
                            "static:worker=host:port, or set TF_CONFIG or another of %s",
                            marks.text);
}

static bool is_auto(const char *uri, size_t length)
{
    return length == strlen("auto") && memcmp(uri, "auto", length) == 0;
}

enum muster_rc muster_resolver_uri_check(const char *uri, struct muster_error *ret_error)
{
    size_t length = strcspn(uri, ":");
    struct name_list names = {.length = 0};

    if (is_auto(uri, length) || find_scheme(uri, length) != NULL)
        return MUSTER_OK;
    for (size_t i = 0; i < COUNT_OF(schemes); i++)
        add_name(&names, schemes[i].name);
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "there is no resolver '%.*s': use auto, %s",
                            (int)(length < 40 ? length : 40), uri, names.text);
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
