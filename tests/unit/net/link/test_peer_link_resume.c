/* Links that outlive their connection: every frame once, in order, whatever byte it broke at. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resume_rig.h"

static const uint32_t small[] = {5, 0, 64, 1, 100};
#define SMALL_COUNT 5
#define SMALL_BYTES (5 * 64 + 170)

static void cut_once(unsigned direction, uint64_t at, size_t take_max, bool is_proven)
{
    resume_open(small, SMALL_COUNT);
    if (is_proven)
        resume_share_key();
    resume_rig.net.take_max = take_max;
    resume_rig.net.limits[direction] = resume_rig.greeting_bytes[direction] + at;
    resume_join();
    resume_send_all();
    resume_run_through();

    assert_true(resume_rig.ends[0].broken_count >= 1);
    assert_int_equal(resume_rig.ends[0].resumed_count, 1);
    assert_int_equal(resume_rig.ends[1].resumed_count, 1);
    assert_int_equal(resume_rig.net.dial_count, 2);
    resume_close();
}

static void a_cut_at_any_byte_of_either_direction_loses_and_doubles_nothing(void **state)
{
    (void)state;
    for (unsigned direction = 0; direction < 2; direction++)
        for (uint64_t at = 1; at <= SMALL_BYTES; at++)
            cut_once(direction, at, 0, false);
}

static void the_same_when_frames_leave_in_pieces(void **state)
{
    (void)state;
    for (unsigned direction = 0; direction < 2; direction++)
        for (uint64_t at = 1; at <= SMALL_BYTES; at += 3)
            cut_once(direction, at, 50, false);
}

static void the_same_when_each_connection_is_proven(void **state)
{
    (void)state;
    for (unsigned direction = 0; direction < 2; direction++)
        for (uint64_t at = 1; at <= SMALL_BYTES; at += 3)
            cut_once(direction, at, at % 2 == 0 ? 0 : 50, true);
}

/* The first connection carries some frames, the second is cut while both sides prove themselves, or
 * in their answers. */
static void a_cut_while_it_is_proven_anew_is_resumed_too(void **state)
{
    (void)state;
    for (unsigned direction = 0; direction < 2; direction++) {
        for (uint64_t at = 1; at <= 216 + 64 + 100; at += 5) {
            resume_open(small, SMALL_COUNT);
            resume_share_key();
            resume_rig.net.limits[1 - direction] = resume_rig.greeting_bytes[1 - direction] + 200;
            resume_rig.next_limits[direction] = at;
            resume_join();
            resume_send_all();
            resume_run_through();

            assert_true(resume_rig.ends[0].broken_count >= 1 &&
                        resume_rig.ends[0].resumed_count >= 1);
            resume_close();
        }
    }
}

/* Everything that the first connection has said does not resume it: who has the session's number but
 * not the key. */
static void a_session_is_not_resumed_without_the_key(void **state)
{
    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_share_key();
    resume_join();
    resume_rig.is_waiting = true;
    cut_net_reset(&resume_rig.net);
    test_env_turn(&resume_rig.test.env, 5);
    assert_int_equal(muster_link_keys_put(resume_rig.ends[0].hello.keys,
                                          &resume_rig.ends[1].hello.incarnation,
                                          &(struct muster_link_key){.secret = {3}, .id = {2}}),
                     MUSTER_OK); /* the name has been heard, the key has not */
    resume_reopen(&resume_rig.ends[0]);
    for (unsigned i = 0; i < 50; i++)
        test_env_turn(&resume_rig.test.env, 1);

    assert_int_equal(resume_rig.ends[0].resumed_count, 0);
    assert_int_equal(resume_rig.ends[1].resumed_count, 0);
    assert_true(resume_rig.ends[0].is_down);
    assert_int_equal(resume_rig.ends[0].error.rc, MUSTER_UNAUTHENTICATED);
    assert_false(resume_rig.ends[1].is_down);
    resume_close();
}

/* The first connection carries `first` bytes, the second is cut in its hello, its answer or later.
 */
