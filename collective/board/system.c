/* The real board: opening, peers from connect to release, and the calls of on_peer. Of two
 * processes the one with the smaller incarnation connects; socket.c carries the packets,
 * handshake.c decides what they mean, and this file keeps the peer's state and tells the board's
 * user. */
#include "collective/board/board_internal.h"
#include "runtime/value/backoff.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The other process may be a little behind and not listen yet. The waits are short because a
 * connection within the host costs microseconds and the whole handshake has 5 s. */
static const struct muster_backoff redial = {
    .first_ns = 5 * MUSTER_NS_PER_MS, .max_ns = 100 * MUSTER_NS_PER_MS, .growth_permille = 2000};

/* --- Peers --- */

struct muster_board_peer_system *muster_board_find_peer(
    const struct muster_board_system *board, const struct muster_incarnation *incarnation)
{
    MUSTER_LIST_EACH (&board->peers, peer, struct muster_board_peer_system, peer.node) {
        if (muster_incarnation_is_equal(&peer->peer.incarnation, incarnation))
            return peer;
    }
    return NULL;
}

/* on_peer comes from a task, never from within: its user may release any peer in it, also the one
 * that a caller further up is still working on. */
void muster_board_peer_tell(struct muster_board_peer_system *peer)
{
    struct muster_board_system *board = muster_board_system_of(peer->peer.board);

    peer->is_news = true;
    muster_task_post(&board->task, board->env->loop);
}

void muster_board_peer_fail(struct muster_board_peer_system *peer, enum muster_rc rc,
                            const char *fmt, ...)
{
    struct muster_error *why = &peer->peer.why;
    va_list args;

    if (peer->peer.is_failed)
        return;
    peer->peer.is_failed = true;
    why->rc = rc;
    va_start(args, fmt);
    vsnprintf(why->text, sizeof(why->text), fmt, args);
    va_end(args);
    muster_timer_stop(&peer->timer);
    muster_timer_stop(&peer->retry);
    if (peer->link != NULL)
        muster_board_link_close(peer->link);
    muster_board_peer_tell(peer);
}

void muster_board_peer_settle(struct muster_board_peer_system *peer)
{
    MUSTER_ASSERT(!peer->peer.is_failed);
    if (peer->peer.is_ready || !peer->has_end || !peer->is_mapped)
        return;
    peer->peer.is_ready = true;
    muster_timer_stop(&peer->timer);
    muster_board_peer_tell(peer);
}

static void on_timeout(struct muster_timer *timer)
{
    struct muster_board_peer_system *peer = timer->data;

    muster_board_peer_fail(peer, MUSTER_UNAVAILABLE, "%s",
                           peer->link == NULL ? "it did not connect in time"
                                              : "it did not map in time what it was given");
}

static void peer_dial(struct muster_board_peer_system *peer)
{
    struct muster_board_system *board = muster_board_system_of(peer->peer.board);
    struct muster_board_link *link = NULL;
    enum muster_rc rc = muster_board_dial(board, &peer->member, &link);

    MUSTER_ASSERT(peer->link == NULL && !peer->peer.is_failed);
    if (rc == MUSTER_OK) {
        muster_board_link_attach(link, peer);
    } else if (rc == MUSTER_PERMISSION_DENIED) {
        muster_board_peer_fail(peer, rc, "it belongs to another user");
    } else {
        muster_timer_start(
            &peer->retry, board->env->loop,
            muster_loop_after_ns(board->env->loop,
                                 muster_backoff_next(&redial, &peer->retry_ns, NULL)));
    }
}

static void on_retry(struct muster_timer *timer)
{
    peer_dial(timer->data);
}

static void begin_handshake(struct muster_board_system *board,
                            struct muster_board_peer_system *peer)
{
    const struct muster_incarnation *self = &board->self.incarnation;
    struct muster_board_link *link = NULL;

    if (strcmp(peer->member.host_key, board->self.host_key) != 0) {
        muster_board_peer_fail(peer, MUSTER_UNAVAILABLE, "it is on another host");
        return;
    }
    muster_timer_start(&peer->timer, board->env->loop,
                       muster_loop_after_ns(board->env->loop, MUSTER_BOARD_TIMEOUT_NS));
    /* One connection per pair: the smaller incarnation dials, the other one may have been called
     * already and finds the connection parked. */
    if (memcmp(self->bytes, peer->peer.incarnation.bytes, sizeof(self->bytes)) < 0) {
        peer_dial(peer);
        return;
    }
    link = muster_board_find_unmatched(board, &peer->peer.incarnation);
    if (link != NULL)
        muster_board_link_attach(link, peer);
}

static enum muster_rc system_connect(struct muster_board *base, const struct muster_member *member,
                                     struct muster_board_peer **ret_peer)
{
    struct muster_board_system *board = muster_board_system_of(base);
    struct muster_board_peer_system *peer = muster_board_find_peer(board, &member->incarnation);

