/* Links that outlive their connection: every frame once, in order, whatever byte it broke at. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cut_net.h"
#include "net/link/peer_link_internal.h"
#include "test_env.h"

#define FRAMES     8
#define SCRIPT_MAX 9000

/* One side: what it sends, what it has got. */
struct end {
    struct rig *rig;
    struct muster_peer_link *link;
    struct muster_peer_hello hello;
    struct muster_frame frames[FRAMES];
    uint8_t payloads[FRAMES][SCRIPT_MAX];
    unsigned sent_count, arrived_count;
    uint8_t room[SCRIPT_MAX];
    unsigned broken_count, resumed_count, abandoned_count;
    uint32_t progress;
    bool is_ready, is_down, is_paused;
    struct muster_error error;
};

struct rig {
    struct test_env test;
    struct cut_net net;
    struct end ends[2];               /* opener, acceptor */
    struct muster_peer_link *strange; /* accepted, its hello awaited */
    const uint32_t *sizes;
    unsigned count;
    uint64_t next_limits[2]; /* of the connection after the first */
    bool is_waiting;         /* the opener does not connect again by itself */
    bool is_closing;
    bool is_forgotten;          /* the acceptor does not know any session */
    uint64_t greeting_bytes[2]; /* before the first frame: of the opener, of the acceptor */
};

static struct rig rig;
static const struct muster_address anywhere = {.family = MUSTER_ADDRESS_IPV4, .port = 1};

static uint64_t soon(void)
{
    return muster_loop_after_ns(rig.test.env.loop, 10 * MUSTER_NS_PER_S);
}

static void on_ready(struct muster_peer_link *link)
{
    ((struct end *)muster_peer_link_data(link))->is_ready = true;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct end *end = muster_peer_link_data(link);

    assert_int_equal(header->chunk, end->arrived_count);
    assert_int_equal(header->payload_bytes, rig.sizes[header->chunk]);
    end->progress = 0;
    if (end->is_paused)
        muster_peer_link_pause(link);
    return end->is_paused ? NULL : end->room;
}

static void on_progress(struct muster_peer_link *link, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done)
{
    struct end *end = muster_peer_link_data(link);

    assert_ptr_equal(buffer, end->room);
    assert_true(bytes_done > end->progress && bytes_done < header->payload_bytes);
    end->progress = bytes_done;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct end *end = muster_peer_link_data(link);
    const struct end *from = &rig.ends[end == &rig.ends[0]];

    assert_true(buffer == end->room || header->payload_bytes == 0);
    assert_memory_equal(end->room, from->payloads[header->chunk], header->payload_bytes);
    end->arrived_count++;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct end *end = muster_peer_link_data(link);

    end->is_down = true;
    end->error = *error;
}

static void reopen(struct end *end)
{
    memcpy(rig.net.limits, rig.next_limits, sizeof(rig.next_limits));
    rig.next_limits[0] = rig.next_limits[1] = UINT64_MAX;
    assert_int_equal(muster_peer_link_reopen(end->link, &anywhere, soon()), MUSTER_OK);
}

static void on_broken(struct muster_peer_link *link, const struct muster_error *error)
{
    struct end *end = muster_peer_link_data(link);

    end->broken_count++;
    end->error = *error;
    if (end == &rig.ends[0] && !rig.is_waiting && error->rc == MUSTER_UNAVAILABLE)
        reopen(end);
}

static void on_resumed(struct muster_peer_link *link)
{
    ((struct end *)muster_peer_link_data(link))->resumed_count++;
}

static void on_abandoned(struct muster_peer_link *link)
{
    ((struct end *)muster_peer_link_data(link))->abandoned_count++;
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready,
    .on_frame = on_frame,
    .on_progress = on_progress,
    .on_payload = on_payload,
    .on_down = on_down,
    .on_broken = on_broken,
    .on_resumed = on_resumed,
    .on_abandoned = on_abandoned,
};

static void on_strange_ready(struct muster_peer_link *link)
{
    struct end *end = &rig.ends[1];
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);

    rig.strange = NULL;
    if (hello->intent == MUSTER_LINK_NEW) {
        end->link = link;
        end->is_ready = true;
        muster_peer_link_set_owner(link, &events, end);
    } else if (rig.is_forgotten || hello->intent == MUSTER_LINK_PROBE ||
               muster_peer_link_take_over(end->link, link) != MUSTER_OK) {
        muster_peer_link_answer(link,
                                rig.is_forgotten ? MUSTER_LINK_IS_UNKNOWN : MUSTER_LINK_IS_LACKING);
    }
}

