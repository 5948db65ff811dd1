/* The map's bytes, little endian: a head of 32, then 152 for each server and 24 for each shard. */
#include "params/wire/map.h"

#include <string.h>

#include "params/wire/frame.h"

#define MAP_MAGIC    0x50414d50u /* "PMAP" */
#define MAP_VERSION  2u
/* A job has no table yet: the first one waits for a map of version 2. Programs that do not know this would make it at
 * once, so they do not read this version. */
#define MAP_VERSION_UNUSED 3u
#define FLAG_LEAVING 1u
#define FLAG_UNUSED  1u /* of the head */

struct packed_head {
    uint32_t magic;
    uint32_t version;
    uint64_t epoch;
    uint32_t shard_count;
    uint32_t copies_wanted;
    uint32_t server_count;
    uint32_t flags; /* 0 in version 2 */
};

struct packed_server {
    uint8_t id[16];
    char address[MUSTER_PARAMS_ADDRESS_BYTES];
    char host_key[MUSTER_HOST_KEY_BYTES];
    uint32_t flags;
    uint32_t reserved;
};

struct packed_shard {
    uint64_t since;
    uint8_t copy_count;
    uint8_t learner_count;
    uint16_t copies[MUSTER_PARAMS_COPIES_MAX];
    uint16_t learners[MUSTER_PARAMS_LEARNERS_MAX];
};
_Static_assert(sizeof(struct packed_head) == 32, "no padding");
_Static_assert(sizeof(struct packed_server) == 152, "no padding");
_Static_assert(sizeof(struct packed_shard) == 24, "no padding");

struct muster_params_map *muster_params_map_new(struct muster_mem *mem)
{
    return muster_mem_alloc_zero(mem, 1, sizeof(struct muster_params_map));
}

bool muster_params_map_find(const struct muster_params_map *map,
                            const struct muster_incarnation *id, uint32_t *ret_place)
{
    for (uint32_t i = 0; i < map->server_count; i++) {
        if (!muster_incarnation_is_equal(&map->servers[i].id, id))
            continue;
        if (ret_place != NULL)
            *ret_place = i;
        return true;
    }
    return false;
}

static bool places_have(const uint16_t *places, uint32_t count, uint32_t place)
{
    for (uint32_t i = 0; i < count; i++) {
        if (places[i] == place)
            return true;
    }
    return false;
}

bool muster_params_map_is_copy(const struct muster_params_map *map, uint32_t shard, uint32_t place)
{
    return places_have(map->shards[shard].copies, map->shards[shard].copy_count, place);
}

bool muster_params_map_is_learner(const struct muster_params_map *map, uint32_t shard,
                                  uint32_t place)
{
    return places_have(map->shards[shard].learners, map->shards[shard].learner_count, place);
}

void muster_params_map_single(struct muster_params_map *map, const struct muster_incarnation *id,
                              uint32_t shard_count)
{
    MUSTER_ASSERT(shard_count <= MUSTER_PARAMS_SHARD_COUNT_MAX);
    memset(map, 0, sizeof(*map));
    map->epoch = 1;
    map->shard_count = shard_count;
    map->copies_wanted = 1;
    map->server_count = 1;
    map->servers[0].id = *id;
    for (uint32_t i = 0; i < shard_count; i++)
        map->shards[i] = (struct muster_params_map_shard){.copy_count = 1};
}

/* --- Checks --- */

static enum muster_rc map_refuse(struct muster_error *ret_error, const char *part)
{
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "a map of parameters is malformed: %s", part);
}

static bool text_is_valid(const char *text, size_t bytes)
{
    size_t length = strnlen(text, bytes);

    for (size_t i = 0; i < length; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    }
    return length < bytes;
}

static enum muster_rc servers_check(const struct muster_params_map *map,
                                    struct muster_error *ret_error)
{
    const struct muster_params_map_server *servers = map->servers;

