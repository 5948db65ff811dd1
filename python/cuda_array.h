/* Arrays in the memory of a CUDA device, of whatever package: __cuda_array_interface__. */
#ifndef MUSTER_PYTHON_CUDA_ARRAY_H
#define MUSTER_PYTHON_CUDA_ARRAY_H

#include "python/convert.h"

/** Whether object is one. Runs code of the program. */
bool muster_py_is_cuda_array(PyObject *object);
/** Its memory, which *buffer holds until PyBuffer_Release. dtype: another name for elements of the same size, or NULL.
 * *ret_stream: the stream that still writes it, as a number of the interface (1 is the default one); 0: none. False: an
 * exception is set. */
bool muster_py_cuda_array_open(PyObject *object, const char *dtype, bool is_written,
                               Py_buffer *buffer, struct muster_tensor *ret_tensor,
                               uintptr_t *ret_stream);

#endif
