/* The kinds of events, and how one is found by its name. */
#include "test_env.h"

#include <string.h>

#include <muster/trace.h>

static void every_kind_is_found_by_its_name_alone(void **state)
{
    static const char *const others[] = {"", "begin", "begin_waited_", "nothing"};
    size_t count = 0;
    const struct muster_trace_kind *kinds = muster_trace_kinds(&count);

    (void)state;
    assert_int_equal(count, 19);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(muster_trace_kind_find(kinds[i].name), &kinds[i]);
        for (size_t j = 0; j < 3; j++)
            assert_non_null(kinds[i].numbers[j]);
        assert_non_null(kinds[i].text);
        assert_true(strlen(kinds[i].meaning) > 0);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_null(muster_trace_kind_find(others[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_found_by_its_name_alone),
    };

    return cmocka_run_group_tests_name("trace_kinds", tests, NULL, NULL);
}
