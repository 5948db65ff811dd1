/* The text of a server's failure says who was asked, what went wrong and what helps. */
#include "net/http/failure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct muster_http_remedies remedies = {.refused = "log in",
                                                    .forbidden = "ask for the role",
                                                    .missing = "is it there?",
                                                    .untrusted = "trust it",
                                                    .unreachable = "is it up?",
                                                    .malformed = "is it one?"};
static char url[] = "http://h:1/path?token=hush";

static struct muster_http_call call_of(int status)
{
    struct muster_http_call call;

    muster_http_call_init(&call, NULL);
    call.request.current_url = url;
    call.request.current_method = "GET";
    call.request.status = status;
    return call;
}

static void each_kind_of_failure_has_its_remedy(void **state)
{
    static const struct {
        int status;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {401, MUSTER_UNAUTHENTICATED, "GET http://h:1/path: why; log in"},
        {0, MUSTER_UNAUTHENTICATED, "GET http://h:1/path: why; trust it"},
        {403, MUSTER_PERMISSION_DENIED, "GET http://h:1/path: why; ask for the role"},
        {404, MUSTER_NOT_FOUND, "GET http://h:1/path: why; is it there?"},
        {0, MUSTER_UNAVAILABLE, "GET http://h:1/path: why; is it up?"},
        {200, MUSTER_DEADLINE_EXCEEDED, "GET http://h:1/path: why; is it up?"},
        {503, MUSTER_UNAVAILABLE, "GET http://h:1/path: why; try again later"},
        {500, MUSTER_INTERNAL, "GET http://h:1/path: why; try again later"},
        {429, MUSTER_RESOURCE_EXHAUSTED, "GET http://h:1/path: why; try again later"},
        {200, MUSTER_RESOURCE_EXHAUSTED, "GET http://h:1/path: why; is it one?"},
        {200, MUSTER_INVALID_ARGUMENT, "GET http://h:1/path: why; is it one?"},
        {0, MUSTER_FAILED_PRECONDITION, "GET http://h:1/path: why; mend that file"},
        {307, MUSTER_FAILED_PRECONDITION,
         "GET http://h:1/path: why; name the address that it leads to, if you trust it"},
        {0, MUSTER_CANCELLED, "why"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_http_call call = call_of(rows[i].status);
        struct muster_error error = {.rc = rows[i].rc, .text = "why"};

        muster_http_failure_explain(&call, &remedies, &error);

        assert_string_equal(error.text, rows[i].text);
        assert_int_equal(error.rc, rows[i].rc);
    }
}

static void a_long_text_is_cut_before_its_remedy(void **state)
{
    struct muster_http_call call = call_of(200);
    struct muster_error error = {.rc = MUSTER_INVALID_ARGUMENT};
    (void)state;

    memset(error.text, 'x', sizeof(error.text) - 1);
    muster_http_failure_explain(&call, &remedies, &error);

    assert_int_equal(strlen(error.text), sizeof(error.text) - 1);
    assert_non_null(strstr(error.text, "GET http://h:1/path: xxx"));
    assert_non_null(strstr(error.text, "xxx; is it one?"));
}

static void a_text_that_names_its_server_is_not_given_it_twice(void **state)
{
    struct muster_http_call call = call_of(404);
    struct muster_error error = {.rc = MUSTER_NOT_FOUND, .text = "GET http://h:1/x: status 404"};
    (void)state;

    muster_http_failure_explain(&call, &remedies, &error);

    assert_string_equal(error.text, "GET http://h:1/x: status 404; is it there?");
}

static void a_failure_of_the_credentials_stays_as_it_is(void **state)
{
    struct muster_http_call call = call_of(401);
    struct muster_error error = {.rc = MUSTER_UNAUTHENTICATED, .text = "file f: refused; log in"};
    (void)state;

    call.is_token_missing = true;
    muster_http_failure_explain(&call, &remedies, &error);

    assert_string_equal(error.text, "file f: refused; log in");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_failure_has_its_remedy),
        cmocka_unit_test(a_long_text_is_cut_before_its_remedy),
        cmocka_unit_test(a_text_that_names_its_server_is_not_given_it_twice),
        cmocka_unit_test(a_failure_of_the_credentials_stays_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
