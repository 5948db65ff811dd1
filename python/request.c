/* The type muster.Request: an operation that goes on while the program computes. The library holds a request, and with
 * it the buffers of its arrays, until it has been completed by wait, poll or close. */
#include "python/request.h"

#include <muster/strategy_request.h>

#include <stdatomic.h>
#include <string.h>

struct request_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_py_strategy *owner;
    struct muster_list node; /* in the owner's requests while it is open */
    bool is_held;            /* it was started: the library has a reference */
    /* It is the program's again, with its result. Written once, with release, within the owner's lock; read with
     * acquire. Until then `request` belongs to whoever has the lock. */
    atomic_bool is_completed;
    struct muster_request request;
    struct muster_py_tensors tensors;
    struct muster_py_counts counts;
    struct muster_parts input_parts, output_parts;
};

static PyTypeObject *request_type;

static struct request_object *request_of(PyObject *self)
{
    return (struct request_object *)self;
}

void muster_py_requests_take(struct muster_py_strategy *owner, struct muster_list *ret_completed)
{
    muster_list_init(ret_completed);
    MUSTER_LIST_EACH_SAFE (&owner->requests, ours, struct request_object, node) {
        if (ours->request.impl != NULL)
            continue;
        muster_list_remove(&ours->node);
        muster_list_append(ret_completed, &ours->node);
        atomic_store_explicit(&ours->is_completed, true, memory_order_release);
    }
}

void muster_py_requests_release(struct muster_list *completed)
{
    struct muster_list *node;

    while ((node = muster_list_pop(completed)) != NULL) {
        struct request_object *ours = MUSTER_CONTAINER_OF(node, struct request_object, node);

        muster_py_tensors_close(&ours->tensors);
        Py_DECREF((PyObject *)ours); /* the library's */
    }
}

static bool request_is_completed(const struct request_object *self)
{
    return atomic_load_explicit(&self->is_completed, memory_order_acquire);
}

static void request_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct request_object *ours = request_of(self);

    muster_py_counts_free(&ours->counts);
    Py_XDECREF((PyObject *)ours->owner);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- Starting --- */

static const char *const kind_names[] = {
    [MUSTER_REQUEST_ALL_REDUCE] = "all_reduce",
    [MUSTER_REQUEST_ALL_REDUCE_WEIGHTED] = "all_reduce_weighted",
    [MUSTER_REQUEST_BROADCAST] = "broadcast",
    [MUSTER_REQUEST_REDUCE] = "reduce",
    [MUSTER_REQUEST_BARRIER] = "barrier",
    [MUSTER_REQUEST_ALL_GATHER] = "all_gather",
    [MUSTER_REQUEST_ALL_TO_ALL] = "all_to_all",
    [MUSTER_REQUEST_REDUCE_SCATTER] = "reduce_scatter",
    [MUSTER_REQUEST_GATHER] = "gather",
    [MUSTER_REQUEST_SCATTER] = "scatter",
    [MUSTER_REQUEST_ALL_GATHER_UNEVEN] = "all_gather_uneven",
    [MUSTER_REQUEST_REDUCE_SCATTER_UNEVEN] = "reduce_scatter_uneven",
    [MUSTER_REQUEST_ALL_TO_ALL_UNEVEN] = "all_to_all_uneven",
    [MUSTER_REQUEST_SEND] = "send",
    [MUSTER_REQUEST_RECEIVE] = "receive",
};

static bool read_kind(PyObject *value, enum muster_request_kind *ret_kind)
{
    const char *text;

    if (!muster_py_read_text(value, &text))
        return false;
    for (size_t i = 0; text != NULL && i < sizeof(kind_names) / sizeof(kind_names[0]); i++)
        if (strcmp(kind_names[i], text) == 0) {
            *ret_kind = (enum muster_request_kind)i;
            return true;
        }
    return PyErr_Format(PyExc_ValueError, "kind must be the name of an operation, got %R", value) !=
           NULL;
}

