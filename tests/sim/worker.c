/* A worker of a cast: a training program over muster_node. */
#include "tests/sim/worker.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/node/member.h"
#include "collective/group/group_internal.h"
#include "tests/sim/registry_stage.h"
#include "tests/sim/sim_internal.h"
#include "tests/sim/trainee.h"

#define LEAVE_TIMEOUT_NS (20 * MUSTER_NS_PER_S)

struct worker {
    struct cast_task *task;
    struct sim_node *process;
    struct muster_env *env;
    struct muster_node *node;
    struct muster_node_tensor tensors[2]; /* what steps change, and what they do not */
    struct trainee trainee;
    uint32_t chunks_to_live; /* a kill at a chunk is armed; 0: not */
    bool is_leaving;
    bool has_state; /* of this membership */
};

static struct sim_world *world_of(const struct worker *worker)
{
    return worker->task->cast->world;
}

#define FROZEN_COUNT 40000 /* numbers of 8 bytes: two chunks */

/* In some plays part of the state never changes, steps say so, and joiners fetch it ahead. */
static bool is_by_parts(const struct worker *worker)
{
    return worker->task->cast->seed % 4 == 3;
}

/* Questions of the training loop. */

static struct muster_group *worker_group(void *keeper)
{
    return muster_node_group(((struct worker *)keeper)->node);
}

/* 0 also when the group has ended by itself, for want of a verdict: what it says then binds nobody.
 */
static uint64_t worker_epoch(void *keeper)
{
    const struct worker *worker = keeper;
    const struct muster_view *view = muster_node_view(worker->node);
    const struct muster_group *group = muster_node_group(worker->node);

    if (group == NULL || group->is_ended)
        return 0;
    return view != NULL && muster_view_find(view, &worker->task->incarnation, NULL) ? view->epoch
                                                                                    : 0;
}

static bool worker_may_begin(void *keeper, uint64_t step)
{
    struct muster_node *node = ((struct worker *)keeper)->node;

    return !muster_node_is_changing(node) && muster_node_find_stateless(node, step) == NULL;
}

static void worker_begin_step(void *keeper, uint64_t step)
{
    struct worker *worker = keeper;

    muster_node_begin_step(worker->node, step);
    if (is_by_parts(worker) &&
        muster_node_change_parts(worker->node, &worker->tensors[0].tensor, 1) != MUSTER_OK)
        sim_fail(world_of(worker), "the state of life %u has another place", worker->trainee.life);
}

static void worker_commit_step(void *keeper, uint64_t step)
{
    muster_node_commit_step(((struct worker *)keeper)->node, step);
}

static void worker_touch(void *keeper)
{
    muster_node_touch_state(((struct worker *)keeper)->node);
}

static void on_closed(struct muster_node *node, void *data)
{
    struct worker *worker = data;
    struct sim_node *process = worker->process;

    (void)node;
    trainee_fini(&worker->trainee);
    muster_mem_free(worker->env->mem, worker->tensors[1].tensor.data);
    sim_node_set_program(process, NULL);
    muster_mem_free(worker->env->mem, worker);
    sim_exit(process);
}

static void on_left(struct muster_node *node, void *data)
{
    muster_node_close(node, on_closed, data);
}

static void worker_may_leave(void *keeper)
{
    struct worker *worker = keeper;

    if (worker->is_leaving)
        return;
    worker->is_leaving = true;
    muster_node_leave(worker->node, true, muster_loop_after_ns(worker->env->loop, LEAVE_TIMEOUT_NS),
                      on_left, worker);
}

static void worker_feed(void *keeper)
{
    struct worker *worker = keeper;

    sim_refuse(worker->process, NULL, NULL);
}

static const struct trainee_keeper_ops keeper_ops = {
    .group = worker_group,
    .epoch = worker_epoch,
    .may_begin = worker_may_begin,
    .begin_step = worker_begin_step,
    .commit_step = worker_commit_step,
    .touch = worker_touch,
    .may_leave = worker_may_leave,
    .feed = worker_feed,
};

/* Callbacks of the node. */

