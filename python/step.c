/* The step of a strategy: its state, begin and commit, what is reported, checkpoints, preemption. */
#include "python/cuda_array.h"
#include "python/strategy.h"

#include <muster/strategy_blob.h>
#include <muster/strategy_checkpoint.h>
#include <muster/strategy_preemption.h>

static enum muster_rc run_register(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return muster_strategy_register(strategy, call->text, call->tensors);
}

/* The array stays where it is until close: its buffer is held, without memory for the list for ever. */
static void hold_view(struct muster_py_strategy *self, struct muster_py_call *call)
{
    PyObject *view = call->data;

    if (PyList_Append(self->held, view) != 0) {
        PyErr_Clear();
        Py_INCREF(view);
    }
}

/* The library writes to the buffer until close: it is kept from being resized or freed by a memoryview. */
PyObject *muster_py_strategy_register(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                      PyObject *keywords)
{
    static const char *const names[] = {"name", "tensor", "dtype", NULL};
    PyObject *values[3], *view = NULL, *result = NULL;
    struct muster_py_call call = {.run = run_register,
                                  .settle = hold_view,
                                  .is_short = true,
                                  .invalid_argument = muster_py_state_mismatch};
    struct muster_py_tensors tensors;
    const char *dtype;

    muster_py_tensors_init(&tensors);
    tensors.takes_device = true;
    if (!muster_py_read_arguments("register", names, 2, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &call.text) || !muster_py_read_text(values[2], &dtype))
        return NULL;
    if (call.text == NULL)
        return muster_py_raise(PyExc_TypeError, "a name must be a string, got None");
    if (!PyObject_CheckBuffer(values[1]) && muster_py_is_cuda_array(values[1]))
        view = Py_NewRef(values[1]);
    else if (muster_py_check_array(values[1]))
        view = PyMemoryView_FromObject(values[1]);
    call.data = view;
    if (view != NULL && muster_py_tensors_add(&tensors, view, dtype, true))
        result = muster_py_call_run_tensors(muster_py_strategy_of(self), &call, &tensors);
    Py_XDECREF(view);
    return result;
}

static enum muster_rc run_set_stream(struct muster_strategy *strategy, struct muster_py_call *call)
{
    muster_strategy_set_stream(strategy, call->data);
    return MUSTER_OK;
}

PyObject *muster_py_strategy_set_stream(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                        PyObject *keywords)
{
    static const char *const names[] = {"stream", NULL};
    struct muster_py_call call = {.run = run_set_stream, .is_short = true};
    PyObject *values[1];
    uint64_t stream;

    if (!muster_py_read_arguments("set_stream", names, 1, args, count, keywords, values) ||
        !muster_py_read_number(values[0], 0, UINT64_MAX, &stream))
        return NULL;
    call.data = (void *)(uintptr_t)stream;
    return muster_py_call_run(muster_py_strategy_of(self), &call);
}

/* --- Blobs --- */

struct blob {
    const void *bytes;
    size_t size;
    PyObject *copy; /* of what the library has until the next commit */
};

static enum muster_rc run_register_blob(struct muster_strategy *strategy,
                                        struct muster_py_call *call)
{
    return muster_strategy_register_blob(strategy, call->text);
}

static enum muster_rc run_set_blob(struct muster_strategy *strategy, struct muster_py_call *call)
{
    const struct blob *blob = call->data;

    return muster_strategy_set_blob(strategy, call->text, blob->bytes, blob->size);
}

static enum muster_rc run_blob(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct blob *blob = call->data;

    return muster_strategy_blob(strategy, call->text, &blob->bytes, &blob->size);
}

static void copy_blob(struct muster_py_strategy *self, struct muster_py_call *call)
{
    struct blob *blob = call->data;

    (void)self;
    blob->copy =
        PyBytes_FromStringAndSize(blob->size > 0 ? blob->bytes : "", (Py_ssize_t)blob->size);
}

static bool read_name(PyObject *value, struct muster_py_call *call)
{
    if (!muster_py_read_text(value, &call->text))
        return false;
    return call->text != NULL ||
           muster_py_raise(PyExc_TypeError, "a name must be a string, got None") != NULL;
}

