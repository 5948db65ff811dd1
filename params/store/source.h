/* Sources: who pushes, and what of it is applied. */
#ifndef MUSTER_PARAMS_SOURCE_H
#define MUSTER_PARAMS_SOURCE_H

#include "params/store/region.h"

#define MUSTER_PARAMS_SEQUENCE_MAX (UINT64_MAX >> 17)

/** The source of this slot, or NULL. One without a generation is free. */
struct muster_params_source *muster_params_source_at(const struct muster_params_region *region,
                                                     uint64_t slot);
/** NULL: the source has no slot. */
struct muster_params_source *muster_params_source_find(const struct muster_params_region *region,
                                                       const struct muster_incarnation *id,
                                                       uint64_t *ret_slot);
/** Which process names a source, and how. */
struct muster_params_opener {
    struct muster_incarnation id; /* of the source */
    uint64_t generation;          /* that the process has got; 0: none yet */
    uint64_t process;             /* a number that no other process has; 0: not known */
    uint32_t link;                /* the process counts its links */
    bool is_named;                /* the source is kept when its processes are gone */
    bool home_is_elsewhere;       /* another server gives generations: those that this one gave are void, unless
                                   * they are confirmed */
};

/**
 * A process opens the source: a slot for a new one; a higher generation, so that an older process
 * of the same source is refused from now on. The process that has it keeps its generation: what still
 * arrives over its older links is refused.
 *
 * Errors: RESOURCE_EXHAUSTED, UNAVAILABLE (the process has named it over a younger link).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_source_open(
    struct muster_params_region *region, const struct muster_params_opener *opener,
    uint64_t *ret_slot);
/**
 * The process that got this generation opens the source again, over a further link: what still
 * arrives over its older links is refused from now on.
 *
 * Errors: FAILED_PRECONDITION (there is no such source: its memory is lost, or it was forgotten), ABORTED
 * (a younger process has opened it), UNAVAILABLE (as muster_params_source_open).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_source_reopen(
    struct muster_params_region *region, const struct muster_params_opener *opener,
    uint64_t *ret_slot);
/**
 * The source as another server knows it: a slot for a new one, and this generation, which the process has got.
 *
 * Errors: RESOURCE_EXHAUSTED, ABORTED (a younger process has opened it), FAILED_PRECONDITION
 * (it was forgotten here), UNAVAILABLE (as muster_params_source_open).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_source_adopt(
    struct muster_params_region *region, const struct muster_params_opener *opener,
    uint64_t *ret_slot);
/**
 * The source as its primary knows it: as muster_params_source_adopt, but links that have opened it here
 * in this generation, or a later one that is not void, or for the same process, go on.
 *
 * Errors: RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_source_learn(
    struct muster_params_region *region, const struct muster_params_opener *opener,
    uint64_t *ret_slot);
/** A process has this generation of the source. */
void muster_params_source_confirm(struct muster_params_region *region, uint64_t slot,
                                  uint64_t generation);
/** Drop its positions of shards that have a bit; its process may not go on. */
void muster_params_source_forget(struct muster_params_region *region, uint64_t slot,
                                 const uint8_t *shards);
/** The slot is for another source: nobody names this one by it any more. */
void muster_params_source_free(struct muster_params_region *region, uint64_t slot);
/** How many there are. */
uint32_t muster_params_source_live(const struct muster_params_region *region);
/** The process has opened the source before. */
bool muster_params_source_is_of(const struct muster_params_region *region,
                                const struct muster_params_opener *opener);
/** The digest of all positions of a shard that are not 0, whatever the slots of their sources, and of its removals. */
uint64_t muster_params_positions_digest(const struct muster_params_region *region, uint32_t shard);
/** The same of all shards, in one passage over the sources. */
void muster_params_positions_digests(const struct muster_params_region *region,
                                     uint64_t *ret_digests);
/** The first sequence number that no process of the source has used for a row that counts. */
uint64_t muster_params_source_sequence(const struct muster_params_region *region,
                                       const struct muster_params_source *source);
void muster_params_sources_complete(struct muster_params_region *region,
                                    const struct muster_params_intent *intent);
void muster_params_source_complete(struct muster_params_region *region,
                                   const struct muster_params_intent *intent);
void muster_params_source_free_complete(struct muster_params_region *region,
                                        const struct muster_params_intent *intent);

#endif
