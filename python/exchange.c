/* The operations of a strategy on parts of arrays, and messages. */
#include <muster/strategy_exchange.h>

#include "python/request.h"

/* --- Arguments --- */

void muster_py_counts_free(struct muster_py_counts *counts)
{
    PyMem_Free(counts->of_input);
    PyMem_Free(counts->of_output);
}

static PyObject *none_as_null(PyObject *value)
{
    return value == Py_None ? NULL : value;
}

static bool read_counts(PyObject *value, uint64_t **ret_counts, size_t *ret_count)
{
    Py_ssize_t count = PySequence_Check(value) ? PySequence_Size(value) : -1;
    uint64_t *counts;

    if (count < 0)
        return PyErr_Format(PyExc_TypeError,
                            "counts must be a list with one for each member, got %R",
                            value) != NULL;
    counts = PyMem_Calloc((size_t)count + 1, sizeof(*counts));
    if (counts == NULL)
        return PyErr_NoMemory() != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(value, i);
        bool is_right = item != NULL && muster_py_read_number(item, 0, INT64_MAX, &counts[i]);

        Py_XDECREF(item);
        if (!is_right) {
            PyMem_Free(counts);
            return false;
        }
    }
    *ret_counts = counts;
    *ret_count = (size_t)count;
    return true;
}

bool muster_py_counts_read(struct muster_py_counts *counts, PyObject *of_input, PyObject *of_output)
{
    return (none_as_null(of_input) == NULL ||
            read_counts(of_input, &counts->of_input, &counts->count)) &&
           (none_as_null(of_output) == NULL ||
            read_counts(of_output, &counts->of_output, &counts->output_count));
}

bool muster_py_pair_open(struct muster_py_tensors *tensors, PyObject *input, PyObject *output,
                         const char *dtype)
{
    muster_py_tensors_init(tensors);
    tensors->takes_device = true;
    if ((input == NULL || muster_py_tensors_add(tensors, input, dtype, false)) &&
        (output == NULL || muster_py_tensors_add(tensors, output, dtype, true)))
        return true;
    muster_py_tensors_close(tensors);
    return false;
}

static bool tensor_has_counts(const struct muster_tensor *tensor, const uint64_t *counts,
                              size_t count)
{
    uint64_t whole = 0;

    for (size_t i = 0; i < count && whole <= tensor->count; i++)
        whole += counts[i];
    return whole == tensor->count;
}

bool muster_py_counts_fit(const struct muster_py_counts *counts, const struct muster_tensor *input,
                          const struct muster_tensor *output)
{
    if ((counts->of_input == NULL || tensor_has_counts(input, counts->of_input, counts->count)) &&
        (counts->of_output == NULL ||
         tensor_has_counts(output, counts->of_output, counts->output_count)))
        return true;
    return muster_py_raise(PyExc_ValueError, "counts must add up to the elements of their array") !=
           NULL;
}

struct muster_parts muster_py_parts_of(const struct muster_tensor *tensor, const uint64_t *counts,
                                       size_t count)
{
    struct muster_parts parts = {.counts = counts, .part_count = (uint32_t)count};

    if (tensor != NULL) {
        parts.data = tensor->data;
        parts.dtype = tensor->dtype;
    }
    return parts;
}

static PyObject *run_uneven(PyObject *self, struct muster_py_call *call, PyObject *input,
                            PyObject *output, const char *dtype)
{
    struct muster_py_tensors tensors;

    if (!muster_py_pair_open(&tensors, input, output, dtype))
        return NULL;
    if (!muster_py_counts_fit(call->data, &tensors.tensors[0], &tensors.tensors[1])) {
        muster_py_tensors_close(&tensors);
        return NULL;
    }
    return muster_py_call_run_tensors(muster_py_members_of(self, call), call, &tensors);
}

/* --- Parts of the members, of one length or by counts --- */

static enum muster_rc run_reduce_scatter(struct muster_strategy *strategy,
                                         struct muster_py_call *call)
{
    const struct muster_py_counts *counts = call->data;
    const struct muster_parts parts =
        muster_py_parts_of(&call->tensors[0], counts->of_input, counts->count);

