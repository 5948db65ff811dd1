/* Commands of replicas and of sparse gradients. */
#include "puppet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* replicas: their numbers */
void puppet_replicas(const struct words *words)
{
    (void)words;
    printf("ok first=%u local=%u all=%u\n", muster_replicas_first(puppet_strategy),
           muster_replicas_local(puppet_strategy),
           muster_strategy_num_replicas_in_sync(puppet_strategy));
}

static struct muster_shaped_tensor *make_values(double value)
{
    uint32_t local = muster_replicas_local(puppet_strategy);
    struct muster_shaped_tensor *values = calloc(local, sizeof(*values));
    double *data = puppet_make_tensor(local, 0);

    if (values == NULL)
        abort();
    for (uint32_t i = 0; i < local; i++) {
        data[i] = value + i;
        values[i] = (struct muster_shaped_tensor){
            .data = &data[i], .dtype = MUSTER_F64, .dimension_count = 1, .dimensions = {1}};
    }
    return values;
}

static void free_values(struct muster_shaped_tensor *values)
{
    free(values[0].data);
    free(values);
}

/* replicas_reduce VALUE REDUCTION: local replica i gives VALUE + i */
void puppet_replicas_reduce(const struct words *words)
{
    struct muster_shaped_tensor *values = make_values(puppet_seconds(words, 1));
    double result = 0;
    const struct muster_tensor into = {.data = &result, .count = 1, .dtype = MUSTER_F64};

    if (puppet_is_ok(muster_replicas_reduce(puppet_strategy, values, MUSTER_AXIS_NONE,
                                            puppet_reduction_of(puppet_word(words, 2, "sum")),
                                            &into)))
        printf("ok value=%.17g\n", result);
    free_values(values);
}

/* replicas_gather VALUE: the same values, joined */
void puppet_replicas_gather(const struct words *words)
{
    struct muster_shaped_tensor *values = make_values(puppet_seconds(words, 1));
    struct muster_shaped_tensor whole;

    if (puppet_is_ok(muster_replicas_gather(puppet_strategy, values, 0, &whole))) {
        const struct muster_tensor joined = {
            .data = whole.data, .count = whole.dimensions[0], .dtype = MUSTER_F64};

        puppet_print_parts(&joined, (uint32_t)joined.count);
        muster_replicas_free(puppet_strategy, &whole);
    }
    free_values(values);
}

/* Another order of sums has other bits. */
static float value_of(uint64_t seed)
{
    return (float)(seed % 5 + 1) * (seed % 2 == 0 ? 3e-5f : -117.3f) + 1.0f / (float)(seed + 3);
}

/* slices ROWS COLUMNS ROW_COUNT SEED [REDUCTION [DENSE_PERCENT]]: each local replica has ROWS rows at indices and of
 * values that follow from SEED and its place here. Answers with the digest of the sum. */
void puppet_slices(const struct words *words)
{
    uint32_t local = muster_replicas_local(puppet_strategy);
    uint64_t rows = puppet_number(words, 1, "8"), columns = puppet_number(words, 2, "1");
    uint64_t seed = puppet_number(words, 4, "0");
    const struct muster_slices_options options = {.row_count = puppet_number(words, 3, "0"),
                                                  .dense_percent =
                                                      (uint32_t)puppet_number(words, 6, "0")};
    struct muster_slices *slices = calloc(local, sizeof(*slices));
    uint64_t *indices = calloc(local * rows + 1, sizeof(*indices));
    float *values = calloc(local * rows * columns + 1, sizeof(*values));
    struct muster_slices_sum sum;

    if (slices == NULL || indices == NULL || values == NULL)
        abort();
    for (uint64_t i = 0; i < local * rows; i++)
        indices[i] = (seed * 31 + i * 7919) % (options.row_count > 0 ? options.row_count : 1000);
    for (uint64_t i = 0; i < local * rows * columns; i++)
        values[i] = value_of(seed * 1000 + i);
    for (uint32_t i = 0; i < local; i++)
        slices[i] = (struct muster_slices){.indices = indices + i * rows,
                                           .values = values + i * rows * columns,
                                           .count = rows,
                                           .row_elements = columns,
                                           .dtype = MUSTER_F32};
    if (puppet_is_ok(muster_replicas_sum_slices(puppet_strategy, slices,
                                                puppet_reduction_of(puppet_word(words, 5, "sum")),
                                                &options, &sum))) {
        uint64_t bits =
            muster_hash64(sum.slices.values, sum.slices.count * columns * sizeof(*values), 0);

        if (!sum.is_dense)
            bits = muster_hash64(sum.slices.indices, sum.slices.count * sizeof(*indices), bits);
        printf("ok rows=%" PRIu64 " dense=%d replicas=%u bits=x%016" PRIx64 "\n", sum.slices.count,
               sum.is_dense, sum.replica_count, bits);
        muster_slices_sum_free(&sum);
    }
    free(slices);
    free(indices);
    free(values);
}
