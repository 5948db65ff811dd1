/* Beliefs about a peer, from links, words, silence and confirmations. */
#include "test_env.h"

#include "cluster/membership/suspicion.h"

#define MS(n) ((uint64_t)(n) * MUSTER_NS_PER_MS)

static struct muster_suspicion_policy make_policy(void)
{
    struct muster_suspicion_policy zero = {0};

    return muster_suspicion_policy_defaults(&zero);
}

static struct muster_suspicion make_member(bool is_same_host)
{
    struct muster_suspicion suspicion;

    muster_suspicion_init(&suspicion, is_same_host);
    muster_suspicion_expect(&suspicion, MS(1000));
    muster_suspicion_link_up(&suspicion, MS(1000));
    return suspicion;
}

static enum muster_belief belief_at(const struct muster_suspicion *suspicion, uint64_t now)
{
    struct muster_suspicion_policy full = make_policy();

    return muster_suspicion_belief(suspicion, &full, now);
}

static uint64_t hear_words(struct muster_suspicion *suspicion, unsigned words, uint64_t gap)
{
    uint64_t now = MS(1000);

    for (unsigned i = 0; i < words; i++)
        muster_suspicion_heard(suspicion, now += gap);
    return now;
}

static void a_lost_link_to_another_host_is_a_suspicion_at_once(void **state)
{
    struct muster_suspicion peer = make_member(false);

    (void)state;
    muster_suspicion_link_down(&peer, MS(2000));

    assert_int_equal(belief_at(&peer, MS(2000)), MUSTER_BELIEF_SUSPECTED);
    muster_suspicion_link_up(&peer, MS(2001));
    assert_int_equal(belief_at(&peer, MS(2001)), MUSTER_BELIEF_ALIVE);
}

static void a_lost_link_on_this_host_is_a_doubt_until_evicted(void **state)
{
    struct muster_suspicion peer = make_member(true);

    (void)state;
    muster_suspicion_link_down(&peer, MS(2000));

    assert_int_equal(belief_at(&peer, MS(31000)), MUSTER_BELIEF_DOUBTED);
    assert_int_equal(belief_at(&peer, MS(32000)), MUSTER_BELIEF_SUSPECTED);
}

