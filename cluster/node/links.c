/* Control links of a node, one per peer, whichever side opened it; process watches; incoming connections,
 * sorted by the purpose of their hello. The machine sees links as up or down only; healing of broken
 * connections happens below it (docs/protocol.md, "Links"). */
#include <string.h>

#include "cluster/node/node_internal.h"

/* Long enough for a SYN that was lost once and sent again; the machine retries what has failed. */
#define CONNECT_TIMEOUT_NS (2 * MUSTER_NS_PER_S)
#define HELLO_TIMEOUT_NS   (5 * MUSTER_NS_PER_S)
/* A port scan or a client that never sends its hello must not use up the descriptors of a member. */
#define UNIDENTIFIED_MAX 1024u /* one more ends the oldest */

static struct muster_mem *mem_of(const struct node_peer *peer)
{
    return peer->node->env->mem;
}

struct node_peer *muster_node_peer_find(struct muster_node *node,
                                        const struct muster_incarnation *incarnation)
{
    MUSTER_LIST_EACH (&node->peers, peer, struct node_peer, list_node)
        if (muster_incarnation_is_equal(&peer->incarnation, incarnation))
            return peer;
    return NULL;
}

static void on_given_up(struct muster_link_heal *heal, struct muster_peer_link *link,
                        const struct muster_error *why);

/* Peers live as long as the node: the machine never forgets one either, and links and watches point to
 * theirs. */
static struct node_peer *find_or_add_peer(struct muster_node *node,
                                          const struct muster_incarnation *incarnation)
{
    struct node_peer *peer = muster_node_peer_find(node, incarnation);

    if (peer != NULL)
        return peer;
    peer = muster_mem_alloc_zero(node->env->mem, 1, sizeof(*peer));
    if (peer == NULL)
        return NULL;
    peer->node = node;
    peer->incarnation = *incarnation;
    muster_link_heal_init(&peer->heal, node->env, &node->hello, on_given_up, peer);
    muster_list_append(&node->peers, &peer->list_node);
    return peer;
}

/* --- frames --- */

/* Healing is stopped first, because it holds the link that is about to be freed. */
static void close_link(struct node_peer *peer, struct muster_peer_link *link)
{
    if (muster_link_heal_is_of(&peer->heal, link))
        muster_link_heal_stop(&peer->heal);
    muster_peer_link_close(link);
}

static void drop_link(struct node_peer *peer)
{
    MUSTER_ASSERT(peer->link != NULL || peer->buffer == NULL);
    close_link(peer, peer->link);
    peer->link = NULL;
    muster_mem_free(mem_of(peer), peer->buffer);
    peer->buffer = NULL;
}

/* The machine hears of the end of the last link only; the loss of one of two is silent. What is fed comes
 * last: the event may close the node. */
static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct node_peer *peer = muster_peer_link_data(link);
    bool was_last = link == peer->link || peer->link == NULL;

    if (link == peer->link) {
        MUSTER_LOG(peer->node->env, DEBUG, "control_link_down", "reason", error->text);
        drop_link(peer);
        muster_node_note_cause_of(peer->node, &peer->incarnation);
    } else {
        if (link == peer->opening)
            peer->opening = NULL;
        close_link(peer, link);
    }
    if (was_last)
        muster_node_feed_peer(peer->node, MUSTER_EVENT_LINK_DOWN, &peer->incarnation, error->text);
}

/* Frames on a link that does not count are skipped (NULL): the same peer speaks on the one that does. A
 * buffer that is still there belongs to a frame that was not finished. */
static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct node_peer *peer = muster_peer_link_data(link);

    if (link != peer->link || header->channel != MUSTER_FRAME_MEMBERSHIP)
        return NULL;
    muster_mem_free(mem_of(peer), peer->buffer);
    peer->buffer = muster_mem_alloc(mem_of(peer), header->payload_bytes);
    return peer->buffer;
}

