/* A training loop over a dataset, in a simulated process: its share, the sum, the update, commit. */
#include "tests/sim/data_worker.h"

#include <inttypes.h>
#include <string.h>

#include "collective/group/group_internal.h"
#include "tests/sim/registry_stage.h"
#include "tests/sim/sim_internal.h"
#include "tests/sim/trainee.h"
#include "tests/sim/worker.h"

#define LEAVE_TIMEOUT_NS (20 * MUSTER_NS_PER_S)
#define BEGIN_POLL_NS    (2 * MUSTER_NS_PER_MS)
#define SEQUENCES_MAX    8u /* the ledger's room per step */

static struct sim_world *world_of(const struct data_worker *worker)
{
    return worker->task->cast->world;
}

static struct ledger *ledger_of(const struct data_worker *worker)
{
    return worker->task->cast->ledger;
}

static struct data_state state_of(const struct data_worker *worker)
{
    struct data_state state = {.uses = {0}};
    const struct muster_tensor *position = &worker->tensors[1].tensor;

    memcpy(state.uses, worker->uses, sizeof(state.uses));
    memcpy(state.weights, worker->weights, sizeof(state.weights));
    memcpy(state.position, position->data, (size_t)position->count * sizeof(uint64_t));
    return state;
}

static void tell_state(const struct data_worker *worker)
{
    struct data_state state = state_of(worker);

    data_book_check(worker->book, worker->life, worker->committed, &state);
    ledger_state(ledger_of(worker), worker->life, worker->committed,
                 sim_digest(&state, sizeof(state)));
}

static void wait_then(struct data_worker *worker, uint64_t delay_max_ns)
{
    struct muster_loop *loop = worker->env->loop;

    muster_timer_start(
        &worker->timer, loop,
        muster_loop_after_ns(loop, muster_rng_below(worker->env->rng, delay_max_ns + 1)));
}

/* --- The end of the process --- */

static void on_closed(struct muster_node *node, void *data)
{
    struct data_worker *worker = data;
    struct sim_node *process = worker->process;

    (void)node;
    muster_timer_stop(&worker->timer);
    muster_timer_stop(&worker->save_timer);
    data_sums_fini(worker);
    muster_dataset_close(worker->dataset);
    sim_node_set_program(process, NULL);
    muster_mem_free(worker->env->mem, worker);
    sim_exit(process);
}

static void on_left(struct muster_node *node, void *data)
{
    muster_node_close(node, on_closed, data);
}

static void worker_leave(struct data_worker *worker, bool is_done)
{
    worker->phase = DATA_STILL;
    if (worker->is_leaving)
        return;
    worker->is_leaving = true;
    muster_node_leave(worker->node, is_done,
                      muster_loop_after_ns(worker->env->loop, LEAVE_TIMEOUT_NS), on_left, worker);
}

/* --- A step --- */

/* The rank among those who take part in the step. False: this process is not one of them. */
static bool find_rank(const struct data_worker *worker, uint32_t *ret_rank, uint32_t *ret_size)
{
    const struct muster_view *view = muster_node_view(worker->node);
    bool is_found = false;

    *ret_size = 0;
    for (uint32_t i = 0; view != NULL && i < view->member_count; i++) {
        if (view->members[i].from_step > worker->step)
            continue;
        if (memcmp(&view->members[i].incarnation, &worker->task->incarnation,
                   sizeof(view->members[i].incarnation)) == 0) {
            *ret_rank = *ret_size;
            is_found = true;
        }
        ++*ret_size;
    }
    return is_found;
}

/* The job is asked to stop, and this member has done the last step. */
static bool must_stop(const struct data_worker *worker)
{
    const struct muster_view *view = muster_node_view(worker->node);

    return view->is_stopping && worker->step > view->stop_step;
}

static void stop_and_save(struct data_worker *worker)
{
    struct data_state state = state_of(worker);

    data_book_stop(worker->book, worker->committed, &state);
    worker->task->is_wanted = false;
    worker_leave(worker, false);
}