static void a_second_cut_while_it_is_being_resumed_is_resumed_too(void **state)
{
    (void)state;
    for (unsigned direction = 0; direction < 2; direction++) {
        for (uint64_t at = 1; at <= MUSTER_HELLO_BYTES + 64 + 300; at += 5) {
            resume_open(small, SMALL_COUNT);
            resume_rig.net.limits[1 - direction] = MUSTER_HELLO_BYTES + 200;
            resume_rig.next_limits[direction] = at;
            resume_join();
            resume_send_all();
            resume_run_through();

            assert_true(resume_rig.ends[0].broken_count >= 1 &&
                        resume_rig.ends[0].resumed_count >= 1);
            resume_close();
        }
    }
}

static const uint32_t large[] = {9000, 3000, 0, 8000};

static void large_payloads_go_on_in_the_middle(void **state)
{
    (void)state;
    for (unsigned direction = 0; direction < 2; direction++) {
        for (uint64_t at = 64; at < 20000; at += 977) {
            resume_open(large, 4);
            resume_rig.net.take_max = 1500;
            resume_rig.net.limits[direction] = MUSTER_HELLO_BYTES + at;
            resume_join();
            resume_send_all();
            resume_run_through();

            assert_int_equal(resume_rig.ends[0].resumed_count, 1);
            resume_close();
        }
    }
}

static void frames_that_are_sent_while_it_is_broken_wait(void **state)
{
    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_join();
    resume_rig.is_waiting = true;
    cut_net_reset(&resume_rig.net);
    test_env_turn(&resume_rig.test.env, 5);
    assert_int_equal(resume_rig.ends[0].broken_count, 1);
    assert_int_equal(resume_rig.ends[1].broken_count, 1);
    assert_true(muster_peer_link_is_met(resume_rig.ends[0].link));
    assert_false(muster_peer_link_is_ready(resume_rig.ends[0].link));
    resume_send_all();
    test_env_turn(&resume_rig.test.env, 5);
    resume_rig.is_waiting = false;
    resume_reopen(&resume_rig.ends[0]);
    resume_run_through();

    assert_int_equal(resume_rig.ends[1].resumed_count, 1);
    resume_close();
}

/* The side that did not notice is told by the hello. */
static void a_side_that_has_not_noticed_is_taken_over(void **state)
{
    struct muster_error why = {.rc = MUSTER_UNAVAILABLE, .text = "says the test"};

    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_join();
    resume_send_all();
    test_env_turn(&resume_rig.test.env, 1);
    muster_peer_link_break(resume_rig.ends[0].link, &why);
    resume_run_through();

    assert_int_equal(resume_rig.ends[0].broken_count, 1);
    assert_int_equal(resume_rig.ends[0].resumed_count, 1);
    assert_int_equal(resume_rig.ends[1].resumed_count, 1);
    resume_close();
}

static void a_paused_link_stays_paused(void **state)
{
    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_join();
    resume_rig.ends[1].is_paused = true;
    resume_send_all();
    test_env_turn(&resume_rig.test.env, 10);
    cut_net_reset(&resume_rig.net);
    for (unsigned i = 0; i < 1000 && resume_rig.ends[0].resumed_count == 0; i++)
        test_env_turn(&resume_rig.test.env, 1);
    test_env_turn(&resume_rig.test.env, 20);
    assert_int_equal(resume_rig.ends[1].arrived_count, 0);
    resume_rig.ends[1].is_paused = false;
    muster_peer_link_resume(resume_rig.ends[1].link);
    resume_run_through();

    resume_close();
}

static bool is_refused(void *data)
{
    (void)data;
    return resume_rig.ends[0].error.rc == MUSTER_FAILED_PRECONDITION;
}

static void a_session_that_is_forgotten_is_refused_for_good(void **state)
{
    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_join();
    resume_rig.is_forgotten = true;
    cut_net_reset(&resume_rig.net);
    test_env_run_until(&resume_rig.test.env, is_refused, NULL);

    assert_non_null(strstr(resume_rig.ends[0].error.text, "does not know"));
    assert_int_equal(resume_rig.ends[0].resumed_count, 0);
    resume_close();
}

/* The acceptor says by its answer where it goes on; an offset before what has arrived, or one that
 * would wrap round with the next frames, is refused for good. */
