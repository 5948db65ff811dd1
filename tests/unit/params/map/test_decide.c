/* Steps from map to map: who gets which shards when servers come, die and leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params/map/decide.h"
#include "params/map/place.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS  64u
#define STEPS   200u /* more than any change takes */
#define SEEDS   40u
#define SERVERS 8u
#define EVENTS  60u

/* --- Servers and their memory --- */

/* A server holds what it has: the oracle for copies. Memory goes with its server's death. */
struct world {
    struct test_env test;
    struct muster_params_map *map;
    bool is_alive[SERVERS], is_leaving[SERVERS];
    uint8_t lives[SERVERS]; /* a memory that was lost comes back under another id */
    bool has[SERVERS][SHARDS];
    uint32_t replicas, hosts;
    uint64_t seed;
    bool are_learners_ready;
    bool is_unused; /* no table was made */
};

static struct muster_incarnation id_of(const struct world *world, uint32_t server)
{
    struct muster_incarnation id = {{0}};

    id.bytes[0] = (uint8_t)(server * 37 % 251);
    id.bytes[1] = world->lives[server];
    id.bytes[15] = (uint8_t)(server + 1);
    return id;
}

static uint32_t server_of(const struct muster_params_map *map, uint32_t place)
{
    return map->servers[place].id.bytes[15] - 1u;
}

/* The process and the memory that the map means. */
static bool is_living(const struct world *world, const struct muster_params_map *map,
                      uint32_t place)
{
    uint32_t server = server_of(map, place);
    const struct muster_incarnation id = id_of(world, server);

    return world->is_alive[server] && muster_incarnation_is_equal(&map->servers[place].id, &id);
}

static bool place_has(const struct world *world, const struct muster_params_map *map,
                      uint32_t place, uint32_t shard)
{
    uint32_t server = server_of(map, place);
    const struct muster_incarnation id = id_of(world, server);

    return muster_incarnation_is_equal(&map->servers[place].id, &id) && world->has[server][shard];
}

static struct muster_params_candidate candidate_of(const struct world *world, uint32_t server)
{
    struct muster_params_candidate candidate = {
        .server = {.id = id_of(world, server), .is_leaving = world->is_leaving[server]}};

    snprintf(candidate.server.address, sizeof(candidate.server.address), "127.0.0.1:%u",
             7000 + server);
    snprintf(candidate.server.host_key, sizeof(candidate.server.host_key), "host%u",
             server % world->hosts);
    return candidate;
}

static bool is_ready(const void *data, uint32_t shard, uint32_t place)
{
    const struct world *world = data;

    return world->are_learners_ready && place_has(world, world->map, place, shard);
}

static int candidate_compare(const void *a, const void *b)
{
    const struct muster_params_candidate *left = a, *right = b;

    return memcmp(left->server.id.bytes, right->server.id.bytes, sizeof(left->server.id.bytes));
}

static void world_open(struct world *world, uint32_t replicas, uint32_t hosts)
{
    memset(world, 0, sizeof(*world));
    test_env_open(&world->test);
    world->replicas = replicas;
    world->hosts = hosts;
    world->are_learners_ready = true;
    world->seed = 1;
}

static void world_close(struct world *world)
{
    muster_mem_free(world->test.env.mem, world->map);
    test_env_close(&world->test);
}

/* --- What must always be so --- */

