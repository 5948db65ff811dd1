/* Messages between boards: HELLO with the segment, the shares, then that all is mapped. socket.c
 * calls muster_board_receive for every packet; what a packet proves wrong about a peer fails that
 * peer, and its processes use TCP with each other. */
#include "collective/board/board_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* A peer's size is checked against its file; this bound only keeps a mapping from using up the
 * address space (47 bits on x86-64). */
#define SEGMENT_BYTES_MAX ((uint64_t)1 << 40)

/* --- Out --- */

static struct muster_board_message message_of(enum muster_board_message_type type)
{
    return (struct muster_board_message){.magic = MUSTER_BOARD_MAGIC, .type = type};
}

static enum muster_rc send_message(struct muster_board_link *link,
                                   enum muster_board_message_type type, uint32_t share)
{
    struct muster_board_message message = message_of(type);

    message.share = share;
    return muster_board_send(link, &message);
}

static enum muster_rc send_hello(struct muster_board_link *link,
                                 const struct muster_incarnation *to)
{
    struct muster_board_system *board = link->board;
    struct muster_board_message message = message_of(MUSTER_BOARD_HELLO);

    message.bytes = board->segment.bytes;
    message.from = board->self.incarnation;
    message.to = *to;
    message.probe_at = (uint64_t)(uintptr_t)&board->probe;
    message.probe_value = board->probe;
    memcpy(message.job, board->job, sizeof(message.job));
    return muster_board_send(link, &message);
}

void muster_board_link_attach(struct muster_board_link *link, struct muster_board_peer_system *peer)
{
    enum muster_rc rc;

    MUSTER_ASSERT(link->peer == NULL && peer->link == NULL && link->board->unmatched_count > 0);
    muster_timer_stop(&link->timer);
    muster_timer_stop(&peer->retry); /* a peer that should wait may have dialled all the same */
    muster_list_remove(&link->node);
    link->board->unmatched_count--;
    link->peer = peer;
    peer->link = link;
    peer->pid = link->pid;
    rc = send_hello(link, &peer->peer.incarnation);
    if (rc == MUSTER_OK)
        rc = muster_board_tell_shares(peer);
    if (rc == MUSTER_OK)
        rc = send_message(link, MUSTER_BOARD_SHARES_END, 0);
    if (rc != MUSTER_OK)
        muster_board_peer_fail(peer, rc, "no memory for its messages");
    else if (link->has_hello) {
        struct muster_board_packet packet = link->hello;

        link->has_hello = false; /* receive takes its descriptors */
        muster_board_link_watch(link, true);
        muster_board_receive(link, &packet);
    }
}

/* --- In: HELLO --- */

/* The reason to refuse a HELLO, or NULL. The job is compared although it is a part of the socket's
 * name: the name has only a hash of it. */
static const char *hello_refusal(const struct muster_board_system *board,
                             const struct muster_board_message *hello)
{
    if (hello->type != MUSTER_BOARD_HELLO)
        return "it does not begin with HELLO";
    if (strncmp(hello->job, board->job, sizeof(hello->job)) != 0)
        return "it belongs to another job";
    if (!muster_incarnation_is_equal(&hello->to, &board->self.incarnation))
        return "it looks for another process";
    return NULL;
}

static const char *map_segment(struct muster_board_peer_system *peer,
                               struct muster_board_packet *packet)
{
    const struct muster_board_page *page = NULL;
    uint64_t bytes = packet->message.bytes;

    if (packet->is_cut)
        return "this process has no descriptor left";
    if (packet->fd_count != 2 || bytes <= MUSTER_BOARD_PAGE_BYTES || bytes > SEGMENT_BYTES_MAX)
        return "its board does not match its HELLO";
    page = muster_board_map(packet->fds[0], bytes);
    if (page == NULL)
        return "its board cannot be mapped, or others could write it";
    peer->page = page;
    peer->segment_bytes = (size_t)bytes;
    if (page->magic != MUSTER_BOARD_MAGIC || page->segment_bytes != bytes ||
        !muster_incarnation_is_equal(&page->incarnation, &peer->peer.incarnation))
        return "its board does not match its HELLO";
    peer->eventfd = packet->fds[1];
    packet->fds[1] = -1;
    return NULL;
}

static void on_process_exit(struct muster_process_watch *watch)
{
    struct muster_board_peer_system *peer = watch->data;

    peer->is_watched = false;
    peer->is_gone = true;
    muster_board_peer_fail(peer, MUSTER_UNAVAILABLE, "its process has died");
    muster_board_peer_tell(peer);
}

/* A failure is no error: without the watch a death is still seen by the words of the board and by
 * the end of the socket. */
static void watch_process(struct muster_board_peer_system *peer)
{
    struct muster_host *host = muster_board_system_of(peer->peer.board)->env->host;

    peer->watch.data = peer;
    peer->watch.on_exit = on_process_exit;
    peer->watch.pid = peer->pid;
    peer->is_watched = muster_process_watch_open(&peer->watch, host) == MUSTER_OK;
}

