/* Datasets: a batch is a tuple of its records (bytes), their numbers and its epoch. The dataset is closed with its
 * last reference; its position, which a strategy may hold, is one. */
#include "python/dataset.h"

#include <muster/dataset.h>

#include <stdlib.h>
#include <string.h>

#include "python/tensor.h"

#define CLAIMS_MAX (1u << 20) /* of one step */

struct dataset_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_dataset *dataset; /* NULL: it was not opened */
    struct muster_py_calls calls;
    PyObject *texts; /* a tuple that keeps the paths */
    const char **paths;
    uint32_t batch;
};

static struct dataset_object *dataset_of(PyObject *self)
{
    return (struct dataset_object *)self;
}

/* --- Calls --- */

static bool dataset_enter(struct dataset_object *self, bool is_short)
{
    if (!muster_py_calls_check_fork(&self->calls) || !muster_py_calls_lock(&self->calls))
        return false;
    muster_py_calls_enter(&self->calls, is_short);
    return true;
}

static void dataset_leave(struct dataset_object *self)
{
    muster_py_calls_leave(&self->calls);
    muster_py_calls_unlock(&self->calls);
}

static PyObject *raise_or_none(enum muster_rc rc, struct muster_error *error)
{
    if (rc == MUSTER_OK)
        Py_RETURN_NONE;
    error->rc = rc;
    return muster_py_raise_error(error, NULL);
}

/* --- Open and close --- */

static const char *const kind_names[] = {
    [MUSTER_DATASET_LINES] = "lines", [MUSTER_DATASET_CSV] = "csv",
    [MUSTER_DATASET_FIXED] = "fixed", [MUSTER_DATASET_TFRECORD] = "tfrecord",
    [MUSTER_DATASET_MEMORY] = NULL,   [MUSTER_DATASET_CALLBACK] = "numbers",
};

static bool read_kind(const char *text, enum muster_dataset_kind *ret_kind)
{
    for (size_t i = 0; i < sizeof(kind_names) / sizeof(kind_names[0]); i++)
        if (kind_names[i] != NULL && strcmp(kind_names[i], text) == 0) {
            *ret_kind = (enum muster_dataset_kind)i;
            return true;
        }
    return PyErr_Format(PyExc_ValueError,
                        "kind must be lines, csv, fixed, tfrecord or numbers, got '%s'",
                        text) != NULL;
}

/* The numbers are what such a dataset is for: its records have no bytes. */
static enum muster_rc read_nothing(void *data, uint64_t number, void *ret_bytes, size_t *ret_size)
{
    (void)data;
    (void)number;
    (void)ret_bytes;
    *ret_size = 0;
    return MUSTER_OK;
}

/* False: an exception is set. */
static bool keep_paths(struct dataset_object *self, PyObject *paths,
                       struct muster_dataset_options *options)
{
    Py_ssize_t count;

    self->texts = paths != NULL && paths != Py_None ? PySequence_Tuple(paths) : PyTuple_New(0);
    if (self->texts == NULL)
        return false;
    count = PyTuple_Size(self->texts);
    self->paths = PyMem_Calloc((size_t)count + 1, sizeof(*self->paths));
    if (self->paths == NULL)
        return PyErr_NoMemory() != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        self->paths[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(self->texts, i), NULL);
        if (self->paths[i] == NULL)
            return false;
    }
    options->paths = self->paths;
    options->path_count = (size_t)count;
    return true;
}

static bool read_options(struct dataset_object *self, PyObject *args, PyObject *keywords,
                         struct muster_dataset_options *options)
{
    static const char *const names[] = {
        "kind",         "paths",   "count", "record_bytes", "header_bytes", "footer_bytes",
        "header_lines", "shuffle", "seed",  "epochs",       "batch",        "prefetch_bytes",
        "threads",      NULL};
    const char *kind;
    PyObject *paths = NULL, *numbers[10] = {NULL};
    uint64_t header_lines, batch, threads;
    int is_shuffled = 0;

    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "s|$OOOOOOpOOOOO:Dataset", (char **)(uintptr_t)names, &kind, &paths,
            &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4], &is_shuffled,
            &numbers[5], &numbers[6], &numbers[7], &numbers[8], &numbers[9]) ||
        !read_kind(kind, &options->kind) || !keep_paths(self, paths, options) ||
        !muster_py_read_number(numbers[0], 0, UINT64_MAX, &options->record_count) ||
        !muster_py_read_number(numbers[1], 0, UINT64_MAX, &options->record_bytes) ||
        !muster_py_read_number(numbers[2], 0, UINT64_MAX, &options->header_bytes) ||
        !muster_py_read_number(numbers[3], 0, UINT64_MAX, &options->footer_bytes) ||
        !muster_py_read_number(numbers[4], 0, UINT32_MAX, &header_lines) ||
        !muster_py_read_number(numbers[5], 0, UINT64_MAX, &options->seed) ||
        !muster_py_read_number(numbers[6], 0, UINT64_MAX, &options->epoch_count) ||
        !muster_py_read_number(numbers[7], 1, CLAIMS_MAX, &batch) ||
        !muster_py_read_number(numbers[8], 0, UINT64_MAX, &options->prefetch_bytes_max) ||
        !muster_py_read_number(numbers[9], 0, UINT32_MAX, &threads))
        return false;
    options->is_shuffled = is_shuffled != 0;
    options->header_lines = (uint32_t)header_lines;
    options->thread_count = (uint32_t)threads;
    options->batch = self->batch = (uint32_t)batch;
    if (options->kind == MUSTER_DATASET_CALLBACK) {
        options->read = read_nothing;
        options->record_bytes_max = 1;
        options->is_prefetch_off = true;
    }
    return true;
}

