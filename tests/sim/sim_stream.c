/* Simulated byte streams: what a program sees of a connection. Keeps the contract of stream.h to
 * the letter. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define READ_BUDGET_BYTES (256u * 1024)
#define READ_BUDGET_COUNT 64
#define RESET_LOSES_PERMILLE                                                                       \
    500 /* bytes that arrived before a reset and were not read yet may be lost */

static struct sim_stream *ours_of(const struct muster_stream *stream)
{
    return (struct sim_stream *)(uintptr_t)stream;
}

static struct sim_world *world_of(const struct sim_stream *stream)
{
    return stream->connection->world;
}

static struct sim_pipe *out_of(const struct sim_stream *stream)
{
    return &stream->connection->pipes[stream->side];
}

static struct sim_pipe *in_of(const struct sim_stream *stream)
{
    return &stream->connection->pipes[1 - stream->side];
}

static struct sim_stream *peer_of(const struct sim_stream *stream)
{
    return &stream->connection->sides[1 - stream->side];
}

/* Writing. */

static size_t draw_part(const struct sim_stream *stream, size_t count)
{
    struct sim_world *world = world_of(stream);

    if (count < 2 || !sim_chance(world, stream->connection->conditions.split_permille))
        return count;
    return 1 + (size_t)sim_draw(world, count);
}

static void put_part(struct sim_stream *stream, struct muster_stream_write *write, size_t count)
{
    size_t skip = write->bytes_done;
    size_t i;

    write->bytes_done += count;
    for (i = 0; i < write->iov_count && count > 0; i++) {
        const struct iovec *part = &write->iov[i];
        size_t bytes;

        if (skip >= part->iov_len) {
            skip -= part->iov_len;
            continue;
        }
        bytes = part->iov_len - skip < count ? part->iov_len - skip : count;
        sim_pipe_put(out_of(stream), (const uint8_t *)part->iov_base + skip, bytes);
        skip = 0;
        count -= bytes;
    }
    sim_pipe_pump(out_of(stream));
}

static void end_write(struct muster_stream_write *write, enum muster_rc rc)
{
    muster_list_remove(&write->node);
    write->done(write, rc);
}

/* One system call's worth. False: the transport is full, or only took a part. */
static bool flush_first(struct sim_stream *stream, struct muster_stream_write *write)
{
    size_t space = sim_pipe_space(out_of(stream));
    size_t rest = write->bytes_total - write->bytes_done;
    size_t part = draw_part(stream, rest < space ? rest : space);

    put_part(stream, write, part);
    if (write->bytes_done == write->bytes_total) {
        end_write(write, MUSTER_OK);
        return true;
    }
    if (part < space)
        sim_ready_signal(&stream->ready);
    return false;
}

static struct muster_stream_write *first_write(const struct sim_stream *stream)
{
    return muster_list_is_empty(&stream->writes)
               ? NULL
               : MUSTER_CONTAINER_OF(stream->writes.next, struct muster_stream_write, node);
}

static void flush_writes(struct sim_stream *stream)
{
    struct muster_stream_write *write;

    while ((write = first_write(stream)) != NULL && stream->phase == SIM_SIDE_OPEN) {
        if (stream->is_head_free || sim_node_is_gone(stream->node))
            return;
        if (stream->is_reset)
            end_write(write, MUSTER_UNAVAILABLE);
        else if (!flush_first(stream, write))
            return;
    }
    if (stream->is_shut && stream->phase == SIM_SIDE_OPEN && !out_of(stream)->is_fin_wanted)
        sim_pipe_finish(out_of(stream));
}

static enum muster_rc stream_submit(struct muster_stream *base, struct muster_stream_write *write)
{
    struct sim_stream *stream = ours_of(base);

