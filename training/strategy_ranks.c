/* Ranks as the program knows them, since begin: roots, partners, and the order of parts. */
#include "training/strategy_call.h"

struct muster_root muster_strategy_root_of(const struct muster_strategy *strategy,
                                           const struct muster_strategy_split *split, uint32_t rank)
{
    const struct muster_view *view = strategy->view;
    struct muster_root root = {.epoch = view->epoch};

    MUSTER_ASSERT(rank < muster_strategy_size_of(strategy, split));
    for (uint32_t i = 0; i < view->member_count; i++)
        if (muster_strategy_takes_part(strategy, split, &view->members[i]) && rank-- == 0) {
            root.incarnation = view->members[i].incarnation;
            break;
        }
    return root;
}

/* The root is checked before the call starts: a rank that nobody has is a mistake of this program
 * alone, and must not start anything on the group. */
enum muster_rc muster_strategy_run_with_root(struct muster_strategy *strategy,
                                             struct muster_strategy_call *call, uint32_t root)
{
    enum muster_rc rc = muster_strategy_check_step(strategy, call->name);
    uint32_t size;

    if (rc != MUSTER_OK)
        return rc;
    size = muster_strategy_size_of(strategy, call->split);
    if (root >= size)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "%s: there is no rank %u, the last is %u", call->name, root,
                                size - 1);
    call->root = muster_strategy_root_of(strategy, call->split, root);
    return muster_strategy_run(strategy, call);
}

enum muster_rc muster_strategy_run_by_ranks(struct muster_strategy *strategy,
                                            struct muster_strategy_call *call)
{
    enum muster_rc rc = muster_strategy_check_step(strategy, call->name);

    if (rc != MUSTER_OK)
        return rc;
    call->view = strategy->view;
    return muster_strategy_run(strategy, call);
}

enum muster_rc muster_strategy_check_split(const struct muster_strategy_split *split,
                                           const char *name)
{
    enum muster_rc rc = muster_strategy_check_step(split->strategy, name);

    if (rc == MUSTER_OK && muster_strategy_split_size(split) == 0)
        return muster_error_set(&split->strategy->error, MUSTER_FAILED_PRECONDITION,
                                "%s of a split: this member has no group in it", name);
    return rc;
}
