/* Two ends of a peer link over loopback, or one end and a stranger. */
#include "link_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_ready(struct muster_peer_link *link)
{
    ((struct link_end *)muster_peer_link_data(link))->is_ready = true;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct link_end *end = muster_peer_link_data(link);

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
    struct link_end *end = muster_peer_link_data(link);

    assert_ptr_equal(buffer, end->receiving);
    assert_true(bytes_done < header->payload_bytes);
    end->progress_count++;
    if (end->recalls_but_it)
        muster_peer_link_recall_op(link, &header->op, header->type);
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
    struct link_end *end = muster_peer_link_data(link);

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
    struct link_end *end = muster_peer_link_data(link);

    assert_false(end->is_down);
    end->is_down = true;
    end->error = *error;
}

const struct muster_peer_link_events link_pair_events = {.on_ready = on_ready,
                                                         .on_frame = on_frame,
                                                         .on_progress = on_progress,
                                                         .on_payload = on_payload,
                                                         .on_down = on_down};

uint64_t link_pair_soon(struct link_pair *pair)
{
    return muster_loop_after_ns(pair->test.env.loop, 10 * MUSTER_NS_PER_S);
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct link_pair *pair = listener->data;

    assert_int_equal(muster_peer_link_accept(&pair->test.env, stream, &pair->hellos[1],
                                             link_pair_soon(pair), &link_pair_events,
                                             &pair->ends[1], &pair->ends[1].link),
                     MUSTER_OK);
}

void link_pair_init(struct link_pair *pair)
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

void link_pair_connect(struct link_pair *pair)
{
    assert_int_equal(muster_peer_link_open(&pair->test.env, muster_listener_address(pair->listener),
                                           &pair->hellos[0], link_pair_soon(pair),
                                           &link_pair_events, &pair->ends[0], &pair->ends[0].link),
                     MUSTER_OK);
}

bool link_pair_is_settled(void *data)
{
    struct link_pair *pair = data;

    return (pair->ends[0].is_ready || pair->ends[0].is_down || pair->raw != NULL) &&
           (pair->ends[1].is_ready || pair->ends[1].is_down);
}

void link_pair_open(struct link_pair *pair)
{
    link_pair_init(pair);
    link_pair_connect(pair);
    test_env_run_until(&pair->test.env, link_pair_is_settled, pair);
}

void link_pair_close(struct link_pair *pair)
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

static void on_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct link_sent *sent = frame->data;

    sent->done_count++;
    sent->rc = rc;
}

void link_sent_init(struct link_sent *sent, uint64_t epoch, const void *payload, uint32_t bytes)
{
    memset(sent, 0, sizeof(*sent));
    sent->frame.data = sent;
    sent->frame.header = (struct muster_frame_header){
        .channel = MUSTER_FRAME_COLLECTIVE, .type = 7, .payload_bytes = bytes, .epoch = epoch};
    sent->frame.payload = payload;
}

void link_pair_send_frame(struct link_pair *pair, struct link_sent *sent)
{
    assert_int_equal(muster_peer_link_send(&sent->frame, pair->ends[0].link, on_sent), MUSTER_OK);
}

static bool has_payloads(void *data)
{
    const struct awaited *awaited = data;

    return awaited->end->payload_count >= awaited->count;
}

void link_pair_await_payloads(struct link_pair *pair, unsigned count)
{
    struct awaited awaited = {&pair->ends[1], count};

    test_env_run_until(&pair->test.env, has_payloads, &awaited);
}

static bool has_raw(void *data)
{
    return ((struct link_pair *)data)->raw != NULL;
}

void link_pair_await_raw(struct link_pair *pair)
{
    test_env_run_until(&pair->test.env, has_raw, pair);
}

static void on_dialled(struct muster_connect *connect, enum muster_rc rc)
{
    struct link_pair *pair = connect->data;

    assert_int_equal(rc, MUSTER_OK);
    pair->raw = connect->stream;
}

void link_pair_dial(struct link_pair *pair)
{
    struct muster_connect connect = {.data = pair};

    if (pair->raw != NULL)
        muster_stream_close(pair->raw, NULL);
    pair->raw = NULL;
    assert_int_equal(muster_connect_start(&connect, pair->test.env.net,
                                          muster_listener_address(pair->listener), NULL,
                                          link_pair_soon(pair), on_dialled),
                     MUSTER_OK);
    link_pair_await_raw(pair);
}

static void on_said(struct muster_stream_write *write, enum muster_rc rc)
{
    (void)rc;
    *(bool *)write->data = true;
}

void link_pair_say(struct link_pair *pair, const void *bytes, size_t count)
{
    bool is_said = false;
    struct muster_stream_write write = {.data = &is_said};
    struct iovec iov = {.iov_len = count};

    memcpy(&iov.iov_base, &bytes, sizeof(bytes));
    assert_int_equal(muster_stream_submit(&write, pair->raw, &iov, 1, on_said), MUSTER_OK);
    test_env_run_until(&pair->test.env, test_env_is_true, &is_said);
}

struct muster_link_key link_pair_key_of(uint8_t name)
{
    struct muster_link_key key;

    memset(key.secret, name, sizeof(key.secret));
    memset(key.id, name, sizeof(key.id));
    return key;
}

void link_pair_put_key(struct muster_link_keys *keys, const struct muster_incarnation *peer,
                       uint8_t name)
{
    const struct muster_link_key key = link_pair_key_of(name);

    assert_int_equal(muster_link_keys_put(keys, peer, &key), MUSTER_OK);
}

uint8_t *link_pair_pattern_new(size_t bytes, unsigned seed)
{
    uint8_t *pattern = malloc(bytes);

    assert_non_null(pattern);
    for (size_t i = 0; i < bytes; i++)
        pattern[i] = (uint8_t)(i * 31 + i / 251 + seed);
    return pattern;
}
