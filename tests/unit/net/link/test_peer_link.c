/* Peer links: frames in order, discard, pause, recall, bounds. */
#include "link_pair.h"

#include <stdlib.h>
#include <string.h>

/* --- Cases: frames --- */

static void frames_arrive_whole_and_in_order_whatever_their_size(void **state)
{
    static const uint32_t sizes[] = {0, 1, 63, 64, 2048, 2049, 4032, 4096, 70000, 300000, 5, 0};
    enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
    struct link_pair pair;
    struct link_sent sent[COUNT];
    uint8_t *payloads[COUNT];

    (void)state;
    link_pair_open(&pair);
    for (unsigned i = 0; i < COUNT; i++) {
        payloads[i] = link_pair_pattern_new(sizes[i] + 1, i);
        link_sent_init(&sent[i], 1, payloads[i], sizes[i]);
        sent[i].frame.header.op = (struct muster_op_id){UINT64_MAX - i, i, 77};
        sent[i].frame.header.flags = 0xabcd;
        sent[i].frame.header.phase = i;
        sent[i].frame.header.chunk = UINT32_MAX;
        sent[i].frame.header.offset = UINT64_C(1) << 40;
        sent[i].frame.header.descriptor = UINT64_C(0x1122334455667788);
        link_pair_send_frame(&pair, &sent[i]);
        assert_int_equal(sent[i].done_count, 0);
    }
    link_pair_await_payloads(&pair, COUNT);
    test_env_run_until(&pair.test.env, test_env_is_true, &sent[COUNT - 1].done_count);

    for (unsigned i = 0; i < COUNT; i++) {
        const struct muster_frame_header *header = &pair.ends[1].headers[i];

        assert_int_equal(sent[i].done_count, 1);
        assert_int_equal(sent[i].rc, MUSTER_OK);
        assert_int_equal(header->payload_bytes, sizes[i]);
        assert_true(header->op.step == UINT64_MAX - i && header->op.sequence == 77);
        assert_int_equal(header->op.lane, i);
        assert_int_equal(header->flags, 0xabcd);
        assert_int_equal(header->phase, i);
        assert_true(header->chunk == UINT32_MAX && header->offset == UINT64_C(1) << 40);
        assert_true(header->descriptor == UINT64_C(0x1122334455667788));
        if (sizes[i] > 0)
            assert_memory_equal(pair.ends[1].payloads[i], payloads[i], sizes[i]);
        free(payloads[i]);
    }
    assert_int_equal(muster_peer_link_queued_bytes(pair.ends[0].link), 0);
    assert_true(pair.ends[1].progress_count > 0);
    link_pair_close(&pair);
}

static void frames_may_be_queued_before_the_link_is_ready(void **state)
{
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_MEMBERSHIP, .payload_bytes = 5, .type = 2};
    struct link_pair pair;

    (void)state;
    link_pair_init(&pair);
    link_pair_connect(&pair);
    assert_int_equal(muster_peer_link_send_copy(pair.ends[0].link, &header, "hello"), MUSTER_OK);
    link_pair_await_payloads(&pair, 1);

    assert_memory_equal(pair.ends[1].payloads[0], "hello", 5);
    link_pair_close(&pair);
}

static void a_discarded_frame_leaves_the_next_one_whole(void **state)
{
    struct link_pair pair;
    struct link_sent sent[2];
    uint8_t *payload = link_pair_pattern_new(100000, 1);

    (void)state;
    link_pair_open(&pair);
    pair.ends[1].discards = true;
    link_sent_init(&sent[0], 1, payload, 100000);
    link_pair_send_frame(&pair, &sent[0]);
    test_env_run_until(&pair.test.env, test_env_is_true, &sent[0].done_count);
    test_env_turn(&pair.test.env, 50);
    assert_int_equal(pair.ends[1].payload_count, 0);
    pair.ends[1].discards = false;
    link_sent_init(&sent[1], 1, payload, 1000);
    link_pair_send_frame(&pair, &sent[1]);
    link_pair_await_payloads(&pair, 1);

    assert_memory_equal(pair.ends[1].payloads[0], payload, 1000);
    free(payload);
    link_pair_close(&pair);
}

