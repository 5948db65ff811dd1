#include "params_calls.h"

const struct muster_params_schema params_counters = {.name = "counters",
                                                     .row_elements = 1,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

void params_on_call(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_call *call = op->data;

    call->is_done = true;
    call->done_count++;
    call->rc = rc;
}

struct muster_params_rows params_call_init(struct params_call *call, uint64_t key)
{
    *call = (struct params_call){
        .op = {.data = call}, .key = key, .value = 1, .fence = PARAMS_CALL_FENCE};
    return (struct muster_params_rows){.keys = &call->key, .values = &call->value, .count = 1};
}

void params_call_push(struct params_call *call, struct muster_params_table *table, uint64_t key,
                      uint64_t deadline_ns)
{
    struct muster_params_rows rows = params_call_init(call, key);

    assert_int_equal(muster_params_push_start(&call->op, table, &rows, deadline_ns, params_on_call),
                     MUSTER_OK);
}

void params_call_pull(struct params_call *call, struct muster_params_table *table, uint64_t key,
                      uint64_t deadline_ns)
{
    struct muster_params_rows rows = params_call_init(call, key);

    assert_int_equal(muster_params_pull_start(&call->op, table, &rows, deadline_ns, params_on_call),
                     MUSTER_OK);
}

enum muster_rc params_call_await(struct muster_env *env, struct params_call *call)
{
    test_env_run_until(env, test_env_is_true, &call->is_done);
    return call->rc;
}

void params_on_client(struct muster_params *params, enum muster_rc rc)
{
    *(struct params_outcome *)muster_params_data(params) = (struct params_outcome){true, rc};
}

enum muster_rc params_outcome_await(struct muster_env *env, struct params_outcome *outcome)
{
    test_env_run_until(env, test_env_is_true, &outcome->is_done);
    return outcome->rc;
}

bool params_has_error(void *data)
{
    return muster_params_error(data)->rc != MUSTER_OK;
}
