/* Replicas among three members that have 1, 2 and 3 of them: every rank runs the same script and checks its own
 * results. Replicas 0 to 5 give values that follow from their numbers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/replica.h>
#include <muster/strategy_role.h>

#include "assertion_count.h"
#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define SIZE     3u
#define REPLICAS 6u
#define LOCAL    3u /* at most */

/* One member's run of the script. */
struct script {
    unsigned rank;
    struct muster_strategy *strategy;
    uint32_t local, first;
};

#define OK(call)              JOB_RC(script->strategy, (call), MUSTER_OK, "")
#define FAILS(call, rc, text) JOB_RC(script->strategy, (call), (rc), (text))
#define BAD                   MUSTER_INVALID_ARGUMENT

static bool is_near(double a, double b)
{
    return a - b < 1e-6 && b - a < 1e-6;
}

/* a and b are floats or doubles. */
#define IS_NEAR(a, b) is_near((double)(a), (double)(b))

static struct muster_shaped_tensor shape_of(void *data, enum muster_dtype dtype, uint64_t a,
                                            uint64_t b)
{
    struct muster_shaped_tensor shaped = {.data = data, .dtype = dtype, .dimension_count = 2};

    shaped.dimensions[0] = a;
    shaped.dimensions[1] = b;
    return shaped;
}

/* --- numbers and places --- */

static void check_numbers(const struct script *script)
{
    struct muster_input_context input = muster_strategy_input_context(script->strategy);
    char name[MUSTER_DEVICE_TEXT_BYTES], expected[MUSTER_DEVICE_TEXT_BYTES];

    JOB_CHECK(muster_strategy_num_replicas_in_sync(script->strategy) == REPLICAS);
    JOB_CHECK(input.num_replicas_in_sync == REPLICAS && input.num_input_pipelines == SIZE);
    JOB_CHECK(muster_replicas_local(script->strategy) == script->rank + 1);
    JOB_CHECK(muster_replicas_first(script->strategy) == script->first);
    muster_replicas_device_name(script->strategy, 2, name);
    snprintf(expected, sizeof(expected), "/job:worker/replica:0/task:%u/device:CPU:2",
             script->rank);
    JOB_CHECK(strcmp(name, expected) == 0);
}

/* --- one value of each --- */

static void reduce_values(const struct script *script)
{
    static const struct {
        enum muster_reduction reduction;
        float expected; /* of 1 … 6 */
    } rows[] = {{MUSTER_SUM, 21}, {MUSTER_MEAN, 3.5f}, {MUSTER_MAX, 6}, {MUSTER_PROD, 720}};
    float values[LOCAL][2], result[2];
    const struct muster_tensor into = {.data = result, .count = 2, .dtype = MUSTER_F32};
    struct muster_shaped_tensor given[LOCAL];

    for (uint32_t i = 0; i < script->local; i++) {
        values[i][0] = (float)(script->first + i + 1);
        values[i][1] = -values[i][0];
        given[i] = shape_of(values[i], MUSTER_F32, 1, 2);
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        OK(muster_replicas_reduce(script->strategy, given, MUSTER_AXIS_NONE, rows[i].reduction,
                                  &into));
        JOB_CHECK(IS_NEAR(result[0], rows[i].expected));
        if (rows[i].reduction == MUSTER_MEAN)
            JOB_CHECK(IS_NEAR(result[1], -3.5));
        JOB_CHECK(IS_NEAR(values[0][0], script->first + 1)); /* inputs stay */
    }
}

/* f16: 1/6 of a sum that f16 cannot hold: 6 * 20000. */
static void reduce_halves(const struct script *script)
{
    uint16_t value = muster_f16_from_f32(20000), result = 0;
    const struct muster_tensor into = {.data = &result, .count = 1, .dtype = MUSTER_F16};
    struct muster_shaped_tensor given[LOCAL];

    for (uint32_t i = 0; i < script->local; i++)
        given[i] = (struct muster_shaped_tensor){.data = &value, .dtype = MUSTER_F16};
    OK(muster_replicas_reduce(script->strategy, given, MUSTER_AXIS_NONE, MUSTER_MEAN, &into));
    JOB_CHECK(IS_NEAR(muster_f16_to_f32(result), 20000));
}