static PyObject *dataset_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    struct muster_dataset_options options = {0};
    struct muster_error error = {.rc = MUSTER_OK};
    struct dataset_object *self = dataset_of(PyType_GenericAlloc(type, 0));
    enum muster_rc rc;

    if (self == NULL)
        return NULL;
    if (!muster_py_calls_init(&self->calls) || !read_options(self, args, keywords, &options) ||
        !dataset_enter(self, false)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    rc = muster_dataset_open(&options, &self->dataset, &error);
    dataset_leave(self);
    if (rc == MUSTER_OK)
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return raise_or_none(rc, &error);
}

static void dataset_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct dataset_object *ours = dataset_of(self);

    if (ours->dataset != NULL && !muster_py_calls_is_forked(&ours->calls)) {
        muster_py_calls_enter(&ours->calls, false);
        muster_dataset_close(ours->dataset);
        muster_py_calls_leave(&ours->calls);
    }
    muster_py_calls_fini(&ours->calls);
    PyMem_Free(ours->paths);
    Py_XDECREF(ours->texts);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- Batches --- */

static PyObject *list_of_records(const struct muster_dataset_batch *batch)
{
    PyObject *list = PyList_New((Py_ssize_t)batch->count);

    for (size_t i = 0; list != NULL && i < batch->count; i++) {
        PyObject *record =
            PyBytes_FromStringAndSize(batch->records[i].data, (Py_ssize_t)batch->records[i].size);

        if (record == NULL || PyList_SetItem(list, (Py_ssize_t)i, record) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *list_of_numbers(const struct muster_dataset_batch *batch)
{
    PyObject *list = PyList_New((Py_ssize_t)batch->count);

    for (size_t i = 0; list != NULL && i < batch->count; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(batch->numbers[i]);

        if (number == NULL || PyList_SetItem(list, (Py_ssize_t)i, number) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *tuple_of_batch(const struct muster_dataset_batch *batch)
{
    PyObject *records = list_of_records(batch), *numbers = list_of_numbers(batch), *tuple = NULL;

    if (records != NULL && numbers != NULL)
        tuple = Py_BuildValue("(OOK)", records, numbers, (unsigned long long)batch->epoch);
    Py_XDECREF(records);
    Py_XDECREF(numbers);
    return tuple;
}

/* The bytes are copied: the batch is the dataset's until its next call. Leaves the call. */
static PyObject *give_batch(struct dataset_object *self, enum muster_rc rc,
                            const struct muster_dataset_batch *batch, struct muster_error *error)
{
    PyObject *result;

    muster_py_calls_leave(&self->calls);
    result = rc == MUSTER_OK ? tuple_of_batch(batch) : NULL;
    muster_py_calls_unlock(&self->calls);
    if (rc == MUSTER_OK)
        return result;
    return raise_or_none(rc == MUSTER_OUT_OF_RANGE ? MUSTER_OK : rc, error); /* None: the end */
}

static PyObject *dataset_next(PyObject *self, PyObject *unused)
{
    struct dataset_object *ours = dataset_of(self);
    struct muster_dataset_batch batch;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)unused;
    if (!dataset_enter(ours, false))
        return NULL;
    return give_batch(ours, muster_dataset_next(ours->dataset, &batch, &error), &batch, &error);
}

static PyObject *dataset_next_share(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords)
{
    static const char *const names[] = {"rank", "size", NULL};
    struct dataset_object *ours = dataset_of(self);
    struct muster_dataset_batch batch;
    struct muster_error error = {.rc = MUSTER_OK};
    PyObject *values[2];
    uint64_t rank, size;

    if (!muster_py_read_arguments("next_share", names, 2, args, count, keywords, values) ||
        !muster_py_read_number(values[0], 0, UINT32_MAX, &rank) ||
        !muster_py_read_number(values[1], 0, UINT32_MAX, &size) || !dataset_enter(ours, false))
        return NULL;
    return give_batch(
        ours,
        muster_dataset_next_share(ours->dataset, (uint32_t)rank, (uint32_t)size, &batch, &error),
        &batch, &error);
}

/* --- Shares of micro-batches --- */

/* Within the lock, with the GIL. */
static PyObject *list_of_shares(const struct dataset_object *self,
                                const struct muster_dataset_shares *shares)
{
    PyObject *list = PyList_New((Py_ssize_t)shares->count);

    for (uint32_t i = 0; list != NULL && i < shares->count; i++) {
        struct muster_dataset_batch batch;
        struct muster_error error;
        enum muster_rc rc = muster_dataset_share(self->dataset, shares->first + i, &batch, &error);
        PyObject *share = rc == MUSTER_OK ? tuple_of_batch(&batch) : raise_or_none(rc, &error);

        if (share == NULL || PyList_SetItem(list, (Py_ssize_t)i, share) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *dataset_next_shares(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords)
{
    static const char *const names[] = {"first", "count", "total", NULL};
    struct dataset_object *ours = dataset_of(self);
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_dataset_shares shares;
    PyObject *values[3], *result;
    uint64_t numbers[3];
    enum muster_rc rc;

    if (!muster_py_read_arguments("next_shares", names, 3, args, count, keywords, values))
        return NULL;
    for (int i = 0; i < 3; i++)
        if (!muster_py_read_number(values[i], 0, UINT32_MAX, &numbers[i]))
            return NULL;
    shares = (struct muster_dataset_shares){.first = (uint32_t)numbers[0],
                                            .count = (uint32_t)numbers[1],
                                            .total = (uint32_t)numbers[2]};
    if (!dataset_enter(ours, false))
        return NULL;
    rc = muster_dataset_next_shares(ours->dataset, &shares, &error);
    muster_py_calls_leave(&ours->calls);
    result = rc == MUSTER_OK ? list_of_shares(ours, &shares) : NULL;
    muster_py_calls_unlock(&ours->calls);
    if (rc == MUSTER_OK)
        return result;
    return raise_or_none(rc == MUSTER_OUT_OF_RANGE ? MUSTER_OK : rc, &error); /* None: the end */
}

static PyObject *dataset_complete_step(PyObject *self, PyObject *unused)
{
    struct dataset_object *ours = dataset_of(self);
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc;

    (void)unused;
    if (!dataset_enter(ours, true))
        return NULL;
    rc = muster_dataset_complete_step(ours->dataset, &error);
    dataset_leave(ours);
    return raise_or_none(rc, &error);
}

/* --- Claims --- */

/* The tensor of the argument, which has the values that claims take. */
static bool open_claims(const struct dataset_object *self, struct muster_py_tensors *tensors,
                        PyObject *object)
{
    const struct muster_tensor *tensor;

    muster_py_tensors_init(tensors);
    if (!muster_py_tensors_add(tensors, object, NULL, true))
        return false;
    tensor = &tensors->tensors[0];
    if (tensor->dtype == MUSTER_F32 && tensor->count == MUSTER_DATASET_CLAIMS(self->batch))
        return true;
    PyErr_Format(PyExc_ValueError, "claims must be an array of %u values of f32",
                 (unsigned)MUSTER_DATASET_CLAIMS(self->batch));
    muster_py_tensors_close(tensors);
    return false;
}

static PyObject *dataset_record_claims(PyObject *self, PyObject *array)
{
    struct dataset_object *ours = dataset_of(self);
    struct muster_py_tensors tensors;

    if (!open_claims(ours, &tensors, array))
        return NULL;
    if (!dataset_enter(ours, true)) {
        muster_py_tensors_close(&tensors);
        return NULL;
    }
    muster_dataset_record_claims(ours->dataset, tensors.tensors[0].data);
    dataset_leave(ours);
    muster_py_tensors_close(&tensors);
    Py_RETURN_NONE;
}

static PyObject *dataset_apply_claims(PyObject *self, PyObject *array)
{
    struct dataset_object *ours = dataset_of(self);
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_py_tensors tensors;
    uint64_t used = 0;
    enum muster_rc rc;

    if (!open_claims(ours, &tensors, array))
        return NULL;
    if (!dataset_enter(ours, true)) {
        muster_py_tensors_close(&tensors);
        return NULL;
    }
    rc = muster_dataset_apply_claims(ours->dataset, tensors.tensors[0].data, &used, &error);
    dataset_leave(ours);
    muster_py_tensors_close(&tensors);
    return rc == MUSTER_OK ? PyLong_FromUnsignedLongLong(used) : raise_or_none(rc, &error);
}

/* --- Attributes --- */

static void free_memory(PyObject *owner, struct muster_py_memory *memory)
{
    (void)owner;
    PyMem_Free(memory);
}

static PyObject *dataset_get_position(PyObject *self, void *unused)
{
    struct muster_py_memory *memory = PyMem_Calloc(1, sizeof(*memory));
    PyObject *tensor;

    (void)unused;
    if (memory == NULL)
        return PyErr_NoMemory();
    memory->tensor = muster_dataset_position(dataset_of(self)->dataset);
    tensor = muster_py_tensor_new(self, memory, free_memory);
    if (tensor == NULL)
        PyMem_Free(memory);
    return tensor;
}

/* A call of another thread may move the position. In a fork, and in a handler of a signal within a call, nobody does.
 * False: that thread is in a call, and Python has the exception. */
static bool dataset_look(struct dataset_object *ours, uint64_t *ret_epoch, bool *ret_is_over)
{
    bool is_still =
        muster_py_calls_is_forked(&ours->calls) || muster_py_calls_is_inside(&ours->calls);

    if (!is_still && !muster_py_calls_lock(&ours->calls))
        return false;
    *ret_epoch = muster_dataset_epoch(ours->dataset);
    *ret_is_over = muster_dataset_is_over(ours->dataset);
    if (!is_still)
        muster_py_calls_unlock(&ours->calls);
    return true;
}

static PyObject *dataset_get_epoch(PyObject *self, void *unused)
{
    uint64_t epoch;
    bool is_over;

    (void)unused;
    return dataset_look(dataset_of(self), &epoch, &is_over) ? PyLong_FromUnsignedLongLong(epoch)
                                                            : NULL;
}

static PyObject *dataset_get_is_over(PyObject *self, void *unused)
{
    uint64_t epoch;
    bool is_over;

    (void)unused;
    return dataset_look(dataset_of(self), &epoch, &is_over) ? PyBool_FromLong(is_over) : NULL;
}

static Py_ssize_t dataset_length(PyObject *self)
{
    return (Py_ssize_t)muster_dataset_record_count(dataset_of(self)->dataset);
}

static PyObject *dataset_get_claims(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(MUSTER_DATASET_CLAIMS(dataset_of(self)->batch));
}

/* --- The type --- */

static PyMethodDef dataset_methods[] = {
    {"next", dataset_next, METH_NOARGS,
     "next()\n--\n\n(records, numbers, epoch) of the next batch; None after the last epoch."},
    {"next_share", MUSTER_PY_FUNCTION(dataset_next_share), METH_FASTCALL | METH_KEYWORDS,
     "next_share(rank, size)\n--\n\nThe part of a member in the next step; None after the last "
     "epoch. The position does not move."},
    {"next_shares", MUSTER_PY_FUNCTION(dataset_next_shares), METH_FASTCALL | METH_KEYWORDS,
     "next_shares(first, count, total)\n--\n\nA list of these shares of the next step, which has "
     "total shares; None after the last epoch. The position does not move."},
    {"complete_step", dataset_complete_step, METH_NOARGS,
     "complete_step()\n--\n\nMove the position past the step whose shares all members have used."},
    {"record_claims", dataset_record_claims, METH_O,
     "record_claims(array)\n--\n\nWrite which records of the step this member has used."},
    {"apply_claims", dataset_apply_claims, METH_O,
     "apply_claims(array)\n--\n\nMove the position by the sum of the members' claims; returns how "
     "many records they have used."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef dataset_attributes[] = {
    {"position", dataset_get_position, NULL, "The place in the data: state of the job.", NULL},
    {"epoch", dataset_get_epoch, NULL, "Of the last batch, from 0.", NULL},
    {"is_over", dataset_get_is_over, NULL,
     "Whether the position is behind the last epoch: no step is left.", NULL},
    {"claims", dataset_get_claims, NULL, "Values of f32 that claims take.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot dataset_slots[] = {
    {Py_tp_new, MUSTER_PY_SLOT(dataset_new)},
    {Py_tp_dealloc, MUSTER_PY_SLOT(dataset_dealloc)},
    {Py_tp_methods, dataset_methods},
    {Py_tp_getset, dataset_attributes},
    {Py_sq_length, MUSTER_PY_SLOT(dataset_length)},
    {Py_tp_doc, MUSTER_PY_SLOT("Records of files; see muster.data.")},
    {0, NULL},
};

static PyType_Spec dataset_spec = MUSTER_PY_SPEC("muster._muster.Dataset", struct dataset_object,
                                                 Py_TPFLAGS_BASETYPE, dataset_slots);

bool muster_py_add_dataset(PyObject *module)
{
    return muster_py_add_type(module, &dataset_spec, NULL);
}
