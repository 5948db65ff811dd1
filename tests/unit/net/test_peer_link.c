/* Peer links: hello, frames in order, recall, discard, pause, hostile bytes. */
#include "test_env.h"

#include <muster/stream.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/peer_link.h"
#include "net/peer_link_internal.h"

#define FRAMES_MAX 64

/* One end of a link and all that it was told. */
struct end {
    struct muster_peer_link *link;
    bool is_ready, is_down;
    bool discards;        /* answers on_frame with NULL */
    bool pauses;          /* pauses in on_frame */
    bool takes_back;      /* discards the frame in on_progress and frees its buffer */
    bool closes_in_frame; /* closes the link in on_payload */
    struct muster_error error;
    unsigned asked_count, payload_count, progress_count;
    struct muster_frame_header headers[FRAMES_MAX];
    uint8_t *payloads[FRAMES_MAX];
    uint8_t *receiving;
};

struct pair {
    struct test_env test;
    struct muster_listener *listener;
    struct muster_peer_hello hellos[2];
    struct end ends[2];        /* opener, acceptor */
    struct muster_stream *raw; /* instead of the opener */
};

/* --- Events --- */

static void on_ready(struct muster_peer_link *link)
{
    ((struct end *)muster_peer_link_data(link))->is_ready = true;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct end *end = muster_peer_link_data(link);

    end->asked_count++;
    if (end->pauses)
        muster_peer_link_pause(link);
    if (end->pauses || end->discards)
        return NULL;
    end->receiving = malloc(header->payload_bytes + 1);
    assert_non_null(end->receiving);
    return end->receiving;
}

static void on_progress(struct muster_peer_link *link, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done)
{
    struct end *end = muster_peer_link_data(link);

    assert_ptr_equal(buffer, end->receiving);
    assert_true(bytes_done < header->payload_bytes);
    end->progress_count++;
    if (!end->takes_back)
        return;
    muster_peer_link_discard_receiving(link, header->epoch); /* not below it: no effect */
    muster_peer_link_discard_receiving(link, header->epoch + 1);
    free(end->receiving); /* a later write to it would be seen by the sanitizer */
    end->receiving = NULL;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct end *end = muster_peer_link_data(link);

    if (header->payload_bytes > 0)
        assert_ptr_equal(buffer, end->receiving);
    else
        assert_null(buffer);
    assert_true(end->payload_count < FRAMES_MAX);
    end->headers[end->payload_count] = *header;
    end->payloads[end->payload_count++] = end->receiving;
    end->receiving = NULL;
    if (end->closes_in_frame) {
        end->link = NULL;
        muster_peer_link_close(link);
    }
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct end *end = muster_peer_link_data(link);

    assert_false(end->is_down);
    end->is_down = true;
    end->error = *error;
}

static const struct muster_peer_link_events events = {.on_ready = on_ready,
                                                      .on_frame = on_frame,
                                                      .on_progress = on_progress,
                                                      .on_payload = on_payload,
                                                      .on_down = on_down};

/* --- Pairs --- */

static uint64_t soon(struct pair *pair)
{
    return muster_loop_after_ns(pair->test.env.loop, 10 * MUSTER_NS_PER_S);
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct pair *pair = listener->data;

    assert_int_equal(muster_peer_link_accept(&pair->test.env, stream, &pair->hellos[1], soon(pair),
                                             &events, &pair->ends[1], &pair->ends[1].link),
                     MUSTER_OK);
}

static void pair_init(struct pair *pair)
{
    struct muster_address any;
    struct muster_error error;

    memset(pair, 0, sizeof(*pair));
    test_env_open(&pair->test);
    assert_int_equal(muster_net_system_open(&pair->test.env, &pair->test.env.net), MUSTER_OK);
    for (size_t i = 0; i < 2; i++) {
        snprintf(pair->hellos[i].job, sizeof(pair->hellos[i].job), "job");
        pair->hellos[i].incarnation.bytes[0] = (uint8_t)(i + 1);
        pair->hellos[i].purpose = MUSTER_LINK_DATA;
        pair->hellos[i].stripe = 3;
    }
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, &error), MUSTER_OK);
    assert_int_equal(muster_listener_open(pair->test.env.net, &any, NULL, on_accept, pair,
                                          &pair->listener, &error),
                     MUSTER_OK);
}

static void pair_connect(struct pair *pair)
{
    assert_int_equal(muster_peer_link_open(&pair->test.env, muster_listener_address(pair->listener),
                                           &pair->hellos[0], soon(pair), &events, &pair->ends[0],
                                           &pair->ends[0].link),
                     MUSTER_OK);
}

