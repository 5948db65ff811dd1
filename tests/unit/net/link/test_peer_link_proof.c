/* Links in plain text between members that have a key of their control link: both prove who they
 * are, and nobody else gets in, whatever he has heard on the wire. */
#include "link_pair.h"

#include <stdlib.h>
#include <string.h>

#define KEY_1 1 /* of the two ends */
#define OTHER 9 /* of whoever else */

/* Two processes; the first means to reach the second. */
static void open_ends(struct link_pair *pair)
{
    link_pair_init(pair);
    for (size_t i = 0; i < 2; i++) {
        pair->hellos[i].keys = muster_link_keys_new(pair->test.env.mem);
        assert_non_null(pair->hellos[i].keys);
    }
    pair->hellos[0].target = pair->hellos[1].incarnation;
}

static void give_both(struct link_pair *pair, uint8_t name)
{
    for (size_t i = 0; i < 2; i++)
        link_pair_put_key(pair->hellos[i].keys, &pair->hellos[1 - i].incarnation, name);
}

static void close_ends(struct link_pair *pair)
{
    for (size_t i = 0; i < 2; i++)
        muster_link_keys_free(pair->hellos[i].keys);
    link_pair_close(pair);
}

static void check_meet(struct link_pair *pair)
{
    static struct link_sent sent; /* until the link is closed */

    link_pair_connect(pair);
    link_sent_init(&sent, 1, "payload", 7);
    link_pair_send_frame(pair, &sent);
    test_env_run_until(&pair->test.env, link_pair_is_settled, pair);
    link_pair_await_payloads(pair, 1);

    assert_true(pair->ends[0].is_ready && pair->ends[1].is_ready);
    assert_memory_equal(pair->ends[1].payloads[0], "payload", 7);
    assert_int_equal(muster_peer_link_hello(pair->ends[1].link)->stripe, 3);
}

static void members_with_a_common_key_meet(void **state)
{
    struct link_pair pair;

    (void)state;
    open_ends(&pair);
    give_both(&pair, KEY_1);

    check_meet(&pair);
    close_ends(&pair);
}

/* A control link that only one side has noticed. */
static void any_of_the_last_keys_will_do(void **state)
{
    struct link_pair pair;

    (void)state;
    open_ends(&pair);
    give_both(&pair, KEY_1);
    for (uint8_t i = 0; i < MUSTER_LINK_KEYS_PER_PEER - 1; i++) {
        link_pair_put_key(pair.hellos[0].keys, &pair.hellos[1].incarnation, (uint8_t)(20 + i));
        link_pair_put_key(pair.hellos[1].keys, &pair.hellos[0].incarnation, (uint8_t)(30 + i));
    }

    check_meet(&pair);
    close_ends(&pair);
}

/* Names of keys are compared whole: the newer one, whose name begins alike, is not the common one. */
static void keys_are_told_apart_by_all_of_their_names(void **state)
{
    struct link_pair pair;
    struct muster_link_key alike = link_pair_key_of(OTHER);

    (void)state;
    memset(alike.id, KEY_1, sizeof(alike.id));
    alike.id[sizeof(alike.id) - 1] ^= 1;
    open_ends(&pair);
    give_both(&pair, KEY_1);
    assert_int_equal(muster_link_keys_put(pair.hellos[1].keys, &pair.hellos[0].incarnation, &alike),
                     MUSTER_OK);

    check_meet(&pair);
    close_ends(&pair);
}

static void an_older_key_is_forgotten(void **state)
{
    struct link_pair pair;

    (void)state;
    open_ends(&pair);
    give_both(&pair, KEY_1);
    for (uint8_t i = 0; i < MUSTER_LINK_KEYS_PER_PEER; i++)
        link_pair_put_key(pair.hellos[1].keys, &pair.hellos[0].incarnation, (uint8_t)(30 + i));
    link_pair_connect(&pair);
    test_env_run_until(&pair.test.env, link_pair_is_settled, &pair);

    assert_int_equal(pair.ends[1].error.rc, MUSTER_UNAUTHENTICATED);
    close_ends(&pair);
}

