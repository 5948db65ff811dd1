/* A table of rows, or one tensor: pushed to and pulled from in the memory of the program's arrays. */
#include "python/params.h"

#include <stdio.h>
#include <string.h>

#define SHORT_BYTES_MAX 65536u /* more bytes than these take longer than getting the GIL back */

struct table_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        PyObject *client;
    struct muster_params_table *table; /* the client's until its close */
    char name[MUSTER_PARAMS_NAME_BYTES];
    uint32_t row_elements;
    uint64_t tensor_elements;
    enum muster_dtype dtype;
};

static PyTypeObject *table_type;

static struct table_object *table_of(PyObject *self)
{
    return (struct table_object *)self;
}

static struct muster_py_params *client_of(const struct table_object *self)
{
    return (struct muster_py_params *)self->client;
}

/* --- Arrays --- */

static bool add_keys(struct muster_py_tensors *tensors, PyObject *keys)
{
    enum muster_dtype dtype;

    if (!muster_py_tensors_add(tensors, keys, NULL, false))
        return false;
    dtype = tensors->tensors[0].dtype;
    if ((dtype == MUSTER_U64 || dtype == MUSTER_I64) && tensors->tensors[0].count <= UINT32_MAX)
        return true;
    return muster_py_raise(PyExc_TypeError, "keys must be u64 or i64, fewer than 2^32 of them") !=
           NULL;
}

/* count 0: any. */
static bool add_values(struct muster_py_tensors *tensors, const struct table_object *self,
                       PyObject *values, uint64_t count, bool is_written)
{
    const struct muster_tensor *tensor = &tensors->tensors[tensors->count];

    if (!muster_py_tensors_add(tensors, values, self->dtype == MUSTER_BF16 ? "bf16" : NULL,
                               is_written))
        return false;
    if (tensor->dtype != self->dtype)
        return PyErr_Format(PyExc_TypeError, "values of the table %s must be %s, got %s",
                            self->name, muster_dtype_name(self->dtype),
                            muster_dtype_name(tensor->dtype)) != NULL;
    if (count != 0 && tensor->count != count)
        return PyErr_Format(
                   PyExc_ValueError,
                   "values of table %s must have %llu elements (%lu for each key), got %llu",
                   self->name, (unsigned long long)count, (unsigned long)self->row_elements,
                   (unsigned long long)tensor->count) != NULL;
    return true;
}

/* --- Calls --- */

struct table_call {
    enum muster_rc (*start)(struct muster_params_op *op, struct table_call *call,
                            uint64_t deadline_ns);
    muster_params_op_fn *done;
    struct muster_params_table *table;
    struct muster_params_rows rows;
    void *ret_values;
    struct muster_params_range range;
    uint64_t min_clock, timeout_ns;
};

/* Closes the tensors. */
static PyObject *table_run(PyObject *self, struct table_call *call,
                           struct muster_py_tensors *tensors)
{
    struct muster_py_params *client = client_of(table_of(self));
    struct muster_params_op op = {.data = client};
    PyObject *result = NULL;

    muster_py_params_requests_release(client);
    call->table = table_of(self)->table;
    call->done = muster_py_params_on_done;
    if (muster_py_runtime_enter(&client->runtime, tensors->bytes <= SHORT_BYTES_MAX)) {
        muster_py_runtime_expect(&client->runtime);
        result = muster_py_params_wait(
            client, &op,
            call->start(&op, call, muster_py_runtime_deadline(&client->runtime, call->timeout_ns)));
    }
    muster_py_tensors_close(tensors);
    return result;
}

/* Keys, values, and the values of an answer: missing ones are NULL. */
static bool open_rows(PyObject *self, PyObject *keys, PyObject *values, PyObject *answer,
                      struct muster_py_tensors *tensors, struct table_call *call)
{
    const struct table_object *ours = table_of(self);
    uint64_t elements = 0;
    bool is_right;

