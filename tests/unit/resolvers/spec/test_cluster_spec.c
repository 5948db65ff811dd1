/* A cluster description: building, text, wire form, merge, questions. */
#include "resolvers/spec/spec_internal.h"

#include "careful_mem.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int spec_setup(void **state)
{
    struct muster_mem_limited *mem = malloc(sizeof(*mem));

    muster_mem_limited_init(mem, careful_mem(), 0);
    *state = mem;
    return 0;
}

static int spec_teardown(void **state)
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

static struct muster_cluster_spec *parse_spec(void **state, const char *text)
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
        {"{\"w\": {\"2147483647\": \"b\", \"-2147483648\": \"a\"}}",
         "{\"w\":{\"-2147483648\":\"a\",\"2147483647\":\"b\"}}"},
        {"{\"w\": {\"2\": \"a\", \"0\": \"b\", \"02\": \"c\", \"+2\": \"d\", \"1\": \"e\"}}",
         "{\"w\":[\"b\",\"e\",\"d\"]}"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *spec = parse_spec(state, rows[i].text);

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
        {"{\"ps\": {\"-2147483649\": \"a\"}}", "task index -2147483649 of job 'ps'"},
        {"{\"w\": [\"a\"], \"ps\": [2], \"q\": 1}", "task 0 of job 'ps' must be text, got number"},
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
    struct muster_cluster_spec *spec = parse_spec(state, "{\"w\":{\"1\":\"b\",\"4\":\"e\"}}");
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
    assert_int_equal(muster_cluster_spec_num_tasks(spec, NULL, &count, &error), MUSTER_NOT_FOUND);
    assert_string_equal(error.text, "no job is named");
    assert_int_equal(muster_cluster_spec_num_tasks(spec, "w", &count, NULL), MUSTER_OK);
    assert_int_equal(count, 2);

    muster_cluster_spec_unref(spec);
}

static void jobs_and_tasks_by_the_dozen_are_found(void **state)
{
    struct muster_cluster_spec_builder builder;
    struct muster_cluster_spec *spec = NULL;
    char names[30][12], address[900][24];
    size_t count = 0;

    muster_cluster_spec_builder_init(&builder, mem_of(state), false);
    for (int j = 0; j < 30; j++) {
        snprintf(names[j], sizeof(names[j]), "j%d", j * 7 % 30);
        muster_cluster_spec_builder_add_job(&builder, names[j]);
        for (int i = 29; i >= 0; i--, count++) {
            snprintf(address[count], sizeof(address[0]), "%.7s:%d", names[j], i);
            muster_cluster_spec_builder_add_task(&builder, i, address[count]);
        }
    }
    assert_int_equal(muster_cluster_spec_build(&builder, &spec), MUSTER_OK);
    muster_cluster_spec_builder_fini(&builder);
    memset(address, 0, sizeof(address));

    assert_int_equal(spec->job_count, 30);
    assert_int_equal(spec->def_count, 30);
    for (int j = 0; j < 30; j++) {
        const struct muster_cluster_job *job = muster_cluster_spec_job(spec, names[j]);

        assert_ptr_equal(spec->jobs[j], job);
        assert_string_equal(job->name, names[j]);
        assert_true(j == 0 || strcmp(spec->defs[j - 1].name, spec->defs[j].name) < 0);
        assert_int_equal(job->task_count, 30);
        for (int i = 0; i < 30; i++) {
            char expected[24];

            snprintf(expected, sizeof(expected), "%.7s:%d", names[j], i);
            assert_int_equal(job->tasks[i].index, i);
            assert_string_equal(muster_cluster_job_address(job, i), expected);
        }
        assert_null(muster_cluster_job_address(job, -1));
        assert_null(muster_cluster_job_address(job, 30));
    }
    muster_cluster_spec_unref(spec);
}

