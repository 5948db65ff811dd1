/* Copies of two devices at once, each under its own context, and one device that fails. */
#include "gpu_stage.h"
#include "test_vars.h"

#include <string.h>

#include "collective/gpu/device_batch.h"

#define BYTES ((size_t)5000)

static struct {
    struct gpu_knobs knobs;
    struct test_env test;
    struct test_vars vars;
    struct test_var list[2];
    struct muster_device_memory *memories[2];
    struct muster_device_batch batches[2];
    void *device[2];
    uint8_t in[2][BYTES], out[2][BYTES];
} stand;

static int set_up(void **state)
{
    struct muster_error error;

    (void)state;
    memset(&stand, 0, sizeof(stand));
    gpu_stage_load(&stand.knobs, GPU_STAGE_VERSION);
    stand.knobs.cuda_set("guarded", 1);
    stand.knobs.cuda_set("devices", 2);
    test_env_open(&stand.test);
    stand.list[0] = (struct test_var){"MUSTER_CUDA_LIBRARY", gpu_stage_cuda()};
    test_vars_init(&stand.vars, stand.list);
    stand.test.env.vars = &stand.vars.vars;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(muster_device_memory_open(&stand.test.env, i, &stand.memories[i], &error),
                         MUSTER_OK);
        assert_int_equal(muster_device_batch_open(&stand.batches[i], stand.memories[i], &error),
                         MUSTER_OK);
        assert_int_equal(
            muster_device_memory_new(stand.memories[i], BYTES, &stand.device[i], &error),
            MUSTER_OK);
        memset(stand.out[i], 1, BYTES);
        for (size_t k = 0; k < BYTES; k++)
            stand.in[i][k] = (uint8_t)(k * 7 + (size_t)i);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        muster_device_batch_close(&stand.batches[i]);
        muster_device_batch_close(&stand.batches[i]); /* all zero */
        muster_device_memory_free(stand.memories[i], stand.device[i]);
        muster_device_memory_close(stand.memories[i]);
    }
    stand.knobs.cuda_set("failed", -1);
    assert_int_equal(stand.knobs.cuda_get("misuse"), 0);
    assert_int_equal(stand.knobs.cuda_get("pinned"), 0);
    assert_int_equal(stand.knobs.cuda_get("events"), 0);
    assert_int_equal(stand.knobs.cuda_get("contexts"), 0);
    test_env_close(&stand.test);
    return 0;
}

static enum muster_rc copies_start(int i, bool is_out)
{
    const struct muster_device_copy copies[] = {
        {is_out ? stand.out[i] : stand.in[i], stand.device[i], 1000},
        {(is_out ? stand.out[i] : stand.in[i]) + 1000, (uint8_t *)stand.device[i] + 1000,
         BYTES - 1000}};

    return muster_device_batch_start(&stand.batches[i], copies, 2, is_out);
}

static void both_devices_copy_while_the_host_goes_on(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(copies_start(i, true), MUSTER_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(muster_device_batch_wait(&stand.batches[i]), MUSTER_OK);
    assert_int_equal(stand.out[0][BYTES - 1], 0); /* a device's memory is of zeroes */
    assert_int_equal(stand.out[1][0], 0);

    stand.knobs.cuda_set("hold", 1);
    for (int i = 0; i < 2; i++) { /* out comes after in */
        assert_int_equal(copies_start(i, false), MUSTER_OK);
        assert_int_equal(copies_start(i, true), MUSTER_OK);
    }
    stand.knobs.cuda_set("hold", 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(muster_device_batch_wait(&stand.batches[i]), MUSTER_OK);
        assert_memory_equal(stand.out[i], stand.in[i], BYTES);
    }
}

static void one_device_fails_and_the_other_does_not(void **state)
{
    struct muster_error error = {.text = ""};

    (void)state;
    stand.knobs.cuda_set("failed", 1);
    assert_int_equal(copies_start(0, true), MUSTER_OK);
    assert_int_equal(copies_start(1, true), MUSTER_UNAVAILABLE);
    assert_int_equal(muster_device_batch_wait(&stand.batches[0]), MUSTER_OK);
    assert_int_equal(muster_device_batch_wait(&stand.batches[1]), MUSTER_UNAVAILABLE);
    assert_false(muster_device_memory_has_failed(stand.memories[0], &error));
    assert_true(muster_device_memory_has_failed(stand.memories[1], &error));
    assert_string_equal(error.text, "copy from the device: CUDA error 719: fake error");
    stand.knobs.cuda_set("failed", -1);
    assert_int_equal(copies_start(1, false), MUSTER_UNAVAILABLE); /* for good */
    assert_int_equal(copies_start(0, false), MUSTER_OK);
    assert_int_equal(muster_device_batch_wait(&stand.batches[0]), MUSTER_OK);
}

static void a_look_says_where_memory_is(void **state)
{
    struct muster_device_look look = muster_device_look_of(&stand.test.env);
    struct muster_error error;
    int count = 0;

    (void)state;
    assert_int_equal(muster_device_look_at(&look, stand.device[0]), 0);
    assert_int_equal(muster_device_look_at(&look, (uint8_t *)stand.device[1] + BYTES - 1), 1);
    assert_int_equal(muster_device_look_at(&look, stand.in), -1);
    assert_int_equal(muster_device_look_at(&look, NULL), -1);
    assert_int_equal(muster_device_count(&stand.test.env, &count, &error), MUSTER_OK);
    assert_int_equal(count, 2);
    stand.list[0].value = "/nowhere/libcuda.so.1";
    look = muster_device_look_of(&stand.test.env);
    assert_int_equal(muster_device_count(&stand.test.env, &count, &error), MUSTER_UNAVAILABLE);
    stand.list[0].value = gpu_stage_cuda();
}

static void memory_that_is_not_there_is_told(void **state)
{
    struct muster_error error = {.text = ""};
    void *address = NULL;

    (void)state;
    stand.knobs.cuda_set("alloc_fails", 1);
    assert_int_equal(muster_device_memory_new(stand.memories[1], 10, &address, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "10 bytes of device memory: CUDA error 2: out of memory");
    stand.knobs.cuda_set("failed", 1);
    assert_int_equal(muster_device_memory_new(stand.memories[1], 10, &address, &error),
                     MUSTER_UNAVAILABLE);
    assert_null(address);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_devices_copy_while_the_host_goes_on, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_device_fails_and_the_other_does_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_look_says_where_memory_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_that_is_not_there_is_told, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("collective.device_batch", tests, NULL, NULL);
}
