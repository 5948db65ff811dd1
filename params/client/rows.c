/* Pushes and pulls of rows begin: they wait for the end of the turn. */
#include "params/client/client_internal.h"

static enum muster_rc rows_check(const struct muster_params_table *table,
                                 const struct muster_params_rows *rows,
                                 struct muster_error *ret_error)
{
    if (rows->count > 0 && rows->keys != NULL && rows->values != NULL)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "rows of table %s must be at least one, with keys and values, got %u%s",
                            table->name, rows->count,
                            rows->keys == NULL     ? " without keys"
                            : rows->values == NULL ? " without values"
                                                   : "");
}

/* Programs push and pull ranges of a tensor, not rows. */
static enum muster_rc keys_check(const struct muster_params_table *table,
                                 struct muster_error *ret_error)
{
    return table->tensor.elements == 0
               ? MUSTER_OK
               : muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                  "table %s is a tensor: push and pull ranges of it, not rows",
                                  table->name);
}

static enum muster_rc rows_start(struct muster_params_op *op, struct muster_params_table *table,
                                 const struct muster_params_rows *rows, uint64_t min_clock,
                                 uint64_t deadline_ns, muster_params_op_fn *done,
                                 struct muster_list *queue)
{
    enum muster_rc rc = rows_check(table, rows, &op->error);

    if (rc == MUSTER_OK)
        rc = muster_params_op_begin(op, table->params, deadline_ns, done);
    if (rc != MUSTER_OK)
        return rc;
    op->table = table;
    op->keys = rows->keys;
    op->values = rows->values;
    op->count = rows->count;
    op->is_push = queue == &table->pushes;
    op->clock = op->is_push ? table->params->ticked : min_clock;
    muster_list_append(table->is_by_round ? &table->held : queue, &op->queued);
    muster_task_post(&table->params->flush, table->params->env->loop);
    return MUSTER_OK;
}

enum muster_rc muster_params_rows_push(struct muster_params_op *op,
                                       struct muster_params_table *table,
                                       const struct muster_params_rows *rows, void *ret_values,
                                       uint64_t deadline_ns, muster_params_op_fn *done)
{
    struct muster_params *params = table->params;
    uint64_t bytes = rows->count * (sizeof(uint64_t) + muster_params_value_bytes(table));
    enum muster_rc rc;

    if (params->queued_bytes + params->collected_bytes + bytes > params->options.queue_max_bytes)
        return muster_error_set(
            &op->error, MUSTER_RESOURCE_EXHAUSTED,
            "a push of %llu bytes to table %s exceeds queue_max_bytes %llu with "
            "the %llu that are not acknowledged: wait for these, or raise it",
            (unsigned long long)bytes, table->name,
            (unsigned long long)params->options.queue_max_bytes,
            (unsigned long long)(params->queued_bytes + params->collected_bytes));
    rc = rows_start(op, table, rows, 0, deadline_ns, done, &table->pushes);
    if (rc != MUSTER_OK)
        return rc;
    op->ret_values = ret_values;
    params->collected_bytes += bytes;
    return MUSTER_OK;
}

enum muster_rc muster_params_rows_pull(struct muster_params_op *op,
                                       struct muster_params_table *table,
                                       const struct muster_params_rows *rows, uint64_t min_clock,
                                       uint64_t deadline_ns, muster_params_op_fn *done)
{
    return rows_start(op, table, rows, min_clock, deadline_ns, done, &table->pulls);
}

enum muster_rc muster_params_push_start(struct muster_params_op *op,
                                        struct muster_params_table *table,
                                        const struct muster_params_rows *rows, uint64_t deadline_ns,
                                        muster_params_op_fn *done)
{
    enum muster_rc rc = keys_check(table, &op->error);

    return rc != MUSTER_OK ? rc : muster_params_rows_push(op, table, rows, NULL, deadline_ns, done);
}

enum muster_rc muster_params_push_pull_start(struct muster_params_op *op,
                                             struct muster_params_table *table,
                                             const struct muster_params_rows *rows,
                                             void *ret_values, uint64_t deadline_ns,
                                             muster_params_op_fn *done)
{
    enum muster_rc rc = keys_check(table, &op->error);

    if (rc == MUSTER_OK && table->is_by_round)
        rc = muster_error_set(&op->error, MUSTER_INVALID_ARGUMENT,
                              "table %s is by round: push to it, and pull when the round is over",
                              table->name);
    if (rc == MUSTER_OK && ret_values == NULL)
        rc = muster_error_set(&op->error, MUSTER_INVALID_ARGUMENT,
                              "ret_values must be memory for the rows of table %s", table->name);
    return rc != MUSTER_OK
               ? rc
               : muster_params_rows_push(op, table, rows, ret_values, deadline_ns, done);
}

enum muster_rc muster_params_pull_start(struct muster_params_op *op,
                                        struct muster_params_table *table,
                                        const struct muster_params_rows *rows, uint64_t deadline_ns,
                                        muster_params_op_fn *done)
{
    return muster_params_pull_after_start(op, table, rows, 0, deadline_ns, done);
}

enum muster_rc muster_params_pull_after_start(struct muster_params_op *op,
                                              struct muster_params_table *table,
                                              const struct muster_params_rows *rows,
                                              uint64_t min_clock, uint64_t deadline_ns,
                                              muster_params_op_fn *done)
{
    enum muster_rc rc = keys_check(table, &op->error);

    return rc != MUSTER_OK ? rc
                           : muster_params_rows_pull(op, table, rows, min_clock, deadline_ns, done);
}