static void a_job_is_dense_when_its_tasks_are_numbered_from_zero(void **state)
{
    static const struct {
        const char *text;
        bool is_dense;
    } rows[] = {
        {"{\"w\":[]}", false},
        {"{\"w\":[\"a\"]}", true},
        {"{\"w\":{\"1\":\"a\",\"0\":\"b\"}}", true},
        {"{\"w\":{\"1\":\"a\"}}", false},
        {"{\"w\":{\"0\":\"a\",\"2\":\"b\"}}", false},
        {"{\"w\":{\"-1\":\"a\",\"1\":\"b\"}}", false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *spec = parse_spec(state, rows[i].text);

        assert_int_equal(muster_cluster_job_is_dense(spec->jobs[0]), rows[i].is_dense);
        assert_null(muster_cluster_spec_job(spec, NULL));
        assert_null(muster_cluster_spec_job(spec, "v"));
        assert_false(muster_cluster_spec_is_empty(spec));
        muster_cluster_spec_unref(spec);
    }
}

static void a_cluster_without_a_job_is_empty(void **state)
{
    struct muster_cluster_spec *spec = parse_spec(state, "{}");

    assert_true(muster_cluster_spec_is_empty(spec));
    assert_null(muster_cluster_spec_job(spec, "w"));
    assert_null(muster_cluster_spec_job(spec, NULL));
    muster_cluster_spec_unref(spec);
}

static void a_value_lives_until_its_last_reference_goes(void **state)
{
    struct muster_mem_limited *mem = *state;
    struct muster_cluster_spec *spec = parse_spec(state, "{\"w\":[\"a\"]}");

    assert_ptr_equal(muster_cluster_spec_ref(spec), spec);
    muster_cluster_spec_unref(spec);
    assert_string_equal(spec->jobs[0]->tasks[0].address, "a");
    assert_int_equal(mem->block_count, 1);
    muster_cluster_spec_unref(spec);
    assert_int_equal(mem->block_count, 0);
    muster_cluster_spec_unref(NULL);
}

/* "1 3; 4: - b - d" */
static const char *format_spec(void **state, const struct muster_cluster_spec *spec)
{
    static char text[200];
    const char **addresses = NULL;
    int32_t *indices = NULL;
    size_t count = 0, length = 0;

    assert_int_equal(
        muster_cluster_spec_task_indices(spec, "w", mem_of(state), &indices, &count, NULL),
        MUSTER_OK);
    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%d ", indices[i]);
    assert_int_equal(
        muster_cluster_spec_job_tasks(spec, "w", mem_of(state), &addresses, &count, NULL),
        MUSTER_OK);
    length += (size_t)snprintf(text + length, sizeof(text) - length, "in %zu:", count);
    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, " %s",
                                   addresses[i] != NULL ? addresses[i] : "-");
    muster_mem_free(mem_of(state), indices);
    muster_mem_free(mem_of(state), addresses);
    return text;
}

static void tasks_are_listed_by_index_and_in_their_places(void **state)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"{\"w\":[]}", "in 0:"},
        {"{\"w\":[\"a\",\"b\"]}", "0 1 in 2: a b"},
        {"{\"w\":{\"3\":\"d\",\"1\":\"b\"}}", "1 3 in 4: - b - d"},
        {"{\"w\":{\"-2\":\"x\"}}", "-2 in 0:"},
        {"{\"w\":{\"-2\":\"x\",\"-1\":\"y\"}}", "-2 -1 in 0:"},
        {"{\"w\":{\"-1\":\"x\",\"0\":\"a\"}}", "-1 0 in 1: a"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *spec = parse_spec(state, rows[i].text);

        assert_string_equal(format_spec(state, spec), rows[i].expected);
        muster_cluster_spec_unref(spec);
    }
}

static void lists_of_tasks_need_a_job_and_memory(void **state)
{
    struct muster_mem_limited *mem = *state;
    struct muster_cluster_spec *spec = parse_spec(state, "{\"w\":[\"a\",\"b\"]}");
    struct muster_error error = {0};
    const char **addresses = NULL;
    int32_t *indices = NULL;
    size_t count = 7;
    char *text = NULL;

    assert_int_equal(
        muster_cluster_spec_task_indices(spec, "ps", &mem->mem, &indices, &count, &error),
        MUSTER_NOT_FOUND);
    assert_int_equal(
        muster_cluster_spec_job_tasks(spec, "ps", &mem->mem, &addresses, &count, &error),
        MUSTER_NOT_FOUND);
    mem->fail_at = 1;
    assert_int_equal(
        muster_cluster_spec_task_indices(spec, "w", &mem->mem, &indices, &count, &error),
        MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "no memory for 2 indices");
    mem->fail_at = 1;
    assert_int_equal(
        muster_cluster_spec_job_tasks(spec, "w", &mem->mem, &addresses, &count, &error),
        MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "no memory for the 2 places of job 'w'");
    mem->fail_at = 1;
    assert_int_equal(muster_cluster_spec_format(spec, &mem->mem, &text), MUSTER_RESOURCE_EXHAUSTED);

    assert_int_equal(count, 7);
    assert_null(indices);
    assert_null(addresses);
    assert_null(text);
    muster_cluster_spec_unref(spec);
}

