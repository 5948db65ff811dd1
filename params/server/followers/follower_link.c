/* The link to a follower: what it says about records and copies. */
#include "params/server/followers/follower_internal.h"

#include <muster/stream.h>

#include "params/server/core/alive.h"

#define CONNECT_TIMEOUT_NS (5 * MUSTER_NS_PER_S)

static void on_ready(struct muster_peer_link *link)
{
    struct muster_params_follower *follower = muster_peer_link_data(link);

    follower->is_met = follower->was_met = true;
    follower->is_stranger_told = false;
    follower->backoff_ns = 0;
    if (!muster_params_follower_tell_stale(follower)) {
        muster_params_follower_break(follower, "no memory for what it must have");
        return;
    }
    MUSTER_LIST_EACH (&follower->records, record, struct muster_params_record, node) {
        if (!muster_params_record_send(follower, record)) {
            muster_params_follower_break(follower, "no memory for what it must have");
            return;
        }
    }
    if (!muster_list_is_empty(&follower->records))
        muster_params_follower_await(follower);
    muster_params_follower_learn_next(follower);
}

static bool message_is_known(const struct muster_params_follower *follower,
                             const struct muster_frame_header *header)
{
    if (header->channel != MUSTER_FRAME_PARAMS)
        return false;
    if (header->type == MUSTER_PARAMS_COPY_TAIL)
        return header->payload_bytes > 0 && muster_params_has_tails(follower->server);
    return (header->type == MUSTER_PARAMS_COPY_ACK || header->type == MUSTER_PARAMS_COPY_DIFFERS ||
            header->type == MUSTER_PARAMS_COPY_ALIVE || header->type == MUSTER_PARAMS_COPY_FULL) &&
           header->payload_bytes == 0;
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_params_follower *follower = muster_peer_link_data(link);

    muster_params_pulse_hear(&follower->pulse, muster_loop_now_ns(follower->server->env->loop));
    if (!message_is_known(follower, header)) {
        muster_params_follower_break(follower, "it sent a message that no follower sends");
        return NULL;
    }
    if (header->payload_bytes == 0)
        return NULL;
    follower->payload = muster_mem_alloc(&follower->server->pool.mem, header->payload_bytes);
    if (follower->payload == NULL)
        muster_params_follower_break(follower, "no memory for its message");
    return follower->payload;
}

/* False: the follower has acknowledged more than it was sent. */
static bool records_done(struct muster_params_follower *follower, uint64_t count)
{
    while (follower->done_count < count) {
        struct muster_params_record *record;
        uint32_t shard;
        bool is_copy, is_check, is_question;

        if (muster_list_is_empty(&follower->records))
            return false;
        record = MUSTER_CONTAINER_OF(follower->records.next, struct muster_params_record, node);
        follower->done_count++;
        is_copy = record->is_copy;
        shard = record->shard;
        is_check = record->frame.header.type == MUSTER_PARAMS_COPY_CHECK;
        is_question = is_check && record->frame.header.flags == 0;
        if (is_check)
            muster_params_bit_set(follower->answered, record->frame.header.phase);
        if (is_question)
            muster_params_copy_checked(follower, record->frame.header.phase);
        muster_params_record_done(record);
        if (is_copy)
            muster_params_copy_record_done(follower, shard);
        muster_params_follower_progress(follower);
        if (follower->link == NULL)
            return true;
    }
    return true;
}

/* A follower that has a later map has not done what it does not take from this server any more; the
 * map tells which that is, so the acknowledgement waits for it. */