    for (uint32_t i = 0; i < map->server_count; i++) {
        if (muster_incarnation_is_zero(&servers[i].id))
            return map_refuse(ret_error, "a server without an id");
        if (i > 0 &&
            memcmp(servers[i - 1].id.bytes, servers[i].id.bytes, sizeof(servers[i].id.bytes)) >= 0)
            return map_refuse(ret_error, "the order of the servers");
        if (!text_is_valid(servers[i].address, sizeof(servers[i].address)))
            return map_refuse(ret_error, "the address of a server");
        if (!text_is_valid(servers[i].host_key, sizeof(servers[i].host_key)))
            return map_refuse(ret_error, "the host key of a server");
    }
    return MUSTER_OK;
}

static bool shard_is_valid(const struct muster_params_map *map,
                           const struct muster_params_map_shard *shard)
{
    uint16_t places[MUSTER_PARAMS_COPIES_MAX + MUSTER_PARAMS_LEARNERS_MAX];
    uint32_t count = 0;

    if (shard->since > map->epoch || shard->copy_count > MUSTER_PARAMS_COPIES_MAX ||
        shard->learner_count > MUSTER_PARAMS_LEARNERS_MAX)
        return false;
    for (uint32_t i = 0; i < shard->copy_count; i++)
        places[count++] = shard->copies[i];
    for (uint32_t i = 0; i < shard->learner_count; i++)
        places[count++] = shard->learners[i];
    for (uint32_t i = 0; i < count; i++) {
        if (places[i] >= map->server_count || places_have(places, i, places[i]))
            return false;
    }
    return true;
}

enum muster_rc muster_params_map_check(const struct muster_params_map *map,
                                       struct muster_error *ret_error)
{
    if (map->epoch == 0)
        return map_refuse(ret_error, "number 0");
    if (map->shard_count == 0 || map->shard_count > MUSTER_PARAMS_SHARD_COUNT_MAX ||
        (map->shard_count & (map->shard_count - 1)) != 0)
        return map_refuse(ret_error, "the number of shards");
    if (map->copies_wanted == 0 || map->copies_wanted > MUSTER_PARAMS_COPIES_MAX)
        return map_refuse(ret_error, "the number of replicas");
    if (map->server_count > MUSTER_PARAMS_SERVERS_MAX)
        return map_refuse(ret_error, "the number of servers");
    for (uint32_t i = 0; i < map->shard_count; i++) {
        if (!shard_is_valid(map, &map->shards[i]))
            return map_refuse(ret_error, "the servers of a shard");
    }
    return servers_check(map, ret_error);
}

/* --- Bytes --- */

static size_t packed_bytes(uint32_t servers, uint32_t shards)
{
    return sizeof(struct packed_head) + servers * sizeof(struct packed_server) +
           shards * sizeof(struct packed_shard);
}

