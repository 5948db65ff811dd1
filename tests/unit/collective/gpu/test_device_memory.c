/* Copies between a device and the host, with a driver that kills a process which touches device memory by itself. */
#include "gpu_stage.h"
#include "test_vars.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "collective/gpu/cuda_driver.h"
#include "collective/gpu/device_memory.h"

#define BYTES (((size_t)2 << 20) + 12345) /* more than two pieces */

static struct {
    struct gpu_knobs knobs;
    struct test_env test;
    struct test_vars vars;
    struct test_var list[2];
    struct muster_cuda *cuda; /* the program's */
    uint8_t *memory;          /* on the device */
    uint8_t *bytes, *back;
} stand;

static int set_up(void **state)
{
    struct muster_error error;

    (void)state;
    gpu_stage_load(&stand.knobs, GPU_STAGE_VERSION);
    stand.knobs.cuda_set("guarded", 1);
    test_env_open(&stand.test);
    stand.list[0] = (struct test_var){"MUSTER_CUDA_LIBRARY", gpu_stage_cuda()};
    stand.list[1] = (struct test_var){NULL, NULL};
    test_vars_init(&stand.vars, stand.list);
    stand.test.env.vars = &stand.vars.vars;
    assert_int_equal(
        muster_cuda_open(muster_mem_system(), gpu_stage_cuda(), 0, &stand.cuda, &error), MUSTER_OK);
    (void)muster_cuda_enter(stand.cuda);
    assert_int_equal(muster_cuda_alloc(stand.cuda, BYTES, (void **)&stand.memory, &error),
                     MUSTER_OK);
    muster_cuda_leave(stand.cuda, NULL);
    stand.bytes = malloc(BYTES);
    stand.back = calloc(1, BYTES);
    assert_true(stand.bytes != NULL && stand.back != NULL);
    for (size_t i = 0; i < BYTES; i++)
        stand.bytes[i] = (uint8_t)(i * 7 + i / 4096);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)muster_cuda_enter(stand.cuda);
    muster_cuda_free(stand.cuda, stand.memory);
    muster_cuda_leave(stand.cuda, NULL);
    muster_cuda_close(stand.cuda);
    free(stand.bytes);
    free(stand.back);
    assert_int_equal(stand.knobs.cuda_get("misuse"), 0);
    assert_int_equal(stand.knobs.cuda_get("pinned"), 0);
    test_env_close(&stand.test);
    return 0;
}

static struct muster_device_memory *must_open(int ordinal)
{
    struct muster_device_memory *memory = NULL;
    struct muster_error error;

