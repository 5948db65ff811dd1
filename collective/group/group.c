/* A group: the members of one epoch, their lanes of operations, and the callbacks that are due. The cluster layer
 * opens one for each view, freezes it when the next is proposed (freeze.c), and hands its operations over
 * (hand_over.c). A group is freed by its own task, never inside a call, since callbacks may close it. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <string.h>

/* --- Callbacks --- */

void muster_group_finish(struct muster_group *group)
{
    MUSTER_ASSERT(!group->is_closed);
    group->is_left = false;
    group->is_closed = true;
    muster_group_parts_finish(group);
}

static void on_task(struct muster_task *task)
{
    struct muster_group *group = task->data;

    group->is_done_late = false;
    muster_group_run_done(group);
    if (group->is_left && group->lingering_count == 0 && muster_list_is_empty(&group->done))
        muster_group_finish(group);
    if (!group->is_closed)
        return;
    muster_view_unref(group->view);
    muster_mem_free(group->env->mem, group->receiving);
    muster_mem_free(group->env->mem, group->is_rank_paused);
    muster_topology_fini(&group->topology, group->env->mem);
    muster_mem_free(group->env->mem, group);
}

/* --- Life --- */

static const struct muster_lane_events lane_events = {.on_activated = muster_group_replay_early,
                                                      .on_timer = muster_run_on_timer};

/* Room for two chunks of each member in twice as many rings as a lane runs at a time. With less, early frames could
 * pause the link, and with it the frames behind it of the operation that all wait for. */
static size_t early_bytes_max(const struct muster_view *view)
{
    size_t rings = MUSTER_LANE_COST_MAX / MUSTER_RING_COST;
    size_t needed = 2 * rings * 2 * view->member_count * muster_plan_chunk_bytes(&view->plan);

    return needed > MUSTER_EARLY_BYTES_MAX ? needed : MUSTER_EARLY_BYTES_MAX;
}

static void init_lists(struct muster_group *group)
{
    for (uint32_t lane = 0; lane < MUSTER_LANES_MAX; lane++)
        muster_list_init(&group->lanes[lane].runs);
    muster_list_init(&group->pending);
    muster_list_init(&group->done);
    muster_list_init(&group->early);
    muster_list_init(&group->pairs);
    muster_list_init(&group->looking);
    muster_task_init(&group->task, on_task, group);
}

/* A joiner begins with the step after those that go on without it (docs/protocol.md, "Steps and state"). */
static void init_steps(struct muster_group *group)
{
    const struct muster_view *view = group->view;

    for (uint32_t rank = 0; rank < view->member_count; rank++)
        if (view->members[rank].from_step > group->from_step_max)
            group->from_step_max = view->members[rank].from_step;
    group->begun_step = view->members[group->rank].from_step;
}

enum muster_rc muster_group_open(const struct muster_group_options *options,
                                 struct muster_group **ret_group)
{
    struct muster_mem *mem = options->env->mem;
    struct muster_group *group = NULL;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    uint32_t rank;

    if (!muster_view_find(options->view, &options->self, &rank))
        return MUSTER_INVALID_ARGUMENT;
    group = muster_mem_alloc_zero(mem, 1, sizeof(*group));
    if (group == NULL)
        goto fail;
    group->receiving =
        muster_mem_alloc_zero(mem, options->view->member_count, sizeof(*group->receiving));
    group->is_rank_paused = muster_mem_alloc_zero(mem, options->view->member_count, sizeof(bool));
    if (group->receiving == NULL || group->is_rank_paused == NULL ||
        muster_topology_init(&group->topology, mem, options->view->member_count) != MUSTER_OK)
        goto fail;
    group->env = options->env;
    group->self = options->self;
    group->wire = options->wire;
    group->board = options->board;
    group->pool = muster_wire_pool(options->wire);
    group->events = options->events;
    group->data = options->data;
    group->rank = rank;
    group->abort_grace_ns =
        options->abort_grace_ns != 0 ? options->abort_grace_ns : MUSTER_ABORT_GRACE_NS_DEFAULT;
    group->answer_wait_ns =
        options->answer_wait_ns != 0 ? options->answer_wait_ns : MUSTER_ANSWER_WAIT_NS_DEFAULT;
    group->early_bytes_max = early_bytes_max(options->view);
    group->lane_events = &lane_events;
    init_lists(group);
    rc = muster_wire_attach(group->wire, options->view, &muster_group_wire_client, group);
    if (rc != MUSTER_OK)
        goto fail;
    group->view = muster_view_ref(options->view);
    init_steps(group);
    muster_group_register(group, MUSTER_PART_SHM, &group->shm_part, &muster_shm_part_ops);
    muster_group_register(group, MUSTER_PART_MESSAGES, &group->messages_part,
                          &muster_messages_part_ops);
    rc = muster_group_parts_open(group);
    if (rc != MUSTER_OK) {
        muster_wire_detach(group->wire, group);
        muster_view_unref(group->view);
        goto fail;
    }
    *ret_group = group;
    return MUSTER_OK;
fail:
    if (group != NULL) {
        muster_mem_free(mem, group->receiving);
        muster_mem_free(mem, group->is_rank_paused);
        muster_topology_fini(&group->topology, mem);
    }
    muster_mem_free(mem, group);
    return rc;
}