static void on_strange_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    rig.strange = NULL;
    muster_peer_link_close(link);
}

static const struct muster_peer_link_events strange_events = {
    .on_ready = on_strange_ready,
    .on_frame = on_frame,
    .on_payload = on_payload,
    .on_down = on_strange_down,
};

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    (void)listener;
    if (rig.strange != NULL)
        muster_peer_link_close(rig.strange);
    assert_int_equal(muster_peer_link_accept(&rig.test.env, stream, &rig.ends[1].hello, soon(),
                                             &strange_events, NULL, &rig.strange),
                     MUSTER_OK);
}

static void end_init(struct end *end, unsigned index)
{
    snprintf(end->hello.job, sizeof(end->hello.job), "job");
    end->hello.incarnation.bytes[0] = (uint8_t)(index + 1);
    end->hello.purpose = MUSTER_LINK_DATA;
    rig.greeting_bytes[index] = MUSTER_HELLO_BYTES;
    for (unsigned i = 0; i < rig.count; i++)
        for (uint32_t k = 0; k < rig.sizes[i]; k++)
            end->payloads[i][k] = (uint8_t)(k * 7 + k / 256 + i * 31 + index * 101);
}

static void rig_open(const uint32_t *sizes, unsigned count)
{
    memset(&rig, 0, sizeof(rig));
    rig.sizes = sizes;
    rig.count = count;
    test_env_open(&rig.test);
    cut_net_init(&rig.net, &rig.test.env, on_accept, NULL);
    rig.test.env.net = &rig.net.net;
    rig.next_limits[0] = rig.next_limits[1] = UINT64_MAX;
    for (unsigned i = 0; i < 2; i++)
        end_init(&rig.ends[i], i);
}

/* Both have the key of a control link: each connection has to be proven. */
static void rig_share_key(void)
{
    const struct muster_link_key key = {.secret = {1}, .id = {2}};

    for (unsigned i = 0; i < 2; i++) {
        struct muster_peer_hello *hello = &rig.ends[i].hello;

        hello->keys = muster_link_keys_new(rig.test.env.mem);
        assert_non_null(hello->keys);
        assert_int_equal(
            muster_link_keys_put(hello->keys, &rig.ends[1 - i].hello.incarnation, &key), MUSTER_OK);
    }
    rig.ends[0].hello.target = rig.ends[1].hello.incarnation;
    rig.greeting_bytes[0] = MUSTER_LINK_ASKED_BYTES + MUSTER_LINK_MAC_BYTES;
    rig.greeting_bytes[1] = MUSTER_LINK_ANSWERED_BYTES + MUSTER_LINK_MAC_BYTES;
}

static bool is_joined(void *data)
{
    (void)data;
    return rig.ends[0].is_ready && rig.ends[1].is_ready;
}

static void rig_join(void)
{
    assert_int_equal(muster_peer_link_open(&rig.test.env, &anywhere, &rig.ends[0].hello, soon(),
                                           &events, &rig.ends[0], &rig.ends[0].link),
                     MUSTER_OK);
    test_env_run_until(&rig.test.env, is_joined, NULL);
}

static void rig_close(void)
{
    rig.is_closing = true;
    for (unsigned i = 0; i < 2; i++)
        muster_peer_link_close(rig.ends[i].link);
    muster_peer_link_close(rig.strange);
    test_env_turn(&rig.test.env, 10);
    for (unsigned i = 0; i < 2; i++)
        muster_link_keys_free(rig.ends[i].hello.keys);
    cut_net_fini(&rig.net);
    test_env_close(&rig.test);
}

static void on_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct end *end = frame->data;

    if (rig.is_closing)
        return;
    assert_int_equal(rc, MUSTER_OK);
    assert_int_equal(frame->header.chunk, end->sent_count);
    end->sent_count++;
}