enum muster_rc muster_params_map_pack(const struct muster_params_map *map, struct muster_mem *mem,
                                      void **ret_bytes, size_t *ret_size)
{
    size_t size = packed_bytes(map->server_count, map->shard_count);
    uint8_t *bytes = muster_mem_alloc_zero(mem, 1, size), *at = bytes;
    struct packed_head head = {.magic = MAP_MAGIC,
                               .version = map->is_unused ? MAP_VERSION_UNUSED : MAP_VERSION,
                               .epoch = map->epoch,
                               .shard_count = map->shard_count,
                               .copies_wanted = map->copies_wanted,
                               .server_count = map->server_count,
                               .flags = map->is_unused ? FLAG_UNUSED : 0};

    if (bytes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    for (uint32_t i = 0; i < map->server_count; i++, at += sizeof(struct packed_server)) {
        const struct muster_params_map_server *server = &map->servers[i];
        struct packed_server packed = {.flags = server->is_leaving ? FLAG_LEAVING : 0};

        memcpy(packed.id, server->id.bytes, sizeof(packed.id));
        memcpy(packed.address, server->address, strnlen(server->address, sizeof(server->address)));
        memcpy(packed.host_key, server->host_key,
               strnlen(server->host_key, sizeof(server->host_key)));
        memcpy(at, &packed, sizeof(packed));
    }
    for (uint32_t i = 0; i < map->shard_count; i++, at += sizeof(struct packed_shard)) {
        const struct muster_params_map_shard *shard = &map->shards[i];
        struct packed_shard packed = {.since = shard->since,
                                      .copy_count = shard->copy_count,
                                      .learner_count = shard->learner_count};

        memcpy(packed.copies, shard->copies, shard->copy_count * sizeof(packed.copies[0]));
        memcpy(packed.learners, shard->learners, shard->learner_count * sizeof(packed.learners[0]));
        memcpy(at, &packed, sizeof(packed));
    }
    *ret_bytes = bytes;
    *ret_size = size;
    return MUSTER_OK;
}

static enum muster_rc head_read(const uint8_t *bytes, size_t size, struct packed_head *ret_head,
                                struct muster_error *ret_error)
{
    if (size < sizeof(*ret_head))
        return map_refuse(ret_error, "its size");
    memcpy(ret_head, bytes, sizeof(*ret_head));
    if (ret_head->magic != MAP_MAGIC)
        return map_refuse(ret_error, "its first bytes");
    if (ret_head->version != MAP_VERSION && ret_head->version != MAP_VERSION_UNUSED)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a map of parameters has version %u, this program reads %u and %u",
                                ret_head->version, MAP_VERSION, MAP_VERSION_UNUSED);
    if (ret_head->server_count > MUSTER_PARAMS_SERVERS_MAX)
        return map_refuse(ret_error, "the number of servers");
    if (ret_head->shard_count > MUSTER_PARAMS_SHARD_COUNT_MAX)
        return map_refuse(ret_error, "the number of shards");
    if (size != packed_bytes(ret_head->server_count, ret_head->shard_count))
        return map_refuse(ret_error, "its size");
    return MUSTER_OK;
}

/* A text without an end stays one, for the check. */
static void text_read(char *text, const char *packed, size_t bytes)
{
    size_t length = strnlen(packed, bytes);

    memcpy(text, packed, length);
    memset(text + length, 0, bytes - length);
}

static void places_read(uint16_t *places, const uint16_t *packed, uint32_t count, uint32_t max)
{
    memcpy(places, packed, (count < max ? count : max) * sizeof(places[0]));
}

/* Bytes beyond texts and lists are left out: equal maps have equal bytes (params/map/decide.c). */
static void body_read(const uint8_t *at, struct muster_params_map *map)
{
    for (uint32_t i = 0; i < map->server_count; i++, at += sizeof(struct packed_server)) {
        struct muster_params_map_server *server = &map->servers[i];
        struct packed_server packed;

        memcpy(&packed, at, sizeof(packed));
        memcpy(server->id.bytes, packed.id, sizeof(packed.id));
        text_read(server->address, packed.address, sizeof(packed.address));
        text_read(server->host_key, packed.host_key, sizeof(packed.host_key));
        server->is_leaving = (packed.flags & FLAG_LEAVING) != 0;
    }
    for (uint32_t i = 0; i < map->shard_count; i++, at += sizeof(struct packed_shard)) {
        struct muster_params_map_shard *shard = &map->shards[i];
        struct packed_shard packed;

        memcpy(&packed, at, sizeof(packed));
        shard->since = packed.since;
        shard->copy_count = packed.copy_count;
        shard->learner_count = packed.learner_count;
        places_read(shard->copies, packed.copies, packed.copy_count, MUSTER_PARAMS_COPIES_MAX);
        places_read(shard->learners, packed.learners, packed.learner_count,
                    MUSTER_PARAMS_LEARNERS_MAX);
    }
}

enum muster_rc muster_params_map_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                        struct muster_params_map **ret_map,
                                        struct muster_error *ret_error)
{
    struct muster_params_map *map;
    struct packed_head head;
    enum muster_rc rc = head_read(bytes, size, &head, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    map = muster_params_map_new(mem);
    if (map == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a map");
    map->epoch = head.epoch;
    map->shard_count = head.shard_count;
    map->copies_wanted = head.copies_wanted;
    map->server_count = head.server_count;
    map->is_unused = (head.flags & FLAG_UNUSED) != 0;
    body_read((const uint8_t *)bytes + sizeof(head), map);
    rc = muster_params_map_check(map, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(mem, map);
        return rc;
    }
    *ret_map = map;
    return MUSTER_OK;
}
