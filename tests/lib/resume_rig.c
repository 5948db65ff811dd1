/* Two ends of a link that outlives its connection, over a network that breaks where it is told. */
#include "resume_rig.h"

#include <stdio.h>
#include <string.h>

struct resume_rig resume_rig;
const struct muster_address resume_anywhere = {.family = MUSTER_ADDRESS_IPV4, .port = 1};

uint64_t resume_soon(void)
{
    return muster_loop_after_ns(resume_rig.test.env.loop, 10 * MUSTER_NS_PER_S);
}

static void on_ready(struct muster_peer_link *link)
{
    ((struct resume_end *)muster_peer_link_data(link))->is_ready = true;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct resume_end *end = muster_peer_link_data(link);

    assert_int_equal(header->chunk, end->arrived_count);
    assert_int_equal(header->payload_bytes, resume_rig.sizes[header->chunk]);
    end->progress = 0;
    if (end->is_paused)
        muster_peer_link_pause(link);
    return end->is_paused ? NULL : end->room;
}

static void on_progress(struct muster_peer_link *link, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done)
{
    struct resume_end *end = muster_peer_link_data(link);

    assert_ptr_equal(buffer, end->room);
    assert_true(bytes_done > end->progress && bytes_done < header->payload_bytes);
    end->progress = bytes_done;
}

static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct resume_end *end = muster_peer_link_data(link);
    const struct resume_end *from = &resume_rig.ends[end == &resume_rig.ends[0]];

    assert_true(buffer == end->room || header->payload_bytes == 0);
    assert_memory_equal(end->room, from->payloads[header->chunk], header->payload_bytes);
    end->arrived_count++;
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct resume_end *end = muster_peer_link_data(link);

    end->is_down = true;
    end->error = *error;
}

void resume_reopen(struct resume_end *end)
{
    memcpy(resume_rig.net.limits, resume_rig.next_limits, sizeof(resume_rig.next_limits));
    resume_rig.next_limits[0] = resume_rig.next_limits[1] = UINT64_MAX;
    assert_int_equal(muster_peer_link_reopen(end->link, &resume_anywhere, resume_soon()),
                     MUSTER_OK);
}

static void on_broken(struct muster_peer_link *link, const struct muster_error *error)
{
    struct resume_end *end = muster_peer_link_data(link);

    end->broken_count++;
    end->error = *error;
    if (end == &resume_rig.ends[0] && !resume_rig.is_waiting && error->rc == MUSTER_UNAVAILABLE)
        resume_reopen(end);
}

static void on_resumed(struct muster_peer_link *link)
{
    ((struct resume_end *)muster_peer_link_data(link))->resumed_count++;
}

static void on_abandoned(struct muster_peer_link *link)
{
    ((struct resume_end *)muster_peer_link_data(link))->abandoned_count++;
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

static void on_frame_played(struct muster_stream_write *write, enum muster_rc rc)
{
    (void)write;
    (void)rc;
}

/* A frame that no link sends leaves by its connection. */
void resume_play_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    static uint8_t bytes[MUSTER_FRAME_HEADER_BYTES];
    static struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    static struct muster_stream_write write;

    muster_frame_header_pack(header, bytes);
    assert_int_equal(muster_stream_submit(&write, link->stream, &iov, 1, on_frame_played),
                     MUSTER_OK);
}

/* The acceptor's own link goes on with the connection of another one. */
static bool take_over(struct muster_peer_link *with)
{
    const struct resume_end *taker =
        resume_rig.taker != NULL ? resume_rig.taker : &resume_rig.ends[1];

    resume_rig.taken = muster_peer_link_take_over(taker->link, with);
    if (resume_rig.taken == MUSTER_OK && resume_rig.is_recalling)
        muster_peer_link_recall(taker->link, 2);
    resume_rig.is_recalling = false;
    return resume_rig.taken == MUSTER_OK;
}

static void on_strange_ready(struct muster_peer_link *link)
{
    struct resume_end *end = &resume_rig.ends[1];
    const struct muster_peer_hello *hello = muster_peer_link_hello(link);

    if (resume_rig.played != NULL) {
        resume_play_frame(link, resume_rig.played);
        return;
    }
    resume_rig.strange = NULL;
    if (hello->intent == MUSTER_LINK_NEW) {
        end->link = link;
        end->is_ready = true;
        muster_peer_link_set_owner(link, &events, end);
    } else if (resume_rig.is_forgotten || hello->intent == MUSTER_LINK_PROBE || !take_over(link)) {
        muster_peer_link_answer(link, resume_rig.is_forgotten ? MUSTER_LINK_IS_UNKNOWN
                                                              : MUSTER_LINK_IS_LACKING);
    }
}

static void on_strange_down(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    resume_rig.strange = NULL;
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
    if (resume_rig.strange != NULL)
        muster_peer_link_close(resume_rig.strange);
    assert_int_equal(muster_peer_link_accept(&resume_rig.test.env, stream,
                                             &resume_rig.ends[1].hello, resume_soon(),
                                             &strange_events, NULL, &resume_rig.strange),
                     MUSTER_OK);
}

