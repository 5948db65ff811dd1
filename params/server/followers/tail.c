/* The tail of what this server has copied: what is kept, and how it is told. */
#include "params/server/followers/tail.h"

#include <string.h>

#include "params/server/core/bits.h"
#include "params/server/followers/record.h"

#define SWEEP_COUNT 64u
#define SWEEP_BYTES ((uint64_t)16 << 20)
#define HEAD_BYTES  MUSTER_PARAMS_TAIL_HEAD_BYTES

struct muster_params_tail_entry {
    struct muster_list node;
    struct muster_params_tail_origin origin;
    struct muster_incarnation source; /* a slot gets another source when one is forgotten */
    uint64_t stamp;
    struct muster_params_push
        push; /* lies in payload; of turned rows only slot, source, sequence, table */
    struct muster_params_turned *turned; /* NULL: it is a push. Lies in payload */
    uint32_t turned_count;
    void *payload;
    size_t bytes; /* of it, and of the entry */
};

enum muster_rc muster_params_tail_init(struct muster_params_server *server)
{
    uint32_t shards = server->region->head->shard_count;
    struct muster_params_tail *tail = &server->tail;

    muster_list_init(&tail->entries);
    tail->since = muster_mem_alloc_zero(server->env->mem, shards, sizeof(tail->since[0]));
    tail->asked = muster_mem_alloc_zero(server->env->mem, shards, sizeof(tail->asked[0]));
    if (tail->since == NULL || tail->asked == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < shards; i++)
        tail->since[i] = UINT64_MAX;
    return MUSTER_OK;
}

static void entry_free(struct muster_params_server *server, struct muster_params_tail_entry *entry)
{
    struct muster_params_tail *tail = &server->tail;

    muster_list_remove(&entry->node);
    tail->count--;
    tail->bytes -= entry->bytes;
    muster_mem_free(&server->pool.mem, entry->payload);
    muster_mem_free(&server->pool.mem, entry);
}

void muster_params_tail_fini(struct muster_params_server *server)
{
    struct muster_params_tail *tail = &server->tail;

    if (tail->since != NULL && tail->asked != NULL)
        MUSTER_LIST_EACH_SAFE (&tail->entries, entry, struct muster_params_tail_entry, node)
            entry_free(server, entry);
    muster_mem_free(server->env->mem, tail->since);
    muster_mem_free(server->env->mem, tail->asked);
}

/* --- What is kept --- */

/* NULL: no memory. */
static struct muster_params_tail_entry *entry_new(struct muster_params_server *server,
                                                  const struct muster_params_tail_origin *origin,
                                                  const struct muster_params_push *push,
                                                  void *payload, size_t bytes)
{
    struct muster_params_tail *tail = &server->tail;
    struct muster_params_tail_entry *entry = muster_mem_alloc(&server->pool.mem, sizeof(*entry));

    if (entry == NULL)
        return NULL;
    memset(entry, 0, sizeof(*entry));
    entry->origin = *origin;
    entry->stamp = tail->stamp++;
    entry->push = *push;
    entry->source = push->source->id;
    entry->payload = payload;
    entry->bytes = sizeof(*entry) + bytes;
    return entry;
}

/* It must be whole: a sweep frees what tells of no shard. */
static void entry_append(struct muster_params_server *server,
                         struct muster_params_tail_entry *entry)
{
    struct muster_params_tail *tail = &server->tail;

    muster_list_append(&tail->entries, &entry->node);
    tail->count++;
    tail->bytes += entry->bytes;
    if (tail->count > 2 * tail->swept_count + SWEEP_COUNT ||
        tail->bytes > 2 * tail->swept_bytes + SWEEP_BYTES)
        muster_params_tail_sweep(server);
}

bool muster_params_tail_push(struct muster_params_server *server,
                             const struct muster_params_tail_origin *origin,
                             const struct muster_params_push *push, void *payload, size_t bytes)
{
    struct muster_params_tail_entry *entry = entry_new(server, origin, push, payload, bytes);

    if (entry == NULL)
        return false;
    entry_append(server, entry);
    return true;
}

bool muster_params_tail_turned(struct muster_params_server *server,
                               const struct muster_params_tail_origin *origin,
                               const struct muster_params_push *push,
                               struct muster_params_turned *turned, uint32_t count)
{
    size_t bytes = count * sizeof(*turned);
    struct muster_params_turned *kept;
    struct muster_params_tail_entry *entry;

    if (count == 0)
        return true;
    kept = muster_mem_alloc(&server->pool.mem, bytes);
    if (kept == NULL)
        return false;
    memcpy(kept, turned, bytes);
    entry = entry_new(server, origin, push, kept, bytes);
    if (entry == NULL) {
        muster_mem_free(&server->pool.mem, kept);
        return false;
    }
    entry->turned = kept;
    entry->turned_count = count;
    entry_append(server, entry);
    return true;
}

