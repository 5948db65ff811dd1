/* Profile "params_shards": clients push to several servers that share the shards of a job, with one to
 * three copies, and pull from them, while servers die, stand still, come, leave, their leases run out, and a server
 * and a client are cut off from all others together. Variant 1 is
 * "params_turnover": rows of their tables come and go. */
#include <stdlib.h>

#include "tests/sim/params_cast.h"
#include "tests/sim/params_island.h"
#include "tests/sim/params_stage.h"
#include "tests/sim/params_turnover.h"
#include "tests/sim/profile.h"
#include "tests/sim/sim_internal.h"

#define LIVES_MAX  6u
#define EVENTS_MAX 20000u /* of a play, so that many seeds take seconds */
/* Times of a quick play; slow ones are so long that leases run out. */
#define ACT_MAX_NS (4 * MUSTER_NS_PER_MS)
#define RUN_NS     (600 * MUSTER_NS_PER_MS)
/* Sources that tick are given up after 10 s without a link: no cut of such a play lasts so long. */
#define TICKING_SLOWNESS_MAX 8u

struct scene {
    struct sim_world *world;
    struct params_stage stage;
    struct params_cast cast;
    struct params_island island;
};

/* Faults strike between any two events. */
static void scene_play(void *data)
{
    struct scene *scene = data;
    uint64_t end_ns = sim_world_now_ns(scene->world) + RUN_NS * scene->stage.slowness;

    while (sim_world_now_ns(scene->world) < end_ns &&
           sim_world_event_count(scene->world) < EVENTS_MAX) {
        uint64_t steps =
            1 + params_cast_draw(&scene->cast, UINT64_C(1) << params_cast_draw(&scene->cast, 10));

        while (steps-- > 0)
            if (!sim_step(scene->world))
                return;
        params_stage_revive(&scene->stage, false);
        params_cast_revive(&scene->cast);
        params_cast_replace(&scene->cast);
        params_stage_strike(&scene->stage);
        params_island_strike(&scene->island);
    }
}

static void clients_kill(void *data)
{
    params_cast_kill(data);
}

static void scene_finish(void *data)
{
    struct scene *scene = data;

    params_stage_spare(&scene->stage);
    params_island_heal(&scene->island);
    scene->cast.is_ending = true;
    params_stage_revive(&scene->stage, true);
    params_cast_revive(&scene->cast);
    params_stage_settle(&scene->stage);
    if (sim_failure(scene->world) == NULL)
        params_cast_finish(&scene->cast, PARAMS_STAGE_HEAL_NS);
    if (sim_failure(scene->world) == NULL)
        params_stage_compare(&scene->stage);
    if (sim_failure(scene->world) == NULL)
        params_stage_exit(&scene->stage);
}

static void scene_open(struct scene *scene, bool is_turning)
{
    struct params_stage *stage = &scene->stage;

    stage->world = scene->cast.world = scene->world;
    params_stage_draw(stage);
    stage->kill_clients = clients_kill;
    stage->clients = &scene->cast;
    params_stage_open(stage);
    scene->cast.has_several_servers = true;
    scene->cast.job = stage->job;
    snprintf(scene->cast.servers, sizeof(scene->cast.servers), "%s", stage->addresses);
    scene->cast.act_max_ns = ACT_MAX_NS * stage->slowness;
    scene->cast.lives_max = LIVES_MAX;
    scene->cast.is_ticking =
        stage->slowness <= TICKING_SLOWNESS_MAX && params_cast_draw(&scene->cast, 2) == 0;
    if (is_turning)
        params_turnover_draw(&scene->cast);
    params_cast_open(&scene->cast);
    params_island_draw(&scene->island, stage, &scene->cast);
}

void sim_profile_params_shards(struct sim_run *run, const struct sim_profile *profile)
{
    struct scene *scene = sim_alloc(sizeof(*scene));

    scene->world = sim_run_open(run);
    scene_open(scene, profile->variant == 1);
    params_stage_run(&scene->stage, run, scene, scene_play, scene_finish);
    params_cast_close(&scene->cast);
    free(scene);
}
