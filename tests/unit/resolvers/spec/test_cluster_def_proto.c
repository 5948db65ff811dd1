/* The wire form of a cluster: bytes as other writers make them, and bytes that are none. */
#include <muster/cluster_spec.h>

#include "careful_mem.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

static struct muster_cluster_spec *parse_spec(const char *text)
{
    struct muster_cluster_spec *spec = NULL;

    assert_int_equal(muster_cluster_spec_parse(careful_mem(), text, strlen(text), &spec, NULL),
                     MUSTER_OK);
    return spec;
}

static void zero_index_and_empty_address_are_written(void **state)
{
    static const unsigned char expected[] = {0x0a, 0x09, 0x0a, 0x01, 'w', 0x12,
                                             0x04, 0x08, 0x00, 0x12, 0x00};
    struct muster_cluster_spec *spec = parse_spec("{\"w\":[\"\"]}");
    void *bytes = NULL;
    size_t size = 0;
    (void)state;

    assert_int_equal(muster_cluster_spec_pack(spec, careful_mem(), &bytes, &size), MUSTER_OK);

    assert_int_equal(size, sizeof(expected));
    assert_memory_equal(bytes, expected, size);
    muster_mem_free(careful_mem(), bytes);
    muster_cluster_spec_unref(spec);
}

static void defaults_that_a_writer_left_out_read_as_zero_and_empty(void **state)
{
    static const unsigned char bytes[] = {0x0a, 0x02, 0x12, 0x00, 0x0a, 0x05,
                                          0x0a, 0x01, 'w',  0x12, 0x00};
    struct muster_cluster_spec *spec = NULL;
    const char *address = NULL;
    (void)state;

    assert_int_equal(muster_cluster_spec_unpack(careful_mem(), bytes, sizeof(bytes), &spec, NULL),
                     MUSTER_OK);

    assert_int_equal(spec->job_count, 2);
    assert_int_equal(muster_cluster_spec_task_address(spec, "", 0, &address, NULL), MUSTER_OK);
    assert_string_equal(address, "");
    assert_int_equal(muster_cluster_spec_task_address(spec, "w", 0, &address, NULL), MUSTER_OK);
    muster_cluster_spec_unref(spec);
}

static void every_cluster_survives_the_wire(void **state)
{
    static const char *const rows[] = {
        "{}",
        "{\"w\":{}}",
        "{\"z\":[\"z:1\"],\"a\":[\"a:1\",\"b:1\"]}",
        "{\"w\":{\"-5\":\"m\",\"2147483647\":\"x\"}}",
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *spec = parse_spec(rows[i]);
        struct muster_cluster_spec *back = NULL;
        struct muster_error error = {.text = ""};
        void *bytes = NULL;
        size_t size = 0;

        assert_int_equal(muster_cluster_spec_pack(spec, careful_mem(), &bytes, &size), MUSTER_OK);
        assert_int_equal(muster_cluster_spec_unpack(careful_mem(), bytes, size, &back, &error),
                         MUSTER_OK);
        assert_string_equal(error.text, "");
        assert_true(muster_cluster_spec_is_equal(spec, back));
        assert_int_equal(back->def_count, spec->def_count);
        muster_mem_free(careful_mem(), bytes);
        muster_cluster_spec_unref(spec);
        muster_cluster_spec_unref(back);
    }
}

static void jobs_are_written_by_name_and_tasks_from_the_highest_down(void **state)
{
    static const unsigned char expected[] = {0x0a, 0x0a, 0x0a, 0x01, 'a',  0x12, 0x05, 0x08,
                                             0x00, 0x12, 0x01, 'x',  0x0a, 0x11, 0x0a, 0x01,
                                             'z',  0x12, 0x05, 0x08, 0x01, 0x12, 0x01, 'q',
                                             0x12, 0x05, 0x08, 0x00, 0x12, 0x01, 'p'};
    struct muster_cluster_spec *spec = parse_spec("{\"z\":[\"p\",\"q\"],\"a\":[\"x\"]}");
    void *bytes = NULL;
    size_t size = 0;
    (void)state;

    assert_int_equal(muster_cluster_spec_pack(spec, careful_mem(), &bytes, &size), MUSTER_OK);

    assert_int_equal(size, sizeof(expected));
    assert_memory_equal(bytes, expected, size);
    muster_mem_free(careful_mem(), bytes);
    muster_cluster_spec_unref(spec);
}

/* The limit is 16 MiB; a field that no reader knows fills them. */
static void bytes_above_the_limit_are_refused(void **state)
{
    static const unsigned char head[] = {0x7a, 0xfb, 0xff, 0xff, 0x07};
    struct muster_cluster_spec *spec = NULL;
    struct muster_error error = {.text = ""};
    size_t size = MUSTER_CLUSTER_SPEC_BYTES_MAX;
    unsigned char *bytes = calloc(1, size + 1);
    (void)state;
    assert_non_null(bytes);
    memcpy(bytes, head, sizeof(head));

    assert_int_equal(muster_cluster_spec_unpack(careful_mem(), bytes, size + 1, &spec, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text,
                        "a ClusterDef of 16777217 bytes is above the limit of 16777216");
    assert_int_equal(muster_cluster_spec_unpack(careful_mem(), bytes, size, &spec, &error),
                     MUSTER_OK);
    assert_true(muster_cluster_spec_is_empty(spec));

    muster_cluster_spec_unref(spec);
    free(bytes);
}

static void bytes_that_are_no_cluster_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
    } rows[] = {
        {"\x0a", 1},                 /* cut behind the tag */
        {"\x0a\x05\x0a", 3},         /* a job longer than the message */
        {"\x0a\x03\x0a\x01\xff", 5}, /* a name that is no UTF-8 */
        {"\x0a\x03\x0a\x01\x00", 5}, /* a name with a NUL */
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_cluster_spec *spec = NULL;

        assert_int_equal(
            muster_cluster_spec_unpack(careful_mem(), rows[i].bytes, rows[i].size, &spec, NULL),
            MUSTER_INVALID_ARGUMENT);
        assert_null(spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_index_and_empty_address_are_written),
        cmocka_unit_test(defaults_that_a_writer_left_out_read_as_zero_and_empty),
        cmocka_unit_test(every_cluster_survives_the_wire),
        cmocka_unit_test(jobs_are_written_by_name_and_tasks_from_the_highest_down),
        cmocka_unit_test(bytes_above_the_limit_are_refused),
        cmocka_unit_test(bytes_that_are_no_cluster_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
