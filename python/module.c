/* The module muster._muster: struct muster_strategy for CPython, against the limited API of 3.11.
 *
 * One lock stands around each call, so that threads of a program may share a strategy. The GIL is kept in
 * short calls, since getting it back costs up to a switch interval (5 ms) beside a thread that computes;
 * a call that waits for other members gives it back after a millisecond (on_wait). An open strategy is
 * held by the module: only close, or the end of the process, ends it. */
#include "python/tensor.h"

#include <pythread.h>

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <muster/muster.h>
#include <muster/strategy_checkpoint.h>
#include <muster/strategy_role.h>

#define SHORT_BYTES_MAX 65536u /* more bytes than these take longer than getting the GIL back */
#define LOCK_LOOK_US    50000  /* a thread that waits for another one's call looks for signals */

/* --- Forks --- */

static unsigned fork_count; /* of this process and those that it is a fork of */

static void on_fork(void)
{
    fork_count++;
}

/* --- The strategy --- */

struct strategy_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_strategy *strategy; /* NULL: closed */
    PyObject *held;                       /* a list of what the library borrows until close */
    PyThread_type_lock lock;              /* of the call that runs */
    unsigned long owner;                  /* the thread of that call; 0: none */
    unsigned fork_count;                  /* when it was opened */
    PyThreadState *released;              /* the running call is without the GIL */
    bool has_waited;                      /* so was the running call, by on_wait */
    bool is_slow; /* the last call has waited: the next one gives the GIL back at once */
    uint64_t step;
    bool is_restored;
    struct muster_list tensors; /* that exist: struct muster_py_tensor */
    struct muster_list unused;  /* that nobody has any more, freed by the next call */
};

static struct strategy_object *strategy_of(PyObject *self)
{
    return (struct strategy_object *)self;
}

/* Handlers of signals run in the main thread alone; another thread, which may be a daemon whose
 * interpreter ends, does not ask for the GIL here. */
static bool is_main_thread(void)
{
    return gettid() == getpid();
}

static bool on_wait(void *data)
{
    struct strategy_object *self = data;
    bool is_interrupted = false;

    self->has_waited = true;
    if (self->released != NULL && !is_main_thread())
        return false;
    if (self->released != NULL)
        PyEval_RestoreThread(self->released);
    is_interrupted = PyErr_CheckSignals() != 0;
    self->released = PyEval_SaveThread();
    return is_interrupted;
}

static bool lock_call(struct strategy_object *self)
{
    PyLockStatus status = PY_LOCK_FAILURE;

    if (self->owner == PyThread_get_thread_ident())
        return muster_py_raise(
                   PyExc_RuntimeError,
                   "a handler of a signal or a finalizer has called a strategy whose call it "
                   "interrupts") != NULL;
    if (PyThread_acquire_lock(self->lock, NOWAIT_LOCK))
        status = PY_LOCK_ACQUIRED;
    while (status != PY_LOCK_ACQUIRED) {
        Py_BEGIN_ALLOW_THREADS;
        status = PyThread_acquire_lock_timed(self->lock, LOCK_LOOK_US, 0);
        Py_END_ALLOW_THREADS;
        if (status != PY_LOCK_ACQUIRED && PyErr_CheckSignals() != 0)
            return false;
    }
    self->owner = PyThread_get_thread_ident();
    return true;
}

/* The memory of a tensor is given back between calls: its last user may go inside of one. */
static void free_unused(struct strategy_object *self)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&self->unused)) != NULL) {
        struct muster_py_memory *memory = MUSTER_CONTAINER_OF(node, struct muster_py_memory, node);

        if (self->strategy != NULL)
            muster_strategy_tensor_free(self->strategy, &memory->tensor);
        else
            muster_kept_memory_free(&memory->kept);
        PyMem_Free(memory);
    }
}

static void unlock_call(struct strategy_object *self)
{
    if (!muster_list_is_empty(&self->unused))
        free_unused(self);
    self->owner = 0;
    PyThread_release_lock(self->lock);
}

