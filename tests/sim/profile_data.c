/* Profiles of data: members share the steps of a dataset and die, leave, stand still, come back, or all die and begin
 * again from a checkpoint. Each record of a pass over the data is used once. */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/data_book.h"
#include "tests/sim/data_worker.h"

#define START_NS          (60 * MUSTER_NS_PER_S)
#define PROGRESS_NS       (120 * MUSTER_NS_PER_S)
#define PASS_NS           (600 * MUSTER_NS_PER_S)
#define PLAY_NS           (12 * MUSTER_NS_PER_S)
#define LIVES_IN_PLAY_MAX (LEDGER_LIVES_MAX * 5 / 8) /* the rest is for the end */

static const struct cast_options options = {
    .task_count_min = 1,
    .task_count_max = 5,
    .restart_delay_max_ns = MUSTER_NS_PER_S,
    .confirm_delay_max_ns = 200 * MUSTER_NS_PER_MS,
    .layout = CAST_ANY,
};

/* A span whose magnitude is uniform: as often 1 ms as 100 ms. */
static uint64_t draw_span(struct cast *cast, uint64_t max_ns)
{
    return cast_draw(cast, (max_ns >> cast_draw(cast, 12)) + 1);
}

static void kill_all(struct cast *cast)
{
    for (uint32_t i = 0; i < cast->task_count; i++)
        cast_kill(&cast->tasks[i], true);
}

static void stand_still(struct cast *cast)
{
    struct cast_task *task = cast_any_member(cast);
    struct sim_node *node;

    if (task == NULL || sim_node_is_paused(task->node))
        return;
    node = task->node;
    sim_pause(node);
    cast->fault_count++;
    cast_run(cast, draw_span(cast, 6 * MUSTER_NS_PER_S));
    if (sim_node_is_alive(node))
        sim_resume(node);
}

static void make_fault(struct cast *cast)
{
    switch (cast_draw(cast, 10)) {
    case 0:
        kill_all(cast);
        return;
    case 1:
        stand_still(cast);
        return;
    case 2:
        cast_leave(cast_any_member(cast));
        return;
    case 3:
    case 4:
        cast_start(&cast->tasks[cast_draw(cast, cast->task_count)], 0);
        return;
    case 5:
        cast_kill(cast_leader(cast), true);
        return;
    default:
        cast_kill(cast_any(cast), true);
        return;
    }
}

/* Too few members, or the job has ended: such a process is started again. */
static bool may_fail(struct cast_task *task, const struct muster_error *error)
{
    const struct data_book *book = task->cast->book;

    return error->rc == MUSTER_ABORTED || error->rc == MUSTER_OUT_OF_RANGE ||
           (error->rc == MUSTER_CANCELLED && book->is_preempted);
}

/* After the last fault all go on, over the end of this pass and of the next one. */
static void await_passes(struct cast *cast, const struct data_book *book)
{
    uint64_t end_ns = sim_world_now_ns(cast->world) + PASS_NS, wanted;

    if (!cast_await_progress(cast, 5, PROGRESS_NS))
        return;
    wanted = book->passes + 2;
    while (book->passes < wanted && sim_world_now_ns(cast->world) < end_ns)
        if (!cast_run(cast, 100 * MUSTER_NS_PER_MS))
            return;
    if (book->passes < wanted)
        sim_fail(cast->world, "pass %" PRIu64 " of the data does not end", book->passes);
}

static void begin_job(struct cast *cast)
{
    uint64_t step = cast_step(cast);

    cast_start_all(cast);
    if (!cast_await_step(cast, step + 1 + cast_draw(cast, 5), START_NS))
        sim_fail(cast->world, "the job does not begin");
}

static void make_faults(struct cast *cast)
{
    uint64_t end_ns = sim_world_now_ns(cast->world) + cast_draw(cast, PLAY_NS);

    while (sim_world_now_ns(cast->world) < end_ns &&
           ledger_life_count(cast->ledger) < LIVES_IN_PLAY_MAX &&
           cast_run(cast, draw_span(cast, 2 * MUSTER_NS_PER_S)))
        make_fault(cast);
}