/* Replica r has r rows of [r, 1]; the first one has none. */
static void reduce_along_axes(const struct script *script)
{
    double values[LOCAL][REPLICAS][2], result[2];
    const struct muster_tensor pair = {.data = result, .count = 2, .dtype = MUSTER_F64};
    const struct muster_tensor single = {.data = result, .count = 1, .dtype = MUSTER_F64};
    struct muster_shaped_tensor given[LOCAL], flat[LOCAL];

    for (uint32_t i = 0; i < script->local; i++) {
        uint32_t id = script->first + i;

        for (uint32_t k = 0; k < id; k++) {
            values[i][k][0] = id;
            values[i][k][1] = 1;
        }
        given[i] = shape_of(values[i], MUSTER_F64, id, 2);
        flat[i] = shape_of(values[i], MUSTER_F64, 1, 2 * id);
    }
    OK(muster_replicas_reduce(script->strategy, given, 0, MUSTER_SUM, &pair));
    JOB_CHECK(IS_NEAR(result[0], 55) && IS_NEAR(result[1], 15)); /* squares to 5, and rows */
    OK(muster_replicas_reduce(script->strategy, given, -2, MUSTER_MEAN, &pair));
    JOB_CHECK(IS_NEAR(result[0], 55.0 / 15) && IS_NEAR(result[1], 1));
    OK(muster_replicas_reduce(script->strategy, flat, 1, MUSTER_MEAN, &single));
    JOB_CHECK(IS_NEAR(result[0], 70.0 / 30));
}

/* --- gradients --- */

static void reduce_gradients(const struct script *script)
{
    static const struct {
        enum muster_reduction reduction;
        float expected[2];
    } rows[] = {{MUSTER_SUM, {21, 6}}, {MUSTER_MEAN, {3.5f, 1}}, {MUSTER_MIN, {1, 1}}};

    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        float first[LOCAL][5], second[LOCAL][1];
        struct muster_tensor tensors[2 * LOCAL];

        for (uint32_t i = 0; i < script->local; i++) {
            for (uint32_t k = 0; k < 5; k++)
                first[i][k] = (float)(script->first + i + 1);
            second[i][0] = 1;
            tensors[2 * i] =
                (struct muster_tensor){.data = first[i], .count = 5, .dtype = MUSTER_F32};
            tensors[2 * i + 1] =
                (struct muster_tensor){.data = second[i], .count = 1, .dtype = MUSTER_F32};
        }
        OK(muster_replicas_all_reduce(script->strategy, tensors, 2, rows[row].reduction));
        for (uint32_t i = 0; i < script->local; i++) {
            JOB_CHECK(IS_NEAR(first[i][0], rows[row].expected[0]));
            JOB_CHECK(memcmp(&first[i][0], &first[i][4], sizeof(float)) == 0);
            JOB_CHECK(IS_NEAR(second[i][0], rows[row].expected[1]));
        }
    }
}

/* --- joined --- */

/* Replica r has r rows; along the second axis r columns of two rows. */
static void gather_rows_and_columns(const struct script *script)
{
    int32_t values[LOCAL][2 * REPLICAS];
    struct muster_shaped_tensor rows[LOCAL], columns[LOCAL], whole;
    const int32_t *seen;

    for (uint32_t i = 0; i < script->local; i++) {
        uint32_t id = script->first + i;

        for (uint32_t k = 0; k < 2 * id; k++)
            values[i][k] = (int32_t)(100 * id + k);
        rows[i] = shape_of(values[i], MUSTER_I32, id, 2);
        columns[i] = shape_of(values[i], MUSTER_I32, 2, id);
    }
    OK(muster_replicas_gather(script->strategy, rows, 0, &whole));
    JOB_CHECK(whole.dimension_count == 2 && whole.dimensions[0] == 15 && whole.dimensions[1] == 2);
    seen = whole.data;
    for (int32_t id = 1, at = 0; id < (int32_t)REPLICAS; id++)
        for (int32_t k = 0; k < 2 * id; k++, at++)
            JOB_CHECK(seen[at] == 100 * id + k);
    muster_replicas_free(script->strategy, &whole);
    OK(muster_replicas_gather(script->strategy, columns, -1, &whole));
    JOB_CHECK(whole.dimensions[0] == 2 && whole.dimensions[1] == 15);
    seen = whole.data;
    for (int32_t row = 0, at = 0; row < 2; row++)
        for (int32_t id = 1; id < (int32_t)REPLICAS; id++)
            for (int32_t k = 0; k < id; k++, at++)
                JOB_CHECK(seen[at] == 100 * id + row * id + k);
    muster_replicas_free(script->strategy, &whole);
}

static void gather_nothing(const struct script *script)
{
    struct muster_shaped_tensor none[LOCAL], whole;

    for (uint32_t i = 0; i < script->local; i++)
        none[i] = shape_of(NULL, MUSTER_F32, 0, 4);
    OK(muster_replicas_gather(script->strategy, none, 0, &whole));
    JOB_CHECK(whole.dimensions[0] == 0 && whole.dimensions[1] == 4);
    muster_replicas_free(script->strategy, &whole);
}

