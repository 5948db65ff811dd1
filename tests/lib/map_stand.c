#include "map_stand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "careful_mem.h"
#include "params/map/place.h"

#include <stdio.h>
#include <string.h>

#define STEPS_MAX 10000u

void map_stand_open(struct map_stand *stand, uint32_t shard_count, uint32_t copies_wanted)
{
    memset(stand, 0, sizeof(*stand));
    stand->shard_count = shard_count;
    stand->copies_wanted = copies_wanted;
    stand->random = 88172645463325252u;
    for (uint32_t i = 0; i < MAP_STAND_SERVERS; i++) {
        struct muster_params_map_server *server = &stand->servers[i].server;

        /* The places of ids say nothing about their hashes. */
        server->id.bytes[0] = (uint8_t)(i + 1);
        server->id.bytes[15] = (uint8_t)(i * 37);
        snprintf(server->address, sizeof(server->address), "10.0.0.%u:70", i);
        snprintf(server->host_key, sizeof(server->host_key), "host-%u", i);
    }
}

void map_stand_close(struct map_stand *stand)
{
    muster_mem_free(careful_mem(), stand->map);
    muster_mem_free(careful_mem(), stand->before);
}

uint32_t map_stand_random(struct map_stand *stand, uint32_t bound)
{
    stand->random ^= stand->random << 13;
    stand->random ^= stand->random >> 7;
    stand->random ^= stand->random << 17;
    return (uint32_t)((stand->random >> 11) % bound);
}

bool map_stand_all_ready(const void *data, uint32_t shard, uint32_t place)
{
    (void)data, (void)shard, (void)place;
    return true;
}

void map_stand_come(struct map_stand *stand, uint32_t number)
{
    map_stand_come_on(stand, number, number);
}

void map_stand_come_on(struct map_stand *stand, uint32_t number, uint32_t host)
{
    struct muster_params_map_server *server = &stand->servers[number].server;

    memset(server->host_key, 0, sizeof(server->host_key));
    snprintf(server->host_key, sizeof(server->host_key), "host-%u", host);
    stand->servers[number].is_alive = true;
}

/* --- A step --- */

static bool is_alive(const struct map_stand *stand, const struct muster_params_map *map,
                     uint32_t place)
{
    return stand->servers[map->servers[place].id.bytes[0] - 1].is_alive;
}

static bool has_living_copy(const struct map_stand *stand, const struct muster_params_map *map,
                            uint32_t shard)
{
    for (uint32_t i = 0; i < map->shards[shard].copy_count; i++) {
        if (is_alive(stand, map, map->shards[shard].copies[i]))
            return true;
    }
    return false;
}

/* A copy has been one, or was a learner that is ready. */
static void copies_check(const struct map_stand *stand, uint32_t shard)
{
    const struct muster_params_map *next = stand->map, *before = stand->before;

    for (uint32_t i = 0; i < next->shards[shard].copy_count; i++) {
        const struct muster_incarnation *id = &next->servers[next->shards[shard].copies[i]].id;
        uint32_t place;

        assert_true(muster_params_map_find(before, id, &place));
        assert_true(muster_params_map_is_copy(before, shard, place) ||
                    (muster_params_map_is_learner(before, shard, place) &&
                     stand->is_ready != NULL && stand->is_ready(stand, shard, place)));
    }
}

/* Without a living copy all that had it are waited for. */
static void waiting_check(const struct map_stand *stand, uint32_t shard)
{
    const struct muster_params_map *next = stand->map, *before = stand->before;

    for (uint32_t i = 0; i < before->shards[shard].copy_count; i++) {
        uint32_t place;

        assert_true(muster_params_map_find(
            next, &before->servers[before->shards[shard].copies[i]].id, &place));
        assert_true(muster_params_map_is_copy(next, shard, place));
    }
}

static void since_check(const struct map_stand *stand, uint32_t shard)
{
    const struct muster_params_map *next = stand->map, *before = stand->before;
    bool is_same =
        muster_incarnation_is_equal(&next->servers[next->shards[shard].copies[0]].id,
                                    &before->servers[before->shards[shard].copies[0]].id);

    assert_int_equal(next->shards[shard].since,
                     is_same ? before->shards[shard].since : next->epoch);
}

static void learners_check(const struct map_stand *stand)
{
    const struct muster_params_map *map = stand->map;
    uint32_t counts[MUSTER_PARAMS_SERVERS_MAX] = {0};

    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        for (uint32_t i = 0; i < map->shards[shard].learner_count; i++) {
            uint32_t place = map->shards[shard].learners[i];

            counts[place]++;
            assert_true(is_alive(stand, map, place));
            assert_false(map->servers[place].is_leaving);
            assert_false(stand->servers[map->servers[place].id.bytes[0] - 1].is_full);
        }
    }
    for (uint32_t i = 0; i < map->server_count; i++)
        assert_in_range(counts[i], 0, stand->moves_max != 0 ? stand->moves_max : 2);
}

