/* A resolver asked again and again; only changes that have settled are told. */
#include <muster/resolver.h>

#include <string.h>

#include "resolvers/core/resolver_internal.h"

#define INTERVAL_DEFAULT_NS (10 * MUSTER_NS_PER_S)
#define SETTLE_DEFAULT_NS   (200 * MUSTER_NS_PER_MS)
#define SETTLE_TIMES        5
#define QUESTION_MIN_NS     MUSTER_NS_PER_S /* to answer in, however short the interval is */

static void on_closed(struct muster_task *task)
{
    struct muster_resolver_watch *watch = task->data;

    muster_cluster_spec_unref(watch->spec);
    watch->spec = NULL;
    if (watch->closed != NULL)
        watch->closed(watch);
}

static void ask_after(struct muster_resolver_watch *watch, uint64_t wait_ns)
{
    struct muster_loop *loop = watch->resolver->env->loop;

    muster_timer_start(&watch->timer, loop, muster_loop_after_ns(loop, wait_ns));
}

static void forget_unsettled(struct muster_resolver_watch *watch)
{
    muster_cluster_spec_unref(watch->unsettled);
    watch->unsettled = NULL;
}

/* Takes spec. */
static void tell(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec)
{
    struct muster_cluster_spec *before = watch->spec;
    struct muster_cluster_diff diff;

    forget_unsettled(watch);
    if (muster_cluster_diff_init(&diff, watch->resolver->env->mem, before, spec) != MUSTER_OK) {
        muster_error_set(&watch->error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a change");
        muster_cluster_spec_unref(spec);
        return;
    }
    watch->spec = muster_cluster_spec_ref(spec);
    watch->on_change(watch, spec, &diff);
    muster_cluster_diff_fini(&diff);
    muster_cluster_spec_unref(before);
    muster_cluster_spec_unref(spec);
}

static bool is_settled(const struct muster_resolver_watch *watch,
                       const struct muster_cluster_spec *spec)
{
    if (watch->spec == NULL)
        return true;
    if (watch->unsettled == NULL)
        return false;
    return muster_cluster_spec_is_equal(watch->unsettled, spec) ||
           muster_loop_now_ns(watch->resolver->env->loop) >= watch->settle_end_ns;
}

/* Takes spec. */
static void take_answer(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec)
{
    struct muster_loop *loop = watch->resolver->env->loop;

    if (watch->spec != NULL && muster_cluster_spec_is_equal(watch->spec, spec)) {
        forget_unsettled(watch);
        muster_cluster_spec_unref(spec);
        return;
    }
    if (is_settled(watch, spec)) {
        tell(watch, spec);
        return;
    }
    if (watch->unsettled == NULL)
        watch->settle_end_ns = muster_loop_after_ns(loop, SETTLE_TIMES * watch->settle_ns);
    forget_unsettled(watch);
    watch->unsettled = spec;
    ask_after(watch, watch->settle_ns);
}

/* Watches that were opened together do not ask together for ever: the first pause is a part of the
 * interval. */
static uint64_t next_pause_ns(struct muster_resolver_watch *watch)
{
    if (watch->is_hurried)
        return watch->settle_ns;
    if (watch->is_spread)
        return watch->interval_ns;
    watch->is_spread = true;
    return muster_rng_below(watch->resolver->env->rng, watch->interval_ns) + 1;
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
    ask_after(watch, next_pause_ns(watch));
    watch->error = resolve->error;
    if (rc == MUSTER_OK)
        take_answer(watch, spec);
}

static enum muster_rc ask(struct muster_resolver_watch *watch)
{
    struct muster_loop *loop = watch->resolver->env->loop;
    enum muster_rc rc;

    watch->is_hurried = false;
    watch->resolve.what = MUSTER_RESOLVE_CLUSTER_SPEC;
    watch->resolve.data = watch;
    watch->resolve.deadline_ns = muster_loop_after_ns(
        loop, watch->interval_ns > QUESTION_MIN_NS ? watch->interval_ns : QUESTION_MIN_NS);
    rc = muster_resolve_start(&watch->resolve, watch->resolver, on_answer);
    watch->is_asking = rc == MUSTER_OK;
    return rc;
}

bool muster_resolve_is_watch(const struct muster_resolve *resolve)
{
    const struct muster_list *watches = &resolve->resolver->watches;
    struct muster_list *node;

    for (node = watches->next; node != watches; node = node->next)
        if (&MUSTER_CONTAINER_OF(node, struct muster_resolver_watch, node)->resolve == resolve)
            return true;
    return false;
}

static void on_interval(struct muster_timer *timer)
{
    struct muster_resolver_watch *watch = timer->data;

    if (ask(watch) != MUSTER_OK)
        muster_error_set(&watch->error, MUSTER_FAILED_PRECONDITION, "the resolver is closed");
}

/* Many reports within settle_ns make one question. */
static void hurry(struct muster_resolver_watch *watch)
{
    if (watch->is_hurried)
        return;
    watch->is_hurried = true;
    if (!watch->is_asking)
        ask_after(watch, watch->settle_ns);
}

void muster_resolver_changed(struct muster_resolver *resolver)
{
    struct muster_list *node;

    for (node = resolver->watches.next; node != &resolver->watches; node = node->next)
        hurry(MUSTER_CONTAINER_OF(node, struct muster_resolver_watch, node));
}

static void tell_watched(struct muster_resolver *resolver, bool is_watched)
{
    if (resolver->ops->watched != NULL)
        resolver->ops->watched(resolver, is_watched);
}

enum muster_rc muster_resolver_watch_open(struct muster_resolver_watch *watch,
                                          struct muster_resolver *resolver)
{
    enum muster_rc rc;

    watch->resolver = resolver;
    watch->spec = NULL;
    watch->unsettled = NULL;
    watch->closed = NULL;
    watch->is_closed = false;
    watch->is_spread = false;
    watch->error = (struct muster_error){0};
    if (watch->interval_ns == 0)
        watch->interval_ns = resolver->ops->watch_interval_ns;
    if (watch->interval_ns == 0)
        watch->interval_ns = INTERVAL_DEFAULT_NS;
    if (watch->settle_ns == 0)
        watch->settle_ns = SETTLE_DEFAULT_NS;
    muster_timer_init(&watch->timer, on_interval, watch);
    muster_task_init(&watch->close_task, on_closed, watch);
    muster_list_append(&resolver->watches, &watch->node);
    rc = ask(watch);
    if (rc != MUSTER_OK) {
        muster_list_remove(&watch->node);
        return rc;
    }
    if (watch->node.prev == &resolver->watches)
        tell_watched(resolver, true);
    return MUSTER_OK;
}

void muster_resolver_watch_close(struct muster_resolver_watch *watch,
                                 muster_resolver_watch_close_fn *closed)
{
    watch->is_closed = true;
    watch->closed = closed;
    muster_timer_stop(&watch->timer);
    muster_list_remove(&watch->node);
    if (muster_list_is_empty(&watch->resolver->watches))
        tell_watched(watch->resolver, false);
    forget_unsettled(watch);
    if (watch->is_asking)
        muster_resolve_cancel(&watch->resolve);
    else
        muster_task_post(&watch->close_task, watch->resolver->env->loop);
}
