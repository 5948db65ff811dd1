/* Profile "params_shards": clients push to several servers that share the shards of a job, with one copy or
 * two, and pull from them, while servers die, stand still, come, leave, and their leases run out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <muster/params_server.h>

#include "params/server/cluster.h"
#include "params/server/seat.h"
#include "params/store/row.h"
#include "params/store/source.h"
#include "tests/sim/faults.h"
#include "tests/sim/params_cast.h"
#include "tests/sim/params_memory.h"
#include "tests/sim/profile.h"
#include "tests/sim/registry_stage.h"
#include "tests/sim/sim_internal.h"

#define SERVERS_MAX     5u
#define SHARDS          8u
#define LIVES_MAX       6u
#define BLOWS_MAX       24u /* deaths and moves that the play makes */
#define VALUES_PER_LIFE 100u
#define EVENTS_MAX      20000u /* of a play, so that many seeds take seconds */
#define PORT            7300
#define MEMORY_BYTES    MUSTER_PARAMS_REGION_BYTES_MIN
/* Times of a quick play; slow ones are so long that leases run out. */
#define ACT_MAX_NS           (4 * MUSTER_NS_PER_MS)
#define RUN_NS               (600 * MUSTER_NS_PER_MS)
#define RESTART_MAX_NS       (20 * MUSTER_NS_PER_MS)
#define TICKING_SLOWNESS_MAX 8u
#define FAULT_MAX_NS         (300 * MUSTER_NS_PER_MS)
#define DRAIN_MAX_NS         (10 * MUSTER_NS_PER_S)
#define HEAL_NS              (60 * MUSTER_NS_PER_S)

struct scene;

struct server {
    struct scene *scene;
    uint32_t number;
    struct sim_host *host;
    struct sim_node *node;        /* NULL: never started */
    struct params_memory *memory; /* of its host: it outlives the process */
    struct muster_params_seat *seat;
    uint64_t restart_ns;
    bool is_draining, is_closed;
    bool is_empty; /* others have all that it had */
    bool is_wiped; /* the memory goes with the process */
};

struct scene {
    struct sim_world *world;
    struct params_cast cast;
    struct registry_stage *registry;
    struct sim_host *registry_host;
    struct server servers[SERVERS_MAX];
    uint32_t server_count;
    uint32_t first_count; /* servers that begin the job; the others come later */
    uint32_t replicas;
    uint64_t slowness; /* times the times of a quick play */
    bool is_wiping; /* servers lose their memory, one at a time, and nothing else happens to them */
    uint32_t kill_permille, move_permille, registry_permille;
    uint64_t registry_restart_ns;
    uint32_t blows;
};

static uint64_t scene_draw(struct scene *scene, uint64_t bound)
{
    return params_cast_draw(&scene->cast, bound);
}

static bool server_is_alive(const struct server *server)
{
    return server->node != NULL && sim_node_is_alive(server->node);
}

/* NULL: its process is dead, or has not begun. */
static struct muster_params_server *program_of(const struct server *server)
{
    return server_is_alive(server) ? sim_node_program(server->node) : NULL;
}

/* --- A server's process --- */

static void memory_renew(struct server *server)
{
    muster_params_seat_free(server->seat);
    server->seat = NULL;
    params_memory_close(server->memory);
    server->memory = params_memory_open(MEMORY_BYTES);
    server->is_wiped = server->is_empty = false;
}

static void on_server_death(struct sim_node *node, void *data)
{
    struct server *server = data;
    struct scene *scene = server->scene;
    uint64_t wait_ns =
        scene_draw(scene, 2) == 0 ? 0 : scene_draw(scene, RESTART_MAX_NS * scene->slowness);

    if (scene_draw(scene, 4) == 0) /* mostly longer than a lease, in slow plays */
        wait_ns *= 20;
    (void)node;
    params_memory_leave(server->memory);
    server->restart_ns = sim_world_now_ns(scene->world) + wait_ns;
}

