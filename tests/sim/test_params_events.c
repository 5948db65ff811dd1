/* One event at a time strikes a job of parameters amid pushes and pulls: what goes on, what waits, who leads then.
 * In all of them no push is lost or doubled, and pulls are linearizable (params_books.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/assertion_count.h"
#include "tests/sim/params_cast.h"
#include "tests/sim/params_stage.h"
#include "tests/sim/sim_internal.h"

#define SERVERS         3u
#define SHARD           0u /* whose primary is struck */
#define WARM_OPS        100u
#define ENOUGH_OPS      300u
#define OPEN_NS         (20 * MUSTER_NS_PER_S)
#define MILLISECONDS(n) ((n)*MUSTER_NS_PER_MS)

struct scene;

/* A row of the table: what strikes, and what comes of it. */
struct event {
    const char *name;
    uint32_t replicas;
    bool is_one_host; /* where a death is seen at once */
    void (*strike)(struct scene *scene);
    uint64_t away_ns;  /* until mend; the job is watched meanwhile */
    bool does_wait;    /* operations on the shard wait for mend; else they go on at once */
    uint64_t limit_ns; /* until enough operations have ended, after the event or after mend */
    bool changes_map;
    void (*mend)(struct scene *scene);
};

struct scene {
    const struct event *event;
    struct sim_world *world;
    struct params_stage stage;
    struct params_cast cast;
    struct params_server *struck;
    uint64_t op_target;
};

static struct params_server *copy_of(struct scene *scene, uint32_t copy)
{
    const struct muster_params_map *map = params_stage_map(&scene->stage);

    for (uint32_t i = 0; i < SERVERS; i++) {
        struct params_server *server = &scene->stage.servers[i];

        if (params_stage_place(server) == map->shards[SHARD].copies[copy])
            return server;
    }
    fail_msg("no server has copy %u", copy);
    return NULL;
}

/* --- Events --- */

static void primary_kill(struct scene *scene)
{
    scene->struck = copy_of(scene, 0);
    sim_kill(scene->struck->node);
}

static void backup_kill(struct scene *scene)
{
    scene->struck = copy_of(scene, 1);
    sim_kill(scene->struck->node);
}

/* Its spare goes on in the same memory. */
static void process_replace(struct scene *scene)
{
    primary_kill(scene);
    params_server_start(scene->struck);
}

static void client_kill(struct scene *scene)
{
    sim_kill(scene->cast.sources[0].life->node);
}

static void registry_kill(struct scene *scene)
{
    registry_stage_kill(scene->stage.registry);
}

static void registry_restart(struct scene *scene)
{
    registry_stage_restart(scene->stage.registry);
}

static void primary_stop(struct scene *scene)
{
    scene->struck = copy_of(scene, 0);
    sim_pause(scene->struck->node);
}

static void primary_resume(struct scene *scene)
{
    sim_resume(scene->struck->node);
}

static void primary_isolate(struct scene *scene)
{
    struct sim_host *host;

    scene->struck = copy_of(scene, 0);
    host = scene->struck->host;
    sim_cut(scene->world, host, scene->stage.registry_host, SIM_BOTH_WAYS);
    for (uint32_t i = 0; i < SERVERS; i++)
        if (scene->stage.servers[i].host != host)
            sim_cut(scene->world, host, scene->stage.servers[i].host, SIM_BOTH_WAYS);
    for (uint32_t i = 1; i < scene->cast.source_count; i++) /* client 0 is on its side */
        sim_cut(scene->world, host, scene->cast.hosts[i], SIM_BOTH_WAYS);
}

static void network_heal(struct scene *scene)
{
    sim_heal_all(scene->world);
}

static const struct event events[] = {
    {.name = "primary killed, two replicas",
     .replicas = 2,
     .is_one_host = true,
     .strike = primary_kill,
     .limit_ns = MILLISECONDS(500),
     .changes_map = true},
    {.name = "process killed, one replica",
     .replicas = 1,
     .is_one_host = true,
     .strike = process_replace,
     .limit_ns = MILLISECONDS(500)},
    {.name = "host lost, two replicas",
     .replicas = 2,
     .strike = primary_isolate,
     .away_ns = MILLISECONDS(8000),
     .limit_ns = MILLISECONDS(8000),
     .changes_map = true,
     .mend = network_heal},
    {.name = "host lost, one replica",
     .replicas = 1,
     .strike = primary_isolate,
     .away_ns = MILLISECONDS(8000),
     .does_wait = true,
     .limit_ns = MILLISECONDS(3000),
     .mend = network_heal},
    {.name = "backup killed",
     .replicas = 2,
     .is_one_host = true,
     .strike = backup_kill,
     .limit_ns = MILLISECONDS(500),
     .changes_map = true},
    {.name = "client killed", .replicas = 2, .strike = client_kill, .limit_ns = MILLISECONDS(500)},
    {.name = "registry away",
     .replicas = 2,
     .strike = registry_kill,
     .away_ns = MILLISECONDS(5000),
     .limit_ns = MILLISECONDS(500),
     .mend = registry_restart},
    {.name = "server stopped for a second",
     .replicas = 2,
     .strike = primary_stop,
     .away_ns = MILLISECONDS(1000),
     .does_wait = true,
     .limit_ns = MILLISECONDS(1000),
     .mend = primary_resume},
    {.name = "server stopped for long, on another host",
     .replicas = 2,
     .strike = primary_stop,
     .away_ns = MILLISECONDS(10000),
     .limit_ns = MILLISECONDS(10000),
     .changes_map = true,
     .mend = primary_resume},
};

