/* The reason of a failure, for people: a code's, or the system's. */
#include "runtime/value/errno_reason.h"

#include <errno.h>

#include "test_env.h"

static void the_system_tells_why_where_a_code_does_not(void **state)
{
    (void)state;
    assert_string_equal(muster_errno_reason(MUSTER_INTERNAL, EIO), "Input/output error");
    assert_string_equal(muster_errno_reason(MUSTER_INTERNAL, ESTALE), "Stale file handle");
    assert_string_equal(muster_errno_reason(MUSTER_NOT_FOUND, ENOENT), "not found");
    assert_string_equal(muster_errno_reason(MUSTER_INTERNAL, 0), "internal error");
    assert_string_equal(muster_errno_reason(MUSTER_INTERNAL, 100000), "internal error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_system_tells_why_where_a_code_does_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
