/* Servers whose changes this one copies. What a leader sends about a shard counts only while this server's map says
 * that the leader has it; acknowledgements carry the number of that map. */
#include "params/server/leaders/leader.h"

#include <string.h>

#include "params/server/core/alive.h"
#include "params/server/followers/tail.h"
#include "params/server/leaders/leader_internal.h"
#include "params/server/state/clock.h"

#define MARKS_MAX (2 * MUSTER_PARAMS_SERVERS_MAX)

/* The links of a leader are numbered: one of an older process, which is read late, must not change what
 * a younger one has. */
struct leader_mark {
    struct muster_list node;
    struct muster_incarnation id;
    uint32_t connection; /* the highest number */
};

static void leader_close(struct muster_params_leader *leader)
{
    struct muster_params_server *server = leader->server;

    muster_list_remove(&leader->node);
    muster_peer_link_close(leader->link);
    for (size_t i = 0; i < leader->slot_count; i++) {
        if (leader->slots[i] != MUSTER_PARAMS_SLOT_UNKNOWN)
            (void)muster_params_server_clock_refer(server, leader->slots[i], false);
    }
    muster_mem_free(server->env->mem, leader->slots);
    muster_mem_free(server->env->mem, leader->tables);
    muster_mem_free(&server->pool.mem, leader->payload);
    muster_mem_free(server->env->mem, leader);
}

/* It connects again, and sends what was not acknowledged. */
static void leader_give_up(struct muster_params_leader *leader, const char *reason)
{
    MUSTER_LOG(leader->server->env, WARN, "params_leader_dropped", "reason", reason);
    leader_close(leader);
}

/* --- Its links --- */

static void mark_drop(struct muster_params_server *server, struct leader_mark *mark)
{
    muster_list_remove(&mark->node);
    muster_mem_free(server->env->mem, mark);
}

/* The newest marks stand last. NULL: no memory. */
static struct leader_mark *mark_of(struct muster_params_server *server,
                                   const struct muster_incarnation *id)
{
    struct leader_mark *found = NULL;
    uint32_t count = 0;

    MUSTER_LIST_EACH (&server->leader_marks, mark, struct leader_mark, node) {
        count++;
        if (muster_incarnation_is_equal(&mark->id, id))
            found = mark;
    }
    if (found == NULL) {
        found = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*found));
        if (found == NULL)
            return NULL;
        found->id = *id;
        if (count == MARKS_MAX)
            mark_drop(server,
                      MUSTER_CONTAINER_OF(server->leader_marks.next, struct leader_mark, node));
    } else {
        muster_list_remove(&found->node);
    }
    muster_list_append(&server->leader_marks, &found->node);
    return found;
}

/* Its older links end. False: this is not its youngest one. */
static bool link_is_youngest(struct muster_params_server *server,
                             const struct muster_peer_hello *hello)
{
    struct leader_mark *mark = mark_of(server, &hello->incarnation);

    if (mark == NULL || hello->connection <= mark->connection)
        return false;
    mark->connection = hello->connection;
    MUSTER_LIST_EACH_SAFE (&server->leaders, leader, struct muster_params_leader, node) {
        if (muster_incarnation_is_equal(&leader->id, &hello->incarnation))
            leader_give_up(leader, "it has opened another link");
    }
    return true;
}

/* --- Messages --- */

static bool nothing_handle(struct muster_params_leader *leader,
                           const struct muster_frame_header *header, uint8_t *payload)
{
    (void)leader;
    (void)header;
    (void)payload;
    return true;
}

#define AT(message) (MUSTER_PARAMS_COPY_##message - MUSTER_PARAMS_COPY_PUSH)

static const struct copy_row {
    muster_params_leader_fn *handle;
    uint32_t payload_max;
} messages[] = {
    [AT(PUSH)] = {muster_params_leader_push, MUSTER_FRAME_PAYLOAD_MAX},
    [AT(MARK)] = {nothing_handle, 0},
    [AT(BEGIN)] = {muster_params_leader_begin, 0},
    [AT(POSITIONS)] = {muster_params_leader_positions, MUSTER_FRAME_PAYLOAD_MAX},
    [AT(ROWS)] = {muster_params_leader_rows, MUSTER_FRAME_PAYLOAD_MAX},
    [AT(END)] = {muster_params_leader_end, 0},
    [AT(TURNOVER)] = {muster_params_leader_turnover, MUSTER_FRAME_PAYLOAD_MAX},
    [AT(CHECK)] = {muster_params_leader_check, 0},
    [AT(FORGET)] = {muster_params_leader_forget, 0},
};

