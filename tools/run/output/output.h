/* Output of workers by whole lines, on the console and in log files, and the launcher's own lines between them. */
#ifndef MUSTER_RUN_OUTPUT_H
#define MUSTER_RUN_OUTPUT_H

#include <muster/log.h>

#include "run/output/sink.h"
#include "run/output/stream.h"
#include "run/state/run.h"

#define RUN_LAST_LINES      12 /* kept per task for the report of its failure */
#define RUN_LAST_LINE_BYTES 240

/** Output of a run. */
struct run_output {
    struct run_sink sinks[2];
    struct run_sink *out, *err; /* the same one when both are one terminal */
    bool is_held;               /* a sink is full: workers are not read */
    enum muster_log_level log_level;
    bool is_log_json;
    bool is_terminal;                         /* standard error */
    bool is_line_shown;                       /* a progress line stands on the terminal */
    void (*on_line_cleared)(struct run *run); /* NULL: nobody draws it */
};

/** Output of the present life of a task. */
struct run_task_output {
    struct run_stream out, err, report;
    char last_lines[RUN_LAST_LINES][RUN_LAST_LINE_BYTES];
    unsigned last_line_count; /* ever, of this life */
};

/** Standard output and standard error; before the first word is logged. */
void run_output_open(struct run *run);
/** Write what is queued. False: standard output did not take it all, and ret_error says why. */
bool run_output_close(struct run *run, int *ret_error);

void run_output_open_task(struct run_task *task);
void run_output_close_task(struct run_task *task);
/** A new life begins: nothing of it has been read. */
void run_output_begin_life(struct run_task *task);

/** on_line of standard output and error: prefix, console, log file, last lines. */
run_line_fn run_output_line;
/** Make DIR/attempt_K/RANK of this life of task. */
void run_output_make_dir(const struct run_task *task, char *path, size_t room);
/** Open log files of this life of task, by --log-dir, --tee and --redirects; is_continued: at their
 * ends. False: told why. */
bool run_output_open_logs(struct run_task *task, bool is_continued);
/** Remove the log directory and all that is in it. */
void run_output_remove_logs(const struct run *run);

#endif