/* The arrays, in the order input, output; and the counts that belong to them. */
static bool open_arrays(struct request_object *ours, PyObject *input, PyObject *output,
                        const char *dtype)
{
    struct muster_request *request = &ours->request;

    if (!muster_py_pair_open(&ours->tensors, input, output, dtype))
        return false;
    if (input != NULL)
        request->input = &ours->tensors.tensors[0];
    if (output != NULL)
        request->output = &ours->tensors.tensors[input != NULL ? 1 : 0];
    if ((request->input == NULL && ours->counts.of_input != NULL) ||
        (request->output == NULL && ours->counts.of_output != NULL) ||
        !muster_py_counts_fit(&ours->counts, request->input, request->output)) {
        muster_py_tensors_close(&ours->tensors);
        return PyErr_Occurred() == NULL &&
               muster_py_raise(PyExc_ValueError, "counts must be those of an array") != NULL;
    }
    ours->input_parts =
        muster_py_parts_of(request->input, ours->counts.of_input, ours->counts.count);
    ours->output_parts =
        muster_py_parts_of(request->output, ours->counts.of_output, ours->counts.output_count);
    request->input_parts = ours->counts.of_input != NULL ? &ours->input_parts : NULL;
    request->output_parts = ours->counts.of_output != NULL ? &ours->output_parts : NULL;
    return true;
}

static bool read_start(struct request_object *ours, PyObject *const *args, Py_ssize_t count,
                       PyObject *keywords)
{
    static const char *const names[] = {"kind",          "input",  "output",  "op",
                                        "rank",          "weight", "timeout", "input_counts",
                                        "output_counts", "dtype",  NULL};
    struct muster_request *request = &ours->request;
    PyObject *values[10];
    const char *dtype;
    uint64_t rank;

    if (!muster_py_read_arguments("start", names, 1, args, count, keywords, values) ||
        !read_kind(values[0], &request->kind) ||
        !muster_py_read_reduction(values[3] == Py_None ? NULL : values[3], &request->reduction) ||
        !muster_py_read_number(values[4], 0, UINT32_MAX, &rank) ||
        !muster_py_read_number(values[5], 0, UINT64_MAX, &request->weight) ||
        !muster_py_read_seconds(values[6], &request->timeout_ns) ||
        !muster_py_counts_read(&ours->counts, values[7], values[8]) ||
        !muster_py_read_text(values[9], &dtype))
        return false;
    request->rank = (uint32_t)rank;
    return open_arrays(ours, values[1] == Py_None ? NULL : values[1],
                       values[2] == Py_None ? NULL : values[2], dtype);
}

static enum muster_rc run_start(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct request_object *ours = call->data;

    return muster_request_start(&ours->request, strategy);
}

static void hold_request(struct muster_py_strategy *owner, struct muster_py_call *call)
{
    struct request_object *ours = call->data;

    Py_INCREF((PyObject *)ours); /* the library's */
    ours->is_held = true;
    muster_list_append(&owner->requests, &ours->node);
}

PyObject *muster_py_strategy_start(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords)
{
    PyObject *object = PyType_GenericAlloc(request_type, 0), *result;
    struct request_object *ours = object != NULL ? request_of(object) : NULL;
    struct muster_py_call call = {.run = run_start, .settle = hold_request, .is_short = true};
    struct muster_py_strategy *owner = muster_py_members_of(self, &call);

    if (ours == NULL)
        return NULL;
    ours->owner = (struct muster_py_strategy *)Py_NewRef((PyObject *)owner);
    ours->request.split = call.split;
    if (!read_start(ours, args, count, keywords)) {
        Py_DECREF(object);
        return NULL;
    }
    call.data = ours;
    call.opened = &ours->tensors;
    result = muster_py_call_run(owner, &call);
    if (result == NULL) {
        if (!ours->is_held) /* otherwise a handler of a signal has raised when it was started */
            muster_py_tensors_close(&ours->tensors);
        Py_DECREF(object);
        return NULL;
    }
    Py_DECREF(result);
    return object;
}

/* --- Completing --- */

/** One wait, or a poll: the request, or how many are open. */
struct completing {
    struct muster_request *request;
    bool is_run;
    size_t count;
    enum muster_rc rc;
    struct muster_error error;
};

static enum muster_rc run_wait(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct completing *completing = call->data;

    completing->is_run = true;
    completing->rc = muster_request_wait(completing->request);
    if (completing->rc != MUSTER_OK)
        completing->error = completing->rc == completing->request->error.rc
                                ? completing->request->error
                                : *muster_strategy_error(strategy);
    completing->error.rc = completing->rc;
    return MUSTER_OK;
}

static enum muster_rc run_poll(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct completing *completing = call->data;

    return muster_strategy_poll(strategy, &completing->count);
}

