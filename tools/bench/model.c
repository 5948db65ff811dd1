/* Plans of steps played through a model of latency and bandwidth: one heap of events.
 *
 * `muster bench scale` calls it once for each plan. It includes collective/plan/steps.h, which no
 * other file of the command does: a copy of the plans would model another library. */
#include "bench/model.h"

#include "collective/plan/steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 16u
/* A list of steps up to this length is searched one by one, which is faster than an index. */
#define SHORT_LIST 16u

/* The steps of one member for one chunk, made when they are first needed. */
struct list {
    struct muster_step *steps;
    uint32_t *by_message; /* a long list's incoming steps, sorted by peer and number */
    bool *has_arrived;    /* by step */
    uint32_t count, incoming_count, cursor;
};

struct rank {
    struct list *lists; /* by chunk */
    struct muster_plan plan;
    uint32_t first_open;
    uint64_t bytes_sent;
};

struct event {
    double time_us;
    uint64_t sequence;
    uint32_t to, chunk, step;
    bool is_whole;  /* it has arrived; else its first byte is there */
    double port_us; /* how long the receiver's port needs for it */
    bool is_local;
};

struct world {
    struct muster_mem *mem;
    const struct bench_model *model;
    struct muster_topology topology;
    struct rank *ranks;
    double *send_free_us, *receive_free_us; /* by port: the hosts', then the members' own */
    char *host_keys;                        /* NAME_BYTES for each member */
    struct muster_step *scratch;
    struct event *heap;
    size_t heap_count, heap_room;
    uint64_t sequence, messages;
    double end_us;
    bool is_out_of_memory;
};

/* --- Events --- */

/* Events at the same time keep the order in which they were made, so that a result does not depend
 * on the heap. */
static bool is_before(const struct event *a, const struct event *b)
{
    return a->time_us < b->time_us || (a->time_us == b->time_us && a->sequence < b->sequence);
}

static bool grow_heap(struct world *world)
{
    size_t room = world->heap_room > 0 ? 2 * world->heap_room : 1024;
    struct event *heap = muster_mem_realloc(world->mem, world->heap, room * sizeof(*heap));

    if (heap == NULL) {
        world->is_out_of_memory = true;
        return false;
    }
    world->heap = heap;
    world->heap_room = room;
    return true;
}

static void push_event(struct world *world, struct event event)
{
    size_t at;

    if (world->heap_count == world->heap_room && !grow_heap(world))
        return;
    event.sequence = world->sequence++;
    for (at = world->heap_count++; at > 0 && is_before(&event, &world->heap[(at - 1) / 2]);
         at = (at - 1) / 2)
        world->heap[at] = world->heap[(at - 1) / 2];
    world->heap[at] = event;
}

static struct event pop_event(struct world *world)
{
    struct event first = world->heap[0], last = world->heap[--world->heap_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= world->heap_count)
            break;
        if (child + 1 < world->heap_count &&
            is_before(&world->heap[child + 1], &world->heap[child]))
            child++;
        if (!is_before(&world->heap[child], &last))
            break;
        world->heap[at] = world->heap[child];
        at = child;
    }
    world->heap[at] = last;
    return first;
}

/* --- Lists --- */

static bool is_incoming(const struct muster_step *step)
{
    return step->kind == MUSTER_STEP_RECEIVE || step->kind == MUSTER_STEP_REDUCE ||
           step->kind == MUSTER_STEP_HOLD;
}

/* A message is known by its sender and its number (collective/plan/steps.h). */
static uint64_t key_of(const struct muster_step *step)
{
    return ((uint64_t)step->peer << 8) | step->message;
}

/* Merge sort: insertion would be quadratic among thousands of members, and qsort could not see the
 * steps. */
static void sort_incoming(uint32_t *at, uint32_t *spare, uint32_t count,
                          const struct muster_step *steps)
{
    uint32_t half = count / 2, a = 0, b = half;

    if (count < 2)
        return;
    sort_incoming(at, spare, half, steps);
    sort_incoming(at + half, spare, count - half, steps);
    memcpy(spare, at, count * sizeof(*at));
    for (uint32_t i = 0; i < count; i++)
        at[i] = b == count || (a < half && key_of(&steps[spare[a]]) <= key_of(&steps[spare[b]]))
                    ? spare[a++]
                    : spare[b++];
}

static void index_list(struct list *list, uint32_t *spare)
{
    for (uint32_t s = 0; s < list->count; s++)
        if (is_incoming(&list->steps[s]))
            list->by_message[list->incoming_count++] = s;
    sort_incoming(list->by_message, spare, list->incoming_count, list->steps);
}

