/* Handshakes that do not begin, or end before the peer has said anything. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/tls/openssl.h"
#include "net/tls/stream_internal.h"
#include "tests/lib/assertion_count.h"
#include "tests/lib/tls_pair.h"

static const struct muster_tls_handshake_options as_server = {.is_server = true, .protocols = "h2"},
                                                 as_client = {.server_name = "localhost",
                                                              .protocols = "h2"};

static int set_up(void **state)
{
    static struct tls_pair pair;

    tls_pair_open(&pair);
    tls_pair_credentials(&pair);
    *state = &pair;
    return 0;
}

static int tear_down(void **state)
{
    tls_pair_close(*state);
    return 0;
}

static void on_nothing(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    fail_msg("a handshake that has not begun is over: %d, %p", (int)rc, (void *)handshake);
}

static bool is_ended(void *data)
{
    char byte;

    return recv(*(const int *)data, &byte, 1, MSG_DONTWAIT) == 0;
}

/* The stream is closed, nothing is called, and the caller's struct is as before. */
static enum muster_rc start_in_vain(struct tls_pair *pair, struct muster_tls *tls,
                                    const struct muster_tls_handshake_options *options)
{
    struct muster_tls_handshake handshake, before;
    struct muster_stream *inner = pair->client.inner;
    enum muster_rc rc;

    memset(&handshake, 0x5a, sizeof(handshake));
    before = handshake;
    pair->client.inner = NULL;
    rc = muster_tls_handshake_start(&handshake, tls, inner, options,
                                    muster_loop_after_ns(pair->test.env.loop, MUSTER_NS_PER_S),
                                    on_nothing);
    pair->test.mem.fail_at = 0;
    if (rc == MUSTER_OK) {
        muster_tls_handshake_cancel(&handshake);
        return rc;
    }
    assert_memory_equal(&handshake, &before, sizeof(before));
    assert_false(muster_tls_is_shared(tls));
    return rc;
}

static void a_handshake_that_cannot_begin_closes_the_connection(void **state)
{
    struct tls_pair *pair = *state;
    char long_name[257];
    struct {
        const char *name;
        struct muster_tls *tls;
        struct muster_tls_handshake_options options;
        uint64_t fail_at;
        enum muster_rc rc;
    } rows[] = {
        {"a server without a certificate", pair->client_tls, as_server, 0,
         MUSTER_FAILED_PRECONDITION},
        {"the first allocation", pair->client_tls, as_client, 1, MUSTER_RESOURCE_EXHAUSTED},
        {"the second", pair->client_tls, as_client, 2, MUSTER_RESOURCE_EXHAUSTED},
        {"the first of a server", pair->server_tls, as_server, 1, MUSTER_RESOURCE_EXHAUSTED},
        {"the second of a server", pair->server_tls, as_server, 2, MUSTER_RESOURCE_EXHAUSTED},
        {"no name of the server",
         pair->client_tls,
         {.protocols = "h2"},
         0,
         MUSTER_RESOURCE_EXHAUSTED},
        {"an empty name",
         pair->client_tls,
         {.server_name = "", .protocols = "h2"},
         0,
         MUSTER_RESOURCE_EXHAUSTED},
        {"a name that is too long",
         pair->client_tls,
         {.server_name = long_name, .protocols = "h2"},
         0,
         MUSTER_RESOURCE_EXHAUSTED},
        {"a protocol without a name",
         pair->client_tls,
         {.server_name = "a", .protocols = "h2,,x"},
         0,
         MUSTER_RESOURCE_EXHAUSTED},
        {"more protocols than there is room for",
         pair->client_tls,
         {.server_name = "a",
          .protocols = "0123456789,0123456789,0123456789,0123456789,0123456789,012345678"},
         0,
         MUSTER_RESOURCE_EXHAUSTED},
        {"more protocols of a server",
         pair->server_tls,
         {.is_server = true,
          .protocols = "0123456789,0123456789,0123456789,0123456789,0123456789,012345678"},
         0,
         MUSTER_RESOURCE_EXHAUSTED},
    };

    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum muster_rc rc;

        pair->test.mem.fail_at = rows[i].fail_at;
        rc = start_in_vain(pair, rows[i].tls, &rows[i].options);
        fail_if(rc != rows[i].rc, "%s: %s", rows[i].name, muster_rc_name(rc));
        test_env_run_until(&pair->test.env, is_ended, &pair->fds[1]);
        tls_pair_again(pair);
    }
}

static void protocols_fill_their_room(void **state)
{
    struct tls_pair *pair = *state;
    const struct muster_tls_handshake_options client = {
        .server_name = "localhost",
        .protocols = "0123456789,0123456789,0123456789,0123456789,0123456789,h2,x1234"};

    tls_pair_start(pair, &pair->client, pair->client_tls, &client, 60 * MUSTER_NS_PER_S);
    tls_pair_start(pair, &pair->server, pair->server_tls, &as_server, 60 * MUSTER_NS_PER_S);
    tls_pair_wait(pair, &pair->client);
    tls_pair_wait(pair, &pair->server);

    assert_int_equal(pair->client.rc, MUSTER_OK);
    assert_string_equal(muster_tls_stream_protocol(pair->client.stream), "h2");
}

