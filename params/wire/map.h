/* The map: which servers there are, and which of them hold which shards. An immutable value; a change
 * is a new map with the next epoch. Its packed form is the value of the registry's key
 * /muster/<job>/params/map, and travels to clients (docs/protocol.md, "Parameters"). */
#ifndef MUSTER_PARAMS_MAP_H
#define MUSTER_PARAMS_MAP_H

#include <muster/env.h>
#include <muster/incarnation.h>
#include <muster/mem.h>
#include <muster/params.h>
#include <muster/status.h>

#define MUSTER_PARAMS_SERVERS_MAX   64u
#define MUSTER_PARAMS_COPIES_MAX    5u /* servers that hold a shard */
#define MUSTER_PARAMS_LEARNERS_MAX  2u
#define MUSTER_PARAMS_ADDRESS_BYTES 64u
#define MUSTER_PARAMS_MAP_BYTES_MAX (256u << 10)

struct muster_params_map_server {
    struct muster_incarnation id; /* of the memory: a new process in the same seat has the same */
    /* "HOST:PORT" for clients and other servers; "": the address by which one has come (a server
     * without a registry). */
    char address[MUSTER_PARAMS_ADDRESS_BYTES];
    char host_key[MUSTER_HOST_KEY_BYTES];
    bool is_leaving; /* it drains: it gets no shards, and gives away those that it has */
};

struct muster_params_map_shard {
    uint64_t since; /* epoch in which its primary became that; older messages must be routed again */
    uint8_t copy_count; /* 0: nobody has it (all that had it are lost) */
    uint8_t learner_count;
    uint16_t copies[MUSTER_PARAMS_COPIES_MAX]; /* places in servers[]; the first is the primary */
    uint16_t learners[MUSTER_PARAMS_LEARNERS_MAX]; /* they fetch it, and do not count yet */
};

struct muster_params_map {
    uint64_t epoch;         /* from 1 */
    uint32_t shard_count;   /* a power of two, 1 to MUSTER_PARAMS_SHARD_COUNT_MAX; never changes */
    uint32_t copies_wanted; /* replicas, 1 to MUSTER_PARAMS_COPIES_MAX; never changes */
    uint32_t server_count;
    bool is_unused; /* no table was ever made: nothing is lost with its servers */
    struct muster_params_map_server servers[MUSTER_PARAMS_SERVERS_MAX]; /* ids rise */
    struct muster_params_map_shard shards[MUSTER_PARAMS_SHARD_COUNT_MAX];
};

/** Zero. Gives (muster_mem_free). NULL: no memory. */
struct muster_params_map *muster_params_map_new(struct muster_mem *mem);
/** The place in servers[]; false: it is not in the map. ret_place may be NULL. */
bool muster_params_map_find(const struct muster_params_map *map,
                            const struct muster_incarnation *id, uint32_t *ret_place);
/** Whether the server at this place is a copy (the primary too) of the shard. */
bool muster_params_map_is_copy(const struct muster_params_map *map, uint32_t shard, uint32_t place);
bool muster_params_map_is_learner(const struct muster_params_map *map, uint32_t shard,
                                  uint32_t place);
/** A map of one server that has all shards: epoch 1, no address. For servers without a registry. */
void muster_params_map_single(struct muster_params_map *map, const struct muster_incarnation *id,
                              uint32_t shard_count);

/** Whether the parts go together: counts, ids that rise, places within server_count and different
 * within a shard, since at most epoch. Errors: INVALID_ARGUMENT, naming the part. */
MUSTER_MUST_CHECK enum muster_rc muster_params_map_check(const struct muster_params_map *map,
                                                         struct muster_error *ret_error);
/** Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_map_pack(const struct muster_params_map *map,
                                                        struct muster_mem *mem, void **ret_bytes,
                                                        size_t *ret_size);
/** Bytes of strangers; checked as muster_params_map_check. Gives *ret_map. Errors: INVALID_ARGUMENT,
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_map_unpack(struct muster_mem *mem, const void *bytes,
                                                          size_t size,
                                                          struct muster_params_map **ret_map,
                                                          struct muster_error *ret_error);

#endif
