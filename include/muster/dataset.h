/* Datasets of training: records of files, of memory or of a function of the program, in an order that a seed
 * gives, in batches, read ahead by threads of the dataset.
 *
 * Every record has a number, from 0, in the order of the sorted paths and of the bytes of each file. open finds
 * where each record is, once; then an epoch is a sequence of numbers that follows from the seed and the number of
 * the epoch alone. So a place in the data is a few integers, the position, and a job that has it goes on exactly
 * there. All functions block, and belong to the program's thread; nothing here touches a loop.
 *
 * Two calls use each record once in an epoch, even if members die: muster_dataset_next_share, and
 * muster_dataset_next_shares, with which the result does not depend on the number of members either. */
#ifndef MUSTER_DATASET_H
#define MUSTER_DATASET_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/input.h>
#include <muster/mem.h>
#include <muster/rpc.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_dataset;

enum muster_dataset_kind {
    MUSTER_DATASET_LINES, /* a record for each line of text, without its "\n" or "\r\n" */
    MUSTER_DATASET_CSV, /* a record for each row; quoted fields may hold ends of lines (RFC 4180) */
    MUSTER_DATASET_FIXED,    /* a record for each record_bytes bytes */
    MUSTER_DATASET_TFRECORD, /* TensorFlow's; the CRC32C of each record is checked when it is read */
    MUSTER_DATASET_MEMORY,   /* an array of the program */
    MUSTER_DATASET_CALLBACK, /* a function of the program */
};

/** Write record `number` to ret_bytes, at most record_bytes_max of the options. Called on a thread of the
 * dataset, several at once where it has several: the same bytes for the same number. */
typedef enum muster_rc muster_dataset_read_fn(void *data, uint64_t number, void *ret_bytes,
                                              size_t *ret_size);

/** Zero but for kind and its source: each record once in each epoch, unshuffled, epochs without end. */
struct muster_dataset_options {
    enum muster_dataset_kind kind;
    struct muster_mem *mem; /* NULL: the C library's heap */

    /* The source. Paths may be patterns of the shell ("data/part-*.tfrecord"); files are sorted by path, and one
     * that two patterns name is read once. Those that end with .gz (gzip) and .zst (Zstandard) are decompressed at
     * open, into files without names. */
    const char *const *paths;
    size_t path_count;
    const char *scratch_folder;          /* for these files; NULL: TMPDIR, else /tmp */
    uint64_t record_bytes;               /* FIXED */
    uint64_t header_bytes, footer_bytes; /* FIXED: left out of each file */
    uint32_t header_lines;               /* LINES, CSV: left out of each file */
    /* Files: records are not copied, but lie where the system maps their files until close. For files that nobody
     * writes: one that is cut short while it is mapped, or that the disk cannot read, ends the process by SIGBUS. */
    bool is_mapped;
    const struct muster_bytes *records; /* MEMORY; borrowed until close */
    muster_dataset_read_fn *read;       /* CALLBACK */
    void *data;                         /* for read */
    size_t record_bytes_max;            /* CALLBACK */
    uint64_t record_count;              /* MEMORY, CALLBACK */

    /* The order. */
    bool is_shuffled; /* anew in each epoch, over all records instead of a buffer of them */
    uint64_t seed;
    uint64_t epoch_count; /* 0: without end */

    /* Batches. The last one of an epoch may be smaller. */
    uint32_t batch;            /* records; 0: 1. What it counts: next, next_share */
    bool is_remainder_dropped; /* next leaves a smaller last batch out */

    /* The part that next reads here; zero workers: all. Replicas: see next. */
    struct muster_shard shard;
    bool has_mark;                /* HINT: elements are divided before they are shuffled */
    uint32_t replicas_per_worker; /* 0: batches are not cut */

    /* Read ahead: bytes of records that wait, or are being read, beside the batch that the program has. */
    uint64_t prefetch_bytes_max; /* 0: 4 MiB */
    uint32_t thread_count;       /* 0: 1 */
    bool is_prefetch_off;        /* no threads: records are read in next */
};

