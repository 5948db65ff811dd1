/* A resolver over JSON with a cluster and a task, as in TF_CONFIG. The platform gives the JSON anew
 * at each question: TF_CONFIG itself, or the one that SageMaker's variables amount to. The rules
 * are those of TensorFlow's TFConfigClusterResolver; where Python's str() and int() take a value of
 * another kind, it is taken here, too. */
#include "resolvers/platform/plain/config_resolver.h"

#include "resolvers/core/resolver_internal.h"
#include "resolvers/spec/spec_internal.h"
#include "resolvers/spec/task_address.h"

#include <stdio.h>
#include <string.h>

static const struct muster_config_source *source_of(const struct muster_resolver *resolver)
{
    return MUSTER_CONTAINER_OF(resolver, struct muster_config_resolver, resolver)->source;
}

static const char *name_of(const struct muster_resolver *resolver)
{
    return source_of(resolver)->variable;
}

static enum muster_rc read_config(struct muster_resolver *resolver, struct muster_json **ret_config,
                                  struct muster_error *ret_error)
{
    return source_of(resolver)->read(resolver, ret_config, ret_error);
}

/* Without "task" every member of it is missing, which is no error by itself: a process that runs
 * alone needs none. */
static enum muster_rc member_of_task(const struct muster_resolver *resolver,
                                     const struct muster_json *config, const char *name,
                                     struct muster_json **ret_member,
                                     struct muster_error *ret_error)
{
    struct muster_json *task = muster_json_member(config, "task");

    *ret_member = NULL;
    if (task == NULL)
        return MUSTER_OK;
    if (muster_json_kind(task) != MUSTER_JSON_OBJECT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s.task must be an object with 'type' and 'index', got %s",
                                name_of(resolver), muster_json_kind_name(task));
    *ret_member = muster_json_member(task, name);
    return MUSTER_OK;
}

/* A member that is text, or NULL when it is missing or null. */
static enum muster_rc text_member(const struct muster_resolver *resolver,
                                  const struct muster_json *config, const char *name,
                                  const char **ret_text, struct muster_error *ret_error)
{
    struct muster_json *member = muster_json_member(config, name);

    *ret_text = muster_json_text(member);
    if (*ret_text == NULL && muster_json_kind(member) != MUSTER_JSON_NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s.%s must be text, got %s",
                                name_of(resolver), name, muster_json_kind_name(member));
    return MUSTER_OK;
}

/* A number or truth value is taken as its text, as TensorFlow does. */
static enum muster_rc type_of(struct muster_resolver *resolver, const struct muster_json *config,
                              char **ret_text, struct muster_error *ret_error)
{
    struct muster_json *type = NULL;
    enum muster_rc rc = member_of_task(resolver, config, "type", &type, ret_error);
    char number[32];

    *ret_text = NULL;
    if (rc != MUSTER_OK)
        return rc;
    switch (muster_json_kind(type)) {
    case MUSTER_JSON_NULL:
        return MUSTER_OK;
    case MUSTER_JSON_TEXT:
        return muster_resolver_give_text(resolver, muster_json_text(type), ret_text, ret_error);
    case MUSTER_JSON_BOOL:
        return muster_resolver_give_text(resolver, muster_json_is_true(type) ? "True" : "False",
                                         ret_text, ret_error);
    case MUSTER_JSON_INTEGER:
        snprintf(number, sizeof(number), "%lld", (long long)muster_json_integer(type));
        return muster_resolver_give_text(resolver, number, ret_text, ret_error);
    case MUSTER_JSON_REAL:
    case MUSTER_JSON_ARRAY:
    case MUSTER_JSON_OBJECT:
        break;
    }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%s.task.type must be the name of a job, got %s", name_of(resolver),
                            muster_json_kind_name(type));
}

