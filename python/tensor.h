/* Tensors in memory that the other processes of the host map, as objects with the buffer protocol. */
#ifndef MUSTER_PYTHON_TENSOR_H
#define MUSTER_PYTHON_TENSOR_H

#include "python/convert.h"

#include <muster/list.h>
#include <muster/strategy.h>

/** The memory of one: the strategy's until close, after it the object's own. */
struct muster_py_memory {
    struct muster_tensor tensor;
    struct muster_kept_memory kept; /* after close */
    struct muster_list node;        /* in the strategy's list, until it is freed */
    struct muster_py_memory *next;  /* of those that nobody has any more */
    bool is_read_only;
};

/** An object whose memory goes to on_unused when nobody has the object, or a view of it, any more. It
 * keeps a reference to owner, the strategy. on_unused is called by any thread, also within a call of the owner. */
typedef void muster_py_unused_fn(PyObject *owner, struct muster_py_memory *memory);
PyObject *muster_py_tensor_new(PyObject *owner, struct muster_py_memory *memory,
                               muster_py_unused_fn *on_unused);
/** Whether object is one: then *ret_tensor is its tensor. */
bool muster_py_tensor_find(PyObject *object, struct muster_tensor *ret_tensor);
bool muster_py_add_tensor(PyObject *module);

#endif
