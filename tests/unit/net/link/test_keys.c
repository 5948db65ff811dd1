/* Keys of control links: of whom, how many, where they come from, and that they are wiped. */
#include <string.h>

#include "net/link/keys.h"
#include "net/tls/openssl.h"
#include "net/tls/stream_internal.h"
#include "tests/lib/assertion_count.h"
#include "tests/lib/fake_authority.h"
#include "tests/lib/link_pair.h"
#include "tests/lib/secret_mem.h"
#include "tests/lib/secret_stack.h"
#include "tests/lib/tls_pair.h"
#include "tests/lib/uninstrumented.h"

static const struct muster_incarnation a = {.bytes = {1}}, b = {.bytes = {2}};

static bool has_key(const struct muster_link_keys *keys, const struct muster_incarnation *peer,
                    uint8_t name)
{
    const struct muster_link_key key = link_pair_key_of(name);
    const struct muster_link_key *found = muster_link_keys_find(keys, peer, key.id);

    if (found != NULL)
        assert_memory_equal(found, &key, sizeof(key));
    return found != NULL;
}

/* names: of the keys that are listed, the newest first. */
static void check_list(const struct muster_link_keys *keys, const struct muster_incarnation *peer,
                       const uint8_t names[MUSTER_LINK_KEYS_PER_PEER])
{
    uint8_t ids[(MUSTER_LINK_KEYS_PER_PEER + 1) * MUSTER_LINK_KEY_ID_BYTES];
    size_t count = MUSTER_LINK_KEYS_PER_PEER * MUSTER_LINK_KEY_ID_BYTES;

    memset(ids, 0xee, sizeof(ids));
    muster_link_keys_list(keys, peer, ids);
    for (size_t i = 0; i < sizeof(ids); i++)
        assert_int_equal(ids[i], i < count ? names[i / MUSTER_LINK_KEY_ID_BYTES] : 0xee);
}

static void of_each_peer_the_newest_four_are_kept(void **state)
{
    struct test_env test;
    struct muster_link_keys *keys;

    (void)state;
    test_env_open(&test);
    keys = muster_link_keys_new(test.env.mem);
    check_list(keys, &a, (const uint8_t[]){0, 0, 0, 0});
    assert_false(muster_link_keys_has(keys, &a) || has_key(keys, &a, 1));
    link_pair_put_key(keys, &a, 1);
    link_pair_put_key(keys, &b, 9);
    check_list(keys, &a, (const uint8_t[]){1, 0, 0, 0});
    assert_false(has_key(keys, &a, 0)); /* the name of a place without a key */
    for (uint8_t name = 2; name <= 5; name++)
        link_pair_put_key(keys, &a, name);

    check_list(keys, &a, (const uint8_t[]){5, 4, 3, 2});
    check_list(keys, &b, (const uint8_t[]){9, 0, 0, 0});
    assert_true(muster_link_keys_has(keys, &a) && muster_link_keys_has(keys, &b));
    for (uint8_t name = 2; name <= 5; name++)
        assert_true(has_key(keys, &a, name) && !has_key(keys, &b, name));
    assert_false(has_key(keys, &a, 1) || has_key(keys, &a, 9));
    assert_true(has_key(keys, &b, 9));
    muster_link_keys_free(keys);
    test_env_close(&test);
}

static void names_of_keys_and_peers_are_compared_whole(void **state)
{
    struct test_env test;
    struct muster_link_keys *keys;

    (void)state;
    test_env_open(&test);
    keys = muster_link_keys_new(test.env.mem);
    link_pair_put_key(keys, &a, 1);
    for (size_t i = 0; i < MUSTER_LINK_KEY_ID_BYTES; i++) {
        struct muster_link_key key = link_pair_key_of(1);

        key.id[i] ^= 0x80;
        assert_null(muster_link_keys_find(keys, &a, key.id));
    }
    for (size_t i = 0; i < sizeof(a.bytes); i++) {
        struct muster_incarnation peer = a;

        peer.bytes[i] ^= 0x80;
        assert_false(muster_link_keys_has(keys, &peer) || has_key(keys, &peer, 1));
    }
    assert_true(has_key(keys, &a, 1));
    muster_link_keys_free(keys);
    test_env_close(&test);
}