/* --- The play --- */

static void scene_check(const struct scene *scene)
{
    if (sim_failure(scene->world) != NULL)
        fail_msg("%s: %s", scene->event->name, sim_failure(scene->world));
}

static bool ops_have_ended(void *data)
{
    const struct scene *scene = data;

    return scene->cast.op_count >= scene->op_target;
}

static bool is_warm(void *data)
{
    struct scene *scene = data;

    return params_stage_is_settled(&scene->stage) && scene->cast.op_count >= WARM_OPS;
}

static void ops_await(struct scene *scene, uint64_t limit_ns)
{
    scene->op_target = scene->cast.op_count + ENOUGH_OPS;
    if (!sim_run_until(scene->world, ops_have_ended, scene, limit_ns))
        fail_msg("%s: %s", scene->event->name,
                 sim_failure(scene->world) != NULL ? sim_failure(scene->world)
                                                   : "operations do not go on");
    assert_true(scene->cast.op_count >= scene->op_target);
}

static void scene_open(struct scene *scene, const struct event *event)
{
    struct params_stage *stage = &scene->stage;

    scene->event = event;
    scene->world = stage->world = scene->cast.world = sim_world_open(7, &sim_conditions_calm);
    stage->replicas = event->replicas;
    stage->is_one_host = event->is_one_host;
    stage->is_apart = !event->is_one_host;
    stage->slowness = 1;
    stage->first_count = stage->server_count = SERVERS;
    params_stage_open(stage);
    scene->cast.has_several_servers = true;
    scene->cast.job = stage->job;
    snprintf(scene->cast.servers, sizeof(scene->cast.servers), "%s", stage->addresses);
    scene->cast.act_max_ns = MILLISECONDS(4);
    scene->cast.lives_max = 1;
    params_cast_open(&scene->cast);
    if (!sim_run_until(scene->world, is_warm, scene, OPEN_NS))
        fail_msg("%s: it does not begin", event->name);
}

static void scene_close(struct scene *scene)
{
    registry_stage_close(scene->stage.registry);
    (void)!sim_world_close(scene->world);
    params_stage_close(&scene->stage);
    params_cast_close(&scene->cast);
    free(scene);
}

/* Whatever was away is back; then all is as if nothing had been. */
static void scene_finish(struct scene *scene)
{
    scene->cast.is_ending = true;
    params_stage_revive(&scene->stage, true);
    params_cast_revive(&scene->cast);
    params_stage_settle(&scene->stage);
    scene_check(scene);
    params_cast_finish(&scene->cast, PARAMS_STAGE_HEAL_NS);
    scene_check(scene);
    params_stage_compare(&scene->stage);
    params_stage_exit(&scene->stage);
    scene_check(scene);
}

static void event_play(const struct event *event)
{
    struct scene *scene = sim_alloc(sizeof(*scene));
    uint64_t epoch, end_ns;

    scene_open(scene, event);
    epoch = params_stage_map(&scene->stage)->epoch;
    event->strike(scene);
    end_ns = sim_world_now_ns(scene->world) + event->away_ns;
    if (!event->does_wait)
        ops_await(scene, event->limit_ns);
    if (event->changes_map && params_stage_map(&scene->stage)->epoch == epoch)
        fail_msg("%s: the map has not changed", event->name);
    if (sim_world_now_ns(scene->world) < end_ns)
        (void)sim_run_for(scene->world, end_ns - sim_world_now_ns(scene->world));
    scene_check(scene);
    if (!event->changes_map && params_stage_map(&scene->stage)->epoch != epoch)
        fail_msg("%s: the map has changed", event->name);
    if (event->mend != NULL)
        event->mend(scene);
    if (event->does_wait)
        ops_await(scene, event->limit_ns);
    scene_finish(scene);
    scene_close(scene);
}

static void each_event_has_its_outcome(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        print_message("%s\n", events[i].name);
        event_play(&events[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_event_has_its_outcome),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
