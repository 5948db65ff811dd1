/* The type muster._muster.Strategy, for its files: strategy.c, operations.c, exchange.c, step.c, memory.c,
 * replicas.c. */
#ifndef MUSTER_PYTHON_STRATEGY_H
#define MUSTER_PYTHON_STRATEGY_H

#include "python/call.h"
#include "python/tensor.h"

struct muster_micro_batches;

/** It belongs to whoever has the lock of its calls, but for what is atomic. */
struct muster_py_strategy {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_strategy *strategy; /* NULL: closed; written with the guard, too */
    PyObject *held;                       /* a list of what the library borrows until close */
    struct muster_py_calls calls;
    _Atomic uint64_t step;              /* written by begin; relaxed */
    atomic_bool is_restored;            /* likewise */
    atomic_bool is_aborted;             /* an operation of the step was not finished; relaxed */
    bool is_of_launcher; /* a member of the job that `muster run` has started this process for */
    bool is_done;        /* nothing was begun since the last commit */
    struct muster_list tensors;         /* that exist: struct muster_py_memory */
    struct muster_list requests;        /* that the library holds: struct request_object */
    struct muster_micro_batches *micro; /* NULL: its steps are not divided */
    /* Memory that nobody has any more. Whoever loses the last reference pushes; whoever has the lock takes all and
     * frees it. Push releases the contents, take acquires them. */
    _Atomic(struct muster_py_memory *) unused;
};

static inline struct muster_py_strategy *muster_py_strategy_of(PyObject *self)
{
    return (struct muster_py_strategy *)self;
}

/** The step that was begun last. */
static inline uint64_t muster_py_step_of(const struct muster_py_strategy *self)
{
    return atomic_load_explicit(&self->step, memory_order_relaxed);
}

bool muster_py_strategy_is(PyObject *object);
bool muster_py_add_strategy(PyObject *module);

/* --- Entering --- */

/** "The strategy is closed". */
PyObject *muster_py_raise_closed(void);
/** Raises, if it is closed or this is a fork of its process. */
bool muster_py_strategy_enter(struct muster_py_strategy *self);
/** Also after muster_py_calls_lock alone. May run code of the program, without the lock. */
void muster_py_strategy_leave(struct muster_py_strategy *self);

/** One call of the library: its arguments, and its function. */
struct muster_py_call {
    enum muster_rc (*run)(struct muster_strategy *strategy, struct muster_py_call *call);
    /** After run has returned OK, with the GIL and the lock. It may raise. NULL: there is nothing to do. */
    void (*settle)(struct muster_py_strategy *self, struct muster_py_call *call);
    const struct muster_py_tensors *opened; /* whose streams come first; NULL: none */
    struct muster_strategy_split *split;    /* NULL: among all members */
    struct muster_tensor *tensors;
    size_t count;
    enum muster_reduction reduction;
    uint32_t root;
    uint64_t weight, timeout_ns, bytes_per_pack;
    const char *text;
    bool is_short;              /* keeps the GIL until it waits */
    PyObject *invalid_argument; /* the class of that error */
    struct muster_error
        *error; /* what run has failed with, where it says so; NULL: the strategy's */
    void *data;
};

/** The library's function of this name, among those that the call is for. */
#define MUSTER_PY_RUN(strategy, call, name, ...)                                                   \
    ((call)->split != NULL ? muster_strategy_split_##name((call)->split, __VA_ARGS__)              \
                           : muster_strategy_##name(strategy, __VA_ARGS__))

/** self is a strategy, or a split of one, which is put into the call: the strategy. split.c */
struct muster_py_strategy *muster_py_members_of(PyObject *self, struct muster_py_call *call);

/** Between enter and leave. False: an exception is set. */
bool muster_py_call_run_entered(struct muster_py_strategy *self, struct muster_py_call *call);
/** None. */
PyObject *muster_py_call_run(struct muster_py_strategy *self, struct muster_py_call *call);
/** The same with buffers, which it closes. */
PyObject *muster_py_call_run_tensors(struct muster_py_strategy *self, struct muster_py_call *call,
                                     struct muster_py_tensors *tensors);

/* operations.c: functions for `run` */
enum muster_rc muster_py_run_all_reduce(struct muster_strategy *strategy,
                                        struct muster_py_call *call);
enum muster_rc muster_py_run_all_reduce_weighted(struct muster_strategy *strategy,
                                                 struct muster_py_call *call);
enum muster_rc muster_py_run_broadcast(struct muster_strategy *strategy,
                                       struct muster_py_call *call);

/* --- Memory --- */

void muster_py_strategy_free_unused(struct muster_py_strategy *self);
/** Before close: views of tensors may outlive it. */
void muster_py_strategy_keep_tensors(struct muster_py_strategy *self);

/* --- Methods --- */

#define MUSTER_PY_METHOD(name)                                                                     \
    PyObject *muster_py_strategy_##name(PyObject *self, PyObject *const *args, Py_ssize_t count,   \
                                        PyObject *keywords)
#define MUSTER_PY_METHOD_OF_NOTHING(name)                                                          \
    PyObject *muster_py_strategy_##name(PyObject *self, PyObject *unused)

/* operations.c */
MUSTER_PY_METHOD(all_reduce);
MUSTER_PY_METHOD(all_reduce_weighted);
MUSTER_PY_METHOD(broadcast);
MUSTER_PY_METHOD(reduce);
MUSTER_PY_METHOD(all_gather);
MUSTER_PY_METHOD(all_to_all);
MUSTER_PY_METHOD(check_health);
MUSTER_PY_METHOD_OF_NOTHING(barrier);
/* exchange.c */
MUSTER_PY_METHOD(reduce_scatter);
MUSTER_PY_METHOD(gather);
MUSTER_PY_METHOD(scatter);
MUSTER_PY_METHOD(all_gather_uneven);
MUSTER_PY_METHOD(all_to_all_uneven);
MUSTER_PY_METHOD(send);
MUSTER_PY_METHOD(receive);
MUSTER_PY_METHOD(exchange);
/* split.c, micro_batches.c */
MUSTER_PY_METHOD(split);
MUSTER_PY_METHOD(micro_batches);
bool muster_py_add_split(PyObject *module);
bool muster_py_add_micro_batches(PyObject *module);
/* request.c */
MUSTER_PY_METHOD(start);
MUSTER_PY_METHOD_OF_NOTHING(poll);
/* replicas.c; python/muster/replicas.py calls them */
MUSTER_PY_METHOD(replicas_all_reduce);
MUSTER_PY_METHOD(replicas_reduce);
MUSTER_PY_METHOD(replicas_gather);
MUSTER_PY_METHOD(replicas_mirror);
MUSTER_PY_METHOD(replicas_assign);
MUSTER_PY_METHOD(replicas_gpu);
/* memory.c */
MUSTER_PY_METHOD(zeros);
/* step.c */
MUSTER_PY_METHOD(set_stream);
MUSTER_PY_METHOD(register);
MUSTER_PY_METHOD(register_blob);
MUSTER_PY_METHOD(set_blob);
MUSTER_PY_METHOD(blob);
MUSTER_PY_METHOD(begin);
MUSTER_PY_METHOD_OF_NOTHING(commit);
MUSTER_PY_METHOD(report);
MUSTER_PY_METHOD(report_result);
MUSTER_PY_METHOD(checkpoint);
MUSTER_PY_METHOD_OF_NOTHING(checkpoint_wait);
MUSTER_PY_METHOD(restore);
MUSTER_PY_METHOD(preempt);

#endif
