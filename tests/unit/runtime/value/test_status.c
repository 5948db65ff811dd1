/* Status codes: their names and texts, the errno that they stand for, and errors by value. */
#include "assertion_count.h"
#include "test_env.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include <muster/status.h>

static void every_code_has_its_name_and_text(void **state)
{
    static const char *const rows[][2] = {
        {"OK", "ok"},
        {"CANCELLED", "cancelled"},
        {"UNKNOWN", "unknown error"},
        {"INVALID_ARGUMENT", "invalid argument"},
        {"DEADLINE_EXCEEDED", "deadline exceeded"},
        {"NOT_FOUND", "not found"},
        {"ALREADY_EXISTS", "already exists"},
        {"PERMISSION_DENIED", "permission denied"},
        {"RESOURCE_EXHAUSTED", "resource exhausted"},
        {"FAILED_PRECONDITION", "failed precondition"},
        {"ABORTED", "aborted"},
        {"OUT_OF_RANGE", "out of range"},
        {"UNIMPLEMENTED", "not implemented"},
        {"INTERNAL", "internal error"},
        {"UNAVAILABLE", "unavailable"},
        {"DATA_LOSS", "data loss"},
        {"UNAUTHENTICATED", "unauthenticated"},
        {"UNKNOWN", "unknown error"}, /* out of range */
    };

    (void)state;
    for (int i = 0; i < (int)(sizeof(rows) / sizeof(rows[0])); i++) {
        assert_string_equal(muster_rc_name((enum muster_rc)i), rows[i][0]);
        assert_string_equal(muster_rc_text((enum muster_rc)i), rows[i][1]);
    }
}

static void every_errno_has_its_code(void **state)
{
    static const struct {
        enum muster_rc rc;
        int sys[12]; /* ends with 0 */
    } rows[] = {
        {MUSTER_CANCELLED, {ECANCELED}},
        {MUSTER_INVALID_ARGUMENT, {EINVAL, EAFNOSUPPORT, EISDIR, ENAMETOOLONG}},
        {MUSTER_UNAVAILABLE,
         {ETIMEDOUT, ECONNREFUSED, ECONNRESET, ECONNABORTED, EPIPE, ENETUNREACH, EHOSTUNREACH,
          ENETDOWN, EHOSTDOWN, ENOTCONN}},
        {MUSTER_NOT_FOUND, {ENOENT, ESRCH, ENOTDIR}},
        {MUSTER_ALREADY_EXISTS, {EEXIST, EADDRINUSE}},
        {MUSTER_PERMISSION_DENIED, {EACCES, EPERM, EROFS}},
        {MUSTER_RESOURCE_EXHAUSTED, {ENOMEM, EMFILE, ENFILE, ENOBUFS, ENOSPC, EDQUOT, EFBIG}},
        {MUSTER_UNIMPLEMENTED, {ENOSYS, EOPNOTSUPP}},
        {MUSTER_FAILED_PRECONDITION, {EADDRNOTAVAIL}},
        {MUSTER_INTERNAL, {EIO, EBADF, EINTR, EDOM, -1}},
    };

    (void)state;
    assert_int_equal(muster_rc_from_errno(0), MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (const int *sys = rows[i].sys; *sys != 0; sys++)
            assert_int_equal(muster_rc_from_errno(*sys), rows[i].rc);
}

/* An error with a byte behind it that must stay. */
struct guarded {
    struct muster_error error;
    char after;
};

static void an_error_holds_its_code_and_text_cut_to_fit(void **state)
{
    struct guarded guarded = {.error = {.sys = 7}, .after = 'x'};
    char longest[MUSTER_ERROR_TEXT_BYTES + 10];

    (void)state;
    assert_int_equal(muster_error_set(&guarded.error, MUSTER_ABORTED, "%s at %d", "view", 3),
                     MUSTER_ABORTED);
    assert_int_equal(guarded.error.rc, MUSTER_ABORTED);
    assert_int_equal(guarded.error.sys, 0);
    assert_string_equal(guarded.error.text, "view at 3");
    assert_int_equal(muster_error_set(NULL, MUSTER_DATA_LOSS, "%d", 3), MUSTER_DATA_LOSS);

    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(muster_error_set(&guarded.error, MUSTER_INTERNAL, "%s", longest),
                     MUSTER_INTERNAL);
    assert_int_equal(strlen(guarded.error.text), MUSTER_ERROR_TEXT_BYTES - 1);
    assert_int_equal(guarded.after, 'x');

    /* Text that the C library refuses to write is none. */
    assert_int_equal(muster_error_set(&guarded.error, MUSTER_INTERNAL, "a%ls", L"\x7fffffff"),
                     MUSTER_INTERNAL);
    assert_string_equal(guarded.error.text, "");
}

static void an_error_of_the_system_says_its_reason(void **state)
{
    struct guarded guarded = {.error = {.sys = 7}, .after = 'x'};
    char longest[MUSTER_ERROR_TEXT_BYTES - 5];

    (void)state;
    assert_int_equal(muster_error_set_sys(&guarded.error, MUSTER_NOT_FOUND, ENOENT, "%s", "/x"),
                     MUSTER_NOT_FOUND);
    assert_int_equal(guarded.error.rc, MUSTER_NOT_FOUND);
    assert_int_equal(guarded.error.sys, ENOENT);
    assert_string_equal(guarded.error.text, "/x: No such file or directory");
    assert_int_equal(muster_error_set_sys(NULL, MUSTER_NOT_FOUND, ENOENT, "%s", "/x"),
                     MUSTER_NOT_FOUND);

    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(muster_error_set_sys(&guarded.error, MUSTER_INTERNAL, EIO, "%s", longest),
                     MUSTER_INTERNAL);
    assert_int_equal(strlen(guarded.error.text), MUSTER_ERROR_TEXT_BYTES - 1);
    assert_string_equal(guarded.error.text + strlen(longest), ": Inp");
    assert_int_equal(guarded.after, 'x');
}

static void file_limit_set(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The other cause is the largest file of a file system. */
static void the_limit_of_file_sizes_is_named_where_there_is_one(void **state)
{
    struct muster_error error;
    struct rlimit before;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    if (before.rlim_max != RLIM_INFINITY)
        skip_with_reason("the sizes of files are limited here (ulimit -f)");

    file_limit_set(RLIM_INFINITY);
    (void)muster_error_set_sys(&error, MUSTER_RESOURCE_EXHAUSTED, EFBIG, "%s", "/x");
    assert_string_equal(error.text, "/x: File too large");

    file_limit_set(1 << 20);
    (void)muster_error_set_sys(&error, MUSTER_RESOURCE_EXHAUSTED, EFBIG, "%s", "/x");
    assert_string_equal(error.text,
                        "/x: File too large; raise the limit of file sizes (ulimit -f)");
    (void)muster_error_set_sys(&error, MUSTER_RESOURCE_EXHAUSTED, ENOSPC, "%s", "/x");
    assert_string_equal(error.text, "/x: No space left on device");
    file_limit_set(before.rlim_cur);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_name_and_text),
        cmocka_unit_test(every_errno_has_its_code),
        cmocka_unit_test(an_error_holds_its_code_and_text_cut_to_fit),
        cmocka_unit_test(an_error_of_the_system_says_its_reason),
        cmocka_unit_test(the_limit_of_file_sizes_is_named_where_there_is_one),
    };

    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
