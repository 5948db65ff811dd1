/* The type muster.params.Request: a push, pull, tick or cut that goes on while the program computes. The library holds
 * a request, and with it the buffers of its arrays, until it has ended. Ends are told on the thread that drives the
 * loop. */
#include "python/params.h"

#include <stdatomic.h>
#include <string.h>

struct muster_py_params_request {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_py_params *owner; /* NULL: it was not started */
    struct muster_list node; /* in the owner's requests until it is let go; with its guard */
    struct muster_params_op op;
    struct muster_py_tensors tensors;
    bool is_cut;
    struct muster_params_cut cut;
    const char *kind;
    enum muster_rc rc; /* written before has_ended */
    /* Set by the loop's thread, with release, as the last thing that it does here; read with acquire. */
    atomic_bool has_ended;
};

static PyTypeObject *request_type;

static struct muster_py_params_request *request_of(PyObject *self)
{
    return (struct muster_py_params_request *)self;
}

static bool request_has_ended(const struct muster_py_params_request *self)
{
    return atomic_load_explicit(&self->has_ended, memory_order_acquire);
}

/* --- Starting --- */

struct muster_py_params_request *muster_py_params_request_new(const char *kind)
{
    PyObject *self = PyType_GenericAlloc(request_type, 0);

    if (self == NULL)
        return NULL;
    request_of(self)->kind = kind;
    muster_list_init(&request_of(self)->node);
    muster_py_tensors_init(&request_of(self)->tensors);
    return request_of(self);
}

struct muster_py_tensors *muster_py_params_request_tensors(struct muster_py_params_request *self)
{
    return &self->tensors;
}

struct muster_params_op *muster_py_params_request_op(struct muster_py_params_request *self)
{
    return &self->op;
}

void muster_py_params_on_request_done(struct muster_params_op *op, enum muster_rc rc)
{
    struct muster_py_params_request *self =
        MUSTER_CONTAINER_OF(op, struct muster_py_params_request, op);

    self->rc = rc;
    if (self->owner->awaited == self)
        muster_py_runtime_tell(&self->owner->runtime, rc);
    atomic_store_explicit(&self->has_ended, true, memory_order_release);
}

/* The loop may tell the end as soon as the call is left. */
void muster_py_params_request_own(struct muster_py_params_request *self,
                                  struct muster_py_params *owner)
{
    self->owner = (struct muster_py_params *)Py_NewRef((PyObject *)owner);
}

/* Within the lock, so that a close which comes next finds it. */
PyObject *muster_py_params_request_leave(struct muster_py_params_request *self, enum muster_rc rc)
{
    struct muster_py_calls *calls = &self->owner->runtime.calls;

    muster_py_runtime_pause(&self->owner->runtime);
    if (rc == MUSTER_OK) {
        Py_INCREF((PyObject *)self); /* the library's */
        muster_py_calls_guard(calls);
        muster_list_append(&self->owner->requests, &self->node);
        muster_py_calls_unguard(calls);
    }
    muster_py_calls_unlock(calls);
    return rc == MUSTER_OK ? (PyObject *)self : muster_py_params_result(&self->op, rc);
}

/* One that has left the list. Letting go of its arrays may run code of the program. */
static void request_release(struct muster_py_params_request *self)
{
    muster_py_tensors_close(&self->tensors);
    muster_py_tensors_init(&self->tensors);
    Py_DECREF((PyObject *)self); /* the library's */
}

/* The first that has ended, taken out of the list, or NULL. */
static struct muster_py_params_request *take_ended(struct muster_py_params *owner)
{
    struct muster_py_params_request *ended = NULL;

    muster_py_calls_guard(&owner->runtime.calls);
    MUSTER_LIST_EACH (&owner->requests, each, struct muster_py_params_request, node) {
        if (request_has_ended(each)) {
            ended = each;
            break;
        }
    }
    if (ended != NULL)
        muster_list_remove(&ended->node);
    muster_py_calls_unguard(&owner->runtime.calls);
    return ended;
}

