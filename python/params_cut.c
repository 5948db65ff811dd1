/* A cut: all tables of a job in files of a folder, while pushes go on. */
#include "python/params.h"

#include <string.h>

static void cancel_op(void *data)
{
    muster_params_op_cancel(data);
}

#define AGAIN_PAUSE_NS (20 * MUSTER_NS_PER_MS)

/* Within a call. A cut is refused at once while no server leads a shard. */
static void pause_wait(const struct muster_py_runtime *runtime)
{
    struct muster_loop *loop = runtime->env->loop;
    enum muster_rc rc = muster_runtime_wait(runtime->runtime, NULL, NULL,
                                            muster_loop_after_ns(loop, AGAIN_PAUSE_NS));

    MUSTER_ASSERT(rc == MUSTER_DEADLINE_EXCEEDED);
}

/* Within a call. The reasons of UNAVAILABLE pass soon: a server has died, a client has come. */
static enum muster_rc cut_wait(struct muster_py_params *self, struct muster_params_op *op,
                               const char *folder, uint64_t clock, uint64_t deadline_ns,
                               struct muster_params_cut *ret_cut)
{
    struct muster_error last = {.rc = MUSTER_OK};
    enum muster_rc rc;

    do {
        if (last.rc != MUSTER_OK)
            pause_wait(&self->runtime);
        *op = (struct muster_params_op){.data = self};
        muster_py_runtime_expect(&self->runtime);
        rc = muster_params_cut_at_start(op, self->params, folder, clock, ret_cut, deadline_ns,
                                        muster_py_params_on_done);
        if (last.rc != MUSTER_OK && rc == MUSTER_INVALID_ARGUMENT) { /* the deadline has passed */
            op->error = last;
            return last.rc;
        }
        if (rc == MUSTER_OK)
            rc = muster_py_runtime_wait(&self->runtime, cancel_op, op);
        last = op->error;
    } while (rc == MUSTER_UNAVAILABLE &&
             deadline_ns > muster_loop_after_ns(self->runtime.env->loop, AGAIN_PAUSE_NS));
    return rc;
}

static PyObject *cut_dict(const struct muster_params_cut *cut)
{
    return Py_BuildValue("{sKsKsKsKsIsIsIsI}", "number", (unsigned long long)cut->number, "clock",
                         (unsigned long long)cut->clock, "rows", (unsigned long long)cut->rows,
                         "bytes", (unsigned long long)cut->bytes, "shards", cut->shards, "tables",
                         cut->tables, "servers", cut->servers, "shards_saved", cut->shards_saved);
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
        !muster_py_read_timeout(values[2], &timeout_ns))
        return NULL;
    if (folder == NULL)
        return muster_py_raise(PyExc_TypeError, "a folder must be a string, got None");
    if (!muster_py_runtime_enter(&ours->runtime, false))
        return NULL;
    rc = cut_wait(ours, &op, folder, clock, muster_py_runtime_deadline(&ours->runtime, timeout_ns),
                  &cut);
    result = muster_py_params_end(ours, &op, rc);
    if (result == NULL)
        return NULL;
    Py_DECREF(result);
    return cut_dict(&cut);
}

/* --- Cuts that were started --- */

struct muster_py_params_cutting {
    struct muster_py_params *owner;
    struct muster_params_op *op;
    muster_params_op_fn *done;
    uint64_t clock, deadline_ns;
    struct muster_params_cut cut;
    struct muster_error last;  /* of the attempt before */
    struct muster_timer again; /* started: it pauses, and is in the owner's pauses */
    struct muster_list node;
    char folder[];
};

static void on_again(struct muster_timer *timer)
{
    struct muster_py_params_cutting *self = timer->data;
    enum muster_rc rc;

    muster_list_remove(&self->node);
    *self->op = (struct muster_params_op){.data = self->op->data};
    rc = muster_params_cut_at_start(self->op, self->owner->params, self->folder, self->clock,
                                    &self->cut, self->deadline_ns, self->done);
    if (rc == MUSTER_OK)
        return;
    if (rc == MUSTER_INVALID_ARGUMENT) { /* the deadline has passed */
        self->op->error = self->last;
        rc = self->last.rc;
    }
    self->done(self->op, rc);
}

struct muster_py_params_cutting *muster_py_params_cutting_new(struct muster_py_params *owner,
                                                              struct muster_params_op *op,
                                                              const char *folder)
{
    size_t bytes = strlen(folder) + 1;
    struct muster_py_params_cutting *self = PyMem_Calloc(1, sizeof(*self) + bytes);

    if (self == NULL) {
        (void)PyErr_NoMemory();
        return NULL;
    }
    self->owner = owner;
    self->op = op;
    memcpy(self->folder, folder, bytes);
    muster_list_init(&self->node);
    muster_timer_init(&self->again, on_again, self);
    return self;
}

void muster_py_params_cutting_free(struct muster_py_params_cutting *self)
{
    PyMem_Free(self);
}

enum muster_rc muster_py_params_cutting_start(struct muster_py_params_cutting *self, uint64_t clock,
                                              uint64_t deadline_ns, muster_params_op_fn *done)
{
    self->clock = clock;
    self->deadline_ns = deadline_ns;
    self->done = done;
    return muster_params_cut_at_start(self->op, self->owner->params, self->folder, clock,
                                      &self->cut, deadline_ns, done);
}

bool muster_py_params_cutting_goes_on(struct muster_py_params_cutting *self, enum muster_rc rc)
{
    struct muster_loop *loop;

    if (self == NULL || rc != MUSTER_UNAVAILABLE)
        return false;
    loop = self->owner->runtime.env->loop;
    if (self->deadline_ns <= muster_loop_after_ns(loop, AGAIN_PAUSE_NS))
        return false;
    self->last = self->op->error;
    muster_timer_start(&self->again, loop, muster_loop_after_ns(loop, AGAIN_PAUSE_NS));
    muster_list_append(&self->owner->pauses, &self->node);
    return true;
}

bool muster_py_params_cutting_cancel(struct muster_py_params_cutting *self)
{
    if (self == NULL || muster_list_is_empty(&self->node))
        return false;
    muster_list_remove(&self->node);
    muster_timer_stop(&self->again);
    self->op->error = (struct muster_error){.rc = MUSTER_OK};
    self->done(self->op, MUSTER_CANCELLED);
    return true;
}

void muster_py_params_pauses_cancel(struct muster_py_params *owner)
{
    while (!muster_list_is_empty(&owner->pauses))
        (void)muster_py_params_cutting_cancel(
            MUSTER_CONTAINER_OF(owner->pauses.next, struct muster_py_params_cutting, node));
}

PyObject *muster_py_params_cutting_result(const struct muster_py_params_cutting *self)
{
    return cut_dict(&self->cut);
}
