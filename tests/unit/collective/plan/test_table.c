/* Plan parameters as text. */
#include "collective/plan/plan.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <muster/env.h>

static void what_was_written_is_read_again(void **state)
{
    struct muster_plan_parameters written = {.chunk_bytes = 131072,
                                             .direct_max_bytes = 4096,
                                             .forced = MUSTER_ALGORITHM_DOUBLE_TREE,
                                             .is_reproducible = true,
                                             .row_count = 2};
    struct muster_plan_parameters read;
    struct muster_error error;
    char text[1024], again[1024];

    (void)state;
    written.rows[0] = (struct muster_plan_row){.kind = MUSTER_PLAN_KIND_ANY,
                                               .wire = MUSTER_WIRE_SHM,
                                               .span = MUSTER_SPAN_SPREAD,
                                               .algorithm = MUSTER_ALGORITHM_RING};
    written.rows[1] = (struct muster_plan_row){.kind = MUSTER_OP_BROADCAST,
                                               .algorithm = MUSTER_ALGORITHM_DOUBLE_TREE,
                                               .n_min = 16,
                                               .bytes_max = UINT64_C(5) << 32};
    assert_true(muster_plan_parameters_format(&written, text, sizeof(text)) < sizeof(text));
    assert_int_equal(muster_plan_parameters_parse(text, &read, &error), MUSTER_OK);

    (void)muster_plan_parameters_format(&read, again, sizeof(again));
    assert_string_equal(text, again);
    assert_int_equal(read.row_count, 2);
    assert_true(read.rows[1].bytes_max == UINT64_C(5) << 32);
    assert_true(read.is_reproducible);
}

static void people_write_comments_units_and_a_dash_for_any(void **state)
{
    static const char text[] = "# measured at night\n\n  chunk_bytes 128K # half\n"
                               "rule all_reduce tcp one_host 2 64K blocks\r\n"
                               "rule any any any 0 - ring";
    struct muster_plan_parameters read;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_plan_parameters_parse(text, &read, &error), MUSTER_OK);
    assert_int_equal(read.chunk_bytes, 128 << 10);
    assert_int_equal(read.row_count, 2);
    assert_true(read.rows[0].bytes_max == 64 << 10);
    assert_int_equal(read.rows[0].span, MUSTER_SPAN_ONE_HOST);
    assert_int_equal(read.rows[1].kind, MUSTER_PLAN_KIND_ANY);
}

static void an_error_names_the_line_and_the_remedy(void **state)
{
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"\nrule all_reduce tcp one_host 2 64K\n", "line 2: 'rule': write 'rule KIND"},
        {"rule all_sum tcp one_host 2 64K ring", "line 1: 'all_sum': write one of any all_reduce"},
        {"rule all_reduce udp one_host 2 64K ring", "write one of any tcp shm"},
        {"rule all_reduce tcp two 2 64K ring", "write one of any one_host hosts spread"},
        {"rule all_reduce tcp any few 64K ring", "'few': write the least number of members"},
        {"rule all_reduce tcp any -1 64K ring", "write the least number of members"},
        {"rule all_reduce tcp any 2 much ring", "'much': write a size such as"},
        {"rule all_reduce tcp any 2 64K tree", "'tree': write one of direct ring halving"},
        {"rule all_gather tcp any 2 64K halving", "it cannot run that kind"},
        {"chunk_bytes 99G", "line 1: '99G': it is too large"},
        {"chunk_bytes", "write a name and one value"},
        {"chunks 3", "write rule, chunk_bytes, direct_max_bytes"},
        {"reproducible maybe", "write one of no view"},
    };
    struct muster_plan_parameters read;
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_plan_parameters_parse(rows[i].text, &read, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].error) == NULL)
            fail_msg("%s: %s", rows[i].text, error.text);
    }
}

static void too_many_rules_and_too_long_lines_are_refused(void **state)
{
    char text[64 * 1024] = "";
    struct muster_plan_parameters read;
    struct muster_error error;
    size_t length = 0;

    (void)state;
    for (unsigned i = 0; i <= MUSTER_PLAN_ROWS_MAX; i++) {
        strcpy(text + length, "rule any any any 2 - ring\n");
        length += strlen(text + length);
    }
    assert_int_equal(muster_plan_parameters_parse(text, &read, &error), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "line 49"));
    memset(text, 'x', sizeof(text) - 1);
    assert_int_equal(muster_plan_parameters_parse(text, &read, &error), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "too long"));
}

static void a_file_is_named_with_what_is_wrong_in_it(void **state)
{
    static const struct {
        const char *content; /* NULL: a folder */
        enum muster_rc rc;
        const char *error;
    } rows[] = {
        {"chunk_bytes 64K\n", MUSTER_OK, NULL},
        {"chunk_bytes much\n", MUSTER_INVALID_ARGUMENT, ": line 1: "},
        {NULL, MUSTER_INVALID_ARGUMENT, ": it is a folder; `muster bench tune --out FILE` writes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[] = "/tmp/muster-table-XXXXXX";
        struct muster_plan_parameters read = {.chunk_bytes = 1};
        struct muster_error error = {.rc = MUSTER_OK};
        int fd = rows[i].content != NULL ? mkstemp(path) : -1;

        if (fd < 0)
            assert_non_null(mkdtemp(path));
        else
            assert_int_equal(write(fd, rows[i].content, strlen(rows[i].content)),
                             strlen(rows[i].content));
        assert_int_equal(muster_plan_parameters_read(muster_files_system(), muster_mem_system(),
                                                     path, &read, &error),
                         rows[i].rc);
        assert_int_equal(read.chunk_bytes, rows[i].rc == MUSTER_OK ? 64 << 10 : 1);
        if (rows[i].rc != MUSTER_OK) {
            assert_memory_equal(error.text, path, strlen(path));
            assert_non_null(strstr(error.text, rows[i].error));
        }
        if (fd >= 0)
            close(fd);
        assert_int_equal(remove(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read_again),
        cmocka_unit_test(people_write_comments_units_and_a_dash_for_any),
        cmocka_unit_test(an_error_names_the_line_and_the_remedy),
        cmocka_unit_test(too_many_rules_and_too_long_lines_are_refused),
        cmocka_unit_test(a_file_is_named_with_what_is_wrong_in_it),
    };

    return cmocka_run_group_tests_name("plan_table", tests, NULL, NULL);
}
