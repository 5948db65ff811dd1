/* The world itself: one heap of events, one clock, the record of what happened, the oracles. */
#include "tests/sim/world.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"
#include "uninstrumented.h"

#define START_NS   MUSTER_NS_PER_S
#define HASH_PRIME UINT64_C(0x9E3779B97F4A7C15)

const struct sim_conditions sim_conditions_calm = {
    .latency_min_ns = 100 * MUSTER_NS_PER_US,
    .latency_max_ns = 100 * MUSTER_NS_PER_US,
    .latency_local_ns = 20 * MUSTER_NS_PER_US,
    .jitter_permille = 50,
    .bytes_per_ms = 1000000,
    .segment_bytes_max = 65536,
    .send_buffer_bytes = 256 * 1024,
    .receive_buffer_bytes = 256 * 1024,
    .split_permille = 50,
    .turn_cost_ns = 2 * MUSTER_NS_PER_US,
    .process_watch_delay_max_ns = MUSTER_NS_PER_MS,
    .lookup_delay_max_ns = MUSTER_NS_PER_MS,
};

struct action {
    struct sim_event event;
    struct sim_world *world;
    sim_action_fn *action;
    void *data;
    struct muster_list link;
};

void *sim_alloc(size_t bytes)
{
    void *ptr = calloc(1, bytes);

    if (ptr == NULL)
        abort();
    return ptr;
}

/* Random numbers of the world. */

uint64_t sim_draw(struct sim_world *world, uint64_t bound)
{
    return bound == 0 ? 0 : muster_rng_below(&world->rng.rng, bound);
}

bool sim_chance(struct sim_world *world, uint32_t permille)
{
    return permille != 0 && sim_draw(world, 1000) < permille;
}

static uint64_t draw_between(struct muster_rng *rng, uint64_t low, uint64_t high)
{
    return low + muster_rng_below(rng, high - low + 1);
}

/* A size or time whose magnitude is uniform: as often small as large. */
static uint64_t draw_magnitude(struct muster_rng *rng, unsigned bits_low, unsigned bits_high)
{
    uint64_t bits = draw_between(rng, bits_low, bits_high);

    return draw_between(rng, UINT64_C(1) << bits, (UINT64_C(2) << bits) - 1);
}

struct sim_conditions sim_conditions_draw(struct muster_rng *rng)
{
    struct sim_conditions drawn = sim_conditions_calm;

    drawn.latency_min_ns = draw_magnitude(rng, 13, 19);
    drawn.latency_max_ns = drawn.latency_min_ns + draw_magnitude(rng, 10, 22);
    drawn.latency_local_ns = draw_magnitude(rng, 11, 15);
    drawn.jitter_permille = (uint32_t)draw_between(rng, 0, 900);
    drawn.bytes_per_ms = draw_magnitude(rng, 13, 21);
    drawn.segment_bytes_max = (uint32_t)draw_magnitude(rng, 8, 17);
    drawn.send_buffer_bytes = (uint32_t)draw_magnitude(rng, 11, 19);
    drawn.receive_buffer_bytes = (uint32_t)draw_magnitude(rng, 11, 19);
    drawn.split_permille = (uint32_t)draw_between(rng, 0, 3) * 150;
    drawn.turn_cost_ns = draw_magnitude(rng, 9, 15);
    return drawn;
}

/* The record of what happened. */

