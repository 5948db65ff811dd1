/* Calls of replicas, on values of all of this member's; python/muster/replicas.py has those of each replica. */
#include "python/strategy.h"

#include <muster/replicas.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/** The arrays of a call: of each replica one, or several. */
struct values {
    struct muster_py_tensors tensors;
    struct muster_shaped_tensor
        shaped[MUSTER_REPLICAS_MAX]; /* one each, where their dimensions count */
    int32_t axis;
    const struct muster_tensor *result;
    void *whole; /* of gather: from malloc */
    size_t whole_bytes;
    struct muster_shaped_tensor whole_shape;
    struct muster_error error;
};

/* --- Arguments --- */

/* arrays: a list or tuple. */
static bool open_arrays(struct muster_py_tensors *tensors, PyObject *arrays, const char *dtype,
                        bool are_written)
{
    Py_ssize_t count = PySequence_Size(arrays);
    bool is_right;

    muster_py_tensors_init(tensors);
    tensors->takes_device = true;
    is_right = count >= 0 && muster_py_tensors_reserve(tensors, (size_t)count);
    for (Py_ssize_t i = 0; is_right && i < count; i++) {
        PyObject *array = PySequence_GetItem(arrays, i);

        is_right = array != NULL && muster_py_tensors_add(tensors, array, dtype, are_written);
        Py_XDECREF(array);
    }
    if (!is_right)
        muster_py_tensors_close(tensors);
    return is_right;
}

static bool read_dimensions(PyObject *shape, struct muster_shaped_tensor *shaped)
{
    Py_ssize_t count = PySequence_Size(shape);

    if (count < 0)
        return false;
    if (count > (Py_ssize_t)MUSTER_DIMENSIONS_MAX)
        return PyErr_Format(PyExc_ValueError, "an array must have %u dimensions at most, got %zd",
                            MUSTER_DIMENSIONS_MAX, count) != NULL;
    shaped->dimension_count = (uint32_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *extent = PySequence_GetItem(shape, i);
        bool is_right =
            extent != NULL && muster_py_read_number(extent, 0, UINT64_MAX, &shaped->dimensions[i]);

        Py_XDECREF(extent);
        if (!is_right)
            return false;
    }
    return true;
}

/* shapes: the dimensions of each array. */
static bool read_shapes(PyObject *shapes, struct values *values)
{
    size_t count = values->tensors.count;

    if (count > MUSTER_REPLICAS_MAX || PySequence_Size(shapes) != (Py_ssize_t)count)
        return PyErr_Format(PyExc_ValueError, "there must be a shape for each of at most %u arrays",
                            MUSTER_REPLICAS_MAX) != NULL;
    for (size_t i = 0; i < count; i++) {
        const struct muster_tensor *tensor = &values->tensors.tensors[i];
        PyObject *shape = PySequence_GetItem(shapes, (Py_ssize_t)i);
        bool is_right;

        values->shaped[i] =
            (struct muster_shaped_tensor){.data = tensor->data, .dtype = tensor->dtype};
        is_right = shape != NULL && read_dimensions(shape, &values->shaped[i]);
        Py_XDECREF(shape);
        if (!is_right)
            return false;
    }
    return true;
}

/* None: the values are reduced over the replicas only. */
static bool read_axis(PyObject *value, int32_t *ret_axis)
{
    long axis = value == Py_None ? MUSTER_AXIS_NONE : PyLong_AsLong(value);

    if (PyErr_Occurred())
        return false;
    if (value != Py_None && (axis < -(long)MUSTER_DIMENSIONS_MAX || axis > MUSTER_DIMENSIONS_MAX))
        return PyErr_Format(PyExc_ValueError, "axis must be one of the array's, got %ld", axis) !=
               NULL;
    *ret_axis = (int32_t)axis;
    return true;
}

static bool open_values(struct values *values, PyObject *arrays, PyObject *shapes, PyObject *axis,
                        const char *dtype)
{
    if (!read_axis(axis, &values->axis) || !open_arrays(&values->tensors, arrays, dtype, false))
        return false;
    if (read_shapes(shapes, values))
        return true;
    muster_py_tensors_close(&values->tensors);
    return false;
}

/* Each replica has as many arrays as the others. */
static enum muster_rc check_count(const struct muster_strategy *strategy, struct values *values,
                                  size_t per_replica)
{
    uint32_t replicas = muster_replicas_local(strategy);

    if (values->tensors.count == replicas * per_replica)
        return MUSTER_OK;
    return muster_error_set(&values->error, MUSTER_INVALID_ARGUMENT,
                            "there must be arrays of each of this member's %" PRIu32
                            " replicas, got %zu arrays",
                            replicas, values->tensors.count);
}

/* --- Calls --- */

static enum muster_rc run_all_reduce(struct muster_strategy *strategy, struct muster_py_call *call)
{
    size_t per_replica = call->count / muster_replicas_local(strategy);
    enum muster_rc rc = check_count(strategy, call->data, per_replica);

