/* The operations of a strategy: reductions, exchanges, barriers. */
#include "python/strategy.h"

enum muster_rc muster_py_run_all_reduce(struct muster_strategy *strategy,
                                        struct muster_py_call *call)
{
    struct muster_communication_options options;

    if (call->timeout_ns == 0 && call->bytes_per_pack == 0)
        return MUSTER_PY_RUN(strategy, call, all_reduce, call->tensors, call->count,
                             call->reduction);
    options = muster_strategy_communication(strategy);
    if (call->timeout_ns > 0)
        options.timeout_ns = call->timeout_ns;
    if (call->bytes_per_pack > 0)
        options.bytes_per_pack = call->bytes_per_pack;
    return muster_strategy_all_reduce_with(strategy, call->tensors, call->count, call->reduction,
                                           &options);
}

PyObject *muster_py_strategy_all_reduce(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                        PyObject *keywords)
{
    static const char *const names[] = {"tensors",        "op", "dtype", "timeout",
                                        "bytes_per_pack", NULL};
    static const char *const split_names[] = {"tensors", "op", "dtype", NULL};
    PyObject *values[5] = {NULL};
    struct muster_py_call call = {.run = muster_py_run_all_reduce};
    struct muster_py_strategy *strategy = muster_py_members_of(self, &call);
    struct muster_py_tensors tensors;
    const char *dtype;

    if (!muster_py_read_arguments("all_reduce", call.split != NULL ? split_names : names, 1, args,
                                  count, keywords, values) ||
        !muster_py_read_reduction(values[1], &call.reduction) ||
        !muster_py_read_text(values[2], &dtype) ||
        !muster_py_read_seconds(values[3], &call.timeout_ns) ||
        !muster_py_read_number(values[4], 0, SIZE_MAX, &call.bytes_per_pack) ||
        !muster_py_tensors_open(&tensors, values[0], dtype))
        return NULL;
    return muster_py_call_run_tensors(strategy, &call, &tensors);
}

enum muster_rc muster_py_run_all_reduce_weighted(struct muster_strategy *strategy,
                                                 struct muster_py_call *call)
{
    return muster_strategy_all_reduce_weighted(strategy, call->tensors, call->count, call->weight);
}

PyObject *muster_py_strategy_all_reduce_weighted(PyObject *self, PyObject *const *args,
                                                 Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"tensors", "weight", "dtype", NULL};
    PyObject *values[3];
    struct muster_py_call call = {.run = muster_py_run_all_reduce_weighted};
    struct muster_py_tensors tensors;
    const char *dtype;

    if (!muster_py_read_arguments("all_reduce_weighted", names, 2, args, count, keywords, values) ||
        !muster_py_read_number(values[1], 0, UINT64_MAX, &call.weight) ||
        !muster_py_read_text(values[2], &dtype) ||
        !muster_py_tensors_open(&tensors, values[0], dtype))
        return NULL;
    return muster_py_call_run_tensors(muster_py_strategy_of(self), &call, &tensors);
}

enum muster_rc muster_py_run_broadcast(struct muster_strategy *strategy,
                                       struct muster_py_call *call)
{
    return MUSTER_PY_RUN(strategy, call, broadcast, call->tensors, call->root);
}

static enum muster_rc run_reduce(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return MUSTER_PY_RUN(strategy, call, reduce, call->tensors, call->reduction, call->root);
}

PyObject *muster_py_strategy_broadcast(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                       PyObject *keywords)
{
    static const char *const names[] = {"tensor", "root", "dtype", NULL};
    PyObject *values[3];
    struct muster_py_call call = {.run = muster_py_run_broadcast};
    struct muster_py_tensors tensors;
    const char *dtype;
    uint64_t root;

    muster_py_tensors_init(&tensors);
    tensors.takes_device = true;
    if (!muster_py_read_arguments("broadcast", names, 1, args, count, keywords, values) ||
        !muster_py_read_number(values[1], 0, UINT32_MAX, &root) ||
        !muster_py_read_text(values[2], &dtype) ||
        !muster_py_tensors_add(&tensors, values[0], dtype, true))
        return NULL;
    call.root = (uint32_t)root;
    return muster_py_call_run_tensors(muster_py_members_of(self, &call), &call, &tensors);
}

