/* The lock of an object of the library, and the GIL in its calls.
 *
 * One lock stands around each call, so that threads of a program may share an object. The GIL is kept in
 * short calls, since getting it back costs up to a switch interval (5 ms) beside a thread that computes;
 * a call that waits gives it back after a millisecond (muster_py_calls_look). */
#include "python/call.h"

#include <pthread.h>
#include <unistd.h>

#define LOCK_LOOK_US 50000 /* a thread that waits for another one's call looks for signals */

/* --- Forks --- */

static unsigned fork_count; /* of this process and those that it is a fork of */

static void on_fork(void)
{
    fork_count++;
}

bool muster_py_calls_watch_forks(void)
{
    static bool is_watching;

    if (!is_watching)
        is_watching = pthread_atfork(NULL, NULL, on_fork) == 0;
    return is_watching || PyErr_NoMemory() != NULL;
}

bool muster_py_calls_is_forked(const struct muster_py_calls *calls)
{
    return calls->fork_count != fork_count;
}

bool muster_py_calls_check_fork(const struct muster_py_calls *calls)
{
    return !muster_py_calls_is_forked(calls) ||
           muster_py_raise(
               PyExc_RuntimeError,
               "forked: this process is a fork of the one that opened the object; open another one "
               "here, or fork before opening it") != NULL;
}

/* --- The lock --- */

bool muster_py_calls_init(struct muster_py_calls *calls)
{
    calls->fork_count = fork_count;
    calls->lock = PyThread_allocate_lock();
    return calls->lock != NULL || PyErr_NoMemory() != NULL;
}

void muster_py_calls_fini(struct muster_py_calls *calls)
{
    if (calls->lock != NULL)
        PyThread_free_lock(calls->lock);
}

bool muster_py_calls_is_inside(const struct muster_py_calls *calls)
{
    return calls->owner == PyThread_get_thread_ident();
}

bool muster_py_calls_try_lock(struct muster_py_calls *calls)
{
    if (calls->owner != 0 || !PyThread_acquire_lock(calls->lock, NOWAIT_LOCK))
        return false;
    calls->owner = PyThread_get_thread_ident();
    return true;
}

bool muster_py_calls_lock(struct muster_py_calls *calls)
{
    PyLockStatus status = PY_LOCK_FAILURE;

    if (muster_py_calls_is_inside(calls))
        return muster_py_raise(PyExc_RuntimeError,
                               "called from a signal handler or finalizer while a call of the same "
                               "object runs; call it outside of them") != NULL;
    if (muster_py_calls_try_lock(calls))
        return true;
    while (status != PY_LOCK_ACQUIRED) {
        Py_BEGIN_ALLOW_THREADS;
        status = PyThread_acquire_lock_timed(calls->lock, LOCK_LOOK_US, 0);
        Py_END_ALLOW_THREADS;
        if (status != PY_LOCK_ACQUIRED && PyErr_CheckSignals() != 0)
            return false;
    }
    calls->owner = PyThread_get_thread_ident();
    return true;
}

void muster_py_calls_unlock(struct muster_py_calls *calls)
{
    calls->owner = 0;
    PyThread_release_lock(calls->lock);
}

void muster_py_calls_end_other(struct muster_py_calls *calls)
{
    if (calls->owner != 0 && !muster_py_calls_is_inside(calls))
        atomic_store_explicit(&calls->is_ended, true, memory_order_relaxed);
}

/* --- The GIL, signals --- */

void muster_py_calls_enter(struct muster_py_calls *calls, bool is_short)
{
    calls->has_waited = false;
    atomic_store_explicit(&calls->is_ended, false, memory_order_relaxed);
    calls->released = is_short && !calls->is_slow ? NULL : PyEval_SaveThread();
}

void muster_py_calls_leave(struct muster_py_calls *calls)
{
    if (calls->released != NULL)
        PyEval_RestoreThread(calls->released);
    calls->released = NULL;
    calls->is_slow = calls->has_waited;
}

/* Handlers of signals run in the main thread alone; another thread, which may be a daemon whose
 * interpreter ends, does not ask for the GIL here. */
static bool is_main_thread(void)
{
    return gettid() == getpid();
}

bool muster_py_calls_look(void *data)
{
    struct muster_py_calls *calls = data;
    bool is_interrupted = false;

    calls->has_waited = true;
    if (atomic_load_explicit(&calls->is_ended, memory_order_relaxed))
        return true;
    if (calls->released != NULL && !is_main_thread())
        return false;
    if (calls->released != NULL)
        PyEval_RestoreThread(calls->released);
    is_interrupted = PyErr_CheckSignals() != 0;
    calls->released = PyEval_SaveThread();
    return is_interrupted;
}