static void on_view(void *data, const struct muster_view_change *change)
{
    struct worker *worker = data;

    ledger_entered(worker->task->cast->ledger, worker->trainee.life, change->view);
    if (change->view->is_state_lost)
        cast_check_state_lost(worker->task, change->view->epoch);
}

static void settle_frozen(struct worker *worker, bool is_restored)
{
    int64_t *values = worker->tensors[1].tensor.data;

    for (int64_t i = 0; i < (int64_t)worker->tensors[1].tensor.count; i++) {
        if (is_restored && values[i] != i + 1) {
            sim_fail(world_of(worker), "life %u has not got what was frozen", worker->trainee.life);
            return;
        }
        values[i] = i + 1;
    }
}

static void on_ready(void *data, uint64_t next_step, bool is_restored)
{
    struct worker *worker = data;

    if (worker->trainee.is_running) {
        sim_fail(world_of(worker), "life %u is ready twice", worker->trainee.life);
        return;
    }
    worker->has_state = true;
    settle_frozen(worker, is_restored);
    if (is_restored) {
        worker->trainee.committed = next_step - 1;
        trainee_go(&worker->trainee, next_step);
        return;
    }
    trainee_reset_state(&worker->trainee);
    muster_node_commit_step(worker->node, 0);
    trainee_go(&worker->trainee, 1);
}

static void name_state(struct worker *worker)
{
    enum muster_rc rc;

    worker->tensors[0].name = "state";
    worker->tensors[0].tensor = (struct muster_tensor){
        .data = worker->trainee.state, .count = TRAINEE_STATE_COUNT, .dtype = MUSTER_I64};
    worker->tensors[1].name = "frozen";
    rc = muster_node_set_state(worker->node, worker->tensors, is_by_parts(worker) ? 2 : 1);
    if (cast_is_starved(worker->task->cast, rc)) {
        sim_refuse(worker->process, NULL, NULL);
        rc = muster_node_set_state(worker->node, worker->tensors, is_by_parts(worker) ? 2 : 1);
    }
    if (rc != MUSTER_OK)
        sim_fail(world_of(worker), "the state of life %u is refused", worker->trainee.life);
}

static void on_excluded(void *data, const struct muster_error *why)
{
    struct worker *worker = data;

    (void)why;
    worker->has_state = false;
    trainee_halt(&worker->trainee);
    ledger_excluded(worker->task->cast->ledger, worker->trainee.life);
    if (worker->trainee.wants_leave)
        worker_may_leave(worker);
    else
        name_state(worker);
}

static bool is_expected(struct cast_task *task, const struct muster_error *error)
{
    if (error->rc == MUSTER_UNAVAILABLE && cast_is_state_lost(task))
        return true;
    if (cast_is_starved(task->cast, error->rc))
        return true;
    return task->cast->on_failed != NULL && task->cast->on_failed(task, error);
}

/* Ends like a program that prints the error and exits; the launcher starts it again. */
static void on_failed(void *data, const struct muster_error *error)
{
    struct worker *worker = data;

    sim_note(world_of(worker), "failed", worker->trainee.life, (uint64_t)error->rc, 0);
    if (!is_expected(worker->task, error))
        sim_fail(world_of(worker), "life %u cannot go on: %s: %s", worker->trainee.life,
                 muster_rc_name(error->rc), error->text);
    trainee_halt(&worker->trainee);
    worker->trainee.is_ending = true;
    muster_node_close(worker->node, on_closed, worker);
}

static const struct muster_node_events events = {
    .on_view = on_view,
    .on_ready = on_ready,
    .on_excluded = on_excluded,
    .on_failed = on_failed,
};

/* kill -9 at a chunk, inside the wire. */
static bool on_point(void *data, const struct muster_wire_point *at)
{
    struct worker *worker = data;

    (void)at;
    if (worker->chunks_to_live == 0 || --worker->chunks_to_live > 0)
        return false;
    sim_kill(worker->process);
    return true;
}

/* The node that did not open has closed what it had opened. */
static void on_refused(struct muster_timer *timer)
{
    struct worker *worker = timer->data;

    on_closed(NULL, worker);
}

