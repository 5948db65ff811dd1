/* The handler only notes the signal and wakes the loop. What the signals did before comes back for a second SIGTERM,
 * and for one of the process that may end this one. */
#include "runtime/system/stop_signals_system.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include <muster/loop.h>

enum { STOP_TERM, STOP_USR1, STOP_COUNT };

static const int numbers[STOP_COUNT] = {[STOP_TERM] = SIGTERM, [STOP_USR1] = SIGUSR1};
static const char *const names[STOP_COUNT] = {[STOP_TERM] = "SIGTERM", [STOP_USR1] = "SIGUSR1"};

/* The strategy that has taken the signals; the handler loads it. All of it is sequentially consistent, and the handler
 * takes no lock. */
static _Atomic(struct muster_stop_signals *) taker;
static atomic_bool has_come[STOP_COUNT]; /* set by the handler, cleared by open */
static atomic_uint inside_count;         /* handlers that may use the taker: close waits for them */
static struct sigaction before[STOP_COUNT]; /* written by open, before the handler is there */
static pid_t opener; /* likewise: a fork of it inherits the handler, and takes nothing */

/* To the process: the thread that calls this may block it. */
static void signal_as_before(int kind)
{
    (void)sigaction(numbers[kind], &before[kind], NULL);
    (void)kill(getpid(), numbers[kind]);
}

static void on_stop_signal(int number, siginfo_t *info, void *context)
{
    int kind = number == SIGTERM ? STOP_TERM : STOP_USR1;
    struct muster_stop_signals *signals;
    int saved = errno;

    (void)context;
    if (getpid() != opener) {
        signal_as_before(kind);
        errno = saved;
        return;
    }
    atomic_fetch_add(&inside_count, 1);
    signals = atomic_load(&taker);
    if (number == SIGTERM && (signals == NULL || atomic_load(&has_come[STOP_TERM]) ||
                              (signals->ender != 0 && info->si_pid == signals->ender)))
        signal_as_before(STOP_TERM);
    atomic_store(&has_come[kind], true);
    if (signals != NULL)
        muster_wake_signal(signals->wake);
    atomic_fetch_sub(&inside_count, 1);
    errno = saved;
}

static void on_wake(struct muster_wake *wake)
{
    struct muster_stop_signals *signals = muster_wake_data(wake);

    for (int kind = 0; kind < STOP_COUNT; kind++)
        if (atomic_load(&has_come[kind]) && !signals->is_told[kind]) {
            signals->is_told[kind] = true;
            signals->on_stop(signals, names[kind]);
        }
}

/* A program that has a handler of its own says by itself what it means. SIGUSR1 is ignored where a launcher
 * takes it. */
void muster_stop_signals_look(struct muster_stop_signals *signals)
{
    struct sigaction now;

    for (int kind = 0; kind < STOP_COUNT; kind++)
        signals->is_taken[kind] =
            (kind == STOP_TERM || !signals->is_term_only) &&
            sigaction(numbers[kind], NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
            (now.sa_handler == SIG_DFL || (kind == STOP_USR1 && now.sa_handler == SIG_IGN));
}

enum muster_rc muster_stop_signals_open(struct muster_stop_signals *signals, struct muster_env *env)
{
    struct sigaction ours = {.sa_sigaction = on_stop_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct muster_stop_signals *nobody = NULL;
    enum muster_rc rc = muster_wake_open(env->mem, env->loop, on_wake, signals, &signals->wake);

    if (rc != MUSTER_OK)
        return rc;
    if (!atomic_compare_exchange_strong(&taker, &nobody, signals)) {
        muster_wake_close(signals->wake);
        signals->wake = NULL;
        return MUSTER_OK;
    }
    opener = getpid();
    (void)sigemptyset(&ours.sa_mask);
    for (int kind = 0; kind < STOP_COUNT; kind++) {
        atomic_store(&has_come[kind], false);
        signals->is_told[kind] = false;
        if (signals->is_taken[kind])
            signals->is_taken[kind] = sigaction(numbers[kind], NULL, &before[kind]) == 0 &&
                                      sigaction(numbers[kind], &ours, NULL) == 0;
    }
    return MUSTER_OK;
}

void muster_stop_signals_end(struct muster_stop_signals *signals)
{
    if (signals->is_taken[STOP_TERM])
        signal_as_before(STOP_TERM);
}

void muster_stop_signals_close(struct muster_stop_signals *signals)
{
    struct sigaction now;

    if (signals->wake == NULL)
        return;
    for (int kind = 0; kind < STOP_COUNT; kind++)
        if (signals->is_taken[kind] && sigaction(numbers[kind], NULL, &now) == 0 &&
            (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_stop_signal)
            (void)sigaction(numbers[kind], &before[kind], NULL);
    atomic_store(&taker, NULL);
    while (atomic_load(&inside_count) > 0)
        sched_yield();
    muster_wake_close(signals->wake);
    signals->wake = NULL;
}