    sim_node_enter(stream->node);
    if (stream->phase != SIM_SIDE_OPEN || stream->is_shut)
        return MUSTER_FAILED_PRECONDITION;
    if (stream->is_head_free)
        muster_list_prepend(&stream->writes, &write->node);
    else
        muster_list_append(&stream->writes, &write->node);
    stream->is_head_free = false;
    sim_ready_signal(&stream->ready);
    return MUSTER_OK;
}

static void stream_cancel_write(struct muster_stream *base, struct muster_stream_write *write)
{
    struct sim_stream *stream = ours_of(base);

    sim_node_enter(stream->node);
    muster_list_remove(&write->node);
    if (write->bytes_done > 0 && write->bytes_done < write->bytes_total)
        stream->is_head_free = true;
    sim_ready_signal(&stream->ready);
}

static void stream_shutdown(struct muster_stream *base)
{
    struct sim_stream *stream = ours_of(base);

    sim_node_enter(stream->node);
    stream->is_shut = true;
    sim_ready_signal(&stream->ready);
}

/* Reading. */

static size_t stream_take(struct sim_stream *stream, uint8_t *bytes, size_t bytes_max)
{
    size_t count = stream->unread_count < bytes_max ? stream->unread_count : bytes_max;
    size_t available = sim_pipe_available(in_of(stream));

    memcpy(bytes, stream->unread + stream->unread_first, count);
    stream->unread_first += (uint32_t)count;
    stream->unread_count -= (uint32_t)count;
    if (available > bytes_max - count)
        available = bytes_max - count;
    available = draw_part(stream, available);
    sim_pipe_get(in_of(stream), bytes + count, available);
    return count + available;
}

static bool is_readable(const struct sim_stream *stream)
{
    return stream->unread_count > 0 || sim_pipe_available(in_of(stream)) > 0 ||
           in_of(stream)->is_fin_arrived || stream->is_reset;
}

static void end_read(struct sim_stream *stream, enum muster_rc rc, bool is_eof)
{
    struct muster_stream_read *read = stream->read;

    stream->read = NULL;
    read->is_eof = is_eof;
    read->done(read, rc);
}

/* False: nothing more to do now. */
static bool read_part(struct sim_stream *stream, size_t *ret_count)
{
    struct muster_stream_read *read = stream->read;
    size_t count =
        stream_take(stream, read->buffer + read->bytes_done, read->bytes_max - read->bytes_done);

    *ret_count = count;
    read->bytes_done += count;
    if (read->bytes_done >= read->bytes_min)
        end_read(stream, MUSTER_OK, false);
    else if (sim_pipe_available(in_of(stream)) > 0)
        return true;
    else if (stream->is_reset)
        end_read(stream, MUSTER_UNAVAILABLE, false);
    else if (in_of(stream)->is_fin_arrived)
        end_read(stream, MUSTER_UNAVAILABLE, true);
    else
        return false;
    return true;
}

static void deliver_reads(struct sim_stream *stream)
{
    size_t bytes = 0, part = 0;
    unsigned count;

    for (count = 0; count < READ_BUDGET_COUNT && bytes < READ_BUDGET_BYTES; count++) {
        if (stream->phase != SIM_SIDE_OPEN || stream->read == NULL ||
            sim_node_is_gone(stream->node) || !read_part(stream, &part))
            return;
        bytes += part;
    }
    sim_ready_signal(&stream->ready);
}

static enum muster_rc stream_receive(struct muster_stream *base, struct muster_stream_read *read)
{
    struct sim_stream *stream = ours_of(base);

    sim_node_enter(stream->node);
    if (stream->phase != SIM_SIDE_OPEN || stream->read != NULL)
        return MUSTER_FAILED_PRECONDITION;
    stream->read = read;
    if (is_readable(stream))
        sim_ready_signal(&stream->ready);
    return MUSTER_OK;
}

static void stream_cancel_read(struct muster_stream *base, struct muster_stream_read *read)
{
    struct sim_stream *stream = ours_of(base);

    sim_node_enter(stream->node);
    if (stream->read == read)
        stream->read = NULL;
}