PyObject *muster_py_strategy_register_blob(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                           PyObject *keywords)
{
    static const char *const names[] = {"name", NULL};
    PyObject *values[1];
    struct muster_py_call call = {.run = run_register_blob, .is_short = true};

    if (!muster_py_read_arguments("register_blob", names, 1, args, count, keywords, values) ||
        !read_name(values[0], &call))
        return NULL;
    return muster_py_call_run(muster_py_strategy_of(self), &call);
}

PyObject *muster_py_strategy_set_blob(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                      PyObject *keywords)
{
    static const char *const names[] = {"name", "value", NULL};
    PyObject *values[2], *result;
    struct blob blob;
    struct muster_py_call call = {.run = run_set_blob, .is_short = true, .data = &blob};
    Py_buffer buffer;

    if (!muster_py_read_arguments("set_blob", names, 2, args, count, keywords, values) ||
        !read_name(values[0], &call) || PyObject_GetBuffer(values[1], &buffer, PyBUF_SIMPLE) != 0)
        return NULL;
    blob = (struct blob){.bytes = buffer.buf, .size = (size_t)buffer.len};
    result = muster_py_call_run(muster_py_strategy_of(self), &call);
    PyBuffer_Release(&buffer);
    return result;
}

PyObject *muster_py_strategy_blob(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords)
{
    static const char *const names[] = {"name", NULL};
    PyObject *values[1], *result;
    struct blob blob = {.bytes = NULL};
    struct muster_py_call call = {
        .run = run_blob, .settle = copy_blob, .is_short = true, .data = &blob};

    if (!muster_py_read_arguments("blob", names, 1, args, count, keywords, values) ||
        !read_name(values[0], &call))
        return NULL;
    result = muster_py_call_run(muster_py_strategy_of(self), &call);
    if (result == NULL) {
        Py_XDECREF(blob.copy);
        return NULL;
    }
    Py_DECREF(result);
    return blob.copy;
}

/* --- The step --- */

/* A begin, and its answer. */
struct begin {
    struct muster_py_strategy *self;
    uint64_t last_step, step;
    bool is_done; /* all steps up to it are committed, and this member has the state */
};

static enum muster_rc run_begin(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct begin *begin = call->data;
    struct muster_py_strategy *self = begin->self;
    bool is_restored = false;
    enum muster_rc rc =
        muster_strategy_begin_until(strategy, begin->last_step, &begin->step, &is_restored);

    if (rc == MUSTER_OK) {
        atomic_store_explicit(&self->step, begin->step, memory_order_relaxed);
        atomic_store_explicit(&self->is_restored, is_restored, memory_order_relaxed);
        atomic_store_explicit(&self->is_aborted, false, memory_order_relaxed);
    }
    begin->is_done =
        rc == MUSTER_OUT_OF_RANGE && muster_strategy_rank(strategy) != MUSTER_RANK_NOBODY;
    self->is_done = begin->is_done;
    return begin->is_done ? MUSTER_OK : rc;
}

PyObject *muster_py_strategy_begin(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords)
{
    static const char *const names[] = {"until", NULL};
    struct begin begin = {.self = muster_py_strategy_of(self), .last_step = UINT64_MAX};
    /* States are compared before the first step; later it is an operation that was skipped. */
    struct muster_py_call call = {.run = run_begin,
                                  .is_short = true,
                                  .data = &begin,
                                  .invalid_argument = muster_py_step_of(begin.self) == 0
                                                          ? muster_py_state_mismatch
                                                          : muster_py_mismatch};
    PyObject *values[1], *result;

    if (!muster_py_read_arguments("begin", names, 0, args, count, keywords, values) ||
        !muster_py_read_number(values[0], UINT64_MAX, UINT64_MAX, &begin.last_step))
        return NULL;
    result = muster_py_call_run(begin.self, &call);
    if (result == NULL || begin.is_done)
        return result;
    Py_DECREF(result);
    return PyLong_FromUnsignedLongLong(begin.step);
}

static enum muster_rc run_commit(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct muster_py_strategy *self = call->data;
    enum muster_rc rc = muster_strategy_commit(strategy);

    self->is_done = rc == MUSTER_OK;
    return rc;
}

PyObject *muster_py_strategy_commit(PyObject *self, PyObject *unused)
{
    struct muster_py_strategy *ours = muster_py_strategy_of(self);
    struct muster_py_call call = {.run = run_commit, .is_short = true, .data = ours};

    (void)unused;
    return muster_py_call_run(ours, &call);
}