static PyObject *raise_completion(struct request_object *self, const struct completing *completing)
{
    if (completing->rc == MUSTER_ABORTED)
        atomic_store_explicit(&self->owner->is_aborted, true, memory_order_relaxed);
    if (completing->rc != MUSTER_OK)
        return muster_py_raise_error(&completing->error, muster_py_mismatch);
    Py_RETURN_NONE;
}

/* Runs the call unless another thread completes the request, or closes the strategy, before this one has the lock.
 * False: an exception is set. */
static bool run_unless_completed(struct request_object *self, struct muster_py_call *call)
{
    struct muster_py_strategy *owner = self->owner;
    bool is_right = true;

    if (!muster_py_calls_check_fork(&owner->calls) || !muster_py_calls_lock(&owner->calls))
        return false;
    if (!request_is_completed(self))
        is_right = owner->strategy != NULL ? muster_py_call_run_entered(owner, call)
                                           : muster_py_raise_closed() != NULL;
    muster_py_strategy_leave(owner);
    return is_right;
}

static PyObject *request_wait(PyObject *self, PyObject *unused)
{
    struct request_object *ours = request_of(self);
    struct completing completing = {.request = NULL};
    struct muster_py_call call = {.run = run_wait, .data = &completing};

    (void)unused;
    if (!request_is_completed(ours)) {
        completing.request = &ours->request;
        call.is_short = muster_request_has_ended(&ours->request);
        if (!run_unless_completed(ours, &call))
            return NULL;
    }
    if (!completing.is_run) { /* by another call */
        completing.rc = ours->request.error.rc;
        completing.error = ours->request.error;
    }
    return raise_completion(ours, &completing);
}

PyObject *muster_py_strategy_poll(PyObject *self, PyObject *unused)
{
    struct completing completing = {0};
    struct muster_py_call call = {.run = run_poll, .is_short = true, .data = &completing};
    PyObject *result = muster_py_call_run(muster_py_strategy_of(self), &call);

    (void)unused;
    if (result == NULL)
        return NULL;
    Py_DECREF(result);
    return PyLong_FromSize_t(completing.count);
}

static enum muster_rc run_cancel(struct muster_strategy *strategy, struct muster_py_call *call)
{
    (void)strategy;
    muster_request_cancel(call->data);
    return MUSTER_OK;
}

static PyObject *request_cancel(PyObject *self, PyObject *unused)
{
    struct request_object *ours = request_of(self);
    struct muster_py_call call = {.run = run_cancel, .is_short = true, .data = &ours->request};

    (void)unused;
    if (!request_is_completed(ours) && !run_unless_completed(ours, &call))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *request_get_done(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(muster_request_has_ended(&request_of(self)->request));
}

static PyObject *request_get_kind(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(kind_names[request_of(self)->request.kind]);
}

static PyObject *request_get_contributors(PyObject *self, void *unused)
{
    const struct request_object *ours = request_of(self);

    (void)unused;
    return PyLong_FromUnsignedLong(
        request_is_completed(ours) ? ours->request.result.contributor_count : 0);
}

/* --- The type --- */

static PyMethodDef request_methods[] = {
    {"wait", request_wait, METH_NOARGS,
     "wait()\n--\n\nWait until it has ended; raises what the blocking call would raise."},
    {"cancel", request_cancel, METH_NOARGS,
     "cancel()\n--\n\nIt ends with Cancelled here and with Aborted on the others, unless it was "
     "done before. wait is still needed."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef request_attributes[] = {
    {"done", request_get_done, NULL, "Whether it has ended: wait does not wait then.", NULL},
    {"kind", request_get_kind, NULL, "'all_reduce', 'send', …", NULL},
    {"contributors", request_get_contributors, NULL,
     "Members that contributed to it, once it has been waited for.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot request_slots[] = {
    {Py_tp_dealloc, MUSTER_PY_SLOT(request_dealloc)},
    {Py_tp_methods, request_methods},
    {Py_tp_getset, request_attributes},
    {Py_tp_doc,
     MUSTER_PY_SLOT("An operation that was started: strategy.start. Its arrays must not be used "
                    "until it is done.")},
    {0, NULL},
};

static PyType_Spec request_spec = MUSTER_PY_SPEC("muster.Request", struct request_object,
                                                 Py_TPFLAGS_DISALLOW_INSTANTIATION, request_slots);

bool muster_py_add_request(PyObject *module)
{
    return muster_py_add_type(module, &request_spec, &request_type);
}