void muster_params_tail_forget(struct muster_params_server *server, uint32_t shard)
{
    server->tail.since[shard] = server->tail.stamp;
}

/* A process that has begun amid the stream of a primary does not know what came before: its entries would leave a
 * gap in another copy. */
void muster_params_tail_begin(struct muster_params_server *server, uint32_t shard)
{
    if (server->tail.since[shard] == UINT64_MAX)
        server->tail.since[shard] = server->tail.stamp;
}

void muster_params_tail_ask(struct muster_params_server *server, uint32_t shard)
{
    muster_params_tail_begin(server, shard);
    server->tail.asked[shard] = server->tail.stamp;
}

void muster_params_tail_settle(struct muster_params_server *server, uint32_t shard)
{
    server->tail.since[shard] = server->tail.asked[shard];
}

static bool tells_of(const struct muster_params_tail *tail,
                     const struct muster_params_tail_entry *entry, uint32_t shard)
{
    return tail->since[shard] != UINT64_MAX && entry->stamp >= tail->since[shard];
}

/* All copies have the changes that this process of the leader has told in records up to this number. */
static uint64_t floor_of(const struct muster_params_tail *tail,
                         const struct muster_params_tail_origin *origin)
{
    for (uint32_t i = 0; i < tail->floor_count; i++) {
        const struct muster_params_tail_floor *floor = &tail->floors[i];

        if (muster_incarnation_is_equal(&floor->leader, &origin->leader))
            return floor->number >> MUSTER_PARAMS_RECORD_TERM_BIT ==
                           origin->number >> MUSTER_PARAMS_RECORD_TERM_BIT
                       ? floor->number
                       : 0;
    }
    return 0;
}

void muster_params_tail_floor(struct muster_params_server *server,
                              const struct muster_incarnation *leader, uint64_t number)
{
    struct muster_params_tail *tail = &server->tail;
    uint32_t at = 0;

    while (at < tail->floor_count && !muster_incarnation_is_equal(&tail->floors[at].leader, leader))
        at++;
    if (at == tail->floor_count && at < MUSTER_PARAMS_TAIL_FLOORS)
        tail->floor_count++;
    else if (at ==
             MUSTER_PARAMS_TAIL_FLOORS) /* one that is gone: its entries go when they are settled */
        at = (uint32_t)(tail->stamp % MUSTER_PARAMS_TAIL_FLOORS);
    tail->floors[at] = (struct muster_params_tail_floor){.leader = *leader, .number = number};
}

/* Once another server leads the shard, a copy takes nothing of it from the former primary, but acknowledges what that
 * one sends: its floor says nothing about the shard any more. */
static bool floor_counts(const struct muster_params_server *server,
                         const struct muster_params_tail_origin *origin, uint32_t shard)
{
    const struct muster_params_map *map = server->map;
    const struct muster_params_map_shard *entry = &map->shards[shard];

    return entry->copy_count > 0 && entry->since <= origin->epoch &&
           muster_incarnation_is_equal(&map->servers[entry->copies[0]].id, &origin->leader);
}

static bool entry_is_dead(const struct muster_params_server *server,
                          const struct muster_params_tail_entry *entry)
{
    const struct muster_params_tail *tail = &server->tail;
    bool is_below =
        entry->origin.number != 0 && entry->origin.number <= floor_of(tail, &entry->origin);

    if (!muster_incarnation_is_equal(&entry->source, &entry->push.source->id))
        return true;
    for (uint32_t i = 0; entry->turned == NULL && i < entry->push.run_count; i++) {
        uint32_t shard = muster_params_run_shard(&entry->push.runs[i]);

        if (tells_of(tail, entry, shard) &&
            !(is_below && floor_counts(server, &entry->origin, shard)))
            return false;
    }
    for (uint32_t i = 0; entry->turned != NULL && i < entry->turned_count; i++) {
        uint32_t shard = entry->turned[i].shard;

        if (shard != UINT32_MAX && tells_of(tail, entry, shard) &&
            !(is_below && floor_counts(server, &entry->origin, shard)))
            return false;
    }
    return true;
}

void muster_params_tail_sweep(struct muster_params_server *server)
{
    struct muster_params_tail *tail = &server->tail;

    MUSTER_LIST_EACH_SAFE (&tail->entries, entry, struct muster_params_tail_entry, node) {
        if (entry_is_dead(server, entry))
            entry_free(server, entry);
    }
    tail->swept_count = tail->count;
    tail->swept_bytes = tail->bytes;
}

void muster_params_tail_tidy(struct muster_params_server *server)
{
    struct muster_params_tail *tail = &server->tail;

    if (tail->count > 0 && ++tail->idle_count >= SWEEP_COUNT) {
        tail->idle_count = 0;
        muster_params_tail_sweep(server);
    }
}