static void without_a_key_nobody_connects(void **state)
{
    struct link_pair pair;

    (void)state;
    open_ends(&pair);
    link_pair_put_key(pair.hellos[0].keys, &pair.hellos[0].incarnation,
                      KEY_1); /* of somebody else */

    assert_int_equal(muster_peer_link_open(&pair.test.env, muster_listener_address(pair.listener),
                                           &pair.hellos[0], link_pair_soon(&pair),
                                           &link_pair_events, &pair.ends[0], &pair.ends[0].link),
                     MUSTER_FAILED_PRECONDITION);
    close_ends(&pair);
}

/* --- A stranger plays one side, byte by byte --- */

struct hearing {
    bool is_done;
    enum muster_rc rc;
};

static void on_done_read(struct muster_stream_read *read, enum muster_rc rc)
{
    *(struct hearing *)read->data = (struct hearing){.is_done = true, .rc = rc};
}

/* OK: so many bytes have come. */
static enum muster_rc raw_hear(struct link_pair *pair, void *bytes, size_t count)
{
    struct hearing hearing = {.is_done = false};
    struct muster_stream_read read = {.data = &hearing};

    assert_int_equal(
        muster_stream_receive_into(&read, pair->raw, bytes, count, count, on_done_read), MUSTER_OK);
    test_env_run_until(&pair->test.env, test_env_is_true, &hearing.is_done);
    return hearing.rc;
}

/* A stand-in says what the true opener would say to the second end, from its own keys. */
struct opener {
    struct muster_link_proof proof;
    struct muster_peer_hello hello;
    uint8_t answered[MUSTER_LINK_ANSWERED_BYTES + MUSTER_LINK_MAC_BYTES];
};

static void opener_asks(struct link_pair *pair, struct opener *opener)
{
    link_pair_dial(pair);
    muster_link_proof_ask(&opener->proof, &pair->test.env, &opener->hello);
    link_pair_say(pair, opener->proof.asked, sizeof(opener->proof.asked));
}

static enum muster_rc opener_hears(struct link_pair *pair, struct opener *opener)
{
    return raw_hear(pair, opener->answered, sizeof(opener->answered));
}

/* The opener asks, and believes the answer: its own proof is in proof.opener_mac. */
static void opener_proves(struct link_pair *pair, struct opener *opener)
{
    opener_asks(pair, opener);
    assert_int_equal(opener_hears(pair, opener), MUSTER_OK);
    assert_int_equal(
        muster_link_proof_return(&opener->proof, &opener->hello, opener->answered, NULL),
        MUSTER_OK);
}

/* Its proof, and a frame behind it that must not be believed. */
static void opener_says(struct link_pair *pair, const uint8_t mac[MUSTER_LINK_MAC_BYTES])
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE};
    uint8_t bytes[MUSTER_LINK_MAC_BYTES + MUSTER_FRAME_HEADER_BYTES];

    memcpy(bytes, mac, MUSTER_LINK_MAC_BYTES);
    muster_frame_header_pack(&header, bytes + MUSTER_LINK_MAC_BYTES);
    link_pair_say(pair, bytes, sizeof(bytes));
    test_env_run_until(&pair->test.env, link_pair_is_settled, pair);
    test_env_turn(&pair->test.env, 10);
}

static void scene_open(struct link_pair *pair, struct opener *opener)
{
    open_ends(pair);
    give_both(pair, KEY_1);
    pair->ends[1].discards = true;
    memset(opener, 0, sizeof(*opener));
    opener->hello = pair->hellos[0];
    opener->hello.version = MUSTER_PEER_VERSION;
}

static void check_refused(const struct link_pair *pair, const char *row, enum muster_rc rc)
{
    if (pair->ends[1].is_ready || pair->ends[1].asked_count > 0 || pair->ends[1].error.rc != rc)
        fail_msg("%s: ready %d, frames %u, %d %s", row, pair->ends[1].is_ready,
                 pair->ends[1].asked_count, (int)pair->ends[1].error.rc, pair->ends[1].error.text);
}

