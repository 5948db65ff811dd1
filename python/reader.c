/* A reader of a publication, and the versions that the program has taken from it. */
#include "python/publication.h"
#include "python/tensor.h"

#include <stdatomic.h>
#include <stdlib.h>

/* A version that nobody has any more: given back by the next call, since its last user may go inside of one. */
struct unused_version {
    const struct muster_version *version;
    struct unused_version *next;
};

/* It belongs to whoever has the lock of its runtime's calls, but for what is atomic. */
struct reader_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_py_runtime runtime;
    struct muster_reader *reader; /* NULL: closed, and all versions are given back */
    uint32_t taken_count;         /* versions that have objects */
    atomic_bool is_closed;        /* close was called; relaxed */
    /* Whoever loses the last reference pushes; the call that has the lock takes all. Push releases the node's
     * contents, take acquires them. */
    _Atomic(struct unused_version *) unused;
};

static struct reader_object *reader_of(PyObject *self)
{
    return (struct reader_object *)self;
}

static bool reader_is_closed(const struct reader_object *self)
{
    return atomic_load_explicit(&self->is_closed, memory_order_relaxed);
}

/* --- Calls --- */

/* Within the lock. */
static void give_back(struct reader_object *self)
{
    struct unused_version *unused =
        atomic_load(&self->unused) != NULL ? atomic_exchange(&self->unused, NULL) : NULL;

    while (unused != NULL) {
        struct unused_version *next = unused->next;
        struct muster_error error;
        enum muster_rc rc = muster_reader_put_back(self->reader, unused->version, &error);

        MUSTER_ASSERT(rc == MUSTER_OK); /* the lock is this thread's */
        self->taken_count--;
        free(unused);
        unused = next;
    }
}

/* A call that waits for a newer version may wait for an older one's end. */
static void on_look(struct muster_py_runtime *runtime)
{
    muster_py_calls_run_put_off(&runtime->calls);
    give_back(MUSTER_CONTAINER_OF(runtime, struct reader_object, runtime));
}

/* Within the lock, out of the seat: the last version that is given back behind close ends the reader. True: it has
 * ended, and the lock is free. */
static bool reader_end(struct reader_object *self)
{
    struct muster_error error;
    enum muster_rc rc;

    if (self->runtime.runtime == NULL || !reader_is_closed(self) || self->taken_count > 0)
        return false;
    muster_py_runtime_resume(&self->runtime);
    if (self->reader != NULL) {
        rc = muster_reader_disconnect(self->reader, &error);
        MUSTER_ASSERT(rc == MUSTER_OK); /* as above */
    }
    self->reader = NULL;
    muster_py_runtime_close(&self->runtime);
    return true;
}

/* A version that loses its last user beside the unlock is given back by this thread, or by the one that has the lock
 * next. The memory of versions lives as long as its last user. */
static void reader_unlock(struct reader_object *self)
{
    do {
        give_back(self);
        if (reader_end(self))
            return;
        muster_py_calls_unlock(&self->runtime.calls);
    } while (atomic_load(&self->unused) != NULL && muster_py_calls_try_lock(&self->runtime.calls));
}

/* Within a call, which it leaves. */
static void reader_leave(struct reader_object *self)
{
    muster_py_runtime_pause(&self->runtime);
    reader_unlock(self);
}

static bool raise_closed(void)
{
    return muster_py_raise(muster_py_error_classes[MUSTER_FAILED_PRECONDITION],
                           "the reader is closed") != NULL;
}

/* Another thread may close it while this one waits for the lock. */
static bool reader_enter(struct reader_object *self, bool is_short)
{
    if (reader_is_closed(self) && !muster_py_calls_is_forked(&self->runtime.calls))
        return raise_closed();
    if (!muster_py_runtime_enter(&self->runtime, is_short))
        return false;
    if (!reader_is_closed(self))
        return true;
    reader_leave(self);
    return raise_closed();
}

/* By any thread, also within a call. In a fork it stays, as it is the parent's. */
static void on_unused(struct reader_object *self, struct unused_version *unused)
{
    unused->next = atomic_load(&self->unused);
    while (!atomic_compare_exchange_weak(&self->unused, &unused->next, unused))
        continue;
    if (muster_py_calls_is_forked(&self->runtime.calls) ||
        !muster_py_calls_try_lock(&self->runtime.calls))
        return; /* the call that runs gives it back */
    reader_unlock(self);
}

