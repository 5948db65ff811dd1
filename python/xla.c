/* Operations of strategies as calls of programs that XLA has compiled (muster/jax.py). A call has arrays, the weight
 * of a weighted mean and a token as its arguments, and arrays and token as its results, mostly in the same memory. The
 * token makes the order: XLA runs what does not depend on another as it likes. */
#include "python/xla.h"

#include "python/strategy.h"
#include "python/xla_ffi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define API_MAJOR      0
#define API_MINOR      1
#define STRATEGIES_MAX 64

enum xla_kind { XLA_ALL_REDUCE, XLA_WEIGHTED, XLA_BROADCAST };

/* A number, and not an address, is in the program: a program may come out of a cache. Each keeps a reference. */
static PyObject *strategies[STRATEGIES_MAX];
/* Written with the lock, by release behind the strategy; read with acquire. */
static atomic_int strategy_count;
static pthread_mutex_t strategies_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(PyObject *) last_error; /* of a call, until it is taken */

struct xla_call {
    int32_t kind, op, root, strategy;
};

static int32_t read_attribute(const struct muster_xla_attributes *attributes, const char *name)
{
    for (int64_t i = 0; i < attributes->count; i++) {
        const struct muster_xla_scalar *scalar = attributes->items[i];
        int32_t value;

        if (attributes->types[i] != MUSTER_XLA_SCALAR ||
            attributes->names[i]->count != strlen(name) ||
            memcmp(attributes->names[i]->bytes, name, strlen(name)) != 0)
            continue;
        memcpy(&value, scalar->value, sizeof(value));
        return value;
    }
    return 0;
}

/* --- Tensors --- */

/* xla::PrimitiveType; muster/jax.py lets no other through. */
static enum muster_dtype dtype_of(int type)
{
    static const struct {
        int type;
        enum muster_dtype dtype;
    } types[] = {{1, MUSTER_BOOL}, {2, MUSTER_I8},       {4, MUSTER_I32},     {5, MUSTER_I64},
                 {6, MUSTER_U8},   {8, MUSTER_U32},      {9, MUSTER_U64},     {10, MUSTER_F16},
                 {11, MUSTER_F32}, {12, MUSTER_F64},     {16, MUSTER_BF16},   {3, MUSTER_I16},
                 {7, MUSTER_U16},  {19, MUSTER_F8_E5M2}, {20, MUSTER_F8_E4M3}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].type == type)
            return types[i].dtype;
    return MUSTER_U8;
}

static struct muster_tensor tensor_of(const struct muster_xla_buffer *buffer)
{
    struct muster_tensor tensor = {
        .data = buffer->data, .count = 1, .dtype = dtype_of(buffer->dtype)};

    for (int64_t i = 0; i < buffer->rank; i++)
        tensor.count *= (uint64_t)buffer->dims[i];
    return tensor;
}

/* The last argument and the last result are the token. Results are not aliased to their arguments where the
 * program still needs these. */
static void copy_arguments(const struct muster_xla_frame *frame, size_t arrays)
{
    for (size_t i = 0; i <= arrays; i++) {
        struct muster_tensor to = tensor_of(frame->results.items[i]);
        size_t source = i < arrays ? i : (size_t)frame->arguments.count - 1;
        const void *from = frame->arguments.items[source]->data;

        if (to.data != from)
            memcpy(to.data, from, to.count * muster_dtype_bytes(to.dtype));
    }
}

static bool open_tensors(const struct muster_xla_frame *frame, size_t arrays,
                         struct muster_py_tensors *tensors)
{
    muster_py_tensors_init(tensors);
    if (!muster_py_tensors_reserve(tensors, arrays)) {
        muster_py_tensors_close(tensors);
        return false;
    }
    for (size_t i = 0; i < arrays; i++) {
        tensors->tensors[i] = tensor_of(frame->results.items[i]);
        tensors->buffers[i] = (Py_buffer){0};
        tensors->bytes += tensors->tensors[i].count * muster_dtype_bytes(tensors->tensors[i].dtype);
        tensors->count++;
    }
    return true;
}

/* --- A call --- */

static bool run_operation(const struct muster_xla_frame *frame, const struct xla_call *xla,
                          size_t arrays)
{
    static enum muster_rc (*const runs[])(struct muster_strategy *, struct muster_py_call *) = {
        muster_py_run_all_reduce, muster_py_run_all_reduce_weighted, muster_py_run_broadcast};
    struct muster_py_call call = {.run = runs[xla->kind],
                                  .reduction = (enum muster_reduction)xla->op,
                                  .root = (uint32_t)xla->root};
    struct muster_py_tensors tensors;
    PyObject *strategy, *result;

    if (xla->strategy < 0 ||
        xla->strategy >= atomic_load_explicit(&strategy_count, memory_order_acquire))
        return muster_py_raise(muster_py_error_classes[MUSTER_FAILED_PRECONDITION],
                               "the program is compiled for a strategy that this process lacks") !=
               NULL;
    strategy = strategies[xla->strategy];
    if (xla->kind == XLA_WEIGHTED)
        call.weight = *(const uint32_t *)frame->arguments.items[arrays]->data;
    if (!open_tensors(frame, arrays, &tensors))
        return false;
    result = muster_py_call_run_tensors(muster_py_strategy_of(strategy), &call, &tensors);
    Py_XDECREF(result);
    return result != NULL;
}