static void whole_numbers_are_read_as_python_reads_them(void **state)
{
    static const struct {
        const char *text;
        bool is_number;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"+7", true, 7},
        {"-12", true, -12},
        {" \t19\n", true, 19},
        {"1_0_9", true, 109},
        {"9223372036854775799", true, INT64_C(9223372036854775799)},
        {"-9223372036854775799", true, INT64_C(-9223372036854775799)},
        {"9223372036854775800", false, 0},
        {"92233720368547758000", false, 0},
        {"", false, 0},
        {" ", false, 0},
        {"-", false, 0},
        {"+-1", false, 0},
        {"_1", false, 0},
        {"1_", false, 0},
        {"1__0", false, 0},
        {"1 2", false, 0},
        {"0x1", false, 0},
        {"1.0", false, 0},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t value = 0;

        assert_int_equal(muster_integer_parse(rows[i].text, &value), rows[i].is_number);
        assert_true(value == rows[i].value);
    }
}

static void a_text_above_16_mebibytes_is_refused(void **state)
{
    size_t bytes = MUSTER_CLUSTER_SPEC_BYTES_MAX;
    char *text = malloc(bytes + 1);
    struct muster_cluster_spec *spec = NULL;
    struct muster_error error = {0};

    assert_non_null(text);
    memset(text, ' ', bytes + 1);
    memcpy(text, "{}", 2);
    assert_int_equal(muster_cluster_spec_parse(mem_of(state), text, bytes + 1, &spec, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text,
                        "a cluster text of 16777217 bytes is above the limit of 16777216");
    assert_int_equal(muster_cluster_spec_parse(mem_of(state), text, bytes, &spec, &error),
                     MUSTER_OK);

    muster_cluster_spec_unref(spec);
    free(text);
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
        {"{\"w\":[\"a\",\"b\"],\"pt\":[\"p\"]}", false},
        {"{\"w\":[\"a\",\"b\",\"c\"],\"ps\":[\"p\"]}", false},
        {"{\"w\":[\"a\",\"c\"],\"ps\":[\"p\"]}", false},
    };
    struct muster_cluster_spec *spec = parse_spec(state, "{\"w\":[\"a\",\"b\"],\"ps\":[\"p\"]}");

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *other = parse_spec(state, rows[i].other);

        assert_int_equal(muster_cluster_spec_is_equal(spec, other), rows[i].is_equal);
        assert_int_equal(muster_cluster_spec_is_equal(other, spec), rows[i].is_equal);
        muster_cluster_spec_unref(other);
    }
    muster_cluster_spec_unref(spec);
}

static void merge_appends_jobs_and_the_last_of_a_name_counts(void **state)
{
    struct muster_cluster_spec *first = parse_spec(state, "{\"w\":[\"a\",\"b\"],\"ps\":[\"p\"]}");
    struct muster_cluster_spec *second = parse_spec(state, "{\"w\":{\"1\":\"x\"},\"c\":[\"c\"]}");
    struct muster_cluster_spec *merged = NULL;

    assert_int_equal(muster_cluster_spec_merge(mem_of(state), first, second, &merged), MUSTER_OK);

    assert_text(state, merged, "{\"ps\":[\"p\"],\"w\":{\"1\":\"x\"},\"c\":[\"c\"]}");
    assert_int_equal(merged->def_count, 4);
    assert_string_equal(merged->defs[1].name, "w");
    assert_int_equal(merged->defs[1].task_count, 2);
    assert_string_equal(merged->defs[0].name, "ps");
    assert_string_equal(merged->defs[2].name, "c");
    assert_string_equal(merged->defs[3].name, "w");
    assert_string_equal(merged->defs[3].tasks[0].address, "x");
    muster_cluster_spec_unref(first);
    muster_cluster_spec_unref(second);
    muster_cluster_spec_unref(merged);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, spec_setup, spec_teardown)
    const struct CMUnitTest tests[] = {
        CASE(text_reads_back_in_its_shortest_form),
        CASE(malformed_text_names_the_culprit),
        CASE(questions_about_unknown_tasks_are_not_found),
        CASE(jobs_and_tasks_by_the_dozen_are_found),
        CASE(a_job_is_dense_when_its_tasks_are_numbered_from_zero),
        CASE(a_cluster_without_a_job_is_empty),
        CASE(a_value_lives_until_its_last_reference_goes),
        CASE(tasks_are_listed_by_index_and_in_their_places),
        CASE(lists_of_tasks_need_a_job_and_memory),
        CASE(whole_numbers_are_read_as_python_reads_them),
        CASE(a_text_above_16_mebibytes_is_refused),
        CASE(equality_ignores_the_order_of_jobs_only),
        CASE(merge_appends_jobs_and_the_last_of_a_name_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