static void map_check(const struct world *world, const struct muster_params_map *before,
                      const struct muster_params_map *next)
{
    struct muster_error error;

    if (muster_params_map_check(next, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    assert_int_equal(next->epoch, before != NULL ? before->epoch + 1 : 1);
    for (uint32_t shard = 0; before != NULL && shard < SHARDS; shard++) {
        const struct muster_params_map_shard *now = &next->shards[shard];
        const struct muster_params_map_shard *then = &before->shards[shard];
        bool had_living = false, has_living = false, is_same;

        for (uint32_t i = 0; i < then->copy_count; i++)
            had_living = had_living || is_living(world, before, then->copies[i]);
        for (uint32_t i = 0; i < now->copy_count; i++) {
            has_living = has_living || is_living(world, next, now->copies[i]);
            assert_true(!is_living(world, next, now->copies[i]) ||
                        place_has(world, next, now->copies[i], shard)); /* a copy has everything */
        }
        assert_true(now->copy_count > 0);
        assert_true(has_living || !had_living);
        is_same = muster_incarnation_is_equal(&next->servers[now->copies[0]].id,
                                              &before->servers[then->copies[0]].id);
        assert_int_equal(now->since, is_same ? then->since : next->epoch);
    }
}

/* Servers do what the map says: learners fetch from a living primary, copies keep, others forget. */
static void map_obey(struct world *world)
{
    const struct muster_params_map *map = world->map;

    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        const struct muster_params_map_shard *entry = &map->shards[shard];

        for (uint32_t server = 0; server < SERVERS; server++) {
            const struct muster_incarnation id = id_of(world, server);
            uint32_t place = 0;
            bool is_in = muster_params_map_find(map, &id, &place);

            if (is_in && muster_params_map_is_learner(map, shard, place))
                world->has[server][shard] =
                    world->is_alive[server] && is_living(world, map, entry->copies[0]);
            else if (!is_in || !muster_params_map_is_copy(map, shard, place))
                world->has[server][shard] = false;
        }
    }
}

/* False: nothing changes. */
static bool world_step(struct world *world)
{
    struct muster_params_candidate alive[SERVERS];
    struct muster_params_decide_input input = {.map = world->map,
                                               .alive = alive,
                                               .shard_count = SHARDS,
                                               .copies_wanted = world->replicas,
                                               .is_unused = world->is_unused,
                                               .is_ready = is_ready,
                                               .data = world,
                                               .moves_max = 4};
    struct muster_params_map *next = NULL, *again = NULL;
    bool is_first;

    for (uint32_t server = 0; server < SERVERS; server++) {
        if (world->is_alive[server])
            alive[input.alive_count++] = candidate_of(world, server);
    }
    qsort(alive, input.alive_count, sizeof(alive[0]), candidate_compare);
    assert_int_equal(muster_params_decide(world->test.env.mem, &input, &next), MUSTER_OK);
    if (next == NULL)
        return false;
    assert_int_equal(muster_params_decide(world->test.env.mem, &input, &again), MUSTER_OK);
    assert_memory_equal(next, again, sizeof(*next)); /* the same input gives the same map */
    muster_mem_free(world->test.env.mem, again);
    is_first = world->map == NULL || muster_params_decide_begins_anew(&input);
    for (uint32_t shard = 0; is_first && shard < SHARDS; shard++) {
        for (uint32_t i = 0; i < next->shards[shard].copy_count; i++)
            world->has[server_of(next, next->shards[shard].copies[i])][shard] = true;
    }
    map_check(world, world->map, next);
    muster_mem_free(world->test.env.mem, world->map);
    world->map = next;
    map_obey(world);
    return true;
}

static uint32_t world_settle(struct world *world)
{
    uint32_t steps = 0;

    while (world_step(world)) {
        steps++;
        assert_true(steps < STEPS);
    }
    return steps;
}

static void servers_start(struct world *world, uint32_t count)
{
    for (uint32_t server = 0; server < count; server++)
        world->is_alive[server] = true;
}

static void server_kill(struct world *world, uint32_t server)
{
    world->is_alive[server] = false;
    world->is_leaving[server] = false;
    if (world->replicas == 1) /* the next process goes on in its memory */
        return;
    memset(world->has[server], 0, sizeof(world->has[server]));
    world->lives[server]++;
}

/* Every shard is where it belongs. */
static void target_check(const struct world *world)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        const struct muster_params_map_shard *entry = &world->map->shards[shard];
        uint16_t targets[MUSTER_PARAMS_COPIES_MAX];
        uint32_t count = muster_params_place_targets(world->map, NULL, shard, targets);

        assert_int_equal(entry->copy_count, count);
        assert_int_equal(entry->learner_count, 0);
        for (uint32_t i = 0; i < count; i++)
            assert_true(muster_params_map_is_copy(world->map, shard, targets[i]));
    }
}

static uint32_t shards_at(const struct world *world, uint32_t server)
{
    const struct muster_incarnation id = id_of(world, server);
    uint32_t place, count = 0;

    if (!muster_params_map_find(world->map, &id, &place))
        return 0;
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        count += muster_params_map_is_copy(world->map, shard, place);
    return count;
}

