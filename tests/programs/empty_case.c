/* For integration.cases: one case that asserts something, one that asserts nothing, one that is skipped. */
#include "assertion_count.h"
#include "test_env.h"

static void case_asserts_something(void **state)
{
    (void)state;
    assert_int_equal(1, 1);
}

static void case_asserts_nothing(void **state)
{
    struct test_env test;

    (void)state;
    test_env_open(&test);
    test_env_close(&test);
}

static void case_is_skipped(void **state)
{
    (void)state;
    skip_with_reason("this case is always skipped");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_asserts_something),
        cmocka_unit_test(case_asserts_nothing),
        cmocka_unit_test(case_is_skipped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
