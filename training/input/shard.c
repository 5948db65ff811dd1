/* Shards of the input: which worker reads what. */
#include <muster/input.h>

/* All workers must have files: one that has none would end its steps before the others. */
static enum muster_rc check_files(const struct muster_shard *shard, uint64_t file_count,
                                  struct muster_error *ret_error)
{
    if (file_count >= shard->num_workers)
        return MUSTER_OK;
    return muster_error_set(
        ret_error, MUSTER_INVALID_ARGUMENT,
        "the input must have a file for each of %u workers, got %llu; divide it "
        "into more files, or use the policy DATA",
        shard->num_workers, (unsigned long long)file_count);
}

static enum muster_rc check_input(const struct muster_shard *shard,
                                  const struct muster_shard_input *input,
                                  struct muster_error *ret_error)
{
    if (shard->index >= shard->num_workers)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the index of a worker must be below their number %u, got %u",
                                shard->num_workers, shard->index);
    if (shard->policy > MUSTER_SHARD_OFF)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the policy must be AUTO, FILE, DATA, HINT or OFF, got %d",
                                (int)shard->policy);
    if (shard->policy == MUSTER_SHARD_FILE && shard->num_workers > 1 && !input->has_files)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "the policy FILE needs a source of files, and this one has none; "
                                "use DATA or AUTO");
    if (shard->policy != MUSTER_SHARD_HINT && input->has_mark)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the input has a mark where it is divided, which only the policy "
                                "HINT uses; choose HINT, or remove the mark");
    return MUSTER_OK;
}

static enum muster_shard_unit policy_unit(const struct muster_shard *shard,
                                          const struct muster_shard_input *input)
{
    switch (shard->policy) {
    case MUSTER_SHARD_HINT:
        return input->has_mark ? MUSTER_SHARD_MARK : MUSTER_SHARD_WHOLE;
    case MUSTER_SHARD_OFF:
        return MUSTER_SHARD_WHOLE;
    case MUSTER_SHARD_DATA:
        return MUSTER_SHARD_ELEMENTS;
    case MUSTER_SHARD_AUTO:
        if (!input->has_files)
            return MUSTER_SHARD_ELEMENTS;
        break;
    case MUSTER_SHARD_FILE:
        break;
    }
    return shard->num_workers == 1 ? MUSTER_SHARD_WHOLE : MUSTER_SHARD_FILES;
}

enum muster_rc muster_shard_choose(const struct muster_shard *shard,
                                   const struct muster_shard_input *input,
                                   enum muster_shard_unit *ret_unit, struct muster_error *ret_error)
{
    enum muster_rc rc = check_input(shard, input, ret_error);
    enum muster_shard_unit unit;

    if (rc != MUSTER_OK)
        return rc;
    unit = policy_unit(shard, input);
    if (unit == MUSTER_SHARD_FILES)
        rc = check_files(shard, input->file_count, ret_error);
    if (rc == MUSTER_OK)
        *ret_unit = unit;
    return rc;
}

bool muster_shard_has(const struct muster_shard *shard, uint64_t number)
{
    return number % shard->num_workers == shard->index;
}

enum muster_rc muster_shard_check_elements(const struct muster_shard *shard, uint64_t element_count,
                                           struct muster_error *ret_error)
{
    if (element_count >= shard->num_workers || shard->index >= element_count)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "the input must have an element for each of %u workers, got %llu",
                            shard->num_workers, (unsigned long long)element_count);
}