static void step_check(const struct map_stand *stand)
{
    struct muster_error error;

    fail_if(muster_params_map_check(stand->map, &error) != MUSTER_OK, "%s", error.text);
    learners_check(stand);
    if (stand->before == NULL)
        return;
    assert_int_equal(stand->map->epoch, stand->before->epoch + 1);
    for (uint32_t shard = 0; shard < stand->shard_count; shard++) {
        assert_true(stand->map->shards[shard].copy_count > 0);
        copies_check(stand, shard);
        since_check(stand, shard);
        if (has_living_copy(stand, stand->before, shard))
            assert_true(has_living_copy(stand, stand->map, shard));
        else if (!has_living_copy(stand, stand->map, shard))
            waiting_check(stand, shard);
    }
}

bool map_stand_step(struct map_stand *stand)
{
    struct muster_params_candidate alive[MAP_STAND_SERVERS];
    struct muster_params_map *next = NULL, *again = NULL;
    struct muster_params_decide_input input = {.map = stand->map,
                                               .alive = alive,
                                               .shard_count = stand->shard_count,
                                               .copies_wanted = stand->copies_wanted,
                                               .is_ready = stand->is_ready,
                                               .is_handed = stand->is_handed,
                                               .is_whole = stand->is_whole,
                                               .is_stale = stand->is_stale,
                                               .data = stand,
                                               .moves_max = stand->moves_max};

    for (uint32_t i = 0; i < MAP_STAND_SERVERS; i++) {
        if (stand->servers[i].is_alive)
            alive[input.alive_count++] = (struct muster_params_candidate){
                .server = stand->servers[i].server, .is_full = stand->servers[i].is_full};
    }
    assert_int_equal(muster_params_decide(careful_mem(), &input, &next), MUSTER_OK);
    assert_int_equal(muster_params_decide(careful_mem(), &input, &again), MUSTER_OK);
    assert_int_equal(next == NULL, again == NULL);
    if (next == NULL)
        return false;
    assert_memory_equal(next, again, sizeof(*next));
    muster_mem_free(careful_mem(), again);
    muster_mem_free(careful_mem(), stand->before);
    stand->before = stand->map;
    stand->map = next;
    step_check(stand);
    return true;
}

uint32_t map_stand_settle(struct map_stand *stand)
{
    uint32_t steps = 0;

    stand->is_ready = map_stand_all_ready;
    while (map_stand_step(stand))
        assert_in_range(++steps, 1, STEPS_MAX);
    return steps;
}

/* --- At rest --- */

static void hosts_check(const struct muster_params_map *map,
                        const struct muster_params_map_shard *shard, bool is_crowded)
{
    for (uint32_t i = 0; i < shard->copy_count; i++) {
        for (uint32_t j = 0; j < i && !is_crowded; j++)
            assert_string_not_equal(map->servers[shard->copies[i]].host_key,
                                    map->servers[shard->copies[j]].host_key);
    }
}

void map_stand_check_rest(const struct map_stand *stand)
{
    const struct muster_params_map *map = stand->map;
    bool alive[MUSTER_PARAMS_SERVERS_MAX];
    uint32_t hosts = 0;

    for (uint32_t i = 0; i < map->server_count; i++) {
        bool is_new = true;

        alive[i] = is_alive(stand, map, i);
        for (uint32_t j = 0; j < i; j++)
            is_new = is_new && !(alive[j] && !map->servers[j].is_leaving &&
                                 strcmp(map->servers[i].host_key, map->servers[j].host_key) == 0);
        hosts += alive[i] && !map->servers[i].is_leaving && is_new;
    }
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        uint16_t targets[MUSTER_PARAMS_COPIES_MAX];
        uint32_t count = muster_params_place_targets(map, alive, shard, targets);

        assert_int_equal(map->shards[shard].learner_count, 0);
        if (!has_living_copy(stand, map, shard) || count == 0)
            continue;
        assert_int_equal(map->shards[shard].copy_count, count);
        for (uint32_t i = 0; i < count; i++)
            assert_true(muster_params_map_is_copy(map, shard, targets[i]));
        hosts_check(map, &map->shards[shard], hosts < count);
    }
}

/* --- Looks --- */

uint32_t map_stand_place(const struct map_stand *stand, uint32_t number)
{
    uint32_t place = 0;

    assert_true(muster_params_map_find(stand->map, &stand->servers[number].server.id, &place));
    return place;
}

uint32_t map_stand_copies(const struct map_stand *stand, uint32_t number)
{
    uint32_t place = map_stand_place(stand, number), count = 0;

    for (uint32_t shard = 0; shard < stand->shard_count; shard++)
        count += muster_params_map_is_copy(stand->map, shard, place);
    return count;
}

uint32_t map_stand_primaries(const struct map_stand *stand, uint32_t number)
{
    uint32_t place = map_stand_place(stand, number), count = 0;

    for (uint32_t shard = 0; shard < stand->shard_count; shard++)
        count += stand->map->shards[shard].copies[0] == place;
    return count;
}

uint32_t map_stand_learners(const struct map_stand *stand, uint32_t number)
{
    uint32_t place = map_stand_place(stand, number), count = 0;

    for (uint32_t shard = 0; shard < stand->shard_count; shard++)
        count += muster_params_map_is_learner(stand->map, shard, place);
    return count;
}
