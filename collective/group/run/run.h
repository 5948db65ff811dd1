/* One operation of one member, and what an executor calls while it carries it out. */
#ifndef MUSTER_COLLECTIVE_RUN_H
#define MUSTER_COLLECTIVE_RUN_H

#include <muster/collective.h>
#include <muster/list.h>
#include <muster/loop.h>

#include "collective/kernel/op_call.h"
#include "collective/plan/plan.h"
#include "collective/view/progress.h"
#include "collective/wire/wire.h"

struct muster_executor_ops;
struct muster_group;
struct muster_message;
struct muster_run;

/* The limit of one lane: 4 rings or 64 direct exchanges at the same time; more wait their turn. */
#define MUSTER_LANE_COST_MAX 64u
#define MUSTER_RING_COST     16u
#define MUSTER_DIRECT_COST   1u
#define MUSTER_FLAT_COST     4u /* a lane has 16 places on the board */

enum muster_run_state {
    MUSTER_RUN_PENDING,   /* started while the group was frozen: belongs to the next epoch */
    MUSTER_RUN_QUEUED,    /* issued, waits for its turn in the lane */
    MUSTER_RUN_ACTIVE,    /* an executor works on it */
    MUSTER_RUN_COMPLETE,  /* the whole result is here */
    MUSTER_RUN_DELIVERED, /* the caller has it */
    MUSTER_RUN_ENDED,     /* ended without a result; kept until all members know (mismatch) */
};

/** Why a run does not go the ordinary way through its states. */
enum muster_run_mode {
    MUSTER_RUN_ORDINARY,
    MUSTER_RUN_ADOPTING,  /* completes by fetching; the plan is the one of the epoch before */
    MUSTER_RUN_LINGERING, /* ended here, but others still read its memory: op is not handed back */
    MUSTER_RUN_UNFIT,     /* does not fit the members of this epoch: never runs, all must agree on
                                its end */
    MUSTER_RUN_CONTRADICTED, /* the same, because the members have adopted another operation */
};

/** Result of a step of an executor. */
enum muster_run_outcome {
    MUSTER_RUN_GOES_ON,     /* nothing to do */
    MUSTER_RUN_HAS_RESULT,  /* the whole result is here, for the first time */
    MUSTER_RUN_HAD_RESULT,  /* adopted: it was here before, and all have been told again */
    MUSTER_RUN_NO_MEMORY,   /* its abort is to be proposed */
    MUSTER_RUN_DISPUTED,    /* muster_run_set_dispute was called: all end */
    MUSTER_RUN_LEFT_BEHIND, /* the others have gone on: it cannot come to a result here */
    MUSTER_RUN_UNEXPECTED,  /* receive: no plan knows that frame */
};

/** Bits of run->chunks[c]. */
enum {
    MUSTER_CHUNK_REDUCED = 1, /* its partial sum has arrived */
    MUSTER_CHUNK_FINAL = 2,   /* its final value is here */
    MUSTER_CHUNK_TOLD = 4,    /* its final value, or the news of it, has arrived */
    MUSTER_CHUNK_ASKED = 8,   /* fetched from a survivor */
};

/** Bits of run->heard[participant]. */
enum {
    MUSTER_HEARD_INPUT = 1,
    MUSTER_HEARD_COMPLETE = 2,
    MUSTER_HEARD_ISSUED = 4,    /* it has started the operation */
    MUSTER_HEARD_ANSWER = 8,    /* to QUERY */
    MUSTER_HEARD_MISMATCH = 16, /* it has ended it, for another was called */
    MUSTER_HEARD_ASKED = 32,    /* START was sent to it (steps) */
};

enum muster_receive_mode {
    MUSTER_RECEIVE_NOTHING, /* discarded */
    MUSTER_RECEIVE_EARLY,   /* for an operation that is not active here yet */
    MUSTER_RECEIVE_DATA,    /* into the run's memory */
    MUSTER_RECEIVE_NOTE,    /* no payload, or a description */
    MUSTER_RECEIVE_MESSAGE, /* between two members: message_receive.c */
};

/** The frame that is coming in from one peer. */
struct muster_receiving {
    enum muster_receive_mode mode;
    struct muster_run *run;
    struct muster_message *message; /* whose piece it is */
    uint8_t type;
    uint32_t chunk;
    uint8_t *buffer; /* of the pool, or NULL when it goes straight into the tensor */
    size_t used;     /* bytes of it that have been added in */
    uint64_t weight; /* of the members whose elements it holds */
};

