/* Clusters of several sources as one. */
#include "resolvers/spec/spec_internal.h"

#include "test_env.h"

#include <string.h>

#define PARTS_MAX 3

static void parts_become_one_cluster(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *parts[PARTS_MAX];
        const char *joined;
    } rows[] = {
        {{"{}"}, "{}"},
        {{"{\"w\":[\"a\"]}", "{\"p\":[\"b\"]}"}, "{\"w\":[\"a\"],\"p\":[\"b\"]}"},
        {{"{\"w\":[\"a\",\"b\"]}", "{\"w\":[\"a\"]}", "{\"w\":[\"c\"]}"},
         "{\"w\":[\"a\",\"b\",\"a\",\"c\"]}"},
        {{"{\"w\":[\"a\"]}", "{\"w\":{\"5\":\"f\"}}"}, "{\"w\":{\"0\":\"a\",\"5\":\"f\"}}"},
        {{"{\"w\":{\"1\":\"b\"}}", "{\"w\":[\"a\"]}"}, "{\"w\":[\"a\",\"b\"]}"},
        {{"{\"w\":[]}", "{\"w\":[\"a\"]}", "{\"w\":[\"b\"]}"}, "{\"w\":[\"a\",\"b\"]}"},
        {{"{\"w\":[]}", "{\"w\":[]}"}, "{\"w\":{}}"},
        {{"{\"p\":[\"b\"]}", "{\"q\":[\"c\"],\"p\":[\"d\"]}",
          "{\"q\":{\"7\":\"e\"},\"p\":[\"f\"]}"},
         "{\"p\":[\"b\",\"d\",\"f\"],\"q\":{\"0\":\"c\",\"7\":\"e\"}}"},
        {{"{\"w\":[\"a\"]}", "{\"w\":{}}", "{\"w\":{\"-1\":\"x\"}}"},
         "{\"w\":{\"-1\":\"x\",\"0\":\"a\"}}"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *parts[PARTS_MAX];
        struct muster_cluster_spec *joined = NULL;
        size_t count = 0;
        char *text = NULL;

        for (; count < PARTS_MAX && rows[i].parts[count] != NULL; count++)
            assert_int_equal(muster_cluster_spec_parse(test->env.mem, rows[i].parts[count],
                                                       strlen(rows[i].parts[count]), &parts[count],
                                                       NULL),
                             MUSTER_OK);
        assert_int_equal(muster_cluster_spec_join(test->env.mem, parts, count, &joined, NULL),
                         MUSTER_OK);
        assert_int_equal(muster_cluster_spec_format(joined, test->env.mem, &text), MUSTER_OK);
        assert_string_equal(text, rows[i].joined);
        assert_int_equal(joined->def_count, joined->job_count); /* none stands twice */
        muster_mem_free(test->env.mem, text);
        muster_cluster_spec_unref(joined);
        while (count > 0)
            muster_cluster_spec_unref(parts[--count]);
    }
}

static void an_index_given_twice_names_job_and_addresses(void **state)
{
    struct test_env *test = *state;
    static const char first[] = "{\"w\":{\"1\":\"b:1\"}}";
    static const char second[] = "{\"w\":[\"x:1\",\"y:1\"]}";
    struct muster_cluster_spec *parts[2];
    struct muster_cluster_spec *joined = NULL;
    struct muster_error error = {0};

    assert_int_equal(
        muster_cluster_spec_parse(test->env.mem, first, strlen(first), &parts[0], NULL), MUSTER_OK);
    assert_int_equal(
        muster_cluster_spec_parse(test->env.mem, second, strlen(second), &parts[1], NULL),
        MUSTER_OK);

    assert_int_equal(muster_cluster_spec_join(test->env.mem, parts, 2, &joined, &error),
                     MUSTER_ALREADY_EXISTS);
    assert_string_equal(error.text,
                        "two members have task 1 of job 'w': 'b:1' and 'y:1'; give each "
                        "its own index");
    assert_null(joined);
    muster_cluster_spec_unref(parts[0]);
    muster_cluster_spec_unref(parts[1]);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(parts_become_one_cluster),
        CASE(an_index_given_twice_names_job_and_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
