/* From objects of Python to the library's arguments, and from its errors to exceptions. */
#include "python/convert.h"
#include "python/cuda_array.h"
#include "python/tensor.h"

#include <stdio.h>
#include <string.h>

/* --- Errors: one class for each code --- */

static PyObject *error_base;
PyObject *muster_py_error_classes[MUSTER_UNAUTHENTICATED + 1];
PyObject *muster_py_state_mismatch,
    *muster_py_mismatch; /* INVALID_ARGUMENT of begin, and of operations */
PyObject *muster_py_round_over;

PyObject *muster_py_raise(PyObject *class, const char *text)
{
    PyErr_SetString(class, text);
    return NULL;
}

PyObject *muster_py_raise_error(const struct muster_error *error, PyObject *invalid_argument)
{
    PyObject *class = error->rc == MUSTER_INVALID_ARGUMENT ? invalid_argument : NULL;

    if (PyErr_Occurred()) /* on_wait has run a handler of a signal, which raised */
        return NULL;
    if (class == NULL)
        class = (unsigned)error->rc <= MUSTER_UNAUTHENTICATED ? muster_py_error_classes[error->rc]
                                                              : NULL;
    return muster_py_raise(class != NULL ? class : error_base,
                           error->text[0] != '\0' ? error->text : muster_rc_text(error->rc));
}

/* "DEADLINE_EXCEEDED" -> "muster.DeadlineExceeded"; the two that a program asks for have names of their own. */
static void format_class_name(const char *name, char *ret_text)
{
    bool is_first = true;

    ret_text += sprintf(ret_text, "muster.");
    if (strcmp(name, "OUT_OF_RANGE") == 0)
        name = "JOB_OVER";
    for (; *name != '\0'; name++) {
        if (*name != '_')
            *ret_text++ = (char)(is_first ? *name : *name - 'A' + 'a');
        is_first = *name == '_';
    }
    *ret_text = '\0';
}

static PyObject *add_class(PyObject *module, const char *name, PyObject *base, PyObject *second,
                           int code)
{
    PyObject *bases = second != NULL ? PyTuple_Pack(2, base, second) : PyTuple_Pack(1, base);
    PyObject *attributes = Py_BuildValue("{si}", "code", code);
    PyObject *class = NULL;

    if (bases != NULL && attributes != NULL)
        class = PyErr_NewException(name, bases, attributes);
    Py_XDECREF(bases);
    Py_XDECREF(attributes);
    if (class != NULL && PyModule_AddObjectRef(module, strchr(name, '.') + 1, class) != 0)
        Py_CLEAR(class);
    return class;
}

bool muster_py_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret_type)
{
    PyObject *type = PyType_FromSpec(spec);
    bool is_right;

    if (type == NULL)
        return false;
    if (ret_type != NULL)
        *ret_type = (PyTypeObject *)Py_NewRef(type);
    is_right = PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, type) == 0;
    Py_DECREF(type);
    return is_right;
}

bool muster_py_add_errors(PyObject *module)
{
    static const struct {
        const char *name;
        int code;
    } codes[] = {
#define X(name, num, text) {#name, num},
        MUSTER_RC_MAP(X)
#undef X
    };

    error_base = add_class(module, "muster.Error", PyExc_RuntimeError, NULL, MUSTER_UNKNOWN);
    for (size_t i = 0; error_base != NULL && i < sizeof(codes) / sizeof(codes[0]); i++) {
        PyObject *second = codes[i].code == MUSTER_INVALID_ARGUMENT    ? PyExc_ValueError
                           : codes[i].code == MUSTER_DEADLINE_EXCEEDED ? PyExc_TimeoutError
                                                                       : NULL;
        char name[64];

        format_class_name(codes[i].name, name);
        muster_py_error_classes[codes[i].code] =
            add_class(module, name, error_base, second, codes[i].code);
        if (muster_py_error_classes[codes[i].code] == NULL)
            return false;
    }
    if (error_base == NULL)
        return false;
    muster_py_mismatch =
        add_class(module, "muster.Mismatch", muster_py_error_classes[MUSTER_INVALID_ARGUMENT], NULL,
                  MUSTER_INVALID_ARGUMENT);
    muster_py_state_mismatch =
        add_class(module, "muster.StateMismatch", muster_py_error_classes[MUSTER_INVALID_ARGUMENT],
                  NULL, MUSTER_INVALID_ARGUMENT);
    muster_py_round_over =
        add_class(module, "muster.RoundOver", error_base, NULL, MUSTER_OUT_OF_RANGE);
    return muster_py_mismatch != NULL && muster_py_state_mismatch != NULL &&
           muster_py_round_over != NULL;
}

