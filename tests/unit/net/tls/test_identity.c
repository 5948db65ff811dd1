/* Names of certificates against patterns. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include <muster/tls.h>

#include "tests/lib/assertion_count.h"

static const char *const dns[] = {"a.test", "b.test"};
static const struct muster_identity task = {.spiffe_id = "spiffe://t/job/1/task/2",
                                            .dns_names = dns,
                                            .dns_name_count = 2,
                                            .subject = "CN=x"},
                                    host = {.dns_names = dns,
                                            .dns_name_count = 2,
                                            .subject = "CN=x"},
                                    bare = {.subject = "CN=x"}, nameless = {.subject = ""};

static void patterns_match_names(void **state)
{
    static const struct {
        const struct muster_identity *identity; /* NULL: no certificate */
        const char *pattern;
        bool is_match;
    } rows[] = {
        {&task, "spiffe://t/job/1/task/2", true},
        {&task, "spiffe://t/job/1/task/", false},
        {&task, "spiffe://t/job/1/task/22", false},
        {&task, "spiffe://t/job/1/task/3", false},
        {&task, "Spiffe://t/job/1/task/2", false},
        {&task, "spiffe://t/job/1/*", true},
        {&task, "spiffe://t/job/2/*", false},
        {&task, "spiffe://t/job/1/task/2*", true},
        {&task, "spiffe://t/job/1/task/2/*", false},
        {&task, "*", true},
        {&task, "*/task/2", true},
        {&task, "*/task/3", false},
        {&task, "*spiffe://t/job/1/task/2", true},
        {&task, "*xspiffe://t/job/1/task/2", false},
        {&task, "spiffe://*/task/2", false}, /* a star in the middle is one */
        {&task, "", false},
        {&task, "a.test", false}, /* the SPIFFE id alone counts */
        {&task, "CN=x", false},
        {&host, "a.test", true},
        {&host, "B.test", true},
        {&host, "*.TEST", true},
        {&host, "b.*", true},
        {&host, "c.test", false},
        {&host, "CN=x", false}, /* the DNS names alone count */
        {&host, "CN*", false},
        {&bare, "CN=x", true},
        {&bare, "cn=x", false},
        {&bare, "", false},
        {&nameless, "", true},
        {&nameless, "*", true},
        {NULL, "*", false},
        {NULL, "nobody", false},
        {NULL, "", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(muster_identity_matches(rows[i].identity, rows[i].pattern) != rows[i].is_match,
                "%s and \"%s\"", muster_identity_name(rows[i].identity), rows[i].pattern);
}

static void an_identity_goes_by_its_strongest_name(void **state)
{
    (void)state;
    assert_string_equal(muster_identity_name(&task), "spiffe://t/job/1/task/2");
    assert_string_equal(muster_identity_name(&host), "a.test");
    assert_string_equal(muster_identity_name(&bare), "CN=x");
    assert_string_equal(muster_identity_name(NULL), "nobody");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_names),
        cmocka_unit_test(an_identity_goes_by_its_strongest_name),
    };

    return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
