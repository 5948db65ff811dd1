/* A lease of the registry client against the clock, before two registries that are played by hand.
 * */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include <muster/registry.h>
#include <muster/rpc.h>

#include "tests/sim/world.h"

#define PORT   2379
#define TTL_S  9
#define SECOND MUSTER_NS_PER_S

struct scene;

/* It grants lease 7 for nine seconds, and may be deaf to keep-alives. */
struct played {
    struct scene *scene;
    struct sim_host *host;
    bool is_deaf;
    unsigned asked;       /* keep-alives */
    uint64_t first_ns;    /* when the first of them came */
    unsigned still_asked; /* with the client closed */
};

struct scene {
    struct sim_world *world;
    struct played registries[2];
    struct sim_host *host;
    struct sim_node *node;
    char endpoints[2 * MUSTER_ADDRESS_TEXT_BYTES];
    uint64_t granted_ns, lost_ns; /* 0: not */
    bool is_closed;
};

struct program {
    struct scene *scene;
    struct muster_registry *registry;
    struct muster_registry_lease lease;
};

/* --- The registries --- */

static void on_grant(struct muster_rpc *rpc, struct muster_bytes request)
{
    (void)request;
    if (muster_rpc_send(rpc, "\x0a\x02\x18\x05\x10\x07\x18\x09", 8) == MUSTER_OK)
        muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_keep_alive(struct muster_rpc *rpc, struct muster_bytes request)
{
    struct played *played = muster_rpc_service(rpc);

    (void)request;
    if (played->asked++ == 0)
        played->first_ns = sim_world_now_ns(played->scene->world);
    played->still_asked += played->scene->is_closed;
    if (!played->is_deaf && muster_rpc_send(rpc, "\x10\x07\x18\x09", 4) != MUSTER_OK)
        sim_fail(played->scene->world, "no answer");
}

static void run_registry(struct sim_node *node, struct muster_env *env, void *data)
{
    static const struct muster_rpc_method methods[] = {
        {.path = "/etcdserverpb.Lease/LeaseGrant", .on_message = on_grant, .is_unary = true},
        {.path = "/etcdserverpb.Lease/LeaseKeepAlive", .on_message = on_keep_alive},
    };
    struct played *played = data;
    struct muster_rpc_server *server = NULL;
    struct muster_address address = sim_host_address(played->host, PORT), bound;
    struct muster_error error;

    (void)node;
    if (muster_rpc_server_open(env, NULL, &server) != MUSTER_OK ||
        muster_rpc_server_add(server, methods, 2, played) != MUSTER_OK ||
        muster_rpc_server_listen(server, &address, &bound, &error) != MUSTER_OK)
        sim_fail(played->scene->world, "a registry does not open");
}

/* --- The client --- */

static void on_granted(struct muster_registry_lease *lease, enum muster_rc rc)
{
    struct program *program = lease->data;

    if (rc != MUSTER_OK)
        sim_fail(program->scene->world, "no lease: %s", lease->error.text);
    program->scene->granted_ns = sim_world_now_ns(program->scene->world);
}

static void on_lost(struct muster_registry_lease *lease)
{
    struct program *program = lease->data;

    program->scene->lost_ns = sim_world_now_ns(program->scene->world);
}

static void run_client(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    struct program *program = muster_mem_alloc_zero(env->mem, 1, sizeof(*program));
    struct muster_registry_options options = {.endpoints = scene->endpoints};
    struct muster_error error;

    program->scene = scene;
    program->lease.data = program;
    sim_node_set_program(node, program);
    if (muster_registry_open(env, &options, &program->registry, &error) != MUSTER_OK ||
        muster_registry_lease_start(&program->lease, program->registry, TTL_S,
                                    muster_loop_after_ns(env->loop, 30 * SECOND), on_granted,
                                    on_lost) != MUSTER_OK)
        sim_fail(scene->world, "the client does not open");
    muster_registry_set_data(program->registry, scene);
}

/* --- The scene --- */

static bool is_granted(void *data)
{
    return ((const struct scene *)data)->granted_ns != 0;
}

static void scene_open(struct scene *scene, bool is_first_deaf)
{
    static const char *const names[2] = {"first", "second"};
    size_t length = 0;

    memset(scene, 0, sizeof(*scene));
    scene->world = sim_world_open(1, NULL);
    for (size_t i = 0; i < 2; i++) {
        struct played *played = &scene->registries[i];
        char text[MUSTER_ADDRESS_TEXT_BYTES];
        struct muster_address address;

        played->scene = scene;
        played->is_deaf = i == 0 && is_first_deaf;
        played->host = sim_host_add(scene->world, names[i]);
        address = sim_host_address(played->host, PORT);
        length += (size_t)snprintf(scene->endpoints + length, sizeof(scene->endpoints) - length,
                                   "%s%s", i > 0 ? "," : "", muster_address_format(&address, text));
        (void)sim_node_start(scene->world, &(struct sim_node_options){.name = names[i],
                                                                      .host = played->host,
                                                                      .start = run_registry,
                                                                      .data = played});
    }
    scene->host = sim_host_add(scene->world, "client");
    scene->node = sim_node_start(scene->world, &(struct sim_node_options){.name = "client",
                                                                          .host = scene->host,
                                                                          .start = run_client,
                                                                          .data = scene});
    assert_true(sim_run_until(scene->world, is_granted, scene, 10 * SECOND));
}

static void scene_close(struct scene *scene)
{
    if (sim_failure(scene->world) != NULL)
        fail_msg("%s", sim_failure(scene->world));
    (void)sim_world_close(scene->world);
}

static struct program *scene_enter(struct scene *scene)
{
    sim_enter(scene->node);
    return sim_node_program(scene->node);
}

/* --- Cases --- */

static void a_lease_is_asked_for_every_third(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, false);
    assert_true(sim_run_for(scene.world, 60 * SECOND));

    assert_int_equal(scene.lost_ns, 0);
    assert_in_range(scene.registries[0].asked, 19, 21);
    assert_int_equal(scene.registries[1].asked, 0);
    scene_close(&scene);
}

