/* The publisher of a name: each put makes a version of all of its tensors. */
#include "python/publication.h"

struct publisher_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_py_runtime runtime;
    struct muster_publication *publication; /* NULL: closed */
    atomic_bool is_closed;                  /* for those who ask without the lock; relaxed */
    bool is_closing;
};

static struct publisher_object *publisher_of(PyObject *self)
{
    return (struct publisher_object *)self;
}

bool muster_py_read_publication_end(PyObject *args, PyObject *keywords,
                                    const struct muster_py_publication_words *words,
                                    struct muster_py_publication_end *end)
{
    const char *const names[] = {
        "name",           "registry", "job",    "listen",   "reach",   words->names[0],
        words->names[1],  "tls",      "tls_ca", "tls_cert", "tls_key", "authorization",
        "tls_peer_names", NULL};
    struct muster_tls_options *tls = &end->security.tls;
    struct muster_error error;

    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, words->format, (char **)(uintptr_t)names, &end->name, &end->registry,
            &end->job, &end->listen, &end->reach, words->values[0], words->values[1],
            &end->security.has_tls, &tls->ca_file, &tls->cert_file, &tls->key_file,
            &end->security.authorization, &end->security.peer_names))
        return false;
    if (end->listen != NULL &&
        muster_address_parse(end->listen, &end->address, &error) != MUSTER_OK)
        return muster_py_raise_error(&error, NULL) != NULL;
    tls->is_peer_required = tls->ca_file != NULL;
    return muster_py_security_check(&end->security, end->listen != NULL);
}

/* --- Close --- */

static void on_closed(struct muster_publication *publication, enum muster_rc rc)
{
    struct publisher_object *self = muster_publication_data(publication);

    muster_py_runtime_tell(&self->runtime, rc);
}

/* Within a call, which it leaves. */
static void close_entered(struct publisher_object *self)
{
    if (self->publication != NULL && !self->is_closing) {
        muster_py_runtime_expect(&self->runtime);
        muster_publication_close(self->publication, on_closed);
        (void)muster_py_runtime_wait(&self->runtime, NULL, NULL);
    }
    self->publication = NULL;
    atomic_store_explicit(&self->is_closed, true, memory_order_relaxed);
    muster_py_runtime_close(&self->runtime);
}

static PyObject *publisher_close(PyObject *self, PyObject *unused)
{
    struct publisher_object *ours = publisher_of(self);

    (void)unused;
    if (muster_py_runtime_enter_to_close(&ours->runtime))
        close_entered(ours);
    else if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static void publisher_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct publisher_object *ours = publisher_of(self);
    PyObject *class, *value, *trace;

    PyErr_Fetch(&class, &value, &trace);
    if (!muster_py_runtime_is_gone(&ours->runtime) &&
        muster_py_runtime_enter(&ours->runtime, false))
        close_entered(ours);
    muster_py_calls_fini(&ours->runtime.calls);
    PyErr_Restore(class, value, trace);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* A signal that interrupts the opening or a put ends the publisher, since nothing else can end them. */
static void cancel_all(void *data)
{
    struct publisher_object *self = data;

    self->is_closing = true;
    muster_publication_close(self->publication, on_closed);
}

/* --- Open --- */

static void on_opened(struct muster_publication *publication, enum muster_rc rc)
{
    struct publisher_object *self = muster_publication_data(publication);

    if (!self->is_closing)
        muster_py_runtime_tell(&self->runtime, rc);
}

/** The arguments of a publisher. */
struct opening {
    struct muster_py_publication_end end;
    uint32_t history;
    uint64_t timeout_ns;
};

static bool read_options(PyObject *args, PyObject *keywords, struct opening *opening)
{
    PyObject *history = NULL, *timeout = NULL;
    const struct muster_py_publication_words words = {.format = "ss|$zszOOpzzzzO:Publisher",
                                                      .names = {"history", "timeout"},
                                                      .values = {&history, &timeout}};
    uint64_t count;

    opening->end.listen = "127.0.0.1:0";
    if (!muster_py_read_publication_end(args, keywords, &words, &opening->end) ||
        !muster_py_read_number(history, 0, UINT32_MAX, &count) ||
        !muster_py_read_patience(timeout, &opening->timeout_ns))
        return false;
    opening->history = (uint32_t)count;
    return true;
}

static bool open_entered(struct publisher_object *self, struct opening *opening,
                         struct muster_error *ret_error)
{
    const struct muster_py_publication_end *end = &opening->end;
    struct muster_publication_options options = {
        .name = end->name,
        .job = end->job,
        .registry = end->registry,
        .listen = muster_py_publication_listen(end),
        .reach = end->reach,
        .history = opening->history,
        .deadline_ns = muster_py_runtime_deadline(&self->runtime, opening->timeout_ns),
        .data = self};
    enum muster_rc rc;

    muster_py_runtime_expect(&self->runtime);
    rc = muster_py_runtime_secure(&self->runtime, &end->security, ret_error);
    options.authorization = self->runtime.authorization;
    if (rc == MUSTER_OK)
        rc = muster_publication_open(self->runtime.env, &options, on_opened, &self->publication,
                                     ret_error);
    if (rc == MUSTER_OK) {
        rc = muster_py_runtime_wait(&self->runtime, cancel_all, self);
        if (rc == MUSTER_OK && !self->is_closing)
            return true;
        if (!self->is_closing)
            *ret_error = *muster_publication_error(self->publication);
    }
    ret_error->rc = rc;
    return false;
}

static PyObject *publisher_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    struct opening opening = {.timeout_ns = 0};
    struct muster_error error = {.rc = MUSTER_OK};
    struct publisher_object *self;

    if (!read_options(args, keywords, &opening))
        return NULL;
    self = publisher_of(PyType_GenericAlloc(type, 0));
    if (self == NULL)
        return NULL;
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
        close_entered(self);
        muster_py_raise_error(&error, NULL);
    }
    Py_DECREF((PyObject *)self);
    return NULL;
}