/* All members are told, whoever it is. */
static void differ_in_shapes(const struct script *script)
{
    float value[6] = {0};
    struct muster_shaped_tensor given[LOCAL], whole;

    for (uint32_t i = 0; i < script->local; i++)
        given[i] = shape_of(value, MUSTER_F32, 2, script->rank == 1 ? 3 : 2);
    FAILS(muster_replicas_gather(script->strategy, given, 0, &whole), BAD,
          "gather: values differ beyond their axis, or in its number: rank 1 has f32[4,3], the "
          "first one f32[2,2]");
    for (uint32_t i = 0; i < script->local; i++)
        given[i] = shape_of(value, MUSTER_F32, 2, 2);
    FAILS(muster_replicas_gather(script->strategy, given, script->rank == 2 ? 1 : 0, &whole), BAD,
          "rank 2 has f32[2,6]");
}

/* --- slices --- */

#define ROW_COUNT 40u

/* Replica r has the rows r, r - 1, … 0, and row 9 twice, of values 1 and its number. */
static void slices_make(const struct script *script, uint64_t (*indices)[REPLICAS + 2],
                        float (*values)[2 * (REPLICAS + 2)], struct muster_slices *slices)
{
    for (uint32_t i = 0; i < script->local; i++) {
        uint32_t id = script->first + i;

        for (uint32_t k = 0; k < id + 3; k++) {
            indices[i][k] = k <= id ? id - k : 9;
            values[i][2 * k] = 1;
            values[i][2 * k + 1] = (float)id;
        }
        slices[i] = (struct muster_slices){.indices = indices[i],
                                           .values = values[i],
                                           .count = id + 3,
                                           .row_elements = 2,
                                           .dtype = MUSTER_F32};
    }
}

static void check_row(const float *row, uint64_t index, double divisor)
{
    double ones = 0, numbers = 0;

    for (uint32_t id = 0; id < REPLICAS; id++) {
        double times = index == 9 ? 2 : index <= id ? 1 : 0;

        ones += times;
        numbers += times * id;
    }
    JOB_CHECK(IS_NEAR(row[0], ones / divisor) && IS_NEAR(row[1], numbers / divisor));
}

static void sum_slices(const struct script *script)
{
    static const struct {
        struct muster_slices_options options;
        enum muster_reduction reduction;
        bool is_dense;
    } rows[] = {{{.row_count = 0}, MUSTER_SUM, false},
                {{.row_count = ROW_COUNT}, MUSTER_MEAN, false}, /* 16 rows of 40 */
                {{.row_count = ROW_COUNT, .dense_percent = 30}, MUSTER_SUM, true},
                {{.row_count = ROW_COUNT, .dense_percent = 1}, MUSTER_MEAN, true},
                {{.row_count = 10, .dense_percent = 101}, MUSTER_SUM, false},
                {{.row_count = 10}, MUSTER_SUM, true}};
    uint64_t indices[LOCAL][REPLICAS + 2];
    float values[LOCAL][2 * (REPLICAS + 2)];
    struct muster_slices slices[LOCAL];

    slices_make(script, indices, values, slices);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double divisor = rows[i].reduction == MUSTER_MEAN ? REPLICAS : 1;
        struct muster_slices_sum sum;
        const float *seen;

        OK(muster_replicas_sum_slices(script->strategy, slices, rows[i].reduction, &rows[i].options,
                                      &sum));
        seen = sum.slices.values;
        JOB_CHECK(sum.is_dense == rows[i].is_dense && sum.replica_count == REPLICAS);
        JOB_CHECK(sum.slices.count == (sum.is_dense ? rows[i].options.row_count : REPLICAS + 1));
        for (uint64_t k = 0; k < sum.slices.count; k++) {
            uint64_t index = sum.is_dense ? k : sum.slices.indices[k];

            JOB_CHECK(sum.is_dense || index == (k == REPLICAS ? 9 : k));
            check_row(seen + 2 * k, index, divisor);
        }
        muster_slices_sum_free(&sum);
    }
}

static void concatenate_slices(const struct script *script)
{
    static const struct muster_slices_options options = {.is_concatenated = true};
    uint64_t indices[LOCAL][REPLICAS + 2];
    float values[LOCAL][2 * (REPLICAS + 2)];
    struct muster_slices slices[LOCAL];
    struct muster_slices_sum sum;
    const float *seen;
    uint64_t at = 0;

    slices_make(script, indices, values, slices);
    OK(muster_replicas_sum_slices(script->strategy, slices, MUSTER_SUM, &options, &sum));
    JOB_CHECK(sum.slices.count == 33);
    seen = sum.slices.values;
    for (uint32_t id = 0; id < REPLICAS; id++)
        for (uint32_t k = 0; k < id + 3; k++, at++)
            JOB_CHECK(sum.slices.indices[at] == (k <= id ? id - k : 9) &&
                      IS_NEAR(seen[2 * at + 1], id));
    muster_slices_sum_free(&sum);
}

