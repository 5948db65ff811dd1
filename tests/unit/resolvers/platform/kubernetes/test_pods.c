/* PodList pages and watch events. */
#include "resolvers/platform/kubernetes/pods.h"

#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

static enum muster_rc add_page(struct muster_kubernetes_pods *pods, const char *text,
                               struct muster_error *error)
{
    return muster_kubernetes_pods_add_page(pods, text, strlen(text), error);
}

static void pages_add_up_and_are_sorted_by_name(void **state)
{
    struct test_env *test = *state;
    static const char first[] =
        "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"7\",\"continue\":\"m\"},"
        "\"items\":[{\"metadata\":{\"name\":\"b-2\",\"namespace\":\"x\"},"
        "\"status\":{\"phase\":\"Running\",\"hostIP\":\"10.0.0.2\",\"podIP\":\"fd00::2\"}},"
        "{\"metadata\":{\"name\":\"b-10\",\"namespace\":\"y\"},\"status\":{}}]}";
    static const char second[] = "{\"metadata\":{\"resourceVersion\":\"8\"},\"items\":["
                                 "{\"metadata\":{\"name\":\"b-10\",\"namespace\":\"a\"}}]}";
    struct muster_kubernetes_pods pods;
    struct muster_error error = {0};

    muster_kubernetes_pods_init(&pods, test->env.mem);

    assert_int_equal(add_page(&pods, first, &error), MUSTER_OK);
    assert_string_equal(pods.continue_mark, "m");
    assert_int_equal(add_page(&pods, second, &error), MUSTER_OK);
    muster_kubernetes_pods_sort(&pods);

    assert_int_equal(pods.count, 3);
    assert_string_equal(pods.continue_mark, "");
    assert_string_equal(pods.resource_version, "8");
    assert_string_equal(pods.pods[0].name_space, "a");
    assert_string_equal(pods.pods[1].name, "b-10");
    assert_string_equal(pods.pods[1].phase, "");
    assert_string_equal(pods.pods[2].host_ip, "10.0.0.2");
    assert_string_equal(pods.pods[2].pod_ip, "fd00::2");
    muster_kubernetes_pods_fini(&pods);
}

static void an_empty_list_has_no_pods(void **state)
{
    struct test_env *test = *state;
    struct muster_kubernetes_pods pods;
    struct muster_error error = {0};

    muster_kubernetes_pods_init(&pods, test->env.mem);

    assert_int_equal(add_page(&pods, "{\"metadata\":{},\"items\":[]}", &error), MUSTER_OK);

    assert_int_equal(pods.count, 0);
    muster_kubernetes_pods_fini(&pods);
}

static void what_is_no_list_is_refused(void **state)
{
    struct test_env *test = *state;
    static const char *const rows[] = {
        "",
        "<html>",
        "[]",
        "{}",
        "{\"items\":{}}",
        "{\"metadata\":{},\"items\":null}",
        "{\"metadata\":{}}",
        "{\"items\":[{}]}",
        "{\"items\":[{\"metadata\":{\"name\":7}}]}",
        "{\"items\":[{\"metadata\":{\"name\":\"\"}}]}",
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_kubernetes_pods pods;
        struct muster_error error = {0};

        muster_kubernetes_pods_init(&pods, test->env.mem);
        fail_if(add_page(&pods, rows[i], &error) != MUSTER_INVALID_ARGUMENT ||
                    error.text[0] == '\0',
                "'%s': %s", rows[i], error.text);
        muster_kubernetes_pods_fini(&pods);
    }
}

static void events_tell_their_kind_and_version(void **state)
{
    static const struct {
        const char *text;
        enum muster_rc rc;
        enum muster_kubernetes_event_kind kind;
        const char *version;
    } rows[] = {
        {"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}", MUSTER_OK,
         MUSTER_KUBERNETES_EVENT_CHANGE, "9"},
        {"{\"type\":\"DELETED\",\"object\":{}}", MUSTER_OK, MUSTER_KUBERNETES_EVENT_CHANGE, ""},
        {"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\"}}}",
         MUSTER_OK, MUSTER_KUBERNETES_EVENT_BOOKMARK, "12"},
        {"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}", MUSTER_OK,
         MUSTER_KUBERNETES_EVENT_EXPIRED, ""},
        {"{\"type\":\"ERROR\",\"object\":{\"code\":500}}", MUSTER_OK,
         MUSTER_KUBERNETES_EVENT_FAILURE, ""},
        {"{\"type\":\"NEWS\"}", MUSTER_INVALID_ARGUMENT, 0, ""},
        {"{\"type\":", MUSTER_INVALID_ARGUMENT, 0, ""},
        {"17", MUSTER_INVALID_ARGUMENT, 0, ""},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_kubernetes_event event;
        enum muster_rc rc =
            muster_kubernetes_event_parse(rows[i].text, strlen(rows[i].text), &event, NULL);

        assert_int_equal(rc, rows[i].rc);
        if (rc != MUSTER_OK)
            continue;
        assert_int_equal(event.kind, rows[i].kind);
        assert_string_equal(event.resource_version, rows[i].version);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pages_add_up_and_are_sorted_by_name),
        CASE(an_empty_list_has_no_pods),
        CASE(what_is_no_list_is_refused),
        cmocka_unit_test(events_tell_their_kind_and_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
