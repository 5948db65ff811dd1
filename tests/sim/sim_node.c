/* A process: its loop, its clock, its life and death. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define CLOCK_START_MAX_NS                                                                         \
    (UINT64_C(1) << 50) /* monotonic clocks of hosts have nothing in common */

static struct sim_node *node_of(const struct muster_loop *loop)
{
    return (struct sim_node *)(uintptr_t)loop;
}

/* Clock: node time = clock_node_ns + (world - clock_world_ns) * (1 + ppm / 1e6). */

static uint64_t to_node_ns(const struct sim_node *node, uint64_t world_ns)
{
    uint64_t passed_ns = world_ns - node->clock_world_ns;
    uint64_t part_ns = passed_ns / 1000000 * (uint64_t)llabs(node->clock_ppm) +
                       passed_ns % 1000000 * (uint64_t)llabs(node->clock_ppm) / 1000000;

    return node->clock_node_ns + (node->clock_ppm < 0 ? passed_ns - part_ns : passed_ns + part_ns);
}

uint64_t sim_node_to_world_ns(const struct sim_node *node, uint64_t node_ns)
{
    uint64_t world_ns;

    if (node_ns <= node->clock_node_ns)
        return node->clock_world_ns;
    if (node_ns - node->clock_node_ns > UINT64_MAX / 4)
        return UINT64_MAX;
    world_ns = node->clock_world_ns + (node_ns - node->clock_node_ns);
    if (node->clock_ppm > 0)
        world_ns -= (world_ns - node->clock_world_ns) / 1000000 * (uint64_t)node->clock_ppm;
    while (to_node_ns(node, world_ns) < node_ns)
        world_ns += 1 + (node_ns - to_node_ns(node, world_ns));
    return world_ns;
}

/* Loop. */

void sim_node_enter(const struct sim_node *node)
{
    assert(node->world->running == node && "a process touched what is another's");
}

static void begin_dying(struct sim_node *node)
{
    node->life = SIM_DYING;
    if (node->options.on_death != NULL)
        node->options.on_death(node, node->options.data);
}

bool sim_node_is_gone(struct sim_node *node)
{
    if (node->kill_countdown > 0 && --node->kill_countdown == 0)
        begin_dying(node);
    return node->life != SIM_ALIVE;
}

void sim_node_wake(struct sim_node *node)
{
    struct muster_timer *timer = muster_timer_queue_first(&node->timers);
    uint64_t time_ns = UINT64_MAX;

    if (node->life != SIM_ALIVE || node->is_paused || node->world->running == node)
        return;
    if (!muster_list_is_empty(&node->tasks) || !muster_list_is_empty(&node->ready))
        time_ns = node->world->now_ns;
    else if (timer != NULL)
        time_ns = sim_node_to_world_ns(node, timer->due_ns);
    if (time_ns == UINT64_MAX) {
        sim_event_cancel(node->world, &node->turn);
        return;
    }
    if (time_ns < node->busy_until_ns)
        time_ns = node->busy_until_ns;
    if (!sim_event_is_scheduled(&node->turn) || node->turn.time_ns != time_ns)
        sim_event_schedule(node->world, &node->turn, time_ns);
}

static void run_timers(struct sim_node *node)
{
    uint64_t order_limit = node->timers.next_order;
    struct muster_timer *timer;

    while (!sim_node_is_gone(node) &&
           (timer = muster_timer_queue_pop_due(&node->timers, node->now_ns, order_limit)) != NULL) {
        timer->loop = NULL;
        timer->on_expire(timer);
    }
}

static void run_tasks(struct sim_node *node)
{
    struct muster_list batch;
    struct muster_list *link;

    muster_list_take_all(&batch, &node->tasks);
    while (!sim_node_is_gone(node) && (link = muster_list_pop(&batch)) != NULL) {
        struct muster_task *task = MUSTER_CONTAINER_OF(link, struct muster_task, node);

        task->on_run(task);
    }
}

/* Descriptors become ready in no order that anybody may rely on. */
static struct muster_list *pick_ready(struct sim_node *node, struct muster_list *batch)
{
    bool from_end = sim_chance(node->world, 300);
    struct muster_list *link = from_end ? batch->prev : batch->next;

    muster_list_remove(link);
    return link;
}

static void run_poll(struct sim_node *node)
{
    struct muster_list batch;

    muster_list_take_all(&batch, &node->ready);
    while (!muster_list_is_empty(&batch) && !sim_node_is_gone(node)) {
        struct muster_list *link = pick_ready(node, &batch);
        struct sim_ready *ready = MUSTER_CONTAINER_OF(link, struct sim_ready, link);

        ready->on_poll(ready);
    }
    while (!muster_list_is_empty(&batch)) /* dying: the kernel's own lists stay whole */
        (void)muster_list_pop(&batch);
}

