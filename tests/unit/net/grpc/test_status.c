/* grpc-message coding and the code tables. */
#include "test_env.h"

#include <string.h>

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"

static void messages_are_percent_encoded(void **state)
{
    static const struct {
        const char *text, *encoded;
    } rows[] = {
        {"", ""},          {"plain text ~!", "plain text ~!"}, {"100%", "100%25"},
        {"a\nb", "a%0Ab"}, {"\xc3\xbc\x7f", "%C3%BC%7F"},
    };
    char out[64], back[64];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t length = muster_grpc_message_encode(rows[i].text, out, sizeof(out));

        assert_string_equal(out, rows[i].encoded);
        assert_int_equal(length, strlen(out));
        (void)muster_grpc_message_decode(out, length, back, sizeof(back));
        assert_string_equal(back, rows[i].text);
    }
}

static void a_cut_message_ends_with_a_whole_sequence(void **state)
{
    char out[8];

    (void)state;
    assert_int_equal(muster_grpc_message_encode("abc\n\n", out, sizeof(out)), 6);
    assert_string_equal(out, "abc%0A");
}

static void broken_sequences_stay_as_they_are(void **state)
{
    static const struct {
        const char *text, *decoded;
    } rows[] = {
        {"%", "%"}, {"%4", "%4"}, {"%zz!", "%zz!"}, {"%41%4", "A%4"}, {"%e2%82", "\xe2\x82"}};
    char out[16];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)muster_grpc_message_decode(rows[i].text, strlen(rows[i].text), out, sizeof(out));
        assert_string_equal(out, rows[i].decoded);
    }
    assert_int_equal(muster_grpc_message_decode("abcdef", 6, out, 4), 3);
    assert_string_equal(out, "abc");
}

static void status_numbers_are_parsed(void **state)
{
    static const struct {
        const char *text;
        enum muster_rc rc;
    } rows[] = {
        {"0", MUSTER_OK},       {"5", MUSTER_NOT_FOUND}, {"16", MUSTER_UNAUTHENTICATED},
        {"17", MUSTER_UNKNOWN}, {"", MUSTER_UNKNOWN},    {"-1", MUSTER_UNKNOWN},
        {"5 ", MUSTER_UNKNOWN}, {"999", MUSTER_UNKNOWN}, {"00", MUSTER_OK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_grpc_status_parse(rows[i].text, strlen(rows[i].text)), rows[i].rc);
}

static void http_statuses_become_codes(void **state)
{
    static const struct {
        int status;
        enum muster_rc rc;
    } rows[] = {
        {400, MUSTER_INTERNAL},      {401, MUSTER_UNAUTHENTICATED}, {403, MUSTER_PERMISSION_DENIED},
        {404, MUSTER_UNIMPLEMENTED}, {429, MUSTER_UNAVAILABLE},     {431, MUSTER_INTERNAL},
        {502, MUSTER_UNAVAILABLE},   {503, MUSTER_UNAVAILABLE},     {504, MUSTER_UNAVAILABLE},
        {500, MUSTER_UNKNOWN},       {200, MUSTER_UNKNOWN},         {0, MUSTER_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_rc_from_http_status(rows[i].status), rows[i].rc);
}

static void reset_codes_become_codes(void **state)
{
    static const struct {
        uint32_t code;
        enum muster_rc rc;
    } rows[] = {
        {MUSTER_H2_NO_ERROR, MUSTER_INTERNAL},
        {MUSTER_H2_PROTOCOL_ERROR, MUSTER_INTERNAL},
        {MUSTER_H2_FLOW_CONTROL_ERROR, MUSTER_INTERNAL},
        {MUSTER_H2_FRAME_SIZE_ERROR, MUSTER_INTERNAL},
        {MUSTER_H2_REFUSED_STREAM, MUSTER_UNAVAILABLE},
        {MUSTER_H2_CANCEL, MUSTER_CANCELLED},
        {MUSTER_H2_COMPRESSION_ERROR, MUSTER_INTERNAL},
        {MUSTER_H2_CONNECT_ERROR, MUSTER_INTERNAL},
        {MUSTER_H2_ENHANCE_YOUR_CALM, MUSTER_RESOURCE_EXHAUSTED},
        {MUSTER_H2_INADEQUATE_SECURITY, MUSTER_PERMISSION_DENIED},
        {0xe, MUSTER_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_rc_from_h2_code(rows[i].code), rows[i].rc);
}

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest grpc_status[] = {
        CASE(messages_are_percent_encoded),      CASE(a_cut_message_ends_with_a_whole_sequence),
        CASE(broken_sequences_stay_as_they_are), CASE(status_numbers_are_parsed),
        CASE(http_statuses_become_codes),        CASE(reset_codes_become_codes),
    };

    return cmocka_run_group_tests(grpc_status, NULL, NULL);
}