static void a_paused_link_asks_again_after_resume(void **state)
{
    struct link_pair pair;
    struct link_sent sent[2];
    uint8_t payload[200] = {1, 2, 3};

    (void)state;
    link_pair_open(&pair);
    pair.ends[1].pauses = true;
    for (size_t i = 0; i < 2; i++) {
        link_sent_init(&sent[i], 1, payload, (uint32_t)(i * sizeof(payload)));
        link_pair_send_frame(&pair, &sent[i]);
    }
    test_env_turn(&pair.test.env, 50);
    assert_int_equal(pair.ends[1].asked_count, 1);
    assert_int_equal(pair.ends[1].payload_count, 0);
    pair.ends[1].pauses = false;
    muster_peer_link_resume(pair.ends[1].link);
    link_pair_await_payloads(&pair, 2);

    assert_int_equal(pair.ends[1].asked_count, 3);
    assert_memory_equal(pair.ends[1].payloads[1], payload, sizeof(payload));
    link_pair_close(&pair);
}

/* All are queued before the loop turns; the first one of the stream's turn has not begun either. */
static void a_frame_of_higher_priority_goes_before_those_that_wait(void **state)
{
    static const uint8_t priorities[] = {0, 0, 5, 0, 9, 5};
    static const uint8_t order[] = {4, 2, 5, 0, 1, 3};
    enum { COUNT = sizeof(order) };
    struct link_pair pair;
    struct link_sent sent[COUNT];
    uint8_t *payload = link_pair_pattern_new(100000, 3);

    (void)state;
    link_pair_open(&pair);
    for (uint32_t i = 0; i < COUNT; i++) {
        link_sent_init(&sent[i], 1, payload, 100000 - i);
        sent[i].frame.header.phase = i;
        sent[i].frame.priority = priorities[i];
        link_pair_send_frame(&pair, &sent[i]);
    }
    link_pair_await_payloads(&pair, COUNT);

    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(pair.ends[1].headers[i].phase, order[i]);
        assert_memory_equal(pair.ends[1].payloads[i], payload, 100000 - order[i]);
    }
    assert_int_equal(muster_peer_link_queued_bytes(pair.ends[0].link), 0);
    free(payload);
    link_pair_close(&pair);
}

/* The next frames go to another connection: the receiver counts on all that came before. */
static void no_frame_overtakes_the_end_of_a_stripe(void **state)
{
    static const uint8_t channels[] = {1, MUSTER_FRAME_STRIPE, 1, 1};
    static const uint8_t priorities[] = {0, 0, 9, 5};
    enum { COUNT = sizeof(channels) };
    const uint8_t payload[8] = {1};
    struct link_pair pair;
    struct link_sent sent[COUNT];

    (void)state;
    link_pair_open(&pair);
    for (uint32_t i = 0; i < COUNT; i++) {
        link_sent_init(&sent[i], 1, payload, sizeof(payload));
        sent[i].frame.header.channel = channels[i];
        sent[i].frame.header.phase = i;
        sent[i].frame.priority = priorities[i];
        link_pair_send_frame(&pair, &sent[i]);
    }
    link_pair_await_payloads(&pair, COUNT);

    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(pair.ends[1].headers[i].phase, i);
    link_pair_close(&pair);
}

#define LARGE_BYTES (16u << 20)

