/* Which file with the certificates of public authorities is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "net/tls/roots.h"
#include "tests/lib/assertion_count.h"

static void the_first_that_can_be_read_is_taken(void **state)
{
    static const char *const files[] = {"/nowhere/a.crt", "/etc/passwd", "/etc/group", NULL};
    static const char *const none[] = {"/nowhere/a.crt", "/nowhere/b.crt", NULL};

    (void)state;

    assert_string_equal(muster_tls_roots_first(files), "/etc/passwd");
    assert_null(muster_tls_roots_first(none));
    assert_null(muster_tls_roots_first(none + 2));
}

static void the_built_in_file_comes_before_those_of_other_distributions(void **state)
{
    (void)state;

    assert_string_equal(muster_tls_roots_find("/etc/passwd"), "/etc/passwd");
}

static void another_distributions_file_is_found_by_a_library_that_was_built_elsewhere(void **state)
{
    const char *found = muster_tls_roots_find("/nowhere/ca.crt");

    (void)state;

    /* A system without any certificates has none; this one's are what no path at all gives, too. */
    assert_true(found == NULL || strncmp(found, "/etc/", 5) == 0);
    assert_true(found == muster_tls_roots_find(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_can_be_read_is_taken),
        cmocka_unit_test(the_built_in_file_comes_before_those_of_other_distributions),
        cmocka_unit_test(another_distributions_file_is_found_by_a_library_that_was_built_elsewhere),
    };

    return cmocka_run_group_tests_name("roots", tests, NULL, NULL);
}
