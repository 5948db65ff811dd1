/* The type muster.MicroBatches: steps of a fixed number of slots, whose sum does not depend on the number of members.
 * Arrays are copied in and out: the library's memory moves when the members change. */
#include <muster/micro_batches.h>

#include "python/strategy.h"

#include <string.h>

struct micro_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_py_strategy *owner; /* which has the library's object, until its close */
    struct muster_micro_batches_options options;
    bool is_begun;        /* and not summed */
    uint64_t step, epoch; /* in which begin was called */
    uint32_t left;        /* slots of this member that have not been put since */
};

static PyTypeObject *micro_type;

static struct micro_object *micro_of(PyObject *self)
{
    return (struct micro_object *)self;
}

/* --- Making one --- */

/** The arguments of one call of the library, and its results. */
struct micro_call {
    struct micro_object *self;
    struct muster_dataset_shares shares;
    uint32_t slot;
};

/* The text of an error goes where run looks for it. */
static enum muster_rc run_open(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct micro_object *self = call->data;
    enum muster_rc rc =
        muster_micro_batches_open(strategy, &self->options, &self->owner->micro, call->error);

    if (rc == MUSTER_OK)
        self->options.slot_count = muster_micro_batches_slot_count(self->owner->micro);
    return rc;
}

/* None is the launcher's number, which C calls 0. */
static bool slots_read(PyObject *value, uint32_t *ret_slots)
{
    struct muster_error error;
    uint64_t slots;

    if (!muster_py_read_number(value, 0, UINT32_MAX, &slots))
        return false;
    if (slots == 0 && value != Py_None) {
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "slots must be 1 to %u, or None for those of muster run "
                         "--constant-batch, got 0",
                         MUSTER_MICRO_SLOTS_MAX);
        return muster_py_raise_error(&error, muster_py_error_classes[MUSTER_INVALID_ARGUMENT]) !=
               NULL;
    }
    *ret_slots = (uint32_t)slots;
    return true;
}

PyObject *muster_py_strategy_micro_batches(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                           PyObject *keywords)
{
    static const char *const names[] = {"slots", "elements", "dtype", NULL};
    struct muster_error error = {.rc = MUSTER_OK};
    struct muster_py_call call = {.run = run_open,
                                  .is_short = true,
                                  .error = &error,
                                  .invalid_argument =
                                      muster_py_error_classes[MUSTER_INVALID_ARGUMENT]};
    struct muster_micro_batches_options options = {.dtype = MUSTER_F32};
    PyObject *values[3], *made, *result;

    if (!muster_py_read_arguments("micro_batches", names, 2, args, count, keywords, values) ||
        !slots_read(values[0], &options.slot_count) ||
        !muster_py_read_number(values[1], 0, UINT64_MAX, &options.element_count) ||
        !muster_py_read_dtype(values[2], &options.dtype))
        return NULL;
    made = PyType_GenericAlloc(micro_type, 0);
    if (made == NULL)
        return NULL;
    micro_of(made)->options = options;
    micro_of(made)->owner = (struct muster_py_strategy *)Py_NewRef(self);
    call.data = micro_of(made);
    result = muster_py_call_run(muster_py_strategy_of(self), &call);
    if (result == NULL)
        Py_CLEAR(made);
    Py_XDECREF(result);
    return made;
}

static void micro_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_XDECREF((PyObject *)micro_of(self)->owner);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- A step --- */

static enum muster_rc run_begin(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct micro_call *ours = call->data;
    struct micro_object *self = ours->self;
    enum muster_rc rc = muster_micro_batches_begin(self->owner->micro, &ours->shares);

    self->is_begun = rc == MUSTER_OK;
    self->step = muster_py_step_of(self->owner);
    self->epoch = muster_strategy_epoch(strategy);
    self->left = ours->shares.count;
    return rc;
}

