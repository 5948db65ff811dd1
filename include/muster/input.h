/* Dividing the input of a training job: which worker reads which files or elements, and into which batches a
 * global batch is cut. Pure; the programs read. */
#ifndef MUSTER_INPUT_H
#define MUSTER_INPUT_H

#include <muster/base.h>
#include <muster/status.h>

MUSTER_BEGIN

/* Sharding: each worker reads its part. */

/** Source: tf.data.experimental.AutoShardPolicy. */
enum muster_shard_policy {
    MUSTER_SHARD_AUTO, /* FILE where the source has files, else DATA */
    MUSTER_SHARD_FILE, /* whole files; the source must have them */
    MUSTER_SHARD_DATA, /* elements; everybody reads everything */
    MUSTER_SHARD_HINT, /* where the program has put a mark; without one nothing is divided */
    MUSTER_SHARD_OFF,  /* everybody has everything */
};

/** The parts that are counted out to the workers in turn. */
enum muster_shard_unit {
    MUSTER_SHARD_WHOLE,    /* none: each worker has the whole input */
    MUSTER_SHARD_FILES,    /* of the source */
    MUSTER_SHARD_ELEMENTS, /* at the end of the pipeline, before its last prefetch */
    MUSTER_SHARD_MARK,     /* elements, at the program's mark */
};

struct muster_shard {
    enum muster_shard_policy policy;
    uint32_t num_workers;
    uint32_t index; /* of this worker */
};

/** The input that is divided. */
struct muster_shard_input {
    bool has_files;
    uint64_t file_count; /* with has_files */
    bool has_mark;       /* the program says where, for HINT */
};

/**
 * Choose the unit that a policy divides. Elements and marks are divided among one worker, too, so that it cuts its
 * batches as several do; files are not, so that FILE then takes a source without files.
 *
 * Errors:  INVALID_ARGUMENT (no workers, an index beyond them, or fewer files than workers: TensorFlow lets
 *          some workers fail there and gives others nothing), NOT_FOUND (FILE, and the source has no files),
 *          FAILED_PRECONDITION (a mark, and another policy than HINT).
 * Source:  tensorflow/core/grappler/optimizers/data/auto_shard.cc.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_shard_choose(
    const struct muster_shard *shard, const struct muster_shard_input *input,
    enum muster_shard_unit *ret_unit, struct muster_error *ret_error);
/** Whether file or element `number`, from 0, is this worker's. */
MUSTER_API bool muster_shard_has(const struct muster_shard *shard, uint64_t number);
/** At the end of elements that are divided: INVALID_ARGUMENT for a worker that has one when others have
 * none, as TensorFlow says it. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_shard_check_elements(
    const struct muster_shard *shard, uint64_t element_count, struct muster_error *ret_error);

/* Batches. */

/** A global batch for all replicas of all workers. */
struct muster_batch_split {
    uint64_t global_batch;
    uint32_t num_workers;
    uint32_t replicas_per_worker;
    uint32_t worker; /* index */
};
/** INVALID_ARGUMENT: no workers or replicas, an index beyond them, an empty batch. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_batch_split_check(
    const struct muster_batch_split *split, struct muster_error *ret_error);
/** The size of this worker's i-th batch, from 0: sizes differ by at most one, and the larger ones are shifted
 * by a worker's replicas from worker to worker, so that the batches of a step are one global batch. They
 * repeat after num_workers * replicas_per_worker. Where the policy leaves each worker its own stream
 * (OFF, FILE). Source: tf.distribute's batch_sizes_for_worker. */
MUSTER_API uint64_t muster_batch_split_size(const struct muster_batch_split *split, uint64_t i);

/** A batch of `size` elements in `count` pieces: equal ones of the rounded-up size, then the rest, then empty
 * ones. Piece i is elements *ret_first … *ret_first + *ret_size - 1. Under DATA worker w has pieces w,
 * w + num_workers, … of each global batch, so TensorFlow's cut is not the split above. */
MUSTER_API void muster_batch_cut(uint64_t size, uint32_t count, uint32_t i, uint64_t *ret_first,
                                 uint64_t *ret_size);

/** Batches cut anew, whatever their size, to sizes that are used in turn. Caller's memory. */
struct muster_rebatch {
    /* private */
    const int64_t *sizes;
    size_t count, next;
};
/** Borrows sizes; 0 gives an empty batch. INVALID_ARGUMENT: a negative size, none, or all 0. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rebatch_init(struct muster_rebatch *rebatch,
                                                                const int64_t *sizes, size_t count,
                                                                struct muster_error *ret_error);
/** The size of the next batch, if so many elements are left. Where the elements end with a full batch, batches of
 * size 0 still follow, up to the next that would hold an element. Source: tf.data's rebatch. */
MUSTER_API uint64_t muster_rebatch_next(struct muster_rebatch *rebatch);

/* The stages of a pipeline, as far as batches are concerned. */

enum muster_input_stage_kind {
    MUSTER_INPUT_BATCH,   /* size counts */
    MUSTER_INPUT_UNBATCH, /* elements again */
    MUSTER_INPUT_MAP,     /* a function of the program: what comes out is not known */
    MUSTER_INPUT_KEEP,    /* take, skip, repeat, shuffle, prefetch: the elements stay as they are */
};
struct muster_input_stage {
    enum muster_input_stage_kind kind;
    uint64_t size;
};
/** The batch size after the last stage, -1: not known. INVALID_ARGUMENT: the elements are not batched.
 * Source: tf.data's compute_batch_size, with its errors. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_input_batch_size(
    const struct muster_input_stage *stages, size_t count, int64_t *ret_size,
    struct muster_error *ret_error);

MUSTER_END

#endif