static void refuse_slices(const struct script *script)
{
    static const uint64_t index = 5;
    static const float values[4] = {0};
    struct muster_slices_options options = {.row_count = 5};
    struct muster_slices slices[LOCAL];
    struct muster_slices_sum sum;

    for (uint32_t i = 0; i < script->local; i++)
        slices[i] = (struct muster_slices){&index, values, 1, 2, MUSTER_F32};
    FAILS(muster_replicas_sum_slices(script->strategy, slices, MUSTER_SUM, &options, &sum), BAD,
          "index 5 of row 0 must be below the 5 rows");
    FAILS(muster_replicas_sum_slices(script->strategy, slices, MUSTER_MAX, NULL, &sum), BAD,
          "sum_slices: the reduction must be sum or mean");
    options.row_count = script->rank == 2 ? 7 : 6;
    FAILS(muster_replicas_sum_slices(script->strategy, slices, MUSTER_SUM, &options, &sum), BAD,
          "the one in place 2 has rows of f32 x 2 of 7, sum, the first one f32 x 2 of 6, sum");
}

/* --- side by side --- */

struct inside {
    const struct script *script;
    double variable;
};

static enum muster_rc compute_all(struct muster_replica *replica)
{
    struct inside *inside = replica->data;
    double gradient = replica->id + 1, own = 1;
    const struct muster_tensor tensor = {.data = &gradient, .count = 1, .dtype = MUSTER_F64};
    const struct muster_tensor value = {.data = &own, .count = 1, .dtype = MUSTER_F64};
    const struct muster_tensor variable = {
        .data = &inside->variable, .count = 1, .dtype = MUSTER_F64};
    struct muster_shaped_tensor given = {.data = &own, .dtype = MUSTER_F64, .dimension_count = 1};
    uint64_t index = replica->id / 2;
    const struct muster_slices slices = {&index, &own, 1, 1, MUSTER_F64};
    struct muster_shaped_tensor whole;
    struct muster_slices_sum sum;
    enum muster_rc rc = muster_replica_all_reduce(replica, &tensor, 1, MUSTER_SUM);

    JOB_CHECK(replica->id == inside->script->first + replica->local);
    JOB_CHECK(rc == MUSTER_OK && IS_NEAR(gradient, 21));
    given.dimensions[0] = 1;
    JOB_CHECK(muster_replica_gather(replica, &given, 0, &whole) == MUSTER_OK);
    JOB_CHECK(whole.dimensions[0] == REPLICAS);
    ((double *)whole.data)[0] = replica->id; /* it is this replica's own */
    JOB_CHECK(muster_replica_sum_slices(replica, &slices, MUSTER_SUM, NULL, &sum) == MUSTER_OK);
    JOB_CHECK(sum.slices.count == 3 && IS_NEAR(((const double *)sum.slices.values)[1], 2));
    JOB_CHECK(muster_replica_assign(replica, &variable, &value, MUSTER_AGGREGATION_SUM, true) ==
              MUSTER_OK);
    JOB_CHECK(IS_NEAR(((double *)whole.data)[0], replica->id));
    muster_replicas_free(replica->strategy, &whole);
    muster_slices_sum_free(&sum);
    return MUSTER_OK;
}

static enum muster_rc ask_too_much(struct muster_replica *replica)
{
    float value = 1;
    const struct muster_tensor tensor = {.data = &value, .count = 1, .dtype = MUSTER_F32};
    enum muster_rc rc = muster_replica_all_reduce(replica, &tensor, 1, MUSTER_AND);

    JOB_CHECK(rc == BAD && strstr(replica->error.text, "and of f32") != NULL);
    return rc;
}

static void run_side_by_side(const struct script *script)
{
    struct inside inside = {script, 10};

    OK(muster_replicas_run(script->strategy, compute_all, &inside));
    JOB_CHECK(IS_NEAR(inside.variable, 10 + REPLICAS));
    FAILS(muster_replicas_run(script->strategy, ask_too_much, NULL), BAD, "run: replica ");
}

/* --- variables --- */

static void assign_variables(const struct script *script)
{
    static const struct {
        enum muster_aggregation aggregation;
        bool is_added;
        float expected; /* of 100, and 1 … 6 */
    } rows[] = {{MUSTER_AGGREGATION_SUM, false, 21},
                {MUSTER_AGGREGATION_MEAN, true, 103.5f},
                {MUSTER_AGGREGATION_ONLY_FIRST_REPLICA, true, 101}};
    float values[LOCAL], variable;
    const struct muster_tensor into = {.data = &variable, .count = 1, .dtype = MUSTER_F32};
    struct muster_tensor given[LOCAL];

    for (uint32_t i = 0; i < script->local; i++) {
        values[i] = (float)(script->first + i + 1);
        given[i] = (struct muster_tensor){.data = &values[i], .count = 1, .dtype = MUSTER_F32};
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool is_own = rows[i].aggregation == MUSTER_AGGREGATION_ONLY_FIRST_REPLICA;

        variable = 100;
        OK(muster_replicas_assign(script->strategy, &into, given, rows[i].aggregation,
                                  rows[i].is_added));
        JOB_CHECK(IS_NEAR(variable, rows[i].expected + (is_own ? (float)script->first : 0)));
    }
    FAILS(muster_replicas_assign(script->strategy, &into, given, MUSTER_AGGREGATION_NONE, true),
          BAD, "assign: an update by replicas needs an aggregation, got 0");
    given[script->local - 1].count = 0;
    FAILS(muster_replicas_assign(script->strategy, &into, given, MUSTER_AGGREGATION_SUM, true), BAD,
          "is f32 x 0, the variable f32 x 1");
}