    if (muster_device_memory_open(&stand.test.env, ordinal, &memory, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return memory;
}

static void what_is_written_is_read_again(void **state)
{
    struct muster_device_memory *memory = must_open(0);
    struct muster_far_memory *far = muster_device_memory_far(memory);

    (void)state;
    assert_int_equal(muster_far_memory_write(far, stand.memory, stand.bytes, BYTES), MUSTER_OK);
    assert_int_equal(muster_far_memory_read(far, stand.back, stand.memory, BYTES), MUSTER_OK);
    assert_memory_equal(stand.back, stand.bytes, BYTES);
    assert_int_equal(muster_far_memory_read(far, stand.back, stand.memory + 1001, 17), MUSTER_OK);
    assert_memory_equal(stand.back, stand.bytes + 1001, 17);
    assert_int_equal(stand.knobs.cuda_get("copied"), 2 * BYTES + 17);
    muster_device_memory_close(memory);
}

static void without_far_memory_it_is_the_hosts(void **state)
{
    (void)state;
    assert_int_equal(
        muster_far_memory_write(muster_device_memory_far(NULL), stand.back, stand.bytes, BYTES),
        MUSTER_OK);
    assert_memory_equal(stand.back, stand.bytes, BYTES);
    assert_int_equal(stand.knobs.cuda_get("copied"), 0);
}

static void wait_for_gate(void *data)
{
    while (sem_wait(data) != 0)
        continue;
}

/* The copy stands in the other stream behind a function that waits for this thread. */
static void a_stream_waits_for_another_one(void **state)
{
    struct muster_device_memory *memory = must_open(0);
    struct muster_cuda_stream *first = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    sem_t gate;

    (void)state;
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    (void)muster_cuda_enter(stand.cuda);
    assert_int_equal(muster_cuda_stream_new(stand.cuda, &first, &error), MUSTER_OK);
    assert_int_equal(muster_cuda_launch_host(stand.cuda, first, wait_for_gate, &gate, &error),
                     MUSTER_OK);
    assert_int_equal(
        muster_cuda_copy_in(stand.cuda, stand.memory, stand.bytes, BYTES, first, &error),
        MUSTER_OK);
    muster_cuda_leave(stand.cuda, NULL);
    assert_int_equal(muster_device_memory_order(memory, first, NULL, &error), MUSTER_OK);
    assert_int_equal(sem_post(&gate), 0);
    assert_int_equal(muster_device_memory_wait(memory, NULL, "a case"), MUSTER_OK);
    assert_int_equal(
        muster_far_memory_read(muster_device_memory_far(memory), stand.back, stand.memory, BYTES),
        MUSTER_OK);
    assert_memory_equal(stand.back, stand.bytes, BYTES);

    stand.knobs.cuda_set("event_fails", 1);
    assert_int_equal(muster_device_memory_order(memory, first, NULL, &error), MUSTER_INTERNAL);
    assert_non_null(strstr(error.text, "CUDA error"));
    assert_false(muster_device_memory_has_failed(memory, &error));
    assert_int_equal(stand.knobs.cuda_get("events"), 0);
    (void)muster_cuda_enter(stand.cuda);
    muster_cuda_stream_free(stand.cuda, first);
    muster_cuda_leave(stand.cuda, NULL);
    muster_device_memory_close(memory);
    (void)sem_destroy(&gate);
}

static void the_first_failure_is_kept(void **state)
{
    struct muster_device_memory *memory = must_open(0);
    struct muster_far_memory *far = muster_device_memory_far(memory);
    struct muster_error error = {.rc = MUSTER_OK};

    (void)state;
    assert_false(muster_device_memory_has_failed(memory, &error));
    assert_false(muster_device_memory_has_failed(NULL, &error));
    stand.knobs.cuda_set("copy_fails", 1);
    assert_int_equal(muster_far_memory_read(far, stand.back, stand.memory, BYTES),
                     MUSTER_UNAVAILABLE);
    assert_true(muster_device_memory_has_failed(memory, &error));
    assert_int_equal(error.rc, MUSTER_UNAVAILABLE);
    assert_string_equal(error.text, "copy from the device: CUDA error 719: fake error");
    assert_int_equal(muster_far_memory_write(far, stand.memory, stand.bytes, 1),
                     MUSTER_UNAVAILABLE);
    assert_int_equal(muster_device_memory_wait(memory, NULL, "a case"), MUSTER_UNAVAILABLE);
    muster_device_memory_close(memory);
}

static void wait_waits_for_the_programs_stream(void **state)
{
    struct muster_device_memory *memory = must_open(0);
    struct muster_error error;

    (void)state;
    stand.knobs.cuda_set("lazy", 1); /* what the default stream holds is done when somebody waits */
    (void)muster_cuda_enter(stand.cuda);
    assert_int_equal(
        muster_cuda_copy_in(stand.cuda, stand.memory, stand.bytes, BYTES, NULL, &error), MUSTER_OK);
    muster_cuda_leave(stand.cuda, NULL);
    assert_int_equal(
        muster_far_memory_read(muster_device_memory_far(memory), stand.back, stand.memory, BYTES),
        MUSTER_OK);
    assert_int_equal(stand.back[1], 0);
    assert_int_equal(muster_device_memory_wait(memory, NULL, "a case"), MUSTER_OK);
    assert_int_equal(
        muster_far_memory_read(muster_device_memory_far(memory), stand.back, stand.memory, BYTES),
        MUSTER_OK);
    assert_memory_equal(stand.back, stand.bytes, BYTES);
    muster_device_memory_close(memory);
}

static void the_device_of_an_address_is_found(void **state)
{
    struct muster_device_memory *memory;

    (void)state;
    assert_int_equal(muster_device_ordinal_of(&stand.test.env, stand.memory), 0);
    stand.knobs.cuda_set("devices", 3);
    stand.knobs.cuda_set("ordinal", 2);
    assert_int_equal(muster_device_ordinal_of(&stand.test.env, stand.memory), 2);
    assert_int_equal(muster_device_ordinal_of(&stand.test.env, stand.bytes), 0);
    memory = must_open(2);
    assert_int_equal(muster_device_memory_ordinal(memory), 2);
    muster_device_memory_close(memory);
}

static void what_cannot_be_opened_leaves_nothing(void **state)
{
    struct muster_device_memory *memory = NULL;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_device_memory_open(&stand.test.env, 1, &memory, &error),
                     MUSTER_NOT_FOUND);
    stand.knobs.cuda_set("pinned_fails", 1);
    assert_int_equal(muster_device_memory_open(&stand.test.env, 0, &memory, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "1048576 bytes of pinned memory: CUDA error 2: out of memory");
    stand.list[0].value = "/nowhere/libcuda.so.1";
    assert_int_equal(muster_device_memory_open(&stand.test.env, 0, &memory, &error),
                     MUSTER_UNAVAILABLE);
    assert_null(memory);
    muster_device_memory_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_far_memory_it_is_the_hosts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_failure_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wait_waits_for_the_programs_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stream_waits_for_another_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_device_of_an_address_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_opened_leaves_nothing, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("collective.device_memory", tests, NULL, NULL);
}
