/* The TCP wire: frames of other epochs, lost links, links of strangers, state frames. */
#include "assertion_count.h"
#include "group_ring.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/group/group_internal.h"
#include "collective/wire/wire_tcp_internal.h"

#define COUNT 300

struct call {
    struct muster_op op;
    int32_t tensor[COUNT];
    unsigned done_count;
    enum muster_rc rc;
};

static struct group_ring ring;
static struct call calls[3];

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct call *call = op->data;

    call->done_count++;
    call->rc = rc;
}

static void start_sum(uint32_t member)
{
    struct call *call = &calls[member];
    const struct muster_tensor tensor = {.data = call->tensor, .count = COUNT, .dtype = MUSTER_I32};

    memset(call, 0, sizeof(*call));
    call->op.data = call;
    call->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 30 * MUSTER_NS_PER_S);
    for (int32_t i = 0; i < COUNT; i++)
        call->tensor[i] = i + (int32_t)member;
    assert_int_equal(muster_all_reduce_start(&call->op, ring.members[member].group, &tensor,
                                             MUSTER_SUM, on_done),
                     MUSTER_OK);
}

static void wait_for(uint32_t n)
{
    for (uint32_t member = 0; member < n; member++) {
        for (unsigned i = 0; i < 3000 && calls[member].done_count == 0; i++)
            muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        assert_int_equal(calls[member].done_count, 1);
        assert_int_equal(calls[member].rc, MUSTER_OK);
        assert_int_equal(calls[member].tensor[7], 7 * (int32_t)n + (n == 2 ? 1 : 3));
    }
}

static void a_frame_of_a_higher_epoch_waits_for_that_view(void **state)
{
    (void)state;
    group_ring_open(&ring, 2);
    group_ring_wait_for_links(&ring);
    group_ring_decide(&ring, UINT32_MAX);
    group_ring_follow(&ring, 0);
    start_sum(0);
    group_ring_turn(&ring, 30);
    assert_int_equal(ring.members[1].higher_count, 1);
    group_ring_follow(&ring, 1);
    start_sum(1);
    wait_for(2);
}

/* Member 1 goes on to epoch 2 before a frame that member 0 sent in epoch 1 is read. */
static void a_frame_of_a_lower_epoch_is_dropped(void **state)
{
    (void)state;
    group_ring_open(&ring, 2);
    group_ring_wait_for_links(&ring);
    start_sum(0);
    test_env_turn(&ring.test.env, 1);
    group_ring_change(&ring, UINT32_MAX);
    start_sum(1);
    wait_for(2);

    assert_int_equal(calls[0].op.result.verdict, MUSTER_VERDICT_RETRY);
    assert_true(calls[0].op.result.is_interrupted);
    assert_string_equal(calls[0].op.result.phase, "reduce");
}

/* --- which frames the group sees --- */

static unsigned asked, progressed, used, higher;

static void *count_frame(void *data, uint32_t rank, const struct muster_frame_header *header)
{
    (void)rank;
    (void)header;
    asked++;
    return data;
}

static void count_progress(void *data, uint32_t rank, const struct muster_frame_header *header,
                           void *buffer, uint32_t bytes_done)
{
    (void)data;
    (void)rank;
    (void)header;
    (void)buffer;
    (void)bytes_done;
    progressed++;
}

static void count_payload(void *data, uint32_t rank, const struct muster_frame_header *header,
                          void *buffer)
{
    (void)data;
    (void)rank;
    (void)header;
    (void)buffer;
    used++;
}

static void count_higher(void *data, const struct muster_incarnation *peer, uint64_t epoch)
{
    (void)data;
    (void)peer;
    higher += epoch == 5;
}

struct seen {
    const char *name;
    uint64_t epoch;
    uint8_t channel;
    bool is_stranger, is_broken;
    bool is_seen, is_paused;
};

/* Frames of other views, of no members and for others never come to the group, whatever they say. */
static void the_group_sees_frames_of_its_view_alone(void **state)
{
    static const struct seen rows[] = {
        {"of the view", 4, MUSTER_FRAME_COLLECTIVE, false, false, true, false},
        {"of the view before", 3, MUSTER_FRAME_COLLECTIVE, false, false, false, false},
        {"of the next view", 5, MUSTER_FRAME_COLLECTIVE, false, false, false, true},
        {"for the membership", 4, MUSTER_FRAME_MEMBERSHIP, false, false, false, false},
        {"of no member", 4, MUSTER_FRAME_COLLECTIVE, true, false, false, false},
        {"of one that is given up", 4, MUSTER_FRAME_COLLECTIVE, false, true, false, false},
    };
    static const struct muster_wire_client counting = {.on_frame = count_frame,
                                                       .on_progress = count_progress,
                                                       .on_payload = count_payload,
                                                       .on_higher_epoch = count_higher};

    (void)state;
    group_ring_open(&ring, 2);
    group_ring_wait_for_links(&ring);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_frame_header header = {.channel = rows[i].channel,
                                                   .epoch = rows[i].epoch};
        struct muster_wire *wire = ring.members[0].wire;
        struct muster_wire_peer *peer = wire->members[1];
        struct muster_peer_link *link = peer->stripes[0].link;
        const struct muster_wire_client *before = wire->client;
        uint64_t epoch = wire->epoch;
        bool is_asked;

        asked = progressed = used = higher = 0;
        wire->client = &counting;
        wire->epoch = 4;
        peer->is_member = !rows[i].is_stranger;
        peer->is_broken = rows[i].is_broken;
        is_asked = muster_wire_link_events.on_frame(link, &header) != NULL;
        muster_wire_link_events.on_progress(link, &header, NULL, 1);
        muster_wire_link_events.on_payload(link, &header, NULL);
        wire->client = before;
        wire->epoch = epoch;
        peer->is_member = true;
        peer->is_broken = false;

        if (is_asked != rows[i].is_seen || asked != rows[i].is_seen ||
            progressed != rows[i].is_seen || used != rows[i].is_seen ||
            higher != rows[i].is_paused || peer->is_paused != rows[i].is_paused)
            fail_msg("%s: %u %u %u %u", rows[i].name, asked, progressed, used, higher);
        if (rows[i].is_paused)
            muster_peer_link_resume(link);
        peer->is_paused = false;
    }
}

