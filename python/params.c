/* A client of the servers of tables: open, the steps that it has completed, close. */
#include "python/params.h"

static struct muster_py_params *params_of(PyObject *self)
{
    return (struct muster_py_params *)self;
}

/* --- Waiting --- */

void muster_py_params_on_done(struct muster_params_op *op, enum muster_rc rc)
{
    struct muster_py_params *self = op->data;

    muster_py_runtime_tell(&self->runtime, rc);
}

static void cancel_op(void *data)
{
    muster_params_op_cancel(data);
}

static PyObject *raise_op(const struct muster_params_op *op, enum muster_rc rc)
{
    struct muster_error error = op->error;

    if (error.rc == MUSTER_OK)
        error.text[0] = '\0';
    error.rc = rc;
    if (rc == MUSTER_OUT_OF_RANGE && !PyErr_Occurred())
        return muster_py_raise(muster_py_round_over,
                               error.text[0] != '\0' ? error.text : muster_rc_text(rc));
    return muster_py_raise_error(&error, NULL);
}

PyObject *muster_py_params_result(const struct muster_params_op *op, enum muster_rc rc)
{
    if (rc != MUSTER_OK)
        return raise_op(op, rc);
    if (PyErr_Occurred()) /* a handler has raised when the answer was there */
        return NULL;
    Py_RETURN_NONE;
}

PyObject *muster_py_params_end(struct muster_py_params *self, const struct muster_params_op *op,
                               enum muster_rc rc)
{
    muster_py_runtime_leave(&self->runtime);
    return muster_py_params_result(op, rc);
}

PyObject *muster_py_params_wait(struct muster_py_params *self, struct muster_params_op *op,
                                enum muster_rc rc)
{
    if (rc == MUSTER_OK)
        rc = muster_py_runtime_wait(&self->runtime, cancel_op, op);
    return muster_py_params_end(self, op, rc);
}

static void on_told(struct muster_params *params, enum muster_rc rc)
{
    struct muster_py_params *self = muster_params_data(params);

    muster_py_runtime_tell(&self->runtime, rc);
}

/* --- Close --- */

/* Within a call, which it leaves. */
static enum muster_rc close_entered(struct muster_py_params *self, uint64_t timeout_ns)
{
    enum muster_rc rc = MUSTER_OK;

    if (self->params != NULL && !self->is_closing) {
        muster_py_runtime_expect(&self->runtime);
        muster_params_close(self->params, muster_py_runtime_deadline(&self->runtime, timeout_ns),
                            on_told);
        rc = muster_py_runtime_wait(&self->runtime, NULL, NULL);
    }
    self->params = NULL;
    atomic_store_explicit(&self->is_closed, true, memory_order_relaxed);
    muster_py_runtime_close(&self->runtime);
    return rc;
}

static PyObject *params_close(PyObject *self, PyObject *const *args, Py_ssize_t count,
                              PyObject *keywords)
{
    static const char *const names[] = {"timeout", NULL};
    PyObject *values[1];
    struct muster_py_params *ours = params_of(self);
    struct muster_error error;
    uint64_t timeout_ns;

    if (!muster_py_read_arguments("close", names, 0, args, count, keywords, values) ||
        !muster_py_read_timeout(values[0], &timeout_ns))
        return NULL;
    if (!muster_py_runtime_enter_to_close(&ours->runtime)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    error.rc = close_entered(ours, timeout_ns);
    muster_py_params_requests_release(ours);
    if (error.rc == MUSTER_OK)
        Py_RETURN_NONE;
    (void)muster_error_set(&error, error.rc, "the server has not acknowledged all pushes in time");
    return muster_py_raise_error(&error, NULL);
}

static void params_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct muster_py_params *ours = params_of(self);
    PyObject *class, *value, *trace;

    PyErr_Fetch(&class, &value, &trace);
    if (!muster_py_runtime_is_gone(&ours->runtime) && muster_py_runtime_enter(&ours->runtime, true))
        (void)close_entered(ours, 0);
    muster_py_calls_fini(&ours->runtime.calls);
    PyErr_Restore(class, value, trace);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- Open --- */

/** The arguments of a client. */
struct opening {
    struct muster_params_options options;
    struct muster_py_security security;
    uint64_t timeout_ns;
};

static bool read_options(PyObject *args, PyObject *keywords, struct opening *ret_opening)
{
    static const char *const names[] = {
        "server",  "job", "source", "clock_sources", "queue_max_bytes", "host_memory",
        "timeout", "tls", "tls_ca", "tls_cert",      "tls_key",         "tls_peer_names",
        NULL};
    struct muster_params_options *options = &ret_opening->options;
    struct muster_tls_options *tls = &ret_opening->security.tls;
    PyObject *clock_sources = NULL, *queue = NULL, *timeout = NULL;
    uint64_t sources;
    int has_host_memory = 1;

    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "s|$zzOOpOpzzzO:Client", (char **)(uintptr_t)names, &options->server,
            &options->job, &options->source, &clock_sources, &queue, &has_host_memory, &timeout,
            &ret_opening->security.has_tls, &tls->ca_file, &tls->cert_file, &tls->key_file,
            &ret_opening->security.peer_names) ||
        !muster_py_read_number(clock_sources, 0, UINT32_MAX, &sources) ||
        !muster_py_read_number(queue, 0, UINT64_MAX, &options->queue_max_bytes) ||
        !muster_py_read_patience(timeout, &ret_opening->timeout_ns))
        return false;
    options->clock_sources = (uint32_t)sources;
    options->no_host_memory = has_host_memory == 0;
    return muster_py_security_check(&ret_opening->security, false);
}