static void begin_step(struct data_worker *worker)
{
    uint32_t rank = 0, size;

    worker->phase = DATA_BEGIN;
    if (muster_node_is_changing(worker->node) ||
        muster_node_find_stateless(worker->node, worker->step) != NULL ||
        !find_rank(worker, &rank, &size)) {
        wait_then(worker, BEGIN_POLL_NS);
        return;
    }
    muster_node_begin_step(worker->node, worker->step);
    if (must_stop(worker)) {
        stop_and_save(worker);
        return;
    }
    data_sums_begin(worker, rank, size);
    worker->phase = DATA_COMPUTE;
    wait_then(worker, worker->pace_ns);
}

/* 0: in none. A group that has ended by itself binds nobody. */
static uint64_t worker_epoch(const struct data_worker *worker)
{
    const struct muster_view *view = muster_node_view(worker->node);
    const struct muster_group *group = muster_node_group(worker->node);

    return view != NULL && group != NULL && !group->is_ended &&
                   muster_view_find(view, &worker->task->incarnation, NULL)
               ? view->epoch
               : 0;
}

static bool is_cancelled(const struct data_worker *worker, enum muster_rc rc)
{
    return rc == MUSTER_CANCELLED && (worker->is_leaving || worker->is_ending);
}

static void on_summed(struct muster_op *op, enum muster_rc rc)
{
    struct data_worker *worker = op->data;
    struct ledger_outcome outcome = {.rc = rc, .epoch = op->result.epoch};
    bool is_more = false;

    if (rc == MUSTER_OK) {
        muster_node_touch_state(worker->node);
        is_more = data_sums_take(worker, &outcome);
    } else {
        outcome.epoch = worker_epoch(worker);
        if (rc != MUSTER_ABORTED && !is_cancelled(worker, rc))
            sim_fail(world_of(worker), "life %u: the sum of step %" PRIu64 " ends with %s: %s",
                     worker->life, worker->step, muster_rc_name(rc), op->error.text);
    }
    ledger_done(ledger_of(worker), worker->life, &op->id, &outcome);
    if (worker->phase != DATA_SUM)
        return;
    /* All members give a step up alike that they cannot sum. */
    if (rc != MUSTER_OK)
        worker->phase = worker->sequence + 2 > SEQUENCES_MAX ? DATA_UPDATE : DATA_BEGIN;
    else
        worker->phase = is_more ? DATA_GATHER : DATA_UPDATE;
    wait_then(worker, worker->pace_ns);
}

static void start_sum(struct data_worker *worker)
{
    struct muster_group *group = muster_node_group(worker->node);

    if (group == NULL) /* left out, and about to be told */
        worker->phase = DATA_STILL;
    else
        data_sums_start(worker, group, on_summed);
}

/* --- The update --- */

static void on_saved(struct muster_timer *timer)
{
    struct data_worker *worker = timer->data;

    data_book_save(worker->book, worker->save.step, &worker->save.state);
}

/* The first member of the view saves, and takes its time. */
static void save_if_due(struct data_worker *worker)
{
    uint32_t rank = 0, size;

    if (worker->committed % worker->book->save_interval != 0 || !find_rank(worker, &rank, &size) ||
        rank != 0)
        return;
    worker->save = (struct data_save){.step = worker->committed, .state = state_of(worker)};
    muster_timer_stop(&worker->save_timer);
    muster_timer_start(
        &worker->save_timer, worker->env->loop,
        muster_loop_after_ns(worker->env->loop,
                             muster_rng_below(worker->env->rng, worker->pace_ns * 8)));
}

static void commit_step(struct data_worker *worker)
{
    data_sums_update(worker);
    worker->committed = worker->step;
    tell_state(worker);
    muster_node_commit_step(worker->node, worker->step);
    save_if_due(worker);
    worker->step++;
    worker->sequence = 0;
    if (worker->wants_leave)
        worker_leave(worker, true);
    else
        begin_step(worker);
}