/* --- Messages --- */

/* The turned rows of these shards. Returns how many; ret_turned may be NULL. */
static uint32_t turned_of(const struct muster_params_tail *tail,
                          const struct muster_params_tail_entry *entry, const uint8_t *shards,
                          struct muster_params_turned *ret_turned)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < entry->turned_count; i++) {
        const struct muster_params_turned *turned = &entry->turned[i];

        if (turned->shard == UINT32_MAX || !muster_params_bit_is_set(shards, turned->shard) ||
            !tells_of(tail, entry, turned->shard))
            continue;
        if (ret_turned != NULL)
            ret_turned[count] = *turned;
        count++;
    }
    return count;
}

/* NULL: no memory, or, with is_empty, nothing of the entry is of these shards. */
static struct muster_params_record *entry_record(struct muster_params_server *server,
                                                 const struct muster_params_tail_entry *entry,
                                                 const uint8_t *shards, bool *ret_is_empty)
{
    const struct muster_params_tail *tail = &server->tail;
    const struct muster_params_run_filter filter = {
        .server = server, .shards = shards, .since = tail->since, .stamp = entry->stamp};
    struct muster_params_record *record;
    uint32_t count;

    *ret_is_empty = false;
    if (entry->turned == NULL) {
        *ret_is_empty = !muster_params_push_has_runs(&entry->push, &filter);
        return *ret_is_empty ? NULL : muster_params_filtered_record(server, &entry->push, &filter);
    }
    count = turned_of(tail, entry, shards, NULL);
    *ret_is_empty = count == 0;
    if (count == 0)
        return NULL;
    record = muster_params_turnover_record(server, &entry->push, count);
    if (record != NULL)
        (void)turned_of(tail, entry, shards,
                        (struct muster_params_turned *)(void *)record->payload);
    return record;
}

bool muster_params_tail_records(struct muster_params_server *server, const uint8_t *shards,
                                struct muster_list *ret_records)
{
    bool is_whole = true, is_empty;

    muster_params_tail_sweep(server);
    MUSTER_LIST_EACH (&server->tail.entries, entry, struct muster_params_tail_entry, node) {
        struct muster_params_record *record = entry_record(server, entry, shards, &is_empty);

        if (record != NULL)
            muster_list_append(ret_records, &record->node);
        is_whole = is_whole && (record != NULL || is_empty);
    }
    return is_whole;
}

/* A message of a tail names its source and its table in full: the other end may know neither. */
static bool tail_message_send(struct muster_params_server *server, struct muster_peer_link *link,
                              const struct muster_params_tail_entry *entry,
                              const struct muster_params_record *record)
{
    const struct muster_params_source *source = entry->push.source;
    const struct muster_params_open open = {
        .source = source->id, .generation = source->generation, .process = source->process};
    struct muster_frame_header header = record->frame.header;
    struct muster_params_schema schema;
    uint32_t bytes = header.payload_bytes;
    uint8_t *payload = muster_mem_alloc(&server->pool.mem, HEAD_BYTES + (size_t)bytes);
    enum muster_rc rc;

    if (payload == NULL)
        return false;
    muster_params_table_schema(entry->push.table, &schema);
    muster_params_open_pack(&open, payload);
    muster_params_schema_pack(&schema, payload + MUSTER_PARAMS_OPEN_BYTES);
    memcpy(payload + HEAD_BYTES, record->payload, bytes);
    header.type = MUSTER_PARAMS_COPY_TAIL;
    if (entry->turned != NULL)
        header.flags = MUSTER_PARAMS_COPY_IS_TURNED;
    if ((source->flags & MUSTER_PARAMS_SOURCE_NAMED) != 0)
        header.flags |= MUSTER_PARAMS_COPY_TAIL_IS_NAMED;
    header.epoch = server->map->epoch;
    header.payload_bytes = (uint32_t)(HEAD_BYTES + bytes);
    rc = header.payload_bytes <= MUSTER_FRAME_PAYLOAD_MAX
             ? muster_peer_link_send_copy(link, &header, payload)
             : MUSTER_RESOURCE_EXHAUSTED;
    muster_mem_free(&server->pool.mem, payload);
    return rc == MUSTER_OK;
}

bool muster_params_tail_send(struct muster_params_server *server, struct muster_peer_link *link,
                             const uint8_t *shards)
{
    bool is_whole = true, is_empty;

    muster_params_tail_sweep(server);
    MUSTER_LIST_EACH (&server->tail.entries, entry, struct muster_params_tail_entry, node) {
        struct muster_params_record *record = entry_record(server, entry, shards, &is_empty);

        if (record == NULL) {
            is_whole = is_whole && is_empty;
            continue;
        }
        is_whole = tail_message_send(server, link, entry, record) && is_whole;
        muster_mem_free(&server->pool.mem, record);
    }
    return is_whole;
}