/* A registry that takes the words and says nothing is left in time for another to be asked. */
static void a_silent_stream_is_given_up_after_a_third_of_the_lease(void **state)
{
    struct scene scene;
    const struct played *second = &scene.registries[1];

    (void)state;
    scene_open(&scene, true);
    assert_true(sim_run_for(scene.world, 60 * SECOND));

    assert_int_equal(scene.lost_ns, 0);
    assert_int_equal(scene.registries[0].asked, 1);
    assert_in_range(second->first_ns - scene.granted_ns, 6 * SECOND, 7 * SECOND);
    scene_close(&scene);
}

static void a_lease_that_nobody_answers_for_is_lost_at_its_end(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, true);
    scene.registries[1].is_deaf = true;
    assert_true(sim_run_for(scene.world, 60 * SECOND));

    assert_true(scene.lost_ns <= scene.granted_ns + TTL_S * SECOND);
    assert_true(scene.lost_ns > scene.granted_ns + (TTL_S - 1) * SECOND);
    scene_close(&scene);
}

static void on_closed(struct muster_registry *registry)
{
    ((struct scene *)muster_registry_data(registry))->is_closed = true;
}

static bool is_closed(void *data)
{
    return ((const struct scene *)data)->is_closed;
}

static void nothing_is_said_of_a_lease_once_the_client_is_closed(void **state)
{
    static const uint64_t rows[] = {SECOND / 10, 4 * SECOND}; /* without its stream, and with it */

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;

        scene_open(&scene, false);
        assert_true(sim_run_for(scene.world, rows[i]));
        muster_registry_close(scene_enter(&scene)->registry, on_closed);
        sim_leave(scene.node);
        assert_true(sim_run_until(scene.world, is_closed, &scene, SECOND));
        assert_true(sim_run_for(scene.world, 60 * SECOND));

        assert_int_equal(scene.lost_ns, 0);
        assert_int_equal(scene.registries[0].still_asked, 0);
        scene_close(&scene);
    }
}

static void a_lease_may_be_stopped_twice(void **state)
{
    static const bool rows[] = {false, true}; /* before the grant was answered, and after */

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct scene scene;
        struct program *program = NULL;

        scene_open(&scene, false);
        program = scene_enter(&scene);
        if (!rows[i]) {
            muster_registry_lease_stop(&program->lease);
            scene.granted_ns = 0;
            assert_int_equal(muster_registry_lease_start(
                                 &program->lease, program->registry, TTL_S,
                                 muster_loop_after_ns(sim_node_env(scene.node)->loop, 30 * SECOND),
                                 on_granted, on_lost),
                             MUSTER_OK);
        }
        muster_registry_lease_stop(&program->lease);
        sim_leave(scene.node);
        assert_true(sim_run_for(scene.world, SECOND));
        muster_registry_lease_stop(&scene_enter(&scene)->lease);
        sim_leave(scene.node);
        assert_true(sim_run_for(scene.world, 60 * SECOND));

        assert_int_equal(scene.granted_ns != 0, rows[i]);
        assert_int_equal(scene.lost_ns, 0);
        assert_int_equal(scene.registries[0].asked, 0);
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest registry_lease[] = {
        cmocka_unit_test(a_lease_is_asked_for_every_third),
        cmocka_unit_test(a_silent_stream_is_given_up_after_a_third_of_the_lease),
        cmocka_unit_test(a_lease_that_nobody_answers_for_is_lost_at_its_end),
        cmocka_unit_test(nothing_is_said_of_a_lease_once_the_client_is_closed),
        cmocka_unit_test(a_lease_may_be_stopped_twice),
    };

    return cmocka_run_group_tests(registry_lease, NULL, NULL);
}