static void a_lost_link_is_a_suspicion_and_the_next_epoch_has_a_new_one(void **state)
{
    (void)state;
    group_ring_open(&ring, 2);
    start_sum(0);
    group_ring_turn(&ring, 10);
    muster_wire_refuse(ring.members[0].wire, 1, "torn by the test");
    /* Member 0 does not dial again before the next epoch: links that come while member 1 still asks
     * for the old session are told as on_abandoned, not as a suspicion. */
    muster_timer_stop(&ring.members[0].wire->members[1]->retry);
    for (unsigned i = 0; i < 500 && ring.members[1].suspect_count == 0; i++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    assert_int_equal(ring.members[0].suspect_count, 1);
    assert_int_equal(ring.members[1].suspect_count, 1);
    start_sum(1);
    group_ring_turn(&ring, 30);
    assert_int_equal(calls[0].done_count + calls[1].done_count, 0);
    group_ring_change(&ring, UINT32_MAX);
    wait_for(2);
}

/* A frame of the next view had paused the link before that was lost. */
static void a_view_can_follow_when_a_paused_link_is_lost(void **state)
{
    struct muster_wire_peer *peer;

    (void)state;
    group_ring_open(&ring, 2);
    group_ring_wait_for_links(&ring);
    peer = ring.members[0].wire->members[1];
    muster_wire_refuse(ring.members[0].wire, 1, "torn by the test");
    muster_timer_stop(&peer->retry);
    assert_null(muster_wire_turn(peer));
    peer->is_paused = true;
    group_ring_change(&ring, UINT32_MAX);

    assert_false(peer->is_paused);
    start_sum(0);
    start_sum(1);
    wait_for(2);
}

static void a_chunk_that_no_plan_knows_breaks_the_link(void **state)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                         .type = MUSTER_FRAME_REDUCE,
                                         .epoch = 1,
                                         .chunk = UINT32_MAX,
                                         .payload_bytes = 4};

    (void)state;
    group_ring_open(&ring, 2);
    start_sum(1);
    header.op = calls[1].op.id;
    header.descriptor = ((const struct muster_run *)calls[1].op.impl)->descriptor;
    muster_wire_send(ring.members[0].wire, 1, &header, "abcd", NULL);
    for (unsigned i = 0; i < 500 && ring.members[1].suspect_count == 0; i++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);

    assert_int_equal(ring.members[1].suspect_count, 1);
}

/* The assertion stands before the read: behind the members there is memory of something else. */
static void a_frame_to_no_member_ends_the_program(void **state)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE};
    static const uint32_t ranks[] = {0, 2, UINT32_MAX};

    (void)state;
    group_ring_open(&ring, 2);
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        pid_t child;
        int status = 0;

        fflush(NULL);
        child = fork();
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            (void)freopen("/dev/null", "w", stderr);
            muster_wire_send(ring.members[0].wire, ranks[i], &header, NULL, NULL);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        fail_if(!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT, "rank %u: %#x", ranks[i],
                (unsigned)status);
    }
}

static uint32_t crowd_sum;

static void add_crowd(struct muster_loop *loop, uint32_t count)
{
    (void)loop;
    crowd_sum += count;
}

static void the_loop_learns_how_many_share_the_host(void **state)
{
    const struct muster_plan_parameters plan = {.chunk_bytes = 0};
    const struct muster_loop_ops *before;
    struct muster_loop_ops ops;

    (void)state;
    group_ring_open_hosts(&ring, 4, &plan, 2);
    before = ring.test.env.loop->ops;
    ops = *before;
    ops.set_crowd = add_crowd;
    ring.test.env.loop->ops = &ops;
    crowd_sum = 0;
    group_ring_kill(&ring, 1);
    group_ring_change(&ring, UINT32_MAX);

    assert_int_equal(crowd_sum, 1 + 2 + 2); /* of three members */
    ring.test.env.loop->ops = before;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROUP_RING_CASE(the_loop_learns_how_many_share_the_host),
        GROUP_RING_CASE(a_frame_of_a_higher_epoch_waits_for_that_view),
        GROUP_RING_CASE(a_frame_of_a_lower_epoch_is_dropped),
        GROUP_RING_CASE(the_group_sees_frames_of_its_view_alone),
        GROUP_RING_CASE(a_lost_link_is_a_suspicion_and_the_next_epoch_has_a_new_one),
        GROUP_RING_CASE(a_view_can_follow_when_a_paused_link_is_lost),
        GROUP_RING_CASE(a_chunk_that_no_plan_knows_breaks_the_link),
        GROUP_RING_CASE(a_frame_to_no_member_ends_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
