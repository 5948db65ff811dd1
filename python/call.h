/* The calls of one object of the library: one at a time, with the GIL or without it, interrupted by signals. A
 * free-threaded interpreter has no GIL: "with the GIL" says there that the thread is attached to the interpreter. */
#ifndef MUSTER_PYTHON_CALL_H
#define MUSTER_PYTHON_CALL_H

#include "python/convert.h"

#include <pthread.h>
#include <pythread.h>

#include <stdatomic.h>

/** All of it belongs to whoever has the lock, but `owner`, which only its own thread learns from, and `is_ended`. */
struct muster_py_calls {
    PyThread_type_lock lock; /* of the call that runs */
    pthread_mutex_t guard;   /* of what is read without waiting for that call */
    atomic_ulong owner;      /* the thread of that call; 0: none; relaxed */
    unsigned fork_count;     /* when it was opened */
    PyThreadState *released; /* the running call is without the GIL */
    bool has_waited;         /* so was the running call, by look */
    atomic_bool is_ended;    /* by another thread: the running call must end; relaxed */
    bool is_slow;            /* the last call has waited: the next one gives the GIL back at once */
};

/** Call this once, before the first object is made. */
bool muster_py_calls_watch_forks(void);
/** The memory must be zeroed. */
bool muster_py_calls_init(struct muster_py_calls *calls);
/** Also after init has failed, or has not run. */
void muster_py_calls_fini(struct muster_py_calls *calls);

/** Whether this process is a fork of the one that opened the object: all of it is the parent's. */
bool muster_py_calls_is_forked(const struct muster_py_calls *calls);
/** Raises RuntimeError if it is. */
bool muster_py_calls_check_fork(const struct muster_py_calls *calls);
/** Whether this thread is in a call: a handler of a signal that interrupts it, or a finalizer. */
bool muster_py_calls_is_inside(const struct muster_py_calls *calls);

/** Wait for the calls of other threads. Raises RuntimeError inside of this thread's own, and what handlers of
 * signals raise. */
bool muster_py_calls_lock(struct muster_py_calls *calls);
/** The same, and the calls of other threads end where they wait: the main thread has left a compiled program that
 * still runs. */
bool muster_py_calls_lock_ending(struct muster_py_calls *calls);
/** The same without waiting, and without an exception. False: what has been written before is seen by whoever has the
 * lock, if that looks after its unlock. */
bool muster_py_calls_try_lock(struct muster_py_calls *calls);
void muster_py_calls_unlock(struct muster_py_calls *calls);

/** Around a few reads and writes: nothing in between waits, or calls the interpreter. In a fork, which has one thread
 * of its parent's, they do nothing. */
void muster_py_calls_guard(struct muster_py_calls *calls);
void muster_py_calls_unguard(struct muster_py_calls *calls);

/** Around the function of the library, within the lock. A short one keeps the GIL until it waits. */
void muster_py_calls_enter(struct muster_py_calls *calls, bool is_short);
void muster_py_calls_leave(struct muster_py_calls *calls);
/** For the library, in a call that waits: gives the GIL back, and runs handlers of signals. True: one of them
 * has raised. data: the calls. */
bool muster_py_calls_look(void *data);
/** In a call that waits for the end of an object: an interpreter without a GIL leaves it to the thread that has made
 * the object, which may be this one, when it next runs Python. */
void muster_py_calls_run_put_off(struct muster_py_calls *calls);

#endif
