/* Names of jobs. */
#include <muster/incarnation.h>

#include "test_env.h"

#include <string.h>

#define LONGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"

static const struct {
    const char *name, *text; /* text NULL: it is taken */
} rows[] = {
    {"j", NULL},
    {"a job, \"quoted\" \xc3\xa9\xe2\x82\xac", NULL},
    {LONGEST, NULL},
    {LONGEST "f", "must have 1 to 63 bytes, got 64: \"0"},
    {"\t" LONGEST, "got 64: \"...\""},
    {"a job \n" LONGEST, "got 70: \"a job ...\""},
    {LONGEST LONGEST, "got 126: \"0123456789abcdef0123456789abcdef01234567...\""},
    {"", "must have 1 to 63 bytes, got 0"},
    {"a/b", "must not have a '/', got \"a/b\""},
    {"a\tc", "got byte 0x09 behind \"a\""},
    {"x\ny", "got byte 0x0a behind \"x\""},
    {"\x01", "got byte 0x01 behind \"\""},
    {"del\x7f", "got byte 0x7f behind \"del\""},
    {"\xff\xfe", "must be UTF-8 without control characters, got byte 0xff behind \"\""},
    {"cut\xe2\x82", "got byte 0xe2 behind \"cut\""},
};

static void a_name_is_taken_or_its_culprit_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc = muster_job_name_check(rows[i].name, &error);

        if (rows[i].text == NULL)
            assert_int_equal(rc, MUSTER_OK);
        else if (rc != MUSTER_INVALID_ARGUMENT || strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: %d, %s", rows[i].name, rc, error.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_taken_or_its_culprit_named),
    };

    return cmocka_run_group_tests_name("runtime.value.job_name", tests, NULL, NULL);
}