    return rc == MUSTER_OK
               ? muster_replicas_all_reduce(strategy, call->tensors, per_replica, call->reduction)
               : rc;
}

static enum muster_rc run_mirror(struct muster_strategy *strategy, struct muster_py_call *call)
{
    size_t per_replica = call->count / muster_replicas_local(strategy);
    enum muster_rc rc = check_count(strategy, call->data, per_replica);

    return rc == MUSTER_OK ? muster_replicas_mirror(strategy, call->tensors, per_replica) : rc;
}

PyObject *muster_py_strategy_replicas_all_reduce(PyObject *self, PyObject *const *args,
                                                 Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"arrays", "op", "dtype", NULL};
    PyObject *read[3];
    struct values values = {.error = {.rc = MUSTER_OK}};
    struct muster_py_call call = {.run = run_all_reduce, .data = &values, .error = &values.error};
    const char *dtype;

    if (!muster_py_read_arguments("_replicas_all_reduce", names, 2, args, count, keywords, read) ||
        !muster_py_read_reduction(read[1], &call.reduction) ||
        !muster_py_read_text(read[2], &dtype) ||
        !open_arrays(&values.tensors, read[0], dtype, true))
        return NULL;
    return muster_py_call_run_tensors(muster_py_strategy_of(self), &call, &values.tensors);
}

PyObject *muster_py_strategy_replicas_mirror(PyObject *self, PyObject *const *args,
                                             Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"arrays", "dtype", NULL};
    PyObject *read[2];
    struct values values = {.error = {.rc = MUSTER_OK}};
    struct muster_py_call call = {.run = run_mirror, .data = &values, .error = &values.error};
    const char *dtype;

    if (!muster_py_read_arguments("_replicas_mirror", names, 1, args, count, keywords, read) ||
        !muster_py_read_text(read[1], &dtype) ||
        !open_arrays(&values.tensors, read[0], dtype, true))
        return NULL;
    return muster_py_call_run_tensors(muster_py_strategy_of(self), &call, &values.tensors);
}

/* A variable that the replicas of a member share, and what becomes of it. */
struct assignment {
    struct values values;
    struct muster_py_tensors variable;
    enum muster_aggregation aggregation;
    bool is_added;
};

static enum muster_rc run_assign(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct assignment *assignment = call->data;
    enum muster_rc rc = check_count(strategy, &assignment->values, 1);

    return rc == MUSTER_OK
               ? muster_replicas_assign(strategy, assignment->variable.tensors, call->tensors,
                                        assignment->aggregation, assignment->is_added)
               : rc;
}

static bool read_aggregation(PyObject *value, enum muster_aggregation *ret_aggregation)
{
    static const char *const names[] = {[MUSTER_AGGREGATION_SUM] = "sum",
                                        [MUSTER_AGGREGATION_MEAN] = "mean",
                                        [MUSTER_AGGREGATION_ONLY_FIRST_REPLICA] = "first"};
    const char *text;

    if (!muster_py_read_text(value, &text))
        return false;
    for (size_t i = MUSTER_AGGREGATION_SUM; i < sizeof(names) / sizeof(names[0]); i++) {
        *ret_aggregation = (enum muster_aggregation)i;
        if (text != NULL && strcmp(text, names[i]) == 0)
            return true;
    }
    return PyErr_Format(PyExc_ValueError, "aggregation must be sum, mean or first, got '%s'",
                        text != NULL ? text : "None") != NULL;
}

PyObject *muster_py_strategy_replicas_assign(PyObject *self, PyObject *const *args,
                                             Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"variable", "arrays", "aggregation", "add", "dtype", NULL};
    PyObject *read[5], *result = NULL;
    struct assignment assignment = {.values = {.error = {.rc = MUSTER_OK}}};
    struct muster_py_call call = {
        .run = run_assign, .data = &assignment, .error = &assignment.values.error};
    const char *dtype;
    int is_added;

    if (!muster_py_read_arguments("_replicas_assign", names, 4, args, count, keywords, read) ||
        !read_aggregation(read[2], &assignment.aggregation) ||
        (is_added = PyObject_IsTrue(read[3])) < 0 || !muster_py_read_text(read[4], &dtype) ||
        !muster_py_tensors_open(&assignment.variable, read[0], dtype))
        return NULL;
    assignment.is_added = is_added > 0;
    if (open_arrays(&assignment.values.tensors, read[1], dtype, false))
        result = muster_py_call_run_tensors(muster_py_strategy_of(self), &call,
                                            &assignment.values.tensors);
    muster_py_tensors_close(&assignment.variable);
    return result;
}

static enum muster_rc run_reduce(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct values *values = call->data;
    enum muster_rc rc = check_count(strategy, values, 1);

    return rc == MUSTER_OK ? muster_replicas_reduce(strategy, values->shaped, values->axis,
                                                    call->reduction, values->result)
                           : rc;
}

