/* Profile "params": clients push to a server of parameters and pull from it while everything dies. */
#include <muster/params_server.h>

#include "params/server/core/server_internal.h"
#include "params/server/seat/seat.h"
#include "tests/sim/faults.h"
#include "tests/sim/params_cast.h"
#include "tests/sim/params_memory.h"
#include "tests/sim/profile.h"

#define VALUES_PER_LIFE 100u
#define SHARDS          8u
#define PORT            7300
#define MEMORY_BYTES    MUSTER_PARAMS_REGION_BYTES_MIN
#define ACT_MAX_NS      (4 * MUSTER_NS_PER_MS)
#define RUN_NS          (600 * MUSTER_NS_PER_MS)
#define HEAL_NS         (30 * MUSTER_NS_PER_S)
#define RESTART_MAX_NS  (20 * MUSTER_NS_PER_MS)

struct scene {
    struct sim_world *world;
    struct params_cast cast;
    struct sim_host *server_host;
    struct sim_node *server_node;
    struct params_memory *memory; /* of the server's host: it outlives the process */
    struct muster_params_seat *seat;
    uint64_t restart_ns;
    bool is_server_closed;
    uint32_t kill_permille;
    uint64_t kills;
};

static uint64_t scene_draw(struct scene *scene, uint64_t bound)
{
    return params_cast_draw(&scene->cast, bound);
}

/* --- The server's process --- */

static void on_server_death(struct sim_node *node, void *data)
{
    struct scene *scene = data;
    uint64_t wait_ns = scene_draw(scene, 2) == 0 ? 0 : scene_draw(scene, RESTART_MAX_NS);

    (void)node;
    params_memory_leave(scene->memory);
    scene->restart_ns = sim_world_now_ns(scene->world) + wait_ns;
}

static void start_server(struct sim_node *node, struct muster_env *env, void *data)
{
    struct scene *scene = data;
    const struct muster_params_seat_options seat = {.shard_count = SHARDS};
    struct muster_address address = sim_host_address(scene->server_host, PORT);
    struct muster_params_server_options options = {.listen = &address};
    struct muster_params_server *server = NULL;
    struct muster_error error;

    muster_params_seat_free(scene->seat); /* its holder is dead */
    scene->seat = NULL;
    if (muster_params_seat_wrap(params_memory_take(scene->memory, node), MEMORY_BYTES, &seat,
                                &scene->seat, &error) != MUSTER_OK) {
        sim_fail(scene->world, "the memory cannot be taken: %s", error.text);
        return;
    }
    options.seat = scene->seat;
    if (muster_params_server_open(env, &options, &server, &error) != MUSTER_OK)
        sim_fail(scene->world, "the server does not open: %s", error.text);
    else
        muster_params_server_set_data(server, scene);
    sim_node_set_program(node, server);
}

static void server_start(struct scene *scene)
{
    scene->server_node =
        sim_node_start(scene->world, &(struct sim_node_options){.name = "server",
                                                                .host = scene->server_host,
                                                                .start = start_server,
                                                                .on_death = on_server_death,
                                                                .data = scene});
}

/* Now, or in the middle of a push that comes. */
static void server_kill(struct scene *scene)
{
    if (!sim_node_is_alive(scene->server_node))
        return;
    scene->kills++;
    if (scene_draw(scene, 2) == 0)
        sim_kill(scene->server_node);
    else
        params_memory_kill_within(scene->memory, 1 + (uint32_t)scene_draw(scene, VALUES_PER_LIFE));
}

/* --- The play --- */

static void scene_revive(struct scene *scene, bool is_at_once)
{
    if (!sim_node_is_alive(scene->server_node) &&
        (is_at_once || sim_world_now_ns(scene->world) >= scene->restart_ns))
        server_start(scene);
    params_cast_revive(&scene->cast);
}

/* Faults strike between any two events. */
static void scene_play(struct scene *scene)
{
    uint64_t end_ns = sim_world_now_ns(scene->world) + RUN_NS;

    while (sim_world_now_ns(scene->world) < end_ns) {
        uint64_t steps = 1 + scene_draw(scene, UINT64_C(1) << scene_draw(scene, 10));

        while (steps-- > 0)
            if (!sim_step(scene->world))
                return;
        scene_revive(scene, false);
        if (scene_draw(scene, 1000) < scene->kill_permille)
            server_kill(scene);
        params_cast_replace(&scene->cast);
    }
}

static bool server_is_closed(void *data)
{
    return ((struct scene *)data)->is_server_closed;
}

static void on_server_closed(struct muster_params_server *server)
{
    struct scene *scene = muster_params_server_data(server);

    scene->is_server_closed = true;
}

static void server_exit(struct scene *scene)
{
    sim_enter(scene->server_node);
    muster_params_server_close(sim_node_program(scene->server_node), on_server_closed);
    sim_leave(scene->server_node);
    if (!sim_run_until(scene->world, server_is_closed, scene, HEAL_NS) ||
        !sim_run_for(scene->world, MUSTER_NS_PER_S))
        sim_fail(scene->world, "the server does not close");
    else
        sim_exit(scene->server_node);
}

static void scene_finish(struct scene *scene)
{
    scene_revive(scene, true);
    params_memory_spare(scene->memory);
    params_cast_finish(&scene->cast, HEAL_NS);
    if (sim_failure(scene->world) == NULL)
        server_exit(scene);
}

static void scene_open(struct scene *scene)
{
    static const uint32_t kill_permilles[] = {0, 10, 50, 200};
    struct muster_address address;

    scene->cast.world = scene->world;
    scene->cast.act_max_ns = ACT_MAX_NS;
    scene->cast.lives_max = UINT32_MAX;
    scene->cast.is_ticking = scene_draw(scene, 3) == 0;
    scene->memory = params_memory_open(MEMORY_BYTES);
    scene->kill_permille = kill_permilles[scene_draw(scene, 4)];
    scene->server_host = sim_host_add(scene->world, "server");
    address = sim_host_address(scene->server_host, PORT);
    muster_address_format(&address, scene->cast.servers);
    server_start(scene);
    params_cast_open(&scene->cast);
}

/* After the world: its processes use the memory. */
static void scene_close(struct scene *scene)
{
    muster_params_seat_free(scene->seat);
    params_memory_close(scene->memory);
    params_cast_close(&scene->cast);
}

void sim_profile_params(struct sim_run *run, const struct sim_profile *profile)
{
    struct scene scene = {.world = sim_run_open(run)};
    struct sim_faults_options options = {
        .allowed = SIM_FAULTS_ALL & ~SIM_FAULT_BIT(CRASH_HOST), /* the memory goes with the host */
        .interval_min_ns = 5 * MUSTER_NS_PER_MS,
        .interval_max_ns = 100 * MUSTER_NS_PER_MS,
        .duration_max_ns = 300 * MUSTER_NS_PER_MS,
        .count_max = 40,
    };
    struct sim_faults *faults;

    (void)profile;
    scene_open(&scene);
    faults = sim_faults_start(scene.world, &options);
    scene_play(&scene);
    sim_faults_heal(faults);
    scene_finish(&scene);
    sim_run_close(run, scene.world, sim_faults_count(faults) + scene.kills);
    sim_faults_free(faults);
    scene_close(&scene);
}