/* --- data --- */

/* Each member reads all by itself, a record a replica in each step: 2, 4 and 6 of them, so the last one has two steps
 * as all have. Then the first has 3 records, and the others have empty batches in its third step. */
static void read_until_all_have_ended(const struct script *script)
{
    static const unsigned char bytes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct muster_bytes records[10];
    struct muster_dataset_options options = {.kind = MUSTER_DATASET_MEMORY,
                                             .records = records,
                                             .record_count = 2 * (uint64_t)script->local,
                                             .batch = script->local,
                                             .epoch_count = 1,
                                             .shard = {MUSTER_SHARD_OFF, 1, 0},
                                             .replicas_per_worker = script->local};
    struct muster_dataset_batch batches[MUSTER_REPLICAS_MAX];
    struct muster_dataset *dataset = NULL;
    struct muster_error error;

    for (unsigned i = 0; i < 10; i++)
        records[i] = (struct muster_bytes){.data = &bytes[i], .size = 1};
    if (script->rank == 0)
        options.record_count = 3;
    JOB_CHECK(muster_dataset_open(&options, &dataset, &error) == MUSTER_OK);
    for (unsigned step = 0; step < 3; step++) {
        OK(muster_replicas_next_batches(script->strategy, dataset, batches));
        for (uint32_t i = 0; i < script->local; i++) {
            bool has_ended = step == 2 && script->rank > 0;

            JOB_CHECK(batches[i].count == !has_ended);
            JOB_CHECK(has_ended || *(const unsigned char *)batches[i].records[0].data ==
                                       step * script->local + i);
            JOB_CHECK(has_ended || batches[i].numbers[0] == step * script->local + i);
        }
    }
    FAILS(muster_replicas_next_batches(script->strategy, dataset, batches), MUSTER_OUT_OF_RANGE,
          "the parts of all members are read");
    muster_dataset_close(dataset);
    options.replicas_per_worker = script->local + 1;
    JOB_CHECK(muster_dataset_open(&options, &dataset, &error) == MUSTER_OK);
    FAILS(muster_replicas_next_batches(script->strategy, dataset, batches), BAD,
          "replicas_per_worker of the dataset must be the");
    muster_dataset_close(dataset);
}

/* A step of 13 records over 6 replicas of unequal members: each record is one replica's. */
static void share_a_step_by_replicas(const struct script *script)
{
    static const unsigned char bytes[13] = {0};
    const struct muster_dataset_shares shares = {script->first, script->local, REPLICAS};
    struct muster_bytes records[13];
    const struct muster_dataset_options options = {.kind = MUSTER_DATASET_MEMORY,
                                                   .records = records,
                                                   .record_count = 13,
                                                   .batch = 13,
                                                   .is_shuffled = true};
    struct muster_dataset *dataset = NULL;
    struct muster_error error;
    float seen[13] = {0}, none[13] = {0}, all[13];
    const struct muster_tensor into = {.data = all, .count = 13, .dtype = MUSTER_F32};
    struct muster_shaped_tensor given[LOCAL];

    for (unsigned i = 0; i < 13; i++)
        records[i] = (struct muster_bytes){.data = &bytes[i], .size = 1};
    JOB_CHECK(muster_dataset_open(&options, &dataset, &error) == MUSTER_OK);
    JOB_CHECK(muster_dataset_next_shares(dataset, &shares, &error) == MUSTER_OK);
    for (uint32_t i = 0; i < script->local; i++) {
        struct muster_dataset_batch batch;

        JOB_CHECK(muster_dataset_share(dataset, script->first + i, &batch, &error) == MUSTER_OK);
        JOB_CHECK(batch.count == 2 || batch.count == 3);
        for (size_t k = 0; k < batch.count; k++)
            seen[batch.numbers[k]]++;
    }
    for (uint32_t i = 0; i < script->local; i++) /* all are counted by the first one */
        given[i] = shape_of(i == 0 ? seen : none, MUSTER_F32, 1, 13);
    OK(muster_replicas_reduce(script->strategy, given, MUSTER_AXIS_NONE, MUSTER_SUM, &into));
    for (unsigned i = 0; i < 13; i++)
        JOB_CHECK(IS_NEAR(all[i], 1));
    muster_dataset_close(dataset);
}

