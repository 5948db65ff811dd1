/* A descriptor of this process (standard output, standard error), written without ever blocking the
 * loop.
 *
 * The descriptor is shared with other processes, so it is not made non-blocking: that would change
 * it for them as well. Instead a pipe or terminal is written only when it is writable, and at most
 * PIECE_BYTES at a time, which a writable pipe takes without blocking. What does not go out yet is
 * queued; above RUN_SINK_BYTES_MAX the owner hears of it and stops reading from workers. */
#include "run/output/sink.h"

#include "common/output.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES   4096u /* PIPE_BUF: a pipe that polls as writable takes this much (pipe(7)) */
#define PATIENCE_MS   10000 /* at the end, for a reader that does not read */
#define CAPACITY_KEEP ((size_t)64 << 10) /* a larger buffer is freed once it is empty */

/* Returns how many of these bytes were written. A broken sink swallows all that follows: the job is
 * worth more than its output. */
static size_t sink_write_bytes(struct run_sink *sink, const char *bytes, size_t count)
{
    ssize_t written =
        write(sink->fd, bytes, sink->is_watched && count > PIECE_BYTES ? PIECE_BYTES : count);

    if (written >= 0)
        return (size_t)written;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    sink->is_broken = true; /* the workers go on */
    sink->error = errno;
    if (errno != EPIPE) /* the reader of a closed pipe has seen enough */
        output_tell_lost(sink->fd == STDOUT_FILENO ? "standard output" : "standard error", sink->fd,
                         errno);
    sink->start = sink->end;
    return 0;
}

/* Write one piece. False: nothing could be written. */
static bool sink_write_piece(struct run_sink *sink)
{
    size_t written = sink_write_bytes(sink, sink->bytes + sink->start, sink->end - sink->start);

    sink->start += written;
    return written > 0;
}

/* False: nobody reads. */
static bool sink_await_room(const struct run_sink *sink)
{
    struct pollfd poll_fd = {.fd = sink->fd, .events = POLLOUT};
    int count;

    while ((count = poll(&poll_fd, 1, PATIENCE_MS)) < 0)
        ; /* a signal, or no memory: both pass */
    return count > 0;
}

static void sink_write_all(struct run_sink *sink)
{
    while (sink->start < sink->end && !sink->is_broken && sink_await_room(sink))
        sink_write_piece(sink);
}

/* There is no memory to keep these bytes: for once the loop waits. */
static void sink_write_through(struct run_sink *sink, const char *bytes, size_t count)
{
    sink_write_all(sink);
    while (count > 0 && !sink->is_broken && sink_await_room(sink)) {
        size_t written = sink_write_bytes(sink, bytes, count);

        bytes += written;
        count -= written;
    }
}

static void sink_rewind(struct run_sink *sink)
{
    if (sink->start < sink->end)
        return;
    sink->start = sink->end = 0;
    if (sink->capacity > CAPACITY_KEEP) {
        free(sink->bytes);
        sink->bytes = NULL;
        sink->capacity = 0;
    }
}

/* Reports each crossing of the limit once. */
static void sink_note_level(struct run_sink *sink)
{
    bool is_full = sink->end - sink->start > RUN_SINK_BYTES_MAX;

    if (is_full == sink->is_full)
        return;
    sink->is_full = is_full;
    if (sink->on_level != NULL)
        sink->on_level(sink);
}

static void on_writable(struct muster_fd_watch *watch, unsigned ready)
{
    struct run_sink *sink = watch->data;

    (void)ready;
    sink_write_piece(sink);
    sink_rewind(sink);
    if (sink->start == sink->end)
        muster_fd_watch_update(&sink->watch, 0);
    sink_note_level(sink);
}

/* A regular file or /dev/null never blocks, and cannot be watched. */
static bool can_block(int fd)
{
    struct stat status;

    return isatty(fd) ||
           (fstat(fd, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)));
}

void run_sink_open(struct run_sink *sink, struct muster_loop *loop, int fd,
                   run_sink_level_fn *on_level, void *data)
{
    *sink = (struct run_sink){.data = data, .on_level = on_level, .fd = fd};
    sink->watch.data = sink;
    sink->watch.fd = fd;
    sink->watch.on_ready = on_writable;
    sink->watch.wanted = MUSTER_FD_WRITE;
    sink->is_watched = can_block(fd) && muster_fd_watch_open(&sink->watch, loop) == MUSTER_OK;
    if (sink->is_watched)
        muster_fd_watch_update(&sink->watch, 0);
}

/* Room for count more bytes: first by moving the queue to the front, then by doubling. */
static bool sink_reserve(struct run_sink *sink, size_t count)
{
    size_t used = sink->end - sink->start;
    size_t wanted = sink->capacity == 0 ? PIECE_BYTES : sink->capacity;
    char *grown;

    if (sink->start > 0 && sink->end + count > sink->capacity) {
        memmove(sink->bytes, sink->bytes + sink->start, used);
        sink->start = 0;
        sink->end = used;
    }
    while (wanted < used + count)
        wanted *= 2;
    if (wanted == sink->capacity)
        return true;
    grown = realloc(sink->bytes, wanted);
    if (grown == NULL)
        return false;
    sink->bytes = grown;
    sink->capacity = wanted;
    return true;
}

void run_sink_write(struct run_sink *sink, const char *bytes, size_t count)
{
    MUSTER_ASSERT(sink->start <= sink->end && sink->end <= sink->capacity);
    if (sink->is_broken || count == 0)
        return;
    if (!sink_reserve(sink, count)) {
        sink_write_through(sink, bytes, count);
        sink_note_level(sink);
        return;
    }
    memcpy(sink->bytes + sink->end, bytes, count);
    sink->end += count;
    if (sink->is_watched) {
        muster_fd_watch_update(&sink->watch, MUSTER_FD_WRITE);
        sink_note_level(sink);
        return;
    }
    while (sink->start < sink->end && sink_write_piece(sink))
        ;
    sink_rewind(sink);
    sink_note_level(sink);
}

bool run_sink_is_full(const struct run_sink *sink)
{
    return sink->is_full;
}

/* The last output is written out with patience: the loop has ended, so blocking harms nobody. */
bool run_sink_close(struct run_sink *sink)
{
    bool is_whole;

    if (sink->is_watched)
        muster_fd_watch_close(&sink->watch);
    sink_write_all(sink);
    is_whole = !sink->is_broken && sink->start == sink->end;
    free(sink->bytes);
    sink->bytes = NULL;
    sink->is_broken = true; /* it takes no more */
    return is_whole;
}