static bool enter_strategy(struct strategy_object *self)
{
    if (self->fork_count != fork_count)
        return muster_py_raise(
                   PyExc_RuntimeError,
                   "forked: the process that opened this strategy is its member, and this "
                   "one is its fork: open "
                   "another one here, or start children before open") != NULL;
    if (!lock_call(self))
        return false;
    if (self->strategy != NULL)
        return true;
    unlock_call(self);
    return muster_py_raise(muster_py_error_classes[MUSTER_FAILED_PRECONDITION],
                           "the strategy is closed") != NULL;
}

/* In a fork it stays, as it is the parent's. */
static void on_unused(PyObject *owner, struct muster_py_memory *memory)
{
    struct strategy_object *self = strategy_of(owner);

    muster_list_remove(&memory->node);
    muster_list_append(&self->unused, &memory->node);
    if (self->fork_count != fork_count || self->owner != 0 ||
        !PyThread_acquire_lock(self->lock, NOWAIT_LOCK))
        return; /* the call that runs frees it */
    unlock_call(self);
}

/* --- Calls --- */

/* One call of the library: its arguments, and its function. */
struct call {
    enum muster_rc (*run)(struct muster_strategy *strategy, struct call *call);
    struct muster_tensor *tensors;
    size_t count;
    enum muster_reduction reduction;
    uint32_t root;
    uint64_t weight, timeout_ns, bytes_per_pack;
    const char *text;
    bool is_short;              /* keeps the GIL until it waits */
    PyObject *invalid_argument; /* the class of that error */
    void *data;
};

static bool run_entered(struct strategy_object *self, struct call *call)
{
    struct muster_error error;
    enum muster_rc rc;

    self->has_waited = false;
    self->released = call->is_short && !self->is_slow ? NULL : PyEval_SaveThread();
    rc = call->run(self->strategy, call);
    if (rc != MUSTER_OK) {
        error = *muster_strategy_error(self->strategy);
        error.rc = rc;
    }
    if (self->released != NULL)
        PyEval_RestoreThread(self->released);
    self->released = NULL;
    self->is_slow = self->has_waited;
    if (rc != MUSTER_OK)
        muster_py_raise_error(&error, call->invalid_argument != NULL ? call->invalid_argument
                                                                     : muster_py_mismatch);
    return rc == MUSTER_OK;
}

static PyObject *run_call(struct strategy_object *self, struct call *call)
{
    bool is_right;

    if (!enter_strategy(self))
        return NULL;
    is_right = run_entered(self, call);
    unlock_call(self);
    if (!is_right)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *run_tensors(struct strategy_object *self, struct call *call,
                             struct muster_py_tensors *tensors)
{
    PyObject *result;

    call->tensors = tensors->tensors;
    call->count = tensors->count;
    call->is_short = tensors->bytes <= SHORT_BYTES_MAX;
    result = run_call(self, call);
    muster_py_tensors_close(tensors);
    return result;
}

/* --- Operations --- */

static enum muster_rc run_all_reduce(struct muster_strategy *strategy, struct call *call)
{
    struct muster_communication_options options;

    if (call->timeout_ns == 0 && call->bytes_per_pack == 0)
        return muster_strategy_all_reduce(strategy, call->tensors, call->count, call->reduction);
    options = muster_strategy_communication(strategy);
    if (call->timeout_ns > 0)
        options.timeout_ns = call->timeout_ns;
    if (call->bytes_per_pack > 0)
        options.bytes_per_pack = call->bytes_per_pack;
    return muster_strategy_all_reduce_with(strategy, call->tensors, call->count, call->reduction,
                                           &options);
}

static PyObject *strategy_all_reduce(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords)
{
    static const char *const names[] = {"tensors",        "op", "dtype", "timeout",
                                        "bytes_per_pack", NULL};
    PyObject *values[5];
    struct call call = {.run = run_all_reduce};
    struct muster_py_tensors tensors;
    const char *dtype;

    if (!muster_py_read_arguments("all_reduce", names, 1, args, count, keywords, values) ||
        !muster_py_read_reduction(values[1], &call.reduction) ||
        !muster_py_read_text(values[2], &dtype) ||
        !muster_py_read_seconds(values[3], &call.timeout_ns) ||
        !muster_py_read_number(values[4], 0, SIZE_MAX, &call.bytes_per_pack) ||
        !muster_py_tensors_open(&tensors, values[0], dtype))
        return NULL;
    return run_tensors(strategy_of(self), &call, &tensors);
}

static enum muster_rc run_all_reduce_weighted(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_all_reduce_weighted(strategy, call->tensors, call->count, call->weight);
}

static PyObject *strategy_all_reduce_weighted(PyObject *self, PyObject *const *args,
                                              Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"tensors", "weight", "dtype", NULL};
    PyObject *values[3];
    struct call call = {.run = run_all_reduce_weighted};
    struct muster_py_tensors tensors;
    const char *dtype;

    if (!muster_py_read_arguments("all_reduce_weighted", names, 2, args, count, keywords, values) ||
        !muster_py_read_number(values[1], 0, UINT64_MAX, &call.weight) ||
        !muster_py_read_text(values[2], &dtype) ||
        !muster_py_tensors_open(&tensors, values[0], dtype))
        return NULL;
    return run_tensors(strategy_of(self), &call, &tensors);
}

