/* The allocator that keeps freed blocks: reuse, bounds, growth, and what happens without memory. */
#include "test_env.h"

#include <stdalign.h>
#include <string.h>

#include <muster/mem.h>

struct stage {
    struct muster_mem_limited base;
    struct muster_mem_pool pool;
};

static int open_stage(void **state)
{
    static struct stage stage;

    muster_mem_limited_init(&stage.base, muster_mem_system(), 0);
    muster_mem_pool_init(&stage.pool, &stage.base.mem, 1u << 20);
    *state = &stage;
    return 0;
}

static int close_stage(void **state)
{
    struct stage *stage = *state;

    muster_mem_pool_fini(&stage->pool);
    return muster_mem_limited_fini(&stage->base) == 0 ? 0 : -1;
}

static void repeated_work_allocates_once(void **state)
{
    struct stage *stage = *state;
    uint64_t count;

    for (unsigned round = 0; round < 10; round++) {
        void *a = muster_mem_alloc(&stage->pool.mem, 100),
             *b = muster_mem_alloc(&stage->pool.mem, 70000);

        count = round == 0 ? stage->base.alloc_count : count;
        muster_mem_free(&stage->pool.mem, a);
        muster_mem_free(&stage->pool.mem, b);
    }

    assert_int_equal(count, 2);
    assert_int_equal(stage->base.alloc_count, 2);
}

static void every_size_has_its_room_and_alignment(void **state)
{
    struct stage *stage = *state;

    for (size_t size = 1; size < (3u << 20); size += 1 + size / 7) {
        uint8_t *block = muster_mem_alloc(&stage->pool.mem, size);

        assert_non_null(block);
        assert_int_equal((uintptr_t)block % alignof(max_align_t), 0);
        assert_true(stage->pool.kept_bytes <= 1u << 20);
        memset(block, 0xa5, size);
        muster_mem_free(&stage->pool.mem, block);
    }
}

static void what_is_kept_is_bounded(void **state)
{
    struct stage *stage = *state;
    void *blocks[40];

    for (unsigned i = 0; i < 40; i++)
        blocks[i] = muster_mem_alloc(&stage->pool.mem, 100000);
    for (unsigned i = 0; i < 40; i++)
        muster_mem_free(&stage->pool.mem, blocks[i]);

    assert_true(stage->base.held_bytes <= (1u << 20) + 40 * 16);
    muster_mem_pool_trim(&stage->pool);
    assert_int_equal(stage->base.held_bytes, 0);
}

static void growing_keeps_the_bytes(void **state)
{
    struct stage *stage = *state;
    uint8_t *block = NULL;
    size_t filled = 0;

    for (size_t size = 1; size < (4u << 20); size = size * 3 / 2 + 1) {
        block = muster_mem_realloc(&stage->pool.mem, block, size);
        assert_non_null(block);
        for (; filled < size; filled++)
            block[filled] = (uint8_t)(filled * 7);
    }
    block = muster_mem_realloc(&stage->pool.mem, block, 1000);

    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(block[i], (uint8_t)(i * 7));
    muster_mem_free(&stage->pool.mem, block);
}

static void what_is_kept_goes_when_memory_runs_out(void **state)
{
    struct stage *stage = *state;
    void *block = muster_mem_alloc(&stage->pool.mem, 500000);

    muster_mem_free(&stage->pool.mem, block);
    stage->base.limit_bytes = 600000;
    block = muster_mem_alloc(&stage->pool.mem, 300000);

    assert_non_null(block);
    assert_null(muster_mem_alloc(&stage->pool.mem, 300000));
    assert_null(muster_mem_realloc(&stage->pool.mem, block, SIZE_MAX));
    muster_mem_free(&stage->pool.mem, block);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup_teardown(repeated_work_allocates_once, open_stage, close_stage),
        cmocka_unit_test_setup_teardown(every_size_has_its_room_and_alignment, open_stage,
                                        close_stage),
        cmocka_unit_test_setup_teardown(what_is_kept_is_bounded, open_stage, close_stage),
        cmocka_unit_test_setup_teardown(growing_keeps_the_bytes, open_stage, close_stage),
        cmocka_unit_test_setup_teardown(what_is_kept_goes_when_memory_runs_out, open_stage,
                                        close_stage),
    };

    return cmocka_run_group_tests_name("mem_pool", cases, NULL, NULL);
}
