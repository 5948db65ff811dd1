/* Output and reports of resumable workers: files in place of pipes, so that nothing is lost and no
 * worker waits while no launcher is there to read.
 *
 * A worker appends to DIR/lives/RANK.LIFE.*; inotify tells this launcher that some file there has
 * grown, and it then polls them all. The table (run/resume/table.c) says how much of each has been
 * read; only after it was saved is the space given back, and only after the end of a life are its
 * files removed. */
#include "run/output/spool.h"

#include "common/output.h"
#include "run/output/output.h"
#include "run/state/resume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#define PUNCH_BYTES ((size_t)256 << 10) /* given back at once: a hole costs a system call */
#define PAGE_BYTES  ((size_t)4096)      /* smaller parts of a file cannot be given back */

static const char *const names[3] = {"out", "err", "report"};

struct run_spool {
    struct muster_fd_watch news_watch; /* inotify: a file in DIR/lives has grown */
    struct muster_timer poll_timer;
};

static void spool_path(const struct run_task *task, const char *name, char *path, size_t bytes)
{
    MUSTER_ASSERT(task->lives > 0);
    snprintf(path, bytes, "%s/lives/%u.%u.%s", task->run->resume->dir, task->rank, task->lives - 1,
             name);
}

void run_spool_poll_later(struct run *run)
{
    struct muster_loop *loop = run->env->loop;

    if (run->spool != NULL)
        muster_timer_start(&run->spool->poll_timer, loop, muster_loop_now_ns(loop));
}

/* Reports are read even while the sinks are full: deaths and views must not wait for a slow
 * terminal. */
static void spool_poll(struct run *run)
{
    bool is_more = false;

    for (uint32_t i = 0; i < run->task_count; i++) {
        struct run_task_output *output = run->tasks[i].output;

        is_more |= run_stream_poll(&output->report);
        if (run->output->is_held)
            continue;
        is_more |= run_stream_poll(&output->out);
        is_more |= run_stream_poll(&output->err);
    }
    if (is_more)
        run_spool_poll_later(run);
}

static void on_poll(struct muster_timer *timer)
{
    spool_poll(timer->data);
}

/* The events say only that something has grown; they are drained so that the watch can fire again.
 */
static void on_news(struct muster_fd_watch *watch, unsigned ready)
{
    char events[16 << 10];

    (void)ready;
    while (read(watch->fd, events, sizeof(events)) > 0)
        ;
    spool_poll(watch->data);
}

bool run_spool_open(struct run *run)
{
    struct run_spool *spool;
    char path[600];
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

    MUSTER_ASSERT(run->spool == NULL && run->resume != NULL);
    if (fd < 0)
        return false;
    spool = calloc(1, sizeof(*spool));
    if (spool == NULL)
        output_no_memory();
    muster_timer_init(&spool->poll_timer, on_poll, run);
    snprintf(path, sizeof(path), "%s/lives", run->resume->dir);
    spool->news_watch = (struct muster_fd_watch){
        .data = run, .on_ready = on_news, .fd = fd, .wanted = MUSTER_FD_READ};
    if (inotify_add_watch(fd, path, IN_MODIFY) < 0 ||
        muster_fd_watch_open(&spool->news_watch, run->env->loop) != MUSTER_OK) {
        int sys = errno;

        close(fd);
        free(spool);
        errno = sys;
        return false;
    }
    run->spool = spool;
    return true;
}

void run_spool_close(struct run *run)
{
    struct run_spool *spool = run->spool;

    if (spool == NULL)
        return;
    muster_timer_stop(&spool->poll_timer);
    muster_fd_watch_close(&spool->news_watch);
    close(spool->news_watch.fd);
    free(spool);
    run->spool = NULL;
}

bool run_spool_open_life(const struct run_task *task, int read_ends[3], int write_ends[3])
{
    char path[600];

    for (int i = 0; i < 3; i++) {
        spool_path(task, names[i], path, sizeof(path));
        write_ends[i] = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        read_ends[i] = open(path, O_RDWR | O_CLOEXEC); /* writing gives space back */
        if (write_ends[i] < 0 || read_ends[i] < 0)
            return false;
    }
    return true;
}

static void stream_free_taken(struct run_stream *stream)
{
    size_t taken = stream->taken - stream->length;

    if (!stream->is_open || taken - stream->freed < PUNCH_BYTES)
        return;
    taken -= taken % PAGE_BYTES;
    if (fallocate(stream->watch.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)taken) ==
        0)
        stream->freed = taken; /* a file system that cannot: the file grows until the end */
}

void run_spool_free_taken(struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++) {
        stream_free_taken(&run->tasks[i].output->out);
        stream_free_taken(&run->tasks[i].output->err);
        stream_free_taken(&run->tasks[i].output->report);
    }
}

void run_spool_remove_life(const struct run_task *task)
{
    static const char *const others[] = {"keeper", "end", "end.new"};
    char path[600];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        spool_path(task, names[i], path, sizeof(path));
        unlink(path);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        spool_path(task, others[i], path, sizeof(path));
        unlink(path);
    }
}
