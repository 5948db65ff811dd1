/* Opening, turning and leak-checking the environment of a test case. */
#include "test_env.h"

#include "assertion_count.h"
#include "careful_mem.h"

#include <jansson.h>
#include <stdlib.h>

#define GUARD_NS  (60 * MUSTER_NS_PER_S)
#define TEST_SEED UINT64_C(0x6d7573746572)

/* JSON values have no allocator of their own: their blocks are counted for the whole program. */
static size_t json_block_count, json_block_count_before;
static unsigned
    open_count; /* environments; between the first and the last one nothing is compared */

static void *json_malloc(size_t bytes)
{
    void *block = malloc(bytes);

    json_block_count += block != NULL;
    return block;
}

static void json_free(void *block)
{
    json_block_count -= block != NULL;
    free(block);
}

__attribute__((constructor)) static void count_json_blocks(void)
{
    json_set_alloc_funcs(json_malloc, json_free);
}

static void check_json_blocks(void)
{
    json_free_t free_fn = NULL;

    json_get_alloc_funcs(NULL, &free_fn);
    if (free_fn != json_free) /* the case has set its own */
        return;
    if (json_block_count != json_block_count_before)
        fail_msg("%zd blocks of JSON values were not freed",
                 (ssize_t)(json_block_count - json_block_count_before));
}

void test_env_open(struct test_env *test)
{
    size_t asserted = assertion_count;

    if (open_count++ == 0)
        json_block_count_before = json_block_count;

    *test = (struct test_env){.env = {.loop = NULL}};
    muster_mem_limited_init(&test->mem, careful_mem(), 0);
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
    if (--open_count == 0)
        check_json_blocks();
}

int test_env_set_up(void **state)
{
    static struct test_env test;

    test_env_open(&test);
    *state = &test;
    return 0;
}

int test_env_tear_down(void **state)
{
    test_env_close(*state);
    return 0;
}

struct muster_env *test_env_of(void **state)
{
    return &((struct test_env *)*state)->env;
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
