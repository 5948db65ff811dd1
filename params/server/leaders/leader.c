/* Servers whose changes this one copies. What a leader sends about a shard counts only while this server's
 * map says that the leader has it; acknowledgements carry the number of that map. */
#include "params/server/leaders/leader.h"

#include <string.h>

#include "params/server/core/alive.h"
#include "params/server/followers/digest.h"
#include "params/server/followers/tail.h"
#include "params/server/leaders/copied.h"
#include "params/server/leaders/full.h"
#include "params/server/state/clock.h"
#include "params/server/state/rows.h"
#include "params/store/index.h"
#include "params/store/load.h"

#define UNKNOWN   UINT64_MAX
#define MARKS_MAX (2 * MUSTER_PARAMS_SERVERS_MAX)

/* The links of a leader are numbered: one of an older process, which is read late, must not change what
 * a younger one has. */
struct leader_mark {
    struct muster_list node;
    struct muster_incarnation id;
    uint32_t connection; /* the highest number */
};

struct muster_params_leader {
    struct muster_list node;
    struct muster_params_server *server;
    struct muster_peer_link *link;
    struct muster_params_pulse pulse;
    struct muster_incarnation id;
    uint64_t *slots; /* ours, by the leader's; UNKNOWN: it has not told it */
    size_t slot_count;
    uint32_t *tables; /* ours, by the leader's */
    uint32_t table_count;
    uint64_t done_count, acked_count; /* messages */
    /* Shards whose copy differs from the leader's: it gets no pushes until it is made anew. */
    uint8_t stale[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    /* Shards whose copy differs: the tail is to be sent. */
    uint8_t differs[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    bool does_differ;
    bool is_kept;                     /* the tail has taken the payload of the message */
    uint8_t *payload;                 /* of the message that is being received, or waits */
    struct muster_frame_header waiting; /* for a map; type 0: none */
};

static void leader_close(struct muster_params_leader *leader)
{
    struct muster_params_server *server = leader->server;

    muster_list_remove(&leader->node);
    muster_peer_link_close(leader->link);
    for (size_t i = 0; i < leader->slot_count; i++) {
        if (leader->slots[i] != UNKNOWN)
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
            mark_drop(server, MUSTER_CONTAINER_OF(server->leader_marks.next, struct leader_mark,
                                                  node));
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

/* --- Its shards --- */

static bool shard_is_led(const struct muster_params_leader *leader, uint32_t shard)
{
    const struct muster_params_server *server = leader->server;
    const struct muster_params_map *map = server->map;
    const struct muster_params_map_shard *entry = &map->shards[shard];

    return entry->copy_count > 0 &&
           muster_incarnation_is_equal(&map->servers[entry->copies[0]].id, &leader->id) &&
           server->place != MUSTER_PARAMS_NOWHERE &&
           (muster_params_map_is_copy(map, shard, server->place) ||
            muster_params_map_is_learner(map, shard, server->place));
}

/* --- What it tells first --- */

static void slot_drop(struct muster_params_leader *leader, uint64_t slot)
{
    if (leader->slots[slot] != UNKNOWN)
        (void)muster_params_server_clock_refer(leader->server, leader->slots[slot], false);
    leader->slots[slot] = UNKNOWN;
}

static bool source_handle(struct muster_params_leader *leader,
                          const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    struct muster_params_copied_source source;
    struct muster_params_opener opener;
    struct muster_error error;
    uint64_t slot;

    if (header->offset > UINT32_MAX ||
        muster_params_copied_source_unpack(payload, header->payload_bytes, &source, &error) !=
            MUSTER_OK)
        return false;
    if (header->offset >= leader->slot_count) {
        size_t count = (size_t)header->offset * 2 + 16;
        uint64_t *slots =
            muster_mem_realloc(server->env->mem, leader->slots, count * sizeof(*slots));

        if (slots == NULL)
            return false;
        for (size_t i = leader->slot_count; i < count; i++)
            slots[i] = UNKNOWN;
        leader->slots = slots;
        leader->slot_count = count;
    }
    opener = (struct muster_params_opener){
        .id = source.open.source,
        .generation = source.open.generation,
        .process = source.open.process,
        .is_named = (header->flags & MUSTER_PARAMS_COPY_IS_NAMED) != 0};
    if (muster_params_source_learn(server->region, &opener, &slot) != MUSTER_OK ||
        !muster_params_server_clock_refer(server, slot, true))
        return false;
    slot_drop(leader, header->offset);
    leader->slots[header->offset] = slot;
    muster_params_server_clock_learn(server, slot, header->descriptor, &source);
    return true;
}

static bool table_handle(struct muster_params_leader *leader,
                         const struct muster_frame_header *header, const uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    struct muster_params_store_table *table = NULL;
    struct muster_params_schema schema;
    struct muster_error error;
    enum muster_rc rc =
        muster_params_schema_unpack(payload, header->payload_bytes, &schema, &error);

    if (rc == MUSTER_OK)
        rc = muster_params_table_open(server->region, &schema, &table, &error);
    if (rc != MUSTER_OK) {
        MUSTER_LOG(server->env, ERROR, "params_leader_table", "reason", error.text);
        return false;
    }
    if (header->phase != leader->table_count || header->phase >= MUSTER_PARAMS_TABLES_MAX)
        return false;
    if (leader->tables == NULL)
        leader->tables = muster_mem_alloc(server->env->mem,
                                          MUSTER_PARAMS_TABLES_MAX * sizeof(leader->tables[0]));
    if (leader->tables == NULL)
        return false;
    leader->tables[leader->table_count++] = muster_params_table_number(server->region, table);
    return true;
}

static struct muster_params_store_table *table_at(const struct muster_params_leader *leader,
                                                  uint32_t number)
{
    return number < leader->table_count
               ? muster_params_server_table(leader->server, leader->tables[number])
               : NULL;
}

static struct muster_params_source *source_at(const struct muster_params_leader *leader,
                                              uint64_t slot)
{
    return slot < leader->slot_count && leader->slots[slot] != UNKNOWN
               ? muster_params_source_at(leader->server->region, leader->slots[slot])
               : NULL;
}

/* --- Pushes --- */

static uint32_t table_width(const void *data, uint32_t number)
{
    const struct muster_params_store_table *table = table_at(data, number);

    return table != NULL ? table->row_elements : 0;
}

/* The shard lacks rows from here on: it gets no pushes, and the primary is told before it hears that this
 * message is done. */
static bool full_tell(struct muster_params_leader *leader, uint32_t shard)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_COPY_FULL,
                                               .epoch = leader->server->map->epoch,
                                               .phase = shard};

    if ((leader->stale[shard / 8] & 1u << shard % 8) != 0)
        return true;
    leader->stale[shard / 8] |= (uint8_t)(1u << shard % 8);
    muster_params_shard_lacks(leader->server->region, shard);
    muster_params_full_begin(leader->server);
    return muster_peer_link_send_copy(leader->link, &header, NULL) == MUSTER_OK;
}

/* A message may be the first one of a link that has lost what was told over the one before. */
static bool push_is_taken(void *data, uint32_t shard)
{
    struct muster_params_leader *leader = data;
    const uint8_t *lacking = leader->server->region->head->lacking;

    if (shard_is_led(leader, shard) && (lacking[shard / 8] & 1u << shard % 8) != 0)
        (void)full_tell(leader, shard); /* a link that is down says so next */
    return shard_is_led(leader, shard) && (leader->stale[shard / 8] & 1u << shard % 8) == 0;
}

/* One of two copies that is left has nobody to tell. */
static bool tail_is_kept(const struct muster_params_server *server)
{
    return server->map->copies_wanted > 2;
}

static struct muster_params_tail_origin origin_of(const struct muster_params_leader *leader,
                                                  const struct muster_frame_header *header)
{
    return (struct muster_params_tail_origin){.leader = leader->id, .number = header->op.step};
}

/* Rows that are not there after a push are those that were refused. */
static bool push_full(struct muster_params_leader *leader, const struct muster_params_push *push)
{
    const struct muster_params_region *region = leader->server->region;
    const uint64_t *key = push->keys;
    bool is_told = true;

    for (uint32_t i = 0; i < push->run_count; i++) {
        for (uint32_t j = 0; j < push->runs[i].rows; j++, key++) {
            uint64_t hash = muster_params_hash(push->table->seed, *key);

            if (muster_params_index_find(region, push->table, hash, *key) == NULL)
                is_told = full_tell(leader, muster_params_run_shard(&push->runs[i])) && is_told;
        }
    }
    return is_told;
}

static bool push_handle(struct muster_params_leader *leader,
                        const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    struct muster_params_rows_frame frame;
    struct muster_params_tail_origin origin;
    struct muster_params_pushed pushed;
    struct muster_params_push push;
    struct muster_error error;

    if (muster_params_rows_unpack(payload, header->payload_bytes, true,
                                  server->region->head->shard_count, table_width, leader, &frame,
                                  &error) != MUSTER_OK)
        return false;
    push = (struct muster_params_push){.table = table_at(leader, frame.table),
                                       .source = source_at(leader, frame.slot),
                                       .sequence = header->offset,
                                       .clock = (uint32_t)frame.clock,
                                       .runs = frame.runs,
                                       .run_count = frame.run_count,
                                       .keys = frame.keys,
                                       .values = frame.values,
                                       .dtype = (enum muster_dtype)frame.dtype,
                                       .row_count = frame.row_count,
                                       .is_refused = header->flags == MUSTER_PARAMS_COPY_IS_REFUSED,
                                       .is_copy = true};
    if (push.source == NULL || header->descriptor != push.table->descriptor ||
        push.sequence == 0 ||
        push.sequence > MUSTER_PARAMS_SEQUENCE_MAX ||
        (!push.is_refused && /* it may be refused for its keys */
         !muster_params_keys_belong(&push, server->region->head->shard_count)))
        return false;
    push.slot = leader->slots[frame.slot];
    muster_params_runs_filter(&push, payload, push_is_taken, leader);
    if (push.run_count == 0)
        return true;
    if (muster_params_push_apply(server, &push, &pushed) != MUSTER_OK)
        return false;
    if (pushed.refused > 0 && !push_full(leader, &push))
        return false;
    if (!tail_is_kept(server))
        return true;
    origin = origin_of(leader, header);
    leader->is_kept = muster_params_tail_push(server, &origin, &push, payload);
    return leader->is_kept; /* without memory it comes again */
}

/* --- Rows that come and go --- */

static bool turnover_handle(struct muster_params_leader *leader,
                            const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    struct muster_params_store_table *table = table_at(leader, header->chunk);
    struct muster_params_source *source = source_at(leader, header->phase);
    struct muster_params_tail_origin origin;
    struct muster_params_turned turned;
    struct muster_params_push push;

    if (table == NULL || source == NULL || header->descriptor != table->descriptor ||
        !muster_params_table_turns(table) || header->offset == 0 ||
        header->offset > MUSTER_PARAMS_SEQUENCE_MAX ||
        header->payload_bytes % sizeof(turned) != 0)
        return false;
    for (uint32_t at = 0; at < header->payload_bytes; at += sizeof(turned)) {
        memcpy(&turned, payload + at, sizeof(turned));
        if (!muster_params_turned_is_sound(server, table, &turned))
            return false;
        if (!push_is_taken(leader, turned.shard))
            turned.shard = UINT32_MAX; /* the tail has nothing of it */
        else if (!muster_params_turnover_follow(server->region, table, source, header->offset,
                                                &turned) &&
                 !full_tell(leader, turned.shard))
            return false;
        memcpy(payload + at, &turned, sizeof(turned));
    }
    if (!tail_is_kept(server))
        return true;
    push = (struct muster_params_push){.table = table,
                                       .source = source,
                                       .slot = leader->slots[header->phase],
                                       .sequence = header->offset};
    origin = origin_of(leader, header);
    return muster_params_tail_turned(server, &origin, &push,
                                     (struct muster_params_turned *)(void *)payload,
                                     header->payload_bytes / (uint32_t)sizeof(turned));
}

/* --- The copy of a shard --- */

static bool begin_handle(struct muster_params_leader *leader,
                         const struct muster_frame_header *header, uint8_t *payload)
{
    (void)payload;
    if (header->phase >= leader->server->region->head->shard_count)
        return false;
    leader->stale[header->phase / 8] &= (uint8_t)~(1u << header->phase % 8);
    leader->server->has_digests = false;
    if (!shard_is_led(leader, header->phase))
        return true;
    muster_params_shard_forget(leader->server->region, header->phase);
    muster_params_tail_forget(leader->server, header->phase);
    return true;
}

static bool positions_handle(struct muster_params_leader *leader,
                             const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_copied_position entry;

    if (header->phase >= leader->server->region->head->shard_count ||
        header->payload_bytes % sizeof(entry) != 0)
        return false;
    if (!shard_is_led(leader, header->phase))
        return true;
    for (uint32_t at = 0; at < header->payload_bytes; at += sizeof(entry)) {
        struct muster_params_source *source;

        memcpy(&entry, payload + at, sizeof(entry));
        source = source_at(leader, entry.slot);
        if (source == NULL)
            return false;
        muster_params_position_load(source, header->phase, entry.position);
        leader->server->has_digests = false;
    }
    return true;
}

static bool rows_handle(struct muster_params_leader *leader,
                        const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    struct muster_params_store_table *table = table_at(leader, header->chunk);
    struct muster_params_copied_row head;
    size_t bytes;

    if (table == NULL || header->descriptor != table->descriptor)
        return false;
    bytes = sizeof(head) + (table->row_elements + table->state_elements) * sizeof(float);
    if (header->phase >= server->region->head->shard_count || header->payload_bytes % bytes != 0)
        return false;
    if (!push_is_taken(leader, header->phase))
        return true;
    for (size_t at = 0; at < header->payload_bytes; at += bytes) {
        memcpy(&head, payload + at, sizeof(head));
        if (muster_params_key_shard(table, head.key, server->region->head->shard_count) !=
            header->phase)
            return false;
        if (muster_params_row_load(server->region, table, head.key, head.clock,
                                   (const float *)(const void *)(payload + at + sizeof(head))) !=
            MUSTER_OK)
            return full_tell(leader, header->phase);
    }
    return true;
}

static bool differs_tell(struct muster_params_leader *leader, uint32_t shard)
{
    const struct muster_frame_header answer = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_COPY_DIFFERS,
                                               .epoch = leader->server->map->epoch,
                                               .phase = shard};

    return muster_peer_link_send_copy(leader->link, &answer, NULL) == MUSTER_OK;
}

/* A copy that is asked for the first time and differs sends its tail at the end of the turn. */
static bool check_handle(struct muster_params_leader *leader,
                         const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    uint32_t shard = header->phase;
    bool is_last = header->flags == MUSTER_PARAMS_COPY_IS_LAST, is_same;

    (void)payload;
    if (shard >= server->region->head->shard_count)
        return false;
    if (!shard_is_led(leader, shard))
        return true;
    is_same = header->flags != MUSTER_PARAMS_COPY_IS_STALE &&
              muster_params_server_digest(server, shard) == header->descriptor;
    if (header->flags == 0)
        muster_params_tail_ask(server, shard);
    if (is_same && is_last) {
        muster_params_tail_settle(server, shard);
        server->tail.swept_count = 0; /* what is settled goes soon */
    }
    if (is_same)
        return true;
    if (header->flags == 0) {
        leader->differs[shard / 8] |= (uint8_t)(1u << shard % 8);
        leader->does_differ = true;
        return true;
    }
    leader->stale[shard / 8] |= (uint8_t)(1u << shard % 8);
    return differs_tell(leader, shard);
}

/* The leader names the source anew before it speaks of the slot again. */
static bool forget_handle(struct muster_params_leader *leader,
                          const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    uint8_t shards[MUSTER_PARAMS_SHARD_COUNT_MAX / 8] = {0};

    (void)payload;
    if (source_at(leader, header->offset) == NULL)
        return false;
    for (uint32_t shard = 0; shard < server->region->head->shard_count; shard++) {
        if (shard_is_led(leader, shard))
            shards[shard / 8] |= (uint8_t)(1u << shard % 8);
    }
    muster_params_source_forget(server->region, leader->slots[header->offset], shards);
    server->has_digests = false;
    slot_drop(leader, header->offset);
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

static const struct copy_row {
    bool (*handle)(struct muster_params_leader *leader, const struct muster_frame_header *header,
                   uint8_t *payload);
    uint32_t payload_max;
} messages[] = {
    [MUSTER_PARAMS_COPY_PUSH - MUSTER_PARAMS_COPY_PUSH] = {push_handle, MUSTER_FRAME_PAYLOAD_MAX},
    [MUSTER_PARAMS_COPY_MARK - MUSTER_PARAMS_COPY_PUSH] = {nothing_handle, 0},
    [MUSTER_PARAMS_COPY_BEGIN - MUSTER_PARAMS_COPY_PUSH] = {begin_handle, 0},
    [MUSTER_PARAMS_COPY_POSITIONS - MUSTER_PARAMS_COPY_PUSH] = {positions_handle,
                                                                MUSTER_FRAME_PAYLOAD_MAX},
    [MUSTER_PARAMS_COPY_ROWS - MUSTER_PARAMS_COPY_PUSH] = {rows_handle, MUSTER_FRAME_PAYLOAD_MAX},
    [MUSTER_PARAMS_COPY_END - MUSTER_PARAMS_COPY_PUSH] = {nothing_handle, 0},
    [MUSTER_PARAMS_COPY_TURNOVER - MUSTER_PARAMS_COPY_PUSH] = {turnover_handle,
                                                               MUSTER_FRAME_PAYLOAD_MAX},
    [MUSTER_PARAMS_COPY_CHECK - MUSTER_PARAMS_COPY_PUSH] = {check_handle, 0},
    [MUSTER_PARAMS_COPY_FORGET - MUSTER_PARAMS_COPY_PUSH] = {forget_handle, 0},
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
        is_done = source_handle(leader, header, payload);
    } else if (header->type == MUSTER_PARAMS_COPY_TABLE) {
        is_done = table_handle(leader, header, payload);
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
        if ((leader->differs[shard / 8] & 1u << shard % 8) != 0 && !differs_tell(leader, shard))
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

static void leader_check(struct muster_params_leader *leader, uint64_t now_ns)
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
        leader_check(leader, now_ns);
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