static bool is_settled(void *data)
{
    struct pair *pair = data;

    return (pair->ends[0].is_ready || pair->ends[0].is_down || pair->raw != NULL) &&
           (pair->ends[1].is_ready || pair->ends[1].is_down);
}

static void pair_open(struct pair *pair)
{
    pair_init(pair);
    pair_connect(pair);
    test_env_run_until(&pair->test.env, is_settled, pair);
}

static void pair_close(struct pair *pair)
{
    for (size_t i = 0; i < 2; i++) {
        muster_peer_link_close(pair->ends[i].link);
        for (unsigned k = 0; k < pair->ends[i].payload_count; k++)
            free(pair->ends[i].payloads[k]);
        free(pair->ends[i].receiving);
    }
    if (pair->raw != NULL)
        muster_stream_close(pair->raw, NULL);
    muster_listener_close(pair->listener, NULL);
    test_env_turn(&pair->test.env, 4);
    muster_net_system_close(pair->test.env.net);
    test_env_close(&pair->test);
}

/* --- Frames --- */

struct sent {
    struct muster_frame frame;
    unsigned done_count;
    enum muster_rc rc;
};

static void on_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct sent *sent = frame->data;

    sent->done_count++;
    sent->rc = rc;
}

static void sent_init(struct sent *sent, uint64_t epoch, const void *payload, uint32_t bytes)
{
    memset(sent, 0, sizeof(*sent));
    sent->frame.data = sent;
    sent->frame.header = (struct muster_frame_header){
        .channel = MUSTER_FRAME_COLLECTIVE, .type = 7, .payload_bytes = bytes, .epoch = epoch};
    sent->frame.payload = payload;
}

static void send_frame(struct pair *pair, struct sent *sent)
{
    assert_int_equal(muster_peer_link_send(&sent->frame, pair->ends[0].link, on_sent), MUSTER_OK);
}

struct awaited {
    struct end *end;
    unsigned count;
};

static bool has_payloads(void *data)
{
    const struct awaited *awaited = data;

    return awaited->end->payload_count >= awaited->count;
}

static void await_payloads(struct pair *pair, unsigned count)
{
    struct awaited awaited = {&pair->ends[1], count};

    test_env_run_until(&pair->test.env, has_payloads, &awaited);
}

static uint8_t *pattern_new(size_t bytes, unsigned seed)
{
    uint8_t *pattern = malloc(bytes);

    assert_non_null(pattern);
    for (size_t i = 0; i < bytes; i++)
        pattern[i] = (uint8_t)(i * 31 + i / 251 + seed);
    return pattern;
}

/* --- Cases: meeting --- */

static void both_sides_learn_who_the_other_is(void **state)
{
    struct pair pair;

    (void)state;
    pair_open(&pair);

    for (size_t i = 0; i < 2; i++) {
        const struct muster_peer_hello *hello = muster_peer_link_hello(pair.ends[i].link);

        assert_true(muster_peer_link_is_ready(pair.ends[i].link));
        assert_true(
            muster_incarnation_is_equal(&hello->incarnation, &pair.hellos[1 - i].incarnation));
        assert_string_equal(hello->job, "job");
        assert_int_equal(hello->version, MUSTER_PEER_VERSION);
        assert_int_equal(muster_peer_link_is_opener(pair.ends[i].link), i == 0);
    }
    assert_int_equal(muster_peer_link_hello(pair.ends[1].link)->stripe, 3);
    assert_int_equal(muster_peer_link_hello(pair.ends[1].link)->purpose, MUSTER_LINK_DATA);
    pair_close(&pair);
}

static void another_job_is_refused_on_both_sides_and_both_are_named(void **state)
{
    struct pair pair;

    (void)state;
    pair_init(&pair);
    snprintf(pair.hellos[1].job, sizeof(pair.hellos[1].job), "other");
    pair_connect(&pair);
    test_env_run_until(&pair.test.env, is_settled, &pair);

    for (size_t i = 0; i < 2; i++) {
        assert_false(pair.ends[i].is_ready);
        assert_int_equal(pair.ends[i].error.rc, MUSTER_FAILED_PRECONDITION);
        assert_non_null(strstr(pair.ends[i].error.text, "\"job\""));
        assert_non_null(strstr(pair.ends[i].error.text, "\"other\""));
    }
    pair_close(&pair);
}