/* --- Versions --- */

struct version_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct reader_object *reader; /* a reference */
    const struct muster_version *version;
    struct unused_version *unused; /* for its end, which may not fail */
};

static PyTypeObject *version_type;

static struct version_object *version_of(PyObject *self)
{
    return (struct version_object *)self;
}

static PyObject *version_new(struct reader_object *reader, struct unused_version *unused)
{
    PyObject *self = PyType_GenericAlloc(version_type, 0);

    if (self == NULL)
        return NULL;
    Py_INCREF((PyObject *)reader);
    version_of(self)->reader = reader;
    version_of(self)->version = unused->version;
    version_of(self)->unused = unused;
    return self;
}

static void version_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    if (version_of(self)->reader != NULL) {
        on_unused(version_of(self)->reader, version_of(self)->unused);
        Py_DECREF((PyObject *)version_of(self)->reader);
    }
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static void free_memory(PyObject *owner, struct muster_py_memory *memory)
{
    (void)owner;
    PyMem_Free(memory);
}

static PyObject *tensor_new(PyObject *self, const struct muster_named_tensor *named)
{
    struct muster_py_memory *memory = PyMem_Calloc(1, sizeof(*memory));
    PyObject *tensor;

    if (memory == NULL)
        return PyErr_NoMemory();
    memory->tensor = (struct muster_tensor){
        .data = (void *)(uintptr_t)named->data, .count = named->count, .dtype = named->dtype};
    memory->is_read_only = true;
    tensor = muster_py_tensor_new(self, memory, free_memory);
    if (tensor == NULL)
        PyMem_Free(memory);
    return tensor;
}

static PyObject *version_tensors(PyObject *self, PyObject *unused)
{
    const struct muster_version *version = version_of(self)->version;
    PyObject *tensors = PyDict_New();

    (void)unused;
    for (size_t i = 0; tensors != NULL && i < version->count; i++) {
        PyObject *tensor = tensor_new(self, &version->tensors[i]);

        if (tensor == NULL || PyDict_SetItemString(tensors, version->tensors[i].name, tensor) != 0)
            Py_CLEAR(tensors);
        Py_XDECREF(tensor);
    }
    return tensors;
}

static PyObject *version_get_number(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(version_of(self)->version->number);
}

static PyObject *version_get_bytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(version_of(self)->version->bytes);
}

/* --- Open and close --- */

/** The arguments of a reader. */
struct opening {
    struct muster_py_publication_end end;
    const char *host_key;
    uint64_t min_version;
};

static bool read_options(PyObject *args, PyObject *keywords, struct opening *opening)
{
    PyObject *min_version = NULL;
    const struct muster_py_publication_words words = {.format = "ss|$zzzzOpzzzzO:Reader",
                                                      .names = {"host_key", "min_version"},
                                                      .values = {&opening->host_key, &min_version}};

    return muster_py_read_publication_end(args, keywords, &words, &opening->end) &&
           muster_py_read_number(min_version, 0, UINT64_MAX, &opening->min_version);
}

/* Within a call. */
static enum muster_rc open_entered(struct reader_object *self, const struct opening *opening,
                                   struct muster_error *ret_error)
{
    const struct muster_py_publication_end *end = &opening->end;
    struct muster_reader_options options = {.name = end->name,
                                            .job = end->job,
                                            .registry = end->registry,
                                            .listen = muster_py_publication_listen(end),
                                            .reach = end->reach,
                                            .host_key = opening->host_key,
                                            .min_version = opening->min_version};
    enum muster_rc rc = muster_py_runtime_secure(&self->runtime, &end->security, ret_error);

    options.authorization = self->runtime.authorization;
    return rc == MUSTER_OK
               ? muster_reader_connect(self->runtime.runtime, &options, &self->reader, ret_error)
               : rc;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    struct opening opening = {.host_key = NULL};
    struct muster_error error;
    struct reader_object *self;

