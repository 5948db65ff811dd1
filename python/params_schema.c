/* The description of a table, from the words of a call. */
#include "python/params.h"

#include <string.h>

/* The words of a table's description, as they are read from Python. */
struct schema_words {
    const char *optimizer, *init, *evict;
    PyObject *row_elements, *dtype, *init_seed, *round_quorum, *round_grace, *admit_after,
        *admit_share, *ttl_clocks, *rows_max, *elements, *timeout;
    int is_by_round, is_round_mean, is_round_carried;
};

static bool read_words(PyObject *args, PyObject *keywords, struct muster_params_schema *schema,
                       struct schema_words *words)
{
    static const char *const names[] = {"name",
                                        "row_elements",
                                        "dtype",
                                        "optimizer",
                                        "learning_rate",
                                        "beta1",
                                        "beta2",
                                        "epsilon",
                                        "l1",
                                        "l2",
                                        "init",
                                        "init_scale",
                                        "init_seed",
                                        "by_round",
                                        "round_mean",
                                        "round_quorum",
                                        "round_grace",
                                        "round_carried",
                                        "admit_after",
                                        "admit_share",
                                        "ttl_clocks",
                                        "rows_max",
                                        "evict",
                                        "elements",
                                        "timeout",
                                        NULL};

    return PyArg_ParseTupleAndKeywords(
               args, keywords, "sO|$OsffffffsfOppOOpOOOOsOO:table", (char **)(uintptr_t)names,
               &schema->name, &words->row_elements, &words->dtype, &words->optimizer,
               &schema->learning_rate, &schema->beta1, &schema->beta2, &schema->epsilon,
               &schema->l1, &schema->l2, &words->init, &schema->init_scale, &words->init_seed,
               &words->is_by_round, &words->is_round_mean, &words->round_quorum,
               &words->round_grace, &words->is_round_carried, &words->admit_after,
               &words->admit_share, &words->ttl_clocks, &words->rows_max, &words->evict,
               &words->elements, &words->timeout) != 0;
}

static bool read_name(const char *name, const char *const *known, size_t count, const char *what,
                      size_t *ret_number)
{
    char list[160] = "";
    size_t used = 0;

    for (size_t i = 0; i < count; i++)
        if (strcmp(name, known[i]) == 0) {
            *ret_number = i;
            return true;
        }
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i == 0 ? "" : ", ",
                                 known[i]);
    PyErr_Format(PyExc_ValueError, "%s '%s' is not known: must be one of %s", what, name, list);
    return false;
}

static bool read_optimizer(const char *name, enum muster_params_optimizer *ret_optimizer)
{
    const char *known[MUSTER_PARAMS_OPTIMIZER_COUNT];
    size_t number;

    for (size_t i = 0; i < MUSTER_PARAMS_OPTIMIZER_COUNT; i++)
        known[i] = muster_params_optimizer_name((enum muster_params_optimizer)i);
    if (!read_name(name, known, MUSTER_PARAMS_OPTIMIZER_COUNT, "optimizer", &number))
        return false;
    *ret_optimizer = (enum muster_params_optimizer)number;
    return true;
}

static bool read_names(const struct schema_words *words, struct muster_params_schema *schema)
{
    static const char *const inits[] = {"zero", "constant", "uniform", "normal"};
    static const char *const evictions[] = {"lru", "lfu"};
    size_t init = 0, evict = 0;

    if (words->optimizer != NULL && !read_optimizer(words->optimizer, &schema->optimizer))
        return false;
    if ((words->init != NULL &&
         !read_name(words->init, inits, MUSTER_PARAMS_INIT_COUNT, "init", &init)) ||
        (words->evict != NULL &&
         !read_name(words->evict, evictions, MUSTER_PARAMS_EVICT_COUNT, "evict", &evict)))
        return false;
    schema->init = (enum muster_params_init)init;
    schema->evict_by = (enum muster_params_evict)evict;
    return true;
}

bool muster_py_read_schema(PyObject *args, PyObject *keywords, struct muster_params_schema *schema,
                           uint64_t *ret_timeout_ns)
{
    struct schema_words words = {0};
    uint64_t row_elements, quorum, admit_after, admit_share;

    if (!read_words(args, keywords, schema, &words) || !read_names(&words, schema) ||
        !muster_py_read_dtype(words.dtype, &schema->wire_dtype) ||
        !muster_py_read_number(words.row_elements, 0, UINT32_MAX, &row_elements) ||
        !muster_py_read_number(words.init_seed, 0, UINT64_MAX, &schema->init_seed) ||
        !muster_py_read_number(words.round_quorum, 0, UINT32_MAX, &quorum) ||
        !muster_py_read_seconds(words.round_grace, &schema->round_grace_ns) ||
        !muster_py_read_number(words.admit_after, 0, UINT32_MAX, &admit_after) ||
        !muster_py_read_number(words.admit_share, 0, UINT32_MAX, &admit_share) ||
        !muster_py_read_number(words.ttl_clocks, 0, UINT64_MAX, &schema->ttl_clocks) ||
        !muster_py_read_number(words.rows_max, 0, UINT64_MAX, &schema->rows_max) ||
        !muster_py_read_number(words.elements, 0, UINT64_MAX, &schema->tensor_elements) ||
        !muster_py_read_patience(words.timeout, ret_timeout_ns))
        return false;
    schema->row_elements = (uint32_t)row_elements;
    schema->round_quorum = (uint32_t)quorum;
    schema->admit_after = (uint32_t)admit_after;
    schema->admit_share = (uint32_t)admit_share;
    schema->is_by_round = words.is_by_round != 0;
    schema->is_round_mean = words.is_round_mean != 0;
    schema->is_round_carried = words.is_round_carried != 0;
    return true;
}