static enum muster_rc begun_check(const struct micro_object *self,
                                  const struct muster_strategy *strategy, const char *name,
                                  struct muster_error *ret_error)
{
    if (self->is_begun && self->step == muster_py_step_of(self->owner) &&
        self->epoch == muster_strategy_epoch(strategy))
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                            "%s: call begin of the micro-batches first, in each step", name);
}

static PyObject *micro_begin(PyObject *self, PyObject *unused)
{
    struct micro_call ours = {.self = micro_of(self)};
    struct muster_py_call call = {.run = run_begin, .is_short = true, .data = &ours};
    PyObject *result = muster_py_call_run(micro_of(self)->owner, &call);

    (void)unused;
    if (result == NULL)
        return NULL;
    Py_DECREF(result);
    return PyObject_CallFunction((PyObject *)&PyRange_Type, "II", ours.shares.first,
                                 ours.shares.first + ours.shares.count);
}

/* The arrays of one tensor, one after the other. */
static bool arrays_open(const struct micro_object *self, struct muster_py_tensors *tensors,
                        PyObject *object, bool is_written)
{
    const char *dtype =
        self->options.dtype == MUSTER_BF16 ? muster_dtype_name(self->options.dtype) : NULL;
    uint64_t elements = 0;
    bool is_right = true;

    if (!muster_py_tensors_open_as(tensors, object, dtype, is_written))
        return false;
    for (size_t i = 0; i < tensors->count; i++) {
        is_right = is_right && tensors->tensors[i].dtype == self->options.dtype;
        elements += tensors->tensors[i].count;
    }
    if (is_right && elements == self->options.element_count)
        return true;
    PyErr_Format(PyExc_ValueError, "arrays must have %llu elements of %s together, got %llu%s",
                 (unsigned long long)self->options.element_count,
                 muster_dtype_name(self->options.dtype), (unsigned long long)elements,
                 is_right ? "" : " of another type");
    muster_py_tensors_close(tensors);
    return false;
}

static void copy_all(const struct muster_tensor *tensor, const struct muster_py_call *call,
                     bool is_put)
{
    uint8_t *at = tensor->data;

    for (size_t i = 0; i < call->count; i++) {
        size_t bytes = (size_t)call->tensors[i].count * muster_dtype_bytes(tensor->dtype);

        if (bytes > 0)
            memcpy(is_put ? at : call->tensors[i].data, is_put ? call->tensors[i].data : at, bytes);
        at += bytes;
    }
}

static enum muster_rc run_put(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct micro_call *ours = call->data;
    struct muster_tensor tensor;
    enum muster_rc rc = begun_check(ours->self, strategy, "put", call->error);

    if (rc != MUSTER_OK)
        return rc;
    if (ours->self->left == 0 ||
        !muster_micro_batches_next(ours->self->owner->micro, &ours->slot, &tensor))
        return muster_error_set(
            call->error, MUSTER_FAILED_PRECONDITION,
            "put: all slots of this member in this step have been put; call sum");
    ours->self->left--;
    copy_all(&tensor, call, true);
    return MUSTER_OK;
}

static enum muster_rc run_sum(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct micro_call *ours = call->data;
    struct muster_micro_batches *micro = ours->self->owner->micro;
    struct muster_tensor tensor;
    enum muster_rc rc = begun_check(ours->self, strategy, "sum", call->error);

    if (rc != MUSTER_OK)
        return rc;
    if (ours->self->left > 0)
        return muster_error_set(call->error, MUSTER_FAILED_PRECONDITION,
                                "sum: all slots of this member must be put first, %u are missing",
                                ours->self->left);
    (void)!muster_micro_batches_next(micro, &ours->slot, &tensor); /* there is none */
    ours->self->is_begun = false;
    rc = muster_micro_batches_sum(micro, &tensor);
    if (rc == MUSTER_OK)
        copy_all(&tensor, call, false);
    else
        *call->error = *muster_strategy_error(strategy);
    return rc;
}