/* The exception waits for xla_take_error; XLA gets its text. */
static struct muster_xla_error *give_error(const struct muster_xla_api *api)
{
    struct muster_xla_error_arguments arguments = {.struct_size = sizeof(arguments),
                                                   .message = "a call of muster failed",
                                                   .code = MUSTER_UNKNOWN};
    PyObject *type = NULL, *value = NULL, *traceback = NULL, *text, *code;
    struct muster_xla_error *error;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    text = PyObject_Str(value);
    if (text != NULL && PyUnicode_AsUTF8AndSize(text, NULL) != NULL)
        arguments.message = PyUnicode_AsUTF8AndSize(text, NULL);
    code = PyObject_GetAttrString(value, "code");
    if (code != NULL)
        arguments.code = (int)PyLong_AsLong(code);
    PyErr_Clear();
    if (arguments.code < MUSTER_CANCELLED || arguments.code > MUSTER_UNAUTHENTICATED)
        arguments.code = MUSTER_UNKNOWN;
    error = api->error_new(&arguments);
    Py_XDECREF(atomic_exchange(&last_error, value));
    Py_XDECREF(code);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
}

static void tell_metadata(struct muster_xla_extension *extension)
{
    struct muster_xla_metadata *metadata =
        ((struct muster_xla_metadata_extension *)(void *)extension)->metadata;

    metadata->version.major = API_MAJOR;
    metadata->version.minor = API_MINOR;
}

/* XLA calls it, in a thread of its own or in the program's, without the GIL. */
static struct muster_xla_error *handle_call(struct muster_xla_frame *frame)
{
    struct muster_xla_error *error = NULL;
    struct xla_call call;
    PyGILState_STATE state;
    size_t arrays;

    if (frame->extension != NULL && frame->extension->type == MUSTER_XLA_METADATA)
        return tell_metadata(frame->extension), NULL;
    if (frame->stage != MUSTER_XLA_EXECUTE)
        return NULL;
    call = (struct xla_call){.kind = read_attribute(&frame->attributes, "kind"),
                             .op = read_attribute(&frame->attributes, "op"),
                             .root = read_attribute(&frame->attributes, "root"),
                             .strategy = read_attribute(&frame->attributes, "strategy")};
    arrays = (size_t)frame->results.count - 1;
    copy_arguments(frame, arrays);
    if (*(const uint32_t *)frame->results.items[arrays]->data != 0) /* the token of a rehearsal */
        return NULL;
    state = PyGILState_Ensure();
    if (!run_operation(frame, &call, arrays))
        error = give_error(frame->api);
    PyGILState_Release(state);
    return error;
}

/* --- Functions of the module --- */

static PyObject *xla_target(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyCapsule_New((void *)(uintptr_t)handle_call, NULL, NULL);
}

/* STRATEGIES_MAX: there are too many. */
static int number_of(PyObject *strategy)
{
    int number = 0, count;

    (void)pthread_mutex_lock(&strategies_lock);
    count = atomic_load_explicit(&strategy_count, memory_order_relaxed);
    while (number < count && strategies[number] != strategy)
        number++;
    if (number == count && count < STRATEGIES_MAX) {
        strategies[number] = Py_NewRef(strategy);
        atomic_store_explicit(&strategy_count, count + 1, memory_order_release);
    }
    (void)pthread_mutex_unlock(&strategies_lock);
    return number;
}

static PyObject *xla_number(PyObject *module, PyObject *strategy)
{
    int number;

    (void)module;
    if (!muster_py_strategy_is(strategy))
        return muster_py_raise(PyExc_TypeError, "strategy must be a muster.Strategy");
    number = number_of(strategy);
    if (number == STRATEGIES_MAX)
        return muster_py_raise(PyExc_RuntimeError,
                               "a process has at most 64 strategies that muster.jax uses");
    return PyLong_FromLong(number);
}

static PyObject *xla_take_error(PyObject *module, PyObject *unused)
{
    PyObject *error = atomic_exchange(&last_error, NULL);

    (void)module;
    (void)unused;
    if (error == NULL)
        Py_RETURN_NONE;
    return error;
}

bool muster_py_add_xla(PyObject *module)
{
    static PyMethodDef functions[] = {
        {"xla_target", xla_target, METH_NOARGS,
         "xla_target()\n--\n\nA capsule for jax.ffi.register_ffi_target."},
        {"xla_number", xla_number, METH_O,
         "xla_number(strategy, /)\n--\n\nThe number that programs have in place of the strategy."},
        {"xla_take_error", xla_take_error, METH_NOARGS,
         "xla_take_error()\n--\n\nThe exception of the last call that failed, once; or None."},
        {NULL, NULL, 0, NULL},
    };

    return PyModule_AddFunctions(module, functions) == 0;
}