static enum muster_rc read_nothing(void *data, uint64_t number, void *ret_bytes, size_t *ret_size)
{
    (void)number;
    *(char *)ret_bytes = 'x';
    *ret_size = 1;
    return *(const unsigned *)data == 1 ? MUSTER_PERMISSION_DENIED : MUSTER_OK;
}

static void hear_that_another_cannot_read(const struct script *script)
{
    const struct muster_dataset_options options = {.kind = MUSTER_DATASET_CALLBACK,
                                                   .read = read_nothing,
                                                   .data = (void *)(uintptr_t)&script->rank,
                                                   .record_bytes_max = 1,
                                                   .record_count = 9,
                                                   .batch = 3,
                                                   .replicas_per_worker = script->local};
    struct muster_dataset_batch batches[MUSTER_REPLICAS_MAX];
    struct muster_dataset *dataset = NULL;
    struct muster_error error;

    JOB_CHECK(muster_dataset_open(&options, &dataset, &error) == MUSTER_OK);
    if (script->rank == 1)
        FAILS(muster_replicas_next_batches(script->strategy, dataset, batches),
              MUSTER_PERMISSION_DENIED, "next_batches: ");
    else
        FAILS(muster_replicas_next_batches(script->strategy, dataset, batches), MUSTER_DATA_LOSS,
              "another member cannot read its data");
    muster_dataset_close(dataset);
}

/* --- refusals: nothing reaches the others --- */

static void refuse_values(const struct script *script)
{
    float value[8] = {0}, result[2];
    int32_t whole[2] = {0};
    struct muster_tensor into = {.data = result, .count = 2, .dtype = MUSTER_F32};
    struct muster_shaped_tensor given[LOCAL], ints[LOCAL], joined;
    struct muster_tensor tensors[LOCAL];

    for (uint32_t i = 0; i < script->local; i++) {
        given[i] = shape_of(value, MUSTER_F32, 3, 2);
        ints[i] = shape_of(whole, MUSTER_I32, 1, 2);
        tensors[i] = (struct muster_tensor){.data = whole, .count = 2, .dtype = MUSTER_I32};
    }
    FAILS(muster_replicas_reduce(script->strategy, given, 2, MUSTER_SUM, &into), BAD,
          "reduce: the value of local replica 0: the axis of a tensor with 2 dimensions must be -2 "
          "to 1, got 2");
    FAILS(muster_replicas_reduce(script->strategy, given, 0, MUSTER_MAX, &into), BAD,
          "with an axis the reduction must be sum or mean, got max");
    FAILS(muster_replicas_reduce(script->strategy, given, 1, MUSTER_SUM, &into), BAD,
          "reduce: the result must be f32 x 3, aligned to its type, got f32 x 2");
    into.dtype = MUSTER_I32;
    FAILS(muster_replicas_reduce(script->strategy, ints, MUSTER_AXIS_NONE, MUSTER_MEAN, &into), BAD,
          "a mean over replicas is of floats");
    FAILS(muster_replicas_all_reduce(script->strategy, tensors, 1, MUSTER_MEAN), BAD,
          "a mean over replicas is of floats, got i32");
    FAILS(muster_replicas_gather(script->strategy, given, -3, &joined), BAD,
          "gather: the value of local replica 0: the axis");
    if (script->local < 2)
        return;
    given[1].dimensions[1] = 4;
    FAILS(muster_replicas_reduce(script->strategy, given, 0, MUSTER_SUM, &into), BAD,
          "reduce: the value of local replica 1: f32[3,4], of replica 0 f32[3,2]");
    FAILS(muster_replicas_gather(script->strategy, given, 0, &joined), BAD,
          "local replica 1 has f32[3,4], the first one f32[3,2]");
    tensors[1].count = 1;
    FAILS(muster_replicas_all_reduce(script->strategy, tensors, 1, MUSTER_SUM), BAD,
          "tensor 0 of local replica 1: i32 x 1, of replica 0 i32 x 2");
}

static void refuse_before_begin(const struct script *script)
{
    float value = 0;
    const struct muster_tensor into = {.data = &value, .count = 1, .dtype = MUSTER_F32};
    const struct muster_shaped_tensor given = {.data = &value, .dtype = MUSTER_F32};
    struct muster_shaped_tensor whole;
    struct muster_slices_sum sum;
    struct muster_slices slices = {0};
    const enum muster_rc rc = MUSTER_FAILED_PRECONDITION;

    FAILS(muster_replicas_reduce(script->strategy, &given, MUSTER_AXIS_NONE, MUSTER_SUM, &into), rc,
          "reduce: call begin first");
    FAILS(muster_replicas_gather(script->strategy, &given, 0, &whole), rc, "call begin first");
    FAILS(muster_replicas_all_reduce(script->strategy, &into, 1, MUSTER_SUM), rc,
          "call begin first");
    FAILS(muster_replicas_sum_slices(script->strategy, &slices, MUSTER_SUM, NULL, &sum), rc,
          "call begin first");
    FAILS(muster_replicas_assign(script->strategy, &into, &into, MUSTER_AGGREGATION_SUM, true), rc,
          "call begin first");
}

