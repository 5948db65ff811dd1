/* The cast of a membership play, and the launcher. */
#include "tests/sim/cast.h"

#include <inttypes.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define LAUNCHER_LOOK_NS (2 * MUSTER_NS_PER_MS)

uint64_t cast_draw(struct cast *cast, uint64_t bound)
{
    return bound == 0 ? 0 : muster_rng_below(sim_world_rng(cast->world), bound);
}

bool cast_is_state_lost(const struct cast_task *task)
{
    const struct ledger *ledger = task->cast->ledger;

    return ledger_is_state_lost(ledger, ledger_entered_epoch(ledger, task->life));
}

void cast_check_state_lost(const struct cast_task *task, uint64_t epoch)
{
    const struct cast *cast = task->cast;
    uint32_t i;

    for (i = 0; i < cast->task_count; i++) {
        const struct cast_task *other = &cast->tasks[i];
        struct cast_status status = {.step = 0};

        if (cast_is_alive(other) && cast->ops->status(other, &status) && status.has_state &&
            (ledger_members(cast->ledger, epoch - 1) >> other->life & 1) != 0 &&
            (ledger_members(cast->ledger, epoch) >> other->life & 1) == 0)
            sim_fail(cast->world,
                     "epoch %" PRIu64 " gives up the state that life %" PRIu32 " still has", epoch,
                     other->life);
    }
}

bool cast_chance(struct cast *cast, uint32_t permille)
{
    return cast_draw(cast, 1000) < permille;
}

/* The stage. */

static void add_hosts(struct cast *cast)
{
    enum cast_layout layout = cast->options.layout;
    uint32_t i;

    cast->registry_host = sim_host_add(cast->world, "registry");
    if (layout == CAST_ANY)
        cast->host_count = 1 + (uint32_t)cast_draw(cast, cast->task_count);
    else
        cast->host_count = layout == CAST_ONE_HOST ? 1 : cast->task_count;
    for (i = 0; i < cast->host_count; i++) {
        char name[32];

        snprintf(name, sizeof(name), "host%" PRIu32, i);
        cast->hosts[i] = sim_host_add(cast->world, name);
    }
}

void cast_open(struct cast *cast, struct sim_world *world, uint64_t seed,
               const struct cast_ops *ops, const struct cast_options *options)
{
    uint32_t i, range = options->task_count_max - options->task_count_min + 1;

    *cast = (struct cast){.world = world, .ops = ops, .options = *options, .is_launching = true};
    cast->seed = seed;
    cast->plan.chunk_bytes = 64u << cast_draw(cast, 5);
    cast->plan.direct_max_bytes = 16u << cast_draw(cast, 8);
    cast->plan.forced = (enum muster_algorithm)cast_draw(cast, MUSTER_ALGORITHM_TWO_LEVEL + 1);
    cast->plan.is_reproducible = cast_draw(cast, 4) == 0;
    cast->task_count = options->task_count_min + (uint32_t)cast_draw(cast, range);
    cast->min_members = 1;
    if (options->min_members_max > 1)
        cast->min_members = 1 + (uint32_t)cast_draw(cast, options->min_members_max);
    if (cast->min_members > cast->task_count)
        cast->min_members = cast->task_count;
    cast->ledger = ledger_new(world);
    add_hosts(cast);
    for (i = 0; i < cast->task_count; i++) {
        struct cast_task *task = &cast->tasks[i];

        task->cast = cast;
        task->index = i;
        task->host = cast->hosts[i % cast->host_count];
        task->act_ns = UINT64_MAX;
        task->is_reported = true;
        snprintf(task->name, sizeof(task->name), "worker:%" PRIu32, i);
    }
    ops->open(cast);
}

void cast_close(struct cast *cast)
{
    cast->ops->close(cast);
    sim_faults_free(cast->faults);
    ledger_free(cast->ledger);
}

uint64_t cast_fault_count(const struct cast *cast)
{
    return cast->fault_count + (cast->faults != NULL ? sim_faults_count(cast->faults) : 0);
}

/* The launcher. */

bool cast_is_alive(const struct cast_task *task)
{
    return task->node != NULL && sim_node_is_alive(task->node);
}

void cast_start(struct cast_task *task, uint64_t delay_ns)
{
    task->is_wanted = true;
    task->act_ns = sim_world_now_ns(task->cast->world) + delay_ns;
}

void cast_start_all(struct cast *cast)
{
    uint64_t spread_ns = cast_draw(cast, 2) == 0 ? 0 : cast_draw(cast, 2 * MUSTER_NS_PER_S);
    uint32_t i;

    for (i = 0; i < cast->task_count; i++)
        cast_start(&cast->tasks[i], cast_draw(cast, spread_ns + 1));
}

