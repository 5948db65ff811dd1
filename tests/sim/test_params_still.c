/* Servers that have copies and stand still, or cannot be reached: pushes wait for them no longer than the primary is
 * told to, and they learn their shards again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "params/client/client_internal.h"
#include "params/server/core/bits.h"
#include "params/server/core/server_internal.h"
#include "params/server/followers/follower_internal.h"
#include "params/server/registry/registration_internal.h"
#include "params/store/source.h"
#include "params/wire/hash.h"
#include "params/wire/map.h"
#include "tests/lib/assertion_count.h"
#include "tests/sim/params_scene.h"

#define SECOND MUSTER_NS_PER_S
#define LAG_NS (SECOND / 2)

/* Push 1 to the rows that this server leads. Returns how many there are. */
static uint32_t led_push(struct params_scene *scene, uint32_t server, uint64_t patience_ns)
{
    const struct muster_params_server *program = params_scene_program(scene, server);
    struct muster_params_rows rows = {.keys = scene->keys, .values = scene->values};
    uint64_t seed = muster_params_hash_seed("counts");

    for (uint64_t key = 0; key < PARAMS_SCENE_KEYS; key++) {
        uint32_t shard = muster_params_shard_of(muster_params_hash(seed, key), PARAMS_SCENE_SHARDS);

        if (program->map->shards[shard].copies[0] != program->place)
            continue;
        scene->keys[rows.count] = key;
        scene->values[rows.count++] = 1;
    }
    sim_enter(scene->client);
    assert_int_equal(muster_params_push_start(
                         &scene->op, scene->table, &rows,
                         muster_loop_after_ns(sim_node_env(scene->client)->loop, patience_ns),
                         params_scene_done),
                     MUSTER_OK);
    sim_leave(scene->client);
    return (uint32_t)rows.count;
}

static bool are_equal(void *data)
{
    const struct params_scene *scene = data;

    if (!params_scene_is_whole(data))
        return false;
    for (uint32_t i = 1; i < scene->server_count; i++) {
        for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS; shard++) {
            if (muster_params_positions_digest(params_scene_region(scene, 0), shard) !=
                muster_params_positions_digest(params_scene_region(scene, i), shard))
                return false;
        }
    }
    return true;
}

static void whole_await(struct params_scene *scene)
{
    assert_true(sim_run_until(scene->world, are_equal, scene, 120 * SECOND));
}

/* How a replica stops answering, and how it answers again. */
struct way_to_stop {
    const char *name;
    void (*stop)(struct params_scene *scene), (*resume)(struct params_scene *scene);
};

static void second_pause(struct params_scene *scene)
{
    sim_pause(scene->servers[1].node);
}

static void second_resume(struct params_scene *scene)
{
    sim_resume(scene->servers[1].node);
}

static void second_cut(struct params_scene *scene)
{
    sim_cut(scene->world, scene->servers[0].host, scene->servers[1].host, SIM_BOTH_WAYS);
}

static void second_silence(struct params_scene *scene)
{
    sim_cut(scene->world, scene->servers[1].host, scene->servers[0].host, SIM_ONE_WAY);
}

static void network_heal(struct params_scene *scene)
{
    sim_heal_all(scene->world);
}