static void start_server(struct sim_node *node, struct muster_env *env, void *data)
{
    struct server *server = data;
    struct scene *scene = server->scene;
    const struct muster_params_seat_options seat = {.shard_count = SHARDS};
    struct muster_address address =
        sim_host_address(server->host, (uint16_t)(PORT + server->number));
    struct muster_params_server_options options = {.listen = &address,
                                                   .job = scene->cast.job,
                                                   .registry = REGISTRY_STAGE_ENDPOINT,
                                                   .replicas = scene->replicas,
                                                   .server_count = scene->first_count};
    struct muster_params_server *program = NULL;
    struct muster_error error;

    muster_params_seat_free(server->seat); /* its holder is dead */
    server->seat = NULL;
    if (muster_params_seat_wrap(params_memory_take(server->memory, node), MEMORY_BYTES, &seat,
                                &server->seat, &error) != MUSTER_OK) {
        sim_fail(scene->world, "the memory cannot be taken: %s", error.text);
        return;
    }
    options.seat = server->seat;
    if (muster_params_server_open(env, &options, &program, &error) != MUSTER_OK)
        sim_fail(scene->world, "server %" PRIu32 " does not open: %s", server->number, error.text);
    else
        muster_params_server_set_data(program, server);
    sim_node_set_program(node, program);
}

static void server_start(struct server *server)
{
    char name[32];

    if (server->memory == NULL || server->is_wiped || server->is_empty)
        memory_renew(server);
    server->is_draining = server->is_closed = false;
    snprintf(name, sizeof(name), "server%" PRIu32, server->number);
    server->node =
        sim_node_start(server->scene->world, &(struct sim_node_options){.name = name,
                                                                        .host = server->host,
                                                                        .start = start_server,
                                                                        .on_death = on_server_death,
                                                                        .data = server});
}

/* --- Leaving --- */

static bool has_heir(const struct server *leaving)
{
    const struct scene *scene = leaving->scene;

    for (uint32_t i = 0; i < scene->server_count; i++) {
        const struct server *server = &scene->servers[i];

        if (server != leaving && server_is_alive(server) && !server->is_draining)
            return true;
    }
    return false;
}

/* A server that nobody can take shards from keeps its memory: one that learns may be given them. */
static bool memory_is_free(const struct server *server, const struct muster_params_server *program)
{
    const struct muster_params_map *map = program->map;

    for (uint32_t shard = 0; map != NULL && shard < map->shard_count; shard++) {
        if (muster_params_map_is_copy(map, shard, program->place) ||
            (muster_params_map_is_learner(map, shard, program->place) && !has_heir(server)))
            return false;
    }
    return map != NULL;
}

static void on_server_closed(struct muster_params_server *program)
{
    struct server *server = muster_params_server_data(program);

    server->is_closed = true;
    sim_node_set_program(server->node, NULL);
}

static void on_drained(struct muster_params_server *program, enum muster_rc rc)
{
    struct server *server = muster_params_server_data(program);

    server->is_empty = rc == MUSTER_OK && memory_is_free(server, program);
    muster_params_server_close(program, on_server_closed);
}

static void server_drain(struct server *server)
{
    struct scene *scene = server->scene;
    struct muster_params_server *program = program_of(server);

    if (program == NULL || server->is_draining)
        return;
    server->is_draining = true;
    scene->blows++;
    sim_note(scene->world, "drain", server->number, 0, 0);
    sim_enter(server->node);
    muster_params_server_drain(
        program,
        muster_loop_after_ns(program->env->loop, MUSTER_NS_PER_S + scene_draw(scene, DRAIN_MAX_NS)),
        on_drained);
    sim_leave(server->node);
}

/* --- The play --- */

/* Every shard has all its copies, on servers that live. */
static bool map_is_full(const struct scene *scene, const struct muster_params_map *map)
{
    uint32_t alive = 0;

    for (uint32_t i = 0; i < scene->server_count; i++) {
        const struct muster_params_server *program = program_of(&scene->servers[i]);

        if (program == NULL)
            continue;
        if (program->map == NULL || program->map->epoch != map->epoch ||
            program->place == MUSTER_PARAMS_NOWHERE)
            return false;
        alive++;
    }
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (map->shards[shard].copy_count <
            (alive < map->copies_wanted ? alive : map->copies_wanted))
            return false;
    }
    return alive == map->server_count;
}

static const struct muster_params_map *map_newest(const struct scene *scene)
{
    const struct muster_params_map *newest = NULL;

    for (uint32_t i = 0; i < scene->server_count; i++) {
        const struct muster_params_server *program = program_of(&scene->servers[i]);

        if (program != NULL && program->map != NULL &&
            (newest == NULL || program->map->epoch > newest->epoch))
            newest = program->map;
    }
    return newest;
}

/* Two copies and one loss at a time: nothing may be lost. */
static bool may_wipe(const struct scene *scene)
{
    const struct muster_params_map *map = map_newest(scene);

    for (uint32_t i = 0; i < scene->first_count; i++) {
        if (!server_is_alive(&scene->servers[i]))
            return false;
    }
    return map != NULL && map->server_count > 1 && map_is_full(scene, map);
}