static void handle_hello(struct muster_board_peer_system *peer, struct muster_board_packet *packet)
{
    const struct muster_board_message *hello = &packet->message;
    const char *why = NULL;

    if (muster_incarnation_is_equal(&hello->from, &peer->peer.incarnation))
        why = map_segment(peer, packet);
    else
        why = "another process answers";
    if (why != NULL) {
        muster_board_peer_fail(peer, MUSTER_UNAVAILABLE, "%s", why);
        return;
    }
    peer->peer.memory = (const uint8_t *)peer->page + MUSTER_BOARD_PAGE_BYTES;
    peer->peer.memory_bytes = peer->segment_bytes - MUSTER_BOARD_PAGE_BYTES;
    muster_board_probe(peer, hello->probe_at, hello->probe_value);
    watch_process(peer);
}

/* No local board expects this peer yet: park the connection until one does. */
static void queue_unmatched_connection(struct muster_board_link *link,
                                       struct muster_board_packet *packet)
{
    struct muster_board_system *board = link->board;
    struct muster_board_peer_system *peer = NULL;

    if (hello_refusal(board, &packet->message) != NULL ||
        muster_board_find_unmatched(board, &packet->message.from) != NULL) {
        muster_board_packet_fini(packet);
        muster_board_link_close(link);
        return;
    }
    link->hello = *packet;
    link->has_hello = true;
    muster_board_link_watch(link, false);
    peer = muster_board_find_peer(board, &packet->message.from);
    if (peer != NULL && peer->link == NULL && !peer->peer.is_failed)
        muster_board_link_attach(link, peer);
    else if (peer != NULL)
        muster_board_link_close(link);
}

struct muster_board_link *muster_board_find_unmatched(const struct muster_board_system *board,
                                                      const struct muster_incarnation *incarnation)
{
    MUSTER_LIST_EACH(&board->unmatched, link, struct muster_board_link, node) {
        if (link->has_hello && muster_incarnation_is_equal(&link->hello.message.from, incarnation))
            return link;
    }
    return NULL;
}

/* --- In: the rest --- */

/* A share that cannot be mapped is not an error of the connection: its owner is told, and copies.
 */
static enum muster_rc handle_share(struct muster_board_peer_system *peer,
                                 const struct muster_board_packet *packet)
{
    const struct muster_board_message *message = &packet->message;
    bool is_mapped = packet->fd_count == 1 &&
                     muster_board_map_share(peer, message->share, message->bytes, packet->fds[0]);

    return send_message(peer->link,
                        is_mapped ? MUSTER_BOARD_SHARE_MAPPED : MUSTER_BOARD_SHARE_FAILED,
                        message->share);
}

static enum muster_rc handle_shares_end(struct muster_board_peer_system *peer)
{
    peer->has_end = true;
    return send_message(peer->link, MUSTER_BOARD_MAPPED, 0);
}

/* INVALID_ARGUMENT: the peer must not send that (now). */
static enum muster_rc peer_handle_packet(struct muster_board_peer_system *peer,
                                         const struct muster_board_packet *packet)
{
    switch (packet->message.type) {
    case MUSTER_BOARD_SHARE:
        return handle_share(peer, packet);
    case MUSTER_BOARD_SHARES_END:
        return peer->has_end ? MUSTER_INVALID_ARGUMENT : handle_shares_end(peer);
    case MUSTER_BOARD_MAPPED:
        peer->is_mapped = true;
        return MUSTER_OK;
    case MUSTER_BOARD_SHARE_MAPPED:
        return muster_board_note_mapped(peer, packet->message.share);
    case MUSTER_BOARD_SHARE_FAILED:
        peer->peer.refused_end = (uint64_t)packet->message.share + 1;
        return MUSTER_OK;
    case MUSTER_BOARD_SHARE_FREED:
        muster_board_unmap_share(peer, packet->message.share);
        return MUSTER_OK;
    default:
        return MUSTER_INVALID_ARGUMENT;
    }
}

void muster_board_receive(struct muster_board_link *link, struct muster_board_packet *packet)
{
    struct muster_board_peer_system *peer = link->peer;
    enum muster_rc rc;

    if (peer == NULL) {
        queue_unmatched_connection(link, packet);
        return;
    }
    if (peer->page == NULL) { /* the first packet of every connection is a HELLO */
        const char *why = hello_refusal(link->board, &packet->message);

        if (why == NULL)
            handle_hello(peer, packet);
        else
            muster_board_peer_fail(peer, MUSTER_UNAVAILABLE, "%s", why);
    } else {
        rc = peer_handle_packet(peer, packet);
        if (rc != MUSTER_OK)
            muster_board_peer_fail(peer, rc,
                                   rc == MUSTER_INVALID_ARGUMENT
                                       ? "it sent a message that is not valid here"
                                       : "no memory for its shares");
    }
    muster_board_packet_fini(packet);
    if (!peer->peer.is_failed)
        muster_board_peer_settle(peer);
}

void muster_board_link_fail(struct muster_board_link *link, const char *why)
{
    if (link->peer != NULL)
        muster_board_peer_fail(link->peer, MUSTER_UNAVAILABLE, "%s", why);
    else
        muster_board_link_close(link);
}