/* Lists are made when they are first needed. One allocation holds the steps, the index with room to
 * sort it, and the flags. */
static struct list *list_of(struct world *world, uint32_t index, uint32_t c)
{
    struct rank *rank = &world->ranks[index];
    struct list *list = &rank->lists[c];
    size_t step_bytes = sizeof(struct muster_step), bytes;
    uint8_t *memory;

    if (list->steps != NULL || world->is_out_of_memory)
        return list;
    list->count = muster_steps_make(&rank->plan, &world->topology, c, world->scratch);
    bytes = list->count * (step_bytes + 2 * sizeof(uint32_t) + sizeof(bool)) + 1;
    memory = muster_mem_alloc_zero(world->mem, bytes, 1);
    if (memory == NULL) {
        world->is_out_of_memory = true;
        list->count = 0;
        return list;
    }
    list->steps = (struct muster_step *)(void *)memory;
    list->by_message = (uint32_t *)(void *)(list->steps + list->count);
    list->has_arrived = (bool *)(list->by_message + 2 * (size_t)list->count);
    memcpy(list->steps, world->scratch, list->count * step_bytes);
    if (list->count > SHORT_LIST)
        index_list(list, list->by_message + list->count);
    return list;
}

static uint32_t find_short(const struct list *list, uint64_t key)
{
    uint32_t s = 0;

    while (s < list->count && (!is_incoming(&list->steps[s]) || key_of(&list->steps[s]) != key))
        s++;
    return s;
}

/* The plans of two members fit together, so the step is always there. */
static uint32_t find_step(const struct list *list, uint64_t key)
{
    uint32_t low = 0, high = list->incoming_count;

    if (list->count <= SHORT_LIST)
        return find_short(list, key);
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (key_of(&list->steps[list->by_message[middle]]) <= key)
            low = middle;
        else
            high = middle;
    }
    return list->by_message[low];
}

/* --- Messages --- */

static uint32_t port_of(const struct world *world, uint32_t rank, bool is_local)
{
    return is_local ? world->topology.host_count + rank : world->topology.host_of[rank];
}

static double to_microseconds(double bytes, double gbps)
{
    return bytes * 8 / gbps / 1e3;
}

/* The port is busy for overhead and transfer; the first byte is at the receiver one latency after
 * the overhead. */
static void send_step(struct world *world, uint32_t from, uint32_t c,
                      const struct muster_step *step, double now_us)
{
    const struct bench_model *model = world->model;
    const struct muster_topology *topology = &world->topology;
    bool is_local = topology->host_of[from] == topology->host_of[step->peer];
    double bytes = (double)step->count * (double)world->ranks[from].plan.element_bytes;
    double port_us = to_microseconds(bytes, is_local ? model->local_gbps : model->gbps);
    double *free_us = &world->send_free_us[port_of(world, from, is_local)];
    double begin_us = now_us > *free_us ? now_us : *free_us;
    uint64_t key = ((uint64_t)from << 8) | step->message;

    *free_us = begin_us + model->overhead_us + port_us;
    world->messages++;
    world->ranks[from].bytes_sent += (uint64_t)bytes;
    push_event(world,
               (struct event){.time_us = begin_us + model->overhead_us +
                                         (is_local ? model->local_latency_us : model->latency_us),
                              .to = step->peer,
                              .chunk = c,
                              .step = find_step(list_of(world, step->peer, c), key),
                              .port_us = port_us,
                              .is_local = is_local});
}

static void advance_chunk(struct world *world, uint32_t index, uint32_t c, double now_us)
{
    struct list *list = list_of(world, index, c);

    while (list->cursor < list->count) {
        const struct muster_step *step = &list->steps[list->cursor];

        if (is_incoming(step) && !list->has_arrived[list->cursor])
            return;
        if (step->kind == MUSTER_STEP_SEND)
            send_step(world, index, c, step, now_us);
        list->cursor++;
    }
}

/* All steps of the chunk are done. */
static bool is_through(const struct rank *rank, uint32_t c)
{
    return rank->lists[c].steps != NULL && rank->lists[c].cursor == rank->lists[c].count;
}

/* As in the library, a member begins at most `window` chunks beyond the first that is open. */
static uint32_t window_end(const struct rank *rank)
{
    uint64_t end = (uint64_t)rank->first_open + rank->plan.window;

    /* Each member begins the chunks of one block only. */
    if (rank->plan.algorithm == MUSTER_ALGORITHM_RING || end > rank->plan.chunk_count)
        return rank->plan.chunk_count;
    return (uint32_t)end;
}

