/* Moves between maps: their bound, lists that are full, teachers and servers that are lost, and a walk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "careful_mem.h"
#include "map_stand.h"

#include <string.h>

#define SHARDS 64u

static void stand_with(struct map_stand *stand, uint32_t servers, uint32_t copies)
{
    map_stand_open(stand, SHARDS, copies);
    for (uint32_t i = 0; i < servers; i++)
        map_stand_come(stand, i);
    assert_true(map_stand_step(stand));
    assert_false(map_stand_step(stand));
}

static bool is_member(const struct map_stand *stand, uint32_t number)
{
    return muster_params_map_find(stand->map, &stand->servers[number].server.id, NULL);
}

static void targets_are_not_servers_that_are_lost_and_waited_for(void **state)
{
    struct map_stand stand;

    (void)state;
    stand_with(&stand, 3, 2);
    stand.servers[0].is_alive = false;
    stand.servers[1].is_alive = false;
    map_stand_settle(&stand); /* shards of 0 and 1 wait; those that 2 has go on there */
    assert_true(is_member(&stand, 0));
    map_stand_come(&stand, 4);
    map_stand_settle(&stand);

    assert_true(is_member(&stand, 0));
    assert_true(map_stand_copies(&stand, 4) > 0);
    map_stand_check_rest(&stand);
    map_stand_close(&stand);
}

static void a_copy_that_comes_back_alone_leads(void **state)
{
    struct map_stand stand;

    (void)state;
    stand_with(&stand, 2, 2);
    stand.servers[0].is_alive = false;
    stand.servers[1].is_alive = false;
    assert_false(map_stand_step(&stand));

    stand.servers[1].is_alive = true;
    map_stand_settle(&stand);

    assert_int_equal(map_stand_primaries(&stand, 1), SHARDS);
    assert_false(is_member(&stand, 0));
    map_stand_close(&stand);
}

static void a_server_that_comes_gets_its_share_and_nothing_else_moves(void **state)
{
    (void)state;
    for (uint32_t copies = 1; copies <= MUSTER_PARAMS_COPIES_MAX; copies++) {
        struct map_stand stand;
        struct muster_params_map first;
        uint32_t moved = 0;

        stand_with(&stand, 5, copies);
        first = *stand.map;
        map_stand_come(&stand, 6); /* the last place: the others keep theirs */
        map_stand_settle(&stand);

        map_stand_check_rest(&stand);
        for (uint32_t shard = 0; shard < SHARDS; shard++) {
            for (uint32_t place = 0; place < 5; place++)
                moved += muster_params_map_is_copy(&first, shard, place) &&
                         !muster_params_map_is_copy(stand.map, shard, place);
        }
        assert_int_equal(moved, map_stand_copies(&stand, 6));
        assert_in_range(moved, SHARDS * copies / 6 / 2, SHARDS * copies / 6 * 2);
        map_stand_close(&stand);
    }
}

/* A learner of a late shard counts when an early one is looked at. */
static void moves_that_go_on_count_before_new_ones_begin(void **state)
{
    struct map_stand stand;
    uint32_t steps = 0;

    (void)state;
    stand_with(&stand, 3, 1);
    stand.moves_max = 1;
    stand.servers[0].is_alive = false; /* its shards cannot move yet */
    map_stand_come(&stand, 3);
    while (map_stand_step(&stand))
        assert_in_range(++steps, 1, SHARDS);
    assert_int_equal(map_stand_learners(&stand, 3), 1);

    stand.servers[0].is_alive = true;
    map_stand_step(&stand); /* checks the bound */
    map_stand_settle(&stand);
    map_stand_check_rest(&stand);
    map_stand_close(&stand);
}

static void a_server_without_memory_keeps_its_copies_and_learns_nothing(void **state)
{
    struct map_stand stand;
    uint32_t copies;

    (void)state;
    stand_with(&stand, 3, 2);
    copies = map_stand_copies(&stand, 0);
    stand.servers[0].is_full = true;
    assert_false(map_stand_step(&stand));
    stand.servers[1].is_alive = false;
    map_stand_settle(&stand);
    assert_int_equal(map_stand_copies(&stand, 0), copies);
    map_stand_come(&stand, 4);
    map_stand_settle(&stand);
    assert_int_equal(map_stand_copies(&stand, 0) + map_stand_copies(&stand, 2) +
                         map_stand_copies(&stand, 4),
                     2 * SHARDS);

    stand.servers[0].is_full = false;
    map_stand_settle(&stand);
    map_stand_check_rest(&stand);
    map_stand_close(&stand);
}