static void send_frame(struct end *end, unsigned i, uint64_t epoch)
{
    end->frames[i] = (struct muster_frame){.data = end,
                                           .header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                                      .type = 1,
                                                      .payload_bytes = rig.sizes[i],
                                                      .epoch = epoch,
                                                      .chunk = i},
                                           .payload = end->payloads[i]};
    assert_int_equal(muster_peer_link_send(&end->frames[i], end->link, on_sent), MUSTER_OK);
}

static void send_all(void)
{
    for (unsigned i = 0; i < rig.count; i++)
        for (unsigned k = 0; k < 2; k++)
            send_frame(&rig.ends[k], i, 1);
}

/* Everything is there, and known to be there. */
static bool is_through(void *data)
{
    (void)data;
    for (unsigned i = 0; i < 2; i++)
        if (rig.ends[i].arrived_count < rig.count || rig.ends[i].sent_count < rig.count)
            return false;
    return true;
}

static bool has_arrived(void *data)
{
    (void)data;
    return rig.ends[1].arrived_count == rig.count;
}

/* The delay after which a silent side tells what it has is not waited for. */
static void run_through(void)
{
    for (unsigned i = 0; i < 4000 && !is_through(NULL); i++) {
        test_env_turn(&rig.test.env, 1);
        for (unsigned k = 0; k < 2 && i > 100 && i % 50 == 0; k++)
            if (rig.ends[k].link != NULL && muster_peer_link_is_ready(rig.ends[k].link))
                muster_peer_link_on_ack_due(&rig.ends[k].link->ack_timer);
    }
    assert_true(is_through(NULL));
    for (unsigned i = 0; i < 2; i++) {
        assert_false(rig.ends[i].is_down);
        assert_int_equal(rig.ends[i].arrived_count, rig.count);
        assert_int_equal(muster_peer_link_queued_bytes(rig.ends[i].link), 0);
    }
}

/* --- Cases --- */

static const uint32_t small[] = {5, 0, 64, 1, 100};
#define SMALL_COUNT 5
#define SMALL_BYTES (5 * 64 + 170)

static void cut_once(unsigned direction, uint64_t at, size_t take_max, bool is_proven)
{
    rig_open(small, SMALL_COUNT);
    if (is_proven)
        rig_share_key();
    rig.net.take_max = take_max;
    rig.net.limits[direction] = rig.greeting_bytes[direction] + at;
    rig_join();
    send_all();
    run_through();

    assert_true(rig.ends[0].broken_count >= 1);
    assert_int_equal(rig.ends[0].resumed_count, 1);
    assert_int_equal(rig.ends[1].resumed_count, 1);
    assert_int_equal(rig.net.dial_count, 2);
    rig_close();
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
            rig_open(small, SMALL_COUNT);
            rig_share_key();
            rig.net.limits[1 - direction] = rig.greeting_bytes[1 - direction] + 200;
            rig.next_limits[direction] = at;
            rig_join();
            send_all();
            run_through();

            assert_true(rig.ends[0].broken_count >= 1 && rig.ends[0].resumed_count >= 1);
            rig_close();
        }
    }
}

/* Everything that the first connection has said does not resume it: who has the session's number but
 * not the key. */
static void a_session_is_not_resumed_without_the_key(void **state)
{
    (void)state;
    rig_open(small, SMALL_COUNT);
    rig_share_key();
    rig_join();
    rig.is_waiting = true;
    cut_net_reset(&rig.net);
    test_env_turn(&rig.test.env, 5);
    assert_int_equal(muster_link_keys_put(rig.ends[0].hello.keys, &rig.ends[1].hello.incarnation,
                                          &(struct muster_link_key){.secret = {3}, .id = {2}}),
                     MUSTER_OK); /* the name has been heard, the key has not */
    reopen(&rig.ends[0]);
    for (unsigned i = 0; i < 50; i++)
        test_env_turn(&rig.test.env, 1);

    assert_int_equal(rig.ends[0].resumed_count, 0);
    assert_int_equal(rig.ends[1].resumed_count, 0);
    assert_true(rig.ends[0].is_down);
    assert_int_equal(rig.ends[0].error.rc, MUSTER_UNAUTHENTICATED);
    assert_false(rig.ends[1].is_down);
    rig_close();
}

/* The first connection carries `first` bytes, the second is cut in its hello, its answer or later.
 */
