/* Records of publications in the registry, and what is not one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/publication/messages.h"

#include <stdio.h>
#include <string.h>

static struct muster_publication_record record_of(uint64_t version)
{
    struct muster_publication_record record = {.version = version, .bytes = 1234567};

    memset(record.root, 0x5a, sizeof(record.root));
    memset(record.publisher.bytes, 0xa5, sizeof(record.publisher.bytes));
    snprintf(record.address, sizeof(record.address), "10.0.0.7:7100");
    return record;
}

static void record_comes_back_as_it_was(void **state)
{
    const struct muster_publication_record record = record_of(42);
    struct muster_publication_record found;
    uint8_t bytes[MUSTER_PUBLICATION_RECORD_BYTES];
    struct muster_error error;

    (void)state;
    muster_publication_record_pack(&record, bytes);
    assert_int_equal(muster_publication_record_unpack(bytes, sizeof(bytes), &found, &error),
                     MUSTER_OK);
    assert_int_equal(found.version, record.version);
    assert_int_equal(found.bytes, record.bytes);
    assert_memory_equal(found.root, record.root, sizeof(found.root));
    assert_memory_equal(&found.publisher, &record.publisher, sizeof(found.publisher));
    assert_string_equal(found.address, record.address);
}

static void what_is_not_a_record_is_refused(void **state)
{
    static const struct {
        const char *name;
        size_t size, at; /* at: the byte that is changed; SIZE_MAX: none */
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"nothing", 0, SIZE_MAX, MUSTER_DATA_LOSS, "is not the record of a publication"},
        {"a byte less", MUSTER_PUBLICATION_RECORD_BYTES - 1, SIZE_MAX, MUSTER_DATA_LOSS,
         "is not the record of a publication"},
        {"another magic", MUSTER_PUBLICATION_RECORD_BYTES, 0, MUSTER_DATA_LOSS,
         "is not the record of a publication"},
        {"another format", MUSTER_PUBLICATION_RECORD_BYTES, 4, MUSTER_FAILED_PRECONDITION,
         "this program reads 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_publication_record record = record_of(42);
        struct muster_publication_record found = record_of(7);
        uint8_t bytes[MUSTER_PUBLICATION_RECORD_BYTES];
        struct muster_error error = {.rc = MUSTER_OK};

        muster_publication_record_pack(&record, bytes);
        if (rows[i].at != SIZE_MAX)
            bytes[rows[i].at] ^= 0x40;
        if (muster_publication_record_unpack(bytes, rows[i].size, &found, &error) != rows[i].rc ||
            error.rc != rows[i].rc || strstr(error.text, rows[i].text) == NULL)
            fail_msg("%s: %s", rows[i].name, error.text);
        assert_int_equal(found.version, 7);
    }
}

static void address_without_an_end_is_refused(void **state)
{
    struct muster_publication_record record = record_of(42);
    uint8_t bytes[MUSTER_PUBLICATION_RECORD_BYTES];
    struct muster_error error;

    (void)state;
    memset(record.address, 'a', sizeof(record.address) - 1);
    record.address[sizeof(record.address) - 1] = '\0';
    muster_publication_record_pack(&record, bytes);
    assert_int_equal(muster_publication_record_unpack(bytes, sizeof(bytes), &record, &error),
                     MUSTER_OK);
    for (size_t i = 1; i < sizeof(bytes); i++) { /* its only end */
        if (bytes[i - 1] == 'a' && bytes[i] == '\0') {
            bytes[i] = 'a';
            break;
        }
    }
    assert_int_equal(muster_publication_record_unpack(bytes, sizeof(bytes), &record, &error),
                     MUSTER_DATA_LOSS);
    assert_non_null(strstr(error.text, "damaged address"));
}

static void sources_of_both_trees_are_told_apart(void **state)
{
    static const char two[] = "10.0.0.1:7\0[::1]:80";
    static const struct {
        const char *name, *bytes;
        size_t size;
        uint32_t first;
        size_t counts[MUSTER_PUBLICATION_TREES];
    } rows[] = {
        {"nothing", "", 0, 1, {0, 0}},
        {"one of each", two, sizeof(two), 1, {1, 1}},
        {"both of the first", two, sizeof(two), 2, {2, 0}},
        {"more of the first than there are", two, sizeof(two), UINT32_MAX, {2, 0}},
        {"both of the second", two, sizeof(two), 0, {0, 2}},
        {"one without an end", two, sizeof(two) - 1, 1, {1, 0}},
        {"one that is not an address", "10.0.0.1\0[::1]:80", 18, 1, {0, 1}},
        {"an empty one", "\0[::1]:80", 10, 1, {0, 1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_publication_sources sources;

        print_message("%s\n", rows[i].name);
        muster_publication_sources_unpack(rows[i].bytes, rows[i].size, rows[i].first, &sources);
        assert_memory_equal(sources.counts, rows[i].counts, sizeof(sources.counts));
    }
}

static void sources_beyond_the_most_are_left_out(void **state)
{
    struct muster_publication_sources sources;
    char bytes[(MUSTER_PUBLICATION_SOURCES_MAX + 2) * sizeof("[::1]:80")];
    uint32_t count = MUSTER_PUBLICATION_SOURCES_MAX + 2;

    (void)state;
    for (uint32_t i = 0; i < count; i++)
        memcpy(bytes + i * sizeof("[::1]:80"), "[::1]:80", sizeof("[::1]:80"));

    muster_publication_sources_unpack(bytes, sizeof(bytes), count - 1, &sources);
    assert_int_equal(sources.counts[0], MUSTER_PUBLICATION_SOURCES_MAX);
    assert_int_equal(sources.counts[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_comes_back_as_it_was),
        cmocka_unit_test(what_is_not_a_record_is_refused),
        cmocka_unit_test(address_without_an_end_is_refused),
        cmocka_unit_test(sources_of_both_trees_are_told_apart),
        cmocka_unit_test(sources_beyond_the_most_are_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
