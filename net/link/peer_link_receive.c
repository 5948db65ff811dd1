/* The receiving half of a peer link: hello, headers and payloads, with as few calls as possible.
 * Small parts are read through the inbox, a large payload straight into its owner's memory. */
#include "net/link/peer_link_internal.h"

#include <string.h>

#include "net/tls/stream.h"

/* A step of on_progress is small against the second cache of a processor core (256 KiB and more),
 * so what has arrived is still there when it is used. The size itself was not measured. */
#define PROGRESS_BYTES (64u << 10)
/* After so many bytes the turn ends: what their use has queued, here or on other links, leaves
 * before more is read, so that both directions of a link are busy at the same time. */
#define TURN_BYTES (256u << 10)
/* A shorter rest of a payload is read through the inbox, together with the headers after it. */
#define DIRECT_BYTES_MIN 2048u

static size_t inbox_bytes(const struct muster_peer_link *link)
{
    return link->inbox_end - link->inbox_begin;
}

static const uint8_t *inbox_front(const struct muster_peer_link *link)
{
    return link->inbox + link->inbox_begin;
}

static bool is_live(const struct muster_peer_link *link)
{
    return link->state >= MUSTER_LINK_HELLO && link->state <= MUSTER_LINK_READY;
}

/* Each step returns whether another may follow without reading. After a callback only is_live tells
 * whether the link may still be touched: it may have been closed, but is not freed in this turn. */

/* Magic and version are judged before the rest has come: another version may have a shorter hello,
 * and both sides would wait until the deadline. */
static bool take_hello(struct muster_peer_link *link)
{
    const uint8_t *bytes = inbox_front(link);
    struct muster_error error = {.rc = MUSTER_OK};

    if (inbox_bytes(link) < MUSTER_HELLO_START_BYTES)
        return false;
    if (muster_peer_hello_check_start(bytes, &error) != MUSTER_OK) {
        muster_peer_link_fail(link, &error);
        return false;
    }
    if (inbox_bytes(link) < muster_peer_link_hello_bytes(link))
        return false;
    if (muster_peer_hello_unpack(bytes, &link->peer, &error) != MUSTER_OK) {
        muster_peer_link_fail(link, &error);
        return false;
    }
    link->inbox_begin += muster_peer_link_hello_bytes(link);
    muster_peer_link_meet(link, bytes);
    return is_live(link);
}

static bool take_proof(struct muster_peer_link *link)
{
    const uint8_t *mac = inbox_front(link);

    if (inbox_bytes(link) < MUSTER_LINK_MAC_BYTES)
        return false;
    link->inbox_begin += MUSTER_LINK_MAC_BYTES;
    muster_peer_link_hear_proof(link, mac);
    return is_live(link);
}

/* A header is taken from the inbox. False: it is not whole, or the link has failed. */
static bool next_header(struct muster_peer_link *link, struct muster_frame_header *ret_header)
{
    struct muster_error error = {.rc = MUSTER_OK};

    if (inbox_bytes(link) < MUSTER_FRAME_HEADER_BYTES)
        return false;
    if (muster_frame_header_unpack(inbox_front(link), ret_header, &error) == MUSTER_OK &&
        ret_header->channel == MUSTER_FRAME_LINK &&
        (link->session == 0 || ret_header->payload_bytes > 0))
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "a LINK frame must belong to a session and have no payload, got %u bytes",
                         ret_header->payload_bytes);
    if (error.rc != MUSTER_OK) {
        muster_peer_link_fail(link, &error);
        return false;
    }
    link->inbox_begin += MUSTER_FRAME_HEADER_BYTES;
    return true;
}

static bool take_answer(struct muster_peer_link *link)
{
    struct muster_frame_header answer;

    if (!next_header(link, &answer))
        return false;
    muster_peer_link_hear_answer(link, &answer);
    return is_live(link);
}

static bool take_header(struct muster_peer_link *link)
{
    struct muster_frame_header header;

    if (!next_header(link, &header))
        return false;
    if (link->session != 0 && !muster_peer_link_hear_received(link, header.received))
        return false;
    if (header.channel == MUSTER_FRAME_LINK) /* no bytes of the session: they are not counted */
        return true;
    link->header = header;
    link->received += MUSTER_FRAME_HEADER_BYTES;
    link->receive = MUSTER_RECEIVE_ASK;
    return true;
}

