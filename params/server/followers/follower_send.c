/* Records are sent over the link of a follower, after what they name: sources and tables. They stay until the
 * follower has done them. */
#include "params/server/followers/follower_internal.h"

#include <string.h>

static bool told_grow(struct muster_params_follower *follower, uint64_t slot)
{
    size_t bytes = (size_t)slot / 8 + 1, grown = bytes * 2;
    uint8_t *told;

    if (bytes <= follower->told_bytes)
        return true;
    told = muster_mem_realloc(follower->server->env->mem, follower->told_sources, grown);
    if (told == NULL)
        return false;
    memset(told + follower->told_bytes, 0, grown - follower->told_bytes);
    follower->told_sources = told;
    follower->told_bytes = grown;
    return true;
}

static uint16_t source_flags(const struct muster_params_source *source)
{
    uint32_t flags = 0;

    if ((source->flags & MUSTER_PARAMS_SOURCE_NAMED) != 0)
        flags |= MUSTER_PARAMS_COPY_IS_NAMED;
    if ((source->flags & MUSTER_PARAMS_SOURCE_LINKED) != 0)
        flags |= MUSTER_PARAMS_COPY_IS_LINKED;
    return (uint16_t)flags;
}

static bool source_tell(struct muster_params_follower *follower, uint64_t slot)
{
    const struct muster_params_source *source =
        muster_params_source_at(follower->server->region, slot);
    const struct muster_params_copied_source copied = {
        .open = {.source = source->id,
                 .generation = source->generation,
                 .process = source->process},
        .rounds = source->rounds,
        .weight = source->round_weight,
        .clock_sources = follower->server->region->head->clock_sources,
        .pushed_clock = source->pushed_clock};
    const struct muster_frame_header header = {
        .channel = MUSTER_FRAME_PARAMS,
        .type = MUSTER_PARAMS_COPY_SOURCE,
        .flags = source_flags(source),
        .payload_bytes = MUSTER_PARAMS_COPIED_SOURCE_BYTES,
        .phase = source->confirmed,
        .offset = slot,
        .descriptor = source->clock};
    uint8_t bytes[MUSTER_PARAMS_COPIED_SOURCE_BYTES];

    if (source->generation == 0) /* the slot is free */
        return true;
    if (!told_grow(follower, slot))
        return false;
    muster_params_copied_source_pack(&copied, bytes);
    muster_params_bit_set(follower->told_sources, (uint32_t)slot);
    return muster_peer_link_send_copy(follower->link, &header, bytes) == MUSTER_OK;
}

bool muster_params_follower_knows_source(const struct muster_params_follower *follower,
                                         uint64_t slot)
{
    return slot / 8 < follower->told_bytes &&
           muster_params_bit_is_set(follower->told_sources, (uint32_t)slot);
}

static bool tables_tell(struct muster_params_follower *follower, uint32_t count)
{
    const struct muster_params_region_head *head = follower->server->region->head;

    for (; follower->told_tables < count; follower->told_tables++) {
        const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                                   .type = MUSTER_PARAMS_COPY_TABLE,
                                                   .payload_bytes = MUSTER_PARAMS_SCHEMA_BYTES,
                                                   .phase = follower->told_tables};
        uint8_t bytes[MUSTER_PARAMS_SCHEMA_BYTES];
        struct muster_params_schema schema;

        muster_params_table_schema(&head->tables[follower->told_tables], &schema);
        muster_params_schema_pack(&schema, bytes);
        if (muster_peer_link_send_copy(follower->link, &header, bytes) != MUSTER_OK)
            return false;
    }
    return true;
}

static void on_record_sent(struct muster_frame *frame, enum muster_rc rc)
{
    struct muster_params_record *record = frame->data;

    (void)rc; /* a lost link sends it again */
    record->is_sending = false;
    if (record->is_done)
        muster_mem_free(&record->server->pool.mem, record);
}

/* The newest record that all followers have done, and all before it. */
static uint64_t record_floor(const struct muster_params_server *server)
{
    uint64_t floor = server->record_count;

    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        const struct muster_params_record *first =
            MUSTER_CONTAINER_OF(follower->records.next, struct muster_params_record, node);

        if (!muster_list_is_empty(&follower->records) && first->number <= floor)
            floor = first->number > 0 ? first->number - 1 : 0;
    }
    return floor;
}

/* Followers keep what it carries until all of them have it. */
static void record_number_tell(struct muster_params_record *record)
{
    uint64_t floor = record_floor(record->server), open;

    open = record->number > floor ? record->number - floor : 0;
    record->frame.header.op = (struct muster_op_id){
        .step = record->number, .lane = open < UINT32_MAX ? (uint32_t)open : UINT32_MAX};
}

/* A link that has no memory is given up: the next one sends everything again. */
bool muster_params_record_send(struct muster_params_follower *follower,
                               struct muster_params_record *record)
{
    for (uint64_t slot = record->source_begin; slot < record->source_end; slot++) {
        if (!muster_params_follower_knows_source(follower, slot) && !source_tell(follower, slot))
            return false;
    }
    if (!tables_tell(follower, record->table_count))
        return false;
    record->is_sending = true;
    record->frame.header.epoch = follower->server->map->epoch;
    record_number_tell(record);
    if (muster_peer_link_send(&record->frame, follower->link, on_record_sent) != MUSTER_OK) {
        record->is_sending = false;
        return false;
    }
    if (record->frame.header.type == MUSTER_PARAMS_COPY_FORGET)
        muster_params_bit_clear(follower->told_sources, (uint32_t)record->source_begin);
    return true;
}

/* The record stays until the follower has done it. */
void muster_params_follower_append(struct muster_params_follower *follower,
                                   struct muster_params_record *record)
{
    record->number = follower->server->record_count;
    muster_list_append(&follower->records, &record->node);
    muster_params_follower_owes(follower);
    if (follower->is_met && !muster_params_record_send(follower, record))
        muster_params_follower_break(follower, "no memory for what it must have");
    else
        muster_params_follower_await(follower);
}

void muster_params_followers_untell(struct muster_params_server *server, uint64_t slot)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (muster_params_follower_knows_source(follower, slot))
            muster_params_bit_clear(follower->told_sources, (uint32_t)slot);
    }
}

bool muster_params_followers_know(const struct muster_params_server *server, uint64_t slot)
{
    MUSTER_LIST_EACH (&server->followers, follower, struct muster_params_follower, node) {
        if (muster_params_follower_knows_source(follower, slot))
            return true;
    }
    return false;
}

bool muster_params_follower_has(const struct muster_params_follower *follower, uint64_t number,
                                const uint16_t *shards, uint32_t shard_count)
{
    for (uint32_t i = 0; i < shard_count && follower->stale_count > 0; i++) {
        if (muster_params_bit_is_set(follower->stale, shards[i]))
            return false;
    }
    if (muster_list_is_empty(&follower->records))
        return true;
    return MUSTER_CONTAINER_OF(follower->records.next, struct muster_params_record, node)->number >
           number;
}