static void advance_from(struct world *world, uint32_t index, uint32_t from, double now_us)
{
    struct rank *rank = &world->ranks[index];

    for (uint32_t c = from; c < window_end(rank) && !world->is_out_of_memory; c++) {
        advance_chunk(world, index, c, now_us);
        while (rank->first_open < rank->plan.chunk_count && is_through(rank, rank->first_open))
            rank->first_open++;
    }
}

/* A message for a chunk outside of the window waits in has_arrived until the chunk begins. */
static void handle_arrival(struct world *world, const struct event *event)
{
    struct rank *rank = &world->ranks[event->to];

    list_of(world, event->to, event->chunk)->has_arrived[event->step] = true;
    world->end_us = event->time_us;
    if (event->chunk >= window_end(rank))
        return;
    advance_chunk(world, event->to, event->chunk, event->time_us);
    if (rank->first_open < rank->plan.chunk_count && is_through(rank, rank->first_open))
        advance_from(world, event->to, rank->first_open, event->time_us);
}

/* A message takes two events: its first byte at the receiver, and its last, after the receiver's
 * port was free for the transfer. */
static void take_event(struct world *world, struct event event)
{
    double *free_us = &world->receive_free_us[port_of(world, event.to, event.is_local)];
    double begin_us = event.time_us > *free_us ? event.time_us : *free_us;

    if (event.is_whole) {
        handle_arrival(world, &event);
        return;
    }
    *free_us = begin_us + event.port_us;
    event.time_us = *free_us;
    event.is_whole = true;
    push_event(world, event);
}

/* --- A world --- */

static const char *host_key(const void *data, uint32_t i)
{
    const struct world *world = data;

    return world->host_keys + (size_t)i * NAME_BYTES;
}

static struct muster_plan_input input_of(const struct bench_model *model, uint32_t index)
{
    uint32_t per_host = model->ranks_per_host > 0 ? model->ranks_per_host : 1;

    return (struct muster_plan_input){
        .kind = MUSTER_OP_ALL_REDUCE,
        .n = model->n,
        .index = index,
        .count = model->bytes / 4,
        .element_bytes = 4,
        .host_count = (model->n + per_host - 1) / per_host,
        .parameters = model->parameters,
    };
}

/* The table is left out, and the limit for direct operations set so that it does not choose
 * instead. */
static void force_algorithm(struct muster_plan_input *input, enum muster_algorithm algorithm)
{
    input->parameters.row_count = 0;
    input->parameters.direct_max_bytes =
        algorithm == MUSTER_ALGORITHM_DIRECT ? MUSTER_DIRECT_MAX_BYTES_MAX : 1;
    input->parameters.forced = algorithm;
}

enum muster_algorithm bench_model_choose(const struct bench_model *model)
{
    const struct muster_plan_input input = input_of(model, 0);

    return muster_plan_choose(&input);
}

static bool init_rank(struct world *world, uint32_t index)
{
    struct muster_plan_input input = input_of(world->model, index);
    struct rank *rank = &world->ranks[index];

    if (world->model->algorithm != MUSTER_ALGORITHM_AUTO)
        force_algorithm(&input, world->model->algorithm);
    rank->plan = muster_plan_make(&input);
    rank->lists = muster_mem_alloc_zero(world->mem, rank->plan.chunk_count, sizeof(*rank->lists));
    return rank->lists != NULL;
}

static bool name_hosts(struct world *world)
{
    uint32_t n = world->model->n;
    uint32_t per_host = world->model->ranks_per_host > 0 ? world->model->ranks_per_host : 1;

    world->host_keys = muster_mem_alloc(world->mem, (size_t)n * NAME_BYTES);
    for (uint32_t i = 0; world->host_keys != NULL && i < n; i++)
        snprintf(world->host_keys + (size_t)i * NAME_BYTES, NAME_BYTES, "%u", i / per_host);
    return world->host_keys != NULL;
}

static bool world_init(struct world *world)
{
    uint32_t n = world->model->n;

    if (muster_topology_init(&world->topology, world->mem, n) != MUSTER_OK)
        return false;
    if (!name_hosts(world))
        return false;
    muster_topology_make(&world->topology, n, host_key, world);
    world->ranks = muster_mem_alloc_zero(world->mem, n, sizeof(*world->ranks));
    world->send_free_us =
        muster_mem_alloc_zero(world->mem, 4 * (size_t)n, sizeof(*world->send_free_us));
    if (world->ranks == NULL || world->send_free_us == NULL)
        return false;
    world->receive_free_us = world->send_free_us + 2 * (size_t)n;
    for (uint32_t i = 0; i < n; i++)
        if (!init_rank(world, i))
            return false;
    world->scratch = muster_mem_alloc(world->mem, muster_steps_max(&world->ranks[0].plan) *
                                                      sizeof(*world->scratch));
    return world->scratch != NULL;
}