/* The receiver is paused, so that of two large frames the first is half out. */
static void a_frame_that_has_begun_to_leave_goes_on(void **state)
{
    struct link_pair pair;
    struct link_sent sent[3];
    uint8_t *payload = link_pair_pattern_new(LARGE_BYTES, 9);

    (void)state;
    link_pair_open(&pair);
    pair.ends[1].pauses = true;
    for (uint32_t i = 0; i < 3; i++) {
        if (i == 2)
            test_env_turn(&pair.test.env, 50);
        link_sent_init(&sent[i], 1, payload, i == 2 ? 7 : LARGE_BYTES);
        sent[i].frame.header.phase = i;
        sent[i].frame.priority = i == 2;
        link_pair_send_frame(&pair, &sent[i]);
    }
    pair.ends[1].pauses = false;
    muster_peer_link_resume(pair.ends[1].link);
    link_pair_await_payloads(&pair, 3);

    assert_int_equal(pair.ends[1].headers[0].phase, 0);
    assert_int_equal(pair.ends[1].headers[1].phase, 2);
    assert_int_equal(pair.ends[1].headers[2].phase, 1);
    assert_memory_equal(pair.ends[1].payloads[2], payload, LARGE_BYTES);
    free(payload);
    link_pair_close(&pair);
}

/* --- Cases: recall --- */

/* The receiver is paused, so frames of many MiB cannot all leave: one is half out. */
static void a_recall_takes_back_old_epochs_and_keeps_the_stream_whole(void **state)
{
    struct muster_frame_header control = {
        .channel = MUSTER_FRAME_MEMBERSHIP, .payload_bytes = 3, .epoch = 1};
    struct link_pair pair;
    struct link_sent sent[3], next;
    uint8_t *payload = link_pair_pattern_new(LARGE_BYTES, 9);

    (void)state;
    link_pair_open(&pair);
    pair.ends[1].pauses = true;
    for (size_t i = 0; i < 3; i++) {
        link_sent_init(&sent[i], 4, payload, LARGE_BYTES);
        link_pair_send_frame(&pair, &sent[i]);
        if (i == 1)
            assert_int_equal(muster_peer_link_send_copy(pair.ends[0].link, &control, "abc"),
                             MUSTER_OK);
    }
    link_sent_init(&next, 5, payload, 1000);
    link_pair_send_frame(&pair, &next);
    test_env_turn(&pair.test.env, 30);
    muster_peer_link_recall(pair.ends[0].link, 5);
    assert_int_equal(sent[0].done_count, 0);
    memset(payload + 1000, 0xee, LARGE_BYTES - 1000); /* it is ours again */
    pair.ends[1].pauses = false;
    muster_peer_link_resume(pair.ends[1].link);
    link_pair_await_payloads(&pair, 3);
    test_env_run_until(&pair.test.env, test_env_is_true, &next.done_count);

    for (size_t i = 0; i < 3; i++)
        assert_int_equal(sent[i].done_count, 0);
    assert_int_equal(pair.ends[1].headers[0].epoch, 4);
    assert_int_equal(pair.ends[1].payloads[0][LARGE_BYTES - 1],
                     (uint8_t)((LARGE_BYTES - 1) * 31u + (LARGE_BYTES - 1) / 251 + 9));
    assert_memory_equal(pair.ends[1].payloads[1], "abc", 3);
    assert_int_equal(pair.ends[1].headers[2].epoch, 5);
    assert_memory_equal(pair.ends[1].payloads[2], payload, 1000);
    assert_int_equal(next.done_count, 1);
    assert_int_equal(muster_peer_link_queued_bytes(pair.ends[0].link), 0);
    free(payload);
    link_pair_close(&pair);
}

/* The peer waits for the rest of a frame whose memory is another's now: without a copy of it the stream ends. */
static void without_memory_for_the_rest_of_a_frame_a_recall_ends_the_link(void **state)
{
    struct link_pair pair;
    struct link_sent sent;
    uint8_t *payload = link_pair_pattern_new(LARGE_BYTES, 9);

    (void)state;
    link_pair_open(&pair);
    pair.ends[1].pauses = true;
    link_sent_init(&sent, 4, payload, LARGE_BYTES);
    link_pair_send_frame(&pair, &sent);
    test_env_turn(&pair.test.env, 30);
    pair.test.mem.fail_at = 1;
    muster_peer_link_recall(pair.ends[0].link, 5);
    pair.test.mem.fail_at = 0;
    free(payload);
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[0].is_down);

    assert_int_equal(sent.done_count, 0);
    assert_int_equal(pair.ends[0].error.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(pair.ends[0].error.text, "no memory for the rest of a frame");
    link_pair_close(&pair);
}

