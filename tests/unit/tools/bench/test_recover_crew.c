/* The supervisor of `muster bench recover`, which reads behind its workers. */
#include "tools/bench/recover_crew.c"
#include "tools/bench/recover_worker.c"
#include "tools/bench/samples.c"

#include "test_env.h"

enum { TASKS = 2, STEP = 1 };

static struct recover run;

static int set_up(void **state)
{
    (void)state;
    run = (struct recover){.tasks = TASKS, .shared = calloc(1, sizeof(*run.shared))};
    return run.shared != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(run.shared);
    free(run.calm_ns.at);
    return 0;
}

/* One step of one worker. */
struct row {
    uint64_t start_ns, done_ns, digest, epoch;
    uint32_t contributors;
    bool is_unchecked, is_wrong, is_interrupted, is_absent;
};

static void put_record(uint32_t task, uint64_t step, const struct row *row)
{
    struct recover_record *record = &run.shared->tasks[task].records[step % RECOVER_RING];

    if (row->is_absent)
        return;
    record->digest = row->digest;
    record->epoch = row->epoch;
    record->contributors = row->contributors;
    record->is_interrupted = row->is_interrupted;
    record->is_wrong = row->is_wrong;
    atomic_store(&record->start_ns, row->start_ns);
    atomic_store(&record->done_ns, row->done_ns);
    atomic_store(&record->is_checked, !row->is_unchecked);
    atomic_store(&record->step, step);
}

static void a_step_is_judged_by_what_all_workers_have_noted(void **state)
{
    static const struct row first = {10, 40, 7, 3, TASKS, .is_wrong = false};
    static const struct {
        const char *name;
        struct row other;
        bool is_calm, is_different;
    } rows[] = {
        {"undisturbed", {20, 40, 7, 3, TASKS, .is_wrong = false}, true, false},
        {"another digest", {20, 40, 8, 3, TASKS, .is_wrong = false}, true, true},
        {"another view", {20, 40, 7, 4, TASKS, .is_wrong = false}, false, false},
        {"others contribute", {20, 40, 7, 3, TASKS - 1, .is_wrong = false}, false, true},
        {"a wrong sum", {20, 40, 7, 3, TASKS, .is_wrong = true}, true, true},
        {"interrupted", {20, 40, 7, 3, TASKS, .is_interrupted = true}, false, false},
        {"not looked at", {20, 40, 7, 3, TASKS, .is_unchecked = true}, false, false},
        {"not done", {20, 0, 7, 3, TASKS, .is_unchecked = true}, false, false},
        {"not begun", {.is_absent = true}, false, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s\n", rows[i].name);
        assert_int_equal(tear_down(state), 0);
        assert_int_equal(set_up(state), 0);
        put_record(0, STEP, &first);
        put_record(1, STEP, &rows[i].other);

        read_step(&run, STEP);

        assert_int_equal(run.steps, 1);
        assert_int_equal(run.steps_unfinished, 0);
        assert_int_equal(run.is_different, rows[i].is_different);
        assert_int_equal(run.calm_count, rows[i].is_calm);
        assert_int_equal(run.calm_ns.count, rows[i].is_calm);
        if (rows[i].is_calm)
            assert_true(run.calm_ns.at[0] >= 20 && run.calm_ns.at[0] <= 20);
    }
}

static void a_step_that_nobody_has_finished_is_lost(void **state)
{
    (void)state;
    read_step(&run, STEP);

    assert_int_equal(run.steps, 1);
    assert_int_equal(run.steps_unfinished, 1);
    assert_int_equal(run.calm_count, 0);
}

static void steps_are_read_once_when_all_have_looked_at_them(void **state)
{
    (void)state;
    recover_read_steps(&run);
    assert_int_equal(run.steps, 0);
    for (uint64_t newest = 1; newest <= 6; newest++) {
        atomic_store(&run.shared->tasks[1].step, newest);
        recover_read_steps(&run);
        recover_read_steps(&run);
        assert_int_equal(run.steps, newest > SETTLED_STEPS ? newest - SETTLED_STEPS : 0);
        assert_int_equal(atomic_load(&run.shared->read_through), run.steps);
    }
}

static void the_newest_step_is_one_of_this_crew(void **state)
{
    (void)state;
    for (uint32_t t = 0; t <= TASKS; t++)
        atomic_store(&run.shared->tasks[t].step, 4 + t);

    assert_int_equal(recover_newest_step(&run), 4 + TASKS - 1);
}

static void put_summary(const char *text)
{
    FILE *file = fopen(run.summary_path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void the_numbers_of_a_summary_are_those_of_this_crew(void **state)
{
    static const struct {
        const char *text; /* NULL: there is no file */
        long restarts, steps_lost;
    } rows[] = {
        {"{\"restarts\":3,\"rejoins\":4,\"steps_lost\":5}\n", 3, 5},
        {"{\"restarts\":12}", 12, -1},
        {"", -1, -1},
        {NULL, -1, -1},
    };

    (void)state;
    snprintf(run.summary_path, sizeof(run.summary_path), "/tmp/muster-test-crew-%d.json",
             (int)getpid());
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        long restarts = 0, steps_lost = 0;

        print_message("row %zu\n", i);
        if (rows[i].text != NULL)
            put_summary(rows[i].text);
        read_summary(&run, &restarts, &steps_lost);
        assert_int_equal(restarts, rows[i].restarts);
        assert_int_equal(steps_lost, rows[i].steps_lost);
        assert_int_not_equal(access(run.summary_path, F_OK), 0);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_step_is_judged_by_what_all_workers_have_noted),
        CASE(a_step_that_nobody_has_finished_is_lost),
        CASE(steps_are_read_once_when_all_have_looked_at_them),
        CASE(the_newest_step_is_one_of_this_crew),
        CASE(the_numbers_of_a_summary_are_those_of_this_crew),
    };

    return cmocka_run_group_tests_name("recover_crew", tests, NULL, NULL);
}
