/* The driver by dlopen, played by a fake one. */
#include "gpu_stage.h"

#include "collective/gpu/cuda_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_driver(struct muster_cuda **ret_cuda)
{
    struct muster_error error;

    if (muster_cuda_open(muster_mem_system(), gpu_stage_cuda(), 0, ret_cuda, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static enum muster_rc try_open(int ordinal, struct muster_error *error)
{
    struct muster_cuda *cuda = NULL;
    enum muster_rc rc =
        muster_cuda_open(muster_mem_system(), gpu_stage_cuda(), ordinal, &cuda, error);

    muster_cuda_close(cuda);
    return rc;
}

static void no_library_is_unavailable(void **state)
{
    struct muster_cuda *cuda = NULL;
    struct muster_error error;

    (void)state;
    assert_int_equal(
        muster_cuda_open(muster_mem_system(), "/nowhere/libcuda.so.1", 0, &cuda, &error),
        MUSTER_UNAVAILABLE);
    assert_null(cuda);
    assert_non_null(strstr(error.text, "no CUDA driver: /nowhere/libcuda.so.1"));
}

static void another_library_names_what_it_lacks(void **state)
{
    struct muster_cuda *cuda = NULL;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_cuda_open(muster_mem_system(), "libm.so.6", 0, &cuda, &error),
                     MUSTER_UNIMPLEMENTED);
    assert_non_null(strstr(error.text, "has no cuInit"));
}

static void an_old_driver_is_refused(void **state)
{
    struct gpu_knobs *knobs = *state;
    struct muster_error error;

    knobs->cuda_set("driver_version", 10020);
    assert_int_equal(try_open(0, &error), MUSTER_UNIMPLEMENTED);
    assert_string_equal(error.text, "the CUDA driver is 10.2, at least 11.0 is needed");
}

static void no_device_is_unavailable(void **state)
{
    struct gpu_knobs *knobs = *state;
    struct muster_error error;

    knobs->cuda_set("no_device", 1);
    assert_int_equal(try_open(0, &error), MUSTER_UNAVAILABLE);
    assert_string_equal(error.text, "start of the driver: CUDA error 100: no CUDA-capable device "
                                    "is detected");
    knobs->cuda_set("no_device", 0);
    knobs->cuda_set("devices", 0);
    assert_int_equal(try_open(0, &error), MUSTER_UNAVAILABLE);
}

static void a_device_that_is_not_there_is_not_found(void **state)
{
    struct muster_error error;

    (void)state;
    assert_int_equal(try_open(1, &error), MUSTER_NOT_FOUND);
    assert_string_equal(error.text, "no device 1 among 1");
    assert_int_equal(try_open(-1, &error), MUSTER_NOT_FOUND);
}

static void the_device_says_what_it_is(void **state)
{
    struct muster_cuda *cuda = NULL;

    (void)state;
    open_driver(&cuda);
    assert_string_equal(muster_cuda_device(cuda)->name, "Fake GPU 0");
    assert_int_equal(muster_cuda_device(cuda)->driver_version, 13020);
    assert_int_equal(muster_cuda_device(cuda)->capability_major, 9);
    muster_cuda_close(cuda);
}

static void leave_gives_back_the_context_of_before(void **state)
{
    struct gpu_knobs *knobs = *state;
    struct muster_cuda *cuda = NULL;
    struct muster_cuda_event *event = NULL;
    struct muster_error error;
    void *before;

    open_driver(&cuda);
    before = muster_cuda_enter(cuda);
    assert_null(before);
    assert_int_equal(muster_cuda_event_new(cuda, &event, &error), MUSTER_OK);
    muster_cuda_event_free(cuda, event);
    muster_cuda_leave(cuda, before);
    assert_int_equal(knobs->cuda_get("misuse"), 0);

    /* outside, the fake complains */
    assert_int_equal(muster_cuda_event_new(cuda, &event, &error), MUSTER_INTERNAL);
    assert_int_equal(knobs->cuda_get("misuse"), 1);
    muster_cuda_close(cuda);
}

static void an_event_is_done_when_the_stream_has_come_so_far(void **state)
{
    struct gpu_knobs *knobs = *state;
    struct muster_cuda *cuda = NULL;
    struct muster_cuda_event *event = NULL;
    struct muster_cuda_stream *stream = NULL;
    struct muster_error error;
    bool is_done = true;

    open_driver(&cuda);
    (void)muster_cuda_enter(cuda);
    assert_int_equal(muster_cuda_event_new(cuda, &event, &error), MUSTER_OK);
    assert_int_equal(muster_cuda_stream_new(cuda, &stream, &error), MUSTER_OK);
    knobs->cuda_set("hold", 1);
    assert_int_equal(muster_cuda_event_record(cuda, event, stream, &error), MUSTER_OK);
    assert_int_equal(muster_cuda_event_query(cuda, event, &is_done, &error), MUSTER_OK);
    assert_false(is_done);
    knobs->cuda_set("hold", 0);
    assert_int_equal(muster_cuda_stream_synchronise(cuda, stream, &error), MUSTER_OK);
    assert_int_equal(muster_cuda_event_query(cuda, event, &is_done, &error), MUSTER_OK);
    assert_true(is_done);
    muster_cuda_event_free(cuda, event);
    muster_cuda_stream_free(cuda, stream);
    muster_cuda_leave(cuda, NULL);
    muster_cuda_close(cuda);
}

static void memory_of_the_device_is_told_from_other_memory(void **state)
{
    struct gpu_knobs *knobs = *state;
    struct muster_cuda *cuda = NULL;
    struct muster_error error;
    char inside[16] = "fifteen letters", back[16] = "";
    void *memory = NULL;

    open_driver(&cuda);
    (void)muster_cuda_enter(cuda);
    assert_int_equal(muster_cuda_alloc(cuda, 16, &memory, &error), MUSTER_OK);
    assert_true(muster_cuda_is_reachable(cuda, memory));
    assert_false(muster_cuda_is_reachable(cuda, inside));
    assert_int_equal(muster_cuda_copy_in(cuda, memory, inside, 16, NULL, &error), MUSTER_OK);
    assert_int_equal(muster_cuda_copy_out(cuda, back, memory, 16, NULL, &error), MUSTER_OK);
    assert_int_equal(muster_cuda_stream_synchronise(cuda, NULL, &error), MUSTER_OK);
    assert_string_equal(back, inside);
    muster_cuda_free(cuda, memory);
    knobs->cuda_set("alloc_fails", 1);
    assert_int_equal(muster_cuda_alloc(cuda, 16, &memory, &error), MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "16 bytes of device memory: CUDA error 2: out of memory");
    muster_cuda_leave(cuda, NULL);
    muster_cuda_close(cuda);
}

/* A driver that this process has not loaded yet. */
static void copy_driver(const char *path)
{
    FILE *from = fopen(gpu_stage_cuda(), "rb"), *to = fopen(path, "wb");
    char bytes[4096];
    size_t count;

    assert_non_null(from);
    assert_non_null(to);
    while ((count = fread(bytes, 1, sizeof(bytes), from)) > 0)
        assert_int_equal(fwrite(bytes, 1, count, to), count);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(fclose(from), 0);
}

static void a_driver_is_looked_at_from_when_the_program_has_loaded_it(void **state)
{
    struct muster_cuda_look look = {NULL};
    char folder[] = "/tmp/muster-cuda-XXXXXX", path[64];
    void *handle;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/libcuda-later.so", folder);
    copy_driver(path);
    assert_false(muster_cuda_look_init(&look, path));
    assert_false(muster_cuda_look_init(&look, path)); /* the second time by what is known */
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(handle);

    assert_true(muster_cuda_look_init(&look, path));
    assert_false(muster_cuda_look_is_device(&look, folder));
    assert_true(muster_cuda_look_init(&look, gpu_stage_cuda())); /* the set-up has loaded it */
    assert_int_equal(dlclose(handle), 0);
    assert_int_equal(remove(path), 0);
    assert_int_equal(remove(folder), 0);
}

static void a_driver_that_is_loaded_is_found_when_another_is_not(void **state)
{
    struct muster_cuda_look look = {NULL};

    (void)state;
    assert_false(muster_cuda_look_init(&look, "libcuda-elsewhere.so"));
    assert_true(muster_cuda_look_init(&look, gpu_stage_cuda()));
    assert_false(muster_cuda_look_init(&look, "libcuda-elsewhere.so"));
}

static int set_up(void **state)
{
    static struct gpu_knobs knobs;

    gpu_stage_load(&knobs, GPU_STAGE_VERSION);
    *state = &knobs;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_library_is_unavailable, set_up),
        cmocka_unit_test_setup(another_library_names_what_it_lacks, set_up),
        cmocka_unit_test_setup(an_old_driver_is_refused, set_up),
        cmocka_unit_test_setup(no_device_is_unavailable, set_up),
        cmocka_unit_test_setup(a_device_that_is_not_there_is_not_found, set_up),
        cmocka_unit_test_setup(the_device_says_what_it_is, set_up),
        cmocka_unit_test_setup(leave_gives_back_the_context_of_before, set_up),
        cmocka_unit_test_setup(an_event_is_done_when_the_stream_has_come_so_far, set_up),
        cmocka_unit_test_setup(memory_of_the_device_is_told_from_other_memory, set_up),
        cmocka_unit_test_setup(a_driver_is_looked_at_from_when_the_program_has_loaded_it, set_up),
        cmocka_unit_test_setup(a_driver_that_is_loaded_is_found_when_another_is_not, set_up),
    };

    return cmocka_run_group_tests_name("collective.cuda_driver", tests, NULL, NULL);
}
