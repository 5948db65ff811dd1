/* The type muster.Split: the groups of a strategy's members by the colors of their tasks. Its operations are the
 * methods of a strategy. */
#include "python/strategy.h"

struct split_object {
    /* clang-format off */
    PyObject_HEAD
        /* clang-format on */
        struct muster_py_strategy *owner;
    struct muster_strategy_split *split; /* the strategy's, until its close */
};

static PyTypeObject *split_type;

static struct split_object *split_of(PyObject *self)
{
    return (struct split_object *)self;
}

struct muster_py_strategy *muster_py_members_of(PyObject *self, struct muster_py_call *call)
{
    if (Py_TYPE(self) != split_type)
        return muster_py_strategy_of(self);
    call->split = split_of(self)->split;
    return split_of(self)->owner;
}

/* --- The table of colors --- */

struct table {
    struct muster_task_color *rows;
    size_t count;
};

/* An index, or a pair of a task type and an index. */
static bool task_read(PyObject *task, struct muster_task_color *row)
{
    bool is_pair = PyTuple_Check(task) && PyTuple_Size(task) == 2;
    PyObject *index = is_pair ? PyTuple_GetItem(task, 1) : task;
    uint64_t number;

    if (!PyIndex_Check(index))
        return PyErr_Format(PyExc_TypeError,
                            "a task must be an index, or (task type, index), got %R", task) != NULL;
    if ((is_pair && !muster_py_read_text(PyTuple_GetItem(task, 0), &row->task_type)) ||
        !muster_py_read_number(index, 0, UINT32_MAX, &number))
        return false;
    row->task_index = (uint32_t)number;
    return true;
}

/* None: the task has no group, as one that the table lacks. */
static bool row_add(struct table *table, struct muster_task_color row, PyObject *color)
{
    uint64_t number;

    if (color == Py_None)
        return true;
    if (!muster_py_read_number(color, 0, MUSTER_COLOR_MAX, &number))
        return false;
    row.color = (uint32_t)number;
    table->rows[table->count++] = row;
    return true;
}

/* items: of a dictionary, as a list of pairs, or the colors themselves in the order of tasks. */
static bool rows_read(struct table *table, PyObject *items, bool is_dictionary)
{
    Py_ssize_t count = PySequence_Size(items);
    bool is_right = count >= 0;

    table->rows = PyMem_Calloc((size_t)count + 1, sizeof(*table->rows));
    if (table->rows == NULL)
        return PyErr_NoMemory() != NULL;
    for (Py_ssize_t i = 0; is_right && i < count; i++) {
        PyObject *item = PySequence_GetItem(items, i);
        struct muster_task_color row = {.task_index = (uint32_t)i};

        is_right = item != NULL && (!is_dictionary || task_read(PyTuple_GetItem(item, 0), &row)) &&
                   row_add(table, row, is_dictionary ? PyTuple_GetItem(item, 1) : item);
        Py_XDECREF(item);
    }
    return is_right;
}

/* --- Making one --- */

struct making {
    struct table table;
    struct muster_strategy_split *split;
};

static enum muster_rc run_split(struct muster_strategy *strategy, struct muster_py_call *call)
{
    struct making *making = call->data;

    return muster_strategy_split_table(strategy, making->table.rows, making->table.count,
                                       &making->split);
}

