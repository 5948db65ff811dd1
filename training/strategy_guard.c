/* One call at a time, and only in the process that opened the strategy. */
#include "training/strategy_internal.h"

/* A refused call must not touch the strategy, which belongs to the thread that is in: its error is
 * the thread's own, until the thread's next call. */
static _Thread_local struct {
    const struct muster_strategy *strategy;
    struct muster_error error;
} refused;

enum muster_rc muster_strategy_check(struct muster_strategy *strategy, const char *name)
{
    enum muster_rc rc = muster_runtime_check(strategy->runtime, name, &refused.error);

    refused.strategy = rc != MUSTER_OK ? strategy : NULL;
    return rc;
}

enum muster_rc muster_strategy_enter(struct muster_strategy *strategy, const char *name)
{
    enum muster_rc rc = muster_runtime_enter_as(strategy->runtime, name, &refused.error);

    refused.strategy = rc != MUSTER_OK ? strategy : NULL;
    return rc;
}

void muster_strategy_leave(struct muster_strategy *strategy)
{
    muster_runtime_leave(strategy->runtime);
}

const struct muster_error *muster_strategy_error(const struct muster_strategy *strategy)
{
    return refused.strategy == strategy ? &refused.error : &strategy->error;
}