static void a_recall_of_one_operation_leaves_the_others(void **state)
{
    struct link_pair pair;
    struct link_sent sent[2];
    const struct muster_op_id op = {.step = 1, .lane = 0, .sequence = 8};

    (void)state;
    link_pair_open(&pair);
    for (uint32_t i = 0; i < 2; i++) {
        link_sent_init(&sent[i], 1, "xyz", 3);
        sent[i].frame.header.op = (struct muster_op_id){.step = 1, .sequence = 8 + i};
        link_pair_send_frame(&pair, &sent[i]);
    }
    muster_peer_link_recall_op(pair.ends[0].link, &op, UINT8_MAX);
    link_pair_await_payloads(&pair, 1);

    assert_int_equal(sent[0].done_count, 0);
    assert_int_equal(pair.ends[1].headers[0].op.sequence, 9);
    link_pair_close(&pair);
}

static void the_buffer_of_a_half_received_frame_can_be_taken_back(void **state)
{
    struct link_pair pair;
    struct link_sent sent[2];
    uint8_t *payload = link_pair_pattern_new(LARGE_BYTES, 3);

    (void)state;
    link_pair_open(&pair);
    pair.ends[1].takes_back = true;
    link_sent_init(&sent[0], 1, payload, LARGE_BYTES);
    link_sent_init(&sent[1], 2, payload, 100);
    link_pair_send_frame(&pair, &sent[0]);
    link_pair_send_frame(&pair, &sent[1]);
    link_pair_await_payloads(&pair, 1);

    assert_int_equal(pair.ends[1].progress_count, 1);
    assert_int_equal(pair.ends[1].headers[0].epoch, 2);
    assert_memory_equal(pair.ends[1].payloads[0], payload, 100);
    free(payload);
    link_pair_close(&pair);
}

static void a_half_received_frame_of_the_kept_type_is_received_to_its_end(void **state)
{
    struct link_pair pair;
    struct link_sent sent;
    uint8_t *payload = link_pair_pattern_new(LARGE_BYTES, 3);

    (void)state;
    link_pair_open(&pair);
    pair.ends[1].recalls_but_it = true;
    link_sent_init(&sent, 1, payload, LARGE_BYTES);
    link_pair_send_frame(&pair, &sent);
    link_pair_await_payloads(&pair, 1);

    assert_true(pair.ends[1].progress_count > 1);
    assert_memory_equal(pair.ends[1].payloads[0], payload, LARGE_BYTES);
    free(payload);
    link_pair_close(&pair);
}

/* --- Cases: ends --- */

static void closing_cancels_queued_frames_at_once(void **state)
{
    struct link_pair pair;
    struct link_sent sent;

    (void)state;
    link_pair_open(&pair);
    link_sent_init(&sent, 1, "abc", 3);
    link_pair_send_frame(&pair, &sent);
    muster_peer_link_close(pair.ends[0].link);
    pair.ends[0].link = NULL;

    assert_int_equal(sent.done_count, 1);
    assert_int_equal(sent.rc, MUSTER_CANCELLED);
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[1].is_down);
    assert_int_equal(pair.ends[1].error.rc, MUSTER_UNAVAILABLE);
    assert_false(pair.ends[0].is_down);
    link_pair_close(&pair);
}

static void a_link_may_be_closed_inside_its_own_event(void **state)
{
    struct link_pair pair;
    struct link_sent sent[2];

    (void)state;
    link_pair_open(&pair);
    pair.ends[1].closes_in_frame = true;
    for (size_t i = 0; i < 2; i++) {
        link_sent_init(&sent[i], 1, "abc", 3);
        link_pair_send_frame(&pair, &sent[i]);
    }
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[0].is_down);

    assert_int_equal(pair.ends[1].payload_count, 1);
    link_pair_close(&pair);
}

