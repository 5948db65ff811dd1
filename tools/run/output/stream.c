/* One pipe of a worker, or the file that stands for it, read by lines.
 *
 * A pipe is watched by the loop; a file (of a resumable worker) is polled when spool.c hears that
 * it has grown, as regular files cannot be watched. `taken` counts the bytes read from the file, so
 * that a successor goes on at the first line that was not handed on. */
#include "run/output/stream.h"

#include "common/output.h"
#include "run/output/log.h"
#include "run/state/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES      ((size_t)64 << 10) /* what a pipe holds by default (pipe(7)) */
#define DRAIN_BYTES_MAX ((size_t)1 << 20) /* a process that inherited the pipe may write for ever */

/* The buffer doubles, and is kept until the stream closes. */
static void stream_append(struct run_stream *stream, const char *bytes, size_t count)
{
    if (count == 0)
        return;
    if (stream->length + count > stream->capacity) {
        size_t wanted = stream->capacity == 0 ? 1024 : stream->capacity;
        char *grown;

        while (wanted < stream->length + count)
            wanted *= 2;
        grown = realloc(stream->line, wanted);
        if (grown == NULL)
            output_no_memory();
        stream->line = grown;
        stream->capacity = wanted;
    }
    memcpy(stream->line + stream->length, bytes, count);
    stream->length += count;
}

static void stream_end_line(struct run_stream *stream)
{
    stream->on_line(stream, stream->line != NULL ? stream->line : "", stream->length);
    stream->length = 0;
}

/* A line longer than RUN_LINE_BYTES_MAX is handed on in pieces, so that a worker that prints no
 * newline does not fill the memory. */
static void stream_split_lines(struct run_stream *stream, const char *bytes, size_t count)
{
    while (count > 0) {
        const char *newline = memchr(bytes, '\n', count);
        size_t length = newline != NULL ? (size_t)(newline - bytes) : count;
        size_t room = RUN_LINE_BYTES_MAX - stream->length;

        if (length > room) {
            stream_append(stream, bytes, room);
            stream_end_line(stream);
            bytes += room;
            count -= room;
            continue;
        }
        stream_append(stream, bytes, length);
        if (newline == NULL)
            return;
        stream_end_line(stream);
        bytes += length + 1;
        count -= length + 1;
    }
}

static bool stream_is_file(const struct run_stream *stream)
{
    return stream->task->run->resume != NULL;
}

static void stream_close(struct run_stream *stream)
{
    if (!stream->is_open)
        return;
    stream->is_open = false;
    if (!stream_is_file(stream))
        muster_fd_watch_close(&stream->watch);
    close(stream->watch.fd);
    /* A last line without its newline is a line, too: it is often the one that tells of the end. */
    if (stream->length > 0)
        stream_end_line(stream);
    free(stream->line);
    stream->line = NULL;
    stream->length = stream->capacity = 0;
    if (stream->log_fd >= 0)
        close(stream->log_fd);
    stream->log_fd = -1;
}

/* False: nothing more for now, or the end. */
static bool stream_read(struct run_stream *stream)
{
    static char bytes[READ_BYTES];
    ssize_t count = read(stream->watch.fd, bytes, sizeof(bytes));

    if (count > 0) {
        stream->taken += (size_t)count;
        stream_split_lines(stream, bytes, (size_t)count);
        return true;
    }
    if ((count < 0 && (errno == EAGAIN || errno == EINTR)) ||
        (count == 0 && stream_is_file(stream)))
        return false;
    if (count < 0)
        run_tell(stream->task->run, "what %s prints is lost from here on: %s", stream->task->name,
                 strerror(errno));
    stream_close(stream);
    return false;
}

static void on_readable(struct muster_fd_watch *watch, unsigned ready)
{
    struct run_stream *stream = watch->data;

    (void)ready;
    stream_read(stream);
}

void run_stream_open(struct run_stream *stream, struct run_task *task, int fd, run_line_fn *on_line)
{
    MUSTER_ASSERT(!stream->is_open && stream->length == 0);
    stream->task = task;
    stream->on_line = on_line;
    stream->watch =
        (struct muster_fd_watch){.data = stream, .on_ready = on_readable, .fd = fd, .wanted = 0};
    if (stream_is_file(stream)) {
        stream->is_open = lseek(fd, (off_t)stream->taken, SEEK_SET) >= 0;
        return;
    }
    if (muster_fd_watch_open(&stream->watch, task->run->env->loop) != MUSTER_OK)
        output_no_memory(); /* no output of a worker is lost in silence */
    stream->is_open = true;
    if (!stream->is_held)
        muster_fd_watch_update(&stream->watch, MUSTER_FD_READ);
}

void run_stream_hold(struct run_stream *stream, bool is_held)
{
    stream->is_held = is_held;
    if (stream->is_open && !stream_is_file(stream))
        muster_fd_watch_update(&stream->watch, is_held ? 0 : MUSTER_FD_READ);
}

void run_stream_drain(struct run_stream *stream)
{
    for (size_t taken = 0; taken < DRAIN_BYTES_MAX || stream_is_file(stream); taken += READ_BYTES) {
        if (!stream->is_open || !stream_read(stream))
            break;
    }
    stream_close(stream);
}

/* At most DRAIN_BYTES_MAX in one go: the others have their turn, and the caller polls again. */
bool run_stream_poll(struct run_stream *stream)
{
    size_t taken = stream->taken;

    for (size_t done = 0; done < DRAIN_BYTES_MAX; done += READ_BYTES) {
        if (!stream->is_open || !stream_read(stream))
            break;
    }
    if (stream->taken > taken)
        stream->task->run->control->on_changed(stream->task->run);
    return stream->taken >= taken + DRAIN_BYTES_MAX;
}