/* The case below leaves this out: the stand-in is let in when it knows the key. */
static void the_played_opener_is_let_in_when_it_has_the_key(void **state)
{
    struct link_pair pair;
    struct opener opener;

    (void)state;
    scene_open(&pair, &opener);
    opener_proves(&pair, &opener);
    opener_says(&pair, opener.proof.opener_mac);

    assert_true(pair.ends[1].is_ready);
    assert_int_equal(pair.ends[1].asked_count, 1);
    close_ends(&pair);
}

static void change_job(struct link_pair *pair, struct opener *opener)
{
    (void)pair;
    snprintf(opener->hello.job, sizeof(opener->hello.job), "other");
}

static void be_the_acceptor(struct link_pair *pair, struct opener *opener)
{
    opener->hello.incarnation = pair->hellos[1].incarnation;
}

static void ask_for_control(struct link_pair *pair, struct opener *opener)
{
    (void)pair;
    opener->hello.purpose = MUSTER_LINK_CONTROL;
}

static void mean_another(struct link_pair *pair, struct opener *opener)
{
    opener->hello.target.bytes[0] = 7;
    link_pair_put_key(pair->hellos[0].keys, &opener->hello.target, KEY_1);
}

static void have_another_key(struct link_pair *pair, struct opener *opener)
{
    struct muster_link_keys *keys = pair->hellos[0].keys;

    for (unsigned i = 0; i < MUSTER_LINK_KEYS_PER_PEER; i++)
        link_pair_put_key(keys, &opener->hello.target, OTHER);
}

static void have_no_key(struct link_pair *pair, struct opener *opener)
{
    (void)pair;
    memset(&opener->hello.target, 0, sizeof(opener->hello.target));
}

static void be_another_member(struct link_pair *pair, struct opener *opener)
{
    opener->hello.incarnation.bytes[0] = 42; /* a member that has a key of its own here */
    link_pair_put_key(pair->hellos[1].keys, &opener->hello.incarnation, OTHER);
}