    muster_py_tensors_init(tensors);
    is_right = add_keys(tensors, keys);
    if (is_right)
        elements = tensors->tensors[0].count * ours->row_elements;
    if (is_right && elements == 0)
        is_right = muster_py_raise(PyExc_ValueError,
                                   "keys must have at least one element, got none") != NULL;
    is_right = is_right && add_values(tensors, ours, values, elements, answer == values);
    if (is_right && answer != NULL && answer != values)
        is_right = add_values(tensors, ours, answer, elements, true);
    if (!is_right) {
        muster_py_tensors_close(tensors);
        return false;
    }
    call->rows = (struct muster_params_rows){.keys = tensors->tensors[0].data,
                                             .values = tensors->tensors[1].data,
                                             .count = (uint32_t)tensors->tensors[0].count};
    call->ret_values = tensors->tensors[tensors->count - 1].data;
    return true;
}

static enum muster_rc start_push(struct muster_params_op *op, struct table_call *call,
                                 uint64_t deadline_ns)
{
    return muster_params_push_start(op, call->table, &call->rows, deadline_ns, call->done);
}

static PyObject *table_push(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords)
{
    static const char *const names[] = {"keys", "values", "timeout", NULL};
    PyObject *values[3];
    struct table_call call = {.start = start_push};
    struct muster_py_tensors tensors;

    if (!muster_py_read_arguments("push", names, 2, args, count, keywords, values) ||
        !muster_py_read_patience(values[2], &call.timeout_ns) ||
        !open_rows(self, values[0], values[1], NULL, &tensors, &call))
        return NULL;
    return table_run(self, &call, &tensors);
}

static enum muster_rc start_pull(struct muster_params_op *op, struct table_call *call,
                                 uint64_t deadline_ns)
{
    if (call->min_clock > 0)
        return muster_params_pull_after_start(op, call->table, &call->rows, call->min_clock,
                                              deadline_ns, call->done);
    return muster_params_pull_start(op, call->table, &call->rows, deadline_ns, call->done);
}

static PyObject *table_pull(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords)
{
    static const char *const names[] = {"keys", "values", "min_clock", "timeout", NULL};
    PyObject *values[4];
    struct table_call call = {.start = start_pull};
    struct muster_py_tensors tensors;

    if (!muster_py_read_arguments("pull", names, 2, args, count, keywords, values) ||
        !muster_py_read_number(values[2], 0, UINT64_MAX, &call.min_clock) ||
        !muster_py_read_patience(values[3], &call.timeout_ns) ||
        !open_rows(self, values[0], values[1], values[1], &tensors, &call))
        return NULL;
    return table_run(self, &call, &tensors);
}

static enum muster_rc start_push_pull(struct muster_params_op *op, struct table_call *call,
                                      uint64_t deadline_ns)
{
    return muster_params_push_pull_start(op, call->table, &call->rows, call->ret_values,
                                         deadline_ns, call->done);
}

static PyObject *table_push_pull(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords)
{
    static const char *const names[] = {"keys", "values", "answer", "timeout", NULL};
    PyObject *values[4];
    struct table_call call = {.start = start_push_pull};
    struct muster_py_tensors tensors;

    if (!muster_py_read_arguments("push_pull", names, 3, args, count, keywords, values) ||
        !muster_py_read_patience(values[3], &call.timeout_ns) ||
        !open_rows(self, values[0], values[1], values[2], &tensors, &call))
        return NULL;
    return table_run(self, &call, &tensors);
}

/* Reads the memory of a server of this host: True, or False where that cannot be. */
static PyObject *table_peek(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords)
{
    static const char *const names[] = {"keys", "values", NULL};
    PyObject *values[2];
    struct muster_py_params *client = client_of(table_of(self));
    struct muster_error error = {.rc = MUSTER_UNAVAILABLE};
    struct muster_py_tensors tensors;
    struct table_call call;
    bool has_entered;

    if (!muster_py_read_arguments("peek", names, 2, args, count, keywords, values) ||
        !open_rows(self, values[0], values[1], values[1], &tensors, &call))
        return NULL;
    has_entered = muster_py_runtime_enter(&client->runtime, tensors.bytes <= SHORT_BYTES_MAX);
    if (has_entered) {
        error.rc = muster_params_peek(table_of(self)->table, &call.rows);
        muster_py_runtime_leave(&client->runtime);
    }
    muster_py_tensors_close(&tensors);
    if (!has_entered)
        return NULL;
    if (error.rc == MUSTER_OK || error.rc == MUSTER_UNAVAILABLE)
        return PyBool_FromLong(error.rc == MUSTER_OK);
    return muster_py_raise_error(&error, NULL);
}

