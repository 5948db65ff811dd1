/* --preload: a process that has imported modules, from which workers fork.
 *
 * It is python/muster/_preload.py, started with the interpreter of the program. Over a socket of
 * messages it says what it has imported, and is asked for each life of a worker; descriptors travel
 * with the request. A worker is forked twice, so that it becomes a child of this subreaper and is
 * watched and reaped as any other. It says its pid on a socket pair of its own, and waits there
 * until it is watched. Without that process, workers are started directly. */
#include "run/task/preload.h"

#include "common/command.h"
#include "common/output.h"
#include "run/output/log.h"
#include "run/registry/tls.h"
#include "run/state/worker_fds.h"
#include "run/task/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL_FD     6 /* in the process: CONTROL_FD of _preload.py */
#define FD_FLOOR       10
#define FDS_MAX        7
#define FORK_WAIT_MS   2000 /* a process that is stopped must not hold up this one for ever */
#define ARGUMENTS_MORE 8

struct run_preload {
    pid_t pid; /* 0: it has ended */
    bool is_pending;
    bool has_failed; /* it has said why */
    uint64_t started_ns;
    struct muster_fd_watch watch; /* of its socket; fd -1: closed */
};

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* Both ends stay above the descriptors that a worker inherits by number. */
static bool pair_open(int type, int ends[2])
{
    int low[2];

    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, low) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, FD_FLOOR);
        close(low[i]);
    }
    if (ends[0] >= 0 && ends[1] >= 0)
        return true;
    close_all(ends, 2);
    return false;
}

/* python3 -u -m muster._preload torch,numpy script train.py --lr 1 */
static char **arguments_new(const struct run_settings *settings)
{
    const struct run_python *python = &settings->python;
    size_t count = 0, rest = 0;
    char **all;

    while (python->target[rest] != NULL)
        rest++;
    all = calloc(python->word_count + rest + ARGUMENTS_MORE, sizeof(all[0]));
    if (all == NULL)
        output_no_memory();
    for (size_t i = 0; i < python->word_count; i++)
        all[count++] = python->words[i];
    all[count++] = (char *)"-m";
    all[count++] = (char *)"muster._preload";
    all[count++] = (char *)settings->preload;
    all[count++] = (char *)python->kind;
    for (size_t i = 0; i < rest; i++)
        all[count++] = python->target[i];
    return all;
}

/* In the child. Signals, limits and group are those of a worker, which its forks inherit. Modules
 * must not get the numbers of descriptors that a worker has. */
static void become_preload(const struct run *run, int control, char **arguments, char **environment)
{
    int null = open("/dev/null", O_RDWR);
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != run->pid)
        _exit(EXIT_FAILURE);
    output_file_limit_restore();
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    if (run->settings.preemption_grace_ns > 0)
        signal(SIGUSR1, SIG_IGN);
    setrlimit(RLIMIT_NOFILE, &run->descriptors);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(null, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    for (int i = RUN_REPORT_FD; i < CONTROL_FD; i++)
        dup2(null, i);
    dup2(control, CONTROL_FD);
    syscall(SYS_close_range, CONTROL_FD + 1u, ~0u, 1u << 2 /* CLOSE_RANGE_CLOEXEC */);
    execvpe(arguments[0], arguments, environment);
    _exit(EXIT_NOT_FOUND);
}

/* Nobody waits for imports any more. */
static void preload_settle(struct run *run)
{
    run->preload->is_pending = false;
    run->control->on_preloaded(run);
}

static void preload_fail(struct run *run)
{
    run->preload->has_failed = true;
    if (run->fatal_code == 0)
        run->fatal_code = EXIT_OTHER;
    preload_settle(run);
}

