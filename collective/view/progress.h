/* The progress vector: what a member knows of every open operation when it freezes. A value. */
#ifndef MUSTER_COLLECTIVE_PROGRESS_H
#define MUSTER_COLLECTIVE_PROGRESS_H

#include <muster/collective.h>

/* An operation's lane has the color of those who take part above its number, plus one; 0: of all.
 */
#define MUSTER_LANE_COLOR     256u
#define MUSTER_LANE_INDEX(id) ((id) % MUSTER_LANE_COLOR)

enum muster_op_phase {
    MUSTER_PHASE_REDUCE,    /* partial sums travel; no destination byte has changed */
    MUSTER_PHASE_GATHER,    /* final chunks travel */
    MUSTER_PHASE_COMPLETE,  /* this member has the whole result */
    MUSTER_PHASE_DELIVERED, /* complete, and its callback has run (small operations, inputs
                               retained) */
};

/** One operation that was issued here and is not known to be complete everywhere. */
struct muster_progress_op {
    struct muster_op_id id;
    uint64_t descriptor;
    enum muster_op_kind kind;
    enum muster_op_phase phase;
    bool has_inputs;                /* the original input can still be restored */
    bool is_abort_proposed;         /* deadline or cancel */
    struct muster_incarnation root; /* broadcast; else zero */
    uint32_t participant_count;
    uint32_t chunk_count;
    uint8_t *chunks_final; /* bitmap, bit c = chunk c is final here; (chunk_count + 7) / 8 bytes */
};

/** Owned by its maker; muster_progress_fini frees ops and bitmaps. */
struct muster_progress {
    struct muster_mem *mem;
    uint64_t epoch;
    uint64_t begun_step;
    uint64_t committed_step;
    bool lacks_state; /* a joiner that has not caught up, or one that has failed */
    /* per lane 0 … lane_count - 1: all operations <= issued are issued here; all <= stable are
     * known to be complete on every member of the epoch (lane.step/sequence; a zero id with has_*
     * false means none) */
    uint32_t lane_count;
    struct muster_progress_lane {
        uint32_t lane; /* with the color of this member where the lane is split */
        bool has_issued, has_stable;
        struct muster_op_id issued_through;
        struct muster_op_id stable_through;
    } * lanes;
    uint32_t op_count;
    struct muster_progress_op *ops; /* open operations, by op id */
};

/** The lane of an operation; NULL when it is split there and the member has another color, or has
 * used none so high. */
const struct muster_progress_lane *muster_progress_lane_of(const struct muster_progress *progress,
                                                           const struct muster_op_id *id);
/** The member takes no part in it: it has another color. */
bool muster_progress_is_apart(const struct muster_progress *progress,
                              const struct muster_op_id *id);

void muster_progress_fini(struct muster_progress *progress);

#endif