static void silence_on_this_host_is_no_reason_until_evicted(void **state)
{
    struct muster_suspicion peer = make_member(true);
    uint64_t now = hear_words(&peer, 20, MS(100));

    (void)state;
    assert_int_equal(belief_at(&peer, now + MS(29999)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief_at(&peer, now + MS(30000)), MUSTER_BELIEF_SUSPECTED);
    muster_suspicion_heard(&peer, now + MS(31000));
    assert_int_equal(belief_at(&peer, now + MS(31001)), MUSTER_BELIEF_ALIVE);
}

static void who_is_no_member_may_be_silent(void **state)
{
    (void)state;
    for (unsigned here = 0; here < 2; here++) {
        struct muster_suspicion peer = make_member(here == 1);

        muster_suspicion_unexpect(&peer);
        assert_int_equal(belief_at(&peer, MS(100000)), MUSTER_BELIEF_ALIVE);
    }
}

static void silence_of_another_host_is_measured_by_its_own_rhythm(void **state)
{
    struct muster_suspicion quick = make_member(false), slow = make_member(false);
    uint64_t quick_now = hear_words(&quick, 20, MS(100)),
             slow_now = hear_words(&slow, 20, MS(3000));

    (void)state;
    assert_int_equal(belief_at(&quick, quick_now + MS(999)), MUSTER_BELIEF_ALIVE); /* the floor */
    assert_int_equal(belief_at(&quick, quick_now + MS(1000)), MUSTER_BELIEF_SUSPECTED);
    assert_int_equal(belief_at(&slow, slow_now + MS(2999)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief_at(&slow, slow_now + MS(3000)), MUSTER_BELIEF_SUSPECTED);
}

static void an_unsteady_rhythm_is_given_more_time(void **state)
{
    static const uint64_t gaps_ms[] = {500, 100, 300, 200, 900, 400, 700, 600, 800};
    struct muster_suspicion peer = make_member(false);
    struct muster_suspicion_policy full = make_policy();
    uint64_t now = MS(1000);

    (void)state;
    for (unsigned i = 0; i < sizeof(gaps_ms) / sizeof(gaps_ms[0]); i++)
        muster_suspicion_heard(&peer, now += MS(gaps_ms[i]));

    /* The median is 500, and half of them are up to 200 away from it. */
    assert_int_equal(muster_suspicion_silence_ns(&peer, &full), MS(500 + 8 * 200));
    full.deviation_factor = 10;
    assert_int_equal(muster_suspicion_silence_ns(&peer, &full), MS(500 + 10 * 200));
}

static void a_rhythm_is_known_by_eight_gaps(void **state)
{
    static const struct {
        unsigned words;
        uint64_t silence_ms;
    } rows[] = {{0, 5000}, {7, 5000}, {8, 2000}, {16, 2000}, {100, 2000}};
    const struct muster_suspicion_policy full = make_policy();

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_suspicion peer = make_member(false);

        (void)hear_words(&peer, rows[i].words, MS(2000));
        assert_int_equal(muster_suspicion_silence_ns(&peer, &full), MS(rows[i].silence_ms));
    }
}

/* Bytes that come at once are one message in several pieces. */
static void words_that_come_together_are_no_rhythm(void **state)
{
    struct muster_suspicion peer = make_member(false);
    uint64_t now = MS(1000);

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        muster_suspicion_heard(&peer, now += MS(3000));
        muster_suspicion_heard(&peer, now);
    }

    assert_int_equal(belief_at(&peer, now + MS(2999)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief_at(&peer, now + MS(3000)), MUSTER_BELIEF_SUSPECTED);
}

static void what_is_set_comes_before_the_defaults(void **state)
{
    static const struct muster_suspicion_policy rows[][2] = {
        {{0, 0, 0, 0}, {MS(1000), MS(5000), MS(30000), 8}},
        {{7, 0, 0, 0}, {7, MS(5000), MS(30000), 8}},
        {{0, 7, 0, 0}, {MS(1000), 7, MS(30000), 8}},
        {{0, 0, 7, 0}, {MS(1000), MS(5000), 7, 8}},
        {{0, 0, 0, 7}, {MS(1000), MS(5000), MS(30000), 7}},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_suspicion_policy full = muster_suspicion_policy_defaults(&rows[i][0]);

        assert_int_equal(full.silence_floor_ns, rows[i][1].silence_floor_ns);
        assert_int_equal(full.connect_timeout_ns, rows[i][1].connect_timeout_ns);
        assert_int_equal(full.evict_after_ns, rows[i][1].evict_after_ns);
        assert_int_equal(full.deviation_factor, rows[i][1].deviation_factor);
    }
}

static void who_never_connects_is_suspected_after_a_while(void **state)
{
    struct muster_suspicion peer;

    (void)state;
    muster_suspicion_init(&peer, false);
    assert_int_equal(belief_at(&peer, MS(100000)), MUSTER_BELIEF_ALIVE); /* nobody expects it */
    muster_suspicion_expect(&peer, MS(1000));

    assert_int_equal(belief_at(&peer, MS(5999)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief_at(&peer, MS(6000)), MUSTER_BELIEF_SUSPECTED);
    peer.is_same_host = true; /* then it is given longer */
    assert_int_equal(belief_at(&peer, MS(30999)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief_at(&peer, MS(31000)), MUSTER_BELIEF_SUSPECTED);
}

static void our_own_stall_is_not_their_silence(void **state)
{
    struct muster_suspicion peer = make_member(false);
    uint64_t now = hear_words(&peer, 20, MS(100));

    (void)state;
    muster_suspicion_forgive(&peer, MS(5000));

    assert_int_equal(belief_at(&peer, now + MS(5500)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief_at(&peer, now + MS(6001)), MUSTER_BELIEF_SUSPECTED);
}

static void our_own_stall_does_not_evict_a_peer_whose_link_was_lost(void **state)
{
    struct muster_suspicion peer = make_member(true);

    (void)state;
    muster_suspicion_link_down(&peer, MS(2000));
    muster_suspicion_forgive(&peer, MS(60000));

    assert_int_equal(belief_at(&peer, MS(62001)), MUSTER_BELIEF_DOUBTED);
    assert_int_equal(belief_at(&peer, MS(92000)), MUSTER_BELIEF_SUSPECTED);
}

static void a_confirmed_death_is_final(void **state)
{
    struct muster_suspicion peer = make_member(true);

    (void)state;
    muster_suspicion_confirm(&peer);
    muster_suspicion_link_up(&peer, MS(2000));
    muster_suspicion_heard(&peer, MS(2000));

    assert_int_equal(belief_at(&peer, MS(2000)), MUSTER_BELIEF_DEAD);
}

static void what_was_lost_before_membership_does_not_count(void **state)
{
    struct muster_suspicion peer = make_member(false);

    (void)state;
    muster_suspicion_unexpect(&peer);
    muster_suspicion_link_down(&peer, MS(2000));
    muster_suspicion_expect(&peer, MS(3000));

    assert_int_equal(belief_at(&peer, MS(3000)), MUSTER_BELIEF_ALIVE);
}

/* Another connection is tried while there is time; on this host nothing is lost on the way. */
static void half_of_the_silence_is_left_for_another_connection(void **state)
{
    const struct muster_suspicion_policy full = make_policy();
    struct muster_suspicion there = make_member(false), here = make_member(true);
    uint64_t last = hear_words(&there, 20, MS(100));

    (void)state;
    hear_words(&here, 20, MS(100));

    assert_int_equal(muster_suspicion_renew_ns(&there, &full), last + MS(500));
    assert_true(muster_suspicion_renew_ns(&here, &full) == UINT64_MAX);
    muster_suspicion_link_down(&there, last);
    assert_true(muster_suspicion_renew_ns(&there, &full) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_link_to_another_host_is_a_suspicion_at_once),
        cmocka_unit_test(a_lost_link_on_this_host_is_a_doubt_until_evicted),
        cmocka_unit_test(silence_on_this_host_is_no_reason_until_evicted),
        cmocka_unit_test(who_is_no_member_may_be_silent),
        cmocka_unit_test(silence_of_another_host_is_measured_by_its_own_rhythm),
        cmocka_unit_test(an_unsteady_rhythm_is_given_more_time),
        cmocka_unit_test(a_rhythm_is_known_by_eight_gaps),
        cmocka_unit_test(words_that_come_together_are_no_rhythm),
        cmocka_unit_test(what_is_set_comes_before_the_defaults),
        cmocka_unit_test(who_never_connects_is_suspected_after_a_while),
        cmocka_unit_test(our_own_stall_is_not_their_silence),
        cmocka_unit_test(our_own_stall_does_not_evict_a_peer_whose_link_was_lost),
        cmocka_unit_test(a_confirmed_death_is_final),
        cmocka_unit_test(what_was_lost_before_membership_does_not_count),
        cmocka_unit_test(half_of_the_silence_is_left_for_another_connection),
    };

    return cmocka_run_group_tests_name("suspicion", tests, NULL, NULL);
}