static void task_launch(struct cast_task *task)
{
    struct cast *cast = task->cast;

    muster_rng_fill(sim_world_rng(cast->world), task->incarnation.bytes,
                    sizeof(task->incarnation.bytes));
    task->life = ledger_life(cast->ledger, &task->incarnation);
    task->is_reported = false;
    task->act_ns = UINT64_MAX;
    task->node = sim_node_start(cast->world, &(struct sim_node_options){.name = task->name,
                                                                        .host = task->host,
                                                                        .start = cast->ops->start,
                                                                        .data = task});
    if (cast->refuses != NULL && task->index == cast->refused_index)
        sim_refuse(task->node, cast->refuses, cast->refuse_data);
    sim_note(cast->world, "launch", task->index, task->life, (uint64_t)sim_node_pid(task->node));
}

/* A child is gone: say so, and plan its return. */
static void task_reap(struct cast_task *task)
{
    struct cast *cast = task->cast;
    uint64_t now_ns = sim_world_now_ns(cast->world);

    if (task->act_ns == UINT64_MAX)
        task->act_ns = now_ns + cast_draw(cast, cast->options.confirm_delay_max_ns + 1);
    if (now_ns < task->act_ns)
        return;
    task->is_reported = true;
    sim_note(cast->world, "reaped", task->index, task->life, 0);
    if (!cast->is_by_hand)
        cast->ops->confirm_dead(cast, &task->incarnation);
    task->act_ns = now_ns + cast_draw(cast, cast->options.restart_delay_max_ns + 1);
}

static void look_after(struct cast_task *task)
{
    if (cast_is_alive(task) || task->act_ns == 0)
        return;
    if (!task->is_reported)
        task_reap(task);
    else if (task->is_wanted && sim_world_now_ns(task->cast->world) >= task->act_ns &&
             sim_host_is_up(task->host))
        task_launch(task);
}

bool cast_run(struct cast *cast, uint64_t duration_ns)
{
    uint64_t end_ns = sim_world_now_ns(cast->world) + duration_ns;

    while (sim_failure(cast->world) == NULL && sim_world_now_ns(cast->world) < end_ns) {
        uint32_t i;

        for (i = 0; i < cast->task_count && cast->is_launching; i++)
            look_after(&cast->tasks[i]);
        (void)sim_run_for(cast->world, LAUNCHER_LOOK_NS);
    }
    return sim_failure(cast->world) == NULL;
}

/* Tasks. */

struct cast_task *cast_any(struct cast *cast)
{
    struct cast_task *picked = NULL;
    uint64_t seen = 0;
    uint32_t i;

    for (i = 0; i < cast->task_count; i++)
        if (cast_is_alive(&cast->tasks[i]) && cast_draw(cast, ++seen) == 0)
            picked = &cast->tasks[i];
    return picked;
}

static bool is_member(const struct cast_task *task)
{
    const struct ledger *ledger = task->cast->ledger;

    return cast_is_alive(task) &&
           (ledger_members(ledger, ledger_epoch(ledger)) >> task->life & 1) != 0;
}

struct cast_task *cast_any_member(struct cast *cast)
{
    struct cast_task *picked = NULL;
    uint64_t seen = 0;
    uint32_t i;

    for (i = 0; i < cast->task_count; i++)
        if (is_member(&cast->tasks[i]) && cast_draw(cast, ++seen) == 0)
            picked = &cast->tasks[i];
    return picked;
}

struct cast_task *cast_leader(struct cast *cast)
{
    uint32_t i;

    for (i = 0; i < cast->task_count; i++)
        if (is_member(&cast->tasks[i]))
            return &cast->tasks[i];
    return NULL;
}

/* Faults of tasks. */

void cast_kill(struct cast_task *task, bool restart)
{
    if (task == NULL || !cast_is_alive(task))
        return;
    task->is_wanted = restart;
    task->cast->fault_count++;
    sim_note(task->cast->world, "cast_kill", task->index, task->life, restart);
    if (cast_chance(task->cast, 400))
        task->cast->ops->kill_at_chunk(task, 1 + (uint32_t)cast_draw(task->cast, 100));
    else if (cast_chance(task->cast, 700))
        sim_kill_within(task->node,
                        (uint32_t)cast_draw(task->cast, UINT64_C(1) << cast_draw(task->cast, 7)));
    else
        sim_kill(task->node);
}

void cast_leave(struct cast_task *task)
{
    if (task == NULL || !cast_is_alive(task))
        return;
    task->is_wanted = false;
    sim_note(task->cast->world, "cast_leave", task->index, task->life, 0);
    sim_enter(task->node);
    task->cast->ops->leave(task);
    sim_leave(task->node);
}

static bool is_refused(void *data)
{
    struct cast_hunger *hunger = data;

    if (hunger->after > 0) {
        hunger->after--;
        return false;
    }
    if (hunger->count == 0)
        return false;
    hunger->count--;
    return true;
}

void cast_starve(struct cast *cast, struct sim_node *node, struct cast_hunger *hunger,
                 uint64_t after, uint64_t count)
{
    if (node == NULL || !sim_node_is_alive(node))
        return;
    *hunger = (struct cast_hunger){.after = after, .count = count};
    cast->fault_count++;
    sim_note(cast->world, "cast_starve", (uint64_t)sim_node_pid(node), after, count);
    sim_refuse(node, is_refused, hunger);
}