static void without_memory_there_is_no_key(void **state)
{
    const struct muster_link_key key = link_pair_key_of(1);
    struct test_env test;
    struct muster_link_keys *keys;

    (void)state;
    test_env_open(&test);
    test.mem.fail_at = 1;
    assert_null(muster_link_keys_new(test.env.mem));
    keys = muster_link_keys_new(test.env.mem);
    test.mem.fail_at = 1;

    assert_int_equal(muster_link_keys_put(keys, &a, &key), MUSTER_RESOURCE_EXHAUSTED);
    assert_false(muster_link_keys_has(keys, &a));
    muster_link_keys_free(keys);
    muster_link_keys_free(NULL);
    test_env_close(&test);
}

static void keys_are_wiped(void **state)
{
    const struct muster_link_key key = link_pair_key_of(7);
    struct test_env test;
    struct secret_mem memory;
    struct muster_link_keys *keys;

    (void)state;
    test_env_open(&test);
    secret_mem_init(&memory, test.env.mem, key.secret, sizeof(key.secret));
    keys = muster_link_keys_new(&memory.mem);
    link_pair_put_key(keys, &a, 7);
    link_pair_put_key(keys, &a, 8);
    assert_true(secret_mem_is_held(&memory));
    muster_link_keys_free(keys);

    assert_int_equal(memory.leaked_count, 0);
    test_env_close(&test);
}

/* Learning one from a connection. */

struct session {
    struct tls_pair pair;
    struct muster_tls *server, *client;
    struct muster_link_keys *keys;
    enum muster_rc rc;
};

static SSL *ssl_of(struct tls_side *side)
{
    return side->handshake.tls_stream->engine->ssl;
}

static void session_open(struct session *session, int version_max, uint64_t options)
{
    struct fake_authority *authority = fake_authority_new("authority");
    const struct muster_tls_handshake_options server = {.is_server = true, .protocols = "h2"};
    const struct muster_tls_handshake_options client = {.server_name = "localhost",
                                                        .protocols = "h2"};
    struct tls_pair *pair = &session->pair;
    struct fake_cert cert;

    tls_pair_open(pair);
    assert_true(fake_cert_init(
        &cert, authority,
        &(struct fake_cert_options){.name = "server", .alt_names = "DNS:localhost"}));
    assert_int_equal(muster_tls_open(&pair->test.env,
                                     &(struct muster_tls_options){.cert_pem = cert.cert_pem,
                                                                  .key_pem = cert.key_pem},
                                     &session->server, NULL),
                     MUSTER_OK);
    assert_int_equal(
        muster_tls_open(&pair->test.env,
                        &(struct muster_tls_options){.ca_pem = fake_authority_pem(authority)},
                        &session->client, NULL),
        MUSTER_OK);
    tls_pair_start(pair, &pair->client, session->client, &client, 60 * MUSTER_NS_PER_S);
    tls_pair_start(pair, &pair->server, session->server, &server, 60 * MUSTER_NS_PER_S);
    assert_int_equal(SSL_set_max_proto_version(ssl_of(&pair->client), version_max), 1);
    SSL_set_options(ssl_of(&pair->client), options);
    tls_pair_wait(pair, &pair->client);
    tls_pair_wait(pair, &pair->server);
    assert_int_equal(pair->client.rc, MUSTER_OK);
    session->keys = muster_link_keys_new(pair->test.env.mem);
    fake_cert_fini(&cert);
    fake_authority_free(authority);
}

static void session_close(struct session *session)
{
    muster_link_keys_free(session->keys);
    muster_tls_close(session->server);
    muster_tls_close(session->client);
    tls_pair_close(&session->pair);
}

