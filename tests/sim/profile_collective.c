/* Profile "collective": real groups on the TCP wire and on boards; a director decides views as the
 * membership layer would. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/membership/progress_proto.h"
#include "tests/sim/collective_stage.h"
#include "tests/sim/faults.h"
#include "tests/sim/profile.h"
#include "tests/sim/sim_internal.h"

#define PORT      5000
#define RUN_NS    (4 * MUSTER_NS_PER_S)
#define HEAL_NS   (60 * MUSTER_NS_PER_S)
#define LIVES_MAX (LEDGER_LIVES_MAX - TASKS_MAX)

/* The launcher. */

static void stage_launch(struct stage *stage, uint32_t task)
{
    struct role *role = &stage->roles[stage->role_count];
    char name[32];

    *role = (struct role){.stage = stage, .is_joining = stage->view != NULL};
    muster_rng_fill(sim_world_rng(stage->world), role->member.incarnation.bytes,
                    sizeof(role->member.incarnation.bytes));
    strcpy(role->member.task_type, "worker");
    role->member.task_index = task;
    role->member.address = sim_host_address(stage->hosts[task], PORT);
    snprintf(role->member.host_key, sizeof(role->member.host_key), "%s",
             stage->has_boards ? "one" : sim_host_name(stage->hosts[task]));
    role->life = ledger_life(stage->ledger, &role->member.incarnation);
    snprintf(name, sizeof(name), "worker:%" PRIu32, task);
    stage->holders[task] = stage->role_count++;
    role->node = sim_node_start(stage->world, &(struct sim_node_options){.name = name,
                                                                         .host = stage->hosts[task],
                                                                         .start = actor_start,
                                                                         .on_death = role_on_death,
                                                                         .data = role});
    role->member.pid = sim_node_pid(role->node);
}

static void stage_relaunch(struct stage *stage)
{
    uint64_t now_ns = sim_world_now_ns(stage->world);
    uint32_t i;

    for (i = 0; i < stage->task_count; i++) {
        if (role_is_alive(&stage->roles[stage->holders[i]]) || stage->role_count >= LIVES_MAX)
            continue;
        if (stage->return_ns[i] == 0)
            stage->return_ns[i] = now_ns + stage_draw(stage, 300 * MUSTER_NS_PER_MS);
        if (now_ns < stage->return_ns[i])
            continue;
        stage->return_ns[i] = 0;
        stage_launch(stage, i);
    }
}

static void arm_kill(struct stage *stage)
{
    struct role *role = &stage->roles[stage->holders[stage_draw(stage, stage->task_count)]];
    struct actor *actor = role_is_alive(role) ? role_actor(role) : NULL;

    if (actor == NULL || actor->chunks_to_live != 0)
        return;
    actor->chunks_to_live = 1 + (uint32_t)stage_draw(stage, 60);
    stage->kills++;
}

/* Let time pass in small, uneven steps. */
static bool play_on(struct stage *stage)
{
    if (!sim_run_for(stage->world,
                     1 + stage_draw(stage, UINT64_C(1) << (12 + stage_draw(stage, 9)))))
        return false;
    stage_direct(stage);
    return sim_failure(stage->world) == NULL && !stage->is_over;
}

static bool is_whole(const struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        const struct role *role = &stage->roles[i];

        if (role_is_alive(role) && (role_actor(role) == NULL || !role_is_member(role) ||
                                    role_actor(role)->trainee.committed < stage->step_wanted))
            return false;
    }
    return true;
}

static uint64_t highest_step(const struct stage *stage)
{
    uint64_t step = 0;
    uint32_t i;

    for (i = 0; i < stage->role_count; i++)
        if (role_is_alive(&stage->roles[i]) && role_actor(&stage->roles[i]) != NULL &&
            role_actor(&stage->roles[i])->trainee.committed > step)
            step = role_actor(&stage->roles[i])->trainee.committed;
    return step;
}

/* For the trace: where each process stands. */
static void note_roles(struct stage *stage)
{
    uint32_t i, slot;

    for (i = 0; i < stage->role_count; i++) {
        const struct actor *actor =
            role_is_alive(&stage->roles[i]) ? role_actor(&stage->roles[i]) : NULL;

        if (actor == NULL)
            continue;
        sim_note(stage->world, "role", i, stage->roles[i].epoch, actor->trainee.step);
        for (slot = 0; slot < actor->trainee.issued; slot++)
            sim_note(stage->world, "slot", actor->trainee.slots[slot].id.sequence,
                     actor->trainee.slots[slot].state, actor->trainee.slots[slot].kind);
        for (slot = 0; slot < TRAINEE_ASIDES_MAX; slot++)
            if (actor->trainee.asides[slot].state == TRAINEE_OP_OPEN)
                sim_note(stage->world, "aside", actor->trainee.asides[slot].id.sequence,
                         actor->trainee.asides[slot].id.lane, actor->trainee.asides[slot].kind);
        sim_note(stage->world, "open", actor->trainee.aside_open, actor->trainee.list.is_open, 0);
    }
}