static void on_message(struct run *run, char *text, size_t length)
{
    struct run_preload *preload = run->preload;
    char *module = text + strlen(text) + 1;
    char *detail = module < text + length ? module + strlen(module) + 1 : text + length;

    if (strcmp(text, "ready") == 0) {
        uint64_t took_ns = muster_loop_now_ns(run->env->loop) - preload->started_ns;

        run_log(run, MUSTER_LOG_INFO, "preloaded",
                RUN_FIELDS(MUSTER_FIELD("pid", (int)preload->pid),
                           MUSTER_FIELD("modules", run->settings.preload)),
                "imported %s in %.2f s; workers fork from process %d", run->settings.preload,
                (double)took_ns / (double)MUSTER_NS_PER_S, (int)preload->pid);
        preload_settle(run);
    } else if (detail < text + length && strcmp(text, "failed") == 0) {
        run_log_error("--preload %s cannot be imported: %s", module, detail);
        preload_fail(run);
    } else if (detail < text + length && strcmp(text, "threads") == 0) {
        run_log(run, MUSTER_LOG_WARN, "preload_threads", RUN_FIELDS(MUSTER_FIELD("module", module)),
                "--preload: importing %s has started threads, which forked workers lack: %s; if "
                "workers hang, leave it out of --preload",
                module, detail);
    }
}

/* The end of the process is the business of run_preload_on_child, which knows how it ended. */
static void on_ready(struct muster_fd_watch *watch, unsigned ready)
{
    char text[1024];
    ssize_t got = recv(watch->fd, text, sizeof(text) - 1, MSG_DONTWAIT);

    (void)ready;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        muster_fd_watch_close(watch);
        return;
    }
    text[got] = '\0';
    on_message(watch->data, text, (size_t)got);
}

static void preload_start(struct run *run, struct run_preload *preload, int control)
{
    char **arguments = arguments_new(&run->settings);
    char **environment = run_environment_new_plain(run);

    preload->pid = fork();
    if (preload->pid == 0)
        become_preload(run, control, arguments, environment);
    if (preload->pid < 0)
        preload->pid = 0;
    run_environment_free(environment);
    free(arguments);
}

void run_preload_open(struct run *run)
{
    struct run_preload *preload;
    int ends[2] = {-1, -1};

    if (run->settings.preload == NULL)
        return;
    preload = calloc(1, sizeof(*preload));
    if (preload == NULL)
        output_no_memory();
    run->preload = preload;
    preload->started_ns = muster_loop_now_ns(run->env->loop);
    preload->watch.fd = -1;
    if (pair_open(SOCK_SEQPACKET, ends))
        preload_start(run, preload, ends[1]);
    close_all(&ends[1], 1);
    preload->watch = (struct muster_fd_watch){
        .data = run, .on_ready = on_ready, .fd = ends[0], .wanted = MUSTER_FD_READ};
    preload->is_pending =
        preload->pid != 0 && muster_fd_watch_open(&preload->watch, run->env->loop) == MUSTER_OK;
    if (!preload->is_pending && preload->pid != 0)
        kill(preload->pid, SIGKILL); /* nobody would hear of its imports */
    if (!preload->is_pending)
        run_log(run, MUSTER_LOG_WARN, "preload_lost", RUN_NO_FIELDS,
                "--preload: no process could be started: workers start directly");
}

