/* Which requests are malformed. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include "net/h2/session_request.h"

struct header {
    const char *name, *value;
};

#define POST                                                                                       \
    {":method", "POST"}, {":scheme", "http"}, {":path", "/a.B/C"},                                 \
    {                                                                                              \
        ":authority", "host:1"                                                                     \
    }

static enum muster_h2_header_verdict header_put(struct muster_h2_request *request,
                                                struct header header)
{
    return muster_h2_request_header(request, (const uint8_t *)header.name, strlen(header.name),
                                    (const uint8_t *)header.value, strlen(header.value));
}

/* All headers, up to the first without a name. */
static bool is_taken(struct muster_h2_request *request, const struct header *headers)
{
    for (; headers->name != NULL; headers++) {
        if (header_put(request, *headers) == MUSTER_H2_HEADER_MALFORMED)
            return false;
    }
    return true;
}

static void good_requests_pass(void **state)
{
    static const struct header rows[][8] = {
        {POST},
        {POST, {"te", "trailers"}, {"content-type", "application/grpc"}},
        {POST, {"te", "Trailers"}, {"x", ""}},
        {{":authority", "h"}, {":path", "*"}, {":scheme", "https"}, {":method", "OPTIONS"}},
        {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {"host", "h"}},
        {{":method", "GET"}, {":scheme", "coap+x"}, {":path", "x"}, {"host", "h"}},
        {{":method", "CONNECT"}, {":authority", "h:1"}},
        /* what etcd's client of version 3.4 sends for an endpoint with a scheme */
        {{":method", "POST"}, {":scheme", "http"}, {":path", "/"}, {":authority", "http://h:1"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_h2_request request = {.marks = 0};

        fail_if(!is_taken(&request, rows[i]) || !muster_h2_request_headers(&request, true),
                "row %zu", i);
    }
}

static void malformed_requests_do_not(void **state)
{
    static const struct header rows[][8] = {
        {{"host", "h"}},
        {{":scheme", "http"}, {":path", "/"}, {":authority", "h"}},
        {{":method", "GET"}, {":path", "/"}, {":authority", "h"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}},
        {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}},
        {{":method", "G T"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h"}},
        {{":method", "GET"}, {":scheme", "1http"}, {":path", "/"}, {":authority", "h"}},
        {{":method", "GET"}, {":scheme", "http"}, {":path", "x"}, {":authority", "h"}},
        {{":method", "GET"}, {":scheme", "http"}, {":path", "*"}, {":authority", "h"}},
        {{":method", "GET"}, {":scheme", "http"}, {":path", ""}, {":authority", "h"}},
        {{":method", "GET"}, {":scheme", "http"}, {":path", "/ x"}, {":authority", "h"}},
        {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h h"}},
        {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h\x7f"}},
        {{":method", "CONNECT"}, {":scheme", "http"}, {":path", "/"}, {":authority", "h"}},
        {{":method", "CONNECT"}, {"host", "h"}},
        {POST, {":path", "/"}},
        {POST, {":status", "200"}},
        {POST, {":protocol", "websocket"}},
        {{"x", "1"}, POST},
        {POST, {"host", "h"}, {"host", "h"}},
        {POST, {"Upper", "1"}},
        {POST, {"te", "gzip"}},
        {POST, {"connection", "close"}},
        {POST, {"keep-alive", "1"}},
        {POST, {"proxy-connection", "close"}},
        {POST, {"transfer-encoding", "chunked"}},
        {POST, {"upgrade", "h2c"}},
        {POST, {"content-length", "1"}},
        {POST, {"content-length", ""}},
        {POST, {"content-length", "-1"}},
        {POST, {"content-length", "0"}, {"content-length", "0"}},
        {POST, {"content-length", "99999999999999999999"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_h2_request request = {.marks = 0};

        fail_if(is_taken(&request, rows[i]) && muster_h2_request_headers(&request, true), "row %zu",
                i);
    }
}

static void headers_with_wrong_bytes_are_ignored(void **state)
{
    struct muster_h2_request request = {.marks = 0};

    (void)state;
    assert_int_equal(header_put(&request, (struct header){"a b", "1"}), MUSTER_H2_HEADER_IGNORED);
    assert_int_equal(header_put(&request, (struct header){"a", "1\n2"}), MUSTER_H2_HEADER_IGNORED);
    assert_int_equal(header_put(&request, (struct header){"", "1"}), MUSTER_H2_HEADER_IGNORED);
    assert_int_equal(header_put(&request, (struct header){"a", "1"}), MUSTER_H2_HEADER_TAKEN);
    assert_int_equal(header_put(&request, (struct header){":path", "/"}),
                     MUSTER_H2_HEADER_MALFORMED);
}

static void a_body_is_as_long_as_was_said(void **state)
{
    static const struct header headers[] = {POST, {"content-length", "5"}, {NULL, NULL}};
    struct muster_h2_request request = {.marks = 0};

    (void)state;
    assert_true(is_taken(&request, headers));
    assert_true(muster_h2_request_headers(&request, false));
    assert_true(muster_h2_request_data(&request, 3));
    assert_false(muster_h2_request_end(&request));
    assert_true(muster_h2_request_data(&request, 2));
    assert_true(muster_h2_request_end(&request));
    assert_false(muster_h2_request_data(&request, 1));
}

static void trailers_end_the_stream_and_have_no_pseudo_header(void **state)
{
    static const struct header headers[] = {POST, {NULL, NULL}};
    struct muster_h2_request request = {.marks = 0};

    (void)state;
    assert_true(is_taken(&request, headers));
    assert_true(muster_h2_request_headers(&request, false));
    assert_true(muster_h2_request_data(&request, 7));
    assert_int_equal(header_put(&request, (struct header){"x", "1"}), MUSTER_H2_HEADER_TAKEN);
    assert_int_equal(header_put(&request, (struct header){":method", "A"}),
                     MUSTER_H2_HEADER_MALFORMED);
    assert_false(muster_h2_request_headers(&request, false));
    assert_true(muster_h2_request_headers(&request, true));
}

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest h2_session_request[] = {
        CASE(good_requests_pass),
        CASE(malformed_requests_do_not),
        CASE(headers_with_wrong_bytes_are_ignored),
        CASE(a_body_is_as_long_as_was_said),
        CASE(trailers_end_the_stream_and_have_no_pseudo_header),
    };

    return cmocka_run_group_tests(h2_session_request, NULL, NULL);
}
