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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_comes_back_as_it_was),
        cmocka_unit_test(what_is_not_a_record_is_refused),
        cmocka_unit_test(address_without_an_end_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