/* It was to learn when its memory ended: another server does. */
static void a_learner_without_memory_is_given_up(void **state)
{
    struct map_stand stand;

    (void)state;
    stand_with(&stand, 3, 1);
    map_stand_come(&stand, 3);
    assert_true(map_stand_step(&stand));
    assert_true(map_stand_learners(&stand, 3) > 0);
    stand.servers[3].is_full = true;
    assert_true(map_stand_step(&stand));
    assert_int_equal(map_stand_learners(&stand, 3), 0);
    assert_false(map_stand_step(&stand));
    map_stand_close(&stand);
}

/* The shards of a server that was away have all its copies back, and others lead them. */
static void a_copy_that_is_handed_a_shard_leads_it(void **state)
{
    struct map_stand stand;
    struct muster_params_map first;
    uint32_t primaries;

    (void)state;
    stand_with(&stand, 3, 2);
    first = *stand.map;
    primaries = map_stand_primaries(&stand, 1);
    stand.servers[1].is_alive = false;
    map_stand_settle(&stand);
    map_stand_come(&stand, 1);
    map_stand_settle(&stand);
    assert_true(map_stand_primaries(&stand, 1) < primaries);

    stand.is_handed = map_stand_all_ready;
    assert_true(map_stand_step(&stand));
    assert_false(map_stand_step(&stand));
    map_stand_check_rest(&stand);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        assert_int_equal(stand.map->shards[shard].copies[0], first.shards[shard].copies[0]);
    map_stand_close(&stand);
}

static bool none_is_whole(const void *data, uint32_t shard, uint32_t place)
{
    (void)data, (void)shard, (void)place;
    return false;
}

/* Only the primary knows whether its copy differs: whoever else decides must not let the copy lead. */
static void a_living_primary_leads_until_it_knows_its_copy_to_be_whole(void **state)
{
    struct map_stand stand;
    uint32_t primaries;

    (void)state;
    stand_with(&stand, 2, 2);
    primaries = map_stand_primaries(&stand, 0);
    stand.servers[0].server.is_leaving = true;
    stand.is_whole = none_is_whole;
    map_stand_settle(&stand);
    assert_int_equal(map_stand_primaries(&stand, 0), primaries);

    stand.is_whole = map_stand_all_ready;
    map_stand_settle(&stand);
    assert_int_equal(map_stand_primaries(&stand, 1), SHARDS);
    assert_false(is_member(&stand, 0));
    map_stand_close(&stand);
}

static uint32_t stale_shard;

static bool one_is_stale(const void *data, uint32_t shard, uint32_t place)
{
    (void)data, (void)place;
    return shard == stale_shard;
}

/* Its primary goes on when it knows that the map before has not made the learner a copy. */
static void a_stale_learner_stays_one_in_a_map_with_another_number(void **state)
{
    struct map_stand stand;
    struct muster_params_map_shard before;
    uint64_t epoch;
    uint32_t place;

    (void)state;
    stand_with(&stand, 3, 1);
    map_stand_come(&stand, 3);
    assert_true(map_stand_step(&stand));
    assert_false(map_stand_step(&stand));
    place = map_stand_place(&stand, 3);
    for (stale_shard = 0; !muster_params_map_is_learner(stand.map, stale_shard, place);)
        stale_shard++;
    before = stand.map->shards[stale_shard];
    epoch = stand.map->epoch;
    stand.is_stale = one_is_stale;
    assert_true(map_stand_step(&stand));
    assert_int_equal(stand.map->epoch, epoch + 1);
    assert_memory_equal(&stand.map->shards[stale_shard], &before, sizeof(before));
    map_stand_close(&stand);
}

static uint32_t ready_shard;

static bool one_is_ready(const void *data, uint32_t shard, uint32_t place)
{
    (void)data, (void)place;
    return shard == ready_shard;
}

static void a_learner_that_is_ready_takes_the_place_of_the_surplus_copy(void **state)
{
    struct map_stand stand;
    uint32_t place;

    (void)state;
    stand_with(&stand, 3, 1);
    map_stand_come(&stand, 3);
    assert_true(map_stand_step(&stand));
    place = map_stand_place(&stand, 3);
    for (ready_shard = 0; !muster_params_map_is_learner(stand.map, ready_shard, place);)
        ready_shard++;
    stand.is_ready = one_is_ready;
    assert_true(map_stand_step(&stand));

    assert_int_equal(stand.map->shards[ready_shard].copy_count, 1);
    assert_int_equal(stand.map->shards[ready_shard].copies[0], place);
    assert_int_equal(stand.map->shards[ready_shard].since, stand.map->epoch);
    assert_int_equal(map_stand_copies(&stand, 3), 1);
    map_stand_close(&stand);
}

