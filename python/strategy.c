/* The type muster._muster.Strategy: struct muster_strategy for CPython. An open strategy is held by the module:
 * only close, or the end of the process, ends it. */
#include "python/request.h"

#include <muster/micro_batches.h>
#include <muster/replicas.h>
#include <muster/strategy_preemption.h>
#include <muster/strategy_role.h>

#include <stdlib.h>

#define SHORT_BYTES_MAX 65536u /* more bytes than these take longer than getting the GIL back */

/* This process has done its work in the job of its launcher, which is over for it. Written by close, read by
 * open, of any thread; nothing but the flag is read. */
static atomic_bool has_done_job;

/* --- Calls --- */

PyObject *muster_py_raise_closed(void)
{
    return muster_py_raise(muster_py_error_classes[MUSTER_FAILED_PRECONDITION],
                           "the strategy is closed");
}

bool muster_py_strategy_enter(struct muster_py_strategy *self)
{
    if (!muster_py_calls_check_fork(&self->calls) || !muster_py_calls_lock(&self->calls))
        return false;
    if (self->strategy != NULL)
        return true;
    muster_py_strategy_leave(self);
    return muster_py_raise_closed() != NULL;
}

/* Memory that loses its last user beside the unlock is freed by this thread, or by the one that has the lock next. */
void muster_py_strategy_leave(struct muster_py_strategy *self)
{
    struct muster_list completed;

    do {
        muster_py_requests_take(self, &completed);
        muster_py_strategy_free_unused(self);
        muster_py_calls_unlock(&self->calls);
        muster_py_requests_release(&completed);
    } while (atomic_load(&self->unused) != NULL && muster_py_calls_try_lock(&self->calls));
}

/* The interface of CUDA arrays gives legacy's stream the number 1, and the driver NULL. */
static enum muster_rc wait_streams(struct muster_strategy *strategy,
                                   const struct muster_py_tensors *opened)
{
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; opened->has_streams && i < opened->count && rc == MUSTER_OK; i++)
        if (opened->streams[i] != 0)
            rc = muster_strategy_wait_stream(strategy, &opened->tensors[i],
                                             opened->streams[i] == 1 ? NULL
                                                                     : (void *)opened->streams[i]);
    return rc;
}

bool muster_py_call_run_entered(struct muster_py_strategy *self, struct muster_py_call *call)
{
    struct muster_error error;
    enum muster_rc rc = MUSTER_OK;

    muster_py_calls_enter(&self->calls, call->is_short);
    if (call->opened != NULL)
        rc = wait_streams(self->strategy, call->opened);
    if (rc == MUSTER_OK)
        rc = call->run(self->strategy, call);
    if (rc != MUSTER_OK) {
        error = call->error != NULL && call->error->rc != MUSTER_OK
                    ? *call->error
                    : *muster_strategy_error(self->strategy);
        error.rc = rc;
    }
    muster_py_calls_leave(&self->calls);
    if (rc == MUSTER_ABORTED)
        atomic_store_explicit(&self->is_aborted, true, memory_order_relaxed);
    if (rc != MUSTER_OK)
        muster_py_raise_error(&error, call->invalid_argument != NULL ? call->invalid_argument
                                                                     : muster_py_mismatch);
    else if (call->settle != NULL)
        call->settle(self, call);
    return rc == MUSTER_OK && PyErr_Occurred() == NULL; /* a handler may have raised meanwhile */
}

