/* Batches of all local replicas, and the end of the data that all members agree on. */
#include <muster/replicas.h>

#include <inttypes.h>
#include <string.h>

#include "training/data/dataset_internal.h"
#include "training/replicas.h"
#include "training/strategy_call.h"

/** A member says this of its part; the highest of all holds. */
enum reading {
    READING_ENDED,
    READING_GOES_ON,
    READING_FAILED,
};

/* A dataset's batch is gone with the next one: those of all replicas but the last are copied. */
static size_t copy_bytes(const struct muster_dataset_batch *batch)
{
    size_t bytes = batch->count * (sizeof(*batch->records) + sizeof(*batch->numbers));

    for (size_t i = 0; i < batch->count; i++)
        bytes += batch->records[i].size;
    return (bytes + 7) / 8 * 8;
}

/* After `used` bytes of the strategy's memory, which may move: the batches before are told again. */
struct copies {
    size_t used;
    size_t starts[MUSTER_REPLICAS_MAX];
};

static bool copy_append(struct muster_strategy *strategy, struct copies *copies, uint32_t replica,
                        const struct muster_dataset_batch *batch)
{
    size_t bytes = copy_bytes(batch);
    struct muster_bytes *records;
    uint64_t *numbers;
    uint8_t *memory, *at;

    memory =
        muster_mem_realloc(strategy->env->mem, strategy->replica_batches, copies->used + bytes + 1);
    if (memory == NULL)
        return false;
    strategy->replica_batches = memory;
    copies->starts[replica] = copies->used;
    records = (struct muster_bytes *)(void *)(memory + copies->used);
    numbers = (uint64_t *)(void *)(records + batch->count);
    at = (uint8_t *)(numbers + batch->count);
    for (size_t i = 0; i < batch->count; i++) {
        numbers[i] = batch->numbers[i];
        records[i] = (struct muster_bytes){.size = batch->records[i].size};
        if (records[i].size > 0)
            memcpy(at, batch->records[i].data, records[i].size);
        at += records[i].size;
    }
    copies->used += bytes;
    return true;
}

/* The memory does not move any more. */
static void copies_point(const struct muster_strategy *strategy, const struct copies *copies,
                         struct muster_dataset_batch *batches)
{
    for (uint32_t replica = 0; replica + 1 < strategy->replica_count; replica++) {
        struct muster_dataset_batch *batch = &batches[replica];
        struct muster_bytes *records;
        uint8_t *at;

        records = (struct muster_bytes *)(void *)((uint8_t *)strategy->replica_batches +
                                                  copies->starts[replica]);
        at = (uint8_t *)(records + batch->count) + batch->count * sizeof(uint64_t);
        batch->records = records;
        batch->numbers = (uint64_t *)(void *)(records + batch->count);
        for (size_t i = 0; i < batch->count; at += records[i++].size)
            records[i].data = at;
    }
}

/* All batches of the step, or none of them. */
static enum muster_rc read_batches(struct muster_strategy *strategy, struct muster_dataset *dataset,
                                   struct muster_dataset_batch *batches)
{
    struct copies copies = {.used = 0};
    struct muster_error why;

    memset(batches, 0, strategy->replica_count * sizeof(*batches));
    for (uint32_t replica = 0; replica < strategy->replica_count; replica++) {
        enum muster_rc rc = muster_dataset_next(dataset, &batches[replica], &why);

        if (rc == MUSTER_OK && replica + 1 < strategy->replica_count &&
            !copy_append(strategy, &copies, replica, &batches[replica]))
            rc = muster_error_set(&why, MUSTER_RESOURCE_EXHAUSTED, "out of memory for a batch");
        if (rc != MUSTER_OK) {
            memset(batches, 0, strategy->replica_count * sizeof(*batches));
            return muster_error_set(&strategy->error, rc, "next_batches: %s", why.text);
        }
    }
    copies_point(strategy, &copies, batches);
    return MUSTER_OK;
}

static enum reading reading_of(enum muster_rc rc)
{
    if (rc == MUSTER_OK)
        return READING_GOES_ON;
    return rc == MUSTER_OUT_OF_RANGE ? READING_ENDED : READING_FAILED;
}

enum muster_rc muster_replicas_next_batches(struct muster_strategy *strategy,
                                            struct muster_dataset *dataset,
                                            struct muster_dataset_batch *ret_batches)
{
    struct muster_dataset_batch batches[MUSTER_REPLICAS_MAX];
    uint8_t reading;
    const struct muster_tensor told = {.data = &reading, .count = 1, .dtype = MUSTER_U8};
    struct muster_error own;
    enum muster_rc rc = muster_strategy_check_step(strategy, "next_batches"), read;

    if (rc != MUSTER_OK)
        return rc;
    if (dataset->division.replicas_per_worker != strategy->replica_count)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "next_batches: replicas_per_worker of the dataset must be the "
                                "%" PRIu32 " replicas of this member, got %" PRIu32,
                                strategy->replica_count, dataset->division.replicas_per_worker);
    read = read_batches(strategy, dataset, batches);
    own = strategy->error;
    reading = (uint8_t)reading_of(read);
    rc = muster_strategy_all_reduce(strategy, &told, 1, MUSTER_MAX);
    if (rc != MUSTER_OK)
        return rc;
    if (read != MUSTER_OK && read != MUSTER_OUT_OF_RANGE) {
        strategy->error = own;
        return read;
    }
    if (reading == READING_FAILED)
        return muster_error_set(&strategy->error, MUSTER_DATA_LOSS,
                                "next_batches: another member cannot read its data");
    if (reading == READING_ENDED)
        return muster_error_set(&strategy->error, MUSTER_OUT_OF_RANGE,
                                "next_batches: the parts of all members are read");
    memcpy(ret_batches, batches, strategy->replica_count * sizeof(*batches));
    return MUSTER_OK;
}
