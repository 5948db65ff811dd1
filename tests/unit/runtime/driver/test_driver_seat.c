/* The seat of a loop whose keeper cannot be started. */
#include <errno.h>
#include <pthread.h>

static int refuse_thread(void);
#define pthread_create(thread, attributes, run, data) ((void)(run), (void)(data), refuse_thread())
#include "runtime/driver/driver_seat.c"
#undef pthread_create

#include "test_env.h"

static int refuse_thread(void)
{
    return EAGAIN;
}

static void without_a_thread_for_its_keeper_there_is_no_seat(void **state)
{
    struct test_env test;
    struct muster_driver_seat *seat = NULL;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_driver_seat_open(test.env.mem, test.env.loop, 0, &seat),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_null(seat);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_thread_for_its_keeper_there_is_no_seat),
    };

    return cmocka_run_group_tests_name("driver_seat", tests, NULL, NULL);
}