PyObject *muster_py_call_run(struct muster_py_strategy *self, struct muster_py_call *call)
{
    bool is_right;

    if (!muster_py_strategy_enter(self))
        return NULL;
    is_right = muster_py_call_run_entered(self, call);
    muster_py_strategy_leave(self);
    if (!is_right)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *muster_py_call_run_tensors(struct muster_py_strategy *self, struct muster_py_call *call,
                                     struct muster_py_tensors *tensors)
{
    PyObject *result;

    call->opened = tensors;
    call->tensors = tensors->tensors;
    call->count = tensors->count;
    call->is_short = tensors->bytes <= SHORT_BYTES_MAX;
    result = muster_py_call_run(self, call);
    muster_py_tensors_close(tensors);
    return result;
}

/* --- Open, and the ends --- */

static enum muster_rc run_abandon(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct muster_py_strategy *self = call->data;

    self->is_done = false;
    muster_strategy_abandon(strategy, call->text);
    return MUSTER_OK;
}

static PyObject *strategy_abandon(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords)
{
    static const char *const names[] = {"text", NULL};
    PyObject *values[1];
    struct muster_py_strategy *ours = muster_py_strategy_of(self);
    struct muster_py_call call = {.run = run_abandon, .data = ours};
    bool is_right;

    if (muster_py_calls_is_forked(&ours->calls)) /* all of it is the parent's */
        Py_RETURN_NONE;
    if (!muster_py_read_arguments("abandon", names, 0, args, count, keywords, values) ||
        !muster_py_read_text(values[0], &call.text) || !muster_py_calls_lock_ending(&ours->calls))
        return NULL;
    is_right = ours->strategy != NULL ? muster_py_call_run_entered(ours, &call)
                                      : muster_py_raise_closed() != NULL;
    muster_py_strategy_leave(ours);
    if (!is_right)
        return NULL;
    Py_RETURN_NONE;
}

/* Within the lock. Threads that ask without it find it closed before its memory goes. */
static struct muster_strategy *take_strategy(struct muster_py_strategy *self)
{
    struct muster_strategy *strategy = self->strategy;

    muster_py_calls_guard(&self->calls);
    self->strategy = NULL;
    muster_py_calls_unguard(&self->calls);
    return strategy;
}

static PyObject *strategy_close(PyObject *self, PyObject *unused)
{
    struct muster_py_strategy *ours = muster_py_strategy_of(self);
    struct muster_strategy *strategy;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = MUSTER_OK;
    PyObject *held = NULL;

    (void)unused;
    if (muster_py_calls_is_forked(&ours->calls)) /* all of it is the parent's */
        Py_RETURN_NONE;
    if (!muster_py_calls_lock(&ours->calls))
        return NULL;
    if (ours->strategy != NULL) {
        muster_micro_batches_close(ours->micro);
        ours->micro = NULL;
        muster_py_strategy_free_unused(ours);
        muster_py_strategy_keep_tensors(ours);
        held = ours->held;
        ours->held = NULL;
    }
    strategy = take_strategy(ours);
    if (strategy != NULL) {
        Py_BEGIN_ALLOW_THREADS;
        rc = muster_strategy_close_checked(strategy, &error);
        Py_END_ALLOW_THREADS;
        if (ours->is_of_launcher && ours->is_done)
            atomic_store(&has_done_job, true);
    }
    muster_py_strategy_leave(ours);
    Py_XDECREF(held); /* runs code of the program */
    if (strategy != NULL)
        Py_DECREF(self); /* the module's */
    if (rc != MUSTER_OK) /* it is closed nevertheless */
        return muster_py_raise_error(&error, muster_py_mismatch);
    Py_RETURN_NONE;
}

static bool read_options(PyObject *args, PyObject *keywords,
                         struct muster_strategy_options *ret_options)
{
    static const char *const names[] = {"resolver",
                                        "registry",
                                        "job",
                                        "op_timeout",
                                        "start_timeout",
                                        "reproducible",
                                        "fixed_size",
                                        "replicas",
                                        "devices",
                                        "device_timeout",
                                        "checkpoint_dir",
                                        "checkpoint_every",
                                        "checkpoint_keep",
                                        NULL};
    PyObject *op_timeout = NULL, *start_timeout = NULL, *device_timeout = NULL;
    long long keep = -1;
    int is_reproducible = 0, is_fixed_size = 0;

    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "|$zzzOOppIzOzzL:Strategy", (char **)(uintptr_t)names,
            &ret_options->resolver, &ret_options->registry, &ret_options->job, &op_timeout,
            &start_timeout, &is_reproducible, &is_fixed_size, &ret_options->replica_count,
            &ret_options->devices, &device_timeout, &ret_options->checkpoint_dir,
            &ret_options->checkpoint_every, &keep))
        return false;
    if (keep < -1 || keep > UINT32_MAX - 1) {
        PyErr_Format(PyExc_ValueError, "checkpoint_keep must be a number from 0 (all) on, got %lld",
                     keep);
        return false;
    }
    if (keep >= 0)
        ret_options->checkpoint_keep_count =
            keep == 0 ? MUSTER_CHECKPOINT_KEEP_ALL : (uint32_t)keep;
    ret_options->is_reproducible = is_reproducible != 0;
    ret_options->is_fixed_size = is_fixed_size != 0;
    /* The library's choice for a program alone, all devices, is for programs that know replicas. */
    if (ret_options->devices == NULL && getenv("MUSTER_DEVICES") == NULL)
        ret_options->devices = "cpu";
    return muster_py_read_seconds(op_timeout, &ret_options->op_timeout_ns) &&
           muster_py_read_seconds(start_timeout, &ret_options->start_timeout_ns) &&
           muster_py_read_seconds(device_timeout, &ret_options->device_timeout_ns);
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && *value != '\0';
}