static void a_process_refuses_itself(void **state)
{
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair.hellos[1].incarnation = pair.hellos[0].incarnation;
    pair_connect(&pair);
    test_env_run_until(&pair.test.env, is_settled, &pair);

    assert_int_equal(pair.ends[0].error.rc, MUSTER_FAILED_PRECONDITION);
    pair_close(&pair);
}

static void nobody_listening_is_unavailable(void **state)
{
    struct pair pair;
    struct muster_address address;

    (void)state;
    pair_init(&pair);
    address = *muster_listener_address(pair.listener);
    muster_listener_close(pair.listener, NULL);
    test_env_turn(&pair.test.env, 2);
    assert_int_equal(muster_peer_link_open(&pair.test.env, &address, &pair.hellos[0], soon(&pair),
                                           &events, &pair.ends[0], &pair.ends[0].link),
                     MUSTER_OK);
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[0].is_down);

    assert_int_equal(pair.ends[0].error.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(muster_peer_link_send_copy(
                         pair.ends[0].link,
                         &(struct muster_frame_header){.channel = MUSTER_FRAME_MEMBERSHIP}, NULL),
                     MUSTER_FAILED_PRECONDITION);
    muster_peer_link_close(pair.ends[0].link);
    test_env_turn(&pair.test.env, 3);
    muster_net_system_close(pair.test.env.net);
    test_env_close(&pair.test);
}

/* --- Cases: frames --- */

static void frames_arrive_whole_and_in_order_whatever_their_size(void **state)
{
    static const uint32_t sizes[] = {0, 1, 63, 64, 2048, 2049, 4032, 4096, 70000, 300000, 5, 0};
    enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
    struct pair pair;
    struct sent sent[COUNT];
    uint8_t *payloads[COUNT];

    (void)state;
    pair_open(&pair);
    for (unsigned i = 0; i < COUNT; i++) {
        payloads[i] = pattern_new(sizes[i] + 1, i);
        sent_init(&sent[i], 1, payloads[i], sizes[i]);
        sent[i].frame.header.op = (struct muster_op_id){UINT64_MAX - i, i, 77};
        sent[i].frame.header.flags = 0xabcd;
        sent[i].frame.header.phase = i;
        sent[i].frame.header.chunk = UINT32_MAX;
        sent[i].frame.header.offset = UINT64_C(1) << 40;
        sent[i].frame.header.descriptor = UINT64_C(0x1122334455667788);
        send_frame(&pair, &sent[i]);
        assert_int_equal(sent[i].done_count, 0);
    }
    await_payloads(&pair, COUNT);

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
    pair_close(&pair);
}

static void frames_may_be_queued_before_the_link_is_ready(void **state)
{
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_MEMBERSHIP, .payload_bytes = 5, .type = 2};
    struct pair pair;

    (void)state;
    pair_init(&pair);
    pair_connect(&pair);
    assert_int_equal(muster_peer_link_send_copy(pair.ends[0].link, &header, "hello"), MUSTER_OK);
    await_payloads(&pair, 1);

    assert_memory_equal(pair.ends[1].payloads[0], "hello", 5);
    pair_close(&pair);
}

static void a_discarded_frame_leaves_the_next_one_whole(void **state)
{
    struct pair pair;
    struct sent sent[2];
    uint8_t *payload = pattern_new(100000, 1);

    (void)state;
    pair_open(&pair);
    pair.ends[1].discards = true;
    sent_init(&sent[0], 1, payload, 100000);
    send_frame(&pair, &sent[0]);
    test_env_run_until(&pair.test.env, test_env_is_true, &sent[0].done_count);
    test_env_turn(&pair.test.env, 50);
    assert_int_equal(pair.ends[1].payload_count, 0);
    pair.ends[1].discards = false;
    sent_init(&sent[1], 1, payload, 1000);
    send_frame(&pair, &sent[1]);
    await_payloads(&pair, 1);

    assert_memory_equal(pair.ends[1].payloads[0], payload, 1000);
    free(payload);
    pair_close(&pair);
}

static void a_paused_link_asks_again_after_resume(void **state)
{
    struct pair pair;
    struct sent sent[2];
    uint8_t payload[200] = {1, 2, 3};

    (void)state;
    pair_open(&pair);
    pair.ends[1].pauses = true;
    for (size_t i = 0; i < 2; i++) {
        sent_init(&sent[i], 1, payload, (uint32_t)(i * sizeof(payload)));
        send_frame(&pair, &sent[i]);
    }
    test_env_turn(&pair.test.env, 50);
    assert_int_equal(pair.ends[1].asked_count, 1);
    assert_int_equal(pair.ends[1].payload_count, 0);
    pair.ends[1].pauses = false;
    muster_peer_link_resume(pair.ends[1].link);
    await_payloads(&pair, 2);

    assert_int_equal(pair.ends[1].asked_count, 3);
    assert_memory_equal(pair.ends[1].payloads[1], payload, sizeof(payload));
    pair_close(&pair);
}