/* Code of the program starts others: the list is looked at anew each time. */
void muster_py_params_requests_release(struct muster_py_params *owner)
{
    struct muster_py_params_request *ended;

    while ((ended = take_ended(owner)) != NULL)
        request_release(ended);
}

static void request_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct muster_py_params_request *ours = request_of(self);

    muster_py_tensors_close(&ours->tensors);
    Py_XDECREF((PyObject *)ours->owner);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- What a client does for all tables --- */

/** The arguments of start, by their places. */
enum { KIND, FOLDER, CLOCK, WEIGHT, TIMEOUT, ARGUMENTS };

struct client_call {
    bool is_cut;
    const char *folder;
    uint64_t clock, timeout_ns;
    double weight;
};

static bool read_start(PyObject *const *values, struct client_call *call)
{
    const char *kind;

    if (!muster_py_read_text(values[KIND], &kind) ||
        !muster_py_read_text(values[FOLDER], &call->folder) ||
        !muster_py_read_number(values[CLOCK], 0, UINT64_MAX, &call->clock) ||
        !muster_py_read_patience(values[TIMEOUT], &call->timeout_ns))
        return false;
    call->weight = 1;
    if (values[WEIGHT] != NULL && values[WEIGHT] != Py_None)
        call->weight = PyFloat_AsDouble(values[WEIGHT]);
    if (PyErr_Occurred())
        return false;
    call->is_cut = kind != NULL && strcmp(kind, "cut") == 0;
    if (!call->is_cut && (kind == NULL || strcmp(kind, "tick") != 0))
        return PyErr_Format(PyExc_ValueError, "kind must be tick or cut, got %R", values[KIND]) !=
               NULL;
    if (call->is_cut && call->folder == NULL)
        return muster_py_raise(PyExc_TypeError, "a cut needs a folder: give folder=") != NULL;
    return true;
}

/* Within a call. */
static enum muster_rc start_entered(struct muster_py_params_request *self,
                                    const struct client_call *call)
{
    struct muster_py_params *owner = self->owner;
    uint64_t deadline_ns = muster_py_runtime_deadline(&owner->runtime, call->timeout_ns);
    enum muster_rc rc;

    if (call->is_cut)
        return muster_params_cut_at_start(&self->op, owner->params, call->folder, call->clock,
                                          &self->cut, deadline_ns,
                                          muster_py_params_on_request_done);
    rc = muster_params_tick_weighted_start(&self->op, owner->params, call->clock, call->weight,
                                           deadline_ns, muster_py_params_on_request_done);
    if (rc == MUSTER_OK)
        owner->clock = call->clock;
    return rc;
}

static PyObject *request_start(struct muster_py_params_request *self,
                               const struct client_call *call)
{
    self->is_cut = call->is_cut;
    if (!muster_py_runtime_enter(&self->owner->runtime, true))
        return NULL;
    return muster_py_params_request_leave(self, start_entered(self, call));
}

PyObject *muster_py_params_start(PyObject *client, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords)
{
    static const char *const names[] = {"kind", "folder", "clock", "weight", "timeout", NULL};
    struct muster_py_params *owner = (struct muster_py_params *)client;
    struct muster_py_params_request *self;
    struct client_call call;
    PyObject *values[ARGUMENTS], *result;

    if (!muster_py_read_arguments("start", names, 1, args, count, keywords, values) ||
        !read_start(values, &call))
        return NULL;
    muster_py_params_requests_release(owner);
    self = muster_py_params_request_new(call.is_cut ? "cut" : "tick");
    if (self == NULL)
        return NULL;
    muster_py_params_request_own(self, owner);
    result = request_start(self, &call);
    if (result == NULL)
        Py_DECREF((PyObject *)self);
    return result;
}

/* --- Ending --- */

static void cancel_request(void *data)
{
    struct muster_py_params_request *self = data;

    muster_params_op_cancel(&self->op);
}