static void an_answer_must_go_on_at_an_offset_of_the_session(void **state)
{
    static const struct {
        const char *name;
        uint64_t void_end; /* of the acceptor, who goes on behind it */
        uint64_t ahead;    /* what the opener has, and has not said */
        bool is_refused;
    } rows[] = {
        {"the last", MUSTER_LINK_OFFSET_END - 1, 0, false},
        {"one too many", MUSTER_LINK_OFFSET_END, 0, true},
        {"the largest number", UINT64_MAX, 0, true},
        {"before what has arrived", 0, 1, true},
    };
    struct resume_end *opener = &resume_rig.ends[0];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        resume_open(small, SMALL_COUNT);
        resume_join();
        resume_rig.is_waiting = true;
        cut_net_reset(&resume_rig.net);
        test_env_turn(&resume_rig.test.env, 5);
        memset(&opener->error, 0, sizeof(opener->error));
        resume_rig.ends[1].link->void_end = rows[i].void_end;
        resume_reopen(opener);
        opener->link->received += rows[i].ahead;
        for (unsigned k = 0; k < 50; k++)
            test_env_turn(&resume_rig.test.env, 1);

        if (opener->resumed_count != !rows[i].is_refused ||
            (opener->error.rc == MUSTER_INVALID_ARGUMENT) != rows[i].is_refused)
            fail_msg("%s: %u resumed, %s", rows[i].name, opener->resumed_count,
                     opener->error.text);
        if (rows[i].is_refused)
            assert_non_null(strstr(opener->error.text, "the peer must go on at byte"));
        resume_close();
    }
}

static void on_other_ready(struct muster_peer_link *link)
{
    (void)link;
}

static void *on_other_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    (void)header;
    return NULL;
}

static void on_other_payload(struct muster_peer_link *link,
                             const struct muster_frame_header *header, void *buffer)
{
    (void)link;
    (void)header;
    (void)buffer;
}

static void on_other_down(struct muster_peer_link *link, const struct muster_error *error)
{
    bool *is_down = muster_peer_link_data(link);

    (void)error;
    *is_down = true;
}

/* Its peer may have got anything: of a link without a session nothing is kept. */
static void a_link_without_a_session_is_not_taken_over(void **state)
{
    static const struct muster_peer_link_events other_events = {.on_ready = on_other_ready,
                                                                .on_frame = on_other_frame,
                                                                .on_payload = on_other_payload,
                                                                .on_down = on_other_down};
    struct muster_peer_link *other = NULL;
    struct muster_peer_hello hello;
    bool is_down = false;

    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_rig.ends[0].hello.purpose = MUSTER_LINK_STATE;
    resume_join();
    hello = resume_rig.ends[0].hello;
    hello.intent = MUSTER_LINK_RESUME;
    hello.connection = 1;
    assert_int_equal(muster_peer_link_open(&resume_rig.test.env, &resume_anywhere, &hello,
                                           resume_soon(), &other_events, &is_down, &other),
                     MUSTER_OK);
    for (unsigned i = 0; i < 50; i++)
        test_env_turn(&resume_rig.test.env, 1);

    assert_true(is_down);
    assert_int_equal(resume_rig.taken, MUSTER_FAILED_PRECONDITION);
    assert_true(muster_peer_link_is_ready(resume_rig.ends[1].link));
    assert_int_equal(resume_rig.ends[0].broken_count + resume_rig.ends[1].broken_count, 0);
    muster_peer_link_close(other);
    resume_close();
}

/* After a recall their memory is another's: the peer does without them. */
static void frames_that_were_taken_back_are_not_sent_again(void **state)
{
    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_rig.net.limits[0] = MUSTER_HELLO_BYTES + 80;
    resume_rig.is_waiting = true;
    resume_join();
    for (unsigned i = 0; i < resume_rig.count; i++)
        resume_send_frame(&resume_rig.ends[0], i, 1);
    test_env_turn(&resume_rig.test.env, 5);
    muster_peer_link_recall(resume_rig.ends[0].link, 2);
    resume_reopen(&resume_rig.ends[0]);
    resume_rig.ends[0].sent_count = 1;
    for (unsigned i = 1; i < resume_rig.count; i++)
        resume_send_frame(&resume_rig.ends[0], i, 2);
    test_env_run_until(&resume_rig.test.env, resume_has_arrived, NULL);

    assert_int_equal(resume_rig.ends[0].resumed_count, 1);
    assert_int_equal(resume_rig.ends[1].abandoned_count, 0);
    resume_close();
}