/* Now, or in the middle of a push that comes. */
static void server_kill(struct scene *scene, struct server *server)
{
    if (!server_is_alive(server) || (scene->is_wiping && !may_wipe(scene)))
        return;
    server->is_wiped = scene->is_wiping;
    scene->blows++;
    if (scene->is_wiping || scene_draw(scene, 2) == 0)
        sim_kill(server->node);
    else
        params_memory_kill_within(server->memory, 1 + (uint32_t)scene_draw(scene, VALUES_PER_LIFE));
}

static void servers_revive(struct scene *scene, bool is_at_once)
{
    for (uint32_t i = 0; i < scene->server_count; i++) {
        struct server *server = &scene->servers[i];

        if (server->is_closed && server_is_alive(server))
            sim_exit(server->node);
        if (server->node != NULL && !sim_node_is_alive(server->node) && !server->is_empty &&
            (is_at_once || sim_world_now_ns(scene->world) >= server->restart_ns))
            server_start(server);
    }
    if (!sim_node_is_alive(registry_stage_node(scene->registry)) &&
        (is_at_once || sim_world_now_ns(scene->world) >= scene->registry_restart_ns))
        registry_stage_restart(scene->registry);
}

/* A server comes, or leaves. */
static void server_move(struct scene *scene)
{
    struct server *server = &scene->servers[scene_draw(scene, scene->server_count)];

    if (!server_is_alive(server) && (server->node == NULL || server->is_empty))
        server_start(server);
    else if (!scene->is_wiping)
        server_drain(server);
}

static void registry_kill(struct scene *scene)
{
    registry_stage_kill(scene->registry);
    scene->registry_restart_ns =
        sim_world_now_ns(scene->world) + scene_draw(scene, RESTART_MAX_NS * scene->slowness * 4);
    scene->blows++;
}

/* Faults strike between any two events. */
static void scene_play(struct scene *scene)
{
    uint64_t end_ns = sim_world_now_ns(scene->world) + RUN_NS * scene->slowness;

    while (sim_world_now_ns(scene->world) < end_ns &&
           sim_world_event_count(scene->world) < EVENTS_MAX) {
        uint64_t steps = 1 + scene_draw(scene, UINT64_C(1) << scene_draw(scene, 10));

        while (steps-- > 0)
            if (!sim_step(scene->world))
                return;
        servers_revive(scene, false);
        params_cast_revive(&scene->cast);
        params_cast_replace(&scene->cast);
        if (scene->blows == BLOWS_MAX)
            continue;
        if (scene_draw(scene, 1000) < scene->kill_permille)
            server_kill(scene, &scene->servers[scene_draw(scene, scene->server_count)]);
        if (scene_draw(scene, 1000) < scene->move_permille)
            server_move(scene);
        if (scene_draw(scene, 1000) < scene->registry_permille)
            registry_kill(scene);
    }
}

/* --- Copies --- */

/* A shard as one server has it: the rows, and how much of each source is in them. */
struct copy {
    const struct muster_params_region *region;
    uint32_t shard;
    struct muster_params_digest digest;
};

static void row_add(void *data, const struct muster_params_store_table *table,
                    const struct muster_params_row *row)
{
    struct copy *copy = data;

    for (uint32_t i = 0; i < table->row_elements; i++) {
        if (row->values[i] != 0) { /* else it may be there, or not be there yet */
            muster_params_digest_add(&copy->digest, table, row);
            return;
        }
    }
}

static void copy_read(struct copy *copy)
{
    const struct muster_params_region_head *head = copy->region->head;

    for (uint32_t i = 0; i < head->table_count; i++)
        muster_params_rows_visit(copy->region, &head->tables[i], copy->shard, row_add, copy);
}

static uint64_t position_of(const struct copy *copy, const struct muster_incarnation *source)
{
    uint64_t slot;
    const struct muster_params_source *found =
        muster_params_source_find(copy->region, source, &slot);

    return found != NULL ? found->positions[copy->shard] : 0;
}

static bool positions_agree(const struct copy *a, const struct copy *b)
{
    for (uint64_t slot = 0; slot < a->region->head->source_count; slot++) {
        const struct muster_params_source *source = muster_params_source_at(a->region, slot);

        if (source != NULL && source->positions[a->shard] != position_of(b, &source->id))
            return false;
    }
    return true;
}

static const struct muster_params_region *region_at(const struct scene *scene, uint32_t place)
{
    for (uint32_t i = 0; i < scene->server_count; i++) {
        const struct muster_params_server *program = program_of(&scene->servers[i]);

        if (program != NULL && program->place == place)
            return program->region;
    }
    return NULL;
}