PyObject *muster_py_strategy_reduce(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords)
{
    static const char *const names[] = {"tensor", "op", "root", "dtype", NULL};
    PyObject *values[4];
    struct muster_py_call call = {.run = run_reduce};
    struct muster_py_tensors tensors;
    const char *dtype;
    uint64_t root;

    muster_py_tensors_init(&tensors);
    tensors.takes_device = true;
    if (!muster_py_read_arguments("reduce", names, 1, args, count, keywords, values) ||
        !muster_py_read_reduction(values[1], &call.reduction) ||
        !muster_py_read_number(values[2], 0, UINT32_MAX, &root) ||
        !muster_py_read_text(values[3], &dtype) ||
        !muster_py_tensors_add(&tensors, values[0], dtype, true))
        return NULL;
    call.root = (uint32_t)root;
    return muster_py_call_run_tensors(muster_py_members_of(self, &call), &call, &tensors);
}

static enum muster_rc run_all_gather(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return MUSTER_PY_RUN(strategy, call, all_gather, &call->tensors[0], &call->tensors[1]);
}

static enum muster_rc run_all_to_all(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return MUSTER_PY_RUN(strategy, call, all_to_all, &call->tensors[0], &call->tensors[1]);
}

static PyObject *run_exchange(PyObject *self, const char *name, struct muster_py_call *call,
                              PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"input", "output", "dtype", NULL};
    PyObject *values[3];
    struct muster_py_tensors tensors;
    const char *dtype;

    muster_py_tensors_init(&tensors);
    tensors.takes_device = true;
    if (!muster_py_read_arguments(name, names, 2, args, count, keywords, values) ||
        !muster_py_read_text(values[2], &dtype) ||
        !muster_py_tensors_add(&tensors, values[0], dtype, false))
        return NULL;
    if (!muster_py_tensors_add(&tensors, values[1], dtype, true)) {
        muster_py_tensors_close(&tensors);
        return NULL;
    }
    return muster_py_call_run_tensors(muster_py_members_of(self, call), call, &tensors);
}

PyObject *muster_py_strategy_all_gather(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                        PyObject *keywords)
{
    struct muster_py_call call = {.run = run_all_gather};

    return run_exchange(self, "all_gather", &call, args, count, keywords);
}

PyObject *muster_py_strategy_all_to_all(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                        PyObject *keywords)
{
    struct muster_py_call call = {.run = run_all_to_all};

    return run_exchange(self, "all_to_all", &call, args, count, keywords);
}

static enum muster_rc run_barrier(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return call->split != NULL ? muster_strategy_split_barrier(call->split)
                               : muster_strategy_barrier(strategy);
}

PyObject *muster_py_strategy_barrier(PyObject *self, PyObject *unused)
{
    struct muster_py_call call = {.run = run_barrier, .is_short = true};

    (void)unused;
    return muster_py_call_run(muster_py_members_of(self, &call), &call);
}

static enum muster_rc run_check_health(struct muster_strategy *strategy,
                                       struct muster_py_call *call)
{
    return muster_strategy_check_health(strategy, call->timeout_ns);
}

PyObject *muster_py_strategy_check_health(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                          PyObject *keywords)
{
    static const char *const names[] = {"timeout", NULL};
    PyObject *values[1];
    struct muster_py_call call = {.run = run_check_health};

    if (!muster_py_read_arguments("check_health", names, 0, args, count, keywords, values) ||
        !muster_py_read_seconds(values[0], &call.timeout_ns))
        return NULL;
    return muster_py_call_run(muster_py_strategy_of(self), &call);
}
