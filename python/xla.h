/* Operations of strategies as calls of programs that XLA has compiled: the C part of muster.jax. */
#ifndef MUSTER_PYTHON_XLA_H
#define MUSTER_PYTHON_XLA_H

#include <stdbool.h>

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/** xla_target(), xla_number(strategy) and xla_take_error(). */
bool muster_py_add_xla(PyObject *module);

#endif
