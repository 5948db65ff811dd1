/* Profiles of membership: plays with the real parts in every process, one per rule of the protocol.
 */
#include <inttypes.h>
#include <string.h>

#include "tests/sim/cast.h"
#include "tests/sim/worker.h"

#define PROGRESS_NS (120 * MUSTER_NS_PER_S)
#define START_NS    (60 * MUSTER_NS_PER_S)

#define LIVES_IN_PLAY_MAX (LEDGER_LIVES_MAX * 5 / 8) /* the rest is for the end */

/* One play. */
struct play {
    const char *name;
    struct cast_options options;
    void (*run)(struct cast *cast);
    bool may_fail; /* processes may say that they cannot go on */
};

/* Phrases. */

static uint64_t draw_ms(struct cast *cast, uint64_t max)
{
    return cast_draw(cast, max * MUSTER_NS_PER_MS + 1);
}

/* A span whose magnitude is uniform: as often 1 ms as 100 ms. */
static uint64_t draw_span(struct cast *cast, uint64_t max_ns)
{
    return cast_draw(cast, (max_ns >> cast_draw(cast, 12)) + 1);
}

static void profile_begin(struct cast *cast)
{
    cast_start_all(cast);
    if (!cast_await_step(cast, 1 + cast_draw(cast, 5), START_NS))
        sim_fail(cast->world, "the job does not begin");
}

static struct sim_host *host_of(struct cast_task *task)
{
    return task->host;
}

static void part_from_others(struct cast *cast, struct cast_task *task, bool registry_too,
                             bool is_cut)
{
    uint32_t i;

    for (i = 0; i < cast->host_count; i++) {
        if (cast->hosts[i] == host_of(task))
            continue;
        if (is_cut)
            sim_cut(cast->world, host_of(task), cast->hosts[i], SIM_BOTH_WAYS);
        else
            sim_heal(cast->world, host_of(task), cast->hosts[i]);
    }
    if (registry_too && is_cut)
        sim_cut(cast->world, host_of(task), cast->registry_host, SIM_BOTH_WAYS);
    else if (registry_too)
        sim_heal(cast->world, host_of(task), cast->registry_host);
    cast->fault_count++;
}

/* The plays. */

static void play_first_view(struct cast *cast)
{
    uint32_t i, absent = cast->task_count;

    if (cast->min_members < cast->task_count && cast_chance(cast, 400))
        absent = (uint32_t)cast_draw(cast, cast->task_count);
    for (i = 0; i < cast->task_count; i++)
        if (i != absent)
            cast_start(&cast->tasks[i], draw_ms(cast, 3000));
    if (cast_chance(cast, 400)) {
        cast_run(cast, draw_ms(cast, 1500));
        cast_kill(cast_any(cast), true);
    }
    if (!cast_await_step(cast, 2, START_NS))
        sim_fail(cast->world, "no first view");
    if (absent < cast->task_count)
        cast_start(&cast->tasks[absent], 0);
}

static void play_join(struct cast *cast)
{
    uint32_t late = (uint32_t)cast_draw(cast, cast->task_count), round;

    profile_begin(cast);
    cast_kill(&cast->tasks[late], false);
    cast_run(cast, draw_ms(cast, 3000));
    cast_start(&cast->tasks[late], 0);
    for (round = (uint32_t)cast_draw(cast, 4); round > 0; round--) {
        cast_run(cast, draw_span(cast, MUSTER_NS_PER_S));
        cast_kill(cast_any(cast), true); /* perhaps the joiner, perhaps who serves it */
    }
}

static void play_leave(struct cast *cast)
{
    uint32_t count = 1 + (uint32_t)cast_draw(cast, cast->task_count - 1);

    profile_begin(cast);
    while (count-- > 0) {
        cast_leave(cast_any_member(cast));
        cast_run(cast, draw_span(cast, MUSTER_NS_PER_S));
    }
    if (cast_chance(cast, 300))
        cast_kill(cast_any_member(cast), true);
    cast_run(cast, draw_ms(cast, 2000));
    cast_start(&cast->tasks[cast_draw(cast, cast->task_count)], 0);
}

static struct cast_task *draw_follower(struct cast *cast)
{
    struct cast_task *task = cast_any_member(cast);

    return task == cast_leader(cast) ? NULL : task;
}

