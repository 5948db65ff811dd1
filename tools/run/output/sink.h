/* A descriptor of this process (standard output, standard error) that is written without blocking the loop. */
#ifndef MUSTER_RUN_SINK_H
#define MUSTER_RUN_SINK_H

#include <muster/loop.h>

#define RUN_SINK_BYTES_MAX ((size_t)4 << 20) /* queued for a slow reader; then workers wait */

struct run_sink;
/** The sink has become full, or has room again: run_sink_is_full. */
typedef void run_sink_level_fn(struct run_sink *sink);

struct run_sink {
    void *data;
    run_sink_level_fn *on_level;
    struct muster_fd_watch watch;
    int fd;
    bool is_watched; /* false: regular files and such, written at once */
    bool is_broken;
    bool is_full;
    int error; /* the errno that broke it */
    char *bytes;
    size_t start, end, capacity;
};
/** on_level NULL: not reported. */
void run_sink_open(struct run_sink *sink, struct muster_loop *loop, int fd,
                   run_sink_level_fn *on_level, void *data);
/** Queue (and soon write) bytes. */
void run_sink_write(struct run_sink *sink, const char *bytes, size_t count);
/** Write the queue, waiting for a slow reader up to 10 s. Returns whether all was written. */
bool run_sink_close(struct run_sink *sink);
bool run_sink_is_full(const struct run_sink *sink);

#endif
