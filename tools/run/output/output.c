/* Output of workers by whole lines: prefixed on the console, plain in log files; the newest lines
 * of each are kept for the report of a failure.
 *
 * The sinks bound the memory: while one is full nobody reads from the workers, whose pipes then
 * fill and make them wait, as a slow terminal would without a launcher. */
#include "run/output/output.h"

#include "common/output.h"
#include "run/output/console.h"
#include "run/output/log.h"
#include "run/output/spool.h"
#include "run/state/number.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Both sinks count for all workers: a worker may write to either. Reports are read always, as they
 * are small and the job depends on them. */
static void output_balance(struct run *run)
{
    struct run_output *output = run->output;
    bool is_full = run_sink_is_full(output->out) || run_sink_is_full(output->err);

    if (is_full == output->is_held)
        return;
    output->is_held = is_full;
    for (uint32_t i = 0; i < run->task_count; i++) {
        run_stream_hold(&run->tasks[i].output->out, is_full);
        run_stream_hold(&run->tasks[i].output->err, is_full);
    }
    if (!is_full && run->spool != NULL)
        run_spool_poll_later(run);
}

static void on_sink_level(struct run_sink *sink)
{
    output_balance(sink->data);
}

/* Standard output and standard error on one terminal share a sink, so that their lines keep their
 * order. */
static bool is_same_terminal(void)
{
    struct stat out, err;

    return isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) && fstat(STDOUT_FILENO, &out) == 0 &&
           fstat(STDERR_FILENO, &err) == 0 && out.st_rdev == err.st_rdev;
}

void run_output_open(struct run *run)
{
    struct run_output *output = calloc(1, sizeof(*output));

    MUSTER_ASSERT(run->output == NULL);
    if (output == NULL)
        output_no_memory();
    run->output = output;
    run_sink_open(&output->sinks[0], run->env->loop, STDOUT_FILENO, on_sink_level, run);
    run_sink_open(&output->sinks[1], run->env->loop, STDERR_FILENO, on_sink_level, run);
    output->out = &output->sinks[0];
    output->err = is_same_terminal() ? output->out : &output->sinks[1];
    output->is_terminal = isatty(STDERR_FILENO) != 0;
    run_log_open(run);
}

bool run_output_close(struct run *run, int *ret_error)
{
    struct run_output *output = run->output;
    bool is_whole = run_sink_close(&output->sinks[0]);

    *ret_error = output->sinks[0].error;
    run_sink_close(&output->sinks[1]);
    free(output);
    run->output = NULL;
    return is_whole;
}

void run_output_open_task(struct run_task *task)
{
    struct run_task_output *output = calloc(1, sizeof(*output));

    MUSTER_ASSERT(task->output == NULL);
    if (output == NULL)
        output_no_memory();
    output->out.log_fd = output->err.log_fd = output->report.log_fd = -1;
    task->output = output;
}

void run_output_close_task(struct run_task *task)
{
    free(task->output);
    task->output = NULL;
}

void run_output_begin_life(struct run_task *task)
{
    struct run_task_output *output = task->output;

    MUSTER_ASSERT(!output->out.is_open && !output->err.is_open && !output->report.is_open);
    output->last_line_count = 0;
    output->out.taken = output->err.taken = output->report.taken = 0;
    output->out.freed = output->err.freed = output->report.freed = 0;
}

static void last_lines_add(struct run_task *task, const char *line, size_t length)
{
    char *place = task->output->last_lines[task->output->last_line_count % RUN_LAST_LINES];

    if (length >= RUN_LAST_LINE_BYTES)
        length = RUN_LAST_LINE_BYTES - 1;
    memcpy(place, line, length);
    place[length] = '\0';
    task->output->last_line_count++;
}

/* A log file blocks for as long as the disk takes; one that fails is given up, and the worker goes
 * on. */
static void write_log(struct run_stream *stream, const char *line, size_t length)
{
    while (length > 0) {
        ssize_t written = write(stream->log_fd, line, length);

        if (written < 0) {
            run_tell(stream->task->run, "the log of %s cannot be written: %s", stream->task->name,
                     output_error_text(errno));
            close(stream->log_fd);
            stream->log_fd = -1;
            return;
        }
        line += written;
        length -= (size_t)written;
    }
}

/* One write for prefix, line and newline, so that nothing comes between. */
void run_output_line(void *data, const char *line, size_t length)
{
    struct run_stream *stream = data;
    struct run_task *task = stream->task;
    size_t name_length = strlen(task->name);
    char *whole = malloc(name_length + length + 4);
    char *text = whole + name_length + 3;

    if (whole == NULL)
        output_no_memory();
    last_lines_add(task, line, length);
    whole[0] = '[';
    memcpy(whole + 1, task->name, name_length);
    memcpy(whole + 1 + name_length, "] ", 2);
    memcpy(text, line, length);
    text[length] = '\n';
    if (stream->log_fd >= 0)
        write_log(stream, text, length + 1);
    if (stream->console != NULL && stream->console == task->run->output->err &&
        task->run->output->is_log_json) {
        run_log_output(task, stream == &task->output->err ? "stderr" : "stdout", line, length);
    } else if (stream->console != NULL) {
        run_console_clear(task->run);
        run_sink_write(stream->console, whole, name_length + length + 4);
    }
    free(whole);
}

void run_output_make_dir(const struct run_task *task, char *path, size_t room)
{
    const char *dir = task->run->log_dir;

    mkdir(dir, 0777);
    snprintf(path, room, "%s/attempt_%u", dir, task->lives - 1);
    mkdir(path, 0777);
    snprintf(path, room, "%s/attempt_%u/%u", dir, task->lives - 1, task->rank);
    mkdir(path, 0777);
}

/* DIR/attempt_K/RANK/name */
static int open_log(const struct run_task *task, const char *name, bool is_continued)
{
    char path[1024];
    size_t length;
    int fd;

    run_output_make_dir(task, path, sizeof(path));
    length = strlen(path);
    snprintf(path + length, sizeof(path) - length, "/%s", name);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (is_continued ? 0 : O_TRUNC), 0666);
    if (fd < 0)
        run_log_error("cannot write %s: %s (choose another --log-dir)", path, strerror(errno));
    return fd;
}

bool run_output_open_logs(struct run_task *task, bool is_continued)
{
    struct run *run = task->run;
    struct run_task_output *output = task->output;
    unsigned redirects = 0;
    unsigned files = 0;

    run_mask_of(run->settings.redirects, task->local_rank, &redirects);
    run_mask_of(run->settings.tee, task->local_rank, &files);
    if (run->settings.tee == NULL && run->settings.redirects == NULL && run->log_dir[0] != '\0')
        files = RUN_MASK_OUT | RUN_MASK_ERR;
    files |= redirects;
    output->out.log_fd = output->err.log_fd = -1;
    output->out.console = (redirects & RUN_MASK_OUT) != 0 ? NULL : run->output->out;
    output->err.console = (redirects & RUN_MASK_ERR) != 0 ? NULL : run->output->err;
    if ((files & RUN_MASK_OUT) != 0)
        output->out.log_fd = open_log(task, "stdout.log", is_continued);
    if ((files & RUN_MASK_ERR) != 0)
        output->err.log_fd = open_log(task, "stderr.log", is_continued);
    return ((files & RUN_MASK_OUT) == 0 || output->out.log_fd >= 0) &&
           ((files & RUN_MASK_ERR) == 0 || output->err.log_fd >= 0);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

void run_output_remove_logs(const struct run *run)
{
    nftw(run->log_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