static void run_script(unsigned rank, void *data)
{
    struct script own = {.rank = rank, .local = rank + 1, .first = rank * (rank + 1) / 2};
    struct script *script = &own;
    char replicas[16];

    (void)data;
    snprintf(replicas, sizeof(replicas), "%u", rank + 1);
    setenv("MUSTER_REPLICAS", replicas, 1);
    own.strategy = job_strategy_open();
    unsetenv("MUSTER_REPLICAS");
    refuse_before_begin(script);
    JOB_CHECK(job_begin(own.strategy) == 1);
    check_numbers(script);
    reduce_values(script);
    reduce_halves(script);
    reduce_along_axes(script);
    reduce_gradients(script);
    gather_rows_and_columns(script);
    gather_nothing(script);
    differ_in_shapes(script);
    sum_slices(script);
    concatenate_slices(script);
    refuse_slices(script);
    run_side_by_side(script);
    assign_variables(script);
    read_until_all_have_ended(script);
    hear_that_another_cannot_read(script);
    share_a_step_by_replicas(script);
    refuse_values(script);
    OK(muster_strategy_barrier(own.strategy));
    job_commit(own.strategy);
    muster_strategy_close(own.strategy);
}

static void unequal_members_have_all_results(void **state)
{
    static struct job_stage stage;

    (void)state;
    for (unsigned own = 0; own < SIZE; own += 2) {
        job_stage_open(&stage, own, SIZE);
        for (unsigned rank = 0; rank < SIZE; rank++)
            if (rank != own)
                job_stage_start(&stage, rank, run_script, NULL);
        run_script(own, NULL);
        job_stage_close(&stage);
    }
}

static struct muster_strategy *open_alone(uint32_t replicas, uint32_t devices)
{
    const struct muster_strategy_options options = {.replica_count = replicas,
                                                    .logical_device_count = devices};
    struct muster_strategy *strategy = NULL;

    assert_int_equal(muster_strategy_open(&options, &strategy, NULL), MUSTER_OK);
    return strategy;
}

/* --- replicas of one member that differ --- */

enum difference {
    DIFFER_IN_COUNT,
    DIFFER_IN_REDUCTION,
    DIFFER_IN_AXIS,
    DIFFER_IN_OPTIONS,
    DIFFER_IN_VARIABLE,
    DIFFERENCES
};

static enum muster_rc call_differently(struct muster_replica *replica)
{
    static const struct muster_slices_options options[] = {{.row_count = 2}, {.row_count = 3}};
    uint32_t own = replica->local;
    static float variables[2];
    static const uint64_t index = 1;
    float value = 1;
    const struct muster_tensor tensor = {.data = &value, .count = 1, .dtype = MUSTER_F32};
    const struct muster_tensor variable = {
        .data = &variables[own], .count = 1, .dtype = MUSTER_F32};
    const struct muster_shaped_tensor shaped = shape_of(&value, MUSTER_F32, 1, 1);
    const struct muster_slices slices = {&index, &value, 1, 1, MUSTER_F32};
    struct muster_shaped_tensor whole;
    struct muster_slices_sum sum;

    switch (*(const enum difference *)replica->data) {
    case DIFFER_IN_COUNT:
        return muster_replica_all_reduce(replica, &tensor, own, MUSTER_SUM);
    case DIFFER_IN_REDUCTION:
        return muster_replica_all_reduce(replica, &tensor, 1, own == 0 ? MUSTER_SUM : MUSTER_MAX);
    case DIFFER_IN_AXIS:
        return muster_replica_gather(replica, &shaped, (int32_t)own, &whole);
    case DIFFER_IN_OPTIONS:
        return muster_replica_sum_slices(replica, &slices, MUSTER_SUM, &options[own], &sum);
    case DIFFER_IN_VARIABLE:
    case DIFFERENCES:
        break;
    }
    return muster_replica_assign(replica, &variable, &tensor, MUSTER_AGGREGATION_SUM, false);
}

