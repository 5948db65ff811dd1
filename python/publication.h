/* The types muster._muster.Publisher, Reader and Version: versions of tensors from one process to many. */
#ifndef MUSTER_PYTHON_PUBLICATION_H
#define MUSTER_PYTHON_PUBLICATION_H

#include "python/runtime.h"

#include <muster/publication.h>

/** The arguments that publishers and readers have in common. */
struct muster_py_publication_end {
    const char *name, *registry, *job, *listen, *reach;
    struct muster_address address; /* of listen */
    struct muster_py_security security;
};

/** The arguments of one of them alone, which stand behind `reach`. */
struct muster_py_publication_words {
    const char *format; /* of all of them */
    const char *names[2];
    void *values[2]; /* where they go */
};

/** end->listen may have a default before. Raises. */
bool muster_py_read_publication_end(PyObject *args, PyObject *keywords,
                                    const struct muster_py_publication_words *words,
                                    struct muster_py_publication_end *end);
/** Where it listens; NULL: it does not. */
static inline const struct muster_address *muster_py_publication_listen(
    const struct muster_py_publication_end *end)
{
    return end->listen != NULL ? &end->address : NULL;
}

bool muster_py_add_publisher(PyObject *module);
/** And the type of its versions. */
bool muster_py_add_reader(PyObject *module);

#endif
