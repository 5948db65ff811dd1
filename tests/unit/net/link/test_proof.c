/* Proofs of members to each other, as values: no connection. What is refused on the wire is in
 * test_peer_link_proof.c. */
#include "torture.h"

#include <string.h>

#include "net/link/proof.h"
#include "openssl_memory.h"

#define IDS_AT (MUSTER_HELLO_BYTES + MUSTER_LINK_NONCE_BYTES)

/* Two members, and what they say to each other. */
struct scene {
    struct test_env test;
    struct muster_peer_hello hellos[2];
    struct muster_link_proof opener, acceptor;
    uint8_t answered[MUSTER_LINK_ANSWERED_BYTES + MUSTER_LINK_MAC_BYTES];
    struct muster_error error;
};

/* The secret differs from the name, as it does in a control link. */
static void give_key(struct scene *scene, size_t end, uint8_t name)
{
    struct muster_link_key key;

    memset(key.id, name, sizeof(key.id));
    memset(key.secret, name + 100, sizeof(key.secret));
    assert_int_equal(
        muster_link_keys_put(scene->hellos[end].keys, &scene->hellos[1 - end].incarnation, &key),
        MUSTER_OK);
}

static int set_up(void **state)
{
    static struct scene scene;

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    for (size_t i = 0; i < 2; i++) {
        struct muster_peer_hello *hello = &scene.hellos[i];

        strcpy(hello->job, "job");
        hello->incarnation.bytes[0] = (uint8_t)(i + 1);
        hello->version = MUSTER_PEER_VERSION;
        hello->purpose = MUSTER_LINK_DATA;
        hello->keys = muster_link_keys_new(scene.test.env.mem);
    }
    scene.hellos[0].target = scene.hellos[1].incarnation;
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    for (size_t i = 0; i < 2; i++)
        muster_link_keys_free(scene->hellos[i].keys);
    test_env_close(&scene->test);
    return 0;
}

static enum muster_rc answer_proof(struct scene *scene)
{
    enum muster_rc rc;

    memset(&scene->acceptor, 1, sizeof(scene->acceptor)); /* as the names of a key are */
    rc =
        muster_link_proof_answer(&scene->acceptor, &scene->test.env, &scene->hellos[1],
                                 &scene->hellos[0].incarnation, scene->opener.asked, &scene->error);

    memcpy(scene->answered, scene->acceptor.answered, MUSTER_LINK_ANSWERED_BYTES);
    memcpy(scene->answered + MUSTER_LINK_ANSWERED_BYTES, scene->acceptor.answered_mac,
           MUSTER_LINK_MAC_BYTES);
    return rc;
}

static enum muster_rc ask_and_answer(struct scene *scene)
{
    muster_link_proof_ask(&scene->opener, &scene->test.env, &scene->hellos[0]);
    return answer_proof(scene);
}

