/* Operations of clients of parameters that a case awaits, on one row of one f32 value; and what came of
 * opening or closing a client. */
#ifndef MUSTER_TEST_PARAMS_CALLS_H
#define MUSTER_TEST_PARAMS_CALLS_H

#include <muster/params.h>

#include "test_env.h"

/** A table of one f32 value a row, which adds. */
extern const struct muster_params_schema params_counters;

#define PARAMS_CALL_ROWS  8u
#define PARAMS_CALL_FENCE 77.0f

struct params_call {
    struct muster_params_op op;
    bool is_done;
    unsigned done_count;
    enum muster_rc rc;
    union {
        uint64_t key;
        uint64_t keys[PARAMS_CALL_ROWS];
    };
    union {
        struct {
            float value;
            float fence; /* behind the only value: PARAMS_CALL_FENCE, where no answer may write */
        };
        float values[PARAMS_CALL_ROWS];
    };
};

void params_on_call(struct muster_params_op *op, enum muster_rc rc);
/** The row, with value 1. */
struct muster_params_rows params_call_init(struct params_call *call, uint64_t key);
/** Fail the case unless they start. */
void params_call_push(struct params_call *call, struct muster_params_table *table, uint64_t key,
                      uint64_t deadline_ns);
void params_call_pull(struct params_call *call, struct muster_params_table *table, uint64_t key,
                      uint64_t deadline_ns);
enum muster_rc params_call_await(struct muster_env *env, struct params_call *call);

/** The data of a client. */
struct params_outcome {
    bool is_done;
    enum muster_rc rc;
};

void params_on_client(struct muster_params *params, enum muster_rc rc);
/** Returns the code. */
enum muster_rc params_outcome_await(struct muster_env *env, struct params_outcome *outcome);

/** For test_env_run_until: the client, data, has a reason not to be connected. */
bool params_has_error(void *data);

#endif