/* The members of a job that is over do not all learn at once that one of them has begun it anew: some of them would
 * wait for others that have ended. */
static bool check_job(const struct muster_strategy_options *options, bool *ret_is_of_launcher)
{
    *ret_is_of_launcher = options->job == NULL && is_set("MUSTER_INCARNATION");
    if (!*ret_is_of_launcher || !atomic_load(&has_done_job))
        return true;
    muster_py_raise(muster_py_error_classes[MUSTER_FAILED_PRECONDITION],
                    "a process of `muster run` has one strategy in its job, and this one's has "
                    "been closed after its last step, which ends the job: train both phases in "
                    "that one, with the state of both, or give the second one a job of its own "
                    "(job=\"NAME\", the same on all workers)");
    return false;
}

static PyObject *strategy_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    struct muster_strategy_options options = {.resolver = NULL};
    struct muster_py_strategy *self;
    struct muster_error error;
    enum muster_rc rc;
    bool is_of_launcher;

    if (!read_options(args, keywords, &options) || !check_job(&options, &is_of_launcher))
        return NULL;
    self = (struct muster_py_strategy *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    muster_list_init(&self->tensors);
    muster_list_init(&self->requests);
    self->is_of_launcher = is_of_launcher;
    self->held = PyList_New(0);
    if (self->held == NULL || !muster_py_calls_init(&self->calls)) {
        Py_DECREF(self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    rc = muster_strategy_open(&options, &self->strategy, &error);
    Py_END_ALLOW_THREADS;
    if (rc != MUSTER_OK) {
        Py_DECREF(self);
        return muster_py_raise_error(&error, NULL);
    }
    muster_strategy_set_interrupt(self->strategy, muster_py_calls_look, &self->calls);
    Py_INCREF((PyObject *)self); /* the module's, until close */
    return (PyObject *)self;
}

static void strategy_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_CLEAR(muster_py_strategy_of(self)->held);
    muster_py_calls_fini(&muster_py_strategy_of(self)->calls);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- Attributes --- */

static PyObject *get_number(PyObject *self, uint64_t (*get)(const struct muster_strategy *strategy))
{
    struct muster_py_strategy *ours = muster_py_strategy_of(self);
    uint64_t number;

    if (!muster_py_strategy_enter(ours))
        return NULL;
    number = get(ours->strategy);
    muster_py_strategy_leave(ours);
    return PyLong_FromUnsignedLongLong(number);
}

#define NUMBER(name, expression)                                                                   \
    static uint64_t name##_of(const struct muster_strategy *strategy)                              \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    static PyObject *strategy_get_##name(PyObject *self, void *unused)                             \
    {                                                                                              \
        (void)unused;                                                                              \
        return get_number(self, name##_of);                                                        \
    }
NUMBER(size, muster_strategy_size(strategy))
NUMBER(joined, muster_strategy_joined(strategy))
NUMBER(view, muster_strategy_epoch(strategy))
NUMBER(committed_step, muster_strategy_committed_step(strategy))
NUMBER(task, muster_strategy_task_index(strategy))
NUMBER(contributors, muster_strategy_contributors(strategy))
NUMBER(total_weight, muster_strategy_result(strategy)->total_weight)
NUMBER(replicas_local, muster_replicas_local(strategy))
NUMBER(replicas_first, muster_replicas_first(strategy))
NUMBER(replicas_total, muster_strategy_num_replicas_in_sync(strategy))

static uint64_t should_checkpoint_of(const struct muster_strategy *strategy)
{
    return muster_strategy_should_checkpoint(strategy);
}

/* Also should_save_summary, which is the same (strategy_role.h). */
static PyObject *strategy_get_should_checkpoint(PyObject *self, void *unused)
{
    PyObject *number = get_number(self, should_checkpoint_of), *result;

    (void)unused;
    if (number == NULL)
        return NULL;
    result = PyBool_FromLong(PyObject_IsTrue(number));
    Py_DECREF(number);
    return result;
}

/* As torch.distributed says it: -1 is nobody's place. */
static PyObject *strategy_get_rank(PyObject *self, void *unused)
{
    struct muster_py_strategy *ours = muster_py_strategy_of(self);
    uint32_t rank;

    (void)unused;
    if (!muster_py_strategy_enter(ours))
        return NULL;
    rank = muster_strategy_rank(ours->strategy);
    muster_py_strategy_leave(ours);
    return PyLong_FromLongLong(rank == MUSTER_RANK_NOBODY ? -1 : (long long)rank);
}

static PyObject *strategy_get_task_type(PyObject *self, void *unused)
{
    struct muster_py_strategy *ours = muster_py_strategy_of(self);
    PyObject *text;

    (void)unused;
    if (!muster_py_strategy_enter(ours))
        return NULL;
    text = PyUnicode_FromString(muster_strategy_task_type(ours->strategy));
    muster_py_strategy_leave(ours);
    return text;
}

static PyObject *strategy_get_digest(PyObject *self, void *unused)
{
    struct muster_py_strategy *ours = muster_py_strategy_of(self);
    char text[MUSTER_DIGEST_TEXT_BYTES];

    (void)unused;
    if (!muster_py_strategy_enter(ours))
        return NULL;
    muster_strategy_state_digest(ours->strategy, text);
    muster_py_strategy_leave(ours);
    return PyUnicode_FromString(text);
}

/* Two answers that need no lock, which a call of another thread may have for long. */
struct look {
    bool is_closed, is_preempted;
};

/* The library writes it for all threads. Close takes the strategy away before its memory goes. */
static struct look look_at(struct muster_py_strategy *self)
{
    struct look look;

    muster_py_calls_guard(&self->calls);
    look.is_closed = self->strategy == NULL;
    look.is_preempted = !look.is_closed && muster_strategy_is_preempted(self->strategy);
    muster_py_calls_unguard(&self->calls);
    return look;
}

static PyObject *strategy_get_preempted(PyObject *self, void *unused)
{
    struct muster_py_strategy *ours = muster_py_strategy_of(self);
    struct look look;

    (void)unused;
    if (!muster_py_calls_check_fork(&ours->calls))
        return NULL;
    look = look_at(ours);
    return look.is_closed ? muster_py_raise_closed() : PyBool_FromLong(look.is_preempted);
}

static PyObject *strategy_get_step(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(muster_py_step_of(muster_py_strategy_of(self)));
}

static PyObject *strategy_get_restored(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(
        atomic_load_explicit(&muster_py_strategy_of(self)->is_restored, memory_order_relaxed));
}

/* For muster.Elastic alone: a step whose program catches muster.Aborted runs again, too. */
static PyObject *strategy_get_aborted(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(
        atomic_load_explicit(&muster_py_strategy_of(self)->is_aborted, memory_order_relaxed));
}

static int strategy_set_aborted(PyObject *self, PyObject *value, void *unused)
{
    int is_true = value != NULL ? PyObject_IsTrue(value) : 0;

    (void)unused;
    if (is_true >= 0)
        atomic_store_explicit(&muster_py_strategy_of(self)->is_aborted, is_true != 0,
                              memory_order_relaxed);
    return is_true >= 0 ? 0 : -1;
}

static PyObject *strategy_get_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(look_at(muster_py_strategy_of(self)).is_closed);
}

/* --- The type --- */

static PyMethodDef strategy_methods[] = {
    {"register", MUSTER_PY_FUNCTION(muster_py_strategy_register), METH_FASTCALL | METH_KEYWORDS,
     "register(name, tensor, dtype=None)\n--\n\nName an array that is part of the training state, "
     "before the first begin."},
    {"set_stream", MUSTER_PY_FUNCTION(muster_py_strategy_set_stream), METH_FASTCALL | METH_KEYWORDS,
     "set_stream(stream)\n--\n\nThe CUDA stream (torch.cuda.current_stream().cuda_stream; None: "
     "the "
     "default one) whose work comes before calls on arrays in device memory, and belongs to the "
     "state at commit."},
    {"register_blob", MUSTER_PY_FUNCTION(muster_py_strategy_register_blob),
     METH_FASTCALL | METH_KEYWORDS,
     "register_blob(name)\n--\n\nName bytes that are part of the training state and whose number "
     "may change, before the first begin."},
    {"set_blob", MUSTER_PY_FUNCTION(muster_py_strategy_set_blob), METH_FASTCALL | METH_KEYWORDS,
     "set_blob(name, value)\n--\n\nThe blob's bytes from commit on; before the first begin, its "
     "initial ones."},
    {"blob", MUSTER_PY_FUNCTION(muster_py_strategy_blob), METH_FASTCALL | METH_KEYWORDS,
     "blob(name)\n--\n\nThe blob's bytes as of the last commit, or as begin has brought them."},
    {"zeros", MUSTER_PY_FUNCTION(muster_py_strategy_zeros), METH_FASTCALL | METH_KEYWORDS,
     "zeros(count, dtype='f32')\n--\n\nA Tensor that the other processes of the host map: "
     "operations on it copy nothing."},
    {"begin", MUSTER_PY_FUNCTION(muster_py_strategy_begin), METH_FASTCALL | METH_KEYWORDS,
     "begin(until=None)\n--\n\nBegin the next step, and return its number: waits for the others, "
     "and in a joiner for their state. None: all steps up to `until` are committed, and none has "
     "begun."},
    {"all_reduce", MUSTER_PY_FUNCTION(muster_py_strategy_all_reduce), METH_FASTCALL | METH_KEYWORDS,
     "all_reduce(tensors, op='sum', dtype=None, timeout=None, bytes_per_pack=0)\n--\n\n"
     "Reduce an array, or each of a list of them, over all members, in place."},
    {"all_reduce_weighted", MUSTER_PY_FUNCTION(muster_py_strategy_all_reduce_weighted),
     METH_FASTCALL | METH_KEYWORDS,
     "all_reduce_weighted(tensors, weight, dtype=None)\n--\n\nThe mean by weight (this member's "
     "examples, for one), in place."},
    {"broadcast", MUSTER_PY_FUNCTION(muster_py_strategy_broadcast), METH_FASTCALL | METH_KEYWORDS,
     "broadcast(tensor, root=0, dtype=None)\n--\n\nThe array of rank root to all."},
    {"reduce", MUSTER_PY_FUNCTION(muster_py_strategy_reduce), METH_FASTCALL | METH_KEYWORDS,
     "reduce(tensor, op='sum', root=0, dtype=None)\n--\n\nThe reduction of all members' arrays in "
     "that of rank root."},
    {"all_gather", MUSTER_PY_FUNCTION(muster_py_strategy_all_gather), METH_FASTCALL | METH_KEYWORDS,
     "all_gather(input, output, dtype=None)\n--\n\nPart r of output is rank r's input."},
    {"all_to_all", MUSTER_PY_FUNCTION(muster_py_strategy_all_to_all), METH_FASTCALL | METH_KEYWORDS,
     "all_to_all(input, output, dtype=None)\n--\n\nPart s of rank r's output is part r of rank s's "
     "input."},
    {"reduce_scatter", MUSTER_PY_FUNCTION(muster_py_strategy_reduce_scatter),
     METH_FASTCALL | METH_KEYWORDS,
     "reduce_scatter(input, output, op='sum', counts=None, dtype=None)\n--\n\nRank r's output is "
     "part r of the reduction of all inputs. counts: the elements of each part, where they differ; "
     "the same on all members."},
    {"gather", MUSTER_PY_FUNCTION(muster_py_strategy_gather), METH_FASTCALL | METH_KEYWORDS,
     "gather(input, output, root=0, dtype=None)\n--\n\nPart r of the root's output is rank r's "
     "input. output may be None on the others."},
    {"scatter", MUSTER_PY_FUNCTION(muster_py_strategy_scatter), METH_FASTCALL | METH_KEYWORDS,
     "scatter(input, output, root=0, dtype=None)\n--\n\nRank r's output is part r of the root's "
     "input. input may be None on the others."},
    {"all_gather_uneven", MUSTER_PY_FUNCTION(muster_py_strategy_all_gather_uneven),
     METH_FASTCALL | METH_KEYWORDS,
     "all_gather_uneven(input, output, counts, dtype=None)\n--\n\nPart r of output, of counts[r] "
     "elements, is rank r's input."},
    {"all_to_all_uneven", MUSTER_PY_FUNCTION(muster_py_strategy_all_to_all_uneven),
     METH_FASTCALL | METH_KEYWORDS,
     "all_to_all_uneven(input, output, input_counts, output_counts, dtype=None)\n--\n\nall_to_all "
     "with parts of different length: input_counts[r] of rank s is output_counts[s] of rank r."},
    {"send", MUSTER_PY_FUNCTION(muster_py_strategy_send), METH_FASTCALL | METH_KEYWORDS,
     "send(tensor, rank, dtype=None)\n--\n\nReturns when that rank has received it. Two members "
     "that send to each other use exchange."},
    {"receive", MUSTER_PY_FUNCTION(muster_py_strategy_receive), METH_FASTCALL | METH_KEYWORDS,
     "receive(tensor, rank, dtype=None)\n--\n\nThe next array that rank sends to this member."},
    {"exchange", MUSTER_PY_FUNCTION(muster_py_strategy_exchange), METH_FASTCALL | METH_KEYWORDS,
     "exchange(output, to, input, source, dtype=None)\n--\n\nSend output to rank to and receive "
     "input from rank source, both at once. None: nobody."},
    {"split", MUSTER_PY_FUNCTION(muster_py_strategy_split), METH_FASTCALL | METH_KEYWORDS,
     "split(colors)\n--\n\nA Split: groups of those members whose tasks have one color, for all of "
     "this strategy's life. colors: a list with the color of each task (a number; None: this task "
     "has no group), or a dictionary whose keys are indices of tasks, or pairs (task type, index). "
     "All members make the same splits, at most 16, in the same order; also after the first begin, "
     "and then a program that is started again makes them all before it calls an operation on "
     "one."},
    {"micro_batches", MUSTER_PY_FUNCTION(muster_py_strategy_micro_batches),
     METH_FASTCALL | METH_KEYWORDS,
     "micro_batches(slots, elements, dtype='f32')\n--\n\nMicroBatches: divide each step into so "
     "many slots, at most 65,536, of one tensor of so many elements each. slots=None: as many as "
     "`muster run --constant-batch` says. Once, before the first begin, alike on all members."},
    {"start", MUSTER_PY_FUNCTION(muster_py_strategy_start), METH_FASTCALL | METH_KEYWORDS,
     "start(kind, input=None, output=None, op='sum', rank=0, weight=0, timeout=None, "
     "input_counts=None, output_counts=None, dtype=None)\n--\n\nStart an operation, and return a "
     "Request for it. kind is the name of the blocking call; arrays that are reduced in place are "
     "its output; rank is the root, or the other member of a message. The arrays must not be used "
     "until the request is done. commit is refused until it has been waited for."},
    {"_replicas_all_reduce", MUSTER_PY_FUNCTION(muster_py_strategy_replicas_all_reduce),
     METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_replicas_reduce", MUSTER_PY_FUNCTION(muster_py_strategy_replicas_reduce),
     METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_replicas_gather", MUSTER_PY_FUNCTION(muster_py_strategy_replicas_gather),
     METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_replicas_assign", MUSTER_PY_FUNCTION(muster_py_strategy_replicas_assign),
     METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_replicas_mirror", MUSTER_PY_FUNCTION(muster_py_strategy_replicas_mirror),
     METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_replicas_gpu", MUSTER_PY_FUNCTION(muster_py_strategy_replicas_gpu),
     METH_FASTCALL | METH_KEYWORDS, NULL},
    {"poll", muster_py_strategy_poll, METH_NOARGS,
     "poll()\n--\n\nComplete the requests that are done, and return how many are not."},
    {"barrier", muster_py_strategy_barrier, METH_NOARGS,
     "barrier()\n--\n\nReturns when all members have called it."},
    {"check_health", MUSTER_PY_FUNCTION(muster_py_strategy_check_health),
     METH_FASTCALL | METH_KEYWORDS,
     "check_health(timeout=None)\n--\n\nUnavailable, with their names, if members do not answer."},
    {"commit", muster_py_strategy_commit, METH_NOARGS,
     "commit()\n--\n\nThe registered arrays are now the state after this step."},
    {"checkpoint", MUSTER_PY_FUNCTION(muster_py_strategy_checkpoint), METH_FASTCALL | METH_KEYWORDS,
     "checkpoint(folder, keep=0, timeout=None)\n--\n\nAll members begin to write the state of the "
     "last commit. Between begin and the "
     "first change of a registered array."},
    {"checkpoint_wait", muster_py_strategy_checkpoint_wait, METH_NOARGS,
     "checkpoint_wait()\n--\n\nWait until the last checkpoint is whole, or has failed."},
    {"restore", MUSTER_PY_FUNCTION(muster_py_strategy_restore), METH_FASTCALL | METH_KEYWORDS,
     "restore(folder)\n--\n\nA new job begins with the newest whole checkpoint there. Before the "
     "first begin, on all members."},
    {"preempt", MUSTER_PY_FUNCTION(muster_py_strategy_preempt), METH_FASTCALL | METH_KEYWORDS,
     "preempt(cause=None)\n--\n\nAsk all members to stop after the same step, because this machine "
     "will be taken away."},
    {"report", MUSTER_PY_FUNCTION(muster_py_strategy_report), METH_FASTCALL | METH_KEYWORDS,
     "report(name, value)\n--\n\nA number for the launcher's progress line, with the next commit."},
    {"report_result", MUSTER_PY_FUNCTION(muster_py_strategy_report_result),
     METH_FASTCALL | METH_KEYWORDS,
     "report_result(name, value)\n--\n\nA number for the launcher's summary."},
    {"abandon", MUSTER_PY_FUNCTION(strategy_abandon), METH_FASTCALL | METH_KEYWORDS,
     "abandon(text=None)\n--\n\nSay that this process cannot go on: the others do, and muster run "
     "starts it again. Only close is left."},
    {"close", strategy_close, METH_NOARGS,
     "close()\n--\n\nLeave. After commit the work is done; in the middle of a step it is a "
     "failure. Raises, after closing, if the last checkpoint of finished work failed, or if the "
     "last step lacks an operation of the others (muster.Mismatch)."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef strategy_attributes[] = {
    {"rank", strategy_get_rank, NULL,
     "The place of this member, from begin to commit; -1 after muster.JobOver.", NULL},
    {"size", strategy_get_size, NULL, "How many members take part, from begin to commit.", NULL},
    {"joined", strategy_get_joined, NULL,
     "How many members came, or came back, with this step. The same on all.", NULL},
    {"view", strategy_get_view, NULL, "The number of the view that rank and size are of.", NULL},
    {"task", strategy_get_task, NULL, "The index of this task, which never changes.", NULL},
    {"task_type", strategy_get_task_type, NULL, "'worker', 'chief' or 'evaluator'.", NULL},
    {"contributors", strategy_get_contributors, NULL,
     "Members that contributed to the last operation.", NULL},
    {"total_weight", strategy_get_total_weight, NULL,
     "The sum of all weights of the last weighted mean.", NULL},
    {"should_checkpoint", strategy_get_should_checkpoint, NULL,
     "Whether this member saves what is saved once: the chief, and after its death the member of "
     "rank 0. As of begin.",
     NULL},
    {"should_save_summary", strategy_get_should_checkpoint, NULL,
     "Equal to should_checkpoint: whether this member writes logs for all.", NULL},
    {"_replicas_local", strategy_get_replicas_local, NULL, NULL, NULL},
    {"_replicas_first", strategy_get_replicas_first, NULL, NULL, NULL},
    {"_replicas_total", strategy_get_replicas_total, NULL, NULL, NULL},
    {"digest", strategy_get_digest, NULL,
     "16 hexadecimal digits of the hash of all registered arrays.", NULL},
    {"preempted", strategy_get_preempted, NULL,
     "Whether the job stops: begin raises Cancelled after its last step.", NULL},
    {"step", strategy_get_step, NULL, "The step that was begun last; 0 before the first begin.",
     NULL},
    {"committed_step", strategy_get_committed_step, NULL,
     "The last step that is in the registered arrays, by this member's commit or as begin has "
     "brought them; 0: none.",
     NULL},
    {"_aborted", strategy_get_aborted, strategy_set_aborted, NULL, NULL},
    {"restored", strategy_get_restored, NULL, "Whether begin has replaced the registered arrays.",
     NULL},
    {"closed", strategy_get_closed, NULL, "Whether close has been called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot strategy_slots[] = {
    {Py_tp_new, MUSTER_PY_SLOT(strategy_new)},
    {Py_tp_dealloc, MUSTER_PY_SLOT(strategy_dealloc)},
    {Py_tp_methods, strategy_methods},
    {Py_tp_getset, strategy_attributes},
    {Py_tp_doc, MUSTER_PY_SLOT("A member of a training job: see muster.Strategy.")},
    {0, NULL},
};

static PyType_Spec strategy_spec = MUSTER_PY_SPEC(
    "muster._muster.Strategy", struct muster_py_strategy, Py_TPFLAGS_BASETYPE, strategy_slots);

static PyTypeObject *strategy_type;

bool muster_py_strategy_is(PyObject *object)
{
    return PyObject_TypeCheck(object, strategy_type) != 0;
}

bool muster_py_add_strategy(PyObject *module)
{
    return muster_py_add_type(module, &strategy_spec, &strategy_type);
}