static enum muster_rc run_broadcast(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_broadcast(strategy, call->tensors, call->root);
}

static enum muster_rc run_reduce(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_reduce(strategy, call->tensors, call->reduction, call->root);
}

static PyObject *strategy_broadcast(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords)
{
    static const char *const names[] = {"tensor", "root", "dtype", NULL};
    PyObject *values[3];
    struct call call = {.run = run_broadcast};
    struct muster_py_tensors tensors;
    const char *dtype;
    uint64_t root;

    muster_py_tensors_init(&tensors);
    if (!muster_py_read_arguments("broadcast", names, 1, args, count, keywords, values) ||
        !muster_py_read_number(values[1], 0, UINT32_MAX, &root) ||
        !muster_py_read_text(values[2], &dtype) ||
        !muster_py_tensors_add(&tensors, values[0], dtype, true))
        return NULL;
    call.root = (uint32_t)root;
    return run_tensors(strategy_of(self), &call, &tensors);
}

static PyObject *strategy_reduce(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords)
{
    static const char *const names[] = {"tensor", "op", "root", "dtype", NULL};
    PyObject *values[4];
    struct call call = {.run = run_reduce};
    struct muster_py_tensors tensors;
    const char *dtype;
    uint64_t root;

    muster_py_tensors_init(&tensors);
    if (!muster_py_read_arguments("reduce", names, 1, args, count, keywords, values) ||
        !muster_py_read_reduction(values[1], &call.reduction) ||
        !muster_py_read_number(values[2], 0, UINT32_MAX, &root) ||
        !muster_py_read_text(values[3], &dtype) ||
        !muster_py_tensors_add(&tensors, values[0], dtype, true))
        return NULL;
    call.root = (uint32_t)root;
    return run_tensors(strategy_of(self), &call, &tensors);
}

static enum muster_rc run_all_gather(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_all_gather(strategy, &call->tensors[0], &call->tensors[1]);
}

static enum muster_rc run_all_to_all(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_all_to_all(strategy, &call->tensors[0], &call->tensors[1]);
}

static PyObject *run_exchange(PyObject *self, const char *name, struct call *call,
                              PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"input", "output", "dtype", NULL};
    PyObject *values[3];
    struct muster_py_tensors tensors;
    const char *dtype;

    muster_py_tensors_init(&tensors);
    if (!muster_py_read_arguments(name, names, 2, args, count, keywords, values) ||
        !muster_py_read_text(values[2], &dtype) ||
        !muster_py_tensors_add(&tensors, values[0], dtype, false))
        return NULL;
    if (!muster_py_tensors_add(&tensors, values[1], dtype, true)) {
        muster_py_tensors_close(&tensors);
        return NULL;
    }
    return run_tensors(strategy_of(self), call, &tensors);
}

static PyObject *strategy_all_gather(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords)
{
    struct call call = {.run = run_all_gather};

    return run_exchange(self, "all_gather", &call, args, count, keywords);
}

static PyObject *strategy_all_to_all(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords)
{
    struct call call = {.run = run_all_to_all};

    return run_exchange(self, "all_to_all", &call, args, count, keywords);
}

static enum muster_rc run_barrier(struct muster_strategy *strategy, struct call *call)
{
    (void)call;
    return muster_strategy_barrier(strategy);
}

static PyObject *strategy_barrier(PyObject *self, PyObject *unused)
{
    struct call call = {.run = run_barrier, .is_short = true};

    (void)unused;
    return run_call(strategy_of(self), &call);
}

