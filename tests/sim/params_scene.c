/* Servers of parameters and one client, as scenes need them. */
#include "tests/sim/params_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "params/server/core/server_internal.h"
#include "params/server/seat/seat.h"
#include "params/wire/map.h"
#include "tests/lib/assertion_count.h"
#include "tests/sim/params_aside.h"

#define PORT         7300
#define MEMORY_BYTES MUSTER_PARAMS_REGION_BYTES_MIN
#define SECOND       MUSTER_NS_PER_S

static void on_failed(struct muster_params_server *program, const struct muster_error *error)
{
    struct params_scene_server *server = muster_params_server_data(program);

    server->failures++;
    snprintf(server->failure, sizeof(server->failure), "%s", error->text);
}

static void start_server(struct sim_node *node, struct muster_env *env, void *data)
{
    struct params_scene_server *server = data;
    struct params_scene *scene = server->scene;
    const struct muster_params_seat_options seat = {.shard_count = PARAMS_SCENE_SHARDS};
    struct muster_address address =
        sim_host_address(server->host, (uint16_t)(PORT + (server - scene->servers)));
    struct muster_params_server_options options = {.listen = &address,
                                                   .failed = on_failed,
                                                   .restore = server->restore,
                                                   .is_new_by_force = scene->is_new_by_force,
                                                   .source_lease_ns = scene->source_lease_ns,
                                                   .replica_lag_max_ns = scene->replica_lag_ns};
    struct muster_params_server *program = NULL;
    struct muster_error error;

    if (scene->registry != NULL) {
        options.job = REGISTRY_STAGE_JOB;
        options.registry = REGISTRY_STAGE_ENDPOINT;
        options.server_count = scene->server_count;
        options.replicas = scene->replicas > 0 ? scene->replicas : scene->server_count;
    }
    muster_params_seat_free(server->seat); /* its holder is dead */
    server->seat = NULL;
    assert_int_equal(muster_params_seat_wrap(params_memory_take(server->memory, node),
                                             server->memory_bytes, &seat, &server->seat, &error),
                     MUSTER_OK);
    options.seat = server->seat;
    assert_int_equal(muster_params_server_open(env, &options, &program, &error), MUSTER_OK);
    muster_params_server_set_data(program, server);
    sim_node_set_program(node, program);
}

static void on_server_death(struct sim_node *node, void *data)
{
    struct params_scene_server *server = data;

    (void)node;
    params_memory_leave(server->memory);
}

void params_scene_done(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_scene *scene = op->data;

    scene->is_done = true;
    scene->rc = rc;
    snprintf(scene->text, sizeof(scene->text), "%s", op->error.text);
}

static void on_opened(struct muster_params *params, enum muster_rc rc)
{
    struct params_scene *scene = muster_params_data(params);

    scene->is_done = true;
    scene->rc = rc;
}

static void start_client(struct sim_node *node, struct muster_env *env, void *data)
{
    struct params_scene *scene = data;
    const struct muster_params_options options = {
        .server = scene->addresses,
        .job = scene->registry != NULL ? REGISTRY_STAGE_JOB : NULL,
        .clock_sources = scene->clock_sources,
        .source = scene->source,
        .connect_deadline_ns = muster_loop_after_ns(env->loop, 60 * SECOND),
        .data = scene};

    assert_int_equal(muster_params_open(env, &options, on_opened, &scene->params, NULL), MUSTER_OK);
    sim_node_set_program(node, scene);
}

bool params_scene_is_done(void *data)
{
    return ((struct params_scene *)data)->is_done;
}

void params_scene_await(struct params_scene *scene, uint64_t limit_ns)
{
    assert_true(sim_run_until(scene->world, params_scene_is_done, scene, limit_ns));
    if (scene->rc != MUSTER_OK)
        fail_msg("%s: %s", muster_rc_name(scene->rc), scene->text);
    scene->is_done = false;
}

bool params_scene_is_whole(void *data)
{
    const struct params_scene *scene = data;

    for (uint32_t i = 0; i < scene->server_count; i++) {
        const struct muster_params_server *server = sim_node_program(scene->servers[i].node);

        if (server == NULL || server->map == NULL)
            return false;
        for (uint32_t shard = 0; shard < PARAMS_SCENE_SHARDS; shard++) {
            if (server->map->shards[shard].copy_count <
                (scene->replicas > 0 ? scene->replicas : scene->server_count))
                return false;
        }
    }
    return true;
}

void params_scene_table(struct params_scene *scene)
{
    const struct muster_params_schema schema = {.name = "counts",
                                                .row_elements = 1,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD,
                                                .is_by_round = scene->clock_sources > 0};

    scene->op.data = scene;
    sim_enter(scene->client);
    assert_int_equal(muster_params_table_start(
                         &scene->op, scene->params, &schema, &scene->table,
                         muster_loop_after_ns(sim_node_env(scene->client)->loop, 60 * SECOND),
                         params_scene_done),
                     MUSTER_OK);
    sim_leave(scene->client);
    params_scene_await(scene, 60 * SECOND);
}