static void a_second_cut_while_it_is_being_resumed_is_resumed_too(void **state)
{
    (void)state;
    for (unsigned direction = 0; direction < 2; direction++) {
        for (uint64_t at = 1; at <= MUSTER_HELLO_BYTES + 64 + 300; at += 5) {
            rig_open(small, SMALL_COUNT);
            rig.net.limits[1 - direction] = MUSTER_HELLO_BYTES + 200;
            rig.next_limits[direction] = at;
            rig_join();
            send_all();
            run_through();

            assert_true(rig.ends[0].broken_count >= 1 && rig.ends[0].resumed_count >= 1);
            rig_close();
        }
    }
}

static const uint32_t large[] = {9000, 3000, 0, 8000};

static void large_payloads_go_on_in_the_middle(void **state)
{
    (void)state;
    for (unsigned direction = 0; direction < 2; direction++) {
        for (uint64_t at = 64; at < 20000; at += 977) {
            rig_open(large, 4);
            rig.net.take_max = 1500;
            rig.net.limits[direction] = MUSTER_HELLO_BYTES + at;
            rig_join();
            send_all();
            run_through();

            assert_int_equal(rig.ends[0].resumed_count, 1);
            rig_close();
        }
    }
}

static void frames_that_are_sent_while_it_is_broken_wait(void **state)
{
    (void)state;
    rig_open(small, SMALL_COUNT);
    rig_join();
    rig.is_waiting = true;
    cut_net_reset(&rig.net);
    test_env_turn(&rig.test.env, 5);
    assert_int_equal(rig.ends[0].broken_count, 1);
    assert_int_equal(rig.ends[1].broken_count, 1);
    assert_true(muster_peer_link_is_met(rig.ends[0].link));
    assert_false(muster_peer_link_is_ready(rig.ends[0].link));
    send_all();
    test_env_turn(&rig.test.env, 5);
    rig.is_waiting = false;
    reopen(&rig.ends[0]);
    run_through();

    assert_int_equal(rig.ends[1].resumed_count, 1);
    rig_close();
}

/* The side that did not notice is told by the hello. */
static void a_side_that_has_not_noticed_is_taken_over(void **state)
{
    struct muster_error why = {.rc = MUSTER_UNAVAILABLE, .text = "says the test"};

    (void)state;
    rig_open(small, SMALL_COUNT);
    rig_join();
    send_all();
    test_env_turn(&rig.test.env, 1);
    muster_peer_link_break(rig.ends[0].link, &why);
    run_through();

    assert_int_equal(rig.ends[0].broken_count, 1);
    assert_int_equal(rig.ends[0].resumed_count, 1);
    assert_int_equal(rig.ends[1].resumed_count, 1);
    rig_close();
}

static void a_paused_link_stays_paused(void **state)
{
    (void)state;
    rig_open(small, SMALL_COUNT);
    rig_join();
    rig.ends[1].is_paused = true;
    send_all();
    test_env_turn(&rig.test.env, 10);
    cut_net_reset(&rig.net);
    for (unsigned i = 0; i < 1000 && rig.ends[0].resumed_count == 0; i++)
        test_env_turn(&rig.test.env, 1);
    test_env_turn(&rig.test.env, 20);
    assert_int_equal(rig.ends[1].arrived_count, 0);
    rig.ends[1].is_paused = false;
    muster_peer_link_resume(rig.ends[1].link);
    run_through();

    rig_close();
}

static bool is_refused(void *data)
{
    (void)data;
    return rig.ends[0].error.rc == MUSTER_FAILED_PRECONDITION;
}

static void a_session_that_is_forgotten_is_refused_for_good(void **state)
{
    (void)state;
    rig_open(small, SMALL_COUNT);
    rig_join();
    rig.is_forgotten = true;
    cut_net_reset(&rig.net);
    test_env_run_until(&rig.test.env, is_refused, NULL);

    assert_non_null(strstr(rig.ends[0].error.text, "does not know"));
    assert_int_equal(rig.ends[0].resumed_count, 0);
    rig_close();
}