/* put and sum: arrays in, or out. The call's error has its text. */
static PyObject *run_arrays(PyObject *self, const char *name, struct muster_py_call *call,
                            PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"arrays", NULL};
    struct muster_py_tensors tensors;
    PyObject *values[1];

    if (!muster_py_read_arguments(name, names, 1, args, count, keywords, values) ||
        !arrays_open(micro_of(self), &tensors, values[0], call->run == run_sum))
        return NULL;
    return muster_py_call_run_tensors(micro_of(self)->owner, call, &tensors);
}

static PyObject *micro_put(PyObject *self, PyObject *const *args, Py_ssize_t count,
                           PyObject *keywords)
{
    struct muster_error error = {.rc = MUSTER_OK};
    struct micro_call ours = {.self = micro_of(self)};
    struct muster_py_call call = {.run = run_put, .error = &error, .data = &ours};
    PyObject *result = run_arrays(self, "put", &call, args, count, keywords);

    if (result == NULL)
        return NULL;
    Py_DECREF(result);
    return PyLong_FromUnsignedLong(ours.slot);
}

static PyObject *micro_sum(PyObject *self, PyObject *const *args, Py_ssize_t count,
                           PyObject *keywords)
{
    struct muster_error error = {.rc = MUSTER_OK};
    struct micro_call ours = {.self = micro_of(self)};
    struct muster_py_call call = {.run = run_sum, .error = &error, .data = &ours};

    return run_arrays(self, "sum", &call, args, count, keywords);
}

/* --- Attributes --- */

static PyObject *micro_get_slots(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(micro_of(self)->options.slot_count);
}

static PyObject *micro_get_elements(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(micro_of(self)->options.element_count);
}

static PyObject *micro_get_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(muster_dtype_name(micro_of(self)->options.dtype));
}

/* --- The type --- */

static PyMethodDef micro_methods[] = {
    {"begin", micro_begin, METH_NOARGS,
     "begin()\n--\n\nThe slots of this member in the step that strategy.begin has begun: a range, "
     "which may be empty."},
    {"put", MUSTER_PY_FUNCTION(micro_put), METH_FASTCALL | METH_KEYWORDS,
     "put(arrays)\n--\n\nThe tensor of the next slot of begin's range: an array, or a list of "
     "arrays that lie one after the other in it. They are copied. Returns the slot."},
    {"sum", MUSTER_PY_FUNCTION(micro_sum), METH_FASTCALL | METH_KEYWORDS,
     "sum(arrays)\n--\n\nWrite the sum of all slots of all members into an array, or a list of "
     "them, when all slots of this member are put. After Aborted the step runs again: call "
     "strategy.begin, and put all slots of the new range."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef micro_attributes[] = {
    {"slots", micro_get_slots, NULL, "Slots of a step.", NULL},
    {"elements", micro_get_elements, NULL, "Elements of the tensor of a slot.", NULL},
    {"dtype", micro_get_dtype, NULL, "Their type.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot micro_slots[] = {
    {Py_tp_dealloc, MUSTER_PY_SLOT(micro_dealloc)},
    {Py_tp_methods, micro_methods},
    {Py_tp_getset, micro_attributes},
    {Py_tp_doc,
     MUSTER_PY_SLOT(
         "Steps of a fixed number of slots, which the members share out: "
         "strategy.micro_batches. The sum of the slots' tensors has the same bits whatever the "
         "number of members, so that a job with deaths ends as one without. Everything that a "
         "tensor depends on must follow from the step and the slot. Arrays are in host memory.")},
    {0, NULL},
};

static PyType_Spec micro_spec = MUSTER_PY_SPEC("muster.MicroBatches", struct micro_object,
                                               Py_TPFLAGS_DISALLOW_INSTANTIATION, micro_slots);

bool muster_py_add_micro_batches(PyObject *module)
{
    return muster_py_add_type(module, &micro_spec, &micro_type);
}