/* A handshake struct that was used before. */
static void who_is_not_let_in_gets_no_stream(void **state)
{
    struct tls_pair *pair = *state;
    struct tls_side *side = &pair->client;
    char name[256]; /* as long as one may be */
    const struct muster_tls_handshake_options options = {.server_name = name, .protocols = "h2"};

    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    side->handshake.stream = side->inner;
    side->handshake.is_unheard = true;
    side->handshake.error.rc = MUSTER_INTERNAL;
    tls_pair_start(pair, side, pair->client_tls, &options, 60 * MUSTER_NS_PER_S);
    assert_string_equal(side->handshake.tls_stream->engine->server_name, name);
    muster_tls_handshake_cancel(&side->handshake);
    tls_pair_wait(pair, side);

    assert_int_equal(side->rc, MUSTER_CANCELLED);
    assert_null(side->stream);
    assert_int_equal(side->error.rc, MUSTER_CANCELLED);
    assert_false(side->handshake.is_unheard);
}

/* A peer that has said nothing cannot be held to speak plain text. */
static void a_failure_of_our_own_is_not_the_peer_s(void **state)
{
    struct tls_pair *pair = *state;
    struct tls_side *side = &pair->client;
    SSL *ssl;

    tls_pair_start(pair, side, pair->client_tls, &as_client, 60 * MUSTER_NS_PER_S);
    ssl = side->handshake.tls_stream->engine->ssl;
    assert_int_equal(SSL_set_ciphersuites(ssl, ""), 1);
    assert_int_equal(SSL_set_min_proto_version(ssl, TLS1_3_VERSION), 1);
    tls_pair_wait(pair, side);

    assert_int_equal(side->rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(side->error.text, "no ciphers available"));
}

/* The first byte tells (RFC 8446 5.1, RFC 9113 3.4 and 4.1). */
static void the_first_byte_tells_plain_text(void **state)
{
    static const struct {
        const char *name;
        bool is_server; /* hears it */
        const char *bytes;
        size_t count;
        bool is_plain;
    } rows[] = {
        {"HTTP/2 of a client", true, "PRI * HTTP/2.0\r\n", 16, true},
        {"the first letter", true, "A23456789abcdef", 15, true},
        {"the last letter", true, "Z23456789abcdef", 15, true},
        {"before the first", true, "@23456789abcdef", 15, false},
        {"behind the last", true, "[23456789abcdef", 15, false},
        {"small letters", true, "p23456789abcdef", 15, false},
        {"a server's words to a server", true, "\0\0\x12\4\0\0\0\0\0abcdef", 15, false},
        {"HTTP/1.1 of a server", false, "HTTP/1.1 200 OK\r\n", 17, true},
        {"HTTP/2 of a server", false, "\0\0\x12\4\0\0\0\0\0abcdef", 15, true},
        {"another letter", false, "GTTP/1.1 200 OK\r\n", 17, false},
        {"another length", false, "\1\0\x12\4\0\0\0\0\0abcdef", 15, false},
    };
    struct tls_pair *pair = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tls_side *side = rows[i].is_server ? &pair->server : &pair->client;
        struct tls_side *other = rows[i].is_server ? &pair->client : &pair->server;
        int fd = dup(pair->fds[rows[i].is_server ? 0 : 1]);
        const char *words = "the peer speaks plain text";

        assert_int_equal(send(fd, rows[i].bytes, rows[i].count, MSG_NOSIGNAL), rows[i].count);
        tls_pair_start(pair, side, rows[i].is_server ? pair->server_tls : pair->client_tls,
                       rows[i].is_server ? &as_server : &as_client, 60 * MUSTER_NS_PER_S);
        tls_pair_wait(pair, side);
        fail_if((side->rc == MUSTER_FAILED_PRECONDITION) != rows[i].is_plain ||
                    (strstr(side->error.text, words) != NULL) != rows[i].is_plain,
                "%s: %s", rows[i].name, side->error.text);
        assert_false(side->handshake.is_unheard);
        assert_non_null(other->inner);
        close(fd);
        tls_pair_again(pair);
    }
}

/* Whether the peer has said anything decides whether another address is tried. */
static void a_peer_that_ends_without_a_word_is_unheard(void **state)
{
    static const struct {
        const char *bytes;
        size_t count;
        bool is_unheard;
    } rows[] = {{"", 0, true}, {"\x16", 1, false}};
    struct tls_pair *pair = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int fd = dup(pair->fds[1]);

        assert_int_equal(send(fd, rows[i].bytes, rows[i].count, MSG_NOSIGNAL), rows[i].count);
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        tls_pair_start(pair, &pair->client, pair->client_tls, &as_client, 60 * MUSTER_NS_PER_S);
        tls_pair_wait(pair, &pair->client);

        assert_int_equal(pair->client.rc, MUSTER_UNAVAILABLE);
        assert_true(pair->client.handshake.is_unheard == rows[i].is_unheard);
        close(fd);
        tls_pair_again(pair);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_handshake_that_cannot_begin_closes_the_connection),
        CASE(protocols_fill_their_room),
        CASE(who_is_not_let_in_gets_no_stream),
        CASE(a_failure_of_our_own_is_not_the_peer_s),
        CASE(the_first_byte_tells_plain_text),
        CASE(a_peer_that_ends_without_a_word_is_unheard),
    };

    return cmocka_run_group_tests_name("tls_handshake_start", tests, NULL, NULL);
}