/* --- Arguments --- */

bool muster_py_read_arguments(const char *function, const char *const *names, size_t required,
                              PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                              PyObject **values)
{
    Py_ssize_t known = 0, named = keywords != NULL ? PyTuple_Size(keywords) : 0;

    while (names[known] != NULL)
        values[known++] = NULL;
    if (count > known)
        return PyErr_Format(PyExc_TypeError, "%s() takes at most %zd arguments, got %zd", function,
                            known, count) != NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        values[i] = args[i];
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(keywords, i);
        Py_ssize_t at = 0;

        while (at < known && PyUnicode_CompareWithASCIIString(name, names[at]) != 0)
            at++;
        if (at == known || values[at] != NULL)
            return PyErr_Format(PyExc_TypeError, "%s() got %s argument '%U'", function,
                                at == known ? "an unexpected" : "twice the", name) != NULL;
        values[at] = args[count + i];
    }
    for (size_t i = 0; i < required; i++)
        if (values[i] == NULL)
            return PyErr_Format(PyExc_TypeError, "%s() misses the argument '%s'", function,
                                names[i]) != NULL;
    return true;
}

/* In place of CPython's texts, which name neither the value nor what it must be. */
static bool number_explain(PyObject *value)
{
    PyObject *class = PyErr_ExceptionMatches(PyExc_OverflowError) ? PyExc_OverflowError
                      : PyErr_ExceptionMatches(PyExc_TypeError)   ? PyExc_TypeError
                                                                  : NULL;

    if (class == NULL) /* the value's own __index__ has raised */
        return false;
    PyErr_Clear();
    PyErr_Format(class, "a number must be a whole one from 0 to 2^64 - 1, got %R", value);
    return false;
}

bool muster_py_read_number(PyObject *value, uint64_t otherwise, uint64_t most, uint64_t *ret_number)
{
    unsigned long long number = otherwise;

    if (value != NULL && value != Py_None) {
        PyObject *index = PyNumber_Index(value);

        number = index != NULL ? PyLong_AsUnsignedLongLong(index) : 0;
        Py_XDECREF(index);
        if (PyErr_Occurred())
            return number_explain(value);
    }
    if (number > most)
        return PyErr_Format(PyExc_ValueError, "must be at most %llu, got %llu",
                            (unsigned long long)most, number) != NULL;
    *ret_number = number;
    return true;
}

bool muster_py_read_seconds(PyObject *value, uint64_t *ret_ns)
{
    double seconds = value == NULL || value == Py_None ? 0 : PyFloat_AsDouble(value);

    if (PyErr_Occurred())
        return false;
    if (!(seconds >= 0 && seconds <= 1e9))
        return muster_py_raise(PyExc_ValueError,
                               "a time must be a number of seconds from 0 to 1e9") != NULL;
    *ret_ns = (uint64_t)(seconds * 1e9);
    return true;
}

bool muster_py_read_text(PyObject *value, const char **ret_text)
{
    *ret_text = NULL;
    if (value == NULL || value == Py_None)
        return true;
    if (!PyUnicode_Check(value))
        return PyErr_Format(PyExc_TypeError,
                            "a name must be text (for a type, one such as 'f32'), got %R",
                            value) != NULL;
    *ret_text = PyUnicode_AsUTF8AndSize(value, NULL);
    return *ret_text != NULL;
}

bool muster_py_dtype_of_name(const char *name, enum muster_dtype *ret_dtype)
{
    for (int dtype = 0; muster_dtype_bytes((enum muster_dtype)dtype) > 0; dtype++)
        if (strcmp(muster_dtype_name((enum muster_dtype)dtype), name) == 0) {
            *ret_dtype = (enum muster_dtype)dtype;
            return true;
        }
    return false;
}

bool muster_py_read_dtype(PyObject *value, enum muster_dtype *ret_dtype)
{
    const char *text;

    if (!muster_py_read_text(value, &text))
        return false;
    if (text == NULL || muster_py_dtype_of_name(text, ret_dtype))
        return true;
    PyErr_Format(
        PyExc_ValueError,
        "dtype must be f32, f64, f16, bf16, f8e4m3, f8e5m2, i64, i32, i16, i8, u64, u32, u16, u8 "
        "or bool, got '%s'",
        text);
    return false;
}

