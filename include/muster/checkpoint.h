/* Checkpoints in a folder: the state of a training job after a step, in files of its members (shards) and a manifest.
 *
 * A checkpoint is whole when its manifest is there, which is written last, and every chunk has the hash that was
 * written with it. Without a manifest it is half-written: its members died, or still write. How to make and restore
 * them: strategy_checkpoint.h. The format: docs/checkpoints.md. All functions here block. */
#ifndef MUSTER_CHECKPOINT_H
#define MUSTER_CHECKPOINT_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/hash.h>
#include <muster/incarnation.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

/** The format that this library writes, and the only one so far. */
#define MUSTER_CHECKPOINT_VERSION     1u
#define MUSTER_CHECKPOINT_CHUNK_BYTES (1u << 20)
#define MUSTER_CHECKPOINT_SHARDS_MAX  65536u

/** Names a checkpoint in its folder. Jobs that begin again may save the same step again, under another id. */
struct muster_checkpoint_name {
    uint64_t step;
    uint64_t id;
};
#define MUSTER_CHECKPOINT_NAME_BYTES 64
/** "checkpoint-000000001200-0123456789abcdef": what the names of its files begin with. Returns ret_text. */
MUSTER_API const char *muster_checkpoint_name_format(const struct muster_checkpoint_name *name,
                                                     char ret_text[MUSTER_CHECKPOINT_NAME_BYTES]);

/** A checkpoint that a folder has files of. */
struct muster_checkpoint_entry {
    struct muster_checkpoint_name name;
    bool has_manifest; /* false: half-written */
    uint32_t file_count;
    uint32_t shard_count; /* files of shards */
    uint32_t shard_total; /* how many there should be, by their names; 0: none is there */
    uint64_t bytes; /* size of its files */
};

/** Whether its manifest and all of its shards are there, by their names: they may still be damaged. */
static inline bool muster_checkpoint_entry_is_complete(const struct muster_checkpoint_entry *entry)
{
    return entry->has_manifest && entry->shard_total > 0 &&
           entry->shard_count == entry->shard_total;
}

/** Look at the names in a folder. Gives *ret_entries (muster_mem_free), the highest step first. Errors: NOT_FOUND (no
 * such folder), INVALID_ARGUMENT (a file is in its place), RESOURCE_EXHAUSTED, others of the system; the text names the
 * folder. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_list(
    struct muster_mem *mem, const char *folder, struct muster_checkpoint_entry **ret_entries,
    size_t *ret_count, struct muster_error *ret_error);
/** Whether a job that runs has the folder: it writes the half-written checkpoints there, or deletes them later.
 * *ret_job: its name. False, too, where the file system has no locks (flock). */
MUSTER_API bool muster_checkpoint_is_in_use(const char *folder,
                                            char ret_job[MUSTER_JOB_NAME_BYTES]);

/** A tensor of the state. The state is their values one after another, as registered. */
struct muster_checkpoint_tensor {
    const char *name;
    enum muster_dtype dtype;
    uint64_t count;
    uint64_t offset; /* place of its first byte in the state */
};

/** The file of one member: a part of the state. */
struct muster_checkpoint_shard {
    uint64_t offset, bytes;
    uint8_t hash[MUSTER_HASH128_BYTES]; /* hash over its head and its chunks' hashes */
};

/** A manifest, read. */
struct muster_checkpoint {
    struct muster_checkpoint_name name;
    uint64_t saved_wall_ns; /* since 1970, for people */
    uint64_t state_bytes;
    uint32_t tensor_count, shard_count;
    struct muster_checkpoint_tensor *tensors;
    struct muster_checkpoint_shard *shards;
    /* --- Private --- */
    struct muster_mem *mem;
    char *names, *folder;
};

/** Read the manifest; no shard is looked at. Gives (muster_checkpoint_close). Errors: NOT_FOUND (half-written, or not
 * there), DATA_LOSS (not what was written), FAILED_PRECONDITION (another version), RESOURCE_EXHAUSTED, others of the
 * system; the text names the file. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_open(
    struct muster_mem *mem, const char *folder, const struct muster_checkpoint_name *name,
    struct muster_checkpoint **ret_checkpoint, struct muster_error *ret_error);
/** NULL is accepted. */
MUSTER_API void muster_checkpoint_close(struct muster_checkpoint *checkpoint);

/** So many bytes of the state from `offset` on, checked. An error ends the walk. */
typedef enum muster_rc muster_checkpoint_visit_fn(void *data, uint64_t offset, const void *bytes,
                                                  size_t count);
/**
 * Read a part of the state, in order, chunk by chunk, each checked before it is visited; visit NULL: check only.
 *
 * Errors: DATA_LOSS (a shard is missing, cut short or damaged: the text says where), FAILED_PRECONDITION (another
 *         version), OUT_OF_RANGE (the state is shorter), RESOURCE_EXHAUSTED, others of the system and of visit.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_read(
    const struct muster_checkpoint *checkpoint, uint64_t offset, uint64_t bytes,
    muster_checkpoint_visit_fn *visit, void *data, struct muster_error *ret_error);
/** Check all chunks of all shards. Errors as above. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_verify(
    const struct muster_checkpoint *checkpoint, struct muster_error *ret_error);

/** Write the tensors to a safetensors file, each with one dimension, and the step to its metadata. The file replaces
 * the one of its path when it is whole. Errors: as muster_checkpoint_read; INVALID_ARGUMENT (a tensor's name cannot
 * stand in such a file). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_export(
    const struct muster_checkpoint *checkpoint, const char *path, struct muster_error *ret_error);

struct muster_checkpoint_import_options {
    const char *path;       /* the safetensors file */
    const char *folder;     /* made if it is missing and its parent is there */
    uint64_t step;          /* 0: the step in the file's metadata, which an exported file has */
    uint64_t saved_wall_ns; /* time since 1970, for people */
};
/**
 * Make a checkpoint of a safetensors file: a job that restores the folder begins with the step after it, and with its
 * values. A tensor keeps the order of its elements, but not its shape: tensors have one dimension. In the checkpoint
 * the tensors stand in the order of their bytes in the file.
 *
 * Errors:  INVALID_ARGUMENT (not a safetensors file, tensors that overlap or lie outside of it, no step), DATA_LOSS (it
 *          is cut short), UNIMPLEMENTED (a type that muster does not have), ALREADY_EXISTS (the folder has a checkpoint
 *          of that step), RESOURCE_EXHAUSTED (also a header of more than MUSTER_JSON_BYTES_MAX), others of the system;
 *          the text names the file.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_checkpoint_import(
    struct muster_mem *mem, const struct muster_checkpoint_import_options *options,
    struct muster_checkpoint_name *ret_name, struct muster_error *ret_error);

MUSTER_END

#endif
