/* Rows of CSV: fields, quotes, and what is refused. */
#include "assertion_count.h"
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include <muster/dataset.h>

static enum muster_rc row_parse(const char *row, char *ret_joined, struct muster_error *ret_error)
{
    /* Memory of exactly its size, so that a read or a write beyond it is found. */
    size_t size = strlen(row), count = 0, used = 0;
    char *copy = muster_mem_alloc(muster_mem_system(), size);
    char *text = muster_mem_alloc(muster_mem_system(), size);
    struct muster_bytes fields[4];
    enum muster_rc rc;

    memcpy(copy, row, size);
    rc = muster_dataset_row_parse(&(struct muster_bytes){copy, size}, ',', text, fields, 4, &count,
                                  ret_error);
    ret_joined[0] = '\0';
    for (size_t i = 0; i < count && rc == MUSTER_OK; i++)
        used += (size_t)snprintf(ret_joined + used, 100 - used, "[%.*s]", (int)fields[i].size,
                                 (const char *)fields[i].data);
    muster_mem_free(muster_mem_system(), copy);
    muster_mem_free(muster_mem_system(), text);
    return rc;
}

static void rows_are_cut_into_fields(void **state)
{
    static const struct {
        const char *row, *fields;
    } rows[] = {
        {"a,b", "[a][b]"},
        {"", "[]"},
        {",", "[][]"},
        {"a,", "[a][]"},
        {"\"a,b\",c", "[a,b][c]"},
        {"\"\",\"\"", "[][]"},
        {"\"a\"\"b\"", "[a\"b]"},
        {"\"\"\"\",x", "[\"][x]"},
        {"\"a\nb\",1,2,3", "[a\nb][1][2][3]"},
        {" a , b", "[ a ][ b]"},
    };
    struct muster_error error;
    char joined[100];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(row_parse(rows[i].row, joined, &error), MUSTER_OK);
        assert_string_equal(joined, rows[i].fields);
    }
}

static void rows_that_break_the_rules_are_refused_with_their_column(void **state)
{
    static const struct {
        const char *row, *error;
    } rows[] = {
        {"a,b\"", "column 2: a field with quotes"},   {"\"a", "column 1: a field with quotes"},
        {"\"", "column 1: a field with quotes"},      {"x,\"a\"b", "column 2: a field with quotes"},
        {"\"a\"\"", "column 1: a field with quotes"}, {"1,2,3,4,5", "at most 4 fields, got more"},
    };
    struct muster_error error;
    char joined[100];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(row_parse(rows[i].row, joined, &error), MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, rows[i].error));
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(rows_are_cut_into_fields),
        cmocka_unit_test(rows_that_break_the_rules_are_refused_with_their_column),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