/* --- Put --- */

/* The tensors of a version: their names, borrowed from the items, and their buffers. */
struct put_call {
    PyObject *items; /* a tuple: another thread may change the program's list */
    struct muster_py_tensors tensors;
    struct muster_named_tensor *named;
};

/* item: (name, array, dtype or None). */
static bool add_item(struct put_call *call, PyObject *item)
{
    const struct muster_tensor *tensor = &call->tensors.tensors[call->tensors.count];
    struct muster_named_tensor *named = &call->named[call->tensors.count];
    const char *dtype;

    if (!PyTuple_Check(item) || PyTuple_Size(item) != 3)
        return muster_py_raise(PyExc_TypeError, "tensors must be (name, array, dtype) each") !=
               NULL;
    if (!muster_py_read_text(PyTuple_GetItem(item, 0), &named->name) ||
        !muster_py_read_text(PyTuple_GetItem(item, 2), &dtype))
        return false;
    if (named->name == NULL)
        return muster_py_raise(PyExc_TypeError, "a name must be a string, got None") != NULL;
    if (!muster_py_tensors_add(&call->tensors, PyTuple_GetItem(item, 1), dtype, false))
        return false;
    named->dtype = tensor->dtype;
    named->count = tensor->count;
    named->data = tensor->data;
    return true;
}

static void put_close(struct put_call *call)
{
    muster_py_tensors_close(&call->tensors);
    PyMem_Free(call->named);
    Py_XDECREF(call->items);
}

static bool put_open(struct put_call *call, PyObject *list)
{
    Py_ssize_t count;
    bool is_right;

    muster_py_tensors_init(&call->tensors);
    call->named = NULL;
    if (!PyList_Check(list))
        return muster_py_raise(PyExc_TypeError, "tensors must be a list") != NULL;
    call->items = PyList_AsTuple(list);
    if (call->items == NULL)
        return false;
    count = PyTuple_Size(call->items);
    call->named = PyMem_Calloc((size_t)count + 1, sizeof(*call->named));
    is_right = call->named != NULL ? muster_py_tensors_reserve(&call->tensors, (size_t)count)
                                   : PyErr_NoMemory() != NULL;
    for (Py_ssize_t i = 0; is_right && i < count; i++)
        is_right = add_item(call, PyTuple_GetItem(call->items, i));
    if (!is_right)
        put_close(call);
    return is_right;
}

static void on_put(struct muster_publication_op *op, enum muster_rc rc)
{
    struct publisher_object *self = op->data;

    if (!self->is_closing)
        muster_py_runtime_tell(&self->runtime, rc);
}

