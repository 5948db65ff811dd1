/* A worker of `muster bench recover`: its records, and the places where it waits. */
#include <time.h>

static int play_nap(const struct timespec *span, struct timespec *rest);
#define nanosleep(span, rest) play_nap(span, rest)
#include "tools/bench/recover_worker.c"
#undef nanosleep

#include "test_env.h"

#define COUNT (3 * PATTERN + 5)
#define TASK  1

static struct recover_shared *shared;
static unsigned naps;

/* Meanwhile the supervisor goes on: with the third nap what was waited for is there. */
static int play_nap(const struct timespec *span, struct timespec *rest)
{
    (void)span;
    (void)rest;
    if (++naps == 3) {
        atomic_store(&shared->is_held, 0);
        atomic_fetch_add(&shared->read_through, 1);
    }
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    naps = 0;
    shared = calloc(1, sizeof(*shared));
    return shared != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(shared);
    return 0;
}

static void each_element_counts_in_the_digest_and_in_the_check(void **state)
{
    float values[COUNT];
    uint64_t digest;

    (void)state;
    fill_tensor(values, COUNT, TASK);
    digest = digest_of(values, COUNT);
    assert_true(is_uniform(values, COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        float kept = values[i];

        print_message("element %zu\n", i);
        values[i] += 1;
        assert_false(is_uniform(values, COUNT));
        assert_int_not_equal(digest_of(values, COUNT), digest);
        values[i] = kept;
    }
    assert_int_equal(digest_of(values, COUNT), digest);
}

static void a_sum_is_uniform(void **state)
{
    float sum[COUNT], values[COUNT];

    (void)state;
    fill_tensor(sum, COUNT, 0);
    for (uint32_t task = 1; task < 4; task++) {
        fill_tensor(values, COUNT, task);
        for (size_t i = 0; i < COUNT; i++)
            sum[i] += values[i];
    }
    assert_true(is_uniform(sum, COUNT));
}

static void a_new_life_has_no_step_yet(void **state)
{
    struct recover_task *task = &shared->tasks[TASK];

    (void)state;
    atomic_store(&task->step, 7);
    atomic_store(&task->lives, 2);

    sign_in(task);

    assert_int_equal(atomic_load(&task->step_before), 7);
    assert_int_equal(atomic_load(&task->step), 0);
    assert_int_equal(atomic_load(&task->pid), getpid());
    assert_int_equal(atomic_load(&task->lives), 3);
}

static void a_new_life_waits_while_it_is_held_until_the_end(void **state)
{
    static const struct {
        uint32_t is_held, stop;
        unsigned naps;
    } rows[] = {{0, 0, 0}, {1, 0, 3}, {1, 1, 0}, {0, 1, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("row %zu\n", i);
        naps = 0;
        atomic_store(&shared->is_held, rows[i].is_held);
        atomic_store(&shared->stop, rows[i].stop);
        wait_while_held(shared);
        assert_int_equal(naps, rows[i].naps);
    }
}

static void a_record_is_taken_when_its_place_has_been_read(void **state)
{
    static const uint64_t step = RECOVER_RING + 4;
    struct recover_record *record = &shared->tasks[TASK].records[4];

    (void)state;
    atomic_store(&record->step, 4);
    atomic_store(&record->start_ns, 5);
    atomic_store(&record->done_ns, 6);
    atomic_store(&record->is_checked, true);
    atomic_store(&shared->read_through, 4);
    assert_ptr_equal(recover_find(shared, TASK, 4), record);

    assert_ptr_equal(take_record(shared, TASK, step), record);

    assert_int_equal(naps, 3);
    assert_null(recover_find(shared, TASK, 4));
    assert_ptr_equal(recover_find(shared, TASK, step), record);
    assert_int_equal(atomic_load(&record->start_ns), 0);
    assert_int_equal(atomic_load(&record->done_ns), 0);
    assert_false(atomic_load(&record->is_checked));
    assert_null(recover_find(shared, TASK, 0));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_element_counts_in_the_digest_and_in_the_check),
        CASE(a_sum_is_uniform),
        CASE(a_new_life_has_no_step_yet),
        CASE(a_new_life_waits_while_it_is_held_until_the_end),
        CASE(a_record_is_taken_when_its_place_has_been_read),
    };

    return cmocka_run_group_tests_name("recover_worker", tests, NULL, NULL);
}
