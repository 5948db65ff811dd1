/* The registry in the simulated world: leases against the clock, restarts on the same store,
 * partitions, kills. */
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include <muster/registry.h>
#include <muster/registry_server.h>

#include "tests/sim/world.h"

#define PORT    2379
#define TTL_S   6
#define SEEDS   12
#define ROUNDS  6
#define PACE_NS (10 * MUSTER_NS_PER_MS)
#define SECOND  MUSTER_NS_PER_S

struct scene {
    struct sim_world *world;
    struct sim_host *registry_host, *owner_host, *watcher_host;
    struct sim_node *registry, *owner, *watcher;
    struct muster_registry_store *store;
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    /* facts, outside of any process */
    bool is_granted;
    uint64_t lost_ns;    /* when the owner was told; 0: never */
    uint64_t put_ns;     /* when the watcher saw the key come … */
    uint64_t deleted_ns; /* … and go; 0: never */
    uint64_t acked;      /* last number whose put was acknowledged */
    uint64_t attempted;
    uint64_t seen; /* last number that the watcher was shown */
    uint64_t shown_count;
    bool has_ended;
};

/* The registry's process. */

static void run_registry(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    struct muster_registry_server_options options = {.listen = scene->endpoint};
    struct muster_registry_server *server = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)node;
    if (muster_registry_server_open(env, scene->store, &options, &server, &error) != MUSTER_OK)
        sim_fail(scene->world, "the registry does not open: %s", error.text);
}

static void start_registry(struct scene *scene)
{
    scene->registry =
        sim_node_start(scene->world, &(struct sim_node_options){.name = "registry",
                                                                .host = scene->registry_host,
                                                                .start = run_registry,
                                                                .data = scene});
}

/* A process that holds a lease with a key, and puts numbers. */

struct owner {
    struct scene *scene;
    struct muster_env *env;
    struct muster_registry *registry;
    struct muster_registry_lease lease;
    struct muster_registry_op op;
    struct muster_registry_op put;
    struct muster_timer pace; /* to the next put */
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static struct muster_registry *open_client(struct scene *scene, struct muster_env *env)
{
    struct muster_registry_options options = {.endpoints = scene->endpoint};
    struct muster_registry *registry = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    if (muster_registry_open(env, &options, &registry, &error) != MUSTER_OK)
        sim_fail(scene->world, "the client does not open: %s", error.text);
    return registry;
}

static void on_lost(struct muster_registry_lease *lease)
{
    struct owner *owner = lease->data;

    owner->scene->lost_ns = sim_world_now_ns(owner->scene->world);
}

static void put_number(struct owner *owner);

static void on_number(struct muster_registry_op *op, enum muster_rc rc)
{
    struct owner *owner = op->data;

    if (rc == MUSTER_OK)
        owner->scene->acked = owner->scene->attempted;
    else if (!muster_registry_is_unknown(rc))
        sim_fail(owner->scene->world, "a put was refused: %s", op->error.text);
    muster_timer_start(&owner->pace, owner->env->loop,
                       muster_loop_after_ns(owner->env->loop, PACE_NS));
}

static void on_pace(struct muster_timer *timer)
{
    put_number(timer->data);
}

static void put_number(struct owner *owner)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, ++owner->scene->attempted);
    if (muster_registry_put_start(
            &owner->put, owner->registry, bytes_of("/t/number"), bytes_of(text), 0,
            muster_loop_after_ns(owner->env->loop, 5 * SECOND), on_number) != MUSTER_OK)
        sim_fail(owner->scene->world, "a put does not start");
}

static void on_key(struct muster_registry_op *op, enum muster_rc rc)
{
    struct owner *owner = op->data;

    if (rc != MUSTER_OK)
        sim_fail(owner->scene->world, "the leased key cannot be put: %s", op->error.text);
    owner->scene->is_granted = true;
    put_number(owner);
}

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct owner *owner = lease->data;

    if (rc != MUSTER_OK ||
        muster_registry_put_start(&owner->op, owner->registry, bytes_of("/t/leased"), bytes_of("1"),
                                  lease->id, muster_loop_after_ns(owner->env->loop, 5 * SECOND),
                                  on_key) != MUSTER_OK)
        sim_fail(owner->scene->world, "no lease");
}

static void run_owner(struct sim_node *node, struct muster_env *env, void *data)
{
    struct owner *owner = muster_mem_alloc_zero(env->mem, 1, sizeof(*owner));

    (void)node;
    owner->scene = data;
    owner->env = env;
    owner->registry = open_client(data, env);
    owner->op.data = owner;
    owner->put.data = owner;
    owner->lease.data = owner;
    muster_timer_init(&owner->pace, on_pace, owner);
    if (muster_registry_lease_start(&owner->lease, owner->registry, TTL_S,
                                    muster_loop_after_ns(env->loop, 30 * SECOND), on_granted,
                                    on_lost) != MUSTER_OK)
        sim_fail(owner->scene->world, "the lease does not start");
}

