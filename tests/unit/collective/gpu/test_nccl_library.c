/* NCCL by dlopen: versions, what each can do, what is refused. */
#include "gpu_stage.h"

#include "collective/gpu/nccl_library.h"

#include <string.h>

static void no_library_is_unavailable(void **state)
{
    struct muster_nccl *nccl = NULL;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_nccl_open(muster_mem_system(), "/nowhere/libnccl.so.2", &nccl, &error),
                     MUSTER_UNAVAILABLE);
    assert_non_null(strstr(error.text, "no NCCL: /nowhere/libnccl.so.2"));
}

static void below_2_18_is_refused(void **state)
{
    struct muster_nccl *nccl = NULL;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_nccl_open(muster_mem_system(), gpu_stage_nccl(21705), &nccl, &error),
                     MUSTER_UNIMPLEMENTED);
    assert_string_equal(error.text,
                        "NCCL's version code is 21705, at least 21800 (2.18.0) is needed");
}

static void each_version_can_do_what_it_exports(void **state)
{
    static const struct {
        int version;
        unsigned features;
    } rows[] = {
        {21800, 0}, /* the first that will do */
        {21803, 0},
        {22403, 0},
        {22705, MUSTER_NCCL_SHRINK | MUSTER_NCCL_NAMES},
        {22807,
         MUSTER_NCCL_SHRINK | MUSTER_NCCL_NAMES | MUSTER_NCCL_REVOKE | MUSTER_NCCL_ALL_TO_ALL},
        {22902, MUSTER_NCCL_SHRINK | MUSTER_NCCL_NAMES | MUSTER_NCCL_REVOKE |
                    MUSTER_NCCL_ALL_TO_ALL | MUSTER_NCCL_GROW},
        {23007, MUSTER_NCCL_SHRINK | MUSTER_NCCL_NAMES | MUSTER_NCCL_REVOKE |
                    MUSTER_NCCL_ALL_TO_ALL | MUSTER_NCCL_GROW},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_nccl *nccl = NULL;
        struct muster_error error;

        assert_int_equal(
            muster_nccl_open(muster_mem_system(), gpu_stage_nccl(rows[i].version), &nccl, &error),
            MUSTER_OK);
        assert_int_equal(muster_nccl_version(nccl), rows[i].version);
        if (muster_nccl_features(nccl) != rows[i].features)
            fail_msg("%d: features %u", rows[i].version, muster_nccl_features(nccl));
        muster_nccl_close(nccl);
    }
}

static void what_the_library_lacks_is_refused_by_name(void **state)
{
    static const enum muster_reduction bits[] = {MUSTER_AND, MUSTER_OR, MUSTER_XOR};
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(muster_nccl_check(MUSTER_DEVICE_ALL_REDUCE, MUSTER_I32, bits[i], &error),
                         MUSTER_UNIMPLEMENTED);
        assert_non_null(strstr(error.text, muster_reduction_name(bits[i])));
        assert_non_null(strstr(error.text, "sum, mean, min, max, prod"));
    }
    assert_int_equal(muster_nccl_check(MUSTER_DEVICE_REDUCE, MUSTER_BOOL, MUSTER_MAX, &error),
                     MUSTER_UNIMPLEMENTED);
    assert_int_equal(muster_nccl_check(MUSTER_DEVICE_REDUCE, MUSTER_U16, MUSTER_SUM, &error),
                     MUSTER_UNIMPLEMENTED);
    assert_non_null(strstr(error.text, "no u16"));
    assert_int_equal(muster_nccl_check(MUSTER_DEVICE_REDUCE, MUSTER_F8_E5M2, MUSTER_SUM, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_nccl_check(MUSTER_DEVICE_REDUCE, MUSTER_F32, MUSTER_AND, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(
        muster_nccl_check(MUSTER_DEVICE_BROADCAST, (enum muster_dtype)99, MUSTER_SUM, &error),
        MUSTER_INVALID_ARGUMENT);
}

static void every_number_can_be_reduced_and_everything_moved(void **state)
{
    static const enum muster_reduction reductions[] = {MUSTER_SUM, MUSTER_MEAN, MUSTER_MIN,
                                                       MUSTER_MAX, MUSTER_PROD};

    (void)state;
    for (enum muster_dtype dtype = MUSTER_F32; dtype <= MUSTER_F8_E5M2; dtype++) {
        assert_int_equal(muster_nccl_check(MUSTER_DEVICE_ALL_GATHER, dtype, MUSTER_AND, NULL),
                         MUSTER_OK);
        for (size_t i = 0; i < 5 && dtype < MUSTER_BOOL; i++)
            assert_int_equal(
                muster_nccl_check(MUSTER_DEVICE_ALL_REDUCE, dtype, reductions[i], NULL), MUSTER_OK);
    }
}

static void a_failure_has_the_text_of_the_library(void **state)
{
    struct gpu_knobs *knobs = *state;
    struct muster_nccl *nccl = NULL;
    struct muster_nccl_id id;
    struct muster_error error;

    assert_int_equal(
        muster_nccl_open(muster_mem_system(), gpu_stage_nccl(GPU_STAGE_VERSION), &nccl, &error),
        MUSTER_OK);
    knobs->nccl_set("id_fails", 1);
    assert_int_equal(muster_nccl_make_id(nccl, &id, &error), MUSTER_UNAVAILABLE);
    assert_string_equal(error.text, "unique id: NCCL error 2: unhandled system error");
    muster_nccl_close(nccl);
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
        cmocka_unit_test(no_library_is_unavailable),
        cmocka_unit_test(below_2_18_is_refused),
        cmocka_unit_test(each_version_can_do_what_it_exports),
        cmocka_unit_test(what_the_library_lacks_is_refused_by_name),
        cmocka_unit_test(every_number_can_be_reduced_and_everything_moved),
        cmocka_unit_test_setup(a_failure_has_the_text_of_the_library, set_up),
    };

    return cmocka_run_group_tests_name("collective.nccl_library", tests, NULL, NULL);
}