/* Within a call, which it leaves. */
static PyObject *put_entered(struct publisher_object *self, struct muster_publication_put *put,
                             uint64_t timeout_ns)
{
    struct muster_publication_op op = {.data = self};
    struct muster_error error;
    enum muster_rc rc;

    put->deadline_ns = muster_py_runtime_deadline(&self->runtime, timeout_ns);
    muster_py_runtime_expect(&self->runtime);
    rc = muster_publication_put_start(&op, self->publication, put, on_put);
    if (rc == MUSTER_OK)
        rc = muster_py_runtime_wait(&self->runtime, cancel_all, self);
    error = op.error;
    error.rc = rc;
    if (self->is_closing) {
        close_entered(self);
        return NULL; /* a handler of a signal has raised */
    }
    muster_py_runtime_leave(&self->runtime);
    if (rc != MUSTER_OK)
        return muster_py_raise_error(&error, NULL);
    return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(op.version);
}

static PyObject *publisher_put(PyObject *self, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords)
{
    static const char *const names[] = {"tensors", "wait_readers", "timeout", NULL};
    PyObject *values[3], *result = NULL;
    struct publisher_object *ours = publisher_of(self);
    struct put_call call;
    uint64_t readers, timeout_ns;

    if (!muster_py_read_arguments("put", names, 1, args, count, keywords, values) ||
        !muster_py_read_number(values[1], 0, UINT32_MAX, &readers) ||
        !muster_py_read_patience(values[2], &timeout_ns) || !put_open(&call, values[0]))
        return NULL;
    if (muster_py_runtime_enter(&ours->runtime, false))
        result = put_entered(ours,
                             &(struct muster_publication_put){.tensors = call.named,
                                                              .count = call.tensors.count,
                                                              .wait_readers = (uint32_t)readers},
                             timeout_ns);
    put_close(&call);
    return result;
}

/* --- Attributes --- */

static PyObject *publisher_get_version(PyObject *self, void *unused)
{
    struct publisher_object *ours = publisher_of(self);
    uint64_t version;

    (void)unused;
    if (!muster_py_runtime_enter(&ours->runtime, true))
        return NULL;
    version = muster_publication_version(ours->publication);
    muster_py_runtime_leave(&ours->runtime);
    return PyLong_FromUnsignedLongLong(version);
}

static PyObject *publisher_stats(PyObject *self, PyObject *unused)
{
    struct publisher_object *ours = publisher_of(self);
    struct muster_publication_stats stats;

    (void)unused;
    if (!muster_py_runtime_enter(&ours->runtime, true))
        return NULL;
    muster_publication_stats(ours->publication, &stats);
    muster_py_runtime_leave(&ours->runtime);
    return Py_BuildValue("{sIsKsKsKsK}", "readers", stats.readers, "chunks_sent",
                         (unsigned long long)stats.chunks_sent, "deltas_sent",
                         (unsigned long long)stats.deltas_sent, "bytes_sent",
                         (unsigned long long)stats.bytes_sent, "version",
                         (unsigned long long)stats.version);
}

static PyObject *publisher_get_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(
        atomic_load_explicit(&publisher_of(self)->is_closed, memory_order_relaxed));
}

/* --- The type --- */

static PyMethodDef publisher_methods[] = {
    {"put", MUSTER_PY_FUNCTION(publisher_put), METH_FASTCALL | METH_KEYWORDS,
     "put(tensors, wait_readers=0, timeout=30)\n--\n\nMake the next version, and return its "
     "number. "
     "tensors: a list of (name, array, dtype or None)."},
    {"stats", publisher_stats, METH_NOARGS, "stats()\n--\n\nNumbers of readers and bytes."},
    {"close", publisher_close, METH_NOARGS,
     "close()\n--\n\nGive up the name; readers keep what they have."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef publisher_attributes[] = {
    {"version", publisher_get_version, NULL, "The newest that the registry has; 0: none.", NULL},
    {"closed", publisher_get_closed, NULL, "Whether it is closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot publisher_slots[] = {
    {Py_tp_new, MUSTER_PY_SLOT(publisher_new)},
    {Py_tp_dealloc, MUSTER_PY_SLOT(publisher_dealloc)},
    {Py_tp_methods, publisher_methods},
    {Py_tp_getset, publisher_attributes},
    {Py_tp_doc, MUSTER_PY_SLOT("The publisher of a name: see muster.publication.Publisher.")},
    {0, NULL},
};

static PyType_Spec publisher_spec = MUSTER_PY_SPEC(
    "muster._muster.Publisher", struct publisher_object, Py_TPFLAGS_BASETYPE, publisher_slots);

bool muster_py_add_publisher(PyObject *module)
{
    return muster_py_add_type(module, &publisher_spec, NULL);
}
