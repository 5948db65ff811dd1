/* The types muster._muster.Publisher, Reader and Version: versions of tensors from one process to many. */
#ifndef MUSTER_PYTHON_PUBLICATION_H
#define MUSTER_PYTHON_PUBLICATION_H

#include "python/runtime.h"

#include <muster/publication.h>

/** "HOST:PORT", or NULL for text NULL. */
bool muster_py_read_listen(const char *text, struct muster_address *address,
                           const struct muster_address **ret_listen);

bool muster_py_add_publisher(PyObject *module);
/** And the type of its versions. */
bool muster_py_add_reader(PyObject *module);

#endif