static enum muster_rc run_check_health(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_check_health(strategy, call->timeout_ns);
}

static PyObject *strategy_check_health(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                       PyObject *keywords)
{
    static const char *const names[] = {"timeout", NULL};
    PyObject *values[1];
    struct call call = {.run = run_check_health};

    if (!muster_py_read_arguments("check_health", names, 0, args, count, keywords, values) ||
        !muster_py_read_seconds(values[0], &call.timeout_ns))
        return NULL;
    return run_call(strategy_of(self), &call);
}

/* --- Memory that the other processes of the host map --- */

static enum muster_rc run_tensor_new(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_tensor_new(strategy, call->tensors->dtype, call->tensors->count,
                                      call->tensors);
}

static PyObject *strategy_zeros(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *keywords)
{
    static const char *const names[] = {"count", "dtype", NULL};
    PyObject *values[2], *result;
    struct muster_tensor tensor = {.dtype = MUSTER_F32};
    struct call call = {.run = run_tensor_new, .tensors = &tensor};
    struct muster_py_memory *memory;

    if (!muster_py_read_arguments("zeros", names, 1, args, count, keywords, values) ||
        !muster_py_read_number(values[0], 0, SIZE_MAX, &tensor.count) ||
        !muster_py_read_dtype(values[1], &tensor.dtype))
        return NULL;
    memory = PyMem_Calloc(1, sizeof(*memory));
    if (memory == NULL)
        return PyErr_NoMemory();
    result = run_call(strategy_of(self), &call);
    if (result == NULL) {
        PyMem_Free(memory);
        return NULL;
    }
    Py_DECREF(result);
    memory->tensor = tensor;
    muster_list_append(&strategy_of(self)->tensors, &memory->node);
    result = muster_py_tensor_new(self, memory, on_unused);
    if (result == NULL)
        on_unused(self, memory);
    return result;
}

/* Views of them may outlive close. */
static void keep_tensors(struct strategy_object *self)
{
    MUSTER_LIST_EACH (&self->tensors, memory, struct muster_py_memory, node) {
        enum muster_rc rc =
            muster_strategy_tensor_keep(self->strategy, &memory->tensor, &memory->kept);

        (void)rc; /* no other thread is in: the lock is this one's */
    }
}

/* --- The step --- */

static enum muster_rc run_register(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_register(strategy, call->text, call->tensors);
}

/* The library writes to the buffer until close: it is kept from being resized or freed by a memoryview. */
static PyObject *strategy_register(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords)
{
    static const char *const names[] = {"name", "tensor", "dtype", NULL};
    PyObject *values[3], *view = NULL, *result = NULL;
    struct call call = {
        .run = run_register, .is_short = true, .invalid_argument = muster_py_state_mismatch};
    struct muster_py_tensors tensors;
    const char *dtype;

    muster_py_tensors_init(&tensors);
    if (!muster_py_read_arguments("register", names, 2, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &call.text) || !muster_py_read_text(values[2], &dtype))
        return NULL;
    if (call.text == NULL)
        return muster_py_raise(PyExc_TypeError, "a name must be a string, got None");
    view = PyMemoryView_FromObject(values[1]);
    if (view != NULL && muster_py_tensors_add(&tensors, view, dtype, true))
        result = run_tensors(strategy_of(self), &call, &tensors);
    /* The array stays where it is until close: its buffer is held, without memory for the list for ever. */
    if (result != NULL && PyList_Append(strategy_of(self)->held, view) != 0) {
        PyErr_Clear();
        Py_INCREF(view);
    }
    Py_XDECREF(view);
    return result;
}

static enum muster_rc run_begin(struct muster_strategy *strategy, struct call *call)
{
    struct strategy_object *self = call->data;

    return muster_strategy_begin(strategy, &self->step, &self->is_restored);
}

static PyObject *strategy_begin(PyObject *self, PyObject *unused)
{
    struct call call = {.run = run_begin,
                        .is_short = true,
                        .data = self,
                        .invalid_argument = muster_py_state_mismatch};
    PyObject *result = run_call(strategy_of(self), &call);

    (void)unused;
    if (result == NULL)
        return NULL;
    Py_DECREF(result);
    return PyLong_FromUnsignedLongLong(strategy_of(self)->step);
}

