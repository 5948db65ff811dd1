/* One pipe of a worker, or the file that stands for it, read by lines. */
#ifndef MUSTER_RUN_STREAM_H
#define MUSTER_RUN_STREAM_H

#include <muster/loop.h>

#include "run/output/sink.h"

#define RUN_LINE_BYTES_MAX ((size_t)1 << 20) /* a longer line is cut into lines of this size */

struct run_task;

typedef void run_line_fn(void *data, const char *line, size_t length);

struct run_stream {
    struct muster_fd_watch watch;
    struct run_task *task;
    run_line_fn *on_line;     /* `data` is the stream */
    struct run_sink *console; /* NULL: not shown */
    int log_fd;               /* -1: none */
    size_t taken, freed;      /* of the file that stands for the pipe of a resumable worker */
    bool is_open;
    bool is_held; /* not read, as nobody has room for it */
    char *line;
    size_t length, capacity;
};
/** Take the read end fd; of a file: from `taken` on. */
void run_stream_open(struct run_stream *stream, struct run_task *task, int fd,
                     run_line_fn *on_line);
/** Read what a dead worker left (a pipe holds 1 MiB at most, a file all that was not read yet), hand
 * on a last line without its end, close. */
void run_stream_drain(struct run_stream *stream);
/** Read what is new in a file. Returns whether there may be more. */
bool run_stream_poll(struct run_stream *stream);
/** Stop reading a pipe, or go on; also before it is opened. */
void run_stream_hold(struct run_stream *stream, bool is_held);

#endif