/* All bytes of a world come through here. */
UNWATCHED static inline uint64_t hash_mixed(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * HASH_PRIME;
    return (hash ^ (hash >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
}

void sim_hash_u64(struct sim_world *world, uint64_t value)
{
    world->hash = hash_mixed(world->hash, value);
}

UNWATCHED void sim_hash_bytes(struct sim_world *world, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    uint64_t word = 0, hash = world->hash;

    for (; count >= sizeof(word); count -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        hash = hash_mixed(hash, word);
    }
    word = count;
    while (count-- > 0)
        word = word << 8 | *at++;
    world->hash = hash_mixed(hash, word);
}

void sim_note(struct sim_world *world, const char *kind, uint64_t a, uint64_t b, uint64_t c)
{
    sim_hash_bytes(world, kind, strlen(kind));
    sim_hash_u64(world, a);
    sim_hash_u64(world, b);
    sim_hash_u64(world, c);
    if (world->trace != NULL)
        fprintf(world->trace, "%14.6f ms %-16s %-18s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                (double)world->now_ns / 1e6, world->running != NULL ? world->running->name : "-",
                kind, a, b, c);
}

void sim_fail(struct sim_world *world, const char *fmt, ...)
{
    va_list args;

    if (world->is_failed)
        return;
    world->is_failed = true;
    va_start(args, fmt);
    vsnprintf(world->failure, sizeof(world->failure), fmt, args);
    va_end(args);
    if (world->trace == NULL)
        return;
    fprintf(world->trace, "%14.6f ms FAILURE: %s\n", (double)world->now_ns / 1e6, world->failure);
    sim_connections_print(world, world->trace);
}

const char *sim_failure(const struct sim_world *world)
{
    return world->is_failed ? world->failure : NULL;
}

/* The heap. */

void sim_event_init(struct sim_event *event, sim_event_fn *on_time, void *data)
{
    *event = (struct sim_event){.on_time = on_time, .data = data};
}

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->sequence < b->sequence;
}

static void put_at(struct sim_world *world, size_t place, struct sim_event *event)
{
    world->heap[place] = event;
    event->place = place;
}

static void sift_up(struct sim_world *world, struct sim_event *event, size_t place)
{
    for (; place > 1 && is_before(event, world->heap[place / 2]); place /= 2)
        put_at(world, place, world->heap[place / 2]);
    put_at(world, place, event);
}

static void sift_down(struct sim_world *world, struct sim_event *event, size_t place)
{
    for (;;) {
        size_t child = place * 2;

        if (child > world->heap_count)
            break;
        if (child < world->heap_count && is_before(world->heap[child + 1], world->heap[child]))
            child++;
        if (!is_before(world->heap[child], event))
            break;
        put_at(world, place, world->heap[child]);
        place = child;
    }
    put_at(world, place, event);
}

void sim_event_schedule(struct sim_world *world, struct sim_event *event, uint64_t time_ns)
{
    sim_event_cancel(world, event);
    if (world->heap_count + 2 > world->heap_room) {
        world->heap_room = world->heap_room * 2 + 64;
        world->heap = realloc(world->heap, world->heap_room * sizeof(*world->heap));
        if (world->heap == NULL)
            abort();
    }
    event->time_ns = time_ns < world->now_ns ? world->now_ns : time_ns;
    event->sequence = world->next_sequence++;
    sift_up(world, event, ++world->heap_count);
}

void sim_event_cancel(struct sim_world *world, struct sim_event *event)
{
    size_t place = event->place;
    struct sim_event *last;

    if (place == 0)
        return;
    event->place = 0;
    last = world->heap[world->heap_count--];
    if (last == event)
        return;
    if (place > 1 && is_before(last, world->heap[place / 2]))
        sift_up(world, last, place);
    else
        sift_down(world, last, place);
}

/* Running. */

bool sim_step(struct sim_world *world)
{
    struct sim_event *event;
    const struct sim_oracle *oracle;

    assert(world->running == NULL);
    if (world->heap_count == 0 || world->is_failed)
        return false;
    event = world->heap[1];
    sim_event_cancel(world, event);
    world->now_ns = event->time_ns;
    world->event_count++;
    world->last_node = NULL;
    event->on_time(event);
    for (oracle = world->oracles; oracle != NULL; oracle = oracle->next)
        oracle->check(oracle->data);
    return !world->is_failed;
}

static uint64_t world_later(const struct sim_world *world, uint64_t delay_ns)
{
    return delay_ns > UINT64_MAX - world->now_ns ? UINT64_MAX : world->now_ns + delay_ns;
}

bool sim_run_until(struct sim_world *world, sim_condition_fn *condition, void *data,
                   uint64_t limit_ns)
{
    uint64_t end_ns = world_later(world, limit_ns);

    while (!world->is_failed) {
        if (condition(data))
            return true;
        if (world->heap_count == 0 || world->heap[1]->time_ns > end_ns) {
            world->now_ns = world->heap_count == 0 ? world->now_ns : end_ns;
            return false;
        }
        if (!sim_step(world))
            break;
    }
    return false;
}

bool sim_run_for(struct sim_world *world, uint64_t duration_ns)
{
    uint64_t end_ns = world_later(world, duration_ns);

    while (!world->is_failed && world->heap_count > 0 && world->heap[1]->time_ns <= end_ns)
        (void)sim_step(world);
    if (!world->is_failed)
        world->now_ns = end_ns;
    return !world->is_failed;
}

void sim_oracle_add(struct sim_world *world, sim_action_fn *check, void *data)
{
    struct sim_oracle *oracle = sim_alloc(sizeof(*oracle));

    oracle->check = check;
    oracle->data = data;
    *world->oracles_tail = oracle;
    world->oracles_tail = &oracle->next;
}

static void on_action(struct sim_event *event)
{
    struct action *action = event->data;

    muster_list_remove(&action->link);
    action->action(action->data);
    free(action);
}

void sim_at(struct sim_world *world, uint64_t time_ns, sim_action_fn *run, void *data)
{
    struct action *action = sim_alloc(sizeof(*action));

    action->world = world;
    action->action = run;
    action->data = data;
    muster_list_append(&world->actions, &action->link);
    sim_event_init(&action->event, on_action, action);
    sim_event_schedule(world, &action->event, time_ns);
}

/* Opening and closing. */

struct sim_world *sim_world_open(uint64_t seed, const struct sim_conditions *conditions)
{
    struct sim_world *world = sim_alloc(sizeof(*world));

    world->seed = seed;
    world->now_ns = START_NS;
    world->conditions = conditions != NULL ? *conditions : sim_conditions_calm;
    world->oracles_tail = &world->oracles;
    world->next_pid = 100;
    world->fill = 0xA5;
    world->log_level = MUSTER_LOG_DEBUG;
    muster_rng_seeded_init(&world->rng, seed * 2 + 1);
    muster_rng_seeded_init(&world->scenario_rng, seed * 2);
    muster_list_init(&world->hosts);
    muster_list_init(&world->nodes);
    muster_list_init(&world->connections);
    muster_list_init(&world->cuts);
    muster_list_init(&world->actions);
    return world;
}

static void drop_links(struct sim_world *world)
{
    struct muster_list *link;

    while ((link = muster_list_pop(&world->nodes)) != NULL) {
        struct sim_node *node = MUSTER_CONTAINER_OF(link, struct sim_node, link);

        if (node->life != SIM_DEAD)
            sim_node_die(node, true);
        sim_node_free(node);
    }
    while ((link = world->connections.next) != &world->connections)
        sim_connection_free(MUSTER_CONTAINER_OF(link, struct sim_connection, link));
    while ((link = muster_list_pop(&world->cuts)) != NULL)
        free(MUSTER_CONTAINER_OF(link, struct sim_cut, link));
    while ((link = muster_list_pop(&world->hosts)) != NULL)
        sim_host_free(MUSTER_CONTAINER_OF(link, struct sim_host, link));
    while ((link = muster_list_pop(&world->actions)) != NULL) {
        struct action *action = MUSTER_CONTAINER_OF(link, struct action, link);

        sim_event_cancel(world, &action->event);
        free(action);
    }
}

size_t sim_world_close(struct sim_world *world)
{
    size_t leak_count;

    if (world == NULL)
        return 0;
    drop_links(world);
    while (world->oracles != NULL) {
        struct sim_oracle *next = world->oracles->next;

        free(world->oracles);
        world->oracles = next;
    }
    assert(world->heap_count == 0);
    leak_count = world->leak_count;
    free(world->heap);
    free(world);
    return leak_count;
}

uint64_t sim_world_now_ns(const struct sim_world *world)
{
    return world->now_ns;
}

struct muster_rng *sim_world_rng(struct sim_world *world)
{
    return &world->scenario_rng.rng;
}

uint64_t sim_world_hash(const struct sim_world *world)
{
    return world->hash;
}

uint64_t sim_world_event_count(const struct sim_world *world)
{
    return world->event_count;
}

void sim_world_set_trace(struct sim_world *world, FILE *file)
{
    world->trace = file;
}

void sim_world_set_log_level(struct sim_world *world, enum muster_log_level level)
{
    world->log_level = level;
}

void sim_world_set_fill(struct sim_world *world, uint8_t fill)
{
    world->fill = fill;
}

void sim_world_share_once(struct sim_world *world)
{
    world->is_shared_once = true;
}
