/* The wire form of a cluster: bytes as other writers make them, and bytes that are none. */
#include <muster/cluster_spec.h>

#include "test_env.h"

#include <string.h>

static struct muster_cluster_spec *parsed(const char *text)
{
    struct muster_cluster_spec *spec = NULL;

    assert_int_equal(
        muster_cluster_spec_parse(muster_mem_system(), text, strlen(text), &spec, NULL), MUSTER_OK);
    return spec;
}

static void zero_index_and_empty_address_are_written(void **state)
{
    static const unsigned char expected[] = {0x0a, 0x09, 0x0a, 0x01, 'w', 0x12,
                                             0x04, 0x08, 0x00, 0x12, 0x00};
    struct muster_cluster_spec *spec = parsed("{\"w\":[\"\"]}");
    void *bytes = NULL;
    size_t size = 0;
    (void)state;

    assert_int_equal(muster_cluster_spec_pack(spec, muster_mem_system(), &bytes, &size), MUSTER_OK);

    assert_int_equal(size, sizeof(expected));
    assert_memory_equal(bytes, expected, size);
    muster_mem_free(muster_mem_system(), bytes);
    muster_cluster_spec_unref(spec);
}

static void defaults_that_a_writer_left_out_read_as_zero_and_empty(void **state)
{
    static const unsigned char bytes[] = {0x0a, 0x02, 0x12, 0x00, 0x0a, 0x05,
                                          0x0a, 0x01, 'w',  0x12, 0x00};
    struct muster_cluster_spec *spec = NULL;
    const char *address = NULL;
    (void)state;

    assert_int_equal(
        muster_cluster_spec_unpack(muster_mem_system(), bytes, sizeof(bytes), &spec, NULL),
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
        struct muster_cluster_spec *spec = parsed(rows[i]);
        struct muster_cluster_spec *back = NULL;
        void *bytes = NULL;
        size_t size = 0;

        assert_int_equal(muster_cluster_spec_pack(spec, muster_mem_system(), &bytes, &size),
                         MUSTER_OK);
        assert_int_equal(muster_cluster_spec_unpack(muster_mem_system(), bytes, size, &back, NULL),
                         MUSTER_OK);
        assert_true(muster_cluster_spec_is_equal(spec, back));
        muster_mem_free(muster_mem_system(), bytes);
        muster_cluster_spec_unref(spec);
        muster_cluster_spec_unref(back);
    }
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

        assert_int_equal(muster_cluster_spec_unpack(muster_mem_system(), rows[i].bytes,
                                                    rows[i].size, &spec, NULL),
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
        cmocka_unit_test(bytes_that_are_no_cluster_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