/* --- Tensors --- */

static enum muster_rc start_push_range(struct muster_params_op *op, struct table_call *call,
                                       uint64_t deadline_ns)
{
    return muster_params_tensor_start(op, call->table, &call->range, MUSTER_PARAMS_DIRECTION_PUSH,
                                      deadline_ns, call->done);
}

static enum muster_rc start_pull_range(struct muster_params_op *op, struct table_call *call,
                                       uint64_t deadline_ns)
{
    return muster_params_tensor_start(op, call->table, &call->range, MUSTER_PARAMS_DIRECTION_PULL,
                                      deadline_ns, call->done);
}

static bool open_range(PyObject *self, PyObject *values, struct muster_py_tensors *tensors,
                       struct table_call *call)
{
    muster_py_tensors_init(tensors);
    if (!add_values(tensors, table_of(self), values, 0, call->start == start_pull_range) ||
        (tensors->tensors[0].count == 0 &&
         muster_py_raise(PyExc_ValueError, "values must have at least one element, got none") ==
             NULL)) {
        muster_py_tensors_close(tensors);
        return false;
    }
    call->range.values = tensors->tensors[0].data;
    call->range.count = tensors->tensors[0].count;
    return true;
}

static PyObject *run_range(PyObject *self, PyObject *values, PyObject *offset, PyObject *timeout,
                           struct table_call *call)
{
    struct muster_py_tensors tensors;

    if (!muster_py_read_number(offset, 0, MUSTER_PARAMS_TENSOR_ELEMENTS_MAX, &call->range.offset) ||
        !muster_py_read_patience(timeout, &call->timeout_ns) ||
        !open_range(self, values, &tensors, call))
        return NULL;
    return table_run(self, call, &tensors);
}

static PyObject *table_push_range(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords)
{
    static const char *const names[] = {"values", "offset", "timeout", NULL};
    PyObject *values[3];
    struct table_call call = {.start = start_push_range};

    if (!muster_py_read_arguments("push_range", names, 1, args, count, keywords, values))
        return NULL;
    return run_range(self, values[0], values[1], values[2], &call);
}

static PyObject *table_pull_range(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords)
{
    static const char *const names[] = {"values", "offset", "min_clock", "timeout", NULL};
    PyObject *values[4];
    struct table_call call = {.start = start_pull_range};

    if (!muster_py_read_arguments("pull_range", names, 1, args, count, keywords, values) ||
        !muster_py_read_number(values[2], 0, UINT64_MAX, &call.range.min_clock))
        return NULL;
    return run_range(self, values[0], values[1], values[3], &call);
}

/* --- Requests --- */

static const struct kind {
    const char *name;
    enum muster_rc (*start)(struct muster_params_op *op, struct table_call *call,
                            uint64_t deadline_ns);
    bool is_range, has_answer;
} kinds[] = {
    {"push", start_push, false, false},           {"pull", start_pull, false, true},
    {"push_pull", start_push_pull, false, true},  {"push_range", start_push_range, true, false},
    {"pull_range", start_pull_range, true, true},
};

static const struct kind *kind_of(PyObject *value)
{
    const char *text;

    if (!muster_py_read_text(value, &text))
        return NULL;
    for (size_t i = 0; text != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, text) == 0)
            return &kinds[i];
    PyErr_Format(PyExc_ValueError,
                 "kind must be push, pull, push_pull, push_range or pull_range, got %R", value);
    return NULL;
}

