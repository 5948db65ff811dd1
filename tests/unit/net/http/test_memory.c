/* Calls whose answer may be "as before": ETags, 304, and what is not remembered. */
#include "net/http/memory.h"

#include "cloud_fixture.h"

#include <stdio.h>
#include <string.h>

#define TAGGED(tag, body)                                                                          \
    "{\"times\":1,\"response\":{\"headers\":{\"ETag\":\"" tag "\"},\"body\":\"" body "\"}}"
#define AS_BEFORE(tag)                                                                             \
    "{\"match\":{\"headers\":{\"if-none-match\":\"" tag "\"}},\"response\":{\"status\":304}}"

static struct muster_http_memory memory;

static int set_up(void **state)
{
    static struct cloud_fixture fixture;

    cloud_fixture_open(&fixture, NULL);
    muster_http_memory_init(&memory, fixture.env->mem);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    muster_http_memory_fini(&memory);
    cloud_fixture_close(*state);
    return 0;
}

/* Ask for path; gives the body until the next call. */
static const char *ask_for(struct cloud_fixture *fixture, const char *path)
{
    static char body[256];
    struct cloud_caller caller;

    cloud_caller_init(fixture, &caller, path);
    caller.call.memory = &memory;
    if (cloud_caller_run(fixture, &caller) == MUSTER_OK)
        snprintf(body, sizeof(body), "%d %s", caller.call.request.status,
                 caller.call.request.answer);
    else
        snprintf(body, sizeof(body), "%s", caller.call.request.error.text);
    muster_http_call_fini(&caller.call);
    return body;
}

static const char *asked_about(struct cloud_fixture *fixture, size_t index)
{
    return fake_cloud_request_header(fake_cloud_request(fixture->cloud, index), "if-none-match");
}

static void an_answer_as_before_is_given_from_memory(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture, "[" TAGGED("W/1", "first") "," AS_BEFORE("W/1") "]");

    assert_string_equal(ask_for(fixture, "/a"), "200 first");
    assert_string_equal(ask_for(fixture, "/a"), "200 first");
    assert_string_equal(ask_for(fixture, "/a"), "200 first");
    assert_null(asked_about(fixture, 0));
    assert_string_equal(asked_about(fixture, 1), "W/1");
    assert_string_equal(asked_about(fixture, 2), "W/1");
}

static void another_answer_takes_the_place_of_the_old_one(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture, "[" TAGGED("1", "first") "," TAGGED("2", "other") "," AS_BEFORE(
                                      "2") "]");

    assert_string_equal(ask_for(fixture, "/a"), "200 first");
    assert_string_equal(ask_for(fixture, "/a"), "200 other");
    assert_string_equal(ask_for(fixture, "/a"), "200 other");
    assert_string_equal(asked_about(fixture, 2), "2");
}

static void each_url_has_an_answer_of_its_own(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture, "[" TAGGED("1", "of a") "," TAGGED("2", "of b") "," AS_BEFORE(
                                      "1") "," AS_BEFORE("2") "]");

    assert_string_equal(ask_for(fixture, "/a"), "200 of a");
    assert_string_equal(ask_for(fixture, "/b"), "200 of b");
    assert_string_equal(ask_for(fixture, "/a"), "200 of a");
    assert_string_equal(ask_for(fixture, "/b"), "200 of b");
}

static void a_failure_makes_the_answer_forgotten(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture, "[" TAGGED("1", "first") ",{\"response\":{\"status\":404,"
                                                           "\"body\":\"gone\"}}]");

    assert_string_equal(ask_for(fixture, "/a"), "200 first");
    assert_string_equal(ask_for(fixture, "/a"), "404 gone");
    assert_string_equal(ask_for(fixture, "/a"), "404 gone");
    assert_string_equal(asked_about(fixture, 1), "1");
    assert_null(asked_about(fixture, 2));
}

static void an_answer_without_a_tag_is_asked_for_in_full(void **state)
{
    struct cloud_fixture *fixture = *state;

    fake_cloud_say(fixture->cloud, "GET", "/a", 200, "plain");

    assert_string_equal(ask_for(fixture, "/a"), "200 plain");
    assert_string_equal(ask_for(fixture, "/a"), "200 plain");
    assert_null(asked_about(fixture, 1));
    assert_int_equal(memory.count, 0);
}

static void as_before_to_what_was_not_asked_is_an_error(void **state)
{
    struct cloud_fixture *fixture = *state;

    fake_cloud_say(fixture->cloud, "GET", "/a", 304, NULL);

    assert_non_null(strstr(ask_for(fixture, "/a"), "was not asked"));
}

static void a_token_and_the_question_go_together(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_credentials *credentials = NULL;
    struct muster_http_header header = {"X-Own", "kept"};
    struct cloud_caller caller;
    struct muster_error error;

    cloud_fixture_script(fixture, "[" TAGGED("1", "first") "," AS_BEFORE("1") "]");
    assert_int_equal(
        muster_credentials_bearer_open(fixture->env, "t0ken", &credentials, &error), MUSTER_OK);
    cloud_caller_init(fixture, &caller, "/a");
    caller.call.memory = &memory;
    caller.call.credentials = credentials;
    caller.call.request.headers = &header;
    caller.call.request.header_count = 1;
    for (unsigned i = 0; i < 2; i++) {
        const struct fake_cloud_request *request;

        assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
        assert_string_equal(caller.call.request.answer, "first");
        request = fake_cloud_request(fixture->cloud, i);
        assert_string_equal(fake_cloud_request_header(request, "authorization"), "Bearer t0ken");
        assert_string_equal(fake_cloud_request_header(request, "x-own"), "kept");
    }
    assert_string_equal(asked_about(fixture, 1), "1");

    muster_http_call_fini(&caller.call);
    muster_credentials_close(credentials, NULL);
    test_env_turn(fixture->env, 3);
}

static void memory_has_a_bound(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request request = {.status = 200};
    char url[64], header[] = "etag\0tag";

    (void)fixture;
    request.header_text = header;
    request.header_text_bytes = sizeof(header);
    request.answer = "body";
    request.answer_bytes = 4;
    request.url = url;
    for (unsigned i = 0; i < MUSTER_HTTP_MEMORY_ANSWERS_MAX + 10; i++) {
        snprintf(url, sizeof(url), "http://h/%u", i);
        assert_int_equal(muster_http_memory_take(&memory, &request), MUSTER_OK);
    }

    assert_int_equal(memory.count, MUSTER_HTTP_MEMORY_ANSWERS_MAX);
    assert_null(muster_http_memory_etag(&memory, "http://h/9"));
    assert_string_equal(muster_http_memory_etag(&memory, "http://h/10"), "tag");
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(an_answer_as_before_is_given_from_memory),
        T(another_answer_takes_the_place_of_the_old_one),
        T(each_url_has_an_answer_of_its_own),
        T(a_failure_makes_the_answer_forgotten),
        T(an_answer_without_a_tag_is_asked_for_in_full),
        T(as_before_to_what_was_not_asked_is_an_error),
        T(a_token_and_the_question_go_together),
        T(memory_has_a_bound),
    };

    return cmocka_run_group_tests_name("http memory", tests, NULL, NULL);
}
