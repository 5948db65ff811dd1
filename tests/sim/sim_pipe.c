/* One direction of a connection: bytes are taken, cut into segments, travel, wait, arrive, are
 * acknowledged. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define RETRANSMIT_MIN_NS (10 * MUSTER_NS_PER_MS)
#define RETRANSMIT_MAX_NS (200 * MUSTER_NS_PER_MS)
#define SMALL_BYTES       128 /* small messages are often cut to single bytes */

static struct sim_stream *pipe_receiver(struct sim_pipe *pipe)
{
    return &pipe->connection->sides[1 - pipe->from];
}

static struct sim_stream *pipe_sender(struct sim_pipe *pipe)
{
    return &pipe->connection->sides[pipe->from];
}

static struct sim_host *host_of(const struct sim_pipe *pipe, uint32_t side)
{
    return pipe->connection->hosts[side];
}

static bool is_blocked(const struct sim_pipe *pipe, uint32_t from)
{
    return sim_link_is_dead(pipe->connection->world, host_of(pipe, from), host_of(pipe, 1 - from));
}

static uint64_t latency_ns(const struct sim_pipe *pipe, uint32_t from)
{
    return sim_link_latency_ns(pipe->connection->world, host_of(pipe, from),
                               host_of(pipe, 1 - from));
}

/* The ring. */

static void pipe_grow(struct sim_pipe *pipe, size_t needed)
{
    size_t room = pipe->room == 0 ? 1024 : pipe->room;
    uint8_t *bytes;
    uint64_t at;

    while (room < needed)
        room *= 2;
    if (room == pipe->room)
        return;
    bytes = sim_alloc(room);
    for (at = pipe->read; at < pipe->taken;) {
        size_t from = (size_t)(at & (pipe->room - 1));
        size_t to = (size_t)(at & (room - 1));
        size_t part = pipe->room - from < room - to ? pipe->room - from : room - to;

        if (part > pipe->taken - at)
            part = (size_t)(pipe->taken - at);
        memcpy(bytes + to, pipe->bytes + from, part);
        at += part;
    }
    free(pipe->bytes);
    pipe->bytes = bytes;
    pipe->room = room;
}

size_t sim_pipe_space(const struct sim_pipe *pipe)
{
    uint64_t held = pipe->taken - pipe->known_arrived;

    return held >= pipe->send_buffer ? 0 : (size_t)(pipe->send_buffer - held);
}

void sim_pipe_put(struct sim_pipe *pipe, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    pipe_grow(pipe, (size_t)(pipe->taken - pipe->read) + count);
    while (count > 0) {
        size_t to = (size_t)(pipe->taken & (pipe->room - 1));
        size_t part = pipe->room - to < count ? pipe->room - to : count;

        memcpy(pipe->bytes + to, at, part);
        pipe->taken += part;
        at += part;
        count -= part;
    }
}

size_t sim_pipe_available(const struct sim_pipe *pipe)
{
    return (size_t)(pipe->arrived - pipe->read);
}

static void send_ack(struct sim_pipe *pipe)
{
    struct sim_world *world = pipe->connection->world;

    if (sim_event_is_scheduled(&pipe->ack) || pipe->is_dead)
        return;
    pipe->ack_arrived = pipe->arrived;
    pipe->ack_read = pipe->read;
    sim_event_schedule(world, &pipe->ack, world->now_ns + latency_ns(pipe, 1 - pipe->from));
}

void sim_pipe_get(struct sim_pipe *pipe, void *bytes, size_t count)
{
    uint8_t *at = bytes;

    assert(count <= sim_pipe_available(pipe));
    while (count > 0) {
        size_t from = (size_t)(pipe->read & (pipe->room - 1));
        size_t part = pipe->room - from < count ? pipe->room - from : count;

        memcpy(at, pipe->bytes + from, part);
        pipe->read += part;
        at += part;
        count -= part;
    }
    send_ack(pipe);
}

void sim_pipe_finish(struct sim_pipe *pipe)
{
    pipe->is_fin_wanted = true;
    sim_pipe_pump(pipe);
}

/* The wire. */

static struct sim_segment *segment_at(struct sim_pipe *pipe, uint32_t n)
{
    return &pipe->segments[(pipe->segment_first + n) % SIM_SEGMENTS_MAX];
}

static void schedule_arrival(struct sim_pipe *pipe)
{
    if (pipe->segment_count > 0)
        sim_event_schedule(pipe->connection->world, &pipe->arrival,
                           segment_at(pipe, 0)->arrival_ns);
}

