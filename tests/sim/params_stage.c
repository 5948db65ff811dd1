/* Servers of parameters in a play: they share the shards of a job, die, leave, lose their memory, come back. */
#include "tests/sim/params_stage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "params/server/followers/follower.h"
#include "params/server/seat/seat.h"
#include "tests/sim/params_aside.h"
#include "tests/sim/profile.h"
#include "tests/sim/sim_internal.h"

#define VALUES_PER_LIFE 100u
#define PORT            7300
#define RESTART_MAX_NS  (20 * MUSTER_NS_PER_MS)
#define DRAIN_MAX_NS    (10 * MUSTER_NS_PER_S)
#define FAULT_MAX_NS    (300 * MUSTER_NS_PER_MS)
#define UNHEARD_NS      (40 * MUSTER_NS_PER_MS)
#define BLOWS_MAX       24u

static uint64_t stage_draw(struct params_stage *stage, uint64_t bound)
{
    return muster_rng_below(sim_world_rng(stage->world), bound);
}

bool params_server_is_alive(const struct params_server *server)
{
    return server->node != NULL && sim_node_is_alive(server->node);
}

/* NULL: its process is dead, or has not begun. */
struct muster_params_server *params_server_program(const struct params_server *server)
{
    return params_server_is_alive(server) ? sim_node_program(server->node) : NULL;
}

/* --- A server's process --- */

static size_t stage_memory_bytes(const struct params_stage *stage)
{
    return stage->memory_bytes > 0 ? stage->memory_bytes : MUSTER_PARAMS_REGION_BYTES_MIN;
}

static void memory_renew(struct params_server *server)
{
    muster_params_seat_free(server->seat);
    server->seat = NULL;
    params_memory_close(server->memory);
    server->memory = params_memory_open(stage_memory_bytes(server->stage));
    server->is_wiped = server->is_empty = false;
}

static void registry_kill(struct params_stage *stage)
{
    registry_stage_kill(stage->registry);
    stage->registry_restart_ns =
        sim_world_now_ns(stage->world) + stage_draw(stage, RESTART_MAX_NS * stage->slowness * 4);
    stage->blows++;
}

typedef void hosts_fn(struct sim_world *world, struct sim_host *a, struct sim_host *b);

static void sim_cut_one_way(struct sim_world *world, struct sim_host *a, struct sim_host *b)
{
    sim_cut(world, a, b, SIM_ONE_WAY);
}

static void others_cut(struct params_server *server, hosts_fn *change)
{
    struct params_stage *stage = server->stage;

    for (uint32_t i = 0; i < stage->server_count; i++)
        if (stage->servers[i].host != server->host)
            change(stage->world, stage->servers[i].host, server->host);
}

/* The primary dies before it hears that its copies differ. */
static void blow_again(void *data)
{
    struct params_server *server = data;

    if (server->stage->is_doubled && params_server_is_alive(server))
        sim_kill(server->node);
}

static void blow_heal(void *data)
{
    struct params_server *server = data;

    server->is_unheard = false;
    others_cut(server, sim_heal);
}

/* Nobody sends again what one server has applied alone, and no map drops the other one. */
static void blow_double(void *data)
{
    struct params_server *server = data;
    struct params_stage *stage = server->stage;

    if (!stage->is_doubled)
        return;
    stage->kill_clients(stage->clients);
    if (server->node != NULL && !sim_node_is_alive(server->node) && !server->is_empty)
        params_server_start(server);
    if (server->is_unheard || stage_draw(stage, 4) == 0)
        registry_kill(stage);
    else
        stage->watched = server;
}

/* Its copies get its pushes from now on, and their answers do not arrive. */
static void watched_check(void *data)
{
    struct params_stage *stage = data;
    struct params_server *server = stage->watched;
    const struct muster_params_server *program =
        server != NULL ? params_server_program(server) : NULL;

    if (program == NULL)
        return;
    MUSTER_LIST_EACH (&program->followers, follower, struct muster_params_follower, node) {
        if (!follower->is_met || stage->watched == NULL)
            continue;
        stage->watched = NULL;
        server->is_unheard = true;
        others_cut(server, sim_cut_one_way);
        sim_at(stage->world, sim_world_now_ns(stage->world) + stage_draw(stage, UNHEARD_NS),
               blow_again, server);
        sim_at(stage->world, sim_world_now_ns(stage->world) + UNHEARD_NS, blow_heal, server);
    }
}