/** Some records, in the order in which the epoch has them. The dataset's until the next call of next or
 * next_share, or close. */
struct muster_dataset_batch {
    const struct muster_bytes *records;
    const uint64_t *numbers;
    size_t count;
    uint64_t epoch; /* from 0 */
};

/**
 * Find the files and where their records are: reads text whole, and TFRecord from head to head.
 *
 * Owns:    gives. Borrows options during the call, and what they say until close.
 * Errors:  the text names the file, the byte and what to do. NOT_FOUND (a pattern without a file; FILE without
 *          files), INVALID_ARGUMENT (options; sharding, as muster_shard_choose and
 *          muster_shard_check_elements), DATA_LOSS (a file is cut off or damaged), RESOURCE_EXHAUSTED, others
 *          of the system.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_dataset_open(
    const struct muster_dataset_options *options, struct muster_dataset **ret_dataset,
    struct muster_error *ret_error);
/** Waits for the threads' reads. NULL is accepted. */
MUSTER_API void muster_dataset_close(struct muster_dataset *dataset);

/** Records of an epoch, of all workers together (with FILE: of this worker's files). */
MUSTER_API uint64_t muster_dataset_record_count(const struct muster_dataset *dataset);

/**
 * Take the next batch of this worker's part. Batches end at the end of an epoch.
 *
 * Without replicas_per_worker: `batch` records of its part. With it `batch` is global, and each call gives the
 * records of one replica, the worker's first replica first: by muster_batch_split_size where the worker has a
 * stream of its own (OFF, FILE, HINT), else (DATA) piece worker + num_workers * replica of each global batch by
 * muster_batch_cut. A count of 0 is a replica without records in the last global batch of an epoch.
 *
 * Errors:  OUT_OF_RANGE (after the last epoch), DATA_LOSS (a record is damaged or its file has changed; the
 *          text names file and byte), FAILED_PRECONDITION (the position is another dataset's), what
 *          options->read returns, RESOURCE_EXHAUSTED, others of the system. The position is as before.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_dataset_next(
    struct muster_dataset *dataset, struct muster_dataset_batch *ret_batch,
    struct muster_error *ret_error);

/**
 * Cut a record of CSV into its fields, without the quotes around them; "" within quotes is one quote.
 *
 * Owns:    fields point into row or text, which has room for row->size bytes.
 * Units:   delimiter is ',' mostly; not a quote.
 * Errors:  INVALID_ARGUMENT (more fields than fields_max; a quote within a field that does not begin with one, or
 *          something after the closing one): the text names the column, from 1.
 * Source:  RFC 4180 2.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_dataset_row_parse(
    const struct muster_bytes *row, char delimiter, char *text, struct muster_bytes *ret_fields,
    size_t fields_max, size_t *ret_count, struct muster_error *ret_error);

/** The place in the data, as a tensor of fixed size (U64, 8 + batch values): saved and restored as any other
 * one. It may be written while no call is under way; the next call goes on from there. Borrowed until close. */
MUSTER_API struct muster_tensor muster_dataset_position(struct muster_dataset *dataset);
/** The epoch of the last batch that was given, from 0. */
MUSTER_API uint64_t muster_dataset_epoch(const struct muster_dataset *dataset);
/** Whether the position is behind the last epoch, for steps that members share: next_share and next_shares would end
 * with OUT_OF_RANGE. false for the position of another dataset, which they refuse. */
MUSTER_API bool muster_dataset_is_over(const struct muster_dataset *dataset);