void run_preload_close(struct run *run)
{
    struct run_preload *preload = run->preload;

    if (preload == NULL)
        return;
    run->preload = NULL;
    if (preload->pid != 0) {
        kill(preload->pid, SIGKILL);
        while (waitpid(preload->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (preload->watch.fd >= 0) {
        muster_fd_watch_close(&preload->watch);
        close(preload->watch.fd);
    }
    free(preload);
}

bool run_preload_is_pending(const struct run *run)
{
    return run->preload != NULL && run->preload->is_pending;
}

/* Its last words are read before its end is judged. */
static void drain_messages(struct run *run)
{
    struct run_preload *preload = run->preload;
    char text[1024];
    ssize_t got;

    while ((got = recv(preload->watch.fd, text, sizeof(text) - 1, MSG_DONTWAIT)) > 0) {
        text[got] = '\0';
        on_message(run, text, (size_t)got);
    }
}

bool run_preload_on_child(struct run *run, pid_t pid)
{
    struct run_preload *preload = run->preload;
    char death[64];
    int status = 0;

    if (preload == NULL || pid != preload->pid)
        return false;
    waitpid(pid, &status, 0);
    drain_messages(run);
    preload->pid = 0;
    muster_fd_watch_close(&preload->watch);
    run_task_death(status, death, sizeof(death));
    if (preload->has_failed || run_is_ending(run))
        return true;
    if (preload->is_pending && WIFEXITED(status)) {
        run_log_error("--preload: '%s -m muster._preload' %s before it had imported %s; is the "
                      "package muster installed for it (docs/python.md)?",
                      run->settings.python.words[0], death, run->settings.preload);
        preload_fail(run);
        return true;
    }
    run_log(run, MUSTER_LOG_WARN, "preload_lost", RUN_FIELDS(MUSTER_FIELD("pid", (int)pid)),
            "the process that had imported %s was lost (%s): from now on workers start directly",
            run->settings.preload, death);
    if (preload->is_pending)
        preload_settle(run);
    return true;
}

/* The size of an environment has no bound that a message could have, so it travels as a file. */
static int environment_file(char **environment)
{
    int low = memfd_create("environment", MFD_CLOEXEC);
    int fd = low >= 0 ? fcntl(low, F_DUPFD_CLOEXEC, FD_FLOOR) : -1;

    if (low >= 0)
        close(low);
    for (size_t i = 0; fd >= 0 && environment[i] != NULL; i++) {
        size_t length = strlen(environment[i]) + 1;

        if (write(fd, environment[i], length) != (ssize_t)length) {
            close(fd);
            return -1;
        }
    }
    return fd;
}

static bool send_request(int control, const int *fds, size_t count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } room = {.bytes = {0}};
    struct iovec word = {.iov_base = (char[]){"fork"}, .iov_len = 4};
    struct msghdr message = {.msg_iov = &word,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    MUSTER_ASSERT(count <= FDS_MAX);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    return sendmsg(control, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 4;
}

/* The pid that the worker says. 0: it has ended, or was never forked; -1: no answer. */
static pid_t receive_pid(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char text[32];
    ssize_t got;
    int count;

    do
        count = poll(&ready, 1, FORK_WAIT_MS);
    while (count < 0 && errno == EINTR);
    if (count <= 0)
        return -1;
    got = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    return (pid_t)strtol(text, NULL, 10);
}

bool run_preload_fork(struct run_task *task, char **environment, const int fds[3],
                      struct run_preloaded *ret_worker)
{
    struct run_preload *preload = task->run->preload;
    int ends[2] = {-1, -1};
    int sent[FDS_MAX];
    size_t count = 5;
    int file;
    pid_t pid = 0;

    if (preload == NULL || preload->pid == 0 || preload->is_pending)
        return false;
    file = environment_file(environment);
    if (file >= 0 && pair_open(SOCK_SEQPACKET, ends)) {
        sent[0] = ends[1];
        sent[1] = file;
        memcpy(sent + 2, fds, 3 * sizeof(fds[0]));
        if (run_tls_find_fds(task, &sent[5], &sent[6]))
            count = 7;
        if (send_request(preload->watch.fd, sent, count)) {
            close_all(&ends[1], 1); /* else its end would not be seen */
            pid = receive_pid(ends[0]);
        }
    }
    close_all(&file, 1);
    close_all(&ends[1], 1);
    if (pid > 0) {
        *ret_worker = (struct run_preloaded){.pid = pid, .fd = ends[0]};
        return true;
    }
    if (pid < 0)
        kill(preload->pid, SIGKILL); /* a worker that it forks after all ends with our socket */
    close_all(ends, 1);
    return false;
}

void run_preload_let_go(const struct run_preloaded *worker)
{
    if (send(worker->fd, "", 1, MSG_NOSIGNAL) < 0)
        MUSTER_ASSERT(errno == EPIPE); /* it has died, which its watch tells */
    close(worker->fd);
}
