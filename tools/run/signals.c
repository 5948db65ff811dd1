/* Signals to the launcher, passed on to the workers. One that means stop ends the run; another one
 * a second later or more kills.
 *
 * With --preemption-grace the first SIGTERM asks the members to stop by themselves, and so does SIGUSR1,
 * which says that a SIGTERM will come. Without it, or without members, SIGUSR1 is the program's, as SIGUSR2 always
 * is: it is passed on as it comes. SIGCHLD finds processes that no pidfd watches, and a worker that was stopped on the
 * terminal. */
#include "run/signals.h"

#include "run/output/log.h"
#include "run/task/child.h"
#include "run/task/preempt.h"
#include "run/task/task.h"
#include "run/task/terminal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define AGAIN_NS MUSTER_NS_PER_S /* sooner it is the same wish, sent twice */

/* timeout(1) signals its child and then the group that both are in, and a shell may do the same, so
 * that one wish to stop arrives as a burst of signals. */
static void on_stop_signal(struct run *run, int signal)
{
    uint64_t now_ns = muster_loop_now_ns(run->env->loop);
    bool is_first;

    if (run->stop_signal != 0 && now_ns - run->stopped_ns < AGAIN_NS)
        return;
    if (run->stop_signal != 0 && run->state != RUN_STATE_LEAVING) {
        run_log(run, MUSTER_LOG_WARN, "stop", RUN_FIELDS(MUSTER_FIELD("signal", signal)),
                "SIG%s again: killing all workers", sigabbrev_np(signal));
        run_task_signal_all(run, SIGKILL);
        return;
    }
    is_first = run->stop_signal == 0;
    run->stop_signal = signal;
    run->stopped_ns = now_ns;
    if (is_first && signal == SIGTERM && run_preempt_begin(run, signal))
        return;
    run_log(run, MUSTER_LOG_WARN, "stop", RUN_FIELDS(MUSTER_FIELD("signal", signal)),
            "SIG%s: passed on to the workers, which have %.0f s to end", sigabbrev_np(signal),
            (double)run->settings.grace_ns / (double)MUSTER_NS_PER_S);
    if (run->state == RUN_STATE_STOPPING)
        run_task_signal_all(run, SIGKILL);
    run_task_end_all(run, signal);
    run_task_check(run); /* where all waited for a start, no end of a worker comes */
}

/* Slurm says so (--signal): what ends the run comes later. Workers that are no members may know by themselves what to
 * save, and a job that begins afterwards would lose what it does until the machine goes away. */
static void on_notice(struct run *run)
{
    if (run->state == RUN_STATE_LEAVING || run_is_ending(run))
        return; /* the run does what is asked for */
    if (run_preempt_ask(run, "SIGUSR1")) {
        run_log(run, MUSTER_LOG_WARN, "preempted", RUN_FIELDS(MUSTER_FIELD("signal", SIGUSR1)),
                "SIGUSR1: the members stop after the same step, and save it");
        return;
    }
    run_preempt_ask_early(run, "SIGUSR1"); /* from the first view on that a worker reports */
    run_log(run, MUSTER_LOG_WARN, "preempted_early", RUN_FIELDS(MUSTER_FIELD("signal", SIGUSR1)),
            "SIGUSR1: no worker is a member of a job, so there is no step to save: passed on to "
            "the workers; a job "
            "that begins now stops at once");
    run_task_signal_all(run, SIGUSR1);
}

/* signalfd joins equal signals that are pending, so children are reaped until none is left. */
static void on_signal(struct muster_fd_watch *watch, unsigned ready)
{
    struct run *run = watch->data;
    struct signalfd_siginfo info;

    (void)ready;
    if (read(watch->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    if (info.ssi_signo == SIGCHLD) {
        run_terminal_on_child(run);
        run_child_reap(run);
    } else if (info.ssi_signo == SIGUSR1 && run->settings.preemption_grace_ns > 0) {
        on_notice(run);
    } else if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2) {
        run_task_signal_all(run, (int)info.ssi_signo);
    } else {
        on_stop_signal(run, (int)info.ssi_signo);
    }
}

/* The signals are blocked here and read by signalfd, so that no handler interrupts the launcher;
 * workers get the mask back before their exec. */
bool run_signals_open(struct run *run)
{
    static const int handled[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set;
    int fd, sys;

    signal(SIGCHLD, SIG_DFL); /* ignored, it would make the kernel reap what we wait for */
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
        sigaddset(&set, handled[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return false;
    run->signal_watch = (struct muster_fd_watch){
        .data = run, .on_ready = on_signal, .fd = fd, .wanted = MUSTER_FD_READ};
    if (muster_fd_watch_open(&run->signal_watch, run->env->loop) == MUSTER_OK)
        return true;
    sys = errno;
    close(fd);
    errno = sys;
    return false;
}

void run_signals_close(struct run *run)
{
    muster_fd_watch_close(&run->signal_watch);
    close(run->signal_watch.fd);
}
