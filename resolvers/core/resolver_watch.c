/* A watch asks its resolver at an interval and reports a change once it has settled: platforms
 * change a cluster task by task, and each report may cost its reader a new group. A platform that
 * hears of changes itself calls muster_resolver_changed, and the next question comes early. */
#include <muster/resolver.h>

#include <string.h>

#include "resolvers/core/resolver_internal.h"

#define INTERVAL_DEFAULT_NS (10 * MUSTER_NS_PER_S)   /* of platforms that name none */
#define SETTLE_DEFAULT_NS   (200 * MUSTER_NS_PER_MS) /* tasks that start together come within it */
#define SETTLE_TIMES        5               /* a change waits for at most so many settle_ns */
#define QUESTION_MIN_NS     MUSTER_NS_PER_S /* to answer in, however short the interval is */

static void on_closed(struct muster_task *task)
{
    struct muster_resolver_watch *watch = task->data;

    muster_cluster_spec_unref(watch->spec);
    watch->spec = NULL;
    if (watch->closed != NULL)
        watch->closed(watch);
}

static void schedule_ask(struct muster_resolver_watch *watch, uint64_t wait_ns)
{
    struct muster_loop *loop = watch->resolver->env->loop;

    muster_timer_start(&watch->timer, loop, muster_loop_after_ns(loop, wait_ns));
}

static void drop_unsettled(struct muster_resolver_watch *watch)
{
    muster_cluster_spec_unref(watch->unsettled);
    watch->unsettled = NULL;
}

/* Report spec as the new cluster. Takes spec. Without memory for the difference the old cluster
 * stays the reported one, so that the next question tries again. */
static void publish_change(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec)
{
    struct muster_cluster_spec *before = watch->spec;
    struct muster_cluster_diff diff;

    drop_unsettled(watch);
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

/* The first answer needs no confirmation. A later one is reported when two questions in a row gave
 * it, or when the cluster has been changing for SETTLE_TIMES settle_ns: the user is not kept
 * waiting for ever. */
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

/* Compare an answer with the reported cluster. Takes spec. */
static void take_answer(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec)
{
    struct muster_loop *loop = watch->resolver->env->loop;

    if (watch->spec != NULL && muster_cluster_spec_is_equal(watch->spec, spec)) {
        drop_unsettled(watch);
        muster_cluster_spec_unref(spec);
        return;
    }
    if (is_settled(watch, spec)) {
        publish_change(watch, spec);
        return;
    }
    if (watch->unsettled == NULL)
        watch->settle_end_ns = muster_loop_after_ns(loop, SETTLE_TIMES * watch->settle_ns);
    drop_unsettled(watch);
    watch->unsettled = spec;
    schedule_ask(watch, watch->settle_ns);
}

/* The first pause is a random part of the interval, so that watches that were opened at one moment,
 * as by all tasks of a starting job, do not ask their platform at one moment ever after. */
static uint64_t next_pause_ns(struct muster_resolver_watch *watch)
{
    if (watch->is_hurried)
        return watch->settle_ns;
    if (watch->is_spread)
        return watch->interval_ns;
    watch->is_spread = true;
    return muster_rng_below(watch->resolver->env->rng, watch->interval_ns) + 1;
}

/* The next question is scheduled before the answer is handled, because take_answer may ask for an
 * earlier one. A failure keeps the reported cluster: a platform that is away for a moment has not
 * lost its tasks. */
static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct muster_resolver_watch *watch = resolve->data;
    struct muster_cluster_spec *spec = resolve->cluster_spec;

    MUSTER_ASSERT(watch->is_asking);
    watch->is_asking = false;
    if (watch->is_closed) {
        muster_cluster_spec_unref(rc == MUSTER_OK ? spec : NULL);
        muster_task_post(&watch->close_task, watch->resolver->env->loop);
        return;
    }
    schedule_ask(watch, next_pause_ns(watch));
    watch->error = resolve->error;
    if (rc == MUSTER_OK)
        take_answer(watch, spec);
}

/* Start a question; at most one is open for a watch. */
static enum muster_rc watch_ask(struct muster_resolver_watch *watch)
{
    struct muster_loop *loop = watch->resolver->env->loop;
    enum muster_rc rc;

    MUSTER_ASSERT(!watch->is_asking && !watch->is_closed);
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
    MUSTER_LIST_EACH (&resolve->resolver->watches, watch, struct muster_resolver_watch, node) {
        if (&watch->resolve == resolve)
            return true;
    }
    return false;
}

static void on_interval(struct muster_timer *timer)
{
    struct muster_resolver_watch *watch = timer->data;

    if (watch_ask(watch) != MUSTER_OK)
        muster_error_set(&watch->error, MUSTER_FAILED_PRECONDITION, "the resolver is closed");
}

/* Ask soon: all reports of changes within settle_ns share one question. While a question is open
 * the next one waits for its answer, because that answer may be older than the report. */
static void watch_hurry(struct muster_resolver_watch *watch)
{
    if (watch->is_hurried)
        return;
    watch->is_hurried = true;
    if (!watch->is_asking)
        schedule_ask(watch, watch->settle_ns);
}

void muster_resolver_changed(struct muster_resolver *resolver)
{
    MUSTER_LIST_EACH (&resolver->watches, watch, struct muster_resolver_watch, node)
        watch_hurry(watch);
}

/* The first watch turns the platform's own reports on, the last one off: a stream of events costs
 * the API server memory. */
static void notify_watched(struct muster_resolver *resolver, bool is_watched)
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
    watch->is_asking = false;
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
    rc = watch_ask(watch); /* in the list already: muster_resolve_is_watch looks there */
    if (rc != MUSTER_OK) {
        muster_list_remove(&watch->node);
        return rc;
    }
    if (watch->node.prev == &resolver->watches)
        notify_watched(resolver, true);
    return MUSTER_OK;
}

void muster_resolver_watch_close(struct muster_resolver_watch *watch,
                                 muster_resolver_watch_close_fn *closed)
{
    MUSTER_ASSERT(!watch->is_closed);
    watch->is_closed = true;
    watch->closed = closed;
    muster_timer_stop(&watch->timer);
    muster_list_remove(&watch->node);
    if (muster_list_is_empty(&watch->resolver->watches))
        notify_watched(watch->resolver, false);
    drop_unsettled(watch);
    if (watch->is_asking)
        muster_resolve_cancel(&watch->resolve);
    else
        muster_task_post(&watch->close_task, watch->resolver->env->loop);
}