static enum muster_rc run_commit(struct muster_strategy *strategy, struct call *call)
{
    (void)call;
    return muster_strategy_commit(strategy);
}

static PyObject *strategy_commit(PyObject *self, PyObject *unused)
{
    struct call call = {.run = run_commit, .is_short = true};

    (void)unused;
    return run_call(strategy_of(self), &call);
}

static enum muster_rc run_report(struct muster_strategy *strategy, struct call *call)
{
    muster_strategy_report(strategy, call->text, *(double *)call->data);
    return MUSTER_OK;
}

static enum muster_rc run_report_result(struct muster_strategy *strategy, struct call *call)
{
    muster_strategy_report_result(strategy, call->text, *(double *)call->data);
    return MUSTER_OK;
}

static PyObject *report_value(PyObject *self, const char *name, struct call *call,
                              PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"name", "value", NULL};
    PyObject *values[2];
    double value;

    if (!muster_py_read_arguments(name, names, 2, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &call->text))
        return NULL;
    if (call->text == NULL)
        return muster_py_raise(PyExc_TypeError, "a name must be a string, got None");
    value = PyFloat_AsDouble(values[1]);
    if (PyErr_Occurred())
        return NULL;
    call->data = &value;
    call->is_short = true;
    return run_call(strategy_of(self), call);
}

static PyObject *strategy_report(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords)
{
    struct call call = {.run = run_report};

    return report_value(self, "report", &call, args, count, keywords);
}

static PyObject *strategy_report_result(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                        PyObject *keywords)
{
    struct call call = {.run = run_report_result};

    return report_value(self, "report_result", &call, args, count, keywords);
}

/* --- Checkpoints, preemption --- */

static enum muster_rc run_checkpoint(struct muster_strategy *strategy, struct call *call)
{
    const struct muster_strategy_checkpoint_options *options = call->data;

    return muster_strategy_checkpoint_start(strategy, options);
}

static PyObject *strategy_checkpoint(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords)
{
    static const char *const names[] = {"folder", "keep", "timeout", NULL};
    PyObject *values[3];
    struct muster_strategy_checkpoint_options options = {0};
    struct call call = {.run = run_checkpoint, .data = &options};
    uint64_t keep;

    if (!muster_py_read_arguments("checkpoint", names, 1, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &options.folder) ||
        !muster_py_read_number(values[1], 0, UINT32_MAX, &keep) ||
        !muster_py_read_seconds(values[2], &options.timeout_ns))
        return NULL;
    options.keep_count = (uint32_t)keep;
    return run_call(strategy_of(self), &call);
}

static enum muster_rc run_checkpoint_wait(struct muster_strategy *strategy, struct call *call)
{
    (void)call;
    return muster_strategy_checkpoint_wait(strategy);
}

static PyObject *strategy_checkpoint_wait(PyObject *self, PyObject *unused)
{
    struct call call = {.run = run_checkpoint_wait};

    (void)unused;
    return run_call(strategy_of(self), &call);
}

static enum muster_rc run_restore(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_restore(strategy, call->text);
}

static PyObject *strategy_restore(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords)
{
    static const char *const names[] = {"folder", NULL};
    PyObject *values[1];
    struct call call = {.run = run_restore, .is_short = true};

    if (!muster_py_read_arguments("restore", names, 1, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &call.text))
        return NULL;
    if (call.text == NULL)
        return muster_py_raise(PyExc_TypeError, "a folder must be a string, got None");
    return run_call(strategy_of(self), &call);
}

static enum muster_rc run_preempt(struct muster_strategy *strategy, struct call *call)
{
    return muster_strategy_preempt(strategy, call->text);
}

static PyObject *strategy_preempt(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords)
{
    static const char *const names[] = {"cause", NULL};
    PyObject *values[1];
    struct call call = {.run = run_preempt, .is_short = true};

    if (!muster_py_read_arguments("preempt", names, 0, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &call.text))
        return NULL;
    return run_call(strategy_of(self), &call);
}

/* --- Open, and the ends --- */

static enum muster_rc run_abandon(struct muster_strategy *strategy, struct call *call)
{
    muster_strategy_abandon(strategy, call->text);
    return MUSTER_OK;
}

