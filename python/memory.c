/* Memory of a strategy that the other processes of the host map: its making, and its end between calls. */
#include "python/strategy.h"

/* The memory of a tensor is given back between calls: its last user may go inside of one. */
void muster_py_strategy_free_unused(struct muster_py_strategy *self)
{
    struct muster_py_memory *memory =
        atomic_load(&self->unused) != NULL ? atomic_exchange(&self->unused, NULL) : NULL;

    while (memory != NULL) {
        struct muster_py_memory *next = memory->next;

        muster_list_remove(&memory->node);
        if (self->strategy != NULL)
            muster_strategy_tensor_free(self->strategy, &memory->tensor);
        else
            muster_kept_memory_free(&memory->kept);
        PyMem_Free(memory);
        memory = next;
    }
}

/* In a fork it stays, as it is the parent's. */
static void on_unused(PyObject *owner, struct muster_py_memory *memory)
{
    struct muster_py_strategy *self = muster_py_strategy_of(owner);

    memory->next = atomic_load(&self->unused);
    while (!atomic_compare_exchange_weak(&self->unused, &memory->next, memory))
        continue;
    if (muster_py_calls_is_forked(&self->calls) || !muster_py_calls_try_lock(&self->calls))
        return; /* the call that runs frees it */
    muster_py_strategy_leave(self);
}

static enum muster_rc run_tensor_new(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return muster_strategy_tensor_new(strategy, call->tensors->dtype, call->tensors->count,
                                      call->tensors);
}

/** A tensor in the making. */
struct making {
    struct muster_tensor tensor;
    struct muster_py_memory *memory;
    bool is_made;
};

static void hold_memory(struct muster_py_strategy *self, struct muster_py_call *call)
{
    struct making *making = call->data;

    making->memory->tensor = making->tensor;
    muster_list_append(&self->tensors, &making->memory->node);
    making->is_made = true;
}

PyObject *muster_py_strategy_zeros(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords)
{
    static const char *const names[] = {"count", "dtype", NULL};
    PyObject *values[2], *result;
    struct making making = {.tensor = {.dtype = MUSTER_F32}};
    struct muster_py_call call = {
        .run = run_tensor_new, .settle = hold_memory, .tensors = &making.tensor, .data = &making};

    if (!muster_py_read_arguments("zeros", names, 1, args, count, keywords, values) ||
        !muster_py_read_number(values[0], 0, SIZE_MAX, &making.tensor.count) ||
        !muster_py_read_dtype(values[1], &making.tensor.dtype))
        return NULL;
    making.memory = PyMem_Calloc(1, sizeof(*making.memory));
    if (making.memory == NULL)
        return PyErr_NoMemory();
    result = muster_py_call_run(muster_py_strategy_of(self), &call);
    if (result != NULL) {
        Py_DECREF(result);
        result = muster_py_tensor_new(self, making.memory, on_unused);
    }
    if (result == NULL && making.is_made)
        on_unused(self, making.memory);
    else if (result == NULL)
        PyMem_Free(making.memory);
    return result;
}

void muster_py_strategy_keep_tensors(struct muster_py_strategy *self)
{
    MUSTER_LIST_EACH (&self->tensors, memory, struct muster_py_memory, node) {
        enum muster_rc rc =
            muster_strategy_tensor_keep(self->strategy, &memory->tensor, &memory->kept);

        (void)rc; /* no other thread is in: the lock is this one's */
    }
}