static bool ask_owner(struct muster_peer_link *link)
{
    void *payload;

    if (link->is_paused)
        return false;
    payload = link->events->on_frame(link, &link->header);
    if (!is_live(link) || (payload == NULL && link->is_paused))
        return false;
    link->payload = payload;
    link->payload_done = 0;
    link->receive = MUSTER_RECEIVE_PAYLOAD;
    return true;
}

/* The state is that of the next header before the owner is told: it may close, pause or discard. */
static void finish_frame(struct muster_peer_link *link)
{
    void *payload = link->payload;

    MUSTER_ASSERT(link->payload_done == link->header.payload_bytes);
    link->receive = MUSTER_RECEIVE_HEADER;
    link->payload = NULL;
    link->turn_bytes += link->header.payload_bytes;
    if (link->header.payload_bytes == 0)
        link->events->on_payload(link, &link->header, NULL);
    else if (payload != NULL)
        link->events->on_payload(link, &link->header, payload);
    if (link->session != 0 && link->state == MUSTER_LINK_READY)
        muster_peer_link_note_received(link);
}

static bool take_payload(struct muster_peer_link *link)
{
    size_t left = link->header.payload_bytes - link->payload_done;
    size_t bytes = inbox_bytes(link) < left ? inbox_bytes(link) : left;

    if (bytes > 0 && link->payload != NULL)
        memcpy(link->payload + link->payload_done, inbox_front(link), bytes);
    link->inbox_begin += bytes;
    link->payload_done += (uint32_t)bytes;
    link->received += bytes;
    if (bytes < left)
        return false;
    finish_frame(link);
    return is_live(link);
}

static bool take_step(struct muster_peer_link *link)
{
    if (link->state == MUSTER_LINK_HELLO)
        return take_hello(link);
    if (link->state == MUSTER_LINK_PROOF)
        return take_proof(link);
    if (link->state == MUSTER_LINK_ANSWER)
        return take_answer(link);
    switch (link->receive) {
    case MUSTER_RECEIVE_HEADER:
        return take_header(link);
    case MUSTER_RECEIVE_ASK:
        return ask_owner(link);
    case MUSTER_RECEIVE_PAYLOAD:
        return take_payload(link);
    }
    return false;
}

/* A peer that demands TLS says hello to an opener in plain text, and closes. */
static const char *loss_text(const struct muster_peer_link *link, bool is_eof)
{
    if (link->is_opener && link->session == 0 && link->received == 0 &&
        !muster_tls_stream_is_one(link->stream))
        return is_eof
                   ? "the peer closed the connection, which has no TLS, before its first message"
                   : "the connection, which has no TLS, was lost before the peer's first message";
    return is_eof ? "the peer closed the connection" : "the connection was lost";
}

static void on_read_done(struct muster_peer_link *link, enum muster_rc rc, bool is_eof)
{
    struct muster_error error;

    if (rc == MUSTER_OK) {
        muster_peer_link_receive(link);
        return;
    }
    muster_peer_link_lost_error(link, loss_text(link, is_eof), &error);
    if (is_eof && link->state == MUSTER_LINK_ANSWER && link->is_opener)
        error.rc = MUSTER_FAILED_PRECONDITION; /* it lives and does not want to */
    muster_peer_link_lose(link, &error);
}

static void on_inbox(struct muster_stream_read *read, enum muster_rc rc)
{
    struct muster_peer_link *link = read->data;

    MUSTER_ASSERT(link->reading == MUSTER_LINK_READ_INBOX);
    link->reading = MUSTER_LINK_READ_NONE;
    link->inbox_end += read->bytes_done;
    on_read_done(link, rc, read->is_eof);
}

static void on_direct(struct muster_stream_read *read, enum muster_rc rc)
{
    struct muster_peer_link *link = read->data;

    MUSTER_ASSERT(link->reading == MUSTER_LINK_READ_PAYLOAD);
    link->reading = MUSTER_LINK_READ_NONE;
    link->payload_done += (uint32_t)read->bytes_done;
    link->received += read->bytes_done;
    if (rc == MUSTER_OK && link->events->on_progress != NULL &&
        link->payload_done < link->header.payload_bytes)
        link->events->on_progress(link, &link->header, link->payload, link->payload_done);
    if (is_live(link))
        on_read_done(link, rc, read->is_eof);
}

