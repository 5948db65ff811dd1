/* Batches: a global one for many replicas, and batches cut anew. */
#include <muster/input.h>

static uint64_t count_replicas(const struct muster_batch_split *split)
{
    return (uint64_t)split->num_workers * split->replicas_per_worker;
}

enum muster_rc muster_batch_split_check(const struct muster_batch_split *split,
                                        struct muster_error *ret_error)
{
    if (split->replicas_per_worker == 0 || split->global_batch == 0)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "the global batch and the replicas of a worker must be above 0, got %llu and %u",
            (unsigned long long)split->global_batch, split->replicas_per_worker);
    if (split->worker >= split->num_workers)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the index of a worker must be below their number %u, got %u",
                                split->num_workers, split->worker);
    return MUSTER_OK;
}

uint64_t muster_batch_split_size(const struct muster_batch_split *split, uint64_t i)
{
    uint64_t replicas = count_replicas(split);
    uint64_t shift = (uint64_t)split->worker * split->replicas_per_worker;
    uint64_t place = (i % replicas + shift) % replicas;

    return split->global_batch / replicas + (place < split->global_batch % replicas ? 1 : 0);
}

void muster_batch_cut(uint64_t size, uint32_t count, uint32_t i, uint64_t *ret_first,
                      uint64_t *ret_size)
{
    uint64_t piece = size / count + (size % count != 0 ? 1 : 0);
    uint64_t first = piece * i < size ? piece * i : size;

    *ret_first = first;
    *ret_size = size - first < piece ? size - first : piece;
}

enum muster_rc muster_rebatch_init(struct muster_rebatch *rebatch, const int64_t *sizes,
                                   size_t count, struct muster_error *ret_error)
{
    bool has_some = false;

    for (size_t i = 0; i < count; i++) {
        if (sizes[i] < 0)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "the size of a batch must not be negative, got %lld",
                                    (long long)sizes[i]);
        has_some = has_some || sizes[i] > 0;
    }
    if (!has_some)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "one of the batch sizes must be above 0: no batch would ever hold "
                                "an element");
    *rebatch = (struct muster_rebatch){.sizes = sizes, .count = count};
    return MUSTER_OK;
}

uint64_t muster_rebatch_next(struct muster_rebatch *rebatch)
{
    int64_t size = rebatch->sizes[rebatch->next];

    rebatch->next = (rebatch->next + 1) % rebatch->count;
    return (uint64_t)size;
}

enum muster_rc muster_input_batch_size(const struct muster_input_stage *stages, size_t count,
                                       int64_t *ret_size, struct muster_error *ret_error)
{
    size_t depth = 0; /* of batches of batches */
    int64_t size = 0;

    for (size_t i = 0; i < count; i++) {
        if (stages[i].kind == MUSTER_INPUT_BATCH) {
            depth++;
            size = (int64_t)stages[i].size;
        } else if (stages[i].kind == MUSTER_INPUT_UNBATCH) {
            depth -= depth > 0 ? 1 : 0;
            size = -1;
        } else if (stages[i].kind == MUSTER_INPUT_MAP) {
            size = -1;
        }
    }
    if (depth == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the elements must be batched; add a batch stage after the last "
                                "one that makes single elements");
    *ret_size = size;
    return MUSTER_OK;
}
