/* What workers print, taken by whole lines: prefixed on the console, plain in log files. */
#include "run/run.h"

#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES      ((size_t)64 << 10)
#define DRAIN_BYTES_MAX ((size_t)1 << 20) /* a stranger that holds the pipe may write for ever */

static void append(struct run_stream *stream, const char *bytes, size_t count)
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

static void end_line(struct run_stream *stream)
{
    stream->on_line(stream, stream->line != NULL ? stream->line : "", stream->length);
    stream->length = 0;
}

static void take(struct run_stream *stream, const char *bytes, size_t count)
{
    while (count > 0) {
        const char *newline = memchr(bytes, '\n', count);
        size_t length = newline != NULL ? (size_t)(newline - bytes) : count;
        size_t room = RUN_LINE_BYTES_MAX - stream->length;

        if (length > room) {
            append(stream, bytes, room);
            end_line(stream);
            bytes += room;
            count -= room;
            continue;
        }
        append(stream, bytes, length);
        if (newline == NULL)
            return;
        end_line(stream);
        bytes += length + 1;
        count -= length + 1;
    }
}

static bool is_file(const struct run_stream *stream)
{
    return stream->task->run->resume != NULL;
}

static void close_stream(struct run_stream *stream)
{
    if (!stream->is_open)
        return;
    stream->is_open = false;
    if (!is_file(stream))
        muster_fd_watch_close(&stream->watch);
    close(stream->watch.fd);
    if (stream->length > 0)
        end_line(stream);
    free(stream->line);
    stream->line = NULL;
    stream->length = stream->capacity = 0;
    if (stream->log_fd >= 0)
        close(stream->log_fd);
    stream->log_fd = -1;
}

/* False: nothing more for now, or the end. */
static bool read_some(struct run_stream *stream)
{
    static char bytes[READ_BYTES];
    ssize_t count = read(stream->watch.fd, bytes, sizeof(bytes));

    if (count > 0) {
        stream->taken += (size_t)count;
        take(stream, bytes, (size_t)count);
        return true;
    }
    if ((count < 0 && (errno == EAGAIN || errno == EINTR)) || (count == 0 && is_file(stream)))
        return false;
    if (count < 0)
        run_tell(stream->task->run, "what %s prints is lost from here on: %s", stream->task->name,
                 strerror(errno));
    close_stream(stream);
    return false;
}

static void on_readable(struct muster_fd_watch *watch, unsigned ready)
{
    struct run_stream *stream = watch->data;

    (void)ready;
    read_some(stream);
    run_output_balance(stream->task->run);
}

void run_stream_open(struct run_stream *stream, struct run_task *task, int fd, run_line_fn *on_line)
{
    stream->task = task;
    stream->on_line = on_line;
    stream->watch = (struct muster_fd_watch){
        .data = stream, .on_ready = on_readable, .fd = fd, .wanted = 0};
    if (is_file(stream)) {
        stream->is_open = lseek(fd, (off_t)stream->taken, SEEK_SET) >= 0;
        return;
    }
    if (muster_fd_watch_open(&stream->watch, task->run->env->loop) != MUSTER_OK)
        output_no_memory(); /* what a worker says is not lost in silence */
    stream->is_open = true;
    if (!task->run->is_output_held || on_line != run_output_line)
        muster_fd_watch_update(&stream->watch, MUSTER_FD_READ);
}

void run_stream_drain(struct run_stream *stream)
{
    for (size_t taken = 0; taken < DRAIN_BYTES_MAX || is_file(stream); taken += READ_BYTES) {
        if (!stream->is_open || !read_some(stream))
            break;
    }
    close_stream(stream);
}

bool run_stream_poll(struct run_stream *stream)
{
    size_t taken = stream->taken;

    for (size_t done = 0; done < DRAIN_BYTES_MAX; done += READ_BYTES) {
        if (!stream->is_open || !read_some(stream))
            break;
    }
    if (stream->taken > taken)
        run_table_changed(stream->task->run);
    return stream->taken >= taken + DRAIN_BYTES_MAX;
}

static void hold(struct run_stream *stream, bool is_held)
{
    if (stream->is_open && !is_file(stream))
        muster_fd_watch_update(&stream->watch, is_held ? 0 : MUSTER_FD_READ);
}

void run_output_balance(struct run *run)
{
    bool is_full = run_sink_is_full(run->out) || run_sink_is_full(run->err);

    if (is_full == run->is_output_held)
        return;
    run->is_output_held = is_full;
    for (uint32_t i = 0; i < run->task_count; i++) {
        hold(&run->tasks[i].out, is_full);
        hold(&run->tasks[i].err, is_full);
    }
    if (!is_full && run->resume != NULL)
        run_spool_poll_later(run);
}

static void keep_last(struct run_task *task, const char *line, size_t length)
{
    char *place = task->last_lines[task->last_line_count % RUN_LAST_LINES];

    if (length >= RUN_LAST_LINE_BYTES)
        length = RUN_LAST_LINE_BYTES - 1;
    memcpy(place, line, length);
    place[length] = '\0';
    task->last_line_count++;
}

static void write_log(struct run_stream *stream, const char *line, size_t length)
{
    while (length > 0) {
        ssize_t written = write(stream->log_fd, line, length);

        if (written < 0) {
            run_tell(stream->task->run, "the log of %s cannot be written: %s", stream->task->name,
                     strerror(errno));
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
    keep_last(task, line, length);
    whole[0] = '[';
    memcpy(whole + 1, task->name, name_length);
    memcpy(whole + 1 + name_length, "] ", 2);
    memcpy(text, line, length);
    text[length] = '\n';
    if (stream->log_fd >= 0)
        write_log(stream, text, length + 1);
    if (stream->console != NULL && stream->console == task->run->err && task->run->is_log_json) {
        run_log_output(task, stream == &task->err ? "stderr" : "stdout", line, length);
    } else if (stream->console != NULL) {
        run_progress_clear(task->run);
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
    unsigned redirects = 0;
    unsigned files = 0;

    run_mask_of(run->settings.redirects, task->local_rank, &redirects);
    run_mask_of(run->settings.tee, task->local_rank, &files);
    if (run->settings.tee == NULL && run->settings.redirects == NULL && run->log_dir[0] != '\0')
        files = RUN_MASK_OUT | RUN_MASK_ERR;
    files |= redirects;
    task->out.log_fd = task->err.log_fd = -1;
    task->out.console = (redirects & RUN_MASK_OUT) != 0 ? NULL : run->out;
    task->err.console = (redirects & RUN_MASK_ERR) != 0 ? NULL : run->err;
    if ((files & RUN_MASK_OUT) != 0)
        task->out.log_fd = open_log(task, "stdout.log", is_continued);
    if ((files & RUN_MASK_ERR) != 0)
        task->err.log_fd = open_log(task, "stderr.log", is_continued);
    return ((files & RUN_MASK_OUT) == 0 || task->out.log_fd >= 0) &&
           ((files & RUN_MASK_ERR) == 0 || task->err.log_fd >= 0);
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