    if (!read_options(args, keywords, &opening))
        return NULL;
    self = reader_of(PyType_GenericAlloc(type, 0));
    if (self == NULL)
        return NULL;
    if (!muster_py_runtime_open(&self->runtime) ||
        !muster_py_runtime_enter(&self->runtime, false)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    self->runtime.look_too = on_look;
    if (open_entered(self, &opening, &error) == MUSTER_OK) {
        muster_py_runtime_leave(&self->runtime);
        return (PyObject *)self;
    }
    muster_py_runtime_close(&self->runtime);
    Py_DECREF((PyObject *)self);
    return muster_py_raise_error(&error, NULL);
}

/* Within a call, which it leaves. */
static void reader_close_entered(struct reader_object *self)
{
    atomic_store_explicit(&self->is_closed, true, memory_order_relaxed);
    reader_leave(self);
}

static PyObject *reader_close(PyObject *self, PyObject *unused)
{
    struct reader_object *ours = reader_of(self);

    (void)unused;
    if (reader_is_closed(ours))
        Py_RETURN_NONE;
    if (muster_py_runtime_enter_to_close(&ours->runtime))
        reader_close_entered(ours);
    else if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static void reader_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct reader_object *ours = reader_of(self);
    PyObject *class, *value, *trace;

    PyErr_Fetch(&class, &value, &trace);
    if (!muster_py_runtime_is_gone(&ours->runtime) && muster_py_runtime_enter(&ours->runtime, true))
        reader_close_entered(ours); /* versions would have kept it */
    muster_py_calls_fini(&ours->runtime.calls);
    PyErr_Restore(class, value, trace);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- Take --- */

static void on_waited(struct muster_reader_op *op, enum muster_rc rc)
{
    struct reader_object *self = op->data;

    muster_py_runtime_tell(&self->runtime, rc);
}

static void cancel_wait(void *data)
{
    muster_reader_wait_cancel(data);
}

/* Why no version has come: what the newest attempt to fetch one has met. */
static void error_complete(struct reader_object *self, struct muster_error *error)
{
    const struct muster_error *cause = muster_reader_error(self->reader);

    if (error->rc == MUSTER_DEADLINE_EXCEEDED && cause->rc != MUSTER_OK)
        (void)muster_error_set(error, error->rc,
                               "no such version in time; the last attempt: %.160s", cause->text);
}

/* Within a call, which it leaves. */
static PyObject *take_entered(struct reader_object *self, uint64_t number, uint64_t timeout_ns,
                              struct unused_version *unused)
{
    struct muster_reader_op op = {.data = self};
    struct muster_error error;
    enum muster_rc rc;

    muster_py_runtime_expect(&self->runtime);
    rc =
        muster_reader_wait_start(&op, self->reader, number,
                                 muster_py_runtime_deadline(&self->runtime, timeout_ns), on_waited);
    if (rc == MUSTER_OK)
        rc = muster_py_runtime_wait(&self->runtime, cancel_wait, &op);
    if (rc == MUSTER_OK) {
        unused->version = muster_reader_current(self->reader);
        self->taken_count++;
    }
    error = op.error;
    error.rc = rc;
    error_complete(self, &error);
    reader_leave(self);
    if (rc != MUSTER_OK)
        return muster_py_raise_error(&error, NULL);
    return version_new(self, unused);
}

static PyObject *reader_take(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords)
{
    static const char *const names[] = {"version", "timeout", NULL};
    PyObject *values[2], *result = NULL;
    uint64_t number, timeout_ns;
    struct unused_version *unused;

    if (!muster_py_read_arguments("take", names, 0, args, count, keywords, values) ||
        !muster_py_read_number(values[0], 0, UINT64_MAX, &number) ||
        !muster_py_read_timeout(values[1], &timeout_ns))
        return NULL;
    unused = calloc(1, sizeof(*unused));
    if (unused == NULL)
        return PyErr_NoMemory();
    if (reader_enter(reader_of(self), true))
        result = take_entered(reader_of(self), number, timeout_ns, unused);
    if (result != NULL && !PyErr_Occurred())
        return result;
    if (result != NULL) { /* a handler of a signal has raised when the version was there */
        Py_DECREF(result);
        return NULL;
    }
    if (unused->version != NULL)
        on_unused(reader_of(self), unused);
    else
        free(unused);
    return NULL;
}

/* --- Attributes --- */

static bool read_stats(PyObject *self, struct muster_reader_stats *ret_stats)
{
    struct reader_object *ours = reader_of(self);

    if (!reader_enter(ours, true))
        return false;
    muster_reader_stats(ours->reader, ret_stats);
    reader_leave(ours);
    return true;
}

static PyObject *reader_get_newest(PyObject *self, void *unused)
{
    struct muster_reader_stats stats;

    (void)unused;
    return read_stats(self, &stats) ? PyLong_FromUnsignedLongLong(stats.newest) : NULL;
}

static PyObject *reader_get_current(PyObject *self, void *unused)
{
    struct muster_reader_stats stats;

    (void)unused;
    return read_stats(self, &stats) ? PyLong_FromUnsignedLongLong(stats.current) : NULL;
}

static PyObject *reader_stats(PyObject *self, PyObject *unused)
{
    struct muster_reader_stats stats;

    (void)unused;
    if (!read_stats(self, &stats))
        return NULL;
#define NUMBER(name) #name, (unsigned long long)stats.name
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsK}", NUMBER(versions), NUMBER(chunks_received),
                         NUMBER(deltas_received), NUMBER(chunks_equal), NUMBER(chunks_wrong),
                         NUMBER(bytes_received), NUMBER(parents_lost), NUMBER(bytes_sent),
                         NUMBER(chunks_mapped), NUMBER(current), NUMBER(newest));
#undef NUMBER
}