/* The buffer is released before the event: feeding it may close this very link. */
static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *bytes)
{
    struct node_peer *peer = muster_peer_link_data(link);
    struct muster_membership_event event = {.kind = MUSTER_EVENT_CONTROL};
    struct muster_control control;
    struct muster_error error;
    enum muster_rc rc;

    if (link != peer->link || bytes != peer->buffer)
        return;
    rc = muster_control_unpack(mem_of(peer), bytes, header->payload_bytes, &control);
    muster_mem_free(mem_of(peer), peer->buffer);
    peer->buffer = NULL;
    if (rc != MUSTER_OK) {
        muster_error_set(&error, rc, "%s",
                         rc == MUSTER_RESOURCE_EXHAUSTED
                             ? "no memory for a control message"
                             : "it sent a control message that cannot be read");
        on_down(link, &error);
        return;
    }
    event.peer = peer->incarnation;
    event.control = &control;
    muster_node_feed(peer->node, &event);
    muster_control_fini(&control);
}

/* --- which link counts --- */

static const struct muster_incarnation *opener_of(const struct node_peer *peer,
                                                  const struct muster_peer_link *link)
{
    return muster_peer_link_is_opener(link) ? &peer->node->self : &peer->incarnation;
}

/* A new link of the same opener replaces the old one, which that opener has given up; else that of the
 * smaller incarnation stays. Both sides compare the same two incarnations, so they keep the same link
 * without a message. */
static bool keeps_old_link(const struct node_peer *peer, const struct muster_peer_link *old,
                           const struct muster_peer_link *new)
{
    const struct muster_incarnation *ours = opener_of(peer, old), *theirs = opener_of(peer, new);

    return memcmp(ours->bytes, theirs->bytes, sizeof(ours->bytes)) < 0;
}

/* Two processes may connect to each other at once. Both sides keep the same link, without asking. */
static void use_link(struct node_peer *peer, struct muster_peer_link *link)
{
    MUSTER_ASSERT(link != NULL && peer->link != link);
    if (peer->opening == link)
        peer->opening = NULL;
    if (peer->link != NULL && keeps_old_link(peer, peer->link, link)) {
        close_link(peer, link);
        return;
    }
    if (peer->link != NULL)
        drop_link(peer);
    peer->link = link;
    if (peer->node->keys != NULL) /* the key of the data link is here */
        muster_wire_retry(peer->node->wire, &peer->incarnation);
    muster_node_feed_peer(peer->node, MUSTER_EVENT_LINK_UP, &peer->incarnation, NULL);
}

static void on_ready(struct muster_peer_link *link)
{
    struct node_peer *peer = muster_peer_link_data(link);

    if (muster_link_heal_is_of(&peer->heal, link))
        muster_link_heal_stop(&peer->heal);
    use_link(peer, link);
}

/* --- broken connections --- */

/* Healing has failed, or the other side does not know the session any more: only now is the link down. */
static void on_given_up(struct muster_link_heal *heal, struct muster_peer_link *link,
                        const struct muster_error *why)
{
    (void)heal;
    on_down(link, why);
}

/* The address where a member listens, or where it was reached before there was a view. */
static const struct muster_address *address_of(const struct node_peer *peer)
{
    const struct muster_member *member =
        muster_membership_find(peer->node->machine, &peer->incarnation);

    if (member != NULL)
        return &member->address;
    return peer->address.family != MUSTER_ADDRESS_NONE ? &peer->address : NULL;
}

/* The machine itself retries a connection that never came up. One that did come up may count as a link at the other
 * side, although its answer has not come yet, so it is healed. */
static bool is_worth_healing(const struct muster_peer_link *link, const struct muster_error *error)
{
    return muster_peer_link_is_met(link) || (error->rc == MUSTER_UNAVAILABLE && error->sys == 0);
}

/* One link per peer is healed at a time. A second broken one is given up, since the first may carry all that
 * it did. */
static void on_broken(struct muster_peer_link *link, const struct muster_error *error)
{
    struct node_peer *peer = muster_peer_link_data(link);
    struct muster_link_heal_goal goal = {.target = peer->incarnation};

    if (!muster_link_heal_is_of(&peer->heal, link) &&
        (muster_link_heal_is_busy(&peer->heal) || !is_worth_healing(link, error))) {
        on_down(link, error);
        return;
    }
    goal.address = address_of(peer);
    muster_link_heal_broken(&peer->heal, link, &goal, error);
}

