/* The type muster.Tensor. */
#include "python/tensor.h"

struct tensor_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        PyObject *owner;
    struct muster_py_memory *memory;
    muster_py_unused_fn *on_unused;
    Py_ssize_t shape, stride;
};

static PyTypeObject *tensor_type;

static struct tensor_object *tensor_of(PyObject *self)
{
    return (struct tensor_object *)self;
}

PyObject *muster_py_tensor_new(PyObject *owner, struct muster_py_memory *memory,
                               muster_py_unused_fn *on_unused)
{
    PyObject *self = PyType_GenericAlloc(tensor_type, 0);

    if (self == NULL)
        return NULL;
    Py_INCREF(owner);
    tensor_of(self)->owner = owner;
    tensor_of(self)->memory = memory;
    tensor_of(self)->on_unused = on_unused;
    tensor_of(self)->shape = (Py_ssize_t)memory->tensor.count;
    tensor_of(self)->stride = (Py_ssize_t)muster_dtype_bytes(memory->tensor.dtype);
    return self;
}

bool muster_py_tensor_find(PyObject *object, struct muster_tensor *ret_tensor)
{
    if (Py_TYPE(object) != tensor_type)
        return false;
    *ret_tensor = tensor_of(object)->memory->tensor;
    return true;
}

static void tensor_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct tensor_object *ours = tensor_of(self);

    if (ours->owner != NULL) {
        ours->on_unused(ours->owner, ours->memory);
        Py_CLEAR(ours->owner);
    }
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* bf16 and the 8-bit floats show as the bits that they are. */
static const char *format_of(enum muster_dtype dtype)
{
    static const char *const formats[] = {
        [MUSTER_F32] = "f", [MUSTER_F64] = "d",     [MUSTER_I32] = "i",    [MUSTER_I64] = "q",
        [MUSTER_U8] = "B",  [MUSTER_F16] = "e",     [MUSTER_BF16] = "H",   [MUSTER_I8] = "b",
        [MUSTER_U32] = "I", [MUSTER_U64] = "Q",     [MUSTER_BOOL] = "?",   [MUSTER_I16] = "h",
        [MUSTER_U16] = "H", [MUSTER_F8_E4M3] = "B", [MUSTER_F8_E5M2] = "B"};

    return formats[dtype];
}

static int tensor_get_buffer(PyObject *self, Py_buffer *buffer, int flags)
{
    struct tensor_object *ours = tensor_of(self);
    const struct muster_tensor *tensor = &ours->memory->tensor;

    if (PyBuffer_FillInfo(buffer, self, tensor->data, ours->shape * ours->stride,
                          ours->memory->is_read_only, flags) != 0)
        return -1;
    buffer->itemsize = ours->stride;
    buffer->shape = (flags & PyBUF_ND) == PyBUF_ND ? &ours->shape : NULL;
    buffer->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &ours->stride : NULL;
    buffer->format =
        (flags & PyBUF_FORMAT) != 0 ? (char *)(uintptr_t)format_of(tensor->dtype) : NULL;
    return 0;
}

static Py_ssize_t tensor_length(PyObject *self)
{
    return tensor_of(self)->shape;
}

static PyObject *tensor_get_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(muster_dtype_name(tensor_of(self)->memory->tensor.dtype));
}

static PyGetSetDef tensor_attributes[] = {
    {"dtype", tensor_get_dtype, NULL, "\"f32\", \"bf16\", …", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot tensor_slots[] = {
    {Py_tp_dealloc, MUSTER_PY_SLOT(tensor_dealloc)},
    {Py_tp_getset, tensor_attributes},
    {Py_bf_getbuffer, MUSTER_PY_SLOT(tensor_get_buffer)},
    {Py_sq_length, MUSTER_PY_SLOT(tensor_length)},
    {Py_tp_doc,
     MUSTER_PY_SLOT("Memory that the other processes of the host map: numpy.asarray(tensor), "
                    "torch.frombuffer(tensor). "
                    "It lives as long as its last user, also after close.")},
    {0, NULL},
};

static PyType_Spec tensor_spec = MUSTER_PY_SPEC("muster.Tensor", struct tensor_object,
                                                Py_TPFLAGS_DISALLOW_INSTANTIATION, tensor_slots);

bool muster_py_add_tensor(PyObject *module)
{
    return muster_py_add_type(module, &tensor_spec, &tensor_type);
}