static void play_death(struct cast *cast)
{
    uint32_t count = 1 + (uint32_t)cast_draw(cast, 4);

    profile_begin(cast);
    while (count-- > 0) {
        cast_kill(draw_follower(cast), cast_chance(cast, 700));
        cast_run(cast, draw_span(cast, 2 * MUSTER_NS_PER_S));
    }
}

static void play_several_deaths(struct cast *cast)
{
    uint32_t count = 1 + (uint32_t)cast_draw(cast, cast->task_count - 1);

    profile_begin(cast);
    while (count-- > 0) {
        cast_kill(cast_any(cast), true);
        cast_run(cast, draw_span(cast, 50 * MUSTER_NS_PER_MS));
    }
}

/* On one host the kernel says who is dead; elsewhere a connection that ends makes the suspicion. */
static uint64_t by_hand_limit_ns(const struct cast *cast)
{
    return cast->host_count == 1 ? MUSTER_NS_PER_S : 20 * MUSTER_NS_PER_S;
}

/* No launcher: half of the members, or all but one, are gone at once, and nobody says so. */
static void play_by_hand(struct cast *cast)
{
    uint32_t count = cast_chance(cast, 500) ? cast->task_count / 2 : cast->task_count - 1;

    cast->is_by_hand = true;
    profile_begin(cast);
    while (count-- > 0)
        cast_kill(cast_any(cast), false);
    if (cast_chance(cast, 300))
        cast_run(cast, draw_span(cast, 50 * MUSTER_NS_PER_MS));
    if (!cast_await_progress(cast, 2, by_hand_limit_ns(cast)))
        return;
    if (cast_chance(cast, 500))
        cast_start(&cast->tasks[cast_draw(cast, cast->task_count)], 0);
}

static void play_leader_death(struct cast *cast)
{
    uint32_t count = 1 + (uint32_t)cast_draw(cast, cast->task_count);

    profile_begin(cast);
    if (cast_chance(cast, 500)) {
        cast_kill(draw_follower(cast), true);
        cast_run(cast, draw_span(cast, 20 * MUSTER_NS_PER_MS));
    }
    while (count-- > 0) {
        cast_kill(cast_leader(cast), true);
        cast_run(cast, draw_span(cast, 100 * MUSTER_NS_PER_MS));
    }
}

static void play_rivals(struct cast *cast)
{
    struct cast_task *leader;

    profile_begin(cast);
    leader = cast_leader(cast);
    if (leader == NULL)
        return;
    part_from_others(cast, leader, false, true);
    cast_run(cast, draw_span(cast, 8 * MUSTER_NS_PER_S));
    if (cast_chance(cast, 300))
        cast_kill(cast_any_member(cast), true);
    part_from_others(cast, leader, false, false);
    cast_run(cast, draw_ms(cast, 2000));
}

static void play_false_suspicion(struct cast *cast)
{
    struct cast_task *task;

    profile_begin(cast);
    task = cast_any_member(cast);
    if (task == NULL)
        return;
    sim_pause(task->node);
    cast->fault_count++;
    cast_run(cast, draw_span(cast, 6 * MUSTER_NS_PER_S));
    if (cast_chance(cast, 300))
        cast_kill(draw_follower(cast), true);
    cast_run(cast, draw_span(cast, MUSTER_NS_PER_S));
    sim_resume(task->node);
}

static void play_excluded(struct cast *cast)
{
    struct cast_task *task;

    profile_begin(cast);
    task = cast_any_member(cast);
    if (task == NULL)
        return;
    part_from_others(cast, task, cast_chance(cast, 700), true);
    cast_run(cast, draw_ms(cast, 12000));
    part_from_others(cast, task, true, false);
    cast_run(cast, draw_ms(cast, 3000));
}

static void play_all_dead(struct cast *cast)
{
    uint32_t i;

    profile_begin(cast);
    for (i = 0; i < cast->task_count; i++) {
        cast_kill(&cast->tasks[i], true);
        cast_run(cast, draw_span(cast, 20 * MUSTER_NS_PER_MS));
    }
    if (cast_chance(cast, 300)) {
        cast->ops->registry_kill(cast);
        cast_run(cast, draw_ms(cast, 2000));
        cast->ops->registry_restart(cast);
    }
}

static void play_min_members(struct cast *cast)
{
    uint32_t count = 1 + (uint32_t)cast_draw(cast, cast->task_count - 1), i;

    profile_begin(cast);
    while (count-- > 0)
        cast_kill(cast_any(cast), false);
    cast_run(cast, draw_ms(cast, 6000));
    for (i = 0; i < cast->task_count; i++)
        cast_start(&cast->tasks[i], draw_ms(cast, 1000));
}

