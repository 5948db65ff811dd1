/* The type muster._muster.Dataset: records of files, or the numbers of a program's own, in a shuffled order. */
#ifndef MUSTER_PYTHON_DATASET_H
#define MUSTER_PYTHON_DATASET_H

#include "python/call.h"

bool muster_py_add_dataset(PyObject *module);

#endif
