/* Preemption as Google's metadata server announces it (MUSTER_PREEMPTION=gce), watched by each member. */
#include <muster/http.h>

#include "training/strategy_internal.h"

static void on_notice(struct muster_maintenance *maintenance, const char *cause)
{
    struct muster_strategy *strategy = maintenance->data;

    if (strategy->node != NULL)
        muster_node_preempt(strategy->node, cause);
}

static void on_off(struct muster_maintenance *maintenance)
{
    struct muster_strategy *strategy = maintenance->data;

    strategy->preemption.maintenance.is_off = true;
}

/* Other parts of the strategy find this HTTP client, and open none. */
enum muster_rc muster_strategy_open_maintenance(struct muster_strategy *strategy,
                                                struct muster_error *ret_error)
{
    struct muster_strategy_maintenance *maintenance = &strategy->preemption.maintenance;
    struct muster_env *env = strategy->env;

    if (!maintenance->is_wanted)
        return MUSTER_OK;
    MUSTER_ASSERT(env->http == NULL);
    return muster_http_curl_open(env, NULL, &env->http, ret_error);
}

void muster_strategy_watch_maintenance(struct muster_strategy *strategy)
{
    struct muster_strategy_maintenance *maintenance = &strategy->preemption.maintenance;

    if (!maintenance->is_wanted)
        return;
    maintenance->is_watched = true;
    muster_maintenance_init(&maintenance->watch, strategy->env);
    maintenance->watch.data = strategy;
    maintenance->watch.on_notice = on_notice;
    maintenance->watch.on_off = on_off;
    muster_maintenance_start(&maintenance->watch);
}

static void on_http_closed(struct muster_http *http)
{
    MUSTER_CONTAINER_OF(http->tracer, struct muster_strategy_maintenance, tracer)->is_http_closed =
        true;
}

void muster_strategy_close_maintenance(struct muster_strategy *strategy)
{
    struct muster_strategy_maintenance *maintenance = &strategy->preemption.maintenance;

    if (maintenance->is_watched) {
        muster_maintenance_stop(&maintenance->watch);
        muster_strategy_wait_until(strategy, muster_strategy_is_true, &maintenance->is_off);
        muster_maintenance_fini(&maintenance->watch);
        maintenance->is_watched = false;
    }
    if (!maintenance->is_wanted || strategy->env->http == NULL)
        return;
    strategy->env->http->tracer = &maintenance->tracer; /* it hears of no exchange any more */
    muster_http_close(strategy->env->http, on_http_closed);
    muster_strategy_wait_until(strategy, muster_strategy_is_true, &maintenance->is_http_closed);
    strategy->env->http = NULL;
}