static void play_registry_outage(struct cast *cast)
{
    uint32_t count = 1 + (uint32_t)cast_draw(cast, 3);

    profile_begin(cast);
    while (count-- > 0) {
        bool kill_first = cast_chance(cast, 500);

        if (kill_first)
            cast_kill(cast_any(cast), true);
        cast_run(cast, draw_span(cast, 20 * MUSTER_NS_PER_MS));
        cast->ops->registry_kill(cast);
        cast->fault_count++;
        cast_run(cast, draw_span(cast, 500 * MUSTER_NS_PER_MS));
        if (!kill_first)
            cast_kill(cast_any(cast), true);
        cast_run(cast, draw_span(cast, 15 * MUSTER_NS_PER_S));
        cast->ops->registry_restart(cast);
        cast_run(cast, draw_span(cast, 3 * MUSTER_NS_PER_S));
    }
}

/* Connections break, control links' too and often several at once; processes do not: nobody is
 * suspected, no view changes. */
static void play_lost_connections(struct cast *cast)
{
    uint64_t epoch, end_ns;

    profile_begin(cast);
    epoch = ledger_epoch(cast->ledger);
    end_ns = sim_world_now_ns(cast->world) + draw_ms(cast, 10000);
    while (sim_world_now_ns(cast->world) < end_ns && sim_failure(cast->world) == NULL) {
        for (uint64_t count = 1 + cast_draw(cast, 1 + cast_draw(cast, 40)); count > 0; count--)
            cast->fault_count += sim_reset_stream(cast->world, cast_draw(cast, UINT64_MAX));
        if (!cast_run(cast, 1 + draw_span(cast, MUSTER_NS_PER_S)))
            return;
        if (ledger_epoch(cast->ledger) != epoch)
            sim_fail(cast->world, "a broken connection became a change of view");
    }
}

static void make_fault(struct cast *cast)
{
    switch (cast_draw(cast, 12)) {
    case 0:
    case 1:
    case 2:
        cast_kill(cast_any(cast), true);
        return;
    case 3:
        cast_kill(cast_leader(cast), true);
        return;
    case 4:
        cast->ops->registry_kill(cast);
        cast->fault_count++;
        return;
    case 5:
    case 6:
    case 7:
        cast->ops->registry_restart(cast);
        return;
    case 8:
        if (cast_chance(cast, 300))
            cast_leave(cast_any_member(cast));
        return;
    default:
        cast_start(&cast->tasks[cast_draw(cast, cast->task_count)], 0);
        return;
    }
}

static void play_mixed(struct cast *cast)
{
    uint64_t end_ns;

    profile_begin(cast);
    end_ns = sim_world_now_ns(cast->world) + draw_ms(cast, 20000);
    cast_start_faults(cast, SIM_FAULTS_ALL);
    while (sim_world_now_ns(cast->world) < end_ns &&
           ledger_life_count(cast->ledger) < LIVES_IN_PLAY_MAX &&
           cast_run(cast, draw_span(cast, 3 * MUSTER_NS_PER_S)))
        make_fault(cast);
}

/* Memory runs out here and there, for one allocation, for some, or until somebody gives up. */
static void play_starved(struct cast *cast)
{
    uint32_t rounds = 1 + (uint32_t)cast_draw(cast, 6);

    profile_begin(cast);
    while (rounds-- > 0) {
        struct cast_task *task = cast_chance(cast, 200) ? NULL : cast_any(cast);
        uint64_t after = cast_draw(cast, UINT64_C(1) << cast_draw(cast, 12));
        uint64_t count = UINT64_C(1) << cast_draw(cast, 10);

        if (task != NULL)
            cast_starve(cast, task->node, &task->hunger, after, count);
        else
            cast_starve(cast, cast->ops->registry_node(cast), &cast->registry_hunger, after, count);
        if (cast_chance(cast, 300))
            cast_kill(cast_any(cast), true); /* the change of view meets the hunger */
        cast_run(cast, draw_span(cast, 4 * MUSTER_NS_PER_S));
    }
}

#define CAST(low, high, where)                                                                     \
    {                                                                                              \
        .task_count_min = (low), .task_count_max = (high),                                         \
        .restart_delay_max_ns = MUSTER_NS_PER_S, .confirm_delay_max_ns = 200 * MUSTER_NS_PER_MS,   \
        .layout = (where)                                                                          \
    }