static PyObject *strategy_abandon(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords)
{
    static const char *const names[] = {"text", NULL};
    PyObject *values[1];
    struct call call = {.run = run_abandon};

    if (!muster_py_read_arguments("abandon", names, 0, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &call.text))
        return NULL;
    return run_call(strategy_of(self), &call);
}

static PyObject *strategy_close(PyObject *self, PyObject *unused)
{
    struct strategy_object *ours = strategy_of(self);
    struct muster_strategy *strategy;

    (void)unused;
    if (ours->fork_count != fork_count) /* all of it is the parent's */
        Py_RETURN_NONE;
    if (!lock_call(ours))
        return NULL;
    strategy = ours->strategy;
    if (strategy != NULL) {
        free_unused(ours);
        keep_tensors(ours);
        Py_BEGIN_ALLOW_THREADS;
        muster_strategy_close(strategy);
        Py_END_ALLOW_THREADS;
        ours->strategy = NULL;
        Py_CLEAR(ours->held);
    }
    unlock_call(ours);
    if (strategy != NULL)
        Py_DECREF(self); /* the module's */
    Py_RETURN_NONE;
}

static bool read_options(PyObject *args, PyObject *keywords,
                         struct muster_strategy_options *ret_options)
{
    static const char *const names[] = {"resolver",      "registry",     "job",        "op_timeout",
                                        "start_timeout", "reproducible", "fixed_size", NULL};
    PyObject *op_timeout = NULL, *start_timeout = NULL;
    int is_reproducible = 0, is_fixed_size = 0;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$zzzOOpp:Strategy",
                                     (char **)(uintptr_t)names, &ret_options->resolver,
                                     &ret_options->registry, &ret_options->job, &op_timeout,
                                     &start_timeout, &is_reproducible, &is_fixed_size))
        return false;
    ret_options->is_reproducible = is_reproducible != 0;
    ret_options->is_fixed_size = is_fixed_size != 0;
    return muster_py_read_seconds(op_timeout, &ret_options->op_timeout_ns) &&
           muster_py_read_seconds(start_timeout, &ret_options->start_timeout_ns);
}