static void end_init(struct resume_end *end, unsigned index)
{
    snprintf(end->hello.job, sizeof(end->hello.job), "job");
    end->hello.incarnation.bytes[0] = (uint8_t)(index + 1);
    end->hello.purpose = MUSTER_LINK_DATA;
    resume_rig.greeting_bytes[index] = MUSTER_HELLO_BYTES;
    for (unsigned i = 0; i < resume_rig.count; i++)
        for (uint32_t k = 0; k < resume_rig.sizes[i]; k++)
            end->payloads[i][k] = (uint8_t)(k * 7 + k / 256 + i * 31 + index * 101);
}

void resume_open(const uint32_t *sizes, unsigned count)
{
    memset(&resume_rig, 0, sizeof(resume_rig));
    resume_rig.sizes = sizes;
    resume_rig.count = count;
    test_env_open(&resume_rig.test);
    cut_net_init(&resume_rig.net, &resume_rig.test.env, on_accept, NULL);
    resume_rig.test.env.net = &resume_rig.net.net;
    resume_rig.next_limits[0] = resume_rig.next_limits[1] = UINT64_MAX;
    for (unsigned i = 0; i < 2; i++)
        end_init(&resume_rig.ends[i], i);
}

/* Both have the key of a control link: each connection has to be proven. */
void resume_share_key(void)
{
    const struct muster_link_key key = {.secret = {1}, .id = {2}};

    for (unsigned i = 0; i < 2; i++) {
        struct muster_peer_hello *hello = &resume_rig.ends[i].hello;

        hello->keys = muster_link_keys_new(resume_rig.test.env.mem);
        assert_non_null(hello->keys);
        assert_int_equal(
            muster_link_keys_put(hello->keys, &resume_rig.ends[1 - i].hello.incarnation, &key),
            MUSTER_OK);
    }
    resume_rig.ends[0].hello.target = resume_rig.ends[1].hello.incarnation;
    resume_rig.greeting_bytes[0] = MUSTER_LINK_ASKED_BYTES + MUSTER_LINK_MAC_BYTES;
    resume_rig.greeting_bytes[1] = MUSTER_LINK_ANSWERED_BYTES + MUSTER_LINK_MAC_BYTES;
}

static bool is_joined(void *data)
{
    (void)data;
    return resume_rig.ends[0].is_ready && resume_rig.ends[1].is_ready;
}

void resume_join(void)
{
    assert_int_equal(muster_peer_link_open(&resume_rig.test.env, &resume_anywhere,
                                           &resume_rig.ends[0].hello, resume_soon(), &events,
                                           &resume_rig.ends[0], &resume_rig.ends[0].link),
                     MUSTER_OK);
    test_env_run_until(&resume_rig.test.env, is_joined, NULL);
}

void resume_close(void)
{
    resume_rig.is_closing = true;
    for (unsigned i = 0; i < 2; i++)
        muster_peer_link_close(resume_rig.ends[i].link);
    muster_peer_link_close(resume_rig.strange);
    test_env_turn(&resume_rig.test.env, 10);
    for (unsigned i = 0; i < 2; i++)
        muster_link_keys_free(resume_rig.ends[i].hello.keys);
    cut_net_fini(&resume_rig.net);
    test_env_close(&resume_rig.test);
}

static void on_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct resume_end *end = frame->data;

    if (resume_rig.is_closing)
        return;
    assert_int_equal(rc, MUSTER_OK);
    assert_int_equal(frame->header.chunk, end->sent_count);
    end->sent_count++;
}

void resume_send_frame(struct resume_end *end, unsigned i, uint64_t epoch)
{
    end->frames[i] = (struct muster_frame){.data = end,
                                           .header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                                      .type = 1,
                                                      .payload_bytes = resume_rig.sizes[i],
                                                      .epoch = epoch,
                                                      .chunk = i},
                                           .payload = end->payloads[i]};
    assert_int_equal(muster_peer_link_send(&end->frames[i], end->link, on_sent), MUSTER_OK);
}

void resume_send_all(void)
{
    for (unsigned i = 0; i < resume_rig.count; i++)
        for (unsigned k = 0; k < 2; k++)
            resume_send_frame(&resume_rig.ends[k], i, 1);
}

/* Everything is there, and known to be there. */
static bool is_through(void *data)
{
    (void)data;
    for (unsigned i = 0; i < 2; i++)
        if (resume_rig.ends[i].arrived_count < resume_rig.count ||
            resume_rig.ends[i].sent_count < resume_rig.count)
            return false;
    return true;
}

bool resume_has_arrived(void *data)
{
    (void)data;
    return resume_rig.ends[1].arrived_count == resume_rig.count;
}

/* The delay after which a silent side tells what it has is not waited for. */
void resume_run_through(void)
{
    for (unsigned i = 0; i < 4000 && !is_through(NULL); i++) {
        test_env_turn(&resume_rig.test.env, 1);
        for (unsigned k = 0; k < 2 && i > 100 && i % 50 == 0; k++)
            if (resume_rig.ends[k].link != NULL &&
                muster_peer_link_is_ready(resume_rig.ends[k].link))
                muster_peer_link_on_ack_due(&resume_rig.ends[k].link->ack_timer);
    }
    assert_true(is_through(NULL));
    for (unsigned i = 0; i < 2; i++) {
        assert_false(resume_rig.ends[i].is_down);
        assert_int_equal(resume_rig.ends[i].arrived_count, resume_rig.count);
        assert_int_equal(muster_peer_link_queued_bytes(resume_rig.ends[i].link), 0);
    }
}