bool muster_py_read_reduction(PyObject *value, enum muster_reduction *ret_reduction)
{
    const char *text;
    uint64_t number = 0;

    if (value != NULL && !PyUnicode_Check(value)) {
        if (!muster_py_read_number(value, MUSTER_SUM, MUSTER_XOR, &number))
            return false;
    } else if (value != NULL) {
        if (!muster_py_read_text(value, &text))
            return false;
        while (number <= MUSTER_XOR &&
               strcmp(text, muster_reduction_name((enum muster_reduction)number)) != 0)
            number++;
        if (number > MUSTER_XOR)
            return PyErr_Format(PyExc_ValueError,
                                "op must be sum, mean, min, max, prod, and, or, or xor, got '%U'",
                                value) != NULL;
    }
    *ret_reduction = (enum muster_reduction)number;
    return true;
}

/* --- Tensors: buffers of other objects --- */

/* The letters of the struct module, in native order. */
static bool dtype_of_format(const Py_buffer *buffer, enum muster_dtype *ret_dtype)
{
    static const char letters[] = "fdeBb?hHiIlLqQnN";
    static const enum muster_dtype dtypes[] = {MUSTER_F32, MUSTER_F64,  MUSTER_F16, MUSTER_U8,
                                               MUSTER_I8,  MUSTER_BOOL, MUSTER_I16, MUSTER_U16,
                                               MUSTER_I32, MUSTER_U32,  MUSTER_I64, MUSTER_U64,
                                               MUSTER_I64, MUSTER_U64,  MUSTER_I64, MUSTER_U64};
    const char *format = buffer->format != NULL ? buffer->format : "B";
    const char *letter;

    if (format[0] == '@' || format[0] == '=' || format[0] == '<')
        format++;
    letter = format[0] != '\0' && format[1] == '\0' ? strchr(letters, format[0]) : NULL;
    if (letter == NULL)
        return false;
    *ret_dtype = dtypes[letter - letters];
    if (buffer->itemsize == 4 &&
        (*letter == 'l' || *letter == 'L')) /* the standard size, after '=' or '<' */
        *ret_dtype = *letter == 'l' ? MUSTER_I32 : MUSTER_U32;
    return (size_t)buffer->itemsize == muster_dtype_bytes(*ret_dtype);
}

bool muster_py_check_array(PyObject *object)
{
    PyObject *type;

    if (PyObject_CheckBuffer(object))
        return true;
    type = PyType_GetName(Py_TYPE(object));
    if (type != NULL)
        PyErr_Format(PyExc_TypeError,
                     "an array must have the buffer protocol (NumPy's, array.array, memoryview; "
                     "of a PyTorch tensor on the CPU take tensor.numpy()), got %U",
                     type);
    Py_XDECREF(type);
    return false;
}

/* The exporter's text ("underlying buffer is not C-contiguous") does not say what to do. Other texts stay. */
static void layout_explain(PyObject *object, Py_buffer *buffer)
{
    PyObject *class, *error, *traceback;

    PyErr_Fetch(&class, &error, &traceback);
    if (PyObject_GetBuffer(object, buffer, PyBUF_FULL_RO) != 0) {
        PyErr_Restore(class, error, traceback); /* no layout would do */
        return;
    }
    if (PyBuffer_IsContiguous(buffer, 'C') != 0) {
        PyErr_Restore(class, error, traceback);
    } else {
        PyErr_SetString(PyExc_BufferError, "an array must be contiguous in C order; "
                                           "numpy.ascontiguousarray makes such a copy of it");
        Py_XDECREF(class);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
    }
    PyBuffer_Release(buffer);
}

/* dtype: another name for elements of the same size ("bf16", "f8e4m3", which the buffer protocol lacks), or NULL. */
static bool tensor_open(PyObject *object, const char *dtype, bool is_written, Py_buffer *buffer,
                        struct muster_tensor *ret_tensor)
{
    enum muster_dtype type;

