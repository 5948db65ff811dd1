/* Whole nodes and the registry in the simulated world, while each allocation of one process fails
 * in turn: the process goes on or says that it cannot, and the job goes on. */
#include <inttypes.h>
#include <string.h>

#include "torture.h"

#include "tests/sim/cast.h"
#include "tests/sim/worker.h"

#define SEED      UINT64_C(20)
#define STEP_NS   (60 * MUSTER_NS_PER_S)
#define HUNGER_NS (300 * MUSTER_NS_PER_MS)
#define RUNS_MAX  8 /* per mode, of hundreds of allocations */
#define NOBODY    UINT32_MAX

/* The side that runs short of memory, and when. */
struct row {
    uint32_t task_count;
    uint32_t hungry; /* a task, from its start; NOBODY: the registry */
    uint32_t late;   /* a task that is started when the others train; NOBODY: none */
    uint32_t killed; /* a task that dies meanwhile; NOBODY: none */
};

static bool refuses_call(void *data)
{
    return torture_refuses(data);
}

static bool may_fail(struct cast_task *task, const struct muster_error *error)
{
    (void)task;
    return error->rc == MUSTER_ABORTED || error->rc == MUSTER_UNAVAILABLE;
}

static void play_row(struct cast *cast, const struct row *row, struct torture *torture)
{
    (void)cast_run(cast, MUSTER_NS_PER_MS); /* the registry is open */
    if (row->hungry == NOBODY)
        sim_refuse(cast->ops->registry_node(cast), refuses_call, torture);
    for (uint32_t i = 0; i < cast->task_count; i++)
        cast_start(&cast->tasks[i], 0);
    if (row->late != NOBODY || row->killed != NOBODY)
        (void)cast_await_step(cast, 2, STEP_NS);
    if (row->late != NOBODY) {
        cast->tasks[row->late].is_wanted = false;
        sim_kill(cast->tasks[row->late].node);
        (void)cast_run(cast, HUNGER_NS);
    }
    torture_arm(torture);
    if (row->late != NOBODY)
        cast_start(&cast->tasks[row->late], 0);
    if (row->killed != NOBODY) {
        cast->tasks[row->killed].is_wanted = true;
        sim_kill(cast->tasks[row->killed].node);
    }
    (void)cast_run(cast, HUNGER_NS);
}

static void run_scenario(struct torture *torture, const void *data)
{
    const struct row *row = data;
    const struct cast_options options = {
        .task_count_min = row->task_count,
        .task_count_max = row->task_count,
        .restart_delay_max_ns = MUSTER_NS_PER_S / 10,
        .confirm_delay_max_ns = MUSTER_NS_PER_S / 10,
        .layout = CAST_OWN_HOSTS,
        .is_starving = true,
    };
    struct sim_world *world = sim_world_open(SEED, NULL);
    struct cast cast;

    if (torture_is_traced())
        sim_world_set_trace(world, stdout);
    cast_open(&cast, world, SEED, &worker_ops, &options);
    cast.on_failed = may_fail;
    if (row->hungry != NOBODY) {
        cast.refuses = refuses_call;
        cast.refuse_data = torture;
        cast.refused_index = row->hungry;
    }
    play_row(&cast, row, torture);
    torture_disarm(torture);
    cast_heal(&cast);
    (void)cast_await_progress(&cast, 3, STEP_NS);

    if (sim_failure(world) != NULL)
        fail_msg("%s", sim_failure(world));
    cast_close(&cast);
    (void)sim_world_close(world);
}

static void a_job_outlives_want_of_memory_in_any_process(void **state)
{
    static const struct row rows[] = {
        {2, 0, NOBODY, NOBODY}, {3, 1, NOBODY, 0},           {3, 0, NOBODY, 2},
        {3, 2, 2, NOBODY},      {3, 0, 2, NOBODY},           {2, NOBODY, NOBODY, 1},
        {3, NOBODY, 2, NOBODY}, {3, NOBODY, NOBODY, NOBODY},
    };
    static const struct torture_scenario scenarios[] = {
        {"leader of a first view", run_scenario, &rows[0], 0, RUNS_MAX},
        {"next leader, the first one dies", run_scenario, &rows[1], 0, RUNS_MAX},
        {"leader, a member dies", run_scenario, &rows[2], 0, RUNS_MAX},
        {"joiner", run_scenario, &rows[3], 0, RUNS_MAX},
        {"leader, a task joins", run_scenario, &rows[4], 0, RUNS_MAX},
        {"registry, a task dies", run_scenario, &rows[5], 0, RUNS_MAX},
        {"registry, a task joins", run_scenario, &rows[6], 0, RUNS_MAX},
        {"registry of a first view", run_scenario, &rows[7], 0, 20},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_job_outlives_want_of_memory_in_any_process, torture_tell),
    };

    return cmocka_run_group_tests_name("sim_torture", tests, NULL, NULL);
}