static void world_fini(struct world *world)
{
    for (uint32_t i = 0; world->ranks != NULL && i < world->model->n; i++) {
        struct rank *rank = &world->ranks[i];

        for (uint32_t c = 0; rank->lists != NULL && c < rank->plan.chunk_count; c++)
            muster_mem_free(world->mem, rank->lists[c].steps);
        muster_mem_free(world->mem, rank->lists);
    }
    muster_mem_free(world->mem, world->ranks);
    muster_mem_free(world->mem, world->send_free_us);
    muster_mem_free(world->mem, world->host_keys);
    muster_mem_free(world->mem, world->scratch);
    muster_mem_free(world->mem, world->heap);
    muster_topology_fini(&world->topology, world->mem);
}

/* Larger operations begin by asking whether all have started, which costs one latency. */
static double start_us(const struct world *world)
{
    enum muster_algorithm algorithm = world->ranks[0].plan.algorithm;
    bool is_asking = algorithm != MUSTER_ALGORITHM_DIRECT && algorithm != MUSTER_ALGORITHM_RING &&
                     world->model->bytes > MUSTER_STEPS_UNASKED_BYTES_MAX;
    bool is_local = world->topology.host_count == 1;

    if (!is_asking)
        return 0;
    return is_local ? world->model->local_latency_us : world->model->latency_us;
}

/* All members start at the same time; from then on only arrivals drive the model. */
static void play_events(struct world *world)
{
    double begin_us = start_us(world);

    for (uint32_t i = 0; i < world->model->n; i++)
        advance_from(world, i, 0, begin_us);
    while (world->heap_count > 0 && !world->is_out_of_memory)
        take_event(world, pop_event(world));
}

static double bound_us(const struct world *world)
{
    const struct bench_model *model = world->model;
    bool is_local = world->topology.host_count == 1;
    double parts = is_local ? model->n : world->topology.host_count;
    double latency = (is_local ? model->local_latency_us : model->latency_us) * (parts > 1) +
                     ceil(log2(parts)) * model->overhead_us;
    double bandwidth = to_microseconds(2 * (parts - 1) / parts * (double)model->bytes,
                                       is_local ? model->local_gbps : model->gbps);

    return latency > bandwidth ? latency : bandwidth;
}

static enum muster_rc check_model(const struct bench_model *model, struct muster_error *ret_error)
{
    if (model->n == 0 || !(model->gbps > 0) || !(model->local_gbps > 0) ||
        !(model->latency_us >= 0) || !(model->local_latency_us >= 0) || !(model->overhead_us >= 0))
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "a model must have members, bandwidths above 0, and times of at least 0");
    return MUSTER_OK;
}

static enum muster_rc check_choice(const struct world *world, struct muster_error *ret_error)
{
    enum muster_algorithm asked = world->model->algorithm;
    enum muster_algorithm chosen = world->ranks[0].plan.algorithm;

    if (asked == MUSTER_ALGORITHM_AUTO || asked == chosen)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%s cannot reduce %llu bytes among %u members; it would be %s",
                            muster_algorithm_name(asked), (unsigned long long)world->model->bytes,
                            world->model->n, muster_algorithm_name(chosen));
}

static struct bench_model_result result_of(const struct world *world)
{
    struct bench_model_result result = {.algorithm = world->ranks[0].plan.algorithm,
                                        .time_us = world->end_us,
                                        .bound_us = bound_us(world),
                                        .messages = world->messages};

    for (uint32_t i = 0; i < world->model->n; i++)
        if (world->ranks[i].bytes_sent > result.bytes_per_rank_max)
            result.bytes_per_rank_max = world->ranks[i].bytes_sent;
    return result;
}

enum muster_rc bench_model_run(struct muster_mem *mem, const struct bench_model *model,
                               struct bench_model_result *ret_result,
                               struct muster_error *ret_error)
{
    struct world world = {.mem = mem, .model = model};
    enum muster_rc rc = check_model(model, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (!world_init(&world))
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the model");
    if (rc == MUSTER_OK)
        rc = check_choice(&world, ret_error);
    if (rc == MUSTER_OK)
        play_events(&world);
    if (rc == MUSTER_OK && world.is_out_of_memory)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the model");
    if (rc == MUSTER_OK)
        *ret_result = result_of(&world);
    world_fini(&world);
    return rc;
}
