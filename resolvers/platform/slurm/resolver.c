/* The cluster of a Slurm job step (TensorFlow's SlurmClusterResolver). srun sets the variables for
 * every task of the step ("OUTPUT ENVIRONMENT VARIABLES" of its manual page); they do not change
 * while the task runs. plan.c places the tasks, gpus.c counts the GPUs. */
#include <muster/platforms.h>

#include "resolvers/core/resolver_internal.h"
#include "resolvers/platform/slurm/gpus.h"
#include "resolvers/platform/slurm/options.h"
#include "resolvers/platform/slurm/plan.h"
#include "resolvers/platform/slurm/text.h"
#include "resolvers/spec/spec_internal.h"
#include "resolvers/spec/task_address.h"

#include <stdio.h>
#include <string.h>

struct slurm_resolver {
    struct muster_resolver resolver;
    struct muster_slurm_options options; /* a copy of the caller's */
    struct muster_slurm_gpus gpus;
    char *visible_devices; /* of the last answer; NULL: none */
    bool is_stopping;
};

/* Jobs and nodes from variables, where the caller gives none. */
struct step_texts {
    struct muster_slurm_job whole; /* one job of all tasks */
    struct muster_slurm_hosts hosts;
    struct muster_slurm_node *nodes;
};

static struct slurm_resolver *slurm_of(struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct slurm_resolver, resolver);
}

static enum muster_rc read_variable(struct slurm_resolver *own, const char *name,
                                    const char **ret_text, struct muster_error *ret_error)
{
    *ret_text = muster_vars_get(own->resolver.env->vars, name);
    if (*ret_text != NULL)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                            "%s is not set: start this program as a Slurm step (srun PROGRAM), or "
                            "name another resolver",
                            name);
}

static enum muster_rc read_number_variable(struct slurm_resolver *own, const char *name,
                                           int64_t *ret_value, struct muster_error *ret_error)
{
    const char *text = NULL;
    enum muster_rc rc = read_variable(own, name, &text, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (!muster_integer_parse(text, ret_value) || *ret_value < 0 || *ret_value > INT32_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be a whole number from 0 on, got %.60s", name, text);
    return MUSTER_OK;
}

static enum muster_rc name_cause(const char *name, enum muster_rc rc,
                                 const struct muster_error *cause, struct muster_error *ret_error)
{
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "%s: %s", name, cause->text);
}

static enum muster_rc read_counts(struct slurm_resolver *own, uint32_t **ret_counts,
                                  size_t *ret_count, struct muster_error *ret_error)
{
    static const char name[] = "SLURM_STEP_TASKS_PER_NODE";
    const char *text = NULL;
    struct muster_error cause = {0};
    enum muster_rc rc = read_variable(own, name, &text, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_slurm_counts_parse(own->resolver.env->mem, text, ret_counts, ret_count, &cause);
    return name_cause(name, rc, &cause, ret_error);
}

/* How many tasks each host has: Slurm writes one count for each host of the list, in its order. A
 * number given by the caller counts for every host and replaces the variable. */
static enum muster_rc count_tasks(struct slurm_resolver *own, struct step_texts *texts,
                                  struct muster_error *ret_error)
{
    struct muster_mem *mem = own->resolver.env->mem;
    uint32_t *counts = NULL;
    size_t count = texts->hosts.count;
    enum muster_rc rc = MUSTER_OK;

    if (own->options.values.tasks_per_node == 0)
        rc = read_counts(own, &counts, &count, ret_error);
    if (rc == MUSTER_OK && count != texts->hosts.count)
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "SLURM_STEP_NODELIST has %zu hosts, SLURM_STEP_TASKS_PER_NODE %zu "
                              "counts",
                              texts->hosts.count, count);
    if (rc == MUSTER_OK) {
        texts->nodes = muster_mem_alloc_zero(mem, count, sizeof(texts->nodes[0]));
        if (texts->nodes == NULL)
            rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for %zu nodes",
                                  count);
    }
    for (size_t i = 0; rc == MUSTER_OK && i < count; i++)
        texts->nodes[i] = (struct muster_slurm_node){
            .host = texts->hosts.names[i],
            .task_count = counts != NULL ? counts[i] : own->options.values.tasks_per_node,
        };
    muster_mem_free(mem, counts);
    return rc;
}

/* Nodes named by the caller replace both variables (tasks_per_node as a dict in TensorFlow). */
static enum muster_rc read_nodes(struct slurm_resolver *own, struct step_texts *texts,
                                 struct muster_slurm_step *step, struct muster_error *ret_error)
{
    static const char name[] = "SLURM_STEP_NODELIST";
    const char *text = NULL;
    struct muster_error cause = {0};
    enum muster_rc rc;