static void on_resumed(struct muster_peer_link *link)
{
    struct node_peer *peer = muster_peer_link_data(link);
    char name[MUSTER_INCARNATION_TEXT_BYTES];

    muster_link_heal_resumed(&peer->heal, link,
                             muster_incarnation_format(&peer->incarnation, name));
}

static const struct muster_peer_link_events control_events = {
    .on_ready = on_ready,
    .on_frame = on_frame,
    .on_payload = on_payload,
    .on_down = on_down,
    .on_broken = on_broken,
    .on_resumed = on_resumed,
};

/* This is called by an action of the machine, so a failure is posted and not fed. */
void muster_node_connect(struct muster_node *node, const struct muster_member *member)
{
    struct muster_membership_event failed = {.kind = MUSTER_EVENT_LINK_DOWN};
    struct muster_peer_hello hello = node->hello;
    struct node_peer *peer = find_or_add_peer(node, &member->incarnation);
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (peer != NULL && peer->opening != NULL)
        return;
    hello.purpose = MUSTER_LINK_CONTROL;
    hello.target = member->incarnation;
    if (peer != NULL) {
        peer->address = member->address;
        rc = muster_peer_link_open(node->env, &member->address, &hello,
                                   muster_loop_after_ns(node->env->loop, CONNECT_TIMEOUT_NS),
                                   &control_events, peer, &peer->opening);
    }
    if (rc == MUSTER_OK)
        return;
    failed.peer = member->incarnation;
    muster_node_post(node, &failed, muster_rc_text(rc));
}

void muster_node_disconnect(struct muster_node *node, const struct muster_incarnation *incarnation)
{
    struct node_peer *peer = muster_node_peer_find(node, incarnation);

    if (peer == NULL)
        return;
    drop_link(peer);
    close_link(peer, peer->opening);
    peer->opening = NULL;
}

/* A link that is declared broken is healed by a new connection; frames that were not acknowledged are sent
 * again on it. */
void muster_node_renew(struct muster_node *node, const struct muster_incarnation *incarnation)
{
    struct node_peer *peer = muster_node_peer_find(node, incarnation);
    struct muster_error error;

    muster_error_set(&error, MUSTER_UNAVAILABLE, "the peer is silent");
    if (peer != NULL && peer->link != NULL)
        muster_peer_link_break(peer->link, &error);
}

void muster_node_send(struct muster_node *node, const struct muster_incarnation *incarnation,
                      const struct muster_control *control)
{
    struct node_peer *peer = muster_node_peer_find(node, incarnation);
    struct muster_frame_header header = {.channel = MUSTER_FRAME_MEMBERSHIP};
    void *bytes = NULL;
    size_t size;

    if (peer == NULL || peer->link == NULL ||
        muster_control_pack(control, node->env->mem, &bytes, &size) != MUSTER_OK)
        return;
    header.type = (uint8_t)control->kind;
    header.payload_bytes = (uint32_t)size;
    header.epoch = control->epoch;
    /* A link that refuses is down and will say so; what is lost here is repeated by the machine. */
    if (size > MUSTER_FRAME_PAYLOAD_MAX ||
        muster_peer_link_send_copy(peer->link, &header, bytes) != MUSTER_OK)
        MUSTER_LOG(node->env, DEBUG, "control_not_sent", "kind", (int)control->kind);
    muster_mem_free(node->env->mem, bytes);
}

/* --- connections from outside --- */

static void unidentified_free(struct node_unidentified *connection)
{
    MUSTER_ASSERT(connection->node->unidentified_count > 0);
    connection->node->unidentified_count--;
    muster_list_remove(&connection->list_node);
    muster_mem_free(connection->node->env->mem, connection);
}

static void unidentified_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct node_unidentified *connection = muster_peer_link_data(link);

    MUSTER_LOG(connection->node->env, DEBUG, "connection_refused", "reason", error->text);
    muster_peer_link_close(link);
    unidentified_free(connection);
}

