/* Objects of Python as arguments of the library, and the library's errors as exceptions. A function that
 * returns false or NULL has raised one. */
#ifndef MUSTER_PYTHON_CONVERT_H
#define MUSTER_PYTHON_CONVERT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include <muster/collective.h>
#include <muster/status.h>

/* --- Errors: one class for each code --- */

extern PyObject *muster_py_error_classes[MUSTER_UNAUTHENTICATED + 1];
/** INVALID_ARGUMENT of begin and register, and of operations. */
extern PyObject *muster_py_state_mismatch, *muster_py_mismatch;
/** OUT_OF_RANGE of tables by round. */
extern PyObject *muster_py_round_over;

/** Returns NULL. */
PyObject *muster_py_raise(PyObject *class, const char *text);
/** The class of error->rc, or invalid_argument for that one; what is raised already stays. Returns NULL. */
PyObject *muster_py_raise_error(const struct muster_error *error, PyObject *invalid_argument);
bool muster_py_add_errors(PyObject *module);

/* --- Arguments --- */

/** Fill values[i] with the argument that names[i] names; those after the first `required` may be
 * missing (NULL). Borrows. */
bool muster_py_read_arguments(const char *function, const char *const *names, size_t required,
                              PyObject *const *args, Py_ssize_t count, PyObject *keywords,
                              PyObject **values);
/* NULL and None stand for what is missing: `otherwise`, 0, NULL, sum. */
bool muster_py_read_number(PyObject *value, uint64_t otherwise, uint64_t most,
                           uint64_t *ret_number);
bool muster_py_read_seconds(PyObject *value, uint64_t *ret_ns);
/** *ret_text is borrowed from value. */
bool muster_py_read_text(PyObject *value, const char **ret_text);
bool muster_py_read_reduction(PyObject *value, enum muster_reduction *ret_reduction);
/** Left as it is by what is missing. */
bool muster_py_dtype_of_name(const char *name, enum muster_dtype *ret_dtype);
bool muster_py_read_dtype(PyObject *value, enum muster_dtype *ret_dtype);

/* --- Classes --- */

/** Entries of the tables of a class: a method with METH_FASTCALL | METH_KEYWORDS, and a slot. */
#define MUSTER_PY_FUNCTION(function) ((PyCFunction)(void (*)(void))(function))
#define MUSTER_PY_SLOT(function)     ((void *)(uintptr_t)(function))
/** The PyType_Spec of a class. may: Py_TPFLAGS_BASETYPE, or Py_TPFLAGS_DISALLOW_INSTANTIATION. */
#define MUSTER_PY_SPEC(name_, object, may, slots_)                                                 \
    {                                                                                              \
        .name = (name_), .basicsize = sizeof(object), .flags = Py_TPFLAGS_DEFAULT | (may),         \
        .slots = (slots_)                                                                          \
    }

/** Add the class of spec to the module, under the last part of its name. ret_type: gets a reference that the process
 * keeps; or NULL. False: an exception is set. */
bool muster_py_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret_type);

/* --- Tensors: buffers of other objects --- */

/** The object has the buffer protocol. */
bool muster_py_check_array(PyObject *object);

#define MUSTER_PY_FEW_TENSORS 8 /* a call with so many takes no memory */

/** The buffers of one call. */
struct muster_py_tensors {
    size_t count, bytes;
    struct muster_tensor *tensors, few_tensors[MUSTER_PY_FEW_TENSORS];
    Py_buffer *buffers, few_buffers[MUSTER_PY_FEW_TENSORS];
    /* The stream that still writes it, in the numbers of the CUDA array interface; 0: none. */
    uintptr_t *streams, few_streams[MUSTER_PY_FEW_TENSORS];
    bool takes_device; /* arrays in device memory, too */
    bool has_streams;
};

/** For arrays in host memory; a caller that takes device memory, too, sets takes_device afterwards. */
void muster_py_tensors_init(struct muster_py_tensors *tensors);
/** After init: room for more than MUSTER_PY_FEW_TENSORS. Close it also after a failure. */
bool muster_py_tensors_reserve(struct muster_py_tensors *tensors, size_t count);
/** One more, within the room. dtype: another name for elements of that size ("bf16", which
 * the buffer protocol lacks), or NULL. */
bool muster_py_tensors_add(struct muster_py_tensors *tensors, PyObject *object, const char *dtype,
                           bool is_written);
/** Init with one buffer, or with those of a list or tuple; they may be in device memory. Nothing is open after a
 * failure. */
bool muster_py_tensors_open(struct muster_py_tensors *tensors, PyObject *object, const char *dtype);
/** The same with those in host memory alone, which need not be writable. */
bool muster_py_tensors_open_as(struct muster_py_tensors *tensors, PyObject *object,
                               const char *dtype, bool is_written);
void muster_py_tensors_close(struct muster_py_tensors *tensors);

#endif