static void cancel_open(void *data)
{
    struct muster_py_params *self = data;

    self->is_closing = true;
    muster_params_close(self->params, muster_loop_now_ns(self->runtime.env->loop), on_told);
}

static bool open_entered(struct muster_py_params *self, struct opening *opening,
                         struct muster_error *ret_error)
{
    struct muster_params_options *options = &opening->options;
    enum muster_rc rc;

    options->connect_deadline_ns = muster_py_runtime_deadline(&self->runtime, opening->timeout_ns);
    options->data = self;
    muster_py_runtime_expect(&self->runtime);
    rc = muster_py_runtime_secure(&self->runtime, &opening->security, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_params_open(self->runtime.env, options, on_told, &self->params, ret_error);
    if (rc == MUSTER_OK) {
        rc = muster_py_runtime_wait(&self->runtime, cancel_open, self);
        if (rc == MUSTER_OK && !self->is_closing)
            return true;
        if (!self->is_closing)
            *ret_error = *muster_params_error(self->params);
    }
    ret_error->rc = rc;
    return false;
}

static PyObject *params_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    struct opening opening = {.timeout_ns = 0};
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_py_params *self;

    if (!read_options(args, keywords, &opening))
        return NULL;
    self = params_of(PyType_GenericAlloc(type, 0));
    if (self == NULL)
        return NULL;
    muster_list_init(&self->requests);
    self->clock_sources = opening.options.clock_sources;
    if (!muster_py_runtime_open(&self->runtime) ||
        !muster_py_runtime_enter(&self->runtime, false)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (open_entered(self, &opening, &error)) {
        muster_py_runtime_leave(&self->runtime);
        if (!PyErr_Occurred())
            return (PyObject *)self;
    } else {
        (void)close_entered(self, 0);
        muster_py_raise_error(&error, NULL);
    }
    Py_DECREF((PyObject *)self);
    return NULL;
}

/* --- Steps --- */

static PyObject *params_tick(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords)
{
    static const char *const names[] = {"clock", "weight", "timeout", NULL};
    PyObject *values[3];
    struct muster_py_params *ours = params_of(self);
    struct muster_params_op op = {.data = ours};
    uint64_t clock, timeout_ns;
    double weight = 1;
    enum muster_rc rc;

    if (!muster_py_read_arguments("tick", names, 1, args, count, keywords, values) ||
        !muster_py_read_number(values[0], 0, UINT64_MAX, &clock) ||
        !muster_py_read_patience(values[2], &timeout_ns))
        return NULL;
    if (values[1] != NULL && values[1] != Py_None)
        weight = PyFloat_AsDouble(values[1]);
    if (PyErr_Occurred() || !muster_py_runtime_enter(&ours->runtime, true))
        return NULL;
    muster_py_runtime_expect(&ours->runtime);
    rc = muster_params_tick_weighted_start(&op, ours->params, clock, weight,
                                           muster_py_runtime_deadline(&ours->runtime, timeout_ns),
                                           muster_py_params_on_done);
    if (rc == MUSTER_OK)
        ours->clock = clock;
    return muster_py_params_wait(ours, &op, rc);
}

/* --- Attributes --- */

static PyObject *get_number(PyObject *self, uint64_t (*get)(const struct muster_params *params))
{
    struct muster_py_params *ours = params_of(self);
    uint64_t number;

    if (!muster_py_runtime_enter(&ours->runtime, true))
        return NULL;
    number = get(ours->params);
    muster_py_runtime_leave(&ours->runtime);
    return PyLong_FromUnsignedLongLong(number);
}

static uint64_t count_short(const struct muster_params *params)
{
    return muster_params_short_shards(params);
}

static PyObject *params_get_source_position(PyObject *self, void *unused)
{
    (void)unused;
    return get_number(self, muster_params_source_position);
}

static PyObject *params_get_short_shards(PyObject *self, void *unused)
{
    (void)unused;
    return get_number(self, count_short);
}

static PyObject *params_get_by_memory(PyObject *self, void *unused)
{
    struct muster_py_params *ours = params_of(self);
    bool is_by_memory;

    (void)unused;
    if (!muster_py_runtime_enter(&ours->runtime, true))
        return NULL;
    is_by_memory = muster_params_is_by_memory(ours->params);
    muster_py_runtime_leave(&ours->runtime);
    return PyBool_FromLong(is_by_memory);
}

static PyObject *params_get_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(atomic_load_explicit(&params_of(self)->is_closed, memory_order_relaxed));
}

