/* The hashes of a state's chunks, as far as they are known: kept while the bytes stay, forgotten when these may
 * change. */
#ifndef MUSTER_CLUSTER_STATE_HASHES_H
#define MUSTER_CLUSTER_STATE_HASHES_H

#include <muster/collective.h>
#include <muster/hash.h>

struct muster_state_chunks;

/** Made with the chunks (state_manifest.h). */
struct muster_state_hashes {
    uint8_t (*at)[MUSTER_HASH128_BYTES]; /* per chunk; zeros: not known */
    uint8_t *marks;                      /* per chunk */
    uint32_t known_count, changing_count;
    uint32_t cursor;   /* where the search for one that is not known goes on */
    bool has_parts;    /* the step under way: the program has named what it changes … */
    bool has_others;   /* … and then said that it changes more */
    bool is_by_parts;  /* of the last commit: only parts that were named have changed */
    bool is_unchanged; /* the next commit is of these very bytes */
};

bool muster_state_hashes_is_known(const struct muster_state_chunks *chunks, uint32_t chunk);
/** The hash of chunk, which is not changing: found in memory, or computed. Borrowed until it is forgotten. Zeros, and
 * still not known, when the chunk's memory has failed. */
const uint8_t *muster_state_hashes_get(struct muster_state_chunks *chunks, uint32_t chunk);
/** The bytes of chunk, which is not changing, have this hash. */
void muster_state_hashes_set(struct muster_state_chunks *chunks, uint32_t chunk,
                             const uint8_t hash[MUSTER_HASH128_BYTES]);
/** The bytes of chunk may be others from now on. */
void muster_state_hashes_forget(struct muster_state_chunks *chunks, uint32_t chunk);
void muster_state_hashes_forget_all(struct muster_state_chunks *chunks);

/** Compute up to count hashes that are not known, of chunks that are not changing. */
void muster_state_hashes_compute(struct muster_state_chunks *chunks, uint32_t count);
/** Some of the chunks: every count-th from `index` on. */
struct muster_state_part {
    uint32_t index, count; /* count 0 or 1: all */
    uint32_t seen;         /* of them, by compute_part; 0 before the first */
    bool has_failed;       /* the memory of the next one cannot be read */
};
/** Compute up to *budget hashes of part that are not known, of chunks that are not changing, and lessen *budget by as
 * many. True: the whole part has been seen. False: go on with it later, unless it has failed. */
bool muster_state_hashes_compute_part(struct muster_state_chunks *chunks,
                                      struct muster_state_part *part, uint32_t *budget);
/** All are known. */
bool muster_state_hashes_is_whole(const struct muster_state_chunks *chunks);
/** All are known but those of chunks that are changing. */
bool muster_state_hashes_is_settled(const struct muster_state_chunks *chunks);
/** The step under way changes it. */
bool muster_state_hashes_is_changing(const struct muster_state_chunks *chunks, uint32_t chunk);

/** The program changes these parts of tensors until the next commit, and nothing that it does not name. Errors:
 * INVALID_ARGUMENT (one is not inside a registered tensor; nothing is noted). */
MUSTER_MUST_CHECK enum muster_rc muster_state_hashes_change(struct muster_state_chunks *chunks,
                                                            const struct muster_tensor *parts,
                                                            size_t count);
/** The program may change anything until the next commit. */
void muster_state_hashes_change_all(struct muster_state_chunks *chunks);
/** The next commit only names the bytes that are there. */
void muster_state_hashes_keep(struct muster_state_chunks *chunks);
/** A step is over: unless all that has changed was named, nothing is known any more. */
void muster_state_hashes_commit(struct muster_state_chunks *chunks);

#endif