static PyObject *strategy_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    struct muster_strategy_options options = {0};
    struct strategy_object *self;
    struct muster_error error;
    enum muster_rc rc;

    if (!read_options(args, keywords, &options))
        return NULL;
    self = (struct strategy_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->fork_count = fork_count;
    muster_list_init(&self->tensors);
    muster_list_init(&self->unused);
    self->held = PyList_New(0);
    self->lock = PyThread_allocate_lock();
    if (self->held == NULL || self->lock == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS;
    rc = muster_strategy_open(&options, &self->strategy, &error);
    Py_END_ALLOW_THREADS;
    if (rc != MUSTER_OK) {
        Py_DECREF(self);
        return muster_py_raise_error(&error, NULL);
    }
    muster_strategy_set_interrupt(self->strategy, on_wait, self);
    Py_INCREF((PyObject *)self); /* the module's, until close */
    return (PyObject *)self;
}

static void strategy_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_CLEAR(strategy_of(self)->held);
    if (strategy_of(self)->lock != NULL)
        PyThread_free_lock(strategy_of(self)->lock);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- Attributes --- */

/* Read without the lock: the library keeps a copy for the program, which changes in begin. */
static PyObject *get_number(PyObject *self, uint64_t (*get)(const struct muster_strategy *strategy))
{
    struct strategy_object *ours = strategy_of(self);
    uint64_t number;

    if (!enter_strategy(ours))
        return NULL;
    number = get(ours->strategy);
    unlock_call(ours);
    return PyLong_FromUnsignedLongLong(number);
}

#define NUMBER(name, expression)                                                                   \
    static uint64_t name##_of(const struct muster_strategy *strategy)                              \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    static PyObject *strategy_get_##name(PyObject *self, void *unused)                             \
    {                                                                                              \
        (void)unused;                                                                              \
        return get_number(self, name##_of);                                                        \
    }
NUMBER(rank, muster_strategy_rank(strategy))
NUMBER(size, muster_strategy_size(strategy))
NUMBER(view, muster_strategy_epoch(strategy))
NUMBER(task, muster_strategy_task_index(strategy))
NUMBER(contributors, muster_strategy_contributors(strategy))
NUMBER(total_weight, muster_strategy_result(strategy)->total_weight)

static PyObject *strategy_get_task_type(PyObject *self, void *unused)
{
    struct strategy_object *ours = strategy_of(self);
    PyObject *text;

    (void)unused;
    if (!enter_strategy(ours))
        return NULL;
    text = PyUnicode_FromString(muster_strategy_task_type(ours->strategy));
    unlock_call(ours);
    return text;
}

static PyObject *strategy_get_digest(PyObject *self, void *unused)
{
    struct strategy_object *ours = strategy_of(self);
    char text[MUSTER_DIGEST_TEXT_BYTES];

    (void)unused;
    if (!enter_strategy(ours))
        return NULL;
    muster_strategy_state_digest(ours->strategy, text);
    unlock_call(ours);
    return PyUnicode_FromString(text);
}

static PyObject *strategy_get_preempted(PyObject *self, void *unused)
{
    struct strategy_object *ours = strategy_of(self);
    bool is_preempted;

    (void)unused;
    if (!enter_strategy(ours))
        return NULL;
    is_preempted = muster_strategy_is_preempted(ours->strategy);
    unlock_call(ours);
    return PyBool_FromLong(is_preempted);
}

static PyObject *strategy_get_step(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(strategy_of(self)->step);
}

static PyObject *strategy_get_restored(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(strategy_of(self)->is_restored);
}

static PyObject *strategy_get_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(strategy_of(self)->strategy == NULL);
}

/* --- The types and the module --- */

#define FAST(function) ((PyCFunction)(void (*)(void))(function))
#define SLOT(function) ((void *)(uintptr_t)(function))

static PyMethodDef strategy_methods[] = {
    {"register", FAST(strategy_register), METH_FASTCALL | METH_KEYWORDS,
     "register(name, tensor, dtype=None)\n--\n\nName an array that is part of the training state, "
     "before the first begin."},
    {"zeros", FAST(strategy_zeros), METH_FASTCALL | METH_KEYWORDS,
     "zeros(count, dtype='f32')\n--\n\nA Tensor that the other processes of the host map: "
     "operations on it copy nothing."},
    {"begin", strategy_begin, METH_NOARGS,
     "begin()\n--\n\nBegin the next step, and return its number: waits for the others, and in a "
     "joiner for their state."},
    {"all_reduce", FAST(strategy_all_reduce), METH_FASTCALL | METH_KEYWORDS,
     "all_reduce(tensors, op='sum', dtype=None, timeout=None, bytes_per_pack=0)\n--\n\n"
     "Reduce an array, or each of a list of them, over all members, in place."},
    {"all_reduce_weighted", FAST(strategy_all_reduce_weighted), METH_FASTCALL | METH_KEYWORDS,
     "all_reduce_weighted(tensors, weight, dtype=None)\n--\n\nThe mean by weight (this member's "
     "examples, for one), in place."},
    {"broadcast", FAST(strategy_broadcast), METH_FASTCALL | METH_KEYWORDS,
     "broadcast(tensor, root=0, dtype=None)\n--\n\nThe array of rank root to all."},
    {"reduce", FAST(strategy_reduce), METH_FASTCALL | METH_KEYWORDS,
     "reduce(tensor, op='sum', root=0, dtype=None)\n--\n\nThe reduction of all members' arrays in "
     "that of rank root."},
    {"all_gather", FAST(strategy_all_gather), METH_FASTCALL | METH_KEYWORDS,
     "all_gather(input, output, dtype=None)\n--\n\nPart r of output is rank r's input."},
    {"all_to_all", FAST(strategy_all_to_all), METH_FASTCALL | METH_KEYWORDS,
     "all_to_all(input, output, dtype=None)\n--\n\nPart s of rank r's output is part r of rank s's "
     "input."},
    {"barrier", strategy_barrier, METH_NOARGS,
     "barrier()\n--\n\nReturns when all members have called it."},
    {"check_health", FAST(strategy_check_health), METH_FASTCALL | METH_KEYWORDS,
     "check_health(timeout=None)\n--\n\nUnavailable, with their names, if members do not answer."},
    {"commit", strategy_commit, METH_NOARGS,
     "commit()\n--\n\nThe registered arrays are now the state after this step."},
    {"checkpoint", FAST(strategy_checkpoint), METH_FASTCALL | METH_KEYWORDS,
     "checkpoint(folder, keep=0, timeout=None)\n--\n\nAll members begin to write the state of the "
     "last commit. Between begin and the "
     "first change of a registered array."},
    {"checkpoint_wait", strategy_checkpoint_wait, METH_NOARGS,
     "checkpoint_wait()\n--\n\nWait until the last checkpoint is whole, or has failed."},
    {"restore", FAST(strategy_restore), METH_FASTCALL | METH_KEYWORDS,
     "restore(folder)\n--\n\nA new job begins with the newest whole checkpoint there. Before the "
     "first begin, on all members."},
    {"preempt", FAST(strategy_preempt), METH_FASTCALL | METH_KEYWORDS,
     "preempt(cause=None)\n--\n\nAsk all members to stop behind one step, because this machine "
     "will be taken away."},
    {"report", FAST(strategy_report), METH_FASTCALL | METH_KEYWORDS,
     "report(name, value)\n--\n\nA number for the launcher's progress line, with the next commit."},
    {"report_result", FAST(strategy_report_result), METH_FASTCALL | METH_KEYWORDS,
     "report_result(name, value)\n--\n\nA number for the launcher's summary."},
    {"abandon", FAST(strategy_abandon), METH_FASTCALL | METH_KEYWORDS,
     "abandon(text=None)\n--\n\nSay that this process cannot go on: the others do, and muster run "
     "starts it again. Only close is left."},
    {"close", strategy_close, METH_NOARGS,
     "close()\n--\n\nLeave. Behind commit the work is done; in the middle of a step it is a "
     "failure."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef strategy_attributes[] = {
    {"rank", strategy_get_rank, NULL, "The place of this member, from begin to commit.", NULL},
    {"size", strategy_get_size, NULL, "How many members take part, from begin to commit.", NULL},
    {"view", strategy_get_view, NULL, "The number of the view that rank and size are of.", NULL},
    {"task", strategy_get_task, NULL, "The index of this task, which never changes.", NULL},
    {"task_type", strategy_get_task_type, NULL, "'worker', 'chief' or 'evaluator'.", NULL},
    {"contributors", strategy_get_contributors, NULL,
     "Members that contributed to the last operation.", NULL},
    {"total_weight", strategy_get_total_weight, NULL,
     "The sum of all weights of the last weighted mean.", NULL},
    {"digest", strategy_get_digest, NULL,
     "16 hexadecimal digits of the hash of all registered arrays.", NULL},
    {"preempted", strategy_get_preempted, NULL,
     "Whether the job stops: begin raises Cancelled behind its last step.", NULL},
    {"step", strategy_get_step, NULL, "The step that was begun last; 0 before the first begin.",
     NULL},
    {"restored", strategy_get_restored, NULL, "Whether begin has replaced the registered arrays.",
     NULL},
    {"closed", strategy_get_closed, NULL, "Whether close has been called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot strategy_slots[] = {
    {Py_tp_new, SLOT(strategy_new)},
    {Py_tp_dealloc, SLOT(strategy_dealloc)},
    {Py_tp_methods, strategy_methods},
    {Py_tp_getset, strategy_attributes},
    {Py_tp_doc, SLOT("A member of a training job: see muster.Strategy.")},
    {0, NULL},
};

static PyType_Spec strategy_spec = {
    .name = "muster._muster.Strategy",
    .basicsize = sizeof(struct strategy_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = strategy_slots,
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "muster._muster",
    .m_doc = "The C part of the package muster.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__muster(void);
PyMODINIT_FUNC PyInit__muster(void)
{
    static bool is_watching_forks;
    PyObject *module = PyModule_Create(&module_def);
    PyObject *type = NULL;

    if (module == NULL)
        return NULL;
    if (!is_watching_forks)
        is_watching_forks = pthread_atfork(NULL, NULL, on_fork) == 0;
    type = PyType_FromSpec(&strategy_spec);
    if (type == NULL || !muster_py_add_errors(module) || !muster_py_add_tensor(module) ||
        PyModule_AddObjectRef(module, "Strategy", type) != 0 ||
        PyModule_AddStringConstant(module, "__version__", MUSTER_VERSION) != 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
