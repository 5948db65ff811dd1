/* Optimizers: their formulas, written again element by element in f64, and equal bits on all paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ELEMENTS_MAX 70u /* more than four of the widest vectors, and no multiple */
#define STEPS        5u

struct model {
    double w[ELEMENTS_MAX], state[2][ELEMENTS_MAX], row;
    double step;
};

typedef void model_fn(const struct muster_params_store_table *table, struct model *model,
                      const double *g, uint32_t count);

#define MODEL(name)                                                                                \
    static void name(const struct muster_params_store_table *table, struct model *m,              \
                     const double *g, uint32_t count)

MODEL(model_add)
{
    (void)table;
    for (uint32_t i = 0; i < count; i++)
        m->w[i] += g[i];
}

MODEL(model_assign)
{
    (void)table;
    for (uint32_t i = 0; i < count; i++)
        m->w[i] = g[i];
}

MODEL(model_max)
{
    (void)table;
    for (uint32_t i = 0; i < count; i++)
        m->w[i] = fmax(m->w[i], g[i]);
}

MODEL(model_sgd)
{
    for (uint32_t i = 0; i < count; i++)
        m->w[i] -= (double)table->learning_rate * g[i];
}

MODEL(model_momentum)
{
    for (uint32_t i = 0; i < count; i++) {
        m->state[0][i] = (double)table->beta1 * m->state[0][i] + g[i];
        m->w[i] -= (double)table->learning_rate * m->state[0][i];
    }
}

MODEL(model_nesterov)
{
    for (uint32_t i = 0; i < count; i++) {
        m->state[0][i] = (double)table->beta1 * m->state[0][i] + g[i];
        m->w[i] -=
            (double)table->learning_rate * (g[i] + (double)table->beta1 * m->state[0][i]);
    }
}

MODEL(model_adagrad)
{
    for (uint32_t i = 0; i < count; i++) {
        m->state[0][i] += g[i] * g[i];
        m->w[i] -= (double)table->learning_rate * g[i] /
                   (sqrt(m->state[0][i]) + (double)table->epsilon);
    }
}

MODEL(model_row_adagrad)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += g[i] * g[i];
    m->row += sum / count;
    for (uint32_t i = 0; i < count; i++)
        m->w[i] -=
            (double)table->learning_rate * g[i] / (sqrt(m->row) + (double)table->epsilon);
}

/* Kingma & Ba 2015, algorithm 1. */
MODEL(model_adam)
{
    double beta1 = (double)table->beta1, beta2 = (double)table->beta2;

    m->step++;
    for (uint32_t i = 0; i < count; i++) {
        double first, second;

        m->state[0][i] = beta1 * m->state[0][i] + (1 - beta1) * g[i];
        m->state[1][i] = beta2 * m->state[1][i] + (1 - beta2) * g[i] * g[i];
        first = m->state[0][i] / (1 - pow(beta1, m->step));
        second = m->state[1][i] / (1 - pow(beta2, m->step));
        m->w[i] -=
            (double)table->learning_rate * first / (sqrt(second) + (double)table->epsilon);
    }
}

/* McMahan et al. 2013, algorithm 1; state 0 is z, state 1 is n. */
MODEL(model_ftrl)
{
    double alpha = (double)table->learning_rate, beta = (double)table->beta1;
    double l1 = (double)table->l1, l2 = (double)table->l2;

    for (uint32_t i = 0; i < count; i++) {
        double z, n = m->state[1][i];
        double sigma = (sqrt(n + g[i] * g[i]) - sqrt(n)) / alpha;

        m->state[0][i] += g[i] - sigma * m->w[i];
        m->state[1][i] += g[i] * g[i];
        z = m->state[0][i];
        if (fabs(z) <= l1)
            m->w[i] = 0;
        else
            m->w[i] = -(z - (z > 0 ? l1 : -l1)) / ((beta + sqrt(m->state[1][i])) / alpha + l2);
    }
}

static model_fn *const models[MUSTER_PARAMS_OPTIMIZER_COUNT] = {
    [MUSTER_PARAMS_ADD] = model_add,           [MUSTER_PARAMS_ASSIGN] = model_assign,
    [MUSTER_PARAMS_MAX] = model_max,           [MUSTER_PARAMS_SGD] = model_sgd,
    [MUSTER_PARAMS_MOMENTUM] = model_momentum, [MUSTER_PARAMS_NESTEROV] = model_nesterov,
    [MUSTER_PARAMS_ADAGRAD] = model_adagrad,   [MUSTER_PARAMS_ROW_ADAGRAD] = model_row_adagrad,
    [MUSTER_PARAMS_ADAM] = model_adam,         [MUSTER_PARAMS_FTRL] = model_ftrl,
    [MUSTER_PARAMS_CLOCK_SUM] = model_add,
};

/* In [-1, 1), never 0. */
static float gradient_at(uint32_t step, uint32_t i)
{
    return ((float)((step * 7919u + i * 104729u) % 1000u) + 0.5f) / 500 - 1;
}

static struct muster_params_store_table *table_of(struct region_stand *stand,
                                                  enum muster_params_optimizer optimizer,
                                                  uint32_t elements)
{
    struct muster_params_schema schema = region_schema(NULL, elements, optimizer);
    char name[32];

    snprintf(name, sizeof(name), "%s-%u", muster_params_optimizer_name(optimizer), elements);
    schema.name = name;
    if (optimizer == MUSTER_PARAMS_FTRL) {
        schema.l1 = 0.3f;
        schema.l2 = 0.1f;
    }
    return region_table(stand, &schema);
}