/* A stranger that is refused by its question does not even hear our hello. */
static void what_a_stranger_asks_for_is_refused(void **state)
{
    static const struct {
        const char *row;
        void (*change)(struct link_pair *pair, struct opener *opener);
        enum muster_rc rc;
    } rows[] = {
        {"another job", change_job, MUSTER_FAILED_PRECONDITION},
        {"the hello of who accepts, sent back", be_the_acceptor, MUSTER_FAILED_PRECONDITION},
        {"a control link", ask_for_control, MUSTER_UNAUTHENTICATED},
        {"meant for another", mean_another, MUSTER_FAILED_PRECONDITION},
        {"no key", have_no_key, MUSTER_UNAUTHENTICATED},
        {"the key of another job", have_another_key, MUSTER_UNAUTHENTICATED},
        {"a key of one pair for another", be_another_member, MUSTER_UNAUTHENTICATED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct link_pair pair;
        struct opener opener;
        struct hearing hearing;
        uint8_t first;

        scene_open(&pair, &opener);
        rows[i].change(&pair, &opener);
        opener_asks(&pair, &opener);
        hearing.rc = raw_hear(&pair, &first, 1);
        test_env_run_until(&pair.test.env, link_pair_is_settled, &pair);

        if (hearing.rc == MUSTER_OK)
            fail_msg("%s: was answered", rows[i].row);
        check_refused(&pair, rows[i].row, rows[i].rc);
        close_ends(&pair);
    }
}

static void forge_nothing(const struct opener *opener, uint8_t mac[MUSTER_LINK_MAC_BYTES])
{
    (void)opener;
    memset(mac, 0, MUSTER_LINK_MAC_BYTES);
}

static void forge_first_bit(const struct opener *opener, uint8_t mac[MUSTER_LINK_MAC_BYTES])
{
    memcpy(mac, opener->proof.opener_mac, MUSTER_LINK_MAC_BYTES);
    mac[0] ^= 1;
}

static void forge_last_bit(const struct opener *opener, uint8_t mac[MUSTER_LINK_MAC_BYTES])
{
    memcpy(mac, opener->proof.opener_mac, MUSTER_LINK_MAC_BYTES);
    mac[MUSTER_LINK_MAC_BYTES - 1] ^= 0x80;
}

static void forge_reflected(const struct opener *opener, uint8_t mac[MUSTER_LINK_MAC_BYTES])
{
    memcpy(mac, opener->answered + MUSTER_LINK_ANSWERED_BYTES, MUSTER_LINK_MAC_BYTES);
}

/* All that it names it has heard on the wire, the key's name too; the key it has not. */
static void forge_by_another_secret(const struct opener *opener, uint8_t mac[MUSTER_LINK_MAC_BYTES])
{
    const struct muster_link_key other = link_pair_key_of(OTHER);
    struct muster_link_proof proof = opener->proof;

    proof.role = 'o';
    memcpy(proof.answered, opener->answered, sizeof(proof.answered));
    assert_int_equal(muster_crypto_hmac_sha256(other.secret, sizeof(other.secret), &proof,
                                               offsetof(struct muster_link_proof, answered_mac),
                                               mac),
                     MUSTER_OK);
}

static void a_proof_that_is_none_is_refused(void **state)
{
    static const struct {
        const char *row;
        void (*forge)(const struct opener *opener, uint8_t mac[MUSTER_LINK_MAC_BYTES]);
    } rows[] = {
        {"nothing", forge_nothing},
        {"the first bit", forge_first_bit},
        {"the last bit", forge_last_bit},
        {"the acceptor's own, sent back", forge_reflected},
        {"the right names, another key", forge_by_another_secret},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct link_pair pair;
        struct opener opener;
        uint8_t mac[MUSTER_LINK_MAC_BYTES];

        scene_open(&pair, &opener);
        opener_proves(&pair, &opener);
        rows[i].forge(&opener, mac);
        opener_says(&pair, mac);

        check_refused(&pair, rows[i].row, MUSTER_UNAUTHENTICATED);
        close_ends(&pair);
    }
}

/* All that a member has said on one connection, said again on the next. */
static void a_replay_is_refused(void **state)
{
    struct link_pair pair;
    struct opener opener, again;

    (void)state;
    scene_open(&pair, &opener);
    opener_proves(&pair, &opener);
    opener_says(&pair, opener.proof.opener_mac);
    assert_true(pair.ends[1].is_ready);
    muster_peer_link_close(pair.ends[1].link);
    memset(&pair.ends[1], 0, sizeof(pair.ends[1]));
    pair.ends[1].discards = true;

    link_pair_dial(&pair);
    again = opener;
    link_pair_say(&pair, again.proof.asked, sizeof(again.proof.asked));
    assert_int_equal(opener_hears(&pair, &again), MUSTER_OK);
    opener_says(&pair, opener.proof.opener_mac);

    check_refused(&pair, "replay", MUSTER_UNAUTHENTICATED);
    assert_true(memcmp(opener.answered, again.answered, sizeof(opener.answered)) != 0);
    close_ends(&pair);
}

/* Somebody in between changes one byte of the opener's hello, its nonce or its keys' names. */
static void every_byte_that_the_opener_has_said_is_proven(void **state)
{
    (void)state;
    for (size_t at = 0; at < MUSTER_LINK_ASKED_BYTES; at++) {
        struct link_pair pair;
        struct opener opener;
        struct muster_link_proof said;
        char row[32];

        scene_open(&pair, &opener);
        link_pair_dial(&pair);
        muster_link_proof_ask(&opener.proof, &pair.test.env, &opener.hello);
        said = opener.proof;
        said.asked[at] ^= 4;
        link_pair_say(&pair, said.asked, sizeof(said.asked));
        if (opener_hears(&pair, &opener) == MUSTER_OK) {
            /* The true opener does not believe the answer; were it to: */
            assert_int_equal(
                muster_link_proof_return(&opener.proof, &opener.hello, opener.answered, NULL),
                MUSTER_UNAUTHENTICATED);
            opener_says(&pair, opener.proof.opener_mac);
        }
        test_env_run_until(&pair.test.env, link_pair_is_settled, &pair);

        snprintf(row, sizeof(row), "byte %zu", at);
        check_refused(&pair, row, pair.ends[1].error.rc);
        assert_true(pair.ends[1].is_down);
        close_ends(&pair);
    }
}

/* A stranger says hello as if nothing had to be proven, and waits. */
static void a_hello_without_a_proof_ends_at_the_deadline(void **state)
{
    struct link_pair pair;
    struct opener opener;

    (void)state;
    scene_open(&pair, &opener);
    link_pair_dial(&pair);
    muster_link_proof_ask(&opener.proof, &pair.test.env, &opener.hello);
    link_pair_say(&pair, opener.proof.asked, MUSTER_HELLO_BYTES);
    test_env_turn(&pair.test.env, 10);
    assert_false(link_pair_is_settled(&pair) || pair.ends[1].is_down);
    muster_timer_start(&pair.ends[1].link->timer, pair.test.env.loop, 0);
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[1].is_down);

    check_refused(&pair, "silent", MUSTER_DEADLINE_EXCEEDED);
    close_ends(&pair);
}

