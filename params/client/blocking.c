/* Calls that wait: the program drives its runtime until the operation has ended. An operation has a
 * deadline of its own, so that the waiting has none. */
#include "params/client/client_internal.h"

struct muster_params_outcome {
    bool is_known;
    enum muster_rc rc;
};

static bool is_known(void *data)
{
    return ((struct muster_params_outcome *)data)->is_known;
}

static uint64_t deadline_after(const struct muster_env *env, uint64_t timeout_ns)
{
    uint64_t now_ns = muster_loop_now_ns(env->loop);

    return timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
}

static enum muster_rc params_enter(const struct muster_params *params, const char *call,
                                   struct muster_error *ret_error)
{
    if (params->runtime == NULL)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "%s needs a client of muster_params_connect", call);
    return muster_runtime_enter_as(params->runtime, call, ret_error);
}

/* --- Connecting --- */

static void on_told(struct muster_params *params, enum muster_rc rc)
{
    *params->outcome = (struct muster_params_outcome){true, rc};
}

/* The program may close its environment next. */
static enum muster_rc close_wait(struct muster_params *params, uint64_t deadline_ns)
{
    struct muster_runtime *runtime = params->runtime;
    struct muster_loop *loop = params->env->loop;
    struct muster_params_outcome outcome = {.is_known = false};
    enum muster_rc rc;

    params->outcome = &outcome;
    muster_params_close(params, deadline_ns, on_told);
    rc = muster_runtime_wait(runtime, is_known, &outcome, UINT64_MAX);
    MUSTER_ASSERT(rc == MUSTER_OK); /* the caller is in the seat */
    muster_loop_turn_closing(loop);
    return outcome.rc;
}

/* The outcome of opening cannot be read from params->error, which tells of the newest link: that link may be
 * lost again by now. */
static enum muster_rc opened_wait(struct muster_params *params, struct muster_error *ret_error)
{
    struct muster_params_outcome outcome = {.is_known = false};
    enum muster_rc rc;

    params->outcome = &outcome;
    rc = muster_runtime_wait(params->runtime, is_known, &outcome, UINT64_MAX);
    MUSTER_ASSERT(rc == MUSTER_OK); /* the caller is in the seat */
    if (outcome.rc == MUSTER_OK)
        return MUSTER_OK;
    if (ret_error != NULL)
        *ret_error = params->error;
    (void)close_wait(params, muster_loop_now_ns(params->env->loop)); /* it has pushed nothing */
    return outcome.rc;
}

enum muster_rc muster_params_connect(struct muster_runtime *runtime,
                                     const struct muster_params_options *options,
                                     uint64_t timeout_ns, struct muster_params **ret_params,
                                     struct muster_error *ret_error)
{
    struct muster_params_options timed = *options;
    struct muster_env *env = muster_runtime_env(runtime);
    struct muster_params *params;
    enum muster_rc rc = muster_runtime_enter_as(runtime, "muster_params_connect", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    timed.connect_deadline_ns = deadline_after(env, timeout_ns);
    rc = muster_params_open(env, &timed, on_told, &params, ret_error);
    if (rc == MUSTER_OK) {
        params->runtime = runtime;
        rc = opened_wait(params, ret_error);
    }
    if (rc == MUSTER_OK)
        *ret_params = params;
    muster_runtime_leave(runtime);
    return rc;
}

enum muster_rc muster_params_disconnect(struct muster_params *params, uint64_t timeout_ns,
                                        struct muster_error *ret_error)
{
    struct muster_runtime *runtime = params->runtime;
    enum muster_rc rc = params_enter(params, "muster_params_disconnect", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = close_wait(params, deadline_after(params->env, timeout_ns));
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "the server has not acknowledged all pushes in time");
    muster_runtime_leave(runtime);
    return rc;
}

/* --- Operations --- */

static void on_done(struct muster_params_op *op, enum muster_rc rc)
{
    *(struct muster_params_outcome *)op->data = (struct muster_params_outcome){true, rc};
}

/* rc is the outcome of the start: an operation that was not started has a text in op only sometimes. */
static enum muster_rc op_wait(struct muster_params_op *op, struct muster_runtime *runtime,
                              enum muster_rc rc, struct muster_error *ret_error)
{
    struct muster_params_outcome *outcome = op->data;

