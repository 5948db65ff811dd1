/* muster inside a program that has an epoll loop of its own: watch one descriptor, keep one time.
 *
 * embed_epoll serve HOST:PORT, or embed_epoll ask HOST:PORT <LINES. */
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "line_input.h"

static int termination_fd(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    return signalfd(-1, &signals, SFD_CLOEXEC);
}

/* False: epoll takes no files; they can be read at any time. */
static bool watch_fd(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};

    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

int main(int argc, char **argv)
{
    static struct line_calls calls;
    static struct line_input input;
    int epoll = epoll_create1(EPOLL_CLOEXEC), termination = termination_fd();
    struct epoll_event event;

    if (!line_calls_open(&calls, argc, argv, NULL))
        return 2;
    struct muster_loop *loop = calls.env->loop;
    (void)watch_fd(epoll, muster_loop_fd(loop));
    (void)watch_fd(epoll, termination);
    bool is_reading = calls.channel != NULL;
    bool is_file = is_reading && !watch_fd(epoll, STDIN_FILENO);
    while (!calls.is_closed) {
        int count =
            epoll_wait(epoll, &event, 1, is_file && is_reading ? 0 : muster_loop_wait_ms(loop));

        if (is_reading && (is_file || (count == 1 && event.data.fd == STDIN_FILENO))) {
            is_reading = line_input_read(&input, STDIN_FILENO, &calls);
            if (!is_reading)
                (void)epoll_ctl(epoll, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
        } else if (count == 1 && event.data.fd == termination) {
            line_calls_close(&calls);
            (void)epoll_ctl(epoll, EPOLL_CTL_DEL, termination, NULL);
        }
        muster_loop_turn(loop, 0); /* cheap when there is nothing to do */
    }
    (void)close(termination);
    (void)close(epoll);
    return line_calls_free(&calls);
}