/* After a recall their memory is another's: the peer does without them. */
static void frames_that_were_taken_back_are_not_sent_again(void **state)
{
    (void)state;
    rig_open(small, SMALL_COUNT);
    rig.net.limits[0] = MUSTER_HELLO_BYTES + 80;
    rig.is_waiting = true;
    rig_join();
    for (unsigned i = 0; i < rig.count; i++)
        send_frame(&rig.ends[0], i, 1);
    test_env_turn(&rig.test.env, 5);
    muster_peer_link_recall(rig.ends[0].link, 2);
    reopen(&rig.ends[0]);
    rig.ends[0].sent_count = 1;
    for (unsigned i = 1; i < rig.count; i++)
        send_frame(&rig.ends[0], i, 2);
    test_env_run_until(&rig.test.env, has_arrived, NULL);

    assert_int_equal(rig.ends[0].resumed_count, 1);
    assert_int_equal(rig.ends[1].abandoned_count, 0);
    rig_close();
}

/* The first frame has arrived in part, and is taken back: its room is free, and the second comes. */
static void a_frame_that_is_taken_back_in_the_middle_is_abandoned(void **state)
{
    (void)state;
    for (unsigned moment = 0; moment < 2; moment++) { /* before it breaks, after */
        rig_open(large, 4);
        rig.net.take_max = 1500;
        rig.is_waiting = true;
        rig_join();
        for (unsigned i = 0; i < 2; i++)
            send_frame(&rig.ends[0], i, 1);
        while (rig.ends[1].link->receive != MUSTER_RECEIVE_PAYLOAD)
            test_env_turn(&rig.test.env, 1);
        test_env_turn(&rig.test.env, 1);
        if (moment == 0)
            muster_peer_link_recall(rig.ends[0].link, 2);
        cut_net_reset(&rig.net);
        test_env_turn(&rig.test.env, 5);
        if (moment == 1)
            muster_peer_link_recall(rig.ends[0].link, 2);
        reopen(&rig.ends[0]);
        for (unsigned i = 0; i < rig.count; i++)
            send_frame(&rig.ends[0], i, 2);
        test_env_run_until(&rig.test.env, has_arrived, NULL);

        assert_int_equal(rig.ends[1].abandoned_count, 1);
        assert_int_equal(rig.ends[0].resumed_count, 1);
        rig_close();
    }
}

/* They had arrived, so nothing is lacking; what follows goes on in the same session. */
static void frames_that_had_arrived_may_be_taken_back(void **state)
{
    (void)state;
    rig_open(small, SMALL_COUNT);
    rig_join();
    for (unsigned i = 0; i < 3; i++)
        send_frame(&rig.ends[0], i, 1);
    for (unsigned i = 0; i < 100 && rig.ends[1].arrived_count < 3; i++)
        test_env_turn(&rig.test.env, 1);
    muster_peer_link_recall(rig.ends[0].link, 2);
    rig.ends[0].sent_count = 3;
    cut_net_reset(&rig.net);
    for (unsigned i = 3; i < rig.count; i++)
        send_frame(&rig.ends[0], i, 2);
    test_env_run_until(&rig.test.env, has_arrived, NULL);

    assert_int_equal(rig.ends[0].resumed_count, 1);
    rig_close();
}

static void close_when_done(struct muster_frame *frame, enum muster_rc rc)
{
    struct end *end = frame->data;

    assert_int_equal(rc, MUSTER_OK);
    assert_int_equal(end->resumed_count, 0);
    muster_peer_link_close(end->link);
    end->link = NULL;
}

/* It learns that its frame had arrived while it is being resumed, and needs the link no more. */
static void an_owner_may_close_the_link_while_it_is_resumed(void **state)
{
    struct muster_frame frame = {.data = &rig.ends[0],
                                 .header = {.channel = MUSTER_FRAME_COLLECTIVE, .epoch = 1}};

    (void)state;
    rig_open(small, SMALL_COUNT);
    rig_join();
    frame.payload = rig.ends[0].payloads[0];
    frame.header.payload_bytes = rig.sizes[0];
    assert_int_equal(muster_peer_link_send(&frame, rig.ends[0].link, close_when_done), MUSTER_OK);
    for (unsigned i = 0; i < 100 && rig.ends[1].arrived_count < 1; i++)
        test_env_turn(&rig.test.env, 1);
    cut_net_reset(&rig.net);
    for (unsigned i = 0; i < 100 && rig.ends[0].link != NULL; i++)
        test_env_turn(&rig.test.env, 1);

    assert_null(rig.ends[0].link);
    assert_int_equal(rig.ends[0].broken_count, 1);
    assert_int_equal(rig.ends[0].resumed_count, 0);
    rig_close();
}