/* Within a call. */
static void end_wait(struct muster_py_params_request *self)
{
    struct muster_py_params *owner = self->owner;

    if (request_has_ended(self))
        return;
    muster_py_runtime_expect(&owner->runtime);
    owner->awaited = self;
    (void)muster_py_runtime_wait(&owner->runtime, cancel_request, self);
    owner->awaited = NULL;
}

/* False: it has ended, perhaps by the client's close in another thread; or an exception is set. */
static bool enter_unless_ended(struct muster_py_params_request *self)
{
    if (request_has_ended(self))
        return false;
    if (muster_py_runtime_enter(&self->owner->runtime, true))
        return true;
    if (request_has_ended(self) &&
        PyErr_ExceptionMatches(muster_py_error_classes[MUSTER_FAILED_PRECONDITION]))
        PyErr_Clear();
    return false;
}

static PyObject *request_wait(PyObject *self, PyObject *unused)
{
    struct muster_py_params_request *ours = request_of(self);
    PyObject *result;

    (void)unused;
    if (enter_unless_ended(ours)) {
        end_wait(ours);
        muster_py_runtime_leave(&ours->owner->runtime);
    } else if (PyErr_Occurred()) {
        return NULL;
    }
    Py_INCREF(self);
    muster_py_params_requests_release(ours->owner);
    result = muster_py_params_result(&ours->op, ours->rc);
    if (result != NULL && ours->is_cut) {
        Py_DECREF(result);
        result = muster_py_params_cut_dict(&ours->cut);
    }
    Py_DECREF(self);
    return result;
}

static PyObject *request_cancel(PyObject *self, PyObject *unused)
{
    struct muster_py_params_request *ours = request_of(self);

    (void)unused;
    if (enter_unless_ended(ours)) {
        if (!request_has_ended(ours))
            cancel_request(ours);
        muster_py_runtime_leave(&ours->owner->runtime);
    } else if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Whoever is told that it is done has its arrays again. */
static PyObject *request_get_done(PyObject *self, void *unused)
{
    struct muster_py_params_request *ours = request_of(self);
    bool has_ended = request_has_ended(ours), is_held = false;

    (void)unused;
    if (has_ended) {
        muster_py_calls_guard(&ours->owner->runtime.calls);
        is_held = !muster_list_is_empty(&ours->node);
        muster_list_remove(&ours->node);
        muster_py_calls_unguard(&ours->owner->runtime.calls);
    }
    if (is_held)
        request_release(ours);
    return PyBool_FromLong(has_ended);
}

static PyObject *request_get_kind(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(request_of(self)->kind);
}

/* --- The type --- */

static PyMethodDef request_methods[] = {
    {"wait", request_wait, METH_NOARGS,
     "wait()\n--\n\nWait until it has ended; raises what the blocking call would raise."},
    {"cancel", request_cancel, METH_NOARGS,
     "cancel()\n--\n\nIt ends with Cancelled, unless its answer is here. A push that has left may "
     "still be applied."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef request_attributes[] = {
    {"done", request_get_done, NULL, "Whether it has ended: wait does not wait then.", NULL},
    {"kind", request_get_kind, NULL,
     "'push', 'pull', 'push_pull', 'push_range', 'pull_range', 'tick' or 'cut'.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot request_slots[] = {
    {Py_tp_dealloc, MUSTER_PY_SLOT(request_dealloc)},
    {Py_tp_methods, request_methods},
    {Py_tp_getset, request_attributes},
    {Py_tp_doc,
     MUSTER_PY_SLOT(
         "An operation that was started: see muster.params.Table.start and Client.start.")},
    {0, NULL},
};

static PyType_Spec request_spec =
    MUSTER_PY_SPEC("muster._muster.ParamsRequest", struct muster_py_params_request,
                   Py_TPFLAGS_DISALLOW_INSTANTIATION, request_slots);

bool muster_py_add_params_request(PyObject *module)
{
    return muster_py_add_type(module, &request_spec, &request_type);
}