    if (counts->of_input == NULL)
        return MUSTER_PY_RUN(strategy, call, reduce_scatter, &call->tensors[0], &call->tensors[1],
                             call->reduction);
    return MUSTER_PY_RUN(strategy, call, reduce_scatter_uneven, &parts, &call->tensors[1],
                         call->reduction);
}

PyObject *muster_py_strategy_reduce_scatter(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                            PyObject *keywords)
{
    static const char *const names[] = {"input", "output", "op", "counts", "dtype", NULL};
    struct muster_py_counts counts = {0};
    struct muster_py_call call = {.run = run_reduce_scatter, .data = &counts};
    PyObject *values[5], *result = NULL;
    const char *dtype;

    if (muster_py_read_arguments("reduce_scatter", names, 2, args, count, keywords, values) &&
        muster_py_read_reduction(values[2], &call.reduction) &&
        muster_py_read_text(values[4], &dtype) && muster_py_counts_read(&counts, values[3], NULL))
        result = run_uneven(self, &call, values[0], values[1], dtype);
    muster_py_counts_free(&counts);
    return result;
}

static enum muster_rc run_all_gather(struct muster_strategy *strategy, struct muster_py_call *call)
{
    const struct muster_py_counts *counts = call->data;
    const struct muster_parts output =
        muster_py_parts_of(&call->tensors[1], counts->of_output, counts->output_count);

    return MUSTER_PY_RUN(strategy, call, all_gather_uneven, &call->tensors[0], &output);
}

static enum muster_rc run_all_to_all(struct muster_strategy *strategy, struct muster_py_call *call)
{
    const struct muster_py_counts *counts = call->data;
    const struct muster_parts input =
        muster_py_parts_of(&call->tensors[0], counts->of_input, counts->count);
    const struct muster_parts output =
        muster_py_parts_of(&call->tensors[1], counts->of_output, counts->output_count);

    return MUSTER_PY_RUN(strategy, call, all_to_all_uneven, &input, &output);
}

PyObject *muster_py_strategy_all_gather_uneven(PyObject *self, PyObject *const *args,
                                               Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"input", "output", "counts", "dtype", NULL};
    struct muster_py_counts counts = {0};
    struct muster_py_call call = {.run = run_all_gather, .data = &counts};
    PyObject *values[4], *result = NULL;
    const char *dtype;

    if (muster_py_read_arguments("all_gather_uneven", names, 3, args, count, keywords, values) &&
        muster_py_read_text(values[3], &dtype) &&
        read_counts(values[2], &counts.of_output, &counts.output_count))
        result = run_uneven(self, &call, values[0], values[1], dtype);
    muster_py_counts_free(&counts);
    return result;
}

PyObject *muster_py_strategy_all_to_all_uneven(PyObject *self, PyObject *const *args,
                                               Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"input",         "output", "input_counts",
                                        "output_counts", "dtype",  NULL};
    struct muster_py_counts counts = {0};
    struct muster_py_call call = {.run = run_all_to_all, .data = &counts};
    PyObject *values[5], *result = NULL;
    const char *dtype;

    if (muster_py_read_arguments("all_to_all_uneven", names, 4, args, count, keywords, values) &&
        muster_py_read_text(values[4], &dtype) &&
        read_counts(values[2], &counts.of_input, &counts.count) &&
        read_counts(values[3], &counts.of_output, &counts.output_count))
        result = run_uneven(self, &call, values[0], values[1], dtype);
    muster_py_counts_free(&counts);
    return result;
}

/* --- To and from a root: the others may give None for the whole --- */

static enum muster_rc run_gather(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return MUSTER_PY_RUN(strategy, call, gather, &call->tensors[0],
                         call->count > 1 ? &call->tensors[1] : NULL, call->root);
}

static enum muster_rc run_scatter(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return MUSTER_PY_RUN(strategy, call, scatter, call->count > 1 ? &call->tensors[0] : NULL,
                         &call->tensors[call->count - 1], call->root);
}