static void shard_compare(struct scene *scene, const struct muster_params_map *map, uint32_t shard)
{
    struct copy first = {.region = region_at(scene, map->shards[shard].copies[0]), .shard = shard};

    copy_read(&first);
    for (uint32_t i = 1; i < map->shards[shard].copy_count; i++) {
        struct copy other = {.region = region_at(scene, map->shards[shard].copies[i]),
                             .shard = shard};

        copy_read(&other);
        if (memcmp(&first.digest, &other.digest, sizeof(first.digest)) != 0)
            sim_fail(scene->world, "two copies of shard %" PRIu32 " have different rows", shard);
        else if (!positions_agree(&first, &other) || !positions_agree(&other, &first))
            sim_fail(scene->world, "two copies of shard %" PRIu32 " differ about what was pushed",
                     shard);
    }
}

static void copies_compare(struct scene *scene)
{
    const struct muster_params_map *map = map_newest(scene);

    for (uint32_t shard = 0; shard < map->shard_count && sim_failure(scene->world) == NULL; shard++)
        shard_compare(scene, map, shard);
}

/* --- The end --- */

static bool servers_are_settled(void *data)
{
    struct scene *scene = data;
    const struct muster_params_map *map;

    for (uint32_t i = 0; i < scene->server_count; i++) {
        const struct server *server = &scene->servers[i];

        if (server->node == NULL || server->is_empty)
            continue;
        if (!server_is_alive(server) || server->is_draining)
            return false;
    }
    map = map_newest(scene);
    if (map == NULL || !map_is_full(scene, map))
        return false;
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (map->shards[shard].learner_count > 0)
            return false;
    }
    return true;
}

/* Servers that leave have left, or have come back, and the others have all copies. */
static void servers_settle(struct scene *scene)
{
    uint64_t end_ns = sim_world_now_ns(scene->world) + HEAL_NS;

    while (!servers_are_settled(scene)) {
        if (sim_world_now_ns(scene->world) >= end_ns) {
            sim_fail(scene->world, "the servers do not settle though all is well");
            return;
        }
        if (!sim_run_for(scene->world, 50 * MUSTER_NS_PER_MS))
            return;
        servers_revive(scene, true);
    }
}

static bool servers_are_closed(void *data)
{
    const struct scene *scene = data;

    for (uint32_t i = 0; i < scene->server_count; i++) {
        if (server_is_alive(&scene->servers[i]) && !scene->servers[i].is_closed)
            return false;
    }
    return true;
}

static void servers_exit(struct scene *scene)
{
    for (uint32_t i = 0; i < scene->server_count; i++) {
        struct server *server = &scene->servers[i];

        if (program_of(server) == NULL)
            continue;
        sim_enter(server->node);
        muster_params_server_close(program_of(server), on_server_closed);
        sim_leave(server->node);
    }
    if (!sim_run_until(scene->world, servers_are_closed, scene, HEAL_NS) ||
        !sim_run_for(scene->world, MUSTER_NS_PER_S)) {
        sim_fail(scene->world, "the servers do not close");
        return;
    }
    for (uint32_t i = 0; i < scene->server_count; i++) {
        if (server_is_alive(&scene->servers[i]))
            sim_exit(scene->servers[i].node);
    }
}

static void scene_finish(struct scene *scene)
{
    for (uint32_t i = 0; i < scene->server_count; i++) {
        if (scene->servers[i].memory != NULL)
            params_memory_spare(scene->servers[i].memory);
    }
    scene->cast.is_ending = true;
    servers_revive(scene, true);
    params_cast_revive(&scene->cast);
    servers_settle(scene);
    if (sim_failure(scene->world) == NULL)
        params_cast_finish(&scene->cast, HEAL_NS);
    if (sim_failure(scene->world) == NULL)
        copies_compare(scene);
    if (sim_failure(scene->world) == NULL)
        servers_exit(scene);
}