/* --- Cases --- */

static void the_first_map_gives_all_shards_to_those_who_are_there(void **state)
{
    struct world world;

    (void)state;
    for (uint32_t replicas = 1; replicas <= 3; replicas++) {
        world_open(&world, replicas, SERVERS);
        servers_start(&world, 4);

        assert_int_equal(world_settle(&world), 1);

        target_check(&world);
        for (uint32_t server = 0; server < 4; server++)
            assert_true(shards_at(&world, server) > SHARDS * replicas / 16);
        world_close(&world);
    }
}

static void nobody_makes_no_map(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 1, 1);

    assert_false(world_step(&world));

    world_close(&world);
}

static void a_lost_server_without_replicas_is_waited_for(void **state)
{
    struct world world;
    uint32_t shards;

    (void)state;
    world_open(&world, 1, SERVERS);
    servers_start(&world, 3);
    world_settle(&world);
    shards = shards_at(&world, 1);

    server_kill(&world, 1);
    world_settle(&world);

    assert_int_equal(shards_at(&world, 1), shards);
    world_close(&world);
}

static void a_lost_server_with_replicas_is_gone_in_one_step(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 2, SERVERS);
    servers_start(&world, 3);
    world_settle(&world);

    server_kill(&world, 1);
    assert_true(world_step(&world));

    assert_int_equal(shards_at(&world, 1), 0);
    world_settle(&world);
    target_check(&world); /* and its shards have two copies again */
    world_close(&world);
}

static void a_server_that_comes_gets_its_part_and_no_other_moves(void **state)
{
    struct world world;
    struct muster_params_map *before;

    (void)state;
    world_open(&world, 1, SERVERS);
    servers_start(&world, 3);
    world_settle(&world);
    before = test_malloc(sizeof(*before));
    memcpy(before, world.map, sizeof(*before));

    world.is_alive[3] = true;
    world_settle(&world);

    target_check(&world);
    assert_true(shards_at(&world, 3) > SHARDS / 16 && shards_at(&world, 3) < SHARDS / 2);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        uint32_t then = server_of(before, before->shards[shard].copies[0]);
        uint32_t now = server_of(world.map, world.map->shards[shard].copies[0]);

        assert_true(now == then || now == 3);
    }
    test_free(before);
    world_close(&world);
}

static void a_server_learns_few_shards_at_a_time(void **state)
{
    struct world world;
    uint32_t learning = 0;

    (void)state;
    world_open(&world, 1, SERVERS);
    servers_start(&world, 1);
    world_settle(&world);
    world.are_learners_ready = false;

    world.is_alive[1] = true;
    world_settle(&world);

    for (uint32_t shard = 0; shard < SHARDS; shard++)
        learning += world.map->shards[shard].learner_count;
    assert_int_equal(learning, 4);             /* moves_max */
    assert_int_equal(shards_at(&world, 1), 0); /* it counts for nothing before it is ready */
    world_close(&world);
}

static void a_server_that_leaves_gives_all_away_and_goes(void **state)
{
    struct world world;
    struct muster_incarnation id;

    (void)state;
    for (uint32_t replicas = 1; replicas <= 2; replicas++) {
        world_open(&world, replicas, SERVERS);
        id = id_of(&world, 0);
        servers_start(&world, 3);
        world_settle(&world);

        world.is_leaving[0] = true;
        world_settle(&world);

        assert_false(muster_params_map_find(world.map, &id, NULL));
        target_check(&world);
        world_close(&world);
    }
}

static void servers_that_all_leave_keep_their_shards(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 1, SERVERS);
    servers_start(&world, 2);
    world_settle(&world);

    world.is_leaving[0] = world.is_leaving[1] = true;
    world_settle(&world);

    assert_int_equal(shards_at(&world, 0) + shards_at(&world, 1), SHARDS);
    world_close(&world);
}

static void two_copies_are_on_two_hosts_where_there_are_two(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 2, 2);
    servers_start(&world, 6);
    world_settle(&world);

    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        const struct muster_params_map_shard *entry = &world.map->shards[shard];

        assert_string_not_equal(world.map->servers[entry->copies[0]].host_key,
                                world.map->servers[entry->copies[1]].host_key);
    }
    world_close(&world);
}

