/* Copies that go on while the loop turns, with a driver that loses callbacks and fails. */
#include "gpu_stage.h"
#include "test_vars.h"

#include <string.h>

#include "collective/gpu/cuda_driver.h"
#include "collective/gpu/device_transfer.h"
#include "collective/gpu/slot.h"

#define BYTES ((size_t)5000)

static struct {
    struct gpu_knobs knobs;
    struct test_env test;
    struct test_vars vars;
    struct test_var list[2];
    struct muster_cuda *cuda; /* the program's */
    struct muster_device_memory *memory;
    uint8_t *device, *other;
    uint8_t out[BYTES], in[BYTES];
    struct muster_device_transfer transfers[3];
    unsigned done_count;
    struct {
        struct muster_device_transfer *transfer;
        enum muster_rc rc;
    } done[3];
} stand;

static int set_up(void **state)
{
    struct muster_error error;

    (void)state;
    memset(&stand, 0, sizeof(stand));
    gpu_stage_load(&stand.knobs, GPU_STAGE_VERSION);
    stand.knobs.cuda_set("guarded", 1);
    test_env_open(&stand.test);
    stand.list[0] = (struct test_var){"MUSTER_CUDA_LIBRARY", gpu_stage_cuda()};
    test_vars_init(&stand.vars, stand.list);
    stand.test.env.vars = &stand.vars.vars;
    assert_int_equal(
        muster_cuda_open(muster_mem_system(), gpu_stage_cuda(), 0, &stand.cuda, &error), MUSTER_OK);
    (void)muster_cuda_enter(stand.cuda);
    assert_int_equal(muster_cuda_alloc(stand.cuda, BYTES, (void **)&stand.device, &error),
                     MUSTER_OK);
    assert_int_equal(muster_cuda_alloc(stand.cuda, BYTES, (void **)&stand.other, &error),
                     MUSTER_OK);
    muster_cuda_leave(stand.cuda, NULL);
    assert_int_equal(muster_device_memory_open(&stand.test.env, 0, &stand.memory, &error),
                     MUSTER_OK);
    for (size_t i = 0; i < BYTES; i++)
        stand.in[i] = (uint8_t)(i * 7);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)muster_cuda_enter(stand.cuda);
    muster_cuda_free(stand.cuda, stand.device);
    muster_cuda_free(stand.cuda, stand.other);
    muster_cuda_leave(stand.cuda, NULL);
    muster_cuda_close(stand.cuda);
    muster_device_memory_close(stand.memory);
    assert_int_equal(stand.knobs.cuda_get("misuse"), 0);
    assert_int_equal(stand.knobs.cuda_get("pinned"), 0);
    assert_int_equal(stand.knobs.cuda_get("events"), 0);
    test_env_close(&stand.test);
    return 0;
}

static void on_done(struct muster_device_transfer *transfer, enum muster_rc rc)
{
    assert_true(stand.done_count < 3);
    stand.done[stand.done_count].transfer = transfer;
    stand.done[stand.done_count++].rc = rc;
}

static enum muster_rc try_start(unsigned i, bool is_out, uint8_t *device)
{
    const struct muster_device_copy halves[] = {
        {is_out ? stand.out : stand.in, device, BYTES / 2},
        {(is_out ? stand.out : stand.in) + BYTES / 2, device + BYTES / 2, BYTES - BYTES / 2}};

    return muster_device_transfer_start(&stand.transfers[i], stand.memory, halves, 2, is_out, NULL,
                                        on_done);
}

static void start_one(unsigned i, bool is_out, uint8_t *device)
{
    assert_int_equal(try_start(i, is_out, device), MUSTER_OK);
}

static bool are_done(void *data)
{
    return stand.done_count == *(const unsigned *)data;
}

static void await_done(unsigned count)
{
    test_env_run_until(&stand.test.env, are_done, &count);
}

static void bytes_go_in_and_come_out(void **state)
{
    (void)state;
    start_one(0, false, stand.device);
    assert_int_equal(stand.done_count, 0); /* never within start */
    await_done(1);
    start_one(1, true, stand.device);
    await_done(2);
    assert_memory_equal(stand.out, stand.in, BYTES);
    assert_int_equal(stand.done[1].rc, MUSTER_OK);
}

/* Copies out wait for what the program's stream holds, and those in do not. */
static void only_copies_out_are_behind_the_programs_stream(void **state)
{
    struct muster_error error;

    (void)state;
    stand.knobs.cuda_set("lazy", 1);
    (void)muster_cuda_enter(stand.cuda);
    assert_int_equal(muster_cuda_copy_in(stand.cuda, stand.device, stand.in, BYTES, NULL, &error),
                     MUSTER_OK);
    muster_cuda_leave(stand.cuda, NULL);
    start_one(0, true, stand.device);
    start_one(1, false, stand.other);
    await_done(1);
    assert_ptr_equal(stand.done[0].transfer, &stand.transfers[1]);
    stand.knobs.cuda_set("lazy", 0);
    await_done(2);
    assert_memory_equal(stand.out, stand.in, BYTES);
}

