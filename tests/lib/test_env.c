/* Opening, turning and leak-checking the environment of a test case. */
#include "test_env.h"

#include "assertion_count.h"

#define GUARD_NS  (60 * MUSTER_NS_PER_S)
#define TEST_SEED UINT64_C(0x6d7573746572)

void test_env_open(struct test_env *test)
{
    size_t asserted = assertion_count;

    *test = (struct test_env){.env = {.loop = NULL}};
    muster_mem_limited_init(&test->mem, muster_mem_system(), 0);
    muster_rng_seeded_init(&test->rng, TEST_SEED);
    test->env.mem = &test->mem.mem;
    test->env.rng = &test->rng.rng;
    test->env.vars = muster_vars_system();
    test->env.files = muster_files_system();
    assert_int_equal(muster_loop_open(test->env.mem, NULL, &test->env.loop), MUSTER_OK);
    assert_int_equal(muster_host_system_open(test->env.mem, test->env.loop, &test->env.host),
                     MUSTER_OK);
    assertion_count = asserted; /* that the environment opens says nothing of the case */
}

void test_env_close(struct test_env *test)
{
    size_t left;

    muster_host_system_close(test->env.host);
    muster_loop_close(test->env.loop);
    left = muster_mem_limited_fini(&test->mem);
    if (left != 0)
        fail_msg("%zu blocks (%zu bytes) were not freed", left, test->mem.held_bytes);
}

static void on_guard(struct muster_timer *timer)
{
    *(bool *)timer->data = true;
}

void test_env_run_until(struct muster_env *env, bool (*is_done)(void *data), void *data)
{
    struct muster_timer guard;
    bool is_late = false;

    muster_timer_init(&guard, on_guard, &is_late);
    muster_timer_start(&guard, env->loop, muster_loop_after_ns(env->loop, GUARD_NS));
    while (!is_done(data) && !is_late)
        muster_loop_turn(env->loop, UINT64_MAX);
    muster_timer_stop(&guard);
    if (is_late)
        fail_msg("the condition did not come true within 60 s");
}

void test_env_turn(struct muster_env *env, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        muster_loop_turn(env->loop, 0);
}

bool test_env_is_true(void *data)
{
    return *(bool *)data;
}