/** One operation, from start until it is stable. Library memory, reused. */
struct muster_run {
    struct muster_list node; /* lane->runs, in order, or group->pending */
    struct muster_group *group;
    struct muster_op *op; /* NULL once it was handed back */
    struct muster_op_id id;
    struct muster_op_call call;
    uint64_t descriptor;
    enum muster_run_state state;
    enum muster_run_mode mode;
    struct muster_op_result result;
    enum muster_op_phase phase; /* at the freeze */
    uint64_t deadline_ns;
    uint64_t started_ns; /* here; 0: not known */
    uint32_t spent_us;   /* from there to the whole result */
    uint32_t least_us;   /* of the others, the least that has been told … */
    uint32_t least_by;   /* … by this participant */
    struct muster_timer timer;
    uint64_t stalled_ns;      /* when to look next for participants that have stalled */
    enum muster_rc abort_why; /* CANCELLED, DEADLINE_EXCEEDED: proposed; OK: not */
    enum muster_rc linger_rc; /* what a lingering run ends with when it comes to no result */
    uint8_t timer_stage;      /* enum muster_timer_stage */
    bool has_sent_mismatch;   /* its own description; once more at the end */
    uint64_t heard_over;      /* participants that had said MISMATCH before it had a board plan */
    uint32_t participant_count, self_index; /* in this epoch; the plan may be of an earlier one */
    uint32_t complete_count;                /* participants that are known to be complete */
    struct muster_plan plan;
    uint32_t final_count;                  /* wanted chunks that are final here */
    const struct muster_executor_ops *ops; /* NULL: no memory yet */
    void *executor;                        /* its own state */
    void *memory;                          /* one buffer of the pool, with what follows: */
    void **undo;                           /* by chunk: the replaced input, or NULL */
    uint8_t *chunks;                       /* by chunk */
    uint8_t *heard;                        /* by participant */
    void *finished; /* the result, when it grows in the library's memory; a buffer, or NULL */
};

/* --- What executors call (collective/group/run.c) --- */

/** A frame to a participant. */
struct muster_run_frame {
    enum muster_frame_type type;
    uint32_t participant, chunk, phase;
    uint64_t offset; /* weight of the elements, or their number */
    const void *payload;
    uint32_t bytes;
    void *buffer; /* that holds the payload, a reference of its own; NULL: the caller's memory */
};
void muster_run_send_frame(struct muster_run *run, const struct muster_run_frame *frame);
/** The same, with the weight of the result so far. */
void muster_run_send(struct muster_run *run, enum muster_frame_type type, uint32_t participant,
                     uint32_t chunk, const void *payload, uint32_t bytes, void *buffer);
/** A buffer of the pool. NULL: no memory. */
void *muster_run_buffer(const struct muster_run *run, size_t bytes);
const struct muster_topology *muster_run_topology(struct muster_run *run);
/** Up to so many bytes an operation, or a part of one, goes at once. */
uint32_t muster_run_direct_max_bytes(const struct muster_run *run);
/** Where chunk c lies in the output, and how long it is. */
void *muster_run_chunk_at(const struct muster_run *run, uint32_t c, size_t *ret_bytes);
/** Save the input under a chunk of the output that is about to change. False: no memory. */
bool muster_run_save_undo(struct muster_run *run, uint32_t c);
/** Chunk c has become final here by whatever way: count it. */
void muster_run_mark_final(struct muster_run *run, uint32_t c);
/** Has no result of its own but for the root's: it is complete when the root is. */
bool muster_run_awaits_root(const struct muster_run *run);
/** Counts of this rank and of participant do not fit. False: it was handed back before. */
bool muster_run_set_dispute(struct muster_run *run, uint32_t participant, uint64_t sent,
                            uint64_t expected, bool is_sent_here);

static inline bool muster_run_is_adopting(const struct muster_run *run)
{
    return run->mode == MUSTER_RUN_ADOPTING;
}
static inline bool muster_run_is_lingering(const struct muster_run *run)
{
    return run->mode == MUSTER_RUN_LINGERING;
}
/** It never runs in this epoch. */
static inline bool muster_run_is_unfit(const struct muster_run *run)
{
    return run->mode >= MUSTER_RUN_UNFIT;
}

#endif