#define CAST_MIN(low, high, members, seconds)                                                      \
    {                                                                                              \
        .task_count_min = (low), .task_count_max = (high), .min_members_max = (members),           \
        .min_members_timeout_ns = (seconds)*MUSTER_NS_PER_S,                                       \
        .restart_delay_max_ns = MUSTER_NS_PER_S, .confirm_delay_max_ns = 200 * MUSTER_NS_PER_MS,   \
        .layout = CAST_ANY                                                                         \
    }

#define CAST_PATIENT(low, high)                                                                    \
    {                                                                                              \
        .task_count_min = (low), .task_count_max = (high),                                         \
        .restart_delay_max_ns = MUSTER_NS_PER_S, .confirm_delay_max_ns = 200 * MUSTER_NS_PER_MS,   \
        .layout = CAST_ANY, .is_patient = true                                                     \
    }

#define CAST_STARVING(low, high)                                                                   \
    {                                                                                              \
        .task_count_min = (low), .task_count_max = (high),                                         \
        .restart_delay_max_ns = MUSTER_NS_PER_S, .confirm_delay_max_ns = 200 * MUSTER_NS_PER_MS,   \
        .layout = CAST_ANY, .is_starving = true                                                    \
    }

static const struct play plays[] = {
    {"first_view", CAST_MIN(1, 5, 5, 5), play_first_view, false},
    {"join", CAST(2, 5, CAST_ANY), play_join, false},
    {"leave", CAST(2, 5, CAST_ANY), play_leave, true},
    {"death", CAST(2, 5, CAST_ANY), play_death, false},
    {"several_deaths", CAST(3, 6, CAST_ANY), play_several_deaths, false},
    {"by_hand", CAST(2, 6, CAST_ANY), play_by_hand, false},
    {"leader_death", CAST(2, 5, CAST_ANY), play_leader_death, false},
    {"rivals", CAST(3, 5, CAST_OWN_HOSTS), play_rivals, false},
    {"false_suspicion", CAST(2, 5, CAST_ANY), play_false_suspicion, false},
    {"excluded", CAST(2, 5, CAST_OWN_HOSTS), play_excluded, false},
    {"all_dead", CAST(1, 4, CAST_ANY), play_all_dead, false},
    {"min_members", CAST_MIN(3, 5, 5, 3), play_min_members, true},
    {"registry_outage", CAST(2, 5, CAST_ANY), play_registry_outage, false},
    {"mixed", CAST_MIN(2, 5, 3, 3), play_mixed, true},
    {"lost_connections", CAST_PATIENT(2, 5), play_lost_connections, false},
    {"starved", CAST_STARVING(2, 5), play_starved, true},
};

/* Too few members, or the job has ended: such a process is started again. */
static bool may_fail(struct cast_task *task, const struct muster_error *error)
{
    (void)task;
    return error->rc == MUSTER_ABORTED || error->rc == MUSTER_OUT_OF_RANGE;
}

static void leave_all(struct cast *cast)
{
    uint64_t end_ns = sim_world_now_ns(cast->world) + PROGRESS_NS;
    uint32_t i;

    cast->on_failed = may_fail;
    for (i = 0; i < cast->task_count; i++)
        cast_leave(&cast->tasks[i]);
    while (cast_any(cast) != NULL && sim_world_now_ns(cast->world) < end_ns)
        if (!cast_run(cast, 10 * MUSTER_NS_PER_MS))
            return;
    if (cast_any(cast) != NULL)
        sim_fail(cast->world, "leaving does not end");
}

void sim_profile_membership(struct sim_run *run, const struct sim_profile *profile)
{
    const struct play *play = &plays[profile->variant];
    struct sim_world *world = sim_run_open(run);
    struct cast cast;
    uint64_t fault_count;

    cast_open(&cast, world, run->seed, &worker_ops, &play->options);
    cast.on_failed = play->may_fail ? may_fail : NULL;
    (void)cast_run(&cast, draw_ms(&cast, 200));
    play->run(&cast);
    cast_heal(&cast);
    if (sim_failure(world) == NULL && cast_await_progress(&cast, 5, PROGRESS_NS) &&
        cast_chance(&cast, 500))
        leave_all(&cast);
    fault_count = cast_fault_count(&cast);
    cast_close(&cast);
    sim_run_close(run, world, fault_count);
}
