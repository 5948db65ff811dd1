/* A resolver asked again and again; only changes are told. */
#include <muster/resolver.h>

#include <string.h>

#define INTERVAL_DEFAULT_NS (10 * MUSTER_NS_PER_S)

static void on_closed(struct muster_task *task)
{
    struct muster_resolver_watch *watch = task->data;

    muster_cluster_spec_unref(watch->spec);
    watch->spec = NULL;
    if (watch->closed != NULL)
        watch->closed(watch);
}

static void keep_asking(struct muster_resolver_watch *watch)
{
    struct muster_loop *loop = watch->resolver->env->loop;

    muster_timer_start(&watch->timer, loop, muster_loop_after_ns(loop, watch->interval_ns));
}

static bool is_change(const struct muster_resolver_watch *watch,
                      const struct muster_cluster_spec *spec)
{
    return watch->spec == NULL || !muster_cluster_spec_is_equal(watch->spec, spec);
}

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct muster_resolver_watch *watch = resolve->data;
    struct muster_cluster_spec *spec = resolve->cluster_spec;

    watch->is_asking = false;
    if (watch->is_closed) {
        muster_cluster_spec_unref(rc == MUSTER_OK ? spec : NULL);
        muster_task_post(&watch->close_task, watch->resolver->env->loop);
        return;
    }
    keep_asking(watch);
    watch->error = resolve->error;
    if (rc != MUSTER_OK)
        return;
    if (!is_change(watch, spec)) {
        muster_cluster_spec_unref(spec);
        return;
    }
    muster_cluster_spec_unref(watch->spec);
    watch->spec = spec;
    watch->on_change(watch, spec);
}

static enum muster_rc ask(struct muster_resolver_watch *watch)
{
    enum muster_rc rc;

    watch->resolve.what = MUSTER_RESOLVE_CLUSTER_SPEC;
    watch->resolve.data = watch;
    watch->resolve.deadline_ns =
        muster_loop_after_ns(watch->resolver->env->loop, watch->interval_ns);
    rc = muster_resolve_start(&watch->resolve, watch->resolver, on_answer);
    watch->is_asking = rc == MUSTER_OK;
    return rc;
}

static void on_interval(struct muster_timer *timer)
{
    struct muster_resolver_watch *watch = timer->data;

    if (ask(watch) != MUSTER_OK)
        muster_error_set(&watch->error, MUSTER_FAILED_PRECONDITION, "the resolver is closed");
}

enum muster_rc muster_resolver_watch_open(struct muster_resolver_watch *watch,
                                          struct muster_resolver *resolver)
{
    watch->resolver = resolver;
    watch->spec = NULL;
    watch->closed = NULL;
    watch->is_closed = false;
    watch->error = (struct muster_error){0};
    if (watch->interval_ns == 0)
        watch->interval_ns = INTERVAL_DEFAULT_NS;
    muster_timer_init(&watch->timer, on_interval, watch);
    muster_task_init(&watch->close_task, on_closed, watch);
    return ask(watch);
}

void muster_resolver_watch_close(struct muster_resolver_watch *watch,
                                 muster_resolver_watch_close_fn *closed)
{
    watch->is_closed = true;
    watch->closed = closed;
    muster_timer_stop(&watch->timer);
    if (watch->is_asking)
        muster_resolve_cancel(&watch->resolve);
    else
        muster_task_post(&watch->close_task, watch->resolver->env->loop);
}