static void process_start(struct sim_node *process, struct muster_env *env, void *data)
{
    struct cast_task *task = data;
    struct cast *cast = task->cast;
    struct worker *worker = sim_mem_alloc_surely(env->mem, sizeof(*worker));
    struct muster_node_options options = {
        .env = env,
        .registry = REGISTRY_STAGE_ENDPOINT,
        .job = REGISTRY_STAGE_JOB,
        .task_type = "worker",
        .task_index = task->index,
        .expected_count = cast->task_count,
        .min_members = cast->min_members,
        .min_members_timeout_ns = cast->options.min_members_timeout_ns,
        .incarnation = task->incarnation,
        .listen = sim_host_address(task->host, 0),
        .plan = cast->plan,
        .events = &events,
        .data = worker,
    };
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;

    memset(worker, 0, sizeof(*worker));
    worker->task = task;
    worker->process = process;
    worker->env = env;
    if (is_by_parts(worker)) {
        int64_t *frozen = sim_mem_alloc_surely(env->mem, FROZEN_COUNT * sizeof(*frozen));

        memset(frozen, 0, FROZEN_COUNT * sizeof(*frozen));
        worker->tensors[1].tensor = (struct muster_tensor){frozen, FROZEN_COUNT, MUSTER_I64};
    }
    trainee_init(&worker->trainee, process, cast->ledger, &task->incarnation, cast->seed,
                 &keeper_ops, worker);
    options.ahead_bytes_min = is_by_parts(worker) ? 1 : 0;
    worker->trainee.may_starve = cast->options.is_starving;
    worker->trainee.may_cancel &= !cast->options.is_patient;
    rc = muster_node_open(&options, &worker->node, &error);
    if (rc != MUSTER_OK) {
        if (!cast_is_starved(cast, rc))
            sim_fail(cast->world, "a node does not open: %s", error.text);
        muster_timer_init(&worker->trainee.timer, on_refused, worker);
        muster_timer_start(&worker->trainee.timer, env->loop,
                           muster_loop_after_ns(env->loop, MUSTER_NS_PER_S));
        return;
    }
    muster_wire_set_failpoint(muster_node_wire(worker->node), on_point, worker);
    sim_node_set_program(process, worker);
    name_state(worker);
}

/* Questions of the cast. */

static void task_leave(struct cast_task *task)
{
    struct worker *worker = sim_node_program(task->node);

    if (worker != NULL)
        trainee_wish_leave(&worker->trainee);
}

static bool task_status(const struct cast_task *task, struct cast_status *ret_status)
{
    struct worker *worker = sim_node_program(task->node);

    if (worker == NULL)
        return false;
    *ret_status = (struct cast_status){.epoch = worker_epoch(worker),
                                       .step = worker->trainee.committed,
                                       .has_state = worker->has_state};
    return true;
}

static void kill_at_chunk(struct cast_task *task, uint32_t chunks)
{
    struct worker *worker = sim_node_program(task->node);

    if (worker != NULL)
        worker->chunks_to_live = chunks;
}

static void open_parts(struct cast *cast)
{
    cast->parts = registry_stage_open(cast->world, cast->registry_host, cast->ledger);
}

static void close_parts(struct cast *cast)
{
    registry_stage_close(cast->parts);
}

static void confirm_dead(struct cast *cast, const struct muster_incarnation *incarnation)
{
    registry_stage_confirm_dead(cast->parts, incarnation);
}

static void registry_kill(struct cast *cast)
{
    registry_stage_kill(cast->parts);
}

static void registry_restart(struct cast *cast)
{
    registry_stage_restart(cast->parts);
}

static struct sim_node *registry_node(struct cast *cast)
{
    return registry_stage_node(cast->parts);
}

const struct cast_ops worker_ops = {
    .name = "membership",
    .open = open_parts,
    .close = close_parts,
    .start = process_start,
    .leave = task_leave,
    .status = task_status,
    .kill_at_chunk = kill_at_chunk,
    .confirm_dead = confirm_dead,
    .registry_kill = registry_kill,
    .registry_restart = registry_restart,
    .registry_node = registry_node,
};