/* --- Cases: recall --- */

#define LARGE_BYTES (16u << 20)

/* The receiver is paused, so frames of many MiB cannot all leave: one is half out. */
static void a_recall_takes_back_old_epochs_and_keeps_the_stream_whole(void **state)
{
    struct muster_frame_header control = {
        .channel = MUSTER_FRAME_MEMBERSHIP, .payload_bytes = 3, .epoch = 1};
    struct pair pair;
    struct sent sent[3], next;
    uint8_t *payload = pattern_new(LARGE_BYTES, 9);

    (void)state;
    pair_open(&pair);
    pair.ends[1].pauses = true;
    for (size_t i = 0; i < 3; i++) {
        sent_init(&sent[i], 4, payload, LARGE_BYTES);
        send_frame(&pair, &sent[i]);
        if (i == 1)
            assert_int_equal(muster_peer_link_send_copy(pair.ends[0].link, &control, "abc"),
                             MUSTER_OK);
    }
    sent_init(&next, 5, payload, 1000);
    send_frame(&pair, &next);
    test_env_turn(&pair.test.env, 30);
    muster_peer_link_recall(pair.ends[0].link, 5);
    assert_int_equal(sent[0].done_count, 0);
    memset(payload + 1000, 0xee, LARGE_BYTES - 1000); /* it is ours again */
    pair.ends[1].pauses = false;
    muster_peer_link_resume(pair.ends[1].link);
    await_payloads(&pair, 3);

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
    pair_close(&pair);
}

static void a_recall_of_one_operation_leaves_the_others(void **state)
{
    struct pair pair;
    struct sent sent[2];
    const struct muster_op_id op = {.step = 1, .lane = 0, .sequence = 8};

    (void)state;
    pair_open(&pair);
    for (uint32_t i = 0; i < 2; i++) {
        sent_init(&sent[i], 1, "xyz", 3);
        sent[i].frame.header.op = (struct muster_op_id){.step = 1, .sequence = 8 + i};
        send_frame(&pair, &sent[i]);
    }
    muster_peer_link_recall_op(pair.ends[0].link, &op);
    await_payloads(&pair, 1);

    assert_int_equal(sent[0].done_count, 0);
    assert_int_equal(pair.ends[1].headers[0].op.sequence, 9);
    pair_close(&pair);
}

static void the_buffer_of_a_half_received_frame_can_be_taken_back(void **state)
{
    struct pair pair;
    struct sent sent[2];
    uint8_t *payload = pattern_new(LARGE_BYTES, 3);

    (void)state;
    pair_open(&pair);
    pair.ends[1].takes_back = true;
    sent_init(&sent[0], 1, payload, LARGE_BYTES);
    sent_init(&sent[1], 2, payload, 100);
    send_frame(&pair, &sent[0]);
    send_frame(&pair, &sent[1]);
    await_payloads(&pair, 1);

    assert_int_equal(pair.ends[1].progress_count, 1);
    assert_int_equal(pair.ends[1].headers[0].epoch, 2);
    assert_memory_equal(pair.ends[1].payloads[0], payload, 100);
    free(payload);
    pair_close(&pair);
}

/* --- Cases: ends --- */

static void closing_cancels_queued_frames_at_once(void **state)
{
    struct pair pair;
    struct sent sent;

    (void)state;
    pair_open(&pair);
    sent_init(&sent, 1, "abc", 3);
    send_frame(&pair, &sent);
    muster_peer_link_close(pair.ends[0].link);
    pair.ends[0].link = NULL;

    assert_int_equal(sent.done_count, 1);
    assert_int_equal(sent.rc, MUSTER_CANCELLED);
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[1].is_down);
    assert_int_equal(pair.ends[1].error.rc, MUSTER_UNAVAILABLE);
    assert_false(pair.ends[0].is_down);
    pair_close(&pair);
}

