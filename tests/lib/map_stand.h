/* Servers that come, die and leave, and the maps that are decided for them. */
#ifndef MUSTER_MAP_STAND_H
#define MUSTER_MAP_STAND_H

#include "params/map/decide.h"

#define MAP_STAND_SERVERS 80u

struct map_stand_server {
    struct muster_params_map_server server;
    bool is_alive, is_full;
};

struct map_stand {
    struct map_stand_server servers[MAP_STAND_SERVERS]; /* ids rise */
    uint32_t shard_count, copies_wanted, moves_max;
    struct muster_params_map *map;                                       /* NULL: none yet */
    struct muster_params_map *before;                                    /* the last but one */
    bool (*is_ready)(const void *data, uint32_t shard, uint32_t place);  /* NULL: none is */
    bool (*is_handed)(const void *data, uint32_t shard, uint32_t place); /* likewise */
    bool (*is_whole)(const void *data, uint32_t shard, uint32_t place);  /* NULL: each is */
    bool (*is_stale)(const void *data, uint32_t shard, uint32_t place);  /* NULL: none is */
    uint64_t random;
};

void map_stand_open(struct map_stand *stand, uint32_t shard_count, uint32_t copies_wanted);
void map_stand_close(struct map_stand *stand);
/** Server number i is alive, on host number i. */
void map_stand_come(struct map_stand *stand, uint32_t number);
void map_stand_come_on(struct map_stand *stand, uint32_t number, uint32_t host);
/** Decide once, check what holds for every step, and go on with the next map. False: nothing changes. */
bool map_stand_step(struct map_stand *stand);
/** Until nothing changes; all learners are ready. Returns the number of steps. */
uint32_t map_stand_settle(struct map_stand *stand);
/** Nothing is to be done: every shard with a living copy is where it belongs. */
void map_stand_check_rest(const struct map_stand *stand);
/** Fails unless the server is in the map. */
uint32_t map_stand_place(const struct map_stand *stand, uint32_t number);
uint32_t map_stand_copies(const struct map_stand *stand, uint32_t number);
uint32_t map_stand_primaries(const struct map_stand *stand, uint32_t number);
uint32_t map_stand_learners(const struct map_stand *stand, uint32_t number);
/** xorshift, below the bound. */
uint32_t map_stand_random(struct map_stand *stand, uint32_t bound);
bool map_stand_all_ready(const void *data, uint32_t shard, uint32_t place);

#endif