static void play_deaths(struct cast *cast)
{
    begin_job(cast);
    if (cast_chance(cast, 300))
        cast_start_faults(cast, SIM_FAULTS_ALL);
    make_faults(cast);
}

/* --- Preemption --- */

static bool is_over(const struct cast *cast)
{
    for (uint32_t i = 0; i < cast->task_count; i++)
        if (cast_is_alive(&cast->tasks[i]) || cast->tasks[i].is_wanted)
            return false;
    return true;
}

static void ask_to_stop(struct cast *cast)
{
    struct cast_task *task = cast_any(cast);

    if (task == NULL)
        return;
    sim_note(cast->world, "preempt", task->index, 0, 0);
    sim_enter(task->node);
    data_worker_preempt(task);
    sim_leave(task->node);
}

/* As launchers do, until the job has stopped. Members die meanwhile, perhaps the one that was asked. */
static void stop_job(struct cast *cast, struct data_book *book)
{
    uint64_t end_ns = sim_world_now_ns(cast->world) + PROGRESS_NS;
    uint32_t kills = cast_chance(cast, 500) ? (uint32_t)cast_draw(cast, 4) : 0;

    book->is_preempted = true;
    while (!is_over(cast) && sim_world_now_ns(cast->world) < end_ns) {
        ask_to_stop(cast);
        if (!cast_run(cast, 1 + draw_span(cast, MUSTER_NS_PER_S)))
            return;
        if (kills > 0 && cast_chance(cast, 500)) {
            kills--;
            cast_kill(cast_any(cast), true);
        }
    }
    if (!is_over(cast))
        sim_fail(cast->world, "the job does not stop");
    book->is_preempted = false;
    memset(book->is_started, 0, sizeof(book->is_started));
    book->has_view = false;
}

static void play_preemptions(struct cast *cast, struct data_book *book)
{
    uint32_t rounds = 1 + (uint32_t)cast_draw(cast, 3);

    book->may_preempt = true;
    if (cast_chance(cast, 400))
        cast_start_faults(cast, SIM_FAULTS_ALL);
    while (rounds-- > 0 && sim_failure(cast->world) == NULL &&
           ledger_life_count(cast->ledger) < LIVES_IN_PLAY_MAX) {
        begin_job(cast);
        for (uint32_t kills = (uint32_t)cast_draw(cast, 4); kills > 0; kills--) {
            cast_run(cast, draw_span(cast, MUSTER_NS_PER_S));
            cast_kill(cast_any(cast), true);
        }
        cast_run(cast, draw_span(cast, MUSTER_NS_PER_S));
        if (sim_failure(cast->world) == NULL)
            stop_job(cast, book);
    }
    if (sim_failure(cast->world) == NULL)
        begin_job(cast);
}

void sim_profile_data(struct sim_run *run, const struct sim_profile *profile)
{
    struct sim_world *world = sim_run_open(run);
    struct cast_ops ops = data_worker_ops();
    struct data_book book;
    struct cast cast;
    uint64_t fault_count;

    data_book_open(&book, world,
                   profile->variant == SIM_DATA_MICRO ||
                       (profile->variant == SIM_DATA_PREEMPTIONS && run->seed % 2 == 0));
    cast_open(&cast, world, run->seed, &ops, &options);
    cast.book = &book;
    cast.on_failed = may_fail;
    if (profile->variant == SIM_DATA_PREEMPTIONS)
        play_preemptions(&cast, &book);
    else
        play_deaths(&cast);
    cast_heal(&cast);
    if (sim_failure(world) == NULL)
        await_passes(&cast, &book);
    sim_note(world, "data_met", book.restores, book.pools, book.overlaps);
    fault_count = cast_fault_count(&cast);
    cast_close(&cast);
    sim_run_close(run, world, fault_count);
    data_book_close(&book);
}
