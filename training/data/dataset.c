/* Datasets: options, files and the order of an epoch, from open to close. */
#include <muster/dataset.h>

#include <inttypes.h>

#include "training/data/dataset_internal.h"

#define BATCH_MAX               (1u << 20)
#define THREADS_MAX             16u
#define REPLICAS_MAX            65536u
#define PREFETCH_BYTES_FALLBACK (4u << 20)

static bool has_files(enum muster_dataset_kind kind)
{
    return kind != MUSTER_DATASET_MEMORY && kind != MUSTER_DATASET_CALLBACK;
}

/* --- Options --- */

static enum muster_rc source_check(const struct muster_dataset_options *options,
                                   struct muster_error *ret_error)
{
    const char *text = NULL;

    if ((unsigned)options->kind > MUSTER_DATASET_CALLBACK)
        text = "kind must be one of enum muster_dataset_kind";
    else if (has_files(options->kind) && options->path_count == 0)
        text = "a dataset of files must have paths, got none";
    else if (options->kind == MUSTER_DATASET_FIXED &&
             (options->record_bytes == 0 || options->record_bytes > UINT32_MAX))
        text = "record_bytes must be above 0 and below 4 GiB";
    else if (options->kind == MUSTER_DATASET_CALLBACK &&
             (options->read == NULL || options->record_bytes_max == 0))
        text = "a dataset of a function must have read and record_bytes_max";
    else if (!has_files(options->kind) && options->record_count == 0)
        text = "record_count must be above 0";
    else if (options->kind == MUSTER_DATASET_MEMORY && options->records == NULL)
        text = "a dataset of memory must have records";
    if (text != NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s", text);
    return MUSTER_OK;
}

static enum muster_rc options_check(const struct muster_dataset_options *options,
                                    struct muster_error *ret_error)
{
    const struct {
        const char *name;
        uint64_t value, max;
    } rows[] = {
        {"batch", options->batch, BATCH_MAX},
        {"thread_count", options->thread_count, THREADS_MAX},
        {"replicas_per_worker", options->replicas_per_worker, REPLICAS_MAX},
        {"shard.num_workers", options->shard.num_workers, REPLICAS_MAX},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].value > rows[i].max)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "%s must be at most %" PRIu64 ", got %" PRIu64, rows[i].name,
                                    rows[i].max, rows[i].value);
    return source_check(options, ret_error);
}

/* --- Open and close --- */

static struct muster_shard shard_of(const struct muster_dataset_options *options)
{
    if (options->shard.num_workers == 0)
        return (struct muster_shard){.policy = MUSTER_SHARD_OFF, .num_workers = 1};
    return options->shard;
}

/* The files, and what is divided. */
static enum muster_rc files_open(struct muster_dataset *dataset, struct muster_error *ret_error)
{
    const struct muster_dataset_options *options = &dataset->source.options;
    struct muster_data_division *division = &dataset->division;
    struct muster_data_index *index = &dataset->source.index;
    struct muster_shard_input input = {.has_files = has_files(options->kind),
                                       .has_mark = options->has_mark};
    enum muster_rc rc = MUSTER_OK;

    if (input.has_files)
        rc = muster_data_index_find_files(index, options->paths, options->path_count, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    input.file_count = index->file_count;
    rc = muster_shard_choose(&division->shard, &input, &division->unit, ret_error);
    if (rc != MUSTER_OK || !input.has_files)
        return rc;
    if (division->unit == MUSTER_SHARD_FILES)
        muster_data_index_keep_files(index, &division->shard);
    return muster_data_index_scan(index, options, ret_error);
}

/* Fewer elements than workers are refused as muster_shard_check_elements says it. */
static enum muster_rc records_check(const struct muster_dataset *dataset,
                                    struct muster_error *ret_error)
{
    const struct muster_data_division *division = &dataset->division;
    uint64_t count = division->record_count;
    /* A global batch that is cut has pieces for all, empty ones too. */
    bool is_of_elements =
        (division->unit == MUSTER_SHARD_ELEMENTS && division->replicas_per_worker == 0) ||
        division->unit == MUSTER_SHARD_MARK;