/* A process that watches both keys. */

static uint64_t number_of(struct muster_bytes bytes)
{
    uint64_t number = 0;

    for (size_t i = 0; i < bytes.size; i++)
        number = number * 10 + (uint64_t)(((const char *)bytes.data)[i] - '0');
    return number;
}

static void on_changes(struct muster_registry_watch *watch,
                       const struct muster_registry_change *changes, size_t count)
{
    struct scene *scene = watch->data;
    uint64_t now_ns = sim_world_now_ns(scene->world);

    for (size_t i = 0; i < count; i++) {
        const struct muster_registry_kv *kv = &changes[i].kv;

        if (kv->key.size == strlen("/t/leased")) {
            uint64_t *when_ns = changes[i].is_delete ? &scene->deleted_ns : &scene->put_ns;

            if (memcmp(kv->key.data, "/t/leased", kv->key.size) == 0) {
                *when_ns = now_ns;
                continue;
            }
        }
        if (number_of(kv->value) <= scene->seen)
            sim_fail(scene->world, "number %" PRIu64 " was shown after %" PRIu64,
                     number_of(kv->value), scene->seen);
        scene->seen = number_of(kv->value);
        scene->shown_count++;
        if (kv->version != scene->shown_count)
            sim_fail(scene->world, "change %" PRIu64 " was shown as number %" PRIu64, kv->version,
                     scene->shown_count);
    }
}

static void on_watch_end(struct muster_registry_watch *watch, enum muster_rc rc)
{
    struct scene *scene = watch->data;

    (void)rc;
    scene->has_ended = true;
}

static void run_watcher(struct sim_node *node, struct muster_env *env, void *data)
{
    struct muster_registry_watch *watch = muster_mem_alloc_zero(env->mem, 1, sizeof(*watch));
    struct scene *scene = data;

    (void)node;
    watch->data = scene;
    if (muster_registry_watch_start(watch, open_client(scene, env), bytes_of("/t/"),
                                    MUSTER_REGISTRY_PREFIX, 1, on_changes,
                                    on_watch_end) != MUSTER_OK)
        sim_fail(scene->world, "the watch does not start");
}

/* The scene. */

static bool is_going(void *data)
{
    const struct scene *scene = data;

    return scene->is_granted && scene->put_ns != 0 && scene->acked > 0;
}

static void open_scene(struct scene *scene, uint64_t seed)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_error error;
    struct muster_address address;

    memset(scene, 0, sizeof(*scene));
    assert_int_equal(
        muster_registry_store_open(muster_mem_system(), &options, &scene->store, &error),
        MUSTER_OK);
    scene->world = sim_world_open(seed, NULL);
    scene->registry_host = sim_host_add(scene->world, "registry");
    scene->owner_host = sim_host_add(scene->world, "owner");
    scene->watcher_host = sim_host_add(scene->world, "watcher");
    address = sim_host_address(scene->registry_host, PORT);
    muster_address_format(&address, scene->endpoint);
    start_registry(scene);
    scene->owner = sim_node_start(
        scene->world,
        &(struct sim_node_options){
            .name = "owner", .host = scene->owner_host, .start = run_owner, .data = scene});
    scene->watcher = sim_node_start(
        scene->world,
        &(struct sim_node_options){
            .name = "watcher", .host = scene->watcher_host, .start = run_watcher, .data = scene});
    if (!sim_run_until(scene->world, is_going, scene, 30 * SECOND))
        fail_msg("seed %" PRIu64 ": %s", seed,
                 sim_failure(scene->world) != NULL ? sim_failure(scene->world) : "nothing goes on");
}

static void close_scene(struct scene *scene)
{
    if (sim_failure(scene->world) != NULL)
        fail_msg("%s", sim_failure(scene->world));
    (void)sim_world_close(scene->world);
    muster_registry_store_close(scene->store);
}

static bool is_deleted(void *data)
{
    return ((const struct scene *)data)->deleted_ns != 0;
}

static bool is_lost(void *data)
{
    return ((const struct scene *)data)->lost_ns != 0;
}

static bool has_seen_all(void *data)
{
    const struct scene *scene = data;

    return scene->seen >= scene->acked;
}

/* Cases. */

static void a_lease_lives_as_long_as_its_owner(void **state)
{
    struct scene scene;

    (void)state;
    open_scene(&scene, 1);

    assert_true(sim_run_for(scene.world, 5 * TTL_S * SECOND));

    assert_int_equal(scene.lost_ns, 0);
    assert_int_equal(scene.deleted_ns, 0);
    close_scene(&scene);
}