static bool message_is_known(const struct muster_frame_header *header)
{
    if (header->channel != MUSTER_FRAME_PARAMS)
        return false;
    if (header->type == MUSTER_PARAMS_COPY_ALIVE)
        return header->payload_bytes == 0;
    if (header->type == MUSTER_PARAMS_COPY_SOURCE)
        return header->payload_bytes == MUSTER_PARAMS_COPIED_SOURCE_BYTES;
    if (header->type == MUSTER_PARAMS_COPY_TABLE)
        return header->payload_bytes == MUSTER_PARAMS_SCHEMA_BYTES;
    return header->type >= MUSTER_PARAMS_COPY_PUSH && header->type <= MUSTER_PARAMS_COPY_FORGET &&
           messages[header->type - MUSTER_PARAMS_COPY_PUSH].handle != NULL &&
           header->payload_bytes <= messages[header->type - MUSTER_PARAMS_COPY_PUSH].payload_max;
}

static void leader_hear(struct muster_params_leader *leader)
{
    muster_params_pulse_hear(&leader->pulse, muster_loop_now_ns(leader->server->env->loop));
}

static void on_progress(struct muster_peer_link *link, const struct muster_frame_header *header,
                        void *buffer, uint32_t bytes_done)
{
    (void)header;
    (void)buffer;
    (void)bytes_done;
    leader_hear(muster_peer_link_data(link));
}

static void *on_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    struct muster_params_leader *leader = muster_peer_link_data(link);
    uint8_t *payload;

    leader_hear(leader);
    if (!message_is_known(header)) {
        leader_give_up(leader, "it sent a message that no server sends");
        return NULL;
    }
    MUSTER_ASSERT(leader->payload == NULL);
    if (header->payload_bytes == 0)
        return NULL;
    payload = muster_mem_alloc(&leader->server->pool.mem, header->payload_bytes);
    if (payload == NULL)
        leader_give_up(leader, "no memory for its message");
    else
        leader->payload = payload;
    return payload;
}

/* False: the leader is closed. */
static bool message_handle(struct muster_params_leader *leader,
                           const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    bool is_done;

    if (header->type == MUSTER_PARAMS_COPY_SOURCE) {
        is_done = muster_params_leader_source(leader, header, payload);
    } else if (header->type == MUSTER_PARAMS_COPY_TABLE) {
        is_done = muster_params_leader_table(leader, header, payload);
    } else {
        muster_params_tail_floor(server, &leader->id, header->op.step - header->op.lane);
        is_done = messages[header->type - MUSTER_PARAMS_COPY_PUSH].handle(leader, header, payload);
        leader->done_count++;
        muster_task_post(&server->flush, server->env->loop);
    }
    leader->payload = NULL;
    if (!leader->is_kept)
        muster_mem_free(&server->pool.mem, payload);
    leader->is_kept = false;
    if (!is_done)
        leader_give_up(leader, "the message is malformed, or memory is short");
    return is_done;
}

/* A later map may say that the shard is another's: the message waits for it. */
static void on_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                       void *buffer)
{
    struct muster_params_leader *leader = muster_peer_link_data(link);
    struct muster_params_server *server = leader->server;

    if (header->type == MUSTER_PARAMS_COPY_ALIVE) {
        if (header->flags == MUSTER_PARAMS_ALIVE_ASKS &&
            !muster_params_alive_send(link, MUSTER_PARAMS_COPY_ALIVE, 0))
            leader_give_up(leader, "no memory for a sign of life");
        return;
    }
    if (server->map == NULL || header->epoch > server->map->epoch) {
        leader->waiting = *header;
        muster_peer_link_pause(link);
        muster_params_alive_watch(server, true);
        return;
    }
    (void)message_handle(leader, header, buffer);
}

static void on_down(struct muster_peer_link *link, const struct muster_error *error)
{
    struct muster_params_leader *leader = muster_peer_link_data(link);

    MUSTER_LOG(leader->server->env, DEBUG, "params_leader_down", "reason", error->text);
    leader_close(leader);
}

static const struct muster_peer_link_events events = {
    .on_frame = on_frame, .on_progress = on_progress, .on_payload = on_payload, .on_down = on_down};