/* A fraction is cut off, text is read as a number, as TensorFlow does. */
static enum muster_rc index_of(const struct muster_resolver *resolver,
                               const struct muster_json *config, bool *ret_is_set, int64_t *ret_id,
                               struct muster_error *ret_error)
{
    struct muster_json *index = NULL;
    enum muster_rc rc = member_of_task(resolver, config, "index", &index, ret_error);
    const char *text = muster_json_text(index);
    double number = muster_json_number(index);

    *ret_is_set = index != NULL;
    if (rc != MUSTER_OK || index == NULL)
        return rc;
    *ret_id = muster_json_integer(index);
    switch (muster_json_kind(index)) {
    case MUSTER_JSON_INTEGER:
        return MUSTER_OK;
    case MUSTER_JSON_BOOL:
        *ret_id = muster_json_is_true(index);
        return MUSTER_OK;
    case MUSTER_JSON_REAL:
        if (number <= -9e18 || number >= 9e18)
            break;
        *ret_id = (int64_t)number;
        return MUSTER_OK;
    case MUSTER_JSON_TEXT:
        if (muster_integer_parse(text, ret_id))
            return MUSTER_OK;
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s.task.index must be a number, got '%s'", name_of(resolver),
                                text);
    case MUSTER_JSON_NULL:
    case MUSTER_JSON_ARRAY:
    case MUSTER_JSON_OBJECT:
        break;
    }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%s.task.index must be a task index, got %s", name_of(resolver),
                            muster_json_kind_name(index));
}

/* No "cluster" at all is an empty cluster; "cluster": null is malformed. The members are walked,
 * because a look-up by name cannot tell the two apart. */
static enum muster_rc cluster_of(struct muster_resolver *resolver, const struct muster_json *config,
                                 struct muster_cluster_spec **ret_spec,
                                 struct muster_error *ret_error)
{
    struct muster_cluster_spec_builder builder;
    struct muster_json_walk walk;
    enum muster_rc rc;
    char what[64];

    snprintf(what, sizeof(what), "%s.cluster", name_of(resolver));
    for (bool more = muster_json_walk_first(&walk, config); more;
         more = muster_json_walk_next(&walk)) {
        if (strcmp(walk.name, "cluster") == 0)
            return muster_cluster_spec_from_json(resolver->env->mem, walk.value, what, ret_spec,
                                                 ret_error);
    }
    muster_cluster_spec_builder_init(&builder, resolver->env->mem, false);
    rc = muster_cluster_spec_build(&builder, ret_spec);
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "no memory for a cluster");
    muster_cluster_spec_builder_fini(&builder);
    return rc;
}

/* Without a job, or with one job whose only task has index 0, the process runs alone: its master is
 * "" (TFConfigClusterResolver.master). An evaluator beside one worker counts as a second job. */
static bool is_local(const struct muster_cluster_spec *spec)
{
    const struct muster_cluster_job *job;

    if (spec->job_count != 1)
        return spec->job_count == 0;
    job = spec->jobs[0];
    return job->task_count == 0 || job->tasks[job->task_count - 1].index <= 0;
}

/* The task of a question: as the caller names it, else as an override, else as the variable does.
 * */
struct config_task {
    char *type;
    char *rpc_layer;
    bool has_id;
    int64_t id;
};