static void servers_cast(struct scene *scene)
{
    size_t at = 0;

    scene->first_count = 2 + (uint32_t)scene_draw(scene, 3);
    scene->server_count = scene->first_count + (uint32_t)scene_draw(scene, SERVERS_MAX - 3);
    if (scene->server_count > SERVERS_MAX)
        scene->server_count = SERVERS_MAX;
    for (uint32_t i = 0; i < scene->server_count; i++) {
        struct server *server = &scene->servers[i];
        struct muster_address address;
        char name[32], text[MUSTER_ADDRESS_TEXT_BYTES];

        snprintf(name, sizeof(name), "server%" PRIu32, i);
        server->scene = scene;
        server->number = i;
        server->host = i > 0 && scene_draw(scene, 4) == 0 ? scene->servers[i - 1].host
                                                          : sim_host_add(scene->world, name);
        address = sim_host_address(server->host, (uint16_t)(PORT + i));
        at += (size_t)snprintf(scene->cast.servers + at, sizeof(scene->cast.servers) - at, "%s%s",
                               i > 0 ? "," : "", muster_address_format(&address, text));
        if (i < scene->first_count)
            server_start(server);
    }
}

static void scene_open(struct scene *scene)
{
    static const uint32_t kill_permilles[] = {0, 10, 30, 100};
    static const uint64_t slownesses[] = {1, 1, 8, 20};

    scene->cast.world = scene->world;
    scene->cast.has_several_servers = true;
    scene->cast.job = REGISTRY_STAGE_JOB;
    scene->replicas = 1 + (uint32_t)scene_draw(scene, 2);
    scene->slowness = slownesses[scene_draw(scene, 4)];
    scene->cast.act_max_ns = ACT_MAX_NS * scene->slowness;
    scene->cast.lives_max = LIVES_MAX;
    /* Sources that tick are given up after 10 s without a link: no cut lasts so long. */
    scene->cast.is_ticking = scene->slowness <= TICKING_SLOWNESS_MAX && scene_draw(scene, 2) == 0;
    scene->is_wiping = scene->replicas > 1 && scene->slowness > 1 && scene_draw(scene, 3) == 0;
    scene->kill_permille = kill_permilles[scene_draw(scene, 4)];
    scene->move_permille = scene_draw(scene, 2) == 0 ? 0 : 20;
    scene->registry_permille = scene->is_wiping || scene_draw(scene, 2) == 0 ? 0 : 5;
    scene->registry_host = sim_host_add(scene->world, "registry");
    scene->registry = registry_stage_open(scene->world, scene->registry_host, NULL);
    servers_cast(scene);
    params_cast_open(&scene->cast);
}

/* After the world: its processes use the memory. */
static void scene_close(struct scene *scene)
{
    for (uint32_t i = 0; i < scene->server_count; i++) {
        muster_params_seat_free(scene->servers[i].seat);
        params_memory_close(scene->servers[i].memory);
    }
    params_cast_close(&scene->cast);
    free(scene);
}

/* The registry does not forget what it has accepted, so it does not die at random. */
static bool may_hit(void *data, enum sim_fault_kind kind, struct sim_node *node)
{
    const struct scene *scene = data;
    const struct sim_host *host = sim_node_host(node);

    if (host == scene->registry_host)
        return !scene->is_wiping && (SIM_FAULTS_DEADLY >> kind & 1u) == 0;
    for (uint32_t i = 0; i < scene->server_count && scene->is_wiping; i++) {
        if (host == scene->servers[i].host)
            return false;
    }
    return true;
}

void sim_profile_params_shards(struct sim_run *run, const struct sim_profile *profile)
{
    struct scene *scene = sim_alloc(sizeof(*scene));
    struct sim_faults_options options = {
        .allowed = SIM_FAULTS_ALL & ~SIM_FAULT_BIT(CRASH_HOST), /* the memory goes with the host */
        .count_max = 40,
        .may_hit = may_hit,
        .data = scene,
    };
    struct sim_faults *faults;

    (void)profile;
    scene->world = sim_run_open(run);
    scene_open(scene);
    options.interval_min_ns = 5 * MUSTER_NS_PER_MS * scene->slowness;
    options.interval_max_ns = 100 * MUSTER_NS_PER_MS * scene->slowness;
    options.duration_max_ns = FAULT_MAX_NS * scene->slowness;
    if (scene->is_wiping) /* what ends a lease would be a second loss */
        options.allowed &= ~(SIM_FAULT_BIT(STALL) | SIM_FAULT_BIT(CUT) |
                             SIM_FAULT_BIT(CUT_ONE_WAY) | SIM_FAULT_BIT(ISOLATE));
    faults = sim_faults_start(scene->world, &options);
    scene_play(scene);
    sim_faults_heal(faults);
    if (sim_failure(scene->world) == NULL)
        scene_finish(scene);
    registry_stage_close(scene->registry);
    sim_run_close(run, scene->world, sim_faults_count(faults) + scene->blows);
    sim_faults_free(faults);
    scene_close(scene);
}