static void a_full_list_of_copies_gives_way_to_a_learner_that_is_ready(void **state)
{
    struct map_stand stand;

    (void)state;
    stand_with(&stand, 5, MUSTER_PARAMS_COPIES_MAX);
    map_stand_come(&stand, 7);
    map_stand_settle(&stand);
    assert_true(map_stand_copies(&stand, 7) > 0);
    map_stand_check_rest(&stand);
    map_stand_close(&stand);
}

static void a_learner_whose_server_dies_goes(void **state)
{
    struct map_stand stand;

    (void)state;
    stand_with(&stand, 3, 1);
    map_stand_come(&stand, 3);
    assert_true(map_stand_step(&stand));
    stand.servers[3].is_alive = false;
    stand.is_ready = map_stand_all_ready; /* when it dies */
    assert_true(map_stand_step(&stand));
    assert_int_equal(map_stand_copies(&stand, 3), 0);
    assert_int_equal(map_stand_learners(&stand, 3), 0);
    map_stand_settle(&stand);

    assert_false(is_member(&stand, 3));
    map_stand_check_rest(&stand);
    map_stand_close(&stand);
}

static void a_learner_without_a_teacher_goes(void **state)
{
    struct map_stand stand;
    uint32_t learners;

    (void)state;
    stand_with(&stand, 1, 1);
    map_stand_come(&stand, 1);
    assert_true(map_stand_step(&stand));
    learners = map_stand_learners(&stand, 1);
    stand.servers[0].is_alive = false;
    assert_true(map_stand_step(&stand));

    assert_int_equal(learners, 2);
    assert_int_equal(map_stand_learners(&stand, 1), 0);
    map_stand_close(&stand);
}

static void the_last_server_keeps_its_shards_though_it_leaves(void **state)
{
    struct map_stand stand;

    (void)state;
    stand_with(&stand, 1, 2);
    stand.servers[0].server.is_leaving = true;
    map_stand_settle(&stand);
    assert_int_equal(map_stand_primaries(&stand, 0), SHARDS);

    map_stand_come(&stand, 1);
    map_stand_settle(&stand);
    assert_false(is_member(&stand, 0));
    assert_int_equal(map_stand_primaries(&stand, 1), SHARDS);
    map_stand_close(&stand);
}

/* The newcomer has the lowest id. */
static void a_new_server_does_not_push_one_out_that_has_shards(void **state)
{
    struct map_stand stand;

    (void)state;
    map_stand_open(&stand, SHARDS * 16, 1);
    for (uint32_t i = 1; i <= MUSTER_PARAMS_SERVERS_MAX; i++)
        map_stand_come(&stand, i);
    assert_true(map_stand_step(&stand));
    map_stand_come(&stand, 0);

    assert_false(map_stand_step(&stand));
    assert_true(is_member(&stand, MUSTER_PARAMS_SERVERS_MAX));
    map_stand_close(&stand);
}

static void two_copies_are_on_one_host_only_where_there_is_no_other(void **state)
{
    struct map_stand stand;
    uint32_t apart = 0;

    (void)state;
    map_stand_open(&stand, SHARDS, 2);
    map_stand_come_on(&stand, 0, 0);
    map_stand_come_on(&stand, 1, 0);
    map_stand_settle(&stand);
    assert_int_equal(map_stand_copies(&stand, 0), SHARDS);
    assert_int_equal(map_stand_copies(&stand, 1), SHARDS);

    map_stand_come_on(&stand, 2, 1);
    map_stand_settle(&stand);
    assert_int_equal(map_stand_copies(&stand, 2), SHARDS);
    apart = map_stand_copies(&stand, 0) + map_stand_copies(&stand, 1);
    assert_int_equal(apart, SHARDS);
    map_stand_check_rest(&stand);
    map_stand_close(&stand);
}

static void a_new_address_of_a_server_makes_a_map(void **state)
{
    struct map_stand stand;

    (void)state;
    stand_with(&stand, 2, 1);
    strcpy(stand.servers[1].server.address, "10.9.9.9:70");
    assert_true(map_stand_step(&stand));
    assert_string_equal(stand.map->servers[1].address, "10.9.9.9:70");
    assert_int_equal(stand.map->shards[0].since, 1);
    map_stand_close(&stand);
}

/* --- A walk --- */

#define WALK_SERVERS 12u
#define WALK_STEPS   1500u

static uint32_t walk_step;

/* A third of the learners, others with each step. */
static bool some_are_ready(const void *data, uint32_t shard, uint32_t place)
{
    (void)data;
    return (shard * 7 + place * 3 + walk_step) % 3 == 0;
}

static void fate_draw(struct map_stand *stand)
{
    struct map_stand_server *server = &stand->servers[map_stand_random(stand, WALK_SERVERS)];
    uint32_t number = (uint32_t)(server - stand->servers);

    switch (map_stand_random(stand, 8)) {
    case 0:
    case 1:
        if (!server->is_alive)
            map_stand_come_on(stand, number, number / 2);
        break;
    case 2:
        server->is_alive = false;
        break;
    case 3:
        server->server.is_leaving = !server->server.is_leaving;
        break;
    default:
        break;
    }
}

