/* What workers print: pipes read by lines, and descriptors of ours written without blocking the
 * loop. */
#ifndef MUSTER_RUN_OUTPUT_H
#define MUSTER_RUN_OUTPUT_H

#include <muster/loop.h>

#define RUN_LINE_BYTES_MAX ((size_t)1 << 20) /* a longer line is cut into lines of this size */
#define RUN_SINK_BYTES_MAX ((size_t)4 << 20) /* queued for a slow reader; then workers wait */

struct run;
struct run_task;

/** A descriptor of ours that is written without blocking the loop. */
struct run_sink {
    struct muster_fd_watch watch;
    struct run *run;
    int fd;
    bool is_watched; /* false: regular files and such, written at once */
    bool is_broken;
    int error; /* the errno that broke it */
    char *bytes;
    size_t start, end, capacity;
};
void run_sink_open(struct run_sink *sink, struct run *run, int fd);
/** Queue (and soon write) bytes. */
void run_sink_write(struct run_sink *sink, const char *bytes, size_t count);
/** Write what is queued, waiting for a slow reader up to 10 s. Whether all was written. */
bool run_sink_close(struct run_sink *sink);
bool run_sink_is_full(const struct run_sink *sink);

typedef void run_line_fn(void *data, const char *line, size_t length);

/** One pipe of a child, read by lines. */
struct run_stream {
    struct muster_fd_watch watch;
    struct run_task *task;
    run_line_fn *on_line;
    struct run_sink *console; /* NULL: not shown */
    int log_fd;               /* -1: none */
    size_t taken, freed;      /* of the file that stands for the pipe of a resumable worker */
    bool is_open;
    char *line;
    size_t length, capacity;
};
/** Take the read end fd; of a file: from `taken` on. */
void run_stream_open(struct run_stream *stream, struct run_task *task, int fd,
                     run_line_fn *on_line);
/** Read what a dead worker left (a pipe holds 1 MiB at most, a file all that was not read yet), hand
 * on a last line without its end, close. */
void run_stream_drain(struct run_stream *stream);
/** Of a file: read what is new. Whether there may be more. */
bool run_stream_poll(struct run_stream *stream);
/** Stop or go on reading all workers' output, as the sinks have room. */
void run_output_balance(struct run *run);
/** on_line of standard output and error: prefix, console, log file, last lines. `data` is the
 * stream. */
run_line_fn run_output_line;
/** DIR/attempt_K/RANK of this life of task, made. */
void run_output_make_dir(const struct run_task *task, char *path, size_t room);
/** Log files of this life of task, by --log-dir, --tee and --redirects; is_continued: at their
 * ends. False: told why. */
bool run_output_open_logs(struct run_task *task, bool is_continued);

/** The log directory and all that is in it. */
void run_output_remove_logs(const struct run *run);

#endif