    if (peer != NULL) {
        if (peer->peer.is_ready || peer->peer.is_failed)
            muster_board_peer_tell(peer);
        *ret_peer = &peer->peer;
        return MUSTER_OK;
    }
    peer = muster_mem_alloc_zero(board->env->mem, 1, sizeof(*peer));
    if (peer == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    peer->peer.board = base;
    peer->peer.incarnation = member->incarnation;
    peer->member = *member;
    peer->eventfd = -1;
    muster_timer_init(&peer->timer, on_timeout, peer);
    muster_timer_init(&peer->retry, on_retry, peer);
    muster_list_append(&board->peers, &peer->peer.node);
    begin_handshake(board, peer);
    *ret_peer = &peer->peer;
    return MUSTER_OK;
}

static struct muster_board_peer *system_find(const struct muster_board *base,
                                             const struct muster_incarnation *incarnation)
{
    const struct muster_board_system *board =
        MUSTER_CONTAINER_OF(base, const struct muster_board_system, board);
    struct muster_board_peer_system *peer = muster_board_find_peer(board, incarnation);

    return peer != NULL ? &peer->peer : NULL;
}

static void peer_free(struct muster_board_peer_system *peer)
{
    struct muster_mem *mem = muster_board_system_of(peer->peer.board)->env->mem;

    muster_timer_stop(&peer->timer);
    muster_timer_stop(&peer->retry);
    if (peer->link != NULL)
        muster_board_link_close(peer->link);
    if (peer->is_watched)
        muster_process_watch_close(&peer->watch);
    if (peer->eventfd >= 0)
        close(peer->eventfd);
    muster_board_unmap_all(peer);
    muster_list_remove(&peer->peer.node);
    muster_mem_free(mem, peer);
}

static void system_release(struct muster_board *base, struct muster_board_peer *peer)
{
    (void)base;
    peer_free(muster_board_peer_system_of(peer));
}

/* The peer polls its eventfd in its loop. EAGAIN means that the counter is full, so the peer has a
 * wake-up pending and another one is not needed. */
static void system_signal(struct muster_board *base, struct muster_board_peer *peer)
{
    const uint64_t one = 1;
    int fd = muster_board_peer_system_of(peer)->eventfd;

    (void)base;
    while (fd >= 0 && write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

static bool system_is_dead(const struct muster_board_peer *base)
{
    const struct muster_board_peer_system *peer = muster_board_peer_system_of(base);

    /* is_gone comes from the pidfd, the words from the kernel's walk of the robust list; the words
     * are sooner, the pidfd also covers a process that has not written its board yet. */
    return peer->is_gone || (peer->page != NULL && muster_board_page_is_dead(peer->page));
}

static struct muster_board_peer_system *next_news(const struct muster_board_system *board)
{
    MUSTER_LIST_EACH (&board->peers, peer, struct muster_board_peer_system, peer.node) {
        if (peer->is_news)
            return peer;
    }
    return NULL;
}

/* Each call may release any peer, so the search begins again after every one. */
static void on_task(struct muster_task *task)
{
    struct muster_board_system *board = task->data;
    struct muster_board_peer_system *peer = NULL;

    while ((peer = next_news(board)) != NULL) {
        peer->is_news = false;
        if (board->board.events != NULL && board->board.events->on_peer != NULL)
            board->board.events->on_peer(board->board.events_data, &peer->peer);
    }
}

/* --- Life --- */

static void system_close(struct muster_board *base)
{
    struct muster_board_system *board = muster_board_system_of(base);

    while (!muster_list_is_empty(&board->peers))
        peer_free(
            MUSTER_CONTAINER_OF(board->peers.next, struct muster_board_peer_system, peer.node));
    while (!muster_list_is_empty(&board->unmatched))
        muster_board_link_close(
            MUSTER_CONTAINER_OF(board->unmatched.next, struct muster_board_link, node));
    board->reading_count = 1; /* whoever reads has lost its peers above: unmap what is retired */
    muster_board_system_reading_stop(base);
    muster_share_listener_stop(&board->listener);
    muster_task_cancel(&board->task);
    muster_board_stop_listening(board);
    if (board->has_words && !muster_board_liveness_close(board)) {
        /* its first page stays mapped, see there */
        munmap(board->segment.memory + MUSTER_BOARD_PAGE_BYTES,
               board->segment.bytes - MUSTER_BOARD_PAGE_BYTES);
        close(board->segment.fd);
        board->segment.memory = NULL;
    }
    muster_shared_memory_close(&board->segment);
    muster_mem_free(board->env->mem, board);
}

static const struct muster_board_ops ops = {
    .close = system_close,
    .connect = system_connect,
    .find = system_find,
    .release = system_release,
    .enter = muster_board_system_enter,
    .signal = system_signal,
    .is_dead = system_is_dead,
    .find_share = muster_board_system_find_share,
    .is_share_mapped = muster_board_system_is_share_mapped,
    .reading_start = muster_board_system_reading_start,
    .reading_stop = muster_board_system_reading_stop,
    .share_at = muster_board_system_share_at,
    .share_new = muster_board_system_share_new,
    .share_free = muster_board_system_share_free,
    .read_memory = muster_board_system_read_memory,
    .reader_of = muster_board_system_reader_of,
};

static struct muster_board_system *board_new(const struct muster_board_options *options)
{
    struct muster_env *env = options->env;
    struct muster_board_system *board = muster_mem_alloc_zero(env->mem, 1, sizeof(*board));

    if (board == NULL)
        return NULL;
    board->board.ops = &ops;
    board->env = env;
    board->self = *options->self;
    snprintf(board->job, sizeof(board->job), "%s", options->job);
    board->shares = muster_host_shares(env->host);
    board->probe = muster_rng_next(env->rng);
    board->socket = -1;
    board->eventfd = -1;
    board->listener = (struct muster_share_listener){
        .data = board, .on_new = muster_board_on_share_new, .on_free = muster_board_on_share_free};
    muster_list_init(&board->listener.node);
    muster_list_init(&board->peers);
    muster_list_init(&board->unmatched);
    muster_list_init(&board->retired);
    muster_task_init(&board->task, on_task, board);
    return board;
}

static size_t segment_bytes(size_t memory_bytes)
{
    return (memory_bytes == 0 ? MUSTER_BOARD_MEMORY_BYTES_DEFAULT : memory_bytes) +
           MUSTER_BOARD_PAGE_BYTES;
}

static void explain_segment(enum muster_rc rc, size_t memory_bytes, struct muster_error *ret_error)
{
    (void)muster_error_set(ret_error, rc,
                           rc == MUSTER_RESOURCE_EXHAUSTED
                               ? "no %zu MiB of memory for a board: raise the limit (ulimit -v, "
                                 "ulimit -f, or memory.max of the cgroup)"
                               : "no sealed memory of %zu MiB for a board",
                           segment_bytes(memory_bytes) >> 20);
}

static enum muster_rc open_segment(struct muster_board_system *board, size_t memory_bytes)
{
    size_t bytes = segment_bytes(memory_bytes);
    enum muster_rc rc = muster_shared_memory_open("muster-board", bytes, &board->segment);

    if (rc != MUSTER_OK)
        return rc;
    board->page = (struct muster_board_page *)(void *)board->segment.memory;
    board->board.memory = board->segment.memory + MUSTER_BOARD_PAGE_BYTES;
    board->board.memory_bytes = board->segment.bytes - MUSTER_BOARD_PAGE_BYTES;
    board->page->incarnation = board->self.incarnation;
    board->page->segment_bytes = board->segment.bytes;
    rc = muster_board_liveness_open(board);
    board->has_words = rc == MUSTER_OK;
    board->page->magic = MUSTER_BOARD_MAGIC; /* last: a page with the magic is complete */
    return rc;
}

enum muster_rc muster_board_system_open(const struct muster_board_options *options,
                                        struct muster_board **ret_board,
                                        struct muster_error *ret_error)
{
    struct muster_board_system *board = NULL;
    enum muster_rc rc;

    if (muster_host_shares(options->env->host) == NULL)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED, "this host shares no memory");
    board = board_new(options);
    if (board == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a board");
    rc = open_segment(board, options->memory_bytes);
    if (rc != MUSTER_OK) {
        explain_segment(rc, options->memory_bytes, ret_error);
        goto fail;
    }
    rc = muster_board_listen(board, ret_error);
    if (rc != MUSTER_OK)
        goto fail;
    muster_shares_listen(board->shares, &board->listener);
    *ret_board = &board->board;
    return MUSTER_OK;
fail:
    system_close(&board->board);
    return rc;
}

enum muster_rc muster_board_system_check_wire(struct muster_env *env,
                                              struct muster_error *ret_error)
{
    const char *wire = env->vars == NULL ? NULL : muster_vars_get(env->vars, "MUSTER_WIRE");

    if (wire == NULL || wire[0] == '\0' || strcmp(wire, "auto") == 0 || strcmp(wire, "tcp") == 0)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "MUSTER_WIRE=%s: expected auto or tcp", wire);
}

struct muster_board *muster_board_system_choose(const struct muster_board_options *options)
{
    struct muster_env *env = options->env;
    const char *wire = env->vars == NULL ? NULL : muster_vars_get(env->vars, "MUSTER_WIRE");
    struct muster_board *board = NULL;
    struct muster_error error;

    if (wire != NULL && strcmp(wire, "tcp") == 0)
        return NULL;
    if (muster_board_system_open(options, &board, &error) == MUSTER_OK)
        return board;
    if (error.rc == MUSTER_UNIMPLEMENTED)
        MUSTER_LOG(env, DEBUG, "no_board", "reason", error.text);
    else
        MUSTER_LOG(env, WARN, "no_board", "reason", error.text);
    return NULL;
}