static size_t stream_take_now(struct muster_stream *base, void *buffer, size_t bytes_max)
{
    struct sim_stream *stream = ours_of(base);

    sim_node_enter(stream->node);
    if (stream->phase != SIM_SIDE_OPEN || stream->read != NULL)
        return 0;
    return stream_take(stream, buffer, bytes_max);
}

static void stream_unread(struct muster_stream *base, const void *bytes, size_t count)
{
    struct sim_stream *stream = ours_of(base);
    uint8_t joined[MUSTER_STREAM_UNREAD_MAX];

    sim_node_enter(stream->node);
    assert(stream->read == NULL && stream->unread_count + count <= sizeof(joined));
    memcpy(joined, bytes, count);
    memcpy(joined + count, stream->unread + stream->unread_first, stream->unread_count);
    stream->unread_first = 0;
    stream->unread_count += (uint32_t)count;
    memcpy(stream->unread, joined, stream->unread_count);
}

/* Ending. */

static void free_when_over(struct sim_connection *connection)
{
    if (connection->sides[0].phase == SIM_SIDE_GONE && connection->sides[1].phase == SIM_SIDE_GONE)
        sim_connection_free(connection);
}

/* The kernel's part of a close: what was taken still goes out, unless the reader left bytes lying.
 */
static void close_in_kernel(struct sim_stream *stream, bool is_silent)
{
    stream->is_silent = is_silent;
    stream->is_shut = true;
    if (is_silent) {
        sim_pipe_stop(out_of(stream));
    } else if (sim_pipe_available(in_of(stream)) > 0 && !stream->is_reset) {
        sim_pipe_stop(out_of(stream));
        sim_stream_send_reset(peer_of(stream));
    } else {
        sim_pipe_finish(out_of(stream));
    }
    in_of(stream)->read = in_of(stream)->arrived;
}

void sim_stream_drop(struct sim_stream *stream, bool is_silent)
{
    if (stream->phase == SIM_SIDE_OPEN)
        close_in_kernel(stream, is_silent);
    stream->phase = SIM_SIDE_GONE;
    stream->stream.ops = NULL;
    stream->read = NULL;
    stream->node = NULL;
    muster_list_init(&stream->writes);
    muster_list_remove(&stream->link);
    sim_ready_cancel(&stream->ready);
    sim_event_cancel(world_of(stream), &stream->reset);
    free_when_over(stream->connection);
}

static void finish_close(struct sim_stream *stream)
{
    struct muster_stream_write *write;

    while ((write = first_write(stream)) != NULL) {
        end_write(write, MUSTER_CANCELLED);
        if (sim_node_is_gone(stream->node))
            return;
    }
    if (stream->read != NULL)
        end_read(stream, MUSTER_CANCELLED, false);
    if (stream->closed != NULL)
        stream->closed(&stream->stream);
    sim_stream_drop(stream, false);
}

static void stream_close(struct muster_stream *base, muster_stream_close_fn *closed)
{
    struct sim_stream *stream = ours_of(base);

    sim_node_enter(stream->node);
    assert(stream->phase == SIM_SIDE_OPEN && "closed twice");
    if (stream->node->life != SIM_ALIVE) /* dead already: its kernel closes it */
        return;
    stream->closed = closed;
    close_in_kernel(stream, false);
    stream->phase = SIM_SIDE_CLOSING;
    sim_ready_signal(&stream->ready);
}

static void on_poll(struct sim_ready *ready)
{
    struct sim_stream *stream = ready->data;

    if (stream->phase == SIM_SIDE_OPEN)
        flush_writes(stream);
    if (stream->phase == SIM_SIDE_OPEN && !sim_node_is_gone(stream->node))
        deliver_reads(stream);
    if (stream->phase == SIM_SIDE_CLOSING && !sim_node_is_gone(stream->node))
        finish_close(stream);
}

/* Resets. */