static void check_leaks(struct sim_node *node)
{
    struct sim_world *world = node->world;
    bool is_busy = !muster_list_is_empty(&node->streams) || !muster_list_is_empty(&node->dials) ||
                   !muster_list_is_empty(&node->listeners) || !muster_list_is_empty(&node->lookups);

    if (node->mem.block_count > 0 || is_busy)
        sim_fail(world, "%s ended in order and left %zu blocks%s", node->name,
                 node->mem.block_count, is_busy ? " and open streams" : "");
    world->leak_count += node->mem.block_count;
}

static void on_turn(struct sim_event *event)
{
    struct sim_node *node = event->data;
    struct sim_world *world = node->world;
    uint64_t cost_ns = world->conditions.turn_cost_ns * node->slow_factor;

    sim_note(world, "turn", (uint64_t)node->pid, 0, 0);
    world->running = node;
    world->last_node = node;
    node->now_ns = to_node_ns(node, world->now_ns);
    run_timers(node);
    run_tasks(node);
    run_poll(node);
    world->running = NULL;
    node->busy_until_ns = world->now_ns + 100 + sim_draw(world, cost_ns * 2);
    if (node->life == SIM_DYING) {
        sim_node_die(node, false);
    } else if (node->is_exiting) {
        check_leaks(node);
        sim_node_die(node, false);
    } else {
        sim_node_wake(node);
    }
}

void sim_enter(struct sim_node *node)
{
    assert(node->world->running == NULL && node->life == SIM_ALIVE);
    node->world->running = node;
    node->now_ns = to_node_ns(node, node->world->now_ns);
}

void sim_leave(struct sim_node *node)
{
    sim_node_enter(node);
    node->world->running = NULL;
    if (node->life == SIM_DYING)
        sim_node_die(node, false);
    else
        sim_node_wake(node);
}

static uint64_t loop_now_ns(const struct muster_loop *loop)
{
    struct sim_node *node = node_of(loop);

    return node->world->running == node ? node->now_ns : to_node_ns(node, node->world->now_ns);
}

static void loop_timer_start(struct muster_loop *loop, struct muster_timer *timer)
{
    muster_timer_queue_insert(&node_of(loop)->timers, timer);
    sim_node_wake(node_of(loop));
}

static void loop_timer_stop(struct muster_loop *loop, struct muster_timer *timer)
{
    muster_timer_queue_remove(&node_of(loop)->timers, timer);
}

static void loop_task_post(struct muster_loop *loop, struct muster_task *task)
{
    muster_list_append(&node_of(loop)->tasks, &task->node);
    sim_node_wake(node_of(loop));
}

/* Real descriptors would let the real world in. */
static enum muster_rc loop_fd_open(struct muster_loop *loop, struct muster_fd_watch *watch)
{
    (void)loop;
    (void)watch;
    return MUSTER_UNIMPLEMENTED;
}

static void loop_fd_update(struct muster_loop *loop, struct muster_fd_watch *watch, unsigned wanted)
{
    (void)loop;
    (void)watch;
    (void)wanted;
}

static void loop_fd_close(struct muster_loop *loop, struct muster_fd_watch *watch)
{
    (void)loop;
    (void)watch;
}

void sim_node_loop_init(struct sim_node *node)
{
    static const struct muster_loop_ops ops = {
        .now_ns = loop_now_ns,
        .timer_start = loop_timer_start,
        .timer_stop = loop_timer_stop,
        .task_post = loop_task_post,
        .fd_open = loop_fd_open,
        .fd_update = loop_fd_update,
        .fd_close = loop_fd_close,
    };

    node->loop.ops = &ops;
    node->slow_factor = 1;
    muster_timer_queue_init(&node->timers);
    muster_list_init(&node->tasks);
    muster_list_init(&node->ready);
    sim_event_init(&node->turn, on_turn, node);
}

void sim_ready_init(struct sim_ready *ready, struct sim_node *node, sim_ready_fn *on_poll,
                    void *data)
{
    *ready = (struct sim_ready){.on_poll = on_poll, .data = data, .node = node};
    muster_list_init(&ready->link);
}

void sim_ready_signal(struct sim_ready *ready)
{
    if (!muster_list_is_empty(&ready->link) || ready->node->life != SIM_ALIVE)
        return;
    muster_list_append(&ready->node->ready, &ready->link);
    sim_node_wake(ready->node);
}

void sim_ready_cancel(struct sim_ready *ready)
{
    muster_list_remove(&ready->link);
}

/* Life. */

static void on_start(struct muster_task *task)
{
    struct sim_node *node = task->data;

    node->options.start(node, &node->env, node->options.data);
}

