/* SIGXFSZ is blocked meanwhile, and taken where it came: the kernel sends it to the thread that has written. */
#include "runtime/system/file_limit_system.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

static sigset_t limit_signals(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGXFSZ);
    return signals;
}

bool muster_file_limit_block(void)
{
    sigset_t signals = limit_signals(), before;

    (void)pthread_sigmask(SIG_BLOCK, &signals, &before);
    return sigismember(&before, SIGXFSZ) == 1;
}

void muster_file_limit_unblock(bool was_blocked)
{
    static const struct timespec at_once;
    sigset_t signals = limit_signals();
    int sys = errno;

    if (was_blocked)
        return;
    while (sigtimedwait(&signals, NULL, &at_once) < 0 && errno == EINTR)
        ;
    (void)pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    errno = sys;
}
