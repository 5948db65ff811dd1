/* The pairing heap of timers against a plain sorted model. */
#include "test_env.h"

#include "runtime/loop/timer_queue.h"

#define TIMERS 200

static void timers_leave_by_due_time_then_start_order(void **state)
{
    static struct muster_timer timers[TIMERS];
    struct muster_rng_seeded rng;
    struct muster_timer_queue queue;
    uint64_t due_ns = 0, order = 0;

    (void)state;
    muster_rng_seeded_init(&rng, 1);
    muster_timer_queue_init(&queue);
    for (size_t i = 0; i < TIMERS; i++) {
        timers[i].due_ns = muster_rng_below(&rng.rng, 20);
        muster_timer_queue_insert(&queue, &timers[i]);
    }
    for (size_t i = 0; i < TIMERS; i++) {
        struct muster_timer *first = muster_timer_queue_first(&queue);

        assert_non_null(first);
        assert_true(first->due_ns > due_ns || i == 0 ||
                    (first->due_ns == due_ns && first->start_order > order));
        due_ns = first->due_ns;
        order = first->start_order;
        muster_timer_queue_remove(&queue, first);
    }
    assert_null(muster_timer_queue_first(&queue));
}

/* The earliest queued timer by looking at all of them. */
static struct muster_timer *first_of(struct muster_timer *timers, const bool *is_queued)
{
    struct muster_timer *first = NULL;

    for (size_t i = 0; i < TIMERS; i++) {
        if (is_queued[i] &&
            (first == NULL || timers[i].due_ns < first->due_ns ||
             (timers[i].due_ns == first->due_ns && timers[i].start_order < first->start_order)))
            first = &timers[i];
    }
    return first;
}

static void random_inserts_removes_and_pops_keep_the_order(void **state)
{
    static struct muster_timer timers[TIMERS];
    static bool is_queued[TIMERS];
    struct muster_rng_seeded rng;
    struct muster_timer_queue queue;

    (void)state;
    muster_rng_seeded_init(&rng, 2);
    muster_timer_queue_init(&queue);
    for (size_t step = 0; step < 20000; step++) {
        size_t i = muster_rng_below(&rng.rng, TIMERS);
        struct muster_timer *popped;

        if (is_queued[i]) {
            muster_timer_queue_remove(&queue, &timers[i]);
        } else {
            timers[i].due_ns = muster_rng_below(&rng.rng, 1000);
            muster_timer_queue_insert(&queue, &timers[i]);
        }
        is_queued[i] = !is_queued[i];
        assert_ptr_equal(muster_timer_queue_first(&queue), first_of(timers, is_queued));
        if (step % 7 != 0)
            continue;
        popped = muster_timer_queue_pop_due(&queue, 500, UINT64_MAX);
        if (popped == NULL)
            continue;
        assert_ptr_equal(popped, first_of(timers, is_queued));
        assert_true(popped->due_ns <= 500);
        is_queued[popped - timers] = false;
    }
}

static void a_timer_behind_the_order_limit_stays(void **state)
{
    struct muster_timer_queue queue;
    struct muster_timer old = {.due_ns = 5}, young = {.due_ns = 5};
    uint64_t limit;

    (void)state;
    muster_timer_queue_init(&queue);
    muster_timer_queue_insert(&queue, &old);
    limit = queue.next_order;
    muster_timer_queue_insert(&queue, &young);

    assert_null(muster_timer_queue_pop_due(&queue, 4, limit));
    assert_ptr_equal(muster_timer_queue_pop_due(&queue, 5, limit), &old);
    assert_null(muster_timer_queue_pop_due(&queue, 5, limit));
    assert_ptr_equal(muster_timer_queue_pop_due(&queue, 5, limit + 1), &young);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(timers_leave_by_due_time_then_start_order),
        cmocka_unit_test(random_inserts_removes_and_pops_keep_the_order),
        cmocka_unit_test(a_timer_behind_the_order_limit_stays),
    };

    return cmocka_run_group_tests_name("timer_queue", cases, NULL, NULL);
}
