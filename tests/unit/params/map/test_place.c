/* Targets: each server has its share, and a change of servers moves only what it must. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/map/place.h"

#include <stdio.h>
#include <string.h>

#define SHARDS 1024u

static struct muster_params_map map;

/* Servers of so many hosts, the first of each host first. */
static void map_with(uint32_t servers, uint32_t hosts, uint32_t copies)
{
    memset(&map, 0, sizeof(map));
    map.epoch = 1;
    map.shard_count = SHARDS;
    map.copies_wanted = copies;
    map.server_count = servers;
    for (uint32_t i = 0; i < servers; i++) {
        map.servers[i].id.bytes[0] = (uint8_t)(i + 1);
        snprintf(map.servers[i].host_key, sizeof(map.servers[i].host_key), "host-%u", i % hosts);
    }
}

static bool has_place(const uint16_t *places, uint32_t count, uint32_t place)
{
    for (uint32_t i = 0; i < count; i++) {
        if (places[i] == place)
            return true;
    }
    return false;
}

static void every_server_is_first_for_its_share(void **state)
{
    uint32_t counts[8] = {0};
    uint16_t places[MUSTER_PARAMS_COPIES_MAX];

    (void)state;
    map_with(8, 8, 2);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        assert_int_equal(muster_params_place_targets(&map, NULL, shard, places), 2);
        counts[places[0]]++;
    }
    for (uint32_t i = 0; i < 8; i++)
        assert_in_range(counts[i], 96, 160);
}

static void targets_are_different_servers_and_at_most_all(void **state)
{
    uint16_t places[MUSTER_PARAMS_COPIES_MAX];

    (void)state;
    for (uint32_t servers = 0; servers <= 6; servers++) {
        map_with(servers, 6, 4);
        for (uint32_t shard = 0; shard < 64; shard++) {
            uint32_t count = muster_params_place_targets(&map, NULL, shard, places);

            assert_int_equal(count, servers < 4 ? servers : 4);
            for (uint32_t i = 0; i < count; i++)
                assert_false(has_place(places, i, places[i]));
        }
    }
}

static void a_server_without_its_turn_changes_nothing_for_the_others(void **state)
{
    static const enum { LEAVES, LOST } rows[] = {LEAVES, LOST};

    (void)state;
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        uint16_t before[MUSTER_PARAMS_COPIES_MAX], after[MUSTER_PARAMS_COPIES_MAX];
        bool alive[6] = {true, true, true, true, true, true};

        for (uint32_t shard = 0; shard < SHARDS; shard++) {
            map_with(6, 6, 3);
            (void)muster_params_place_targets(&map, NULL, shard, before);
            map.servers[4].is_leaving = rows[row] == LEAVES;
            alive[4] = rows[row] != LOST;
            assert_int_equal(muster_params_place_targets(&map, alive, shard, after), 3);

            assert_false(has_place(after, 3, 4));
            for (uint32_t i = 0; i < 3; i++)
                assert_true(before[i] == 4 || has_place(after, 3, before[i]));
        }
    }
}

static void hosts_differ_while_there_are_hosts(void **state)
{
    uint16_t places[MUSTER_PARAMS_COPIES_MAX];

    (void)state;
    map_with(6, 2, 3);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        assert_int_equal(muster_params_place_targets(&map, NULL, shard, places), 3);
        assert_int_not_equal(places[0] % 2, places[1] % 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_server_is_first_for_its_share),
        cmocka_unit_test(targets_are_different_servers_and_at_most_all),
        cmocka_unit_test(a_server_without_its_turn_changes_nothing_for_the_others),
        cmocka_unit_test(hosts_differ_while_there_are_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