static void a_lost_callback_is_found(void **state)
{
    (void)state;
    stand.knobs.cuda_set("lost_callbacks", 1);
    start_one(0, false, stand.device);
    await_done(1);
    assert_int_equal(stand.done[0].rc, MUSTER_OK);
}

/* Copies that were issued may still write: the start neither waits for them nor fails. */
static void a_failure_behind_copies_comes_when_they_have_ended(void **state)
{
    static const struct {
        const char *knob;
        bool is_out; /* the first event of those out comes before their copies */
    } rows[] = {{"launch_fails", true}, {"launch_fails", false}, {"event_fails", false}};
    struct muster_error error;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (i > 0)
            set_up(state);
        stand.knobs.cuda_set("hold", 1);
        stand.knobs.cuda_set(rows[i].knob, 1);
        assert_int_equal(try_start(0, rows[i].is_out, stand.device), MUSTER_OK);
        assert_true(muster_device_memory_has_failed(stand.memory, &error));
        test_env_turn(&stand.test.env, 3);
        assert_int_equal(stand.done_count, 0);
        stand.knobs.cuda_set("hold", 0);
        await_done(1);
        assert_int_equal(stand.done[0].rc, MUSTER_UNAVAILABLE);
        if (i + 1 < sizeof(rows) / sizeof(rows[0]))
            tear_down(state);
    }
}

static void a_failure_with_nothing_to_copy_leaves_no_event(void **state)
{
    (void)state;
    stand.knobs.cuda_set("launch_fails", 1);
    assert_int_equal(muster_device_transfer_start(&stand.transfers[0], stand.memory, NULL, 0, false,
                                                  NULL, on_done),
                     MUSTER_OK);
    await_done(1);
    assert_int_equal(stand.done[0].rc, MUSTER_UNAVAILABLE);
    assert_int_equal(stand.knobs.cuda_get("events"), 0);
}

/* All slots of the process are taken: the slow timer sees the end. */
static void a_transfer_needs_no_slot(void **state)
{
    static struct muster_gpu_slot *slots[MUSTER_GPU_SLOT_COUNT];

    (void)state;
    for (unsigned i = 0; i < MUSTER_GPU_SLOT_COUNT; i++)
        slots[i] = muster_gpu_slot_take(NULL);
    start_one(0, false, stand.device);
    await_done(1);
    assert_int_equal(stand.done[0].rc, MUSTER_OK);
    for (unsigned i = 0; i < MUSTER_GPU_SLOT_COUNT; i++)
        muster_gpu_slot_drop(slots[i], false);
}

static void a_failure_at_the_start_is_returned_and_kept(void **state)
{
    static const char *const knobs[] = {"copy_fails", "event_fails"};
    struct muster_error error;

    for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
        if (i > 0)
            set_up(state);
        stand.knobs.cuda_set(knobs[i], 1);
        assert_int_equal(try_start(0, true, stand.device), MUSTER_UNAVAILABLE);
        assert_true(muster_device_memory_has_failed(stand.memory, &error));
        assert_int_equal(try_start(0, true, stand.device), MUSTER_UNAVAILABLE);
        if (i + 1 < sizeof(knobs) / sizeof(knobs[0]))
            tear_down(state);
    }
    assert_int_equal(stand.done_count, 0);
}

static void they_are_over_when_all_have_been_called(void **state)
{
    (void)state;
    assert_true(muster_device_transfers_are_over(stand.memory));
    stand.knobs.cuda_set("hold", 1);
    start_one(0, false, stand.device);
    start_one(1, true, stand.other);
    test_env_turn(&stand.test.env, 3);
    assert_false(muster_device_transfers_are_over(stand.memory));
    stand.knobs.cuda_set("hold", 0);
    await_done(2);
    assert_true(muster_device_transfers_are_over(stand.memory));
}

static void memory_is_pinned_and_given_back(void **state)
{
    (void)state;
    assert_true(muster_device_pin(stand.memory, stand.in, BYTES));
    muster_device_unpin(stand.memory, stand.in);
    stand.knobs.cuda_set("pinned_fails", 1);
    assert_false(muster_device_pin(stand.memory, stand.in, BYTES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_go_in_and_come_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_copies_out_are_behind_the_programs_stream, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_lost_callback_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_at_the_start_is_returned_and_kept, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_failure_behind_copies_comes_when_they_have_ended, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_failure_with_nothing_to_copy_leaves_no_event, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_transfer_needs_no_slot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(they_are_over_when_all_have_been_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_is_pinned_and_given_back, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("collective.device_transfer", tests, NULL, NULL);
}