    if (count == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the files have no records; check the paths and the kind");
    if (is_of_elements && count < division->shard.num_workers)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "there must be a record for each of %" PRIu32
                                " workers, got %" PRIu64 "; use fewer workers, or the policy OFF",
                                division->shard.num_workers, count);
    if (division->is_remainder_dropped && muster_data_division_count(division) < division->batch)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "with is_remainder_dropped an epoch must have a batch of %" PRIu32
                                " records, got %" PRIu64 "; use a smaller batch",
                                division->batch, muster_data_division_count(division));
    return MUSTER_OK;
}

static enum muster_rc records_open(struct muster_dataset *dataset, struct muster_error *ret_error)
{
    const struct muster_dataset_options *options = &dataset->source.options;
    struct muster_data_index *index = &dataset->source.index;
    uint64_t *position;
    enum muster_rc rc = files_open(dataset, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    dataset->division.record_count =
        has_files(options->kind) ? index->entry_count : options->record_count;
    dataset->hash = has_files(options->kind) ? muster_data_index_hash(index) : 0;
    rc = records_check(dataset, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    position = muster_mem_alloc_zero(dataset->mem, MUSTER_DATA_WORDS + dataset->division.batch,
                                     sizeof(*position));
    if (position == NULL ||
        muster_data_queue_open(&dataset->source, dataset->division.batch,
                               options->is_prefetch_off ? 0 : options->thread_count,
                               options->is_prefetch_off ? 0 : options->prefetch_bytes_max,
                               &dataset->queue) != MUSTER_OK) {
        muster_mem_free(dataset->mem, position);
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "out of memory for batches of %" PRIu32 " records",
                                dataset->division.batch);
    }
    position[MUSTER_DATA_VERSION] = MUSTER_DATA_POSITION_VERSION;
    position[MUSTER_DATA_HASH] = dataset->hash;
    position[MUSTER_DATA_RECORDS] = dataset->division.record_count;
    dataset->position = position;
    return MUSTER_OK;
}

static struct muster_dataset *dataset_new(const struct muster_dataset_options *options)
{
    struct muster_mem *mem = options->mem != NULL ? options->mem : muster_mem_system();
    struct muster_dataset *dataset = muster_mem_alloc_zero(mem, 1, sizeof(*dataset));

    if (dataset == NULL)
        return NULL;
    dataset->mem = mem;
    dataset->source =
        (struct muster_data_source){.mem = mem, .options = *options, .index = {.mem = mem}};
    if (options->thread_count == 0)
        dataset->source.options.thread_count = 1;
    if (options->prefetch_bytes_max == 0)
        dataset->source.options.prefetch_bytes_max = PREFETCH_BYTES_FALLBACK;
    dataset->division = (struct muster_data_division){
        .is_shuffled = options->is_shuffled,
        .is_remainder_dropped = options->is_remainder_dropped,
        .seed = options->seed,
        .epoch_count = options->epoch_count,
        .batch = options->batch != 0 ? options->batch : 1,
        .replicas_per_worker = options->replicas_per_worker,
        .shard = shard_of(options),
    };
    return dataset;
}

enum muster_rc muster_dataset_open(const struct muster_dataset_options *options,
                                   struct muster_dataset **ret_dataset,
                                   struct muster_error *ret_error)
{
    struct muster_dataset *dataset;
    enum muster_rc rc = options_check(options, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    dataset = dataset_new(options);
    if (dataset == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    rc = records_open(dataset, ret_error);
    if (rc != MUSTER_OK) {
        muster_dataset_close(dataset);
        return rc;
    }
    *ret_dataset = dataset;
    return MUSTER_OK;
}

void muster_dataset_close(struct muster_dataset *dataset)
{
    if (dataset == NULL)
        return;
    muster_data_queue_close(dataset->queue);
    muster_data_index_fini(&dataset->source.index);
    muster_mem_free(dataset->mem, dataset->position);
    muster_mem_free(dataset->mem, dataset);
}

uint64_t muster_dataset_record_count(const struct muster_dataset *dataset)
{
    return dataset->division.record_count;
}

struct muster_tensor muster_dataset_position(struct muster_dataset *dataset)
{
    return (struct muster_tensor){.data = dataset->position,
                                  .count = MUSTER_DATA_WORDS + dataset->division.batch,
                                  .dtype = MUSTER_U64};
}

uint64_t muster_dataset_epoch(const struct muster_dataset *dataset)
{
    return dataset->position[MUSTER_DATA_EPOCH];
}