static size_t draw_segment_bytes(const struct sim_pipe *pipe, size_t bytes_max)
{
    struct sim_world *world = pipe->connection->world;
    const struct sim_conditions *conditions = &pipe->connection->conditions;

    if (bytes_max > conditions->segment_bytes_max)
        bytes_max = conditions->segment_bytes_max;
    if (bytes_max < 2 || !sim_chance(world, conditions->split_permille))
        return bytes_max;
    if (bytes_max < SMALL_BYTES && sim_chance(world, 300))
        return 1;
    return 1 + (size_t)sim_draw(world, bytes_max);
}

static uint64_t later_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* When the last byte arrives that the pipe could send at sent_ns. Both hosts' cards take what is pushed in
 * its order and are never idle meanwhile: what the other end delays does not hold up a third one. */
static uint64_t arrival_of(struct sim_pipe *pipe, size_t count, uint64_t sent_ns)
{
    struct sim_host *from = host_of(pipe, pipe->from), *into = host_of(pipe, 1 - pipe->from);
    uint64_t bytes_per_ms = pipe->connection->conditions.host_bytes_per_ms;
    uint64_t now_ns = pipe->connection->world->now_ns, took_ns;

    if (bytes_per_ms > 0 && from != into) {
        took_ns = count * MUSTER_NS_PER_MS / bytes_per_ms;
        from->sending_until_ns = later_of(from->sending_until_ns, now_ns) + took_ns;
        into->receiving_until_ns = later_of(into->receiving_until_ns, now_ns) + took_ns;
        sent_ns = later_of(sent_ns, later_of(from->sending_until_ns, into->receiving_until_ns));
    }
    return sent_ns + latency_ns(pipe, pipe->from);
}

static void push_segment(struct sim_pipe *pipe, size_t count, bool is_fin)
{
    struct sim_world *world = pipe->connection->world;
    struct sim_segment *segment = segment_at(pipe, pipe->segment_count);
    uint64_t bytes_per_ms = pipe->connection->conditions.bytes_per_ms;

    if (pipe->link_free_ns < world->now_ns)
        pipe->link_free_ns = world->now_ns;
    if (pipe->sent == pipe->known_arrived)
        pipe->progress_ns = world->now_ns;
    pipe->link_free_ns += count * MUSTER_NS_PER_MS / bytes_per_ms;
    pipe->sent += count;
    segment->end = pipe->sent;
    segment->is_fin = is_fin;
    segment->arrival_ns = arrival_of(pipe, count, pipe->link_free_ns);
    if (segment->arrival_ns <= pipe->last_arrival_ns)
        segment->arrival_ns = pipe->last_arrival_ns;
    pipe->last_arrival_ns = segment->arrival_ns;
    pipe->is_fin_sent = is_fin;
    pipe->segment_count++;
    if (pipe->user_timeout_ns != 0 && !sim_event_is_scheduled(&pipe->timeout))
        sim_event_schedule(world, &pipe->timeout, world->now_ns + pipe->user_timeout_ns);
}

void sim_pipe_pump(struct sim_pipe *pipe)
{
    while (!pipe->is_dead && !pipe->is_fin_sent && pipe->segment_count < SIM_SEGMENTS_MAX) {
        uint64_t window = pipe->known_read + pipe->receive_buffer;
        uint64_t end = pipe->taken < window ? pipe->taken : window;

        if (pipe->sent < end)
            push_segment(pipe, draw_segment_bytes(pipe, (size_t)(end - pipe->sent)), false);
        else if (pipe->is_fin_wanted && pipe->sent == pipe->taken)
            push_segment(pipe, 0, true);
        else
            break;
    }
    if (!sim_event_is_scheduled(&pipe->arrival))
        schedule_arrival(pipe);
}

static void hash_segment(struct sim_pipe *pipe, uint64_t end)
{
    uint64_t at = pipe->arrived;

    while (at < end) {
        size_t from = (size_t)(at & (pipe->room - 1));
        size_t part = pipe->room - from;

        if (part > end - at)
            part = (size_t)(end - at);
        sim_hash_bytes(pipe->connection->world, pipe->bytes + from, part);
        at += part;
    }
}

/* The receiver's kernel takes a segment, or answers that nobody is there. */
static void receive_segment(struct sim_pipe *pipe, const struct sim_segment *segment)
{
    struct sim_stream *stream = pipe_receiver(pipe);

    sim_note(pipe->connection->world, segment->is_fin ? "fin" : "segment",
             pipe->connection->number * 2 + pipe->from, segment->end - pipe->arrived, segment->end);
    hash_segment(pipe, segment->end);
    if (stream->phase == SIM_SIDE_GONE || stream->phase == SIM_SIDE_CLOSING || stream->is_reset) {
        /* a FIN alone is no news to a socket that is gone in order */
        if (!segment->is_fin || stream->is_reset || stream->is_silent)
            sim_stream_send_reset(pipe_sender(pipe));
        pipe->arrived = segment->end;
        pipe->read = segment->end;
        return;
    }
    pipe->arrived = segment->end;
    pipe->is_fin_arrived |= segment->is_fin;
    if (stream->node != NULL)
        sim_ready_signal(&stream->ready);
}