    if (rc == MUSTER_OK) {
        rc = muster_runtime_wait(runtime, is_known, outcome, UINT64_MAX);
        MUSTER_ASSERT(rc == MUSTER_OK); /* the caller is in the seat */
        rc = outcome->rc;
    }
    if (rc != MUSTER_OK && op->error.rc == MUSTER_OK)
        muster_error_set(&op->error, rc, "%s", muster_rc_text(rc));
    if (rc != MUSTER_OK && ret_error != NULL)
        *ret_error = op->error;
    muster_runtime_leave(runtime);
    return rc;
}

enum muster_rc muster_params_table(struct muster_params *params,
                                   const struct muster_params_schema *schema, uint64_t timeout_ns,
                                   struct muster_params_table **ret_table,
                                   struct muster_error *ret_error)
{
    struct muster_params_outcome outcome = {.is_known = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = params_enter(params, "muster_params_table", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_table_start(&op, params, schema, ret_table,
                                   deadline_after(params->env, timeout_ns), on_done);
    return op_wait(&op, params->runtime, rc, ret_error);
}

typedef enum muster_rc start_fn(struct muster_params_op *op, struct muster_params_table *table,
                                const struct muster_params_rows *rows, uint64_t deadline_ns,
                                muster_params_op_fn *done);

static enum muster_rc rows_wait(struct muster_params_table *table,
                                const struct muster_params_rows *rows, uint64_t timeout_ns,
                                start_fn *start, const char *call, struct muster_error *ret_error)
{
    struct muster_params *params = table->params;
    struct muster_params_outcome outcome = {.is_known = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = params_enter(params, call, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = start(&op, table, rows, deadline_after(params->env, timeout_ns), on_done);
    return op_wait(&op, params->runtime, rc, ret_error);
}

enum muster_rc muster_params_push(struct muster_params_table *table,
                                  const struct muster_params_rows *rows, uint64_t timeout_ns,
                                  struct muster_error *ret_error)
{
    return rows_wait(table, rows, timeout_ns, muster_params_push_start, "muster_params_push",
                     ret_error);
}

enum muster_rc muster_params_push_pull(struct muster_params_table *table,
                                       const struct muster_params_rows *rows, void *ret_values,
                                       uint64_t timeout_ns, struct muster_error *ret_error)
{
    struct muster_params *params = table->params;
    struct muster_params_outcome outcome = {.is_known = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = params_enter(params, "muster_params_push_pull", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_push_pull_start(&op, table, rows, ret_values,
                                       deadline_after(params->env, timeout_ns), on_done);
    return op_wait(&op, params->runtime, rc, ret_error);
}

enum muster_rc muster_params_pull(struct muster_params_table *table,
                                  const struct muster_params_rows *rows, uint64_t timeout_ns,
                                  struct muster_error *ret_error)
{
    return rows_wait(table, rows, timeout_ns, muster_params_pull_start, "muster_params_pull",
                     ret_error);
}

enum muster_rc muster_params_pull_after(struct muster_params_table *table,
                                        const struct muster_params_rows *rows, uint64_t min_clock,
                                        uint64_t timeout_ns, struct muster_error *ret_error)
{
    struct muster_params *params = table->params;
    struct muster_params_outcome outcome = {.is_known = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = params_enter(params, "muster_params_pull_after", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_pull_after_start(&op, table, rows, min_clock,
                                        deadline_after(params->env, timeout_ns), on_done);
    return op_wait(&op, params->runtime, rc, ret_error);
}

enum muster_rc muster_params_tensor(struct muster_params_table *table,
                                    const struct muster_params_range *range,
                                    enum muster_params_direction direction, uint64_t timeout_ns,
                                    struct muster_error *ret_error)
{
    struct muster_params *params = table->params;
    struct muster_params_outcome outcome = {.is_known = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = params_enter(params, "muster_params_tensor", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_tensor_start(&op, table, range, direction,
                                    deadline_after(params->env, timeout_ns), on_done);
    return op_wait(&op, params->runtime, rc, ret_error);
}

enum muster_rc muster_params_tick(struct muster_params *params, uint64_t clock, double weight,
                                  uint64_t timeout_ns, struct muster_error *ret_error)
{
    struct muster_params_outcome outcome = {.is_known = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = params_enter(params, "muster_params_tick", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_tick_weighted_start(&op, params, clock, weight,
                                           deadline_after(params->env, timeout_ns), on_done);
    return op_wait(&op, params->runtime, rc, ret_error);
}

enum muster_rc muster_params_cut(struct muster_params *params, const char *folder,
                                 struct muster_params_cut *ret_cut, uint64_t timeout_ns,
                                 struct muster_error *ret_error)
{
    return muster_params_cut_at(params, folder, 0, ret_cut, timeout_ns, ret_error);
}

enum muster_rc muster_params_cut_at(struct muster_params *params, const char *folder,
                                    uint64_t clock, struct muster_params_cut *ret_cut,
                                    uint64_t timeout_ns, struct muster_error *ret_error)
{
    struct muster_params_outcome outcome = {.is_known = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = params_enter(params, "muster_params_cut", ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_params_cut_at_start(&op, params, folder, clock, ret_cut,
                                    deadline_after(params->env, timeout_ns), on_done);
    return op_wait(&op, params->runtime, rc, ret_error);
}