/* The replica's entry in the registry lasts for 3 s, and where the registry hears of it, for ever. */
static void pushes_wait_for_a_replica_that_stands_still_as_long_as_they_are_told_to(void **state)
{
    static const struct way_to_stop ways[] = {
        {"it is stopped", second_pause, second_resume},
        {"it cannot be reached", second_cut, network_heal},
        {"it cannot answer", second_silence, network_heal},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct params_scene scene = {.replica_lag_ns = LAG_NS};
        uint64_t begin_ns;

        params_scene_open(&scene, 2);
        whole_await(&scene);
        ways[i].stop(&scene);
        begin_ns = sim_world_now_ns(scene.world);
        assert_true(led_push(&scene, 0, 60 * SECOND) > 0);
        assert_true(sim_run_until(scene.world, params_scene_is_done, &scene, 60 * SECOND));
        if (scene.rc != MUSTER_OK || sim_world_now_ns(scene.world) - begin_ns > 2 * LAG_NS)
            fail_msg("%s: %s after %llu ms", ways[i].name, muster_rc_name(scene.rc),
                     (unsigned long long)((sim_world_now_ns(scene.world) - begin_ns) /
                                          MUSTER_NS_PER_MS));
        assert_int_equal(params_scene_program(&scene, 0)->stats.still_replicas, 1);

        scene.is_done = false;
        assert_true(led_push(&scene, 0, 60 * SECOND) > 0); /* nothing waits now */
        params_scene_await(&scene, LAG_NS);
        assert_true(sim_run_for(scene.world, 10 * SECOND));
        ways[i].resume(&scene);
        whole_await(&scene);
        params_scene_close(&scene);
    }
}

static void a_replica_that_is_waited_for_holds_pushes_up(void **state)
{
    struct params_scene scene = {.replica_lag_ns = UINT64_MAX};

    (void)state;
    params_scene_open(&scene, 2);
    whole_await(&scene);
    second_cut(&scene);
    assert_true(led_push(&scene, 0, 60 * SECOND) > 0);
    assert_true(sim_run_for(scene.world, 20 * SECOND));
    assert_false(scene.is_done);
    sim_heal_all(scene.world);
    params_scene_await(&scene, 20 * SECOND);

    assert_int_equal(params_scene_program(&scene, 0)->stats.still_replicas, 0);
    whole_await(&scene);
    params_scene_close(&scene);
}

/* It was stopped itself: the answers are there, and unread. */
static void a_primary_that_stood_still_does_not_blame_its_replica(void **state)
{
    struct params_scene scene = {.replica_lag_ns = LAG_NS};

    (void)state;
    params_scene_open(&scene, 2);
    whole_await(&scene);
    second_silence(&scene);
    assert_true(led_push(&scene, 0, 60 * SECOND) > 0);
    assert_true(sim_run_for(scene.world, LAG_NS / 2));
    assert_false(scene.is_done);
    sim_pause(scene.servers[0].node);
    sim_heal_all(scene.world);
    assert_true(sim_run_for(scene.world, 2 * SECOND)); /* less than its lease */
    sim_resume(scene.servers[0].node);
    params_scene_await(&scene, 10 * SECOND);

    assert_int_equal(params_scene_program(&scene, 0)->stats.still_replicas, 0);
    params_scene_close(&scene);
}

/* The registry gets a map that makes the learner a copy. */
static bool is_promoting(void *data)
{
    struct params_scene *scene = data;
    const struct muster_params_server *primary = params_scene_program(scene, 0);

    for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS; shard++) {
        if (primary->registration->is_swapping &&
            muster_params_follower_is_ready(primary, shard, params_scene_program(scene, 1)->place))
            return true;
    }
    return false;
}

static struct muster_params_follower *first_follower(const struct params_scene *scene)
{
    const struct muster_params_server *primary = params_scene_program(scene, 0);

    assert_false(muster_list_is_empty(&primary->followers));
    return MUSTER_CONTAINER_OF(primary->followers.next, struct muster_params_follower, node);
}

static bool has_met(void *data)
{
    return first_follower(data)->is_met;
}

/* The follower is being sent a shard anew, over what it holds of it. */
static bool is_taught(const struct params_scene *scene)
{
    for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS; shard++) {
        if (muster_params_bit_is_set(first_follower(scene)->begun, shard))
            return true;
    }
    return false;
}

