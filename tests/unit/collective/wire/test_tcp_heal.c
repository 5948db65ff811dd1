/* The TCP wire: connections that break inside an epoch are healed, and no group sees it. */
#include "group_ring.h"

#include <string.h>

#include "collective/group/group_internal.h"
#include "collective/wire/wire_tcp_internal.h"
#include "net/link/peer_link_internal.h"

#define COUNT 900

struct call {
    struct muster_op op;
    int32_t tensor[COUNT];
    unsigned done_count;
    enum muster_rc rc;
};

static struct group_ring ring;
static struct call calls[4];
static unsigned points, break_at; /* chunks sent or received by anybody */
static uint32_t breaker;
static bool is_one_stripe;

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct call *call = op->data;

    call->done_count++;
    call->rc = rc;
}

static void start_sum(uint32_t member, uint64_t count)
{
    struct call *call = &calls[member];
    const struct muster_tensor tensor = {.data = call->tensor, .count = count, .dtype = MUSTER_I32};

    memset(call, 0, sizeof(*call));
    call->op.data = call;
    call->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    for (int32_t i = 0; i < COUNT; i++)
        call->tensor[i] = i * (int32_t)(member + 1);
    assert_int_equal(muster_all_reduce_start(&call->op, ring.members[member].group, &tensor,
                                             MUSTER_SUM, on_done),
                     MUSTER_OK);
}

static void check_sums(uint32_t n, uint64_t count)
{
    for (uint32_t member = 0; member < n; member++) {
        for (unsigned i = 0; i < 3000 && calls[member].done_count == 0; i++)
            muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        assert_int_equal(calls[member].done_count, 1);
        assert_int_equal(calls[member].rc, MUSTER_OK);
        for (int32_t i = 0; i < (int32_t)count; i++)
            assert_int_equal(calls[member].tensor[i], i * (int32_t)(n * (n + 1) / 2));
        assert_int_equal(ring.members[member].suspect_count, 0);
    }
}

static uint64_t resumed_count(uint32_t n)
{
    uint64_t count = 0;

    for (uint32_t member = 0; member < n; member++)
        count += ring.members[member].wire->resumed_count;
    return count;
}

/* All connections of a member are gone, or one stripe of each set. */
static void break_links(uint32_t member, uint32_t first, uint32_t step)
{
    struct muster_wire *wire = ring.members[member].wire;
    struct muster_error why;

    muster_error_set(&why, MUSTER_UNAVAILABLE, "torn by the test");
    for (uint32_t rank = 0; rank < wire->member_count; rank++)
        for (uint32_t i = first; wire->members[rank] != NULL && i < MUSTER_STRIPES_MAX; i += step)
            if (wire->members[rank]->stripes[i].link != NULL)
                muster_peer_link_break(wire->members[rank]->stripes[i].link, &why);
}

static bool on_point(void *data, const struct muster_wire_point *at)
{
    (void)data;
    (void)at;
    if (++points == break_at && is_one_stripe)
        break_links(breaker, break_at % group_ring_stripe_count, MUSTER_STRIPES_MAX);
    else if (points == break_at)
        break_links(breaker, 0, 1);
    return false;
}

static void open_ring(uint32_t n)
{
    group_ring_open(&ring, n);
    for (uint32_t member = 0; member < n; member++)
        muster_wire_set_failpoint(ring.members[member].wire, on_point, NULL);
    group_ring_wait_for_links(&ring);
    points = 0;
}

static void run_sums(uint32_t n, uint64_t count)
{
    for (uint32_t member = 0; member < n; member++)
        start_sum(member, count);
    check_sums(n, count);
}

/* Every chunk that anybody sends or receives is a moment; every member is the one that loses. */
static void a_break_at_any_chunk_is_healed(uint32_t n, uint64_t count)
{
    unsigned moments;

    break_at = 0;
    open_ring(n);
    run_sums(n, count);
    moments = points;
    assert_true(moments > 3);
    for (breaker = 0; breaker < n; breaker++) {
        for (break_at = 1; break_at <= moments; break_at += 1 + moments / 60) {
            uint64_t before = resumed_count(n);

            points = 0;
            run_sums(n, count);
            run_sums(n, count); /* what follows goes the same way */
            for (unsigned i = 0; i < 3000 && resumed_count(n) == before; i++)
                muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
            assert_true(resumed_count(n) > before);
        }
    }
    for (uint32_t member = 0; member < n; member++)
        assert_int_equal(ring.members[member].suspect_count, 0);
    group_ring_close(&ring);
}

