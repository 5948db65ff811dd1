/* Declarations that the files of a setup share. */
#ifndef MUSTER_COLLECTIVE_GPU_SETUP_INTERNAL_H
#define MUSTER_COLLECTIVE_GPU_SETUP_INTERNAL_H

#include "collective/gpu/gpu_internal.h"

enum muster_gpu_setup_step {
    MUSTER_GPU_SETUP_REST,     /* the old communicator comes to rest */
    MUSTER_GPU_SETUP_STANDING, /* what has everybody? */
    MUSTER_GPU_SETUP_REVOKE,   /* shrink: quiet here, revoked elsewhere: the same everywhere */
    MUSTER_GPU_SETUP_MAKE_ID,  /* the first member makes the id … */
    MUSTER_GPU_SETUP_ID,       /* … and all get it */
    MUSTER_GPU_SETUP_MAKE,     /* the communicator comes up, or not */
    MUSTER_GPU_SETUP_OUTCOME,  /* on all? */
};

/** The result of a member; the same size for all three rounds. */
struct muster_gpu_setup_word {
    struct muster_gpu_standing standing;
    struct muster_nccl_id id;
    uint32_t rc;
    char text[MUSTER_ERROR_TEXT_BYTES]; /* whole: what it begins with is not its cause */
};

struct muster_gpu_setup {
    struct muster_gpu_group *group; /* NULL: dropped, freed when nothing of it is under way */
    struct muster_gpu_backend *backend;
    struct muster_op_id occasion;
    enum muster_gpu_setup_step step;
    uint32_t attempt;
    uint32_t count, index; /* participants */
    struct muster_op op;
    bool is_op_open, is_request_open, is_left;
    struct muster_gpu_request request;
    struct muster_nccl_id made_id;
    struct muster_error answer;             /* of make_id; written on the thread */
    struct muster_nccl_comm *parent;        /* grow: of made_id, for the thread … */
    struct muster_gpu_communicator *lender; /* … and who lends it, until the call has returned */
    struct muster_gpu_communicator *comm;
    struct muster_gpu_plan plan;
    struct muster_gpu_setup_word word;
    struct muster_gpu_setup_word *words; /* of all */
};

/* collective/gpu/setup.c */
/** The id of the round at `step` of this attempt. */
struct muster_op_id muster_gpu_setup_round_id(const struct muster_gpu_setup *setup,
                                              enum muster_gpu_setup_step step);
/** Show all members this one's word, at setup->step. */
void muster_gpu_setup_start_round(struct muster_gpu_setup *setup);
/** Nobody waits for it; freed when nothing of it is under way. */
bool muster_gpu_setup_is_dropped(struct muster_gpu_setup *setup);

/* collective/gpu/setup_make.c */
/** The first member makes the id; then the round in which all get it. */
void muster_gpu_setup_make_id(struct muster_gpu_setup *setup);
/** As planned; id: not to shrink. Then the round in which all tell how it went. */
void muster_gpu_setup_start_make(struct muster_gpu_setup *setup, const struct muster_nccl_id *id);
/** Tell all how it went here; who still waits for its communicator hears of a failure at once. */
void muster_gpu_setup_start_outcome(struct muster_gpu_setup *setup,
                                    const struct muster_error *error);

#endif
