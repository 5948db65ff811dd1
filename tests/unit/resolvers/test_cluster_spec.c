/* A cluster description: building, text, wire form, merge, questions. */
#include <muster/cluster_spec.h>

#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int setup(void **state)
{
    struct muster_mem_limited *mem = malloc(sizeof(*mem));

    muster_mem_limited_init(mem, muster_mem_system(), 0);
    *state = mem;
    return 0;
}

static int teardown(void **state)
{
    struct muster_mem_limited *mem = *state;
    size_t left = muster_mem_limited_fini(mem);

    free(mem);
    return left == 0 ? 0 : -1;
}

static struct muster_mem *mem_of(void **state)
{
    return &((struct muster_mem_limited *)*state)->mem;
}

static struct muster_cluster_spec *parsed(void **state, const char *text)
{
    struct muster_cluster_spec *spec = NULL;
    struct muster_error error = {0};

    if (muster_cluster_spec_parse(mem_of(state), text, strlen(text), &spec, &error) != MUSTER_OK)
        fail_msg("%s: %s", text, error.text);
    return spec;
}

static void assert_text(void **state, const struct muster_cluster_spec *spec, const char *expected)
{
    char *text = NULL;

    assert_int_equal(muster_cluster_spec_format(spec, mem_of(state), &text), MUSTER_OK);
    assert_string_equal(text, expected);
    muster_mem_free(mem_of(state), text);
}

