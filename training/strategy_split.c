/* Splits of a strategy: groups of some members, by color. */
#include "training/strategy_call.h"

/* Before the first begin only: all members must make the same splits, in the same order, before any
 * operation runs on them. */
enum muster_rc muster_strategy_split(struct muster_strategy *strategy, muster_color_fn *color,
                                     void *data, struct muster_strategy_split **ret_split)
{
    struct muster_strategy_split *split = NULL;
    enum muster_rc rc = muster_strategy_check(strategy, "split");

    if (rc != MUSTER_OK)
        return rc;
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (strategy->state != MUSTER_STRATEGY_OPEN)
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                "split: splits are made before the first begin");
    if (color == NULL)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "split: color must be a function, got NULL");
    if (strategy->split_count == MUSTER_SPLITS_MAX)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                "split: a strategy has at most %u splits", MUSTER_SPLITS_MAX);
    rc = muster_strategy_enter(strategy, "split");
    if (rc != MUSTER_OK)
        return rc;
    split = &strategy->splits[strategy->split_count];
    *split =
        (struct muster_strategy_split){.strategy = strategy,
                                       .lane = MUSTER_STRATEGY_SPLIT_LANE + strategy->split_count,
                                       .color = color,
                                       .data = data};
    strategy->split_count++;
    MUSTER_ASSERT(strategy->split_count <= MUSTER_SPLITS_MAX);
    if (muster_node_group(strategy->node) != NULL) /* the others were there already */
        muster_strategy_split_group(strategy, muster_node_group(strategy->node));
    muster_strategy_leave(strategy);
    *ret_split = split;
    return MUSTER_OK;
}

void muster_strategy_split_group(struct muster_strategy *strategy, struct muster_group *group)
{
    for (uint32_t i = 0; i < strategy->split_count; i++) {
        const struct muster_strategy_split *split = &strategy->splits[i];
        enum muster_rc rc = muster_group_split(group, &(struct muster_split){.lane = split->lane,
                                                                             .lane_count = 1,
                                                                             .color = split->color,
                                                                             .data = split->data});

        /* It has inherited it, or it is closed: the next one will be split. */
        if (rc == MUSTER_RESOURCE_EXHAUSTED)
            MUSTER_LOG(strategy->env, WARN, "strategy_split_without_memory", "lane", split->lane);
    }
}

/* --- Members of a split --- */

static const struct muster_member *own_member(const struct muster_strategy *strategy)
{
    uint32_t rank;

    if (strategy->view == NULL ||
        !muster_view_find(strategy->view, muster_node_incarnation(strategy->node), &rank))
        return NULL;
    return &strategy->view->members[rank];
}

/* A joiner is in the view before it takes part: it counts from from_step on. */
bool muster_strategy_takes_part(const struct muster_strategy *strategy,
                                const struct muster_strategy_split *split,
                                const struct muster_member *member)
{
    const struct muster_member *self;
    uint32_t color;

    if (member->from_step > strategy->step)
        return false;
    if (split == NULL)
        return true;
    self = own_member(strategy);
    color = split->color(split->data, member);
    return self != NULL && color <= MUSTER_COLOR_MAX && color == split->color(split->data, self);
}

uint32_t muster_strategy_split_size(const struct muster_strategy_split *split)
{
    const struct muster_view *view = split->strategy->view;
    uint32_t size = 0;

    for (uint32_t rank = 0; view != NULL && rank < view->member_count; rank++)
        size += muster_strategy_takes_part(split->strategy, split, &view->members[rank]);
    return size;
}

/* Ranks are positions among the members that take part, in the order of the view, as in a group of
 * all. */
uint32_t muster_strategy_split_rank(const struct muster_strategy_split *split)
{
    const struct muster_view *view = split->strategy->view;
    const struct muster_member *self = own_member(split->strategy);
    uint32_t place = 0;

    for (uint32_t rank = 0; self != NULL && &view->members[rank] != self; rank++)
        place += muster_strategy_takes_part(split->strategy, split, &view->members[rank]);
    return place;
}

uint32_t muster_strategy_size_of(const struct muster_strategy *strategy,
                                 const struct muster_strategy_split *split)
{
    return split != NULL ? muster_strategy_split_size(split) : strategy->size;
}
