/* Each allocation of a member fails in turn, while the others of its job train and die: its calls end, the
 * others go on with right sums, and nothing of it is left. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "job_stage.h"
#include "torture.h"

#define STEPS            4u
#define LASTING_RUNS_MAX 3 /* per row: they wait until something is late */

/* A job, and the allocations of a rank that are refused: from a step on to close. */
struct row {
    unsigned size;
    unsigned hungry;     /* its rank */
    unsigned armed_step; /* 0: from open on */
    int killed;          /* a rank that dies in step 2, before its sum; -1: none */
};

/* The state of the hungry process, in memory that the case sees. */
struct hungry {
    const struct row *row;
    struct torture torture;
};

static struct job_stage stage;

/* A strategy that has done `step` steps takes the next one, again and again until it is done. False: it
 * cannot. */
static bool take_step(struct muster_strategy *strategy, uint64_t step, int64_t *state)
{
    int64_t sum;
    const struct muster_tensor tensor = {.data = &sum, .count = 1, .dtype = MUSTER_I64};
    enum muster_rc rc;
    uint64_t begun = 0;

    do {
        if (muster_strategy_begin(strategy, &begun, NULL) != MUSTER_OK)
            return false;
        JOB_CHECK(begun == step + 1);
        JOB_CHECK(*state == (int64_t)step);
        sum = 1;
        rc = muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM);
        JOB_CHECK(sum == (rc == MUSTER_OK ? (int64_t)muster_strategy_contributors(strategy) : 1));
    } while (rc == MUSTER_ABORTED);
    if (rc != MUSTER_OK)
        return false;
    *state = (int64_t)begun;
    return muster_strategy_commit(strategy) == MUSTER_OK;
}

static bool register_state(struct muster_strategy *strategy, int64_t *state)
{
    const struct muster_tensor tensor = {.data = state, .count = 1, .dtype = MUSTER_I64};

    return muster_strategy_register(strategy, "state", &tensor) == MUSTER_OK;
}

static void be_other(unsigned rank, void *data)
{
    const struct row *row = data;
    struct muster_strategy *strategy = job_strategy_open();
    int64_t state = 0;

    JOB_CHECK(register_state(strategy, &state));
    for (uint64_t step = 0; step < STEPS; step++) {
        if ((int)rank == row->killed && step == 1) {
            (void)job_begin(strategy);
            (void)kill(getpid(), SIGKILL);
        }
        if (!take_step(strategy, step, &state))
            job_check(false, muster_strategy_error(strategy)->text, __FILE__, __LINE__);
    }
    muster_strategy_close(strategy);
}

/* NULL: it could not be opened. One that never gets memory again ends when its operation is late. */
static struct muster_strategy *open_hungry(bool is_lasting)
{
    const uint64_t wait_ns = is_lasting ? MUSTER_NS_PER_S / 4 : JOB_WAIT_NS;
    const struct muster_strategy_options options = {.op_timeout_ns = wait_ns,
                                                    .start_timeout_ns = wait_ns};
    struct muster_strategy *strategy = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_strategy_open(&options, &strategy, &error);

    JOB_CHECK(error.rc == rc);
    JOB_CHECK(rc == MUSTER_OK ? strategy != NULL : strategy == NULL && error.text[0] != '\0');
    return strategy;
}

static void be_hungry(unsigned rank, void *data)
{
    struct hungry *hungry = data;
    struct torture *torture = &hungry->torture;
    size_t blocks = torture_count_system_blocks();
    struct muster_strategy *strategy;
    int64_t state = 0;
    bool can_go_on;

    (void)rank;
    if (hungry->row->armed_step == 0)
        torture_arm_system(torture);
    strategy = open_hungry(torture->is_lasting);
    can_go_on = strategy != NULL && register_state(strategy, &state);
    for (uint64_t step = 0; can_go_on && step < STEPS; step++) {
        if (hungry->row->armed_step == step + 1)
            torture_arm_system(torture);
        can_go_on = take_step(strategy, step, &state);
    }
    /* A lasting run has a short deadline, which a busy host can miss before anything is refused. */
    JOB_CHECK(can_go_on || torture->refused > 0 || torture->is_lasting);
    JOB_CHECK(can_go_on || strategy == NULL || muster_strategy_error(strategy)->text[0] != '\0');
    torture_disarm(
        torture); /* a close that lacks memory waits as long as a member may take to leave */
    muster_strategy_close(strategy);
    JOB_CHECK(torture_count_system_blocks() == blocks);
}

static void run_scenario(struct torture *torture, const void *data)
{
    static const void *row_of_runs;
    static unsigned lasting_runs;
    struct row row = *(const struct row *)data;
    struct hungry *hungry;

    lasting_runs = row_of_runs == data && torture->is_lasting ? lasting_runs + 1 : 0;
    row_of_runs = data;
    if (lasting_runs > LASTING_RUNS_MAX)
        return;
    hungry = mmap(NULL, sizeof(*hungry), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(hungry, MAP_FAILED);
    *hungry = (struct hungry){.row = &row, .torture = *torture};
    job_stage_open(&stage, row.hungry, row.size);
    for (unsigned rank = 0; rank < row.size; rank++)
        if (rank != row.hungry)
            job_stage_start(&stage, rank, be_other, &row);
    job_stage_start(&stage, row.hungry, be_hungry, hungry);
    if (row.killed >= 0)
        assert_true(job_stage_join_killed(&stage, (unsigned)row.killed));
    job_stage_join(&stage);
    job_stage_close(&stage);
    torture->count = hungry->torture.count;
    torture->refused = hungry->torture.refused;
    assert_int_equal(munmap(hungry, sizeof(*hungry)), 0);
}

static void want_of_memory_harms_nobody_else(void **state)
{
    static const struct row rows[] = {
        {1, 0, 0, -1},
        {3, 0, 2, 2},
        {3, 1, 2, 0},
    };
    static const struct torture_scenario scenarios[] = {
        {"alone, from open on", run_scenario, &rows[0], 0, 20},
        {"the first one, the last one dies", run_scenario, &rows[1], 0, 30},
        {"the second one, the first one dies", run_scenario, &rows[2], 0, 14},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(want_of_memory_harms_nobody_else, torture_tell),
    };

    return cmocka_run_group_tests_name("strategy_memory", tests, NULL, NULL);
}
