/* The seat of a loop: a keeper that cannot be started, and one that rests beside the loop. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

static bool is_thread_refused;
static atomic_uint rest_count;
static atomic_bool is_rest_endless;

static int make_thread(pthread_t *thread, void *(*run)(void *data), void *data)
{
    return is_thread_refused ? EAGAIN : (pthread_create)(thread, NULL, run, data);
}

/* The keeper's rest, which does not end while the test says so. */
static int rest_beside(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    atomic_fetch_add(&rest_count, 1);
    while (atomic_load(&is_rest_endless))
        sched_yield();
    return (poll)(fds, count, timeout_ms);
}

#define pthread_create(thread, attributes, run, data) make_thread(thread, run, data)
#define poll(fds, count, timeout_ms)                  rest_beside(fds, count, timeout_ms)
#include "runtime/driver/driver_seat.c"
#undef poll
#undef pthread_create

#include "test_env.h"

#define GUARD_S 60
#define TICK_NS 100000

static struct test_env test;
static struct muster_driver_seat *seat;

static void wait_until_above(atomic_uint *count, unsigned before)
{
    time_t start = time(NULL);

    while (atomic_load(count) <= before) {
        sched_yield();
        if (time(NULL) - start > GUARD_S)
            fail_msg("the count stays at %u", before);
    }
}

/* The program is outside, and the keeper rests. */
static int open_resting(void **state)
{
    (void)state;
    test_env_open(&test);
    atomic_store(&rest_count, 0);
    is_thread_refused = false;
    assert_int_equal(muster_driver_seat_open(test.env.mem, test.env.loop, TICK_NS, &seat),
                     MUSTER_OK);
    assert_true(seat->descriptor >= 0);
    muster_driver_seat_release(seat);
    wait_until_above(&rest_count, 0);
    return 0;
}

/* The program has the seat. */
static int close_seat(void **state)
{
    (void)state;
    atomic_store(&is_rest_endless, false);
    muster_driver_seat_close(seat);
    test_env_close(&test);
    return 0;
}

static void without_a_thread_for_its_keeper_there_is_no_seat(void **state)
{
    struct muster_driver_seat *none = NULL;

    (void)state;
    test_env_open(&test);
    is_thread_refused = true;
    assert_int_equal(muster_driver_seat_open(test.env.mem, test.env.loop, 0, &none),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_null(none);
    test_env_close(&test);
}

/* The keeper does nothing for it: it sleeps on. */
static void a_program_takes_the_seat_beside_a_keeper_that_rests(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        muster_driver_seat_take(seat);
        muster_loop_turn(test.env.loop, 0);
        assert_int_equal(atomic_load(&seat->holder), SEAT_BUSY);
        muster_driver_seat_release(seat);
        assert_int_equal(atomic_load(&seat->holder), SEAT_PARKED);
    }
    assert_int_equal(atomic_load(&rest_count), 1);
    muster_driver_seat_take(seat);
}

static int open_resting_for_ever(void **state)
{
    atomic_store(&is_rest_endless, true);
    return open_resting(state);
}

static void on_expire(struct muster_timer *timer)
{
    atomic_fetch_add((atomic_uint *)timer->data, 1);
}

/* Nothing else wakes it: the loop has no other timer. */
static void a_timer_started_beside_a_keeper_that_rests_fires(void **state)
{
    atomic_uint fired = 0;
    struct muster_timer timer;

    (void)state;
    muster_timer_init(&timer, on_expire, &fired);
    muster_driver_seat_take(seat);
    muster_timer_start(&timer, test.env.loop,
                       muster_loop_after_ns(test.env.loop, MUSTER_NS_PER_MS));
    muster_driver_seat_release(seat);
    wait_until_above(&fired, 0);
    muster_driver_seat_take(seat);
    assert_int_equal(atomic_load(&fired), 1);
}

static bool on_look(struct muster_poller *poller)
{
    atomic_fetch_add((atomic_uint *)poller->data, 1);
    return false;
}

/* No descriptor tells of its memory. */
static void memory_is_looked_at_by_a_keeper_that_has_rested(void **state)
{
    atomic_uint looks = 0;
    struct muster_poller poller = {.data = &looks, .on_poll = on_look};

    (void)state;
    muster_driver_seat_take(seat);
    muster_poller_start(&poller, test.env.loop);
    muster_driver_seat_release(seat);
    wait_until_above(&looks, 10);
    muster_driver_seat_take(seat);
    muster_poller_stop(&poller);
    muster_driver_seat_release(seat);
    wait_until_above(&rest_count, 1); /* and rests again */
    muster_driver_seat_take(seat);
    assert_int_equal(atomic_load(&seat->holder), SEAT_BUSY);
}

#define CASE(name, set_up) cmocka_unit_test_setup_teardown(name, set_up, close_seat)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_thread_for_its_keeper_there_is_no_seat),
        CASE(a_program_takes_the_seat_beside_a_keeper_that_rests, open_resting_for_ever),
        CASE(a_timer_started_beside_a_keeper_that_rests_fires, open_resting),
        CASE(memory_is_looked_at_by_a_keeper_that_has_rested, open_resting),
    };

    return cmocka_run_group_tests_name("driver_seat", tests, NULL, NULL);
}