static void replicas_of_a_member_that_differ_are_told(void **state)
{
    static struct job_stage stage;
    struct muster_strategy *strategy;

    (void)state;
    job_stage_open(&stage, 0, 1);
    strategy = open_alone(2, 1);
    job_begin(strategy);
    for (enum difference i = DIFFER_IN_COUNT; i < DIFFERENCES; i++) {
        assert_int_equal(muster_replicas_run(strategy, call_differently, &i), BAD);
        fail_if(strstr(muster_strategy_error(strategy)->text,
                       "replicas 0 and 1 of this member differ in") == NULL,
                "%d: %s", (int)i, muster_strategy_error(strategy)->text);
    }
    job_commit(strategy);
    muster_strategy_close(strategy);
    job_stage_close(&stage);
}

static void logical_devices_follow_tensorflows_rules(void **state)
{
    static struct job_stage stage;
    float elements[20], read[6] = {0};
    struct muster_shaped_tensor tensor = shape_of(elements, MUSTER_F32, 5, 4);
    const uint64_t right[] = {2, 3}, few[] = {2, 2}, huge[] = {UINT64_MAX / 2, 4};
    double value = 3, copies[6] = {0};
    struct muster_tensor one = {.data = &value, .count = 1, .dtype = MUSTER_F64}, all[6];
    struct muster_tensor_part part;
    struct muster_strategy *strategy;
    uint32_t device = 0;

    (void)state;
    job_stage_open(&stage, 0, 1);
    strategy = open_alone(2, 6);
    assert_int_equal(muster_replicas_assign_to_logical_device(strategy, 1, 2, &device), MUSTER_OK);
    assert_int_equal(device, 8);
    assert_int_equal(muster_replicas_assign_to_logical_device(strategy, 0, 6, &device), BAD);
    assert_string_equal(
        muster_strategy_error(strategy)->text,
        "assign_to_logical_device: a replica has 6 logical devices, so the id must "
        "be 0 to 5, got 6; set logical_device_count in the options of the strategy");
    assert_int_equal(muster_replicas_assign_to_logical_device(strategy, 0, -1, &device), BAD);
    assert_int_equal(muster_replicas_assign_to_logical_device(strategy, 2, 0, &device), BAD);
    assert_int_equal(
        muster_replicas_split_to_logical_devices(strategy, &tensor, right, 2, 4, &part), MUSTER_OK);
    assert_int_equal(part.first[0], 3);
    assert_int_equal(part.extent[1], 2);
    for (unsigned i = 0; i < 20; i++)
        elements[i] = (float)i;
    muster_tensor_part_read(&tensor, &part, read); /* rows 3 and 4, columns 2 and 3 */
    assert_true(IS_NEAR(read[0], 14) && IS_NEAR(read[1], 15));
    assert_true(IS_NEAR(read[2], 18) && IS_NEAR(read[3], 19));
    assert_int_equal(muster_replicas_split_to_logical_devices(strategy, &tensor, few, 2, 0, &part),
                     BAD);
    assert_string_equal(muster_strategy_error(strategy)->text,
                        "split_to_logical_devices: the product of the partition must be the 6 "
                        "logical devices of a replica, got 4");
    assert_int_equal(muster_replicas_split_to_logical_devices(strategy, &tensor, huge, 2, 0, &part),
                     BAD);
    assert_int_equal(
        muster_replicas_split_to_logical_devices(strategy, &tensor, right, 1, 0, &part), BAD);
    assert_int_equal(
        muster_replicas_split_to_logical_devices(strategy, &tensor, right, 2, 6, &part), BAD);
    for (unsigned i = 0; i < 6; i++)
        all[i] = (struct muster_tensor){.data = &copies[i], .count = 1, .dtype = MUSTER_F64};
    assert_int_equal(muster_replicas_replicate_to_logical_devices(strategy, &one, all), MUSTER_OK);
    assert_true(IS_NEAR(copies[0] + copies[5], 6));
    all[3].dtype = MUSTER_I64;
    assert_int_equal(muster_replicas_replicate_to_logical_devices(strategy, &one, all), BAD);
    muster_strategy_close(strategy);
    job_stage_close(&stage);
}

static void replicas_beyond_the_bound_are_refused(void **state)
{
    static struct job_stage stage;
    const struct muster_strategy_options many = {.replica_count = MUSTER_REPLICAS_MAX + 1},
                                         devices = {.logical_device_count = 4097};
    struct muster_strategy *strategy = NULL;
    struct muster_error error;

    (void)state;
    job_stage_open(&stage, 0, 1);
    assert_int_equal(muster_strategy_open(&many, &strategy, &error), BAD);
    assert_string_equal(error.text, "replica_count must be at most 256, got 257");
    assert_int_equal(muster_strategy_open(&devices, &strategy, &error), BAD);
    assert_string_equal(error.text, "logical_device_count must be at most 4096, got 4097");
    job_stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_members_have_all_results),
        cmocka_unit_test(replicas_of_a_member_that_differ_are_told),
        cmocka_unit_test(logical_devices_follow_tensorflows_rules),
        cmocka_unit_test(replicas_beyond_the_bound_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