static const struct muster_link_key_names names = {.job = "job", .opener = &a, .acceptor = &b};

static void learn_key(void *data)
{
    struct session *session = data;

    session->rc = muster_link_keys_learn(session->keys, &b, session->pair.client.stream, &names);
}

static void check_learnt(const struct muster_link_keys *keys, const uint8_t expected[40])
{
    const struct muster_link_key *key = muster_link_keys_find(keys, &b, expected + 32);

    assert_non_null(key);
    assert_memory_equal(key->secret, expected, 32);
}

/* RFC 5705: 32 bytes of the key, then 8 that name it. The label never changes: another version of
 * muster could not take part. */
static void a_key_is_of_one_session_one_job_and_both_ends(void **state)
{
    static const char label[] = "EXPORTER-muster-link job 01000000000000000000000000000000 "
                                "02000000000000000000000000000000";
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    uint8_t expected[40];

    (void)state;
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        struct session session;
        SSL *server;

        session_open(&session, versions[i], 0);
        server = muster_tls_stream_of(session.pair.server.stream)->engine->ssl;
        assert_int_equal(SSL_version(server), versions[i]);
        assert_int_equal(SSL_export_keying_material(server, expected, sizeof(expected), label,
                                                    strlen(label), NULL, 0, 0),
                         1);
        learn_key(&session);

        assert_int_equal(session.rc, MUSTER_OK);
        check_learnt(session.keys, expected);
        session_close(&session);
    }
}

/* RFC 7627: two sessions of TLS 1.2 can be made to have the same keys. */
static void a_session_that_may_have_a_twin_gives_no_key(void **state)
{
    struct session session;

    (void)state;
    session_open(&session, TLS1_2_VERSION, SSL_OP_NO_EXTENDED_MASTER_SECRET);
    learn_key(&session);

    assert_int_equal(session.rc, MUSTER_FAILED_PRECONDITION);
    assert_false(muster_link_keys_has(session.keys, &b));
    session_close(&session);
}

static void what_is_learnt_is_not_left_on_the_stack(void **state)
{
    uint8_t expected[40];
    struct muster_link_key key;
    struct secret_stack stack;
    struct session session;

    (void)state;
    if (HAS_THREAD_SANITIZER)
        skip_with_reason("the thread sanitizer overwrites what this case looks for on the stack");
    session_open(&session, TLS1_3_VERSION, 0);
    secret_stack_run(&stack, learn_key, &session);
    assert_int_equal(session.rc, MUSTER_OK);
    muster_link_keys_list(session.keys, &b, expected);
    key = *muster_link_keys_find(session.keys, &b, expected);

    assert_false(secret_stack_holds(&stack, key.secret, sizeof(key.secret)));
    assert_true(secret_stack_holds(&stack, "EXPORTER-muster-link job", 24)); /* the right place */
    secret_stack_free(&stack);
    session_close(&session);
}

static void without_memory_nothing_is_learnt(void **state)
{
    struct session session;

    (void)state;
    session_open(&session, TLS1_3_VERSION, 0);
    session.pair.test.mem.fail_at = 1;
    learn_key(&session);
    session.pair.test.mem.fail_at = 0;

    assert_int_equal(session.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_false(muster_link_keys_has(session.keys, &b));
    session_close(&session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_each_peer_the_newest_four_are_kept),
        cmocka_unit_test(names_of_keys_and_peers_are_compared_whole),
        cmocka_unit_test(without_memory_there_is_no_key),
        cmocka_unit_test(keys_are_wiped),
        cmocka_unit_test(a_key_is_of_one_session_one_job_and_both_ends),
        cmocka_unit_test(a_session_that_may_have_a_twin_gives_no_key),
        cmocka_unit_test(what_is_learnt_is_not_left_on_the_stack),
        cmocka_unit_test(without_memory_nothing_is_learnt),
    };

    return cmocka_run_group_tests_name("link_keys", tests, NULL, NULL);
}