struct sim_node *sim_node_start(struct sim_world *world, const struct sim_node_options *options)
{
    struct sim_node *node = sim_alloc(sizeof(*node));

    assert(options->host->is_up);
    node->world = world;
    node->host = options->host;
    node->options = *options;
    node->pid = world->next_pid++;
    snprintf(node->name, sizeof(node->name), "%s", options->name);
    sim_mem_init(&node->mem, world->fill);
    muster_rng_seeded_init(&node->rng, muster_rng_next(&world->rng.rng));
    sim_node_loop_init(node);
    sim_node_host_init(node);
    sim_node_net_init(node);
    sim_node_log_init(node);
    node->env = (struct muster_env){
        .mem = &node->mem.mem,
        .loop = &node->loop,
        .net = &node->net,
        .host = &node->host_api,
        .files = &node->files,
        .vars = &node->vars,
        .rng = &node->rng.rng,
        .log = &node->log,
    };
    node->clock_world_ns = world->now_ns;
    node->clock_node_ns = MUSTER_NS_PER_S + sim_draw(world, CLOCK_START_MAX_NS);
    muster_list_append(&world->nodes, &node->link);
    muster_task_init(&node->start_task, on_start, node);
    muster_task_post(&node->start_task, &node->loop);
    sim_note(world, "start", (uint64_t)node->pid, 0, 0);
    if (world->trace != NULL)
        fprintf(world->trace, "%14s    %s is pid %" PRId64 " on %s\n", "", node->name, node->pid,
                node->host->name);
    return node;
}

void sim_node_die(struct sim_node *node, bool is_silent)
{
    if (node->life == SIM_ALIVE)
        begin_dying(node);
    sim_note(node->world, "death", (uint64_t)node->pid, is_silent, node->is_exiting);
    node->life = SIM_DEAD;
    node->program = NULL;
    sim_event_cancel(node->world, &node->turn);
    sim_node_drop_net(node, is_silent);
    sim_node_drop_host(node);
    (void)sim_mem_drop(&node->mem);
}

void sim_node_free(struct sim_node *node)
{
    free(node);
}

void sim_kill(struct sim_node *node)
{
    if (node->life != SIM_ALIVE)
        return;
    if (node->world->running == node)
        begin_dying(node);
    else
        sim_node_die(node, false);
}

void sim_kill_within(struct sim_node *node, uint32_t actions)
{
    node->kill_countdown = actions + 1;
}

void sim_exit(struct sim_node *node)
{
    node->is_exiting = true;
    if (node->life == SIM_ALIVE && node->world->running != node) {
        check_leaks(node);
        sim_node_die(node, false);
    }
}

void sim_pause(struct sim_node *node)
{
    if (node->life != SIM_ALIVE)
        return;
    sim_note(node->world, "pause", (uint64_t)node->pid, 0, 0);
    node->is_paused = true;
    sim_event_cancel(node->world, &node->turn);
}

void sim_resume(struct sim_node *node)
{
    if (node->life != SIM_ALIVE || !node->is_paused)
        return;
    sim_note(node->world, "resume", (uint64_t)node->pid, 0, 0);
    node->is_paused = false;
    sim_node_wake(node);
}

void sim_slow(struct sim_node *node, uint32_t factor)
{
    sim_note(node->world, "slow", (uint64_t)node->pid, factor, 0);
    node->slow_factor = factor == 0 ? 1 : factor;
}

void sim_drift(struct sim_node *node, int32_t parts_per_million)
{
    uint64_t node_ns = to_node_ns(node, node->world->now_ns);

    sim_note(node->world, "drift", (uint64_t)node->pid, (uint64_t)(int64_t)parts_per_million, 0);
    node->clock_world_ns = node->world->now_ns;
    node->clock_node_ns = node_ns;
    node->clock_ppm = parts_per_million;
    sim_node_wake(node);
}

bool sim_node_is_alive(const struct sim_node *node)
{
    return node->life == SIM_ALIVE;
}

bool sim_node_is_paused(const struct sim_node *node)
{
    return node->is_paused;
}

const char *sim_node_name(const struct sim_node *node)
{
    return node->name;
}

struct sim_host *sim_node_host(const struct sim_node *node)
{
    return node->host;
}

struct sim_world *sim_node_world(const struct sim_node *node)
{
    return node->world;
}

int64_t sim_node_pid(const struct sim_node *node)
{
    return node->pid;
}

struct muster_env *sim_node_env(struct sim_node *node)
{
    return &node->env;
}

void sim_node_set_program(struct sim_node *node, void *program)
{
    node->program = program;
}

void *sim_node_program(const struct sim_node *node)
{
    return node->life == SIM_ALIVE ? node->program : NULL;
}
