/* Each allocation of a server of a job fails in turn while its job is restored from a cut: it does not open, or says
 * that it has failed, and has all of its rows when it is started again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "params_calls.h"
#include "params_job.h"
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/store/row.h"

#define ROWS     50u
#define RUNS_MAX 60
#define TURNS    100 /* of a millisecond, at most: servers agree by the registry */

static char folder[64]; /* of a cut */

static void rows_push(struct params_stand *stand, struct muster_params_table *table)
{
    uint64_t keys[ROWS];
    float values[ROWS];
    struct muster_error error;

    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = i;
        values[i] = (float)i + 1;
    }
    assert_int_equal(params_stand_push(stand, table, keys, values, ROWS, &error), MUSTER_OK);
}

static int folder_make(void **state)
{
    struct params_call call = {.op = {.data = &call}};
    struct muster_params *params;
    struct muster_params_cut cut;
    struct params_stand stand;

    (void)state;
    strcpy(folder, "/tmp/params_restore.XXXXXX");
    assert_non_null(mkdtemp(folder));
    params_stand_open(&stand, PARAMS_CALLER_SHARDS);
    params = params_stand_client(&stand, "one");
    rows_push(&stand, params_stand_table(&stand, params, &params_counters));
    assert_int_equal(muster_params_cut_start(&call.op, params, folder, &cut,
                                             params_stand_deadline(&stand), params_on_call),
                     MUSTER_OK);
    assert_int_equal(params_call_await(&stand.test.env, &call), MUSTER_OK);
    assert_int_equal(params_stand_leave(&stand, params), MUSTER_OK);
    params_stand_close(&stand);
    return 0;
}

static int folder_remove(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static void rows_check(struct params_job *job)
{
    struct params_stand *stand = &job->caller.stand;
    struct muster_params *params;
    struct muster_error error;
    uint64_t keys[ROWS], rows = 0;
    float values[ROWS];

    for (uint32_t i = 0; i < job->count; i++) {
        assert_int_equal(job->members[i].restored_count, 1);
        rows += job->members[i].server->region->head->tables[0].row_count;
    }
    assert_int_equal(rows, ROWS);
    params_job_dial(job, 0);
    params = params_stand_client(stand, "other");
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    assert_int_equal(params_stand_pull(stand, params_stand_table(stand, params, &params_counters),
                                       keys, values, ROWS, &error),
                     MUSTER_OK);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_true(values[i] == (float)i + 1);
    assert_int_equal(params_stand_leave(stand, params), MUSTER_OK);
}

/* All have a map, or one has failed. */
static bool is_over(void *data)
{
    const struct params_job *job = data;
    uint32_t with_map = 0;

    for (uint32_t i = 0; i < job->count; i++) {
        if (job->members[i].has_failed)
            return true;
        with_map += job->members[i].server->map != NULL;
    }
    return with_map == job->count;
}

static void member_serve(struct torture *torture, struct params_job *job, uint32_t i)
{
    enum muster_rc rc = params_job_member_try(job, i);

    if (rc == MUSTER_OK)
        return;
    torture_disarm(torture);
    assert_true(rc == MUSTER_RESOURCE_EXHAUSTED && torture->refused > 0);
    assert_int_equal(params_job_member_try(job, i), MUSTER_OK);
}

static void run_job(struct torture *torture, const void *data)
{
    static struct params_job job;
    uint32_t count = *(const uint32_t *)data, hungry = count - 1;

    params_job_prepare(&job, count, 1);
    job.restore = folder;
    for (uint32_t i = 0; i < count; i++) {
        params_job_member_prepare(&job, i);
        if (i == hungry)
            torture_arm_limited(torture, &job.members[i].mem);
        member_serve(torture, &job, i);
    }
    for (unsigned i = 0; i < TURNS && torture->is_armed && !is_over(&job); i++)
        muster_loop_turn(job.env->loop, MUSTER_NS_PER_MS);
    torture_disarm(torture);
    test_env_run_until(job.env, is_over, &job);
    if (job.members[hungry].has_failed) {
        assert_true(torture->refused > 0);
        assert_int_equal(job.members[hungry].restored_count, 0);
        params_job_member_restart(&job, hungry);
        params_job_await_map(&job);
    }
    rows_check(&job);
    params_job_close(&job);
}

static void each_allocation_of_a_restore_in_a_job_may_fail(void **state)
{
    static const uint32_t counts[] = {1, 2}; /* of servers; the last one is without memory */
    static const struct torture_scenario scenarios[] = {
        {.name = "alone in a job", .run = run_job, .data = &counts[0], .runs_max = RUNS_MAX},
        {.name = "one of two", .run = run_job, .data = &counts[1], .runs_max = RUNS_MAX},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_allocation_of_a_restore_in_a_job_may_fail, torture_tell),
    };

    return cmocka_run_group_tests_name("restore_memory", tests, folder_make, folder_remove);
}
