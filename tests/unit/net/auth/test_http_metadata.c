/* Questions to the metadata server. */
#include "cloud_fixture.h"

#include <string.h>

#include "net/auth/http_metadata.h"

struct asker {
    struct muster_metadata_get get;
    int count;
    enum muster_rc rc;
    bool is_done;
};

static struct asker asker;

static int tear_down(void **state)
{
    muster_metadata_get_fini(&asker.get);
    return cloud_fixture_tear_down(state);
}

static void on_answer(struct muster_metadata_get *get, enum muster_rc rc)
{
    (void)get;
    asker.count++;
    asker.rc = rc;
    asker.is_done = true;
}

static enum muster_rc ask_value(struct cloud_fixture *fixture, const char *path)
{
    asker.count = 0;
    asker.is_done = false;
    assert_int_equal(muster_metadata_get_start(&asker.get, fixture->env, path,
                                               cloud_fixture_in_s(fixture, 30), on_answer),
                     MUSTER_OK);
    test_env_run_until(fixture->env, test_env_is_true, &asker.is_done);
    assert_int_equal(asker.count, 1);
    return asker.rc;
}

#define ANSWER(rest)                                                                               \
    "[{\"match\": {\"headers\": {\"Metadata-Flavor\": \"Google\"}, \"path\": "                     \
    "\"/computeMetadata/v1/instance/zone\"}, \"response\": {\"headers\": {\"Metadata-Flavor\": "   \
    "\"Google\"" rest

static void a_value_is_its_text(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture, ANSWER("}, \"body\": \"projects/1/zones/z\"}}]"));
    muster_metadata_get_init(&asker.get, NULL);

    assert_int_equal(ask_value(fixture, "instance/zone"), MUSTER_OK);
    assert_string_equal(asker.get.text, "projects/1/zones/z");
    assert_int_equal(asker.get.bytes, 18);
}

static void a_missing_value_is_not_found(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture, ANSWER("}, \"status\": 404}}]"));
    muster_metadata_get_init(&asker.get, NULL);

    assert_int_equal(ask_value(fixture, "instance/zone"), MUSTER_NOT_FOUND);
    assert_non_null(strstr(asker.get.error.text, "instance/zone"));
    assert_null(asker.get.text);
}

static void a_redirect_is_no_answer_of_a_metadata_server(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(
        fixture, "[{\"response\": {\"status\": 302, \"headers\": {\"Location\": \"/login\"}}}]");
    muster_metadata_get_init(&asker.get, NULL);

    assert_int_equal(ask_value(fixture, "instance/zone"), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(asker.get.error.text, "is not a metadata server"));
    assert_int_equal(cloud_fixture_request_count(fixture), 1);
}

static void an_unreachable_server_is_named_with_the_remedy(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_set_var(fixture, "GCE_METADATA_HOST", "127.0.0.1:1");
    muster_metadata_get_init(&asker.get, NULL);
    asker.get.call.retry.backoff_first_ns = 1;

    assert_int_equal(ask_value(fixture, "instance/zone"), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(asker.get.error.text, "127.0.0.1:1"));
    assert_non_null(strstr(asker.get.error.text, "GCE_METADATA_HOST"));
}

static void the_host_is_chosen_in_a_fixed_order(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_set_var(fixture, "GCE_METADATA_ROOT", "root");
    cloud_fixture_set_var(fixture, "GCE_METADATA_IP", "1.2.3.4");
    assert_string_equal(muster_metadata_host(fixture->env), fake_cloud_hostport(fixture->cloud));
    cloud_fixture_set_var(fixture, "GCE_METADATA_HOST", "");
    assert_string_equal(muster_metadata_host(fixture->env), "root");
    cloud_fixture_set_var(fixture, "GCE_METADATA_ROOT", NULL);
    assert_string_equal(muster_metadata_host(fixture->env), "1.2.3.4");
    cloud_fixture_set_var(fixture, "GCE_METADATA_IP", NULL);
    assert_string_equal(muster_metadata_host(fixture->env), "metadata.google.internal");
}

static void a_host_that_is_none_never_starts(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_set_var(fixture, "GCE_METADATA_HOST", "user@evil host");
    asker.count = 0;
    muster_metadata_get_init(&asker.get, NULL);
    assert_int_equal(
        muster_metadata_get_start(&asker.get, fixture->env, "x", UINT64_MAX, on_answer),
        MUSTER_INVALID_ARGUMENT);
    test_env_turn(fixture->env, 3);
    assert_int_equal(asker.count, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, cloud_fixture_set_up_metadata, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_value_is_its_text),
        T(a_missing_value_is_not_found),
        T(a_redirect_is_no_answer_of_a_metadata_server),
        T(an_unreachable_server_is_named_with_the_remedy),
        T(the_host_is_chosen_in_a_fixed_order),
        T(a_host_that_is_none_never_starts),
    };

    return cmocka_run_group_tests_name("http metadata", tests, NULL, NULL);
}