static void on_server_death(struct sim_node *node, void *data)
{
    struct params_server *server = data;
    struct params_stage *stage = server->stage;
    uint64_t wait_ns =
        stage_draw(stage, 2) == 0 ? 0 : stage_draw(stage, RESTART_MAX_NS * stage->slowness);

    if (stage_draw(stage, 4) == 0) /* mostly longer than a lease, in slow plays */
        wait_ns *= 20;
    (void)node;
    params_memory_leave(server->memory);
    server->restart_ns = sim_world_now_ns(stage->world) + wait_ns;
    stage->last_dead = server;
    if (stage->is_doubled)
        sim_at(stage->world, sim_world_now_ns(stage->world), blow_double, server);
}

static void start_server(struct sim_node *node, struct muster_env *env, void *data)
{
    struct params_server *server = data;
    struct params_stage *stage = server->stage;
    const struct muster_params_seat_options seat = {
        .shard_count = stage->shards > 0 ? stage->shards : PARAMS_STAGE_SHARDS};
    struct muster_address address =
        sim_host_address(server->host, (uint16_t)(PORT + server->number));
    struct muster_params_server_options options = {.listen = &address,
                                                   .job = stage->job,
                                                   .registry = REGISTRY_STAGE_ENDPOINT,
                                                   .replicas = stage->replicas,
                                                   .server_count = stage->first_count,
                                                   .restore = stage->restore};
    struct muster_params_server *program = NULL;
    struct muster_error error;

    muster_params_seat_free(server->seat); /* its holder is dead */
    server->seat = NULL;
    if (muster_params_seat_wrap(params_memory_take(server->memory, node), stage_memory_bytes(stage),
                                &seat, &server->seat, &error) != MUSTER_OK) {
        sim_fail(stage->world, "the memory cannot be taken: %s", error.text);
        return;
    }
    options.seat = server->seat;
    if (muster_params_server_open(env, &options, &program, &error) != MUSTER_OK)
        sim_fail(stage->world, "server %" PRIu32 " does not open: %s", server->number, error.text);
    else
        muster_params_server_set_data(program, server);
    sim_node_set_program(node, program);
}

void params_server_start(struct params_server *server)
{
    char name[32];

    if (server->memory == NULL || server->is_wiped || server->is_empty)
        memory_renew(server);
    server->is_draining = server->is_closed = false;
    snprintf(name, sizeof(name), "server%" PRIu32, server->number);
    server->node =
        sim_node_start(server->stage->world, &(struct sim_node_options){.name = name,
                                                                        .host = server->host,
                                                                        .start = start_server,
                                                                        .on_death = on_server_death,
                                                                        .data = server});
}

/* --- Leaving --- */

static bool has_heir(const struct params_server *leaving)
{
    const struct params_stage *stage = leaving->stage;

    for (uint32_t i = 0; i < stage->server_count; i++) {
        const struct params_server *server = &stage->servers[i];

        if (server != leaving && params_server_is_alive(server) && !server->is_draining)
            return true;
    }
    return false;
}

/* A server that nobody can take shards from keeps its memory: one that learns may be given them. */
static bool memory_is_free(const struct params_server *server,
                           const struct muster_params_server *program)
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
    struct params_server *server = muster_params_server_data(program);

    server->is_closed = true;
    sim_node_set_program(server->node, NULL);
}

static void on_drained(struct muster_params_server *program, enum muster_rc rc)
{
    struct params_server *server = muster_params_server_data(program);

    server->is_empty = rc == MUSTER_OK && memory_is_free(server, program);
    muster_params_server_close(program, on_server_closed);
}

void params_server_drain(struct params_server *server)
{
    struct params_stage *stage = server->stage;
    struct muster_params_server *program = params_server_program(server);

    if (program == NULL || server->is_draining)
        return;
    server->is_draining = true;
    stage->blows++;
    sim_note(stage->world, "drain", server->number, 0, 0);
    sim_enter(server->node);
    muster_params_server_drain(
        program,
        muster_loop_after_ns(program->env->loop, MUSTER_NS_PER_S + stage_draw(stage, DRAIN_MAX_NS)),
        on_drained);
    sim_leave(server->node);
}

/* --- Faults --- */

