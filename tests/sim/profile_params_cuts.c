/* Profile "params_cuts": a client asks for cuts while servers and clients die. What is whole in the folder has of
 * each source all pushes up to one; a job of another number of servers begins with it. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/params_cuts.h"
#include "tests/sim/profile.h"
#include "tests/sim/sim_internal.h"

#define LIVES_MAX    6u
#define EVENTS_MAX   20000u
#define ACT_MAX_NS   (4 * MUSTER_NS_PER_MS)
#define RUN_NS       (600 * MUSTER_NS_PER_MS)
#define SLOWNESS_MAX 8u

struct scene {
    struct sim_world *world;
    struct params_stage stage, next; /* next: begins with the newest cut */
    struct params_cast cast;
    struct params_cuts cuts;
};

static uint64_t scene_draw(struct scene *scene, uint64_t bound)
{
    return params_cast_draw(&scene->cast, bound);
}

static void scene_play(void *data)
{
    struct scene *scene = data;
    uint64_t end_ns = sim_world_now_ns(scene->world) + RUN_NS * scene->stage.slowness;

    while (sim_world_now_ns(scene->world) < end_ns &&
           sim_world_event_count(scene->world) < EVENTS_MAX) {
        uint64_t steps = 1 + scene_draw(scene, UINT64_C(1) << scene_draw(scene, 10));

        while (steps-- > 0)
            if (!sim_step(scene->world))
                return;
        params_stage_revive(&scene->stage, false);
        params_cast_revive(&scene->cast);
        params_stage_strike(&scene->stage);
    }
}

static void next_open(struct scene *scene)
{
    struct params_stage *next = &scene->next;

    next->world = scene->world;
    next->job = "restored";
    next->restore = PARAMS_CUTS_FOLDER;
    next->registry = scene->stage.registry;
    next->registry_host = scene->stage.registry_host;
    next->is_one_host = true;
    next->host = scene->stage.servers[0].host;
    next->slowness = 1;
    next->first_count = next->server_count = 1 + (uint32_t)scene_draw(scene, 4);
    next->replicas = 1 + (uint32_t)scene_draw(scene, 2);
    next->shards = PARAMS_STAGE_SHARDS << scene_draw(scene, 2);
    params_stage_open(next);
}

static void cut_restore(struct scene *scene)
{
    next_open(scene);
    params_stage_settle(&scene->next);
    if (sim_failure(scene->world) == NULL)
        params_stage_compare(&scene->next);
    if (sim_failure(scene->world) == NULL)
        params_cuts_compare(&scene->cuts, &scene->next);
    if (sim_failure(scene->world) == NULL)
        params_stage_exit(&scene->next);
}

static void scene_finish(void *data)
{
    struct scene *scene = data;

    params_stage_spare(&scene->stage);
    scene->cast.is_ending = true;
    params_stage_revive(&scene->stage, true);
    params_cast_revive(&scene->cast);
    params_stage_settle(&scene->stage);
    if (sim_failure(scene->world) == NULL)
        params_cast_finish(&scene->cast, PARAMS_STAGE_HEAL_NS);
    if (sim_failure(scene->world) == NULL)
        params_stage_compare(&scene->stage);
    if (sim_failure(scene->world) == NULL)
        params_cuts_check(&scene->cuts);
    if (sim_failure(scene->world) == NULL)
        params_stage_exit(&scene->stage);
    if (sim_failure(scene->world) == NULL && scene->cuts.count > 0)
        cut_restore(scene);
}

static void scene_open(struct scene *scene)
{
    struct params_stage *stage = &scene->stage;

    stage->world = scene->cast.world = scene->world;
    params_stage_draw(stage);
    stage->is_doubled = stage->is_wiping = false;
    stage->is_one_host = true;
    stage->slowness = stage->slowness < SLOWNESS_MAX ? stage->slowness : SLOWNESS_MAX;
    params_stage_open(stage);
    scene->cuts.cast = &scene->cast;
    scene->cast.cuts = &scene->cuts;
    scene->cast.cut_host = stage->servers[0].host;
    scene->cast.has_several_servers = true;
    scene->cast.job = stage->job;
    snprintf(scene->cast.servers, sizeof(scene->cast.servers), "%s", stage->addresses);
    scene->cast.act_max_ns = ACT_MAX_NS * stage->slowness;
    scene->cast.lives_max = LIVES_MAX;
    scene->cast.is_ticking = scene_draw(scene, 2) == 0;
    params_cast_open(&scene->cast);
}

void sim_profile_params_cuts(struct sim_run *run, const struct sim_profile *profile)
{
    struct scene *scene = sim_alloc(sizeof(*scene));

    (void)profile;
    scene->world = sim_run_open(run);
    scene_open(scene);
    params_stage_run(&scene->stage, run, scene, scene_play, scene_finish);
    params_stage_close(&scene->next);
    params_cast_close(&scene->cast);
    params_cuts_close(&scene->cuts);
    free(scene);
}
