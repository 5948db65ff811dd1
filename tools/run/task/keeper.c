/* The keeper of a worker that may outlive its launcher: its parent, which writes down how it ended,
 * and ends what it has left behind. One small process for each life of a worker. */
#include "run/task/keeper.h"

#include "run/state/resume.h"
#include "run/task/descendants.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITING_ROUNDS                                                                             \
    5000          /* of 1 ms: far more than a living keeper needs between lock and write */
#define LOCK_FD 3 /* in the keeper: held for its life, so that a successor knows that it lives */
#define END_FD  4 /* the file that gets the status */

static void life_path(const struct run_task *task, const char *what, char *path, size_t bytes)
{
    MUSTER_ASSERT(task->lives > 0);
    snprintf(path, bytes, "%s/lives/%u.%u.%s", task->run->resume->dir, task->rank, task->lives - 1,
             what);
}

/* A number, written over the room that was made for it. */
#define END_TEXT "%-14d\n"

/* Room for the status is taken before the worker starts: at its end the disk may be full. */
static int end_prepare(const char *end_path)
{
    char temporary[640];
    int fd;

    snprintf(temporary, sizeof(temporary), "%s.new", end_path);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && dprintf(fd, END_TEXT, 0) >= 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The file is not synced: a power cut ends worker, keeper and launcher, and their pids mean nothing
 * after it. */
static void end_write(const char *end_path, int status)
{
    char temporary[640], text[32];
    int length = snprintf(text, sizeof(text), END_TEXT, status);

    snprintf(temporary, sizeof(temporary), "%s.new", end_path);
    if (pwrite(END_FD, text, (size_t)length, 0) != length || rename(temporary, end_path) != 0)
        unlink(temporary);
}

/* Orphans of the worker become children of this subreaper: they end with it. The status is written
 * first, since the last step ends this process, too. The worker stays a zombie (WNOWAIT) so that
 * its number is not used again meanwhile. */
static void keeper_wait(pid_t worker, const char *end_path)
{
    siginfo_t info = {.si_pid = 0};
    int status;

    while (waitid(P_PID, (id_t)worker, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        ;
    status =
        info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : W_EXITCODE(0, info.si_status);
    end_write(end_path, status);
    run_descendants_kill();
    kill(0, SIGKILL); /* its group, and so this process */
}

/* Nothing of the launcher may stay open here: a reader of its output must see the end of it. */
static void let_go(int lock_fd, int end_fd)
{
    int null = open("/dev/null", O_RDWR), end = fcntl(end_fd, F_DUPFD, END_FD + 1);

    for (int i = 0; i < 3; i++)
        dup2(null, i);
    dup2(lock_fd, LOCK_FD);
    dup2(end, END_FD);
    syscall(SYS_close_range, END_FD + 1u, ~0u, 0u);
}

void run_keeper(const struct run_task *task, int failure_fd, void (*become_worker)(void *data),
                void *data)
{
    char path[600], end_path[600];
    sigset_t all;
    pid_t worker;
    int lock_fd, end_fd, failure;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    prctl(PR_SET_NAME, "muster-keeper");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    life_path(task, "keeper", path, sizeof(path));
    life_path(task, "end", end_path, sizeof(end_path));
    lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_fd < 0 || flock(lock_fd, LOCK_EX | LOCK_NB) != 0)
        goto fail;
    end_fd = end_prepare(end_path);
    if (end_fd < 0)
        goto fail;
    /* It takes the room of both numbers: the worker may fill the disk before the second. */
    if (dprintf(lock_fd, "%d ", (int)getpid()) < 0)
        goto fail;
    worker = fork();
    if (worker == 0)
        become_worker(data);
    if (worker < 0 || dprintf(lock_fd, "%d\n", (int)worker) < 0)
        goto fail;
    let_go(lock_fd, end_fd);
    keeper_wait(worker, end_path);
    _exit(EXIT_FAILURE);
fail:
    failure = errno;
    if (write(failure_fd, &failure, sizeof(failure)) < 0)
        _exit(EXIT_FAILURE);
    _exit(EXIT_FAILURE);
}

int run_keeper_find(const struct run_task *task, int *ret_worker_pid)
{
    char path[600];
    char text[64] = "";
    int keeper = 0, worker = 0;
    bool is_alive;
    int fd;

    life_path(task, "keeper", path, sizeof(path));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    is_alive = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    for (int i = 0; i < WRITING_ROUNDS; i++) { /* it has the lock, and is about to write */
        if ((pread(fd, text, sizeof(text) - 1, 0) > 0 && strchr(text, '\n') != NULL) || !is_alive)
            break;
        usleep(1000);
    }
    if (strchr(text, '\n') == NULL || sscanf(text, "%d %d", &keeper, &worker) != 2)
        keeper = worker = 0;
    close(fd);
    *ret_worker_pid = worker;
    return is_alive ? keeper : 0;
}

int run_keeper_wait_status(const struct run_task *task, bool *ret_is_known)
{
    char path[600];
    int status = W_EXITCODE(0, SIGKILL);
    FILE *file;

    life_path(task, "end", path, sizeof(path));
    file = fopen(path, "re");
    *ret_is_known = file != NULL && fscanf(file, "%d", &status) == 1;
    if (file != NULL)
        fclose(file);
    return status;
}
