/* Wire bytes at the edges of what protobuf allows, before protobuf-c sees them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/guard_scan.h"
#include "tests/lib/assertion_count.h"
#include "tests/proto/guard_sample.pb-c.h"

#define TREE  (&sample__tree__descriptor)
#define KINDS (&sample__kinds__descriptor)

/* The findings of a scan. */
struct finding {
    enum muster_rc rc;
    size_t elements, unknown_fields;
    struct muster_error error;
};

static struct finding scan_bytes(const ProtobufCMessageDescriptor *descriptor, const void *bytes,
                                 size_t size, size_t elements_max)
{
    struct finding finding = {.error.rc = MUSTER_OK};
    struct muster_proto_scan scan = {
        .depth_max = 2, .elements_max = elements_max, .error = &finding.error};

    finding.rc = muster_proto_scan_check(&scan, descriptor, bytes, size);
    finding.elements = scan.elements;
    finding.unknown_fields = scan.unknown_fields;
    assert_int_equal(finding.rc, finding.error.rc);
    return finding;
}

/* Unicode 15, table 3-7: the first and the last of each row, and their neighbours. */
static void texts_are_utf_8_without_nul(void **state)
{
    static const struct {
        const char *text;
        bool is_text;
    } rows[] = {
        {"\x01", true},
        {"\x7f", true},
        {"\x80", false},
        {"\xbf", false},
        {"\xc1\xbf", false},
        {"\xc2\x80", true},
        {"\xc2\x7f", false},
        {"\xc2\xc0", false},
        {"\xdf\xbf", true},
        {"\xdf", false},
        {"\xe0\x9f\xbf", false},
        {"\xe0\xa0\x80", true},
        {"\xe0\xbf\xbf", true},
        {"\xe1\x80\x80", true},
        {"\xe1\x7f\x80", false},
        {"\xec\xbf\xbf", true},
        {"\xed\x80\x80", true},
        {"\xed\x9f\xbf", true},
        {"\xed\xa0\x80", false},
        {"\xee\x80\x80", true},
        {"\xef\xbf\xbf", true},
        {"\xef\xbf\x7f", false},
        {"\xef\xbf\xc0", false},
        {"\xef\xbf", false},
        {"\xf0\x8f\xbf\xbf", false},
        {"\xf0\x90\x80\x80", true},
        {"\xf0\xbf\xbf\xbf", true},
        {"\xf1\x80\x80\x80", true},
        {"\xf3\xbf\xbf\xbf", true},
        {"\xf3\xbf\xbf\x7f", false},
        {"\xf3\xbf\x7f\xbf", false},
        {"\xf4\x80\x80\x80", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"\xf4\x90\x80\x80", false},
        {"\xf4\x8f\xbf", false},
        {"\xf5\x80\x80\x80", false},
        {"a\xc2\x80z", true},
        {"a\x80z", false},
        {"\xff", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t length = strlen(rows[i].text);
        uint8_t bytes[16] = {0x0a, (uint8_t)length};
        struct finding finding;

        memcpy(bytes + 2, rows[i].text, length);
        memset(bytes + 2 + length, 0x80, 4); /* would go on any sequence */
        finding = scan_bytes(TREE, bytes, 2 + length, 9);
        fail_if(finding.rc != (rows[i].is_text ? MUSTER_OK : MUSTER_INVALID_ARGUMENT),
                "row %zu: %s", i, finding.error.text);
        if (!rows[i].is_text)
            assert_non_null(strstr(finding.error.text, "sample.Tree.name: not UTF-8 text"));
        bytes[0] = 0x12; /* bytes may be anything */
        assert_int_equal(scan_bytes(TREE, bytes, 2 + length, 9).rc, MUSTER_OK);
    }
}

/* Numbers that are as long or as large as they may be, and one more. */
static void numbers_of_the_wire_have_an_end(void **state)
{
    static const struct {
        const char *name, *bytes;
        size_t size;
        bool is_good;
        size_t unknown_fields;
    } rows[] = {
        {"a varint of ten bytes", "\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, true, 0},
        {"one of eleven", "\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x00", 12, false, 0},
        {"a tag of five bytes", "\xb8\x80\x80\x80\x00\x05", 6, true, 0},
        {"one of six", "\xb8\x80\x80\x80\x80\x00\x05", 7, false, 0},
        {"a length of five bytes", "\x0a\x81\x80\x80\x80\x00x", 7, true, 0},
        {"one of six", "\x0a\x81\x80\x80\x80\x80\x00x", 8, false, 0},
        {"the first field", "\x0a\x00", 2, true, 0},
        {"the last field", "\xf8\xff\xff\xff\x0f\x01", 6, true, 1},
        {"one behind", "\x80\x80\x80\x80\x10\x01", 6, false, 0},
        {"no field", "\x02\x00", 2, false, 0},
        {"all of a length", "\x0a\x02xy", 4, true, 0},
        {"one byte less", "\x0a\x02x", 3, false, 0},
        {"a length beyond 2 GiB", "\x0a\x80\x80\x80\x80\x08", 6, false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct finding finding = scan_bytes(TREE, rows[i].bytes, rows[i].size, 9);

        fail_if(finding.rc != (rows[i].is_good ? MUSTER_OK : MUSTER_INVALID_ARGUMENT), "%s: %s",
                rows[i].name, finding.error.text);
        assert_int_equal(finding.unknown_fields, rows[i].unknown_fields);
    }
}

static void an_error_names_the_byte(void **state)
{
    struct finding finding = scan_bytes(TREE, "\x38\x05\x0a\x02x", 5, 9);

    (void)state;
    assert_string_equal(finding.error.text, "sample.Tree: malformed field at byte 2 of 5");
}

/* As protobuf has it: a known field of another wire type is unknown. */
static void each_kind_has_its_wire_type(void **state)
{
    static const struct {
        uint8_t field, type; /* the only one of the four that is known */
        bool may_be_packed;
    } rows[] = {
        {1, 5, false},  {2, 5, false},  {3, 5, false},  {4, 1, false},  {5, 1, false},
        {6, 1, false},  {7, 0, false},  {8, 0, false},  {9, 0, false},  {10, 0, false},
        {11, 0, false}, {12, 0, false}, {13, 0, false}, {14, 0, false}, {15, 2, false},
        {16, 2, false}, {17, 2, false}, {18, 1, true},  {19, 0, true},  {20, 2, false},
    };
    static const uint8_t types[] = {0, 1, 2, 5};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t k = 0; k < sizeof(types); k++) {
            unsigned tag = (unsigned)rows[i].field << 3 | types[k];
            /* a varint 0, a length 0, or zeros that are fixed */
            uint8_t bytes[11] = {(uint8_t)(tag | 0x80), (uint8_t)(tag >> 7)};
            size_t size = 2 + (types[k] == 1 ? 8u : types[k] == 5 ? 4u : 1u);
            bool is_known = types[k] == rows[i].type || (types[k] == 2 && rows[i].may_be_packed);
            struct finding finding = scan_bytes(KINDS, bytes, size, 9);

            fail_if(finding.rc != MUSTER_OK || finding.unknown_fields != !is_known,
                    "field %u, type %u: %s", rows[i].field, types[k], finding.error.text);
            assert_int_equal(finding.elements, 1);
        }
}

/* Fields and packed values count alike. */
static void what_a_message_may_hold_is_counted(void **state)
{
    static const struct {
        const char *name, *bytes;
        size_t size, elements;
        const ProtobufCMessageDescriptor *descriptor;
    } rows[] = {
        {"nothing", "", 0, 0, TREE},
        {"three fields", "\x38\x01\x38\x02\x38\x03", 6, 3, TREE},
        {"an unknown field", "\x78\x01\x38\x02", 4, 2, TREE},
        {"packed varints", "\x22\x04\x01\x81\x01\x02", 6, 4, TREE},
        {"packed words", "\x2a\x08\x01\x02\x03\x04\x05\x06\x07\x08", 10, 3, TREE},
        {"packed doubles", "\x92\x01\x10zzzzzzzzzzzzzzzz", 19, 3, KINDS},
        {"an empty list", "\x22\x00", 2, 1, TREE},
        {"what is inside", "\x4a\x04\x38\x01\x38\x02", 6, 3, TREE},
        {"text is one", "\x0a\x03xyz", 5, 1, TREE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t max = rows[i].elements;
        struct finding finding = scan_bytes(rows[i].descriptor, rows[i].bytes, rows[i].size, max);

        fail_if(finding.rc != MUSTER_OK || finding.elements != max, "%s: %zu, %s", rows[i].name,
                finding.elements, finding.error.text);
        if (max == 0)
            continue;
        finding = scan_bytes(rows[i].descriptor, rows[i].bytes, rows[i].size, max - 1);
        fail_if(finding.rc != MUSTER_RESOURCE_EXHAUSTED, "%s", rows[i].name);
        assert_non_null(strstr(finding.error.text, "more than"));
    }
}

static void lists_are_whole(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const ProtobufCMessageDescriptor *descriptor;
    } rows[] = {
        {"\x2a\x07\x01\x02\x03\x04\x05\x06\x07", 9, TREE},
        {"\x92\x01\x0fzzzzzzzzzzzzzzz", 18, KINDS},
        {"\x92\x01\x04zzzz", 7, KINDS},
        {"\x22\x02\x01\x81\x00", 5, TREE}, /* what lies behind is another field's */
        {"\x22\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13, TREE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct finding finding = scan_bytes(rows[i].descriptor, rows[i].bytes, rows[i].size, 99);

        fail_if(finding.rc != MUSTER_INVALID_ARGUMENT, "row %zu", i);
        assert_non_null(strstr(finding.error.text, "packed values are cut off"));
    }
}

/* In "left", in a list and in a choice alike: 2 is all that is allowed here. */
static void messages_nest_as_deep_as_is_allowed(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        enum muster_rc rc;
    } rows[] = {
        {"\x4a\x00", 2, MUSTER_OK},
        {"\x1a\x00\x1a\x00\x4a\x00", 6, MUSTER_OK}, /* side by side */
        {"\x4a\x02\x4a\x00", 4, MUSTER_RESOURCE_EXHAUSTED},
        {"\x1a\x02\x5a\x00", 4, MUSTER_RESOURCE_EXHAUSTED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct finding finding = scan_bytes(TREE, rows[i].bytes, rows[i].size, 99);

        assert_int_equal(finding.rc, rows[i].rc);
        assert_true(finding.rc == MUSTER_OK ||
                    strstr(finding.error.text, "nested deeper than 2") != NULL);
    }
}

/* Lengths keep their size on the wire: a number that has become smaller is padded. */
static void what_is_unknown_is_cut_out(void **state)
{
    static const struct {
        const char *name, *bytes;
        size_t size;
        const char *left;
        size_t left_size;
    } rows[] = {
        {"nothing is unknown", "\x38\x05\x0a\x01x", 5, "\x38\x05\x0a\x01x", 5},
        {"all is unknown", "\x78\x01\x7a\x02xy", 6, "", 0},
        {"before and behind", "\x78\x01\x38\x05\x7a\x01x", 7, "\x38\x05", 2},
        {"inside", "\x4a\x04\x78\x01\x38\x05", 6, "\x4a\x02\x38\x05", 4},
        {"inside, behind a long length", "\x4a\x84\x80\x00\x78\x01\x38\x05", 8,
         "\x4a\x82\x80\x00\x38\x05", 6},
        {"all inside", "\x4a\x82\x00\x78\x01", 5, "\x4a\x80\x00", 3},
        {"an empty text", "\x0a\x00\x78\x01", 4, "\x0a\x00", 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t out[32];
        size_t size;

        memset(out, 0xee, sizeof(out));
        size = muster_proto_scan_strip(TREE, (const uint8_t *)rows[i].bytes, rows[i].size, out);
        fail_if(size != rows[i].left_size || memcmp(out, rows[i].left, size) != 0, "%s",
                rows[i].name);
        assert_int_equal(out[size], 0xee);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest tests[] = {
        CASE(texts_are_utf_8_without_nul),
        CASE(numbers_of_the_wire_have_an_end),
        CASE(an_error_names_the_byte),
        CASE(each_kind_has_its_wire_type),
        CASE(what_a_message_may_hold_is_counted),
        CASE(lists_are_whole),
        CASE(messages_nest_as_deep_as_is_allowed),
        CASE(what_is_unknown_is_cut_out),
    };

    return cmocka_run_group_tests_name("guard_scan", tests, NULL, NULL);
}