/* The first frame has arrived in part, and is taken back: its room is free, and the second comes. */
static void a_frame_that_is_taken_back_in_the_middle_is_abandoned(void **state)
{
    (void)state;
    for (unsigned moment = 0; moment < 2; moment++) { /* before it breaks, after */
        resume_open(large, 4);
        resume_rig.net.take_max = 1500;
        resume_rig.is_waiting = true;
        resume_join();
        for (unsigned i = 0; i < 2; i++)
            resume_send_frame(&resume_rig.ends[0], i, 1);
        while (resume_rig.ends[1].link->receive != MUSTER_RECEIVE_PAYLOAD)
            test_env_turn(&resume_rig.test.env, 1);
        test_env_turn(&resume_rig.test.env, 1);
        if (moment == 0)
            muster_peer_link_recall(resume_rig.ends[0].link, 2);
        cut_net_reset(&resume_rig.net);
        test_env_turn(&resume_rig.test.env, 5);
        if (moment == 1)
            muster_peer_link_recall(resume_rig.ends[0].link, 2);
        resume_reopen(&resume_rig.ends[0]);
        for (unsigned i = 0; i < resume_rig.count; i++)
            resume_send_frame(&resume_rig.ends[0], i, 2);
        test_env_run_until(&resume_rig.test.env, resume_has_arrived, NULL);

        assert_int_equal(resume_rig.ends[1].abandoned_count, 1);
        assert_int_equal(resume_rig.ends[0].resumed_count, 1);
        resume_close();
    }
}

/* They had arrived, so nothing is lacking; what follows goes on in the same session. */
static void frames_that_had_arrived_may_be_taken_back(void **state)
{
    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_join();
    for (unsigned i = 0; i < 3; i++)
        resume_send_frame(&resume_rig.ends[0], i, 1);
    for (unsigned i = 0; i < 100 && resume_rig.ends[1].arrived_count < 3; i++)
        test_env_turn(&resume_rig.test.env, 1);
    muster_peer_link_recall(resume_rig.ends[0].link, 2);
    resume_rig.ends[0].sent_count = 3;
    cut_net_reset(&resume_rig.net);
    for (unsigned i = 3; i < resume_rig.count; i++)
        resume_send_frame(&resume_rig.ends[0], i, 2);
    test_env_run_until(&resume_rig.test.env, resume_has_arrived, NULL);

    assert_int_equal(resume_rig.ends[0].resumed_count, 1);
    resume_close();
}

static void close_when_done(struct muster_frame *frame, enum muster_rc rc)
{
    struct resume_end *end = frame->data;

    assert_int_equal(rc, MUSTER_OK);
    assert_int_equal(end->resumed_count, 0);
    muster_peer_link_close(end->link);
    end->link = NULL;
}

/* It learns that its frame had arrived while it is being resumed, and needs the link no more. */
static void an_owner_may_close_the_link_while_it_is_resumed(void **state)
{
    struct muster_frame frame = {.data = &resume_rig.ends[0],
                                 .header = {.channel = MUSTER_FRAME_COLLECTIVE, .epoch = 1}};

    (void)state;
    resume_open(small, SMALL_COUNT);
    resume_join();
    frame.payload = resume_rig.ends[0].payloads[0];
    frame.header.payload_bytes = resume_rig.sizes[0];
    assert_int_equal(muster_peer_link_send(&frame, resume_rig.ends[0].link, close_when_done),
                     MUSTER_OK);
    for (unsigned i = 0; i < 100 && resume_rig.ends[1].arrived_count < 1; i++)
        test_env_turn(&resume_rig.test.env, 1);
    cut_net_reset(&resume_rig.net);
    for (unsigned i = 0; i < 100 && resume_rig.ends[0].link != NULL; i++)
        test_env_turn(&resume_rig.test.env, 1);

    assert_null(resume_rig.ends[0].link);
    assert_int_equal(resume_rig.ends[0].broken_count, 1);
    assert_int_equal(resume_rig.ends[0].resumed_count, 0);
    resume_close();
}

