/* SM_HOSTS as a cluster and a task. */
#include "resolvers/platform/plain/sagemaker_hosts.h"

#include "test_env.h"

#include <string.h>

static void hosts_are_sorted_and_the_current_one_is_the_task(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *hosts, *current, *config;
    } rows[] = {
        {"[\"b\",\"a\"]", "b",
         "{\"cluster\":{\"worker\":[\"a:7\",\"b:7\"]},\"task\":{\"type\":\"worker\",\"index\":1}}"},
        {"[\"n10\",\"n9\"]", "n9",
         "{\"cluster\":{\"worker\":[\"n10:7\",\"n9:7\"]},\"task\":{\"type\":\"worker\",\"index\":1}"
         "}"},
        {"[\"a\"]", "other", "{}"},
        {"[]", "a", "{}"},
        {"", "a", "{}"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_sagemaker_hosts hosts = {rows[i].hosts, rows[i].current, 7};
        struct muster_json *config = NULL;
        char *text = NULL;

        assert_int_equal(muster_sagemaker_hosts_parse(test->env.mem, &hosts, &config, NULL),
                         MUSTER_OK);
        assert_int_equal(muster_json_format(config, false, test->env.mem, &text), MUSTER_OK);
        assert_string_equal(text, rows[i].config);
        muster_mem_free(test->env.mem, text);
        muster_json_free(config);
    }
}

static void what_is_no_list_of_names_is_refused(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *hosts, *text;
    } rows[] = {
        {"[a]", "SM_HOSTS: bad JSON at line 1"},
        {"{}", "SM_HOSTS must be a list of host names, got object"},
        {"\"a\"", "SM_HOSTS must be a list of host names, got text"},
        {"[\"a\", 3]", "SM_HOSTS[1]"},
        {"[\"\"]", "SM_HOSTS[0]"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_sagemaker_hosts hosts = {rows[i].hosts, "a", 7};
        struct muster_json *config = NULL;
        struct muster_error error = {0};

        assert_int_equal(muster_sagemaker_hosts_parse(test->env.mem, &hosts, &config, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].text) == NULL)
            fail_msg("'%s' does not hold '%s'", error.text, rows[i].text);
        assert_null(config);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(hosts_are_sorted_and_the_current_one_is_the_task),
        CASE(what_is_no_list_of_names_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