static enum muster_rc find_task(struct muster_resolver *resolver,
                                const struct muster_task_query *query, struct config_task *ret_task,
                                struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    *ret_task = (struct config_task){.has_id = query->has_task_id, .id = query->task_id};
    if (query->task_type != NULL)
        rc = muster_resolver_give_text(resolver, query->task_type, &ret_task->type, ret_error);
    else
        rc = muster_resolver_task_type(resolver, &ret_task->type, ret_error);
    if (rc == MUSTER_OK && !query->has_task_id)
        rc = muster_resolver_task_id(resolver, &ret_task->has_id, &ret_task->id, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (query->rpc_layer != NULL)
        return muster_resolver_give_text(resolver, query->rpc_layer, &ret_task->rpc_layer,
                                         ret_error);
    return muster_resolver_rpc_layer(resolver, &ret_task->rpc_layer, ret_error);
}

static void task_fini(struct config_task *task, struct muster_mem *mem)
{
    muster_mem_free(mem, task->type);
    muster_mem_free(mem, task->rpc_layer);
}

/* A cluster of several tasks needs to know which one is meant: the errors name the member of the
 * JSON that is missing. */
static enum muster_rc master_of_task(struct muster_resolver *resolver,
                                     const struct muster_cluster_spec *spec,
                                     const struct muster_task_query *query, char **ret_url,
                                     struct muster_error *ret_error)
{
    struct muster_error unknown = {0};
    const char *address = NULL;
    struct config_task task = {0};
    enum muster_rc rc = find_task(resolver, query, &task, ret_error);

    if (rc == MUSTER_OK && task.type != NULL && !task.has_id &&
        muster_cluster_spec_job(spec, task.type) != NULL)
        rc = muster_error_set(ret_error, MUSTER_NOT_FOUND, "no task index: set %s.task.index",
                              name_of(resolver));
    if (rc == MUSTER_OK && task.type == NULL)
        rc = muster_error_set(ret_error, MUSTER_NOT_FOUND, "no task type: set %s.task.type",
                              name_of(resolver));
    if (rc == MUSTER_OK)
        rc = muster_cluster_spec_task_address(spec, task.type, task.id, &address, &unknown);
    if (unknown.rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "%s: %s; correct its task or its cluster",
                         name_of(resolver), unknown.text);
    if (rc == MUSTER_OK)
        rc = muster_master_url_format(resolver->env->mem, task.rpc_layer, address, ret_url,
                                      ret_error);
    task_fini(&task, resolver->env->mem);
    return rc;
}

/* session_master wins over all, as in TensorFlow's TFConfigClusterResolver.master. */
static enum muster_rc find_master(struct muster_resolver *resolver,
                                  const struct muster_json *config,
                                  const struct muster_task_query *query, char **ret_url,
                                  struct muster_error *ret_error)
{
    struct muster_cluster_spec *spec = NULL;
    const char *session_master = NULL;
    enum muster_rc rc = text_member(resolver, config, "session_master", &session_master, ret_error);

    if (rc == MUSTER_OK && session_master != NULL)
        return muster_resolver_give_text(resolver, session_master, ret_url, ret_error);
    if (rc == MUSTER_OK)
        rc = cluster_of(resolver, config, &spec, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (is_local(spec))
        rc = muster_resolver_give_text(resolver, "", ret_url, ret_error);
    else
        rc = master_of_task(resolver, spec, query, ret_url, ret_error);
    muster_cluster_spec_unref(spec);
    return rc;
}

/* The task is filled in first, then the base rule counts (TFConfigClusterResolver). The master is
 * only looked up so that an unknown task is an error, as it is there. */
static enum muster_rc count_accelerators(struct muster_resolver *resolver,
                                         const struct muster_json *config,
                                         struct muster_resolve *resolve)
{
    struct muster_task_query query = resolve->query;
    struct config_task task = {0};
    char *master = NULL;
    enum muster_rc rc = find_task(resolver, &query, &task, &resolve->error);

    query.task_type = task.type;
    query.has_task_id = task.has_id;
    query.task_id = task.id;
    if (rc == MUSTER_OK)
        rc = find_master(resolver, config, &query, &master, &resolve->error);
    if (rc == MUSTER_OK)
        rc = muster_resolver_count_devices(resolver, task.type, task.has_id ? &task.id : NULL,
                                           &resolve->accelerators, &resolve->error);
    muster_mem_free(resolver->env->mem, master);
    task_fini(&task, resolver->env->mem);
    return rc;
}

void muster_config_resolver_start(struct muster_resolver *resolver, struct muster_resolve *resolve)
{
    struct muster_json *config = NULL;
    enum muster_rc rc = read_config(resolver, &config, &resolve->error);

    if (rc == MUSTER_OK) {
        switch (resolve->what) {
        case MUSTER_RESOLVE_CLUSTER_SPEC:
            rc = cluster_of(resolver, config, &resolve->cluster_spec, &resolve->error);
            break;
        case MUSTER_RESOLVE_MASTER:
            rc = find_master(resolver, config, &resolve->query, &resolve->master, &resolve->error);
            break;
        case MUSTER_RESOLVE_NUM_ACCELERATORS:
            rc = count_accelerators(resolver, config, resolve);
            break;
        }
    }
    muster_json_free(config);
    muster_resolve_finish(resolve, rc);
}

enum muster_rc muster_config_resolver_task_type(struct muster_resolver *resolver, char **ret_text,
                                                struct muster_error *ret_error)
{
    struct muster_json *config = NULL;
    enum muster_rc rc = read_config(resolver, &config, ret_error);

    if (rc == MUSTER_OK)
        rc = type_of(resolver, config, ret_text, ret_error);
    muster_json_free(config);
    return rc;
}

enum muster_rc muster_config_resolver_task_id(struct muster_resolver *resolver, bool *ret_is_set,
                                              int64_t *ret_id, struct muster_error *ret_error)
{
    struct muster_json *config = NULL;
    enum muster_rc rc = read_config(resolver, &config, ret_error);

    if (rc == MUSTER_OK)
        rc = index_of(resolver, config, ret_is_set, ret_id, ret_error);
    muster_json_free(config);
    return rc;
}

enum muster_rc muster_config_resolver_rpc_layer(struct muster_resolver *resolver, char **ret_text,
                                                struct muster_error *ret_error)
{
    struct muster_json *config = NULL;
    const char *layer = NULL;
    enum muster_rc rc = read_config(resolver, &config, ret_error);

    *ret_text = NULL;
    if (rc == MUSTER_OK)
        rc = text_member(resolver, config, "rpc_layer", &layer, ret_error);
    if (rc == MUSTER_OK && layer != NULL)
        rc = muster_resolver_give_text(resolver, layer, ret_text, ret_error);
    muster_json_free(config);
    return rc;
}

const char *muster_config_resolver_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    const struct muster_config_source *source = source_of(resolver);

    switch (fact) {
    case MUSTER_FACT_CLUSTER_SPEC:
        return source->cluster_source;
    case MUSTER_FACT_MASTER:
        return source->master_source;
    case MUSTER_FACT_TASK_TYPE:
        return resolver->task_type == NULL ? source->task_source : NULL;
    case MUSTER_FACT_TASK_ID:
        return resolver->has_task_id ? NULL : source->task_source;
    case MUSTER_FACT_RPC_LAYER:
        return resolver->rpc_layer == NULL ? source->variable : NULL;
    case MUSTER_FACT_NUM_ACCELERATORS:
        return "devices of this process";
    case MUSTER_FACT_WORLD_SIZE:
        break;
    }
    return NULL;
}

void muster_config_resolver_close(struct muster_resolver *resolver)
{
    struct muster_mem *mem = resolver->env->mem;

    muster_resolver_fini(resolver);
    muster_mem_free(mem, MUSTER_CONTAINER_OF(resolver, struct muster_config_resolver, resolver));
}

enum muster_rc muster_config_resolver_open(struct muster_env *env,
                                           const struct muster_config_source *source,
                                           const struct muster_resolver_options *options,
                                           struct muster_config_resolver **ret_resolver,
                                           struct muster_error *ret_error)
{
    struct muster_config_resolver *own = muster_mem_alloc_zero(env->mem, 1, sizeof(*own));

    if (own == NULL ||
        muster_resolver_init(&own->resolver, env, &source->ops, options) != MUSTER_OK) {
        muster_mem_free(env->mem, own);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a resolver");
    }
    own->source = source;
    *ret_resolver = own;
    return MUSTER_OK;
}
