/* Waits for a device that hangs, with a driver whose streams stand still. */
#include "gpu_stage.h"
#include "test_vars.h"

#include <string.h>

#include "collective/gpu/device_batch.h"
#include "collective/gpu/device_transfer.h"

#define BYTES    ((size_t)5000)
#define SHORT_NS (20 * MUSTER_NS_PER_MS) /* passes, because nothing ends the wait before */

/* Memory that a device which hangs may write to stays. */
const char *__asan_default_options(void);

__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "detect_leaks=0:handle_sigill=2";
}

static struct {
    struct gpu_knobs knobs;
    struct test_env test;
    struct test_vars vars;
    struct test_var list[2];
    struct muster_cuda *cuda; /* the program's */
    struct muster_device_memory *memory;
    uint8_t *device;
    uint8_t back[BYTES];
    bool hangs;
    unsigned done_count;
    enum muster_rc done_rc;
} stand;

static int set_up(void **state)
{
    struct muster_error error;

    (void)state;
    memset(&stand, 0, sizeof(stand));
    gpu_stage_load(&stand.knobs, GPU_STAGE_VERSION);
    stand.knobs.cuda_set("guarded", 1);
    stand.knobs.cuda_set("pinned", 0);
    test_env_open(&stand.test);
    stand.list[0] = (struct test_var){"MUSTER_CUDA_LIBRARY", gpu_stage_cuda()};
    test_vars_init(&stand.vars, stand.list);
    stand.test.env.vars = &stand.vars.vars;
    assert_int_equal(
        muster_cuda_open(muster_mem_system(), gpu_stage_cuda(), 0, &stand.cuda, &error), MUSTER_OK);
    (void)muster_cuda_enter(stand.cuda);
    assert_int_equal(muster_cuda_alloc(stand.cuda, BYTES, (void **)&stand.device, &error),
                     MUSTER_OK);
    muster_cuda_leave(stand.cuda, NULL);
    assert_int_equal(muster_device_memory_open(&stand.test.env, 0, &stand.memory, &error),
                     MUSTER_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    muster_device_memory_close(stand.memory); /* while the device hangs */
    (void)muster_cuda_enter(stand.cuda);
    if (!stand.hangs) /* copies may yet come */
        muster_cuda_free(stand.cuda, stand.device);
    muster_cuda_leave(stand.cuda, NULL);
    muster_cuda_close(stand.cuda);
    assert_int_equal(stand.knobs.cuda_get("misuse"), 0);
    test_env_close(&stand.test);
    return 0;
}

static void hang_streams(void)
{
    muster_device_memory_set_timeout(stand.memory, SHORT_NS);
    stand.knobs.cuda_set("hold", 1);
    stand.hangs = true;
}

static void assert_hung(const char *operation)
{
    struct muster_error error = {.rc = MUSTER_OK};

    assert_true(muster_device_memory_hangs(stand.memory));
    assert_true(muster_device_memory_has_failed(stand.memory, &error));
    assert_non_null(strstr(error.text, "device 0 hangs: "));
    assert_non_null(strstr(error.text, operation));
    assert_non_null(strstr(error.text,
                           ", longer than the bound of 0.02 s: see dmesg for its faults, "
                           "or raise MUSTER_DEVICE_TIMEOUT_S if its work takes longer"));
}

static void a_fence_is_reached_when_the_stream_has_come_so_far(void **state)
{
    struct muster_device_fence fence;

    (void)state;
    stand.knobs.cuda_set("hold", 1);
    muster_device_fence_set(&fence, stand.memory, NULL, "a case");
    assert_false(muster_device_fence_is_reached(&fence));
    stand.knobs.cuda_set("hold", 0);
    muster_device_fence_await(&fence);
    assert_true(muster_device_fence_is_reached(&fence));
    muster_device_fence_clear(&fence);
    assert_false(muster_device_memory_hangs(stand.memory));
}

/* No event can be recorded: the stream itself is asked. */
static void a_fence_without_an_event_waits_for_the_stream(void **state)
{
    struct muster_device_fence fence;
    struct muster_error error;

    (void)state;
    stand.knobs.cuda_set("hold", 1);
    (void)muster_cuda_enter(stand.cuda);
    assert_int_equal(
        muster_cuda_copy_out(stand.cuda, stand.back, stand.device, BYTES, NULL, &error), MUSTER_OK);
    muster_cuda_leave(stand.cuda, NULL);
    stand.knobs.cuda_set("event_fails", 1);
    muster_device_fence_set(&fence, stand.memory, NULL, "a case");
    assert_true(muster_device_memory_has_failed(stand.memory, &error));
    assert_false(muster_device_fence_is_reached(&fence));
    stand.knobs.cuda_set("hold", 0);
    muster_device_fence_await(&fence);
    assert_true(muster_device_fence_is_reached(&fence));
    muster_device_fence_clear(&fence);
    assert_false(muster_device_memory_hangs(stand.memory));
}

/* The clock is not waited for: the fence was set earlier. */
static void a_long_wait_is_told_each_30_s_before_its_bound(void **state)
{
    struct muster_device_fence fence;
    uint64_t told_ns;

    (void)state;
    stand.knobs.cuda_set("hold", 1);
    muster_device_fence_set(&fence, stand.memory, NULL, "a case");
    told_ns = fence.stall.told_ns;
    assert_false(muster_device_fence_is_reached(&fence));
    assert_int_equal(fence.stall.told_ns, told_ns);
    fence.stall.begun_ns -= 31 * MUSTER_NS_PER_S;
    fence.stall.told_ns -= 31 * MUSTER_NS_PER_S;
    assert_false(muster_device_fence_is_reached(&fence));
    assert_true(fence.stall.told_ns >= told_ns);
    stand.knobs.cuda_set("hold", 0);
    muster_device_fence_await(&fence);
    muster_device_fence_clear(&fence);
    assert_false(muster_device_memory_hangs(stand.memory));
}

static void a_wait_ends_by_its_bound_and_later_ones_at_once(void **state)
{
    (void)state;
    hang_streams();
    assert_int_equal(muster_device_memory_wait(stand.memory, NULL, "a case"), MUSTER_UNAVAILABLE);
    assert_hung("a case");
    muster_device_memory_set_timeout(stand.memory, UINT64_MAX);
    assert_int_equal(muster_device_memory_wait(stand.memory, NULL, "another"), MUSTER_UNAVAILABLE);
}

static void a_copy_ends_by_the_bound_and_what_it_may_write_stays(void **state)
{
    (void)state;
    hang_streams();
    assert_int_equal(muster_far_memory_read(muster_device_memory_far(stand.memory), stand.back,
                                            stand.device, BYTES),
                     MUSTER_UNAVAILABLE);
    assert_hung("a copy");
    muster_device_memory_close(stand.memory);
    stand.memory = NULL;
    assert_int_not_equal(stand.knobs.cuda_get("pinned"), 0);
}

static void on_done(struct muster_device_transfer *transfer, enum muster_rc rc)
{
    (void)transfer;
    stand.done_count++;
    stand.done_rc = rc;
}

static bool is_done(void *data)
{
    (void)data;
    return stand.done_count > 0;
}

static void a_transfer_ends_by_the_bound(void **state)
{
    const struct muster_device_copy copy = {stand.back, stand.device, BYTES};
    struct muster_device_transfer transfer = {.data = NULL};

    (void)state;
    hang_streams();
    assert_int_equal(
        muster_device_transfer_start(&transfer, stand.memory, &copy, 1, true, NULL, on_done),
        MUSTER_OK);
    assert_false(muster_device_transfers_are_over(stand.memory));
    test_env_run_until(&stand.test.env, is_done, NULL);
    assert_int_equal(stand.done_rc, MUSTER_UNAVAILABLE);
    assert_true(muster_device_transfers_are_over(stand.memory));
    assert_hung("a request");
}

static void a_batch_ends_by_the_bound(void **state)
{
    const struct muster_device_copy copy = {stand.back, stand.device, BYTES};
    struct muster_device_batch batch = {.memory = NULL};
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_device_batch_open(&batch, stand.memory, &error), MUSTER_OK);
    hang_streams();
    assert_int_equal(muster_device_batch_start(&batch, &copy, 1, true), MUSTER_OK);
    assert_int_equal(muster_device_batch_wait(&batch), MUSTER_UNAVAILABLE);
    assert_hung("replicas");
    muster_device_batch_close(&batch);
    assert_null(batch.memory);
    assert_null(batch.stream);
    assert_int_equal(muster_device_batch_open(&batch, stand.memory, &error), MUSTER_UNAVAILABLE);
    assert_null(batch.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_fence_is_reached_when_the_stream_has_come_so_far, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_fence_without_an_event_waits_for_the_stream, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_long_wait_is_told_each_30_s_before_its_bound, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_wait_ends_by_its_bound_and_later_ones_at_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_copy_ends_by_the_bound_and_what_it_may_write_stays,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_transfer_ends_by_the_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_batch_ends_by_the_bound, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