static void on_arrival(struct sim_event *event)
{
    struct sim_pipe *pipe = event->data;
    struct sim_world *world = pipe->connection->world;
    struct sim_segment segment = *segment_at(pipe, 0);

    if (is_blocked(pipe, pipe->from)) /* lost; sent again when the link is back */
        return;
    if (segment.arrival_ns > world->now_ns) {
        schedule_arrival(pipe);
        return;
    }
    pipe->segment_first = (pipe->segment_first + 1) % SIM_SEGMENTS_MAX;
    pipe->segment_count--;
    receive_segment(pipe, &segment);
    send_ack(pipe);
    sim_pipe_pump(pipe);
    schedule_arrival(pipe);
}

static void on_ack(struct sim_event *event)
{
    struct sim_pipe *pipe = event->data;
    struct sim_stream *stream = pipe_sender(pipe);

    if (is_blocked(pipe, 1 - pipe->from))
        return;
    if (pipe->ack_arrived > pipe->known_arrived)
        pipe->progress_ns = pipe->connection->world->now_ns;
    pipe->known_arrived = pipe->ack_arrived;
    pipe->known_read = pipe->ack_read;
    if (pipe->arrived != pipe->ack_arrived || pipe->read != pipe->ack_read)
        send_ack(pipe);
    if (stream->phase == SIM_SIDE_OPEN && !muster_list_is_empty(&stream->writes))
        sim_ready_signal(&stream->ready);
    sim_pipe_pump(pipe);
}

static void on_timeout(struct sim_event *event)
{
    struct sim_pipe *pipe = event->data;
    struct sim_world *world = pipe->connection->world;

    if (pipe->known_arrived == pipe->sent || pipe->is_dead)
        return;
    if (world->now_ns - pipe->progress_ns < pipe->user_timeout_ns) {
        sim_event_schedule(world, &pipe->timeout, pipe->progress_ns + pipe->user_timeout_ns);
        return;
    }
    sim_note(world, "user_timeout", pipe->connection->number * 2 + pipe->from, 0, 0);
    sim_stream_reset(pipe_sender(pipe));
}

static void on_wake(struct sim_event *event)
{
    struct sim_pipe *pipe = event->data;
    struct sim_world *world = pipe->connection->world;
    uint32_t i;

    pipe->last_arrival_ns = world->now_ns;
    for (i = 0; i < pipe->segment_count; i++) {
        struct sim_segment *segment = segment_at(pipe, i);

        if (segment->arrival_ns < world->now_ns)
            segment->arrival_ns = world->now_ns;
        pipe->last_arrival_ns = segment->arrival_ns;
    }
    schedule_arrival(pipe);
    if (pipe->arrived != pipe->known_arrived || pipe->read != pipe->known_read)
        send_ack(pipe);
    sim_pipe_pump(pipe);
}

/* A link is back: what was lost is sent again after TCP's timer. */
void sim_pipe_resume(struct sim_pipe *pipe)
{
    struct sim_world *world = pipe->connection->world;

    if (pipe->is_dead || sim_event_is_scheduled(&pipe->wake))
        return;
    if (sim_event_is_scheduled(&pipe->arrival) && sim_event_is_scheduled(&pipe->ack))
        return;
    sim_event_schedule(world, &pipe->wake,
                       world->now_ns + RETRANSMIT_MIN_NS +
                           sim_draw(world, RETRANSMIT_MAX_NS - RETRANSMIT_MIN_NS));
}

void sim_pipe_stop(struct sim_pipe *pipe)
{
    struct sim_world *world = pipe->connection->world;

    pipe->is_dead = true;
    sim_event_cancel(world, &pipe->arrival);
    sim_event_cancel(world, &pipe->ack);
    sim_event_cancel(world, &pipe->timeout);
    sim_event_cancel(world, &pipe->wake);
}

void sim_pipe_init(struct sim_pipe *pipe, struct sim_connection *connection, uint32_t from)
{
    pipe->connection = connection;
    pipe->from = from;
    pipe->send_buffer = connection->conditions.send_buffer_bytes;
    pipe->receive_buffer = connection->conditions.receive_buffer_bytes;
    sim_event_init(&pipe->arrival, on_arrival, pipe);
    sim_event_init(&pipe->ack, on_ack, pipe);
    sim_event_init(&pipe->timeout, on_timeout, pipe);
    sim_event_init(&pipe->wake, on_wake, pipe);
}

void sim_pipe_fini(struct sim_pipe *pipe)
{
    sim_pipe_stop(pipe);
    free(pipe->bytes);
    pipe->bytes = NULL;
}