/* Each record of an epoch once, by members that die, come back and join.
 *
 * All members have the same position: it is a tensor that is registered with the strategy. The step's records are
 * the next `batch` ones that are not used yet, and each member takes the part of its rank. The position moves by
 * what the members say that they have used, in the same operation that sums their gradients: the claims, a few
 * numbers after the gradient, come out with exactly those records whose gradients are in the sum. What nobody
 * claims, because its member died and the sum was made without it (RETRY), stays in the position as not used, and
 * comes first in the next step.
 *
 *     struct { float gradient[N]; float claims[MUSTER_DATASET_CLAIMS(BATCH)]; } *sum;
 *
 *     muster_strategy_register(strategy, "position", &position);   position = muster_dataset_position(dataset)
 *     for (;;) {
 *         muster_strategy_begin(…);
 *         muster_dataset_next_share(dataset, rank, size, &batch, &error);
 *         … gradient of the batch …
 *         muster_dataset_record_claims(dataset, sum->claims);
 *         if (muster_strategy_all_reduce(…, MUSTER_SUM) == MUSTER_ABORTED)
 *             continue;
 *         muster_strategy_update_begin(…);   so that close saves the last step, though another one has begun
 *         if (muster_dataset_apply_claims(dataset, sum->claims, &used, &error) == MUSTER_OK)
 *             … update with gradient / used …
 *         muster_strategy_commit(…);
 *     }
 *
 * Two members may begin a step under different views, and their parts overlap then. The claims show that, to all
 * members alike: apply_claims returns ABORTED, the step changes nothing, and its records come again. */

/** Values of type F32 that claims take, after a gradient of type F32 in one tensor. */
#define MUSTER_DATASET_CLAIMS(batch) (1u + ((batch) + 15u) / 16u)

/**
 * Take the part of member `rank` of `size` of the next step: of `batch` records of all members together, fewer at
 * the end of an epoch. The position does not move: after ABORTED call it again, with the rank and the size that
 * begin has given.
 *
 * Errors:  as next; INVALID_ARGUMENT (a rank beyond the size; or the options divide the data themselves: shard,
 *          replicas_per_worker, is_remainder_dropped).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_dataset_next_share(
    struct muster_dataset *dataset, uint32_t rank, uint32_t size,
    struct muster_dataset_batch *ret_batch, struct muster_error *ret_error);
/** Write the claims of the batch that next_share gave: MUSTER_DATASET_CLAIMS(batch) values. */
MUSTER_API void muster_dataset_record_claims(const struct muster_dataset *dataset,
                                             float *ret_claims);
/**
 * Move the position by the summed claims of a step.
 *
 * Units:   *ret_used: the records whose gradients are in the sum.
 * Errors:  ABORTED (two members have used one record; on all members alike), INVALID_ARGUMENT (claims that no sum
 *          of record_claims gives). The position is as before.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_dataset_apply_claims(
    struct muster_dataset *dataset, const float *claims, uint64_t *ret_used,
    struct muster_error *ret_error);

/* The same records in the same parts, whatever the number of members: a step is divided into a fixed number of shares,
 * and each member takes several consecutive ones (muster/micro_batches.h says which). Either all records of a step are
 * used or none, so members do not claim records: the position moves by whole steps. */

/** Shares `first` … `first + count - 1` of a step that has `total` shares. */
struct muster_dataset_shares {
    uint32_t first, count, total;
};

/**
 * Take these shares of the next step. All shares of a step together have `batch` records, and fewer at the end of an
 * epoch. The records of a share follow from the position, its number and the total; sizes differ by at most one. The
 * position does not move: after ABORTED call it again, with the shares that this member has by then.
 *
 * Errors:  as muster_dataset_next_share; INVALID_ARGUMENT (shares beyond the total).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_dataset_next_shares(
    struct muster_dataset *dataset, const struct muster_dataset_shares *shares,
    struct muster_error *ret_error);
/** The records of one of these shares, until the next call of next_shares, or close. INVALID_ARGUMENT: it is not
 * one of them. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_dataset_share(
    const struct muster_dataset *dataset, uint32_t share, struct muster_dataset_batch *ret_batch,
    struct muster_error *ret_error);
/**
 * Move the position after the step, whose records the members have all used. Call it between the sum and commit.
 *
 * Errors:  FAILED_PRECONDITION (the position is another dataset's), OUT_OF_RANGE (after the last epoch). The
 *          position is as before.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_dataset_complete_step(
    struct muster_dataset *dataset, struct muster_error *ret_error);

MUSTER_END

#endif