/* --- The other way round: somebody sits at the address of a member --- */

struct acceptor {
    struct link_pair *pair;
    struct muster_listener *listener;
    struct muster_link_proof proof;
    uint8_t asked[MUSTER_LINK_ASKED_BYTES];
    uint8_t said[MUSTER_LINK_ANSWERED_BYTES + MUSTER_LINK_MAC_BYTES];
};

static void on_accept_raw(struct muster_listener *listener, struct muster_stream *stream)
{
    struct acceptor *acceptor = listener->data;

    acceptor->pair->raw = stream;
}

static void acceptor_hears(struct link_pair *pair, struct acceptor *acceptor)
{
    struct muster_peer_hello self = pair->hellos[1];
    struct muster_address any;

    memset(acceptor, 0, sizeof(*acceptor));
    acceptor->pair = pair;
    self.version = MUSTER_PEER_VERSION;
    self.purpose = MUSTER_LINK_AS_OPENED;
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(muster_listener_open(pair->test.env.net, &any, NULL, on_accept_raw, acceptor,
                                          &acceptor->listener, NULL),
                     MUSTER_OK);
    assert_int_equal(muster_peer_link_open(&pair->test.env,
                                           muster_listener_address(acceptor->listener),
                                           &pair->hellos[0], link_pair_soon(pair),
                                           &link_pair_events, &pair->ends[0], &pair->ends[0].link),
                     MUSTER_OK);
    link_pair_await_raw(pair);
    assert_int_equal(raw_hear(pair, acceptor->asked, sizeof(acceptor->asked)), MUSTER_OK);
    assert_int_equal(muster_link_proof_answer(&acceptor->proof, &pair->test.env, &self,
                                              &pair->hellos[0].incarnation, acceptor->asked, NULL),
                     MUSTER_OK);
    memcpy(acceptor->said, acceptor->proof.answered, MUSTER_LINK_ANSWERED_BYTES);
    memcpy(acceptor->said + MUSTER_LINK_ANSWERED_BYTES, acceptor->proof.answered_mac,
           MUSTER_LINK_MAC_BYTES);
}

static bool is_opener_settled(void *data)
{
    const struct link_pair *pair = data;

    return pair->ends[0].is_ready || pair->ends[0].is_down;
}

static void acceptor_says(struct link_pair *pair, struct acceptor *acceptor)
{
    link_pair_say(pair, acceptor->said, sizeof(acceptor->said));
    test_env_run_until(&pair->test.env, is_opener_settled, pair);
    muster_listener_close(acceptor->listener, NULL);
}

