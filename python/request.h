/* The type muster.Request, and the arguments that it shares with the blocking operations on parts. */
#ifndef MUSTER_PYTHON_REQUEST_H
#define MUSTER_PYTHON_REQUEST_H

#include "python/strategy.h"

bool muster_py_add_request(PyObject *module);

/** Take those that have been completed out of the strategy's, within its lock. */
void muster_py_requests_take(struct muster_py_strategy *owner, struct muster_list *ret_completed);
/** Let go of them, and of their arrays, which may run code of the program: outside of the lock. */
void muster_py_requests_release(struct muster_list *completed);

/* --- Arguments: exchange.c --- */

/** Uneven parts: elements of each member's, of the input and of the output. */
struct muster_py_counts {
    size_t count, output_count;
    uint64_t *of_input, *of_output; /* NULL: not uneven */
};

/** NULL and None: there are none. The memory must be zeroed; free it also after a failure. */
bool muster_py_counts_read(struct muster_py_counts *counts, PyObject *of_input,
                           PyObject *of_output);
void muster_py_counts_free(struct muster_py_counts *counts);
/** The library reads as much as the counts say. Raises ValueError. */
bool muster_py_counts_fit(const struct muster_py_counts *counts, const struct muster_tensor *input,
                          const struct muster_tensor *output);
/** tensor may be NULL. */
struct muster_parts muster_py_parts_of(const struct muster_tensor *tensor, const uint64_t *counts,
                                       size_t count);

/** Input and output, either of which may be NULL: there is none. Nothing is open after a failure. */
bool muster_py_pair_open(struct muster_py_tensors *tensors, PyObject *input, PyObject *output,
                         const char *dtype);

#endif