static void two_members_lose_a_ring_s_link_at_any_chunk(void **state)
{
    (void)state;
    a_break_at_any_chunk_is_healed(2, COUNT);
}

static void three_members_lose_a_ring_s_links_at_any_chunk(void **state)
{
    (void)state;
    a_break_at_any_chunk_is_healed(3, COUNT);
}

static void a_direct_exchange_loses_its_links_at_any_chunk(void **state)
{
    (void)state;
    a_break_at_any_chunk_is_healed(4, 16);
}

/* Frames are in the same order whatever connection each of them takes. */
static void with_stripes(uint32_t stripe_count)
{
    group_ring_stripe_count = stripe_count;
    for (unsigned i = 0; i < 2; i++) {
        is_one_stripe = i == 1;
        a_break_at_any_chunk_is_healed(2, COUNT);
        a_break_at_any_chunk_is_healed(3, COUNT);
        a_break_at_any_chunk_is_healed(4, 16);
    }
    group_ring_stripe_count = 1;
    is_one_stripe = false;
}

static void two_stripes_or_one_of_them_are_lost_at_any_chunk(void **state)
{
    (void)state;
    with_stripes(2);
}

static void four_stripes_or_one_of_them_are_lost_at_any_chunk(void **state)
{
    (void)state;
    with_stripes(4);
}

static void every_stripe_carries_its_part(void **state)
{
    (void)state;
    group_ring_stripe_count = 4;
    break_at = 0;
    open_ring(2);
    run_sums(2, COUNT);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct muster_wire_peer *peer = ring.members[rank].wire->members[1 - rank];

        assert_int_equal(peer->stripe_count, 4);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(peer->stripes[i].link->received > COUNT * sizeof(int32_t) / 8);
    }
    group_ring_close(&ring);
    group_ring_stripe_count = 1;
}

static void *on_no_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    (void)header;
    return NULL;
}

static void on_no_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                          void *buffer)
{
    (void)link;
    (void)header;
    (void)buffer;
}

static void on_met(struct muster_peer_link *link)
{
    (void)link;
}

static void on_refused(struct muster_peer_link *link, const struct muster_error *error)
{
    bool *is_refused = muster_peer_link_data(link);

    (void)error;
    *is_refused = true;
}

static bool is_true(void *data)
{
    return *(const bool *)data;
}

/* It would end the frames of one stripe, while those of the others are on their way. */
static void a_second_connection_for_a_stripe_is_refused(void **state)
{
    static const struct muster_peer_link_events events = {.on_ready = on_met,
                                                          .on_frame = on_no_frame,
                                                          .on_payload = on_no_payload,
                                                          .on_down = on_refused};
    const struct muster_wire_peer *there, *here;
    const struct muster_peer_link *before;
    struct muster_peer_link *second = NULL;
    struct muster_peer_hello hello;
    bool is_refused = false;

    (void)state;
    group_ring_stripe_count = 2;
    break_at = 0;
    open_ring(2);
    there = ring.members[0].wire->members[1];
    here = ring.members[1].wire->members[0];
    run_sums(2, COUNT);
    start_sum(1, COUNT);
    before = here->stripes[0].link;
    hello = ring.members[0].wire->hello;
    hello.target = there->incarnation;
    hello.session = there->set;
    hello.stripe_count = 2;
    assert_int_equal(
        muster_peer_link_open(&ring.test.env, &there->address, &hello,
                              muster_loop_after_ns(ring.test.env.loop, MUSTER_NS_PER_S), &events,
                              &is_refused, &second),
        MUSTER_OK);
    test_env_run_until(&ring.test.env, is_true, &is_refused);

    assert_ptr_equal(here->stripes[0].link, before);
    start_sum(0, COUNT);
    check_sums(2, COUNT);
    muster_peer_link_close(second);
    group_ring_close(&ring);
    group_ring_stripe_count = 1;
}

