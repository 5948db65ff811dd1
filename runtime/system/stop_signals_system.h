/* SIGTERM and SIGUSR1 to this process as events of a loop: the machine will be taken away. */
#ifndef MUSTER_RUNTIME_STOP_SIGNALS_SYSTEM_H
#define MUSTER_RUNTIME_STOP_SIGNALS_SYSTEM_H

#include <sys/types.h>

#include <muster/env.h>

/** The signals that a process may be told by. A signal of the program's own handler is left to it. */
struct muster_stop_signals {
    void *data;
    void (*on_stop)(struct muster_stop_signals *signals, const char *name); /* "SIGTERM" */
    pid_t ender;       /* a SIGTERM of this process means the end at once; 0: nobody's does */
    bool is_term_only; /* SIGUSR1 is somebody else's */
    /* private */
    struct muster_wake *wake;
    bool is_taken[2], is_told[2];
};

/** Which of the two signals have no handler now: to be asked before other parts of the library take them. */
void muster_stop_signals_look(struct muster_stop_signals *signals);
/**
 * Take the signals that had no handler then. on_stop runs on the loop, at the first signal of each kind; the second
 * SIGTERM ends the process as if nobody had taken it. One at a time in a process: others take none.
 *
 * Errors:  RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_stop_signals_open(struct muster_stop_signals *signals,
                                                          struct muster_env *env);
/** End the process as if nobody had taken SIGTERM. */
void muster_stop_signals_end(struct muster_stop_signals *signals);
/** The signals are as they were. Without open it does nothing. */
void muster_stop_signals_close(struct muster_stop_signals *signals);

#endif
