/* The module muster._muster, against the limited API of CPython 3.11. */
#include "python/call.h"
#include "python/dataset.h"
#include "python/params.h"
#include "python/publication.h"
#include "python/request.h"
#include "python/strategy.h"
#include "python/tensor.h"
#include "python/xla.h"

#include <muster/muster.h>

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "muster._muster",
    .m_doc = "The C part of the package muster.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__muster(void);
PyMODINIT_FUNC PyInit__muster(void)
{
    PyObject *module = PyModule_Create(&module_def);

    if (module == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED /* threads call in at once: each object has its own lock (call.h) */
    if (PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED) != 0)
        Py_CLEAR(module);
    if (module == NULL)
        return NULL;
#endif
    if (!muster_py_calls_watch_forks() || !muster_py_add_errors(module) ||
        !muster_py_add_tensor(module) || !muster_py_add_strategy(module) ||
        !muster_py_add_split(module) || !muster_py_add_micro_batches(module) ||
        !muster_py_add_request(module) || !muster_py_add_params(module) ||
        !muster_py_add_publisher(module) || !muster_py_add_reader(module) ||
        !muster_py_add_dataset(module) || !muster_py_add_xla(module) ||
        PyModule_AddStringConstant(module, "__version__", MUSTER_VERSION) != 0)
        Py_CLEAR(module);
    return module;
}
