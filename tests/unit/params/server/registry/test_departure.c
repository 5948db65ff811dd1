/* Which servers of the map are missed by one that drains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "test_env.h"

#include "params/server/registry/departure.h"

#define SERVERS 3u

/* Each server has one shard. */
static struct muster_params_map *map_new(struct test_env *test)
{
    struct muster_params_map *map = muster_params_map_new(test->env.mem);

    assert_non_null(map);
    map->epoch = 1;
    map->shard_count = 4;
    map->server_count = SERVERS;
    for (uint16_t i = 0; i < SERVERS; i++) {
        map->servers[i].id.bytes[0] = (uint8_t)(i + 1);
        map->shards[i].copies[0] = i;
        map->shards[i].copy_count = 1;
    }
    return map;
}

/* data: a bit for each server. */
static bool is_registered(const void *data, const struct muster_incarnation *id)
{
    return (*(const uint32_t *)data & 1u << (id->bytes[0] - 1)) != 0;
}

static void a_server_is_missed_that_has_shards_and_has_not_said_that_it_leaves(void **state)
{
    enum says { NOTHING, LEAVES, COMES_BACK };
    static const struct {
        const char *name;
        uint32_t registered;
        enum says says; /* the third one */
        bool leaves_by_map, has_nothing;
        bool is_missed;
    } rows[] = {
        {"it is registered", 7, NOTHING, false, false, false},
        {"it is dead", 3, NOTHING, false, false, true},
        {"it has left", 3, LEAVES, false, false, false},
        {"it has left by the map", 3, NOTHING, true, false, false},
        {"it has left, was back, and is dead", 3, COMES_BACK, false, false, true},
        {"it has no shards", 3, NOTHING, false, true, false},
    };
    struct test_env test;

    (void)state;
    test_env_open(&test);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_departures departures = {.count = 0};
        struct muster_params_map *map = map_new(&test);
        struct muster_params_map_server third = map->servers[2];
        const struct muster_params_map_server *missing;

        if (rows[i].says != NOTHING) {
            third.is_leaving = true;
            muster_params_departure_note(&departures, &third);
        }
        if (rows[i].says == COMES_BACK) {
            third.is_leaving = false;
            muster_params_departure_note(&departures, &third);
        }
        map->servers[2].is_leaving = rows[i].leaves_by_map;
        map->shards[2].copy_count = rows[i].has_nothing ? 0 : 1;
        missing = muster_params_departure_missing(&departures, map, is_registered,
                                                  &rows[i].registered);
        if (missing != (rows[i].is_missed ? &map->servers[2] : NULL))
            fail_msg("%s", rows[i].name);
        muster_mem_free(test.env.mem, map);
    }
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_is_missed_that_has_shards_and_has_not_said_that_it_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
