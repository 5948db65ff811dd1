/* Commands of steps in micro-batches. */
#include "puppet.h"

#include <stdio.h>
#include <stdlib.h>

static struct muster_micro_batches *micro;
static struct muster_dataset_shares shares; /* since the last micro_begin */

/* micro SLOTS COUNT: each slot has so many elements of f32 */
void puppet_micro(const struct words *words)
{
    const struct muster_micro_batches_options options = {
        .slot_count = (uint32_t)puppet_number(words, 1, "8"),
        .dtype = MUSTER_F32,
        .element_count = puppet_number(words, 2, "1")};
    struct muster_error error = {0};
    enum muster_rc rc = muster_micro_batches_open(puppet_strategy, &options, &micro, &error);

    if (rc == MUSTER_OK)
        printf("ok\n");
    else
        printf("%s %s\n", muster_rc_name(rc), error.text);
}

/* micro_begin: behind begin */
void puppet_micro_begin(const struct words *words)
{
    (void)words;
    if (puppet_is_ok(muster_micro_batches_begin(micro, &shares)))
        printf("ok first=%u count=%u total=%u\n", shares.first, shares.count, shares.total);
}

/* Another order of sums has other bits. */
static float value_of(uint32_t slot, uint64_t element)
{
    return (float)(slot % 5 + 1) * (slot % 2 == 0 ? 3e-5f : -117.3f) + 1.0f / (float)(slot + 3) +
           (float)(element % 7);
}

/* micro_sum: fill this member's slots and sum. Answers with the first element, and the digest of all. */
void puppet_micro_sum(const struct words *words)
{
    struct muster_tensor tensor;
    uint32_t slot;

    (void)words;
    while (muster_micro_batches_next(micro, &slot, &tensor))
        for (uint64_t i = 0; i < tensor.count; i++)
            ((float *)tensor.data)[i] += value_of(slot, i);
    if (!puppet_is_ok(muster_micro_batches_sum(micro, &tensor)))
        return;
    printf("ok value=%.9g bits=x%016llx\n", (double)*(float *)tensor.data,
           (unsigned long long)muster_hash64(tensor.data, tensor.count * sizeof(float), 0));
}

void puppet_micro_close(void)
{
    muster_micro_batches_close(micro);
    micro = NULL;
}
