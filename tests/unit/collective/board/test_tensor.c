/* Tensors come from shared memory where there is some, and are tensors anyway. */
#include <muster/collective.h>

#include "collective/board/kept.h"
#include "runtime/system/host_share.h"
#include "test_env.h"

#include <string.h>
#include <sys/mman.h>

static void a_tensor_is_zero_and_shared(void **state)
{
    struct test_env test;
    struct muster_tensor tensor;
    (void)state;

    test_env_open(&test);
    assert_int_equal(muster_tensor_new(&test.env, MUSTER_F32, 1000, &tensor), MUSTER_OK);

    assert_int_equal(tensor.count, 1000);
    assert_int_equal(tensor.dtype, MUSTER_F32);
    assert_int_equal((uintptr_t)tensor.data % 64, 0);
    for (size_t i = 0; i < 4000; i++)
        assert_int_equal(((uint8_t *)tensor.data)[i], 0);
    assert_non_null(muster_shares_find(muster_host_shares(test.env.host), tensor.data, 4000));
    muster_tensor_free(&test.env, &tensor);
    assert_null(tensor.data);
    muster_tensor_free(&test.env, &tensor);
    test_env_close(&test);
}

static void without_a_host_it_is_ordinary_memory(void **state)
{
    struct test_env test;
    struct muster_env env;
    struct muster_tensor tensor;
    (void)state;

    test_env_open(&test);
    env = test.env;
    env.host = NULL;
    for (uint64_t count = 0; count < 100; count++) {
        assert_int_equal(muster_tensor_new(&env, MUSTER_I8, count, &tensor), MUSTER_OK);
        assert_int_equal((uintptr_t)tensor.data % 64, 0);
        memset(tensor.data, 1, count);
        muster_tensor_free(&env, &tensor);
    }
    test_env_close(&test);
}

static void when_no_share_can_be_made_it_is_ordinary_memory(void **state)
{
    struct test_env test;
    struct muster_tensor tensor;
    (void)state;

    test_env_open(&test);
    test.mem.fail_at = 1;
    assert_int_equal(muster_tensor_new(&test.env, MUSTER_F64, 10, &tensor), MUSTER_OK);

    assert_null(muster_shares_find(muster_host_shares(test.env.host), tensor.data, 1));
    memset(tensor.data, 1, 80);
    muster_tensor_free(&test.env, &tensor);
    test_env_close(&test);
}

static void what_cannot_be_a_tensor_is_refused(void **state)
{
    struct test_env test;
    struct muster_tensor tensor = {.count = 3};
    (void)state;

    test_env_open(&test);

    assert_int_equal(muster_tensor_new(&test.env, (enum muster_dtype)99, 1, &tensor),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_tensor_new(&test.env, MUSTER_F64, UINT64_MAX / 4, &tensor),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_tensor_new(&test.env, MUSTER_I8, UINT64_MAX - 10, &tensor),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(tensor.count, 3);
    test_env_close(&test);
}

static bool is_mapped(void *at)
{
    unsigned char resident;

    return mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), 1, &resident) == 0;
}

static void what_is_kept_outlives_its_environment(void **state)
{
    struct test_env test;
    struct muster_tensor tensor;
    void *start;
    size_t bytes;
    (void)state;

    test_env_open(&test);
    assert_int_equal(muster_tensor_new(&test.env, MUSTER_U8, 5000, &tensor), MUSTER_OK);
    memset(tensor.data, 7, 5000);
    muster_tensor_keep(&test.env, &tensor, &start, &bytes);
    test_env_close(&test);

    assert_ptr_equal(start, tensor.data);
    assert_int_equal(((uint8_t *)tensor.data)[4999], 7);
    ((uint8_t *)tensor.data)[0] = 8; /* still writable */
    muster_tensor_drop(start, bytes);
    assert_false(is_mapped(tensor.data));
}

static void ordinary_memory_is_kept_too(void **state)
{
    struct test_env test;
    struct muster_env env;
    struct muster_tensor tensor;
    void *start;
    size_t bytes;
    (void)state;

    test_env_open(&test);
    env = test.env;
    env.host = NULL;
    env.mem = muster_mem_system();
    assert_int_equal(muster_tensor_new(&env, MUSTER_U8, 100, &tensor), MUSTER_OK);
    muster_tensor_keep(&env, &tensor, &start, &bytes);
    test_env_close(&test);

    assert_int_equal(bytes, 0);
    memset(tensor.data, 7, 100);
    muster_tensor_drop(start, bytes);
}

static void what_is_kept_can_be_freed_before(void **state)
{
    struct test_env test;
    struct muster_tensor tensor;
    void *data, *start;
    size_t bytes;
    (void)state;

    test_env_open(&test);
    assert_int_equal(muster_tensor_new(&test.env, MUSTER_U8, 5000, &tensor), MUSTER_OK);
    data = tensor.data;
    muster_tensor_keep(&test.env, &tensor, &start, &bytes);
    muster_tensor_free(&test.env, &tensor);

    assert_false(is_mapped(data));
    muster_tensor_keep(&test.env, &tensor, &start, &bytes);
    assert_null(start); /* there is nothing to keep */
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_is_zero_and_shared),
        cmocka_unit_test(without_a_host_it_is_ordinary_memory),
        cmocka_unit_test(when_no_share_can_be_made_it_is_ordinary_memory),
        cmocka_unit_test(what_cannot_be_a_tensor_is_refused),
        cmocka_unit_test(what_is_kept_outlives_its_environment),
        cmocka_unit_test(ordinary_memory_is_kept_too),
        cmocka_unit_test(what_is_kept_can_be_freed_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
