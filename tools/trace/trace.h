/* Files of the flight recorder (docs/trace.md): read, and merged into one trace for people. */
#ifndef MUSTER_TOOLS_TRACE_H
#define MUSTER_TOOLS_TRACE_H

#include <stdio.h>

#include <muster/options.h>
#include <muster/status.h>
#include <muster/trace.h>

/** One event as the file has it; texts are the file's. */
struct trace_event {
    uint64_t time_ns; /* monotonic */
    char *kind, *text;
    char *numbers[3]; /* decimal, as written: none loses a digit */
    size_t line;      /* of the file */
};

/** One life of one member. */
struct trace_file {
    const char *path; /* borrowed */
    char *job, *task, *host, *incarnation, *error;
    int64_t rank; /* -1: it had none */
    int64_t pid;
    uint64_t monotonic_ns, wall_ns; /* of one moment */
    uint64_t emitted;               /* events ever */
    struct trace_event *events;     /* by time */
    size_t event_count;
};

/** Owns: file is filled in, free it also after an error. Errors: the text names path and line:
 * NOT_FOUND and others (it cannot be read), INVALID_ARGUMENT (it is not a file of the flight recorder),
 * DATA_LOSS (it is cut short). */
MUSTER_MUST_CHECK enum muster_rc trace_file_read(const char *path, struct trace_file *file,
                                                 struct muster_error *ret_error);
void trace_file_free(struct trace_file *file);

/** Write one trace of all files in Chrome's format, which Perfetto shows: a process for each file, the
 * earliest event at 0 µs. INVALID_ARGUMENT: two files are the same. */
MUSTER_MUST_CHECK enum muster_rc trace_merge(const struct trace_file *files, size_t count,
                                             FILE *out, struct muster_error *ret_error);

int command_trace(int argc, char **argv);
extern const struct muster_options trace_options;

#endif
