/* The base of every resolver: questions with a deadline, overrides, an orderly close. */
#include <muster/resolver.h>

#include <stdio.h>
#include <string.h>

#include "resolvers/core/resolver_internal.h"

#include "runtime/loop/deadline.h"

static enum muster_rc copy_text(struct muster_mem *mem, const char *text, char **ret_copy)
{
    char *copy = NULL;

    if (text != NULL) {
        copy = muster_mem_strdup(mem, text);
        if (copy == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_copy = copy;
    return MUSTER_OK;
}

enum muster_rc muster_resolver_give_text(struct muster_resolver *resolver, const char *text,
                                         char **ret_text, struct muster_error *ret_error)
{
    if (copy_text(resolver->env->mem, text, ret_text) != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for resolver '%s'",
                                muster_resolver_name(resolver));
    return MUSTER_OK;
}

/* Runs once, or twice where the platform has a stop: first to stop it, then, when it reports that
 * it has stopped, to free the resolver. */
static void on_close(struct muster_task *task)
{
    struct muster_resolver *resolver = task->data;

    MUSTER_ASSERT(resolver->is_closed && muster_list_is_empty(&resolver->pending));
    if (resolver->ops->stop != NULL && !resolver->is_stopped) {
        resolver->ops->stop(resolver);
        return;
    }
    if (resolver->closed != NULL)
        resolver->closed(resolver);
    resolver->ops->close(resolver);
}

/* Replace an override. With is_empty_unset "" takes it back, as TensorFlow's UnionResolver does. */
static enum muster_rc replace_text(struct muster_resolver *resolver, char **text, const char *with)
{
    bool is_none = with != NULL && with[0] == '\0' && resolver->ops->is_empty_unset;
    char *copy = NULL;
    enum muster_rc rc = copy_text(resolver->env->mem, is_none ? NULL : with, &copy);

    if (rc != MUSTER_OK)
        return rc;
    muster_mem_free(resolver->env->mem, *text);
    *text = copy;
    return MUSTER_OK;
}

/* A property that the caller leaves open has the default of the platform. The is_..._default flags
 * keep it apart from an override of equal value: muster_resolver_source tells users which of the
 * two it is. */
static enum muster_rc resolver_init_defaults(struct muster_resolver *resolver,
                                             const struct muster_resolver_options *options)
{
    const struct muster_resolver_ops *ops = resolver->ops;
    const char *rpc_layer = options->rpc_layer;

    if (!options->has_task_id && ops->has_default_task_id) {
        resolver->has_task_id = true;
        resolver->task_id = 0;
        resolver->is_task_id_default = true;
    }
    if (ops->default_rpc_layer != NULL && rpc_layer == NULL) {
        rpc_layer = ops->default_rpc_layer;
        resolver->is_rpc_layer_default = true;
    } else if (ops->default_rpc_layer != NULL && rpc_layer[0] == '\0') {
        rpc_layer = NULL; /* the caller wants none */
    }
    return replace_text(resolver, &resolver->rpc_layer, rpc_layer);
}

enum muster_rc muster_resolver_init(struct muster_resolver *resolver, struct muster_env *env,
                                    const struct muster_resolver_ops *ops,
                                    const struct muster_resolver_options *options)
{
    static const struct muster_resolver_options none = {0};

    if (options == NULL)
        options = &none;
    enum muster_rc rc;

    *resolver = (struct muster_resolver){
        .ops = ops,
        .env = env,
        .has_task_id = options->has_task_id,
        .task_id = options->task_id,
        .list_devices = options->list_devices,
        .list_devices_data = options->list_devices_data,
    };
    muster_list_init(&resolver->pending);
    muster_list_init(&resolver->watches);
    snprintf(resolver->reason, sizeof(resolver->reason), "named by the caller");
    muster_task_init(&resolver->close_task, on_close, resolver);
    rc = replace_text(resolver, &resolver->task_type, options->task_type);
    if (rc == MUSTER_OK)
        rc = resolver_init_defaults(resolver, options);
    if (rc == MUSTER_OK)
        rc = copy_text(env->mem, options->environment, &resolver->environment);
    if (rc != MUSTER_OK)
        muster_resolver_fini(resolver);
    return rc;
}

void muster_resolver_fini(struct muster_resolver *resolver)
{
    MUSTER_ASSERT(muster_list_is_empty(&resolver->pending));
    muster_mem_free(resolver->env->mem, resolver->task_type);
    muster_mem_free(resolver->env->mem, resolver->rpc_layer);
    muster_mem_free(resolver->env->mem, resolver->environment);
}

static void resolve_drop_results(struct muster_resolve *resolve)
{
    muster_cluster_spec_unref(resolve->cluster_spec);
    resolve->cluster_spec = NULL;
    muster_mem_free(resolve->resolver->env->mem, resolve->master);
    resolve->master = NULL;
}

/* The end of every question. It runs as a task of its own, so `done` is never called inside
 * muster_resolve_start, and may start the same question again. */
static void on_answer(struct muster_task *task)
{
    struct muster_resolve *resolve = task->data;
    struct muster_resolver *resolver = resolve->resolver;

    MUSTER_ASSERT(resolve->is_finished);
    muster_timer_stop(&resolve->timer);
    muster_list_remove(&resolve->node);
    resolve->done(resolve, resolve->rc);
    if (resolver->is_closed && muster_list_is_empty(&resolver->pending))
        muster_task_post(&resolver->close_task, resolver->env->loop);
}

/* Ask the platform to stop working on the question; its muster_resolve_finish still comes. */
static void resolve_abandon(struct muster_resolve *resolve)
{
    if (!resolve->is_finished && resolve->resolver->ops->cancel != NULL)
        resolve->resolver->ops->cancel(resolve->resolver, resolve);
}

/* The platform ends an abandoned question with CANCELLED; is_expired tells muster_resolve_finish to
 * report DEADLINE_EXCEEDED instead. */
static void on_deadline(struct muster_timer *timer)
{
    struct muster_resolve *resolve = timer->data;

    resolve->is_expired = !resolve->is_finished;
    resolve_abandon(resolve);
}

enum muster_rc muster_resolve_start(struct muster_resolve *resolve,
                                    struct muster_resolver *resolver, muster_resolve_fn *done)
{
    enum muster_rc rc;

    if (resolver->is_closed)
        return MUSTER_FAILED_PRECONDITION;
    rc = muster_deadline_check(resolver->env, "muster_resolve_start", resolve->deadline_ns,
                               &resolve->error);
    if (rc != MUSTER_OK)
        return rc;
    resolve->done = done;
    resolve->resolver = resolver;
    resolve->cluster_spec = NULL;
    resolve->master = NULL;
    resolve->accelerators.kind_count = 0;
    resolve->error = (struct muster_error){0};
    resolve->is_expired = false;
    resolve->is_finished = false;
    resolve->impl = NULL;
    muster_task_init(&resolve->task, on_answer, resolve);
    muster_timer_init(&resolve->timer, on_deadline, resolve);
    /* All is set before ops->start, which may finish the question at once. */
    muster_list_append(&resolver->pending, &resolve->node);
    muster_timer_start(&resolve->timer, resolver->env->loop, resolve->deadline_ns);
    resolver->ops->start(resolver, resolve);
    return MUSTER_OK;
}

void muster_resolve_finish(struct muster_resolve *resolve, enum muster_rc rc)
{
    MUSTER_ASSERT(!resolve->is_finished); /* each question is answered exactly once */
    resolve->is_finished = true;
    if (rc == MUSTER_CANCELLED && resolve->is_expired)
        rc = muster_error_set(&resolve->error, MUSTER_DEADLINE_EXCEEDED,
                              "resolver '%s' had no answer before the deadline",
                              resolve->resolver->ops->name);
    if (rc != MUSTER_OK)
        resolve_drop_results(resolve);
    resolve->rc = rc;
    muster_task_post(&resolve->task, resolve->resolver->env->loop);
}

void muster_resolve_cancel(struct muster_resolve *resolve)
{
    resolve_abandon(resolve);
}

void muster_resolver_close(struct muster_resolver *resolver, muster_resolver_close_fn *closed)
{
    MUSTER_ASSERT(!resolver->is_closed);
    resolver->is_closed = true;
    resolver->closed = closed;
    MUSTER_LIST_EACH (&resolver->pending, resolve, struct muster_resolve, node)
        resolve_abandon(resolve);
    if (muster_list_is_empty(&resolver->pending))
        muster_task_post(&resolver->close_task, resolver->env->loop);
}

void muster_resolver_stopped(struct muster_resolver *resolver)
{
    MUSTER_ASSERT(resolver->is_closed && !resolver->is_stopped);
    resolver->is_stopped = true;
    muster_task_post(&resolver->close_task, resolver->env->loop);
}

const char *muster_resolve_rpc_layer(const struct muster_resolve *resolve)
{
    const char *asked = resolve->query.rpc_layer;

    return asked != NULL && asked[0] != '\0' ? asked : resolve->resolver->rpc_layer;
}

const char *muster_resolver_name(const struct muster_resolver *resolver)
{
    return resolver->ops->name;
}

const char *muster_resolver_reason(const struct muster_resolver *resolver)
{
    return resolver->reason;
}

/* Whether the caller has set the property: then no platform is asked for it. */
static bool is_override(const struct muster_resolver *resolver, enum muster_fact fact)
{
    switch (fact) {
    case MUSTER_FACT_TASK_TYPE:
        return resolver->task_type != NULL;
    case MUSTER_FACT_TASK_ID:
        return resolver->has_task_id && !resolver->is_task_id_default;
    case MUSTER_FACT_RPC_LAYER:
        return resolver->rpc_layer != NULL && !resolver->is_rpc_layer_default;
    case MUSTER_FACT_CLUSTER_SPEC:
    case MUSTER_FACT_MASTER:
    case MUSTER_FACT_NUM_ACCELERATORS:
    case MUSTER_FACT_WORLD_SIZE:
        break;
    }
    return false;
}

static bool is_default(const struct muster_resolver *resolver, enum muster_fact fact)
{
    return (fact == MUSTER_FACT_TASK_ID && resolver->is_task_id_default) ||
           (fact == MUSTER_FACT_RPC_LAYER && resolver->is_rpc_layer_default);
}

const char *muster_resolver_source(struct muster_resolver *resolver, enum muster_fact fact)
{
    const char *source = NULL;

    if (resolver->ops->source != NULL)
        source = resolver->ops->source(resolver, fact);
    if (source == NULL && is_override(resolver, fact))
        return "set by the caller";
    if (source == NULL && is_default(resolver, fact))
        return "default";
    return source != NULL ? source : resolver->ops->name;
}

enum muster_rc muster_resolver_world_size(struct muster_resolver *resolver, bool *ret_is_set,
                                          uint32_t *ret_size, struct muster_error *ret_error)
{
    if (resolver->ops->world_size != NULL)
        return resolver->ops->world_size(resolver, ret_is_set, ret_size, ret_error);
    *ret_is_set = false;
    *ret_size = 0;
    return MUSTER_OK;
}

enum muster_rc muster_resolver_task_type(struct muster_resolver *resolver, char **ret_text,
                                         struct muster_error *ret_error)
{
    if (resolver->task_type == NULL && resolver->ops->task_type != NULL)
        return resolver->ops->task_type(resolver, ret_text, ret_error);
    return muster_resolver_give_text(resolver, resolver->task_type, ret_text, ret_error);
}

enum muster_rc muster_resolver_task_id(struct muster_resolver *resolver, bool *ret_is_set,
                                       int64_t *ret_id, struct muster_error *ret_error)
{
    if (!resolver->has_task_id && resolver->ops->task_id != NULL)
        return resolver->ops->task_id(resolver, ret_is_set, ret_id, ret_error);
    *ret_is_set = resolver->has_task_id;
    *ret_id = resolver->task_id;
    return MUSTER_OK;
}

enum muster_rc muster_resolver_rpc_layer(struct muster_resolver *resolver, char **ret_text,
                                         struct muster_error *ret_error)
{
    if (resolver->rpc_layer == NULL && resolver->ops->rpc_layer != NULL)
        return resolver->ops->rpc_layer(resolver, ret_text, ret_error);
    return muster_resolver_give_text(resolver, resolver->rpc_layer, ret_text, ret_error);
}

const char *muster_resolver_environment(const struct muster_resolver *resolver)
{
    return resolver->environment;
}

enum muster_rc muster_resolver_set_task_type(struct muster_resolver *resolver,
                                             const char *task_type)
{
    if (resolver->ops->is_task_type_fixed)
        return MUSTER_FAILED_PRECONDITION;
    return replace_text(resolver, &resolver->task_type, task_type);
}

enum muster_rc muster_resolver_set_rpc_layer(struct muster_resolver *resolver,
                                             const char *rpc_layer)
{
    enum muster_rc rc = replace_text(resolver, &resolver->rpc_layer, rpc_layer);

    if (rc == MUSTER_OK)
        resolver->is_rpc_layer_default = false;
    return rc;
}

void muster_resolver_set_task_id(struct muster_resolver *resolver, bool is_set, int64_t task_id)
{
    resolver->has_task_id = is_set;
    resolver->is_task_id_default = false;
    resolver->task_id = task_id;
}