void sim_stream_reset(struct sim_stream *stream)
{
    struct sim_world *world = world_of(stream);
    struct sim_pipe *in = in_of(stream);

    if (stream->phase != SIM_SIDE_OPEN || stream->is_reset)
        return;
    sim_note(world, "reset", stream->connection->number, stream->side, 0);
    stream->is_reset = true;
    sim_pipe_stop(out_of(stream));
    if (sim_chance(world, RESET_LOSES_PERMILLE))
        in->read = in->arrived;
    sim_ready_signal(&stream->ready);
}

static void on_reset(struct sim_event *event)
{
    struct sim_stream *stream = event->data;
    const struct sim_host *from = stream->connection->hosts[1 - stream->side];

    if (!sim_link_is_dead(world_of(stream), from, stream->connection->hosts[stream->side]))
        sim_stream_reset(stream);
    else if (peer_of(stream)->phase == SIM_SIDE_GONE && out_of(stream)->user_timeout_ns != 0)
        sim_event_schedule(world_of(stream), event, /* TCP's keepalive asks again */
                           world_of(stream)->now_ns + out_of(stream)->user_timeout_ns / 2);
}

void sim_stream_send_reset(struct sim_stream *stream)
{
    struct sim_world *world = world_of(stream);
    const struct sim_host *from = stream->connection->hosts[1 - stream->side];
    uint64_t delay_ns = sim_link_latency_ns(world, from, stream->connection->hosts[stream->side]);

    if (stream->phase != SIM_SIDE_OPEN || stream->is_reset ||
        sim_event_is_scheduled(&stream->reset))
        return;
    sim_event_schedule(world, &stream->reset, world->now_ns + delay_ns);
}

/* Connections. */

static const struct muster_address *stream_peer(const struct muster_stream *stream)
{
    return &ours_of(stream)->peer;
}

static const struct muster_address *stream_local(const struct muster_stream *stream)
{
    return &ours_of(stream)->local;
}

static void stream_set_user_timeout(struct muster_stream *stream, uint32_t timeout_ms)
{
    struct sim_stream *ours = ours_of(stream);

    ours->connection->pipes[ours->side].user_timeout_ns = timeout_ms * MUSTER_NS_PER_MS;
}

struct sim_connection *sim_connection_new(struct sim_world *world, struct sim_host *client,
                                          struct sim_host *server)
{
    struct sim_connection *connection = sim_alloc(sizeof(*connection));
    uint32_t i;

    connection->world = world;
    connection->number = world->next_connection++;
    connection->hosts[0] = client;
    connection->hosts[1] = server;
    connection->conditions = world->conditions;
    for (i = 0; i < 2; i++) {
        struct sim_stream *stream = &connection->sides[i];

        stream->connection = connection;
        stream->side = i;
        muster_list_init(&stream->writes);
        muster_list_init(&stream->link);
        muster_list_init(&stream->ready.link);
        sim_event_init(&stream->reset, on_reset, stream);
        sim_pipe_init(&connection->pipes[i], connection, i);
    }
    muster_list_append(&world->connections, &connection->link);
    world->connection_count++;
    return connection;
}

void sim_connection_open_side(struct sim_connection *connection, uint32_t side,
                              struct sim_node *node, const struct muster_stream_options *options)
{
    static const struct muster_stream_ops ops = {
        .submit = stream_submit,
        .receive = stream_receive,
        .cancel_write = stream_cancel_write,
        .cancel_read = stream_cancel_read,
        .shutdown = stream_shutdown,
        .close = stream_close,
        .peer = stream_peer,
        .local = stream_local,
        .take_now = stream_take_now,
        .unread = stream_unread,
        .set_user_timeout = stream_set_user_timeout,
    };
    struct sim_stream *stream = &connection->sides[side];