static void a_lost_peer_fails_what_is_queued(void **state)
{
    struct link_pair pair;
    struct link_sent sent;
    uint8_t *payload = link_pair_pattern_new(LARGE_BYTES, 0);

    (void)state;
    link_pair_open(&pair);
    pair.ends[1].pauses = true;
    link_sent_init(&sent, 1, payload, LARGE_BYTES);
    link_pair_send_frame(&pair, &sent);
    test_env_turn(&pair.test.env, 20);
    muster_peer_link_close(pair.ends[1].link);
    pair.ends[1].link = NULL;
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[0].is_down);

    assert_int_equal(sent.done_count, 1);
    assert_int_equal(sent.rc, MUSTER_UNAVAILABLE);
    free(payload);
    link_pair_close(&pair);
}

static void copies_have_a_bound(void **state)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_MEMBERSHIP,
                                         .payload_bytes = MUSTER_FRAME_PAYLOAD_MAX};
    struct link_pair pair;
    uint8_t *payload = calloc(1, MUSTER_FRAME_PAYLOAD_MAX);
    enum muster_rc rc = MUSTER_OK;
    unsigned count = 0;

    (void)state;
    assert_non_null(payload);
    link_pair_open(&pair);
    while (rc == MUSTER_OK && count++ < 10)
        rc = muster_peer_link_send_copy(pair.ends[0].link, &header, payload);

    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(count, 4);
    free(payload);
    link_pair_close(&pair);
}

static bool has_left(void *data)
{
    return muster_peer_link_queued_bytes(data) == 0;
}

/* They are kept until the peer has said that it has them. */
static void copies_that_the_peer_never_confirms_have_a_bound(void **state)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_MEMBERSHIP,
                                         .payload_bytes = MUSTER_FRAME_PAYLOAD_MAX};
    struct link_pair pair;
    uint8_t *payload = calloc(1, MUSTER_FRAME_PAYLOAD_MAX);
    unsigned count = 0;

    (void)state;
    assert_non_null(payload);
    link_pair_open(&pair);
    pair.ends[1].discards = true;
    pair.ends[1].link->session = 0; /* it says nothing */
    while (count < 10 &&
           muster_peer_link_send_copy(pair.ends[0].link, &header, payload) == MUSTER_OK) {
        count++;
        test_env_run_until(&pair.test.env, has_left, pair.ends[0].link);
    }

    assert_int_equal(count, 3);
    free(payload);
    link_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_arrive_whole_and_in_order_whatever_their_size),
        cmocka_unit_test(frames_may_be_queued_before_the_link_is_ready),
        cmocka_unit_test(a_discarded_frame_leaves_the_next_one_whole),
        cmocka_unit_test(a_paused_link_asks_again_after_resume),
        cmocka_unit_test(a_frame_of_higher_priority_goes_before_those_that_wait),
        cmocka_unit_test(no_frame_overtakes_the_end_of_a_stripe),
        cmocka_unit_test(a_frame_that_has_begun_to_leave_goes_on),
        cmocka_unit_test(a_recall_takes_back_old_epochs_and_keeps_the_stream_whole),
        cmocka_unit_test(without_memory_for_the_rest_of_a_frame_a_recall_ends_the_link),
        cmocka_unit_test(a_recall_of_one_operation_leaves_the_others),
        cmocka_unit_test(the_buffer_of_a_half_received_frame_can_be_taken_back),
        cmocka_unit_test(a_half_received_frame_of_the_kept_type_is_received_to_its_end),
        cmocka_unit_test(closing_cancels_queued_frames_at_once),
        cmocka_unit_test(a_link_may_be_closed_inside_its_own_event),
        cmocka_unit_test(a_lost_peer_fails_what_is_queued),
        cmocka_unit_test(copies_have_a_bound),
        cmocka_unit_test(copies_that_the_peer_never_confirms_have_a_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
