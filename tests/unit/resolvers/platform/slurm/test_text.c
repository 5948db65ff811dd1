/* Tasks per node, and GPUs in variables and in what a tool prints. */
#include "resolvers/platform/slurm/text.h"

#include "test_env.h"

#include <string.h>

static void counts_are_repeated(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *text, *counts;
    } rows[] = {
        {"1", "1"}, {"2(x3),1", "2 2 2 1"}, {"2,1(x3)", "2 1 1 1"}, {"0", "0"}, {"7(x0),3", "3"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t *counts = NULL;
        size_t count = 0;
        char text[40] = "";

        assert_int_equal(
            muster_slurm_counts_parse(test->env.mem, rows[i].text, &counts, &count, NULL),
            MUSTER_OK);
        for (size_t k = 0; k < count; k++)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%u", k > 0 ? " " : "",
                     counts[k]);
        assert_string_equal(text, rows[i].counts);
        muster_mem_free(test->env.mem, counts);
    }
}

static void bad_counts_are_refused(void **state)
{
    struct test_env *test = *state;
    static const char *const texts[] = {"",       "1x2", "2(x",       "2(x3",        "2(3)",
                                        "a",      "1,",  ",1",        "-1",          "65536",
                                        "1(x-1)", " 1",  "1(x65537)", "1(x65536),1", "99999999999"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct muster_error error = {0};
        uint32_t *counts = NULL;
        size_t count = 0;

        assert_int_equal(
            muster_slurm_counts_parse(test->env.mem, texts[i], &counts, &count, &error),
            MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "2(x3),1"));
    }
}

static void cuda_sees_the_devices_in_front_of_the_first_that_is_none(void **state)
{
    static const struct {
        const char *text;
        uint32_t count;
    } rows[] = {
        {"", 0},          {"0", 1},          {"4,5,6,7", 4},         {"-1", 0},
        {"0,-1,1", 1},    {"NoDevFiles", 0}, {"GPU-1f2e,GPU-77", 2}, {"0, 1", 2},
        {"MIG-a/1/2", 1}, {"0,,1", 1},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_cuda_devices_count(rows[i].text), rows[i].count);
}

static void slurm_lists_devices_as_ranges(void **state)
{
    static const char *const bad[] = {"", "a", "1-", "3-1", "0,", "0;1", "0-99999"};
    uint32_t count = 77;
    (void)state;

    assert_true(muster_slurm_gpus_count("0", &count));
    assert_int_equal(count, 1);
    assert_true(muster_slurm_gpus_count("0,2-3,7", &count));
    assert_int_equal(count, 4);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(muster_slurm_gpus_count(bad[i], &count));
}

static void lines_that_begin_with_gpu_are_counted(void **state)
{
    (void)state;

    assert_int_equal(muster_gpu_lines_count("GPU 0: NVIDIA H100 (UUID: GPU-1)\n"
                                            "  MIG 1g.10gb Device 0: (UUID: MIG-2)\n"
                                            "GPU 1: NVIDIA H100 (UUID: GPU-3)\n"),
                     2);
    assert_int_equal(muster_gpu_lines_count("No devices found.\n"), 0);
    assert_int_equal(muster_gpu_lines_count(""), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(counts_are_repeated),
        CASE(bad_counts_are_refused),
        cmocka_unit_test(cuda_sees_the_devices_in_front_of_the_first_that_is_none),
        cmocka_unit_test(slurm_lists_devices_as_ranges),
        cmocka_unit_test(lines_that_begin_with_gpu_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