    stream->stream.ops = &ops;
    stream->node = node;
    stream->phase = SIM_SIDE_OPEN;
    sim_ready_init(&stream->ready, node, on_poll, stream);
    connection->pipes[side].user_timeout_ns = options->user_timeout_ms * MUSTER_NS_PER_MS;
    if (options->send_buffer_bytes != 0)
        connection->pipes[side].send_buffer = options->send_buffer_bytes;
    if (options->receive_buffer_bytes != 0)
        connection->pipes[1 - side].receive_buffer = options->receive_buffer_bytes;
}

void sim_connection_free(struct sim_connection *connection)
{
    uint32_t i;

    for (i = 0; i < 2; i++) {
        sim_event_cancel(connection->world, &connection->sides[i].reset);
        sim_pipe_fini(&connection->pipes[i]);
    }
    muster_list_remove(&connection->link);
    connection->world->connection_count--;
    free(connection);
}

void sim_connections_resume(struct sim_world *world, const struct sim_host *a,
                            const struct sim_host *b)
{
    struct muster_list *link;

    for (link = world->connections.next; link != &world->connections; link = link->next) {
        struct sim_connection *connection = MUSTER_CONTAINER_OF(link, struct sim_connection, link);
        const struct sim_host *client = connection->hosts[0], *server = connection->hosts[1];

        if (a != NULL && !(client == a && server == b) && !(client == b && server == a))
            continue;
        sim_pipe_resume(&connection->pipes[0]);
        sim_pipe_resume(&connection->pipes[1]);
    }
}

/* For the trace of a failed run: what stands where. */
void sim_connections_print(const struct sim_world *world, FILE *file)
{
    const struct muster_list *link;
    uint32_t i;

    for (link = world->connections.next; link != &world->connections; link = link->next) {
        const struct sim_connection *connection =
            MUSTER_CONTAINER_OF(link, struct sim_connection, link);

        for (i = 0; i < 2; i++) {
            const struct sim_stream *side = &connection->sides[i];
            const struct sim_pipe *pipe = &connection->pipes[i];

            fprintf(file,
                    "  stream %" PRIu64 " of %s on %s: taken %" PRIu64 " sent %" PRIu64
                    " arrived %" PRIu64 " read %" PRIu64 "%s%s%s%s%s\n",
                    connection->number, side->node != NULL ? side->node->name : "-",
                    connection->hosts[i]->name, pipe->taken, pipe->sent, pipe->arrived, pipe->read,
                    muster_list_is_empty(&side->writes) ? "" : ", writes",
                    side->read != NULL ? ", reads" : "", side->is_reset ? ", reset" : "",
                    pipe->is_fin_sent ? ", fin" : "", side->phase == SIM_SIDE_GONE ? ", gone" : "");
        }
    }
}

/* Faults of single streams. */

size_t sim_stream_count(const struct sim_world *world)
{
    return world->connection_count;
}

static struct sim_connection *nth_connection(struct sim_world *world, uint64_t n)
{
    struct muster_list *link = world->connections.next;

    if (world->connection_count == 0)
        return NULL;
    for (n %= world->connection_count; n > 0; n--)
        link = link->next;
    return MUSTER_CONTAINER_OF(link, struct sim_connection, link);
}

bool sim_reset_stream(struct sim_world *world, uint64_t n)
{
    struct sim_connection *connection = nth_connection(world, n);

    if (connection == NULL)
        return false;
    sim_note(world, "fault_reset", connection->number, 0, 0);
    sim_stream_send_reset(&connection->sides[0]);
    sim_stream_send_reset(&connection->sides[1]);
    return true;
}

bool sim_stall_stream(struct sim_world *world, uint64_t n, uint64_t duration_ns)
{
    struct sim_connection *connection = nth_connection(world, n);
    uint32_t i;

    if (connection == NULL)
        return false;
    sim_note(world, "fault_stall", connection->number, duration_ns, 0);
    for (i = 0; i < 2; i++) {
        struct sim_pipe *pipe = &connection->pipes[i];

        if (pipe->link_free_ns < world->now_ns + duration_ns)
            pipe->link_free_ns = world->now_ns + duration_ns;
    }
    return true;
}