static void the_played_acceptor_is_believed_when_it_has_the_key(void **state)
{
    struct link_pair pair;
    struct opener unused;
    struct acceptor acceptor;
    uint8_t mac[MUSTER_LINK_MAC_BYTES];

    (void)state;
    scene_open(&pair, &unused);
    acceptor_hears(&pair, &acceptor);
    acceptor_says(&pair, &acceptor);

    assert_true(pair.ends[0].is_ready);
    assert_int_equal(raw_hear(&pair, mac, sizeof(mac)), MUSTER_OK);
    assert_int_equal(muster_link_proof_check(&acceptor.proof, mac, NULL), MUSTER_OK);
    close_ends(&pair);
}

static void every_byte_that_the_acceptor_says_is_proven(void **state)
{
    (void)state;
    for (size_t at = 0; at < sizeof(((struct acceptor *)NULL)->said); at++) {
        struct link_pair pair;
        struct opener unused;
        struct acceptor acceptor;

        scene_open(&pair, &unused);
        acceptor_hears(&pair, &acceptor);
        acceptor.said[at] ^= 4;
        acceptor_says(&pair, &acceptor);

        if (pair.ends[0].is_ready)
            fail_msg("byte %zu", at);
        close_ends(&pair);
    }
}

/* All that a member has answered once, said again by somebody else to the next who asks. */
static void an_answer_is_good_for_one_question(void **state)
{
    struct link_pair pair;
    struct opener unused;
    struct acceptor first, again;

    (void)state;
    scene_open(&pair, &unused);
    acceptor_hears(&pair, &first);
    acceptor_says(&pair, &first);
    assert_true(pair.ends[0].is_ready);
    muster_peer_link_close(pair.ends[0].link);
    memset(&pair.ends[0], 0, sizeof(pair.ends[0]));
    muster_stream_close(pair.raw, NULL);
    pair.raw = NULL;

    acceptor_hears(&pair, &again);
    assert_true(memcmp(first.asked, again.asked, sizeof(first.asked)) != 0);
    memcpy(again.said, first.said, sizeof(again.said));
    acceptor_says(&pair, &again);

    assert_false(pair.ends[0].is_ready);
    assert_int_equal(pair.ends[0].error.rc, MUSTER_UNAUTHENTICATED);
    close_ends(&pair);
}

static void what_was_asked_sent_back_is_no_answer(void **state)
{
    struct link_pair pair;
    struct opener unused;
    struct acceptor acceptor;

    (void)state;
    scene_open(&pair, &unused);
    acceptor_hears(&pair, &acceptor);
    memset(acceptor.said, 0, sizeof(acceptor.said));
    memcpy(acceptor.said, acceptor.asked, sizeof(acceptor.asked));
    acceptor_says(&pair, &acceptor);

    assert_true(pair.ends[0].is_down);
    close_ends(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_with_a_common_key_meet),
        cmocka_unit_test(any_of_the_last_keys_will_do),
        cmocka_unit_test(keys_are_told_apart_by_all_of_their_names),
        cmocka_unit_test(an_older_key_is_forgotten),
        cmocka_unit_test(without_a_key_nobody_connects),
        cmocka_unit_test(the_played_opener_is_let_in_when_it_has_the_key),
        cmocka_unit_test(what_a_stranger_asks_for_is_refused),
        cmocka_unit_test(a_proof_that_is_none_is_refused),
        cmocka_unit_test(a_replay_is_refused),
        cmocka_unit_test(every_byte_that_the_opener_has_said_is_proven),
        cmocka_unit_test(a_hello_without_a_proof_ends_at_the_deadline),
        cmocka_unit_test(the_played_acceptor_is_believed_when_it_has_the_key),
        cmocka_unit_test(every_byte_that_the_acceptor_says_is_proven),
        cmocka_unit_test(an_answer_is_good_for_one_question),
        cmocka_unit_test(what_was_asked_sent_back_is_no_answer),
    };

    return cmocka_run_group_tests_name("peer_link_proof", tests, NULL, NULL);
}