static void on_timer(struct muster_timer *timer)
{
    struct data_worker *worker = timer->data;

    switch (worker->phase) {
    case DATA_BEGIN:
        begin_step(worker);
        break;
    case DATA_COMPUTE:
    case DATA_GATHER:
        start_sum(worker);
        break;
    case DATA_UPDATE:
        commit_step(worker);
        break;
    default:
        break;
    }
}

/* --- Callbacks of the node --- */

static void on_view(void *data, const struct muster_view_change *change)
{
    struct data_worker *worker = data;

    worker->book->has_view = true;
    ledger_entered(ledger_of(worker), worker->life, change->view);
    if (change->view->is_state_lost)
        cast_check_state_lost(worker->task, change->view->epoch);
}

static void put_state(struct data_worker *worker, const struct data_state *state)
{
    struct muster_tensor *position = &worker->tensors[1].tensor;

    memcpy(worker->uses, state->uses, sizeof(worker->uses));
    memcpy(worker->weights, state->weights, sizeof(worker->weights));
    memcpy(position->data, state->position, (size_t)position->count * sizeof(uint64_t));
}

/* The job is new, or begins anew since nobody was left. */
static uint64_t restore_state(struct data_worker *worker)
{
    const struct data_save *save =
        data_book_restore(worker->book, muster_node_view(worker->node)->begin_epoch);

    put_state(worker, save->step > 0 ? &save->state : &worker->first);
    return save->step;
}

static void on_ready(void *data, uint64_t next_step, bool is_restored)
{
    struct data_worker *worker = data;

    if (worker->phase != DATA_STILL)
        sim_fail(world_of(worker), "life %u is ready twice", worker->life);
    worker->has_state = true;
    worker->committed = is_restored ? next_step - 1 : restore_state(worker);
    if (!is_restored)
        muster_node_commit_step(worker->node, worker->committed);
    tell_state(worker);
    worker->step = worker->committed + 1;
    worker->sequence = 0;
    begin_step(worker);
}

static void name_state(struct data_worker *worker)
{
    worker->tensors[0] = (struct muster_node_tensor){
        .name = "uses", .tensor = {worker->uses, DATA_RECORDS_MAX, MUSTER_U64}};
    worker->tensors[1] = (struct muster_node_tensor){
        .name = "position", .tensor = muster_dataset_position(worker->dataset)};
    worker->tensors[2] = (struct muster_node_tensor){
        .name = "weights", .tensor = {worker->weights, DATA_WEIGHTS, MUSTER_F32}};
    if (muster_node_set_state(worker->node, worker->tensors, DATA_TENSORS) != MUSTER_OK)
        sim_fail(world_of(worker), "the state of life %u is refused", worker->life);
}

static void on_excluded(void *data, const struct muster_error *why)
{
    struct data_worker *worker = data;

    (void)why;
    worker->has_state = false;
    worker->phase = DATA_STILL;
    muster_timer_stop(&worker->timer);
    ledger_excluded(ledger_of(worker), worker->life);
    if (worker->wants_leave)
        worker_leave(worker, true);
    else
        name_state(worker);
}

static bool is_expected(struct cast_task *task, const struct muster_error *error)
{
    return (error->rc == MUSTER_UNAVAILABLE && cast_is_state_lost(task)) ||
           (task->cast->on_failed != NULL && task->cast->on_failed(task, error));
}

/* Ends like a program that prints the error and exits; the launcher starts it again. */
static void on_failed(void *data, const struct muster_error *error)
{
    struct data_worker *worker = data;

    if (worker->book->is_preempted && error->rc == MUSTER_CANCELLED)
        worker->task->is_wanted = false;
    sim_note(world_of(worker), "failed", worker->life, (uint64_t)error->rc, 0);
    if (!is_expected(worker->task, error))
        sim_fail(world_of(worker), "life %u cannot go on: %s: %s", worker->life,
                 muster_rc_name(error->rc), error->text);
    worker->phase = DATA_STILL;
    worker->is_ending = true;
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
    struct data_worker *worker = data;

    (void)at;
    if (worker->chunks_to_live == 0 || --worker->chunks_to_live > 0)
        return false;
    sim_kill(worker->process);
    return true;
}