/* The peer may be unknown here: a joiner connects before its record has been seen. */
static void take_control_link(struct muster_node *node, struct muster_peer_link *link)
{
    struct node_peer *peer = find_or_add_peer(node, &muster_peer_link_hello(link)->incarnation);

    if (peer == NULL) {
        muster_peer_link_close(link);
        return;
    }
    muster_peer_link_set_owner(link, &control_events, peer);
    use_link(peer, link);
}

static struct muster_peer_link *link_of_session(const struct node_peer *peer, uint64_t session)
{
    struct muster_peer_link *const links[] = {peer->link, peer->opening};

    for (size_t i = 0; i < 2; i++)
        if (links[i] != NULL && muster_peer_link_session(links[i]) == session)
            return links[i];
    return NULL;
}

/* A link may have broken before its hello came here. This side knows nothing of its session then and has
 * read nothing of it, so the session can begin late. With another link to that peer in use the session is
 * answered as unknown. */
static void take_resuming_link(struct muster_node *node, struct muster_peer_link *accepted)
{
    const struct muster_peer_hello *hello = muster_peer_link_hello(accepted);
    struct node_peer *peer = muster_node_peer_find(node, &hello->incarnation);
    struct muster_peer_link *link = peer != NULL ? link_of_session(peer, hello->session) : NULL;
    struct muster_error error;

    if (hello->intent == MUSTER_LINK_PROBE)
        muster_link_heal_answer_probe(link, accepted);
    else if (link != NULL &&
             muster_link_heal_accept(&peer->heal, link, accepted, &error) != MUSTER_OK)
        on_down(link, &error);
    else if (link == NULL && (peer == NULL || peer->link == NULL) &&
             muster_peer_link_begin_late(accepted))
        take_control_link(node, accepted);
    else if (link == NULL)
        muster_peer_link_answer(accepted, MUSTER_LINK_IS_UNKNOWN);
}

static void unidentified_ready(struct muster_peer_link *link)
{
    struct node_unidentified *connection = muster_peer_link_data(link);
    struct muster_node *node = connection->node;

    unidentified_free(connection);
    switch (muster_peer_link_hello(link)->purpose) {
    case MUSTER_LINK_CONTROL:
        if (muster_peer_link_hello(link)->intent == MUSTER_LINK_NEW)
            take_control_link(node, link);
        else
            take_resuming_link(node, link);
        return;
    case MUSTER_LINK_DATA:
        muster_wire_accept(node->wire, link);
        return;
    case MUSTER_LINK_STATE:
        muster_state_server_accept(node->training.server, link);
        return;
    case MUSTER_LINK_PARAMS: /* for a server of parameters */
    case MUSTER_LINK_PARAMS_COPY:
    case MUSTER_LINK_PARAMS_LEAVE:
    case MUSTER_LINK_PUBLICATION: /* for a publisher */
    case MUSTER_LINK_AS_OPENED:
        break;
    }
    muster_peer_link_close(link);
}

static void *unidentified_frame(struct muster_peer_link *link,
                                const struct muster_frame_header *header)
{
    (void)link;
    (void)header;
    return NULL;
}

static const struct muster_peer_link_events unidentified_events = {
    .on_ready = unidentified_ready,
    .on_frame = unidentified_frame,
    .on_down = unidentified_down,
};

/* The oldest has had the most time to send its hello, so it is the least likely to be a member. */
static void end_oldest_unidentified(struct muster_node *node)
{
    struct node_unidentified *oldest =
        MUSTER_CONTAINER_OF(node->unidentified.next, struct node_unidentified, list_node);

    muster_peer_link_close(oldest->link);
    unidentified_free(oldest);
}