/* Frames that are taken back before they leave have no place in the session. */
static void taking_back_what_has_not_left_keeps_the_count(void **state)
{
    (void)state;
    for (size_t take_max = 10; take_max < 200; take_max += 10) {
        resume_open(small, SMALL_COUNT);
        resume_join();
        resume_rig.net.take_max = take_max;
        resume_send_frame(&resume_rig.ends[0], 0, 9);
        for (unsigned i = 2; i < resume_rig.count; i++)
            resume_send_frame(&resume_rig.ends[0], i, 1);
        test_env_turn(&resume_rig.test.env, 1);
        if (resume_rig.ends[0].link->written >=
            69) { /* the second one has begun: it is not for here */
            resume_close();
            continue;
        }
        muster_peer_link_recall(resume_rig.ends[0].link, 2);
        for (unsigned i = 1; i < resume_rig.count; i++)
            resume_send_frame(&resume_rig.ends[0], i, 9);
        for (unsigned i = 0; i < 3; i++)
            test_env_turn(&resume_rig.test.env, 1);
        cut_net_reset(&resume_rig.net);
        test_env_run_until(&resume_rig.test.env, resume_has_arrived, NULL);

        assert_int_equal(resume_rig.ends[0].resumed_count, 1);
        resume_close();
    }
}

/* Its buffer is somebody else's from then on: the rest of the frame goes nowhere, and is counted. */
static void the_buffer_of_a_frame_that_is_being_read_can_be_taken_back(void **state)
{
    struct resume_end *end = &resume_rig.ends[1];
    struct muster_peer_link *link;

    (void)state;
    resume_open(large, 4);
    resume_join();
    resume_rig.net.take_max = 1500;
    link = end->link;
    resume_send_frame(&resume_rig.ends[0], 0, 1);
    while (link->reading != MUSTER_LINK_READ_PAYLOAD || link->read.bytes_done == 0)
        test_env_turn(&resume_rig.test.env, 1);
    muster_peer_link_discard_receiving(link, 2);
    memset(end->room, 0xee, sizeof(end->room));
    end->arrived_count = 1;
    for (unsigned i = 1; i < resume_rig.count; i++)
        resume_send_frame(&resume_rig.ends[0], i, 2);
    test_env_run_until(&resume_rig.test.env, resume_has_arrived, NULL);

    for (size_t i = large[3]; i < large[0]; i++)
        assert_int_equal(end->room[i], 0xee);
    assert_int_equal(link->received, resume_rig.ends[0].link->submitted);
    resume_close();
}

static const uint32_t one_way[] = {9000, 9000, 9000, 9000, 9000, 9000, 9000, 9000};

/* Nothing goes the other way: the receiver tells by itself, so that nothing is kept for long. */
static void a_silent_receiver_tells_what_it_has(void **state)
{
    struct resume_end *end = &resume_rig.ends[0];

    (void)state;
    resume_open(one_way, 8);
    resume_join();
    for (unsigned round = 0; round < 30; round++) {
        for (unsigned i = 0; i < 8; i++)
            resume_send_frame(end, i, 1);
        for (unsigned i = 0; i < 1000 && resume_rig.ends[1].arrived_count < 8; i++)
            test_env_turn(&resume_rig.test.env, 1);
        assert_true(muster_peer_link_unacked_bytes(end->link) <=
                    MUSTER_LINK_UNTOLD_BYTES + 8 * 9064);
        if (round % 13 == 12 || round == 29) {
            muster_peer_link_on_ack_due(&resume_rig.ends[1].link->ack_timer);
            for (unsigned i = 0; i < 100 && muster_peer_link_unacked_bytes(end->link) > 0; i++)
                test_env_turn(&resume_rig.test.env, 1);
            assert_int_equal(muster_peer_link_unacked_bytes(end->link), 0);
        }
        resume_rig.ends[1].arrived_count = end->sent_count = 0;
        while (!muster_list_is_empty(&end->link->unacked)) /* the frames are used again */
            muster_list_remove(end->link->unacked.next);
    }
    resume_close();
}