/* No more faults: all that live must be members and go on. */
static void end_play(struct stage *stage, struct sim_faults *faults)
{
    uint64_t end_ns = sim_world_now_ns(stage->world) + HEAL_NS;
    uint32_t i;

    sim_faults_heal(faults);
    for (i = 0; i < stage->role_count; i++)
        if (role_is_alive(&stage->roles[i]) && role_actor(&stage->roles[i]) != NULL)
            role_actor(&stage->roles[i])->chunks_to_live = 0;
    stage->step_wanted = highest_step(stage) + 5;
    while (play_on(stage) && !is_whole(stage))
        if (sim_world_now_ns(stage->world) >= end_ns) {
            note_roles(stage);
            sim_fail(stage->world, "no progress to step %" PRIu64 " after healing",
                     stage->step_wanted);
            return;
        }
}

static void in_each_process(struct stage *stage, void (*act)(struct actor *actor))
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++) {
        struct role *role = &stage->roles[i];

        if (!role_is_alive(role) || role_actor(role) == NULL || sim_failure(stage->world) != NULL)
            continue;
        sim_enter(role->node);
        act(role_actor(role));
        sim_leave(role->node);
    }
    (void)sim_run_for(stage->world, 20 * MUSTER_NS_PER_S);
}

static void close_processes(struct stage *stage)
{
    uint32_t i;

    in_each_process(stage, actor_close_group);
    in_each_process(stage, actor_close_board);
    for (i = 0; i < stage->role_count && sim_failure(stage->world) == NULL; i++) {
        if (!role_is_alive(&stage->roles[i]))
            continue;
        muster_mem_free(sim_node_env(stage->roles[i].node)->mem, role_actor(&stage->roles[i]));
        sim_exit(stage->roles[i].node);
    }
}

static void free_stage(struct stage *stage)
{
    uint32_t i;

    for (i = 0; i < stage->role_count; i++)
        muster_progress_free(stage->roles[i].vote);
    sim_board_world_fini(&stage->boards);
    muster_view_unref(stage->view);
    muster_mem_free(muster_mem_system(), stage->view_bytes);
    ledger_free(stage->ledger);
    free(stage);
}

static void set_stage(struct stage *stage)
{
    uint32_t i;

    stage->task_count = 2 + (uint32_t)stage_draw(stage, TASKS_MAX - 1);
    stage->has_boards = stage_draw(stage, 2) == 0;
    stage->boards_env.mem = muster_mem_system();
    sim_board_world_init(&stage->boards, &stage->boards_env);
    for (i = 0; i < stage->task_count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "host%" PRIu32, i);
        stage->hosts[i] = sim_host_add(stage->world, name);
    }
    for (i = 0; i < stage->task_count; i++)
        stage_launch(stage, i);
    (void)sim_run_for(stage->world, MUSTER_NS_PER_MS);
    stage_commit_first(stage);
}

void sim_profile_collective(struct sim_run *run, const struct sim_profile *profile)
{
    struct stage *stage = sim_alloc(sizeof(*stage));
    struct sim_faults_options options = {
        .allowed = SIM_FAULTS_ALL & ~SIM_FAULT_BIT(CRASH_HOST),
        .interval_min_ns = 20 * MUSTER_NS_PER_MS,
        .interval_max_ns = 600 * MUSTER_NS_PER_MS,
        .duration_max_ns = 500 * MUSTER_NS_PER_MS,
        .count_max = 40,
    };
    struct sim_faults *faults;
    uint64_t end_ns;

    stage->is_healing = profile->variant == 1;
    stage->has_asides = profile->variant == 2;
    if (stage->is_healing) {
        options.allowed = SIM_FAULT_BIT(RESET);
        options.interval_min_ns = MUSTER_NS_PER_MS;
        options.interval_max_ns = 60 * MUSTER_NS_PER_MS;
        options.count_max = 400;
    }
    stage->world = sim_run_open(run);
    stage->seed = run->seed;
    stage->ledger = ledger_new(stage->world);
    set_stage(stage);
    faults = sim_faults_start(stage->world, &options);
    end_ns = sim_world_now_ns(stage->world) + RUN_NS;
    while (sim_world_now_ns(stage->world) < end_ns && play_on(stage)) {
        stage_relaunch(stage);
        if (!stage->is_healing && stage_draw(stage, 400) == 0)
            arm_kill(stage);
    }
    if (!stage->is_over && sim_failure(stage->world) == NULL)
        end_play(stage, faults);
    stage->is_healing = false; /* processes end now */
    if (!stage->is_over && sim_failure(stage->world) == NULL)
        close_processes(stage);
    stage->kills += sim_faults_count(faults);
    sim_faults_free(faults);
    sim_run_close(run, stage->world, stage->kills);
    free_stage(stage);
}