/* Frames that are taken back before they leave have no place in the session. */
static void taking_back_what_has_not_left_keeps_the_count(void **state)
{
    (void)state;
    for (size_t take_max = 10; take_max < 200; take_max += 10) {
        rig_open(small, SMALL_COUNT);
        rig_join();
        rig.net.take_max = take_max;
        send_frame(&rig.ends[0], 0, 9);
        for (unsigned i = 2; i < rig.count; i++)
            send_frame(&rig.ends[0], i, 1);
        test_env_turn(&rig.test.env, 1);
        if (rig.ends[0].link->written >= 69) { /* the second one has begun: it is not for here */
            rig_close();
            continue;
        }
        muster_peer_link_recall(rig.ends[0].link, 2);
        for (unsigned i = 1; i < rig.count; i++)
            send_frame(&rig.ends[0], i, 9);
        for (unsigned i = 0; i < 3; i++)
            test_env_turn(&rig.test.env, 1);
        cut_net_reset(&rig.net);
        test_env_run_until(&rig.test.env, has_arrived, NULL);

        assert_int_equal(rig.ends[0].resumed_count, 1);
        rig_close();
    }
}

static const uint32_t one_way[] = {9000, 9000, 9000, 9000, 9000, 9000, 9000, 9000};

/* Nothing goes the other way: the receiver tells by itself, so that nothing is kept for long. */
static void a_silent_receiver_tells_what_it_has(void **state)
{
    struct end *end = &rig.ends[0];

    (void)state;
    rig_open(one_way, 8);
    rig_join();
    for (unsigned round = 0; round < 30; round++) {
        for (unsigned i = 0; i < 8; i++)
            send_frame(end, i, 1);
        for (unsigned i = 0; i < 1000 && rig.ends[1].arrived_count < 8; i++)
            test_env_turn(&rig.test.env, 1);
        assert_true(muster_peer_link_unacked_bytes(end->link) <=
                    MUSTER_LINK_UNTOLD_BYTES + 8 * 9064);
        if (round % 13 == 12 || round == 29) {
            muster_peer_link_on_ack_due(&rig.ends[1].link->ack_timer);
            for (unsigned i = 0; i < 100 && muster_peer_link_unacked_bytes(end->link) > 0; i++)
                test_env_turn(&rig.test.env, 1);
            assert_int_equal(muster_peer_link_unacked_bytes(end->link), 0);
        }
        rig.ends[1].arrived_count = end->sent_count = 0;
        while (!muster_list_is_empty(&end->link->unacked)) /* the frames are used again */
            muster_list_remove(end->link->unacked.next);
    }
    rig_close();
}

/* The first of five frames makes it tell; the others come before that has left. */
static void what_arrives_while_it_is_telling_is_told_too(void **state)
{
    struct muster_peer_link *link;

    (void)state;
    rig_open(small, 5);
    rig_join();
    link = rig.ends[1].link;
    link->untold_frames = 255;
    for (unsigned i = 0; i < 5; i++)
        send_frame(&rig.ends[0], i, 1);
    for (unsigned i = 0; i < 1000 && (rig.ends[1].arrived_count < 5 || link->is_ack_queued); i++)
        test_env_turn(&rig.test.env, 1);

    assert_int_equal(rig.ends[1].arrived_count, 5);
    assert_true(link->received_told > 0);
    if (link->received_told != link->received)
        assert_true(muster_timer_is_started(&link->ack_timer));
    rig_close();
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
        cmocka_unit_test(frames_that_were_taken_back_are_not_sent_again),
        cmocka_unit_test(a_frame_that_is_taken_back_in_the_middle_is_abandoned),
        cmocka_unit_test(frames_that_had_arrived_may_be_taken_back),
        cmocka_unit_test(an_owner_may_close_the_link_while_it_is_resumed),
        cmocka_unit_test(taking_back_what_has_not_left_keeps_the_count),
        cmocka_unit_test(a_silent_receiver_tells_what_it_has),
        cmocka_unit_test(what_arrives_while_it_is_telling_is_told_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
