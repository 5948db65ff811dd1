/* Splits of a strategy: groups of some members, by color. */
#include <string.h>

#include "training/strategy_call.h"

/* Also after the first begin: what others have already sent to the new lane waits in the group. */
static enum muster_rc split_add(struct muster_strategy *strategy,
                                const struct muster_strategy_split *fields,
                                struct muster_strategy_split **ret_split)
{
    struct muster_strategy_split *split = NULL;
    enum muster_rc rc = muster_strategy_enter(strategy, "split");

    if (rc != MUSTER_OK)
        return rc;
    if (strategy->state == MUSTER_STRATEGY_FAILED)
        rc = strategy->error.rc;
    else if (strategy->split_count == MUSTER_SPLITS_MAX)
        rc = muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                              "split: a strategy has at most %u splits", MUSTER_SPLITS_MAX);
    if (rc == MUSTER_OK) {
        split = &strategy->splits[strategy->split_count];
        *split = *fields;
        split->strategy = strategy;
        split->lane = MUSTER_STRATEGY_SPLIT_LANE + strategy->split_count;
        strategy->split_count++;
        if (muster_node_group(strategy->node) != NULL)
            muster_strategy_split_group(strategy, muster_node_group(strategy->node));
        *ret_split = split;
    }
    muster_strategy_leave(strategy);
    return rc;
}

enum muster_rc muster_strategy_split(struct muster_strategy *strategy, muster_color_fn *color,
                                     void *data, struct muster_strategy_split **ret_split)
{
    enum muster_rc rc = muster_strategy_check(strategy, "split");

    if (rc != MUSTER_OK)
        return rc;
    if (color == NULL)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "split: color must be a function, got NULL");
    return split_add(strategy, &(struct muster_strategy_split){.color = color, .data = data},
                     ret_split);
}

/* --- Tables --- */

struct task_color {
    char task_type[MUSTER_JOB_NAME_BYTES]; /* empty: every type */
    uint32_t task_index, color;
};

struct muster_split_table {
    size_t count;
    struct task_color rows[];
};

static uint32_t color_in_table(void *data, const struct muster_member *member)
{
    const struct muster_split_table *table = data;

    for (size_t i = 0; i < table->count; i++)
        if (table->rows[i].task_index == member->task_index &&
            (table->rows[i].task_type[0] == '\0' ||
             strcmp(table->rows[i].task_type, member->task_type) == 0))
            return table->rows[i].color;
    return MUSTER_COLOR_NO_GROUP;
}

static enum muster_rc table_check(struct muster_strategy *strategy,
                                  const struct muster_task_color *colors, size_t count)
{
    if (count == 0 || colors == NULL)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "split: a table must have the color of one task at least");
    for (size_t i = 0; i < count; i++)
        if (colors[i].task_type != NULL && strlen(colors[i].task_type) >= MUSTER_JOB_NAME_BYTES)
            return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                    "split: the task type of row %zu must have at most %d bytes", i,
                                    MUSTER_JOB_NAME_BYTES - 1);
    return MUSTER_OK;
}

enum muster_rc muster_strategy_split_table(struct muster_strategy *strategy,
                                           const struct muster_task_color *colors, size_t count,
                                           struct muster_strategy_split **ret_split)
{
    struct muster_split_table *table;
    enum muster_rc rc = muster_strategy_check(strategy, "split");

    if (rc == MUSTER_OK)
        rc = table_check(strategy, colors, count);
    if (rc != MUSTER_OK)
        return rc;
    table = muster_mem_alloc_zero(muster_mem_system(), 1,
                                  sizeof(*table) + count * sizeof(table->rows[0]));
    if (table == NULL)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                "split: out of memory");
    table->count = count;
    for (size_t i = 0; i < count; i++) {
        if (colors[i].task_type != NULL)
            memcpy(table->rows[i].task_type, colors[i].task_type, strlen(colors[i].task_type));
        table->rows[i].task_index = colors[i].task_index;
        table->rows[i].color = colors[i].color;
    }
    rc = split_add(
        strategy,
        &(struct muster_strategy_split){.color = color_in_table, .data = table, .table = table},
        ret_split);
    if (rc != MUSTER_OK)
        muster_mem_free(muster_mem_system(), table);
    return rc;
}

void muster_strategy_splits_free(struct muster_strategy *strategy)
{
    for (uint32_t i = 0; i < strategy->split_count; i++)
        muster_mem_free(muster_mem_system(), strategy->splits[i].table);
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
