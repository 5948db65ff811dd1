/* The stream: bytes go from the caller's memory to the ring, and from the other side's ring to the caller's memory. */
#include "net/stream/ring_internal.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/stream/request.h"

/* Turns of the loop in which a side that has received looks again before it sleeps; fewer after looks in vain, as where
 * both sides share a processor. 8 streams with 64 KiB under way on each carry half as much again (measured). */
#define LOOKS_MAX 64u
#define LOOKS_MIN 4u
/* After so many sleeps looking may pay again. */
#define SLEEPS_PER_TRIAL 32u

static const struct muster_stream_ops ring_ops;

static struct muster_ring *ring_of(const struct muster_stream *stream)
{
    MUSTER_ASSERT(stream->ops == &ring_ops);
    return (struct muster_ring *)(uintptr_t)stream;
}

/* --- The other side --- */

static void ring_wake(struct muster_ring *ring)
{
    /* A send that finds no room comes after others that have not been received: they wake, too. An end is heard of
     * by receiving. */
    if (ring->twin != NULL)
        muster_task_post(&ring->twin->task, ring->env->loop);
    else if (ring->watch.fd >= 0)
        (void)send(ring->watch.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void tail_publish(struct muster_ring *ring)
{
    uint64_t sleeps;

    atomic_store_explicit(&ring->own->tail, ring->tail, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (ring->other == NULL)
        return;
    sleeps = atomic_load_explicit(&ring->other->data_sleeps, memory_order_relaxed);
    if (sleeps == ring->data_woken)
        return;
    ring->data_woken = sleeps;
    ring_wake(ring);
}

static void head_publish(struct muster_ring *ring)
{
    uint64_t sleeps;

    atomic_store_explicit(&ring->own->head, ring->head, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    sleeps = atomic_load_explicit(&ring->other->room_sleeps, memory_order_relaxed);
    if (sleeps == ring->room_woken)
        return;
    ring->room_woken = sleeps;
    ring_wake(ring);
}

/* Bytes that wait in the other side's ring. A count that cannot be breaks the stream. */
static size_t data_count(struct muster_ring *ring)
{
    uint64_t tail;

    if (ring->other == NULL || ring->is_broken)
        return 0;
    tail = atomic_load_explicit(&ring->other->tail, memory_order_acquire);
    if (tail - ring->head <= MUSTER_RING_BYTES)
        return (size_t)(tail - ring->head);
    ring->is_broken = true;
    return 0;
}

static size_t room_count(struct muster_ring *ring)
{
    uint64_t head = 0;

    if (ring->is_broken)
        return 0;
    if (ring->other != NULL)
        head = atomic_load_explicit(&ring->other->head, memory_order_acquire);
    if (ring->tail - head <= MUSTER_RING_BYTES)
        return MUSTER_RING_BYTES - (size_t)(ring->tail - head);
    ring->is_broken = true;
    return 0;
}

/* --- Writes --- */

static struct muster_stream_write *write_first(const struct muster_ring *ring)
{
    return muster_list_is_empty(&ring->writes)
               ? NULL
               : MUSTER_CONTAINER_OF(ring->writes.next, struct muster_stream_write, node);
}

static void bytes_put(struct muster_ring *ring, const uint8_t *bytes, size_t count)
{
    size_t at = (size_t)(ring->tail % MUSTER_RING_BYTES);
    size_t first = count < MUSTER_RING_BYTES - at ? count : MUSTER_RING_BYTES - at;

    memcpy(ring->own->bytes + at, bytes, first);
    memcpy(ring->own->bytes, bytes + first, count - first);
    ring->tail += count;
}

/* As much of the first write as there is room for. True: all of it is in the ring. */
static bool write_put(struct muster_ring *ring, struct muster_stream_write *write, size_t *room)
{
    while (ring->iov_index < write->iov_count) {
        const struct iovec *iov = &write->iov[ring->iov_index];
        size_t left = iov->iov_len - ring->iov_done;
        size_t count = left < *room ? left : *room;

        bytes_put(ring, (const uint8_t *)iov->iov_base + ring->iov_done, count);
        *room -= count;
        write->bytes_done += count;
        if (count < left) {
            ring->iov_done += count;
            return false;
        }
        ring->iov_index++;
        ring->iov_done = 0;
    }
    return true;
}

/* All that were put whole end after one publication. Returns whether something has moved. */
static bool writes_move(struct muster_ring *ring)
{
    struct muster_stream_write *write;
    struct muster_list finished;
    uint64_t before = ring->tail;
    size_t room = ring->is_torn || muster_list_is_empty(&ring->writes) ? 0 : room_count(ring);
    bool has_moved;

    muster_list_init(&finished);
    while (room > 0 && (write = write_first(ring)) != NULL && write_put(ring, write, &room)) {
        muster_list_remove(&write->node);
        muster_list_append(&finished, &write->node);
        ring->iov_index = ring->iov_done = 0;
    }
    has_moved = ring->tail != before || !muster_list_is_empty(&finished);
    if (ring->tail != before)
        tail_publish(ring);
    while (!muster_list_is_empty(&finished)) {
        write = MUSTER_CONTAINER_OF(finished.next, struct muster_stream_write, node);
        muster_list_remove(&write->node);
        muster_stream_write_finish(write, MUSTER_OK);
    }
    return has_moved;
}

/* --- Reads --- */

static void looks_begin(struct muster_ring *ring)
{
    if (ring->pair != NULL) /* the twin posts the task */
        return;
    if (ring->looks_left > 0 && ring->looks_left < ring->looks)
        ring->looks = LOOKS_MAX;
    ring->looks_left = ring->looks;
}

static size_t bytes_take(struct muster_ring *ring, uint8_t *buffer, size_t bytes_max)
{
    size_t there = data_count(ring), count = there < bytes_max ? there : bytes_max;
    size_t at = (size_t)(ring->head % MUSTER_RING_BYTES);
    size_t first = count < MUSTER_RING_BYTES - at ? count : MUSTER_RING_BYTES - at;

    if (count == 0)
        return 0;
    memcpy(buffer, ring->other->bytes + at, first);
    memcpy(buffer + first, ring->other->bytes, count - first);
    ring->head += count;
    looks_begin(ring);
    head_publish(ring);
    return count;
}

static void read_end(struct muster_ring *ring, enum muster_rc rc, bool is_eof)
{
    struct muster_stream_read *read = ring->read;

    if (read == NULL)
        return;
    ring->read = NULL;
    read->is_eof = is_eof;
    muster_stream_read_finish(read, rc);
}

/* Returns whether something has moved. The callback of a read may begin the next one, or close the stream. */
static bool read_move(struct muster_ring *ring)
{
    struct muster_stream_read *read = ring->read;
    size_t count;

    if (read == NULL)
        return false;
    count = bytes_take(ring, read->buffer + read->bytes_done, read->bytes_max - read->bytes_done);
    read->bytes_done += count;
    if (read->bytes_done >= read->bytes_min) {
        read_end(ring, MUSTER_OK, false);
        return true;
    }
    return count > 0;
}

/* --- A turn --- */

/* Returns whether the other side has done something meanwhile. */
static bool sleep_announce(struct muster_ring *ring)
{
    bool wants_data = ring->read != NULL && !ring->sleeps_for_data;
    bool wants_room =
        !ring->is_torn && !muster_list_is_empty(&ring->writes) && !ring->sleeps_for_room;

    if (wants_data)
        (void)atomic_fetch_add_explicit(&ring->own->data_sleeps, 1, memory_order_relaxed);
    if (wants_room)
        (void)atomic_fetch_add_explicit(&ring->own->room_sleeps, 1, memory_order_relaxed);
    if (!wants_data && !wants_room)
        return false;
    atomic_thread_fence(memory_order_seq_cst);
    ring->sleeps_for_data |= wants_data;
    ring->sleeps_for_room |= wants_room;
    return (wants_data && data_count(ring) > 0) || (wants_room && room_count(ring) > 0);
}

/* While its process has other work, what comes next is there after a turn or two, and neither side calls the kernel. */
static bool sleep_begin(struct muster_ring *ring)
{
    bool wants_data = ring->read != NULL && !ring->sleeps_for_data;

    if (wants_data && ring->looks_left > 0) {
        ring->looks_left--;
        muster_task_post(&ring->task, ring->env->loop);
        return false;
    }
    if (wants_data && ring->pair == NULL) {
        ring->looks /= 2;
        if (ring->looks < LOOKS_MIN)
            ring->looks = ++ring->sleep_count % SLEEPS_PER_TRIAL == 0 ? LOOKS_MAX : LOOKS_MIN;
    }
    return sleep_announce(ring);
}

static void writes_end(struct muster_ring *ring, enum muster_rc rc)
{
    struct muster_stream_write *write;

    while ((write = write_first(ring)) != NULL) {
        muster_list_remove(&write->node);
        ring->iov_index = ring->iov_done = 0;
        muster_stream_write_finish(write, rc);
    }
}

/* The end is looked at before the bytes: those that came before it are read first. */
static void ends_tell(struct muster_ring *ring)
{
    bool is_ended = ring->is_gone || (ring->other != NULL && atomic_load_explicit(
                                          &ring->other->is_ended, memory_order_acquire) != 0);

    if (is_ended && ring->read != NULL && data_count(ring) > 0)
        muster_task_post(&ring->task, ring->env->loop);
    else if (is_ended || ring->is_broken)
        read_end(ring, MUSTER_UNAVAILABLE, !ring->is_broken);
    if ((ring->is_gone || ring->is_broken) && !ring->is_closing)
        writes_end(ring, MUSTER_UNAVAILABLE);
}

static void ending_tell(struct muster_ring *ring)
{
    if (!ring->is_ending || ring->is_told_so || !muster_list_is_empty(&ring->writes))
        return;
    ring->is_told_so = true;
    atomic_store_explicit(&ring->own->is_ended, 1, memory_order_release);
    ring_wake(ring);
}

static bool data_is_there(struct muster_ring *ring)
{
    bool is_there = data_count(ring) > 0;

    if (is_there)
        ring->sleeps_for_data = false;
    return is_there;
}

static void ring_pump(struct muster_ring *ring)
{
    bool has_moved = true;

    ring->is_pumping = true;
    while (!ring->is_closing && has_moved) {
        has_moved = writes_move(ring);
        if (has_moved)
            ring->sleeps_for_room = false;
        if (!ring->is_closing && ring->read != NULL)
            has_moved = (data_is_there(ring) || ring->read->bytes_done > 0) && read_move(ring)
                            ? true
                            : has_moved;
        if (!ring->is_closing && !has_moved)
            has_moved = sleep_begin(ring);
    }
    if (!ring->is_closing)
        ends_tell(ring);
    if (!ring->is_closing)
        ending_tell(ring);
    ring->is_pumping = false;
}

static void on_socket(struct muster_fd_watch *watch, unsigned ready)
{
    struct muster_ring *ring = watch->data;
    bool was_known = ring->other != NULL;

    (void)ready;
    if (!muster_ring_hear(ring))
        return;
    /* The other side may sleep beside bytes that were written before it was known. */
    if (!was_known && ring->other != NULL)
        tail_publish(ring);
    ring->sleeps_for_data = ring->sleeps_for_room = false;
    ring_pump(ring);
}

static void ring_free(struct muster_ring *ring)
{
    struct muster_mem *mem = ring->env->mem;

    if (ring->pair != NULL && --ring->pair->refs == 0)
        muster_mem_free(mem, ring->pair);
    if (ring->pair == NULL && ring->other != NULL)
        munmap((void *)(uintptr_t)ring->other, sizeof(*ring->other));
    muster_shared_memory_close(&ring->shared);
    muster_mem_free(mem, ring);
}

static void on_task(struct muster_task *task)
{
    struct muster_ring *ring = task->data;

    if (!ring->is_closing) {
        if (ring->pair != NULL) /* the twin may have posted it */
            ring->sleeps_for_data = ring->sleeps_for_room = false;
        ring_pump(ring);
        return;
    }
    read_end(ring, MUSTER_CANCELLED, false);
    writes_end(ring, MUSTER_CANCELLED);
    if (ring->closed != NULL)
        ring->closed(&ring->stream);
    ring_free(ring);
}

/* --- Operations --- */

static void pump_later(struct muster_ring *ring)
{
    if (!ring->is_pumping)
        muster_task_post(&ring->task, ring->env->loop);
}

static enum muster_rc ring_submit(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct muster_ring *ring = ring_of(stream);

    if (ring->is_closing || ring->is_ending)
        return MUSTER_FAILED_PRECONDITION;
    if (ring->is_torn)
        muster_list_prepend(&ring->writes, &write->node);
    else
        muster_list_append(&ring->writes, &write->node);
    ring->is_torn = false;
    muster_task_post(&ring->task, ring->env->loop);
    return MUSTER_OK;
}

static enum muster_rc ring_receive(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct muster_ring *ring = ring_of(stream);

    if (ring->is_closing || ring->read != NULL)
        return MUSTER_FAILED_PRECONDITION;
    read->bytes_done = muster_stream_unread_take(&ring->unread, read->buffer, read->bytes_max);
    ring->read = read;
    pump_later(ring);
    return MUSTER_OK;
}

static void ring_cancel_write(struct muster_stream *stream, struct muster_stream_write *write)
{
    struct muster_ring *ring = ring_of(stream);

    if (write == write_first(ring)) {
        ring->is_torn = write->bytes_done > 0;
        ring->iov_index = ring->iov_done = 0;
    }
    muster_list_remove(&write->node);
}

static void ring_cancel_read(struct muster_stream *stream, struct muster_stream_read *read)
{
    struct muster_ring *ring = ring_of(stream);

    if (ring->read == read)
        ring->read = NULL;
}

static void ring_shutdown(struct muster_stream *stream)
{
    struct muster_ring *ring = ring_of(stream);

    ring->is_ending = true;
    muster_task_post(&ring->task, ring->env->loop);
}

static void ring_close(struct muster_stream *stream, muster_stream_close_fn *closed)
{
    struct muster_ring *ring = ring_of(stream);

    MUSTER_ASSERT(!ring->is_closing);
    ring->is_closing = true;
    ring->closed = closed;
    if (ring->twin != NULL) {
        ring->twin->is_gone = true;
        ring->twin->twin = NULL;
        muster_task_post(&ring->twin->task, ring->env->loop);
        ring->twin = NULL;
    }
    if (ring->watch.fd >= 0) {
        muster_fd_watch_close(&ring->watch);
        close(ring->watch.fd);
        ring->watch.fd = -1;
    }
    muster_task_post(&ring->task, ring->env->loop);
}

/* Both ends are on this host. */
static const struct muster_address *ring_address(const struct muster_stream *stream)
{
    static const struct muster_address own = {.family = MUSTER_ADDRESS_IPV4, .ip = {127, 0, 0, 1}};

    (void)stream;
    return &own;
}

static size_t ring_take_now(struct muster_stream *stream, void *buffer, size_t bytes_max)
{
    struct muster_ring *ring = ring_of(stream);
    size_t count;

    if (ring->is_closing || ring->read != NULL)
        return 0;
    count = muster_stream_unread_take(&ring->unread, buffer, bytes_max);
    return count + bytes_take(ring, (uint8_t *)buffer + count, bytes_max - count);
}

static void ring_unread(struct muster_stream *stream, const void *bytes, size_t count)
{
    struct muster_ring *ring = ring_of(stream);

    MUSTER_ASSERT(ring->read == NULL);
    muster_stream_unread_put(&ring->unread, bytes, count);
}

static const struct muster_stream_ops ring_ops = {.submit = ring_submit,
                                                  .receive = ring_receive,
                                                  .cancel_write = ring_cancel_write,
                                                  .cancel_read = ring_cancel_read,
                                                  .shutdown = ring_shutdown,
                                                  .close = ring_close,
                                                  .peer = ring_address,
                                                  .local = ring_address,
                                                  .take_now = ring_take_now,
                                                  .unread = ring_unread};

bool muster_ring_stream_is_one(const struct muster_stream *stream)
{
    return stream->ops == &ring_ops;
}

bool muster_ring_stream_is_within(const struct muster_stream *stream)
{
    return muster_ring_stream_is_one(stream) && ring_of(stream)->pair != NULL;
}

/* --- Opening --- */

static void ring_init(struct muster_ring *ring, struct muster_env *env)
{
    memset(ring, 0, sizeof(*ring));
    ring->stream.ops = &ring_ops;
    ring->env = env;
    ring->watch.fd = -1;
    ring->looks = LOOKS_MAX;
    muster_list_init(&ring->writes);
    muster_task_init(&ring->task, on_task, ring);
}

enum muster_rc muster_ring_stream_open(struct muster_env *env, int socket,
                                       struct muster_stream **ret_stream)
{
    struct muster_ring *ring = muster_mem_alloc(env->mem, sizeof(*ring));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (ring == NULL) {
        close(socket);
        return rc;
    }
    ring_init(ring, env);
    ring->watch = (struct muster_fd_watch){
        .data = ring, .on_ready = on_socket, .fd = socket, .wanted = MUSTER_FD_READ};
    rc = muster_shared_memory_open("muster-ring", sizeof(*ring->own), &ring->shared);
    if (rc != MUSTER_OK)
        goto fail;
    ring->own = (struct muster_ring_memory *)(void *)ring->shared.memory;
    if (!muster_ring_introduce(ring)) {
        rc = MUSTER_UNAVAILABLE;
        goto fail;
    }
    rc = muster_fd_watch_open(&ring->watch, env->loop);
    if (rc != MUSTER_OK)
        goto fail;
    *ret_stream = &ring->stream;
    return MUSTER_OK;
fail:
    close(socket);
    ring_free(ring);
    return rc;
}

enum muster_rc muster_ring_stream_pair(struct muster_env *env, struct muster_stream *ret_streams[2])
{
    struct muster_ring_pair *pair = muster_mem_alloc_zero(env->mem, 1, sizeof(*pair));
    struct muster_ring *rings[2] = {muster_mem_alloc(env->mem, sizeof(struct muster_ring)),
                                    muster_mem_alloc(env->mem, sizeof(struct muster_ring))};

    if (pair == NULL || rings[0] == NULL || rings[1] == NULL) {
        muster_mem_free(env->mem, pair);
        muster_mem_free(env->mem, rings[0]);
        muster_mem_free(env->mem, rings[1]);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    pair->refs = 2;
    for (int i = 0; i < 2; i++) {
        ring_init(rings[i], env);
        rings[i]->pair = pair;
        rings[i]->own = &pair->memories[i];
        rings[i]->other = &pair->memories[1 - i];
        rings[i]->twin = rings[1 - i];
        ret_streams[i] = &rings[i]->stream;
    }
    return MUSTER_OK;
}
