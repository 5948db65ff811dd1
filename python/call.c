/* The lock of an object of the library, and the GIL in its calls.
 *
 * One lock stands around each call, so that threads of a program may share an object. The GIL is kept in
 * short calls, since getting it back costs up to a switch interval (5 ms) beside a thread that computes;
 * a call that waits gives it back after a millisecond (muster_py_calls_look).
 *
 * Nobody waits for the lock with the GIL, so that whoever has it may take the GIL. A free-threaded interpreter stops
 * all attached threads for a moment at times; it does not wait for those that wait here. */
#include "python/call.h"

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

/* --- What the interpreter puts off --- */

/* It runs as little Python as there is. An exception of another thread, or of a handler of a signal, stays set. */
static void run_put_off(void)
{
#ifdef Py_GIL_DISABLED
    PyObject *names = PyErr_Occurred() == NULL ? PyDict_New() : NULL;
    PyObject *code = names != NULL ? Py_CompileString("0", "muster", Py_eval_input) : NULL;

    if (code != NULL)
        Py_XDECREF(PyEval_EvalCode(code, names, names));
    Py_XDECREF(code);
    Py_XDECREF(names);
#endif
}

/* Handlers of signals run in the main thread alone; another thread may be a daemon whose interpreter ends. */
static bool is_main_thread(void)
{
    return gettid() == getpid();
}

void muster_py_calls_run_put_off(struct muster_py_calls *calls)
{
#ifdef Py_GIL_DISABLED
    bool is_released = calls->released != NULL;

    if (is_released && !is_main_thread() && Py_IsFinalizing())
        return;
    if (is_released)
        PyEval_RestoreThread(calls->released);
    run_put_off();
    if (is_released)
        calls->released = PyEval_SaveThread();
#else
    (void)calls;
#endif
}

/* --- The lock --- */

bool muster_py_calls_init(struct muster_py_calls *calls)
{
    calls->fork_count = fork_count;
    calls->lock = PyThread_allocate_lock();
    return (calls->lock != NULL && pthread_mutex_init(&calls->guard, NULL) == 0) ||
           PyErr_NoMemory() != NULL;
}

void muster_py_calls_fini(struct muster_py_calls *calls)
{
    if (calls->lock == NULL)
        return;
    PyThread_free_lock(calls->lock);
    (void)pthread_mutex_destroy(&calls->guard);
}

static void set_owner(struct muster_py_calls *calls, unsigned long thread)
{
    atomic_store_explicit(&calls->owner, thread, memory_order_relaxed);
}

bool muster_py_calls_is_inside(const struct muster_py_calls *calls)
{
    return atomic_load_explicit(&calls->owner, memory_order_relaxed) == PyThread_get_thread_ident();
}

/* The fence pairs with that of unlock: if the lock is not free here yet, then what this thread has written before is
 * seen there. */
bool muster_py_calls_try_lock(struct muster_py_calls *calls)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!PyThread_acquire_lock(calls->lock, NOWAIT_LOCK))
        return false;
    set_owner(calls, PyThread_get_thread_ident());
    return true;
}

/* The running call may end, and another one begin, beside this: whoever waits asks again. */
static void end_call(struct muster_py_calls *calls)
{
    atomic_store_explicit(&calls->is_ended, true, memory_order_relaxed);
}

/* A thread that waits: whether a handler of a signal has raised. The call that it waits for may wait for what this
 * thread has made. */
static bool must_end(void)
{
    run_put_off();
    return PyErr_Occurred() != NULL || PyErr_CheckSignals() != 0;
}

static bool lock_or_wait(struct muster_py_calls *calls, bool is_ending)
{
    PyLockStatus status = PY_LOCK_FAILURE;

    if (muster_py_calls_is_inside(calls))
        return muster_py_raise(PyExc_RuntimeError,
                               "called from a signal handler or finalizer while a call of the same "
                               "object runs; call it outside of them") != NULL;
    if (muster_py_calls_try_lock(calls))
        return true;
    while (status != PY_LOCK_ACQUIRED) {
        if (is_ending)
            end_call(calls);
        Py_BEGIN_ALLOW_THREADS;
        status = PyThread_acquire_lock_timed(calls->lock, LOCK_LOOK_US, 0);
        Py_END_ALLOW_THREADS;
        if (status != PY_LOCK_ACQUIRED && must_end())
            return false;
    }
    set_owner(calls, PyThread_get_thread_ident());
    return true;
}

bool muster_py_calls_lock(struct muster_py_calls *calls)
{
    return lock_or_wait(calls, false);
}

bool muster_py_calls_lock_ending(struct muster_py_calls *calls)
{
    return lock_or_wait(calls, true);
}

void muster_py_calls_unlock(struct muster_py_calls *calls)
{
    set_owner(calls, 0);
    PyThread_release_lock(calls->lock);
    atomic_thread_fence(memory_order_seq_cst);
}

void muster_py_calls_guard(struct muster_py_calls *calls)
{
    if (!muster_py_calls_is_forked(calls))
        pthread_mutex_lock(&calls->guard);
}

void muster_py_calls_unguard(struct muster_py_calls *calls)
{
    if (!muster_py_calls_is_forked(calls))
        pthread_mutex_unlock(&calls->guard);
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

/* A thread other than the main one does not ask for the GIL here. */
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
    is_interrupted = PyErr_Occurred() != NULL || PyErr_CheckSignals() != 0;
    calls->released = PyEval_SaveThread();
    return is_interrupted;
}
