/* Copies of shards at rest: servers that hold one have the same rows, and the same positions of sources. */
#include <inttypes.h>
#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/store/row.h"
#include "params/store/source.h"
#include "tests/sim/params_stage.h"
#include "tests/sim/sim_internal.h"

/* A shard as one server has it: the rows, and how much of each source is in them. */
struct copy {
    const struct muster_params_region *region;
    uint32_t shard;
    struct muster_params_digest digest;
};

static void row_add(void *data, const struct muster_params_store_table *table,
                    const struct muster_params_row *row)
{
    struct copy *copy = data;

    for (uint32_t i = 0; i < table->row_elements; i++) {
        if (row->values[i] != 0) { /* else it may be there, or not be there yet */
            muster_params_digest_add(&copy->digest, table, row);
            return;
        }
    }
}

static void copy_read(struct copy *copy)
{
    const struct muster_params_region_head *head = copy->region->head;

    for (uint32_t i = 0; i < head->table_count; i++)
        muster_params_rows_visit(copy->region, &head->tables[i], copy->shard, row_add, copy);
}

static uint64_t position_of(const struct copy *copy, const struct muster_incarnation *source)
{
    uint64_t slot;
    const struct muster_params_source *found =
        muster_params_source_find(copy->region, source, &slot);

    return found != NULL ? found->positions[copy->shard] : 0;
}

static void positions_compare(struct params_stage *stage, const struct copy *a,
                              const struct copy *b)
{
    for (uint64_t slot = 0; slot < a->region->head->source_count; slot++) {
        const struct muster_params_source *source = muster_params_source_at(a->region, slot);
        uint64_t one, other;

        if (source == NULL)
            continue;
        one = source->positions[a->shard];
        other = position_of(b, &source->id);
        if (one == other)
            continue;
        sim_fail(stage->world,
                 "two copies of shard %" PRIu32 " differ about pushes of source %" PRIu64
                 ": %" PRIx64 " and %" PRIx64,
                 a->shard, slot, one, other);
    }
}

static const struct muster_params_region *region_at(const struct params_stage *stage,
                                                    uint32_t place)
{
    for (uint32_t i = 0; i < stage->server_count; i++) {
        const struct muster_params_server *program = params_server_program(&stage->servers[i]);

        if (program != NULL && program->place == place)
            return program->region;
    }
    return NULL;
}

static void shard_compare(struct params_stage *stage, const struct muster_params_map *map,
                          uint32_t shard)
{
    struct copy first = {.region = region_at(stage, map->shards[shard].copies[0]), .shard = shard};

    copy_read(&first);
    for (uint32_t i = 1; i < map->shards[shard].copy_count; i++) {
        struct copy other = {.region = region_at(stage, map->shards[shard].copies[i]),
                             .shard = shard};

        copy_read(&other);
        if (memcmp(&first.digest, &other.digest, sizeof(first.digest)) != 0)
            sim_fail(stage->world, "two copies of shard %" PRIu32 " have different rows", shard);
        positions_compare(stage, &first, &other);
        positions_compare(stage, &other, &first);
    }
}

void params_stage_compare(struct params_stage *stage)
{
    const struct muster_params_map *map = params_stage_map(stage);

    for (uint32_t shard = 0; shard < map->shard_count && sim_failure(stage->world) == NULL; shard++)
        shard_compare(stage, map, shard);
}