static void the_keys_of_a_dead_owner_go_after_its_ttl_and_not_before(void **state)
{
    struct scene scene;
    uint64_t killed_ns = 0;

    (void)state;
    open_scene(&scene, 2);
    assert_true(sim_run_for(scene.world, 7 * SECOND));

    sim_kill(scene.owner);
    killed_ns = sim_world_now_ns(scene.world);
    assert_true(sim_run_until(scene.world, is_deleted, &scene, 60 * SECOND));

    /* It was renewed at most a third of its time before the death. */
    assert_in_range(scene.deleted_ns - killed_ns, (TTL_S - TTL_S / 3 - 1) * SECOND,
                    TTL_S * SECOND + SECOND / 2);
    close_scene(&scene);
}

static void an_owner_that_is_cut_off_knows_it_before_the_registry_acts(void **state)
{
    struct scene scene;

    (void)state;
    open_scene(&scene, 3);
    assert_true(sim_run_for(scene.world, 5 * SECOND));

    sim_cut(scene.world, scene.registry_host, scene.owner_host, SIM_BOTH_WAYS);
    assert_true(sim_run_until(scene.world, is_lost, &scene, 60 * SECOND));
    assert_int_equal(scene.deleted_ns, 0);
    assert_true(sim_run_until(scene.world, is_deleted, &scene, 60 * SECOND));

    close_scene(&scene);
}

static void a_cut_shorter_than_the_ttl_costs_nothing(void **state)
{
    struct scene scene;
    uint64_t acked = 0;

    (void)state;
    open_scene(&scene, 4);

    sim_cut(scene.world, scene.registry_host, scene.owner_host, SIM_BOTH_WAYS);
    assert_true(sim_run_for(scene.world, TTL_S * SECOND / 2));
    acked = scene.acked;
    sim_heal_all(scene.world);
    assert_true(sim_run_for(scene.world, 3 * TTL_S * SECOND));

    assert_int_equal(scene.lost_ns, 0);
    assert_int_equal(scene.deleted_ns, 0);
    assert_true(scene.acked > acked);
    close_scene(&scene);
}

static void an_outage_shorter_than_the_ttl_keeps_leases_and_watches(void **state)
{
    struct scene scene;

    (void)state;
    open_scene(&scene, 5);

    for (int round = 0; round < ROUNDS; round++) {
        sim_kill(scene.registry);
        assert_true(sim_run_for(scene.world, SECOND));
        start_registry(&scene);
        assert_true(sim_run_for(scene.world, 3 * SECOND));
    }
    assert_true(sim_run_until(scene.world, has_seen_all, &scene, 30 * SECOND));

    assert_int_equal(scene.lost_ns, 0);
    assert_int_equal(scene.deleted_ns, 0);
    assert_false(scene.has_ended);
    close_scene(&scene);
}

static void no_acknowledged_put_is_lost_to_a_kill_anywhere_in_a_turn(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 100 + SEEDS; seed++) {
        struct scene scene;
        uint64_t acked = 0;

        open_scene(&scene, seed);
        for (int round = 0; round < ROUNDS; round++) {
            struct muster_rng *rng = sim_world_rng(scene.world);

            assert_true(sim_run_for(scene.world, muster_rng_below(rng, SECOND / 10)));
            sim_kill_within(scene.registry, (uint32_t)muster_rng_below(rng, 40));
            assert_true(sim_run_for(scene.world, SECOND / 5));
            if (sim_node_is_alive(scene.registry))
                sim_kill(scene.registry);
            acked = scene.acked;
            start_registry(&scene);
            assert_true(sim_run_for(scene.world, SECOND / 4));
        }
        assert_true(sim_run_until(scene.world, has_seen_all, &scene, 30 * SECOND));
        assert_true(scene.seen >= acked);
        assert_false(scene.has_ended);
        assert_int_equal(scene.lost_ns, 0);
        close_scene(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_lives_as_long_as_its_owner),
        cmocka_unit_test(the_keys_of_a_dead_owner_go_after_its_ttl_and_not_before),
        cmocka_unit_test(an_owner_that_is_cut_off_knows_it_before_the_registry_acts),
        cmocka_unit_test(a_cut_shorter_than_the_ttl_costs_nothing),
        cmocka_unit_test(an_outage_shorter_than_the_ttl_keeps_leases_and_watches),
        cmocka_unit_test(no_acknowledged_put_is_lost_to_a_kill_anywhere_in_a_turn),
    };

    return cmocka_run_group_tests_name("sim_registry", tests, NULL, NULL);
}