static enum muster_rc finish_scene(struct scene *scene)
{
    return muster_link_proof_return(&scene->opener, &scene->hellos[0], scene->answered,
                                    &scene->error);
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static void both_sides_prove_the_same_key(void **state)
{
    struct scene *scene = *state;

    give_key(scene, 0, 1);
    give_key(scene, 1, 1);
    assert_int_equal(ask_and_answer(scene), MUSTER_OK);
    assert_int_equal(finish_scene(scene), MUSTER_OK);

    assert_int_equal(
        muster_link_proof_check(&scene->acceptor, scene->opener.opener_mac, &scene->error),
        MUSTER_OK);
    assert_memory_not_equal(scene->opener.opener_mac, scene->acceptor.answered_mac,
                            MUSTER_LINK_MAC_BYTES);
}

static void each_side_says_a_number_that_it_has_never_said(void **state)
{
    struct scene *scene = *state;
    uint8_t asked[MUSTER_LINK_ASKED_BYTES], answered[MUSTER_LINK_ANSWERED_BYTES];

    give_key(scene, 0, 1);
    give_key(scene, 1, 1);
    assert_int_equal(ask_and_answer(scene), MUSTER_OK);
    memcpy(asked, scene->opener.asked, sizeof(asked));
    memcpy(answered, scene->answered, sizeof(answered));
    assert_int_equal(ask_and_answer(scene), MUSTER_OK);

    assert_memory_equal(asked, scene->opener.asked, MUSTER_HELLO_BYTES);
    assert_memory_equal(answered, scene->answered, MUSTER_HELLO_BYTES);
    for (size_t i = 0; i < MUSTER_LINK_NONCE_BYTES; i += 4) { /* every part of it is drawn */
        size_t at = MUSTER_HELLO_BYTES + i;

        assert_memory_not_equal(asked + at, scene->opener.asked + at, 4);
        assert_memory_not_equal(answered + at, scene->answered + at, 4);
        assert_false(is_zero(asked + at, 4) || is_zero(answered + at, 4));
    }
}

/* A control link that only one side has noticed is not the one that counts. */
static void the_newest_key_of_the_opener_that_is_common_counts(void **state)
{
    static const struct {
        uint8_t opener[4], acceptor[4]; /* in the order of their coming */
        uint8_t expected;               /* 0: none */
    } rows[] = {
        {{1, 2}, {1, 2}, 2},
        {{1, 2}, {2, 1}, 2},
        {{2, 1}, {1, 2}, 1},
        {{1, 9}, {1, 8}, 1},
        {{1, 9, 8, 7}, {5, 4, 3, 1}, 1},
        {{1, 2, 3, 4}, {1}, 1},
        {{1, 2}, {3, 4}, 0},
        {{1}, {0}, 0},
        {{0}, {1}, 0},
        {{0}, {0}, 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene *scene;
        enum muster_rc rc;

        tear_down(state);
        set_up(state);
        scene = *state;
        for (size_t k = 0; k < 4; k++) {
            if (rows[i].opener[k] != 0)
                give_key(scene, 0, rows[i].opener[k]);
            if (rows[i].acceptor[k] != 0)
                give_key(scene, 1, rows[i].acceptor[k]);
        }
        rc = ask_and_answer(scene);
        assert_int_equal(rc, rows[i].expected != 0 ? MUSTER_OK : MUSTER_UNAUTHENTICATED);
        if (rc != MUSTER_OK) {
            assert_non_null(strstr(scene->error.text, "names no key of a control link"));
            continue;
        }
        for (size_t k = 0; k < MUSTER_LINK_KEY_ID_BYTES; k++)
            assert_int_equal(scene->answered[IDS_AT + k], rows[i].expected);
        assert_int_equal(finish_scene(scene), MUSTER_OK);
    }
}

/* It may have been forgotten since: that is no sign of a stranger. */
static void a_key_that_is_not_here_any_more_is_unavailable(void **state)
{
    struct scene *scene = *state;

    give_key(scene, 0, 1);
    give_key(scene, 1, 1);
    assert_int_equal(ask_and_answer(scene), MUSTER_OK);
    for (uint8_t i = 0; i < MUSTER_LINK_KEYS_PER_PEER; i++)
        give_key(scene, 0, (uint8_t)(20 + i));

    assert_int_equal(finish_scene(scene), MUSTER_UNAVAILABLE);
    assert_int_equal(scene->error.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(scene->error.text, "a key that is not here"));
    assert_true(is_zero(scene->opener.opener_mac, MUSTER_LINK_MAC_BYTES)); /* nothing to say */
}

static void every_bit_of_a_proof_counts(void **state)
{
    struct scene *scene = *state;

    give_key(scene, 0, 1);
    give_key(scene, 1, 1);
    assert_int_equal(ask_and_answer(scene), MUSTER_OK);
    for (size_t bit = 0; bit < MUSTER_LINK_MAC_BYTES * 8; bit++) {
        uint8_t *byte = scene->answered + MUSTER_LINK_ANSWERED_BYTES + bit / 8;
        uint8_t mac[MUSTER_LINK_MAC_BYTES];

        *byte ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(finish_scene(scene), MUSTER_UNAUTHENTICATED);
        assert_int_equal(scene->error.rc, MUSTER_UNAUTHENTICATED);
        assert_true(is_zero(scene->opener.opener_mac, MUSTER_LINK_MAC_BYTES));
        *byte ^= (uint8_t)(1u << bit % 8);
        memcpy(mac, scene->acceptor.opener_mac, sizeof(mac));
        mac[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(muster_link_proof_check(&scene->acceptor, mac, &scene->error),
                         MUSTER_UNAUTHENTICATED);
    }
    assert_int_equal(finish_scene(scene), MUSTER_OK);
}

/* The secret alone is not on the wire. */
static void who_knows_the_name_of_a_key_but_not_the_key_proves_nothing(void **state)
{
    struct scene *scene = *state;
    struct muster_link_key forged;

    give_key(scene, 0, 1);
    memset(&forged, 1, sizeof(forged));
    assert_int_equal(
        muster_link_keys_put(scene->hellos[1].keys, &scene->hellos[0].incarnation, &forged),
        MUSTER_OK);
    assert_int_equal(ask_and_answer(scene), MUSTER_OK);

    assert_int_equal(finish_scene(scene), MUSTER_UNAUTHENTICATED);
}

static unsigned failed_count;

/* A proof that could not be worked out is none. */
static void run_proof(struct torture *torture, const void *data)
{
    struct scene *scene = *(struct scene *const *)data;
    enum muster_rc rc;

    memset(&scene->error, 0, sizeof(scene->error));
    torture_arm_library(torture);
    rc = answer_proof(scene);
    if (rc == MUSTER_OK)
        rc = finish_scene(scene);
    torture_disarm(torture);
    failed_count += rc != MUSTER_OK;
    assert_true(rc == MUSTER_OK || (torture->refused > 0 && rc == MUSTER_RESOURCE_EXHAUSTED));
    assert_int_equal(scene->error.rc, rc);
    if (rc == MUSTER_OK) /* OpenSSL can do without some */
        assert_int_equal(muster_link_proof_check(&scene->acceptor, scene->opener.opener_mac, NULL),
                         MUSTER_OK);
}

static void without_memory_nothing_is_proven(void **state)
{
    struct scene *scene = *state;

    give_key(scene, 0, 1);
    give_key(scene, 1, 1);
    assert_int_equal(ask_and_answer(scene), MUSTER_OK);
    assert_int_equal(finish_scene(scene), MUSTER_OK);
    failed_count = 0;
    torture_run(&(struct torture_scenario){.name = "proof", .run = run_proof, .data = &scene});
    assert_true(failed_count >= 4); /* each side works out both */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(both_sides_prove_the_same_key),
        CASE(each_side_says_a_number_that_it_has_never_said),
        CASE(the_newest_key_of_the_opener_that_is_common_counts),
        CASE(a_key_that_is_not_here_any_more_is_unavailable),
        CASE(every_bit_of_a_proof_counts),
        CASE(who_knows_the_name_of_a_key_but_not_the_key_proves_nothing),
        CASE(without_memory_nothing_is_proven),
    };

    if (!openssl_memory_take_over())
        return 1;
    return cmocka_run_group_tests_name("link_proof", tests, NULL, NULL);
}