static void balance_check(const struct map_stand *stand)
{
    uint32_t living = 0;

    for (uint32_t i = 0; i < WALK_SERVERS; i++)
        living += stand->servers[i].is_alive && !stand->servers[i].server.is_leaving;
    for (uint32_t i = 0; i < WALK_SERVERS; i++) {
        uint32_t share = SHARDS * stand->copies_wanted / living;

        if (stand->servers[i].is_alive && is_member(stand, i))
            assert_in_range(map_stand_copies(stand, i), share / 4, share * 4 + 1);
    }
}

/* No server decides so, but a map may be told so: nobody has the shard, and nobody else gets it. */
static void a_shard_without_copies_has_no_new_primary(void **state)
{
    struct muster_params_candidate alive = {.server = {.is_leaving = false}};
    struct muster_params_decide_input input = {.alive = &alive, .alive_count = 1};
    struct muster_params_map *next = NULL;
    struct map_stand stand;

    (void)state;
    stand_with(&stand, 2, 2);
    stand.servers[0].is_alive = false; /* it has the first place, and is gone in the second step */
    assert_true(map_stand_step(&stand));
    stand.map->shards[5].copy_count = 0;
    memset(stand.map->shards[5].copies, 0, sizeof(stand.map->shards[5].copies));
    alive.server = stand.servers[1].server;
    input.map = stand.map;
    assert_int_equal(muster_params_decide(careful_mem(), &input, &next), MUSTER_OK);

    assert_int_equal(next->server_count, 1);
    assert_int_equal(next->shards[5].copy_count, 0);
    assert_int_equal(next->shards[5].since, stand.map->shards[5].since);
    muster_mem_free(careful_mem(), next);
    map_stand_close(&stand);
}

static void a_walk_keeps_every_living_copy_and_ends_at_the_target(void **state)
{
    (void)state;
    for (uint32_t copies = 1; copies <= MUSTER_PARAMS_COPIES_MAX; copies++) {
        struct map_stand stand;

        map_stand_open(&stand, SHARDS, copies);
        stand.random += copies * 7919u;
        map_stand_come(&stand, 0);
        for (uint32_t i = 0; i < WALK_STEPS; i++) {
            walk_step = i;
            fate_draw(&stand);
            stand.is_ready = some_are_ready;
            (void)map_stand_step(&stand);
            if (i % 300 == 299) {
                map_stand_settle(&stand);
                map_stand_check_rest(&stand);
            }
        }
        for (uint32_t i = 0; i < WALK_SERVERS; i++) {
            map_stand_come_on(&stand, i, i);
            stand.servers[i].server.is_leaving = false;
        }
        map_stand_settle(&stand);
        map_stand_check_rest(&stand);
        assert_int_equal(stand.map->server_count, WALK_SERVERS);
        balance_check(&stand);
        map_stand_close(&stand);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_not_servers_that_are_lost_and_waited_for),
        cmocka_unit_test(a_copy_that_comes_back_alone_leads),
        cmocka_unit_test(a_server_that_comes_gets_its_share_and_nothing_else_moves),
        cmocka_unit_test(moves_that_go_on_count_before_new_ones_begin),
        cmocka_unit_test(a_server_without_memory_keeps_its_copies_and_learns_nothing),
        cmocka_unit_test(a_learner_without_memory_is_given_up),
        cmocka_unit_test(a_copy_that_is_handed_a_shard_leads_it),
        cmocka_unit_test(a_living_primary_leads_until_it_knows_its_copy_to_be_whole),
        cmocka_unit_test(a_stale_learner_stays_one_in_a_map_with_another_number),
        cmocka_unit_test(a_learner_that_is_ready_takes_the_place_of_the_surplus_copy),
        cmocka_unit_test(a_full_list_of_copies_gives_way_to_a_learner_that_is_ready),
        cmocka_unit_test(a_learner_whose_server_dies_goes),
        cmocka_unit_test(a_learner_without_a_teacher_goes),
        cmocka_unit_test(the_last_server_keeps_its_shards_though_it_leaves),
        cmocka_unit_test(a_new_server_does_not_push_one_out_that_has_shards),
        cmocka_unit_test(two_copies_are_on_one_host_only_where_there_is_no_other),
        cmocka_unit_test(a_new_address_of_a_server_makes_a_map),
        cmocka_unit_test(a_shard_without_copies_has_no_new_primary),
        cmocka_unit_test(a_walk_keeps_every_living_copy_and_ends_at_the_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