    step->nodes = own->options.values.nodes;
    step->node_count = own->options.values.node_count;
    if (step->node_count > 0)
        return MUSTER_OK;
    rc = read_variable(own, name, &text, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_slurm_hosts_parse(&texts->hosts, own->resolver.env->mem, text, &cause);
    rc = name_cause(name, rc, &cause, ret_error);
    if (rc == MUSTER_OK)
        rc = count_tasks(own, texts, ret_error);
    step->nodes = texts->nodes;
    step->node_count = texts->hosts.count;
    return rc;
}

/* Without jobs= all tasks of the step are workers. */
static enum muster_rc read_jobs(struct slurm_resolver *own, struct step_texts *texts,
                                struct muster_slurm_step *step, struct muster_error *ret_error)
{
    int64_t count = 0;
    enum muster_rc rc;

    step->jobs = own->options.values.jobs;
    step->job_count = own->options.values.job_count;
    if (step->job_count > 0)
        return MUSTER_OK;
    rc = read_number_variable(own, "SLURM_STEP_NUM_TASKS", &count, ret_error);
    texts->whole = (struct muster_slurm_job){.name = "worker", .task_count = (uint32_t)count};
    step->jobs = &texts->whole;
    step->job_count = 1;
    return rc;
}

static void step_fini(struct slurm_resolver *own, struct step_texts *texts)
{
    muster_slurm_hosts_fini(&texts->hosts);
    muster_mem_free(own->resolver.env->mem, texts->nodes);
}

/* All but the GPUs. texts are to be released, also on failure. */
static enum muster_rc read_step(struct slurm_resolver *own, struct step_texts *texts,
                                struct muster_slurm_step *step, struct muster_error *ret_error)
{
    const struct muster_slurm_resolver_options *options = &own->options.values;
    const char *local_id = muster_vars_get(own->resolver.env->vars, "SLURM_LOCALID");
    enum muster_rc rc;

    *texts = (struct step_texts){.hosts = {.mem = own->resolver.env->mem}};
    *step = (struct muster_slurm_step){
        .port_base = options->port_base,
        .has_gpus_per_task = options->has_gpus_per_task,
        .gpus_per_task = options->gpus_per_task,
        .node_name = muster_vars_get(own->resolver.env->vars, "SLURMD_NODENAME"),
        .local_id = -1,
    };
    if (local_id != NULL && !muster_integer_parse(local_id, &step->local_id))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "SLURM_LOCALID must be a whole number, got %.60s", local_id);
    rc = read_number_variable(own, "SLURM_PROCID", &step->rank, ret_error);
    if (rc == MUSTER_OK)
        rc = read_jobs(own, texts, step, ret_error);
    if (rc == MUSTER_OK)
        rc = read_nodes(own, texts, step, ret_error);
    return rc;
}

/* Keep the own task that the plan found; it replaces an override, as in TensorFlow. */
static enum muster_rc keep_task(struct slurm_resolver *own, struct muster_slurm_plan *plan,
                                struct muster_error *ret_error)
{
    struct muster_mem *mem = own->resolver.env->mem;

    if (muster_resolver_set_task_type(&own->resolver, plan->task_type) != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a task type");
    muster_resolver_set_task_id(&own->resolver, true, plan->task_id);
    muster_mem_free(mem, own->visible_devices);
    own->visible_devices = plan->gpus;
    plan->gpus = NULL;
    if (own->visible_devices != NULL && own->options.values.set_gpus != NULL)
        own->options.values.set_gpus(own->options.values.gpu_data, own->visible_devices);
    return MUSTER_OK;
}

/* Read the variables, plan, and keep the own task: get_task_info() of TensorFlow tells it only
 * after cluster_spec(), too. */
static enum muster_rc find_cluster(struct slurm_resolver *own,
                                   struct muster_cluster_spec **ret_spec,
                                   struct muster_error *ret_error)
{
    struct muster_slurm_plan plan = {.cluster_spec = NULL};
    struct muster_slurm_step step;
    struct step_texts texts;
    enum muster_rc rc = read_step(own, &texts, &step, ret_error);