/* Every shard has all its copies, on servers that live. */
static bool map_is_full(const struct params_stage *stage, const struct muster_params_map *map)
{
    uint32_t alive = 0;

    for (uint32_t i = 0; i < stage->server_count; i++) {
        const struct muster_params_server *program = params_server_program(&stage->servers[i]);

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

const struct muster_params_map *params_stage_map(const struct params_stage *stage)
{
    const struct muster_params_map *newest = NULL;

    for (uint32_t i = 0; i < stage->server_count; i++) {
        const struct muster_params_server *program = params_server_program(&stage->servers[i]);

        if (program != NULL && program->map != NULL &&
            (newest == NULL || program->map->epoch > newest->epoch))
            newest = program->map;
    }
    return newest;
}

/* All copies but one may be lost, at any time after all were there: nothing is. */
static bool may_wipe(struct params_stage *stage)
{
    const struct muster_params_map *map = params_stage_map(stage);
    bool is_full = map != NULL && map->server_count > 1 && map_is_full(stage, map);

    for (uint32_t i = 0; i < stage->first_count; i++)
        is_full = is_full && params_server_is_alive(&stage->servers[i]);
    for (uint32_t shard = 0; is_full && shard < map->shard_count; shard++) {
        uint32_t copies = map->shards[shard].copy_count < map->copies_wanted
                              ? map->shards[shard].copy_count
                              : map->copies_wanted; /* a shard that moves has more */

        if (shard == 0 || copies <= stage->losses_left)
            stage->losses_left = copies - 1u;
    }
    return stage->losses_left > 0;
}

/* Now, or in the middle of a push that comes. */
static void server_kill(struct params_stage *stage, struct params_server *server)
{
    if (!params_server_is_alive(server) || (stage->is_wiping && !may_wipe(stage)))
        return;
    server->is_wiped = stage->is_wiping;
    stage->losses_left -= stage->is_wiping;
    stage->blows++;
    if (stage->is_wiping || stage_draw(stage, 2) == 0)
        sim_kill(server->node);
    else
        params_memory_kill_within(server->memory, 1 + (uint32_t)stage_draw(stage, VALUES_PER_LIFE));
}

void params_stage_revive(struct params_stage *stage, bool is_at_once)
{
    for (uint32_t i = 0; i < stage->server_count; i++) {
        struct params_server *server = &stage->servers[i];

        if (server->is_closed && params_server_is_alive(server))
            sim_exit(server->node);
        if (server->node != NULL && !sim_node_is_alive(server->node) && !server->is_empty &&
            (is_at_once || sim_world_now_ns(stage->world) >= server->restart_ns))
            params_server_start(server);
    }
    if (!sim_node_is_alive(registry_stage_node(stage->registry)) &&
        (is_at_once || sim_world_now_ns(stage->world) >= stage->registry_restart_ns))
        registry_stage_restart(stage->registry);
}

/* A server comes, or leaves. */
static void server_move(struct params_stage *stage)
{
    struct params_server *server = &stage->servers[stage_draw(stage, stage->server_count)];

    if (!params_server_is_alive(server) && (server->node == NULL || server->is_empty))
        params_server_start(server);
    else if (!stage->is_wiping)
        params_server_drain(server);
}

/* --- The end --- */

bool params_stage_is_settled(void *data)
{
    struct params_stage *stage = data;
    const struct muster_params_map *map;

    for (uint32_t i = 0; i < stage->server_count; i++) {
        const struct params_server *server = &stage->servers[i];

        if (server->node == NULL || server->is_empty)
            continue;
        if (!params_server_is_alive(server) || server->is_draining ||
            params_server_program(server) == NULL) /* it opens its port, and joins then */
            return false;
    }
    map = params_stage_map(stage);
    if (map == NULL || !map_is_full(stage, map))
        return false;
    for (uint32_t shard = 0; shard < map->shard_count; shard++) {
        if (map->shards[shard].learner_count > 0)
            return false;
    }
    return true;
}

/* Servers that leave have left, or have come back, and the others have all copies. */
void params_stage_settle(struct params_stage *stage)
{
    uint64_t end_ns = sim_world_now_ns(stage->world) + PARAMS_STAGE_HEAL_NS;

    while (!params_stage_is_settled(stage)) {
        if (sim_world_now_ns(stage->world) >= end_ns) {
            sim_fail(stage->world, "the servers do not settle though all is well");
            return;
        }
        if (!sim_run_for(stage->world, 50 * MUSTER_NS_PER_MS))
            return;
        params_stage_revive(stage, true);
    }
}

static bool servers_are_closed(void *data)
{
    const struct params_stage *stage = data;

    for (uint32_t i = 0; i < stage->server_count; i++) {
        if (params_server_is_alive(&stage->servers[i]) && !stage->servers[i].is_closed)
            return false;
    }
    return true;
}

void params_stage_exit(struct params_stage *stage)
{
    for (uint32_t i = 0; i < stage->server_count; i++) {
        struct params_server *server = &stage->servers[i];

        if (params_server_program(server) == NULL)
            continue;
        sim_enter(server->node);
        muster_params_server_close(params_server_program(server), on_server_closed);
        sim_leave(server->node);
    }
    if (!sim_run_until(stage->world, servers_are_closed, stage, PARAMS_STAGE_HEAL_NS) ||
        !sim_run_for(stage->world, MUSTER_NS_PER_S)) {
        sim_fail(stage->world, "the servers do not close");
        return;
    }
    for (uint32_t i = 0; i < stage->server_count; i++) {
        if (params_server_is_alive(&stage->servers[i]))
            sim_exit(stage->servers[i].node);
    }
}

static struct sim_host *server_host(struct params_stage *stage, uint32_t number)
{
    char name[32];

    if (number == 0 && stage->host != NULL)
        return stage->host;
    if (number > 0 && !stage->is_apart && (stage->is_one_host || stage_draw(stage, 4) == 0))
        return stage->servers[number - 1].host;
    snprintf(name, sizeof(name), "server%" PRIu32, number);
    return sim_host_add(stage->world, name);
}

static void servers_cast(struct params_stage *stage)
{
    size_t at = 0;

    for (uint32_t i = 0; i < stage->server_count; i++) {
        struct params_server *server = &stage->servers[i];
        struct muster_address address;
        char text[MUSTER_ADDRESS_TEXT_BYTES];

        server->stage = stage;
        server->number = i;
        server->host = server_host(stage, i);
        address = sim_host_address(server->host, (uint16_t)(PORT + i));
        at += (size_t)snprintf(stage->addresses + at, sizeof(stage->addresses) - at, "%s%s",
                               i > 0 ? "," : "", muster_address_format(&address, text));
        if (i < stage->first_count)
            params_server_start(server);
    }
}

void params_stage_draw(struct params_stage *stage)
{
    static const uint32_t kill_permilles[] = {0, 10, 30, 100};
    static const uint64_t slownesses[] = {1, 1, 8, 20};

    stage->replicas = 1 + (uint32_t)stage_draw(stage, 3);
    stage->slowness = slownesses[stage_draw(stage, 4)];
    stage->is_wiping = stage->replicas > 1 && stage->slowness > 1 && stage_draw(stage, 3) == 0;
    stage->kill_permille = kill_permilles[stage_draw(stage, 4)];
    stage->move_permille = stage_draw(stage, 2) == 0 ? 0 : 20;
    stage->registry_permille = stage->is_wiping || stage_draw(stage, 2) == 0 ? 0 : 5;
    stage->first_count = 2 + (uint32_t)stage_draw(stage, 3);
    stage->server_count = stage->first_count + (uint32_t)stage_draw(stage, 2);
    if (stage->server_count > PARAMS_STAGE_SERVERS_MAX)
        stage->server_count = PARAMS_STAGE_SERVERS_MAX;
    stage->blows_max = BLOWS_MAX;
    stage->is_doubled = stage->replicas > 1 && stage->slowness == 1 && stage_draw(stage, 3) == 0;
    if (stage->is_doubled)
        stage->kill_permille = 100;
}

void params_stage_open(struct params_stage *stage)
{
    params_aside_link();
    if (stage->job == NULL)
        stage->job = REGISTRY_STAGE_JOB;
    if (stage->registry == NULL) {
        stage->registry_host = sim_host_add(stage->world, "registry");
        stage->registry = registry_stage_open(stage->world, stage->registry_host, NULL);
    }
    servers_cast(stage);
    if (stage->is_doubled)
        sim_oracle_add(stage->world, watched_check, stage);
}

void params_stage_close(struct params_stage *stage)
{
    for (uint32_t i = 0; i < stage->server_count; i++) {
        muster_params_seat_free(stage->servers[i].seat);
        params_memory_close(stage->servers[i].memory);
    }
}

/* Soon after a loss, a server that has come to lead a shard by it. */
static void heir_kill(struct params_stage *stage)
{
    const struct muster_params_map *map = params_stage_map(stage);
    uint32_t shard, primary;

    if (map == NULL || map->epoch == stage->seen_map)
        return;
    stage->seen_map = map->epoch;
    shard = (uint32_t)stage_draw(stage, map->shard_count);
    if (stage->losses_left == 0 || map->shards[shard].since != map->epoch || map->epoch == 1)
        return;
    primary = map->shards[shard].copies[0];
    for (uint32_t i = 0; i < stage->server_count; i++) {
        const struct muster_params_server *program = params_server_program(&stage->servers[i]);

        if (program == NULL || program->place != primary)
            continue;
        if (stage_draw(stage, 2) == 0)
            server_kill(stage, &stage->servers[i]); /* the map may go with it */
        return;
    }
}

/* Each loss takes one copy of a shard, and nothing else does, a move neither: as many others may still be lost. */
static void copies_count(struct params_stage *stage)
{
    const struct muster_params_map *map = params_stage_map(stage);

    if (stage->is_wiping)
        (void)may_wipe(stage);
    for (uint32_t shard = 0; map != NULL && shard < map->shard_count; shard++) {
        if (map->shards[shard].copy_count <= stage->losses_left)
            sim_fail(stage->world, "shard %" PRIu32 " has %u copies, and %" PRIu32 " may be lost",
                     shard, map->shards[shard].copy_count, stage->losses_left);
    }
}

void params_stage_strike(struct params_stage *stage)
{
    copies_count(stage);
    if (stage->blows >= stage->blows_max)
        return;
    if (stage->is_wiping && stage->replicas > 2)
        heir_kill(stage);
    if (stage_draw(stage, 1000) < stage->kill_permille)
        server_kill(stage,
                    stage->is_doubled && stage->last_dead != NULL && stage_draw(stage, 2) == 0
                        ? stage->last_dead
                        : &stage->servers[stage_draw(stage, stage->server_count)]);
    if (stage_draw(stage, 1000) < stage->move_permille)
        server_move(stage);
    if (stage_draw(stage, 1000) < stage->registry_permille)
        registry_kill(stage);
}

void params_stage_spare(struct params_stage *stage)
{
    stage->watched = NULL;
    stage->is_doubled = false;
    for (uint32_t i = 0; i < stage->server_count; i++) {
        if (stage->servers[i].memory != NULL)
            params_memory_spare(stage->servers[i].memory);
    }
}

uint32_t params_stage_place(const struct params_server *server)
{
    const struct muster_params_server *program = params_server_program(server);

    return program != NULL ? program->place : MUSTER_PARAMS_NOWHERE;
}

struct params_server *params_stage_primary(struct params_stage *stage, uint32_t shard)
{
    const struct muster_params_map *map = params_stage_map(stage);

    for (uint32_t i = 0; i < stage->server_count && map != NULL; i++) {
        const struct muster_params_server *program = params_server_program(&stage->servers[i]);

        if (program != NULL && map->shards[shard].copy_count > 0 &&
            program->place == map->shards[shard].copies[0])
            return &stage->servers[i];
    }
    return NULL;
}

/* The registry does not forget what it has accepted, so it does not die at random. */
static bool may_hit(void *data, enum sim_fault_kind kind, struct sim_node *node)
{
    const struct params_stage *stage = data;
    const struct sim_host *host = sim_node_host(node);

    if (host == stage->registry_host)
        return !stage->is_wiping && (SIM_FAULTS_DEADLY >> kind & 1u) == 0;
    for (uint32_t i = 0; i < stage->server_count && stage->is_wiping; i++) {
        if (host == stage->servers[i].host)
            return false;
    }
    return true;
}

struct sim_faults_options params_stage_faults(struct params_stage *stage)
{
    struct sim_faults_options options = {
        .allowed = SIM_FAULTS_ALL & ~SIM_FAULT_BIT(CRASH_HOST), /* the memory goes with the host */
        .interval_min_ns = 5 * MUSTER_NS_PER_MS * stage->slowness,
        .interval_max_ns = 100 * MUSTER_NS_PER_MS * stage->slowness,
        .duration_max_ns = FAULT_MAX_NS * stage->slowness,
        .count_max = 40,
        .may_hit = may_hit,
        .data = stage,
    };

    if (stage->is_wiping) /* what ends a lease would be a second loss */
        options.allowed &= ~(SIM_FAULT_BIT(STALL) | SIM_FAULT_BIT(CUT) |
                             SIM_FAULT_BIT(CUT_ONE_WAY) | SIM_FAULT_BIT(ISOLATE));
    return options;
}

void params_stage_run(struct params_stage *stage, struct sim_run *run, void *scene,
                      params_stage_scene_fn *play, params_stage_scene_fn *finish)
{
    struct sim_faults_options options = params_stage_faults(stage);
    struct sim_faults *faults = sim_faults_start(stage->world, &options);

    play(scene);
    sim_faults_heal(faults);
    if (sim_failure(stage->world) == NULL)
        finish(scene);
    registry_stage_close(stage->registry);
    sim_run_close(run, stage->world, sim_faults_count(faults) + stage->blows);
    sim_faults_free(faults);
    params_stage_close(stage);
}