/* The bytes that are left are a part of one step, so the move is short. */
static void compact_inbox(struct muster_peer_link *link)
{
    size_t bytes = inbox_bytes(link);

    if (link->inbox_begin == 0)
        return;
    memmove(link->inbox, inbox_front(link), bytes);
    link->inbox_begin = 0;
    link->inbox_end = bytes;
}

/* How many more bytes the next step needs at least. */
static size_t bytes_wanted(const struct muster_peer_link *link)
{
    if (link->state == MUSTER_LINK_HELLO)
        return inbox_bytes(link) < MUSTER_HELLO_START_BYTES
                   ? MUSTER_HELLO_START_BYTES - inbox_bytes(link)
                   : muster_peer_link_hello_bytes(link) - inbox_bytes(link);
    if (link->state == MUSTER_LINK_PROOF)
        return MUSTER_LINK_MAC_BYTES - inbox_bytes(link);
    if (link->state == MUSTER_LINK_ANSWER || link->receive == MUSTER_RECEIVE_HEADER)
        return MUSTER_FRAME_HEADER_BYTES - inbox_bytes(link);
    if (link->payload == NULL) /* discarded: any part of it may go */
        return 1;
    return link->header.payload_bytes - link->payload_done;
}

static void start_read(struct muster_peer_link *link)
{
    bool is_ready = link->state == MUSTER_LINK_READY;
    size_t wanted;
    enum muster_rc rc;

    /* In ASK the owner has paused the link: not reading is what makes the peer wait (TCP's window).
     */
    if (link->reading != MUSTER_LINK_READ_NONE || (is_ready && link->receive == MUSTER_RECEIVE_ASK))
        return;
    wanted = bytes_wanted(link);
    link->read.data = link;
    if (is_ready && link->receive == MUSTER_RECEIVE_PAYLOAD && link->payload != NULL &&
        wanted > DIRECT_BYTES_MIN) {
        size_t bytes_min =
            wanted < PROGRESS_BYTES || link->events->on_progress == NULL ? wanted : PROGRESS_BYTES;

        link->reading = MUSTER_LINK_READ_PAYLOAD;
        rc = muster_stream_receive_into(&link->read, link->stream,
                                        link->payload + link->payload_done, bytes_min, wanted,
                                        on_direct);
    } else {
        compact_inbox(link);
        link->reading = MUSTER_LINK_READ_INBOX;
        rc = muster_stream_receive_into(&link->read, link->stream, link->inbox + link->inbox_end,
                                        wanted, sizeof(link->inbox) - link->inbox_end, on_inbox);
    }
    /* The stream is open, has no other read, and at least one byte is wanted: nothing refuses. */
    MUSTER_ASSERT(rc == MUSTER_OK);
}

void muster_peer_link_receive(struct muster_peer_link *link)
{
    while (is_live(link) && link->turn_bytes < TURN_BYTES && take_step(link)) {
    }
    if (!is_live(link) || (link->state == MUSTER_LINK_PROOF && link->is_hello_queued))
        return; /* our proof leaves before the peer's is read: nothing is open when it is ready */
    if (link->turn_bytes < TURN_BYTES)
        start_read(link);
    else
        muster_task_post(&link->task, link->env->loop);
}

void muster_peer_link_discard_matching(struct muster_peer_link *link,
                                       const struct muster_frame_match *match)
{
    if (link->receive != MUSTER_RECEIVE_PAYLOAD || link->payload == NULL ||
        !muster_frame_is_match(match, &link->header))
        return;
    muster_peer_link_recall_payload(link);
    link->payload = NULL;
    muster_task_post(&link->task, link->env->loop);
}

void muster_peer_link_discard_receiving(struct muster_peer_link *link, uint64_t epoch)
{
    const struct muster_frame_match match = {.epoch_end = epoch};

    muster_peer_link_discard_matching(link, &match);
}

void muster_peer_link_pause(struct muster_peer_link *link)
{
    link->is_paused = true;
}

void muster_peer_link_resume(struct muster_peer_link *link)
{
    if (!link->is_paused)
        return;
    link->is_paused = false;
    /* Never at once: resume is called from callbacks, and on_frame must not come inside one. */
    muster_task_post(&link->task, link->env->loop);
}
