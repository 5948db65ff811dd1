/* Copies of a leader's shards: they are learned, compared, and forgotten. */
#include "params/server/leaders/leader_internal.h"

#include <string.h>

#include "params/server/followers/digest.h"
#include "params/server/followers/tail.h"
#include "params/server/state/rows.h"
#include "params/store/load.h"

/* Rows of a message lie anywhere in the index: what leads to a row is prefetched so many rows before it is loaded. */
#define ROWS_AHEAD 16u

bool muster_params_leader_begin(struct muster_params_leader *leader,
                                const struct muster_frame_header *header, uint8_t *payload)
{
    (void)payload;
    if (header->phase >= leader->server->region->head->shard_count)
        return false;
    muster_params_bit_clear(leader->stale, header->phase);
    leader->server->has_digests = false;
    if (!muster_params_leader_leads(leader, header->phase))
        return true;
    muster_params_shard_forget(leader->server->region, header->phase);
    muster_params_tail_forget(leader->server, header->phase);
    return true;
}

bool muster_params_leader_positions(struct muster_params_leader *leader,
                                    const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_copied_position entry;

    if (header->phase >= leader->server->region->head->shard_count ||
        header->payload_bytes % sizeof(entry) != 0)
        return false;
    if (!muster_params_leader_leads(leader, header->phase))
        return true;
    for (uint32_t at = 0; at < header->payload_bytes; at += sizeof(entry)) {
        struct muster_params_source *source;

        memcpy(&entry, payload + at, sizeof(entry));
        source = muster_params_leader_source_at(leader, entry.slot);
        if (source == NULL)
            return false;
        muster_params_position_load(source, header->phase, entry.position);
        leader->server->has_digests = false;
    }
    return true;
}

static void row_ahead(const struct muster_params_server *server,
                      const struct muster_params_store_table *table,
                      const struct muster_frame_header *header, const uint8_t *payload, size_t at)
{
    struct muster_params_copied_row head;

    if (at >= header->payload_bytes)
        return;
    memcpy(&head, payload + at, sizeof(head));
    muster_params_row_load_ahead(server->region, table, head.key);
}

/* False: the message is malformed, or the link is down. */
static bool rows_load(struct muster_params_leader *leader, struct muster_params_store_table *table,
                      const struct muster_frame_header *header, const uint8_t *payload,
                      size_t row_bytes)
{
    struct muster_params_server *server = leader->server;
    struct muster_params_copied_row head;

    for (size_t at = 0; at < header->payload_bytes; at += row_bytes) {
        row_ahead(server, table, header, payload, at + ROWS_AHEAD * row_bytes);
        memcpy(&head, payload + at, sizeof(head));
        if (muster_params_key_shard(table, head.key, server->region->head->shard_count) !=
            header->phase)
            return false;
        if (muster_params_row_load(server->region, table, head.key, head.clock,
                                   (const float *)(const void *)(payload + at + sizeof(head))) !=
            MUSTER_OK)
            return muster_params_leader_full(leader, header->phase);
    }
    return true;
}

bool muster_params_leader_rows(struct muster_params_leader *leader,
                               const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    struct muster_params_store_table *table = muster_params_leader_table_at(leader, header->chunk);
    bool is_sound;
    size_t bytes;

    if (table == NULL || header->descriptor != table->descriptor)
        return false;
    bytes = sizeof(struct muster_params_copied_row) +
            (table->row_elements + table->state_elements) * sizeof(float);
    if (header->phase >= server->region->head->shard_count || header->payload_bytes % bytes != 0)
        return false;
    if (!muster_params_leader_is_taken(leader, header->phase))
        return true;
    server->region->rows_expected = header->offset;
    is_sound = rows_load(leader, table, header, payload, bytes);
    server->region->rows_expected = 0;
    return is_sound;
}

bool muster_params_leader_end(struct muster_params_leader *leader,
                              const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;

    (void)payload;
    if (header->phase >= server->region->head->shard_count || header->offset > UINT32_MAX)
        return false;
    if (muster_params_leader_leads(leader, header->phase))
        muster_params_removals_load(server->region, header->phase, (uint32_t)header->offset);
    server->has_digests = false;
    return true;
}

bool muster_params_leader_differs(struct muster_params_leader *leader, uint32_t shard)
{
    const struct muster_frame_header answer = {.channel = MUSTER_FRAME_PARAMS,
                                               .type = MUSTER_PARAMS_COPY_DIFFERS,
                                               .epoch = leader->server->map->epoch,
                                               .phase = shard};

    return muster_peer_link_send_copy(leader->link, &answer, NULL) == MUSTER_OK;
}

/* A copy that is asked for the first time and differs sends its tail at the end of the turn. */
bool muster_params_leader_check(struct muster_params_leader *leader,
                                const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    uint32_t shard = header->phase;
    bool is_last = header->flags == MUSTER_PARAMS_COPY_IS_LAST, is_same;

    (void)payload;
    if (shard >= server->region->head->shard_count)
        return false;
    if (!muster_params_leader_leads(leader, shard))
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
        muster_params_bit_set(leader->differs, shard);
        leader->does_differ = true;
        return true;
    }
    muster_params_bit_set(leader->stale, shard);
    return muster_params_leader_differs(leader, shard);
}

bool muster_params_leader_forget(struct muster_params_leader *leader,
                                 const struct muster_frame_header *header, uint8_t *payload)
{
    struct muster_params_server *server = leader->server;
    uint8_t shards[MUSTER_PARAMS_SHARD_COUNT_MAX / 8] = {0};

    (void)payload;
    if (muster_params_leader_source_at(leader, header->offset) == NULL)
        return false;
    for (uint32_t shard = 0; shard < server->region->head->shard_count; shard++) {
        if (muster_params_leader_leads(leader, shard))
            muster_params_bit_set(shards, shard);
    }
    muster_params_source_forget(server->region, leader->slots[header->offset], shards);
    server->has_digests = false;
    muster_params_leader_drop_slot(leader, header->offset);
    return true;
}
