/* Beliefs about a peer, from links, words, silence and confirmations. */
#include "test_env.h"

#include "cluster/suspicion.h"

#define MS(n) ((uint64_t)(n)*MUSTER_NS_PER_MS)

static struct muster_suspicion_policy policy(void)
{
    struct muster_suspicion_policy zero = {0};

    return muster_suspicion_policy_defaults(&zero);
}

static struct muster_suspicion member(bool is_same_host)
{
    struct muster_suspicion suspicion;

    muster_suspicion_init(&suspicion, is_same_host);
    muster_suspicion_expect(&suspicion, MS(1000));
    muster_suspicion_link_up(&suspicion, MS(1000));
    return suspicion;
}

static enum muster_belief belief(const struct muster_suspicion *suspicion, uint64_t now)
{
    struct muster_suspicion_policy full = policy();

    return muster_suspicion_belief(suspicion, &full, now);
}

static uint64_t talk(struct muster_suspicion *suspicion, unsigned words, uint64_t gap)
{
    uint64_t now = MS(1000);

    for (unsigned i = 0; i < words; i++)
        muster_suspicion_heard(suspicion, now += gap);
    return now;
}

static void a_lost_link_to_another_host_is_a_suspicion_at_once(void **state)
{
    struct muster_suspicion peer = member(false);

    (void)state;
    muster_suspicion_link_down(&peer, MS(2000));

    assert_int_equal(belief(&peer, MS(2000)), MUSTER_BELIEF_SUSPECTED);
    muster_suspicion_link_up(&peer, MS(2001));
    assert_int_equal(belief(&peer, MS(2001)), MUSTER_BELIEF_ALIVE);
}

static void a_lost_link_on_this_host_is_a_doubt_until_evicted(void **state)
{
    struct muster_suspicion peer = member(true);

    (void)state;
    muster_suspicion_link_down(&peer, MS(2000));

    assert_int_equal(belief(&peer, MS(31000)), MUSTER_BELIEF_DOUBTED);
    assert_int_equal(belief(&peer, MS(32000)), MUSTER_BELIEF_SUSPECTED);
}

static void silence_on_this_host_is_no_reason_until_evicted(void **state)
{
    struct muster_suspicion peer = member(true);
    uint64_t now = talk(&peer, 20, MS(100));

    (void)state;
    assert_int_equal(belief(&peer, now + MS(29999)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief(&peer, now + MS(30000)), MUSTER_BELIEF_SUSPECTED);
    muster_suspicion_heard(&peer, now + MS(31000));
    assert_int_equal(belief(&peer, now + MS(31001)), MUSTER_BELIEF_ALIVE);
}

static void who_is_no_member_may_be_silent_on_this_host(void **state)
{
    struct muster_suspicion peer = member(true);

    (void)state;
    muster_suspicion_unexpect(&peer);
    assert_int_equal(belief(&peer, MS(100000)), MUSTER_BELIEF_ALIVE);
}

static void silence_of_another_host_is_measured_by_its_own_rhythm(void **state)
{
    struct muster_suspicion quick = member(false), slow = member(false);
    uint64_t quick_now = talk(&quick, 20, MS(100)), slow_now = talk(&slow, 20, MS(3000));

    (void)state;
    assert_int_equal(belief(&quick, quick_now + MS(999)), MUSTER_BELIEF_ALIVE); /* the floor */
    assert_int_equal(belief(&quick, quick_now + MS(1000)), MUSTER_BELIEF_SUSPECTED);
    assert_int_equal(belief(&slow, slow_now + MS(2999)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief(&slow, slow_now + MS(3000)), MUSTER_BELIEF_SUSPECTED);
}

static void an_unsteady_rhythm_is_given_more_time(void **state)
{
    struct muster_suspicion peer = member(false);
    struct muster_suspicion_policy full = policy();
    uint64_t now = MS(1000);

    (void)state;
    for (unsigned i = 0; i < 20; i++)
        muster_suspicion_heard(&peer, now += i % 2 == 0 ? MS(100) : MS(900));

    assert_true(muster_suspicion_silence_ns(&peer, &full) > MS(2000));
}

static void who_never_connects_is_suspected_after_a_while(void **state)
{
    struct muster_suspicion peer;

    (void)state;
    muster_suspicion_init(&peer, false);
    assert_int_equal(belief(&peer, MS(100000)), MUSTER_BELIEF_ALIVE); /* nobody expects it */
    muster_suspicion_expect(&peer, MS(1000));

    assert_int_equal(belief(&peer, MS(5999)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief(&peer, MS(6000)), MUSTER_BELIEF_SUSPECTED);
}

static void our_own_stall_is_not_their_silence(void **state)
{
    struct muster_suspicion peer = member(false);
    uint64_t now = talk(&peer, 20, MS(100));

    (void)state;
    muster_suspicion_forgive(&peer, MS(5000));

    assert_int_equal(belief(&peer, now + MS(5500)), MUSTER_BELIEF_ALIVE);
    assert_int_equal(belief(&peer, now + MS(6001)), MUSTER_BELIEF_SUSPECTED);
}

static void a_confirmed_death_is_final(void **state)
{
    struct muster_suspicion peer = member(true);

    (void)state;
    muster_suspicion_confirm(&peer);
    muster_suspicion_link_up(&peer, MS(2000));
    muster_suspicion_heard(&peer, MS(2000));

    assert_int_equal(belief(&peer, MS(2000)), MUSTER_BELIEF_DEAD);
}

static void what_was_lost_before_membership_does_not_count(void **state)
{
    struct muster_suspicion peer = member(false);

    (void)state;
    muster_suspicion_unexpect(&peer);
    muster_suspicion_link_down(&peer, MS(2000));
    muster_suspicion_expect(&peer, MS(3000));

    assert_int_equal(belief(&peer, MS(3000)), MUSTER_BELIEF_ALIVE);
}

/* Another connection is tried while there is time; on this host nothing is lost on the way. */
static void half_of_the_silence_is_left_for_another_connection(void **state)
{
    const struct muster_suspicion_policy full = policy();
    struct muster_suspicion there = member(false), here = member(true);
    uint64_t last = talk(&there, 20, MS(100));

    (void)state;
    talk(&here, 20, MS(100));

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
        cmocka_unit_test(who_is_no_member_may_be_silent_on_this_host),
        cmocka_unit_test(silence_of_another_host_is_measured_by_its_own_rhythm),
        cmocka_unit_test(an_unsteady_rhythm_is_given_more_time),
        cmocka_unit_test(who_never_connects_is_suspected_after_a_while),
        cmocka_unit_test(our_own_stall_is_not_their_silence),
        cmocka_unit_test(a_confirmed_death_is_final),
        cmocka_unit_test(what_was_lost_before_membership_does_not_count),
        cmocka_unit_test(half_of_the_silence_is_left_for_another_connection),
    };

    return cmocka_run_group_tests_name("suspicion", tests, NULL, NULL);
}