static PyObject *reader_get_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(reader_is_closed(reader_of(self)));
}

/* --- The types --- */

static PyMethodDef version_methods[] = {
    {"tensors", version_tensors, METH_NOARGS,
     "tensors()\n--\n\nName -> Tensor, read only; they stay as they are while somebody has them."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef version_attributes[] = {
    {"number", version_get_number, NULL, "From 1.", NULL},
    {"bytes", version_get_bytes, NULL, "All tensors together.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot version_slots[] = {
    {Py_tp_dealloc, MUSTER_PY_SLOT(version_dealloc)},
    {Py_tp_methods, version_methods},
    {Py_tp_getset, version_attributes},
    {Py_tp_doc,
     MUSTER_PY_SLOT("A version that the program has taken: see muster.publication.Version.")},
    {0, NULL},
};

static PyType_Spec version_spec = MUSTER_PY_SPEC("muster._muster.Version", struct version_object,
                                                 Py_TPFLAGS_DISALLOW_INSTANTIATION, version_slots);

static PyMethodDef reader_methods[] = {
    {"take", MUSTER_PY_FUNCTION(reader_take), METH_FASTCALL | METH_KEYWORDS,
     "take(version=0, timeout=30)\n--\n\nWait for this version or a later one, and take the "
     "newest."},
    {"stats", reader_stats, METH_NOARGS, "stats()\n--\n\nNumbers of versions, chunks and bytes."},
    {"close", reader_close, METH_NOARGS,
     "close()\n--\n\nStop reading; versions that are in use stay."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef reader_attributes[] = {
    {"current", reader_get_current, NULL, "The newest version that is here, whole; 0: none.", NULL},
    {"newest", reader_get_newest, NULL, "The newest version that the reader has heard of; 0: none.",
     NULL},
    {"closed", reader_get_closed, NULL, "Whether close has been called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_new, MUSTER_PY_SLOT(reader_new)},
    {Py_tp_dealloc, MUSTER_PY_SLOT(reader_dealloc)},
    {Py_tp_methods, reader_methods},
    {Py_tp_getset, reader_attributes},
    {Py_tp_doc, MUSTER_PY_SLOT("A reader of a publication: see muster.publication.Reader.")},
    {0, NULL},
};

static PyType_Spec reader_spec = MUSTER_PY_SPEC("muster._muster.Reader", struct reader_object,
                                                Py_TPFLAGS_BASETYPE, reader_slots);

bool muster_py_add_reader(PyObject *module)
{
    return muster_py_add_type(module, &reader_spec, NULL) &&
           muster_py_add_type(module, &version_spec, &version_type);
}
