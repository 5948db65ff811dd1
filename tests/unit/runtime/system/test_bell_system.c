/* A thread waits for what another one changes. */
#include "test_env.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "runtime/system/bell_system.h"

struct scene {
    struct muster_bell *bell;
    atomic_uint value, looks;
};

static bool is_two(void *data)
{
    struct scene *scene = data;

    (void)atomic_fetch_add(&scene->looks, 1);
    return atomic_load(&scene->value) == 2;
}

static void *two_await(void *data)
{
    struct scene *scene = data;

    muster_bell_await(scene->bell, is_two, scene);
    return NULL;
}

/* It rings whenever the thread may wait, also between its look and its wait: no ring is lost. */
static void a_wait_ends_with_the_change_that_was_rung(void **state)
{
    struct test_env test;

    (void)state;
    test_env_open(&test);
    for (unsigned round = 0; round < 200; round++) {
        struct scene scene = {.value = 0};
        pthread_t waits;

        assert_int_equal(muster_bell_open(test.env.mem, &scene.bell), MUSTER_OK);
        assert_int_equal(pthread_create(&waits, NULL, two_await, &scene), 0);
        while (atomic_load(&scene.looks) == 0)
            (void)sched_yield();

        for (unsigned value = 1; value <= 2; value++) {
            atomic_store(&scene.value, value);
            muster_bell_ring(scene.bell);
        }

        assert_int_equal(pthread_join(waits, NULL), 0);
        assert_in_range(atomic_load(&scene.looks), 2, 3);
        muster_bell_close(scene.bell);
    }
    test_env_close(&test);
}

static void what_holds_already_is_not_waited_for(void **state)
{
    struct scene scene = {.value = 2};
    struct test_env test;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_bell_open(test.env.mem, &scene.bell), MUSTER_OK);

    muster_bell_await(scene.bell, is_two, &scene);

    assert_int_equal(atomic_load(&scene.looks), 1);
    muster_bell_close(scene.bell);
    muster_bell_close(NULL);
    test_env_close(&test);
}

static void a_lack_of_memory_is_told(void **state)
{
    struct muster_bell *bell = NULL;
    struct test_env test;

    (void)state;
    test_env_open(&test);
    test.mem.fail_at = 1;
    assert_int_equal(muster_bell_open(test.env.mem, &bell), MUSTER_RESOURCE_EXHAUSTED);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_ends_with_the_change_that_was_rung),
        cmocka_unit_test(what_holds_already_is_not_waited_for),
        cmocka_unit_test(a_lack_of_memory_is_told),
    };

    return cmocka_run_group_tests_name("runtime.system.bell_system", tests, NULL, NULL);
}
