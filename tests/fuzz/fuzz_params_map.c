/* The map of servers and shards. What was read must survive the way out. */
#include <stdlib.h>
#include <string.h>

#include "params/wire/map.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Servers and clients rely on these. */
static void check_places(const struct muster_params_map *map)
{
    for (uint32_t i = 0; i < map->shard_count; i++) {
        const struct muster_params_map_shard *shard = &map->shards[i];

        for (uint32_t j = 0; j < shard->copy_count; j++) {
            if (shard->copies[j] >= map->server_count)
                abort();
        }
        for (uint32_t j = 0; j < shard->learner_count; j++) {
            if (shard->learners[j] >= map->server_count ||
                muster_params_map_is_copy(map, i, shard->learners[j]))
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_params_map *map, *again;
    void *packed;
    size_t packed_size;

    if (muster_params_map_unpack(muster_mem_system(), bytes, size, &map, NULL) != MUSTER_OK)
        return 0;
    check_places(map);
    if (muster_params_map_pack(map, muster_mem_system(), &packed, &packed_size) != MUSTER_OK ||
        packed_size != size ||
        muster_params_map_unpack(muster_mem_system(), packed, packed_size, &again, NULL) !=
            MUSTER_OK ||
        memcmp(map, again, sizeof(*map)) != 0)
        abort();
    free(packed);
    free(map);
    free(again);
    return 0;
}
