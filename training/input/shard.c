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

static enum muster_rc choose_files(const struct muster_shard *shard,
                                   const struct muster_shard_input *input,
                                   enum muster_shard_unit *ret_unit, struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (!input->has_files)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "the policy FILE needs a source of files, and this one has none; "
                                "use DATA or AUTO");
    rc = check_files(shard, input->file_count, ret_error);
    if (rc == MUSTER_OK)
        *ret_unit = MUSTER_SHARD_FILES;
    return rc;
}

enum muster_rc muster_shard_choose(const struct muster_shard *shard,
                                   const struct muster_shard_input *input,
                                   enum muster_shard_unit *ret_unit, struct muster_error *ret_error)
{
    if (shard->index >= shard->num_workers)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the index of a worker must be below their number %u, got %u",
                                shard->num_workers, shard->index);
    if (shard->num_workers == 1 || shard->policy == MUSTER_SHARD_OFF) {
        *ret_unit = MUSTER_SHARD_WHOLE;
        return MUSTER_OK;
    }
    if (shard->policy == MUSTER_SHARD_FILE ||
        (shard->policy == MUSTER_SHARD_AUTO && input->has_files))
        return choose_files(shard, input, ret_unit, ret_error);
    if (shard->policy == MUSTER_SHARD_HINT)
        *ret_unit = input->has_mark ? MUSTER_SHARD_MARK : MUSTER_SHARD_WHOLE;
    else
        *ret_unit = MUSTER_SHARD_ELEMENTS;
    return MUSTER_OK;
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
