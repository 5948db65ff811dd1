/* The CUDA array interface (version 2 and 3): a dictionary that says where an array lies, and what it is. */
#include "python/cuda_array.h"

#include <stdlib.h>
#include <string.h>

#define INTERFACE "__cuda_array_interface__"

bool muster_py_is_cuda_array(PyObject *object)
{
    return PyObject_HasAttrString(object, INTERFACE) != 0;
}

/* "<f4": byte order, kind, bytes of an element. */
static bool dtype_of_type(const char *text, enum muster_dtype *ret_dtype)
{
    static const struct {
        const char *text;
        enum muster_dtype dtype;
    } types[] = {{"f4", MUSTER_F32}, {"f8", MUSTER_F64},  {"f2", MUSTER_F16}, {"i4", MUSTER_I32},
                 {"i8", MUSTER_I64}, {"u4", MUSTER_U32},  {"u8", MUSTER_U64}, {"i1", MUSTER_I8},
                 {"u1", MUSTER_U8},  {"b1", MUSTER_BOOL}, {"i2", MUSTER_I16}, {"u2", MUSTER_U16}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (text[0] != '\0' && text[0] != '>' && strcmp(text + 1, types[i].text) == 0) {
            *ret_dtype = types[i].dtype;
            return true;
        }
    return false;
}

static bool type_read(PyObject *interface, const char *name, enum muster_dtype *ret_dtype,
                      size_t *ret_bytes)
{
    PyObject *type = PyDict_GetItemString(interface, "typestr");
    const char *text = type != NULL ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;
    bool is_known = text != NULL && dtype_of_type(text, ret_dtype);

    *ret_bytes = text != NULL && strlen(text) > 2 ? strtoul(text + 2, NULL, 10) : 0;
    if (text == NULL && PyErr_Occurred())
        return false;
    if (name != NULL)
        is_known = muster_py_dtype_of_name(name, ret_dtype) &&
                   muster_dtype_bytes(*ret_dtype) == *ret_bytes;
    if (!is_known)
        PyErr_Format(
            PyExc_TypeError,
            "elements must be f32, f64, f16, i64, i32, i16, i8, u64, u32, u16, u8 or bool, got "
            "'%s'%s%s",
            text != NULL ? text : "nothing", name != NULL ? " as " : "", name != NULL ? name : "");
    return is_known;
}

/* The product of the extents, and whether the elements lie in C order without gaps. */
static bool shape_read(PyObject *interface, size_t bytes, uint64_t *ret_count)
{
    PyObject *shape = PyDict_GetItemString(interface, "shape");
    PyObject *strides = PyDict_GetItemString(interface, "strides");
    Py_ssize_t rank = shape != NULL && PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
    bool has_strides = strides != NULL && strides != Py_None;
    uint64_t size = bytes;

    if (rank < 0 || (has_strides && (!PyTuple_Check(strides) || PyTuple_Size(strides) != rank)))
        return muster_py_raise(PyExc_TypeError,
                               INTERFACE " must have a shape, and strides of it") != NULL;
    for (Py_ssize_t i = rank; i-- > 0;) {
        uint64_t extent, stride = size;

        if (!muster_py_read_number(PyTuple_GetItem(shape, i), 0, INT64_MAX, &extent) ||
            (has_strides &&
             !muster_py_read_number(PyTuple_GetItem(strides, i), 0, INT64_MAX, &stride)))
            return false;
        if (extent > 1 && stride != size)
            return muster_py_raise(PyExc_BufferError, "an array must be contiguous in C order") !=
                   NULL;
        if (__builtin_mul_overflow(size, extent, &size))
            return muster_py_raise(PyExc_ValueError, "an array must have less than 2**64 bytes") !=
                   NULL;
    }
    *ret_count = size / bytes;
    return true;
}

static bool address_read(PyObject *interface, bool is_written, void **ret_address)
{
    PyObject *data = PyDict_GetItemString(interface, "data");
    uint64_t address;
    int is_read_only;

    if (data == NULL || !PyTuple_Check(data) || PyTuple_Size(data) != 2)
        return muster_py_raise(PyExc_TypeError, INTERFACE " must have data: an address and a "
                                                          "bool") != NULL;
    is_read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1));
    if (is_read_only < 0 ||
        !muster_py_read_number(PyTuple_GetItem(data, 0), 0, UINT64_MAX, &address))
        return false;
    if (is_written && is_read_only > 0)
        return muster_py_raise(PyExc_BufferError,
                               "an array that is written must not be read-only") != NULL;
    *ret_address = (void *)(uintptr_t)address;
    return true;
}

static bool mask_check(PyObject *interface)
{
    PyObject *mask = PyDict_GetItemString(interface, "mask");

    return mask == NULL || mask == Py_None ||
           muster_py_raise(PyExc_BufferError,
                           "an array must not have a mask: all its elements would be taken") !=
               NULL;
}

/* Version 3: 1 is the default stream, 2 that of the thread, 0 neither of them. Older versions have none. */
static bool stream_read(PyObject *interface, uintptr_t *ret_stream)
{
    PyObject *stream = PyDict_GetItemString(interface, "stream");
    uint64_t number;

    *ret_stream = 0;
    if (stream == NULL || stream == Py_None)
        return true;
    if (!muster_py_read_number(stream, 0, UINTPTR_MAX, &number))
        return false;
    if (number == 0)
        return muster_py_raise(PyExc_ValueError,
                               INTERFACE ": stream must not be 0; give 1 for the default stream, "
                                         "or None if no work has to end first") != NULL;
    *ret_stream = (uintptr_t)number;
    return true;
}

bool muster_py_cuda_array_open(PyObject *object, const char *dtype, bool is_written,
                               Py_buffer *buffer, struct muster_tensor *ret_tensor,
                               uintptr_t *ret_stream)
{
    PyObject *given = PyObject_GetAttrString(object, INTERFACE), *interface;
    struct muster_tensor tensor = {.data = NULL};
    size_t bytes = 0;
    bool is_right;

    if (given == NULL)
        return false;
    if (!PyDict_Check(given)) {
        Py_DECREF(given);
        return muster_py_raise(PyExc_TypeError, INTERFACE " must be a dictionary") != NULL;
    }
    interface = PyDict_Copy(given); /* its values are borrowed, and another thread may change it */
    Py_DECREF(given);
    if (interface == NULL)
        return false;
    is_right = type_read(interface, dtype, &tensor.dtype, &bytes) &&
               shape_read(interface, bytes, &tensor.count) &&
               address_read(interface, is_written, &tensor.data) && mask_check(interface) &&
               stream_read(interface, ret_stream);
    Py_DECREF(interface);
    if (!is_right)
        return false;
    *buffer = (Py_buffer){.buf = tensor.data,
                          .obj = Py_NewRef(object),
                          .len = (Py_ssize_t)(tensor.count * bytes),
                          .itemsize = (Py_ssize_t)bytes};
    *ret_tensor = tensor;
    return true;
}
