/* The loops of every path, written once. A path defines OPTIMIZER_PATH and OPTIMIZER_TARGET, and
 * gets the table `loops`. */
#ifndef MUSTER_PARAMS_OPTIMIZER_LOOPS_H
#define MUSTER_PARAMS_OPTIMIZER_LOOPS_H

#include <math.h>

#include "params/store/optimizer.h"

#ifndef OPTIMIZER_PATH
#define OPTIMIZER_PATH   "none"
#define OPTIMIZER_TARGET __attribute__((unused))
#endif

/* Partial sums of a row: as many as the widest vector has lanes, so that every path adds the same
 * elements in the same order. */
#define LANES 16u

#define APPLY(name)                                                                                \
    static OPTIMIZER_TARGET void name(const struct muster_params_store_table *table,                     \
                                      float *restrict values, float *restrict state,               \
                                      const float *restrict gradient)

/* clang-format off */
#define EACH_ELEMENT for (uint32_t i = 0; i < table->row_elements; i++)
/* clang-format on */

APPLY(apply_add)
{
    (void)state;
    EACH_ELEMENT
        values[i] += gradient[i];
}

APPLY(apply_assign)
{
    (void)state;
    EACH_ELEMENT
        values[i] = gradient[i];
}

/* A NaN on either side stays: no comparison with it holds. */
APPLY(apply_max)
{
    (void)state;
    EACH_ELEMENT
        values[i] = values[i] > gradient[i] || values[i] != values[i] ? values[i] : gradient[i];
}

APPLY(apply_sgd)
{
    const float rate = table->learning_rate;

    (void)state;
    EACH_ELEMENT
        values[i] -= rate * gradient[i];
}

APPLY(apply_momentum)
{
    const float rate = table->learning_rate, beta = table->beta1;

    EACH_ELEMENT {
        state[i] = beta * state[i] + gradient[i];
        values[i] -= rate * state[i];
    }
}

APPLY(apply_nesterov)
{
    const float rate = table->learning_rate, beta = table->beta1;

    EACH_ELEMENT {
        state[i] = beta * state[i] + gradient[i];
        values[i] -= rate * (gradient[i] + beta * state[i]);
    }
}

APPLY(apply_adagrad)
{
    const float rate = table->learning_rate, epsilon = table->epsilon;

    EACH_ELEMENT {
        state[i] += gradient[i] * gradient[i];
        values[i] -= rate * gradient[i] / (sqrtf(state[i]) + epsilon);
    }
}

static OPTIMIZER_TARGET float sum_of_squares(const float *restrict gradient, uint32_t count)
{
    float sums[LANES] = {0}, sum = 0;
    uint32_t whole = count - count % LANES;

    for (uint32_t i = 0; i < whole; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; lane++)
            sums[lane] += gradient[i + lane] * gradient[i + lane];
    }
    for (uint32_t i = whole; i < count; i++)
        sums[i - whole] += gradient[i] * gradient[i];
    for (uint32_t lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sum;
}

APPLY(apply_row_adagrad)
{
    float divisor;

    state[0] += sum_of_squares(gradient, table->row_elements) / (float)table->row_elements;
    divisor = sqrtf(state[0]) + table->epsilon;
    EACH_ELEMENT
        values[i] -= table->learning_rate * gradient[i] / divisor;
}

/* After the two moments of each element stand 1 - beta1^t and 1 - beta2^t of the row's own steps:
 * both are 0 in a new row, as all state is. */
APPLY(apply_adam)
{
    const uint32_t count = table->row_elements;
    const float beta1 = table->beta1, beta2 = table->beta2, epsilon = table->epsilon;
    float *restrict second = state + count, *restrict correction = state + 2 * (size_t)count;
    float rate, root;

    correction[0] = correction[0] * beta1 + (1 - beta1);
    correction[1] = correction[1] * beta2 + (1 - beta2);
    rate = table->learning_rate / correction[0];
    root = sqrtf(correction[1]);
    EACH_ELEMENT {
        state[i] = beta1 * state[i] + (1 - beta1) * gradient[i];
        second[i] = beta2 * second[i] + (1 - beta2) * (gradient[i] * gradient[i]);
        values[i] -= rate * state[i] / (sqrtf(second[i]) / root + epsilon);
    }
}

/* state: z of each element, then n of each. */
APPLY(apply_ftrl)
{
    const float alpha = table->learning_rate, beta = table->beta1, l1 = table->l1, l2 = table->l2;
    float *restrict n = state + table->row_elements;

    EACH_ELEMENT {
        float g = gradient[i], sum = n[i] + g * g;
        float sigma = (sqrtf(sum) - sqrtf(n[i])) / alpha;
        float z = state[i] + (g - sigma * values[i]);
        float shrunk = z > 0 ? z - l1 : z + l1;
        float weight = -shrunk / ((beta + sqrtf(sum)) / alpha + l2);

        n[i] = sum;
        state[i] = z;
        values[i] = fabsf(z) <= l1 ? 0 : weight;
    }
}

static const struct muster_params_optimizers loops = {
    .name = OPTIMIZER_PATH,
    .apply = {[MUSTER_PARAMS_ADD] = apply_add,
              [MUSTER_PARAMS_ASSIGN] = apply_assign,
              [MUSTER_PARAMS_MAX] = apply_max,
              [MUSTER_PARAMS_SGD] = apply_sgd,
              [MUSTER_PARAMS_MOMENTUM] = apply_momentum,
              [MUSTER_PARAMS_NESTEROV] = apply_nesterov,
              [MUSTER_PARAMS_ADAGRAD] = apply_adagrad,
              [MUSTER_PARAMS_ROW_ADAGRAD] = apply_row_adagrad,
              [MUSTER_PARAMS_ADAM] = apply_adam,
              [MUSTER_PARAMS_FTRL] = apply_ftrl,
              [MUSTER_PARAMS_CLOCK_SUM] = apply_add},
};

#endif