/* The first of five frames makes it tell; the others come before that has left. */
static void what_arrives_while_it_is_telling_is_told_too(void **state)
{
    struct muster_peer_link *link;

    (void)state;
    resume_open(small, 5);
    resume_join();
    link = resume_rig.ends[1].link;
    link->untold_frames = 255;
    for (unsigned i = 0; i < 5; i++)
        resume_send_frame(&resume_rig.ends[0], i, 1);
    for (unsigned i = 0; i < 1000 && (resume_rig.ends[1].arrived_count < 5 || link->is_ack_queued);
         i++)
        test_env_turn(&resume_rig.test.env, 1);

    assert_int_equal(resume_rig.ends[1].arrived_count, 5);
    assert_true(link->received_told > 0);
    if (link->received_told != link->received)
        assert_true(muster_timer_is_started(&link->ack_timer));
    resume_close();
}

/* Later frames do not move when the first is told, which is far away here. */
static void the_first_frame_sets_when_it_is_told(void **state)
{
    struct muster_peer_link *link;
    uint64_t far_ns;

    (void)state;
    resume_open(small, 2);
    resume_join();
    link = resume_rig.ends[1].link;
    resume_send_frame(&resume_rig.ends[0], 0, 1);
    for (unsigned i = 0; i < 1000 && resume_rig.ends[1].arrived_count < 1; i++)
        test_env_turn(&resume_rig.test.env, 1);
    far_ns = muster_loop_after_ns(resume_rig.test.env.loop, 3600 * MUSTER_NS_PER_S);
    muster_timer_start(&link->ack_timer, resume_rig.test.env.loop, far_ns);
    resume_send_frame(&resume_rig.ends[0], 1, 1);
    for (unsigned i = 0; i < 1000 && resume_rig.ends[1].arrived_count < 2; i++)
        test_env_turn(&resume_rig.test.env, 1);

    assert_int_equal(resume_rig.ends[1].arrived_count, 2);
    assert_true(muster_timer_is_started(&link->ack_timer));
    assert_int_equal(link->ack_timer.due_ns, far_ns);
    resume_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_at_any_byte_of_either_direction_loses_and_doubles_nothing),
        cmocka_unit_test(the_same_when_frames_leave_in_pieces),
        cmocka_unit_test(the_same_when_each_connection_is_proven),
        cmocka_unit_test(a_cut_while_it_is_proven_anew_is_resumed_too),
        cmocka_unit_test(a_session_is_not_resumed_without_the_key),
        cmocka_unit_test(a_second_cut_while_it_is_being_resumed_is_resumed_too),
        cmocka_unit_test(large_payloads_go_on_in_the_middle),
        cmocka_unit_test(frames_that_are_sent_while_it_is_broken_wait),
        cmocka_unit_test(a_side_that_has_not_noticed_is_taken_over),
        cmocka_unit_test(a_paused_link_stays_paused),
        cmocka_unit_test(a_session_that_is_forgotten_is_refused_for_good),
        cmocka_unit_test(an_answer_must_go_on_at_an_offset_of_the_session),
        cmocka_unit_test(a_link_without_a_session_is_not_taken_over),
        cmocka_unit_test(frames_that_were_taken_back_are_not_sent_again),
        cmocka_unit_test(a_frame_that_is_taken_back_in_the_middle_is_abandoned),
        cmocka_unit_test(frames_that_had_arrived_may_be_taken_back),
        cmocka_unit_test(an_owner_may_close_the_link_while_it_is_resumed),
        cmocka_unit_test(taking_back_what_has_not_left_keeps_the_count),
        cmocka_unit_test(the_buffer_of_a_frame_that_is_being_read_can_be_taken_back),
        cmocka_unit_test(a_silent_receiver_tells_what_it_has),
        cmocka_unit_test(the_first_frame_sets_when_it_is_told),
        cmocka_unit_test(what_arrives_while_it_is_telling_is_told_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