/* The number of connections without a hello is bounded: a new one ends the oldest. */
void muster_node_accept(struct muster_node *node, struct muster_stream *stream)
{
    struct node_unidentified *connection = NULL;
    struct muster_peer_hello hello = node->hello;

    hello.purpose = MUSTER_LINK_AS_OPENED;
    if (!node->is_closing)
        connection = muster_mem_alloc_zero(node->env->mem, 1, sizeof(*connection));
    if (connection == NULL) {
        muster_stream_close(stream, NULL);
        return;
    }
    if (node->unidentified_count == UNIDENTIFIED_MAX)
        end_oldest_unidentified(node);
    connection->node = node;
    node->unidentified_count++;
    muster_list_append(&node->unidentified, &connection->list_node);
    if (muster_peer_link_accept(node->env, stream, &hello,
                                muster_loop_after_ns(node->env->loop, HELLO_TIMEOUT_NS),
                                &unidentified_events, connection, &connection->link) != MUSTER_OK)
        unidentified_free(connection);
}

/* --- processes of this host --- */

/* The kernel's word is final, unlike a lost link: MUSTER_EVENT_PROCESS_DEAD cannot be taken back. */
static void on_exit_of_process(struct muster_process_watch *watch)
{
    struct node_peer *peer = watch->data;

    MUSTER_LOG(peer->node->env, DEBUG, "process_ended", "pid", (long long)watch->pid);
    muster_node_note_cause_of(peer->node, &peer->incarnation);
    muster_node_feed_peer(peer->node, MUSTER_EVENT_PROCESS_DEAD, &peer->incarnation,
                          "process ended");
}

#define NO_FILES "too many open files, or no memory; raise the limit of open files: ulimit -n 1024"

/* A process that has no descriptor left for a watch has none for links either, and the others would
 * wait for it. One that trains already goes on: its program may have freed some by then. */
static void fail_for_files(struct muster_node *node, const struct muster_member *member)
{
    struct muster_error error;

    (void)!muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED,
                            "process %lld of %s:%u cannot be watched: " NO_FILES,
                            (long long)member->pid, member->task_type, member->task_index);
    muster_node_fail(node, &error);
}

/* pid and start time name the process together, because a pid may be used again. NOT_FOUND means that it is
 * dead already. A watch that cannot be had is no fault: silence is noticed too, later. */
void muster_node_watch(struct muster_node *node, const struct muster_member *member)
{
    struct node_peer *peer = find_or_add_peer(node, &member->incarnation);
    struct muster_membership_event gone = {.kind = MUSTER_EVENT_PROCESS_DEAD};
    enum muster_rc rc;

    if (peer == NULL || peer->is_watched)
        return;
    peer->watch.data = peer;
    peer->watch.on_exit = on_exit_of_process;
    peer->watch.pid = member->pid;
    peer->watch.started = member->started;
    rc = muster_process_watch_open(&peer->watch, node->env->host);
    peer->is_watched = rc == MUSTER_OK;
    gone.peer = member->incarnation;
    if (rc == MUSTER_NOT_FOUND)
        muster_node_post(node, &gone, "process ended");
    else if (rc == MUSTER_RESOURCE_EXHAUSTED && !node->training.has_state)
        fail_for_files(node, member);
    else if (rc != MUSTER_OK)
        MUSTER_LOG(node->env, WARN, "process_not_watched", "pid", (long long)member->pid, "reason",
                   rc == MUSTER_RESOURCE_EXHAUSTED ? NO_FILES : muster_rc_text(rc));
}

size_t muster_node_queued_bytes(const struct muster_node *node)
{
    size_t bytes = 0;

    MUSTER_LIST_EACH (&node->peers, peer, struct node_peer, list_node)
        if (peer->link != NULL)
            bytes += muster_peer_link_queued_bytes(peer->link);
    return bytes;
}

void muster_node_links_close(struct muster_node *node)
{
    struct muster_list *at;

    while ((at = muster_list_pop(&node->peers)) != NULL) {
        struct node_peer *peer = MUSTER_CONTAINER_OF(at, struct node_peer, list_node);

        drop_link(peer);
        close_link(peer, peer->opening);
        if (peer->is_watched)
            muster_process_watch_close(&peer->watch);
        muster_mem_free(node->env->mem, peer);
    }
    while ((at = muster_list_pop(&node->unidentified)) != NULL) {
        struct node_unidentified *connection =
            MUSTER_CONTAINER_OF(at, struct node_unidentified, list_node);

        muster_peer_link_close(connection->link);
        muster_mem_free(node->env->mem, connection);
    }
}