void muster_params_leader_accept(struct muster_params_server *server, struct muster_peer_link *link)
{
    struct muster_params_leader *leader = NULL;

    if (link_is_youngest(server, muster_peer_link_hello(link)))
        leader = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*leader));
    if (leader == NULL) {
        muster_peer_link_close(link);
        return;
    }
    leader->server = server;
    leader->link = link;
    leader->id = muster_peer_link_hello(link)->incarnation;
    muster_list_append(&server->leaders, &leader->node);
    leader_hear(leader);
    muster_params_alive_watch(server, false);
    muster_peer_link_set_owner(link, &events, leader);
}

void muster_params_leaders_resume(struct muster_params_server *server)
{
    if (server->tail.count > 0)
        muster_params_tail_sweep(server);
    MUSTER_LIST_EACH_SAFE (&server->leaders, leader, struct muster_params_leader, node) {
        struct muster_frame_header header = leader->waiting;

        if (header.type == 0 || header.epoch > server->map->epoch)
            continue;
        leader->waiting.type = 0;
        if (message_handle(leader, &header, leader->payload))
            muster_peer_link_resume(leader->link);
    }
}

/* False: no memory for an answer. A tail that is not whole makes this copy differ again. */
static bool tail_tell(struct muster_params_leader *leader)
{
    struct muster_params_server *server = leader->server;

    leader->does_differ = false;
    if (!muster_params_tail_send(server, leader->link, leader->differs))
        MUSTER_LOG(server->env, WARN, "params_tail_not_sent", "reason", "no memory");
    for (uint32_t shard = 0; shard < server->region->head->shard_count; shard++) {
        if (muster_params_bit_is_set(leader->differs, shard) &&
            !muster_params_leader_differs(leader, shard))
            return false;
    }
    memset(leader->differs, 0, sizeof(leader->differs));
    return true;
}

void muster_params_leaders_flush(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->leaders, leader, struct muster_params_leader, node) {
        const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                                   .type = MUSTER_PARAMS_COPY_ACK,
                                                   .epoch = server->map->epoch,
                                                   .offset = leader->done_count};

        if (leader->acked_count == leader->done_count)
            continue;
        if (leader->does_differ && !tail_tell(leader)) {
            leader_give_up(leader, "no memory for an answer");
            continue;
        }
        leader->acked_count = leader->done_count;
        if (muster_peer_link_send_copy(leader->link, &header, NULL) != MUSTER_OK)
            leader_give_up(leader, "no memory for an acknowledgement");
    }
}

static void pulse_check(struct muster_params_leader *leader, uint64_t now_ns)
{
    bool is_paused = leader->waiting.type != 0;
    bool is_told = true;

    if (is_paused) /* nothing is read from it: what it says is not heard */
        muster_params_pulse_hear(&leader->pulse, now_ns);
    switch (muster_params_pulse_check(&leader->pulse, now_ns,
                                      muster_peer_link_queued_bytes(leader->link), false)) {
    case MUSTER_PARAMS_PULSE_BEATS:
        if (is_paused)
            is_told = muster_params_alive_send(leader->link, MUSTER_PARAMS_COPY_ALIVE, 0);
        break;
    case MUSTER_PARAMS_PULSE_ASK:
        is_told = muster_params_alive_send(leader->link, MUSTER_PARAMS_COPY_ALIVE,
                                           MUSTER_PARAMS_ALIVE_ASKS);
        break;
    case MUSTER_PARAMS_PULSE_LOST:
        leader_give_up(leader, "nothing comes from it");
        return;
    }
    if (!is_told)
        leader_give_up(leader, "no memory for a sign of life");
}

bool muster_params_leaders_check(struct muster_params_server *server)
{
    uint64_t now_ns = muster_loop_now_ns(server->env->loop);
    bool is_awaited = false;

    MUSTER_LIST_EACH_SAFE (&server->leaders, leader, struct muster_params_leader, node) {
        is_awaited |= leader->waiting.type != 0;
        pulse_check(leader, now_ns);
    }
    return is_awaited;
}

void muster_params_leaders_close(struct muster_params_server *server)
{
    MUSTER_LIST_EACH_SAFE (&server->leaders, leader, struct muster_params_leader, node)
        leader_close(leader);
    MUSTER_LIST_EACH_SAFE (&server->leader_marks, mark, struct leader_mark, node)
        mark_drop(server, mark);
}
