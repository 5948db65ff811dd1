/* Membership machines of a running job while each allocation of one of them fails in turn: its process goes on
 * or ends, the others find a view without it, and it comes back. */
#include "careful_mem.h"
#include "membership_world.h"
#include "torture.h"

#define TASKS  3
#define NOBODY UINT32_MAX

struct row {
    const char *name;
    uint32_t hungry;
    uint32_t late;   /* joins the running job; NOBODY: all are there from the beginning */
    uint32_t killed; /* dies meanwhile; NOBODY: none */
    uint32_t leaves; /* with its work done; NOBODY: none */
    bool is_alone;   /* on a host of its own each */
};

static unsigned newest_of(const struct pump *pump, uint32_t task)
{
    for (unsigned i = pump->node_count; i > 0; i--)
        if (pump->nodes[i - 1].member.task_index == task)
            return i - 1;
    fail_msg("task %u was not started", task);
    return 0;
}

static bool is_running(const struct pump *pump, uint32_t task)
{
    for (unsigned i = 0; i < pump->node_count; i++)
        if (pump->nodes[i].member.task_index == task && pump->nodes[i].is_alive)
            return true;
    return false;
}

static unsigned host_of(const struct row *row, uint32_t task)
{
    return row->is_alone ? task : 0;
}

static void start_missing(struct pump *pump, const struct row *row)
{
    for (uint32_t task = 0; task < TASKS; task++)
        if (!is_running(pump, task))
            pump_start(pump, task, host_of(row, task));
}

static void begin_job(struct pump *pump, const struct row *row)
{
    pump->expected_count = row->late == NOBODY ? TASKS : TASKS - 1;
    for (uint32_t task = 0; task < TASKS; task++)
        if (task != row->late)
            pump_start(pump, task, host_of(row, task));
    assert_true(pump_run_until(pump, pump_is_settled, PUMP_S(5)));
}

static void run_story(struct torture *torture, const void *data)
{
    const struct row *row = data;
    struct pump *pump = &world.pump;
    struct muster_mem_limited mem;

    membership_world_open(1, TASKS);
    muster_mem_limited_init(&mem, careful_mem(), 0);
    pump->hungry_mem = &mem.mem;
    pump->hungry_task = row->hungry;
    begin_job(pump, row);

    torture_arm_limited(torture, &mem);
    if (row->late != NOBODY)
        pump_start(pump, row->late, host_of(row, row->late));
    if (row->killed != NOBODY)
        pump_kill(pump, newest_of(pump, row->killed));
    if (row->leaves != NOBODY)
        pump_leave(pump, newest_of(pump, row->leaves));
    pump_run(pump, PUMP_S(10));
    torture_disarm(torture);

    assert_true(is_running(pump, row->hungry) || torture->refused > 0);
    for (uint32_t task = 0; task < TASKS; task++)
        if (task != row->hungry && task != row->killed && task != row->leaves)
            assert_true(is_running(pump, task));
    membership_world_assert_settles(); /* those who live */
    start_missing(pump, row);
    membership_world_assert_settles();
    assert_int_equal(pump_alive_count(pump), TASKS);
    membership_world_close();
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void a_job_outlives_the_hunger_of_a_member(void **state)
{
    static const struct row rows[] = {
        {"who joins", 2, 2, NOBODY, NOBODY, true},
        {"who joins first in rank", 0, 0, NOBODY, NOBODY, true},
        {"who joins on the same host", 2, 2, NOBODY, NOBODY, false},
        {"leader of who joins", 0, 2, NOBODY, NOBODY, true},
        {"beside who joins", 1, 2, NOBODY, NOBODY, true},
        {"leader of who dies", 0, NOBODY, 1, NOBODY, true},
        {"next leader", 1, NOBODY, 0, NOBODY, true},
        {"beside the dead leader", 2, NOBODY, 0, NOBODY, false},
        {"who joins when another dies", 2, 2, 1, NOBODY, true},
        {"leader of who leaves", 0, NOBODY, NOBODY, 2, true},
        {"beside a leader who leaves", 1, NOBODY, NOBODY, 0, true},
    };

    (void)state;
    TORTURE_RUN_ROWS(run_story, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_job_outlives_the_hunger_of_a_member, torture_tell),
    };

    return cmocka_run_group_tests_name("membership_memory", tests, NULL, NULL);
}