static PyObject *run_rooted(PyObject *self, const char *name, struct muster_py_call *call,
                            PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"input", "output", "root", "dtype", NULL};
    bool is_gather = call->run == run_gather;
    struct muster_py_tensors tensors;
    PyObject *values[4];
    const char *dtype;
    uint64_t root;

    if (!muster_py_read_arguments(name, names, 2, args, count, keywords, values) ||
        !muster_py_read_number(values[2], 0, UINT32_MAX, &root) ||
        !muster_py_read_text(values[3], &dtype) ||
        !muster_py_pair_open(&tensors, is_gather ? values[0] : none_as_null(values[0]),
                             is_gather ? none_as_null(values[1]) : values[1], dtype))
        return NULL;
    call->root = (uint32_t)root;
    return muster_py_call_run_tensors(muster_py_members_of(self, call), call, &tensors);
}

PyObject *muster_py_strategy_gather(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *keywords)
{
    struct muster_py_call call = {.run = run_gather};

    return run_rooted(self, "gather", &call, args, count, keywords);
}

PyObject *muster_py_strategy_scatter(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords)
{
    struct muster_py_call call = {.run = run_scatter};

    return run_rooted(self, "scatter", &call, args, count, keywords);
}

/* --- Messages --- */

static enum muster_rc run_send(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return MUSTER_PY_RUN(strategy, call, send, call->tensors, call->root);
}

static enum muster_rc run_receive(struct muster_strategy *strategy, struct muster_py_call *call)
{
    return MUSTER_PY_RUN(strategy, call, receive, call->tensors, call->root);
}

static PyObject *run_message(PyObject *self, const char *name, struct muster_py_call *call,
                             PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    static const char *const names[] = {"tensor", "rank", "dtype", NULL};
    bool is_send = call->run == run_send;
    struct muster_py_tensors tensors;
    PyObject *values[3];
    const char *dtype;
    uint64_t rank;

    if (!muster_py_read_arguments(name, names, 2, args, count, keywords, values) ||
        !muster_py_read_number(values[1], MUSTER_SPLIT_NOBODY, MUSTER_SPLIT_NOBODY - 1, &rank) ||
        !muster_py_read_text(values[2], &dtype) ||
        !muster_py_pair_open(&tensors, is_send ? values[0] : NULL, is_send ? NULL : values[0],
                             dtype))
        return NULL;
    call->root = (uint32_t)rank;
    return muster_py_call_run_tensors(muster_py_members_of(self, call), call, &tensors);
}

PyObject *muster_py_strategy_send(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords)
{
    struct muster_py_call call = {.run = run_send};

    return run_message(self, "send", &call, args, count, keywords);
}

PyObject *muster_py_strategy_receive(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords)
{
    struct muster_py_call call = {.run = run_receive};

    return run_message(self, "receive", &call, args, count, keywords);
}

/** The partners of an exchange; MUSTER_SPLIT_NOBODY: none. */
struct partners {
    uint64_t to, from;
};

static enum muster_rc run_exchange(struct muster_strategy *strategy, struct muster_py_call *call)
{
    const struct partners *partners = call->data;
    bool is_sent = partners->to != MUSTER_SPLIT_NOBODY;

    return MUSTER_PY_RUN(strategy, call, exchange, &call->tensors[0], (uint32_t)partners->to,
                         &call->tensors[is_sent ? 1 : 0], (uint32_t)partners->from);
}

PyObject *muster_py_strategy_exchange(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                      PyObject *keywords)
{
    static const char *const names[] = {"output", "to", "input", "source", "dtype", NULL};
    struct partners partners;
    struct muster_py_call call = {.run = run_exchange, .data = &partners};
    struct muster_py_tensors tensors;
    PyObject *values[5];
    const char *dtype;

    if (!muster_py_read_arguments("exchange", names, 4, args, count, keywords, values) ||
        !muster_py_read_number(values[1], MUSTER_SPLIT_NOBODY, MUSTER_SPLIT_NOBODY, &partners.to) ||
        !muster_py_read_number(values[3], MUSTER_SPLIT_NOBODY, MUSTER_SPLIT_NOBODY,
                               &partners.from) ||
        !muster_py_read_text(values[4], &dtype) ||
        !muster_py_pair_open(&tensors, partners.to != MUSTER_SPLIT_NOBODY ? values[0] : NULL,
                             partners.from != MUSTER_SPLIT_NOBODY ? values[2] : NULL, dtype))
        return NULL;
    return muster_py_call_run_tensors(muster_py_members_of(self, &call), &call, &tensors);
}