bool cast_is_starved(const struct cast *cast, enum muster_rc rc)
{
    return cast->options.is_starving && rc == MUSTER_RESOURCE_EXHAUSTED;
}

/* Waiting. */

uint64_t cast_step(const struct cast *cast)
{
    uint64_t step = 0;
    uint32_t i;

    for (i = 0; i < cast->task_count; i++) {
        struct cast_status status = {.step = 0};

        if (cast_is_alive(&cast->tasks[i]) && cast->ops->status(&cast->tasks[i], &status) &&
            status.step > step)
            step = status.step;
    }
    return step;
}

bool cast_await_step(struct cast *cast, uint64_t step, uint64_t limit_ns)
{
    uint64_t end_ns = sim_world_now_ns(cast->world) + limit_ns;

    while (cast_step(cast) < step && sim_world_now_ns(cast->world) < end_ns)
        if (!cast_run(cast, LAUNCHER_LOOK_NS))
            return false;
    return cast_step(cast) >= step;
}

/* Everybody who should be there is a member of the newest epoch and has reached `step`. */
static bool is_whole(const struct cast *cast, uint64_t step)
{
    uint64_t epoch = ledger_epoch(cast->ledger);
    uint32_t i;

    for (i = 0; i < cast->task_count; i++) {
        const struct cast_task *task = &cast->tasks[i];
        struct cast_status status = {.step = 0};

        if (!cast_is_alive(task) && !task->is_wanted)
            continue;
        if (!cast_is_alive(task) || !cast->ops->status(task, &status) || status.epoch != epoch ||
            status.step < step || !is_member(task))
            return false;
    }
    return true;
}

static void cast_describe(const struct cast *cast, char *text, size_t room)
{
    uint32_t i;
    int used = snprintf(text, room, "epoch %" PRIu64, ledger_epoch(cast->ledger));

    for (i = 0; i < cast->task_count && used > 0 && (size_t)used < room; i++) {
        struct cast_status status = {.step = 0};
        bool is_known =
            cast_is_alive(&cast->tasks[i]) && cast->ops->status(&cast->tasks[i], &status);

        used += snprintf(text + used, room - (size_t)used,
                         "; %s %s epoch %" PRIu64 " step %" PRIu64, cast->tasks[i].name,
                         is_known ? "in" : "dead, was in", status.epoch, status.step);
    }
}

bool cast_await_progress(struct cast *cast, uint64_t steps, uint64_t limit_ns)
{
    uint64_t end_ns = sim_world_now_ns(cast->world) + limit_ns;
    uint64_t step = cast_step(cast) + steps;
    char text[512];

    while (!is_whole(cast, step) && sim_world_now_ns(cast->world) < end_ns) {
        if (!cast_run(cast, LAUNCHER_LOOK_NS))
            return false;
        if (cast_step(cast) + steps < step) /* a new beginning */
            step = cast_step(cast) + steps;
    }
    if (is_whole(cast, step))
        return true;
    cast_describe(cast, text, sizeof(text));
    sim_fail(cast->world, "no progress to step %" PRIu64 " in time: %s", step, text);
    return false;
}

/* Faults in the background. */

static bool may_hit(void *data, enum sim_fault_kind kind, struct sim_node *node)
{
    struct cast *cast = data;

    if (sim_node_host(node) != cast->registry_host)
        return true;
    /* the registry dies by the play's own verbs */
    return kind != SIM_FAULT_KILL && kind != SIM_FAULT_KILL_WITHIN && kind != SIM_FAULT_CRASH_HOST;
}

void cast_start_faults(struct cast *cast, uint32_t allowed)
{
    cast->faults = sim_faults_start(cast->world, &(struct sim_faults_options){
                                                     .allowed = allowed,
                                                     .interval_min_ns = 20 * MUSTER_NS_PER_MS,
                                                     .interval_max_ns = 2 * MUSTER_NS_PER_S,
                                                     .duration_max_ns = 8 * MUSTER_NS_PER_S,
                                                     .count_max = 40,
                                                     .may_hit = may_hit,
                                                     .data = cast,
                                                 });
}

void cast_heal(struct cast *cast)
{
    uint32_t i, wanted_count = 0;

    sim_note(cast->world, "cast_heal", 0, 0, 0);
    cast->registry_hunger.count = 0;
    for (i = 0; i < cast->task_count; i++)
        cast->tasks[i].hunger.count = 0;
    for (i = 0; i < cast->task_count; i++)
        if (cast_is_alive(&cast->tasks[i]))
            cast->ops->kill_at_chunk(&cast->tasks[i], 0);
    if (cast->faults != NULL)
        sim_faults_heal(cast->faults);
    else
        sim_heal_all(cast->world);
    cast->ops->registry_restart(cast);
    for (i = 0; i < cast->task_count; i++)
        wanted_count += cast->tasks[i].is_wanted;
    for (i = 0; i < cast->task_count && wanted_count < cast->min_members; i++)
        cast_start(&cast->tasks[i], 0); /* too few would wait for ever, and rightly */
}