static enum muster_rc run_report(struct muster_strategy *strategy, struct muster_py_call *call)
{
    muster_strategy_report(strategy, call->text, *(double *)call->data);
    return MUSTER_OK;
}

static enum muster_rc run_report_result(struct muster_strategy *strategy,
                                        struct muster_py_call *call)
{
    muster_strategy_report_result(strategy, call->text, *(double *)call->data);
    return MUSTER_OK;
}

static PyObject *report_value(PyObject *self, const char *name, struct muster_py_call *call,
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
    return muster_py_call_run(muster_py_strategy_of(self), call);
}

PyObject *muster_py_strategy_report(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords)
{
    struct muster_py_call call = {.run = run_report};

    return report_value(self, "report", &call, args, count, keywords);
}

PyObject *muster_py_strategy_report_result(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                           PyObject *keywords)
{
    struct muster_py_call call = {.run = run_report_result};

    return report_value(self, "report_result", &call, args, count, keywords);
}

/* --- Checkpoints, preemption --- */

static enum muster_rc run_checkpoint(struct muster_strategy *strategy, struct muster_py_call *call)
{
    const struct muster_strategy_checkpoint_options *options = call->data;

    return muster_strategy_checkpoint_start(strategy, options);
}

PyObject *muster_py_strategy_checkpoint(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                        PyObject *keywords)
{
    static const char *const names[] = {"folder", "keep", "timeout", NULL};
    PyObject *values[3];
    struct muster_strategy_checkpoint_options options = {0};
    struct muster_py_call call = {.run = run_checkpoint, .data = &options};
    uint64_t keep;

    if (!muster_py_read_arguments("checkpoint", names, 1, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &options.folder) ||
        !muster_py_read_number(values[1], 0, UINT32_MAX, &keep) ||
        !muster_py_read_seconds(values[2], &options.timeout_ns))
        return NULL;
    options.keep_count = (uint32_t)keep;
    return muster_py_call_run(muster_py_strategy_of(self), &call);
}

static enum muster_rc run_checkpoint_wait(struct muster_strategy *strategy,
                                          struct muster_py_call *call)
{
    (void)call;
    return muster_strategy_checkpoint_wait(strategy);
}

PyObject *muster_py_strategy_checkpoint_wait(PyObject *self, PyObject *unused)
{
    struct muster_py_call call = {.run = run_checkpoint_wait};

    (void)unused;
    return muster_py_call_run(muster_py_strategy_of(self), &call);
}

static enum muster_rc run_restore(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return muster_strategy_restore(strategy, call->text);
}

PyObject *muster_py_strategy_restore(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords)
{
    static const char *const names[] = {"folder", NULL};
    PyObject *values[1];
    struct muster_py_call call = {.run = run_restore, .is_short = true};

    if (!muster_py_read_arguments("restore", names, 1, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &call.text))
        return NULL;
    if (call.text == NULL)
        return muster_py_raise(PyExc_TypeError, "a folder must be a string, got None");
    return muster_py_call_run(muster_py_strategy_of(self), &call);
}

static enum muster_rc run_preempt(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return muster_strategy_preempt(strategy, call->text);
}

/* Within the call of this thread that a signal has interrupted: the library lets the thread in once more. */
static PyObject *preempt_inside(struct muster_py_strategy *self, const char *cause)
{
    struct muster_error error;

    if (self->strategy == NULL)
        return muster_py_raise_closed();
    error.rc = muster_strategy_preempt(self->strategy, cause);
    if (error.rc == MUSTER_OK)
        Py_RETURN_NONE;
    error = *muster_strategy_error(self->strategy);
    return muster_py_raise_error(&error, NULL);
}

PyObject *muster_py_strategy_preempt(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords)
{
    static const char *const names[] = {"cause", NULL};
    PyObject *values[1];
    struct muster_py_strategy *ours = muster_py_strategy_of(self);
    struct muster_py_call call = {.run = run_preempt, .is_short = true};

    if (!muster_py_read_arguments("preempt", names, 0, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &call.text) || !muster_py_calls_check_fork(&ours->calls))
        return NULL;
    if (muster_py_calls_is_inside(&ours->calls))
        return preempt_inside(ours, call.text);
    return muster_py_call_run(ours, &call);
}
