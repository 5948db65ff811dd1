/* The types muster._muster.ParamsClient and ParamsTable: rows and tensors that servers hold. */
#ifndef MUSTER_PYTHON_PARAMS_H
#define MUSTER_PYTHON_PARAMS_H

#include "python/runtime.h"

#include <muster/params.h>

struct muster_py_params_request;

/** It belongs to whoever has the lock of its runtime's calls, but for what is said. */
struct muster_py_params {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_py_runtime runtime;
    struct muster_params *params; /* NULL: closed */
    atomic_bool is_closed;        /* for those who ask without the lock; relaxed */
    uint32_t clock_sources;
    uint64_t clock; /* of the last tick */
    bool is_closing;
    struct muster_list requests;              /* that the library holds; with the guard */
    struct muster_py_params_request *awaited; /* by the call that runs; NULL: none */
};

/** Wait for what was started with rc, leave the call, and give None or raise. op->data is muster_py_params's. */
PyObject *muster_py_params_wait(struct muster_py_params *self, struct muster_params_op *op,
                                enum muster_rc rc);
/** Leave the call, and give None or raise what rc says. */
PyObject *muster_py_params_end(struct muster_py_params *self, const struct muster_params_op *op,
                               enum muster_rc rc);
/** None, or raise what rc says. With the GIL. */
PyObject *muster_py_params_result(const struct muster_params_op *op, enum muster_rc rc);
void muster_py_params_on_done(struct muster_params_op *op, enum muster_rc rc);

/* --- params_request.c --- */

/** One that is not started; free it by Py_DECREF. kind is a literal. */
struct muster_py_params_request *muster_py_params_request_new(const char *kind);
struct muster_py_tensors *muster_py_params_request_tensors(struct muster_py_params_request *self);
struct muster_params_op *muster_py_params_request_op(struct muster_py_params_request *self);
/** Before the start of its operation, whose callback is muster_py_params_on_request_done. */
void muster_py_params_request_own(struct muster_py_params_request *self,
                                  struct muster_py_params *owner);
void muster_py_params_on_request_done(struct muster_params_op *op, enum muster_rc rc);
/** Leave the call that has started it with rc: if that is OK, the library holds it, too. Returns it, or raises. */
PyObject *muster_py_params_request_leave(struct muster_py_params_request *self, enum muster_rc rc);
/** The method start of a client. */
PyObject *muster_py_params_start(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords);
/** Let go of those that have ended. With the GIL, outside of calls. */
void muster_py_params_requests_release(struct muster_py_params *owner);
bool muster_py_add_params_request(PyObject *module);

/* --- params_cut.c --- */

/** The contents of a cut. */
PyObject *muster_py_params_cut_dict(const struct muster_params_cut *cut);

/* --- Others --- */

/** The arguments of the method `table`; names are borrowed from them. */
bool muster_py_read_schema(PyObject *args, PyObject *keywords, struct muster_params_schema *schema,
                           uint64_t *ret_timeout_ns);
/** Methods of a client. */
PyObject *muster_py_params_table(PyObject *self, PyObject *args, PyObject *keywords);
PyObject *muster_py_params_cut(PyObject *self, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords);

bool muster_py_add_params(PyObject *module);
bool muster_py_add_params_table(PyObject *module);

#endif