/** The arguments of start, by their places. */
enum { KIND, KEYS, VALUES, ANSWER, OFFSET, MIN_CLOCK, TIMEOUT, ARGUMENTS };

static bool read_start(PyObject *self, const struct kind *kind, PyObject *const *values,
                       struct muster_py_tensors *tensors, struct table_call *call)
{
    PyObject *answer = kind->has_answer ? values[ANSWER] : NULL;

    call->start = kind->start;
    call->done = muster_py_params_on_request_done;
    call->table = table_of(self)->table;
    if (!muster_py_read_number(values[OFFSET], 0, MUSTER_PARAMS_TENSOR_ELEMENTS_MAX,
                               &call->range.offset) ||
        !muster_py_read_number(values[MIN_CLOCK], 0, UINT64_MAX, &call->min_clock) ||
        !muster_py_read_patience(values[TIMEOUT], &call->timeout_ns))
        return false;
    call->range.min_clock = call->min_clock;
    if (kind->is_range)
        return open_range(self, values[VALUES], tensors, call);
    if (answer == NULL || answer == Py_None)
        answer = kind->has_answer ? values[VALUES] : NULL;
    return open_rows(self, values[KEYS], values[VALUES], answer, tensors, call);
}

/* Enters and leaves. */
static PyObject *request_start(struct muster_py_params *client, struct table_call *call,
                               struct muster_py_params_request *request)
{
    struct muster_params_op *op = muster_py_params_request_op(request);
    size_t bytes = muster_py_params_request_tensors(request)->bytes;

    if (!muster_py_runtime_enter(&client->runtime, bytes <= SHORT_BYTES_MAX))
        return NULL;
    return muster_py_params_request_leave(
        request,
        call->start(op, call, muster_py_runtime_deadline(&client->runtime, call->timeout_ns)));
}

static PyObject *table_start(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords)
{
    static const char *const names[] = {"kind",   "keys",      "values",  "answer",
                                        "offset", "min_clock", "timeout", NULL};
    PyObject *values[ARGUMENTS], *result = NULL;
    struct muster_py_params *client = client_of(table_of(self));
    struct muster_py_params_request *request;
    struct table_call call = {.min_clock = 0};
    const struct kind *kind;

    if (!muster_py_read_arguments("start", names, 3, args, count, keywords, values))
        return NULL;
    muster_py_params_requests_release(client);
    kind = kind_of(values[KIND]);
    request = kind != NULL ? muster_py_params_request_new(kind->name) : NULL;
    if (request == NULL)
        return NULL;
    if (read_start(self, kind, values, muster_py_params_request_tensors(request), &call)) {
        muster_py_params_request_own(request, client);
        result = request_start(client, &call, request);
    }
    if (result == NULL)
        Py_DECREF((PyObject *)request);
    return result;
}

/* --- Attributes --- */

static PyObject *table_get_round(PyObject *self, void *unused)
{
    struct muster_py_params *client = client_of(table_of(self));
    uint64_t number;

    (void)unused;
    if (!muster_py_runtime_enter(&client->runtime, true))
        return NULL;
    number = muster_params_table_round(table_of(self)->table);
    muster_py_runtime_leave(&client->runtime);
    return PyLong_FromUnsignedLongLong(number);
}

static PyObject *table_get_name(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(table_of(self)->name);
}

static PyObject *table_get_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(muster_dtype_name(table_of(self)->dtype));
}

static PyObject *table_get_row_elements(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(table_of(self)->row_elements);
}

static PyObject *table_get_elements(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(table_of(self)->tensor_elements);
}

static void table_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_CLEAR(table_of(self)->client);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- Open --- */

