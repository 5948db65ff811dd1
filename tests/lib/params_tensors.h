/* A client with one tensor, and the values that a case moves. */
#ifndef MUSTER_TEST_PARAMS_TENSORS_H
#define MUSTER_TEST_PARAMS_TENSORS_H

#include "params_stand.h"

struct params_tensors {
    struct params_stand stand;
    struct muster_params *params;
    struct muster_params_table *table;
};

/** The stand is open. params is taken. */
void params_tensors_enter(struct params_tensors *scene, struct muster_params *params,
                          const struct muster_params_schema *schema);
void params_tensors_leave(struct params_tensors *scene);

/** For an operation whose data is a struct params_outcome; fails the case where it ends twice. */
void params_tensors_on_op(struct muster_params_op *op, enum muster_rc rc);
/** Waits for its end, if it starts. */
enum muster_rc params_tensors_move(struct params_tensors *scene, struct muster_params_table *table,
                                   const struct muster_params_range *range,
                                   enum muster_params_direction direction);

/** Element i is i * factor, exact in f32. Gives. */
float *params_ramp_new(size_t count, float factor);
/** values begin with the element at offset. Fails the case. */
void params_ramp_expect(const float *values, uint64_t offset, size_t count, float factor);

#endif
