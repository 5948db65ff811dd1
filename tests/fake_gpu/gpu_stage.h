/* The fake libraries for a test: their paths, their knobs, and members of a group in one process that
 * share one fake device. */
#ifndef MUSTER_TEST_GPU_STAGE_H
#define MUSTER_TEST_GPU_STAGE_H

#include "fake_gpu.h"
#include "test_env.h"

#include <muster/gpu.h>

#include "group_ring.h"

#define GPU_STAGE_VERSION 23007

struct gpu_knobs {
    fake_knob_set_fn *cuda_set, *nccl_set;
    fake_knob_get_fn *cuda_get, *nccl_get;
};

/** Paths of the fake libraries; static text until the next call. */
const char *gpu_stage_cuda(void);
const char *gpu_stage_nccl(int version);

/** Load the fakes, and set every knob to its beginning. */
void gpu_stage_load(struct gpu_knobs *knobs, int version);
/** Nothing was called that must not be, and nothing of the library's is left. */
void gpu_stage_check(const struct gpu_knobs *knobs);

/** Members of a group, and their backend. */
struct gpu_stage {
    struct group_ring ring;
    struct gpu_knobs knobs;
    struct muster_backend *backend;
    bool is_closed;
};
void gpu_stage_open(struct gpu_stage *stage, uint32_t n, int version,
                    const struct muster_gpu_options *options);
void gpu_stage_close(struct gpu_stage *stage);
/** The same, whatever is left of the library's. */
void gpu_stage_close_unchecked(struct gpu_stage *stage);

/** Device memory with count floats of that value. */
float *gpu_stage_floats(struct gpu_stage *stage, uint64_t count, float value);

/** An operation of one member and what came of it. */
struct gpu_call {
    struct muster_op op;
    unsigned done_count;
    enum muster_rc rc;
};
/** op.data, a deadline far away. */
void gpu_call_init(struct gpu_call *call, struct gpu_stage *stage);
void gpu_call_done(struct muster_op *op, enum muster_rc rc);
/** Turn the loop until each has had its callback; once each, or the case fails. */
void gpu_stage_wait(struct gpu_stage *stage, struct gpu_call *calls, unsigned count);
/** Turn the loop until the counter (of "cuda" or "nccl") is at least that. */
void gpu_stage_until(struct gpu_stage *stage, fake_knob_get_fn *get, const char *name, long value);

#endif