/* --- The type --- */

static PyMethodDef params_methods[] = {
    {"table", MUSTER_PY_FUNCTION(muster_py_params_table), METH_VARARGS | METH_KEYWORDS,
     "table(name, row_elements, *, …)\n--\n\nOpen a table, or make it."},
    {"tick", MUSTER_PY_FUNCTION(params_tick), METH_FASTCALL | METH_KEYWORDS,
     "tick(clock, weight=1.0, timeout=30)\n--\n\nThis source has completed so many steps."},
    {"cut", MUSTER_PY_FUNCTION(muster_py_params_cut), METH_FASTCALL | METH_KEYWORDS,
     "cut(folder, clock=0, timeout=30)\n--\n\nSave all tables to a folder that is there; `muster "
     "params serve --restore` begins with it."},
    {"start", MUSTER_PY_FUNCTION(muster_py_params_start), METH_FASTCALL | METH_KEYWORDS,
     "start(kind, folder=None, clock=0, weight=1.0, timeout=30)\n--\n\nStart a tick or a cut, and "
     "return a ParamsRequest for it."},
    {"close", MUSTER_PY_FUNCTION(params_close), METH_FASTCALL | METH_KEYWORDS,
     "close(timeout=30)\n--\n\nWait until all pushes are acknowledged, and disconnect."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef params_attributes[] = {
    {"source_position", params_get_source_position, NULL,
     "The newest message of pushes of an earlier process of this source; 0: none.", NULL},
    {"short_shards", params_get_short_shards, NULL,
     "Shards that fewer servers hold than the job wants.", NULL},
    {"by_memory", params_get_by_memory, NULL,
     "Whether messages to all servers pass through memory of this host.", NULL},
    {"closed", params_get_closed, NULL, "Whether close has been called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot params_slots[] = {
    {Py_tp_new, MUSTER_PY_SLOT(params_new)},
    {Py_tp_dealloc, MUSTER_PY_SLOT(params_dealloc)},
    {Py_tp_methods, params_methods},
    {Py_tp_getset, params_attributes},
    {Py_tp_doc, MUSTER_PY_SLOT("A client of the servers of tables: see muster.params.Client.")},
    {0, NULL},
};

static PyType_Spec params_spec = MUSTER_PY_SPEC(
    "muster._muster.ParamsClient", struct muster_py_params, Py_TPFLAGS_BASETYPE, params_slots);

bool muster_py_add_params(PyObject *module)
{
    return muster_py_add_type(module, &params_spec, NULL) && muster_py_add_params_table(module) &&
           muster_py_add_params_request(module);
}