static uint32_t world_draw(struct world *world, uint32_t below)
{
    world->seed = world->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(world->seed >> 33) % below;
}

/* With replicas, the death of the last copy of a shard loses it: no map can help. */
static bool is_last_copy(const struct world *world, uint32_t server)
{
    for (uint32_t shard = 0; world->map != NULL && shard < SHARDS; shard++) {
        const struct muster_params_map_shard *entry = &world->map->shards[shard];
        bool has_other = false, has_own = false;

        for (uint32_t i = 0; i < entry->copy_count; i++) {
            bool is_own = server_of(world->map, entry->copies[i]) == server;

            has_own = has_own || is_own;
            has_other = has_other || (!is_own && is_living(world, world->map, entry->copies[i]));
        }
        if (has_own && !has_other)
            return true;
    }
    return false;
}

/* Servers come, die and leave at random, some steps apart; then all is at rest. map_check judges each
 * step. */
static void no_course_of_events_loses_a_shard(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world world;

        world_open(&world, 1 + (uint32_t)seed % 3, 1 + (uint32_t)seed % 5);
        world.seed = seed;
        servers_start(&world, 2);
        for (uint32_t event = 0; event < EVENTS; event++) {
            uint32_t server = world_draw(&world, SERVERS);

            if (!world.is_alive[server])
                world.is_alive[server] = true;
            else if (world_draw(&world, 3) == 0)
                world.is_leaving[server] = true;
            else if (world.replicas == 1 || !is_last_copy(&world, server))
                server_kill(&world, server);
            for (uint32_t steps = world_draw(&world, 4); steps > 0; steps--)
                (void)world_step(&world);
        }
        for (uint32_t server = 0; server < SERVERS; server++) {
            world.is_alive[server] = true;
            world.is_leaving[server] = false;
        }
        world_settle(&world);
        target_check(&world);
        world_close(&world);
    }
}

static void world_lose_all(struct world *world)
{
    for (uint32_t server = 0; server < SERVERS; server++)
        world->is_alive[server] = false;
}

/* Nothing is waited for: there was nothing. */
static void a_job_without_tables_begins_anew_when_all_its_servers_are_lost(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 1, SERVERS);
    world.is_unused = true;
    servers_start(&world, 2);
    world_settle(&world);
    assert_true(world.map->is_unused);
    world.is_alive[0] = false;
    world_settle(&world);
    assert_true(shards_at(&world, 0) > 0); /* the other one is alive, and may hear of a table */

    world_lose_all(&world);
    world.is_alive[2] = true;
    world_settle(&world);

    assert_int_equal(shards_at(&world, 2), SHARDS);
    assert_true(world.map->is_unused);
    world_close(&world);
}

static void a_job_with_a_table_says_so_from_then_on(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, 1, SERVERS);
    world.is_unused = true;
    servers_start(&world, 2);
    world_settle(&world);
    world.is_unused = false; /* one server has heard of it */
    assert_int_equal(world_settle(&world), 1);
    assert_false(world.map->is_unused);
    world.is_unused = true; /* another one has not */
    assert_int_equal(world_settle(&world), 0);

    world_lose_all(&world);
    world.is_alive[2] = true;
    world_settle(&world);

    assert_int_equal(shards_at(&world, 2), 0);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_map_gives_all_shards_to_those_who_are_there),
        cmocka_unit_test(nobody_makes_no_map),
        cmocka_unit_test(a_lost_server_without_replicas_is_waited_for),
        cmocka_unit_test(a_lost_server_with_replicas_is_gone_in_one_step),
        cmocka_unit_test(a_server_that_comes_gets_its_part_and_no_other_moves),
        cmocka_unit_test(a_server_learns_few_shards_at_a_time),
        cmocka_unit_test(a_server_that_leaves_gives_all_away_and_goes),
        cmocka_unit_test(servers_that_all_leave_keep_their_shards),
        cmocka_unit_test(two_copies_are_on_two_hosts_where_there_are_two),
        cmocka_unit_test(no_course_of_events_loses_a_shard),
        cmocka_unit_test(a_job_without_tables_begins_anew_when_all_its_servers_are_lost),
        cmocka_unit_test(a_job_with_a_table_says_so_from_then_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