PyObject *muster_py_strategy_replicas_reduce(PyObject *self, PyObject *const *args,
                                             Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"arrays", "shapes", "axis", "op", "output", "dtype", NULL};
    PyObject *read[6], *result = NULL;
    struct values values = {.error = {.rc = MUSTER_OK}};
    struct muster_py_tensors output;
    struct muster_py_call call = {.run = run_reduce, .data = &values, .error = &values.error};
    const char *dtype;

    if (!muster_py_read_arguments("_replicas_reduce", names, 5, args, count, keywords, read) ||
        !muster_py_read_reduction(read[3], &call.reduction) ||
        !muster_py_read_text(read[5], &dtype) || !muster_py_tensors_open(&output, read[4], dtype))
        return NULL;
    values.result = output.tensors;
    if (open_values(&values, read[0], read[1], read[2], dtype))
        result = muster_py_call_run_tensors(muster_py_strategy_of(self), &call, &values.tensors);
    muster_py_tensors_close(&output);
    return result;
}

/* The whole is copied inside of the call: behind it another thread may close the strategy, whose memory it is. */
static enum muster_rc run_gather(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct values *values = call->data;
    struct muster_shaped_tensor *whole = &values->whole_shape;
    enum muster_rc rc = check_count(strategy, values, 1);

    if (rc == MUSTER_OK)
        rc = muster_replicas_gather(strategy, values->shaped, values->axis, whole);
    if (rc != MUSTER_OK)
        return rc;
    values->whole_bytes = muster_dtype_bytes(whole->dtype);
    for (uint32_t i = 0; i < whole->dimension_count; i++)
        values->whole_bytes *= (size_t)whole->dimensions[i];
    values->whole = malloc(values->whole_bytes > 0 ? values->whole_bytes : 1);
    if (values->whole == NULL)
        rc = muster_error_set(&values->error, MUSTER_RESOURCE_EXHAUSTED,
                              "gather: out of memory for %zu bytes", values->whole_bytes);
    else if (values->whole_bytes > 0)
        memcpy(values->whole, whole->data, values->whole_bytes);
    muster_replicas_free(strategy, whole);
    return rc;
}

/* Its bytes, and a tuple of its dimensions. */
static PyObject *whole_new(const struct values *values)
{
    const struct muster_shaped_tensor *whole = &values->whole_shape;
    PyObject *dimensions = PyTuple_New((Py_ssize_t)whole->dimension_count), *bytes;
    PyObject *result = NULL;

    for (uint32_t i = 0; dimensions != NULL && i < whole->dimension_count; i++) {
        PyObject *extent = PyLong_FromUnsignedLongLong(whole->dimensions[i]);

        if (extent == NULL || PyTuple_SetItem(dimensions, (Py_ssize_t)i, extent) != 0)
            Py_CLEAR(dimensions);
    }
    bytes = PyByteArray_FromStringAndSize(values->whole, (Py_ssize_t)values->whole_bytes);
    if (dimensions != NULL && bytes != NULL)
        result = PyTuple_Pack(2, bytes, dimensions);
    Py_XDECREF(dimensions);
    Py_XDECREF(bytes);
    return result;
}

PyObject *muster_py_strategy_replicas_gather(PyObject *self, PyObject *const *args,
                                             Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"arrays", "shapes", "axis", "dtype", NULL};
    PyObject *read[4], *result;
    struct values values = {.error = {.rc = MUSTER_OK}};
    struct muster_py_call call = {.run = run_gather, .data = &values, .error = &values.error};
    const char *dtype;

    if (!muster_py_read_arguments("_replicas_gather", names, 3, args, count, keywords, read) ||
        !muster_py_read_text(read[3], &dtype) ||
        !open_values(&values, read[0], read[1], read[2], dtype))
        return NULL;
    result = muster_py_call_run_tensors(muster_py_strategy_of(self), &call, &values.tensors);
    if (result != NULL) {
        Py_DECREF(result);
        result = whole_new(&values);
    }
    free(values.whole);
    return result;
}

static enum muster_rc run_gpu(struct muster_strategy *strategy, struct muster_py_call *call)
{
    uint32_t device;
    enum muster_rc rc =
        muster_replicas_assign_to_logical_device(strategy, call->root, 0, &device);

    if (rc == MUSTER_OK)
        *(int *)call->data = muster_replicas_device_gpu(strategy, device);
    return rc;
}

PyObject *muster_py_strategy_replicas_gpu(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                          PyObject *keywords)
{
    static const char *const names[] = {"replica", NULL};
    PyObject *read[1], *result;
    int gpu = MUSTER_NO_GPU;
    struct muster_py_call call = {.run = run_gpu, .is_short = true, .data = &gpu};
    uint64_t replica;

    if (!muster_py_read_arguments("_replicas_gpu", names, 1, args, count, keywords, read) ||
        !muster_py_read_number(read[0], 0, MUSTER_REPLICAS_MAX, &replica))
        return NULL;
    call.root = (uint32_t)replica;
    result = muster_py_call_run(muster_py_strategy_of(self), &call);
    if (result == NULL || gpu == MUSTER_NO_GPU)
        return result; /* None: it computes on the CPU */
    Py_DECREF(result);
    return PyLong_FromLong(gpu);
}