/* A row of its own, in plain memory. */
struct row {
    float values[ELEMENTS_MAX];
    float state[2 * ELEMENTS_MAX + 2];
};

static void row_init(const struct muster_params_store_table *table, struct row *row)
{
    memset(row, 0, sizeof(*row));
    for (uint32_t i = 0; i < table->row_elements; i++)
        row->values[i] = gradient_at(99, i);
}

static void row_step(const struct muster_params_optimizers *optimizers,
                     const struct muster_params_store_table *table, struct row *row, uint32_t step)
{
    float gradient[ELEMENTS_MAX];

    for (uint32_t i = 0; i < table->row_elements; i++)
        gradient[i] = gradient_at(step, i);
    optimizers->apply[table->optimizer](table, row->values, row->state, gradient);
}

static void check_formula(const struct muster_params_store_table *table)
{
    struct model model = {.row = 0};
    double gradient[ELEMENTS_MAX];
    struct row row;

    row_init(table, &row);
    for (uint32_t i = 0; i < table->row_elements; i++)
        model.w[i] = (double)row.values[i];
    for (uint32_t step = 0; step < STEPS; step++) {
        row_step(muster_params_optimizers_baseline(), table, &row, step);
        for (uint32_t i = 0; i < table->row_elements; i++)
            gradient[i] = (double)gradient_at(step, i);
        models[table->optimizer](table, &model, gradient, table->row_elements);
        for (uint32_t i = 0; i < table->row_elements; i++) {
            double difference = fabs((double)row.values[i] - model.w[i]);

            if (!(difference <= 2e-6 + 2e-5 * fabs(model.w[i])))
                fail_msg("%s, step %u, element %u: %.9g, expected %.9g", table->name, step, i,
                         (double)row.values[i], model.w[i]);
        }
    }
    assert_true(table->row_elements > 0);
}

static void each_optimizer_follows_its_formula(void **state)
{
    struct region_stand stand;

    (void)state;
    region_stand_open(&stand, MUSTER_PARAMS_REGION_BYTES_MIN * 4, 1);
    for (uint32_t i = 0; i < MUSTER_PARAMS_OPTIMIZER_COUNT; i++)
        check_formula(table_of(&stand, (enum muster_params_optimizer)i, 37));
    region_stand_close(&stand);
}

static void check_paths(const struct muster_params_store_table *table,
                        const struct muster_params_optimizers *path)
{
    struct row expected, row;

    if (path == NULL)
        return;
    row_init(table, &expected);
    row_init(table, &row);
    for (uint32_t step = 0; step < STEPS; step++) {
        row_step(muster_params_optimizers_baseline(), table, &expected, step);
        row_step(path, table, &row, step);
        if (memcmp(&row, &expected, sizeof(row)) != 0)
            fail_msg("%s: other bits on path %s in step %u", table->name, path->name, step);
    }
    assert_true(path->apply[table->optimizer] != NULL);
}

static void every_path_gives_the_same_bits(void **state)
{
    static const uint32_t sizes[] = {1, 7, 16, 33, ELEMENTS_MAX};
    struct region_stand stand;

    (void)state;
    region_stand_open(&stand, MUSTER_PARAMS_REGION_BYTES_MIN * 16, 1);
    for (uint32_t i = 0; i < MUSTER_PARAMS_OPTIMIZER_COUNT; i++) {
        for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
            const struct muster_params_store_table *table =
                table_of(&stand, (enum muster_params_optimizer)i, sizes[j]);

            check_paths(table, muster_params_optimizers_avx2());
            check_paths(table, muster_params_optimizers_avx512());
            check_paths(table, muster_params_optimizers_best());
        }
    }
    region_stand_close(&stand);
}

static void max_keeps_a_nan(void **state)
{
    struct region_stand stand;
    const struct muster_params_store_table *table;
    float values[3] = {NAN, 1, 2}, gradient[3] = {1, NAN, 3};

    (void)state;
    region_stand_open(&stand, MUSTER_PARAMS_REGION_BYTES_MIN, 1);
    table = table_of(&stand, MUSTER_PARAMS_MAX, 3);
    muster_params_optimizers_best()->apply[MUSTER_PARAMS_MAX](table, values, NULL, gradient);

    assert_true(isnan(values[0]) && isnan(values[1]));
    assert_true(values[2] == 3);
    region_stand_close(&stand);
}

static void names_are_parsed_back(void **state)
{
    enum muster_params_optimizer found;

    (void)state;
    for (uint32_t i = 0; i < MUSTER_PARAMS_OPTIMIZER_COUNT; i++) {
        const char *name = muster_params_optimizer_name((enum muster_params_optimizer)i);

        assert_int_equal(muster_params_optimizer_parse(name, &found), MUSTER_OK);
        assert_int_equal(found, i);
    }
    assert_int_equal(muster_params_optimizer_parse("lion", &found), MUSTER_NOT_FOUND);
    assert_string_equal(
        muster_params_optimizer_name((enum muster_params_optimizer)MUSTER_PARAMS_OPTIMIZER_COUNT),
        "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_optimizer_follows_its_formula),
        cmocka_unit_test(every_path_gives_the_same_bits),
        cmocka_unit_test(max_keeps_a_nan),
        cmocka_unit_test(names_are_parsed_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