static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_params_follower *follower = muster_peer_link_data(link);
    struct muster_params_server *server = follower->server;

    (void)buffer;
    if (header->type == MUSTER_PARAMS_COPY_TAIL) {
        muster_params_copy_tail(follower, header);
        return;
    }
    if (header->type == MUSTER_PARAMS_COPY_ALIVE) {
        if (header->flags == MUSTER_PARAMS_ALIVE_ASKS &&
            !muster_params_alive_send(link, MUSTER_PARAMS_COPY_ALIVE, 0))
            muster_params_follower_break(follower, "no memory for a sign of life");
        return;
    }
    if (header->type == MUSTER_PARAMS_COPY_FULL) {
        muster_params_copy_full(follower, header->phase);
        return;
    }
    if (header->type == MUSTER_PARAMS_COPY_DIFFERS) {
        muster_params_copy_differs(follower, header->phase);
        return;
    }
    if (header->epoch > server->map->epoch) {
        follower->early_map = header->epoch;
        follower->early_count = header->offset;
        return;
    }
    if (!records_done(follower, header->offset)) {
        muster_params_follower_break(follower, "it acknowledged what was not sent");
        return;
    }
    muster_params_followers_settle(server);
    muster_task_post(&server->held_check, server->env->loop);
}

/* At its address another server answers, of this job or of another one. A server that was started again in
 * the place of a dead one is such a stranger until the lease of the dead one has ended. */
static void stranger_tell(struct muster_params_follower *follower, const struct muster_error *error)
{
    const struct muster_params_server *server = follower->server;

    if (follower->is_stranger_told)
        return;
    follower->is_stranger_told = true;
    MUSTER_LOG(server->env, WARN, "params_replica_refused", "address",
               muster_params_follower_address(follower), "reason", error->text);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct muster_params_follower *follower = muster_peer_link_data(link);

    if (error->rc == MUSTER_FAILED_PRECONDITION)
        stranger_tell(follower, error);
    muster_params_follower_break(follower, error->text);
}

static const struct muster_peer_link_events events = {
    .on_ready = on_ready, .on_frame = on_frame, .on_payload = on_payload, .on_down = on_down};

void muster_params_follower_connect(struct muster_params_follower *follower)
{
    struct muster_params_server *server = follower->server;
    struct muster_peer_hello hello = server->hello;

    hello.purpose = MUSTER_LINK_PARAMS_COPY;
    hello.incarnation = server->region->head->id;
    /* Another server may answer at this address: what that one acknowledged would count as copied. */
    hello.target = follower->id;
    /* A link of a process that has died may be read late: the number says that this one is younger. */
    hello.connection = server->region->head->copy_links + 1;
    server->region->head->copy_links = hello.connection;
    if (muster_peer_link_open(server->env, &follower->address, &hello,
                              muster_loop_after_ns(server->env->loop, CONNECT_TIMEOUT_NS), &events,
                              follower, &follower->link) != MUSTER_OK) {
        follower->link = NULL;
        muster_params_follower_break(follower, "a link cannot be opened");
    }
}

void muster_params_followers_catch_up(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node) {
        uint64_t count = follower->early_count;

        if (follower->early_map == 0 || follower->early_map > server->map->epoch)
            continue;
        follower->early_map = 0;
        if (!records_done(follower, count))
            muster_params_follower_break(follower, "it acknowledged what was not sent");
    }
    muster_params_followers_settle(server);
}

static void follower_check(struct muster_params_follower *follower, uint64_t now_ns)
{
    switch (muster_params_pulse_check(&follower->pulse, now_ns,
                                      muster_peer_link_queued_bytes(follower->link), true)) {
    case MUSTER_PARAMS_PULSE_BEATS:
        return;
    case MUSTER_PARAMS_PULSE_ASK:
        if (!muster_params_alive_send(follower->link, MUSTER_PARAMS_COPY_ALIVE,
                                      MUSTER_PARAMS_ALIVE_ASKS))
            muster_params_follower_break(follower, "no memory for a sign of life");
        return;
    case MUSTER_PARAMS_PULSE_LOST:
        muster_params_follower_break(follower, "nothing comes from it");
        return;
    }
}

bool muster_params_followers_check(struct muster_params_server *server)
{
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);
    bool is_awaited = false;

    MUSTER_LIST_EACH_SAFE (&server->followers, follower, struct muster_params_follower, node) {
        if (!follower->is_met)
            continue;
        follower->is_awaited = !muster_list_is_empty(&follower->records);
        if (follower->is_awaited)
            follower_check(follower, now_ns);
        is_awaited |= follower->is_awaited;
    }
    return is_awaited;
}