static PyObject *split_new(PyObject *strategy, struct making *making)
{
    struct muster_py_call call = {.run = run_split,
                                  .is_short = true,
                                  .data = making,
                                  .invalid_argument =
                                      muster_py_error_classes[MUSTER_INVALID_ARGUMENT]};
    PyObject *self = PyType_GenericAlloc(split_type, 0);
    PyObject *result = NULL;

    if (self == NULL)
        return NULL;
    split_of(self)->owner = (struct muster_py_strategy *)Py_NewRef(strategy);
    result = muster_py_call_run(muster_py_strategy_of(strategy), &call);
    if (result == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    Py_DECREF(result);
    split_of(self)->split = making->split;
    return self;
}

PyObject *muster_py_strategy_split(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords)
{
    static const char *const names[] = {"colors", NULL};
    PyObject *values[1], *items, *result = NULL;
    struct making making = {.split = NULL};
    bool is_dictionary;

    if (!muster_py_read_arguments("split", names, 1, args, count, keywords, values))
        return NULL;
    is_dictionary = PyDict_Check(values[0]);
    items = is_dictionary ? PyDict_Items(values[0]) : PySequence_List(values[0]);
    if (items == NULL)
        return NULL;
    if (rows_read(&making.table, items, is_dictionary))
        result = split_new(self, &making);
    PyMem_Free(making.table.rows);
    Py_DECREF(items); /* it holds the names of task types */
    return result;
}

static void split_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_XDECREF((PyObject *)split_of(self)->owner);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- Attributes --- */

static PyObject *get_number(PyObject *self,
                            uint32_t (*get)(const struct muster_strategy_split *split))
{
    struct split_object *ours = split_of(self);
    uint32_t number;

    if (!muster_py_strategy_enter(ours->owner))
        return NULL;
    number = get(ours->split);
    muster_py_strategy_leave(ours->owner);
    return PyLong_FromUnsignedLong(number);
}

static PyObject *split_get_rank(PyObject *self, void *unused)
{
    (void)unused;
    return get_number(self, muster_strategy_split_rank);
}

static PyObject *split_get_size(PyObject *self, void *unused)
{
    (void)unused;
    return get_number(self, muster_strategy_split_size);
}

static PyObject *split_get_strategy(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef((PyObject *)split_of(self)->owner);
}

/* --- The type --- */

#define METHOD(name, arguments, text)                                                              \
    {                                                                                              \
#name, MUSTER_PY_FUNCTION(muster_py_strategy_##name), METH_FASTCALL | METH_KEYWORDS,       \
            #name "(" arguments ")\n--\n\n" text                                                   \
    }

static PyMethodDef split_methods[] = {
    METHOD(all_reduce, "tensors, op='sum', dtype=None",
           "Reduce an array, or each of a list of them, in place."),
    METHOD(broadcast, "tensor, root=0, dtype=None", "The array of rank root to all of the group."),
    METHOD(reduce, "tensor, op='sum', root=0, dtype=None",
           "The reduction of all arrays in that of rank root."),
    METHOD(all_gather, "input, output, dtype=None", "Part r of output is rank r's input."),
    METHOD(all_to_all, "input, output, dtype=None",
           "Part s of rank r's output is part r of rank s's input."),
    METHOD(reduce_scatter, "input, output, op='sum', counts=None, dtype=None",
           "Rank r's output is part r of the reduction of all inputs."),
    METHOD(gather, "input, output, root=0, dtype=None",
           "Part r of the root's output is rank r's input; output may be None on the others."),
    METHOD(scatter, "input, output, root=0, dtype=None",
           "Rank r's output is part r of the root's input, which may be None on the others."),
    METHOD(all_gather_uneven, "input, output, counts, dtype=None",
           "Part r of output, of counts[r] elements, is rank r's input."),
    METHOD(all_to_all_uneven, "input, output, input_counts, output_counts, dtype=None",
           "all_to_all with parts of different length."),
    METHOD(send, "tensor, rank, dtype=None",
           "Returns when that rank of the group has received it."),
    METHOD(receive, "tensor, rank, dtype=None",
           "The next array that this rank of the group sends to this member in this split."),
    METHOD(exchange, "output, to, input, source, dtype=None",
           "Send to one rank of the group and receive from one, both at once. None: nobody."),
    METHOD(start,
           "kind, input=None, output=None, op='sum', rank=0, weight=0, timeout=None, "
           "input_counts=None, output_counts=None, dtype=None",
           "Start an operation of the group, and return a Request for it."),
    {"barrier", muster_py_strategy_barrier, METH_NOARGS,
     "barrier()\n--\n\nReturns when all of the group have called it."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef split_attributes[] = {
    {"rank", split_get_rank, NULL, "The place of this member in its group, from begin to commit.",
     NULL},
    {"size", split_get_size, NULL,
     "How many members its group has, from begin to commit; 0: it has no group.", NULL},
    {"strategy", split_get_strategy, NULL, "The strategy that it is a split of.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot split_slots[] = {
    {Py_tp_dealloc, MUSTER_PY_SLOT(split_dealloc)},
    {Py_tp_methods, split_methods},
    {Py_tp_getset, split_attributes},
    {Py_tp_doc,
     MUSTER_PY_SLOT(
         "Groups of the members by the colors of their tasks: strategy.split. Each method is that "
         "of the strategy among the members of this one's group; ranks, roots and parts are "
         "counted there, and errors are the same. Groups do not wait for each other. A group goes "
         "on without its dead; a member that comes back has the color of its task. Without a "
         "group every operation raises FailedPrecondition. It ends with the strategy's close.")},
    {0, NULL},
};

static PyType_Spec split_spec = MUSTER_PY_SPEC("muster.Split", struct split_object,
                                               Py_TPFLAGS_DISALLOW_INSTANTIATION, split_slots);

bool muster_py_add_split(PyObject *module)
{
    return muster_py_add_type(module, &split_spec, &split_type);
}