/* --- The process --- */

static void open_parts(struct data_worker *worker)
{
    struct cast_task *task = worker->task;
    struct cast *cast = task->cast;
    struct muster_dataset_options dataset = worker->book->dataset;
    struct muster_node_options options = {
        .env = worker->env,
        .registry = REGISTRY_STAGE_ENDPOINT,
        .job = REGISTRY_STAGE_JOB,
        .task_type = "worker",
        .task_index = task->index,
        .expected_count = cast->task_count,
        .min_members = cast->min_members,
        .is_return = worker->book->is_started[task->index] && worker->book->has_view,
        .min_members_timeout_ns = cast->options.min_members_timeout_ns,
        .incarnation = task->incarnation,
        .listen = sim_host_address(task->host, 0),
        .plan = cast->plan,
        .events = &events,
        .data = worker,
    };
    struct muster_error error = {.rc = MUSTER_OK};

    worker->book->is_started[task->index] = worker->book->may_preempt;
    dataset.mem = worker->env->mem;
    if (muster_dataset_open(&dataset, &worker->dataset, &error) != MUSTER_OK ||
        muster_node_open(&options, &worker->node, &error) != MUSTER_OK)
        sim_fail(cast->world, "a member does not open: %s", error.text);
}

static void process_start(struct sim_node *process, struct muster_env *env, void *data)
{
    struct data_worker *worker = sim_mem_alloc_surely(env->mem, sizeof(*worker));

    memset(worker, 0, sizeof(*worker));
    worker->task = data;
    worker->book = worker->task->cast->book;
    worker->process = process;
    worker->env = env;
    worker->life = worker->task->life;
    worker->pace_ns = (UINT64_C(1) << 21) << sim_mix(worker->task->cast->seed, 5) % 5;
    muster_timer_init(&worker->timer, on_timer, worker);
    muster_timer_init(&worker->save_timer, on_saved, worker);
    open_parts(worker);
    if (sim_failure(worker->task->cast->world) != NULL)
        return;
    muster_wire_set_failpoint(muster_node_wire(worker->node), on_point, worker);
    sim_node_set_program(process, worker);
    name_state(worker);
    worker->first = state_of(worker);
}

/* --- Questions of the cast --- */

static void task_leave(struct cast_task *task)
{
    struct data_worker *worker = sim_node_program(task->node);

    if (worker == NULL)
        return;
    worker->wants_leave = true;
    if (worker->phase == DATA_STILL)
        worker_leave(worker, true);
}

static bool task_status(const struct cast_task *task, struct cast_status *ret_status)
{
    struct data_worker *worker = sim_node_program(task->node);

    if (worker == NULL)
        return false;
    *ret_status = (struct cast_status){
        .epoch = worker_epoch(worker), .step = worker->committed, .has_state = worker->has_state};
    return true;
}

void data_worker_preempt(struct cast_task *task)
{
    struct data_worker *worker = sim_node_program(task->node);

    if (worker != NULL && !worker->is_leaving && !worker->is_ending)
        muster_node_preempt(worker->node, "asked by the play");
}

static void kill_at_chunk(struct cast_task *task, uint32_t chunks)
{
    struct data_worker *worker = sim_node_program(task->node);

    if (worker != NULL)
        worker->chunks_to_live = chunks;
}

struct cast_ops data_worker_ops(void)
{
    struct cast_ops ops = worker_ops;

    ops.name = "data";
    ops.start = process_start;
    ops.leave = task_leave;
    ops.status = task_status;
    ops.kill_at_chunk = kill_at_chunk;
    return ops;
}
