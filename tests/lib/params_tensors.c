#include "params_tensors.h"

#include "params_calls.h"

#include <stdlib.h>

void params_tensors_enter(struct params_tensors *scene, struct muster_params *params,
                          const struct muster_params_schema *schema)
{
    scene->params = params;
    scene->table = params_stand_table(&scene->stand, params, schema);
}

void params_tensors_leave(struct params_tensors *scene)
{
    assert_int_equal(params_stand_leave(&scene->stand, scene->params), MUSTER_OK);
    params_stand_close(&scene->stand);
}

void params_tensors_on_op(struct muster_params_op *op, enum muster_rc rc)
{
    struct params_outcome *outcome = op->data;

    assert_false(outcome->is_done);
    *outcome = (struct params_outcome){true, rc};
}

enum muster_rc params_tensors_move(struct params_tensors *scene, struct muster_params_table *table,
                                   const struct muster_params_range *range,
                                   enum muster_params_direction direction)
{
    struct params_outcome outcome = {.is_done = false};
    struct muster_params_op op = {.data = &outcome};
    enum muster_rc rc = muster_params_tensor_start(
        &op, table, range, direction, params_stand_deadline(&scene->stand), params_tensors_on_op);

    return rc != MUSTER_OK ? rc : params_outcome_await(&scene->stand.test.env, &outcome);
}

float *params_ramp_new(size_t count, float factor)
{
    float *values = malloc(count * sizeof(*values));

    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)i * factor;
    return values;
}

void params_ramp_expect(const float *values, uint64_t offset, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i] < (float)(offset + i) * factor || values[i] > (float)(offset + i) * factor)
            fail_msg("element %zu is %g, not %g", (size_t)offset + i, (double)values[i],
                     (double)((float)(offset + i) * factor));
    }
}