void params_scene_push(struct params_scene *scene, uint64_t patience_ns)
{
    const struct muster_params_rows rows = {
        .keys = scene->keys, .count = PARAMS_SCENE_KEYS, .values = scene->values};

    for (uint32_t i = 0; i < PARAMS_SCENE_KEYS; i++) {
        scene->keys[i] = i;
        scene->values[i] = 1;
    }
    sim_enter(scene->client);
    assert_int_equal(muster_params_push_start(
                         &scene->op, scene->table, &rows,
                         muster_loop_after_ns(sim_node_env(scene->client)->loop, patience_ns),
                         params_scene_done),
                     MUSTER_OK);
    sim_leave(scene->client);
}

void params_scene_compare(struct params_scene *scene, float expected)
{
    const struct muster_params_rows rows = {
        .keys = scene->keys, .count = PARAMS_SCENE_KEYS, .values = scene->values};

    sim_enter(scene->client);
    assert_int_equal(muster_params_pull_start(
                         &scene->op, scene->table, &rows,
                         muster_loop_after_ns(sim_node_env(scene->client)->loop, 60 * SECOND),
                         params_scene_done),
                     MUSTER_OK);
    sim_leave(scene->client);
    params_scene_await(scene, 60 * SECOND);
    for (uint32_t i = 0; i < PARAMS_SCENE_KEYS; i++)
        assert_true(scene->values[i] == expected);
}

void params_scene_client(struct params_scene *scene)
{
    scene->client = sim_node_start(
        scene->world,
        &(struct sim_node_options){
            .name = "client", .host = scene->client_host, .start = start_client, .data = scene});
    params_scene_await(scene, 60 * SECOND);
}

void params_scene_forget(struct params_scene *scene, uint32_t server)
{
    struct params_scene_server *one = &scene->servers[server];

    muster_params_seat_free(one->seat);
    one->seat = NULL;
    params_memory_close(one->memory);
    one->memory = params_memory_open(one->memory_bytes);
}

void params_scene_serve(struct params_scene *scene, uint32_t server)
{
    struct params_scene_server *one = &scene->servers[server];
    char name[32];

    snprintf(name, sizeof(name), "server%u", server);
    one->node = sim_node_start(scene->world, &(struct sim_node_options){.name = name,
                                                                        .host = one->host,
                                                                        .start = start_server,
                                                                        .on_death = on_server_death,
                                                                        .data = one});
}

void params_scene_open(struct params_scene *scene, uint32_t server_count)
{
    size_t at = 0;

    params_aside_link();
    scene->world = sim_world_open(7, NULL);
    scene->server_count = server_count;
    if (server_count > 1) {
        scene->registry_host = sim_host_add(scene->world, "registry");
        scene->registry = registry_stage_open(scene->world, scene->registry_host, NULL);
    }
    for (uint32_t i = 0; i < server_count; i++) {
        struct params_scene_server *server = &scene->servers[i];
        char name[32], text[MUSTER_ADDRESS_TEXT_BYTES];
        struct muster_address address;

        snprintf(name, sizeof(name), "server%u", i);
        server->scene = scene;
        server->host = sim_host_add(scene->world, name);
        if (server->memory_bytes == 0)
            server->memory_bytes = MEMORY_BYTES;
        server->memory = params_memory_open(server->memory_bytes);
        address = sim_host_address(server->host, (uint16_t)(PORT + i));
        at += (size_t)snprintf(scene->addresses + at, sizeof(scene->addresses) - at, "%s%s",
                               i > 0 ? "," : "", muster_address_format(&address, text));
        params_scene_serve(scene, i);
    }
    scene->client_host = sim_host_add(scene->world, "client");
    if (!scene->is_unused)
        params_scene_client(scene);
    assert_true(sim_run_until(scene->world, params_scene_is_whole, scene, 60 * SECOND));
    if (scene->is_unused)
        return;
    params_scene_table(scene);
    params_scene_push(scene, 60 * SECOND);
    params_scene_await(scene, 60 * SECOND);
}

void params_scene_close(struct params_scene *scene)
{
    assert_null(sim_failure(scene->world));
    for (uint32_t i = 0; i < scene->server_count; i++)
        sim_kill(scene->servers[i].node);
    if (scene->client != NULL)
        sim_kill(scene->client);
    if (scene->registry != NULL)
        registry_stage_close(scene->registry);
    (void)sim_world_close(scene->world);
    for (uint32_t i = 0; i < scene->server_count; i++) {
        muster_params_seat_free(scene->servers[i].seat);
        params_memory_close(scene->servers[i].memory);
    }
}

const struct muster_params_server *params_scene_program(const struct params_scene *scene,
                                                        uint32_t server)
{
    return sim_node_program(scene->servers[server].node);
}

const struct muster_params_region *params_scene_region(const struct params_scene *scene,
                                                       uint32_t server)
{
    return ((const struct muster_params_server *)sim_node_program(scene->servers[server].node))
        ->region;
}

void params_scene_client_kill(struct params_scene *scene)
{
    sim_kill(scene->client);
    memset(&scene->op, 0, sizeof(scene->op));
    scene->is_done = false;
}

void params_scene_client_leave(struct params_scene *scene)
{
    sim_enter(scene->client);
    muster_params_close(scene->params,
                        muster_loop_after_ns(sim_node_env(scene->client)->loop, 60 * SECOND),
                        on_opened);
    sim_leave(scene->client);
    params_scene_await(scene, 60 * SECOND);
    assert_true(sim_run_for(scene->world, SECOND));
    params_scene_client_kill(scene);
}