    step.gpus_per_node = own->gpus.count;
    if (rc == MUSTER_OK)
        rc = muster_slurm_plan_init(&plan, own->resolver.env->mem, &step, ret_error);
    if (rc == MUSTER_OK)
        rc = keep_task(own, &plan, ret_error);
    if (rc == MUSTER_OK)
        *ret_spec = muster_cluster_spec_ref(plan.cluster_spec);
    muster_slurm_plan_fini(&plan, own->resolver.env->mem);
    step_fini(own, &texts);
    return rc;
}

/* The task at the moment of the question: as asked for, else as set or found before. */
static bool has_task(const struct muster_resolve *resolve)
{
    const struct muster_resolver *resolver = resolve->resolver;

    return (resolve->query.task_type != NULL || resolver->task_type != NULL) &&
           (resolve->query.has_task_id || resolver->has_task_id);
}

static enum muster_rc look_up(struct slurm_resolver *own, struct muster_resolve *resolve,
                              const char *task_type)
{
    const struct muster_task_query *query = &resolve->query;
    int64_t task_id = query->has_task_id ? query->task_id : own->resolver.task_id;
    struct muster_cluster_spec *spec = NULL;
    const char *address = NULL;
    enum muster_rc rc = find_cluster(own, &spec, &resolve->error);

    if (rc == MUSTER_OK)
        rc = muster_cluster_spec_task_address(spec, task_type, task_id, &address, &resolve->error);
    if (rc == MUSTER_OK)
        rc = muster_master_url_format(own->resolver.env->mem, muster_resolve_rpc_layer(resolve),
                                      address, &resolve->master, &resolve->error);
    muster_cluster_spec_unref(spec);
    return rc;
}

/* Resolving replaces the own task, so its name is copied before. */
static enum muster_rc find_master(struct slurm_resolver *own, struct muster_resolve *resolve)
{
    const char *type =
        resolve->query.task_type != NULL ? resolve->query.task_type : own->resolver.task_type;
    char *copy = muster_mem_strdup(own->resolver.env->mem, has_task(resolve) ? type : "");
    enum muster_rc rc;

    if (copy == NULL)
        return muster_error_set(&resolve->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    if (!has_task(resolve)) {
        resolve->master = copy;
        return MUSTER_OK;
    }
    rc = look_up(own, resolve, copy);
    muster_mem_free(own->resolver.env->mem, copy);
    return rc;
}

/* {GPU: gpus_per_task} for every task, as in TensorFlow: no device is asked. The plan is made all
 * the same, because it checks that the GPUs are enough. */
static enum muster_rc count_accelerators(struct slurm_resolver *own, struct muster_resolve *resolve)
{
    struct muster_slurm_plan plan = {.cluster_spec = NULL};
    struct muster_slurm_step step;
    struct step_texts texts;
    enum muster_rc rc = read_step(own, &texts, &step, &resolve->error);

    step.gpus_per_node = own->gpus.count;
    if (rc == MUSTER_OK)
        rc = muster_slurm_plan_init(&plan, own->resolver.env->mem, &step, &resolve->error);
    if (rc == MUSTER_OK) {
        resolve->accelerators.kind_count = 1;
        snprintf(resolve->accelerators.kinds[0].kind, sizeof(resolve->accelerators.kinds[0].kind),
                 "GPU");
        resolve->accelerators.kinds[0].count = plan.gpus_per_task;
    }
    muster_slurm_plan_fini(&plan, own->resolver.env->mem);
    step_fini(own, &texts);
    return rc;
}

static void slurm_answer(struct slurm_resolver *own, struct muster_resolve *resolve)
{
    enum muster_rc rc = MUSTER_OK;

    resolve->impl = NULL;
    switch (resolve->what) {
    case MUSTER_RESOLVE_CLUSTER_SPEC:
        rc = find_cluster(own, &resolve->cluster_spec, &resolve->error);
        break;
    case MUSTER_RESOLVE_MASTER:
        rc = find_master(own, resolve);
        break;
    case MUSTER_RESOLVE_NUM_ACCELERATORS:
        rc = count_accelerators(own, resolve);
        break;
    }
    muster_resolve_finish(resolve, rc);
}

/* The tool has ended: answer all questions that waited for it. Finishing one only posts a task, so
 * the list does not change under this loop. */
static void on_gpus(struct muster_slurm_gpus *gpus, enum muster_rc rc)
{
    struct slurm_resolver *own = MUSTER_CONTAINER_OF(gpus, struct slurm_resolver, gpus);

    MUSTER_LIST_EACH (&own->resolver.pending, resolve, struct muster_resolve, node) {
        if (resolve->impl != own)
            continue;
        if (rc == MUSTER_OK) {
            slurm_answer(own, resolve);
        } else {
            resolve->impl = NULL;
            resolve->error = gpus->error;
            muster_resolve_finish(resolve, rc);
        }
    }
    if (own->is_stopping)
        muster_resolver_stopped(&own->resolver);
}

/* Every answer but a local master needs the number of GPUs. Until it is known, questions wait with
 * impl set, and one run of the tool answers them all (on_gpus). */
static void slurm_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct slurm_resolver *own = slurm_of(resolver);
    bool is_local = resolve->what == MUSTER_RESOLVE_MASTER && !has_task(resolve);
    enum muster_rc rc;

