/* Profile "params_rounds": workers push by round, with and without a quorum, or with late pushes carried, while
 * servers and workers die. The rows at the end are those of a fold of the pushes that counted. */
#include <stdlib.h>

#include "tests/sim/params_stage.h"
#include "tests/sim/params_workers.h"
#include "tests/sim/profile.h"
#include "tests/sim/sim_internal.h"

#define EVENTS_MAX   20000u
#define MEMORY_BYTES ((size_t)64 << 20)
#define ACT_MAX_NS   (20 * MUSTER_NS_PER_MS)
#define RUN_NS       (600 * MUSTER_NS_PER_MS)
#define SLOWNESS_MAX 8u /* workers are given up after 10 s without a link */

struct scene {
    struct sim_world *world;
    struct params_stage stage;
    struct params_crew crew;
    uint32_t worker_permille;
};

static uint64_t scene_draw(struct scene *scene, uint64_t bound)
{
    return muster_rng_below(sim_world_rng(scene->world), bound);
}

static void scene_play(void *data)
{
    struct scene *scene = data;
    uint64_t end_ns = sim_world_now_ns(scene->world) + RUN_NS * scene->stage.slowness;

    while (sim_world_now_ns(scene->world) < end_ns &&
           sim_world_event_count(scene->world) < EVENTS_MAX) {
        uint64_t steps = 1 + scene_draw(scene, UINT64_C(1) << scene_draw(scene, 8));

        while (steps-- > 0)
            if (!sim_step(scene->world))
                return;
        params_stage_revive(&scene->stage, false);
        params_crew_revive(&scene->crew);
        params_stage_strike(&scene->stage);
        if (scene_draw(scene, 1000) < scene->worker_permille)
            params_crew_kill(&scene->crew);
    }
}

static void scene_finish(void *data)
{
    struct scene *scene = data;

    params_stage_spare(&scene->stage);
    params_stage_revive(&scene->stage, true);
    params_crew_revive(&scene->crew);
    params_stage_settle(&scene->stage);
    if (sim_failure(scene->world) == NULL)
        params_crew_finish(&scene->crew, PARAMS_STAGE_HEAL_NS);
    if (sim_failure(scene->world) == NULL)
        params_stage_compare(&scene->stage);
    if (sim_failure(scene->world) == NULL)
        params_stage_exit(&scene->stage);
}

static void scene_open(struct scene *scene, uint64_t seed)
{
    static const uint32_t worker_permilles[] = {0, 10, 40};
    struct params_stage *stage = &scene->stage;

    stage->world = scene->crew.world = scene->world;
    params_stage_draw(stage);
    stage->is_doubled = false;
    stage->slowness = stage->slowness < SLOWNESS_MAX ? stage->slowness : SLOWNESS_MAX;
    stage->memory_bytes = MEMORY_BYTES;
    params_stage_open(stage);
    scene->worker_permille = worker_permilles[scene_draw(scene, 3)];
    scene->crew.job = stage->job;
    scene->crew.servers = stage->addresses;
    scene->crew.is_carried = seed % 4 == 0;
    scene->crew.act_max_ns = ACT_MAX_NS * stage->slowness;
    params_crew_open(&scene->crew);
}

void sim_profile_params_rounds(struct sim_run *run, const struct sim_profile *profile)
{
    struct scene *scene = sim_alloc(sizeof(*scene));

    (void)profile;
    scene->world = sim_run_open(run);
    scene_open(scene, run->seed);
    params_stage_run(&scene->stage, run, scene, scene_play, scene_finish);
    free(scene);
}