/* The second server has lost its copies, learns them again, and is a copy in a map that the primary does not get. */
static void promotion_await(struct params_scene *scene)
{
    params_scene_open(scene, 2);
    whole_await(scene);
    second_cut(scene);
    assert_true(led_push(scene, 0, 60 * SECOND) > 0);
    params_scene_await(scene, 10 * SECOND);
    sim_heal_all(scene->world);
    assert_true(sim_run_until(scene->world, is_promoting, scene, 120 * SECOND));
    sim_cut(scene->world, scene->registry_host, scene->servers[0].host, SIM_ONE_WAY);
    scene->is_done = false;
}

/* By the map that the primary has, it is alone. By the one that it has proposed and never gets, the other server leads
 * soon, and knows nothing of what is pushed. */
static void a_learner_that_may_be_a_copy_already_is_waited_for(void **state)
{
    struct params_scene scene = {.replica_lag_ns = LAG_NS};

    (void)state;
    promotion_await(&scene);
    second_cut(&scene);
    assert_true(led_push(&scene, 0, 60 * SECOND) > 0);
    assert_true(sim_run_for(scene.world, 2 * LAG_NS));
    assert_int_equal(params_scene_program(&scene, 0)->stats.still_replicas, 2);
    assert_false(scene.is_done);

    sim_heal(scene.world, scene.servers[0].host, scene.servers[1].host);
    assert_true(sim_run_until(scene.world, has_met, &scene, 3 * LAG_NS)); /* less than a lease */
    assert_true(sim_run_for(scene.world, LAG_NS / 4));
    assert_false(is_taught(&scene));
    assert_false(scene.is_done);

    params_scene_await(&scene, 60 * SECOND); /* the other server leads */
    sim_heal_all(scene.world);
    whole_await(&scene);
    params_scene_close(&scene);
}

/* The learner acknowledges pushes without applying them from then on. */
static void a_learner_that_may_be_a_copy_already_and_has_no_memory_is_waited_for(void **state)
{
    struct params_scene scene = {.replica_lag_ns = LAG_NS};
    struct muster_params_follower *follower;
    uint32_t shard = 0;

    (void)state;
    promotion_await(&scene);
    follower = first_follower(&scene);
    while (!muster_params_bit_is_set(follower->ready, shard))
        shard++;
    sim_enter(scene.servers[0].node);
    muster_params_copy_full(follower, shard);
    sim_leave(scene.servers[0].node);
    assert_true(
        muster_params_follower_is_stale(follower->server, shard, (uint32_t)follower->place));
    assert_true(led_push(&scene, 0, 60 * SECOND) > 0);
    assert_true(sim_run_for(scene.world, LAG_NS / 2));
    assert_false(scene.is_done);

    sim_heal_all(scene.world);
    params_scene_await(&scene, 60 * SECOND);
    whole_await(&scene);
    params_scene_close(&scene);
}

/* Three copies: the primary dies, and the two that are left cannot reach each other. The next primary asks the other
 * one what it has, and does not wait for it. */
static void clients_of_a_new_primary_do_not_wait_for_a_copy_that_stands_still(void **state)
{
    struct params_scene scene = {.replica_lag_ns = LAG_NS};

    (void)state;
    params_scene_open(&scene, 3);
    whole_await(&scene);
    sim_kill(scene.servers[2].node);
    second_cut(&scene);
    params_scene_push(&scene, 60 * SECOND);
    params_scene_await(&scene, 10 * SECOND);

    sim_heal_all(scene.world);
    params_scene_serve(&scene, 2);
    whole_await(&scene);
    params_scene_compare(&scene, 2);
    params_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_wait_for_a_replica_that_stands_still_as_long_as_they_are_told_to),
        cmocka_unit_test(a_replica_that_is_waited_for_holds_pushes_up),
        cmocka_unit_test(a_primary_that_stood_still_does_not_blame_its_replica),
        cmocka_unit_test(a_learner_that_may_be_a_copy_already_is_waited_for),
        cmocka_unit_test(a_learner_that_may_be_a_copy_already_and_has_no_memory_is_waited_for),
        cmocka_unit_test(clients_of_a_new_primary_do_not_wait_for_a_copy_that_stands_still),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