    if (own->gpus.is_known || is_local) {
        slurm_answer(own, resolve);
        return;
    }
    resolve->impl = own;
    rc = muster_slurm_gpus_ask(&own->gpus, resolver->env);
    if (rc == MUSTER_OK)
        return;
    if (own->gpus.is_known) { /* there is no such tool, so there are no GPUs */
        slurm_answer(own, resolve);
        return;
    }
    resolve->impl = NULL;
    resolve->error = own->gpus.error;
    muster_resolve_finish(resolve, rc);
}

/* The tool runs on for the questions of others, and its count is kept. */
static void slurm_cancel(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    (void)resolver;
    if (resolve->impl == NULL)
        return;
    resolve->impl = NULL;
    muster_resolve_finish(resolve, MUSTER_CANCELLED);
}

static const char *slurm_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    const struct muster_slurm_resolver_options *options = &slurm_of(resolver)->options.values;

    switch (fact) {
    case MUSTER_FACT_CLUSTER_SPEC:
    case MUSTER_FACT_MASTER:
        if (options->node_count > 0)
            return "nodes named by the caller";
        return options->tasks_per_node > 0 ? "SLURM_STEP_NODELIST"
                                           : "SLURM_STEP_NODELIST, SLURM_STEP_TASKS_PER_NODE";
    case MUSTER_FACT_TASK_TYPE:
    case MUSTER_FACT_TASK_ID:
        return muster_vars_get(resolver->env->vars, "SLURMD_NODENAME") != NULL &&
                       muster_vars_get(resolver->env->vars, "SLURM_LOCALID") != NULL
                   ? "SLURMD_NODENAME, SLURM_LOCALID, SLURM_PROCID"
                   : "SLURM_PROCID";
    case MUSTER_FACT_NUM_ACCELERATORS:
        return slurm_of(resolver)->gpus.source;
    case MUSTER_FACT_RPC_LAYER:
    case MUSTER_FACT_WORLD_SIZE:
        break;
    }
    return NULL;
}

/* A tool that runs must end first: its callback would find freed memory. */
static void slurm_stop(struct muster_resolver *resolver)
{
    struct slurm_resolver *own = slurm_of(resolver);

    own->is_stopping = true;
    if (own->gpus.is_asking)
        muster_slurm_gpus_cancel(&own->gpus);
    else
        muster_resolver_stopped(resolver);
}

static void slurm_close(struct muster_resolver *resolver)
{
    struct slurm_resolver *own = slurm_of(resolver);
    struct muster_mem *mem = resolver->env->mem;

    muster_resolver_fini(resolver);
    muster_slurm_options_fini(&own->options);
    muster_mem_free(mem, own->visible_devices);
    muster_mem_free(mem, own);
}

static const struct muster_resolver_ops slurm_ops = {
    .name = "slurm",
    .start = slurm_start,
    .cancel = slurm_cancel,
    .source = slurm_source,
    .stop = slurm_stop,
    .close = slurm_close,
    .default_rpc_layer = "grpc",
};

/* Check the step when the resolver opens, as TensorFlow does, not with the first question. */
static enum muster_rc check_step(struct slurm_resolver *own, struct muster_error *ret_error)
{
    struct muster_slurm_step step;
    struct step_texts texts;
    enum muster_rc rc = read_step(own, &texts, &step, ret_error);

    step.gpus_per_node = own->gpus.is_known ? own->gpus.count : MUSTER_SLURM_NODE_GPUS_MAX;
    if (rc == MUSTER_OK)
        rc = muster_slurm_step_check(&step, ret_error);
    step_fini(own, &texts);
    return rc;
}

enum muster_rc muster_slurm_resolver_open(struct muster_env *env,
                                          const struct muster_slurm_resolver_options *options,
                                          struct muster_resolver **ret_resolver,
                                          struct muster_error *ret_error)
{
    static const struct muster_slurm_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    struct slurm_resolver *own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));
    struct muster_resolver_options common = options->common;
    enum muster_rc rc;

    if (common.environment == NULL)
        common.environment = "";
    if (own == NULL ||
        muster_resolver_init(&own->resolver, env, &slurm_ops, &common) != MUSTER_OK) {
        muster_mem_free(env->mem, own);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a resolver");
    }
    rc = muster_slurm_options_init(&own->options, env->mem, options, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_slurm_gpus_init(&own->gpus, env, &own->options.values, on_gpus, ret_error);
    if (rc == MUSTER_OK)
        rc = check_step(own, ret_error);
    if (rc == MUSTER_OK)
        *ret_resolver = &own->resolver;
    else
        slurm_close(&own->resolver);
    return rc;
}

const char *muster_slurm_resolver_visible_devices(const struct muster_resolver *resolver)
{
    if (resolver->ops != &slurm_ops)
        return NULL;
    return slurm_of((struct muster_resolver *)(uintptr_t)resolver)->visible_devices;
}