PyObject *muster_py_params_table(PyObject *self, PyObject *args, PyObject *keywords)
{
    struct muster_py_params *client = (struct muster_py_params *)self;
    struct muster_params_schema schema = {.wire_dtype = MUSTER_F32};
    struct muster_params_op op = {.data = client};
    struct muster_params_table *table = NULL;
    uint64_t timeout_ns;
    PyObject *result;

    if (!muster_py_read_schema(args, keywords, &schema, &timeout_ns) ||
        !muster_py_runtime_enter(&client->runtime, true))
        return NULL;
    muster_py_runtime_expect(&client->runtime);
    result = muster_py_params_wait(
        client, &op,
        muster_params_table_start(&op, client->params, &schema, &table,
                                  muster_py_runtime_deadline(&client->runtime, timeout_ns),
                                  muster_py_params_on_done));
    if (result == NULL)
        return NULL;
    Py_DECREF(result);
    result = PyType_GenericAlloc(table_type, 0);
    if (result == NULL)
        return NULL;
    Py_INCREF(self);
    table_of(result)->client = self;
    table_of(result)->table = table;
    table_of(result)->row_elements = schema.row_elements;
    table_of(result)->tensor_elements = schema.tensor_elements;
    table_of(result)->dtype = schema.wire_dtype;
    (void)snprintf(table_of(result)->name, sizeof(table_of(result)->name), "%s", schema.name);
    return result;
}

/* --- The type --- */

static PyMethodDef table_methods[] = {
    {"push", MUSTER_PY_FUNCTION(table_push), METH_FASTCALL | METH_KEYWORDS,
     "push(keys, values, timeout=30)\n--\n\nGive gradients or values to rows: applied exactly "
     "once, "
     "also when a server dies."},
    {"pull", MUSTER_PY_FUNCTION(table_pull), METH_FASTCALL | METH_KEYWORDS,
     "pull(keys, values, min_clock=0, timeout=30)\n--\n\nFetch rows into values, once all sources "
     "have completed min_clock steps."},
    {"push_pull", MUSTER_PY_FUNCTION(table_push_pull), METH_FASTCALL | METH_KEYWORDS,
     "push_pull(keys, values, answer, timeout=30)\n--\n\nPush, and get the rows as they are after "
     "the push; answer may be values."},
    {"peek", MUSTER_PY_FUNCTION(table_peek), METH_FASTCALL | METH_KEYWORDS,
     "peek(keys, values)\n--\n\nRead rows of a server of this host from its memory, without a "
     "message. False: pull them."},
    {"push_range", MUSTER_PY_FUNCTION(table_push_range), METH_FASTCALL | METH_KEYWORDS,
     "push_range(values, offset=0, timeout=30)\n--\n\nPush to the elements of a tensor from offset "
     "on: whole blocks."},
    {"pull_range", MUSTER_PY_FUNCTION(table_pull_range), METH_FASTCALL | METH_KEYWORDS,
     "pull_range(values, offset=0, min_clock=0, timeout=30)\n--\n\nFetch elements of a tensor from "
     "offset on."},
    {"start", MUSTER_PY_FUNCTION(table_start), METH_FASTCALL | METH_KEYWORDS,
     "start(kind, keys, values, answer=None, offset=0, min_clock=0, timeout=30)\n--\n\nStart an "
     "operation, and return a ParamsRequest for it; keys is None for a range."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef table_attributes[] = {
    {"name", table_get_name, NULL, "Its name.", NULL},
    {"dtype", table_get_dtype, NULL, "The type of values in pushes and pulls.", NULL},
    {"row_elements", table_get_row_elements, NULL, "Values in a row, or in a block.", NULL},
    {"elements", table_get_elements, NULL, "Elements of the tensor; 0: it has rows.", NULL},
    {"round", table_get_round, NULL, "The open round, as far as this client knows.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_dealloc, MUSTER_PY_SLOT(table_dealloc)},
    {Py_tp_methods, table_methods},
    {Py_tp_getset, table_attributes},
    {Py_tp_doc, MUSTER_PY_SLOT("Rows or a tensor of a client: see muster.params.Table.")},
    {0, NULL},
};

static PyType_Spec table_spec = MUSTER_PY_SPEC("muster._muster.ParamsTable", struct table_object,
                                               Py_TPFLAGS_DISALLOW_INSTANTIATION, table_slots);

bool muster_py_add_params_table(PyObject *module)
{
    return muster_py_add_type(module, &table_spec, &table_type);
}