static void a_link_may_be_closed_inside_its_own_event(void **state)
{
    struct pair pair;
    struct sent sent[2];

    (void)state;
    pair_open(&pair);
    pair.ends[1].closes_in_frame = true;
    for (size_t i = 0; i < 2; i++) {
        sent_init(&sent[i], 1, "abc", 3);
        send_frame(&pair, &sent[i]);
    }
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[0].is_down);

    assert_int_equal(pair.ends[1].payload_count, 1);
    pair_close(&pair);
}

static void a_lost_peer_fails_what_is_queued(void **state)
{
    struct pair pair;
    struct sent sent;
    uint8_t *payload = pattern_new(LARGE_BYTES, 0);

    (void)state;
    pair_open(&pair);
    pair.ends[1].pauses = true;
    sent_init(&sent, 1, payload, LARGE_BYTES);
    send_frame(&pair, &sent);
    test_env_turn(&pair.test.env, 20);
    muster_peer_link_close(pair.ends[1].link);
    pair.ends[1].link = NULL;
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[0].is_down);

    assert_int_equal(sent.done_count, 1);
    assert_int_equal(sent.rc, MUSTER_UNAVAILABLE);
    free(payload);
    pair_close(&pair);
}

static void copies_have_a_bound(void **state)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_MEMBERSHIP,
                                         .payload_bytes = MUSTER_FRAME_PAYLOAD_MAX};
    struct pair pair;
    uint8_t *payload = calloc(1, MUSTER_FRAME_PAYLOAD_MAX);
    enum muster_rc rc = MUSTER_OK;
    unsigned count = 0;

    (void)state;
    assert_non_null(payload);
    pair_open(&pair);
    while (rc == MUSTER_OK && count++ < 10)
        rc = muster_peer_link_send_copy(pair.ends[0].link, &header, payload);

    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(count, 4);
    free(payload);
    pair_close(&pair);
}

/* --- Cases: strangers --- */

static void on_raw(struct muster_connect *connect, enum muster_rc rc)
{
    struct pair *pair = connect->data;

    assert_int_equal(rc, MUSTER_OK);
    pair->raw = connect->stream;
}

static bool has_raw(void *data)
{
    return ((struct pair *)data)->raw != NULL;
}

static void on_raw_written(struct muster_stream_write *write, enum muster_rc rc)
{
    (void)rc;
    *(bool *)write->data = true;
}

/* A stranger connects and says these bytes. */
static void say(struct pair *pair, const void *bytes, size_t count)
{
    struct muster_connect connect = {.data = pair};
    bool is_written = false;
    struct muster_stream_write write = {.data = &is_written};
    struct iovec iov = {.iov_len = count};

    pair_init(pair);
    assert_int_equal(muster_connect_start(&connect, pair->test.env.net,
                                          muster_listener_address(pair->listener), NULL, soon(pair),
                                          on_raw),
                     MUSTER_OK);
    test_env_run_until(&pair->test.env, has_raw, pair);
    memcpy(&iov.iov_base, &bytes, sizeof(bytes));
    assert_int_equal(muster_stream_submit(&write, pair->raw, &iov, 1, on_raw_written), MUSTER_OK);
    test_env_run_until(&pair->test.env, test_env_is_true, &is_written);
    test_env_run_until(&pair->test.env, is_settled, pair);
    test_env_turn(&pair->test.env, 10);
}

/* A good hello of another process, and a frame header behind it. */
static void make_greeting(uint8_t bytes[MUSTER_HELLO_BYTES + MUSTER_FRAME_HEADER_BYTES],
                          const struct muster_frame_header *header)
{
    struct muster_peer_hello hello = {.version = MUSTER_PEER_VERSION,
                                      .purpose = MUSTER_LINK_DATA,
                                      .incarnation = {.bytes = {42}},
                                      .job = "job"};

    muster_peer_hello_pack(&hello, bytes);
    muster_frame_header_pack(header, bytes + MUSTER_HELLO_BYTES);
}

struct stranger {
    const char *name;
    size_t at; /* the byte that is changed … */
    uint8_t value;
    size_t count; /* … and how much is said */
    enum muster_rc rc;
    const char *text;
};