bool muster_group_is_busy(const struct muster_group *group)
{
    if (!muster_list_is_empty(&group->pending) || muster_group_parts_are_busy(group))
        return true;
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        MUSTER_LIST_EACH(&group->lanes[lane].runs, run, const struct muster_run, node)
            if (run->op != NULL)
                return true;
    return false;
}

bool muster_group_is_finishing(const struct muster_group *group)
{
    bool is_busy = false;

    if (!muster_list_is_empty(&group->pending) || muster_group_parts_are_busy(group))
        return false;
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        MUSTER_LIST_EACH(&group->lanes[lane].runs, run, const struct muster_run, node) {
            if (run->op == NULL)
                continue;
            if (!muster_run_is_shared(run) || !run->ops->shared->is_ready(run))
                return false;
            is_busy = true;
        }
    return is_busy;
}

bool muster_group_is_idle(const struct muster_group *group)
{
    if (!muster_list_is_empty(&group->pending) || !muster_list_is_empty(&group->done) ||
        muster_group_parts_are_busy(group))
        return false;
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        if (!muster_list_is_empty(&group->lanes[lane].runs))
            return false;
    return muster_wire_is_idle(group->wire);
}

/* Runs that were handed back and are kept for others. A lingering run ends the group's life later. */
static void free_runs(struct muster_list *runs)
{
    MUSTER_LIST_EACH_SAFE(runs, run, struct muster_run, node)
        if (!muster_run_is_lingering(run))
            muster_run_free(run);
}

void muster_group_leave(struct muster_group *group)
{
    if (group == NULL)
        return;
    MUSTER_ASSERT(!group->is_closed && !group->is_left);
    group->is_left = true;
    /* Half-received frames go before their runs, and the wire last: without early frames its links are resumed. */
    muster_group_parts_close(group);
    muster_group_abandon_receiving(group, NULL);
    muster_group_drop_early(group);
    for (uint32_t lane = 0; lane < group->lane_count; lane++)
        free_runs(&group->lanes[lane].runs);
    MUSTER_ASSERT(group->lingering_count > 0 || !muster_group_is_busy(group));
    muster_wire_detach(group->wire, group);
    if (group->lingering_count == 0)
        muster_group_finish(group);
    muster_task_post(&group->task, group->env->loop);
}

void muster_group_close(struct muster_group *group)
{
    if (group == NULL)
        return;
    muster_group_end_lingering(group);
    MUSTER_ASSERT(!muster_group_is_busy(group));
    muster_group_leave(group);
}

void muster_group_begin_step(struct muster_group *group, uint64_t step)
{
    struct muster_lane *lane = &group->lanes[0];

    if (step == group->begun_step && lane->step == step) /* it runs again */
        lane->first_sequence = lane->next_sequence;
    if (step > group->begun_step)
        group->begun_step = step;
}

void muster_group_commit_step(struct muster_group *group, uint64_t step)
{
    if (step > group->committed_step)
        group->committed_step = step;
}

/* Members are compared with all before them: a view has few, and this is called by user's questions only. */
static uint32_t count_hosts(const struct muster_view *view)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < view->member_count; i++) {
        uint32_t k = 0;

        while (strcmp(view->members[k].host_key, view->members[i].host_key) != 0)
            k++;
        count += k == i;
    }
    return count;
}

static struct muster_plan plan_of(const struct muster_group *group, enum muster_op_kind kind,
                                  uint64_t count, enum muster_dtype dtype)
{
    const struct muster_plan_input input = {
        .kind = kind,
        .n = group->view->member_count,
        .index = group->rank,
        .count = count,
        .host_count = count_hosts(group->view),
        .element_bytes = muster_dtype_bytes(dtype),
        .parameters = group->view->plan,
    };

    return group->boards == MUSTER_BOARDS_USED ? muster_shm_plan_make(&input)
                                               : muster_plan_make(&input);
}

const char *muster_group_algorithm(const struct muster_group *group, enum muster_op_kind kind,
                                   uint64_t count, enum muster_dtype dtype)
{
    return muster_algorithm_name(plan_of(group, kind, count, dtype).algorithm);
}

struct muster_op_cost muster_group_cost(const struct muster_group *group, enum muster_op_kind kind,
                                        uint64_t count, enum muster_dtype dtype)
{
    struct muster_plan plan = plan_of(group, kind, count, dtype);

    /* The topology is that of the last plan; until one of all members was made the costs are not known. */
    if (plan.algorithm == MUSTER_ALGORITHM_TWO_LEVEL && group->topology.n != plan.n)
        return (struct muster_op_cost){.sent_bytes = 0};
    return muster_plan_cost(&plan, &group->topology);
}

enum muster_rc muster_group_set_priority(struct muster_group *group, uint32_t lane,
                                         uint8_t priority)
{
    if (lane >= MUSTER_LANES_MAX)
        return MUSTER_INVALID_ARGUMENT;
    muster_wire_set_priority(group->wire, lane, priority);
    return MUSTER_OK;
}

uint32_t muster_group_rank(const struct muster_group *group)
{
    return group->rank;
}

uint32_t muster_group_size(const struct muster_group *group)
{
    return group->view->member_count;
}

const struct muster_view *muster_group_view(const struct muster_group *group)
{
    return group->view;
}