    if (!muster_py_check_array(object))
        return false;
    if (PyObject_GetBuffer(object, buffer,
                           PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (is_written ? PyBUF_WRITABLE : 0)) !=
        0) {
        layout_explain(object, buffer);
        return false;
    }
    if (dtype == NULL && muster_py_tensor_find(object, ret_tensor))
        return true;
    if (dtype != NULL ? !muster_py_dtype_of_name(dtype, &type) ||
                            muster_dtype_bytes(type) != (size_t)buffer->itemsize
                      : !dtype_of_format(buffer, &type)) {
        PyErr_Format(PyExc_TypeError,
                     "elements must be f32, f64, f16, i64, i32, i16, i8, u64, u32, u16, u8 or "
                     "bool, got '%s' "
                     "of %zd bytes%s%s",
                     buffer->format != NULL ? buffer->format : "B", buffer->itemsize,
                     dtype != NULL ? " as " : "", dtype != NULL ? dtype : "");
        PyBuffer_Release(buffer);
        return false;
    }
    *ret_tensor = (struct muster_tensor){
        .data = buffer->buf, .count = (uint64_t)(buffer->len / buffer->itemsize), .dtype = type};
    return true;
}

void muster_py_tensors_close(struct muster_py_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++)
        PyBuffer_Release(&tensors->buffers[i]);
    tensors->count = 0;
    if (tensors->streams != tensors->few_streams)
        PyMem_Free(tensors->streams);
    if (tensors->buffers != tensors->few_buffers)
        PyMem_Free(tensors->buffers);
    if (tensors->tensors != tensors->few_tensors)
        PyMem_Free(tensors->tensors);
}

bool muster_py_tensors_add(struct muster_py_tensors *tensors, PyObject *object, const char *dtype,
                           bool is_written)
{
    struct muster_tensor *tensor = &tensors->tensors[tensors->count];
    Py_buffer *buffer = &tensors->buffers[tensors->count];
    bool is_on_device =
        tensors->takes_device && !PyObject_CheckBuffer(object) && muster_py_is_cuda_array(object);

    uintptr_t *stream = &tensors->streams[tensors->count];

    *stream = 0;
    if (is_on_device ? !muster_py_cuda_array_open(object, dtype, is_written, buffer, tensor, stream)
                     : !tensor_open(object, dtype, is_written, buffer, tensor))
        return false;
    tensors->has_streams |= *stream != 0;
    tensors->bytes += tensor->count * muster_dtype_bytes(tensor->dtype);
    tensors->count++;
    return true;
}

void muster_py_tensors_init(struct muster_py_tensors *tensors)
{
    tensors->count = tensors->bytes = 0;
    tensors->takes_device = tensors->has_streams = false;
    tensors->tensors = tensors->few_tensors;
    tensors->buffers = tensors->few_buffers;
    tensors->streams = tensors->few_streams;
}

bool muster_py_tensors_reserve(struct muster_py_tensors *tensors, size_t count)
{
    if (count <= MUSTER_PY_FEW_TENSORS)
        return true;
    tensors->tensors = PyMem_Calloc(count, sizeof(struct muster_tensor));
    tensors->buffers = PyMem_Calloc(count, sizeof(Py_buffer));
    tensors->streams = PyMem_Calloc(count, sizeof(uintptr_t));
    return (tensors->tensors != NULL && tensors->buffers != NULL && tensors->streams != NULL) ||
           PyErr_NoMemory() != NULL;
}

/* One buffer, or a list or tuple of them. */
static bool tensors_add_all(struct muster_py_tensors *tensors, PyObject *object, const char *dtype,
                            bool is_written)
{
    bool is_list = PyList_Check(object), is_right;
    Py_ssize_t count;

    if (!is_list && !PyTuple_Check(object))
        return muster_py_tensors_add(tensors, object, dtype, is_written);
    count = PySequence_Size(object);
    is_right = muster_py_tensors_reserve(tensors, (size_t)count);
    for (Py_ssize_t i = 0; is_right && i < count; i++) {
        PyObject *item = PySequence_GetItem(object, i);

        is_right = item != NULL && muster_py_tensors_add(tensors, item, dtype, is_written);
        Py_XDECREF(item);
    }
    if (!is_right)
        muster_py_tensors_close(tensors);
    return is_right;
}

bool muster_py_tensors_open(struct muster_py_tensors *tensors, PyObject *object, const char *dtype)
{
    muster_py_tensors_init(tensors);
    tensors->takes_device = true;
    return tensors_add_all(tensors, object, dtype, true);
}

bool muster_py_tensors_open_as(struct muster_py_tensors *tensors, PyObject *object,
                               const char *dtype, bool is_written)
{
    muster_py_tensors_init(tensors);
    return tensors_add_all(tensors, object, dtype, is_written);
}