static void strangers_are_refused_with_a_reason(void **state)
{
    static const struct stranger strangers[] = {
        {"no magic", 0, 'X', 96, MUSTER_INVALID_ARGUMENT, "does not speak"},
        {"newer version", 4, 9, 96, MUSTER_FAILED_PRECONDITION, "1 here, 9 there"},
        {"newer version, shorter hello", 4, 9, 8, MUSTER_FAILED_PRECONDITION, "1 here, 9 there"},
        {"unknown purpose", 8, 77, 96, MUSTER_INVALID_ARGUMENT, "purpose 77"},
        {"no incarnation", 16, 0, 96, MUSTER_INVALID_ARGUMENT, "no incarnation"},
        {"control character in the job", 33, '\n', 96, MUSTER_INVALID_ARGUMENT, "malformed job"},
        {"unknown channel", 96, 9, 160, MUSTER_INVALID_ARGUMENT, "channel 9"},
        {"huge payload", 103, 0x7f, 160, MUSTER_INVALID_ARGUMENT, "the limit is"},
    };
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE};

    (void)state;
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        uint8_t bytes[MUSTER_HELLO_BYTES + MUSTER_FRAME_HEADER_BYTES];
        struct pair pair;

        make_greeting(bytes, &header);
        bytes[strangers[i].at] = strangers[i].value;
        say(&pair, bytes, strangers[i].count);
        if (!pair.ends[1].is_down || pair.ends[1].error.rc != strangers[i].rc ||
            strstr(pair.ends[1].error.text, strangers[i].text) == NULL)
            fail_msg("%s: %d %s", strangers[i].name, (int)pair.ends[1].error.rc,
                     pair.ends[1].error.text);
        pair_close(&pair);
    }
}

static void on_raw_read(struct muster_stream_read *read, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    *(bool *)read->data = true;
}

/* A process of another version gets our hello, so that it can name both sides too. */
static void the_refused_side_still_hears_our_hello(void **state)
{
    uint8_t bytes[MUSTER_HELLO_BYTES + MUSTER_FRAME_HEADER_BYTES], answer[MUSTER_HELLO_BYTES];
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE};
    bool is_read = false;
    struct muster_stream_read read = {.data = &is_read};
    struct pair pair;

    (void)state;
    make_greeting(bytes, &header);
    bytes[4] = 2;
    say(&pair, bytes, MUSTER_HELLO_BYTES);
    assert_int_equal(muster_stream_receive_into(&read, pair.raw, answer, sizeof(answer),
                                                sizeof(answer), on_raw_read),
                     MUSTER_OK);
    test_env_run_until(&pair.test.env, test_env_is_true, &is_read);

    assert_memory_equal(answer, "MSTR\1\0\0\0", 8);
    pair_close(&pair);
}

static void silence_ends_at_the_deadline(void **state)
{
    struct pair pair;
    struct muster_connect connect = {.data = &pair};

    (void)state;
    pair_init(&pair);
    assert_int_equal(muster_connect_start(&connect, pair.test.env.net,
                                          muster_listener_address(pair.listener), NULL, soon(&pair),
                                          on_raw),
                     MUSTER_OK);
    test_env_run_until(&pair.test.env, has_raw, &pair);
    for (unsigned i = 0; i < 100 && pair.ends[1].link == NULL; i++)
        test_env_turn(&pair.test.env, 1);
    /* The deadline is moved, not waited for. */
    muster_timer_start(&pair.ends[1].link->timer, pair.test.env.loop, 0);
    test_env_run_until(&pair.test.env, test_env_is_true, &pair.ends[1].is_down);

    assert_int_equal(pair.ends[1].error.rc, MUSTER_DEADLINE_EXCEEDED);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_learn_who_the_other_is),
        cmocka_unit_test(another_job_is_refused_on_both_sides_and_both_are_named),
        cmocka_unit_test(a_process_refuses_itself),
        cmocka_unit_test(nobody_listening_is_unavailable),
        cmocka_unit_test(frames_arrive_whole_and_in_order_whatever_their_size),
        cmocka_unit_test(frames_may_be_queued_before_the_link_is_ready),
        cmocka_unit_test(a_discarded_frame_leaves_the_next_one_whole),
        cmocka_unit_test(a_paused_link_asks_again_after_resume),
        cmocka_unit_test(a_recall_takes_back_old_epochs_and_keeps_the_stream_whole),
        cmocka_unit_test(a_recall_of_one_operation_leaves_the_others),
        cmocka_unit_test(the_buffer_of_a_half_received_frame_can_be_taken_back),
        cmocka_unit_test(closing_cancels_queued_frames_at_once),
        cmocka_unit_test(a_link_may_be_closed_inside_its_own_event),
        cmocka_unit_test(a_lost_peer_fails_what_is_queued),
        cmocka_unit_test(copies_have_a_bound),
        cmocka_unit_test(strangers_are_refused_with_a_reason),
        cmocka_unit_test(the_refused_side_still_hears_our_hello),
        cmocka_unit_test(silence_ends_at_the_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