static void text_reads_back_in_its_shortest_form(void **state)
{
    static const struct {
        const char *text;
        const char *expected;
    } rows[] = {
        {"{}", "{}"},
        {" {\"w\": []} ", "{\"w\":{}}"},
        {"{\"w\": {}}", "{\"w\":{}}"},
        {"{\"z\": [\"z:1\"], \"a\": [\"a:1\"]}", "{\"z\":[\"z:1\"],\"a\":[\"a:1\"]}"},
        {"{\"w\": {\"1\": \"b\", \"0\": \"a\"}}", "{\"w\":[\"a\",\"b\"]}"},
        {"{\"w\": {\"7\": \"h\", \" +3 \": \"d\"}}", "{\"w\":{\"3\":\"d\",\"7\":\"h\"}}"},
        {"{\"w\": {\"1\": \"b\", \"01\": \"c\"}}", "{\"w\":{\"1\":\"c\"}}"},
        {"{\"w\": {\"-1\": \"m\", \"0\": \"a\"}}", "{\"w\":{\"-1\":\"m\",\"0\":\"a\"}}"},
        {"{\"w\": [\"\\u00e4:1\"]}", "{\"w\":[\"\xc3\xa4:1\"]}"},
        {"{\"w\": [\"a\"], \"w\": [\"b\"]}", "{\"w\":[\"b\"]}"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *spec = parsed(state, rows[i].text);

        assert_text(state, spec, rows[i].expected);
        muster_cluster_spec_unref(spec);
    }
}

static void malformed_text_names_the_culprit(void **state)
{
    static const struct {
        const char *text;
        const char *culprit;
    } rows[] = {
        {"", "bad JSON"},
        {"[\"a:1\"]", "list"},
        {"\"worker\"", "text"},
        {"null", "null"},
        {"{\"ps\": \"a:1\"}", "'ps'"},
        {"{\"ps\": 3}", "'ps'"},
        {"{\"ps\": null}", "'ps'"},
        {"{\"ps\": [1]}", "task 0 of job 'ps'"},
        {"{\"ps\": [\"a\", null]}", "task 1 of job 'ps'"},
        {"{\"ps\": [[\"a\"]]}", "task 0 of job 'ps'"},
        {"{\"ps\": {\"zero\": \"a\"}}", "'zero'"},
        {"{\"ps\": {\"\": \"a\"}}", "''"},
        {"{\"ps\": {\"1.0\": \"a\"}}", "'1.0'"},
        {"{\"ps\": {\"1__0\": \"a\"}}", "'1__0'"},
        {"{\"ps\": {\"2147483648\": \"a\"}}", "2147483648"},
        {"{\"ps\": {\"99999999999999999999\": \"a\"}}", "99999999999999999999"},
        {"{\"ps\": {\"2\": {}}}", "task 2 of job 'ps'"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *spec = NULL;
        struct muster_error error = {0};

        assert_int_equal(muster_cluster_spec_parse(mem_of(state), rows[i].text,
                                                   strlen(rows[i].text), &spec, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_null(spec);
        if (strstr(error.text, rows[i].culprit) == NULL)
            fail_msg("'%s' does not name %s", error.text, rows[i].culprit);
    }
}

static void questions_about_unknown_tasks_are_not_found(void **state)
{
    struct muster_cluster_spec *spec = parsed(state, "{\"w\":{\"1\":\"b\",\"4\":\"e\"}}");
    struct muster_error error = {0};
    const char *address = NULL;
    size_t count = 0;

    assert_int_equal(muster_cluster_spec_task_address(spec, "w", 4, &address, NULL), MUSTER_OK);
    assert_string_equal(address, "e");
    assert_int_equal(muster_cluster_spec_task_address(spec, "w", 0, &address, &error),
                     MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "job 'w' has no task 0"));
    assert_int_equal(muster_cluster_spec_task_address(spec, "w", INT64_MIN, &address, NULL),
                     MUSTER_NOT_FOUND);
    assert_int_equal(muster_cluster_spec_task_address(spec, NULL, 1, &address, NULL),
                     MUSTER_NOT_FOUND);
    assert_int_equal(muster_cluster_spec_num_tasks(spec, "ps", &count, &error), MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "'ps'"));

    muster_cluster_spec_unref(spec);
}

static void job_tasks_leaves_holes(void **state)
{
    struct muster_cluster_spec *spec = parsed(state, "{\"w\":{\"1\":\"b\",\"3\":\"d\"}}");
    const char **tasks = NULL;
    size_t count = 0;

    assert_int_equal(muster_cluster_spec_job_tasks(spec, "w", mem_of(state), &tasks, &count, NULL),
                     MUSTER_OK);

    assert_int_equal(count, 4);
    assert_null(tasks[0]);
    assert_string_equal(tasks[1], "b");
    assert_null(tasks[2]);
    assert_string_equal(tasks[3], "d");
    muster_mem_free(mem_of(state), tasks);
    muster_cluster_spec_unref(spec);
}

static void equality_ignores_the_order_of_jobs_only(void **state)
{
    static const struct {
        const char *other;
        bool is_equal;
    } rows[] = {
        {"{\"ps\":[\"p\"],\"w\":[\"a\",\"b\"]}", true},
        {"{\"w\":{\"1\":\"b\",\"0\":\"a\"},\"ps\":[\"p\"]}", true},
        {"{\"w\":[\"b\",\"a\"],\"ps\":[\"p\"]}", false},
        {"{\"w\":[\"a\",\"b\"]}", false},
        {"{\"w\":[\"a\",\"b\"],\"ps\":[\"p\"],\"x\":[]}", false},
        {"{\"w\":[\"a\",\"b\"],\"ps\":{\"1\":\"p\"}}", false},
    };
    struct muster_cluster_spec *spec = parsed(state, "{\"w\":[\"a\",\"b\"],\"ps\":[\"p\"]}");

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *other = parsed(state, rows[i].other);

        assert_int_equal(muster_cluster_spec_is_equal(spec, other), rows[i].is_equal);
        muster_cluster_spec_unref(other);
    }
    muster_cluster_spec_unref(spec);
}

static void merge_appends_jobs_and_the_last_of_a_name_counts(void **state)
{
    struct muster_cluster_spec *first = parsed(state, "{\"w\":[\"a\",\"b\"],\"ps\":[\"p\"]}");
    struct muster_cluster_spec *second = parsed(state, "{\"w\":{\"1\":\"x\"},\"c\":[\"c\"]}");
    struct muster_cluster_spec *merged = NULL;

    assert_int_equal(muster_cluster_spec_merge(mem_of(state), first, second, &merged), MUSTER_OK);

    assert_text(state, merged, "{\"ps\":[\"p\"],\"w\":{\"1\":\"x\"},\"c\":[\"c\"]}");
    assert_int_equal(merged->def_count, 4);
    assert_string_equal(merged->defs[1].name, "w");
    assert_int_equal(merged->defs[1].task_count, 2);
    muster_cluster_spec_unref(first);
    muster_cluster_spec_unref(second);
    muster_cluster_spec_unref(merged);
}

static void a_build_without_memory_leaves_nothing(void **state)
{
    struct muster_mem_limited *mem = *state;
    static const char text[] = "{\"w\":{\"2\":\"a\",\"1\":\"b\"},\"ps\":[\"p\"]}";
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    unsigned tries = 0;

    while (rc != MUSTER_OK && tries < 100) {
        struct muster_cluster_spec *spec = NULL;

        tries++;
        mem->fail_at = tries;
        rc = muster_cluster_spec_parse(&mem->mem, text, strlen(text), &spec, NULL);
        assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
        mem->fail_at = 0;
        muster_cluster_spec_unref(spec);
        assert_int_equal(mem->block_count, 0);
    }
    assert_in_range(tries, 3, 99);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(text_reads_back_in_its_shortest_form),
        CASE(malformed_text_names_the_culprit),
        CASE(questions_about_unknown_tasks_are_not_found),
        CASE(job_tasks_leaves_holes),
        CASE(equality_ignores_the_order_of_jobs_only),
        CASE(merge_appends_jobs_and_the_last_of_a_name_counts),
        CASE(a_build_without_memory_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