/* More stripes than there may be, or one that is none of them: what is there goes on. */
static void stripes_that_make_no_sense_are_refused(void **state)
{
    static const struct muster_peer_link_events events = {.on_ready = on_met,
                                                          .on_frame = on_no_frame,
                                                          .on_payload = on_no_payload,
                                                          .on_down = on_refused};
    static const struct {
        uint16_t stripe, stripe_count;
    } rows[] = {{0, MUSTER_STRIPES_MAX + 1}, {2, 2}, {1, 0}, {UINT16_MAX, UINT16_MAX}};

    (void)state;
    break_at = 0;
    open_ring(2);
    run_sums(2, COUNT);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_wire_peer *there = ring.members[0].wire->members[1];
        const struct muster_wire_peer *here = ring.members[1].wire->members[0];
        const struct muster_peer_link *before = here->stripes[0].link;
        struct muster_peer_hello hello = ring.members[0].wire->hello;
        struct muster_peer_link *strange = NULL;
        bool is_refused = false;

        hello.target = there->incarnation;
        hello.session = there->set + 0x100 * (i + 1);
        hello.stripe = rows[i].stripe;
        hello.stripe_count = rows[i].stripe_count;
        assert_int_equal(
            muster_peer_link_open(&ring.test.env, &there->address, &hello,
                                  muster_loop_after_ns(ring.test.env.loop, MUSTER_NS_PER_S),
                                  &events, &is_refused, &strange),
            MUSTER_OK);
        test_env_run_until(&ring.test.env, is_true, &is_refused);

        assert_ptr_equal(here->stripes[0].link, before);
        muster_peer_link_close(strange);
        run_sums(2, COUNT);
    }
}

/* Nobody listens there any more: no waiting for it to come back. */
static void a_dead_process_is_suspected_at_once(void **state)
{
    struct group_ring_member *dead;

    (void)state;
    for (uint32_t index = 0; index < 2; index++) {
        break_at = 0;
        open_ring(2);
        dead = &ring.members[index];
        muster_listener_close(dead->listener, NULL);
        test_env_turn(&ring.test.env, 2);
        ring.members[1 - index].wire->heal_ns = 1000 * MUSTER_NS_PER_S;
        group_ring_kill(&ring, index);
        for (unsigned i = 0; i < 5000 && ring.members[1 - index].suspect_count == 0; i++)
            muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);

        assert_int_equal(ring.members[1 - index].suspect_count, 1);
        dead->listener = NULL;
        group_ring_close(&ring);
    }
}

static bool both_suspect(void *data)
{
    (void)data;
    return ring.members[0].suspect_count == 1 && ring.members[1].suspect_count == 1;
}

/* Both listen and answer nothing: at the bound it is a suspicion. */
static void who_does_not_come_back_in_time_is_suspected(void **state)
{
    (void)state;
    break_at = 0;
    open_ring(2);
    for (uint32_t member = 0; member < 2; member++) {
        ring.members[member].wire->heal_ns = 30 * MUSTER_NS_PER_MS;
        ring.members[member].is_dead = true; /* its listener closes what comes */
    }
    break_links(1, 0, 1);
    test_env_run_until(&ring.test.env, both_suspect, NULL);

    assert_int_equal(resumed_count(2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_members_lose_a_ring_s_link_at_any_chunk),
        cmocka_unit_test(three_members_lose_a_ring_s_links_at_any_chunk),
        cmocka_unit_test(a_direct_exchange_loses_its_links_at_any_chunk),
        cmocka_unit_test(two_stripes_or_one_of_them_are_lost_at_any_chunk),
        cmocka_unit_test(four_stripes_or_one_of_them_are_lost_at_any_chunk),
        cmocka_unit_test(every_stripe_carries_its_part),
        cmocka_unit_test(a_second_connection_for_a_stripe_is_refused),
        GROUP_RING_CASE(stripes_that_make_no_sense_are_refused),
        cmocka_unit_test(a_dead_process_is_suspected_at_once),
        GROUP_RING_CASE(who_does_not_come_back_in_time_is_suspected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
