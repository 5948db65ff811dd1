/* Pushes of a leader, and rows that come and go with them. */
#include "params/server/leaders/leader_internal.h"

#include <string.h>

#include "params/server/followers/tail.h"
#include "params/server/leaders/copied.h"
#include "params/server/leaders/full.h"
#include "params/server/state/rows.h"
#include "params/store/index.h"
#include "params/store/load.h"

static uint32_t table_width(const void *data, uint32_t number)
{
    const struct muster_params_store_table *table = muster_params_leader_table_at(data, number);

    return table != NULL ? table->row_elements : 0;
}

bool muster_params_leader_full(struct muster_params_leader *leader, uint32_t shard)
{
    const struct muster_frame_header header = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_COPY_FULL,
                                               .epoch = leader->server->map->epoch,
                                               .phase = shard};

    if (muster_params_bit_is_set(leader->stale, shard))
        return true;
    muster_params_bit_set(leader->stale, shard);
    muster_params_shard_lacks(leader->server->region, shard);
    muster_params_full_begin(leader->server);
    return muster_peer_link_send_copy(leader->link, &header, NULL) == MUSTER_OK;
}

/* A message may be the first one of a link that has lost what was told over the one before. */
bool muster_params_leader_is_taken(void *data, uint32_t shard)
{
    struct muster_params_leader *leader = data;
    const uint8_t *lacking = leader->server->region->head->lacking;

    if (muster_params_leader_leads(leader, shard) && muster_params_bit_is_set(lacking, shard))
        (void)muster_params_leader_full(leader, shard); /* a link that is down says so next */
    return muster_params_leader_leads(leader, shard) &&
           !muster_params_bit_is_set(leader->stale, shard);
}

/* One of two copies that is left has nobody to tell. With two replicas there is a third holder while the shard moves:
 * the primary may leave the map, and the copy and the learner that it leaves behind may differ. */
static bool shard_has_tail(const struct muster_params_server *server, uint32_t shard)
{
    const struct muster_params_map_shard *entry = &server->map->shards[shard];

    return server->map->copies_wanted > 2 || entry->copy_count + entry->learner_count > 2;
}

static bool push_has_tail(const struct muster_params_server *server,
                          const struct muster_params_push *push)
{
    for (uint32_t i = 0; i < push->run_count; i++) {
        if (shard_has_tail(server, muster_params_run_shard(&push->runs[i])))
            return true;
    }
    return false;
}

static struct muster_params_tail_origin origin_of(const struct muster_params_leader *leader,
                                                  const struct muster_frame_header *header)
{
    return (struct muster_params_tail_origin){
        .leader = leader->id, .number = header->op.step, .epoch = header->epoch};
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
                is_told =
                    muster_params_leader_full(leader, muster_params_run_shard(&push->runs[i])) &&
                    is_told;
        }
    }
    return is_told;
}

bool muster_params_leader_push(struct muster_params_leader *leader,
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
    push = (struct muster_params_push){.table = muster_params_leader_table_at(leader, frame.table),
                                       .source = muster_params_leader_source_at(leader, frame.slot),
                                       .sequence = header->offset,
                                       .clock = (uint32_t)frame.clock,
                                       .runs = frame.runs,
                                       .run_count = frame.run_count,
                                       .keys = frame.keys,
                                       .values = frame.values,
                                       .dtype = (enum muster_dtype)frame.dtype,
                                       .row_count = frame.row_count,
                                       .is_refused =
                                           (header->flags & MUSTER_PARAMS_COPY_IS_REFUSED) != 0,
                                       .is_told = (header->flags & MUSTER_PARAMS_COPY_IS_TOLD) != 0,
                                       .is_copy = true};
    if (push.source == NULL || header->descriptor != push.table->descriptor || push.sequence == 0 ||
        push.sequence > MUSTER_PARAMS_SEQUENCE_MAX ||
        (!push.is_refused && /* it may be refused for its keys */
         !muster_params_keys_belong(&push, server->region->head->shard_count)))
        return false;
    push.slot = leader->slots[frame.slot];
    muster_params_runs_filter(&push, payload, muster_params_leader_is_taken, leader);
    if (push.run_count == 0)
        return true;
    if (muster_params_push_apply(server, &push, &pushed) != MUSTER_OK)
        return false;
    if (pushed.refused > 0 && !push_full(leader, &push))
        return false;
    if (!push_has_tail(server, &push)) {
        muster_params_tail_tidy(server);
        return true;
    }
    origin = origin_of(leader, header);
    leader->is_kept =
        muster_params_tail_push(server, &origin, &push, payload, header->payload_bytes);
    return leader->is_kept; /* without memory it comes again */
}

bool muster_params_leader_turnover(struct muster_params_leader *leader,
                                   const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    struct muster_params_store_table *table = muster_params_leader_table_at(leader, header->chunk);
    struct muster_params_source *source = muster_params_leader_source_at(leader, header->phase);
    struct muster_params_tail_origin origin;
    struct muster_params_turned turned;
    struct muster_params_push push;
    bool has_tail = false;

    if (table == NULL || source == NULL || header->descriptor != table->descriptor ||
        header->offset == 0 || header->offset > MUSTER_PARAMS_SEQUENCE_MAX ||
        header->payload_bytes % sizeof(turned) != 0)
        return false;
    server->has_digests = false; /* the push after it may be refused, under another map */
    for (uint32_t at = 0; at < header->payload_bytes; at += sizeof(turned)) {
        memcpy(&turned, payload + at, sizeof(turned));
        if (!muster_params_turned_is_sound(server, table, &turned))
            return false;
        if (!muster_params_leader_is_taken(leader, turned.shard))
            turned.shard = UINT32_MAX; /* the tail has nothing of it */
        else if (!muster_params_turnover_follow(server->region, table, source, header->offset,
                                                &turned) &&
                 !muster_params_leader_full(leader, turned.shard))
            return false;
        has_tail = has_tail || (turned.shard != UINT32_MAX && shard_has_tail(server, turned.shard));
        memcpy(payload + at, &turned, sizeof(turned));
    }
    if (!has_tail)
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
