/* A leader as this server knows it: the shards that it leads, and the names that it gives to sources and tables. */
#include "params/server/leaders/leader_internal.h"

#include "params/server/state/absent.h"
#include "params/server/state/clock.h"
#include "params/server/state/rows.h"
#include "params/wire/hash.h"

bool muster_params_leader_leads(const struct muster_params_leader *leader, uint32_t shard)
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

void muster_params_leader_drop_slot(struct muster_params_leader *leader, uint64_t slot)
{
    if (leader->slots[slot] != MUSTER_PARAMS_SLOT_UNKNOWN)
        (void)muster_params_server_clock_refer(leader->server, leader->slots[slot], false);
    leader->slots[slot] = MUSTER_PARAMS_SLOT_UNKNOWN;
}

/* Another server that leads the home speaks of the home shard first (COPY_CHECK, COPY_BEGIN), and
 * that has waited for its map. So a server that leads the home again has heard of all generations
 * that others have given meanwhile, and its own ones that are void have given way. */
static bool home_is_led(const struct muster_params_leader *leader,
                        const struct muster_incarnation *source)
{
    return muster_params_leader_leads(
        leader, muster_params_source_home(source, leader->server->region->head->shard_count));
}

bool muster_params_leader_source(struct muster_params_leader *leader,
                                 const struct muster_frame_header *header, uint8_t *payload)
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
            slots[i] = MUSTER_PARAMS_SLOT_UNKNOWN;
        leader->slots = slots;
        leader->slot_count = count;
    }
    opener = (struct muster_params_opener){.id = source.open.source,
                                           .generation = source.open.generation,
                                           .process = source.open.process,
                                           .home_is_elsewhere = home_is_led(leader, &source.open.source),
                                           .is_named =
                                               (header->flags & MUSTER_PARAMS_COPY_IS_NAMED) != 0};
    if (muster_params_source_learn(server->region, &opener, &slot) != MUSTER_OK ||
        !muster_params_server_clock_refer(server, slot, true))
        return false;
    muster_params_source_confirm(server->region, slot, header->phase);
    muster_params_leader_drop_slot(leader, header->offset);
    leader->slots[header->offset] = slot;
    if ((header->flags & MUSTER_PARAMS_COPY_IS_LINKED) != 0)
        muster_params_absent_learn(server, slot);
    muster_params_server_clock_learn(server, slot, header->descriptor, &source);
    return true;
}

bool muster_params_leader_table(struct muster_params_leader *leader,
                                const struct muster_frame_header *header, uint8_t *payload)
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

struct muster_params_store_table *muster_params_leader_table_at(
    const struct muster_params_leader *leader, uint32_t number)
{
    return number < leader->table_count
               ? muster_params_server_table(leader->server, leader->tables[number])
               : NULL;
}

struct muster_params_source *muster_params_leader_source_at(
    const struct muster_params_leader *leader, uint64_t slot)
{
    return slot < leader->slot_count && leader->slots[slot] != MUSTER_PARAMS_SLOT_UNKNOWN
               ? muster_params_source_at(leader->server->region, leader->slots[slot])
               : NULL;
}
