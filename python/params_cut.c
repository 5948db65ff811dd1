/* A cut: all tables of a job in files of a folder, while pushes go on. */
#include "python/params.h"

static void cancel_op(void *data)
{
    muster_params_op_cancel(data);
}

PyObject *muster_py_params_cut_dict(const struct muster_params_cut *cut)
{
    return Py_BuildValue("{sKsKsKsKsIsIsIsI}", "number", (unsigned long long)cut->number, "clock",
                         (unsigned long long)cut->clock, "rows", (unsigned long long)cut->rows,
                         "bytes", (unsigned long long)cut->bytes, "shards", cut->shards, "tables",
                         cut->tables, "servers", cut->servers, "shards_saved", cut->shards_saved);
}

/* Within a call. */
static enum muster_rc cut_wait(struct muster_py_params *self, struct muster_params_op *op,
                               const char *folder, uint64_t clock, uint64_t timeout_ns,
                               struct muster_params_cut *ret_cut)
{
    enum muster_rc rc;

    *op = (struct muster_params_op){.data = self};
    muster_py_runtime_expect(&self->runtime);
    rc = muster_params_cut_at_start(op, self->params, folder, clock, ret_cut,
                                    muster_py_runtime_deadline(&self->runtime, timeout_ns),
                                    muster_py_params_on_done);
    return rc == MUSTER_OK ? muster_py_runtime_wait(&self->runtime, cancel_op, op) : rc;
}

PyObject *muster_py_params_cut(PyObject *self, PyObject *const *args, Py_ssize_t count,
                               PyObject *keywords)
{
    static const char *const names[] = {"folder", "clock", "timeout", NULL};
    PyObject *values[3], *result;
    struct muster_py_params *ours = (struct muster_py_params *)self;
    struct muster_params_cut cut;
    struct muster_params_op op;
    uint64_t clock, timeout_ns;
    const char *folder;
    enum muster_rc rc;

    if (!muster_py_read_arguments("cut", names, 1, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &folder) ||
        !muster_py_read_number(values[1], 0, UINT64_MAX, &clock) ||
        !muster_py_read_patience(values[2], &timeout_ns))
        return NULL;
    if (folder == NULL)
        return muster_py_raise(PyExc_TypeError, "a folder must be a string, got None");
    if (!muster_py_runtime_enter(&ours->runtime, false))
        return NULL;
    rc = cut_wait(ours, &op, folder, clock, timeout_ns, &cut);
    result = muster_py_params_end(ours, &op, rc);
    if (result == NULL)
        return NULL;
    Py_DECREF(result);
    return muster_py_params_cut_dict(&cut);
}
